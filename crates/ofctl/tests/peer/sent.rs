//! Compares the messages that requests and changes send: equal command lines send equal bytes, and invalid ones print
//! equal errors.

use crate::fake::{Deed, Fake, Script};
use crate::lines::{self, Line};
use crate::make::Gen;
use std::path::Path;

/// An intended difference with its reason.
struct Exception {
    reason: &'static str,
    applies: fn(&Line, theirs: &Deed, ours: &Deed) -> bool,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        reason: "flow modifications of a file wait for a barrier together",
        applies: |line, theirs, ours| {
            let file =
                |word: &String| ["add-flows", "mod-flows", "del-flows", "replace-flows"].contains(&word.as_str());
            line.args.iter().any(file) && theirs.said == ours.said && without_barriers(theirs) == without_barriers(ours)
        },
    },
    Exception {
        reason: "to change eviction or vacancy of all tables, those that the switch tells of are changed: Open vSwitch asks it again \
                 for each that there could be",
        applies: |line, _, ours| {
            line.args.iter().any(|a| a == "mod-table")
                && line.args.iter().any(|a| a.eq_ignore_ascii_case("all"))
                && line.args.iter().any(|a| a.contains("evict") || a.contains("vacancy"))
                && ours.said.trim() == "exit Some(0)"
        },
    },
    Exception {
        reason: "vacancy events of a table are changed by themselves: Open vSwitch sends flags of eviction that nobody gave",
        applies: |line, theirs, ours| {
            line.args.iter().any(|a| a.starts_with("vacancy"))
                && theirs.sent.concat().contains("0002000800000000")
                && theirs.said == ours.said
        },
    },
    Exception {
        reason: "the local port is found in OpenFlow 1.3 and 1.4, too",
        applies: |line, theirs, _| {
            line.args.iter().any(|a| a == "mod-port") && theirs.said.contains("couldn't find port `LOCAL'")
        },
    },
];

fn without_barriers(deed: &Deed) -> Vec<String> {
    let is_barrier = |line: &&str| line.len() == 16 && (line.starts_with("0112") || line[2..].starts_with("140008"));
    deed.sent.iter().map(|sent| sent.lines().filter(|l| !is_barrier(l)).collect::<Vec<_>>().join("\n")).collect()
}

/// The result of a program without its log messages, as Open vSwitch warns in more cases.
pub(crate) fn without_warnings(mut deed: Deed) -> Deed {
    let is_warning = |line: &str| matches!(line.split('|').nth(1), Some("WARN" | "INFO"));
    // A hex dump after a warning belongs to the warning.
    let is_dump = |line: &str| line.get(8..10) == Some("  ") && !line.ends_with('|');
    let mut warned = false;
    let keep = |line: &&str| {
        warned = is_warning(line) || warned && is_dump(line);
        !warned
    };
    deed.said = deed.said.lines().filter(keep).collect::<Vec<_>>().join("\n");
    deed
}

/// Runs some of the command lines; returns the differences, and the number of uses of each exception.
fn compare(theirs: &Path, ours: &Path, lines: &[Line]) -> (Vec<String>, Vec<usize>) {
    let fake = Fake::new();
    let (mut wrong, mut counts) = (Vec::new(), vec![0; EXCEPTIONS.len()]);
    for line in lines {
        let run = |program| fake.run(program, &line.args, &line.input, &Script::default());
        let (theirs, ours) = (without_warnings(run(theirs)), without_warnings(run(ours)));
        if theirs == ours {
            continue;
        }
        match EXCEPTIONS.iter().position(|e| (e.applies)(line, &theirs, &ours)) {
            Some(rule) => counts[rule] += 1,
            None => wrong.push(format!(
                "#### {:?} {}\n--- theirs\n{}\n{}\n--- ours\n{}\n{}",
                line.args,
                line.input,
                theirs.sent.join("--\n"),
                theirs.said,
                ours.sent.join("--\n"),
                ours.said
            )),
        }
    }
    (wrong, counts)
}

#[test]
fn the_messages_sent_are_equal() {
    let Some(theirs) = oracle::program("ovs-ofctl") else { return };
    let ours = crate::our_program();
    let lines = lines::lines(&mut Gen::new(4), 1560);
    let middle = lines.len() / 2;
    let (a, b) = std::thread::scope(|scope| {
        let half = scope.spawn(|| compare(&theirs, &ours, &lines[..middle]));
        (compare(&theirs, &ours, &lines[middle..]), half.join().expect("it compares"))
    });
    let mut wrong = [a.0, b.0].concat();
    for ((rule, a), b) in EXCEPTIONS.iter().zip(a.1).zip(b.1) {
        println!("{:>5} {}", a + b, rule.reason);
        if a + b == 0 {
            wrong.push(format!("nothing falls under: {}", rule.reason));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    tally::report!("{} command lines, byte for byte", lines.len());
}
