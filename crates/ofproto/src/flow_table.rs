//! Flow modifications (OpenFlow 1.3 section 6.4).

use crate::bridge::Ofproto;
use crate::flow_change::FlowChangeKind;
use crate::transaction::{Transaction, groups_of};
use base::PortNo;
use classifier::{LATEST, Versions};
use flow::Match;
use openflow::OfpError;
use openflow::action::Action;
use openflow::flow_mod::{FlowMod, FlowModCommand, GROUP_ANY};
use std::sync::Arc;
use xlate::model::{N_TABLES, conjunctions_of};
use xlate::{Count, Rule, Table};

/// The table that Open vSwitch reserves for itself: controllers can read it, but not change it.
pub const INTERNAL_TABLE: u8 = 254;

/// The reason for a flow's removal (`ofp_flow_removed_reason`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RemovedReason {
    /// The idle timeout expired.
    IdleTimeout = 0,
    /// The hard timeout expired.
    HardTimeout = 1,
    /// Deleted by a flow modification.
    Delete = 2,
    /// A group that it references was deleted.
    GroupDelete = 3,
    /// A meter that it references was deleted.
    MeterDelete = 4,
    /// It was evicted.
    Eviction = 5,
}

/// A removed flow.
#[derive(Clone, Debug)]
pub struct Removed {
    /// The flow.
    pub rule: Arc<Rule>,
    /// The reason.
    pub reason: RemovedReason,
}

/// The criteria by which requests select flows: flow statistics, modifications and deletions. They never select hidden flows.
#[derive(Clone, Debug)]
pub struct Criteria {
    /// The table; `None` for all.
    pub table_id: Option<u8>,
    /// Selects flows whose match is contained in this one.
    pub matching: Match,
    /// Selects only flows with exactly this match and this priority.
    pub strict_priority: Option<u16>,
    /// Selects flows with this cookie, in the bits of `cookie_mask`.
    pub cookie: u64,
    /// See `cookie`.
    pub cookie_mask: u64,
    /// Selects flows that output to this port; `PortNo::ANY` for no such limit.
    pub out_port: PortNo,
    /// Selects flows that output to this group; [`GROUP_ANY`] for no such limit.
    pub out_group: u32,
}

impl Criteria {
    /// Selects all flows of all tables.
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

    pub(crate) fn of(fm: &FlowMod) -> Self {
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

    /// Returns true if a version of the tables has the rule, and it meets the criteria, which must have no priority.
    pub(crate) fn selects(&self, rule: &Rule, version: u64) -> bool {
        rule.versions.visible_in(version)
            && self.table_id.is_none_or(|table| table == rule.table)
            && self.admits(rule)
            && (self.matching == Match::ANY
                || rule.minimatch.mask().covers(self.matching.mask()) && rule.minimatch.is_within(&self.matching))
    }

    fn admits(&self, rule: &Rule) -> bool {
        !rule.is_hidden()
            && (rule.cookie ^ self.cookie) & self.cookie_mask == 0
            && output_to(&rule.actions, self.out_port)
            && references_group(&rule.actions, self.out_group)
    }
}

/// Checks that controllers may change flows of a table.
///
/// Errors: `OFPFMFC_BAD_TABLE_ID`, `OFPBRC_EPERM` to add to or modify the reserved table.
pub(crate) fn check_table(fm: &FlowMod) -> Result<(), OfpError> {
    match fm.table_id {
        // A deletion there finds no flow of a controller.
        Some(INTERNAL_TABLE) if !fm.command.adds() => Ok(()),
        Some(INTERNAL_TABLE) => Err(OfpError::BrcEperm),
        Some(t) if usize::from(t) >= N_TABLES => Err(OfpError::FmfcBadTableId),
        _ => Ok(()),
    }
}

/// Returns true if actions output to a port; [`PortNo::ANY`] allows all actions.
pub(crate) fn output_to(actions: &[Action], port: PortNo) -> bool {
    port == PortNo::ANY || actions.iter().any(|a| outputs_to(a, port))
}

/// Returns true if actions reference a group; [`GROUP_ANY`] allows all actions.
pub(crate) fn references_group(actions: &[Action], group: u32) -> bool {
    group == GROUP_ANY || groups_of(actions).any(|id| id == group)
}

/// Returns true if an action outputs to `port`, by the rules of `out_port` filters.
fn outputs_to(action: &Action, port: PortNo) -> bool {
    match action {
        Action::Clone(inner) | Action::WriteActions(inner) => inner.iter().any(|a| outputs_to(a, port)),
        _ => port_of(action) == Some(port),
    }
}

/// Calls `each` with the ports that actions output to, by the rules of `out_port` filters.
pub(crate) fn ports_of(actions: &[Action], each: &mut impl FnMut(PortNo)) {
    for action in actions {
        match action {
            Action::Clone(inner) | Action::WriteActions(inner) => ports_of(inner, each),
            _ => port_of(action).into_iter().for_each(&mut *each),
        }
    }
}

/// The port that an action names, except by a register.
fn port_of(action: &Action) -> Option<PortNo> {
    match action {
        Action::Output { port, .. } | Action::OutputTrunc { port, .. } | Action::Enqueue { port, .. } => Some(*port),
        Action::Controller(_) => Some(PortNo::CONTROLLER),
        _ => None,
    }
}

impl Ofproto {
    /// Returns the flows that meet `criteria`, table by table.
    pub fn collect(&self, criteria: &Criteria) -> Vec<Arc<Rule>> {
        let view = self.tables().view();
        self.collect_in(criteria, view.version)
    }

