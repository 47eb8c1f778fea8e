//! OpenFlow switches: tables, connections, upcalls, statistics and effects.
//!
//! - [`switch`]: [`Switch`], all bridges over one datapath, and the snapshot that translations look at;
//! - [`bridge`]: [`Ofproto`], one bridge: ports, bundles, identity;
//! - [`flow_table`]: flow modifications; [`expire`]: timeouts;
//! - [`conn`]: OpenFlow connections;
//! - [`upcall`]: packets that the datapath has no flow for; [`effects`]: what a packet causes beside forwarding;
//!   [`revalidate`]: statistics, and flows that are out of date.
//!
//! Invariants:
//! - tables, ports and MAC entries change first, the switch's generation moves after it ([`Switch::changed`]), and a
//!   datapath flow carries the generation that was read *before* its translation: so a flow computed from anything
//!   older than the last change is never used;
//! - flow tables are changed by the control thread only, so that a look at several rules there is consistent.

pub mod bridge;
pub mod conn;
pub mod effects;
pub mod expire;
pub mod flow_table;
pub mod revalidate;
pub mod show;
pub mod switch;
pub mod trace;
pub mod upcall;

pub use bridge::{BundleSpec, Identity, OfPort, Ofproto, PortSpec};
pub use conn::service::{Service, ServiceConfig, ServiceStatus};
pub use flow_table::{Removed, RemovedReason};
pub use revalidate::{Change, RuleChange};
pub use switch::Switch;

#[cfg(test)]
mod tests;
