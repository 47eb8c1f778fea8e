//! The datapath as its owner sees it: ports, control through [`Dpif`], threads, counters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use base::{Clock, DpPort, DropReason};
use dpif::{
    Capabilities, DpActions, DpFlow, DpFlowEntry, DpFlowStats, DpStats, Dpif, DpifError, EventLog, Execution, FlowId,
    MeterConfig, MeterId, MeterStats, Meters, OffloadInfo, PortInfo, PortStats, RoundHistory, RoundWatch, ThreadConfig,
    ThreadInfo, ThreadStats, UpcallHandler, UpcallStats, Usage,
};
use flow::ReceivedOptions;
use netdev::qos::{Policing, QosReport, QosSpec};
use netdev::{Accelerator, Netdev};
use packet::{Batch, Packet};
use parking_lot::Mutex;
use tunnel::header::{Pop, PortRange};

use crate::bonds::Bonds;
use crate::execute::{self, Context};
use crate::forward::Forwarder;
use crate::megaflow::IndexKind;
use crate::microflow::MicroflowCache;
use crate::pmd::PmdThreads;
use crate::port::{PORTS_MAX, Port, PortId};
use crate::shared::SharedState;
use crate::thread::{PollScope, Worker};
use crate::upcall::Server;

/// The configuration of a datapath.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Minimum number of packet threads while they are not pinned to cores. With 0 the datapath never starts any, and
    /// the caller moves packets by [`Datapath::run_once`].
    pub threads: usize,
    /// Maximum number of flows; packets of further misses are forwarded, but no flow is installed for them.
    pub flow_limit: u64,
    /// Number of rounds without a packet after which a thread sleeps.
    pub empty_rounds_max: u32,
    /// Number of handler threads, if there are packet threads; 0 for one less than the number of processors, but at
    /// least one.
    pub handlers: usize,
    /// The data structure of the flow index.
    pub index: IndexKind,
    /// Whether tracked packets take flows without a look-up where the connection remembers them. Off only for comparison in
    /// tests.
    pub shortcut: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            threads: 1,
            flow_limit: 200_000,
            empty_rounds_max: 16,
            handlers: 0,
            index: IndexKind::default(),
            shortcut: true,
        }
    }
}

/// A datapath; see the crate documentation.
#[derive(Debug)]
pub struct Datapath {
    pub(crate) shared: Arc<SharedState>,
    began: std::time::Instant,
    /// The packet threads. This lock is also held while ports are added and removed.
    pmd_threads: Mutex<PmdThreads>,
    /// The only worker of a datapath without threads.
    stepped: Option<Mutex<(Worker, Server)>>,
    handlers: Mutex<Vec<JoinHandle<()>>>,
    /// Forwarders of callers of `execute`, one for each concurrent call.
    forwarders: Mutex<Vec<Forwarder>>,
}

impl Datapath {
    /// Returns a datapath without ports. Fails if a thread cannot be started.
    pub fn new(config: Config, clock: Clock) -> Result<Self, DpifError> {
        let shared = Arc::new(SharedState::new(config.clone(), clock));
        let mut pmd_threads = PmdThreads::default();
        pmd_threads.begin(&shared, config.threads)?;
        let stepped = (config.threads == 0).then(|| {
            Mutex::new((Worker::new(shared.clone(), PmdThreads::STEPPED_LANE), Server::new(shared.clone(), 0)))
        });
        let datapath = Self {
            shared,
            began: std::time::Instant::now(),
            pmd_threads: Mutex::new(pmd_threads),
            stepped,
            handlers: Mutex::default(),
            forwarders: Mutex::default(),
        };
        datapath.set_handlers(config.handlers)?;
        Ok(datapath)
    }

