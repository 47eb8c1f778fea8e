//! Flows that the datapath remembers, seen from above: their statistics are brought to the rules that made them, and
//! those that are idle or out of date are removed.

mod change;

pub use change::{Change, RuleChange};

use crate::effects::Seen;
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
    /// Packets and bytes that were brought to the rules already. They only rise: of two dumps that are worked through at
    /// the same time, the older one brings nothing.
    pushed: (u64, u64),
    installed: Millis,
}

impl Remembered {
    /// What `stats` have beyond what was brought to the rules, which they are from now on.
    fn take(&mut self, stats: DpFlowStats) -> (u64, u64) {
        let new = (stats.packets.saturating_sub(self.pushed.0), stats.bytes.saturating_sub(self.pushed.1));
        self.pushed = (self.pushed.0 + new.0, self.pushed.1 + new.1);
        new
    }
}

impl Switch {
    /// Notes that a flow with these effects is being installed.
    pub(crate) fn remember(&self, id: FlowId, effects: Arc<[Effect]>, now: Millis) {
        let known = Remembered { effects, pushed: (0, 0), installed: now };
        self.remembered.lock().insert(id, known);
    }

    /// Notes that a flow is gone, and pushes what it did since the last time.
    pub(crate) fn forget(&self, id: FlowId, stats: DpFlowStats) {
        let known = self.remembered.lock().remove(&id);
        if let Some(mut known) = known {
            let (packets, bytes) = known.take(stats);
            self.apply(&known.effects, packets, bytes, used_or(&stats, known.installed), Seen::Earlier);
        }
    }

    /// One round over all datapath flows: pushes statistics, removes flows that are idle or of an old generation.
    /// Returns how many flows are left.
    pub fn revalidate(&self) -> usize {
        let Some(dpif) = self.dpif() else { return 0 };
        let now = self.clock().now();
        let dump = dpif.flow_dump();
        let mut left = HashSet::with_capacity(dump.len());
        for entry in dump {
            let ((packets, bytes), installed, effects) = match self.remembered.lock().get_mut(&entry.id) {
                Some(known) => (known.take(entry.stats), known.installed, Arc::clone(&known.effects)),
                // Gone since the dump, or put there by hand.
                None => continue,
            };
            let used = used_or(&entry.stats, installed);
            self.apply(&effects, packets, bytes, used, Seen::Earlier);
            let idle = now.since(used) >= MAX_IDLE_MS;
            if idle || entry.flow.generation != self.generation() {
                match dpif.flow_del(entry.id) {
                    Ok(stats) => self.forget(entry.id, stats),
                    // Another takes its place this moment, and its last statistics are about to be reported.
                    Err(_) => _ = left.insert(entry.id),
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
            bridge.finish_removal(&removed);
        }
    }

    /// Removes all datapath flows, keeping their statistics.
    pub fn purge(&self) {
        self.changed(Change::Everything);
        self.revalidate();
    }
}
