//! Hints: the megaflow that packets of a tunnel took last, with its match in the bytes of their inner frames
//! ([`flow::BytePattern`]). A packet that a hint covers needs neither a key nor a look-up.
//!
//! Like the other caches, these are only hints: one counts if its megaflow is still installed and belongs to the current
//! generation. Megaflows whose actions need what only a look-up prepares (upcalls) have none.

use std::sync::Arc;

use base::mix::fold;
use base::ways::Ways;
use base::{DpPort, PortNo};
use flow::BytePattern;
use packet::metadata::Tunnel;

use crate::megaflow::Megaflow;

/// After so many packets of other megaflows, the last of these replaces the recorded one. A replacement writes the reference
/// count of the megaflow, on a cache line that all threads which use it read.
const OTHERS_MAX: u8 = 16;

/// Places that [`Places::sweep`] inspects.
const SWEEP: usize = 8;

/// The origin of packets, which their bytes do not show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) in_port: DpPort,
    /// The tunnel that they left, whose metadata all of its packets share.
    pub(crate) tunnel: &'a Arc<Tunnel>,
}

/// The megaflow that packets of an origin took last.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Hint {
    pub(crate) flow: Arc<Megaflow>,
    tunnel: Arc<Tunnel>,
    in_port: DpPort,
    /// Packets of other megaflows since.
    others: u8,
    /// `None` if bytes alone do not identify the packets.
    pattern: Option<BytePattern>,
}

impl Hint {
    fn new(origin: Origin<'_>, flow: &Arc<Megaflow>) -> Self {
        let pattern = BytePattern::behind_tunnel(&flow.key, &flow.mask(), PortNo(origin.in_port.0));
        let (flow, tunnel) = (Arc::clone(flow), Arc::clone(origin.tunnel));
        Self { flow, tunnel, in_port: origin.in_port, others: 0, pattern }
    }

    /// Whether the hint is for packets of this origin, and its megaflow is installed.
    #[inline]
    fn is_of(&self, origin: Origin<'_>) -> bool {
        Arc::ptr_eq(&self.tunnel, origin.tunnel) && self.in_port == origin.in_port && !self.flow.is_gone()
    }

    /// The TCP flags of a frame, if the megaflow covers it.
    #[inline]
    pub(crate) fn covers(&self, origin: Origin<'_>, frame: &[u8]) -> Option<u16> {
        if self.is_of(origin) { self.pattern.as_ref()?.covers(frame) } else { None }
    }
}

/// A hint for each number.
#[derive(Debug, Default)]
pub(crate) struct Places {
    hints: Vec<Option<Hint>>,
    swept: usize,
}

/// What became of a megaflow that was to be recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recorded {
    /// The hint names it.
    Yes,
    /// Another megaflow of the same origin is there.
    SameOrigin,
}

impl Places {
    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<&Hint> {
        self.hints.get(number)?.as_ref()
    }

    fn place(&mut self, number: usize) -> &mut Option<Hint> {
        if number >= self.hints.len() {
            self.hints.resize_with(number + 1, || None);
        }
        &mut self.hints[number]
    }

    /// Records a megaflow, unless another one of the same origin is there.
    pub(crate) fn record_first(&mut self, number: usize, origin: Origin<'_>, flow: &Arc<Megaflow>) -> Recorded {
        match self.place(number) {
            Some(known) if known.is_of(origin) => {
                if Arc::ptr_eq(&known.flow, flow) {
                    Recorded::Yes
                } else {
                    Recorded::SameOrigin
                }
            }
            place => {
                *place = Some(Hint::new(origin, flow));
                Recorded::Yes
            }
        }
    }

    /// Records a megaflow; one that is installed is replaced after some packets.
    fn record(&mut self, number: usize, origin: Origin<'_>, flow: &Arc<Megaflow>) {
        let place = self.place(number);
        if let Some(known) = place
            && !known.flow.is_gone()
        {
            let is_same = known.is_of(origin) && Arc::ptr_eq(&known.flow, flow);
            known.others = if is_same { 0 } else { known.others + 1 };
            if known.others < OTHERS_MAX {
                return;
            }
        }
        *place = Some(Hint::new(origin, flow));
    }

    /// Drops references to removed megaflows in a part of the places, so that their memory is freed eventually. The caller repeats
    /// this from time to time.
    pub(crate) fn sweep(&mut self) {
        for _ in 0..SWEEP.min(self.hints.len()) {
            self.swept = (self.swept + 1) % self.hints.len();
            let place = &mut self.hints[self.swept];
            if place.as_ref().is_some_and(|hint| hint.flow.is_gone()) {
                *place = None;
            }
        }
    }
}

/// Hints by a hash of an origin and a destination.
#[derive(Debug, Default)]
pub(crate) struct ByDestination {
    /// None until the first hint.
    ways: Option<Ways>,
    places: Places,
}

/// The hash of the origin of a frame, which is given as a number, and of its destination: of Ethernet, and of IPv4 if the frame has
/// no VLAN tag.
#[inline]
fn hash(number: usize, frame: &[u8]) -> u64 {
    let destination = frame.first_chunk::<34>().map_or(0, |bytes| {
        let ethernet = u64::from_ne_bytes(std::array::from_fn(|i| if i < 6 { bytes[i] } else { 0 }));
        ethernet ^ u64::from(u32::from_ne_bytes(std::array::from_fn(|i| bytes[30 + i]))).rotate_left(24)
    });
    fold(destination ^ 0x9e37_79b9_7f4a_7c15, 0xbe54_66cf_34e9_0c6d ^ number as u64)
}

impl ByDestination {
    /// The hint for a frame from the origin with this number.
    #[inline]
    pub(crate) fn get(&self, number: usize, frame: &[u8]) -> Option<&Hint> {
        self.places.get(self.ways.as_ref()?.find(hash(number, frame))?)
    }

    /// Records a megaflow.
    pub(crate) fn record(&mut self, number: usize, frame: &[u8], origin: Origin<'_>, flow: &Arc<Megaflow>) {
        self.places.record(self.ways.get_or_insert_default().assign(hash(number, frame)), origin, flow);
    }

    pub(crate) fn sweep(&mut self) {
        self.places.sweep();
    }
}
