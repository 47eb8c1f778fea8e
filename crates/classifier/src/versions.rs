//! In which versions of a table a rule is there.
//!
//! Every change of a table has a version of its own, and a look-up is done in one version: it sees a change whole or not
//! at all. A rule that a change removes stays in the classifier until no look-up of an earlier version is left.

use std::sync::atomic::{AtomicU64, Ordering};

/// Not removed (yet).
const NEVER: u64 = u64::MAX;

/// The version after all others: it sees what is not removed.
pub const LATEST: u64 = u64::MAX - 1;

/// From which version on a rule is there, and from which on it is not.
#[derive(Debug)]
pub struct Versions {
    added: u64,
    removed: AtomicU64,
}

impl Versions {
    /// There from version `added` on.
    pub fn new(added: u64) -> Self {
        Self { added, removed: AtomicU64::new(NEVER) }
    }

    /// The first version in which it is there.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// From version `version` on it is not there any more. ([`u64::MAX`] takes an earlier removal back.)
    pub fn remove_in(&self, version: u64) {
        self.removed.store(version, Ordering::Release);
    }

    /// Whether it is there in `version`.
    pub fn visible_in(&self, version: u64) -> bool {
        self.added <= version && version < self.removed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_from_one_version_to_another() {
        let v = Versions::new(3);
        let seen = |v: &Versions| [2, 3, 4, 5, LATEST].map(|n| v.visible_in(n));
        assert_eq!(seen(&v), [false, true, true, true, true]);
        v.remove_in(5);
        assert_eq!(seen(&v), [false, true, true, false, false]);
        v.remove_in(u64::MAX);
        assert_eq!((seen(&v), v.added()), ([false, true, true, true, true], 3));
    }
}
