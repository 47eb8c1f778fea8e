//! Rate limits of one connection's packet-ins: packets that miss and packets from actions are limited separately, each
//! by a scheduler of its own.

use super::pinsched::{PacketInStats, Pinsched, RateLimit};
use base::{Millis, PortNo};
use openflow::PacketInReason;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// The schedulers; none without a limit.
#[derive(Debug, Default)]
pub(crate) struct PacketInLimits {
    schedulers: Mutex<Option<Schedulers>>,
    limited: AtomicBool,
    /// Notified when a packet-in is queued and none was before.
    pub(super) waiting: Notify,
}

#[derive(Debug)]
struct Schedulers {
    miss: Pinsched<Vec<u8>>,
    action: Pinsched<Vec<u8>>,
}

impl Schedulers {
    fn both(&mut self) -> [&mut Pinsched<Vec<u8>>; 2] {
        [&mut self.miss, &mut self.action]
    }
}

impl PacketInLimits {
    /// Returns true if there are schedulers, which may have queued packet-ins.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    /// Returns the schedulers, updated to this limit; sends everything queued if there is no limit any more.
    fn adjusted<'a>(
        &self,
        schedulers: &'a mut Option<Schedulers>,
        limit: Option<RateLimit>,
        now: Millis,
        send: &mut dyn FnMut(Vec<u8>),
    ) -> Option<&'a mut Schedulers> {
        self.limited.store(limit.is_some(), Ordering::Relaxed);
        let Some(limit) = limit else {
            if let Some(Schedulers { miss, action }) = schedulers.take() {
                miss.drain().chain(action.drain()).for_each(send);
            }
            return None;
        };
        let schedulers = schedulers
            .get_or_insert_with(|| Schedulers { miss: Pinsched::new(limit, now), action: Pinsched::new(limit, now) });
        for scheduler in schedulers.both() {
            if scheduler.limit() != limit {
                scheduler.set_limit(limit, now);
            }
        }
        Some(schedulers)
    }

    /// Offers a packet-in: passes it to `send` if it may be sent at once.
    pub(crate) fn offer(
        &self,
        limit: Option<RateLimit>,
        reason: PacketInReason,
        (port, message): (PortNo, Vec<u8>),
        now: Millis,
        mut send: impl FnMut(Vec<u8>),
    ) {
        let mut schedulers = self.schedulers.lock();
        let Some(schedulers) = self.adjusted(&mut schedulers, limit, now, &mut send) else { return send(message) };
        let scheduler = match reason {
            PacketInReason::NoMatch => &mut schedulers.miss,
            _ => &mut schedulers.action,
        };
        match scheduler.offer(port, message, now) {
            Some(message) => send(message),
            None => self.waiting.notify_one(),
        }
    }

    /// Passes packet-ins to `send` that may be sent by now.
    pub(crate) fn release(&self, limit: Option<RateLimit>, now: Millis, mut send: impl FnMut(Vec<u8>)) {
        let mut schedulers = self.schedulers.lock();
        let Some(schedulers) = self.adjusted(&mut schedulers, limit, now, &mut send) else { return };
        for scheduler in schedulers.both() {
            while let Some(message) = scheduler.release(now) {
                send(message);
            }
        }
    }

    /// The time when a queued packet-in may be sent.
    pub(crate) fn ready_at(&self) -> Option<Millis> {
        let schedulers = self.schedulers.lock();
        let schedulers = schedulers.as_ref()?;
        [&schedulers.miss, &schedulers.action].into_iter().filter_map(Pinsched::ready_at).min()
    }

    /// The statistics of packet-ins: of misses, and of actions. `None` without a limit.
    pub(crate) fn stats(&self) -> Option<[PacketInStats; 2]> {
        self.schedulers.lock().as_ref().map(|s| [s.miss.stats(), s.action.stats()])
    }
}
