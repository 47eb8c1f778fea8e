//! The language of the tree: comments and documents in plain technical English, names that the field uses.
//!
//! A program can check two things. Sentences of comments and Markdown files do not begin with the words of [`OPENINGS`], which
//! hide who acts. And code and comments avoid words of our own for which the field has others: [`NAMES`] as parts of names,
//! [`TYPES`] as whole names of types, [`PHRASES`] in prose.
//!
//! Files that were written before these rules are listed in `xtask/language-baseline.txt` with their number of findings, which
//! may only shrink: a file with more findings than listed fails with all of them. `cargo run -p xtask -- tidy --write-baseline`
//! writes the list anew, and refuses if a part of the tree has more findings than before; within a part, code may move from
//! file to file. A file with fewer findings than listed is no error, so that changes made side by side do not break the list.

use std::collections::BTreeMap;
use std::path::Path;

use super::Finding;

/// The file with the accepted numbers of findings.
pub(crate) const BASELINE: &str = "xtask/language-baseline.txt";

/// Openings of sentences that name no acting subject.
const OPENINGS: [&str; 8] = ["Who ", "Whoever ", "Whom ", "Those ", "What is ", "What was ", "What are ", "Nobody "];

/// Words of our own in names, and what the field says: as a part of a name in snake case or camel case.
const NAMES: [(&str, &str); 18] = [
    ("crew", "PMD threads"),
    ("judge", "cache admission policy"),
    ("seats", "tx queue ids"),
    ("usual", "last-flow cache"),
    ("alike", "byte pattern"),
    ("guests", "passive connections"),
    ("bare", "L3 packet"),
    ("mended", "fixed up"),
    ("essence", "normalised actions"),
    ("unfinished", "partial checksum, pending"),
    ("distrust", "invalidate"),
    ("draft", "snapshot"),
    ("adopt", "install"),
    ("book", "megaflow table"),
    ("tell", "report, notify"),
    ("tells", "reports, notifies"),
    ("told", "notified"),
    ("somebody", "name who acts"),
];

/// Parts of the tree in which a word of [`NAMES`] is a name of an interface: the format of tables that `--bare` selects.
const INTERFACES: [(&str, &[&str]); 1] = [(
    "bare",
    &["crates/cli", "crates/dbctl", "crates/ovsdb", "crates/ovsdb-server", "crates/ovsdb-tools", "crates/vtepctl"],
)];

/// Names of types that say nothing of what.
const TYPES: [(&str, &str); 7] = [
    ("Room", "quota, permit"),
    ("Account", "quota, permit"),
    ("Load", "quota, permit"),
    ("Place", "say of what"),
    ("Shared", "say of what"),
    ("Kind", "say of what"),
    ("Seat", "tx queue id"),
];

/// Phrases in prose, and what the field says.
const PHRASES: [(&str, &str); 15] = [
    ("way to send", "tx queue"),
    ("ways to send", "tx queues"),
    ("line of memory", "cache line"),
    ("lines of memory", "cache lines"),
    ("is told", "is notified, receives"),
    ("are told", "are notified, receive"),
    ("be told", "be notified, receive"),
    ("was told", "was notified, received"),
    ("looked at", "examined, inspected, polled"),
    ("of whom", "say it with a subject"),
    ("is nobody's", "has no owner"),
    ("somebody", "name who acts"),
    ("goes home", "is returned to the pool"),
    ("for whom", "say it with a subject"),
    ("goes without saying", "is the default"),
];

/// Numbers of findings, by file.
pub(crate) type Counts = BTreeMap<String, usize>;

/// Appends the language findings of the tracked file `name`.
pub(crate) fn check(name: &str, text: &str, findings: &mut Vec<Finding>) {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    // The rules themselves.
    if name.starts_with("xtask/src/tidy/language") {
        return;
    }
    match extension {
        Some("rs") => {
            // A sentence may go on from one line of a comment to the next.
            let mut begins = true;
            for (number, line) in (1..).zip(text.lines()) {
                let (code, comment) = parts(line);
                names(name, number, code, findings);
                match comment {
                    Some(comment) => begins = prose(name, number, comment, begins, findings),
                    None => begins = true,
                }
            }
        }
        Some("md") => {
            let (mut begins, mut is_code) = (true, false);
            for (number, line) in (1..).zip(text.lines()) {
                if line.starts_with("```") {
                    is_code = !is_code;
                }
                // Indented lines are code, too.
                begins = is_code || line.starts_with("    ") || prose(name, number, line, begins, findings);
            }
        }
        _ => {}
    }
}

