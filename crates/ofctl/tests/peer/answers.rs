//! Compares the output of both programs for a switch's replies and asynchronous messages, with the same bytes and
//! options.

use crate::exceptions::{self, Difference};
use crate::fake::{Fake, News, Script};
use crate::make::Gen;
use crate::messages::{self, Pool};
use openflow::Version;
use std::path::Path;

/// A command line, the switch's reply to it, and the type and version of that message.
struct Case {
    args: Vec<String>,
    script: Script,
    kind: &'static str,
    version: Version,
    message: Vec<u8>,
}

/// The command that requests this reply.
fn command(message: &[u8]) -> Option<&'static str> {
    let statistics = [
        "dump-desc",
        "dump-flows",
        "dump-aggregate",
        "dump-tables",
        "dump-ports",
        "queue-stats",
        "dump-group-stats",
        "dump-groups",
        "dump-group-features",
        "meter-stats",
        "dump-meters",
        "meter-features",
        "dump-table-features",
        "dump-ports-desc",
        "dump-table-desc",
        "queue-get-config",
    ];
    let number =
        |at: usize, n: usize| message.get(at..at + n)?.iter().try_fold(0, |all, b| Some(all << 8 | usize::from(*b)));
    // Offset of an experimenter's number.
    let vendor = if message[0] == 1 { 12 } else { 16 };
    match (message[0], message[1]) {
        (1, 21) | (2..=4, 23) => return Some("queue-get-config"),
        (1, 17) | (2.., 19) => {}
        _ => return None,
    }
    match number(8, 2)? {
        0xffff if number(vendor, 4)? == 0x2320 => match number(vendor + 4, 4)? {
            0 => Some("dump-flows"),
            1 => Some("dump-aggregate"),
            3 => Some("dump-ipfix-bridge"),
            4 => Some("dump-ipfix-flow"),
            7 => Some("dump-group-stats"),
            8 => Some("dump-groups"),
            9 => Some("dump-group-features"),
            _ => None,
        },
        n => statistics.get(n).copied(),
    }
}

fn options(g: &mut Gen, command: &str) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..g.below(3) {
        all.push(g.of(&["-m", "--more", "--names", "--no-names", "-mm"]).to_owned());
    }
    // For features of tables, the programs request names at different times.
    if command == "dump-table-features" {
        all.retain(|option| option != "--names");
    }
    // Other dumps are only coloured where they contain actions.
    if command == "dump-flows" && g.once_in(4) {
        all.push("--color=always".to_owned());
    }
    if command == "dump-flows" {
        for _ in 0..g.below(3) {
            let sort =
                ["--no-stats", "--stats", "--sort", "--rsort", "--sort=in_port", "--rsort=nw_src", "--sort=priority"];
            all.push(g.of(&sort).to_owned());
        }
    }
    all
}

fn name(version: Version) -> String {
    format!("OpenFlow1{}", version as u8 - 1)
}

fn cases(g: &mut Gen, n: usize) -> Vec<Case> {
    let pool = Pool::new(g);
    let mut all = Vec::new();
    for (kind, version, message) in messages::corpus(g, &pool, 4000) {
        let Some(command) = command(&message) else { continue };
        // Malformed replies are compared separately.
        if openflow::message::decode(&message).is_err() {
            continue;
        }
        let mut args = vec!["-O".to_owned(), name(version)];
        args.extend(options(g, command));
        args.extend([command.to_owned(), "unix:sw".to_owned()]);
        if message[1] > 19 {
            args.push("1".to_owned());
        }
        let script = Script { reply: Some(message.clone()), news: None };
        all.push(Case { args, script, kind, version, message });
    }
    // Choose evenly from all types.
    let step = (all.len() / n).max(1);
    all.into_iter().step_by(step).take(n).collect()
}