    /// Sets the number of handler threads: 0 for one less than the number of processors, but at least one. (Without
    /// packet threads there are none.) Must not be called from an [`UpcallHandler`].
    pub fn set_handlers(&self, wanted: usize) -> Result<(), DpifError> {
        if self.stepped.is_some() {
            return Ok(());
        }
        let mut handlers = self.handlers.lock();
        let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let n = if wanted == 0 { processors().saturating_sub(1).max(1) } else { wanted };
        self.shared.upcalls.set_handlers(n);
        while handlers.len() > n {
            let ended = handlers.pop().map(JoinHandle::join);
            debug_assert!(ended.is_none_or(|joined| joined.is_ok()), "panics are caught");
        }
        while handlers.len() < n {
            let server = Server::new(self.shared.clone(), handlers.len());
            let thread = std::thread::Builder::new().name(format!("handler{}", handlers.len()));
            let handle = thread.spawn(|| server.run());
            handlers.push(handle.map_err(|e| DpifError::Thread(format!("handler thread: {e}")))?);
        }
        Ok(())
    }

    /// Returns the number of handler threads.
    pub fn n_handlers(&self) -> usize {
        self.handlers.lock().len()
    }

    /// Returns the time since the datapath was created.
    pub fn uptime(&self) -> std::time::Duration {
        self.began.elapsed()
    }

    /// Waits until no packet waits for an upcall. Packets that packet threads have not yet processed do not count.
    pub fn settle(&self) {
        self.shared.upcalls.wait_idle();
    }

    /// Returns upcall counters by port, and the counters of handlers.
    pub fn upcall_stats(&self) -> UpcallStats {
        self.shared.upcalls.stats()
    }

    /// Sets the handler of misses.
    pub fn set_handler(&self, handler: Arc<dyn UpcallHandler>) {
        self.shared.set_handler(Some(handler));
    }

    /// Reports events to `log` while debug lines about them are wanted. The first call counts.
    pub fn set_event_log(&self, log: Arc<dyn EventLog>) {
        let _ = self.shared.event_log.set(log);
    }

    /// Sets the maximum number of flows.
    pub fn set_flow_limit(&self, flows: u64) {
        self.shared.flows.set_limit(flows);
    }

    /// Adds a port for `device`: under the number `requested` if it is free, else under the lowest free one from 1.
    /// Its queues are assigned to packet threads; more threads start if the device has more queues than there are
    /// threads. Must not be called from an [`UpcallHandler`], as this may wait for packet threads.
    pub fn port_add(&self, device: Arc<dyn Netdev>, requested: Option<DpPort>) -> Result<DpPort, DpifError> {
        self.add(device, None, requested)
    }

    /// Adds a port for the packets of tunnels with these headers, which [`dpif::DpAction::TunnelPop`] gives it. Otherwise as
    /// [`Datapath::port_add`].
    pub fn tunnel_add(
        &self,
        device: Arc<dyn Netdev>,
        headers: Pop,
        requested: Option<DpPort>,
    ) -> Result<DpPort, DpifError> {
        self.add(device, Some(headers), requested)
    }

    /// Sets the range of the UDP source ports of outer headers.
    pub fn set_tunnel_ports(&self, range: PortRange) {
        self.shared.set_tunnel_ports(range);
    }

    /// Sets which options of packets from tunnels are part of their keys.
    pub fn set_tunnel_options(&self, options: Arc<ReceivedOptions>) {
        self.shared.tunnel_options.store(options);
    }

    /// The options that are part of keys.
    pub fn tunnel_options(&self) -> Arc<ReceivedOptions> {
        self.shared.tunnel_options.load_full()
    }

    fn add(
        &self,
        device: Arc<dyn Netdev>,
        tunnel: Option<Pop>,
        requested: Option<DpPort>,
    ) -> Result<DpPort, DpifError> {
        let mut pmd_threads = self.pmd_threads.lock();
        let table = self.shared.ports.load_full();
        let wanted = requested.filter(|n| n.0 < PORTS_MAX && table.port(*n).is_none());
        let number = wanted.or_else(|| table.free_number()).ok_or(DpifError::TooManyPorts)?;
        let mut port = Port::open(PortId { number, since: table.version + 1 }, device, tunnel)?;
        let is_placed = pmd_threads.place(&mut port);
        if let Some(log) = self.shared.event_log() {
            log.port_added(port.device.name(), number);
        }
        let port = Arc::new(port);
        pmd_threads.publish(&self.shared, table.with(Arc::clone(&port)));
        self.shared.flows.offload.port_add(&port);
        if !is_placed {
            self.reconcile(&mut pmd_threads);
        }
        Ok(number)
    }

