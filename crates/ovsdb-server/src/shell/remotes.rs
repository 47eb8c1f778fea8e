//! The addresses of the server: those given by name, and those in columns of databases (`db:DATABASE,TABLE,COLUMN`).

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::jsonrpc::{Remote, RemoteError};
use ovsdb::schema::TableSchema;
use ovsdb::{AtomType, ColumnType, Datum, Uuid};

use crate::core::Core;
use crate::database::{Database, RowId};
use crate::row::Row;

/// Default time of silence after which a TCP peer is probed, in milliseconds.
pub(super) const INACTIVITY_PROBE_MS: u64 = 5000;
/// Default maximum pause between attempts to connect, in milliseconds.
const MAX_BACKOFF_MS: u64 = 8000;

/// The complaint about an address whose method is not known: such a connection cannot be made.
pub(super) const NO_METHOD: &str = "connection attempt failed (Address family not supported by protocol)";

/// The greatest class of packets.
pub(super) const DSCP_MAX: u8 = 63;

/// The settings of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemoteOptions {
    /// After how much silence a peer is probed; 0 for never.
    pub(super) inactivity_probe_ms: u64,
    /// Longest pause between attempts to connect.
    pub(super) max_backoff_ms: u64,
    /// Whether clients may only read.
    pub(super) read_only: bool,
    /// The role of clients; empty for none.
    pub(super) role: String,
    /// The class of packets (RFC 2474), 0 to 63.
    pub(super) dscp: u8,
    /// The row with the address, where its state is reported.
    pub(super) row: Option<(String, RowId)>,
}

impl RemoteOptions {
    /// Returns true if clients of this address have the same permissions as those of one with `other` options.
    pub(super) fn allows_as(&self, other: &Self) -> bool {
        (self.read_only, &self.role) == (other.read_only, &other.role)
    }

    fn new(target: &str) -> Self {
        let is_local = target.starts_with("unix:") || target.starts_with("punix:");
        Self {
            inactivity_probe_ms: if is_local { 0 } else { INACTIVITY_PROBE_MS },
            max_backoff_ms: MAX_BACKOFF_MS,
            read_only: false,
            role: String::new(),
            dscp: stream::DSCP,
            row: None,
        }
    }
}

/// The kinds of columns that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// Strings.
    Strings,
    /// Strings that are addresses, or references to rows that have them.
    Addresses,
}

impl Holds {
    fn suits(self, kind: &ColumnType) -> bool {
        let is_reference = kind.key.kind == AtomType::Uuid && kind.key.ref_table().is_some() && !kind.is_map();
        (is_reference && self == Self::Addresses) || (kind.key.kind == AtomType::String && !kind.is_map())
    }
}

/// A column with addresses or rows of addresses.
pub(super) struct Source<'a> {
    database: &'a Database,
    name: &'a str,
    table: usize,
    schema: &'a TableSchema,
    column: usize,
}

/// Finds the column that `db:DATABASE,TABLE,COLUMN` names, if it can hold these values.
pub(super) fn source<'a>(core: &'a Core, text: &'a str, holds: Holds) -> Result<Source<'a>, String> {
    let source = find(core, text)?;
    match source.schema.columns().get(source.column) {
        Some(column) if holds.suits(&column.kind) => Ok(source),
        column => {
            let column = column.map_or("", |column| column.name.as_str());
            let table = &source.schema.name;
            Err(format!("\"{text}\": table \"{table}\" column \"{column}\" is not string or set of strings"))
        }
    }
}

/// Finds the column that `db:DATABASE,TABLE,COLUMN` names, whatever it holds.
fn find<'a>(core: &'a Core, text: &'a str) -> Result<Source<'a>, String> {
    let parts: Vec<&str> = text.strip_prefix("db:").unwrap_or(text).split(',').collect();
    let &[name, table_name, column_name] = parts.as_slice() else {
        return Err(format!("\"{text}\": invalid syntax"));
    };
    let database = core.database(name).ok_or_else(|| format!("\"{text}\": no database named {name}"))?;
    let found = database.schema().table_index(table_name);
    let found = found.and_then(|table| Some((table, database.schema().tables().get(table)?)));
    let (table, schema) = found.ok_or_else(|| format!("\"{text}\": no table named {table_name}"))?;
    let column = schema.column_index(column_name);
    let column = column.ok_or_else(|| format!("\"{text}\": table \"{table_name}\" has no column \"{column_name}\""))?;
    Ok(Source { database, name, table, schema, column })
}

/// Checks that the column exists that an address in the user's syntax names. Addresses of unknown methods and columns of
/// other types are accepted: [`resolve`] returns errors about them.
pub(super) fn check(core: &Core, text: &str) -> Result<(), String> {
    if let Some(rest) = text.strip_prefix("db:") {
        // Whether a relay has the column is only known when its source has sent the schema.
        let is_awaited = rest.split(',').next().is_some_and(|name| core.is_awaited(name));
        return if is_awaited { Ok(()) } else { find(core, text).map(|_| ()) };
    }
    Ok(())
}

