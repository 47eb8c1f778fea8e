//! What a translation returns.

use crate::freeze::Kept;
use crate::groups::Group;
use crate::model::{BridgeId, Rule};
use crate::trace::Node;
use base::{DpPort, DropReason, MacAddr, PortNo};
use dpif::DpAction;
use flow::{FlowKey, FlowMask, Step, Steps};
use openflow::{FlowMod, Nat};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The result of a translation.
#[derive(Debug)]
pub struct Verdict {
    /// What the datapath does. Empty for a drop.
    pub actions: Vec<DpAction>,
    /// Which bits of the packet's key were looked at, in order: every packet that agrees in these has the same verdict.
    pub reads: Vec<Step>,
    /// What should happen beside.
    pub effects: Vec<Effect>,
    /// What the verdict rests on beside the packet: while none of it changes, neither does the verdict.
    pub dependencies: Vec<Dependency>,
    /// What the dependencies say was written to the key: [`Lookup::written`] tells which part.
    pub written: Vec<WrittenWord>,
    /// Set if the translation failed; the actions are empty then.
    pub error: Option<TranslationError>,
    /// Why nothing is sent, if so.
    pub drop: Option<DropReason>,
    /// What happened, if it was asked for.
    pub trace: Option<Box<Trace>>,
}

/// What happened in a translation.
#[derive(Debug)]
pub struct Trace {
    /// Step by step.
    pub nodes: Vec<Node>,
    /// The key after all actions.
    pub final_key: FlowKey,
    /// Copies that come back from the connection tracker, in order.
    pub forks: Vec<Fork>,
}

/// A copy of the packet that comes back from the connection tracker.
#[derive(Clone, PartialEq, Debug)]
pub struct Fork {
    /// Its key before the tracker has seen it, with the number under which it goes on, and the zone.
    pub key: FlowKey,
    /// What the tracker is to translate.
    pub nat: Option<Nat>,
}

impl Verdict {
    /// All bits of the packet's key that were looked at: what a cached answer must match.
    pub fn mask(&self) -> FlowMask {
        Steps::mask_of(&self.reads)
    }
}

/// A side effect of a packet.
#[derive(Clone, Debug)]
pub enum Effect {
    /// A table was looked up.
    Lookup {
        /// Bridge of the table.
        bridge: BridgeId,
        /// The table.
        table: u8,
        /// The flow that was found, and used.
        rule: Option<Arc<Rule>>,
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
    /// A group was used.
    Group(Arc<Group>),
    /// A bucket of a group was used: its place in the group's list.
    Bucket(Arc<Group>, usize),
    /// A flow is to be learned.
    Learn(Arc<Learned>),
    /// A TCP connection ends: this flow's timeouts become these, in seconds, if they are longer (0: as they are).
    FinTimeout {
        /// Bridge of the flow.
        bridge: BridgeId,
        /// The flow.
        rule: Arc<Rule>,
        /// Seconds without a packet.
        idle_timeout: u16,
        /// Seconds.
        hard_timeout: u16,
    },
}

/// A flow to be learned from a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Learned {
    /// Bridge that learns.
    pub bridge: BridgeId,
    /// The flow, as a strict modification that adds what is not there.
    pub flow: FlowMod,
    /// With how many flows of its cookie the table takes no more; 0: it takes any number.
    pub limit: u32,
}

impl Effect {
    /// Whether it changes flows, which one does at a time.
    pub fn is_transaction(&self) -> bool {
        matches!(self, Self::Learn(_) | Self::FinTimeout { .. })
    }
}

impl PartialEq for Effect {
    /// Whether two effects are the same, on the very same things.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Lookup { bridge, table, rule }, Self::Lookup { bridge: b, table: t, rule: r }) => {
                (bridge, table, address(rule.as_ref())) == (b, t, address(r.as_ref()))
            }
            (Self::LearnMac { bridge, vlan, mac, port }, Self::LearnMac { bridge: b, vlan: v, mac: m, port: p }) => {
                (bridge, vlan, mac, port) == (b, v, m, p)
            }
            (Self::Patch { from, to }, Self::Patch { from: f, to: t }) => (from, to) == (f, t),
            (Self::Group(a), Self::Group(b)) => Arc::ptr_eq(a, b),
            (Self::Bucket(a, i), Self::Bucket(b, j)) => Arc::ptr_eq(a, b) && i == j,
            (Self::Learn(a), Self::Learn(b)) => a == b,
            (
                Self::FinTimeout { bridge, rule, idle_timeout, hard_timeout },
                Self::FinTimeout { bridge: b, rule: r, idle_timeout: i, hard_timeout: h },
            ) => (bridge, idle_timeout, hard_timeout) == (b, i, h) && Arc::ptr_eq(rule, r),
            _ => false,
        }
    }
}

impl Eq for Effect {}

