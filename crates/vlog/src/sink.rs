//! Destinations of formatted lines: a file, the local syslog in one of several formats, a syslog server.
//!
//! Logging never fails the program: a line that cannot be written is lost.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// The mode of a new log file, before the umask.
const FILE_MODE: u32 = 0o660;

/// The socket of the local syslog.
const DEV_LOG: &str = "/dev/log";

/// The log file: none, named but not open, or open.
#[derive(Debug, Default)]
pub(crate) struct LogFile {
    pub(crate) path: Option<PathBuf>,
    /// The name as the option gave it, for messages.
    pub(crate) given: String,
    pub(crate) file: Option<File>,
}

impl LogFile {
    /// Opens the named file for appending.
    pub(crate) fn open(path: &Path) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path)
    }

    /// Whether the open file is the one that its name leads to.
    pub(crate) fn is_current(&self) -> bool {
        let (Some(path), Some(file)) = (&self.path, &self.file) else { return false };
        let (Ok(named), Ok(open)) = (std::fs::metadata(path), file.metadata()) else { return false };
        (named.dev(), named.ino()) == (open.dev(), open.ino())
    }

    pub(crate) fn write(&self, line: &str) {
        if let Some(mut file) = self.file.as_ref() {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

/// `--syslog-method`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SyslogMethod {
    /// Like the C library: a datagram to /dev/log prefixed by time and program.
    Libc,
    /// A datagram to this socket, nothing in front but the priority.
    Unix(PathBuf),
    /// The same over UDP; none if the address could not be read, which loses the messages.
    Udp(Option<SocketAddr>),
    /// Nothing is sent.
    Null,
}

impl SyslogMethod {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "libc" => Ok(Self::Libc),
            None if text == "null" => Ok(Self::Null),
            Some(("unix", path)) => Ok(Self::Unix(PathBuf::from(path))),
            Some(("udp", address)) => Ok(Self::Udp(address.parse().ok())),
            _ => Err(format!("unsupported syslog method '{text}'")),
        }
    }

    /// The text in front of the pattern, itself a pattern.
    pub(crate) fn prefix(&self) -> &'static str {
        match self {
            Self::Libc => "<%B> %D{%h %e %T} %E %A:",
            Self::Unix(_) | Self::Udp(_) => "<%B>",
            Self::Null => "",
        }
    }

    /// The prefix that the C library itself adds on the local socket.
    pub(crate) fn wire_prefix(&self) -> &'static str {
        match self {
            Self::Libc => "<%B>%d{%h %e %T} %A: ",
            Self::Unix(_) | Self::Udp(_) => "<%B> ",
            Self::Null => "",
        }
    }
}

/// Parses `HOST:PORT`, with an IPv6 address in brackets. Returns `None` for a name of a host, which is not looked up.
///
/// # Errors
///
/// The reason, in the words in which sockets of other kinds report it.
pub(crate) fn udp_address(target: &str) -> Result<Option<SocketAddr>, String> {
    let (host, port) = match target.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").unwrap_or((rest, "")),
        None if target.matches(':').count() == 1 => target.split_once(':').unwrap_or_default(),
        None => (target, ""),
    };
    if port.is_empty() {
        return Err("port must be specified".to_owned());
    }
    let port: u16 = port.parse().map_err(|_| format!("bad port number \"{port}\""))?;
    Ok(host.parse().ok().map(|host: IpAddr| SocketAddr::new(host, port)))
}

/// A connection to a syslog daemon. Sockets are created on first use and again after an error.
#[derive(Debug)]
pub(crate) struct Syslog {
    pub(crate) method: SyslogMethod,
    unix: Option<UnixDatagram>,
    udp: Option<UdpSocket>,
}

impl Syslog {
    pub(crate) fn new(method: SyslogMethod) -> Self {
        Self { method, unix: None, udp: None }
    }

    pub(crate) fn send(&mut self, line: &str) {
        let sent = match &self.method {
            SyslogMethod::Null | SyslogMethod::Udp(None) => Ok(()),
            SyslogMethod::Libc => send_unix(&mut self.unix, Path::new(DEV_LOG), line),
            SyslogMethod::Unix(path) => send_unix(&mut self.unix, path, line),
            SyslogMethod::Udp(Some(address)) => send_udp(&mut self.udp, *address, line),
        };
        if sent.is_err() {
            (self.unix, self.udp) = (None, None);
        }
    }
}

fn send_unix(socket: &mut Option<UnixDatagram>, path: &Path, line: &str) -> io::Result<()> {
    let socket = match socket {
        Some(socket) => socket,
        None => {
            let fresh = UnixDatagram::unbound()?;
            fresh.connect(path)?;
            // A syslog daemon that does not read must not stop the switch.
            fresh.set_nonblocking(true)?;
            socket.insert(fresh)
        }
    };
    match socket.send(line.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        sent => sent.map(drop),
    }
}

fn send_udp(socket: &mut Option<UdpSocket>, address: SocketAddr, line: &str) -> io::Result<()> {
    let socket = match socket {
        Some(socket) => socket,
        None => {
            let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
            let fresh = UdpSocket::bind(any)?;
            fresh.set_nonblocking(true)?;
            socket.insert(fresh)
        }
    };
    socket.send_to(line.as_bytes(), address).map(drop)
}
