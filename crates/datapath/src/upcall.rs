//! Upcalls: packet threads queue packets that no flow covers ([`queue`]), and handler threads serve the queues. (A packet
//! thread handles single misses itself while nothing waits, and whole batches while its queue is full: [`here`].)
//!
//! A handler first looks up each packet, as the flow of an earlier miss may cover it. Otherwise the switch translates
//! the packet, and the handler installs the flow and executes the actions. No lock is held during the translation.

pub(crate) mod here;
pub(crate) mod queue;

use dpif::HandlerStats;
pub(crate) use queue::{QueueId, Upcalls};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use base::DropReason;
use dpif::{DpFlowStats, UpcallReply};
use netdev::pool;
use packet::{Batch, Packet};
use parking_lot::MutexGuard;

use crate::execute::Executor;
use crate::forward::Forwarder;
use crate::port::PortId;
use crate::shared::{CALLER_LANE, Gone, SharedState, bump};
use queue::{Deferred, Served, State};

/// A server of queues: a handler thread, or the caller of `run_once`.
#[derive(Debug)]
pub(crate) struct Server {
    shared: Arc<SharedState>,
    index: usize,
    forwarder: Forwarder,
    /// Kept for its memory.
    batch: Batch,
}

impl Server {
    pub(crate) fn new(shared: Arc<SharedState>, index: usize) -> Self {
        Self { shared, index, forwarder: Forwarder::for_caller(), batch: Batch::new() }
    }

    /// The main loop of a handler thread.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            let mut state = shared.upcalls.state.lock();
            let queue = loop {
                if self.index >= state.n_handlers {
                    // Pass the notification on to another handler.
                    shared.upcalls.work.notify_one();
                    return;
                }
                // Packet threads may defer work as fast as it is done, so misses are served in between.
                if state.has_deferred() {
                    self.do_deferred(&mut state);
                    // The lock was released meanwhile: a request to end may have come, whose notification this thread missed.
                    if self.index >= state.n_handlers {
                        continue;
                    }
                }
                if let Some(queue) = state.take(&mut self.batch) {
                    break queue;
                }
                if state.has_deferred() {
                    continue;
                }
                state.asleep += 1;
                shared.upcalls.work.wait(&mut state);
                state.asleep -= 1;
            };
            // A packet thread wakes only one handler, so wake another one if there is more work.
            if state.asleep > 0 && !state.is_idle() {
                shared.upcalls.work.notify_one();
            }
            drop(state);
            self.serve(queue);
        }
    }

    /// Does the work that packet threads deferred.
    fn do_deferred(&self, state: &mut MutexGuard<'_, State>) {
        let done = self.shared.upcalls.do_deferred(state, |deferred| {
            let work = || {
                deferred.into_iter().for_each(|work| match work {
                    Deferred::Gone(id, stats) => self.shared.report_gone(id, stats),
                    Deferred::Install(flow) => self.shared.install_deferred(flow),
                });
            };
            catch_unwind(AssertUnwindSafe(work))
        });
        if done.is_err() {
            tracing::error!(handler = self.index, "deferred work panicked; the rest of it is lost");
            if let Some(stats) = state.handlers.get_mut(self.index) {
                stats.panics += 1;
            }
        }
    }

    /// Serves all queues on the caller's thread.
    pub(crate) fn drain(&mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            let taken = shared.upcalls.state.lock().take(&mut self.batch);
            let Some(queue) = taken else { return };
            self.serve(queue);
        }
    }

    /// Serves a batch of `queue`.
    fn serve(&mut self, queue: QueueId) {
        let (packets, start) = (self.batch.len() as u64, Instant::now());
        let served = catch_unwind(AssertUnwindSafe(|| self.answer(queue.port)));
        if served.is_err() {
            self.shared.count_drop(None, DropReason::TranslationError, self.forwarder.give_up());
            bump(&self.shared.lanes[CALLER_LANE].panics, 1);
            tracing::error!(handler = self.index, "a miss panicked; the rest of its batch is lost");
        }
        let busy_ns = start.elapsed().as_nanos() as u64;
        let did = HandlerStats { packets, batches: 1, busy_ns, panics: u64::from(served.is_err()) };
        self.shared.upcalls.done(queue, Served::ByHandler(self.index), did);
    }

    fn answer(&mut self, id: PortId) {
        let shared = Arc::clone(&self.shared);
        let ports = shared.ports.load_full();
        let Some(port) = ports.port(id.number).filter(|p| p.id == id) else {
            shared.count_drop(None, DropReason::NoPort, self.batch.len() as u64);
            shared.upcalls.is_gone(id);
            return pool::recycle_all(&mut self.batch);
        };
        self.forwarder.answer(&shared, &ports, port, &mut self.batch);
        self.forwarder.flush(&shared, &ports);
    }
}

/// Installs the flow of a miss, passes flows that it removed to `gone`, and executes the actions. `one` is an empty
/// batch for temporary use.
pub(crate) fn settle(
    exec: &mut Executor<'_>,
    shared: &SharedState,
    reply: UpcallReply,
    packet: Packet,
    one: &mut Batch,
    gone: Gone<'_>,
) {
    if let Some((id, flow)) = reply.install {
        if shared.install(id, flow, gone) {
            shared.log_added(id);
        } else {
            // The switch considers the flow as installed, so report that it is gone.
            gone(id, DpFlowStats::default());
        }
    }
    one.push(packet);
    exec.run(one, &reply.actions);
}
