//! One client's connection: a reading task and a writing task, with limits on both.
//!
//! The server does not read a client's requests while the client does not read its replies, so that requests cannot
//! make the server queue replies without limit, and while too many of its requests are pending
//! ([`crate::admission`]). Notifications are unsolicited: a client that lets too many of them queue up is
//! disconnected.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use ovsdb::jsonrpc::{ConnectionError, FrameError, Limits, Message, Receiver};
use serde_json::Value;
use tokio::io::AsyncWrite;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tracing::{debug, warn};

use super::halves::{ReadHalf, WriteHalf, split};
use super::listeners::Stream;
use super::server::Event;
use crate::admission::{Permit, Quota};
use crate::session::{SessionId, Text};

/// A client with this many unread bytes gets no more of its requests handled.
const PAUSE_BYTES: usize = 1 << 20;
/// A client with this many unread bytes is disconnected at the next notification.
const BACKLOG_BYTES_MAX: usize = 64 << 20;

/// The same limit for the source of a copied database, which executes requests of the copy's clients. It exceeds the
/// limit of all clients together plus one request of any length.
const SOURCE_BACKLOG_BYTES_MAX: usize = 2 << 30;

/// Messages up to so long in all are sent in one piece.
const JOINED_MAX: usize = 64 << 10;

/// The queue of bytes to a client.
#[derive(Debug)]
struct Queue {
    state: Mutex<QueueState>,
    /// Told when there is something to write for the task, or when the queue is closed.
    filled: Notify,
    /// Notified when the queue gets shorter, or is closed.
    drained: Notify,
}

#[derive(Debug)]
struct QueueState {
    stream: WriteHalf,
    pieces: VecDeque<Piece>,
    /// How much of the first piece was written.
    written: usize,
    /// Data not yet written.
    bytes: usize,
    /// Whether the stream may have something in buffers of its own.
    unflushed: bool,
    /// Whether the task waits for the stream.
    waiting: bool,
    failed: Option<io::Error>,
    closed: bool,
}

#[derive(Debug)]
enum Piece {
    Own(Vec<u8>),
    Shared(Arc<[u8]>),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Shared(bytes) => bytes,
        }
    }
}

impl QueueState {
    fn push(&mut self, text: Text) {
        self.bytes += text.len();
        let joined = match self.pieces.back_mut() {
            Some(Piece::Own(last)) if last.len() + text.len() <= JOINED_MAX => Some(last),
            _ => None,
        };
        if let Some(last) = joined {
            text.parts().iter().for_each(|part| last.extend_from_slice(part));
        } else if text.len() <= JOINED_MAX {
            self.pieces.push_back(Piece::Own(text.parts().concat()));
        } else {
            self.pieces.push_back(Piece::Own(text.head));
            self.pieces.push_back(Piece::Shared(text.body));
            self.pieces.push_back(Piece::Own(text.tail.to_vec()));
        }
    }

    /// Writes as much as the client accepts now; ready when nothing is left.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(piece) = self.pieces.front() {
            let rest = piece.bytes().get(self.written..).unwrap_or_default();
            if rest.is_empty() {
                self.pieces.pop_front();
                self.written = 0;
                continue;
            }
            let n = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += n;
            self.bytes = self.bytes.saturating_sub(n);
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// The same, for the task.
    fn poll_task(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let polled = self.poll_write(cx);
        self.waiting = polled.is_pending();
        polled
    }
}

