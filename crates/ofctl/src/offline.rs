//! Commands without a switch: print messages and flows from arguments and files.

use crate::error::{Result, fatal, strerror};
use crate::flow_text::{lines, log_change, normalize, read_file};
use crate::names::Names;
use crate::options::Context;
use crate::packet_out::hex;
use crate::protocol::{is_nxm, table_id_ext};
use crate::switch::Out;
use crate::vconn::next_xid;
use openflow::message::{Options, encode_with};
use openflow::print::{Style, print};
use openflow::{FlowModCommand as Cmd, Form, Message, ParsedFlow, parse_flow};
use std::fs::File;
use std::io::{self, BufRead, Read};

/// Prints a message given in hexadecimal, by the argument or, for `-`, by the first line of standard input.
pub fn ofp_print(c: &Context, a: &[String]) -> Result {
    let mut digits = a[0].clone();
    if digits == "-" {
        digits.clear();
        match io::stdin().lock().read_line(&mut digits) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return Err(fatal("Failed to read stdin")),
        }
    }
    let bytes = hex(&digits).ok_or_else(|| fatal("trailing garbage following hex bytes"))?;
    let verbosity = a.get(1).map_or(2, |v| v.parse().unwrap_or(0));
    Out::default().put(&c.paint(print(&bytes, Style::plain(verbosity))));
    Ok(())
}

/// Prints the messages of a file that contains them in sequence.
pub fn ofp_parse(c: &Context, a: &[String]) -> Result {
    let name = if a[0] == "-" { "stdin" } else { &a[0] };
    let mut input: Box<dyn Read> = if a[0] == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&a[0]).map_err(|e| fatal(format!("{name}: open ({})", strerror(&e))))?)
    };
    let mut out = Out::default();
    let mut fill = |buf: &mut [u8]| -> Result<usize> {
        let mut n = 0;
        while n < buf.len() {
            match input.read(&mut buf[n..]) {
                Ok(0) => break,
                Ok(read) => n += read,
                Err(e) => return Err(fatal(format!("{name}: read ({})", strerror(&e)))),
            }
        }
        Ok(n)
    };
    loop {
        let mut header = [0; 8];
        match fill(&mut header)? {
            0 => return Ok(()),
            8 => {}
            _ => return Err(fatal(format!("{name}: unexpected end of file mid-message"))),
        }
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if len < 8 {
            return Err(fatal(format!("{name}: {len}-byte message is too short for OpenFlow")));
        }
        let mut msg = header.to_vec();
        msg.resize(len, 0);
        if fill(&mut msg[8..])? < len - 8 {
            return Err(fatal(format!("{name}: unexpected end of file mid-message")));
        }
        out.put(&c.paint(print(&msg, Style::plain(c.verbosity.saturating_add(2)))));
    }
}

fn flow_mod_bytes(c: &Context, parsed: ParsedFlow, out: &mut Out) -> Result {
    let usable = parsed.usable & c.protocols;
    out.put(&format!("usable protocols: {}\n", parsed.usable));
    let protocol = usable.first().ok_or_else(|| fatal("no usable protocol"))?;
    out.put(&format!("chosen protocol: {protocol}\n"));
    flow_mod_in(c, parsed, protocol, out)
}

fn flow_mod_in(c: &Context, parsed: ParsedFlow, protocol: openflow::Protocols, out: &mut Out) -> Result {
    let form = if is_nxm(protocol) { Form::Nicira } else { Form::Standard };
    let version = protocol.version().unwrap_or(openflow::Version::V10);
    let options = Options { flow_mod_table_id: table_id_ext(protocol), ..Options::default() };
    let msg = encode_with(version, next_xid(), &Message::FlowMod(form, Box::new(parsed.flow_mod)), options);
    if msg.is_empty() {
        return Err(fatal("flow modification is too long for OpenFlow"));
    }
    out.put(&c.paint(print(&msg, Style::plain(c.verbosity))));
    Ok(())
}

/// Logs the fields that a match loses, if the message is one of OpenFlow 1.0 with the standard match: the reader of such a
/// message normalises the match as well, and logs the same again.
fn log_normalized(c: &Context, parsed: &ParsedFlow, usable: openflow::Protocols) {
    let chosen = (usable & c.protocols).first();
    if chosen.is_some_and(|p| !is_nxm(p) && p.version() == Some(openflow::Version::V10)) {
        parsed.normalized.iter().for_each(log_change);
    }
}

/// Prints the message that adds a flow.
pub fn parse_flow_command(c: &Context, a: &[String]) -> Result {
    let mut parsed = parse_flow(&a[0], Cmd::Add, &Names::default()).map_err(fatal)?;
    log_normalized(c, &parsed, parsed.usable);
    normalize(&mut parsed);
    flow_mod_bytes(c, parsed, &mut Out::default())
}

/// Prints the messages that add the flows of a file.
pub fn parse_flows_command(c: &Context, a: &[String]) -> Result {
    let text = read_file(&a[0])?;
    let mut all = Vec::new();
    let mut usable = openflow::Protocols::ANY;
    for (n, line) in lines(&text) {
        let mut parsed =
            parse_flow(line, Cmd::Add, &Names::default()).map_err(|e| fatal(format!("{}:{n}: {e}", a[0])))?;
        normalize(&mut parsed);
        usable = usable & parsed.usable;
        all.push(parsed);
    }
    let mut out = Out::default();
    out.put(&format!("usable protocols: {usable}\n"));
    let protocol = (usable & c.protocols).first().ok_or_else(|| fatal("no usable protocol"))?;
    out.put(&format!("chosen protocol: {protocol}\n"));
    all.into_iter().try_for_each(|parsed| flow_mod_in(c, parsed, protocol, &mut out))
}
