//! The parts of OVSDB (RFC 7047) shared by servers, clients and tools.
//!
//! - [`Atom`] and [`Datum`]: values; [`types`]: column types; [`schema`]: databases, tables, columns;
//! - [`condition`] and [`mutation`]: the languages of `where` clauses and the `mutate` operation;
//! - [`json_text`]: JSON texts parsed, and their mistakes named;
//! - [`direct`]: values parsed directly from JSON text, for large files;
//! - [`text`]: values as users write and read them on command lines;
//! - [`write`]: values written as JSON without a tree;
//! - [`jsonrpc`]: message framing and kinds (no I/O), and connections over streams;
//! - [`Error`]: the `<error>` object, with the tags and wording that clients of Open vSwitch look for;
//! - [`schemas`]: the schemas that this project ships.
//!
//! Invariant: a [`Datum`] is always sorted by key, without duplicate keys; a map has as many values as keys. Foreign
//! input causes no panic, and memory is proportional to the size of the input.

pub mod condition;
pub mod direct;
pub mod json;
pub mod json_text;
pub mod jsonrpc;
pub mod mutation;
pub mod schema;
pub mod schemas;
pub mod text;
pub mod types;
pub mod write;

mod atom;
mod datum;
mod error;
mod uuid;

pub use atom::Atom;
pub use datum::Datum;
pub use error::{Error, Result, unwrap_tagged};
pub use json::{NoSymbols, Symbol, SymbolTable, Symbols};
pub use schema::{ColumnSchema, DatabaseSchema, TableSchema};
pub use types::{AtomType, BaseType, ColumnType, RefType};
pub use uuid::{Uuid, UuidSource};
