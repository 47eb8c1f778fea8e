//! Every error in every version: what causes it, or why nothing does (`cases.txt`).
//!
//! Each case runs on a connection of its own to a switch of its own; the test compares the answers with the table, and
//! the state of the switch before and after. The table of docs/openflow.md is generated from the same cases:
//! `UPDATE_DOCS=1 cargo test -p ofproto --lib errors` writes it.

mod device;
mod mutations;
mod peer;
mod script;

use super::connections::{listening, talk};
use super::*;
use crate::TableSettings;
use dpif::Meters;
use openflow::error::ErrorNumber;
use openflow::types::{HEADER_LEN, xid};
use script::{Case, Outcome, Step, XID, cases, steps};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The state of a bridge that all connections see, and the state of this connection.
pub(super) fn state_of(bridge: &Arc<Ofproto>, peer: &Peer) -> Vec<u8> {
    let onlooker = Client::new(bridge, PeerKind::Service, Version::V15);
    let mut all = format!("{:?} {:?}", peer.state.lock(), bridge.table_configs).into_bytes();
    let any = openflow::group::GROUP_ANY;
    let bodies = [
        StatsRequest::Flow(Default::default()),
        StatsRequest::PortDesc(PortNo::ANY),
        StatsRequest::Group(any),
        StatsRequest::GroupDesc(any),
        StatsRequest::Meter(openflow::meter::METER_ALL),
        StatsRequest::MeterConfig(openflow::meter::METER_ALL),
    ];
    let requests = bodies.into_iter().map(|body| Message::StatsRequest { more: false, body });
    for request in requests.chain([Message::TlvTableRequest, Message::GetConfigRequest, Message::FeaturesRequest]) {
        handle(bridge, &onlooker.peer, &encode(Version::V15, 1, &request));
        let mut outgoing = onlooker.outgoing.lock();
        while let Some(bytes) = outgoing.try_next() {
            outgoing.sent(bytes.len());
            all.extend(bytes);
        }
    }
    bridge.connections().remove(&onlooker.peer);
    all
}

/// The errors among these messages, with their xids.
pub(super) fn errors_in(messages: &[Vec<u8>]) -> Vec<(u32, ErrorNumber)> {
    let number = |message: &Vec<u8>| ErrorNumber::decode(&message[HEADER_LEN..]).expect("an error").0;
    messages.iter().filter(|message| message[1] == 1).map(|message| (xid(message), number(message))).collect()
}

/// The name of an error's number in a version.
fn name(version: Version, number: ErrorNumber) -> String {
    OfpError::from_number(version, number).map_or_else(|| format!("{number:?}"), |error| error.to_string())
}

/// Runs a case. Returns the answer to its last message, and whether that changed anything.
fn play(lines: &[String], version: Version) -> Result<ErrorNumber, String> {
    let mut lab = Lab::new();
    let bridge = lab.bridge("br", 2);
    let client = Client::new(&bridge, PeerKind::Service, version);
    let mac = bridge.port(PortNo(1)).expect("there").spec.mac.to_string().replace(':', "");
    let mut steps: Vec<Step> = lines.iter().flat_map(|line| steps(&line.replace("MAC", &mac), version)).collect();
    let last = steps.pop().ok_or("nothing is sent")?;
    for step in steps {
        let errors = errors_in(&take(&lab, &client, step));
        if let [(_, number), ..] = errors[..] {
            return Err(format!("{} before the last message", name(version, number)));
        }
    }
    let before = state_of(&bridge, &client.peer);
    let xid = match &last {
        Step::Message(bytes) => xid(bytes),
        Step::Hello(_) => 0,
        _ => XID,
    };
    let errors = errors_in(&take(&lab, &client, last));
    if state_of(&bridge, &client.peer) != before {
        return Err(format!("it changed something, with {errors:?}"));
    }
    if !matches!(client.send(&Message::EchoRequest(vec![7]))[..], [Message::EchoReply(_)]) {
        return Err("the connection does not go on".into());
    }
    match errors[..] {
        [] => Err("no error".into()),
        // The error of a message in a bundle precedes that of the bundle.
        [.., (answered, number)] if answered == xid => Ok(number),
        _ => Err(format!("an answer to something else: {errors:x?}")),
    }
}

