//! Ids, addresses, clocks, seeded randomness, counters and drop reasons shared by all other crates.
//!
//! Level 0: this crate does not depend on packets, flows or databases. Its contents are small, have no I/O except
//! reading the system clock, and are used by at least two other crates.

pub mod addr;
pub mod clock;
pub mod coverage;
pub mod drop;
pub mod mix;
pub mod port;
pub mod rng;
pub mod serial;
pub mod ways;

pub use addr::MacAddr;
pub use clock::{Clock, Millis};
pub use drop::DropReason;
pub use port::{BridgePort, DpPort, PortNo};
