//! Indexes of a bridge's rules by cookie, and by the groups and meters that their actions name: deletions and dumps by
//! these take time in proportion to their result.
//!
//! An index holds a rule exactly as long as the rule's flow table does, because readers look up older versions; readers
//! filter by version. Cookie 0, the default, is not indexed.

use crate::flow_table::Criteria;
use crate::transaction::{Reference, references};
use openflow::flow_mod::GROUP_ANY;
use parking_lot::RwLock;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use xlate::Rule;

/// Rules by some key.
#[derive(Debug)]
pub(crate) struct RulesBy<K>(BTreeMap<(K, usize), Arc<Rule>>);

impl<K> Default for RulesBy<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> RulesBy<K> {
    pub(crate) fn insert(&mut self, key: K, rule: &Arc<Rule>) {
        self.0.insert((key, Arc::as_ptr(rule).addr()), Arc::clone(rule));
    }

    pub(crate) fn remove(&mut self, key: K, rule: &Arc<Rule>) {
        self.0.remove(&(key, Arc::as_ptr(rule).addr()));
    }

    pub(crate) fn of(&self, key: K) -> impl Iterator<Item = &Arc<Rule>> {
        self.0.range((key, 0)..=(key, usize::MAX)).map(|(_, rule)| rule)
    }

    /// The number of rules with keys of this range, counted up to `most`.
    fn count(&self, keys: RangeInclusive<K>, most: usize) -> usize {
        self.0.range((*keys.start(), 0)..=(*keys.end(), usize::MAX)).take(most).count()
    }

    /// Returns true if a rule has this key.
    pub(crate) fn has(&self, key: K) -> bool {
        self.of(key).next().is_some()
    }
}

/// Sorts rules by table, age and priority: the order of an index has no meaning.
pub(crate) fn sort(rules: &mut [Arc<Rule>]) {
    rules.sort_unstable_by_key(|rule| (rule.table, rule.versions.added(), Reverse(rule.priority)));
}

/// The indexes of a bridge.
#[derive(Debug, Default)]
pub(crate) struct RuleIndex {
    cookies: RwLock<RulesBy<u64>>,
    references: RwLock<RulesBy<Reference>>,
}

impl RuleIndex {
    /// Adds rules that were inserted into their tables.
    pub(crate) fn add(&self, rules: &[Arc<Rule>]) {
        let mut with_cookie = rules.iter().filter(|rule| rule.cookie != 0).peekable();
        if with_cookie.peek().is_some() {
            let mut index = self.cookies.write();
            with_cookie.for_each(|rule| index.insert(rule.cookie, rule));
        }
        each_reference(rules, || self.references.write(), |index, to, rule| index.insert(to, rule));
    }

    /// Removes rules that were removed from their tables.
    pub(crate) fn remove(&self, rules: &[Arc<Rule>]) {
        let mut with_cookie = rules.iter().filter(|rule| rule.cookie != 0).peekable();
        if with_cookie.peek().is_some() {
            let mut index = self.cookies.write();
            with_cookie.for_each(|rule| index.remove(rule.cookie, rule));
        }
        each_reference(rules, || self.references.write(), |index, to, rule| index.remove(to, rule));
    }

    /// Returns true if a rule in the tables, of any version, references this group or meter.
    pub(crate) fn names(&self, to: Reference) -> bool {
        self.references.read().has(to)
    }

    /// Returns the rules in the tables, of any version, that reference one of these groups and meters.
    pub(crate) fn naming(&self, to: &[Reference]) -> Vec<Arc<Rule>> {
        let index = self.references.read();
        let mut found: Vec<_> = to.iter().flat_map(|to| index.of(*to)).cloned().collect();
        drop(index);
        sort(&mut found);
        found
    }

    /// Returns the rules that meet `criteria` in a version of the tables; `None` if no index covers the criteria.
    pub(crate) fn collect(&self, criteria: &Criteria, version: u64) -> Option<Vec<Arc<Rule>>> {
        if criteria.strict_priority.is_some() {
            return None;
        }
        let selected = |rule: &&Arc<Rule>| criteria.selects(rule, version);
        let mut found: Vec<_> = if criteria.cookie_mask == u64::MAX && criteria.cookie != 0 {
            self.cookies.read().of(criteria.cookie).filter(selected).cloned().collect()
        } else if criteria.out_group != GROUP_ANY {
            self.references.read().of(Reference::Group(criteria.out_group)).filter(selected).cloned().collect()
        } else {
            return None;
        };
        sort(&mut found);
        Some(found)
    }

    /// The number of rules that [`Self::collect`] examines, counted up to `most`; `None` if no index covers the criteria.
    pub(crate) fn count(&self, criteria: &Criteria, most: usize) -> Option<usize> {
        if criteria.cookie_mask == u64::MAX && criteria.cookie != 0 {
            Some(self.cookies.read().count(criteria.cookie..=criteria.cookie, most))
        } else if criteria.out_group != GROUP_ANY {
            let group = Reference::Group(criteria.out_group);
            Some(self.references.read().count(group..=group, most))
        } else {
            None
        }
    }

    /// The number of rules that reference one of these groups, counted up to `most`. A rule counts for each of them.
    pub(crate) fn count_of_groups(&self, groups: RangeInclusive<u32>, most: usize) -> usize {
        let of = Reference::Group;
        self.references.read().count(of(*groups.start())..=of(*groups.end()), most)
    }

    /// Returns true if no rule is indexed.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.cookies.read().0.is_empty() && self.references.read().0.is_empty()
    }
}

/// Calls `f` with each reference of each rule. Takes the lock only if a rule has a reference, which is rare.
fn each_reference<L>(rules: &[Arc<Rule>], lock: impl Fn() -> L, f: impl Fn(&mut L, Reference, &Arc<Rule>)) {
    let mut held = None;
    for rule in rules {
        for to in references(&rule.actions) {
            f(held.get_or_insert_with(&lock), to, rule);
        }
    }
}
