//! The interface between datapath and switch: datapath actions, flows, upcalls and the [`Dpif`] trait.
//!
//! The datapath forwards packets by installed [`DpFlow`]s: a key, a mask, and a list of [`DpAction`]s. A packet that
//! matches no flow is passed to an [`UpcallHandler`], which replies with actions for the packet and, usually, a flow to
//! install. Neither side knows the other's terms: the datapath knows no OpenFlow tables, and the switch touches no
//! packet bytes.
//!
//! Keys in the datapath hold its own port numbers ([`DpPort`]) as ingress port.

pub mod action;
pub mod backend;
pub mod bond;
pub mod connections;
mod event_log;
pub mod meter;
pub mod offload;
pub mod port;
pub mod psample;
mod round_watch;
pub mod text;
pub mod thread;
mod thread_stats;
pub mod tunnel;
pub mod upcall;

pub use action::{
    Collectors, ControllerUpcall, DpAction, DpActions, HashKind, Observe, Punt, SETTABLE_IN_NSH, SamplePoint,
    SampledFlow, SampledWay, SentTunnel, TunnelOutput,
};
pub use backend::{Capabilities, Meters, Offload, Ports, Threads, Upcalls};
pub use bond::{BondId, BondTable, Bonds, LB_BUCKETS};
pub use connections::{ConnectionFilter, Connections};
pub use conntrack::{Action as Ct, Commit, Helper, Nat, NatKind};
pub use event_log::EventLog;
pub use meter::{BandKind, MeterBand, MeterConfig, MeterCount, MeterId, MeterStats, MeterUnit};
pub use offload::{OffloadInfo, Unfit};
pub use port::{PortInfo, PortStats, QueueInfo};
pub use psample::{Cookie, LocalSample, Psample};
pub use round_watch::{RoundWatch, RoundWatchSettings, SlowRound, rounds_text};
pub use thread::{
    Algorithm, Balance, Cpu, INTERVAL_SECS, INTERVALS, Policy, QueueUsage, ThreadConfig, ThreadInfo, ThreadStats, Usage,
};
pub use thread_stats::{RoundHistory, RoundSample};
pub use tunnel::{Defragment, TunnelPop, TunnelPush};
pub use upcall::{HandlerStats, PortUpcalls, UpcallStats};

use base::{DpPort, DropReason, Millis};
use flow::{FlowKey, FlowMask, Sparse, Step, Steps};
use packet::Packet;
pub use protocols::Protocol;
use std::fmt::Debug;
use std::sync::Arc;

/// The id of a datapath flow. Ids are never reused within the lifetime of a datapath.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FlowId(pub u64);

/// Match and actions of a datapath flow. Current flows of a datapath are disjoint: a packet matches at most one of
/// them, so flows have no priority.
#[derive(Clone, Debug)]
pub struct DpFlow {
    /// The key of the packet that the flow was made for. The flow ignores bits outside of the mask; but an index may
    /// narrow the flow by some of these bits, and the narrowed flow then still matches that packet.
    pub key: Sparse,
    /// The mask, as the bits that the translation read, in order; an index may use the order. A narrowed flow may later
    /// be widened to all bits that the reads allow. So if a new translation confirms an installed flow, the caller must
    /// put it again with the new reads, unless the old reads include all of them. The ingress port and `recirc_id` are
    /// always matched exactly.
    pub reads: Arc<Steps>,
    /// The actions of the flow.
    pub actions: DpActions,
    /// The generation of the switch's state in which the flow was translated. A flow of another generation than the
    /// datapath's ([`Dpif::set_generation`]) is not used any more, until it is replaced or deleted.
    pub generation: u64,
}

impl DpFlow {
    /// A flow whose translation read these bits of the key.
    pub fn new(key: &FlowKey, reads: &[Step], actions: DpActions, generation: u64) -> Self {
        Self { key: Sparse::new(key), reads: Arc::new(Steps::new(reads)), actions, generation }
    }

    /// A flow without a translation, as installed by `dpctl/add-flow`.
    pub fn by_hand(key: &FlowKey, mask: &FlowMask, actions: DpActions, generation: u64) -> Self {
        Self { key: Sparse::new(key), reads: Arc::new(Steps::of_mask(mask)), actions, generation }
    }
}

/// Statistics of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DpFlowStats {
    /// Packets.
    pub packets: u64,
    /// Bytes of frames, without frame check sequence.
    pub bytes: u64,
    /// Time of the last use, if any.
    pub used: Option<Millis>,
    /// All TCP flags seen, combined with OR.
    pub tcp_flags: u16,
}

