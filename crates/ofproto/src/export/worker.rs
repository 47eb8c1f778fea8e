//! The thread of sFlow agents and NetFlow exporters: it takes samples from a queue, and sends datagrams.
//!
//! Only configuration changes wait for the thread, if the queue is full. It never waits for a collector: a datagram that
//! a socket does not accept at once is lost, and counted.

use super::REST;
use super::sflow::SflowExport;
use ::sflow::FlowSample;
use base::{Clock, Millis};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The largest number of queued samples.
pub(crate) const QUEUE: usize = 4096;
/// The number of jobs between two looks at the exporters.
const BATCH: usize = 256;
/// The interval of looks at the exporters at most, as nothing reports that a stopped clock was moved.
const LOOK: Duration = Duration::from_millis(250);
/// The same while there are none.
const IDLE: Duration = Duration::from_secs(60);

/// An exporter as the thread sees it.
pub(crate) trait Export: Send + Sync + std::fmt::Debug {
    /// Does what is due, and returns when the next thing is.
    fn run(&self, now: Millis) -> Option<Millis>;
    /// Sends all that is left, before the exporter is dropped.
    fn end(&self, now: Millis);
}

/// A job of the thread.
#[derive(Debug)]
enum Job {
    /// Adds an exporter.
    Begin(Weak<dyn Export>),
    /// Passes a sample to an agent.
    Sample(Arc<SflowExport>, Box<FlowSample>),
    /// Looks at the exporters.
    Wake,
    /// Lets an exporter send what is left.
    End(Arc<dyn Export>),
}

/// The handle of the thread, which begins with the first exporter and ends when the handle is dropped.
#[derive(Debug, Default)]
pub(crate) struct ExportWorker {
    queue: OnceLock<SyncSender<Job>>,
    /// The numbers of sub-agents in use.
    sub_agents: Mutex<BTreeSet<u32>>,
}

impl ExportWorker {
    /// Adds an exporter.
    pub(super) fn begin(&self, exporter: Weak<dyn Export>, clock: &Clock) {
        let queue = self.queue.get_or_init(|| {
            let (queue, jobs) = sync_channel(QUEUE);
            let (thread, clock) = (std::thread::Builder::new().name("export".into()), clock.clone());
            if let Err(error) = thread.spawn(move || run(&jobs, &clock)) {
                tracing::error!(target: "collectors", "no thread for exporters: {error}");
            }
            queue
        });
        let _ = queue.send(Job::Begin(exporter));
    }

    /// Makes an exporter send what is left.
    pub(super) fn end(&self, exporter: Arc<dyn Export>) {
        if let Some(queue) = self.queue.get() {
            let _ = queue.send(Job::End(exporter));
        }
    }

    /// Queues a sample for an agent. Returns false if the queue is full.
    pub(super) fn sample(&self, agent: &Arc<SflowExport>, sample: FlowSample) -> bool {
        let job = Job::Sample(Arc::clone(agent), sample.into());
        self.queue.get().is_some_and(|queue| queue.try_send(job).is_ok())
    }

    /// Wakes the thread, unless it has jobs anyway.
    pub(super) fn wake(&self) {
        self.queue.get().into_iter().for_each(|queue| drop(queue.try_send(Job::Wake)));
    }

    /// Reserves the lowest number of a sub-agent that is free.
    pub(super) fn reserve_sub_agent(&self) -> u32 {
        let mut used = self.sub_agents.lock();
        let free = (0..=u32::MAX).find(|number| !used.contains(number)).unwrap_or_default();
        used.insert(free);
        free
    }

    pub(super) fn release_sub_agent(&self, number: u32) {
        self.sub_agents.lock().remove(&number);
    }
}

fn run(jobs: &Receiver<Job>, clock: &Clock) {
    let mut exporters: Vec<Weak<dyn Export>> = Vec::new();
    let mut wait = IDLE;
    loop {
        let mut is_done = false;
        match jobs.recv_timeout(wait) {
            Ok(job) => {
                let jobs = std::iter::once(job).chain(jobs.try_iter()).take(BATCH);
                let done = jobs.map(|job| perform(job, &mut exporters, clock)).count();
                is_done = done < BATCH;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = clock.now();
        let mut next = None;
        exporters.retain(|exporter| {
            let Some(exporter) = exporter.upgrade() else { return false };
            next = [next, exporter.run(now)].into_iter().flatten().min();
            true
        });
        let longest = if exporters.is_empty() { IDLE } else { LOOK };
        wait = next.map_or(longest, |next| Duration::from_millis(next.since(now).max(1)).min(longest));
        if is_done {
            std::thread::sleep(REST.min(wait));
        }
    }
    exporters.iter().filter_map(Weak::upgrade).for_each(|exporter| exporter.end(clock.now()));
}

fn perform(job: Job, exporters: &mut Vec<Weak<dyn Export>>, clock: &Clock) {
    match job {
        Job::Begin(exporter) => exporters.push(exporter),
        Job::Sample(agent, sample) => agent.add(&sample, clock.now()),
        Job::Wake => {}
        Job::End(exporter) => {
            exporters.retain(|other| !std::ptr::addr_eq(other.as_ptr(), Arc::as_ptr(&exporter)));
            exporter.end(clock.now());
        }
    }
}
