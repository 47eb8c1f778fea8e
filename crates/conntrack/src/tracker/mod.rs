//! The tracker: executes `ct` actions on packets.
//!
//! - [`track`]: one packet and its connection; [`resume`]: the same for most packets; [`begin`]: connections that begin;
//!   [`open`]: the same for most of them;
//! - [`fragmented`]: packets that arrive in fragments;
//! - [`control`]: what a user asks for and sets.

mod begin;
mod control;
mod fragmented;
mod open;
mod resume;
mod slots;
#[cfg(test)]
mod tests;
mod track;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::Millis;
use base::rng::Rng;
use packet::buf::BATCH_MAX;
use packet::{Batch, Packet};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::action::Action;
use crate::alg::expect::Expectations;
use crate::fragments::Fragments;
use crate::limits::Limits;
use crate::parse;
use crate::table::Table;
use crate::timeout::Policies;

pub use open::is_opening;
pub use resume::{Known, PacketKind, Plain, Resumed, is_resumable};
pub use slots::SlotCache;
pub use track::Step;
use track::is_absent;

/// The maximum number of connections unless another one is set.
pub const CONNECTIONS_MAX: u64 = 3_000_000;
/// The sweep of expired connections visits each connection once in this time, in milliseconds, unless another is set.
pub const SWEEP_INTERVAL_MS: u64 = 20_000;
/// The maximum number of expected connections.
const EXPECTATIONS_MAX: usize = 65_536;
/// Tables of this many connections do not fit into a processor's caches: a batch reads its buckets beforehand.
const LARGE: u64 = 4096;

/// A connection tracker, shared by all threads of a datapath.
#[derive(Debug)]
pub struct Tracker {
    table: Table,
    limits: Limits,
    policies: Policies,
    expectations: Expectations,
    fragments: Mutex<Fragments>,
    /// When the oldest collected fragment expires, in milliseconds; [`u64::MAX`] if there is none.
    fragments_due: AtomicU64,
    connections_max: AtomicU64,
    checks_sequence: AtomicBool,
    sweep: Mutex<Sweep>,
    sweep_interval_ms: AtomicU64,
    /// Secret of the choices of translations.
    seed: u64,
    /// The number of choices made.
    choices: AtomicU64,
}

/// The state of the sweep.
#[derive(Debug, Default)]
struct Sweep {
    /// The next slot.
    cursor: usize,
    /// When it last ran.
    last: Millis,
}

impl Tracker {
    /// An empty tracker. Its hashes and choices depend on `seed`.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::seeded(seed);
        Self {
            table: Table::new(rng.next_u64()),
            limits: Limits::new(),
            policies: Policies::new(),
            expectations: Expectations::new(EXPECTATIONS_MAX),
            fragments: Mutex::new(Fragments::new()),
            fragments_due: AtomicU64::new(u64::MAX),
            connections_max: AtomicU64::new(CONNECTIONS_MAX),
            checks_sequence: AtomicBool::new(true),
            sweep: Mutex::default(),
            sweep_interval_ms: AtomicU64::new(SWEEP_INTERVAL_MS),
            seed: rng.next_u64(),
            choices: AtomicU64::new(0),
        }
    }

    /// Executes the action on packets that came in on a port of this number. Packets that arrive in fragments leave the
    /// batch until all fragments are there; fragments that were collected by earlier batches join it.
    /// Returns the number of fragments that were dropped because their datagrams stayed incomplete.
    pub fn track_all(&self, packets: &mut Batch, action: &Action, in_port: u32, now: Millis) -> usize {
        // An earlier action has brought the memory of a packet that it found no connection of into the cache.
        let is_warm = |packet: &Packet| packet.metadata().is_some_and(|of| is_absent(&of.connection, action.zone));
        if !packets.first().is_some_and(is_warm) {
            self.prefetch_all(packets, action.zone);
        }
        let mut fragments = Vec::new();
        for (index, packet) in packets.iter_mut().enumerate() {
            let mut connection = std::mem::take(&mut packet.metadata_mut().connection);
            if self.track(packet, &mut connection, action, now) == Step::Fragment {
                fragments.push(index);
            }
            packet.metadata_mut().connection = connection;
        }
        if !fragments.is_empty() || self.has_expired_fragments(now) {
            return self.track_fragments(packets, &fragments, action, in_port, now);
        }
        0
    }

    /// Returns true if collected fragments wait for their end: [`Tracker::track_all`] passes them on.
    #[inline]
    pub fn has_expired_fragments(&self, now: Millis) -> bool {
        self.fragments_due.load(Ordering::Relaxed) <= now.0
    }

    /// Begins to read the memory that look-ups of the packets in a zone will need, if the table is too large for the caches,
    /// so that the cache misses overlap.
    #[inline]
    pub fn prefetch_all(&self, packets: &[Packet], zone: u16) {
        if self.is_large() {
            self.prefetch_large(packets, zone);
        }
    }

    /// Returns true if the table does not fit into a processor's caches.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.table.len() >= LARGE
    }

    #[inline(never)]
    fn prefetch_large(&self, packets: &[Packet], zone: u16) {
        let mut hashes: SmallVec<[u64; BATCH_MAX]> = SmallVec::new();
        for packet in packets.iter().take(BATCH_MAX) {
            if let Some(key) = parse::peek(packet, zone) {
                let hash = self.table.hash(&key);
                self.table.prefetch(hash);
                hashes.push(hash);
            }
        }
        for hash in hashes {
            if let Some(slot) = self.table.candidate(hash) {
                self.table.prefetch_slot(slot);
            }
        }
    }
}
