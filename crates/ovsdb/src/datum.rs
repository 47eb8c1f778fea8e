//! The value of a column: a set of atoms, or a map from atoms to atoms (RFC 7047 section 5.1, `<value>`).
//!
//! A scalar is a set of one. Keys are sorted and unique; in a map, `values[i]` belongs to `keys[i]`, and in a set
//! there are no values. An empty map and an empty set are equal, so encoding one needs the column's type.
//!
//! A database consists of these, so a datum is no larger than an atom: up to one atom is stored inline, more are
//! shared between clones. A change of a shared datum creates a new one.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;

use crate::atom::Atom;
use crate::error::{Error, Result, unwrap_tagged};
use crate::json::SymbolTable;
use crate::types::{BaseType, ColumnType};
use crate::uuid::Uuid;

/// A `<value>`; the order of data is the order of their elements. Clones are cheap.
#[derive(Clone, Default)]
pub struct Datum(Elements);

/// The number of elements decides the representation: each datum has only one.
#[derive(Clone, Default)]
enum Elements {
    #[default]
    None,
    One(Atom),
    /// Two atoms or more.
    Set(Arc<[Atom]>),
    /// The keys, then as many values; at least one of each.
    Map(Arc<[Atom]>),
}

impl Datum {
    /// The empty set or map.
    pub const fn empty() -> Self {
        Self(Elements::None)
    }

    /// A scalar, which is a set of one atom.
    pub fn scalar(atom: impl Into<Atom>) -> Self {
        Self(Elements::One(atom.into()))
    }

    /// A set; duplicates are dropped.
    pub fn set<A: Into<Atom>>(atoms: impl IntoIterator<Item = A>) -> Self {
        let mut keys: Vec<Atom> = atoms.into_iter().map(Into::into).collect();
        keys.sort_unstable();
        keys.dedup();
        Self::from_sorted(keys, Vec::new())
    }

