//! The asynchronous shell around [`crate::Core`]: sockets, clocks and tasks, without decisions.
//!
//! One task owns the core and takes events from a bounded queue; each connection has a reading and a writing task.
//! Events that are ready together are handled together, made durable with one sync, and only then answered.

mod config;
mod connection;
mod control;
mod dial;
mod halves;
mod handle;
mod listeners;
mod origin;
mod pki;
mod remotes;
mod running;
mod server;
mod sources;
mod upgrade;

pub use handle::Handle;
pub use pki::Pki;
pub use running::RunningConfig;
pub use server::{Builder, Ending, OpenError, Server};
