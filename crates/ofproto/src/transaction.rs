//! Changes of a bridge's flow tables and groups: several are seen at once, or not at all.
//!
//! All changes of a bridge happen in a [`Transaction`], one at a time, on whatever thread. It works on the version after
//! the current one: rules that it adds are there from that version on, rules that it removes are marked as gone in it, so
//! that nobody sees anything of it. Then the version is published ([`xlate::Tables::publish`]), and whoever looks from
//! now on sees all of it; or, after an error, everything is taken back.
//!
//! Rules that are gone stay in their tables for translations that began before. A view is held while one looks at it, so
//! the views before the current one tell which rules are still needed; the others are removed with the next change, and
//! by the housekeeping. Nobody who looks ever waits.

mod account;

use crate::bridge::Ofproto;
use crate::evict::Evictable;
use crate::flow_change::{FlowChange, Requester, What};
use crate::flow_table::{Criteria, Removed, RemovedReason};
use crate::meters::MeterChange;
use crate::revalidate::{Change, RuleChange};
use base::Millis;
use classifier::{LATEST, MiniMatch};
use flow::Match;
use openflow::{Action, OfpError};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use xlate::{Groups, Meters, Rule, Table, View};

/// Rules that a change may have removed for it to take them out of the tables itself: whoever asked for it need not wait for
/// more, which the revalidator sees to ([`Ofproto::tidy`]), or the next change.
const REAPED_AT_ONCE_MAX: usize = 1000;

/// Rules that wait to be put into their tables together, at most. What puts them there is a lot of code, which is read
/// once for all of them then.
const WAITING_MAX: usize = 32;

/// Changes of a table's rules that are told of one by one: with more, the table is another.
const NOTED_MAX: usize = crate::revalidate::RULES_MAX;

/// Something that flows name, and with which they go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Reference {
    Group(u32),
    Meter(u32),
}

/// What whoever changes the tables keeps, behind the lock that makes it one at a time.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// Views before the current one that somebody may hold, oldest first.
    views: VecDeque<Arc<View>>,
    /// Rules that are gone and still in their tables, with the version in which they went, in this order.
    retired: VecDeque<(u64, Arc<Rule>)>,
    /// How many flows learn and take what was learned with them when they go: by table and cookie of what they learn.
    learners: HashMap<(u8, u64), u64>,
    /// How many flows lead to a group, or send packets through a meter.
    references: HashMap<Reference, u64>,
    /// The hidden flows that are in their tables.
    pub(crate) hidden: Vec<Arc<Rule>>,
    /// When a flow was removed last, by table.
    pub(crate) removals: HashMap<u8, Millis>,
    /// The flows that may make room for others, of tables that have overflowed.
    pub(crate) evictable: HashMap<u8, Evictable>,
}

impl Writer {
    /// How many flows name this.
    pub(crate) fn references(&self, to: Reference) -> u64 {
        self.references.get(&to).copied().unwrap_or(0)
    }
}

/// A table that changes.
#[derive(Clone, Copy, Debug)]
struct Changing {
    table: u8,
    /// How many flows it has more than before.
    balance: i64,
    /// Changes of its rules that were noted.
    noted: usize,
    /// Whether it is noted that flows may match more closely than they need to.
    loosened: bool,
}

/// A change in the making.
#[derive(Debug)]
pub struct Transaction<'a> {
    pub(crate) bridge: &'a Ofproto,
    pub(crate) writer: MutexGuard<'a, Writer>,
    version: u64,
    pub(crate) groups: Arc<Groups>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) now: Millis,
    added: Vec<Arc<Rule>>,
    /// How many of those are in their tables; the others wait to be put there together.
    placed: usize,
    gone: Vec<Arc<Rule>>,
    /// What to tell of flows that were removed, not replaced.
    removed: Vec<Removed>,
    changes: Vec<Change>,
    /// Tables that change, mostly one.
    tables: SmallVec<[Changing; 1]>,
    /// What happened to flows, if somebody is to hear of it.
    history: Option<Vec<FlowChange>>,
    requester: Option<Requester>,
    /// What was done to meters of the datapath.
    pub(crate) meter_changes: Vec<MeterChange>,
}

