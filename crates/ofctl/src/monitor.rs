//! `monitor` and `snoop`: print all messages of a switch on standard error, with a control socket.

use crate::error::{Exit, Result, fatal, strerror};
use crate::names::Names;
use crate::options::Context;
use crate::packet_out::hex;
use crate::protocol::version_list;
use crate::query::config;
use crate::switch::{
    Target, accepted_names, barrier, fail_on_errors, open, open_in, shown_names, style, transact_noreply,
};
use crate::vconn::{Vconn, Writer, next_xid, xid_of};
use openflow::message::{self, Options};
use openflow::monitor::{FlowMonitorRequest, MonitorCommand};
use openflow::multipart::StatsRequest;
use openflow::packet::PacketInFormat;
use openflow::print::{Style, print};
use openflow::{FlowTextError, Message, Version, Versions, parse_flow_filter};
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use unixctl::{Call, Commands};

/// State shared by the control socket and the reader.
#[derive(Default)]
struct State {
    writer: Option<Writer>,
    /// The version of the connection.
    version: Option<Version>,
    blocked: bool,
    barriers: Vec<(u32, Call)>,
    output: Option<File>,
}

impl State {
    fn version(&self) -> Version {
        self.version.unwrap_or(Version::V10)
    }
}

#[derive(Default)]
struct Session {
    state: Mutex<State>,
    changed: Condvar,
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes text to the configured output.
    fn put(&self, text: &str) {
        match &mut self.lock().output {
            Some(file) => {
                let _ = file.write_all(text.as_bytes());
            }
            None => eprint!("{text}"),
        }
    }
}

/// Prints all messages that a switch sends.
pub fn monitor(c: &Context, a: &[String]) -> Result {
    let started = start(c)?;
    let mut versions = c.versions;
    if a[1..].iter().any(|arg| arg == "invalid_ttl") {
        let with_it = Versions::of(&[Version::V10, Version::V11, Version::V12]);
        versions = Versions(versions.0 & with_it.0);
        if versions.0 == 0 {
            let list = version_list(with_it);
            let why = format!("invalid_ttl requires one of the OpenFlow versions {list} but none is enabled (use -O)");
            return Err(fatal(why));
        }
    }
    let mut conn = open_in(c, versions, &a[0], Target::Mgmt)?;
    let (mut watches, mut answers) = (0, Answers { echo: true, resume: false });
    for arg in &a[1..] {
        if arg.starts_with(|ch: char| ch.is_ascii_digit()) {
            let mut current = config(&mut conn)?;
            current.miss_send_len = arg.parse().map_err(|_| fatal(format!("{arg}: invalid miss_len")))?;
            transact_noreply(c, &mut conn, &Message::SetConfig(current), Options::default())?;
        } else if arg == "invalid_ttl" {
            set_invalid_ttl(c, &mut conn)?;
        } else if arg == "resume" {
            // Otherwise the switch sends no packets to a connection like this.
            let mut current = config(&mut conn)?;
            current.miss_send_len = u16::MAX;
            transact_noreply(c, &mut conn, &Message::SetConfig(current), Options::default())?;
            answers.resume = true;
        } else if let Some(spec) = arg.strip_prefix("watch:") {
            watch(c, &a[0], &mut conn, (watches, spec))?;
            watches += 1;
        } else {
            return Err(fatal(format!("{arg}: unsupported \"monitor\" argument")));
        }
    }
    match c.packet_in_format {
        Some(format) => {
            if !set_packet_in_format(&mut conn, format)? {
                return Err(fatal(format!(
                    "switch does not support the requested packet-in format {}",
                    openflow::print::format_name(format)
                )));
            }
        }
        None => {
            let _ = set_packet_in_format(&mut conn, PacketInFormat::Nxt2)?
                || conn.version == Version::V10 && set_packet_in_format(&mut conn, PacketInFormat::Nxt)?;
        }
    }
    print_all(c, &a[0], conn, answers, started)
}

