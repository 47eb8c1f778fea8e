//! Tests of the protocol: models of all interleavings under loom, and real threads otherwise.

use super::*;

#[cfg(loom)]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// A number that loom tracks: it fails if a read and a write may race.
    #[derive(Default)]
    struct Watched(UnsafeCell<u64>);

    // SAFETY: loom finds accesses that are not ordered.
    unsafe impl Sync for Watched {}

    impl Watched {
        fn get(&self) -> u64 {
            // SAFETY: as above.
            self.0.with(|value| unsafe { *value })
        }
    }

    impl Replicated for Watched {
        type Op = u64;
        type Output = u64;
        type Ledger = ();

        fn apply(&mut self, op: &mut u64, _: &mut ()) -> u64 {
            self.replay(*op);
            self.get()
        }

        fn replay(&mut self, op: u64) {
            // SAFETY: as above.
            self.0.with_mut(|value| unsafe { *value += op });
        }
    }

    fn leaked() -> &'static Domain {
        Box::leak(Box::default())
    }

    #[test]
    fn no_interleaving_lets_a_reader_meet_a_writer() {
        loom::model(|| {
            let domain = leaked();
            let value = Arc::new(LeftRight::<_>::with_domain([Watched::default(), Watched::default()], (), domain));
            let reader = {
                let (value, thread) = (Arc::clone(&value), domain.register());
                // A handle is bound to a thread; this one moves before its first use.
                let thread = Moved(thread);
                thread::spawn(move || {
                    let Moved(thread) = { thread };
                    let first = value.read_by(&thread).get();
                    let second = value.read_by(&thread).get();
                    assert!(first <= second, "went back in time");
                })
            };
            assert_eq!(value.write(1).0, 1);
            assert_eq!(value.write(1).0, 2);
            assert!(reader.join().is_ok());
            let thread = domain.register();
            assert_eq!(value.read_by(&thread).get(), 2);
        });
    }

    #[test]
    fn accesses_of_readers_happen_before_the_end_of_grace() {
        loom::model(|| {
            let domain = leaked();
            let value = Arc::new(LeftRight::<_>::with_domain([Watched::default(), Watched::default()], (), domain));
            // Counted by readers of the first state, with plain loads and stores.
            let counted = Arc::new(loom::sync::atomic::AtomicU64::new(0));
            let reader = {
                let (value, counted, thread) = (Arc::clone(&value), Arc::clone(&counted), Moved(domain.register()));
                thread::spawn(move || {
                    let Moved(thread) = { thread };
                    let guard = value.read_by(&thread);
                    let is_old = guard.get() == 0;
                    if is_old {
                        counted.store(1, loom::sync::atomic::Ordering::Relaxed);
                    }
                    drop(guard);
                    is_old
                })
            };
            let (_, mut grace) = value.write(1);
            grace.wait();
            let last = counted.load(loom::sync::atomic::Ordering::Relaxed);
            let is_old = reader.join().expect("ends");
            assert_eq!(last, u64::from(is_old), "counted after the last look");
        });
    }

    #[test]
    fn writers_take_turns() {
        loom::model(|| {
            let domain = leaked();
            let value = Arc::new(LeftRight::<_>::with_domain([Watched::default(), Watched::default()], (), domain));
            let other = {
                let value = Arc::clone(&value);
                thread::spawn(move || value.write(1).0)
            };
            let one = value.try_write(1).map_or(0, |(sum, _)| sum);
            let other = other.join().expect("ends");
            let thread = domain.register();
            assert_eq!(value.read_by(&thread).get(), one.max(other));
        });
    }

    #[test]
    fn a_writer_that_waits_without_the_lock_may_be_overtaken() {
        loom::model(|| {
            let domain = leaked();
            let value = Arc::new(LeftRight::<_>::with_domain([Watched::default(), Watched::default()], (), domain));
            let thread = domain.register();
            let old = value.read_by(&thread);
            value.write(1);
            let waiting = {
                let value = Arc::clone(&value);
                thread::spawn(move || value.write(2).0)
            };
            assert_eq!(old.get(), 0);
            drop(old);
            let sum = value.write(4).0;
            let sums = [sum, waiting.join().expect("ends")];
            assert!(sums == [5, 7] || sums == [7, 3], "{sums:?}");
            assert_eq!(value.read_by(&thread).get(), 7);
        });
    }

    struct Moved(Handle);

    // SAFETY: the handle was not used on the thread that created it.
    unsafe impl Send for Moved {}
}

#[cfg(not(loom))]
mod threads {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    /// Two numbers that change together.
    #[derive(Debug, Default)]
    struct Pair(u64, u64);

    impl Replicated for Pair {
        type Op = u64;
        type Output = u64;
        type Ledger = u64;

        fn apply(&mut self, op: &mut u64, ledger: &mut u64) -> u64 {
            *ledger += 1;
            self.replay(*op);
            self.0
        }

        fn replay(&mut self, op: u64) {
            self.0 += op;
            self.1 += op;
        }

        fn is_small(op: &u64) -> bool {
            *op < 100
        }
    }

    /// Fewer under Miri, which interprets each step.
    const WRITES: u64 = if cfg!(miri) { 50 } else { 5_000 };

