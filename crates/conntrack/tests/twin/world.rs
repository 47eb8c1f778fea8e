//! A tracker and its twin, and the steps that both take.

use std::fmt::{self, Display, Formatter};

use base::Millis;
use base::rng::Rng;
use conntrack::action::state;
use conntrack::fragments::Family;
use conntrack::timeout::{self, Timeout};
use conntrack::tracker::{PacketKind, Plain, SlotCache, is_opening, is_resumable};
use conntrack::{Action, Conn, Tracker};
use packet::metadata::Connection;
use packet::wire::Head;
use packet::{Batch, Checksum, Packet};

use super::frames;
use super::model::{Carried, Counts, Model, Seen, Twin};
use super::packets::{Flow, TCP, UDP, network};
use super::scenario::{self, ZONES, chance, one};

/// Packets between two actions.
const FLYING_MAX: usize = 4;
/// More connections than that are flushed, so that the comparison stays fast.
const CONNECTIONS_MAX: usize = 24;
/// Time from the first fragment of a datagram to its end, and from there until a sweep drops it, in milliseconds.
const HELD_MS: u64 = 15_000;
const SWEPT_MS: u64 = 10_000;

/// A packet, or the fragments of one.
struct Flight {
    packets: Vec<Packet>,
    twin: Twin,
    /// Where the fragments are cut.
    cuts: Vec<usize>,
    id: u16,
}

