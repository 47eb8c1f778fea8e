//! Tests of the whole table: against a list on random operations, with threads, and its size.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::Millis;
use base::rng::Rng;

use super::*;
use crate::action::Translated;
use crate::conn::Label;
use crate::key::ipproto;
use crate::proto::{Protocol, datagram::Datagram};
use crate::timeout::PolicyId;

/// A connection with these keys.
fn test_conn([original, reply]: [Key; 2]) -> Conn {
    Conn {
        original,
        reply,
        protocol: Protocol::Datagram(Datagram::begin()),
        label: Label::default(),
        mark: 0,
        translated: Translated::default(),
        helper: None,
        policy: PolicyId::default(),
        related: None,
        memos: [0; 2],
        next: [0; 2],
        limited_by: None,
    }
}

fn udp(src: u64, dst: u64, src_port: u16, dst_port: u16) -> Key {
    let proto = ipproto::UDP;
    Key { src: [0, src], dst: [0, dst], src_port, dst_port, zone: 0, proto, is_v6: false }
}

/// The n-th of many keys.
fn key(n: u64) -> Key {
    udp(0x0a00_0000 + (n >> 16), 0x0b00_0000 + (n & 7), n as u16, 53)
}

fn plain(key: Key) -> [Key; 2] {
    [key, key.reversed()]
}

const NEVER: Millis = Millis(1 << 50);
const NOW: Millis = Millis(1000);

fn ignore(_: Handle, _: &Conn) {}

fn terms(expires: Millis, max: u64) -> Terms {
    Terms { expires, now: NOW, max }
}

/// Inserts a connection, and leaves it locked.
fn insert_locked<'a>(table: &'a Table, conn: Conn, terms: &Terms) -> ConnGuard<'a> {
    let keys = conn.keys();
    table.insert_with(keys.each_ref(), keys.map(|key| table.hash(&key)), terms, || conn, &mut ignore).unwrap()
}

fn find(table: &Table, key: &Key, now: Millis) -> Option<(Handle, Direction)> {
    table.find(key, table.hash(key), now).map(|found| (found.guard.handle(), found.direction))
}

#[test]
fn a_million_connections_take_at_most_240_bytes_each() {
    let table = Table::new(1);
    for n in 0..1_000_000 {
        table.insert(test_conn(plain(key(n))), &terms(NEVER, u64::MAX), &mut ignore).unwrap();
    }
    let bytes = table.bytes() / 1_000_000;
    tally::report!("{bytes} bytes for each connection, {} of them for the entry", size_of::<slab::Entry>());
    assert!(bytes <= 240);
    assert!(table.buckets().iter().all(|n| (14_000..17_500).contains(n)), "{:?}", table.buckets());
    assert_eq!(table.buckets().iter().sum::<u32>(), 1_000_000);
}

#[test]
fn both_directions_find_a_translated_connection() {
    let table = Table::new(2);
    let original = udp(1, 2, 3, 4);
    let reply = udp(2, 9, 4, 5);
    let handle = table.insert(test_conn([original, reply]), &terms(NEVER, 10), &mut ignore).unwrap();
    assert_eq!(find(&table, &original, NOW), Some((handle, Direction::Original)));
    assert_eq!(find(&table, &reply, NOW), Some((handle, Direction::Reply)));
    assert_eq!(find(&table, &original.reversed(), NOW), None);
    let clash = |keys| table.insert(test_conn(keys), &terms(NEVER, 10), &mut ignore).unwrap_err();
    assert_eq!(clash(plain(original)), Refused::Taken(Direction::Original));
    assert_eq!(clash(plain(reply)), Refused::Taken(Direction::Original));
    assert_eq!(clash(plain(reply.reversed())), Refused::Taken(Direction::Reply));
    assert_eq!(clash([udp(7, 7, 7, 7), reply]), Refused::Taken(Direction::Reply));
    assert_eq!(table.len(), 1);
    assert_eq!(table.remove(handle).unwrap().keys(), [original, reply]);
    assert!(table.remove(handle).is_none() && table.get(handle).is_none());
    assert_eq!((table.len(), find(&table, &reply, NOW)), (0, None));
}

