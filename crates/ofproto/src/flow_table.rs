//! Flow modifications (OpenFlow 1.3 section 6.4), all called on the control thread.

use crate::bridge::Ofproto;
use crate::revalidate::{Change, RuleChange};
use base::PortNo;
use classifier::{LATEST, Versions};
use flow::Match;
use openflow::OfpError;
use openflow::action::Action;
use openflow::flow_mod::{FlowMod, FlowModCommand, GROUP_ANY};
use std::sync::Arc;
use xlate::model::N_TABLES;
use xlate::{Rule, RuleStats};

/// The table that Open vSwitch keeps for itself: controllers can look at it, not change it.
pub const INTERNAL_TABLE: u8 = 254;

/// Why a flow is gone (`ofp_flow_removed_reason`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RemovedReason {
    /// No packet for too long.
    IdleTimeout = 0,
    /// Its time was over.
    HardTimeout = 1,
    /// Deleted by a flow modification.
    Delete = 2,
}

/// A flow that is gone.
#[derive(Clone, Debug)]
pub struct Removed {
    /// The flow.
    pub rule: Arc<Rule>,
    /// Why.
    pub reason: RemovedReason,
}

/// Which flows a request is about: flow statistics, modifications and deletions.
#[derive(Clone, Debug)]
pub struct Criteria {
    /// Which table; `None` for all.
    pub table_id: Option<u8>,
    /// What flows must lie within.
    pub matching: Match,
    /// With this, flows must have this very match and this priority.
    pub strict_priority: Option<u16>,
    /// Cookie that flows must have in the bits of `cookie_mask`.
    pub cookie: u64,
    /// See `cookie`.
    pub cookie_mask: u64,
    /// Only flows that output to this port; `PortNo::ANY` for no such limit.
    pub out_port: PortNo,
    /// Only flows that output to this group; [`GROUP_ANY`] for no such limit.
    pub out_group: u32,
}

impl Criteria {
    /// All flows of all tables.
    pub fn any() -> Self {
        Self {
            table_id: None,
            matching: Match::ANY,
            strict_priority: None,
            cookie: 0,
            cookie_mask: 0,
            out_port: PortNo::ANY,
            out_group: GROUP_ANY,
        }
    }

    fn of(fm: &FlowMod) -> Self {
        let strict = matches!(fm.command, FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict);
        let delete = matches!(fm.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
        Self {
            table_id: fm.table_id,
            matching: fm.matching.clone(),
            strict_priority: strict.then_some(fm.priority),
            cookie: fm.cookie,
            cookie_mask: fm.cookie_mask,
            out_port: if delete { fm.out_port } else { PortNo::ANY },
            out_group: if delete { fm.out_group } else { GROUP_ANY },
        }
    }

    fn admits(&self, rule: &Rule) -> bool {
        (rule.cookie ^ self.cookie) & self.cookie_mask == 0
            && (self.out_port == PortNo::ANY || rule.actions.iter().any(|a| outputs_to(a, self.out_port)))
            && self.out_group == GROUP_ANY
    }
}

/// Whether an action sends to `port`, as `out_port` filters understand it: the port itself, not by way of a register.
fn outputs_to(action: &Action, port: PortNo) -> bool {
    match action {
        Action::Output { port: p, .. } | Action::OutputTrunc { port: p, .. } | Action::Enqueue { port: p, .. } => {
            *p == port
        }
        Action::Controller(_) => port == PortNo::CONTROLLER,
        Action::Clone(inner) | Action::WriteActions(inner) => inner.iter().any(|a| outputs_to(a, port)),
        _ => false,
    }
}

impl Ofproto {
    /// Flows that meet `criteria`, table by table.
    pub fn collect(&self, criteria: &Criteria) -> Vec<Arc<Rule>> {
        let mut found = Vec::new();
        let tables = match criteria.table_id {
            Some(t) => usize::from(t)..usize::from(t) + 1,
            None => 0..N_TABLES,
        };
        for table in self.tables().get(tables).unwrap_or(&[]) {
            match criteria.strict_priority {
                Some(priority) => found.extend(table.rules.find(&criteria.matching, priority.into(), LATEST)),
                None => found.extend(table.rules.within(&criteria.matching, LATEST)),
            }
        }
        found.retain(|r| criteria.admits(r));
        found
    }

    /// Carries out a flow modification whose actions have been checked, and returns the flows that it removed.
    pub fn flow_mod(&self, fm: &FlowMod) -> Result<Vec<Removed>, OfpError> {
        if fm.table_id.is_some_and(|t| usize::from(t) >= N_TABLES) {
            return Err(OfpError::FmfcBadTableId);
        }
        if fm.table_id == Some(INTERNAL_TABLE) {
            return Err(OfpError::BrcEperm);
        }
        let removed = match fm.command {
            FlowModCommand::Add => {
                self.add(fm)?;
                Vec::new()
            }
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                self.modify(fm)?;
                Vec::new()
            }
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => self.delete(fm),
        };
        base::coverage!(rev_flow_table);
        Ok(removed)
    }

