//! One OpenFlow connection: what was agreed on it, and its queue of messages to send.

use super::bundles::{Budget, Bundles};
use super::bundling::Commit;
use super::limits::PacketInLimits;
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
use openflow::packet::PacketInFormat;
use openflow::role::{Role, RoleReason, RoleStatus};
use openflow::wire::TooLong;
use openflow::{PacketInReason, Version};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use vlog::{RateLimit, warn_rl};

/// Bytes queued to a peer above which its packet-ins are dropped, and its requests wait.
pub const QUEUE_BYTES_MAX: usize = 4 << 20;
/// Bytes queued to a peer up to which a long answer is written before others have their turn.
const ANSWER_BYTES_MAX: usize = 512 << 10;
/// Bytes queued to a peer above which a long answer is not gone on with.
const ANSWER_BYTES_LEFT: usize = ANSWER_BYTES_MAX / 2;
/// Bytes of asynchronous messages, packet-ins aside, that may wait to be sent. None of these may be lost: a peer that lets
/// more of them wait is disconnected.
pub(crate) const UNSOLICITED_BYTES_MAX: usize = 16 << 20;
/// Packet-ins that may wait for the control thread to take them, while the connection takes all that it is given.
const HAND_OVER_MAX: usize = 1024;

/// Messages a minute about connections that do not read, and in one burst.
static OVERWHELMED_LIMIT: RateLimit = RateLimit::new(60, 5);
/// Numbers of connections: each has one of its own.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A connection.
#[derive(Debug)]
pub struct Peer {
    id: u64,
    /// Whom it is to.
    pub remote: Arc<Remote>,
    pub(crate) state: Mutex<PeerState>,
    pub(super) bundles: Mutex<Bundles>,
    /// Where flow modifications are read to.
    pub(crate) run: Mutex<Run>,
    pub(super) parts: Mutex<Parts>,
    /// What is left to do of a request; the next one waits for its end.
    pub(super) unfinished: Mutex<Option<Unfinished>>,
    pub(super) monitors: Mutex<Monitors>,
    /// Whether these have anything to do.
    watching: AtomicBool,
    /// Packet-ins that wait for their turn.
    pub(crate) limits: PacketInLimits,
    /// Notified when the connection is to be closed.
    pub(super) hang_up: Notify,
    /// Notified when versions are agreed on.
    pub(super) agreed: Notify,
    connected_at: Millis,
    /// The task that serves it.
    pub(super) task: Option<tokio::task::Id>,
    /// Whether it has shown that it controls the bridge.
    admitted: AtomicBool,
    /// Set if too many asynchronous messages wait: it is being disconnected.
    overwhelmed: AtomicBool,
    out: UnboundedSender<Queued>,
    usage: Arc<QueueUse>,
}

/// A request that takes too long to be served without a break, or beside which others are to be served.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// Flow statistics, message by message. For another thread, as there may be many flows.
    Flows(Box<FlowDump>),
    /// What new flow monitors are told of the flows that there are.
    Monitors(Box<MonitorAnswer>),
    /// A bundle to be committed: for another thread.
    Bundle(Box<Commit>),
    /// A barrier, by the number of its request. It waits until cached flows follow all changes.
    Barrier(u32),
    /// A request for statistics, which are pushed first if they are of packets. For another thread, as there may be many
    /// flows or ports.
    Stats(Box<Statistics>),
    /// The next message waits until cached flows follow all changes.
    Settle,
}

/// Where a request is gone on with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// There is nothing left to do.
    Nowhere,
    /// On the control thread.
    Here,
    /// On a worker thread.
    Worker,
    /// On a worker thread, as a long change of tables.
    Changer,
}

/// What the connection waits for before it goes on with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    Nothing,
    /// Cached flows follow all changes.
    Changes,
    /// Statistics have been pushed.
    Statistics,
}

/// What waits to be sent.
#[derive(Debug, Default)]
struct QueueUse {
    bytes: AtomicUsize,
    packet_ins: AtomicUsize,
    /// Bytes of what flow monitors tell.
    monitored: AtomicUsize,
    /// Notified when something has left.
    left: Notify,
    /// Bytes of asynchronous messages, packet-ins aside.
    unsolicited: AtomicUsize,
    /// Whether the socket did not take what it was last given.
    stalled: AtomicBool,
}

