//! TLS over a blocking socket, for sequential programs. One thread may read while another writes.

use crate::handshake::{finish, server_name};
use crate::identity::Tls;
use parking_lot::Mutex;
use rustls::ClientConnection;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Bytes read from the socket at once.
const CHUNK: usize = 4096;

/// A connection to a TLS server; clones are the same connection.
#[derive(Clone, Debug)]
pub struct Stream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    socket: TcpStream,
    /// Locked for operations on the connection, and not while waiting for the socket: the peer may wait for a read to finish
    /// before it accepts a write.
    connection: Mutex<ClientConnection>,
    /// Encrypted bytes to be written to the socket. Locked by the writer.
    sealed: Mutex<Vec<u8>>,
    /// Bytes from the socket that the connection has no space for. Locked by the reader.
    arrived: Mutex<Vec<u8>>,
}

impl Inner {
    /// Writes encrypted bytes, including the connection's own messages. If the socket fails, nothing is lost: the
    /// rest goes out with the next write.
    fn flush(&self, sealed: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let mut connection = self.connection.lock();
            while connection.wants_write() {
                connection.write_tls(sealed)?;
            }
            drop(connection);
            if sealed.is_empty() {
                return Ok(());
            }
            while !sealed.is_empty() {
                match (&self.socket).write(sealed) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(n) => _ = sealed.drain(..n),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.connection.lock().send_close_notify();
        let mut sealed = std::mem::take(&mut *self.sealed.lock());
        // The peer may be gone.
        let _ = self.flush(&mut sealed);
    }
}

/// Starts TLS on a connection to the server `name`. Errors are logged in detail, and returned as a protocol error.
pub fn connect(tls: &Tls, name: &str, socket: TcpStream) -> io::Result<Stream> {
    let ready = tls.ready()?;
    let address = socket.peer_addr()?.ip();
    let shake = || {
        let mut connection = ClientConnection::new(Arc::clone(&ready.client), server_name(&ready, name, address))
            .map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut &socket)?;
        }
        // The last message of the handshake may be unsent yet.
        while connection.wants_write() {
            connection.write_tls(&mut &socket)?;
        }
        Ok(connection)
    };
    let connection = finish(name, "SSL_connect", &ready.trust, shake())?;
    Ok(Stream(Arc::new(Inner {
        socket,
        connection: Mutex::new(connection),
        sealed: Mutex::default(),
        arrived: Mutex::default(),
    })))
}

impl Stream {
    /// Sets whether a read without data returns at once, with [`io::ErrorKind::WouldBlock`].
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.0.socket.set_nonblocking(on)
    }
}

impl Read for Stream {
    /// Waits without the lock on the connection, so that another thread may write.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let inner = &*self.0;
        let mut arrived = inner.arrived.lock();
        loop {
            match inner.connection.lock().reader().read(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // A peer that closes the connection without an alert is gone as well.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            if arrived.is_empty() {
                let mut chunk = [0; CHUNK];
                let n = (&inner.socket).read(&mut chunk)?;
                arrived.extend_from_slice(chunk.get(..n).unwrap_or_default());
            }
            let mut connection = inner.connection.lock();
            // The connection accepts some, as none of its data is unread; the rest, when the reader has consumed that. (An empty
            // slice marks the end of the stream.)
            let mut left = &arrived[..];
            connection.read_tls(&mut left)?;
            let taken = arrived.len() - left.len();
            arrived.drain(..taken);
            connection.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            drop(connection);
            // A reply to a message of TLS itself. A concurrent writer also sends it.
            if let Some(mut sealed) = inner.sealed.try_lock() {
                match inner.flush(&mut sealed) {
                    // It goes out with the next write.
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    done => done?,
                }
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let inner = &*self.0;
        let mut sealed = inner.sealed.lock();
        inner.flush(&mut sealed)?;
        let n = inner.connection.lock().writer().write(buf)?;
        match inner.flush(&mut sealed) {
            // It was accepted, and goes out with the next write.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(n),
            done => done.map(|()| n),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush(&mut self.0.sealed.lock())
    }
}
