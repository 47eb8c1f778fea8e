//! What rows of the tables QoS and Queue ask for, and what is reported.

use crate::device::Options;
use std::collections::BTreeMap;
use std::time::Duration;

/// Queues of `linux-htb` and `linux-hfsc` have numbers below this: the kernel's classes have 16 bits, and some are taken.
pub const QUEUES_MAX: u32 = 0xf000;
/// The smallest guaranteed rate, in bytes per second.
const MIN_RATE: u64 = 1500;
/// The rate of a port whose link speed is unknown, in bytes per second.
const DEFAULT_RATE: u64 = 10_000_000_000 / 8;
/// Bytes of headers that a burst has room for beside an MTU.
const HEADERS: u64 = 64;

/// A row of QoS with the rows of its queues.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QosSpec {
    /// QoS:type.
    pub kind: String,
    /// QoS:other_config.
    pub config: Options,
    /// Queue:other_config by number.
    pub queues: BTreeMap<u32, Options>,
}

impl QosSpec {
    /// A number of other_config; `None` if it is missing or no number.
    pub fn number(&self, key: &str) -> Option<u64> {
        number(&self.config, key)
    }
}

/// A number in other_config of a row; `None` if it is missing or no number.
pub fn number(config: &Options, key: &str) -> Option<u64> {
    config.get(key)?.parse().ok()
}

/// QoS that is set up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QosReport {
    /// Its type.
    pub kind: String,
    /// Its settings in effect, in the order of commands.
    pub config: Vec<(&'static str, u64)>,
    /// Its queues by number.
    pub queues: BTreeMap<u32, QueueReport>,
}

/// A queue of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueReport {
    /// Its settings in effect, in the order of commands.
    pub config: Vec<(&'static str, u64)>,
    /// Its counters, if they are known.
    pub counters: Option<QueueCounters>,
    /// How long it has existed.
    pub age: Duration,
}

/// The counters of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounters {
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets dropped.
    pub tx_errors: u64,
}

/// Settings of `linux-htb` in effect: rates in bytes per second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HtbSettings {
    /// Maximum rate of all queues together.
    pub max_rate: u64,
    /// The queues by number, with queue 0 in any case.
    pub classes: BTreeMap<u32, HtbClass>,
}

/// Settings of a queue of `linux-htb` in effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HtbClass {
    /// Guaranteed rate, in bytes per second.
    pub min_rate: u64,
    /// Maximum rate, in bytes per second.
    pub max_rate: u64,
    /// Burst in bytes.
    pub burst: u64,
    /// Queues with smaller values go first.
    pub priority: u32,
}

impl HtbSettings {
    /// The settings of rows for a link of this speed in bits per second. Wrong or missing values become the defaults of
    /// ovs-vswitchd.conf.db(5); queue numbers from [`QUEUES_MAX`] are left out.
    pub fn new(spec: &QosSpec, speed_bps: Option<u64>, mtu: Option<u32>) -> Self {
        Self::with_floor(spec, speed_bps, mtu, MIN_RATE)
    }

    /// The same for `linux-hfsc`, whose guaranteed rates may be a byte per second, and which has neither bursts nor priorities.
    pub fn of_hfsc(spec: &QosSpec, speed_bps: Option<u64>) -> Self {
        Self::with_floor(spec, speed_bps, None, 1)
    }

