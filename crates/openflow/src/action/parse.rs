//! Parses actions from text, in all the spellings of ovs-actions(7).
//!
//! The messages are those of `ovs-ofctl`, which scripts match: one line that names the offending part.

use super::check::{Allowed, verify};
use super::decode::N_CLAUSES;
use super::{Action, ControllerAction, PacketInReason, Subfield, ct, encap, learn, nat, sample, select, size};
use base::{MacAddr, PortNo};
use flow::extract::ethertype::PBB;
use flow::text::{format_value, next_key_value, parse_port, parse_table, parse_value, scan_mac, value_end};
use flow::{Field, Format, Loc, PortNames, TunOption};
use std::net::Ipv4Addr;

/// An error in the text of an action.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ActionError(pub String);

/// The depth to which `clone` and `write_actions` may nest.
const MAX_DEPTH: usize = 16;

/// Parses the actions and instructions of a flow.
pub fn parse_instructions(text: &str, ports: &dyn PortNames) -> Result<Vec<Action>, ActionError> {
    Parser { ports, depth: 0 }.list(text, Allowed::Flow)
}

/// Parses actions in a context without instructions, as in a packet-out.
pub fn parse_actions(text: &str, ports: &dyn PortNames) -> Result<Vec<Action>, ActionError> {
    Parser { ports, depth: 0 }.list(text, Allowed::Actions)
}

/// Parses an unsigned number of `bits` bits: decimal, octal with a leading 0, or hexadecimal with 0x.
pub(crate) fn parse_uint(text: &str, bits: u32) -> Option<u64> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match hex {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    if digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, radix).ok().filter(|n| bits >= 64 || n >> bits == 0)
}

/// Parses a number of at most `bits` bits that may have a sign.
pub(crate) fn parse_int(text: &str, bits: u32) -> Option<u64> {
    match text.strip_prefix('-') {
        Some(digits) => parse_uint(digits, bits).filter(|n| *n == 0),
        None => parse_uint(text.strip_prefix('+').unwrap_or(text), bits),
    }
}

pub(super) fn error<T>(message: impl Into<String>) -> Result<T, ActionError> {
    Err(ActionError(message.into()))
}

pub(super) fn u8_of(text: &str, what: &str) -> Result<u8, ActionError> {
    parse_int(text, 8).map_or_else(|| error(format!("invalid {what} \"{text}\"")), |n| Ok(n as u8))
}

pub(super) fn u16_of(text: &str, what: &str) -> Result<u16, ActionError> {
    parse_int(text, 16).map_or_else(|| error(format!("invalid {what} \"{text}\"")), |n| Ok(n as u16))
}

/// Returns an error for an empty number.
fn given(text: &str) -> Result<(), ActionError> {
    if text.is_empty() { error("missing required numeric argument") } else { Ok(()) }
}

pub(super) fn u32_of(text: &str) -> Result<u32, ActionError> {
    given(text)?;
    parse_uint(text, 32).map_or_else(|| error(format!("invalid numeric format {text}")), |n| Ok(n as u32))
}

fn u64_of(text: &str) -> Result<u64, ActionError> {
    given(text)?;
    parse_uint(text, 64).map_or_else(|| error(format!("invalid numeric format {text}")), Ok)
}

pub(super) struct Parser<'a> {
    pub(super) ports: &'a dyn PortNames,
    depth: usize,
}

