//! Reads of shared values that take no lock and write no cache line that another thread writes or reads in its hot
//! path.
//!
//! - A thread marks itself as reading in a slot of its own ([`Pin`]); [`Grace`] tracks for a writer when all threads
//!   that were reading at some moment have finished.
//! - [`LeftRight`] keeps a value in two copies: readers use the active one; a writer changes the idle one, publishes
//!   it, and repeats the change on the other copy when its readers have left.
//!
//! A read costs one atomic exchange on the thread's own cache line, and a plain store at its end; nested reads cost two
//! plain stores. A writer reads the slots of all threads once for each change.
//!
//! This crate has `unsafe` code: two blocks and one `impl` in `left_right.rs`, and what loom's cells require in the models of
//! `tests.rs`. The protocol is model-checked with loom (built with `--cfg loom`), and its tests run under the address
//! sanitizer and Miri.

mod domain;
mod left_right;
mod sync;

pub use domain::{Domain, Grace, Handle, Pin};
pub use left_right::{LeftRight, ReadGuard, Replicated};

/// The domain of values that are read for a moment and change often.
pub const LOOKUPS: usize = 0;
/// The domain of values that are read for the duration of a packet batch. It is separate because a writer waits for all
/// readers of its domain, whichever value they read.
pub const BATCHES: usize = 1;
/// Domains in which each thread has a slot.
#[cfg(not(loom))]
const DOMAINS: usize = 2;

#[cfg(test)]
mod tests;
