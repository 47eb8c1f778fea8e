//! The `learn` action, which adds or changes a flow as packets pass (NXAST_LEARN and NXAST_LEARN2): value, bytes, text, and
//! the checks against the flow's match.

use super::check::{destination, source};
use super::decode::{short_header_field, subfield};
use super::encode::{nicira, put_header};
use super::parse::{ActionError, error, parse_u128};
use super::{Action, Subfield};
use crate::error::OfpError;
use crate::flow_mod::FlowMod;
use crate::nxm::{Dialect, Header};
use crate::print::format_table;
use crate::wire::{Reader, Writer};
use flow::text::{format_value, next_key_value, parse_table, parse_value};
use flow::{Field, Loc, Match, PortNames};
use std::fmt::Write;
use std::sync::Arc;

const LEN: OfpError = OfpError::BacBadLen;

/// The subtypes of the two forms. The second one has a limit and a destination for the result.
pub(super) const NXAST_LEARN: u16 = 16;
pub(super) const NXAST_LEARN2: u16 = 45;

const SEND_FLOW_REM: u16 = 1;
const DELETE_LEARNED: u16 = 2;
const WRITE_RESULT: u16 = 4;

/// Bits of a specification's header: width, source and destination.
const N_BITS: u16 = 0x3ff;
const SRC_IMMEDIATE: u16 = 1 << 13;
const DST_LOAD: u16 = 1 << 11;
const DST_OUTPUT: u16 = 2 << 11;
const DST: u16 = 3 << 11;

/// The parameters of `learn`: the settings of the flow to add, and the specifications of its match and actions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Learn {
    /// The sender used the second form, NXAST_LEARN2, without a limit or a destination for the result, which need it.
    pub second: bool,
    /// Idle timeout of the learned flow in seconds; 0: none.
    pub idle_timeout: u16,
    /// Hard timeout of the learned flow in seconds; 0: none.
    pub hard_timeout: u16,
    /// Priority of the learned flow.
    pub priority: u16,
    /// Cookie of the learned flow.
    pub cookie: u64,
    /// Table of the learned flow, not 255.
    pub table: u8,
    /// The idle timeout in seconds once a TCP connection ends; 0: unchanged.
    pub fin_idle_timeout: u16,
    /// The hard timeout in seconds once a TCP connection ends; 0: unchanged.
    pub fin_hard_timeout: u16,
    /// Sends flow-removed messages to controllers when the learned flow is removed.
    pub send_flow_rem: bool,
    /// Deletes the learned flows together with the last flow that has this action.
    pub delete_learned: bool,
    /// The number of flows with this cookie up to which the table learns another; 0: no limit.
    pub limit: u32,
    /// A bit that the switch sets to 1 if it learned the flow, and to 0 if the limit prevented it.
    pub result_dst: Option<Subfield>,
    /// Match and actions.
    pub specs: Vec<LearnSpec>,
}

/// A specification: a part of a learned flow's match, or one of its actions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LearnSpec {
    /// The source of the value.
    pub src: LearnSrc,
    /// The destination of the value.
    pub dst: LearnDst,
    /// The width in bits, that of the subfields in `src` and `dst`.
    pub n_bits: u16,
}

/// The source of the value of a [`LearnSpec`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LearnSrc {
    /// A field of the packet that triggers the learning.
    Field(Subfield),
    /// A constant, right aligned; a sender may have set bits beyond those of the destination.
    Immediate(u128),
}

/// The use of the value of a [`LearnSpec`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LearnDst {
    /// The learned flow matches it.
    Match(Subfield),
    /// The learned flow writes it (`load`).
    Load(Subfield),
    /// The learned flow outputs to the port of this number.
    Output,
}

impl Default for Learn {
    /// The parameters of a `learn()` without arguments.
    fn default() -> Self {
        Self {
            second: false,
            idle_timeout: 0,
            hard_timeout: 0,
            priority: FlowMod::DEFAULT_PRIORITY,
            cookie: 0,
            table: 1,
            fin_idle_timeout: 0,
            fin_hard_timeout: 0,
            send_flow_rem: false,
            delete_learned: false,
            limit: 0,
            result_dst: None,
            specs: Vec::new(),
        }
    }
}

/// Returns true if Nicira's actions can name `field` in four bytes, as specifications do.
pub(super) fn has_short_header(field: Field) -> bool {
    Header::of(field, false, Dialect::Nxm).is_some_and(|h| h.class != 0xffff)
}

