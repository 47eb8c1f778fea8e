//! `dpif-netdev/pmd-*`: what packet threads have done, and `upcall/show`'s side of the datapath.
//!
//! Cycles are those of the time stamp counter, computed from times by its frequency.

use super::{act, dp_name, is_dp, show};
use crate::devices::{Devices, Dp};
use datapath::ThreadStats;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use unixctl::{Commands, OutputFormat};

/// What threads had done when their statistics were cleared, by datapath: that is subtracted from what is shown.
#[derive(Debug, Default)]
struct Cleared(Mutex<HashMap<String, Start>>);

#[derive(Debug)]
struct Start {
    at: Instant,
    threads: Vec<ThreadStats>,
    tx: (u64, u64),
}

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    let cleared = Arc::new(Cleared::default());
    let since = Arc::clone(&cleared);
    let usage = "[-pmd core] [dp]";
    show(commands, devices, ("dpif-netdev/pmd-stats-show", usage, 0..=3), move |d, args, format| {
        let threads = measured(d, &since, &Request::parse(args)?)?;
        Ok(match format {
            OutputFormat::Text => threads.iter().map(stats_text).collect::<String>().into(),
            OutputFormat::Json => threads.iter().map(Measured::json).collect::<Value>().into(),
        })
    });
    let since = Arc::clone(&cleared);
    let usage = "[-nh] [-it iter-history-len] [-ms ms-history-len] [-pmd core] [dp]";
    show(commands, devices, ("dpif-netdev/pmd-perf-show", usage, 0..=8), move |d, args, format| {
        let request = Request::parse(args)?;
        let threads = measured(d, &since, &request)?;
        Ok(match format {
            OutputFormat::Text => perf_text(&threads, request.histograms).into(),
            OutputFormat::Json => threads.iter().map(Measured::json).collect::<Value>().into(),
        })
    });
    act(commands, devices, ("dpif-netdev/pmd-stats-clear", "[dp]", 0..=1), move |d, args| {
        for (kind, dp) in named(d, args.first())? {
            let start = Start { at: Instant::now(), threads: dp.datapath.thread_stats(), tx: sent(&dp) };
            cleared.0.lock().unwrap_or_else(PoisonError::into_inner).insert(kind, start);
        }
        Ok(String::new())
    });
}

/// Which threads are asked about, and how much is to be told.
#[derive(Debug)]
struct Request<'a> {
    histograms: bool,
    core: Option<usize>,
    dp: Option<&'a String>,
}

impl<'a> Request<'a> {
    fn parse(args: &'a [String]) -> Result<Self, String> {
        let mut request = Self { histograms: true, core: None, dp: None };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-nh" => request.histograms = false,
                "-pmd" => {
                    let core = words.next().and_then(|n| n.parse().ok());
                    request.core = Some(core.ok_or("-pmd wants the number of a thread")?);
                }
                "-it" | "-ms" => return Err(format!("{word}: no history of iterations is kept")),
                option if option.starts_with('-') => return Err(format!("Unrecognized option {option}")),
                _ => request.dp = Some(word),
            }
        }
        Ok(request)
    }
}

fn named(devices: &Devices, name: Option<&String>) -> Result<Vec<(String, Dp)>, String> {
    let mut datapaths = devices.datapaths();
    if let Some(name) = name {
        datapaths.retain(|(kind, _)| is_dp(name, kind));
        if datapaths.is_empty() {
            return Err("dpif-netdev: no such datapath".to_owned());
        }
    }
    Ok(datapaths)
}

/// Packets and batches that ports have sent.
fn sent(dp: &Dp) -> (u64, u64) {
    let ports = dp.datapath.ports();
    (ports.iter().map(|p| p.stats.tx_packets).sum(), ports.iter().map(|p| p.stats.tx_batches).sum())
}

/// What one thread did since its statistics were cleared.
#[derive(Debug)]
struct Measured {
    name: String,
    seconds: f64,
    stats: ThreadStats,
    /// Packets and batches sent, of all threads of its datapath.
    tx: (u64, u64),
}

