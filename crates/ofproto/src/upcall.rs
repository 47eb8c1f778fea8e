//! Upcalls: packets without a datapath flow, packets for controllers, and packets to check. Called on
//! the datapath's threads, several at a time.

use crate::effects::Seen;
use crate::export::netflow::Counted;
use crate::revalidate::{Basis, Entered, Fresh};
use crate::switch::Switch;
use base::{DpPort, DropReason, Millis};
use dpif::{
    ControllerUpcall, DpAction, DpActions, DpFlow, DpFlowStats, FlowId, LocalSample, Observe, Punt, Upcall,
    UpcallHandler, UpcallReply,
};
use flow::extract::ipproto;
use flow::{Field, FlowKey, Sparse, Steps};
use packet::Packet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use xlate::{Verdict, translate};

/// Number of ids, and so of shards, that `try_miss` tries before it declines.
const SHARD_TRIES: usize = 4;

/// A translation, with the numbers that were current before it began.
pub(crate) struct Translation {
    seq: u64,
    generation: u64,
    pub(crate) verdict: Verdict,
}

impl Switch {
    /// Translates a packet from a datapath port, with the current tables.
    pub(crate) fn translate_now(&self, key: &FlowKey) -> Translation {
        self.translations.fetch_add(1, Ordering::Relaxed);
        self.translate_uncounted(key)
    }

    /// Does the same without counting it: the caller counts it if it uses it.
    fn translate_uncounted(&self, key: &FlowKey) -> Translation {
        let (seq, generation) = (self.revalidation.seq(), self.generation());
        let net = self.network();
        Translation { seq, generation, verdict: translate(&net, key, false) }
    }
}

impl Switch {
    /// The datapath's part of a megaflow.
    pub(crate) fn dp_flow(&self, key: Sparse, entered: Entered, generation: u64) -> DpFlow {
        let Entered { mut reads, actions } = entered;
        if self.is_exact() {
            // The flow matches exactly this key.
            reads = Arc::new(Steps::completed(&reads, &FlowKey([u64::MAX; flow::layout::WORDS])));
        }
        DpFlow { key, reads, actions, generation }
    }
}

impl Translation {
    /// The part for the table of megaflows.
    pub(crate) fn finish(mut self) -> Fresh {
        let actions = if self.verdict.slow { vec![DpAction::SlowPath] } else { dp_actions(&mut self.verdict) };
        let (basis, effects, uses) = Basis::of(self.verdict);
        Fresh { basis, effects, uses, actions, seq: self.seq, generation: self.generation }
    }
}

impl Switch {
    /// Returns the reply for a packet with `key` whose flow was entered, or, with its actions alone, was not.
    fn reply(
        &self,
        id: FlowId,
        key: Sparse,
        generation: u64,
        remembered: Result<Entered, Vec<DpAction>>,
    ) -> UpcallReply {
        match remembered {
            Ok(entered) => {
                let actions = Arc::clone(&entered.actions);
                UpcallReply { actions, install: Some((id, self.dp_flow(key, entered, generation))) }
            }
            Err(actions) => UpcallReply { actions: actions.into(), install: None },
        }
    }
}

/// Returns the reply for a packet that the switch has no flows for yet.
fn dropped_until_restored() -> UpcallReply {
    UpcallReply { actions: vec![DpAction::Drop(DropReason::FlowRestore)].into(), install: None }
}

/// Returns the list of actions for the datapath: if it is empty, a drop with its reason.
pub(crate) fn dp_actions(verdict: &mut Verdict) -> Vec<DpAction> {
    let mut actions = std::mem::take(&mut verdict.actions);
    if actions.is_empty()
        && let Some(reason) = verdict.drop
    {
        actions.push(DpAction::Drop(reason));
    }
    actions
}

