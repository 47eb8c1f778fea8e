//! Actions and instructions as values: one list a flow, instructions of OpenFlow 1.1+ in line with the actions, in the
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
mod subfield;

pub use ct::{ALG_FTP, ALG_TFTP, Ct, CtZone};
pub use encap::{Encap, EncapHeader, EncapProperty};
pub use learn::{Learn, LearnDst, LearnSpec, LearnSrc};
pub use nat::{Nat, NatAddresses, NatKind};
pub use sample::{Sample, SampleDirection, SampleForm};
pub use select::{BundleAction, HashFields, LinkAlgorithm, MemberAlgorithm, Multipath};

use base::{MacAddr, PortNo};
use flow::{Field, Loc, TunOption};
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
    /// The whole of `field`.
    pub fn whole(field: Field) -> Self {
        Self { field, offset: 0, n_bits: Self::width(field) }
    }

    /// Bits of a field of which parts can be named: of the state of a connection, also those that are never set.
    fn width(field: Field) -> u16 {
        if field == Field::CtState { field.info().wire_bits } else { field.info().n_bits }
    }

    /// The subfield's bits as a mask over the field's value, right aligned in the field. (128-bit fields at most.)
    pub fn mask(self) -> u128 {
        let ones = if self.n_bits >= 128 { u128::MAX } else { (1 << self.n_bits) - 1 };
        ones.checked_shl(self.offset.into()).unwrap_or(0)
    }
}

/// Why a packet goes to a controller (OpenFlow 1.3 `ofp_packet_in_reason` and later additions).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PacketInReason {
    /// No flow matched.
    NoMatch = 0,
    /// A flow's action.
    Action = 1,
    /// The TTL ran out.
    InvalidTtl = 2,
    /// An action of the action set (OpenFlow 1.4).
    ActionSet = 3,
    /// A group's bucket (OpenFlow 1.4).
    Group = 4,
    /// A packet-out (OpenFlow 1.4).
    PacketOut = 5,
}

impl PacketInReason {
    /// The reason of this number.
    pub fn from_wire(n: u8) -> Option<Self> {
        [Self::NoMatch, Self::Action, Self::InvalidTtl, Self::ActionSet, Self::Group, Self::PacketOut]
            .into_iter()
            .find(|r| *r as u8 == n)
    }

    /// The name in text, as `no_match`.
    pub fn name(self) -> &'static str {
        ["no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"][self as usize]
    }

    /// The reason of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        (0..6).filter_map(Self::from_wire).find(|r| r.name() == name)
    }
}

/// Parameters of the `controller` action.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ControllerAction {
    /// Bytes of the packet to send at most; 0xffff for all of it.
    pub max_len: u16,
    /// Which controllers, by their connection's controller id.
    pub controller_id: u16,
    /// Reported as the reason.
    pub reason: PacketInReason,
    /// Handed through to the controller (NXAST_CONTROLLER2).
    pub userdata: Vec<u8>,
    /// Stop here and let the controller resume (NXAST_CONTROLLER2).
    pub pause: bool,
    /// The meter that decides whether it is sent (NXAST_CONTROLLER2); the one for controllers if there is none of this
    /// number.
    pub meter_id: Option<u32>,
}

