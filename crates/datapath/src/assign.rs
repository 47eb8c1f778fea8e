//! Which packet thread polls which receive queue: pure functions from threads and queues, with their loads and pins, to an
//! assignment. Names and behaviour of the algorithms follow `pmd-rxq-assign` and `pmd-rxq-affinity` in
//! ovs-vswitchd.conf.db(5).
//!
//! - A queue that is pinned to a core with a thread goes to that thread. Unless the policy says otherwise, this *isolates*
//!   the thread: it gets no queue that is not pinned.
//! - The other queues go to the threads of their own memory node (NUMA) that are not isolated, or to all threads that are
//!   not isolated if the node has none, in the order that the algorithm gives:
//!   - `RoundRobin`: queues in order, threads in order, cyclically;
//!   - `Cycles`: queues by decreasing load, threads in order and then back in reverse order;
//!   - `Group`: queues by decreasing load, each to the thread with the least load so far, pinned queues included; ties go
//!     to the thread with the fewest queues, then to the first.
//!
//! This differs from Open vSwitch in one point: where all threads are isolated, queues that are not pinned are assigned as
//! if no thread was isolated. Open vSwitch does not poll them, but its main thread serves kernel ports; here they would be
//! cut off.

use dpif::{Algorithm, Policy};

/// A queue to be assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Queue {
    /// Its cost, in any unit.
    pub load: u64,
    /// The core that it is pinned to.
    pub core: Option<usize>,
    /// The memory node of its device, if that is known.
    pub numa: Option<usize>,
    /// It comes after the others. (Open vSwitch does not assign queues of such ports: the others are assigned as there.)
    pub is_last: bool,
}

/// A thread to be assigned to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Thread {
    /// The core that it is pinned to.
    pub core: Option<usize>,
    /// Its core's memory node; `None` if it is near to all nodes.
    pub numa: Option<usize>,
}

/// Which thread polls which queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assignment {
    /// The thread of each queue: all have one if there are threads.
    pub thread_of: Vec<Option<usize>>,
    /// For each thread, whether it is isolated.
    pub isolated: Vec<bool>,
    /// Queues that are not pinned are at isolated threads, as there are no other threads.
    pub crowded: bool,
    /// Queues that are pinned to a core without a thread; they are assigned as if they were not pinned.
    pub unpinnable: Vec<usize>,
    /// Queues that are not pinned, in the order in which the algorithm assigned them.
    pub unpinned: Vec<usize>,
}

impl Assignment {
    /// The load of each thread, in the unit of the queues' loads.
    pub fn loads(&self, queues: &[Queue]) -> Vec<u64> {
        let mut loads = vec![0u64; self.isolated.len()];
        for (thread, queue) in self.thread_of.iter().zip(queues) {
            if let Some(load) = thread.and_then(|t| loads.get_mut(t)) {
                *load = load.saturating_add(queue.load);
            }
        }
        loads
    }
}

/// Assigns `queues` to `threads`, both in order.
pub fn assign(queues: &[Queue], threads: &[Thread], policy: Policy) -> Assignment {
    let mut assignment = Assignment {
        thread_of: vec![None; queues.len()],
        isolated: vec![false; threads.len()],
        crowded: false,
        unpinnable: Vec::new(),
        unpinned: Vec::new(),
    };
    if threads.is_empty() {
        return assignment;
    }
    let mut assigner = Assigner::new(threads);
    let mut rest = Vec::new();
    for (at, queue) in queues.iter().enumerate() {
        let Some(core) = queue.core else {
            rest.push(at);
            continue;
        };
        match threads.iter().position(|t| t.core == Some(core)) {
            Some(thread) => {
                assignment.thread_of[at] = Some(thread);
                assignment.isolated[thread] = policy.isolate;
                assigner.give(thread, queue.load);
            }
            None => {
                assignment.unpinnable.push(at);
                rest.push(at);
            }
        }
    }
    let all_isolated = assignment.isolated.iter().all(|isolated| *isolated);
    assignment.crowded = all_isolated && !rest.is_empty();
    assigner.open = assignment.isolated.iter().map(|isolated| !isolated || all_isolated).collect();
    // Stable: queues of the same load keep their order.
    rest.sort_by_key(|at| {
        let load = if policy.algorithm == Algorithm::RoundRobin { 0 } else { queues[*at].load };
        (std::cmp::Reverse(load), queues[*at].is_last)
    });
    for at in rest.iter().copied() {
        let Queue { load, numa, .. } = queues[at];
        let thread = assigner.next(numa, policy.algorithm);
        assigner.give(thread, load);
        assignment.thread_of[at] = Some(thread);
    }
    assignment.unpinned = rest;
    assignment
}

