//! Prints messages as text, laid out as by `ovs-ofctl` and Open vSwitch's log.
//!
//! The first line names the message, its version unless that is 1.0, and the transaction id. Every text ends with a newline.

/// `write!` to a `String`, which cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{ let _ = write!($out, $($arg)*); }};
}

mod config;
mod connections;
mod flows;
mod groups;
mod meters;
mod monitors;
mod packets;
mod ports;
mod raw_match;
mod table_config;
mod tables;
mod tlv;

pub use config::frag_name;
pub use flows::{FlowStyle, flow_difference, flow_mod, flow_stats};
pub use packets::format_name;
pub use ports::port_desc;
pub use tables::{TableFormatter, tables};

use crate::Version;
use crate::bundle::BundleAdd;
use crate::error::{ErrorNumber, OfpError};
use crate::message::{DecodeError, Message, SHOWN, Xid, decode_with, encode_with};
use crate::multipart::{StatsReply, StatsRequest};
use crate::switch::{ErrorReport, Hello, ReportedError};
use crate::types::{self, MessageKind};
use base::PortNo;
use flow::Field;
use flow::text::{NoNames, PortNames, format_port, format_value, quoted_if_needed};
use std::cmp::Ordering;
use std::fmt::Write;
use std::net::Ipv6Addr;

/// Parameters of printing.
#[derive(Clone, Copy)]
pub struct Style<'a> {
    /// Names of ports and tables to print instead of numbers.
    pub ports: &'a dyn PortNames,
    /// The version, on which the names of some actions depend. Whole messages use their own.
    pub version: Version,
    /// 0 as in the log, 1 to print packet headers, 2 to dump bytes, 3 for more.
    pub verbosity: u8,
}

impl Style<'static> {
    /// Returns a style with numbers instead of names.
    pub fn plain(verbosity: u8) -> Self {
        Self { ports: &NoNames, version: Version::V10, verbosity }
    }
}

impl std::fmt::Debug for Style<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Style").field("verbosity", &self.verbosity).finish_non_exhaustive()
    }
}

impl Style<'_> {
    fn port(&self, port: PortNo, out: &mut String) {
        format_port(port, self.ports, out);
    }

    fn table(&self, id: u8, out: &mut String) {
        format_table(id, self.ports, out);
    }
}

/// Formats an IPv6 address as the C library does: the last four bytes of an IPv4-compatible one as an IPv4 address.
pub(crate) fn ipv6_to_string(address: Ipv6Addr) -> String {
    let mut out = String::new();
    format_value(Field::Ipv6Src, address.into(), u128::MAX, &NoNames, &mut out);
    out
}

/// Appends a table's name, or its number.
pub(crate) fn format_table(id: u8, names: &dyn PortNames, out: &mut String) {
    match names.table_name(id) {
        Some(name) => out.push_str(&quoted_if_needed(&name)),
        None => put!(out, "{id}"),
    }
}

/// Returns the text of a message's bytes; of several messages, that of the first.
pub fn print(msg: &[u8], style: Style<'_>) -> String {
    let mut out = String::new();
    let mut part = Part { msg, style };
    // An error quotes a message, which may be an error itself: the loop prints them one after the other, at any depth.
    while let Some(quoted) = quoted_by(part, &mut out) {
        part = Part { msg: quoted, style: Style { verbosity: 1, ..style } };
    }
    print_part(part, &mut out);
    if part.msg.len() < msg.len() && style.verbosity >= 5 {
        hex_dump(msg, 0, &mut out);
    }
    out
}

/// A message and its style.
#[derive(Clone, Copy)]
struct Part<'a, 's> {
    msg: &'a [u8],
    style: Style<'s>,
}

/// Appends the text of an error report and returns the message that it quotes; does nothing and returns `None` for other
/// messages.
fn quoted_by<'a>(Part { msg, .. }: Part<'a, '_>, out: &mut String) -> Option<&'a [u8]> {
    let head = types::head(msg).ok().filter(|head| head.row.kind == MessageKind::Error)?;
    let (number, used) = ErrorNumber::decode(head.body.peek())?;
    let known = OfpError::from_number(head.version, number).filter(|e| !quotes_text(*e))?;
    header(head.row.name, head.version, head.xid, out);
    put!(out, " {}\n", known.name());
    head.body.peek().get(used..)
}