/// Prints the messages between a switch and its controller.
pub fn snoop(c: &Context, a: &[String]) -> Result {
    let started = start(c)?;
    let conn = open(c, &a[0], Target::Snoop)?;
    print_all(c, &a[0], conn, Answers { echo: false, resume: false }, started)
}

fn set_invalid_ttl(c: &Context, conn: &mut Vconn) -> Result {
    let mut current = config(conn)?;
    if current.invalid_ttl_to_controller.is_none() {
        return Err(fatal("setting invalid_ttl_to_controller failed (this switch probably doesn't support this flag)"));
    }
    current.invalid_ttl_to_controller = Some(true);
    transact_noreply(c, conn, &Message::SetConfig(current), Options::default())?;
    if config(conn)?.invalid_ttl_to_controller == Some(true) {
        return Ok(());
    }
    Err(fatal("setting invalid_ttl_to_controller failed (this switch probably doesn't support this flag)"))
}

fn set_packet_in_format(conn: &mut Vconn, format: PacketInFormat) -> Result<bool> {
    conn.send_message(&Message::SetPacketInFormat(format), Options::default())?;
    Ok(barrier(conn)?.is_empty())
}

/// Requests updates about the flows that `spec` describes, with this monitor id.
fn watch(c: &Context, switch: &str, conn: &mut Vconn, (id, spec): (u32, &str)) -> Result {
    const FLAGS: [(&str, u16); 6] =
        [("!initial", 1), ("!add", 2), ("!delete", 4), ("!modify", 8), ("!actions", 16), ("!own", 32)];
    let names: Names = accepted_names(c, switch)?;
    let mut flags = 0x3f;
    let mut rest = Vec::new();
    for word in spec.split([',', ' ']).filter(|w| !w.is_empty()) {
        // Of the fields of a filter, monitors only support this one.
        let key = word.split('=').next().unwrap_or(word);
        match FLAGS.iter().find(|(name, _)| *name == word) {
            Some((_, bit)) => flags &= !bit,
            None if matches!(key, "cookie" | "priority") => {
                return Err(fatal(format!("{spec}: unknown keyword {key}")));
            }
            None => rest.push(word),
        }
    }
    let wrong = |e: FlowTextError| match e.0 {
        text if text.starts_with("unknown table") => fatal(text),
        text => fatal(format!("{spec}: {text}")),
    };
    let filter = parse_flow_filter(&rest.join(","), &names).map_err(wrong)?.flow_mod;
    let request = FlowMonitorRequest {
        id,
        command: MonitorCommand::Add,
        flags,
        out_port: filter.out_port,
        out_group: filter.out_group,
        table_id: filter.table_id,
        matching: filter.matching,
    };
    let body = StatsRequest::FlowMonitor(vec![request]);
    let reply = conn.transact(&Message::StatsRequest { more: false, body })?;
    if crate::switch::is_error(&reply) {
        return fail_on_errors(c, &[reply]);
    }
    // The flows that there are now; what follows goes where all that a monitor receives goes.
    cli::out!("{}", print(&reply, style(c, None, c.verbosity + 2)));
    Ok(())
}

/// What the reader answers. It answers nothing at a snooping socket.
#[derive(Clone, Copy)]
struct Answers {
    /// Echo requests.
    echo: bool,
    /// Packets that wait for the controller, by the request to go on with them unchanged.
    resume: bool,
}

/// State of the reader.
struct Reader {
    conn: Vconn,
    shared: Arc<Session>,
    names: Option<Names>,
    verbosity: u8,
    timestamps: bool,
    answers: Answers,
}

impl Reader {
    /// Prints messages until the connection or the program ends.
    fn run(mut self) -> Result {
        loop {
            let msg = match self.conn.recv() {
                Ok(Some(msg)) => msg,
                end => {
                    let why = end.err().map_or_else(|| "End of file".to_owned(), |e| strerror(&e));
                    return Err(fatal(format!("vconn_recv ({why})")));
                }
            };
            let mut state = self.shared.lock();
            while state.blocked {
                state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            let mut text = if self.timestamps { timestamp() } else { String::new() };
            text.push_str(&print(&msg, self.style()));
            self.shared.put(&text);
            self.answer(&msg)?;
        }
    }

    fn style(&self) -> Style<'_> {
        match &self.names {
            Some(n) => Style { ports: n, ..Style::plain(self.verbosity) },
            None => Style::plain(self.verbosity),
        }
    }