/// Returns all addresses that `configured` stands for, and errors about unusable ones.
pub(super) fn resolve(core: &Core, configured: &BTreeSet<String>) -> (BTreeMap<String, RemoteOptions>, Vec<String>) {
    let mut found = BTreeMap::new();
    let mut complaints = Vec::new();
    for text in configured {
        if !text.starts_with("db:") {
            found.insert(text.clone(), RemoteOptions::new(text));
            continue;
        }
        match source(core, text, Holds::Addresses) {
            Ok(source) => source.collect(&mut found, &mut complaints),
            Err(complaint) => complaints.push(complaint),
        }
    }
    found.retain(|target, _| match Remote::parse(target) {
        Ok(_) => true,
        Err(RemoteError::Method(_)) => {
            complaints.push(format!("{target}: {NO_METHOD}"));
            false
        }
        Err(error) => {
            match bad_port(target) {
                Some((rest, port)) => {
                    vlog::err_rl!(&PORT_LIMIT, target: "socket_util", "{rest}: bad port number \"{port}\"");
                }
                None => complaints.push(error.to_string()),
            }
            false
        }
    });
    (found, complaints)
}

/// Messages about ports a minute, and in one burst: a client can write addresses into the database.
static PORT_LIMIT: vlog::RateLimit = vlog::RateLimit::new(60, 10);

/// What follows the method in an address to listen at, and its port, if that is no number of a port.
fn bad_port(target: &str) -> Option<(&str, &str)> {
    let rest = target.strip_prefix("ptcp:").or_else(|| target.strip_prefix("pssl:"))?;
    let port = rest.split(':').next().unwrap_or_default();
    (!port.is_empty() && port.parse::<u16>().is_err()).then_some((rest, port))
}

impl Source<'_> {
    /// The value of the column in each row.
    pub(super) fn values(&self) -> impl Iterator<Item = &Datum> {
        self.database.rows(self.table).filter_map(|row| row.column(self.column))
    }

    fn collect(&self, found: &mut BTreeMap<String, RemoteOptions>, complaints: &mut Vec<String>) {
        let target_table = self.schema.columns().get(self.column).and_then(|column| column.kind.key.ref_table());
        for datum in self.values() {
            match target_table {
                Some(table) => {
                    datum
                        .keys()
                        .iter()
                        .filter_map(ovsdb::Atom::as_uuid)
                        .for_each(|uuid| self.add_row(table, uuid, found, complaints));
                }
                None => {
                    for target in datum.keys().iter().filter_map(ovsdb::Atom::as_str) {
                        found.entry(target.to_owned()).or_insert_with(|| RemoteOptions::new(target));
                    }
                }
            }
        }
    }

    fn add_row(
        &self,
        table: &str,
        uuid: Uuid,
        found: &mut BTreeMap<String, RemoteOptions>,
        complaints: &mut Vec<String>,
    ) {
        let schema = self.database.schema();
        let Some((index, table)) = schema.table_index(table).and_then(|at| Some((at, schema.tables().get(at)?))) else {
            return;
        };
        let Some(row) = self.database.row(index, uuid) else { return };
        let Some(target) = column(table, row, "target").and_then(Datum::as_str) else { return };
        let mut options = RemoteOptions::new(target);
        let milliseconds = |name: &str| {
            let number = column(table, row, name).and_then(Datum::as_integer)?;
            u64::try_from(number).ok()
        };
        if let Some(probe) = milliseconds("inactivity_probe") {
            options.inactivity_probe_ms = probe;
        }
        if let Some(backoff) = milliseconds("max_backoff") {
            options.max_backoff_ms = backoff.max(1000);
        }
        options.read_only = column(table, row, "read_only").and_then(Datum::as_bool).unwrap_or(false);
        options.role = column(table, row, "role").and_then(Datum::as_str).map(str::to_owned).unwrap_or_default();
        if let Some(text) = column(table, row, "other_config").and_then(|map| map.get_str("dscp")) {
            match text.parse().ok().filter(|dscp| *dscp <= DSCP_MAX) {
                Some(dscp) => options.dscp = dscp,
                None => complaints.push(format!("{target}: other_config:dscp: \"{text}\" is no number from 0 to 63")),
            }
        }
        options.row = Some((self.name.to_owned(), (index, uuid)));
        found.insert(target.to_owned(), options);
    }
}

fn column<'a>(table: &TableSchema, row: &'a Row, name: &str) -> Option<&'a Datum> {
    row.column(table.column_index(name)?)
}

/// Writes the state of an address into its row: `is_connected` and `status`, if the row has them.
pub(super) fn report(core: &mut Core, (database, (table, uuid)): &(String, RowId), state: &Report, now: crate::Now) {
    let outcome = core.update(database, now, |transaction| {
        let Some(schema) = transaction.database().table_schema(*table) else { return Ok(()) };
        let Some(mut row) = transaction.row(*table, *uuid).map(|row| (**row).clone()) else { return Ok(()) };
        if let Some(at) = schema.column_index("is_connected") {
            row.set(at, Datum::scalar(state.connections > 0));
        }
        if let Some(at) = schema.column_index("status") {
            row.set(at, state.status());
        }
        transaction.replace(*table, row)
    });
    if let Err(error) = outcome {
        tracing::warn!(target: "ovsdb_server", "Failed to update remote status: {error}");
    }
}

/// The state of an address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Report {
    pub(super) connections: usize,
    pub(super) bound_port: Option<u16>,
    pub(super) is_passive: bool,
}

impl Report {
    fn status(&self) -> Datum {
        let mut pairs = Vec::new();
        if let Some(port) = self.bound_port {
            pairs.push(("bound_port", port.to_string()));
        }
        if self.is_passive {
            if self.connections > 1 {
                pairs.push(("n_connections", self.connections.to_string()));
            }
        } else {
            pairs.push(("state", if self.connections > 0 { "ACTIVE" } else { "BACKOFF" }.to_owned()));
        }
        Datum::map(pairs)
    }
}
