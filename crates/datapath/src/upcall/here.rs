//! Handling of single misses on the packet thread itself.
//!
//! Waking a handler thread costs a packet two thread switches and a system call; if both threads share a CPU, that is
//! more than most translations. So while no miss waits for a handler and no handler is active, a packet thread handles
//! the few misses of a batch itself, as long as this is fast. It never blocks: if [`dpif::UpcallHandler::try_miss`] has
//! no immediate reply, the packet goes into the upcall queue, and so do all misses of a batch with many.

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
use crate::shared::bump;
use dpif::HandlerStats;

/// Maximum number of misses of a batch that a packet thread handles: with more, waking a handler pays off.
const MISSES_MAX: usize = 2;
/// If replies take longer than this on average, misses are left to handlers, which do not delay other packets.
const ANSWER_NS_MAX: u64 = 30_000;
/// The weight of the latest reply in the average, as a power of one half.
const WEIGHT: u32 = 3;

/// The recent reply times of a packet thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Nanoseconds, on average.
    answer_ns: u64,
}

impl Pace {
    /// Whether to handle a batch with this number of misses here.
    fn allows(&mut self, misses: usize) -> bool {
        let quick = self.answer_ns <= ANSWER_NS_MAX;
        if !quick {
            // Decays the average, so that handling misses here is tried again.
            self.answer_ns -= self.answer_ns >> 10;
        }
        quick && misses <= MISSES_MAX
    }

    fn took(&mut self, ns: u64) {
        self.answer_ns = self.answer_ns - (self.answer_ns >> WEIGHT) + (ns >> WEIGHT);
    }
}

/// A queue served by a packet thread; released on drop.
struct Turn<'a> {
    upcalls: &'a Upcalls,
    queue: QueueId,
    did: HandlerStats,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.did.panics = u64::from(std::thread::panicking());
        self.upcalls.done(self.queue, Served::ByPacketThread, self.did);
    }
}

impl<'a> Turn<'a> {
    fn take(upcalls: &'a Upcalls, queue: QueueId) -> Option<Self> {
        let did = HandlerStats { batches: 1, ..HandlerStats::default() };
        upcalls.take_over(queue).then(|| Self { upcalls, queue, did })
    }
}

/// Handles the misses of a batch received on `port` on the calling packet thread, which has `lane`, if there are few.
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
    if !pace.allows(misses.len()) {
        return;
    }
    let Some(handler) = shared.handler() else { return };
    let Some(mut turn) = Turn::take(&shared.upcalls, QueueId { port: port.id, lane }) else { return };
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
    let spent = start.elapsed().as_nanos() as u64;
    turn.did.busy_ns = spent;
    pace.took(spent / turn.did.packets.max(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::PortId;
    use base::DpPort;
    use packet::Packet;

    #[test]
    fn slow_answers_are_left_to_handlers_for_a_while() {
        let mut pace = Pace::default();
        assert!(pace.allows(MISSES_MAX) && !pace.allows(MISSES_MAX + 1));
        (0..100).for_each(|_| pace.took(4000));
        assert!(pace.allows(1));
        (0..100).for_each(|_| pace.took(1_000_000));
        assert!(!pace.allows(1));
        let until = (0..1_000_000).find(|_| pace.allows(1));
        assert!(until.is_some_and(|n| n > 1000), "{until:?}");
        // A single slow reply is soon forgotten, and a second one is noticed at once.
        pace.took(1_000_000);
        assert!(!pace.allows(1));
    }

    #[test]
    fn a_packet_thread_serves_only_while_nothing_waits_for_a_handler() {
        let upcalls = Upcalls::default();
        let id = |n| PortId { number: DpPort(n), since: 1 };
        let take = |port, lane| Turn::take(&upcalls, QueueId { port: id(port), lane });
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