impl Ofproto {
    /// Makes all changes that `f` makes visible at once, or none of them if it fails. Returns what `f` does, and the
    /// flows that were removed, of which controllers may want to hear: of very many at once those of which they do.
    ///
    /// Errors: those of `f`.
    pub fn transaction<T>(
        &self,
        f: impl FnOnce(&mut Transaction<'_>) -> Result<T, OfpError>,
    ) -> Result<(T, Vec<Removed>), OfpError> {
        let mut writer = self.writer.lock();
        // Very many that are gone go now: before there are others between them, a whole table of them goes at once.
        if writer.retired.len() > REAPED_AT_ONCE_MAX {
            writer.reap(self);
        }
        let current = self.tables.view();
        let mut transaction = Transaction {
            bridge: self,
            writer,
            version: current.version + 1,
            groups: Arc::clone(&current.groups),
            meters: Arc::clone(&current.meters),
            now: self.now(),
            added: Vec::new(),
            placed: 0,
            gone: Vec::new(),
            removed: Vec::new(),
            changes: Vec::new(),
            tables: SmallVec::new(),
            history: self.is_watched().then(Vec::new),
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

    /// Removes from the tables what nobody can look at any more, and forgets orders of flows that are not asked for. While
    /// somebody changes the tables it can wait: whoever calls this has more to do.
    pub(crate) fn tidy(&self, now: Millis) {
        if let Some(mut writer) = self.writer.try_lock() {
            writer.reap(self);
            writer.evictable.retain(|_, order| !order.is_idle(now));
        }
    }
}

impl Writer {
    fn reap(&mut self, bridge: &Ofproto) {
        while self.views.front().is_some_and(|view| Arc::strong_count(view) == 1) {
            self.views.pop_front();
        }
        // Everything is visible in the current version, if in any that can be looked at.
        let oldest = self.views.front().map_or(u64::MAX, |view| view.version);
        // Those of one table together, as far as they stand so: many at once cost less.
        while let Some((_, rule)) = self.retired.pop_front_if(|(version, _)| *version <= oldest) {
            let table = rule.table;
            let mut rules = vec![rule];
            while let Some((_, rule)) = self.retired.pop_front_if(|(v, rule)| *v <= oldest && rule.table == table) {
                rules.push(rule);
            }
            bridge.index.remove(&rules);
            if let Some(table) = bridge.tables().get(usize::from(table)) {
                table.rules.remove_all(rules);
            }
        }
    }
}

impl Transaction<'_> {
    /// A table, with all that this transaction has put into it so far.
    pub(crate) fn table(&mut self, table: u8) -> Result<&Table, OfpError> {
        self.place();
        table_of(self.bridge, table)
    }

    /// Whether there is a table of this number.
    ///
    /// Error: `OFPFMFC_BAD_TABLE_ID`.
    fn check_table(&self, table: u8) -> Result<(), OfpError> {
        table_of(self.bridge, table).map(drop)
    }

    /// Puts rules that wait for it into their tables: those of one table together, in their order.
    fn place(&mut self) {
        let Some(waiting) = self.added.get(self.placed..).filter(|waiting| !waiting.is_empty()) else { return };
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
        self.placed = self.added.len();
    }

    /// Makes the compressed form of a flow's match, and finds the flow of this match and priority: what it takes to add
    /// it. Those that wait are found too.
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
        let waiting = self.added.get(self.placed..).unwrap_or_default();
        let found = found.or_else(|| waiting.iter().find(is_it).cloned());
        Ok((compressed, found))
    }

    /// The flows that meet `criteria`, with those that this transaction has added.
    pub(crate) fn collect(&mut self, criteria: &Criteria) -> Vec<Arc<Rule>> {
        self.place();
        self.bridge.collect_in(criteria, LATEST)
    }

    /// Does what `f` does, or nothing of it if that fails.
    ///
    /// Errors: those of `f`, which must change no groups or meters.
    pub(crate) fn attempt<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T, OfpError>) -> Result<T, OfpError> {
        let (added, gone, removed) = (self.added.len(), self.gone.len(), self.removed.len());
        let recorded = self.history.as_ref().map_or(0, Vec::len);
        let result = f(self);
        if result.is_err() && (self.added.len(), self.gone.len()) != (added, gone) {
            self.take_back(added, gone);
            self.removed.truncate(removed);
            self.history.iter_mut().for_each(|history| history.truncate(recorded));
            // What was noted of it for cached flows stays: they are looked at for nothing.
        }
        result
    }

