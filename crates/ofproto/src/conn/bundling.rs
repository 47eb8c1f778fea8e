//! Bundles on connections: handles their messages, and sends the replies.
//!
//! A malformed message is an error when it is added. A commit applies the messages in order in one
//! transaction of tables, groups and meters ([`crate::transaction`]), so that each packet sees all of it or nothing; the first
//! one that fails rolls everything back, whatever the bundle's flags are. Port changes and packet-outs are
//! checked in order, and executed after the change of tables: if a device refuses one of them then, the error is sent, and the
//! tables stay changed.

use super::bundles::{BundledMessage, Messages};
use super::flow_mod_log::Applied;
use super::forward::GroupChange;
use super::long_mods::selects_flows;
use super::peer::{Peer, PendingRequest};
use super::run::Run;
use crate::bridge::Ofproto;
use crate::flow_table::check_table;
use base::Millis;
use dpif::MeterId;
use openflow::bundle::{self, BundleAdd, BundleControl, BundleStep};
use openflow::message::{Message, decode_with};
use openflow::{FlowMod, GroupCommand, OfpError, Version};

#[cfg(test)]
impl Peer {
    /// Fills the memory for messages in bundles.
    pub(crate) fn fill_bundles(&self) {
        self.bundles.lock().fill();
    }
}

/// The work that follows the change of tables, groups and meters.
#[derive(Debug, Default)]
struct Rest {
    /// Port changes, packet-outs, and meter mods to forward, by the index of their messages.
    messages: Vec<(usize, Message)>,
    /// Group changes to forward, with transaction ids.
    groups: Vec<(u32, Option<GroupChange>)>,
    /// Meters to delete from the datapath.
    meters: Vec<MeterId>,
    /// Flow mods, for the log.
    applied: Applied,
}

/// A large bundle to commit on a worker thread.
#[derive(Debug)]
pub(crate) struct Commit {
    bundle: Messages,
    version: Version,
    bundle_id: u32,
    /// The message that requested it.
    request: Box<[u8]>,
}

/// Maximum number of messages of a commit that runs on the control thread, unless one may concern many flows.
const SHORT: usize = 100;

fn bundle_done(peer: &Peer, xid: u32, step: BundleStep, bundle_id: u32) {
    // As in Open vSwitch, the reply has no flags.
    peer.send(xid, &Message::BundleControl(BundleControl { ty: step.wire(true), bundle_id, flags: 0 }));
}

impl Ofproto {
    /// Opens, closes, commits or discards a bundle. `bytes` is the request.
    pub(super) fn bundle_control(
        &self,
        peer: &Peer,
        (version, xid): (Version, u32),
        control: BundleControl,
        bytes: &[u8],
    ) -> Result<(), OfpError> {
        let Some((step, false)) = BundleStep::from_wire(control.ty) else { return Err(OfpError::BfcBadType) };
        let BundleControl { bundle_id, flags, .. } = control;
        if version >= Version::V15 && flags & bundle::flag::TIME != 0 {
            return Err(OfpError::BfcSchedNotSupported);
        }
        let mut bundles = peer.bundles.lock();
        match step {
            BundleStep::Open => bundles.open(bundle_id, flags, self.now(), bytes)?,
            BundleStep::Close => bundles.close(bundle_id, flags, self.now())?,
            BundleStep::Commit => {
                let bundle = bundles.take(bundle_id, flags)?;
                drop(bundles);
                let messages = &bundle.messages;
                if self.is_long_bundle(messages) {
                    let commit = Commit { bundle, version, bundle_id, request: bytes.into() };
                    *peer.pending.lock() = Some(PendingRequest::Bundle(Box::new(commit)));
                    return Ok(());
                }
                self.commit_bundle(peer, version, messages)?;
            }
            BundleStep::Discard => bundles.discard(bundle_id)?,
        }
        bundle_done(peer, xid, step, bundle_id);
        Ok(())
    }

    fn is_long_bundle(&self, messages: &[BundledMessage]) -> bool {
        let selects_flows = || messages.iter().any(|message| message.selects_flows);
        messages.len() > SHORT || selects_flows() && self.has_many_flows()
    }

    /// Commits a bundle on a worker thread, and replies.
    pub(super) fn finish_commit(&self, peer: &Peer, commit: &Commit) {
        let Commit { bundle, version, bundle_id, request } = commit;
        // Before new rules are among them, whole tables of removed rules can be cleared at once.
        let _freed_after_the_reply = self.reap_all();
        match self.commit_bundle(peer, *version, &bundle.messages) {
            Ok(()) => bundle_done(peer, openflow::types::xid(request), BundleStep::Commit, *bundle_id),
            Err(error) => self.send_error(peer, error, request),
        }
    }

    /// Adds a message to a bundle, which is opened if it does not exist. `bytes` is the message that contains it.
    pub(super) fn bundle_add(&self, peer: &Peer, add: &BundleAdd, bytes: &[u8]) -> Result<(), OfpError> {
        Self::check_for_bundle(&add.message)?;
        let selects_flows = match &add.message {
            Message::FlowMod(_, fm) => selects_flows(fm),
            // Flows that use a group are deleted with it.
            Message::GroupMod(gm) => gm.command == GroupCommand::Delete,
            _ => false,
        };
        let message = BundledMessage { bytes: bytes.into(), options: peer.state.lock().options, selects_flows };
        peer.bundles.lock().add((add.bundle_id, add.flags), message, self.now())
    }

