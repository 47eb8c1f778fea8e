//! The exporters' thread: takes observations from a queue, expires flows, and sends messages.
//!
//! Only configuration changes wait for the thread, if the queue is full. It never waits for a collector: a
//! message that a socket does not accept at once is lost, and counted.

use super::{Interfaces, now};
use crate::export::REST;
use arc_swap::{ArcSwap, Guard};
use ipfix::{Exporter, Micros, Observation, Stats};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The largest number of queued observations.
const QUEUE: usize = 4096;
/// The number of jobs between two checks for expired flows.
const BATCH: usize = 256;
/// The interval of checks while no flow is cached.
const IDLE: Duration = Duration::from_secs(60);

/// An exporter, with its collectors.
#[derive(Debug)]
pub(crate) struct Exporting {
    /// Its number, unique in the process.
    pub(super) id: u32,
    state: Mutex<State>,
    /// Observations that found the queue full.
    lost: AtomicU64,
}

#[derive(Debug)]
struct State {
    exporter: Exporter,
    collectors: Vec<Collector>,
}

#[derive(Debug)]
struct Collector {
    target: SocketAddr,
    socket: Option<UdpSocket>,
}

impl Exporting {
    pub(super) fn new(id: u32, exporter: Exporter, targets: &BTreeSet<SocketAddr>) -> Self {
        let collectors = targets.iter().map(|target| Collector { target: *target, socket: None }).collect();
        Self { id, state: Mutex::new(State { exporter, collectors }), lost: AtomicU64::new(0) }
    }

    pub(super) fn stats(&self) -> Stats {
        self.state.lock().exporter.stats()
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Calls `act` with the exporter, and sends the resulting messages.
    fn with<R>(&self, act: impl FnOnce(&mut Exporter, &mut Vec<Vec<u8>>) -> R) -> R {
        let mut messages = Vec::new();
        let mut state = self.state.lock();
        let state = &mut *state;
        let result = act(&mut state.exporter, &mut messages);
        for message in messages {
            let (mut sent, mut failed) = (0, u64::from(state.collectors.is_empty()));
            for collector in &mut state.collectors {
                let outcome = if collector.send(&message) { &mut sent } else { &mut failed };
                *outcome += 1;
            }
            state.exporter.note_sent(sent, failed);
        }
        result
    }
}

impl Collector {
    /// Returns true if the socket accepted the message.
    fn send(&mut self, message: &[u8]) -> bool {
        if self.socket.is_none() {
            self.socket = self.open().ok();
        }
        self.socket.as_ref().is_some_and(|socket| socket.send(message).is_ok())
    }

    fn open(&self) -> std::io::Result<UdpSocket> {
        let socket = match self.target {
            SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
            SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
        };
        socket.set_nonblocking(true)?;
        socket.connect(self.target)?;
        Ok(socket)
    }
}

/// A job of the thread.
#[derive(Debug)]
enum Job {
    /// Adds an exporter.
    Begin(Weak<Exporting>),
    /// Passes an observation to an exporter.
    Observe(Arc<Exporting>, Observation),
    /// Exports all cached flows.
    End(Arc<Exporting>),
}

/// The handle of the thread, which begins with the first exporter and ends when the handle is dropped.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    queue: OnceLock<SyncSender<Job>>,
    interfaces: ArcSwap<Interfaces>,
}

impl Worker {
    /// Adds an exporter.
    pub(super) fn begin(&self, exporting: Exporting) -> Arc<Exporting> {
        let exporting = Arc::new(exporting);
        let queue = self.queue.get_or_init(|| {
            let (queue, jobs) = sync_channel(QUEUE);
            let thread = std::thread::Builder::new().name("ipfix".into());
            if let Err(error) = thread.spawn(move || run(&jobs)) {
                tracing::error!(target: "ipfix", "no thread for exporters: {error}");
            }
            queue
        });
        let _ = queue.send(Job::Begin(Arc::downgrade(&exporting)));
        exporting
    }

