//! Tasks that connect to the sources of copied databases: one for each, which tries its addresses in turn, and
//! reconnects when the connection ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ovsdb::jsonrpc::{Remote, RemoteError};
use tls::Tls;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tracing::info;

use super::dial::dial;
use super::listeners::Stream;
use super::server::Event;
use crate::core::Core;
use crate::follow::{LinkId, Source};

/// Shortest pause between attempts to connect, in milliseconds.
const MIN_BACKOFF_MS: u64 = 1000;

/// A connection to a source.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) link: LinkId,
    pub(super) stream: Stream,
    /// The source's address.
    pub(super) remote: String,
    /// Dropped when the connection ends.
    pub(super) ended: oneshot::Sender<()>,
}

/// The tasks, by link.
#[derive(Debug, Default)]
pub(super) struct Sources {
    tasks: BTreeMap<LinkId, Task>,
}

#[derive(Debug)]
struct Task {
    probe_ms: watch::Sender<u64>,
    task: AbortHandle,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sources {
    /// Starts tasks for new links, and ends those of removed links.
    pub(super) fn update(&mut self, core: &Core, tls: &Arc<Tls>, events: &mpsc::Sender<Event>) {
        let wanted: BTreeMap<LinkId, &Source> = core.sources().collect();
        self.tasks.retain(|link, _| wanted.contains_key(link));
        for (link, source) in wanted {
            match self.tasks.get(&link) {
                Some(task) => {
                    task.probe_ms
                        .send_if_modified(|probe_ms| std::mem::replace(probe_ms, source.probe_ms) != source.probe_ms);
                }
                None => {
                    let task = tokio::spawn(connect(link, source.clone(), tls.clone(), events.clone())).abort_handle();
                    self.tasks.insert(link, Task { probe_ms: watch::channel(source.probe_ms).0, task });
                }
            }
        }
    }

    /// After how much silence the link's source is probed, as it changes.
    pub(super) fn probe_ms(&self, link: LinkId) -> Option<watch::Receiver<u64>> {
        Some(self.tasks.get(&link)?.probe_ms.subscribe())
    }
}

/// Keeps a connection to one of the source's addresses. Each address is tried once before a pause; pauses get longer
/// until a connection has lasted as long as the last pause.
async fn connect(link: LinkId, source: Source, tls: Arc<Tls>, events: mpsc::Sender<Event>) {
    let mut backoff_ms = MIN_BACKOFF_MS;
    let mut tried = 0;
    for name in source.remotes.iter().cycle() {
        let is_quiet = backoff_ms >= source.max_backoff_ms;
        if !is_quiet {
            info!(target: "reconnect", "{name}: connecting...");
        }
        match reach(name, source.dscp, &tls).await {
            Ok(stream) => {
                info!(target: "reconnect", "{name}: connected");
                let since = Instant::now();
                let (ended, end) = oneshot::channel();
                let reached = Reached { link, stream, remote: name.clone(), ended };
                if events.send(Event::Reached(reached)).await.is_err() {
                    return;
                }
                // The receiver returns an error when the other half is dropped: that is the signal.
                let _ = end.await;
                if since.elapsed() >= Duration::from_millis(backoff_ms) {
                    (backoff_ms, tried) = (MIN_BACKOFF_MS, 0);
                }
            }
            Err(reason) if !is_quiet => info!(target: "reconnect", "{name}: connection attempt failed ({reason})"),
            Err(_) => {}
        }
        tried += 1;
        if tried < source.remotes.len() {
            continue;
        }
        tried = 0;
        tokio::time::sleep(Duration::from_millis(backoff_ms)).await;
        backoff_ms = backoff_ms.saturating_mul(2).min(source.max_backoff_ms.max(MIN_BACKOFF_MS));
        if backoff_ms == source.max_backoff_ms && !is_quiet {
            info!(
                target: "reconnect",
                "{name}: continuing to reconnect in the background but suppressing further logging"
            );
        }
    }
}

async fn reach(name: &str, dscp: u8, tls: &Arc<Tls>) -> Result<Stream, String> {
    let remote = Remote::parse(name).map_err(|error| match error {
        RemoteError::Method(_) => "Address family not supported by protocol".to_owned(),
        RemoteError::Syntax(_) => error.to_string(),
    })?;
    dial(&remote, dscp, tls).await.map_err(|error| crate::file::describe(&error))
}
