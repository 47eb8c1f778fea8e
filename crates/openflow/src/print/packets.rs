//! Prints packets to and from controllers.

use super::{Style, hex_lines};
use crate::continuation::Continuation;
use crate::packet::{PacketIn, PacketInFormat, PacketOut};
use flow::Field;
use flow::text::format_match;
use std::fmt::Write;

/// Returns the name of a packet-in format.
pub fn format_name(format: PacketInFormat) -> &'static str {
    match format {
        PacketInFormat::Standard => "standard",
        PacketInFormat::Nxt => "nxt_packet_in",
        PacketInFormat::Nxt2 => "nxt_packet_in2",
    }
}

pub(super) fn packet_in(p: &PacketIn, style: Style<'_>, out: &mut String) {
    if p.table_id != 0 {
        out.push_str(" table_id=");
        style.table(p.table_id, out);
    }
    if p.cookie != u64::MAX {
        put!(out, " cookie=0x{:x}", p.cookie);
    }
    put!(out, " total_len={} ", p.total_len);
    let only_port = p.metadata.get(Field::InPortOxm).1 != 0 && {
        let mut rest = p.metadata.clone();
        rest.clear(Field::InPortOxm);
        rest == flow::Match::ANY
    };
    if only_port {
        out.push_str("in_port=");
        style.port(p.in_port(), out);
    } else {
        format_match(&p.metadata, style.ports, out);
    }
    put!(out, " (via {})", p.reason.name());
    put!(out, " data_len={}", p.data.len());
    match p.buffer_id {
        None => {
            out.push_str(" (unbuffered)");
            if p.total_len as usize != p.data.len() {
                out.push_str(" (***total_len != data_len***)");
            }
        }
        Some(id) => {
            put!(out, " buffer=0x{id:08x}");
            if (p.total_len as usize) < p.data.len() {
                out.push_str(" (***total_len < data_len***)");
            }
        }
    }
    out.push('\n');
    if !p.userdata.is_empty() {
        let bytes: Vec<String> = p.userdata.iter().map(|b| format!("{b:02x}")).collect();
        put!(out, " userdata={}\n", bytes.join("."));
    }
    if let Ok(continuation) = Continuation::decode(style.version, &p.continuation) {
        left(&continuation, style, out);
    }
    if style.verbosity > 0 {
        crate::body::describe_packet(&p.data, packet_type(&p.metadata), style.ports, out);
    }
    if style.verbosity > 2 {
        hex_lines(&p.data, out);
    }
}

/// The type of the outermost header, if the metadata says that it is not Ethernet.
fn packet_type(metadata: &flow::Match) -> u32 {
    metadata.get(Field::PacketType).0 as u32
}

/// Appends the state of a paused packet.
fn left(c: &Continuation, style: Style<'_>, out: &mut String) {
    let b = c.bridge.to_be_bytes().map(|b| format!("{b:02x}")).concat();
    if c.bridge != 0 {
        put!(out, " continuation.bridge={}-{}-{}-{}-{}\n", &b[..8], &b[8..12], &b[12..16], &b[16..20], &b[20..]);
    }
    if !c.stack.is_empty() {
        out.push_str(" continuation.stack=(top)");
        for value in &c.stack {
            let digits = value.iter().map(|b| format!("{b:02x}")).collect::<String>();
            let digits = digits.trim_start_matches('0');
            put!(out, " {}{digits}", if digits.is_empty() { "0" } else { "0x" });
        }
        out.push_str(" (bottom)\n");
    }
    if c.mirrors != 0 {
        put!(out, " continuation.mirrors=0x{:x}\n", c.mirrors);
    }
    if c.conntracked {
        out.push_str(" continuation.conntracked=true\n");
    }
    if !c.left.is_empty() {
        out.push_str(" continuation.actions=");
        for (i, left) in c.left.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            put!(out, "unroll_xlate(table={}, cookie={})", left.flow.0, left.flow.1);
            if !left.actions.is_empty() {
                out.push(',');
                crate::action::format::format_actions(out, &left.actions, style.ports, style.version);
            }
        }
        out.push('\n');
    }
    if !c.action_set.is_empty() {
        out.push_str(" continuation.action_set=");
        crate::action::format::format_actions(out, &c.action_set, style.ports, style.version);
        out.push('\n');
    }
    if let Some(port) = c.odp_port {
        put!(out, " continuation.odp_port={port}\n");
    }
}

pub(super) fn packet_out(p: &PacketOut, style: Style<'_>, out: &mut String) {
    out.push(' ');
    if p.metadata != flow::Match::ANY {
        let start = out.len();
        format_match(&p.metadata, style.ports, out);
        // The metadata may have printed nothing but the packet type.
        out.push_str(if out.len() > start { "," } else { "" });
    }
    out.push_str("in_port=");
    style.port(p.in_port, out);
    out.push_str(" actions=");
    crate::action::format::format_actions(out, &p.actions, style.ports, style.version);
    match p.buffer_id {
        Some(id) => put!(out, " buffer=0x{id:08x}"),
        None => {
            put!(out, " data_len={}", p.data.len());
            if style.verbosity > 0 && !p.data.is_empty() {
                out.push('\n');
                crate::body::describe_packet(&p.data, packet_type(&p.metadata), style.ports, out);
                if style.verbosity > 2 {
                    hex_lines(&p.data, out);
                }
            }
        }
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
}
