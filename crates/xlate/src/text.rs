//! How traces write matches, actions and subfields.

use flow::Match;
use flow::text::NoNames;
use openflow::{Action, Subfield};

pub(crate) fn flow_match(m: &Match) -> String {
    flow::text::match_to_string(m, &NoNames)
}

pub(crate) fn action(action: &Action) -> String {
    format!("{action:?}")
}

pub(crate) fn subfield(sf: Subfield) -> String {
    format!("{sf:?}")
}
