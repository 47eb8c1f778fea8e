//! A fake switch: it negotiates the newest version offered, answers all requests that clients wait for, and records the
//! messages that it receives.

use openflow::Version;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

const NICIRA: [u8; 4] = [0, 0, 0x23, 0x20];
const ONF: [u8; 4] = [0x4f, 0x4e, 0x46, 0];

/// Replies of the switch other than the default.
#[derive(Clone, Default, Debug)]
pub(crate) struct Script {
    /// A statistics reply in place of the default one.
    pub(crate) reply: Option<Vec<u8>>,
    /// Asynchronous messages before it closes the connection.
    pub(crate) news: Option<News>,
}

/// Asynchronous messages, sent at once or after the client has selected a packet-in format.
#[derive(Clone, Debug)]
pub(crate) enum News {
    AtOnce(Vec<Vec<u8>>),
    OnceChosen(Vec<Vec<u8>>),
}

/// The result of running a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Deed {
    /// The messages on its connections, in hexadecimal.
    pub(crate) sent: Vec<String>,
    /// Its output and exit status.
    pub(crate) said: String,
}

/// A fake switch and its directory.
pub(crate) struct Fake {
    dir: tempfile::TempDir,
    listener: UnixListener,
}

impl Fake {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder for sockets");
        let listener = UnixListener::bind(dir.path().join("sw")).expect("a socket");
        Self { dir, listener }
    }

    /// A file in the switch's directory, in which programs run.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the program with these arguments, in which `unix:sw` is the switch, and this input.
    pub(crate) fn run(&self, program: &Path, args: &[String], input: &str, script: &Script) -> Deed {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let output = std::thread::scope(|scope| {
            let serving = scope.spawn(|| self.serve(&kept, script));
            let output = self.output(program, args, input);
            // Connections are accepted in order, so this one is the last.
            let mut last = UnixStream::connect(self.path("sw")).expect("it listens");
            last.write_all(&[0]).expect("it reads");
            serving.join().expect("it serves");
            output
        })
        .expect("ovs-ofctl runs");
        let sent = kept.lock().expect("nobody panics").clone();
        Deed { sent, said: crate::text(&output) }
    }

    /// Fails if the program cannot be started.
    fn output(&self, program: &Path, args: &[String], input: &str) -> std::io::Result<Output> {
        let path = self.path("input");
        fs::write(&path, input).expect("a file");
        let stdin = fs::File::open(path).expect("a file");
        let mut command = Command::new(program);
        oracle::folders(&mut command, self.dir.path());
        command.current_dir(self.dir.path()).args(args).stdin(stdin);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).output()
    }

    /// Serves connections until one begins with a zero byte.
    fn serve(&self, kept: &Arc<Mutex<Vec<String>>>, script: &Script) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        loop {
            let (mut stream, _) = self.listener.accept().expect("a connection");
            let mut first = [0; 8];
            if stream.read_exact(&mut first[..1]).is_err() || first[0] == 0 {
                break;
            }
            let at = {
                let mut all = kept.lock().expect("nobody panics");
                all.push(String::new());
                all.len() - 1
            };
            let (kept, script) = (Arc::clone(kept), script.clone());
            threads.push(std::thread::spawn(move || {
                let sent = connection(stream, first, &script);
                kept.lock().expect("nobody panics")[at] = sent;
            }));
        }
        for thread in threads {
            thread.join().expect("a connection is served");
        }
    }
}