    /// Returns those of a version of the tables.
    pub(crate) fn collect_in(&self, criteria: &Criteria, version: u64) -> Vec<Arc<Rule>> {
        if let Some(found) = self.index.collect(criteria, version) {
            return found;
        }
        let mut found = Vec::new();
        for table in self.tables_of(criteria) {
            match criteria.strict_priority {
                Some(priority) => found.extend(table.rules.find(&criteria.matching, priority.into(), version)),
                None => found.extend(table.rules.within(&criteria.matching, version)),
            }
        }
        found.retain(|r| criteria.admits(r));
        found
    }

    /// Returns true if more than `n` flows have to be examined to collect those that meet `criteria`.
    pub(crate) fn may_select_more_than(&self, criteria: &Criteria, n: usize) -> bool {
        if criteria.strict_priority.is_some() {
            return false;
        }
        if let Some(found) = self.index.count(criteria, n + 1) {
            return found > n;
        }
        let mut left = n;
        let mut exceeds = |table: &Table| {
            let rest = left.checked_sub(table.rules.within_at_most(&criteria.matching));
            left = rest.unwrap_or(0);
            rest.is_none()
        };
        self.tables_of(criteria).iter().any(&mut exceeds)
    }

    /// The tables in which flows may meet `criteria`.
    fn tables_of(&self, criteria: &Criteria) -> &[Table] {
        let tables = match criteria.table_id {
            Some(t) => usize::from(t)..usize::from(t) + 1,
            None => 0..N_TABLES,
        };
        self.tables().get(tables).unwrap_or(&[])
    }

    /// Applies a flow mod whose actions have been checked, and returns the flows that it removed.
    pub fn flow_mod(&self, fm: &FlowMod) -> Result<Vec<Removed>, OfpError> {
        Ok(self.transaction(|t| t.flow_mod(fm))?.1)
    }

    /// Removes those of the rules that are (still) in their tables.
    pub(crate) fn remove_rules(&self, rules: &[(Arc<Rule>, RemovedReason)]) -> Vec<Removed> {
        let removed = self.transaction(|t| {
            rules.iter().for_each(|(rule, reason)| t.remove(rule, *reason));
            Ok(())
        });
        removed.map(|((), removed)| removed).unwrap_or_default()
    }

    /// Reports removed flows to the controllers, once the datapath does not use them any more and their counts are final.
    pub(crate) fn finish_removal(&self, mut removed: Vec<Removed>) {
        removed.retain(|removed| removed.rule.flags.send_flow_rem);
        if removed.is_empty() {
            return;
        }
        if let Some(switch) = self.switch()
            && let Some(bridge) = switch.bridge(self.id())
        {
            switch.after_changes(move || bridge.send_flows_removed(&removed));
        }
    }

    /// The number of flows in all tables.
    pub fn n_flows(&self) -> usize {
        self.tables().iter().map(|t| t.n_active() as usize).sum()
    }

    pub(crate) fn now(&self) -> base::Millis {
        self.switch().map(|s| s.clock().now()).unwrap_or_default()
    }
}

impl Transaction<'_> {
    /// Checks that the datapath supports a flow.
    fn check_supported(&self, fm: &FlowMod) -> Result<(), OfpError> {
        if let Some(switch) = self.bridge.switch() {
            switch.features.check_match(&fm.matching)?;
        }
        self.check_datapath(&fm.actions)
    }

