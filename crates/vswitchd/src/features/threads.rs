//! What the database says of packet threads and receive queues: the keys of other_config that begin with `pmd-`
//! (ovs-vswitchd.conf.db(5); `pmd-sleep-max` as of Open vSwitch 3.3).

use crate::cores::Cores;
use crate::reader::Config;
use dpif::{Algorithm, Balance, Policy, ThreadConfig};
use std::collections::BTreeMap;
use std::sync::Once;

/// Microseconds that a thread sleeps at most.
const SLEEP_US_MAX: u64 = 10_000;

/// Reads Open_vSwitch:other_config, and calls `warn` for values that cannot be used.
pub fn read(config: Config<'_>, cores: &dyn Fn() -> Cores, warn: &dyn Fn(String)) -> ThreadConfig {
    let text = |key: &str| config.get(key);
    let wrong = |key: &str, text: &str, expected: &str| {
        warn(format!("switch: other_config:{key} is \"{text}\", which is not {expected}"));
    };
    let flag = |key: &str, default: bool| match text(key) {
        None => default,
        Some(text) => text.parse().unwrap_or_else(|_| {
            wrong(key, text, "true or false");
            default
        }),
    };
    let number = |key: &str, max: u64, default: u64| {
        let Some(text) = text(key) else { return default };
        text.parse().ok().filter(|n| *n <= max).unwrap_or_else(|| {
            wrong(key, text, &format!("a number up to {max}"));
            default
        })
    };
    let cores = cores();
    let mut threads = ThreadConfig { dummy_cores: cores.are_dummies(), ..ThreadConfig::default() };
    if text("pmd-cpu-mask").is_none() && cores.are_dummies() {
        threads.cpus = cores.first_of_each_node();
    }
    if let Some(mask) = text("pmd-cpu-mask") {
        match parse_mask(mask) {
            None => wrong("pmd-cpu-mask", mask, "a hexadecimal number"),
            Some(wanted) => {
                for core in wanted {
                    match cores.core(core) {
                        Some(cpu) => _ = threads.cpus.insert(cpu),
                        None => warn(format!(
                            "switch: other_config:pmd-cpu-mask has core {core}, which this machine has not, or not online"
                        )),
                    }
                }
                if threads.cpus.is_empty() {
                    warn(
                        "switch: other_config:pmd-cpu-mask has no core of this machine: packet threads run anywhere"
                            .to_owned(),
                    );
                }
            }
        }
    }
    let algorithm = match text("pmd-rxq-assign") {
        None | Some("cycles") => Algorithm::Cycles,
        Some("roundrobin") => Algorithm::RoundRobin,
        Some("group") => Algorithm::Group,
        Some(_) => {
            tracing::warn!(
                target: "dpif_netdev",
                "Unsupported rx queue to PMD assignment mode in pmd-rxq-assign. Defaulting to 'cycles'."
            );
            Algorithm::Cycles
        }
    };
    threads.policy = Policy { algorithm, isolate: flag("pmd-rxq-isolate", true) };
    let default = Balance::default();
    threads.balance = Balance {
        is_on: flag("pmd-auto-lb", false),
        // 0 stands for the default one.
        interval_mins: match number("pmd-auto-lb-rebal-interval", 20_000, 0) {
            0 => default.interval_mins,
            mins => mins,
        },
        load_percent: number("pmd-auto-lb-load-threshold", 100, default.load_percent),
        improvement_percent: number("pmd-auto-lb-improvement-threshold", 100, default.improvement_percent),
    };
    // What it was called in Open vSwitch 3.1 stands where the name of today does not.
    if text("pmd-maxsleep").is_some() {
        static DEPRECATED: Once = Once::new();
        DEPRECATED.call_once(|| {
            tracing::warn!(
                target: "dpif_netdev",
                "pmd-maxsleep is deprecated. Please use pmd-sleep-max instead."
            );
        });
    }
    let sleep = ["pmd-sleep-max", "pmd-maxsleep"].into_iter().find_map(|key| Some((key, text(key)?)));
    if let Some((key, list)) = sleep {
        match parse_sleep(list) {
            Some((all, of)) => (threads.sleep_us_max, threads.sleep_us_max_of) = (all, of),
            None => wrong(key, list, "microseconds, or a list with core:microseconds in it"),
        }
    }
    threads
}

/// The cores of a mask in hexadecimal, with or without `0x`.
fn parse_mask(text: &str) -> Option<Vec<usize>> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    if digits.is_empty() || digits.len() > 256 {
        return None;
    }
    let mut cores = Vec::new();
    for (place, digit) in digits.chars().rev().enumerate() {
        let bits = digit.to_digit(16)?;
        cores.extend((0..4).filter(|bit| bits >> bit & 1 != 0).map(|bit| place * 4 + bit));
    }
    Some(cores)
}

/// The microseconds of `us,core:us,...`, of which no part must be there: those of all, and those of cores.
fn parse_sleep(text: &str) -> Option<(u64, BTreeMap<usize, u64>)> {
    let us = |text: &str| text.trim().parse::<u64>().ok().map(|us| us.min(SLEEP_US_MAX));
    let (mut all, mut of) = (0, BTreeMap::new());
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        match part.split_once(':') {
            None => all = us(part)?,
            Some((core, part)) => _ = of.insert(core.trim().parse().ok()?, us(part)?),
        }
    }
    Some((all, of))
}

/// The cores of queues in Interface:other_config:pmd-rxq-affinity, as `0:3,1:2`: queue and core.
pub fn parse_affinity(text: &str) -> Option<BTreeMap<usize, usize>> {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let pair = |part: &str| {
        let (queue, core) = part.split_once(':')?;
        Some((number(queue)?, number(core)?))
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_cores() {
        assert_eq!(parse_mask("0x2"), Some(vec![1]));
        assert_eq!(parse_mask("F0"), Some(vec![4, 5, 6, 7]));
        assert_eq!(parse_mask("0"), Some(vec![]));
        assert_eq!((parse_mask("0x"), parse_mask("xyz"), parse_mask("")), (None, None, None));
    }

    #[test]
    fn sleeps_of_cores() {
        assert_eq!(parse_sleep("50"), Some((50, BTreeMap::new())));
        assert_eq!(parse_sleep("50,3:0, 7:99999"), Some((50, [(3, 0), (7, SLEEP_US_MAX)].into())));
        assert_eq!(parse_sleep("3:5"), Some((0, [(3, 5)].into())));
        assert_eq!(parse_sleep(""), Some((0, BTreeMap::new())));
        assert_eq!((parse_sleep("x"), parse_sleep("3:"), parse_sleep("-1")), (None, None, None));
    }

    #[test]
    fn cores_of_queues() {
        assert_eq!(parse_affinity("0:3,1:2"), Some([(0, 3), (1, 2)].into()));
        assert_eq!(parse_affinity(""), Some(BTreeMap::new()));
        assert_eq!((parse_affinity("0"), parse_affinity("0:x"), parse_affinity("a:1,0:1")), (None, None, None));
    }
}
