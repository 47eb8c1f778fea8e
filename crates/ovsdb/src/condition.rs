//! Clauses of a `where` member: `[column, function, value]` (RFC 7047 section 5.1, `<condition>`), and the extension
//! that a clause may be a truth value.

use serde_json::Value;

use crate::datum::Datum;
use crate::error::{Error, Result};
use crate::json::SymbolTable;
use crate::schema::TableSchema;
use crate::types::{AtomType, ColumnType};

/// A `<function>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `>=`
    GreaterOrEqual,
    /// `>`
    Greater,
    /// `includes`
    Includes,
    /// `excludes`
    Excludes,
}

impl Function {
    const ALL: [(Function, &'static str); 8] = [
        (Function::Less, "<"),
        (Function::LessOrEqual, "<="),
        (Function::Equal, "=="),
        (Function::NotEqual, "!="),
        (Function::GreaterOrEqual, ">="),
        (Function::Greater, ">"),
        (Function::Includes, "includes"),
        (Function::Excludes, "excludes"),
    ];

    /// The function's name in JSON.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(function, _)| *function == self).map_or("", |(_, name)| name)
    }

    fn from_json(json: &Value) -> Result<Self> {
        let name = json.as_str().unwrap_or_default();
        let found = Self::ALL.iter().find(|(_, known)| *known == name);
        found
            .map(|(function, _)| *function)
            .ok_or_else(|| Error::new("unknown function", format!("No function named {name}.")))
    }
}

/// One clause.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Clause {
    /// A truth value, for every row alike.
    Constant(bool),
    /// A comparison.
    Compare {
        /// Index of the column in its table.
        column: usize,
        /// The function.
        function: Function,
        /// The value compared with.
        argument: Datum,
    },
}

/// A `where` member: all clauses must hold for a row to match (in operations), or any of them (in monitors).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Condition {
    clauses: Vec<Clause>,
}

impl Condition {
    /// The condition that every row meets.
    pub fn always() -> Self {
        Self::default()
    }

    /// Reads an array of clauses about rows of `table`.
    pub fn from_json(json: &Value, table: &TableSchema, symbols: &mut dyn SymbolTable) -> Result<Self> {
        let expected = || Error::syntax(json, "array expected");
        let clauses = json.as_array().ok_or_else(expected)?;
        let clauses = clauses.iter().map(|clause| Clause::from_json(clause, table, symbols)).collect::<Result<_>>()?;
        Ok(Self { clauses })
    }

    /// The condition with these clauses.
    pub fn from_clauses(clauses: Vec<Clause>) -> Self {
        Self { clauses }
    }

    /// The clauses.
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses
    }

    /// The indexes of the columns that the clauses are about.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        self.clauses.iter().filter_map(|clause| match clause {
            Clause::Constant(_) => None,
            Clause::Compare { column, .. } => Some(*column),
        })
    }

    /// Returns true if every clause holds for a row whose columns are `column(index)`.
    pub fn matches_all<'a>(&self, table: &TableSchema, column: impl Fn(usize) -> Option<&'a Datum>) -> bool {
        self.clauses.iter().all(|clause| clause.holds(table, &column))
    }

    /// Whether some clause holds, or there are none, as conditions of monitors are read.
    pub fn matches_any<'a>(&self, table: &TableSchema, column: impl Fn(usize) -> Option<&'a Datum>) -> bool {
        self.clauses.is_empty() || self.clauses.iter().any(|clause| clause.holds(table, &column))
    }

    /// The UUID that `_uuid` must equal, if the condition requires one: such a row is found without a search.
    pub fn required_uuid(&self) -> Option<crate::uuid::Uuid> {
        self.clauses.iter().find_map(|clause| match clause {
            Clause::Compare { column: crate::schema::UUID_COLUMN, function: Function::Equal, argument } => {
                argument.as_uuid()
            }
            _ => None,
        })
    }

    /// The condition as JSON.
    pub fn to_json(&self, table: &TableSchema) -> Value {
        self.clauses.iter().filter_map(|clause| clause.to_json(table)).collect()
    }
}

impl Clause {
    fn from_json(json: &Value, table: &TableSchema, symbols: &mut dyn SymbolTable) -> Result<Self> {
        if let Some(constant) = json.as_bool() {
            return Ok(Clause::Constant(constant));
        }
        let Some([Value::String(name), function @ Value::String(_), argument]) = json.as_array().map(Vec::as_slice)
        else {
            return Err(Error::syntax(json, "Parse error in condition."));
        };
        let Some((column, schema)) = table.column_index(name).and_then(|at| Some((at, table.columns().get(at)?)))
        else {
            let details = format!("No column {name} in table {}.", table.name);
            return Err(Error::syntax_tagged(json, "unknown column", details));
        };
        let function = Function::from_json(function)?;
        let mut kind = schema.kind.clone();
        match function {
            Function::Equal | Function::NotEqual => {}
            Function::Includes => {
                if kind.is_scalar() {
                    // An argument of a single value has the same meaning as `==`.
                } else {
                    kind.min = 0;
                }
            }
            Function::Excludes => {
                if !kind.is_scalar() {
                    kind.min = 0;
                    kind.max = crate::types::UNLIMITED;
                }
            }
            _ => {
                let ordered = matches!(kind.key.kind, AtomType::Integer | AtomType::Real);
                if !ordered || !(kind.is_scalar() || kind.is_optional_scalar()) {
                    let details = format!(
                        "Type mismatch: \"{}\" operator may not be applied to column {name} of type {kind}.",
                        function.name()
                    );
                    return Err(Error::syntax(json, details));
                }
                kind.min = 1;
            }
        }
        let argument = Datum::from_json(argument, &kind, symbols)?;
        Ok(Clause::Compare { column, function, argument })
    }

    /// Returns true if the clause holds for a row whose columns are `column(index)`.
    pub fn holds<'a>(&self, table: &TableSchema, column: &impl Fn(usize) -> Option<&'a Datum>) -> bool {
        let (at, function, argument) = match self {
            Clause::Constant(value) => return *value,
            Clause::Compare { column, function, argument } => (*column, *function, argument),
        };
        let (Some(schema), Some(value)) = (table.columns().get(at), column(at)) else {
            return false;
        };
        compare(value, function, argument, &schema.kind)
    }

    fn to_json(&self, table: &TableSchema) -> Option<Value> {
        match self {
            Clause::Constant(value) => Some(Value::from(*value)),
            Clause::Compare { column, function, argument } => {
                let schema = table.columns().get(*column)?;
                Some(Value::from(vec![
                    Value::from(schema.name.as_str()),
                    Value::from(function.name()),
                    argument.to_json(&schema.kind),
                ]))
            }
        }
    }
}

/// Applies `function` to a column's value and an argument. A comparison of order with an empty optional is false.
pub fn compare(value: &Datum, function: Function, argument: &Datum, _kind: &ColumnType) -> bool {
    let order = || value.first().zip(argument.first()).map(|(a, b)| a.cmp(b));
    match function {
        Function::Equal => value == argument,
        Function::NotEqual => value != argument,
        Function::Includes => value.includes_all(argument),
        Function::Excludes => value.excludes_all(argument),
        Function::Less => order().is_some_and(|o| o.is_lt()),
        Function::LessOrEqual => order().is_some_and(|o| o.is_le()),
        Function::GreaterOrEqual => order().is_some_and(|o| o.is_ge()),
        Function::Greater => order().is_some_and(|o| o.is_gt()),
    }
}
