//! Control of a datapath's connection tracker: connections, limits of zones, timeout policies, and reassembly of fragments.

mod filter;

pub use conntrack::Key;
pub use conntrack::fragments::{
    Counters as FragmentCounters, Family, FamilyStatus, ListState as FragmentListState, ListStatus as FragmentList,
    Status as FragmentStatus,
};
pub use conntrack::limits::ZoneLimit;
pub use conntrack::view::{ExpectationView, View};
pub use filter::{ConnectionFilter, TupleFilter};

use crate::DpifError;
use std::collections::BTreeMap;

/// The connection tracker of a datapath. All methods may be called from any thread.
pub trait Connections {
    /// Passes the connections of a zone, or of all zones, to `each`, in no particular order. The tracker copies them in
    /// bounded steps, and holds no lock while `each` runs; connections that begin or end meanwhile may be missing.
    fn connections(&self, zone: Option<u16>, each: &mut dyn FnMut(&View));

    /// Passes the connections that helpers expect, likewise.
    fn expectations(&self, zone: Option<u16>, each: &mut dyn FnMut(&ExpectationView));

    /// Removes the connections that the filter matches, and returns their number. Without any condition but the zone,
    /// their expectations are removed too.
    fn flush_connections(&self, filter: &ConnectionFilter) -> u64;

    /// Removes expired connections in a part of the table. To be called periodically: calls at any rate visit the whole
    /// table once in the sweep interval.
    fn sweep_connections(&self);

    /// The number of connections in all zones.
    fn n_connections(&self) -> u64;

    /// The maximum number of connections in all zones.
    fn connections_max(&self) -> u32;

    /// Sets this maximum. Existing connections stay.
    fn set_connections_max(&self, max: u32);

    /// Whether TCP segments with sequence numbers outside of the window are invalid.
    fn checks_tcp_sequence(&self) -> bool;

    /// Enables or disables this check.
    fn set_checks_tcp_sequence(&self, on: bool);

    /// Milliseconds between two searches for expired connections.
    fn sweep_interval_ms(&self) -> u32;

    /// Sets this interval, which is not 0.
    fn set_sweep_interval_ms(&self, ms: u32);

    /// The limit of zones without one of their own; 0 for none.
    fn default_zone_limit(&self) -> u32;

    /// Sets this limit; 0 removes it.
    fn set_default_zone_limit(&self, limit: u32);

    /// The limit that applies to a zone, and its number of connections.
    fn zone_limit(&self, zone: u16) -> ZoneLimit;

    /// All zones with a limit of their own, by number.
    fn zone_limits(&self) -> Vec<ZoneLimit>;

    /// Limits the number of connections of a zone; 0 exempts it from the default limit. Existing connections stay.
    /// Returns true if the zone had no limit of its own.
    fn set_zone_limit(&self, zone: u16, limit: u32) -> bool;

    /// Removes the limit of a zone. Returns true if it had one.
    fn delete_zone_limit(&self, zone: u16) -> bool;

    /// Whether the configuration has limits, so that commands must not change any.
    fn has_protected_zone_limits(&self) -> bool;

    /// Sets whether it does.
    fn protect_zone_limits(&self, on: bool);

    /// Sets the timeout policy that `ct` actions name so: seconds by keys of CT_Timeout_Policy (ovs-vswitchd.conf.db(5)).
    /// Keys that the tracker does not know are ignored, and missing ones keep their default.
    ///
    /// Errors: there are too many policies.
    fn set_timeout_policy(&self, name: &str, timeouts: &BTreeMap<String, u32>) -> Result<(), DpifError>;

    /// Removes a timeout policy. Its connections continue with the default timeouts.
    fn delete_timeout_policy(&self, name: &str);

    /// Settings and counters of reassembly.
    fn fragment_status(&self) -> FragmentStatus;

    /// Passes the incomplete datagrams to `each`.
    fn fragment_lists(&self, each: &mut dyn FnMut(&FragmentList));

    /// Enables or disables reassembly for a family. While it is disabled, fragments are invalid.
    fn set_reassembly(&self, family: Family, on: bool);

    /// Sets the minimum size of fragments but the last, in bytes. Returns false, without effect, if it is too small.
    fn set_fragment_size_min(&self, family: Family, bytes: u32) -> bool;

    /// Sets the maximum number of held fragments. Returns false, without effect, if it is too large.
    fn set_fragments_max(&self, max: u32) -> bool;
}
