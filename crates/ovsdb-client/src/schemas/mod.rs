//! The tables of the schemas that this project ships, as [`crate::generate`] makes them of
//! [`ovsdb::schemas`]; other programs make modules of their own schemas likewise.

pub mod server;
pub mod vswitch;
pub mod vtep;
