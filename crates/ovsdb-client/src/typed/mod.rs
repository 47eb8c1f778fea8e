//! Tables and columns known to the compiler.
//!
//! A [`Table`] is a marker type, a [`Column`] a constant with its table, its type and whether it may be changed: a
//! misspelt column does not compile, nor does a value of another type, nor a column of another table's row. They are
//! generated from schemas ([`crate::generate`]), and declared by [`crate::tables!`]; [`crate::schemas`] has those of
//! this project's schemas.
//!
//! This is a view of the same replica as by names: [`Row`] is a [`crate::Row`] with a known table. The server's
//! schema may differ: where it lacks a column, or has one of an incompatible type, the column reads as empty and is
//! never written, and a warning reports it when the schema arrives ([`crate::Misfit`]).
//!
//! ```
//! use ovsdb_client::schemas::vswitch::{Bridge, Port, bridge, port};
//! use ovsdb_client::typed::Ref;
//! use ovsdb_client::{Replica, Transaction};
//!
//! fn access_ports(db: &Replica) -> usize {
//!     let ports = db.all(Bridge).flat_map(|bridge| bridge.get(bridge::PORTS));
//!     ports.filter_map(|port| db.find(port)).filter(|port| port.get(port::TAG).is_some()).count()
//! }
//!
//! fn move_to(txn: &mut Transaction<'_>, port: Ref<Port>, vlan: i64) {
//!     txn.set(port, port::TAG, Some(vlan));
//!     txn.set(port, port::VLAN_MODE, Some(port::VlanMode::Access));
//!     txn.add(port, port::EXTERNAL_IDS, [("moved", "yes")]);
//! }
//! ```
//!
//! Errors do not compile. A missing column:
//!
//! ```compile_fail,E0425
//! # use ovsdb_client::schemas::vswitch::{Bridge, bridge};
//! # use ovsdb_client::typed::Row;
//! fn name(row: Row<'_, Bridge>) -> &str {
//!     row.get(bridge::NMAE)
//! }
//! ```
//!
//! A column of another table:
//!
//! ```compile_fail,E0308
//! # use ovsdb_client::schemas::vswitch::{Bridge, port};
//! # use ovsdb_client::typed::Row;
//! fn tag(row: Row<'_, Bridge>) -> Option<i64> {
//!     row.get(port::TAG)
//! }
//! ```
//!
//! A value of another type, read or written:
//!
//! ```compile_fail,E0308
//! # use ovsdb_client::schemas::vswitch::{Port, port};
//! # use ovsdb_client::typed::Row;
//! fn tag(row: Row<'_, Port>) -> Option<&str> {
//!     row.get(port::TAG)
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use ovsdb_client::schemas::vswitch::{Port, port};
//! # use ovsdb_client::{Transaction, typed::Ref};
//! fn set(txn: &mut Transaction<'_>, row: Ref<Port>) {
//!     txn.set(row, port::TAG, Some("7"));
//! }
//! ```
//!
//! A reference to a row of another table:
//!
//! ```compile_fail,E0277
//! # use ovsdb_client::schemas::vswitch::{Bridge, Interface, bridge};
//! # use ovsdb_client::{Transaction, typed::Ref};
//! fn add(txn: &mut Transaction<'_>, row: Ref<Bridge>, interface: Ref<Interface>) {
//!     txn.add(row, bridge::PORTS, [interface]);
//! }
//! ```
//!
//! A change of a column that cannot be changed once its row is there (it can be given when a row is inserted):
//!
//! ```compile_fail,E0308
//! # use ovsdb_client::schemas::vswitch::{Bridge, bridge};
//! # use ovsdb_client::{Transaction, typed::Ref};
//! fn rename(txn: &mut Transaction<'_>, row: Ref<Bridge>) {
//!     txn.set(row, bridge::NAME, "br1");
//! }
//! ```

mod condition;
mod macros;
mod row;
mod value;
mod write;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use ovsdb::Uuid;

pub use condition::{Clause, Condition};
pub use row::{Inserted, Row};
pub use value::{
    Atomic, Collection, Elements, ElementsIter, Emptiable, Enumeration, Listed, Map, Ordered, Pairs, PairsIter, Set,
    Shape, Value,
};
pub use write::{IntoAtom, IntoColumn};

/// A table: a type without contents.
pub trait Table: Copy + 'static {
    /// Its name in the database.
    const NAME: &'static str;
}

/// A row of a table, by its UUID. The row need not be there.
pub struct Ref<T> {
    uuid: Uuid,
    of: PhantomData<fn() -> T>,
}

impl<T> Ref<T> {
    /// The row of this UUID.
    pub const fn new(uuid: Uuid) -> Self {
        Self { uuid, of: PhantomData }
    }

    /// A reference to no row: its UUID is zero.
    pub const fn none() -> Self {
        Self::new(Uuid::ZERO)
    }

    /// Its UUID.
    pub const fn uuid(self) -> Uuid {
        self.uuid
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<T> {}

impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Self) -> bool {
        self.uuid == other.uuid
    }
}

impl<T> Eq for Ref<T> {}

impl<T> PartialOrd for Ref<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Ref<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.uuid.cmp(&other.uuid)
    }
}

impl<T> Hash for Ref<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.uuid.hash(state);
    }
}

impl<T: Table> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", T::NAME, self.uuid)
    }
}

/// Of columns that may be changed at any time.
#[derive(Debug, Clone, Copy)]
pub enum Mutable {}

/// Marks columns that are set when their row is inserted, and never changed.
#[derive(Debug, Clone, Copy)]
pub enum Immutable {}

type Types<T, V, M> = fn() -> (T, V, M);

/// A column of table `T` that holds a `V` ([`Value`]).
pub struct Column<T, V, M = Mutable> {
    name: &'static str,
    is_ephemeral: bool,
    of: PhantomData<Types<T, V, M>>,
}

impl<T, V, M> Clone for Column<T, V, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, V, M> Copy for Column<T, V, M> {}

impl<T: Table, V: Value, M> fmt::Debug for Column<T, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", T::NAME, self.name)
    }
}

impl<T: Table, V: Value, M> Column<T, V, M> {
    /// The column called `name`, for [`crate::tables!`].
    pub const fn new(name: &'static str) -> Self {
        Self { name, is_ephemeral: false, of: PhantomData }
    }

    /// Returns the column marked as ephemeral: its values are lost when the server stops.
    pub const fn ephemeral(self) -> Self {
        Self { is_ephemeral: true, ..self }
    }

    /// Its name in the database.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns true if its values are lost when the server stops: their writer must write them again.
    pub const fn is_ephemeral(self) -> bool {
        self.is_ephemeral
    }

    /// The column without its types, for lists.
    pub const fn any(self) -> AnyColumn {
        AnyColumn { table: T::NAME, column: self.name, shape: V::SHAPE, is_ephemeral: self.is_ephemeral }
    }
}

/// A column of some table, for lists of columns ([`crate::columns!`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnyColumn {
    /// The name of its table.
    pub table: &'static str,
    /// Its name.
    pub column: &'static str,
    /// Its type.
    pub shape: Shape,
    /// Whether its values are lost when the server stops.
    pub is_ephemeral: bool,
}
