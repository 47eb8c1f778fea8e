//! Whether the other end of a connection has gone, seen without reading what it has sent before.

use crate::Stream;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A connection's socket, watched beside whoever reads from it or does not.
#[derive(Debug)]
pub struct Watched(AsyncFd<OwnedFd>);

/// Watches a connection, by a file descriptor of its own. Errors: there is none left.
///
/// # Panics
///
/// Outside of a tokio runtime with I/O.
pub fn watch(stream: &(impl Stream + ?Sized)) -> io::Result<Watched> {
    let socket = stream.socket().as_fd().try_clone_to_owned()?;
    // What is warned of are descriptors that somebody else may close: this one is nobody else's.
    #[expect(deprecated)]
    AsyncFd::with_interest(socket, Interest::READABLE).map(Watched)
}

impl Watched {
    /// Waits until the other end will send no more, or the connection is broken.
    pub async fn hung_up(&self) {
        loop {
            match self.0.ready(Interest::READABLE).await {
                Ok(guard) if guard.ready().is_read_closed() => return,
                // There is something to read; what comes next makes it ready again.
                Ok(mut guard) => guard.clear_ready(),
                // The runtime ends.
                Err(_) => return,
            }
        }
    }
}