/// Bytes of whole messages that wait to be sent.
#[derive(Debug)]
struct Queued {
    bytes: Vec<u8>,
    kind: QueuedKind,
}

/// What is counted apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueuedKind {
    PacketIn,
    /// What flow monitors tell.
    Monitored,
    /// Asynchronous messages, packet-ins aside.
    Unsolicited,
    Other,
}

/// What was agreed on.
#[derive(Clone, Debug)]
pub(crate) struct PeerState {
    /// Set once both HELLOs are there.
    pub version: Option<Version>,
    pub role: Role,
    pub options: Options,
    pub packet_in_format: PacketInFormat,
    pub controller_id: u16,
    pub miss_send_len: u16,
    pub invalid_ttl: bool,
    pub asynchronous: AsyncConfig,
}

/// The other end of a peer's queue: what the socket's writer takes from.
#[derive(Debug)]
pub(crate) struct Outgoing {
    receiver: UnboundedReceiver<Queued>,
    usage: Arc<QueueUse>,
    /// Packet-ins that were taken and have not left.
    packet_ins: usize,
    /// Bytes of what flow monitors tell that were taken and have not left.
    monitored: usize,
    /// The same of asynchronous messages.
    unsolicited: usize,
}

impl Outgoing {
    /// The next message to send; `None` once the peer is gone.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        self.receiver.recv().await.map(|queued| self.take(queued))
    }

    /// More messages that are there already, without waiting.
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

    /// Takes no more messages: `next` returns those that are there, then `None`.
    pub(crate) fn close(&mut self) {
        self.receiver.close();
    }

    /// All that was taken has left: `n` bytes. Whether nothing is left of what flow monitors tell, and there was something.
    pub(crate) fn sent(&mut self, n: usize) -> bool {
        self.usage.bytes.fetch_sub(n, Ordering::Relaxed);
        self.usage.left.notify_one();
        self.usage.packet_ins.fetch_sub(std::mem::take(&mut self.packet_ins), Ordering::Relaxed);
        self.usage.unsolicited.fetch_sub(std::mem::take(&mut self.unsolicited), Ordering::Relaxed);
        let monitored = std::mem::take(&mut self.monitored);
        monitored > 0 && self.usage.monitored.fetch_sub(monitored, Ordering::Relaxed) == monitored
    }

    /// Whether the socket has not taken what it was given.
    pub(crate) fn set_stalled(&self, stalled: bool) {
        self.usage.stalled.store(stalled, Ordering::Relaxed);
    }
}

