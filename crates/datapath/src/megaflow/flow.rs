//! An installed flow in compact form: zero words of key and mask are not stored, and flows with equal reads, masks or
//! actions share them.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{DpPort, Millis};
use dpif::{DpAction, DpActions, DpFlow, DpFlowEntry, DpFlowStats, FlowId};
use flow::{Sparse, Steps};
use parking_lot::Mutex;
use tunnel::header::Compact;

use super::share::Lists;
use crate::shared::{bump, bump_own};
use crate::shortcut;

/// The unique number of a thread that counts packets; `None` for all threads without a number.
pub(crate) type Counter = Option<NonZeroU16>;

/// An installed flow with its counters, which packet threads write while others read.
///
/// Most flows receive the packets of one thread. The first numbered thread that counts *owns* the flow's own counters:
/// it alone writes them, without locked instructions. When a second numbered thread counts, the flow is *split*: from
/// then on each thread, the owner included, has counters on a cache line of its own ([`ThreadCounters`]), so that the
/// shared fields of the flow stay in all caches. Threads without a number use the second pair of counters.
///
/// The fields that every packet needs come first, in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Megaflow {
    packets: AtomicU64,
    bytes: AtomicU64,
    /// Milliseconds, 0 for never.
    used: AtomicU64,
    /// The headers that the flow pushes before it outputs to one port, if it does nothing else and they have this form.
    pub(crate) encapsulation: Option<Box<Encapsulation>>,
    /// The output port, if the flow only outputs to one port; saves reading `actions`.
    pub(crate) output: Option<DpPort>,
    tcp_flags: AtomicU16,
    /// The number of the thread that owns `packets` and `bytes`, 0 if it has no owner yet.
    owner: AtomicU16,
    gone: AtomicBool,
    /// Whether threads count in `per_thread`.
    split: AtomicBool,
    /// Whether `actions` contain an upcall.
    pub(crate) calls_above: bool,
    /// The epoch in which it was last offered to the accelerator ([`crate::offload`]); 0 for never.
    pub(crate) offered: AtomicU32,
    /// Whether the accelerator has installed it.
    pub(crate) offloaded: AtomicBool,
    /// Its id.
    pub id: FlowId,
    /// The actions of the flow.
    pub actions: DpActions,
    /// Packets and bytes counted by threads without a number.
    others: [AtomicU64; 2],
    /// See [`DpFlow::generation`].
    pub generation: u64,
    /// Whether its packets can take the shortcut ([`crate::shortcut`]).
    pub(crate) is_tracking: bool,
    /// Whether `actions` use the metadata of packets.
    pub(crate) uses_metadata: bool,
    /// The whole key of the packet that it was made for.
    pub(crate) key: Sparse,
    /// The reads of its translation, with their mask, which is the flow's mask before narrowing.
    pub(crate) reads: Arc<Steps>,
    /// The mask as installed, if it is narrower than the reads. An index changes it when it is rebuilt. It is rarely
    /// present, so a single word points to it.
    narrowed: Mutex<Option<Box<Sparse>>>,
    /// Counters of threads, after the flow was split.
    per_thread: OnceLock<Box<CounterTable>>,
}

/// The counters of threads, indexed by the thread's number modulo the length. All threads read it; it is hardly ever
/// written.
type CounterTable = [OnceLock<Box<ThreadCounters>>; TABLE_LEN];

/// The counters of one thread of a split flow, on a cache line that no other thread writes.
#[derive(Debug)]
#[repr(C, align(64))]
struct ThreadCounters {
    thread: NonZeroU16,
    tcp_flags: AtomicU16,
    packets: AtomicU64,
    bytes: AtomicU64,
    used: AtomicU64,
    /// The next thread with the same index.
    next: OnceLock<Box<Self>>,
}

/// Headers to be pushed, in one piece.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Encapsulation {
    pub(crate) headers: Compact,
    /// The datapath's port of the tunnel.
    pub(crate) port: DpPort,
    /// The port to which the packets go.
    pub(crate) to: DpPort,
}

