//! Parses the flow syntax of `ovs-ofctl`: `table=0,priority=1,tcp,actions=output:2`.
//!
//! The keys that a line may have depend on the command: an addition has actions and timeouts, a deletion may be restricted to
//! an output port. The messages are those of `ovs-ofctl`, which scripts match.

use super::action::parse::{parse_instructions, parse_int, parse_uint};
use super::error::OfpError;
use super::flow_mod::{FlowMod, FlowModCommand};
use super::protocol::Protocols;
use flow::text::{Parsed, next_key_value, parse_field_into, parse_port, parse_subfield, parse_table};
use flow::{Field, Loc, Maskable, Match, Normalized, PortNames, Prereq};
use std::borrow::Cow;

/// An error in the text of a flow.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FlowTextError(pub String);

fn error<T>(message: impl Into<String>) -> Result<T, FlowTextError> {
    Err(FlowTextError(message.into()))
}

/// A flow mod parsed from text, and the formats that can carry it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsedFlow {
    /// The flow mod.
    pub flow_mod: FlowMod,
    /// Formats that can carry all of it.
    pub usable: Protocols,
    /// Fields dropped from the match because their prerequisites are missing, which `ovs-ofctl` logs.
    pub normalized: Option<Normalized>,
}

/// Parses a flow for `command`.
pub fn parse_flow(text: &str, command: FlowModCommand, ports: &dyn PortNames) -> Result<ParsedFlow, FlowTextError> {
    let has_actions = !matches!(command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
    let (spec, actions) = if has_actions {
        let Some((spec, actions)) = split_actions(text) else { return error("must specify an action") };
        (spec, Some(actions))
    } else {
        (text, None)
    };
    let mut parser = Parser { fm: FlowMod::new(command), usable: Protocols::ANY, ports };
    let mut rest = spec;
    while let Some((key, value)) = next_key_value(&mut rest) {
        parser.key(key, value)?;
    }
    if let Some(actions) = actions {
        parser.actions(actions)?;
    }
    let modifies = matches!(command, FlowModCommand::Modify | FlowModCommand::ModifyStrict);
    if modifies && !parser.fm.modify_cookie && parser.fm.cookie_mask != 0 {
        // Flows selected by their cookie keep it. (Without a cookie match the modification may add a flow, which gets cookie 0.)
        parser.fm.new_cookie = u64::MAX;
    }
    parser.restrict(of_ipv6(&parser.fm.matching));
    let normalized = parser.fm.matching.normalize(ports);
    Ok(ParsedFlow { flow_mod: parser.fm, usable: parser.usable, normalized })
}

/// Parses a line of `add-flows` or of a bundle, which may start with a command: `add`, `modify`, `modify_strict`,
/// `delete` or `delete_strict`.
pub fn parse_flow_line(line: &str, ports: &dyn PortNames) -> Result<ParsedFlow, FlowTextError> {
    let line = line.trim_start();
    let word_end = line.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(line.len());
    let (word, rest) = line.split_at(word_end);
    // A word before `=` is a key.
    let followed = rest.is_empty() || rest.starts_with([' ', '\t', ',']);
    let command = match word {
        "add" => FlowModCommand::Add,
        "modify" => FlowModCommand::Modify,
        "modify_strict" => FlowModCommand::ModifyStrict,
        "delete" => FlowModCommand::Delete,
        "delete_strict" => FlowModCommand::DeleteStrict,
        _ => return parse_flow(line, FlowModCommand::Add, ports),
    };
    parse_flow(if followed { rest } else { line }, if followed { command } else { FlowModCommand::Add }, ports)
}

/// Parses the filter of `dump-flows` and other requests; `None` selects all flows.
pub fn parse_flow_filter(text: &str, ports: &dyn PortNames) -> Result<ParsedFlow, FlowTextError> {
    parse_flow(text, FlowModCommand::Delete, ports)
}

/// Splits the text at `actions=`.
fn split_actions(text: &str) -> Option<(&str, &str)> {
    let (spec, rest) = text.split_at(text.find("action")?);
    Some((spec, rest.split_once('=')?.1))
}

struct Parser<'a> {
    fm: FlowMod,
    usable: Protocols,
    ports: &'a dyn PortNames,
}

