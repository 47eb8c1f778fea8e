//! How traces write matches, actions and subfields.

use flow::Match;
use flow::text::NoNames;
use openflow::{Action, Subfield};

pub(crate) fn flow_match(m: &Match) -> String {
    flow::text::match_to_string(m, &NoNames)
}

pub(crate) fn action(action: &Action) -> String {
    openflow::actions_to_string(std::slice::from_ref(action), &NoNames, openflow::Version::V15)
}

pub(crate) fn subfield(sf: Subfield) -> String {
    sf.to_string()
}
