//! Look-up cost of both megaflow indexes over workloads that stress masks: `index [SECONDS [NAME]]` prints a line of
//! JSON for each index and workload (whose name begins with NAME).
//!
//! - `masks-N`: N rules that each match source and destination prefixes of different lengths;
//! - `victim`, `tse`: a whitelist by source address, destination port and source port, without and with 4,000 packets
//!   that each differ from it in other bits, mixed 1:1 with the victim's (tuple space explosion);
//! - `exact-N`: N flows of one mask; `prefix-N`: N destination prefixes of a routing table.
//!
//! Keys are copied to a batch before each look-up, as a datapath has just extracted them; the cost of the copy alone
//! is subtracted. Reads are those of a translation of the rules. `MHZ=...` in the environment sets the clock
//! frequency of the processor, to print cycles beside nanoseconds.

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::rng::Rng;
use datapath::megaflow::{Megaflow, MegaflowIndex, Tree, TupleSpace};
use dpif::{DpFlow, FlowId};
use flow::{Field, FlowKey, Reads, layout};
use support::{Rules, read_len, read_prefix};

const BATCH: usize = 32;

/// The reads of a translation.
type Read = Box<dyn Fn(&FlowKey, &mut Reads)>;

/// Keys to look up, and the reads of a translation after the port, Ethernet type, VLAN and protocol.
struct Workload {
    name: String,
    keys: Vec<FlowKey>,
    read: Read,
}

fn key(src: u32, dst: u32, sport: u16, dport: u16) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set(Field::InPortOxm, 1);
    key.set(Field::EthType, 0x0800);
    key.set(Field::EthSrc, 0x0200_0000_0001);
    key.set(Field::EthDst, 0x0200_0000_0002);
    key.set(Field::IpProto, 17);
    key.set(Field::IpTtl, 64);
    key.set(Field::Ipv4Src, src.into());
    key.set(Field::Ipv4Dst, dst.into());
    key.set(Field::UdpSrc, sport.into());
    key.set(Field::UdpDst, dport.into());
    key
}

fn src(key: &FlowKey) -> u32 {
    key.get(Field::Ipv4Src) as u32
}

fn dst(key: &FlowKey) -> u32 {
    key.get(Field::Ipv4Dst) as u32
}

/// A 32-bit value whose first bits are `i`, for disjoint prefixes.
fn top(bits: u32, i: u32) -> u32 {
    (i + 1).wrapping_mul(2_654_435_761) >> (32 - bits) << (32 - bits)
}

fn masks(n: u32, rng: &mut Rng) -> Workload {
    let (mut srcs, mut dsts, mut keys): (Rules, Rules, Vec<_>) = Default::default();
    for i in 0..n {
        let (slen, dlen) = (9 + i % 23, 9 + i / 23 % 23);
        let (s, d) = (top(slen, i), top(dlen, i * 31 + 7));
        srcs.push((s, slen));
        dsts.push((d, dlen));
        for _ in 0..4096 / n {
            let mut low = |len: u32| rng.below(1 << (32 - len)) as u32;
            keys.push(key(s | low(slen), d | low(dlen), 1000, 2000));
        }
    }
    let read = move |key: &FlowKey, reads: &mut Reads| {
        read_prefix(reads, Field::Ipv4Src, read_len(src(key), 32, &srcs).0);
        read_prefix(reads, Field::Ipv4Dst, read_len(dst(key), 32, &dsts).0);
    };
    Workload { name: format!("masks-{n}"), keys, read: Box::new(read) }
}

fn whitelist(name: &str, attack: usize, rng: &mut Rng) -> Workload {
    let (allow, dport, sport) = (0x0a00_000a, 80, 12345);
    let port = |rng: &mut Rng| 1024 + rng.below(64_000) as u16;
    let mut keys: Vec<_> = (0..4000).map(|_| key(allow, rng.next_u64() as u32, port(rng), port(rng))).collect();
    let mut bits: Vec<(u32, u32, u32)> = (0..32 * 16 * 16).map(|i| (i / 256, i / 16 % 16, i % 16)).collect();
    for i in (1..bits.len()).rev() {
        bits.swap(i, rng.below(i as u64 + 1) as usize);
    }
    for (a, b, c) in bits.into_iter().take(attack) {
        let mut flip = |value: u32, width: u32, bit: u32| {
            let low = (1u64 << (width - 1 - bit)) - 1;
            (u64::from(value ^ 1 << (width - 1 - bit)) & !low | rng.next_u64() & low) as u32
        };
        let (s, sp, dp) = (flip(allow, 32, a), flip(sport, 16, c), flip(dport, 16, b));
        keys.push(key(s, 7, sp as u16, dp as u16));
    }
    let read = move |key: &FlowKey, reads: &mut Reads| {
        let tp = |field| key.get(field) as u32;
        let fields = [
            (Field::Ipv4Src, src(key), 32, allow),
            (Field::UdpDst, tp(Field::UdpDst), 16, dport),
            (Field::UdpSrc, tp(Field::UdpSrc), 16, sport),
        ];
        for (field, value, width, rule) in fields {
            let (len, matched) = read_len(value, width, &[(rule, width)]);
            read_prefix(reads, field, len);
            if matched {
                return;
            }
        }
    };
    Workload { name: name.into(), keys, read: Box::new(read) }
}

fn exact(n: u32, rng: &mut Rng) -> Workload {
    let keys = (0..n).map(|i| key(0x0a00_0000 + i, 0x0b00_0000 + rng.below(u64::from(n)) as u32, 1, 2)).collect();
    let read = |_: &FlowKey, reads: &mut Reads| {
        reads.note_field(Field::Ipv4Src);
        reads.note_field(Field::Ipv4Dst);
    };
    Workload { name: format!("exact-{n}"), keys, read: Box::new(read) }
}

