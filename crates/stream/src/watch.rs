//! Detects that the peer has closed a connection, without reading the data in front of that.

use crate::Stream;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A connection's socket, watched independently of its reader.
#[derive(Debug)]
pub struct Watched(AsyncFd<OwnedFd>);

/// Watches a connection through a duplicate of its file descriptor. Errors: no descriptor is left.
///
/// # Panics
///
/// Outside of a tokio runtime with I/O.
pub fn watch(stream: &(impl Stream + ?Sized)) -> io::Result<Watched> {
    let socket = stream.socket().as_fd().try_clone_to_owned()?;
    // The lint concerns descriptors that other code may close: this one has a single owner.
    #[expect(deprecated)]
    AsyncFd::with_interest(socket, Interest::READABLE).map(Watched)
}

impl Watched {
    /// Waits until the peer has shut down its sending side, or the connection is broken.
    pub async fn hung_up(&self) {
        loop {
            match self.0.ready(Interest::READABLE).await {
                Ok(guard) if guard.ready().is_read_closed() => return,
                // There is data to read; more data makes the socket ready again.
                Ok(mut guard) => guard.clear_ready(),
                // The runtime ends.
                Err(_) => return,
            }
        }
    }
}
