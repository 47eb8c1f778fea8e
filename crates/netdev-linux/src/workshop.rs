//! A thread for what may take the kernel some milliseconds, such as making, closing and redirecting receive sockets, for
//! which a packet thread cannot wait. It is there once there was something to do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// See the module's text. Jobs are done one after the other, in their order.
#[derive(Default)]
pub(crate) struct Workshop {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

impl std::fmt::Debug for Workshop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workshop").field("jobs", &self.state.lock().jobs.len()).finish_non_exhaustive()
    }
}

impl Workshop {
    /// Has a job done soon; returns whether it will be, which it is not once the workshop has ended or if there can be no
    /// thread. Jobs must not own the device that they work for: it may be dropped meanwhile.
    pub(crate) fn add(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.state.lock();
        if state.ended {
            return false;
        }
        if state.thread.is_none() {
            let this = self.clone();
            match std::thread::Builder::new().name("rings".to_owned()).spawn(move || this.run()) {
                Ok(thread) => state.thread = Some(thread),
                Err(error) => {
                    tracing::warn!(target: "netdev_linux", "cannot start a thread for receive rings: {error}");
                    return false;
                }
            }
        }
        state.jobs.push_back(Box::new(job));
        self.wake.notify_one();
        true
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while !state.ended {
            match state.jobs.pop_front() {
                Some(job) => parking_lot::MutexGuard::unlocked(&mut state, job),
                None => self.wake.wait(&mut state),
            }
        }
    }

    /// Ends the thread; what it has not begun is not done any more.
    pub(crate) fn end(&self) {
        let thread = {
            let mut state = self.state.lock();
            state.ended = true;
            state.jobs.clear();
            self.wake.notify_one();
            state.thread.take()
        };
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn jobs_are_done_in_order_until_the_end() {
        let (workshop, (tx, rx)) = (Arc::new(Workshop::default()), mpsc::channel());
        for n in 0..100 {
            let tx = tx.clone();
            assert!(workshop.add(move || tx.send(n).expect("a receiver")));
        }
        assert_eq!(rx.iter().take(100).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        workshop.end();
        assert!(!workshop.add(move || tx.send(100).expect("a receiver")));
        assert_eq!(rx.iter().count(), 0);
    }
}
