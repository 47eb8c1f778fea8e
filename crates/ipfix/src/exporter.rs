//! An exporter: it aggregates observed packets into flows, and exports flows as messages when they end.
//!
//! Flows are kept in order of their start and end in that order: the oldest when its active timeout expires, or when
//! the cache is full. Without a cache, each packet is a flow. A message has one record.

use crate::Micros;
use crate::observation::{Cast, Direction, Observation, write_text};
use crate::template::{self, L3, L4, Shape};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Interval in seconds after which templates and the exporter's own statistics are sent again, unless configured otherwise.
/// (RFC 7011 section 8.1: templates are repeated, as UDP may lose them.)
pub const INTERVAL_SECS: u32 = 600;
/// Upper limit on the observation domains of which an exporter remembers when it sent them templates. Flows may take the domain
/// from their packets.
const DOMAINS_MAX: usize = 1024;
/// Upper limit on the flows in a cache, whatever the configuration.
pub const FLOWS_MAX: u32 = 1 << 18;
/// A message that is longer gets no further template; the longest template still fits into a packet.
const TEMPLATES_BYTES: usize = 1024;
const VERSION: u16 = 10;
const HEADER: usize = 16;
const SET_HEADER: usize = 4;

/// The configuration of an exporter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Its number, unique in the process.
    pub id: u32,
    /// The observation domain of its own statistics.
    pub domain: u32,
    /// Interval in seconds after which templates are sent again to a domain.
    pub template_secs: u32,
    /// Interval in seconds after which its own statistics are sent again.
    pub stats_secs: u32,
    /// Maximum time in seconds that a flow is cached; 0 for no cache.
    pub active_timeout_secs: u32,
    /// Maximum number of flows in the cache; 0 for no cache, limited to [`FLOWS_MAX`].
    pub flows_max: u32,
    /// The enterprise's name of the observation point, up to 254 bytes.
    pub virtual_obs_id: Option<Vec<u8>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            id: 0,
            domain: 0,
            template_secs: INTERVAL_SECS,
            stats_secs: INTERVAL_SECS,
            active_timeout_secs: 0,
            flows_max: 0,
            virtual_obs_id: None,
        }
    }
}

/// Statistics of an exporter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Flows that there were.
    pub flows: u64,
    /// Flows that there are.
    pub current_flows: u64,
    /// Sampled packets.
    pub packets: u64,
    /// IPv4 packets with a known transport protocol.
    pub ipv4: u64,
    /// IPv6 packets with a known transport protocol.
    pub ipv6: u64,
    /// IP packets with other transport protocols.
    pub errors: u64,
    /// Of these IPv4.
    pub ipv4_errors: u64,
    /// Of these IPv6.
    pub ipv6_errors: u64,
    /// Messages sent to collectors.
    pub sent: u64,
    /// Messages that could not be sent, or had no collector.
    pub send_errors: u64,
}

/// The reason why a flow ended (IANA: flowEndReason).
#[derive(Clone, Copy)]
enum End {
    ActiveTimeout = 2,
    Forced = 4,
    LackOfResources = 5,
}

/// Counters of all packets.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    dropped: u64,
    packets: u64,
    /// Ingress unicast, multicast, broadcast; egress unicast, broadcast.
    casts: [u64; 5],
    groups_sent: u64,
    frame_bytes: u64,
    dropped_bytes: u64,
    ip_bytes: u64,
    ip_squares: u128,
    groups_bytes: u64,
    /// ACK, FIN, PSH, RST, SYN, URG.
    tcp: [u64; 6],
}

/// The bits of TCP flags in the order of [`Totals::tcp`].
const TCP_FLAGS: [u8; 6] = [0x10, 0x01, 0x08, 0x04, 0x02, 0x20];

/// Counters of the packets of one flow.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    dropped: u64,
    packets: u64,
    groups_sent: u64,
    frame_bytes: u64,
    dropped_bytes: u64,
    ip_bytes: u64,
    ip_squares: u128,
    ip_least: u64,
    ip_most: u64,
    groups_bytes: u64,
}

