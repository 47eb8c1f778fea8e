//! Packet threads: configuration, state and statistics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use crate::thread_stats::ThreadStats;

/// Length of an interval in seconds, by the clock of the caller of [`crate::Threads::tick`].
pub const INTERVAL_SECS: u64 = 5;

/// Number of intervals kept: a minute.
pub const INTERVALS: usize = 12;

/// A processor core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cpu {
    /// Its number in the system.
    pub core: usize,
    /// Its memory node (NUMA).
    pub numa: usize,
}

/// How queues that are not pinned are assigned (`other_config:pmd-rxq-assign`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// By decreasing load, alternating between both directions over the threads.
    RoundRobin,
    /// By decreasing load, over the threads forth and back.
    #[default]
    Cycles,
    /// By decreasing load, each to the least loaded thread.
    Group,
}

impl Algorithm {
    /// Its name in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "roundrobin",
            Self::Cycles => "cycles",
            Self::Group => "group",
        }
    }
}

/// How queues are assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// How queues that are not pinned are assigned.
    pub algorithm: Algorithm,
    /// Whether a pinned queue isolates its thread (`other_config:pmd-rxq-isolate`).
    pub isolate: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { algorithm: Algorithm::default(), isolate: true }
    }
}

/// When queues are reassigned automatically (`other_config:pmd-auto-lb` and its parameters).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Balance {
    /// Whether they are, if threads are pinned.
    pub is_on: bool,
    /// Minutes between two checks.
    pub interval_mins: u64,
    /// Minimum load of the busiest thread, in percent of its time.
    pub load_percent: u64,
    /// Minimum reduction of the variance of the threads' loads, in percent.
    pub improvement_percent: u64,
}

impl Default for Balance {
    fn default() -> Self {
        Self { is_on: false, interval_mins: 1, load_percent: 95, improvement_percent: 25 }
    }
}

/// Configuration of the packet threads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadConfig {
    /// Cores that get one thread each; empty for threads that run on any core.
    pub cpus: BTreeSet<Cpu>,
    /// The cores exist in name only (`--dummy-numa`): their threads run on any core.
    pub dummy_cores: bool,
    /// How queues are assigned to threads.
    pub policy: Policy,
    /// When queues are reassigned automatically.
    pub balance: Balance,
    /// Longest sleep of a pinned thread in microseconds, where packets do not wake it; 0 to poll without sleeping. Threads
    /// that run anywhere sleep whenever they are idle.
    pub sleep_us_max: u64,
    /// Overrides `sleep_us_max`, by core.
    pub sleep_us_max_of: BTreeMap<usize, u64>,
}

/// A packet thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadInfo {
    /// Unique among all threads the datapath ever had.
    pub id: u64,
    /// The core that it is pinned to; if there is none, its number among the threads.
    pub core_id: usize,
    /// The core's memory node.
    pub numa_id: usize,
    /// Whether it is pinned.
    pub is_pinned: bool,
    /// Whether the thread is isolated: queues that are pinned to it keep other queues away.
    pub is_isolated: bool,
    /// Longest sleep in microseconds where packets do not wake it; `None` for no limit.
    pub sleep_us_max: Option<u64>,
    /// Time since it started.
    pub age: Duration,
}

/// Recent statistics of a packet thread and its queues.
#[derive(Clone, Debug)]
pub struct Usage {
    /// The thread.
    pub thread: ThreadInfo,
    /// Nanoseconds that the figures cover: whole intervals of [`crate::INTERVAL_SECS`], 0 before the first one is over.
    pub elapsed_ns: u64,
    /// Nanoseconds of that time spent in rounds that moved packets.
    pub busy_ns: u64,
    /// Its queues.
    pub queues: Vec<QueueUsage>,
}

/// Recent cost of a receive queue.
#[derive(Clone, Debug)]
pub struct QueueUsage {
    /// Its port's device.
    pub port: String,
    /// Its index at the port.
    pub queue: usize,
    /// Whether it is polled: after a device error, a queue is disabled for a while.
    pub is_enabled: bool,
    /// Nanoseconds of the same time spent on its packets.
    pub busy_ns: u64,
}
