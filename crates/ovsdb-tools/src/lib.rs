//! The programs ovsdb-server, ovsdb-client and ovsdb-tool.

pub mod server;
pub mod tool;
