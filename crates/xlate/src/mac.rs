//! The MAC learning table: the port on which each address was last seen, by VLAN (IEEE 802.1Q section 8.7).
//!
//! Ports are kept by number, so that an entry outlives a change of the bundles' order; an entry whose port is gone is
//! removed by [`MacTable::flush_port`].
//!
//! Invariant: `by_use` holds exactly the keys of `entries`, each under its entry's `(used, seq)`.

use base::{MacAddr, Millis, PortNo};
use std::collections::{BTreeMap, HashMap};

/// Seconds until an entry expires, unless configured otherwise (Bridge:other_config:mac-aging-time).
pub const AGING_SECS: u32 = 300;
/// The largest number of entries, unless configured otherwise (Bridge:other_config:mac-table-size).
pub const TABLE_SIZE: usize = 8192;

/// One learned address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacEntry {
    /// The port on which it was last seen.
    pub port: PortNo,
    /// The time when it was last seen.
    pub used: Millis,
    seq: u64,
}

/// Counters since the table was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MacCounters {
    /// Entries learned.
    pub learned: u64,
    /// Entries that expired.
    pub expired: u64,
    /// Entries removed to make room for others.
    pub evicted: u64,
    /// Entries that moved to another port.
    pub moved: u64,
}

/// Learned addresses of one bridge.
#[derive(Debug)]
pub struct MacTable {
    entries: HashMap<(u16, MacAddr), MacEntry>,
    by_use: BTreeMap<(Millis, u64), (u16, MacAddr)>,
    next_seq: u64,
    max_entries: usize,
    aging_ms: u64,
    counters: MacCounters,
}

impl Default for MacTable {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            next_seq: 0,
            max_entries: TABLE_SIZE,
            aging_ms: u64::from(AGING_SECS) * 1000,
            counters: MacCounters::default(),
        }
    }
}

impl MacTable {
    /// Sets the limits: `max_entries` from 10 to 1,000,000, `aging_secs` from 15 to 3600, as documented; clamps values
    /// outside of these ranges. Returns true if entries were removed.
    pub fn configure(&mut self, max_entries: usize, aging_secs: u32) -> bool {
        self.max_entries = max_entries.clamp(10, 1_000_000);
        self.aging_ms = u64::from(aging_secs.clamp(15, 3600)) * 1000;
        let mut removed = false;
        while self.entries.len() > self.max_entries {
            removed |= self.evict();
        }
        removed
    }

    /// Returns the port on which `mac` was last seen in `vlan`.
    pub fn lookup(&self, vlan: u16, mac: MacAddr) -> Option<PortNo> {
        self.entries.get(&(vlan, mac)).map(|e| e.port)
    }

    /// Records that `mac` was seen on `port`. Returns true if look-ups may now have another result than before.
    pub fn learn(&mut self, vlan: u16, mac: MacAddr, port: PortNo, now: Millis) -> bool {
        let key = (vlan, mac);
        let seq = self.next_seq;
        self.next_seq += 1;
        let changed = match self.entries.get_mut(&key) {
            Some(entry) => {
                let moved = entry.port != port;
                self.by_use.remove(&(entry.used, entry.seq));
                *entry = MacEntry { port, used: now.max(entry.used), seq };
                self.by_use.insert((entry.used, seq), key);
                self.counters.moved += u64::from(moved);
                if moved {
                    base::coverage!(mac_learning_moved);
                }
                moved
            }
            None => {
                if self.entries.len() >= self.max_entries {
                    self.evict();
                }
                self.entries.insert(key, MacEntry { port, used: now, seq });
                self.by_use.insert((now, seq), key);
                self.counters.learned += 1;
                base::coverage!(mac_learning_learned);
                true
            }
        };
        debug_assert_eq!(self.entries.len(), self.by_use.len());
        changed
    }

    /// Records that `mac` was used on `port` until `used`, if the entry has that port. Does not learn: the datapath's counters
    /// may be older than the entry's last move or removal.
    pub fn refresh(&mut self, vlan: u16, mac: MacAddr, port: PortNo, used: Millis) {
        let key = (vlan, mac);
        if let Some(entry) = self.entries.get_mut(&key).filter(|e| e.port == port && e.used < used) {
            self.by_use.remove(&(entry.used, entry.seq));
            *entry = MacEntry { port, used, seq: self.next_seq };
            self.by_use.insert((used, self.next_seq), key);
            self.next_seq += 1;
        }
    }

    /// Returns the entry that learning this one now would evict.
    pub fn makes_room_for(&self, vlan: u16, mac: MacAddr) -> Option<(u16, MacAddr)> {
        let full = self.entries.len() >= self.max_entries && !self.entries.contains_key(&(vlan, mac));
        full.then(|| self.by_use.first_key_value().map(|(_, key)| *key)).flatten()
    }

    /// Removes and returns entries that were not used for the aging time, `max` of them at most: fewer than `max` if there are
    /// no more. (Packets wait for the table meanwhile.)
    pub fn expire(&mut self, now: Millis, max: usize) -> Vec<(u16, MacAddr)> {
        let mut expired = Vec::new();
        while expired.len() < max
            && let Some(first) = self.by_use.first_entry()
            && now.since(first.key().0) >= self.aging_ms
        {
            let key = first.remove();
            self.entries.remove(&key);
            self.counters.expired += 1;
            base::coverage!(mac_learning_expired);
            expired.push(key);
        }
        expired
    }

