//! The cost of a tracked packet in the datapath alone: `connections WHAT [N] [MILLISECONDS]` plays data packets of N
//! established TCP connections, both directions, in random order, from memory through a datapath into a port that discards them, on
//! this thread, and prints a line of JSON.
//!
//! WHAT: `plain` (the same packets without the tracker), `one` (a zone), `nat` (a zone, with the source translated),
//! `three` (three zones, the second of which translates;
//! packets to clients pass them backwards). `SLICES=...` instead of a time sets a fixed amount of work, for
//! `perf stat` or `valgrind --tool=callgrind`; `CPU=...` pins the thread.

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod support;
#[path = "support/tracked.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod tracked;

use std::sync::Arc;
use std::time::Duration;

use base::rng::Rng;
use base::{Clock, DpPort};
use datapath::{Config, Datapath};
use dpif::{DpActions, Dpif};
use netdev::memory;
use rustix::thread::{CpuSet, sched_setaffinity};

use support::{SLICE, slice, times};
use tracked::{ACK, PSH, PUBLIC, Pipeline, SYN, tcp};

const SERVER: [u8; 4] = [192, 0, 2, 1];

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_else(|| "one".to_owned());
    let n: u32 = args.next().map_or(Ok(1000), |n| n.parse())?;
    let ms = args.next().map_or(Ok(1000), |ms| ms.parse())?;
    if let Some(cpu) = variable("CPU") {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set)?;
    }
    let zones = match &what[..] {
        "plain" => vec![],
        "one" => vec![(1, false)],
        "nat" => vec![(1, true)],
        "three" => vec![(1, false), (2, true), (3, false)],
        other => return Err(format!("{other}: neither plain, one, nat nor three").into()),
    };
    let translates = zones.iter().any(|(_, translates)| *translates);
    let dp = Datapath::new(Config { threads: 0, ..Config::default() }, Clock::real())?;
    let pipeline = Arc::new(Pipeline::new(zones, DpPort(2)));
    dp.set_handler(pipeline.clone());
    dp.port_add(memory::null("in")?, Some(DpPort(1)))?;
    dp.port_add(memory::null("out")?, Some(DpPort(2)))?;

    // Ports of translated clients stay as they are.
    let client = |i: u32| {
        let address = if translates { 0x0a00_0000 } else { 0x0a00_0000 + i / 50_000 };
        (address.to_be_bytes(), 1024 + (i % 50_000) as u16)
    };
    let seen = |i: u32| if translates { (PUBLIC, client(i).1) } else { client(i) };
    let server = (SERVER, 80);
    let first = |backwards: bool| DpActions::from(pipeline.actions(0, false, backwards));
    let mut frames = Vec::new();
    for i in 0..n {
        let opening = [
            (false, tcp(client(i), server, 0, 0, SYN, 0)),
            (true, tcp(server, seen(i), 0, 1, SYN | ACK, 0)),
            (false, tcp(client(i), server, 1, 1, ACK, 0)),
        ];
        for (backwards, packet) in opening {
            dp.execute(DpPort(1), packet, &first(backwards))?;
        }
        frames.push(tcp(client(i), server, 1, 1, ACK | PSH, 6));
        frames.push(tcp(server, seen(i), 1, 1, ACK | PSH, 6));
    }
    // In an order that no prefetcher follows.
    let mut rng = Rng::seeded(1);
    for i in (1..frames.len()).rev() {
        frames.swap(i, rng.below(i as u64 + 1) as usize);
    }
    dp.port_add(memory::replay("play", &frames, u64::MAX), Some(DpPort(3)))?;

    let mut missed = u64::MAX;
    while dp.stats().missed != missed {
        missed = dp.stats().missed;
        slice(&dp, 4 * frames.len().max(SLICE));
    }
    dp.flow_stats(&mut |_, _| ());
    let before = dp.thread_stats().remove(0);
    let times = times(&dp, variable("SLICES"), Duration::from_millis(ms));
    let stats = dp.thread_stats().remove(0).since(&before);
    let of_packets = |n: u64| n as f64 / stats.packets as f64;
    println!(
        "{{\"workload\": \"{what}-{n}\", \"packets\": {}, \"ns\": {:.1}, \"ns_middle\": {:.1}, \"flows\": {}, \
         \"connections\": {}, \"hits\": {:.2}, \"probes\": {:.2}, \"misses\": {:.3}}}",
        stats.packets,
        times[0],
        times[times.len() / 2],
        dp.stats().flows,
        dpif::Connections::n_connections(&dp),
        of_packets(stats.megaflow_hits),
        of_packets(stats.probes),
        of_packets(stats.misses),
    );
    Ok(())
}
