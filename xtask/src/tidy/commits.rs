//! Subjects of commits: `area: what`, at most 72 characters. Only commits after [`BASE`] are checked, as earlier
//! history stays.

use std::path::Path;
use std::process::Command;

use super::{Finding, output};

/// The last commit that was made before this rule.
const BASE: &str = "5818f8f102ffde6b6f17160afaacc62dfb4fe15f";
/// Maximum length of a subject in characters.
const SUBJECT_MAX: usize = 72;

/// Appends a finding for each commit after [`BASE`] whose subject breaks the rule, if the clone has that commit.
/// Merges have the subjects that git gives them.
pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    // A shallow clone, or one of another history, has nothing to check.
    if output(Command::new("git").arg("-C").arg(root).args(["cat-file", "-e", BASE])).is_err() {
        return Ok(());
    }
    let range = format!("{BASE}..HEAD");
    let log = output(Command::new("git").arg("-C").arg(root).args(["log", "--no-merges", "--format=%h %s", &range]))?;
    for (commit, subject) in log.lines().filter_map(|line| line.split_once(' ')) {
        if let Some(what) = problem(subject) {
            findings.push(Finding::new(format!("commit {commit}"), 1, what));
        }
    }
    Ok(())
}

/// Returns the rule that a subject breaks, if it breaks one.
fn problem(subject: &str) -> Option<String> {
    let length = subject.chars().count();
    let area = subject.split_once(": ").map_or("", |(area, _)| area);
    let is_area = |c: char| c.is_ascii_alphanumeric() || "-_./*, ".contains(c);
    if length > SUBJECT_MAX {
        Some(format!("its subject has {length} characters, more than {SUBJECT_MAX}"))
    } else if area.is_empty() || !area.chars().all(is_area) {
        Some(format!("its subject '{subject}' does not begin with an area and a colon"))
    } else if subject.ends_with('.') {
        Some("its subject ends with a full stop".to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects() {
        assert_eq!(problem("ovsdb-server: write snapshots on a worker thread"), None);
        assert_eq!(problem("flow, datapath: give VLAN packets compact keys"), None);
        assert!(problem("Improve things").is_some());
        assert!(problem("ovsdb: write it.").is_some());
        assert!(problem(&format!("a: {}", "b".repeat(69))).is_none());
        assert!(problem(&format!("a: {}", "b".repeat(70))).is_some());
    }
}
