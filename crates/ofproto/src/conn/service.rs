//! Sockets: listeners and active connections of a bridge.
//!
//! A [`Service`] is one listener (`punix:`, `ptcp:`, `pssl:`) or one active connection (`unix:`, `tcp:`, `ssl:`), running
//! as a task until it is dropped. The task executes what [`super::rconn`] returns, by the switch's clock.

use super::errors;
use super::passive::serve_all;
use super::peer::{Awaited, Outgoing, Peer, RequestThread};
use super::pinsched::PacketInStats;
use super::rconn::{Due, Rconn, State};
use super::remote::{PeerKind, Remote, Settings};
use super::resuming::Resuming;
use crate::bridge::Ofproto;
use base::Millis;
use netdev::device::errno_text;
use openflow::controller_status::ControllerReason;
use openflow::message::{Message, decode, encode};
use openflow::print::{Style, print};
use openflow::stream::{Framer, StreamError};
use openflow::switch::{ErrorReport, Hello, Role};
use openflow::types::MessageKind;
use openflow::versions::Versions;
use openflow::{OfpError, Version};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use stream::Method;
use tls::Tls;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use vlog::{RateLimit, dbg_rl, err_rl, info_rl, warn_rl};

pub use stream::{DSCP, OFP_PORT, numeric_address};

/// The supported versions.
pub const SUPPORTED: [Version; 6] = Version::ALL;
/// The time in which a connection that is closed may send its queue.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);
/// The duration of a write after which the queue is examined.
const STALL: Duration = Duration::from_millis(100);
/// Rate limit of logged messages: messages per minute, and burst.
static MESSAGE_LIMIT: RateLimit = RateLimit::new(600, 600);
/// Rate limit of log messages about failed negotiations, and malformed streams.
pub(super) static HELLO_LIMIT: RateLimit = RateLimit::new(60, 5);

/// The configuration of a connection or listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// `punix:PATH`, `ptcp:[PORT][:HOST]`, `pssl:[PORT][:HOST]`, `unix:PATH`, `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]`.
    pub target: String,
    /// The purpose of its connections.
    pub kind: PeerKind,
    /// The versions that may be negotiated.
    pub versions: Versions,
    /// The DSCP of outgoing packets, 0 to 63, if it is connected over TCP (RFC 2474).
    pub dscp: u8,
    /// Settings that can change while it runs ([`Service::configure`]).
    pub settings: Settings,
}

/// The status of an active connection, for the Controller row.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceStatus {
    /// Its state, and the times when it was connected and disconnected.
    pub rconn: Rconn,
    /// The role of the peer, once versions are negotiated.
    pub role: Option<Role>,
    /// Statistics of packet-ins since the connection was established: of misses, and of actions. `None` without a rate limit.
    pub packet_ins: Option<[PacketInStats; 2]>,
}

