//! `translate`: one pure function from tables and a flow key to actions, reads and effects.
//!
//! - [`model`]: what a translation looks at: bridges, ports, bundles, tables, rules ([`Network`]).
//! - [`mac`]: the MAC learning table.
//! - [`verdict`]: what comes out: datapath actions, reads in order, effects, and a trace if one was asked for.
//! - [`translate`](mod@translate): the pipeline; one file a kind of action under `action/`.
//!
//! A translation changes nothing: what should happen beside forwarding is returned as [`Effect`]s, which the caller
//! applies (live traffic), applies for statistics only (revalidation), or ignores (a trace).

mod action;
mod commit;
pub mod mac;
pub mod model;
mod normal;
mod output;
mod text;
pub mod trace;
pub mod translate;
pub mod verdict;

#[cfg(test)]
mod tests;

pub use mac::MacTable;
pub use model::{Bridge, BridgeId, Bundle, Network, Port, PortConfig, PortOut, Rule, RuleStats, Table, VlanMode};
pub use translate::{Start, translate, translate_from};
pub use verdict::{Dependency, Effect, Lookup, TranslationError, Verdict};