    /// Removes a port. Packet threads release its device in their next round; [`Datapath::synchronize`] waits for
    /// that.
    pub fn port_del(&self, number: DpPort) -> Result<(), DpifError> {
        let mut pmd_threads = self.pmd_threads.lock();
        let table = self.shared.ports.load_full();
        let port = table.port(number).ok_or(DpifError::NoPort(number))?;
        self.shared.flows.offload.port_del(number);
        pmd_threads.publish(&self.shared, table.without(number));
        pmd_threads.removed(port);
        if let Some(log) = self.shared.event_log() {
            log.port_deleted(number);
        }
        let dropped = self.shared.upcalls.forget(port.id);
        self.shared.count_drop(None, DropReason::NoPort, dropped as u64);
        Ok(())
    }

    /// Pins a port's queues to cores, by queue index, and applies the current number of queues and the node of its
    /// device. Must not be called from an [`UpcallHandler`].
    pub fn port_set_queues(&self, number: DpPort, affinity: &BTreeMap<usize, usize>) -> Result<(), DpifError> {
        let mut pmd_threads = self.pmd_threads.lock();
        let table = self.shared.ports.load_full();
        let old = table.port(number).ok_or(DpifError::NoPort(number))?;
        let numa = old.device.numa_id();
        if old.rx.len() == old.device.n_rxq() && old.numa == numa && *old.affinity == *affinity {
            return Ok(());
        }
        let mut port = Port::clone(old);
        port.open_queues()?;
        port.numa = numa;
        port.affinity = Arc::new(affinity.clone());
        pmd_threads.publish(&self.shared, table.with(Arc::new(port)));
        self.reconcile(&mut pmd_threads);
        Ok(())
    }

    /// Sets up QoS of a port in userspace, or removes it. Flows that an accelerator forwards come back while a port has some.
    pub fn port_set_qos(&self, number: DpPort, spec: Option<&QosSpec>) -> Result<(), DpifError> {
        self.change_qos(number, |port| port.qos.set(spec, &*port.device).map_err(DpifError::Qos))
    }

    /// The QoS that a port has in userspace.
    pub fn port_qos(&self, number: DpPort) -> Option<QosReport> {
        self.shared.ports.load().port(number)?.qos.report()
    }

    /// Sets the ingress policing of a port.
    pub fn port_set_policing(&self, number: DpPort, policing: &Policing) -> Result<(), DpifError> {
        self.change_qos(number, |port| {
            port.qos.set_policing(policing);
            Ok(())
        })
    }

    fn change_qos(&self, number: DpPort, change: impl FnOnce(&Port) -> Result<(), DpifError>) -> Result<(), DpifError> {
        // Ports do not come or go meanwhile.
        let _pmd_threads = self.pmd_threads.lock();
        let table = self.shared.ports.load_full();
        let port = table.port(number).ok_or(DpifError::NoPort(number))?;
        let has_some = || port.qos.is_shaping() || port.qos.is_policing();
        let had_some = has_some();
        let outcome = change(port);
        if has_some() != had_some {
            self.shared.flows.offload.port_del(number);
            self.shared.flows.offload.port_add(port);
        }
        outcome
    }

    /// Waits until all packet threads use the current ports, and reassigns queues if ports were removed. Must not be
    /// called from an [`UpcallHandler`], nor while holding a lock that one takes.
    pub fn synchronize(&self) {
        match &self.stepped {
            Some(stepped) => stepped.lock().0.sync(),
            None => {
                let version = self.shared.ports.load().version;
                self.shared.wait_acknowledged(version);
            }
        }
        let mut pmd_threads = self.pmd_threads.lock();
        if pmd_threads.is_stale {
            self.reconcile(&mut pmd_threads);
        }
    }

    fn reconcile(&self, pmd_threads: &mut PmdThreads) {
        if let Err(error) = pmd_threads.reconcile(&self.shared) {
            // The present threads do the work.
            tracing::warn!(target: "dpif_netdev", "{error}");
        }
    }

