//! The programs ovsdb-server, ovsdb-client and ovsdb-tool.

mod client;

pub use client::client_main;
