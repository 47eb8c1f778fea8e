//! Tests of the limits: a naive twin, threads, and single rules.

use std::collections::BTreeMap;
use std::thread;

use proptest::prelude::*;

use super::*;

fn zone(zone: u16, limit: u32, count: u32) -> ZoneLimit {
    ZoneLimit { zone, limit, count }
}

fn admit(limits: &Limits, zone: u16, n: usize) -> Vec<Permit> {
    (0..n).filter_map(|_| limits.admit(zone).ok().flatten()).collect()
}

#[test]
fn a_connection_counts_from_its_commit_to_its_end() {
    let limits = Limits::new();
    assert!(limits.admit(5).expect("no limit").is_none(), "nothing counts without limits");
    assert!(!limits.set(5, 2));
    assert_eq!(limits.zone(5), zone(5, 2, 0));
    let mut permits = admit(&limits, 5, 3);
    assert_eq!((permits.len(), limits.zone(5)), (2, zone(5, 2, 2)));
    assert_eq!(limits.admit(5).expect_err("full"), Full { zone: 5, limit: 2 });
    assert!(limits.admit(6).expect("no limit").is_none());
    permits.pop();
    assert_eq!(limits.list(), [zone(5, 2, 1)]);
    assert!(limits.admit(5).is_ok());
}

#[test]
fn a_deleted_limit_forgets_its_connections_unless_there_is_a_default() {
    let limits = Limits::new();
    limits.set(5, 3);
    let old = admit(&limits, 5, 2);
    assert!(limits.del(5));
    assert!(!limits.del(5));
    assert_eq!((limits.list(), limits.zone(5)), (vec![], zone(5, 0, 0)));
    limits.set(5, 3);
    let new = admit(&limits, 5, 1);
    drop(old);
    assert_eq!(limits.zone(5), zone(5, 3, 1), "connections of the deleted limit do not count");

    limits.set_default(9);
    limits.del(5);
    assert_eq!((limits.list(), limits.zone(5)), (vec![], zone(5, 9, 1)));
    assert!(limits.set(5, 4));
    assert_eq!(limits.list(), [zone(5, 4, 1)]);
    drop(new);
    assert_eq!(limits.list(), [zone(5, 4, 0)]);
}

#[test]
fn the_default_counts_each_zone_for_itself() {
    let limits = Limits::new();
    limits.set_default(2);
    let permits = [admit(&limits, 5, 3), admit(&limits, 6, 3)];
    assert_eq!(permits.each_ref().map(Vec::len), [2, 2]);
    assert_eq!([5, 6, 7].map(|n| limits.zone(n)), [zone(5, 2, 2), zone(6, 2, 2), zone(7, 2, 0)]);
    assert_eq!((limits.list(), limits.default_limit()), (vec![], 2));
    limits.set_default(0);
    assert_eq!(limits.zone(5), zone(5, 0, 0));
    limits.set_default(4);
    assert_eq!(limits.zone(5), zone(5, 4, 0), "counts of the deleted default are gone");
}

#[test]
fn a_limit_of_0_overrides_the_default() {
    let limits = Limits::new();
    limits.set_default(1);
    limits.set(7, 0);
    let permits = admit(&limits, 7, 5);
    assert_eq!((permits.len(), limits.zone(7)), (5, zone(7, 0, 5)));
    assert_eq!(admit(&limits, 8, 5).len(), 1);
}

#[test]
fn a_lower_limit_waits_for_connections_to_end() {
    let limits = Limits::new();
    limits.set(5, 5);
    let mut permits = admit(&limits, 5, 5);
    limits.set(5, 2);
    assert_eq!(limits.list(), [zone(5, 2, 5)]);
    permits.truncate(2);
    assert!(limits.admit(5).is_err());
    permits.truncate(1);
    assert!(limits.admit(5).is_ok());
}

#[test]
fn threads_never_exceed_the_limit() {
    const LIMIT: u32 = 40;
    let limits = Limits::new();
    limits.set_default(LIMIT);
    let admitted = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut permits = Vec::new();
                for round in 0..5000 {
                    if let Ok(permit) = limits.admit(3) {
                        permits.push(permit.expect("the zone is limited"));
                        admitted.fetch_add(1, Relaxed);
                    }
                    assert!(permits.len() <= LIMIT as usize && limits.zone(3).count <= LIMIT);
                    if round % 50 == 49 {
                        permits.clear();
                    }
                }
            });
        }
    });
    assert_eq!(limits.zone(3).count, 0);
    tally::report!("{} admissions", admitted.load(Relaxed));
}

/// The zone and the generation that count a connection, and its permit.
type Counted = (Option<(u16, u32)>, Option<Permit>);

#[derive(Clone, Debug)]
enum Step {
    Admit(u16),
    End(usize),
    Set(u16, u32),
    Default(u32),
    Delete(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u16..3).prop_map(Step::Admit),
        4 => any::<usize>().prop_map(Step::End),
        1 => (0u16..3, 0u32..6).prop_map(|(zone, limit)| Step::Set(zone, limit)),
        1 => (0u32..6).prop_map(Step::Default),
        1 => (0u16..3).prop_map(Step::Delete),
    ];
    prop::collection::vec(step, 1..200)
}

tally::proptest! {
    /// The naive twin keeps the generation of each zone's count, and counts connections of that generation.
    #[test]
    fn counts_agree_with_a_naive_twin(steps in steps()) {
        let limits = Limits::new();
        let (mut default, mut own, mut generations, mut next) = (0, BTreeMap::new(), BTreeMap::<u16, u32>::new(), 0);
        let mut connections = Vec::<Counted>::new();
        for step in steps {
            match step {
                Step::Admit(zone) => {
                    let limited = own.contains_key(&zone) || default != 0;
                    let generation = limited.then(|| (zone, *generations.entry(zone).or_insert_with(|| { next += 1; next })));
                    let limit = own.get(&zone).copied().unwrap_or(default) as usize;
                    let count = connections.iter().filter(|(of, _)| generation.is_some() && *of == generation).count();
                    let is_full = limited && limit != 0 && count >= limit;
                    let result = limits.admit(zone);
                    prop_assert_eq!(result.is_err(), is_full);
                    if let Ok(permit) = result {
                        prop_assert_eq!(permit.is_some(), limited);
                        connections.push((generation, permit));
                    }
                }
                Step::End(_) if connections.is_empty() => {}
                Step::End(n) => drop(connections.swap_remove(n % connections.len())),
                Step::Set(zone, limit) => {
                    prop_assert_eq!(limits.set(zone, limit), generations.contains_key(&zone));
                    own.insert(zone, limit);
                    generations.entry(zone).or_insert_with(|| { next += 1; next });
                }
                Step::Default(limit) => {
                    limits.set_default(limit);
                    default = limit;
                    if limit == 0 {
                        generations.retain(|zone, _| own.contains_key(zone));
                    }
                }
                Step::Delete(zone) => {
                    limits.del(zone);
                    own.remove(&zone);
                    if default == 0 {
                        generations.remove(&zone);
                    }
                }
            }
            for zone in 0..3 {
                let generation = generations.get(&zone).map(|&generation| (zone, generation));
                let count = connections.iter().filter(|(of, _)| of.is_some() && *of == generation).count() as u32;
                let limit = own.get(&zone).copied().unwrap_or(default);
                prop_assert_eq!(limits.zone(zone), ZoneLimit { zone, limit, count });
            }
            prop_assert_eq!(limits.list().iter().map(|limit| limit.zone).collect::<Vec<_>>(), own.keys().copied().collect::<Vec<_>>());
        }
    }
}
