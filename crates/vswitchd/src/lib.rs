//! Database rows to running bridges, ports and interfaces, and back: the program ovs-vswitchd.
//!
//! - [`desired`]: what the database asks for, as plain values;
//! - [`columns`]: the columns that are read and written;
//! - [`tuning`]: caches and limits; [`threads`]: packet threads and queues; [`cores`]: the machine's cores;
//! - [`devices`]: devices by interface type, datapaths by type;
//! - [`bridge`]: one running bridge, made to be what its row says; [`interface`]: one interface of it; [`ofport`]: port
//!   numbers; [`identity`]: addresses and names of bridges;
//! - [`control`]: its controllers, and in-band control; [`routes`]: by which stations those are reached;
//! - [`run`]: the loop that brings the two together, and the clock's work;
//! - [`status`]: what is running, written back;
//! - [`commands`]: the control commands.
//!
//! All of this runs on one thread, the control thread; packet threads are the datapath's.

mod backends;
pub mod bridge;
pub mod columns;
pub mod commands;
pub mod control;
pub mod cores;
pub mod desired;
pub mod devices;
pub mod identity;
pub mod interface;
mod lldp;
pub mod ofport;
mod own_tls;
pub mod program;
pub mod routes;
pub mod run;
pub mod status;
pub mod threads;
pub mod tuning;
pub mod types;

pub use program::{main, vocabulary};

/// The version of the Open_vSwitch schema that this is written for.
pub const DB_VERSION: &str = "8.8.0";
