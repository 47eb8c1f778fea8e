//! What all threads of a datapath share: the published port table, the flows, the handler above the seam, counters.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::ops::Index;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use base::drop::DropCounters;
use base::{Clock, DropReason};
use dpif::{DpFlow, DpFlowStats, FlowId, UpcallHandler};
use packet::buf::BATCH_MAX;
use parking_lot::{Condvar, Mutex};

use crate::datapath::Config;
use crate::flows::{Flows, Installed};
use crate::lane;
use crate::megaflow::{Counter, Megaflow};
use crate::meter::Meters;
use crate::port::{Port, PortTable};
use crate::tx::adder;
use crate::upcall::Upcalls;
use dpif::ThreadStats;

/// Hears of a flow that is gone, with its last statistics.
pub(crate) type Gone<'a> = &'a dyn Fn(FlowId, DpFlowStats);

/// Shared state; see the module's text.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) ports: ArcSwap<PortTable>,
    /// The version of that table, told when it is there.
    ports_version: AtomicU64,
    pub(crate) flows: Flows,
    pub(crate) upcalls: Upcalls,
    pub(crate) meters: Meters,
    handler: ArcSwapOption<Handler>,
    /// Counters of each lane.
    pub(crate) lanes: Lanes,
    /// Flows that were not installed for want of room.
    pub(crate) flows_refused: AtomicU64,
    /// VLAN tags that keys tell of.
    pub(crate) vlans_max: AtomicUsize,
    pub(crate) stopping: AtomicBool,
    /// See [`crate::microflow`].
    pub(crate) inverse_probability: AtomicU32,
    /// Every so many cached packets, one is decided about afresh; 0 for none.
    pub(crate) check_every: AtomicU64,
    /// The version of the port table that each thread uses, by its lane.
    seen: Mutex<BTreeMap<usize, u64>>,
    seen_moved: Condvar,
}

/// A sized cell for the handler, as `ArcSwap` wants one.
#[derive(Debug)]
struct Handler(Arc<dyn UpcallHandler>);

/// The lane of callers that are no packet threads.
pub(crate) const CALLER_LANE: usize = 0;
/// Lanes at most.
pub(crate) const LANES_MAX: usize = 1025;

/// Counters of all lanes: that of other callers, then the packet threads'. They are made when a lane is first used and
/// stay, so that what threads have counted that ended is in the sums; a lane is one thread's at a time.
#[derive(Debug)]
pub(crate) struct Lanes(Box<[OnceLock<Box<LaneCounters>>]>);

impl Lanes {
    fn new() -> Self {
        let lanes = Self((0..LANES_MAX).map(|_| OnceLock::new()).collect());
        lanes.make(CALLER_LANE);
        lanes
    }

    /// Makes a lane's counters, if there are none yet. Whoever gives a lane to a thread does that before.
    pub(crate) fn make(&self, lane: usize) {
        if let Some(place) = self.0.get(lane) {
            place.get_or_init(Box::default);
        }
    }

    /// All that were ever used.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LaneCounters> {
        self.0.iter().filter_map(OnceLock::get).map(|lane| &**lane)
    }
}

impl Index<usize> for Lanes {
    type Output = LaneCounters;

    #[inline]
    fn index(&self, lane: usize) -> &LaneCounters {
        self.0[lane].get().expect("made before anybody had the lane")
    }
}

/// What one lane did: written by its packet thread only ([`bump_own`]), but for the first one, which is of all others
/// ([`bump`]). Apart from other lanes' cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct LaneCounters {
    pub(crate) packets: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) rounds: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) busy_ns: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) hit: AtomicU64,
    pub(crate) missed: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) probes: AtomicU64,
    /// Of `hit`, those that the microflow cache had.
    pub(crate) microflow_hit: AtomicU64,
    /// Packets that came back.
    pub(crate) recirculated: AtomicU64,
    /// Packets that no flow covered, lost ones included. (`missed` counts those that were asked about.)
    pub(crate) misses: AtomicU64,
    pub(crate) checks: AtomicU64,
    pub(crate) checks_failed: AtomicU64,
    /// Batches of one packet, of two, and so on.
    pub(crate) batch_sizes: [AtomicU64; BATCH_MAX],
    /// Packets and batches that devices took.
    pub(crate) tx_packets: AtomicU64,
    pub(crate) tx_batches: AtomicU64,
    /// Drops of all ports and of packets that came from none.
    pub(crate) drops: DropCounters,
    /// Nanoseconds in rounds that moved nothing, and asleep.
    pub(crate) idle_ns: AtomicU64,
    /// Of these, nanoseconds asleep.
    pub(crate) sleep_ns: AtomicU64,
    /// Rounds that moved packets, by [`bucket`]s of how many, of their nanoseconds, and of those a packet.
    pub(crate) rounds_by_packets: [AtomicU64; BUCKETS],
    pub(crate) rounds_by_ns: [AtomicU64; BUCKETS],
    pub(crate) rounds_by_packet_ns: [AtomicU64; BUCKETS],
}

