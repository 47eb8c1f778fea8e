//! Outgoing connections: the one place where they are made.

use std::io;
use std::sync::Arc;

use ovsdb::jsonrpc::Remote;
use stream::DSCP;
use tls::Tls;

use super::listeners::Stream;

/// Connects to an active remote.
pub(super) async fn dial(remote: &Remote, tls: &Arc<Tls>) -> io::Result<Stream> {
    stream::connect(&remote.to_string(), DSCP, tls, |_| ()).await
}
