//! Prints flows.

use super::{Style, duration};
use crate::action::Action;
use crate::flow_mod::{FlowFlags, FlowMod, FlowModCommand};
use crate::flow_msg::{FlowRemoved, FlowRemovedReason, FlowStats, FlowStatsRequest};
use base::PortNo;
use flow::Match;
use flow::text::format_match;
use std::fmt::Write;

/// The parts of a flow to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowStyle {
    /// Everything.
    WithStats,
    /// No counters and times; cookie and table only if they are not zero.
    NoStats,
}

/// Appends the match after the priority, which is left out if it is the default.
fn match_and_priority(m: &Match, priority: u16, style: Style<'_>, out: &mut String) {
    let start = out.len();
    if priority != FlowMod::DEFAULT_PRIORITY {
        put!(out, "priority={priority},");
    }
    format_match(m, style.ports, out);
    if out.len() > start && out.ends_with(',') {
        out.pop();
    }
}

fn flags(f: FlowFlags, out: &mut String) {
    for (on, name) in [
        (f.send_flow_rem, "send_flow_rem "),
        (f.check_overlap, "check_overlap "),
        (f.reset_counts, "reset_counts "),
        (f.no_packet_counts, "no_packet_counts "),
        (f.no_byte_counts, "no_byte_counts "),
    ] {
        out.push_str(if on { name } else { "" });
    }
}

fn actions(actions: &[Action], style: Style<'_>, out: &mut String) {
    out.push_str("actions=");
    crate::action::format::format_actions(out, actions, style.ports, style.version);
}

/// Appends a flow of a statistics reply on one line, without a newline.
pub fn flow_stats(f: &FlowStats, show: FlowStyle, style: Style<'_>, out: &mut String) {
    let stats = show == FlowStyle::WithStats;
    if stats || f.cookie != 0 {
        put!(out, "cookie=0x{:x}, ", f.cookie);
    }
    if stats {
        out.push_str("duration=");
        duration(f.duration_sec, f.duration_nsec, out);
        out.push_str("s, ");
    }
    if stats || f.table_id != 0 || style.ports.table_name(f.table_id).is_some() {
        out.push_str("table=");
        style.table(f.table_id, out);
        out.push_str(", ");
    }
    if stats {
        for (name, n) in [("n_packets=", f.packet_count), ("n_bytes=", f.byte_count)] {
            out.push_str(name);
            super::counter(n, out);
            out.push_str(", ");
        }
    }
    if f.idle_timeout != 0 {
        put!(out, "idle_timeout={}, ", f.idle_timeout);
    }
    if f.hard_timeout != 0 {
        put!(out, "hard_timeout={}, ", f.hard_timeout);
    }
    flags(f.flags, out);
    if f.importance != 0 {
        put!(out, "importance={}, ", f.importance);
    }
    if stats {
        if let Some(age) = f.idle_age {
            put!(out, "idle_age={age}, ");
        }
        if let Some(age) = f.hard_age.filter(|a| *a != f.duration_sec) {
            put!(out, "hard_age={age}, ");
        }
    }
    let start = out.len();
    match_and_priority(&f.matching, f.priority, style, out);
    if out.len() > start {
        out.push(' ');
    }
    actions(&f.actions, style, out);
}

/// Appends a flow on one line in the form of `diff-flows`: table, priority and match first.
pub fn flow_difference(f: &FlowStats, style: Style<'_>, out: &mut String) {
    if f.table_id != 0 {
        out.push_str("table=");
        style.table(f.table_id, out);
        out.push(' ');
    }
    match_and_priority(&f.matching, f.priority, style, out);
    out.push(' ');
    if f.cookie != 0 {
        put!(out, "cookie=0x{:x} ", f.cookie);
    }
    for (name, n) in [("idle_timeout", f.idle_timeout), ("hard_timeout", f.hard_timeout), ("importance", f.importance)]
    {
        if n != 0 {
            put!(out, "{name}={n} ");
        }
    }
    actions(&f.actions, style, out);
}

/// Appends a flow mod on one line.
pub fn flow_mod(fm: &FlowMod, style: Style<'_>, out: &mut String) {
    flow_mod_with(fm, None, style, out);
}

