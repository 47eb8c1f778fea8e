//! Prints groups: group mods, descriptions, counters, features.

use super::{Style, duration};
use crate::Version::{self, V10, V15};
use crate::action::format::format_actions;
use crate::group::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, Bucket, GROUP_ALL, GROUP_ANY, GroupCommand, GroupDesc, GroupFeatures,
    GroupKind, GroupMod, GroupProperties, GroupStats, Selected,
};
use base::PortNo;
use flow::options::OPTION_LEN_MAX;
use flow::text::{PortNames, format_value};
use std::fmt::Write;

/// Appends a group's number in a request.
pub(super) fn group_id(id: u32, out: &mut String) {
    match id {
        GROUP_ALL => out.push_str("ALL"),
        GROUP_ANY => out.push_str("ANY"),
        id => put!(out, "{id}"),
    }
}

pub(super) fn group_mod(m: &GroupMod, style: Style<'_>, out: &mut String) {
    let command = match m.command {
        GroupCommand::Add => "ADD",
        GroupCommand::Modify => "MOD",
        GroupCommand::Delete => "DEL",
        GroupCommand::InsertBucket => "INSERT_BUCKET",
        GroupCommand::RemoveBucket => "REMOVE_BUCKET",
        GroupCommand::AddOrModify => "ADD_OR_MOD",
    };
    put!(out, "\n {command} ");
    let extended = style.version == V10 || style.version >= V15;
    if m.command.is_of_buckets() && extended {
        out.push_str("command_bucket_id:");
        match m.command_bucket_id {
            BUCKET_FIRST => out.push_str("first"),
            BUCKET_LAST => out.push_str("last"),
            BUCKET_ALL => out.push_str("all"),
            id => put!(out, "{id}"),
        }
        out.push(',');
    }
    put!(out, "group_id={}", m.group_id);
    if !m.command.is_of_buckets() {
        put!(out, ",type={}", m.kind.name());
    }
    properties(&m.properties, style, out);
    m.buckets.iter().for_each(|b| bucket(b, m.kind, style, out));
}

fn properties(p: &GroupProperties, style: Style<'_>, out: &mut String) {
    if p.selection_method.is_empty() {
        return;
    }
    put!(out, ",selection_method={}", p.selection_method);
    if p.selection_method_param != 0 {
        put!(out, ",selection_method_param={}", p.selection_method_param);
    }
    match p.fields.len() + p.options.len() {
        0 => {}
        1 => put!(out, ",fields={}", p.fields_to_string(style.ports)),
        _ => put!(out, ",fields({})", p.fields_to_string(style.ports)),
    }
}

impl GroupProperties {
    /// The fields that the method covers, separated by commas, each with its mask as a value unless that is all of the field.
    pub fn fields_to_string(&self, ports: &dyn PortNames) -> String {
        let mut out = String::new();
        for selected in self.selected() {
            if !out.is_empty() {
                out.push(',');
            }
            match selected {
                Selected::Field(field, mask) => {
                    out.push_str(field.name());
                    let full = field.info().full_mask();
                    if mask != full {
                        out.push('=');
                        format_value(field, mask, full, ports, &mut out);
                    }
                }
                Selected::Option(mask) if *mask.value() == [0xff; OPTION_LEN_MAX] => out.push_str(mask.field().name()),
                Selected::Option(mask) => mask.format_match(&mut out),
            }
        }
        out
    }
}

fn bucket(b: &Bucket, kind: GroupKind, style: Style<'_>, out: &mut String) {
    out.push_str(",bucket=");
    if b.bucket_id != BUCKET_ALL && (style.version == V10 || style.version >= V15) {
        put!(out, "bucket_id:{},", b.bucket_id);
    }
    if b.weight != kind.default_weight() {
        put!(out, "weight:{},", b.weight);
    }
    if b.watch_port != PortNo::ANY {
        out.push_str("watch_port:");
        style.port(b.watch_port, out);
        out.push(',');
    }
    if b.watch_group != GROUP_ANY {
        put!(out, "watch_group:{},", b.watch_group);
    }
    out.push_str("actions=");
    format_actions(out, &b.actions, style.ports, style.version);
}

pub(super) fn group_descs(all: &[GroupDesc], style: Style<'_>, out: &mut String) {
    for g in all {
        put!(out, "\n group_id={},type={}", g.group_id, g.kind.name());
        properties(&g.properties, style, out);
        g.buckets.iter().for_each(|b| bucket(b, g.kind, style, out));
    }
    out.push('\n');
}

pub(super) fn group_stats(all: &[GroupStats], out: &mut String) {
    for g in all {
        put!(out, "\n group_id={},", g.group_id);
        if g.duration_sec != u32::MAX {
            out.push_str("duration=");
            duration(g.duration_sec, g.duration_nsec, out);
            out.push_str("s,");
        }
        let (packets, bytes) = (g.packet_count, g.byte_count);
        put!(out, "ref_count={},packet_count={packets},byte_count={bytes}", g.ref_count);
        for (i, b) in g.buckets.iter().enumerate().filter(|(_, b)| b.packet_count != u64::MAX) {
            put!(out, ",bucket{i}:packet_count={},byte_count={}", b.packet_count, b.byte_count);
        }
    }
    out.push('\n');
}

pub(super) fn group_features(version: Version, f: &GroupFeatures, out: &mut String) {
    put!(out, "\n Group table:\n    Types:  0x{:x}\n    Capabilities:  0x{:x}\n", f.types, f.capabilities);
    for (i, name) in ["all", "select", "indirect", "fast failover"].into_iter().enumerate() {
        if f.types & 1 << i != 0 {
            put!(out, "    {name} group:\n       max_groups={}\n       actions: ", hex_or_zero(f.max_groups[i]));
            super::config::actions(version, f.actions[i], out);
            out.push('\n');
        }
    }
}

/// Formats as `0x10`, `0`.
fn hex_or_zero(n: u32) -> String {
    if n == 0 { "0".to_owned() } else { format!("0x{n:x}") }
}
