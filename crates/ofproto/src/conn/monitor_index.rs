//! An index of flow monitors by the flows that they select.
//!
//! Each change of a flow is compared with all monitors of a connection, of which there may be thousands. Monitors whose matches
//! have the same mask form a [`Class`], indexed by the values under the mask: a change costs little for a class that cannot
//! select the flow, one look-up for one that can, and more only for monitors whose match contains the flow's.

use crate::flow_table::ports_of;
use crate::transaction::groups_of;
use base::PortNo;
use flow::{FlowKey, FlowMask, Match};
use openflow::Action;
use openflow::flow_mod::GROUP_ANY;
use openflow::monitor::FlowMonitorRequest;
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::collections::HashMap;
use xlate::Rule;

/// A flow's actions, and its previous ones.
pub(super) type Actions<'a> = [&'a [Action]; 2];

/// Monitors, indexed by their matches.
#[derive(Clone, Debug, Default)]
pub(super) struct MonitorIndex {
    classes: Vec<Class>,
    /// The flags of all monitors together, and maybe those of some that have ended.
    flags: u16,
}

/// Monitors whose matches have the same mask.
#[derive(Clone, Debug)]
struct Class {
    mask: Words,
    by_value: HashMap<Values, Vec<IndexedMonitor>, foldhash::fast::RandomState>,
}

/// The words of a mask that are not zero, in ascending order.
type Words = SmallVec<[(u8, u64); 4]>;
/// The values in these words.
type Values = SmallVec<[u64; 4]>;

/// One monitor without its match.
#[derive(Clone, Copy, Debug)]
struct IndexedMonitor {
    id: u32,
    flags: u16,
    table: Option<u8>,
    out_port: PortNo,
    out_group: u32,
}

/// The ports that a flow outputs to now or did before, and the groups that it references now: as in Open vSwitch, a monitor of a
/// group is not notified when a flow stops to reference it.
#[derive(Debug)]
struct Ends {
    ports: Vec<PortNo>,
    groups: Vec<u32>,
}

fn words_of(mask: &FlowMask) -> Words {
    mask.0.iter().enumerate().filter(|(_, bits)| **bits != 0).map(|(word, bits)| (word as u8, *bits)).collect()
}

fn values_of(key: &FlowKey, mask: &Words) -> Values {
    mask.iter().map(|(word, bits)| key.0.get(usize::from(*word)).copied().unwrap_or(0) & bits).collect()
}

impl Class {
    /// Returns true if matches with this mask can contain `matching`.
    fn is_within(&self, matching: &Match) -> bool {
        self.mask.iter().all(|(word, bits)| matching.mask().0.get(usize::from(*word)).is_some_and(|m| bits & !m == 0))
    }

    /// Returns the monitors whose matches contain `matching`.
    fn containing(&self, matching: &Match) -> &[IndexedMonitor] {
        if !self.is_within(matching) {
            return &[];
        }
        let key = matching.key();
        // Comparing a single value is faster than a look-up.
        if self.by_value.len() == 1 {
            let same =
                |values: &Values| self.mask.iter().zip(values).all(|((w, m), v)| key.0[usize::from(*w)] & m == *v);
            return self.by_value.iter().find(|(values, _)| same(values)).map_or(&[], |(_, monitors)| monitors);
        }
        self.by_value.get(&values_of(key, &self.mask)).map_or(&[], Vec::as_slice)
    }
}

impl Ends {
    fn of(actions: Actions<'_>) -> Self {
        let mut ports = Vec::new();
        for list in actions {
            ports_of(list, &mut |port| ports.push(port));
        }
        let [current, _] = actions;
        let mut groups: Vec<u32> = groups_of(current).collect();
        ports.sort_unstable();
        groups.sort_unstable();
        Self { ports, groups }
    }
}

impl MonitorIndex {
    /// Adds a monitor.
    pub(super) fn insert(&mut self, monitor: &FlowMonitorRequest) {
        let FlowMonitorRequest { id, flags, table_id: table, out_port, out_group, .. } = *monitor;
        self.flags |= flags;
        let mask = words_of(monitor.matching.mask());
        let values = values_of(monitor.matching.key(), &mask);
        let at = self.classes.iter().position(|class| class.mask == mask).unwrap_or_else(|| {
            self.classes.push(Class { mask, by_value: HashMap::default() });
            self.classes.len() - 1
        });
        let monitor = IndexedMonitor { id, flags, table, out_port, out_group };
        self.classes[at].by_value.entry(values).or_default().push(monitor);
    }

    /// Removes a monitor.
    pub(super) fn remove(&mut self, monitor: &FlowMonitorRequest) {
        let mask = words_of(monitor.matching.mask());
        let values = values_of(monitor.matching.key(), &mask);
        let Some(at) = self.classes.iter().position(|class| class.mask == mask) else { return };
        let by_value = &mut self.classes[at].by_value;
        if let Some(monitors) = by_value.get_mut(&values) {
            monitors.retain(|other| other.id != monitor.id);
            if monitors.is_empty() {
                by_value.remove(&values);
            }
        }
        if by_value.is_empty() {
            self.classes.swap_remove(at);
        }
        if self.classes.is_empty() {
            self.flags = 0;
        }
    }

