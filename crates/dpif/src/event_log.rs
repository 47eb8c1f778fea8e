//! The debug log of a datapath. The datapath reports events while the modules `dpif` or `dpif_netdev` log at the level
//! `DBG`, and the daemon writes them, as it knows the names of datapaths and the UUIDs of flows.

use crate::{DpActions, DpFlowEntry, DpFlowStats, FlowId, Upcall};
use base::DpPort;
use packet::Packet;
use std::fmt::Debug;

/// Writes events of a datapath to the log. Packet threads call it, too: an implementation limits its rate.
pub trait EventLog: Send + Sync + Debug {
    /// A packet matched no flow.
    fn missed(&self, upcall: &Upcall<'_>);

    /// The flow of a miss was installed.
    fn flow_added(&self, flow: &DpFlowEntry);

    /// A flow was installed, or replaced `old`, by [`crate::Dpif::flow_put`].
    fn flow_put(&self, flow: &DpFlowEntry, old: Option<&DpFlowEntry>);

    /// A flow was removed by [`crate::Dpif::flow_del`].
    fn flow_deleted(&self, id: FlowId, stats: &DpFlowStats);

    /// A packet is about to be executed by [`crate::Dpif::execute_all`].
    fn executing(&self, packet: &Packet, actions: &DpActions);

    /// A port was added.
    fn port_added(&self, name: &str, port: DpPort);

    /// A port was removed.
    fn port_deleted(&self, port: DpPort);
}