/// The key of a flow.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Key {
    domain: u32,
    shape: Shape,
    /// As in the record.
    bytes: Vec<u8>,
}

/// A flow.
#[derive(Debug)]
struct Flow {
    start: Micros,
    end: Micros,
    counts: Counts,
    /// The totals when the flow's last packet was observed.
    totals: Totals,
}

/// An exporter. It appends messages to the caller's lists; the caller sends them and reports the result.
#[derive(Debug)]
pub struct Exporter {
    config: Config,
    flows: HashMap<Arc<Key>, Flow>,
    /// The keys of all flows, by start.
    order: VecDeque<Arc<Key>>,
    totals: Totals,
    stats: Stats,
    /// Number of data records sent, plus one.
    sequence: u32,
    /// Time at which templates were last sent, by observation domain.
    templates_sent: HashMap<u32, Micros>,
    /// Time at which its own statistics were last sent.
    stats_sent: Option<Micros>,
}

impl Exporter {
    /// A new exporter without any flows.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            flows: HashMap::new(),
            order: VecDeque::new(),
            totals: Totals::default(),
            stats: Stats::default(),
            sequence: 1,
            templates_sent: HashMap::new(),
            stats_sent: None,
        }
    }

    /// The statistics so far.
    pub fn stats(&self) -> Stats {
        Stats { current_flows: self.order.len() as u64, ..self.stats }
    }

    /// Records the result of sending a message: the number of collectors that it was sent to, and of failures.
    pub fn note_sent(&mut self, sent: u64, failed: u64) {
        self.stats.sent += sent;
        self.stats.send_errors += failed;
    }

    /// The time at which [`Exporter::run`] is due.
    pub fn deadline(&self) -> Option<Micros> {
        let first = self.order.front()?;
        self.flows.get(first).map(|flow| flow.start.after(self.timeout()))
    }

    /// Exports the flows whose active timeout has expired.
    pub fn run(&mut self, now: Micros, out: &mut Vec<Vec<u8>>) {
        while self.deadline().is_some_and(|deadline| deadline <= now) {
            self.end_oldest(now, End::ActiveTimeout, out);
        }
    }

    /// Exports all flows, before the exporter is removed.
    pub fn flush(&mut self, now: Micros, out: &mut Vec<Vec<u8>>) {
        while !self.order.is_empty() {
            self.end_oldest(now, End::Forced, out);
        }
    }

    /// Adds a sampled packet.
    pub fn observe(&mut self, packet: Observation, out: &mut Vec<Vec<u8>>) {
        self.count(&packet);
        let (now, room) = (packet.at, self.config.flows_max.min(FLOWS_MAX) as usize);
        let counts = Counts::of(&packet);
        let key = Key { domain: packet.domain, shape: packet.shape, bytes: self.with_obs_id(packet.key) };
        let flow = Flow { start: now, end: now, counts, totals: self.totals };
        if room == 0 || self.config.active_timeout_secs == 0 {
            self.stats.flows += 1;
            return self.export(&key, &flow, now, End::ActiveTimeout, out);
        }
        if let Some(known) = self.flows.get_mut(&key) {
            known.end = known.end.max(now);
            known.counts.add(&counts);
            known.totals = self.totals;
            return;
        }
        self.stats.flows += 1;
        while self.order.len() >= room {
            self.end_oldest(now, End::LackOfResources, out);
        }
        let key = Arc::new(key);
        self.order.push_back(Arc::clone(&key));
        self.flows.insert(key, flow);
    }

    fn timeout(&self) -> u64 {
        u64::from(self.config.active_timeout_secs) * Micros::SECOND
    }

    fn with_obs_id(&self, mut key: Vec<u8>) -> Vec<u8> {
        if let Some(id) = &self.config.virtual_obs_id {
            write_text(id, &mut key);
        }
        key
    }

    /// Adds a packet to the totals.
    fn count(&mut self, packet: &Observation) {
        let (stats, known) = (&mut self.stats, packet.shape.l4 != L4::Other);
        stats.packets += 1;
        match packet.shape.l3 {
            L3::Other => {}
            L3::Ipv4 if known => stats.ipv4 += 1,
            L3::Ipv6 if known => stats.ipv6 += 1,
            L3::Ipv4 => {
                stats.errors += 1;
                stats.ipv4_errors += 1;
            }
            L3::Ipv6 => {
                stats.errors += 1;
                stats.ipv6_errors += 1;
            }
        }
        let (one, totals) = (Counts::of(packet), &mut self.totals);
        totals.packets += 1;
        totals.dropped += one.dropped;
        let cast = match (packet.direction, packet.cast) {
            (Direction::Ingress, Cast::One) => Some(0),
            (Direction::Ingress, Cast::Group) => Some(1),
            (Direction::Ingress, Cast::All) => Some(2),
            (Direction::Egress, Cast::One) => Some(3),
            (Direction::Egress, Cast::All) => Some(4),
            (Direction::Egress, Cast::Group) => None,
        };
        if let Some(cast) = cast {
            totals.casts[cast] += 1;
        }
        totals.groups_sent += one.groups_sent;
        totals.frame_bytes += one.frame_bytes;
        totals.dropped_bytes += one.dropped_bytes;
        totals.ip_bytes += one.ip_bytes;
        totals.ip_squares += one.ip_squares;
        totals.groups_bytes += one.groups_bytes;
        for (count, flag) in totals.tcp.iter_mut().zip(TCP_FLAGS) {
            *count += u64::from(packet.tcp_flags & flag != 0);
        }
    }

    fn end_oldest(&mut self, now: Micros, why: End, out: &mut Vec<Vec<u8>>) {
        if let Some(key) = self.order.pop_front()
            && let Some(flow) = self.flows.remove(&key)
        {
            self.export(&key, &flow, now, why, out);
        }
    }

    /// Exports a flow; before it, the exporter's own statistics and templates if they are due.
    fn export(&mut self, key: &Key, flow: &Flow, now: Micros, why: End, out: &mut Vec<Vec<u8>>) {
        // Rounded up, so that no flow ends after its message's time.
        let secs = now.0.max(flow.end.0).div_ceil(Micros::SECOND);
        if is_due(self.stats_sent, self.config.stats_secs, now) {
            self.stats_sent = Some(now);
            self.export_stats(secs, out);
        }
        if is_due(self.templates_sent.get(&key.domain).copied(), self.config.template_secs, now) {
            self.note_templates(key.domain, now);
            self.export_templates(secs, key.domain, out);
        }
        let mut message = self.message(secs, key.domain, key.shape.id());
        message.extend(&key.bytes);
        flow.write(key.shape, secs, why, &mut message);
        out.push(finished(message));
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Records that templates are sent to a domain.
    fn note_templates(&mut self, domain: u32, now: Micros) {
        if self.templates_sent.len() >= DOMAINS_MAX && !self.templates_sent.contains_key(&domain) {
            let interval = self.config.template_secs;
            self.templates_sent.retain(|_, sent| !is_due(Some(*sent), interval, now));
            if self.templates_sent.len() >= DOMAINS_MAX {
                // The domains receive templates earlier than necessary.
                self.templates_sent.clear();
            }
        }
        self.templates_sent.insert(domain, now);
    }

    fn export_stats(&mut self, secs: u64, out: &mut Vec<Vec<u8>>) {
        let mut own = self.message(secs, self.config.domain, template::EXPORTER_STATS);
        own.extend(self.config.id.to_be_bytes());
        own.extend(self.stats.send_errors.to_be_bytes());
        out.push(finished(own));
        self.sequence = self.sequence.wrapping_add(1);
    }

    fn export_templates(&mut self, secs: u64, domain: u32, out: &mut Vec<Vec<u8>>) {
        let mut message = self.message(secs, domain, template::SET_TEMPLATES);
        for shape in Shape::all() {
            if message.len() > TEMPLATES_BYTES {
                out.push(finished(message));
                message = self.message(secs, domain, template::SET_TEMPLATES);
            }
            message.extend(shape.record(self.config.virtual_obs_id.is_some()));
        }
        out.push(finished(message));
        let mut options = self.message(secs, self.config.domain, template::SET_OPTIONS);
        options.extend(template::options_record());
        out.push(finished(options));
    }

    /// A message (RFC 7011 section 3.1) with the header of a set, both without their lengths.
    fn message(&self, secs: u64, domain: u32, set: u16) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        out.extend(VERSION.to_be_bytes());
        out.extend([0; 2]);
        out.extend((secs as u32).to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        out.extend(domain.to_be_bytes());
        out.extend(set.to_be_bytes());
        out.extend([0; 2]);
        out
    }
}

