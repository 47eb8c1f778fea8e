//! An exporter: it adds up the traffic of flows, and exports it when a flow ends, or has lasted for the active timeout.
//!
//! Flows stand in a queue by the time when they were exported last, as all have the same timeout. A full cache exports
//! and removes the flow at its front.

use crate::record::{self, Flow, Interfaces, Output, Traffic};
use base::Millis;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Upper limit on the flows in a cache.
pub const FLOWS_MAX: usize = if cfg!(test) { 64 } else { 1 << 18 };
/// Maximum number of records in a packet.
pub const RECORDS_MAX: usize = 30;
/// Active timeout in seconds, by default.
pub const ACTIVE_TIMEOUT_SECS: u32 = 600;
const VERSION: u16 = 5;
const HEADER: usize = 24;

/// The configuration of an exporter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Type of the engine.
    pub engine_type: u8,
    /// Number of the engine.
    pub engine_id: u8,
    /// Seconds after which a flow that has not ended is exported; `None` for never.
    pub active_timeout_secs: Option<u32>,
    /// Puts the lower seven bits of the engine's id into the upper bits of interface numbers.
    pub add_id_to_interface: bool,
}

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// By the monotonic clock.
    pub at: Millis,
    /// Since the beginning of 1970, UTC.
    pub unix: Duration,
}

/// Counters of an exporter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Flows in the cache.
    pub flows: u64,
    /// Records so far.
    pub records: u64,
    /// Packets handed to the caller.
    pub packets: u64,
    /// Flows that left a full cache early.
    pub evicted: u64,
}

#[derive(Debug)]
struct Cached {
    output: Output,
    /// Traffic since the last export, if any.
    traffic: Option<Traffic>,
    /// Number of its place in the queue that counts; others are out of date.
    turn: u64,
}

/// An exporter. It appends packets to the caller's lists.
#[derive(Debug)]
pub struct Exporter {
    config: Config,
    started: Millis,
    flows: HashMap<Flow, Cached>,
    /// Flows by the time of their last export or their beginning, with the number of the turn.
    queue: VecDeque<(Millis, u64, Flow)>,
    last_turn: u64,
    /// Records of the next packet.
    pending: Vec<u8>,
    stats: Stats,
}

