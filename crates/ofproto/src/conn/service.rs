//! Sockets: listeners and active connections of a bridge.
//!
//! A [`Service`] is one listener (`punix:`, `ptcp:`, `pssl:`) or one active connection (`unix:`, `tcp:`, `ssl:`), running
//! as a task until it is dropped. The task executes what [`super::rconn`] returns, by the switch's clock.

use super::passive::serve_all;
use super::pinsched::PacketInStats;
use super::rconn::{Due, Rconn};
use super::remote::{PeerKind, Remote, Settings};
use super::serving::{ON_REQUEST, is_timeout, serve, sleep_until, timed_out};
use crate::bridge::Ofproto;
use base::Millis;
use netdev::device::errno_text;
use openflow::Version;
use openflow::controller_status::ControllerReason;
use openflow::switch::Role;
use openflow::versions::Versions;
use std::net::SocketAddr;
use std::sync::Arc;
use stream::Method;
use tls::Tls;
use tokio::task::JoinHandle;

pub use stream::{DSCP, OFP_PORT, numeric_address};

/// The supported versions.
pub const SUPPORTED: [Version; 6] = Version::ALL;
/// The error in the database for a connection that its peer has closed.
const END_OF_FILE: &str = "End of file";

/// The configuration of a connection or listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceConfig {
    /// `punix:PATH`, `ptcp:[PORT][:HOST]`, `pssl:[PORT][:HOST]`, `unix:PATH`, `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]`.
    pub target: String,
    /// The purpose of its connections.
    pub kind: PeerKind,
    /// The versions that may be negotiated.
    pub versions: Versions,
    /// The DSCP of outgoing packets, 0 to 63, if it is connected over TCP (RFC 2474).
    pub dscp: u8,
    /// Settings that can change while it runs ([`Service::configure`]).
    pub settings: Settings,
}

/// The status of an active connection, for the Controller row.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceStatus {
    /// Its state, and the times when it was connected and disconnected.
    pub rconn: Rconn,
    /// The role of the peer, once versions are negotiated.
    pub role: Option<Role>,
    /// Statistics of packet-ins since the connection was established: of misses, and of actions. `None` without a rate limit.
    pub packet_ins: Option<[PacketInStats; 2]>,
}

