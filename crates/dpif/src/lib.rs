//! The seam between datapath and switch: datapath actions, flows, upcalls and the [`Dpif`] trait.
//!
//! Below the seam a packet is forwarded by a remembered [`DpFlow`]: a key, a mask, and a list of [`DpAction`]s. What no
//! flow covers goes up through an [`UpcallHandler`], which answers with what to do now and, usually, a flow to remember.
//! Nothing here knows of OpenFlow tables; nothing above the seam touches packet bytes.
//!
//! Keys below the seam hold the datapath's port number ([`DpPort`]) in the place of the ingress port.

pub mod action;
pub mod ct;
pub mod meter;
pub mod text;

pub use action::{Collectors, ControllerUpcall, DpAction, DpActions, HashKind, Observe, SampledFlow, Way};
pub use ct::{Commit, Ct, Nat, NatKind, NatRange};
pub use meter::{BandKind, MeterBand, MeterConfig, MeterCount, MeterId, MeterStats, MeterUnit};

use base::{DpPort, DropReason, Millis};
use flow::{FlowKey, FlowMask, Sparse, Step, Steps};
use packet::{Batch, Packet};
use std::fmt::Debug;
use std::sync::Arc;

/// Names a datapath flow for as long as it is installed; never used again in the life of a datapath.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FlowId(pub u64);

/// What a datapath flow matches and does. Flows of one datapath are disjoint: a packet matches at most one that is
/// current, so that there is no priority.
#[derive(Clone, Debug)]
pub struct DpFlow {
    /// The whole key of the packet that it was made for. Bits outside of the mask do not matter to the flow, but an
    /// index may narrow the flow to some of them, and then what it installs still covers that packet.
    pub key: Sparse,
    /// The bits that matter, and how the computation behind the flow came to look at them, in order: an index may be
    /// built along it. A flow that was narrowed may be widened again to all that these reads tell. So who finds an
    /// installed flow still right by a new computation has to put it again, with the new reads, if these are not all
    /// among the old. The ingress port and `recirc_id` are always matched whole.
    pub reads: Arc<Steps>,
    /// What to do.
    pub actions: DpActions,
    /// The state of the switch that this was computed from: a flow of another generation than the datapath's current
    /// one ([`Dpif::set_generation`]) is not used any more, until it is replaced or deleted.
    pub generation: u64,
}

impl DpFlow {
    /// A flow of a computation that read these of the key.
    pub fn new(key: &FlowKey, reads: &[Step], actions: DpActions, generation: u64) -> Self {
        Self { key: Sparse::new(key), reads: Arc::new(Steps::new(reads)), actions, generation }
    }

    /// A flow that no computation is behind: put there by hand.
    pub fn by_hand(key: &FlowKey, mask: &FlowMask, actions: DpActions, generation: u64) -> Self {
        Self { key: Sparse::new(key), reads: Arc::new(Steps::of_mask(mask)), actions, generation }
    }
}

/// What a flow has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DpFlowStats {
    /// Packets.
    pub packets: u64,
    /// Bytes of frames, without frame check sequence.
    pub bytes: u64,
    /// Last use, if it was used.
    pub used: Option<Millis>,
    /// All TCP flags seen, or'ed.
    pub tcp_flags: u16,
}

/// An installed flow, as a dump shows it.
#[derive(Clone, Debug)]
pub struct DpFlowEntry {
    /// Its id.
    pub id: FlowId,
    /// What its packets have in common, zero outside of `mask`.
    pub key: FlowKey,
    /// The bits that it matches, as it is installed: it may be narrower than it was put.
    pub mask: FlowMask,
    /// What to do.
    pub actions: DpActions,
    /// See [`DpFlow::generation`].
    pub generation: u64,
    /// What it has done.
    pub stats: DpFlowStats,
    /// Whether an accelerator below the datapath forwards packets by it.
    pub offloaded: bool,
}

