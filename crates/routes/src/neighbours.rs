//! Neighbours: the Ethernet addresses of next hops, per bridge.
//!
//! The table learns from commands and from ARP and neighbour discovery that reaches a bridge's own port. A lookup of an
//! unknown neighbour leaves a pending entry, which allows one request per `retrans_time`. Complete entries live for
//! `aging` after their last use; pending ones until the next request is due. Each entry has a [`Dependency`] for the
//! translations that used it.
//!
//! Invariant: `entries` has at most [`ENTRIES_MAX`] entries, of which [`PENDING_MAX`] are pending.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use base::{MacAddr, Millis};

use crate::dependency::Dependency;

/// Entries at most, over all bridges.
pub const ENTRIES_MAX: usize = 1 << 16;
/// Entries at most that wait for an answer.
pub const PENDING_MAX: usize = 1 << 13;
/// The longest time that can be set for the aging of entries, in seconds.
pub const AGING_MAX_S: u64 = 3600;
const AGING_MS: u64 = 900_000;
const RETRANS_MS: u64 = 1_000;
/// Longer names of bridges are cut, as in Open vSwitch.
const NAME_LEN_MAX: usize = 15;

/// The entries that a packet may add or change by the Ethernet address that it shows. Whatever the packet is, a neighbour is
/// learned only if the packet came after what the table has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learning {
    /// All: the packet was sent to this host (RFC 826, RFC 4861 section 7.2.3), or announces its sender.
    Any,
    /// Unknown neighbours, not another address of a known one: an advertisement to this host without the override flag (RFC 4861
    /// section 7.2.5).
    Unknown,
    /// Neighbours of the table: the packet was sent to others (RFC 826), or is an unsolicited advertisement (RFC 4861 section 7.2.6).
    Existing,
}

/// The answer to a lookup.
#[derive(Clone, Debug)]
pub enum Found {
    /// The Ethernet address.
    Known(MacAddr, Dependency),
    /// The address is not known yet. The handle becomes stale when it is, or when a request may be sent again.
    Pending {
        /// A request is due: the caller sends [`crate::request()`].
        send_request: bool,
        /// The handle.
        dependency: Dependency,
    },
    /// The table is full: the caller drops the packet and asks again with the next one.
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Known(MacAddr),
    Pending,
}

#[derive(Debug)]
struct Entry {
    state: State,
    /// When it expires, if it is not used after `since`.
    expires: Millis,
    /// The arrival of the last packet that taught it.
    learned: Millis,
    /// When the handle was made.
    since: Millis,
    dependency: Dependency,
}

impl Entry {
    /// Whether packets have been sent to the neighbour.
    fn is_used(&self) -> bool {
        self.dependency.used() > self.since
    }

    /// When it expires, with regard to its last use.
    fn expires(&self, aging_ms: u64) -> Millis {
        match self.state {
            State::Known(_) if self.is_used() => self.dependency.used().after(aging_ms).max(self.expires),
            _ => self.expires,
        }
    }
}

/// A row of `tnl/neigh/show`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeighbourRow {
    /// The neighbour.
    pub address: IpAddr,
    /// Its Ethernet address, unless the entry is pending.
    pub mac: Option<MacAddr>,
    /// The bridge.
    pub bridge: String,
    /// The entry has expired and is about to be removed.
    pub stale: bool,
}

/// The text of `tnl/neigh/show`.
pub fn neighbours_to_text(rows: &[NeighbourRow]) -> String {
    let mut out = format!("{:<46}{:<20}Bridge\n{:=<74}\n", "IP", "MAC", "");
    for NeighbourRow { address, mac, bridge, stale } in rows {
        let text = mac.map(|mac| mac.to_string()).unwrap_or_default();
        let state = if *stale {
            " STALE"
        } else if mac.is_none() {
            " INCOMPLETE"
        } else {
            ""
        };
        let _ = writeln!(out, "{:<46}{text:<20}{bridge}{state}", address.to_string());
    }
    out
}

/// The table of neighbours.
#[derive(Debug)]
pub struct Neighbours {
    entries: BTreeMap<String, BTreeMap<IpAddr, Entry>>,
    len: usize,
    pending: usize,
    aging_ms: u64,
    retrans_ms: u64,
    /// See [`Neighbours::take_changed`].
    changed: Vec<IpAddr>,
    /// When entries were last removed by a command, or with their bridge: earlier packets do not bring them back.
    removed: Option<Millis>,
    /// A full table is searched for unused entries at this time at the earliest.
    evict_at: Millis,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            len: 0,
            pending: 0,
            aging_ms: AGING_MS,
            retrans_ms: RETRANS_MS,
            changed: Vec::new(),
            removed: None,
            evict_at: Millis(0),
        }
    }
}

