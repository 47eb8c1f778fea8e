//! One client's connection: a task that reads and a task that writes, with bounds on both.
//!
//! What a client asks for waits while it does not take its answers, so its requests cannot make the server hoard
//! replies. Notifications come unasked: a client that lets too many of them pile up is cut off.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ovsdb::jsonrpc::{Connection, ConnectionError, FrameError, Limits, Message, Receiver, Sender, Stream};
use serde_json::Value;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tracing::{debug, warn};

use super::server::Event;
use crate::session::SessionId;

/// A client with this many bytes of replies to read gets no more of its requests handled.
const PAUSE_BYTES: usize = 1 << 20;
/// A client that has this many bytes to read when another notification comes is cut off.
const BACKLOG_BYTES_MAX: usize = 64 << 20;

/// The queue of bytes to a client.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    /// Told when the queue is no longer empty, or is closed.
    filled: Notify,
    /// Told when the queue gets shorter, or is closed.
    drained: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    fn state(&self) -> std::sync::MutexGuard<'_, QueueState> {
        // Nothing panics while it holds the lock; if something did, the queue would still be one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.state().closed = true;
        self.filled.notify_one();
        self.drained.notify_one();
    }

    /// Waits until so little is queued that the client may ask for more; `false` if the queue is closed.
    async fn wait_for_room(&self) -> bool {
        loop {
            {
                let state = self.state();
                if state.closed {
                    return false;
                }
                if state.bytes <= PAUSE_BYTES {
                    return true;
                }
            }
            self.drained.notified().await;
        }
    }
}

/// The shell's end of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    /// For log messages, e.g. `unix#3`.
    pub(super) name: String,
    /// The address by which it came; empty for a connection to a source.
    pub(super) remote: String,
    queue: Arc<Queue>,
    reader: AbortHandle,
}

impl Peer {
    /// Starts the tasks of a connection.
    pub(super) fn start(
        stream: Stream,
        id: SessionId,
        name: String,
        remote: String,
        probe_ms: u64,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let pace = Pace { probe_ms: watch::channel(probe_ms).1, awaits_room: true };
        Self::start_at_pace(stream, (id, name, remote), pace, events)
    }

    /// Starts the tasks of a connection to a server, which is probed as `probe_ms` says at the time. What it sends is
    /// taken in any case: if two servers each waited for the other to read first, both would wait for ever.
    pub(super) fn start_source(
        stream: Stream,
        id: SessionId,
        name: String,
        probe_ms: watch::Receiver<u64>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let pace = Pace { probe_ms, awaits_room: false };
        Self::start_at_pace(stream, (id, name, String::new()), pace, events)
    }

    fn start_at_pace(
        stream: Stream,
        (id, name, remote): (SessionId, String, String),
        pace: Pace,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let (sender, receiver) = Connection::new(stream, Limits::default()).split();
        let queue = Arc::new(Queue::default());
        tokio::spawn(write(sender, Arc::clone(&queue), id, events.clone()));
        let reading = read(receiver, Arc::clone(&queue), (id, name.clone()), pace, events);
        let reader = tokio::spawn(reading).abort_handle();
        Self { name, remote, queue, reader }
    }

    /// Queues a message; an error says why the client must be cut off instead.
    pub(super) fn send(&self, message: &Message) -> Result<(), String> {
        let bytes = message.to_bytes();
        let mut state = self.queue.state();
        let unasked = matches!(message, Message::Notification { .. });
        if unasked && state.bytes > BACKLOG_BYTES_MAX {
            return Err(format!(
                "sending backlog exceeded maximum size ({} > {BACKLOG_BYTES_MAX} bytes), disconnecting, jsonrpc: {}.",
                state.bytes, self.name
            ));
        }
        state.bytes += bytes.len();
        state.messages.push_back(bytes);
        drop(state);
        self.queue.filled.notify_one();
        Ok(())
    }

    /// Closes the connection. What is queued is still sent, if the client takes it soon.
    pub(super) fn close(self, linger: bool) {
        self.reader.abort();
        if !linger {
            let mut state = self.queue.state();
            state.messages.clear();
            state.bytes = 0;
        }
        self.queue.close();
    }
}

/// How long a closed connection may take to send what is queued for it.
const LINGER: Duration = Duration::from_secs(5);

