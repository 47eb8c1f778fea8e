//! Tunnels: their types, headers pushed and popped, options of interfaces, and which port a packet belongs to. No I/O.
//!
//! - [`types`]: the types of tunnel interfaces.

pub mod types;

pub use types::TunnelType;
