//! Tests of the selection: properties, and the order of candidates for single actions.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use base::rng::Rng;
use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_compose, prop_oneof};

use super::*;
use crate::key::number_of;

fn address(text: &str) -> [u64; 2] {
    number_of(text.parse().expect("an address"))
}

fn key(proto: u8, src: &str, src_port: u16, dst: &str, dst_port: u16) -> Key {
    let is_v6 = src.contains(':');
    Key { src: address(src), dst: address(dst), src_port, dst_port, zone: 5, proto, is_v6 }
}

fn nat(kind: NatKind, range: Option<(&str, &str)>, ports: Option<(u16, u16)>) -> Nat {
    let addresses = range.map(|(low, high)| (address(low), address(high), low.contains(':')));
    Nat { kind: Some(kind), addresses, ports, ..Nat::default() }
}

/// All candidates, in their order.
fn candidates(nat: &Nat, original: &Key, seed: u64) -> Vec<Key> {
    let mut all = Vec::new();
    let none = select(nat, original, seed, &mut Rng::seeded(seed), &mut |key| {
        all.push(*key);
        false
    });
    assert_eq!(none, None);
    all
}

/// Commits connections one after the other, and returns address and port of the translated side of each.
fn commit(nat: &Nat, originals: impl IntoIterator<Item = Key>) -> Vec<Option<(IpAddr, u16, u16)>> {
    let (mut taken, mut rng) = (HashSet::new(), Rng::seeded(1));
    originals
        .into_iter()
        .map(|original| {
            let reply = select(nat, &original, 7, &mut rng, &mut |key| !taken.contains(key))?;
            assert!(taken.insert(reply));
            let after = reply.reversed();
            let ip = if nat.kind == Some(NatKind::Src) { after.src_ip() } else { after.dst_ip() };
            Some((ip, after.src_port, after.dst_port))
        })
        .collect()
}

fn src_ports(nat: &Nat, originals: &[Key]) -> Vec<Option<u16>> {
    commit(nat, originals.iter().copied()).into_iter().map(|found| found.map(|(_, port, _)| port)).collect()
}

#[test]
fn a_clashing_port_is_replaced_by_the_next_of_its_class() {
    let nat = nat(NatKind::Src, Some(("10.9.9.1", "10.9.9.1")), None);
    let from = |host: u8, port| key(ipproto::TCP, &format!("10.1.1.{host}"), port, "10.1.1.2", 80);
    let ports = src_ports(
        &nat,
        &[
            from(1, 1000),
            from(3, 1000),
            from(4, 1000),
            from(3, 500),
            from(4, 500),
            from(3, 512),
            from(4, 512),
            from(5, 512),
            from(3, 1023),
            from(4, 1023),
            from(3, 65535),
            from(4, 65535),
            from(3, 511),
            from(4, 511),
        ],
    );
    let expected = [1000, 1001, 1002, 500, 501, 512, 600, 601, 1023, 602, 65535, 1024, 511, 1];
    assert_eq!(ports, expected.map(Some));
}

#[test]
fn an_identifier_is_replaced_like_a_port() {
    let from = |host: u8| key(ipproto::ICMP, &format!("10.1.1.{host}"), 0, "10.1.1.2", 0x0800);
    let hosts = [from(1), from(3), from(4)];
    assert_eq!(src_ports(&nat(NatKind::Src, Some(("10.9.9.1", "10.9.9.1")), None), &hosts), [0, 1, 2].map(Some));
    let to = |host: u8| key(ipproto::ICMP, "10.1.1.1", 0, &format!("10.1.1.{host}"), 0x0800);
    let one_port = nat(NatKind::Dst, Some(("10.9.9.1", "10.9.9.1")), Some((22, 22)));
    let found = commit(&one_port, [to(2), to(3)]);
    let destination = IpAddr::from([10, 9, 9, 1]);
    assert_eq!(found, [22, 0].map(|id| Some((destination, id, 0x0800))), "the type and the code stay");
}

#[test]
fn a_source_range_of_ports_is_exhausted() {
    let nat = nat(NatKind::Src, Some(("10.9.9.1", "10.9.9.1")), Some((5000, 5003)));
    let from = |host: u8| key(ipproto::TCP, &format!("10.1.1.{host}"), 1000, "10.1.1.2", 80);
    let mut ports = src_ports(&nat, &[1, 2, 3, 4, 5, 6].map(from));
    assert_eq!(ports.split_off(4), [None, None]);
    ports.sort();
    assert_eq!(ports, [5000, 5001, 5002, 5003].map(Some));
}