impl Default for ControllerAction {
    /// What `controller` means without parameters.
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

/// One action or instruction. What is not here is not supported, and is refused when it is parsed or decoded.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Send the packet to a port. `max_len` is for CONTROLLER only, in bytes.
    Output {
        /// Where to.
        port: PortNo,
        /// Bytes for the controller at most, 0xffff for all (the encoding of OpenFlow 1.0 and `output` of 1.1+).
        max_len: u16,
    },
    /// Send the packet to the port whose number a field holds (NXAST_OUTPUT_REG, NXAST_OUTPUT_REG2).
    OutputReg {
        /// Where the number stands.
        src: Subfield,
        /// Bytes for the controller at most.
        max_len: u16,
    },
    /// Send the packet's first `max_len` bytes (NXAST_OUTPUT_TRUNC).
    OutputTrunc {
        /// Where to.
        port: PortNo,
        /// Bytes, at least 14.
        max_len: u32,
    },
    /// Send the packet to controllers (NXAST_CONTROLLER, NXAST_CONTROLLER2).
    Controller(Box<ControllerAction>),
    /// Send through a queue of a port (OpenFlow 1.0 OFPAT_ENQUEUE).
    Enqueue {
        /// Where to.
        port: PortNo,
        /// Queue of that port.
        queue: u32,
    },
    /// Set the queue for later outputs.
    SetQueue(u32),
    /// Back to the default queue (NXAST_POP_QUEUE).
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
    /// Remove the outer MPLS label; the packet is then of this Ethernet type.
    PopMpls(u16),
    /// Push a service instance tag of a provider backbone bridge, and in front of it an Ethernet header with the packet's
    /// addresses (OpenFlow 1.3).
    PushPbb,
    /// Remove the outer service instance tag; the addresses under it are the packet's then (OpenFlow 1.3).
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
    /// Add a header, so that the packet is of another type (NXAST_ENCAP).
    Encap(Box<Encap>),
    /// Remove the outer header; the packet is then of this packet type, namespace and type of 16 bits each, or of the one
    /// that the header tells (NXAST_DECAP).
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
        /// Which field.
        field: Field,
        /// New value of the bits in `mask`; 0 elsewhere.
        value: u128,
        /// Which bits to set.
        mask: u128,
    },
    /// `set_field` of a tunnel option, or of some of its bits.
    SetTunOption(Box<TunOption>),
    /// `load:VALUE->FIELD[a..b]` (NXAST_REG_LOAD).
    RegLoad {
        /// What to write.
        dst: Subfield,
        /// The value, right aligned.
        value: u64,
    },
    /// `move:SRC->DST` (NXAST_REG_MOVE, OpenFlow 1.5 copy_field).
    RegMove {
        /// Where from.
        src: Subfield,
        /// Where to, of the same number of bits.
        dst: Subfield,
    },
    /// `push:SRC` (NXAST_STACK_PUSH).
    StackPush(Subfield),
    /// `pop:DST` (NXAST_STACK_POP).
    StackPop(Subfield),
    /// `dec_ttl`, with the ids of the controllers to tell when it runs out (`[0]` if none were named).
    DecTtl(Vec<u16>),
    /// `set_tunnel` or `set_tunnel64`.
    SetTunnel {
        /// Tunnel key.
        id: u64,
        /// Whether it was written as the 64-bit form.
        wide: bool,
    },
    /// Look the packet up again.
    Resubmit {
        /// With this ingress port instead of the packet's.
        in_port: Option<PortNo>,
        /// In this table instead of the current one.
        table: Option<u8>,
    },
    /// The same with the addresses and ports of the original direction of the packet's connection in place of the
    /// packet's (NXAST_RESUBMIT_TABLE_CT).
    ResubmitCt {
        /// With this ingress port instead of the packet's.
        in_port: Option<PortNo>,
        /// In this table instead of the current one.
        table: Option<u8>,
    },
    /// Send the packet through the connection tracker (NXAST_CT).
    Ct(Box<Ct>),
    /// Translate the addresses of a connection (NXAST_NAT). Stands in [`Ct::exec`] only.
    Nat(Box<Nat>),
    /// Forget what is known of the packet's connection (NXAST_CT_CLEAR).
    CtClear,
    /// Tell collectors of one of so many packets (NXAST_SAMPLE, NXAST_SAMPLE2, NXAST_SAMPLE3).
    Sample(Box<Sample>),
    /// Remove a tunnel option (NXAST_DELETE_FIELD).
    DeleteField(Field),
    /// Run a group (OpenFlow 1.1; in OpenFlow 1.0 an action of Nicira's).
    Group(u32),
    /// Write whether the packet has more than so many bytes, with Ethernet header and without VLAN tag
    /// (NXAST_CHECK_PKT_LARGER).
    CheckPktLarger {
        /// Bytes.
        len: u16,
        /// The bit that is 1 if so, and 0 if not.
        dst: Subfield,
    },
    /// Write the number of a link that is chosen by a hash (NXAST_MULTIPATH).
    Multipath(Box<Multipath>),
    /// Choose a port, and send the packet there or write the port's number (NXAST_BUNDLE, NXAST_BUNDLE_LOAD).
    Bundle(Box<BundleAction>),
    /// The flow is a clause of a conjunctive match: `conjunction(id,k/n)` (NXAST_CONJUNCTION). Stands with others of its
    /// kind and notes only.
    Conjunction {
        /// The `conj_id` of the flow that the whole conjunction leads to.
        id: u32,
        /// Which clause: k - 1.
        clause: u8,
        /// How many clauses there are: 2 to 64.
        n_clauses: u8,
    },
    /// Add or change a flow (NXAST_LEARN, NXAST_LEARN2).
    Learn(Arc<Learn>),
    /// When a FIN or RST of TCP passes, the flow's timeouts become these if they are longer (NXAST_FIN_TIMEOUT).
    FinTimeout {
        /// Seconds without a packet; 0: unchanged.
        idle_timeout: u16,
        /// Seconds; 0: unchanged.
        hard_timeout: u16,
    },
    /// Run the actions on a copy of the packet.
    Clone(Vec<Action>),
    /// Nothing; carries bytes (NXAST_NOTE).
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
        /// Which bits.
        mask: u64,
    },
    /// Instruction: go on in a later table.
    GotoTable(u8),
}

impl Action {
    /// What Open vSwitch calls the action where it names one.
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
            // Open vSwitch makes no difference between the two.
            Self::SetField { .. } | Self::SetTunOption(_) | Self::RegLoad { .. } => "set_field",
            Self::RegMove { .. } => "move",
            Self::StackPush(_) => "push",
            Self::StackPop(_) => "pop",
            Self::DecTtl(_) => "dec_ttl",
            Self::SetTunnel { .. } => "set_tunnel",
            Self::Resubmit { .. } => "resubmit",
            Self::ResubmitCt { .. } => "resubmit",
            Self::Ct(_) => "ct",
            Self::Nat(_) => "nat",
            Self::CtClear => "ct_clear",
            Self::Sample(_) => "sample",
            Self::DeleteField(_) => "delete_field",
            Self::Group(_) => "group",
            Self::Conjunction { .. } => "conjunction",
            Self::Learn(_) => "learn",
            Self::CheckPktLarger { .. } => "check_pkt_larger",
            Self::Multipath(_) => "multipath",
            // Open vSwitch makes no difference between the two.
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

    /// Calls `found` with each tunnel option that the action reads or writes, also in actions within it, and how many bits
    /// the option must have for that (0 where any number will do).
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
            Self::RegMove { src, dst } => [src, dst].iter().for_each(|part| field(part.field, end(part))),
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

    /// Whether this is an instruction rather than an action of a list.
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

/// Bytes as tests write them: hexadecimal digits, whatever stands between them.
#[cfg(test)]
fn bytes_of_hex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
