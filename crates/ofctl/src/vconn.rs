//! A blocking connection to a switch: opening, version negotiation, and exchange of messages.

use crate::error::{Exit, Result, fatal, strerror};
use openflow::message::{self, Options};
use openflow::print::{self, Style};
use openflow::stream::Framer;
use openflow::switch::Hello;
pub use openflow::types::xid as xid_of;
use openflow::{Message, Version, Versions};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use tls::Tls;

/// The port of OpenFlow.
const OFP_PORT: u16 = 6653;

/// Limit on queued bytes, after which they are written.
const UNSENT_MAX: usize = 1 << 16;

static XID: AtomicU32 = AtomicU32::new(1);

/// The next transaction id. Ids count from 1 in the order in which the process creates messages.
pub fn next_xid() -> u32 {
    XID.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(tls::blocking::Stream),
}

impl Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(s) => s.read(buf),
            Self::Tcp(s) => s.read(buf),
            Self::Tls(s) => s.read(buf),
        }
    }

    /// Reads available data without blocking; an error if there is none.
    fn read_ready(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.set_nonblocking(true)?;
        let n = self.read(buf);
        self.set_nonblocking(false)?;
        n
    }

    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match self {
            Self::Unix(s) => s.set_nonblocking(on),
            Self::Tcp(s) => s.set_nonblocking(on),
            Self::Tls(s) => s.set_nonblocking(on),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(s) => s.write_all(bytes),
            Self::Tcp(s) => s.write_all(bytes),
            Self::Tls(s) => s.write_all(bytes),
        }
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(s) => Self::Unix(s.try_clone()?),
            Self::Tcp(s) => Self::Tcp(s.try_clone()?),
            Self::Tls(s) => Self::Tls(s.clone()),
        })
    }
}

/// A connection with a negotiated version.
#[derive(Debug)]
pub struct Vconn {
    /// The name in log messages, as `unix:/run/br0.mgmt`.
    pub name: String,
    /// The version.
    pub version: Version,
    stream: Stream,
    framer: Framer,
    /// Messages that are not yet written.
    unsent: Vec<u8>,
}

/// Why a connection could not be established.
#[derive(Debug)]
pub enum OpenError {
    /// The socket does not exist, or has no listener.
    Connect(io::Error),
    /// The peer supports none of the versions, or does not speak OpenFlow.
    Negotiate(String),
}

/// Connects to `remote` (`unix:FILE`, `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]`) and negotiates one of `versions`.
pub fn open(remote: &str, versions: Versions, tls: &Tls) -> std::result::Result<Vconn, OpenError> {
    let stream = connect(remote, tls).map_err(OpenError::Connect)?;
    let mut conn =
        Vconn { name: remote.to_owned(), version: Version::V10, stream, framer: Framer::default(), unsent: Vec::new() };
    let newest = versions.newest().unwrap_or(Version::V10);
    let hello = message::encode(newest, next_xid(), &Message::Hello(Hello { versions }));
    conn.send(&hello).map_err(OpenError::Connect)?;
    conn.flush().map_err(OpenError::Connect)?;
    let reply = conn.recv().map_err(OpenError::Connect)?.ok_or_else(|| {
        OpenError::Connect(io::Error::from_raw_os_error(104)) // ECONNRESET
    })?;
    let theirs = match message::decode(&reply) {
        Ok((_, _, Message::Hello(h))) => h.versions,
        _ => {
            tracing::warn!(target: "vconn", "{remote}: received message while expecting hello");
            return Err(OpenError::Negotiate("Protocol error".into()));
        }
    };
    match versions.negotiate(theirs) {
        Some(version) => conn.version = version,
        None => {
            tracing::warn!(target: "vconn",
                "{remote}: version negotiation failed (we support {}, peer supports {})",
                versions.describe(), theirs.describe());
            return Err(OpenError::Negotiate("Protocol error".into()));
        }
    }
    tracing::debug!(target: "vconn", "{remote}: negotiated OpenFlow version 0x{:02x} (we support {}, peer supports {})",
        conn.version.wire(), versions.describe(), theirs.describe());
    Ok(conn)
}

