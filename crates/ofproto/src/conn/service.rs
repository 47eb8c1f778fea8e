//! Sockets: who connects to a bridge, and whom it connects to.
//!
//! A [`Service`] is one listener (`punix:`, `ptcp:`) or one active connection (`unix:`, `tcp:`), running as a task
//! until it is dropped.

use super::peer::{Outgoing, Peer, PeerKind, QUEUE_BYTES_MAX};
use crate::bridge::Ofproto;
use base::Millis;
use netdev::device::errno_text;
use openflow::message::{Message, decode, encode};
use openflow::print::{Style, print};
use openflow::stream::Framer;
use openflow::switch::{ErrorReport, Hello};
use openflow::versions::Versions;
use openflow::{OfpError, Version};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use vlog::{RateLimit, dbg_rl};

/// The port that OpenFlow uses unless one is named.
pub const OFP_PORT: u16 = 6653;
/// Versions that are spoken.
pub const SUPPORTED: [Version; 2] = [Version::V10, Version::V13];
/// Back-off between attempts to connect, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));
/// How long a connection that is over may take for what was queued before.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);
/// Messages a minute that are logged, and in one burst.
static MESSAGE_LIMIT: RateLimit = RateLimit::new(600, 600);

/// How a connection is made and kept.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// `punix:PATH`, `ptcp:[PORT][:HOST]`, `unix:PATH`, `tcp:HOST[:PORT]`.
    pub target: String,
    /// What it is for.
    pub kind: PeerKind,
    /// Versions that may be spoken.
    pub versions: Versions,
    /// Milliseconds of silence until an active connection or a controller is asked whether it is there; 0 for never.
    pub probe_ms: u64,
    /// Most milliseconds between attempts to connect.
    pub max_backoff_ms: u64,
}

/// What became of a service so far, for the Controller row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceStatus {
    /// Connected peers.
    pub connected: usize,
    /// `VOID`, `BACKOFF`, `CONNECTING`, `ACTIVE`, `IDLE`, as documented for Controller:status.
    pub state: &'static str,
    /// The last error.
    pub last_error: Option<String>,
    /// When an active connection was last made, by the switch's clock.
    pub connected_at: Option<Millis>,
    /// When an active connection was last lost, by the switch's clock.
    pub disconnected_at: Option<Millis>,
}

/// A listener or an active connection; dropping it ends it and closes its connections.
#[derive(Debug)]
pub struct Service {
    /// As configured.
    pub config: ServiceConfig,
    status: Arc<Mutex<ServiceStatus>>,
    task: JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(path) = self.config.target.strip_prefix("punix:") {
            // Whoever finds it gone already has cleaned up for us.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Service {
    /// Starts a service for `bridge`, on the current tokio runtime. An error says what is wrong with the target, or
    /// why it cannot be listened on.
    pub fn start(bridge: &Arc<Ofproto>, config: ServiceConfig) -> Result<Self, String> {
        let status = Arc::new(Mutex::new(ServiceStatus { state: "VOID", ..ServiceStatus::default() }));
        let (method, address) = config.target.split_once(':').ok_or_else(|| bad_target(&config.target))?;
        let bridge = Arc::clone(bridge);
        let (task_config, task_status) = (config.clone(), Arc::clone(&status));
        let task = match method {
            "punix" => {
                let listener = listen_unix(address).map_err(|e| format!("{}: {e}", config.target))?;
                tokio::spawn(async move {
                    let mut children = tokio::task::JoinSet::new();
                    loop {
                        match listener.accept().await {
                            Ok((stream, _)) => spawn_peer(&mut children, &bridge, &task_config, &task_status, stream),
                            Err(e) => accept_failed(&task_config.target, &e).await,
                        }
                    }
                })
            }
            "ptcp" => {
                let listener = listen_tcp(address).map_err(|e| format!("{}: {e}", config.target))?;
                tokio::spawn(async move {
                    let mut children = tokio::task::JoinSet::new();
                    loop {
                        match listener.accept().await {
                            Ok((stream, _)) => {
                                let _ = stream.set_nodelay(true);
                                spawn_peer(&mut children, &bridge, &task_config, &task_status, stream);
                            }
                            Err(e) => accept_failed(&task_config.target, &e).await,
                        }
                    }
                })
            }
            "unix" | "tcp" => tokio::spawn(active(bridge, task_config, task_status)),
            "ssl" | "pssl" => return Err(format!("{}: TLS connections are not supported", config.target)),
            _ => return Err(bad_target(&config.target)),
        };
        Ok(Self { config, status, task })
    }

    /// What became of it so far.
    pub fn status(&self) -> ServiceStatus {
        self.status.lock().clone()
    }
}

fn bad_target(target: &str) -> String {
    format!("{target}: not a connection method (unix:, tcp:, punix:, ptcp:)")
}

fn listen_unix(path: &str) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    UnixListener::bind(path)
}

