//! LLDP (IEEE 802.1AB) with the auto-attach extension (draft-unbehagen-lldp-spb), as a state machine without I/O.
//!
//! - [`pdu`]: LLDPDUs, parsed from frames and written to them;
//! - [`machine`]: [`Lldp`], which sends LLDPDUs at intervals and keeps the neighbours of each port;
//! - [`show`]: the text of `autoattach/status`, `autoattach/show-isid` and `autoattach/statistics`.
//!
//! The caller hands in frames and the time, sends the frames that [`Lldp::poll`] returns, and polls again at
//! [`Lldp::next_deadline`]. Intervals, TLVs and their order are those of Open vSwitch 4.0.0.
//!
//! Invariants: a malformed frame changes nothing but counters; a port keeps at most [`machine::NEIGHBOURS_MAX`]
//! neighbours, each no longer than the time to live that it announced; a transmitted frame fits in an MTU of 1500 bytes.

pub mod machine;
pub mod pdu;
pub mod show;

pub use machine::{
    Change, Effect, Lldp, MappingStatus, Neighbour, PortSettings, PortStatus, Settings, Statistics,
    TRANSMIT_INTERVAL_MS,
};
pub use pdu::{Assignment, AssignmentStatus, Element, Malformed, Pdu};