impl Parser<'_> {
    fn list(&self, text: &str, allowed: Allowed) -> Result<Vec<Action>, ActionError> {
        if self.depth > MAX_DEPTH {
            return error("Action nested too deeply");
        }
        let (mut actions, mut drop, mut rest) = (Vec::new(), false, text);
        while let Some((key, value)) = next_key_value(&mut rest) {
            if key.eq_ignore_ascii_case("drop") {
                drop = true;
            } else if key.eq_ignore_ascii_case("check_pkt_larger") {
                // The destination of this action follows the parenthesis, and may have parentheses of its own.
                let mut argument = value.unwrap_or("").to_owned();
                if rest.starts_with("->") {
                    let (dst, behind) = rest.split_at(value_end(rest, false));
                    argument = format!("{argument}){dst}");
                    rest = behind;
                }
                actions.push(check_pkt_larger(&argument)?);
            } else {
                self.action(key, value.unwrap_or(""), &mut actions)?;
            }
        }
        if drop && !actions.is_empty() {
            return error("\"drop\" must not be accompanied by any other action or instruction");
        }
        if self.depth == 0 && size::of_list(&actions) > size::MAX {
            return error("input too big");
        }
        verify(&actions, allowed).map_err(|e| ActionError(e.to_string()))?;
        Ok(actions)
    }

    fn nested(&self, text: &str) -> Result<Vec<Action>, ActionError> {
        Self { ports: self.ports, depth: self.depth + 1 }.list(text, Allowed::Actions)
    }

    /// Parses the nested actions of a `ct`.
    pub(super) fn in_ct(&self, text: &str) -> Result<Vec<Action>, ActionError> {
        Self { ports: self.ports, depth: self.depth + 1 }.list(text, Allowed::Connection)
    }

    /// Appends the actions of `key:value`; a wide `load` becomes several.
    fn action(&self, key: &str, value: &str, out: &mut Vec<Action>) -> Result<(), ActionError> {
        let name = key.to_ascii_lowercase();
        let action = match name.as_str() {
            "output" => self.output(value)?,
            "controller" => controller(value)?,
            "enqueue" => self.enqueue(value)?,
            "set_queue" => Action::SetQueue(u32_of(value)?),
            "pop_queue" => Action::PopQueue,
            "mod_vlan_vid" => vlan_vid(value, true)?,
            "set_vlan_vid" => vlan_vid(value, false)?,
            "mod_vlan_pcp" => vlan_pcp(value, true)?,
            "set_vlan_pcp" => vlan_pcp(value, false)?,
            "strip_vlan" | "pop_vlan" => Action::PopVlan,
            "push_vlan" => match u16_of(value, "ethertype")? {
                tpid @ (0x8100 | 0x88a8) => Action::PushVlan(tpid),
                _ => return error(format!("{value}: not a valid VLAN ethertype")),
            },
            "push_mpls" => Action::PushMpls(u16_of(value, "push_mpls")?),
            "pop_mpls" => Action::PopMpls(u16_of(value, "pop_mpls")?),
            "push_pbb" => match u16_of(value, "push_pbb")? {
                PBB => Action::PushPbb,
                _ => return error(format!("{value}: not a valid PBB ethertype")),
            },
            "pop_pbb" => Action::PopPbb,
            "set_mpls_label" => Action::SetMplsLabel(mpls_label(value)?),
            "set_mpls_tc" => match (value, u8_of(value, "MPLS TC")) {
                ("", _) => return error("set_mpls_tc: expected tc."),
                (_, Ok(tc)) if tc > 7 => return error(format!("{value}: not a valid MPLS TC")),
                (_, tc) => Action::SetMplsTc(tc?),
            },
            "set_mpls_ttl" if value.is_empty() => return error("set_mpls_ttl: expected ttl."),
            "set_mpls_ttl" => Action::SetMplsTtl(u8_of(value, "MPLS TTL")?),
            "dec_mpls_ttl" => Action::DecMplsTtl,
            "copy_ttl_out" => Action::CopyTtlOut,
            "copy_ttl_in" => Action::CopyTtlIn,
            "dec_nsh_ttl" => Action::DecNshTtl,
            "encap" => encap::parse_encap(value)?,
            "decap" => encap::parse_decap(value)?,
            "mod_dl_src" => Action::SetEthSrc(mac(value)?),
            "mod_dl_dst" => Action::SetEthDst(mac(value)?),
            "mod_nw_src" => Action::SetIpv4Src(ipv4(value)?),
            "mod_nw_dst" => Action::SetIpv4Dst(ipv4(value)?),
            "mod_nw_tos" => match u8_of(value, "TOS")? {
                tos if tos & 3 != 0 => return error(format!("{value}: not a valid TOS")),
                tos => Action::SetIpDscp(tos),
            },
            "mod_nw_ecn" => match u8_of(value, "ECN")? {
                ecn if ecn > 3 => return error(format!("{value}: not a valid ECN")),
                ecn => Action::SetIpEcn(ecn),
            },
            "mod_nw_ttl" | "set_nw_ttl" => Action::SetIpTtl(u8_of(value, "TTL")?),
            "mod_tp_src" => Action::SetL4Src(u16_of(value, "source port")?),
            "mod_tp_dst" => Action::SetL4Dst(u16_of(value, "destination port")?),
            "set_field" => self.set_field(value)?,
            "load" => return load(value, out),
            "move" => move_fields(value)?,
            "push" => Action::StackPush(stack(value)?),
            "pop" => Action::StackPop(stack(value)?),
            "dec_ttl" => dec_ttl(value)?,
            "set_tunnel" => Action::SetTunnel { id: u64_of(value)?, wide: false },
            "set_tunnel64" => Action::SetTunnel { id: u64_of(value)?, wide: true },
            "resubmit" => self.resubmit(value)?,
            "ct" => ct::parse(value, self)?,
            "nat" => nat::parse(value)?,
            "ct_clear" => Action::CtClear,
            "debug_slow" => Action::DebugSlow,
            "debug_recirc" => Action::DebugRecirc,
            "sample" => sample::parse(value, self.ports)?,
            "delete_field" => match Field::from_name(value) {
                Some(field) => Action::DeleteField(field),
                None => return error(format!("unknown field `{value}'")),
            },
            "group" => Action::Group(group(value)?),
            "conjunction" => conjunction(value)?,
            "learn" => learn::parse(value, self.ports)?,
            "multipath" => select::parse_multipath(value)?,
            "bundle" => select::parse_bundle(value, false, self.ports)?,
            "bundle_load" => select::parse_bundle(value, true, self.ports)?,
            "fin_timeout" => fin_timeout(value)?,
            "clone" => Action::Clone(self.nested(value)?),
            "note" => note(value)?,
            "exit" => Action::Exit,
            "meter" => Action::Meter(u32_of(value)?),
            "clear_actions" => Action::ClearActions,
            "write_actions" => Action::WriteActions(self.nested(value)?),
            "write_metadata" => write_metadata(value)?,
            "goto_table" => match parse_table(value, self.ports) {
                Some(table) => Action::GotoTable(table),
                None => return error(format!("unknown table \"{value}\"")),
            },
            "apply_actions" => return error("apply_actions is the default instruction"),
            "unroll_xlate" => return error("UNROLL is an internal action that shouldn't be used via OpenFlow"),
            _ => match parse_port(key, self.ports) {
                Some(port) => output_to(port),
                None => return error(format!("unknown action {key}")),
            },
        };
        out.push(action);
        Ok(())
    }

    fn output(&self, value: &str) -> Result<Action, ActionError> {
        if value.contains("port") && value.contains("max_len") {
            return self.output_trunc(value);
        }
        if let Some(port) = parse_port(value, self.ports) {
            return Ok(output_to(port));
        }
        match Subfield::parse(value) {
            Ok(src) => Ok(Action::OutputReg { src, max_len: 0xffff }),
            Err(_) => error(format!("{value}: output to unknown port")),
        }
    }

    fn output_trunc(&self, value: &str) -> Result<Action, ActionError> {
        let (mut port, mut max_len, mut rest) = (PortNo::NONE, 0, value);
        while let Some((key, value)) = next_key_value(&mut rest) {
            let value = value.unwrap_or("");
            match key {
                "port" => {
                    port = parse_port(value, self.ports)
                        .ok_or_else(|| ActionError(format!("output to unknown truncate port: {value}")))?;
                    if port >= PortNo::MAX && port != PortNo::LOCAL && port != PortNo::IN_PORT {
                        return error(format!("output to unsupported truncate port: {value}"));
                    }
                }
                "max_len" => max_len = u32_of(value)?,
                _ => return error(format!("invalid key '{key}' in output_trunc argument")),
            }
        }
        if max_len < 14 {
            return error(format!("max_len {max_len} is less than the minimum value 14"));
        }
        Ok(Action::OutputTrunc { port, max_len })
    }

    fn enqueue(&self, value: &str) -> Result<Action, ActionError> {
        const SEPARATORS: [char; 3] = [':', 'q', ','];
        // The queue is all that follows the first separator.
        let parts = value.trim_start_matches(SEPARATORS).split_once(SEPARATORS);
        let Some((port, queue)) = parts.filter(|(_, queue)| !queue.is_empty()) else {
            return error("\"enqueue\" syntax is \"enqueue:PORT:QUEUE\" or \"enqueue(PORT,QUEUE)\"");
        };
        match parse_port(port, self.ports) {
            Some(port) => Ok(Action::Enqueue { port, queue: u32_of(queue)? }),
            None => error(format!("{port}: enqueue to unknown port")),
        }
    }

    fn set_field(&self, value: &str) -> Result<Action, ActionError> {
        let Some((text, name)) = value.split_once("->") else {
            return error(format!("{value}: missing `->'"));
        };
        if name.is_empty() {
            return error(format!("{value}: missing field name following `->'"));
        }
        let named = |f: &Field| f.name() == name || f.info().alias == name;
        let Some(field) = Field::from_name(name).filter(named) else {
            return error(format!("{name} is not a valid OXM field name"));
        };
        if !field.info().writable {
            return error(format!("{name} is read-only"));
        }
        if let Loc::TunMetadata(_) = field.info().loc {
            let option = TunOption::parse(field, text).map_err(|e| ActionError(e.to_string()))?;
            return Ok(Action::SetTunOption(Box::new(option)));
        }
        let (value, mask) = parse_value(field, text, self.ports).map_err(|e| ActionError(e.to_string()))?;
        // Parsing as a number dropped the bits beyond the field's width.
        let given = text.split('/').next().and_then(parse_u128);
        let integer = matches!(field.info().format, Format::Decimal | Format::Hex);
        let given = given.filter(|_| integer).unwrap_or(value);
        if !crate::nxm::value_is_valid(field, value) || !crate::nxm::value_is_valid(field, given) {
            return error(format!("{text} is not a valid value for field {name}"));
        }
        // The text of a mask may have bits beyond the field's.
        let info = field.info();
        let mask = match text.split_once('/') {
            Some((_, given)) if integer => parse_u128(given).unwrap_or(mask) & info.wire_mask(),
            None if mask == info.full_mask() => info.wire_mask(),
            _ => mask,
        };
        Ok(Action::SetField { field, value, mask })
    }

    fn resubmit(&self, value: &str) -> Result<Action, ActionError> {
        let mut parts = value.split(',');
        let in_port = match parts.next().unwrap_or("") {
            "" => PortNo::IN_PORT,
            name => match parse_port(name, self.ports) {
                Some(port) => port,
                None => return error(format!("{name}: resubmit to unknown port")),
            },
        };
        let table = match parts.next().unwrap_or("") {
            "" => 255,
            name => match parse_table(name, self.ports) {
                Some(table) => table,
                None => return error(format!("{name}: resubmit to unknown table")),
            },
        };
        let with_ct = match parts.next() {
            None | Some("") => false,
            Some("ct") => true,
            Some(other) => return error(format!("{other}: unknown parameter")),
        };
        let in_port = (in_port != PortNo::IN_PORT).then_some(in_port);
        let table = (table != 255).then_some(table);
        if in_port.is_none() && table.is_none() {
            return error("at least one \"in_port\" or \"table\" must be specified on resubmit");
        }
        Ok(if with_ct { Action::ResubmitCt { in_port, table } } else { Action::Resubmit { in_port, table } })
    }
}

