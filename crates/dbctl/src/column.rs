//! Arguments of the form `COLUMN[:KEY]OPERATOR VALUE`, and conditions on rows.

use ovsdb::text::{TextError, parse_atom, parse_datum, take_token};
use ovsdb::{Atom, ColumnSchema, Datum, SymbolTable, TableSchema};

use crate::Failure;
use crate::names;

/// A column, optionally with a key, and the rest of the argument.
#[derive(Debug)]
pub(crate) struct Reference<'a> {
    pub(crate) column: &'a ColumnSchema,
    /// As typed, still quoted.
    pub(crate) key: Option<&'a str>,
    /// The argument's text from the operator on.
    rest: &'a str,
}

/// Parses `COLUMN[:KEY]...`.
fn reference<'a>(table: &'a TableSchema, arg: &'a str) -> Result<Reference<'a>, Failure> {
    let (name, rest) = take_token(arg)?;
    if name.is_empty() {
        return Err(Failure::fatal(format!("{arg}: missing column name")));
    }
    let column = names::column(table, name)?;
    let Some(after) = rest.strip_prefix(':') else {
        return Ok(Reference { column, key: None, rest });
    };
    let (key, rest) = take_token(after)?;
    Ok(Reference { column, key: Some(key), rest })
}

/// Parses `COLUMN[:KEY]` with nothing after it.
pub(crate) fn column_key<'a>(table: &'a TableSchema, arg: &'a str) -> Result<Reference<'a>, Failure> {
    let found = reference(table, arg)?;
    if !found.rest.is_empty() {
        return Err(Failure::fatal(format!("{arg}: trailing garbage \"{}\" in argument", found.rest)));
    }
    Ok(found)
}

/// Parses `COLUMN[:KEY]=VALUE`.
pub(crate) fn column_key_value<'a>(table: &'a TableSchema, arg: &'a str) -> Result<(Reference<'a>, &'a str), Failure> {
    let found = reference(table, arg)?;
    match found.rest.strip_prefix('=') {
        Some(value) if !value.is_empty() => Ok((found, value)),
        _ => Err(Failure::fatal(format!("{arg}: argument does not end in \"=\" followed by a value."))),
    }
}

/// The comparison of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    Greater,
    LessEqual,
    GreaterEqual,
    SetEqual,
    SetNotEqual,
    SetLess,
    SetGreater,
    SetLessEqual,
    SetGreaterEqual,
    NotIn,
}

/// The operators as typed; an operator precedes its own prefixes.
const OPERATORS: &[(&str, Operator)] = &[
    ("{not-in}", Operator::NotIn),
    ("{!=}", Operator::SetNotEqual),
    ("{<=}", Operator::SetLessEqual),
    ("{>=}", Operator::SetGreaterEqual),
    ("{in}", Operator::SetLessEqual),
    ("{=}", Operator::SetEqual),
    ("{<}", Operator::SetLess),
    ("{>}", Operator::SetGreater),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessEqual),
    (">=", Operator::GreaterEqual),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// The list of operators in the error for a missing one.
const OPERATOR_LIST: &str = "\"=\", \"!=\", \"<\", \">\", \"<=\", \">=\", \"{=}\", \"{!=}\", \"{<}\", \"{>}\", \
                             \"{<=}\", \"{>=}\", \"{in}\", or \"{not-in}\"";

impl Operator {
    /// Returns true if it compares sets, so that a missing key is an empty set.
    fn is_for_sets(self) -> bool {
        matches!(
            self,
            Operator::SetEqual
                | Operator::SetNotEqual
                | Operator::SetLess
                | Operator::SetGreater
                | Operator::SetLessEqual
                | Operator::SetGreaterEqual
                | Operator::NotIn
        )
    }

    fn holds(self, have: &Datum, want: &Datum) -> bool {
        let order = || have.len().cmp(&want.len()).then_with(|| have.cmp(want));
        match self {
            Operator::Equal | Operator::SetEqual => have == want,
            Operator::NotEqual | Operator::SetNotEqual => have != want,
            Operator::Less => order().is_lt(),
            Operator::Greater => order().is_gt(),
            Operator::LessEqual => order().is_le(),
            Operator::GreaterEqual => order().is_ge(),
            Operator::SetLess => have.len() < want.len() && want.includes_all(have),
            Operator::SetGreater => have.len() > want.len() && have.includes_all(want),
            Operator::SetLessEqual => want.includes_all(have),
            Operator::SetGreaterEqual => have.includes_all(want),
            Operator::NotIn => want.excludes_all(have),
        }
    }
}

/// `COLUMN[:KEY]OPERATOR VALUE`.
#[derive(Debug)]
pub(crate) struct Condition<'a> {
    pub(crate) column: &'a ColumnSchema,
    key: Option<Atom>,
    operator: Operator,
    value: Datum,
}

/// Parses a condition.
pub(crate) fn condition<'a>(
    table: &'a TableSchema,
    arg: &'a str,
    symbols: &mut dyn SymbolTable,
) -> Result<Condition<'a>, Failure> {
    let found = reference(table, arg)?;
    let operator = OPERATORS.iter().find_map(|(text, operator)| Some((*operator, found.rest.strip_prefix(text)?)));
    let Some((operator, value)) = operator.filter(|(_, value)| !value.is_empty()) else {
        return Err(Failure::fatal(format!("{arg}: argument does not end in {OPERATOR_LIST} followed by a value.")));
    };
    let column = found.column;
    let Some(key) = found.key else {
        let value = parse_datum(value, &column.kind, symbols)?;
        return Ok(Condition { column, key: None, operator, value });
    };
    let Some(base) = &column.kind.value else {
        return Err(Failure::fatal(format!("cannot specify key to check for non-map column {}", column.name)));
    };
    let key = parse_atom(key, &column.kind.key, symbols)?;
    let many = operator.is_for_sets();
    let kind = ovsdb::ColumnType::set(base.clone(), u32::from(!many), if many { ovsdb::types::UNLIMITED } else { 1 });
    let value =
        if many { parse_datum(value, &kind, symbols)? } else { Datum::scalar(parse_atom(value, base, symbols)?) };
    Ok(Condition { column, key: Some(key), operator, value })
}

impl Condition<'_> {
    /// Returns true if a row satisfies the condition; `have` is the value of its column.
    pub(crate) fn holds(&self, have: &Datum) -> bool {
        let Some(key) = &self.key else { return self.operator.holds(have, &self.value) };
        match have.get(key) {
            Some(value) => self.operator.holds(&Datum::scalar(value.clone()), &self.value),
            None => self.operator.is_for_sets() && self.operator.holds(&Datum::empty(), &self.value),
        }
    }
}

/// Checks a condition's column alone, before there is a database.
pub(crate) fn condition_column<'a>(table: &'a TableSchema, arg: &'a str) -> Result<&'a ColumnSchema, Failure> {
    Ok(reference(table, arg)?.column)
}

/// Splits the value of `--columns`.
pub(crate) fn column_list(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ' ']).filter(|name| !name.is_empty())
}

/// Parses each argument as a datum of the column's type with any number of elements, and returns all elements.
pub(crate) fn elements(
    kind: &ovsdb::ColumnType,
    args: &[String],
    symbols: &mut dyn SymbolTable,
) -> Result<Datum, TextError> {
    let mut all = Datum::empty();
    for arg in args {
        all.union(&parse_datum(arg, kind, symbols)?);
    }
    Ok(all)
}
