//! A value in two copies that can change while it is read.
//!
//! Readers use the *active* copy. A writer changes the idle copy, publishes it, and repeats the change on the other
//! copy once its readers have left: at once if there are none, otherwise before the next change. So a reader never
//! waits for a change, however long it takes, and the value needs no atomics inside. The price is twice the memory, and
//! applying each change twice.
//!
//! Invariants:
//! - the active copy has seen all changes, and the idle copy all but the `pending` one, if any;
//! - all threads that have been reading since before the last publication are in `grace`, so the idle copy has no
//!   reader when `grace` is over. As the next publication waits for it, a reading thread sees at most two states.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Deref;

use crate::LOOKUPS;
use crate::domain::{Domain, Grace, Handle, Pin, relax};
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, lock, try_lock};

/// A value in two copies that changes by operations.
pub trait Replicated {
    /// A change.
    type Op;
    /// The result of a change.
    type Output;
    /// State that the writer keeps only once, beside the copies.
    type Ledger;

    /// Applies a change to the first copy. It may store information for [`Replicated::replay`] in `op`.
    fn apply(&mut self, op: &mut Self::Op, ledger: &mut Self::Ledger) -> Self::Output;

    /// Applies the same change to the second copy, which must become equal to the first.
    fn replay(&mut self, op: Self::Op);

    /// Whether [`Replicated::replay`] of this change is fast enough for a thread that must not wait.
    fn is_small(_op: &Self::Op) -> bool {
        true
    }
}

/// Number of attempts to lock the writer's state before a thread waits or gives up: for some microseconds, depending on
/// the processor.
const LOCK_SPINS: u32 = if cfg!(loom) { 0 } else { 128 };
/// Number of times that a writer waits for readers without the lock, so that other writers can proceed. Afterwards it waits
/// with the lock, so that they cannot overtake it again.
const UNLOCKED_WAITS: u32 = if cfg!(loom) { 1 } else { 8 };

/// See the module's text.
pub struct LeftRight<T: Replicated, const DOMAIN: usize = LOOKUPS> {
    /// On a cache line that only changes with a publication.
    active: Padded<AtomicUsize>,
    copies: [Padded<UnsafeCell<T>>; 2],
    writer: Mutex<Writer<T>>,
    domain: &'static Domain,
}

#[repr(align(128))]
struct Padded<T>(T);

/// The writer's state.
struct Writer<T: Replicated> {
    ledger: T::Ledger,
    /// A change that the idle copy has not seen yet.
    pending: Option<T::Op>,
    /// The threads that may be reading the idle copy.
    grace: Grace,
}

// SAFETY: a `LeftRight` hands out shared references to `T` on any thread, which requires `T: Sync`, and exclusive ones
// to one thread at a time, which requires `T: Send`. Operations and the ledger are behind a mutex and move between
// threads with it.
unsafe impl<T: Replicated + Send + Sync, const DOMAIN: usize> Sync for LeftRight<T, DOMAIN>
where
    T::Op: Send,
    T::Ledger: Send,
{
}

impl<T: Replicated, const DOMAIN: usize> LeftRight<T, DOMAIN> {
    /// Creates a value from two equal copies.
    #[cfg(not(loom))]
    pub fn new(copies: [T; 2], ledger: T::Ledger) -> Self {
        Self::with_domain(copies, ledger, crate::domain::domain(DOMAIN))
    }

    /// Creates a value whose readers have slots in `domain`.
    pub(crate) fn with_domain(copies: [T; 2], ledger: T::Ledger, domain: &'static Domain) -> Self {
        let copies = copies.map(|copy| Padded(UnsafeCell::new(copy)));
        let writer = Mutex::new(Writer { ledger, pending: None, grace: Grace::default() });
        Self { active: Padded(AtomicUsize::new(0)), copies, writer, domain }
    }

