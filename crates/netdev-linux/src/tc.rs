//! Queueing disciplines and classes over rtnetlink: messages `RTM_*QDISC` and `RTM_*TCLASS` (the structures of the kernel's
//! `linux/pkt_sched.h`).

use std::io;

use netdev::qos::spec::QUEUES_MAX;
use netdev::qos::{HtbClass, QueueCounters};

use crate::netlink::{NLM_F_ACK, Netlink, Request, attributes, text, word};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTCLASS: u16 = 40;
const RTM_DELTCLASS: u16 = 41;
const RTM_GETTCLASS: u16 = 42;
const NLM_F_ECHO: u16 = 8;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
/// Length of `struct tcmsg`.
const TCMSG_LEN: usize = 20;
const TC_H_ROOT: u32 = u32::MAX;
/// The handle of the discipline: 1:0.
const QDISC: u32 = 0x1_0000;
/// The class of which all queues are parts.
const ROOT_CLASS: u32 = QDISC | 0xfffe;
/// Nanoseconds of the kernel's unit of time (`PSCHED_SHIFT`).
const TICK_NS: u128 = 64;

/// The class of a queue.
fn class_of(queue: u32) -> u32 {
    QDISC | (queue + 1)
}

/// The priority of frames for a queue: the handle of its class, or 0 for the default class if it can have none.
pub(crate) fn priority(queue: u32) -> u32 {
    if queue < QUEUES_MAX { class_of(queue) } else { 0 }
}

/// The options of a discipline without classes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Flat {
    Sfq { quantum: u32, perturb: u32 },
    Codel { target: u32, limit: u32, interval: u32 },
    FqCodel { target: u32, limit: u32, interval: u32, flows: u32, quantum: u32 },
    Netem { latency_us: u32, limit: u32, loss_percent: u32, jitter_us: u32 },
}

/// A discipline's kind of classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Classes {
    Htb,
    Hfsc,
}

/// Attributes that are to be nested.
#[derive(Default)]
struct Nested(Vec<u8>);

impl Nested {
    fn put(&mut self, kind: u16, value: &[u8]) {
        self.0.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn words(&mut self, all: &[(u16, u32)]) {
        all.iter().for_each(|(kind, value)| self.put(*kind, &value.to_ne_bytes()));
    }
}

fn words(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Microseconds in the kernel's unit of time.
fn ticks(us: u32) -> u32 {
    u32::try_from(u128::from(us) * 1000 / TICK_NS).unwrap_or(u32::MAX)
}

impl Flat {
    /// The kernel's name of the discipline.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Sfq { .. } => "sfq",
            Self::Codel { .. } => "codel",
            Self::FqCodel { .. } => "fq_codel",
            Self::Netem { .. } => "netem",
        }
    }

    fn options(&self) -> Vec<u8> {
        let mut nested = Nested::default();
        match *self {
            // quantum, perturb period, limit, divisor, flows (tc_sfq_qopt)
            Self::Sfq { quantum, perturb } => return words(&[quantum, perturb, 0, 0, 0]),
            // latency, limit, loss, gap, duplicate, jitter (tc_netem_qopt)
            Self::Netem { latency_us, limit, loss_percent, jitter_us } => {
                let loss = u64::from(u32::MAX) * u64::from(loss_percent.min(100)) / 100;
                return words(&[ticks(latency_us), limit, loss as u32, 0, 0, ticks(jitter_us)]);
            }
            Self::Codel { target, limit, interval } => nested.words(&[(1, target), (2, limit), (3, interval)]),
            Self::FqCodel { target, limit, interval, flows, quantum } => {
                nested.words(&[(1, target), (2, limit), (3, interval), (5, flows), (6, quantum)]);
            }
        }
        nested.0
    }
}

impl Classes {
    /// The kernel's name of the discipline.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Htb => "htb",
            Self::Hfsc => "hfsc",
        }
    }

    /// Options of the discipline: packets without a class are of queue 0.
    fn qdisc_options(self) -> Vec<u8> {
        let default = class_of(0) & 0xffff;
        match self {
            // version, rate to quantum, default class, debug, direct packets (tc_htb_glob)
            Self::Htb => {
                let mut nested = Nested::default();
                nested.put(2, &words(&[3, 10, default, 0, 0]));
                nested.0
            }
            Self::Hfsc => (default as u16).to_ne_bytes().to_vec(),
        }
    }

    fn class_options(self, class: &HtbClass) -> Vec<u8> {
        match self {
            Self::Htb => htb_options(class),
            Self::Hfsc => hfsc_options(class),
        }
    }
}