/// `[PORT][:HOST]`.
fn listen_tcp(address: &str) -> io::Result<TcpListener> {
    let (port, host) = address.split_once(':').unwrap_or((address, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port: u16 = if port.is_empty() {
        OFP_PORT
    } else {
        port.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("bad port number \"{port}\"")))?
    };
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    let listener = std::net::TcpListener::bind((host, port))?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

async fn accept_failed(target: &str, e: &io::Error) {
    tracing::warn!(target: "connmgr", "{target}: accept failed: {e}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn spawn_peer<S>(
    children: &mut tokio::task::JoinSet<()>,
    bridge: &Arc<Ofproto>,
    config: &ServiceConfig,
    status: &Arc<Mutex<ServiceStatus>>,
    stream: S,
) where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    while children.try_join_next().is_some() {}
    let (bridge, config, status) = (Arc::clone(bridge), config.clone(), Arc::clone(status));
    children.spawn(async move {
        status.lock().connected += 1;
        if let Err(e) = serve(&bridge, &config, stream).await {
            tracing::debug!(target: "connmgr", "{}<->{}: {e}", bridge.name(), config.target);
        }
        status.lock().connected -= 1;
    });
}

/// Connects, serves, and connects again, for ever.
async fn active(bridge: Arc<Ofproto>, config: ServiceConfig, status: Arc<Mutex<ServiceStatus>>) {
    let max = Duration::from_millis(config.max_backoff_ms.max(1000)).min(Duration::from_secs(60));
    let mut backoff = BACKOFF.0;
    let now = || bridge.switch().map(|switch| switch.clock().now());
    loop {
        status.lock().state = "CONNECTING";
        let served = match connect(&config.target).await {
            Ok(stream) => {
                tracing::info!(target: "rconn", "{}<->{}: connected", bridge.name(), config.target);
                {
                    let mut s = status.lock();
                    (s.connected, s.state) = (1, "ACTIVE");
                    s.connected_at = now();
                }
                backoff = BACKOFF.0;
                let served = serve(&bridge, &config, stream).await;
                status.lock().disconnected_at = now();
                served
            }
            Err(e) => {
                tracing::info!(target: "rconn", "{}<->{}: connection attempt failed ({})", bridge.name(), config.target, errno_text(&e));
                Err(e)
            }
        };
        {
            let mut s = status.lock();
            (s.connected, s.state) = (0, "BACKOFF");
            if let Err(e) = served {
                s.last_error = Some(errno_text(&e));
            }
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(max.min(BACKOFF.1.max(max)));
    }
}

/// Any kind of stream.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn connect(target: &str) -> io::Result<Box<dyn Stream>> {
    if let Some(path) = target.strip_prefix("unix:") {
        return Ok(Box::new(UnixStream::connect(path).await?));
    }
    let address = target.strip_prefix("tcp:").unwrap_or(target);
    let with_port = match address.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && (!host.contains(':') || host.ends_with(']')) => address.to_owned(),
        _ => format!("{address}:{OFP_PORT}"),
    };
    let stream = TcpStream::connect(with_port).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// Serves one connection until it ends.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Send>(
    bridge: &Arc<Ofproto>,
    config: &ServiceConfig,
    stream: S,
) -> io::Result<()> {
    let (reader, writer) = tokio::io::split(stream);
    base::coverage!(vconn_open);
    let (peer, outgoing) = Peer::new(config.kind, config.target.clone());
    bridge.connections().add(Arc::clone(&peer));
    let _guard = Registered { bridge, peer: &peer };
    if config.kind != PeerKind::Snoop
        && let Some(newest) = config.versions.newest()
    {
        peer.send_bytes(encode(newest, 1, &Message::Hello(Hello { versions: config.versions })));
    }
    let closing = Notify::new();
    let mut writing = std::pin::pin!(write_all(bridge, &peer, writer, outgoing, &closing));
    let read = tokio::select! {
        read = read_all(bridge, config, &peer, reader) => read,
        written = &mut writing => return written,
    };
    // What is queued still leaves, such as the error that tells the peer why the connection ends, unless it does not
    // read.
    closing.notify_one();
    match tokio::time::timeout(LAST_WORDS_MAX, writing).await {
        Ok(written) => read.and(written),
        Err(_) => read,
    }
}

