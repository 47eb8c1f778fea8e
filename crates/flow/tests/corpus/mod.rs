//! Generators of frames and of match texts: equal seeds give equal corpora. Shared by the comparisons with Open vSwitch
//! and the generator of fuzz seeds.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

pub mod frames;
pub mod matches;
