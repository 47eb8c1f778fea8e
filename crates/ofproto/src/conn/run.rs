//! Runs of consecutive flow mods, applied together.
//!
//! A flow mod runs much code on little memory: one by one, each of them makes the processor load all of
//! that code again. Several are therefore decoded first, and then applied in one transaction, in order. Each of
//! them succeeds or fails by itself, as if it were alone; the only difference is that no reader sees the tables in between.
//! Flow mods for bundles are decoded together, too.

use super::flow_mod_log::Applied;
use super::handle::writable;
use super::peer::Peer;
use super::serving::log_message;
use crate::bridge::Ofproto;
use openflow::message::{FlowModHead, Options, decode_flow_mod_into};
use openflow::types::may_be_flow_mod;
use openflow::{FlowMod, OfpError};
use smallvec::SmallVec;
use std::cell::Cell;

/// The largest number of flow mods applied together: the decoded messages stay in the processor's caches.
const RUN_MAX: usize = 16;
/// The number of actions for which each buffer keeps its memory. (Few flows have more.)
const ACTIONS_KEPT: usize = 32;

/// Reusable buffers for decoded flow mods.
#[derive(Debug)]
pub(crate) struct Run(Vec<FlowMod>);

/// The headers of decoded flow mods.
type Heads = SmallVec<[FlowModHead; RUN_MAX]>;

impl Default for Run {
    fn default() -> Self {
        Self(vec![FlowMod::default()])
    }
}

impl Run {
    /// The buffer for a single flow mod.
    pub(super) fn first(&mut self) -> &mut FlowMod {
        &mut self.0[0]
    }

    /// The capacity for actions.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.0.iter().map(|fm| fm.actions.capacity()).sum()
    }

    /// Drops the contents of the first `n` buffers. A connection's memory does not grow with its messages.
    pub(super) fn forget(&mut self, n: usize) {
        for fm in self.0.iter_mut().take(n) {
            fm.actions.clear();
            fm.actions.shrink_to(ACTIONS_KEPT);
        }
    }

    /// Decodes consecutive flow mods at the front of `messages` that `wanted` accepts, up to the maximum.
    pub(super) fn read<'a>(
        &mut self,
        messages: impl Iterator<Item = (&'a [u8], Options)>,
        accept: impl Fn(&FlowModHead, &FlowMod) -> bool,
    ) -> (Heads, &mut [FlowMod]) {
        let mut heads = Heads::new();
        for (message, options) in messages.take(RUN_MAX) {
            if heads.len() == self.0.len() {
                self.0.push(FlowMod::default());
            }
            let fm = &mut self.0[heads.len()];
            let head = decode_flow_mod_into(message, options, fm);
            let Some(head) = head.filter(|head| accept(head, fm)) else { break };
            heads.push(head);
        }
        (heads, &mut self.0)
    }
}

impl Ofproto {
    /// Applies consecutive flow mods at the front of `messages`, up to the maximum, and replies. Returns the number of
    /// messages; [`Ofproto::handle`] handles the following ones, one by one, and also the first one if it returns 0.
    pub(crate) fn handle_run<'a>(&self, peer: &Peer, messages: impl Iterator<Item = &'a [u8]> + Clone) -> usize {
        let (options, Some(version)) = peer.speaks() else { return 0 };
        let mut flow_mods = messages.clone().take_while(|message| may_be_flow_mod(message)).peekable();
        if flow_mods.peek().is_none() || writable(peer).is_err() {
            return 0;
        }
        let mut run = peer.run.lock();
        // Either all of them are for bundles or none is, and none is long.
        let bundled = Cell::new(None);
        let belongs = |head: &FlowModHead, fm: &FlowMod| {
            let is_bundled = head.bundle.is_some();
            head.version == version
                && bundled.replace(Some(is_bundled)).is_none_or(|before| before == is_bundled)
                && (is_bundled || !self.is_long_flow_mod(fm))
        };
        let (heads, flow_mods) = run.read(flow_mods.map(|message| (message, options)), belongs);
        let n = heads.len();
        let Some(first) = heads.first() else { return 0 };
        base::coverage!(ofproto_recv_openflow, n as u64);
        for message in messages.clone().take(n) {
            log_message(peer, "received", message);
            peer.remote.snoop(message);
        }
        self.heard(peer, true);
        let mut errors: Vec<(usize, OfpError)> = Vec::new();
        let mut removed = Vec::new();
        if first.bundle.is_some() {
            for (at, ((head, fm), message)) in heads.iter().zip(flow_mods).zip(messages.clone()).enumerate() {
                let added = head.bundle.map_or(Ok(()), |bundle| self.bundle_flow_mod(peer, bundle, fm, message));
                errors.extend(added.err().map(|error| (at, error)));
            }
        } else {
            let mut applied = Applied::default();
            let done = self.transaction(|t| {
                for (at, (head, fm)) in heads.iter().zip(flow_mods).enumerate() {
                    errors.extend(self.modify_flows(t, peer, *head, fm, &mut applied).err().map(|error| (at, error)));
                }
                Ok(())
            });
            removed = done.map(|((), removed)| removed).unwrap_or_default();
            peer.flow_mods.lock().add(applied, self.now());
        }
        run.forget(n);
        drop(run);
        for (at, error) in errors {
            if let Some(message) = messages.clone().nth(at) {
                self.send_error(peer, error, message);
            }
        }
        self.finish_removal(removed);
        n
    }
}
