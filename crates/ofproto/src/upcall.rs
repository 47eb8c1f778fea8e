//! Packets that the datapath has no flow for, packets that go to controllers, and packets that are checked: called on
//! the datapath's threads, several at a time.

use crate::effects::Seen;
use crate::revalidate::{Fresh, Plan, Translated};
use crate::switch::Switch;
use base::{DpPort, Millis};
use dpif::{ControllerUpcall, DpAction, DpActions, DpFlow, DpFlowStats, FlowId, Upcall, UpcallHandler, UpcallReply};
use flow::FlowKey;
use packet::Packet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use xlate::{Verdict, translate};

/// A translation, with what was current before it began.
pub(crate) struct Translation {
    seq: u64,
    generation: u64,
    pub(crate) verdict: Verdict,
}

impl Switch {
    /// Translates a packet that came in on a datapath port, as the tables are now.
    pub(crate) fn translate_now(&self, key: &FlowKey) -> Translation {
        let (seq, generation) = (self.revalidation.seq(), self.generation());
        let net = self.network();
        self.translations.fetch_add(1, Ordering::Relaxed);
        Translation { seq, generation, verdict: translate(&net, key, false) }
    }
}

impl Translation {
    /// What datapath and book are to hold of it; with `exact`, as a flow for this very key.
    pub(crate) fn finish(mut self, exact: bool, key: &FlowKey) -> Translated {
        let actions = dp_actions(&mut self.verdict);
        let (plan, effects, uses) = Plan::of(&mut self.verdict);
        let flow = DpFlow {
            key: key.clone(),
            mask: if exact { FlowKey([u64::MAX; flow::layout::WORDS]) } else { self.verdict.reads.mask().clone() },
            reads: self.verdict.reads.order().into(),
            actions: Arc::clone(&actions),
            generation: self.generation,
        };
        let fresh = Fresh { plan, effects, uses, actions, seq: self.seq, generation: self.generation };
        Translated { flow, fresh }
    }
}

/// The list of actions for the datapath: where nothing is to be done, a drop that says why.
pub(crate) fn dp_actions(verdict: &mut Verdict) -> DpActions {
    let mut actions = std::mem::take(&mut verdict.actions);
    if actions.is_empty()
        && let Some(reason) = verdict.drop
    {
        actions.push(DpAction::Drop(reason));
    }
    actions.into()
}

impl UpcallHandler for Switch {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        base::coverage!(flow_extract);
        let now = self.clock().now();
        let translation = self.translate_now(upcall.key);
        self.apply(&translation.verdict.effects, 1, upcall.packet.len() as u64, now, Seen::Now);
        // What this packet taught is a change as any other, and the flow is older than it: the next pass looks at it
        // once more. A translation that failed is remembered as any other: it costs the most to repeat.
        let Translated { flow, fresh, .. } = translation.finish(self.is_exact(), upcall.key);
        let actions = Arc::clone(&fresh.actions);
        let id = self.new_flow_id();
        let install = self.remember(id, upcall.key, fresh, now).then_some((id, flow));
        UpcallReply { actions, install }
    }

    fn controller(&self, _port: DpPort, what: &ControllerUpcall, packet: &Packet) {
        if let Some(bridge) = self.bridge(what.bridge) {
            bridge.packet_in(what, packet);
        }
    }

    fn flow_gone(&self, id: FlowId, stats: DpFlowStats) {
        self.forget(id, stats);
    }

    fn check(&self, _port: DpPort, key: &FlowKey, id: FlowId, actions: &DpActions) -> bool {
        self.check_flow(key, id, actions)
    }
}

/// The moment of last use that statistics tell, or `otherwise`.
pub(crate) fn used_or(stats: &DpFlowStats, otherwise: Millis) -> Millis {
    stats.used.unwrap_or(otherwise)
}
