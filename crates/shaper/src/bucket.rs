//! A token bucket. Tokens are kept in billionths of a unit, so that a rate in units per second times nanoseconds is exact.

/// Nanoseconds of a second, and parts of a token.
const PARTS: i128 = 1_000_000_000;

/// A token bucket, full at first. The unit of tokens is the caller's: bits, bytes or packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Tokens per second.
    rate: u64,
    /// Capacity, in parts.
    capacity: i128,
    /// Parts that are there; negative if the bucket is overdrawn.
    parts: i128,
    /// The time of `parts`, in nanoseconds.
    at_ns: u64,
}

impl Bucket {
    /// A full bucket that gets `rate` tokens per second and holds `burst` tokens.
    pub fn new(rate: u64, burst: u64, now_ns: u64) -> Self {
        let capacity = i128::from(burst) * PARTS;
        Self { rate, capacity, parts: capacity, at_ns: now_ns }
    }

    /// Adds the tokens of the time that has passed.
    pub fn refill(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.at_ns);
        if passed == 0 {
            return;
        }
        self.at_ns = now_ns;
        let gained = i128::from(self.rate).saturating_mul(i128::from(passed));
        self.parts = self.parts.saturating_add(gained).min(self.capacity);
    }

    /// Whether there are `n` tokens, as of the last refill.
    pub fn has(&self, n: u64) -> bool {
        self.parts >= i128::from(n) * PARTS
    }

    /// Whether there is more than nothing, as of the last refill.
    pub fn is_positive(&self) -> bool {
        self.parts > 0
    }

    /// Removes `n` tokens, also if they are not there.
    pub fn charge(&mut self, n: u64) {
        self.parts = self.parts.saturating_sub(i128::from(n) * PARTS);
    }

    /// The first moment in nanoseconds, not before the last refill, at which the bucket is positive; `None` if it never is.
    pub fn positive_at(&self) -> Option<u64> {
        if self.parts > 0 {
            return Some(self.at_ns);
        }
        if self.rate == 0 || self.capacity == 0 {
            return None;
        }
        let wait = self.parts.unsigned_abs() / u128::from(self.rate) + 1;
        Some(self.at_ns.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_come_with_time_up_to_the_burst() {
        let mut bucket = Bucket::new(8_000, 1_000, 5);
        assert!(bucket.has(1_000) && !bucket.has(1_001));
        bucket.charge(1_000);
        assert!(!bucket.is_positive());
        bucket.refill(5 + 62_500_000);
        assert!(bucket.has(500) && !bucket.has(501));
        // Backwards is standing still.
        bucket.refill(0);
        assert!(bucket.has(500));
        bucket.refill(u64::MAX);
        assert!(bucket.has(1_000) && !bucket.has(1_001));
    }

    #[test]
    fn an_overdrawn_bucket_is_positive_again_at_the_moment_that_it_says() {
        for (rate, overdraft) in [(1, 7), (3, 10), (999_999_937, 1), (u64::MAX, 5), (12_000, 64 << 10)] {
            let mut bucket = Bucket::new(rate, 100, 1_000);
            bucket.charge(100 + overdraft);
            let at = bucket.positive_at().unwrap();
            bucket.refill(at - 1);
            assert!(!bucket.is_positive(), "{rate} {overdraft}");
            bucket.refill(at);
            assert!(bucket.is_positive(), "{rate} {overdraft}");
        }
        assert_eq!(Bucket::new(0, 0, 0).positive_at(), None);
        assert_eq!(Bucket::new(5, 0, 0).positive_at(), None);
    }

    tally::proptest! {
        #[test]
        fn an_interval_admits_at_most_rate_and_burst(
            rate in 1u64..1_000_000_000,
            burst in 1u64..100_000,
            steps in proptest::collection::vec((0u64..50_000_000, 1u64..2_000), 1..80),
        ) {
            let mut bucket = Bucket::new(rate, burst, 0);
            let (mut now, mut taken): (u64, Vec<(u64, u64)>) = (0, Vec::new());
            for (wait, n) in steps {
                now += wait;
                bucket.refill(now);
                if bucket.has(n) {
                    bucket.charge(n);
                    taken.push((now, n));
                }
            }
            for from in 0..taken.len() {
                for to in from..taken.len() {
                    let sum: u64 = taken[from..=to].iter().map(|(_, n)| n).sum();
                    let ns = u128::from(taken[to].0 - taken[from].0);
                    let allowed = u128::from(burst) * 1_000_000_000 + u128::from(rate) * ns;
                    prop_assert!(u128::from(sum) * 1_000_000_000 <= allowed);
                }
            }
        }
    }
}
