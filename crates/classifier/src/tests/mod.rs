//! Shared by the tests of whole classifiers: a rule, a linear list of rules as a naive model, and random tables.

mod concurrent;
mod named;
mod random;

use crate::*;
use flow::field::FIELDS;
use flow::{FlowMask, Loc, Step};

#[derive(Debug)]
pub(super) struct TestRule {
    minimatch: MiniMatch,
    full: Match,
    /// The words of `full`: index, mask, value.
    words: Vec<(usize, u64, u64)>,
    priority: u32,
    versions: Versions,
    conjunctions: Vec<Conjunction>,
}

impl TestRule {
    fn matches(&self, key: &FlowKey) -> bool {
        self.words.iter().all(|(i, mask, value)| key.0[*i] & mask == *value)
    }
}

impl Rule for TestRule {
    fn minimatch(&self) -> &MiniMatch {
        &self.minimatch
    }
    fn priority(&self) -> u32 {
        self.priority
    }
    fn versions(&self) -> &Versions {
        &self.versions
    }
    fn conjunctions(&self) -> &[Conjunction] {
        &self.conjunctions
    }
}

type Cls = Classifier<TestRule>;

/// Applies all pending changes to both copies, which readers of other tests may delay.
fn settle(cls: &Cls) {
    while !cls.index.settle() {
        std::thread::yield_now();
    }
}

/// Adds an ordinary rule that is visible in all versions.
fn add(cls: &Cls, full: &Match, priority: u32) -> Arc<TestRule> {
    add_rule(cls, full, priority, 0, Vec::new())
}

fn add_rule(cls: &Cls, full: &Match, priority: u32, added: u64, conjunctions: Vec<Conjunction>) -> Arc<TestRule> {
    let rule = rule_of(cls, full, priority, added, conjunctions);
    cls.insert(Arc::clone(&rule));
    rule
}

/// A rule for a classifier, not yet inserted.
fn rule_of(cls: &Cls, full: &Match, priority: u32, added: u64, conjunctions: Vec<Conjunction>) -> Arc<TestRule> {
    let minimatch = cls.compress(full);
    assert_eq!(minimatch.expand(), *full);
    let versions = Versions::new(added);
    let words = full.mask().0.iter().zip(&full.key().0).enumerate();
    let words = words.filter(|(_, (mask, _))| **mask != 0).map(|(i, (mask, value))| (i, *mask, *value)).collect();
    Arc::new(TestRule { minimatch, full: full.clone(), words, priority, versions, conjunctions })
}

/// The match of text like `tcp,tp_dst=80`.
fn matching(text: &str) -> Match {
    flow::text::parse_match(text, &flow::NoNames).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// All rules that a lookup may return, by linear search: several only if they overlap at one priority.
fn linear<'a>(list: &'a [Arc<TestRule>], key: &FlowKey, version: u64) -> Vec<&'a Arc<TestRule>> {
    let there: Vec<_> = list.iter().filter(|r| r.versions.visible_in(version) && r.matches(key)).collect();
    let mut priorities: Vec<u32> = there.iter().map(|r| r.priority).collect();
    priorities.sort_unstable_by(|a, b| b.cmp(a));
    priorities.dedup();
    for priority in priorities {
        let here = || there.iter().filter(|r| r.priority == priority);
        let ordinary: Vec<_> = here().filter(|r| r.conjunctions.is_empty()).copied().collect();
        if !ordinary.is_empty() {
            return ordinary;
        }
        let mut ids: Vec<_> = here().flat_map(|r| r.conjunctions.iter().map(|c| (c.id, c.n_clauses))).collect();
        ids.sort_unstable();
        ids.dedup();
        for (id, n) in ids {
            let clause = |k| here().any(|r| r.conjunctions.contains(&Conjunction { id, clause: k, n_clauses: n }));
            if (0..n).all(clause) {
                let mut key = key.clone();
                key.set(Field::ConjId, id.into());
                let ordinary: Vec<_> = list.iter().filter(|r| r.conjunctions.is_empty()).cloned().collect();
                let ids: Vec<_> = linear(&ordinary, &key, version).iter().map(|r| Arc::as_ptr(r)).collect();
                if !ids.is_empty() {
                    return list.iter().filter(|r| ids.contains(&Arc::as_ptr(r))).collect();
                }
            }
        }
    }
    Vec::new()
}

/// A lookup: the rule found, and the steps recorded.
struct Lookup {
    key: FlowKey,
    version: u64,
    found: Option<Arc<TestRule>>,
    reads: Reads,
}

impl Lookup {
    fn new(cls: &Cls, key: &FlowKey, version: u64, written: &FlowMask) -> Self {
        let mut reads = Reads::new();
        reads.write_mask(written);
        let found = cls.lookup(key, version, &mut reads);
        Self { key: key.clone(), version, found, reads }
    }

    fn found(&self) -> Option<*const TestRule> {
        self.found.as_ref().map(Arc::as_ptr)
    }

