//! What the protocols that run in the switch share. A protocol itself is a state machine in a crate of its own, without
//! I/O ([`Machine`]); docs/protocols.md shows how to add one.
//!
//! - [`number`]: the protocols' numbers;
//! - [`inbox`]: frames that the datapath has punted to a protocol, in a bounded queue for each;
//! - [`wheel`]: a timer wheel;
//! - [`engine`]: the thread that runs the machines;
//! - [`overlay`]: which protocols a port takes part in, and what they have decided about it, for translation to read.
//!
//! Invariants: a punted frame is in an inbox or counted as dropped; frames of one protocol neither displace nor delay those
//! of another by more than one batch; the overlay that a translation reads does not change under it.

pub mod engine;
pub mod inbox;
pub mod number;
pub mod overlay;
pub mod wheel;

pub use engine::{Effect, Engine, Machine, Outlet};
pub use inbox::{Frame, InboxStats, Refused};
pub use number::{Protocol, ProtocolSet};
pub use overlay::{Overlay, PortOverlay, PortState, Ports};
pub use wheel::Wheel;