impl Parser<'_> {
    fn restrict(&mut self, usable: Protocols) {
        self.usable = self.usable & usable;
    }

    fn key(&mut self, key: &str, value: Option<&str>) -> Result<(), FlowTextError> {
        if self.flag(key) || matches!(key, "no_readonly_table" | "allow_hidden_fields") {
            return Ok(());
        }
        let parsed = parse_field_into(&mut self.fm.matching, key, value, self.ports)
            .map_err(|e| FlowTextError(e.to_string()))?;
        match parsed {
            Parsed::Protocol => return Ok(()),
            Parsed::Field(field) if matches!(field.info().loc, Loc::TunMetadata(_)) => {
                self.restrict(Protocols::EXTENDED);
                return Ok(());
            }
            Parsed::Field(field) => {
                let mask = mask_of(&self.fm.matching, field);
                let carried = !key.contains('[') || bits_can_be_matched(key, field, mask);
                self.restrict(if carried { Protocols::of_field(field, mask) } else { Protocols::NONE });
                if extended_only(field, value, mask) || field == Field::VlanVid && key.contains('[') {
                    self.restrict(Protocols::EXTENDED);
                }
                return Ok(());
            }
            Parsed::Unknown => {}
        }
        match value {
            None | Some("") => error(format!("field {key} missing value")),
            Some(value) => self.setting(key, value),
        }
    }

    /// Sets a flag of the flow; only additions and modifications have flags.
    fn flag(&mut self, key: &str) -> bool {
        if matches!(self.fm.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict) {
            return false;
        }
        let flags = &mut self.fm.flags;
        let (flag, usable) = match key {
            "send_flow_rem" => (&mut flags.send_flow_rem, Protocols::ANY),
            "check_overlap" => (&mut flags.check_overlap, Protocols::ANY),
            "reset_counts" => (&mut flags.reset_counts, Protocols::OXM_ANY),
            "no_packet_counts" => (&mut flags.no_packet_counts, Protocols::OF13_UP),
            "no_byte_counts" => (&mut flags.no_byte_counts, Protocols::OF13_UP),
            _ => return false,
        };
        *flag = true;
        self.restrict(usable);
        true
    }

    fn setting(&mut self, key: &str, value: &str) -> Result<(), FlowTextError> {
        use FlowModCommand::{Add, Delete, DeleteStrict};
        let command = self.fm.command;
        let deletes = matches!(command, Delete | DeleteStrict);
        let u16_value = || match parse_int(value, 16) {
            Some(n) => Ok(n as u16),
            None => error(format!("invalid {key} \"{value}\"")),
        };
        match key {
            "table" => match parse_table(value, self.ports) {
                Some(255) => self.fm.table_id = None,
                Some(table) => {
                    self.fm.table_id = Some(table);
                    self.restrict(Protocols::TID);
                }
                None => return error(format!("unknown table \"{value}\"")),
            },
            "out_port" if deletes => match parse_port(value, self.ports) {
                Some(port) => self.fm.out_port = port,
                None => return error(format!("{value} is not a valid OpenFlow port")),
            },
            "out_group" if deletes => {
                self.restrict(Protocols::OF11_UP);
                self.fm.out_group = match (value.to_ascii_lowercase().as_str(), parse_uint(value, 32)) {
                    ("any", _) => super::flow_mod::GROUP_ANY,
                    ("all", _) => 0xffff_fffc,
                    (_, Some(group)) => group as u32,
                    _ => return error(format!("{value} is not a valid OpenFlow group")),
                };
            }
            "priority" if command != Delete => self.fm.priority = u16_value()?,
            "idle_timeout" if !deletes => self.fm.idle_timeout = u16_value()?,
            "hard_timeout" if !deletes => self.fm.hard_timeout = u16_value()?,
            "importance" if command == Add => self.fm.importance = u16_value()?,
            "cookie" => return self.cookie(value),
            "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {}
            _ => return error(format!("unknown keyword {key}")),
        }
        Ok(())
    }

    /// A cookie with a mask selects flows; one without is their new cookie.
    fn cookie(&mut self, text: &str) -> Result<(), FlowTextError> {
        let number = |s: &str| match s.strip_prefix('-').map_or_else(|| parse_uint(s, 64), negated) {
            Some(n) => Ok(n),
            None => error(format!("invalid numeric format {s}")),
        };
        let deletes = matches!(self.fm.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
        match text.split_once('/') {
            Some(_) if self.fm.command == FlowModCommand::Add => {
                return error("flow additions cannot use a cookie mask");
            }
            Some((value, mask)) => {
                self.fm.cookie = number(value)?;
                self.fm.cookie_mask = number(mask)?;
                self.restrict(Protocols::EXTENDED | Protocols::OF11_STD);
            }
            None if deletes => {
                let how = format!("(to match on a cookie, specify a mask, e.g. cookie={text}/-1)");
                return error(format!("cannot set cookie {how}"));
            }
            None => {
                self.fm.new_cookie = number(text)?;
                self.fm.modify_cookie = true;
            }
        }
        Ok(())
    }

    fn actions(&mut self, text: &str) -> Result<(), FlowTextError> {
        let fm = &mut self.fm;
        fm.actions = parse_instructions(text, self.ports).map_err(|e| FlowTextError(e.to_string()))?;
        // For the actions, a packet type acts as an Ethernet type, even after an Ethernet header is pushed.
        let mut matching = Cow::Borrowed(&fm.matching);
        let eth_type = fm.matching.eth_type();
        if eth_type != 0 && matching.mask().get(Field::EthType) == 0 {
            matching.to_mut().set(Field::EthType, eth_type.into());
        }
        match Protocols::of_actions(&fm.actions, &matching, fm.table_id.unwrap_or(255)) {
            Ok(usable) => {
                self.restrict(usable);
                let inconsistent = OfpError::BacMatchInconsistent;
                if self.usable == Protocols::NONE {
                    return error(format!("actions are invalid with specified match ({inconsistent})"));
                }
                Ok(())
            }
            Err(e) => error(format!("actions are invalid with specified match ({e})")),
        }
    }
}