/// Serves one connection, whose first byte is already read, to its end. Returns the messages received.
fn connection(mut stream: UnixStream, mut header: [u8; 8], script: &Script) -> String {
    let mut kept = String::new();
    let (mut first, mut chosen, mut xids) = (true, false, Vec::new());
    // All versions up to 1.5.
    let _ = stream.write_all(&[6, 0, 0, 16, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 0x7e]);
    loop {
        if stream.read_exact(&mut header[usize::from(first)..]).is_err() {
            return kept;
        }
        first = false;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let mut message = header.to_vec();
        message.resize(length.max(8), 0);
        if stream.read_exact(&mut message[8..]).is_err() {
            return kept;
        }
        kept += &crate::hex(&numbered(&message, &mut xids));
        kept.push('\n');
        let answers = answer(&message, script);
        if answers.iter().any(|a| stream.write_all(a).is_err()) {
            return kept;
        }
        chosen |= message[1] == 4 && message.get(8..16) == Some(&[&NICIRA[..], &[0, 0, 0, 16]].concat());
        let news = match &script.news {
            Some(News::AtOnce(news)) if message[1] == 0 => news,
            Some(News::OnceChosen(news)) if chosen && is_barrier(&message) => news,
            _ => continue,
        };
        let _ = news.iter().try_for_each(|m| stream.write_all(m));
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
}

/// Whether a message requests a barrier reply.
fn is_barrier(message: &[u8]) -> bool {
    matches!((message[0], message[1]), (1, 18) | (2.., 20)) && message.len() == 8
}

/// The message with its transaction ids, including those of bundled messages, replaced by their order of appearance, as
/// programs choose ids freely.
fn numbered(message: &[u8], xids: &mut Vec<[u8; 4]>) -> Vec<u8> {
    let mut message = message.to_vec();
    let inner = match (message[0], message[1]) {
        (5.., 34) => Some(16),
        (4, 4) if message.get(8..16) == Some(&[&ONF[..], &[0, 0, 8, 0xfd]].concat()) => Some(24),
        _ => None,
    };
    if is_barrier(&message) {
        message[4..].fill(0);
        return message;
    }
    for at in [Some(4), inner.map(|at| at + 4)].into_iter().flatten() {
        if let Some(xid) = message.get_mut(at..at + 4) {
            let known = xids.iter().position(|known| known == xid);
            let number = known.unwrap_or_else(|| {
                xids.push([xid[0], xid[1], xid[2], xid[3]]);
                xids.len() - 1
            });
            xid.copy_from_slice(&(number as u32).to_be_bytes());
        }
    }
    message
}

fn reply(request: &[u8], ty: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16 + 8).to_be_bytes();
    [&[request[0], ty], &length[..], &request[4..8], body].concat()
}

/// The switch's replies to a message.
fn answer(message: &[u8], script: &Script) -> Vec<Vec<u8>> {
    let old = message[0] == 1;
    let body = &message[8..];
    let vendor = |n: u32| message[1] == 4 && body.get(..8) == Some(&[NICIRA, n.to_be_bytes()].concat());
    let one = |ty: u8, body: &[u8]| vec![reply(message, ty, body)];
    match (message[1], old) {
        (2, _) => one(3, body),
        (5, _) => one(6, &features(message[0])),
        (7, _) => one(8, &[0, 0, 0, 128]),
        (18, true) => one(19, &[]),
        (20, false) => one(21, &[]),
        (16, true) | (18, false) => vec![statistics(message, script)],
        (20, true) | (22, false) if message[0] < 5 => match &script.reply {
            Some(reply) if reply[1] == message[1] + 1 => vec![with_xid(reply, message)],
            _ => one(message[1] + 1, &body.iter().copied().chain([0; 4]).take(8).collect::<Vec<_>>()),
        },
        (24, false) => one(25, body),
        (33, false) => one(33, &bundle(body)),
        (4, _) if body.get(..8) == Some(&[&ONF[..], &[0, 0, 8, 0xfc]].concat()) => {
            one(4, &[&body[..8], &bundle(&body[8..])].concat())
        }
        // A request for the TLV mappings.
        (4, _) if vendor(25) => {
            let map = [0, 0, 1, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 4, 0, 0, 0, 0];
            one(4, &[&NICIRA[..], &[0, 0, 0, 26], &map].concat())
        }
        (4, _) if vendor(10) => one(4, &[&NICIRA[..], &[0, 0, 0, 11], &body[8..]].concat()),
        _ => Vec::new(),
    }
}

/// A bundle control message with the type of its reply.
fn bundle(body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    if let Some(ty) = body.get_mut(5) {
        *ty += 1;
    }
    body
}

