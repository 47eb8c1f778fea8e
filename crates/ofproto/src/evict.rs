//! Which flow makes room for another in a table that is full (Flow_Table:overflow_policy of ovs-vswitchd.conf.db(5)).
//!
//! Only flows that time out do. They fall into groups by the values of some fields; of the largest group, the flow of the
//! lowest importance goes that expires soonest. Groups and flows are kept in that order from when a table first overflows
//! until it has not for a while; as packets put off the end of flows, the order is made anew every second.

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

/// Milliseconds for which an order is taken for the right one.
const ORDER_MS: u64 = 1000;
/// Milliseconds for which it is kept up to date without being used.
const IDLE_MS: u64 = 10_000;

/// What a flow is chosen by among its group: the least of them goes. The last is the rule's address, by which it is found.
type Place = (u16, Millis, usize);

/// The flows of a table that may make room, in order.
#[derive(Debug)]
pub(crate) struct Evictable {
    by: Vec<Subfield>,
    made: Millis,
    used: Millis,
    rules: HashMap<usize, (Arc<Rule>, Vec<u128>, Place)>,
    groups: HashMap<Vec<u128>, BTreeSet<Place>>,
    /// The first flow of each group, and which group that is, the largest group first.
    firsts: BTreeMap<(Reverse<usize>, Place), Vec<u128>>,
}

impl Evictable {
    fn new(by: Vec<Subfield>, rules: &[Arc<Rule>], now: Millis) -> Self {
        let empty = (HashMap::new(), HashMap::new(), BTreeMap::new());
        let mut order = Self { by, made: now, used: now, rules: empty.0, groups: empty.1, firsts: empty.2 };
        rules.iter().for_each(|rule| order.insert(rule));
        order
    }

    /// Puts a flow among the others, if it times out.
    pub(crate) fn insert(&mut self, rule: &Arc<Rule>) {
        let Some(expiry) = expiry(rule).filter(|_| !rule.is_hidden()) else { return };
        let address = Arc::as_ptr(rule).addr();
        let (group, place) = (group_of(rule, &self.by), (rule.importance, expiry, address));
        self.change_group(&group, |places| _ = places.insert(place));
        self.rules.insert(address, (Arc::clone(rule), group, place));
    }

    /// Takes a flow away, if it is there.
    pub(crate) fn remove(&mut self, rule: &Arc<Rule>) {
        if let Some((_, group, place)) = self.rules.remove(&Arc::as_ptr(rule).addr()) {
            self.change_group(&group, |places| _ = places.remove(&place));
        }
    }

    fn change_group(&mut self, group: &[u128], change: impl FnOnce(&mut BTreeSet<Place>)) {
        let mut places = self.groups.remove(group).unwrap_or_default();
        let first = |places: &BTreeSet<Place>| places.first().map(|place| (Reverse(places.len()), *place));
        if let Some(key) = first(&places) {
            self.firsts.remove(&key);
        }
        change(&mut places);
        if let Some(key) = first(&places) {
            self.firsts.insert(key, group.to_vec());
            self.groups.insert(group.to_vec(), places);
        }
    }

    /// The flow that is to go first.
    fn first(&self) -> Option<Arc<Rule>> {
        let (_, (_, _, address)) = self.firsts.first_key_value()?.0;
        self.rules.get(address).map(|(rule, ..)| Arc::clone(rule))
    }

    /// Whether it has long not been used.
    pub(crate) fn is_idle(&self, now: Millis) -> bool {
        now.since(self.used) > IDLE_MS
    }
}

/// What a flow has in these fields; 0 in those that it does not match on.
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
    /// Makes room for one more flow in a table that is full.
    ///
    /// Error: `OFPFMFC_TABLE_FULL`.
    pub(crate) fn make_room(&mut self, table: u8) -> Result<(), OfpError> {
        let Some(overflow) = self.bridge.table_configs.overflow(table, self.n_flows(table)) else { return Ok(()) };
        if self.evict(table, &overflow) { Ok(()) } else { Err(OfpError::FmfcTableFull) }
    }

    /// Has a table hold no more flows than it may, as far as there are any that make room.
    pub(crate) fn make_fit(&mut self, table: u8) {
        while let Some(overflow) = self.bridge.table_configs.overflow(table, self.n_flows(table))
            && self.n_flows(table) > overflow.max_flows
            && self.evict(table, &overflow)
        {}
    }

    /// Whether a flow could be evicted.
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
