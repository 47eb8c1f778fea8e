//! Errors on their way to controllers, counted by name, type and code among the events of `coverage/show`.

use super::peer::Peer;
use base::coverage::Counter;
use openflow::OfpError;
use openflow::message::Message;
use openflow::switch::ErrorReport;
use std::sync::LazyLock;

/// How often each error was sent, in the order in which they are numbered.
static SENT: LazyLock<Vec<Counter>> =
    LazyLock::new(|| OfpError::all().map(|error| Counter::new(error.name())).collect());

/// Counts an error that is being sent.
pub(super) fn count(error: OfpError) {
    base::coverage!(ofproto_sent_error);
    if let Some(counter) = SENT.get(error as usize) {
        counter.inc();
    }
}

impl Peer {
    /// Answers the message `offending`, whose number `xid` is, by an error.
    pub(super) fn send_error(&self, xid: u32, error: OfpError, offending: &[u8]) {
        count(error);
        self.send(xid, &Message::Error(ErrorReport::on(error, offending)));
    }
}
