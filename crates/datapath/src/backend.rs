//! Implements the traits of [`dpif::backend`] for the datapath.

use crate::Datapath;
use base::{DpPort, DropReason};
use dpif::{
    BondId, BondTable, Bonds, DpifError, EventLog, LB_BUCKETS, Offload, OffloadInfo, PortInfo, PortStats, Ports,
    RoundHistory, RoundWatch, ThreadConfig, ThreadInfo, ThreadStats, Threads, UpcallHandler, UpcallStats, Upcalls,
    Usage,
};
use flow::ReceivedOptions;
use netdev::qos::{Policing, QosReport, QosSpec};
use netdev::{Accelerator, Netdev};
use std::collections::BTreeMap;
use std::sync::Arc;
use tunnel::header::{Pop, PortRange};

impl Ports for Datapath {
    fn port_add(&self, device: Arc<dyn Netdev>, requested: Option<DpPort>) -> Result<DpPort, DpifError> {
        self.port_add(device, requested)
    }

    fn tunnel_add(
        &self,
        device: Arc<dyn Netdev>,
        headers: Pop,
        requested: Option<DpPort>,
    ) -> Result<DpPort, DpifError> {
        self.tunnel_add(device, headers, requested)
    }

    fn set_tunnel_ports(&self, range: PortRange) {
        self.set_tunnel_ports(range);
    }

    fn set_tunnel_options(&self, options: Arc<ReceivedOptions>) {
        self.set_tunnel_options(options);
    }

    fn tunnel_options(&self) -> Arc<ReceivedOptions> {
        self.tunnel_options()
    }

    fn port_del(&self, port: DpPort) -> Result<(), DpifError> {
        self.port_del(port)
    }

    fn port_set_queues(&self, port: DpPort, affinity: &BTreeMap<usize, usize>) -> Result<(), DpifError> {
        self.port_set_queues(port, affinity)
    }

    fn port_set_qos(&self, port: DpPort, spec: Option<&QosSpec>) -> Result<(), DpifError> {
        self.port_set_qos(port, spec)
    }

    fn port_qos(&self, port: DpPort) -> Option<QosReport> {
        self.port_qos(port)
    }

    fn port_set_policing(&self, port: DpPort, policing: &Policing) -> Result<(), DpifError> {
        self.port_set_policing(port, policing)
    }

    fn synchronize(&self) {
        self.synchronize();
    }

    fn ports(&self) -> Vec<PortInfo> {
        self.ports()
    }

    fn port_stats(&self, port: DpPort) -> Result<PortStats, DpifError> {
        self.port_stats(port)
    }

    fn drops(&self) -> Vec<(DropReason, u64)> {
        self.drops()
    }

    fn flow_drops(&self) -> Vec<(DropReason, u64)> {
        self.flow_drops()
    }
}

impl Upcalls for Datapath {
    fn set_handler(&self, handler: Arc<dyn UpcallHandler>) {
        self.set_handler(handler);
    }

    fn set_event_log(&self, log: Arc<dyn EventLog>) {
        self.set_event_log(log);
    }

    fn set_handlers(&self, wanted: usize) -> Result<(), DpifError> {
        self.set_handlers(wanted)
    }

    fn n_handlers(&self) -> usize {
        self.n_handlers()
    }

    fn settle(&self) {
        self.settle();
    }

    fn upcall_stats(&self) -> UpcallStats {
        self.upcall_stats()
    }
}

impl Threads for Datapath {
    fn set_threads(&self, config: &ThreadConfig) -> Result<(), DpifError> {
        self.set_threads(config)
    }

    fn thread_config(&self) -> ThreadConfig {
        self.thread_config()
    }

    fn rebalance(&self) {
        self.rebalance();
    }

    fn tick(&self) -> bool {
        self.tick()
    }

    fn threads(&self) -> Vec<(ThreadInfo, ThreadStats)> {
        self.threads()
    }

    fn caller_stats(&self) -> ThreadStats {
        self.caller_stats()
    }

    fn set_metrics(&self, on: bool) {
        self.set_metrics(on);
    }

    fn set_round_watch(&self, watch: Arc<RoundWatch>) {
        self.set_round_watch(watch);
    }

    fn has_metrics(&self) -> bool {
        self.has_metrics()
    }

    fn round_history(&self, thread: u64, rounds: usize, milliseconds: usize) -> RoundHistory {
        self.round_history(thread, rounds, milliseconds)
    }

    fn usage(&self, intervals: usize) -> Vec<Usage> {
        self.usage(intervals)
    }

    fn set_microflow_inverse_probability(&self, n: u32) {
        self.set_microflow_inverse_probability(n);
    }

    fn set_flow_limit(&self, limit: u64) {
        self.set_flow_limit(limit);
    }

    fn set_self_check(&self, every: u64) {
        self.set_self_check(every);
    }
}

impl Bonds for Datapath {
    fn bond_set(&self, id: BondId, table: &BondTable) {
        self.bonds().set(id, table);
    }

    fn bond_del(&self, id: BondId) {
        self.bonds().del(id);
    }

    fn bonds(&self) -> Vec<(BondId, BondTable)> {
        self.bonds().all()
    }

    fn bond_take_loads(&self, id: BondId) -> Option<Box<[u64; LB_BUCKETS]>> {
        self.bonds().take_loads(id)
    }
}

impl Offload for Datapath {
    fn set_accelerator(&self, accelerator: Option<Arc<dyn Accelerator>>) {
        self.set_accelerator(accelerator);
    }

    fn offload(&self) -> Option<OffloadInfo> {
        self.offload()
    }

    fn port_offload(&self, port: DpPort) -> Option<Result<&'static str, String>> {
        self.port_offload(port)
    }
}
