//! Which rows of a table are replicated: any row for which one of some clauses holds (`monitor_cond`,
//! ovsdb-server(7)).

use ovsdb::condition::{self, Function};
use ovsdb::{Datum, NoSymbols, TableSchema};
use serde_json::{Value, json};

/// A comparison of a column with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clause {
    column: String,
    function: Function,
    argument: Datum,
}

impl Clause {
    /// `column function argument`.
    pub fn new(column: &str, function: Function, argument: impl Into<Datum>) -> Self {
        Self { column: column.to_owned(), function, argument: argument.into() }
    }
}

/// Which rows of a table are replicated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Condition {
    /// All rows.
    #[default]
    All,
    /// Rows for which one of these clauses holds; none, if there are no clauses.
    AnyOf(Vec<Clause>),
}

impl Condition {
    /// No rows.
    pub fn none() -> Self {
        Self::AnyOf(Vec::new())
    }

    /// The condition in the server's format. The error describes a conflict with the server's schema.
    pub(crate) fn to_json(&self, table: &TableSchema) -> Result<Value, String> {
        let clauses = match self {
            Condition::All => return Ok(json!([true])),
            Condition::AnyOf(clauses) if clauses.is_empty() => return Ok(json!([false])),
            Condition::AnyOf(clauses) => clauses,
        };
        let resolved = clauses.iter().map(|clause| {
            let Clause { column, function, argument } = clause;
            let index = table.column_index(column).ok_or_else(|| format!("there is no column {column}"))?;
            Ok(condition::Clause::Compare { column: index, function: *function, argument: argument.clone() })
        });
        let resolved = condition::Condition::from_clauses(resolved.collect::<Result<_, String>>()?);
        let json = resolved.to_json(table);
        match condition::Condition::from_json(&json, table, &mut NoSymbols) {
            Ok(_) => Ok(json),
            Err(error) => Err(error.to_string()),
        }
    }
}
