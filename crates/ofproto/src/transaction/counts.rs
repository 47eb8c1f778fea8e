//! The bookkeeping of a change: counts of flows, learners and references, and timeouts.

use super::{Transaction, references};
use crate::bridge::Ofproto;
use openflow::Action;
use std::collections::HashMap;
use std::sync::Arc;
use xlate::{Rule, Table};

impl Transaction<'_> {
    /// Updates all counts, and removes the flows that removed flows have learned.
    pub(super) fn update_counts(&mut self) {
        let mut counted = Counted::default();
        for rule in &self.added {
            self.bridge.expirable.insert(rule);
            if rule.is_hidden() {
                self.writer.hidden.push(Arc::clone(rule));
            }
            counted.add(self.bridge, rule, Table::count_in);
            let writer = &mut *self.writer;
            learners(&rule.actions, &mut |key| *writer.learners.entry(key).or_default() += 1);
            references(&rule.actions).into_iter().for_each(|to| *writer.references.entry(to).or_default() += 1);
        }
        counted.finish(self.bridge, Table::count_in);
        // Further flows may be removed with them, without a requester.
        self.requester = None;
        let mut all = Vec::new();
        while !self.gone.is_empty() {
            let mut round = std::mem::take(&mut self.gone);
            for (table, cookie) in self.count_removed(&round) {
                self.remove_learned(table, cookie);
            }
            all.append(&mut round);
        }
        self.gone = all;
        let shrunk = self.tables.iter().filter(|t| t.shrunk).map(|t| (t.table, self.now));
        self.writer.removals.extend(shrunk);
    }

    /// Does this for removed flows. Returns table and cookie of learned flows whose last learner was removed.
    fn count_removed(&mut self, gone: &[Arc<Rule>]) -> Vec<(u8, u64)> {
        let (mut counted, mut orphans) = (Counted::default(), Vec::new());
        let writer = &mut *self.writer;
        for of_table in gone.chunk_by(|a, b| a.table == b.table) {
            for rule in of_table {
                self.bridge.expirable.remove(rule);
                if rule.is_hidden() {
                    writer.hidden.retain(|hidden| !Arc::ptr_eq(hidden, rule));
                }
                counted.add(self.bridge, rule, Table::count_out);
                // Mostly there are no learners and references.
                if !writer.learners.is_empty() {
                    learners(&rule.actions, &mut |key| {
                        if take_one(&mut writer.learners, key) {
                            orphans.push(key);
                        }
                    });
                }
                if !writer.references.is_empty() {
                    for to in references(&rule.actions) {
                        take_one(&mut writer.references, to);
                    }
                }
            }
        }
        counted.finish(self.bridge, Table::count_out);
        orphans
    }
}

/// Consecutive rules of one table and cookie, counted together.
#[derive(Default)]
struct Counted {
    table: u8,
    cookie: u64,
    n: u64,
}

impl Counted {
    /// Counts a rule. Hidden rules do not count.
    fn add(&mut self, bridge: &Ofproto, rule: &Rule, count: impl Fn(&Table, u64, u64)) {
        if rule.is_hidden() {
            return;
        }
        if (self.table, self.cookie) != (rule.table, rule.cookie) {
            self.finish(bridge, count);
            (self.table, self.cookie) = (rule.table, rule.cookie);
        }
        self.n += 1;
    }

    fn finish(&mut self, bridge: &Ofproto, count: impl Fn(&Table, u64, u64)) {
        if let Some(table) = bridge.tables().get(usize::from(self.table)).filter(|_| self.n > 0) {
            count(table, self.cookie, self.n);
        }
        self.n = 0;
    }
}

/// Decrements a count. Returns true if it was the last one.
fn take_one<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u64>, key: K) -> bool {
    let Some(n) = counts.get_mut(&key) else { return false };
    *n -= 1;
    let last = *n == 0;
    if last {
        counts.remove(&key);
    }
    last
}

/// Calls `f` with table and cookie of the flows that these actions learn, if they are deleted with the learner.
fn learners(actions: &[Action], f: &mut dyn FnMut((u8, u64))) {
    for action in actions {
        match action {
            Action::Learn(learn) if learn.delete_learned => f((learn.table, learn.cookie)),
            Action::Clone(inner) | Action::WriteActions(inner) => learners(inner, f),
            _ => {}
        }
    }
}
