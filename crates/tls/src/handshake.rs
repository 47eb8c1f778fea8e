//! TLS over asynchronous streams.

use crate::LOG_LIMIT;
use crate::identity::{Tls, TlsError};
use crate::names::common_name;
use crate::verify::{EPROTO, Trust};
use rustls::pki_types::ServerName;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use vlog::{err_rl, warn_rl};

/// A connection by TLS, of which the handshake is done.
#[derive(Debug)]
pub struct TlsStream<S> {
    stream: tokio_rustls::TlsStream<S>,
    peer_name: Option<String>,
}

impl<S> TlsStream<S> {
    fn new(stream: tokio_rustls::TlsStream<S>, trust: &Trust) -> Self {
        // Of whom nobody vouches for, the name is worth nothing.
        let shown = stream.get_ref().1.peer_certificates().filter(|_| !matches!(trust, Trust::All));
        let peer_name = shown.and_then(|certificates| common_name(certificates.first()?));
        Self { stream, peer_name }
    }

    /// The common name in the peer's certificate, if the CA vouches for it.
    pub fn peer_name(&self) -> Option<&str> {
        self.peer_name.as_deref()
    }
}

/// Begins TLS on a connection to the server `name` at `address`. What goes wrong is logged in detail, and reported as a
/// protocol error.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &Tls,
    name: &str,
    address: IpAddr,
    stream: S,
) -> io::Result<TlsStream<S>> {
    let ready = tls.ready()?;
    let connected = TlsConnector::from(ready.client.clone()).connect(server_name(address), stream).await;
    finish(name, &ready.trust, connected).map(|stream| TlsStream::new(stream.into(), &ready.trust))
}

/// Begins TLS on a connection from the client `name`. What goes wrong is logged in detail, and reported as a protocol
/// error. A CA that is yet to be learned is learned from servers only, not from whoever connects.
pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(tls: &Tls, name: &str, stream: S) -> io::Result<TlsStream<S>> {
    let ready = tls.ready().inspect_err(|e| {
        // What is not configured is logged where that is found.
        if !matches!(e, TlsError::Missing(_)) {
            err_rl!(&LOG_LIMIT, target: "stream_ssl", "{name}: {e}");
        }
    })?;
    let accepted = TlsAcceptor::from(ready.server.clone()).accept(stream).await;
    finish(name, &ready.trust, accepted).map(|stream| TlsStream::new(stream.into(), &ready.trust))
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.get_mut().stream).poll_read(cx, buf) {
            // Whoever goes without a word is gone as well.
            Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    /// What was taken may wait in the stream for room in the socket, until it is flushed.
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
