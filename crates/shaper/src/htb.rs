//! A hierarchical shaper of two levels, as `linux-htb` of ovs-vswitchd.conf.db(5): a root with a maximum rate, and classes
//! below it. A class has a guaranteed rate and may borrow up to its maximum rate what others leave.
//!
//! The shaper serves classes within their guaranteed rates first, and then classes that borrow. Of several such classes it
//! serves the one with the smallest priority value. Classes of the same priority take turns by deficit round robin, and
//! the length of a turn follows the guaranteed rate.
//!
//! Neither the root nor a class exceeds its maximum rate, except that the last packet may overdraw a bucket. The root's
//! rate also holds if the sum of the guaranteed rates exceeds it.

use crate::bucket::Bucket;
use std::collections::{BTreeMap, VecDeque};

/// Bytes that a class may send in one turn: a tenth of what its guaranteed rate allows in a second, within these bounds.
const QUANTUM_BYTES: std::ops::RangeInclusive<u64> = 1_000..=200_000;

/// The settings of a class. Rates are in bits per second, bursts in bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassConfig {
    /// Guaranteed rate.
    pub min_rate: u64,
    /// Maximum rate.
    pub max_rate: u64,
    /// The burst of both.
    pub burst: u64,
    /// Classes with smaller values go first.
    pub priority: u32,
}

/// The settings of a shaper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShaperConfig {
    /// Maximum rate of all classes together, in bits per second.
    pub max_rate: u64,
    /// Its burst, in bits.
    pub burst: u64,
    /// Packets that a class may queue.
    pub limit: usize,
    /// The classes by number. Packets of other classes belong to class 0, which should be there.
    pub classes: BTreeMap<u32, ClassConfig>,
}

/// The counters of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassStats {
    /// Packets that left.
    pub packets: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Packets that found the queue full, or no class.
    pub dropped: u64,
    /// Packets that wait.
    pub backlog: usize,
}

#[derive(Debug)]
struct Class<T> {
    priority: u32,
    min: Bucket,
    max: Bucket,
    quantum: u64,
    /// Bytes that remain of its turn.
    deficit: u64,
    queue: VecDeque<(u32, T)>,
    stats: ClassStats,
}

/// A shaper of packets of type `T`.
#[derive(Debug)]
pub struct Shaper<T> {
    limit: usize,
    root: Bucket,
    classes: BTreeMap<u32, Class<T>>,
    /// Classes with packets, in the order of their turns.
    waiting: VecDeque<u32>,
}

impl<T> Shaper<T> {
    /// A shaper without packets, with full buckets.
    pub fn new(config: &ShaperConfig, now_ns: u64) -> Self {
        let class = |(id, of): (&u32, &ClassConfig)| (*id, Class::new(of, now_ns));
        Self {
            limit: config.limit,
            root: Bucket::new(config.max_rate, config.burst, now_ns),
            classes: config.classes.iter().map(class).collect(),
            waiting: VecDeque::new(),
        }
    }

    /// Queues a packet of `len` bytes in a class. Returns it if its queue is full.
    pub fn push(&mut self, class: u32, len: u32, packet: T) -> Result<(), T> {
        let id = if self.classes.contains_key(&class) { class } else { 0 };
        let Some(of) = self.classes.get_mut(&id) else { return Err(packet) };
        if of.queue.len() >= self.limit {
            of.stats.dropped += 1;
            return Err(packet);
        }
        if of.queue.is_empty() {
            self.waiting.push_back(id);
            of.deficit = of.quantum;
        }
        of.queue.push_back((len, packet));
        Ok(())
    }

    /// Takes the next packet that may leave now, with its class.
    pub fn pop(&mut self, now_ns: u64) -> Option<(u32, T)> {
        self.root.refill(now_ns);
        if self.waiting.is_empty() || !self.root.is_positive() {
            return None;
        }
        loop {
            let (at, is_within) = self.best(now_ns)?;
            let id = self.waiting[at];
            let class = self.classes.get_mut(&id)?;
            let len = u64::from(class.queue.front()?.0);
            if class.deficit < len {
                class.deficit += class.quantum;
                self.waiting.remove(at);
                self.waiting.push_back(id);
                continue;
            }
            class.deficit -= len;
            let (_, packet) = class.queue.pop_front()?;
            class.stats.packets += 1;
            class.stats.bytes += len;
            let bits = len.saturating_mul(8);
            class.max.charge(bits);
            if is_within {
                class.min.charge(bits);
            }
            self.root.charge(bits);
            if class.queue.is_empty() {
                self.waiting.remove(at);
            }
            return Some((id, packet));
        }
    }

    /// The place in `waiting` of the class that sends next, and whether it is within its guaranteed rate.
    fn best(&mut self, now_ns: u64) -> Option<(usize, bool)> {
        let mut best: Option<((bool, u32), usize)> = None;
        for (at, id) in self.waiting.iter().enumerate() {
            let Some(class) = self.classes.get_mut(id) else { continue };
            class.min.refill(now_ns);
            class.max.refill(now_ns);
            if !class.max.is_positive() {
                continue;
            }
            let rank = (!class.min.is_positive(), class.priority);
            if best.is_none_or(|(best, _)| rank < best) {
                best = Some((rank, at));
            }
        }
        best.map(|((borrows, _), at)| (at, !borrows))
    }

    /// The earliest moment in nanoseconds at which [`Shaper::pop`] may have a packet; `None` if none waits, or none may ever
    /// leave.
    pub fn next_at(&self) -> Option<u64> {
        let root = self.root.positive_at();
        let ready = |id: &u32| self.classes.get(id)?.max.positive_at();
        let class = self.waiting.iter().filter_map(ready).min()?;
        Some(root?.max(class))
    }

    /// The classes with their counters, by number.
    pub fn stats(&self) -> impl Iterator<Item = (u32, ClassStats)> + '_ {
        self.classes.iter().map(|(id, class)| (*id, ClassStats { backlog: class.queue.len(), ..class.stats }))
    }

    /// Adds counters to those of a class, for one that continues that of another shaper.
    pub fn continue_stats(&mut self, class: u32, before: ClassStats) {
        if let Some(class) = self.classes.get_mut(&class) {
            class.stats.packets += before.packets;
            class.stats.bytes += before.bytes;
            class.stats.dropped += before.dropped;
        }
    }

    /// Removes all packets that wait, without counting them.
    pub fn drain(&mut self) -> impl Iterator<Item = (u32, T)> + '_ {
        self.waiting.clear();
        self.classes.iter_mut().flat_map(|(id, class)| class.queue.drain(..).map(move |(_, packet)| (*id, packet)))
    }
}

impl<T> Class<T> {
    fn new(config: &ClassConfig, now_ns: u64) -> Self {
        let quantum = (config.min_rate / 80).clamp(*QUANTUM_BYTES.start(), *QUANTUM_BYTES.end());
        Self {
            priority: config.priority,
            min: Bucket::new(config.min_rate, config.burst, now_ns),
            max: Bucket::new(config.max_rate.max(config.min_rate), config.burst, now_ns),
            quantum,
            deficit: quantum,
            queue: VecDeque::new(),
            stats: ClassStats::default(),
        }
    }
}

#[cfg(test)]
mod tests;
