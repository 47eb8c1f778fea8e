//! Checks lists of actions: by themselves ([`verify`]) and against a flow's match ([`check`]), by the rules of ovs-actions(7),
//! "Inconsistencies".
//!
//! The check follows the list, as each action changes the packet: a pushed tag can be set and popped.

use super::{Action, EncapHeader, Subfield, ct, select};
use crate::error::OfpError;
use crate::meter::METER_MAX;
use crate::prereq;
use crate::version::Version;
use base::PortNo;
use flow::extract::ethertype::PBB;
use flow::{Field, Loc, Match, Prereq};
use vlog::{RateLimit, warn_rl};

/// Limits the messages about actions that do not fit their flow.
static LIMIT: RateLimit = RateLimit::new(1, 5);

/// The context of a list of actions, which decides which actions it may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// In a flow: instructions too.
    Flow,
    /// In a packet-out: actions only.
    Actions,
    /// In a `ct`: only actions that change the connection.
    Connection,
}

/// The properties of a switch and a flow that [`check`] depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The version whose rules apply: OpenFlow 1.0 accepts actions that do not fit the flow's match.
    pub version: Version,
    /// The flow's table; 255 if it is not known.
    pub table: u8,
    /// Number of tables; 255 if it is not known.
    pub n_tables: u8,
    /// Port numbers are less than this.
    pub max_ports: u32,
}

impl Limits {
    /// Limits for a flow of `table` in a switch that has all of the tables 0 to 253.
    pub fn new(version: Version, table: u8) -> Self {
        Self { version, table, n_tables: 254, max_ports: PortNo::MAX.0 }
    }
}

