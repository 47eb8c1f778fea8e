//! State shared by all threads of a datapath: the published port table, the flows, the upcall handler, counters.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::ops::Index;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};
use base::drop::DropCounters;
use base::rng::Rng;
use base::{Clock, DropReason};
use conntrack::Tracker;
use conntrack::fragments::Fragments;
use dpif::{DpFlow, DpFlowStats, EventLog, FlowId, UpcallHandler};
use flow::ReceivedOptions;
use packet::buf::BATCH_MAX;
use parking_lot::{Condvar, Mutex};
use vlog::{RateLimit, warn_rl};

use crate::bonds::Bonds;
use crate::datapath::Config;
use crate::execute::AnswerLimit;
use crate::flows::{Flows, Installed};
use crate::lane;
use crate::megaflow::{Counter, Megaflow};
use crate::meter::Meters;
use crate::port::{Port, PortTable};
use crate::rounds::{Rounds, Totals};
use crate::tx::adder;
use crate::upcall::Upcalls;
use dpif::{RoundWatch, ThreadStats};
use tunnel::header::PortRange;

/// A callback that receives each removed flow with its final statistics.
pub(crate) type Gone<'a> = &'a dyn Fn(FlowId, DpFlowStats);

/// SharedState state; see the module documentation.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) ports: ArcSwap<PortTable>,
    /// The version of `ports`, stored after the table itself.
    ports_version: AtomicU64,
    pub(crate) flows: Flows,
    pub(crate) upcalls: Upcalls,
    pub(crate) meters: Meters,
    pub(crate) bonds: Bonds,
    /// Connections of packets.
    pub(crate) tracker: Tracker,
    handler: ArcSwapOption<Handler>,
    /// See [`SharedState::event_log`].
    pub(crate) event_log: OnceLock<Arc<dyn EventLog>>,
    /// Counters of each lane.
    pub(crate) lanes: Lanes,
    /// Flows that were not installed because of the flow limit.
    pub(crate) flows_refused: AtomicU64,
    /// Maximum number of VLAN tags in keys.
    pub(crate) vlans_max: AtomicUsize,
    /// The bounds of UDP source ports of outer headers: the lowest in the upper half.
    pub(crate) tunnel_ports: AtomicU32,
    /// The next identification of an outer packet that may be fragmented.
    pub(crate) identification: AtomicU32,
    /// Limits answers to packets that are too long for tunnels.
    pub(crate) path_mtu_limit: Mutex<AnswerLimit>,
    /// The options of received packets that keys have.
    pub(crate) tunnel_options: ArcSwap<ReceivedOptions>,
    /// Fragments of the outer packets of tunnels.
    pub(crate) outer_fragments: Mutex<Fragments>,
    pub(crate) stopping: AtomicBool,
    /// See [`crate::microflow`].
    pub(crate) inverse_probability: AtomicU32,
    /// The self-check translates one in this number of cached packets again; 0 turns it off.
    pub(crate) check_every: AtomicU64,
    /// Whether packet threads keep a history of their rounds.
    pub(crate) metrics: AtomicBool,
    /// Which of these rounds are logged.
    pub(crate) round_watch: ArcSwap<RoundWatch>,
    /// The version of the port table that each thread uses, by lane.
    acknowledged: Mutex<BTreeMap<usize, u64>>,
    acknowledgement: Condvar,
}

fn packed(range: PortRange) -> u32 {
    let (min, max) = range.bounds();
    u32::from(min) << 16 | u32::from(max)
}

/// A sized wrapper of the handler, as `ArcSwap` needs a sized type.
#[derive(Debug)]
struct Handler(Arc<dyn UpcallHandler>);

/// The lane of callers that are no packet threads.
pub(crate) const CALLER_LANE: usize = 0;
/// Maximum number of lanes.
pub(crate) const LANES_MAX: usize = 1025;

/// Counters of all lanes: first that of callers, then those of packet threads. A lane's counters are allocated when
/// it is first used, and stay when its thread ends, so that sums include them. Only one thread has a lane at a time.
#[derive(Debug)]
pub(crate) struct Lanes(Box<[OnceLock<Box<LaneCounters>>]>);

impl Lanes {
    fn new() -> Self {
        let lanes = Self((0..LANES_MAX).map(|_| OnceLock::new()).collect());
        lanes.make(CALLER_LANE);
        lanes
    }