/// Returns true if a report of this error contains text.
fn quotes_text(error: OfpError) -> bool {
    matches!(error, OfpError::HfcIncompatible | OfpError::HfcEperm)
}

fn print_part(Part { msg, style }: Part<'_, '_>, out: &mut String) {
    let Some(header) = msg.first_chunk::<8>() else {
        out.push_str(if msg.is_empty() { "OpenFlow message is empty\n" } else { "" });
        if !msg.is_empty() {
            put!(out, "OpenFlow packet too short (only {} bytes):\n", msg.len());
            hex_dump(msg, 0, out);
        }
        return;
    };
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    match length.cmp(&msg.len()) {
        Ordering::Greater => {
            // The name of the message is printed as soon as its headers are complete.
            let mut whole = msg.to_vec();
            types::set_length(&mut whole);
            if let Ok(head) = types::headers(&whole) {
                self::header(head.row.name, head.version, head.xid, out);
                out.push('\n');
            }
            put!(out, "(***truncated to {} bytes from {length}***)\n", msg.len());
        }
        Ordering::Less => put!(out, "(***only uses {length} bytes out of {}***)\n", msg.len()),
        Ordering::Equal => match types::head(msg) {
            Ok(_) => return print_decodable(msg, style, out),
            Err(_) if newer_hello(msg, out) => {
                if style.verbosity >= 5 {
                    hex_dump(msg, 0, out);
                }
                return;
            }
            // A version that there is not has no types.
            Err(OfpError::BrcBadVersion) => out.push_str(&decode_error(OfpError::BrcBadType)),
            Err(error) => put!(out, "{}", decode_error(error)),
        },
    }
    hex_dump(msg, 0, out);
}

fn decode_error(error: OfpError) -> String {
    format!("***decode error: {}***\n", error.name())
}

/// Prints a message whose headers are valid.
fn print_decodable(msg: &[u8], style: Style<'_>, out: &mut String) {
    let Ok(head) = types::head(msg) else { return };
    header(head.row.name, head.version, head.xid, out);
    if head.more || head.unknown_flags != 0 {
        out.push_str(if head.more { " flags=[more]" } else { " flags=" });
        if head.unknown_flags != 0 {
            put!(out, "[***unknown flags 0x{:04x}***]", head.unknown_flags);
        }
    }
    let start = out.len();
    let decoded = match decode_with(msg, SHOWN) {
        // An error without a name prints nothing more.
        Ok((v, xid, Message::Error(ErrorReport { error: ReportedError::Unknown(_), .. }))) => {
            Err(DecodeError { error: OfpError::BrcBadLen, xid, version: Some(v) })
        }
        decoded => decoded,
    };
    match decoded {
        Ok((version, xid, message)) => {
            match (&message, crate::bundle::inner(msg)) {
                (Message::BundleAdd(b), Some(inner)) => {
                    bundle_add((b.bundle_id, b.flags), inner, Style { version, ..style }, out);
                }
                (Message::FlowMod(_, f), _) if style.verbosity > 2 => {
                    let style = Style { version, ..style };
                    out.push(' ');
                    flows::flow_mod_with(f, raw_match::raw_match(&head, style).as_deref(), style, out);
                }
                _ => body(version, xid, &message, style, out),
            }
            if matches!(message, Message::Hello(_)) && !Hello::is_understood(head.body.peek()) {
                out.push_str(" unknown data in hello:\n");
                hex_dump(msg, 0, out);
            }
            if out.as_bytes().last() != Some(&b'\n') {
                out.push('\n');
            }
            if style.verbosity >= 5 {
                hex_dump(msg, 0, out);
            }
        }
        Err(_) if print_bundle_add(&head, style, out) => {}
        Err(DecodeError { error, .. }) => {
            out.truncate(start);
            let head_end = out.len();
            before_error(msg, &head, Style { version: head.version, ..style }, out);
            // An entry before the error may end with a colon, too.
            if out.len() == head_end && out.ends_with(':') {
                out.push(' ');
            } else if !out.ends_with('\n') {
                out.push('\n');
            }
            out.push_str(&decode_error(error));
            hex_dump(msg, 0, out);
        }
    }
}