/// An error in a list of actions that does not depend on the match. The messages are those of `ovs-ofctl`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Misplaced {
    /// An instruction in a list that may hold actions only.
    #[error("{0} instruction not allowed here")]
    Instruction(&'static str),
    /// An instruction that appears twice.
    #[error("duplicate {0} instruction not allowed, for OpenFlow 1.1+ compatibility")]
    Duplicate(&'static str),
    /// An instruction or action after an instruction that is executed later.
    #[error("invalid instruction ordering: {0} must appear before {1}, for OpenFlow 1.1+ compatibility")]
    Order(&'static str, &'static str),
    /// An action nested in another one that does not accept it.
    #[error("{0} action doesn't support nested action {1}")]
    Nested(&'static str, &'static str),
    /// An action in a `ct` that writes a field which does not belong to the connection.
    #[error("ct action doesn't support nested modification of {0}")]
    NestedField(&'static str),
    /// A `nat` outside of a `ct`.
    #[error("Cannot have NAT action outside of \"ct\" action")]
    Nat,
    /// An action outside of a `ct` that sets a field of connection tracking.
    #[error("cannot set CT fields outside of ct action")]
    ConnectionField,
    /// A flow with `conjunction` actions that has other actions too.
    #[error(
        "\"conjunction\" actions may be used along with \"note\" but not any other kind of action (such as the \"{0}\" action used here)"
    )]
    WithConjunction(&'static str),
}

impl From<Misplaced> for OfpError {
    fn from(misplaced: Misplaced) -> Self {
        match misplaced {
            Misplaced::Instruction(_) => Self::BicUnsupInst,
            Misplaced::Nested(..) | Misplaced::NestedField(_) => Self::BacBadArgument,
            Misplaced::Duplicate(_) | Misplaced::Order(..) => Self::BacUnsupportedOrder,
            Misplaced::ConnectionField | Misplaced::Nat => Self::BacBadSetArgument,
            Misplaced::WithConjunction(_) => Self::NxbacBadConjunction,
        }
    }
}

/// Checks the rules that need no match: which instructions a list may hold, in which order and how often.
pub fn verify(actions: &[Action], allowed: Allowed) -> Result<(), Misplaced> {
    if allowed == Allowed::Connection {
        return actions.iter().try_for_each(verify_in_ct);
    }
    let mut last = None;
    for action in actions {
        if let Action::Conjunction { .. } = action {
            let other = actions.iter().find(|a| !matches!(a, Action::Conjunction { .. } | Action::Note(_)));
            return other.map_or(Ok(()), |a| Err(Misplaced::WithConjunction(a.name())));
        }
        let stage = Stage::of(action);
        if stage > Stage::Apply && allowed == Allowed::Actions {
            return Err(Misplaced::Instruction(stage.name()));
        }
        match last {
            Some(last) if stage == last && stage != Stage::Apply => return Err(Misplaced::Duplicate(stage.name())),
            Some(last) if stage < last => return Err(Misplaced::Order(stage.name(), last.name())),
            _ => last = Some(stage),
        }
        match action {
            Action::WriteActions(nested) | Action::Clone(nested) => {
                if let Some(meter) = nested.iter().find(|a| matches!(a, Action::Meter(_))) {
                    return Err(Misplaced::Nested(action.name(), meter.name()));
                }
                verify(nested, Allowed::Actions)?;
            }
            Action::Ct(ct) => verify(&ct.exec, Allowed::Connection)?,
            Action::Nat(_) => return Err(Misplaced::Nat),
            Action::SetField { field, .. } if is_of_connection(*field) => return Err(Misplaced::ConnectionField),
            Action::RegLoad { dst, .. } | Action::RegMove { dst, .. } | Action::CopyField { dst, .. }
                if is_of_connection(dst.field) =>
            {
                return Err(Misplaced::ConnectionField);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Does the same for actions of a message. The log says what is wrong, since the error of OpenFlow says less.
pub(crate) fn verify_decoded(actions: &[Action], allowed: Allowed) -> Result<(), OfpError> {
    static LIMIT: RateLimit = RateLimit::new(1, 5);
    verify(actions, allowed).map_err(|misplaced| {
        warn_rl!(&LIMIT, target: "ofp_actions", "{misplaced}");
        misplaced.into()
    })
}

/// Checks that a `ct` may hold this action.
fn verify_in_ct(action: &Action) -> Result<(), Misplaced> {
    let field = match action {
        Action::Nat(_) => return Ok(()),
        Action::SetField { field, .. } => *field,
        Action::RegLoad { dst, .. } | Action::RegMove { dst, .. } | Action::CopyField { dst, .. } => dst.field,
        other => return Err(Misplaced::Nested("ct", other.name())),
    };
    if is_of_connection(field) { Ok(()) } else { Err(Misplaced::NestedField(field.name())) }
}

fn is_of_connection(field: Field) -> bool {
    matches!(field, Field::CtMark | Field::CtLabel)
}

/// Instructions in the order in which they are executed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    Meter,
    Apply,
    Clear,
    Write,
    Metadata,
    Goto,
}

impl Stage {
    pub(super) fn of(action: &Action) -> Self {
        match action {
            Action::Meter(_) => Self::Meter,
            Action::ClearActions => Self::Clear,
            Action::WriteActions(_) => Self::Write,
            Action::WriteMetadata { .. } => Self::Metadata,
            Action::GotoTable(_) => Self::Goto,
            _ => Self::Apply,
        }
    }

    /// The instruction's name in text.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Meter => "meter",
            Self::Apply => "apply_actions",
            Self::Clear => "clear_actions",
            Self::Write => "write_actions",
            Self::Metadata => "write_metadata",
            Self::Goto => "goto_table",
        }
    }
}

/// Returns true if an action set can hold the action.
pub fn is_allowed_in_set(action: &Action) -> bool {
    let header = matches!(
        action,
        Action::SetVlanVid { .. }
            | Action::SetVlanPcp { .. }
            | Action::SetEthSrc(_)
            | Action::SetEthDst(_)
            | Action::SetIpv4Src(_)
            | Action::SetIpv4Dst(_)
            | Action::SetIpDscp(_)
            | Action::SetIpEcn(_)
            | Action::SetIpTtl(_)
            | Action::SetMplsLabel(_)
            | Action::SetMplsTc(_)
            | Action::SetMplsTtl(_)
            | Action::SetL4Src(_)
            | Action::SetL4Dst(_)
            | Action::SetField { .. }
            | Action::SetTunOption(_)
            | Action::RegLoad { .. }
            | Action::RegMove { .. }
            | Action::CopyField { .. }
            | Action::SetTunnel { .. }
    );
    let other = matches!(
        action,
        Action::Output { .. }
            | Action::Group(_)
            | Action::Resubmit { .. }
            | Action::ResubmitPort { .. }
            | Action::ResubmitCt { .. }
            | Action::Ct(_)
            | Action::CtClear
            | Action::PopVlan
            | Action::PushVlan(_)
            | Action::PushMpls(_)
            | Action::PopMpls(_)
            | Action::PushPbb
            | Action::PopPbb
            | Action::DecMplsTtl
            | Action::CopyTtlOut
            | Action::CopyTtlIn
            | Action::DecNshTtl
            | Action::Encap(_)
            | Action::Decap(_)
            | Action::DecTtl(_)
            | Action::SetQueue(_)
    );
    header || other
}

/// Checks a flow's actions against its match.
///
/// Errors: those of [`verify`] (as `OFPBIC_UNSUP_INST`, `OFPBAC_UNSUPPORTED_ORDER`), `OFPBAC_MATCH_INCONSISTENT`, `OFPBAC_BAD_OUT_PORT`, `OFPBAC_BAD_SET_ARGUMENT`,
/// `OFPBAC_BAD_SET_LEN`, `OFPBAC_BAD_TAG`, `OFPBIC_BAD_TABLE_ID`, `OFPMMFC_INVALID_METER`.
pub fn check(actions: &[Action], matching: &Match, limits: &Limits) -> Result<(), OfpError> {
    verify(actions, Allowed::Flow)?;
    check_verified(actions, matching, limits)
}

/// Does the same for actions of a text, whose loads may name fields that actions cannot write: the switch refuses them.
pub(crate) fn check_text(actions: &[Action], matching: &Match, limits: &Limits) -> Result<(), OfpError> {
    verify(actions, Allowed::Flow)?;
    let checker = Checker { limits, strict: limits.version >= Version::V11, any_load: true };
    checker.list(actions, &mut matching.clone())
}

/// Does the same for actions that have passed [`verify`].
pub(crate) fn check_verified(actions: &[Action], matching: &Match, limits: &Limits) -> Result<(), OfpError> {
    let checker = Checker { limits, strict: limits.version >= Version::V11, any_load: false };
    // Most flows only output packets, which leaves the match as it is.
    let first = actions.iter().position(|action| !matches!(action, Action::Output { .. })).unwrap_or(actions.len());
    let (outputs, rest) = actions.split_at(first);
    for output in outputs {
        if let Action::Output { port, .. } = output {
            checker.output_port(*port)?;
        }
    }
    if rest.is_empty() { Ok(()) } else { checker.list(rest, &mut matching.clone()) }
}

pub(super) struct Checker<'a> {
    limits: &'a Limits,
    /// Makes an action that has no effect on the flow's packets an error.
    strict: bool,
    /// Lets `load` name a field that actions cannot write.
    any_load: bool,
}

impl Checker<'_> {
    pub(super) fn list(&self, actions: &[Action], m: &mut Match) -> Result<(), OfpError> {
        actions.iter().try_for_each(|a| self.action(a, m))
    }

    fn consistent(&self, consistent: bool) -> Result<(), OfpError> {
        if consistent || !self.strict { Ok(()) } else { Err(OfpError::BacMatchInconsistent) }
    }

    /// Checks one action, and changes `m` to the packet after it.
    fn action(&self, action: &Action, m: &mut Match) -> Result<(), OfpError> {
        let tagged = m.key().vlan_tci() & 0x1000 != 0;
        let ip = |m: &Match| m.meets(Prereq::Ip);
        match action {
            Action::Output { port, .. } | Action::OutputTrunc { port, .. } => self.output_port(*port),
            Action::Enqueue { port, .. } => {
                let ok = *port == PortNo::IN_PORT || *port == PortNo::LOCAL || port.0 < self.limits.max_ports;
                if ok { Ok(()) } else { Err(OfpError::BacBadOutPort) }
            }
            Action::OutputReg { src, .. } | Action::StackPush(src) => source(*src, m),
            Action::SetVlanVid { push_if_needed, .. } | Action::SetVlanPcp { push_if_needed, .. } => {
                self.consistent(tagged || *push_if_needed)?;
                m.set_masked(Field::VlanTci, 0x1000, 0x1000);
                Ok(())
            }
            Action::PopVlan => {
                self.consistent(tagged)?;
                pop_tag(m);
                Ok(())
            }
            Action::PushVlan(tpid) => push_tag(m, *tpid),
            Action::PushMpls(eth_type) => {
                self.consistent(m.meets(Prereq::Ethernet))?;
                m.set(Field::EthType, (*eth_type).into());
                // The check does not know the header below a label.
                m.clear(Field::IpProto);
                Ok(())
            }
            Action::PopMpls(eth_type) => {
                self.consistent(m.meets(Prereq::Ethernet) && m.meets(Prereq::Mpls))?;
                m.set(Field::EthType, (*eth_type).into());
                Ok(())
            }
            Action::PushPbb => {
                self.consistent(m.meets(Prereq::Ethernet))?;
                m.set(Field::EthType, PBB.into());
                m.clear(Field::IpProto);
                // The new label comes before the packet's tags.
                while m.key().vlan_tci() & 0x1000 != 0 {
                    pop_tag(m);
                }
                m.set(Field::VlanTci, 0);
                Ok(())
            }
            Action::PopPbb => {
                self.consistent(m.meets(Prereq::Ethernet) && m.meets(Prereq::Pbb))?;
                // The next header is known only once the packet is there. A tag in front stays.
                m.set(Field::EthType, u16::MAX.into());
                m.clear(Field::IpProto);
                if !tagged {
                    m.clear(Field::VlanTci);
                }
                Ok(())
            }
            Action::SetMplsLabel(_) | Action::SetMplsTc(_) | Action::SetMplsTtl(_) => {
                self.consistent(m.meets(Prereq::Mpls))
            }
            Action::DecMplsTtl | Action::CopyTtlOut | Action::CopyTtlIn => self.consistent(m.meets(Prereq::Mpls)),
            Action::DecNshTtl => self.consistent(m.meets(Prereq::Nsh)),
            Action::Encap(encap) => {
                encapsulate(m, encap.header);
                Ok(())
            }
            Action::Decap(_) => {
                decapsulate(m);
                Ok(())
            }
            Action::SetIpv4Src(_) | Action::SetIpv4Dst(_) => self.consistent(m.meets(Prereq::Ipv4)),
            Action::SetIpDscp(_) | Action::SetIpEcn(_) | Action::SetIpTtl(_) | Action::DecTtl(_) => {
                self.consistent(ip(m))
            }
            Action::SetL4Src(_) | Action::SetL4Dst(_) => {
                self.consistent([Prereq::Tcp, Prereq::Udp, Prereq::Sctp].into_iter().any(|p| m.meets(p)))
            }
            Action::SetField { field, value, .. } => set_field(*field, *value, m),
            Action::RegLoad { dst, value } => {
                set_field(dst.field, value.checked_shl(dst.offset.into()).unwrap_or(0), m)?;
                if self.any_load { readable(*dst, m, "destination") } else { destination(*dst, m) }
            }
            Action::RegMove { src, dst } | Action::CopyField { src, dst } => {
                source(*src, m).and_then(|()| destination(*dst, m))
            }
            Action::StackPop(dst) => destination(*dst, m),
            Action::FinTimeout { .. } => self.consistent(m.meets(Prereq::Tcp)),
            Action::Learn(learn) => learn.check(m),
            Action::Multipath(multipath) => destination(multipath.dst, m),
            Action::Bundle(bundle) => select::check_bundle(bundle, m, |port| self.output_port(port)),
            Action::Ct(ct) => self.ct(ct, m),
            Action::Nat(nat) => ct::check_nat(nat, m),
            Action::ResubmitCt { .. } if !prereq::connection_is_known(m) => Err(OfpError::BacMatchInconsistent),
            Action::DeleteField(field) if !matches!(field.info().loc, Loc::TunMetadata(_)) => {
                Err(OfpError::BacBadArgument)
            }
            Action::SetTunOption(_) => Ok(()),
            Action::ResubmitCt { .. } | Action::CtClear | Action::Sample(_) | Action::DeleteField(_) => Ok(()),
            Action::DebugSlow | Action::DebugRecirc => Ok(()),
            Action::Clone(nested) => self.list(nested, &mut m.clone()),
            // The packet to which the action set will apply is not known yet.
            Action::WriteActions(set) => Checker { strict: false, ..*self }.list(set, &mut m.clone()),
            Action::GotoTable(table) => {
                let back = self.limits.table != 255 && *table <= self.limits.table;
                let beyond = self.limits.n_tables != 255 && *table >= self.limits.n_tables;
                if back || beyond { Err(OfpError::BicBadTableId) } else { Ok(()) }
            }
            Action::Meter(id) if *id == 0 || *id > METER_MAX => Err(OfpError::MmfcInvalidMeter),
            Action::Meter(_) | Action::CheckPktLarger { .. } => Ok(()),
            Action::Controller(_) | Action::SetQueue(_) | Action::PopQueue | Action::SetEthSrc(_) => Ok(()),
            Action::SetEthDst(_) | Action::SetTunnel { .. } | Action::Note(_) => Ok(()),
            Action::Resubmit { .. } | Action::ResubmitPort { .. } => Ok(()),
            Action::Group(_)
            | Action::Conjunction { .. }
            | Action::Exit
            | Action::ClearActions
            | Action::WriteMetadata { .. } => Ok(()),
        }
    }

    fn output_port(&self, port: PortNo) -> Result<(), OfpError> {
        check_port(port, self.limits.max_ports)
    }
}

