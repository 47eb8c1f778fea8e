//! Any bytes as frames with BFD control packets: accepted packets survive encoding and decoding, and refused ones change
//! nothing but counters.
#![no_main]

use base::{BridgePort, MacAddr, Millis, PortNo};
use bfd::packet::{self, Control};
use bfd::{Bfd, Effect, SessionSettings};

const PORT: BridgePort = BridgePort { bridge: 1, port: PortNo(1) };

fuzz::target!(|bytes: &[u8]| {
    let mut now = Millis(1000);
    let mut machine = Bfd::new(1, now);
    machine.set(PORT, SessionSettings::new("p1", MacAddr::default()), now);
    // Frames behind each other, each with its length in front; the time goes on by that, too. A length of 0 stands for the
    // next packet of a second machine, which receives what the first one sends.
    let mut peer = Bfd::new(2, now);
    peer.set(PORT, SessionSettings::new("p2", MacAddr::default()), now);
    let mut rest = bytes;
    while let Some((&[high, low], behind)) = rest.split_first_chunk() {
        let (frame, behind) = behind.split_at(usize::from(u16::from_be_bytes([high, low])).min(behind.len()));
        rest = behind;
        now = now.after(u64::from(low) + 1);
        for effect in peer.poll(now) {
            if let Effect::Send { frame, .. } = effect {
                machine.input(PORT, &frame, now);
            }
        }
        let before = machine.status(PORT).expect("the session exists");
        machine.input(PORT, frame, now);
        let after = machine.status(PORT).expect("the session exists");
        match packet::payload(frame).map(Control::parse) {
            None => assert_eq!(after, before),
            Some(Err(_)) => {
                assert_eq!(after.statistics.rx_refused, before.statistics.rx_refused + 1);
                assert_eq!((after.state, after.remote), (before.state, before.remote));
            }
            Some(Ok(control)) => {
                assert_eq!(Control::parse(&control.to_bytes()), Ok(control));
                assert_eq!(after.statistics.rx, before.statistics.rx + 1);
            }
        }
        for effect in machine.poll(now) {
            if let Effect::Send { frame, .. } = effect {
                let sent = Control::parse(packet::payload(&frame).expect("a sent frame is valid"));
                assert_eq!(sent.expect("a sent packet is valid").my_discriminator, before.discriminator);
                peer.input(PORT, &frame, now);
            }
        }
        assert!(machine.next_deadline().is_some_and(|deadline| deadline > now));
    }
});