/// Parses `LEN)->DST`, the argument of `check_pkt_larger`, whose parenthesis may be missing. The name in the message about a
/// bad length is that of `ovs-ofctl`.
fn check_pkt_larger(text: &str) -> Result<Action, ActionError> {
    let Some((len, dst)) = text.split_once("->") else { return error(format!("{text}: missing `->'")) };
    if dst.is_empty() {
        return error(format!("{text}: missing field name following `->'"));
    }
    let dst = Subfield::parse(dst)?;
    if dst.n_bits != 1 {
        return error("Only 1-bit destination field is allowed");
    }
    let len = u16_of(len.strip_suffix(')').unwrap_or(len), "(null)")?;
    if !dst.field.info().writable {
        return error(format!("{} is read-only", dst.field.name()));
    }
    Ok(Action::CheckPktLarger { len, dst })
}

/// Returns `output` to a port: a controller receives the whole packet.
fn output_to(port: PortNo) -> Action {
    Action::Output { port, max_len: if port == PortNo::CONTROLLER { 0xffff } else { 0 } }
}

fn controller(value: &str) -> Result<Action, ActionError> {
    let mut c = ControllerAction::default();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        c.max_len = u16_of(value, "max_len")?;
        return Ok(Action::Output { port: PortNo::CONTROLLER, max_len: c.max_len });
    }
    let (mut rest, mut userdata) = (value, "");
    while let Some((key, value)) = next_key_value(&mut rest) {
        let value = value.unwrap_or("");
        match key {
            "reason" => {
                c.reason = PacketInReason::from_name(value)
                    .ok_or_else(|| ActionError(format!("unknown reason \"{value}\"")))?;
            }
            "max_len" => c.max_len = u16_of(value, "max_len")?,
            "id" => c.controller_id = u16_of(value, "id")?,
            "userdata" => userdata = value,
            "pause" => c.pause = true,
            "meter_id" => c.meter_id = Some(u32_of(value)?).filter(|id| *id != u32::MAX),
            _ => return error(format!("unknown key \"{key}\" parsing controller action")),
        }
    }
    // Only the last one counts.
    let bytes = hex_bytes(userdata);
    c.userdata = bytes.ok_or_else(|| ActionError("bad hex digit in `controller' action `userdata'".into()))?;
    // A plain output suffices unless another parameter differs from the default.
    let plain = ControllerAction { max_len: c.max_len, ..ControllerAction::default() };
    if c == plain {
        return Ok(Action::Output { port: PortNo::CONTROLLER, max_len: c.max_len });
    }
    Ok(Action::Controller(Box::new(c)))
}

