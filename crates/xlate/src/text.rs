//! Formats matches, actions, subfields and values for traces.

use crate::model::Bridge;
use base::PortNo;
use flow::text::{NoNames, PortNames};
use flow::{Field, Match};
use openflow::{Action, FlowMod, Subfield};
use std::fmt::Write;

/// The names of a bridge's ports, if the trace shows them.
#[derive(Clone, Copy)]
pub(crate) struct TraceNames<'a>(pub(crate) Option<&'a Bridge>);

impl PortNames for TraceNames<'_> {
    fn number(&self, _name: &str) -> Option<PortNo> {
        None
    }

    fn name(&self, no: PortNo) -> Option<String> {
        Some(self.0?.ports.get(&no)?.name.to_string())
    }
}

pub(crate) fn flow_match(m: &Match, names: &dyn PortNames) -> String {
    flow::text::match_to_string(m, names)
}

pub(crate) fn action(action: &Action, names: &dyn PortNames) -> String {
    openflow::actions_to_string(std::slice::from_ref(action), names, openflow::Version::V15)
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
        let _ = write!(out, "{} ", flow_match(&flow.matching, &NoNames));
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