/// Checks the tables that a flow of `table` continues in, for a switch with `n_tables` tables.
///
/// Errors: `OFPBIC_BAD_TABLE_ID`.
pub fn check_tables(actions: &[Action], table: u8, n_tables: u8) -> Result<(), OfpError> {
    let beyond = |action: &Action| matches!(action, Action::GotoTable(next) if *next <= table || *next >= n_tables);
    if actions.iter().any(beyond) { Err(OfpError::BicBadTableId) } else { Ok(()) }
}

/// Checks the ports of a list without a match.
///
/// Errors: `OFPBAC_BAD_OUT_PORT`.
pub(crate) fn check_ports(actions: &[Action]) -> Result<(), OfpError> {
    actions.iter().try_for_each(|action| match action {
        Action::Output { port, .. } | Action::OutputTrunc { port, .. } => check_port(*port, PortNo::MAX.0),
        Action::Clone(nested) => check_ports(nested),
        _ => Ok(()),
    })
}

pub(super) fn check_port(port: PortNo, max_ports: u32) -> Result<(), OfpError> {
    const RESERVED: [PortNo; 7] =
        [PortNo::IN_PORT, PortNo::TABLE, PortNo::NORMAL, PortNo::FLOOD, PortNo::ALL, PortNo::CONTROLLER, PortNo::LOCAL];
    let ok = RESERVED.contains(&port) || port.0 < max_ports;
    if ok { Ok(()) } else { Err(OfpError::BacBadOutPort) }
}