    /// Describes why two lookups in the same rules are no walks in one decision tree; `None` if they are.
    fn disagreement(&self, other: &Self) -> Option<String> {
        let (mut a, mut b) = (self.reads.order().to_vec(), other.reads.order().to_vec());
        a.reverse();
        b.reverse();
        loop {
            match (a.pop(), b.pop()) {
                (None, None) if self.found() == other.found() => return None,
                (None, None) => return Some("read the same and found different rules".into()),
                (Some(Step::Bits { word: w, bits: x }), Some(Step::Bits { word: v, bits: y }))
                    if w == v && x & y != 0 =>
                {
                    if (self.key.0[usize::from(w)] ^ other.key.0[usize::from(w)]) & x & y != 0 {
                        return None;
                    }
                    // Later reads of the same word were merged into this step.
                    a.extend(Some(Step::Bits { word: w, bits: x & !y }).filter(|s| s.bits() != 0));
                    b.extend(Some(Step::Bits { word: w, bits: y & !x }).filter(|s| s.bits() != 0));
                }
                (
                    Some(x @ Step::Prefix { shift: s, width: m, .. }),
                    Some(y @ Step::Prefix { shift: t, width: n, .. }),
                ) if (x.word(), s, m) == (y.word(), t, n) => {
                    if (self.key.0[x.word()] ^ other.key.0[x.word()]) & x.bits() & y.bits() != 0 {
                        return None;
                    }
                    if x != y {
                        return Some(format!("{x:?} and {y:?}, which begin alike"));
                    }
                }
                (x, y) => return Some(format!("{x:?} and {y:?} after the same values")),
            }
        }
    }
}

/// Random choices from a string of bytes, so that failing cases shrink: zeros are the simplest choice.
struct Tape<'a>(&'a [u8]);

impl Tape<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    /// A small set of values of `width` bits that differ at both ends and in the middle, and share parts.
    fn value(&mut self, width: u16) -> u128 {
        let b = u128::from(self.byte());
        let shift = |b: u128, by: u16| if by < 128 { b << by } else { 0 };
        shift(b & 3, 0) | shift(b >> 2 & 3, width / 2) | shift(b >> 4 & 3, width.max(2) - 2)
    }

    /// Usually a field that the optimisations use, sometimes any other.
    fn field(&mut self) -> Field {
        const HOT: [Field; 18] = [
            Field::Ipv4Dst,
            Field::Ipv4Src,
            Field::TcpDst,
            Field::TcpSrc,
            Field::Metadata,
            Field::InPortOxm,
            Field::EthDst,
            Field::EthType,
            Field::IpProto,
            Field::Ipv6Dst,
            Field::Ipv6Src,
            Field::TunId,
            Field::TunDst,
            Field::ConjId,
            Field::Reg0,
            Field::EthSrc,
            Field::Icmpv4Type,
            Field::TcpFlags,
        ];
        let i = self.below(HOT.len() + 4);
        HOT.get(i).copied().unwrap_or_else(|| {
            loop {
                let info = &FIELDS[self.below(FIELDS.len())];
                if !matches!(info.loc, Loc::TunMetadata(_)) {
                    return info.id;
                }
            }
        })
    }

    fn a_match(&mut self) -> Match {
        let mut m = Match::ANY;
        for _ in 0..self.below(5) {
            let field = self.field();
            let width = field.info().n_bits.min(128);
            let value = if field == Field::ConjId { self.below(3) as u128 } else { self.value(width) };
            match self.below(5) {
                0 | 1 => m.set(field, value & field.info().full_mask()),
                2 | 3 => {
                    let wide = width.max(1);
                    let lens = [wide, wide / 2, wide / 4, wide - 1, wide / 2 + 1];
                    let len = lens[self.below(5)].max(1);
                    m.set_masked(field, value, field.info().full_mask() << (wide - len));
                }
                _ => {
                    let mask = self.value(width);
                    m.set_masked(field, value, mask);
                }
            }
        }
        // A match has no value bits outside of its mask, whichever way its fields were set.
        Match::new(m.key(), m.mask().clone())
    }

    fn conjunctions(&mut self) -> Vec<Conjunction> {
        let n = [0, 0, 1, 2][self.below(4)];
        (0..n)
            .map(|_| {
                let n_clauses = if self.below(4) == 0 { 3 } else { 2 };
                Conjunction { id: self.below(3) as u32, clause: self.below(n_clauses.into()) as u8, n_clauses }
            })
            .collect()
    }

    /// A key close to the rules.
    fn key(&mut self, list: &[Arc<TestRule>]) -> FlowKey {
        let mut key = FlowKey::ZERO;
        for _ in 0..self.below(5) {
            if let Some(rule) = list.get(self.below(list.len().max(1))) {
                overlay(&mut key, rule.full.key(), rule.full.mask());
            }
        }
        for _ in 0..self.below(3) {
            let field = self.field();
            let bit = self.below(usize::from(field.info().n_bits.clamp(1, 128)));
            key.set(field, key.get(field) ^ 1 << bit);
        }
        key
    }
}

/// Copies the bits under `mask` from `from`.
fn overlay(key: &mut FlowKey, from: &FlowKey, mask: &FlowKey) {
    for (i, word) in key.0.iter_mut().enumerate() {
        *word = *word & !mask.0[i] | from.0[i] & mask.0[i];
    }
}
