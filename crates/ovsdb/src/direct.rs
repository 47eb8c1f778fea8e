//! Parses values directly from JSON text, without a tree: this makes opening large database files fast.
//!
//! Only valid input is parsed; anything else fails, with an error without a useful text. For an error message,
//! callers parse the same text again with [`Datum::from_json`].
//!
//! Invariant: [`Datum::from_json`] parses the same input as the same value.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use serde_core::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;

use crate::atom::Atom;
use crate::datum::Datum;
use crate::json::NoSymbols;
use crate::types::{AtomType, BaseType, ColumnType};
use crate::uuid::Uuid;

/// Longest string that is worth looking up, in bytes.
const SHARED_LENGTH_MAX: usize = 64;

/// How many strings are remembered.
const SLOTS: usize = 1 << 14;

/// Recently parsed strings, so that repeated ones, such as keys of maps and names, are in memory once.
///
/// Each has one slot by its hash, and is replaced by the next string there: a miss costs memory, nothing else.
#[derive(Debug)]
pub struct Strings {
    slots: Box<[Arc<str>]>,
    hasher: RandomState,
}

impl Default for Strings {
    fn default() -> Self {
        Self { slots: vec![Arc::default(); SLOTS].into(), hasher: RandomState::default() }
    }
}

impl Strings {
    /// A string with this text, which others may have, too.
    pub fn share(&mut self, text: &str) -> Arc<str> {
        if text.is_empty() {
            return Arc::default();
        }
        if text.len() > SHARED_LENGTH_MAX {
            return text.into();
        }
        let at = self.hasher.hash_one(text) as usize % SLOTS;
        let Some(slot) = self.slots.get_mut(at) else { return text.into() };
        if **slot != *text {
            *slot = text.into();
        }
        Arc::clone(slot)
    }
}

/// Reads a `<value>` for a column of type `kind`, with any number of elements ([`Datum::fits`] tells whether that is
/// allowed).
#[derive(Debug)]
pub struct DatumSeed<'a> {
    /// The column's type.
    pub kind: &'a ColumnType,
    /// The cache of strings.
    pub strings: &'a mut Strings,
}

fn refused<E: Error>() -> E {
    E::custom("not as expected")
}

fn plain<E: Error>(json: Value, base: &BaseType) -> Result<Atom, E> {
    Atom::from_json(&json, base, &mut NoSymbols).map_err(|_| refused())
}

fn checked<E: Error>(atom: Atom, base: &BaseType) -> Result<Atom, E> {
    base.check(&atom).map_err(|_| refused())?;
    Ok(atom)
}

fn string<E: Error>(text: &str, base: &BaseType, strings: &mut Strings) -> Result<Atom, E> {
    if base.kind != AtomType::String || text.contains('\0') {
        return Err(refused());
    }
    checked(Atom::String(strings.share(text)), base)
}

/// The rest of `["uuid", "..."]`.
fn uuid<'de, A: SeqAccess<'de>>(rest: &mut A, base: &BaseType) -> Result<Atom, A::Error> {
    if base.kind != AtomType::Uuid {
        return Err(refused());
    }
    let uuid = rest.next_element_seed(UuidSeed)?.ok_or_else(refused)?;
    checked(Atom::Uuid(uuid), base)
}

fn end<'de, A: SeqAccess<'de>>(rest: &mut A) -> Result<(), A::Error> {
    match rest.next_element::<IgnoredAny>()? {
        None => Ok(()),
        Some(_) => Err(refused()),
    }
}

impl<'de> DeserializeSeed<'de> for DatumSeed<'_> {
    type Value = Datum;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Datum, D::Error> {
        from.deserialize_any(self)
    }
}

impl DatumSeed<'_> {
    fn one<E: Error>(self, json: Value) -> Result<Datum, E> {
        if self.kind.is_map() {
            return Err(refused());
        }
        plain(json, &self.kind.key).map(Datum::scalar)
    }
}