/// Prints an OFPT_BUNDLE_ADD_MESSAGE whose inner message is malformed, which prints the error. Returns false for other
/// messages.
fn print_bundle_add(head: &types::Head<'_>, style: Style<'_>, out: &mut String) -> bool {
    if head.row.kind != MessageKind::BundleAdd {
        return false;
    }
    let opened = BundleAdd::open(head.version, head.xid, &mut head.body.clone());
    let Some(((bundle_id, flags), inner)) = opened.ok().filter(|(_, inner)| crate::bundle::takes(inner)) else {
        return false;
    };
    bundle_add((bundle_id, flags), inner, style, out);
    true
}

/// Prints the part before an error: for a list, the entries before the malformed one.
fn before_error(msg: &[u8], head: &types::Head<'_>, style: Style<'_>, out: &mut String) {
    let Some((message, used)) = crate::message::before_error(msg) else { return };
    let kind = head.row.kind;
    // These print the number of entries, or begin with a line of their own.
    let prints_if_empty = matches!(kind, MessageKind::PortReply | MessageKind::QueueReply | MessageKind::PortDescReply);
    if used > 0 || prints_if_empty {
        body(head.version, head.xid, &message, style, out);
    }
    if kind == MessageKind::GroupReply {
        out.truncate(out.trim_end_matches('\n').len());
        out.push_str(" ***parse error***\n");
    }
}

/// Appends `OFPT_HELLO (OF1.3) (xid=0x1):`.
fn header(name: &str, version: Version, xid: u32, out: &mut String) {
    out.push_str(name);
    if version != Version::V10 {
        put!(out, " (OF{version_digits})", version_digits = digits(version));
    }
    put!(out, " (xid=0x{xid:x}):");
}

/// Returns the version as `1.3`.
pub fn digits(version: Version) -> &'static str {
    ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"][version as usize - 1]
}

/// Appends the text after the header line's colon.
pub fn body(version: Version, xid: Xid, message: &Message, style: Style<'_>, out: &mut String) {
    use Message as M;
    let style = Style { version, ..style };
    match message {
        M::Hello(h) => hello(h, out),
        M::Error(e) => error(e, style, out),
        M::EchoRequest(data) | M::EchoReply(data) => {
            put!(out, " {} bytes of payload\n", data.len());
            if style.verbosity > 1 {
                hex_dump(data, 0, out);
            }
        }
        M::FeaturesReply(f) => config::features(version, f, style, out),
        M::GetConfigReply(c) | M::SetConfig(c) => config::switch_config(*c, out),
        M::PacketIn(_, p) | M::Resume(p) => packets::packet_in(p, style, out),
        M::PacketOut(p) => packets::packet_out(p, style, out),
        M::FlowRemoved(_, f) => flows::flow_removed(f, style, out),
        M::FlowMod(_, f) => {
            out.push(' ');
            flows::flow_mod(f, style, out);
        }
        M::PortStatus(s) => ports::port_status(s, style, out),
        M::TableStatus(s) => table_config::table_status(s, style, out),
        M::PortMod(m) => ports::port_mod(m, style, out),
        M::TableMod(m) => table_config::table_mod(version, m, style, out),
        M::GroupMod(m) => groups::group_mod(m, style, out),
        M::MeterMod(m) => meters::meter_mod(m, out),
        M::QueueGetConfigRequest(port) => {
            out.push_str(" port=");
            style.port(*port, out);
        }
        M::QueueGetConfigReply(q) => ports::queue_config(q, style, out),
        M::RoleRequest(_, r) => config::role(*r, false, out),
        M::RoleReply(_, r) => config::role(*r, true, out),
        M::ControllerStatus(s) => config::controller_status(s, out),
        M::RoleStatus(s) => config::role_status(*s, out),
        M::RequestForward(f) => config::request_forward(f, style, out),
        M::SetAsync(_, a) | M::GetAsyncReply(a) => config::async_config(a, out),
        M::SetFlowFormat(n) => config::flow_format(*n, out),
        M::FlowModTableId(on) => put!(out, " {}", if *on { "enable" } else { "disable" }),
        M::SetPacketInFormat(f) => put!(out, " format={}", packets::format_name(*f)),
        M::SetControllerId(id) => put!(out, " id={id}"),
        M::FlowMonitorCancel(id) => put!(out, " id={id}"),
        M::BundleControl(b) => config::bundle_control(*b, out),
        M::BundleAdd(b) => {
            let inner = encode_with(version, xid, &b.message, SHOWN);
            bundle_add((b.bundle_id, b.flags), &inner, style, out);
        }
        M::CtFlushZone(zone) => put!(out, " zone_id={zone}"),
        M::CtFlush(m) => connections::ct_flush(m, out),
        M::TlvTableMod(m) => tlv::table_mod(m, out),
        M::TlvTableReply(m) => tlv::reply(m, out),
        M::StatsRequest { body, .. } => stats_request(version, body, style, out),
        M::StatsReply { body, .. } => stats_reply(version, body, style, out),
        M::FeaturesRequest
        | M::GetConfigRequest
        | M::BarrierRequest
        | M::BarrierReply
        | M::GetAsyncRequest
        | M::TlvTableRequest
        | M::FlowMonitorPaused
        | M::FlowMonitorResumed
        | M::FlowAge => {}
    }
}

