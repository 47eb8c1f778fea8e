//! The OVSDB server (RFC 7047), as a core without I/O, storage engines, and an asynchronous shell.
//!
//! From the inside out:
//!
//! 1. [`Database`]: tables and rows in memory; [`Transaction`]: changes laid over it; [`execute`]: the operations of a
//!    `transact` request; [`prepare`]: the checks at its end.
//!    [`Role`]: the permissions that these checks enforce.
//! 2. [`journal`]: transactions as records; [`Snapshot`]: a whole database as one; [`log`]: records as bytes; [`load_log`]:
//!    both, for whole files; [`storage`] and [`file`]: where the bytes go.
//! 3. [`Monitor`]: a client's view of changes; [`Core`]: databases, sessions, locks and waiting transactions, and the
//!    effect of each JSON-RPC message on them. It also follows the databases that are copied from other servers
//!    (backups, relays), by messages of links. It returns long work as a [`Compaction`], to be run elsewhere.
//! 4. [`Server`]: the shell, which listens, connects, keeps time and moves bytes.
//!
//! A program that embeds a server runs it in a thread of its own:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let schema = ovsdb::DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH)?;
//! let server = ovsdb_server::Server::builder()
//!     .database_file_upgraded("/etc/openvswitch/conf.db", schema)
//!     .remote("punix:/var/run/openvswitch/db.sock")
//!     .remote("db:Open_vSwitch,Open_vSwitch,manager_options")
//!     .pki(ovsdb_server::Pki::of_open_vswitch())
//!     .open()?;
//! let handle = server.handle();
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let thread = std::thread::spawn(move || {
//!     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//!     runtime.block_on(server.run(async move { _ = stopped.await }));
//!     Ok::<(), std::io::Error>(())
//! });
//! // Later: use the handle, and end the server.
//! # let _ = handle;
//! drop(stop);
//! thread.join().expect("the server does not panic")?;
//! # Ok(())
//! # }
//! ```
//!
//! Invariants: a database changes only by transactions that passed every check; the server reports a change to
//! clients only after it is in the file, and on disk if the transaction requested that (otherwise a tenth of a second
//! later); a client receives its own changes before its reply.

pub mod file;
pub mod journal;
pub mod log;
pub mod storage;

mod admission;
mod commit;
mod compaction;
mod core;
mod database;
mod direct;
mod execute;
mod follow;
mod hosted;
mod methods;
mod monitor;
mod rbac;
mod replay;
mod row;
mod server_database;
mod session;
mod shared_map;
mod shell;
mod snapshot;
mod transaction;
mod transaction_log;
mod triggers;
mod updates;

#[cfg(test)]
mod tests;

pub use admission::Permit;
pub use commit::{Prepared, prepare};
pub use compaction::{Compacted, Compaction};
pub use core::{Core, Now, convert, load};
pub use database::{Database, HistoryEntry, RowId};
pub use execute::{Caller, Outcome, execute};
pub use follow::{Excluded, LinkId, Source};
pub use monitor::{Monitor, Version, View};
pub use rbac::Role;
pub use replay::{Loaded, load as load_log};
pub use row::{Row, RowChange};
pub use session::{Access, Output, SessionId, Text};
pub use shell::{Builder, Ending, Handle, OpenError, Pki, RunningConfig, Server};
pub use snapshot::Snapshot;
pub use transaction::Transaction;
