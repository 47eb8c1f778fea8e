//! Repeats the translation of one flow.

use super::normalise::have_same_effect;
use super::translation::{Effects, SharedTranslation, Uses};
use super::ukeys::{Fresh, Ukey};
use crate::export::netflow::Counted;
use crate::switch::Switch;
use classifier::LATEST;
use dpif::{DpActions, DpFlowEntry, Dpif, FlowId};
use flow::{FlowKey, FlowMask, Sparse, Steps};
use std::sync::Arc;
use xlate::{Effect, Learned, Network};

/// A flow from the table of megaflows.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: FlowId,
    pub(crate) key: FlowKey,
    /// The key in the form in which the table stores it.
    sparse: Sparse,
    pub(crate) translation: Arc<SharedTranslation>,
    pub(crate) effects: Effects,
    pub(crate) uses: Uses,
    pub(crate) actions: DpActions,
    /// Packets since the previous pass.
    pub(crate) recent: u64,
}

/// The result of revalidating a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The flow is unchanged in the datapath.
    Kept,
    /// Its match became wider.
    Widened,
    /// Its actions changed.
    Changed,
    /// It was removed.
    Removed,
    /// It was removed because a look-up now finds another one of several overlapping rules of one priority.
    OtherOfEqual,
    /// The datapath does not have it yet.
    Late,
}

impl Job {
    pub(crate) fn of(id: FlowId, known: &Ukey) -> Self {
        Self {
            id,
            key: known.key.expand(),
            sparse: known.key.clone(),
            translation: Arc::clone(&known.translation),
            effects: Arc::clone(&known.effects),
            uses: Arc::clone(&known.uses),
            actions: Arc::clone(&known.actions),
            recent: known.recent,
        }
    }
}

impl Switch {
    /// Translates the flow again. Also returns true if all addresses that it teaches are in the MAC table.
    fn translate_afresh(&self, key: &FlowKey) -> (Fresh, bool) {
        let fresh = self.translate_now(key).finish();
        let learned = is_learned(&self.network(), &fresh.uses);
        (fresh, learned)
    }

    /// Repeats the translation of a flow that a change can affect, and updates the table of megaflows and the datapath to the
    /// result.
    pub(crate) fn retranslate(&self, dpif: &Arc<dyn Dpif>, job: &Job) -> Outcome {
        let (fresh, learned) = self.translate_afresh(&job.key);
        if !self.is_there(dpif, job.id) {
            return Outcome::Late;
        }
        if !learned || may_learn_more(&self.network(), &fresh.effects) {
            // Its next packet will teach the addresses, or the flow.
            return if self.remove_flow(dpif, job.id) { Outcome::Removed } else { Outcome::Late };
        }
        // The bits that the translation read, of which the flow may match more.
        let mask = Steps::mask_of(&fresh.basis.reads);
        let same = fresh.actions == job.actions[..];
        if same && mask == job.translation.reads.mask().expand() {
            if fresh.uses != job.uses || fresh.effects != job.effects[..] {
                // From now on its packets count for other rules.
                let entry = dpif.flow_get(job.id);
                entry.iter().for_each(|entry| self.push_stats(entry));
            }
            self.revalidation.ukeys.lock(job.id).update(job.id, fresh);
            return Outcome::Kept;
        }
        let Some(entry) = dpif.flow_get(job.id) else {
            self.mark_late(job.id);
            return Outcome::Late;
        };
        if !covers(&entry.mask, &mask) {
            // Its packets differ in their treatment now.
            return if self.remove_flow(dpif, job.id) { Outcome::Removed } else { Outcome::Late };
        }
        self.push_stats(&entry);
        if self.replace(dpif, job, fresh) {
            if same { Outcome::Widened } else { Outcome::Changed }
        } else {
            Outcome::Removed
        }
    }

    /// Repeats the translation of a flow that no change can have affected since change `seq`. Returns the correction that was
    /// necessary.
    pub(crate) fn verify(&self, dpif: &Arc<dyn Dpif>, job: &Job, seq: u64) -> Option<Outcome> {
        let (fresh, learned) = self.translate_afresh(&job.key);
        let mask = Steps::mask_of(&fresh.basis.reads);
        if self.revalidation.seq() != seq || fresh.generation != self.generation() {
            // A difference may be due to a change in progress: the next pass handles it.
            return None;
        }
        let installed = job.translation.reads.mask().expand();
        let as_known = (fresh.actions == job.actions[..]
            || have_same_effect((&job.actions, &installed), (&fresh.actions, &mask), &job.key))
            && job.translation.rests_on_same(&fresh.basis)
            && fresh.uses == job.uses
            && fresh.effects == job.effects[..];
        if learned && as_known {
            if mask == installed || !covers(&installed, &mask) {
                // The new translation may read more, of rules that none of the flow's packets can match.
                return None;
            }
            self.push_stats(&dpif.flow_get(job.id)?);
            return self.replace(dpif, job, fresh).then_some(Outcome::Widened);
        }
        // Only a flow in the datapath can be wrong, and one that differs from the table's was replaced meanwhile.
        let entry = dpif.flow_get(job.id)?;
        if !self.is_unchanged(job) {
            return None;
        }
        if finds_other_of_equal(&job.effects, &fresh.effects) {
            return self.remove_flow(dpif, job.id).then_some(Outcome::OtherOfEqual);
        }
        self.report_fixed_up(job, &fresh, &entry, learned);
        self.remove_flow(dpif, job.id).then_some(Outcome::Removed)
    }

