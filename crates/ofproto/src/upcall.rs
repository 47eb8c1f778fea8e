//! Packets that the datapath has no flow for, and packets that go to controllers: called on packet threads.

use crate::effects::Seen;
use crate::switch::Switch;
use base::{DpPort, Millis};
use dpif::{ControllerUpcall, DpAction, DpActions, DpFlow, DpFlowStats, FlowId, Upcall, UpcallHandler, UpcallReply};
use packet::Packet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use xlate::{Verdict, translate};

impl Switch {
    /// Translates a packet that came in on a datapath port, as the tables are now. The generation to give to a flow
    /// made of it comes with it.
    fn translate_now(&self, key: &flow::FlowKey) -> (u64, Verdict) {
        let generation = self.generation();
        let net = self.network();
        self.translations.fetch_add(1, Ordering::Relaxed);
        (generation, translate(&net, key, false))
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
        let (generation, mut verdict) = self.translate_now(upcall.key);
        let actions = dp_actions(&mut verdict);
        let effects: Arc<[xlate::Effect]> = std::mem::take(&mut verdict.effects).into();
        self.apply(&effects, 1, upcall.packet.len() as u64, now, Seen::Now);
        // What made this packet learn something moved the generation: its flow would be out of date at once. The
        // next packet's flow stays. A translation that failed is remembered as any other: it costs the most to repeat.
        let install = (generation == self.generation()).then(|| {
            let mask = verdict.reads.mask().clone();
            let id = self.new_flow_id();
            self.remember(id, effects, now);
            (
                id,
                DpFlow {
                    key: upcall.key.clone(),
                    mask,
                    reads: verdict.reads.order().into(),
                    actions: Arc::clone(&actions),
                    generation,
                },
            )
        });
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
}

/// The moment of last use that statistics tell, or `otherwise`.
pub(crate) fn used_or(stats: &DpFlowStats, otherwise: Millis) -> Millis {
    stats.used.unwrap_or(otherwise)
}
