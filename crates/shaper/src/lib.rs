//! Rate limits without I/O: time is an argument, in nanoseconds since any fixed moment.
//!
//! - [`bucket`]: a token bucket in exact integer arithmetic;
//! - [`policer`]: drops what exceeds a rate: by bytes and by packets, and the two-rate marker of RFC 4115;
//! - [`htb`]: a hierarchical shaper, which delays what exceeds a rate: one queue for each class, guaranteed and maximum
//!   rates, bursts, priorities, and bandwidth that classes borrow from each other.
//!
//! Invariants: an interval of `t` seconds admits at most `rate * t + burst`, and one packet more for shapers, whose buckets
//! may be overdrawn by a packet. Time that runs backwards counts as standing still. Memory is bounded by the classes and
//! their limits.

pub mod bucket;
pub mod htb;
pub mod policer;

pub use bucket::Bucket;
pub use htb::{ClassConfig, ClassStats, Shaper, ShaperConfig};
pub use policer::{Colour, Policer, Rate, TwoRate, TwoRateConfig};
