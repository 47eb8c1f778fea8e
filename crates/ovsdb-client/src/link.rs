//! One connection with its unsent output: sends, receives messages, and probes a silent server.

use std::io;
use std::time::Duration;

use ovsdb::jsonrpc::{ConnectionError, Message, Receiver};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::Instant;

use crate::client::{self, Stream};

/// The time for which a TCP connection may be silent before the server is probed, and again after that.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// The error of a connection that the server has closed.
pub(crate) const END_OF_FILE: &str = "End of file";

/// A connection with its unsent output.
pub(crate) struct Live {
    receiver: Receiver<ReadHalf<Stream>>,
    writer: WriteHalf<Stream>,
    output: Vec<u8>,
    sent: usize,
    /// Whether the stream may buffer some of the sent bytes.
    unflushed: bool,
    silence: Silence,
}

/// Since when nothing was heard.
#[derive(Debug)]
struct Silence {
    heard: Instant,
    /// How many bytes had been heard then.
    bytes: u64,
    /// The time of the last probe without a reply.
    probed: Option<Instant>,
}

/// The reaction to silence.
#[derive(Debug, PartialEq, Eq)]
enum Remedy {
    /// No message: a part of one has arrived.
    Nothing,
    Probe,
    GiveUp,
}

impl Silence {
    /// Takes note of `bytes` that were heard so far.
    fn hear(&mut self, bytes: u64, now: Instant) {
        if bytes != self.bytes {
            *self = Self { heard: now, bytes, probed: None };
        }
    }

    /// When it has lasted too long.
    fn deadline(&self) -> Instant {
        self.probed.unwrap_or(self.heard) + PROBE_INTERVAL
    }

    /// At the deadline, with `bytes` heard so far.
    fn overdue(&mut self, bytes: u64, now: Instant) -> Remedy {
        if bytes != self.bytes {
            self.hear(bytes, now);
            return Remedy::Nothing;
        }
        match self.probed.replace(now) {
            None => Remedy::Probe,
            Some(_) => Remedy::GiveUp,
        }
    }
}

/// The result of [`Live::exchange`].
pub(crate) enum Event {
    Sent,
    Received(Message),
    /// Nothing was heard for a while.
    Idle,
}

impl Live {
    /// A connection over which nothing was sent.
    pub(crate) fn new(receiver: Receiver<ReadHalf<Stream>>, writer: WriteHalf<Stream>) -> Self {
        let silence = Silence { heard: Instant::now(), bytes: receiver.bytes_read(), probed: None };
        Self { receiver, writer, output: Vec::new(), sent: 0, unflushed: false, silence }
    }

    /// Queues a message to be sent.
    pub(crate) fn send(&mut self, message: &Message) {
        self.output.extend(message.to_bytes());
    }

    /// Sends some output or receives one message, whichever is possible first. Cancel safe.
    pub(crate) async fn exchange(&mut self, probes: bool) -> Result<Event, String> {
        enum Done {
            Received(Result<Option<Message>, ConnectionError>),
            Written(io::Result<usize>),
            Overdue,
        }
        loop {
            self.silence.hear(self.receiver.bytes_read(), Instant::now());
            let unsent = self.output.get(self.sent..).unwrap_or_default();
            let writes = self.unflushed || !unsent.is_empty();
            // Neither direction starves the other, and both take precedence over the deadline: a process that was
            // stopped for a while finds the reply that arrived meanwhile.
            let done = tokio::select! {
                biased;
                done = async {
                    tokio::select! {
                        received = self.receiver.receive() => Done::Received(received),
                        written = write_or_flush(&mut self.writer, unsent), if writes => Done::Written(written),
                    }
                } => done,
                () = tokio::time::sleep_until(self.silence.deadline()), if probes => Done::Overdue,
            };
            match done {
                Done::Received(Ok(Some(message))) => return Ok(Event::Received(message)),
                Done::Received(Ok(None)) => return Err(END_OF_FILE.into()),
                Done::Received(Err(error)) => return Err(error.to_string()),
                Done::Written(written) => {
                    self.unflushed = !unsent.is_empty();
                    self.sent += written.map_err(|error| client::io_text(&error))?;
                    if self.sent >= self.output.len() {
                        self.output.clear();
                        self.sent = 0;
                    }
                    return Ok(Event::Sent);
                }
                Done::Overdue => match self.silence.overdue(self.receiver.bytes_read(), Instant::now()) {
                    Remedy::Nothing => {}
                    Remedy::Probe => return Ok(Event::Idle),
                    Remedy::GiveUp => return Err("no response to inactivity probe".into()),
                },
            }
        }
    }
}

/// Writes some of `unsent`, or sees to it that nothing is held back if there is none. Cancel safe.
async fn write_or_flush(writer: &mut WriteHalf<Stream>, unsent: &[u8]) -> io::Result<usize> {
    if unsent.is_empty() { writer.flush().await.map(|()| 0) } else { writer.write(unsent).await }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_probed_and_then_disconnected() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut silence = Silence { heard: start, bytes: 0, probed: None };
        assert_eq!(silence.deadline(), start + PROBE_INTERVAL);
        // However late the probe is sent, there is time for its answer.
        let late = start + 60 * second;
        assert_eq!(silence.overdue(0, late), Remedy::Probe);
        assert_eq!(silence.deadline(), late + PROBE_INTERVAL);
        assert_eq!(silence.overdue(0, late + PROBE_INTERVAL), Remedy::GiveUp);
    }

    #[test]
    fn a_part_of_a_message_is_a_sign_of_life() {
        let start = Instant::now();
        let mut silence = Silence { heard: start, bytes: 0, probed: None };
        let mut now = start;
        // A message that takes minutes to arrive.
        for bytes in 1..50 {
            now = silence.deadline();
            assert_eq!(silence.overdue(bytes, now), Remedy::Nothing);
        }
        now += PROBE_INTERVAL;
        assert_eq!(silence.deadline(), now);
        assert_eq!(silence.overdue(49, now), Remedy::Probe);
        silence.hear(49, now);
        assert_eq!(silence.overdue(50, now + PROBE_INTERVAL), Remedy::Nothing);
        assert_eq!(silence.probed, None);
    }
}