/// `reply` as the last reply to `request`.
fn with_xid(reply: &[u8], request: &[u8]) -> Vec<u8> {
    let mut reply = reply.to_vec();
    reply[4..8].copy_from_slice(&request[4..8]);
    if matches!((reply[0], reply[1]), (1, 17) | (2.., 19)) {
        reply[10..12].fill(0);
    }
    reply
}

fn statistics(request: &[u8], script: &Script) -> Vec<u8> {
    let ty = [request[8], request[9]];
    // Experimenter statistics are distinguished by the fields after the experimenter's number.
    let kind = |message: &[u8]| {
        let vendor = if message[0] == 1 { 12..20 } else { 16..24 };
        (message[8..10].to_vec(), (message[8..10] == [0xff, 0xff]).then(|| message.get(vendor).map(<[u8]>::to_vec)))
    };
    if let Some(reply) = script.reply.as_ref().filter(|reply| kind(reply) == kind(request)) {
        return with_xid(reply, request);
    }
    let head = if request[0] == 1 { 12 } else { 16 };
    let mut body = [&ty[..], &[0; 6]].concat();
    body.truncate(head - 8);
    match ty {
        [0, 0] => body.extend([0; 1056]),
        [0, 2] if request[0] == 6 => body.extend([0, 0, 0, 4, 0, 0, 0, 0]),
        [0, 2] => body.extend([0; 24]),
        [0, 8] => body.extend([0; 40]),
        [0, 11] => body.extend([0; 16]),
        [0, 12] => body.extend(table()),
        [0, 13] => body.extend(all_ports(request[0])),
        [0, 14] => body.extend([0, 8, 0, 0, 0, 0, 0, 0]),
        [0xff, 0xff] => {
            let more = if request[0] == 1 { 12 } else { 8 };
            let which = request.get(head..head + more).unwrap_or_default();
            body.extend(which);
            body.resize(body.len() + if which[..4] == NICIRA { numbers(which[7]) } else { 0 }, 0);
        }
        _ => {}
    }
    reply(request, request[1] + 1, &body)
}

/// Length of the counters in one of Nicira's statistics replies that cannot be empty.
fn numbers(subtype: u8) -> usize {
    match subtype {
        1 => 24,
        3 => 88,
        9 => 40,
        _ => 0,
    }
}

/// A table without any features: eight empty properties.
fn table() -> Vec<u8> {
    let mut table = vec![0; 64];
    table[1] = 128;
    table[8..11].copy_from_slice(b"one");
    for ty in [0, 2, 4, 6, 8, 10, 12, 14] {
        table.extend([0, ty, 0, 4, 0, 0, 0, 0]);
    }
    table
}

fn port(version: u8, number: u32, name: &str) -> Vec<u8> {
    let mut padded = name.as_bytes().to_vec();
    padded.resize(16, 0);
    let mac = [2, 0, 0, 0, 0, number as u8];
    let number = if number == 0 { 0xffff_fffe } else { number };
    match Version::from_wire(version) {
        Some(Version::V10) => [&(number as u16).to_be_bytes()[..], &mac, &padded, &[0; 24]].concat(),
        Some(version) if version >= Version::V14 => {
            [&number.to_be_bytes()[..], &[0, 40, 0, 0], &mac, &[0; 2], &padded, &[0; 8]].concat()
        }
        _ => [&number.to_be_bytes()[..], &[0; 4], &mac, &[0; 2], &padded, &[0; 32]].concat(),
    }
}

fn all_ports(version: u8) -> Vec<u8> {
    [(3, "a port"), (0, "br0"), (1, "p1"), (2, "p2")].iter().flat_map(|(n, name)| port(version, *n, name)).collect()
}

fn features(version: u8) -> Vec<u8> {
    let head = [&[0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 254, 0, 0, 0][..], &[0, 0, 0, 0xc7]].concat();
    match version {
        1 => [&head[..], &[0, 0, 0x0f, 0xff], &all_ports(1)].concat(),
        2 | 3 => [&head[..], &[0; 4], &all_ports(version)].concat(),
        _ => [&head[..], &[0; 4]].concat(),
    }
}
