//! The MAC learning table: the port of each address, by VLAN (IEEE 802.1Q section 8.7).
//!
//! An address is learned on the port on which it was last seen, until it is not seen for the aging time; or it is static, on a
//! port that the operator chose, and neither moves, ages nor makes room for others. A full table makes room where the most
//! addresses are, so that one port cannot displace the addresses of others.
//!
//! Ports are kept by number, so that an entry outlives a change of the bundles' order; an entry whose port is gone is
//! removed by [`MacTable::flush_port`].
//!
//! Invariant: each key of `entries` is in `fixed` or in `by_use`, and in the same map of its port, under its entry's
//! `(used, seq)`; `by_count` has each port that has entries, under their number.

use base::{MacAddr, Millis, PortNo};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Seconds until an entry expires, unless configured otherwise (Bridge:other_config:mac-aging-time).
pub const AGING_SECS: u32 = 300;
/// The largest number of entries, unless configured otherwise (Bridge:other_config:mac-table-size).
pub const TABLE_SIZE: usize = 8192;

/// How long an address whose place was announced stays locked, in milliseconds.
const LOCK_MS: u64 = 5000;

/// A VLAN and an address in it.
pub type MacKey = (u16, MacAddr);

/// One address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacEntry {
    /// Its port: for a learned address, the one on which it was last seen.
    pub port: PortNo,
    /// The time when it was last seen; for a static address, when it was added.
    pub used: Millis,
    /// The operator chose the port.
    pub is_static: bool,
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

/// The table is full of static entries, so that there is no room for another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the MAC table is full of static addresses")]
pub struct MacTableFull;

/// The keys of entries, least recently used first.
type ByUse = BTreeMap<(Millis, u64), MacKey>;

/// The entries of one port.
#[derive(Debug, Default)]
struct OfPort {
    by_use: ByUse,
    n_static: usize,
}

impl OfPort {
    fn len(&self) -> usize {
        self.by_use.len() + self.n_static
    }
}

/// The addresses of one bridge.
#[derive(Debug)]
pub struct MacTable {
    entries: HashMap<MacKey, MacEntry>,
    by_use: ByUse,
    fixed: ByUse,
    of_port: HashMap<PortNo, OfPort>,
    by_count: BTreeSet<(usize, PortNo)>,
    /// Addresses whose place was announced, and until when no bond learns them from gratuitous ARP packets.
    locks: HashMap<MacKey, Millis>,
    next_seq: u64,
    max_entries: usize,
    aging_ms: u64,
    counters: MacCounters,
}

impl Default for MacTable {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            by_use: ByUse::new(),
            fixed: ByUse::new(),
            of_port: HashMap::new(),
            by_count: BTreeSet::new(),
            locks: HashMap::new(),
            next_seq: 0,
            max_entries: TABLE_SIZE,
            aging_ms: u64::from(AGING_SECS) * 1000,
            counters: MacCounters::default(),
        }
    }
}

impl MacTable {
    /// Sets the limits, both from 10 to 1,000,000; clamps values outside of this range. Returns true if entries were
    /// removed.
    pub fn configure(&mut self, max_entries: usize, aging_secs: u32) -> bool {
        self.max_entries = max_entries.clamp(10, 1_000_000);
        self.aging_ms = u64::from(aging_secs.clamp(10, 1_000_000)) * 1000;
        let mut removed = false;
        while self.entries.len() > self.max_entries && self.evict().is_some() {
            removed = true;
        }
        removed
    }

    /// Returns the port of `mac` in `vlan`.
    pub fn lookup(&self, vlan: u16, mac: MacAddr) -> Option<PortNo> {
        self.entries.get(&(vlan, mac)).map(|e| e.port)
    }

    /// Returns true if the table would be another one after [learning](Self::learn) that `mac` was seen on `port`, apart from
    /// the time.
    pub fn would_learn(&self, vlan: u16, mac: MacAddr, port: PortNo) -> bool {
        match self.entries.get(&(vlan, mac)) {
            Some(entry) => entry.port != port && !entry.is_static,
            None => self.has_room(),
        }
    }