/// Buckets of a histogram.
pub(crate) const BUCKETS: usize = 32;

/// The bucket that counts `n`: each reaches to twice as far as the one before, and the last to all that is beyond.
fn bucket(n: u64) -> usize {
    ((u64::BITS - n.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// Adds to a counter of a packet thread's lane, which nobody but that thread writes.
#[inline]
pub(crate) fn bump_own(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

/// Adds to drop counters of a lane.
pub(crate) fn count_drop_in(counters: &DropCounters, lane: usize, reason: DropReason, n: u64) {
    if lane == CALLER_LANE {
        counters.add(reason, n);
    } else {
        counters.add_own(reason, n);
    }
}

/// Adds to a counter that others write too.
pub(crate) fn bump(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

impl LaneCounters {
    /// Takes note of a round of the lane's own thread: packets that came in, and nanoseconds since the one before.
    pub(crate) fn count_round(&self, packets: u64, ns: u64) {
        if packets == 0 {
            return bump_own(&self.idle_ns, ns);
        }
        bump_own(&self.busy_ns, ns);
        bump_own(&self.rounds_by_packets[bucket(packets)], 1);
        bump_own(&self.rounds_by_ns[bucket(ns)], 1);
        bump_own(&self.rounds_by_packet_ns[bucket(ns / packets)], 1);
    }

    /// Takes note of a batch of which a device took so many packets; we are `lane`'s.
    pub(crate) fn count_sent(&self, lane: usize, packets: u64) {
        let add = adder(lane);
        add(&self.tx_packets, packets);
        add(&self.tx_batches, 1);
    }

    /// Takes note of a sleep of the lane's own thread.
    pub(crate) fn count_sleep(&self, ns: u64) {
        bump_own(&self.idle_ns, ns);
        bump_own(&self.sleep_ns, ns);
    }

    /// What a packet thread has done.
    pub(crate) fn thread_stats(&self) -> ThreadStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let hits = load(&self.hit);
        let microflow_hits = load(&self.microflow_hit);
        ThreadStats {
            packets: load(&self.packets),
            batches: load(&self.batches),
            batch_sizes: self.batch_sizes.iter().map(load).collect(),
            microflow_hits,
            megaflow_hits: hits.saturating_sub(microflow_hits),
            probes: load(&self.probes),
            recirculations: load(&self.recirculated),
            misses: load(&self.misses),
            lost: load(&self.lost),
            checks: load(&self.checks),
            checks_failed: load(&self.checks_failed),
            tx_packets: load(&self.tx_packets),
            tx_batches: load(&self.tx_batches),
            rounds: load(&self.rounds),
            sleeps: load(&self.sleeps),
            busy_ns: load(&self.busy_ns),
            idle_ns: load(&self.idle_ns),
            sleep_ns: load(&self.sleep_ns),
            rounds_by_packets: self.rounds_by_packets.iter().map(load).collect(),
            rounds_by_ns: self.rounds_by_ns.iter().map(load).collect(),
            rounds_by_packet_ns: self.rounds_by_packet_ns.iter().map(load).collect(),
            panics: load(&self.panics),
        }
    }
}

impl Shared {
    pub(crate) fn new(config: Config, clock: Clock) -> Self {
        Self {
            flows: Flows::new(config.index, config.flow_limit, clock.clone()),
            clock,
            ports: ArcSwap::default(),
            ports_version: AtomicU64::new(0),
            upcalls: Upcalls::default(),
            meters: Meters::default(),
            handler: ArcSwapOption::empty(),
            lanes: Lanes::new(),
            flows_refused: AtomicU64::new(0),
            vlans_max: AtomicUsize::new(flow::extract::VLANS),
            stopping: AtomicBool::new(false),
            inverse_probability: AtomicU32::new(crate::microflow::INVERSE_PROBABILITY),
            check_every: AtomicU64::new(0),
            seen: Mutex::default(),
            seen_moved: Condvar::new(),
            config,
        }
    }

    /// The lane of callers that are no packet threads.
    #[expect(clippy::unused_self, reason = "who asks need not know how lanes are numbered")]
    pub(crate) fn caller_lane(&self) -> usize {
        CALLER_LANE
    }

    /// Under which number who works on a lane counts packets of flows.
    #[inline]
    pub(crate) fn counter_of(&self, lane: usize) -> Counter {
        if lane == self.caller_lane() { None } else { u16::try_from(lane).ok().and_then(NonZeroU16::new) }
    }

    pub(crate) fn handler(&self) -> Option<Arc<dyn UpcallHandler>> {
        self.handler.load().as_ref().map(|h| h.0.clone())
    }

    pub(crate) fn set_handler(&self, handler: Option<Arc<dyn UpcallHandler>>) {
        self.handler.store(handler.map(|h| Arc::new(Handler(h))));
    }

    /// Counts a drop, in total and at the port where the packet came in, if it is known: in counters of the calling thread's
    /// lane.
    pub(crate) fn count_drop(&self, from: Option<&Port>, reason: DropReason, n: u64) {
        let lane = lane::current();
        count_drop_in(&self.lanes[lane].drops, lane, reason, n);
        if let Some(port) = from {
            port.count_rx_drop(lane, reason, n);
        }
    }

    /// Drops of all ports, those that are gone among them, and of packets that came from none.
    pub(crate) fn drops(&self) -> DropCounters {
        let sum = DropCounters::default();
        self.lanes.iter().for_each(|lane| sum.add_all(&lane.drops));
        sum
    }

    /// Installs a flow and says by `gone` which flows left for it. Returns whether it got in. A packet thread leaves it to a
    /// handler where it would have to wait; then it gets in later, or is reported to have left.
    pub(crate) fn install(&self, id: FlowId, flow: DpFlow, gone: Gone<'_>) -> bool {
        if lane::current() == CALLER_LANE {
            return self.settle_installed(self.flows.put(id, flow), gone);
        }
        match self.flows.put_quickly(id, flow).or_else(|flow| self.upcalls.leave_install(flow)) {
            Ok(()) => true,
            Err(flow) => self.settle_installed(self.flows.put_flow(flow), gone),
        }
    }

    /// Installs a flow that a packet thread left.
    pub(crate) fn install_left(&self, flow: Arc<Megaflow>) {
        let id = flow.id;
        let gone = |id, stats| self.tell_gone(id, stats);
        if !self.settle_installed(self.flows.put_flow(flow), &gone) {
            // Whoever answered takes it for installed: it has left before it came.
            gone(id, DpFlowStats::default());
        }
    }

    fn settle_installed(&self, installed: Installed, gone: Gone<'_>) -> bool {
        match installed {
            Installed::Yes(replaced) => {
                replaced.iter().for_each(|old| gone(old.id, old.stats()));
                true
            }
            Installed::Full => {
                bump(&self.flows_refused, 1);
                false
            }
        }
    }

    /// Puts the flows' index in order, a part at a time, and says by `gone` which flows left for it. Returns whether
    /// there is more to do.
    pub(crate) fn tune(&self, gone: Gone<'_>) -> bool {
        let (out, more) = self.flows.tune();
        out.iter().for_each(|old| gone(old.id, old.stats()));
        more
    }

    /// Tells the handler that a flow is gone, which may wait for others.
    pub(crate) fn tell_gone(&self, id: FlowId, stats: DpFlowStats) {
        if let Some(handler) = self.handler() {
            handler.flow_gone(id, stats);
        }
    }

    /// The same on a packet thread: where there are handler threads, one of them tells.
    pub(crate) fn leave_gone(&self, id: FlowId, stats: DpFlowStats) {
        if !self.upcalls.leave_gone(id, stats) {
            self.tell_gone(id, stats);
        }
    }

    /// Makes `table` the port table. Whoever does so is the only one.
    pub(crate) fn publish(&self, table: PortTable) {
        let version = table.version;
        self.ports.store(Arc::new(table));
        self.ports_version.store(version, Ordering::Release);
    }

    /// Whether the port table is still this one.
    #[inline]
    pub(crate) fn is_current(&self, table: &PortTable) -> bool {
        self.ports_version.load(Ordering::Acquire) == table.version
    }

    /// Says that the thread of `lane` uses the port table of `version` from now on; before it begins, that it uses that
    /// of version 0, and so is waited for.
    pub(crate) fn saw(&self, lane: usize, version: u64) {
        self.seen.lock().insert(lane, version);
        self.seen_moved.notify_all();
    }

    /// Says that the thread of `lane` has ended.
    pub(crate) fn saw_the_last(&self, lane: usize) {
        self.seen.lock().remove(&lane);
        self.seen_moved.notify_all();
    }

    /// Waits until every thread uses the port table of `version` or a later one, or ends.
    pub(crate) fn wait_seen(&self, version: u64) {
        let mut seen = self.seen.lock();
        while seen.values().any(|s| *s < version) {
            self.seen_moved.wait(&mut seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_by_what_they_cost() {
        assert_eq!([0, 1, 2, 3, 4, 7, 8, 1 << 30, u64::MAX].map(bucket), [0, 1, 2, 2, 3, 3, 4, 31, 31]);
        let counters = LaneCounters::default();
        let before = counters.thread_stats();
        counters.count_round(0, 500);
        counters.count_sleep(70);
        counters.count_round(32, 3200);
        counters.count_round(33, 3300);
        let stats = counters.thread_stats().since(&before);
        assert_eq!((stats.idle_ns, stats.sleep_ns, stats.busy_ns), (570, 70, 6500));
        let places =
            |of: &[u64]| of.iter().enumerate().filter(|(_, n)| **n > 0).map(|(i, n)| (i, *n)).collect::<Vec<_>>();
        assert_eq!(places(&stats.rounds_by_packets), [(6, 2)]);
        assert_eq!(places(&stats.rounds_by_ns), [(12, 2)]);
        assert_eq!(places(&stats.rounds_by_packet_ns), [(7, 2)]);
    }
}
