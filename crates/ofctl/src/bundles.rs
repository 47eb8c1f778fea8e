//! Atomic changes: OpenFlow bundles (in OpenFlow 1.3 by extension 230).

use crate::error::{Result, fatal};
use crate::flow_text::{lines, normalize, read_file};
use crate::names::Names;
use crate::options::Context;
use crate::packet_out;
use crate::switch::{accepted_names, is_error, open_for_flow_mods};
use crate::vconn::{Vconn, io_error, next_xid, xid_of};
use openflow::bundle::{self, BundleControl, BundleStep, flag};
use openflow::message::{self, Options, encode_with};
use openflow::print::{self, Style};
use openflow::switch::{ErrorReport, ReportedError};
use openflow::{Form, Message, Protocols, parse_flow_line, parse_group_line};
use std::collections::HashMap;

const FLAGS: u16 = flag::ATOMIC | flag::ORDERED;

/// Each connection sends one bundle only.
const BUNDLE_ID: u32 = 0;

/// Sends `messages` in an ordered, atomic bundle and commits it; prints the errors that the switch reports.
pub(crate) fn transact(c: &Context, conn: &mut Vconn, messages: &[Vec<u8>]) -> Result {
    let mut errors = Vec::new();
    let mut done = step(conn, BundleStep::Open, &mut errors)?;
    if done {
        for message in messages {
            let add = bundle::wrap(conn.version, BUNDLE_ID, FLAGS, message);
            conn.send(&add).map_err(|e| io_error(&e))?;
            // A switch with many pending errors stops reading until some of them are received.
            while conn.is_flushed()
                && let Some(msg) = conn.recv_ready().map_err(|e| io_error(&e))?
            {
                errors.extend(is_error(&msg).then_some(msg));
            }
        }
        errors.extend(crate::switch::barrier(conn)?);
        let last = if errors.is_empty() { BundleStep::Commit } else { BundleStep::Discard };
        done = step(conn, last, &mut errors)? && last == BundleStep::Commit;
    }
    if !errors.is_empty() {
        let by_xid: HashMap<u32, &Vec<u8>> = messages.iter().map(|m| (xid_of(m), m)).collect();
        errors.iter().for_each(|error| print_error(c, error, &by_xid));
    }
    if done && errors.is_empty() { Ok(()) } else { Err(fatal(format!("talking to {} (Protocol error)", conn.name))) }
}

/// Sends a bundle control message and collects errors until its reply. Returns whether the step succeeded.
fn step(conn: &mut Vconn, step: BundleStep, errors: &mut Vec<Vec<u8>>) -> Result<bool> {
    let control = BundleControl { bundle_id: BUNDLE_ID, ty: step.wire(false), flags: FLAGS };
    let xid = conn.send_message(&Message::BundleControl(control), Options::default())?;
    loop {
        let msg = conn.recv_or_fail()?;
        let error = is_error(&msg);
        let answer = xid_of(&msg) == xid;
        if error {
            errors.push(msg);
        }
        if answer {
            return Ok(!error);
        }
    }
}

/// Prints an error, with the whole message that it refers to if that is one of `messages`.
fn print_error(c: &Context, error: &[u8], messages: &HashMap<u32, &Vec<u8>>) {
    let Ok((_, xid, Message::Error(ErrorReport { error: ReportedError::Known(known), data }))) = message::decode(error)
    else {
        eprintln!("***decode error***");
        return;
    };
    let request = messages.get(&xid).copied().unwrap_or(&data);
    eprint!("Error {} for: {}", known.name(), print::print(request, Style::plain(c.verbosity + 1)));
}

/// Executes a file of flow and group changes and packet-outs as one bundle.
pub fn bundle(c: &Context, a: &[String]) -> Result {
    let file = &a[1];
    let names = accepted_names(c, &a[0])?;
    let text = read_file(file)?;
    let mut usable = Protocols::ANY;
    let mut messages = Vec::new();
    for (n, line) in lines(&text) {
        let (message, formats) = parse_line(line, &names).map_err(|e| fatal(format!("{file}:{n}: {e}")))?;
        usable = usable & formats;
        messages.push(message);
    }
    let c = &c.with_bundles();
    let (mut conn, _) = open_for_flow_mods(c, &a[0], usable)?;
    let encode = |message: &Message| encode_with(conn.version, next_xid(), message, Options::default());
    let messages: Vec<Vec<u8>> = messages.iter().map(encode).collect();
    transact(c, &mut conn, &messages)
}

/// Parses one line: a keyword and its argument.
fn parse_line(line: &str, names: &Names) -> std::result::Result<(Message, Protocols), String> {
    let (word, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let rest = rest.trim_start();
    match word {
        "flow" => {
            let mut flow = parse_flow_line(rest, names).map_err(|e| e.to_string())?;
            normalize(&mut flow);
            Ok((Message::FlowMod(Form::Standard, Box::new(flow.flow_mod)), flow.usable))
        }
        "group" => {
            let group = parse_group_line(rest, names).map_err(|e| e.to_string())?;
            Ok((Message::GroupMod(group.group_mod), group.usable))
        }
        "packet-out" => Ok((Message::PacketOut(packet_out::parse(rest, names)?), Protocols::ANY)),
        other => Err(format!("Unsupported bundle message type: {other}")),
    }
}
