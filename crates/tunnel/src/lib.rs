//! Tunnels: their types, headers pushed and popped, options of interfaces, and which port a packet belongs to. No I/O.
//!
//! - [`header`]: headers of all types, popped and pushed.
//! - [`types`]: the types of tunnel interfaces.

pub mod header;
pub mod types;

pub use types::TunnelType;
