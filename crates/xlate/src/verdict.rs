//! What a translation returns.

use crate::model::{BridgeId, Rule};
use crate::trace::Node;
use base::{DropReason, MacAddr, PortNo};
use dpif::DpAction;
use flow::{FlowKey, Reads};
use std::sync::Arc;

/// The answer to "what becomes of this packet".
#[derive(Debug)]
pub struct Verdict {
    /// What the datapath does. Empty for a drop.
    pub actions: Vec<DpAction>,
    /// Which bits of the packet's key were looked at, in order: every packet that agrees in these has the same verdict.
    pub reads: Reads,
    /// What should happen beside.
    pub effects: Vec<Effect>,
    /// What the verdict rests on beside the packet: while none of it changes, neither does the verdict.
    pub dependencies: Vec<Dependency>,
    /// Set if the translation was given up; the actions are empty then.
    pub error: Option<TranslationError>,
    /// Why nothing is sent, if so.
    pub drop: Option<DropReason>,
    /// The key after all actions.
    pub final_key: FlowKey,
    /// What happened, if a trace was asked for.
    pub trace: Vec<Node>,
}

/// Something that a packet causes beside its forwarding.
#[derive(Clone, Debug)]
pub enum Effect {
    /// A flow was used.
    Rule(Arc<Rule>),
    /// A table was looked up.
    Lookup {
        /// Bridge of the table.
        bridge: BridgeId,
        /// The table.
        table: u8,
        /// Whether a flow was found.
        matched: bool,
    },
    /// An address was seen.
    LearnMac {
        /// Bridge that learns.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
        /// Address.
        mac: MacAddr,
        /// Where.
        port: PortNo,
    },
    /// A packet crossed from a patch port to its peer.
    Patch {
        /// Where it left: bridge and port.
        from: (BridgeId, PortNo),
        /// Where it arrived.
        to: (BridgeId, PortNo),
    },
}

/// Something other than the packet that a verdict rests on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Dependency {
    /// The configuration of a bridge: its ports, bundles and settings.
    Bridge(BridgeId),
    /// What is in a flow table, as far as this look-up could tell.
    Lookup(Lookup),
    /// Where an address is, or that it is not known.
    Mac {
        /// Bridge that knows.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
        /// Address.
        mac: MacAddr,
    },
    /// A group, or that there is none of this number.
    Group {
        /// Its bridge.
        bridge: BridgeId,
        /// Its number.
        group: u32,
    },
}

/// A look-up in a flow table. All packets of a megaflow have the key here in common, in the bits that the verdict read
/// of the packet or wrote before: a rule that contradicts one of these bits cannot be what the look-up finds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lookup {
    /// Bridge of the table.
    pub bridge: BridgeId,
    /// The table.
    pub table: u8,
    /// Priority of the rule found. Only one at least as high can take its place.
    pub found: Option<u16>,
    /// What the actions had written to the key until then: word, bits, values of these bits. All else is as in the
    /// packet.
    pub written: Box<[(u8, u64, u64)]>,
}

/// Why a translation was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TranslationError {
    /// Tables or patch ports nested too deep.
    #[error("over max translation depth {}", crate::translate::MAX_DEPTH)]
    Depth,
    /// Too many look-ups.
    #[error("over {} resubmit actions", crate::translate::MAX_RESUBMITS)]
    Resubmits,
    /// The stack grew without end.
    #[error("resubmits yielded over {} kB of stack", crate::translate::MAX_STACK * 16 / 1024)]
    Stack,
    /// The list of datapath actions is longer than a datapath takes.
    #[error("resubmits yielded over {} datapath actions", crate::translate::MAX_ACTIONS)]
    Actions,
    /// The packet came in on a port that no bridge has.
    #[error("unknown ingress port")]
    Port,
}
