//! The cost of more packet threads than processors: `many_threads [SECONDS [THREADS]]` plays packets from memory,
//! alternately on as many threads as there are processors and on THREADS (64), and prints packets a second of all
//! threads together. Each thread polls a port of its own and sends to one port that all share. A ratio below 1 is the
//! cost of waiting for other threads or for a processor.

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod support;

use std::time::{Duration, Instant};

use base::{Clock, DpPort};
use datapath::{Config, Datapath};
use dpif::{Cpu, Dpif, ThreadConfig};
use flow::Field;
use netdev::memory;
use support::{Forward, fields, workload};

/// Turns with each number of threads.
const TURNS: usize = 5;
/// The workload.
const FLOWS: &str = "flows-256";

/// Packets a second of `threads` threads together.
fn rate(threads: u32, time: Duration) -> Result<f64, Box<dyn std::error::Error>> {
    let dp = Datapath::new(Config::default(), Clock::real())?;
    dp.set_handler(Forward::to(DpPort(1), fields(&[Field::Ipv4Src, Field::Ipv4Dst])));
    dp.port_add(memory::null("out")?, Some(DpPort(1)))?;
    let (frames, _) = workload(FLOWS).ok_or("no such workload")?;
    for n in 0..threads {
        dp.port_add(memory::replay(&format!("in{n}"), &frames, u64::MAX), Some(DpPort(2 + n)))?;
        dp.port_set_queues(DpPort(2 + n), &[(0, n as usize)].into())?;
    }
    // Threads of cores that the machine does not have run on any core.
    let cpus = (0..threads as usize).map(|core| Cpu { core, numa: 0 }).collect();
    dp.set_threads(&ThreadConfig { cpus, ..ThreadConfig::default() })?;
    std::thread::sleep(time / 4);
    let (start, before) = (Instant::now(), dp.stats().hit);
    std::thread::sleep(time);
    let packets = dp.stats().hit - before;
    Ok(packets as f64 / start.elapsed().as_secs_f64())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(2.0), |text| text.parse())?;
    let many = std::env::args().nth(2).map_or(Ok(64), |text| text.parse())?;
    let (time, few) = (Duration::from_secs_f64(seconds), std::thread::available_parallelism()?.get() as u32);
    let mut ratios = Vec::new();
    for _ in 0..TURNS {
        let (a, b) = (rate(few, time)?, rate(many, time)?);
        println!("{few} threads: {:.1} Mpps, {many} threads: {:.1} Mpps, ratio {:.3}", a / 1e6, b / 1e6, b / a);
        ratios.push(b / a);
    }
    ratios.sort_by(f64::total_cmp);
    println!("in the middle: {:.3}", ratios[TURNS / 2]);
    Ok(())
}
