//! The cost of looking up one key in each of ten small tables, as a translation does.
//!
//!     cargo run --release -p classifier --example tables -- RULES ROUNDS
//!
//! Each table has one to three tuples with RULES rules; most lookups match in the first or second tuple. The keys are
//! UDP packets between hosts that have rules. All keys are looked up ROUNDS times. A line of JSON reports the CPU time
//! for the ten lookups of a key, and the number of bits read. To count instructions and cache misses, run it under a
//! profiler with two values of ROUNDS: the difference belongs to the lookups.

mod support;

use base::rng::Rng;
use classifier::{Classifier, LATEST, Versions};
use flow::{Field, FlowKey, Match, Reads};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use support::BenchRule;

/// Number of keys looked up in turn.
const N_KEYS: usize = 4_000;

type Table = Classifier<BenchRule>;

/// Addresses and port of host `i`.
fn mac(i: u64) -> u128 {
    0x0200_0000_0000 | u128::from(i)
}

fn ip(i: u64) -> u128 {
    0x0a00_0000 | u128::from(i)
}

fn port(i: u64) -> u128 {
    1000 + u128::from(i)
}

fn rule(table: &Table, priority: u32, fields: &[(Field, u128)]) {
    let mut m = Match::ANY;
    fields.iter().for_each(|(field, value)| m.set(*field, *value));
    let minimatch = table.compress(&m);
    table.insert(Arc::new(BenchRule { minimatch, priority, versions: Versions::new(0) }));
}

fn tables(n: u64, rng: &mut Rng) -> Vec<Table> {
    let tables: Vec<Table> = (0..10).map(|_| Table::new()).collect();
    let ipv4 = (Field::EthType, 0x0800);
    let udp = (Field::IpProto, 17);
    let tcp = (Field::IpProto, 6);
    for i in 0..n {
        let (other, far) = (rng.below(n), rng.below(n));
        rule(&tables[0], 100, &[(Field::InPortOxm, u128::from(i)), (Field::EthSrc, mac(i))]);
        rule(&tables[1], 100, &[ipv4, (Field::EthSrc, mac(i)), (Field::Ipv4Src, ip(i))]);
        rule(&tables[2], 100, &[ipv4, udp, (Field::UdpSrc, port(i))]);
        rule(&tables[3], 100, &[ipv4, udp, (Field::UdpDst, port(i))]);
        let ends = [(Field::Ipv4Src, ip(other)), (Field::Ipv4Dst, ip(far))];
        let ports = [(Field::TcpSrc, port(far)), (Field::TcpDst, port(i))];
        rule(&tables[4], 100, &[ipv4, tcp, ends[0], ends[1], ports[0], ports[1]]);
        rule(&tables[5], 100, &[(Field::EthDst, mac(i))]);
        rule(&tables[6], 100, &[ipv4, (Field::Ipv4Dst, ip(i))]);
        rule(&tables[7], 100, &[ipv4, (Field::EthDst, mac(i)), (Field::Ipv4Dst, ip(i))]);
        rule(&tables[8], 100, &[(Field::Reg0, u128::from(i))]);
        rule(&tables[9], 100, &[ipv4, (Field::Ipv4Dst, ip(i))]);
    }
    // More tuples: one comes first and matches none of the packets, most come last.
    let arp = (Field::EthType, 0x0806);
    rule(&tables[0], 200, &[(Field::DlVlan, 7)]);
    for i in [1, 7, 9] {
        rule(&tables[i], 90, &[arp]);
    }
    tables[..9].iter().for_each(|table| rule(table, 1, &[]));
    tables
}

/// A packet from one host to another.
fn key(n: u64, rng: &mut Rng) -> FlowKey {
    let (src, dst) = (rng.below(n), rng.below(n));
    let mut key = FlowKey::ZERO;
    for (field, value) in [
        (Field::InPortOxm, u128::from(src)),
        (Field::EthSrc, mac(src)),
        (Field::EthDst, mac(dst)),
        (Field::EthType, 0x0800),
        (Field::IpProto, 17),
        (Field::Ipv4Src, ip(src)),
        (Field::Ipv4Dst, ip(dst)),
        (Field::UdpSrc, port(src)),
        (Field::UdpDst, port(dst)),
        (Field::Reg0, u128::from(dst)),
    ] {
        key.set(field, value);
    }
    key
}

fn main() {
    let numbers: Result<Vec<u64>, _> = std::env::args().skip(1).map(|a| a.parse()).collect();
    let (n, rounds) = match numbers.as_deref() {
        Ok([n, rounds]) if *n > 0 => (*n, *rounds),
        _ => {
            eprintln!("usage: tables RULES ROUNDS");
            std::process::exit(2);
        }
    };
    let mut rng = Rng::seeded(n);
    let tables = tables(n, &mut rng);
    let keys: Vec<FlowKey> = (0..N_KEYS).map(|_| key(n, &mut rng)).collect();
    let start = thread_time();
    for _ in 0..rounds {
        for key in &keys {
            let mut reads = Reads::new();
            for table in &tables {
                black_box(table.lookup(key, LATEST, &mut reads));
            }
            black_box(reads);
        }
    }
    let elapsed = thread_time().saturating_sub(start);
    let (mut found, mut bits, mut steps) = (0u64, 0u32, 0usize);
    for key in &keys {
        let mut reads = Reads::new();
        let rules = tables.iter().filter_map(|table| table.lookup(key, LATEST, &mut reads));
        found += rules.map(|rule| u64::from(rule.priority)).sum::<u64>();
        steps += reads.order().len();
        bits += reads.mask().0.iter().map(|w| w.count_ones()).sum::<u32>();
    }
    println!(
        "{{\"measure\": \"ten tables\", \"rules\": {n}, \"ns_per_key\": {:.1}, \"priorities\": {:.2}, \"bits_read\": {:.3}, \
         \"steps\": {:.3}}}",
        elapsed.as_nanos() as f64 / (rounds * N_KEYS as u64) as f64,
        found as f64 / N_KEYS as f64,
        f64::from(bits) / N_KEYS as f64,
        steps as f64 / N_KEYS as f64
    );
}

/// The CPU time of this thread, which excludes other load on the machine.
fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
