//! The flow that the packets of a queue took last, if it was one for a whole batch: so that batches which take it again are
//! told by the bytes of their frames, and neither keys are made nor is anything looked up.
//!
//! As the microflow cache, it is a hint only. A batch takes the flow if that covers each of its frames, is installed still,
//! and is of the current generation; if one frame is another's, all go the general way. What the flow covers is what it
//! matched when it was noted, so that the index would answer the same: installed flows are disjoint there.

use std::sync::Arc;

use base::{DpPort, PortNo};
use flow::Alike;
use packet::Batch;
use packet::buf::BATCH_MAX;

use crate::group::Adds;
use crate::megaflow::Megaflow;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Usual {
    flow: Option<Arc<Megaflow>>,
    /// None: there is no flow, or it is told by more than bytes.
    alike: Option<Alike>,
}

impl Usual {
    /// If the flow covers all packets, some [`BATCH_MAX`] at most, what they add to its statistics. It may be gone.
    #[inline]
    pub(crate) fn covers_all(&self, batch: &mut Batch) -> Option<Adds> {
        let alike = self.alike.as_ref().filter(|_| batch.len() <= BATCH_MAX)?;
        let mut adds = Adds::default();
        for packet in &mut *batch {
            let frame = packet.fresh();
            adds.tcp_flags |= alike.tcp_flags_if_covered(frame)?;
            adds.len += frame.len() as u32;
        }
        (adds.len > 0).then_some(adds)
    }

    /// The flow, while it is to be used. To be called while the flows are held.
    #[inline]
    pub(crate) fn flow(&mut self, generation: u64) -> Option<&Arc<Megaflow>> {
        if self.flow.as_ref().is_some_and(|flow| flow.is_gone() || flow.generation != generation) {
            *self = Self::default();
        }
        self.flow.as_ref()
    }

    /// Notes the flow that a batch of plain packets from `in_port` took. To be called while the flows are held.
    pub(crate) fn learn(&mut self, flow: &Arc<Megaflow>, in_port: DpPort) {
        if self.flow.as_ref().is_some_and(|known| Arc::ptr_eq(known, flow)) {
            return;
        }
        self.alike = Alike::new(&flow.key, &flow.mask(), PortNo(in_port.0));
        self.flow = Some(Arc::clone(flow));
    }
}