#[test]
fn a_locked_insertion_is_visible_when_its_guard_goes() {
    let table = Table::new(3);
    let mut guard = insert_locked(&table, test_conn(plain(key(1))), &terms(NEVER, 1));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let found = table.find(&key(1), table.hash(&key(1)), NOW);
            found.map(|found| found.guard.mark)
        });
        guard.mark = 7;
        guard.renew(guard.life().expires(), true);
        drop(guard);
        assert!([None, Some(7)].contains(&reader.join().unwrap()));
    });
    // It is assured, so that none gives way.
    let full = table.insert(test_conn(plain(key(2))), &terms(NEVER, 1), &mut ignore);
    assert_eq!(full.unwrap_err(), Refused::Full);
}

#[test]
fn assured_connections_are_not_evicted() {
    let table = Table::new(4);
    assert!(table.evict(NOW).is_none());
    for n in 0..100 {
        let mut guard = insert_locked(&table, test_conn(plain(key(n))), &terms(NEVER, 100));
        if n % 2 == 0 {
            guard.renew(guard.life().expires(), true);
        }
        let life = guard.life();
        guard.renew(Millis(5000 + n), false);
        assert_eq!((guard.life().is_assured(), guard.life().expires()), (life.is_assured(), Millis(5000 + n)));
    }
    for _ in 0..200 {
        if let Some((_, conn)) = table.evict(NOW) {
            assert_eq!(conn.original.src_port % 2, 1);
        }
    }
    assert_eq!(table.len(), 50);
    // Expired ones are no longer protected.
    let evicted = (0..1000).filter(|_| table.evict(Millis(6000)).is_some()).count();
    assert_eq!((evicted, table.len()), (50, 0));
}

/// A lower maximum takes effect by and by.
#[test]
fn a_lower_maximum_shrinks_the_table() {
    let table = Table::new(11);
    for n in 0..100 {
        table.insert(test_conn(plain(key(n))), &terms(NEVER, 100), &mut ignore).unwrap();
    }
    let mut removed = 0;
    for n in 100..200 {
        table.insert(test_conn(plain(key(n))), &terms(NEVER, 60), &mut |_, _| removed += 1).unwrap();
    }
    assert_eq!((table.len(), removed), (60, 140));
    assert!((190..200).all(|n| find(&table, &key(n), NOW).is_some()));
}

/// A new connection has time for its handshake: as long as evictions need for the whole table.
#[test]
fn the_oldest_connection_gives_way() {
    let table = Table::new(12);
    for n in 0..10_000 {
        let terms = Terms { expires: Millis(30_000 + n), now: Millis(n), max: 1000 };
        table.insert(test_conn(plain(key(n))), &terms, &mut ignore).unwrap();
        if n >= 2000 {
            assert!(find(&table, &key(n - 900), Millis(n)).is_some(), "{n}");
        }
    }
}

#[test]
fn a_slot_without_generations_retires() {
    let table = Table::new(5);
    let insert = || table.insert(test_conn(plain(key(1))), &terms(NEVER, 9), &mut ignore).unwrap();
    let first = insert();
    table.remove(first);
    table.slab.entry(first.slot()).unwrap().generation.store(u32::MAX, Ordering::Relaxed);
    let last = insert();
    assert_eq!((last.slot(), last.generation()), (first.slot(), u32::MAX));
    assert!(table.remove(last).is_some() && table.remove(last).is_none());
    assert_ne!(insert().slot(), first.slot());
}

#[test]
fn slots_are_reused() {
    let table = Table::new(6);
    for round in 0..20 {
        for n in 0..5000 {
            table.insert(test_conn(plain(key(round * 5000 + n))), &terms(NEVER, 5000), &mut ignore).unwrap();
        }
        let mut removed = 0;
        table.clear(&mut |_, _| removed += 1);
        assert_eq!((removed, table.len()), (5000, 0));
    }
    assert!(table.slab.len() < 5000 + 64 * 64, "{}", table.slab.len());
}

/// The table as a list.
#[derive(Default)]
struct Twin(Vec<(Handle, [Key; 2], Millis, bool)>);

