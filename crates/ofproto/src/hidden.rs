//! Hidden flows: the switch's own flows, with priorities above the range of OpenFlow.
//!
//! They are in table 0, where they match packets before any controller's flow. OpenFlow neither shows nor changes
//! them ([`crate::flow_table::Criteria`] selects none), and flushing the tables leaves them; `bridge/dump-flows` shows
//! them. Each user of hidden flows has a range of priorities, and sets the flows in it.

use crate::bridge::Ofproto;
use crate::flow_table::RemovedReason;
use base::PortNo;
use classifier::Versions;
use flow::Match;
use openflow::{Action, OfpError};
use std::ops::RangeInclusive;
use std::sync::Arc;
use xlate::{Count, Rule};

/// A flow that OpenFlow does not see.
#[derive(Clone, PartialEq, Debug)]
pub struct HiddenFlow {
    /// Above 65535; the matching flow with the highest priority applies.
    pub priority: u32,
    /// Its match.
    pub matching: Match,
    /// Its actions.
    pub actions: Vec<Action>,
}

impl HiddenFlow {
    /// A flow with the NORMAL action.
    pub fn normal(priority: u32, matching: Match) -> Self {
        Self { priority, matching, actions: vec![Action::Output { port: PortNo::NORMAL, max_len: 0 }] }
    }

    fn is(&self, rule: &Rule) -> bool {
        self.priority == rule.priority && *self.actions == *rule.actions && self.matching == rule.minimatch.expand()
    }
}

impl Ofproto {
    /// Sets the hidden flows with priorities in `range` to exactly these, at once. Existing flows stay, with their counters.
    pub fn set_hidden(&self, range: &RangeInclusive<u32>, flows: &[HiddenFlow]) {
        debug_assert!(*range.start() > u16::MAX.into() && flows.iter().all(|f| range.contains(&f.priority)));
        let result = self.transaction(|t| {
            let mut there = t.writer.hidden.clone();
            there.retain(|rule| range.contains(&rule.priority));
            let new: Vec<_> = flows.iter().filter(|flow| !there.iter().any(|rule| flow.is(rule))).collect();
            let rules: Vec<_> = {
                let rules = &t.table(0)?.rules;
                new.iter().map(|flow| rules.compress(&flow.matching)).collect()
            };
            for old in there.iter().filter(|rule| !flows.iter().any(|flow| flow.is(rule))) {
                t.remove(old, RemovedReason::Delete);
            }
            for (flow, minimatch) in new.into_iter().zip(rules) {
                let rule = Rule {
                    minimatch,
                    priority: flow.priority,
                    table: 0,
                    cookie: 0,
                    idle_timeout: 0,
                    hard_timeout: 0,
                    importance: 0,
                    flags: openflow::flow_mod::FlowFlags::default(),
                    actions: flow.actions.clone().into(),
                    created: t.now,
                    modified: t.now.0.into(),
                    versions: Versions::new(t.next_version()),
                    conjunctions: Box::default(),
                    count: Count::since(t.now),
                };
                t.put(&Arc::new(rule), None)?;
            }
            Ok::<(), OfpError>(())
        });
        debug_assert!(result.is_ok(), "table 0 is there");
    }
}
