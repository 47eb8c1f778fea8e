//! Assignment of receive queues to packet threads: computed, applied in two steps (see [`crate::pmd`]), and computed anew
//! when that pays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::log::{isolates, unpinnable};
use super::{CpuPlacement, PacketThread, PmdThreads};
use crate::assign::{self, Assignment};
use crate::port::{Owner, Port, PortTable};
use crate::shared::SharedState;
use dpif::{Algorithm, Balance, INTERVAL_SECS, INTERVALS, Policy, ThreadConfig};

/// An assignment of the queues of `ports`, in table order, by their cost in the last minute.
pub(super) struct Assigned {
    pub(super) ports: Arc<PortTable>,
    pub(super) queues: Vec<assign::Queue>,
    /// The places of the threads that could have queues.
    pub(super) places: Vec<CpuPlacement>,
    /// The indexes of these threads, as they were.
    threads: Vec<usize>,
    pub(super) assignment: Assignment,
}

impl PmdThreads {
    pub(super) fn policy(&self) -> Policy {
        Self::policy_of(&self.config)
    }

    /// How a configuration has queues assigned.
    pub(super) fn policy_of(config: &ThreadConfig) -> Policy {
        Policy { algorithm: config.policy.algorithm, isolate: isolates(config.policy) }
    }

    /// Computes an assignment of all queues to the threads whose places pass `may`.
    fn compute(&self, shared: &SharedState, may: &dyn Fn(CpuPlacement) -> bool) -> Assigned {
        let ports = shared.ports.load_full();
        let is_choice = self.threads.len() > 1 || !self.reported.is_empty();
        let queue = |port: &Port, index: usize| {
            let receiver = &port.rx[index].receiver;
            let cost = || receiver.history.lock().up_to(receiver.busy_ns.load(Ordering::Relaxed));
            let load = if is_choice { cost() } else { 0 };
            let core = port.affinity.get(&index).copied();
            assign::Queue { load, core, numa: port.numa, is_last: !port.device.is_pmd() }
        };
        let queues: Vec<_> = ports.iter().flat_map(|p| (0..p.rx.len()).map(|index| queue(p, index))).collect();
        let threads: Vec<usize> = (0..self.threads.len()).filter(|t| may(self.threads[*t].place)).collect();
        let places: Vec<CpuPlacement> = threads.iter().map(|t| self.threads[*t].place).collect();
        let thread = |place: &CpuPlacement| assign::Thread { core: place.core(), numa: place.numa() };
        let candidates: Vec<_> = places.iter().map(thread).collect();
        let assignment = assign::assign(&queues, &candidates, self.policy());
        Assigned { ports, queues, places, threads, assignment }
    }

    /// Assigns the queues of the published ports to the threads whose places pass `may`.
    pub(super) fn assign_all(&mut self, shared: &SharedState, may: &dyn Fn(CpuPlacement) -> bool) -> Assigned {
        self.is_stale = false;
        let assigned = self.compute(shared, may);
        let Assigned { ports, threads: places, assignment, .. } = &assigned;
        self.warn(ports, assignment);
        for thread in &mut self.threads {
            thread.is_isolated = false;
        }
        for (at, isolated) in places.iter().zip(&assignment.isolated) {
            self.threads[*at].is_isolated = *isolated;
        }
        self.threads.iter_mut().for_each(|thread| thread.n_queues = 0);
        for at in assignment.thread_of.iter().filter_map(|thread| places.get((*thread)?)) {
            self.threads[*at].n_queues += 1;
        }
        let owner = |thread: &Option<usize>| {
            let thread = &self.threads[*places.get((*thread)?)?];
            Some(Owner { lane: thread.lane, core_id: thread.place.core_id() })
        };
        let owners: Vec<_> = assignment.thread_of.iter().map(owner).collect();
        let (mut moves, mut gains) = (false, false);
        for (queue, new) in ports.iter().flat_map(|port| &port.rx).zip(&owners) {
            moves |= queue.owner.is_some() && queue.owner != *new;
            gains |= queue.owner.is_none() && new.is_some();
        }
        if moves || gains {
            // Unowned queues start immediately; queues in transit have no owner.
            self.publish(
                shared,
                owned(ports, &owners, |old, new| if old.is_none() || old == new { new } else { None }),
            );
        }
        if moves {
            let ports = shared.ports.load_full();
            shared.wait_acknowledged(ports.version);
            self.publish(shared, owned(&ports, &owners, |_, new| new));
        }
        assigned
    }

    /// Reassigns all queues.
    pub(crate) fn rebalance(&mut self, shared: &SharedState) {
        let assigned = self.assign_all(shared, &|_| true);
        self.log_threads(&assigned.ports);
        self.log_assignment(shared, &assigned);
    }

    /// Logs each problem of an assignment once, but for those of queues that [`PmdThreads::log_assignment`] names.
    fn warn(&mut self, ports: &PortTable, assignment: &Assignment) {
        let mut warnings = BTreeSet::new();
        let queues = ports.iter().flat_map(|port| (0..port.rx.len()).map(move |index| (port, index)));
        for (at, (port, index)) in queues.enumerate() {
            if assignment.unpinnable.contains(&at)
                && !port.device.is_pmd()
                && let Some(core) = port.affinity.get(&index)
            {
                warnings.insert(unpinnable(*core, port.device.name(), index));
            }
        }
        if assignment.crowded {
            let text = "All cores are isolated by pmd-rxq-affinity; rx queues that are not pinned share them.";
            warnings.insert(text.to_owned());
        }
        for warning in warnings.difference(&self.warned) {
            tracing::warn!(target: "dpif_netdev", "{warning}");
        }
        self.warned = warnings;
    }

