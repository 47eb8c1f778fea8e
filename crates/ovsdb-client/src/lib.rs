//! A live replica of a remote OVSDB database, and transactions against it.
//!
//! - [`Idl`]: the replica with its connection, for daemons and for `ovs-vsctl`; [`Transaction`] changes the database;
//! - [`Replica`], [`Changes`] and [`Session`]: what the `Idl` is made of, without I/O;
//! - [`Client`]: requests and answers, for programs that need no replica.
//!
//! ```no_run
//! # async fn example() -> Result<(), ovsdb_client::Error> {
//! use ovsdb_client::{ChangeKind, Idl, Outcome};
//!
//! let wanted = &[("Open_vSwitch", &["bridges", "cur_cfg"][..]), ("Bridge", &["name", "ports", "other_config"][..])];
//! let tls = std::sync::Arc::default(); // Keys and certificates, for remotes that begin with `ssl:`.
//! let mut idl = Idl::connect("unix:/var/run/openvswitch/db.sock", &tls, "Open_vSwitch", wanted).await?;
//! idl.set_lock(Some("ovs_vswitchd"));
//! loop {
//!     for change in idl.take_changes() {
//!         if let ChangeKind::Modified(old) = &change.kind {
//!             println!("{} {}: other_config was {:?}", change.table, change.uuid, old.get("other_config"));
//!         }
//!     }
//!     for bridge in idl.rows("Bridge") {
//!         println!("{} has {} ports", bridge.string("name"), bridge.uuids("ports").len());
//!         println!("hwaddr: {:?}", bridge.map_get("other_config", "hwaddr"));
//!     }
//!     if idl.has_lock() {
//!         let root = idl.rows("Open_vSwitch").next().map(|row| row.uuid());
//!         let mut txn = idl.transaction();
//!         if let Some(root) = root {
//!             txn.set("Open_vSwitch", root, "cur_cfg", 7);
//!         }
//!         match txn.commit().await? {
//!             Outcome::Unchanged | Outcome::Committed(_) => {}
//!             Outcome::TryAgain | Outcome::NotLocked => println!("later"),
//!         }
//!     }
//!     idl.changed().await?;
//! }
//! # }
//! ```
//!
//! Invariants: the replica changes only while [`Idl::changed`] or a commit is awaited, and a [`Transaction`] borrows it,
//! so what a transaction was made from is what the server is asked to check. What comes from the server is checked
//! before it is stored; a server that breaks the protocol is disconnected, and its contents are asked for anew.

mod changes;
mod client;
mod error;
mod idl;
mod replica;
mod servers;
mod session;
#[cfg(test)]
mod tests;

pub use changes::{Changes, Committed, Outcome};
pub use client::Client;
pub use error::{Error, ProtocolError};
pub use idl::{Idl, Reconnect, Transaction};
pub use replica::{Change, ChangeKind, Column, OldValues, Replica, Row, Table, Wanted};
pub use servers::Order;
pub use session::{LockState, Session};
