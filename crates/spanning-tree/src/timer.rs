//! Timers that a poll at the right time expires.
//!
//! The standard writes "the timer is not at its initial value" for a state that keeps setting a timer to that value.
//! Here such a timer is held, and starts to run when the port leaves the state ([`Timer::release`]).

use base::Millis;

/// A timer that counts down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Timer {
    /// It has expired, or was never set.
    #[default]
    Stopped,
    /// It does not count down from this many milliseconds.
    Held(u64),
    /// It expires at this time.
    Until(Millis),
}

impl Timer {
    /// Starts it, to expire in `ms` milliseconds.
    pub fn start(&mut self, ms: u64, now: Millis) {
        *self = if ms == 0 { Self::Stopped } else { Self::Until(now.after(ms)) };
    }

    /// Sets it to `ms` milliseconds, without counting down.
    pub fn hold(&mut self, ms: u64) {
        *self = if ms == 0 { Self::Stopped } else { Self::Held(ms) };
    }

    /// Lets a held timer run.
    pub fn release(&mut self, now: Millis) {
        if let Self::Held(ms) = *self {
            self.start(ms, now);
        }
    }

    /// Stops it.
    pub fn stop(&mut self) {
        *self = Self::Stopped;
    }

    /// Returns true until it expires.
    pub fn is_running(self) -> bool {
        self != Self::Stopped
    }

    /// The time at which it expires, if it counts down.
    pub fn deadline(self) -> Option<Millis> {
        match self {
            Self::Until(deadline) => Some(deadline),
            Self::Stopped | Self::Held(_) => None,
        }
    }

    /// Stops it if its time has come. Returns true if it has.
    pub fn expire(&mut self, now: Millis) -> bool {
        let is_due = self.deadline().is_some_and(|deadline| deadline <= now);
        if is_due {
            self.stop();
        }
        is_due
    }
}