    /// Records that `mac` was seen on `port`. Returns the keys whose look-up may now have another result than before. A static
    /// entry stays as it is, and a table full of them learns nothing.
    pub fn learn(&mut self, vlan: u16, mac: MacAddr, port: PortNo, now: Millis) -> Vec<MacKey> {
        let key = (vlan, mac);
        let old = self.entries.get(&key).copied();
        let mut changed = Vec::new();
        match old {
            Some(entry) if entry.is_static => {
                if entry.port != port {
                    base::coverage!(mac_learning_static_none_move);
                }
                return changed;
            }
            Some(entry) if entry.port == port => {}
            Some(_) => {
                self.counters.moved += 1;
                base::coverage!(mac_learning_moved);
                changed.push(key);
            }
            None if !self.has_room() => return changed,
            None => {
                changed.extend(self.make_room());
                changed.push(key);
                self.counters.learned += 1;
                base::coverage!(mac_learning_learned);
            }
        }
        let used = old.map_or(now, |entry| now.max(entry.used));
        self.put(key, port, used, false);
        changed
    }

    /// Adds a static entry, and returns the one that it replaces, if that is a different one, and the keys whose look-up may
    /// now have another result.
    pub fn add_static(
        &mut self,
        vlan: u16,
        mac: MacAddr,
        port: PortNo,
        now: Millis,
    ) -> Result<(Option<MacEntry>, Vec<MacKey>), MacTableFull> {
        let key = (vlan, mac);
        let old = self.entries.get(&key).copied();
        let mut changed = vec![key];
        match old {
            Some(entry) if entry.is_static && entry.port == port => return Ok((None, Vec::new())),
            Some(_) => {}
            None if !self.has_room() => return Err(MacTableFull),
            None => changed.extend(self.make_room()),
        }
        self.put(key, port, now, true);
        Ok((old, changed))
    }

    /// Removes a static entry, and returns true if it existed.
    pub fn remove_static(&mut self, vlan: u16, mac: MacAddr) -> bool {
        self.entries.get(&(vlan, mac)).is_some_and(|entry| entry.is_static) && self.remove(vlan, mac)
    }

    /// Records that `mac` was used on `port` until `used`, if it was learned on that port. Does not learn: the datapath's
    /// counters may be older than the entry's last move or removal.
    pub fn refresh(&mut self, vlan: u16, mac: MacAddr, port: PortNo, used: Millis) {
        let is_older = |e: &MacEntry| e.port == port && !e.is_static && e.used < used;
        if self.entries.get(&(vlan, mac)).is_some_and(is_older) {
            self.put((vlan, mac), port, used, false);
        }
    }

    /// Locks an address whose place a gratuitous ARP packet has announced at `now`. Returns true if it was not locked. Memory
    /// is bounded: while as many addresses are locked as the table has room for, no others are.
    pub fn lock(&mut self, vlan: u16, mac: MacAddr, now: Millis) -> bool {
        let until = now.after(LOCK_MS);
        if let Some(lock) = self.locks.get_mut(&(vlan, mac)) {
            *lock = (*lock).max(until);
            return false;
        }
        let has_room = self.locks.len() < self.max_entries;
        has_room && self.locks.insert((vlan, mac), until).is_none()
    }

    /// Returns true if the address is locked.
    pub fn is_locked(&self, vlan: u16, mac: MacAddr) -> bool {
        !self.locks.is_empty() && self.locks.contains_key(&(vlan, mac))
    }

    /// Ends the locks whose time is over, and returns their addresses.
    pub fn unlock(&mut self, now: Millis) -> Vec<MacKey> {
        self.locks.extract_if(|_, until| *until <= now).map(|(key, _)| key).collect()
    }

    /// Removes and returns entries that were not used for the aging time, `max` of them at most: fewer than `max` if there are
    /// no more. (Packets wait for the table meanwhile.)
    pub fn expire(&mut self, now: Millis, max: usize) -> Vec<MacKey> {
        let mut expired = Vec::new();
        while expired.len() < max
            && let Some((&(used, _), &key)) = self.by_use.first_key_value()
            && now.since(used) >= self.aging_ms
        {
            self.take(key);
            self.counters.expired += 1;
            base::coverage!(mac_learning_expired);
            expired.push(key);
        }
        expired
    }

    /// Removes all learned entries. Returns true if there were any.
    pub fn flush(&mut self) -> bool {
        let any = !self.by_use.is_empty();
        self.by_use.clear();
        self.entries.retain(|_, entry| entry.is_static);
        self.of_port.retain(|_, of_port| {
            of_port.by_use.clear();
            of_port.n_static > 0
        });
        self.by_count = self.of_port.iter().map(|(port, of_port)| (of_port.len(), *port)).collect();
        any
    }

    /// Removes all entries of a port. Returns true if there were any.
    pub fn flush_port(&mut self, port: PortNo) -> bool {
        let of_port = |(key, entry): (&MacKey, &MacEntry)| (entry.port == port).then_some(*key);
        let keys: Vec<MacKey> = match self.of_port.get(&port) {
            None => return false,
            // Static entries are few, and are not listed by port.
            Some(all) if all.n_static > 0 => self.entries.iter().filter_map(of_port).collect(),
            Some(all) => all.by_use.values().copied().collect(),
        };
        keys.iter().for_each(|key| _ = self.take(*key));
        true
    }

