//! How traces write matches, actions and subfields.

use flow::Match;
use openflow::{Action, Subfield};

pub(crate) fn flow_match(m: &Match) -> String {
    format!("{m:?}")
}

pub(crate) fn action(action: &Action) -> String {
    format!("{action:?}")
}

pub(crate) fn subfield(sf: Subfield) -> String {
    format!("{sf:?}")
}
