//! Handling of misses on the packet thread.
//!
//! Waking a handler thread costs a packet two thread switches and a system call; if both threads share a CPU, that is
//! more than most translations. So while no miss waits for a handler and no handler is active, a packet thread handles
//! the few misses of a batch itself, as long as this is fast. It never blocks: if [`dpif::UpcallHandler::try_miss`] has
//! no immediate reply, the packet goes into the upcall queue. Misses of larger batches are queued, too.
//!
//! A full queue means that the handlers do not keep up. If a packet thread has dropped packets of several batches in a
//! row, and none of its packets hit, it has nothing else to forward, and handles such batches itself for a while, so that
//! flow set-ups scale with packet threads. Until then the thread only yields before it drops packets: if a handler shares
//! its processor, letting the handler continue costs less than alternating.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dpif::Upcall;
use flow::FlowKey;
use packet::Batch;

use super::queue::Served;
use super::{QueueId, Upcalls, settle};
use crate::execute::{Context, Executor};
use crate::forward::hit;
use crate::input::Keys;
use crate::port::{Port, PortId};
use crate::shared::bump;
use dpif::HandlerStats;

/// Maximum number of misses of a batch that a packet thread handles while its queue is not full: with more, waking a
/// handler pays off.
const MISSES_MAX: usize = 2;
/// After it had to drop packets of this number of consecutive batches, a packet thread may handle batches that do not
/// fit into its queue. (A single yield often returns before a handler has run.)
const LOSSES_MIN: u32 = 8;
/// The thread may do so for this number of batches with misses, counted from the losses or from the last batch that it
/// handled in this way.
const HELPED_BATCHES: u32 = 1024;
/// If replies take longer than this on average, misses are left to handlers, which do not delay other packets.
const ANSWER_NS_MAX: u64 = 30_000;
/// After this time, a packet thread leaves the rest of a batch to handlers.
const BATCH_TIME_MAX: Duration = Duration::from_micros(400);
/// The weight of the latest reply in the average, as a power of one half.
const WEIGHT: u32 = 3;

/// The recent reply times, hits and losses of a packet thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Nanoseconds, on average.
    answer_ns: u64,
    /// The thread's count of hits at the last batch with misses.
    hits: u64,
    /// The number of consecutive batches with misses that lost packets. Batches of ports other than `loser` that lose
    /// none do not count.
    losses: u32,
    /// The port of the last such batch.
    loser: Option<PortId>,
    /// The number of batches with misses for which [`Upcalls::begin_if_full`] is still asked.
    batches_left: u32,
}

/// When a packet thread may handle the misses of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Allowed {
    /// See [`Upcalls::begin_if_quiet`].
    if_quiet: bool,
    /// See [`Upcalls::begin_if_full`].
    if_full: bool,
}

impl Pace {
    /// Returns when to handle a batch with this number of misses here. `hits` is the thread's count of hits so far.
    fn allows(&mut self, misses: usize, hits: u64) -> Allowed {
        let only_misses = std::mem::replace(&mut self.hits, hits) == hits;
        let may_help = self.batches_left > 0;
        self.batches_left = self.batches_left.saturating_sub(1);
        if self.answer_ns > ANSWER_NS_MAX {
            // Decays the average, so that handling misses here is tried again.
            self.answer_ns -= self.answer_ns >> 10;
            return Allowed::default();
        }
        Allowed { if_quiet: misses <= MISSES_MAX, if_full: may_help && only_misses }
    }

    /// Records whether packets of a batch that `port` received were dropped because the queue was full.
    pub(crate) fn record_loss(&mut self, port: PortId, lost: bool) {
        if lost {
            (self.losses, self.loser) = (self.losses + 1, Some(port));
        } else if self.loser == Some(port) {
            self.losses = 0;
        }
        if self.losses >= LOSSES_MIN {
            (self.losses, self.batches_left) = (0, HELPED_BATCHES);
        }
    }

    /// Records the mean time per packet of a batch handled here.
    fn record_time(&mut self, ns: u64) {
        self.answer_ns = self.answer_ns - (self.answer_ns >> WEIGHT) + (ns >> WEIGHT);
    }
}

/// A queue served by a packet thread; released on drop.
struct Service<'a> {
    upcalls: &'a Upcalls,
    queue: QueueId,
    served: Served,
    did: HandlerStats,
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        self.did.panics = u64::from(std::thread::panicking());
        self.upcalls.done(self.queue, self.served, self.did);
    }
}