    /// Moves the learned entries of one port to another, and returns them. They keep the time of their last use.
    pub fn move_port(&mut self, from: PortNo, to: PortNo) -> Vec<MacKey> {
        let keys = self.learned_on(from);
        for key in &keys {
            let used = self.entries[key].used;
            self.put(*key, to, used, false);
        }
        keys
    }

    /// The learned entries of a port, least recently used first.
    fn learned_on(&self, port: PortNo) -> Vec<MacKey> {
        self.of_port.get(&port).map(|all| all.by_use.values().copied().collect()).unwrap_or_default()
    }

    /// Removes one entry, and returns true if it existed.
    pub fn remove(&mut self, vlan: u16, mac: MacAddr) -> bool {
        self.take((vlan, mac)).is_some()
    }

    /// Returns all entries, least recently used first: VLAN, address, entry. A static entry is where it was added.
    pub fn iter(&self) -> impl Iterator<Item = (u16, MacAddr, MacEntry)> + '_ {
        let (mut learned, mut fixed) = (self.by_use.iter().peekable(), self.fixed.iter().peekable());
        let keys = std::iter::from_fn(move || {
            let is_fixed = match (learned.peek(), fixed.peek()) {
                (Some((learned, _)), Some((fixed, _))) => fixed < learned,
                (learned, _) => learned.is_none(),
            };
            if is_fixed { fixed.next() } else { learned.next() }
        });
        keys.filter_map(|(_, key)| self.entries.get(key).map(|e| (key.0, key.1, *e)))
    }

    /// The current number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The current number of static entries.
    pub fn n_static(&self) -> usize {
        self.fixed.len()
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

    /// Returns true if a new entry finds a place, in that of another one if need be.
    fn has_room(&self) -> bool {
        self.entries.len() < self.max_entries || !self.by_use.is_empty()
    }

    /// Makes room for a new entry, and returns the one that was removed for it.
    fn make_room(&mut self) -> Option<MacKey> {
        if self.entries.len() < self.max_entries { None } else { self.evict() }
    }

    /// Removes the least recently used learned entry of the port that has the most entries.
    fn evict(&mut self) -> Option<MacKey> {
        let learned = |(_, port): &(usize, PortNo)| self.of_port.get(port)?.by_use.values().next().copied();
        let key = self.by_count.iter().rev().find_map(learned)?;
        self.take(key);
        self.counters.evicted += 1;
        base::coverage!(mac_learning_evicted);
        Some(key)
    }

    /// Adds an entry, or replaces the one of this key.
    fn put(&mut self, key: MacKey, port: PortNo, used: Millis, is_static: bool) {
        self.take(key);
        let seq = self.next_seq;
        self.next_seq += 1;
        self.entries.insert(key, MacEntry { port, used, is_static, seq });
        let of_port = self.of_port.entry(port).or_default();
        self.by_count.remove(&(of_port.len(), port));
        if is_static {
            self.fixed.insert((used, seq), key);
            of_port.n_static += 1;
        } else {
            self.by_use.insert((used, seq), key);
            of_port.by_use.insert((used, seq), key);
        }
        self.by_count.insert((of_port.len(), port));
    }

    /// Removes an entry.
    fn take(&mut self, key: MacKey) -> Option<MacEntry> {
        let entry = self.entries.remove(&key)?;
        let at = (entry.used, entry.seq);
        let of_port = self.of_port.entry(entry.port).or_default();
        self.by_count.remove(&(of_port.len(), entry.port));
        if entry.is_static {
            self.fixed.remove(&at);
            of_port.n_static -= 1;
        } else {
            self.by_use.remove(&at);
            of_port.by_use.remove(&at);
        }
        match of_port.len() {
            0 => _ = self.of_port.remove(&entry.port),
            n => _ = self.by_count.insert((n, entry.port)),
        }
        Some(entry)
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
        assert_eq!(t.learn(0, A, PortNo(1), t0), [(0, A)]);
        assert_eq!(t.learn(0, A, PortNo(1), t0.after(1000)), []);
        assert_eq!(t.learn(0, A, PortNo(2), t0.after(2000)), [(0, A)]);
        // A change of the port counts even within the same millisecond.
        for port in [1, 2] {
            assert_eq!(t.learn(0, A, PortNo(port), t0.after(2000)), [(0, A)]);
        }
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
    fn a_full_table_evicts_the_least_recently_used_of_the_port_with_most() {
        let mut t = MacTable::default();
        t.configure(10, 300);
        let mac = MacAddr::local_from;
        for i in 0..8u64 {
            t.learn(0, mac(i), PortNo(1), Millis(100 + i));
        }
        t.learn(0, mac(8), PortNo(2), Millis(1));
        t.learn(0, mac(9), PortNo(3), Millis(2));
        t.learn(0, mac(0), PortNo(1), Millis(200));
        // Address after address on port 2 displaces those of port 1, until both have as many; then its own.
        for (new, evicted) in [(20, 1), (21, 2), (22, 3), (23, 4), (24, 8), (25, 20)] {
            assert!(t.would_learn(0, mac(new), PortNo(2)));
            assert_eq!(t.learn(0, mac(new), PortNo(2), Millis(300 + new)), [(0, mac(evicted)), (0, mac(new))]);
        }
        assert_eq!((t.len(), t.counters().evicted, t.lookup(0, mac(9))), (10, 6, Some(PortNo(3))));
        assert!(t.flush_port(PortNo(1)) && !t.flush_port(PortNo(1)) && t.len() == 6 && t.iter().count() == 6);
        assert!(t.flush() && !t.flush());
        assert!(t.of_port.is_empty() && t.by_count.is_empty());
    }

    #[test]
    fn entries_of_a_port_move() {
        const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
        let mut t = MacTable::default();
        for (vlan, mac, port) in [(1, A, 1), (2, A, 1), (1, B, 2)] {
            t.learn(vlan, mac, PortNo(port), Millis(1_000_000));
        }
        assert_eq!(t.move_port(PortNo(1), PortNo(3)), [(1, A), (2, A)]);
        assert_eq!((t.lookup(1, A), t.lookup(1, B), t.len()), (Some(PortNo(3)), Some(PortNo(2)), 3));
        assert!(t.move_port(PortNo(1), PortNo(2)).is_empty());
    }

    #[test]
    fn static_entries_stay() {
        let mut t = MacTable::default();
        t.configure(10, 300);
        let mac = |n: u64| MacAddr::local_from(10 + n);
        let replaced = |added: Result<(Option<MacEntry>, Vec<MacKey>), MacTableFull>| {
            added.expect("room").0.map(|e| (e.port, e.is_static))
        };
        t.learn(0, A, PortNo(1), Millis(1));
        assert_eq!(replaced(t.add_static(0, A, PortNo(2), Millis(2))), Some((PortNo(1), false)));
        assert_eq!(t.add_static(0, A, PortNo(2), Millis(3)), Ok((None, vec![])));
        assert_eq!(replaced(t.add_static(0, A, PortNo(3), Millis(4))), Some((PortNo(2), true)));
        // It neither moves, ages, nor makes room.
        assert!(!t.would_learn(0, A, PortNo(1)));
        assert_eq!(t.learn(0, A, PortNo(1), Millis(5)), []);
        t.refresh(0, A, PortNo(3), Millis(6));
        assert_eq!((t.lookup(0, A), t.expire(Millis(1_000_000), 9)), (Some(PortNo(3)), vec![]));
        t.learn(0, mac(0), PortNo(3), Millis(7));
        assert_eq!(t.iter().map(|(_, mac, e)| (mac, e.is_static)).collect::<Vec<_>>(), [(A, true), (mac(0), false)]);
        for i in 1..9 {
            assert_eq!(replaced(t.add_static(0, mac(i), PortNo(3), Millis(8))), None);
        }
        assert_eq!(t.learn(0, mac(9), PortNo(1), Millis(9)), [(0, mac(0)), (0, mac(9))]);
        // A table full of static entries learns nothing.
        assert_eq!(replaced(t.add_static(0, mac(10), PortNo(4), Millis(10))), None);
        assert_eq!((t.lookup(0, mac(9)), t.n_static(), t.would_learn(0, mac(9), PortNo(1))), (None, 10, false));
        assert_eq!(
            (t.learn(0, mac(9), PortNo(1), Millis(11)), t.add_static(0, mac(9), PortNo(1), Millis(11))),
            (vec![], Err(MacTableFull))
        );
        assert!(!t.flush() && t.remove_static(0, A) && !t.remove_static(0, A));
        t.learn(0, A, PortNo(1), Millis(12));
        assert!(!t.remove_static(0, A) && t.flush_port(PortNo(3)));
        assert_eq!((t.len(), t.n_static()), (2, 1));
    }
}