/// A bridge's name as the table has it.
fn name(bridge: &str) -> &str {
    match bridge.char_indices().find(|(at, c)| at + c.len_utf8() > NAME_LEN_MAX) {
        Some((at, _)) => &bridge[..at],
        None => bridge,
    }
}

impl Neighbours {
    /// A known neighbour, which counts as used. Needs no exclusive access.
    pub fn known(&self, bridge: &str, address: IpAddr, now: Millis) -> Option<(MacAddr, Dependency)> {
        let entry = self.entries.get(name(bridge))?.get(&address)?;
        match entry.state {
            State::Known(mac) if entry.expires(self.aging_ms) > now => {
                entry.dependency.touch(now);
                Some((mac, entry.dependency.clone()))
            }
            _ => None,
        }
    }

    /// Whether a neighbour is pending, and its next request not yet due.
    pub fn is_asked(&self, bridge: &str, address: IpAddr, now: Millis) -> bool {
        let entry = self.entries.get(name(bridge)).and_then(|entries| entries.get(&address));
        entry.is_some_and(|entry| entry.state == State::Pending && entry.expires > now)
    }

    /// Looks a neighbour up for a translation. An unknown one becomes pending.
    pub fn resolve(&mut self, bridge: &str, address: IpAddr, now: Millis) -> Found {
        if let Some((mac, dependency)) = self.known(bridge, address, now) {
            return Found::Known(mac, dependency);
        }
        let retry = now.after(self.retrans_ms);
        let entry = self.entries.get_mut(name(bridge)).and_then(|entries| entries.get_mut(&address));
        if let Some(entry) = entry {
            if entry.state != State::Pending {
                // It has expired, and is asked for again.
                self.pending += 1;
                self.changed.push(address);
                entry.dependency.invalidate();
                let dependency = Dependency::new(now);
                *entry = Entry {
                    state: State::Pending,
                    expires: retry,
                    learned: now,
                    since: now,
                    dependency: dependency.clone(),
                };
                return Found::Pending { send_request: true, dependency };
            }
            let send_request = entry.expires <= now;
            if send_request {
                entry.expires = retry;
            }
            return Found::Pending { send_request, dependency: entry.dependency.clone() };
        }
        if self.pending >= PENDING_MAX || self.len >= ENTRIES_MAX {
            return Found::Full;
        }
        let dependency = Dependency::new(now);
        let entry =
            Entry { state: State::Pending, expires: retry, learned: now, since: now, dependency: dependency.clone() };
        self.entries.entry(name(bridge).to_owned()).or_default().insert(address, entry);
        self.len += 1;
        self.pending += 1;
        Found::Pending { send_request: true, dependency }
    }

    /// Learns a neighbour's Ethernet address from a packet that arrived at a time, if the packet may change the entry and came
    /// after what the table has: packets of cached flows are reported late, and in any order.
    pub fn learn_from_packet(&mut self, bridge: &str, address: IpAddr, mac: MacAddr, learning: Learning, at: Millis) {
        let entry = self.entries.get(name(bridge)).and_then(|entries| entries.get(&address));
        let may = match entry {
            None => learning != Learning::Existing && self.removed.is_none_or(|removed| removed <= at),
            Some(Entry { state: State::Pending, .. }) => true,
            Some(Entry { state: State::Known(known), learned, .. }) => {
                *learned <= at && (*known == mac || learning != Learning::Unknown)
            }
        };
        if may {
            self.learn(bridge, address, mac, at);
        }
    }

