//! Helpers for reading the JSON notation of RFC 7047 section 5: identifiers, integers, objects member by member, and
//! the table of names that `["named-uuid", NAME]` refers to.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::text::format_real;
use crate::types::RefType;
use crate::uuid::{Uuid, UuidSource};

/// Whether `text` is an `<id>`: a letter or `_`, then letters, digits and `_`.
pub fn is_id(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_')
        && bytes.all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// The integer that `json` represents; `1.0` and `1e3` count as integers, as in Open vSwitch.
pub fn as_integer(json: &Value) -> Option<i64> {
    if let Some(number) = json.as_i64() {
        return Some(number);
    }
    let real = json.as_f64()?;
    // Above 2^53 a double does not identify one integer, so only smaller ones are accepted.
    (!json.is_u64() && real.fract() == 0.0 && real.abs() <= 9_007_199_254_740_992.0).then_some(real as i64)
}

/// The name of a JSON value's kind.
pub fn kind_name(json: &Value) -> &'static str {
    match json {
        Value::Null => "null",
        Value::Bool(false) => "false",
        Value::Bool(true) => "true",
        Value::Number(number) if number.is_f64() => "real",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The JSON text with the members of objects sorted by name, which is how error messages quote JSON.
pub fn canonical(json: &Value) -> String {
    match json {
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort_unstable();
            let member = |name: &&String| {
                let value = members.get(name.as_str()).unwrap_or(&Value::Null);
                format!("{}:{}", Value::from(name.as_str()), canonical(value))
            };
            format!("{{{}}}", names.iter().map(member).collect::<Vec<_>>().join(","))
        }
        Value::Array(elements) => {
            format!("[{}]", elements.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        Value::Number(number) if !number.is_i64() => number_text(number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}

/// A number that is not written as an integer: as one if it is one, else with the digits that are meant.
fn number_text(number: f64) -> String {
    // Up to here a whole number fits into 64 bits.
    if number.fract() == 0.0 && number.abs() < 9.2e18 { (number as i64).to_string() } else { format_real(number) }
}

/// Which kinds of JSON values a member may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonType {
    /// An object.
    Object,
    /// An array.
    Array,
    /// A string.
    String,
    /// A string that is an `<id>`.
    Id,
    /// `true` or `false`.
    Boolean,
    /// An integer.
    Integer,
    /// Any number.
    Number,
    /// A string or an object.
    StringOrObject,
    /// An integer or a string.
    IntegerOrString,
    /// An array or an object.
    ArrayOrObject,
    /// Any value.
    Any,
}

impl JsonType {
    fn accepts(self, json: &Value) -> bool {
        match self {
            JsonType::Object => json.is_object(),
            JsonType::Array => json.is_array(),
            JsonType::String => json.is_string(),
            JsonType::Id => json.as_str().is_some_and(is_id),
            JsonType::Boolean => json.is_boolean(),
            JsonType::Integer => as_integer(json).is_some(),
            JsonType::Number => json.is_number(),
            JsonType::StringOrObject => json.is_string() || json.is_object(),
            JsonType::IntegerOrString => json.is_string() || as_integer(json).is_some(),
            JsonType::ArrayOrObject => json.is_array() || json.is_object(),
            JsonType::Any => true,
        }
    }
}

/// Parses the members of a JSON object; [`ObjectParser::finish`] reports the first error, or unknown members.
#[derive(Debug)]
pub struct ObjectParser<'a> {
    what: String,
    json: &'a Value,
    members: Option<&'a Map<String, Value>>,
    used: HashSet<&'a str>,
    error: Option<Error>,
}

impl<'a> ObjectParser<'a> {
    /// Begins to parse `json`, which error messages call `what`.
    pub fn new(json: &'a Value, what: impl Into<String>) -> Self {
        let mut parser = Self { what: what.into(), json, members: json.as_object(), used: HashSet::new(), error: None };
        if parser.members.is_none() {
            parser.fail("Object expected.");
        }
        parser
    }

    /// Records an error, unless there is one already.
    pub fn fail(&mut self, details: &str) {
        if self.error.is_none() {
            let details = format!("Parsing {} failed: {details}", self.what);
            self.error = Some(match self.members {
                Some(_) => Error::syntax(self.json, details),
                None => Error::new("syntax error", details),
            });
        }
    }

    /// Records an error that was found in a member's value, unless there is one already.
    pub fn raise(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// Whether an error was recorded.
    pub fn has_error(&self) -> bool {
        self.error.is_some()
    }

    /// The error recorded so far.
    pub fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// The member `name`, which must be there.
    pub fn required(&mut self, name: &str, kind: JsonType) -> Option<&'a Value> {
        let value = self.member(name, kind);
        if value.is_none() && !self.has_member(name) {
            self.fail(&format!("Required '{name}' member is missing."));
        }
        value
    }

    /// Returns the member `name`, if it exists.
    pub fn optional(&mut self, name: &str, kind: JsonType) -> Option<&'a Value> {
        self.member(name, kind)
    }

    fn has_member(&self, name: &str) -> bool {
        self.members.is_some_and(|members| members.contains_key(name))
    }

    fn member(&mut self, name: &str, kind: JsonType) -> Option<&'a Value> {
        let (key, value) = self.members?.get_key_value(name)?;
        self.used.insert(key.as_str());
        if kind.accepts(value) {
            return Some(value);
        }
        self.fail(&format!("Type mismatch for member '{name}'."));
        None
    }

    /// Ends the parsing: returns the first error, or an error if unknown members remain.
    pub fn finish(mut self) -> Result<()> {
        if self.error.is_none()
            && let Some(members) = self.members
        {
            let unused: Vec<&String> = members.keys().filter(|name| !self.used.contains(name.as_str())).collect();
            match unused.as_slice() {
                [] => {}
                [only] => self.fail(&format!("Member '{only}' is present but not allowed here.")),
                [first, others @ ..] => {
                    let plural = if others.len() == 1 { "" } else { "s" };
                    self.fail(&format!(
                        "Member '{first}' and {} other member{plural} are present but not allowed here.",
                        others.len()
                    ));
                }
            }
        }
        self.error.map_or(Ok(()), Err)
    }
}

/// Resolves the NAME of `["named-uuid", NAME]` (or of `@NAME` in text) to a UUID.
pub trait SymbolTable {
    /// Whether names may be used at all.
    fn accepts_names(&self) -> bool;

    /// Returns the UUID for `name`, generated at its first use. `is_reference` says whether the column that uses it
    /// refers to a table, and `kind` how.
    fn resolve(&mut self, name: &str, kind: RefType, is_reference: bool) -> Uuid;
}

/// A table for places where names are not allowed.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSymbols;

impl SymbolTable for NoSymbols {
    fn accepts_names(&self) -> bool {
        false
    }

    fn resolve(&mut self, _name: &str, _kind: RefType, _is_reference: bool) -> Uuid {
        Uuid::ZERO
    }
}

/// The definition of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// The UUID for the name.
    pub uuid: Uuid,
    /// Whether an insert operation has assigned this name to its row.
    pub created: bool,
    /// Whether a strong reference uses it.
    pub strong_reference: bool,
    /// Whether a weak reference uses it.
    pub weak_reference: bool,
}

