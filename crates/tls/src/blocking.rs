//! TLS over a blocking socket, for programs that do one thing after another. One thread may read while another writes.

use crate::handshake::{finish, server_name};
use crate::identity::Tls;
use parking_lot::Mutex;
use rustls::ClientConnection;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// A connection to a TLS server; clones are the same connection.
#[derive(Clone, Debug)]
pub struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    socket: TcpStream,
    connection: Mutex<ClientConnection>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut connection = self.connection.lock();
        connection.send_close_notify();
        // The other end may be gone.
        while connection.wants_write() && connection.write_tls(&mut &self.socket).is_ok_and(|n| n > 0) {}
    }
}

/// Begins TLS on a connection to the server `name`. What goes wrong is logged in detail, and reported as a protocol error.
pub fn connect(tls: &Tls, name: &str, socket: TcpStream) -> io::Result<Stream> {
    let ready = tls.ready()?;
    let address = socket.peer_addr()?.ip();
    let shake = || {
        let mut connection =
            ClientConnection::new(Arc::clone(&ready.client), server_name(address)).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut &socket)?;
        }
        // What ends the handshake may be unsent yet.
        while connection.wants_write() {
            connection.write_tls(&mut &socket)?;
        }
        Ok(connection)
    };
    let connection = finish(name, &ready.trust, shake())?;
    Ok(Stream(Arc::new(Inner { socket, connection: Mutex::new(connection) })))
}

impl Stream {
    /// Whether reading returns at once if nothing is there, with [`io::ErrorKind::WouldBlock`].
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.0.socket.set_nonblocking(on)
    }
}

impl Read for Stream {
    /// Waits without holding the connection up, so that another thread may write.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let inner = &*self.0;
        // As much as the connection takes at once.
        let mut sealed = [0; 4096];
        loop {
            match inner.connection.lock().reader().read(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // Whoever goes without a word is gone as well.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            let n = (&inner.socket).read(&mut sealed)?;
            let mut received = sealed.get(..n).unwrap_or_default();
            let mut connection = inner.connection.lock();
            loop {
                connection.read_tls(&mut received)?;
                connection.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                if received.is_empty() {
                    break;
                }
            }
            while connection.wants_write() {
                connection.write_tls(&mut &inner.socket)?;
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let inner = &*self.0;
        let mut connection = inner.connection.lock();
        let n = connection.writer().write(buf)?;
        while connection.wants_write() {
            connection.write_tls(&mut &inner.socket)?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