/// All ones in the low `n_bits`.
fn ones(n_bits: u16) -> u128 {
    if n_bits >= 128 { u128::MAX } else { (1 << n_bits) - 1 }
}

// ---- bytes ----

/// Reads the action's body, after the subtype.
pub(super) fn decode(mut r: Reader<'_>, second: bool) -> Result<Action, OfpError> {
    let mut learn = Learn {
        idle_timeout: r.u16()?,
        hard_timeout: r.u16()?,
        priority: r.u16()?,
        cookie: r.u64()?,
        ..Learn::default()
    };
    let flags = r.u16()?;
    learn.table = r.u8()?;
    let pad = r.u8()?;
    learn.fin_idle_timeout = r.u16()?;
    learn.fin_hard_timeout = r.u16()?;
    if second && r.peek().get(6..8).is_some_and(|pad| *pad != [0, 0]) {
        return Err(OfpError::NxbacMustBeZero);
    }
    let known = SEND_FLOW_REM | DELETE_LEARNED | if second { WRITE_RESULT } else { 0 };
    if pad != 0 || learn.table == 0xff || flags & !known != 0 {
        return Err(OfpError::BacBadArgument);
    }
    learn.send_flow_rem = flags & SEND_FLOW_REM != 0;
    learn.delete_learned = flags & DELETE_LEARNED != 0;
    if second {
        learn.limit = r.u32()?;
        let offset = r.u16()?;
        r.skip(2)?;
        if flags & WRITE_RESULT != 0 {
            let header = Header::decode(&mut r)?;
            let field = header.field().ok_or(OfpError::BmcBadField)?;
            if !field.info().writable {
                return Err(OfpError::BacBadSetArgument);
            }
            learn.result_dst = Some(subfield(field, offset, 1)?);
        } else if offset != 0 {
            return Err(OfpError::BacBadArgument);
        }
        learn.second = !learn.needs_second();
    }
    while r.len() >= 2 {
        let mut rest = r.clone();
        let header = rest.u16()?;
        if header == 0 {
            break;
        }
        learn.specs.push(decode_spec(header, &mut rest)?);
        r = rest;
    }
    if r.is_zero() { Ok(Action::Learn(Arc::new(learn))) } else { Err(OfpError::BacBadArgument) }
}

fn decode_spec(header: u16, r: &mut Reader<'_>) -> Result<LearnSpec, OfpError> {
    let (n_bits, dst) = (header & N_BITS, header & DST);
    let immediate = header & SRC_IMMEDIATE != 0;
    if dst == DST || dst == DST_OUTPUT && immediate {
        return Err(OfpError::BacBadArgument);
    }
    // The length is in units of 16 bits.
    let immediate_len = usize::from(n_bits.div_ceil(16)) * 2;
    let min_len = if immediate { immediate_len } else { 6 } + if dst == DST_OUTPUT { 0 } else { 6 };
    if r.len() < min_len {
        return Err(LEN);
    }
    // Immediate values wider than any field cannot be represented.
    if immediate && n_bits > 128 {
        return Err(OfpError::BacBadSetLen);
    }
    let part = |r: &mut Reader<'_>| -> Result<Subfield, OfpError> {
        let field = short_header_field(r)?;
        if is_too_wide(field, n_bits) {
            return Err(OfpError::NxfmfcInvalidTlvField);
        }
        // As in Open vSwitch, the check of the whole flow refuses bits beyond the field.
        Ok(Subfield { field, offset: r.u16()?, n_bits })
    };
    let src = if immediate {
        let bytes = r.bytes(immediate_len)?;
        let value = bytes.iter().fold(0u128, |v, b| v << 8 | u128::from(*b));
        // Bits beyond the destination's are without effect, but remain in the value's last byte.
        LearnSrc::Immediate(value & ones(n_bits.next_multiple_of(8)))
    } else {
        LearnSrc::Field(part(r)?)
    };
    let dst = match dst {
        0 => LearnDst::Match(part(r)?),
        DST_LOAD => LearnDst::Load(part(r)?),
        _ => LearnDst::Output,
    };
    Ok(LearnSpec { src, dst, n_bits })
}

impl Learn {
    /// Returns true if the first form lacks a parameter.
    fn needs_second(&self) -> bool {
        self.limit != 0 || self.result_dst.is_some()
    }

