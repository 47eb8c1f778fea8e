//! The log of packet threads, in the words of Open vSwitch, which scripts wait for.
//!
//! In Open vSwitch a datapath has PMD threads while it has ports that they poll ([`netdev::Netdev::is_pmd`]); its main
//! thread polls the others. Packet threads poll all ports here. The log calls them PMD threads while there is such a port:
//! it reports them as created once there is one, and as destroyed once there is none any more. Of the receive queues it
//! names those of such ports.

use std::collections::{BTreeMap, BTreeSet};

use super::rxq::Assigned;
use super::{CpuPlacement, PmdThreads};
use crate::port::{Port, PortTable};
use crate::shared::SharedState;
use dpif::{Algorithm, Policy, RoundWatch, ThreadConfig};

impl CpuPlacement {
    /// The node that the log and commands name.
    pub(super) fn numa_id(self) -> usize {
        self.numa().unwrap_or(0)
    }
}

/// Whether a pinned queue isolates its core.
pub(super) fn isolates(policy: Policy) -> bool {
    policy.isolate || policy.algorithm != Algorithm::Group
}

impl PmdThreads {
    /// Logs what differs from the configuration `before`; all of it if there was none.
    pub(super) fn log_config(&self, before: Option<&ThreadConfig>) {
        let config = &self.config;
        let default = ThreadConfig::default();
        let has_changed = |same: fn(&ThreadConfig, &ThreadConfig) -> bool| before.is_none_or(|b| !same(b, config));
        if before.unwrap_or(&default).policy.algorithm != config.policy.algorithm {
            let name = config.policy.algorithm.name();
            tracing::info!(target: "dpif_netdev", "Rxq to PMD assignment mode changed to: '{name}'.");
        }
        if isolates(config.policy) && !config.policy.isolate {
            tracing::warn!(
                target: "dpif_netdev",
                "pmd-rxq-isolate can only be set false when using pmd-rxq-assign=group"
            );
        }
        if has_changed(|a, b| isolates(a.policy) == isolates(b.policy)) {
            let verb = if isolates(config.policy) { "isolates" } else { "does not isolate" };
            tracing::info!(target: "dpif_netdev", "pmd-rxq-affinity {verb} PMD core");
        }
        if has_changed(|a, b| a.balance == b.balance) {
            self.log_balance(before);
        }
        let sleeps = |c: &ThreadConfig| (c.sleep_us_max, c.sleep_us_max_of.clone());
        if before.is_none_or(|before| sleeps(before) != sleeps(config)) {
            let us = config.sleep_us_max;
            tracing::info!(target: "dpif_netdev", "Default PMD thread max sleep: {us:4} us.");
            self.reported.iter().for_each(|place| self.log_sleep(*place));
        }
    }

    fn log_balance(&self, before: Option<&ThreadConfig>) {
        let (before, now) = (before.map(|before| before.balance), self.config.balance);
        let (mins, load, improvement) = (now.interval_mins, now.load_percent, now.improvement_percent);
        if before.is_none_or(|before| before.interval_mins != mins) {
            tracing::info!(target: "dpif_netdev", "PMD auto load balance interval set to {mins} mins");
        }
        if before.is_none_or(|before| before.improvement_percent != improvement) {
            tracing::info!(
                target: "dpif_netdev",
                "PMD auto load balance improvement threshold set to {improvement}%"
            );
        }
        if before.is_none_or(|before| before.load_percent != load) {
            tracing::info!(target: "dpif_netdev", "PMD auto load balance load threshold set to {load}%");
        }
        if now.is_on {
            tracing::info!(
                target: "dpif_netdev",
                "PMD auto load balance is enabled, interval {mins} mins, pmd load threshold {load}%, improvement \
                 threshold {improvement}%."
            );
        } else {
            tracing::info!(target: "dpif_netdev", "PMD auto load balance is disabled.");
        }
    }

    /// Logs the longest sleep of a thread. A thread that runs anywhere has none.
    fn log_sleep(&self, place: CpuPlacement) {
        if place.core().is_some() {
            let (numa, core, us) = (place.numa_id(), place.core_id(), self.sleep_us_max(place));
            tracing::info!(
                target: "dpif_netdev",
                "PMD thread on numa_id: {numa}, core id: {core:2}, max sleep: {us:4} us."
            );
        }
    }

    /// Logs which threads were created and destroyed since the last call, and how many there are now.
    pub(super) fn log_threads(&mut self, ports: &PortTable) {
        let places: BTreeSet<CpuPlacement> = if ports.iter().any(|port| port.device.is_pmd()) {
            self.threads.iter().map(|thread| thread.place).collect()
        } else {
            BTreeSet::new()
        };
        if places == self.reported {
            return;
        }
        for place in self.reported.difference(&places) {
            let (numa, core) = (place.numa_id(), place.core_id());
            tracing::info!(target: "dpif_netdev", "PMD thread on numa_id: {numa}, core id: {core:2} destroyed.");
        }
        for place in places.difference(&self.reported) {
            self.log_sleep(*place);
            let (numa, core) = (place.numa_id(), place.core_id());
            tracing::info!(target: "dpif_netdev", "PMD thread on numa_id: {numa}, core id: {core:2} created.");
        }
        let mut by_numa: BTreeMap<usize, usize> = BTreeMap::new();
        for place in &places {
            *by_numa.entry(place.numa_id()).or_default() += 1;
        }
        for (numa, n) in by_numa {
            tracing::info!(target: "dpif_netdev", "There are {n} pmd threads on numa node {numa}");
        }
        self.reported = places;
    }