/// A listener or an active connection; dropping it ends it and closes its connections.
#[derive(Debug)]
pub struct Service {
    bridge: Arc<Ofproto>,
    remote: Arc<Remote>,
    task: JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
        self.bridge.connections().remove_remote(&self.remote);
        self.bridge.notify_of_remote(&self.remote, ControllerReason::Removed);
        self.remote.end_snooping();
        if let Some(path) = self.remote.target.strip_prefix("punix:") {
            // Another service at this path has removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Service {
    /// Starts a service for `bridge`, on the current tokio runtime. An error describes the error in the target, or
    /// the reason why it cannot listen.
    pub fn start(bridge: &Arc<Ofproto>, config: ServiceConfig) -> Result<Self, String> {
        let remote = Remote::new(config, bridge.now());
        let target = &remote.target;
        let (method, _) = Method::of(target).ok_or_else(|| bad_target(target))?;
        let tls = bridge.switch().map(|switch| Arc::clone(switch.tls())).unwrap_or_default();
        let (for_task, bridge) = (Arc::clone(&remote), Arc::clone(bridge));
        let task = if method.is_passive() {
            let listener = stream::listen(target, remote.dscp, &tls).map_err(|e| format!("{target}: {e}"))?;
            tokio::spawn(serve_all(Arc::clone(&bridge), for_task, listener))
        } else {
            if let Some(address) = numeric_address(target, OFP_PORT) {
                remote.set_address(address);
            }
            tokio::spawn(active(Arc::clone(&bridge), for_task, tls))
        };
        bridge.connections().add_remote(Arc::clone(&remote));
        bridge.notify_of_remote(&remote, ControllerReason::Added);
        Ok(Self { bridge, remote, task })
    }

    /// The target that it listens on or connects to.
    pub fn target(&self) -> &str {
        &self.remote.target
    }

    /// The versions that may be negotiated.
    pub fn versions(&self) -> Versions {
        self.remote.versions
    }

    /// Returns true if it is a listener.
    pub fn is_listener(&self) -> bool {
        self.remote.target.starts_with('p')
    }

    /// Changes its settings. Connections stay.
    pub fn configure(&self, settings: Settings) {
        self.remote.set_settings(settings);
    }

    /// The address of the peer of an active connection, once known.
    pub fn address(&self) -> Option<SocketAddr> {
        self.remote.address()
    }

    /// The status of an active connection.
    pub fn status(&self) -> ServiceStatus {
        let peers = self.bridge.connections().all();
        let peer = peers.iter().find(|peer| Arc::ptr_eq(&peer.remote, &self.remote));
        let limited = self.remote.settings().packet_in_limit.is_some();
        ServiceStatus {
            rconn: self.remote.rconn.lock().clone(),
            role: peer.filter(|peer| peer.version().is_some()).map(|peer| peer.role()),
            packet_ins: limited.then(|| peer.and_then(|peer| peer.limits.stats()).unwrap_or_default()),
        }
    }
}

fn bad_target(target: &str) -> String {
    format!("{target}: not a connection method (unix:, tcp:, ssl:, punix:, ptcp:, pssl:)")
}

/// Connects, serves, and reconnects, for ever.
async fn active(bridge: Arc<Ofproto>, remote: Arc<Remote>, tls: Arc<Tls>) {
    let name = format!("{}<->{}", bridge.name(), remote.target);
    let timeouts = || remote.settings().timeouts();
    let rconn = &remote.rconn;
    rconn.lock().set_name(name.clone());
    rconn.lock().start(bridge.now());
    // True if attempts have reached the longest interval: then they are not logged any more.
    let mut quiet = false;
    loop {
        wait_for_flows(&bridge, &remote).await;
        wait_to_connect(&bridge, &remote).await;
        if !quiet {
            tracing::info!(target: "rconn", "{name}: connecting...");
        }
        rconn.lock().connecting(bridge.now());
        let limit = rconn.lock().due(timeouts()).map_or(Millis(0), |(at, _)| at);
        let connected = tokio::select! {
            connected = stream::connect(&remote.target, remote.dscp, &tls, |a| remote.set_address(a)) => connected,
            () = sleep_until(&bridge, limit) => Err(timed_out()),
        };
        let ended = match connected {
            Ok(stream) => serve(&bridge, &remote, remote.target.clone(), rconn, stream, |_| ()).await,
            Err(e) => Err(e),
        };
        let was_connected = rconn.lock().is_connected();
        quiet &= !was_connected;
        let error = match &ended {
            Ok(ON_REQUEST) => None,
            Ok(_) => Some(END_OF_FILE.to_owned()),
            Err(e) => Some(errno_text(e)),
        };
        match (&ended, &error) {
            (Ok(why), _) if was_connected => tracing::info!(target: "rconn", "{name}: {why}"),
            // The end of a silent connection was logged when the probe timed out.
            (Err(e), _) if was_connected && is_timeout(e) => {}
            (_, Some(error)) if was_connected => {
                tracing::warn!(target: "rconn", "{name}: connection dropped ({error})");
            }
            (Err(e), _) if !quiet && is_timeout(e) => tracing::info!(target: "rconn", "{name}: connection timed out"),
            (_, Some(error)) if !quiet => tracing::warn!(target: "rconn", "{name}: connection failed ({error})"),
            _ => {}
        }
        let wait_ms = rconn.lock().disconnected(bridge.now(), error, timeouts());
        let secs = wait_ms / 1000;
        if wait_ms < timeouts().max_backoff_ms {
            quiet = false;
            let was_silent = was_connected && ended.as_ref().is_err_and(is_timeout);
            if !was_silent {
                tracing::info!(target: "rconn", "{name}: waiting {secs} seconds before reconnect");
            }
        } else if !std::mem::replace(&mut quiet, true) {
            tracing::info!(
                target: "rconn",
                "{name}: continuing to retry connections in the background but suppressing further logging"
            );
        }
    }
}

/// Keeps controllers away while flows are being restored.
pub(super) async fn wait_for_flows(bridge: &Ofproto, remote: &Remote) {
    if remote.kind == PeerKind::Controller
        && let Some(switch) = bridge.switch()
    {
        switch.restored().await;
    }
}

/// Waits until the time to connect, by the current settings.
async fn wait_to_connect(bridge: &Ofproto, remote: &Remote) {
    let mut settings = remote.watch_settings();
    loop {
        let timeouts = settings.borrow_and_update().timeouts();
        let due = remote.rconn.lock().due(timeouts);
        let Some((at, Due::Connect)) = due else { return };
        tokio::select! {
            () = sleep_until(bridge, at) => return,
            // The sender lives as long as the remote.
            _ = settings.changed() => {}
        }
    }
}
