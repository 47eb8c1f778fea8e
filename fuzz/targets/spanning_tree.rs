//! Frames, times and changes of settings for a bridge with STP or RSTP: the machines settle, accepted BPDUs survive encoding
//! and decoding, others change nothing but the count of errors, and a port sends a bounded number of BPDUs.
#![no_main]

use base::{BridgePort, MacAddr, Millis, PortNo};
use spanning_tree::{
    Bpdu, BridgeSettings, Effect, Flavour, PortSettings, RstpSettings, Settings, SpanningTree, StpSettings,
};

const PORTS: u32 = 3;

fn settings(is_rapid: bool) -> BridgeSettings {
    let address = MacAddr::from_u64(5);
    let flavour =
        if is_rapid { Flavour::Rstp(RstpSettings::new(address)) } else { Flavour::Stp(StpSettings::new(address)) };
    let port = |n: u32| (PortNo(n), PortSettings::new("p", MacAddr::from_u64(u64::from(n)), 4));
    BridgeSettings { name: "br0".into(), flavour, ports: (0..PORTS).map(port).collect(), bystanders: [].into() }
}

fuzz::target!(|bytes: &[u8]| {
    let Some((&protocol, mut rest)) = bytes.split_first() else { return };
    let mut settings = settings(protocol & 1 != 0);
    let mut machine = SpanningTree::new();
    let mut now = Millis(0);
    let configure = |machine: &mut SpanningTree, settings: &BridgeSettings, now| {
        machine.configure(Settings { bridges: [(1, settings.clone())].into() }, now);
    };
    configure(&mut machine, &settings, now);
    let (mut sent, mut events) = (0, 0);
    // Events behind each other, each with a port, the time that passes and the length of the frame in front. Without a frame,
    // the settings of the port change.
    while let Some((&[port, time, length], behind)) = rest.split_first_chunk() {
        let (frame, behind) = behind.split_at(usize::from(length).min(behind.len()));
        rest = behind;
        now = now.after(u64::from(time) * 32);
        events += 1;
        let number = PortNo(u32::from(port) % PORTS);
        if frame.is_empty() {
            let one = settings.ports.get_mut(&number).expect("the port has settings");
            one.is_up = port & 16 == 0;
            one.admin_edge = port & 32 != 0;
            one.path_cost = u32::from(port >> 6);
            configure(&mut machine, &settings, now);
        } else {
            let before = machine.status().remove(0);
            machine.input(BridgePort { bridge: 1, port: number }, frame, now);
            let after = machine.status().remove(0);
            match Bpdu::parse(frame) {
                Err(_) => assert_eq!((before.root, before.root_port), (after.root, after.root_port)),
                Ok(bpdu) => assert_eq!(Bpdu::parse(&bpdu.write(MacAddr::default())), Ok(bpdu)),
            }
        }
        let mut effects = Vec::new();
        machine.poll(now, &mut effects);
        assert!(machine.next_deadline().is_none_or(|deadline| deadline > now));
        sent += effects.iter().filter(|effect| matches!(effect, Effect::Send { .. })).count() as u64;
    }
    // The transmit hold count of RSTP in each second, and what a change of settings may add.
    let seconds = now.0 / 1000 + 1;
    assert!(sent <= u64::from(PORTS) * 8 * seconds + 8 * events, "{sent} BPDUs in {seconds} s");
});
