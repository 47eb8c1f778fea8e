//! Changes that another controller made (OpenFlow 1.4 section 7.4.6; the Open Networking Foundation's extension of 1.3;
//! Nicira's before).

use crate::error::OfpError;
use crate::group::GroupMod;
use crate::message::{Context, Message, decode_with, encode_with, take_inner};
use crate::meter::MeterMod;
use crate::types::{self, Kind};
use crate::wire::{Reader, Result, Writer};

/// A change that another controller made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestForward {
    /// The transaction id that it had.
    pub xid: u32,
    /// What it was.
    pub request: ForwardedRequest,
}

/// What is forwarded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForwardedRequest {
    /// A change of groups.
    Group(GroupMod),
    /// A change of meters.
    Meter(MeterMod),
}

impl RequestForward {
    /// Errors are those of bundles, and of the request inside.
    pub(crate) fn decode(cx: Context, r: &mut Reader<'_>) -> Result<Self> {
        let inner = take_inner(r)?;
        if inner.first().copied() != Some(cx.version.wire()) {
            return Err(OfpError::BrcBadVersion);
        }
        // Of others nothing but the headers is read.
        let head = types::head(inner)?;
        if !matches!(head.row.kind, Kind::GroupMod | Kind::NxGroupMod | Kind::MeterMod) {
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
        out.put(&encode_with(cx.version, self.xid, &self.request.message(), cx.options));
    }
}

impl ForwardedRequest {
    /// The message that it was.
    pub fn message(&self) -> Message {
        match self {
            Self::Group(m) => Message::GroupMod(m.clone()),
            Self::Meter(m) => Message::MeterMod(m.clone()),
        }
    }
}
