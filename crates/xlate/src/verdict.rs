//! The result of a translation.

use crate::freeze::RecircState;
use crate::groups::{Counters, Group};
use crate::model::{BridgeId, Rule};
use crate::trace::Node;
use base::{BridgePort, DropReason, MacAddr, PortNo};
use dpif::DpAction;
use flow::{FlowKey, FlowMask, Step, Steps};
use openflow::{FlowMod, Nat};
use routes::Learning;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

/// The result of a translation.
#[derive(Debug)]
pub struct Verdict {
    /// The datapath actions. Empty for a drop.
    pub actions: Vec<DpAction>,
    /// The bits of the packet's key that were read, in order: every packet that agrees in these has the same verdict.
    pub reads: Vec<Step>,
    /// Side effects.
    pub effects: Vec<Effect>,
    /// What the verdict depends on apart from the packet: while none of it changes, neither does the verdict.
    pub dependencies: Vec<Dependency>,
    /// The written words that the dependencies refer to; [`Lookup::written`] selects some of them.
    pub written: Vec<WrittenWord>,
    /// The error that ended the translation; the actions are empty then.
    pub error: Option<TranslationError>,
    /// True if the datapath must not cache the actions: each packet of the megaflow takes the slow path.
    pub slow: bool,
    /// The reason why nothing is output, if so.
    pub drop: Option<DropReason>,
    /// The trace, if requested.
    pub trace: Option<Box<Trace>>,
}

/// The trace of a translation.
#[derive(Debug)]
pub struct Trace {
    /// The steps.
    pub nodes: Vec<Node>,
    /// The key after all actions.
    pub final_key: FlowKey,
    /// Copies that the connection tracker returns, in order.
    pub forks: Vec<Fork>,
}

/// A copy of the packet that the connection tracker returns.
#[derive(Clone, PartialEq, Debug)]
pub struct Fork {
    /// Its key before the tracker, with the number under which it resumes, and the zone.
    pub key: FlowKey,
    /// The address translation that the tracker is to apply.
    pub nat: Option<Nat>,
}

impl Verdict {
    /// Returns all bits of the packet's key that were read: the mask of the megaflow.
    pub fn mask(&self) -> FlowMask {
        Steps::mask_of(&self.reads)
    }
}

/// A side effect of a packet.
#[derive(Clone, Debug)]
pub enum Effect {
    /// A table look-up.
    Lookup {
        /// Bridge of the table.
        bridge: BridgeId,
        /// The table.
        table: u8,
        /// The rule that was found, and whose actions were executed.
        rule: Option<Arc<Rule>>,
    },
    /// A MAC address was seen.
    LearnMac {
        /// Bridge that learns.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
        /// Address.
        mac: MacAddr,
        /// The port.
        port: PortNo,
    },
    /// A gratuitous ARP packet has shown where an address is: for a while, no bond learns it from such packets.
    LockMac {
        /// Bridge that learned.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
        /// Address.
        mac: MacAddr,
    },
    /// A packet left by the member of a bond's bucket.
    BondLoad {
        /// The loads of the bond.
        loads: Arc<bond::Loads>,
        /// The bucket.
        bucket: u8,
    },
    /// A message of IGMP or MLD was received, in a bridge with multicast snooping. Only the packet itself teaches: the
    /// effect applies where the packet is at hand.
    Multicast {
        /// Bridge that learns.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
        /// Name of the bundle that received the packet.
        bundle: Arc<str>,
    },
    /// A packet crossed from a patch port to its peer.
    Patch {
        /// The sending bridge and port.
        from: (BridgeId, PortNo),
        /// The receiving bridge and port.
        to: (BridgeId, PortNo),
    },
    /// A packet left through a tunnel port, or came from one.
    Tunnel {
        /// Bridge of the port.
        bridge: BridgeId,
        /// The port.
        port: PortNo,
        /// Whether it left.
        sent: bool,
    },
    /// A packet with this key came to the datapath's port of tunnels, and no interface takes it.
    NoTunnel(Arc<FlowKey>),
    /// For the effects that follow, a packet is this many bytes longer, or shorter: outer headers were pushed, or the packet
    /// is again the one that they were pushed on.
    Headers(i32),
    /// A packet could not leave through a tunnel, as the address of a neighbour is unknown.
    Resolve(Arc<Resolve>),
    /// A packet was sent to a neighbour, with outer headers.
    Neighbour {
        /// The bridge that it is at, by name.
        bridge: Arc<str>,
        /// Its address.
        ip: IpAddr,
    },
    /// A packet to a bridge's own port shows the Ethernet address of a neighbour.
    Snoop {
        /// The bridge that it is at, by name.
        bridge: Arc<str>,
        /// Its address.
        ip: IpAddr,
        /// The Ethernet address.
        mac: MacAddr,
        /// The entries that the packet may add or change.
        learning: Learning,
    },
    /// A packet of a flow that NetFlow counts.
    NetFlow(Arc<CountedFlow>),
    /// A mirror selected the packet: the counters of the mirror.
    Mirror(Arc<Counters>),
    /// A group was executed.
    Group(Arc<Group>),
    /// A bucket of a group was executed: its index in the group's list.
    Bucket(Arc<Group>, usize),
    /// A `learn` action was executed.
    Learn(Arc<Learned>),
    /// A TCP connection ends: lower the flow's timeouts to these values, in seconds (0: unchanged).
    FinTimeout {
        /// Bridge of the flow.
        bridge: BridgeId,
        /// The flow.
        rule: Arc<Rule>,
        /// Idle timeout in seconds.
        idle_timeout: u16,
        /// Hard timeout in seconds.
        hard_timeout: u16,
    },
}

