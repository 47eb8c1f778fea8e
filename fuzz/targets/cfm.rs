//! Any bytes as CFM frames: accepted CCMs survive encoding and decoding, and refused ones change no remote point.
#![no_main]

use base::{BridgePort, MacAddr, Millis, PortNo};
use cfm::pdu::DESTINATION;
use cfm::{Ccm, Cfm, PointSettings};

const PORT: BridgePort = BridgePort { bridge: 1, port: PortNo(1) };

fuzz::target!(|bytes: &[u8]| {
    let mut now = Millis(1000);
    let mut machine = Cfm::new(1, now);
    let extended = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    machine.set(PORT, PointSettings { extended, ..PointSettings::new("p1", MacAddr::default(), 1) }, now);
    // Frames behind each other, each with its length in front; the time goes on by that, too.
    let mut rest = bytes.get(1..).unwrap_or_default();
    while let Some((&[high, low], behind)) = rest.split_first_chunk() {
        let (frame, behind) = behind.split_at(usize::from(u16::from_be_bytes([high, low])).min(behind.len()));
        rest = behind;
        now = now.after(16 * u64::from(low) + 1);
        machine.poll(now);
        let before = machine.status(PORT).expect("the point exists");
        machine.input(PORT, frame, now);
        let after = machine.status(PORT).expect("the point exists");
        assert_eq!(after.statistics.rx, before.statistics.rx + 1);
        match Ccm::parse(frame) {
            Err(_) => {
                assert_eq!(after.remotes, before.remotes);
                assert_eq!(after.statistics.rx_refused, before.statistics.rx_refused + 1);
            }
            Ok((ccm, source)) => {
                assert_eq!(Ccm::parse(&ccm.frame(source, DESTINATION, 0)), Ok((ccm, source)));
                let mpid = if extended { ccm.extended_mpid } else { ccm.mpid.into() };
                assert!(after.remotes.iter().any(|remote| remote.mpid == mpid && remote.received));
            }
        }
        machine.poll(now);
        assert!(machine.next_deadline().is_some_and(|deadline| deadline > now));
    }
});
