//! Connections to switches by name, and requests shared by commands.

use crate::error::{Exit, Result, fatal, strerror};
use crate::json;
use crate::names::Names;
use crate::options::{Context, Format};
use crate::protocol::{self, intersect, is_nxm, table_id_ext};
use crate::vconn::{self, OpenError, Vconn, xid_of};
use base::PortNo;
use openflow::message::{self, Options};
use openflow::multipart::{Reassembly, StatsReply, StatsRequest};
use openflow::print::{self, Style};
use openflow::types;
use openflow::{Message, Protocols, Version, Versions};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The socket of a bridge to connect to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Management.
    Mgmt,
    /// The snooping socket, a copy of the messages to and from the controller.
    Snoop,
}

/// Limit on the total size of a reply: a million flows of maximum length.
const ANSWER_BYTES_MAX: usize = 1 << 32;

/// Opens a connection to a bridge, socket or remote.
pub fn open(c: &Context, name: &str, target: Target) -> Result<Vconn> {
    open_in(c, c.versions, name, target)
}

/// Opens a connection with one of these versions.
pub fn open_in(c: &Context, versions: Versions, name: &str, target: Target) -> Result<Vconn> {
    if name.contains(':') {
        return vconn::open(name, versions, &c.tls).map_err(|e| match e {
            OpenError::Connect(e) => fatal(format!("connecting to {name} ({})", strerror(&e))),
            OpenError::Negotiate(why) => fatal(format!("{name}: failed to connect to socket ({why})")),
        });
    }
    let suffix = if target == Target::Snoop { "snoop" } else { "mgmt" };
    let socket = |name: &str| daemon::dirs::rundir().join(format!("{name}.{suffix}"));
    // The name may have the datapath type as prefix: TYPE@NAME.
    let bridge = name.split_once('@').map_or(name, |(_, bridge)| bridge);
    // A file or directory of this name is tried as a socket, which the kernel refuses.
    let beside = daemon::dirs::rundir().join(name);
    if fs::metadata(beside).is_ok_and(|m| !m.file_type().is_socket()) {
        return Err(fatal(format!("{name}: failed to open socket (Connection refused)")));
    }
    let candidates = [Path::new(name).to_path_buf(), socket(name), socket(bridge)];
    for path in candidates {
        let is_socket = fs::metadata(&path).is_ok_and(|m| m.file_type().is_socket());
        if !is_socket {
            continue;
        }
        return vconn::open(&format!("unix:{}", path.display()), versions, &c.tls).map_err(|e| match e {
            OpenError::Connect(e) => {
                fatal(format!("{}: failed to connect to socket ({})", path.display(), strerror(&e)))
            }
            OpenError::Negotiate(why) => fatal(format!("{name}: failed to connect to socket ({why})")),
        });
    }
    match unixctl::socket::connect(&socket(name)) {
        Err(e) if e.kind() == io::ErrorKind::InvalidFilename => {
            Err(fatal(format!("{name}: failed to open socket ({})", strerror(&e))))
        }
        _ => Err(fatal(format!("{name} is not a bridge or a socket"))),
    }
}

/// Buffered standard output. It ends the program silently when the reader is gone.
#[derive(Debug, Default)]
pub struct Out(Vec<u8>);

impl Out {
    /// Adds text.
    pub fn put(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
        if self.0.len() >= 1 << 16 {
            self.flush();
        }
    }

