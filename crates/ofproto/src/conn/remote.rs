//! Whom a bridge connects to, or lets connect to it: one row of configuration, and what is known of it across its
//! connections.

use super::peer::Peer;
use super::pinsched::RateLimit;
use super::rconn::{Patience, Rconn};
use super::service::ServiceConfig;
use base::Millis;
use openflow::switch::Role;
use openflow::versions::Versions;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::watch;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerKind {
    /// A controller of the bridge's configuration.
    Controller,
    /// A client of the bridge's management socket: it gets no asynchronous messages unless it asks for them.
    Service,
    /// A client of the bridge's snooping socket: it gets copies of one controller's messages, and is not listened to.
    Snoop,
}

/// What can change without a new connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Milliseconds of silence until the other end is asked whether it is there; 0 for never.
    pub probe_ms: u64,
    /// Most milliseconds between attempts to connect.
    pub max_backoff_ms: u64,
    /// How many packet-ins it gets: of packets that miss, and of those that actions send, each.
    pub packet_in_limit: Option<RateLimit>,
    /// Packet-ins that wait for a connection that does not take them, before more are dropped.
    pub packet_in_queue: usize,
    /// Whether it gets asynchronous messages without asking for them.
    pub asynchronous: bool,
}

/// Packet-ins that wait unless the configuration says otherwise.
pub const PACKET_IN_QUEUE: usize = 100;

impl Default for Settings {
    /// As in ovs-vswitchd.conf.db(5), where it names defaults.
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
    pub(crate) fn patience(&self) -> Patience {
        Patience { probe_ms: self.probe_ms, max_backoff_ms: self.max_backoff_ms }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Remote {
    /// `punix:PATH`, `ptcp:[PORT][:HOST]`, `unix:PATH`, `tcp:HOST[:PORT]`, and over TLS `pssl:` and `ssl:`.
    pub target: String,
    /// What it is for.
    pub kind: PeerKind,
    /// Versions that may be spoken.
    pub(crate) versions: Versions,
    /// The class of its packets, if it is reached by TCP (RFC 2474).
    pub(super) dscp: u8,
    settings: watch::Sender<Settings>,
    /// The one connection of an active remote, from before it is first made. Connections to a listener have their own.
    pub(crate) rconn: Arc<Mutex<Rconn>>,
    /// The address of an active remote, once known.
    address: Mutex<Option<SocketAddr>>,
    /// When it last showed that it controls the bridge; at first, when it was configured.
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

    /// The settings that hold.
    pub fn settings(&self) -> Settings {
        *self.settings.borrow()
    }

    /// Tells of changes of the settings.
    pub(crate) fn watch_settings(&self) -> watch::Receiver<Settings> {
        self.settings.subscribe()
    }

    pub(crate) fn set_settings(&self, settings: Settings) {
        self.settings.send_if_modified(|old| std::mem::replace(old, settings) != settings);
    }

    /// Where an active remote is, once its name is resolved.
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

    /// Copies what goes to and from this remote to a snooper, from now on.
    fn add_snooper(&self, peer: &Arc<Peer>) {
        let mut snoopers = self.snoopers.lock();
        snoopers.retain(|snooper| snooper.strong_count() > 0);
        snoopers.push(Arc::downgrade(peer));
    }

    /// Closes the connections of the snoopers: there is nothing more to hear.
    pub(super) fn end_snooping(&self) {
        self.snoopers
            .lock()
            .drain(..)
            .filter_map(|snooper| snooper.upgrade())
            .for_each(|snooper| snooper.hang_up.notify_one());
    }

    /// Gives the snoopers a copy of bytes that went between the bridge and this remote.
    pub(super) fn snoop(&self, bytes: &[u8]) {
        for snooper in self.snoopers.lock().iter().filter_map(Weak::upgrade) {
            if snooper.has_room() {
                snooper.send_bytes(bytes.to_vec());
            }
        }
    }
}

/// Attaches a snooper to one of the controllers, which stays it whatever becomes of roles: a primary one if there is
/// one, else one without a role, else any (ovs-ofctl(8), `snoop`). Whether there is one.
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
