//! The cost of connections that begin, in the datapath alone: `openings WHAT [MILLISECONDS]` plays packets from memory, with
//! addresses that are ever new, through a zone of the tracker into ports that discard them, on this thread, and prints a line
//! of JSON.
//!
//! WHAT: `flood` (SYNs, with a full table of 100,000 connections), `new` (connections from SYN to the last acknowledgement,
//! which are forgotten after two seconds of a clock that the number of packets drives), or `beside` (1,000 established
//! connections, alone and then beside 500,000 SYNs a second, or as many as `RATE=...` says). `SLICES=...` instead of a time sets
//! a fixed amount of work, for `valgrind --tool=callgrind`; `CPU=...` pins the thread.

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod support;
#[path = "support/tracked.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod tracked;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Clock, DpPort};
use datapath::{Config, Datapath};
use dpif::{Connections, DpActions, Dpif};
use netdev::device::Netdev;
use netdev::{memory, pcap};
use packet::Packet;
use rustix::thread::{CpuSet, sched_setaffinity};

use support::{SLICE, slice, times};
use tracked::{ACK, FIN, PSH, Pipeline, SYN, tcp};

type Error = Box<dyn std::error::Error>;

/// Connections of a recording before their addresses become others.
const RECORDED: u16 = 16_384;
/// Connections side by side.
const CHUNK: u16 = 256;
const ESTABLISHED: u16 = 1000;
/// The timeout policy of connections that are forgotten soon.
const POLICY: &str = "short";
const FLOOD_MAX: u32 = 100_000;
/// The lower half of this address counts down where that of clients counts up.
const SERVER: [u8; 4] = [192, 0, 255, 255];

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// A packet of the connection of a client's port: whether the client sends it, numbers relative to the first ones, flags, and
/// bytes of payload.
type Step = (bool, u32, u32, u16, usize);

const WHOLE: [Step; 7] = [
    (true, 0, 0, SYN, 0),
    (false, 0, 1, SYN | ACK, 0),
    (true, 1, 1, ACK, 0),
    (true, 1, 1, ACK | PSH, 6),
    (true, 7, 1, ACK | FIN, 0),
    (false, 1, 8, ACK | FIN, 0),
    (true, 8, 2, ACK, 0),
];

fn packet((from_client, seq, ack, flags, payload): Step, client: ([u8; 4], u16)) -> Packet {
    let server = (SERVER, 80);
    if from_client {
        tcp(client, server, 1000 + seq, if flags & ACK != 0 { 5000 + ack } else { 0 }, flags, payload)
    } else {
        tcp(server, client, 5000 + seq, 1000 + ack, flags, payload)
    }
}

/// Records these steps of many connections, those of a chunk side by side.
fn record(path: &Path, steps: &[Step]) -> Result<(), Error> {
    let mut writer = pcap::Writer::new(std::io::BufWriter::new(std::fs::File::create(path)?))?;
    for first in (0..RECORDED).step_by(CHUNK.into()) {
        for step in steps {
            for port in first..first + CHUNK {
                writer.write_at(packet(*step, ([10, 64, 0, 0], 1024 + port)).data(), Duration::ZERO)?;
            }
        }
    }
    Ok(())
}

/// A port that plays a recording with other addresses each time.
fn play(dp: &Datapath, path: &Path, rate: Option<u64>) -> Result<(), Error> {
    let mut options: netdev::device::Options = [("new-addresses".to_owned(), "true".to_owned())].into();
    options.insert("pcap".to_owned(), path.display().to_string());
    options.extend(rate.map(|rate| ("rate".to_owned(), rate.to_string())));
    dp.port_add(memory::open("openings", "replay", &options)?, Some(DpPort(4)))?;
    Ok(())
}

/// Handshakes of established connections, and a port that plays their data.
fn establish(dp: &Datapath, first: &DpActions) -> Result<(), Error> {
    let mut frames = Vec::new();
    for port in 0..ESTABLISHED {
        let client = ([10, 0, (port >> 8) as u8, port as u8], 1024);
        for step in &WHOLE[..3] {
            dp.execute(DpPort(1), packet(*step, client), first)?;
        }
        frames.push(packet(WHOLE[3], client));
        frames.push(packet((false, 1, 1, ACK | PSH, 6), client));
    }
    let mut rng = base::rng::Rng::seeded(1);
    for i in (1..frames.len()).rev() {
        frames.swap(i, rng.below(i as u64 + 1) as usize);
    }
    dp.port_add(memory::replay("play", &frames, u64::MAX), Some(DpPort(3)))?;
    Ok(())
}

/// SYNs that fill the table.
fn fill(dp: &Datapath, first: &DpActions) -> Result<(), Error> {
    for n in 0..FLOOD_MAX {
        let [_, a, b, c] = n.to_be_bytes();
        dp.execute(DpPort(1), packet(WHOLE[0], ([10, 128 + a, b, c], 1024)), first)?;
    }
    Ok(())
}

