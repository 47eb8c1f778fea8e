//! Generated corpora compared with Open vSwitch's `ovs-ofctl`: messages of every kind and version as text, and flows,
//! groups and meters from text to bytes, well-formed and damaged.
//!
//! The program is taken from the folder `$FLOWSTONE_PEERS/bin`. Without that variable the tests are skipped, but under
//! `CI=true` they fail. The generated data depends only on the seeds: `CORPUS_SEED` names one (`7`) or a range of them
//! (`2..41`, without its end), and is `1` by default. `CORPUS_MOST` limits the number of differences that a test prints,
//! and `CORPUS_SHOW=WORDS` prints those under the exceptions whose reason has these words.

mod bodies;
mod chosen;
mod exceptions;
mod fields;
mod flows;
mod groups;
mod make;
mod messages;
mod orders;
mod printed;
mod texts;

use exceptions::Difference;
use openflow::Protocols;
use openflow::print::{Style, print};
use std::fmt::Write;
use std::path::Path;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

/// The seeds of this run.
fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("CORPUS_SEED").unwrap_or_else(|_| "1".to_owned());
    let number = |text: &str| text.parse().expect("CORPUS_SEED is a number, or two with `..` between them");
    match given.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&given)..number(&given) + 1,
    }
}

/// The generator of one of the three tests for a seed: no two of them draw the same numbers.
fn generator(seed: u64, test: u64) -> make::Gen {
    make::Gen::new(3 * (seed - 1) + test)
}

/// Formats the number of differences, and the first few of them.
fn some(wrong: &[String]) -> String {
    format!(
        "{} differences:\n{}",
        wrong.len(),
        wrong
            .iter()
            .take(std::env::var("CORPUS_MOST").map_or(40, |n| n.parse().unwrap_or(40)))
            .map(|w| w.chars().take(9000).collect::<String>())
            .collect::<Vec<_>>()
            .join("\n")
    )
}

