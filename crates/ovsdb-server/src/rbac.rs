//! Role-based access control (ovsdb-server(7), sections 3.2 and 4.1.3): the rows that a client of a remote with a
//! role may change.
//!
//! A database whose schema has the table `RBAC_Role` defines the permissions of roles: a row of it names, for each
//! table, the row of another table with the permissions. Without that table a role has no effect, and a client
//! without a role may do everything. A client is identified by the name in its certificate; a client without a name
//! may do nothing.
//!
//! The tables before the transaction apply: no transaction gives itself permissions. Rows that are garbage-collected
//! need no permission.

use ovsdb::schema::{DatabaseSchema, TableSchema};
use ovsdb::{AtomType, Datum, Error, Result};

use crate::database::Database;
use crate::row::Row;

/// The table of roles.
const ROLE_TABLE: &str = "RBAC_Role";

/// The role and name of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Role<'a> {
    /// The role that its remote has.
    pub name: &'a str,
    /// The name in its certificate.
    pub client: Option<&'a str>,
}

/// The permissions for rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Insert,
    Update,
    Mutate,
    Delete,
}

impl Verb {
    fn describe(self) -> &'static str {
        match self {
            Verb::Insert => "row insertion into",
            Verb::Update => "modification of",
            Verb::Mutate => "mutate operation on",
            Verb::Delete => "row deletion from",
        }
    }
}

impl Role<'_> {
    /// Checks that `verb` may be done to `rows` of a table; for updates and mutations, in these columns. No rows need no
    /// permission but that the role has some for the table.
    ///
    /// # Errors
    ///
    /// `permission error`.
    pub(crate) fn check(
        &self,
        database: &Database,
        table: &TableSchema,
        verb: Verb,
        rows: &[Row],
        columns: impl Iterator<Item = usize>,
    ) -> Result<()> {
        let schema: &DatabaseSchema = database.schema();
        let Some(roles) = schema.table_index(ROLE_TABLE) else { return Ok(()) };
        let permissions =
            self.client.and_then(|client| Some((client, self.permissions(database, roles, &table.name)?)));
        let may = permissions.is_some_and(|(client, permissions)| {
            rows.is_empty()
                || permissions.allow(verb, table, columns) && rows.iter().all(|row| permissions.own(client, table, row))
        });
        if may { Ok(()) } else { Err(self.denied(&format!("{} table \"{}\".", verb.describe(), table.name))) }
    }

    /// The error for a schema change by a client with a role, as no role allows it.
    pub(crate) fn may_not_convert(&self, database: &str) -> Error {
        self.denied(&format!("\"convert\" of database {database} (only the root role may convert databases)"))
    }

    fn denied(&self, what: &str) -> Error {
        // Open vSwitch prints a missing name like this.
        let client = self.client.unwrap_or("(null)");
        Error::new(
            "permission error",
            format!("RBAC rules for client \"{client}\" role \"{}\" prohibit {what}", self.name),
        )
    }

    /// The permissions of the role for the table `name`.
    fn permissions<'d>(&self, database: &'d Database, roles: usize, name: &str) -> Option<Permissions<'d>> {
        let schema = database.schema();
        let role_schema = schema.tables().get(roles)?;
        let role = database.rows(roles).find(|row| string(role_schema, row, "name") == Some(self.name))?;
        let column = role_schema.column("permissions")?;
        let target = column.kind.value.as_ref()?.ref_table()?;
        let table = schema.table_index(target)?;
        let uuid = datum(role_schema, role, "permissions")?.get(&name.into())?.as_uuid()?;
        Some(Permissions { schema: schema.tables().get(table)?, row: database.row(table, uuid)? })
    }
}

/// A row with permissions.
struct Permissions<'a> {
    schema: &'a TableSchema,
    row: &'a Row,
}

impl Permissions<'_> {
    /// Returns true if the operation is allowed on rows that the client owns.
    fn allow(&self, verb: Verb, table: &TableSchema, mut columns: impl Iterator<Item = usize>) -> bool {
        match verb {
            Verb::Insert | Verb::Delete => {
                datum(self.schema, self.row, "insert_delete").and_then(Datum::as_bool).unwrap_or(false)
            }
            Verb::Update | Verb::Mutate => {
                let names = strings(self.schema, self.row, "update");
                columns.all(|index| {
                    let column = table.columns().get(index);
                    column.is_some_and(|column| {
                        names.is_some_and(|names| names.contains_key(&column.name.as_str().into()))
                    })
                })
            }
        }
    }

    /// Returns true if the client owns a row: a column, or a key of a map, contains its name. The empty column name
    /// stands for all clients.
    fn own(&self, client: &str, table: &TableSchema, row: &Row) -> bool {
        let names = strings(self.schema, self.row, "authorization");
        let mut names = names.into_iter().flat_map(|names| names.keys().iter().filter_map(|name| name.as_str()));
        names.any(|name| {
            let mut parts = name.split(':').filter(|part| !part.is_empty());
            let owner = match (name.contains(':'), parts.next(), parts.next()) {
                (false, None, _) => return true,
                (false, Some(column), _) => string(table, row, column),
                (true, Some(column), Some(key)) => map(table, row, column).and_then(|map| map.get_str(key)),
                (true, ..) => None,
            };
            owner == Some(client)
        })
    }
}

fn datum<'a>(schema: &TableSchema, row: &'a Row, name: &str) -> Option<&'a Datum> {
    row.column(schema.column_index(name)?)
}

/// The contents of a column that holds at most one string.
fn string<'a>(schema: &TableSchema, row: &'a Row, name: &str) -> Option<&'a str> {
    let kind = &schema.column(name)?.kind;
    datum(schema, row, name).filter(|_| kind.max == 1 && !kind.is_map()).and_then(Datum::as_str)
}

/// The contents of a column that holds any number of strings.
fn strings<'a>(schema: &TableSchema, row: &'a Row, name: &str) -> Option<&'a Datum> {
    let kind = &schema.column(name)?.kind;
    datum(schema, row, name).filter(|_| kind.key.kind == AtomType::String && !kind.is_map())
}

/// The contents of a column that holds any number of pairs of strings.
fn map<'a>(schema: &TableSchema, row: &'a Row, name: &str) -> Option<&'a Datum> {
    let kind = &schema.column(name)?.kind;
    let is_strings = |value: &ovsdb::BaseType| value.kind == AtomType::String;
    datum(schema, row, name).filter(|_| is_strings(&kind.key) && kind.value.as_ref().is_some_and(is_strings))
}
