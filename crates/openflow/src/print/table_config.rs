//! Prints table configurations.

use super::Style;
use crate::Version::{self, V11, V12, V14};
use crate::table::{TableDesc, TableMod, TableReason, TableStatus, table_config as tc};
use std::fmt::Write;

/// The name of the action on a table miss in OpenFlow 1.1 and 1.2.
pub(super) fn miss(config: u32) -> &'static str {
    match config & 3 {
        1 => "continue",
        2 => "drop",
        _ => "controller",
    }
}

pub(super) fn table_mod(version: Version, m: &TableMod, style: Style<'_>, out: &mut String) {
    if m.table_id == 0xff {
        out.push_str(" table_id: ALL_TABLES");
    } else {
        out.push_str(" table_id=");
        style.table(m.table_id, out);
    }
    if version == V11 || version == V12 {
        put!(out, ", flow_miss_config={}", miss(m.config));
    }
    if version >= V14 {
        mod_properties(m, out);
    }
}

fn mod_properties(m: &TableMod, out: &mut String) {
    // If the message has flags, Open vSwitch prints their number as the setting.
    let eviction = match m.properties.eviction_flags {
        None if m.config & tc::EVICTION != 0 => Some("on"),
        None => Some("off"),
        Some(0) => None,
        Some(1) => Some("on"),
        Some(2) => Some("off"),
        Some(_) => Some("***error***"),
    };
    if let Some(eviction) = eviction {
        put!(out, ", eviction={eviction}");
    }
    if m.config & tc::VACANCY_EVENTS != 0 {
        let v = m.properties.vacancy.unwrap_or_default();
        put!(out, ", vacancy=on vacancy:{},{}", v.down, v.up);
    } else {
        out.push_str(", vacancy=off");
    }
}

pub(super) fn table_descs(all: &[TableDesc], style: Style<'_>, out: &mut String) {
    all.iter().for_each(|t| table_desc(t, style, out));
}

fn table_desc(t: &TableDesc, style: Style<'_>, out: &mut String) {
    const FLAGS: [(u32, &str); 3] = [(1, "OTHER"), (2, "IMPORTANCE"), (4, "LIFETIME")];
    out.push_str("\n  table ");
    style.table(t.table_id, out);
    put!(out, ":\n   eviction={} eviction_flags=", if t.config & tc::EVICTION != 0 { "on" } else { "off" });
    match t.properties.eviction_flags {
        None => out.push_str("(default)"),
        Some(flags) => {
            let mut names = String::new();
            super::bit_names(flags, &FLAGS, &mut names);
            out.push_str(&names.replace(' ', "|"));
        }
    }
    out.push_str("\n   vacancy=");
    if t.config & tc::VACANCY_EVENTS != 0 {
        let v = t.properties.vacancy.unwrap_or_default();
        put!(out, "on vacancy_down={}% vacancy_up={}% vacancy={}%\n", v.down, v.up, v.current);
    } else {
        out.push_str("off\n");
    }
}

pub(super) fn table_status(s: &TableStatus, style: Style<'_>, out: &mut String) {
    let reason = match s.reason {
        TableReason::VacancyDown => "VACANCY_DOWN",
        TableReason::VacancyUp => "VACANCY_UP",
    };
    put!(out, " reason={reason}\ntable_desc:-");
    table_desc(&s.desc, style, out);
}