pub(super) fn source(part: Subfield, m: &Match) -> Result<(), OfpError> {
    readable(part, m, "source")
}

/// Checks that a packet of the match has these bits; `role` is what the action takes them for.
fn readable(part: Subfield, m: &Match, role: &str) -> Result<(), OfpError> {
    let width = Subfield::width(part.field);
    if part.n_bits == 0 || u32::from(part.offset) + u32::from(part.n_bits) > u32::from(width) {
        Err(OfpError::BacBadSetLen)
    } else if !prereq::satisfied(part.field, m) {
        warn_rl!(&LIMIT, target: "meta_flow", "{role} field {} lacks correct prerequisites", part.field.name());
        Err(OfpError::BacMatchInconsistent)
    } else {
        Ok(())
    }
}

pub(super) fn destination(part: Subfield, m: &Match) -> Result<(), OfpError> {
    readable(part, m, "destination")?;
    writable(part)
}

/// Checks that actions may write a field.
pub(super) fn writable(dst: Subfield) -> Result<(), OfpError> {
    if dst.field.info().writable {
        return Ok(());
    }
    warn_rl!(&LIMIT, target: "meta_flow", "destination field {} is not writable", dst.field.name());
    Err(OfpError::BacBadSetArgument)
}

fn set_field(field: Field, value: u128, m: &mut Match) -> Result<(), OfpError> {
    // A match on the VLAN id needs no match on a tag, but setting the id needs a tag.
    let untagged = field == Field::VlanVid && m.key().vlan_tci() & 0x1000 == 0;
    if !prereq::satisfied(field, m) || untagged {
        warn_rl!(&LIMIT, target: "ofp_actions", "set_field {} lacks correct prerequisites", field.name());
        return Err(OfpError::BacMatchInconsistent);
    }
    if field == Field::VlanTci {
        // This adds or removes the tag.
        m.set_masked(Field::VlanTci, value & 0x1000, 0x1000);
    }
    Ok(())
}

