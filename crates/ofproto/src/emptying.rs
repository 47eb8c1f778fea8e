//! Empties a bridge's tables when the source of its flows changes: on a worker thread if there are very many flows.

use crate::bridge::Ofproto;
use crate::flow_table::{Criteria, RemovedReason};
use crate::gate::SHORT_MAX;
use openflow::group::GROUP_ALL;
use openflow::meter::METER_ALL;
use openflow::{GroupCommand, GroupMod};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

impl Ofproto {
    /// Removes all flows, groups and meters except hidden flows. Only flow monitors are notified.
    pub fn flush_flows(&self) {
        base::coverage!(ofproto_flush);
        let groups = GroupMod::new(GroupCommand::Delete, GROUP_ALL);
        let meters = self.transaction(|t| {
            t.remove_all(&Criteria::any(), RemovedReason::Delete);
            t.group_mod(&groups)?;
            Ok(t.delete_meters(METER_ALL))
        });
        self.finish_meters(meters.map(|(gone, _)| gone).unwrap_or_default());
    }

    /// [Removes all flows](Self::flush_flows), then calls `then`. If there are very many flows, the result is a task that
    /// does so as a long change, once other changes are over. Until it ends, tasks of the control thread begin no change
    /// of the tables.
    ///
    /// Panics outside of a tokio runtime.
    pub fn empty_tables(self: &Arc<Self>, then: impl FnOnce(&Self) + Send + 'static) -> Option<JoinHandle<()>> {
        if self.n_flows() <= SHORT_MAX {
            self.flush_flows();
            then(self);
            return None;
        }
        let bridge = Arc::clone(self);
        Some(tokio::spawn(async move {
            let long = bridge.long_change().await;
            let work = tokio::task::spawn_blocking(move || {
                let _long = long;
                bridge.flush_flows();
                then(&bridge);
            });
            // Fails only if it panicked, which was reported where it did.
            let _ = work.await;
        }))
    }

    /// [Removes all flows](Self::flush_flows), then calls `then`, on a worker thread if there are very many flows. Returns
    /// false without doing so if another change is in progress.
    pub(crate) fn try_empty_tables(&self, then: impl FnOnce(&Self) + Send + 'static) -> bool {
        let Some(long) = self.try_long_change() else { return false };
        let work = |bridge: &Self| {
            bridge.flush_flows();
            then(bridge);
        };
        let bridge = self.switch().and_then(|switch| switch.bridge(self.id()));
        match (bridge, Handle::try_current()) {
            (Some(bridge), Ok(runtime)) if self.n_flows() > SHORT_MAX => drop(runtime.spawn_blocking(move || {
                let _long = long;
                work(&bridge);
            })),
            _ => work(self),
        }
        true
    }
}
