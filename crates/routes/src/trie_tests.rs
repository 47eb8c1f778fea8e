//! Random tables, against scans of all prefixes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use base::rng::Rng;

use super::*;

/// Addresses near each other, so that prefixes nest.
fn address(rng: &mut Rng) -> IpAddr {
    let near = rng.next_u64() & 0x0303_0f0f_0000_ffff;
    if rng.next_u64() & 1 == 0 {
        IpAddr::V4(Ipv4Addr::from_bits((near >> 16) as u32 ^ near as u32))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(u128::from(near) << 64 | u128::from(near >> 3)))
    }
}

fn prefix(rng: &mut Rng) -> Prefix {
    let address = address(rng);
    let len = (rng.next_u64() % (u64::from(width(address)) + 1)) as u8;
    Prefix::new(address, len).expect("not longer than the address")
}

/// The naive twin: a scan of all prefixes.
fn longest(table: &BTreeMap<Prefix, u64>, address: IpAddr) -> Option<(Prefix, u64)> {
    table.iter().filter(|(p, _)| p.contains(address)).max_by_key(|(p, _)| p.len()).map(|(p, v)| (*p, *v))
}

#[test]
fn lookups_agree_with_a_scan_of_all_prefixes() {
    let mut lookups = 0;
    for seed in 0..200 {
        let mut rng = Rng::seeded(seed);
        let (mut trie, mut table) = (Trie::default(), BTreeMap::new());
        for step in 0..150 {
            let prefix = prefix(&mut rng);
            if rng.below(3) == 0 {
                let other = table.keys().nth(rng.next_u64() as usize % (table.len() + 1)).copied();
                let gone = other.unwrap_or(prefix);
                assert_eq!(trie.remove(gone), table.remove(&gone));
            } else {
                assert_eq!(trie.insert(prefix, step), table.insert(prefix, step));
            }
            assert_eq!(trie.len(), table.len());
            for _ in 0..4 {
                let wanted = address(&mut rng);
                let (found, consulted) = trie.lookup(wanted);
                assert_eq!(found.map(|(p, v)| (p, *v)), longest(&table, wanted));
                // Any address with the same consulted bits has the same result.
                let noise = (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())) & !mask(consulted);
                let other = Prefix::from_bits(wanted.is_ipv4(), bits(wanted) ^ noise, width(wanted)).address();
                assert_eq!(longest(&table, other), longest(&table, wanted), "{consulted} bits of {wanted}");
                assert!(consulted <= width(wanted));
                lookups += 1;
            }
            for (prefix, value) in table.iter().take(3) {
                assert_eq!(trie.get(*prefix), Some(value));
            }
        }
        let mut all: Vec<_> = trie.iter().map(|(p, v)| (p, *v)).collect();
        all.sort_unstable();
        assert_eq!(all, table.clone().into_iter().collect::<Vec<_>>());
        for prefix in table.keys() {
            trie.remove(*prefix);
        }
        assert_eq!(trie.nodes.len() - trie.free.len(), ROOTS, "all nodes are returned");
    }
    tally::report!("{lookups} lookups");
}

#[test]
fn few_bits_are_consulted_where_few_prefixes_are() {
    let mut trie = Trie::default();
    let consulted = |trie: &Trie<()>, text: &str| trie.lookup(text.parse().expect("valid")).1;
    assert_eq!(consulted(&trie, "10.0.0.1"), 0);
    trie.insert("0.0.0.0/0".parse().expect("valid"), ());
    assert_eq!(consulted(&trie, "10.0.0.1"), 0);
    trie.insert("10.0.0.0/8".parse().expect("valid"), ());
    assert_eq!(consulted(&trie, "10.0.0.1"), 8);
    assert_eq!(consulted(&trie, "128.0.0.1"), 1);
    assert_eq!(consulted(&trie, "11.0.0.1"), 8);
    assert_eq!(consulted(&trie, "::1"), 0);
    trie.insert("10.1.0.0/16".parse().expect("valid"), ());
    assert_eq!(consulted(&trie, "10.128.0.1"), 9);
    assert_eq!(consulted(&trie, "10.1.0.1"), 16);
}