    /// A map; of pairs with the same key the first stays.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let mut pairs: Vec<(Atom, Atom)> = pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|later, earlier| later.0 == earlier.0);
        let (keys, values) = pairs.into_iter().unzip();
        Self::from_sorted(keys, values)
    }

    /// The datum of sorted, unique keys, and of as many values or none.
    fn from_sorted(mut keys: Vec<Atom>, values: Vec<Atom>) -> Self {
        debug_assert!(keys.is_sorted_by(|a, b| a < b), "keys are sorted and unique");
        debug_assert!(values.is_empty() || values.len() == keys.len(), "as many values as keys");
        Self(match keys.len() {
            0 => Elements::None,
            1 if values.is_empty() => keys.pop().map_or(Elements::None, Elements::One),
            _ if values.is_empty() => Elements::Set(keys.into()),
            _ => Elements::Map(keys.into_iter().chain(values).collect()),
        })
    }

    /// The default value of a column (RFC 7047 section 5.2.1): empty if that is allowed, else one default atom.
    pub fn default_of(kind: &ColumnType) -> Self {
        if kind.min == 0 {
            return Self::empty();
        }
        let key = Atom::default_of(kind.key.kind);
        match &kind.value {
            None => Self::scalar(key),
            Some(value) => Self(Elements::Map(Arc::new([key, Atom::default_of(value.kind)]))),
        }
    }

    /// Whether this is the default value of a column of type `kind`.
    pub fn is_default(&self, kind: &ColumnType) -> bool {
        *self == Self::default_of(kind)
    }

    /// Returns true if both share the same memory. This is fast, but equal data may return false.
    fn is_shared_with(&self, other: &Datum) -> bool {
        match (&self.0, &other.0) {
            (Elements::Set(a), Elements::Set(b)) | (Elements::Map(a), Elements::Map(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.keys().len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Elements::None)
    }

    /// The elements, or the keys of a map, sorted.
    pub fn keys(&self) -> &[Atom] {
        match &self.0 {
            Elements::None => &[],
            Elements::One(atom) => std::slice::from_ref(atom),
            Elements::Set(atoms) => atoms,
            Elements::Map(atoms) => atoms.get(..atoms.len() / 2).unwrap_or_default(),
        }
    }

    /// The values of a map, in the order of its keys; empty for a set.
    pub fn values(&self) -> &[Atom] {
        match &self.0 {
            Elements::Map(atoms) => atoms.get(atoms.len() / 2..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// The elements with their values, if this is a map.
    pub fn iter(&self) -> impl Iterator<Item = (&Atom, Option<&Atom>)> {
        let values = self.values();
        self.keys().iter().enumerate().map(|(at, key)| (key, values.get(at)))
    }

    /// The pairs of a map.
    pub fn pairs(&self) -> impl Iterator<Item = (&Atom, &Atom)> {
        self.keys().iter().zip(self.values())
    }

    /// Whether `key` is an element, or a key of the map.
    pub fn contains_key(&self, key: &Atom) -> bool {
        self.keys().binary_search(key).is_ok()
    }

    /// The map's value for `key`.
    pub fn get(&self, key: &Atom) -> Option<&Atom> {
        self.values().get(self.keys().binary_search(key).ok()?)
    }

    /// The map's string for the string `key`: `other_config` and its like.
    pub fn get_str(&self, key: &str) -> Option<&str> {
        let at = self.keys().binary_search_by(|found| found.as_str().unwrap_or_default().cmp(key)).ok()?;
        self.values().get(at)?.as_str()
    }

    /// The first element, which is the value of a scalar or of a filled optional.
    pub fn first(&self) -> Option<&Atom> {
        self.keys().first()
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

    /// Adds an element if its key is new; returns whether it was. `value` is given for a map.
    pub fn insert(&mut self, key: Atom, value: Option<Atom>) -> bool {
        if self.contains_key(&key) {
            return false;
        }
        let one = match value {
            None => Self::scalar(key),
            Some(value) => Self(Elements::Map(Arc::new([key, value]))),
        };
        self.union(&one);
        true
    }

    /// Removes the element with this key; returns whether it existed.
    pub fn remove(&mut self, key: &Atom) -> bool {
        let found = self.contains_key(key);
        if found {
            self.retain(|other, _| other != key);
        }
        found
    }

    /// Drops the elements for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(&Atom, Option<&Atom>) -> bool) {
        let kept: Vec<bool> = self.iter().map(|(key, value)| keep(key, value)).collect();
        if kept.iter().all(|&kept| kept) {
            return;
        }
        let of =
            |atoms: &[Atom]| atoms.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(atom, _)| atom.clone()).collect();
        *self = Self::from_sorted(of(self.keys()), of(self.values()));
    }

    /// Replaces each atom by the result of `change`, then sorts again. Fails if two elements become equal.
    pub fn try_map_keys(&self, mut change: impl FnMut(&Atom) -> Result<Atom>) -> Result<Option<Self>> {
        let keys: Vec<Atom> = self.keys().iter().map(&mut change).collect::<Result<_>>()?;
        Ok(Self::from_parts(keys, self.values().to_vec()))
    }

    /// A datum of keys and values in any order; `None` if two keys are equal.
    pub(crate) fn from_parts(keys: Vec<Atom>, values: Vec<Atom>) -> Option<Self> {
        if keys.windows(2).all(|pair| matches!(pair, [a, b] if a < b)) {
            return Some(Self::from_sorted(keys, values));
        }
        let count = keys.len();
        let sorted = if values.is_empty() { Self::set(keys) } else { Self::map(keys.into_iter().zip(values)) };
        (sorted.len() == count).then_some(sorted)
    }

    /// Adds the elements of `other` whose keys are new.
    pub fn union(&mut self, other: &Datum) {
        if self.is_empty() {
            self.clone_from(other);
            return;
        }
        *self = merge(self, other, |side| match side {
            Side::Left(value) | Side::Both(value, _) | Side::Right(value) => Some(value.cloned()),
        });
    }

    /// Removes the elements that `other` has too: by key alone if `other` is a set, else by key and value.
    pub fn subtract(&mut self, other: &Datum) {
        self.retain(|key, value| match other.keys().binary_search(key) {
            Err(_) => true,
            Ok(at) => match (value, other.values().get(at)) {
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
        match self.keys().binary_search(key) {
            Err(_) => false,
            Ok(at) => value.is_none() || self.values().get(at) == value,
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
        if !applied.fits(kind) {
            return Err(Error::ovsdb("Datum crated by diff has size error"));
        }
        Ok(applied)
    }

    /// Checks the number of elements and each element's constraints.
    pub fn check(&self, kind: &ColumnType) -> Result<()> {
        self.check_size(kind)?;
        self.keys().iter().try_for_each(|key| kind.key.check(key))?;
        match &kind.value {
            Some(base) => self.values().iter().try_for_each(|value| base.check(value)),
            None => Ok(()),
        }
    }

    /// Whether a column of type `kind` may have as many elements.
    pub fn fits(&self, kind: &ColumnType) -> bool {
        (kind.min as usize..=kind.max as usize).contains(&self.len())
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
        match self.keys() {
            [only] => only.to_json(),
            keys => tagged("set", keys.iter().map(Atom::to_json).collect()),
        }
    }

    /// Reads a `<value>` for a column of type `kind` and checks all constraints.
    pub fn from_json(json: &Value, kind: &ColumnType, symbols: &mut dyn SymbolTable) -> Result<Self> {
        let is_set = json.get(0).and_then(Value::as_str) == Some("set");
        if !kind.is_map() && !is_set {
            let atom = Atom::from_json(json, &kind.key, symbols)?;
            return Ok(Self::scalar(atom));
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

/// Merges two sorted data; `choose` decides for each key whether it stays, and with which value.
fn merge(left: &Datum, right: &Datum, choose: impl Fn(Side<'_>) -> Option<Option<Atom>>) -> Datum {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let mut add = |key: &Atom, chosen: Option<Option<Atom>>| {
        if let Some(value) = chosen {
            keys.push(key.clone());
            values.extend(value);
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
    Datum::from_sorted(keys, values)
}

impl PartialEq for Datum {
    fn eq(&self, other: &Self) -> bool {
        self.is_shared_with(other) || (self.keys() == other.keys() && self.values() == other.values())
    }
}

impl Eq for Datum {}

impl PartialOrd for Datum {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Datum {
    fn cmp(&self, other: &Self) -> Ordering {
        self.keys().cmp(other.keys()).then_with(|| self.values().cmp(other.values()))
    }
}

impl Hash for Datum {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.keys().hash(state);
        self.values().hash(state);
    }
}

impl fmt::Debug for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Elements::Map(_) => f.debug_map().entries(self.pairs()).finish(),
            _ => f.debug_set().entries(self.keys()).finish(),
        }
    }
}

impl<A: Into<Atom>> From<A> for Datum {
    fn from(atom: A) -> Self {
        Self::scalar(atom)
    }
}
