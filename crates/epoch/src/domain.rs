//! The readers of a domain, and grace periods.
//!
//! Each thread has a [`Slot`] with a sequence number that is odd while the thread reads. Only the thread itself writes
//! it. A writer that has unpublished some state records the slots that are odd ([`Grace`]). When each of them has
//! changed, no thread uses the old state any more, and all accesses of these threads while they read happened before.
//!
//! No reader is missed: a reader writes its slot and then loads the published pointer; a writer stores that pointer and
//! then loads the slots. All four accesses are sequentially consistent, so either the reader sees the new state or the
//! writer sees the reader.
//!
//! Slots are never freed. A thread releases its slot when it ends, and another thread continues with the sequence
//! number.

use smallvec::SmallVec;
use std::marker::PhantomData;

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock, store_before_load, yield_now};

/// Number of polls before a waiting thread yields, and of yields before it sleeps.
const SPINS_MAX: u32 = 200;
#[cfg(not(loom))]
const YIELDS_MAX: u32 = 50;
/// Time that a waiting thread sleeps between two polls, in microseconds: about the time until the scheduler resumes a
/// preempted reader.
#[cfg(not(loom))]
const SLEEP_US: u64 = 50;

/// A thread's slot. It takes two cache lines, as processors prefetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    /// Odd while the thread reads.
    seq: AtomicU64,
    /// Nesting depth of reads. Only the owning thread accesses it.
    depth: AtomicU32,
    /// Whether a thread owns the slot.
    taken: AtomicBool,
}

/// A set of reader threads, and the writers that wait for them.
#[derive(Debug)]
pub struct Domain {
    slots: Mutex<Vec<&'static Slot>>,
}

impl Default for Domain {
    fn default() -> Self {
        Self { slots: Mutex::new(Vec::new()) }
    }
}

impl Domain {
    /// Assigns a slot to the calling thread.
    pub fn register(&'static self) -> Handle {
        let mut slots = lock(&self.slots);
        // The lock orders the last owner's accesses before the next owner's.
        let free = slots.iter().copied().find(|slot| !slot.taken.load(Ordering::Relaxed));
        let slot = free.unwrap_or_else(|| {
            let (seq, depth, taken) = (AtomicU64::new(0), AtomicU32::new(0), AtomicBool::new(true));
            let slot: &'static Slot = Box::leak(Box::new(Slot { seq, depth, taken }));
            slots.push(slot);
            slot
        });
        slot.taken.store(true, Ordering::Relaxed);
        drop(slots);
        Handle { slot, domain: self, thread: PhantomData }
    }

    /// A grace period for the threads that are reading now.
    pub(crate) fn grace(&self) -> Grace {
        store_before_load();
        let readers = lock(&self.slots);
        let readers = readers.iter().map(|slot| (*slot, slot.seq.load(Ordering::SeqCst)));
        Grace { readers: readers.filter(|(_, seq)| seq % 2 == 1).collect() }
    }
}

/// A thread's slot, released on drop.
#[derive(Debug)]
pub struct Handle {
    slot: &'static Slot,
    domain: &'static Domain,
    /// Slots are written by one thread, without read-modify-write operations.
    thread: PhantomData<*const ()>,
}

impl Handle {
    /// Marks the thread as reading until the guard is dropped.
    #[inline]
    pub fn pin(&self) -> Pin {
        let slot = self.slot;
        let depth = slot.depth.load(Ordering::Relaxed);
        slot.depth.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            let seq = slot.seq.load(Ordering::Relaxed);
            // An exchange is the cheapest store that later loads cannot overtake.
            slot.seq.swap(seq.wrapping_add(1), Ordering::SeqCst);
            store_before_load();
        }
        Pin { slot, thread: PhantomData }
    }

    /// Whether the thread is reading.
    fn is_pinned(&self) -> bool {
        self.slot.depth.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let slots = lock(&self.domain.slots);
        // A guard may outlive the handle in another thread-local value; its slot then stays taken for ever.
        if !self.is_pinned() {
            self.slot.taken.store(false, Ordering::Relaxed);
        }
        drop(slots);
    }
}

/// A guard of a reading thread. The state that it reads does not change until the guard is dropped.
#[derive(Debug)]
pub struct Pin {
    slot: &'static Slot,
    thread: PhantomData<*const ()>,
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        let depth = self.slot.depth.load(Ordering::Relaxed) - 1;
        self.slot.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            let seq = self.slot.seq.load(Ordering::Relaxed);
            self.slot.seq.store(seq.wrapping_add(1), Ordering::Release);
        }
    }
}

/// A grace period: the reads that were active when it was created.
#[derive(Clone, Debug, Default)]
pub struct Grace {
    readers: SmallVec<[(&'static Slot, u64); 4]>,
}

impl Grace {
    /// Whether all of these reads have ended. Their accesses happened before this returns `true`.
    pub fn is_over(&mut self) -> bool {
        self.readers.retain(|(slot, seq)| slot.seq.load(Ordering::Acquire) == *seq);
        self.readers.is_empty()
    }

    /// Waits until all of these reads have ended: spins for a moment, then yields and sleeps, as a reader may be
    /// preempted. Panics if the calling thread itself is reading, as it would wait for ever.
    pub fn wait(&mut self) {
        if self.is_over() {
            return;
        }
        assert!(!waits_for_itself(self), "a thread that reads waits for readers");
        for _ in 0..SPINS_MAX {
            if self.is_over() {
                return;
            }
            relax();
        }
        self.wait_long();
    }

    #[cold]
    fn wait_long(&mut self) {
        let mut _yields = 0;
        while !self.is_over() {
            yield_now();
            #[cfg(not(loom))]
            {
                _yields += 1;
                if _yields > YIELDS_MAX {
                    std::thread::sleep(std::time::Duration::from_micros(SLEEP_US));
                }
            }
        }
    }
}

/// Pauses between two polls.
pub(crate) fn relax() {
    #[cfg(loom)]
    yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

#[cfg(not(loom))]
mod threads {
    //! The domains of the process. A thread gets a slot in a domain with its first read.

    use super::{Domain, Grace, Handle, Pin};
    use crate::DOMAINS;
    use std::sync::Mutex;

    static ALL: [Domain; DOMAINS] = [const { Domain { slots: Mutex::new(Vec::new()) } }; DOMAINS];

    thread_local! {
        static HANDLES: [Handle; DOMAINS] = ALL.each_ref().map(Domain::register);
    }

    /// A domain of all threads of the process, less than [`DOMAINS`].
    pub(crate) fn domain(number: usize) -> &'static Domain {
        &ALL[number]
    }

    /// Marks the calling thread as reading in a domain until the guard is dropped.
    #[inline]
    pub(crate) fn pin(number: usize) -> Pin {
        // A thread that is ending has released its slots, and registers again for each of its last reads.
        HANDLES.try_with(|handles| handles[number].pin()).unwrap_or_else(|_| ALL[number].register().pin())
    }

    /// Whether the calling thread itself is a reader of the grace period.
    pub(crate) fn waits_for_itself(grace: &Grace) -> bool {
        let is_own = |handle: &Handle| grace.readers.iter().any(|(slot, _)| std::ptr::eq(*slot, handle.slot));
        HANDLES.try_with(|handles| handles.iter().any(is_own)).unwrap_or(false)
    }
}

#[cfg(loom)]
mod threads {
    //! In models, domains and slots are explicit.

    use super::Grace;

    /// Models do not wait while they read.
    pub(crate) fn waits_for_itself(_: &Grace) -> bool {
        false
    }
}

use threads::waits_for_itself;
#[cfg(not(loom))]
pub(crate) use threads::{domain, pin};