/// An installed flow in a dump.
#[derive(Clone, Debug)]
pub struct DpFlowEntry {
    /// Its id.
    pub id: FlowId,
    /// The key of the packet that it was made for. It matches the bits in `mask`.
    pub key: FlowKey,
    /// The mask as installed, which may be narrower than requested.
    pub mask: FlowMask,
    /// The actions of the flow.
    pub actions: DpActions,
    /// See [`DpFlow::generation`].
    pub generation: u64,
    /// Its statistics.
    pub stats: DpFlowStats,
    /// Whether an accelerator forwards packets by this flow.
    pub offloaded: bool,
}

/// A packet that matches no flow: a received or a recirculated one ([`DpAction::Recirc`]).
#[derive(Debug)]
pub struct Upcall<'a> {
    /// Where it came in.
    pub port: DpPort,
    /// Its key.
    pub key: &'a FlowKey,
    /// Its bytes.
    pub packet: &'a Packet,
}

/// The reply to an [`Upcall`].
#[derive(Debug)]
pub struct UpcallReply {
    /// Actions for this packet.
    pub actions: DpActions,
    /// The flow to install, with an id that [`UpcallHandler`] chose; `None` if the result must not be cached.
    pub install: Option<(FlowId, DpFlow)>,
}

impl UpcallReply {
    /// The same for a packet that the switch holds if `is_held` is true: no action sends it or counts it as dropped.
    #[must_use]
    pub fn held(self, is_held: bool) -> Self {
        if is_held { Self { actions: [DpAction::Held].into(), ..self } } else { self }
    }
}

/// The switch's side of upcalls. Packet threads call it: it must not block for long, and never on I/O.
pub trait UpcallHandler: Send + Sync + Debug {
    /// Handles a packet that matches no current flow.
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply;

    /// Like [`UpcallHandler::miss`], called on a packet thread while other packets wait. Returns `None` without side effects
    /// if the reply would have to wait for another thread; the packet is then handled by [`UpcallHandler::miss`] elsewhere.
    fn try_miss(&self, upcall: Upcall<'_>) -> Option<UpcallReply> {
        let _ = upcall;
        None
    }

    /// Handles a packet that an action sends to a controller, in its current state.
    fn controller(&self, port: DpPort, what: &ControllerUpcall, packet: &Packet);

    /// Handles a packet that an action samples, in its current state.
    fn observe(&self, port: DpPort, what: &Observe, packet: &Packet) {
        let _ = (port, what, packet);
    }

    /// Queues a copy of a packet for the collectors of this host.
    fn psample(&self, sample: &LocalSample<'_>) {
        let _ = sample;
    }

    /// Queues a frame, in its state at the action and with complete checksums, for a protocol. Returns the port of the frame
    /// that was dropped from a full queue for this one, if any; an error is the reason why this one was not queued. The
    /// datapath counts either drop.
    fn punt(&self, port: DpPort, punt: &Punt, packet: &Packet) -> Result<Option<DpPort>, DropReason> {
        let _ = (port, punt, packet);
        Err(DropReason::NoProtocol)
    }

    /// Translates a packet of a flow whose packets all take the slow path, and returns the actions for this packet, which
    /// do not lead to the slow path again. The flow counts the packet.
    fn slow(&self, upcall: Upcall<'_>) -> DpActions {
        let _ = upcall;
        [DpAction::Drop(DropReason::TranslationError)].into()
    }

    /// Reports the final statistics of a flow that left the datapath without [`Dpif::flow_del`], because a flow that
    /// covers the packet that it was made for replaced it, or because the datapath found it wrong. Also called with
    /// zero statistics for a flow that [`UpcallHandler::miss`] returned and that was not installed because of the flow
    /// limit. The statistics do not include the packet of the miss. The call may wait for other threads: packet threads
    /// leave it to handler threads if there are any.
    fn flow_gone(&self, id: FlowId, stats: DpFlowStats);

    /// Checks whether `actions`, about to be executed for a packet that matched a flow, equal the result of a new
    /// translation. Called for a sample of packets, to find errors. After `false`, the flow is removed and reported by
    /// [`UpcallHandler::flow_gone`]. Returns `true` if state changed during the check.
    fn check(&self, port: DpPort, key: &FlowKey, id: FlowId, actions: &DpActions) -> bool {
        let _ = (port, key, id, actions);
        true
    }
}

/// Statistics of a datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DpStats {
    /// Packets that matched a flow.
    pub hit: u64,
    /// Packets that went up.
    pub missed: u64,
    /// Packets dropped because the upcall queue was full.
    pub lost: u64,
    /// Flows installed.
    pub flows: u64,
    /// Distinct masks among them.
    pub masks: u64,
    /// Mask lookups of all packets.
    pub mask_hits: u64,
}