/// The names used in one transaction.
#[derive(Debug, Clone)]
pub struct Symbols {
    names: BTreeMap<String, Symbol>,
    source: UuidSource,
}

impl Symbols {
    /// An empty table that takes new UUIDs from `source`.
    pub fn new(source: UuidSource) -> Self {
        Self { names: BTreeMap::new(), source }
    }

    /// Returns the entry of `name`, creating it if needed.
    pub fn entry(&mut self, name: &str) -> &mut Symbol {
        if !self.names.contains_key(name) {
            let uuid = self.source.next_uuid();
            let symbol = Symbol { uuid, created: false, strong_reference: false, weak_reference: false };
            self.names.insert(name.to_owned(), symbol);
        }
        self.names.get_mut(name).expect("inserted above if it was missing")
    }

    /// The entry of `name`, if the name was used.
    pub fn get(&self, name: &str) -> Option<&Symbol> {
        self.names.get(name)
    }

    /// All names used, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Symbol)> {
        self.names.iter().map(|(name, symbol)| (name.as_str(), symbol))
    }
}

impl SymbolTable for Symbols {
    fn accepts_names(&self) -> bool {
        true
    }

    fn resolve(&mut self, name: &str, kind: RefType, is_reference: bool) -> Uuid {
        let symbol = self.entry(name);
        if is_reference {
            match kind {
                RefType::Strong => symbol.strong_reference = true,
                RefType::Weak => symbol.weak_reference = true,
            }
        }
        symbol.uuid
    }
}
