//! A live replica of a remote OVSDB database, and transactions against it.
//!
//! - [`Idl`]: the replica with its connection, for daemons and for `ovs-vsctl`; [`Transaction`] changes the database;
//! - [`typed`]: tables and columns known to the compiler, which programs should use; [`schemas`] has those of this
//!   project's schemas, and [`generate`] generates them for others;
//! - [`Replica`], [`Changes`] and [`Session`]: the parts of the `Idl`, without I/O, by the names of tables and
//!   columns;
//! - [`Client`]: requests and replies, for programs that need no replica.
//!
//! ```no_run
//! # async fn example() -> Result<(), ovsdb_client::Error> {
//! use ovsdb_client::schemas::vswitch::{self, Bridge, OpenVSwitch, bridge, open_vswitch};
//! use ovsdb_client::{Idl, Outcome, Wanted, columns};
//!
//! let wanted = Wanted::from(&columns! {
//!     open_vswitch { BRIDGES, CUR_CFG }
//!     bridge { NAME, PORTS, OTHER_CONFIG }
//! });
//! let tls = std::sync::Arc::default(); // Keys and certificates, for remotes that begin with `ssl:`.
//! let mut idl = Idl::new("tcp:10.0.0.1:6640,tcp:10.0.0.2:6640", &tls, vswitch::DATABASE, wanted)?;
//! idl.set_leader_only(true);
//! idl.set_lock(Some("ovs_vswitchd"));
//! loop {
//!     idl.changed().await?;
//!     for change in idl.take_changes() {
//!         if change.touches(bridge::OTHER_CONFIG.any()) {
//!             println!("{:?} is configured otherwise", change.row::<Bridge>());
//!         }
//!     }
//!     for bridge in idl.all(Bridge) {
//!         println!("{} has {} ports", bridge.get(bridge::NAME), bridge.get(bridge::PORTS).len());
//!         println!("hwaddr: {:?}", bridge.get(bridge::OTHER_CONFIG).get("hwaddr"));
//!     }
//!     if !idl.has_lock() {
//!         continue;
//!     }
//!     // Called again for each conflict with another change.
//!     let outcome = idl.transact(|txn| {
//!         let Some(root) = txn.all(OpenVSwitch).first().copied() else { return };
//!         let current = txn.read(root, open_vswitch::CUR_CFG);
//!         txn.set(root, open_vswitch::CUR_CFG, current + 1);
//!     });
//!     match outcome.await? {
//!         Outcome::Unchanged | Outcome::Committed(_) => {}
//!         Outcome::TryAgain | Outcome::NotLocked => println!("later"),
//!     }
//! }
//! # }
//! ```
//!
//! A program that needs only some rows sets conditions ([`Idl::set_condition`]), and may change them at any time.
//!
//! Invariants: the replica changes only while [`Idl::changed`] or a commit is awaited, and a [`Transaction`] borrows
//! it, so the server checks a transaction against the contents from which it was built. Messages of the server are
//! checked before they are stored; a server that violates the protocol is disconnected, and its contents are
//! requested again. Columns that the server's schema lacks, or has with another type, read as empty and are never
//! written, so that a program runs with older and newer databases; a warning reports it.

// So that the generator's output means the same here as elsewhere.
extern crate self as ovsdb_client;

mod changes;
mod client;
mod condition;
mod error;
pub mod generate;
mod idl;
mod link;
mod remotes;
mod replica;
mod row;
pub mod schemas;
mod session;
mod standing;
#[cfg(test)]
mod tests;
mod transaction;
pub mod typed;
mod wanted;

pub use changes::{Changes, Committed, Outcome};
pub use client::Client;
pub use condition::{Clause, Condition};
pub use error::{Error, ProtocolError};
pub use idl::{Idl, Reconnect};
pub use remotes::Order;
pub use replica::{Change, ChangeKind, Column, OldValues, Replica, Table};
pub use row::Row;
pub use session::{LockState, Session};
pub use standing::Standing;
pub use transaction::Transaction;
pub use wanted::{Misfit, Wanted};

#[doc(hidden)]
pub use ovsdb;
