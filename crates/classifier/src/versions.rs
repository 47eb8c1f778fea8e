//! The versions of a table in which a rule is visible.
//!
//! Every change of a table creates a version, and a lookup uses one version, so that changes are atomic. A rule that a
//! change removed stays in the classifier until no lookup of an earlier version is left.

use std::sync::atomic::{AtomicU64, Ordering};

/// Not removed (yet).
const NEVER: u64 = u64::MAX;

/// A version after all others: all rules that were not removed are visible in it.
pub const LATEST: u64 = u64::MAX - 1;

/// The versions in which a rule is visible.
#[derive(Debug)]
pub struct Versions {
    added: u64,
    removed: AtomicU64,
}

impl Versions {
    /// Visible from version `added` on.
    pub fn new(added: u64) -> Self {
        Self { added, removed: AtomicU64::new(NEVER) }
    }

    /// The first version in which it is visible.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Makes the rule invisible from `version` on. ([`u64::MAX`] undoes an earlier removal.)
    pub fn remove_in(&self, version: u64) {
        self.removed.store(version, Ordering::Release);
    }

    /// Whether it is visible in `version`.
    pub fn visible_in(&self, version: u64) -> bool {
        self.added <= version && version < self.removed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_between_two_versions() {
        let v = Versions::new(3);
        let seen = |v: &Versions| [2, 3, 4, 5, LATEST].map(|n| v.visible_in(n));
        assert_eq!(seen(&v), [false, true, true, true, true]);
        v.remove_in(5);
        assert_eq!(seen(&v), [false, true, true, false, false]);
        v.remove_in(u64::MAX);
        assert_eq!((seen(&v), v.added()), ([false, true, true, true, true], 3));
    }
}
