//! TLS over asynchronous streams.

use crate::LOG_LIMIT;
use crate::identity::Tls;
use crate::verify::{EPROTO, Trust};
use rustls::pki_types::ServerName;
use std::io;
use std::net::IpAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use vlog::warn_rl;

/// A connection to a TLS server.
pub type ConnectedStream<S> = tokio_rustls::client::TlsStream<S>;
/// A connection from a TLS client.
pub type AcceptedStream<S> = tokio_rustls::server::TlsStream<S>;

/// Begins TLS on a connection to the server `name` at `address`. What goes wrong is logged in detail, and reported as a
/// protocol error.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &Tls,
    name: &str,
    address: IpAddr,
    stream: S,
) -> io::Result<ConnectedStream<S>> {
    let ready = tls.ready()?;
    let connected = TlsConnector::from(ready.client.clone()).connect(server_name(address), stream).await;
    finish(name, &ready.trust, connected)
}

/// Begins TLS on a connection from the client `name`. What goes wrong is logged in detail, and reported as a protocol
/// error.
pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &Tls,
    name: &str,
    stream: S,
) -> io::Result<AcceptedStream<S>> {
    let ready = tls.ready()?;
    let accepted = TlsAcceptor::from(ready.server.clone()).accept(stream).await;
    finish(name, &ready.trust, accepted)
}

/// The name of the server in the handshake: an address, which is not told to it.
pub(crate) fn server_name(address: IpAddr) -> ServerName<'static> {
    ServerName::IpAddress(address.into())
}

/// What becomes of a handshake.
pub(crate) fn finish<T>(name: &str, trust: &Trust, done: io::Result<T>) -> io::Result<T> {
    let stream = done.map_err(|e| {
        warn_rl!(&LOG_LIMIT, target: "stream_ssl", "{name}: TLS handshake failed: {e}");
        // What the operating system says is said of any connection.
        if e.raw_os_error().is_some() { e } else { io::Error::from_raw_os_error(EPROTO) }
    })?;
    trust.finish().map(|()| stream)
}