/// A flow key holds two tags at most.
fn push_tag(m: &mut Match, tpid: u16) -> Result<(), OfpError> {
    let mut key = m.key().clone();
    if key.vlan(1).1 & 0x1000 != 0 {
        return Err(OfpError::BacBadTag);
    }
    let (outer_tpid, outer_tci) = key.vlan(0);
    key.set_vlan(1, outer_tpid, outer_tci);
    key.set_vlan(0, tpid, 0x1000);
    *m = with_tags(m, &key);
    Ok(())
}

fn pop_tag(m: &mut Match) {
    let mut key = m.key().clone();
    let (tpid, tci) = key.vlan(1);
    key.set_vlan(0, tpid, tci);
    key.set_vlan(1, 0, 0);
    *m = with_tags(m, &key);
}

fn encapsulate(m: &mut Match, header: EncapHeader) {
    let (namespace, ty) = header.packet_type();
    m.set(Field::PacketType, (header as u32).into());
    if namespace == 1 {
        m.set(Field::EthType, ty.into());
        m.clear(Field::IpProto);
    }
}

/// The contents of an Ethernet packet are known; those of any other packet only once it is there.
fn decapsulate(m: &mut Match) {
    if m.meets(Prereq::Ethernet) {
        let eth_type = u128::from(m.eth_type());
        m.set(Field::PacketType, 1 << 16 | eth_type);
    } else {
        m.set(Field::PacketType, u32::MAX.into());
        m.set(Field::EthType, u16::MAX.into());
        m.clear(Field::IpProto);
    }
}