    /// Applies a new configuration of packet threads. No packet in transit or in a device queue is lost. Returns an
    /// error if a thread cannot be started; the other threads then do its work. Must not be called from an
    /// [`UpcallHandler`].
    pub fn set_threads(&self, config: &ThreadConfig) -> Result<(), DpifError> {
        self.pmd_threads.lock().configure(&self.shared, config)
    }

    /// Returns the configuration of packet threads.
    pub fn thread_config(&self) -> ThreadConfig {
        self.pmd_threads.lock().config().clone()
    }

    /// Reassigns queues to packet threads, by their cost in the last minute. Must not be called from an
    /// [`UpcallHandler`].
    pub fn rebalance(&self) {
        self.pmd_threads.lock().rebalance(&self.shared);
    }

    /// Ends an interval of the history that [`Datapath::usage`] reports; to be called every [`dpif::INTERVAL_SECS`].
    /// Unpinned threads start and end as the load demands, and queues are reassigned from time to time if that pays
    /// (for pinned threads only if configured). Returns whether queues were reassigned. Must not be called from an
    /// [`UpcallHandler`].
    pub fn tick(&self) -> bool {
        self.pmd_threads.lock().tick(&self.shared)
    }

    /// Returns the packet threads by core, with their counters.
    pub fn threads(&self) -> Vec<(ThreadInfo, ThreadStats)> {
        self.pmd_threads.lock().infos(&self.shared)
    }

    /// Returns the counters of all threads that are no packet threads.
    pub fn caller_stats(&self) -> ThreadStats {
        self.shared.lanes[crate::shared::CALLER_LANE].thread_stats()
    }

    /// Sets whether packet threads keep a history of their rounds; a change forgets what is kept.
    pub fn set_metrics(&self, on: bool) {
        if self.shared.metrics.swap(on, Ordering::Relaxed) != on {
            let state = if on { "enabled" } else { "disabled" };
            tracing::info!(target: "dpif_netdev", "PMD performance metrics collection {state}");
            self.pmd_threads.lock().forget_rounds(&self.shared);
        }
    }

    /// Logs suspicious rounds as these settings say.
    pub fn set_round_watch(&self, watch: Arc<RoundWatch>) {
        self.shared.round_watch.store(watch);
    }

    /// Returns whether they do.
    pub fn has_metrics(&self) -> bool {
        self.shared.metrics.load(Ordering::Relaxed)
    }

    /// Returns the newest rounds and milliseconds of the thread with this [`ThreadInfo::id`], at most so many.
    pub fn round_history(&self, thread: u64, rounds: usize, milliseconds: usize) -> RoundHistory {
        self.pmd_threads.lock().round_history(&self.shared, thread, rounds, milliseconds)
    }

    /// Returns the load of packet threads and their queues in the last `intervals` complete intervals.
    pub fn usage(&self, intervals: usize) -> Vec<Usage> {
        self.pmd_threads.lock().usage(&self.shared, intervals)
    }

    /// Returns all ports, by number.
    pub fn ports(&self) -> Vec<PortInfo> {
        self.shared.ports.load().iter().map(|p| p.info()).collect()
    }

    /// Returns the counters of a port.
    pub fn port_stats(&self, number: DpPort) -> Result<PortStats, DpifError> {
        self.shared.ports.load().port(number).map(|p| p.stats()).ok_or(DpifError::NoPort(number))
    }

