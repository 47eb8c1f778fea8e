//! Commands that change flows.
//!
//! Flow modifications are pipelined, with a barrier after each window, so that the switch's speed determines the time
//! of a hundred thousand. Transaction ids are counted as if a barrier followed each.

use crate::bundles;
use crate::error::{Exit, Result, fatal};
use crate::flow_text::{lines, normalize, read_file};
use crate::names::Names;
use crate::options::Context;
use crate::protocol::{self, intersect, is_nxm, table_id_ext};
use crate::switch::{Out, accepted_names, barrier, fail_on_errors, open_for_flow_mods};
use crate::vconn::{Vconn, io_error, next_xid};
use flow::text::NoNames;
use openflow::message::{Options, encode_flow_mod};
use openflow::print::hex_dump;
use openflow::types::set_xid;
use openflow::{FlowMod, FlowModCommand as Cmd, Form, ParsedFlow, Protocols, Version, parse_flow, parse_flow_line};

/// Bytes of flow modifications between two barriers: less than sockets buffer, so that neither side waits for the
/// other.
const WINDOW_BYTES: usize = 1 << 16;

/// Sends flow modifications one by one, or all in a bundle.
pub struct Sender<'a> {
    c: &'a Context,
    conn: Vconn,
    protocol: Protocols,
    bytes: usize,
    /// The messages of the bundle.
    kept: Vec<Vec<u8>>,
    /// Prints the messages that are sent at high verbosity.
    shows: bool,
}

impl<'a> Sender<'a> {
    /// Sends on this connection, in this flow format.
    pub fn new(c: &'a Context, conn: Vconn, protocol: Protocols) -> Self {
        Self { c, conn, protocol, bytes: 0, kept: Vec::new(), shows: false }
    }

    /// Does the same, and prints the messages that are sent outside of bundles if the verbosity asks for it.
    fn showing(c: &'a Context, conn: Vconn, protocol: Protocols) -> Self {
        Self { shows: true, ..Self::new(c, conn, protocol) }
    }

    /// Queues one.
    pub fn send(&mut self, fm: &FlowMod) -> Result {
        self.send_encoded(encode(fm, self.conn.version, self.protocol))
    }

    /// Queues a message that [`encode`] made for this connection and format.
    fn send_encoded(&mut self, mut msg: Vec<u8>) -> Result {
        if msg.is_empty() {
            return Err(fatal("flow modification is too long for OpenFlow"));
        }
        set_xid(&mut msg, next_xid());
        if self.c.bundle {
            self.kept.push(msg);
            return Ok(());
        }
        if self.shows {
            Out::default().put(&sent_message(&msg, self.c.verbosity));
        }
        self.conn.send(&msg).map_err(|e| io_error(&e))?;
        self.bytes += msg.len();
        if self.bytes >= WINDOW_BYTES {
            return self.wait();
        }
        // The transaction id of the barrier that was not sent.
        next_xid();
        Ok(())
    }

    fn wait(&mut self) -> Result {
        self.bytes = 0;
        let errors = barrier(&mut self.conn)?;
        fail_on_errors(self.c, &errors)
    }

    /// Waits until all modifications are done.
    pub fn finish(mut self) -> Result {
        if self.c.bundle {
            return bundles::transact(self.c, &mut self.conn, &self.kept);
        }
        if self.bytes > 0 { self.wait() } else { Ok(()) }
    }
}

/// Returns the text of a message that is sent: a hex dump at verbosity 5, one number above, nothing below.
fn sent_message(msg: &[u8], verbosity: u8) -> String {
    let mut out = String::new();
    match verbosity {
        0..5 => {}
        5 => hex_dump(msg, 0, &mut out),
        _ => {
            let digits: String = msg.iter().map(|byte| format!("{byte:02x}")).collect();
            out = format!("0x{}\n", digits.trim_start_matches('0'));
        }
    }
    out
}

/// Encodes a modification, without its transaction id.
fn encode(fm: &FlowMod, version: Version, protocol: Protocols) -> Vec<u8> {
    let form = if is_nxm(protocol) { Form::Nicira } else { Form::Standard };
    encode_flow_mod(version, 0, form, fm, Options { flow_mod_table_id: table_id_ext(protocol), ..Options::default() })
}

