//! How long packets wait while flows change: `stalls [FLOWS]` forwards packets from memory on one thread, first alone
//! and then while another thread installs FLOWS megaflows (by default a million) and removes them, and prints a
//! histogram of the gaps between rounds of the forwarding thread for both, in microseconds: lines of JSON.
//!
//! From gaps above 50 microseconds the program subtracts the time in which the thread was ready to run but had no
//! processor (`/proc/thread-self/schedstat`). Interrupts and time that a hypervisor takes remain, in both histograms.
//! The rest is work, page faults, and waiting for other threads. On hosts with fewer processors than threads, the
//! result mostly shows the machine.

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::{Clock, DpPort};
use datapath::{Config, Datapath};
use dpif::{DpAction, DpFlow, Dpif, FlowId};
use flow::{Field, FlowKey, Reads};
use netdev::memory;

use support::{Forward, workload};

/// From longer gaps, the time in which the thread was ready but did not run is subtracted.
const LONG_US: u64 = 50;
/// Up to 1 microsecond, 2, 4, and so on.
const BUCKETS: usize = 22;

#[derive(Default)]
struct Histogram {
    buckets: [u64; BUCKETS],
    longest_us: u64,
}

impl Histogram {
    fn count(&mut self, us: u64) {
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.longest_us = self.longest_us.max(us);
    }
}

/// Nanoseconds in which the calling thread was ready but did not run.
fn waited_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Forwards until `done` returns true.
fn forward(dp: &Datapath, done: impl Fn() -> bool) -> Histogram {
    let mut gaps = Histogram::default();
    let mut waited = waited_ns();
    let mut last = Instant::now();
    while !done() {
        dp.run_once();
        let now = Instant::now();
        let us = (now - last).as_micros() as u64;
        last = now;
        if us <= LONG_US {
            gaps.count(us);
            continue;
        }
        let waited_now = waited_ns();
        gaps.count(us.saturating_sub((waited_now - waited) / 1000));
        waited = waited_now;
        last = Instant::now();
    }
    gaps
}

/// A flow of packets that never arrive.
fn flow(n: u32) -> DpFlow {
    let mut key = FlowKey::ZERO;
    let fields = [
        (Field::InPortOxm, 9),
        (Field::EthType, 0x0800),
        (Field::IpProto, 17),
        (Field::Ipv4Src, u128::from(n.wrapping_mul(0x9e37_79b1))),
        (Field::Ipv4Dst, u128::from(n)),
    ];
    fields.into_iter().for_each(|(field, value)| key.set(field, value));
    let mut reads = Reads::new();
    [Field::InPortOxm, Field::EthType, Field::IpProto, Field::Ipv4Dst].into_iter().for_each(|f| reads.note_field(f));
    DpFlow::new(&key, reads.order(), Arc::new([DpAction::Output(DpPort(2))]), 0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let flows: u32 = std::env::args().nth(1).map_or(Ok(1_000_000), |n| n.parse())?;
    let (input, read) = workload("flows-1000").ok_or("there is this workload")?;
    let config = Config { threads: 0, flow_limit: u64::from(flows) + 10_000, ..Config::default() };
    let dp = Datapath::new(config, Clock::real())?;
    dp.set_handler(Forward::to(DpPort(2), read));
    dp.port_add(memory::replay("in", &input, u64::MAX), None)?;
    dp.port_add(memory::null("out")?, None)?;
    let until = Instant::now() + Duration::from_millis(500);
    forward(&dp, || Instant::now() > until);

    let begin = Instant::now();
    let done = AtomicBool::new(false);
    let (mut put, mut removed) = (Duration::ZERO, Duration::ZERO);
    let busy = std::thread::scope(|scope| {
        scope.spawn(|| {
            let id = |n: u32| FlowId(1 << 40 | u64::from(n));
            let start = Instant::now();
            let refused = (0..flows).filter(|n| dp.flow_put(id(*n), flow(*n)).is_err()).count();
            put = start.elapsed();
            let missing = (0..flows).filter(|n| dp.flow_del(id(*n)).is_err()).count();
            removed = start.elapsed().saturating_sub(put);
            assert_eq!((refused, missing), (0, 0));
            done.store(true, Ordering::Release);
        });
        forward(&dp, || done.load(Ordering::Acquire))
    });
    let until = Instant::now() + begin.elapsed();
    let quiet = forward(&dp, || Instant::now() > until);

    for (bucket, (alone, changes)) in quiet.buckets.iter().zip(&busy.buckets).enumerate() {
        let below = 1u64 << bucket;
        println!(
            "{{\"measure\": \"gaps\", \"us_below\": {below}, \"alone\": {alone}, \"while_flows_change\": {changes}}}"
        );
    }
    println!(
        "{{\"measure\": \"longest gap\", \"flows\": {flows}, \"us_alone\": {}, \"us_while_flows_change\": {}, \
         \"put_s\": {:.2}, \"removed_s\": {:.2}}}",
        quiet.longest_us,
        busy.longest_us,
        put.as_secs_f64(),
        removed.as_secs_f64(),
    );
    Ok(())
}
