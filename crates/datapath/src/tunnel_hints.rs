//! The megaflows that packets of a tunnel took last, one for each destination, by the number of their outer headers in the
//! thread's cache ([`tunnel::header::Cache`]). While such packets keep taking them, the bytes of their inner frames say so
//! ([`flow::BytePattern`]): no keys are extracted, nothing is looked up, and packets get no metadata unless the actions use it.
//!
//! As with the last-flow cache, this is a hint: it counts only if the megaflow is still installed and belongs to the current
//! generation, the number still stands for the same tunnel, and the switch knows the same options.

use std::sync::Arc;

use base::ways::Ways;
use base::{DpPort, PortNo};
use flow::{BytePattern, ReceivedOptions};
use packet::metadata::Tunnel;
use tunnel::header::{Cache, Hit};

use crate::megaflow::Megaflow;
use crate::shared::SharedState;

/// After so many packets of other megaflows, the last of these replaces the recorded one. A replacement writes the reference
/// count of the megaflow, on a cache line that all threads which use it read.
const OTHERS_MAX: u8 = 16;

/// Hints of each kind that [`TunnelHints::sweep`] inspects.
const SWEEP: usize = 8;

/// The hash of a packet's tunnel and of the destination of its inner frame, if that has IPv4.
#[inline]
fn hash(hit: Hit, frame: &[u8]) -> u64 {
    let of_tunnel = (hit.number() as u64 + 1).wrapping_mul(0xbe54_66cf_34e9_0c6d);
    let destination = frame.first_chunk::<34>().map_or(0, |bytes| {
        let ethernet = u64::from_ne_bytes(std::array::from_fn(|i| if i < 6 { bytes[i] } else { 0 }));
        ethernet ^ u64::from(u32::from_ne_bytes(std::array::from_fn(|i| bytes[30 + i]))).rotate_left(24)
    });
    (destination ^ of_tunnel.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
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

impl Hint {
    fn new((tunnel, in_port): (&Arc<Tunnel>, DpPort), flow: &Arc<Megaflow>) -> Self {
        let pattern = BytePattern::behind_tunnel(&flow.key, &flow.mask(), PortNo(in_port.0));
        Self { flow: Arc::clone(flow), tunnel: Arc::clone(tunnel), in_port, others: 0, pattern }
    }

    /// Whether the hint is for packets of this tunnel, and its megaflow is installed.
    #[inline]
    fn is_of(&self, (tunnel, in_port): (&Arc<Tunnel>, DpPort)) -> bool {
        Arc::ptr_eq(tunnel, &self.tunnel) && self.in_port == in_port && !self.flow.is_gone()
    }

    /// The TCP flags of an inner frame, if the megaflow covers it.
    #[inline]
    fn covers(&self, of: (&Arc<Tunnel>, DpPort), frame: &[u8]) -> Option<u16> {
        if self.is_of(of) { self.pattern.as_ref()?.covers(frame) } else { None }
    }
}

/// The hints of a thread.
#[derive(Debug, Default)]
pub(crate) struct TunnelHints {
    generation: u64,
    options: Arc<ReceivedOptions>,
    /// The first hint of each tunnel, by the number of the outer headers.
    first: Hints,
    /// Hints of tunnels with several destinations.
    ways: Option<Ways>,
    /// By the numbers of their hashes.
    others: Hints,
}

/// Hints by number.
#[derive(Debug, Default)]
struct Hints {
    places: Vec<Option<Hint>>,
    swept: usize,
}

impl Hints {
    #[inline]
    fn get(&self, number: usize) -> Option<&Hint> {
        self.places.get(number)?.as_ref()
    }

    fn place(&mut self, number: usize) -> &mut Option<Hint> {
        if number >= self.places.len() {
            self.places.resize_with(number + 1, || None);
        }
        &mut self.places[number]
    }

    fn sweep(&mut self) {
        for _ in 0..SWEEP.min(self.places.len()) {
            self.swept = (self.swept + 1) % self.places.len();
            let place = &mut self.places[self.swept];
            if place.as_ref().is_some_and(|hint| hint.flow.is_gone()) {
                *place = None;
            }
        }
    }
}

impl TunnelHints {
    /// Begins the look-ups of a batch. The caller holds a reader of the flows with this generation.
    pub(crate) fn begin(&mut self, shared: &SharedState, generation: u64) {
        let options = shared.tunnel_options.load();
        if self.generation != generation || !Arc::ptr_eq(&self.options, &options) {
            (self.generation, self.options) = (generation, Arc::clone(&options));
            (self.first, self.ways, self.others) = Default::default();
        }
    }

    /// The megaflow of a packet whose outer headers have been removed, and its TCP flags, if a hint of its tunnel covers it.
    #[inline]
    pub(crate) fn flow(&self, cache: &Cache, hit: Hit, in_port: DpPort, frame: &[u8]) -> Option<(&Arc<Megaflow>, u16)> {
        let tunnel = cache.tunnel(hit)?;
        let first = self.first.get(hit.number())?;
        if let Some(tcp_flags) = first.covers((tunnel, in_port), frame) {
            return Some((&first.flow, tcp_flags));
        }
        let other = self.others.get(self.ways.as_ref()?.find(hash(hit, frame))?)?;
        Some((&other.flow, other.covers((tunnel, in_port), frame)?))
    }

    /// Records the megaflow that the index found for a packet of a tunnel. The caller holds the reader of [`Self::begin`].
    pub(crate) fn learn(&mut self, cache: &Cache, hit: Hit, (in_port, frame): (DpPort, &[u8]), flow: &Arc<Megaflow>) {
        // The actions of the others need what only a look-up prepares.
        let Some(tunnel) = cache.tunnel(hit).filter(|_| !flow.calls_above && flow.generation == self.generation) else {
            return;
        };
        let of = (tunnel, in_port);
        let new = || Some(Hint::new(of, flow));
        match self.first.place(hit.number()) {
            Some(known) if known.is_of(of) && Arc::ptr_eq(&known.flow, flow) => {}
            Some(known) if known.is_of(of) => {
                let place = self.others.place(self.ways.get_or_insert_default().assign(hash(hit, frame)));
                if let Some(known) = place
                    && !known.flow.is_gone()
                {
                    let is_same = known.is_of(of) && Arc::ptr_eq(&known.flow, flow);
                    known.others = if is_same { 0 } else { known.others + 1 };
                    if known.others < OTHERS_MAX {
                        return;
                    }
                }
                *place = new();
            }
            place => *place = new(),
        }
    }

    /// Drops references to removed megaflows in a part of the hints, so that their memory is freed eventually. The caller repeats
    /// this from time to time.
    pub(crate) fn sweep(&mut self) {
        self.first.sweep();
        self.others.sweep();
    }
}
