//! OpenFlow switches: tables, connections, upcalls, statistics and effects.
//!
//! - [`switch`]: [`Switch`], all bridges over one datapath, and their snapshot for translations;
//! - [`bridge`]: [`Ofproto`], one bridge: ports, bundles, identity;
//! - [`transaction`]: atomic changes of tables and groups; [`flow_table`]: flow mods; [`groups`]: the
//!   group table; [`meters`]: the meter table; [`table_config`]: the configuration of tables; [`evict`]: eviction of
//!   flows; [`hidden`]: flows of the switch's own; [`learn`]: flows that packets teach; [`expire`]: timeouts;
//!   `rule_index`: rules by cookie and reference; `tlv`: the table of tunnel options; `gate`: long changes of tables beside
//!   the control thread;
//! - `multicast`: multicast snooping;
//! - [`trace`] and [`trace_ct`]: traces; [`features`]: the datapath's features;
//! - [`conn`]: OpenFlow connections;
//! - [`upcall`]: packets without a datapath flow; `held`: those that wait for a neighbour; [`effects`]: the effects of packets
//!   beside forwarding; [`revalidate`]: statistics, and flows that are out of date.
//!
//! Invariants:
//! - tables, ports and MAC entries change first, then [`Switch::changed`] reports the change, and a megaflow
//!   is stored with the number that the last change had *before* its translation: a flow computed from
//!   a state older than a change does not outlive the next pass of [`revalidate`];
//! - flow tables and groups change in a [`Transaction`], which translations see as a whole or not at all.

pub mod bridge;
pub mod conn;
pub mod ct_flush;
mod dump_order;
pub mod effects;
mod emptying;
mod evict;
pub mod expire;
mod export;
pub mod features;
mod flow_change;
pub mod flow_table;
mod gate;
mod group_log;
pub mod groups;
mod held;
pub mod hidden;
pub mod ipfix;
pub mod learn;
mod local_samples;
pub mod meters;
mod multicast;
mod protocols;
pub mod revalidate;
mod rule_index;
pub mod show;
pub mod switch;
pub mod table_config;
mod tlv;
pub mod trace;
pub mod trace_ct;
pub mod transaction;
pub mod upcall;

pub use bridge::{BundleSpec, Identity, OfPort, Ofproto, PortEdits, PortSpec};
pub use conn::pinsched::{PacketInStats, RateLimit};
pub use conn::remote::{PeerKind, Settings};
pub use conn::service::{Service, ServiceConfig, ServiceStatus};
pub use export::{ExportCounters, NetflowSettings, SflowSettings};
pub use flow_table::{Removed, RemovedReason};
pub use gate::ShortChange;
pub use hidden::HiddenFlow;
pub use ipfix::{BridgeSampling, ExporterSettings, IpfixSettings};
pub use local_samples::{LocalCollectors, QueuedSample};
pub use multicast::SnoopingSettings;
pub use protocols::OnStatusChange;
pub use revalidate::{Change, Extent, Limits, PassReport, RevalidatorStatus, RuleChange};
pub use switch::{BUNDLE_IDLE_MS, Switch, TimeoutPolicies};
pub use table_config::TableSettings;
pub use transaction::Transaction;
pub use xlate::LocalSets;

#[cfg(test)]
mod tests;