impl Exporter {
    /// An exporter that starts now, without flows.
    pub fn new(config: Config, now: Millis) -> Self {
        Self {
            config,
            started: now,
            flows: HashMap::new(),
            queue: VecDeque::new(),
            last_turn: 0,
            pending: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// Changes the configuration; flows stay.
    pub fn reconfigure(&mut self, config: Config) {
        self.config = config;
    }

    /// Counters so far.
    pub fn stats(&self) -> Stats {
        Stats { flows: self.flows.len() as u64, ..self.stats }
    }

    /// Adds traffic of a flow. If it leaves through another port than before, the earlier traffic is exported.
    pub fn count(&mut self, flow: Flow, output: Output, traffic: &Traffic, now: Now, out: &mut Vec<Vec<u8>>) {
        if traffic.packets == 0 {
            return;
        }
        match self.flows.entry(flow) {
            Entry::Occupied(mut known) => {
                let cached = known.get_mut();
                let before = (cached.output != output).then(|| cached.traffic.take()).flatten();
                let output_before = std::mem::replace(&mut cached.output, output);
                match &mut cached.traffic {
                    Some(known) => known.add(traffic),
                    none => *none = Some(*traffic),
                }
                if let Some(before) = before {
                    self.export(&flow, output_before, &before, now, out);
                }
            }
            Entry::Vacant(place) => {
                self.last_turn += 1;
                place.insert(Cached { output, traffic: Some(*traffic), turn: self.last_turn });
                self.queue.push_back((now.at, self.last_turn, flow));
                if self.flows.len() > FLOWS_MAX {
                    self.evict(now, out);
                }
            }
        }
    }

    /// Exports a flow that has ended, and removes it.
    pub fn end(&mut self, flow: &Flow, now: Now, out: &mut Vec<Vec<u8>>) {
        let Some(cached) = self.flows.remove(flow) else { return };
        if let Some(traffic) = cached.traffic {
            self.export(flow, cached.output, &traffic, now, out);
        }
        if self.queue.len() > 2 * self.flows.len() + RECORDS_MAX {
            let flows = &self.flows;
            self.queue.retain(|(_, turn, flow)| flows.get(flow).is_some_and(|cached| cached.turn == *turn));
        }
    }

    /// The time at which [`Exporter::run`] is due.
    pub fn deadline(&self) -> Option<Millis> {
        let timeout = self.timeout()?;
        self.queue.front().map(|(since, ..)| since.after(timeout))
    }

    /// Exports flows whose active timeout has expired, and removes those without traffic since their last export.
    pub fn run(&mut self, now: Now, out: &mut Vec<Vec<u8>>) {
        while self.deadline().is_some_and(|deadline| deadline <= now.at) {
            let Some((_, turn, flow)) = self.queue.pop_front() else { return };
            let Entry::Occupied(mut known) = self.flows.entry(flow) else { continue };
            let cached = known.get_mut();
            if cached.turn != turn {
                continue;
            }
            let Some(traffic) = cached.traffic.take() else {
                known.remove();
                continue;
            };
            self.last_turn += 1;
            cached.turn = self.last_turn;
            let output = cached.output;
            self.queue.push_back((now.at, self.last_turn, flow));
            self.export(&flow, output, &traffic, now, out);
        }
    }

    /// Exports and removes all flows, before the exporter is removed.
    pub fn flush(&mut self, now: Now, out: &mut Vec<Vec<u8>>) {
        while let Some(flow) = self.pop() {
            self.end(&flow, now, out);
        }
        self.send(now, out);
    }

    /// Sends the records that wait for more of them. The caller calls this after a few of the other calls.
    pub fn send(&mut self, now: Now, out: &mut Vec<Vec<u8>>) {
        let records = self.pending.len() / record::BYTES;
        if records == 0 {
            return;
        }
        let mut packet = Vec::with_capacity(HEADER + self.pending.len());
        packet.extend(VERSION.to_be_bytes());
        packet.extend((records as u16).to_be_bytes());
        packet.extend((now.at.since(self.started) as u32).to_be_bytes());
        packet.extend((now.unix.as_secs() as u32).to_be_bytes());
        packet.extend(now.unix.subsec_nanos().to_be_bytes());
        // The number of records before those of this packet.
        packet.extend(((self.stats.records - records as u64) as u32).to_be_bytes());
        packet.extend([self.config.engine_type, self.config.engine_id]);
        // No sampling.
        packet.extend([0; 2]);
        packet.append(&mut self.pending);
        self.stats.packets += 1;
        out.push(packet);
    }

    fn timeout(&self) -> Option<u64> {
        self.config.active_timeout_secs.map(|secs| u64::from(secs) * 1000)
    }

    /// Exports and removes the flow at the front of the queue.
    fn evict(&mut self, now: Now, out: &mut Vec<Vec<u8>>) {
        if let Some(flow) = self.pop() {
            self.stats.evicted += 1;
            self.end(&flow, now, out);
        }
    }

    /// Takes the first flow from the queue that is in the cache.
    fn pop(&mut self) -> Option<Flow> {
        loop {
            let (_, turn, flow) = self.queue.pop_front()?;
            if self.flows.get(&flow).is_some_and(|cached| cached.turn == turn) {
                return Some(flow);
            }
        }
    }

    fn export(&mut self, flow: &Flow, output: Output, traffic: &Traffic, now: Now, out: &mut Vec<Vec<u8>>) {
        let engine = Interfaces::Engine(self.config.engine_id);
        let interfaces = if self.config.add_id_to_interface { engine } else { Interfaces::Ports };
        for counters in traffic.parts() {
            record::write(flow, output, traffic, counters, (interfaces, self.started), &mut self.pending);
            self.stats.records += 1;
            if self.pending.len() >= RECORDS_MAX * record::BYTES {
                self.send(now, out);
            }
        }
    }
}

#[cfg(test)]
mod tests;
