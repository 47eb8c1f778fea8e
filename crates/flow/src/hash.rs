//! Flow hashes of a packet (`dp_hash` of ovs-fields(7)).
//!
//! A hash is never 0, which means "not computed". All packets of a flow have equal hashes, so fields that differ
//! between them are left out: fragments are hashed without ports, as later fragments have none.

use crate::extract::{ethertype, ipproto};
use crate::layout;
use crate::plain::Words;
use base::mix::chain;
use packet::wire::Head;

/// An odd factor with well distributed bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn add(hash: u64, word: u64) -> u64 {
    chain(hash, word, FACTOR)
}

fn finish(hash: u64) -> u32 {
    ((hash ^ hash >> 32) as u32).max(1)
}

/// Hashes IP addresses, protocol and transport ports. The two directions of a connection differ.
pub fn l4(key: &impl Words, basis: u32) -> u32 {
    L4::new(basis).of(key)
}

/// The hash [`l4`] with a basis, for many packets.
#[derive(Clone, Copy, Debug)]
pub struct L4 {
    basis: u32,
    /// The hash of what all packets over IPv4 have in common.
    ipv4: u64,
}

impl L4 {
    /// The hash with this basis.
    #[inline]
    pub fn new(basis: u32) -> Self {
        Self { basis, ipv4: add(basis.into(), ethertype::IPV4.into()) }
    }

    /// The hash of a packet with this key.
    #[inline]
    pub fn of(&self, key: &impl Words) -> u32 {
        let (w, eth_type, proto) = (|word| key.word(word), eth_type(key), ip_proto(key));
        let hash = match eth_type {
            ethertype::IPV4 => add(self.ipv4, w(layout::IPV4)),
            ethertype::IPV6 => {
                let hash = add(self.basis.into(), eth_type.into());
                (layout::IPV6_SRC..layout::IPV6_SRC + 4).fold(hash, |hash, word| add(hash, w(word)))
            }
            _ => return finish(add(self.basis.into(), eth_type.into())),
        };
        let ported = matches!(proto, ipproto::TCP | ipproto::UDP | ipproto::SCTP) && !is_fragment(key);
        with_ports(hash, proto, if ported { (w(layout::TP) >> 32) as u32 } else { 0 })
    }

    /// The hash of a packet of TCP or UDP over IPv4 with these headers.
    #[inline]
    pub fn of_head(&self, head: &Head<'_>) -> u32 {
        with_ports(add(self.ipv4, head.addresses()), head.proto(), head.ports())
    }
}

/// The hash [`l4`] from that of the addresses; `ports` are 0 if they are left out.
#[inline]
fn with_ports(hash: u64, proto: u8, ports: u32) -> u32 {
    finish(add(hash, u64::from(proto) << 32 | u64::from(ports)))
}

/// Hashes Ethernet addresses and type, VLAN id, IP addresses and protocol, and ports of TCP and SCTP. Both directions
/// of a connection have equal hashes.
pub fn symmetric_l4(key: &impl Words, basis: u32) -> u32 {
    let (w, eth_type, proto) = (|word| key.word(word), eth_type(key), ip_proto(key));
    let addresses = (w(layout::ETH_SRC) ^ w(layout::ETH_DST)) >> 16;
    let tci = w(layout::ETH_SRC) as u16;
    let vid = if tci & 0x1000 != 0 { tci & 0xfff } else { 0 };
    let hash = add(add(basis.into(), addresses), u64::from(eth_type) << 16 | u64::from(vid));
    let hash = match eth_type {
        ethertype::IPV4 => add(hash, (w(layout::IPV4) >> 32) ^ (w(layout::IPV4) & 0xffff_ffff)),
        ethertype::IPV6 => (0..2).fold(hash, |hash, n| add(hash, w(layout::IPV6_SRC + n) ^ w(layout::IPV6_DST + n))),
        _ => return finish(hash),
    };
    let hash = add(hash, proto.into());
    let ported = matches!(proto, ipproto::TCP | ipproto::SCTP) && !is_fragment(key);
    finish(if ported { add(hash, (w(layout::TP) >> 48) ^ (w(layout::TP) >> 32 & 0xffff)) } else { hash })
}

