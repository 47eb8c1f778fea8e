//! The agent: it numbers samples, says which counters are due, and fills datagrams.
//!
//! A datagram leaves when it is full, or at the end of the second in which its first sample came. The counter sources
//! are spread over the seconds of the polling interval, so that a switch with many ports sends no burst.

use crate::counters::Counter;
use crate::flow_sample::FlowSample;
use crate::xdr::Writer;
use crate::{Output, Source};
use base::Millis;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Maximum size of a datagram in bytes: it fits into an Ethernet frame.
pub const DATAGRAM_MAX: usize = 1400;
/// Maximum number of bytes of a packet in a sample: a sample with all records fits into a datagram.
pub const HEADER_MAX: u32 = 1024;
/// Packets of which one is sampled, by default.
pub const SAMPLING: u32 = 400;
/// Bytes of a packet in a sample, by default.
pub const HEADER: u32 = 128;
/// Interval of counter samples in seconds, by default.
pub const POLLING_SECS: u32 = 30;
/// Milliseconds after which a datagram leaves, and unit of the polling interval.
const SECOND: u64 = 1000;
/// The number of the bridge's own source: this, plus the sub-agent.
const BRIDGE_SOURCE: u32 = 1000;
const VERSION: u32 = 5;
/// Formats of samples (enterprise 0).
const FLOW_SAMPLE: u32 = 1;
const COUNTER_SAMPLE: u32 = 2;

/// The configuration of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Address of the agent in datagrams.
    pub address: IpAddr,
    /// Number of the sub-agent, unique among those with this address.
    pub sub_agent: u32,
    /// One packet of so many is sampled.
    pub sampling: u32,
    /// Bytes of a packet in a sample, limited to [`HEADER_MAX`].
    pub header_bytes: u32,
    /// Interval of counter samples in seconds, 0 for none.
    pub polling_secs: u32,
}

/// A source of counter samples.
#[derive(Clone, Copy, Debug)]
struct Polled {
    /// Number of its samples.
    sequence: u32,
    due: Millis,
}

/// Counters of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Flow samples.
    pub flow_samples: u64,
    /// Counter samples.
    pub counter_samples: u64,
    /// Sampled packets that were lost before they reached the agent.
    pub lost: u64,
    /// Datagrams handed to the caller.
    pub datagrams: u64,
}

/// An agent. It appends datagrams to the caller's lists.
#[derive(Debug)]
pub struct Agent {
    config: Config,
    started: Millis,
    /// The samples of the next datagram, and their number.
    pending: Vec<u8>,
    n_pending: u32,
    /// The end of the second of the first pending sample.
    leaves: Millis,
    /// Number of the last datagram.
    sequence: u32,
    /// Number of the last flow sample.
    flow_sequence: u32,
    /// Packets that could have been sampled so far.
    pool: u32,
    sources: BTreeMap<Source, Polled>,
    /// Sources that there ever were: the next one is polled in another second.
    n_sources: u64,
    stats: Stats,
}