impl Queue {
    fn new(stream: WriteHalf) -> Self {
        let state = QueueState {
            stream,
            pieces: VecDeque::new(),
            written: 0,
            bytes: 0,
            unflushed: false,
            waiting: false,
            failed: None,
            closed: false,
        };
        Self { state: Mutex::new(state), filled: Notify::new(), drained: Notify::new() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, QueueState> {
        // Nothing panics while it holds the lock; if something did, the queue would still be one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.state().closed = true;
        self.filled.notify_one();
        self.drained.notify_one();
    }

    /// Writes as much as the client accepts at once. The writing task does the rest, and must be the last to poll the
    /// stream: the waker of the last poll is woken when there is space.
    fn flush(&self) {
        let mut state = self.state();
        if state.waiting || state.failed.is_some() {
            return;
        }
        match state.poll_write(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => return,
            Poll::Ready(Err(error)) => state.failed = Some(error),
            Poll::Pending => {}
        }
        drop(state);
        self.filled.notify_one();
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
    /// The address of the connection; empty for a connection to a source.
    pub(super) remote: String,
    socket: ReadHalf,
    queue: Arc<Queue>,
    reader: AbortHandle,
}

impl Peer {
    /// Starts the tasks of a client's connection.
    pub(super) fn start(
        stream: Stream,
        (id, name, remote): (SessionId, String, String),
        probe_ms: u64,
        quota: Arc<Quota>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let pace = Pace { probe_ms: watch::channel(probe_ms).1, quota: Some(quota) };
        Self::start_at_pace(stream, (id, name, remote), pace, events)
    }

    /// Starts the tasks of a connection to a server, which is probed by the current `probe_ms`. Its messages are
    /// always read: two servers that waited for each other to read first would wait forever.
    pub(super) fn start_source(
        stream: Stream,
        id: SessionId,
        name: String,
        probe_ms: watch::Receiver<u64>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let pace = Pace { probe_ms, quota: None };
        Self::start_at_pace(stream, (id, name, String::new()), pace, events)
    }

    fn start_at_pace(
        stream: Stream,
        (id, name, remote): (SessionId, String, String),
        pace: Pace,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let (reading, writing) = split(stream);
        let socket = reading.clone();
        let queue = Arc::new(Queue::new(writing));
        tokio::spawn(write(Arc::clone(&queue), id, events.clone()));
        let reader = Reader { socket: socket.clone(), queue: Arc::clone(&queue), id, name: name.clone(), pace, events };
        let receiver = Receiver::new(reading, Limits::default());
        let reader = tokio::spawn(reader.run(receiver)).abort_handle();
        Self { name, remote, socket, queue, reader }
    }

    /// Queues a message, to be sent at the next [flush](Self::flush); an error is the reason to disconnect the client
    /// instead.
    pub(super) fn send(&self, text: Text) -> Result<(), String> {
        let mut state = self.queue.state();
        let is_source = self.remote.is_empty();
        let max = if is_source { SOURCE_BACKLOG_BYTES_MAX } else { BACKLOG_BYTES_MAX };
        if (text.unasked || is_source) && state.bytes > max {
            base::coverage!(ovsdb_backlog_disconnect);
            return Err(format!(
                "sending backlog exceeded maximum size ({} > {max} bytes), disconnecting, jsonrpc: {}.",
                state.bytes, self.name
            ));
        }
        state.push(text);
        Ok(())
    }

    /// Sets the DSCP of outgoing packets.
    pub(super) fn set_dscp(&self, dscp: u8) {
        if let Err(error) = self.socket.set_dscp(dscp) {
            warn!(target: "ovsdb_jsonrpc_server", "{}: cannot set the DSCP: {error}", self.name);
        }
    }

    /// Starts to send the queued messages.
    pub(super) fn flush(&self) {
        self.queue.flush();
    }

    /// Closes the connection. Queued data is still sent, if the client reads it soon.
    pub(super) fn close(self, linger: bool) {
        self.reader.abort();
        if !linger {
            let mut state = self.queue.state();
            state.pieces.clear();
            (state.bytes, state.written) = (0, 0);
        }
        self.queue.close();
    }
}

/// Time in which a closed connection may send its queue.
const LINGER: Duration = Duration::from_secs(5);

async fn write(queue: Arc<Queue>, id: SessionId, events: mpsc::Sender<Event>) {
    loop {
        let writing = poll_fn(|cx| queue.state().poll_task(cx));
        tokio::pin!(writing);
        // Once the connection is closed, a client that does not read is waited for only briefly.
        let sent = loop {
            if queue.state().closed {
                // There is no one left to report the result to.
                let _ = tokio::time::timeout(LINGER, writing).await;
                return;
            }
            tokio::select! {
                biased;
                sent = &mut writing => break sent,
                () = queue.filled.notified() => {}
            }
        };
        queue.drained.notify_one();
        if let Err(error) = sent {
            let _ = events.send(Event::Closed(id, format!("send error: {error}"))).await;
            return;
        }
        queue.filled.notified().await;
    }
}

/// How a connection is read.
struct Pace {
    /// After how much silence the peer is probed, in milliseconds; 0 for never.
    probe_ms: watch::Receiver<u64>,
    /// The quota of the peer, if it is a client. Then the task also stops reading while the client does not read its
    /// queue.
    quota: Option<Arc<Quota>>,
}

impl Pace {
    /// Waits until the peer has been silent long enough to be probed; returns that time in milliseconds.
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
                    // The sender is gone: the setting does not change any more.
                    pause.await;
                    return probe_ms;
                }
            }
        }
    }
}

/// The task that reads.
struct Reader {
    /// The reading half of the socket.
    socket: ReadHalf,
    queue: Arc<Queue>,
    id: SessionId,
    name: String,
    pace: Pace,
    events: mpsc::Sender<Event>,
}

/// The reason for the end of the reading task.
enum End {
    /// The connection is at its end, for this reason.
    Closed(String),
    /// Another task has ended the connection, or the server.
    Known,
}

