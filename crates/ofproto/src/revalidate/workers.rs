//! Threads that share the work of a pass.
//!
//! The thread that begins a pass is its *leader*: the revalidator, the statistics thread, or a caller without
//! threads. The leader splits its work into items of one shard each and publishes them; idle workers take items until none
//! is left, and so does the leader. A pass therefore ends even if every worker is busy elsewhere, and has the same
//! result with any number of threads.
//!
//! Each shard has a home thread, which takes the shard's items first; a thread that has finished its own takes those of others.

use crate::switch::Switch;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Work that several threads can take part in.
trait Task: Send + Sync {
    /// Processes items as thread number `thread` of `n_threads`, until none is left.
    fn work(&self, switch: &Switch, thread: usize, n_threads: usize);
}

/// The worker threads beside the leaders.
#[derive(Default)]
pub(crate) struct Workers {
    pool: Mutex<Pool>,
    published: Condvar,
}

#[derive(Default)]
struct Pool {
    tasks: Vec<Arc<dyn Task>>,
    /// The configured number of workers.
    n_workers: usize,
    /// The numbers of the running workers, from 1; the leader is number 0.
    running: Vec<usize>,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("threads", &self.n_threads()).finish_non_exhaustive()
    }
}

/// A list of items, with the results of those that are done.
struct Items<T, R, F> {
    /// Shard and item.
    items: Vec<(usize, T)>,
    taken: Vec<AtomicBool>,
    work: F,
    results: Mutex<Vec<R>>,
    /// The number of items that are done or failed.
    ended: Mutex<usize>,
    all_ended: Condvar,
}

/// Counts an item as ended, also if its work panics: the leader waits for it.
struct Ending<'a>(&'a Mutex<usize>, &'a Condvar);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        *self.0.lock() += 1;
        self.1.notify_all();
    }
}

impl<T, R, F> Task for Items<T, R, F>
where
    T: Send + Sync,
    R: Send,
    F: Fn(&Switch, &T) -> R + Send + Sync,
{
    fn work(&self, switch: &Switch, thread: usize, n_threads: usize) {
        let each = || self.items.iter().zip(&self.taken);
        let own = each().filter(|((shard, _), _)| shard % n_threads == thread);
        let others = each().filter(|((shard, _), _)| shard % n_threads != thread);
        for ((_, item), taken) in own.chain(others) {
            if taken.swap(true, Ordering::Relaxed) {
                continue;
            }
            let ending = Ending(&self.ended, &self.all_ended);
            let result = (self.work)(switch, item);
            self.results.lock().push(result);
            drop(ending);
        }
    }
}

impl Workers {
    /// Calls `work` with each item and its shard, on this thread and on idle workers. Returns the results
    /// in no particular order.
    pub(super) fn share<T, R>(
        &self,
        switch: &Switch,
        items: Vec<(usize, T)>,
        work: impl Fn(&Switch, &T) -> R + Send + Sync + 'static,
    ) -> Vec<R>
    where
        T: Send + Sync + 'static,
        R: Send + 'static,
    {
        let n_threads = self.n_threads();
        if n_threads == 1 || items.len() <= 1 {
            return items.iter().map(|(_, item)| work(switch, item)).collect();
        }
        let n = items.len();
        let taken = items.iter().map(|_| AtomicBool::new(false)).collect();
        let (results, ended, all_ended) = (Mutex::default(), Mutex::default(), Condvar::new());
        let items = Arc::new(Items { items, taken, work, results, ended, all_ended });
        let task = Arc::clone(&items) as Arc<dyn Task>;
        self.pool.lock().tasks.push(Arc::clone(&task));
        self.published.notify_all();
        items.work(switch, 0, n_threads);
        self.pool.lock().finish(&task);
        let mut ended = items.ended.lock();
        while *ended < n {
            items.all_ended.wait(&mut ended);
        }
        drop(ended);
        std::mem::take(&mut *items.results.lock())
    }

    /// The number of threads that take part in a pass: the leader and the workers.
    pub(super) fn n_threads(&self) -> usize {
        1 + self.pool.lock().n_workers
    }

    /// Ends all workers.
    pub(super) fn stop(&self) {
        self.pool.lock().n_workers = 0;
        self.published.notify_all();
    }
}

impl Pool {
    /// Withdraws a task.
    fn finish(&mut self, task: &Arc<dyn Task>) {
        self.tasks.retain(|published| !Arc::ptr_eq(published, task));
    }
}

impl Switch {
    /// Sets the number of threads that take part in a pass of revalidation or statistics, at least 1, at most [`THREADS_MAX`]:
    /// its leader, and workers beside it.
    ///
    /// Errors: a thread cannot be started; those that run stay.
    pub fn set_revalidator_threads(self: &Arc<Self>, n_threads: usize) -> std::io::Result<()> {
        let workers = &self.revalidation.workers;
        let mut pool = workers.pool.lock();
        let n_workers = n_threads.clamp(1, THREADS_MAX) - 1;
        if n_threads > THREADS_MAX && pool.n_workers != n_workers {
            tracing::warn!(threads = n_threads, most = THREADS_MAX, "only so many revalidator threads are started");
        }
        pool.n_workers = n_workers;
        workers.published.notify_all();
        for number in 1..=pool.n_workers {
            if pool.running.contains(&number) {
                continue;
            }
            let (switch, workers) = (Arc::downgrade(self), Arc::clone(workers));
            let name = format!("revalidator{}", number + 1);
            let started = std::thread::Builder::new().name(name).spawn(move || run(&switch, &workers, number));
            if let Err(error) = started {
                pool.n_workers = number - 1;
                return Err(error);
            }
            pool.running.push(number);
        }
        Ok(())
    }

    /// The number of threads that take part in a pass.
    pub fn revalidator_threads(&self) -> usize {
        self.revalidation.workers.n_threads()
    }
}

/// More threads would have no shard of their own.
pub const THREADS_MAX: usize = super::ukeys::SHARDS;

/// A worker.
fn run(switch: &Weak<Switch>, workers: &Workers, number: usize) {
    loop {
        let (task, n_threads) = {
            let mut pool = workers.pool.lock();
            loop {
                if number > pool.n_workers {
                    pool.running.retain(|running| *running != number);
                    return;
                }
                // The last task: a pass over changes that begins during one over statistics comes first.
                if let Some(task) = pool.tasks.last() {
                    break (Arc::clone(task), 1 + pool.n_workers);
                }
                workers.published.wait(&mut pool);
            }
        };
        let Some(switch) = switch.upgrade() else { return };
        task.work(&switch, number, n_threads);
        workers.pool.lock().finish(&task);
    }
}
