//! `translate`: one pure function from tables and a flow key to actions, reads and effects.
//!
//! - [`model`]: the input of a translation: bridges, ports, bundles, tables, rules ([`Network`]).
//! - [`chunked`]: the ordered maps of a snapshot, whose clones share unchanged parts.
//! - [`tables`]: flow tables and groups in versions; [`groups`]: groups.
//! - [`freeze`]: frozen translations, which resume when the packet is recirculated.
//! - `state`: the state of a translation; `scope`: saving and restoring it.
//! - [`mac`]: the MAC learning table.
//! - [`verdict`]: the output: datapath actions, reads in order, effects, and a trace on request.
//! - [`translate`](mod@translate): one translation; `pipeline`: look-ups and lists of actions; `action` and the files
//!   named after actions: their execution; `bits`: bits of fields and tunnel options; `fragments`: fragments in look-ups;
//!   `bond`: members of bonds; [`mirror`]: mirrors; `punt`: protocols of the switch;
//!   `tunnel`: tunnels, whose ports and routes are in [`underlay`].
//!
//! A translation changes nothing. It returns side effects as [`Effect`]s, which the caller
//! applies (live traffic), applies for statistics only (revalidation), or ignores (a trace).

mod action;
mod bits;
mod bond;
pub mod chunked;
mod commit;
mod ct;
mod encap;
mod fork;
mod fragments;
pub mod freeze;
mod group;
pub mod groups;
mod learn;
pub mod mac;
mod meters;
pub mod mirror;
pub mod model;
mod monitor;
mod multicast;
mod normal;
mod numbered;
mod output;
mod pipeline;
mod punt;
mod restored;
mod sample;
mod scope;
mod select;
mod snoop;
mod state;
pub mod tables;
mod text;
pub mod trace;
pub mod translate;
mod tunnel;
pub mod underlay;
pub mod verdict;

#[cfg(test)]
mod tests;

pub use chunked::ChunkedMap;
pub use freeze::{FrozenTable, resume_paused};
pub use groups::{Counters, Group, GroupBucket, Groups};
pub use mac::MacTable;
pub use meters::{Meter, Meters};
pub use mirror::{Mirror, MirrorOut, Mirrors};
pub use model::{
    Bridge, BridgeId, Bundle, Count, Ipfix, LocalSets, Network, Port, PortConfig, PortOut, Rule, RuleStats, Sflow,
    TableMiss, VlanMode,
};
pub use multicast::Snooping;
pub use numbered::Numbered;
pub use tables::{Table, Tables, View};
pub use translate::{Start, translate, translate_from};
pub use underlay::{Endpoint, Route, Tunnels, Underlay};
pub use verdict::{
    CountedFlow, Dependency, Effect, Fork, Learned, Lookup, Resolve, Trace, TranslationError, Verdict, Written,
    WrittenWord,
};