/// Returns true if only NXM and OXM carry this text of a field, whose mask alone would not say so: a packet type, even that
/// of Ethernet, which matches everything; and a VLAN id with a mask other than that of the whole 16-bit field. (So do the
/// bits of a VLAN id, which never are that field as a whole.)
fn extended_only(field: Field, value: Option<&str>, mask: u128) -> bool {
    match field {
        Field::PacketType => true,
        Field::VlanVid => {
            let given = value.and_then(|v| v.split_once('/')).and_then(|(_, mask)| parse_uint(mask, 16));
            mask != 0 && given.is_some_and(|mask| mask != 0xffff)
        }
        _ => false,
    }
}

/// Applies a minus sign to an unsigned number like the C library.
fn negated(digits: &str) -> Option<u64> {
    parse_uint(digits, 64).map(u64::wrapping_neg)
}

/// The formats that can match on the headers after IPv6: the fixed matches have these fields for IPv4 only.
fn of_ipv6(matching: &Match) -> Protocols {
    let fields = [Field::IpProto, Field::IpDscp, Field::IpEcn, Field::TcpSrc, Field::TcpDst];
    let beyond = fields.into_iter().any(|f| matching.get(f).1 != 0);
    if matching.meets(Prereq::Ipv6) && beyond { Protocols::EXTENDED } else { Protocols::ANY }
}

/// Returns true if some format can carry a match on `field[..]` with this mask: a field that takes no mask must be matched in
/// full.
fn bits_can_be_matched(key: &str, field: Field, mask: u128) -> bool {
    let info = field.info();
    if info.maskable == Maskable::Full {
        return true;
    }
    let whole = parse_subfield(key).is_ok_and(|(_, _, bits)| bits == u32::from(info.wire_bits));
    // For the other fields the match does not keep all bits that are on the wire.
    let kept = info.wire_bits == info.n_bits && !matches!(field, Field::InPort | Field::ArpOp | Field::IpDscpShifted);
    whole || kept && mask == info.full_mask()
}

/// The bits of `field` that the match covers, as the text gave them.
fn mask_of(matching: &Match, field: Field) -> u128 {
    let mask = matching.get(field).1;
    // The match keeps only the low byte of the ARP operation, and expresses the absence of a tag with the whole of the tag's
    // control information.
    if field == Field::ArpOp && mask != 0 { field.info().full_mask() } else { mask }
}
