//! LACP (IEEE 802.1AX-2020 clause 6) as a state machine without I/O, with the decisions and the output of Open vSwitch
//! 4.0.0.
//!
//! - [`pdu`]: LACPDUs, parsed from frames and written to them;
//! - [`select`]: which members of a bond may carry traffic together, decided from what their partners announced;
//! - [`machine`]: [`Lacp`], which runs the protocol on the members of many bonds;
//! - [`show`]: the text of `lacp/show` and `lacp/show-stats`.
//!
//! The caller hands in frames, carrier changes and the time, carries out the effects that [`Lacp::poll`] returns, and polls
//! again at [`Lacp::next_deadline`].
//!
//! Invariants: a malformed frame changes nothing but counters; all attached members of a bond have the same partner and
//! partner key; a member sends nothing while it has no carrier; memory is bounded by a constant a member.

pub mod machine;
pub mod pdu;
pub mod select;
pub mod show;

pub use machine::{
    BondSettings, BondStatus, Carrier, Effect, Lacp, LogLevel, MemberSettings, MemberStatus, Mode, Negotiation,
    Settings, Statistics, Timeout,
};
pub use pdu::{Info, Malformed, Pdu, SlowFrame, State};
pub use select::Currency;