    /// The descriptions of ports in records.
    pub(crate) fn interfaces(&self) -> Guard<Arc<Interfaces>> {
        self.interfaces.load()
    }

    pub(super) fn set_interfaces(&self, interfaces: Interfaces) {
        self.interfaces.store(Arc::new(interfaces));
    }

    /// Makes an exporter export its cached flows.
    pub(super) fn end(&self, exporting: Arc<Exporting>) {
        if let Some(queue) = self.queue.get() {
            let _ = queue.send(Job::End(exporting));
        }
    }

    /// Queues an observation for an exporter, if the queue has room.
    pub(super) fn observe(&self, exporting: &Arc<Exporting>, packet: Observation) {
        let job = Job::Observe(Arc::clone(exporting), packet);
        if self.queue.get().is_none_or(|queue| queue.try_send(job).is_err()) {
            base::coverage!(ipfix_queue_full);
            exporting.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn run(jobs: &Receiver<Job>) {
    let mut exporters: Vec<Weak<Exporting>> = Vec::new();
    let mut wait = IDLE;
    loop {
        let mut is_done = false;
        match jobs.recv_timeout(wait) {
            Ok(job) => {
                let jobs = std::iter::once(job).chain(jobs.try_iter()).take(BATCH);
                let done = jobs.map(|job| perform(job, &mut exporters)).count();
                is_done = done < BATCH;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = now();
        let next = end_flows(&mut exporters, now);
        wait = next.map_or(IDLE, |next| Duration::from_micros(next.0.saturating_sub(now.0)).min(IDLE));
        if is_done {
            std::thread::sleep(REST.min(wait));
        }
    }
    for exporting in exporters.iter().filter_map(Weak::upgrade) {
        exporting.with(|exporter, out| exporter.flush(now(), out));
    }
}

fn perform(job: Job, exporters: &mut Vec<Weak<Exporting>>) {
    match job {
        Job::Begin(exporting) => exporters.push(exporting),
        Job::Observe(exporting, packet) => exporting.with(|exporter, out| exporter.observe(packet, out)),
        Job::End(exporting) => exporting.with(|exporter, out| exporter.flush(now(), out)),
    }
}

/// Expires flows; returns the expiry of the next one.
fn end_flows(exporters: &mut Vec<Weak<Exporting>>, now: Micros) -> Option<Micros> {
    let mut next = None;
    exporters.retain(|exporting| {
        let Some(exporting) = exporting.upgrade() else { return false };
        let deadline = exporting.with(|exporter, out| {
            exporter.run(now, out);
            exporter.deadline()
        });
        next = [next, deadline].into_iter().flatten().min();
        true
    });
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipfix::{Config, Direction, Interface, ObservationPoint};

    fn observation() -> Observation {
        let point = ObservationPoint {
            domain: 0,
            point: 0,
            direction: Direction::Ingress,
            ingress: Interface::default(),
            egress: None,
            tunnel: None,
            dropped: false,
        };
        Observation::new(now(), &point, &flow::FlowKey::ZERO, 60)
    }

    #[test]
    fn observations_beyond_the_queue_are_counted() {
        let worker = Worker::default();
        let exporting = worker.begin(Exporting::new(1, Exporter::new(Config::default()), &BTreeSet::new()));
        let held = exporting.state.lock();
        let total = (QUEUE + 100) as u64;
        (0..total).for_each(|_| worker.observe(&exporting, observation()));
        // The thread waits for the lock with at most one observation in hand, or has not yet taken the job that adds the
        // exporter, which then takes a place in the queue.
        assert!((99..=101).contains(&exporting.lost()), "{}", exporting.lost());
        drop(held);
        while exporting.stats().packets + exporting.lost() < total {
            std::thread::yield_now();
        }
        // There are no collectors.
        let stats = exporting.stats();
        assert_eq!((stats.packets + exporting.lost(), stats.sent), (total, 0));
        assert_eq!(stats.send_errors, stats.packets + 20);
    }
}