/// Parses a VLAN id to set; `push_if_needed` adds a tag to packets without one.
fn vlan_vid(value: &str, push_if_needed: bool) -> Result<Action, ActionError> {
    match u16_of(value, "VLAN VID")? {
        vid if vid > 0xfff => error(format!("{value}: not a valid VLAN VID")),
        vid => Ok(Action::SetVlanVid { vid, push_if_needed }),
    }
}

/// Parses a VLAN priority to set; `push_if_needed` adds a tag to packets without one.
fn vlan_pcp(value: &str, push_if_needed: bool) -> Result<Action, ActionError> {
    match u8_of(value, "VLAN PCP")? {
        pcp if pcp > 7 => error(format!("{value}: not a valid VLAN PCP")),
        pcp => Ok(Action::SetVlanPcp { pcp, push_if_needed }),
    }
}

/// Parses the number of a label.
fn mpls_label(value: &str) -> Result<u32, ActionError> {
    if value.is_empty() {
        return error("set_mpls_label: expected label.");
    }
    match u32_of(value)? {
        label if label >> 20 != 0 => error(format!("{value}: not a valid MPLS label")),
        label => Ok(label),
    }
}

fn mac(value: &str) -> Result<MacAddr, ActionError> {
    // As Open vSwitch's sscanf(), it ignores what is behind the address.
    scan_mac(value).map_or_else(|| error(format!("invalid mac address {value}")), |(mac, _)| Ok(mac))
}

