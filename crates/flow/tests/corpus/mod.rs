//! Generators of frames and of match texts, seeded: the same seed gives the same corpus. Shared by the tests against
//! other implementations and by whatever wants seeds for fuzzing.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

pub mod frames;
pub mod matches;
