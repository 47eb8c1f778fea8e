//! Continuity checks of connectivity fault management (IEEE 802.1ag, now in IEEE 802.1Q), as a state machine without I/O.
//!
//! - [`pdu`]: continuity check messages (CCMs) in Ethernet frames;
//! - [`settings`]: the settings of a maintenance point, read from the database's columns;
//! - [`point`]: one maintenance point: its CCMs, remote points, faults and health;
//! - [`machine`]: [`Cfm`], the maintenance points of many ports, with a timer wheel;
//! - [`show`]: the text of `cfm/show`.
//!
//! The caller hands in frames, counters of received packets and the time, carries out the effects that [`Cfm::poll`]
//! returns, and polls again at [`Cfm::next_deadline`]. Frames, timings and texts are those of Open vSwitch 4.0.0.
//!
//! Invariants: a malformed frame changes nothing but counters; the cost of a poll is proportional to the ports that are
//! due; a port keeps at most [`point::REMOTES_MAX`] remote maintenance points.

pub mod machine;
pub mod pdu;
pub mod point;
pub mod settings;
pub mod show;

pub use machine::Cfm;
pub use pdu::Ccm;
pub use point::{Faults, PointStatus, RemoteStatus, Statistics};
pub use protocols::Effect;
pub use settings::{CcmVlan, PointSettings};
