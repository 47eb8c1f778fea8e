//! The megaflows that memos name.

use std::cell::Cell;
use std::sync::Arc;

use conntrack::tracker::is_opening;
use dpif::{DpAction, FlowId};
use flow::{TrackedMatch, layout};
use hashbrown::HashMap;
use packet::Batch;
use packet::metadata::Connection;

use crate::megaflow::{Found, Megaflow};
use crate::shared::SharedState;
use crate::shortcut::{uses_metadata, way};

/// Maximum number of megaflows that the memos of one thread name.
const HINTS_MAX: usize = 1 << 16;
/// Bits of a memo that number the megaflow; the others number the thread.
const INDEX_BITS: u32 = 20;
/// Number of guesses: a power of two.
const GUESSES: usize = 256;

/// A megaflow that memos name, with its match in a form that is quick to check.
#[derive(Debug)]
pub(super) struct Hint {
    pub(super) flow: Arc<Megaflow>,
    pub(super) bits: TrackedMatch,
    /// What comes after its first action, if that commits a connection as plain packets can.
    pub(super) opening: Opening,
    /// It reads fields of a tunnel.
    pub(super) reads_tunnel: bool,
}

/// What comes after a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    /// The list does not begin with a commit, or uses the metadata of the packet in other ways.
    None,
    /// Actions that use no metadata.
    Ends,
    /// Another look-up.
    Recirculates,
}

impl Hint {
    fn new(flow: &Arc<Megaflow>) -> Self {
        let bits = flow.reads.iter().map(|step| (step.word(), step.bits(), flow.key.word(step.word())));
        let opening = match &*flow.actions {
            [DpAction::Ct(action), rest @ ..] if is_opening(action) => match rest {
                [DpAction::Recirc(_)] => Opening::Recirculates,
                _ if uses_metadata(rest) => Opening::None,
                _ => Opening::Ends,
            },
            _ => Opening::None,
        };
        Self { bits: TrackedMatch::new(bits), flow: Arc::clone(flow), opening, reads_tunnel: reads_tunnel(flow) }
    }
}

/// The megaflow that the last packet took after an action, for packets whose connection has no memo: by the recirculation id
/// and the state of the packet.
#[derive(Debug)]
struct Guesses(Box<[u32; GUESSES]>);

impl Default for Guesses {
    fn default() -> Self {
        Self(Box::new([0; GUESSES]))
    }
}

impl Guesses {
    /// Where the guess for packets with this recirculation id, state and zone is.
    #[inline]
    fn at(id: u32, state: u32, zone: u16) -> usize {
        let mixed = (id ^ state << 24 ^ u32::from(zone) << 8).wrapping_mul(0x9e37_79b1);
        (mixed >> (u32::BITS - GUESSES.ilog2())) as usize
    }
}

/// The megaflows that the memos of one thread name. Another thread's memos mean nothing here.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    hints: Vec<Option<Hint>>,
    by_id: HashMap<FlowId, usize, foldhash::fast::RandomState>,
    /// The one that [`Hints::sweep`] examined last.
    swept: usize,
    /// Positions without a megaflow.
    free: Vec<usize>,
    guesses: Guesses,
    /// Passes since the last one that was compared with a look-up.
    pub(super) unchecked: Cell<u64>,
}

impl Hints {
    /// Returns the megaflow of a memo of the thread with this lane, and its position.
    #[inline]
    pub(super) fn get(&self, lane: usize, memo: u32) -> Option<(usize, &Hint)> {
        if memo >> INDEX_BITS != lane as u32 {
            return None;
        }
        // Numbers begin with 1, as no memo is 0.
        let at = ((memo & ((1 << INDEX_BITS) - 1)) as usize).wrapping_sub(1);
        Some((at, self.hints.get(at)?.as_ref()?))
    }

    /// The memo that most likely suits a packet of a connection without one, or without a connection; 0 for none.
    #[inline]
    pub(super) fn guess(&self, id: u32, state: u32, zone: u16) -> u32 {
        self.guesses.0[Guesses::at(id, state, zone)]
    }

    /// The megaflow at a position.
    #[inline]
    pub(super) fn flow(&self, at: usize) -> Option<&Arc<Megaflow>> {
        self.hints.get(at)?.as_ref().map(|hint| &hint.flow)
    }

    /// Returns the memo for a megaflow.
    pub(crate) fn memo(&mut self, lane: usize, flow: &Arc<Megaflow>) -> u32 {
        let at = match self.by_id.get(&flow.id) {
            Some(at) => *at,
            None => {
                // Memory stays in proportion to the flows that are installed.
                self.sweep_some(2);
                match self.free.pop() {
                    Some(free) => free,
                    None if self.hints.len() < HINTS_MAX => self.hints.len(),
                    None => {
                        self.swept = (self.swept + 1) % HINTS_MAX;
                        self.swept
                    }
                }
            }
        };
        if at == self.hints.len() {
            self.hints.push(None);
        }
        let is_known = self.hints[at].as_ref().is_some_and(|hint| Arc::ptr_eq(&hint.flow, flow));
        if !is_known {
            if let Some(old) = self.hints[at].replace(Hint::new(flow))
                && old.flow.id != flow.id
            {
                self.by_id.remove(&old.flow.id);
            }
            self.by_id.insert(flow.id, at);
        }
        (lane as u32) << INDEX_BITS | (at as u32 + 1)
    }

    /// Renews the memos of packets that were looked up after the tracker.
    #[cold]
    pub(crate) fn learn(&mut self, shared: &SharedState, lane: usize, batch: &mut Batch, found: &[Found<'_>]) {
        for (packet, flow) in batch.iter_mut().zip(found) {
            let Some(metadata) = packet.metadata() else { continue };
            let connection = metadata.connection_beside_tunnel();
            let Some(connection) = connection.filter(|connection| is_from_tracker(connection)) else { continue };
            if let Some(flow) = flow
                && !flow.calls_above
                && !connection.is_error
                && !(metadata.tunnel.is_some() && reads_tunnel(flow))
            {
                let memo = self.memo(lane, flow);
                shared.tracker.set_memo(way(connection), memo);
                self.guesses.0[Guesses::at(packet.recirc_id, connection.state, connection.zone)] = memo;
            }
            packet.metadata_mut().connection.awaits_lookup = false;
        }
    }

    /// Drops references to removed flows in a part of the table, so that their memory is freed eventually.
    pub(crate) fn sweep(&mut self) {
        self.sweep_some(64);
    }

    fn sweep_some(&mut self, n: usize) {
        for _ in 0..n.min(self.hints.len()) {
            self.swept = (self.swept + 1) % self.hints.len();
            let hint = &mut self.hints[self.swept];
            if let Some(gone) = hint.take_if(|hint| hint.flow.is_gone()) {
                self.by_id.remove(&gone.flow.id);
                self.free.push(self.swept);
            }
        }
    }
}

/// Returns true if a megaflow reads fields of a tunnel: then packets that left a tunnel take it by a look-up only.
fn reads_tunnel(flow: &Megaflow) -> bool {
    flow.reads.iter().any(|step| step.bits() != 0 && layout::is_of_tunnel(step.word()))
}

/// Returns true for the state of a packet that most likely comes from the tracker, and was not looked up since.
#[inline]
fn is_from_tracker(connection: &Connection) -> bool {
    connection.awaits_lookup || connection.handle == 0 && connection.state != 0
}
