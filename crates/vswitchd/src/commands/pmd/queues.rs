//! `dpif-netdev/pmd-rxq-show`, `pmd-rxq-rebalance` and `pmd-sleep-show`: which packet thread asks which receive queues,
//! what they take of its time, and how long it sleeps.

use super::{Request, act, header, is_asked, named, ratio, show, shown};
use crate::devices::{Devices, Dp};
use dpif::{INTERVAL_SECS, INTERVALS, Usage};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

/// Seconds that are remembered.
pub(super) const SECONDS_MAX: usize = INTERVALS * INTERVAL_SECS as usize;

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    let usage = "[-pmd core] [-secs secs] [dp]";
    show(commands, devices, ("dpif-netdev/pmd-rxq-show", usage, 0..=5), move |d, args, format| {
        let request = Request::parse(args, &["-secs"]);
        Ok(match format {
            OutputFormat::Text => text(d, &request)?.into(),
            OutputFormat::Json => json(d, &request)?.into(),
        })
    });
    act(commands, devices, ("dpif-netdev/pmd-rxq-rebalance", "[dp]", 0..=1), |d, args| {
        named(d, args.first())?.dpif.rebalance();
        Ok("pmd rxq rebalance requested.\n".to_owned())
    });
    show(commands, devices, ("dpif-netdev/pmd-sleep-show", "[dp]", 0..=1), |d, args, format| {
        let request = Request::parse(args, &[]);
        Ok(match format {
            OutputFormat::Text => sleep_text(d, &request)?.into(),
            OutputFormat::Json => sleep_json(d, &request)?.into(),
        })
    });
}

/// Whole intervals for so many seconds, one at least.
fn intervals(request: &Request<'_>) -> usize {
    request.seconds.min(SECONDS_MAX).div_ceil(INTERVAL_SECS as usize).max(1)
}

/// The threads that are asked for, their queues sorted by the names of ports.
fn usages(dp: &Dp, request: &Request<'_>, intervals: usize) -> Vec<Usage> {
    let mut usages = dp.dpif.usage(intervals);
    usages.retain(|usage| is_asked(request, &usage.thread));
    for usage in &mut usages {
        usage.queues.sort_by(|a, b| (&a.port, a.queue).cmp(&(&b.port, b.queue)));
    }
    usages
}

/// What a thread's queues, and its time beside them, took of its time; nothing before that is known.
fn percentages(usage: &Usage) -> (Vec<Option<f64>>, Option<f64>) {
    let percent = |ns: u64| (usage.elapsed_ns > 0).then(|| (ratio(ns, usage.elapsed_ns) * 100.0).min(100.0));
    let of_queues: u64 = usage.queues.iter().map(|queue| queue.busy_ns).sum();
    let queues = usage.queues.iter().map(|queue| percent(queue.busy_ns)).collect();
    (queues, percent(usage.busy_ns.saturating_sub(of_queues)))
}

/// In Open vSwitch's layout.
fn text(devices: &Devices, request: &Request<'_>) -> Result<String, String> {
    let dp = shown(devices, request.dp)?;
    let intervals = intervals(request);
    let percent = |percent: Option<f64>| match percent {
        Some(percent) => format!("{:2} %", percent as u64),
        None => "NOT AVAIL".to_owned(),
    };
    let mut out = String::new();
    for usage in &usages(&dp, request, intervals) {
        let (queues, overhead) = percentages(usage);
        let _ = writeln!(out, "{}\n  isolated : {}", header(&usage.thread), usage.thread.is_isolated);
        for (queue, share) in usage.queues.iter().zip(queues) {
            let enabled = if queue.is_enabled { "(enabled) " } else { "(disabled)" };
            let (name, index) = (&queue.port, queue.queue);
            let _ = writeln!(out, "  port: {name:16}  queue-id: {index:2} {enabled}  pmd usage: {}", percent(share));
        }
        if !usage.queues.is_empty() {
            let _ = writeln!(out, "  overhead: {}", percent(overhead));
        }
    }
    if out.is_empty() && request.core.is_some() {
        return Ok(out);
    }
    Ok(format!("Displaying last {} seconds pmd usage %\n{out}", intervals * INTERVAL_SECS as usize))
}

fn json(devices: &Devices, request: &Request<'_>) -> Result<Value, String> {
    let intervals = intervals(request);
    let mut threads = Vec::new();
    let dp = shown(devices, request.dp)?;
    for usage in &usages(&dp, request, intervals) {
        let (shares, overhead) = percentages(usage);
        let queue = |(queue, share): (&dpif::QueueUsage, Option<f64>)| {
            json!({
                "port": queue.port,
                "queue_id": queue.queue,
                "enabled": queue.is_enabled,
                "usage_percent": share,
            })
        };
        threads.push(json!({
            "datapath": dp.full_name(),
            "numa_id": usage.thread.numa_id,
            "core_id": usage.thread.core_id,
            "pinned": usage.thread.is_pinned,
            "isolated": usage.thread.is_isolated,
            "seconds": intervals * INTERVAL_SECS as usize,
            "queues": usage.queues.iter().zip(shares).map(queue).collect::<Value>(),
            "overhead_percent": overhead,
        }));
    }
    Ok(threads.into())
}

/// In the layout of Open vSwitch 3.3. A thread that is not pinned sleeps until something comes.
fn sleep_text(devices: &Devices, request: &Request<'_>) -> Result<String, String> {
    let dp = shown(devices, request.dp)?;
    let mut out = String::new();
    let _ = writeln!(out, "Default max sleep: {:4} us", dp.dpif.thread_config().sleep_us_max);
    for (thread, _) in dp.dpif.threads() {
        let _ = match thread.sleep_us_max {
            Some(us) => writeln!(out, "{}\n  max sleep: {us:4} us", header(&thread)),
            None => writeln!(out, "{}\n  max sleep: none (not pinned)", header(&thread)),
        };
    }
    Ok(out)
}

fn sleep_json(devices: &Devices, request: &Request<'_>) -> Result<Value, String> {
    let dp = shown(devices, request.dp)?;
    let all = [{
        let thread = |(thread, _): (dpif::ThreadInfo, dpif::ThreadStats)| {
            json!({
                "numa_id": thread.numa_id,
                "core_id": thread.core_id,
                "pinned": thread.is_pinned,
                "max_sleep_us": thread.sleep_us_max,
            })
        };
        json!({
            "datapath": dp.full_name(),
            "default_max_sleep_us": dp.dpif.thread_config().sleep_us_max,
            "threads": dp.dpif.threads().into_iter().map(thread).collect::<Value>(),
        })
    }];
    Ok(all.into_iter().collect())
}
