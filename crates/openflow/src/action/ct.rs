//! `ct` and the actions in it: the connection tracker as an action (ovs-actions(7); NXAST_CT, NXAST_NAT). Address
//! translation has a file of its own.

use super::check::{Checker, source};
use super::decode::{decode_list, short_header_field, subfield};
use super::encode::{is_long, nicira, pack, put_header};
use super::nat::{self, Nat};
use super::parse::{ActionError, Parser, error, parse_uint};
use super::{Action, Subfield};
use crate::error::OfpError;
use crate::nxm::Dialect;
use crate::print::format_table;
use crate::version::Version;
use crate::wire::{Reader, Writer};
use flow::text::next_key_value;
use flow::text::parse_table;
use flow::{Field, Match, PortNames, Prereq};
use std::fmt::Write;

const ARGUMENT: OfpError = OfpError::BacBadArgument;

const COMMIT: u16 = 1;
const FORCE: u16 = 2;
/// The value for "no table".
const NO_TABLE: u8 = 255;

/// The port that names the helper for FTP.
pub const ALG_FTP: u16 = 21;
/// The port that names the helper for TFTP.
pub const ALG_TFTP: u16 = 69;

/// The source of a connection's zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CtZone {
    /// A constant.
    Immediate(u16),
    /// A field whose 16 bits hold the number.
    Field(Subfield),
}

/// Parameters of `ct`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ct {
    /// Commits the connection to the tracker.
    pub commit: bool,
    /// Commits the connection in the direction of this packet, even if it was committed in the other one.
    pub force: bool,
    /// The zone.
    pub zone: CtZone,
    /// The table in which a copy of the packet continues once the tracker knows its connection.
    pub table: Option<u8>,
    /// The port of the protocol whose helper (ALG) follows the connection; 0 for none.
    pub alg: u16,
    /// Actions on the connection: changes of `ct_mark` and `ct_label`, and [`Action::Nat`].
    pub exec: Vec<Action>,
}

impl Default for Ct {
    /// The parameters of a bare `ct`.
    fn default() -> Self {
        Self { commit: false, force: false, zone: CtZone::Immediate(0), table: None, alg: 0, exec: Vec::new() }
    }
}

/// Reads the body of NXAST_CT.
pub(super) fn decode(mut r: Reader<'_>, version: Version, depth: usize) -> Result<Action, OfpError> {
    let flags = r.u16()?;
    let (commit, force) = (flags & COMMIT != 0, flags & FORCE != 0);
    if force && !commit {
        return Err(ARGUMENT);
    }
    let mut header = r.sub(4)?;
    let zone = r.u16()?;
    let zone = if header.is_zero() {
        CtZone::Immediate(zone)
    } else {
        let (offset, n_bits) = (zone >> 6, (zone & 0x3f) + 1);
        match subfield(short_header_field(&mut header)?, offset, n_bits)? {
            part if part.n_bits == 16 => CtZone::Field(part),
            _ => return Err(OfpError::BacBadSetLen),
        }
    };
    let table = Some(r.u8()?).filter(|table| *table != NO_TABLE);
    r.skip(3)?;
    let alg = r.u16()?;
    let exec = decode_list(r.rest(), version, depth + 1)?;
    if !commit && !exec.is_empty() && !matches!(&exec[..], [Action::Nat(nat)] if nat.has_no_flags()) {
        return Err(ARGUMENT);
    }
    Ok(Action::Ct(Box::new(Ct { commit, force, zone, table, alg, exec })))
}

/// Appends NXAST_CT. `list` appends the nested actions.
pub(super) fn encode(out: &mut Writer, ct: &Ct, list: impl FnOnce(&mut Writer, &[Action])) {
    nicira(out, 35, |b| {
        b.put_u16(if ct.commit { COMMIT } else { 0 } | if ct.force { FORCE } else { 0 });
        match ct.zone {
            CtZone::Immediate(zone) => {
                b.zeros(4);
                b.put_u16(zone);
            }
            CtZone::Field(part) => {
                put_header(b, part.field, Dialect::Nxm);
                b.put_u16(pack(part));
            }
        }
        b.put_u8(ct.table.unwrap_or(NO_TABLE));
        b.zeros(3);
        b.put_u16(ct.alg);
        list(b, &ct.exec);
    });
}

