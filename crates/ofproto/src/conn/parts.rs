//! Requests in several messages (OpenFlow 1.3 section 7.3.5): those that change table features, which are too
//! long for one message.

use super::peer::Peer;
use crate::bridge::Ofproto;
use base::Millis;
use openflow::OfpError;
use openflow::multipart::StatsRequest;
use openflow::table::TableFeatures;
use std::collections::HashMap;

/// The largest memory of a connection's incomplete requests in bytes.
const BYTES_MAX: usize = 4 << 20;
/// Milliseconds for which a request waits for its next part. Every part restarts the timeout, as in Open vSwitch: the whole
/// request has no limit.
const PART_TIMEOUT_MS: u64 = 1000;

/// A connection's incomplete requests, by transaction id.
#[derive(Debug, Default)]
pub(super) struct Parts(HashMap<u32, Part>);

#[derive(Debug)]
struct Part {
    features: Vec<TableFeatures>,
    bytes: usize,
    /// The time of the latest part.
    latest: Millis,
    /// The first message.
    first: Vec<u8>,
}

impl Parts {
    /// Adds a part of a request, and returns the request if it is complete.
    ///
    /// Errors: `OFPBRC_BAD_STAT` for a part of another type than the previous ones, `OFPBRC_MULTIPART_BUFFER_OVERFLOW` for a
    /// request that is too long, or of a type that fits one message.
    pub(super) fn add(
        &mut self,
        (xid, more): (u32, bool),
        body: StatsRequest,
        message: &[u8],
        now: Millis,
    ) -> Result<Option<StatsRequest>, OfpError> {
        let before = self.0.remove(&xid);
        let features = match body {
            StatsRequest::TableFeatures(features) if more || before.is_some() => features,
            _ if before.is_some() => return Err(OfpError::BrcBadStat),
            _ if more => return Err(OfpError::BrcMultipartBufferOverflow),
            whole => return Ok(Some(whole)),
        };
        let new = || Part { features: Vec::new(), bytes: 0, latest: now, first: message.to_vec() };
        let mut part = before.unwrap_or_else(new);
        part.features.extend(features);
        part.bytes += message.len();
        part.latest = now;
        if !more {
            return Ok(Some(StatsRequest::TableFeatures(part.features)));
        }
        let others: usize = self.0.values().map(|part| part.bytes).sum();
        if others + part.bytes > BYTES_MAX {
            return Err(OfpError::BrcMultipartBufferOverflow);
        }
        self.0.insert(xid, part);
        Ok(None)
    }
}

impl Ofproto {
    /// Discards requests whose next part is overdue, and sends errors for them.
    pub(crate) fn expire_parts(&self, now: Millis) {
        let refuse = |peer: &Peer, xid, part: &Part| {
            peer.send_error(xid, OfpError::BrcMultipartRequestTimeout, &part.first);
        };
        self.connections().for_each(|peer| {
            peer.parts.lock().0.retain(|xid, part| {
                let stays = now.since(part.latest) < PART_TIMEOUT_MS;
                if !stays {
                    refuse(peer, *xid, part);
                }
                stays
            });
        });
    }
}
