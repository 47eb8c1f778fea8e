//! Datapath actions: simple steps that need no table lookup.

use crate::bond::BondId;
use crate::meter::MeterId;
use crate::psample::Psample;
use crate::{Defragment, TunnelPop, TunnelPush};
use base::{BridgePort, DpPort, DropReason, MacAddr, PortNo};
use conntrack::Action as Ct;
use flow::{Field, FlowKey};
use packet::wire::NshRepr;
use protocols::Protocol;
use std::net::IpAddr;
use std::sync::Arc;

/// A shared list of actions, executed in order.
pub type DpActions = Arc<[DpAction]>;

/// The fields that a flow hash covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashKind {
    /// IP addresses, IP protocol and transport ports: [`flow::hash::l4`].
    L4,
    /// Symmetric in both directions, with Ethernet addresses: [`flow::hash::symmetric_l4`].
    SymmetricL4,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DpAction {
    /// Sends the packet in its current state out of a port.
    Output(DpPort),
    /// Sends the packet in its current state out of the member of a bond that has the bucket of the packet's hash
    /// ([`HashKind::L4`], [`crate::Bonds`]).
    LbOutput(BondId),
    /// Truncates the copies that the next output sends to this many bytes, or the packets that outer headers are pushed on.
    Trunc(u32),
    /// Sets the bits `mask` of `field` to `value` and updates checksums. Supports fields of packet headers, and
    /// metadata that the datapath carries (`skb_priority`, `pkt_mark`).
    Set {
        /// Which field.
        field: Field,
        /// The new value, right aligned in the field.
        value: u128,
        /// Which bits.
        mask: u128,
    },
    /// Pushes an outer VLAN tag.
    PushVlan {
        /// Tag protocol id, 0x8100 or 0x88a8.
        tpid: u16,
        /// TCI: priority and VLAN id (bit 0x1000 is cleared on the wire).
        tci: u16,
    },
    /// Pops the outer VLAN tag.
    PopVlan,
    /// Pushes an MPLS label stack entry behind the Ethernet header and the VLAN tags that are part of the key, in front
    /// of existing entries.
    PushMpls {
        /// The new Ethernet type, 0x8847 or 0x8848.
        ethertype: u16,
        /// The entry as on the wire (RFC 3032): label, traffic class, bottom of stack, time to live.
        lse: u32,
    },
    /// Pops the outermost MPLS label stack entry, if there is one.
    PopMpls {
        /// The new Ethernet type: MPLS if entries are left, otherwise the payload's. For an L3 packet that began with
        /// the entry, 0x6558 means that an Ethernet frame is left.
        ethertype: u16,
    },
    /// Pushes a service instance tag (IEEE 802.1ah) and an Ethernet header in front of a frame. The new header has the
    /// frame's addresses and no VLAN tags.
    PushPbb {
        /// The tag's control information as on the wire: priority, drop eligibility, use of customer addresses, service
        /// instance id.
        tci: u32,
    },
    /// Pops the outermost service instance tag, if there is one. The inner addresses replace the outer ones; outer VLAN
    /// tags stay.
    PopPbb,
    /// Copies the TTL between the outermost MPLS label and the header below it (another label, or IP), inwards or
    /// outwards (OpenFlow 1.3 section 5.12). Packets without both headers stay as they are.
    CopyTtl {
        /// To the label.
        outwards: bool,
    },
    /// Pushes an Ethernet header onto an L3 packet.
    PushEth {
        /// Destination.
        dst: MacAddr,
        /// Source.
        src: MacAddr,
    },
    /// Pops the Ethernet header. The packet can only leave through a port after another one was pushed.
    PopEth,
    /// Pushes an MPLS label stack entry in front of the whole packet, including its Ethernet header, if any.
    AddMpls {
        /// The packet's new Ethernet type, 0x8847 or 0x8848.
        ethertype: u16,
        /// As in [`DpAction::PushMpls`].
        lse: u32,
    },
    /// Pushes a network service header in front of the whole packet, including its Ethernet header, if any.
    PushNsh(Arc<PushNsh>),
    /// Pops the network service header at the front of an L3 packet.
    PopNsh,
    /// Pushes the outer headers of a tunnel in front of the whole packet, which is then a frame without metadata that came in on
    /// [`TunnelPush::out_port`]. GSO packets are segmented.
    TunnelPush(Arc<TunnelPush>),
    /// Pops the outer headers of a tunnel, and looks the packet up again as one that came in on the tunnel's port, with the outer headers in its metadata.
    TunnelPop(TunnelPop),
    /// Holds fragments of outer packets until their datagram is complete, and then pops its outer headers as
    /// [`DpAction::TunnelPop`] does.
    Defragment(Arc<Defragment>),
    /// Computes the hash of the packet's flow and stores it in `dp_hash` of its key.
    Hash(HashKind, u32),
    /// Recirculates the packet: it is looked up again in its current state, with this nonzero `recirc_id` in its key.
    Recirc(u32),
    /// Sends the packet through conntrack, which stores the connection's state in the packet's key and may translate
    /// addresses and ports.
    Ct(Arc<Ct>),
    /// Clears the connection state in the packet's key.
    CtClear,
    /// Sends the packet in its current state to controllers.
    Controller(Arc<ControllerUpcall>),
    /// Samples the packet in its current state for collectors of IPFIX or sFlow.
    Observe(Arc<Observe>),
    /// Sends a copy of the packet in its current state to collectors on this host.
    Psample(Psample),
    /// Queues the packet in its current state for a protocol of the switch.
    Punt(Punt),
    /// Translates the packet in its current state anew and executes the result ([`crate::UpcallHandler::slow`]): the only
    /// action of a flow whose packets all take the slow path.
    SlowPath,
    /// Executes actions on a copy of the packet.
    Clone(DpActions),
    /// Executes one of two lists of actions on a copy of the packet, depending on its length; for a GSO packet on the
    /// length of its longest segment.
    CheckPktLen {
        /// Frame length in bytes, without frame check sequence.
        size: u16,
        /// For longer packets.
        greater: DpActions,
        /// For the others.
        lesser: DpActions,
    },
    /// Executes actions on copies of randomly chosen packets; each packet is chosen independently.
    Sample {
        /// Probability of a packet: 0 is never, [`u32::MAX`] always.
        probability: u32,
        /// The actions for chosen packets.
        actions: DpActions,
    },
    /// Sends the packet through a meter, which may drop it, so that no later action sees it, or remark it.
    Meter(MeterId),
    /// Leaves the packet to the switch, which holds a copy to send it later. Only in an [`crate::UpcallReply`].
    Held,
    /// Counts a drop. An empty list of actions also drops, with [`DropReason::Action`].
    Drop(DropReason),
}

