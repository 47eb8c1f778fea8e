//! Transactions that wait for a `wait` operation to hold (RFC 7047 section 5.2.6).
//!
//! A waiting transaction is retried when a table named by one of its operations has changed, and when its time has
//! expired; of several that can be retried, the oldest comes first. Other changes do not cause retries, so that
//! waiting clients do not slow down others.
//!
//! Invariants: the three indexes contain exactly the transactions in `waiting` that have a session, must be retried,
//! and have a time limit, respectively.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ovsdb::DatabaseSchema;
use serde_json::Value;

use crate::admission::Permit;
use crate::row::RowChange;
use crate::session::SessionId;

/// A transaction that waits.
#[derive(Debug)]
pub(crate) struct Trigger {
    pub(crate) session: SessionId,
    pub(crate) id: Value,
    pub(crate) database: String,
    pub(crate) operations: Vec<Value>,
    /// The arrival of the request, in monotonic milliseconds.
    pub(crate) created_ms: u64,
    /// Its timeout, in milliseconds after its arrival.
    pub(crate) timeout_ms: Option<u64>,
    /// Its permit.
    pub(crate) permit: Permit,
    /// The tables that its operations name, by their indexes; `None` if any change may matter.
    pub(crate) tables: Option<BTreeSet<usize>>,
}

impl Trigger {
    fn deadline_ms(&self) -> Option<u64> {
        Some(self.created_ms.saturating_add(self.timeout_ms?))
    }

    fn reads(&self, table: usize) -> bool {
        self.tables.as_ref().is_none_or(|tables| tables.contains(&table))
    }
}

/// The tables that operations name.
pub(crate) fn tables_of(schema: &DatabaseSchema, operations: &[Value]) -> BTreeSet<usize> {
    let names = operations.iter().filter_map(|operation| operation.get("table")?.as_str());
    names.filter_map(|name| schema.table_index(name)).collect()
}

/// Identifies a waiting transaction; later ones have greater numbers.
pub(crate) type Serial = u64;

/// All waiting transactions.
#[derive(Debug, Default)]
pub(crate) struct Triggers {
    waiting: BTreeMap<Serial, Trigger>,
    of_session: HashMap<SessionId, BTreeSet<Serial>>,
    /// Triggers whose tables have changed since their last try.
    stale: BTreeSet<Serial>,
    deadlines: BTreeSet<(u64, Serial)>,
    last: Serial,
}

impl Triggers {
    /// Takes a transaction that was tried just now.
    pub(crate) fn push(&mut self, trigger: Trigger) {
        self.last += 1;
        self.put_back(self.last, trigger);
    }

    /// The same, of one that has its place already.
    pub(crate) fn put_back(&mut self, serial: Serial, trigger: Trigger) {
        self.of_session.entry(trigger.session).or_default().insert(serial);
        self.deadlines.extend(trigger.deadline_ms().map(|deadline| (deadline, serial)));
        self.waiting.insert(serial, trigger);
    }

    fn take(&mut self, serial: Serial) -> Option<Trigger> {
        let trigger = self.waiting.remove(&serial)?;
        if let Some(serials) = self.of_session.get_mut(&trigger.session) {
            serials.remove(&serial);
            if serials.is_empty() {
                self.of_session.remove(&trigger.session);
            }
        }
        self.stale.remove(&serial);
        if let Some(deadline) = trigger.deadline_ms() {
            self.deadlines.remove(&(deadline, serial));
        }
        Some(trigger)
    }

    /// Removes and returns the first one to be retried.
    pub(crate) fn take_ready(&mut self, now_ms: u64) -> Option<(Serial, Trigger)> {
        let due = self.deadlines.range(..=(now_ms, Serial::MAX)).map(|(_, serial)| *serial).min();
        let serial = self.stale.first().copied().into_iter().chain(due).min()?;
        Some((serial, self.take(serial)?))
    }

