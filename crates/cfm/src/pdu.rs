//! Continuity check messages (IEEE 802.1Q-2018 clause 21.6) in Ethernet frames, with the extension of Open vSwitch in the
//! bytes that ITU-T Y.1731 reserves.
//!
//! Invariant: parsing accepts any bytes without a panic.

use base::MacAddr;

/// Ethernet type of CFM.
pub const ETHERTYPE: u16 = 0x8902;
/// Destination of CCMs: the group address of maintenance level 0 (IEEE 802.1Q-2018 table 8-15).
pub const DESTINATION: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x30]);
/// Destination of CCMs in extended mode.
pub const EXTENDED_DESTINATION: MacAddr = MacAddr([0x01, 0x23, 0x20, 0x00, 0x00, 0x30]);
/// Intervals in milliseconds, by the code in the flags of a CCM, which begins with 1 (IEEE 802.1Q-2018 table 21-16).
pub const INTERVALS_MS: [u64; 7] = [3, 10, 100, 1000, 10_000, 60_000, 600_000];

/// Bytes of a CCM without TLVs.
const LEN: usize = 74;
const OPCODE_CCM: u8 = 1;
const RDI: u8 = 0x80;
const INTERVAL_MASK: u8 = 0x07;
/// Where TLVs begin, counted from the byte behind this offset.
const TLV_OFFSET: u8 = 70;
const ETHERTYPES_VLAN: [u16; 2] = [0x8100, 0x88a8];
/// Bytes of a maintenance association identifier.
const MAID_LEN: usize = 48;
/// The identifier of the only association: domain and association are both the character string "ovs".
const MAID: [u8; 10] = *b"\x04\x03ovs\x02\x03ovs";

/// The reason to discard a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The frame has no CFM header.
    #[error("Received an unparseable 802.1ag CCM heartbeat.")]
    Truncated,
    /// A CFM message that is no CCM.
    #[error("Received an unsupported 802.1ag message. (opcode {0})")]
    Opcode(u8),
    /// The sender is of another maintenance association.
    #[error("Received unexpected remote MAID from MAC {0}")]
    Association(MacAddr),
}

/// A continuity check message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ccm {
    /// Remote defect indication: the sender receives no CCMs.
    pub rdi: bool,
    /// The code of the interval, 3 bits: a place in [`INTERVALS_MS`] plus 1, or 0 for another interval.
    pub interval_code: u8,
    /// Sequence number.
    pub sequence: u32,
    /// Maintenance point identifier.
    pub mpid: u16,
    /// The interval in milliseconds if it has no code; extended mode only.
    pub extended_interval_ms: u16,
    /// Maintenance point identifier of extended mode.
    pub extended_mpid: u64,
    /// The sender is operationally down; extended mode only.
    pub is_down: bool,
}

impl Ccm {
    /// Reads a frame, with up to two VLAN tags. Version, level and TLVs are not examined.
    pub fn parse(frame: &[u8]) -> Result<(Self, MacAddr), Refused> {
        let (source, pdu) = Self::pdu(frame).ok_or(Refused::Truncated)?;
        let opcode = *pdu.get(1).ok_or(Refused::Truncated)?;
        if opcode != OPCODE_CCM {
            return Err(Refused::Opcode(opcode));
        }
        let (pdu, _) = pdu.split_first_chunk::<LEN>().ok_or(Refused::Truncated)?;
        let (maid, rest) = pdu[10..].split_at(MAID_LEN);
        if !maid.starts_with(&MAID) || maid[MAID.len()..].iter().any(|byte| *byte != 0) {
            return Err(Refused::Association(source));
        }
        let extended_mpid = rest[2..10].iter().fold(0, |mpid, byte| mpid << 8 | u64::from(*byte));
        let ccm = Self {
            rdi: pdu[2] & RDI != 0,
            interval_code: pdu[2] & INTERVAL_MASK,
            sequence: u32::from_be_bytes([pdu[4], pdu[5], pdu[6], pdu[7]]),
            mpid: u16::from_be_bytes([pdu[8], pdu[9]]),
            extended_interval_ms: u16::from_be_bytes([rest[0], rest[1]]),
            extended_mpid,
            is_down: rest[10] != 0,
        };
        Ok((ccm, source))
    }

    /// The source address and the CFM message of a frame.
    fn pdu(frame: &[u8]) -> Option<(MacAddr, &[u8])> {
        let source = frame.get(6..12)?.try_into().ok().map(MacAddr)?;
        let mut rest = frame.get(12..)?;
        for _ in 0..2 {
            if ETHERTYPES_VLAN.contains(&u16::from_be_bytes([*rest.first()?, *rest.get(1)?])) {
                rest = rest.get(4..)?;
            }
        }
        Some((source, rest.strip_prefix(&ETHERTYPE.to_be_bytes())?))
    }