    /// A domain with the lifetime of the process.
    fn domain() -> &'static Domain {
        static DOMAINS: std::sync::Mutex<Vec<&'static Domain>> = std::sync::Mutex::new(Vec::new());
        let domain = Box::leak(Box::default());
        // Keeps it reachable for leak checkers.
        DOMAINS.lock().expect("no panic").push(domain);
        domain
    }

    /// A value in a domain of its own, so that the test does not wait for readers of other tests.
    fn alone() -> (LeftRight<Pair>, Handle) {
        let domain = domain();
        (LeftRight::with_domain([Pair::default(), Pair::default()], 0, domain), domain.register())
    }

    #[test]
    fn an_active_reader_delays_only_the_second_copy() {
        let (value, thread) = alone();
        let old = value.read_by(&thread);
        let (sum, mut grace) = value.write(1);
        assert_eq!((sum, old.0, value.read_by(&thread).0), (1, 0, 1));
        assert!(!grace.is_over() && value.try_write(1).is_err(), "the idle copy has a reader");
        drop(old);
        assert!(grace.is_over());
        assert_eq!(value.try_write(2).map(|(sum, _)| sum), Ok(3));
        assert_eq!((value.read_by(&thread).1, value.ledger(|changes| *changes)), (3, 2));
    }

    #[test]
    fn try_write_does_not_repeat_a_large_change() {
        let (value, thread) = alone();
        let old = value.read_by(&thread);
        value.write(100);
        drop(old);
        assert_eq!(value.try_write(1).map(|_| ()), Err(1));
        value.settle();
        assert_eq!(value.try_write(1).map(|(sum, _)| sum), Ok(101));
    }

    #[test]
    fn a_nested_read_ends_with_the_outer_one() {
        let (value, thread) = alone();
        let outer = value.read_by(&thread);
        drop(value.read_by(&thread));
        let (_, mut grace) = value.write(1);
        assert!(!grace.is_over());
        drop(outer);
        assert!(grace.is_over());
    }

    #[test]
    #[should_panic(expected = "a thread that reads waits for readers")]
    fn waiting_for_the_own_thread_panics() {
        let value = LeftRight::<_>::new([Pair::default(), Pair::default()], 0);
        let guard = value.read();
        value.write(1).1.wait();
        drop(guard);
    }

    #[test]
    fn slots_of_ended_threads_are_reused() {
        let domain = domain();
        let value = LeftRight::<_>::with_domain([Pair::default(), Pair::default()], 0, domain);
        for n in 0..5 {
            let value = &value;
            thread::scope(|scope| scope.spawn(move || assert_eq!(value.read_by(&domain.register()).0, n)).join())
                .expect("reads");
            value.write(1);
        }
        let held = domain.register();
        let guard = held.pin();
        assert!(!domain.grace().is_over());
        drop(guard);
        assert!(format!("{domain:?}").matches("Slot {").count() == 1);
    }

    #[test]
    fn readers_see_whole_changes_in_order_while_a_writer_writes() {
        let value = LeftRight::<_>::new([Pair::default(), Pair::default()], 0);
        let done = AtomicBool::new(false);
        thread::scope(|s| {
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    s.spawn(|| {
                        let mut last = 0;
                        while !done.load(Ordering::Relaxed) {
                            let pair = value.read();
                            assert_eq!(pair.0, pair.1);
                            assert!(pair.0 >= last, "went back in time");
                            last = pair.0;
                        }
                    })
                })
                .collect();
            for n in 1..=WRITES {
                let (sum, _) = value.write(1);
                assert_eq!((sum, value.read().0), (n, n));
            }
            done.store(true, Ordering::Relaxed);
            for reader in readers {
                assert!(reader.join().is_ok());
            }
        });
    }

    /// After the grace period, the writer sees all counts that readers of the old state made with plain loads and
    /// stores.
    #[test]
    fn counts_of_old_readers_are_complete_after_grace() {
        #[derive(Debug, Default)]
        struct Counter(std::sync::Arc<AtomicU64>);
        impl Replicated for Counter {
            type Op = std::sync::Arc<AtomicU64>;
            type Output = std::sync::Arc<AtomicU64>;
            type Ledger = ();
            fn apply(&mut self, op: &mut Self::Op, _: &mut ()) -> Self::Output {
                std::mem::replace(&mut self.0, op.clone())
            }
            fn replay(&mut self, op: Self::Op) {
                self.0 = op;
            }
        }
        let first = std::sync::Arc::new(AtomicU64::new(0));
        let value = LeftRight::<_>::new([Counter(first.clone()), Counter(first)], ());
        let done = AtomicBool::new(false);
        let counted = thread::scope(|s| {
            let reader = s.spawn(|| {
                let mut counted = 0;
                while !done.load(Ordering::Relaxed) {
                    let counter = value.read();
                    let n = counter.0.load(Ordering::Relaxed);
                    counter.0.store(n + 1, Ordering::Relaxed);
                    counted += 1;
                }
                counted
            });
            let mut sum = 0;
            for _ in 0..WRITES {
                let (old, mut grace) = value.write(std::sync::Arc::default());
                grace.wait();
                sum += old.swap(u64::MAX / 2, Ordering::Relaxed);
            }
            done.store(true, Ordering::Relaxed);
            let counted: u64 = reader.join().expect("ends");
            let (last, mut grace) = value.write(std::sync::Arc::default());
            grace.wait();
            counted - sum - last.load(Ordering::Relaxed)
        });
        assert_eq!(counted, 0);
    }
}