impl<'de> Visitor<'de> for DatumSeed<'_> {
    type Value = Datum;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Datum, E> {
        self.one(Value::from(value))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Datum, E> {
        self.one(Value::from(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Datum, E> {
        self.one(Value::from(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Datum, E> {
        self.one(Value::from(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Datum, E> {
        if self.kind.is_map() {
            return Err(refused());
        }
        string(text, &self.kind.key, self.strings).map(Datum::scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Datum, A::Error> {
        let ColumnType { key, value, .. } = self.kind;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let datum = match (seq.next_element_seed(TagSeed)?, value) {
            (Some(Tag::Uuid), None) => Some(Datum::scalar(uuid(&mut seq, key)?)),
            (Some(Tag::Set), None) => {
                let elements =
                    Elements { key, value: None, strings: self.strings, keys: &mut keys, values: &mut values };
                seq.next_element_seed(elements)?.ok_or_else(refused)?;
                Datum::from_parts(keys, values)
            }
            (Some(Tag::Map), Some(value)) => {
                let value = Some(value);
                let elements = Elements { key, value, strings: self.strings, keys: &mut keys, values: &mut values };
                seq.next_element_seed(elements)?.ok_or_else(refused)?;
                Datum::from_parts(keys, values)
            }
            _ => None,
        };
        end(&mut seq)?;
        datum.ok_or_else(refused)
    }
}

/// Reads the elements of a set or, if there is a type of values, of a map.
struct Elements<'a> {
    key: &'a BaseType,
    value: Option<&'a BaseType>,
    strings: &'a mut Strings,
    keys: &'a mut Vec<Atom>,
    values: &'a mut Vec<Atom>,
}

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Some(value) = self.value else {
            while let Some(key) = seq.next_element_seed(AtomSeed { base: self.key, strings: self.strings })? {
                self.keys.push(key);
            }
            return Ok(());
        };
        while let Some((key, value)) = seq.next_element_seed(Pair { key: self.key, value, strings: self.strings })? {
            self.keys.push(key);
            self.values.push(value);
        }
        Ok(())
    }
}

/// Reads a pair of a map.
struct Pair<'a> {
    key: &'a BaseType,
    value: &'a BaseType,
    strings: &'a mut Strings,
}

impl<'de> DeserializeSeed<'de> for Pair<'_> {
    type Value = (Atom, Atom);

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Pair<'_> {
    type Value = (Atom, Atom);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pair")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let Self { key, value, strings } = self;
        let key = seq.next_element_seed(AtomSeed { base: key, strings })?.ok_or_else(refused)?;
        let value = seq.next_element_seed(AtomSeed { base: value, strings })?.ok_or_else(refused)?;
        end(&mut seq)?;
        Ok((key, value))
    }
}

/// Reads an `<atom>`.
struct AtomSeed<'a> {
    base: &'a BaseType,
    strings: &'a mut Strings,
}

impl<'de> DeserializeSeed<'de> for AtomSeed<'_> {
    type Value = Atom;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Atom, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AtomSeed<'_> {
    type Value = Atom;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an atom")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Atom, E> {
        plain(Value::from(value), self.base)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Atom, E> {
        plain(Value::from(number), self.base)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Atom, E> {
        plain(Value::from(number), self.base)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Atom, E> {
        plain(Value::from(number), self.base)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Atom, E> {
        string(text, self.base, self.strings)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Atom, A::Error> {
        match seq.next_element_seed(TagSeed)? {
            Some(Tag::Uuid) => {
                let atom = uuid(&mut seq, self.base)?;
                end(&mut seq)?;
                Ok(atom)
            }
            _ => Err(refused()),
        }
    }
}

/// The first element of an array that represents a value.
enum Tag {
    Uuid,
    Set,
    Map,
}

struct TagSeed;

impl<'de> DeserializeSeed<'de> for TagSeed {
    type Value = Tag;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Tag, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for TagSeed {
    type Value = Tag;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("uuid, set or map")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Tag, E> {
        match text {
            "uuid" => Ok(Tag::Uuid),
            "set" => Ok(Tag::Set),
            "map" => Ok(Tag::Map),
            _ => Err(refused()),
        }
    }
}

/// Reads the text of a UUID: in a `<uuid>`, or as the name of a row.
#[derive(Debug, Clone, Copy)]
pub struct UuidSeed;

impl<'de> DeserializeSeed<'de> for UuidSeed {
    type Value = Uuid;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Uuid, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for UuidSeed {
    type Value = Uuid;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a UUID")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Uuid, E> {
        Uuid::parse(text).ok_or_else(refused)
    }
}