/// Executes a step; returns the answers until then.
fn take(lab: &Lab, client: &Client, step: Step) -> Vec<Vec<u8>> {
    match step {
        Step::Message(bytes) => handle(&client.bridge, &client.peer, &bytes),
        Step::Time(ms) => {
            lab.clock.warp(ms);
            lab.switch.housekeeping();
        }
        Step::Limit(max_flows) => {
            let settings = TableSettings { max_flows: Some(max_flows as u32), ..TableSettings::default() };
            client.bridge.configure_tables(&BTreeMap::from([(0, settings)]));
        }
        Step::FullBundles => client.peer.fill_bundles(),
        Step::FullMeters => {
            let meter = dpif::MeterConfig { unit: dpif::MeterUnit::Kbps, bands: Vec::new() };
            while lab.dp.meter_add(&meter).is_ok() {}
        }
        Step::Fail => {
            let stubborn = |mut port: PortSpec| {
                port.device = port.device.map(|inner| Arc::new(device::FailingDevice(inner)) as Arc<dyn Netdev>);
                port
            };
            set_ports(&client.bridge, client.bridge.ports().into_iter().map(|port| stubborn(port.spec)).collect());
        }
        Step::Hello(bytes) => return greet(client, &bytes),
    }
    let mut all = Vec::new();
    let mut outgoing = client.outgoing.lock();
    while let Some(bytes) = outgoing.try_next() {
        outgoing.sent(bytes.len());
        all.push(bytes);
    }
    all
}

/// The messages that a connection receives after our own HELLO if it begins with `bytes`.
fn greet(client: &Client, bytes: &[u8]) -> Vec<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("starts");
    let answer = runtime.block_on(talk(&client.bridge, &listening(&[client.version]), bytes, usize::MAX));
    let mut framer = openflow::stream::Framer::default();
    framer.push(&answer);
    let mut all = Vec::new();
    while let Some(message) = framer.next_message().expect("whole messages") {
        all.push(message.to_vec());
    }
    all
}

#[test]
fn every_error_is_sent_in_its_case_and_changes_nothing() {
    let mut wrong = Vec::new();
    let mut tried = 0;
    for Case { error, versions, when, outcome, .. } in cases() {
        let Outcome::Sent(lines) = outcome else { continue };
        for version in versions {
            tried += 1;
            // An error without a number in the version is reported as the error for that case.
            let expected = error.number(version).ok_or("no number").map(|number| name(version, number));
            let answer = play(&lines, version).map(|number| name(version, number));
            if answer.as_deref().ok() != expected.as_deref().ok() || answer.is_err() {
                wrong.push(format!("{version} {error} ({when}): {answer:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "of {tried} cases {} go wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_error_of_every_version_has_a_case_or_a_reason() {
    let cases = cases();
    let mut missing = Vec::new();
    for error in OfpError::all() {
        for version in Version::ALL {
            let Some(number) = error.number(version) else { continue };
            // A few errors share a number in versions that do not distinguish them.
            let covers = |case: &&Case| case.versions.contains(&version) && case.error.number(version) == Some(number);
            if !cases.iter().any(|case| covers(&case)) {
                missing.push(format!("{error} {version}"));
            }
        }
    }
    for case in &cases {
        for version in case.versions.iter().filter(|version| case.error.number(**version).is_none()) {
            missing.push(format!("{} has no number in {version}", case.error));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Formats versions as a range.
fn range(versions: &[Version]) -> String {
    match versions {
        [first, .., last] => format!("{first} to {last}"),
        [only] => only.to_string(),
        [] => String::new(),
    }
}

const BEGIN: &str = "<!-- errors: begin -->\n";
const END: &str = "<!-- errors: end -->\n";

#[test]
fn the_errors_of_the_document_are_those_of_the_cases() {
    let mut table = String::from("| error | versions | sent for |\n|---|---|---|\n");
    let mut cases = cases();
    cases.sort_by_key(|case| case.error as usize);
    for Case { error, versions, when, outcome, peer } in &cases {
        let said = match outcome {
            Outcome::Sent(_) => when.clone(),
            Outcome::Never(why) => format!("never ({when}): {why}"),
        };
        let _ = write!(table, "| `{error}` | {} | {said}", range(versions));
        if let Some((other, why)) = peer {
            let other = other.map_or_else(|| "no error".into(), |other| format!("`{other}`"));
            let _ = write!(table, "; Open vSwitch 4.0 answers {other}: {why}");
        }
        table.push_str(" |\n");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openflow.md");
    let text = std::fs::read_to_string(&path).expect("docs/openflow.md is there");
    let (head, rest) = text.split_once(BEGIN).expect("the table begins somewhere");
    let (old, tail) = rest.split_once(END).expect("the table ends somewhere");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, [head, BEGIN, &table, END, tail].concat()).expect("it can be written");
    } else {
        assert!(old == table, "docs/openflow.md is out of date: UPDATE_DOCS=1 cargo test -p ofproto --lib errors");
    }
}
