//! Outgoing connections: the one place where they are made.

use std::io;
use std::sync::Arc;

use ovsdb::jsonrpc::Remote;
use tls::Tls;

use super::listeners::Stream;

/// Connects to an active remote, with packets of the class `dscp`.
pub(super) async fn dial(remote: &Remote, dscp: u8, tls: &Arc<Tls>) -> io::Result<Stream> {
    stream::connect(&remote.to_string(), dscp, tls, |_| ()).await
}