impl Encapsulation {
    /// That of a list of actions, if it does nothing else.
    fn of(actions: &[DpAction]) -> Option<Box<Self>> {
        match actions {
            // Packets with another key in the other direction have an answer of their own.
            [DpAction::TunnelPush(push), DpAction::Output(to)] if push.in_key.is_none() => {
                Some(Box::new(Self { headers: push.template.compact()?, port: push.port, to: *to }))
            }
            _ => None,
        }
    }
}

impl ThreadCounters {
    fn new(thread: NonZeroU16) -> Self {
        let [packets, bytes, used] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { thread, tcp_flags: AtomicU16::new(0), packets, bytes, used, next: OnceLock::new() }
    }
}

const _: () = assert!(std::mem::offset_of!(Megaflow, id) <= 64);

/// Whether a list of actions contains an upcall to the switch.
fn calls_above(actions: &[DpAction]) -> bool {
    actions.iter().any(|action| match action {
        DpAction::Controller(_)
        | DpAction::Observe(_)
        | DpAction::Psample(_)
        | DpAction::Punt(_)
        | DpAction::SlowPath => true,
        DpAction::Clone(list) | DpAction::Sample { actions: list, .. } => calls_above(list),
        DpAction::CheckPktLen { greater, lesser, .. } => calls_above(greater) || calls_above(lesser),
        _ => false,
    })
}

/// Places of threads.
const TABLE_LEN: usize = 16;

impl Megaflow {
    /// A new flow with zero counters.
    pub fn new(id: FlowId, flow: DpFlow) -> Self {
        let [packets, bytes, used] = std::array::from_fn(|_| AtomicU64::new(0));
        let DpFlow { key, reads, actions, generation } = flow;
        let calls_above = calls_above(&actions);
        let output = if let [DpAction::Output(port)] = *actions { Some(port) } else { None };
        Self {
            id,
            output,
            encapsulation: Encapsulation::of(&actions),
            generation,
            key,
            reads,
            narrowed: Mutex::new(None),
            gone: AtomicBool::new(false),
            split: AtomicBool::new(false),
            calls_above,
            is_tracking: shortcut::is_tracking(&actions),
            uses_metadata: shortcut::uses_metadata(&actions),
            per_thread: OnceLock::new(),
            offered: AtomicU32::new(0),
            offloaded: AtomicBool::new(false),
            tcp_flags: AtomicU16::new(0),
            owner: AtomicU16::new(0),
            packets,
            bytes,
            others: Default::default(),
            used,
            actions,
        }
    }

    /// A flow that takes over the id and the counters of `old`, which is no longer counted.
    pub fn continuing(old: &Self, flow: DpFlow) -> Self {
        let new = Self::new(old.id, flow);
        new.continue_from(&old.stats());
        new
    }

    /// Adds the counters of a flow that this one replaces.
    pub(crate) fn continue_from(&self, old: &DpFlowStats) {
        self.count_offloaded(old.packets, old.bytes, old.tcp_flags, old.used.unwrap_or_default());
    }

    /// Whether `thread` owns the flow's own counters; an unowned flow gets it as owner.
    #[inline]
    fn is_own(&self, thread: NonZeroU16) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        let claim = || self.owner.compare_exchange(0, thread.get(), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        owner == thread.get() || owner == 0 && claim()
    }

