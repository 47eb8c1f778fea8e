//! Forwards changes of groups and meters to other connections that asked for them (OpenFlow 1.4 section 7.4.6; the Open
//! Networking Foundation's extension of 1.3; Nicira's before).

use super::peer::Peer;
use crate::bridge::Ofproto;
use crate::transaction::Transaction;
use openflow::group::{BUCKET_ALL, GroupCommand, GroupMod};
use openflow::message::Message;
use openflow::meter::MeterMod;
use openflow::request_forward::{ForwardedRequest, RequestForward};
use openflow::{OfpError, Version};
use xlate::Group;

/// The bits of request types in the masks of request-forward messages.
const GROUP_MOD: u32 = 0;
const METER_MOD: u32 = 1;

/// An applied group mod, in the form for other connections.
#[derive(Debug)]
pub(super) struct GroupChange {
    request: GroupMod,
    /// The form for versions without bucket commands: the whole group.
    whole: Option<GroupMod>,
}

impl Ofproto {
    /// Applies a group mod. Returns the change to forward, if a connection wants it.
    pub(super) fn change_groups(
        &self,
        t: &mut Transaction<'_>,
        from: &Peer,
        gm: &GroupMod,
    ) -> Result<Option<GroupChange>, OfpError> {
        let existed = t.groups.get(gm.group_id).is_some();
        t.group_mod(gm)?;
        let mut is_wanted = false;
        self.connections().for_each(|peer| is_wanted |= peer.wants_forwarded(GROUP_MOD, from));
        if !is_wanted {
            return Ok(None);
        }
        let command = match gm.command {
            GroupCommand::AddOrModify if existed => GroupCommand::Modify,
            GroupCommand::AddOrModify => GroupCommand::Add,
            command => command,
        };
        let group = t.groups.get(gm.group_id).filter(|_| command.is_of_buckets());
        let whole = group.map(|group| set_up(group));
        Ok(Some(GroupChange { request: GroupMod { command, ..gm.clone() }, whole }))
    }

    /// Forwards a group mod with this transaction id to other connections.
    pub(super) fn forward_group_change(&self, from: &Peer, xid: u32, change: Option<GroupChange>) {
        let Some(GroupChange { request, whole }) = change else { return };
        self.forward(from, xid, GROUP_MOD, |version| {
            let knows_buckets = version == Version::V10 || version >= Version::V15;
            let request = whole.as_ref().filter(|_| !knows_buckets).unwrap_or(&request);
            ForwardedRequest::Group(request.clone())
        });
    }

    /// Forwards a meter mod to other connections.
    pub(super) fn forward_meter_change(&self, from: &Peer, xid: u32, mm: &MeterMod) {
        self.forward(from, xid, METER_MOD, |_| ForwardedRequest::Meter(mm.clone()));
    }

    fn forward(&self, from: &Peer, xid: u32, reason: u32, request: impl Fn(Version) -> ForwardedRequest) {
        self.connections().for_each(|peer| {
            let Some(version) = peer.version().filter(|_| peer.wants_forwarded(reason, from)) else { return };
            // OpenFlow before 1.3 has no meters.
            if reason == METER_MOD && version < Version::V13 {
                return;
            }
            peer.notify(&Message::RequestForward(Box::new(RequestForward { xid, request: request(version) })));
        });
    }
}

impl Peer {
    fn wants_forwarded(&self, reason: u32, from: &Self) -> bool {
        self.id() != from.id() && self.wants(|a| a.request_forward, reason)
    }
}

/// The group mod that creates a group in its current state.
fn set_up(group: &Group) -> GroupMod {
    GroupMod {
        command: GroupCommand::Modify,
        kind: group.kind,
        group_id: group.id,
        buckets: group.buckets.iter().map(|b| b.bucket.clone()).collect(),
        command_bucket_id: BUCKET_ALL,
        properties: group.properties.clone(),
    }
}
