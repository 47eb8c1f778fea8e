//! Compares cached verdicts with fresh ones, and reports differences with everything needed to reproduce them.

use super::normalise::{normalise, union};
use super::retranslate::{Job, finds_other_of_equal};
use super::ukeys::Fresh;
use crate::switch::Switch;
use dpif::{DpAction, DpActions, DpFlowEntry, FlowId};
use flow::text::NoNames;
use flow::{FlowKey, Match, Steps};
use std::fmt::Write;
use std::sync::atomic::Ordering;
use xlate::Dependency;

impl Switch {
    /// Returns true if a packet's cached actions equal those of a new translation, or if a change in progress makes the
    /// comparison impossible.
    pub(crate) fn check_flow(&self, key: &FlowKey, id: FlowId, actions: &DpActions) -> bool {
        let state = &self.revalidation;
        let seq = state.seq();
        let settled = || state.done.load(Ordering::SeqCst) == seq && state.seq() == seq;
        if !settled() || state.paused.load(Ordering::SeqCst) {
            return true;
        }
        let fresh = self.translate_now(key).finish();
        state.counters.self_checks.fetch_add(1, Ordering::Relaxed);
        if same_for_other_packet(&fresh.actions, actions) {
            return true;
        }
        // The flow was installed by a command, or has been replaced.
        let known = state.ukeys.lock(id).get(id).map(|known| Job::of(id, known));
        let Some(job) = known.filter(|job| job.actions == *actions) else { return true };
        let known = union(&job.translation.reads.mask().expand(), &Steps::mask_of(&fresh.basis.reads));
        let of_flow = |actions: &[DpAction]| normalise(actions, key, &known);
        if same_for_other_packet(&of_flow(&fresh.actions), &of_flow(actions)) {
            return true;
        }
        if !settled() || fresh.generation != self.generation() || finds_other_of_equal(&job.effects, &fresh.effects) {
            return true;
        }
        state.counters.self_check_failed.fetch_add(1, Ordering::Relaxed);
        base::coverage!(self_check_failed);
        tracing::error!(
            target: "ofproto_dpif_upcall",
            "self-check: a packet is forwarded otherwise than it should be: {}",
            self.describe(key, &job, actions, &fresh)
        );
        false
    }

    /// Logs a flow that a full pass found wrong.
    pub(crate) fn report_fixed_up(&self, job: &Job, fresh: &Fresh, entry: &DpFlowEntry, learned: bool) {
        let more = if learned { "" } else { "; it would teach an address that is not known to be there" };
        tracing::error!(
            target: "ofproto_dpif_upcall",
            "full pass: a flow is not what it should be: {}; installed as {:?}{more}",
            self.describe(&job.key, job, &job.actions, fresh),
            entry.mask,
        );
    }

    /// Describes a packet's key, its flow, the cached and the expected actions, and the command to trace it.
    fn describe(&self, key: &FlowKey, job: &Job, cached: &DpActions, fresh: &Fresh) -> String {
        let actions = |a: &[DpAction]| dpif::text::format_actions(a, key.eth_type(), &|_| None);
        let flow = Match::new(&job.key, job.translation.reads.mask().expand());
        let mut out = format!(
            "packet {}; flow {} {}; cached actions {}; fresh actions {}; rests on {:?} {:?}; would rest on {:?}",
            flow::text::flow_key_to_string(key, &NoNames),
            job.id.0,
            flow::text::megaflow_to_string(&flow, &NoNames),
            actions(cached),
            actions(&fresh.actions),
            job.translation.rests_on,
            job.uses,
            fresh.basis.rests_on,
        );
        for dependency in &fresh.basis.rests_on {
            let Dependency::Lookup(lookup) = dependency else { continue };
            let rules = self.bridge(lookup.bridge).map_or(0, |b| b.tables()[usize::from(lookup.table)].rules.len());
            let _ = write!(out, "; bridge {} table {}: {rules} rules", lookup.bridge, lookup.table);
        }
        if let Some((bridge, port)) = self.port_of(base::DpPort(key.in_port().0))
            && let Some(bridge) = self.bridge(bridge)
        {
            let mut key = key.clone();
            key.set_in_port(port);
            let text = flow::text::flow_key_to_string(&key, &NoNames);
            let _ = write!(out, "; ovs-appctl ofproto/trace {} '{text}'", bridge.name());
        }
        let _ = write!(out, "; change {}", self.revalidation.seq());
        out
    }
}

/// Compares two lists of actions of which one was made for another packet of the same flow: the metadata of packet-ins
/// differs between packets, except for registers.
fn same_for_other_packet(a: &[DpAction], b: &[DpAction]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|pair| match pair {
            (DpAction::Controller(a), DpAction::Controller(b)) => {
                let registers = flow::layout::REGS..flow::layout::TUN_ID;
                let comparable = |m: &FlowKey| (m.0[registers.clone()].to_vec(), m.in_port());
                comparable(&a.metadata) == comparable(&b.metadata) && {
                    let mut other = (**b).clone();
                    other.metadata = a.metadata.clone();
                    **a == other
                }
            }
            (a, b) => {
                a.with_nested(|_| [].into()) == b.with_nested(|_| [].into())
                    && a.nested().zip(b.nested()).all(|(a, b)| same_for_other_packet(a, b))
            }
        })
}