fn ipv4(value: &str) -> Result<Ipv4Addr, ActionError> {
    value.parse().map_err(|_| {
        tracing::error!(target: "socket_util", "\"{value}\" is not a valid IP address");
        ActionError(format!("{value}: could not convert to IP address"))
    })
}

/// Parses `load:VALUE->DST`; a destination of more than 64 bits takes several actions, lowest bits first.
fn load(text: &str, out: &mut Vec<Action>) -> Result<(), ActionError> {
    let Some((value_text, dst)) = text.split_once("->") else {
        return error(format!("{text}: missing `->'"));
    };
    if dst.is_empty() {
        return error(format!("{text}: missing field name following `->'"));
    }
    let dst = Subfield::parse(dst)?;
    if let (Loc::TunMetadata(_), 65..) = (dst.field.info().loc, dst.n_bits) {
        out.push(load_option(text, value_text, dst)?);
        return Ok(());
    }
    let field_mask = if dst.field.info().wire_bits >= 128 { u128::MAX } else { (1 << dst.field.info().wire_bits) - 1 };
    let Some(value) = leading_number(value_text).filter(|v| v & !field_mask == 0) else {
        return error(format!("{text}: cannot parse integer value"));
    };
    if dst.n_bits < 128 && value >> dst.n_bits != 0 {
        let mut shown = String::new();
        format_value(dst.field, value, dst.field.info().full_mask(), &flow::NoNames, &mut shown);
        return error(format!("{text}: value {shown} does not fit into {} bits", dst.n_bits));
    }
    out.push(Action::RegLoad { dst, value });
    Ok(())
}

