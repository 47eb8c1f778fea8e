//! Reassembly of fragments before tracking, and the fragments after it.
//!
//! A connection is found by ports, which only the first fragment of a datagram has. So the tracker holds fragments
//! until the datagram is complete, tracks the reassembled packet, and lets the original fragments continue with the
//! state of its connection and with its translated addresses and ports:
//!
//! - [`Fragments::take`] holds a fragment, lets it pass as an invalid packet, or completes a [`Datagram`];
//! - [`Datagram::divide`] returns the fragments after the tracker has processed [`Datagram::whole`];
//! - [`Fragments::expire`] and [`Fragments::sweep`] drop fragments of datagrams that stay incomplete.
//!
//! Overlaps are never reassembled (RFC 5722, RFC 8200 section 4.5): the fragment that arrived first stays, the other
//! one passes as invalid, as do fragments that contradict the end of the datagram.
//!
//! Memory is bounded by the number of fragments ([`Fragments::set_max_fragments`]), by their bytes ([`BYTES_MAX`]), and
//! for each datagram by [`PIECES_MAX`]. Fragments leave memory that a device has lent, since they may wait for long.
//!
//! Invariants: `held` and `bytes` are the sums over all lists; no list is empty or complete; `by_age` has one entry for
//! each list, and its order is that of the deadlines.

mod datagram;
mod list;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, hash_map};

use base::{Millis, coverage};
use foldhash::quality::RandomState;
use packet::Packet;

use crate::parse::Fragment;

pub use datagram::Datagram;
pub use list::PIECES_MAX;
pub use status::{Counters, Family, FamilyStatus, ListState, ListStatus, SettingError, Status};

use list::{List, ListKey, Piece};
use status::Settings;

/// Time from the first fragment of a datagram until it expires, in milliseconds.
pub const TIMEOUT_MS: u64 = 15_000;
/// Time from the deadline of a datagram until [`Fragments::sweep`] drops it, in milliseconds.
pub const SWEEP_DELAY_MS: u64 = 10_000;
/// Maximum memory of all held fragments, in bytes.
pub const BYTES_MAX: usize = 64 << 20;
/// Maximum of the maximum number of held fragments.
pub const FRAGMENTS_LIMIT: u32 = 5000;
/// Minimum of the minimum size of fragments.
pub const MIN_SIZE_LIMIT: u32 = 400;
/// Datagrams that one call of [`Fragments::sweep`] drops.
const SWEEP_LISTS: usize = 64;

/// Fragments that wait for the rest of their datagrams.
#[derive(Debug)]
pub struct Fragments {
    settings: [Settings; 2],
    counters: [Counters; 2],
    max_fragments: u32,
    lists: HashMap<ListKey, List, RandomState>,
    by_age: BTreeMap<u64, ListKey>,
    next_number: u64,
    held: usize,
    bytes: usize,
}

/// The result of [`Fragments::take`].
#[derive(Debug)]
pub enum Taken {
    /// The fragment waits for others.
    Held,
    /// The fragment is not reassembled; the packet continues with the state "invalid".
    Pass(Packet, PassReason),
    /// The fragment completed a datagram.
    Complete(Datagram),
}

/// Why a fragment is not reassembled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassReason {
    /// Reassembly is disabled for its family.
    Disabled,
    /// It is not the last one, and shorter than the minimum.
    TooSmall,
    /// It overlaps an earlier fragment, or contradicts the end of the datagram.
    Overlap,
    /// Its length is impossible: it is not the last one and has no payload or not a multiple of 8 bytes, or the datagram
    /// would exceed 65,535 bytes.
    Malformed,
    /// Too many fragments, or too many bytes, are held.
    Full,
}

impl Default for Fragments {
    fn default() -> Self {
        Self::new()
    }
}

impl Fragments {
    /// No fragments, and the default settings: both families are enabled, the minimum sizes are 1,200 bytes for IPv4 and
    /// 1,280 for IPv6, and at most 1,000 fragments are held.
    pub fn new() -> Self {
        Self {
            settings: [Settings { enabled: true, min_size: 1200 }, Settings { enabled: true, min_size: 1280 }],
            counters: Default::default(),
            max_fragments: 1000,
            lists: HashMap::default(),
            by_age: BTreeMap::new(),
            next_number: 0,
            held: 0,
            bytes: 0,
        }
    }

