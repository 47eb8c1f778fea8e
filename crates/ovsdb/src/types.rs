//! The types of columns: atomic types, base types with their constraints, and the `<type>` of RFC 7047 section 3.2.

use std::fmt;

use serde_json::{Map, Value};

use crate::atom::Atom;
use crate::datum::Datum;
use crate::error::{Error, Result};
use crate::json::{JsonType, NoSymbols, ObjectParser, as_integer, is_id};
use crate::text;

/// The number of elements that stands for "unlimited".
pub const UNLIMITED: u32 = u32::MAX;

/// An `<atomic-type>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AtomType {
    /// A signed 64-bit integer.
    Integer,
    /// A double.
    Real,
    /// `true` or `false`.
    Boolean,
    /// Text.
    String,
    /// A UUID, perhaps a reference to a row.
    Uuid,
}

impl AtomType {
    /// The name in schemas and messages.
    pub fn name(self) -> &'static str {
        match self {
            AtomType::Integer => "integer",
            AtomType::Real => "real",
            AtomType::Boolean => "boolean",
            AtomType::String => "string",
            AtomType::Uuid => "uuid",
        }
    }

    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [AtomType::Integer, AtomType::Real, AtomType::Boolean, AtomType::String, AtomType::Uuid]
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    fn from_json(json: &Value) -> Result<Self> {
        let Some(name) = json.as_str() else {
            return Err(Error::syntax(json, "atomic-type expected"));
        };
        Self::from_name(name).ok_or_else(|| Error::syntax(json, format!("\"{name}\" is not an atomic-type")))
    }
}

/// How a reference binds the row that it names (RFC 7047 section 3.2, "refType").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefType {
    /// The row must exist, and cannot be deleted while it is referred to.
    Strong,
    /// The reference vanishes when the row does.
    Weak,
}

/// Bounds on the values of a base type.
#[derive(Debug, Clone, PartialEq)]
pub enum Constraint {
    /// None.
    None,
    /// An inclusive range of integers.
    Integer {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
    },
    /// An inclusive range of reals.
    Real {
        /// Least value.
        min: f64,
        /// Greatest value.
        max: f64,
    },
    /// An inclusive range of lengths in characters.
    String {
        /// Shortest length.
        min_length: u32,
        /// Greatest length.
        max_length: u32,
    },
    /// The UUID is the one of a row of `table`.
    Reference {
        /// Name of the table referred to.
        table: String,
        /// How it is referred to.
        kind: RefType,
    },
}

/// A `<base-type>`: an atomic type and its constraints.
#[derive(Debug, Clone, PartialEq)]
pub struct BaseType {
    /// The atomic type.
    pub kind: AtomType,
    /// The only values allowed, if they are enumerated.
    pub allowed: Option<Datum>,
    /// Bounds on the values.
    pub constraint: Constraint,
}

impl BaseType {
    /// A base type without constraints.
    pub const fn new(kind: AtomType) -> Self {
        Self { kind, allowed: None, constraint: Constraint::None }
    }

    /// The table that values refer to, if they are references.
    pub fn ref_table(&self) -> Option<&str> {
        if let Constraint::Reference { table, .. } = &self.constraint { Some(table) } else { None }
    }

    /// How values refer to [`BaseType::ref_table`]; strong if they do not.
    pub fn ref_type(&self) -> RefType {
        if let Constraint::Reference { kind, .. } = &self.constraint { *kind } else { RefType::Strong }
    }

    /// Whether values are strong references to rows.
    pub fn is_strong_ref(&self) -> bool {
        self.ref_table().is_some() && self.ref_type() == RefType::Strong
    }

    /// Whether values are weak references to rows.
    pub fn is_weak_ref(&self) -> bool {
        self.ref_table().is_some() && self.ref_type() == RefType::Weak
    }

