//! Atomic changes of a bridge's flow tables and groups.
//!
//! All changes of a bridge happen in a [`Transaction`], one at a time, on any thread. It works on versions after
//! the current one: the rules that it adds are visible from one of these on, and the rules that it removes are marked as removed
//! in one of them, so that no reader sees any of it. Then the version is published ([`xlate::Tables::publish`]), and new readers see
//! all of it; or, after an error, everything is rolled back.
//!
//! Removed rules stay in their tables for translations that began before. Readers hold the view that they use, so that
//! the views before the current one show which rules are still needed; the next change and the
//! housekeeping remove the others ([`retired`]). Readers never wait.

mod counts;
mod retired;

use crate::bridge::Ofproto;
use crate::evict::Evictable;
use crate::flow_change::{FlowChange, FlowChangeKind, Requester};
use crate::flow_table::{Criteria, Removed, RemovedReason};
use crate::meters::MeterChange;
use crate::revalidate::{Change, RuleChange};
use base::Millis;
use classifier::{LATEST, MiniMatch};
use flow::Match;
use openflow::{Action, OfpError};
use parking_lot::MutexGuard;
use retired::Retired;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use xlate::{Groups, Meters, Rule, Table, View};

/// The number of rules that wait to be inserted into their tables together. The code that inserts them is large, and this way
/// the processor loads it once for all of them.
const WAITING_MAX: usize = 32;

/// The number of changes of a table's rules that are reported one by one: more are reported as a change of the table.
const NOTED_MAX: usize = crate::revalidate::RULES_MAX;

/// An object that flows reference, and with which they are removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Reference {
    Group(u32),
    Meter(u32),
}

/// The state of table changes, behind the lock that serialises them.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// Removed rules that are still in their tables.
    retired: Retired,
    /// The number of flows that learn flows and delete these with them: by table and cookie of the learned flows.
    learners: HashMap<(u8, u64), u64>,
    /// The number of flows that reference a group or a meter.
    references: HashMap<Reference, u64>,
    /// The hidden flows that are in their tables.
    pub(crate) hidden: Vec<Arc<Rule>>,
    /// The time of the last removal of a flow that was not replaced, by table.
    pub(crate) removals: HashMap<u8, Millis>,
    /// Flows that may be evicted, for tables that have overflowed.
    pub(crate) evictable: HashMap<u8, Evictable>,
}

impl Writer {
    /// The number of flows that reference this.
    pub(crate) fn references(&self, to: Reference) -> u64 {
        self.references.get(&to).copied().unwrap_or(0)
    }
}

/// A table that the transaction changes.
#[derive(Clone, Copy, Debug)]
struct Changing {
    table: u8,
    /// The number of flows that it has gained.
    balance: i64,
    /// The number of reported changes of its rules.
    noted: usize,
    /// True if it is reported that flows may match more closely than necessary.
    loosened: bool,
    /// True if flows were removed from it, and not replaced.
    shrunk: bool,
}

/// A change in progress.
#[derive(Debug)]
pub struct Transaction<'a> {
    pub(crate) bridge: &'a Ofproto,
    pub(crate) writer: MutexGuard<'a, Writer>,
    /// The version that removed rules are not visible in, and that is published if the transaction ends now. Newer than those
    /// of the added rules.
    version: u64,
    pub(crate) groups: Arc<Groups>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) now: Millis,
    added: Vec<Arc<Rule>>,
    /// The number of added rules that are in their tables; the others wait to be inserted together.
    inserted: usize,
    gone: Vec<Arc<Rule>>,
    /// Removed flows to report, without replaced ones.
    removed: Vec<Removed>,
    changes: Vec<Change>,
    /// The tables that change, mostly one.
    tables: SmallVec<[Changing; 1]>,
    /// The changes of flows, if a flow monitor wants them.
    history: Option<Vec<FlowChange>>,
    requester: Option<Requester>,
    /// The changes made to meters of the datapath.
    pub(crate) meter_changes: Vec<MeterChange>,
}

