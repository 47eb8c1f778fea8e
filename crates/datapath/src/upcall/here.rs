//! Handling of single misses on the packet thread itself.
//!
//! Waking a handler thread costs a packet two thread switches and a system call; if both threads share a CPU, that is
//! more than most translations. So while no miss waits for a handler and no handler is active, a packet thread handles
//! the few misses of a batch itself, as long as this is fast. It never blocks: if [`dpif::UpcallHandler::try_miss`] has
//! no immediate reply, the packet goes into the upcall queue, and so do all misses of a batch with many.
//!
//! If its queue is full, the handlers do not keep up, and the packets of a batch with many misses would be dropped. A
//! packet thread all of whose packets miss handles such batches itself for a while, once it had to drop packets of
//! several batches in a row: it has nothing else to forward. So flow set-ups scale with packet threads, whatever the
//! number of handlers. (These packets overtake those that wait.) It does not do so earlier, as it yields before it
//! drops packets: a handler that shares its processor then continues, which costs less than two threads in turns.

use std::sync::atomic::Ordering;
use std::time::Instant;

use dpif::Upcall;
use flow::FlowKey;
use packet::Batch;

use super::queue::Served;
use super::{QueueId, Upcalls, settle};
use crate::execute::{Context, Executor};
use crate::forward::hit;
use crate::input::Keys;
use crate::port::Port;
use crate::shared::{LaneCounters, bump};
use dpif::HandlerStats;

/// Maximum number of misses of a batch that a packet thread handles: with more, waking a handler pays off.
const MISSES_MAX: usize = 2;
/// After it had to drop packets of this number of consecutive batches, a packet thread may handle batches with many
/// misses. (A single yield often returns before a handler has run.)
const LOSSES_MIN: u32 = 8;
/// The number of batches that it may handle then.
const BATCHES_AFTER_LOSSES: u32 = 1024;
/// If replies take longer than this on average, misses are left to handlers, which do not delay other packets.
const ANSWER_NS_MAX: u64 = 30_000;
/// The weight of the latest reply in the average, as a power of one half.
const WEIGHT: u32 = 3;

/// The recent reply times, hits and losses of a packet thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Nanoseconds, on average.
    answer_ns: u64,
    /// The thread's counters at the last batch with misses.
    counted: Counted,
    /// The number of consecutive batches with misses that lost packets.
    losses: u32,
    /// How many batches with many misses may be handled here.
    left: u32,
}

/// Counters of a packet thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counted {
    hits: u64,
    lost: u64,
}

impl Counted {
    fn of(lane: &LaneCounters) -> Self {
        Self { hits: lane.hit.load(Ordering::Relaxed), lost: lane.lost.load(Ordering::Relaxed) }
    }
}

/// The circumstances in which a packet thread handles the misses of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Allowed {
    /// Not at all.
    Never,
    /// While no miss waits for a handler.
    IfQuiet,
    /// If the queue is full.
    IfFull,
}

impl Pace {
    /// Whether to handle a batch with this number of misses here.
    fn allows(&mut self, misses: usize, counted: Counted) -> Allowed {
        let before = std::mem::replace(&mut self.counted, counted);
        self.losses = if counted.lost != before.lost { self.losses + 1 } else { 0 };
        if self.losses >= LOSSES_MIN {
            (self.losses, self.left) = (0, BATCHES_AFTER_LOSSES);
        }
        if self.answer_ns > ANSWER_NS_MAX {
            // Decays the average, so that handling misses here is tried again.
            self.answer_ns -= self.answer_ns >> 10;
            return Allowed::Never;
        }
        match misses {
            ..=MISSES_MAX => Allowed::IfQuiet,
            _ if self.left > 0 && counted.hits == before.hits => Allowed::IfFull,
            _ => Allowed::Never,
        }
    }

    /// Records a batch handled here, with its time for a packet.
    fn took(&mut self, ns: u64) {
        self.answer_ns = self.answer_ns - (self.answer_ns >> WEIGHT) + (ns >> WEIGHT);
    }
}

