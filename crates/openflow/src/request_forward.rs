//! Changes that another controller made (OpenFlow 1.4 section 7.4.6; the Open Networking Foundation's extension of 1.3;
//! Nicira's before).

use crate::error::OfpError;
use crate::group::GroupMod;
use crate::message::{Context, Message, decode_with, take_inner, try_encode_with};
use crate::meter::MeterMod;
use crate::types::{self, MessageKind};
use crate::wire::{Reader, Result, Writer};

/// A change that another controller made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestForward {
    /// The transaction id of the request.
    pub xid: u32,
    /// The request.
    pub request: ForwardedRequest,
}

/// The forwarded request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForwardedRequest {
    /// A group mod.
    Group(GroupMod),
    /// A meter mod.
    Meter(MeterMod),
}

impl RequestForward {
    /// Returns errors like those of bundles, and those of the inner request.
    pub(crate) fn decode(cx: Context, r: &mut Reader<'_>) -> Result<Self> {
        let inner = take_inner(r)?;
        if inner.first().copied() != Some(cx.version.wire()) {
            return Err(OfpError::BrcBadVersion);
        }
        // For other messages only the headers are read.
        let head = types::head(inner)?;
        if !matches!(head.row.kind, MessageKind::GroupMod | MessageKind::NxGroupMod | MessageKind::MeterMod) {
            return Err(OfpError::BfcMsgUnsup);
        }
        let request = match decode_with(inner, cx.options).map_err(|e| e.error)?.2 {
            Message::GroupMod(m) => ForwardedRequest::Group(m),
            Message::MeterMod(m) => ForwardedRequest::Meter(m),
            _ => return Err(OfpError::BfcMsgUnsup),
        };
        Ok(Self { xid: head.xid, request })
    }

    pub(crate) fn encode(&self, cx: Context, out: &mut Writer) {
        out.put_message(try_encode_with(cx.version, self.xid, &self.request.message(), cx.options));
    }
}

impl ForwardedRequest {
    /// Returns the request as a message.
    pub fn message(&self) -> Message {
        match self {
            Self::Group(m) => Message::GroupMod(m.clone()),
            Self::Meter(m) => Message::MeterMod(m.clone()),
        }
    }
}