    /// Settings whose guaranteed rates are at least `floor` bytes per second.
    fn with_floor(spec: &QosSpec, speed_bps: Option<u64>, mtu: Option<u32>, floor: u64) -> Self {
        let bytes = |bits: u64| Some(bits / 8).filter(|bytes| *bytes > 0);
        let speed = || speed_bps.and_then(bytes).unwrap_or(DEFAULT_RATE);
        let max_rate = spec.number("max-rate").and_then(bytes).unwrap_or_else(speed);
        let burst_min = u64::from(mtu.unwrap_or(1500)) + HEADERS;
        let class = |config: &Options| {
            let rate = |key| number(config, key).map(|bits| bits / 8);
            let min = rate("min-rate").unwrap_or(0).max(floor).min(max_rate);
            HtbClass {
                min_rate: min,
                max_rate: rate("max-rate").unwrap_or(max_rate).max(min).min(max_rate),
                burst: rate("burst").unwrap_or(0).max(burst_min),
                priority: number(config, "priority").and_then(|n| n.try_into().ok()).unwrap_or(0),
            }
        };
        let queues = spec.queues.iter().filter(|(id, _)| **id < QUEUES_MAX);
        let mut classes: BTreeMap<u32, HtbClass> = queues.map(|(id, config)| (*id, class(config))).collect();
        classes.entry(0).or_insert_with(|| class(&Options::new()));
        Self { max_rate, classes }
    }

    /// The settings of the port for a report.
    pub fn report(&self) -> Vec<(&'static str, u64)> {
        vec![("max-rate", self.max_rate.saturating_mul(8))]
    }
}

impl HtbClass {
    /// The settings of a queue for a report, in bits.
    pub fn report(&self) -> Vec<(&'static str, u64)> {
        let mut all = vec![("burst", self.burst.saturating_mul(8))];
        if self.priority > 0 {
            all.push(("priority", self.priority.into()));
        }
        all.push(("min-rate", self.min_rate.saturating_mul(8)));
        if self.max_rate != self.min_rate {
            all.push(("max-rate", self.max_rate.saturating_mul(8)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Options {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn htb_has_the_defaults_and_limits_of_open_vswitch() {
        let queues = [
            (1, options(&[("min-rate", "1000000"), ("burst", "1000")])),
            (2, options(&[("max-rate", "3000000"), ("priority", "5")])),
            (3, options(&[("min-rate", "200000000"), ("max-rate", "5")])),
            (4, options(&[("min-rate", "nonsense"), ("burst", "1000000")])),
            (70_000, options(&[])),
        ];
        let config = options(&[("max-rate", "100000000")]);
        let spec = QosSpec { kind: "linux-htb".into(), config, queues: queues.into() };
        let settings = HtbSettings::new(&spec, Some(10_000_000_000), Some(1500));
        assert_eq!(settings.report(), [("max-rate", 100_000_000)]);
        let report = |id| settings.classes[&id].report();
        let default = [("burst", 12_512), ("min-rate", 12_000), ("max-rate", 100_000_000)];
        assert_eq!(report(0), default);
        assert_eq!(report(1), [("burst", 12_512), ("min-rate", 1_000_000), ("max-rate", 100_000_000)]);
        let second = [("burst", 12_512), ("priority", 5), ("min-rate", 12_000), ("max-rate", 3_000_000)];
        assert_eq!(report(2), second);
        assert_eq!(report(3), [("burst", 12_512), ("min-rate", 100_000_000)]);
        assert_eq!(report(4), [("burst", 1_000_000), ("min-rate", 12_000), ("max-rate", 100_000_000)]);
        assert!(!settings.classes.contains_key(&70_000));
    }

    #[test]
    fn hfsc_guarantees_less() {
        let spec = QosSpec { queues: [(1, options(&[("min-rate", "4")]))].into(), ..QosSpec::default() };
        let settings = HtbSettings::of_hfsc(&spec, Some(80_000));
        assert_eq!(settings.classes.values().map(|class| class.min_rate).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(settings.classes.values().map(|class| class.max_rate).collect::<Vec<_>>(), [10_000, 10_000]);
    }

    #[test]
    fn the_rate_of_the_link_is_the_default() {
        let rate = |text: &str, speed| {
            let spec = QosSpec { config: options(&[("max-rate", text)]), ..QosSpec::default() };
            HtbSettings::new(&spec, speed, None).max_rate * 8
        };
        assert_eq!(rate("abc", Some(1_000_000)), 1_000_000);
        assert_eq!(rate("1", None), 10_000_000_000);
        assert_eq!(rate("50000000000", None), 50_000_000_000);
    }
}
