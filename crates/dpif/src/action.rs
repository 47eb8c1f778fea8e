//! What a datapath does to a packet: few, simple steps that need no table.

use crate::ct::Ct;
use crate::meter::MeterId;
use base::{DpPort, DropReason, MacAddr, PortNo};
use flow::{Field, FlowKey};
use packet::wire::NshRepr;
use std::sync::Arc;

/// A shared list of actions, executed in order.
pub type DpActions = Arc<[DpAction]>;

/// What a hash of a flow is made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashKind {
    /// IP addresses and protocol, and transport ports: [`flow::hash::l4`].
    L4,
    /// The same for both directions, with Ethernet addresses: [`flow::hash::symmetric_l4`].
    SymmetricL4,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DpAction {
    /// Send the packet, as it is now, out of a port.
    Output(DpPort),
    /// Cut copies of the packet that the next output sends to this many bytes.
    Trunc(u32),
    /// Set the bits `mask` of `field` to those of `value`, in the packet, mending checksums. Only fields that stand in
    /// packet headers, and metadata that the datapath carries (`skb_priority`, `pkt_mark`).
    Set {
        /// Which field.
        field: Field,
        /// The bits' new values, right aligned in the field.
        value: u128,
        /// Which bits.
        mask: u128,
    },
    /// Push an outer VLAN tag.
    PushVlan {
        /// Tag protocol id, 0x8100 or 0x88a8.
        tpid: u16,
        /// Priority and VLAN id (bit 0x1000 does not reach the wire).
        tci: u16,
    },
    /// Remove the outer VLAN tag.
    PopVlan,
    /// Push an MPLS label stack entry behind the Ethernet header and the VLAN tags that keys tell of, in front of entries
    /// that are there.
    PushMpls {
        /// Ethernet type from then on, 0x8847 or 0x8848.
        ethertype: u16,
        /// The entry as on the wire (RFC 3032): label, traffic class, bottom of stack, time to live.
        lse: u32,
    },
    /// Remove the outermost MPLS label stack entry, if there is one.
    PopMpls {
        /// Ethernet type from then on: that of MPLS if entries are left, else that of the payload. If entries came
        /// first in the packet, 0x6558 says that a frame with an Ethernet header is left.
        ethertype: u16,
    },
    /// Push a service instance tag (IEEE 802.1ah) and an Ethernet header in front of a frame: the new header has the
    /// frame's addresses, and no VLAN tags.
    PushPbb {
        /// The tag's control information as on the wire: priority, drop eligibility, use of customer addresses, number of the
        /// service instance.
        tci: u32,
    },
    /// Remove the outermost service instance tag, if there is one: the addresses under it take the place of those in front.
    /// VLAN tags in front of it stay.
    PopPbb,
    /// Copy the time to live from what is under the outermost MPLS label (another, or IP) to the label, or from there to it
    /// (OpenFlow 1.3 section 5.12). Packets without the one or the other stay as they are.
    CopyTtl {
        /// To the label.
        outwards: bool,
    },
    /// Give a packet without an Ethernet header one.
    PushEth {
        /// Destination.
        dst: MacAddr,
        /// Source.
        src: MacAddr,
    },
    /// Remove the Ethernet header. Only with another one does the packet leave through a port.
    PopEth,
    /// Push an MPLS label stack entry in front of the whole packet, with its Ethernet header if it has one.
    AddMpls {
        /// Ethernet type that the packet has then, 0x8847 or 0x8848.
        ethertype: u16,
        /// As in [`DpAction::PushMpls`].
        lse: u32,
    },
    /// Push a network service header in front of the whole packet, with its Ethernet header if it has one.
    PushNsh(Arc<PushNsh>),
    /// Remove the network service header that a packet without an Ethernet header begins with.
    PopNsh,
    /// Compute the hash of the packet's flow, which its key tells from then on (`dp_hash`).
    Hash(HashKind, u32),
    /// Have the packet, as it is now, looked up in the datapath's flows once more, with this `recirc_id` in its key; none
    /// is 0.
    Recirc(u32),
    /// Send the packet through the connection tracker, which tells in its key what it knows of the connection from then
    /// on, and may translate addresses and ports.
    Ct(Arc<Ct>),
    /// Forget what the packet's key tells of its connection.
    CtClear,
    /// Send the packet, as it is now, to controllers.
    Controller(Arc<ControllerUpcall>),
    /// Tell collectors of the packet, as it is now.
    Observe(Arc<Observe>),
    /// Run the steps on a copy of the packet.
    Clone(DpActions),
    /// Run one or the other on a copy of the packet, by its length: of a packet that stands for several, that of the
    /// longest of them.
    CheckPktLen {
        /// Bytes of the frame, without frame check sequence.
        size: u16,
        /// For packets that are longer.
        greater: DpActions,
        /// For the others.
        lesser: DpActions,
    },
    /// Run the steps on a copy of some packets, which chance chooses, each for itself.
    Sample {
        /// How likely a packet is chosen: 0 never, [`u32::MAX`] always.
        probability: u32,
        /// What to do with it.
        actions: DpActions,
    },
    /// Send the packet through a meter, which may drop it, so that no action behind gets it, or mark it.
    Meter(MeterId),
    /// Count a drop. An empty list of actions is a drop too, for [`DropReason::Action`].
    Drop(DropReason),
}