    /// Does the same for a decoded flow mod.
    pub(super) fn bundle_flow_mod(
        &self,
        peer: &Peer,
        bundle: (u32, u16),
        fm: &FlowMod,
        bytes: &[u8],
    ) -> Result<(), OfpError> {
        Self::check_flow_mod_for_bundle(fm)?;
        let options = peer.state.lock().options;
        let message = BundledMessage { bytes: bytes.into(), options, selects_flows: selects_flows(fm) };
        peer.bundles.lock().add(bundle, message, self.now())
    }

    fn check_flow_mod_for_bundle(fm: &FlowMod) -> Result<(), OfpError> {
        Self::check_flow_mod(fm)?;
        check_table(fm)?;
        // There are no packet buffers.
        if fm.buffer_id.is_some() && fm.command.adds() { Err(OfpError::BrcBufferUnknown) } else { Ok(()) }
    }

    /// Checks what does not depend on earlier messages.
    fn check_for_bundle(message: &Message) -> Result<(), OfpError> {
        match message {
            Message::FlowMod(_, fm) => Self::check_flow_mod_for_bundle(fm),
            Message::PacketOut(out) => Self::check_packet_out(out),
            Message::GroupMod(_) | Message::PortMod(_) | Message::MeterMod(_) => Ok(()),
            _ => Err(OfpError::BfcMsgUnsup),
        }
    }

    fn commit_bundle(&self, peer: &Peer, version: Version, messages: &[BundledMessage]) -> Result<(), OfpError> {
        let failed = |error, at: usize| {
            if let Some(BundledMessage { bytes, .. }) = messages.get(at) {
                peer.send_error(openflow::types::xid(bytes), error, bytes);
            }
            OfpError::BfcMsgFailed
        };
        let mut at = 0;
        let done = self.transaction(|t| {
            let mut rest = Rest::default();
            let mut run = Run::default();
            while let Some((BundledMessage { bytes, options, .. }, _)) =
                messages.get(at..).and_then(<[BundledMessage]>::split_first)
            {
                let encoded = messages[at..].iter().map(|message| (&*message.bytes, message.options));
                let (heads, flow_mods) = run.read(encoded, |_, _| true);
                if !heads.is_empty() {
                    for (head, fm) in heads.into_iter().zip(flow_mods) {
                        t.set_requester(Some(peer.requester(head.xid)));
                        self.place_options_of(fm)?;
                        t.flow_mod(fm)?;
                        rest.applied.count(fm);
                        at += 1;
                    }
                    continue;
                }
                let inner = bundle::inner(bytes).ok_or(OfpError::BfcMsgBadLen)?;
                let (_, xid, mut message) = decode_with(inner, *options).map_err(|e| e.error)?;
                t.set_requester(Some(peer.requester(xid)));
                if let Message::FlowMod(_, fm) = &mut message {
                    self.place_options_of(fm)?;
                }
                match &message {
                    Message::FlowMod(_, fm) => {
                        t.flow_mod(fm)?;
                        rest.applied.count(fm);
                    }
                    Message::GroupMod(gm) => rest.groups.push((xid, self.change_groups(t, peer, gm)?)),
                    Message::MeterMod(mm) => {
                        rest.meters.append(&mut t.meter_mod(mm)?);
                        rest.messages.push((at, message));
                    }
                    Message::PortMod(pm) => {
                        self.port_to_modify(pm)?;
                        rest.messages.push((at, message));
                    }
                    Message::PacketOut(out) => {
                        self.check_packet_out_in(out, version, (&t.groups, &t.meters))?;
                        rest.messages.push((at, message));
                    }
                    _ => return Err(OfpError::BfcMsgUnsup),
                }
                at += 1;
            }
            Ok(rest)
        });
        let (rest, removed) = done.map_err(|error| failed(error, at))?;
        self.finish_removal(removed);
        peer.flow_mods.lock().add(rest.applied, self.now());
        self.finish_meters(rest.meters);
        for (xid, change) in rest.groups {
            self.forward_group_change(peer, xid, change);
        }
        for (at, message) in rest.messages {
            let done = match &message {
                Message::PortMod(pm) => self.port_mod(peer, pm),
                Message::PacketOut(out) => {
                    self.packet_out(out, version).map(|packet| self.execute(&mut packet.into_iter().collect()))
                }
                Message::MeterMod(mm) => {
                    let xid = messages.get(at).map_or(0, |message| openflow::types::xid(&message.bytes));
                    self.forward_meter_change(peer, xid, mm);
                    Ok(())
                }
                _ => Ok(()),
            };
            done.map_err(|error| failed(error, at))?;
        }
        Ok(())
    }

    /// Discards bundles without a request for `idle_ms`, and sends errors to their connections.
    pub(crate) fn expire_bundles(&self, now: Millis, idle_ms: u64) {
        self.connections().for_each(|peer| {
            for opened_by in peer.bundles.lock().expire(now, idle_ms) {
                let xid = openflow::types::xid(&opened_by);
                peer.send_error(xid, OfpError::BfcTimeout, &opened_by);
            }
        });
    }
}
