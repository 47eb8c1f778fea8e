//! TLS over a blocking socket, for programs that do one thing after another. One thread may read while another writes.

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
    /// Held while it is used, and not while the socket is waited for: what is read may be what the other end waits to get
    /// rid of before it takes what is written.
    connection: Mutex<ClientConnection>,
    /// What is sealed and still to be written to the socket. Held by who writes.
    sealed: Mutex<Vec<u8>>,
    /// What was read from the socket and the connection had no room for. Held by who reads.
    arrived: Mutex<Vec<u8>>,
}

impl Inner {
    /// Writes what is sealed, and what the connection has to say by then. Nothing of it is lost if the socket fails: what
    /// is left is written with the next.
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
        // The other end may be gone.
        let _ = self.flush(&mut sealed);
    }
}

/// Begins TLS on a connection to the server `name`. What goes wrong is logged in detail, and reported as a protocol error.
pub fn connect(tls: &Tls, name: &str, socket: TcpStream) -> io::Result<Stream> {
    let ready = tls.ready()?;
    let address = socket.peer_addr()?.ip();
    let shake = || {
        let mut connection = ClientConnection::new(Arc::clone(&ready.client), server_name(&ready, name, address))
            .map_err(io::Error::other)?;
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
    Ok(Stream(Arc::new(Inner {
        socket,
        connection: Mutex::new(connection),
        sealed: Mutex::default(),
        arrived: Mutex::default(),
    })))
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
        let mut arrived = inner.arrived.lock();
        loop {
            match inner.connection.lock().reader().read(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // Whoever goes without a word is gone as well.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            if arrived.is_empty() {
                let mut chunk = [0; CHUNK];
                let n = (&inner.socket).read(&mut chunk)?;
                arrived.extend_from_slice(chunk.get(..n).unwrap_or_default());
            }
            let mut connection = inner.connection.lock();
            // It takes some, as nothing in it waits to be read; what is left, when the reader has had that. (Of nothing, it
            // takes that there is no more to come.)
            let mut left = &arrived[..];
            connection.read_tls(&mut left)?;
            let taken = arrived.len() - left.len();
            arrived.drain(..taken);
            connection.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            drop(connection);
            // An answer to a message of TLS itself. Whoever writes right now sees to it, too.
            if let Some(mut sealed) = inner.sealed.try_lock() {
                match inner.flush(&mut sealed) {
                    // It waits for the next that is written.
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
            // It was taken, and is written with the next.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(n),
            done => done.map(|()| n),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush(&mut self.0.sealed.lock())
    }
}
