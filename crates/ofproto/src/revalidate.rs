//! Flows that the datapath remembers, seen from above: their statistics are brought to the rules that made them, and
//! those that are idle or out of date are removed.

use crate::switch::Switch;
use crate::upcall::used_or;
use base::Millis;
use dpif::{DpFlowStats, FlowId};
use std::collections::HashSet;
use std::sync::Arc;
use xlate::Effect;

/// Milliseconds without a packet until a datapath flow is removed (other_config:max-idle).
pub const MAX_IDLE_MS: u64 = 10_000;

/// What is known of an installed flow.
#[derive(Debug)]
pub(crate) struct Remembered {
    effects: Arc<[Effect]>,
    /// The statistics that were brought to the rules already.
    pushed: DpFlowStats,
    installed: Millis,
}

impl Switch {
    /// Notes that a flow with these effects is being installed.
    pub(crate) fn remember(&self, id: FlowId, effects: Arc<[Effect]>, now: Millis) {
        let known = Remembered { effects, pushed: DpFlowStats::default(), installed: now };
        self.remembered.lock().insert(id, known);
    }

    /// Notes that a flow is gone, and pushes what it did since the last time.
    pub(crate) fn forget(&self, id: FlowId, stats: DpFlowStats) {
        let known = self.remembered.lock().remove(&id);
        if let Some(known) = known {
            self.push(&known.effects, known.pushed, stats, known.installed);
        }
    }

    fn push(&self, effects: &[Effect], pushed: DpFlowStats, stats: DpFlowStats, installed: Millis) {
        let packets = stats.packets.saturating_sub(pushed.packets);
        let bytes = stats.bytes.saturating_sub(pushed.bytes);
        self.apply(effects, packets, bytes, used_or(&stats, installed));
    }

    /// One round over all datapath flows: pushes statistics, removes flows that are idle or of an old generation.
    /// Returns how many flows are left.
    pub fn revalidate(&self) -> usize {
        let Some(dpif) = self.dpif() else { return 0 };
        let now = self.clock().now();
        let dump = dpif.flow_dump();
        let mut left = HashSet::with_capacity(dump.len());
        for entry in dump {
            let (pushed, installed, effects) = match self.remembered.lock().get_mut(&entry.id) {
                Some(known) => {
                    let pushed = std::mem::replace(&mut known.pushed, entry.stats);
                    (pushed, known.installed, Arc::clone(&known.effects))
                }
                // Gone since the dump, or put there by hand.
                None => continue,
            };
            self.push(&effects, pushed, entry.stats, installed);
            let idle = now.since(used_or(&entry.stats, installed)) >= MAX_IDLE_MS;
            if idle || entry.flow.generation != self.generation() {
                if let Ok(stats) = dpif.flow_del(entry.id) {
                    self.forget(entry.id, stats);
                }
            } else {
                left.insert(entry.id);
            }
        }
        // What was announced and never got in, as the datapath was full.
        let fresh = |known: &Remembered| now.since(known.installed) < MAX_IDLE_MS;
        self.remembered.lock().retain(|id, known| left.contains(id) || fresh(known));
        left.len()
    }

    /// What the clock asks for: statistics pushed, idle flows and those out of time removed.
    pub fn housekeeping(&self) {
        self.revalidate();
        let now = self.clock().now();
        for bridge in self.bridges() {
            let removed = bridge.expire(now);
            bridge.send_flows_removed(&removed);
        }
    }

    /// Removes all datapath flows, keeping their statistics.
    pub fn purge(&self) {
        self.changed();
        self.revalidate();
    }
}