/// Takes the peer off the bridge's list when its connection ends, however it ends.
struct Registered<'a> {
    bridge: &'a Arc<Ofproto>,
    peer: &'a Arc<Peer>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.bridge.connections().remove(self.peer);
        self.bridge.update_miss_to_controller();
    }
}

async fn read_all(
    bridge: &Arc<Ofproto>,
    config: &ServiceConfig,
    peer: &Arc<Peer>,
    reader: impl AsyncRead,
) -> io::Result<()> {
    let mut reader = std::pin::pin!(reader);
    let mut framer = Framer::default();
    let mut chunk = vec![0; 64 << 10];
    let mut probed = false;
    let probe = Duration::from_millis(config.probe_ms);
    loop {
        let n = if config.probe_ms == 0 {
            reader.read(&mut chunk).await?
        } else {
            match tokio::time::timeout(probe, reader.read(&mut chunk)).await {
                Ok(n) => n?,
                Err(_) if probed => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "no response to inactivity probe"));
                }
                Err(_) => {
                    probed = true;
                    peer.send(0, &Message::EchoRequest(Vec::new()));
                    continue;
                }
            }
        };
        if n == 0 {
            return Ok(());
        }
        probed = false;
        if config.kind == PeerKind::Snoop {
            continue;
        }
        framer.push(&chunk[..n]);
        let mut budget = 0;
        loop {
            // Requests wait while answers do: a peer that does not read is not served.
            while peer.queued() > QUEUE_BYTES_MAX {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let Some(message) = framer.next_message().map_err(io::Error::other)? else { break };
            base::coverage!(vconn_received);
            log_message(peer, "received", message);
            if peer.version().is_some() {
                bridge.handle(peer, message);
            } else {
                negotiate(bridge, config, peer, message)?;
            }
            // Others have their turn too.
            budget += 1;
            if budget % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// The first message must be a HELLO with a version in common.
fn negotiate(bridge: &Arc<Ofproto>, config: &ServiceConfig, peer: &Arc<Peer>, message: &[u8]) -> io::Result<()> {
    let fail = |text: String| Err(io::Error::new(io::ErrorKind::InvalidData, text));
    let hello = match decode(message) {
        Ok((_, _, Message::Hello(hello))) => hello,
        Ok((_, _, other)) => return fail(format!("received {:?} message where HELLO was expected", other.kind())),
        Err(e) => return fail(format!("received a bad message where HELLO was expected: {e}")),
    };
    let Some(version) = config.versions.negotiate(hello.versions) else {
        let text = format!("We support {}, you support {}, no common versions.", config.versions, hello.versions);
        let report = ErrorReport {
            error: openflow::switch::ReportedError::Known(OfpError::HfcIncompatible),
            data: text.clone().into_bytes(),
        };
        let newest = config.versions.newest().unwrap_or(Version::V10);
        peer.send_bytes(encode(newest, 0, &Message::Error(report)));
        tracing::warn!(target: "vconn", "{}: version negotiation failed ({text})", peer.target);
        return fail(text);
    };
    peer.state.lock().version = Some(version);
    bridge.update_miss_to_controller();
    Ok(())
}

/// Every OpenFlow message is in the log at the level DBG of `vconn`, as far as the rate limit lets it.
fn log_message(peer: &Peer, what: &str, message: &[u8]) {
    dbg_rl!(&MESSAGE_LIMIT, target: "vconn", "{}: {what}: {}", peer.target, print(message, Style::plain(1)).trim_end());
}

/// Writes what is queued, until the peer is gone or, once `closing` is notified, the queue is empty.
async fn write_all(
    bridge: &Arc<Ofproto>,
    peer: &Arc<Peer>,
    writer: impl AsyncWrite,
    mut outgoing: Outgoing,
    closing: &Notify,
) -> io::Result<()> {
    let mut writer = std::pin::pin!(writer);
    loop {
        let next = tokio::select! {
            next = outgoing.next() => next,
            () = closing.notified() => {
                outgoing.close();
                continue;
            }
        };
        let Some(mut bytes) = next else { return Ok(()) };
        log_message(peer, "sent (Success)", &bytes);
        let mut messages = 1;
        while bytes.len() < 64 << 10
            && let Some(more) = outgoing.try_next()
        {
            log_message(peer, "sent (Success)", &more);
            bytes.extend_from_slice(&more);
            messages += 1;
        }
        writer.write_all(&bytes).await?;
        base::coverage!(vconn_sent, messages);
        base::coverage!(rconn_sent, messages);
        outgoing.sent(bytes.len());
        bridge.snoop(peer, &bytes);
    }
}
