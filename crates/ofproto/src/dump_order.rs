//! The order of flows in dumps: table by table; in a table, by set of matched fields, in the order of the classifier; and in a
//! set by age, where a flow that replaces another one is new. As in Open vSwitch, whose users compare dumps.

use crate::bridge::Ofproto;
use crate::flow_table::Criteria;
use classifier::MiniMask;
use std::collections::HashMap;
use std::sync::Arc;
use xlate::Rule;

/// The position of a rule in a dump, which distinguishes it from all others: its group, the version that added it, and its
/// address. (A reused address belongs to a later version.)
pub(crate) type Position = (u64, u64, usize);

/// A rule and its position.
pub(crate) type Placed = (Position, Arc<Rule>);

/// The order of a dump. It stays the same when the tables change, so that a dump can be continued.
#[derive(Debug)]
pub(crate) enum DumpOrder {
    /// By table, set of fields and age. The sets are those of the tables when the dump began; `None` before.
    Sets(Option<HashMap<(u8, Arc<MiniMask>), u64>>),
    /// By age in all tables.
    Age,
}

impl Default for DumpOrder {
    fn default() -> Self {
        Self::Sets(None)
    }
}

impl DumpOrder {
    /// Begins a dump of the flows that `criteria` select, unless it has begun. To be called before they are collected.
    pub(crate) fn begin(&mut self, bridge: &Ofproto, criteria: &Criteria) {
        if let Self::Sets(sets @ None) = self {
            let mut all = HashMap::new();
            for (number, table) in (0..=u8::MAX).zip(bridge.tables().iter()) {
                if criteria.table_id.is_none_or(|id| id == number) {
                    all.extend((0..).zip(table.rules.masks()).map(|(at, mask)| ((number, mask), at)));
                }
            }
            *sets = Some(all);
        }
    }

    /// Sorts rules, and drops those up to the position `last`.
    pub(crate) fn sort(&self, rules: Vec<Arc<Rule>>, last: Option<Position>) -> std::vec::IntoIter<Placed> {
        let mut group = self.groups();
        let place = |rule: Arc<Rule>| ((group(&rule), rule.versions.added(), Arc::as_ptr(&rule).addr()), rule);
        let mut placed: Vec<Placed> = rules.into_iter().map(place).collect();
        placed.retain(|(position, _)| last.is_none_or(|last| *position > last));
        placed.sort_unstable_by_key(|(position, _)| *position);
        placed.dedup_by_key(|(position, _)| *position);
        placed.into_iter()
    }

    /// Returns a function for the groups of rules, mostly of many rules of one group after another.
    fn groups(&self) -> impl FnMut(&Rule) -> u64 + use<'_> {
        let mut known: Option<((u8, Arc<MiniMask>), u64)> = None;
        move |rule| {
            let Self::Sets(sets) = self else { return 0 };
            let mask = rule.minimatch.mask();
            if let Some(((table, of_last), group)) = &known
                && *table == rule.table
                && Arc::ptr_eq(of_last, mask)
            {
                return *group;
            }
            let set = (rule.table, Arc::clone(mask));
            // A rule that was removed before the dump began may have been the last one of its set.
            let at = sets.as_ref().and_then(|sets| sets.get(&set)).copied().unwrap_or(u64::from(u32::MAX));
            let group = u64::from(rule.table) << 32 | at;
            known = Some((set, group));
            group
        }
    }
}
