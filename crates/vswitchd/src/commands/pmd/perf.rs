//! `dpif-netdev/pmd-perf-show`: what a packet thread's rounds cost, with histograms, in Open vSwitch's layout.
//!
//! Threads keep their histograms in nanoseconds, in buckets that reach to twice as far as the one before each; the
//! bounds become cycles when they are shown. Of rounds that moved no packet only the number is known, so cycles are
//! those of the others. Columns of Open vSwitch that would have to be made up (fill of vhost queues, upcalls and their
//! cycles by round) are left out.

use super::{Measured, cycles_per_ns, ratio};
use dpif::{RoundSample, rounds_text};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Characters of a column of histograms, the gap to the next one aside.
const WIDTH: usize = 21;

/// A histogram: the greatest value that a bucket counts, none for the last one, and how often it was counted.
struct Histogram {
    title: &'static str,
    /// Its name in JSON.
    name: &'static str,
    buckets: Vec<(Option<u64>, u64)>,
    mean: f64,
    /// Digits of the mean behind the point.
    digits: usize,
}

pub(super) fn text(threads: &[Measured], histograms: bool) -> String {
    let time = time_of_day();
    threads.iter().map(|m| one(m, &time, histograms)).collect()
}

pub(super) fn json(threads: &[Measured], histograms: bool) -> Value {
    let one = |m: &Measured| {
        let mut thread = m.json();
        if let Some(members) = thread.as_object_mut().filter(|_| histograms) {
            let all: Map<_, _> = Histogram::all(m).into_iter().map(|h| (h.name.to_owned(), h.json())).collect();
            members.insert("histograms".to_owned(), all.into());
        }
        if let (Some(members), Some(history)) = (thread.as_object_mut(), &m.history) {
            members.insert("iteration_history".to_owned(), samples_json(&history.rounds));
            members.insert("ms_history".to_owned(), samples_json(&history.milliseconds));
        }
        thread
    };
    threads.iter().filter(|m| m.thread.is_some()).map(one).collect()
}

/// Hours, minutes, seconds and milliseconds (UTC).
fn time_of_day() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = now.as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}", seconds / 3600, seconds / 60 % 60, seconds % 60, now.subsec_millis())
}

fn one(m: &Measured, time: &str, histograms: bool) -> String {
    let s = &m.stats;
    let mut out = format!("\nTime: {time}\nMeasurement duration: {:.3} s\n\n{}\n\n", m.seconds, m.header());
    let kpps = |n: u64| if m.seconds > 0.0 { n as f64 / m.seconds / 1000.0 } else { 0.0 };
    if m.thread.is_some() {
        rounds(&mut out, m);
    }
    if s.packets > 0 {
        let cycles = ratio(m.busy_cycles(), s.packets);
        let _ = writeln!(
            out,
            "  Rx packets:         {:12}  ({:.0} Kpps, {cycles:.0} cycles/pkt)",
            s.packets,
            kpps(s.packets)
        );
        passes(&mut out, m);
    } else {
        let _ = writeln!(out, "  Rx packets:         {:12}", 0);
    }
    if s.tx_packets > 0 {
        let _ = writeln!(out, "  Tx packets:         {:12}  ({:.0} Kpps)", s.tx_packets, kpps(s.tx_packets));
        let _ = writeln!(
            out,
            "  Tx batches:         {:12}  ({:.2} pkts/batch)",
            s.tx_batches,
            ratio(s.tx_packets, s.tx_batches)
        );
    } else {
        let _ = writeln!(out, "  Tx packets:         {:12}\n", 0);
    }
    if histograms && m.metrics {
        table(&mut out, &Histogram::all(m));
    }
    if let Some(history) = &m.history {
        samples(&mut out, &history.rounds, &history.milliseconds);
    }
    out
}

