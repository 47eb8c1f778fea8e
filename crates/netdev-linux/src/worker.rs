//! A thread for operations that may take the kernel some milliseconds, such as creating, closing and redirecting
//! receive sockets, for which packet threads cannot wait. It starts with the first job.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after the other, in order.
#[derive(Default)]
pub(crate) struct Worker {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("jobs", &self.state.lock().jobs.len()).finish_non_exhaustive()
    }
}

impl Worker {
    /// Queues a job. Returns false if the worker has ended or the thread cannot be started. Jobs must not own the
    /// device that they work for: it may be dropped meanwhile.
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

    /// Ends the thread; queued jobs are discarded.
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
    fn jobs_run_in_order_until_the_end() {
        let (worker, (tx, rx)) = (Arc::new(Worker::default()), mpsc::channel());
        for n in 0..100 {
            let tx = tx.clone();
            assert!(worker.add(move || tx.send(n).expect("a receiver")));
        }
        assert_eq!(rx.iter().take(100).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        worker.end();
        assert!(!worker.add(move || tx.send(100).expect("a receiver")));
        assert_eq!(rx.iter().count(), 0);
    }
}
