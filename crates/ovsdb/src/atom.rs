//! One value of one of the five atomic types (RFC 7047 section 5.1, `<atom>`).

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;

use crate::error::{Error, Result, unwrap_tagged};
use crate::json::{SymbolTable, is_id};
use crate::types::{AtomType, BaseType, RefType};
use crate::uuid::Uuid;

/// An `<atom>`. Strings are shared, so that a copy of a row is cheap.
///
/// Atoms of one type are totally ordered: numbers by value, `false` before `true`, strings by bytes, UUIDs by bytes.
#[derive(Debug, Clone)]
pub enum Atom {
    /// A signed 64-bit integer.
    Integer(i64),
    /// A finite double.
    Real(f64),
    /// A truth value.
    Boolean(bool),
    /// UTF-8 text without null characters.
    String(Arc<str>),
    /// A UUID.
    Uuid(Uuid),
}

impl Atom {
    /// The type of this atom.
    pub fn kind(&self) -> AtomType {
        match self {
            Atom::Integer(_) => AtomType::Integer,
            Atom::Real(_) => AtomType::Real,
            Atom::Boolean(_) => AtomType::Boolean,
            Atom::String(_) => AtomType::String,
            Atom::Uuid(_) => AtomType::Uuid,
        }
    }

    /// The default atom of a type (RFC 7047 section 5.2.1): 0, 0.0, false, "", all-zeros.
    pub fn default_of(kind: AtomType) -> Self {
        match kind {
            AtomType::Integer => Atom::Integer(0),
            AtomType::Real => Atom::Real(0.0),
            AtomType::Boolean => Atom::Boolean(false),
            AtomType::String => Atom::String(Arc::default()),
            AtomType::Uuid => Atom::Uuid(Uuid::ZERO),
        }
    }

    /// The string, if this is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Atom::String(text) = self { Some(text) } else { None }
    }

    /// The integer, if this is one.
    pub fn as_integer(&self) -> Option<i64> {
        if let Atom::Integer(number) = self { Some(*number) } else { None }
    }

    /// The real, if this is one.
    pub fn as_real(&self) -> Option<f64> {
        if let Atom::Real(number) = self { Some(*number) } else { None }
    }

    /// The truth value, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Atom::Boolean(value) = self { Some(*value) } else { None }
    }

    /// The UUID, if this is one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        if let Atom::Uuid(uuid) = self { Some(*uuid) } else { None }
    }

    /// The `<atom>` as JSON. Whole reals are written without a fraction, as Open vSwitch does.
    pub fn to_json(&self) -> Value {
        match self {
            Atom::Integer(number) => Value::from(*number),
            Atom::Real(number) if number.fract() == 0.0 && number.abs() < 1e15 => Value::from(*number as i64),
            Atom::Real(number) => Value::from(*number),
            Atom::Boolean(value) => Value::from(*value),
            Atom::String(text) => Value::from(text.as_ref()),
            Atom::Uuid(uuid) => Value::from(vec![Value::from("uuid"), Value::from(uuid.to_string())]),
        }
    }

    /// Reads an `<atom>` of type `base` and checks its constraints. `["named-uuid", NAME]` is looked up in `symbols`.
    pub fn from_json(json: &Value, base: &BaseType, symbols: &mut dyn SymbolTable) -> Result<Self> {
        let atom = Self::from_json_unchecked(json, base, symbols)?;
        base.check(&atom)?;
        Ok(atom)
    }

    /// Like [`Atom::from_json`], without the constraints.
    pub fn from_json_unchecked(json: &Value, base: &BaseType, symbols: &mut dyn SymbolTable) -> Result<Self> {
        let expected = || Error::syntax(json, format!("expected {}", base.kind.name()));
        match base.kind {
            AtomType::Integer => crate::json::as_integer(json).map(Atom::Integer).ok_or_else(expected),
            AtomType::Real => json.as_f64().filter(|r| r.is_finite()).map(Atom::from).ok_or_else(expected),
            AtomType::Boolean => json.as_bool().map(Atom::Boolean).ok_or_else(expected),
            AtomType::String => match json.as_str() {
                Some(text) if text.contains('\0') => {
                    Err(Error::syntax(json, "null bytes not supported in quoted strings"))
                }
                Some(text) => Ok(Atom::String(text.into())),
                None => Err(expected()),
            },
            AtomType::Uuid => uuid_from_json(json, base, symbols).map(Atom::Uuid),
        }
    }

    /// Parses a `<raw-uuid>`, `["uuid", "..."]` without named UUIDs.
    pub fn uuid_from_json(json: &Value) -> Result<Uuid> {
        uuid_from_json(json, &BaseType::new(AtomType::Uuid), &mut crate::json::NoSymbols)
    }
}

fn uuid_from_json(json: &Value, base: &BaseType, symbols: &mut dyn SymbolTable) -> Result<Uuid> {
    match unwrap_tagged(json, "uuid", "string", Value::is_string) {
        Ok(text) => {
            let text = text.as_str().unwrap_or_default();
            Uuid::parse(text).ok_or_else(|| Error::syntax(json, format!("\"{text}\" is not a valid UUID")))
        }
        Err(not_uuid) => {
            let Ok(name) = unwrap_tagged(json, "named-uuid", "string", Value::is_string) else {
                return Err(not_uuid);
            };
            let name = name.as_str().unwrap_or_default();
            if !symbols.accepts_names() {
                return Err(not_uuid);
            }
            if !is_id(name) {
                return Err(Error::syntax(json, "named-uuid string is not a valid <id>"));
            }
            let reference = base.ref_table().map(|_| base.ref_type());
            Ok(symbols.resolve(name, reference.unwrap_or(RefType::Weak), reference.is_some()))
        }
    }
}

impl PartialEq for Atom {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Atom {}

impl PartialOrd for Atom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Atom {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Atom::Integer(a), Atom::Integer(b)) => a.cmp(b),
            (Atom::Real(a), Atom::Real(b)) => a.partial_cmp(b).unwrap_or_else(|| a.total_cmp(b)),
            (Atom::Boolean(a), Atom::Boolean(b)) => a.cmp(b),
            (Atom::String(a), Atom::String(b)) => a.cmp(b),
            (Atom::Uuid(a), Atom::Uuid(b)) => a.cmp(b),
            _ => self.kind().cmp(&other.kind()),
        }
    }
}

impl Hash for Atom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Atom::Integer(number) => number.hash(state),
            // Adding zero gives -0.0 and 0.0, which are equal, the same hash.
            Atom::Real(number) => (number + 0.0).to_bits().hash(state),
            Atom::Boolean(value) => value.hash(state),
            Atom::String(text) => text.hash(state),
            Atom::Uuid(uuid) => uuid.hash(state),
        }
    }
}

impl From<i64> for Atom {
    fn from(number: i64) -> Self {
        Atom::Integer(number)
    }
}

impl From<f64> for Atom {
    fn from(number: f64) -> Self {
        Atom::Real(number)
    }
}

impl From<bool> for Atom {
    fn from(value: bool) -> Self {
        Atom::Boolean(value)
    }
}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Atom::String(text.into())
    }
}

impl From<String> for Atom {
    fn from(text: String) -> Self {
        Atom::String(text.into())
    }
}

impl From<Uuid> for Atom {
    fn from(uuid: Uuid) -> Self {
        Atom::Uuid(uuid)
    }
}