/// A listener or an active connection; dropping it ends it and closes its connections.
#[derive(Debug)]
pub struct Service {
    bridge: Arc<Ofproto>,
    remote: Arc<Remote>,
    task: JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
        self.bridge.connections().remove_remote(&self.remote);
        self.bridge.notify_of_remote(&self.remote, ControllerReason::Removed);
        self.remote.end_snooping();
        if let Some(path) = self.remote.target.strip_prefix("punix:") {
            // Another service at this path has removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Service {
    /// Starts a service for `bridge`, on the current tokio runtime. An error describes the error in the target, or
    /// the reason why it cannot listen.
    pub fn start(bridge: &Arc<Ofproto>, config: ServiceConfig) -> Result<Self, String> {
        let remote = Remote::new(config, bridge.now());
        let target = &remote.target;
        let (method, _) = Method::of(target).ok_or_else(|| bad_target(target))?;
        let tls = bridge.switch().map(|switch| Arc::clone(switch.tls())).unwrap_or_default();
        let (for_task, bridge) = (Arc::clone(&remote), Arc::clone(bridge));
        let task = if method.is_passive() {
            let listener = stream::listen(target, remote.dscp, &tls).map_err(|e| format!("{target}: {e}"))?;
            tokio::spawn(serve_all(Arc::clone(&bridge), for_task, listener))
        } else {
            if let Some(address) = numeric_address(target, OFP_PORT) {
                remote.set_address(address);
            }
            tokio::spawn(active(Arc::clone(&bridge), for_task, tls))
        };
        bridge.connections().add_remote(Arc::clone(&remote));
        bridge.notify_of_remote(&remote, ControllerReason::Added);
        Ok(Self { bridge, remote, task })
    }

    /// The target that it listens on or connects to.
    pub fn target(&self) -> &str {
        &self.remote.target
    }

    /// The versions that may be negotiated.
    pub fn versions(&self) -> Versions {
        self.remote.versions
    }

    /// Returns true if it is a listener.
    pub fn is_listener(&self) -> bool {
        self.remote.target.starts_with('p')
    }

    /// Changes its settings. Connections stay.
    pub fn configure(&self, settings: Settings) {
        self.remote.set_settings(settings);
    }

    /// The address of the peer of an active connection, once known.
    pub fn address(&self) -> Option<SocketAddr> {
        self.remote.address()
    }

    /// The status of an active connection.
    pub fn status(&self) -> ServiceStatus {
        let peers = self.bridge.connections().all();
        let peer = peers.iter().find(|peer| Arc::ptr_eq(&peer.remote, &self.remote));
        let limited = self.remote.settings().packet_in_limit.is_some();
        ServiceStatus {
            rconn: self.remote.rconn.lock().clone(),
            role: peer.filter(|peer| peer.version().is_some()).map(|peer| peer.role()),
            packet_ins: limited.then(|| peer.and_then(|peer| peer.limits.stats()).unwrap_or_default()),
        }
    }
}

fn bad_target(target: &str) -> String {
    format!("{target}: not a connection method (unix:, tcp:, ssl:, punix:, ptcp:, pssl:)")
}

/// Sleeps until the switch's clock shows `at`. A stopped clock may be advanced at any time.
async fn sleep_until(bridge: &Ofproto, at: Millis) {
    loop {
        match at.since(bridge.now()) {
            0 => return,
            ms => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }
}

/// Connects, serves, and reconnects, for ever.
async fn active(bridge: Arc<Ofproto>, remote: Arc<Remote>, tls: Arc<Tls>) {
    let name = format!("{}<->{}", bridge.name(), remote.target);
    let timeouts = || remote.settings().timeouts();
    let rconn = &remote.rconn;
    rconn.lock().set_name(name.clone());
    rconn.lock().start(bridge.now());
    // True if attempts have reached the longest interval: then they are not logged any more.
    let mut quiet = false;
    loop {
        wait_to_connect(&bridge, &remote).await;
        if !quiet {
            tracing::info!(target: "rconn", "{name}: connecting...");
        }
        rconn.lock().connecting(bridge.now());
        let limit = rconn.lock().due(timeouts()).map_or(Millis(0), |(at, _)| at);
        let connected = tokio::select! {
            connected = stream::connect(&remote.target, remote.dscp, &tls, |a| remote.set_address(a)) => connected,
            () = sleep_until(&bridge, limit) => Err(timed_out()),
        };
        let ended = match connected {
            Ok(stream) => serve(&bridge, &remote, remote.target.clone(), rconn, stream).await,
            Err(e) => Err(e),
        };
        let was_connected = rconn.lock().is_connected();
        quiet &= !was_connected;
        let error = match &ended {
            Ok(ON_REQUEST) => None,
            Ok(_) => Some(END_OF_FILE.to_owned()),
            Err(e) => Some(errno_text(e)),
        };
        match (&ended, &error) {
            (Ok(why), _) if was_connected => tracing::info!(target: "rconn", "{name}: {why}"),
            // The end of a silent connection was logged when the probe timed out.
            (Err(e), _) if was_connected && is_timeout(e) => {}
            (_, Some(error)) if was_connected => {
                tracing::warn!(target: "rconn", "{name}: connection dropped ({error})");
            }
            (Err(e), _) if !quiet && is_timeout(e) => tracing::info!(target: "rconn", "{name}: connection timed out"),
            (_, Some(error)) if !quiet => tracing::warn!(target: "rconn", "{name}: connection failed ({error})"),
            _ => {}
        }
        let wait_ms = rconn.lock().disconnected(bridge.now(), error, timeouts());
        let secs = wait_ms / 1000;
        if wait_ms < timeouts().max_backoff_ms {
            quiet = false;
            let was_silent = was_connected && ended.as_ref().is_err_and(is_timeout);
            if !was_silent {
                tracing::info!(target: "rconn", "{name}: waiting {secs} seconds before reconnect");
            }
        } else if !std::mem::replace(&mut quiet, true) {
            tracing::info!(
                target: "rconn",
                "{name}: continuing to retry connections in the background but suppressing further logging"
            );
        }
    }
}

/// Waits until the time to connect, by the current settings.
async fn wait_to_connect(bridge: &Ofproto, remote: &Remote) {
    let mut settings = remote.watch_settings();
    loop {
        let timeouts = settings.borrow_and_update().timeouts();
        let due = remote.rconn.lock().due(timeouts);
        let Some((at, Due::Connect)) = due else { return };
        tokio::select! {
            () = sleep_until(bridge, at) => return,
            // The sender lives as long as the remote.
            _ = settings.changed() => {}
        }
    }
}

/// Returns true if the error is that of [`timed_out`], and not the system's.
pub(super) fn is_timeout(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none()
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "Connection timed out")
}

/// The reason why a connection ended without an error.
type Ending = &'static str;
const BY_PEER: Ending = "connection closed by peer";
const ON_REQUEST: Ending = "disconnecting";
/// The error in the database for a connection that its peer has closed.
const END_OF_FILE: &str = "End of file";

/// The transaction id of the next HELLO.
static HELLO_XID: AtomicU32 = AtomicU32::new(1);

/// Serves one connection of this name until it ends. It counts as established when versions are negotiated.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Send>(
    bridge: &Arc<Ofproto>,
    remote: &Arc<Remote>,
    name: String,
    rconn: &Mutex<Rconn>,
    stream: S,
) -> io::Result<Ending> {
    serve_then(bridge, remote, name, rconn, stream, |_| ()).await
}

