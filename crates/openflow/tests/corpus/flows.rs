//! Flows as text and as bytes, in each format that can carry them.

use crate::make::Gen;
use crate::texts;
use flow::NoNames;
use openflow::message::{Form, Message, Options, encode_with};
use openflow::{FlowModCommand, ParsedFlow, Protocols, Version, parse_flow};
use std::path::Path;

/// A flow format of `ovs-ofctl`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub(crate) name: &'static str,
    pub(crate) version: Version,
    pub(crate) form: Form,
    pub(crate) table_id: bool,
    pub(crate) protocol: Protocols,
}

const fn wire(name: &'static str, version: Version, form: Form, table_id: bool, protocol: Protocols) -> Wire {
    Wire { name, version, form, table_id, protocol }
}

pub(crate) const WIRES: [Wire; 9] = [
    wire("OpenFlow10-table_id", Version::V10, Form::Standard, false, Protocols::OF10_STD),
    wire("OpenFlow10+table_id", Version::V10, Form::Standard, true, Protocols::OF10_STD_TID),
    wire("NXM-table_id", Version::V10, Form::Nicira, false, Protocols::OF10_NXM),
    wire("NXM+table_id", Version::V10, Form::Nicira, true, Protocols::OF10_NXM_TID),
    wire("OpenFlow11", Version::V11, Form::Standard, false, Protocols::OF11_STD),
    wire("OXM-OpenFlow12", Version::V12, Form::Standard, false, Protocols::OF12_OXM),
    wire("OXM-OpenFlow13", Version::V13, Form::Standard, false, Protocols::OF13_OXM),
    wire("OXM-OpenFlow14", Version::V14, Form::Standard, false, Protocols::OF14_OXM),
    wire("OXM-OpenFlow15", Version::V15, Form::Standard, false, Protocols::OF15_OXM),
];

/// Flows that our parser accepts, as text and as parsed.
pub(crate) fn accepted(g: &mut Gen, n: usize) -> Vec<(String, ParsedFlow)> {
    let mut all = Vec::new();
    let mut chosen = crate::chosen::TEXTS.iter().map(|text| (*text).to_owned());
    while all.len() < n {
        let text = chosen.next().unwrap_or_else(|| texts::flow(g));
        if let Ok(flow) = parse_flow(&text, FlowModCommand::Add, &NoNames) {
            all.push((text, flow));
        }
    }
    all
}

/// The bytes of our encoder.
pub(crate) fn ours(wire: Wire, flow: &ParsedFlow) -> Vec<u8> {
    let options = Options { flow_mod_table_id: wire.table_id, ..Options::default() };
    encode_with(wire.version, 0, &Message::FlowMod(wire.form, Box::new(flow.flow_mod.clone())), options)
}

/// The program's result for one flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Theirs {
    /// The bytes that it sends, with the transaction id set to 0.
    Bytes(Vec<u8>),
    Error(String),
}

/// Extracts the messages from the output of `parse-flows -mmmmm`.
fn messages(output: &str) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for line in output.lines() {
        if line.contains("_FLOW_MOD ") {
            all.push(Vec::new());
        } else if let (Some(message), Some(dump)) = (all.last_mut(), line.get(10..58)) {
            let digits = dump.split([' ', '-']).filter(|d| d.len() == 2);
            message.extend(digits.filter_map(|d| u8::from_str_radix(d, 16).ok()));
        }
    }
    for message in &mut all {
        message[4..8].fill(0);
    }
    all
}

/// The program's results for these lines in this format. The program stops at a line that it refuses; a further run continues
/// after it.
pub(crate) fn theirs(program: &Path, format: &str, version: &str, lines: &[&str]) -> Vec<Theirs> {
    let mut all = Vec::new();
    // Ranges of lines for one run; a range that no single format can carry is halved.
    let mut parts: Vec<_> = std::iter::once(0..lines.len()).collect();
    let mut runs = 0;
    while let Some(part) = parts.pop() {
        if runs > 60 {
            all.resize(lines.len(), Theirs::Error("too many differences".to_owned()));
            return all;
        }
        let text = lines[part.clone()].join("\n") + "\n";
        let mut args = vec!["-mmmmm"];
        if !format.is_empty() {
            args.extend(["-O", version, "-F", format]);
        }
        args.extend(["parse-flows", "-"]);
        let output = oracle::run(program, &args, text.as_bytes());
        if output.status.success() {
            let found = messages(&String::from_utf8_lossy(&output.stdout));
            assert_eq!(found.len(), part.len());
            all.extend(found.into_iter().map(Theirs::Bytes));
            continue;
        }
        let errors = oracle::errors(&output);
        let error = errors.strip_prefix("ovs-ofctl: ").unwrap_or(&errors);
        let place = error.strip_prefix("-:").and_then(|e| e.split_once(": "));
        let line = place.and_then(|(n, _)| n.parse::<usize>().ok());
        match (line, place) {
            (Some(1), Some((_, error))) => {
                all.push(Theirs::Error(error.to_owned()));
                parts.extend((part.len() > 1).then_some(part.start + 1..part.end));
            }
            // The lines before the refused one form a range of their own, and the refused line begins the next.
            (Some(n), _) => {
                let at = part.start + n - 1;
                parts.extend([at..part.end, part.start..at]);
            }
            _ if part.len() == 1 => all.push(Theirs::Error(error.to_string())),
            _ => {
                runs += 1;
                let middle = part.start + part.len() / 2;
                parts.extend([middle..part.end, part.start..middle]);
            }
        }
    }
    all
}

/// A flow that has an error most of the time.
pub(crate) fn damaged(g: &mut Gen) -> String {
    let mut bytes = texts::flow(g).into_bytes();
    for _ in 0..=g.below(2) {
        let at = g.below(bytes.len() as u64) as usize;
        match g.below(6) {
            0 => drop(bytes.remove(at)),
            1 => bytes.insert(at, g.of(b",=()[]:/->.0x9 qf")),
            2 => bytes[at] = g.of(b",=()[]:/->.0x9 qf"),
            3 => bytes.truncate(at.max(1)),
            4 => {
                // A word of another flow.
                let other = texts::flow(g);
                let words: Vec<&str> = other.split([',', '=', ':', '(', ')']).filter(|w| !w.is_empty()).collect();
                let word = g.of(&words);
                let end = at + bytes[at..].iter().position(|b| b",=:()".contains(b)).unwrap_or(bytes.len() - at);
                bytes.splice(at..end, word.bytes());
            }
            _ => {
                let number: &[u8] =
                    g.of(&[&b"99999999999"[..], b"-1", b"0x10000", b"256", b"300", b"4294967296", b"x", b"08"]);
                let digits = |b: &u8| b.is_ascii_digit();
                let Some(start) = bytes.iter().skip(at).position(digits).map(|i| i + at) else { continue };
                let end = start + bytes[start..].iter().position(|b| !digits(b)).unwrap_or(bytes.len() - start);
                bytes.splice(start..end, number.iter().copied());
            }
        }
        // The program skips blank lines.
        if bytes.trim_ascii().is_empty() {
            bytes.push(b',');
        }
    }
    String::from_utf8(bytes).expect("flows are ASCII")
}
