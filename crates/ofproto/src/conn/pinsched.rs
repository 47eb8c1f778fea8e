//! Rate limiting of one kind of packet-ins to one controller: a token bucket, followed by a queue for each port.
//!
//! While there are tokens and empty queues, packets are sent at once. Otherwise they wait, and new tokens serve the ports
//! in turn. When as many packets wait as a burst has, the oldest one of the longest queue is dropped, so that a port with many
//! packets cannot displace those of another (ovs-vswitchd.conf.db(5), "Controller Rate Limiting"). No clock, no I/O:
//! time is an argument.

use base::{Millis, PortNo};
use std::collections::{BTreeMap, VecDeque};

/// A rate limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Packets a second, at least 1.
    pub rate: u32,
    /// The number of packets that may be sent at once, and that may wait, at least 1.
    pub burst: u32,
}

impl RateLimit {
    /// Creates a limit; the default burst is a quarter of a second's packets.
    pub fn new(rate: u32, burst: Option<u32>) -> Self {
        let rate = rate.max(1);
        Self { rate, burst: burst.filter(|b| *b > 0).unwrap_or(rate / 4).max(1) }
    }
}

/// Statistics of a rate limiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketInStats {
    /// Sent at once.
    pub bypassed: u64,
    /// Put into a queue.
    pub queued: u64,
    /// Dropped from a queue to make room.
    pub dropped: u64,
    /// Packets in queues now.
    pub backlog: u64,
}

/// Tokens, in thousandths of a packet: each millisecond adds as many as the rate has packets per second.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    limit: RateLimit,
    tokens: u64,
    filled_at: Millis,
}

const PACKET: u64 = 1000;

impl Bucket {
    fn full(limit: RateLimit, now: Millis) -> Self {
        Self { limit, tokens: u64::from(limit.burst) * PACKET, filled_at: now }
    }

    fn fill(&mut self, now: Millis) {
        let new = now.since(self.filled_at).saturating_mul(self.limit.rate.into());
        self.tokens = self.tokens.saturating_add(new).min(u64::from(self.limit.burst) * PACKET);
        self.filled_at = now.max(self.filled_at);
    }

    fn take(&mut self, now: Millis) -> bool {
        self.fill(now);
        let enough = self.tokens >= PACKET;
        if enough {
            self.tokens -= PACKET;
        }
        enough
    }

    /// The time when there is a token if none is taken before.
    fn ready_at(&self) -> Millis {
        self.filled_at.after(PACKET.saturating_sub(self.tokens).div_ceil(self.limit.rate.into()))
    }
}

/// A rate limiter of items.
#[derive(Debug)]
pub(crate) struct Pinsched<T> {
    bucket: Bucket,
    queues: BTreeMap<PortNo, VecDeque<T>>,
    /// The port served last.
    served: PortNo,
    stats: PacketInStats,
}

impl<T> Pinsched<T> {
    pub(crate) fn new(limit: RateLimit, now: Millis) -> Self {
        let stats = PacketInStats::default();
        Self { bucket: Bucket::full(limit, now), queues: BTreeMap::new(), served: PortNo(0), stats }
    }

    /// The current limit.
    pub(crate) fn limit(&self) -> RateLimit {
        self.bucket.limit
    }

    /// Changes the limit. Queued packets stay.
    pub(crate) fn set_limit(&mut self, limit: RateLimit, now: Millis) {
        self.bucket.fill(now);
        self.bucket.limit = limit;
        self.bucket.fill(now);
    }

    /// Offers a packet of a port: returns it if it may be sent at once, and queues it otherwise.
    pub(crate) fn offer(&mut self, port: PortNo, item: T, now: Millis) -> Option<T> {
        if self.queues.is_empty() && self.bucket.take(now) {
            self.stats.bypassed += 1;
            return Some(item);
        }
        while self.stats.backlog >= self.bucket.limit.burst.into() {
            self.drop_one(port);
        }
        self.queues.entry(port).or_default().push_back(item);
        self.stats.queued += 1;
        self.stats.backlog += 1;
        None
    }

    /// Drops the oldest packet of the longest queue; among several, that of `port`.
    fn drop_one(&mut self, port: PortNo) {
        let longest = self.queues.iter().max_by_key(|(no, queue)| (queue.len(), **no == port));
        if let Some(no) = longest.map(|(no, _)| *no) {
            self.take_from(no);
            self.stats.dropped += 1;
        }
    }

    /// Returns the next queued packet that may be sent by now.
    pub(crate) fn release(&mut self, now: Millis) -> Option<T> {
        let after = (std::ops::Bound::Excluded(self.served), std::ops::Bound::Unbounded);
        let next = self.queues.range(after).next().or_else(|| self.queues.iter().next());
        let next = next.map(|(no, _)| *no)?;
        if !self.bucket.take(now) {
            return None;
        }
        self.served = next;
        self.take_from(next)
    }