    /// Appends the action, in the second form if the first lacks a parameter.
    pub(super) fn encode(&self, out: &mut Writer) {
        let second = self.second || self.needs_second();
        nicira(out, if second { NXAST_LEARN2 } else { NXAST_LEARN }, |b| {
            for n in [self.idle_timeout, self.hard_timeout, self.priority] {
                b.put_u16(n);
            }
            b.put_u64(self.cookie);
            let flag = |set: bool, flag: u16| if set { flag } else { 0 };
            b.put_u16(
                flag(self.send_flow_rem, SEND_FLOW_REM)
                    | flag(self.delete_learned, DELETE_LEARNED)
                    | flag(self.result_dst.is_some(), WRITE_RESULT),
            );
            b.put_u8(self.table);
            b.put_u8(0);
            b.put_u16(self.fin_idle_timeout);
            b.put_u16(self.fin_hard_timeout);
            if second {
                b.put_u32(self.limit);
                b.put_u16(self.result_dst.map_or(0, |dst| dst.offset));
                b.put_u16(0);
            }
            if let Some(dst) = self.result_dst {
                put_header(b, dst.field, Dialect::Nxm);
            }
            self.specs.iter().for_each(|spec| spec.encode(b));
        });
    }

    /// Checks the action for a flow that matches `m`, and builds the learned flow's match from the specifications in order, as
    /// each may depend on the match of those before it.
    ///
    /// Errors: `OFPBAC_MATCH_INCONSISTENT`, `OFPBAC_BAD_SET_LEN`, `OFPBAC_BAD_SET_ARGUMENT`.
    pub(super) fn check(&self, m: &Match) -> Result<(), OfpError> {
        let mut learned = Match::ANY;
        for spec in &self.specs {
            if let LearnSrc::Field(src) = spec.src {
                source(src, m)?;
            }
            match (spec.dst, spec.src) {
                (LearnDst::Match(dst), src) => {
                    source(dst, &learned)?;
                    if let LearnSrc::Immediate(value) = src {
                        let value = value.checked_shl(dst.offset.into()).unwrap_or(0);
                        learned.set_masked(dst.field, value & dst.mask(), dst.mask());
                    }
                }
                (LearnDst::Load(dst), _) => destination(dst, &learned)?,
                (LearnDst::Output, _) => {}
            }
        }
        Ok(())
    }
}

impl LearnSpec {
    fn encode(self, out: &mut Writer) {
        let part = |out: &mut Writer, part: Subfield| {
            put_header(out, part.field, Dialect::Nxm);
            out.put_u16(part.offset);
        };
        let dst = match self.dst {
            LearnDst::Match(_) => 0,
            LearnDst::Load(_) => DST_LOAD,
            LearnDst::Output => DST_OUTPUT,
        };
        let src = if let LearnSrc::Immediate(_) = self.src { SRC_IMMEDIATE } else { 0 };
        out.put_u16(self.n_bits & N_BITS | src | dst);
        match self.src {
            LearnSrc::Field(src) => part(out, src),
            LearnSrc::Immediate(value) => out.put_uint(value, usize::from(self.n_bits.div_ceil(16)) * 2),
        }
        match self.dst {
            LearnDst::Match(dst) | LearnDst::Load(dst) => part(out, dst),
            LearnDst::Output => {}
        }
    }
}

// ---- text ----

/// Parses a number like the C library's `strtoull`: the leading digits, 0 if there are none.
fn leading_number(text: &str, radix: u32) -> u64 {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.chars().map_while(|c| c.to_digit(radix));
    let n = digits.fold(0u64, |n, d| n.saturating_mul(radix.into()).saturating_add(d.into()));
    if negative { n.wrapping_neg() } else { n }
}

fn cookie_of(text: &str) -> u64 {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => leading_number(hex, 16),
        None if text.starts_with('0') => leading_number(text, 8),
        None => leading_number(text, 10),
    }
}

/// Parses the arguments of `learn`. As in `ovs-ofctl`, numbers end at the first other character.
pub(super) fn parse(text: &str, ports: &dyn PortNames) -> Result<Action, ActionError> {
    let mut learn = Learn::default();
    let u16_of = |text: &str| leading_number(text, 10) as u16;
    let mut rest = text;
    while let Some((name, value)) = next_key_value(&mut rest) {
        let value = value.unwrap_or("");
        match name {
            "table" => match parse_table(value, ports) {
                Some(255) => return error(format!("{text}: table id 255 not valid for `learn' action")),
                Some(table) => learn.table = table,
                None => return error(format!("unknown table \"{value}\"")),
            },
            "priority" => learn.priority = u16_of(value),
            "idle_timeout" => learn.idle_timeout = u16_of(value),
            "hard_timeout" => learn.hard_timeout = u16_of(value),
            "fin_idle_timeout" => learn.fin_idle_timeout = u16_of(value),
            "fin_hard_timeout" => learn.fin_hard_timeout = u16_of(value),
            "cookie" => learn.cookie = cookie_of(value),
            "send_flow_rem" => learn.send_flow_rem = true,
            "delete_learned" => learn.delete_learned = true,
            "limit" => learn.limit = leading_number(value, 10) as u32,
            "result_dst" => learn.result_dst = Some(result_dst(value)?),
            _ => learn.specs.push(parse_spec(text, name, value, ports)?),
        }
    }
    Ok(Action::Learn(Arc::new(learn)))
}

