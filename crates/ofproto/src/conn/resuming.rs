//! The end of a pause of a connection's flow monitors: a worker thread collects the flows, and the task that writes to the
//! connection reports them between other messages.

use super::monitoring::Resumption;
use super::peer::Peer;
use crate::bridge::Ofproto;
use std::io;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The changes that the flow monitors of a connection missed while they were paused, if they resume.
#[derive(Debug, Default)]
pub(super) enum Resuming {
    /// No monitors resume.
    #[default]
    None,
    /// A worker thread is collecting the changes.
    Collecting(JoinHandle<Box<Resumption>>),
    /// The changes are being reported.
    Reporting(Box<Resumption>),
}

impl Resuming {
    /// Returns true if monitors resume.
    pub(super) fn is_any(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Resumes the monitors if they are paused and may resume.
    pub(super) fn begin(&mut self, bridge: &Ofproto, peer: &Peer) {
        if let Some(resumption) = bridge.begin_resuming(peer) {
            *self = Self::Reporting(Box::new(resumption));
        }
    }

    /// Reports some changes, or starts their collection on a worker thread.
    pub(super) fn proceed(&mut self, bridge: &Arc<Ofproto>, peer: &Arc<Peer>) {
        *self = match std::mem::take(self) {
            Self::Reporting(resumption) if resumption.is_parked() => {
                Self::Collecting(collect(bridge, peer, resumption))
            }
            Self::Reporting(mut resumption) => {
                let more = bridge.continue_resuming(peer, &mut resumption);
                if more { Self::Reporting(resumption) } else { Self::None }
            }
            other => other,
        };
    }

    /// Waits until [`Self::proceed`] can be called, for ever if no monitors resume.
    pub(super) async fn ready(&mut self) -> io::Result<()> {
        match self {
            Self::None => std::future::pending().await,
            Self::Collecting(collecting) => *self = Self::Reporting(collecting.await.map_err(io::Error::other)?),
            Self::Reporting(_) => tokio::task::yield_now().await,
        }
        Ok(())
    }

    /// Drops the collected flows, as the peer does not read. If too many changes are deferred meanwhile, reports all changes at
    /// once, to bound memory.
    pub(super) async fn stall(&mut self, bridge: &Arc<Ofproto>, peer: &Arc<Peer>) -> io::Result<()> {
        if !peer.monitors.lock().is_overdue() {
            if let Self::Reporting(resumption) = self {
                resumption.park();
            }
            return Ok(());
        }
        let resumption = match std::mem::take(self) {
            Self::None => return Ok(()),
            Self::Collecting(collecting) => collecting.await.map_err(io::Error::other)?,
            Self::Reporting(resumption) => resumption,
        };
        let (bridge, peer) = (Arc::clone(bridge), Arc::clone(peer));
        let work = tokio::task::spawn_blocking(move || bridge.finish_resuming(&peer, *resumption));
        work.await.map_err(io::Error::other)
    }
}

/// Collects the flows to report on a worker thread.
fn collect(bridge: &Arc<Ofproto>, peer: &Arc<Peer>, mut resumption: Box<Resumption>) -> JoinHandle<Box<Resumption>> {
    let (bridge, peer) = (Arc::clone(bridge), Arc::clone(peer));
    tokio::spawn(async move {
        let permit = match bridge.switch() {
            Some(switch) => switch.workers.one().await,
            None => None,
        };
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            resumption.collect(&bridge, &peer);
            resumption
        });
        work.await.expect("the collection does not panic")
    })
}