impl Peer {
    /// A connection that begins `now`; what its bundles take comes out of `budget`.
    pub(crate) fn new(remote: Arc<Remote>, now: Millis, budget: Arc<Budget>) -> (Arc<Self>, Outgoing) {
        let (out, receiver) = unbounded_channel();
        let usage = Arc::new(QueueUse::default());
        let state = PeerState {
            version: None,
            role: Role::Equal,
            options: Options::default(),
            packet_in_format: PacketInFormat::Standard,
            controller_id: 0,
            miss_send_len: if remote.kind == PeerKind::Controller { 128 } else { 0 },
            invalid_ttl: false,
            asynchronous: if remote.settings().asynchronous { default_async() } else { AsyncConfig::default() },
        };
        let peer = Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            remote,
            state: Mutex::new(state),
            bundles: Mutex::new(Bundles::new(budget)),
            run: Mutex::default(),
            parts: Mutex::default(),
            unfinished: Mutex::default(),
            monitors: Mutex::default(),
            watching: AtomicBool::new(false),
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

    /// Notes the version that was agreed on, which says of what else a peer hears that has not asked.
    pub(crate) fn agree_on(&self, version: Version) {
        let mut state = self.state.lock();
        state.version = Some(version);
        state.asynchronous.flow_removed[0] &= match version {
            Version::V10 | Version::V11 | Version::V12 => 0x07,
            Version::V13 => 0x0f,
            Version::V14 | Version::V15 => 0x3f,
        };
    }

    /// Queues a message. Nothing is sent before the versions are agreed on, but HELLO and errors, which are encoded by
    /// who sends them.
    pub(crate) fn send(&self, xid: u32, message: &Message) {
        let (version, options) = {
            let state = self.state.lock();
            (state.version, state.options)
        };
        if let Some(version) = version {
            self.send_bytes(self.encode(version, xid, message, options));
        }
    }

    /// Queues a message that the peer has not asked for. If too many wait, it is disconnected: it would not know what it
    /// missed otherwise, and those that wait take no end of memory.
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
            let target = &self.remote.target;
            warn_rl!(&OVERWHELMED_LIMIT, target: "connmgr", "{target}: does not read what it is told, disconnecting");
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

    /// Queues bytes of whole messages that flow monitors tell.
    pub(super) fn send_monitored(&self, bytes: Vec<u8>) {
        self.queue(Queued { bytes, kind: QueuedKind::Monitored });
    }

    fn queue(&self, queued: Queued) {
        if queued.bytes.is_empty() {
            return;
        }
        base::coverage!(rconn_queued);
        // Whoever snoops does not see how versions are agreed on.
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
        // An error means that the connection is being closed: nobody is left to read it.
        let _ = self.out.send(queued);
    }

    /// Queues the packet-in that `message` makes, of a packet that came in on `port`: at once, or as its rate limit lets
    /// it. Returns how many there was no room for, it or some that waited; the limiter may still drop it, which it counts.
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
        // What would be dropped is not made first.
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

    /// Queues packet-ins that have waited long enough. Returns how many there was no room for.
    pub(crate) fn release_packet_ins(&self, now: Millis) -> u64 {
        let mut lost = 0;
        let Settings { packet_in_limit, packet_in_queue, .. } = self.remote.settings();
        self.limits
            .release(packet_in_limit, now, |bytes| lost += u64::from(!self.queue_packet_in(bytes, packet_in_queue)));
        lost
    }

    fn queue_packet_in(&self, bytes: Vec<u8>, queue_max: usize) -> bool {
        let room = self.has_room_for_packet_in(queue_max);
        if room {
            self.queue(Queued { bytes, kind: QueuedKind::PacketIn });
        }
        room
    }

    /// Whether few enough packet-ins wait: `queue_max` if the connection does not take what it is given.
    fn has_room_for_packet_in(&self, queue_max: usize) -> bool {
        let stalled = self.usage.stalled.load(Ordering::Relaxed);
        let max = if stalled { queue_max } else { queue_max.max(HAND_OVER_MAX) };
        self.has_room() && self.usage.packet_ins.load(Ordering::Relaxed) < max
    }

    /// Notes a message, which shows that the peer controls the bridge or does not; so does staying for `settled_ms`.
    /// Whether this is the first that does.
    pub(super) fn heard(&self, shows_control: bool, settled_ms: u64, now: Millis) -> bool {
        let was = self.is_admitted();
        if !was && !shows_control && now.since(self.connected_at) < settled_ms {
            return false;
        }
        self.remote.admit(now);
        self.admitted.store(true, Ordering::Relaxed);
        !was
    }

    /// Whether it has shown that it controls the bridge.
    pub(super) fn is_admitted(&self) -> bool {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Bytes that wait to be sent.
    pub fn queued(&self) -> usize {
        self.usage.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of what flow monitors tell that wait to be sent.
    pub(super) fn monitored_bytes(&self) -> usize {
        self.usage.monitored.load(Ordering::Relaxed)
    }

    /// Whether its flow monitors are to hear of changes of flows.
    pub(super) fn is_watching(&self) -> bool {
        self.watching.load(Ordering::Relaxed)
    }

    /// Notes whether its flow monitors, which have changed, are to hear of changes of flows.
    pub(super) fn set_watching(&self, monitors: &Monitors) {
        self.watching.store(!monitors.is_empty() || monitors.is_paused(), Ordering::Relaxed);
    }

    /// Its number.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// It, as it asks for something by a message of this number.
    pub(super) fn requester(&self, xid: u32) -> Requester {
        Requester { peer: self.id, xid }
    }

    /// Packet-ins that wait, for their turn or to be sent.
    pub fn packet_ins_waiting(&self) -> u64 {
        let limited: u64 = self.limits.stats().iter().flatten().map(|stats| stats.backlog).sum();
        limited + self.usage.packet_ins.load(Ordering::Relaxed) as u64
    }

    /// Whether there is room for messages that may be lost.
    pub(crate) fn has_room(&self) -> bool {
        self.queued() < QUEUE_BYTES_MAX
    }

    /// Whether more of a long answer may be queued.
    pub(super) fn has_room_for_answer(&self) -> bool {
        self.queued() < ANSWER_BYTES_MAX
    }

    /// Where the unfinished request is gone on with.
    pub(super) fn place(&self) -> Place {
        match *self.unfinished.lock() {
            Some(Unfinished::Bundle(_)) => Place::Changer,
            Some(Unfinished::Stats(_) | Unfinished::Flows(_)) => Place::Worker,
            // Collecting flows takes long.
            Some(Unfinished::Monitors(ref answer)) if answer.is_parked() => Place::Worker,
            Some(_) => Place::Here,
            None => Place::Nowhere,
        }
    }

    /// What the unfinished request waits for.
    pub(super) fn awaits(&self) -> Awaited {
        match *self.unfinished.lock() {
            Some(Unfinished::Barrier(_) | Unfinished::Settle) => Awaited::Changes,
            Some(Unfinished::Stats(ref request)) if counts_packets(&request.body) => Awaited::Statistics,
            _ => Awaited::Nothing,
        }
    }

    /// Has [`Peer::wait_for_room`] look again whether an answer is to go on.
    pub(super) fn hurry(&self) {
        self.usage.left.notify_one();
    }

    /// Lets go of what a dump holds, as the peer does not read.
    pub(crate) fn park_dump(&self) {
        match &mut *self.unfinished.lock() {
            Some(Unfinished::Flows(dump)) => dump.park(),
            Some(Unfinished::Monitors(answer)) => answer.park(),
            _ => {}
        }
    }

    /// Waits until few enough bytes are queued for a request to be served: an answer that is gone on with waits earlier,
    /// to be made no faster than it is read, unless too much waits for its end.
    pub(crate) async fn wait_for_room(&self, going_on: bool) {
        let max = if going_on { ANSWER_BYTES_LEFT } else { QUEUE_BYTES_MAX };
        while self.queued() > max && !(going_on && self.monitors.lock().is_overdue()) {
            self.usage.left.notified().await;
        }
    }

    /// The version agreed on.
    pub fn version(&self) -> Option<Version> {
        self.state.lock().version
    }

    /// How its messages are read, and the version that was agreed on.
    pub(super) fn speaks(&self) -> (Options, Option<Version>) {
        let state = self.state.lock();
        (state.options, state.version)
    }

    /// The role.
    pub fn role(&self) -> Role {
        self.state.lock().role
    }

    /// Another one is primary from now on (OpenFlow 1.3 section 6.3.6): if it was this one, it is told. Whether it was.
    pub(crate) fn demote(&self, generation_id: Option<u64>) -> bool {
        {
            let mut state = self.state.lock();
            if state.role != Role::Primary {
                return false;
            }
            state.role = Role::Secondary;
        }
        let reason = RoleReason::PrimaryRequest;
        if self.wants(|a| a.role_status, reason.wire().into()) {
            self.notify(&Message::RoleStatus(RoleStatus { role: Role::Secondary, reason, generation_id }));
        }
        true
    }

    /// Whether an asynchronous message with this bit in the masks that `which` picks is for this peer.
    pub(crate) fn wants(&self, which: impl Fn(&AsyncConfig) -> [u32; 2], bit: u32) -> bool {
        let state = self.state.lock();
        if state.version.is_none()
            || self.remote.kind == PeerKind::Snoop
            || (self.remote.kind == PeerKind::Service && state.miss_send_len == 0)
        {
            return false;
        }
        let mut asynchronous = state.asynchronous;
        if state.invalid_ttl {
            asynchronous.packet_in.iter_mut().for_each(|mask| *mask |= 1 << PacketInReason::InvalidTtl as u32);
        }
        let masks = which(&asynchronous);
        let mask = if state.role == Role::Secondary { masks[1] } else { masks[0] };
        mask & 1 << bit != 0
    }
}

/// What a controller gets unless it says otherwise (OpenFlow 1.3 section 6.3.6): as primary or equal all but expired
/// TTLs, as secondary port status only.
fn default_async() -> AsyncConfig {
    let all_reasons = !(1 << PacketInReason::InvalidTtl as u32) & 0x3f;
    AsyncConfig { packet_in: [all_reasons, 0], port_status: [7, 7], flow_removed: [0x3f, 0], ..AsyncConfig::default() }
}
