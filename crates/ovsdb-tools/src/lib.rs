//! The programs ovsdb-server, ovsdb-client and ovsdb-tool.

mod tool;

pub use tool::tool_main;