/// A packet that the datapath has no flow for: one that came in, or one that comes back ([`DpAction::Recirc`]).
#[derive(Debug)]
pub struct Upcall<'a> {
    /// Where it came in.
    pub port: DpPort,
    /// Its key.
    pub key: &'a FlowKey,
    /// Its bytes.
    pub packet: &'a Packet,
}

/// The answer to an [`Upcall`].
#[derive(Debug)]
pub struct UpcallReply {
    /// What to do with this packet.
    pub actions: DpActions,
    /// A flow to remember, with the id that [`UpcallHandler`] chose for it; `None` if this packet's case must not be
    /// remembered.
    pub install: Option<(FlowId, DpFlow)>,
}

/// The switch above the seam, called on packet threads: it must not block for long, and never on I/O.
pub trait UpcallHandler: Send + Sync + Debug {
    /// No current flow covers the packet.
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply;

    /// As [`UpcallHandler::miss`], asked on a packet thread, that other packets wait for: `None` if the answer could not be
    /// given at once, as somebody else would have to be waited for. Then nothing has happened, and the packet is asked
    /// about again elsewhere.
    fn miss_here(&self, upcall: Upcall<'_>) -> Option<UpcallReply> {
        let _ = upcall;
        None
    }

    /// An action sends the packet, as it is at that point, to a controller.
    fn controller(&self, port: DpPort, what: &ControllerUpcall, packet: &Packet);

    /// An action tells collectors of the packet, as it is at that point.
    fn observe(&self, port: DpPort, what: &Observe, packet: &Packet) {
        let _ = (port, what, packet);
    }

    /// A flow left the datapath without [`Dpif::flow_del`]: another that covers the packet that it was made for took
    /// its place, or the datapath found it wrong. Its last statistics. Also called, with statistics of zero, for a flow
    /// that [`UpcallHandler::miss`] asked for and that was not installed, for the limit on flows. The packet of a miss
    /// is not in the statistics of its flow. It may wait for others: packet threads leave it to handler threads to call it,
    /// if there are any.
    fn flow_gone(&self, id: FlowId, stats: DpFlowStats);

    /// Whether what the datapath is about to do with a packet that a flow covers is what would be decided afresh: asked
    /// for a sample of packets, to find errors. After `false` the flow is removed, and reported by
    /// [`UpcallHandler::flow_gone`]; the answer must be `true` where state just changes under the question.
    fn check(&self, port: DpPort, key: &FlowKey, id: FlowId, actions: &DpActions) -> bool {
        let _ = (port, key, id, actions);
        true
    }
}

/// Statistics of a datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DpStats {
    /// Packets that a remembered flow covered.
    pub hit: u64,
    /// Packets that went up.
    pub missed: u64,
    /// Packets that could not go up.
    pub lost: u64,
    /// Flows installed.
    pub flows: u64,
    /// Distinct masks among them.
    pub masks: u64,
    /// Mask look-ups made for all packets.
    pub mask_hits: u64,
}

/// What can go wrong at the seam.
#[derive(Debug, thiserror::Error)]
pub enum DpifError {
    /// No port of that number.
    #[error("no datapath port {0}")]
    NoPort(DpPort),
    /// No flow of that id.
    #[error("no such datapath flow")]
    NoFlow,
    /// The device could not be opened.
    #[error("{0}")]
    Device(String),
    /// No number is left.
    #[error("no datapath port number is free")]
    TooManyPorts,
    /// The limit on flows is reached.
    #[error("too many datapath flows")]
    TooManyFlows,
    /// No meter of that id.
    #[error("no such meter")]
    NoMeter,
    /// All [`meter::METERS_MAX`] meters are in use.
    #[error("too many meters")]
    TooManyMeters,
    /// More than [`meter::METER_BANDS_MAX`] bands.
    #[error("too many bands")]
    TooManyBands,
    /// The packet could not be executed.
    #[error("packet dropped: {}", .0.name())]
    Dropped(DropReason),
}