/// Bytes per second as the 32 bits that old attributes have.
fn rate32(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The time that a burst takes at a rate in bytes per second, in ticks.
fn burst_ticks(burst: u64, rate: u64) -> u32 {
    let ns = u128::from(burst) * 1_000_000_000 / u128::from(rate.max(1));
    u32::try_from(ns / TICK_NS).unwrap_or(u32::MAX).max(1)
}

fn htb_options(class: &HtbClass) -> Vec<u8> {
    // Cell log, link layer, overhead, cell align, MPU, then the rate (tc_ratespec).
    let rate = |bytes: u64| [vec![0; 8], words(&[rate32(bytes)])].concat();
    let bursts = [burst_ticks(class.burst, class.min_rate), burst_ticks(class.burst, class.max_rate)];
    // rate, ceil, buffer, cbuffer, quantum, level, priority (tc_htb_opt)
    let tail = words(&[bursts[0], bursts[1], 0, 0, class.priority]);
    let mut nested = Nested::default();
    nested.put(1, &[rate(class.min_rate), rate(class.max_rate), tail].concat());
    for (kind, bytes) in [(6, class.min_rate), (7, class.max_rate)] {
        if bytes >= u64::from(u32::MAX) {
            nested.put(kind, &bytes.to_ne_bytes());
        }
    }
    nested.0
}

fn hfsc_options(class: &HtbClass) -> Vec<u8> {
    // Initial slope, its duration, slope (tc_service_curve), in bytes per second.
    let curve = |bytes: u64| words(&[0, 0, rate32(bytes)]);
    let mut nested = Nested::default();
    for (kind, bytes) in [(1, class.min_rate), (2, class.min_rate), (3, class.max_rate)] {
        nested.put(kind, &curve(bytes));
    }
    nested.0
}

/// The disciplines of one device.
#[derive(Clone, Copy)]
pub(crate) struct Tc<'a> {
    pub(crate) netlink: &'a Netlink,
    pub(crate) ifindex: u32,
}

/// A root discipline: its kind and handle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Root {
    pub(crate) kind: String,
    pub(crate) handle: u32,
}

impl Root {
    /// Whether it is one of a switch: of its handle, and of one of its kinds.
    pub(crate) fn is_of_switch(&self) -> bool {
        self.handle == QDISC && ["htb", "hfsc", "sfq", "codel", "fq_codel", "netem"].contains(&self.kind.as_str())
    }
}