impl Twin {
    fn find(&self, key: &Key) -> Option<(Handle, Direction, Millis)> {
        self.0.iter().find_map(|(handle, keys, expires, _)| {
            let direction = if keys[0] == *key { Direction::Original } else { Direction::Reply };
            keys.contains(key).then_some((*handle, direction, *expires))
        })
    }

    fn remove(&mut self, handle: Handle) -> Option<[Key; 2]> {
        let at = self.0.iter().position(|entry| entry.0 == handle)?;
        Some(self.0.swap_remove(at).1)
    }
}

#[test]
fn a_table_does_what_a_list_does() {
    let (mut cases, mut evicted) = (0, 0);
    for seed in 0..12 {
        let (of_seed, gave_way) = compare_with_twin(seed, [30, 300, 2000][seed as usize % 3]);
        (cases, evicted) = (cases + of_seed, evicted + gave_way);
    }
    assert!(evicted > 100, "{evicted}");
    tally::report!("{cases} operations, {evicted} connections that gave way");
}

/// Returns the number of operations, and of connections that gave way to others.
fn compare_with_twin(seed: u64, keys: u64) -> (u64, u64) {
    const OPERATIONS: u64 = 6000;
    let max = keys / 2;
    let table = Table::new(seed);
    let mut rng = Rng::seeded(seed);
    let mut twin = Twin::default();
    let mut old = Vec::new();
    let mut handles = HashSet::new();
    let (mut cursor, mut evicted) = (0, 0);
    for now in 1000..1000 + OPERATIONS {
        let now = Millis(now);
        // Few keys, so that connections clash; a reply that is no mirror of the original is a translation.
        let mut some_key = || {
            let key = key(rng.below(keys));
            if rng.below(2) == 0 { key } else { key.reversed() }
        };
        let (one, other) = (some_key(), some_key());
        match rng.below(16) {
            0..6 => {
                let pair = if rng.below(3) == 0 { [one, other] } else { plain(one) };
                let expires = now.after(rng.below(keys * 4));
                let mut removed = Vec::new();
                let result =
                    table.insert(test_conn(pair), &Terms { expires, now, max }, &mut |handle, _| removed.push(handle));
                // In a full table, one connection that is not assured gives way: the last one that goes, as expired ones with
                // these keys leave room.
                let is_full = twin.0.len() as u64 == max;
                if result == Err(Refused::Full) {
                    assert!(is_full && removed.is_empty());
                    // Of the next eight, none may be evicted.
                    assert!(twin.0.iter().filter(|entry| entry.3 && entry.2 > now).count() >= 8);
                    continue;
                }
                if is_full
                    && let ([.., last], Ok(_)) = (&removed[..], result)
                    && let Some(at) = twin.0.iter().position(|entry| entry.0 == *last)
                    && !twin.0[at].1.iter().any(|key| pair.contains(key))
                {
                    let (_, _, end, is_assured) = twin.0.swap_remove(at);
                    assert!(!is_assured || end <= now);
                    evicted += 1;
                }
                // The original direction is checked first, and expired connections go on the way.
                let mut expected = Ok(());
                for (key, direction) in [(pair[0], Direction::Original), (pair[1], Direction::Reply)] {
                    while let Some((handle, _, end)) = twin.find(&key)
                        && end <= now
                    {
                        if !removed.contains(&handle) {
                            break;
                        }
                        twin.remove(handle);
                    }
                    if expected.is_ok() && twin.find(&key).is_some_and(|found| found.2 > now) {
                        expected = Err(Refused::Taken(direction));
                    }
                }
                match (result, expected) {
                    (Ok(handle), Ok(())) => {
                        assert!(pair.iter().all(|key| twin.find(key).is_none()));
                        assert!(handles.insert(handle), "a handle was reused");
                        twin.0.push((handle, pair, expires, false));
                    }
                    // Of a plain connection, the table reports the direction of whichever connection it meets first.
                    (Err(Refused::Taken(taken)), Err(_)) => {
                        assert!(twin.find(&pair[taken.index()]).is_some_and(|found| found.2 > now));
                    }
                    (result, expected) => panic!("{result:?} instead of {expected:?}"),
                }
            }
            6..10 => {
                let expected = twin.find(&one).filter(|found| found.2 > now).map(|found| (found.0, found.1));
                assert_eq!(find(&table, &one, now), expected);
            }
            10 if !twin.0.is_empty() => {
                let handle = twin.0[rng.below(twin.0.len() as u64) as usize].0;
                assert_eq!(table.remove(handle).map(|conn| conn.keys()), twin.remove(handle));
                old.push(handle);
            }
            11 if !twin.0.is_empty() => {
                let at = rng.below(twin.0.len() as u64) as usize;
                let entry = &mut twin.0[at];
                let mut guard = table.get(entry.0).unwrap();
                assert_eq!((guard.keys(), guard.life().expires()), (entry.1, entry.2));
                entry.2 = now.after(rng.below(keys * 4));
                guard.renew(entry.2, false);
                if rng.below(4) == 0 {
                    guard.renew(guard.life().expires(), true);
                    entry.3 = true;
                }
                assert_eq!(guard.life().is_assured(), entry.3);
            }
            12 => {
                let n = rng.below(200) as usize;
                table.sweep(&mut cursor, n, now, &mut |handle, conn| {
                    let (_, _, expires) = twin.find(&conn.original).unwrap();
                    assert!(expires <= now);
                    assert_eq!(twin.remove(handle), Some(conn.keys()));
                });
            }
            13 if twin.0.len() as u64 >= max => {
                if let Some((handle, conn)) = table.evict(now) {
                    let entry = twin.0.iter().find(|entry| entry.0 == handle).unwrap();
                    assert!(!entry.3 || entry.2 <= now);
                    assert_eq!(twin.remove(handle), Some(conn.keys()));
                }
            }
            14 if !old.is_empty() => {
                let handle = old[rng.below(old.len() as u64) as usize];
                assert!(table.get(handle).is_none() && table.remove(handle).is_none());
            }
            _ => {
                let hash = table.hash(&one);
                table.prefetch(hash);
                if let Some(slot) = table.candidate(hash) {
                    table.prefetch_slot(slot);
                }
            }
        }
        assert_eq!(table.len(), twin.0.len() as u64);
    }
    let mut visited = Vec::new();
    let mut from = 0;
    while let Some(next) = table.visit(from, 7, &mut |guard| visited.push(guard.handle())) {
        from = next;
    }
    visited.sort_unstable_by_key(|handle| handle.0);
    let mut expected: Vec<_> = twin.0.iter().map(|entry| entry.0).collect();
    expected.sort_unstable_by_key(|handle| handle.0);
    assert_eq!(visited, expected);
    while !table.sweep(&mut cursor, 100, NEVER, &mut ignore) {}
    while !table.sweep(&mut cursor, 100, NEVER, &mut ignore) {}
    assert!(table.is_empty() && table.buckets().iter().all(|n| *n == 0));
    (OPERATIONS, evicted)
}

