//! Any bytes as LLDP frames: accepted frames survive encoding and decoding, and others change no neighbour.
#![no_main]

use base::{BridgePort, MacAddr, Millis, PortNo};
use lldp::{Lldp, Pdu, PortSettings, Settings};

const PORT: BridgePort = BridgePort { bridge: 1, port: PortNo(1) };

fuzz::target!(|bytes: &[u8]| {
    let mut machine = Lldp::new();
    let settings = PortSettings { name: "p1".into(), ..PortSettings::default() };
    machine.configure(Settings { ports: [(PORT, settings)].into() }, Millis(0));
    // Frames behind each other, each with its length in front; the time goes on by that, too.
    let (mut rest, mut now) = (bytes, Millis(0));
    while let Some((&[high, low], behind)) = rest.split_first_chunk() {
        let (frame, behind) = behind.split_at(usize::from(u16::from_be_bytes([high, low])).min(behind.len()));
        rest = behind;
        now = now.after(u64::from(low));
        let before = machine.status().remove(0);
        machine.input(PORT, frame, now);
        let after = machine.status().remove(0);
        assert_eq!(after.statistics.rx, before.statistics.rx + 1);
        match Pdu::parse(frame) {
            Err(_) => {
                assert_eq!(after.neighbours, before.neighbours);
                assert_eq!(after.statistics.rx_discarded, before.statistics.rx_discarded + 1);
            }
            Ok((pdu, _)) => {
                let (written, left_out) = pdu.write(MacAddr::default());
                let (again, unrecognized) = Pdu::parse(&written).expect("what was written is valid");
                assert_eq!(unrecognized, 0);
                let assignments = pdu.assignments[..pdu.assignments.len() - left_out].to_vec();
                assert_eq!(again, Pdu { assignments, ..pdu });
            }
        }
        machine.poll(now);
        assert!(machine.next_deadline().is_some_and(|deadline| deadline > now));
    }
});