/// Parses a load into more bits of a tunnel option than other loads can have.
fn load_option(text: &str, value: &str, dst: Subfield) -> Result<Action, ActionError> {
    let number = TunOption::parse(dst.field, value).ok().filter(|option| option.mask().is_none());
    let Some(number) = number else { return error(format!("{text}: cannot parse integer value")) };
    let needed = number.value().len() * 8 - number.value().first().map_or(0, |byte| byte.leading_zeros() as usize);
    match TunOption::of_bits(dst.field, dst.offset, dst.n_bits, number.value()) {
        Some(_) if needed <= usize::from(dst.n_bits.min(128)) => {
            let value = number.value().iter().fold(0, |value, byte| value << 8 | u128::from(*byte));
            Ok(Action::RegLoad { dst, value })
        }
        Some(option) if needed <= usize::from(dst.n_bits) => Ok(Action::SetTunOption(Box::new(option))),
        _ => error(format!("{text}: value {value} does not fit into {} bits", dst.n_bits)),
    }
}

/// Parses the number that `text` begins with, as Open vSwitch does in `load`: it ignores other text behind it.
fn leading_number(text: &str) -> Option<u128> {
    let digits_of = |text: &str, radix| text.find(|c: char| !c.is_digit(radix)).unwrap_or(text.len());
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return match &hex[..digits_of(hex, 16)] {
            "" => Some(0),
            digits => u128::from_str_radix(digits, 16).ok(),
        };
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    let radix = if text.starts_with('0') { 8 } else { 10 };
    u64::from_str_radix(&text[..digits_of(text, radix)], radix).ok().map(Into::into)
}

pub(super) fn parse_u128(text: &str) -> Option<u128> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with('+') => u128::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None => parse_uint(text, 64).map(Into::into),
    }
}

fn move_fields(text: &str) -> Result<Action, ActionError> {
    move_parts(text).map(|(src, dst)| Action::RegMove { src, dst })
}

/// Parses `SRC->DST`, which have the same width.
pub(super) fn move_parts(text: &str) -> Result<(Subfield, Subfield), ActionError> {
    let (src, rest) = Subfield::parse_front(text)?;
    let Some(dst) = rest.strip_prefix("->") else {
        return error(format!("{text}: missing `->' following source"));
    };
    let dst = Subfield::parse(dst)?;
    if src.n_bits != dst.n_bits {
        let widths = format!("source field is {} bits wide but destination is {} bits wide", src.n_bits, dst.n_bits);
        return error(format!("{text}: {widths}"));
    }
    Ok((src, dst))
}

