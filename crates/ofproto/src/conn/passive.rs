//! Passive connections: a task of its own serves each connection that a listener accepts. Their number is bounded.

use super::rconn::{Rconn, State};
use super::remote::{PeerKind, Remote};
use super::service::wait_for_flows;
use super::serving::{HELLO_LIMIT, STATE_LIMIT, is_timeout, serve};
use crate::bridge::Ofproto;
use netdev::device::errno_text;
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use stream::{Incoming, Listener};
use tokio::task::{AbortHandle, JoinSet};
use vlog::{RateLimit, dbg_rl, warn_rl};

/// The largest number of connections to one listener.
pub(crate) const CONNECTIONS_MAX: usize = if cfg!(test) { 4 } else { 256 };

/// Limits the messages about ends of connections.
static END_LIMIT: RateLimit = RateLimit::new(60, 60);

/// Serves all connections that a listener accepts, for ever.
pub(super) async fn serve_all(bridge: Arc<Ofproto>, remote: Arc<Remote>, listener: Listener) {
    let mut children = JoinSet::new();
    // In the order in which they were accepted.
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        wait_for_flows(&bridge, &remote).await;
        let incoming = match listener.accept().await {
            Ok(incoming) => incoming,
            Err(e) => {
                warn_rl!(&HELLO_LIMIT, target: "connmgr", "{}: accept failed: {e}", remote.target);
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while children.try_join_next().is_some() {}
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS_MAX && !make_room(&bridge, &remote, &mut connections) {
            continue;
        }
        let (bridge, remote) = (Arc::clone(&bridge), Arc::clone(&remote));
        let connection = children.spawn(async move {
            let name = match &incoming {
                Incoming::Unix(_) => format!("unix#{}", base::serial::next_unix_connection()),
                Incoming::Tcp { .. } => incoming.to_string(),
            };
            // TLS errors are logged already.
            let Ok(stream) = incoming.into_stream().await else { return };
            let rconn = Mutex::new(Rconn::new());
            rconn.lock().connected(bridge.now());
            let connection = format!("{}<->{name}", bridge.name());
            dbg_rl!(&STATE_LIMIT, target: "rconn", "{connection}: entering {}", State::Connecting.name());
            let log_end = |ended: &io::Result<_>| {
                match ended {
                    Ok(why) => dbg_rl!(&END_LIMIT, target: "rconn", "{connection}: {why}"),
                    // The end of a silent connection was logged when the probe timed out.
                    Err(e) if is_timeout(e) => {}
                    Err(e) => {
                        let e = errno_text(e);
                        warn_rl!(&END_LIMIT, target: "rconn", "{connection}: connection dropped ({e})");
                    }
                }
                dbg_rl!(&STATE_LIMIT, target: "rconn", "{connection}: entering DISCONNECTED");
            };
            // Its error is in the log.
            let _ = serve(&bridge, &remote, name, &rconn, stream, log_end).await;
        });
        connections.push_back(connection);
    }
}

/// Closes a connection to a listener that has too many: the one that has waited longest for its handshake or the version
/// negotiation. If all have negotiated a version, returns false to refuse the new one.
fn make_room(bridge: &Ofproto, remote: &Arc<Remote>, connections: &mut VecDeque<AbortHandle>) -> bool {
    let (name, target) = (bridge.name(), &remote.target);
    let mut speaking = HashSet::new();
    bridge.connections().for_each(|peer| {
        if Arc::ptr_eq(&peer.remote, remote) && (peer.version().is_some() || remote.kind == PeerKind::Snoop) {
            speaking.extend(peer.task);
        }
    });
    let silent = connections.iter().position(|connection| !speaking.contains(&connection.id()));
    if let Some(connection) = silent.and_then(|at| connections.remove(at)) {
        connection.abort();
        base::coverage!(pvconn_evicted);
        warn_rl!(&HELLO_LIMIT, target: "connmgr", "{name}<->{target}: {CONNECTIONS_MAX} connections, ending one without HELLO");
        return true;
    }
    base::coverage!(pvconn_refused);
    warn_rl!(&HELLO_LIMIT, target: "connmgr", "{name}<->{target}: {CONNECTIONS_MAX} connections, refusing another");
    false
}
