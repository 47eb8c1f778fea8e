//! The tuple of a connection in its zone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base::mix::{chain, fold};
use packet::metadata::Tuple;

/// IP protocols that the tracker knows.
pub mod ipproto {
    /// IPv6 hop-by-hop options.
    pub const HOPOPTS: u8 = 0;
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// Datagram Congestion Control Protocol (RFC 4340).
    pub const DCCP: u8 = 33;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Authentication header.
    pub const AH: u8 = 51;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// IPv6 destination options.
    pub const DSTOPTS: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// UDP-Lite (RFC 3828).
    pub const UDPLITE: u8 = 136;
}

/// One of the two directions of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Direction {
    /// That of the packet that was committed.
    #[default]
    Original,
    /// The other one.
    Reply,
}

impl Direction {
    /// The other direction.
    pub fn reversed(self) -> Self {
        match self {
            Self::Original => Self::Reply,
            Self::Reply => Self::Original,
        }
    }

    /// 0 for the original direction, 1 for the reply.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// Addresses, protocol and ports of a packet, and the zone in which it is tracked.
///
/// For ICMP and ICMPv6, `src_port` is the identifier, and `dst_port` has the type in its upper byte and the code in its
/// lower. Protocols without ports have zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct Key {
    /// Source address as a big-endian number, most significant half first. An IPv4 address is in the lowest 32 bits.
    pub src: [u64; 2],
    /// Destination address, of the same family.
    pub dst: [u64; 2],
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Zone.
    pub zone: u16,
    /// IP protocol.
    pub proto: u8,
    /// Whether the addresses are IPv6 addresses.
    pub is_v6: bool,
}

const _: () = assert!(size_of::<Key>() == 40);

/// Factors for hashes: digits of pi.
const FACTORS: [u64; 3] = [0x2437_f6a8_885a_308d, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1];

impl Key {
    /// The key of the packets of the opposite direction, without address translation.
    #[inline]
    pub fn reversed(&self) -> Self {
        let (src_port, dst_port) = if self.is_icmp() {
            (self.src_port, reverse_icmp(self.dst_port, self.is_v6))
        } else {
            (self.dst_port, self.src_port)
        };
        Self { src: self.dst, dst: self.src, src_port, dst_port, ..*self }
    }

    /// Returns true for ICMP over IPv4 and ICMPv6 over IPv6.
    #[inline]
    pub fn is_icmp(&self) -> bool {
        self.proto == if self.is_v6 { ipproto::ICMPV6 } else { ipproto::ICMP }
    }

    /// A hash that is equal for both directions of a connection without address translation.
    #[inline]
    pub fn hash(&self, seed: u64) -> u64 {
        let (src_port, dst_port) =
            if self.is_icmp() { (self.src_port, self.src_port) } else { (self.src_port, self.dst_port) };
        let end = |address: [u64; 2], port: u16| {
            if self.is_v6 {
                let low = fold(address[1] ^ seed, FACTORS[0]);
                chain(low, address[0] ^ u64::from(port) << 48, FACTORS[1])
            } else {
                // Address and port fit into one word.
                fold(address[1] ^ u64::from(port) << 32 ^ seed, FACTORS[0])
            }
        };
        let ends = end(self.src, src_port).wrapping_add(end(self.dst, dst_port));
        chain(ends, (u64::from(self.zone) << 8 | u64::from(self.proto)) ^ seed, FACTORS[2])
    }

    /// The source address.
    pub fn src_ip(&self) -> IpAddr {
        ip_of(self.src, self.is_v6)
    }

    /// The destination address.
    pub fn dst_ip(&self) -> IpAddr {
        ip_of(self.dst, self.is_v6)
    }

    /// The key of the original direction that a packet's metadata shows, in the zone and with the ICMP identifier of this
    /// packet; `None` if the packet is of another family or protocol.
    pub fn with_original(&self, tuple: &Tuple) -> Option<Self> {
        if (tuple.proto, tuple.is_v6) != (self.proto, self.is_v6) {
            return None;
        }
        let (src_port, dst_port) = if self.is_icmp() {
            (self.src_port, tuple.src_port << 8 | tuple.dst_port & 0xff)
        } else {
            (tuple.src_port, tuple.dst_port)
        };
        Some(Self { src: tuple.src, dst: tuple.dst, src_port, dst_port, ..*self })
    }

    /// The tuple as fields of the packet show it.
    #[inline]
    pub fn tuple(&self) -> Tuple {
        let (src_port, dst_port) =
            if self.is_icmp() { (self.dst_port >> 8, self.dst_port & 0xff) } else { (self.src_port, self.dst_port) };
        Tuple { src: self.src, dst: self.dst, proto: self.proto, is_v6: self.is_v6, src_port, dst_port }
    }
}

/// The number of an address, most significant half first.
pub fn number_of(ip: IpAddr) -> [u64; 2] {
    match ip {
        IpAddr::V4(ip) => [0, u64::from(u32::from(ip))],
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            [(bits >> 64) as u64, bits as u64]
        }
    }
}

/// The address of a number.
pub fn ip_of(number: [u64; 2], is_v6: bool) -> IpAddr {
    if is_v6 {
        Ipv6Addr::from(u128::from(number[0]) << 64 | u128::from(number[1])).into()
    } else {
        Ipv4Addr::from(number[1] as u32).into()
    }
}

/// Type and code of the answer to an ICMP message that has one, and of the question to an answer; others stay as they are.
fn reverse_icmp(type_code: u16, is_v6: bool) -> u16 {
    let kind = match (type_code >> 8, is_v6) {
        (0, false) => 8,
        (8, false) => 0,
        (13, false) => 14,
        (14, false) => 13,
        (15, false) => 16,
        (16, false) => 15,
        (128, true) => 129,
        (129, true) => 128,
        (other, _) => other,
    };
    kind << 8 | type_code & 0xff
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    #[test]
    fn both_directions_have_one_hash() {
        let mut rng = Rng::seeded(1);
        for n in 0..1000 {
            let is_v6 = n % 2 == 0;
            let mut address = || if is_v6 { [rng.next_u64(), rng.next_u64()] } else { [0, rng.next_u64() >> 32] };
            let (src, dst) = (address(), address());
            let proto = [ipproto::TCP, ipproto::ICMP, ipproto::ICMPV6, 47][n % 4];
            let icmp = [0x0800, 0x0e00, 0x8000, 0x0f00][n % 4];
            let key = Key { src, dst, src_port: rng.next_u64() as u16, dst_port: icmp, zone: 7, proto, is_v6 };
            assert_eq!(key.hash(9), key.reversed().hash(9));
            assert_eq!(key.reversed().reversed(), key);
            // Under any seed.
            let seed = rng.next_u64();
            for zone in [0, 6, 8, u16::MAX] {
                assert_ne!(key.hash(seed), Key { zone, ..key }.hash(seed));
            }
            assert_ne!(key.hash(9), key.hash(10));
        }
    }
}
