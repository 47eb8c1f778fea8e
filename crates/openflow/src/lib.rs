//! OpenFlow messages, actions and their text.
//!
//! - [`action`]: what a flow does to a packet, as values ([`Action`]).

pub mod action;

pub use action::{Action, ControllerAction, PacketInReason, Subfield};