impl UpcallHandler for Switch {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        if self.is_restoring() {
            return dropped_until_restored();
        }
        base::coverage!(flow_extract);
        let now = self.clock().now();
        let translation = self.translate_now(upcall.key);
        let is_held = self.hold(&upcall, &translation.verdict);
        self.apply(&translation.verdict.effects, 1, upcall.packet.len() as u64, now, Seen::Now);
        self.count_for_netflow(&translation.verdict.effects, counted(&upcall, now));
        // The addresses that this packet taught are a change like any other, and newer than the flow: the next pass revalidates
        // it. A failed translation is cached like any other: it is the most expensive one to repeat.
        let (id, key, generation) = (self.new_flow_id(), Sparse::new(upcall.key), translation.generation);
        let fresh = translation.finish();
        let remembered = self.revalidation.remember(self.revalidation.lock_shard(id), id, key.clone(), fresh, now);
        self.reply(id, key, generation, remembered).held(is_held)
    }

    fn try_miss(&self, upcall: Upcall<'_>) -> Option<UpcallReply> {
        if self.is_restoring() {
            return Some(dropped_until_restored());
        }
        // A declined packet is translated again, and counted then.
        let translation = self.translate_uncounted(upcall.key);
        // Effects that change flow tables would wait for other changes.
        if translation.verdict.effects.iter().any(xlate::Effect::is_transaction) {
            return None;
        }
        // A pass or another miss may hold the lock of a shard; the next id belongs to another shard.
        let free = || {
            let id = self.new_flow_id();
            self.revalidation.try_lock_shard(id).map(|shard| (id, shard))
        };
        let (id, shard) = (0..SHARD_TRIES).find_map(|_| free())?;
        self.translations.fetch_add(1, Ordering::Relaxed);
        base::coverage!(flow_extract);
        let now = self.clock().now();
        let is_held = self.hold(&upcall, &translation.verdict);
        self.apply(&translation.verdict.effects, 1, upcall.packet.len() as u64, now, Seen::Now);
        self.count_for_netflow(&translation.verdict.effects, counted(&upcall, now));
        let (key, generation) = (Sparse::new(upcall.key), translation.generation);
        let remembered = self.revalidation.remember(shard, id, key.clone(), translation.finish(), now);
        Some(self.reply(id, key, generation, remembered).held(is_held))
    }

    fn controller(&self, _port: DpPort, what: &ControllerUpcall, packet: &Packet) {
        if let Some(bridge) = self.bridge(what.bridge) {
            bridge.packet_in(what, packet);
        }
    }

    fn observe(&self, port: DpPort, what: &Observe, packet: &Packet) {
        self.report_to_collectors(port, what, packet);
    }

    fn psample(&self, sample: &LocalSample<'_>) {
        self.sample_locally(sample);
    }

    fn punt(&self, port: DpPort, punt: &Punt, packet: &Packet) -> Result<Option<DpPort>, DropReason> {
        self.punt_to(port, punt, packet)
    }

    fn slow(&self, upcall: Upcall<'_>) -> DpActions {
        base::coverage!(flow_extract);
        let mut verdict = self.translate_now(upcall.key).verdict;
        self.learn_multicast(&verdict.effects, upcall.packet);
        dp_actions(&mut verdict).into()
    }

    fn flow_gone(&self, id: FlowId, stats: DpFlowStats) {
        self.forget(id, stats);
    }

    fn check(&self, _port: DpPort, key: &FlowKey, id: FlowId, actions: &DpActions) -> bool {
        self.check_flow(key, id, actions)
    }
}

/// A packet that missed the cache, as it counts for NetFlow.
fn counted(upcall: &Upcall<'_>, used: Millis) -> Counted {
    let tcp_flags = if upcall.key.ip_proto() == ipproto::TCP { upcall.key.get(Field::TcpFlags) as u16 } else { 0 };
    Counted { packets: 1, bytes: upcall.packet.len() as u64, tcp_flags, used }
}

/// The time of last use in the statistics, or `otherwise`.
pub(crate) fn used_or(stats: &DpFlowStats, otherwise: Millis) -> Millis {
    stats.used.unwrap_or(otherwise)
}
