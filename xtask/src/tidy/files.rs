//! Habits of single files. Each rule is a function from the file's name and text to findings.
//!
//! The searched words are put together by `concat!`, so that this file keeps the rules that it checks.

use std::path::Path;

use super::Finding;

/// Maximum number of lines of a Rust file before its tests; a longer one must be split.
const LINES_MAX: usize = 700;
/// Maximum size of a file in bytes.
const SIZE_MAX: usize = 1 << 20;
/// The only package source allowed in Cargo.lock.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Words that mark incomplete work. The last one counts only in Rust: elsewhere it is a template for mktemp.
const INCOMPLETE: [&str; 6] = [
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("db", "g!("),
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
/// Folders of one machine, and tools of authors.
const FOREIGN: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("sub", "agent"), concat!("helper ", "agent")];

/// Reports the findings of the tracked file `name` with contents `bytes`. Only the crates `with_unsafe` may contain
/// unsafe code.
pub(crate) fn check(name: &str, bytes: &[u8], with_unsafe: &[String], findings: &mut Vec<Finding>) {
    if bytes.len() > SIZE_MAX {
        findings.push(Finding::new(name, 1, format!("has {} bytes, more than {SIZE_MAX}", bytes.len())));
    }
    // Binary files, such as the corpora of fuzz targets, only have a size limit.
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    foreign(name, text, findings);
    if Path::new(name).extension().is_some_and(|extension| extension == "rs") {
        rust(name, text, with_unsafe, findings);
    } else if text.starts_with("#!") && text.lines().next().is_some_and(|line| line.ends_with("sh")) {
        shell(name, text, findings);
    }
}

fn foreign(name: &str, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(word) = FOREIGN.iter().find(|&word| line.contains(word)) {
            findings.push(Finding::new(name, number, format!("names '{word}'")));
        }
        if name.ends_with("Cargo.lock") && line.starts_with("source = ") && !line.contains(REGISTRY) {
            findings.push(Finding::new(name, number, "takes a package from elsewhere than crates.io"));
        }
        if name.ends_with("requirements.txt") && line.contains("index-url") {
            findings.push(Finding::new(name, number, "names a package index"));
        }
    }
}

/// Returns the crates that may contain unsafe code, as a sentence of ARCHITECTURE.md (`map`) lists them in
/// backquotes. An error if that sentence is missing.
pub(crate) fn with_unsafe(map: &str) -> Result<Vec<String>, String> {
    let opening = concat!("`uns", "afe` stands in ");
    let missing = || format!("ARCHITECTURE.md: no sentence with \"{opening}`CRATE`, ... only\"");
    let (_, rest) = map.split_once(opening).ok_or_else(missing)?;
    let (list, _) = rest.split_once(" only").ok_or_else(missing)?;
    let crates: Vec<String> = list.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    if crates.is_empty() { Err(missing()) } else { Ok(crates) }
}

fn rust(name: &str, text: &str, with_unsafe: &[String], findings: &mut Vec<Finding>) {
    if !text.starts_with("//!") {
        findings.push(Finding::new(name, 1, "does not begin with a //! comment"));
    }
    let tests = format!("#[cfg({})]", "test");
    let lines = text.lines().position(|line| line == tests).unwrap_or_else(|| text.lines().count());
    if lines > LINES_MAX {
        findings.push(Finding::new(name, LINES_MAX + 1, format!("has {lines} lines before its tests")));
    }
    let of_crate = name.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
    let may_be_unsafe = of_crate.is_some_and(|(member, _)| with_unsafe.iter().any(|known| known == member));
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(word) = INCOMPLETE.iter().find(|word| contains_word(line, word)) {
            findings.push(Finding::new(name, number, format!("says '{word}'")));
        }
        let line = line.trim_start();
        if line.starts_with(concat!("#[ig", "nore")) {
            findings.push(Finding::new(name, number, "leaves a test out"));
        }
        let keyword = concat!("uns", "afe");
        if !may_be_unsafe && !line.starts_with("//") && contains_word(line, keyword) && !line.contains('"') {
            findings.push(Finding::new(
                name,
                number,
                format!("{keyword} is not for this crate (ARCHITECTURE.md lists those that may)"),
            ));
        }
    }
}