/// A queue served by a packet thread; released on drop.
struct Turn<'a> {
    upcalls: &'a Upcalls,
    queue: QueueId,
    served: Served,
    did: HandlerStats,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.did.panics = u64::from(std::thread::panicking());
        self.upcalls.done(self.queue, self.served, self.did);
    }
}

impl<'a> Turn<'a> {
    /// Takes the turn for a batch with this number of misses.
    fn take(upcalls: &'a Upcalls, queue: QueueId, allowed: Allowed, misses: usize) -> Option<Self> {
        let served = match allowed {
            Allowed::IfQuiet if upcalls.take_over(queue) => Served::ByPacketThread,
            Allowed::IfFull if upcalls.help_out(queue, misses) => Served::BesideHandlers,
            _ => return None,
        };
        let did = HandlerStats { batches: 1, ..HandlerStats::default() };
        Some(Self { upcalls, queue, served, did })
    }
}

/// Handles the misses of a batch received on `port` on the calling packet thread, which has `lane`, if there are few, or
/// if they would be dropped otherwise and the thread has nothing else to do.
/// Removes handled packets from `misses`; their keys are those of `keys` at the bits `missed`. `one` is an empty batch
/// for temporary use. Calls `settled` for each packet.
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
    let counters = &shared.lanes[lane];
    let allowed = pace.allows(misses.len(), Counted::of(counters));
    if allowed == Allowed::Never {
        return;
    }
    let Some(handler) = shared.handler() else { return };
    let queue = QueueId { port: port.id, lane };
    let Some(mut turn) = Turn::take(&shared.upcalls, queue, allowed, misses.len()) else { return };
    if !shared.is_current(ports) && shared.ports.load().port(port.number).is_none_or(|now| now.id != port.id) {
        // Counters of a removed port are not kept.
        return shared.upcalls.is_gone(port.id);
    }
    let mut room = FlowKey::ZERO;
    let start = Instant::now();
    while let Some(packet) = misses.first() {
        let key = keys.whole(missed.trailing_zeros() as usize, &mut room);
        missed &= missed.wrapping_sub(1);
        exec.any_l3 = packet.l3_type.is_some();
        // The flow of an earlier miss may cover this packet.
        if let Some(actions) = hit(shared, lane, key, packet) {
            one.push(misses.remove(0));
            exec.run(one, &actions);
        } else {
            let Some(reply) = handler.try_miss(Upcall { port: port.number, key, packet }) else { break };
            bump(&shared.lanes[lane].missed, 1);
            settle(&mut exec, shared, reply, misses.remove(0), one, &|id, stats| shared.defer_gone(id, stats));
        }
        turn.did.packets += 1;
        settled();
    }
    shared.upcalls.retry_installs(|flow| shared.flows.put_flow_quickly(flow));
    let spent = start.elapsed().as_nanos() as u64;
    turn.did.busy_ns = spent;
    pace.took(spent / turn.did.packets.max(1));
    if allowed == Allowed::IfFull {
        pace.left -= 1;
    }
    // Hits of packets that the replies of this batch cover are no other traffic.
    pace.counted.hits = Counted::of(counters).hits;
}

#[cfg(test)]
mod tests {
    use super::super::queue::QUEUE_PACKETS_MAX;
    use super::*;
    use crate::port::PortId;
    use base::DpPort;
    use packet::Packet;

