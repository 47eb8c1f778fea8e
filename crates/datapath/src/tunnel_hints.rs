//! Hints for packets that left tunnels, by the number of their outer headers in the thread's cache ([`tunnel::header::Cache`]):
//! the megaflows that packets of a tunnel took last, one for each destination. Packets that a hint covers get no metadata unless
//! the actions use it.
//!
//! Beside the conditions of all hints ([`crate::hints`]), the number has to stand for the same tunnel still, and the switch has to
//! know the same options.

use std::sync::Arc;

use base::DpPort;
use flow::ReceivedOptions;
use tunnel::header::{Cache, Hit};

use crate::hints::{ByDestination, Origin, Places, Recorded};
use crate::megaflow::Megaflow;
use crate::shared::SharedState;

/// The hints of a thread.
#[derive(Debug, Default)]
pub(crate) struct TunnelHints {
    generation: u64,
    options: Arc<ReceivedOptions>,
    /// The first hint of each tunnel, by the number of the outer headers.
    first: Places,
    /// Further hints of tunnels with several destinations.
    others: ByDestination,
}

impl TunnelHints {
    /// Begins the look-ups of a batch. The caller holds a reader of the flows with this generation.
    pub(crate) fn begin(&mut self, shared: &SharedState, generation: u64) {
        let options = shared.tunnel_options.load();
        if self.generation != generation || !Arc::ptr_eq(&self.options, &options) {
            *self = Self { generation, options: Arc::clone(&options), ..Self::default() };
        }
    }

    /// The megaflow of a packet whose outer headers have been removed, and its TCP flags, if a hint of its tunnel covers it.
    #[inline]
    pub(crate) fn flow(&self, cache: &Cache, hit: Hit, in_port: DpPort, frame: &[u8]) -> Option<(&Arc<Megaflow>, u16)> {
        let origin = Origin { in_port, tunnel: cache.tunnel(hit)? };
        let first = self.first.get(hit.number())?;
        if let Some(tcp_flags) = first.covers(origin, frame) {
            return Some((&first.flow, tcp_flags));
        }
        let other = self.others.get(hit.number(), frame)?;
        Some((&other.flow, other.covers(origin, frame)?))
    }

    /// Records the megaflow that a look-up found for a packet of a tunnel. The caller holds the reader of [`Self::begin`].
    pub(crate) fn learn(&mut self, cache: &Cache, hit: Hit, (in_port, frame): (DpPort, &[u8]), flow: &Arc<Megaflow>) {
        let Some(tunnel) = cache.tunnel(hit).filter(|_| !flow.calls_above && flow.generation == self.generation) else {
            return;
        };
        let origin = Origin { in_port, tunnel };
        if self.first.record_first(hit.number(), origin, flow) == Recorded::SameOrigin {
            self.others.record(hit.number(), frame, origin, flow);
        }
    }

    /// Drops references to removed megaflows in a part of the hints.
    pub(crate) fn sweep(&mut self) {
        self.first.sweep();
        self.others.sweep();
    }
}