impl<'a> Service<'a> {
    /// Begins to serve a batch with this number of misses.
    fn begin(upcalls: &'a Upcalls, queue: QueueId, allowed: Allowed, misses: usize) -> Option<Self> {
        let served = if allowed.if_quiet && upcalls.begin_if_quiet(queue) {
            Served::InlineWhenQuiet
        } else if allowed.if_full && upcalls.begin_if_full(queue, misses) {
            Served::InlineWhenFull
        } else {
            return None;
        };
        let did = HandlerStats { batches: 1, ..HandlerStats::default() };
        Some(Self { upcalls, queue, served, did })
    }
}

/// Handles misses of a batch received on `port` on the calling packet thread, which has `lane`: a few of them, or a whole
/// batch that would otherwise be dropped. Removes handled packets from `misses`; their keys are those of `keys` at the bits
/// `missed`. `one` is an empty batch for temporary use. Calls `settled` for each packet.
pub(crate) fn answer(
    (context, port): (Context<'_>, &Port),
    lane: usize,
    mut exec: Executor<'_>,
    pace: &mut Pace,
    (keys, mut missed): (&Keys, u32),
    (misses, one): (&mut Batch, &mut Batch),
    mut settled: impl FnMut(),
) {
    let Context { shared, ports, .. } = context;
    let hits = || shared.lanes[lane].hit.load(Ordering::Relaxed);
    let allowed = pace.allows(misses.len(), hits());
    if allowed == Allowed::default() {
        return;
    }
    let Some(handler) = shared.handler() else { return };
    let queue = QueueId { port: port.id, lane };
    let Some(mut service) = Service::begin(&shared.upcalls, queue, allowed, misses.len()) else { return };
    if !shared.is_current(ports) && shared.ports.load().port(port.number).is_none_or(|now| now.id != port.id) {
        // Counters of a removed port are not kept.
        return shared.upcalls.is_gone(port.id);
    }
    let mut room = FlowKey::ZERO;
    let start = Instant::now();
    misses.reverse();
    while let Some(packet) = misses.last() {
        let key = keys.whole(missed.trailing_zeros() as usize, &mut room);
        missed &= missed.wrapping_sub(1);
        exec.any_l3 = packet.l3_type.is_some();
        // The flow of an earlier miss may cover this packet.
        if let Some(actions) = hit(shared, lane, key, packet) {
            one.extend(misses.pop());
            exec.run(one, &actions);
        } else {
            let Some(reply) = handler.try_miss(Upcall { port: port.number, key, packet }) else { break };
            if let Some(log) = shared.event_log() {
                log.missed(&Upcall { port: port.number, key, packet });
            }
            let Some(packet) = misses.pop() else { break };
            bump(&shared.lanes[lane].missed, 1);
            settle(&mut exec, shared, reply, packet, one, &|id, stats| shared.defer_gone(id, stats));
        }
        service.did.packets += 1;
        settled();
        if start.elapsed() > BATCH_TIME_MAX {
            break;
        }
    }
    misses.reverse();
    if service.served == Served::InlineWhenFull {
        pace.batches_left = HELPED_BATCHES;
    }
    let spent = start.elapsed().as_nanos() as u64;
    service.did.busy_ns = spent;
    pace.record_time(spent / service.did.packets.max(1));
    shared.upcalls.retry_installs(|flow| shared.flows.put_flow_quickly(flow));
    // Hits on flows that this batch installed do not count as other traffic.
    pace.hits = hits();
}

#[cfg(test)]
mod tests {
    use super::super::queue::QUEUE_PACKETS_MAX;
    use super::*;
    use crate::port::PortId;
    use base::DpPort;
    use packet::Packet;

    const IF_QUIET: Allowed = Allowed { if_quiet: true, if_full: false };
    const IF_FULL: Allowed = Allowed { if_quiet: false, if_full: true };
    const NEVER: Allowed = Allowed { if_quiet: false, if_full: false };

    fn id(n: u32) -> PortId {
        PortId { number: DpPort(n), since: 1 }
    }

    #[test]
    fn slow_answers_are_left_to_handlers_for_a_while() {
        let mut pace = Pace::default();
        assert_eq!((pace.allows(MISSES_MAX, 0), pace.allows(MISSES_MAX + 1, 0)), (IF_QUIET, NEVER));
        (0..100).for_each(|_| pace.record_time(4000));
        assert_eq!(pace.allows(1, 0), IF_QUIET);
        (0..100).for_each(|_| pace.record_time(1_000_000));
        (0..LOSSES_MIN).for_each(|_| pace.record_loss(id(1), true));
        assert_eq!((pace.allows(1, 0), pace.allows(32, 0)), (NEVER, NEVER));
        let until = (0..1_000_000).find(|_| pace.allows(1, 0) == IF_QUIET);
        assert!(until.is_some_and(|n| n > 1000), "{until:?}");
        // A single slow reply is soon forgotten, and a second one is noticed at once.
        pace.record_time(1_000_000);
        assert_eq!(pace.allows(1, 0), NEVER);
    }

    #[test]
    fn batches_of_many_misses_are_handled_here_only_after_losses_and_while_no_packet_hits() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            (1..LOSSES_MIN).for_each(|_| pace.record_loss(id(1), true));
            pace.record_loss(id(1), false);
        }
        assert_eq!(pace.allows(32, 0), NEVER, "too few batches in a row lost packets");
        for n in 0..LOSSES_MIN {
            assert_eq!(pace.allows(32, 0), NEVER);
            pace.record_loss(id(n % 2), true);
            pace.record_loss(id(2), false);
        }
        assert_eq!(pace.allows(32, 0), IF_FULL);
        assert_eq!(pace.allows(1, 0), Allowed { if_quiet: true, if_full: true });
        // Packets of this or another queue hit.
        assert_eq!(pace.allows(32, 5), NEVER);
        let left = (0..2 * HELPED_BATCHES).take_while(|_| pace.allows(32, 5) == IF_FULL).count();
        assert_eq!(left as u32, HELPED_BATCHES - 3);
    }

    #[test]
    fn a_packet_thread_handles_misses_when_its_queue_is_full() {
        let upcalls = Upcalls::default();
        let port = id(1);
        let queue = QueueId { port, lane: 1 };
        let help = || Service::begin(&upcalls, queue, IF_FULL, 32);
        upcalls.set_handlers(1);
        assert!(help().is_none(), "the packets fit into the queue");
        let mut packets = vec![Packet::from_slice(&[0; 14]); 2 * QUEUE_PACKETS_MAX];
        assert_eq!(upcalls.queue(port, 1, &mut packets, true), QUEUE_PACKETS_MAX);
        let by_handler = upcalls.state.lock().take(&mut Batch::new()).expect("some wait");
        assert_eq!(upcalls.queue(port, 1, &mut packets, true), QUEUE_PACKETS_MAX - 32);
        let mut service = help().expect("the queue is full");
        service.did.packets = 3;
        drop(service);
        assert_eq!(upcalls.state.lock().take(&mut Batch::new()), None, "a handler is still serving the queue");
        upcalls.done(by_handler, Served::ByHandler(0), HandlerStats::default());
        let stats = upcalls.stats();
        assert_eq!((stats.here.batches, stats.here.packets), (1, 3));
        assert_eq!(stats.ports[0].1.waiting as usize, QUEUE_PACKETS_MAX);
        upcalls.clear();
        upcalls.wait_idle();
        upcalls.set_handlers(0);
        assert!(help().is_none(), "there are no handlers");
    }

    #[test]
    fn a_packet_thread_serves_only_while_nothing_waits_for_a_handler() {
        let upcalls = Upcalls::default();
        let begin = |port, lane| Service::begin(&upcalls, QueueId { port: id(port), lane }, IF_QUIET, 1);
        assert!(begin(1, 1).is_none(), "there are no handlers");
        upcalls.set_handlers(1);
        let service = begin(1, 1).expect("nothing waits");
        drop(begin(2, 2).expect("another packet thread answers its own misses meanwhile"));
        // Packets of the same queue wait until it has finished.
        assert_eq!(upcalls.queue(id(1), 1, &mut vec![Packet::from_slice(&[0; 14])], false), 0);
        assert_eq!(upcalls.state.lock().take(&mut Batch::new()), None);
        drop(service);
        assert!(begin(2, 2).is_none(), "one waits");
        let queue = upcalls.state.lock().take(&mut Batch::new()).expect("one waits");
        assert!(begin(2, 2).is_none(), "a handler is at work");
        upcalls.done(queue, Served::ByHandler(0), HandlerStats::default());
        let mut service = begin(2, 2).expect("nothing waits");
        service.did.packets = 2;
        // The port is removed while it is served.
        upcalls.forget(id(2));
        drop(service);
        let stats = upcalls.stats();
        assert_eq!(stats.ports.iter().map(|(port, _)| port.0).collect::<Vec<_>>(), [1]);
        assert_eq!((stats.here.batches, stats.here.packets), (3, 2));
    }
}
