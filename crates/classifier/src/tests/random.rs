//! Random tables under random changes, compared with linear search: options do not change the rules found, bits that
//! were not read do not matter, and all lookups in the same rules walk one decision tree.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;

/// Number of tables, unless PROPTEST_CASES overrides it.
const CASES: u32 = 600;

/// Numbers of operations, for the report.
#[derive(Default)]
struct Counts {
    tables: Cell<u64>,
    changes: Cell<u64>,
    lookups: Cell<u64>,
    hits: Cell<u64>,
    conjunctive: Cell<u64>,
    pairs: Cell<u64>,
}

fn count(cell: &Cell<u64>, n: usize) {
    cell.set(cell.get() + n as u64);
}

/// A classifier and its naive model.
struct Table<'a> {
    cls: Cls,
    list: Vec<Arc<TestRule>>,
    version: u64,
    /// The mask of overwritten bits in lookups: zero in all keys, and reading them records nothing.
    written: FlowMask,
    /// Lookups since the last change.
    recent: Vec<Lookup>,
    counts: &'a Counts,
}

impl Table<'_> {
    fn step(&mut self, tape: &mut Tape<'_>) -> Result<(), TestCaseError> {
        match tape.below(22) {
            0..=5 => {
                let full = tape.a_match();
                let priority = tape.below(5) as u32;
                let added = self.version + tape.below(2) as u64;
                self.insert(&full, priority, added, tape.conjunctions());
            }
            6 if !self.list.is_empty() => {
                let rule = self.list.swap_remove(tape.below(self.list.len()));
                prop_assert!(self.cls.remove(&rule) && !self.cls.remove(&rule));
            }
            15 if !self.list.is_empty() => {
                // Remove several at once, sometimes all.
                let from = if tape.below(3) == 0 { 0 } else { tape.below(self.list.len()) };
                let gone = self.list.split_off(from);
                prop_assert!(self.cls.remove_all(gone.clone()) && !self.cls.remove_all(gone));
                prop_assert!(!self.list.is_empty() || self.cls.index.read().is_clean());
            }
            16 => {
                // Insert several at once, some of them with new masks.
                let mut rules = Vec::new();
                for _ in 0..tape.below(5) {
                    let (full, priority) = (tape.a_match(), tape.below(5) as u32);
                    self.replace(&full, priority, self.version);
                    rules.push(rule_of(&self.cls, &full, priority, self.version, Vec::new()));
                    self.list.extend(rules.last().cloned());
                }
                self.cls.insert_all(&rules);
            }
            7 if !self.list.is_empty() => {
                self.list[tape.below(self.list.len())].versions.remove_in(self.version + 1);
            }
            8 => self.version += 1,
            9 => self.cls.set_options(Options::from_bits(tape.byte() & 0x1f)),
            10 => {
                let mut fields = Vec::new();
                for _ in 0..tape.below(5) {
                    let field = PREFIX_FIELDS[tape.below(PREFIX_FIELDS.len())];
                    if !fields.contains(&field) {
                        fields.push(field);
                    }
                }
                prop_assert_eq!(self.cls.set_prefixes(&fields), Ok(()));
                prop_assert_eq!(self.cls.prefixes(), fields);
            }
            11 | 12 => {
                // Insert all clauses of a match, and a rule for its id.
                let (id, n_clauses, priority) = (tape.below(3) as u32, 2 + tape.below(2) as u8, tape.below(5) as u32);
                for clause in 0..n_clauses {
                    let conjunction = Conjunction { id, clause, n_clauses };
                    self.insert(&tape.a_match(), priority, self.version, vec![conjunction]);
                }
                let mut full = tape.a_match();
                full.set(Field::ConjId, id.into());
                self.insert(&full, tape.below(5) as u32, self.version, Vec::new());
            }
            13 => {
                let fields = [Field::Ipv4Dst, Field::Metadata, Field::TcpSrc, Field::TunId, Field::Ipv6Dst];
                self.written = fields.get(tape.below(8)).map_or(FlowKey::ZERO, |f| FlowKey::mask_of(*f));
                // Often a part of the field only.
                let part = u64::MAX >> (tape.byte() & 0x3f);
                self.written.0.iter_mut().for_each(|w| *w &= part);
            }
            14 => return self.queries(&tape.a_match(), tape.below(5) as u32),
            _ => {
                let key = tape.key(&self.list);
                let version = [self.version, self.version + 1, self.version.saturating_sub(1), LATEST][tape.below(4)];
                let other = tape.key(&self.list);
                return self.lookup(&key, version, &other);
            }
        }
        count(&self.counts.changes, 1);
        self.recent.clear();
        prop_assert_eq!(self.cls.len(), self.list.len());
        prop_assert_eq!(self.cls.looks_at_ports(), self.list.iter().any(|rule| crate::looks_at_ports(&**rule)));
        Ok(())
    }

    /// Adds a rule. A rule with the same match and priority is removed in the same version.
    fn insert(&mut self, full: &Match, priority: u32, added: u64, conjunctions: Vec<Conjunction>) {
        self.replace(full, priority, added);
        self.list.push(add_rule(&self.cls, full, priority, added, conjunctions));
    }

    /// Removes the rule with this match and priority in `version`.
    fn replace(&mut self, full: &Match, priority: u32, version: u64) {
        for old in self.list.iter().filter(|r| r.full == *full && r.priority == priority) {
            old.versions.remove_in(version);
        }
    }

    /// Looks up `key`, then keys in which bits that were not read differ: all inverted, and copied from `other`.
    fn lookup(&mut self, key: &FlowKey, version: u64, other: &FlowKey) -> Result<(), TestCaseError> {
        let first = self.lookup_one(key, version)?;
        let unread = FlowKey(std::array::from_fn(|i| !first.reads.mask().0[i] & !self.written.0[i]));
        for from in [FlowKey(key.0.map(|w| !w)), other.clone()] {
            let mut key = key.clone();
            overlay(&mut key, &from, &unread);
            let again = self.lookup_one(&key, version)?;
            prop_assert_eq!(again.found(), first.found());
            prop_assert_eq!(again.reads.order(), first.reads.order());
        }
        let near = self.lookup_one(other, version)?;
        for lookup in [first, near] {
            for earlier in self.recent.iter().filter(|l| l.version == version) {
                count(&self.counts.pairs, 1);
                let disagreement = lookup.disagreement(earlier);
                prop_assert!(disagreement.is_none(), "{}", disagreement.unwrap_or_default());
            }
            self.recent.push(lookup);
        }
        Ok(())
    }

    fn lookup_one(&self, key: &FlowKey, version: u64) -> Result<Lookup, TestCaseError> {
        let given = FlowKey(self.written.0.map(|w| !w));
        let key = &key.masked(&given);
        let want = linear(&self.list, key, version);
        let lookup = Lookup::new(&self.cls, key, version, &self.written);
        // Predictions do not change results.
        for likely in [true, false] {
            self.cls.index.read().expect(likely);
            let again = Lookup::new(&self.cls, key, version, &self.written);
            prop_assert_eq!(again.found(), lookup.found());
            prop_assert_eq!(again.reads.order(), lookup.reads.order());
        }
        prop_assert_eq!(lookup.reads.written(), &self.written);
        prop_assert!(lookup.reads.mask().masked(&self.written).is_zero());
        prop_assert_eq!(lookup.found.is_some(), !want.is_empty());
        count(&self.counts.lookups, 1);
        if let Some(found) = &lookup.found {
            prop_assert!(want.iter().any(|r| Arc::ptr_eq(r, found)), "{:?} instead of {:?}", found, want);
            count(&self.counts.hits, 1);
            count(&self.counts.conjunctive, usize::from(!found.matches(key)));
        }
        Ok(lookup)
    }

    fn queries(&self, m: &Match, priority: u32) -> Result<(), TestCaseError> {
        let m = self.list.first().filter(|_| priority == 0).map_or(m, |r| &r.full);
        for version in [self.version, LATEST] {
            let there = || self.list.iter().filter(|r| r.versions.visible_in(version));
            let sorted = |rules: Vec<*const TestRule>| {
                let mut rules = rules;
                rules.sort_unstable();
                rules
            };
            let ptrs = |rules: Vec<Arc<TestRule>>| sorted(rules.iter().map(Arc::as_ptr).collect());
            prop_assert_eq!(ptrs(self.cls.rules(version)), sorted(there().map(Arc::as_ptr).collect()));
            let within = there().filter(|r| m.contains(&r.full)).map(Arc::as_ptr).collect();
            prop_assert_eq!(ptrs(self.cls.within(m, version)), sorted(within));
            let same = |r: &&Arc<TestRule>| r.full == *m && r.priority == priority;
            let found = self.cls.find(m, priority, version);
            prop_assert_eq!(found.is_some(), there().any(|r| same(&r)));
            prop_assert!(found.is_none_or(|f| same(&&f) && f.versions.visible_in(version)));
            let overlaps = there().any(|r| r.priority == priority && r.full != *m && r.full.overlaps(m));
            prop_assert_eq!(self.cls.overlaps(m, priority, version), overlaps);
        }
        Ok(())
    }
}

