//! Ids, addresses, clocks, seeded randomness, counters and drop reasons that every other crate shares.
//!
//! Level 0: this crate knows nothing of packets, flows or databases. What stands here is small, has no I/O but
//! reading the system clock, and is used by at least two other crates.

pub mod addr;
pub mod clock;
pub mod coverage;
pub mod drop;
pub mod mix;
pub mod port;
pub mod rng;

pub use addr::MacAddr;
pub use clock::{Clock, Millis};
pub use drop::DropReason;
pub use port::{DpPort, PortNo};
