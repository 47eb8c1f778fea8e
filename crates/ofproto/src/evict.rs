//! Selects the flow to evict from a full table (Flow_Table:overflow_policy of ovs-vswitchd.conf.db(5)).
//!
//! Only flows with a timeout are evicted. They form groups by the values of some fields; the eviction removes a flow of the
//! largest group, with the lowest importance and then the earliest expiry. Groups and flows are kept in that order from the
//! first overflow of a table until none has happened for a while; as packets put off expiries, the order is rebuilt every
//! second.

use crate::expire::expiry;
use crate::flow_table::RemovedReason;
use crate::table_config::Overflow;
use crate::transaction::Transaction;
use base::Millis;
use openflow::OfpError;
use openflow::action::Subfield;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use xlate::Rule;

/// Milliseconds for which an order counts as up to date.
const ORDER_MS: u64 = 1000;
/// Milliseconds for which an unused order is maintained.
const IDLE_MS: u64 = 10_000;

/// The rank of a flow in its group: importance, expiry, and the address of the rule, which identifies it. The lowest rank is
/// evicted.
type EvictionRank = (u16, Millis, usize);

/// The flows of a table that may be evicted, in order.
#[derive(Debug)]
pub(crate) struct Evictable {
    by: Vec<Subfield>,
    made: Millis,
    used: Millis,
    rules: HashMap<usize, (Arc<Rule>, Vec<u128>, EvictionRank)>,
    groups: HashMap<Vec<u128>, BTreeSet<EvictionRank>>,
    /// The first flow of each group, with the group's key, the largest group first.
    firsts: BTreeMap<(Reverse<usize>, EvictionRank), Vec<u128>>,
}

impl Evictable {
    fn new(by: Vec<Subfield>, rules: &[Arc<Rule>], now: Millis) -> Self {
        let empty = (HashMap::new(), HashMap::new(), BTreeMap::new());
        let mut order = Self { by, made: now, used: now, rules: empty.0, groups: empty.1, firsts: empty.2 };
        rules.iter().for_each(|rule| order.insert(rule));
        order
    }

    /// Adds a flow if it has a timeout.
    pub(crate) fn insert(&mut self, rule: &Arc<Rule>) {
        let Some(expiry) = expiry(rule).filter(|_| !rule.is_hidden()) else { return };
        let address = Arc::as_ptr(rule).addr();
        let (group, rank) = (group_of(rule, &self.by), (rule.importance, expiry, address));
        self.change_group(&group, |ranks| _ = ranks.insert(rank));
        self.rules.insert(address, (Arc::clone(rule), group, rank));
    }

    /// Removes a flow if it is there.
    pub(crate) fn remove(&mut self, rule: &Arc<Rule>) {
        if let Some((_, group, rank)) = self.rules.remove(&Arc::as_ptr(rule).addr()) {
            self.change_group(&group, |ranks| _ = ranks.remove(&rank));
        }
    }

    fn change_group(&mut self, group: &[u128], change: impl FnOnce(&mut BTreeSet<EvictionRank>)) {
        let mut ranks = self.groups.remove(group).unwrap_or_default();
        let first = |ranks: &BTreeSet<EvictionRank>| ranks.first().map(|rank| (Reverse(ranks.len()), *rank));
        if let Some(key) = first(&ranks) {
            self.firsts.remove(&key);
        }
        change(&mut ranks);
        if let Some(key) = first(&ranks) {
            self.firsts.insert(key, group.to_vec());
            self.groups.insert(group.to_vec(), ranks);
        }
    }

    /// Returns the flow to evict first.
    fn first(&self) -> Option<Arc<Rule>> {
        let (_, (_, _, address)) = self.firsts.first_key_value()?.0;
        self.rules.get(address).map(|(rule, ..)| Arc::clone(rule))
    }

    /// Returns true if it has not been used for a while.
    pub(crate) fn is_idle(&self, now: Millis) -> bool {
        now.since(self.used) > IDLE_MS
    }
}

/// The values that a flow matches in these fields; 0 for fields that it does not match.
fn group_of(rule: &Rule, by: &[Subfield]) -> Vec<u128> {
    if by.is_empty() {
        return Vec::new();
    }
    let matching = rule.minimatch.expand();
    let value = |part: &Subfield| {
        let (value, mask) = matching.get(part.field);
        if openflow::prereq::satisfied(part.field, &matching) { value & mask & part.mask() } else { 0 }
    };
    by.iter().map(value).collect()
}

impl Transaction<'_> {
    /// Makes room for one more flow in a full table, by evicting one if the table allows that.
    ///
    /// Error: `OFPFMFC_TABLE_FULL`.
    pub(crate) fn make_room(&mut self, table: u8) -> Result<(), OfpError> {
        let Some(overflow) = self.bridge.table_configs.overflow(table, self.n_flows(table)) else { return Ok(()) };
        if self.evict(table, &overflow) { Ok(()) } else { Err(OfpError::FmfcTableFull) }
    }

    /// Evicts flows until the table is within its limit, as far as there are any to evict.
    pub(crate) fn enforce_limit(&mut self, table: u8) {
        while let Some(overflow) = self.bridge.table_configs.overflow(table, self.n_flows(table))
            && self.n_flows(table) > overflow.max_flows
            && self.evict(table, &overflow)
        {}
    }

    /// Evicts a flow; returns false if there is none to evict.
    fn evict(&mut self, table: u8, overflow: &Overflow) -> bool {
        let (Some(by), now) = (&overflow.evict_by, self.now) else { return false };
        let current = self.writer.evictable.get(&table);
        if !current.is_some_and(|order| now.since(order.made) < ORDER_MS && order.by == *by) {
            let Ok(rules) = self.table(table).map(|t| t.rules.rules(classifier::LATEST)) else { return false };
            self.writer.evictable.insert(table, Evictable::new(by.clone(), &rules, now));
        }
        let Some(order) = self.writer.evictable.get_mut(&table) else { return false };
        order.used = now;
        let Some(rule) = order.first() else { return false };
        self.remove(&rule, RemovedReason::Eviction);
        true
    }
}
