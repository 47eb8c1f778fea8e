//! `dpif-netdev/`: packet threads, what they have done, and their queues.
//!
//! - [`perf`]: `pmd-perf-show`; [`queues`]: `pmd-rxq-show`, `pmd-rxq-rebalance` and `pmd-sleep-show`; [`lookup`]:
//!   `subtable-lookup-*`.
//!
//! A thread is named by the core that it is pinned to; one that runs anywhere by its number, as of node 0.
//!
//! Cycles are those of the time stamp counter, computed from times by its frequency.

mod lookup;
mod perf;
mod queues;
#[cfg(test)]
mod tests;

use super::{act, dp_name, is_dp, show};
use crate::devices::{Devices, Dp};
use dpif::{RoundHistory, ThreadInfo, ThreadStats};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use unixctl::{Commands, OutputFormat};

/// What threads had done when their statistics were cleared, by datapath and [`ThreadInfo::id`]: that is subtracted from
/// what is shown.
#[derive(Debug, Default)]
struct Cleared(Mutex<HashMap<(String, u64), Start>>);

#[derive(Debug)]
struct Start {
    at: Instant,
    stats: ThreadStats,
    served: (u64, u64),
}

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    let cleared = Arc::new(Cleared::default());
    let since = Arc::clone(&cleared);
    let usage = "[-pmd core] [dp]";
    show(commands, devices, ("dpif-netdev/pmd-stats-show", usage, 0..=8), move |d, args, format| {
        let threads = measured(d, &since, &Request::parse(args, &[]))?;
        Ok(match format {
            OutputFormat::Text => threads.iter().map(stats_text).collect::<String>().into(),
            OutputFormat::Json => threads.iter().map(Measured::json).collect::<Value>().into(),
        })
    });
    let since = Arc::clone(&cleared);
    let usage = "[-nh] [-it iter-history-len] [-ms ms-history-len] [-pmd core] [dp]";
    show(commands, devices, ("dpif-netdev/pmd-perf-show", usage, 0..=8), move |d, args, format| {
        let request = Request::parse(args, &["-nh", "-it", "-ms"]);
        let threads = measured(d, &since, &request)?;
        Ok(match format {
            OutputFormat::Text => perf::text(&threads, request.histograms).into(),
            OutputFormat::Json => perf::json(&threads, request.histograms).into(),
        })
    });
    queues::register(commands, devices);
    lookup::register(commands, devices);
    act(commands, devices, ("dpif-netdev/pmd-stats-clear", "[-pmd core] [dp]", 0..=3), move |d, args| {
        let request = Request::parse(args, &[]);
        let mut cleared = cleared.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, dp) in shown(d, request.dp)? {
            let served = served(&dp);
            // Of threads that are gone nothing is asked any more.
            let threads = dp.dpif.threads();
            cleared.retain(|(of, id), _| *of != kind || threads.iter().any(|(thread, _)| thread.id == *id));
            for (thread, stats) in threads.into_iter().filter(|(thread, _)| is_asked(&request, thread)) {
                cleared.insert((kind.clone(), thread.id), Start { at: Instant::now(), stats, served });
            }
        }
        Ok(String::new())
    });
    let usage = "on|off [-b before] [-a after] [-e|-ne] [-us usec] [-q qlen]";
    act(commands, devices, ("dpif-netdev/pmd-perf-log-set", usage, 0..=10), |_, args| log_set(args));
}

/// Suspicious iterations are not watched for: that is so already (`off`), or cannot be.
fn log_set(args: &[String]) -> Result<String, String> {
    let usage = "Usage: ovs-appctl dpif-netdev/pmd-perf-log-set [on|off] [-b before] [-a after] [-e|-ne] [-us usec] \
                 [-q qlen]";
    let mut on = false;
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "on" => on = true,
            "off" => on = false,
            "-e" | "-ne" => {}
            "-b" | "-a" | "-us" | "-q" if words.next().is_some_and(|n| n.parse::<u32>().is_ok()) => {}
            _ => return Err(usage.to_owned()),
        }
    }
    if on { Err("pmd-perf-log-set: iterations that take long are not logged".to_owned()) } else { Ok(String::new()) }
}

/// Which threads a command shows, and how much of each.
#[derive(Debug)]
struct Request<'a> {
    histograms: bool,
    /// Rounds and milliseconds of the history.
    history: (usize, usize),
    core: Option<usize>,
    seconds: usize,
    dp: Option<&'a String>,
}

