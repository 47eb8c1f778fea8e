//! Connection tracking and address translation (`ct` of ovs-actions(7)), without I/O; time is an argument.
//!
//! - [`action`]: parameters of the action; [`key`]: tuples in zones; [`conn`]: a connection;
//! - [`parse`]: from bytes to a key, with all checks of lengths and checksums;
//! - [`proto`]: states of TCP, SCTP, ICMP and of protocols without states; [`timeout`]: how long a connection lives;
//! - [`table`]: connections by key; [`limits`]: how many a zone may have;
//! - [`nat`]: selection of a translation, and its application; [`alg`]: helpers for FTP and TFTP;
//! - [`fragments`]: reassembly before tracking;
//! - [`view`]: connections as commands show them.

pub mod action;
pub mod alg;
pub mod conn;
pub mod fragments;
pub mod key;
pub mod limits;
pub mod nat;
pub mod parse;
pub mod proto;
pub mod table;
pub mod timeout;
pub mod tracker;
pub mod view;

pub use action::{Action, Commit, Helper, Nat, NatKind, Translated, state};
pub use conn::Conn;
pub use key::{Direction, Key};
pub use tracker::Tracker;
