//! The programs ovsdb-server, ovsdb-client and ovsdb-tool.

// `println!` panics if the reader of a pipe has gone: `cli::outln!` does not.
#![warn(clippy::print_stdout)]

pub mod client;
mod schema_file;
pub mod server;
pub mod tool;

pub use client::client_main;
pub use server::server_main;
pub use tool::tool_main;
