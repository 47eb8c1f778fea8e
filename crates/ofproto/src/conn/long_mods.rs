//! Flow mods and group mods that may concern many flows, such as the deletion of all flows: a worker thread applies them, as
//! it commits long bundles, and the next message of the connection waits for the end.

use super::flow_mod_log::Applied;
use super::handle::Handled;
use super::peer::{Peer, PendingRequest};
use crate::bridge::Ofproto;
use crate::flow_table::Criteria;
use crate::gate::SHORT_MAX;
use openflow::flow_mod::{FlowMod, FlowModCommand};
use openflow::group::GROUP_ALL;
use openflow::message::FlowModHead;
use openflow::{GroupCommand, GroupMod};

/// A flow mod or group mod for a worker thread.
#[derive(Debug)]
pub(crate) struct LongMod {
    change: Change,
    /// The message that contains it.
    request: Box<[u8]>,
}

#[derive(Debug)]
enum Change {
    Flow(FlowModHead, Box<FlowMod>),
    /// With its transaction id.
    Group(u32, GroupMod),
}

impl Ofproto {
    /// Returns true if a flow mod outside of bundles may concern many flows.
    pub(super) fn is_long_flow_mod(&self, fm: &FlowMod) -> bool {
        selects_flows(fm) && self.may_select_more_than(&Criteria::of(fm), SHORT_MAX)
    }

    /// Returns true if a bundle with a flow mod that [selects flows](selects_flows) may concern many.
    pub(super) fn has_many_flows(&self) -> bool {
        self.n_flows() > SHORT_MAX
    }

    fn is_long_group_mod(&self, gm: &GroupMod) -> bool {
        let groups = if gm.group_id == GROUP_ALL { 0..=u32::MAX } else { gm.group_id..=gm.group_id };
        gm.command == GroupCommand::Delete && self.index.count_of_groups(groups, SHORT_MAX + 1) > SHORT_MAX
    }

    /// Applies a flow mod of a peer that may change flows, or leaves it pending for a worker thread.
    pub(super) fn flow_mod_or_leave(&self, peer: &Peer, head: FlowModHead, fm: &mut FlowMod, bytes: &[u8]) -> Handled {
        if self.is_long_flow_mod(fm) {
            leave(peer, Change::Flow(head, Box::new(std::mem::take(fm))), bytes);
            return Ok(());
        }
        self.apply_flow_mod(peer, head, fm)
    }

    /// Does the same with a group mod.
    pub(super) fn group_mod_or_leave(&self, peer: &Peer, xid: u32, gm: GroupMod, bytes: &[u8]) -> Handled {
        if self.is_long_group_mod(&gm) {
            leave(peer, Change::Group(xid, gm), bytes);
            return Ok(());
        }
        self.apply_group_mod(peer, xid, &gm)
    }

    /// Applies a long mod on a worker thread.
    pub(super) fn finish_mod(&self, peer: &Peer, LongMod { change, request }: LongMod) {
        let done = match change {
            Change::Flow(head, mut fm) => self.apply_flow_mod(peer, head, &mut fm),
            Change::Group(xid, gm) => self.apply_group_mod(peer, xid, &gm),
        };
        if let Err(error) = done {
            self.send_error(peer, error, &request);
        }
    }

    fn apply_flow_mod(&self, peer: &Peer, head: FlowModHead, fm: &mut FlowMod) -> Handled {
        let mut applied = Applied::default();
        let (result, removed) = self.transaction(|t| Ok(self.modify_flows(t, peer, head, fm, &mut applied)))?;
        peer.flow_mods.lock().add(applied, self.now());
        self.finish_removal(removed);
        result
    }

    fn apply_group_mod(&self, peer: &Peer, xid: u32, gm: &GroupMod) -> Handled {
        let (change, removed) = self.transaction(|t| self.change_groups(t, peer, gm))?;
        self.finish_removal(removed);
        self.forward_group_change(peer, xid, change);
        Ok(())
    }
}

fn leave(peer: &Peer, change: Change, bytes: &[u8]) {
    *peer.pending.lock() = Some(PendingRequest::Mod(Box::new(LongMod { change, request: bytes.into() })));
}

/// Returns true if a flow mod applies to all flows that meet its criteria, and not just to one.
pub(super) fn selects_flows(fm: &FlowMod) -> bool {
    matches!(fm.command, FlowModCommand::Modify | FlowModCommand::Delete)
}
