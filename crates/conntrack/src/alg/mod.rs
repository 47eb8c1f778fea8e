//! Helpers: they read control connections, expect the data connections that these announce, and translate the announced
//! addresses (`alg` of ovs-actions(7)).
//!
//! - [`ftp`] and [`tftp`] find announcements in a payload; [`expect`] holds the expected connections;
//! - [`sequence`] shifts TCP sequence numbers behind text whose length changed; [`rewrite`] changes the bytes of packets;
//! - [`assist`] applies all of them to a packet of a connection.

pub mod assist;
pub mod expect;
pub mod ftp;
pub mod rewrite;
pub mod sequence;
pub mod tftp;

pub use assist::{Assisted, Context, assist, unshift};
pub use expect::{Expectation, Expectations};

#[cfg(test)]
mod tests;
