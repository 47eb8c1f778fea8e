//! Single misses, answered on the packet thread that met them.
//!
//! A handler thread that sleeps costs a packet two changes of thread and a system call before it has its answer; where
//! both run on the same processor, that is more than most answers. So while nobody waits for an answer and nobody is
//! given one, a packet thread asks for the few misses of a batch itself, as long as answers come quickly. It never waits
//! for anybody else: where [`dpif::UpcallHandler::miss_here`] has no answer at once, the packet goes into the queue of its
//! port, and so do all of a port with many misses.

use std::sync::atomic::Ordering;
use std::time::Instant;

use dpif::Upcall;
use packet::Batch;

use super::{Asker, HandlerStats, Upcalls, settle};
use crate::execute::Executor;
use crate::execute::recirculate::{Misses, key_of};
use crate::forward::hit;
use crate::output::Outputs;
use crate::port::{Port, PortId, PortTable};
use crate::shared::{Shared, bump};

/// Misses of a batch that a packet thread answers at most: with more of them, a handler has enough to do to be worth
/// waking.
const MISSES_MAX: usize = 2;
/// Answers that take longer than this on average are left to the handlers, which other packets do not wait for.
const ANSWER_NS_MAX: u64 = 30_000;
/// How much of the average the latest answer is, as a power of a half.
const WEIGHT: u32 = 3;

/// How quickly a packet thread has had its answers lately.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Nanoseconds, on average.
    answer_ns: u64,
}

impl Pace {
    /// Whether a batch with so many misses is to be answered here.
    fn allows(&mut self, misses: usize) -> bool {
        let quick = self.answer_ns <= ANSWER_NS_MAX;
        if !quick {
            // So that it is tried again some time.
            self.answer_ns -= self.answer_ns >> 10;
        }
        quick && misses <= MISSES_MAX
    }

    fn took(&mut self, ns: u64) {
        self.answer_ns = self.answer_ns - (self.answer_ns >> WEIGHT) + (ns >> WEIGHT);
    }
}

/// The turn of a port, taken by a packet thread; given back when dropped.
struct Turn<'a> {
    upcalls: &'a Upcalls,
    port: PortId,
    did: HandlerStats,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.did.panics = u64::from(std::thread::panicking());
        self.upcalls.done(self.port, Asker::PacketThread, self.did);
    }
}

impl Upcalls {
    /// Has the caller serve `port` for a moment, if there are handlers to leave the rest to, nothing waits, and nobody
    /// is served.
    fn take_over(&self, port: PortId) -> Option<Turn<'_>> {
        let mut state = self.state.lock();
        if state.n_handlers == 0 || state.waiting > 0 || state.serving > 0 {
            return None;
        }
        state.ports.entry(port).or_default().in_work = true;
        state.serving += 1;
        drop(state);
        Some(Turn { upcalls: self, port, did: HandlerStats { batches: 1, ..HandlerStats::default() } })
    }
}

/// Answers the misses of a batch that came in at `port` on the calling packet thread, that of `lane`, if they are few.
/// Takes those that it answers out of `misses`; `one` is an empty batch to work in. `settled` is told of each.
pub(crate) fn answer(
    (shared, ports, port): (&Shared, &PortTable, &Port),
    lane: usize,
    outputs: &mut Outputs,
    pace: &mut Pace,
    (misses, one): (&mut Batch, &mut Batch),
    mut settled: impl FnMut(),
) {
    if !pace.allows(misses.len()) {
        return;
    }
    let Some(handler) = shared.handler() else { return };
    let Some(mut turn) = shared.upcalls.take_over(port.id) else { return };
    if !shared.is_current(ports) && shared.ports.load().port(port.number).is_none_or(|now| now.id != port.id) {
        // What is known of it goes with the turn.
        return shared.upcalls.is_gone(port.id);
    }
    let vlans_max = shared.vlans_max.load(Ordering::Relaxed);
    let mut exec = Executor::new(shared, ports, port.number, Some(port), outputs);
    let start = Instant::now();
    while let Some(packet) = misses.first() {
        let key = key_of(packet, port.number, vlans_max);
        exec.bare = packet.bare.is_some();
        // The answer to the one before may cover it.
        if let Some(actions) = hit(shared, lane, &key, packet) {
            one.push(misses.remove(0));
            exec.run(one, &actions);
        } else {
            let Some(reply) = handler.miss_here(Upcall { port: port.number, key: &key, packet }) else { break };
            bump(&shared.lanes[lane].missed, 1);
            settle(&mut exec, reply, misses.remove(0), one, &|id, stats| shared.leave_gone(id, stats));
        }
        turn.did.packets += 1;
        settled();
    }
    let spent = start.elapsed().as_nanos() as u64;
    turn.did.busy_ns = spent;
    pace.took(spent / turn.did.packets.max(1));
    drop(turn);
    if !exec.again.is_empty() {
        exec.recirculate(lane, Misses::Wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        // A single slow one is soon forgiven, and found out again at once.
        pace.took(1_000_000);
        assert!(!pace.allows(1));
    }

    #[test]
    fn a_turn_is_taken_only_while_nobody_waits() {
        let upcalls = Upcalls::default();
        let id = |n| PortId { number: DpPort(n), since: 1 };
        assert!(upcalls.take_over(id(1)).is_none(), "there are no handlers");
        upcalls.set_handlers(1);
        let turn = upcalls.take_over(id(1)).expect("nobody waits");
        assert!(upcalls.take_over(id(2)).is_none(), "one is served");
        // What comes in meanwhile waits for the turn to end.
        assert_eq!(upcalls.queue(id(1), &mut vec![Packet::from_slice(&[0; 14])], false), 0);
        assert_eq!(Upcalls::take(&mut upcalls.state.lock(), &mut Batch::new()), None);
        drop(turn);
        assert!(upcalls.take_over(id(2)).is_none(), "one waits");
        assert_eq!(Upcalls::take(&mut upcalls.state.lock(), &mut Batch::new()), Some(id(1)));
        upcalls.done(id(1), Asker::Handler(0), HandlerStats::default());
        let mut turn = upcalls.take_over(id(2)).expect("nobody waits");
        turn.did.packets = 2;
        // The port goes while it is served.
        upcalls.forget(id(2));
        drop(turn);
        let stats = upcalls.stats();
        assert_eq!(stats.ports.iter().map(|(port, _)| port.0).collect::<Vec<_>>(), [1]);
        assert_eq!((stats.here.batches, stats.here.packets), (2, 2));
    }
}
