//! Spanning tree as state machines without I/O: STP (IEEE 802.1D-1998 clause 8) and RSTP (IEEE 802.1D-2004 clause 17).
//!
//! - [`bpdu`]: BPDUs, parsed from frames and written to them;
//! - [`id`]: bridge and port identifiers, priority vectors and timer values;
//! - [`settings`]: the configuration of bridges and ports, and path costs by link speed;
//! - [`machine`]: [`SpanningTree`], which runs all bridges of a switch;
//! - [`stp`]: one bridge that runs STP;
//! - [`rstp`]: one bridge that runs RSTP;
//! - [`timer`]: the timers of both;
//! - [`flush`]: the rate at which a bridge forgets learned addresses;
//! - [`status`]: the state of bridges and ports, and the columns of the database that show it;
//! - [`show`]: the text of `stp/show` and `rstp/show`.
//!
//! The caller hands in frames and the time, carries out the effects that [`SpanningTree::poll`] returns in their order,
//! and polls again at [`SpanningTree::next_deadline`].
//!
//! Invariants: a malformed frame changes nothing but counters; an effect that stops a port from forwarding precedes the
//! BPDU that lets a neighbour forward; a port sends no more BPDUs than its hold timer or transmit hold count allows,
//! whatever it receives; memory is bounded by a constant a port.

pub mod bpdu;
pub mod flush;
pub mod id;
pub mod machine;
pub mod rstp;
pub mod settings;
pub mod show;
pub mod status;
pub mod stp;
pub mod timer;

pub use bpdu::{Bpdu, Malformed};
pub use id::{BridgeId, PortId};
pub use machine::{Effect, SpanningTree};
pub use settings::{BridgeSettings, Flavour, PortSettings, RstpSettings, Settings, StpSettings};
pub use status::{BridgeStatus, PortStatus, Role, State, Statistics};

#[cfg(test)]
mod tests;
