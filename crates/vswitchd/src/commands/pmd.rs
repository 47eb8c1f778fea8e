//! `dpif-netdev/`: packet threads, what they have done, and their queues.
//!
//! - [`perf`]: `pmd-perf-show`; [`queues`]: `pmd-rxq-show`, `pmd-rxq-rebalance` and `pmd-sleep-show`.
//!
//! A thread is named by the core that it is pinned to; one that runs anywhere by its number, as of node 0.
//!
//! Cycles are those of the time stamp counter, computed from times by its frequency.

mod perf;
mod queues;
#[cfg(test)]
mod tests;

use super::{act, show};
use crate::devices::{Devices, Dp};
use dpif::{RoundHistory, RoundWatchSettings, ThreadInfo, ThreadStats};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use unixctl::{Commands, OutputFormat};

/// What threads had done when their statistics were cleared, by datapath and [`ThreadInfo::id`], which other threads lack: that is subtracted from
/// what is shown.
#[derive(Debug, Default)]
struct Cleared(Mutex<HashMap<(String, Option<u64>), Start>>);

#[derive(Debug)]
struct Start {
    at: Instant,
    stats: ThreadStats,
    served: (u64, u64),
}

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    let cleared = Arc::new(Cleared::default());
    for name in ["dpif-netdev/pmd-perf-show", "dpif-netdev/pmd-stats-show"] {
        let since = Arc::clone(&cleared);
        let usage = "[-nh] [-it iter-history-len] [-ms ms-history-len] [-pmd core] [dp]";
        show(commands, devices, (name, usage, 0..=8), move |d, args, format| {
            let request = Request::parse(args, &["-nh", "-it", "-ms"]);
            let threads = measured(d, &since, &request)?;
            Ok(match format {
                OutputFormat::Text => perf::text(&threads, request.histograms).into(),
                OutputFormat::Json => perf::json(&threads, request.histograms).into(),
            })
        });
    }
    // Open vSwitch 4.0 does not list the older name any more.
    commands.hide("dpif-netdev/pmd-stats-show");
    queues::register(commands, devices);
    act(commands, devices, ("dpif-netdev/pmd-stats-clear", "[-pmd core] [dp]", 0..=3), move |d, args| {
        let request = Request::parse(args, &[]);
        let mut cleared = cleared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let dp = shown(d, request.dp)?;
        let (datapath, served) = (dp.full_name(), served(&dp));
        // Of threads that are gone nothing is asked any more.
        let threads = dp.dpif.threads();
        cleared.retain(|(of, id), _| {
            *of != datapath || id.is_none_or(|id| threads.iter().any(|(thread, _)| thread.id == id))
        });
        for (thread, stats) in threads.into_iter().filter(|(thread, _)| is_asked(&request, thread)) {
            let start = Start { at: Instant::now(), stats, served };
            cleared.insert((datapath.clone(), Some(thread.id)), start);
        }
        if request.core.is_none() {
            let start = Start { at: Instant::now(), stats: dp.dpif.caller_stats(), served };
            cleared.insert((datapath, None), start);
        }
        Ok(String::new())
    });
    let usage = "on|off [-b before] [-a after] [-e|-ne] [-us usec] [-q qlen]";
    act(commands, devices, ("dpif-netdev/pmd-perf-log-set", usage, 0..=10), log_set);
}

/// Has iterations logged that take long, while `pmd-perf-metrics` is on.
fn log_set(devices: &Devices, args: &[String]) -> Result<String, String> {
    let settings = parse_log(devices.round_watch.settings(), args).ok_or(
        "Usage: ovs-appctl dpif-netdev/pmd-perf-log-set [on|off] [-b before] [-a after] [-e|-ne] [-us usec] \
         [-q qlen]",
    )?;
    devices.round_watch.set(settings);
    let RoundWatchSettings { is_on, before, after, extends, us_max, queue_max } = settings;
    let on = if is_on { "on" } else { "off" };
    tracing::info!(
        target: "pmd_perf",
        "pmd-perf-log-set: {on}, before={before}, after={after}, extend={extends}, us_thr={us_max}, q_thr={queue_max}"
    );
    Ok(String::new())
}