/// Parses the number of a group.
fn group(text: &str) -> Result<u32, ActionError> {
    if text.is_empty() {
        return error("missing required numeric argument");
    }
    u32_of(text)
}

/// Parses `ID,K/N`, with optional blanks between them.
fn conjunction(text: &str) -> Result<Action, ActionError> {
    let Some((id, k, n_clauses)) = conjunction_parts(text) else {
        return error("\"conjunction\" syntax is \"conjunction(id,i/n)\"");
    };
    match () {
        () if n_clauses < *N_CLAUSES.start() => error("conjunction must have at least 2 clauses"),
        () if n_clauses > *N_CLAUSES.end() => error("conjunction must have at most 64 clauses"),
        () if k < 1 => error("clause index must be positive"),
        () if k > n_clauses => error("clause index must be less than or equal to number of clauses"),
        () => Ok(Action::Conjunction { id, clause: k - 1, n_clauses }),
    }
}

/// Parses the three numbers, keeping the low bits of each.
fn conjunction_parts(text: &str) -> Option<(u32, u8, u8)> {
    let (id, rest) = text.split_once(',')?;
    let (k, n) = rest.split_once('/')?;
    // As for C's scanf(), each may have a sign.
    let signed = |text: &str, number: &dyn Fn(&str) -> Option<u64>| {
        let text = text.trim();
        match text.strip_prefix('-') {
            Some(digits) => number(digits).map(u64::wrapping_neg),
            None => number(text.strip_prefix('+').unwrap_or(text)),
        }
    };
    let decimal = |text: &str| text.parse().ok().filter(|_| !text.starts_with('+'));
    let clause = |text: &str| signed(text, &decimal).map(|n| n as u8);
    Some((signed(id, &|text| parse_uint(text, 64))? as u32, clause(k)?, clause(n)?))
}

fn fin_timeout(text: &str) -> Result<Action, ActionError> {
    let (mut idle_timeout, mut hard_timeout, mut rest) = (0, 0, text);
    while let Some((key, value)) = next_key_value(&mut rest) {
        let value = value.unwrap_or("");
        match key {
            "idle_timeout" => idle_timeout = u16_of(value, key)?,
            "hard_timeout" => hard_timeout = u16_of(value, key)?,
            _ => return error(format!("invalid key '{key}' in 'fin_timeout' argument")),
        }
    }
    Ok(Action::FinTimeout { idle_timeout, hard_timeout })
}

fn stack(text: &str) -> Result<Subfield, ActionError> {
    match Subfield::parse_front(text)? {
        (part, "") => Ok(part),
        (_, rest) => error(format!("{rest}: trailing garbage following push or pop")),
    }
}

/// Parses the ids of controllers by their leading digits; no text at all means none.
fn dec_ttl(value: &str) -> Result<Action, ActionError> {
    let id = |s: &str| {
        let (negative, s) = s.strip_prefix('-').map_or((false, s), |s| (true, s));
        let digits = s.bytes().take_while(u8::is_ascii_digit);
        let n = digits.fold(0u16, |n, b| n.wrapping_mul(10).wrapping_add(u16::from(b - b'0')));
        if negative { n.wrapping_neg() } else { n }
    };
    if value.is_empty() {
        return Ok(Action::DecTtl(None));
    }
    match value.split([',', ' ']).filter(|s| !s.is_empty()).map(id).collect::<Vec<u16>>() {
        ids if ids.is_empty() => error("dec_ttl_cnt_ids: expected at least one controller id."),
        ids => Ok(Action::DecTtl(Some(ids))),
    }
}

/// Parses pairs of hexadecimal digits with optional dots between them.
fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'.' && !bytes.is_empty() {
            rest = tail;
            continue;
        }
        let [second, tail @ ..] = tail else { return None };
        let digit = |b: u8| char::from(b).to_digit(16);
        bytes.push((digit(*first)? << 4 | digit(*second)?) as u8);
        rest = tail;
    }
    Some(bytes)
}

