//! The interfaces of a datapath beside flows and packets ([`crate::Dpif`]): ports, upcalls, packet threads, offload and
//! meters, each a trait; those of the connection tracker and of bonds are in [`crate::connections`] and [`crate::bond`]. A datapath implements all of them;
//! the switch holds an `Arc<dyn Dpif>` and knows no implementation.

use crate::meter::{MeterConfig, MeterId, MeterStats};
use crate::offload::OffloadInfo;
use crate::port::{PortInfo, PortStats};
use crate::round_watch::RoundWatch;
use crate::thread::{ThreadConfig, ThreadInfo, ThreadStats, Usage};
use crate::thread_stats::RoundHistory;
use crate::upcall::UpcallStats;
use crate::{DpifError, EventLog, UpcallHandler};
use base::{DpPort, DropReason};
use netdev::qos::{Policing, QosReport, QosSpec};
use netdev::{Accelerator, Netdev};
use packet::Batch;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The capabilities of a datapath, which are constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// Maximum nesting depth of `sample` actions.
    pub sample_nesting_max: u64,
    /// The highest number of a hash algorithm for [`crate::DpAction::Hash`].
    pub hash_algorithm_max: u64,
    /// Maximum number of MPLS labels of a packet that can be matched and changed.
    pub mpls_depth_max: u64,
    /// Whether ports may be tunnels that the datapath encapsulates for.
    pub tunnels: bool,
    /// Whether the datapath has [`crate::DpAction::LbOutput`].
    pub balance_tcp: bool,
    /// Whether there is a connection tracker: the `ct` action, with everything that [`crate::Ct`] can ask for.
    pub conntrack: bool,
}

/// Ports of a datapath.
pub trait Ports {
    /// Adds a port for `device`: under the number `requested` if that is free, else under the lowest free one from 1.
    /// Not to be called from an [`UpcallHandler`], as it may wait for packet threads.
    fn port_add(&self, device: Arc<dyn Netdev>, requested: Option<DpPort>) -> Result<DpPort, DpifError>;

    /// Adds a port for the packets of tunnels with these headers: the port of [`crate::DpAction::TunnelPop`]. Its device has no
    /// queues. Otherwise as [`Ports::port_add`].
    fn tunnel_add(
        &self,
        device: Arc<dyn Netdev>,
        headers: tunnel::header::Pop,
        requested: Option<DpPort>,
    ) -> Result<DpPort, DpifError>;

    /// Sets the range of the UDP source ports of outer headers.
    fn set_tunnel_ports(&self, range: tunnel::header::PortRange);

    /// Sets which options of packets from tunnels are part of their keys.
    fn set_tunnel_options(&self, options: Arc<flow::ReceivedOptions>);

    /// The options that are part of keys.
    fn tunnel_options(&self) -> Arc<flow::ReceivedOptions>;

    /// Removes a port. Packet threads release its device at their next round; [`Ports::synchronize`] waits for that.
    fn port_del(&self, port: DpPort) -> Result<(), DpifError>;

    /// Pins a port's receive queues to cores, by queue, and adapts to the number of queues that its device has now. Not
    /// to be called from an [`UpcallHandler`].
    fn port_set_queues(&self, port: DpPort, affinity: &BTreeMap<usize, usize>) -> Result<(), DpifError>;

    /// Sets up QoS of a port in userspace ([`netdev::qos::USERSPACE_TYPES`]), or removes it with `None`. The same again changes
    /// nothing. On errors, the port has none.
    fn port_set_qos(&self, port: DpPort, spec: Option<&QosSpec>) -> Result<(), DpifError>;

    /// The QoS that a port has in userspace.
    fn port_qos(&self, port: DpPort) -> Option<QosReport>;

    /// Sets the ingress policing of a port.
    fn port_set_policing(&self, port: DpPort, policing: &Policing) -> Result<(), DpifError>;

    /// Waits until all packet threads use the ports as they are now. Not to be called from an [`UpcallHandler`], nor
    /// while holding a lock that one takes.
    fn synchronize(&self);

    /// All ports, by number.
    fn ports(&self) -> Vec<PortInfo>;

    /// Counters of a port.
    fn port_stats(&self, port: DpPort) -> Result<PortStats, DpifError>;

    /// Packets dropped so far by reason, in total, including those of ports that were removed.
    fn drops(&self) -> Vec<(DropReason, u64)>;

    /// The packets among [`Self::drops`] that flows drop, by [`DpAction::Drop`](crate::DpAction::Drop).
    fn flow_drops(&self) -> Vec<(DropReason, u64)>;
}

