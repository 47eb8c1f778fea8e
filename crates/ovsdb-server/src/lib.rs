//! The OVSDB server (RFC 7047), as a core without I/O, storage engines, and an asynchronous shell.
//!
//! From the inside out:
//!
//! 1. [`Database`]: tables and rows in memory; [`Transaction`]: changes laid over it; [`execute`]: the operations of a
//!    `transact` request; [`prepare`]: the checks at its end.
//! 2. [`journal`]: transactions as records; [`log`]: records as bytes; [`storage`] and [`file`]: where the bytes go.
//! 3. [`Monitor`]: what a client is told of changes; [`Core`]: databases, sessions, locks and waiting transactions, and
//!    what each JSON-RPC message does to them.
//! 4. [`Server`]: the shell, which listens, connects, keeps time and moves bytes.
//!
//! Invariants: a database changes only by transactions that passed every check; a client hears of a change only after
//! it is on disk; a client hears of its own changes before it gets its reply.

pub mod file;
pub mod journal;
pub mod log;
pub mod storage;

mod commit;
mod core;
mod database;
mod execute;
mod hosted;
mod methods;
mod monitor;
mod row;
mod server_database;
mod session;
mod shell;
mod transaction;

#[cfg(test)]
mod tests;

pub use commit::{Prepared, prepare};
pub use core::{Core, Now, convert, load};
pub use database::{Database, HistoryEntry, RowId};
pub use execute::{Caller, Outcome, execute};
pub use monitor::{Monitor, Version};
pub use row::{Row, RowChange};
pub use session::{Output, SessionId};
pub use shell::{Builder, Handle, OpenError, Server};
pub use transaction::Transaction;
