//! OpenFlow messages, actions and their text.
//!
//! - [`version`], [`error`]: versions and errors with their numbers and names.
//! - [`nxm`], [`of_match`], [`prereq`]: matches as entries, as fixed structures, and what their fields presuppose.
//! - [`bytes`]: reading and writing numbers.
//! - [`action`]: what a flow does to a packet, as values ([`Action`]), bytes and text.
//! - [`flow_mod`]: a change to the flow tables, as a value.

pub mod action;
pub mod bytes;
pub mod error;
pub mod flow_mod;
pub mod nxm;
pub mod of_match;
pub mod prereq;
pub mod version;

pub use action::check::{Limits, check};
pub use action::decode::decode_actions;
pub use action::encode::encode_actions;
pub use action::instruction::{decode_flow_actions, decode_instructions, encode_flow_actions, encode_instructions};
pub use action::{Action, ControllerAction, PacketInReason, Subfield};
pub use error::OfpError;
pub use flow_mod::{FlowFlags, FlowMod, FlowModCommand};
pub use version::Version;