impl Agent {
    /// An agent that starts now. The bridge itself is its first counter source.
    pub fn new(config: Config, now: Millis) -> Self {
        Self {
            config,
            started: now,
            pending: Vec::new(),
            n_pending: 0,
            leaves: now,
            sequence: 0,
            flow_sequence: 0,
            pool: 0,
            sources: BTreeMap::new(),
            n_sources: 0,
            stats: Stats::default(),
        }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The source of flow samples, and of the counters of the bridge.
    pub fn own_source(&self) -> Source {
        Source::Bridge(BRIDGE_SOURCE.wrapping_add(self.config.sub_agent))
    }

    /// Sets the interfaces with counters to exactly these, beside the bridge itself. Known ones keep their turn.
    pub fn set_interfaces(&mut self, indices: &BTreeSet<u32>, now: Millis) {
        if self.config.polling_secs == 0 {
            return;
        }
        let own = self.own_source();
        self.sources.retain(|source, _| match source {
            Source::Interface(index) => indices.contains(index),
            Source::Bridge(_) => true,
        });
        for source in std::iter::once(own).chain(indices.iter().map(|index| Source::Interface(*index))) {
            if !self.sources.contains_key(&source) {
                let turn = self.n_sources % u64::from(self.config.polling_secs);
                self.n_sources += 1;
                self.sources.insert(source, Polled { sequence: 0, due: now.after((turn + 1) * SECOND) });
            }
        }
    }

    /// Returns the sources whose counters are due, which have their next turn after a polling interval. The caller
    /// passes their counters to [`Agent::add_counters`].
    pub fn due(&mut self, now: Millis) -> Vec<Source> {
        let interval = u64::from(self.config.polling_secs) * SECOND;
        let mut due = Vec::new();
        for (source, polled) in &mut self.sources {
            if polled.due <= now {
                // After a pause, it is polled once.
                let missed = now.since(polled.due) / interval.max(1);
                polled.due = polled.due.after((missed + 1) * interval);
                due.push(*source);
            }
        }
        due
    }

    /// Adds a sampled packet.
    pub fn add_flow(&mut self, sample: &FlowSample, now: Millis, out: &mut Vec<Vec<u8>>) {
        self.pool = self.pool.wrapping_add(self.config.sampling);
        self.flow_sequence = self.flow_sequence.wrapping_add(1);
        self.stats.flow_samples += 1;
        let mut body = Writer::default();
        body.record(FLOW_SAMPLE, |body| {
            body.word(self.flow_sequence);
            body.word(self.own_source().id());
            body.word(self.config.sampling);
            body.word(self.pool);
            body.word(self.stats.lost as u32);
            body.word(sample.input);
            body.word(sample.output.number());
            sample.write_records(self.config.header_bytes.min(HEADER_MAX) as usize, body);
        });
        self.append(body.bytes(), now, out);
    }

    /// Counts sampled packets that were lost before they reached the agent: their packets were in the pool.
    pub fn add_lost(&mut self, lost: u64) {
        self.stats.lost += lost;
        self.pool = self.pool.wrapping_add(self.config.sampling.wrapping_mul(lost as u32));
    }

    /// Adds the counters of a source. Sources that it does not know any more are left out.
    pub fn add_counters(&mut self, source: Source, records: &[Counter], now: Millis, out: &mut Vec<Vec<u8>>) {
        let Some(polled) = self.sources.get_mut(&source) else { return };
        polled.sequence = polled.sequence.wrapping_add(1);
        self.stats.counter_samples += 1;
        let mut body = Writer::default();
        body.record(COUNTER_SAMPLE, |body| {
            body.word(polled.sequence);
            body.word(source.id());
            body.word(records.len() as u32);
            records.iter().for_each(|record| record.write(body));
        });
        self.append(body.bytes(), now, out);
    }

    /// The time at which [`Agent::due`] or [`Agent::run`] has something to do.
    pub fn deadline(&self) -> Option<Millis> {
        let leaves = (self.n_pending > 0).then_some(self.leaves);
        self.sources.values().map(|polled| polled.due).chain(leaves).min()
    }

    /// Sends the datagram whose second is over.
    pub fn run(&mut self, now: Millis, out: &mut Vec<Vec<u8>>) {
        if self.n_pending > 0 && self.leaves <= now {
            self.flush(now, out);
        }
    }

    /// Sends the samples that are left, before the agent is removed.
    pub fn flush(&mut self, now: Millis, out: &mut Vec<Vec<u8>>) {
        if self.n_pending == 0 {
            return;
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.stats.datagrams += 1;
        let mut datagram = Writer::default();
        self.write_head(now, &mut datagram);
        let mut datagram = datagram.into_bytes();
        datagram.append(&mut self.pending);
        self.n_pending = 0;
        out.push(datagram);
    }

    fn write_head(&self, now: Millis, out: &mut Writer) {
        out.word(VERSION);
        out.address(self.config.address);
        out.word(self.config.sub_agent);
        out.word(self.sequence);
        out.word(now.since(self.started) as u32);
        out.word(self.n_pending);
    }

    /// Bytes of the head of a datagram.
    fn head_bytes(&self) -> usize {
        if self.config.address.is_ipv4() { 28 } else { 40 }
    }

    fn append(&mut self, sample: &[u8], now: Millis, out: &mut Vec<Vec<u8>>) {
        if self.head_bytes() + self.pending.len() + sample.len() > DATAGRAM_MAX {
            self.flush(now, out);
        }
        if self.n_pending == 0 {
            let second = now.since(self.started) / SECOND + 1;
            self.leaves = self.started.after(second * SECOND);
        }
        self.pending.extend(sample);
        self.n_pending += 1;
    }
}

impl Output {
    /// The output of a packet with so many outputs; `index` is that of the interface if it is the only one.
    pub fn of(outputs: u32, index: u32) -> Self {
        match outputs {
            0 => Self::Dropped,
            1 if index != 0 => Self::Interface(index),
            n => Self::Several(n),
        }
    }
}

#[cfg(test)]
mod tests;
