//! One flow, translated again.

use super::essence::same_essence;
use super::translation::{Effects, SharedTranslation, Uses};
use super::ukeys::{Fresh, Ukey};
use crate::switch::Switch;
use dpif::{DpActions, DpFlowEntry, Dpif, FlowId};
use flow::{FlowKey, FlowMask, Sparse, Steps};
use std::sync::Arc;
use xlate::Network;

/// A flow as the table of megaflows has it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: FlowId,
    pub(crate) key: FlowKey,
    /// The same, as the table keeps it.
    sparse: Sparse,
    pub(crate) translation: Arc<SharedTranslation>,
    pub(crate) effects: Effects,
    pub(crate) uses: Uses,
    pub(crate) actions: DpActions,
    /// Packets since the pass before.
    pub(crate) recent: u64,
}

/// What became of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It stays as it is in the datapath.
    Kept,
    /// It came to match less closely.
    Widened,
    /// Its actions are others.
    Changed,
    /// It is removed.
    Removed,
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
    /// Whatever is known of a flow, computed anew; and whether all that it is to teach is known.
    fn translate_again(&self, key: &FlowKey) -> (Fresh, bool) {
        let fresh = self.translate_now(key).finish();
        let learned = is_learned(&self.network(), &fresh.uses);
        (fresh, learned)
    }

    /// Translates a flow again that a change can affect, and makes the table of megaflows and the datapath agree with what comes out.
    pub(crate) fn again(&self, dpif: &Arc<dyn Dpif>, job: &Job) -> Outcome {
        let (fresh, learned) = self.translate_again(&job.key);
        if !self.is_there(dpif, job.id) {
            return Outcome::Late;
        }
        if !learned {
            // Its next packet teaches what it has to.
            return if self.remove_flow(dpif, job.id) { Outcome::Removed } else { Outcome::Late };
        }
        // The bits that it read, which the flow may match more closely than.
        let mask = Steps::mask_of(&fresh.basis.reads);
        let same = fresh.actions == job.actions[..];
        if same && mask == job.translation.reads.mask().expand() {
            if fresh.uses != job.uses || fresh.effects != job.effects[..] {
                // Other rules are to be told of its packets from now on.
                let entry = dpif.flow_get(job.id);
                entry.iter().for_each(|entry| self.settle(entry));
            }
            self.revalidation.ukeys.lock(job.id).update(job.id, fresh);
            return Outcome::Kept;
        }
        let Some(entry) = dpif.flow_get(job.id) else {
            self.come_back(job.id);
            return Outcome::Late;
        };
        if !covers(&entry.mask, &mask) {
            // Its packets are not all treated alike any more.
            return if self.remove_flow(dpif, job.id) { Outcome::Removed } else { Outcome::Late };
        }
        self.settle(&entry);
        if self.replace(dpif, job, fresh) {
            if same { Outcome::Widened } else { Outcome::Changed }
        } else {
            Outcome::Removed
        }
    }

    /// Translates a flow again that no change can have affected since change `seq`. Returns what had to be done to it.
    pub(crate) fn verify(&self, dpif: &Arc<dyn Dpif>, job: &Job, seq: u64) -> Option<Outcome> {
        let (fresh, learned) = self.translate_again(&job.key);
        let mask = Steps::mask_of(&fresh.basis.reads);
        if self.revalidation.seq() != seq || fresh.generation != self.generation() {
            // What is new may come from what has just changed: the next pass knows.
            return None;
        }
        let installed = job.translation.reads.mask().expand();
        let as_known = (fresh.actions == job.actions[..]
            || same_essence((&job.actions, &installed), (&fresh.actions, &mask), &job.key))
            && job.translation.rests_on_same(&fresh.basis)
            && fresh.uses == job.uses
            && fresh.effects == job.effects[..];
        if learned && as_known {
            if mask == installed || !covers(&installed, &mask) {
                // It may read more by now, of rules that none of the flow's packets can match.
                return None;
            }
            self.settle(&dpif.flow_get(job.id)?);
            return self.replace(dpif, job, fresh).then_some(Outcome::Widened);
        }
        // Only what is in the datapath can be wrong, and if the table has it otherwise it is another by now.
        let entry = dpif.flow_get(job.id)?;
        if !self.is_as_known(job) {
            return None;
        }
        self.report_fixed_up(job, &fresh, &entry, learned);
        self.remove_flow(dpif, job.id).then_some(Outcome::Removed)
    }

    /// Whether the table still has a flow as it was.
    fn is_as_known(&self, job: &Job) -> bool {
        let shard = self.revalidation.ukeys.lock(job.id);
        shard
            .get(job.id)
            .is_some_and(|k| Arc::ptr_eq(&k.translation, &job.translation) && Arc::ptr_eq(&k.actions, &job.actions))
    }

    /// Whether the datapath has a flow by now, if it was late.
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

    /// Pushes what a flow did until now to the rules that it was made by.
    fn settle(&self, entry: &DpFlowEntry) {
        let mut shard = self.revalidation.ukeys.lock(entry.id);
        let Some(known) = shard.get_mut(entry.id) else { return };
        let (packets, bytes) = known.take(entry.stats);
        known.recent += packets;
        let (effects, uses, installed) = (Arc::clone(&known.effects), Arc::clone(&known.uses), known.installed);
        drop(shard);
        self.push(&effects, &uses, packets, bytes, crate::upcall::used_or(&entry.stats, installed));
    }

    /// Puts another flow in the place of the one of this id. `false` if that one has left meanwhile.
    fn replace(&self, dpif: &Arc<dyn Dpif>, job: &Job, fresh: Fresh) -> bool {
        let (state, id, generation) = (&self.revalidation, job.id, fresh.generation);
        let updated = state.ukeys.lock(id).update(id, fresh);
        let Some(entered) = updated else { return false };
        let flow = self.dp_flow(job.sparse.clone(), entered, generation);
        let put = dpif.flow_put(id, flow);
        if put.is_ok() && state.ukeys.lock(id).get(id).is_some() {
            return true;
        }
        // It left between the two, with its last statistics: this one has none yet to speak of.
        self.remove_flow(dpif, id);
        false
    }
}

/// Whether all bits of `inner` are in `outer`.
fn covers(outer: &FlowMask, inner: &FlowMask) -> bool {
    outer.0.iter().zip(&inner.0).all(|(o, i)| i & !o == 0)
}

/// Whether the addresses that a flow's packets teach are known to be where the packets show them.
fn is_learned(net: &Network, uses: &Uses) -> bool {
    uses.iter().all(|u| {
        let (bridge, vlan, mac) = u.mac;
        let Some(port) = u.learned else { return true };
        let bridge = net.bridges.get(&bridge).filter(|b| b.ports.contains_key(&port));
        bridge.is_none_or(|b| b.macs.read().lookup(vlan, mac) == Some(port))
    })
}