/// A flow that a bridge counts for NetFlow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountedFlow {
    /// The bridge.
    pub bridge: BridgeId,
    /// The flow.
    pub flow: netflow::Flow,
    /// Where its packets go.
    pub output: netflow::Output,
}

/// A neighbour whose Ethernet address is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolve {
    /// The bridge that it is at, by name.
    pub bridge: Arc<str>,
    /// Its address.
    pub ip: IpAddr,
    /// The address that asks.
    pub src: IpAddr,
    /// The Ethernet address that asks.
    pub mac: MacAddr,
}

/// A flow to learn from a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Learned {
    /// Bridge that learns.
    pub bridge: BridgeId,
    /// The flow, as a strict modification that adds a missing flow.
    pub flow: FlowMod,
    /// The number of flows with its cookie at which the table learns no more; 0: no limit.
    pub limit: u32,
}

impl Effect {
    /// Returns true if it changes flow tables, in a transaction.
    pub fn is_transaction(&self) -> bool {
        matches!(self, Self::Learn(_) | Self::FinTimeout { .. })
    }
}

impl PartialEq for Effect {
    /// Returns true if two effects are equal, and refer to the same objects.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Lookup { bridge, table, rule }, Self::Lookup { bridge: b, table: t, rule: r }) => {
                (bridge, table, address(rule.as_ref())) == (b, t, address(r.as_ref()))
            }
            (Self::LearnMac { bridge, vlan, mac, port }, Self::LearnMac { bridge: b, vlan: v, mac: m, port: p }) => {
                (bridge, vlan, mac, port) == (b, v, m, p)
            }
            (Self::LockMac { bridge, vlan, mac }, Self::LockMac { bridge: b, vlan: v, mac: m }) => {
                (bridge, vlan, mac) == (b, v, m)
            }
            (Self::BondLoad { loads, bucket }, Self::BondLoad { loads: l, bucket: b }) => {
                Arc::ptr_eq(loads, l) && bucket == b
            }
            (Self::Multicast { bridge, vlan, bundle }, Self::Multicast { bridge: b, vlan: v, bundle: n }) => {
                (bridge, vlan, bundle) == (b, v, n)
            }
            (Self::Patch { from, to }, Self::Patch { from: f, to: t }) => (from, to) == (f, t),
            (Self::Tunnel { bridge, port, sent }, Self::Tunnel { bridge: b, port: p, sent: s }) => {
                (bridge, port, sent) == (b, p, s)
            }
            (Self::NoTunnel(a), Self::NoTunnel(b)) => a == b,
            (Self::Headers(a), Self::Headers(b)) => a == b,
            (Self::Resolve(a), Self::Resolve(b)) => a == b,
            (Self::Neighbour { bridge, ip }, Self::Neighbour { bridge: b, ip: i }) => (bridge, ip) == (b, i),
            (Self::Snoop { bridge, ip, mac, learning }, Self::Snoop { bridge: b, ip: i, mac: m, learning: l }) => {
                (bridge, ip, mac, learning) == (b, i, m, l)
            }
            (Self::NetFlow(a), Self::NetFlow(b)) => a == b,
            (Self::Mirror(a), Self::Mirror(b)) => Arc::ptr_eq(a, b),
            (Self::Group(a), Self::Group(b)) => Arc::ptr_eq(a, b),
            (Self::Bucket(a, i), Self::Bucket(b, j)) => Arc::ptr_eq(a, b) && i == j,
            (Self::Learn(a), Self::Learn(b)) => a == b,
            (
                Self::FinTimeout { bridge, rule, idle_timeout, hard_timeout },
                Self::FinTimeout { bridge: b, rule: r, idle_timeout: i, hard_timeout: h },
            ) => (bridge, idle_timeout, hard_timeout) == (b, i, h) && Arc::ptr_eq(rule, r),
            // Each variant is here, so that a new one is not forgotten above.
            (
                Self::Lookup { .. }
                | Self::LearnMac { .. }
                | Self::LockMac { .. }
                | Self::BondLoad { .. }
                | Self::Multicast { .. }
                | Self::Patch { .. }
                | Self::Tunnel { .. }
                | Self::NoTunnel(_)
                | Self::Headers(_)
                | Self::Resolve(_)
                | Self::Neighbour { .. }
                | Self::Snoop { .. }
                | Self::NetFlow(_)
                | Self::Mirror(_)
                | Self::Group(_)
                | Self::Bucket(..)
                | Self::Learn(_)
                | Self::FinTimeout { .. },
                _,
            ) => false,
        }
    }
}

impl Eq for Effect {}