    /// The value as of the last change. While the guard lives, the second change from now on waits. So keep it for a
    /// lookup, a batch or a dump, and neither write nor wait for a writing thread meanwhile.
    #[cfg(not(loom))]
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        self.read_pinned(crate::domain::pin(DOMAIN))
    }

    /// Like `read`, for a thread with this slot of the value's domain.
    pub fn read_by(&self, thread: &Handle) -> ReadGuard<'_, T> {
        self.read_pinned(thread.pin())
    }

    #[inline]
    fn read_pinned(&self, pin: Pin) -> ReadGuard<'_, T> {
        // After the pin, so that any later publication finds the pin.
        let active = self.active.0.load(Ordering::SeqCst);
        // SAFETY: only the holder of `writer` creates exclusive references, and only to the inactive copy, after all
        // pins have ended that existed when it became inactive. If this copy was active when it was loaded, then any
        // publication that makes it inactive comes after that load, and so finds our pin, which the guard keeps.
        let value = unsafe { &*self.copies[active & 1].0.get() };
        ReadGuard { value, _pin: pin }
    }

    /// Applies a change, after waiting for readers of the state before the last change. Reads that begin after the
    /// return see it. Returns its result, and the grace period of threads that may still read the old state.
    pub fn write(&self, op: T::Op) -> (T::Output, Grace) {
        for _ in 0..UNLOCKED_WAITS {
            let mut writer = self.try_lock().unwrap_or_else(|| lock(&self.writer));
            if writer.grace.is_over() {
                return self.change(&mut writer, op);
            }
            let mut grace = writer.grace.clone();
            drop(writer);
            grace.wait();
        }
        let mut writer = lock(&self.writer);
        writer.grace.wait();
        self.change(&mut writer, op)
    }

    /// Applies a change after some microseconds of waiting at most. Returns the operation as an error if another
    /// thread is writing, if readers of the state before the last change are still active, or if a large change has to be
    /// repeated first.
    pub fn try_write(&self, op: T::Op) -> Result<(T::Output, Grace), T::Op> {
        let Some(mut writer) = self.try_lock() else { return Err(op) };
        let is_small = writer.pending.as_ref().is_none_or(T::is_small);
        if !is_small || !writer.grace.is_over() {
            return Err(op);
        }
        Ok(self.change(&mut writer, op))
    }

    /// Locks the writer's state, unless another thread holds it for longer than most changes take.
    fn try_lock(&self) -> Option<MutexGuard<'_, Writer<T>>> {
        let attempt = || try_lock(&self.writer);
        attempt().or_else(|| {
            (0..LOCK_SPINS).find_map(|_| {
                relax();
                attempt()
            })
        })
    }

    /// Repeats the last change on the second copy, unless it has readers or another thread is writing, so that objects
    /// which the change removed are dropped now and not at the next change. Returns whether both copies have seen all
    /// changes.
    pub fn settle(&self) -> bool {
        let Some(mut writer) = try_lock(&self.writer) else { return false };
        if writer.grace.is_over() {
            self.catch_up(&mut writer);
        }
        writer.pending.is_none()
    }

    /// Calls `look` with the ledger.
    pub fn ledger<R>(&self, look: impl FnOnce(&T::Ledger) -> R) -> R {
        look(&lock(&self.writer).ledger)
    }

    /// Applies a change; no thread may be reading the idle copy.
    fn change(&self, writer: &mut MutexGuard<'_, Writer<T>>, mut op: T::Op) -> (T::Output, Grace) {
        self.catch_up(writer);
        let active = self.active.0.load(Ordering::Relaxed) & 1;
        let output = self.with_idle(writer, |copy, ledger| copy.apply(&mut op, ledger));
        self.active.0.swap(1 - active, Ordering::SeqCst);
        writer.grace = self.domain.grace();
        writer.pending = Some(op);
        let grace = writer.grace.clone();
        if writer.grace.is_over() {
            self.catch_up(writer);
        }
        (output, grace)
    }

    /// Applies the pending change to the idle copy, which no thread may be reading.
    fn catch_up(&self, writer: &mut MutexGuard<'_, Writer<T>>) {
        if let Some(op) = writer.pending.take() {
            self.with_idle(writer, |copy, _| copy.replay(op));
        }
    }

    /// Calls `change` with the idle copy: `writer.grace` must be over.
    fn with_idle<R>(
        &self,
        writer: &mut MutexGuard<'_, Writer<T>>,
        change: impl FnOnce(&mut T, &mut T::Ledger) -> R,
    ) -> R {
        debug_assert!(writer.grace.is_over(), "the idle copy has readers");
        let idle = 1 - (self.active.0.load(Ordering::Relaxed) & 1);
        // SAFETY: `writer` is this value's lock, so no other thread comes here or publishes a copy. No reader refers to
        // the idle copy: one that loaded its index before it became inactive is in `writer.grace`, which is over, and
        // one that came later has loaded the other index.
        let copy = unsafe { &mut *self.copies[idle].0.get() };
        change(copy, &mut writer.ledger)
    }
}

impl<T: Replicated + fmt::Debug, const DOMAIN: usize> fmt::Debug for LeftRight<T, DOMAIN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeftRight").finish_non_exhaustive()
    }
}

/// A guard for reading the value.
pub struct ReadGuard<'a, T> {
    value: &'a T,
    _pin: Pin,
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