    fn add(&self, fm: &FlowMod) -> Result<(), OfpError> {
        let table_id = fm.table_id.unwrap_or(0);
        let table = self.tables().get(usize::from(table_id)).ok_or(OfpError::FmfcBadTableId)?;
        let now = self.now();
        let rules = &table.rules;
        let old = rules.find(&fm.matching, fm.priority.into(), LATEST);
        // What only takes another's place overlaps with nothing that the other did not.
        if old.is_none() && fm.flags.check_overlap && rules.overlaps(&fm.matching, fm.priority.into(), LATEST) {
            return Err(OfpError::FmfcOverlap);
        }
        let kept = old.as_ref().filter(|_| !fm.flags.reset_counts);
        let stats = kept.map_or_else(Arc::<RuleStats>::default, |old| Arc::clone(&old.stats));
        let rule = Arc::new(Rule {
            minimatch: rules.compress(&fm.matching),
            priority: fm.priority,
            table: table_id,
            cookie: fm.new_cookie,
            idle_timeout: fm.idle_timeout,
            hard_timeout: fm.hard_timeout,
            importance: fm.importance,
            flags: fm.flags,
            actions: fm.actions.clone().into(),
            created: now,
            modified: now,
            versions: Versions::new(0),
            stats,
        });
        self.expirable.insert(&rule);
        rules.insert(Arc::clone(&rule));
        let what = if old.is_some() { RuleChange::Replaced } else { RuleChange::Added };
        if let Some(old) = old {
            rules.remove(&old);
            self.expirable.remove(&old);
        }
        self.rule_changed(rule, what);
        Ok(())
    }

    fn modify(&self, fm: &FlowMod) -> Result<(), OfpError> {
        let found = self.collect(&Criteria::of(fm));
        if found.is_empty() {
            // OpenFlow 1.0 and 1.1 add what is not there to be modified.
            return if fm.modify_cookie && fm.cookie_mask == 0 { self.add(fm) } else { Ok(()) };
        }
        let actions: Arc<[Action]> = fm.actions.clone().into();
        let now = self.now();
        for old in found {
            let stats = if fm.flags.reset_counts { Arc::default() } else { Arc::clone(&old.stats) };
            let rule = Arc::new(Rule {
                minimatch: old.minimatch.clone(),
                cookie: if fm.modify_cookie { fm.new_cookie } else { old.cookie },
                actions: Arc::clone(&actions),
                modified: now,
                versions: Versions::new(0),
                stats,
                ..*old
            });
            self.expirable.remove(&old);
            self.expirable.insert(&rule);
            let rules = &self.tables()[usize::from(old.table)].rules;
            rules.insert(Arc::clone(&rule));
            rules.remove(&old);
            self.rule_changed(rule, RuleChange::Replaced);
        }
        Ok(())
    }

    fn delete(&self, fm: &FlowMod) -> Vec<Removed> {
        let found = self.collect(&Criteria::of(fm));
        found.iter().filter_map(|rule| self.remove_rule(rule, RemovedReason::Delete)).collect()
    }

    /// Removes a rule, if it is (still) in its table.
    pub(crate) fn remove_rule(&self, rule: &Arc<Rule>, reason: RemovedReason) -> Option<Removed> {
        self.expirable.remove(rule);
        let rules = &self.tables().get(usize::from(rule.table))?.rules;
        rules.remove(rule).then(|| {
            self.rule_changed(Arc::clone(rule), RuleChange::Removed);
            Removed { rule: Arc::clone(rule), reason }
        })
    }

    /// Tells that a table is not as it was: `rule` came into it or left it just before.
    fn rule_changed(&self, rule: Arc<Rule>, what: RuleChange) {
        self.changed(Change::Rule { bridge: self.id(), table: rule.table, rule, what });
    }

    /// Counts what the datapath forwarded by flows that are gone, and tells controllers of them. By now nothing more is
    /// forwarded by them, so that the counts are final.
    pub(crate) fn finish_removal(&self, removed: &[Removed]) {
        if removed.iter().any(|r| r.rule.flags.send_flow_rem) {
            if let Some(switch) = self.switch() {
                switch.revalidate();
            }
            self.send_flows_removed(removed);
        }
    }

    /// Removes all flows without telling anybody.
    pub fn flush_flows(&self) {
        base::coverage!(ofproto_flush);
        for rule in self.collect(&Criteria::any()) {
            self.remove_rule(&rule, RemovedReason::Delete);
        }
    }

    /// Flows in all tables.
    pub fn n_flows(&self) -> usize {
        self.tables().iter().map(|t| t.rules.len()).sum()
    }

    pub(crate) fn now(&self) -> base::Millis {
        self.switch().map(|s| s.clock().now()).unwrap_or_default()
    }
}
