//! Flows that packets teach (the `learn` and `fin_timeout` actions of ovs-actions(7)). Runs on the thread that has the
//! packet.

use crate::bridge::Ofproto;
use crate::effects::Seen;
use base::Millis;
use classifier::LATEST;
use std::sync::Arc;
use xlate::{Learned, Rule};

impl Ofproto {
    /// Learns a flow from packets, the last of which arrived at `used`. If an equal flow exists already, only its
    /// hard timeout begins anew. A flow from earlier packets is learned again only if
    /// nothing has been removed from the table since, and replaces no flow that later packets have taught: of two cached flows
    /// that learn different flows of the same match, the one with the last packet wins, in whatever order they are counted.
    pub(crate) fn learn(&self, learned: &Learned, used: Millis, seen: Seen) {
        let Learned { flow, limit, .. } = learned;
        let Some(table) = flow.table_id.and_then(|t| self.tables().get(usize::from(t))) else { return };
        if let Some(rule) = table.rules.find(&flow.matching, flow.priority.into(), self.tables().view().version)
            && *rule.actions == *flow.actions
            && rule.cookie == flow.new_cookie
        {
            return rule.refresh(used);
        }
        let result = self.transaction(|t| {
            let table_id = flow.table_id.unwrap_or_default();
            let late = seen == Seen::Earlier && t.writer.removals.get(&table_id).is_some_and(|at| *at >= used);
            let there = table.rules.find(&flow.matching, flow.priority.into(), LATEST);
            let full = *limit != 0 && table.n_with_cookie(flow.new_cookie) >= u64::from(*limit);
            let older = seen == Seen::Earlier && there.as_ref().is_some_and(|rule| rule.modified() > used);
            if late || older || full && there.is_none() {
                return Ok(());
            }
            t.flow_mod(flow)?;
            t.date_last(used);
            Ok(())
        });
        match result {
            // Flows evicted for it, and the learned flows of one that it replaced. (The report may miss their last packets:
            // requesting statistics here could deadlock, as they may be the source of this flow.)
            Ok(((), removed)) => self.send_flows_removed(&removed),
            Err(error) => tracing::debug!(target: "ofproto", "{}: a flow cannot be learned: {error}", self.name()),
        }
    }

    /// Lowers the timeouts of a rule, as its connection has ended.
    pub(crate) fn fin_timeout(&self, rule: &Arc<Rule>, idle_timeout: u16, hard_timeout: u16) {
        let lower = |old: u16, new: u16| new != 0 && (old == 0 || new < old);
        if lower(rule.idle_timeout, idle_timeout) || lower(rule.hard_timeout, hard_timeout) {
            let _ = self.transaction(|t| t.lower_timeouts(rule, idle_timeout, hard_timeout));
        }
    }
}
