//! Frames that teach a neighbouring switch on which port an address is, and the ones by which a bond recognises an address
//! that has moved.

use base::MacAddr;

/// The Ethernet type of RARP (RFC 903).
const RARP: u16 = 0x8035;

/// Returns the frame by which a neighbouring switch learns on which link `mac` is now: a reverse ARP request (RFC 903) of
/// the address for itself, to all stations, untagged, without padding.
pub fn learning_frame(mac: MacAddr) -> Vec<u8> {
    const UNKNOWN: [u8; 4] = [0; 4];
    // Hardware type Ethernet, protocol type IPv4, lengths of their addresses, the request of RARP.
    const HEADER: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 3];
    let ethernet = [&MacAddr::BROADCAST.0[..], &mac.0, &RARP.to_be_bytes()].concat();
    [&ethernet[..], &HEADER, &mac.0, &UNKNOWN, &mac.0, &UNKNOWN].concat()
}

/// Returns true for a gratuitous ARP packet, which announces that an address is at another place: a broadcast reply, or a
/// broadcast request of a station for its own address. `op` and the addresses are those of the ARP header (RFC 826).
pub fn is_gratuitous_arp(dst: MacAddr, op: u16, sender: u32, target: u32) -> bool {
    const REQUEST: u16 = 1;
    const REPLY: u16 = 2;
    dst == MacAddr::BROADCAST && (op == REPLY || op == REQUEST && sender == target)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame that Open vSwitch 4.0.0 sent.
    #[test]
    fn equals_the_frame_of_open_vswitch() {
        let hex: String =
            learning_frame("50:54:00:00:00:02".parse().unwrap()).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "ffffffffffff505400000002803500010800060400035054000000020000000050540000000200000000");
    }

    #[test]
    fn gratuitous_packets() {
        let unicast = MacAddr::local_from(1);
        for (dst, op, sender, target, expected) in [
            (MacAddr::BROADCAST, 1, 7, 7, true),
            (MacAddr::BROADCAST, 1, 7, 8, false),
            (MacAddr::BROADCAST, 2, 7, 8, true),
            (MacAddr::BROADCAST, 3, 7, 7, false),
            (unicast, 1, 7, 7, false),
            (unicast, 2, 7, 7, false),
        ] {
            assert_eq!(is_gratuitous_arp(dst, op, sender, target), expected, "{dst} {op} {sender} {target}");
        }
    }
}
