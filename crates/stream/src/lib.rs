//! Byte streams by Open vSwitch's connection methods (ovsdb(7), "Connection Methods"): `unix:FILE`,
//! `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]`, and the passive `punix:FILE`, `ptcp:[PORT][:HOST]`, `pssl:[PORT][:HOST]`, and
//! `pfd:FD`, a listening socket that the process inherited.
//!
//! [`connect`] makes a connection, [`listen`] returns a [`Listener`] that accepts them. Accepting takes two steps, so that
//! a client with a slow TLS handshake does not delay others; either end has [`HANDSHAKE_MAX`] for a handshake.

use rustix::net::{AddressFamily, sockopt};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tls::{Tls, TlsStream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

mod watch;
pub use watch::{Watched, watch};

/// The default port of OpenFlow.
pub const OFP_PORT: u16 = 6653;
/// The default DSCP: network control (RFC 4594 section 3.1).
pub const DSCP: u8 = 48;
/// Backlog of connections to accept.
const BACKLOG: u32 = 64;
/// Time limit of a TLS handshake.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Any kind of stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug {
    /// The common name in the peer's certificate, if a trusted CA signed it.
    fn peer_name(&self) -> Option<&str> {
        None
    }

    /// The underlying socket.
    fn socket(&self) -> BorrowedFd<'_>;
}

