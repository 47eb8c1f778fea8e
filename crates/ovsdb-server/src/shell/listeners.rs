//! Tasks that bring connections: one for each address, which accepts, or which connects and connects again.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use ovsdb::jsonrpc::Remote;
use stream::Listener;
use tls::Tls;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tracing::{debug, info, warn};

use super::dial::dial;
use super::remotes::RemoteOptions;
use super::server::Event;

/// How soon an address on which listening failed is tried again.
pub(super) const LISTEN_RETRY: Duration = Duration::from_secs(1);
/// How long to wait after accepting failed, e.g. for want of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Shortest pause between attempts to connect, in milliseconds.
const MIN_BACKOFF_MS: u64 = 1000;

/// Maximum number of clients of one address in a TLS handshake. One more ends the longest handshake.
const HANDSHAKES_MAX: usize = 64;

/// A connection's bytes.
pub(super) type Stream = Box<dyn stream::Stream>;

/// A connection that a task has brought.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) stream: Stream,
    /// The address of the connection.
    pub(super) remote: String,
    /// The peer's name, without a number if it has none of its own.
    pub(super) peer: String,
    /// Dropped when the connection ends, for the task that made it.
    pub(super) ended: Option<oneshot::Sender<()>>,
}

/// An address in use.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) options: RemoteOptions,
    /// The port that a TCP listener got.
    pub(super) bound_port: Option<u16>,
    pub(super) is_passive: bool,
    /// The DSCP of new connections.
    dscp: Arc<AtomicU8>,
    /// The listening socket, if it is an IP socket.
    socket: Option<OwnedFd>,
    task: Option<JoinHandle<()>>,
    started: Instant,
    /// Why listening failed.
    pub(super) failure: Option<String>,
}

impl Endpoint {
    /// Starts to use an address. If listening fails, the endpoint is idle and has the failure.
    pub(super) fn start(text: &str, options: RemoteOptions, tls: &Arc<Tls>, events: &mpsc::Sender<Event>) -> Self {
        let dscp = Arc::new(AtomicU8::new(options.dscp));
        let (bound_port, is_passive, socket, task, started) = (None, false, None, None, Instant::now());
        let mut endpoint = Self { options, bound_port, is_passive, dscp, socket, task, started, failure: None };
        let remote = match Remote::parse(text) {
            Ok(remote) => remote,
            Err(error) => {
                endpoint.failure = Some(error.to_string());
                return endpoint;
            }
        };
        let name = text.to_owned();
        let events = events.clone();
        if !remote.is_passive() {
            let backoff = endpoint.options.max_backoff_ms;
            let dscp = Arc::clone(&endpoint.dscp);
            let connecting = connect((remote, name), dscp, Arc::clone(tls), backoff, events);
            endpoint.task = Some(tokio::spawn(connecting));
            return endpoint;
        }
        endpoint.is_passive = true;
        match stream::listen(&remote.to_string(), endpoint.options.dscp, tls) {
            Ok(listener) => {
                let listener = listener.removed_at_end();
                endpoint.bound_port = listener.port();
                if endpoint.bound_port.is_some() {
                    endpoint.socket = listener.socket().try_clone_to_owned().ok();
                }
                endpoint.task = Some(tokio::spawn(accept(listener, name, events)));
            }
            Err(error) => endpoint.failure = Some(crate::file::describe(&error)),
        }
        endpoint
    }

    /// Ends the use of the address. Returns when its listening socket is closed, so that another address may have its port.
    pub(super) async fn stop(mut self) {
        self.socket = None;
        if let Some(task) = self.task.take() {
            task.abort();
            // The error says that the task was aborted.
            let _ = task.await;
        }
    }

    /// Sets other options; open connections keep theirs.
    pub(super) fn set_options(&mut self, options: RemoteOptions) {
        self.options = options;
        let dscp = self.options.dscp;
        self.dscp.store(dscp, Ordering::Relaxed);
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| stream::set_dscp(socket.as_fd(), dscp)) {
            warn!(target: "ovsdb_jsonrpc_server", "cannot set the DSCP of a listening socket: {error}");
        }
    }

    /// Whether the address is in use.
    pub(super) fn is_running(&self) -> bool {
        self.task.is_some()
    }

    /// Whether the address is in use, or was tried so recently that it need not be tried again.
    pub(super) fn is_settled(&self) -> bool {
        self.task.is_some() || self.started.elapsed() < LISTEN_RETRY
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn accept(listener: Listener, remote: String, events: mpsc::Sender<Event>) {
    let mut handshakes = JoinSet::new();
    // In the order in which they began.
    let mut pending: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(target: "ovsdb_jsonrpc_server", "{remote}: accept failed: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        if !accepted.needs_handshake() {
            bring(accepted, remote.clone(), events.clone()).await;
            continue;
        }
        while handshakes.try_join_next().is_some() {}
        pending.retain(|handshake| !handshake.is_finished());
        if pending.len() >= HANDSHAKES_MAX
            && let Some(longest) = pending.pop_front()
        {
            debug!(target: "ovsdb_jsonrpc_server", "{remote}: {HANDSHAKES_MAX} TLS handshakes, ending one");
            longest.abort();
        }
        pending.push_back(handshakes.spawn(bring(accepted, remote.clone(), events.clone())));
    }
}

/// Hands a connection over once it can be used.
async fn bring(accepted: stream::Incoming, remote: String, events: mpsc::Sender<Event>) {
    let peer = accepted.to_string();
    match accepted.into_stream().await {
        Ok(stream) => {
            let incoming = Incoming { stream, remote, peer, ended: None };
            // If the server has ended, so does this task with its runtime.
            let _ = events.send(Event::Connected(incoming)).await;
        }
        // The log has the details.
        Err(error) => debug!(target: "ovsdb_jsonrpc_server", "{peer}: not connected: {error}"),
    }
}

async fn connect(
    (remote, name): (Remote, String),
    dscp: Arc<AtomicU8>,
    tls: Arc<Tls>,
    max_backoff_ms: u64,
    events: mpsc::Sender<Event>,
) {
    let mut backoff_ms = MIN_BACKOFF_MS;
    loop {
        info!(target: "reconnect", "{name}: connecting...");
        match dial(&remote, dscp.load(Ordering::Relaxed), &tls).await {
            Ok(stream) => {
                info!(target: "reconnect", "{name}: connected");
                backoff_ms = MIN_BACKOFF_MS;
                let (ended, end) = oneshot::channel();
                let incoming = Incoming { stream, remote: name.clone(), peer: name.clone(), ended: Some(ended) };
                if events.send(Event::Connected(incoming)).await.is_err() {
                    return;
                }
                // The receiver returns an error when the other half is dropped: that is the signal.
                let _ = end.await;
            }
            Err(error) => {
                let reason = crate::file::describe(&error);
                info!(target: "reconnect", "{name}: connection attempt failed ({reason})");
            }
        }
        tokio::time::sleep(Duration::from_millis(backoff_ms)).await;
        backoff_ms = backoff_ms.saturating_mul(2).min(max_backoff_ms);
    }
}