    /// Returns the number of dropped packets by reason, over all ports, including removed ones.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        self.shared.drops().nonzero().collect()
    }

    /// Returns those of them that the actions of flows have dropped.
    pub fn flow_drops(&self) -> Vec<(DropReason, u64)> {
        self.shared.flow_drops().nonzero().collect()
    }

    /// Returns the number of flows that were not installed because of the flow limit.
    pub fn flows_refused(&self) -> u64 {
        self.shared.flows_refused.load(Ordering::Relaxed)
    }

    /// Returns the counters of each packet thread.
    pub fn thread_stats(&self) -> Vec<ThreadStats> {
        self.threads().into_iter().map(|(_, stats)| stats).collect()
    }

    /// Sets the inverse probability of insertion into the microflow cache; 0 turns the cache off.
    pub fn set_microflow_inverse_probability(&self, n: u32) {
        if self.shared.inverse_probability.swap(n, Ordering::Relaxed) == n {
            return;
        }
        if n == 0 {
            tracing::info!(target: "dpif_netdev", "EMC insertion probability changed to zero");
        } else {
            let percent = 100.0 / f64::from(n);
            tracing::info!(target: "dpif_netdev", "EMC insertion probability changed to 1/{n} (~{percent:.2}%)");
        }
    }

    /// Returns the size of an entry of the microflow cache with its key, in bytes.
    pub const fn microflow_entry_bytes() -> usize {
        MicroflowCache::entry_bytes()
    }

    /// Sets the accelerator that forwards flows between ports; `None` removes it.
    pub fn set_accelerator(&self, accelerator: Option<Arc<dyn Accelerator>>) {
        // No port is added or removed meanwhile.
        let _pmd_threads = self.pmd_threads.lock();
        self.shared.flows.offload.set(accelerator, &mut self.shared.ports.load().iter().cloned());
    }

    /// Returns the state of the accelerator, if there is one.
    pub fn offload(&self) -> Option<OffloadInfo> {
        self.shared.flows.offload.info()
    }

    /// Returns the type of the accelerator that a port is added to, or the reason why the accelerator does not
    /// support it; `None` without an accelerator.
    pub fn port_offload(&self, number: DpPort) -> Option<Result<&'static str, String>> {
        self.shared.flows.offload.port(number)
    }

    /// Sets the self-check, which translates every `every`-th packet that a flow covers again to find wrong flows
    /// ([`UpcallHandler::check`]); 0 turns it off.
    pub fn set_self_check(&self, every: u64) {
        self.shared.check_every.store(every, Ordering::Relaxed);
    }

    /// Without threads: runs one round over all ports on the caller's thread. Returns the number of packets received.
    /// (With threads it does nothing.) Must not be called from an [`UpcallHandler`].
    pub fn run_once(&self) -> usize {
        let Some(stepped) = &self.stepped else { return 0 };
        let (worker, server) = &mut *stepped.lock();
        worker.retry_broken();
        let received = worker.round(PollScope::All, std::time::Instant::now()).packets;
        server.drain();
        received
    }

    /// Without threads: runs rounds until one receives no packet, at most `rounds_max`. Returns the number of packets
    /// received.
    pub fn run_until_idle(&self, rounds_max: usize) -> usize {
        (0..rounds_max).map(|_| self.run_once()).take_while(|n| *n > 0).sum()
    }

    /// Ends the packet threads, drops the handler and closes all ports. Afterwards no packet moves.
    pub fn shutdown(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        let threads = self.pmd_threads.lock().dismiss();
        for thread in threads {
            // If a handler holds the last reference, this runs on a packet thread, which cannot join itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
        self.shared.upcalls.set_handlers(0);
        for handler in std::mem::take(&mut *self.handlers.lock()) {
            if handler.thread().id() != std::thread::current().id() {
                let _ = handler.join();
            }
        }
        self.shared.upcalls.clear();
        self.shared.set_handler(None);
        self.set_accelerator(None);
        let pmd_threads = self.pmd_threads.lock();
        let none = self.shared.ports.load().emptied();
        pmd_threads.publish(&self.shared, none);
        drop(pmd_threads);
        if let Some(stepped) = &self.stepped
            && let Some(mut stepped) = stepped.try_lock()
        {
            stepped.0.sync();
        }
    }
}

impl Drop for Datapath {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Datapath {
    /// The bonds that it balances.
    pub(crate) fn bonds(&self) -> &Bonds {
        &self.shared.bonds
    }
}

impl Meters for Datapath {
    fn meter_add(&self, config: &MeterConfig) -> Result<MeterId, DpifError> {
        self.shared.meters.add(config, self.shared.clock.now())
    }

    fn meter_set(&self, id: MeterId, config: &MeterConfig) -> Result<(), DpifError> {
        self.shared.meters.set(id, config, self.shared.clock.now())
    }