impl<'a> Request<'a> {
    /// Reads the arguments; of options, `-pmd` and those in `options` are known. As in Open vSwitch, each other word names a
    /// datapath, the only one is meant if there is none of that name, and a number that is none counts as not given.
    fn parse(args: &'a [String], options: &[&str]) -> Self {
        let mut request =
            Self { histograms: true, history: (0, 0), core: None, seconds: queues::SECONDS_MAX, dp: None };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let is_last = words.len() == 0;
            let mut number = || words.next().and_then(|n| n.parse::<usize>().ok());
            match word.as_str() {
                "-nh" if options.contains(&"-nh") => request.histograms = false,
                "-pmd" if !is_last => request.core = number().or(request.core),
                // Other numbers stand for all seconds that are remembered.
                "-secs" if !is_last && options.contains(&"-secs") => {
                    request.seconds = number().filter(|n| *n > 0).unwrap_or(queues::SECONDS_MAX);
                }
                "-it" if !is_last && options.contains(&"-it") => request.history.0 = number().unwrap_or(0),
                "-ms" if !is_last && options.contains(&"-ms") => request.history.1 = number().unwrap_or(0),
                _ => request.dp = Some(word),
            }
        }
        request
    }
}

/// Whether a thread is asked about.
fn is_asked(request: &Request<'_>, thread: &ThreadInfo) -> bool {
    request.core.is_none_or(|core| core == thread.core_id)
}

fn named(devices: &Devices, name: Option<&String>) -> Result<Vec<(String, Dp)>, String> {
    let mut datapaths = devices.datapaths();
    if let Some(name) = name {
        datapaths.retain(|(kind, _)| is_dp(name, kind));
        if datapaths.is_empty() {
            return Err("please specify an existing datapath".to_owned());
        }
    }
    Ok(datapaths)
}

/// The datapaths that a command shows: of that name, or the only one, whatever the name is.
fn shown(devices: &Devices, name: Option<&String>) -> Result<Vec<(String, Dp)>, String> {
    let datapaths = devices.datapaths();
    if datapaths.len() == 1 { Ok(datapaths) } else { named(devices, name) }
}

/// Packets that handler threads have served, and nanoseconds that it took them.
fn served(dp: &Dp) -> (u64, u64) {
    let handlers = dp.dpif.upcall_stats().handlers;
    (handlers.iter().map(|h| h.packets).sum(), handlers.iter().map(|h| h.busy_ns).sum())
}

/// The line over what is shown of a thread. Where there are `several` datapaths it names the thread's.
struct Header<'a> {
    kind: &'a str,
    several: bool,
}

impl Header<'_> {
    fn text(&self, thread: &ThreadInfo) -> String {
        let of = if self.several { format!(" ({})", dp_name(self.kind)) } else { String::new() };
        let ThreadInfo { numa_id, core_id, .. } = thread;
        format!("pmd thread numa_id {numa_id} core_id {core_id}:{of}")
    }
}

/// What one thread did since its statistics were cleared.
#[derive(Debug)]
struct Measured {
    /// Its datapath's type, and whether there are others.
    kind: String,
    several: bool,
    thread: ThreadInfo,
    seconds: f64,
    stats: ThreadStats,
    /// Its last rounds, if they are asked for, and whether its datapath has metrics.
    history: Option<RoundHistory>,
    metrics: bool,
    /// Packets of all threads of its datapath that were served by handlers, and nanoseconds that it took.
    served: (u64, u64),
}

