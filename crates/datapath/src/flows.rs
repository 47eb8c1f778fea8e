//! The installed flows: the index behind its lock, ids, the current generation and the limit.
//!
//! Packet threads hold the lock shared for the look-ups of one batch, in which they also count, so that the
//! statistics that a removal returns are the last ones. Writers hold it for one change.
//!
//! Invariant: `by_id` and the index hold the same flows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dpif::{DpFlow, DpFlowEntry, DpFlowStats, DpifError, FlowId};
use hashbrown::HashMap;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::megaflow::{Megaflow, MegaflowIndex, TupleSpace};

/// Which structure finds flows.
pub(crate) type Index = TupleSpace;

#[derive(Debug, Default)]
struct Inner {
    index: Index,
    by_id: HashMap<FlowId, Arc<Megaflow>>,
}

/// All flows of a datapath.
#[derive(Debug)]
pub(crate) struct Flows {
    inner: RwLock<Inner>,
    generation: AtomicU64,
    limit: AtomicU64,
}

/// What became of a flow to be installed.
#[derive(Debug)]
pub(crate) enum Installed {
    /// It is there, in place of the one of the same key and mask. One of the same id goes on in it.
    Yes(Option<Arc<Megaflow>>),
    /// There is no room.
    Full,
}

/// The flows, held still for one batch.
pub(crate) struct Reader<'a> {
    inner: RwLockReadGuard<'a, Inner>,
    generation: u64,
}

impl Reader<'_> {
    /// The current flow that covers `key`.
    pub(crate) fn lookup(&self, key: &flow::FlowKey, probes: &mut u64) -> Option<&Arc<Megaflow>> {
        self.inner.index.lookup(key, self.generation, probes)
    }
}

impl Flows {
    pub(crate) fn new(limit: u64) -> Self {
        Self { inner: RwLock::default(), generation: AtomicU64::new(0), limit: AtomicU64::new(limit) }
    }

    /// Holds the flows for look-ups, in the generation that is current at this moment.
    pub(crate) fn reader(&self) -> Reader<'_> {
        let inner = self.inner.read();
        Reader { inner, generation: self.generation.load(Ordering::SeqCst) }
    }

    /// Of two threads that move on at the same time the later generation wins, in whichever order they get here.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.generation.fetch_max(generation, Ordering::SeqCst);
    }

    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn put(&self, id: FlowId, flow: Arc<DpFlow>) -> Installed {
        let mut inner = self.inner.write();
        let old = inner.by_id.remove(&id);
        let flow = Arc::new(match &old {
            Some(old) => {
                inner.index.remove(old);
                Megaflow::continuing(old, flow)
            }
            None => Megaflow::new(id, flow),
        });
        let gone = inner.index.insert(flow.clone());
        if let Some(gone) = &gone {
            inner.by_id.remove(&gone.id);
        } else if old.is_none() && inner.by_id.len() as u64 >= self.limit.load(Ordering::Relaxed) {
            inner.index.remove(&flow);
            return Installed::Full;
        }
        inner.by_id.insert(id, flow);
        Installed::Yes(gone)
    }

    pub(crate) fn del(&self, id: FlowId) -> Result<DpFlowStats, DpifError> {
        let mut inner = self.inner.write();
        let flow = inner.by_id.remove(&id).ok_or(DpifError::NoFlow)?;
        inner.index.remove(&flow);
        Ok(flow.stats())
    }

    pub(crate) fn dump(&self) -> Vec<DpFlowEntry> {
        // The copies are made outside of the lock: packet threads that want to install wait only for the list.
        let flows: Vec<_> = self.inner.read().index.iter().cloned().collect();
        flows.iter().map(|f| f.entry()).collect()
    }

    /// Flows, and distinct masks among them.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let inner = self.inner.read();
        (inner.by_id.len() as u64, inner.index.n_masks() as u64)
    }

    /// Tunes the index, if nobody holds it.
    pub(crate) fn tune(&self) {
        if let Some(mut inner) = self.inner.try_write() {
            inner.index.tune();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Field, FlowKey};

    fn flow(port: u16, generation: u64) -> Arc<DpFlow> {
        let mask = FlowKey::mask_of(Field::TcpDst);
        let mut key = FlowKey::ZERO;
        key.set(Field::TcpDst, port.into());
        Arc::new(DpFlow { key, mask, actions: Arc::new([]), generation })
    }

    #[test]
    fn put_replaces_and_the_limit_holds() {
        let flows = Flows::new(2);
        assert!(matches!(flows.put(FlowId(1), flow(80, 0)), Installed::Yes(None)));
        assert!(matches!(flows.put(FlowId(2), flow(80, 0)), Installed::Yes(Some(gone)) if gone.id == FlowId(1)));
        assert!(matches!(flows.put(FlowId(2), flow(81, 0)), Installed::Yes(None)));
        assert_eq!(flows.counts(), (1, 1));
        assert!(matches!(flows.put(FlowId(3), flow(82, 0)), Installed::Yes(_)));
        assert!(matches!(flows.put(FlowId(4), flow(83, 0)), Installed::Full));
        assert!(matches!(flows.put(FlowId(5), flow(82, 0)), Installed::Yes(Some(gone)) if gone.id == FlowId(3)));
        assert!(flows.del(FlowId(4)).is_err());
        assert!(flows.del(FlowId(2)).is_ok());
        assert_eq!(flows.dump().len(), 1);
        assert!(flows.reader().lookup(&flow(82, 0).key, &mut 0).is_some());
        flows.set_generation(1);
        assert!(flows.reader().lookup(&flow(82, 0).key, &mut 0).is_none());
    }
}
