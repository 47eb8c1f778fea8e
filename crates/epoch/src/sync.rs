//! The primitives of the standard library, or loom's when the protocol is model-checked.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

use std::sync::{PoisonError, TryLockError};

/// Locks a mutex, ignoring poisoning. Callers handle the state that a panic may have left.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex unless another thread holds it, ignoring poisoning.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Orders a store before later loads, in the total order of [`Ordering::SeqCst`] accesses. The surrounding accesses
/// have that order themselves; loom treats them as acquire and release, so it needs the fence.
#[inline]
pub(crate) fn store_before_load() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