impl Reader {
    async fn run(mut self, mut receiver: Receiver<ReadHalf>) {
        if let End::Closed(reason) = self.read(&mut receiver).await {
            // The server may have ended; then no one receives this.
            let _ = self.events.send(Event::Closed(self.id, reason)).await;
        }
    }

    async fn read(&mut self, receiver: &mut Receiver<ReadHalf>) -> End {
        let mut probed = false;
        let mut bytes = receiver.bytes_read();
        loop {
            if self.pace.quota.is_some() && !self.queue.wait_for_room().await {
                return End::Known;
            }
            // A process that was stopped for a while finds what arrived meanwhile.
            let received = tokio::select! {
                biased;
                received = receiver.receive() => Ok(received),
                probe_ms = self.pace.silence() => Err(probe_ms),
            };
            match received {
                Ok(Ok(Some(message))) => {
                    (probed, bytes) = (false, receiver.bytes_read());
                    let permit = match self.admit(&message).await {
                        Ok(permit) => permit,
                        Err(end) => return end,
                    };
                    if self.events.send(Event::Message(self.id, message, permit)).await.is_err() {
                        return End::Known;
                    }
                }
                Ok(Ok(None)) => return End::Closed(String::new()),
                Ok(Err(error)) => {
                    complain(&self.name, &error);
                    return End::Closed(error.to_string());
                }
                // A part of a long message is a sign of life, too.
                Err(_) if receiver.bytes_read() != bytes => {
                    bytes = receiver.bytes_read();
                    probed = false;
                }
                Err(probe_ms) if probed => {
                    let (name, seconds) = (&self.name, probe_ms / 1000);
                    warn!(
                        target: "reconnect",
                        "{name}: no response to inactivity probe after {seconds} seconds, disconnecting"
                    );
                    return End::Closed("no response to inactivity probe".to_owned());
                }
                Err(_) => {
                    probed = true;
                    if !probe(&self.events, self.id).await {
                        return End::Known;
                    }
                }
            }
        }
    }

    /// Waits for a permit for a message. As nothing is read meanwhile, the socket signals the end of the connection;
    /// replies to probes go unnoticed, but not failures to deliver probes.
    async fn admit(&mut self, message: &Message) -> Result<Permit, End> {
        let Some(quota) = self.pace.quota.clone() else { return Ok(Permit::default()) };
        if let Some(permit) = quota.try_admit(message) {
            return Ok(permit);
        }
        debug!(target: "ovsdb_jsonrpc_server", "{}: not read from while its requests wait", self.name);
        let admitted = quota.admit(message);
        let gone = self.socket.hung_up();
        tokio::pin!(admitted, gone);
        loop {
            tokio::select! {
                permit = &mut admitted => return Ok(permit),
                () = &mut gone => return Err(End::Closed("connection closed by peer".to_owned())),
                _ = self.pace.silence() => {}
            }
            if !probe(&self.events, self.id).await {
                return Err(End::Known);
            }
        }
    }
}

/// Sends a probe to the peer; `false` if the server has ended.
async fn probe(events: &mpsc::Sender<Event>, id: SessionId) -> bool {
    let probe = Message::request(Value::from("echo"), "echo", Vec::new());
    events.send(Event::Probe(id, probe)).await.is_ok()
}

/// Logs why reading a connection failed, and counts it if the client caused it.
fn complain(name: &str, error: &ConnectionError) {
    if let ConnectionError::Frame(_) = error {
        base::coverage!(ovsdb_bad_message);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    #[tokio::test]
    async fn a_message_that_arrives_slowly_is_no_silence() {
        let (mut client, server) = UnixStream::pair().expect("a pair of sockets");
        let (events, mut received) = mpsc::channel(8);
        let (_probe, probe_ms) = watch::channel(1_000);
        let _peer = Peer::start_source(Box::new(server), 1, "peer".to_owned(), probe_ms, events);
        // Longer than the server waits for a sign of life.
        for part in br#"{"id":1,"method":"echo","params":[]}"#.chunks(4) {
            tokio::time::sleep(Duration::from_millis(300)).await;
            client.write_all(part).await.expect("the server reads");
        }
        let mut probes = 0;
        loop {
            match received.recv().await {
                Some(Event::Probe(..)) => probes += 1,
                Some(Event::Message(..)) => break,
                other => panic!("{other:?} after {probes} probes"),
            }
        }
        // Silence is probed as ever, and ends the connection.
        assert!(matches!(received.recv().await, Some(Event::Probe(..))));
        assert!(matches!(received.recv().await, Some(Event::Closed(..))));
    }
}
