//! One writer at a time and readers that never wait, over two copies of a value.
//!
//! Readers use the *active* copy. A writer changes the other one, makes it the active one, and repeats the change on the
//! copy that was active before, as soon as its last reader has left: at once if none is there, otherwise before the next
//! change. The price is twice the memory, and each change made twice; what it buys is that a reader takes one lock that
//! nobody holds against it, and that the value needs no atomics inside.
//!
//! Invariants:
//! - the active copy has seen all changes; the other one all but those in `pending`;
//! - the active copy is never locked for writing, so that a reader who is refused has read `active` before a change that
//!   has been published since: it succeeds with the next try unless there was yet another change. Writers wait for
//!   readers, but only for those that began before the last change but one.

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A value that changes by operations. The same operations in the same order must lead to the same value, whichever copy
/// they are applied to.
pub(crate) trait Apply<Op> {
    /// What an operation tells of its success.
    type Output;
    /// Carries out `op`.
    fn apply(&mut self, op: &Op) -> Self::Output;
}

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct LeftRight<T, Op> {
    copies: [RwLock<T>; 2],
    active: AtomicUsize,
    /// Changes that the inactive copy has not seen. Who holds this lock is the writer.
    pending: Mutex<Vec<Op>>,
}

impl<T: Apply<Op>, Op> LeftRight<T, Op> {
    /// Starts with two copies, which must be equal.
    pub(crate) fn new(copies: [T; 2]) -> Self {
        Self { copies: copies.map(RwLock::new), active: AtomicUsize::new(0), pending: Mutex::default() }
    }

    /// The value as of the last change. The guard keeps changes from being carried out to the end while it lives, so that
    /// it should live for a look-up or a dump, and its holder must not write.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        loop {
            let active = self.active.load(Ordering::Acquire);
            if let Some(guard) = self.copies[active].try_read() {
                return guard;
            }
            std::hint::spin_loop();
        }
    }

    /// Carries out `op`. Readers that begin after this has returned see it.
    pub(crate) fn write(&self, op: Op) -> T::Output {
        let mut pending = self.pending.lock();
        let active = self.active.load(Ordering::Relaxed);
        let output = {
            let mut copy = self.copies[1 - active].write();
            for op in pending.drain(..) {
                copy.apply(&op);
            }
            copy.apply(&op)
        };
        self.active.store(1 - active, Ordering::Release);
        match self.copies[active].try_write() {
            Some(mut copy) => {
                copy.apply(&op);
            }
            None => pending.push(op),
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    /// Two numbers that a change moves together, and what was added.
    #[derive(Default)]
    struct Pair(u64, u64, Vec<u64>);

    impl Apply<u64> for Pair {
        type Output = u64;
        fn apply(&mut self, op: &u64) -> u64 {
            self.0 += op;
            self.1 += op;
            self.2.push(*op);
            self.0
        }
    }

    #[test]
    fn a_reader_in_the_way_delays_only_the_second_copy() {
        let lr = LeftRight::new([Pair::default(), Pair::default()]);
        let old = lr.read();
        assert_eq!(lr.write(1), 1);
        assert_eq!((old.0, lr.read().0, lr.pending.lock().len()), (0, 1, 1));
        drop(old);
        assert_eq!(lr.write(2), 3);
        assert_eq!((lr.read().0, lr.pending.lock().len()), (3, 0));
        for copy in &lr.copies {
            assert_eq!(copy.read().2, [1, 2]);
        }
    }

    #[test]
    fn readers_see_whole_changes_in_order_while_a_writer_writes() {
        let lr = LeftRight::new([Pair::default(), Pair::default()]);
        let done = AtomicBool::new(false);
        thread::scope(|s| {
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    s.spawn(|| {
                        let mut last = 0;
                        while !done.load(Ordering::Relaxed) {
                            let pair = lr.read();
                            assert_eq!(pair.0, pair.1);
                            assert!(pair.0 >= last, "went back in time");
                            last = pair.0;
                        }
                        last
                    })
                })
                .collect();
            for n in 1..=5_000 {
                let sum = lr.write(1);
                assert_eq!((sum, lr.read().0), (n, n));
            }
            done.store(true, Ordering::Relaxed);
            for reader in readers {
                assert!(reader.join().is_ok());
            }
        });
    }
}