/// The last rounds and milliseconds.
fn samples(out: &mut String, rounds: &[RoundSample], milliseconds: &[RoundSample]) {
    let cycles = |ns: u64| (ns as f64 * cycles_per_ns()) as u64;
    let each = |a: u64, b: u64| a.checked_div(b).unwrap_or(0);
    if !rounds.is_empty() {
        rounds_text(rounds, cycles_per_ns(), out);
        out.push('\n');
    }
    if !milliseconds.is_empty() {
        let _ = writeln!(
            out,
            "   {:<12}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}",
            "ms",
            "iterations",
            "cycles/it",
            "Kpps",
            "cycles/pkt",
            "pkts/batch",
            "vhost qlen",
            "upcalls",
            "cycles/upcall"
        );
        for s in milliseconds {
            let _ = writeln!(
                out,
                "   {:<12}   {:<11}  {:<11}  {:<11}  {:<11}  {:<11}  {:<11}  {:<11}  {:<11}",
                s.at,
                s.rounds,
                each(cycles(s.ns), s.rounds),
                s.packets,
                each(cycles(s.ns), s.packets),
                each(s.packets, s.batches),
                0,
                s.upcalls,
                0
            );
        }
        out.push('\n');
    }
}

fn samples_json(samples: &[RoundSample]) -> Value {
    let one = |s: &RoundSample| {
        json!({
            "at": s.at, "iterations": s.rounds, "ns": s.ns, "packets": s.packets, "batches": s.batches, "upcalls": s.upcalls,
        })
    };
    samples.iter().map(one).collect()
}

fn percent(n: u64, of: u64) -> f64 {
    ratio(n, of) * 100.0
}

/// Iterations, and what they took.
fn rounds(out: &mut String, m: &Measured) {
    let s = &m.stats;
    let (busy, idle) = (m.busy_cycles(), m.idle_cycles());
    let used_us = s.busy_ns.saturating_add(s.idle_ns).saturating_sub(s.sleep_ns) as f64 / 1000.0;
    let per_round = if s.rounds == 0 { 0.0 } else { used_us / s.rounds as f64 };
    let total = (m.seconds * 1e9 * cycles_per_ns()) as u64;
    let busy_rounds = m.busy_rounds();
    let sleep_us = s.sleep_ns / 1000;
    let _ = write!(
        out,
        "  Iterations:         {:12}  ({per_round:.2} us/it)\n  \
         - Used TSC cycles:  {:12}  ({:5.1} % of total cycles)\n  \
         - idle iterations:  {:12}  ({:5.1} % of used cycles)\n  \
         - busy iterations:  {busy_rounds:12}  ({:5.1} % of used cycles)\n  \
         - sleep iterations: {:12}  ({:5.1} % of iterations)\n  \
         Sleep time (us):    {sleep_us:12}  ({:3.0} us/iteration avg.)\n",
        s.rounds,
        busy + idle,
        percent(busy + idle, total),
        s.rounds.saturating_sub(busy_rounds),
        percent(idle, busy + idle),
        percent(busy, busy + idle),
        s.sleeps,
        percent(s.sleeps, s.rounds),
        ratio(sleep_us, s.sleeps),
    );
}

/// How the packets found their flows.
fn passes(out: &mut String, m: &Measured) {
    let s = &m.stats;
    let (upcalls, lost) = m.upcalls();
    let passes = s.packets + s.recirculations;
    let of_all = |n: u64| percent(n, passes);
    let upcall_us = ratio(m.served.1, m.served.0) / 1000.0;
    let _ = write!(
        out,
        "  Datapath passes:    {passes:12}  ({:.2} passes/pkt)\n  \
         - PHWOL hits:       {:12}  (  0.0 %)\n  \
         - Simple Match hits:{:12}  (  0.0 %)\n  \
         - EMC hits:         {:12}  ({:5.1} %)\n  \
         - SMC hits:         {:12}  (  0.0 %)\n  \
         - Megaflow hits:    {:12}  ({:5.1} %, {:.2} subtbl lookups/hit)\n  \
         - Upcalls:          {upcalls:12}  ({:5.1} %, {upcall_us:.1} us/upcall)\n  \
         - Lost upcalls:     {lost:12}  ({:5.1} %)\n",
        ratio(passes, s.packets),
        0,
        0,
        s.microflow_hits,
        of_all(s.microflow_hits),
        0,
        s.megaflow_hits,
        of_all(s.megaflow_hits),
        ratio(s.probes, s.megaflow_hits),
        of_all(upcalls),
        of_all(lost),
    );
}

