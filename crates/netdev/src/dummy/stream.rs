//! Sockets between dummy devices. A frame is sent as a 16-bit big-endian length followed by its bytes.
//!
//! `stream=unix:PATH` and `stream=tcp:HOST:PORT` connect; after a failure they retry after 1, 2, 4 and then every 8
//! seconds. `pstream=punix:PATH` and `pstream=ptcp:PORT[:HOST]` listen and accept several peers. A sent frame goes to
//! all peers; a frame from any peer is received in queue 0. A peer that sends a frame too short for an Ethernet header
//! is disconnected.
//!
//! Each device has one thread that waits for its sockets. The thread holds the device weakly and ends when the device's
//! [`Streams`] is dropped.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packet::Packet;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{ETH_HEADER_LEN, Port};
use crate::device::{NetdevError, errno_text};

/// Maximum number of bytes that wait for a slow peer; more frames for that peer are dropped.
const BACKLOG_LEN_MAX: usize = 1 << 20;
/// Maximum number of peers of a passive socket.
const PEERS_MAX: usize = 64;
const BACKOFF_MAX: Duration = Duration::from_secs(8);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The connected peers.
#[derive(Debug)]
pub(crate) struct Links {
    peers: Mutex<Vec<Peer>>,
    /// Wakes the thread when written to.
    wake: OwnedFd,
    stop: AtomicBool,
    connected: AtomicBool,
}

#[derive(Debug)]
struct Peer {
    socket: Arc<OwnedFd>,
    /// Whether this is the connection of option `stream`.
    active: bool,
    received: Vec<u8>,
    unsent: VecDeque<u8>,
    broken: bool,
}

impl Links {
    /// Sends a frame to all peers. Never blocks: a slow peer loses frames.
    pub(crate) fn send(&self, frame: &[u8]) {
        let Ok(len) = u16::try_from(frame.len()) else { return };
        let mut wake = false;
        for peer in self.peers.lock().iter_mut() {
            if peer.unsent.len() + 2 + frame.len() > BACKLOG_LEN_MAX {
                continue;
            }
            peer.unsent.extend(len.to_be_bytes());
            peer.unsent.extend(frame);
            peer.flush();
            wake |= !peer.unsent.is_empty() || peer.broken;
        }
        if wake {
            self.wake();
        }
    }

    fn wake(&self) {
        // A write fails only if the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Peer {
    fn flush(&mut self) {
        while !self.unsent.is_empty() && !self.broken {
            let (front, _) = self.unsent.as_slices();
            match rustix::net::send(&self.socket, front, rustix::net::SendFlags::NOSIGNAL) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => self.broken = true,
            }
        }
    }

    /// Reads available data and returns the complete frames.
    fn read(&mut self) -> Vec<Packet> {
        let mut chunk = [0; 16 * 1024];
        match rustix::io::read(&self.socket, &mut chunk) {
            Ok(0) => self.broken = true,
            Ok(n) => self.received.extend_from_slice(&chunk[..n]),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => self.broken = true,
        }
        let mut frames = Vec::new();
        let mut rest = &self.received[..];
        while let Some((len, after)) = rest.split_first_chunk::<2>() {
            let len = usize::from(u16::from_be_bytes(*len));
            if len < ETH_HEADER_LEN {
                self.broken = true;
                break;
            }
            let Some((frame, after)) = after.split_at_checked(len) else { break };
            frames.push(Packet::from_slice(frame));
            rest = after;
        }
        let used = self.received.len() - rest.len();
        self.received.drain(..used);
        frames
    }
}

/// The sockets of one dummy device; dropping this closes them.
#[derive(Debug)]
pub(crate) struct Streams {
    links: Arc<Links>,
    active: Option<String>,
    passive: Option<String>,
    thread: Option<JoinHandle<()>>,
}

impl Streams {
    /// Opens the sockets of the options `stream` and `pstream` of `device`, and starts their thread.
    pub(crate) fn start(
        device: &str,
        active: Option<String>,
        passive: Option<String>,
        port: Weak<Port>,
    ) -> Result<Self, NetdevError> {
        let failed = |source| NetdevError::Open { name: device.to_owned(), source };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| failed(e.into()))?;
        let links = Arc::new(Links {
            peers: Mutex::default(),
            wake,
            stop: AtomicBool::new(false),
            connected: AtomicBool::new(false),
        });
        let worker = Worker {
            device: device.to_owned(),
            links: links.clone(),
            port,
            target: active.clone(),
            listener: passive.as_deref().and_then(|name| {
                Listener::open(name)
                    .inspect_err(|e| {
                        let errno = errno_text(e);
                        tracing::warn!(target: "netdev_dummy", "{device}: cannot listen on {name} ({errno})");
                    })
                    .ok()
            }),
            backoff: Duration::from_secs(1),
            retry_at: None,
        };
        let thread = std::thread::Builder::new().name(format!("dummy-{device}")).spawn(move || worker.run());
        Ok(Self { links, active, passive, thread: Some(thread.map_err(failed)?) })
    }

    /// Whether these are the sockets of the given options.
    pub(crate) fn is_for(&self, active: Option<&String>, passive: Option<&String>) -> bool {
        self.active.as_ref() == active && self.passive.as_ref() == passive
    }

    /// The connected peers, to send to.
    pub(crate) fn links(&self) -> Arc<Links> {
        self.links.clone()
    }

    /// Whether the active socket is connected; `None` if there is no such socket.
    pub(crate) fn connected(&self) -> Option<bool> {
        self.active.as_ref().map(|_| self.links.connected.load(Ordering::Acquire))
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.links.stop.store(true, Ordering::Release);
        self.links.wake();
        // A listening socket must be closed before another can bind to its path. A thread that may be blocked in
        // connecting is detached: it ends by itself.
        if let Some(thread) = self.thread.take().filter(|_| self.passive.is_some()) {
            let _ = thread.join();
        }
    }
}

