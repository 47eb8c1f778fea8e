//! Actions and instructions as values: one list per flow, with the instructions of OpenFlow 1.1+ among the actions, in the
//! order in which the specification executes them (OpenFlow 1.3 section 5.9).

pub mod check;
mod ct;
pub mod decode;
mod encap;
pub mod encode;
pub mod format;
pub mod instruction;
mod learn;
mod nat;
pub mod parse;
mod sample;
mod select;
mod size;
mod subfield;

pub use ct::{ALG_FTP, ALG_TFTP, Ct, CtZone};
pub use encap::{Encap, EncapHeader, EncapProperty};
pub use learn::{Learn, LearnDst, LearnSpec, LearnSrc};
pub use nat::{Nat, NatAddresses, NatKind};
pub use sample::{ObservationId, Sample, SampleDirection, SampleForm};
pub use select::{BundleAction, HashFields, LinkAlgorithm, MemberAlgorithm, Multipath};

use base::{MacAddr, PortNo};
use flow::{Field, Loc, TunOption};
use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Some bits of a field, as `NXM_NX_REG0[4..7]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Subfield {
    /// The field.
    pub field: Field,
    /// Lowest bit.
    pub offset: u16,
    /// Bits, at least 1.
    pub n_bits: u16,
}

impl Subfield {
    /// Returns the whole of `field`.
    pub fn whole(field: Field) -> Self {
        Self { field, offset: 0, n_bits: Self::width(field) }
    }

    /// The number of bits that subfields can name: for the connection state that includes bits which are never set.
    pub(crate) fn width(field: Field) -> u16 {
        if field == Field::CtState { field.info().wire_bits } else { field.info().n_bits }
    }

    /// Returns the subfield's bits as a mask over the field's value, right aligned in the field. (128-bit fields at most.)
    pub fn mask(self) -> u128 {
        let ones = if self.n_bits >= 128 { u128::MAX } else { (1 << self.n_bits) - 1 };
        ones.checked_shl(self.offset.into()).unwrap_or(0)
    }
}

/// Why a packet goes to a controller (OpenFlow 1.3 `ofp_packet_in_reason` and later additions).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PacketInReason {
    /// No flow matched.
    NoMatch,
    /// A flow's action.
    Action,
    /// The TTL ran out.
    InvalidTtl,
    /// An action of the action set (OpenFlow 1.4).
    ActionSet,
    /// A group's bucket (OpenFlow 1.4).
    Group,
    /// A packet-out (OpenFlow 1.4).
    PacketOut,
    /// A number that no version defines, which the sender of an action or of a packet-in chose.
    Other(u8),
}

impl PacketInReason {
    /// Returns the reason with this number.
    pub fn from_wire(n: u8) -> Self {
        Self::KNOWN.get(usize::from(n)).map_or(Self::Other(n), |(reason, _)| *reason)
    }

    /// Returns its number.
    pub const fn number(self) -> u8 {
        match self {
            Self::NoMatch => 0,
            Self::Action => 1,
            Self::InvalidTtl => 2,
            Self::ActionSet => 3,
            Self::Group => 4,
            Self::PacketOut => 5,
            Self::Other(n) => n,
        }
    }

    /// Returns the name in text, as `no_match`. Like Open vSwitch, which uses them within the switch, it leaves two of the
    /// unknown numbers out.
    pub fn name(self) -> Cow<'static, str> {
        match (Self::KNOWN.get(usize::from(self.number())), self.number()) {
            (Some((_, name)), _) => (*name).into(),
            (None, 6 | 7) => "".into(),
            (None, n) => n.to_string().into(),
        }
    }

    /// Returns the reason with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        // As in Open vSwitch, which has two reasons without a name.
        if name.is_empty() {
            return Some(Self::Other(6));
        }
        Self::KNOWN.iter().find(|(_, known)| *known == name).map(|(reason, _)| *reason)
    }

    /// The reasons that OpenFlow defines, by number, with their names.
    const KNOWN: [(Self, &str); 6] = [
        (Self::NoMatch, "no_match"),
        (Self::Action, "action"),
        (Self::InvalidTtl, "invalid_ttl"),
        (Self::ActionSet, "action_set"),
        (Self::Group, "group"),
        (Self::PacketOut, "packet_out"),
    ];
}

/// Parameters of the `controller` action.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ControllerAction {
    /// The largest number of the packet's bytes to send; 0xffff for all of them.
    pub max_len: u16,
    /// Sends to connections with this controller id.
    pub controller_id: u16,
    /// The reason in the packet-in.
    pub reason: PacketInReason,
    /// Data that the packet-in passes to the controller (NXAST_CONTROLLER2).
    pub userdata: Vec<u8>,
    /// Stops here until the controller resumes the packet (NXAST_CONTROLLER2).
    pub pause: bool,
    /// The meter that limits these packets (NXAST_CONTROLLER2); if no such meter exists, the controller meter applies.
    pub meter_id: Option<u32>,
}

impl Default for ControllerAction {
    /// The parameters of a bare `controller`.
    fn default() -> Self {
        Self {
            max_len: 0xffff,
            controller_id: 0,
            reason: PacketInReason::Action,
            userdata: Vec::new(),
            pause: false,
            meter_id: None,
        }
    }
}

/// An action or instruction. Parsing and decoding refuse all others as unsupported.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Send the packet to a port. `max_len` is for CONTROLLER only, in bytes.
    Output {
        /// The port.
        port: PortNo,
        /// The largest number of bytes for the controller, 0xffff for all (the encoding of OpenFlow 1.0 and `output` of 1.1+).
        max_len: u16,
    },
    /// Send the packet to the port whose number a field holds (NXAST_OUTPUT_REG, NXAST_OUTPUT_REG2).
    OutputReg {
        /// The field that holds the number.
        src: Subfield,
        /// The largest number of bytes for the controller.
        max_len: u16,
    },
    /// Send the packet's first `max_len` bytes (NXAST_OUTPUT_TRUNC).
    OutputTrunc {
        /// The port.
        port: PortNo,
        /// Bytes, at least 14.
        max_len: u32,
    },
    /// Send the packet to controllers (NXAST_CONTROLLER, NXAST_CONTROLLER2).
    Controller(Box<ControllerAction>),
    /// Send through a queue of a port (OpenFlow 1.0 OFPAT_ENQUEUE).
    Enqueue {
        /// The port.
        port: PortNo,
        /// Queue of that port.
        queue: u32,
    },
    /// Set the queue for later outputs.
    SetQueue(u32),
    /// Reset to the default queue (NXAST_POP_QUEUE).
    PopQueue,
    /// `mod_vlan_vid`: set the VLAN id, pushing a tag if there is none (OpenFlow 1.0), or only if there is one (1.1).
    SetVlanVid {
        /// 12 bits.
        vid: u16,
        /// Push a tag if the packet has none.
        push_if_needed: bool,
    },
    /// `mod_vlan_pcp`: likewise for the priority.
    SetVlanPcp {
        /// 3 bits.
        pcp: u8,
        /// Push a tag if the packet has none.
        push_if_needed: bool,
    },
    /// Remove the outer VLAN tag, if there is one.
    PopVlan,
    /// Push a VLAN tag of this protocol id (0x8100 or 0x88a8).
    PushVlan(u16),
    /// Push an MPLS label, with this Ethernet type (0x8847 or 0x8848).
    PushMpls(u16),
    /// Pop the outer MPLS label; the packet then has this Ethernet type.
    PopMpls(u16),
    /// Push a service instance tag of a provider backbone bridge, and in front of it an Ethernet header with the packet's
    /// addresses (OpenFlow 1.3).
    PushPbb,
    /// Pop the outer service instance tag; the inner addresses become the packet's (OpenFlow 1.3).
    PopPbb,
    /// `set_mpls_label`: 20 bits.
    SetMplsLabel(u32),
    /// `set_mpls_tc`: the traffic class, 3 bits.
    SetMplsTc(u8),
    /// `set_mpls_ttl`.
    SetMplsTtl(u8),
    /// `dec_mpls_ttl`.
    DecMplsTtl,
    /// Copy the TTL from the header after the outer MPLS label to the label (OpenFlow 1.1).
    CopyTtlOut,
    /// Copy the TTL from the outer MPLS label to the header after it (OpenFlow 1.1).
    CopyTtlIn,
    /// Decrement the TTL of the network service header (NXAST_DEC_NSH_TTL).
    DecNshTtl,
    /// Push a header, which changes the packet's type (NXAST_ENCAP).
    Encap(Box<Encap>),
    /// Pop the outer header; the packet then has this packet type, namespace and type of 16 bits each, or the one that the
    /// header states (NXAST_DECAP).
    Decap(Option<u32>),
    /// `mod_dl_src`.
    SetEthSrc(MacAddr),
    /// `mod_dl_dst`.
    SetEthDst(MacAddr),
    /// `mod_nw_src`.
    SetIpv4Src(Ipv4Addr),
    /// `mod_nw_dst`.
    SetIpv4Dst(Ipv4Addr),
    /// `mod_nw_tos`: the DSCP, as the upper six bits of eight.
    SetIpDscp(u8),
    /// `mod_nw_ecn`: two bits.
    SetIpEcn(u8),
    /// `mod_nw_ttl`.
    SetIpTtl(u8),
    /// `mod_tp_src`: of TCP, UDP or SCTP.
    SetL4Src(u16),
    /// `mod_tp_dst`.
    SetL4Dst(u16),
    /// `set_field:VALUE/MASK->FIELD`.
    SetField {
        /// The field.
        field: Field,
        /// New value of the bits in `mask`; 0 elsewhere.
        value: u128,
        /// The bits to set, as on the wire: it may have bits beyond those of the field, and all of the wire's bits stand for
        /// no mask.
        mask: u128,
    },
    /// `set_field` of a tunnel option, or of some of its bits.
    SetTunOption(Box<TunOption>),
    /// `load:VALUE->FIELD[a..b]` (NXAST_REG_LOAD, several if it has more than 64 bits).
    RegLoad {
        /// The destination.
        dst: Subfield,
        /// The value, right aligned.
        value: u128,
    },
    /// `move:SRC->DST` (NXAST_REG_MOVE, OpenFlow 1.5 copy_field).
    RegMove {
        /// The source.
        src: Subfield,
        /// The destination, of the same number of bits.
        dst: Subfield,
    },
    /// The same, as a controller sent it in the form of the Open Networking Foundation's extension of OpenFlow 1.3.
    CopyField {
        /// The source.
        src: Subfield,
        /// The destination, of the same number of bits.
        dst: Subfield,
    },
    /// `push:SRC` (NXAST_STACK_PUSH).
    StackPush(Subfield),
    /// `pop:DST` (NXAST_STACK_POP).
    StackPop(Subfield),
    /// `dec_ttl`, or with ids `dec_ttl(ID,...)` (NXAST_DEC_TTL_CNT_IDS): the controllers to notify when the TTL expires,
    /// the one with the id 0 if the action names none.
    DecTtl(Option<Vec<u16>>),
    /// `set_tunnel` or `set_tunnel64`.
    SetTunnel {
        /// Tunnel key.
        id: u64,
        /// True for the 64-bit form.
        wide: bool,
    },
    /// Look the packet up again.
    Resubmit {
        /// The ingress port to use instead of the packet's.
        in_port: Option<PortNo>,
        /// The table to use instead of the current one.
        table: Option<u8>,
    },
    /// Look the packet up again in the current table, as a controller sent it in the form that has no table
    /// (NXAST_RESUBMIT).
    ResubmitPort {
        /// The ingress port to use instead of the packet's.
        in_port: Option<PortNo>,
    },
    /// Resubmit with the addresses and ports of the original direction of the packet's connection in place of the
    /// packet's (NXAST_RESUBMIT_TABLE_CT).
    ResubmitCt {
        /// The ingress port to use instead of the packet's.
        in_port: Option<PortNo>,
        /// The table to use instead of the current one.
        table: Option<u8>,
    },
    /// Send the packet through the connection tracker (NXAST_CT).
    Ct(Box<Ct>),
    /// Translate the addresses of a connection (NXAST_NAT). Stands in [`Ct::exec`] only.
    Nat(Box<Nat>),
    /// Clear the packet's connection tracking state (NXAST_CT_CLEAR).
    CtClear,
    /// Has each packet of the flow go through the slow path (NXAST_DEBUG_SLOW), for tests of a switch.
    DebugSlow,
    /// Recirculates the packet before the next action (NXAST_DEBUG_RECIRC), for tests of a switch.
    DebugRecirc,
    /// Report a random sample of packets to IPFIX collectors (NXAST_SAMPLE, NXAST_SAMPLE2, NXAST_SAMPLE3,
    /// NXAST_SAMPLE4).
    Sample(Box<Sample>),
    /// Remove a tunnel option (NXAST_DELETE_FIELD).
    DeleteField(Field),
    /// Execute a group (OpenFlow 1.1; Nicira's action in OpenFlow 1.0).
    Group(u32),
    /// Write whether the packet is larger than `len` bytes, with Ethernet header and without VLAN tag
    /// (NXAST_CHECK_PKT_LARGER).
    CheckPktLarger {
        /// Bytes.
        len: u16,
        /// The bit to write: 1 if the packet is larger, 0 if not.
        dst: Subfield,
    },
    /// Write the number of a link that a hash selects (NXAST_MULTIPATH).
    Multipath(Box<Multipath>),
    /// Select a port, and output to it or write its number (NXAST_BUNDLE, NXAST_BUNDLE_LOAD).
    Bundle(Box<BundleAction>),
    /// The flow is a clause of a conjunctive match: `conjunction(id,k/n)` (NXAST_CONJUNCTION). Its list may hold only other
    /// `conjunction` actions and notes.
    Conjunction {
        /// The `conj_id` that the flow of the whole conjunction matches.
        id: u32,
        /// The clause: k - 1.
        clause: u8,
        /// The number of clauses: 2 to 64.
        n_clauses: u8,
    },
    /// Add or change a flow (NXAST_LEARN, NXAST_LEARN2).
    Learn(Arc<Learn>),
    /// When a TCP FIN or RST passes, lower the flow's timeouts to these values (NXAST_FIN_TIMEOUT).
    FinTimeout {
        /// Idle timeout in seconds; 0: unchanged.
        idle_timeout: u16,
        /// Hard timeout in seconds; 0: unchanged.
        hard_timeout: u16,
    },
    /// Run the actions on a copy of the packet.
    Clone(Vec<Action>),
    /// A no-op that carries bytes (NXAST_NOTE).
    Note(Vec<u8>),
    /// Stop processing the packet (NXAST_EXIT).
    Exit,
    /// Instruction, and an action in OpenFlow 1.5, that comes first: send the packet through a meter, which may drop or
    /// mark it.
    Meter(u32),
    /// Instruction: empty the action set.
    ClearActions,
    /// Instruction: merge into the action set.
    WriteActions(Vec<Action>),
    /// Instruction: set bits of the metadata register.
    WriteMetadata {
        /// Value.
        value: u64,
        /// The bits to set.
        mask: u64,
    },
    /// Instruction: continue in a later table.
    GotoTable(u8),
}

impl Action {
    /// The action's name in Open vSwitch's messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Output { .. } => "output",
            Self::OutputReg { .. } => "output_reg",
            Self::OutputTrunc { .. } => "output_trunc",
            Self::Controller(_) => "controller",
            Self::Enqueue { .. } => "enqueue",
            Self::SetQueue(_) => "set_queue",
            Self::PopQueue => "pop_queue",
            Self::SetVlanVid { .. } => "set_vlan_vid",
            Self::SetVlanPcp { .. } => "set_vlan_pcp",
            Self::PopVlan => "strip_vlan",
            Self::PushVlan(_) => "push_vlan",
            Self::PushMpls(_) => "push_mpls",
            Self::PopMpls(_) => "pop_mpls",
            Self::PushPbb => "push_pbb",
            Self::PopPbb => "pop_pbb",
            Self::SetMplsLabel(_) => "set_mpls_label",
            Self::SetMplsTc(_) => "set_mpls_tc",
            Self::SetMplsTtl(_) => "set_mpls_ttl",
            Self::DecMplsTtl => "dec_mpls_ttl",
            Self::CopyTtlOut => "copy_ttl_out",
            Self::CopyTtlIn => "copy_ttl_in",
            Self::DecNshTtl => "dec_nsh_ttl",
            Self::Encap(_) => "encap",
            Self::Decap(_) => "decap",
            Self::SetEthSrc(_) => "mod_dl_src",
            Self::SetEthDst(_) => "mod_dl_dst",
            Self::SetIpv4Src(_) => "mod_nw_src",
            Self::SetIpv4Dst(_) => "mod_nw_dst",
            Self::SetIpDscp(_) => "mod_nw_tos",
            Self::SetIpEcn(_) => "mod_nw_ecn",
            Self::SetIpTtl(_) => "mod_nw_ttl",
            Self::SetL4Src(_) => "mod_tp_src",
            Self::SetL4Dst(_) => "mod_tp_dst",
            // Open vSwitch uses one name for both.
            Self::SetField { .. } | Self::SetTunOption(_) | Self::RegLoad { .. } => "set_field",
            Self::RegMove { .. } | Self::CopyField { .. } => "move",
            Self::StackPush(_) => "push",
            Self::StackPop(_) => "pop",
            Self::DecTtl(_) => "dec_ttl",
            Self::SetTunnel { .. } => "set_tunnel",
            Self::Resubmit { .. } | Self::ResubmitPort { .. } => "resubmit",
            Self::ResubmitCt { .. } => "resubmit",
            Self::Ct(_) => "ct",
            Self::Nat(_) => "nat",
            Self::CtClear => "ct_clear",
            Self::DebugSlow => "debug_slow",
            Self::DebugRecirc => "debug_recirc",
            Self::Sample(_) => "sample",
            Self::DeleteField(_) => "delete_field",
            Self::Group(_) => "group",
            Self::Conjunction { .. } => "conjunction",
            Self::Learn(_) => "learn",
            Self::CheckPktLarger { .. } => "check_pkt_larger",
            Self::Multipath(_) => "multipath",
            // Open vSwitch uses one name for both.
            Self::Bundle(_) => "bundle",
            Self::FinTimeout { .. } => "fin_timeout",
            Self::Clone(_) => "clone",
            Self::Note(_) => "note",
            Self::Exit => "exit",
            Self::Meter(_) => "meter",
            Self::ClearActions => "clear_actions",
            Self::WriteActions(_) => "write_actions",
            Self::WriteMetadata { .. } => "write_metadata",
            Self::GotoTable(_) => "goto_table",
        }
    }

    /// Calls `found` with each tunnel option that the action reads or writes, including nested actions, and the number of bits
    /// that the option must have for that (0 if any number will do).
    pub fn tunnel_options(&self, found: &mut dyn FnMut(Field, u16)) {
        let mut field = |field: Field, n_bits: u16| {
            if let Loc::TunMetadata(_) = field.info().loc {
                found(field, n_bits);
            }
        };
        let end = |part: &Subfield| part.offset.saturating_add(part.n_bits);
        match self {
            Self::SetTunOption(option) => field(option.field(), 8 * option.value().len() as u16),
            Self::DeleteField(deleted) => field(*deleted, 0),
            Self::RegLoad { dst: part, .. }
            | Self::StackPush(part)
            | Self::StackPop(part)
            | Self::OutputReg { src: part, .. }
            | Self::CheckPktLarger { dst: part, .. } => field(part.field, end(part)),
            Self::Sample(sample) => {
                for id in [sample.obs_domain_id, sample.obs_point_id] {
                    if let ObservationId::Field(part) = id {
                        field(part.field, end(&part));
                    }
                }
            }
            Self::RegMove { src, dst } | Self::CopyField { src, dst } => {
                [src, dst].iter().for_each(|part| field(part.field, end(part)));
            }
            Self::Multipath(multipath) => field(multipath.dst.field, end(&multipath.dst)),
            Self::Bundle(bundle) => bundle.dst.iter().for_each(|part| field(part.field, end(part))),
            Self::Ct(ct) => {
                if let CtZone::Field(part) = &ct.zone {
                    field(part.field, end(part));
                }
                ct.exec.iter().for_each(|action| action.tunnel_options(found));
            }
            Self::Learn(learn) => {
                for spec in &learn.specs {
                    if let LearnSrc::Field(part) = &spec.src {
                        field(part.field, end(part));
                    }
                    if let LearnDst::Match(part) | LearnDst::Load(part) = &spec.dst {
                        field(part.field, end(part));
                    }
                }
                learn.result_dst.iter().for_each(|part| field(part.field, end(part)));
            }
            Self::Clone(nested) | Self::WriteActions(nested) => {
                nested.iter().for_each(|action| action.tunnel_options(found));
            }
            _ => {}
        }
    }

    /// Returns true if this is an instruction rather than an action of a list.
    pub fn is_instruction(&self) -> bool {
        matches!(
            self,
            Self::Meter(_)
                | Self::ClearActions
                | Self::WriteActions(_)
                | Self::WriteMetadata { .. }
                | Self::GotoTable(_)
        )
    }
}

/// Decodes the hexadecimal digits of a test's text, ignoring all other characters.
#[cfg(test)]
fn bytes_of_hex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
