//! OpenFlow connections of a bridge.
//!
//! - [`peer`]: one connection's state and its queue of bytes to send;
//! - [`handle`]: what a message does, and the answers; [`stats`]: statistics requests;
//! - [`bundles`]: messages that are carried out together;
//! - [`asynchronous`]: packet-ins, flow-removed and port-status messages;
//! - [`service`]: sockets: listeners, active connections with back-off, probes.
//!
//! Messages are handled on the control thread, one after the other. Packet threads only queue packet-ins, and never
//! wait: a peer whose queue is full loses them, which is counted.

pub mod asynchronous;
mod bundles;
mod handle;
pub mod peer;
pub mod service;
mod stats;
mod table_features;

use parking_lot::RwLock;
use peer::Peer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The connections of a bridge.
#[derive(Debug, Default)]
pub struct Connections {
    peers: RwLock<Vec<Arc<Peer>>>,
    /// Highest generation id of a role request so far (OpenFlow 1.3 section 6.3.6).
    generation_id: parking_lot::Mutex<Option<u64>>,
    /// Packet-ins that no queue had room for.
    pub(crate) packet_ins_lost: AtomicU64,
}

impl Connections {
    /// Adds a connection.
    pub(crate) fn add(&self, peer: Arc<Peer>) {
        self.peers.write().push(peer);
    }

    /// Removes a connection.
    pub(crate) fn remove(&self, peer: &Arc<Peer>) {
        self.peers.write().retain(|p| !Arc::ptr_eq(p, peer));
    }

    /// All connections.
    pub fn all(&self) -> Vec<Arc<Peer>> {
        self.peers.read().clone()
    }

    pub(crate) fn for_each(&self, mut f: impl FnMut(&Arc<Peer>)) {
        self.peers.read().iter().for_each(&mut f);
    }

    /// Packet-ins that were dropped because a controller did not read fast enough.
    pub fn packet_ins_lost(&self) -> u64 {
        self.packet_ins_lost.load(Ordering::Relaxed)
    }
}