/// A line's code, and the text of the comment behind it.
fn parts(line: &str) -> (&str, Option<&str>) {
    let mut in_string = false;
    let mut escaped = false;
    let mut previous = ' ';
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            // Not a character literal.
            '"' if previous != '\'' => in_string = !in_string,
            '/' if !in_string && line[at..].starts_with("//") => {
                return (&line[..at], Some(line[at..].trim_start_matches(['/', '!'])));
            }
            _ => {}
        }
        previous = c;
    }
    (line, None)
}

/// Checks a line of prose. `begins` says whether a sentence begins with it; returns whether one begins with the next line.
fn prose(name: &str, number: usize, line: &str, begins: bool, findings: &mut Vec<Finding>) -> bool {
    let text = line.trim_start_matches([' ', '-', '*', '>', '|', '#']).trim_end();
    if text.is_empty() {
        return true;
    }
    let mut found = |what: String| findings.push(Finding::new(name, number, what));
    let starts = text.match_indices(". ").map(|(at, _)| at + 2);
    for start in begins.then_some(0).into_iter().chain(starts) {
        let sentence = text[start..].trim_start_matches('(');
        if let Some(opening) = OPENINGS.iter().find(|opening| sentence.starts_with(**opening)) {
            found(format!("a sentence begins with '{}': name what acts", opening.trim_end()));
        }
    }
    for (phrase, instead) in PHRASES {
        if text.contains(phrase) {
            found(format!("says '{phrase}': {instead}"));
        }
    }
    text.ends_with(['.', ':', ';'])
}

/// Checks the names in a line of code, outside of string literals.
fn names(name: &str, number: usize, code: &str, findings: &mut Vec<Finding>) {
    for (at, piece) in code.split('"').enumerate() {
        if at % 2 == 1 {
            continue;
        }
        let mut previous = "";
        for token in piece.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            for segment in segments(token) {
                if let Some((word, instead)) = NAMES.iter().find(|(word, _)| *word == segment)
                    && !is_of_interface(name, word)
                {
                    findings.push(Finding::new(name, number, format!("the name {token} says '{word}': {instead}")));
                }
            }
            if ["struct", "enum", "trait", "type"].contains(&previous)
                && let Some((word, instead)) = TYPES.iter().find(|(word, _)| *word == token)
            {
                findings.push(Finding::new(name, number, format!("a type is called {word}: {instead}")));
            }
            previous = token;
        }
    }
}

/// Returns true if `word` is a name of an interface in the part of the tree that the file `name` belongs to.
fn is_of_interface(name: &str, word: &str) -> bool {
    let part = part_of(name);
    INTERFACES.iter().any(|(known, parts)| *known == word && parts.contains(&part.as_str()))
}

/// The words of a name in snake case or camel case, in lower case.
fn segments(token: &str) -> Vec<String> {
    let mut segments = Vec::new();
    for part in token.split('_') {
        let mut segment = String::new();
        for c in part.chars() {
            if c.is_ascii_uppercase() && segment.chars().last().is_some_and(|last| last.is_ascii_lowercase()) {
                segments.push(segment.to_ascii_lowercase());
                segment.clear();
            }
            segment.push(c);
        }
        segments.push(segment.to_ascii_lowercase());
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}

/// The part of the tree that a file belongs to: its crate, or its first folder.
pub(crate) fn part_of(file: &str) -> String {
    let mut folders = file.split('/');
    match (folders.next(), folders.next()) {
        (Some("crates"), Some(member)) => format!("crates/{member}"),
        (Some(folder), Some(_)) => folder.to_owned(),
        _ => ".".to_owned(),
    }
}

/// Findings by file.
pub(crate) fn count(findings: &[Finding]) -> Counts {
    let mut counts = Counts::new();
    for finding in findings {
        *counts.entry(finding.file.clone()).or_default() += 1;
    }
    counts
}

/// Numbers by part of the tree.
fn by_part(counts: &Counts) -> BTreeMap<String, usize> {
    let mut parts = BTreeMap::new();
    for (file, n) in counts {
        *parts.entry(part_of(file)).or_default() += n;
    }
    parts
}

/// Checks that no part of the tree has more findings than are accepted. The error names the parts that have.
pub(crate) fn check_shrinks(counts: &Counts, accepted: &Counts) -> Result<(), String> {
    let accepted = by_part(accepted);
    let grown: Vec<String> = by_part(counts)
        .into_iter()
        .filter_map(|(part, n)| {
            let before = accepted.get(&part).copied().unwrap_or(0);
            (n > before).then(|| format!("{part} ({n}, before {before})"))
        })
        .collect();
    if grown.is_empty() { Ok(()) } else { Err(format!("more findings of language than before: {}", grown.join(", "))) }
}

/// Reads the baseline: a number and a file a line. An error names the line.
pub(crate) fn parse(text: &str) -> Result<Counts, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entry = |line: &str| {
        let (n, file) = line.trim_start().split_once(' ')?;
        Some((file.to_owned(), n.parse().ok()?))
    };
    lines.map(|line| entry(line).ok_or_else(|| format!("{BASELINE}: '{line}' is not a number and a file"))).collect()
}

