//! Prints flow monitors.

use super::Style;
use crate::action::format::format_actions;
use crate::flow_mod::GROUP_ANY;
use crate::monitor::{FlowEvent, FlowMonitorRequest, FlowUpdate, MonitorCommand, MonitoredFlow, flag};
use base::PortNo;
use flow::text::format_match;
use std::fmt::Write;

pub(super) fn requests(monitors: &[FlowMonitorRequest], style: Style<'_>, out: &mut String) {
    monitors.iter().for_each(|m| request(m, style, out));
}

fn request(m: &FlowMonitorRequest, style: Style<'_>, out: &mut String) {
    const FLAGS: [(u16, &str); 6] = [
        (flag::INITIAL, "initial"),
        (flag::ADD, "add"),
        (flag::DELETE, "delete"),
        (flag::MODIFY, "modify"),
        (flag::ACTIONS, "actions"),
        (flag::OWN, "own"),
    ];
    put!(out, "\n id={}", m.id);
    if m.command == MonitorCommand::Delete {
        out.push_str(" command=delete");
        return;
    }
    let names: Vec<&str> = FLAGS.iter().filter(|(bit, _)| m.flags & bit != 0).map(|(_, n)| *n).collect();
    put!(out, " flags={}", names.join(","));
    if m.out_port != PortNo::ANY {
        out.push_str(" out_port=");
        style.port(m.out_port, out);
    }
    if m.out_group != GROUP_ANY && m.out_group != 0 {
        // Reserved numbers are printed as negative ones.
        put!(out, " out_group={}", m.out_group.cast_signed());
    }
    if let Some(id) = m.table_id {
        out.push_str(" table=");
        style.table(id, out);
    }
    out.push(' ');
    format_match(&m.matching, style.ports, out);
    while out.ends_with(' ') {
        out.pop();
    }
}

pub(super) fn updates(all: &[FlowUpdate], style: Style<'_>, out: &mut String) {
    for update in all {
        out.push_str("\n event=");
        match update {
            FlowUpdate::Flow(flow) => monitored_flow(flow, style, out),
            FlowUpdate::Abbreviated(xid) => put!(out, "ABBREV xid=0x{xid:x}"),
            FlowUpdate::Paused => out.push_str("PAUSED"),
            FlowUpdate::Resumed => out.push_str("RESUMED"),
        }
    }
    // Before the next update, the blank after a cookie stays even if nothing follows it.
    out.truncate(out.trim_end_matches(' ').len());
}

fn monitored_flow(f: &MonitoredFlow, style: Style<'_>, out: &mut String) {
    const REASONS: [&str; 6] = ["idle", "hard", "delete", "group_delete", "meter_delete", "eviction"];
    match f.event {
        FlowEvent::Initial => out.push_str("INITIAL"),
        FlowEvent::Added => out.push_str("ADDED"),
        FlowEvent::Modified => out.push_str("MODIFIED"),
        FlowEvent::Deleted(reason) => {
            let name = REASONS.get(usize::from(reason)).map_or_else(|| reason.to_string(), |name| (*name).to_owned());
            put!(out, "DELETED reason={name}");
        }
    }
    out.push_str(" table=");
    style.table(f.table_id, out);
    for (name, n) in [("idle_timeout", f.idle_timeout), ("hard_timeout", f.hard_timeout)] {
        if n != 0 {
            put!(out, " {name}={n}");
        }
    }
    out.push_str(" cookie=");
    out.push_str(&if f.cookie == 0 { "0".to_owned() } else { format!("0x{:x}", f.cookie) });
    out.push(' ');
    format_match(&f.matching, style.ports, out);
    if !f.actions.is_empty() {
        out.push_str(if out.ends_with(' ') { "actions=" } else { " actions=" });
        format_actions(out, &f.actions, style.ports, style.version);
    }
}