fn connect(remote: &str, tls: &Tls) -> io::Result<Stream> {
    let unsupported = || io::Error::from_raw_os_error(97); // EAFNOSUPPORT
    match remote.split_once(':') {
        Some(("unix", path)) => {
            let path = if path.starts_with('/') { path.into() } else { daemon::dirs::rundir().join(path) };
            unixctl::socket::connect(&path).map(Stream::Unix)
        }
        Some((method @ ("tcp" | "ssl"), target)) => {
            if method == "ssl" {
                tls.check()?;
            }
            let (host, port) = split_host(target).ok_or_else(unsupported)?;
            // A name that no server resolves is no address of any family.
            let addresses = (host.as_str(), port).to_socket_addrs().map_err(|_| unsupported())?;
            let address = { addresses }.next().ok_or_else(unsupported)?;
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            if method == "tcp" {
                return Ok(Stream::Tcp(stream));
            }
            tls::blocking::connect(tls, remote, stream).map(Stream::Tls)
        }
        _ => Err(unsupported()),
    }
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`. Returns `None` without a host, or if the port is no number of one.
fn split_host(target: &str) -> Option<(String, u16)> {
    let (host, port) = match target.strip_prefix('[').and_then(|t| t.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => target.rsplit_once(':').map_or((target, None), |(host, port)| (host, Some(port))),
    };
    let port = match port.filter(|port| !port.is_empty()) {
        Some(port) => port.parse().ok()?,
        None => OFP_PORT,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

impl Vconn {
    fn log(&self, what: &str, msg: &[u8]) {
        if tracing::enabled!(target: "vconn", tracing::Level::DEBUG) {
            let text = print::print(msg, Style::plain(1));
            tracing::debug!(target: "vconn", "{}: {what}{}", self.name, text.trim_end_matches('\n'));
        }
    }

    /// Queues a message. [`Vconn::flush`] writes it, as does waiting for a message.
    pub fn send(&mut self, msg: &[u8]) -> io::Result<()> {
        self.log("sent (Success): ", msg);
        self.unsent.extend_from_slice(msg);
        if self.unsent.len() >= UNSENT_MAX { self.flush() } else { Ok(()) }
    }

    /// Whether all queued messages are written.
    pub fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Writes all queued messages.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.unsent)?;
        self.unsent.clear();
        Ok(())
    }

    /// The next message; `None` if the peer closed the connection.
    pub fn recv(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.flush()?;
        let mut buf = [0; 16384];
        loop {
            if let Some(msg) = self.received()? {
                return Ok(Some(msg));
            }
            match self.stream.read(&mut buf) {
                Ok(0) => return Ok(None),
                Ok(n) => self.framer.push(&buf[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The next message if it has already arrived; neither waits nor writes. [`Vconn::recv`] reports the end of the
    /// connection.
    pub fn recv_ready(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut buf = [0; 16384];
        loop {
            if let Some(msg) = self.received()? {
                return Ok(Some(msg));
            }
            match self.stream.read_ready(&mut buf) {
                Ok(0) => return Ok(None),
                Ok(n) => self.framer.push(&buf[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The next message in the read buffer.
    fn received(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.framer.next_message() {
            Ok(Some(msg)) => {
                let msg = msg.to_vec();
                self.log("received: ", &msg);
                Ok(Some(msg))
            }
            Ok(None) => Ok(None),
            Err(e) => {
                tracing::error!(target: "vconn", "{}: {e}", self.name);
                Err(io::Error::from_raw_os_error(71)) // EPROTO
            }
        }
    }

    /// Like [`Vconn::recv`], but the end of the connection is fatal.
    pub fn recv_or_fail(&mut self) -> Result<Vec<u8>> {
        match self.recv() {
            Ok(Some(msg)) => Ok(msg),
            Ok(None) => Err(fatal("OpenFlow packet receive failed (End of file)")),
            Err(e) => Err(fatal(format!("OpenFlow packet receive failed ({})", strerror(&e)))),
        }
    }

    /// Encodes and queues a message; returns its transaction id.
    pub fn send_message(&mut self, message: &Message, options: Options) -> Result<u32> {
        let xid = next_xid();
        let msg = message::encode_with(self.version, xid, message, options);
        if msg.is_empty() {
            return Err(fatal(format!("OpenFlow {} has no such message, or it is too long", self.version)));
        }
        self.send(&msg).map_err(|e| io_error(&e))?;
        Ok(xid)
    }

    /// Sends a request and waits for its reply.
    pub fn transact(&mut self, message: &Message) -> Result<Vec<u8>> {
        let xid = self.send_message(message, Options::default())?;
        self.answer(xid)
    }

    /// Waits for the message with this transaction id.
    pub fn answer(&mut self, xid: u32) -> Result<Vec<u8>> {
        loop {
            let msg = self.recv_or_fail()?;
            if xid_of(&msg) == xid {
                return Ok(msg);
            }
        }
    }

    /// A second handle for writing while this one waits.
    pub fn writer(&self) -> Result<Writer> {
        Ok(Writer { name: self.name.clone(), stream: self.stream.try_clone().map_err(|e| io_error(&e))? })
    }
}

/// Writes to a connection that another thread reads.
#[derive(Debug)]
pub struct Writer {
    name: String,
    stream: Stream,
}

impl Writer {
    /// Writes a whole message.
    pub fn send(&mut self, msg: &[u8]) -> std::result::Result<(), String> {
        self.stream.write_all(msg).map_err(|e| format!("{}: {}", self.name, strerror(&e)))
    }
}

/// Sending failed.
pub fn io_error(e: &io::Error) -> Exit {
    fatal(format!("failed to send packet to switch ({})", strerror(e)))
}