/// A packet that is to go through a list of actions ([`Dpif::execute`]).
#[derive(Debug)]
pub struct Execution {
    /// Where it is to have come in.
    pub port: DpPort,
    /// The packet.
    pub packet: Packet,
    /// The list.
    pub actions: DpActions,
}

/// Control of one datapath, from above the seam. All methods may be called from any thread.
///
/// Ports are added by the owner of the datapath's implementation, as what a device is differs from one to another.
pub trait Dpif: Send + Sync + Debug {
    /// Sends `packet` through `actions` as if it had come in on `port` ([`DpPort::NONE`] if on none). An error tells
    /// why it, or a copy of it, was dropped, if the actions themselves did not say so; all drops are counted.
    fn execute(&self, port: DpPort, packet: Packet, actions: &DpActions) -> Result<(), DpifError>;

    /// The same of several packets, one after the other; those that leave by the same port may leave together. `failed`
    /// is told of errors. Nothing is left in the list.
    fn execute_all(&self, executions: &mut Vec<Execution>, failed: &mut dyn FnMut(DpifError)) {
        for Execution { port, packet, actions } in executions.drain(..) {
            self.execute(port, packet, &actions).unwrap_or_else(&mut *failed);
        }
    }

    /// Installs a flow under an id of the caller's. A flow that covers the packet that this one was made for is
    /// replaced, and reported by [`UpcallHandler::flow_gone`] on the caller's thread. A flow of the same id is replaced
    /// too, in match, reads and actions, and its statistics go on in the new one.
    fn flow_put(&self, id: FlowId, flow: DpFlow) -> Result<(), DpifError>;

    /// Removes a flow and returns its last statistics.
    fn flow_del(&self, id: FlowId) -> Result<DpFlowStats, DpifError>;

    /// A flow with its statistics, if it is installed.
    fn flow_get(&self, id: FlowId) -> Option<DpFlowEntry>;

    /// The statistics of all flows, in no order. Flows that come or go meanwhile may be left out or told of. No lock is
    /// held while `each` runs: it may call any method. To be called now and then: the datapath puts its flows in
    /// order then, and may report some by [`UpcallHandler::flow_gone`] that others took the place of.
    fn flow_stats(&self, each: &mut dyn FnMut(FlowId, DpFlowStats));

    /// All flows, each with its statistics: for shows, as each takes the room of a whole key and mask.
    fn flow_dump(&self) -> Vec<DpFlowEntry>;

    /// Sets how many VLAN tags keys tell of, 1 or 2, from now on: a further tag's protocol id is then the Ethernet type.
    /// Who changes it moves the generation after it, as keys of before are not keys of after.
    fn set_vlans_max(&self, tags: usize);

    /// Makes flows of `generation` the current ones. Generations rise: one below the current one changes nothing.
    /// A packet that comes in after the call is not forwarded by a flow of another generation.
    fn set_generation(&self, generation: u64);

    /// Adds a meter, and names it by the lowest number that no meter has.
    fn meter_add(&self, config: &MeterConfig) -> Result<MeterId, DpifError>;

    /// Makes a meter another, with full buckets. What comes in goes on to be counted, bands begin at zero.
    fn meter_set(&self, id: MeterId, config: &MeterConfig) -> Result<(), DpifError>;

    /// What a meter does, and what it has done.
    fn meter_get(&self, id: MeterId) -> Result<(MeterConfig, MeterStats), DpifError>;

    /// Removes a meter and returns its last statistics. Its number may be the next one's: who removes it first sees to
    /// it that no flow sends packets through it any more. Until then they pass.
    fn meter_del(&self, id: MeterId) -> Result<MeterStats, DpifError>;

    /// Sends packets through a meter that are not under way to a port, as those that go up. It marks some and takes out
    /// others, which are counted as drops. All pass if there is no such meter.
    fn meter_run(&self, id: MeterId, packets: &mut Batch);

    /// Statistics of the whole datapath.
    fn stats(&self) -> DpStats;
}