/// Reads changes of settings; `None` if a word is wrong.
fn parse_log(mut settings: RoundWatchSettings, args: &[String]) -> Option<RoundWatchSettings> {
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse().ok();
        match word {
            "on" => settings.is_on = true,
            "off" => settings.is_on = false,
            "-e" => settings.extends = true,
            "-ne" => settings.extends = false,
            "-b" => settings.before = number()?,
            "-a" => settings.after = number()?,
            "-us" => settings.us_max = number()?,
            "-q" => settings.queue_max = number()?,
            _ => return None,
        }
    }
    Some(settings)
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

/// The datapath of that name.
pub(super) fn named(devices: &Devices, name: Option<&String>) -> Result<Dp, String> {
    let mut datapaths = devices.all_datapaths();
    match name {
        Some(name) => datapaths.retain(|dp| *name == dp.name),
        None if datapaths.len() > 1 => datapaths.clear(),
        None => {}
    }
    datapaths.pop().ok_or_else(|| "please specify an existing datapath".to_owned())
}

/// The datapath that a command shows: that of that name, or the only one, whatever the name is.
fn shown(devices: &Devices, name: Option<&String>) -> Result<Dp, String> {
    let mut datapaths = devices.all_datapaths();
    if datapaths.len() == 1 { Ok(datapaths.remove(0)) } else { named(devices, name) }
}

/// Packets that handler threads have served, and nanoseconds that it took them.
fn served(dp: &Dp) -> (u64, u64) {
    let handlers = dp.dpif.upcall_stats().handlers;
    (handlers.iter().map(|h| h.packets).sum(), handlers.iter().map(|h| h.busy_ns).sum())
}

/// The line over what is shown of a thread.
fn header(thread: &ThreadInfo) -> String {
    format!("pmd thread numa_id {} core_id {}:", thread.numa_id, thread.core_id)
}

/// What one thread did since its statistics were cleared.
#[derive(Debug)]
struct Measured {
    /// Its datapath.
    datapath: String,
    /// `None` for all threads that are no packet threads.
    thread: Option<ThreadInfo>,
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
    let dp = shown(devices, request.dp)?;
    let (datapath, metrics) = (dp.full_name(), dp.dpif.has_metrics());
    let served = served(&dp);
    let (rounds, ms) = request.history;
    let mut all = Vec::new();
    for (thread, stats) in dp.dpif.threads().into_iter().filter(|(thread, _)| is_asked(request, thread)) {
        let start = cleared.get(&(datapath.clone(), Some(thread.id)));
        all.push(Measured {
            datapath: datapath.clone(),
            seconds: start.map_or(thread.age, |start| start.at.elapsed()).as_secs_f64(),
            stats: start.map_or_else(|| stats.clone(), |start| stats.since(&start.stats)),
            history: metrics.then(|| dp.dpif.round_history(thread.id, rounds, ms)),
            metrics,
            served: start.map_or(served, |start| less(served, start.served)),
            thread: Some(thread),
        });
    }
    if request.core.is_none() {
        // Threads that poll nothing send packets, too: what controllers send, and answers to misses.
        let (stats, start) = (dp.dpif.caller_stats(), cleared.get(&(datapath.clone(), None)));
        all.push(Measured {
            seconds: start.map_or(dp.made, |start| start.at).elapsed().as_secs_f64(),
            stats: start.map_or_else(|| stats.clone(), |start| stats.since(&start.stats)),
            datapath,
            history: None,
            metrics: false,
            served: (0, 0),
            thread: None,
        });
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
        self.thread.as_ref().map_or_else(|| "main thread:".to_owned(), header)
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
            "datapath": self.datapath,
            "core_id": self.thread.as_ref().map(|thread| thread.core_id),
            "numa_id": self.thread.as_ref().map(|thread| thread.numa_id),
            "pinned": self.thread.as_ref().map(|thread| thread.is_pinned),
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