    /// Ends an interval of the history. Returns whether queues were reassigned.
    pub(crate) fn tick(&mut self, shared: &Arc<SharedState>) -> bool {
        for thread in &mut self.threads {
            thread.elapsed.tick(thread.began.elapsed().as_nanos() as u64);
            thread.busy.tick(shared.lanes[thread.lane].busy_ns.load(Ordering::Relaxed));
        }
        for queue in shared.ports.load().iter().flat_map(|port| &port.rx) {
            queue.receiver.history.lock().tick(queue.receiver.busy_ns.load(Ordering::Relaxed));
        }
        let runs_anywhere = self.config.cpus.is_empty() && self.least > 0;
        if runs_anywhere && self.follow_load(shared) {
            return true;
        }
        let balance = match self.config.balance {
            balance if balance.is_on => balance,
            _ if runs_anywhere => Balance::default(),
            _ => return false,
        };
        self.ticks += 1;
        if self.ticks < balance.interval_mins.max(1) * 60 / INTERVAL_SECS {
            return false;
        }
        self.ticks = 0;
        let pays = self.balancing_pays(shared, balance);
        if pays {
            if balance.is_on {
                tracing::info!(
                    target: "dpif_netdev",
                    "PMD auto load balance dry run. Requesting datapath reconfigure."
                );
            } else {
                tracing::info!(target: "dpif_netdev", "rx queues are assigned anew to threads that run anywhere");
            }
            self.rebalance(shared);
        }
        pays
    }

    /// Returns true if a thread that is not isolated is busy and another assignment would be better by the configured
    /// margin on some node.
    fn balancing_pays(&self, shared: &SharedState, balance: Balance) -> bool {
        let open: Vec<usize> = (0..self.threads.len()).filter(|t| !self.threads[*t].is_isolated).collect();
        if self.policy().algorithm == Algorithm::RoundRobin || open.len() < 2 {
            return false;
        }
        let is_busy = |thread: &PacketThread| {
            let (busy, elapsed) = (thread.busy.over(INTERVALS), thread.elapsed.over(INTERVALS));
            thread.elapsed.len() == INTERVALS && u128::from(busy) * 100 >= u128::from(elapsed * balance.load_percent)
        };
        if !open.iter().any(|t| is_busy(&self.threads[*t])) {
            return false;
        }
        let assigned = self.compute(shared, &|_| true);
        self.log_dry_run(shared, &assigned);
        let Assigned { ports, queues, assignment: then, .. } = assigned;
        let lane_of = |lane: usize| self.threads.iter().position(|t| t.lane == lane);
        let owners = ports.iter().flat_map(|port| &port.rx).map(|queue| lane_of(queue.owner?.lane));
        let now = Assignment { thread_of: owners.collect(), ..then.clone() };
        let several = open.iter().any(|t| now.thread_of.iter().filter(|of| **of == Some(*t)).count() > 1);
        let (now, then) = (now.loads(&queues), then.loads(&queues));
        let mut by_node: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for t in open {
            by_node.entry(self.threads[t].place.numa_id()).or_default().push(t);
        }
        let best = by_node.into_iter().map(|(numa, threads)| self.improvement(numa, &threads, &now, &then)).max();
        let is_met = best.is_some_and(|improvement| improvement >= balance.improvement_percent);
        tracing::debug!(
            target: "dpif_netdev",
            "PMD load variance improvement threshold {}% is {}.",
            balance.improvement_percent,
            if is_met { "met" } else { "not met" }
        );
        several && is_met
    }

    /// By how many percent the loads of the threads of a node would vary less. Loads are percentages of time.
    fn improvement(&self, numa: usize, threads: &[usize], now: &[u64], then: &[u64]) -> u64 {
        let percent = |loads: &[u64], t: usize| {
            let elapsed = self.threads[t].elapsed.over(INTERVALS).max(1);
            (u128::from(loads[t]) * 100 / u128::from(elapsed)) as u64
        };
        let of = |loads: &[u64]| threads.iter().map(|t| percent(loads, *t)).collect::<Vec<_>>();
        let (now, then) = (of(now), of(then));
        let improvement = assign::improvement_percent(&now, &then);
        tracing::debug!(
            target: "dpif_netdev",
            "Numa node {numa}. Current variance {} Estimated variance {}. Variance improvement {improvement}%.",
            assign::variance(&now) as u64,
            assign::variance(&then) as u64
        );
        improvement
    }
}

/// The next table, in which each queue has the owner that `choose` returns for its old owner and its entry in `owners`.
fn owned(
    ports: &PortTable,
    owners: &[Option<Owner>],
    choose: impl Fn(Option<Owner>, Option<Owner>) -> Option<Owner>,
) -> PortTable {
    let mut owners = owners.iter();
    ports.map(|port| {
        let new: Vec<_> = port.rx.iter().zip(&mut owners).map(|(queue, new)| choose(queue.owner, *new)).collect();
        if port.rx.iter().zip(&new).all(|(queue, new)| queue.owner == *new) {
            return None;
        }
        let mut port = port.clone();
        port.rx.iter_mut().zip(new).for_each(|(queue, new)| queue.owner = new);
        Some(port)
    })
}
