//! An installed flow, in the room of what it says: words of its key and mask that are zero are not kept, and flows
//! that read or match the same bits share one list of them.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{DpPort, Millis};
use dpif::{DpAction, DpActions, DpFlow, DpFlowEntry, DpFlowStats, FlowId};
use flow::{Sparse, Steps};
use parking_lot::Mutex;

use super::share::Lists;
use crate::shared::{bump, bump_own};

/// A thread that counts packets, by a number that it alone has; `None` for all those that have no number.
pub(crate) type Counter = Option<NonZeroU16>;

/// An installed flow with its counters, which packet threads write while others read.
///
/// Most flows have the packets of one thread. The first thread with a number that counts *owns* the flow's own counters:
/// it alone writes them, which takes no locked instruction. Once another thread with a number counts, the flow is *split*:
/// from then on each thread, the owner too, has counters in a line of memory of its own ([`Part`]), so that what all of them
/// read of the flow stays in the caches of all. Who has no number uses the second pair.
///
/// What every packet needs stands first, in one line of memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Megaflow {
    packets: AtomicU64,
    bytes: AtomicU64,
    /// Milliseconds, 0 for never.
    used: AtomicU64,
    /// What is counted by who has no number.
    others: [AtomicU64; 2],
    /// The port that its packets leave by, if they do nothing else: so that this can be told without a look at `actions`.
    pub(crate) output: Option<DpPort>,
    tcp_flags: AtomicU16,
    /// The number of the thread that owns `packets` and `bytes`, 0 if none does yet.
    owner: AtomicU16,
    gone: AtomicBool,
    /// Whether threads count in `parts`.
    split: AtomicBool,
    /// When it was last offered to the accelerator ([`crate::offload`]); 0 for never.
    pub(crate) offered: AtomicU32,
    /// Whether the accelerator has it.
    pub(crate) offloaded: AtomicBool,
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
    /// Counters of threads, once it is split.
    parts: OnceLock<Box<Parts>>,
}

/// Where the counters of threads are, by the thread's number modulo its length: read by all, and hardly ever written.
type Parts = [OnceLock<Box<Part>>; PLACES];

/// What one thread counted of a flow that it shares with others, in a line of memory that nobody else writes.
#[derive(Debug)]
#[repr(C, align(64))]
struct Part {
    thread: NonZeroU16,
    tcp_flags: AtomicU16,
    packets: AtomicU64,
    bytes: AtomicU64,
    used: AtomicU64,
    /// Of another thread with the same place.
    next: OnceLock<Box<Self>>,
}

impl Part {
    fn new(thread: NonZeroU16) -> Self {
        let [packets, bytes, used] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { thread, tcp_flags: AtomicU16::new(0), packets, bytes, used, next: OnceLock::new() }
    }
}

const _: () = assert!(std::mem::offset_of!(Megaflow, id) <= 64);
/// Places of threads.
const PLACES: usize = 16;

impl Megaflow {
    /// A flow that has done nothing yet.
    pub fn new(id: FlowId, flow: DpFlow) -> Self {
        let [packets, bytes, used] = std::array::from_fn(|_| AtomicU64::new(0));
        let DpFlow { key, reads, actions, generation } = flow;
        let output = if let [DpAction::Output(port)] = *actions { Some(port) } else { None };
        Self {
            id,
            actions,
            output,
            generation,
            key,
            reads,
            narrowed: Mutex::new(None),
            gone: AtomicBool::new(false),
            split: AtomicBool::new(false),
            parts: OnceLock::new(),
            offered: AtomicU32::new(0),
            offloaded: AtomicBool::new(false),
            tcp_flags: AtomicU16::new(0),
            owner: AtomicU16::new(0),
            packets,
            bytes,
            others: Default::default(),
            used,
        }
    }

    /// A flow that goes on with the id and the counters of `old`.
    pub fn continuing(old: &Self, flow: DpFlow) -> Self {
        let DpFlowStats { packets, bytes, used, tcp_flags } = old.stats();
        Self {
            packets: AtomicU64::new(packets),
            bytes: AtomicU64::new(bytes),
            used: AtomicU64::new(used.map_or(0, |at| at.0)),
            tcp_flags: AtomicU16::new(tcp_flags),
            ..Self::new(old.id, flow)
        }
    }

    /// Whether `thread` may write the flow's own counters, as it is the first or was so.
    #[inline]
    fn is_own(&self, thread: NonZeroU16) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        let claim = || self.owner.compare_exchange(0, thread.get(), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        owner == thread.get() || owner == 0 && claim()
    }

    /// Counts packets of `bytes` bytes together, with these TCP flags among them, on the thread `by`.
    #[inline]
    pub(crate) fn count(&self, by: Counter, packets: u64, bytes: u64, tcp_flags: u16, now: Millis) {
        let (used, all_flags) = match by {
            Some(thread) if self.split.load(Ordering::Relaxed) || !self.is_own(thread) => {
                let part = self.part(thread);
                bump_own(&part.packets, packets);
                bump_own(&part.bytes, bytes);
                (&part.used, &part.tcp_flags)
            }
            Some(_) => {
                bump_own(&self.packets, packets);
                bump_own(&self.bytes, bytes);
                (&self.used, &self.tcp_flags)
            }
            None => {
                bump(&self.others[0], packets);
                bump(&self.others[1], bytes);
                (&self.used, &self.tcp_flags)
            }
        };
        if used.load(Ordering::Relaxed) != now.0 {
            used.store(now.0, Ordering::Relaxed);
        }
        if all_flags.load(Ordering::Relaxed) & tcp_flags != tcp_flags {
            all_flags.fetch_or(tcp_flags, Ordering::Relaxed);
        }
    }

