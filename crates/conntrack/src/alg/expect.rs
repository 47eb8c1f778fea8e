//! Expected connections: a helper adds what a control connection announces, and the first packet that fits is related to it.
//!
//! As in Open vSwitch, an expectation lasts as long as its parent: it is not used up, and has no time limit. The table and
//! the number of expectations of a parent are bounded; the oldest gives way. An expectation for the same connection stays as
//! it was first added, even if another parent adds it.
//!
//! Few packets begin connections, and fewer connections have helpers: one mutex guards the table, and a counter in front of
//! it makes look-ups in an empty table free.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::Millis;
use parking_lot::Mutex;

use crate::action::Translated;
use crate::alg::ftp::Mode;
use crate::conn::Parent;
use crate::key::Key;
use crate::table::Handle;

/// How many expectations a parent has at most.
pub const PER_PARENT_MAX: usize = 64;

/// An expected connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expectation {
    /// The key of its first packet as it arrives; a source port of 0 stands for any.
    pub key: Key,
    /// The key of packets of its reply direction as they arrive if its addresses are translated like those of the parent; a
    /// destination port of 0 stands for the source port of `key`.
    pub reply: Key,
    /// Which end of the control connection opens it.
    pub mode: Mode,
    /// Whether the destination of the parent is translated.
    pub parent_has_dnat: bool,
    /// The control connection.
    pub parent: Parent,
    /// The mark of the parent, which the connection inherits.
    pub mark: u32,
    /// The label of the parent, which the connection inherits.
    pub label: u128,
    /// When it was added.
    pub added: Millis,
}

impl Expectation {
    /// Returns true if a packet with this key begins the expected connection.
    pub fn matches(&self, key: &Key) -> bool {
        Key { src_port: 0, ..*key } == self.key
    }

    /// The key of the reply direction of the connection that a packet with this key begins, if the packet's `ct` action
    /// commits it with address translation: the addresses are then translated like those of the parent, whichever
    /// translation the action has.
    pub fn translation(&self, key: &Key) -> Key {
        Key { dst_port: key.src_port, ..self.reply }
    }

    /// Which addresses of that connection count as translated. Like Open vSwitch, this is one at least, even if neither
    /// changes.
    pub fn translated(&self) -> Translated {
        let is_src = (self.mode == Mode::Active) == self.parent_has_dnat;
        Translated::new(is_src || self.reply.dst != self.key.src, !is_src || self.reply.src != self.key.dst)
    }
}

/// The expectations, by age.
#[derive(Debug, Default)]
struct Table {
    by_age: BTreeMap<u64, Expectation>,
    by_key: HashMap<Key, u64, foldhash::fast::RandomState>,
    by_parent: HashMap<Handle, BTreeSet<u64>, foldhash::fast::RandomState>,
    /// The age of the next one.
    next: u64,
}

impl Table {
    fn remove(&mut self, age: u64) {
        let Some(expectation) = self.by_age.remove(&age) else { return };
        self.by_key.remove(&expectation.key);
        let parent = expectation.parent.handle;
        if let Some(ages) = self.by_parent.get_mut(&parent) {
            ages.remove(&age);
            if ages.is_empty() {
                self.by_parent.remove(&parent);
            }
        }
    }
}

/// A bounded table of expected connections.
#[derive(Debug)]
pub struct Expectations {
    max: usize,
    /// How many there are.
    len: AtomicUsize,
    displaced: AtomicU64,
    table: Mutex<Table>,
}

impl Expectations {
    /// A table of at most `max` expectations.
    pub fn new(max: usize) -> Self {
        Self { max, len: AtomicUsize::new(0), displaced: AtomicU64::new(0), table: Mutex::default() }
    }

    /// Adds an expectation unless there is one for the same connection; the oldest one of its parent or of the whole table
    /// gives way if there are too many.
    pub fn add(&self, expectation: Expectation) {
        let mut guard = self.table.lock();
        let table = &mut *guard;
        if self.max == 0 || table.by_key.contains_key(&expectation.key) {
            return;
        }
        let of_parent = table.by_parent.get(&expectation.parent.handle).filter(|ages| ages.len() >= PER_PARENT_MAX);
        let oldest = match of_parent {
            Some(ages) => ages.first().copied(),
            None if table.by_age.len() >= self.max => table.by_age.first_key_value().map(|(age, _)| *age),
            None => None,
        };
        if let Some(oldest) = oldest {
            table.remove(oldest);
            self.displaced.fetch_add(1, Ordering::Relaxed);
        }
        let age = table.next;
        table.next += 1;
        table.by_key.insert(expectation.key, age);
        table.by_parent.entry(expectation.parent.handle).or_default().insert(age);
        table.by_age.insert(age, expectation);
        self.len.store(table.by_age.len(), Ordering::Release);
    }

    /// The expectation that a packet with this key, which belongs to no connection, fulfils.
    #[inline]
    pub fn find(&self, key: &Key) -> Option<Expectation> {
        if self.is_empty() { None } else { self.find_locked(key) }
    }

    #[cold]
    fn find_locked(&self, key: &Key) -> Option<Expectation> {
        let table = self.table.lock();
        let age = table.by_key.get(&Key { src_port: 0, ..*key })?;
        table.by_age.get(age).cloned()
    }

    /// Removes all expectations of a connection that has ended.
    #[inline]
    pub fn remove_all_of(&self, parent: Handle) {
        if !self.is_empty() {
            self.remove_locked(parent);
        }
    }

    #[cold]
    fn remove_locked(&self, parent: Handle) {
        let mut table = self.table.lock();
        for age in table.by_parent.remove(&parent).unwrap_or_default() {
            table.remove(age);
        }
        self.len.store(table.by_age.len(), Ordering::Release);
    }

    /// All expectations, the oldest first.
    pub fn list(&self) -> Vec<Expectation> {
        self.table.lock().by_age.values().cloned().collect()
    }

    /// Number of expectations.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many expectations gave way to newer ones since the start.
    pub fn displaced(&self) -> u64 {
        self.displaced.load(Ordering::Relaxed)
    }
}
