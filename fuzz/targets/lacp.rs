//! Any bytes as frames of slow protocols to two members of a bond: LACPDUs survive encoding and decoding, others change
//! nothing but counters, and attached members have one partner.
#![no_main]

use base::{BridgePort, MacAddr, Millis, PortNo};
use lacp::{BondSettings, Carrier, Lacp, MemberSettings, Settings, SlowFrame};

const PORTS: [BridgePort; 2] = [BridgePort { bridge: 1, port: PortNo(1) }, BridgePort { bridge: 1, port: PortNo(2) }];

fuzz::target!(|bytes: &[u8]| {
    let mut machine = Lacp::new(Millis(0));
    let member = |port: BridgePort| {
        let carrier = Carrier { up: true, resets: 0 };
        (port, MemberSettings { port_id: port.port.0 as u16, carrier, ..MemberSettings::default() })
    };
    let bond = BondSettings { members: PORTS.map(member).into(), system: MacAddr([2; 6]), ..BondSettings::default() };
    machine.configure(Settings { bonds: [((1, "bond0".into()), bond)].into() }, Millis(0));
    machine.poll(Millis(0));
    // Frames behind each other: a byte for the member and the time that passes, a byte for the length.
    let (mut rest, mut now) = (bytes, Millis(0));
    while let Some((&[head, len], behind)) = rest.split_first_chunk() {
        let (frame, behind) = behind.split_at(usize::from(len).min(behind.len()));
        rest = behind;
        now = now.after(u64::from(head >> 1) * 100);
        let which = usize::from(head & 1);
        machine.poll(now);
        let before = machine.status().remove(0).members;
        machine.input(PORTS[which], frame, now);
        let parsed = SlowFrame::parse(frame);
        if let Ok(SlowFrame::Lacp(pdu)) = parsed {
            assert_eq!(SlowFrame::parse(&pdu.frame(MacAddr::ZERO)), parsed);
        }
        machine.poll(now);
        let after = machine.status().remove(0).members;
        let of = |members: &[lacp::MemberStatus]| members.iter().find(|m| m.port == PORTS[which]).cloned();
        let (Some(before), Some(changed)) = (of(&before), of(&after)) else { panic!("members stay") };
        assert_eq!(changed.statistics.rx, before.statistics.rx + 1);
        match parsed {
            Ok(SlowFrame::Lacp(pdu)) => assert_eq!(changed.partner, pdu.actor),
            Ok(SlowFrame::Marker) => assert_eq!(changed.partner, before.partner),
            Err(_) => {
                assert_eq!((changed.partner, changed.statistics.rx_bad), (before.partner, before.statistics.rx_bad + 1))
            }
        }
        if let [a, b] = &after[..]
            && a.attached
            && b.attached
        {
            assert_eq!((a.partner.system, a.partner.key), (b.partner.system, b.partner.key));
        }
        assert!(machine.next_deadline().is_some_and(|deadline| deadline > now));
    }
});