/// `inner`: the bytes of the inner message.
fn bundle_add((bundle_id, flags): (u32, u16), inner: &[u8], style: Style<'_>, out: &mut String) {
    config::bundle_id(bundle_id, out);
    config::bundle_flags(flags, out);
    out.push('\n');
    out.push_str(&print(inner, style));
}

/// Prints HELLO of a version that there is not yet, which negotiation accepts. Returns false for other messages.
fn newer_hello(msg: &[u8], out: &mut String) -> bool {
    let Some(version) = msg.first().filter(|v| **v > Version::V15.wire()) else { return false };
    let Ok((_, xid, Message::Hello(h))) = decode_with(msg, SHOWN) else { return false };
    put!(out, "OFPT_HELLO (OF 0x{version:02x}) (xid=0x{xid:x}):");
    hello(&h, out);
    true
}

fn hello(h: &Hello, out: &mut String) {
    put!(out, "\n version bitmap: {}\n", h.versions);
}

/// Prints the reports that [`quoted_by`] leaves: those with text.
fn error(e: &ErrorReport, style: Style<'_>, out: &mut String) {
    if let ReportedError::Known(known) = e.error {
        put!(out, " {}\n", known.name());
        if !quotes_text(known) {
            out.push_str(&print(&e.data, Style { verbosity: 1, ..style }));
        } else if !e.data.is_empty() {
            out.push_str(&printable(&e.data));
            out.push('\n');
        }
    }
}

fn stats_request(_version: Version, request: &StatsRequest, style: Style<'_>, out: &mut String) {
    use StatsRequest as S;
    match request {
        S::Flow(q) | S::Aggregate(q) | S::NxFlow(q) | S::NxAggregate(q) | S::FlowCounts(q) => {
            flows::flow_stats_request(q, style, out);
        }
        S::Port(port) => {
            out.push_str(" port_no=");
            style.port(*port, out);
        }
        S::Queue(q) => ports::queue_stats_request(q, style, out),
        S::Group(id) | S::GroupDesc(id) => {
            out.push_str(" group_id=");
            groups::group_id(*id, out);
        }
        S::Meter(id) | S::MeterConfig(id) => {
            out.push(' ');
            meters::meter_id(*id, '=', out);
        }
        S::TableFeatures(t) => tables(t, &[], style, out),
        S::PortDesc(port) => {
            out.push_str(" port=");
            style.port(*port, out);
        }
        S::QueueDesc(q) => ports::queue_desc_request(q, style, out),
        S::FlowMonitor(monitors) => monitors::requests(monitors, style, out),
        S::BundleFeatures(f) => config::bundle_features_request(f, out),
        S::Desc | S::Table | S::TableDesc | S::GroupFeatures | S::MeterFeatures | S::ControllerStatus => {}
        S::IpfixBridge | S::IpfixFlow => {}
    }
}

