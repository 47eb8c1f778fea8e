//! The notation of `cases.txt`: an error, its versions and its circumstances; and the messages that cause it.
//!
//! A case begins with a line `ERROR VERSIONS: when`. Indented lines follow it: the messages, in order, of which the
//! last is the refused one; or `never: why`, for an error that this switch never sends. A line
//! `peer: ERROR: why` gives the answer of Open vSwitch 4.0 if it differs (`none`: no error); a case with one of the lines that
//! are not messages of an open connection (`time MS`, `limit FLOWS`,
//! `full bundles`, `full meters`, `fail`, `hello BYTES`) is not run on Open vSwitch.
//!
//! Byte strings are in hexadecimal, with underscores ignored; other numbers are decimal. A message is
//!
//! - `type N BYTES`, `multipart N [flags=N] BYTES`, `nicira N BYTES`, `onf N BYTES`, `vendor ID N BYTES`: headers, then bytes;
//! - `raw BYTES`: unchanged, where `VV` stands for the version;
//! - `flow [KEY=VALUE]...`, `packet-out [KEY=VALUE]...`, `bundle ID STEP FLAGS`, `bundle-add ID FLAGS MESSAGE`: these messages
//!   in the form that the version has for them;
//! - `add-flow TEXT`, `mod-group TEXT` and the like: as for `ovs-ofctl`;
//! - `repeat N MESSAGE`: with `#` in it counting up from 0;
//! - `role ROLE ID`.
//!
//! In bytes, `PAD` stands for padding that Nicira's statistics have in OpenFlow 1.0 only, and `MAC` for the address of port 1.

use openflow::flow_mod::FlowMod;
use openflow::message::{Form, Message, encode};
use openflow::types::{MessageKind, begin, finish, set_length};
use openflow::{FlowModCommand, GroupCommand, MeterCommand, OfpError, Version};
use std::path::PathBuf;

/// A case of the table.
pub(super) struct Case {
    pub(super) error: OfpError,
    pub(super) versions: Vec<Version>,
    pub(super) when: String,
    pub(super) outcome: Outcome,
    /// The answer of Open vSwitch, if that is another error or none, and the reason.
    pub(super) peer: Option<(Option<OfpError>, String)>,
}

/// The outcome of a case.
pub(super) enum Outcome {
    /// These lines cause the error.
    Sent(Vec<String>),
    /// Nothing causes it, for this reason.
    Never(String),
}

/// The meaning of a line of a case.
pub(super) enum Step {
    /// Bytes of a message.
    Message(Vec<u8>),
    /// Lets milliseconds pass.
    Time(u64),
    /// Limits the number of flows in table 0.
    Limit(u64),
    /// Makes the devices of ports refuse to be set up or down.
    Fail,
    /// Fills the memory for messages in bundles.
    FullBundles,
    /// Adds as many meters as possible.
    FullMeters,
    /// Opens a connection with these bytes.
    Hello(Vec<u8>),
}

/// The xid of the messages of cases.
pub(super) const XID: u32 = 0x5eed;

const V10: Version = Version::V10;
const V11: Version = Version::V11;
const V12: Version = Version::V12;
const V15: Version = Version::V15;

/// All cases.
pub(super) fn cases() -> Vec<Case> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/tests/errors/cases.txt");
    let text = std::fs::read_to_string(path).expect("cases.txt is there");
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if line.starts_with(' ') {
            let case = cases.last_mut().expect("a case begins with a line that is not indented");
            detail(case, line.trim());
        } else {
            cases.push(header(line));
        }
    }
    cases
}

fn header(line: &str) -> Case {
    let (names, when) = line.split_once(": ").unwrap_or_else(|| panic!("no colon: {line}"));
    let (name, versions) = names.split_once(' ').unwrap_or_else(|| panic!("no versions: {line}"));
    let error = OfpError::from_name(name).unwrap_or_else(|| panic!("no such error: {line}"));
    let version = |text: &str| {
        let wanted = |v: &Version| text == format!("1.{}", v.wire() - 1);
        Version::ALL.into_iter().find(wanted).unwrap_or_else(|| panic!("no such version: {line}"))
    };
    let (first, last) = versions.split_once('-').unwrap_or((versions, versions));
    let (first, last) = (version(first), version(last));
    let versions = Version::ALL.into_iter().filter(|v| first <= *v && *v <= last).collect();
    Case { error, versions, when: when.to_owned(), outcome: Outcome::Sent(Vec::new()), peer: None }
}