/// Packets that go up.
pub trait Upcalls {
    /// Sets the handler of upcalls.
    fn set_handler(&self, handler: Arc<dyn UpcallHandler>);

    /// Reports events to `log` while debug lines about them are wanted. To be called once.
    fn set_event_log(&self, log: Arc<dyn EventLog>);

    /// Sets the number of handler threads; 0 chooses automatically. Fails if a thread cannot be started.
    fn set_handlers(&self, wanted: usize) -> Result<(), DpifError>;

    /// Threads that answer misses.
    fn n_handlers(&self) -> usize;

    /// Waits until the upcall queues are empty. Packets that packet threads have not processed yet do not count.
    fn settle(&self);

    /// Counters by port and by handler.
    fn upcall_stats(&self) -> UpcallStats;
}

/// Packet threads and their caches.
pub trait Threads {
    /// Configures the packet threads. Packets under way are not lost. An error if a thread cannot be started; the
    /// others do its work then. Not to be called from an [`UpcallHandler`].
    fn set_threads(&self, config: &ThreadConfig) -> Result<(), DpifError>;

    /// The configuration.
    fn thread_config(&self) -> ThreadConfig;

    /// Reassigns queues to threads by their load of the last minute. Not to be called from an [`UpcallHandler`].
    fn rebalance(&self);

    /// Ends an interval of the history that [`Threads::usage`] reports: to be called every
    /// [`crate::thread::INTERVAL_SECS`]. Returns whether queues were reassigned. Not to be called from an
    /// [`UpcallHandler`].
    fn tick(&self) -> bool;

    /// The threads by core, with their counters.
    fn threads(&self) -> Vec<(ThreadInfo, ThreadStats)>;

    /// The counters of all threads that are no packet threads, such as those that send for controllers.
    fn caller_stats(&self) -> ThreadStats;

    /// Whether threads keep a history of their rounds; turning it on or off forgets what is kept.
    fn set_metrics(&self, on: bool);

    /// Whether they do.
    fn has_metrics(&self) -> bool;

    /// Logs suspicious rounds as this watch says, whose settings may change, while there is a history.
    fn set_round_watch(&self, watch: Arc<RoundWatch>);

    /// The newest rounds and milliseconds of the thread with this [`ThreadInfo::id`], at most so many.
    fn round_history(&self, thread: u64, rounds: usize, milliseconds: usize) -> RoundHistory;

    /// Statistics of threads and their queues over the last `intervals` complete intervals.
    fn usage(&self, intervals: usize) -> Vec<Usage>;

    /// Inserts one packet in `n` into the microflow cache; 0 turns the cache off.
    fn set_microflow_inverse_probability(&self, n: u32);

    /// Sets the maximum number of flows; further misses are forwarded but not installed.
    fn set_flow_limit(&self, limit: u64);

    /// Checks every `every`-th packet that matches a flow by [`UpcallHandler::check`]; 0 for none.
    fn set_self_check(&self, every: u64);
}

/// Flows that an accelerator forwards below the datapath.
pub trait Offload {
    /// Sets the accelerator; `None` removes it.
    fn set_accelerator(&self, accelerator: Option<Arc<dyn Accelerator>>);

    /// The state of the accelerator, if there is one.
    fn offload(&self) -> Option<OffloadInfo>;

    /// The type of the accelerator that accepted a port, or the reason why it did not; `None` without an accelerator.
    fn port_offload(&self, port: DpPort) -> Option<Result<&'static str, String>>;
}

/// Meters of a datapath.
pub trait Meters {
    /// Adds a meter under the lowest free id.
    fn meter_add(&self, config: &MeterConfig) -> Result<MeterId, DpifError>;

    /// Reconfigures a meter, with full buckets. Its input counters continue, and its band counters restart at zero.
    fn meter_set(&self, id: MeterId, config: &MeterConfig) -> Result<(), DpifError>;

    /// The configuration and statistics of a meter.
    fn meter_get(&self, id: MeterId) -> Result<(MeterConfig, MeterStats), DpifError>;

    /// Removes a meter and returns its final statistics. The id may be reused, so the caller must first remove all
    /// flows that use the meter. Until then, their packets pass.
    fn meter_del(&self, id: MeterId) -> Result<MeterStats, DpifError>;

    /// Sends packets that are not forwarded to a port, such as packet-ins, through a meter. It remarks some packets and
    /// removes others, which count as drops. All packets pass if the meter does not exist.
    fn meter_run(&self, id: MeterId, packets: &mut Batch);
}