/// The baseline's text.
pub(crate) fn format(counts: &Counts) -> String {
    let mut text = "# Findings of language that are still accepted, by file; the numbers may only shrink.\n".to_owned();
    for (file, n) in counts {
        text += &format!("{n:4} {file}\n");
    }
    text
}

/// The findings of the files that have more of them than the baseline accepts.
pub(crate) fn beyond(findings: Vec<Finding>, accepted: &Counts) -> Vec<Finding> {
    let counts = count(&findings);
    let of = |counts: &Counts, file: &str| counts.get(file).copied().unwrap_or(0);
    findings.into_iter().filter(|finding| of(&counts, &finding.file) > of(accepted, &finding.file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(name, text, &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sentences_begin_with_what_acts() {
        assert_eq!(found("a.rs", "/// Who asks waits.\n").len(), 1);
        assert_eq!(found("a.rs", "let x = 1; // Fine. Those that wait do not.\n").len(), 1);
        assert!(found("a.rs", "/// The server asks\n/// Those is a word in the middle.\n").is_empty());
        assert_eq!(found("a.rs", "/// The server asks.\n/// Those do not.\n").len(), 1);
        assert!(found("a.rs", "let text = \"// Who asks\";\n").is_empty());
        assert_eq!(found("a.md", "- What is installed stays.\n").len(), 1);
        assert!(found("a.md", "    Who knows\n```\nWho knows\n```\n").is_empty());
    }

    #[test]
    fn names_are_the_fields() {
        assert_eq!(found("a.rs", "struct PacketCrew;\nlet the_crew = crews();\n").len(), 2);
        assert!(found("a.rs", "// The usual case.\nlet barely = \"crew\";\n").is_empty());
        assert_eq!(found("a.rs", "// A line of memory.\n").len(), 1);
        assert_eq!(found("a.rs", "pub(crate) struct Room<'a> {}\nlet room = Room {};\nenum RoomKind {}\n").len(), 1);
        assert_eq!(found("crates/xlate/src/a.rs", "fn bare() {}\n").len(), 1);
        assert!(found("crates/ovsdb/src/a.rs", "fn format_bare() {}\n").is_empty());
        assert_eq!(segments("isBareL3_packetNSH"), ["is", "bare", "l3", "packet", "nsh"]);
    }

    #[test]
    fn the_baseline_only_shrinks() {
        let finding = |file: &str| Finding::new(file, 1, "says so");
        let accepted = parse("# A comment.\n   2 crates/a/x.rs\n1 crates/b/x.rs\n").expect("is well formed");
        let all = || vec![finding("crates/a/x.rs"), finding("crates/a/x.rs"), finding("crates/b/x.rs")];
        assert_eq!(parse(&format(&count(&all()))).expect("is what was written"), accepted);
        assert!(beyond(all(), &accepted).is_empty());
        let mut more = all();
        more.push(finding("crates/b/x.rs"));
        assert_eq!(beyond(more.clone(), &accepted).len(), 2, "all of the file are listed");
        assert!(beyond(all()[1..].to_vec(), &accepted).is_empty());
        assert_eq!(beyond(vec![finding("README.md")], &Counts::new()).len(), 1);
        assert!(check_shrinks(&count(&all()), &accepted).is_ok());
        assert!(check_shrinks(&count(&more), &accepted).is_err_and(|error| error.contains("crates/b (2, before 1)")));
        let moved = [finding("crates/a/y.rs"), finding("crates/a/y.rs")];
        assert!(check_shrinks(&count(&moved), &accepted).is_ok(), "code may move within a crate");
        assert!(parse("crates/a\n").is_err());
    }
}