fn detail(case: &mut Case, line: &str) {
    if let Some(why) = line.strip_prefix("never: ") {
        case.outcome = Outcome::Never(why.to_owned());
    } else if let Some(text) = line.strip_prefix("peer: ") {
        let (name, why) = text.split_once(": ").unwrap_or_else(|| panic!("no reason: {line}"));
        let error = (name != "none").then(|| OfpError::from_name(name).unwrap_or_else(|| panic!("no error: {line}")));
        case.peer = Some((error, why.to_owned()));
    } else if let Outcome::Sent(lines) = &mut case.outcome {
        lines.push(line.to_owned());
    }
}

/// Returns true for a line that needs the test's own switch.
pub(super) fn is_of_the_lab(line: &str) -> bool {
    ["time", "limit", "fail", "full", "hello"].contains(&line.split(' ').next().unwrap_or_default())
}

/// Parses a line for `version`.
pub(super) fn steps(line: &str, version: Version) -> Vec<Step> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "time" => vec![Step::Time(number(rest))],
        "limit" => vec![Step::Limit(number(rest))],
        "fail" => vec![Step::Fail],
        "full" if rest == "bundles" => vec![Step::FullBundles],
        "full" if rest == "meters" => vec![Step::FullMeters],
        "hello" => vec![Step::Hello(typed(version, 0, &bytes(rest)))],
        "repeat" => {
            let (n, rest) = rest.split_once(' ').expect("what to repeat");
            let one = |i: u64| steps(&rest.replace('#', &i.to_string()), version);
            (0..number(n)).flat_map(one).collect()
        }
        _ => vec![Step::Message(message(version, &line.replace("PAD", if version == V10 { "00000000" } else { "" })))],
    }
}

fn number(text: &str) -> u64 {
    let n = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    n.unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Parses bytes in hexadecimal; `N*HH` repeats a byte `N` times.
fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for word in text.split_whitespace().flat_map(|word| word.split('_')) {
        let (n, digits) = word.split_once('*').map_or((1, word), |(n, digits)| (number(n), digits));
        let pair = |i: usize| digits.get(i..i + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let one: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(pair).collect();
        let one = one.unwrap_or_else(|| panic!("not hexadecimal: {word}"));
        (0..n).for_each(|_| out.extend_from_slice(&one));
    }
    out
}

/// A message with its header.
fn typed(version: Version, ty: u8, body: &[u8]) -> Vec<u8> {
    let mut msg = vec![version.wire(), ty, 0, 0];
    msg.extend(XID.to_be_bytes());
    msg.extend_from_slice(body);
    set_length(&mut msg);
    msg
}

fn experimenter(version: Version, id: u32, subtype: u32, body: &[u8]) -> Vec<u8> {
    typed(version, 4, &[&id.to_be_bytes()[..], &subtype.to_be_bytes(), body].concat())
}

fn message(version: Version, line: &str) -> Vec<u8> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (first, after) = rest.split_once(' ').unwrap_or((rest, ""));
    match word {
        "raw" => bytes(&rest.replace("VV", &format!("{:02x}", version.wire()))),
        "type" => typed(version, number(first) as u8, &bytes(after)),
        "nicira" => experimenter(version, flow::field::NICIRA, number(first) as u32, &bytes(after)),
        "onf" => experimenter(version, flow::field::ONF, number(first) as u32, &bytes(after)),
        "vendor" => {
            let (subtype, after) = after.split_once(' ').unwrap_or((after, ""));
            experimenter(version, number(first) as u32, number(subtype) as u32, &bytes(after))
        }
        "multipart" => {
            let (flags, body) =
                match after.strip_prefix("flags=").map(|rest| rest.split_once(' ').unwrap_or((rest, ""))) {
                    Some((flags, body)) => (number(flags), body),
                    None => (0, after),
                };
            let pad: &[u8] = if version == V10 { &[] } else { &[0; 4] };
            let head = [(number(first) as u16).to_be_bytes(), (flags as u16).to_be_bytes()].concat();
            typed(version, if version == V10 { 16 } else { 18 }, &[&head[..], pad, &bytes(body)].concat())
        }
        "flow" => flow_mod(version, &Keys(rest)),
        "packet-out" => packet_out(version, &Keys(rest)),
        "bundle" => {
            let fields: Vec<u64> = rest.split(' ').map(number).collect();
            let [id, step, flags] = fields[..] else { panic!("{line}") };
            let body = [&(id as u32).to_be_bytes()[..], &(step as u16).to_be_bytes(), &(flags as u16).to_be_bytes()];
            finished(version, MessageKind::BundleControl, &body.concat())
        }
        "bundle-add" => {
            let (flags, inner) = after.split_once(' ').expect("what to add");
            let body = [&(number(first) as u32).to_be_bytes()[..], &[0; 2], &(number(flags) as u16).to_be_bytes()];
            finished(version, MessageKind::BundleAdd, &[body.concat(), message(version, inner)].concat())
        }
        "role" => {
            let roles = if version < V12 {
                ["equal", "primary", "secondary", ""]
            } else {
                ["", "equal", "primary", "secondary"]
            };
            let known = roles.iter().position(|role| *role == first);
            let (role, id) = (known.map_or_else(|| number(first) as u32, |n| n as u32), number(after));
            if version < V12 {
                return experimenter(version, flow::field::NICIRA, 10, &role.to_be_bytes());
            }
            typed(version, 24, &[&role.to_be_bytes()[..], &[0; 4], &id.to_be_bytes()].concat())
        }
        _ => texts(version, word, rest),
    }
}