    /// The flags of all monitors together, and maybe more.
    pub(super) fn flags(&self) -> u16 {
        self.flags
    }

    /// Returns the combined flags of the monitors that want an event of a flow.
    pub(super) fn flags_for(&self, events: u16, rule: &Rule, matching: &Match, actions: Actions<'_>) -> u16 {
        if self.flags & events == 0 || rule.is_hidden() {
            return 0;
        }
        let ends = OnceCell::new();
        let ends = || ends.get_or_init(|| Ends::of(actions));
        let mut flags = 0;
        for monitor in self.classes.iter().flat_map(|class| class.containing(matching)) {
            let admits = monitor.flags & events != 0
                && monitor.table.is_none_or(|table| table == rule.table)
                && (monitor.out_port == PortNo::ANY || ends().ports.binary_search(&monitor.out_port).is_ok())
                && (monitor.out_group == GROUP_ANY || ends().groups.binary_search(&monitor.out_group).is_ok());
            if admits {
                flags |= monitor.flags;
                if flags == self.flags {
                    break;
                }
            }
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_table::{output_to, references_group};
    use base::Millis;
    use classifier::{MiniMatch, Versions};
    use flow::Field;
    use openflow::monitor::{MonitorCommand, flag};
    use proptest::prelude::*;
    use std::sync::Arc;

    const EVENTS: [u16; 4] = [flag::INITIAL, flag::ADD, flag::DELETE, flag::MODIFY];

    /// A model that examines each monitor.
    fn flags_of(monitors: &[FlowMonitorRequest], event: u16, rule: &Rule, m: &Match, actions: Actions<'_>) -> u16 {
        let admits = |monitor: &&FlowMonitorRequest| {
            monitor.flags & event != 0
                && !rule.is_hidden()
                && monitor.table_id.is_none_or(|table| table == rule.table)
                && actions.iter().any(|actions| output_to(actions, monitor.out_port))
                && references_group(actions[0], monitor.out_group)
                && monitor.matching.contains(m)
        };
        monitors.iter().filter(admits).fold(0, |flags, monitor| flags | monitor.flags)
    }

    fn matches() -> impl Strategy<Value = Match> {
        let port = prop::option::of(1u128..4);
        let dst = prop::option::of((0u128..4, prop::sample::select(vec![1u128, 2, 3, 0xffff_ffff_ffff])));
        (port, dst, any::<bool>()).prop_map(|(port, dst, ip)| {
            let mut m = Match::ANY;
            port.into_iter().for_each(|port| m.set(Field::InPortOxm, port));
            dst.into_iter().for_each(|(value, mask)| m.set_masked(Field::EthDst, value, mask));
            if ip {
                m.set(Field::EthType, 0x800);
            }
            m
        })
    }

    fn lists() -> impl Strategy<Value = Vec<Action>> {
        let to = |port| Action::Output { port: PortNo(port), max_len: 0 };
        let action = prop_oneof![
            (1u32..4).prop_map(to),
            (1u32..4).prop_map(Action::Group),
            (1u32..4).prop_map(move |port| Action::WriteActions(vec![to(port)])),
            Just(Action::PopVlan),
        ];
        prop::collection::vec(action, 0..3)
    }

    fn monitors() -> impl Strategy<Value = Vec<FlowMonitorRequest>> {
        let monitor = (matches(), 0u16..0x40, prop::option::of(0u8..2), 0u32..4, 0u32..4);
        prop::collection::vec(monitor, 0..30).prop_map(|monitors| {
            let numbered = monitors.into_iter().enumerate();
            numbered
                .map(|(id, (matching, flags, table_id, port, group))| FlowMonitorRequest {
                    id: id as u32,
                    command: MonitorCommand::Add,
                    flags,
                    out_port: if port == 0 { PortNo::ANY } else { PortNo(port) },
                    out_group: if group == 0 { GROUP_ANY } else { group },
                    table_id,
                    matching,
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn the_index_equals_a_scan_of_all_monitors(
            mut monitors in monitors(),
            gone in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
            flows in prop::collection::vec((matches(), lists(), lists(), 0u8..2), 1..10),
        ) {
            let mut index = MonitorIndex::default();
            monitors.iter().for_each(|monitor| index.insert(monitor));
            for at in gone {
                if !monitors.is_empty() {
                    index.remove(&monitors.remove(at.index(monitors.len())));
                }
            }
            for (matching, new, old, table) in flows {
                let rule = Rule {
                    minimatch: MiniMatch::new(&matching),
                    priority: 1,
                    table,
                    cookie: 0,
                    idle_timeout: 0,
                    hard_timeout: 0,
                    importance: 0,
                    flags: openflow::flow_mod::FlowFlags::default(),
                    actions: Arc::from(new.clone()),
                    created: Millis(0),
                    modified: 0.into(),
                    versions: Versions::new(1),
                    conjunctions: Box::default(),
                    count: xlate::Count::default(),
                };
                for event in EVENTS {
                    let expected = flags_of(&monitors, event, &rule, &matching, [&new, &old]);
                    prop_assert_eq!(index.flags_for(event, &rule, &matching, [&new, &old]), expected);
                }
            }
            for monitor in &monitors {
                index.remove(monitor);
            }
            prop_assert!(index.classes.is_empty() && index.flags == 0);
        }
    }
}
