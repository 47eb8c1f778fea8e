//! An installed flow, in the room of what it says: words of its key and mask that are zero are not kept, and flows
//! that read or match the same bits share one list of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use base::Millis;
use dpif::{DpActions, DpFlow, DpFlowEntry, DpFlowStats, FlowId};
use flow::{Sparse, Steps};
use parking_lot::Mutex;

use super::share::Lists;

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
    /// What it was computed from, in order, with its mask before it is narrowed.
    pub(crate) reads: Arc<Steps>,
    /// What it matches as it is installed, if that is more. An index changes it when it is built anew. Rarely there, so
    /// that one word has to do for it.
    narrowed: Mutex<Option<Box<Sparse>>>,
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
        let DpFlow { key, reads, actions, generation } = flow;
        Self {
            id,
            actions,
            generation,
            key,
            reads,
            narrowed: Mutex::new(None),
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
        DpFlowEntry {
            id: self.id,
            key: self.key.expand().masked(&mask),
            mask,
            actions: self.actions.clone(),
            generation: self.generation,
            stats: self.stats(),
        }
    }

    /// The bits that it matches.
    pub fn mask(&self) -> Sparse {
        self.narrowed.lock().as_deref().unwrap_or(self.reads.mask()).clone()
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
    pub(crate) fn share(&mut self, lists: &mut Lists) {
        self.reads = lists.share(self.reads.clone());
    }

    /// It is to match these bits, or just what it reads.
    pub(crate) fn narrow(&self, mask: Option<Sparse>, lists: &mut Lists) {
        let mut narrowed = self.narrowed.lock();
        *narrowed = lists.narrow(&self.reads, narrowed.as_deref(), mask).map(Box::new);
    }

    /// It shares its lists no more.
    pub(crate) fn unshare(&self, lists: &mut Lists) {
        lists.release(&self.reads, self.narrowed.lock().as_deref());
    }
}
