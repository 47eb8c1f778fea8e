//! The megaflow that packets of a tunnel to a destination took last, by the number of their outer headers in the thread's cache
//! ([`tunnel::header::Cache`]). While such packets keep taking it, the bytes of their inner frames say so
//! ([`flow::BytePattern`]): no keys are extracted, nothing is looked up, and packets get no metadata unless the actions use it.
//!
//! As with the last-flow cache, this is a hint: it counts only if the megaflow is still installed and belongs to the current
//! generation, the number still stands for the same tunnel, and the switch knows the same options.

use std::sync::Arc;

use base::{DpPort, PortNo};
use flow::{BytePattern, ReceivedOptions};
use packet::metadata::Tunnel;
use tunnel::header::{Cache, Hit};

use crate::megaflow::Megaflow;
use crate::shared::SharedState;

/// After so many packets of other megaflows, the last of these replaces the recorded one. A replacement writes the reference
/// count of the megaflow, on a cache line that all threads which use it read.
const OTHERS_MAX: u8 = 16;

/// Number of hints.
const HINTS: usize = 4096;
/// Hints that [`TunnelHints::sweep`] inspects.
const SWEEP: usize = 8;

/// Where the hint of a packet is: by its tunnel and by the destination of its inner frame, if that has IPv4.
#[inline]
fn place(hit: Hit, frame: &[u8]) -> usize {
    let Some(bytes) = frame.first_chunk::<34>() else { return hit.number() % HINTS };
    let ethernet = u64::from_ne_bytes(std::array::from_fn(|i| if i < 6 { bytes[i] } else { 0 }));
    let ip = u32::from_ne_bytes(std::array::from_fn(|i| bytes[30 + i]));
    let of_tunnel = (hit.number() as u64).wrapping_mul(0xbe54_66cf_34e9_0c6d);
    let mixed = (ethernet ^ u64::from(ip).rotate_left(24)).wrapping_add(of_tunnel);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - HINTS.ilog2())) as usize
}

/// The megaflow that such packets took last.
#[derive(Debug)]
#[repr(align(64))]
struct Hint {
    flow: Arc<Megaflow>,
    tunnel: Arc<Tunnel>,
    in_port: DpPort,
    /// Packets of other megaflows since.
    others: u8,
    /// `None` if bytes alone do not identify the packets.
    pattern: Option<BytePattern>,
}

/// The hints of a thread.
#[derive(Debug, Default)]
pub(crate) struct TunnelHints {
    generation: u64,
    options: Arc<ReceivedOptions>,
    /// By [`place`]; empty until the first one.
    hints: Vec<Option<Hint>>,
    swept: usize,
}

impl TunnelHints {
    /// Begins the look-ups of a batch. The caller holds a reader of the flows with this generation.
    pub(crate) fn begin(&mut self, shared: &SharedState, generation: u64) {
        let options = shared.tunnel_options.load();
        if self.generation != generation || !Arc::ptr_eq(&self.options, &options) {
            (self.generation, self.options) = (generation, Arc::clone(&options));
            self.hints.clear();
        }
    }

    /// The megaflow of a packet whose outer headers have been removed, and its TCP flags, if the hint of its tunnel covers it.
    #[inline]
    pub(crate) fn flow(&self, cache: &Cache, hit: Hit, in_port: DpPort, frame: &[u8]) -> Option<(&Arc<Megaflow>, u16)> {
        let hint = self.hints.get(place(hit, frame))?.as_ref()?;
        let is_of_tunnel = cache.tunnel(hit).is_some_and(|tunnel| Arc::ptr_eq(tunnel, &hint.tunnel));
        if !is_of_tunnel || hint.in_port != in_port || hint.flow.is_gone() {
            return None;
        }
        let tcp_flags = hint.pattern.as_ref()?.covers(frame)?;
        Some((&hint.flow, tcp_flags))
    }

    /// Records the megaflow that the index found for a packet of a tunnel. The caller holds the reader of [`Self::begin`].
    pub(crate) fn learn(&mut self, cache: &Cache, hit: Hit, (in_port, frame): (DpPort, &[u8]), flow: &Arc<Megaflow>) {
        // The actions of the others need what only a look-up prepares.
        let Some(tunnel) = cache.tunnel(hit).filter(|_| !flow.calls_above && flow.generation == self.generation) else {
            return;
        };
        if self.hints.is_empty() {
            self.hints.resize_with(HINTS, || None);
        }
        let Some(known) = self.hints.get_mut(place(hit, frame)) else { return };
        if let Some(hint) = known
            && !hint.flow.is_gone()
        {
            let is_of_tunnel = Arc::ptr_eq(tunnel, &hint.tunnel) && hint.in_port == in_port;
            hint.others = if is_of_tunnel && Arc::ptr_eq(flow, &hint.flow) { 0 } else { hint.others + 1 };
            if hint.others < OTHERS_MAX {
                return;
            }
        }
        let pattern = BytePattern::behind_tunnel(&flow.key, &flow.mask(), PortNo(in_port.0));
        *known = Some(Hint { flow: Arc::clone(flow), tunnel: Arc::clone(tunnel), in_port, others: 0, pattern });
    }

    /// Drops references to removed megaflows in a part of the hints, so that their memory is freed eventually. The caller repeats
    /// this from time to time.
    pub(crate) fn sweep(&mut self) {
        for _ in 0..SWEEP.min(self.hints.len()) {
            self.swept = (self.swept + 1) % self.hints.len();
            let hint = &mut self.hints[self.swept];
            if hint.as_ref().is_some_and(|hint| hint.flow.is_gone()) {
                *hint = None;
            }
        }
    }
}
