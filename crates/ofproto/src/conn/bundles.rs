//! Bundles of a connection: messages that are kept until all of them are carried out at once, or forgotten.
//!
//! What is wrong with a message by itself is told when it is added. Committing carries the messages out in order in one
//! change of tables and groups ([`crate::transaction`]), so that each packet sees all of it or nothing; the first that
//! fails has everything taken back, whatever the bundle's flags ask for. Changes of ports and packets to be sent are
//! checked in their turn, and done behind the change of tables: if a device refuses one of them then, that is told, and the
//! tables stay changed.

use super::peer::Peer;
use crate::bridge::Ofproto;
use base::Millis;
use openflow::bundle::{BundleAdd, BundleControl, BundleStep, flag};
use openflow::message::{Message, encode_with};
use openflow::switch::ErrorReport;
use openflow::{OfpError, Version};
use std::collections::HashMap;

/// Bundles that a connection may have open.
const BUNDLES_MAX: usize = 1024;

/// A connection's bundles, by number.
pub(crate) type Bundles = HashMap<u32, Bundle>;

/// One of them.
#[derive(Debug)]
pub(crate) struct Bundle {
    flags: u16,
    closed: bool,
    messages: Vec<Message>,
    /// The transaction ids of these, which errors name.
    xids: Vec<u32>,
    /// When something was last done to it.
    used: Millis,
    /// The message that opened it, for the error that tells of its end.
    opened_by: Vec<u8>,
}

impl Bundle {
    fn new(flags: u16, used: Millis, opened_by: &[u8]) -> Result<Self, OfpError> {
        if flags & !(flag::ATOMIC | flag::ORDERED) != 0 {
            return Err(OfpError::BfcBadFlags);
        }
        let opened_by = opened_by.to_vec();
        Ok(Self { flags, closed: false, messages: Vec::new(), xids: Vec::new(), used, opened_by })
    }
}

impl Ofproto {
    /// Opens, closes, carries out or forgets a bundle. `bytes` is the message that asks for it.
    pub(super) fn bundle_control(
        &self,
        peer: &Peer,
        (version, xid): (Version, u32),
        control: BundleControl,
        bytes: &[u8],
    ) -> Result<(), OfpError> {
        let Some((step, false)) = BundleStep::from_wire(control.ty) else { return Err(OfpError::BfcBadType) };
        let BundleControl { bundle_id, flags, .. } = control;
        let mut bundles = peer.bundles.lock();
        match step {
            BundleStep::Open => {
                // Two who use one number: neither gets what it wants.
                if bundles.remove(&bundle_id).is_some() {
                    return Err(OfpError::BfcBundleExist);
                }
                if bundles.len() >= BUNDLES_MAX {
                    return Err(OfpError::BfcOutOfBundles);
                }
                bundles.insert(bundle_id, Bundle::new(flags, self.now(), bytes)?);
            }
            BundleStep::Close => {
                let mut bundle = bundles.remove(&bundle_id).ok_or(OfpError::BfcBadId)?;
                if bundle.closed {
                    return Err(OfpError::BfcBundleClosed);
                }
                if bundle.flags != flags {
                    return Err(OfpError::BfcBadFlags);
                }
                (bundle.closed, bundle.used) = (true, self.now());
                bundles.insert(bundle_id, bundle);
            }
            BundleStep::Commit => {
                let bundle = bundles.remove(&bundle_id).ok_or(OfpError::BfcBadId)?;
                drop(bundles);
                if bundle.flags != flags {
                    return Err(OfpError::BfcBadFlags);
                }
                self.commit_bundle(peer, version, bundle)?;
            }
            BundleStep::Discard => drop(bundles.remove(&bundle_id).ok_or(OfpError::BfcBadId)?),
        }
        let ty = step.wire(true);
        peer.send(xid, &Message::BundleControl(BundleControl { ty, ..control }));
        Ok(())
    }