    /// Returns true if the table's flow is unchanged.
    fn is_unchanged(&self, job: &Job) -> bool {
        let shard = self.revalidation.ukeys.lock(job.id);
        shard
            .get(job.id)
            .is_some_and(|k| Arc::ptr_eq(&k.translation, &job.translation) && Arc::ptr_eq(&k.actions, &job.actions))
    }

    /// Returns true if the datapath has a flow that was late.
    fn is_there(&self, dpif: &Arc<dyn Dpif>, id: FlowId) -> bool {
        if !self.revalidation.ukeys.lock(id).late.contains(&id) {
            return true;
        }
        let there = dpif.flow_get(id).is_some();
        if there {
            self.revalidation.ukeys.lock(id).late.remove(&id);
        }
        there
    }

    /// Pushes the statistics of a flow so far to the rules that it was made from.
    fn push_stats(&self, entry: &DpFlowEntry) {
        let mut shard = self.revalidation.ukeys.lock(entry.id);
        let Some(known) = shard.get_mut(entry.id) else { return };
        let (packets, bytes) = known.take(entry.stats);
        known.recent += packets;
        let (effects, uses, installed) = (Arc::clone(&known.effects), Arc::clone(&known.uses), known.installed);
        drop(shard);
        let used = crate::upcall::used_or(&entry.stats, installed);
        self.push(&effects, &uses, Counted { packets, bytes, tcp_flags: entry.stats.tcp_flags, used });
    }

    /// Replaces the flow with this id. Returns false if it was removed meanwhile.
    fn replace(&self, dpif: &Arc<dyn Dpif>, job: &Job, fresh: Fresh) -> bool {
        let (state, id, generation) = (&self.revalidation, job.id, fresh.generation);
        let updated = state.ukeys.lock(id).update(id, fresh);
        let Some(entered) = updated else { return false };
        let flow = self.dp_flow(job.sparse.clone(), entered, generation);
        let put = dpif.flow_put(id, flow);
        if put.is_ok() && state.ukeys.lock(id).get(id).is_some() {
            return true;
        }
        // The flow was removed in between, with its last statistics: the new one has none yet.
        self.remove_flow(dpif, id);
        false
    }
}

/// Returns true if `outer` contains all bits of `inner`.
fn covers(outer: &FlowMask, inner: &FlowMask) -> bool {
    outer.0.iter().zip(&inner.0).all(|(o, i)| i & !o == 0)
}

/// Returns true if the first difference of two translations is that a look-up finds different rules of one priority, both of
/// which are in the table. OpenFlow 1.3 (section 5.3) leaves it undefined which of them applies: here the order of the table's
/// masks decides, which rules that the packet does not match can change.
pub(super) fn finds_other_of_equal(known: &[Effect], fresh: &[Effect]) -> bool {
    let Some((known, fresh)) = known.iter().zip(fresh).find(|(known, fresh)| known != fresh) else { return false };
    matches!((known, fresh), (
        Effect::Lookup { bridge, table, rule: Some(rule) },
        Effect::Lookup { bridge: fresh_bridge, table: fresh_table, rule: Some(fresh_rule) },
    ) if (bridge, table, rule.priority) == (fresh_bridge, fresh_table, fresh_rule.priority)
        && rule.versions.visible_in(LATEST))
}

/// Returns true if packets would teach a flow that is not in its table, which has a limit and room below it.
fn may_learn_more(net: &Network, effects: &[Effect]) -> bool {
    effects.iter().any(|effect| {
        let Effect::Learn(learned) = effect else { return false };
        let Learned { bridge, flow, limit } = &**learned;
        let tables = net.bridges.get(bridge).filter(|_| *limit != 0).map(|bridge| &bridge.tables);
        let Some(tables) = tables else { return false };
        let table = flow.table_id.and_then(|table| tables.get(usize::from(table)));
        table.is_some_and(|table| {
            table.n_with_cookie(flow.new_cookie) < u64::from(*limit)
                && table.rules.find(&flow.matching, flow.priority.into(), tables.view().version).is_none()
        })
    })
}

/// Returns true if a flow's packets teach the MAC table no other addresses than it has.
fn is_learned(net: &Network, uses: &Uses) -> bool {
    uses.iter().all(|u| {
        let (bridge, vlan, mac) = u.mac;
        let Some(port) = u.learned else { return true };
        let bridge = net.bridges.get(&bridge).filter(|b| b.ports.contains_key(&port));
        bridge.is_none_or(|b| !b.macs.read().would_learn(vlan, mac, port))
    })
}
