//! One client's connection: a task that reads and a task that writes, with bounds on both.
//!
//! What a client asks for waits while it does not take its answers, so its requests cannot make the server hoard
//! replies, and while too much of what it has asked for is under way ([`crate::admission`]). Notifications come unasked: a
//! client that lets too many of them pile up is cut off.

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

/// A client with this many bytes of replies to read gets no more of its requests handled.
const PAUSE_BYTES: usize = 1 << 20;
/// A client that has this many bytes to read when another notification comes is cut off.
const BACKLOG_BYTES_MAX: usize = 64 << 20;

/// The same for a server whose database is copied and which is to do what clients of the copy ask for. That is more than
/// all of them together may have under way, and one request of any length.
const SOURCE_BACKLOG_BYTES_MAX: usize = 2 << 30;

/// Messages up to so long in all are sent in one piece.
const JOINED_MAX: usize = 64 << 10;

/// The queue of bytes to a client.
#[derive(Debug)]
struct Queue {
    state: Mutex<QueueState>,
    /// Told when there is something to write for the task, or when the queue is closed.
    filled: Notify,
    /// Told when the queue gets shorter, or is closed.
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

    /// Writes as much as the client takes now; ready when nothing is left.
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

    /// Writes what the client takes at once. The task does the rest, which has the stream while it waits for it: whoever
    /// polls a stream last is woken when it has space.
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
    /// The address by which it came; empty for a connection to a source.
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

    /// Starts the tasks of a connection to a server, which is probed as `probe_ms` says at the time. What it sends is
    /// taken in any case: if two servers each waited for the other to read first, both would wait for ever.
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

    /// Queues a message, to be sent when the queue is next [flushed](Self::flush); an error says why the client must be cut
    /// off instead.
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

    /// Has packets be of this class from now on.
    pub(super) fn set_dscp(&self, dscp: u8) {
        if let Err(error) = self.socket.set_dscp(dscp) {
            warn!(target: "ovsdb_jsonrpc_server", "{}: cannot set the DSCP: {error}", self.name);
        }
    }

    /// Begins to send what is queued.
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

/// How long a closed connection may take to send what is queued for it.
const LINGER: Duration = Duration::from_secs(5);

async fn write(queue: Arc<Queue>, id: SessionId, events: mpsc::Sender<Event>) {
    loop {
        let writing = poll_fn(|cx| queue.state().poll_task(cx));
        tokio::pin!(writing);
        // Once the connection is closed, a client that does not read is waited for only briefly.
        let sent = loop {
            if queue.state().closed {
                // There is no one left to tell what became of it.
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
    /// What the peer may have under way, if it is a client. Then nothing is read, either, while it does not take what is
    /// queued for it.
    quota: Option<Arc<Quota>>,
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
                    // The sender is gone: it will not change any more.
                    pause.await;
                    return probe_ms;
                }
            }
        }
    }
}

/// The task that reads.
struct Reader {
    /// What it reads from.
    socket: ReadHalf,
    queue: Arc<Queue>,
    id: SessionId,
    name: String,
    pace: Pace,
    events: mpsc::Sender<Event>,
}

/// Why the task that reads ends.
enum End {
    /// The connection is at its end, for this reason.
    Closed(String),
    /// Somebody else has ended it, or the server.
    Known,
}

impl Reader {
    async fn run(mut self, mut receiver: Receiver<ReadHalf>) {
        if let End::Closed(reason) = self.read(&mut receiver).await {
            // The server may have ended; then there is no one to tell.
            let _ = self.events.send(Event::Closed(self.id, reason)).await;
        }
    }

    async fn read(&mut self, receiver: &mut Receiver<ReadHalf>) -> End {
        let mut probed = false;
        loop {
            if self.pace.quota.is_some() && !self.queue.wait_for_room().await {
                return End::Known;
            }
            let received = tokio::select! {
                received = receiver.receive() => Ok(received),
                probe_ms = self.pace.silence() => Err(probe_ms),
            };
            match received {
                Ok(Ok(Some(message))) => {
                    probed = false;
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

    /// Waits until a client may have this under way, too. As nothing is read meanwhile, that it goes is seen on the
    /// socket; answers to probes are not, but that these cannot be delivered is.
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

/// Has the peer asked whether it is there; `false` if the server has ended.
async fn probe(events: &mpsc::Sender<Event>, id: SessionId) -> bool {
    let probe = Message::request(Value::from("echo"), "echo", Vec::new());
    events.send(Event::Probe(id, probe)).await.is_ok()
}

/// Logs why a connection could not be read on, and counts it if the client is to blame.
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