    fn answer(&self, msg: &[u8]) -> Result {
        let mut state = self.shared.lock();
        if let Some(at) = state.barriers.iter().position(|(xid, _)| *xid == xid_of(msg)) {
            let (_, call) = state.barriers.swap_remove(at);
            call.reply(Ok(String::new()));
        }
        drop(state);
        match message::decode(msg) {
            Ok((version, xid, Message::EchoRequest(data))) if self.answers.echo => {
                self.send(&message::encode(version, xid, &Message::EchoReply(data)))
            }
            Ok((version, _, Message::PacketIn(_, packet)))
                if self.answers.resume && !packet.continuation.is_empty() =>
            {
                let resume = message::encode(version, 0, &Message::Resume(packet));
                self.shared.put(&format!("send: {}", print(&resume, self.style())));
                self.send(&resume)
            }
            _ => Ok(()),
        }
    }

    fn send(&self, msg: &[u8]) -> Result {
        send_bytes(&mut self.shared.lock(), msg).map_err(fatal)
    }
}

/// Becomes a daemon if requested; messages then still go to standard error.
fn start(c: &Context) -> Result<daemon::Started> {
    let options = daemon::DaemonOptions { keep_stderr: true, ..c.daemon.clone() };
    daemon::start(&c.command_line, options, &c.log).map_err(fatal)
}

