//! Collects rules in steps: a change waits for the readers of the index, and so at most for one step.
//!
//! A step ends at a bucket of a tuple's hash table, where the next one continues, unless rules were moved meanwhile because
//! the table grew: then the tuple is read from its beginning.
//!
//! Rules that are in the index from beginning to end are collected once. Rules that are inserted or removed meanwhile may be
//! missing; callers select a version whose rules stay.

use crate::tuple::Tuple;
use crate::{Classifier, MiniMask, Rule};
use std::sync::Arc;

/// Buckets that a step visits.
const STEP: usize = if cfg!(test) { 3 } else { 2048 };
/// How often a tuple is begun again before it is read in one step.
const RESTARTS_MAX: usize = if cfg!(test) { 1 } else { 16 };

impl<R: Rule> Classifier<R> {
    /// Collects rules that `is_wanted` accepts from tuples whose masks `is_wanted_mask` accepts, tuple by tuple.
    pub(crate) fn collect(
        &self,
        is_wanted_mask: impl Fn(&MiniMask) -> bool,
        is_wanted: impl Fn(&R) -> bool,
    ) -> Vec<Arc<R>> {
        let mut found = Vec::new();
        let mut index = self.index.read();
        let masks = index.tuples().map(Tuple::mask).filter(|mask| is_wanted_mask(mask));
        let masks: Vec<Arc<MiniMask>> = masks.cloned().collect();
        let mut left = STEP;
        for mask in masks {
            let begin = found.len();
            let (mut at, mut moves, mut restarts) = (0, None, 0);
            while let Some(tuple) = index.tuple_of(&mask) {
                if moves.replace(tuple.moves()).is_some_and(|before| before != tuple.moves()) {
                    found.truncate(begin);
                    at = 0;
                    restarts += 1;
                }
                let most = if restarts < RESTARTS_MAX { left } else { usize::MAX };
                let (rules, next) = tuple.some(at, most);
                found.extend(rules.filter(|rule| is_wanted(rule)).cloned());
                left = left.saturating_sub(next.unwrap_or_else(|| tuple.n_buckets()) - at);
                let Some(next) = next else { break };
                at = next;
                // Lets a change proceed.
                drop(index);
                index = self.index.read();
                left = STEP;
            }
        }
        found
    }
}