/// Returns true if something that was sent at this time is to be sent again. (The clock may be set back.)
fn is_due(sent: Option<Micros>, interval_secs: u32, now: Micros) -> bool {
    sent.is_none_or(|sent| now.0 >= sent.after(u64::from(interval_secs) * Micros::SECOND).0 || now < sent)
}

/// Writes the lengths of a message and of its only set.
fn finished(mut message: Vec<u8>) -> Vec<u8> {
    let len = message.len();
    debug_assert!((HEADER + SET_HEADER..=usize::from(u16::MAX)).contains(&len), "{len}");
    message[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    message[HEADER + 2..HEADER + SET_HEADER].copy_from_slice(&((len - HEADER) as u16).to_be_bytes());
    message
}

impl Counts {
    fn of(packet: &Observation) -> Self {
        let bytes = packet.ip_bytes;
        let group = packet.direction == Direction::Egress && packet.cast == Cast::Group;
        let (dropped, group) = (u64::from(packet.dropped), u64::from(group));
        Self {
            dropped,
            packets: 1,
            groups_sent: group,
            frame_bytes: packet.frame_bytes,
            dropped_bytes: dropped * bytes,
            ip_bytes: bytes,
            ip_squares: u128::from(bytes) * u128::from(bytes),
            ip_least: bytes,
            ip_most: bytes,
            groups_bytes: group * bytes,
        }
    }

    fn add(&mut self, more: &Self) {
        self.dropped += more.dropped;
        self.packets += more.packets;
        self.groups_sent += more.groups_sent;
        self.frame_bytes += more.frame_bytes;
        self.dropped_bytes += more.dropped_bytes;
        self.ip_bytes += more.ip_bytes;
        self.ip_squares += more.ip_squares;
        self.ip_least = self.ip_least.min(more.ip_least);
        self.ip_most = self.ip_most.max(more.ip_most);
        self.groups_bytes += more.groups_bytes;
    }
}

impl Flow {
    /// Writes times and counters in the order of the template of `shape`.
    fn write(&self, shape: Shape, secs: u64, why: End, out: &mut Vec<u8>) {
        let (counts, totals) = (&self.counts, &self.totals);
        let before = |moment: Micros| {
            let micros = secs.saturating_mul(Micros::SECOND).saturating_sub(moment.0);
            u32::try_from(micros).unwrap_or(u32::MAX).to_be_bytes()
        };
        out.extend(before(self.start));
        out.extend(before(self.end));
        let mut put = |n: u64| out.extend(n.to_be_bytes());
        [counts.dropped, totals.dropped, counts.packets, totals.packets].into_iter().for_each(&mut put);
        totals.casts.into_iter().for_each(&mut put);
        [counts.groups_sent, totals.groups_sent, counts.frame_bytes, totals.frame_bytes].into_iter().for_each(&mut put);
        out.push(why as u8);
        let mut put = |n: u64| out.extend(n.to_be_bytes());
        if shape.l3 != L3::Other {
            put(counts.dropped_bytes);
            put(totals.dropped_bytes);
            put(counts.ip_bytes);
            put(totals.ip_bytes);
            // The element has 64 bits, so the value wraps.
            put(counts.ip_squares as u64);
            put(totals.ip_squares as u64);
            put(counts.ip_least);
            put(counts.ip_most);
            put(counts.groups_bytes);
            put(totals.groups_bytes);
        }
        if shape.l4 == L4::Tcp {
            totals.tcp.into_iter().for_each(put);
        }
    }
}

#[cfg(test)]
mod tests;
