//! Bundles: a switch collects messages and then applies all of them or none (OpenFlow 1.4 sections 6.9 and
//! 7.3.9; for OpenFlow 1.3 the Open Networking Foundation's extension 230).

use crate::Version;
use crate::error::OfpError;
use crate::message::{self, Context, Message};
use crate::types::{self, HEADER_LEN, MessageKind};
use crate::wire::{Reader, Result, Writer};

/// A step of a bundle, requested or done (`ofp_bundle_ctrl_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BundleStep {
    /// Open the bundle.
    Open,
    /// Accept no more messages.
    Close,
    /// Apply the messages.
    Commit,
    /// Drop the bundle.
    Discard,
}

impl BundleStep {
    const ALL: [Self; 4] = [Self::Open, Self::Close, Self::Commit, Self::Discard];

    /// Returns the step with this number on the wire, and true if the number is that of the reply.
    pub fn from_wire(n: u16) -> Option<(Self, bool)> {
        Some((*Self::ALL.get(usize::from(n / 2))?, n % 2 == 1))
    }

    /// Returns the number on the wire of the request, or of the reply to it.
    pub const fn wire(self, reply: bool) -> u16 {
        2 * self as u16 + reply as u16
    }
}

/// Bits of a bundle's flags (`ofp_bundle_flags`).
pub mod flag {
    /// Apply all messages or none, and let no packet see a part of them.
    pub const ATOMIC: u16 = 1;
    /// Apply messages in the order in which they were added.
    pub const ORDERED: u16 = 2;
    /// Apply at a given time (OpenFlow 1.5).
    pub const TIME: u16 = 4;
}

/// OFPT_BUNDLE_CONTROL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BundleControl {
    /// The bundle's number, local to the connection.
    pub bundle_id: u32,
    /// See [`BundleStep::from_wire`].
    pub ty: u16,
    /// See [`flag`].
    pub flags: u16,
}

impl BundleControl {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let control = Self { bundle_id: r.u32()?, ty: r.u16()?, flags: r.u16()? };
        // Properties, none of which are known.
        r.rest();
        Ok(control)
    }

    pub(crate) fn encode(self, out: &mut Writer) {
        out.put_u32(self.bundle_id);
        out.put_u16(self.ty);
        out.put_u16(self.flags);
    }
}

/// OFPT_BUNDLE_ADD_MESSAGE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BundleAdd {
    /// The bundle's number, local to the connection; a bundle that does not exist is opened.
    pub bundle_id: u32,
    /// See [`flag`].
    pub flags: u16,
    /// The message to add, with the same transaction id.
    pub message: Message,
}

/// Returns an OFPT_BUNDLE_ADD_MESSAGE around the bytes of a whole message. Empty if `version` has no bundles.
pub fn wrap(version: Version, bundle_id: u32, flags: u16, message: &[u8]) -> Vec<u8> {
    let Some(mut out) = types::begin(version, types::xid(message), MessageKind::BundleAdd, false) else {
        return Vec::new();
    };
    put_add(bundle_id, flags, message, &mut out);
    types::finish(out).unwrap_or_default()
}

/// Returns the bytes of the message inside of an OFPT_BUNDLE_ADD_MESSAGE.
pub fn inner(add: &[u8]) -> Option<&[u8]> {
    let head = types::head(add).ok().filter(|head| head.row.kind == MessageKind::BundleAdd)?;
    let mut r = head.body;
    r.skip(8).ok()?;
    message::take_inner(&mut r).ok()
}

/// Returns true if bundles accept such messages. Reads no more than the headers, so that nested bundle messages cause no
/// recursion.
pub(crate) fn takes(message: &[u8]) -> bool {
    types::head(message).is_ok_and(|head| head.row.kind.is_for_bundles())
}

fn put_add(bundle_id: u32, flags: u16, message: &[u8], out: &mut Writer) {
    out.put_u32(bundle_id);
    out.zeros(2);
    out.put_u16(flags);
    out.put(message);
}

impl BundleAdd {
    /// Errors of the inner message are returned unchanged, apart from those of a message that is malformed or not allowed in
    /// bundles.
    pub(crate) fn decode(cx: Context, r: &mut Reader<'_>) -> Result<Self> {
        let ((bundle_id, flags), inner) = Self::open(cx.version, cx.xid, r)?;
        if !takes(inner) {
            return Err(OfpError::BfcMsgUnsup);
        }
        let (_, _, message) = message::decode_with(inner, cx.options).map_err(|e| e.error)?;
        Ok(Self { bundle_id, flags, message })
    }

    /// Reads bundle and flags, and the inner message.
    pub(crate) fn open<'a>(version: Version, xid: u32, r: &mut Reader<'a>) -> Result<((u32, u16), &'a [u8])> {
        let bundle_id = r.u32()?;
        r.skip(2)?;
        let flags = r.u16()?;
        if r.len() >= HEADER_LEN && r.peek().first().copied() != Some(version.wire()) {
            return Err(OfpError::BfcBadVersion);
        }
        let inner = message::take_inner(r)?;
        if types::xid(inner) != xid {
            return Err(OfpError::BfcMsgBadXid);
        }
        Ok(((bundle_id, flags), inner))
    }

    pub(crate) fn encode(&self, cx: Context, out: &mut Writer) {
        match message::try_encode_with(cx.version, cx.xid, &self.message, cx.options) {
            Ok(message) => put_add(self.bundle_id, self.flags, &message, out),
            too_long => out.put_message(too_long),
        }
    }
}