impl Stream for UnixStream {
    fn socket(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

impl Stream for TcpStream {
    fn socket(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

impl Stream for TlsStream<TcpStream> {
    fn socket(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }

    fn peer_name(&self) -> Option<&str> {
        TlsStream::peer_name(self)
    }
}

/// Connection methods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// `unix`
    Unix,
    /// `tcp`
    Tcp,
    /// `ssl`
    Ssl,
    /// `punix`
    PassiveUnix,
    /// `ptcp`
    PassiveTcp,
    /// `pssl`
    PassiveSsl,
    /// `pfd`
    PassiveFd,
}

impl Method {
    /// Splits a name into its method and the rest.
    pub fn of(name: &str) -> Option<(Self, &str)> {
        let (method, rest) = name.split_once(':')?;
        let method = match method {
            "unix" => Self::Unix,
            "tcp" => Self::Tcp,
            "ssl" => Self::Ssl,
            "punix" => Self::PassiveUnix,
            "ptcp" => Self::PassiveTcp,
            "pssl" => Self::PassiveSsl,
            "pfd" => Self::PassiveFd,
            _ => return None,
        };
        Some((method, rest))
    }

    /// Returns true for methods that listen.
    pub fn is_passive(self) -> bool {
        matches!(self, Self::PassiveUnix | Self::PassiveTcp | Self::PassiveSsl | Self::PassiveFd)
    }
}

/// An unknown method: the operating system's error for unknown address families.
fn unknown_method() -> io::Error {
    io::Error::from_raw_os_error(97) // EAFNOSUPPORT
}

/// `HOST[:PORT]` with an explicit port.
fn with_port(address: &str, port: u16) -> String {
    match address.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && (!host.contains(':') || host.ends_with(']')) => address.to_owned(),
        _ => format!("{address}:{port}"),
    }
}

/// The address of `tcp:HOST[:PORT]` or `ssl:HOST[:PORT]`, unless HOST is a name to resolve.
pub fn numeric_address(name: &str, default_port: u16) -> Option<SocketAddr> {
    match Method::of(name)? {
        (Method::Tcp | Method::Ssl, address) => with_port(address, default_port).parse().ok(),
        _ => None,
    }
}

/// Creates a socket for this address that sends with this DSCP, as do the connections that it accepts.
fn tcp_socket(address: SocketAddr, dscp: u8) -> io::Result<TcpSocket> {
    let class = u32::from(dscp) << 2;
    if address.is_ipv4() {
        let socket = TcpSocket::new_v4()?;
        socket.set_tos_v4(class)?;
        Ok(socket)
    } else {
        let socket = TcpSocket::new_v6()?;
        socket.set_tclass_v6(class)?;
        Ok(socket)
    }
}

/// Sets the DSCP of the packets of a connection, or of connections that a listening socket accepts from now on; does
/// nothing to a socket that is not an IP socket.
pub fn set_dscp(socket: BorrowedFd<'_>, dscp: u8) -> io::Result<()> {
    let class = u32::from(dscp) << 2;
    match sockopt::socket_domain(socket)? {
        AddressFamily::INET => sockopt::set_ip_tos(socket, class as u8)?,
        AddressFamily::INET6 => sockopt::set_ipv6_tclass(socket, class)?,
        _ => {}
    }
    Ok(())
}

/// Connects to `name`, over TCP with the DSCP `dscp`, and passes the address to the callback before connecting.
pub async fn connect(
    name: &str,
    dscp: u8,
    tls: &Tls,
    mut on_address: impl FnMut(SocketAddr),
) -> io::Result<Box<dyn Stream>> {
    let (method, rest) = Method::of(name).ok_or_else(unknown_method)?;
    match method {
        Method::Unix => return Ok(Box::new(UnixStream::connect(rest).await?)),
        Method::Ssl => tls.check()?,
        Method::Tcp => {}
        _ => return Err(unknown_method()),
    }
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in tokio::net::lookup_host(with_port(rest, OFP_PORT)).await? {
        on_address(address);
        match connect_tcp(address, dscp).await {
            Ok(stream) if method == Method::Tcp => return Ok(Box::new(stream)),
            Ok(stream) => return Ok(Box::new(in_time(tls::connect(tls, name, address.ip(), stream)).await?)),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

async fn connect_tcp(address: SocketAddr, dscp: u8) -> io::Result<TcpStream> {
    let stream = tcp_socket(address, dscp)?.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A handshake that fails if it takes too long.
async fn in_time<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = tokio::time::timeout(HANDSHAKE_MAX, handshake).await;
    done.unwrap_or_else(|_| Err(io::Error::from_raw_os_error(110))) // ETIMEDOUT
}

/// A listening socket. A socket in the file system stays when it is dropped, as another process may have replaced it by then,
/// unless it is [`Listener::removed_at_end`].
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    tls: Option<Arc<Tls>>,
    /// Absolute path of the socket in the file system: a daemon changes its directory once it has detached.
    path: Option<PathBuf>,
    removed_at_end: bool,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Listens at `name`, with the DSCP `dscp` over TCP. A unix socket replaces a left-over one at its path,
/// and only its owner and group may connect to it.
pub fn listen(name: &str, dscp: u8, tls: &Arc<Tls>) -> io::Result<Listener> {
    let (method, rest) = Method::of(name).ok_or_else(unknown_method)?;
    if method == Method::PassiveSsl {
        tls.check()?;
    }
    let socket = match method {
        Method::PassiveUnix => listen_unix(Path::new(rest))?,
        Method::PassiveTcp | Method::PassiveSsl => listen_tcp(rest, dscp)?,
        Method::PassiveFd => listen_inherited(rest)?,
        _ => return Err(unknown_method()),
    };
    let tls = (method == Method::PassiveSsl).then(|| Arc::clone(tls));
    let path = (method == Method::PassiveUnix).then(|| std::path::absolute(rest)).transpose()?;
    Ok(Listener { socket, tls, path, removed_at_end: false })
}

fn listen_unix(path: &Path) -> io::Result<Socket> {
    UnixListener::from_std(unixctl::socket::listen(path)?).map(Socket::Unix)
}

/// Listens on the descriptor `FD` of a listening socket that this process inherited. The descriptor itself stays open, so
/// that the socket can be listened on again.
fn listen_inherited(number: &str) -> io::Result<Socket> {
    let invalid = || io::Error::from_raw_os_error(9); // EBADF
    let number: u32 = number.parse().map_err(|_| invalid())?;
    // Duplicated by its name, since a number is no proof that the descriptor is open. A socket cannot be opened there, only
    // examined; so the copy is requested from this process itself.
    let own = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
    let number = i32::try_from(number).map_err(|_| invalid())?;
    let copy = rustix::process::pidfd_getfd(&own, number, rustix::process::PidfdGetfdFlags::empty())?;
    if !sockopt::socket_acceptconn(&copy)? {
        return Err(io::Error::from_raw_os_error(22)); // EINVAL
    }
    match sockopt::socket_domain(&copy)? {
        AddressFamily::UNIX => {
            let listener = std::os::unix::net::UnixListener::from(copy);
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener).map(Socket::Unix)
        }
        _ => {
            let listener = std::net::TcpListener::from(copy);
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener).map(Socket::Tcp)
        }
    }
}

/// Listens at `[PORT][:HOST]`, and logs the port if the system chose it: for port 0.
fn listen_tcp(text: &str, dscp: u8) -> io::Result<Socket> {
    let (port, host) = text.split_once(':').unwrap_or((text, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port: u16 = if port.is_empty() {
        OFP_PORT
    } else {
        port.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("bad port number \"{port}\"")))?
    };
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        let bound = tcp_socket(address, dscp).and_then(|socket| {
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        });
        match bound {
            Ok(listener) => {
                if address.port() == 0
                    && let Ok(bound) = listener.local_addr()
                {
                    tracing::info!(target: "socket_util", "{text}: listening on port {}", bound.port());
                }
                return Ok(Socket::Tcp(listener));
            }
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = self.path.as_ref().filter(|_| self.removed_at_end) {
            // Nothing can be done about a failure, such as a file that is already gone.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Listener {
    /// Makes the drop of this listener remove its socket from the file system.
    #[must_use]
    pub fn removed_at_end(mut self) -> Self {
        self.removed_at_end = true;
        self
    }

    /// The port of a TCP socket, which the system may have assigned.
    pub fn port(&self) -> Option<u16> {
        match &self.socket {
            Socket::Unix(_) => None,
            Socket::Tcp(listener) => Some(listener.local_addr().ok()?.port()),
        }
    }

    /// The listening socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix(listener) => listener.as_fd(),
            Socket::Tcp(listener) => listener.as_fd(),
        }
    }

    /// Accepts the next connection.
    pub async fn accept(&self) -> io::Result<Incoming> {
        Ok(match &self.socket {
            Socket::Unix(listener) => Incoming::Unix(listener.accept().await?.0),
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Incoming::Tcp { stream, address, tls: self.tls.clone() }
            }
        })
    }
}

/// An accepted connection.
#[derive(Debug)]
pub enum Incoming {
    /// To a unix socket.
    Unix(UnixStream),
    /// To a TCP socket.
    Tcp {
        /// The connection.
        stream: TcpStream,
        /// The peer's address.
        address: SocketAddr,
        /// The TLS configuration, for `pssl`.
        tls: Option<Arc<Tls>>,
    },
}

impl fmt::Display for Incoming {
    /// `unix`, `tcp:HOST:PORT`, `ssl:HOST:PORT`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(_) => f.write_str("unix"),
            Self::Tcp { address, tls: None, .. } => write!(f, "tcp:{address}"),
            Self::Tcp { address, tls: Some(_), .. } => write!(f, "ssl:{address}"),
        }
    }
}

