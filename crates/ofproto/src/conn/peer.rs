//! One OpenFlow connection: what was agreed on it, and its queue of messages to send.

use super::bundles::Bundles;
use openflow::asynchronous::AsyncConfig;
use openflow::message::{Message, Options, encode_with};
use openflow::packet::PacketInFormat;
use openflow::role::Role;
use openflow::{PacketInReason, Version};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Bytes queued to a peer above which its packet-ins are dropped, and its requests wait.
pub const QUEUE_BYTES_MAX: usize = 4 << 20;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerKind {
    /// A controller of the bridge's configuration.
    Controller,
    /// A client of the bridge's management socket: it gets no asynchronous messages unless it asks for them.
    Service,
    /// A client of the bridge's snooping socket: it gets copies of the controllers' messages, and is not listened to.
    Snoop,
}

/// A connection.
#[derive(Debug)]
pub struct Peer {
    /// What it is for.
    pub kind: PeerKind,
    /// Where to, as `unix:PATH` or `tcp:HOST:PORT`.
    pub target: String,
    pub(crate) state: Mutex<PeerState>,
    pub(super) bundles: Mutex<Bundles>,
    out: UnboundedSender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
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
    receiver: UnboundedReceiver<Vec<u8>>,
    queued: Arc<AtomicUsize>,
}

impl Outgoing {
    /// The next message to send; `None` once the peer is gone.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        self.receiver.recv().await
    }

    /// More messages that are there already, without waiting.
    pub(crate) fn try_next(&mut self) -> Option<Vec<u8>> {
        self.receiver.try_recv().ok()
    }

    /// Takes no more messages: `next` returns those that are there, then `None`.
    pub(crate) fn close(&mut self) {
        self.receiver.close();
    }

    /// `n` bytes have left.
    pub(crate) fn sent(&self, n: usize) {
        self.queued.fetch_sub(n, Ordering::Relaxed);
    }
}

impl Peer {
    pub(crate) fn new(kind: PeerKind, target: String) -> (Arc<Self>, Outgoing) {
        let (out, receiver) = unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let state = PeerState {
            version: None,
            role: Role::Equal,
            options: Options::default(),
            packet_in_format: PacketInFormat::Standard,
            controller_id: 0,
            miss_send_len: if kind == PeerKind::Controller { 128 } else { 0 },
            invalid_ttl: false,
            asynchronous: default_async(),
        };
        let peer = Self {
            kind,
            target,
            state: Mutex::new(state),
            bundles: Mutex::default(),
            out,
            queued: Arc::clone(&queued),
        };
        (Arc::new(peer), Outgoing { receiver, queued })
    }

    /// Queues a message. Nothing is sent before the versions are agreed on, but HELLO and errors, which are encoded by
    /// who sends them.
    pub(crate) fn send(&self, xid: u32, message: &Message) {
        let (version, options) = {
            let state = self.state.lock();
            (state.version, state.options)
        };
        if let Some(version) = version {
            self.send_bytes(encode_with(version, xid, message, options));
        }
    }

    /// Queues bytes of whole messages.
    pub(crate) fn send_bytes(&self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        base::coverage!(rconn_queued);
        self.queued.fetch_add(bytes.len(), Ordering::Relaxed);
        // An error means that the connection is being closed: nobody is left to read it.
        let _ = self.out.send(bytes);
    }

    /// Bytes that wait to be sent.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Whether there is room for messages that may be lost.
    pub(crate) fn has_room(&self) -> bool {
        self.queued() < QUEUE_BYTES_MAX
    }

    /// The version agreed on.
    pub fn version(&self) -> Option<Version> {
        self.state.lock().version
    }

    /// The role.
    pub fn role(&self) -> Role {
        self.state.lock().role
    }

    /// Whether an asynchronous message with this bit in the masks that `which` picks is for this peer.
    pub(crate) fn wants(&self, which: impl Fn(&AsyncConfig) -> [u32; 2], bit: u32) -> bool {
        let state = self.state.lock();
        if state.version.is_none()
            || self.kind == PeerKind::Snoop
            || (self.kind == PeerKind::Service && state.miss_send_len == 0)
        {
            return false;
        }
        let masks = which(&state.asynchronous);
        let mask = if state.role == Role::Secondary { masks[1] } else { masks[0] };
        let invalid_ttl = state.invalid_ttl && bit == PacketInReason::InvalidTtl as u32;
        mask & 1 << bit != 0 || invalid_ttl
    }
}

/// What a controller gets unless it says otherwise (OpenFlow 1.3 section 6.3.6): as primary or equal all but expired
/// TTLs, as secondary port status only.
fn default_async() -> AsyncConfig {
    let all_reasons = !(1 << PacketInReason::InvalidTtl as u32) & 0x3f;
    AsyncConfig { packet_in: [all_reasons, 0], port_status: [7, 7], flow_removed: [0x3f, 0], ..AsyncConfig::default() }
}
