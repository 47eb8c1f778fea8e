//! Outgoing connections: the one place where they are made.

use std::io;

use ovsdb::jsonrpc::{Remote, Stream};

/// Connects to an active remote.
pub(super) async fn dial(remote: &Remote) -> io::Result<Stream> {
    Stream::connect(remote).await
}