    /// Keeps a message in a bundle, which is opened if it is not there.
    pub(super) fn bundle_add(&self, peer: &Peer, xid: u32, add: BundleAdd, bytes: &[u8]) -> Result<(), OfpError> {
        let BundleAdd { bundle_id, flags, mut message } = add;
        if let Message::FlowMod(_, fm) = &mut message {
            self.place_options_of(fm)?;
        }
        Self::check_for_bundle(&message)?;
        let mut bundles = peer.bundles.lock();
        let mut bundle = match bundles.remove(&bundle_id) {
            Some(bundle) if bundle.closed => return Err(OfpError::BfcBundleClosed),
            Some(bundle) if bundle.flags != flags => return Err(OfpError::BfcBadFlags),
            Some(bundle) => bundle,
            None if bundles.len() >= BUNDLES_MAX => return Err(OfpError::BfcOutOfBundles),
            None => Bundle::new(flags, self.now(), bytes)?,
        };
        bundle.used = self.now();
        bundle.messages.push(message);
        bundle.xids.push(xid);
        bundles.insert(bundle_id, bundle);
        Ok(())
    }

    /// What can be said of a message before it is its turn.
    fn check_for_bundle(message: &Message) -> Result<(), OfpError> {
        match message {
            Message::FlowMod(_, fm) => {
                Self::check_flow_mod(fm)?;
                // There are no buffers.
                if fm.buffer_id.is_some() && fm.command.adds() { Err(OfpError::BrcBufferUnknown) } else { Ok(()) }
            }
            Message::PacketOut(out) => Self::check_packet_out(out),
            Message::GroupMod(_) | Message::PortMod(_) => Ok(()),
            _ => Err(OfpError::BfcMsgUnsup),
        }
    }

    fn commit_bundle(&self, peer: &Peer, version: Version, bundle: Bundle) -> Result<(), OfpError> {
        let mut at = 0;
        let done = self.transaction(|t| {
            for message in &bundle.messages {
                match message {
                    Message::FlowMod(_, fm) => t.flow_mod(fm)?,
                    Message::GroupMod(gm) => t.group_mod(gm)?,
                    Message::PortMod(pm) => _ = self.port_to_modify(pm)?,
                    Message::PacketOut(out) => self.check_packet_out_in(out, version, (&t.groups, &t.meters))?,
                    _ => return Err(OfpError::BfcMsgUnsup),
                }
                at += 1;
            }
            Ok(())
        });
        let failed = |error, at: usize| {
            let (message, xid) = (&bundle.messages[at], bundle.xids[at]);
            let options = peer.state.lock().options;
            let bytes = encode_with(version, xid, message, options);
            peer.send(xid, &Message::Error(ErrorReport::on(error, &bytes)));
            OfpError::BfcMsgFailed
        };
        let ((), removed) = done.map_err(|error| failed(error, at))?;
        self.finish_removal(&removed);
        for (at, message) in bundle.messages.iter().enumerate() {
            let done = match message {
                Message::PortMod(pm) => self.port_mod(pm),
                Message::PacketOut(out) => self.packet_out(out, version),
                _ => Ok(()),
            };
            done.map_err(|error| failed(error, at))?;
        }
        Ok(())
    }

    /// Forgets bundles that nothing was done to for `idle_ms`, and tells who opened them.
    pub(crate) fn expire_bundles(&self, now: Millis, idle_ms: u64) {
        self.connections().for_each(|peer| {
            let mut bundles = peer.bundles.lock();
            let expired: Vec<u32> =
                bundles.iter().filter(|(_, b)| b.used.0 + idle_ms <= now.0).map(|(id, _)| *id).collect();
            for bundle in expired.iter().filter_map(|id| bundles.remove(id)) {
                let xid = openflow::types::xid(&bundle.opened_by);
                peer.send(xid, &Message::Error(ErrorReport::on(OfpError::BfcTimeout, &bundle.opened_by)));
            }
        });
    }
}