#[test]
fn messages_are_printed_as_by_open_vswitch() {
    let Some(ofctl) = oracle::program("ovs-ofctl") else { return };
    let mut counts = vec![0; exceptions::MESSAGES.len()];
    let mut wrong = Vec::new();
    let compared: usize = seeds().map(|seed| compare_messages(&ofctl, seed, &mut counts, &mut wrong)).sum();
    assert!(wrong.is_empty(), "{}", some(&wrong));
    wrong.extend(exceptions::settle(exceptions::MESSAGES, &counts, seeds()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let excepted: usize = counts.iter().sum();
    tally::report!("{compared} messages in 2 verbosities, of which {excepted} fall under {} exceptions", counts.len());
}

/// Compares the messages of a seed, and returns their number.
fn compare_messages(ofctl: &Path, seed: u64, counts: &mut [usize], wrong: &mut Vec<String>) -> usize {
    let mut g = generator(seed, 1);
    let pool = messages::Pool::new(&mut g);
    let corpus = messages::corpus(&mut g, &pool, 5500);
    let mut all: Vec<_> = corpus.iter().map(|(kind, v, m)| (*kind, *v, m.clone(), false)).collect();
    all.extend(corpus.iter().step_by(3).map(|(kind, v, m)| (*kind, *v, messages::damage(&mut g, m), true)));
    all.extend(chosen::messages());
    all.extend(orders::messages());
    all.extend(corpus.iter().map(|(kind, v, m)| {
        let other = g.of(&corpus).2;
        (*kind, *v, messages::tear(&mut g, m, &other), true)
    }));
    let bytes: Vec<&[u8]> = all.iter().map(|(_, _, m, _)| m.as_slice()).collect();
    for (args, verbosity) in [(&[][..], 2), (&["-m"], 3)] {
        let theirs = printed::texts(ofctl, args, &bytes);
        for ((kind, version, message, damaged), theirs) in all.iter().zip(theirs) {
            let ours = print(message, Style::plain(verbosity));
            // Both print bytes that are not UTF-8 unchanged, but reading the program's output replaced them.
            let theirs = theirs.unwrap_or_else(|| "it crashes".to_owned());
            if theirs.trim_end() == ours.trim_end() {
                continue;
            }
            let (version, damaged) = (Some(*version), *damaged);
            let d = Difference { kind, version, damaged, given: message, ours: &ours, theirs: &theirs };
            match exceptions::find(exceptions::MESSAGES, &d) {
                Some(rule) => {
                    counts[rule] += usize::from(verbosity == 2);
                    exceptions::MESSAGES[rule].show(&d);
                }
                None => wrong.push(format!(
                    "#### {kind} {:?} {}\n--- ours\n{ours}--- theirs\n{theirs}",
                    version.expect("it has one"),
                    hex(message)
                )),
            }
        }
    }
    all.len()
}

#[test]
fn flows_are_encoded_as_by_open_vswitch() {
    let Some(ofctl) = oracle::program("ovs-ofctl") else { return };
    let mut counts = vec![0; exceptions::FLOWS.len()];
    let mut wrong = Vec::new();
    let (mut flows, mut compared) = (0, 0);
    for seed in seeds() {
        let (n, times) = compare_flows(&ofctl, seed, &mut counts, &mut wrong);
        flows += n;
        compared += times;
    }
    assert!(wrong.is_empty(), "{}", some(&wrong));
    wrong.extend(exceptions::settle(exceptions::FLOWS, &counts, seeds()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let excepted: usize = counts.iter().sum();
    tally::report!(
        "{flows} flows, {compared} times in {} formats, of which {excepted} fall under {} exceptions",
        flows::WIRES.len(),
        counts.len()
    );
}

/// Compares the flows of a seed, and returns their number and the number of comparisons.
fn compare_flows(ofctl: &Path, seed: u64, counts: &mut [usize], wrong: &mut Vec<String>) -> (usize, usize) {
    let mut g = generator(seed, 2);
    let flows = flows::accepted(&mut g, 3200);
    let mut compared = 0;
    for wire in flows::WIRES {
        // Open vSwitch does not send a match on the Ethernet packet type in these formats, as it distinguishes it from no match.
        let old = [Protocols::OF10_STD, Protocols::OF10_STD_TID, Protocols::OF11_STD].contains(&wire.protocol);
        let says_ethernet =
            |text: &str| text.contains("packet_type=(0,0)") || text.split(',').any(|word| word == "eth");
        let usable: Vec<_> = flows
            .iter()
            .filter(|(text, f)| f.usable.contains(wire.protocol) && !(old && says_ethernet(text)))
            .collect();
        let lines: Vec<&str> = usable.iter().map(|(text, _)| text.as_str()).collect();
        let theirs = flows::theirs(ofctl, wire.name, &format!("OpenFlow1{}", wire.version as u8 - 1), &lines);
        assert_eq!(theirs.len(), lines.len());
        for ((text, flow), theirs) in usable.iter().zip(theirs) {
            compared += 1;
            let ours = hex(&flows::ours(wire, flow));
            let theirs = match theirs {
                flows::Theirs::Bytes(bytes) => hex(&bytes),
                flows::Theirs::Error(error) => error,
            };
            if ours == theirs {
                continue;
            }
            let (version, damaged) = (Some(wire.version), flow.normalized.is_some());
            let d =
                Difference { kind: wire.name, version, damaged, given: text.as_bytes(), ours: &ours, theirs: &theirs };
            match exceptions::find(exceptions::FLOWS, &d) {
                Some(rule) => {
                    counts[rule] += 1;
                    exceptions::FLOWS[rule].show(&d);
                }
                None => wrong.push(format!("#### {} {text}\n  o {ours}\n  t {theirs}", wire.name)),
            }
        }
    }
    (flows.len(), compared)
}

#[test]
fn damaged_flows_are_refused_as_by_open_vswitch() {
    let Some(ofctl) = oracle::program("ovs-ofctl") else { return };
    let draw = |seed| {
        let mut g = generator(seed, 3);
        (0..600).map(move |_| flows::damaged(&mut g))
    };
    let chosen = chosen::TEXTS.iter().map(|text| (*text).to_owned());
    let lines: Vec<String> = chosen.chain(seeds().flat_map(draw)).collect();
    let borrowed: Vec<&str> = lines.iter().map(String::as_str).collect();
    let theirs: Vec<_> = borrowed.chunks(600).flat_map(|lines| flows::theirs(&ofctl, "", "", lines)).collect();
    let mut counts = vec![0; exceptions::DAMAGED_FLOWS.len()];
    let mut wrong = Vec::new();
    for (text, theirs) in lines.iter().zip(theirs) {
        let ours = match openflow::parse_flow(text, openflow::FlowModCommand::Add, &flow::NoNames) {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        };
        let theirs = match theirs {
            flows::Theirs::Bytes(_) => String::new(),
            // The flow is well-formed, but no format that is allowed by default can carry it.
            flows::Theirs::Error(e) if e == "no usable protocol" => String::new(),
            flows::Theirs::Error(e) => e,
        };
        if ours == theirs {
            continue;
        }
        let d =
            Difference { kind: "", version: None, damaged: true, given: text.as_bytes(), ours: &ours, theirs: &theirs };
        match exceptions::find(exceptions::DAMAGED_FLOWS, &d) {
            Some(rule) => {
                counts[rule] += 1;
                exceptions::DAMAGED_FLOWS[rule].show(&d);
            }
            None => wrong.push(format!("#### {text}\n  o {ours}\n  t {theirs}")),
        }
    }
    wrong.extend(exceptions::settle(exceptions::DAMAGED_FLOWS, &counts, seeds()));
    assert!(wrong.is_empty(), "{}", some(&wrong));
    tally::report!(
        "{} damaged flows, of which {} fall under {} exceptions",
        lines.len(),
        counts.iter().sum::<usize>(),
        counts.len()
    );
}