/// The protocol of the switch that a packet is for, and where it arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Punt {
    /// The protocol.
    pub protocol: Protocol,
    /// The port of the bridge that received the packet.
    pub port: BridgePort,
}

impl Punt {
    /// A punt for a protocol of the whole bridge.
    pub const fn to(protocol: Protocol) -> Self {
        Self { protocol, port: BridgePort { bridge: 0, port: PortNo::NONE } }
    }
}

impl DpAction {
    /// Whether the action only modifies the packet for later actions.
    pub fn is_preparation(&self) -> bool {
        match self {
            Self::Trunc(_)
            | Self::Set { .. }
            | Self::PushVlan { .. }
            | Self::PopVlan
            | Self::PushMpls { .. }
            | Self::PopMpls { .. }
            | Self::PushPbb { .. }
            | Self::PopPbb
            | Self::CopyTtl { .. }
            | Self::PushEth { .. }
            | Self::PopEth
            | Self::AddMpls { .. }
            | Self::PushNsh(_)
            | Self::PopNsh
            | Self::TunnelPush(_)
            | Self::CtClear
            | Self::Hash(..) => true,
            Self::Output(_)
            | Self::LbOutput(_)
            | Self::Recirc(_)
            | Self::TunnelPop(_)
            | Self::Defragment(_)
            | Self::Ct(_)
            | Self::Controller(_)
            | Self::Observe(_)
            | Self::Psample(_)
            | Self::Punt(_)
            | Self::SlowPath
            | Self::Clone(_)
            | Self::CheckPktLen { .. }
            | Self::Sample { .. }
            | Self::Meter(_)
            | Self::Held
            | Self::Drop(_) => false,
        }
    }

    /// Whether the action affects later actions. (A hash only affects the lookup that it is computed for.)
    pub fn affects_later(&self) -> bool {
        self.is_preparation() && !matches!(self, Self::Hash(..))
            || matches!(self, Self::Meter(_) | Self::Drop(_) | Self::Ct(_))
    }

    /// The nested lists of actions.
    pub fn nested(&self) -> impl Iterator<Item = &DpActions> {
        let lists = match self {
            Self::Clone(inner) | Self::Sample { actions: inner, .. } => [Some(inner), None],
            Self::CheckPktLen { greater, lesser, .. } => [Some(greater), Some(lesser)],
            _ => [None, None],
        };
        lists.into_iter().flatten()
    }