#[test]
fn agrees_with_a_linear_search() {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    config.failure_persistence = None;
    config.max_shrink_iters = 20_000;
    let counts = Counts::default();
    let result = TestRunner::new(config).run(&prop::collection::vec(any::<u8>(), 0..900), |bytes| {
        let mut tape = Tape(&bytes);
        let counts = &counts;
        let written = FlowMask::ZERO;
        let mut table = Table { cls: Cls::new(), list: Vec::new(), version: 1, written, recent: Vec::new(), counts };
        while !tape.0.is_empty() {
            table.step(&mut tape)?;
        }
        // Finally, check all combinations of the optimisations.
        let mut tape = Tape(&bytes);
        for bits in 0..32 {
            table.cls.set_options(Options::from_bits(bits));
            table.recent.clear();
            let (key, other) = (tape.key(&table.list), tape.key(&table.list));
            table.lookup(&key, LATEST, &other)?;
        }
        for rule in std::mem::take(&mut table.list) {
            prop_assert!(table.cls.remove(&rule));
            settle(&table.cls);
            prop_assert_eq!(
                Arc::strong_count(&rule),
                1 + table.recent.iter().filter(|l| l.found() == Some(Arc::as_ptr(&rule))).count()
            );
        }
        prop_assert!(table.cls.index.read().is_clean() && table.cls.is_empty());
        count(&counts.tables, 1);
        Ok(())
    });
    tally::report!(
        "{} random tables, {} changes, {} look-ups ({} found a rule, {} of them by a conjunctive match), {} pairs compared",
        counts.tables.get(),
        counts.changes.get(),
        counts.lookups.get(),
        counts.hits.get(),
        counts.conjunctive.get(),
        counts.pairs.get()
    );
    if let Err(e) = result {
        panic!("{e}");
    }
}