/// Returns `m` with the values of `key`'s tags, matched exactly.
fn with_tags(m: &Match, key: &flow::FlowKey) -> Match {
    let mut mask = m.mask().clone();
    mask.set_vlan(0, 0xffff, 0xffff);
    mask.set_vlan(1, 0xffff, 0xffff);
    Match::new(key, mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::parse::parse_instructions;
    use flow::NoNames;
    use flow::text::parse_match;

    fn verdict(matching: &str, actions: &str, version: Version) -> Result<(), OfpError> {
        let m = parse_match(matching, &NoNames).expect("a match");
        check(&parse_instructions(actions, &NoNames).expect("actions"), &m, &Limits::new(version, 3))
    }

    #[test]
    fn consistency_follows_the_list() {
        use OfpError::{BacBadOutPort, BacBadSetArgument, BacBadTag, BacMatchInconsistent, BicBadTableId};
        for (matching, actions, of10, of13) in [
            ("", "strip_vlan", Ok(()), Err(BacMatchInconsistent)),
            ("dl_vlan=5", "strip_vlan", Ok(()), Ok(())),
            ("dl_vlan=5", "strip_vlan,strip_vlan", Ok(()), Err(BacMatchInconsistent)),
            ("", "mod_vlan_vid:5,strip_vlan", Ok(()), Ok(())),
            ("", "push_vlan:0x8100,set_field:3->vlan_pcp", Ok(()), Ok(())),
            ("", "set_field:3->vlan_pcp", Err(BacMatchInconsistent), Err(BacMatchInconsistent)),
            ("", "push_vlan:0x8100,push_vlan:0x88a8,push_vlan:0x8100", Err(BacBadTag), Err(BacBadTag)),
            ("arp", "mod_nw_tos:4", Ok(()), Err(BacMatchInconsistent)),
            ("arp", "write_actions(mod_nw_tos:4)", Ok(()), Ok(())),
            ("", "clone(push_vlan:0x8100),strip_vlan", Ok(()), Err(BacMatchInconsistent)),
            ("ip", "load:1->tcp_src", Err(BacMatchInconsistent), Err(BacMatchInconsistent)),
            ("", "move:reg0[0..15]->eth_type", Err(BacBadSetArgument), Err(BacBadSetArgument)),
            ("", "output:NONE", Err(BacBadOutPort), Err(BacBadOutPort)),
            ("dl_vlan=5", "push_pbb:0x88e7,pop_vlan", Ok(()), Err(BacMatchInconsistent)),
            ("dl_vlan=5", "push_pbb:0x88e7,push_vlan:0x88a8,push_vlan:0x8100,pop_pbb,pop_vlan", Ok(()), Ok(())),
            ("ip", "push_pbb:0x88e7,set_field:5->pbb_isid,set_field:1->pbb_uca,pop_pbb", Ok(()), Ok(())),
            ("ip", "push_pbb:0x88e7,mod_nw_ttl:5", Ok(()), Err(BacMatchInconsistent)),
            ("ip", "push_pbb:0x88e7,pop_pbb,mod_nw_ttl:5", Ok(()), Err(BacMatchInconsistent)),
            ("ip", "pop_pbb", Ok(()), Err(BacMatchInconsistent)),
            ("dl_type=0x88e7", "pop_pbb,resubmit(,9)", Ok(()), Ok(())),
            ("ip", "set_field:5->pbb_isid", Err(BacMatchInconsistent), Err(BacMatchInconsistent)),
            ("ipv6", "move:reg0[0..8]->ipv6_exthdr[]", Err(BacBadSetArgument), Err(BacBadSetArgument)),
            ("packet_type=(1,0x800)", "push_pbb:0x88e7", Ok(()), Err(BacMatchInconsistent)),
            ("", "goto_table:3", Err(BicBadTableId), Err(BicBadTableId)),
            ("", "goto_table:4", Ok(()), Ok(())),
            ("", "goto_table:254", Err(BicBadTableId), Err(BicBadTableId)),
        ] {
            assert_eq!(verdict(matching, actions, Version::V10), of10, "{matching} {actions}");
            assert_eq!(verdict(matching, actions, Version::V13), of13, "{matching} {actions}");
        }
    }

    #[test]
    fn instructions_keep_their_order() {
        let list = [Action::GotoTable(5), Action::Exit];
        assert_eq!(verify(&list, Allowed::Flow), Err(Misplaced::Order("apply_actions", "goto_table")));
        let list = [Action::ClearActions, Action::ClearActions];
        assert_eq!(verify(&list, Allowed::Flow), Err(Misplaced::Duplicate("clear_actions")));
        let list = [Action::Clone(vec![Action::GotoTable(1)])];
        assert_eq!(verify(&list, Allowed::Flow), Err(Misplaced::Instruction("goto_table")));
    }
}