fn prefix(n: u32, rng: &mut Rng) -> Workload {
    let keys = (0..n).map(|_| key(7, rng.next_u64() as u32, 1, 2)).collect();
    let read = |key: &FlowKey, reads: &mut Reads| {
        read_prefix(reads, Field::Ipv4Dst, 16 + dst(key).wrapping_mul(0x9e37_79b1) % 9);
    };
    Workload { name: format!("prefix-{n}"), keys, read: Box::new(read) }
}

/// Installs the flows for keys that no flow covers. Returns nanoseconds for each flow.
fn install<I: MegaflowIndex>(index: &mut I, work: &Workload) -> f64 {
    let (mut spent, mut n) = (Duration::ZERO, 0);
    for key in &work.keys {
        if index.lookup(key, 0, &mut 0).is_some() {
            continue;
        }
        let mut reads = Reads::new();
        reads.note(layout::PORTS, 0xffff_ffff << 32);
        reads.note(layout::ETH_DST, 0xffff);
        reads.note(layout::ETH_SRC, 0x1000);
        reads.note_field(Field::IpProto);
        reads.note_field(Field::IpFrag);
        (work.read)(key, &mut reads);
        n += 1;
        let flow = DpFlow::new(key, reads.order(), Arc::new([]), 0);
        let start = Instant::now();
        index.insert(Megaflow::new(FlowId(n), flow));
        spent += start.elapsed();
    }
    spent.as_nanos() as f64 / n as f64
}

/// Nanoseconds that `each` takes for a key, in batches: the minimum over several turns.
fn measure(keys: &[FlowKey], seconds: f64, mut each: impl FnMut(&[FlowKey])) -> f64 {
    // Words that are not zero, as extraction writes no others.
    let words: Vec<usize> = (0..layout::WORDS).filter(|w| keys.iter().any(|k| k.0[*w] != 0)).collect();
    let packed: Vec<u64> = keys.iter().flat_map(|k| words.iter().map(|w| k.0[*w])).collect();
    let mut batch = vec![FlowKey::ZERO; BATCH];
    let mut best = f64::MAX;
    let begin = Instant::now();
    while best == f64::MAX || begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        let mut n = 0;
        while n < 200_000 {
            for chunk in packed.chunks_exact(BATCH * words.len()) {
                for (key, values) in batch.iter_mut().zip(chunk.chunks_exact(words.len())) {
                    for (w, value) in words.iter().zip(values) {
                        key.0[*w] = *value;
                    }
                }
                each(&batch);
                n += BATCH;
            }
        }
        best = best.min(start.elapsed().as_nanos() as f64 / n as f64);
    }
    best
}

fn run<I: MegaflowIndex>(kind: &str, work: &Workload, seconds: f64) {
    let mut index = I::default();
    let insert_ns = install(&mut index, work);
    for _ in 0..3 {
        work.keys.iter().for_each(|k| _ = index.lookup(k, 0, &mut 0));
        index.tune();
    }
    let mut keys = work.keys.clone();
    let mut rng = Rng::seeded(2);
    for i in (1..keys.len()).rev() {
        keys.swap(i, rng.below(i as u64 + 1) as usize);
    }
    while keys.len() < BATCH {
        keys.extend_from_within(..);
    }
    let copy_ns = measure(&keys, seconds, |batch| _ = black_box(batch));
    let mut probes = 0;
    let single_ns = measure(&keys, seconds, |batch| {
        for key in batch {
            black_box(index.lookup(key, 0, &mut probes));
        }
    });
    let (mut probes, mut n) = (0, 0u64);
    let batch_ns = measure(&keys, seconds, |batch| {
        let mut found = [None; BATCH];
        index.lookup_batch(batch, u32::MAX, 0, &mut found, &mut probes);
        n += BATCH as u64;
        black_box(found);
    });
    let (single_ns, batch_ns) = (single_ns - copy_ns, batch_ns - copy_ns);
    let cycles = std::env::var("MHZ").ok().and_then(|m| m.parse::<f64>().ok());
    let cycles = cycles.map(|mhz| format!(", \"batch_cycles\": {:.0}", batch_ns * mhz / 1000.0)).unwrap_or_default();
    println!(
        "{{\"workload\": \"{}\", \"index\": \"{kind}\", \"flows\": {}, \"masks\": {}, \"lookup_ns\": {single_ns:.1}, \
         \"batch_ns\": {batch_ns:.1}{cycles}, \"probes\": {:.1}, \"insert_ns\": {insert_ns:.0}, \"bytes_per_flow\": {}}}",
        work.name,
        index.len(),
        index.n_masks(),
        probes as f64 / n as f64,
        index.bytes() / index.len().max(1),
    );
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(0.3);
    let mut rng = Rng::seeded(1);
    let rng = &mut rng;
    let mut works: Vec<Workload> = [1, 10, 50, 200].into_iter().map(|n| masks(n, rng)).collect();
    works.extend([whitelist("victim", 0, rng), whitelist("tse", 4000, rng)]);
    works.extend([exact(1000, rng), exact(100_000, rng), prefix(1000, rng), prefix(100_000, rng)]);
    let only = std::env::args().nth(2).unwrap_or_default();
    for work in works.iter().filter(|w| w.name.starts_with(&only)) {
        run::<TupleSpace>("tuple-space", work, seconds);
        run::<Tree>("tree", work, seconds);
    }
}