    fn take_from(&mut self, port: PortNo) -> Option<T> {
        let queue = self.queues.get_mut(&port)?;
        let item = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&port);
        }
        self.stats.backlog -= u64::from(item.is_some());
        item
    }

    /// The time when the next packet may be sent; `None` if none waits.
    pub(crate) fn ready_at(&self) -> Option<Millis> {
        (!self.queues.is_empty()).then(|| self.bucket.ready_at())
    }

    /// Returns all queued packets, when there is no limit any more.
    pub(crate) fn drain(self) -> impl Iterator<Item = T> {
        self.queues.into_values().flatten()
    }

    /// The statistics so far.
    pub(crate) fn stats(&self) -> PacketInStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Millis = Millis(1_000_000);

    fn sched(rate: u32, burst: u32) -> Pinsched<u32> {
        Pinsched::new(RateLimit { rate, burst }, START)
    }

    fn released(p: &mut Pinsched<u32>, now: Millis) -> Vec<u32> {
        std::iter::from_fn(|| p.release(now)).collect()
    }

    #[test]
    fn a_burst_is_sent_the_next_packets_wait_and_the_rest_is_dropped() {
        let mut p = sched(100, 25);
        let gone: Vec<u32> = (0..100).filter_map(|n| p.offer(PortNo(1), n, START)).collect();
        assert!(gone.iter().copied().eq(0..25), "{gone:?}");
        assert_eq!(p.stats(), PacketInStats { bypassed: 25, queued: 75, dropped: 50, backlog: 25 });
        // One each 10 ms, the newest ones, in order.
        assert_eq!(p.ready_at(), Some(START.after(10)));
        assert!(released(&mut p, START.after(9)).is_empty());
        assert_eq!(released(&mut p, START.after(10)), [75]);
        assert_eq!(released(&mut p, START.after(35)), [76, 77]);
        assert_eq!(p.ready_at(), Some(START.after(40)));
        assert!(released(&mut p, START.after(10_000)).into_iter().eq(78..100));
        assert_eq!((p.ready_at(), p.stats().backlog), (None, 0));
    }

    #[test]
    fn ports_take_turns_and_the_longest_queue_drops() {
        let mut p = sched(1000, 8);
        (0..8).for_each(|n| assert_eq!(p.offer(PortNo(1), n, START), Some(n)));
        (100..108).for_each(|n| assert_eq!(p.offer(PortNo(1), n, START), None));
        (200..203).for_each(|n| assert_eq!(p.offer(PortNo(2), n, START), None));
        assert_eq!(p.offer(PortNo(3), 300, START), None);
        assert_eq!(p.stats(), PacketInStats { bypassed: 8, queued: 12, dropped: 4, backlog: 8 });
        // While packets are queued, none overtakes them, even if there are tokens.
        assert_eq!(p.offer(PortNo(4), 400, START.after(100)), None);
        assert_eq!(released(&mut p, START.after(100)), [105, 200, 300, 400, 106, 201, 107, 202]);
    }

    #[test]
    fn a_new_limit_applies_at_once() {
        let mut p = sched(100, 25);
        (0..50).for_each(|n| _ = p.offer(PortNo(1), n, START));
        let fast = RateLimit { rate: 1000, burst: 10 };
        p.set_limit(fast, START.after(10));
        assert_eq!(p.limit(), fast);
        assert_eq!(released(&mut p, START.after(12)).len(), 3);
        assert_eq!(p.offer(PortNo(2), 77, START.after(12)), None);
        assert_eq!(p.stats().backlog, 10);
        assert_eq!(p.drain().last(), Some(77));
        assert_eq!(RateLimit::new(1000, None), RateLimit { rate: 1000, burst: 250 });
        assert_eq!(RateLimit::new(3, Some(0)), RateLimit { rate: 3, burst: 1 });
    }

    proptest! {
        /// In any time, no more packets are sent than the burst and the rate allow, and every packet is accounted for.
        #[test]
        fn the_rate_is_kept(
            rate in 1u32..5000,
            burst in 1u32..200,
            steps in prop::collection::vec((0u64..50, 0u32..5, 0usize..30), 1..200),
        ) {
            let mut p = sched(rate, burst);
            let (mut now, mut gone, mut offered) = (START, 0u64, 0u64);
            for (ms, port, packets) in steps {
                now = now.after(ms);
                gone += released(&mut p, now).len() as u64;
                for _ in 0..packets {
                    offered += 1;
                    gone += u64::from(p.offer(PortNo(port), 0, now).is_some());
                }
                let most = u64::from(burst) + now.since(START) * u64::from(rate) / 1000;
                prop_assert!(gone <= most, "{gone} of {most}");
                let stats = p.stats();
                prop_assert!(stats.backlog <= burst.into());
                prop_assert_eq!(offered, gone + stats.dropped + stats.backlog);
                prop_assert_eq!(stats.bypassed + stats.queued, offered);
                // At the announced time there is a token.
                if let Some(at) = p.ready_at() {
                    prop_assert!(at > now || stats.backlog > 0);
                    prop_assert!(p.bucket.tokens < PACKET || at <= now);
                }
            }
        }
    }
}
