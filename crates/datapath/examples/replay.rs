//! The cost of a packet in the datapath alone: `replay WHAT [MILLISECONDS] [INVERSE_PROBABILITY]` plays packets from
//! memory through a datapath into a port that discards them, on this thread, and prints a line of JSON.
//!
//! WHAT is a workload (`masks-200`, `flows-1000`, `victim-4000`, `tse-4000`; `normal-1000`, which goes to two such
//! ports; `tcp-1`, `vlan-1`, `ipv6-1`, `icmp-1` and the like for other forms of frames; `vxlan-1`, `to-geneve-1000` for packets that
//! leave and enter tunnels), or a capture file, whose flows are distinguished by addresses, protocol
//! and ports; `READS=none` distinguishes them by protocol alone, so that one flow covers them all, as in `p2p-1k` and
//! `ip-100k` of bench/workload.py. One key in INVERSE_PROBABILITY gets into the microflow cache (0, the default:
//! none, and the cache is off). Time is measured in slices; the program prints the cheapest slice and the median, as
//! other load on the machine only adds to them. Cycles are those of the time stamp counter, by the frequency in
//! /proc/cpuinfo, or by `MHZ=...` in the environment. `CPU=...` pins the thread; `SLICES=...` instead of a time sets
//! a fixed amount of work, for `perf stat` or `valgrind --tool=callgrind`; `INDEX=tuple-space` selects the other
//! index.

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod support;

use std::path::Path;
use std::time::Duration;

use base::{Clock, DpPort};
use datapath::{Config, Datapath, IndexKind};
use dpif::Dpif;
use flow::Field;
use netdev::memory;
use rustix::thread::{CpuSet, sched_setaffinity};

use support::tunnels::Tunnels;
use support::{Forward, SLICE, fields, slice, times, workload};

const TUPLE: &[Field] = &[Field::EthSrc, Field::EthDst, Field::Ipv4Src, Field::Ipv4Dst, Field::UdpSrc, Field::UdpDst];

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

fn mhz() -> Option<f64> {
    let of_file = || {
        let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        text.lines().find_map(|line| line.strip_prefix("cpu MHz")?.split_once(": ")?.1.parse().ok())
    };
    variable("MHZ").or_else(of_file)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let what = args.next().ok_or("usage: replay WHAT [MILLISECONDS] [INVERSE_PROBABILITY]")?;
    let ms = args.next().map_or(Ok(500), |ms| ms.parse())?;
    let inverse_probability = args.next().map_or(Ok(0), |n| n.parse())?;
    if let Some(cpu) = variable("CPU") {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set)?;
    }
    let tunnels = Tunnels::named(&what);
    let (input, read) = match (workload(&what), tunnels) {
        (Some((frames, read)), _) => (memory::replay("in", &frames, u64::MAX), read),
        (None, Some(tunnels)) => (memory::replay("in", &tunnels.frames(), u64::MAX), fields(&[])),
        (None, None) if Path::new(&what).exists() => {
            let fields_read = if variable::<String>("READS").as_deref() == Some("none") { &[] } else { TUPLE };
            (memory::replay_pcap("in", &what, u64::MAX)?, fields(fields_read))
        }
        (None, None) => return Err(format!("{what}: neither a workload nor a file").into()),
    };
    let index = match variable::<String>("INDEX").as_deref() {
        Some("tuple-space") => IndexKind::TupleSpace,
        _ => IndexKind::Tree,
    };
    let dp = Datapath::new(Config { threads: 0, index, flow_limit: 2_000_000, ..Config::default() }, Clock::real())?;
    dp.set_microflow_inverse_probability(inverse_probability);
    let out: &[DpPort] = if what.starts_with("normal-") { &[DpPort(2), DpPort(3)] } else { &[DpPort(2)] };
    dp.set_handler(Forward::to_all(out, read));
    dp.port_add(input, None)?;
    for (i, _) in out.iter().enumerate() {
        dp.port_add(memory::null(&format!("out{i}"))?, None)?;
    }
    if let Some(tunnels) = tunnels {
        tunnels.prepare(&dp)?;
    }

    // Until every packet has a flow, and the index has been maintained.
    let warm: usize = variable("WARM").unwrap_or(100 * SLICE);
    let mut n = 0;
    let mut missed = u64::MAX;
    while n < warm || dp.stats().missed != missed {
        missed = dp.stats().missed;
        n += slice(&dp, warm.max(SLICE));
    }
    dp.flow_stats(&mut |_, _| ());
    let before = dp.thread_stats().remove(0);
    let times = times(&dp, variable("SLICES"), Duration::from_millis(ms));
    let (best, middle) = (times[0], times[times.len() / 2]);
    let stats = dp.thread_stats().remove(0).since(&before);
    let cycles = mhz().map_or(String::new(), |mhz| {
        format!(", \"cycles\": {:.0}, \"cycles_middle\": {:.0}", best * mhz / 1e3, middle * mhz / 1e3)
    });
    let of_packets = |n: u64| n as f64 / stats.packets as f64;
    let dp_stats = dp.stats();
    println!(
        "{{\"workload\": \"{what}\", \"packets\": {}, \"ns\": {best:.1}, \"ns_middle\": {middle:.1}{cycles}, \"flows\": {}, \
         \"masks\": {}, \"microflow_hits\": {:.3}, \"probes\": {:.2}, \"misses\": {:.3}}}",
        stats.packets,
        dp_stats.flows,
        dp_stats.masks,
        of_packets(stats.microflow_hits),
        of_packets(stats.probes),
        of_packets(stats.misses),
    );
    Ok(())
}