impl Hash for Effect {
    /// Hashes look-ups and groups by identity, and of other effects, which are few, only the variant.
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

/// The address of a rule.
fn address(rule: Option<&Arc<Rule>>) -> Option<*const Rule> {
    rule.map(Arc::as_ptr)
}

/// A dependency of a verdict, apart from the packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Dependency {
    /// The configuration of a bridge: its ports, bundles and settings.
    Bridge(BridgeId),
    /// The contents of a flow table, as far as this look-up examined them.
    Lookup(Lookup),
    /// The whole content of a flow table.
    Table {
        /// Bridge of the table.
        bridge: BridgeId,
        /// The table.
        table: u8,
    },
    /// The removal of rules from a flow table, which makes room for flows to learn.
    Removals {
        /// Bridge of the table.
        bridge: BridgeId,
        /// The table.
        table: u8,
    },
    /// The location of an address, or its absence from the MAC table.
    Mac {
        /// The bridge of the MAC table.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
        /// Address.
        mac: MacAddr,
    },
    /// The members of a multicast group, or its absence from the bridge's table.
    MulticastGroup {
        /// The bridge.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
        /// Address of the group.
        group: IpAddr,
    },
    /// The ports of a VLAN that lead to multicast routers.
    MulticastRouters {
        /// The bridge.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
    },
    /// A meter, or the absence of one with this number.
    Meter {
        /// Its bridge.
        bridge: BridgeId,
        /// Its number.
        meter: u32,
    },
    /// A part of the decisions of the bond of this name, or the absence of a bond.
    Bond(Arc<str>, bond::Part),
    /// The state that protocols give a port.
    PortState(BridgePort),
    /// The tunnel ports of all bridges, and what the host receives for them.
    Tunnels,
    /// The route to an address.
    Route {
        /// The destination.
        dst: IpAddr,
        /// The source, if it is given.
        src: Option<IpAddr>,
        /// The mark of the packet.
        mark: u32,
    },
    /// The Ethernet address of a neighbour, or that it is unknown.
    Neighbour {
        /// The bridge that it is at, by name.
        bridge: Arc<str>,
        /// Its address.
        ip: IpAddr,
    },
    /// A frozen state of the translation.
    Frozen(Arc<RecircState>),
    /// A group, or the absence of one with this number.
    Group {
        /// Its bridge.
        bridge: BridgeId,
        /// Its number.
        group: u32,
    },
}

/// A look-up in a flow table. All packets of a megaflow have the same key here, in the bits that the verdict read of the
/// packet or wrote before: a rule that contradicts one of these bits cannot be the result of the look-up.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lookup {
    /// Bridge of the table.
    pub bridge: BridgeId,
    /// The table.
    pub table: u8,
    /// The priority of the rule found; only rules of at least that priority can replace it. `None` if none was found, and for a
    /// rule that matches `conj_id`, whose clauses have priorities of their own.
    pub found: Option<u32>,
    /// The words that actions had written to the key before. Words of [`flow::layout::REGS_AND_METADATA`] are always written, and
    /// zero if not listed. All others are those of the packet.
    pub written: Written,
}

/// A word of the key that was written: its number, the bits, the values of these bits.
pub type WrittenWord = (u8, u64, u64);

/// The words written before a look-up: a range of [`Verdict::written`]. Look-ups without a write between them share a
/// range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Written {
    begin: u32,
    end: u32,
}

impl Written {
    /// The words of `all` from `begin` on.
    pub(crate) fn since(begin: usize, all: &[WrittenWord]) -> Self {
        Self { begin: begin as u32, end: all.len() as u32 }
    }

    /// Returns the words, from the list of the same verdict.
    pub fn of(self, all: &[WrittenWord]) -> &[WrittenWord] {
        all.get(self.begin as usize..self.end as usize).unwrap_or_default()
    }
}

/// The error that ended a translation. Its text is the line of the trace at that point.
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
    /// The limit of executed actions is reached.
    #[error("resubmits carried out over {} actions", crate::translate::MAX_STEPS)]
    Steps,
    /// The frozen state for a recirculated packet does not exist any more, or too many translations are frozen.
    #[error("no recirculation context")]
    Recirculation,
    /// The packet arrived on a port that belongs to no bridge.
    #[error("unknown ingress port")]
    Port,
    /// More MPLS labels than a key holds.
    #[error("too many MPLS labels")]
    Labels,
    /// An action that packets of this type do not allow.
    #[error("unsupported packet type")]
    PacketType,
}

impl TranslationError {
    /// The line at the end of a trace.
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

    /// The reason under which the packets that it drops are counted.
    pub fn drop_reason(self) -> DropReason {
        match self {
            Self::Depth => DropReason::RecursionTooDeep,
            Self::Resubmits => DropReason::TooManyResubmits,
            Self::Stack => DropReason::StackTooDeep,
            Self::Actions | Self::Steps => DropReason::TooManyActions,
            Self::Recirculation => DropReason::Recirculation,
            Self::Port => DropReason::NoPort,
            Self::Labels => DropReason::TooManyLabels,
            Self::PacketType => DropReason::PacketType,
        }
    }
}