fn measured(devices: &Devices, cleared: &Cleared, request: &Request<'_>) -> Result<Vec<Measured>, String> {
    let cleared = cleared.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all = Vec::new();
    for (kind, dp) in named(devices, request.dp)? {
        let start = cleared.get(&kind);
        let seconds = start.map_or(dp.datapath.uptime(), |s| s.at.elapsed()).as_secs_f64();
        let tx = sent(&dp);
        let before = start.map_or((0, 0), |s| s.tx);
        for (i, stats) in dp.datapath.thread_stats().into_iter().enumerate() {
            if request.core.is_some_and(|core| core != i) {
                continue;
            }
            let stats = match start.and_then(|s| s.threads.get(i)) {
                Some(before) => stats.since(before),
                None => stats,
            };
            let tx = (tx.0.saturating_sub(before.0), tx.1.saturating_sub(before.1));
            all.push(Measured {
                name: format!("pmd thread numa_id 0 core_id {i}: ({})", dp_name(&kind)),
                seconds,
                stats,
                tx,
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
    fn busy_cycles(&self) -> u64 {
        (self.stats.busy_ns as f64 * cycles_per_ns()) as u64
    }

    fn idle_cycles(&self) -> u64 {
        (self.stats.idle_ns as f64 * cycles_per_ns()) as u64
    }

    /// Misses that were taken up, and that were not.
    fn upcalls(&self) -> (u64, u64) {
        (self.stats.misses.saturating_sub(self.stats.lost), self.stats.lost)
    }

    fn json(&self) -> Value {
        let s = &self.stats;
        let (upcalls, lost) = self.upcalls();
        json!({
            "thread": self.name,
            "seconds": self.seconds,
            "packets_received": s.packets,
            "recirculations": 0,
            "emc_hits": s.exact_hits,
            "smc_hits": 0,
            "megaflow_hits": s.megaflow_hits,
            "lookups_per_megaflow_hit": ratio(s.probes, s.megaflow_hits),
            "upcalls": upcalls,
            "lost_upcalls": lost,
            "self_checks": s.checks,
            "self_checks_failed": s.checks_failed,
            "iterations": s.rounds,
            "sleeps": s.sleeps,
            "batches": s.batches,
            "batch_sizes": s.batch_sizes,
            "busy_cycles": self.busy_cycles(),
            "idle_cycles": self.idle_cycles(),
            "cycles_per_packet": ratio(self.busy_cycles(), s.packets),
            "tx_packets": self.tx.0,
            "tx_batches": self.tx.1,
        })
    }
}

fn stats_text(m: &Measured) -> String {
    let s = &m.stats;
    let (upcalls, lost) = m.upcalls();
    let passes = if s.packets == 0 { 0.0 } else { 1.0 };
    let mut out = format!("{}\n", m.name);
    let _ = write!(
        out,
        "  packets received: {}\n  packet recirculations: 0\n  avg. datapath passes per packet: {passes:.2}\n  \
         phwol hits: 0\n  mfex opt hits: 0\n  simple match hits: 0\n  emc hits: {}\n  smc hits: 0\n  megaflow hits: {}\n  \
         avg. subtable lookups per megaflow hit: {:.2}\n  miss with success upcall: {upcalls}\n  \
         miss with failed upcall: {lost}\n  avg. packets per output batch: {:.2}\n",
        s.packets,
        s.exact_hits,
        s.megaflow_hits,
        ratio(s.probes, s.megaflow_hits),
        ratio(m.tx.0, m.tx.1),
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

fn perf_text(threads: &[Measured], histograms: bool) -> String {
    let mut out = String::new();
    for m in threads {
        let s = &m.stats;
        let (upcalls, lost) = m.upcalls();
        let (busy, idle) = (m.busy_cycles(), m.idle_cycles());
        let percent = |n: u64, of: u64| ratio(n, of) * 100.0;
        let kpps = |n: u64| if m.seconds > 0.0 { n as f64 / m.seconds / 1000.0 } else { 0.0 };
        let _ = writeln!(out, "Measurement duration: {:.3} s\n\n{}\n", m.seconds, m.name);
        let per_round = if s.rounds == 0 { 0.0 } else { (s.busy_ns + s.idle_ns) as f64 / s.rounds as f64 / 1000.0 };
        let total = (m.seconds * 1e9 * cycles_per_ns()) as u64;
        let _ = writeln!(out, "  Iterations:         {:12}  ({per_round:.2} us/it)", s.rounds);
        let _ = writeln!(
            out,
            "  - Used TSC cycles:  {:12}  ({:5.1} % of total cycles)",
            busy + idle,
            percent(busy + idle, total)
        );
        let _ = writeln!(
            out,
            "  - idle cycles:      {idle:12}  ({:5.1} % of used cycles, {} sleeps)",
            percent(idle, busy + idle),
            s.sleeps
        );
        let _ = writeln!(out, "  - busy cycles:      {busy:12}  ({:5.1} % of used cycles)", percent(busy, busy + idle));
        let _ = writeln!(
            out,
            "  Rx packets:         {:12}  ({:.0} Kpps, {:.0} cycles/pkt)",
            s.packets,
            kpps(s.packets),
            ratio(busy, s.packets)
        );
        let _ = writeln!(out, "  Datapath passes:    {:12}  (1.00 passes/pkt)", s.packets);
        let _ =
            writeln!(out, "  - EMC hits:         {:12}  ({:5.1} %)", s.exact_hits, percent(s.exact_hits, s.packets));
        let _ = writeln!(
            out,
            "  - Megaflow hits:    {:12}  ({:5.1} %, {:.2} nodes or tables/hit)",
            s.megaflow_hits,
            percent(s.megaflow_hits, s.packets),
            ratio(s.probes, s.megaflow_hits)
        );
        let _ = writeln!(out, "  - Upcalls:          {upcalls:12}  ({:5.1} %)", percent(upcalls, s.packets));
        let _ = writeln!(out, "  - Lost upcalls:     {lost:12}  ({:5.1} %)", percent(lost, s.packets));
        let _ = writeln!(out, "  Tx packets:         {:12}  ({:.0} Kpps, all threads)", m.tx.0, kpps(m.tx.0));
        let _ = writeln!(out, "  Tx batches:         {:12}  ({:.2} pkts/batch)", m.tx.1, ratio(m.tx.0, m.tx.1));
        if histograms {
            let _ = writeln!(out, "\n  Histogram: packets/batch");
            for (i, n) in s.batch_sizes.iter().enumerate().filter(|(_, n)| **n > 0) {
                let _ = writeln!(out, "  {:4} {n:12}", i + 1);
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let line = words("-nh -pmd 1 netdev@ovs-netdev");
        let request = Request::parse(&line).unwrap();
        assert_eq!((request.histograms, request.core, request.dp), (false, Some(1), line.last()));
        assert!(Request::parse(&words("-it 5")).unwrap_err().contains("no history"));
        assert!(Request::parse(&words("-pmd x")).is_err() && Request::parse(&words("-x")).is_err());
    }

    #[test]
    fn texts() {
        let stats = ThreadStats {
            packets: 100,
            exact_hits: 60,
            megaflow_hits: 30,
            probes: 60,
            misses: 10,
            lost: 3,
            rounds: 20,
            busy_ns: 1000,
            batch_sizes: vec![0, 7],
            ..ThreadStats::default()
        };
        let m = Measured { name: "pmd".to_owned(), seconds: 2.0, stats, tx: (90, 9) };
        let text = stats_text(&m);
        for line in [
            "  packets received: 100",
            "  emc hits: 60",
            "  megaflow hits: 30",
            "  avg. subtable lookups per megaflow hit: 2.00",
            "  miss with success upcall: 7",
            "  miss with failed upcall: 3",
            "  avg. packets per output batch: 10.00",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
        let perf = perf_text(&[m], true);
        assert!(
            perf.contains("  - EMC hits:                   60  ( 60.0 %)") && perf.contains("     2            7"),
            "{perf}"
        );
    }
}
