//! TLS over asynchronous streams.

use crate::LOG_LIMIT;
use crate::identity::{Ready, Tls, TlsError};
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

/// A TLS connection after its handshake.
#[derive(Debug)]
pub struct TlsStream<S> {
    stream: tokio_rustls::TlsStream<S>,
    peer_name: Option<String>,
}

impl<S> TlsStream<S> {
    fn new(stream: tokio_rustls::TlsStream<S>, trust: &Trust) -> Self {
        // Without verification the name proves nothing.
        let shown = stream.get_ref().1.peer_certificates().filter(|_| !matches!(trust, Trust::All));
        let peer_name = shown.and_then(|certificates| common_name(certificates.first()?));
        Self { stream, peer_name }
    }

    /// The underlying stream.
    pub fn get_ref(&self) -> &S {
        self.stream.get_ref().0
    }

    /// The common name in the peer's certificate, if the CA signed it.
    pub fn peer_name(&self) -> Option<&str> {
        self.peer_name.as_deref()
    }
}

/// Starts TLS on a connection to the server `name` at `address`. Errors are logged in detail, and returned as a
/// protocol error.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &Tls,
    name: &str,
    address: IpAddr,
    stream: S,
) -> io::Result<TlsStream<S>> {
    let ready = tls.ready()?;
    let connected = TlsConnector::from(ready.client.clone()).connect(server_name(&ready, name, address), stream).await;
    finish(name, "SSL_connect", &ready.trust, connected).map(|stream| TlsStream::new(stream.into(), &ready.trust))
}

/// Starts TLS on a connection from the client `name`. Errors are logged in detail, and returned as a protocol
/// error. Only servers can supply the CA certificate for bootstrapping, not clients.
pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(tls: &Tls, name: &str, stream: S) -> io::Result<TlsStream<S>> {
    let ready = tls.ready().inspect_err(|e| {
        // Missing configuration is logged where it is detected.
        if !matches!(e, TlsError::Missing(_)) {
            err_rl!(&LOG_LIMIT, target: "stream_ssl", "{name}: {e}");
        }
    })?;
    let accepted = TlsAcceptor::from(ready.server.clone()).accept(stream).await;
    if let Some(indicated) = accepted.as_ref().ok().and_then(|stream| stream.get_ref().1.server_name()) {
        tracing::debug!(target: "stream_ssl", "connection indicated server name {indicated}");
    }
    finish(name, "SSL_accept", &ready.trust, accepted).map(|stream| TlsStream::new(stream.into(), &ready.trust))
}

/// The server name for `remote` (`ssl:HOST[:PORT]`) in the handshake: the configured one, or HOST. An
/// address is not sent to the server (RFC 6066 section 3).
pub(crate) fn server_name(ready: &Ready, remote: &str, address: IpAddr) -> ServerName<'static> {
    let name = ready.server_name.clone().or_else(|| dns_name(host(remote)?));
    name.unwrap_or_else(|| ServerName::IpAddress(address.into()))
}

/// HOST of `ssl:HOST[:PORT]`, unless it is an IPv6 address.
fn host(remote: &str) -> Option<&str> {
    let target = remote.strip_prefix("ssl:")?;
    let (host, port) = target.split_once(':').unwrap_or((target, ""));
    (!port.contains(':') && !host.starts_with('[')).then_some(host)
}

/// A server name for the handshake; `None` for an address or an invalid name.
pub(crate) fn dns_name(name: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(name.to_owned()).ok().filter(|name| matches!(name, ServerName::DnsName(_)))
}

/// The peer's alert, as OpenSSL words it, which scripts look for.
fn alert_text(error: &io::Error) -> Option<String> {
    let Some(rustls::Error::AlertReceived(alert)) = error.get_ref()?.downcast_ref() else { return None };
    let number = u8::from(*alert);
    let mut words = String::new();
    for letter in format!("{alert:?}").chars() {
        if letter.is_uppercase() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    // The alerts of SSL 3.0, of TLS 1.0 and of TLS 1.3.
    let version = match number {
        0..=47 => "ssl/tls",
        109 | 116 => "tlsv13",
        _ => "tlsv1",
    };
    let words = words.replace(" c a", " ca");
    Some(format!("error:0A{:06X}:SSL routines::{version} alert{words}", 1000 + u32::from(number)))
}

/// Handles the result of a handshake, which failed in the function of OpenSSL that corresponds to `step`.
pub(crate) fn finish<T>(name: &str, step: &str, trust: &Trust, done: io::Result<T>) -> io::Result<T> {
    let stream = done.map_err(|e| {
        match alert_text(&e) {
            Some(alert) => warn_rl!(&LOG_LIMIT, target: "stream_ssl", "{step}: {alert}"),
            None => warn_rl!(&LOG_LIMIT, target: "stream_ssl", "{name}: TLS handshake failed: {e}"),
        }
        // Errors of the operating system are those of any connection.
        if e.raw_os_error().is_some() { e } else { io::Error::from_raw_os_error(EPROTO) }
    })?;
    trust.finish().map(|()| stream)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.get_mut().stream).poll_read(cx, buf) {
            // A peer that closes the connection without an alert is gone as well.
            Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    /// Accepted data may wait in the stream for space in the socket, until it is flushed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_are_worded_as_by_openssl() {
        use rustls::AlertDescription as Alert;
        for (alert, text) in [
            (Alert::HandshakeFailure, "error:0A000410:SSL routines::ssl/tls alert handshake failure"),
            (Alert::UnknownCA, "error:0A000418:SSL routines::tlsv1 alert unknown ca"),
            (Alert::ProtocolVersion, "error:0A00042E:SSL routines::tlsv1 alert protocol version"),
            (Alert::CertificateRequired, "error:0A00045C:SSL routines::tlsv13 alert certificate required"),
        ] {
            let error = io::Error::other(rustls::Error::AlertReceived(alert));
            assert_eq!(alert_text(&error).as_deref(), Some(text));
        }
        assert_eq!(alert_text(&io::Error::other("x")), None);
    }

    #[test]
    fn hosts_in_remotes() {
        for (remote, expected) in [
            ("ssl:db.example.org:6640", Some("db.example.org")),
            ("ssl:localhost", Some("localhost")),
            ("ssl:127.0.0.1:1", Some("127.0.0.1")),
            ("ssl:[::1]:6640", None),
            ("ssl:fe80::1", None),
            ("pssl:1", None),
        ] {
            assert_eq!(host(remote), expected, "{remote}");
        }
        assert!(dns_name("localhost").is_some());
        assert_eq!((dns_name("127.0.0.1"), dns_name("")), (None, None));
    }
}