/// Reads `ct(ARGUMENT,...)`.
pub(super) fn parse(text: &str, parser: &Parser<'_>) -> Result<Action, ActionError> {
    let (mut ct, mut rest) = (Ct::default(), text);
    while let Some((key, value)) = next_key_value(&mut rest) {
        let value = value.unwrap_or("");
        match key {
            "commit" => ct.commit = true,
            "force" => ct.force = true,
            "table" => match parse_table(value, parser.ports) {
                Some(NO_TABLE) => return error("invalid table 0xff"),
                Some(table) => ct.table = Some(table),
                None => return error(format!("unknown table {value}")),
            },
            "zone" => ct.zone = parse_zone(value)?,
            "alg" => {
                ct.alg = match value {
                    "ftp" => ALG_FTP,
                    "tftp" => ALG_TFTP,
                    _ => return error(format!("invalid conntrack helper \"{value}\"")),
                };
            }
            "nat" => ct.exec.push(nat::parse(value)?),
            "exec" => ct.exec.extend(parser.in_ct(value)?),
            _ => return error(format!("invalid argument to \"ct\" action: `{key}'")),
        }
    }
    if ct.force && !ct.commit {
        return error("\"force\" flag requires \"commit\" flag.");
    }
    Ok(Action::Ct(Box::new(ct)))
}

fn parse_zone(text: &str) -> Result<CtZone, ActionError> {
    if let Some(zone) = parse_uint(text, 16) {
        return Ok(CtZone::Immediate(zone as u16));
    }
    let part = Subfield::parse(text)?;
    if is_long(part.field) {
        return error(format!("experimenter OXM field '{}' not supported", part.field.name()));
    }
    Ok(CtZone::Field(part))
}

/// Appends the text. `list` appends the text of nested actions.
pub(super) fn format(out: &mut String, ct: &Ct, names: &dyn PortNames, list: impl Fn(&mut String, &[Action])) {
    let mut parts = Vec::new();
    if ct.commit {
        parts.push("commit".to_owned());
    }
    if ct.force {
        parts.push("force".to_owned());
    }
    if let Some(table) = ct.table {
        let mut text = "table=".to_owned();
        format_table(table, names, &mut text);
        parts.push(text);
    }
    match ct.zone {
        CtZone::Immediate(0) => {}
        CtZone::Immediate(zone) => parts.push(format!("zone={zone}")),
        CtZone::Field(part) => parts.push(format!("zone={part}")),
    }
    // The text gives a `nat` that comes first outside of `exec`.
    let (first, exec) = match &ct.exec[..] {
        [Action::Nat(nat), rest @ ..] => (Some(nat), rest),
        rest => (None, rest),
    };
    if let Some(nat) = first {
        let mut text = String::new();
        nat::format(&mut text, nat);
        parts.push(text);
    }
    if !exec.is_empty() {
        let mut text = "exec(".to_owned();
        list(&mut text, exec);
        text.push(')');
        parts.push(text);
    }
    match ct.alg {
        0 => {}
        ALG_FTP => parts.push("alg=ftp".into()),
        ALG_TFTP => parts.push("alg=tftp".into()),
        other => parts.push(format!("alg={other}")),
    }
    let _ = write!(out, "ct({})", parts.join(","));
}

impl Checker<'_> {
    /// Checks a `ct` against a flow's match: only IP has connections, an invalid one cannot be committed, and helpers are
    /// for their transport protocols.
    pub(super) fn ct(&self, ct: &Ct, m: &mut Match) -> Result<(), OfpError> {
        let transport = match ct.alg {
            ALG_FTP => Some(flow::extract::ipproto::TCP),
            ALG_TFTP => Some(flow::extract::ipproto::UDP),
            _ => None,
        };
        const INVALID: u128 = 0x10;
        let (state, mask) = m.get(Field::CtState);
        let invalid = ct.commit && state & mask & INVALID != 0;
        if !m.meets(Prereq::Ip) || invalid || transport.is_some_and(|proto| m.ip_proto() != Some(proto)) {
            return Err(OfpError::BacMatchInconsistent);
        }
        match ct.zone {
            // As in Open vSwitch, the nested actions are then accepted unchecked.
            CtZone::Field(part) => source(part, m),
            CtZone::Immediate(_) => self.list(&ct.exec, m),
        }
    }
}

/// Checks that addresses are of the family that the flow matches.
pub(super) fn check_nat(nat: &Nat, m: &Match) -> Result<(), OfpError> {
    let fits = match nat.addresses {
        nat::NatAddresses::None => true,
        nat::NatAddresses::Ipv4(..) => m.meets(Prereq::Ipv4),
        nat::NatAddresses::Ipv6(..) => m.meets(Prereq::Ipv6),
    };
    if fits { Ok(()) } else { Err(OfpError::BacMatchInconsistent) }
}
