//! Bundles: messages that a switch keeps, and then carries out all together or not at all (OpenFlow 1.4 sections 6.9 and
//! 7.3.9; for OpenFlow 1.3 the Open Networking Foundation's extension 230).

use crate::Version;
use crate::error::OfpError;
use crate::message::{self, Context, Message};
use crate::types::{self, HEADER_LEN, Kind};
use crate::wire::{Reader, Result, Writer};

/// What is to be done with a bundle, or has been (`ofp_bundle_ctrl_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BundleStep {
    /// Begin it.
    Open,
    /// Take no more messages.
    Close,
    /// Carry it out.
    Commit,
    /// Forget it.
    Discard,
}

impl BundleStep {
    const ALL: [Self; 4] = [Self::Open, Self::Close, Self::Commit, Self::Discard];

    /// The step, and whether it is the reply to it, of a number on the wire.
    pub fn from_wire(n: u16) -> Option<(Self, bool)> {
        Some((*Self::ALL.get(usize::from(n / 2))?, n % 2 == 1))
    }

    /// The number on the wire of the request, or the reply to it.
    pub const fn wire(self, reply: bool) -> u16 {
        2 * self as u16 + reply as u16
    }
}

/// Bits of a bundle's flags (`ofp_bundle_flags`).
pub mod flag {
    /// All or nothing, and seen by each packet as that.
    pub const ATOMIC: u16 = 1;
    /// In the order in which messages were added.
    pub const ORDERED: u16 = 2;
    /// At a time that is named (OpenFlow 1.5).
    pub const TIME: u16 = 4;
}

/// OFPT_BUNDLE_CONTROL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BundleControl {
    /// Which bundle, of those of the connection.
    pub bundle_id: u32,
    /// See [`BundleStep::from_wire`].
    pub ty: u16,
    /// See [`flag`].
    pub flags: u16,
}

impl BundleControl {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let control = Self { bundle_id: r.u32()?, ty: r.u16()?, flags: r.u16()? };
        // Properties, of which none is known.
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
    /// Which bundle, of those of the connection; it is opened if it is not there.
    pub bundle_id: u32,
    /// See [`flag`].
    pub flags: u16,
    /// What is added, with the same transaction id.
    pub message: Message,
}

/// An OFPT_BUNDLE_ADD_MESSAGE around the bytes of a whole message. Empty if `version` has no bundles.
pub fn wrap(version: Version, bundle_id: u32, flags: u16, message: &[u8]) -> Vec<u8> {
    let Some(mut out) = types::begin(version, types::xid(message), Kind::BundleAdd, false) else { return Vec::new() };
    put_add(bundle_id, flags, message, &mut out);
    types::finish(out).unwrap_or_default()
}

/// The message inside of an OFPT_BUNDLE_ADD_MESSAGE, as its bytes.
pub fn inner(add: &[u8]) -> Option<&[u8]> {
    let head = types::head(add).ok().filter(|head| head.row.kind == Kind::BundleAdd)?;
    let mut r = head.body;
    r.skip(8).ok()?;
    message::take_inner(&mut r).ok()
}

/// Whether bundles take such messages. Of others nothing but the headers is read, so that one inside of the other leads
/// nowhere.
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
    /// Errors of the message inside are told as they are, but for one that is none at all, or none for a bundle.
    pub(crate) fn decode(cx: Context, r: &mut Reader<'_>) -> Result<Self> {
        let ((bundle_id, flags), inner) = Self::open(cx.version, cx.xid, r)?;
        if !takes(inner) {
            return Err(OfpError::BfcMsgUnsup);
        }
        let (_, _, message) = message::decode_with(inner, cx.options).map_err(|e| e.error)?;
        Ok(Self { bundle_id, flags, message })
    }

    /// Bundle and flags, and the message inside.
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
        let message = message::encode_with(cx.version, cx.xid, &self.message, cx.options);
        put_add(self.bundle_id, self.flags, &message, out);
    }
}