    /// Counts packets with `bytes` bytes in total, and their combined TCP flags, on thread `by`.
    #[inline]
    pub(crate) fn count(&self, by: Counter, packets: u64, bytes: u64, tcp_flags: u16, now: Millis) {
        let (used, all_flags) = match by {
            Some(thread) if self.split.load(Ordering::Relaxed) || !self.is_own(thread) => {
                let counters = self.counters(thread);
                bump_own(&counters.packets, packets);
                bump_own(&counters.bytes, bytes);
                (&counters.used, &counters.tcp_flags)
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

    /// The counters of a thread of a split flow; splits the flow first if needed.
    #[cold]
    #[inline(never)]
    fn split(&self, thread: NonZeroU16) -> &ThreadCounters {
        // Written only once, as all counting threads read this cache line.
        if !self.split.load(Ordering::Relaxed) {
            self.split.store(true, Ordering::Relaxed);
        }
        let table = self.per_thread.get_or_init(Box::default);
        let mut counters = table[Self::index_of(thread)].get_or_init(|| Box::new(ThreadCounters::new(thread)));
        while counters.thread != thread {
            counters = counters.next.get_or_init(|| Box::new(ThreadCounters::new(thread)));
        }
        counters
    }

    #[inline]
    fn index_of(thread: NonZeroU16) -> usize {
        usize::from(thread.get()) % TABLE_LEN
    }

    #[inline]
    fn counters(&self, thread: NonZeroU16) -> &ThreadCounters {
        // Counters of other threads are only read if they have the same index.
        match self.per_thread.get().and_then(|table| table[Self::index_of(thread)].get()) {
            Some(counters) if counters.thread == thread => counters,
            _ => self.split(thread),
        }
    }

    /// The counters of all threads of a split flow.
    fn per_thread(&self) -> impl Iterator<Item = &ThreadCounters> {
        let slots = self.per_thread.get().into_iter().flat_map(|table| table.iter());
        slots.flat_map(|first| {
            std::iter::successors(first.get().map(|counters| &**counters), |counters| {
                counters.next.get().map(|next| &**next)
            })
        })
    }

    /// Counts packets that an accelerator forwarded, the last one at `used`, which may be before a packet counted here.
    pub(crate) fn count_offloaded(&self, packets: u64, bytes: u64, tcp_flags: u16, used: Millis) {
        bump(&self.others[0], packets);
        bump(&self.others[1], bytes);
        self.used.fetch_max(used.0, Ordering::Relaxed);
        self.tcp_flags.fetch_or(tcp_flags, Ordering::Relaxed);
    }

    /// Packets so far.
    #[inline]
    pub(crate) fn packets_in_userspace(&self) -> u64 {
        if self.split.load(Ordering::Relaxed) {
            return self.stats().packets;
        }
        self.packets.load(Ordering::Relaxed) + self.others[0].load(Ordering::Relaxed)
    }

    /// Loads what counting needs.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// The current counters.
    pub fn stats(&self) -> DpFlowStats {
        let [mut packets, mut bytes] = [(&self.packets, 0), (&self.bytes, 1)]
            .map(|(own, at)| own.load(Ordering::Relaxed) + self.others[at].load(Ordering::Relaxed));
        let mut used = self.used.load(Ordering::Relaxed);
        let mut tcp_flags = self.tcp_flags.load(Ordering::Relaxed);
        for counters in self.per_thread() {
            packets += counters.packets.load(Ordering::Relaxed);
            bytes += counters.bytes.load(Ordering::Relaxed);
            used = used.max(counters.used.load(Ordering::Relaxed));
            tcp_flags |= counters.tcp_flags.load(Ordering::Relaxed);
        }
        DpFlowStats { packets, bytes, used: (used != 0).then_some(Millis(used)), tcp_flags }
    }

    /// The flow as installed, with its current counters.
    pub fn entry(&self) -> DpFlowEntry {
        let mask = self.mask().expand();
        DpFlowEntry {
            id: self.id,
            key: self.key.expand(),
            mask,
            actions: self.actions.clone(),
            generation: self.generation,
            stats: self.stats(),
            offloaded: self.offloaded.load(Ordering::Relaxed),
        }
    }

    /// The mask as installed.
    pub fn mask(&self) -> Sparse {
        self.narrowed.lock().as_deref().unwrap_or(self.reads.mask()).clone()
    }

    /// Whether it is no longer installed: caches must drop their references to it.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Marks it as no longer installed.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Memory in bytes, without shared parts and actions.
    pub fn bytes(&self) -> usize {
        // The allocation has two reference counts in front, on a cache line of their own.
        let per_thread = self.per_thread.get().map_or(0, |_| size_of::<CounterTable>())
            + self.per_thread().count() * size_of::<ThreadCounters>();
        let headers = self.encapsulation.as_ref().map_or(0, |_| size_of::<Encapsulation>());
        align_of::<Self>() + size_of::<Self>() + self.key.heap_bytes() + headers + per_thread
    }

    /// Makes it share its lists with other flows that have equal ones.
    pub(crate) fn share(&mut self, lists: &mut Lists) {
        self.reads = lists.share(self.reads.clone());
        self.actions = lists.share_actions(&self.actions);
    }

    /// Sets the mask as installed; `None` for the mask of the reads.
    pub(crate) fn narrow(&self, mask: Option<Sparse>, lists: &mut Lists) {
        let mut narrowed = self.narrowed.lock();
        *narrowed = lists.narrow(&self.reads, narrowed.as_deref(), mask).map(Box::new);
    }

    /// Releases its shared lists.
    pub(crate) fn unshare(&self, lists: &mut Lists) {
        lists.release(&self.reads, self.narrowed.lock().as_deref(), &self.actions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpif::{DpActions, Protocol, Punt};
    use flow::FlowKey;

    #[test]
    fn concurrent_counting_loses_nothing() {
        let flow = |id| Megaflow::new(FlowId(id), DpFlow::by_hand(&FlowKey::ZERO, &FlowKey::ZERO, Arc::new([]), 0));
        let counted = flow(1);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let counted = &counted;
                // Two numbered threads, and two without a number.
                let by = NonZeroU16::new(thread).filter(|n| n.get() < 3);
                scope.spawn(move || (0..10_000).for_each(|n| counted.count(by, 2, 100, 1 << thread, Millis(n + 1))));
            }
        });
        let stats = counted.stats();
        assert_eq!((stats.packets, stats.bytes, stats.tcp_flags), (80_000, 4_000_000, 0b1111));
        // A flow that replaces it continues its counters, and gets an owner of its own.
        let next = Megaflow::continuing(&counted, DpFlow::by_hand(&FlowKey::ZERO, &FlowKey::ZERO, Arc::new([]), 0));
        assert_eq!(next.stats(), stats);
        next.count(NonZeroU16::new(7), 1, 60, 0, Millis(5));
        next.count(NonZeroU16::new(8), 1, 60, 0, Millis(6));
        let own = || next.packets.load(Ordering::Relaxed);
        assert_eq!((next.stats().packets, own(), next.packets_in_userspace()), (80_002, 1, 80_002));
        // With a second thread, the owner also counts in a cache line of its own.
        next.count(NonZeroU16::new(7), 1, 60, 0x100, Millis(4));
        let per_thread: Vec<_> = next
            .per_thread()
            .map(|counters| (counters.thread.get(), counters.packets.load(Ordering::Relaxed)))
            .collect();
        assert_eq!((own(), per_thread), (1, vec![(7, 1), (8, 1)]));
        let stats = next.stats();
        assert_eq!((stats.packets, stats.bytes, stats.tcp_flags), (80_003, 4_000_180, 0b1_0000_1111));
        assert_eq!(stats.used, Some(Millis(6)), "the latest of all");
    }

    #[test]
    fn lists_that_call_the_handler_are_known() {
        let nest: [fn(DpActions) -> DpAction; 4] = [
            DpAction::Clone,
            |actions| DpAction::Sample { probability: 1, actions },
            |greater| DpAction::CheckPktLen { size: 1, greater, lesser: [].into() },
            |lesser| DpAction::CheckPktLen { size: 1, greater: [].into(), lesser },
        ];
        let out = DpAction::Output(DpPort(1));
        for (list, calls) in
            [([DpAction::Punt(Punt::to(Protocol::LLDP)), out.clone()], true), ([DpAction::PopVlan, out], false)]
        {
            assert_eq!(calls_above(&list), calls);
            nest.iter().for_each(|nest| assert_eq!(calls_above(&[nest(list.clone().into())]), calls));
        }
    }
}