/// Errors of the datapath interface.
#[derive(Debug, thiserror::Error)]
pub enum DpifError {
    /// The port does not exist.
    #[error("no datapath port {0}")]
    NoPort(DpPort),
    /// The flow does not exist.
    #[error("no such datapath flow")]
    NoFlow,
    /// The device could not be opened.
    #[error(transparent)]
    Device(#[from] netdev::NetdevError),
    /// QoS of a port could not be set up.
    #[error(transparent)]
    Qos(#[from] netdev::qos::QosError),
    /// A thread could not be started.
    #[error("{0}")]
    Thread(String),
    /// No number is left.
    #[error("no datapath port number is free")]
    TooManyPorts,
    /// The flow limit is reached.
    #[error("too many datapath flows")]
    TooManyFlows,
    /// The meter does not exist.
    #[error("no such meter")]
    NoMeter,
    /// All [`meter::METERS_MAX`] meters are in use.
    #[error("too many meters")]
    TooManyMeters,
    /// More than [`meter::METER_BANDS_MAX`] bands.
    #[error("too many bands")]
    TooManyBands,
    /// The tracker has the maximum number of timeout policies.
    #[error("too many timeout policies")]
    TooManyTimeoutPolicies,
    /// The packet was dropped.
    #[error("packet dropped: {}", .0.name())]
    Dropped(DropReason),
}

/// A packet for [`Dpif::execute`].
#[derive(Debug)]
pub struct Execution {
    /// The packet's ingress port.
    pub port: DpPort,
    /// The packet.
    pub packet: Packet,
    /// The list.
    pub actions: DpActions,
}

/// The interface to one datapath: flows and packets here, the rest in the traits that it comprises. All methods may be
/// called from any thread.
pub trait Dpif: Ports + Upcalls + Threads + Offload + Meters + Bonds + Connections + Send + Sync + Debug {
    /// The datapath's capabilities.
    fn capabilities(&self) -> Capabilities;

    /// Executes `actions` on `packet` as if it had been received on `port` ([`DpPort::NONE`] if on none). Returns an
    /// error if the packet or a copy of it was dropped for a reason other than a drop action; all drops are counted.
    fn execute(&self, port: DpPort, packet: Packet, actions: &DpActions) -> Result<(), DpifError>;

    /// Executes several packets in order; packets to the same port may be sent together. Errors are passed to `failed`.
    /// Empties the list.
    fn execute_all(&self, executions: &mut Vec<Execution>, failed: &mut dyn FnMut(DpifError)) {
        for Execution { port, packet, actions } in executions.drain(..) {
            self.execute(port, packet, &actions).unwrap_or_else(&mut *failed);
        }
    }

    /// Installs a flow under an id chosen by the caller. An existing flow that covers the packet that the new flow was
    /// made for is replaced, and reported by [`UpcallHandler::flow_gone`] on the caller's thread. A flow with the same
    /// id is also replaced, in match, reads and actions, and keeps its statistics.
    fn flow_put(&self, id: FlowId, flow: DpFlow) -> Result<(), DpifError>;

    /// Removes a flow and returns its final statistics.
    fn flow_del(&self, id: FlowId) -> Result<DpFlowStats, DpifError>;

    /// A flow with its statistics, if it is installed.
    fn flow_get(&self, id: FlowId) -> Option<DpFlowEntry>;

    /// Passes the statistics of all flows to `each`, in no particular order; flows that are added or removed meanwhile may
    /// be missing. No lock is held while `each` runs, so it may call any method. Call this periodically: the datapath also
    /// cleans up its flows, and may report flows that were replaced by [`UpcallHandler::flow_gone`].
    fn flow_stats(&self, each: &mut dyn FnMut(FlowId, DpFlowStats));

    /// All flows with their statistics. For display only: each entry holds a whole key and mask.
    fn flow_dump(&self) -> Vec<DpFlowEntry>;

    /// Sets how many VLAN tags are part of a key, 1 or 2; the protocol id of a further tag is then the Ethernet type.
    /// The caller must then change the generation, as earlier keys differ from later ones.
    fn set_vlans_max(&self, tags: usize);

    /// Sets the current generation. Generations only increase: a smaller one is ignored. A packet received after the
    /// call is not forwarded by a flow of another generation.
    fn set_generation(&self, generation: u64);

    /// Statistics of the whole datapath.
    fn stats(&self) -> DpStats;
}
