//! Tunnels: their types, headers pushed and popped, options of interfaces, and which port a packet belongs to. No I/O.
//!
//! - [`header`]: headers of all types, popped and pushed.
//! - [`options`]: the options of an interface, and the datapath's port behind it.
//! - [`types`]: the types of tunnel interfaces.

pub mod header;
pub mod options;
pub mod types;

pub use types::TunnelType;
