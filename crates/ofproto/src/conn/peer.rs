//! One OpenFlow connection: its negotiated state, and its queue of messages to send.

use super::bundles::{Budget, Bundles};
use super::bundling::Commit;
use super::flow_mod_log::FlowModLog;
use super::limits::PacketInLimits;
use super::long_mods::LongMod;
use super::monitoring::MonitorAnswer;
use super::monitors::Monitors;
use super::parts::Parts;
use super::remote::{PeerKind, Remote, Settings};
use super::run::Run;
use super::stats::{FlowDump, Statistics, counts_packets};
use crate::flow_change::Requester;
use base::{Millis, PortNo};
use openflow::asynchronous::AsyncConfig;
use openflow::message::{Message, Options, try_encode_with};
use openflow::multipart::ReplyWriter;
use openflow::packet::PacketInFormat;
use openflow::role::{Role, RoleReason, RoleStatus};
use openflow::types::MessageKind;
use openflow::wire::OptionLengths;
use openflow::wire::TooLong;
use openflow::{PacketInReason, Version};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use vlog::{RateLimit, warn_rl};

/// Bytes of queued messages above which the peer's packet-ins are dropped, and its requests wait.
pub const QUEUE_BYTES_MAX: usize = 4 << 20;
/// Bytes of queued messages up to which a long reply is written before other connections have their turn.
const ANSWER_BYTES_MAX: usize = 512 << 10;
/// Bytes of queued messages above which a long reply waits.
const ANSWER_BYTES_LEFT: usize = ANSWER_BYTES_MAX / 2;
/// The largest number of queued bytes of asynchronous messages, without packet-ins. None of these may be lost: a peer that
/// lets more of them wait is disconnected.
pub(crate) const UNSOLICITED_BYTES_MAX: usize = 16 << 20;
/// The number of packet-ins that may wait for the control thread, while the connection sends without delay.
const HAND_OVER_MAX: usize = 1024;

/// The bit of packet-ins for expired TTLs in asynchronous masks.
const INVALID_TTL: u32 = 1 << PacketInReason::InvalidTtl.number();
/// The length of packets in packet-ins that a connection begins with, if it receives asynchronous messages (OpenFlow 1.0
/// section 5.3.2).
pub(super) const MISS_SEND_LEN_DEFAULT: u16 = 128;

/// Rate limit of log messages about connections that do not read: messages per minute, and burst.
static OVERWHELMED_LIMIT: RateLimit = RateLimit::new(60, 5);
/// The next connection's number.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A connection.
#[derive(Debug)]
pub struct Peer {
    id: u64,
    /// The configured peer.
    pub remote: Arc<Remote>,
    /// The name of the connection in logs: the target, or for an accepted connection the peer.
    pub(crate) name: String,
    pub(crate) state: Mutex<PeerState>,
    pub(super) bundles: Mutex<Bundles>,
    /// Flow mods that the log will name.
    pub(super) flow_mods: Mutex<FlowModLog>,
    /// Buffers for decoded flow mods.
    pub(crate) run: Mutex<Run>,
    pub(super) parts: Mutex<Parts>,
    /// The rest of a request; the next request waits for its end.
    pub(super) pending: Mutex<Option<PendingRequest>>,
    pub(super) monitors: Mutex<Monitors>,
    /// True if these want changes of flows.
    monitoring: AtomicBool,
    /// Packet-ins that wait for their rate limit.
    pub(crate) limits: PacketInLimits,
    /// Notified to close the connection.
    pub(super) hang_up: Notify,
    /// Notified when versions are negotiated.
    pub(super) agreed: Notify,
    connected_at: Millis,
    /// The task that serves the connection.
    pub(super) task: Option<tokio::task::Id>,
    /// True if the peer has shown that it controls the bridge.
    admitted: AtomicBool,
    /// Set if too many asynchronous messages wait: the peer is being disconnected.
    overwhelmed: AtomicBool,
    out: UnboundedSender<Queued>,
    usage: Arc<QueueUse>,
}

