//! Lookups while rules change.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// A bundle replaces both rules of the table. Each pair of lookups in one version finds two rules of the same bundle,
/// and a rule is visible at any time.
#[test]
fn bundles_are_seen_whole() {
    const BUNDLES: u64 = 600;
    let cls = Cls::new();
    let matches = [matching("in_port=1"), matching("tcp,tp_dst=80,nw_src=10.0.0.0/8,nw_dst=10.0.0.1")];
    let current = AtomicU64::new(0);
    let mut rules: Vec<_> = matches.iter().map(|m| add_rule(&cls, m, 1, 0, Vec::new())).collect();
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                s.spawn(|| {
                    let mut n = 0u64;
                    while !done.load(Ordering::Relaxed) {
                        let version = current.load(Ordering::Acquire);
                        let added = [0, 1].map(|i| {
                            let rule = cls.lookup(matches[i].key(), version, &mut Reads::new());
                            rule.map(|r| r.versions.added())
                        });
                        // A superseded version may have lost its rules, but rules of two versions never mix.
                        for added in added.into_iter().flatten() {
                            assert_eq!(added, version);
                        }
                        if current.load(Ordering::Acquire) == version {
                            assert_eq!(added, [Some(version); 2]);
                        }
                        n += 1;
                    }
                    n
                })
            })
            .collect();
        for version in 1..=BUNDLES {
            let new: Vec<_> = matches.iter().map(|m| add_rule(&cls, m, 1, version, Vec::new())).collect();
            for old in &rules {
                old.versions.remove_in(version);
            }
            current.store(version, Ordering::Release);
            for old in std::mem::replace(&mut rules, new) {
                assert!(cls.remove(&old));
            }
        }
        done.store(true, Ordering::Relaxed);
        let lookups: u64 = readers.into_iter().map(|r| r.join().expect("a reader failed")).sum();
        tally::report!("{BUNDLES} bundles during {lookups} pairs of look-ups");
    });
    assert_eq!((cls.len(), cls.n_masks()), (2, 2));
}

/// Another thread adds and removes rules of later versions, so that tables grow and tuples come and go: all rules of the
/// first version are collected all the time, each once.
#[test]
fn rules_that_stay_are_collected_once() {
    const ROUNDS: u32 = 40;
    let cls = Cls::new();
    let matches = |from: u32, n: u32| {
        let texts = (from..from + n).flat_map(|i| {
            [format!("in_port={i}"), format!("tcp,tp_dst={i}"), format!("ip,nw_dst=10.0.{}.{}", i / 256, i % 256)]
        });
        texts.map(|text| matching(&text)).collect::<Vec<_>>()
    };
    let mut stay: Vec<_> = matches(1, 40).iter().map(|m| Arc::as_ptr(&add(&cls, m, 1))).collect();
    stay.sort_unstable();
    thread::scope(|s| {
        let cls = &cls;
        let writer = s.spawn(move || {
            let passing = [matches(100, 20), matches(200, 150), vec![matching("nw_src=10.0.0.1,ip")]];
            for round in 0..ROUNDS {
                let rules: Vec<_> =
                    passing[round as usize % 3].iter().map(|m| rule_of(cls, m, 1, 2, Vec::new())).collect();
                rules.chunks(7).for_each(|some| cls.insert_all(some));
                assert!(cls.remove_all(rules));
            }
        });
        let mut n = 0u64;
        while !writer.is_finished() {
            let found = [cls.within(&Match::ANY, 1), cls.rules(1)];
            for rules in found {
                let mut rules: Vec<_> = rules.iter().map(Arc::as_ptr).collect();
                rules.sort_unstable();
                assert_eq!(rules, stay);
            }
            n += 2;
        }
        tally::report!("{n} collections during {ROUNDS} rounds of changes");
    });
}