    /// Checks the constraints on `atom`; the existence of rows referred to is not checked here.
    pub fn check(&self, atom: &Atom) -> Result<()> {
        if let Some(allowed) = &self.allowed
            && !allowed.contains_key(atom)
        {
            let enumeration = ColumnType::set(BaseType::new(self.kind), 1, UNLIMITED);
            return Err(Error::constraint(format!(
                "{} is not one of the allowed values ({})",
                text::format_atom(atom),
                text::format_datum(allowed, &enumeration)
            )));
        }
        match (&self.constraint, atom) {
            (&Constraint::Integer { min, max }, Atom::Integer(value)) => {
                let unbounded = (min == i64::MIN, max == i64::MAX);
                check_range(value, min, max, unbounded, |n| n.to_string())
            }
            (&Constraint::Real { min, max }, &Atom::Real(value)) => {
                check_range(&value, min, max, (min == f64::MIN, max == f64::MAX), |&r| text::format_real(r))
            }
            (&Constraint::String { min_length, max_length }, Atom::String(value)) => {
                let length = value.chars().count();
                if length < min_length as usize {
                    return Err(Error::constraint(format!(
                        "\"{value}\" length {length} is less than minimum allowed length {min_length}"
                    )));
                }
                if length > max_length as usize {
                    return Err(Error::constraint(format!(
                        "\"{value}\" length {length} is greater than maximum allowed length {max_length}"
                    )));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn from_json(json: &Value) -> Result<Self> {
        if json.is_string() {
            return Ok(Self::new(AtomType::from_json(json)?));
        }
        let mut parser = ObjectParser::new(json, "ovsdb type");
        let kind = match parser.required("type", JsonType::String).map(AtomType::from_json) {
            Some(Ok(kind)) => kind,
            Some(Err(error)) => return Err(error),
            None => return Err(parser.take_error().unwrap_or_else(|| Error::syntax(json, "ovsdb type expected"))),
        };
        let mut base = Self::new(kind);
        if let Some(allowed) = parser.optional("enum", JsonType::Any) {
            let enumeration = ColumnType::set(Self::new(kind), 1, UNLIMITED);
            base.allowed = Some(Datum::from_json(allowed, &enumeration, &mut NoSymbols)?);
        } else {
            base.constraint = match kind {
                AtomType::Integer => integer_range(&mut parser),
                AtomType::Real => real_range(&mut parser),
                AtomType::String => length_range(&mut parser),
                AtomType::Uuid => reference(&mut parser),
                AtomType::Boolean => Constraint::None,
            };
        }
        parser.finish()?;
        Ok(base)
    }

    /// The JSON in a schema (RFC 7047, `<base-type>`).
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("type".into(), Value::from(self.kind.name()));
        if let Some(allowed) = &self.allowed {
            let enumeration = ColumnType::set(Self::new(self.kind), 1, UNLIMITED);
            object.insert("enum".into(), allowed.to_json(&enumeration));
        }
        match &self.constraint {
            Constraint::None => {}
            Constraint::Integer { min, max } => {
                insert_unless(&mut object, "minInteger", *min, i64::MIN);
                insert_unless(&mut object, "maxInteger", *max, i64::MAX);
            }
            Constraint::Real { min, max } => {
                for (name, bound, default) in [("minReal", *min, f64::MIN), ("maxReal", *max, f64::MAX)] {
                    if bound != default {
                        object.insert(name.into(), Atom::Real(bound).to_json());
                    }
                }
            }
            Constraint::String { min_length, max_length } => {
                insert_unless(&mut object, "minLength", *min_length, 0);
                insert_unless(&mut object, "maxLength", *max_length, UNLIMITED);
            }
            Constraint::Reference { table, kind } => {
                object.insert("refTable".into(), Value::from(table.as_str()));
                if *kind == RefType::Weak {
                    object.insert("refType".into(), Value::from("weak"));
                }
            }
        }
        if object.len() == 1 { Value::from(self.kind.name()) } else { Value::Object(object) }
    }
}

fn insert_unless<T: PartialEq + Into<Value>>(object: &mut Map<String, Value>, name: &str, value: T, default: T) {
    if value != default {
        object.insert(name.into(), value.into());
    }
}

fn check_range<T: PartialOrd>(
    value: &T,
    min: T,
    max: T,
    unbounded: (bool, bool),
    show: impl Fn(&T) -> String,
) -> Result<()> {
    if *value >= min && *value <= max {
        return Ok(());
    }
    let value = show(value);
    Err(Error::constraint(match unbounded {
        (false, false) => format!("{value} is not in the valid range {} to {} (inclusive)", show(&min), show(&max)),
        (false, true) => format!("{value} is less than minimum allowed value {}", show(&min)),
        _ => format!("{value} is greater than maximum allowed value {}", show(&max)),
    }))
}

fn integer_range(parser: &mut ObjectParser<'_>) -> Constraint {
    let min = parser.optional("minInteger", JsonType::Integer).and_then(as_integer);
    let max = parser.optional("maxInteger", JsonType::Integer).and_then(as_integer);
    let (min, max) = (min.unwrap_or(i64::MIN), max.unwrap_or(i64::MAX));
    if (min, max) == (i64::MIN, i64::MAX) {
        return Constraint::None;
    }
    if min > max {
        parser.fail("minInteger exceeds maxInteger");
    }
    Constraint::Integer { min, max }
}

fn real_range(parser: &mut ObjectParser<'_>) -> Constraint {
    let min = parser.optional("minReal", JsonType::Number).and_then(Value::as_f64);
    let max = parser.optional("maxReal", JsonType::Number).and_then(Value::as_f64);
    let (min, max) = (min.unwrap_or(f64::MIN), max.unwrap_or(f64::MAX));
    if (min, max) == (f64::MIN, f64::MAX) {
        return Constraint::None;
    }
    if min > max {
        parser.fail("minReal exceeds maxReal");
    }
    Constraint::Real { min, max }
}

fn length_range(parser: &mut ObjectParser<'_>) -> Constraint {
    let mut length = |name: &str| {
        let given = parser.optional(name, JsonType::Integer).and_then(as_integer)?;
        let fits = u32::try_from(given).ok();
        if fits.is_none() {
            parser.fail(&format!("{name} out of valid range 0 to {UNLIMITED}"));
        }
        fits
    };
    let (min, max) = (length("minLength"), length("maxLength"));
    let (min_length, max_length) = (min.unwrap_or(0), max.unwrap_or(UNLIMITED));
    if (min_length, max_length) == (0, UNLIMITED) {
        return Constraint::None;
    }
    if min_length > max_length {
        parser.fail("minLength exceeds maxLength");
    }
    Constraint::String { min_length, max_length }
}

fn reference(parser: &mut ObjectParser<'_>) -> Constraint {
    let Some(table) = parser.optional("refTable", JsonType::Id).and_then(Value::as_str) else {
        return Constraint::None;
    };
    let kind = match parser.optional("refType", JsonType::String).and_then(Value::as_str) {
        None | Some("strong") => RefType::Strong,
        Some("weak") => RefType::Weak,
        Some(other) => {
            parser.fail(&format!("refType must be \"strong\" or \"weak\" (not \"{other}\")"));
            RefType::Strong
        }
    };
    debug_assert!(is_id(table), "the parser accepts only identifiers");
    Constraint::Reference { table: table.to_owned(), kind }
}

/// The `<type>` of a column: a scalar, an optional value, a set, or a map.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnType {
    /// The type of values, or of keys if this is a map.
    pub key: BaseType,
    /// The type of a map's values.
    pub value: Option<BaseType>,
    /// Least number of elements, 0 or 1.
    pub min: u32,
    /// Greatest number of elements, at least 1; [`UNLIMITED`] if there is no limit.
    pub max: u32,
}

impl ColumnType {
    /// Exactly one value.
    pub const fn scalar(base: BaseType) -> Self {
        Self { key: base, value: None, min: 1, max: 1 }
    }

    /// `min` to `max` values.
    pub const fn set(base: BaseType, min: u32, max: u32) -> Self {
        Self { key: base, value: None, min, max }
    }

    /// Whether this is a map.
    pub fn is_map(&self) -> bool {
        self.value.is_some()
    }

    /// Whether this is exactly one value.
    pub fn is_scalar(&self) -> bool {
        self.value.is_none() && self.min == 1 && self.max == 1
    }

    /// Whether this is one value or none.
    pub fn is_optional_scalar(&self) -> bool {
        self.value.is_none() && self.min == 0 && self.max == 1
    }

    /// Whether there may be more than one element, so that a difference is shorter than the new value.
    pub fn is_composite(&self) -> bool {
        self.max > 1
    }

    /// The same type with any number of elements, for differences and for the arguments of mutations.
    pub fn relaxed(&self) -> Self {
        Self { min: 0, max: UNLIMITED, ..self.clone() }
    }

    /// The same type without constraints and with any number of elements.
    pub fn unconstrained(&self) -> Self {
        let plain = |base: &BaseType| BaseType {
            kind: base.kind,
            allowed: None,
            constraint: match &base.constraint {
                reference @ Constraint::Reference { .. } => reference.clone(),
                _ => Constraint::None,
            },
        };
        Self { key: plain(&self.key), value: self.value.as_ref().map(plain), min: 0, max: UNLIMITED }
    }

    /// Reads a `<type>`.
    pub fn from_json(json: &Value) -> Result<Self> {
        if json.is_string() {
            return Ok(Self::scalar(BaseType::from_json(json)?));
        }
        if !json.is_object() {
            return Err(Error::syntax(json, "ovsdb type expected"));
        }
        let mut parser = ObjectParser::new(json, "ovsdb type");
        let mut made = Self::scalar(BaseType::new(AtomType::Integer));
        if let Some(key) = parser.required("key", JsonType::StringOrObject) {
            made.key = BaseType::from_json(key)?;
        }
        if let Some(value) = parser.optional("value", JsonType::StringOrObject) {
            made.value = Some(BaseType::from_json(value)?);
        }
        let count = |json: &Value| as_integer(json).and_then(|n| u32::try_from(n).ok());
        if let Some(min) = parser.optional("min", JsonType::Integer) {
            match count(min) {
                Some(min) => made.min = min,
                None => parser.fail("bad min or max value"),
            }
        }
        match parser.optional("max", JsonType::IntegerOrString) {
            Some(Value::String(text)) if text == "unlimited" => made.max = UNLIMITED,
            Some(max) => match count(max) {
                Some(max) => made.max = max,
                None => parser.fail("bad min or max value"),
            },
            None => {}
        }
        parser.finish()?;
        if made.min > 1 || made.max == 0 || made.min > made.max {
            return Err(Error::syntax(json, "ovsdb type fails constraint checks"));
        }
        Ok(made)
    }

    /// The `<type>` as JSON.
    pub fn to_json(&self) -> Value {
        if self.is_scalar() && self.key == BaseType::new(self.key.kind) {
            return self.key.to_json();
        }
        let mut object = Map::new();
        object.insert("key".into(), self.key.to_json());
        if let Some(value) = &self.value {
            object.insert("value".into(), value.to_json());
        }
        insert_unless(&mut object, "min", self.min, 1);
        if self.max == UNLIMITED {
            object.insert("max".into(), Value::from("unlimited"));
        } else {
            insert_unless(&mut object, "max", self.max, 1);
        }
        Value::Object(object)
    }
}

impl fmt::Display for ColumnType {
    /// In English, as error messages describe a column's type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max == 1 && self.value.is_none() && self.min == 1 {
            return f.write_str(self.key.kind.name());
        }
        f.write_str(if self.value.is_some() { "map" } else { "set" })?;
        match (self.min, self.max) {
            (0, UNLIMITED) => f.write_str(" of")?,
            (min, UNLIMITED) => write!(f, " of {min} or more")?,
            (0, max) => write!(f, " of up to {max}")?,
            (min, max) => write!(f, " of {min} to {max}")?,
        }
        match &self.value {
            Some(value) => write!(f, " ({}, {}) pairs", self.key.kind.name(), value.kind.name()),
            None => write!(f, " {}s", self.key.kind.name()),
        }
    }
}