    /// Removes all entries. Returns true if there were any.
    pub fn flush(&mut self) -> bool {
        self.by_use.clear();
        let any = !self.entries.is_empty();
        self.entries.clear();
        any
    }

    /// Removes all entries of a port. Returns true if there were any.
    pub fn flush_port(&mut self, port: PortNo) -> bool {
        let before = self.entries.len();
        let by_use = &mut self.by_use;
        self.entries.retain(|_, e| {
            let keep = e.port != port;
            if !keep {
                by_use.remove(&(e.used, e.seq));
            }
            keep
        });
        self.entries.len() != before
    }

    /// Removes one entry, and returns true if it existed.
    pub fn remove(&mut self, vlan: u16, mac: MacAddr) -> bool {
        let Some(entry) = self.entries.remove(&(vlan, mac)) else { return false };
        self.by_use.remove(&(entry.used, entry.seq));
        true
    }

    /// Returns all entries, least recently used first: VLAN, address, entry.
    pub fn iter(&self) -> impl Iterator<Item = (u16, MacAddr, MacEntry)> + '_ {
        self.by_use.values().filter_map(|key| self.entries.get(key).map(|e| (key.0, key.1, *e)))
    }

    /// The current number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The largest number of entries.
    pub fn max_entries(&self) -> usize {
        self.max_entries
    }

    /// The counters since the table was created, or since they were cleared.
    pub fn counters(&self) -> MacCounters {
        self.counters
    }

    /// Resets the counters.
    pub fn clear_counters(&mut self) {
        self.counters = MacCounters::default();
    }

    fn evict(&mut self) -> bool {
        let Some((_, key)) = self.by_use.pop_first() else { return false };
        self.entries.remove(&key);
        self.counters.evicted += 1;
        base::coverage!(mac_learning_evicted);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    #[test]
    fn learn_move_expire() {
        let mut t = MacTable::default();
        let t0 = Millis(1_000_000);
        assert!(t.learn(0, A, PortNo(1), t0));
        assert!(!t.learn(0, A, PortNo(1), t0.after(1000)));
        assert!(t.learn(0, A, PortNo(2), t0.after(2000)));
        // A change of the port counts even within the same millisecond.
        assert!(t.learn(0, A, PortNo(1), t0.after(2000)) && t.learn(0, A, PortNo(2), t0.after(2000)));
        assert_eq!((t.lookup(0, A), t.lookup(5, A)), (Some(PortNo(2)), None));
        assert_eq!(t.expire(t0.after(301_999), 9), []);
        assert_eq!(t.expire(t0.after(302_000), 9), [(0, A)]);
        assert!(t.is_empty());
        assert_eq!(t.counters(), MacCounters { learned: 1, expired: 1, evicted: 0, moved: 3 });
    }

    #[test]
    fn one_call_expires_a_limited_number_of_entries() {
        let mut t = MacTable::default();
        let mac = |n: u8| MacAddr([2, 0, 0, 0, 0, n]);
        (0..5).for_each(|n| _ = t.learn(0, mac(n), PortNo(1), Millis(n.into())));
        let late = Millis(1_000_000);
        assert_eq!(t.expire(late, 2), [(0, mac(0)), (0, mac(1))]);
        assert_eq!((t.expire(late, 2).len(), t.expire(late, 2).len(), t.expire(late, 2).len()), (2, 1, 0));
        assert_eq!((t.len(), t.counters().expired), (0, 5));
    }

    #[test]
    fn only_known_addresses_are_refreshed() {
        let mut t = MacTable::default();
        let t0 = Millis(1_000_000);
        t.refresh(0, A, PortNo(1), t0);
        assert!(t.is_empty());
        t.learn(0, A, PortNo(1), t0);
        t.learn(0, A, PortNo(2), t0.after(1000));
        t.refresh(0, A, PortNo(1), t0.after(2000));
        assert_eq!(t.lookup(0, A), Some(PortNo(2)));
        t.refresh(0, A, PortNo(2), t0.after(3000));
        t.refresh(0, A, PortNo(2), t0.after(2000));
        assert_eq!((t.expire(t0.after(302_000), 9), t.expire(t0.after(303_000), 9)), (vec![], vec![(0, A)]));
        assert_eq!(t.counters().moved, 1);
    }

    #[test]
    fn a_full_table_evicts_the_least_recently_used() {
        let mut t = MacTable::default();
        t.configure(10, 300);
        for i in 0..10u64 {
            t.learn(0, MacAddr::local_from(i), PortNo(1), Millis(100 + i));
        }
        t.learn(0, MacAddr::local_from(0), PortNo(1), Millis(200));
        assert_eq!(t.makes_room_for(0, MacAddr::local_from(0)), None);
        assert_eq!(t.makes_room_for(0, MacAddr::local_from(99)), Some((0, MacAddr::local_from(1))));
        t.learn(0, MacAddr::local_from(99), PortNo(2), Millis(300));
        assert_eq!(t.len(), 10);
        assert!(t.lookup(0, MacAddr::local_from(0)).is_some() && t.lookup(0, MacAddr::local_from(1)).is_none());
        assert!(t.flush_port(PortNo(1)) && t.len() == 1 && t.iter().count() == 1);
        assert!(t.flush() && !t.flush());
    }
}
