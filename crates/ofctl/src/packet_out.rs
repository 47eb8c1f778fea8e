//! The `packet-out` command.

use crate::error::{Result, fatal};
use crate::names::Names;
use crate::options::Context;
use crate::switch::{accepted_names, accepted_names_ports_first, open_for_flow_mods, transact_noreply};
use base::PortNo;
use flow::text::{Parsed, next_key_value, parse_field_into, parse_port};
use flow::{Field, Match};
use openflow::message::Options;
use openflow::packet::PacketOut;
use openflow::{Message, Protocols, parse_actions};

/// Length of an Ethernet header, the minimum length of a packet.
const ETHERNET_LEN: usize = 14;

/// Parses hexadecimal bytes, with optional blanks; `None` if anything else occurs.
pub fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks(2)
        .map(|pair| {
            let value = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
            Some(value(pair[0])? << 4 | value(pair[1])?)
        })
        .collect()
}

fn packet(text: &str) -> std::result::Result<Vec<u8>, &'static str> {
    let bytes = hex(text).ok_or("Trailing garbage in packet data")?;
    if bytes.len() < ETHERNET_LEN { Err("Packet data too short for Ethernet") } else { Ok(bytes) }
}

/// Sends packets through the switch.
pub fn packet_out(c: &Context, a: &[String]) -> Result {
    if a.len() == 2 {
        let names = accepted_names(c, &a[0])?;
        let request = parse(&a[1], &names).map_err(fatal)?;
        let (mut conn, _) = open_for_flow_mods(c, &a[0], usable(&request))?;
        return transact_noreply(c, &mut conn, &Message::PacketOut(request), Options::default());
    }
    if a.len() < 4 {
        return Err(fatal(format!("Too many arguments ({})", a.len() + 1)));
    }
    let names = accepted_names_ports_first(c, &a[0])?;
    let in_port = parse_port(&a[1], &names);
    let in_port = in_port.ok_or_else(|| fatal(format!("{}: unknown port `{}'", a[0], a[1])))?;
    let actions = parse_actions(&a[2], &names).map_err(fatal)?;
    let (mut conn, _) = open_for_flow_mods(c, &a[0], Protocols::of_action_list(&actions))?;
    for text in &a[3..] {
        let data = packet(text).map_err(fatal)?;
        let actions = actions.clone();
        let request = PacketOut { buffer_id: None, in_port, metadata: Match::ANY, actions, data };
        transact_noreply(c, &mut conn, &Message::PacketOut(request), Options::default())?;
    }
    Ok(())
}

/// The flow formats that can express a request.
fn usable(request: &PacketOut) -> Protocols {
    // The packet's type is implied by the packet and not transmitted.
    let said = flow::field::FIELDS.iter().filter(|info| info.id != Field::PacketType);
    let fields = said.map(|info| (info.id, request.metadata.get(info.id).1));
    fields
        .fold(Protocols::of_action_list(&request.actions), |set, (field, mask)| set & Protocols::of_field(field, mask))
}

/// Whether a packet-out can set this field of the packet's metadata.
fn is_pipeline_field(field: Field) -> bool {
    let name = field.name();
    let register = name.trim_start_matches('x').starts_with("reg");
    register || name.starts_with("tun_") || matches!(field, Field::Metadata | Field::PacketType)
}

/// Whether packets can be received on this port.
fn comes_in_by(port: PortNo) -> bool {
    port <= PortNo::MAX || matches!(port, PortNo::LOCAL | PortNo::ANY | PortNo::CONTROLLER)
}

/// Parses `in_port=PORT packet=HEX actions=ACTIONS` with pipeline fields.
pub fn parse(text: &str, names: &Names) -> std::result::Result<PacketOut, String> {
    let (fields, actions) = match text.find("action") {
        Some(at) => {
            let (fields, rest) = text.split_at(at);
            (fields, rest.split_once('=').map_or("", |(_, actions)| actions))
        }
        None => (text, ""),
    };
    let mut request =
        PacketOut { buffer_id: None, in_port: PortNo::CONTROLLER, metadata: Match::ANY, actions: vec![], data: vec![] };
    let mut rest = fields;
    while let Some((key, value)) = next_key_value(&mut rest) {
        let value = value.ok_or_else(|| format!("field {key} missing value"))?;
        match key {
            "in_port" => {
                let port = parse_port(value, names).ok_or_else(|| format!("{value} is not a valid OpenFlow port"))?;
                if !comes_in_by(port) {
                    return Err(format!("{value} is not a valid OpenFlow port for PACKET_OUT"));
                }
                request.in_port = port;
            }
            "packet" => request.data = packet(value).map_err(|e| format!("packet: {e}"))?,
            "buffer_id" => {
                let id = value.parse().map_err(|_| format!("invalid buffer id \"{value}\""))?;
                request.buffer_id = Some(id);
            }
            // Unlike in flows, the parentheses may be those of the key.
            "packet_type" => {
                let inner = value.strip_prefix('(').map_or(value, |inner| inner.strip_suffix(')').unwrap_or(inner));
                parse_field_into(&mut request.metadata, key, Some(&format!("({inner})")), names)
                    .map_err(|_| format!("packet_type({value}) can't be interpreted"))?;
            }
            _ => match parse_field_into(&mut request.metadata, key, Some(value), names) {
                Ok(Parsed::Field(field)) if is_pipeline_field(field) => {}
                Ok(Parsed::Field(_)) => return Err(format!("{key} is not a valid pipeline field for PACKET_OUT")),
                Ok(_) => return Err(format!("unknown keyword {key}")),
                Err(e) => return Err(e.to_string()),
            },
        }
    }
    if request.data.is_empty() && request.buffer_id.is_none() {
        return Err("must specify packet".into());
    }
    request.actions = parse_actions(actions, names).map_err(|e| e.to_string())?;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_packet_out() {
        let p = parse("in_port=LOCAL, packet=0102030405060708090a0b0c0800ffff,actions=2,drop", &Names::default());
        assert!(p.is_err() || p.is_ok_and(|p| p.in_port == PortNo::LOCAL));
        let p = parse("in_port=3 packet=0102030405060708090a0b0c0800 actions=2", &Names::default()).expect("right");
        assert_eq!((p.in_port, p.data.len(), p.actions.len()), (PortNo(3), 14, 1));
        assert_eq!(parse("in_port=3 actions=2", &Names::default()), Err("must specify packet".into()));
        assert_eq!(parse("packet=00", &Names::default()), Err("packet: Packet data too short for Ethernet".into()));
    }

    #[test]
    fn packet_type_needs_no_equals_sign() {
        let parsed = |packet_type: &str| {
            let text = format!("in_port=3,{packet_type},packet=0102030405060708090a0b0c0800,actions=2");
            parse(&text, &Names::default()).map(|p| p.metadata.get(Field::PacketType).0)
        };
        for text in ["packet_type(1,0x800)", "packet_type=(1,0x800)", "packet_type((1,0x800))"] {
            assert_eq!(parsed(text), Ok(0x1_0800), "{text}");
        }
        assert_eq!(parsed("packet_type(1)"), Err("packet_type(1) can't be interpreted".into()));
        assert_eq!(parsed("packet_type=1"), Err("packet_type(1) can't be interpreted".into()));
        assert_eq!(parsed("packet_type"), Err("field packet_type missing value".into()));
    }
}