/// Appends a statistics reply without its header.
pub fn stats_reply(version: Version, reply: &StatsReply, style: Style<'_>, out: &mut String) {
    use StatsReply as S;
    match reply {
        S::Desc(d) => {
            out.push('\n');
            put!(out, "Manufacturer: {}\nHardware: {}\nSoftware: {}\n", d.manufacturer, d.hardware, d.software);
            put!(out, "Serial Num: {}\nDP Description: {}\n", d.serial_number, d.datapath);
        }
        S::Flow(flows) | S::NxFlow(flows) => {
            for f in flows {
                out.push_str("\n ");
                flow_stats(f, FlowStyle::WithStats, style, out);
            }
            out.push('\n');
        }
        S::FlowCounts(flows) => {
            for f in flows {
                out.push_str("\n ");
                flows::flow_counts(f, style, out);
            }
            out.push('\n');
        }
        S::Aggregate(a) | S::NxAggregate(a) => {
            put!(out, " packet_count={} byte_count={} flow_count={}", a.packet_count, a.byte_count, a.flow_count);
        }
        S::Table(stats) => {
            let features: Vec<_> = stats.iter().map(|s| tables::features_of_stats(version, s)).collect();
            tables(&features, stats, style, out);
        }
        S::Port(all) => ports::port_stats(all, style, out),
        S::Queue(all) => ports::queue_stats(all, style, out),
        S::GroupFeatures(f) => groups::group_features(version, f, out),
        S::MeterFeatures(f) => meters::meter_features(f, out),
        S::Group(all) => groups::group_stats(all, out),
        S::GroupDesc(all) => groups::group_descs(all, style, out),
        S::Meter(all) => meters::meter_stats(all, out),
        S::MeterConfig(all) => meters::meter_configs(all, out),
        S::TableFeatures(t) => tables(t, &[], style, out),
        S::PortDesc(all) => {
            out.push('\n');
            ports::port_descs(all, style, out);
        }
        S::IpfixBridge(stats) => connections::ipfix_bridge(stats, out),
        S::IpfixFlow(all) => connections::ipfix_flows(all, out),
        S::FlowMonitor(updates) => monitors::updates(updates, style, out),
        S::QueueDesc(all) => ports::queue_configs(all, style, out),
        S::TableDesc(all) => table_config::table_descs(all, style, out),
        S::ControllerStatus(all) => {
            for status in all {
                out.push_str("\n ");
                config::controller_status(status, out);
            }
            out.push('\n');
        }
        S::BundleFeatures(f) => config::bundle_features(f, out),
    }
}

/// Escapes text from outside: all except printable ASCII in octal.
fn printable(bytes: &[u8]) -> String {
    let mut out = String::new();
    for b in bytes {
        match b {
            b'"' | b'\\' | ..0x20 | 0x7f.. => put!(out, "\\{b:03o}"),
            _ => out.push(char::from(*b)),
        }
    }
    out
}

/// Appends a counter, `?` if it is unknown.
fn counter(n: u64, out: &mut String) {
    if n == u64::MAX {
        out.push('?');
    } else {
        put!(out, "{n}");
    }
}

/// Appends the names of the set bits, separated by blanks; `0` if none is set. Bits without a name follow in hexadecimal.
fn bit_names(bits: u32, names: &[(u32, &str)], out: &mut String) {
    if bits == 0 {
        out.push('0');
        return;
    }
    let mut rest = bits;
    let mut first = true;
    for (bit, name) in names.iter().filter(|(bit, _)| bits & bit != 0) {
        put!(out, "{}{name}", if first { "" } else { " " });
        first = false;
        rest &= !bit;
    }
    if rest != 0 {
        put!(out, "{}0x{rest:x}", if first { "" } else { " " });
    }
}