impl Tc<'_> {
    fn request(self, kind: u16, flags: u16, handle: u32, parent: u32) -> Request {
        let mut header = [0; TCMSG_LEN];
        for (at, value) in [(4, self.ifindex), (8, handle), (12, parent)] {
            header[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        Request::with_header(kind, flags, &header)
    }

    fn send(self, mut request: Request, kind: &str, options: &[u8]) -> io::Result<()> {
        request.attribute(TCA_KIND, &[kind.as_bytes(), &[0]].concat());
        request.attribute(TCA_OPTIONS, options);
        self.netlink.transact(&mut request, 0).map(drop)
    }

    /// The device's root discipline, if it is not the kernel's own choice.
    pub(crate) fn root(self) -> io::Result<Option<Root>> {
        let mut request = self.request(RTM_GETQDISC, NLM_F_ACK | NLM_F_ECHO, 0, TC_H_ROOT);
        let replies = match self.netlink.transact(&mut request, RTM_NEWQDISC) {
            // There is none, or one that the kernel does not show.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => return Ok(None),
            other => other?,
        };
        let Some(body) = replies.first() else { return Ok(None) };
        let handle = word(body, 8).unwrap_or(0);
        let kind = attributes(body.get(TCMSG_LEN..).unwrap_or_default()).find(|(kind, _)| *kind == TCA_KIND);
        let kind = kind.map(|(_, value)| text(value)).unwrap_or_default();
        Ok((handle != 0).then_some(Root { kind, handle }))
    }

    /// Removes the root discipline; none is there afterwards but the kernel's own choice.
    pub(crate) fn remove(self) -> io::Result<()> {
        let mut request = self.request(RTM_DELQDISC, NLM_F_ACK, 0, TC_H_ROOT);
        match self.netlink.transact(&mut request, 0) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Installs a discipline without classes as the root.
    pub(crate) fn install(self, flat: &Flat) -> io::Result<()> {
        self.remove()?;
        let request = self.request(RTM_NEWQDISC, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, QDISC, TC_H_ROOT);
        self.send(request, flat.kind(), &flat.options())
    }

    /// Installs a discipline with classes as the root, without queues yet.
    pub(crate) fn install_classes(self, classes: Classes) -> io::Result<()> {
        self.remove()?;
        let request = self.request(RTM_NEWQDISC, NLM_F_ACK | NLM_F_CREATE, QDISC, TC_H_ROOT);
        self.send(request, classes.kind(), &classes.qdisc_options())
    }

    /// Adds or changes the class of which all queues are parts.
    pub(crate) fn set_root_class(self, classes: Classes, class: &HtbClass) -> io::Result<()> {
        let request = self.request(RTM_NEWTCLASS, NLM_F_ACK | NLM_F_CREATE, ROOT_CLASS, QDISC);
        self.send(request, classes.kind(), &classes.class_options(class))
    }

    /// Adds or changes the class of a queue.
    pub(crate) fn set_queue(self, classes: Classes, queue: u32, class: &HtbClass) -> io::Result<()> {
        let request = self.request(RTM_NEWTCLASS, NLM_F_ACK | NLM_F_CREATE, class_of(queue), ROOT_CLASS);
        self.send(request, classes.kind(), &classes.class_options(class))
    }

    /// Removes the class of a queue.
    pub(crate) fn remove_queue(self, queue: u32) -> io::Result<()> {
        let mut request = self.request(RTM_DELTCLASS, NLM_F_ACK, class_of(queue), ROOT_CLASS);
        self.netlink.transact(&mut request, 0).map(drop)
    }

    /// The counters of all queues, by number.
    pub(crate) fn counters(self) -> io::Result<Vec<(u32, QueueCounters)>> {
        let mut request = self.request(RTM_GETTCLASS, NLM_F_DUMP, 0, 0);
        let replies = self.netlink.transact(&mut request, RTM_NEWTCLASS)?;
        Ok(replies.iter().filter_map(|body| parse_class(body)).collect())
    }
}

/// The queue of a class and its counters.
fn parse_class(body: &[u8]) -> Option<(u32, QueueCounters)> {
    let handle = word(body, 8)?;
    let queue = handle.checked_sub(class_of(0)).filter(|queue| *queue < QUEUES_MAX)?;
    let mut counters = QueueCounters::default();
    let stats = attributes(body.get(TCMSG_LEN..)?).find(|(kind, _)| *kind == TCA_STATS2)?.1;
    let long = |value: &[u8]| value.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    for (kind, value) in attributes(stats) {
        match kind {
            TCA_STATS_BASIC => {
                counters.tx_bytes = long(value)?;
                counters.tx_packets = counters.tx_packets.max(word(value, 8)?.into());
            }
            TCA_STATS_PKT64 => counters.tx_packets = long(value)?,
            // qlen, backlog, drops (gnet_stats_queue)
            TCA_STATS_QUEUE => counters.tx_errors = word(value, 8)?.into(),
            _ => {}
        }
    }
    Some((queue, counters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_classes_from_1_1_on() {
        assert_eq!([0, 1, 0xefff, 0xf000, u32::MAX].map(priority), [0x1_0001, 0x1_0002, 0x1_f000, 0, 0]);
    }

    #[test]
    fn bursts_are_times_at_the_rate() {
        // 1,564 bytes at 12 kbit/s, and 125 MB/s.
        assert_eq!(burst_ticks(1564, 1500), 16_291_666);
        assert_eq!(burst_ticks(1564, 125_000_000), 195);
        assert_eq!([burst_ticks(1, u64::MAX), burst_ticks(u64::MAX, 0)], [1, u32::MAX]);
        assert_eq!([ticks(1000), ticks(2000), ticks(500)], [15_625, 31_250, 7812]);
    }

    #[test]
    fn options_have_the_lengths_of_the_structures() {
        let class = |min_rate| HtbClass { min_rate, max_rate: 1 << 40, burst: 1564, priority: 7 };
        let htb = htb_options(&class(1500));
        let found: Vec<_> = attributes(&htb).map(|(kind, value)| (kind, value.len())).collect();
        assert_eq!(found, [(1, 44), (7, 8)]);
        assert_eq!(word(&htb, 4 + 40), Some(7));
        let found: Vec<_> = attributes(&hfsc_options(&class(5))).map(|(kind, value)| (kind, value.len())).collect();
        assert_eq!(found, [(1, 12), (2, 12), (3, 12)]);
        assert_eq!(Flat::Sfq { quantum: 1500, perturb: 10 }.options().len(), 20);
        let netem = Flat::Netem { latency_us: 2000, limit: 7, loss_percent: 25, jitter_us: 500 }.options();
        assert_eq!(netem, words(&[31_250, 7, 1_073_741_823, 0, 0, 7812]));
    }

    #[test]
    fn counters_of_a_class_are_read_and_hostile_bytes_are_not() {
        let mut stats = Nested::default();
        stats.put(TCA_STATS_BASIC, &[900u64.to_ne_bytes().to_vec(), words(&[9, 0])].concat());
        stats.put(TCA_STATS_QUEUE, &words(&[1, 60, 4, 0, 0]));
        let mut body = [0; TCMSG_LEN].to_vec();
        body[8..12].copy_from_slice(&class_of(3).to_ne_bytes());
        let mut all = Nested(body);
        all.put(TCA_STATS2, &stats.0);
        let expected = QueueCounters { tx_packets: 9, tx_bytes: 900, tx_errors: 4 };
        assert_eq!(parse_class(&all.0), Some((3, expected)));
        for len in 0..all.0.len() {
            let _ = parse_class(&all.0[..len]);
        }
        all.0[8..12].copy_from_slice(&ROOT_CLASS.to_ne_bytes());
        assert_eq!(parse_class(&all.0), None);
    }
}