/// Asynchronous messages and the commands that print them.
fn news(g: &mut Gen, n: usize) -> Vec<Case> {
    let pool = Pool::new(g);
    let of_monitors = [
        "packet in",
        "NX packet in",
        "NX packet in 2",
        "flow removed",
        "NX flow removed",
        "port status",
        "error",
        "echo",
    ];
    let all = messages::corpus(g, &pool, 5500);
    let fits = |kind: &str| of_monitors.contains(&kind);
    let all: Vec<_> = all.into_iter().filter(|(kind, ..)| fits(kind)).collect();
    (0..n)
        .map(|_| {
            let (kind, version, _) = g.of(&all);
            let same: Vec<_> = all.iter().filter(|(_, v, _)| *v == version).collect();
            let said: Vec<Vec<u8>> = (0..=g.below(3)).map(|_| g.of(&same).2.clone()).collect();
            let mut args = vec!["-O".to_owned(), name(version)];
            for _ in 0..g.below(3) {
                args.push(g.of(&["-m", "--names", "--no-names", "-mm"]).to_owned());
            }
            let snoop = g.once_in(2);
            if snoop {
                args.extend(["snoop".to_owned(), "unix:sw".to_owned()]);
            } else {
                let format = g.of(&["standard", "nxt_packet_in", "nxt_packet_in2"]);
                args.extend(["-P", format, "monitor", "unix:sw", "65534"].map(str::to_owned));
            }
            let news = if snoop { News::AtOnce(said.clone()) } else { News::OnceChosen(said.clone()) };
            let script = Script { reply: None, news: Some(news) };
            Case { args, script, kind, version, message: said.concat() }
        })
        .collect()
}

/// A text without its colours.
fn plain(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
        out.push_str(&part[end..]);
    }
    out
}

/// The cases whose output differs without a matching exception.
fn compare(theirs: &Path, ours: &Path, cases: &[Case]) -> (Vec<String>, usize) {
    let fake = Fake::new();
    let (mut wrong, mut excepted) = (Vec::new(), 0);
    for case in cases {
        let run = |program| crate::sent::without_warnings(fake.run(program, &case.args, "", &case.script));
        let (theirs, ours) = (run(theirs), run(ours));
        if theirs == ours {
            continue;
        }
        // In colour, Open vSwitch ends nested lists of actions with a comma.
        let (ours_said, theirs_said) = (plain(&ours.said), plain(&theirs.said).replace(",)", ")"));
        let (ours_said, theirs_said) = (ours_said.as_str(), theirs_said.as_str());
        if theirs.sent == ours.sent && ours_said == theirs_said && plain(&theirs.said).contains("),)") {
            excepted += 1;
            continue;
        }
        let version = Some(case.version);
        let d = Difference {
            kind: case.kind,
            version,
            damaged: false,
            given: &case.message,
            ours: ours_said,
            theirs: theirs_said,
        };
        if theirs.sent == ours.sent && exceptions::find(exceptions::MESSAGES, &d).is_some() {
            excepted += 1;
            continue;
        }
        wrong.push(format!(
            "#### {:?} {} {}\n--- theirs\n{}\n{}\n--- ours\n{}\n{}",
            case.args,
            case.kind,
            crate::hex(&case.message),
            theirs.sent.join("--\n"),
            theirs.said,
            ours.sent.join("--\n"),
            ours.said
        ));
    }
    (wrong, excepted)
}

fn assert_equal_output(cases: &[Case]) {
    let Some(theirs) = oracle::program("ovs-ofctl") else { return };
    let ours = crate::our_program();
    let middle = cases.len() / 2;
    let (a, b) = std::thread::scope(|scope| {
        let half = scope.spawn(|| compare(&theirs, &ours, &cases[..middle]));
        (compare(&theirs, &ours, &cases[middle..]), half.join().expect("it compares"))
    });
    let wrong = [a.0, b.0].concat();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    tally::report!("{} answers, of which {} fall under exceptions of messages", cases.len(), a.1 + b.1);
}

#[test]
fn replies_are_printed_equally() {
    assert_equal_output(&cases(&mut Gen::new(5), 500));
}

#[test]
fn asynchronous_messages_are_printed_equally() {
    assert_equal_output(&news(&mut Gen::new(6), 60));
}