fn measured(devices: &Devices, cleared: &Cleared, request: &Request<'_>) -> Result<Vec<Measured>, String> {
    let cleared = cleared.0.lock().unwrap_or_else(PoisonError::into_inner);
    let less = |now: (u64, u64), before: (u64, u64)| (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
    let datapaths = shown(devices, request.dp)?;
    let several = datapaths.len() > 1;
    let mut all = Vec::new();
    for (kind, dp) in datapaths {
        let served = served(&dp);
        for (thread, stats) in dp.dpif.threads().into_iter().filter(|(thread, _)| is_asked(request, thread)) {
            let kind = kind.clone();
            let metrics = dp.dpif.has_metrics();
            let (rounds, ms) = request.history;
            let history = metrics.then(|| dp.dpif.round_history(thread.id, rounds, ms));
            let start = cleared.get(&(kind.clone(), thread.id));
            all.push(match start {
                Some(start) => Measured {
                    kind,
                    several,
                    thread,
                    seconds: start.at.elapsed().as_secs_f64(),
                    stats: stats.since(&start.stats),
                    history,
                    metrics,
                    served: less(served, start.served),
                },
                None => Measured {
                    kind,
                    several,
                    seconds: thread.age.as_secs_f64(),
                    thread,
                    stats,
                    history,
                    metrics,
                    served,
                },
            });
        }
    }
    Ok(all)
}

/// Cycles of the time stamp counter in a nanosecond; nanoseconds where there is no such counter.
fn cycles_per_ns() -> f64 {
    netdev_linux::tsc::cycles_per_ns().unwrap_or(1.0)
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

impl Measured {
    fn header(&self) -> String {
        Header { kind: &self.kind, several: self.several }.text(&self.thread)
    }

    fn busy_cycles(&self) -> u64 {
        (self.stats.busy_ns as f64 * cycles_per_ns()) as u64
    }

    /// Awake, without packets.
    fn idle_cycles(&self) -> u64 {
        (self.stats.idle_ns.saturating_sub(self.stats.sleep_ns) as f64 * cycles_per_ns()) as u64
    }

    /// Rounds that moved packets.
    fn busy_rounds(&self) -> u64 {
        self.stats.rounds_by_packets.iter().sum()
    }

    /// Misses that were taken up, and that were not.
    fn upcalls(&self) -> (u64, u64) {
        (self.stats.misses.saturating_sub(self.stats.lost), self.stats.lost)
    }

    fn json(&self) -> Value {
        let s = &self.stats;
        let (upcalls, lost) = self.upcalls();
        json!({
            "datapath": dp_name(&self.kind),
            "core_id": self.thread.core_id,
            "numa_id": self.thread.numa_id,
            "pinned": self.thread.is_pinned,
            "seconds": self.seconds,
            "packets_received": s.packets,
            "recirculations": s.recirculations,
            "emc_hits": s.microflow_hits,
            "smc_hits": 0,
            "megaflow_hits": s.megaflow_hits,
            "lookups_per_megaflow_hit": ratio(s.probes, s.megaflow_hits),
            "upcalls": upcalls,
            "us_per_upcall": ratio(self.served.1, self.served.0) / 1000.0,
            "lost_upcalls": lost,
            "self_checks": s.checks,
            "self_checks_failed": s.checks_failed,
            "iterations": s.rounds,
            "busy_iterations": self.busy_rounds(),
            "sleeps": s.sleeps,
            "sleep_us": s.sleep_ns / 1000,
            "batches": s.batches,
            "batch_sizes": s.batch_sizes,
            "busy_cycles": self.busy_cycles(),
            "idle_cycles": self.idle_cycles(),
            "cycles_per_packet": ratio(self.busy_cycles(), s.packets),
            "tx_packets": s.tx_packets,
            "tx_batches": s.tx_batches,
            "panics": s.panics,
        })
    }
}

fn stats_text(m: &Measured) -> String {
    let s = &m.stats;
    let (upcalls, lost) = m.upcalls();
    let passes = ratio(s.packets + s.recirculations, s.packets);
    let mut out = format!("{}\n", m.header());
    let _ = write!(
        out,
        "  packets received: {}\n  packet recirculations: {}\n  avg. datapath passes per packet: {passes:.2}\n  \
         phwol hits: 0\n  mfex opt hits: 0\n  simple match hits: 0\n  emc hits: {}\n  smc hits: 0\n  megaflow hits: {}\n  \
         avg. subtable lookups per megaflow hit: {:.2}\n  miss with success upcall: {upcalls}\n  \
         miss with failed upcall: {lost}\n  avg. packets per output batch: {:.2}\n",
        s.packets,
        s.recirculations,
        s.microflow_hits,
        s.megaflow_hits,
        ratio(s.probes, s.megaflow_hits),
        ratio(s.tx_packets, s.tx_batches),
    );
    let (busy, idle) = (m.busy_cycles(), m.idle_cycles());
    let all = busy + idle;
    if all > 0 {
        let percent = |n: u64| ratio(n, all) * 100.0;
        let _ = writeln!(out, "  idle cycles: {idle} ({:.2}%)", percent(idle));
        let _ = writeln!(out, "  processing cycles: {busy} ({:.2}%)", percent(busy));
    }
    if s.packets > 0 {
        let _ = writeln!(out, "  avg cycles per packet: {:.2} ({all}/{})", ratio(all, s.packets), s.packets);
        let _ =
            writeln!(out, "  avg processing cycles per packet: {:.2} ({busy}/{})", ratio(busy, s.packets), s.packets);
    }
    out
}
