//! The cost of more packet threads than processors: `many_threads [SECONDS [THREADS [TURNS]]]` plays packets from
//! memory, alternately on as many threads as there are processors and on THREADS (64), and prints packets a second of
//! all threads together, a line of JSON for each of the TURNS (5). Both poll the same THREADS ports, divided evenly, and
//! send to one port that all share, so that ports, flows and frames are the same. A ratio below 1 is the cost of waiting
//! for other threads or for a processor.

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

/// The workload.
const FLOWS: &str = "flows-256";

/// All flows count as installed after this time without a miss.
const QUIET: Duration = Duration::from_millis(300);
/// How long threads have to take over their queues, while each waits for the others.
const HANDOVER: Duration = Duration::from_secs(3);

/// Packets a second of `threads` threads together, which poll `ports` ports.
fn rate(threads: u32, ports: u32, time: Duration) -> Result<f64, Box<dyn std::error::Error>> {
    let few = std::thread::available_parallelism()?.get() as u32;
    let dp = Datapath::new(Config::default(), Clock::real())?;
    dp.set_handler(Forward::to(DpPort(1), fields(&[Field::Ipv4Src, Field::Ipv4Dst])));
    dp.port_add(memory::null("out")?, Some(DpPort(1)))?;
    let (frames, _) = workload(FLOWS).ok_or("no such workload")?;
    for n in 0..ports {
        dp.port_add(memory::replay(&format!("in{n}"), &frames, u64::MAX), Some(DpPort(2 + n)))?;
    }
    // Few threads install the flows: a handler waits for readers that wait for a processor.
    divide(&dp, few, ports)?;
    let mut misses = u64::MAX;
    while std::mem::replace(&mut misses, dp.stats().missed) != misses {
        std::thread::sleep(QUIET);
    }
    divide(&dp, threads, ports)?;
    std::thread::sleep(HANDOVER);
    let (start, before) = (Instant::now(), dp.stats().hit);
    std::thread::sleep(time);
    let packets = dp.stats().hit - before;
    Ok(packets as f64 / start.elapsed().as_secs_f64())
}

/// Divides the ports among as many threads. Threads of cores that the machine does not have run on any core.
fn divide(dp: &Datapath, threads: u32, ports: u32) -> Result<(), Box<dyn std::error::Error>> {
    let cpus = (0..threads as usize).map(|core| Cpu { core, numa: 0 }).collect();
    dp.set_threads(&ThreadConfig { cpus, ..ThreadConfig::default() })?;
    for n in 0..ports {
        dp.port_set_queues(DpPort(2 + n), &[(0, (n % threads) as usize)].into())?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |n| std::env::args().nth(n);
    let time = Duration::from_secs_f64(argument(1).map_or(Ok(2.0), |text| text.parse())?);
    let many = argument(2).map_or(Ok(64), |text| text.parse())?;
    let turns = argument(3).map_or(Ok(5), |text| text.parse::<usize>())?;
    let few = std::thread::available_parallelism()?.get() as u32;
    for _ in 0..turns {
        let (with_few, with_many) = (rate(few, many, time)?, rate(many, many, time)?);
        println!(
            "{{\"few_threads\": {few}, \"few_mpps\": {:.2}, \"many_threads\": {many}, \"many_mpps\": {:.2}, \
             \"ratio\": {:.3}}}",
            with_few / 1e6,
            with_many / 1e6,
            with_many / with_few,
        );
    }
    Ok(())
}
