//! One connection with its unsent output: sends, takes messages, and probes a server that is silent.

use std::io;
use std::time::Duration;

use ovsdb::jsonrpc::{Message, Receiver};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::Instant;

use crate::client::{self, Stream};

/// How long a TCP connection may be silent before the server is asked for a sign of life, and again how long until it
/// must have given one.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// What a connection that the server has closed ends with.
pub(crate) const END_OF_FILE: &str = "End of file";

/// A connection with its unsent output.
pub(crate) struct Live {
    receiver: Receiver<ReadHalf<Stream>>,
    writer: WriteHalf<Stream>,
    output: Vec<u8>,
    sent: usize,
    /// Whether the stream may hold back some of what was sent.
    unflushed: bool,
    heard: Instant,
    probed: bool,
}

/// What [`Live::exchange`] did.
pub(crate) enum Event {
    Sent,
    Received(Message),
    /// Nothing was heard for a while.
    Idle,
}

impl Live {
    /// A connection over which nothing was sent.
    pub(crate) fn new(receiver: Receiver<ReadHalf<Stream>>, writer: WriteHalf<Stream>) -> Self {
        let heard = Instant::now();
        Self { receiver, writer, output: Vec::new(), sent: 0, unflushed: false, heard, probed: false }
    }

    /// Adds a message to what is to be sent.
    pub(crate) fn send(&mut self, message: &Message) {
        self.output.extend(message.to_bytes());
    }

    /// Sends some output or takes one message, whichever can be done first. Cancel safe.
    pub(crate) async fn exchange(&mut self, probes: bool) -> Result<Event, String> {
        let deadline = self.heard + if self.probed { PROBE_INTERVAL * 2 } else { PROBE_INTERVAL };
        let unsent = self.output.get(self.sent..).unwrap_or_default();
        tokio::select! {
            received = self.receiver.receive() => match received {
                Ok(Some(message)) => {
                    self.heard = Instant::now();
                    self.probed = false;
                    Ok(Event::Received(message))
                }
                Ok(None) => Err(END_OF_FILE.into()),
                Err(error) => Err(error.to_string()),
            },
            written = write_or_flush(&mut self.writer, unsent), if self.unflushed || !unsent.is_empty() => {
                self.unflushed = !unsent.is_empty();
                self.sent += written.map_err(|error| client::io_text(&error))?;
                if self.sent >= self.output.len() {
                    self.output.clear();
                    self.sent = 0;
                }
                Ok(Event::Sent)
            }
            () = tokio::time::sleep_until(deadline), if probes => {
                if std::mem::replace(&mut self.probed, true) {
                    return Err("no response to inactivity probe".into());
                }
                Ok(Event::Idle)
            }
        }
    }
}

/// Writes some of `unsent`, or sees to it that nothing is held back if there is none. Cancel safe.
async fn write_or_flush(writer: &mut WriteHalf<Stream>, unsent: &[u8]) -> io::Result<usize> {
    if unsent.is_empty() { writer.flush().await.map(|()| 0) } else { writer.write(unsent).await }
}