    /// The counters of a thread of a flow that is split, or is from now on.
    #[cold]
    #[inline(never)]
    fn split(&self, thread: NonZeroU16) -> &Part {
        self.split.store(true, Ordering::Relaxed);
        let parts = self.parts.get_or_init(Box::default);
        let mut part = parts[Self::place(thread)].get_or_init(|| Box::new(Part::new(thread)));
        while part.thread != thread {
            part = part.next.get_or_init(|| Box::new(Part::new(thread)));
        }
        part
    }

    #[inline]
    fn place(thread: NonZeroU16) -> usize {
        usize::from(thread.get()) % PLACES
    }

    #[inline]
    fn part(&self, thread: NonZeroU16) -> &Part {
        // Another thread's part is not looked at, but where threads have the same place.
        match self.parts.get().and_then(|parts| parts[Self::place(thread)].get()) {
            Some(part) if part.thread == thread => part,
            _ => self.split(thread),
        }
    }

    /// The counters of threads, of a flow that is split.
    fn parts(&self) -> impl Iterator<Item = &Part> {
        let places = self.parts.get().into_iter().flat_map(|parts| parts.iter());
        places.flat_map(|first| {
            std::iter::successors(first.get().map(|part| &**part), |part| part.next.get().map(|next| &**next))
        })
    }

    /// Counts packets that an accelerator forwarded, the last one at `used`: which may be before one that came here.
    pub(crate) fn count_below(&self, packets: u64, bytes: u64, tcp_flags: u16, used: Millis) {
        bump(&self.others[0], packets);
        bump(&self.others[1], bytes);
        self.used.fetch_max(used.0, Ordering::Relaxed);
        self.tcp_flags.fetch_or(tcp_flags, Ordering::Relaxed);
    }

    /// Packets so far; those of who has no number may be left out.
    #[inline]
    pub(crate) fn packets_here(&self) -> u64 {
        if self.split.load(Ordering::Relaxed) { self.stats().packets } else { self.packets.load(Ordering::Relaxed) }
    }

    /// Loads what counting needs.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// The counters as they are now.
    pub fn stats(&self) -> DpFlowStats {
        let [mut packets, mut bytes] = [(&self.packets, 0), (&self.bytes, 1)]
            .map(|(own, at)| own.load(Ordering::Relaxed) + self.others[at].load(Ordering::Relaxed));
        let mut used = self.used.load(Ordering::Relaxed);
        let mut tcp_flags = self.tcp_flags.load(Ordering::Relaxed);
        for part in self.parts() {
            packets += part.packets.load(Ordering::Relaxed);
            bytes += part.bytes.load(Ordering::Relaxed);
            used = used.max(part.used.load(Ordering::Relaxed));
            tcp_flags |= part.tcp_flags.load(Ordering::Relaxed);
        }
        DpFlowStats { packets, bytes, used: (used != 0).then_some(Millis(used)), tcp_flags }
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
            offloaded: self.offloaded.load(Ordering::Relaxed),
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
        // Behind two counts, in a line of their own.
        let parts = self.parts.get().map_or(0, |_| size_of::<Parts>()) + self.parts().count() * size_of::<Part>();
        align_of::<Self>() + size_of::<Self>() + self.key.heap_bytes() + parts
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

#[cfg(test)]
mod tests {
    use super::*;
    use flow::FlowKey;

    #[test]
    fn threads_that_count_together_lose_nothing() {
        let flow = |id| Megaflow::new(FlowId(id), DpFlow::by_hand(&FlowKey::ZERO, &FlowKey::ZERO, Arc::new([]), 0));
        let counted = flow(1);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let counted = &counted;
                // Two with numbers, two without.
                let by = NonZeroU16::new(thread).filter(|n| n.get() < 3);
                scope.spawn(move || (0..10_000).for_each(|n| counted.count(by, 2, 100, 1 << thread, Millis(n + 1))));
            }
        });
        let stats = counted.stats();
        assert_eq!((stats.packets, stats.bytes, stats.tcp_flags), (80_000, 4_000_000, 0b1111));
        // A flow that takes its place goes on from there, with an owner of its own.
        let next = Megaflow::continuing(&counted, DpFlow::by_hand(&FlowKey::ZERO, &FlowKey::ZERO, Arc::new([]), 0));
        assert_eq!(next.stats(), stats);
        next.count(NonZeroU16::new(7), 1, 60, 0, Millis(5));
        next.count(NonZeroU16::new(8), 1, 60, 0, Millis(6));
        let own = || next.packets.load(Ordering::Relaxed);
        assert_eq!((next.stats().packets, own(), next.packets_here()), (80_002, 80_001, 80_002));
        // Now that there is another thread, the owner counts apart from what all look at.
        next.count(NonZeroU16::new(7), 1, 60, 0x100, Millis(4));
        let parts: Vec<_> =
            next.parts().map(|part| (part.thread.get(), part.packets.load(Ordering::Relaxed))).collect();
        assert_eq!((own(), parts), (80_001, vec![(7, 1), (8, 1)]));
        let stats = next.stats();
        assert_eq!((stats.packets, stats.bytes, stats.tcp_flags), (80_003, 4_000_180, 0b1_0000_1111));
        assert_eq!(stats.used, Some(Millis(6)), "the latest of all");
    }
}