impl Ofproto {
    /// Publishes all changes that `f` makes at once, or none of them if it fails. Returns the result of `f`, and the
    /// removed flows that controllers may want to be notified of; if there are very many, only those with that flag.
    ///
    /// Errors: those of `f`.
    pub fn transaction<T>(
        &self,
        f: impl FnOnce(&mut Transaction<'_>) -> Result<T, OfpError>,
    ) -> Result<(T, Vec<Removed>), OfpError> {
        let writer = self.writer.lock();
        let current = self.tables.view();
        let mut transaction = Transaction {
            bridge: self,
            writer,
            version: current.version + 1,
            groups: Arc::clone(&current.groups),
            meters: Arc::clone(&current.meters),
            now: self.now(),
            added: Vec::new(),
            inserted: 0,
            gone: Vec::new(),
            removed: Vec::new(),
            changes: Vec::new(),
            tables: SmallVec::new(),
            history: self.has_flow_monitors().then(Vec::new),
            requester: None,
            meter_changes: Vec::new(),
        };
        drop(current);
        match f(&mut transaction) {
            Ok(value) => Ok((value, transaction.commit())),
            Err(error) => {
                transaction.roll_back();
                Err(error)
            }
        }
    }
}

impl Transaction<'_> {
    /// Returns a table with all rules that this transaction has added so far.
    pub(crate) fn table(&mut self, table: u8) -> Result<&Table, OfpError> {
        self.insert_waiting();
        table_of(self.bridge, table)
    }

    /// Checks that the table exists.
    ///
    /// Error: `OFPFMFC_BAD_TABLE_ID`.
    fn check_table(&self, table: u8) -> Result<(), OfpError> {
        table_of(self.bridge, table).map(drop)
    }

    /// Inserts waiting rules into their tables: consecutive rules of one table together.
    fn insert_waiting(&mut self) {
        let Some(waiting) = self.added.get(self.inserted..).filter(|waiting| !waiting.is_empty()) else { return };
        self.bridge.index.add(waiting);
        let mut waiting = waiting.to_vec();
        waiting.sort_by_key(|rule| rule.table);
        for of_table in waiting.chunk_by(|a, b| a.table == b.table) {
            if let [rule, ..] = of_table
                && let Ok(table) = table_of(self.bridge, rule.table)
            {
                table.rules.insert_all(of_table);
            }
        }
        self.inserted = self.added.len();
    }

    /// Compresses a flow's match, and finds the flow with this match and priority, as adding a flow
    /// needs both. Finds waiting rules too.
    pub(crate) fn compress_and_find(
        &self,
        table: u8,
        matching: &Match,
        priority: u32,
    ) -> Result<(MiniMatch, Option<Arc<Rule>>), OfpError> {
        let (compressed, found) = table_of(self.bridge, table)?.rules.compress_and_find(matching, priority, LATEST);
        let is_it = |rule: &&Arc<Rule>| {
            rule.priority == priority
                && rule.table == table
                && rule.versions.visible_in(LATEST)
                && rule.minimatch == compressed
        };
        let waiting = self.added.get(self.inserted..).unwrap_or_default();
        let found = found.or_else(|| waiting.iter().find(is_it).cloned());
        Ok((compressed, found))
    }

    /// Returns the flows that meet `criteria`, including those that this transaction has added.
    pub(crate) fn collect(&mut self, criteria: &Criteria) -> Vec<Arc<Rule>> {
        self.insert_waiting();
        self.bridge.collect_in(criteria, LATEST)
    }