/// The variance of loads: the mean square of their distances from the mean.
pub fn variance(loads: &[u64]) -> f64 {
    let n = loads.len().max(1) as f64;
    let mean = loads.iter().map(|load| *load as f64).sum::<f64>() / n;
    loads.iter().map(|load| (*load as f64 - mean).powi(2)).sum::<f64>() / n
}

/// By how many percent the variance of `then` is below that of `now`; 0 if it is not.
pub fn improvement_percent(now: &[u64], then: &[u64]) -> u64 {
    let (now, then) = (variance(now), variance(then));
    if then >= now { 0 } else { ((now - then) / now * 100.0) as u64 }
}

/// An assignment in the making.
struct Assigner<'a> {
    threads: &'a [Thread],
    /// Whether each thread may get queues that are not pinned.
    open: Vec<bool>,
    /// Load and number of queues that each thread has so far.
    given: Vec<(u64, usize)>,
    /// The next thread, for each group of threads that queues were assigned among.
    turns: Vec<(Vec<usize>, Turn)>,
}

#[derive(Clone, Copy, Default)]
struct Turn {
    at: usize,
    backwards: bool,
}

impl Turn {
    /// The next of `n` in cyclic order.
    fn around(&mut self, n: usize) -> usize {
        let at = self.at;
        self.at = (at + 1) % n;
        at
    }

    /// The next of `n`, forth and back; the first and the last come twice in a row.
    fn forth_and_back(&mut self, n: usize) -> usize {
        let at = self.at;
        match (self.backwards, at) {
            (false, at) if at + 1 == n => self.backwards = true,
            (false, at) => self.at = at + 1,
            (true, 0) => self.backwards = false,
            (true, at) => self.at = at - 1,
        }
        at
    }
}

impl<'a> Assigner<'a> {
    fn new(threads: &'a [Thread]) -> Self {
        Self { threads, open: vec![true; threads.len()], given: vec![(0, 0); threads.len()], turns: Vec::new() }
    }

    fn give(&mut self, thread: usize, load: u64) {
        let (given, queues) = &mut self.given[thread];
        *given = given.saturating_add(load);
        *queues += 1;
    }

    /// The thread that gets the next queue of node `numa`. At least one thread is open.
    fn next(&mut self, numa: Option<usize>, algorithm: Algorithm) -> usize {
        let is_near = |thread: &Thread| thread.numa.is_none() || numa.is_none() || thread.numa == numa;
        let of = |near: bool| -> Vec<usize> {
            (0..self.threads.len()).filter(|t| self.open[*t] && (!near || is_near(&self.threads[*t]))).collect()
        };
        let near = of(true);
        let members = if near.is_empty() { of(false) } else { near };
        if algorithm == Algorithm::Group {
            return members.into_iter().min_by_key(|t| self.given[*t]).unwrap_or(0);
        }
        let place = self.turns.iter().position(|(group, _)| *group == members).unwrap_or_else(|| {
            self.turns.push((members.clone(), Turn::default()));
            self.turns.len() - 1
        });
        let turn = &mut self.turns[place].1;
        let n = members.len().max(1);
        let at = if algorithm == Algorithm::Cycles { turn.forth_and_back(n) } else { turn.around(n) };
        members.get(at).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
