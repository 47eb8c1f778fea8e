//! How sockets of OpenFlow connections are made, by the text that names them.

use super::remote::Remote;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixStream};

/// The port that OpenFlow uses unless one is named.
pub const OFP_PORT: u16 = 6653;
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 64;
/// The class of packets unless one is named: network control (RFC 4594 section 3.1).
pub const DSCP: u8 = 48;

/// Any kind of stream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A socket that others connect to.
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        })
    }
}

/// Listens at `path`, in the place of whoever left a socket there.
pub(super) fn listen_unix(path: &str) -> io::Result<Listener> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    UnixListener::bind(path).map(Listener::Unix)
}

/// Listens at `[PORT][:HOST]`.
pub(super) fn listen_tcp(address: &str, dscp: u8) -> io::Result<Listener> {
    let (port, host) = address.split_once(':').unwrap_or((address, ""));
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
            Ok(listener) => return Ok(Listener::Tcp(listener)),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// A socket for this address whose packets, and those of connections that it accepts, are of this class.
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

/// `HOST[:PORT]` with the port written out.
fn with_port(address: &str, port: u16) -> String {
    match address.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && (!host.contains(':') || host.ends_with(']')) => address.to_owned(),
        _ => format!("{address}:{port}"),
    }
}

/// The address that `tcp:HOST[:PORT]` is, if HOST is no name that must be looked up first.
pub fn numeric_address(target: &str, default_port: u16) -> Option<SocketAddr> {
    with_port(target.strip_prefix("tcp:").or_else(|| target.strip_prefix("ssl:"))?, default_port).parse().ok()
}

/// Connects to a remote (`unix:`, `tcp:`), and tells it of its address on the way.
pub(super) async fn connect(remote: &Remote) -> io::Result<Box<dyn Stream>> {
    if let Some(path) = remote.target.strip_prefix("unix:") {
        return Ok(Box::new(UnixStream::connect(path).await?));
    }
    let address = with_port(remote.target.strip_prefix("tcp:").unwrap_or(&remote.target), OFP_PORT);
    let address = tokio::net::lookup_host(address).await?.next();
    let address = address.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))?;
    remote.set_address(address);
    let stream = tcp_socket(address, remote.dscp)?.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let address = |target| numeric_address(target, OFP_PORT).map(|a| a.to_string());
        assert_eq!(address("tcp:1.2.3.4").as_deref(), Some("1.2.3.4:6653"));
        assert_eq!(address("ssl:1.2.3.4:99").as_deref(), Some("1.2.3.4:99"));
        assert_eq!(address("tcp:[::1]:6633").as_deref(), Some("[::1]:6633"));
        assert_eq!(address("tcp:[::1]").as_deref(), Some("[::1]:6653"));
        for none in ["tcp:controller", "unix:/1.2.3.4", "ptcp:1", "tcp:"] {
            assert_eq!(address(none), None, "{none}");
        }
    }
}