/// A message of this kind.
fn finished(version: Version, kind: MessageKind, body: &[u8]) -> Vec<u8> {
    let mut msg = begin(version, XID, kind, false).unwrap_or_else(|| panic!("{kind:?} is not in {version}"));
    msg.put(body);
    finish(msg).expect("less than 64 KiB")
}

/// A change in the text of `ovs-ofctl`.
fn texts(version: Version, command: &str, text: &str) -> Vec<u8> {
    let names = &flow::NoNames;
    let message = match command {
        "add-flow" | "del-flows" => {
            let command = if command == "add-flow" { FlowModCommand::Add } else { FlowModCommand::Delete };
            let parsed = openflow::parse_flow(text, command, names).unwrap_or_else(|e| panic!("{text}: {e}"));
            let form = if version == V10 { Form::Nicira } else { Form::Standard };
            Message::FlowMod(form, Box::new(parsed.flow_mod))
        }
        "add-group" | "mod-group" | "insert-buckets" | "remove-buckets" => {
            let command = match command {
                "add-group" => GroupCommand::Add,
                "mod-group" => GroupCommand::Modify,
                "insert-buckets" => GroupCommand::InsertBucket,
                _ => GroupCommand::RemoveBucket,
            };
            let parsed = openflow::parse_group(text, command, names).unwrap_or_else(|e| panic!("{text}: {e}"));
            Message::GroupMod(parsed.group_mod)
        }
        "add-meter" | "mod-meter" => {
            let command = if command == "add-meter" { MeterCommand::Add } else { MeterCommand::Modify };
            let parsed = openflow::parse_meter(text, command).unwrap_or_else(|e| panic!("{text}: {e}"));
            Message::MeterMod(parsed.meter_mod)
        }
        _ => panic!("no such message: {command} {text}"),
    };
    encode(version, XID, &message)
}

/// Words of the form `KEY=VALUE`.
struct Keys<'a>(&'a str);

impl Keys<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.0.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    fn number(&self, key: &str, otherwise: u64) -> u64 {
        self.text(key).map_or(otherwise, number)
    }

    fn bytes(&self, key: &str) -> Vec<u8> {
        self.text(key).map(bytes).unwrap_or_default()
    }
}