    /// Runs `f`, and undoes its changes if it fails.
    ///
    /// Errors: those of `f`, which must change no groups or meters.
    pub(crate) fn attempt<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T, OfpError>) -> Result<T, OfpError> {
        let (added, gone, removed) = (self.added.len(), self.gone.len(), self.removed.len());
        let recorded = self.history.as_ref().map_or(0, Vec::len);
        let result = f(self);
        if result.is_err() && (self.added.len(), self.gone.len()) != (added, gone) {
            self.undo(added, gone);
            self.removed.truncate(removed);
            self.history.iter_mut().for_each(|history| history.truncate(recorded));
            // The changes that it reported for cached flows remain, which costs a needless revalidation.
        }
        result
    }

    /// Undoes additions and removals after the first `added` and `gone` of each.
    fn undo(&mut self, added: usize, gone: usize) {
        self.writer.evictable.clear();
        for rule in self.gone.split_off(gone) {
            rule.versions.remove_in(u64::MAX);
            self.count(&rule, 1);
        }
        for (at, rule) in (added..).zip(self.added.split_off(added)) {
            if at < self.inserted
                && let Ok(table) = table_of(self.bridge, rule.table)
            {
                table.rules.remove(&rule);
                self.bridge.index.remove(std::slice::from_ref(&rule));
            }
            self.count(&rule, -1);
        }
        self.inserted = self.inserted.min(added);
    }

    /// Returns the version from which on the next rule is visible: each rule has its own, which orders the rules of a
    /// transaction. Only the last of these versions is published.
    pub(crate) fn next_version(&mut self) -> u64 {
        let version = self.version;
        self.version += 1;
        version
    }

    /// The current number of flows of a table, without hidden ones.
    pub(crate) fn n_flows(&self, table: u8) -> u64 {
        let before = self.bridge.tables().get(usize::from(table)).map_or(0, Table::n_active);
        before.saturating_add_signed(self.tables.iter().find(|t| t.table == table).map_or(0, |t| t.balance))
    }

    /// Returns the state of a table that changes.
    fn changing(&mut self, table: u8) -> &mut Changing {
        // Mostly it is the same table as the last time.
        let at = self.tables.iter().rposition(|t| t.table == table).unwrap_or_else(|| {
            self.tables.push(Changing { table, balance: 0, noted: 0, loosened: false, shrunk: false });
            self.tables.len() - 1
        });
        &mut self.tables[at]
    }

    fn count(&mut self, rule: &Rule, change: i64) {
        if !rule.is_hidden() {
            self.changing(rule.table).balance += change;
        }
    }

    /// Sets the requester of the following changes; `None` for the switch itself.
    pub(crate) fn set_requester(&mut self, requester: Option<Requester>) {
        self.requester = requester;
    }

    /// Records a change of a flow, if a flow monitor wants it.
    pub(crate) fn record(&mut self, rule: &Arc<Rule>, what: impl FnOnce() -> FlowChangeKind) {
        if let Some(history) = &mut self.history
            && !rule.is_hidden()
        {
            history.push(FlowChange { rule: Arc::clone(rule), what: what(), by: self.requester });
        }
    }

    /// Inserts a rule into its table, replacing `old` if given. (The caller records the change.)
    pub(crate) fn put(&mut self, rule: &Arc<Rule>, old: Option<&Arc<Rule>>) -> Result<(), OfpError> {
        self.check_table(rule.table)?;
        self.added.push(Arc::clone(rule));
        if self.added.len() - self.inserted >= WAITING_MAX {
            self.insert_waiting();
        }
        if !self.writer.evictable.is_empty()
            && let Some(evictable) = self.writer.evictable.get_mut(&rule.table)
        {
            evictable.insert(rule);
        }
        let Some(old) = old else {
            self.count(rule, 1);
            self.note(rule, RuleChange::Added);
            return Ok(());
        };
        self.mark_gone(old);
        if old.conjunctions.is_empty() == rule.conjunctions.is_empty() {
            self.note(rule, RuleChange::Replaced);
        } else {
            // A visible and a hidden rule do not replace each other.
            self.note(old, RuleChange::Removed);
            self.note(rule, RuleChange::Added);
        }
        Ok(())
    }

    /// Records that the last packet that taught the last added rule arrived at this time.
    pub(crate) fn date_last(&self, taught: Millis) {
        if let Some(rule) = self.added.last() {
            rule.set_modified(taught);
        }
    }

    /// Removes a rule from its table, unless it was removed already.
    pub(crate) fn remove(&mut self, rule: &Arc<Rule>, reason: RemovedReason) {
        if rule.versions.visible_in(LATEST) {
            self.mark_gone(rule);
            self.count(rule, -1);
            self.changing(rule.table).shrunk = true;
            self.removed.push(Removed { rule: Arc::clone(rule), reason });
            self.record(rule, || FlowChangeKind::Deleted(reason));
            self.note(rule, RuleChange::Removed);
        }
    }

    /// Removes all rules that meet `criteria` from their tables. There may be very many.
    pub(crate) fn remove_all(&mut self, criteria: &Criteria, reason: RemovedReason) {
        let mut rules = self.collect(criteria);
        let many = rules.len() > retired::PART && self.writer.evictable.is_empty() && self.history.is_none();
        if !many {
            return rules.iter().for_each(|rule| self.remove(rule, reason));
        }
        // Does the same as [`Self::remove`] with less work for each rule.
        for of_table in rules.chunk_by(|a, b| a.table == b.table) {
            for rule in of_table {
                rule.versions.remove_in(self.version);
                if rule.flags.send_flow_rem {
                    self.removed.push(Removed { rule: Arc::clone(rule), reason });
                }
            }
            for rule in of_table.iter().take(NOTED_MAX + 1) {
                self.note(rule, RuleChange::Removed);
            }
            if let [rule, ..] = of_table {
                let changing = self.changing(rule.table);
                changing.balance -= of_table.len() as i64;
                changing.shrunk = true;
            }
        }
        self.gone.append(&mut rules);
    }

    fn mark_gone(&mut self, rule: &Arc<Rule>) {
        rule.versions.remove_in(self.version);
        if !self.writer.evictable.is_empty()
            && let Some(evictable) = self.writer.evictable.get_mut(&rule.table)
        {
            evictable.remove(rule);
        }
        self.gone.push(Arc::clone(rule));
    }

    fn note(&mut self, rule: &Arc<Rule>, what: RuleChange) {
        let (bridge, table, loosens) = (self.bridge.id(), rule.table, what == RuleChange::Removed);
        let changing = self.changing(table);
        changing.noted += 1;
        if changing.noted <= NOTED_MAX {
            changing.loosened |= loosens;
            self.changes.push(Change::Rule { bridge, table, rule: Arc::clone(rule), what });
        } else if changing.noted == NOTED_MAX + 1 || loosens && !changing.loosened {
            changing.loosened |= loosens;
            self.changes.push(Change::Table { bridge, table, loosened: loosens });
        }
    }

    /// Reports that a group changed.
    pub(crate) fn note_group(&mut self, group: u32) {
        self.changes.push(Change::Group { bridge: self.bridge.id(), group });
    }

    /// Reports that a meter changed.
    pub(crate) fn note_meter(&mut self, meter: u32) {
        self.changes.push(Change::Meter { bridge: self.bridge.id(), meter });
    }

    /// Returns true if flows may reference this: flows from before the transaction, or flows that it added.
    pub(crate) fn has_references(&mut self, to: Reference) -> bool {
        self.insert_waiting();
        self.bridge.index.names(to)
    }

    /// Removes the flows that reference any of these deleted groups and meters. These removals have no requester.
    pub(crate) fn remove_dangling(&mut self, gone: &[Reference], reason: RemovedReason) {
        self.requester = None;
        self.insert_waiting();
        // A flow that references several of them, or was removed already, is not removed again.
        self.bridge.index.naming(gone).iter().for_each(|rule| self.remove(rule, reason));
    }

    /// Checks that actions are supported, and that all groups and meters that they reference exist.
    ///
    /// Errors: `OFPBAC_BAD_TYPE`, `OFPBAC_BAD_OUT_GROUP`, `OFPMMFC_INVALID_METER`.
    pub(crate) fn check_references(&self, actions: &[Action]) -> Result<(), OfpError> {
        check_references(actions, &self.groups, &self.meters)
    }

    /// Checks that the datapath supports actions.
    ///
    /// Errors: `NXBAC_CT_DATAPATH_SUPPORT`.
    pub(crate) fn check_datapath(&self, actions: &[Action]) -> Result<(), OfpError> {
        self.bridge.switch().map_or(Ok(()), |switch| switch.features.check_actions(actions))
    }

    fn commit(mut self) -> Vec<Removed> {
        self.update_counts();
        self.insert_waiting();
        if self.changes.is_empty() {
            return self.removed;
        }
        let bridge = self.bridge;
        let old = bridge.tables.publish(View { version: self.version, groups: self.groups, meters: self.meters });
        let mut writer = self.writer;
        let many = self.gone.len() > retired::PART;
        writer.retired.add(old, self.version, self.gone);
        // The revalidator, the next long change or the next short ones take very many out of the tables.
        if !many {
            writer.retired.reap(bridge);
        }
        if let Some(history) = self.history.filter(|history| !history.is_empty()) {
            bridge.notify_monitors(&history, self.version);
        }
        drop(writer);
        base::coverage!(rev_flow_table);
        if let Some(switch) = bridge.switch() {
            switch.changed_all(self.changes);
        }
        bridge.send_vacancy_events(self.tables.iter().map(|t| t.table));
        self.removed
    }

    fn remove_learned(&mut self, table: u8, cookie: u64) {
        let criteria = Criteria { table_id: Some(table), cookie, cookie_mask: u64::MAX, ..Criteria::any() };
        for rule in self.collect(&criteria) {
            self.remove(&rule, RemovedReason::Delete);
        }
    }

    fn roll_back(mut self) {
        let meter_changes = std::mem::take(&mut self.meter_changes);
        self.bridge.undo_meters(meter_changes);
        self.undo(0, 0);
    }
}