struct Worker {
    device: String,
    links: Arc<Links>,
    port: Weak<Port>,
    target: Option<String>,
    listener: Option<Listener>,
    backoff: Duration,
    /// When to reconnect; `None` if no attempt has failed.
    retry_at: Option<Instant>,
}

impl Worker {
    fn run(mut self) {
        while !self.links.stop.load(Ordering::Acquire) {
            self.connect();
            self.wait();
            self.accept();
            self.exchange();
        }
        self.links.peers.lock().clear();
    }

    fn connect(&mut self) {
        let Some(target) = &self.target else { return };
        if self.links.connected.load(Ordering::Acquire) || self.retry_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        match connect(target) {
            Ok(socket) => {
                tracing::info!(target: "netdev_dummy", "{}: connected to {target}", self.device);
                self.links.peers.lock().push(Peer::new(socket, true));
                self.links.connected.store(true, Ordering::Release);
                (self.backoff, self.retry_at) = (Duration::from_secs(1), None);
            }
            Err(e) => {
                let errno = errno_text(&e);
                tracing::info!(target: "netdev_dummy", "{}: cannot connect to {target} ({errno})", self.device);
                self.retry_later();
            }
        }
    }

    fn retry_later(&mut self) {
        self.retry_at = Some(Instant::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }

    /// Sleeps until a socket is ready, a reconnect is due, or the thread is woken.
    fn wait(&self) {
        let sockets: Vec<_> = {
            let peers = self.links.peers.lock();
            peers.iter().map(|p| (p.socket.clone(), !p.unsent.is_empty())).collect()
        };
        let mut fds = vec![PollFd::new(&self.links.wake, PollFlags::IN)];
        if let Some(listener) = self.listener.as_ref().filter(|_| sockets.len() < PEERS_MAX) {
            fds.push(PollFd::from_borrowed_fd(listener.fd(), PollFlags::IN));
        }
        for (socket, unsent) in &sockets {
            let events = if *unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::new(socket, events));
        }
        let disconnected = self.target.is_some() && !self.links.connected.load(Ordering::Acquire);
        let timeout = self.retry_at.filter(|_| disconnected).map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        let _ = poll(&mut fds, timeout.as_ref());
        let _ = rustix::io::read(&self.links.wake, &mut [0u8; 8]);
    }

    fn accept(&self) {
        let Some(listener) = &self.listener else { return };
        while self.links.peers.lock().len() < PEERS_MAX {
            match listener.accept() {
                Ok(socket) => self.links.peers.lock().push(Peer::new(socket, false)),
                Err(_) => break,
            }
        }
    }

    fn exchange(&mut self) {
        let mut frames = Vec::new();
        let mut lost_active = false;
        self.links.peers.lock().retain_mut(|peer| {
            frames.append(&mut peer.read());
            peer.flush();
            lost_active |= peer.broken && peer.active;
            !peer.broken
        });
        if lost_active {
            tracing::info!(target: "netdev_dummy", "{}: connection closed", self.device);
            self.links.connected.store(false, Ordering::Release);
            self.retry_later();
        }
        // Without the lock: receiving takes the port's lock, and sending takes the port's and then the peers'.
        if let Some(port) = self.port.upgrade() {
            port.receive(frames, 0);
        }
    }
}

impl Peer {
    fn new(socket: OwnedFd, active: bool) -> Self {
        Self { socket: Arc::new(socket), active, received: Vec::new(), unsent: VecDeque::new(), broken: false }
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, text)
}

/// Connects to `unix:PATH` or `tcp:HOST:PORT` and returns a nonblocking socket.
fn connect(target: &str) -> io::Result<OwnedFd> {
    if let Some(path) = target.strip_prefix("unix:") {
        let socket = UnixStream::connect(path)?;
        socket.set_nonblocking(true)?;
        return Ok(socket.into());
    }
    let Some(host) = target.strip_prefix("tcp:") else {
        return Err(invalid(format!("{target:?} is neither unix:PATH nor tcp:HOST:PORT")));
    };
    let address = host.to_socket_addrs()?.next().ok_or_else(|| invalid(format!("{host:?} has no address")))?;
    let socket = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A listening socket. Closing it removes the path of a Unix socket.
#[derive(Debug)]
enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on `punix:PATH` or `ptcp:PORT[:HOST]`.
    fn open(name: &str) -> io::Result<Self> {
        if let Some(path) = name.strip_prefix("punix:") {
            let path = PathBuf::from(path);
            // Remove a stale socket of an earlier run, which would make binding fail.
            if UnixStream::connect(&path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
                std::fs::remove_file(&path)?;
            }
            let listener = UnixListener::bind(&path)?;
            listener.set_nonblocking(true)?;
            return Ok(Self::Unix(listener, path));
        }
        let Some(rest) = name.strip_prefix("ptcp:") else {
            return Err(invalid(format!("{name:?} is neither punix:PATH nor ptcp:PORT[:HOST]")));
        };
        let (port, host) = rest.split_once(':').unwrap_or((rest, "0.0.0.0"));
        let port: u16 = port.parse().map_err(|_| invalid(format!("{port:?} is not a port number")))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let listener = TcpListener::bind((host, port))?;
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Unix(listener, _) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Unix(listener, _) => {
                let (socket, _) = listener.accept()?;
                socket.set_nonblocking(true)?;
                Ok(socket.into())
            }
            Self::Tcp(listener) => {
                let (socket, _) = listener.accept()?;
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
                Ok(socket.into())
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}