    /// Logs the assignment of all queues.
    pub(super) fn log_assignment(&self, shared: &SharedState, assigned: &Assigned) {
        if self.reported.is_empty() {
            return;
        }
        let texts = Texts { assigned, algorithm: self.policy().algorithm, watch: &shared.round_watch.load() };
        let log = |line: &Line| match line {
            Line::Info(text) => tracing::info!(target: "dpif_netdev", "{text}"),
            Line::Warning(text) => tracing::warn!(target: "dpif_netdev", "{text}"),
        };
        texts.pinned().iter().for_each(log);
        let unpinned = texts.unpinned();
        if !unpinned.is_empty() {
            let name = texts.algorithm.name();
            tracing::info!(target: "dpif_netdev", "Performing pmd to rx queue assignment using {name} algorithm.");
        }
        unpinned.iter().for_each(log);
    }

    /// Logs an assignment that is only computed, for debugging.
    pub(super) fn log_dry_run(&self, shared: &SharedState, assigned: &Assigned) {
        if self.reported.is_empty() || !tracing::enabled!(target: "dpif_netdev", tracing::Level::DEBUG) {
            return;
        }
        tracing::debug!(target: "dpif_netdev", "PMD auto load balance performing dry run.");
        let texts = Texts { assigned, algorithm: self.policy().algorithm, watch: &shared.round_watch.load() };
        for line in texts.pinned().into_iter().chain(texts.unpinned()) {
            let (Line::Info(text) | Line::Warning(text)) = line;
            tracing::debug!(target: "dpif_netdev", "{text}");
        }
    }
}

/// A line of the log.
enum Line {
    Info(String),
    Warning(String),
}

/// The lines about the queues of an assignment.
struct Texts<'a> {
    assigned: &'a Assigned,
    algorithm: Algorithm,
    watch: &'a RoundWatch,
}

impl Texts<'_> {
    /// The queues of PMD ports, in table order: position, port and index of each.
    fn queues(&self) -> impl Iterator<Item = (usize, &Port, usize)> {
        let all = self.assigned.ports.iter().flat_map(|port| (0..port.rx.len()).map(move |index| (&**port, index)));
        all.enumerate().filter(|(_, (port, _))| port.device.is_pmd()).map(|(at, (port, index))| (at, port, index))
    }

    fn place(&self, at: usize) -> Option<CpuPlacement> {
        self.assigned.places.get(self.assigned.assignment.thread_of[at]?).copied()
    }

    /// The cost of a queue, if the algorithm looks at it.
    fn cost(&self, at: usize) -> String {
        if self.algorithm == Algorithm::RoundRobin {
            return String::new();
        }
        let cycles = self.watch.cycles(self.assigned.queues[at].load);
        format!(" (measured processing cycles {cycles})")
    }

    /// The lines about pinned queues, and warnings about queues that cannot be pinned.
    fn pinned(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for (at, port, index) in self.queues() {
            let Some(core) = self.assigned.queues[at].core else { continue };
            let name = port.device.name();
            if self.assigned.assignment.unpinnable.contains(&at) {
                lines.push(Line::Warning(unpinnable(core, name, index)));
            } else if let Some(place) = self.place(at) {
                let (numa, cost) = (place.numa_id(), self.cost(at));
                lines.push(Line::Info(format!(
                    "Core {core:2} on numa node {numa} is pinned with port '{name}' rx queue {index}{cost}"
                )));
            }
        }
        lines
    }

    /// The lines about queues that are not pinned, in the order in which they were assigned. Where all cores are isolated,
    /// Open vSwitch warns in the same words, but for the last sentence: there such a queue is not polled.
    fn unpinned(&self) -> Vec<Line> {
        let queues: BTreeMap<usize, (&Port, usize)> =
            self.queues().map(|(at, port, index)| (at, (port, index))).collect();
        let mut lines = Vec::new();
        for at in &self.assigned.assignment.unpinned {
            let (Some((port, index)), Some(place)) = (queues.get(at), self.place(*at)) else { continue };
            let (numa, core, name) = (place.numa_id(), place.core_id(), port.device.name());
            let (wanted, cost) = (self.assigned.queues[*at].numa, self.cost(*at));
            if self.assigned.assignment.crowded {
                lines.push(Line::Warning(format!(
                    "No non-isolated pmd on any numa available for port '{name}' rx queue {index}{cost}. This rx queue \
                     will be polled by an isolated one."
                )));
            }
            if let (Some(wanted), Some(_)) = (wanted, place.numa())
                && wanted != numa
            {
                lines.push(Line::Info(format!(
                    "There's no available (non-isolated) pmd thread on numa node {wanted}. Port '{name}' rx queue {index} \
                     will be assigned to a pmd on numa node {numa}. This may lead to reduced performance."
                )));
            }
            let assigned = format!("Core {core:2} on numa node {numa} assigned port '{name}' rx queue {index}{cost}.");
            lines.push(Line::Info(assigned));
        }
        lines
    }
}

/// The warning about a queue that is pinned to a core without a thread.
pub(super) fn unpinnable(core: usize, port: &str, queue: usize) -> String {
    format!(
        "Core {core:2} cannot be pinned with port '{port}' rx queue {queue}. Use pmd-cpu-mask to enable a pmd on core \
         {core}. An alternative core will be assigned."
    )
}