    /// Writes the buffered text.
    pub fn flush(&mut self) {
        cli::output::write_now(&self.0);
        self.0.clear();
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The statistics in a message; an error if it contains none or is malformed.
pub fn stats_of(msg: &[u8]) -> Result<(StatsReply, bool)> {
    match message::decode(msg) {
        Ok((_, _, Message::StatsReply { more, body })) => Ok((body, more)),
        _ => Err(bad_reply(msg)),
    }
}

/// The error for an invalid reply.
fn bad_reply(msg: &[u8]) -> Exit {
    fatal(format!("received bad reply: {}", print::print(msg, Style::plain(1))))
}

/// Requests statistics and collects all parts of the reply.
pub fn stats(conn: &mut Vconn, body: StatsRequest) -> Result<StatsReply> {
    let xid = conn.send_message(&Message::StatsRequest { more: false, body }, Options::default())?;
    let mut whole = Reassembly::new(ANSWER_BYTES_MAX);
    loop {
        let msg = conn.answer(xid)?;
        let (part, more) = stats_of(&msg)?;
        if let Some(all) = whole.push(part, more, msg.len()).map_err(|e| fatal(e.name()))? {
            return Ok(all);
        }
    }
}

/// Requests statistics and prints each part of the reply on arrival.
pub fn dump_stats(c: &Context, switch: &str, conn: &mut Vconn, body: StatsRequest) -> Result {
    let request = Message::StatsRequest { more: false, body };
    dump_all(c, switch, conn, &request)
}

/// Sends a request and prints all parts of its reply.
pub fn dump_all(c: &Context, switch: &str, conn: &mut Vconn, request: &Message) -> Result {
    let xid = conn.send_message(request, Options::default())?;
    let mut names = None;
    let mut out = Out::default();
    let mut document = None;
    loop {
        let msg = conn.answer(xid)?;
        if names.is_none() {
            names = Some(shown_names(c, switch)?);
        }
        let names = names.as_ref().unwrap_or(const { &None });
        if c.format == Format::Text {
            let text = print::print(&msg, style(c, names.as_ref(), c.verbosity + 1));
            // Only flows are coloured.
            out.put(&if text.contains("ST_FLOW reply") { c.paint(text) } else { text });
        } else {
            json::append(&mut document, decoded(&msg, names.as_ref())?);
        }
        match types::head(&msg) {
            Ok(head) if head.more => {}
            Err(_) if matches!(request, Message::StatsRequest { .. }) => {
                out.flush();
                return Err(bad_reply(&msg));
            }
            _ => {
                if let Some(document) = document {
                    json::put(c, &document);
                }
                return Ok(());
            }
        }
    }
}

/// A message as JSON.
pub fn decoded(msg: &[u8], names: Option<&Names>) -> Result<serde_json::Value> {
    let (version, _, message) = message::decode(msg).map_err(|e| fatal(format!("received bad reply: {e}")))?;
    json::of(&message, version, names)
}

/// Sends a request and prints its reply.
pub fn dump(c: &Context, switch: &str, conn: &mut Vconn, request: &Message) -> Result {
    dump_all(c, switch, conn, request)
}

/// The print style, with names if given.
pub fn style<'a>(c: &Context, names: Option<&'a Names>, verbosity: u8) -> Style<'a> {
    let _ = c;
    match names {
        Some(n) => Style { ports: n, version: Version::V10, verbosity },
        None => Style::plain(verbosity),
    }
}

/// Names of tables and ports for output, if names are shown.
pub fn shown_names(c: &Context, switch: &str) -> Result<Option<Names>> {
    if c.show_names() { Ok(Some(table_names(c, switch)?.merge(port_names(c, switch)?))) } else { Ok(None) }
}

/// Names of tables and ports that arguments may use, requested in the order of flow changes.
pub fn accepted_names(c: &Context, switch: &str) -> Result<Names> {
    if !c.accept_names() {
        return Ok(Names::default());
    }
    Ok(table_names(c, switch)?.merge(port_names(c, switch)?))
}

/// Like [`accepted_names`], requesting ports first, in the order of flow dumps.
pub fn accepted_names_ports_first(c: &Context, switch: &str) -> Result<Names> {
    if !c.accept_names() {
        return Ok(Names::default());
    }
    let ports = port_names(c, switch)?;
    Ok(table_names(c, switch)?.merge(ports))
}

/// The switch's port names.
pub fn port_names(c: &Context, switch: &str) -> Result<Names> {
    let mut conn = open(c, switch, Target::Mgmt)?;
    let mut names = Names::default();
    port_descs(&mut conn)?.iter().for_each(|p| names.add_port(p.port_no, &p.name));
    Ok(names)
}

/// The switch's table names.
pub fn table_names(c: &Context, switch: &str) -> Result<Names> {
    let mut conn = open(c, switch, Target::Mgmt)?;
    let mut names = Names::default();
    let request = if conn.version < Version::V13 { StatsRequest::Table } else { StatsRequest::TableFeatures(vec![]) };
    match stats(&mut conn, request)? {
        StatsReply::Table(tables) => {
            for t in &tables {
                names.add_table(t.table_id, &t.name);
            }
        }
        StatsReply::TableFeatures(tables) => tables.iter().for_each(|t| names.add_table(t.table_id, &t.name)),
        _ => {}
    }
    Ok(names)
}

/// The switch's ports.
pub fn port_descs(conn: &mut Vconn) -> Result<Vec<openflow::port::PortDesc>> {
    if conn.version < Version::V13 {
        let reply = conn.transact(&Message::FeaturesRequest)?;
        return match message::decode(&reply) {
            // The reply may have been truncated by the maximum message length: request the full list.
            Ok((_, _, Message::FeaturesReply(f))) if reply.len() < 65_000 => Ok(f.ports),
            Ok((_, _, Message::FeaturesReply(_))) => port_desc_stats(conn),
            _ => Err(fatal(format!("{}: received bad features reply", conn.name))),
        };
    }
    port_desc_stats(conn)
}

fn port_desc_stats(conn: &mut Vconn) -> Result<Vec<openflow::port::PortDesc>> {
    match stats(conn, StatsRequest::PortDesc(PortNo::ANY))? {
        StatsReply::PortDesc(ports) => Ok(ports),
        _ => Err(fatal(format!("{}: received bad features reply", conn.name))),
    }
}