    /// Applies a flow mod whose actions have been checked, except for references to groups.
    ///
    /// Errors: `OFPFMFC_BAD_TABLE_ID`, `OFPBRC_EPERM` for the reserved table, `OFPFMFC_OVERLAP`,
    /// `OFPBAC_BAD_OUT_GROUP`, `OFPFMFC_TABLE_FULL`, `NXBMC_CT_DATAPATH_SUPPORT`, `NXBAC_CT_DATAPATH_SUPPORT`.
    pub fn flow_mod(&mut self, fm: &FlowMod) -> Result<(), OfpError> {
        check_table(fm)?;
        match fm.command {
            FlowModCommand::Add => {
                self.check_references(&fm.actions)?;
                self.check_supported(fm)?;
                self.add(fm)
            }
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                self.check_references(&fm.actions)?;
                self.check_supported(fm)?;
                self.modify(fm)
            }
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => {
                self.remove_all(&Criteria::of(fm), RemovedReason::Delete);
                Ok(())
            }
        }
    }

    fn add(&mut self, fm: &FlowMod) -> Result<(), OfpError> {
        let table_id = fm.table_id.unwrap_or(0);
        let priority = fm.priority.into();
        let (minimatch, old) = self.compress_and_find(table_id, &fm.matching, priority)?;
        // A replacement overlaps with no flow that the replaced one did not overlap with.
        if old.is_none()
            && fm.flags.check_overlap
            && self.table(table_id)?.rules.overlaps(&fm.matching, priority, LATEST)
        {
            return Err(OfpError::FmfcOverlap);
        }
        if old.is_none() {
            self.make_room(table_id)?;
        }
        let count = match &old {
            Some(old) => Self::count_after(old, fm),
            None => Count::since(self.now),
        };
        let rule = Arc::new(Rule {
            minimatch,
            priority: fm.priority.into(),
            table: table_id,
            cookie: fm.new_cookie,
            idle_timeout: fm.idle_timeout,
            hard_timeout: fm.hard_timeout,
            importance: fm.importance,
            flags: fm.flags,
            actions: fm.actions.clone().into(),
            created: self.now,
            modified: self.now.0.into(),
            versions: Versions::new(self.next_version()),
            conjunctions: conjunctions_of(&fm.actions),
            count,
        });
        self.put(&rule, old.as_ref())?;
        self.record(&rule, || FlowChangeKind::Added { replaced: old });
        Ok(())
    }

    /// The statistics of a rule that replaces `old`, whose time of last use it keeps in any case.
    fn count_after(old: &Arc<Rule>, fm: &FlowMod) -> Count {
        if fm.flags.reset_counts { Count::since(old.used()) } else { Count::on(old) }
    }

    fn modify(&mut self, fm: &FlowMod) -> Result<(), OfpError> {
        let found = self.collect(&Criteria::of(fm));
        if found.is_empty() {
            // OpenFlow 1.0 and 1.1 add a flow that a modification does not find.
            let adds = fm.cookie_mask == 0 && fm.new_cookie != FlowMod::KEEP_COOKIE;
            return if adds { self.add(fm) } else { Ok(()) };
        }
        let actions: Arc<[Action]> = fm.actions.clone().into();
        for old in found {
            let count = Self::count_after(&old, fm);
            let rule = Arc::new(Rule {
                minimatch: old.minimatch.clone(),
                cookie: if fm.modify_cookie { fm.new_cookie } else { old.cookie },
                actions: Arc::clone(&actions),
                modified: self.now.0.into(),
                versions: Versions::new(self.next_version()),
                conjunctions: conjunctions_of(&actions),
                count,
                ..*old
            });
            self.put(&rule, Some(&old))?;
            let same = rule.cookie == old.cookie && *rule.actions == *old.actions;
            self.record(
                &rule,
                || if same { FlowChangeKind::Renewed { old } } else { FlowChangeKind::Modified { old } },
            );
        }
        Ok(())
    }

    /// Lowers the timeouts of a rule to these values, in seconds; 0 leaves one unchanged.
    pub(crate) fn lower_timeouts(&mut self, old: &Arc<Rule>, idle: u16, hard: u16) -> Result<(), OfpError> {
        let lower = |old: u16, new: u16| if new != 0 && (old == 0 || new < old) { new } else { old };
        let (idle, hard) = (lower(old.idle_timeout, idle), lower(old.hard_timeout, hard));
        if !old.versions.visible_in(LATEST) || (idle, hard) == (old.idle_timeout, old.hard_timeout) {
            return Ok(());
        }
        let rule = Arc::new(Rule {
            minimatch: old.minimatch.clone(),
            actions: Arc::clone(&old.actions),
            idle_timeout: idle,
            hard_timeout: hard,
            modified: old.modified().0.into(),
            versions: Versions::new(self.next_version()),
            conjunctions: old.conjunctions.clone(),
            count: Count::on(old),
            ..**old
        });
        self.put(&rule, Some(old))?;
        self.record(&rule, || FlowChangeKind::Renewed { old: Arc::clone(old) });
        Ok(())
    }
}
