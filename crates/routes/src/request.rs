//! Frames that ask for a neighbour's Ethernet address: ARP requests (RFC 826) and neighbour solicitations (RFC 4861,
//! section 4.3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base::MacAddr;

const ETH_TYPE_ARP: u16 = 0x0806;
const ETH_TYPE_IPV6: u16 = 0x86dd;
const ICMPV6: u8 = 58;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const OPTION_SOURCE: u8 = 1;
/// Of a solicitation with the option: type, code, checksum, reserved bits, target, option.
const SOLICITATION_LEN: usize = 32;

/// The frame that asks for `target`, from a device with these addresses. `None` if the families differ.
pub fn request(mac: MacAddr, source: IpAddr, target: IpAddr) -> Option<Vec<u8>> {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => Some(arp_request(mac, source, target)),
        (IpAddr::V6(source), IpAddr::V6(target)) => Some(solicitation(mac, source, target)),
        _ => None,
    }
}

fn arp_request(mac: MacAddr, source: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = [&MacAddr::BROADCAST.0[..], &mac.0, &ETH_TYPE_ARP.to_be_bytes()].concat();
    // Ethernet, IPv4, lengths of their addresses, request.
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(mac.0);
    frame.extend(source.octets());
    frame.extend([0; 6]);
    frame.extend(target.octets());
    frame
}

fn solicitation(mac: MacAddr, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    // The group of all nodes with an address of these last 24 bits (RFC 4291, section 2.7.1).
    const GROUP: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    let group = Ipv6Addr::from_bits(GROUP | target.to_bits() & 0xff_ffff);
    let mut body = vec![NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    body.extend(target.octets());
    body.extend([OPTION_SOURCE, 1]);
    body.extend(mac.0);
    let sum = checksum(source, group, &body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());

    // The group's Ethernet address (RFC 2464, section 7).
    let octets = group.octets();
    let mut frame = vec![0x33, 0x33, octets[12], octets[13], octets[14], octets[15]];
    frame.extend(mac.0);
    frame.extend(ETH_TYPE_IPV6.to_be_bytes());
    frame.extend([0x60, 0, 0, 0, 0, SOLICITATION_LEN as u8, ICMPV6, 255]);
    frame.extend(source.octets());
    frame.extend(group.octets());
    frame.extend(body);
    frame
}

/// The checksum of an ICMPv6 message of even length, over the pseudo-header too (RFC 4443, section 2.3).
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, body: &[u8]) -> u16 {
    let words =
        |bytes: &[u8]| -> u32 { bytes.chunks_exact(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum() };
    let mut sum = words(&source.octets()) + words(&destination.octets()) + words(body);
    sum += body.len() as u32 + u32::from(ICMPV6);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(frame: Option<Vec<u8>>) -> String {
        frame.unwrap_or_default().iter().map(|b| format!("{b:02x}")).collect()
    }

    /// What Open vSwitch 4.0.0 sends.
    #[test]
    fn requests_are_those_of_the_peer() {
        let mac = MacAddr([0xaa, 0x55, 0xaa, 0x55, 0, 0]);
        let ip = |text: &str| text.parse::<IpAddr>().expect("valid");
        assert_eq!(
            hex(request(mac, ip("1.1.2.88"), ip("1.1.2.92"))),
            "ffffffffffffaa55aa55000008060001080006040001aa55aa550000010102580000000000000101025c"
        );
        assert_eq!(
            hex(request(mac, ip("2001:cafe::88"), ip("2001:cafe::92"))),
            "3333ff000092aa55aa55000086dd6000000000203aff2001cafe000000000000000000000088ff0200000000000000000001ff0000928700\
             4d48000000002001cafe0000000000000000000000920101aa55aa550000"
        );
        assert_eq!(request(mac, ip("1.1.2.88"), ip("::1")), None);
    }
}