impl DpAction {
    /// Whether all that it does is to change what actions behind it send.
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
            | Self::CtClear
            | Self::Hash(..) => true,
            Self::Output(_)
            | Self::Recirc(_)
            | Self::Ct(_)
            | Self::Controller(_)
            | Self::Observe(_)
            | Self::Clone(_)
            | Self::CheckPktLen { .. }
            | Self::Sample { .. }
            | Self::Meter(_)
            | Self::Drop(_) => false,
        }
    }

    /// Whether it makes a difference to actions behind it. (A hash is for the look-up that it is computed for.)
    pub fn affects_later(&self) -> bool {
        self.is_preparation() && !matches!(self, Self::Hash(..))
            || matches!(self, Self::Meter(_) | Self::Drop(_) | Self::Ct(_))
    }

    /// The lists of actions within it.
    pub fn nested(&self) -> impl Iterator<Item = &DpActions> {
        let lists = match self {
            Self::Clone(inner) | Self::Sample { actions: inner, .. } => [Some(inner), None],
            Self::CheckPktLen { greater, lesser, .. } => [Some(greater), Some(lesser)],
            _ => [None, None],
        };
        lists.into_iter().flatten()
    }

    /// The same with each list of actions within it replaced by what `change` makes of it.
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

// Lists of actions are walked for each batch: rare ones have what is large behind a pointer.
const _: () = assert!(size_of::<DpAction>() <= 48);

/// A network service header to be pushed (RFC 8300).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PushNsh {
    /// The header; context words count if the metadata is of type 1.
    pub header: NshRepr,
    /// Metadata of type 2: a multiple of 4 bytes, at most [`NshRepr::METADATA_MAX`].
    pub tlvs: Vec<u8>,
}

/// Which collectors are told of a packet, and what beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observe {
    /// The bridge that has them: its number above the seam.
    pub bridge: u32,
    /// Which of its collectors.
    pub collectors: Collectors,
    /// The port by which the packet leaves, if it was sampled there.
    pub output: Option<DpPort>,
    /// Whether anything is sent of packets of this flow.
    pub forwarded: bool,
}

/// Collectors of a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Collectors {
    /// Those of all its packets.
    Bridge,
    /// A set that an action of a flow names.
    Set(SampledFlow),
}

/// What an action says that samples the packets of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampledFlow {
    /// Packets of 65,535.
    pub probability: u16,
    /// The set of collectors.
    pub set: u32,
    /// Observation domain.
    pub domain: u32,
    /// Observation point.
    pub point: u32,
    /// Whether it said where the packet is: on its way in or out.
    pub direction: Option<Way>,
}

/// Into the switch or out of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// In.
    Ingress,
    /// Out.
    Egress,
}

/// What a packet-in needs beside the packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerUpcall {
    /// Which bridge's controllers: the bridge's number above the seam.
    pub bridge: u32,
    /// Table of the flow that sent it.
    pub table: u8,
    /// Cookie of that flow; 0 if none matched, all ones for a packet-out.
    pub cookie: u64,
    /// `ofp_packet_in_reason`.
    pub reason: u8,
    /// Bytes at most, 0xffff for all.
    pub max_len: u16,
    /// Which controllers.
    pub controller_id: u16,
    /// For NXT_PACKET_IN2.
    pub userdata: Vec<u8>,
    /// Whether a table-miss flow (OpenFlow 1.3 section 5.4) sent it: to versions before, such a flow is a flow as any
    /// other, and its reason an action.
    pub table_miss: bool,
    /// Ingress port in the bridge's numbering.
    pub in_port: PortNo,
    /// The number of what is left to be done when the controller lets the packet go on; 0 if nothing is to wait for that.
    pub continuation: u32,
    /// The key at that point: registers, metadata and tunnel fields are reported from it.
    pub metadata: FlowKey,
}