/// Does the same, and calls `at_end` while the bridge still knows the connection, unless the task is aborted.
pub(super) async fn serve_then<S: AsyncRead + AsyncWrite + Send>(
    bridge: &Arc<Ofproto>,
    remote: &Arc<Remote>,
    name: String,
    rconn: &Mutex<Rconn>,
    stream: S,
    at_end: impl FnOnce(&io::Result<Ending>),
) -> io::Result<Ending> {
    base::coverage!(vconn_open);
    let budget = bridge.switch().map(|switch| Arc::clone(&switch.bundle_budget)).unwrap_or_default();
    let (peer, outgoing) = Peer::new(Arc::clone(remote), name, bridge.now(), budget);
    let useful = bridge.connections().add(Arc::clone(&peer));
    let _guard = Registered { bridge, peer: &peer };
    let ended = serve_peer(bridge, &peer, useful, rconn, stream, outgoing).await;
    at_end(&ended);
    ended
}

async fn serve_peer<S: AsyncRead + AsyncWrite + Send>(
    bridge: &Arc<Ofproto>,
    peer: &Arc<Peer>,
    useful: bool,
    rconn: &Mutex<Rconn>,
    stream: S,
    outgoing: Outgoing,
) -> io::Result<Ending> {
    let remote = &peer.remote;
    let (reader, writer) = tokio::io::split(stream);
    if !useful {
        info_rl!(&HELLO_LIMIT, target: "connmgr", "no controller connection to snoop");
        return Ok(ON_REQUEST);
    }
    // A snooper sees messages of any version.
    let versions = if remote.kind == PeerKind::Snoop { Versions::of(&Version::ALL) } else { remote.versions };
    if let Some(newest) = versions.newest() {
        let xid = HELLO_XID.fetch_add(1, Ordering::Relaxed);
        peer.send_bytes(encode(newest, xid, &Message::Hello(Hello { versions })));
    }
    let closing = Notify::new();
    let mut writing = std::pin::pin!(write_all(bridge, peer, writer, outgoing, &closing));
    // The HELLO goes out before the peer's is read.
    tokio::select! {
        biased;
        written = &mut writing => return written.map(|()| ON_REQUEST),
        () = std::future::ready(()) => {}
    }
    let read = tokio::select! {
        // Replies are sent at once, and not after the turns of other connections.
        biased;
        read = read_all(bridge, peer, rconn, reader) => read,
        ended = keep_alive(bridge, peer, rconn) => ended,
        never = release_packet_ins(bridge, peer) => match never {},
        written = &mut writing => return written.map(|()| ON_REQUEST),
    };
    // The queue is still sent, such as the error that explains why the connection ends, unless the peer does not
    // read.
    closing.notify_one();
    match tokio::time::timeout(LAST_WORDS_MAX, writing).await {
        Ok(Err(e)) => read.and(Err(e)),
        Ok(Ok(())) | Err(_) => read,
    }
}