async fn write(mut sender: Sender<WriteHalf<Stream>>, queue: Arc<Queue>, id: SessionId, events: mpsc::Sender<Event>) {
    loop {
        let (next, closed) = {
            let mut state = queue.state();
            (state.messages.pop_front(), state.closed)
        };
        let Some(bytes) = next else {
            if closed {
                return;
            }
            queue.filled.notified().await;
            continue;
        };
        let sent = send_until_stuck(&mut sender, &bytes, &queue, closed).await;
        {
            let mut state = queue.state();
            state.bytes = state.bytes.saturating_sub(bytes.len());
        }
        queue.drained.notify_one();
        if let Err(error) = sent {
            if !closed {
                let _ = events.send(Event::Closed(id, format!("send error: {error}"))).await;
            }
            return;
        }
    }
}

/// Sends one message. Once the connection is closed, a client that does not read is waited for only briefly.
async fn send_until_stuck(
    sender: &mut Sender<WriteHalf<Stream>>,
    bytes: &[u8],
    queue: &Queue,
    closed: bool,
) -> std::io::Result<()> {
    let timed_out = || std::io::Error::from(std::io::ErrorKind::TimedOut);
    let sending = sender.send_bytes(bytes);
    tokio::pin!(sending);
    if !closed {
        loop {
            tokio::select! {
                sent = &mut sending => return sent,
                () = queue.filled.notified() => if queue.state().closed { break },
            }
        }
    }
    tokio::time::timeout(LINGER, sending).await.map_err(|_| timed_out())?
}

/// How a connection is read.
struct Pace {
    /// After how much silence the peer is probed, in milliseconds; 0 for never.
    probe_ms: watch::Receiver<u64>,
    /// Whether nothing is read while the peer does not take what is queued for it.
    awaits_room: bool,
}

impl Pace {
    /// Waits until the peer has been silent for so long that it is to be probed; gives that time in milliseconds.
    async fn silence(&mut self) -> u64 {
        loop {
            let probe_ms = *self.probe_ms.borrow_and_update();
            let pause = async {
                match probe_ms {
                    0 => std::future::pending().await,
                    ms => tokio::time::sleep(Duration::from_millis(ms)).await,
                }
            };
            tokio::pin!(pause);
            tokio::select! {
                () = &mut pause => return probe_ms,
                changed = self.probe_ms.changed() => if changed.is_err() {
                    // Nobody is left who could change it.
                    pause.await;
                    return probe_ms;
                }
            }
        }
    }
}

async fn read(
    mut receiver: Receiver<ReadHalf<Stream>>,
    queue: Arc<Queue>,
    (id, name): (SessionId, String),
    mut pace: Pace,
    events: mpsc::Sender<Event>,
) {
    let mut probed = false;
    let reason = loop {
        if pace.awaits_room && !queue.wait_for_room().await {
            return;
        }
        let received = tokio::select! {
            received = receiver.receive() => Ok(received),
            probe_ms = pace.silence() => Err(probe_ms),
        };
        match received {
            Ok(Ok(Some(message))) => {
                probed = false;
                if events.send(Event::Message(id, message)).await.is_err() {
                    return;
                }
            }
            Ok(Ok(None)) => break String::new(),
            Ok(Err(error)) => {
                complain(&name, &error);
                break error.to_string();
            }
            Err(probe_ms) if probed => {
                let seconds = probe_ms / 1000;
                warn!(
                    target: "reconnect",
                    "{name}: no response to inactivity probe after {seconds} seconds, disconnecting"
                );
                break "no response to inactivity probe".to_owned();
            }
            Err(_) => {
                probed = true;
                let probe = Message::request(Value::from("echo"), "echo", Vec::new());
                if events.send(Event::Probe(id, probe)).await.is_err() {
                    return;
                }
            }
        }
    };
    // The server may have ended; then there is no one to tell.
    let _ = events.send(Event::Closed(id, reason)).await;
}

/// Logs why a connection could not be read on.
fn complain(name: &str, error: &ConnectionError) {
    match error {
        ConnectionError::Frame(FrameError::Message(error)) => {
            warn!(target: "jsonrpc", "{name}: received bad JSON-RPC message: {error}");
        }
        ConnectionError::Frame(error) => warn!(target: "jsonrpc", "{name}: error parsing stream: {error}"),
        ConnectionError::Io(_) | ConnectionError::Truncated => {
            debug!(target: "jsonrpc", "{name}: receive error: {error}");
        }
    }
}