/// A request that takes so long that other connections have their turn meanwhile.
#[derive(Debug)]
pub(crate) enum PendingRequest {
    /// A reply with flow statistics, message by message. For a worker thread, as there may be many flows.
    Flows(Box<FlowDump>),
    /// The initial updates of new flow monitors.
    Monitors(Box<MonitorAnswer>),
    /// A bundle to commit, for a worker thread.
    Bundle(Box<Commit>),
    /// A flow mod or group mod that may concern many flows, for a worker thread.
    Mod(Box<LongMod>),
    /// A barrier, by the transaction id of its request. It waits until cached flows follow all changes.
    Barrier(u32),
    /// A statistics request. Statistics are pushed first if it reports counters. For a worker thread, as there may be many
    /// flows or ports.
    Stats(Box<Statistics>),
    /// The next message waits until cached flows follow all changes.
    Settle,
}

/// The thread that continues a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestThread {
    /// There is no request to continue.
    None,
    /// The control thread.
    Control,
    /// A worker thread.
    Worker,
    /// A worker thread, which makes a long change of tables.
    LongChange,
}

/// The condition for which the connection waits before it continues a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    Nothing,
    /// Cached flows follow all changes.
    Changes,
    /// Statistics have been pushed.
    Statistics,
}

/// The use of a send queue.
#[derive(Debug, Default)]
struct QueueUse {
    bytes: AtomicUsize,
    packet_ins: AtomicUsize,
    /// Bytes of updates of flow monitors.
    monitored: AtomicUsize,
    /// Notified when messages have been sent.
    left: Notify,
    /// Bytes of asynchronous messages, without packet-ins.
    unsolicited: AtomicUsize,
    /// True if the socket did not accept all bytes of the last write.
    stalled: AtomicBool,
}

/// Bytes of whole messages in the send queue.
#[derive(Debug)]
struct Queued {
    bytes: Vec<u8>,
    kind: QueuedKind,
}

/// The kinds of messages that are counted separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueuedKind {
    PacketIn,
    /// Updates of flow monitors.
    Monitored,
    /// Asynchronous messages, without packet-ins.
    Unsolicited,
    Other,
}

/// The negotiated state.
#[derive(Clone, Debug)]
pub(crate) struct PeerState {
    /// Set once both HELLOs have arrived.
    pub version: Option<Version>,
    pub role: Role,
    pub options: Options,
    pub packet_in_format: PacketInFormat,
    pub controller_id: u16,
    pub miss_send_len: u16,
    pub asynchronous: AsyncConfig,
}

/// The receiver of a peer's queue, for the socket's writer.
#[derive(Debug)]
pub(crate) struct Outgoing {
    receiver: UnboundedReceiver<Queued>,
    usage: Arc<QueueUse>,
    /// Packet-ins that were taken and not sent yet.
    packet_ins: usize,
    /// Bytes of flow monitor updates that were taken and not sent yet.
    monitored: usize,
    /// Bytes of asynchronous messages that were taken and not sent yet.
    unsolicited: usize,
}

impl Outgoing {
    /// Returns the next message to send; `None` once the peer is gone.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        self.receiver.recv().await.map(|queued| self.take(queued))
    }

    /// Returns another message without waiting.
    pub(crate) fn try_next(&mut self) -> Option<Vec<u8>> {
        self.receiver.try_recv().ok().map(|queued| self.take(queued))
    }

    fn take(&mut self, queued: Queued) -> Vec<u8> {
        match queued.kind {
            QueuedKind::PacketIn => self.packet_ins += 1,
            QueuedKind::Monitored => self.monitored += queued.bytes.len(),
            QueuedKind::Unsolicited => self.unsolicited += queued.bytes.len(),
            QueuedKind::Other => {}
        }
        queued.bytes
    }

    /// Closes the queue: `next` returns the messages in it, then `None`.
    pub(crate) fn close(&mut self) {
        self.receiver.close();
    }

    /// Records that everything taken was sent: `n` bytes. Returns true if that included the last update of flow monitors.
    pub(crate) fn sent(&mut self, n: usize) -> bool {
        self.usage.bytes.fetch_sub(n, Ordering::Relaxed);
        self.usage.left.notify_one();
        self.usage.packet_ins.fetch_sub(std::mem::take(&mut self.packet_ins), Ordering::Relaxed);
        self.usage.unsolicited.fetch_sub(std::mem::take(&mut self.unsolicited), Ordering::Relaxed);
        let monitored = std::mem::take(&mut self.monitored);
        monitored > 0 && self.usage.monitored.fetch_sub(monitored, Ordering::Relaxed) == monitored
    }

    /// Records whether the socket accepts bytes.
    pub(crate) fn set_stalled(&self, stalled: bool) {
        self.usage.stalled.store(stalled, Ordering::Relaxed);
    }
}