    /// The frame that carries the CCM, with a VLAN tag if `tci`, its priority and VLAN, is not 0.
    pub fn frame(&self, source: MacAddr, destination: MacAddr, tci: u16) -> Vec<u8> {
        let mut frame = Vec::with_capacity(14 + 4 + LEN + 1);
        frame.extend(destination.0);
        frame.extend(source.0);
        if tci != 0 {
            frame.extend(ETHERTYPES_VLAN[0].to_be_bytes());
            frame.extend(tci.to_be_bytes());
        }
        frame.extend(ETHERTYPE.to_be_bytes());
        let flags = if self.rdi { RDI } else { 0 } | self.interval_code & INTERVAL_MASK;
        frame.extend([0, OPCODE_CCM, flags, TLV_OFFSET]);
        frame.extend(self.sequence.to_be_bytes());
        frame.extend(self.mpid.to_be_bytes());
        frame.extend(MAID);
        frame.extend([0; MAID_LEN - MAID.len()]);
        frame.extend(self.extended_interval_ms.to_be_bytes());
        frame.extend(self.extended_mpid.to_be_bytes());
        frame.push(self.is_down.into());
        // Reserved bytes, and the TLV that ends the list.
        frame.extend([0; 6]);
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect()
    }

    const SOURCE: MacAddr = MacAddr([0xaa, 0x55, 0xaa, 0x55, 0x00, 0x0f]);
    const CCM: Ccm = Ccm {
        rdi: false,
        interval_code: 4,
        sequence: 1,
        mpid: 1,
        extended_interval_ms: 0,
        extended_mpid: 0,
        is_down: false,
    };

    #[test]
    fn frames_equal_those_of_open_vswitch() {
        // Sent by Open vSwitch 4.0.0 on a dummy port.
        let zeros = "00".repeat(38);
        let sent = bytes(&format!(
            "0180c2000030aa55aa55000f89020001044600000001000104036f767302036f7673{zeros}00000000000000000000000000000000\
             00"
        ));
        assert_eq!(CCM.frame(SOURCE, DESTINATION, 0), sent);
        assert_eq!(Ccm::parse(&sent), Ok((CCM, SOURCE)));
        let sent = bytes("012320000030aa55aa55000f810000058902000104460000005100015d44");
        assert_eq!(Ccm { sequence: 0x51, ..CCM }.frame(SOURCE, EXTENDED_DESTINATION, 5)[..26], sent[..26]);
        let extended = Ccm {
            sequence: 0x49,
            interval_code: 0,
            mpid: 0x5d44,
            extended_interval_ms: 500,
            extended_mpid: 1,
            is_down: true,
            rdi: false,
        };
        let sent = bytes(&format!(
            "012320000030aa55aa55000f890200010046000000495d4404036f767302036f7673{zeros}01f4000000000000000101000000000000"
        ));
        assert_eq!(extended.frame(SOURCE, EXTENDED_DESTINATION, 0), sent);
        assert_eq!(Ccm::parse(&sent), Ok((extended, SOURCE)));
    }

    #[test]
    fn wrong_frames_are_refused() {
        let good = CCM.frame(SOURCE, DESTINATION, 0);
        for length in 0..14 + LEN {
            assert_eq!(Ccm::parse(&good[..length]), Err(Refused::Truncated), "{length}");
        }
        assert!(Ccm::parse(&good[..14 + LEN]).is_ok());
        let changed = |at: usize, byte: u8| {
            let mut frame = good.clone();
            frame[at] = byte;
            Ccm::parse(&frame)
        };
        assert_eq!(changed(15, 2), Err(Refused::Opcode(2)));
        assert_eq!(changed(24, 3), Err(Refused::Association(SOURCE)));
        assert_eq!(changed(71, 1), Err(Refused::Association(SOURCE)));
        assert_eq!(changed(13, 3), Err(Refused::Truncated));
        // Level, version and TLV offset.
        assert_eq!([changed(14, 0x21), changed(17, 69)], [Ok((CCM, SOURCE)); 2]);
        let tagged = [&good[..12], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5], &good[12..], b"more"].concat();
        assert_eq!(Ccm::parse(&tagged), Ok((CCM, SOURCE)));
    }

    tally::proptest! {
        #[test]
        fn messages_survive_encoding(
            rdi: bool, interval_code in 0u8..8, sequence: u32, mpid: u16, extended_interval_ms: u16, extended_mpid: u64,
            is_down: bool, tci: u16,
        ) {
            let ccm = Ccm { rdi, interval_code, sequence, mpid, extended_interval_ms, extended_mpid, is_down };
            prop_assert_eq!(Ccm::parse(&ccm.frame(SOURCE, DESTINATION, tci)), Ok((ccm, SOURCE)));
        }

        #[test]
        fn any_bytes_are_accepted(bytes in prop::collection::vec(any::<u8>(), 0..100), at in 0usize..89, byte: u8) {
            let _ = Ccm::parse(&bytes);
            let mut near = CCM.frame(SOURCE, DESTINATION, 0);
            near[at] = byte;
            let _ = Ccm::parse(&near);
        }
    }
}