/// The port with this number or name.
pub fn port_by_name(c: &Context, switch: &str, text: &str) -> Result<PortNo> {
    if let Some(port) = flow::text::parse_port(text, &flow::text::NoNames) {
        return Ok(port);
    }
    if c.accept_names()
        && let Some(port) = flow::text::parse_port(text, &port_names(c, switch)?)
    {
        return Ok(port);
    }
    Err(fatal(format!("{switch}: unknown port `{text}'")))
}

/// Sends a barrier and waits for its reply; returns the errors received before.
pub fn barrier(conn: &mut Vconn) -> Result<Vec<Vec<u8>>> {
    let xid = conn.send_message(&Message::BarrierRequest, Options::default())?;
    let mut others = Vec::new();
    loop {
        let msg = conn.recv_or_fail()?;
        if xid_of(&msg) == xid {
            return Ok(others);
        }
        if is_error(&msg) {
            others.push(msg);
        }
    }
}

/// Whether a message is an error report.
pub fn is_error(msg: &[u8]) -> bool {
    msg.get(1) == Some(&1)
}

/// Sends a message without a reply; an error is printed and ends the program.
pub fn transact_noreply(c: &Context, conn: &mut Vconn, message: &Message, options: Options) -> Result {
    conn.send_message(message, options)?;
    fail_on_errors(c, &barrier(conn)?)
}

/// Prints the first of these errors and exits, if there are any.
pub fn fail_on_errors(c: &Context, errors: &[Vec<u8>]) -> Result {
    match errors.first() {
        Some(e) => {
            eprint!("{}", print::print(e, Style::plain(c.verbosity + 2)));
            Err(Exit::Code(1))
        }
        None => Ok(()),
    }
}

/// Switches a connection from flow format `from` to `want`. Returns whether it succeeded; only Nicira's formats can
/// fail.
pub fn set_protocol(conn: &mut Vconn, from: &mut Protocols, want: Protocols) -> Result<bool> {
    if *from == want {
        return Ok(true);
    }
    if conn.version != Version::V10 || !intersect(Protocols::OF10_ANY | Protocols::NXM_ANY, want) {
        return Ok(false);
    }
    if is_nxm(*from) != is_nxm(want) {
        let format = if is_nxm(want) { 2 } else { 0 };
        if !try_noreply(conn, &Message::SetFlowFormat(format))? {
            return Ok(false);
        }
        let tid = table_id_ext(*from);
        *from = match (is_nxm(want), tid) {
            (true, true) => Protocols::OF10_NXM_TID,
            (true, false) => Protocols::OF10_NXM,
            (false, true) => Protocols::OF10_STD_TID,
            (false, false) => Protocols::OF10_STD,
        };
    }
    if table_id_ext(*from) != table_id_ext(want) {
        if !try_noreply(conn, &Message::FlowModTableId(table_id_ext(want)))? {
            return Ok(false);
        }
        *from = want;
    }
    Ok(true)
}

fn try_noreply(conn: &mut Vconn, message: &Message) -> Result<bool> {
    conn.send_message(message, Options::default())?;
    Ok(barrier(conn)?.is_empty())
}

/// Opens a connection for flow changes that can be expressed in any of `usable`; returns the chosen format.
pub fn open_for_flow_mods(c: &Context, switch: &str, usable: Protocols) -> Result<(Vconn, Protocols)> {
    let usable = if c.bundle { usable & Protocols::OF13_UP } else { usable };
    let allowed = usable & c.protocols;
    if allowed.is_empty() {
        return Err(not_allowed(usable, c.protocols));
    }
    let mut conn = open(c, switch, Target::Mgmt)?;
    let mut current = protocol::initial(conn.version);
    if intersect(allowed, current) {
        return Ok((conn, current));
    }
    for want in allowed.iter() {
        if set_protocol(&mut conn, &mut current, want)? {
            return Ok((conn, want));
        }
    }
    Err(fatal(format!("switch does not support any of the usable flow formats ({usable})")))
}

/// Switches a connection to the best flow format for a dump.
pub fn set_protocol_for_dump(c: &Context, conn: &mut Vconn, usable: Protocols) -> Result<Protocols> {
    let allowed = usable & c.protocols;
    let mut current = protocol::initial(conn.version);
    if conn.version > Version::V10 && intersect(allowed, current) {
        return Ok(current);
    }
    for want in [Protocols::OF10_NXM, Protocols::OF10_STD] {
        if intersect(allowed, want) && set_protocol(conn, &mut current, want)? {
            return Ok(want);
        }
    }
    if allowed.is_empty() {
        return Err(not_allowed(usable, c.protocols));
    }
    Err(fatal(format!("switch does not support any of the usable flow formats ({usable})")))
}

/// The error if no flow format is left.
pub fn not_allowed(usable: Protocols, allowed: Protocols) -> Exit {
    fatal(format!("none of the usable flow formats ({usable}) is among the allowed flow formats ({allowed})"))
}