    /// A database has changed.
    pub(crate) fn changed(&mut self, database: &str, changes: &[RowChange]) {
        if self.waiting.is_empty() {
            return;
        }
        let tables: BTreeSet<usize> = changes.iter().map(|change| change.table).collect();
        for (&serial, trigger) in self.waiting.iter().filter(|(_, trigger)| trigger.database == database) {
            if tables.iter().any(|&table| trigger.reads(table)) {
                self.stale.insert(serial);
            }
        }
    }

    /// Takes out the one that a session calls `id`.
    pub(crate) fn cancel(&mut self, session: SessionId, id: &Value) -> Option<Trigger> {
        self.take(self.find(session, id)?)
    }

    /// Takes out all of a session.
    pub(crate) fn cancel_session(&mut self, session: SessionId) {
        for serial in self.of_session.remove(&session).unwrap_or_default() {
            self.take(serial);
        }
    }

    /// Takes out all of a database.
    pub(crate) fn cancel_database(&mut self, name: &str) -> Vec<Trigger> {
        let of_database = self.waiting.iter().filter(|(_, trigger)| trigger.database == name);
        let serials: Vec<Serial> = of_database.map(|(&serial, _)| serial).collect();
        serials.into_iter().filter_map(|serial| self.take(serial)).collect()
    }

    /// Whether one of a session is called `id`.
    pub(crate) fn has(&self, session: SessionId, id: &Value) -> bool {
        self.find(session, id).is_some()
    }

    fn find(&self, session: SessionId, id: &Value) -> Option<Serial> {
        let named = |serial: &&Serial| self.waiting.get(serial).is_some_and(|trigger| trigger.id == *id);
        self.of_session.get(&session)?.iter().find(named).copied()
    }

    /// When the next one times out, in monotonic milliseconds.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The bytes of their permits.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting.values().map(|trigger| trigger.permit.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use ovsdb::Uuid;

    /// The steps of the test.
    #[derive(Debug, Clone)]
    enum Step {
        Wait {
            session: SessionId,
            id: u8,
            database: bool,
            tables: Option<BTreeSet<usize>>,
            timeout_ms: Option<u64>,
        },
        Change {
            database: bool,
            tables: BTreeSet<usize>,
        },
        /// Retries all that can be; every third one succeeds.
        Try {
            pause_ms: u64,
        },
        Cancel {
            session: SessionId,
            id: u8,
        },
        Disconnect {
            session: SessionId,
        },
        Remove {
            database: bool,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        let tables = || proptest::collection::btree_set(0usize..4, 0..3);
        let some_tables = proptest::option::weighted(0.8, tables());
        prop_oneof![
            4 => (0..3u64, 0..6u8, any::<bool>(), some_tables, proptest::option::of(0..200u64)).prop_map(
                |(session, id, database, tables, timeout_ms)| Step::Wait { session, id, database, tables, timeout_ms }
            ),
            3 => (any::<bool>(), tables()).prop_map(|(database, tables)| Step::Change { database, tables }),
            3 => (0..60u64).prop_map(|pause_ms| Step::Try { pause_ms }),
            1 => (0..3u64, 0..6u8).prop_map(|(session, id)| Step::Cancel { session, id }),
            1 => (0..3u64).prop_map(|session| Step::Disconnect { session }),
            1 => any::<bool>().prop_map(|database| Step::Remove { database }),
        ]
    }

    /// The twin: a list in order of arrival, in which each entry says whether it must be retried.
    struct Naive {
        number: u64,
        trigger: Trigger,
        is_stale: bool,
    }

    fn name(database: bool) -> &'static str {
        if database { "A" } else { "B" }
    }

    fn trigger(number: u64, step: &Step, now_ms: u64) -> Trigger {
        let Step::Wait { session, id, database, tables, timeout_ms } = step.clone() else { panic!("it waits") };
        Trigger {
            session,
            id: id.into(),
            database: name(database).to_owned(),
            operations: vec![number.into()],
            created_ms: now_ms,
            timeout_ms,
            permit: Permit::default(),
            tables,
        }
    }

