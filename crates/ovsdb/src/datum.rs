//! The value of a column: a set of atoms, or a map from atoms to atoms (RFC 7047 section 5.1, `<value>`).
//!
//! A scalar is a set of one. Keys are kept sorted and unique; if the datum is a map, `values[i]` belongs to `keys[i]`,
//! and otherwise `values` is empty. An empty map and an empty set look alike, so writing one needs the column's type.

use std::cmp::Ordering;

use serde_json::Value;

use crate::atom::Atom;
use crate::error::{Error, Result, unwrap_tagged};
use crate::json::SymbolTable;
use crate::types::{BaseType, ColumnType};
use crate::uuid::Uuid;

/// A `<value>`; the order of data is the order of their elements.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Datum {
    keys: Vec<Atom>,
    values: Vec<Atom>,
}

impl Datum {
    /// The empty set or map.
    pub const fn empty() -> Self {
        Self { keys: Vec::new(), values: Vec::new() }
    }

    /// A scalar, which is a set of one atom.
    pub fn scalar(atom: impl Into<Atom>) -> Self {
        Self { keys: vec![atom.into()], values: Vec::new() }
    }

    /// A set; duplicates are dropped.
    pub fn set<A: Into<Atom>>(atoms: impl IntoIterator<Item = A>) -> Self {
        let mut keys: Vec<Atom> = atoms.into_iter().map(Into::into).collect();
        keys.sort_unstable();
        keys.dedup();
        Self { keys, values: Vec::new() }
    }