/// Ethernet type.
fn eth_type(key: &impl Words) -> u16 {
    key.word(layout::ETH_DST) as u16
}

/// IP protocol.
fn ip_proto(key: &impl Words) -> u8 {
    key.word(layout::IP_MISC) as u8
}

/// Whether the packet is a fragment, first or later.
fn is_fragment(key: &impl Words) -> bool {
    key.word(layout::IP_MISC) >> 24 & 0xff != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::{extract_plain, untagged_head};
    use crate::{Field, FlowKey};
    use base::PortNo;
    use base::rng::Rng;

    fn key(eth_type: u16, proto: u8, [src, dst]: [u128; 2], [sport, dport]: [u16; 2]) -> FlowKey {
        let mut key = FlowKey::ZERO;
        key.set(Field::EthType, eth_type.into());
        let v6 = eth_type == ethertype::IPV6;
        let (s, d) = if v6 { (Field::Ipv6Src, Field::Ipv6Dst) } else { (Field::Ipv4Src, Field::Ipv4Dst) };
        for (field, value) in [(Field::EthSrc, src), (Field::EthDst, dst), (s, src), (d, dst)] {
            key.set(field, value);
        }
        key.set(Field::IpProto, proto.into());
        key.set(Field::TcpSrc, sport.into());
        key.set(Field::TcpDst, dport.into());
        key
    }

    #[test]
    fn only_symmetric_hashes_are_equal_in_both_directions() {
        for eth_type in [ethertype::IPV4, ethertype::IPV6] {
            let there = key(eth_type, 6, [5, 9], [1000, 80]);
            let back = key(eth_type, 6, [9, 5], [80, 1000]);
            assert_eq!(symmetric_l4(&there, 3), symmetric_l4(&back, 3));
            assert_ne!(symmetric_l4(&there, 3), symmetric_l4(&there, 4));
            assert_ne!(l4(&there, 0), l4(&back, 0));
            let mut fragment = there.clone();
            fragment.set(Field::IpFrag, 1);
            let mut later = fragment.clone();
            later.set(Field::IpFrag, 3);
            later.0[layout::TP] = 0;
            assert_eq!((l4(&fragment, 1), symmetric_l4(&fragment, 1)), (l4(&later, 1), symmetric_l4(&later, 1)));
            assert_ne!(l4(&fragment, 1), l4(&there, 1));
        }
    }

    #[test]
    fn headers_have_the_hash_of_their_key() {
        let mut rng = Rng::seeded(2);
        let cases = 1000u32;
        for basis in 0..cases {
            let mut frame = [0; 60];
            frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, if basis % 2 == 0 { 6 } else { 17 }]);
            frame[26..38].iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
            frame[46] = 0x50;
            let (head, _) = untagged_head(&frame).expect("a plain frame");
            let key = extract_plain(&frame, PortNo(1)).expect("a plain frame");
            assert_eq!(L4::new(basis).of_head(&head), l4(&key, basis));
            assert_eq!(l4(&key, basis), l4(&key.expand(), basis));
        }
        tally::report!("{cases} frames");
    }

    #[test]
    fn flows_are_spread_evenly() {
        for hash in [l4, symmetric_l4] {
            for buckets in [2u32, 16, 256] {
                let mut counts = vec![0u32; buckets as usize];
                for n in 0..20_000u32 {
                    let key = key(ethertype::IPV4, 6, [u128::from(n >> 8), 9], [1000 + (n & 0xff) as u16, 80]);
                    counts[(hash(&key, 0) % buckets) as usize] += 1;
                }
                let expected = 20_000.0 / f64::from(buckets);
                let chi: f64 = counts.iter().map(|c| (f64::from(*c) - expected).powi(2) / expected).sum();
                let df = f64::from(buckets) - 1.0;
                assert!(chi <= df + 6.0 * (2.0 * df).sqrt(), "{buckets}: {chi}");
            }
        }
    }
}