fn table_of(bridge: &Ofproto, table: u8) -> Result<&Table, OfpError> {
    bridge.tables().get(usize::from(table)).ok_or(OfpError::FmfcBadTableId)
}

/// The groups that these actions reference, each once.
pub(crate) fn groups_of(actions: &[Action]) -> impl Iterator<Item = u32> + use<> {
    references(actions).into_iter().filter_map(|to| if let Reference::Group(id) = to { Some(id) } else { None })
}

/// The objects that these actions reference, each once.
pub(crate) fn references(actions: &[Action]) -> SmallVec<[Reference; 4]> {
    let mut all = SmallVec::new();
    collect_references(actions, &mut |to| all.push(to));
    all.sort_unstable();
    all.dedup();
    all
}

fn collect_references(actions: &[Action], f: &mut dyn FnMut(Reference)) {
    for action in actions {
        match action {
            Action::Group(id) => f(Reference::Group(*id)),
            Action::Meter(id) => f(Reference::Meter(*id)),
            Action::Clone(inner) | Action::WriteActions(inner) => collect_references(inner, f),
            _ => {}
        }
    }
}

/// See [`Transaction::check_references`].
pub(crate) fn check_references(actions: &[Action], groups: &Groups, meters: &Meters) -> Result<(), OfpError> {
    let mut result = Ok(());
    collect_references(actions, &mut |to| {
        let there = match to {
            Reference::Group(id) if groups.get(id).is_none() => Err(OfpError::BacBadOutGroup),
            Reference::Meter(id) if meters.get(id).is_none() => Err(OfpError::MmfcInvalidMeter),
            _ => Ok(()),
        };
        result = result.and(there);
    });
    result
}
