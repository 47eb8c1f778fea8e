//! The `mutate` operation's `[column, mutator, value]` (RFC 7047 section 5.1, `<mutation>`).

use serde_json::Value;

use crate::atom::Atom;
use crate::datum::Datum;
use crate::error::{Error, Result};
use crate::json::SymbolTable;
use crate::schema::{ColumnSchema, TableSchema};
use crate::types::{AtomType, BaseType, ColumnType, UNLIMITED};

/// A `<mutator>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutator {
    /// `+=`
    Add,
    /// `-=`
    Subtract,
    /// `*=`
    Multiply,
    /// `/=`
    Divide,
    /// `%=`
    Remainder,
    /// `insert`
    Insert,
    /// `delete`
    Delete,
}

impl Mutator {
    const ALL: [(Mutator, &'static str); 7] = [
        (Mutator::Add, "+="),
        (Mutator::Subtract, "-="),
        (Mutator::Multiply, "*="),
        (Mutator::Divide, "/="),
        (Mutator::Remainder, "%="),
        (Mutator::Insert, "insert"),
        (Mutator::Delete, "delete"),
    ];

    /// The mutator's name in JSON.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(mutator, _)| *mutator == self).map_or("", |(_, name)| name)
    }
}

/// One mutation.
#[derive(Debug, Clone, PartialEq)]
pub struct Mutation {
    /// Index of the column in its table.
    pub column: usize,
    /// The operator.
    pub mutator: Mutator,
    /// Its argument.
    pub argument: Datum,
}

impl Mutation {
    /// Reads an array of mutations of rows of `table`.
    pub fn list_from_json(json: &Value, table: &TableSchema, symbols: &mut dyn SymbolTable) -> Result<Vec<Self>> {
        let expected = || Error::syntax(json, "array expected");
        let list = json.as_array().ok_or_else(expected)?;
        list.iter().map(|mutation| Self::from_json(mutation, table, symbols)).collect()
    }

    fn from_json(json: &Value, table: &TableSchema, symbols: &mut dyn SymbolTable) -> Result<Self> {
        let Some([Value::String(column_name), Value::String(mutator_name), argument]) =
            json.as_array().map(Vec::as_slice)
        else {
            return Err(Error::syntax(json, "Parse error in mutation."));
        };
        let Some((at, column)) = table.column_index(column_name).and_then(|at| Some((at, table.columns().get(at)?)))
        else {
            let details = format!("No column {column_name} in table {}.", table.name);
            return Err(Error::syntax_tagged(json, "unknown column", details));
        };
        if !column.mutable {
            let details = format!("Cannot mutate immutable column {column_name} in table {}.", table.name);
            return Err(Error::syntax_tagged(json, "constraint violation", details));
        }
        let Some(&(mutator, _)) = Mutator::ALL.iter().find(|(_, name)| name == mutator_name) else {
            let details = format!("No mutator named {mutator_name}.");
            return Err(Error::new("unknown mutator", details));
        };
        let argument = argument_from_json(json, argument, column, mutator, symbols)?;
        Ok(Self { column: at, mutator, argument })
    }

    /// The value that the column has after this mutation of `old`.
    pub fn apply(&self, old: &Datum, column: &ColumnSchema) -> Result<Datum> {
        let kind = &column.kind;
        let mut new = match self.mutator {
            Mutator::Insert => {
                let mut new = old.clone();
                new.union(&self.argument);
                new
            }
            Mutator::Delete => {
                let mut new = old.clone();
                new.subtract(&self.argument);
                new
            }
            _ => return self.calculate(old, kind),
        };
        // An insert of an absent argument leaves a value as it was, so only real changes are checked.
        if new.len() < kind.min as usize || new.len() > kind.max as usize {
            return Err(Error::constraint(format!("Attempted to store {} elements in {kind}.", new.len())));
        }
        if self.mutator == Mutator::Insert && new.len() == old.len() {
            new = old.clone();
        }
        Ok(new)
    }

    fn calculate(&self, old: &Datum, kind: &ColumnType) -> Result<Datum> {
        let Some(operand) = self.argument.first() else {
            return Ok(old.clone());
        };
        let changed = old.try_map_keys(|atom| {
            let result = calculate(atom, self.mutator, operand)?;
            kind.key.check(&result)?;
            Ok(result)
        })?;
        changed.ok_or_else(|| {
            let details = format!("Result of \"{}\" operation contains duplicates.", self.mutator.name());
            Error::constraint(details)
        })
    }
}

/// Reads the argument of a mutation, whose type depends on the mutator.
fn argument_from_json(
    json: &Value,
    argument: &Value,
    column: &ColumnSchema,
    mutator: Mutator,
    symbols: &mut dyn SymbolTable,
) -> Result<Datum> {
    let kind = &column.kind;
    let mismatch = || {
        let details = format!(
            "Type mismatch: \"{}\" operator may not be applied to column {} of type {kind}.",
            mutator.name(),
            column.name
        );
        Error::syntax(json, details)
    };
    match mutator {
        Mutator::Insert | Mutator::Delete => {
            if kind.is_scalar() {
                return Err(mismatch());
            }
            let mut wanted = kind.clone();
            wanted.min = 0;
            if mutator == Mutator::Insert {
                return Datum::from_json(argument, &wanted, symbols);
            }
            wanted.max = UNLIMITED;
            // Deletions from a map may name whole pairs, or keys with any value.
            let read = Datum::from_json(argument, &wanted, symbols);
            match read {
                Err(_) if kind.is_map() => {
                    wanted.value = None;
                    Datum::from_json(argument, &wanted, symbols)
                }
                read => read,
            }
        }
        _ => {
            let arithmetic = match kind.key.kind {
                AtomType::Integer => true,
                AtomType::Real => mutator != Mutator::Remainder,
                _ => false,
            };
            if kind.is_map() || !arithmetic {
                return Err(mismatch());
            }
            let operand = ColumnType::scalar(BaseType::new(kind.key.kind));
            Datum::from_json(argument, &operand, symbols)
        }
    }
}

fn calculate(atom: &Atom, mutator: Mutator, operand: &Atom) -> Result<Atom> {
    let domain = || Error::bare("domain error").with_details("Division by zero.");
    let range = || Error::new("range error", format!("Result of \"{}\" operation is out of range.", mutator.name()));
    match (atom, operand) {
        (&Atom::Integer(a), &Atom::Integer(b)) => {
            if b == 0 && matches!(mutator, Mutator::Divide | Mutator::Remainder) {
                return Err(domain());
            }
            let result = match mutator {
                Mutator::Add => a.checked_add(b),
                Mutator::Subtract => a.checked_sub(b),
                Mutator::Multiply => a.checked_mul(b),
                Mutator::Divide => a.checked_div(b),
                _ => a.checked_rem(b),
            };
            result.map(Atom::Integer).ok_or_else(range)
        }
        (&Atom::Real(a), &Atom::Real(b)) => {
            if b == 0.0 && mutator == Mutator::Divide {
                return Err(domain());
            }
            let result = match mutator {
                Mutator::Add => a + b,
                Mutator::Subtract => a - b,
                Mutator::Multiply => a * b,
                _ => a / b,
            };
            if result.is_finite() { Ok(Atom::Real(result)) } else { Err(range()) }
        }
        _ => Ok(atom.clone()),
    }
}