pub(crate) struct World {
    rng: Rng,
    tracker: Tracker,
    slots: SlotCache,
    model: Model,
    now: u64,
    flying: Vec<Flight>,
    /// Incomplete datagrams: when they end, and the number of their fragments.
    held: Vec<(u64, usize)>,
    next_id: u16,
    last: Option<(Action, Twin)>,
    swept: u64,
    states: [u64; 8],
    fragments: u64,
    dropped: u64,
    expired: u64,
    flushed: u64,
    /// Packets that took [`Tracker::resume`].
    resumed: u64,
    announced: u64,
    opened: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::seeded(seed);
        let tracker = Tracker::new(rng.next_u64());
        let mut model = Model::new();
        let mut values = [None; timeout::COUNT];
        for (name, seconds) in super::SHORT {
            values[Timeout::from_name(name).unwrap().index()] = Some(seconds as u32);
        }
        tracker.policies().set("short", values).unwrap();
        tracker.with_fragments(|fragments| {
            fragments.set_min_size(Family::V4, 400).unwrap();
            fragments.set_min_size(Family::V6, 400).unwrap();
        });
        if chance(&mut rng, 40) {
            model.max = 2 + rng.below(10) as usize;
            tracker.set_connections_max(model.max as u64);
        }
        Self {
            rng,
            tracker,
            slots: SlotCache::default(),
            model,
            now: 1000,
            flying: Vec::new(),
            held: Vec::new(),
            next_id: 0,
            last: None,
            swept: 0,
            states: [0; 8],
            fragments: 0,
            dropped: 0,
            expired: 0,
            flushed: 0,
            resumed: 0,
            announced: 0,
            opened: 0,
        }
    }

    /// One random step, and the comparison after it.
    pub(crate) fn step(&mut self) {
        match self.rng.below(100) {
            0..82 => self.fly(),
            82..88 => self.now += self.rng.below(2000),
            88..91 => self.now += self.rng.below(70_000),
            91..94 => self.sweep(),
            94 => self.flush(),
            95..97 => self.limit(),
            97 => self.hold(),
            98 => {
                self.model.checks = chance(&mut self.rng, 80);
                self.tracker.set_checks_sequence(self.model.checks);
            }
            _ => {
                if self.model.max < 100 {
                    self.model.max = 2 + self.rng.below(10) as usize;
                    self.tracker.set_connections_max(self.model.max as u64);
                }
            }
        }
        if self.model.conns.len() > CONNECTIONS_MAX {
            self.flush();
        }
        self.compare();
    }

    /// An action on a packet, a new one or one that has seen actions before.
    fn fly(&mut self) {
        let (mut flight, zone) = if self.flying.is_empty() || chance(&mut self.rng, 55) {
            self.take_off()
        } else {
            let n = self.rng.below(self.flying.len() as u64) as usize;
            let flight = self.flying.swap_remove(n);
            let zone = flight.twin.carried.zone;
            (flight, zone)
        };
        let zone = if chance(&mut self.rng, 80) { zone } else { one(&mut self.rng, &ZONES) };
        let is_translated = flight.twin.carried.state & (state::SNAT | state::DNAT) != 0;
        let action = if is_translated && chance(&mut self.rng, 15) {
            scenario::replacement(&mut self.rng, zone)
        } else {
            scenario::action(&mut self.rng, zone)
        };
        let before = flight.twin.clone();
        let mut batch = self.submit(&mut flight, &action);
        // With room for all, only a removed connection without a new one needs a look.
        let is_plain = self.model.max > 100 && self.tracker.connections() == self.model.conns.len() as u64;
        let vanished = if is_plain { Vec::new() } else { self.vanished() };
        let committed = batch[0].metadata().is_some_and(|metadata| metadata.connection.handle != 0);
        let seen = Seen { vanished, committed };
        if !flight.cuts.is_empty() {
            // Every action collects fragments, and looks their datagram up.
            flight.twin.carried.current = false;
        }
        self.model.act(&mut flight.twin, &action, self.now, &seen);
        self.model.shrink(self.now, &seen);
        check(&batch, &flight, &action, &before);
        self.last = Some((action, before));
        let state = flight.twin.carried.state;
        (0..8).for_each(|bit| self.states[bit] += u64::from(state >> bit & 1));
        flight.packets.append(&mut batch);
        if self.flying.len() < FLYING_MAX && chance(&mut self.rng, 60) {
            self.flying.push(flight);
        }
    }

    /// Hands the packets of a flight to the tracker, fragments at times one by one, and returns them.
    fn submit(&mut self, flight: &mut Flight, action: &Action) -> Batch {
        let mut packets = std::mem::take(&mut flight.packets);
        let mut batch = Batch::new();
        let total = packets.len();
        if total > 1 {
            let turn = self.rng.below(total as u64) as usize;
            packets.rotate_left(turn);
            if chance(&mut self.rng, 50) {
                packets.swap(0, total - 1);
            }
        }
        let is_split = total > 1 && chance(&mut self.rng, 50);
        while !packets.is_empty() {
            let n = if is_split { 1 } else { packets.len() };
            let mut part: Batch = packets.drain(..n).collect();
            if total == 1 && self.resume(&mut part[0], action) {
                batch.append(&mut part);
                continue;
            }
            let dropped = self.tracker.track_all(&mut part, action, 1, Millis(self.now));
            // A batch drops one datagram that is late.
            let is_due = self.held.first().is_some_and(|(end, _)| *end < self.now);
            let expected = if is_due { self.held.remove(0).1 } else { 0 };
            assert_eq!(dropped, expected, "fragments that were dropped");
            self.dropped += dropped as u64;
            assert!(part.is_empty() || packets.is_empty(), "fragments leave together");
            batch.append(&mut part);
        }
        assert_eq!(batch.len(), total, "{action:?} on {:02x?}", flight.twin.bytes);
        self.fragments += if total > 1 { total as u64 } else { 0 };
        batch
    }

    /// Executes an action as a datapath does with most packets, if it can be executed so. Returns false if nothing happened.
    fn resume(&mut self, packet: &mut Packet, action: &Action) -> bool {
        let now = Millis(self.now);
        let is_new = |of: &Connection| of.state == state::TRK | state::NEW && of.zone == action.zone && of.handle == 0;
        let connection = packet.metadata().map(|metadata| &metadata.connection);
        let may_open = is_opening(action) && connection.is_some_and(is_new);
        let is_first = connection.is_none_or(|connection| connection.zone != action.zone);
        if !(may_open || is_first && is_resumable(action)) || self.tracker.has_expired_fragments(now) {
            return false;
        }
        let frame = packet.data();
        let l3 = network(frame);
        let Some(header) = frame.get(l3..).and_then(|rest| rest.first_chunk::<24>()) else { return false };
        let is_plain = header[0] == 0x45 && header[6] & 0x3f == 0 && header[7] == 0 && [TCP, UDP].contains(&header[9]);
        if !is_plain || chance(&mut self.rng, 30) {
            return false;
        }
        let Some(head) = Head::at(frame, l3) else { return false };
        let (tracker, mut plain) = (&self.tracker, Plain::default());
        let kind = tracker.prepare(&head, packet.offload.checksum, action.zone, &mut plain);
        if kind == PacketKind::Other {
            return false;
        }
        let is_known = tracker.recall(&mut plain, &self.slots);
        if !is_known && chance(&mut self.rng, 50) {
            tracker.locate(&mut plain);
        }
        self.slots.record(1, is_known.into());
        if may_open {
            let before = Action { zone: action.zone, ..Action::default() };
            if !tracker.may_begin(packet.data(), &mut plain, &before) {
                return false;
            }
            let Some(opened) = tracker.open(&plain, action, now) else { return false };
            packet.metadata_mut().connection = opened.connection(action);
            self.opened += 1;
            return true;
        }
        if kind == PacketKind::Plain
            && let Some(resumed) = tracker.resume(packet, &mut plain, action, now)
        {
            packet.metadata_mut().connection = resumed.connection(action);
            if !resumed.is_expected {
                plain.remember(resumed.known(), &mut self.slots);
            }
            self.resumed += 1;
            return true;
        }
        if !(tracker.may_begin(packet.data(), &mut plain, action) && tracker.is_absent(&plain, now)) {
            return false;
        }
        packet.metadata_mut().connection = tracker.state_of_new(&plain);
        self.announced += 1;
        true
    }

    fn take_off(&mut self) -> (Flight, u16) {
        self.next_id = self.next_id.wrapping_add(1);
        let generated = scenario::generated(&mut self.rng, &self.model, self.next_id);
        let mut cuts = Vec::new();
        if generated.is_fragmented {
            let units = (generated.frame.len() - network(&generated.frame) - 40) / 8;
            cuts.push(50 + self.rng.below(5) as usize);
            if units > 110 && chance(&mut self.rng, 40) {
                cuts.push(cuts[0] + 50);
            }
        }
        let twin = Twin { bytes: generated.frame, partial: generated.partial, carried: Carried::default() };
        let flight = Flight { packets: Vec::new(), twin, cuts, id: generated.id };
        let packets = flight.expected().iter().map(|frame| Packet::from_slice(frame)).collect();
        let mut flight = Flight { packets, ..flight };
        if generated.partial {
            let (frame, l3) = (&flight.twin.bytes, network(&flight.twin.bytes));
            let (start, proto) = if frame[l3] >> 4 == 6 { (l3 + 40, frame[l3 + 6]) } else { (l3 + 20, frame[l3 + 9]) };
            let offset = if proto == TCP { 16 } else { 6 };
            flight.packets[0].offload.checksum = Checksum::Partial { start: start as u16, offset };
        }
        (flight, generated.zone)
    }

    /// A datagram whose last fragment is lost.
    fn hold(&mut self) {
        let (mut flight, zone) = self.take_off();
        if flight.cuts.is_empty() {
            return;
        }
        flight.packets.pop();
        let count = flight.packets.len();
        let mut batch: Batch = flight.packets.drain(..).collect();
        let action = scenario::action(&mut self.rng, zone);
        let dropped = self.tracker.track_all(&mut batch, &action, 1, Millis(self.now));
        assert!(batch.is_empty());
        self.held.push((self.now + HELD_MS, count));
        let is_due = self.held[0].0 < self.now;
        assert_eq!(dropped, if is_due { self.held.remove(0).1 } else { 0 });
        self.dropped += dropped as u64;
    }

    fn sweep(&mut self) {
        let dropped = self.tracker.sweep(Millis(self.now));
        let is_late = |(end, _): &(u64, usize)| *end + SWEPT_MS < self.now;
        let late: usize = self.held.iter().filter(|held| is_late(held)).map(|(_, count)| count).sum();
        self.held.retain(|held| !is_late(held));
        assert_eq!(dropped, late, "fragments that were swept");
        self.dropped += dropped as u64;
        let is_whole = self.now - self.swept >= self.tracker.sweep_interval_ms();
        self.swept = self.now;
        let vanished = self.vanished();
        let over: Vec<(u64, Flow)> = self
            .model
            .conns
            .iter()
            .filter(|conn| conn.expires <= self.now)
            .map(|conn| (conn.id, conn.flows[0]))
            .collect();
        for (id, flow) in over {
            if vanished.contains(&flow) {
                self.model.remove(id);
                self.expired += 1;
            } else {
                assert!(!is_whole, "{flow:?} has expired, and is still there");
            }
        }
    }

    fn flush(&mut self) {
        let (kind, zone, mark) = (self.rng.below(3), one(&mut self.rng, &ZONES), self.rng.below(16) as u32);
        let source = self.model.conns.first().map_or(0, |conn| conn.flows[0].src);
        let is_all = self.model.conns.len() > CONNECTIONS_MAX;
        let is_meant = |flow: Flow, marked: u32| match kind {
            _ if is_all => true,
            0 => flow.zone == zone,
            1 => marked & 0xf == mark,
            _ => flow.src == source,
        };
        let flushed = self.tracker.flush(&mut |conn: &Conn| is_meant(Flow::of(&conn.original), conn.mark));
        let meant = self.model.conns.iter().filter(|conn| is_meant(conn.flows[0], conn.mark));
        let meant: Vec<u64> = meant.map(|conn| conn.id).collect();
        assert_eq!(flushed, meant.len() as u64);
        self.flushed += flushed;
        meant.into_iter().for_each(|id| self.model.remove(id));
    }

    fn limit(&mut self) {
        let (zone, limit) = (one(&mut self.rng, &[0, 1, 7]), self.rng.below(4) as u32);
        let limit = if limit == 3 { 20 } else { limit * 3 };
        let known = self.model.limits.insert(zone, limit).is_some();
        assert_eq!(self.tracker.limits().set(zone, limit), known);
    }

    /// Connections of the twin that the tracker has not.
    fn vanished(&self) -> Vec<Flow> {
        let mut there = Vec::new();
        self.tracker.flush(&mut |conn: &Conn| {
            there.push(Flow::of(&conn.original));
            false
        });
        self.model.conns.iter().map(|conn| conn.flows[0]).filter(|flow| !there.contains(flow)).collect()
    }

    /// Compares all connections, expectations and counts.
    fn compare(&self) {
        let mut there = 0;
        self.tracker.flush(&mut |conn: &Conn| {
            there += 1;
            let flows = conn.keys().each_ref().map(Flow::of);
            let twin = self.model.conns.iter().find(|twin| twin.flows == flows);
            let twin = twin.unwrap_or_else(|| panic!("{flows:?} is not in the twin"));
            assert_eq!((conn.mark, conn.label.into()), (twin.mark, twin.label), "{flows:?}");
            assert_eq!((conn.translated.src(), conn.translated.dst()), (twin.snat, twin.dnat), "{flows:?}");
            assert_eq!(conn.helper.is_some(), twin.ftp, "{flows:?}");
            assert_eq!(conn.parent().map(|parent| Flow::of(&parent.key)), twin.parent, "{flows:?}");
            assert_eq!(conn.limited_by.is_some(), twin.counted, "{flows:?}");
            false
        });
        assert_eq!(
            there,
            self.model.conns.len(),
            "at {}, without {:?}, after {:?}",
            self.now,
            self.vanished(),
            self.last
        );
        assert_eq!(self.tracker.connections(), there as u64);
        let (mut from, mut live) = (Some(0), 0);
        while let Some(at) = from {
            from = self.tracker.visit(at, Millis(self.now), &mut |conn| {
                live += 1;
                let flow = Flow::of(&conn.original);
                let twin = self.model.conns.iter().find(|twin| twin.flows[0] == flow).unwrap();
                assert_eq!(
                    conn.life().expires().0,
                    twin.expires,
                    "at {}: {twin:?} {:?}, after {:?}",
                    self.now,
                    conn.protocol,
                    self.last
                );
                assert_eq!(conn.life().is_assured(), twin.assured, "{twin:?}");
            });
        }
        assert_eq!(live, self.model.conns.iter().filter(|conn| conn.expires > self.now).count());
        let expected = self.tracker.expectations().list();
        assert_eq!(expected.len(), self.model.expected.len());
        for (expected, twin) in expected.iter().zip(&self.model.expected) {
            let flows = (Flow::of(&expected.key), Flow::of(&expected.parent.key));
            assert_eq!(flows, (twin.flow, twin.parent_flow));
            assert_eq!((expected.mark, expected.label), (twin.mark, twin.label), "{twin:?}");
        }
        for zone in self.model.limits.keys() {
            assert_eq!(self.tracker.limits().zone(*zone).count as usize, self.model.counted(*zone), "zone {zone}");
        }
    }
}