impl Peer {
    /// Creates a connection that begins `now`; `budget` limits its bundles.
    pub(crate) fn new(remote: Arc<Remote>, name: String, now: Millis, budget: Arc<Budget>) -> (Arc<Self>, Outgoing) {
        let (out, receiver) = unbounded_channel();
        let usage = Arc::new(QueueUse::default());
        let state = PeerState {
            version: None,
            role: Role::Equal,
            options: Options::default(),
            packet_in_format: PacketInFormat::Standard,
            controller_id: 0,
            miss_send_len: if remote.kind == PeerKind::Controller { MISS_SEND_LEN_DEFAULT } else { 0 },
            asynchronous: if remote.settings().asynchronous { default_async() } else { AsyncConfig::default() },
        };
        let peer = Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            remote,
            name,
            state: Mutex::new(state),
            bundles: Mutex::new(Bundles::new(budget)),
            flow_mods: Mutex::default(),
            run: Mutex::default(),
            parts: Mutex::default(),
            pending: Mutex::default(),
            monitors: Mutex::default(),
            monitoring: AtomicBool::new(false),
            limits: PacketInLimits::default(),
            hang_up: Notify::new(),
            agreed: Notify::new(),
            connected_at: now,
            task: tokio::task::try_id(),
            admitted: AtomicBool::new(false),
            overwhelmed: AtomicBool::new(false),
            out,
            usage: Arc::clone(&usage),
        };
        (Arc::new(peer), Outgoing { receiver, usage, packet_ins: 0, monitored: 0, unsolicited: 0 })
    }

    /// Sets the negotiated version, which selects the default asynchronous messages.
    pub(crate) fn agree_on(&self, version: Version) {
        let mut state = self.state.lock();
        state.version = Some(version);
        state.asynchronous.flow_removed[0] &= match version {
            Version::V10 | Version::V11 | Version::V12 => 0x07,
            Version::V13 => 0x0f,
            Version::V14 | Version::V15 => 0x3f,
        };
    }

    /// Queues a message. Before the versions are negotiated nothing is sent except HELLO and errors, which their senders
    /// encode.
    pub(crate) fn send(&self, xid: u32, message: &Message) {
        let (version, options) = {
            let state = self.state.lock();
            (state.version, state.options)
        };
        if let Some(version) = version {
            self.send_bytes(self.encode(version, xid, message, options));
        }
    }

    /// Queues an asynchronous message. If too many wait, the peer is disconnected: it could not know what it
    /// missed otherwise, and the queue must be bounded.
    pub(crate) fn notify(&self, message: &Message) {
        if self.overwhelmed.load(Ordering::Relaxed) {
            return;
        }
        if self.usage.unsolicited.load(Ordering::Relaxed) < UNSOLICITED_BYTES_MAX {
            let (version, options) = {
                let state = self.state.lock();
                (state.version, state.options)
            };
            if let Some(version) = version {
                self.queue(Queued { bytes: self.encode(version, 0, message, options), kind: QueuedKind::Unsolicited });
            }
        } else if !self.overwhelmed.swap(true, Ordering::Relaxed) {
            let target = &self.name;
            warn_rl!(&OVERWHELMED_LIMIT, target: "connmgr", "{target}: does not read its messages, disconnecting");
            self.hang_up.notify_one();
        }
    }

    /// Encodes a message. Empty if it is too long, which is reported, or if `version` has no such message.
    fn encode(&self, version: Version, xid: u32, message: &Message, options: Options) -> Vec<u8> {
        try_encode_with(version, xid, message, options).unwrap_or_else(|TooLong| {
            self.report_too_long(message.kind(), 1);
            Vec::new()
        })
    }

    /// Queues bytes of whole messages.
    pub(crate) fn send_bytes(&self, bytes: Vec<u8>) {
        self.queue(Queued { bytes, kind: QueuedKind::Other });
    }

    /// Queues bytes of whole messages of flow monitors.
    pub(super) fn send_monitored(&self, bytes: Vec<u8>) {
        self.queue(Queued { bytes, kind: QueuedKind::Monitored });
    }

    fn queue(&self, queued: Queued) {
        if queued.bytes.is_empty() {
            return;
        }
        base::coverage!(rconn_queued);
        // Snoopers do not see the version negotiation.
        if self.version().is_some() {
            self.remote.snoop(&queued.bytes);
        }
        self.usage.bytes.fetch_add(queued.bytes.len(), Ordering::Relaxed);
        match queued.kind {
            QueuedKind::PacketIn => _ = self.usage.packet_ins.fetch_add(1, Ordering::Relaxed),
            QueuedKind::Monitored => _ = self.usage.monitored.fetch_add(queued.bytes.len(), Ordering::Relaxed),
            QueuedKind::Unsolicited => _ = self.usage.unsolicited.fetch_add(queued.bytes.len(), Ordering::Relaxed),
            QueuedKind::Other => {}
        }
        // An error means that the connection is being closed, and has no reader.
        let _ = self.out.send(queued);
    }

    /// Queues the packet-in that `message` makes, for a packet from `port`: at once, or as its rate limit
    /// allows. Returns the number of packet-ins dropped because the queue was full; the limiter may drop more, which it counts.
    pub(crate) fn send_packet_in(
        &self,
        reason: PacketInReason,
        port: PortNo,
        now: Millis,
        message: impl FnOnce() -> Message,
    ) -> u64 {
        let (version, options) = {
            let state = self.state.lock();
            (state.version, state.options)
        };
        let Some(version) = version else { return 0 };
        let Settings { packet_in_limit: limit, packet_in_queue, .. } = self.remote.settings();
        let limited = limit.is_some() || self.limits.is_limited();
        // A packet-in that would be dropped is not encoded.
        if !limited && !self.has_room_for_packet_in(packet_in_queue) {
            return 1;
        }
        let bytes = self.encode(version, 0, &message(), options);
        if bytes.is_empty() {
            return 0;
        }
        if !limited {
            self.queue(Queued { bytes, kind: QueuedKind::PacketIn });
            return 0;
        }
        let mut lost = 0;
        self.limits.offer(limit, reason, (port, bytes), now, |bytes| {
            lost += u64::from(!self.queue_packet_in(bytes, packet_in_queue));
        });
        lost
    }

    /// Queues packet-ins whose rate limit allows it now. Returns the number dropped because the queue was full.
    pub(crate) fn release_packet_ins(&self, now: Millis) -> u64 {
        let mut lost = 0;
        let Settings { packet_in_limit, packet_in_queue, .. } = self.remote.settings();
        self.limits
            .release(packet_in_limit, now, |bytes| lost += u64::from(!self.queue_packet_in(bytes, packet_in_queue)));
        lost
    }

    fn queue_packet_in(&self, bytes: Vec<u8>, queue_max: usize) -> bool {
        let has_room = self.has_room_for_packet_in(queue_max);
        if has_room {
            self.queue(Queued { bytes, kind: QueuedKind::PacketIn });
        }
        has_room
    }

    /// Returns true if a packet-in may be queued: up to `queue_max` wait while the connection is not read.
    fn has_room_for_packet_in(&self, queue_max: usize) -> bool {
        let stalled = self.usage.stalled.load(Ordering::Relaxed);
        let max = if stalled { queue_max } else { queue_max.max(HAND_OVER_MAX) };
        self.has_room() && self.usage.packet_ins.load(Ordering::Relaxed) < max
    }

    /// Records a message, and whether it shows that the peer controls the bridge; staying connected for `settled_ms` shows it
    /// too.
    /// Returns true if this is the first time.
    pub(super) fn heard(&self, shows_control: bool, settled_ms: u64, now: Millis) -> bool {
        let was = self.is_admitted();
        if !was && !shows_control && now.since(self.connected_at) < settled_ms {
            return false;
        }
        self.remote.admit(now);
        self.admitted.store(true, Ordering::Relaxed);
        !was
    }

    /// Returns true if the peer has shown that it controls the bridge.
    pub(super) fn is_admitted(&self) -> bool {
        self.admitted.load(Ordering::Relaxed)
    }

    /// The number of bytes that wait to be sent.
    pub fn queued(&self) -> usize {
        self.usage.bytes.load(Ordering::Relaxed)
    }

    /// The number of bytes of flow monitor updates that wait to be sent.
    pub(super) fn monitored_bytes(&self) -> usize {
        self.usage.monitored.load(Ordering::Relaxed)
    }

    /// Returns true if its flow monitors want changes of flows.
    pub(super) fn is_monitoring(&self) -> bool {
        self.monitoring.load(Ordering::Relaxed)
    }

    /// Updates whether its flow monitors, which have changed, want changes of flows.
    pub(super) fn set_monitoring(&self, monitors: &Monitors) {
        self.monitoring.store(!monitors.is_empty() || monitors.is_paused(), Ordering::Relaxed);
    }

    /// The connection's number.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// The connection as the requester of a message with this transaction id.
    pub(super) fn requester(&self, xid: u32) -> Requester {
        Requester { peer: self.id, xid }
    }

    /// The number of packet-ins that wait for their rate limit or to be sent.
    pub fn packet_ins_waiting(&self) -> u64 {
        let limited: u64 = self.limits.stats().iter().flatten().map(|stats| stats.backlog).sum();
        limited + self.usage.packet_ins.load(Ordering::Relaxed) as u64
    }

    /// Returns true if messages that may be lost can be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.queued() < QUEUE_BYTES_MAX
    }

    /// Returns true if more of a long reply may be queued.
    pub(super) fn has_room_for_answer(&self) -> bool {
        self.queued() < ANSWER_BYTES_MAX
    }

    /// Returns true if a part of a request remains.
    pub(super) fn has_pending(&self) -> bool {
        self.pending.lock().is_some()
    }

    /// Returns the thread that continues the pending request.
    pub(super) fn request_thread(&self) -> RequestThread {
        match *self.pending.lock() {
            Some(PendingRequest::Bundle(_) | PendingRequest::Mod(_)) => RequestThread::LongChange,
            Some(PendingRequest::Stats(_) | PendingRequest::Flows(_)) => RequestThread::Worker,
            // Collecting flows takes long.
            Some(PendingRequest::Monitors(ref answer)) if answer.is_parked() => RequestThread::Worker,
            Some(_) => RequestThread::Control,
            None => RequestThread::None,
        }
    }

    /// Returns the condition for which the pending request waits.
    pub(super) fn awaits(&self) -> Awaited {
        match *self.pending.lock() {
            Some(PendingRequest::Barrier(_) | PendingRequest::Settle) => Awaited::Changes,
            Some(PendingRequest::Stats(ref request)) if counts_packets(&request.body) => Awaited::Statistics,
            _ => Awaited::Nothing,
        }
    }

    /// Makes [`Peer::wait_for_room`] check again whether a reply may continue.
    pub(super) fn recheck_room(&self) {
        self.usage.left.notify_one();
    }

    /// Drops the flows that a dump holds, because the peer does not read.
    pub(crate) fn park_dump(&self) {
        match &mut *self.pending.lock() {
            Some(PendingRequest::Flows(dump)) => dump.park(),
            Some(PendingRequest::Monitors(answer)) => answer.park(),
            _ => {}
        }
    }

    /// Waits until few enough bytes are queued to serve a request. The continuation of a reply waits for a smaller queue,
    /// so that it is written no faster than it is read, unless too many changes are deferred for it.
    pub(crate) async fn wait_for_room(&self, going_on: bool) {
        let max = if going_on { ANSWER_BYTES_LEFT } else { QUEUE_BYTES_MAX };
        while self.queued() > max && !(going_on && self.monitors.lock().is_overdue()) {
            self.usage.left.notified().await;
        }
    }

    /// The negotiated version.
    pub fn version(&self) -> Option<Version> {
        self.state.lock().version
    }

    /// Sets the lengths of mapped tunnel options in messages to the peer.
    pub(super) fn set_option_lengths(&self, lengths: OptionLengths) {
        self.state.lock().options.option_lengths = lengths;
    }

    /// Begins a reply in several parts; `None` if `version` has no such reply.
    pub(super) fn reply_writer(&self, version: Version, xid: u32, kind: MessageKind) -> Option<ReplyWriter> {
        let lengths = self.state.lock().options.option_lengths;
        ReplyWriter::new(version, xid, kind).map(|writer| writer.with_option_lengths(lengths))
    }

    /// The options for decoding its messages, and the negotiated version.
    pub(super) fn speaks(&self) -> (Options, Option<Version>) {
        let state = self.state.lock();
        (state.options, state.version)
    }

    /// The role.
    pub fn role(&self) -> Role {
        self.state.lock().role
    }

    /// Demotes it because another controller became primary (OpenFlow 1.3 section 6.3.6): a former primary is notified, whatever
    /// asynchronous messages it asked for, as it could not know otherwise that it can change nothing any more. Returns true if
    /// it was primary.
    pub(crate) fn demote(&self, generation_id: Option<u64>) -> bool {
        {
            let mut state = self.state.lock();
            if state.role != Role::Primary {
                return false;
            }
            state.role = Role::Secondary;
        }
        let reason = RoleReason::PrimaryRequest;
        self.notify(&Message::RoleStatus(RoleStatus { role: Role::Secondary, reason, generation_id }));
        true
    }

    /// Returns true if this peer wants an asynchronous message with this bit in the masks that `which` selects.
    pub(crate) fn wants(&self, which: impl Fn(&AsyncConfig) -> [u32; 2], bit: u32) -> bool {
        let state = self.state.lock();
        if state.version.is_none()
            || self.remote.kind == PeerKind::Snoop
            || (self.remote.kind == PeerKind::Service && state.miss_send_len == 0)
        {
            return false;
        }
        let masks = which(&state.asynchronous);
        let mask = if state.role == Role::Secondary { masks[1] } else { masks[0] };
        mask & 1 << bit != 0
    }
}

impl PeerState {
    /// Returns true if packet-ins for expired TTLs are sent to it as a primary or equal controller: in the configuration of
    /// OpenFlow before 1.3, a flag for one bit of the masks.
    pub(super) fn invalid_ttl(&self) -> bool {
        self.asynchronous.packet_in[0] & INVALID_TTL != 0
    }

    /// Sets this bit of the masks. A later change of the masks replaces it.
    pub(super) fn set_invalid_ttl(&mut self, on: bool) {
        let mask = &mut self.asynchronous.packet_in[0];
        *mask = if on { *mask | INVALID_TTL } else { *mask & !INVALID_TTL };
    }
}

/// The default asynchronous messages of a controller (OpenFlow 1.3 section 6.3.6): all except expired
/// TTLs as a primary or equal controller, port status only as a secondary one.
fn default_async() -> AsyncConfig {
    let all_reasons = !INVALID_TTL & 0x3f;
    AsyncConfig { packet_in: [all_reasons, 0], port_status: [7, 7], flow_removed: [0x3f, 0], ..AsyncConfig::default() }
}