impl Hash for Effect {
    /// Tells look-ups and groups apart, and of others only which kind they are: there are few.
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Lookup { bridge, table, rule } => {
                state.write_u64(u64::from(*bridge) << 8 | u64::from(*table));
                address(rule.as_ref()).map_or(0, <*const Rule>::addr).hash(state);
            }
            Self::Group(group) | Self::Bucket(group, _) => Arc::as_ptr(group).hash(state),
            other => std::mem::discriminant(other).hash(state),
        }
    }
}

/// Which rule it is, if there is one.
fn address(rule: Option<&Arc<Rule>>) -> Option<*const Rule> {
    rule.map(Arc::as_ptr)
}

/// Something other than the packet that a verdict rests on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Dependency {
    /// The configuration of a bridge: its ports, bundles and settings.
    Bridge(BridgeId),
    /// What is in a flow table, as far as this look-up could tell.
    Lookup(Lookup),
    /// The whole content of a flow table.
    Table {
        /// Bridge of the table.
        bridge: BridgeId,
        /// The table.
        table: u8,
    },
    /// Where an address is, or that it is not known.
    Mac {
        /// Bridge that knows.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
        /// Address.
        mac: MacAddr,
    },
    /// A meter, or that there is none of this number.
    Meter {
        /// Its bridge.
        bridge: BridgeId,
        /// Its number.
        meter: u32,
    },
    /// What protocols let a port do.
    PortState(DpPort),
    /// What is left of a translation until the packet comes back.
    Frozen(Arc<Kept>),
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
    /// Priority of the rule found. Only one at least as high can take its place. `None` if none was found, and of one that
    /// matches `conj_id` too: it was found by way of clauses that have priorities of their own.
    pub found: Option<u32>,
    /// What the actions had written to the key until then. Words of [`flow::layout::REGS_AND_METADATA`] are written in any case, and
    /// zero where nothing is said. All else is as in the packet.
    pub written: Written,
}

/// A word of the key that was written: its number, the bits, the values of these bits.
pub type WrittenWord = (u8, u64, u64);

/// What was written until a look-up: some of the words in [`Verdict::written`], in their order. Look-ups between which
/// nothing was written have the same ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Written {
    begin: u32,
    end: u32,
}

impl Written {
    /// The last words of `all`, as of `begin`.
    pub(crate) fn since(begin: usize, all: &[WrittenWord]) -> Self {
        Self { begin: begin as u32, end: all.len() as u32 }
    }

    /// The words, of those of the same verdict.
    pub fn of(self, all: &[WrittenWord]) -> &[WrittenWord] {
        all.get(self.begin as usize..self.end as usize).unwrap_or_default()
    }
}

/// The error that ended a translation. Its text is the line in the trace at that place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TranslationError {
    /// Tables, groups or patch ports are nested too deep.
    #[error("over max translation depth {}", crate::translate::MAX_DEPTH)]
    Depth,
    /// Too many look-ups.
    #[error("over {} resubmit actions", crate::translate::MAX_RESUBMITS)]
    Resubmits,
    /// The stack is full.
    #[error("resubmits yielded over {} kB of stack", crate::translate::MAX_STACK * 16 / 1024)]
    Stack,
    /// The action set is full.
    #[error("over {} actions in the action set", crate::translate::MAX_SET)]
    Actions,
    /// The limit of actions carried out is reached.
    #[error("resubmits carried out over {} actions", crate::translate::MAX_STEPS)]
    Steps,
    /// What was left for a packet that came back is not known any more, or too many translations wait for their packets.
    #[error("no recirculation context")]
    Recirculation,
    /// The packet came in on a port that no bridge has.
    #[error("unknown ingress port")]
    Port,
    /// More MPLS labels than a key holds.
    #[error("too many MPLS labels")]
    Labels,
    /// An action that packets of this type do not allow for.
    #[error("unsupported packet type")]
    PacketType,
}

impl TranslationError {
    /// What it is called at the end of a trace.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Depth => "Recursion too deep",
            Self::Resubmits => "Too many resubmits",
            Self::Stack => "Stack too deep",
            Self::Actions | Self::Steps => "Too many actions",
            Self::Recirculation => "No recirculation context",
            Self::Port => "unknown ingress port",
            Self::Labels => "Too many MPLS labels",
            Self::PacketType => "Unsupported packet type",
        }
    }

    /// The reason under which the packets are counted that it costs.
    pub fn drop_reason(self) -> DropReason {
        match self {
            Self::Depth => DropReason::RecursionTooDeep,
            Self::Resubmits => DropReason::TooManyResubmits,
            Self::Stack => DropReason::StackTooDeep,
            Self::Actions | Self::Steps => DropReason::TooManyActions,
            Self::Recirculation => DropReason::Recirculation,
            Self::Port => DropReason::NoPort,
            Self::Labels => DropReason::TooManyLabels,
            Self::PacketType => DropReason::NoEthernet,
        }
    }
}