/// Packets a second that leave by a port.
fn rate(dp: &Datapath, out: &dyn Netdev, time: Duration) -> f64 {
    let sent = || out.stats().tx_packets.unwrap_or(0);
    let (begin, before) = (Instant::now(), sent());
    while begin.elapsed() < time {
        slice(dp, SLICE);
    }
    (sent() - before) as f64 / begin.elapsed().as_secs_f64()
}

/// The nanoseconds a packet of slices, in ascending order; a slice takes a millisecond of the clock.
fn measure(dp: &Datapath, slices: Option<usize>, time: Duration, clock: &Clock) -> Vec<f64> {
    let (mut all, begin) = (Vec::new(), Instant::now());
    while slices.map_or(begin.elapsed() < time, |n| all.len() < n) {
        clock.warp(1);
        dp.sweep_connections();
        all.extend(times(dp, Some(1), time));
    }
    all.sort_by(f64::total_cmp);
    all
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_else(|| "flood".to_owned());
    let time = Duration::from_millis(args.next().map_or(Ok(1000), |ms| ms.parse())?);
    if let Some(cpu) = variable("CPU") {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set)?;
    }
    let clock = if what == "beside" { Clock::real() } else { Clock::stopped() };
    let dp = Datapath::new(Config { threads: 0, ..Config::default() }, clock.clone())?;
    let is_new = what == "new";
    let mut pipeline = Pipeline::new(vec![(1, false)], DpPort(if is_new { 2 } else { 5 }));
    pipeline.timeout = is_new.then(|| POLICY.into());
    let pipeline = Arc::new(pipeline);
    dp.set_handler(pipeline.clone());
    let out = memory::null("out")?;
    dp.port_add(out.clone(), Some(DpPort(2)))?;
    for (name, number) in [("in", 1), ("other", 5)] {
        dp.port_add(memory::null(name)?, Some(DpPort(number)))?;
    }
    let path = std::env::temp_dir().join(format!("openings-{}.pcap", std::process::id()));
    record(&path, if is_new { &WHOLE } else { &WHOLE[..1] })?;
    dp.set_connections_max(if is_new { 10_000_000 } else { FLOOD_MAX });
    match &what[..] {
        "beside" => {
            establish(&dp, &DpActions::from(pipeline.actions(0, false, false)))?;
            rate(&dp, &*out, time / 4);
            let alone = rate(&dp, &*out, time);
            fill(&dp, &DpActions::from(pipeline.actions(0, false, false)))?;
            let filled = rate(&dp, &*out, time);
            play(&dp, &path, Some(variable("RATE").unwrap_or(500_000)))?;
            rate(&dp, &*out, time / 2);
            let stats = dp.thread_stats().remove(0);
            let beside = rate(&dp, &*out, time);
            let packets = dp.thread_stats().remove(0).since(&stats).packets;
            let (kept, others) = (beside / alone, packets as f64 / time.as_secs_f64() - beside);
            let ns = (1.0 - kept) / others * 1e9;
            println!(
                "{{\"alone\": {alone:.0}, \"filled\": {filled:.0}, \"beside\": {beside:.0}, \"kept\": {kept:.3}, \"others\": {others:.0}, \
                 \"ns\": {ns:.0}, \"connections\": {}}}",
                dp.n_connections()
            );
        }
        "flood" | "new" => {
            play(&dp, &path, None)?;
            if is_new {
                let timeouts = ["syn_sent", "syn_recv", "established", "fin_wait", "time_wait", "close_wait", "close"];
                let timeouts = timeouts.map(|state| (format!("tcp_{state}"), 2));
                dp.set_timeout_policy(POLICY, &timeouts.into())?;
            }
            // The table has its size once the first connections are forgotten.
            for _ in 0..variable("WARM").unwrap_or(if is_new { 8_000_000 } else { 300_000 }) / SLICE {
                slice(&dp, SLICE);
                if is_new {
                    clock.warp(1);
                    dp.sweep_connections();
                }
            }
            let before = dp.thread_stats().remove(0);
            let times = measure(&dp, variable("SLICES"), time, &clock);
            let stats = dp.thread_stats().remove(0).since(&before);
            println!(
                "{{\"workload\": \"{what}\", \"packets\": {}, \"ns\": {:.1}, \"ns_middle\": {:.1}, \"flows\": {}, \
                 \"connections\": {}, \"misses\": {}}}",
                stats.packets,
                times[0],
                times[times.len() / 2],
                dp.stats().flows,
                dp.n_connections(),
                stats.misses,
            );
        }
        other => return Err(format!("{other}: neither flood, new nor beside").into()),
    }
    std::fs::remove_file(path)?;
    Ok(())
}
