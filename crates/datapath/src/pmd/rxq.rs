//! Assignment of receive queues to packet threads: computed, applied in two steps (see [`crate::pmd`]), and computed anew
//! when that pays.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{CpuPlacement, PacketThread, PmdThreads};
use crate::assign::{self, Assignment};
use crate::port::{Owner, Port, PortTable};
use crate::shared::SharedState;
use dpif::{Algorithm, Balance, INTERVAL_SECS, INTERVALS, Policy};

impl PmdThreads {
    fn policy(&self) -> Policy {
        let Policy { algorithm, isolate } = self.config.policy;
        Policy { algorithm, isolate: isolate || algorithm != Algorithm::Group }
    }

    /// Computes an assignment of the queues of `ports`, in table order, to the threads whose places pass `may`, by the
    /// queues' cost in the last minute. Returns the queues, the indexes of these threads, and the assignment.
    fn compute(
        &self,
        ports: &PortTable,
        may: &dyn Fn(CpuPlacement) -> bool,
    ) -> (Vec<assign::Queue>, Vec<usize>, Assignment) {
        let is_choice = self.threads.len() > 1;
        let queue = |port: &Port, index: usize| {
            let receiver = &port.rx[index].receiver;
            let cost = || receiver.history.lock().up_to(receiver.busy_ns.load(Ordering::Relaxed));
            let load = if is_choice { cost() } else { 0 };
            assign::Queue { load, core: port.affinity.get(&index).copied(), numa: port.device.numa_id() }
        };
        let queues: Vec<_> = ports.iter().flat_map(|p| (0..p.rx.len()).map(|index| queue(p, index))).collect();
        let places: Vec<usize> = (0..self.threads.len()).filter(|t| may(self.threads[*t].place)).collect();
        let thread = |at: &usize| {
            let place = self.threads[*at].place;
            assign::Thread { core: place.core(), numa: place.numa() }
        };
        let threads: Vec<_> = places.iter().map(thread).collect();
        let assignment = assign::assign(&queues, &threads, self.policy());
        (queues, places, assignment)
    }

    /// Assigns the queues of the published ports to the threads whose places pass `may`.
    pub(super) fn assign_all(&mut self, shared: &SharedState, may: &dyn Fn(CpuPlacement) -> bool) {
        self.is_stale = false;
        let ports = shared.ports.load_full();
        let (_, places, assignment) = self.compute(&ports, may);
        self.warn(&ports, &assignment);
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
                owned(&ports, &owners, |old, new| if old.is_none() || old == new { new } else { None }),
            );
        }
        if moves {
            let ports = shared.ports.load_full();
            shared.wait_acknowledged(ports.version);
            self.publish(shared, owned(&ports, &owners, |_, new| new));
        }
    }

    /// Reassigns all queues.
    pub(crate) fn rebalance(&mut self, shared: &SharedState) {
        self.assign_all(shared, &|_| true);
    }

    /// Logs each problem of an assignment once.
    fn warn(&mut self, ports: &PortTable, assignment: &Assignment) {
        let mut warnings = BTreeSet::new();
        let queues = ports.iter().flat_map(|port| (0..port.rx.len()).map(move |index| (port, index)));
        for (at, (port, index)) in queues.enumerate() {
            if assignment.unpinnable.contains(&at)
                && let Some(core) = port.affinity.get(&index)
            {
                let name = port.device.name();
                warnings.insert(format!(
                    "Core {core:2} cannot be pinned with port '{name}' rx queue {index}. Use pmd-cpu-mask to enable a pmd \
                     on core {core}. An alternative core will be assigned."
                ));
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
        let Some(balance) = self.config.balance.or(runs_anywhere.then(Balance::default)) else { return false };
        self.ticks += 1;
        if self.ticks < balance.interval_mins.max(1) * 60 / INTERVAL_SECS {
            return false;
        }
        self.ticks = 0;
        let pays = self.balancing_pays(shared, balance);
        if pays {
            tracing::info!(target: "dpif_netdev", "PMD auto load balance: rx queues are assigned anew.");
            self.rebalance(shared);
        }
        pays
    }

    /// Returns true if a thread that is not isolated is busy and another assignment would be better by the configured margin.
    fn balancing_pays(&self, shared: &SharedState, balance: Balance) -> bool {
        let ports = shared.ports.load_full();
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
        let (queues, _, then) = self.compute(&ports, &|_| true);
        let lane_of = |lane: usize| self.threads.iter().position(|t| t.lane == lane);
        let owners = ports.iter().flat_map(|port| &port.rx).map(|queue| lane_of(queue.owner?.lane));
        let now = Assignment { thread_of: owners.collect(), ..then.clone() };
        let at_open = |loads: Vec<u64>| open.iter().map(|t| loads[*t]).collect::<Vec<_>>();
        let several = open.iter().any(|t| now.thread_of.iter().filter(|of| **of == Some(*t)).count() > 1);
        let (now, then) = (at_open(now.loads(&queues)), at_open(then.loads(&queues)));
        several && assign::improvement_percent(&now, &then) >= balance.improvement_percent
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