#[test]
fn expired_connections_give_way() {
    let table = Table::new(7);
    let (one, two) = (udp(1, 2, 3, 4), udp(5, 6, 7, 8));
    let first = table.insert(test_conn([one, udp(2, 9, 4, 4)]), &terms(Millis(1500), 9), &mut ignore).unwrap();
    let second = table.insert(test_conn([two, udp(6, 9, 8, 9)]), &terms(Millis(1500), 9), &mut ignore).unwrap();
    assert_eq!(find(&table, &one, Millis(1499)).unwrap().0, first);
    assert_eq!(find(&table, &one, Millis(1500)), None);
    let mut removed = Vec::new();
    let note = &mut |handle: Handle, _: &Conn| removed.push(handle);
    table.insert(test_conn([one, two]), &Terms { expires: NEVER, now: Millis(1500), max: 9 }, note).unwrap();
    assert_eq!(removed, [first, second]);
    assert_eq!(table.len(), 1);
}

#[test]
fn threads_see_no_connection_twice_and_miss_none() {
    // Also in a table that is full most of the time.
    for max in [u64::MAX, 3000] {
        threads_see_each_connection_once(max);
    }
}

fn threads_see_each_connection_once(max: u64) {
    const ROUNDS: u64 = 30_000;
    let table = Table::new(8);
    // Always present, while the index grows and shrinks around them.
    let stable: Vec<Handle> = (0..500)
        .map(|n| {
            let keys = if n % 3 == 0 { [key(n), udp(n, 77, 1, 2)] } else { plain(key(n)) };
            let mut guard = insert_locked(&table, test_conn(keys), &terms(NEVER, u64::MAX));
            guard.renew(guard.life().expires(), true);
            guard.handle()
        })
        .collect();
    let done = AtomicBool::new(false);
    let (inserted, removed) = (AtomicU64::new(0), AtomicU64::new(0));
    let finds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|thread| {
                let (table, inserted, removed) = (&table, &inserted, &removed);
                scope.spawn(move || {
                    let mut rng = Rng::seeded(thread);
                    let mut mine = Vec::new();
                    let mut cursor = 0;
                    for _ in 0..ROUNDS {
                        let mut count = |_: Handle, _: &Conn| _ = removed.fetch_add(1, Ordering::Relaxed);
                        let some = || key(1000 + Rng::seeded(rng.clone().next_u64()).below(20_000));
                        let one = some();
                        let other = key(1000 + rng.below(20_000)).reversed();
                        let keys = if rng.below(4) == 0 { [one, other] } else { plain(one) };
                        let expires = if rng.below(4) == 0 { Millis(1001) } else { NEVER };
                        if let Ok(handle) = table.insert(test_conn(keys), &terms(expires, max), &mut count) {
                            inserted.fetch_add(1, Ordering::Relaxed);
                            mine.push((handle, keys));
                            // Another connection with one of the keys must not get in as long as this one is there.
                            for key in keys {
                                if let Some((found, _)) = find(table, &key, NOW)
                                    && found != handle
                                {
                                    assert!(table.get(handle).is_none());
                                }
                            }
                        }
                        match rng.below(8) {
                            0..3 if !mine.is_empty() => {
                                let (handle, keys) = mine.swap_remove(rng.below(mine.len() as u64) as usize);
                                if let Some(conn) = table.remove(handle) {
                                    assert_eq!(conn.keys(), keys);
                                    count(handle, &conn);
                                }
                            }
                            3 => drop(table.sweep(&mut cursor, 50, Millis(1001), &mut count)),
                            4 => {
                                if let Some((handle, conn)) = table.evict(NOW) {
                                    count(handle, &conn);
                                }
                            }
                            _ => {}
                        }
                    }
                })
            })
            .collect();
        for thread in 0..2 {
            let (table, stable, done, finds) = (&table, &stable, &done, &finds);
            scope.spawn(move || {
                let mut rng = Rng::seeded(90 + thread);
                while !done.load(Ordering::Relaxed) {
                    let n = rng.below(500);
                    let handle = stable[n as usize];
                    assert_eq!(find(table, &key(n), NOW), Some((handle, Direction::Original)));
                    let reply = if n.is_multiple_of(3) { udp(n, 77, 1, 2) } else { key(n).reversed() };
                    assert_eq!(find(table, &reply, NOW), Some((handle, Direction::Reply)));
                    table.find(&reply, table.hash(&reply), NOW).unwrap().guard.mark += 1;
                    let other = key(1000 + rng.below(20_000));
                    if let Some(found) = table.find(&other, table.hash(&other), NOW) {
                        assert_eq!(*found.guard.key(found.direction), other);
                    }
                    finds.fetch_add(4, Ordering::Relaxed);
                }
            });
        }
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(results.into_iter().all(|result| result.is_ok()));
    });
    let live = inserted.load(Ordering::Relaxed) - removed.load(Ordering::Relaxed) + 500;
    assert_eq!(table.len(), live);
    assert!(live <= max);
    // At the end, each key belongs to one connection, and each connection is found by its keys.
    let mut all = Vec::new();
    while table.visit(0, usize::MAX, &mut |guard| all.push((guard.handle(), guard.keys()))).is_some() {}
    assert_eq!(all.len() as u64, live);
    let mut keys = HashSet::new();
    for (handle, pair) in all {
        for key in if pair[0] == pair[1] { &pair[..1] } else { &pair[..] } {
            assert!(keys.insert(*key));
            assert_eq!(find(&table, key, NOW).unwrap().0, handle);
        }
    }
    let inserted = inserted.load(Ordering::Relaxed);
    tally::report!("{inserted} insertions beside {} finds", finds.load(Ordering::Relaxed));
}