/// Parses a note, and adds the zeros of its encoding: 6 bytes more than a multiple of 8.
fn note(value: &str) -> Result<Action, ActionError> {
    let Some(mut bytes) = hex_bytes(value) else {
        return error("bad hex digit in `note' argument");
    };
    let length = (bytes.len() + 2).next_multiple_of(8).max(8) - 2;
    bytes.resize(length, 0);
    Ok(Action::Note(bytes))
}

fn write_metadata(value: &str) -> Result<Action, ActionError> {
    let (value, mask) = match value.split_once('/') {
        Some((value, mask)) => (u64_of(value)?, u64_of(mask)?),
        None => (u64_of(value)?, u64::MAX),
    };
    Ok(Action::WriteMetadata { value, mask })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Version, actions_to_string};
    use flow::NoNames;

    #[test]
    fn some_numbers_end_at_the_first_other_character() {
        for (text, printed) in [
            ("load:08->reg0", "load:0->NXM_NX_REG0[]"),
            ("load:0x5z->reg0", "load:0x5->NXM_NX_REG0[]"),
            ("load:+5->reg0", "load:0x5->NXM_NX_REG0[]"),
            ("mod_dl_src:300:02:03:04:05:0006", "mod_dl_src:00:02:03:04:05:06"),
            ("multipath(eth_src,-1,modulo_n,10y,x,reg8)", "multipath(eth_src,65535,modulo_n,10,0,NXM_NX_REG8[])"),
            ("bundle(nw_src,99999999999,hrw,ofport,members:6)", "bundle(nw_src,59391,hrw,ofport,members:6)"),
        ] {
            let actions = crate::parse_actions(text, &NoNames).expect(text);
            assert_eq!(actions_to_string(&actions, &NoNames, Version::V10), printed);
        }
    }

    #[test]
    fn numbers_are_required_and_whole() {
        for (text, message) in [
            ("write_metadata", "missing required numeric argument"),
            ("write_metadata:5/", "missing required numeric argument"),
            ("set_queue", "missing required numeric argument"),
            ("meter:", "missing required numeric argument"),
            ("enqueue:1:2:3", "invalid numeric format 2:3"),
            ("enqueue:1::2", "invalid numeric format :2"),
            ("enqueue(1,2,3)", "invalid numeric format 2,3"),
            ("enqueue:1", "\"enqueue\" syntax is \"enqueue:PORT:QUEUE\" or \"enqueue(PORT,QUEUE)\""),
            ("check_pkt_larger(5)->", "5)->: missing field name following `->'"),
            ("learn(nsh_ttl[0..3]=5)", "nsh_ttl[0..3]=5: experimenter OXM field 'nsh_ttl[0..3]' not supported"),
        ] {
            let error = parse_instructions(text, &NoNames).map_err(|e| e.0);
            assert_eq!(error, Err(message.into()), "{text}");
        }
    }

    #[test]
    fn dec_ttl_needs_an_id_in_its_list() {
        let printed = |text: &str| -> Result<String, String> {
            let actions = parse_instructions(text, &NoNames).map_err(|e| e.0)?;
            Ok(actions_to_string(&actions, &NoNames, Version::V10))
        };
        for (text, shown) in [
            ("dec_ttl", "dec_ttl"),
            ("dec_ttl()", "dec_ttl"),
            ("dec_ttl(1,)", "dec_ttl(1)"),
            ("dec_ttl(a)", "dec_ttl(0)"),
            ("dec_ttl(-1,70000)", "dec_ttl(65535,4464)"),
            ("dec_ttl(1 2)", "dec_ttl(1,2)"),
        ] {
            assert_eq!(printed(text), Ok(shown.into()), "{text}");
        }
        for text in ["dec_ttl(,)", "dec_ttl( )"] {
            let message = "dec_ttl_cnt_ids: expected at least one controller id.";
            assert_eq!(printed(text), Err(message.into()), "{text}");
        }
    }
}