    /// A map; of pairs with the same key the first stays.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let mut pairs: Vec<(Atom, Atom)> = pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|later, earlier| later.0 == earlier.0);
        let (keys, values) = pairs.into_iter().unzip();
        Self { keys, values }
    }

    /// The default value of a column (RFC 7047 section 5.2.1): empty if that is allowed, else one default atom.
    pub fn default_of(kind: &ColumnType) -> Self {
        if kind.min == 0 {
            return Self::empty();
        }
        Self {
            keys: vec![Atom::default_of(kind.key.kind)],
            values: kind.value.iter().map(|value| Atom::default_of(value.kind)).collect(),
        }
    }

    /// Whether this is the default value of a column of type `kind`.
    pub fn is_default(&self, kind: &ColumnType) -> bool {
        *self == Self::default_of(kind)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The elements, or the keys of a map, sorted.
    pub fn keys(&self) -> &[Atom] {
        &self.keys
    }

    /// The values of a map, in the order of its keys; empty for a set.
    pub fn values(&self) -> &[Atom] {
        &self.values
    }

    /// The elements with their values, if this is a map.
    pub fn iter(&self) -> impl Iterator<Item = (&Atom, Option<&Atom>)> {
        self.keys.iter().enumerate().map(|(at, key)| (key, self.values.get(at)))
    }

    /// The pairs of a map.
    pub fn pairs(&self) -> impl Iterator<Item = (&Atom, &Atom)> {
        self.keys.iter().zip(&self.values)
    }

    /// Whether `key` is an element, or a key of the map.
    pub fn contains_key(&self, key: &Atom) -> bool {
        self.keys.binary_search(key).is_ok()
    }

    /// The map's value for `key`.
    pub fn get(&self, key: &Atom) -> Option<&Atom> {
        self.values.get(self.keys.binary_search(key).ok()?)
    }

    /// The map's string for the string `key`: `other_config` and its like.
    pub fn get_str(&self, key: &str) -> Option<&str> {
        let at = self.keys.binary_search_by(|found| found.as_str().unwrap_or_default().cmp(key)).ok()?;
        self.values.get(at)?.as_str()
    }

    /// The first element, which is the value of a scalar or of a filled optional.
    pub fn first(&self) -> Option<&Atom> {
        self.keys.first()
    }

    /// The first element as a string.
    pub fn as_str(&self) -> Option<&str> {
        self.first()?.as_str()
    }

    /// The first element as an integer.
    pub fn as_integer(&self) -> Option<i64> {
        self.first()?.as_integer()
    }

    /// The first element as a truth value.
    pub fn as_bool(&self) -> Option<bool> {
        self.first()?.as_bool()
    }

    /// The first element as a UUID.
    pub fn as_uuid(&self) -> Option<Uuid> {
        self.first()?.as_uuid()
    }

    /// Adds an element if its key is new; says whether it was.
    pub fn insert(&mut self, key: Atom, value: Option<Atom>) -> bool {
        let Err(at) = self.keys.binary_search(&key) else { return false };
        if let Some(value) = value {
            self.values.insert(at.min(self.values.len()), value);
        }
        self.keys.insert(at, key);
        true
    }

    /// Removes the element with this key; says whether it was there.
    pub fn remove(&mut self, key: &Atom) -> bool {
        let Ok(at) = self.keys.binary_search(key) else { return false };
        self.keys.remove(at);
        if at < self.values.len() {
            self.values.remove(at);
        }
        true
    }

    /// Drops the elements for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(&Atom, Option<&Atom>) -> bool) {
        let kept: Vec<bool> = self.iter().map(|(key, value)| keep(key, value)).collect();
        let mut at = kept.iter();
        self.keys.retain(|_| at.next().copied().unwrap_or(true));
        let mut at = kept.iter();
        self.values.retain(|_| at.next().copied().unwrap_or(true));
    }

    /// Replaces each atom by what `change` makes of it, then sorts again. Fails if two elements became equal.
    pub fn try_map_keys(&self, mut change: impl FnMut(&Atom) -> Result<Atom>) -> Result<Option<Self>> {
        let keys: Vec<Atom> = self.keys.iter().map(&mut change).collect::<Result<_>>()?;
        Ok(Self::from_parts(keys, self.values.clone()))
    }

    /// A datum of keys and values in any order; `None` if two keys are equal.
    pub(crate) fn from_parts(keys: Vec<Atom>, values: Vec<Atom>) -> Option<Self> {
        if keys.windows(2).all(|pair| matches!(pair, [a, b] if a < b)) {
            return Some(Self { keys, values });
        }
        let count = keys.len();
        let sorted = if values.is_empty() { Self::set(keys) } else { Self::map(keys.into_iter().zip(values)) };
        (sorted.len() == count).then_some(sorted)
    }

    /// Adds the elements of `other` whose keys are new.
    pub fn union(&mut self, other: &Datum) {
        if other.len() <= 4 {
            for (key, value) in other.iter() {
                self.insert(key.clone(), value.cloned());
            }
            return;
        }
        let mine = std::mem::take(self);
        *self = merge(&mine, other, |side| match side {
            Side::Left(value) | Side::Both(value, _) | Side::Right(value) => Some(value.cloned()),
        });
    }

    /// Removes the elements that `other` has too: by key alone if `other` is a set, else by key and value.
    pub fn subtract(&mut self, other: &Datum) {
        self.retain(|key, value| match other.keys.binary_search(key) {
            Err(_) => true,
            Ok(at) => match (value, other.values.get(at)) {
                (Some(mine), Some(theirs)) => mine != theirs,
                _ => false,
            },
        });
    }

    /// Whether every element of `other` is in this datum, with the same value if both are maps.
    pub fn includes_all(&self, other: &Datum) -> bool {
        other.iter().all(|(key, value)| self.has(key, value))
    }

    /// Whether no element of `other` is in this datum.
    pub fn excludes_all(&self, other: &Datum) -> bool {
        !other.iter().any(|(key, value)| self.has(key, value))
    }

    fn has(&self, key: &Atom, value: Option<&Atom>) -> bool {
        match self.keys.binary_search(key) {
            Err(_) => false,
            Ok(at) => value.is_none() || self.values.get(at) == value,
        }
    }

    /// The difference from this datum to `new`, as `update2` and database files write it: `new` itself for single
    /// values, else the elements in only one of both, and for a map's key with two values the new one.
    pub fn diff(&self, new: &Datum, kind: &ColumnType) -> Datum {
        if !kind.is_composite() {
            return new.clone();
        }
        merge(self, new, |side| match side {
            Side::Left(value) | Side::Right(value) => Some(value.cloned()),
            Side::Both(old, new) => (old != new).then(|| new.cloned()),
        })
    }

    /// Applies a difference made by [`Datum::diff`].
    pub fn apply_diff(&self, diff: &Datum, kind: &ColumnType) -> Result<Datum> {
        if !kind.is_composite() {
            return Ok(diff.clone());
        }
        let applied = merge(self, diff, |side| match side {
            Side::Left(value) | Side::Right(value) => Some(value.cloned()),
            Side::Both(old, new) => (old != new).then(|| new.cloned()),
        });
        if applied.len() < kind.min as usize || applied.len() > kind.max as usize {
            return Err(Error::ovsdb("Datum crated by diff has size error"));
        }
        Ok(applied)
    }

    /// Checks the number of elements and each element's constraints.
    pub fn check(&self, kind: &ColumnType) -> Result<()> {
        self.check_size(kind)?;
        self.keys.iter().try_for_each(|key| kind.key.check(key))?;
        match &kind.value {
            Some(base) => self.values.iter().try_for_each(|value| base.check(value)),
            None => Ok(()),
        }
    }

    fn check_size(&self, kind: &ColumnType) -> Result<()> {
        size_error(self.len(), kind).map_or(Ok(()), |details| Err(Error::ovsdb(details)))
    }

    /// The `<value>` as JSON.
    pub fn to_json(&self, kind: &ColumnType) -> Value {
        let tagged = |tag: &str, elements: Vec<Value>| Value::from(vec![Value::from(tag), Value::from(elements)]);
        if kind.is_map() {
            let pairs = self.pairs().map(|(key, value)| Value::from(vec![key.to_json(), value.to_json()])).collect();
            return tagged("map", pairs);
        }
        match self.keys.as_slice() {
            [only] => only.to_json(),
            keys => tagged("set", keys.iter().map(Atom::to_json).collect()),
        }
    }

    /// Reads a `<value>` for a column of type `kind` and checks all constraints.
    pub fn from_json(json: &Value, kind: &ColumnType, symbols: &mut dyn SymbolTable) -> Result<Self> {
        let is_set = json.get(0).and_then(Value::as_str) == Some("set");
        if !kind.is_map() && !is_set {
            let atom = Atom::from_json(json, &kind.key, symbols)?;
            return Ok(Self { keys: vec![atom], values: Vec::new() });
        }
        let class = if kind.is_map() { "map" } else { "set" };
        let inner = unwrap_tagged(json, class, "array", Value::is_array)?;
        let elements = inner.as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(details) = size_error(elements.len(), kind) {
            return Err(Error::syntax(json, details));
        }
        let mut keys = Vec::with_capacity(elements.len());
        let mut values = Vec::new();
        for element in elements {
            let Some(base) = &kind.value else {
                keys.push(Atom::from_json(element, &kind.key, symbols)?);
                continue;
            };
            let (key, value) = pair_from_json(element, &kind.key, base, symbols)?;
            keys.push(key);
            values.push(value);
        }
        Self::from_parts(keys, values).ok_or_else(|| {
            Error::ovsdb(if kind.is_map() { "map contains duplicate key" } else { "set contains duplicate" })
        })
    }
}