impl Histogram {
    fn all(m: &Measured) -> [Self; 4] {
        let s = &m.stats;
        let busy_rounds = m.busy_rounds();
        let mut packets = doubling(&s.rounds_by_packets, 1.0);
        if let Some(none) = packets.first_mut() {
            none.1 = s.rounds.saturating_sub(busy_rounds);
        }
        let cycles = |counts: &[u64]| doubling(counts, cycles_per_ns());
        let sizes = s.batch_sizes.iter().enumerate().map(|(i, n)| (Some(i as u64 + 1), *n)).collect();
        [
            Self {
                title: "cycles/busy it",
                name: "cycles_per_busy_iteration",
                buckets: cycles(&s.rounds_by_ns),
                mean: ratio(m.busy_cycles(), busy_rounds),
                digits: 0,
            },
            Self {
                title: "packets/it",
                name: "packets_per_iteration",
                buckets: packets,
                mean: ratio(s.packets, s.rounds),
                digits: 5,
            },
            Self {
                title: "cycles/pkt",
                name: "cycles_per_packet",
                buckets: cycles(&s.rounds_by_packet_ns),
                mean: ratio(m.busy_cycles(), s.packets),
                digits: 0,
            },
            Self {
                title: "pkts/batch",
                name: "packets_per_batch",
                buckets: sizes,
                mean: ratio(s.packets, s.batches),
                digits: 5,
            },
        ]
    }

    /// Buckets that counted something, and the mean.
    fn json(&self) -> Value {
        let counted = self.buckets.iter().filter(|(_, n)| *n > 0);
        let buckets: Value = counted.map(|(most, n)| json!({"at_most": most, "count": n})).collect();
        json!({"mean": self.mean, "buckets": buckets})
    }
}

/// Buckets of which the one at place n ends before 2^n, in units of which there are `scale` in one of ours.
fn doubling(counts: &[u64], scale: f64) -> Vec<(Option<u64>, u64)> {
    let last = counts.len().saturating_sub(1);
    let bound = |place: usize| (place < last).then(|| ((2f64.powi(place as i32) - 1.0) * scale) as u64);
    counts.iter().enumerate().map(|(place, n)| (bound(place), *n)).collect()
}

/// Histograms side by side.
fn table(out: &mut String, histograms: &[Histogram]) {
    let line = |cells: Vec<String>| format!("   {}\n", cells.join("  "));
    let titles = || line(histograms.iter().map(|h| format!("{:WIDTH$}", h.title)).collect());
    out.push_str("\nHistograms\n");
    out.push_str(&titles());
    for row in 0..histograms.iter().map(|h| h.buckets.len()).max().unwrap_or(0) {
        let cell = |h: &Histogram| match h.buckets.get(row) {
            Some((Some(most), n)) => format!("{most:<9} {n:<11}"),
            Some((None, n)) => format!("{:<9} {n:<11}", ">"),
            None => " ".repeat(WIDTH),
        };
        out.push_str(&line(histograms.iter().map(cell).collect()));
    }
    let _ = writeln!(out, "{}", "-".repeat((WIDTH + 2) * histograms.len()));
    out.push_str(&titles());
    out.push_str(&line(histograms.iter().map(|h| format!("{:<WIDTH$.*}", h.digits, h.mean)).collect()));
}