/// Appends seconds, with three decimals for whole milliseconds, and else without trailing zeros.
fn duration(sec: u32, nsec: u32, out: &mut String) {
    put!(out, "{sec}");
    if nsec == 0 {
    } else if nsec.is_multiple_of(1_000_000) {
        put!(out, ".{:03}", nsec / 1_000_000);
    } else {
        put!(out, ".{nsec:09}");
        out.truncate(out.trim_end_matches('0').len());
    }
}

/// Appends bytes in lines of 16, with their offset, in hexadecimal only.
pub fn hex_lines(bytes: &[u8], out: &mut String) {
    for (i, line) in bytes.chunks(16).enumerate() {
        put!(out, "{:08x} ", 16 * i);
        for (n, b) in line.iter().enumerate() {
            put!(out, "{}{b:02x}", if n == 8 { '-' } else { ' ' });
        }
        out.push_str(if line.len() == 8 { "-" } else { "" });
        out.push('\n');
    }
}

/// Appends bytes in lines of 16, with their offset, in hexadecimal and as characters.
pub fn hex_dump(bytes: &[u8], first: usize, out: &mut String) {
    for (i, line) in bytes.chunks(16).enumerate() {
        put!(out, "{:08x} ", first + 16 * i);
        for n in 0..16 {
            let sep = if n == 8 && line.len() >= 8 { '-' } else { ' ' };
            match line.get(n) {
                Some(b) => put!(out, "{sep}{b:02x}"),
                None => {
                    out.push(sep);
                    out.push_str("  ");
                }
            }
        }
        out.push_str(" |");
        for n in 0..16 {
            out.push(match line.get(n) {
                Some(b) if (0x20..0x7f).contains(b) => char::from(*b),
                Some(_) => '.',
                None => ' ',
            });
        }
        out.push_str("|\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_versions_that_there_are_not() {
        let hello = [0x0f, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x12];
        assert_eq!(print(&hello, Style::plain(2)), "OFPT_HELLO (OF 0x0f) (xid=0x1):\n version bitmap: 0x01, 0x04\n");
        let error = |version| print(&[version, 14, 0, 8, 0, 0, 0, 1], Style::plain(2));
        assert!(error(0).starts_with("***decode error: OFPBRC_BAD_TYPE***\n"));
        assert!(error(7).starts_with("***decode error: OFPBRC_BAD_TYPE***\n"));
    }

    #[test]
    fn an_empty_match_of_a_removed_flow_leaves_two_blanks() {
        let mut removed = vec![4, 11, 0, 56, 0, 0, 0, 1];
        removed.extend([0; 8]);
        removed.extend([0x80, 0, 2, 1, 0, 0, 0, 5]);
        removed.extend([0; 24]);
        removed.extend([0, 1, 0, 4, 0, 0, 0, 0]);
        assert_eq!(
            print(&removed, Style::plain(2)),
            "OFPT_FLOW_REMOVED (OF1.3) (xid=0x1):  reason=delete table_id=1 duration5s idle0 pkts0 bytes0\n"
        );
    }

    #[test]
    fn a_field_takes_any_mask_if_its_header_has_the_mask_bit() {
        use crate::multipart::StatsReply;
        use crate::table::TableFeatures;
        let mut features = TableFeatures { any_properties: true, ..TableFeatures::default() };
        for field in [Field::EthSrc, Field::EthDst, Field::EthType] {
            features.matching.insert(field);
            features.wildcard.insert(field);
        }
        features.maskable.insert(Field::EthDst);
        let message = Message::StatsReply { more: false, body: StatsReply::TableFeatures(vec![features]) };
        let text = print(&crate::encode(Version::V13, 1, &message), Style::plain(2));
        assert!(text.contains("arbitrary mask: eth_dst\n"), "{text}");
        assert!(text.contains("exact match or wildcard: eth_{src,type}\n"), "{text}");
    }
}
