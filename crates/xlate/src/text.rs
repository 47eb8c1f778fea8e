//! Formats matches, actions, subfields and values for traces.

use flow::text::NoNames;
use flow::{Field, Match};
use openflow::{Action, FlowMod, Subfield};
use std::fmt::Write;

pub(crate) fn flow_match(m: &Match) -> String {
    flow::text::match_to_string(m, &NoNames)
}

pub(crate) fn action(action: &Action) -> String {
    openflow::actions_to_string(std::slice::from_ref(action), &NoNames, openflow::Version::V15)
}

pub(crate) fn subfield(sf: Subfield) -> String {
    sf.to_string()
}

/// The value of a whole field.
pub(crate) fn value(field: Field, value: u128) -> String {
    let mut out = String::new();
    flow::text::format_value(field, value, field.info().full_mask(), &NoNames, &mut out);
    out
}

/// Formats a learned flow.
pub(crate) fn learned(flow: &FlowMod) -> String {
    let mut out = format!("table={} ", flow.table_id.unwrap_or_default());
    if flow.matching != Match::ANY {
        let _ = write!(out, "{} ", flow_match(&flow.matching));
    }
    let _ = write!(out, "priority={}", flow.priority);
    if flow.new_cookie != 0 {
        let _ = write!(out, " cookie={:#x}", flow.new_cookie);
    }
    for (name, number) in [("idle", flow.idle_timeout), ("hard", flow.hard_timeout)] {
        if number != 0 {
            let _ = write!(out, " {name}={number}");
        }
    }
    if flow.flags.send_flow_rem {
        out.push_str(" send_flow_rem");
    }
    let actions = openflow::actions_to_string(&flow.actions, &NoNames, openflow::Version::V15);
    out + " actions=" + &actions
}