fn result_dst(text: &str) -> Result<Subfield, ActionError> {
    let dst = Subfield::parse(text)?;
    if !dst.field.info().writable {
        return error(format!("{text} is read-only"));
    }
    if dst.n_bits == 1 { Ok(dst) } else { error("result_dst in 'learn' action must be a single bit") }
}

fn parse_spec(all: &str, name: &str, value: &str, ports: &dyn PortNames) -> Result<LearnSpec, ActionError> {
    if let Ok(dst) = Subfield::parse(name) {
        return parse_match(all, name, dst, value, ports);
    }
    match name {
        "load" => parse_load(name, value),
        "output" => {
            let src = short(value, value, Subfield::parse(value)?)?;
            Ok(LearnSpec { src: LearnSrc::Field(src), dst: LearnDst::Output, n_bits: src.n_bits })
        }
        _ => error(format!("{all}: unknown keyword {name}")),
    }
}

/// Returns true if a specification's value cannot hold that many bits of a tunnel option.
fn is_too_wide(field: Field, n_bits: u16) -> bool {
    matches!(field.info().loc, Loc::TunMetadata(_)) && n_bits > 128
}

/// Returns the subfield if specifications can name its field; `text` is how it was given.
fn short(all: &str, text: &str, part: Subfield) -> Result<Subfield, ActionError> {
    if is_too_wide(part.field, part.n_bits) {
        let what = format!("more than 128 bits of {} are not supported", part.field.name());
        return error(format!("{all}: {what}"));
    }
    if has_short_header(part.field) {
        return Ok(part);
    }
    error(format!("{all}: experimenter OXM field '{text}' not supported"))
}

/// Parses `FIELD`, `FIELD=FIELD` or `FIELD=VALUE`.
fn parse_match(
    all: &str,
    name: &str,
    dst: Subfield,
    value: &str,
    ports: &dyn PortNames,
) -> Result<LearnSpec, ActionError> {
    let dst = short(all, name, dst)?;
    let spec = |src| LearnSpec { src, dst: LearnDst::Match(dst), n_bits: dst.n_bits };
    if value.is_empty() {
        return Ok(spec(LearnSrc::Field(dst)));
    }
    let not_a_field = match Subfield::parse(value) {
        Ok(src) if src.n_bits == dst.n_bits => return Ok(spec(LearnSrc::Field(short(all, value, src)?))),
        Ok(src) => {
            // `ovs-ofctl` prints the widths in the wrong order, too.
            let (a, b) = (src.n_bits, dst.n_bits);
            return error(format!("{all}: bit widths of {name} ({a}) and {value} ({b}) differ"));
        }
        Err(e) => e,
    };
    match immediate(all, dst, value, ports) {
        Ok(value) => Ok(spec(LearnSrc::Immediate(value))),
        Err(not_a_value) => {
            let what = format!("{name} value {value} cannot be parsed as a subfield ({not_a_field})");
            error(format!("{all}: {what} or an immediate value ({not_a_value})"))
        }
    }
}

/// Parses an immediate value: for a whole field in the field's own format, for some of its bits as a number.
fn immediate(all: &str, dst: Subfield, text: &str, ports: &dyn PortNames) -> Result<u128, ActionError> {
    let info = dst.field.info();
    if dst == Subfield::whole(dst.field) {
        let (value, mask) = parse_value(dst.field, text, ports).map_err(|e| ActionError(e.to_string()))?;
        let exact = mask & info.full_mask() == info.full_mask();
        return if exact && value & !ones(dst.n_bits) == 0 {
            Ok(value)
        } else {
            error(format!("{text}: wildcards not allowed here"))
        };
    }
    let wire = if info.wire_bits >= 128 { u128::MAX } else { (1 << info.wire_bits) - 1 };
    let Some(value) = parse_u128(text).filter(|v| v & !wire == 0) else {
        return error(format!("{all}: cannot parse integer value"));
    };
    if value & !ones(dst.n_bits) != 0 {
        let mut shown = String::new();
        format_value(dst.field, value, info.full_mask(), &flow::NoNames, &mut shown);
        return error(format!("{all}: value {shown} does not fit into {} bits", dst.n_bits));
    }
    Ok(value)
}