#[test]
fn source_ports_differ_once_the_destination_ports_are_taken() {
    let to = |host: u8| key(ipproto::TCP, "10.1.1.1", 1000, &format!("10.1.1.{host}"), 80);
    let one = nat(NatKind::Dst, Some(("10.9.9.1", "10.9.9.1")), Some((22, 22)));
    let destination = IpAddr::from([10, 9, 9, 1]);
    assert_eq!(commit(&one, [to(2), to(3), to(4)]), [1000, 1001, 1002].map(|port| Some((destination, port, 22))));

    let eight = nat(NatKind::Dst, Some(("10.9.9.1", "10.9.9.1")), Some((22, 29)));
    for (host, found) in (1..=20).zip(commit(&eight, (1..=20).map(to))) {
        let first = candidates(&eight, &to(host), 7)[0].reversed().dst_port;
        let (_, src_port, dst_port) = found.expect("a free source port");
        assert!((22..=29).contains(&dst_port));
        assert_eq!(src_port == 1000, host <= 8);
        assert!(host <= 8 || dst_port == first, "the first of the destination's ports");
    }
}

#[test]
fn protocols_without_ports_have_one_candidate() {
    let nat = nat(NatKind::Src, Some(("10.9.9.1", "10.9.9.4")), Some((5, 9)));
    for host in 1..50 {
        let all = candidates(&nat, &key(47, &format!("10.1.1.{host}"), 0, "10.1.1.2", 0), 3);
        let [reply] = all[..] else { panic!("{all:?}") };
        assert_eq!((reply.src_port, reply.dst_port), (0, 0));
    }
}

#[test]
fn without_an_address_only_a_clashing_source_port_is_replaced() {
    let original = key(ipproto::UDP, "10.1.1.1", 2000, "10.1.1.2", 53);
    let unspecified = Some(("0.0.0.0", "0.0.0.0"));
    for (kind, range) in [
        (NatKind::Src, None),
        (NatKind::Dst, None),
        (NatKind::Src, unspecified),
        (NatKind::Dst, Some(("fc00::1", "fc00::9"))),
    ] {
        let all = candidates(&nat(kind, range, None), &original, 1);
        assert_eq!(all[0], original.reversed());
        assert_eq!(all[1].reversed(), Key { src_port: 2001, ..original });
    }
    assert_eq!(candidates(&Nat::default(), &original, 1), [original.reversed()]);
}

#[test]
fn work_is_bounded_in_large_ranges() {
    let original = key(ipproto::TCP, "10.1.1.1", 2000, "10.1.1.2", 80);
    let all = candidates(&nat(NatKind::Src, Some(("10.0.0.0", "10.255.255.255")), None), &original, 4);
    let ports: Vec<u16> = all.iter().map(|reply| reply.dst_port).collect();
    assert_eq!(ports[..128], (2000..2128).collect::<Vec<u16>>());
    assert_eq!(all.len(), 128 + 64 + 32 + 16 + 8);
    let range = nat(NatKind::Dst, Some(("10.0.0.0", "10.255.255.255")), Some((1, 60000)));
    assert_eq!(candidates(&range, &original, 4).len(), 2 * (128 + 64 + 32 + 16 + 8));
    assert!(candidates(&range, &original, 4).len() <= MAX_ATTEMPTS);
}

#[test]
fn hashes_spread_over_the_range() {
    let (mut addresses, mut ports) = (BTreeMap::new(), HashSet::new());
    let range = nat(NatKind::Src, Some(("10.9.9.1", "10.9.9.8")), Some((5000, 5999)));
    for n in 0..4000u16 {
        let reply = candidates(&range, &key(ipproto::TCP, "10.1.1.1", 1024 + n, "10.1.1.2", 80), 11)[0];
        *addresses.entry(reply.dst_ip()).or_insert(0) += 1;
        ports.insert(reply.dst_port);
    }
    assert_eq!(addresses.len(), 8);
    assert!(addresses.values().all(|n| (400..=600).contains(n)), "{addresses:?}");
    assert!(ports.len() > 950, "{}", ports.len());
}

#[test]
fn a_persistent_address_depends_on_the_source_only() {
    let mut range = nat(NatKind::Src, Some(("10.9.9.1", "10.9.9.200")), None);
    range.persistent = true;
    let first = |original: Key, seed| candidates(&range, &original, seed)[0].dst_ip();
    let mut sources = HashSet::new();
    for host in 1..=100 {
        let src = format!("10.1.1.{host}");
        let ip = first(key(ipproto::TCP, &src, 1000, "10.1.1.2", 80), 1);
        assert_eq!(ip, first(key(ipproto::TCP, &src, 1001, "10.1.1.3", 81), 2));
        sources.insert(ip);
    }
    assert!(sources.len() > 60, "{}", sources.len());
}

#[test]
fn a_persistent_address_stays_from_version_to_version() {
    let mut range = nat(NatKind::Src, Some(("10.9.9.0", "10.9.9.255")), None);
    range.persistent = true;
    let ip = |src: &str| candidates(&range, &key(ipproto::TCP, src, 1000, "10.1.1.2", 80), 1)[0].dst_ip().to_string();
    assert_eq!([ip("10.1.1.1"), ip("10.1.1.2")], ["10.9.9.93", "10.9.9.155"]);
}