    /// Takes a fragment, which `at` describes, in a zone. The caller has verified the checksum of an IPv4 header.
    ///
    /// Fragments belong to one datagram if they have the same zone, recirculation id, addresses, identification, and, for
    /// IPv4, protocol. `in_port` is only remembered, for [`Datagram::in_port`].
    pub fn take(&mut self, packet: Packet, at: &Fragment, zone: u16, in_port: u32, now: Millis) -> Taken {
        let family = Family::of(at.is_v6);
        let settings = self.settings[family as usize];
        if !self.is_enabled() {
            return Taken::Pass(packet, PassReason::Disabled);
        }
        // Small fragments count also while only the other family is enabled.
        if at.more && at.end.saturating_sub(at.l3) < settings.min_size as usize {
            self.counters[family as usize].too_small += 1;
            return Taken::Pass(packet, PassReason::TooSmall);
        }
        if !settings.enabled {
            return Taken::Pass(packet, PassReason::Disabled);
        }
        let Some(key) = ListKey::of(&packet, at, zone) else { return Taken::Pass(packet, PassReason::Malformed) };
        if self.held >= self.max_fragments as usize {
            return Taken::Pass(packet, PassReason::Full);
        }
        let piece = match Piece::new(packet, at) {
            Ok(piece) => piece,
            Err(packet) => return Taken::Pass(packet, PassReason::Malformed),
        };
        let memory = piece.memory();
        if self.bytes + memory > BYTES_MAX {
            return Taken::Pass(piece.packet, PassReason::Full);
        }
        let is_complete = match self.insert(key, piece, in_port, now) {
            Ok(is_complete) => is_complete,
            Err((piece, reason)) => {
                self.counters[family as usize].overlapped += u64::from(reason == PassReason::Overlap);
                return Taken::Pass(piece.packet, reason);
            }
        };
        self.held += 1;
        self.bytes += memory;
        self.counters[family as usize].accepted += 1;
        if !is_complete {
            return Taken::Held;
        }
        let list = self.remove(&key).expect("the fragment has been inserted");
        self.counters[family as usize].completed += list.len() as u64;
        Taken::Complete(Datagram::assemble(list, family))
    }

    /// Inserts a fragment into the list of its datagram. Returns true if the list is complete.
    fn insert(&mut self, key: ListKey, piece: Piece, in_port: u32, now: Millis) -> Result<bool, (Piece, PassReason)> {
        let family = key.family();
        match self.lists.entry(key) {
            hash_map::Entry::Occupied(entry) => {
                let list = entry.into_mut();
                list.insert(piece, family)?;
                Ok(list.is_complete())
            }
            hash_map::Entry::Vacant(entry) => {
                let number = self.next_number;
                let mut list = List::new(number, in_port, now.after(TIMEOUT_MS), family);
                list.insert(piece, family)?;
                self.next_number += 1;
                self.by_age.insert(number, key);
                Ok(entry.insert(list).is_complete())
            }
        }
    }

    /// Drops the oldest datagram if its time is over; its fragments go to `dropped`. The tracker calls this once for each
    /// batch of packets. A datagram that is completed before this call found it is not late.
    pub fn expire(&mut self, now: Millis, dropped: &mut Vec<Packet>) {
        if let Some((family, list)) = self.remove_older(now, TIMEOUT_MS) {
            coverage!(ipf_stuck_frag_list_expired, list.len() as u64);
            self.counters[family as usize].expired += list.len() as u64;
            dropped.extend(list.into_packets());
        }
    }

    /// Drops datagrams whose time was over ten seconds ago, if too few packets came for [`Fragments::expire`]. Bounds its
    /// work: the caller calls it repeatedly.
    pub fn sweep(&mut self, now: Millis, dropped: &mut Vec<Packet>) {
        for _ in 0..SWEEP_LISTS {
            let Some((family, list)) = self.remove_older(now, TIMEOUT_MS + SWEEP_DELAY_MS - 1) else { return };
            coverage!(ipf_stuck_frag_list_purged, list.len() as u64);
            self.counters[family as usize].purged += list.len() as u64;
            dropped.extend(list.into_packets());
        }
    }

    /// Drops all held fragments.
    pub fn clear(&mut self, dropped: &mut Vec<Packet>) {
        for (key, list) in self.lists.drain() {
            self.counters[key.family() as usize].purged += list.len() as u64;
            dropped.extend(list.into_packets());
        }
        self.by_age.clear();
        (self.held, self.bytes) = (0, 0);
    }

    /// The time after which [`Fragments::expire`] has something to drop; `None` if no fragments are held.
    pub fn deadline(&self) -> Option<Millis> {
        let (_, key) = self.by_age.first_key_value()?;
        Some(self.lists.get(key)?.deadline)
    }

    /// Removes the oldest list if its first fragment came more than `age_ms` ago.
    fn remove_older(&mut self, now: Millis, age_ms: u64) -> Option<(Family, List)> {
        let deadline = self.deadline()?;
        if now <= deadline.after(age_ms - TIMEOUT_MS) {
            return None;
        }
        let key = *self.by_age.first_key_value()?.1;
        Some((key.family(), self.remove(&key)?))
    }

    fn remove(&mut self, key: &ListKey) -> Option<List> {
        let list = self.lists.remove(key)?;
        self.by_age.remove(&list.number);
        self.held -= list.len();
        self.bytes -= list.memory();
        Some(list)
    }
}
