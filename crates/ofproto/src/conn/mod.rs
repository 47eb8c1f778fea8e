//! OpenFlow connections of a bridge.
//!
//! - [`remote`]: configured peers of connections; [`rconn`]: when to connect, probe and give up;
//! - [`peer`]: one connection's state and its queue of bytes to send; [`limits`]: rate limits of packet-ins, with the
//!   schedulers of [`pinsched`];
//! - [`handle`]: the handling of messages, and replies; [`stats`]: statistics requests, [`parts`]: those in several
//!   messages; [`table_features`]: features of tables; [`run`]: runs of flow mods; [`long_mods`]:
//!   flow mods and group mods that may concern many flows;
//! - [`bundles`]: bundles, [`bundling`]: on connections;
//! - [`errors`]: counters of errors; [`flow_mod_log`]: flow mods in the log;
//! - [`controllers`]: controller status messages;
//! - [`forward`]: forwarded changes of groups and meters;
//! - [`monitors`]: flow monitors, [`monitor_index`]: found by flow, [`monitoring`]: on connections,
//!   [`resuming`]: after a pause;
//! - [`asynchronous`]: packet-ins, flow-removed and port-status messages;
//! - [`failopen`]: forwarding without controllers; [`inband`]: connections to controllers through the bridge itself;
//! - [`service`]: listeners, active connections; [`passive`]: connections to listeners; [`serving`]: one of them while it is
//!   open.
//!
//! The control thread handles messages one after the other, and connections in turns. Slow work does not
//! delay other connections: a few worker threads at a time write long replies, as fast as they are read, and
//! another thread commits large bundles and applies mods of many flows; the next message of that connection waits for
//! the end. Packet threads only queue packet-ins, and never wait: a peer whose queue is full loses them, which is counted.

pub mod asynchronous;
mod bundles;
mod bundling;
mod controllers;
mod errors;
mod failopen;
mod flow_mod_log;
mod forward;
mod handle;
pub mod inband;
mod limits;
mod long_mods;
mod monitor_index;
mod monitoring;
mod monitors;
mod parts;
pub(crate) mod passive;
pub mod peer;
pub mod pinsched;
pub mod rconn;
pub mod remote;
mod resuming;
mod run;
pub mod service;
pub(crate) mod serving;
mod stats;
mod table_features;

pub(crate) use bundles::Budget;
use failopen::FailOpen;
pub(crate) use handle::N_TABLES_SHOWN;
use openflow::wire::OptionLengths;
use parking_lot::RwLock;
use peer::Peer;
use remote::{PeerKind, Remote};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The connections of a bridge.
#[derive(Debug, Default)]
pub struct Connections {
    peers: RwLock<Vec<Arc<Peer>>>,
    remotes: RwLock<Vec<Arc<Remote>>>,
    pub(crate) fail_open: parking_lot::Mutex<FailOpen>,
    /// The highest generation id of a role request so far (OpenFlow 1.3 section 6.3.6).
    generation_id: parking_lot::Mutex<Option<u64>>,
    /// Packet-ins that were dropped because a queue was full.
    packet_ins_lost: AtomicU64,
    /// The lengths of mapped tunnel options, which messages to all peers use.
    option_lengths: parking_lot::Mutex<OptionLengths>,
}

impl Connections {
    /// Adds a connection. Attaches a snooper to a controller; returns false if there is none.
    pub(crate) fn add(&self, peer: Arc<Peer>) -> bool {
        let useful =
            peer.remote.kind != PeerKind::Snoop || remote::attach_snooper(&peer, &self.remotes(), &self.peers.read());
        let mut peers = self.peers.write();
        peer.set_option_lengths(*self.option_lengths.lock());
        peers.push(peer);
        useful
    }

    /// Sets the lengths of mapped tunnel options.
    pub(crate) fn set_option_lengths(&self, lengths: OptionLengths) {
        let peers = self.peers.write();
        *self.option_lengths.lock() = lengths;
        peers.iter().for_each(|peer| peer.set_option_lengths(lengths));
    }

    pub(crate) fn add_remote(&self, remote: Arc<Remote>) {
        self.remotes.write().push(remote);
    }

    pub(crate) fn remove_remote(&self, remote: &Arc<Remote>) {
        self.remotes.write().retain(|r| !Arc::ptr_eq(r, remote));
    }

    /// The configured peers.
    pub(crate) fn remotes(&self) -> Vec<Arc<Remote>> {
        self.remotes.read().clone()
    }

    /// Closes the connections to controllers; active ones are made again.
    pub fn reconnect(&self) {
        self.for_each(|peer| {
            if peer.remote.kind == PeerKind::Controller {
                peer.hang_up.notify_one();
            }
        });
    }

    /// Removes a connection.
    pub(crate) fn remove(&self, peer: &Arc<Peer>) {
        self.peers.write().retain(|p| !Arc::ptr_eq(p, peer));
    }

    /// Returns all connections.
    pub fn all(&self) -> Vec<Arc<Peer>> {
        self.peers.read().clone()
    }

    pub(crate) fn for_each(&self, mut f: impl FnMut(&Arc<Peer>)) {
        self.peers.read().iter().for_each(&mut f);
    }

    pub(crate) fn count_lost(&self, packet_ins: u64) {
        self.packet_ins_lost.fetch_add(packet_ins, Ordering::Relaxed);
        base::coverage!(rconn_overflow, packet_ins);
    }

    /// The number of packet-ins that were dropped because a controller did not read fast enough.
    pub fn packet_ins_lost(&self) -> u64 {
        self.packet_ins_lost.load(Ordering::Relaxed)
    }
}
