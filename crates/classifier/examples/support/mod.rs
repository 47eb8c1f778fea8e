//! Shared by the examples.

use classifier::{MiniMatch, Rule, Versions};

/// A rule with only the fields that the classifier requires.
pub(crate) struct BenchRule {
    pub(crate) minimatch: MiniMatch,
    pub(crate) priority: u32,
    pub(crate) versions: Versions,
}

impl Rule for BenchRule {
    fn minimatch(&self) -> &MiniMatch {
        &self.minimatch
    }
    fn priority(&self) -> u32 {
        self.priority
    }
    fn versions(&self) -> &Versions {
        &self.versions
    }
}
