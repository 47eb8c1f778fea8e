//! Rules that were removed but are still in their tables, for translations that began before.
//!
//! They leave their tables in parts: each part takes a few milliseconds at most, for which the control thread may not change
//! tables. A table that holds nothing but such rules is cleared as a whole, which takes a fraction of the time. Freeing the
//! rules takes longest: the caller does it once others may change tables again.

use crate::bridge::Ofproto;
use base::Millis;
use std::collections::VecDeque;
use std::sync::Arc;
use xlate::{Rule, View};

/// The number of rules of a part, and of those that a short change takes out of their tables.
pub(super) const PART: usize = 1000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    /// Views before the current one that readers may hold, oldest first.
    views: VecDeque<Arc<View>>,
    /// Removed rules with the version that removed them and their table, oldest first.
    rules: VecDeque<Entry>,
    /// The number of the first rules that have left the bridge's indexes.
    unindexed: usize,
}

#[derive(Debug)]
struct Entry {
    version: u64,
    /// The rule's table, beside it: to read it from the rule would miss the processor's caches.
    table: u8,
    rule: Arc<Rule>,
}

impl Retired {
    /// Adds the rules that `version` removes, which replaces the view `old`.
    pub(super) fn add(&mut self, old: Arc<View>, version: u64, gone: Vec<Arc<Rule>>) {
        self.views.push_back(old);
        self.rules.extend(gone.into_iter().map(|rule| Entry { version, table: rule.table, rule }));
    }

    /// Takes at most [`PART`] rules out of their tables that no reader can see any more, and returns them.
    pub(super) fn reap(&mut self, bridge: &Ofproto) -> Vec<Arc<Rule>> {
        let oldest = self.oldest_version();
        let mut reaped = Vec::new();
        while reaped.len() < PART
            && let Some(table) = self.rules.front().map(|entry| entry.table)
            && let n = self.run(oldest, table, PART - reaped.len())
            && n > 0
        {
            reaped.extend(self.take(bridge, table, n));
        }
        reaped
    }

    /// Takes a part of the rules out of their tables that no reader can see any more, or a whole table of them. Returns them,
    /// and whether there may be more.
    fn reap_part(&mut self, bridge: &Ofproto) -> (Vec<Arc<Rule>>, bool) {
        let oldest = self.oldest_version();
        let Some(table) = self.rules.front().map(|entry| entry.table) else { return (Vec::new(), false) };
        let in_table = bridge.tables().get(usize::from(table)).map_or(0, |table| table.rules.len());
        let is_whole = in_table > PART && self.run(oldest, table, in_table) == in_table;
        if !is_whole {
            let reaped = self.reap(bridge);
            let is_full = reaped.len() == PART;
            return (reaped, is_full);
        }
        if self.unindexed < in_table {
            let part: Vec<_> =
                self.rules.range(self.unindexed..in_table).take(PART).map(|e| Arc::clone(&e.rule)).collect();
            bridge.index.remove(&part);
            self.unindexed += part.len();
            return (Vec::new(), true);
        }
        (self.take(bridge, table, in_table), true)
    }

    /// The oldest version that readers may see. All of them see the rules that a later one removed.
    fn oldest_version(&mut self) -> u64 {
        while self.views.front().is_some_and(|view| Arc::strong_count(view) == 1) {
            self.views.pop_front();
        }
        self.views.front().map_or(u64::MAX, |view| view.version)
    }

    /// The number of the first rules, at most `most`, that are in one table and that no reader can see.
    fn run(&self, oldest: u64, table: u8, most: usize) -> usize {
        let is_in_run = |entry: &&Entry| entry.version <= oldest && entry.table == table;
        self.rules.iter().take(most).take_while(is_in_run).count()
    }

    /// Takes the first `n` rules, all of one table, out of it: consecutive ones together, which costs less.
    fn take(&mut self, bridge: &Ofproto, table: u8, n: usize) -> Vec<Arc<Rule>> {
        let rules: Vec<_> = self.rules.drain(..n).map(|entry| entry.rule).collect();
        let unindexed = self.unindexed.min(n);
        self.unindexed -= unindexed;
        bridge.index.remove(&rules[unindexed..]);
        if let Some(table) = bridge.tables().get(usize::from(table)) {
            // The copies keep the rules from being freed here.
            table.rules.remove_all(rules.clone());
        }
        rules
    }
}

impl Ofproto {
    /// Takes all rules out of the tables that no reader can see any more, and drops unused eviction orders. Very many take
    /// several long changes: tasks of the control thread await the end of one and get their turn before the next. Returns false
    /// if rules are left because other changes are in progress.
    pub(crate) fn tidy(&self, now: Millis) -> bool {
        if self.tidy_some(now) {
            return true;
        }
        loop {
            let Some(long) = self.try_long_change() else { return false };
            let (reaped, are_more) = self.writer.lock().retired.reap_part(self);
            drop(long);
            drop(reaped);
            if !are_more {
                return true;
            }
        }
    }

    /// Does the same unless there are more than [`PART`] rules, or the tables are being changed, which returns false.
    pub(crate) fn tidy_some(&self, now: Millis) -> bool {
        let Some(mut writer) = self.writer.try_lock() else { return false };
        writer.evictable.retain(|_, order| !order.is_idle(now));
        // A whole table of removed rules is cleared at once, unless some of them are taken out first.
        let few = writer.retired.rules.len() <= PART;
        if few {
            writer.retired.reap(self);
        }
        few
    }

    /// Takes all rules out of the tables that no reader can see any more, as part of a long change. Returns them.
    pub(crate) fn reap_all(&self) -> Vec<Arc<Rule>> {
        let mut writer = self.writer.lock();
        let (mut reaped, mut are_more) = writer.retired.reap_part(self);
        while are_more {
            let part;
            (part, are_more) = writer.retired.reap_part(self);
            reaped.extend(part);
        }
        reaped
    }
}