impl Flight {
    /// The frames that the twin has.
    fn expected(&self) -> Vec<Vec<u8>> {
        if self.cuts.is_empty() {
            vec![self.twin.bytes.clone()]
        } else {
            frames::fragments(&self.twin.bytes, &self.cuts, self.id)
        }
    }
}

/// Compares packets with their twin.
fn check(packets: &Batch, flight: &Flight, action: &Action, before: &Twin) {
    let carried = &flight.twin.carried;
    for (packet, frame) in packets.iter().zip(flight.expected()) {
        let it = packet.metadata().map(|metadata| metadata.connection.clone()).unwrap_or_default();
        assert_eq!(it.state, carried.state, "state: {action:?} on {before}");
        assert_eq!((it.zone, it.mark, it.label), (carried.zone, carried.mark, carried.label), "{action:?} on {before}");
        assert_eq!(it.original, carried.original, "{action:?} on {before}");
        assert_eq!(packet.data(), frame, "{action:?} on {before}");
    }
}

/// How often everything occurred.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    counts: Counts,
    states: [u64; 8],
    fragments: u64,
    dropped: u64,
    expired: u64,
    flushed: u64,
    resumed: u64,
    announced: u64,
    opened: u64,
}

impl Kinds {
    pub(crate) fn add(&mut self, world: &World) {
        let (sum, counts) = (&mut self.counts, &world.model.counts);
        for (sum, count) in sum.fields().into_iter().zip(counts.clone().fields()) {
            *sum += *count;
        }
        (0..8).for_each(|bit| self.states[bit] += world.states[bit]);
        self.fragments += world.fragments;
        self.dropped += world.dropped;
        self.expired += world.expired;
        self.flushed += world.flushed;
        self.resumed += world.resumed;
        self.announced += world.announced;
        self.opened += world.opened;
    }

    pub(crate) fn assert_all_occur(&mut self) {
        let rest =
            [self.fragments, self.dropped, self.expired, self.flushed, self.resumed, self.announced, self.opened];
        assert!(self.states.iter().chain(&rest).all(|count| *count > 50), "{self:?}");
        assert!(self.counts.fields().iter().all(|count| **count > 5), "{self:?}");
    }
}

impl Display for Kinds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [new, est, rel, rpl, inv, trk, snat, dnat] = self.states;
        write!(f, "{trk} actions: {new} new, {est} est, {rel} rel, {rpl} rpl, {inv} inv, {snat} snat, {dnat} dnat; ")?;
        write!(
            f,
            "{} fragments, {} dropped; {} expired, {} flushed, {} resumed, {} announced, {} opened; {:?}",
            self.fragments,
            self.dropped,
            self.expired,
            self.flushed,
            self.resumed,
            self.announced,
            self.opened,
            self.counts
        )
    }
}