    /// Allocates a lane's counters, if needed; to be called before a thread gets the lane.
    pub(crate) fn make(&self, lane: usize) {
        if let Some(place) = self.0.get(lane) {
            place.get_or_init(Box::default);
        }
    }

    /// Counters of all lanes that were ever used.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LaneCounters> {
        self.0.iter().filter_map(OnceLock::get).map(|lane| &**lane)
    }
}

impl Index<usize> for Lanes {
    type Output = LaneCounters;

    #[inline]
    fn index(&self, lane: usize) -> &LaneCounters {
        self.0[lane].get().expect("allocated before a thread got the lane")
    }
}

/// Counters of one lane. Its packet thread alone writes them ([`bump_own`]), except for lane 0, which all other
/// threads share ([`bump`]). They share no cache line with other lanes.
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
    /// Hits of the microflow cache, included in `hit`.
    pub(crate) microflow_hit: AtomicU64,
    /// Recirculated packets.
    pub(crate) recirculated: AtomicU64,
    /// Packets that no flow covered, including lost ones. (`missed` counts upcalls.)
    pub(crate) misses: AtomicU64,
    pub(crate) checks: AtomicU64,
    pub(crate) checks_failed: AtomicU64,
    /// Batches by number of packets: of one packet, of two, and so on.
    pub(crate) batch_sizes: [AtomicU64; BATCH_MAX],
    /// Packets and batches accepted by devices.
    pub(crate) tx_packets: AtomicU64,
    pub(crate) tx_batches: AtomicU64,
    /// Drops of packets from all ports, and of packets without an ingress port.
    pub(crate) drops: DropCounters,
    /// The drops among them that are actions of flows.
    pub(crate) flow_drops: DropCounters,
    /// Nanoseconds in rounds without packets, including time asleep.
    pub(crate) idle_ns: AtomicU64,
    /// Nanoseconds asleep.
    pub(crate) sleep_ns: AtomicU64,
    /// Rounds with packets, by [`bucket`] of the number of packets, of the nanoseconds, and of the nanoseconds a
    /// packet.
    pub(crate) rounds_by_packets: [AtomicU64; BUCKETS],
    pub(crate) rounds_by_ns: [AtomicU64; BUCKETS],
    pub(crate) rounds_by_packet_ns: [AtomicU64; BUCKETS],
    /// The last rounds, if there are metrics.
    pub(crate) last_rounds: Rounds,
}

/// Number of buckets of a histogram.
pub(crate) const BUCKETS: usize = 32;

