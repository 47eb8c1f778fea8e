//! Database rows to running bridges, ports and interfaces, and back: the program ovs-vswitchd.
//!
//! - [`feature`]: settings by feature, each with its own columns, and [`features`]: one file a feature; [`levels`]: the
//!   switch, bridges, ports and interfaces that have them; [`reader`]: rows as features read them; [`references`]: which
//!   settings depend on which rows;
//! - [`configuration`]: changes noted, stale settings read and applied; [`bridge`]: the work that follows for one bridge;
//! - [`running`]: a running bridge; [`interface`]: one interface of it; [`ofport`]: port numbers; [`control`]: its
//!   controllers, and in-band control; [`confinement`]: the sockets that controllers may have;
//! - [`devices`]: devices by interface type, datapaths by type; [`placement`]: devices that are ports of a datapath;
//!   [`standalone`]: datapaths without bridges; [`cores`]: the machine's cores; `event_log`: their debug
//!   log;
//! - [`columns`]: the columns that are read and written;
//! - [`run`]: the loop that brings database and switch together, and the clock's work;
//! - [`commands`]: the control commands.
//!
//! All of this runs on one thread, the control thread; packet threads are the datapath's. Work that waits for them runs
//! on threads of the blocking pool.

// `println!` panics if the reader of a pipe has gone: `cli::outln!` does not.
#![warn(clippy::print_stdout)]

mod backends;
pub mod bridge;
pub mod columns;
pub mod commands;
pub mod configuration;
pub mod confinement;
pub mod control;
pub mod cores;
pub mod devices;
mod event_log;
pub mod feature;
pub mod features;
pub mod interface;
pub mod levels;
mod local_collectors;
pub mod ofport;
pub mod own_tls;
pub mod placement;
pub mod program;
mod protocol_settings;
pub mod reader;
pub mod references;
pub mod run;
pub mod running;
pub mod standalone;
mod tunnels;
pub mod types;
mod ufid;
pub mod underlay;

pub use program::{main, vocabulary};

/// The version of the Open_vSwitch schema that this is written for.
pub const DB_VERSION: &str = "8.8.0";
