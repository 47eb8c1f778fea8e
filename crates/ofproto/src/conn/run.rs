//! Flow modifications that come one behind the other, carried out together.
//!
//! What a flow modification takes is much code and little memory: one by one, each of them has the processor read all of
//! that code anew. So several are read first, and then carried out in one change of the tables, in their order. Each of
//! them succeeds or fails by itself, as if it had been alone; only nobody sees the tables in between. Those for bundles are
//! read together, too.

use super::handle::writable;
use super::peer::Peer;
use crate::bridge::Ofproto;
use openflow::message::{FlowModHead, Options, decode_flow_mod_into};
use openflow::types::may_be_flow_mod;
use openflow::{FlowMod, OfpError};
use smallvec::SmallVec;
use std::cell::Cell;

/// Flow modifications that are carried out together, at most: what was read of them stays in the processor's caches.
const RUN_MAX: usize = 16;
/// Actions for which a connection keeps room in each of them. (Few flows have more.)
const ACTIONS_KEPT: usize = 32;

/// Where flow modifications are read to, without asking for memory each time.
#[derive(Debug)]
pub(crate) struct Run(Vec<FlowMod>);

/// The heads of those that were read.
type Heads = SmallVec<[FlowModHead; RUN_MAX]>;

impl Default for Run {
    fn default() -> Self {
        Self(vec![FlowMod::default()])
    }
}

impl Run {
    /// Where a single one is read to.
    pub(super) fn first(&mut self) -> &mut FlowMod {
        &mut self.0[0]
    }

    /// Actions that there is room for.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.0.iter().map(|fm| fm.actions.capacity()).sum()
    }

    /// Lets go of what the first `n` named. What a connection holds on to does not grow with what it was sent.
    pub(super) fn forget(&mut self, n: usize) {
        for fm in self.0.iter_mut().take(n) {
            fm.actions.clear();
            fm.actions.shrink_to(ACTIONS_KEPT);
        }
    }

    /// Reads the flow modifications that `messages` begin with, as far as they are wanted, and some of them at most.
    pub(super) fn read<'a>(
        &mut self,
        messages: impl Iterator<Item = (&'a [u8], Options)>,
        wanted: impl Fn(&FlowModHead) -> bool,
    ) -> (Heads, &mut [FlowMod]) {
        let mut heads = Heads::new();
        for (message, options) in messages.take(RUN_MAX) {
            if heads.len() == self.0.len() {
                self.0.push(FlowMod::default());
            }
            let head = decode_flow_mod_into(message, options, &mut self.0[heads.len()]);
            let Some(head) = head.filter(&wanted) else { break };
            heads.push(head);
        }
        (heads, &mut self.0)
    }
}

impl Ofproto {
    /// Carries out the flow modifications that `messages` begin with, some of them at most, and answers. How many messages
    /// that were; those behind are for [`Ofproto::handle`], one by one, as is the first when there is none.
    pub(crate) fn handle_run<'a>(&self, peer: &Peer, messages: impl Iterator<Item = &'a [u8]> + Clone) -> usize {
        let (options, Some(version)) = peer.speaks() else { return 0 };
        let mut flow_mods = messages.clone().take_while(|message| may_be_flow_mod(message)).peekable();
        if flow_mods.peek().is_none() || writable(peer).is_err() {
            return 0;
        }
        let mut run = peer.run.lock();
        // For bundles, or not: all of them as the first.
        let bundled = Cell::new(None);
        let is_alike = |head: &FlowModHead| {
            let is_bundled = head.bundle.is_some();
            head.version == version && bundled.replace(Some(is_bundled)).is_none_or(|before| before == is_bundled)
        };
        let (heads, flow_mods) = run.read(flow_mods.map(|message| (message, options)), is_alike);
        let n = heads.len();
        let Some(first) = heads.first() else { return 0 };
        base::coverage!(ofproto_recv_openflow, n as u64);
        messages.clone().take(n).for_each(|message| peer.remote.snoop(message));
        self.heard(peer, true);
        let mut errors: Vec<(usize, OfpError)> = Vec::new();
        let mut removed = Vec::new();
        if first.bundle.is_some() {
            for (at, ((head, fm), message)) in heads.iter().zip(flow_mods).zip(messages.clone()).enumerate() {
                let kept = head.bundle.map_or(Ok(()), |bundle| self.bundle_flow_mod(peer, bundle, fm, message));
                errors.extend(kept.err().map(|error| (at, error)));
            }
        } else {
            let done = self.transaction(|t| {
                for (at, (head, fm)) in heads.iter().zip(flow_mods).enumerate() {
                    errors.extend(self.modify_flows(t, peer, *head, fm).err().map(|error| (at, error)));
                }
                Ok(())
            });
            removed = done.map(|((), removed)| removed).unwrap_or_default();
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