/// Returns the bucket of `n`: the upper bound of each bucket is twice that of the one before; the last one is
/// unbounded.
fn bucket(n: u64) -> usize {
    ((u64::BITS - n.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// Adds to a counter of a packet thread's lane. Only that thread may call this.
#[inline]
pub(crate) fn bump_own(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

/// Returns the number under which the thread of a lane counts packets of flows.
#[inline]
pub(crate) fn counter_of(lane: usize) -> Counter {
    if lane == CALLER_LANE { None } else { u16::try_from(lane).ok().and_then(NonZeroU16::new) }
}

/// Adds to a lane's drop counters.
pub(crate) fn count_drop_in(counters: &DropCounters, lane: usize, reason: DropReason, n: u64) {
    if lane == CALLER_LANE {
        counters.add(reason, n);
    } else {
        counters.add_own(reason, n);
    }
}

/// Adds to a counter that several threads write.
pub(crate) fn bump(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// Limit on messages about suspicious rounds.
static SLOW: RateLimit = RateLimit::new(600, 600);

impl LaneCounters {
    /// Records a round of the lane's own thread: the packets received, and the nanoseconds since the round before.
    pub(crate) fn count_round(&self, packets: u64, ns: u64) {
        if packets == 0 {
            return bump_own(&self.idle_ns, ns);
        }
        bump_own(&self.busy_ns, ns);
        bump_own(&self.rounds_by_packets[bucket(packets)], 1);
        bump_own(&self.rounds_by_ns[bucket(ns)], 1);
        bump_own(&self.rounds_by_packet_ns[bucket(ns / packets)], 1);
    }

    /// Keeps a round of the lane's own thread for the history.
    #[cold]
    pub(crate) fn remember_round(&self, packets: u64, ns: u64, now: Instant, watch: &RoundWatch) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let totals = Totals { rounds: load(&self.rounds), batches: load(&self.batches), misses: load(&self.misses) };
        self.last_rounds.add(totals, packets, ns, now);
        if !watch.is_on() {
            return;
        }
        if let Some(slow) = self.last_rounds.watch(watch) {
            let (round, table) = watch.report(&slow);
            warn_rl!(&SLOW, target: "pmd_perf", "{round}");
            warn_rl!(&SLOW, target: "pmd_perf", "{table}");
        }
    }

    /// Records a batch of which a device accepted `packets` packets. The calling thread has `lane`.
    pub(crate) fn count_sent(&self, lane: usize, packets: u64) {
        let add = adder(lane);
        add(&self.tx_packets, packets);
        add(&self.tx_batches, 1);
    }

    /// Records a sleep of the lane's own thread.
    pub(crate) fn count_sleep(&self, ns: u64) {
        bump_own(&self.idle_ns, ns);
        bump_own(&self.sleep_ns, ns);
    }

    /// Returns the counters of a packet thread.
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

impl SharedState {
    pub(crate) fn new(config: Config, clock: Clock) -> Self {
        Self {
            flows: Flows::new(config.index, config.flow_limit, clock.clone()),
            clock,
            ports: ArcSwap::default(),
            ports_version: AtomicU64::new(0),
            upcalls: Upcalls::default(),
            meters: Meters::default(),
            bonds: Bonds::default(),
            tracker: Tracker::new(Rng::from_entropy().next_u64()),
            handler: ArcSwapOption::empty(),
            event_log: OnceLock::new(),
            lanes: Lanes::new(),
            flows_refused: AtomicU64::new(0),
            vlans_max: AtomicUsize::new(flow::extract::VLANS),
            tunnel_ports: AtomicU32::new(packed(PortRange::default())),
            identification: AtomicU32::new(Rng::from_entropy().next_u64() as u32),
            path_mtu_limit: Mutex::default(),
            tunnel_options: ArcSwap::default(),
            outer_fragments: Mutex::new(crate::execute::outer_fragments()),
            stopping: AtomicBool::new(false),
            inverse_probability: AtomicU32::new(crate::microflow::INVERSE_PROBABILITY),
            check_every: AtomicU64::new(0),
            metrics: AtomicBool::new(false),
            round_watch: ArcSwap::default(),
            acknowledged: Mutex::default(),
            acknowledgement: Condvar::new(),
            config,
        }
    }

    /// The range of UDP source ports of outer headers.
    #[inline]
    pub(crate) fn tunnel_ports(&self) -> PortRange {
        let packed = self.tunnel_ports.load(Ordering::Relaxed);
        PortRange::new((packed >> 16) as u16, packed as u16).unwrap_or_default()
    }

    /// Sets the same.
    pub(crate) fn set_tunnel_ports(&self, range: PortRange) {
        self.tunnel_ports.store(packed(range), Ordering::Relaxed);
    }

    pub(crate) fn handler(&self) -> Option<Arc<dyn UpcallHandler>> {
        self.handler.load().as_ref().map(|h| h.0.clone())
    }

    /// The debug log, while it is wanted. Called for misses and operations, not for packets that flows cover.
    #[inline]
    pub(crate) fn event_log(&self) -> Option<&dyn EventLog> {
        let is_on = tracing::enabled!(target: "dpif_netdev", tracing::Level::DEBUG)
            || tracing::enabled!(target: "dpif", tracing::Level::DEBUG);
        if is_on { self.event_log.get().map(|log| &**log) } else { None }
    }

    /// Logs that the flow of a miss was installed.
    pub(crate) fn log_added(&self, id: FlowId) {
        if let Some(log) = self.event_log()
            && let Some(flow) = self.flows.entry(id)
        {
            log.flow_added(&flow);
        }
    }

    pub(crate) fn set_handler(&self, handler: Option<Arc<dyn UpcallHandler>>) {
        self.handler.store(handler.map(|h| Arc::new(Handler(h))));
    }

    /// Counts a drop in the counters of the calling thread's lane: in total, and at the ingress port if it is known.
    pub(crate) fn count_drop(&self, from: Option<&Port>, reason: DropReason, n: u64) {
        let lane = lane::current();
        count_drop_in(&self.lanes[lane].drops, lane, reason, n);
        if let Some(port) = from {
            port.count_rx_drop(lane, reason, n);
        }
    }

    /// Counts a drop that is an action of a flow.
    pub(crate) fn count_flow_drop(&self, from: Option<&Port>, reason: DropReason, n: u64) {
        let lane = lane::current();
        count_drop_in(&self.lanes[lane].flow_drops, lane, reason, n);
        self.count_drop(from, reason, n);
    }

    /// Returns the drops of packets from all ports, including removed ones, and of packets without an ingress port.
    pub(crate) fn drops(&self) -> DropCounters {
        let sum = DropCounters::default();
        self.lanes.iter().for_each(|lane| sum.add_all(&lane.drops));
        sum
    }

    /// Returns those of them that were actions of flows.
    pub(crate) fn flow_drops(&self) -> DropCounters {
        let sum = DropCounters::default();
        self.lanes.iter().for_each(|lane| sum.add_all(&lane.flow_drops));
        sum
    }

    /// Installs a flow, and passes the flows that it replaces to `gone`. Returns whether it was installed. On a
    /// packet thread, an installation that would block is deferred: the flow is installed later, or reported as removed.
    pub(crate) fn install(&self, id: FlowId, flow: DpFlow, gone: Gone<'_>) -> bool {
        if lane::current() == CALLER_LANE {
            return self.settle_installed(self.flows.put(id, flow), gone);
        }
        match self.flows.put_quickly(id, flow).or_else(|refused| self.upcalls.defer_install(refused)) {
            Ok(()) => true,
            Err(flow) => self.settle_installed(self.flows.put_flow(flow), gone),
        }
    }

    /// Installs a flow whose installation a packet thread deferred.
    pub(crate) fn install_deferred(&self, flow: Arc<Megaflow>) {
        let id = flow.id;
        let gone = |id, stats| self.report_gone(id, stats);
        if self.settle_installed(self.flows.put_flow(flow), &gone) {
            self.log_added(id);
        } else {
            // The switch considers the flow as installed, so report that it is gone.
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

    /// Does one step of maintenance of the flow index, and passes flows that this removes to `gone`. Returns whether
    /// there is more to do.
    pub(crate) fn tune(&self, gone: Gone<'_>) -> bool {
        let (out, more) = self.flows.tune();
        out.iter().for_each(|old| gone(old.id, old.stats()));
        more
    }

    /// Reports a removed flow to the handler, which may block.
    pub(crate) fn report_gone(&self, id: FlowId, stats: DpFlowStats) {
        if let Some(handler) = self.handler() {
            handler.flow_gone(id, stats);
        }
    }

    /// Reports a removed flow from a packet thread: a handler thread does it, if there is one.
    pub(crate) fn defer_gone(&self, id: FlowId, stats: DpFlowStats) {
        if !self.upcalls.defer_gone(id, stats) {
            self.report_gone(id, stats);
        }
    }

    /// Publishes `table` as the port table. Only one thread may do so at a time.
    pub(crate) fn publish(&self, table: PortTable) {
        let version = table.version;
        self.ports.store(Arc::new(table));
        self.ports_version.store(version, Ordering::Release);
    }

    /// Returns true if `table` is the current port table.
    #[inline]
    pub(crate) fn is_current(&self, table: &PortTable) -> bool {
        self.ports_version.load(Ordering::Acquire) == table.version
    }

    /// Records that the thread of `lane` uses the port table of `version` from now on. Version 0, recorded before the
    /// thread starts, makes [`SharedState::wait_acknowledged`] wait for it.
    pub(crate) fn acknowledge(&self, lane: usize, version: u64) {
        self.acknowledged.lock().insert(lane, version);
        self.acknowledgement.notify_all();
    }

    /// Records that the thread of `lane` has ended.
    pub(crate) fn acknowledge_end(&self, lane: usize) {
        self.acknowledged.lock().remove(&lane);
        self.acknowledgement.notify_all();
    }

    /// Waits until every thread uses the port table of `version` or a later one, or has ended.
    pub(crate) fn wait_acknowledged(&self, version: u64) {
        let mut acknowledged = self.acknowledged.lock();
        while acknowledged.values().any(|s| *s < version) {
            self.acknowledgement.wait(&mut acknowledged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_counted_by_size_and_duration() {
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
