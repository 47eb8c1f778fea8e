//! The rules of the tree, checked: crate levels ([`levels`]), habits of files ([`files`]), language ([`language`]),
//! subjects of commits ([`commits`]), and the code map.
//!
//! Only files tracked by git are checked, so that files of a build or a run are never findings.

mod commits;
mod files;
mod language;
mod levels;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The document that lists the crates.
const CODE_MAP: &str = "ARCHITECTURE.md";

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the root of the tree.
    file: String,
    /// Counted from 1.
    line: usize,
    what: String,
}

impl Finding {
    fn new(file: impl Into<String>, line: usize, what: impl Into<String>) -> Self {
        Finding { file: file.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// The root of the tree that this program was built from.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the crate lies one folder below the root").to_owned()
}

/// Returns all findings in the tree at `root`, in the order of files and lines; an error is a line of text that names
/// what could not be checked.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    let crates = levels::crates(root)?;
    levels::check(&crates, &mut findings);
    let map = read(root, CODE_MAP)?;
    check_code_map(root, &map, &crates, &mut findings);
    let with_unsafe = files::with_unsafe(&map)?;
    for name in with_unsafe.iter().filter(|name| crates.iter().all(|member| member.name != **name)) {
        findings.push(Finding::new(
            CODE_MAP,
            1,
            format!("lets crate `{name}` have unsafe code, which is none of the tree"),
        ));
    }
    for file in tracked_files(root)? {
        // A file may be tracked and deleted, not committed yet.
        if let Ok(bytes) = std::fs::read(root.join(&file)) {
            files::check(&file, &bytes, &with_unsafe, &mut findings);
        }
    }
    findings.extend(language::beyond(of_language(root)?, &language::parse(&read(root, language::BASELINE)?)?));
    commits::check(root, &mut findings)?;
    findings.sort();
    Ok(findings)
}

/// Accepts the present language findings. An error names the parts of the tree that have more than before, which are
/// not accepted.
pub(crate) fn write_baseline(root: &Path) -> Result<(), String> {
    let path = root.join(language::BASELINE);
    let counts = language::count(&of_language(root)?);
    if path.exists() {
        language::check_shrinks(&counts, &language::parse(&read(root, language::BASELINE)?)?)?;
    }
    std::fs::write(path, language::format(&counts)).map_err(|error| format!("{}: {error}", language::BASELINE))
}

fn read(root: &Path, name: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(name)).map_err(|error| format!("{name}: {error}"))
}

fn of_language(root: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for file in tracked_files(root)? {
        if let Ok(text) = std::fs::read_to_string(root.join(&file)) {
            language::check(&file, &text, &mut findings);
        }
    }
    Ok(findings)
}

/// Each crate has a root file, and a line in ARCHITECTURE.md that names it in backquotes.
fn check_code_map(root: &Path, map: &str, crates: &[levels::Crate], findings: &mut Vec<Finding>) {
    for member in crates {
        if !map.contains(&format!("`{}`", member.name)) {
            findings.push(Finding::new(CODE_MAP, 1, format!("does not name crate `{}`", member.name)));
        }
        let source = Path::new(&member.manifest).with_file_name("src");
        if !["lib.rs", "main.rs"].iter().any(|file| root.join(&source).join(file).is_file()) {
            findings.push(Finding::new(&member.manifest, 1, "has neither src/lib.rs nor src/main.rs"));
        }
    }
}

fn tracked_files(root: &Path) -> Result<Vec<String>, String> {
    let list = output(Command::new("git").arg("-C").arg(root).args(["ls-files", "-z"]))?;
    Ok(list.split('\0').filter(|file| !file.is_empty()).map(str::to_owned).collect())
}

/// Returns the output of a command; an error if it did not start or failed.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_keeps_its_rules() {
        let findings = check(&root()).expect("the tree can be looked at");
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}", lines.join("\n"));
    }
}
