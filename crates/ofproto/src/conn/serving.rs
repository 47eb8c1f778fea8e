//! The service of one open connection: it reads and handles messages in turns with other connections, writes the queue, and
//! probes a silent peer.

use super::errors;
use super::peer::{Awaited, Outgoing, Peer, RequestThread};
use super::rconn::{Due, Rconn, State};
use super::remote::{PeerKind, Remote};
use super::resuming::Resuming;
use crate::bridge::Ofproto;
use base::Millis;
use openflow::controller_status::ControllerReason;
use openflow::message::{Message, decode, encode};
use openflow::print::{Style, print};
use openflow::stream::{Framer, StreamError};
use openflow::switch::{ErrorReport, Hello};
use openflow::types::MessageKind;
use openflow::versions::Versions;
use openflow::{OfpError, Version};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use vlog::{RateLimit, dbg_rl, err_rl, info_rl, warn_rl};

/// The time in which a connection that is closed may send its queue.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);
/// The duration of a write after which the queue is examined.
const STALL: Duration = Duration::from_millis(100);
/// Rate limit of logged messages: messages per minute, and burst.
static MESSAGE_LIMIT: RateLimit = RateLimit::new(600, 600);
/// Rate limit of debug messages about the states of accepted connections.
pub(super) static STATE_LIMIT: RateLimit = RateLimit::new(600, 600);
/// Rate limit of log messages about failed negotiations, and malformed streams.
pub(super) static HELLO_LIMIT: RateLimit = RateLimit::new(60, 5);

/// Sleeps until the switch's clock shows `at`. A stopped clock may be advanced at any time.
pub(super) async fn sleep_until(bridge: &Ofproto, at: Millis) {
    loop {
        match at.since(bridge.now()) {
            0 => return,
            ms => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }
}

/// Returns true if the error is that of [`timed_out`], and not the system's.
pub(super) fn is_timeout(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none()
}

pub(super) fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "Connection timed out")
}

/// The reason why a connection ended without an error.
pub(super) type Ending = &'static str;
const BY_PEER: Ending = "connection closed by peer";
pub(super) const ON_REQUEST: Ending = "disconnecting";

/// The transaction id of the next HELLO.
static HELLO_XID: AtomicU32 = AtomicU32::new(1);

/// Serves one connection of this name until it ends. It counts as established when versions are negotiated. Calls `at_end`
/// while the bridge still knows the connection, unless the task is aborted.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Send>(
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
    let ended = if useful {
        serve_peer(bridge, &peer, rconn, stream, outgoing).await
    } else {
        info_rl!(&HELLO_LIMIT, target: "connmgr", "no controller connection to snoop");
        Ok(ON_REQUEST)
    };
    at_end(&ended);
    ended
}

/// Negotiates the version with a registered peer, and serves it.
async fn serve_peer(
    bridge: &Arc<Ofproto>,
    peer: &Arc<Peer>,
    rconn: &Mutex<Rconn>,
    stream: impl AsyncRead + AsyncWrite + Send,
    outgoing: Outgoing,
) -> io::Result<Ending> {
    let remote = &peer.remote;
    let (reader, writer) = tokio::io::split(stream);
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
                    // For its timeouts, an accepted connection was established at once.
                    let name = format!("{}<->{}", bridge.name(), peer.name);
                    dbg_rl!(&STATE_LIMIT, target: "rconn", "{name}: connected");
                    dbg_rl!(&STATE_LIMIT, target: "rconn", "{name}: entering {}", State::Active.name());
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