fn pair_from_json(
    json: &Value,
    key: &BaseType,
    value: &BaseType,
    symbols: &mut dyn SymbolTable,
) -> Result<(Atom, Atom)> {
    match json.as_array().map(Vec::as_slice) {
        Some([first, second]) => Ok((Atom::from_json(first, key, symbols)?, Atom::from_json(second, value, symbols)?)),
        _ => Err(Error::syntax(json, "expected 2-element array")),
    }
}

fn size_error(count: usize, kind: &ColumnType) -> Option<String> {
    if count >= kind.min as usize && count <= kind.max as usize {
        return None;
    }
    let class = if kind.is_map() { "map" } else { "set" };
    Some(if kind.min == 1 && kind.max == 1 {
        format!("{class} must have exactly one member but {count} are present")
    } else {
        format!("{class} must have {} to {} members but {count} are present", kind.min, kind.max)
    })
}

/// Where a key was found while two data are walked together, with its values if they are maps.
enum Side<'a> {
    Left(Option<&'a Atom>),
    Right(Option<&'a Atom>),
    Both(Option<&'a Atom>, Option<&'a Atom>),
}

/// Walks two sorted data together; `choose` says whether a key stays, and with which value.
fn merge(left: &Datum, right: &Datum, choose: impl Fn(Side<'_>) -> Option<Option<Atom>>) -> Datum {
    let mut made = Datum::empty();
    let mut add = |key: &Atom, chosen: Option<Option<Atom>>| {
        if let Some(value) = chosen {
            made.keys.push(key.clone());
            made.values.extend(value);
        }
    };
    let (mut a, mut b) = (left.iter().peekable(), right.iter().peekable());
    loop {
        let order = match (a.peek(), b.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((x, _)), Some((y, _))) => x.cmp(y),
        };
        match order {
            Ordering::Less => {
                if let Some((key, value)) = a.next() {
                    add(key, choose(Side::Left(value)));
                }
            }
            Ordering::Greater => {
                if let Some((key, value)) = b.next() {
                    add(key, choose(Side::Right(value)));
                }
            }
            Ordering::Equal => {
                if let (Some((key, old)), Some((_, new))) = (a.next(), b.next()) {
                    add(key, choose(Side::Both(old, new)));
                }
            }
        }
    }
    made
}

impl<A: Into<Atom>> From<A> for Datum {
    fn from(atom: A) -> Self {
        Self::scalar(atom)
    }
}