    /// A copy in which `change` has replaced each nested list of actions.
    #[must_use]
    pub fn with_nested(&self, mut change: impl FnMut(&[Self]) -> DpActions) -> Self {
        match self {
            Self::Clone(inner) => Self::Clone(change(inner)),
            Self::Sample { probability, actions } => {
                Self::Sample { probability: *probability, actions: change(actions) }
            }
            Self::CheckPktLen { size, greater, lesser } => {
                Self::CheckPktLen { size: *size, greater: change(greater), lesser: change(lesser) }
            }
            other => other.clone(),
        }
    }
}

// Lists of actions are walked for each batch, so large and rare variants are boxed.
const _: () = assert!(size_of::<DpAction>() <= 48);

/// A network service header to be pushed (RFC 8300).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PushNsh {
    /// The header. Its context words are used if the metadata has type 1.
    pub header: NshRepr,
    /// Metadata of type 2: a multiple of 4 bytes, at most [`NshRepr::METADATA_MAX`].
    pub tlvs: Vec<u8>,
}

/// Where to sample a packet, and the collectors of the sample.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Observe {
    /// The bridge that has the collectors, by its number in the switch.
    pub bridge: u32,
    /// Which of its collectors.
    pub collectors: Collectors,
    /// The output port, if the packet was sampled on output.
    pub output: Option<DpPort>,
    /// The tunnel of the bridge behind `output`, if that is a port of tunnels.
    pub tunnel: Option<TunnelOutput>,
    /// Whether the actions of this flow send any packet.
    pub forwarded: bool,
}

/// A tunnel that a sampled packet leaves through.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TunnelOutput {
    /// Its OpenFlow port.
    pub port: PortNo,
    /// True if the collectors want the headers of tunnels. Only the text of the action shows it: the headers are not known
    /// where the packet is sampled.
    pub with_headers: bool,
}

/// Collectors of a bridge.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Collectors {
    /// The collectors of a bridge that samples all packets.
    Bridge,
    /// A collector set, named by an action of a flow.
    Set(SampledFlow),
    /// The collectors of sFlow.
    Sflow(Arc<SampledWay>),
}

/// What becomes of a packet that is sampled for sFlow on its arrival.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SampledWay {
    /// Its VLAN tag after all actions: priority and VLAN id, 0 without a tag.
    pub vlan_tci: u16,
    /// Its output interface, in the encoding of sFlow.
    pub output: u32,
    /// MPLS label stack entries that are pushed, the outermost first.
    pub labels: Vec<u32>,
    /// The tunnel that it leaves through, if that is its only output.
    pub tunnel: Option<SentTunnel>,
}

/// The outer headers that a packet gets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SentTunnel {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Destination port, 0 without one.
    pub dst_port: u16,
    /// Type of service.
    pub tos: u8,
    /// Key of the tunnel, if it has one.
    pub key: Option<u64>,
}

/// The parameters of an action that samples the packets of a flow.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SampledFlow {
    /// Packets of 65,535.
    pub probability: u16,
    /// The set of collectors.
    pub set: u32,
    /// Observation domain.
    pub domain: u32,
    /// Observation point.
    pub point: u32,
    /// The explicit direction of the sample, if the action states one.
    pub direction: Option<SamplePoint>,
}

/// Whether a packet is sampled on input or on output.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SamplePoint {
    /// In.
    Ingress,
    /// Out.
    Egress,
}

/// Information for a packet-in in addition to the packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ControllerUpcall {
    /// The bridge whose controllers receive it, by its number in the switch.
    pub bridge: u32,
    /// Table of the rule that sent it.
    pub table: u8,
    /// Cookie of that rule; 0 if no rule matched, all ones for a packet-out.
    pub cookie: u64,
    /// `ofp_packet_in_reason`.
    pub reason: u8,
    /// Maximum number of bytes, 0xffff for all.
    pub max_len: u16,
    /// Which controllers.
    pub controller_id: u16,
    /// For NXT_PACKET_IN2.
    pub userdata: Vec<u8>,
    /// Whether a table-miss flow (OpenFlow 1.3 section 5.4) sent it. Earlier versions know no such flows, and report an
    /// action as the reason.
    pub table_miss: bool,
    /// Ingress port in the numbering of OpenFlow.
    pub in_port: PortNo,
    /// The number of the frozen state of its translation, 0 if there is no room for one.
    pub recirc_id: u32,
    /// True if the packet waits until NXT_RESUME continues that state.
    pub pauses: bool,
    /// True if no controller receives the packet, because it is traced only.
    pub dont_send: bool,
    /// The key at that point, from which registers, metadata and tunnel fields are reported.
    pub metadata: FlowKey,
}

/// The fields of the network service header that actions can set.
pub const SETTABLE_IN_NSH: [Field; 8] = [
    Field::NshFlags,
    Field::NshTtl,
    Field::NshSpi,
    Field::NshSi,
    Field::NshC1,
    Field::NshC2,
    Field::NshC3,
    Field::NshC4,
];