/// Parses `VALUE->FIELD` or `FIELD->FIELD`.
fn parse_load(name: &str, text: &str) -> Result<LearnSpec, ActionError> {
    let Some((value, dst)) = text.split_once("->") else {
        return error(format!("{name}: missing `->' in `{text}'"));
    };
    if value.is_empty() {
        return error(format!("{name}: missing source before `->' in `{text}'"));
    }
    let Some(number) = parse_u128(value) else {
        if value.starts_with(|c: char| c.is_ascii_digit()) {
            return error(format!("{name}: garbage before `->' in `{text}'"));
        }
        let (source, destination) = super::parse::move_parts(text)?;
        let (src, dst) = (short(text, value, source)?, short(text, dst, destination)?);
        return Ok(LearnSpec { src: LearnSrc::Field(src), dst: LearnDst::Load(dst), n_bits: src.n_bits });
    };
    let dst = short(text, dst, Subfield::parse(dst)?)?;
    if number & !ones(dst.n_bits) != 0 {
        return error(format!("{text}: value does not fit into {} bits", dst.n_bits));
    }
    Ok(LearnSpec { src: LearnSrc::Immediate(number), dst: LearnDst::Load(dst), n_bits: dst.n_bits })
}

/// `0x` and hexadecimal digits, but plain `0`.
fn hex(value: u128) -> String {
    if value == 0 { "0".into() } else { format!("{value:#x}") }
}

impl Learn {
    /// Appends the action.
    pub(super) fn format(&self, out: &mut String, ports: &dyn PortNames) {
        // Writing to a string cannot fail.
        macro_rules! put {
            ($($arg:tt)*) => {{ let _ = write!(out, $($arg)*); }};
        }
        out.push_str("learn(table=");
        format_table(self.table, ports, out);
        for (name, seconds) in [
            ("idle_timeout", self.idle_timeout),
            ("hard_timeout", self.hard_timeout),
            ("fin_idle_timeout", self.fin_idle_timeout),
            ("fin_hard_timeout", self.fin_hard_timeout),
        ] {
            if seconds != 0 {
                put!(",{name}={seconds}");
            }
        }
        if self.priority != FlowMod::DEFAULT_PRIORITY {
            put!(",priority={}", self.priority);
        }
        if self.send_flow_rem {
            out.push_str(",send_flow_rem");
        }
        if self.delete_learned {
            out.push_str(",delete_learned");
        }
        if self.cookie != 0 {
            put!(",cookie={:#x}", self.cookie);
        }
        if self.limit != 0 {
            put!(",limit={}", self.limit);
        }
        if let Some(dst) = self.result_dst {
            put!(",result_dst={dst}");
        }
        for spec in &self.specs {
            out.push(',');
            spec.format(out, ports);
        }
        out.push(')');
    }
}

impl LearnSpec {
    /// Returns the bits of an immediate value that the destination takes.
    pub fn immediate_mask(&self) -> u128 {
        ones(self.n_bits)
    }

    fn format(self, out: &mut String, ports: &dyn PortNames) {
        let _ = match (self.dst, self.src) {
            (LearnDst::Match(dst), LearnSrc::Field(src)) if src == dst => write!(out, "{dst}"),
            (LearnDst::Match(dst), LearnSrc::Field(src)) => write!(out, "{dst}={src}"),
            (LearnDst::Match(dst), LearnSrc::Immediate(value)) if dst == Subfield::whole(dst.field) => {
                let _ = write!(out, "{}=", dst.field.name());
                format_value(dst.field, value, dst.field.info().full_mask(), ports, out);
                Ok(())
            }
            (LearnDst::Match(dst), LearnSrc::Immediate(value)) => write!(out, "{dst}={}", hex(value)),
            (LearnDst::Load(dst), LearnSrc::Field(src)) => write!(out, "load:{src}->{dst}"),
            (LearnDst::Load(dst), LearnSrc::Immediate(value)) => write!(out, "load:{}->{dst}", hex(value)),
            (LearnDst::Output, LearnSrc::Field(src)) => write!(out, "output:{src}"),
            (LearnDst::Output, LearnSrc::Immediate(value)) => write!(out, "output:{}", hex(value)),
        };
    }
}

#[cfg(test)]
mod tests;
