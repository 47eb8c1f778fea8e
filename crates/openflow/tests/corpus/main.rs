//! Generated corpora held against Open vSwitch's `ovs-ofctl`: messages of every kind and version as text, and flows,
//! groups and meters from text to bytes, well-formed and damaged.
//!
//! The program is taken from the folder `$FLOWSTONE_PEERS/bin`. Without that variable the tests are skipped, but under
//! `CI=true` they fail. All that is generated is the same in each run.

mod exceptions;
mod flows;
mod make;
mod messages;
mod oracle;
mod texts;

use exceptions::Difference;
use openflow::print::{Style, print};
use std::fmt::Write;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

/// Whole, and then what is wrong: the first few.
fn some(wrong: &[String]) -> String {
    if let Some(path) = std::env::var_os("CORPUS_DIFFERENCES") {
        std::fs::write(path, wrong.join("\n")).expect("the file can be written");
    }
    format!("{} differences:\n{}", wrong.len(), wrong[..wrong.len().min(8)].join("\n"))
}

#[test]
fn messages_are_printed_alike() {
    let Some(ofctl) = oracle::program() else { return };
    let mut g = make::Gen::new(1);
    let pool = messages::Pool::new(&mut g);
    let corpus = messages::corpus(&mut g, &pool, 5500);
    let mut all: Vec<_> = corpus.iter().map(|(kind, v, m)| (*kind, *v, m.clone(), false)).collect();
    all.extend(corpus.iter().step_by(3).map(|(kind, v, m)| (*kind, *v, messages::damage(&mut g, m), true)));
    let bytes: Vec<&[u8]> = all.iter().map(|(_, _, m, _)| m.as_slice()).collect();
    let mut counts = vec![0; exceptions::MESSAGES.len()];
    let mut wrong = Vec::new();
    for (args, verbosity) in [(&[][..], 2), (&["-m"], 3)] {
        let theirs = oracle::print(&ofctl, args, &bytes);
        for ((kind, version, message, damaged), theirs) in all.iter().zip(theirs) {
            let ours = print(message, Style::plain(verbosity));
            // Bytes that are not text are the same to both, but replaced in what we have of theirs.
            let theirs = theirs.unwrap_or_else(|| "it crashes".to_owned());
            // With more words, it writes matches of flow mods as they are on the wire.
            let raw = verbosity > 2 && theirs.contains("FLOW_MOD");
            if theirs.trim_end() == ours.trim_end() || raw {
                continue;
            }
            let (version, damaged) = (Some(*version), *damaged);
            let d = Difference { kind, version, damaged, given: message, ours: &ours, theirs: &theirs };
            match exceptions::find(exceptions::MESSAGES, &d) {
                Some(rule) if verbosity == 2 => counts[rule] += 1,
                Some(_) => {}
                None => wrong.push(format!(
                    "#### {kind} {:?} {}\n--- ours\n{ours}--- theirs\n{theirs}",
                    version.expect("it has one"),
                    hex(message)
                )),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", some(&wrong));
    wrong.extend(exceptions::settle(exceptions::MESSAGES, &counts));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let excepted: usize = counts.iter().sum();
    tally::report!("{} messages in 2 verbosities, of which {excepted} fall under {} exceptions", all.len(), counts.len());
}

#[test]
fn flows_are_sent_alike() {
    let Some(ofctl) = oracle::program() else { return };
    let mut g = make::Gen::new(2);
    let flows = flows::accepted(&mut g, 3200);
    let mut wrong = Vec::new();
    let mut compared = 0;
    for wire in flows::WIRES {
        let usable: Vec<_> = flows.iter().filter(|(_, f)| f.usable.contains(wire.protocol)).collect();
        let lines: Vec<&str> = usable.iter().map(|(text, _)| text.as_str()).collect();
        let theirs = flows::theirs(&ofctl, wire.name, &format!("OpenFlow1{}", wire.version as u8 - 1), &lines);
        assert_eq!(theirs.len(), lines.len());
        for ((text, flow), theirs) in usable.iter().zip(theirs) {
            compared += 1;
            let ours = flows::ours(wire, flow);
            if theirs != flows::Theirs::Bytes(ours.clone()) {
                let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
                let theirs = match theirs {
                    flows::Theirs::Bytes(bytes) => hex(&bytes),
                    flows::Theirs::Error(error) => error,
                };
                wrong.push(format!("#### {} {text}\n  o {}\n  t {theirs}", wire.name, hex(&ours)));
            }
        }
    }
    std::fs::write("/tmp/corpus-flows.txt", wrong.join("\n")).expect("written");
    assert!(wrong.is_empty(), "{} differences of {compared}", wrong.len());
}

#[test]
fn damaged_flows_are_refused_alike() {
    let Some(ofctl) = oracle::program() else { return };
    let mut g = make::Gen::new(3);
    let lines: Vec<String> = (0..600).map(|_| texts::damaged(&mut g)).collect();
    let borrowed: Vec<&str> = lines.iter().map(String::as_str).collect();
    let theirs = flows::theirs(&ofctl, "", "", &borrowed);
    let mut wrong = Vec::new();
    for (text, theirs) in lines.iter().zip(theirs) {
        let ours = match openflow::parse_flow(text, openflow::FlowModCommand::Add, &flow::NoNames) {
            Ok(f) if f.usable == openflow::Protocols::NONE => "no usable protocol".to_owned(),
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        };
        let theirs = match theirs {
            flows::Theirs::Bytes(_) => String::new(),
            flows::Theirs::Error(e) if e == "no usable protocol" => ours.clone(),
            flows::Theirs::Error(e) => e,
        };
        if ours != theirs {
            wrong.push(format!("#### {text}\n  o {ours}\n  t {theirs}"));
        }
    }
    std::fs::write("/tmp/corpus-damaged.txt", wrong.join("\n")).unwrap();
    assert!(wrong.is_empty(), "{} differences of {}", wrong.len(), lines.len());
}
