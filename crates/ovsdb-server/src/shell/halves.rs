//! The two directions of a connection, for two tasks. One can detect that the other end has gone without reading data
//! sent before.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::listeners::Stream;

type SharedStream = Arc<Mutex<Stream>>;

/// The reading half.
#[derive(Debug, Clone)]
pub(super) struct ReadHalf(SharedStream);

/// The writing half.
#[derive(Debug)]
pub(super) struct WriteHalf(SharedStream);

/// Parts the directions.
pub(super) fn split(stream: Stream) -> (ReadHalf, WriteHalf) {
    let shared = Arc::new(Mutex::new(stream));
    (ReadHalf(Arc::clone(&shared)), WriteHalf(shared))
}

fn lock(shared: &SharedStream) -> MutexGuard<'_, Stream> {
    // If a poll panicked, the stream itself reports whether it is still usable.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReadHalf {
    /// Sets the DSCP of outgoing packets.
    pub(super) fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        stream::set_dscp(lock(&self.0).socket(), dscp)
    }

    /// Waits until the other end has closed its direction, or the connection is broken. Data received before can
    /// still be read.
    pub(super) fn hung_up(&self) -> impl Future<Output = ()> + use<> {
        let watched = stream::watch(&**lock(&self.0));
        async move {
            match watched {
                Ok(watched) => watched.hung_up().await,
                // For want of file descriptors; then it is seen when the connection is read on.
                Err(_) => pending().await,
            }
        }
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_read(cx, buf)
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.0)).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_shutdown(cx)
    }
}
