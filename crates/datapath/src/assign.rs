//! Which packet thread asks which receive queue: pure functions from queues with their loads and pins, and threads, to
//! an assignment. What the algorithms are called and do is what `pmd-rxq-assign` and `pmd-rxq-affinity` say in
//! ovs-vswitchd.conf.db(5).
//!
//! - A queue that is pinned to a core with a thread is that thread's; the thread is *isolated* by that, which keeps
//!   queues that are not pinned away from it, unless the policy says otherwise.
//! - The others are dealt over the threads of their own memory node (NUMA), if there are any that are not isolated, else
//!   over all that are not isolated, in the way that the algorithm says:
//!   - `RoundRobin`: in order of queues, over the threads in order, again and again;
//!   - `Cycles`: in order of loads, the largest first, over the threads forth and back;
//!   - `Group`: in order of loads, the largest first, each to the thread with the least load so far, queues that are
//!     pinned there included; of those the one with the fewest queues; of those the first.
//!
//! Here this differs from Open vSwitch: where all threads are isolated, the others are dealt over all threads as if none
//! was. Open vSwitch leaves them unasked, but has a main thread that asks ports of the kernel; here that would cut them
//! off.

/// How queues that are not pinned are dealt (`other_config:pmd-rxq-assign`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// In order of queues.
    RoundRobin,
    /// In order of loads, forth and back.
    #[default]
    Cycles,
    /// In order of loads, to whom has least.
    Group,
}

impl Algorithm {
    /// Its name in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "roundrobin",
            Self::Cycles => "cycles",
            Self::Group => "group",
        }
    }
}

/// How queues are assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// How those are dealt that are not pinned.
    pub algorithm: Algorithm,
    /// Whether a thread with a queue that is pinned to it gets no other (`other_config:pmd-rxq-isolate`).
    pub isolate: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { algorithm: Algorithm::default(), isolate: true }
    }
}

/// A queue to be assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Queue {
    /// What it costs, in any unit.
    pub load: u64,
    /// The core that it is pinned to.
    pub core: Option<usize>,
    /// The memory node of its device, if that is known.
    pub numa: Option<usize>,
}

/// A thread to be assigned to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Thread {
    /// The core that it is pinned to.
    pub core: Option<usize>,
    /// Its core's memory node; `None` for one that is near to all.
    pub numa: Option<usize>,
}

/// Who asks what.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assignment {
    /// For each queue its thread: all have one, if there are threads.
    pub thread_of: Vec<Option<usize>>,
    /// For each thread, whether it is isolated.
    pub isolated: Vec<bool>,
    /// Queues that are not pinned stand at isolated threads, as there are no others.
    pub crowded: bool,
    /// Queues that are pinned to a core without a thread; they are dealt as if they were not.
    pub unpinnable: Vec<usize>,
}

impl Assignment {
    /// What each thread is to do by this, in the unit of the queues' loads.
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
    };
    if threads.is_empty() {
        return assignment;
    }
    let mut dealer = Dealer::new(threads);
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
                dealer.give(thread, queue.load);
            }
            None => {
                assignment.unpinnable.push(at);
                rest.push(at);
            }
        }
    }
    let all_isolated = assignment.isolated.iter().all(|isolated| *isolated);
    assignment.crowded = all_isolated && !rest.is_empty();
    dealer.open = assignment.isolated.iter().map(|isolated| !isolated || all_isolated).collect();
    if policy.algorithm != Algorithm::RoundRobin {
        // Stable: those of the same load keep their order.
        rest.sort_by_key(|at| std::cmp::Reverse(queues[*at].load));
    }
    for at in rest {
        let Queue { load, numa, .. } = queues[at];
        let thread = dealer.next(numa, policy.algorithm);
        dealer.give(thread, load);
        assignment.thread_of[at] = Some(thread);
    }
    assignment
}

/// How unlike loads are: the mean square of their distances from the mean.
pub fn variance(loads: &[u64]) -> f64 {
    let n = loads.len().max(1) as f64;
    let mean = loads.iter().map(|load| *load as f64).sum::<f64>() / n;
    loads.iter().map(|load| (*load as f64 - mean).powi(2)).sum::<f64>() / n
}

/// By how many percent another assignment's loads are more alike: 0 if they are not.
pub fn improvement_percent(now: &[u64], then: &[u64]) -> u64 {
    let (now, then) = (variance(now), variance(then));
    if then >= now { 0 } else { ((now - then) / now * 100.0) as u64 }
}

/// Deals queues to threads.
struct Dealer<'a> {
    threads: &'a [Thread],
    /// Which of them may get queues that are not pinned.
    open: Vec<bool>,
    /// What each has so far: load, and queues.
    given: Vec<(u64, usize)>,
    /// Who is next, for each group of threads among which queues were dealt.
    turns: Vec<(Vec<usize>, Turn)>,
}

#[derive(Clone, Copy, Default)]
struct Turn {
    at: usize,
    backwards: bool,
}

impl Turn {
    /// The next of `n`, from the first on again and again.
    fn around(&mut self, n: usize) -> usize {
        let at = self.at;
        self.at = (at + 1) % n;
        at
    }

    /// The next of `n`, forth and back; those at the ends have two turns.
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

impl<'a> Dealer<'a> {
    fn new(threads: &'a [Thread]) -> Self {
        Self { threads, open: vec![true; threads.len()], given: vec![(0, 0); threads.len()], turns: Vec::new() }
    }

    fn give(&mut self, thread: usize, load: u64) {
        let (given, queues) = &mut self.given[thread];
        *given = given.saturating_add(load);
        *queues += 1;
    }

    /// The thread that gets the next queue of node `numa`. There is one that is open.
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