    /// Takes back what was added and removed after so many flows of each.
    fn take_back(&mut self, added: usize, gone: usize) {
        self.writer.evictable.clear();
        for rule in self.gone.split_off(gone) {
            rule.versions.remove_in(u64::MAX);
            self.count(&rule, 1);
        }
        for (at, rule) in (added..).zip(self.added.split_off(added)) {
            if at < self.placed
                && let Ok(table) = table_of(self.bridge, rule.table)
            {
                table.rules.remove(&rule);
                self.bridge.index.remove(std::slice::from_ref(&rule));
            }
            self.count(&rule, -1);
        }
        self.placed = self.placed.min(added);
    }

    /// The version that rules added now are made for.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Flows that a table has as it is now, without hidden ones.
    pub(crate) fn n_flows(&self, table: u8) -> u64 {
        let before = self.bridge.tables().get(usize::from(table)).map_or(0, Table::n_active);
        before.saturating_add_signed(self.tables.iter().find(|t| t.table == table).map_or(0, |t| t.balance))
    }

    /// What is known of a table that changes.
    fn changing(&mut self, table: u8) -> &mut Changing {
        // Mostly it is the same as the last time.
        let at = self.tables.iter().rposition(|t| t.table == table).unwrap_or_else(|| {
            self.tables.push(Changing { table, balance: 0, noted: 0, loosened: false });
            self.tables.len() - 1
        });
        &mut self.tables[at]
    }

    fn count(&mut self, rule: &Rule, change: i64) {
        if !rule.is_hidden() {
            self.changing(rule.table).balance += change;
        }
    }

    /// Whose request it is that is carried out from here on; `None` for nobody's.
    pub(crate) fn set_requester(&mut self, requester: Option<Requester>) {
        self.requester = requester;
    }

    /// Records what happened to a flow, if somebody is to hear of it.
    pub(crate) fn record(&mut self, rule: &Arc<Rule>, what: impl FnOnce() -> What) {
        if let Some(history) = &mut self.history
            && !rule.is_hidden()
        {
            history.push(FlowChange { rule: Arc::clone(rule), what: what(), by: self.requester });
        }
    }

    /// Puts a rule into its table, in the place of `old` if that is given. (Whoever calls this records what happened.)
    pub(crate) fn put(&mut self, rule: &Arc<Rule>, old: Option<&Arc<Rule>>) -> Result<(), OfpError> {
        self.check_table(rule.table)?;
        self.added.push(Arc::clone(rule));
        if self.added.len() - self.placed >= WAITING_MAX {
            self.place();
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
            // One that look-ups find and one that they do not are not in each other's place.
            self.note(old, RuleChange::Removed);
            self.note(rule, RuleChange::Added);
        }
        Ok(())
    }

    /// Takes a rule out of its table, unless it is gone already.
    pub(crate) fn remove(&mut self, rule: &Arc<Rule>, reason: RemovedReason) {
        if rule.versions.visible_in(LATEST) {
            self.mark_gone(rule);
            self.count(rule, -1);
            self.removed.push(Removed { rule: Arc::clone(rule), reason });
            self.record(rule, || What::Deleted(reason));
            self.note(rule, RuleChange::Removed);
        }
    }

