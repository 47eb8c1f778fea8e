//! The framework of the protocols that run in the switch. A protocol itself is a state machine in a crate of its own,
//! without I/O ([`Machine`]); docs/protocols.md shows how to add one.
//!
//! - [`number`]: the protocols' numbers;
//! - [`inbox`]: frames that the datapath has punted to a protocol, in a bounded queue for each;
//! - [`wheel`]: a timer wheel;
//! - [`engine`]: the thread that runs the machines;
//! - [`per_port`]: a protocol as many small machines, one for each port, with one timer each;
//! - [`overlay`]: the protocols enabled on each port and their decisions about it, which translation reads.
//!
//! Invariants: a punted frame is in an inbox or counted as dropped; frames of one protocol neither displace frames of
//! another nor delay them by more than one batch; a translation reads one immutable snapshot of the overlay.

pub mod engine;
pub mod inbox;
pub mod number;
pub mod overlay;
pub mod per_port;
pub mod wheel;

pub use engine::{Effect, Engine, LogLevel, Machine, Outlet, TreeState};
pub use inbox::{Frame, InboxStats, Refused, Source};
pub use number::{Protocol, ProtocolSet};
pub use overlay::{Accepts, Overlay, PortOverlay, PortState, Ports};
pub use per_port::{Line, PerPort, PortMachine};
pub use wheel::Wheel;