/// Appends zeros up to a multiple of 8 bytes.
fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// `command`, `table`, `flags`, `priority`, `buffer`, `cookie_mask`; `match`: entries, of NXM in NXT_FLOW_MOD before OpenFlow
/// 1.2; `standard`: a match as it stands in the message, with its padding; `actions`: applied; `instructions`.
fn flow_mod(version: Version, keys: &Keys<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |n: u64, len: usize| out.extend_from_slice(&n.to_be_bytes()[8 - len..]);
    let (command, table) = (keys.number("command", 0), keys.number("table", 0));
    let nicira = version < V12 && keys.text("match").is_some() || keys.text("nicira").is_some();
    let entries = keys.bytes("match");
    if version == V10 || nicira {
        put(0, 8);
        put(table << 8 | command, 2);
    } else {
        put(0, 8);
        put(keys.number("cookie_mask", 0), 8);
        put(table, 1);
        put(command, 1);
    }
    put(keys.number("idle", 0), 2);
    put(0, 2);
    put(keys.number("priority", 32768), 2);
    put(keys.number("buffer", u32::MAX.into()), 4);
    if version == V10 || nicira {
        put(0xffff, 2);
    } else {
        put(u32::MAX.into(), 4);
        put(u32::MAX.into(), 4);
    }
    put(keys.number("flags", 0), 2);
    if nicira {
        put(entries.len() as u64, 2);
        put(0, 6);
        out.extend(padded(entries));
    } else if version >= V11 {
        put(0, 2);
        match keys.text("standard") {
            Some(text) => out.extend(bytes(text)),
            None if version == V11 => {
                let any = Message::FlowMod(Form::Standard, Box::new(FlowMod::new(FlowModCommand::Add)));
                out.extend_from_slice(&encode(V11, XID, &any)[48..]);
            }
            None => {
                let mut oxm = vec![0, 1];
                oxm.extend((entries.len() as u16 + 4).to_be_bytes());
                oxm.extend(entries);
                out.extend(padded(oxm));
            }
        }
    }
    match keys.bytes("actions") {
        actions if actions.is_empty() => out.extend(keys.bytes("instructions")),
        actions if version == V10 => out.extend(actions),
        actions => {
            out.extend([0, 4]);
            out.extend((actions.len() as u16 + 8).to_be_bytes());
            out.extend([0; 4]);
            out.extend(actions);
        }
    }
    if nicira {
        return experimenter(version, flow::field::NICIRA, 13, &out);
    }
    if version == V10 {
        // The match comes first: everything is wildcarded.
        let standard = keys.text("standard").map_or_else(|| [&[0, 0x3f, 0xff, 0xff][..], &[0; 36]].concat(), bytes);
        out.splice(0..0, standard);
    }
    typed(version, 14, &out)
}

/// `port`, `buffer`, `actions`, `data`; `match`: entries beside the port, in OpenFlow 1.5.
fn packet_out(version: Version, keys: &Keys<'_>) -> Vec<u8> {
    let (port, actions) = (keys.number("port", 0xffff_fffd) as u32, keys.bytes("actions"));
    let mut out = (keys.number("buffer", u32::MAX.into()) as u32).to_be_bytes().to_vec();
    let len = (keys.number("len", actions.len() as u64) as u16).to_be_bytes();
    if version == V10 {
        out.extend((port as u16).to_be_bytes());
        out.extend(len);
    } else if version < V15 {
        out.extend(port.to_be_bytes());
        out.extend(len);
        out.extend([0; 6]);
    } else {
        out.extend(len);
        out.extend([0; 2]);
        let mut entries = keys.bytes("match");
        if port != u32::MAX {
            entries.splice(0..0, [&[0x80, 0, 0, 4][..], &port.to_be_bytes()].concat());
        }
        let mut oxm = vec![0, 1];
        oxm.extend((entries.len() as u16 + 4).to_be_bytes());
        oxm.extend(entries);
        out.extend(padded(oxm));
    }
    out.extend(actions);
    out.extend(keys.text("data").map_or_else(|| vec![0; 60], bytes));
    typed(version, 13, &out)
}
