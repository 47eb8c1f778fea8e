//! Speed and memory of the classifier with random rules in ten tuples (NSDI'15 reports 680,000 classifications per
//! second with half a million rules).
//!
//!     cargo run --release -p classifier --example rules -- [RULES]...
//!
//! Each size (default: 1000 100000 500000) prints lines of JSON: the memory of the index without the rules, the cost of
//! an update (removing and inserting a rule), and classifications per second on one thread with all optimisations and
//! with none. Times are CPU times of the thread. Half of the keys are derived from a random rule, the other half are
//! random. Priorities are random, so nearly every lookup visits all ten tuples.

mod support;

use base::rng::Rng;
use classifier::{Classifier, LATEST, Options, Versions};
use flow::{Field, FlowKey, Match, Reads};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use support::BenchRule;

/// Fields of each tuple, with the prefix length (0: the whole field).
const TUPLES: [&[(Field, u8)]; 10] = [
    &[(Field::InPortOxm, 0), (Field::EthDst, 0)],
    &[(Field::EthSrc, 0), (Field::EthDst, 0)],
    &[(Field::DlVlan, 0), (Field::EthDst, 0)],
    &[(Field::EthType, 0), (Field::Ipv4Dst, 32)],
    &[(Field::EthType, 0), (Field::Ipv4Dst, 24)],
    &[(Field::EthType, 0), (Field::Ipv4Src, 32), (Field::Ipv4Dst, 32)],
    &[(Field::EthType, 0), (Field::IpProto, 0), (Field::Ipv4Src, 24), (Field::Ipv4Dst, 24), (Field::TcpDst, 0)],
    &[
        (Field::EthType, 0),
        (Field::IpProto, 0),
        (Field::Ipv4Src, 32),
        (Field::Ipv4Dst, 32),
        (Field::TcpSrc, 0),
        (Field::TcpDst, 0),
    ],
    &[(Field::Metadata, 0), (Field::EthType, 0), (Field::IpProto, 0), (Field::Ipv4Dst, 32), (Field::TcpDst, 0)],
    &[(Field::Metadata, 0), (Field::Reg0, 0), (Field::InPortOxm, 0)],
];

/// Number of keys looked up in turn: 6 MB, so that the lookups cause cache misses of their own.
const N_KEYS: usize = 10_000;

fn main() {
    let sizes: Result<Vec<usize>, _> = std::env::args().skip(1).map(|a| a.parse()).collect();
    let mut sizes = sizes.unwrap_or_else(|_| {
        eprintln!("usage: rules [RULES]...");
        std::process::exit(2);
    });
    if sizes.is_empty() {
        sizes = vec![1_000, 100_000, 500_000];
    }
    sizes.into_iter().for_each(measure);
}

fn measure(n: usize) {
    let mut rng = Rng::seeded(n as u64);
    let cls = Classifier::new();
    // Insert one rule for each mask first, so that all later rules share it.
    (0..TUPLES.len()).for_each(|t| cls.insert(random_rule(&cls, t, &mut rng)));
    let rules: Vec<_> = (0..n).map(|i| random_rule(&cls, i % TUPLES.len(), &mut rng)).collect();
    let before = resident_bytes();
    let start = thread_time();
    rules.iter().for_each(|rule| cls.insert(Arc::clone(rule)));
    let elapsed = thread_time().saturating_sub(start);
    let bytes = resident_bytes().saturating_sub(before);
    println!(
        "{{\"measure\": \"memory\", \"rules\": {n}, \"masks\": {}, \"index_bytes_per_rule\": {:.1}, \"insert_ns\": {:.0}}}",
        cls.n_masks(),
        bytes as f64 / n as f64,
        elapsed.as_nanos() as f64 / n as f64
    );

    let others: Vec<_> = (0..20_000).map(|i| random_rule(&cls, i % TUPLES.len(), &mut rng)).collect();
    let start = thread_time();
    for rule in &others {
        cls.insert(Arc::clone(rule));
        cls.remove(rule);
    }
    println!(
        "{{\"measure\": \"update\", \"rules\": {n}, \"insert_and_remove_ns\": {:.0}}}",
        thread_time().saturating_sub(start).as_nanos() as f64 / others.len() as f64
    );

    let keys: Vec<FlowKey> = (0..N_KEYS)
        .map(|i| match rules.get(rng.below(n as u64) as usize).filter(|_| i % 2 == 0) {
            Some(rule) => {
                let m = rule.minimatch.expand();
                let mut key = random_match(i / 2 % TUPLES.len(), &mut rng).key().clone();
                for (word, bits) in rule.minimatch.mask().words() {
                    key.0[word] = key.0[word] & !bits | m.key().0[word];
                }
                key
            }
            None => random_match(i / 2 % TUPLES.len(), &mut rng).key().clone(),
        })
        .collect();
    for (name, options) in [("all", Options::ALL), ("none", Options::NONE)] {
        cls.set_options(options);
        let (mut done, mut found) = (0u64, 0u64);
        let bits: u32 = keys.iter().map(|key| bits_read(&cls, key)).sum();
        let start = thread_time();
        while thread_time().saturating_sub(start) < Duration::from_secs(1) {
            for key in &keys {
                found += u64::from(black_box(cls.lookup(key, LATEST, &mut Reads::new())).is_some());
            }
            done += keys.len() as u64;
        }
        println!(
            "{{\"measure\": \"classify\", \"rules\": {n}, \"optimisations\": \"{name}\", \"classifications_per_s\": {:.0}, \
             \"found\": {:.3}, \"bits_read\": {:.1}}}",
            done as f64 / thread_time().saturating_sub(start).as_secs_f64(),
            found as f64 / done as f64,
            f64::from(bits) / keys.len() as f64
        );
    }
}

fn bits_read(cls: &Classifier<BenchRule>, key: &FlowKey) -> u32 {
    let mut reads = Reads::new();
    cls.lookup(key, LATEST, &mut reads);
    reads.mask().0.iter().map(|w| w.count_ones()).sum()
}

fn random_rule(cls: &Classifier<BenchRule>, tuple: usize, rng: &mut Rng) -> Arc<BenchRule> {
    let minimatch = cls.compress(&random_match(tuple, rng));
    Arc::new(BenchRule { minimatch, priority: rng.below(1 << 16) as u32, versions: Versions::new(0) })
}

fn random_match(tuple: usize, rng: &mut Rng) -> Match {
    let mut m = Match::ANY;
    for (field, prefix) in TUPLES[tuple] {
        let full = field.info().full_mask();
        let value = match field {
            Field::EthType => 0x0800,
            Field::IpProto => [6, 17][rng.below(2) as usize],
            Field::InPortOxm => u128::from(rng.below(1000)),
            _ => u128::from(rng.next_u64()),
        };
        let mask = if *prefix == 0 { full } else { full & full << (32 - prefix) };
        m.set_masked(*field, value & full, mask);
    }
    m
}

/// The CPU time of this thread, which excludes other load on the machine.
fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Resident memory of this process in bytes; 0 if unknown.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}
