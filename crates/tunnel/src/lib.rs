//! Tunnels: their types, headers pushed and popped, options of interfaces, and which port a packet belongs to. No I/O.
//!
//! - [`ecn`]: congestion marks through tunnels; [`framing`]: Ethernet headers between a bridge and a tunnel port;
//!   [`flags`]: bits of a tunnel's flags.
//! - [`egress`]: the outer headers of a packet that a port sends.
//! - [`header`]: headers of all types, popped and pushed.
//! - [`options`]: the options of an interface, and the datapath's port behind it.
//! - [`path_mtu`]: answers to packets that are too long for a tunnel.
//! - [`ports`]: the tunnel ports of a datapath, which of them a packet belongs to, and the commands that show them.
//! - [`types`]: the types of tunnel interfaces.

pub mod ecn;
pub mod egress;
pub mod flags;
pub mod framing;
pub mod header;
pub mod options;
pub mod path_mtu;
pub mod ports;
pub mod types;

pub use types::TunnelType;
