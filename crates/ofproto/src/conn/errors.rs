//! Errors sent to controllers, counted by name, type and code among the events of `coverage/show`.

use super::peer::Peer;
use base::coverage::Counter;
use openflow::message::{Message, encode_with};
use openflow::multipart::ReplyWriter;
use openflow::switch::ErrorReport;
use openflow::types::MessageKind;
use openflow::{OfpError, Version};
use std::sync::LazyLock;
use vlog::{RateLimit, warn_rl};

/// The number of sent errors, in the order of their numbers.
static SENT: LazyLock<Vec<Counter>> =
    LazyLock::new(|| OfpError::all().map(|error| Counter::new(error.name())).collect());
/// Rate limit of log messages about messages that are too long: messages per minute, and burst.
static TOO_LONG_LIMIT: RateLimit = RateLimit::new(60, 5);

/// Counts an error to be sent.
pub(super) fn count(error: OfpError) {
    base::coverage!(ofproto_sent_error);
    if let Some(counter) = SENT.get(error as usize) {
        counter.inc();
    }
}

impl Peer {
    /// Replies to the message `offending`, whose transaction id is `xid`, with an error of the message's version, which its sender
    /// can read. Unknown versions are answered in OpenFlow 1.0.
    pub(super) fn send_error(&self, xid: u32, error: OfpError, offending: &[u8]) {
        count(error);
        let (options, negotiated) = self.speaks();
        if negotiated.is_some() {
            let version = offending.first().and_then(|version| Version::from_wire(*version)).unwrap_or(Version::V10);
            let message = Message::Error(ErrorReport::on(error, offending));
            self.send_bytes(encode_with(version, xid, &message, options));
        }
    }

    /// Logs and counts `n` messages, or entries of a reply, that are not sent because they exceed OpenFlow's 16-bit lengths.
    pub(super) fn report_too_long(&self, kind: MessageKind, n: usize) {
        if n > 0 {
            base::coverage!(ofproto_too_long, n as u64);
            let target = &self.name;
            warn_rl!(&TOO_LONG_LIMIT, target: "connmgr", "{target}: not sending {n} of {kind:?} that OpenFlow has no room for");
        }
    }

    /// Ends a reply and returns its last message. Reports entries that were too long.
    ///
    /// Errors: `OFPBRC_MULTIPART_BUFFER_OVERFLOW` if all entries were too long, in versions that have this error: an empty
    /// reply would mean that there are none.
    pub(super) fn finish_reply(&self, writer: ReplyWriter) -> Result<Vec<u8>, OfpError> {
        let error = OfpError::BrcMultipartBufferOverflow;
        self.report_too_long(writer.kind(), writer.left_out());
        if writer.written() == 0 && writer.left_out() > 0 && error.number(writer.version()).is_some() {
            return Err(error);
        }
        Ok(writer.finish())
    }
}