impl Incoming {
    /// Returns true if a handshake precedes the stream.
    pub fn needs_handshake(&self) -> bool {
        matches!(self, Self::Tcp { tls: Some(_), .. })
    }

    /// The stream, once the handshake is done. TLS errors are logged.
    pub async fn into_stream(self) -> io::Result<Box<dyn Stream>> {
        let name = self.to_string();
        Ok(match self {
            Self::Unix(stream) => Box::new(stream),
            Self::Tcp { stream, tls: None, .. } => Box::new(stream),
            Self::Tcp { stream, tls: Some(tls), .. } => Box::new(in_time(tls::accept(&tls, &name, stream)).await?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let address = |name| numeric_address(name, OFP_PORT).map(|a| a.to_string());
        assert_eq!(address("tcp:1.2.3.4").as_deref(), Some("1.2.3.4:6653"));
        assert_eq!(address("ssl:1.2.3.4:99").as_deref(), Some("1.2.3.4:99"));
        assert_eq!(address("tcp:[::1]:6633").as_deref(), Some("[::1]:6633"));
        assert_eq!(address("tcp:[::1]").as_deref(), Some("[::1]:6653"));
        for none in ["tcp:controller", "unix:/1.2.3.4", "ptcp:1", "tcp:"] {
            assert_eq!(address(none), None, "{none}");
        }
    }

    #[test]
    fn methods() {
        assert_eq!(Method::of("pssl:1:2"), Some((Method::PassiveSsl, "1:2")));
        assert!(Method::of("ptcp:").is_some_and(|(method, _)| method.is_passive()));
        assert!(Method::of("unix:x").is_some_and(|(method, _)| !method.is_passive()));
        assert_eq!((Method::of("udp:x"), Method::of("tcp")), (None, None));
    }

    #[tokio::test]
    async fn the_log_names_a_port_that_the_system_chose() {
        let log = vlog::Captured::new(&["socket_util"], vlog::Level::Info);
        let listener = log.during(|| listen("ptcp:0:127.0.0.1", DSCP, &Arc::default()).expect("it listens"));
        let port = listener.port().expect("over TCP");
        assert_eq!(log.take(), [format!("0:127.0.0.1: listening on port {port}")]);
    }

    /// The first of a name's two addresses does not answer.
    #[tokio::test]
    async fn names_have_several_addresses() {
        let listener = listen("ptcp:0:127.0.0.1", DSCP, &Arc::default()).expect("it listens");
        let mut seen = Vec::new();
        let name = format!("tcp:localhost:{}", listener.port().expect("a port"));
        let stream = connect(&name, DSCP, &Tls::default(), |address| seen.push(address)).await.expect("it connects");
        assert!(seen.last().is_some_and(SocketAddr::is_ipv4), "{seen:?}");
        assert_eq!(stream.peer_name(), None);
    }

    /// The DSCP of a socket's packets.
    fn dscp(socket: BorrowedFd<'_>) -> u8 {
        match sockopt::socket_domain(socket).expect("a socket") {
            AddressFamily::INET => sockopt::ip_tos(socket).expect("it has one") >> 2,
            _ => (sockopt::ipv6_tclass(socket).expect("it has one") >> 2) as u8,
        }
    }

    #[tokio::test]
    async fn packets_are_of_the_class_that_was_asked_for() {
        for host in ["127.0.0.1", "[::1]"] {
            let listener = listen(&format!("ptcp:0:{host}"), 10, &Arc::default()).expect("it listens");
            let name = format!("tcp:{host}:{}", listener.port().expect("a port"));
            let connect = async |dscp| connect(&name, dscp, &Tls::default(), |_| ()).await.expect("it connects");
            let client = connect(63).await;
            let server = listener.accept().await.expect("a client").into_stream().await.expect("a stream");
            assert_eq!((dscp(client.socket()), dscp(server.socket()), dscp(listener.socket())), (63, 10, 10));
            set_dscp(client.socket(), 0).expect("it can be set");
            set_dscp(listener.socket(), DSCP).expect("it can be set");
            let _other = connect(1).await;
            let next = listener.accept().await.expect("a client").into_stream().await.expect("a stream");
            assert_eq!((dscp(client.socket()), dscp(server.socket()), dscp(next.socket())), (0, 10, 48));
        }
        let (one, _other) = UnixStream::pair().expect("a pair");
        set_dscp(one.socket(), 1).expect("it does nothing");
    }

    /// Unread data does not hide that the peer has closed the connection, and does not look like a close.
    #[tokio::test]
    async fn a_closed_peer_is_detected() {
        use tokio::io::AsyncWriteExt;
        let listener = listen("ptcp:0:127.0.0.1", DSCP, &Arc::default()).expect("it listens");
        let name = format!("tcp:127.0.0.1:{}", listener.port().expect("a port"));
        let mut client = connect(&name, DSCP, &Tls::default(), |_| ()).await.expect("it connects");
        let server = listener.accept().await.expect("a client").into_stream().await.expect("a stream");
        let watched = watch(&*server).expect("it can be watched");
        let mut gone = std::pin::pin!(watched.hung_up());
        for _ in 0..10 {
            client.write_all(&[0; 1000]).await.expect("it is sent");
            tokio::select! {
                biased;
                () = &mut gone => panic!("it is there"),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
        drop(client);
        gone.await;
    }

    #[tokio::test]
    async fn an_inherited_socket_is_listened_on() {
        use std::os::fd::AsRawFd;
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("socket");
        let inherited = std::os::unix::net::UnixListener::bind(&path).expect("it listens");
        let name = format!("pfd:{}", inherited.as_raw_fd());
        for _ in 0..2 {
            let listener = listen(&name, DSCP, &Arc::default()).expect("it listens");
            let connected = connect(&format!("unix:{}", path.display()), DSCP, &Tls::default(), |_| ()).await;
            connected.expect("it connects");
            listener.accept().await.expect("a client");
        }
        let (one, _other) = UnixStream::pair().expect("a pair");
        for wrong in [format!("pfd:{}", one.as_raw_fd()), "pfd:x".into(), "pfd:-1".into(), "pfd:999999".into()] {
            assert!(listen(&wrong, DSCP, &Arc::default()).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn unix_sockets_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("d".repeat(100));
        std::fs::create_dir(&path).expect("a folder");
        // Any path that is too long for a socket address will do.
        for path in [directory.path().join("socket"), path.join("socket")] {
            let listener = listen(&format!("punix:{}", path.display()), DSCP, &Arc::default()).expect("it listens");
            let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o007, 0, "{mode:o}");
            assert_eq!(listener.port(), None);
            drop(listener);
            assert!(path.exists());
            drop(listen(&format!("punix:{}", path.display()), DSCP, &Arc::default()).expect("again").removed_at_end());
            assert!(!path.exists());
        }
    }
}
