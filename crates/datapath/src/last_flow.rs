//! The last-flow cache: the megaflow that a whole batch of a receive queue took last. While batches keep taking it, the bytes
//! of their frames say so ([`flow::BytePattern`]): no keys are extracted and nothing is looked up.
//!
//! Like the microflow cache, this is a hint. A batch takes the flow if the flow covers each of its frames, is still installed,
//! and belongs to the current generation; a single other frame sends the whole batch down the general path. The flow covers
//! what it matched when it was recorded, so the index would give the same answer: installed flows do not overlap there.

use std::sync::Arc;

use base::{DpPort, PortNo};
use dpif::FlowId;
use flow::BytePattern;
use packet::Batch;
use packet::buf::BATCH_MAX;

use crate::group::Adds;
use crate::megaflow::Megaflow;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct LastFlow {
    flow: Option<Arc<Megaflow>>,
    /// `None` if there is no flow, or if bytes alone do not identify its packets.
    pattern: Option<BytePattern>,
    /// Another flow that batches have taken since, and how many in a row.
    candidate: Option<FlowId>,
    candidate_batches: u8,
}

/// Another flow replaces the recorded one after this many batches in a row. A replacement writes the flow's reference count,
/// on a cache line that all threads which use the flow read.
const CANDIDATE_BATCHES: u8 = 8;

impl LastFlow {
    /// Returns what the packets, at most [`BATCH_MAX`], add to the flow's statistics if the flow covers all of them. The flow
    /// may have been removed.
    #[inline]
    pub(crate) fn covers_all(&self, batch: &mut Batch) -> Option<Adds> {
        let pattern = self.pattern.as_ref().filter(|_| batch.len() <= BATCH_MAX)?;
        let (len, tcp_flags) = pattern.covers_all(batch.iter_mut().map(|packet| packet.received()))?;
        (len > 0).then_some(Adds { len, tcp_flags })
    }

    /// Returns the flow if it is still installed. The caller holds a reader of the flows.
    #[inline]
    pub(crate) fn flow(&mut self, generation: u64) -> Option<&Arc<Megaflow>> {
        if self.flow.as_ref().is_some_and(|flow| flow.is_gone() || flow.generation != generation) {
            *self = Self::default();
        }
        self.flow.as_ref()
    }

    /// Records the flow that a batch of plain packets from `in_port` took. The caller holds a reader of the flows.
    pub(crate) fn learn(&mut self, flow: &Arc<Megaflow>, in_port: DpPort) {
        if let Some(known) = &self.flow {
            let same = self.candidate == Some(flow.id);
            self.candidate_batches = if same { self.candidate_batches.saturating_add(1) } else { 1 };
            self.candidate = Some(flow.id);
            let keeps = self.candidate_batches < CANDIDATE_BATCHES && !known.is_gone();
            if Arc::ptr_eq(known, flow) || keeps {
                return;
            }
        }
        (self.candidate, self.candidate_batches) = (None, 0);
        self.pattern = BytePattern::new(&flow.key, &flow.mask(), PortNo(in_port.0));
        self.flow = Some(Arc::clone(flow));
    }
}