/// Changes flows as an argument or a file describes.
fn change(c: &Context, a: &[String], command: Cmd) -> Result {
    if a.get(1).is_some_and(|f| f == "-") {
        return change_by_file(c, &a[0], "-", Some(command));
    }
    let names = accepted_names(c, &a[0])?;
    let mut flow = parse_flow(a.get(1).map_or("", String::as_str), command, &names).map_err(fatal)?;
    normalize(&mut flow);
    let (conn, protocol) = open_for_flow_mods(c, &a[0], flow.usable)?;
    let mut sender = Sender::showing(c, conn, protocol);
    sender.send(&flow.flow_mod)?;
    sender.finish()
}

fn parse_line(line: &str, command: Option<Cmd>, names: &Names) -> std::result::Result<ParsedFlow, String> {
    match command {
        Some(command) => parse_flow(line, command, names).map_err(|e| e.to_string()),
        None => parse_flow_line(line, names).map_err(|e| e.to_string()),
    }
}

fn at_line(file: &str, n: usize, what: &str) -> Exit {
    fatal(format!("{file}:{n}: {what}"))
}

/// Changes flows as a file describes, one per line; with `command` `None`, lines may name their command.
fn change_by_file(c: &Context, switch: &str, file: &str, command: Option<Cmd>) -> Result {
    let names = accepted_names(c, switch)?;
    let text = read_file(file)?;
    // Parse all lines before any change. The final format is only known after that, so the lines are encoded in the
    // most likely format and parsed again if it turns out different. This takes less memory than keeping them as
    // values, which are far larger than their text.
    let likely = c.versions.newest().map(|version| (version, protocol::initial(version)));
    let mut ahead = Vec::new();
    let mut usable = Protocols::ANY;
    for (n, line) in lines(&text) {
        let mut flow = parse_line(line, command, &names).map_err(|e| at_line(file, n, &e))?;
        normalize(&mut flow);
        usable = usable & flow.usable;
        match likely {
            Some((version, format)) if intersect(usable, format) => ahead.push(encode(&flow.flow_mod, version, format)),
            _ => ahead.clear(),
        }
    }
    let (conn, protocol) = open_for_flow_mods(c, switch, usable)?;
    let is_ahead = likely == Some((conn.version, protocol));
    let mut sender = Sender::showing(c, conn, protocol);
    if is_ahead {
        ahead.into_iter().try_for_each(|msg| sender.send_encoded(msg))?;
        return sender.finish();
    }
    drop(ahead);
    for (n, line) in lines(&text) {
        let mut flow = parse_line(line, command, &names).map_err(|e| at_line(file, n, &e))?;
        let _ = flow.flow_mod.matching.normalize(&NoNames);
        sender.send(&flow.flow_mod)?;
    }
    sender.finish()
}

/// Adds a flow.
pub fn add_flow(c: &Context, a: &[String]) -> Result {
    change(c, a, Cmd::Add)
}

/// Adds the flows of a file.
pub fn add_flows(c: &Context, a: &[String]) -> Result {
    change_by_file(c, &a[0], &a[1], None)
}

/// Changes the actions of flows.
pub fn mod_flows(c: &Context, a: &[String]) -> Result {
    change(c, a, if c.strict { Cmd::ModifyStrict } else { Cmd::Modify })
}

/// Deletes flows.
pub fn del_flows(c: &Context, a: &[String]) -> Result {
    change(c, a, if c.strict { Cmd::DeleteStrict } else { Cmd::Delete })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_verbosity_shows_the_messages_sent() {
        let msg = [5, 0x0e, 0, 8, 0, 0, 0, 6];
        assert_eq!(sent_message(&msg, 4), "");
        assert_eq!(
            sent_message(&msg, 5),
            "00000000  05 0e 00 08 00 00 00 06-                        |........        |\n"
        );
        for verbosity in [6, 7, 9] {
            assert_eq!(sent_message(&msg, verbosity), "0x50e000800000006\n");
        }
    }
}
