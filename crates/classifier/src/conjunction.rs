//! Conjunctive matches (ovs-fields(7), "conj_id").
//!
//! Rules with the action `conjunction(id, k/n)` are clauses; a lookup never returns such a rule. If a key satisfies all
//! `n` clauses of an id with rules of one priority, the table is searched again with `conj_id` set to the id, ignoring
//! clauses, and the rule found is the result. If nothing is found, the conjunctive match has no effect.
//!
//! Cases that the manual leaves open are defined here, so that the result does not depend on the order of tuples: an
//! ordinary rule precedes a conjunctive match of the same priority; among several ids satisfied at one priority the
//! lowest comes first; clauses of one id with different `n` belong to different matches.

use std::collections::BTreeMap;

/// One clause of a conjunctive match: the action `conjunction(id, k/n)` of ovs-actions(7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Conjunction {
    /// The value of `conj_id` when all clauses are satisfied.
    pub id: u32,
    /// Index of the clause, from 0: `k - 1`.
    pub clause: u8,
    /// Number of clauses, 2 to 64.
    pub n_clauses: u8,
}

/// The clauses that a key satisfies, with the priorities of their rules.
#[derive(Debug, Default)]
pub(crate) struct Clauses(Vec<(u32, Conjunction)>);

impl Clauses {
    /// Adds the clauses of a rule of this priority.
    pub(crate) fn add(&mut self, priority: u32, clauses: &[Conjunction]) {
        self.0.extend(clauses.iter().map(|c| (priority, *c)));
    }

    /// Whether there are none, as in most lookups.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ids whose clauses are all satisfied by rules of one priority higher than `above`, in the order in which they
    /// are to be tried.
    pub(crate) fn satisfied(&self, above: Option<u32>) -> impl Iterator<Item = u32> + use<> {
        self.conjunctions(above).map(|satisfied| satisfied.id)
    }

    /// Like [`satisfied`](Self::satisfied), with priorities and numbers of clauses.
    pub(crate) fn conjunctions(&self, above: Option<u32>) -> impl Iterator<Item = Satisfied> + use<> {
        // By descending priority, then id and number of clauses: a bitmap of satisfied clauses.
        let mut seen: BTreeMap<(std::cmp::Reverse<u32>, u32, u8), u64> = BTreeMap::new();
        for (priority, c) in &self.0 {
            if above.is_none_or(|above| *priority > above) && c.clause < c.n_clauses && c.n_clauses <= 64 {
                *seen.entry((std::cmp::Reverse(*priority), c.id, c.n_clauses)).or_default() |= 1 << c.clause;
            }
        }
        let whole = seen.into_iter().filter(|((_, _, n), clauses)| *clauses == u64::MAX >> (64 - n));
        whole.map(|((priority, id, n_clauses), _)| Satisfied { priority: priority.0, id, n_clauses })
    }
}

/// A conjunctive match whose clauses a key satisfies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Satisfied {
    /// The priority of the rules with the clauses.
    priority: u32,
    /// The id.
    pub(crate) id: u32,
    /// The number of clauses.
    n_clauses: u8,
}

impl Satisfied {
    /// Whether a rule that matches the key is a part of it.
    pub(crate) fn has<R: crate::Rule>(&self, rule: &R) -> bool {
        let is_clause = |c: &Conjunction| (c.id, c.n_clauses) == (self.id, self.n_clauses) && c.clause < c.n_clauses;
        rule.priority() == self.priority && rule.conjunctions().iter().any(is_clause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_order_of_priority() {
        let c = |id, clause, n_clauses| Conjunction { id, clause, n_clauses };
        let mut clauses = Clauses::default();
        clauses.add(5, &[c(1, 0, 2), c(2, 0, 2)]);
        clauses.add(5, &[c(2, 1, 2)]);
        clauses.add(7, &[c(9, 0, 3), c(9, 2, 3), c(1, 1, 2)]);
        clauses.add(7, &[c(9, 1, 3)]);
        clauses.add(3, &[c(4, 63, 64), c(4, 70, 64), c(4, 0, 0), c(6, 0, 200)]);
        let satisfied = |above| clauses.satisfied(above).collect::<Vec<_>>();
        assert_eq!(satisfied(None), [9, 2]);
        assert_eq!(satisfied(Some(5)), [9]);
        assert!(satisfied(Some(7)).is_empty());
        let mut all = Clauses::default();
        all.add(0, &(0..64).map(|i| c(8, i, 64)).collect::<Vec<_>>());
        assert_eq!(all.satisfied(None).collect::<Vec<_>>(), [8]);
    }
}
