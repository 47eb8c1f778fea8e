//! An installed flow, in the room of what it says: words of its key and mask that are zero are not kept, and flows
//! that read or match the same bits share one list of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use base::Millis;
use dpif::{DpActions, DpFlow, DpFlowEntry, DpFlowStats, FlowId};
use flow::layout::WORDS;
use flow::{FlowKey, Sparse, Step};
use parking_lot::Mutex;

use super::share::Shared;

/// An installed flow with its counters, which packet threads write while others read.
#[derive(Debug)]
pub struct Megaflow {
    /// Its id.
    pub id: FlowId,
    /// What to do.
    pub actions: DpActions,
    /// See [`DpFlow::generation`].
    pub generation: u64,
    /// The whole key of the packet that it was made for.
    pub(crate) key: Sparse,
    /// What it was computed from, in order; the union of these bits is its mask before it is narrowed.
    pub(crate) reads: Arc<[Step]>,
    /// What it matches as it is installed. An index changes it when it is built anew.
    mask: Mutex<Arc<Sparse>>,
    gone: AtomicBool,
    tcp_flags: AtomicU16,
    packets: AtomicU64,
    bytes: AtomicU64,
    /// Milliseconds, 0 for never.
    used: AtomicU64,
}

impl Megaflow {
    /// A flow that has done nothing yet.
    pub fn new(id: FlowId, flow: DpFlow) -> Self {
        let [packets, bytes, used] = std::array::from_fn(|_| AtomicU64::new(0));
        let DpFlow { key, mut mask, reads, actions, generation } = flow;
        let reads = complete(reads, &mut mask);
        Self {
            id,
            actions,
            generation,
            key: Sparse::new(&key),
            reads,
            mask: Mutex::new(Arc::new(Sparse::new(&mask))),
            gone: AtomicBool::new(false),
            tcp_flags: AtomicU16::new(0),
            packets,
            bytes,
            used,
        }
    }

    /// A flow that goes on with the id and the counters of `old`.
    pub fn continuing(old: &Self, flow: DpFlow) -> Self {
        let copy = |c: &AtomicU64| AtomicU64::new(c.load(Ordering::Relaxed));
        Self {
            packets: copy(&old.packets),
            bytes: copy(&old.bytes),
            used: copy(&old.used),
            tcp_flags: AtomicU16::new(old.tcp_flags.load(Ordering::Relaxed)),
            ..Self::new(old.id, flow)
        }
    }

    /// Counts packets of `bytes` bytes together, with these TCP flags among them.
    pub fn count(&self, packets: u64, bytes: u64, tcp_flags: u16, now: Millis) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.used.load(Ordering::Relaxed) != now.0 {
            self.used.store(now.0, Ordering::Relaxed);
        }
        if self.tcp_flags.load(Ordering::Relaxed) & tcp_flags != tcp_flags {
            self.tcp_flags.fetch_or(tcp_flags, Ordering::Relaxed);
        }
    }

    /// The counters as they are now.
    pub fn stats(&self) -> DpFlowStats {
        let used = self.used.load(Ordering::Relaxed);
        DpFlowStats {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            used: (used != 0).then_some(Millis(used)),
            tcp_flags: self.tcp_flags.load(Ordering::Relaxed),
        }
    }

    /// The flow as it is installed, with its counters as they are now.
    pub fn entry(&self) -> DpFlowEntry {
        let mask = self.mask().expand();
        let flow = DpFlow {
            key: self.key.expand().masked(&mask),
            mask,
            reads: self.reads.clone(),
            actions: self.actions.clone(),
            generation: self.generation,
        };
        DpFlowEntry { id: self.id, flow, stats: self.stats() }
    }

    /// The bits that it matches.
    pub fn mask(&self) -> Arc<Sparse> {
        self.mask.lock().clone()
    }

    /// Whether it is not installed any more: what remembers it from a look-up must forget it.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Says that it is not installed any more.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Bytes that it takes, less what it shares with others, and its actions.
    pub fn bytes(&self) -> usize {
        2 * size_of::<usize>() + size_of::<Self>() + self.key.heap_bytes()
    }

    /// Makes it share its lists with other flows that have the same.
    pub(crate) fn share(&mut self, reads: &mut Shared<[Step]>, masks: &mut Shared<Sparse>) {
        self.reads = reads.share(self.reads.clone());
        let mask = self.mask.get_mut();
        *mask = masks.share(mask.clone());
    }

    /// It is to match these bits.
    pub(crate) fn narrow(&mut self, mask: Sparse) {
        *self.mask.get_mut() = Arc::new(mask);
    }

    /// Another mask for an installed flow, shared with others.
    pub(crate) fn set_mask(&self, mask: Sparse, masks: &mut Shared<Sparse>) {
        let mut own = self.mask.lock();
        let new = masks.share(Arc::new(mask));
        masks.release(&own);
        *own = new;
    }

    /// It shares its lists no more.
    pub(crate) fn unshare(&self, reads: &mut Shared<[Step]>, masks: &mut Shared<Sparse>) {
        reads.release(&self.reads);
        masks.release(&self.mask());
    }
}

/// `reads` with the bits of `mask` that they leave out, and `mask` with the bits that it leaves out of them.
fn complete(reads: Arc<[Step]>, mask: &mut FlowKey) -> Arc<[Step]> {
    let mut read = FlowKey::ZERO;
    for step in reads.iter() {
        read.0[step.word()] |= step.bits();
    }
    let left: Vec<Step> = (0..WORDS)
        .filter(|w| mask.0[*w] & !read.0[*w] != 0)
        .map(|w| Step::Bits { word: w as u8, bits: mask.0[w] & !read.0[w] })
        .collect();
    for (m, r) in mask.0.iter_mut().zip(read.0) {
        *m |= r;
    }
    if left.is_empty() { reads } else { reads.iter().copied().chain(left).collect() }
}