/// Prints messages on one thread and serves the control socket on another, until either ends.
fn print_all(c: &Context, switch: &str, conn: Vconn, answers: Answers, mut started: daemon::Started) -> Result {
    let shared = Arc::new(Session::default());
    {
        let mut state = shared.lock();
        (state.writer, state.version) = (Some(conn.writer()?), Some(conn.version));
    }
    let reader = Reader {
        // A snooping socket does not answer requests.
        names: if answers.echo { shown_names(c, switch)? } else { None },
        verbosity: c.verbosity.saturating_add(2),
        timestamps: c.timestamp,
        shared: Arc::clone(&shared),
        conn,
        answers,
    };
    let commands = Commands::new(cli::version_text(&c.program));
    daemon::control::register(&commands, &c.log, started.shutdown(), Vec::new);
    register(&commands, &shared, c.verbosity);
    let cannot = |e: std::io::Error| fatal(format!("cannot start ({})", strerror(&e)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    runtime.block_on(async move {
        let server = started.bind_control(commands.clone()).map_err(fatal)?;
        let server = server.map(|s| tokio::spawn(s.run()));
        started.ready();
        let (done, ended) = tokio::sync::oneshot::channel();
        std::thread::Builder::new()
            .name("reader".into())
            .spawn(move || {
                // The receiver is gone if the program is exiting.
                let _ = done.send(reader.run());
            })
            .map_err(cannot)?;
        let result = tokio::select! {
            result = ended => result.unwrap_or(Ok(())),
            reason = started.terminated(&commands) => match reason.map_err(cannot)? {
                daemon::Reason::Exit { .. } => Ok(()),
                daemon::Reason::Signal(n) => Err(Exit::Code(128 + n as u8)),
            },
        };
        if let Some(server) = server {
            server.abort();
            let _ = server.await;
        }
        result
    })
}

/// `2026-01-02 03:04:05.678: `
fn timestamp() -> String {
    format!("{}: ", vlog::pattern::date(jiff::Timestamp::now(), "%Y-%m-%d %H:%M:%S.###", true))
}

fn register(commands: &Commands, shared: &Arc<Session>, verbosity: u8) {
    let with = |f: fn(&Session, &[String]) -> std::result::Result<String, String>| {
        let shared = Arc::clone(shared);
        move |args: &[String]| f(&shared, args)
    };
    commands.register("ofctl/send", "OFMSG...", 1..=usize::MAX, with(send));
    let packet_out_state = Arc::clone(shared);
    commands.register(
        "ofctl/packet-out",
        "\"in_port=<port> packet=<hex data> actions=...\"",
        1..=1,
        move |args: &[String]| packet_out(&packet_out_state, args, verbosity),
    );
    commands.register("ofctl/set-output-file", "FILE", 1..=1, with(set_output));
    commands.register("ofctl/block", "", 0..=0, with(|s, _| block(s, true)));
    commands.register("ofctl/unblock", "", 0..=0, with(|s, _| block(s, false)));
    let barrier_state = Arc::clone(shared);
    commands.register_call("ofctl/barrier", "", 0..=0, move |call| {
        let xid = next_xid();
        let mut state = barrier_state.lock();
        let barrier = message::encode(state.version(), xid, &Message::BarrierRequest);
        match send_bytes(&mut state, &barrier) {
            Ok(()) => state.barriers.push((xid, call)),
            Err(e) => call.reply(Err(e)),
        }
    });
}

fn send_bytes(state: &mut State, msg: &[u8]) -> std::result::Result<(), String> {
    state.writer.as_mut().map_or_else(|| Err("not connected".into()), |w| w.send(msg))
}

fn send(shared: &Session, args: &[String]) -> std::result::Result<String, String> {
    let (mut lines, mut failed) = (Vec::new(), false);
    for arg in args {
        let sent = whole_message(arg).map_err(str::to_owned).and_then(|msg| {
            shared.put(&format!("send: {}", print(&msg, Style::plain(2))));
            send_bytes(&mut shared.lock(), &msg)
        });
        failed |= sent.is_err();
        lines.push(sent.map_or_else(|error| error, |()| "sent".into()));
    }
    // The messages before and after a wrong one are sent.
    if failed { Err(lines.join("\n")) } else { Ok(lines.join("\n") + "\n") }
}

/// Reads one OpenFlow message in hexadecimal. Bytes of another length than its header's would put the connection out of step.
fn whole_message(text: &str) -> std::result::Result<Vec<u8>, &'static str> {
    let msg = hex(text).ok_or("Trailing garbage in hex data")?;
    match msg[..] {
        [_, _, a, b, _, _, _, _, ..] if usize::from(u16::from_be_bytes([a, b])) == msg.len() => Ok(msg),
        [_, _, _, _, _, _, _, _, ..] => Err("Message size does not match length in OpenFlow header"),
        _ => Err("Message too short for OpenFlow"),
    }
}

/// Sends a packet-out, after writing it with this verbosity.
fn packet_out(shared: &Session, args: &[String], verbosity: u8) -> std::result::Result<String, String> {
    let request = crate::packet_out::parse(&args[0], &Names::default())?;
    let msg = message::encode(shared.lock().version(), next_xid(), &Message::PacketOut(request));
    shared.put(&print(&msg, Style::plain(verbosity)));
    send_bytes(&mut shared.lock(), &msg)?;
    Ok(String::new())
}

fn set_output(shared: &Session, args: &[String]) -> std::result::Result<String, String> {
    let file = File::create(&args[0]).map_err(|e| strerror(&e))?;
    shared.lock().output = Some(file);
    Ok(String::new())
}

fn block(shared: &Session, blocked: bool) -> std::result::Result<String, String> {
    let mut state = shared.lock();
    if state.blocked == blocked {
        return Err(if blocked { "already blocking" } else { "already unblocked" }.into());
    }
    state.blocked = blocked;
    shared.changed.notify_all();
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_another_length_than_their_header_are_not_sent() {
        let (short, size) = ("Message too short for OpenFlow", "Message size does not match length in OpenFlow header");
        assert_eq!(whole_message("01 05 0008 00000001"), Ok(vec![1, 5, 0, 8, 0, 0, 0, 1]));
        for (text, error) in [
            ("", short),
            ("010500080000", short),
            ("0105000900000001", size),
            ("0105000700000001", size),
            ("0105000800000001ff", size),
            ("zz", "Trailing garbage in hex data"),
            ("010500080000000", "Trailing garbage in hex data"),
        ] {
            assert_eq!(whole_message(text), Err(error), "{text}");
        }
    }
}