    fn number(trigger: &Trigger) -> u64 {
        trigger.operations[0].as_u64().expect("a number")
    }

    tally::proptest! {
        #[test]
        fn they_are_tried_as_a_list_would_have_them(steps in proptest::collection::vec(step(), 1..60)) {
            let (mut triggers, mut naive, mut now_ms) = (Triggers::default(), Vec::<Naive>::new(), 0);
            for (at, step) in steps.iter().enumerate() {
                match step {
                    Step::Wait { session, id, .. } => {
                        if !triggers.has(*session, &(*id).into()) {
                            triggers.push(trigger(at as u64, step, now_ms));
                            let trigger = trigger(at as u64, step, now_ms);
                            naive.push(Naive { number: at as u64, trigger, is_stale: false });
                        }
                    }
                    Step::Change { database, tables } => {
                        let change = |&table: &usize| RowChange { table, uuid: Uuid::ZERO, old: None, new: None };
                        triggers.changed(name(*database), &tables.iter().map(change).collect::<Vec<_>>());
                        for one in naive.iter_mut().filter(|one| one.trigger.database == name(*database)) {
                            let mut read = one.trigger.tables.iter().flatten();
                            let matters = match one.trigger.tables {
                                None => !tables.is_empty(),
                                Some(_) => read.any(|table| tables.contains(table)),
                            };
                            one.is_stale |= matters;
                        }
                    }
                    Step::Try { pause_ms } => {
                        now_ms += pause_ms;
                        let mut tried = BTreeSet::new();
                        while let Some((serial, mut trigger)) = triggers.take_ready(now_ms) {
                            let is_due = |trigger: &Trigger| trigger.deadline_ms().is_some_and(|due| due <= now_ms);
                            let ready = naive.iter().position(|one| one.is_stale || is_due(&one.trigger));
                            let ready = ready.expect("the twin has one, too");
                            prop_assert_eq!(number(&trigger), naive[ready].number);
                            prop_assert!(tried.insert(serial), "none is tried twice for nothing");
                            if is_due(&trigger) || serial % 3 == 0 {
                                naive.remove(ready);
                            } else {
                                trigger.timeout_ms = trigger.timeout_ms.map(|timeout_ms| timeout_ms + 5);
                                naive[ready].trigger.timeout_ms = trigger.timeout_ms;
                                naive[ready].is_stale = false;
                                triggers.put_back(serial, trigger);
                            }
                        }
                        let is_due = |one: &Naive| one.trigger.deadline_ms().is_some_and(|due| due <= now_ms);
                        prop_assert!(!naive.iter().any(|one| one.is_stale || is_due(one)));
                    }
                    Step::Cancel { session, id } => {
                        let is_meant = |one: &Naive| one.trigger.session == *session && one.trigger.id == *id;
                        let found = naive.iter().position(is_meant).map(|at| naive.remove(at).number);
                        let canceled = triggers.cancel(*session, &(*id).into());
                        prop_assert_eq!(canceled.as_ref().map(number), found);
                    }
                    Step::Disconnect { session } => {
                        triggers.cancel_session(*session);
                        naive.retain(|one| one.trigger.session != *session);
                    }
                    Step::Remove { database } => {
                        let is_meant = |one: &mut Naive| one.trigger.database == name(*database);
                        let gone: Vec<u64> = naive.extract_if(.., is_meant).map(|one| one.number).collect();
                        let canceled = triggers.cancel_database(name(*database));
                        prop_assert_eq!(canceled.iter().map(number).collect::<Vec<_>>(), gone);
                    }
                }
                prop_assert_eq!(triggers.len(), naive.len());
                let next = naive.iter().filter_map(|one| one.trigger.deadline_ms()).min();
                prop_assert_eq!(triggers.next_deadline_ms(), next);
            }
        }
    }
}