    /// Learns a neighbour's Ethernet address. Only another address, or the first one, concerns translations. A full table
    /// forgets the entries that no packet has used; if there are none, it learns nothing new.
    pub fn learn(&mut self, bridge: &str, address: IpAddr, mac: MacAddr, now: Millis) {
        let is_there = self.entries.get(name(bridge)).is_some_and(|entries| entries.contains_key(&address));
        if self.len >= ENTRIES_MAX && !is_there && self.evict_at <= now {
            // Announcements alone do not fill it. If it is full of used ones, not each of them has it searched.
            if self.remove(|entry| entry.state != State::Pending && !entry.is_used()) == 0 {
                self.evict_at = now.after(self.retrans_ms);
            }
        }
        let expires = now.after(self.aging_ms);
        let known = self.entries.get_mut(name(bridge)).and_then(|entries| entries.get_mut(&address));
        match known {
            Some(entry) if entry.state == State::Known(mac) => {
                (entry.expires, entry.learned) = (expires, now);
            }
            Some(entry) => {
                self.pending -= usize::from(entry.state == State::Pending);
                self.changed.push(address);
                entry.dependency.invalidate();
                // A neighbour that packets go to remains one.
                let since = if entry.is_used() { Millis(0) } else { now };
                let dependency = Dependency::new(now);
                *entry = Entry { state: State::Known(mac), expires, learned: now, since, dependency };
            }
            None if self.len >= ENTRIES_MAX => {}
            None => {
                let dependency = Dependency::new(now);
                let entry = Entry { state: State::Known(mac), expires, learned: now, since: now, dependency };
                self.entries.entry(name(bridge).to_owned()).or_default().insert(address, entry);
                self.len += 1;
                self.changed.push(address);
            }
        }
    }

    /// The neighbours whose Ethernet addresses have become known, others, or unknown since the last call. The caller takes them
    /// after each change, so that they are not more than entries.
    pub fn take_changed(&mut self) -> Vec<IpAddr> {
        std::mem::take(&mut self.changed)
    }

    /// Removes the expired entries; translations that used them ask again. Returns how many there were.
    pub fn run(&mut self, now: Millis) -> usize {
        let aging = self.aging_ms;
        self.remove(|entry| entry.expires(aging) <= now)
    }

    /// Removes all entries.
    pub fn flush(&mut self, now: Millis) {
        self.removed = Some(now);
        self.remove(|_| true);
    }

    /// Removes the entries of a bridge that is gone.
    pub fn remove_bridge(&mut self, bridge: &str, now: Millis) {
        self.removed = Some(now);
        for (address, entry) in self.entries.remove(name(bridge)).into_iter().flatten() {
            self.len -= 1;
            self.changed.push(address);
            self.pending -= usize::from(entry.state == State::Pending);
            entry.dependency.invalidate();
        }
    }

    fn remove(&mut self, expired: impl Fn(&Entry) -> bool) -> usize {
        let before = self.len;
        for entries in self.entries.values_mut() {
            entries.retain(|address, entry| {
                let removed = expired(entry);
                if removed {
                    self.len -= 1;
                    self.changed.push(*address);
                    self.pending -= usize::from(entry.state == State::Pending);
                    entry.dependency.invalidate();
                }
                !removed
            });
        }
        self.entries.retain(|_, entries| !entries.is_empty());
        before - self.len
    }

    /// The rows of `tnl/neigh/show`, by bridge and address.
    pub fn rows(&self, now: Millis) -> Vec<NeighbourRow> {
        let entries =
            self.entries.iter().flat_map(|(bridge, entries)| entries.iter().map(move |entry| (bridge, entry)));
        let row = |(bridge, (address, entry)): (&String, (&IpAddr, &Entry))| NeighbourRow {
            address: *address,
            mac: match entry.state {
                State::Known(mac) => Some(mac),
                State::Pending => None,
            },
            bridge: bridge.clone(),
            stale: entry.state != State::Pending && entry.expires(self.aging_ms) <= now,
        };
        entries.map(row).collect()
    }

    /// The number of entries, also pending ones.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How long entries live after their last use.
    pub fn aging_ms(&self) -> u64 {
        self.aging_ms
    }

    /// Sets how long entries live. Entries of the table do not live longer than that from now on if they are not used. Returns
    /// false, and changes nothing, if it is shorter than the time between requests.
    #[must_use]
    pub fn set_aging_ms(&mut self, aging_ms: u64, now: Millis) -> bool {
        let fits = aging_ms >= self.retrans_ms;
        if fits {
            self.aging_ms = aging_ms;
            let latest = now.after(aging_ms);
            for entry in self.entries.values_mut().flat_map(BTreeMap::values_mut) {
                entry.expires = entry.expires.min(latest);
            }
        }
        fits
    }

    /// The least time between two requests for one neighbour.
    pub fn retrans_ms(&self) -> u64 {
        self.retrans_ms
    }

    /// Sets the least time between two requests for one neighbour. Returns false, and changes nothing, if it is longer
    /// than entries live.
    #[must_use]
    pub fn set_retrans_ms(&mut self, retrans_ms: u64) -> bool {
        let fits = retrans_ms <= self.aging_ms;
        if fits {
            self.retrans_ms = retrans_ms;
        }
        fits
    }
}

#[cfg(test)]
#[path = "neighbours_tests.rs"]
mod tests;