    fn meter_get(&self, id: MeterId) -> Result<(MeterConfig, MeterStats), DpifError> {
        self.shared.meters.entry(id).ok_or(DpifError::NoMeter)
    }

    fn meter_del(&self, id: MeterId) -> Result<MeterStats, DpifError> {
        self.shared.meters.del(id)
    }

    fn meter_run(&self, id: MeterId, packets: &mut Batch) {
        execute::meter::run(&self.shared, None, id, packets);
    }
}

impl Dpif for Datapath {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            sample_nesting_max: 10,
            hash_algorithm_max: 1,
            mpls_depth_max: 3,
            tunnels: true,
            balance_tcp: true,
            conntrack: true,
        }
    }

    fn execute(&self, port: DpPort, packet: Packet, actions: &DpActions) -> Result<(), DpifError> {
        let mut failed = Ok(());
        let one = Execution { port, packet, actions: actions.clone() };
        self.execute_all(&mut vec![one], &mut |error| failed = Err(error));
        failed
    }

    fn execute_all(&self, executions: &mut Vec<Execution>, failed: &mut dyn FnMut(DpifError)) {
        let kept = self.forwarders.lock().pop();
        let mut forwarder = kept.unwrap_or_else(Forwarder::for_caller);
        let shared = &*self.shared;
        let (ports, log) = (shared.ports.load_full(), shared.event_log());
        for Execution { port, packet, actions } in executions.drain(..) {
            if let Some(log) = log {
                log.executing(&packet, &actions);
            }
            let from = ports.port(port).map(|p| &**p);
            let context = Context { shared, ports: &ports, in_port: port, from, now: shared.clock.now() };
            if let Some(reason) = forwarder.execute(context, packet, &actions) {
                failed(DpifError::Dropped(reason));
            }
        }
        forwarder.flush(shared, &ports);
        self.forwarders.lock().push(forwarder);
    }

    fn flow_put(&self, id: FlowId, flow: DpFlow) -> Result<(), DpifError> {
        let log = self.shared.event_log();
        let old = log.and_then(|_| self.shared.flows.entry(id));
        if !self.shared.install(id, flow, &|id, stats| self.shared.report_gone(id, stats)) {
            return Err(DpifError::TooManyFlows);
        }
        if let Some(log) = log
            && let Some(flow) = self.shared.flows.entry(id)
        {
            log.flow_put(&flow, old.as_ref());
        }
        Ok(())
    }

    fn flow_del(&self, id: FlowId) -> Result<DpFlowStats, DpifError> {
        let stats = self.shared.flows.del(id)?;
        if let Some(log) = self.shared.event_log() {
            log.flow_deleted(id, &stats);
        }
        Ok(stats)
    }

    fn flow_get(&self, id: FlowId) -> Option<DpFlowEntry> {
        self.shared.flows.entry(id)
    }

    fn flow_stats(&self, each: &mut dyn FnMut(FlowId, DpFlowStats)) {
        self.shared.flows.stats(each);
        // The caller is no packet thread and calls this rarely.
        while self.shared.tune(&|id, stats| self.shared.report_gone(id, stats)) {}
    }

    fn flow_dump(&self) -> Vec<DpFlowEntry> {
        self.shared.flows.dump()
    }

    fn set_vlans_max(&self, tags: usize) {
        self.shared.vlans_max.store(tags.clamp(1, flow::extract::VLANS), Ordering::Relaxed);
    }

    fn set_generation(&self, generation: u64) {
        self.shared.flows.set_generation(generation);
    }

    fn stats(&self) -> DpStats {
        let (flows, masks) = self.shared.flows.counts();
        let mut stats = DpStats { flows, masks, ..DpStats::default() };
        for lane in self.shared.lanes.iter() {
            stats.hit += lane.hit.load(Ordering::Relaxed);
            stats.missed += lane.missed.load(Ordering::Relaxed);
            stats.lost += lane.lost.load(Ordering::Relaxed);
            stats.mask_hits += lane.probes.load(Ordering::Relaxed);
        }
        stats
    }
}
