//! OpenFlow messages, actions and their text.
//!
//! - [`version`], [`error`]: versions and errors with their numbers and names.
//! - [`nxm`]: matches on the wire, in all the forms that the versions have.
//! - [`action`]: what a flow does to a packet, as values ([`Action`]), bytes and text.
//! - [`flow_mod`]: a change to the flow tables, as a value.

pub mod action;
pub mod error;
pub mod flow_mod;
pub mod version;

pub use action::{Action, ControllerAction, PacketInReason, Subfield};
pub use error::OfpError;
pub use flow_mod::{FlowFlags, FlowMod, FlowModCommand};
pub use version::Version;
