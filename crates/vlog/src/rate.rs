//! Rate limits on messages that a peer can cause at will.
//!
//! ```
//! use std::time::Duration;
//! use vlog::{Admission, RateLimit};
//!
//! static LIMIT: RateLimit = RateLimit::new(60, 1);
//! let second = Duration::from_secs;
//! assert_eq!(LIMIT.admit(second(100)), Admission::Pass { dropped: None });
//! assert_eq!(LIMIT.admit(second(100)), Admission::Drop);
//! let Admission::Pass { dropped: Some(dropped) } = LIMIT.admit(second(102)) else { panic!() };
//! assert_eq!(
//!     dropped.to_string(),
//!     "Dropped 1 log messages in last 2 seconds (most recently, 2 seconds ago) due to excessive rate"
//! );
//! ```

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Tokens that one message costs; each millisecond adds one token for each message a minute.
const MESSAGE_TOKENS: u64 = 60 * 1000;

/// A token bucket for the messages of a call site, or of several that share it.
#[derive(Debug)]
pub struct RateLimit {
    per_minute: u32,
    burst: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` until the first message, which finds the bucket full.
    filled_at: Option<Duration>,
    tokens: u64,
    dropped: u32,
    first_dropped: Duration,
    last_dropped: Duration,
}

/// The decision about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is logged, after a line about the messages dropped before it.
    Pass {
        /// The messages dropped since the last that passed.
        dropped: Option<Dropped>,
    },
    /// It is counted and not logged.
    Drop,
}

/// Messages suppressed by a limit; displays as the line that reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// How many.
    pub count: u32,
    /// How long ago the first was.
    pub first: Duration,
    /// How long ago the last was.
    pub last: Duration,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, first, last) = (self.count, self.first.as_secs(), self.last.as_secs());
        write!(
            f,
            "Dropped {count} log messages in last {first} seconds (most recently, {last} seconds ago) due to excessive rate"
        )
    }
}

impl RateLimit {
    /// At most `per_minute` messages a minute, and `burst` at once.
    pub const fn new(per_minute: u32, burst: u32) -> Self {
        let state = State {
            filled_at: None,
            tokens: 0,
            dropped: 0,
            first_dropped: Duration::ZERO,
            last_dropped: Duration::ZERO,
        };
        Self { per_minute, burst, state: Mutex::new(state) }
    }

    /// Decides about a message at `now`, on a monotonic clock.
    pub fn admit(&self, now: Duration) -> Admission {
        let mut state = self.state.lock();
        let capacity = u64::from(self.burst) * MESSAGE_TOKENS;
        let elapsed_ms = state
            .filled_at
            .map_or(u64::MAX, |at| u64::try_from(now.saturating_sub(at).as_millis()).unwrap_or(u64::MAX));
        if elapsed_ms > 0 {
            let earned = elapsed_ms.saturating_mul(u64::from(self.per_minute));
            state.tokens =
                if state.filled_at.is_none() { capacity } else { state.tokens.saturating_add(earned).min(capacity) };
            state.filled_at = Some(now);
        }
        if state.tokens < MESSAGE_TOKENS {
            if state.dropped == 0 {
                state.first_dropped = now;
            }
            state.last_dropped = now;
            state.dropped = state.dropped.saturating_add(1);
            return Admission::Drop;
        }
        state.tokens -= MESSAGE_TOKENS;
        let count = std::mem::take(&mut state.dropped);
        let dropped = (count > 0).then(|| Dropped {
            count,
            first: now.saturating_sub(state.first_dropped),
            last: now.saturating_sub(state.last_dropped),
        });
        Admission::Pass { dropped }
    }

    /// [`Self::admit`] on the process's monotonic clock, unless rate limits are off for `module`
    /// (`vlog/disable-rate-limit`).
    pub fn admit_now(&self, module: &str) -> Admission {
        if crate::layer::log().is_some_and(|log| !log.honors_rate_limits(module)) {
            return Admission::Pass { dropped: None };
        }
        self.admit(monotonic())
    }
}

/// The time since the first call, on the monotonic clock.
fn monotonic() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Logs unless the limit drops it: `event_rl!(&LIMIT, WARN, target: "jsonrpc", "{name}: {error}")`. The arguments are
/// evaluated only for messages that are logged.
#[macro_export]
macro_rules! event_rl {
    ($limit:expr, $level:ident, target: $target:expr, $($message:tt)+) => {
        if $crate::__tracing::enabled!(target: $target, $crate::__tracing::Level::$level) {
            if let $crate::Admission::Pass { dropped } = $limit.admit_now($target) {
                if let Some(dropped) = dropped {
                    $crate::__tracing::event!(target: $target, $crate::__tracing::Level::$level, "{dropped}");
                }
                $crate::__tracing::event!(target: $target, $crate::__tracing::Level::$level, $($message)+);
            }
        }
    };
}

/// [`event_rl!`] at `ERR`: `err_rl!(&LIMIT, target: "bridge", "...")`.
#[macro_export]
macro_rules! err_rl {
    ($limit:expr, $($rest:tt)+) => { $crate::event_rl!($limit, ERROR, $($rest)+) };
}

/// [`event_rl!`] at `WARN`.
#[macro_export]
macro_rules! warn_rl {
    ($limit:expr, $($rest:tt)+) => { $crate::event_rl!($limit, WARN, $($rest)+) };
}

/// [`event_rl!`] at `INFO`.
#[macro_export]
macro_rules! info_rl {
    ($limit:expr, $($rest:tt)+) => { $crate::event_rl!($limit, INFO, $($rest)+) };
}

/// [`event_rl!`] at `DBG`.
#[macro_export]
macro_rules! dbg_rl {
    ($limit:expr, $($rest:tt)+) => { $crate::event_rl!($limit, DEBUG, $($rest)+) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_then_the_rate() {
        let limit = RateLimit::new(60, 5);
        let passed = (0..20).filter(|_| limit.admit(Duration::from_secs(10)) != Admission::Drop).count();
        assert_eq!(passed, 5);
        assert_eq!(limit.admit(Duration::from_millis(10_500)), Admission::Drop);
        let Admission::Pass { dropped: Some(dropped) } = limit.admit(Duration::from_secs(11)) else { panic!() };
        assert_eq!(dropped.count, 16);
        assert_eq!(limit.admit(Duration::from_secs(11)), Admission::Drop);
    }

    #[test]
    fn a_limit_of_zero_drops_all() {
        let limit = RateLimit::new(0, 0);
        assert_eq!(limit.admit(Duration::from_secs(1)), Admission::Drop);
        assert_eq!(limit.admit(Duration::MAX), Admission::Drop);
    }

    tally::proptest! {
        #[test]
        fn never_more_than_burst_and_rate(steps in proptest::collection::vec(0_u64..5000, 1..200), rate in 1_u32..200, burst in 1_u32..20) {
            let limit = RateLimit::new(rate, burst);
            let mut now = Duration::from_secs(1);
            let mut passed = 0_u64;
            for step in &steps {
                now += Duration::from_millis(*step);
                passed += u64::from(limit.admit(now) != Admission::Drop);
            }
            let earned = steps.iter().sum::<u64>() * u64::from(rate) / MESSAGE_TOKENS;
            prop_assert!(passed <= u64::from(burst) + earned);
        }
    }
}