/// A script must end at the first command that fails, or, if it sums up failures itself, leave out only `-e`.
fn shell(name: &str, text: &str, findings: &mut Vec<Finding>) {
    let first = (1..).zip(text.lines()).find(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    match first {
        Some((_, "set -euo pipefail" | "set -uo pipefail")) => {}
        Some((number, _)) => findings.push(Finding::new(name, number, "does not start with set -euo pipefail")),
        None => findings.push(Finding::new(name, 1, "is empty")),
    }
}

/// Returns true if `line` contains `word` without letters, digits or underscores around it.
fn contains_word(line: &str, word: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let end = start + word.len();
        !line[..start].ends_with(inner) && (word.ends_with('(') || !line[end..].starts_with(inner))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(name, text.as_bytes(), &["netdev-linux".to_owned()], &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rust_files() {
        assert!(found("crates/base/src/a.rs", "//! A.\nfn a() {}\n").is_empty());
        let incomplete = format!("//! A.\nfn a() {{ {}) }}\n", INCOMPLETE[0]);
        assert_eq!(found("a.rs", &incomplete), [format!("a.rs:2: says '{}'", INCOMPLETE[0])]);
        assert_eq!(found("a.rs", "fn a() {}\n"), ["a.rs:1: does not begin with a //! comment"]);
        let ignored = concat!("//! A.\n  #[ig", "nore = \"slow\"]\n");
        assert_eq!(found("a.rs", ignored), ["a.rs:2: leaves a test out"]);
    }

    #[test]
    fn length_is_counted_up_to_the_tests() {
        let body = "//\n".repeat(LINES_MAX - 1);
        let tests = format!("#[cfg({})]\n{}", "test", "//\n".repeat(LINES_MAX));
        assert!(found("a.rs", &format!("//!\n{body}{tests}")).is_empty());
        assert_eq!(found("a.rs", &format!("//!\n{body}//\n")), ["a.rs:701: has 701 lines before its tests"]);
    }

    #[test]
    fn unsafe_code_has_its_crates() {
        let text = concat!("//! A.\nuns", "afe fn a() {}\n");
        assert!(found("crates/netdev-linux/src/sys.rs", text).is_empty());
        assert_eq!(found("crates/flow/src/a.rs", text).len(), 1);
        assert_eq!(found("crates/netdev-linux-more/src/a.rs", text).len(), 1);
        let map = concat!("5. `uns", "afe` stands in `netdev-linux`, `netdev-afxdp` and\n   `epoch` only, with `x`.\n");
        assert_eq!(with_unsafe(map).expect("has the sentence"), ["netdev-linux", "netdev-afxdp", "epoch"]);
        assert!(with_unsafe("Nothing.").is_err());
    }

    #[test]
    fn shell_scripts() {
        assert!(found("a", "#!/usr/bin/env bash\n# A.\nset -euo pipefail\n").is_empty());
        let expected = ["a:2: does not start with set -euo pipefail"];
        assert_eq!(found("a", "#!/bin/sh\nls\n"), expected);
    }

    #[test]
    fn foreign_words() {
        assert_eq!(found("a.md", FOREIGN[0]), [format!("a.md:1: names '{}'", FOREIGN[0])]);
        assert_eq!(found("Cargo.lock", "source = \"git+https://example.org\"").len(), 1);
    }

    #[test]
    fn large_files() {
        assert_eq!(found("a.bin", &"a".repeat(SIZE_MAX + 1)), ["a.bin:1: has 1048577 bytes, more than 1048576"]);
    }
}