fn protocols() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![ipproto::TCP, ipproto::UDP, ipproto::SCTP, ipproto::ICMP, ipproto::ICMPV6, 47])
}

prop_compose! {
    fn originals()(src: [u64; 2], dst: [u64; 2], src_port: u16, dst_port: u16, zone: u16, proto in protocols(), is_v6: bool) -> Key {
        let address = |halves: [u64; 2]| if is_v6 { halves } else { [0, halves[1] >> 32] };
        Key { src: address(src), dst: address(dst), src_port, dst_port, zone, proto, is_v6 }
    }
}

prop_compose! {
    fn actions()(
        dst: bool, low: [u64; 2], span in prop_oneof![Just(0u128), 0u128..9, 0u128..1 << 31, any::<u128>()], has_range: bool, is_v6: bool,
        ports in prop::option::of((any::<u16>(), prop_oneof![0u16..8, 0u16..200, any::<u16>()])), persistent: bool, hash: bool,
    ) -> Nat {
        let low = if is_v6 { low } else { [0, low[1] >> 32] };
        let top = if is_v6 { u128::MAX } else { u128::from(u32::MAX) };
        let high = (u128::from(low[0]) << 64 | u128::from(low[1])).saturating_add(span).min(top);
        Nat {
            kind: Some(if dst { NatKind::Dst } else { NatKind::Src }),
            addresses: has_range.then_some((low, [(high >> 64) as u64, high as u64], is_v6)),
            ports: ports.map(|(low, span)| (low.max(1), low.max(1).saturating_add(span))),
            persistent,
            hash,
            random: false,
        }
    }
}

tally::proptest! {
    /// Candidates lie in the ranges, have one address, and leave the other side alone; their number is bounded, and small
    /// ranges are tried as a whole.
    #[test]
    fn candidates_lie_in_the_ranges(nat in actions(), original in originals(), seed: u64, random: bool) {
        let nat = Nat { random, ..nat };
        let all = candidates(&nat, &original, seed);
        prop_assert!((1..=MAX_ATTEMPTS).contains(&all.len()));
        let is_dst = nat.kind == Some(NatKind::Dst);
        let (mut src_ports, mut dst_ports) = (HashSet::new(), HashSet::new());
        for reply in &all {
            let after = reply.reversed();
            prop_assert_eq!((after.zone, after.proto, after.is_v6), (original.zone, original.proto, original.is_v6));
            prop_assert_eq!((reply.src, reply.dst), (all[0].src, all[0].dst));
            let (translated, own, kept) =
                if is_dst { (after.dst, original.dst, (after.src, original.src)) } else { (after.src, original.src, (after.dst, original.dst)) };
            prop_assert_eq!(kept.0, kept.1);
            match nat.addresses {
                Some((low, high, is_v6)) if is_v6 == original.is_v6 && low != [0, 0] => prop_assert!((low..=high).contains(&translated)),
                _ => prop_assert_eq!(translated, own),
            }
            if original.is_icmp() || !is_dst {
                prop_assert_eq!(after.dst_port, original.dst_port);
            }
            src_ports.insert(after.src_port);
            dst_ports.insert(after.dst_port);
        }
        if let (Some((low, high)), true) = (nat.ports, has_ports(&original)) {
            let ports = if is_dst && !original.is_icmp() { dst_ports } else { src_ports };
            let inside = ports.iter().filter(|port| (low..=high).contains(port)).count();
            prop_assert!(is_dst || inside == ports.len());
            if high - low < 128 {
                prop_assert!(inside == usize::from(high - low) + 1);
            }
        }
    }

    /// The candidates of the first round are the same each time; the others, and all of them with `random`, are not.
    #[test]
    fn the_first_round_is_determined(nat in actions(), original in originals(), seed: u64, rngs: [u64; 2]) {
        let round = |rng: u64| {
            let mut all = Vec::new();
            select(&nat, &original, seed, &mut Rng::seeded(rng), &mut |key| {
                all.push(*key);
                all.len() == 128
            });
            all
        };
        prop_assert_eq!(round(rngs[0]), round(rngs[1]));
    }

    /// As long as a small range has a free tuple, it is found.
    #[test]
    fn a_free_tuple_of_a_small_range_is_found(
        original in originals(), low in 1u16..60000, size in 1u16..=128, free: u16, random: bool, seed: u64,
    ) {
        let nat = Nat { kind: Some(NatKind::Src), ports: Some((low, low + size - 1)), random, ..Nat::default() };
        let original = if has_ports(&original) { original } else { Key { proto: ipproto::TCP, ..original } };
        let port = low + free % size;
        let found = select(&nat, &original, seed, &mut Rng::seeded(seed), &mut |reply| reply.reversed().src_port == port);
        prop_assert_eq!(found.map(|reply| reply.reversed()), Some(Key { src_port: port, ..original }));
    }
}
