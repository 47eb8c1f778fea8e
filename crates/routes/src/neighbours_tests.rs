//! Histories of neighbours, against a naive twin.

use std::collections::HashMap;

use base::rng::Rng;

use std::net::Ipv4Addr;

use super::*;

const MAC: MacAddr = MacAddr([0xf8, 0xbc, 0x12, 0x44, 0x34, 0xb6]);

fn ip(n: u64) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0101_0200 + n as u32))
}

fn pending(found: Found) -> (bool, Dependency) {
    match found {
        Found::Pending { send_request, dependency } => (send_request, dependency),
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_are_sent_once_in_retrans_time() {
    let mut table = Neighbours::default();
    let (sent, dependency) = pending(table.resolve("br0", ip(92), Millis(0)));
    assert!(sent);
    for (now, sent) in [(0, false), (999, false), (1000, true), (1500, false), (2000, true)] {
        assert_eq!(pending(table.resolve("br0", ip(92), Millis(now))).0, sent, "{now}");
    }
    let is_asked = |table: &Neighbours, bridge, now| table.is_asked(bridge, ip(92), Millis(now));
    assert_eq!((is_asked(&table, "br0", 2999), is_asked(&table, "br0", 3000)), (true, false));
    assert!(!is_asked(&table, "br1", 2000));
    // Each bridge asks for itself.
    assert!(pending(table.resolve("br1", ip(92), Millis(2000))).0);
    assert_eq!(table.rows(Millis(2000))[0].mac, None);
    assert!(neighbours_to_text(&table.rows(Millis(2000))).ends_with(&format!("{:66}br1 INCOMPLETE\n", "1.1.2.92")));
    assert!(dependency.is_current());
    table.learn("br0", ip(92), MAC, Millis(2100));
    assert!(!dependency.is_current());
    assert!(!is_asked(&table, "br0", 2100));
    assert!(matches!(table.resolve("br0", ip(92), Millis(2100)), Found::Known(MAC, _)));
    // Expired requests make those who wait ask again.
    let (_, dependency) = pending(table.resolve("br1", ip(92), Millis(2100)));
    assert_eq!((table.run(Millis(2999)), table.run(Millis(3000))), (0, 1));
    assert!(!dependency.is_current());
}

#[test]
fn use_keeps_an_entry_alive() {
    let mut table = Neighbours::default();
    assert!(table.set_aging_ms(10_000, Millis(0)));
    table.learn("br0", ip(92), MAC, Millis(0));
    table.learn("br0", ip(55), MAC, Millis(0));
    let Found::Known(_, dependency) = table.resolve("br0", ip(92), Millis(5_000)) else { panic!("known") };
    assert_eq!(table.run(Millis(11_000)), 1);
    dependency.touch(Millis(14_000));
    assert_eq!(table.run(Millis(23_000)), 0);
    assert!(dependency.is_current());
    assert_eq!(table.run(Millis(24_000)), 1);
    assert!(!dependency.is_current() && table.is_empty());
}

#[test]
fn a_shorter_aging_time_shortens_what_entries_have_left() {
    let mut table = Neighbours::default();
    table.learn("br0", ip(92), MAC, Millis(0));
    assert!(table.set_aging_ms(10_000, Millis(5_000)));
    assert_eq!((table.run(Millis(14_999)), table.run(Millis(15_000))), (0, 1));
    // A longer one does not lengthen it.
    table.learn("br0", ip(92), MAC, Millis(20_000));
    assert!(table.set_aging_ms(100_000, Millis(21_000)));
    assert_eq!(table.run(Millis(30_000)), 1);
}

#[test]
fn learning_the_same_address_again_concerns_no_translation() {
    let mut table = Neighbours::default();
    table.learn("br0", ip(92), MAC, Millis(0));
    let (_, a) = table.known("br0", ip(92), Millis(0)).expect("known");
    table.learn("br0", ip(93), MAC, Millis(1));
    table.learn("br0", ip(92), MAC, Millis(2));
    assert!(a.is_current());
    table.learn("br0", ip(92), MacAddr([2; 6]), Millis(3));
    assert!(!a.is_current());
    table.remove_bridge("br0", Millis(4));
    assert!(table.is_empty());
}

#[test]
fn changes_are_those_of_ethernet_addresses() {
    let mut table = Neighbours::default();
    table.learn("br0", ip(92), MAC, Millis(0));
    assert_eq!(table.take_changed(), [ip(92)]);
    // The same again, or a request, is no change.
    table.learn("br0", ip(92), MAC, Millis(1));
    pending(table.resolve("br0", ip(93), Millis(1)));
    assert!(table.take_changed().is_empty());
    table.learn("br0", ip(93), MAC, Millis(2));
    table.learn("br0", ip(92), MacAddr([2; 6]), Millis(2));
    assert_eq!(table.take_changed(), [ip(93), ip(92)]);
    // An expired one that is asked for, and those that are removed.
    pending(table.resolve("br0", ip(92), Millis(2 + AGING_MS)));
    assert_eq!(table.take_changed(), [ip(92)]);
    table.run(Millis(2 + AGING_MS));
    assert_eq!(table.take_changed(), [ip(93)]);
    table.flush(Millis(0));
    assert_eq!(table.take_changed(), [ip(92)]);
    table.learn("br1", ip(94), MAC, Millis(0));
    table.remove_bridge("br1", Millis(0));
    assert_eq!(table.take_changed(), [ip(94), ip(94)]);
}

#[test]
fn packets_change_the_entries_that_they_may() {
    use Learning::{Any, Existing, Unknown};
    let (other, mut table) = (MacAddr([2; 6]), Neighbours::default());
    let mac = |table: &Neighbours, n: u64| table.known("br0", ip(n), Millis(1)).map(|(mac, _)| mac);
    for (n, learning, added, changed) in [(1, Any, true, true), (2, Unknown, true, false), (3, Existing, false, true)] {
        table.learn_from_packet("br0", ip(n), MAC, learning, Millis(1));
        assert_eq!(mac(&table, n), added.then_some(MAC), "{learning:?}");
        table.learn("br0", ip(n), MAC, Millis(1));
        table.learn_from_packet("br0", ip(n), other, learning, Millis(2));
        assert_eq!(mac(&table, n), Some(if changed { other } else { MAC }), "{learning:?}");
        // All of them answer a request.
        pending(table.resolve("br0", ip(n + 10), Millis(2)));
        table.learn_from_packet("br0", ip(n + 10), MAC, learning, Millis(2));
        assert_eq!(mac(&table, n + 10), Some(MAC), "{learning:?}");
    }
}

#[test]
fn the_last_packet_decides_in_whatever_order_they_are_reported() {
    let (other, mut table) = (MacAddr([2; 6]), Neighbours::default());
    let mac = |table: &Neighbours| table.known("br0", ip(1), Millis(9)).map(|(mac, _)| mac);
    table.learn_from_packet("br0", ip(1), MAC, Learning::Any, Millis(5));
    table.learn_from_packet("br0", ip(1), other, Learning::Any, Millis(4));
    assert_eq!(mac(&table), Some(MAC));
    table.learn_from_packet("br0", ip(1), other, Learning::Any, Millis(6));
    assert_eq!(mac(&table), Some(other));
    table.flush(Millis(8));
    table.learn_from_packet("br0", ip(1), other, Learning::Any, Millis(7));
    assert_eq!(mac(&table), None);
    table.learn_from_packet("br0", ip(1), other, Learning::Any, Millis(9));
    assert_eq!(mac(&table), Some(other));
}

#[test]
fn a_neighbour_in_use_remains_one_with_another_address() {
    let mut table = Neighbours::default();
    table.learn("br0", ip(0), MAC, Millis(0));
    table.known("br0", ip(0), Millis(1)).expect("a neighbour");
    table.learn("br0", ip(0), MAC, Millis(2));
    table.learn("br0", ip(0), MacAddr([2; 6]), Millis(3));
    for n in 1..2 * ENTRIES_MAX as u64 {
        table.learn("br0", ip(n), MAC, Millis(4));
    }
    assert!(table.known("br0", ip(0), Millis(5)).is_some());
}

#[test]
fn the_table_is_bounded() {
    let mut table = Neighbours::default();
    let mut held = Vec::new();
    for n in 0..PENDING_MAX as u64 {
        held.push(pending(table.resolve("br0", ip(n), Millis(0))).1);
    }
    assert!(matches!(table.resolve("br0", ip(1 << 20), Millis(0)), Found::Full));
    table.learn("br1", ip(0), MAC, Millis(0));
    table.known("br1", ip(0), Millis(1)).expect("a neighbour");
    for n in 1..2 * ENTRIES_MAX as u64 {
        table.learn("br1", ip(n), MAC, Millis(1));
        assert!(table.len() <= ENTRIES_MAX);
    }
    // The one in use is still there, and the last ones.
    assert!([0, 2 * ENTRIES_MAX as u64 - 1].iter().all(|n| table.known("br1", ip(*n), Millis(1)).is_some()));
    // As are all, once packets have used them.
    for n in 0..2 * ENTRIES_MAX as u64 {
        table.known("br1", ip(n), Millis(2));
    }
    while table.len() < ENTRIES_MAX {
        table.learn("br2", ip(table.len() as u64), MAC, Millis(1));
        table.known("br2", ip(table.len() as u64 - 1), Millis(2)).expect("a neighbour");
    }
    table.learn("br3", ip(0), MAC, Millis(3));
    assert_eq!((table.len(), table.known("br3", ip(0), Millis(3)).is_some()), (ENTRIES_MAX, false));
    assert_eq!(table.run(Millis(1000)), PENDING_MAX);
    assert!(matches!(table.resolve("br0", ip(1 << 20), Millis(1000)), Found::Pending { send_request: true, .. }));
    assert!(held.iter().all(|dependency| !dependency.is_current()));
    table.flush(Millis(0));
    assert!(table.is_empty() && table.pending == 0);
}

/// A naive twin: each neighbour by itself, without counts and handles.
#[derive(Clone, Copy)]
struct Twin {
    mac: Option<MacAddr>,
    expires: u64,
}

#[test]
fn random_histories_agree_with_a_naive_twin() {
    let mut steps = 0;
    for seed in 0..300 {
        let mut rng = Rng::seeded(seed);
        let (mut table, mut twin) = (Neighbours::default(), HashMap::<(u64, u64), Twin>::new());
        assert!(table.set_retrans_ms(500) && table.set_aging_ms(3_000, Millis(0)));
        let mut now = 0;
        for _ in 0..200 {
            now += rng.below(700);
            let (bridge, n, at) = (rng.below(2), rng.below(4), Millis(now));
            let name = ["br0", "br1"][bridge as usize];
            let entry = twin.get(&(bridge, n)).copied();
            match rng.below(6) {
                0 => {
                    let mac = MacAddr([2, 0, 0, 0, 0, rng.below(2) as u8]);
                    table.learn(name, ip(n), mac, at);
                    twin.insert((bridge, n), Twin { mac: Some(mac), expires: now + 3_000 });
                }
                1 => {
                    let before = twin.len();
                    twin.retain(|_, twin| twin.expires > now);
                    assert_eq!(table.run(at), before - twin.len());
                }
                _ => {
                    let found = table.resolve(name, ip(n), at);
                    match (entry, found) {
                        (Some(Twin { mac: Some(mac), expires }), found) if expires > now => {
                            assert!(matches!(found, Found::Known(known, _) if known == mac));
                            twin.insert((bridge, n), Twin { mac: Some(mac), expires: now + 3_000 });
                        }
                        (Some(Twin { mac: None, expires }), found) if expires > now => assert!(!pending(found).0),
                        (_, found) => {
                            assert!(pending(found).0);
                            twin.insert((bridge, n), Twin { mac: None, expires: now + 500 });
                        }
                    }
                }
            }
            assert_eq!(table.len(), twin.len());
            assert_eq!(table.pending, twin.values().filter(|twin| twin.mac.is_none()).count());
            steps += 1;
        }
    }
    tally::report!("{steps} steps");
}