/// Removes the peer from the bridge's list when its connection ends, however it ends.
struct Registered<'a> {
    bridge: &'a Arc<Ofproto>,
    peer: &'a Arc<Peer>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.bridge.connections().remove(self.peer);
        self.bridge.log_last_flow_mods(self.peer);
        self.bridge.notify_of_peer(self.peer, ControllerReason::Channel, false);
        self.bridge.update_miss_to_controller();
    }
}

/// Probes a silent peer, and returns when it does not answer, does not negotiate a
/// version in time, or when the connection is to be closed.
async fn keep_alive(bridge: &Ofproto, peer: &Peer, rconn: &Mutex<Rconn>) -> io::Result<Ending> {
    let mut settings = peer.remote.watch_settings();
    loop {
        let timeouts = settings.borrow_and_update().timeouts();
        let due = rconn.lock().due(timeouts);
        let wait = async {
            match due {
                Some((at, _)) => sleep_until(bridge, at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wait => {}
            _ = settings.changed() => continue,
            // From now on another timeout applies.
            () = peer.agreed.notified() => continue,
            () = peer.hang_up.notified() => return Ok(ON_REQUEST),
        }
        // The peer may have sent something meanwhile.
        let mut rconn = rconn.lock();
        match rconn.due(timeouts) {
            Some((at, Due::Probe)) if at <= bridge.now() => {
                let (name, secs) = (bridge.name(), rconn.in_state_for(bridge.now()) / 1000);
                dbg_rl!(
                    &HELLO_LIMIT,
                    target: "rconn",
                    "{name}<->{}: idle {secs} seconds, sending inactivity probe",
                    peer.name
                );
                rconn.probed(bridge.now());
                peer.send(0, &Message::EchoRequest(Vec::new()));
            }
            Some((at, due @ (Due::GiveUp | Due::StopConnecting))) if at <= bridge.now() => {
                if due == Due::GiveUp {
                    let (name, secs) = (bridge.name(), timeouts.probe_ms / 1000);
                    err_rl!(
                        &HELLO_LIMIT,
                        target: "rconn",
                        "{name}<->{}: no response to inactivity probe after {secs} seconds, disconnecting",
                        peer.name
                    );
                }
                return Err(timed_out());
            }
            _ => {}
        }
    }
}

/// Sends packet-ins when their rate limit allows it.
async fn release_packet_ins(bridge: &Ofproto, peer: &Peer) -> Infallible {
    let mut settings = peer.remote.watch_settings();
    loop {
        bridge.connections().count_lost(peer.release_packet_ins(bridge.now()));
        match peer.limits.ready_at() {
            Some(at) => tokio::select! {
                () = sleep_until(bridge, at) => {}
                // The sender lives as long as the peer.
                _ = settings.changed() => {}
            },
            None => peer.limits.waiting.notified().await,
        }
    }
}

/// The limits of a connection's turn.
struct Turn {
    began: Instant,
    messages: u32,
}

impl Turn {
    const MESSAGES_MAX: u32 = 64;
    const TIME_MAX: Duration = Duration::from_micros(100);

    fn begin() -> Self {
        Self { began: Instant::now(), messages: 0 }
    }

    /// Counts messages. Returns true if the turn ends after them.
    fn is_over(&mut self, messages: u32) -> bool {
        self.messages += messages;
        self.messages >= Self::MESSAGES_MAX || self.began.elapsed() > Self::TIME_MAX
    }
}

async fn read_all(
    bridge: &Arc<Ofproto>,
    peer: &Arc<Peer>,
    rconn: &Mutex<Rconn>,
    reader: impl AsyncRead,
) -> io::Result<Ending> {
    let mut reader = std::pin::pin!(reader);
    let mut framer = Framer::default();
    let mut chunk = vec![0; 64 << 10];
    // Packets of packet-outs. They are executed before this function waits for anything.
    let mut packets = Vec::new();
    loop {
        let n = reader.read(&mut chunk).await?;
        if n == 0 {
            return Ok(BY_PEER);
        }
        rconn.lock().received(bridge.now());
        if peer.remote.kind == PeerKind::Snoop {
            continue;
        }
        framer.push(&chunk[..n]);
        let mut turn = Turn::begin();
        loop {
            // Requests wait while replies do: a peer that does not read is not served.
            if !peer.has_room() {
                bridge.execute(&mut packets);
                peer.wait_for_room(false).await;
            }
            let short = match framer.messages().next() {
                Some(message) if may_change_tables(message) => {
                    if bridge.is_changing() {
                        bridge.execute(&mut packets);
                    }
                    Some(bridge.short_change().await)
                }
                _ => None,
            };
            // Without the permission, a message is handled by itself.
            let (messages, bytes) = if short.is_some() { run(bridge, peer, &framer) } else { (0, 0) };
            if messages > 0 {
                drop(short);
                framer.take(bytes);
                if turn.is_over(messages) {
                    bridge.execute(&mut packets);
                    tokio::task::yield_now().await;
                    turn = Turn::begin();
                }
                continue;
            }
            let message = match framer.next_message() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(e) => {
                    bridge.execute(&mut packets);
                    return Err(out_of_step(e));
                }
            };
            base::coverage!(vconn_received);
            log_message(peer, "received", message);
            if peer.version().is_some() {
                bridge.handle(peer, message, &mut packets);
                drop(short);
                finish(bridge, peer).await?;
            } else {
                negotiate(bridge, peer, message)?;
                let mut rconn = rconn.lock();
                if !rconn.is_connected() {
                    tracing::info!(target: "rconn", "{}<->{}: connected", bridge.name(), peer.name);
                    rconn.connected(bridge.now());
                    peer.agreed.notify_one();
                } else if peer.version().is_some() {
                    let name = format!("{}<->{}", bridge.name(), peer.name);
                    tracing::debug!(target: "rconn", "{name}: connected");
                    tracing::debug!(target: "rconn", "{name}: entering {}", State::Active.name());
                    rconn.set_name(name);
                }
            }
            // Other connections have their turn.
            if turn.is_over(1) {
                bridge.execute(&mut packets);
                tokio::task::yield_now().await;
                turn = Turn::begin();
            }
        }
        bridge.execute(&mut packets);
    }
}

/// Returns true if handling a message may change tables, or wait for a change of them.
fn may_change_tables(message: &[u8]) -> bool {
    use MessageKind::{BarrierRequest, EchoReply, EchoRequest, Error, FeaturesRequest, GetConfigRequest};
    let kind = openflow::types::head(message).map(|head| head.row.kind);
    !matches!(
        kind,
        Ok(MessageKind::Hello | Error | EchoRequest | EchoReply | FeaturesRequest | GetConfigRequest | BarrierRequest)
    )
}

/// Applies a run of flow mods. Returns the number of messages, and their bytes.
fn run(bridge: &Ofproto, peer: &Peer, framer: &Framer) -> (u32, usize) {
    let taken = bridge.handle_run(peer, framer.messages());
    let bytes = framer.messages().take(taken).map(<[u8]>::len).sum();
    base::coverage!(vconn_received, taken as u64);
    (taken as u32, bytes)
}

/// Does the rest of a request, in turns with other connections.
async fn finish(bridge: &Arc<Ofproto>, peer: &Arc<Peer>) -> io::Result<()> {
    loop {
        if let Some(switch) = bridge.switch() {
            match peer.awaits() {
                Awaited::Nothing => {}
                Awaited::Changes => switch.settled().await,
                Awaited::Statistics => switch.counted().await,
            }
        }
        let permission: Option<Box<dyn Send>> = match peer.request_thread() {
            RequestThread::None => return Ok(()),
            RequestThread::Control => {
                let _short = bridge.short_change().await;
                if !bridge.finish_some(peer) {
                    return Ok(());
                }
                None
            }
            RequestThread::Worker => Some(match bridge.switch() {
                Some(switch) => Box::new(switch.workers.one().await),
                None => Box::new(()),
            }),
            RequestThread::LongChange => Some(Box::new(bridge.long_change().await)),
        };
        let more = match permission {
            None => true,
            Some(permission) => {
                let (bridge, peer) = (Arc::clone(bridge), Arc::clone(peer));
                let work = tokio::task::spawn_blocking(move || {
                    let _permission = permission;
                    bridge.finish_some(&peer)
                });
                work.await.map_err(io::Error::other)?
            }
        };
        if !more {
            return Ok(());
        }
        tokio::task::yield_now().await;
        let room = peer.wait_for_room(true);
        tokio::pin!(room);
        if tokio::time::timeout(STALL, &mut room).await.is_err() {
            peer.park_dump();
            room.await;
        }
    }
}

/// Logs that the stream has no more valid messages, and returns the error.
fn out_of_step(error: StreamError) -> io::Error {
    let StreamError::TooShort(len) = error;
    base::coverage!(vconn_bad_stream);
    err_rl!(&HELLO_LIMIT, target: "vconn_stream", "received too-short ofp_header ({len} bytes)");
    protocol_error()
}

fn protocol_error() -> io::Error {
    io::Error::from_raw_os_error(71) // EPROTO
}

/// The first message must be a HELLO with a common version. Logs what it is otherwise.
fn negotiate(bridge: &Arc<Ofproto>, peer: &Arc<Peer>, message: &[u8]) -> io::Result<()> {
    let ours = peer.remote.versions;
    let fail = |text: String| {
        base::coverage!(vconn_bad_hello);
        warn_rl!(&HELLO_LIMIT, target: "vconn", "{}: {text}", peer.name);
        Err(protocol_error())
    };
    let hello = match decode(message) {
        Ok((_, _, Message::Hello(hello))) => hello,
        _ => {
            let text = print(message, Style::plain(1));
            return fail(format!("received message while expecting hello: {}", text.trim_end()));
        }
    };
    let Some(version) = ours.negotiate(hello.versions) else {
        let theirs = hello.versions.newest().unwrap_or(Version::V10);
        let (ours, peers) = (ours.describe(), hello.versions.describe());
        let text = format!("We support {ours}, you support {peers}, no common versions.");
        let report = ErrorReport {
            error: openflow::switch::ReportedError::Known(OfpError::HfcIncompatible),
            data: text.into_bytes(),
        };
        errors::count(OfpError::HfcIncompatible);
        peer.send_bytes(encode(theirs, 0, &Message::Error(report)));
        return fail(format!("version negotiation failed (we support {ours}, peer supports {peers})"));
    };
    let (ours, theirs) = (ours.describe(), hello.versions.describe());
    dbg_rl!(
        &MESSAGE_LIMIT,
        target: "vconn",
        "{}: negotiated OpenFlow version 0x{:02x} (we support {ours}, peer supports {theirs})",
        peer.name,
        version.wire()
    );
    peer.agree_on(version);
    bridge.update_miss_to_controller();
    bridge.notify_of_peer(peer, ControllerReason::Channel, true);
    Ok(())
}

/// Logs an OpenFlow message at the level DBG of `vconn`, within the rate limit.
pub(super) fn log_message(peer: &Peer, what: &str, message: &[u8]) {
    dbg_rl!(&MESSAGE_LIMIT, target: "vconn", "{}: {what}: {}", peer.name, print(message, Style::plain(1)).trim_end());
}

/// Writes the queue, until the peer is gone or, once `closing` is notified, the queue is empty.
async fn write_all(
    bridge: &Arc<Ofproto>,
    peer: &Arc<Peer>,
    writer: impl AsyncWrite,
    mut outgoing: Outgoing,
    closing: &Notify,
) -> io::Result<()> {
    let mut writer = std::pin::pin!(writer);
    let mut resuming = Resuming::default();
    loop {
        resuming.proceed(bridge, peer);
        let next = tokio::select! {
            biased;
            () = closing.notified() => {
                outgoing.close();
                continue;
            }
            next = outgoing.next() => next,
            ready = resuming.ready() => {
                ready?;
                continue;
            }
        };
        let Some(mut bytes) = next else {
            // Lets TLS close the session.
            let _ = writer.shutdown().await;
            return Ok(());
        };
        log_message(peer, "sent (Success)", &bytes);
        let mut messages = 1;
        while bytes.len() < 64 << 10
            && let Some(more) = outgoing.try_next()
        {
            log_message(peer, "sent (Success)", &more);
            bytes.extend_from_slice(&more);
            messages += 1;
        }
        {
            let mut written = std::pin::pin!(write(writer.as_mut(), &bytes, |stalled| outgoing.set_stalled(stalled)));
            loop {
                tokio::select! {
                    biased;
                    done = &mut written => break done?,
                    () = tokio::time::sleep(STALL), if resuming.is_any() => {}
                }
                resuming.stall(bridge, peer).await?;
            }
        }
        base::coverage!(vconn_sent, messages);
        base::coverage!(rconn_sent, messages);
        if outgoing.sent(bytes.len()) {
            let _short = bridge.short_change().await;
            resuming.begin(bridge, peer);
        }
    }
}

/// Writes all bytes, and reports whenever the socket accepts none and when it does again.
async fn write(
    mut writer: Pin<&mut impl AsyncWrite>,
    mut bytes: &[u8],
    mut stalled: impl FnMut(bool),
) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = std::future::poll_fn(|context| {
            let written = writer.as_mut().poll_write(context, bytes);
            stalled(written.is_pending());
            written
        });
        match n.await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => bytes = bytes.get(n..).unwrap_or_default(),
        }
    }
    // TLS may have accepted bytes that it has not sent yet.
    let flushed = std::future::poll_fn(|context| {
        let flushed = writer.as_mut().poll_flush(context);
        stalled(flushed.is_pending());
        flushed
    });
    flushed.await
}
