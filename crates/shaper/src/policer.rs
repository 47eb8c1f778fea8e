//! Policers: they drop what exceeds a rate, and delay nothing.

use crate::bucket::Bucket;

/// A rate with a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rate {
    /// Units per second.
    pub per_second: u64,
    /// Units that may come at once.
    pub burst: u64,
}

impl Rate {
    fn bucket(self, now_ns: u64) -> Bucket {
        Bucket::new(self.per_second, self.burst, now_ns)
    }
}

/// Limits bytes, packets, or both: a packet passes if both limits admit it, and takes from neither otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policer {
    bytes: Option<Bucket>,
    packets: Option<Bucket>,
}

impl Policer {
    /// A policer with full buckets; `None` for no limit.
    pub fn new(bytes: Option<Rate>, packets: Option<Rate>, now_ns: u64) -> Self {
        let bucket = |rate: Option<Rate>| rate.map(|rate| rate.bucket(now_ns));
        Self { bytes: bucket(bytes), packets: bucket(packets) }
    }

    /// Whether `packets` packets of `bytes` bytes together pass now. They pass or fail as one.
    pub fn admits(&mut self, now_ns: u64, bytes: u64, packets: u64) -> bool {
        let mut limits = [(&mut self.bytes, bytes), (&mut self.packets, packets)];
        for (bucket, n) in &mut limits {
            let Some(bucket) = bucket else { continue };
            bucket.refill(now_ns);
            if !bucket.has(*n) {
                return false;
            }
        }
        limits.into_iter().for_each(|(bucket, n)| bucket.iter_mut().for_each(|bucket| bucket.charge(n)));
        true
    }
}

/// Rates of a two-rate marker, in bytes (RFC 4115 section 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TwoRateConfig {
    /// Committed rate and burst (CIR, CBS).
    pub committed: Rate,
    /// Excess rate and burst (EIR, EBS).
    pub excess: Rate,
}

/// The mark of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Colour {
    /// Within the committed rate.
    Green,
    /// Within the excess rate.
    Yellow,
    /// Beyond both.
    Red,
}

/// A two-rate three-colour marker (RFC 4115).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TwoRate {
    committed: Bucket,
    excess: Bucket,
}

impl TwoRate {
    /// A marker with full buckets.
    pub fn new(config: TwoRateConfig, now_ns: u64) -> Self {
        Self { committed: config.committed.bucket(now_ns), excess: config.excess.bucket(now_ns) }
    }

    /// Marks a packet that has the mark `before`. [`Colour::Green`] for packets without one (colour-blind mode).
    pub fn mark(&mut self, now_ns: u64, bytes: u64, before: Colour) -> Colour {
        for bucket in [&mut self.committed, &mut self.excess] {
            bucket.refill(now_ns);
        }
        if before == Colour::Green && self.committed.has(bytes) {
            self.committed.charge(bytes);
            return Colour::Green;
        }
        if before <= Colour::Yellow && self.excess.has(bytes) {
            self.excess.charge(bytes);
            return Colour::Yellow;
        }
        Colour::Red
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_packet_beyond_one_limit_takes_from_neither() {
        let rate = |per_second, burst| Some(Rate { per_second, burst });
        let mut policer = Policer::new(rate(1000, 1000), rate(2, 2), 0);
        assert!(!policer.admits(0, 1001, 1));
        assert!(policer.admits(0, 400, 1) && policer.admits(0, 400, 1));
        assert!(!policer.admits(0, 100, 1), "no packets left");
        assert!(policer.admits(SECOND / 2, 700, 1), "200 bytes were left, 500 came");
        assert!(!policer.admits(SECOND / 2, 1, 1));
        let mut open = Policer::new(None, None, 0);
        assert!(open.admits(0, u64::MAX, u64::MAX));
    }

    #[test]
    fn marks_by_two_rates() {
        let committed = Rate { per_second: 1000, burst: 1000 };
        let mut marker = TwoRate::new(TwoRateConfig { committed, excess: Rate { per_second: 500, burst: 500 } }, 0);
        let mut marks = |now, before| marker.mark(now, 500, before);
        use Colour::{Green, Red, Yellow};
        assert_eq!([marks(0, Green), marks(0, Yellow), marks(0, Green)], [Green, Yellow, Green]);
        assert_eq!([marks(0, Green), marks(0, Yellow), marks(0, Red)], [Red, Red, Red]);
        assert_eq!([marks(SECOND, Red), marks(SECOND, Yellow), marks(SECOND, Yellow)], [Red, Yellow, Red]);
        assert_eq!([marks(SECOND, Green), marks(SECOND, Green), marks(SECOND, Green)], [Green, Green, Red]);
    }
}