    /// Takes all rules out of their tables that meet `criteria`. There may be very many.
    pub(crate) fn remove_all(&mut self, criteria: &Criteria, reason: RemovedReason) {
        let mut rules = self.collect(criteria);
        let many = rules.len() > REAPED_AT_ONCE_MAX && self.writer.evictable.is_empty() && self.history.is_none();
        if !many {
            return rules.iter().for_each(|rule| self.remove(rule, reason));
        }
        // The same with less to touch of each.
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
                self.changing(rule.table).balance -= of_table.len() as i64;
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

    /// Notes that a group is not what it was.
    pub(crate) fn note_group(&mut self, group: u32) {
        self.changes.push(Change::Group { bridge: self.bridge.id(), group });
    }

    /// Notes that a meter is not what it was.
    pub(crate) fn note_meter(&mut self, meter: u32) {
        self.changes.push(Change::Meter { bridge: self.bridge.id(), meter });
    }

    /// Returns true if flows may name this: those of before the transaction, or those that it added.
    pub(crate) fn has_references(&mut self, to: Reference) -> bool {
        self.place();
        self.bridge.index.names(to)
    }

    /// Removes the flows that name any of these groups and meters, which are gone. No connection requested that.
    pub(crate) fn remove_dangling(&mut self, gone: &[Reference], reason: RemovedReason) {
        self.requester = None;
        self.place();
        // One that names several of them, or that is gone already, is not removed again.
        self.bridge.index.naming(gone).iter().for_each(|rule| self.remove(rule, reason));
    }

    /// Checks that actions can be carried out, and that all groups and meters that they name are there.
    ///
    /// Errors: `OFPBAC_BAD_TYPE`, `OFPBAC_BAD_OUT_GROUP`, `OFPMMFC_INVALID_METER`.
    pub(crate) fn check_references(&self, actions: &[Action]) -> Result<(), OfpError> {
        check_references(actions, &self.groups, &self.meters)
    }

    /// Checks that the datapath can do what actions ask for.
    ///
    /// Errors: `NXBAC_CT_DATAPATH_SUPPORT`.
    pub(crate) fn check_datapath(&self, actions: &[Action]) -> Result<(), OfpError> {
        self.bridge.switch().map_or(Ok(()), |switch| switch.features.check_actions(actions))
    }

    fn commit(mut self) -> Vec<Removed> {
        self.account();
        self.place();
        if self.changes.is_empty() {
            return self.removed;
        }
        let bridge = self.bridge;
        let old = bridge.tables.publish(View { version: self.version, groups: self.groups, meters: self.meters });
        let mut writer = self.writer;
        writer.views.push_back(old);
        let many = self.gone.len() > REAPED_AT_ONCE_MAX;
        writer.retired.extend(self.gone.into_iter().map(|rule| (self.version, rule)));
        if !many {
            writer.reap(bridge);
        }
        if let Some(history) = self.history.filter(|history| !history.is_empty()) {
            bridge.tell_monitors(&history, self.version);
        }
        drop(writer);
        base::coverage!(rev_flow_table);
        if let Some(switch) = bridge.switch() {
            switch.changed_all(self.changes);
        }
        bridge.tell_vacancies(self.tables.iter().map(|t| t.table));
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
        self.take_back(0, 0);
    }
}

fn table_of(bridge: &Ofproto, table: u8) -> Result<&Table, OfpError> {
    bridge.tables().get(usize::from(table)).ok_or(OfpError::FmfcBadTableId)
}

/// The groups that these actions lead to, each once.
pub(crate) fn groups_of(actions: &[Action]) -> impl Iterator<Item = u32> + use<> {
    references(actions).into_iter().filter_map(|to| if let Reference::Group(id) = to { Some(id) } else { None })
}

/// What these actions name, each once.
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