    #[test]
    fn slow_answers_are_left_to_handlers_for_a_while() {
        let mut pace = Pace::default();
        let counted = Counted { hits: 0, lost: 1 };
        assert_eq!(pace.allows(MISSES_MAX, counted), Allowed::IfQuiet);
        (0..100).for_each(|_| pace.took(4000));
        assert_eq!(pace.allows(1, counted), Allowed::IfQuiet);
        (0..100).for_each(|_| pace.took(1_000_000));
        assert_eq!((pace.allows(1, counted), pace.allows(32, counted)), (Allowed::Never, Allowed::Never));
        let until = (0..1_000_000).find(|_| pace.allows(1, counted) == Allowed::IfQuiet);
        assert!(until.is_some_and(|n| n > 1000), "{until:?}");
        // A single slow reply is soon forgotten, and a second one is noticed at once.
        pace.took(1_000_000);
        assert_eq!(pace.allows(1, counted), Allowed::Never);
    }

    #[test]
    fn batches_of_many_misses_are_handled_here_only_after_losses_and_while_no_packet_hits() {
        let mut pace = Pace::default();
        let mut allows = |hits, lost| pace.allows(MISSES_MAX + 1, Counted { hits, lost });
        assert!((0..100).all(|n| allows(0, n / 2) == Allowed::Never), "no two batches in a row lost packets");
        let before = (100..200).take_while(|lost| allows(0, *lost) == Allowed::Never).count();
        assert_eq!(before as u32, LOSSES_MIN - 1);
        let lost = 100 + u64::from(LOSSES_MIN) - 1;
        assert_eq!(allows(0, lost), Allowed::IfFull);
        // Packets of this or another queue hit.
        assert_eq!(allows(5, lost), Allowed::Never);
        assert_eq!(allows(5, lost), Allowed::IfFull);
        pace.left = 0;
        assert_eq!(pace.allows(32, Counted { hits: 5, lost }), Allowed::Never);
    }

    #[test]
    fn a_packet_thread_helps_out_when_its_queue_is_full() {
        let upcalls = Upcalls::default();
        let port = PortId { number: DpPort(1), since: 1 };
        let queue = QueueId { port, lane: 1 };
        let help = || Turn::take(&upcalls, queue, Allowed::IfFull, 32);
        upcalls.set_handlers(1);
        assert!(help().is_none(), "the packets fit into the queue");
        let mut packets = vec![Packet::from_slice(&[0; 14]); 2 * QUEUE_PACKETS_MAX];
        assert_eq!(upcalls.queue(port, 1, &mut packets, true), QUEUE_PACKETS_MAX);
        let by_handler = upcalls.state.lock().take(&mut Batch::new()).expect("some wait");
        assert_eq!(upcalls.queue(port, 1, &mut packets, true), QUEUE_PACKETS_MAX - 32);
        let mut turn = help().expect("the queue is full");
        turn.did.packets = 3;
        drop(turn);
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
        let id = |n| PortId { number: DpPort(n), since: 1 };
        let take = |port, lane| Turn::take(&upcalls, QueueId { port: id(port), lane }, Allowed::IfQuiet, 1);
        assert!(take(1, 1).is_none(), "there are no handlers");
        upcalls.set_handlers(1);
        let turn = take(1, 1).expect("nothing waits");
        drop(take(2, 2).expect("another packet thread answers its own misses meanwhile"));
        // Packets of the same queue wait until it has finished.
        assert_eq!(upcalls.queue(id(1), 1, &mut vec![Packet::from_slice(&[0; 14])], false), 0);
        assert_eq!(upcalls.state.lock().take(&mut Batch::new()), None);
        drop(turn);
        assert!(take(2, 2).is_none(), "one waits");
        let queue = upcalls.state.lock().take(&mut Batch::new()).expect("one waits");
        assert!(take(2, 2).is_none(), "a handler is at work");
        upcalls.done(queue, Served::ByHandler(0), HandlerStats::default());
        let mut turn = take(2, 2).expect("nothing waits");
        turn.did.packets = 2;
        // The port is removed while it is served.
        upcalls.forget(id(2));
        drop(turn);
        let stats = upcalls.stats();
        assert_eq!(stats.ports.iter().map(|(port, _)| port.0).collect::<Vec<_>>(), [1]);
        assert_eq!((stats.here.batches, stats.here.packets), (3, 2));
    }
}
