//! The configured peers of a bridge's connections: one row of configuration, and the state that persists across
//! connections.

use super::peer::Peer;
use super::pinsched::RateLimit;
use super::rconn::{Rconn, Timeouts};
use super::service::ServiceConfig;
use base::Millis;
use openflow::switch::Role;
use openflow::versions::Versions;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::watch;

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerKind {
    /// A controller of the bridge's configuration.
    Controller,
    /// A client of the bridge's management socket: it receives asynchronous messages only on request.
    Service,
    /// A client of the bridge's snooping socket: it receives copies of one controller's messages, and its own are ignored.
    Snoop,
}

/// Settings that can change without a new connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Milliseconds of silence until the peer is probed; 0 for never.
    pub probe_ms: u64,
    /// The longest time between attempts to connect in milliseconds.
    pub max_backoff_ms: u64,
    /// The rate limit of packet-ins: of packets that miss, and of those from actions, each.
    pub packet_in_limit: Option<RateLimit>,
    /// The number of packet-ins in the queue of a connection that is not read, above which more are dropped.
    pub packet_in_queue: usize,
    /// True if it receives asynchronous messages by default.
    pub asynchronous: bool,
}

/// The default number of packet-ins in such a queue.
pub const PACKET_IN_QUEUE: usize = 100;

impl Default for Settings {
    /// The defaults of ovs-vswitchd.conf.db(5).
    fn default() -> Self {
        Self {
            probe_ms: 5000,
            max_backoff_ms: 8000,
            packet_in_limit: None,
            packet_in_queue: PACKET_IN_QUEUE,
            asynchronous: true,
        }
    }
}

impl Settings {
    pub(crate) fn timeouts(&self) -> Timeouts {
        Timeouts { probe_ms: self.probe_ms, max_backoff_ms: self.max_backoff_ms }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Remote {
    /// `punix:PATH`, `ptcp:[PORT][:HOST]`, `unix:PATH`, `tcp:HOST[:PORT]`, and over TLS `pssl:` and `ssl:`.
    pub target: String,
    /// The purpose of its connections.
    pub kind: PeerKind,
    /// The versions that may be negotiated.
    pub(crate) versions: Versions,
    /// The DSCP of outgoing packets, if it is connected over TCP (RFC 2474).
    pub(super) dscp: u8,
    settings: watch::Sender<Settings>,
    /// The connection of an active remote, which exists before it is first established. Connections to a listener have their own.
    pub(crate) rconn: Arc<Mutex<Rconn>>,
    /// The address of an active remote, once known.
    address: Mutex<Option<SocketAddr>>,
    /// The time when it last showed that it controls the bridge; initially, when it was configured.
    admitted_at: AtomicU64,
    snoopers: Mutex<Vec<Weak<Peer>>>,
}

impl Remote {
    pub(crate) fn new(config: ServiceConfig, now: Millis) -> Arc<Self> {
        let ServiceConfig { target, kind, versions, dscp, settings } = config;
        Arc::new(Self {
            target,
            kind,
            versions,
            dscp,
            settings: watch::Sender::new(settings),
            rconn: Arc::new(Mutex::new(Rconn::new())),
            address: Mutex::default(),
            admitted_at: now.0.into(),
            snoopers: Mutex::default(),
        })
    }

    /// The current settings.
    pub fn settings(&self) -> Settings {
        *self.settings.borrow()
    }

    /// Returns a receiver of changes of the settings.
    pub(crate) fn watch_settings(&self) -> watch::Receiver<Settings> {
        self.settings.subscribe()
    }

    pub(crate) fn set_settings(&self, settings: Settings) {
        self.settings.send_if_modified(|old| std::mem::replace(old, settings) != settings);
    }

    /// The address of an active remote, once its name is resolved.
    pub fn address(&self) -> Option<SocketAddr> {
        *self.address.lock()
    }

    pub(crate) fn set_address(&self, address: SocketAddr) {
        *self.address.lock() = Some(address);
    }

    pub(crate) fn admitted_at(&self) -> Millis {
        Millis(self.admitted_at.load(Ordering::Relaxed))
    }

    pub(super) fn admit(&self, now: Millis) {
        self.admitted_at.store(now.0, Ordering::Relaxed);
    }

    /// From now on, sends copies of the messages to and from this remote to a snooper.
    fn add_snooper(&self, peer: &Arc<Peer>) {
        let mut snoopers = self.snoopers.lock();
        snoopers.retain(|snooper| snooper.strong_count() > 0);
        snoopers.push(Arc::downgrade(peer));
    }

    /// Closes the connections of the snoopers when the remote's connection has ended.
    pub(super) fn end_snooping(&self) {
        self.snoopers
            .lock()
            .drain(..)
            .filter_map(|snooper| snooper.upgrade())
            .for_each(|snooper| snooper.hang_up.notify_one());
    }

    /// Sends the snoopers a copy of bytes between the bridge and this remote.
    pub(super) fn snoop(&self, bytes: &[u8]) {
        for snooper in self.snoopers.lock().iter().filter_map(Weak::upgrade) {
            if snooper.has_room() {
                snooper.send_bytes(bytes.to_vec());
            }
        }
    }
}

/// Attaches a snooper to one of the controllers, permanently, whatever roles they take: a primary one if there is
/// one, else one without a role, else any (ovs-ofctl(8), `snoop`). Returns false if there is none.
pub(super) fn attach_snooper(snooper: &Arc<Peer>, remotes: &[Arc<Remote>], peers: &[Arc<Peer>]) -> bool {
    let rank = |remote: &&Arc<Remote>| {
        let roles = peers.iter().filter(|peer| Arc::ptr_eq(&peer.remote, remote)).map(|peer| match peer.role() {
            Role::Primary => 2,
            Role::Secondary => 0,
            Role::Equal | Role::NoChange => 1,
        });
        roles.max().unwrap_or(1)
    };
    let chosen = remotes.iter().filter(|remote| remote.kind == PeerKind::Controller).max_by_key(rank);
    if let Some(remote) = chosen {
        remote.add_snooper(snooper);
    }
    chosen.is_some()
}
