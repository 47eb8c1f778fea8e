//! The programs ovsdb-server, ovsdb-client and ovsdb-tool.