/// Does the same with the match as it is on the wire, if given. The priority is then a word of its own.
pub(super) fn flow_mod_with(fm: &FlowMod, raw: Option<&str>, style: Style<'_>, out: &mut String) {
    out.push_str(match fm.command {
        FlowModCommand::Add => "ADD",
        FlowModCommand::Modify => "MOD",
        FlowModCommand::ModifyStrict => "MOD_STRICT",
        FlowModCommand::Delete => "DEL",
        FlowModCommand::DeleteStrict => "DEL_STRICT",
    });
    // All tables is a table id as well: for OpenFlow 1.0, which has none, the decoder sets table 0.
    match fm.table_id.unwrap_or(0xff) {
        0 => {}
        id => {
            out.push_str(" table:");
            style.table(id, out);
        }
    }
    out.push(' ');
    let start = out.len();
    match raw {
        Some(raw) => out.push_str(raw),
        None => match_and_priority(&fm.matching, fm.priority, style, out),
    }
    if out.len() > start {
        out.push(' ');
    }
    if fm.new_cookie != 0 && fm.new_cookie != u64::MAX {
        put!(out, "cookie:0x{:x} ", fm.new_cookie);
    }
    if fm.cookie_mask != 0 {
        put!(out, "cookie:0x{:x}/0x{:x} ", fm.cookie, fm.cookie_mask);
    }
    if fm.idle_timeout != 0 {
        put!(out, "idle:{} ", fm.idle_timeout);
    }
    if fm.hard_timeout != 0 {
        put!(out, "hard:{} ", fm.hard_timeout);
    }
    if raw.is_some() && fm.priority != FlowMod::DEFAULT_PRIORITY {
        put!(out, "pri:{} ", fm.priority);
    }
    if fm.importance != 0 {
        put!(out, "importance:{} ", fm.importance);
    }
    if let Some(id) = fm.buffer_id {
        put!(out, "buf:0x{id:x} ");
    }
    if fm.out_port != PortNo::ANY {
        out.push_str("out_port:");
        style.port(fm.out_port, out);
        out.push(' ');
    }
    flags(fm.flags, out);
    actions(&fm.actions, style, out);
}

pub(super) fn flow_removed(f: &FlowRemoved, style: Style<'_>, out: &mut String) {
    out.push(' ');
    match_and_priority(&f.matching, f.priority, style, out);
    out.push_str(" reason=");
    let reason = match f.reason {
        FlowRemovedReason::IdleTimeout => "idle",
        FlowRemovedReason::HardTimeout => "hard",
        FlowRemovedReason::Delete => "delete",
        FlowRemovedReason::GroupDelete => "group_delete",
        FlowRemovedReason::MeterDelete => "meter_delete",
        FlowRemovedReason::Eviction => "eviction",
        FlowRemovedReason::Other(n) => &n.to_string(),
    };
    out.push_str(reason);
    if let Some(id) = f.table_id {
        out.push_str(" table_id=");
        style.table(id, out);
    }
    if f.cookie != 0 {
        put!(out, " cookie:0x{:x}", f.cookie);
    }
    out.push_str(" duration");
    duration(f.duration_sec, f.duration_nsec, out);
    put!(out, "s idle{}", f.idle_timeout);
    if f.hard_timeout != 0 {
        // Only messages that include the timeout have one.
        put!(out, " hard{}", f.hard_timeout);
    }
    put!(out, " pkts{} bytes{}\n", f.packet_count, f.byte_count);
}

/// Appends a flow's counters and match, on one line without a newline.
pub(super) fn flow_counts(f: &FlowStats, style: Style<'_>, out: &mut String) {
    out.push_str("duration=");
    duration(f.duration_sec, f.duration_nsec, out);
    out.push_str("s, table=");
    style.table(f.table_id, out);
    for (name, n) in [(", n_packets=", f.packet_count), (", n_bytes=", f.byte_count)] {
        out.push_str(name);
        super::counter(n, out);
    }
    if let Some(age) = f.idle_age {
        put!(out, ", idle_age={age}");
    }
    let start = out.len();
    out.push_str(", ");
    match_and_priority(&f.matching, f.priority, style, out);
    if out.len() == start + 2 {
        out.truncate(start);
    }
}

pub(super) fn flow_stats_request(q: &FlowStatsRequest, style: Style<'_>, out: &mut String) {
    if let Some(id) = q.table_id {
        out.push_str(" table=");
        style.table(id, out);
    }
    if q.out_port != PortNo::ANY {
        out.push_str(" out_port=");
        style.port(q.out_port, out);
    }
    let start = out.len();
    out.push(' ');
    format_match(&q.matching, style.ports, out);
    if out.len() == start + 1 {
        out.pop();
    }
}
