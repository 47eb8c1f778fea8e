//! The programs ovsdb-server, ovsdb-client and ovsdb-tool.

pub mod client;
mod schema_file;
pub mod server;
pub mod tool;

pub use client::client_main;
pub use server::server_main;
pub use tool::tool_main;
