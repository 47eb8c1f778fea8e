//! The values of columns as Rust types: atoms, optional atoms, sets and maps; reading and writing them.
//!
//! Reading borrows from the replica and copies nothing. A missing value, or one of another type, reads as the empty
//! value of its type; the replica keeps columns of other types empty (see [`crate::Misfit`]).

use std::fmt;
use std::marker::PhantomData;

use ovsdb::{Atom, AtomType, Datum, Uuid};

use super::{IntoAtom, Ref, Table};

/// The strings of a column whose schema lists them, as an `enum` (implemented by [`crate::tables!`]).
pub trait Enumeration: Copy + fmt::Debug + Eq + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// The string in the database.
    fn name(self) -> &'static str;

    /// The one that `name` is in the database; the name itself if a newer schema has more of them.
    fn from_name(name: &str) -> Listed<'_, Self> {
        Self::ALL.iter().find(|known| known.name() == name).copied().ok_or(name)
    }

    /// The string in the database for a value read from it.
    fn name_of(listed: Listed<'_, Self>) -> &str {
        match listed {
            Ok(known) => known.name(),
            Err(other) => other,
        }
    }
}

/// The value of a column with listed strings: a known one, or another string, which a newer schema may allow (or the
/// empty one, if the column does not exist).
pub type Listed<'a, E> = Result<E, &'a str>;

/// A type of atoms.
pub trait Atomic: 'static {
    /// The type of a value that is read.
    type Read<'a>: Copy + fmt::Debug + PartialEq;

    /// Its type in schemas.
    const KIND: AtomType;

    /// The value of an atom; `None` if the atom is of another type.
    fn read(atom: &Atom) -> Option<Self::Read<'_>>;

    /// The value of an absent datum.
    fn missing<'a>() -> Self::Read<'a>;
}

impl Atomic for i64 {
    type Read<'a> = i64;
    const KIND: AtomType = AtomType::Integer;
    fn read(atom: &Atom) -> Option<i64> {
        atom.as_integer()
    }
    fn missing<'a>() -> Self::Read<'a> {
        0
    }
}

impl Atomic for f64 {
    type Read<'a> = f64;
    const KIND: AtomType = AtomType::Real;
    fn read(atom: &Atom) -> Option<f64> {
        atom.as_real()
    }
    fn missing<'a>() -> Self::Read<'a> {
        0.0
    }
}

impl Atomic for bool {
    type Read<'a> = bool;
    const KIND: AtomType = AtomType::Boolean;
    fn read(atom: &Atom) -> Option<bool> {
        atom.as_bool()
    }
    fn missing<'a>() -> Self::Read<'a> {
        false
    }
}

impl Atomic for String {
    type Read<'a> = &'a str;
    const KIND: AtomType = AtomType::String;
    fn read(atom: &Atom) -> Option<&str> {
        atom.as_str()
    }
    fn missing<'a>() -> Self::Read<'a> {
        ""
    }
}

impl Atomic for Uuid {
    type Read<'a> = Uuid;
    const KIND: AtomType = AtomType::Uuid;
    fn read(atom: &Atom) -> Option<Uuid> {
        atom.as_uuid()
    }
    fn missing<'a>() -> Self::Read<'a> {
        Uuid::ZERO
    }
}

impl<T: Table> Atomic for Ref<T> {
    type Read<'a> = Ref<T>;
    const KIND: AtomType = AtomType::Uuid;
    fn read(atom: &Atom) -> Option<Ref<T>> {
        atom.as_uuid().map(Ref::new)
    }
    fn missing<'a>() -> Self::Read<'a> {
        Ref::new(Uuid::ZERO)
    }
}

impl<E: Enumeration> Atomic for E {
    type Read<'a> = Listed<'a, E>;
    const KIND: AtomType = AtomType::String;
    fn read(atom: &Atom) -> Option<Listed<'_, E>> {
        atom.as_str().map(E::from_name)
    }
    fn missing<'a>() -> Self::Read<'a> {
        Err("")
    }
}

/// The type of a column without constraints, for comparison with a server's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The type of atoms, or of the keys of a map.
    pub key: AtomType,
    /// The type of a map's values.
    pub value: Option<AtomType>,
    /// Whether there may be more than one element.
    pub many: bool,
}

impl Shape {
    /// Returns true if a column of this shape can hold values of a server's column of type `kind`.
    pub fn fits(&self, kind: &ovsdb::ColumnType) -> bool {
        let value = kind.value.as_ref().map(|value| value.kind);
        self.key == kind.key.kind && self.value == value && (self.many || kind.max == 1)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.name();
        match self.value {
            Some(value) => write!(f, "map of {key} to {}", value.name()),
            None if self.many => write!(f, "set of {key}"),
            None => f.write_str(key),
        }
    }
}

/// A type of columns: an atom, `Option` of one, [`Set`] or [`Map`].
pub trait Value: 'static {
    /// The type of a value that is read.
    type Read<'a>;

    /// The type without constraints.
    const SHAPE: Shape;

    /// The value of a datum, or the empty one.
    fn read(datum: Option<&Datum>) -> Self::Read<'_>;
}

/// Columns of several elements, which can be added and removed one by one.
pub trait Collection: Value {
    /// The key for removing elements.
    type Key: Atomic;
}

/// Columns that may be empty.
pub trait Emptiable: Value {}

/// Columns with an order that a server knows: numbers.
pub trait Ordered: Value {}

impl Ordered for i64 {}
impl Ordered for f64 {}
impl Ordered for Option<i64> {}
impl Ordered for Option<f64> {}

impl<A: Atomic> Value for A {
    type Read<'a> = A::Read<'a>;
    const SHAPE: Shape = Shape { key: A::KIND, value: None, many: false };
    fn read(datum: Option<&Datum>) -> A::Read<'_> {
        datum.and_then(Datum::first).and_then(A::read).unwrap_or_else(A::missing)
    }
}

impl<A: Atomic> Value for Option<A> {
    type Read<'a> = Option<A::Read<'a>>;
    const SHAPE: Shape = Shape { key: A::KIND, value: None, many: false };
    fn read(datum: Option<&Datum>) -> Option<A::Read<'_>> {
        datum.and_then(Datum::first).and_then(A::read)
    }
}

impl<A: Atomic> Emptiable for Option<A> {}

/// The type of a column that is a set; it reads as [`Elements`].
#[derive(Debug)]
pub enum Set<A> {
    #[doc(hidden)]
    Never(std::convert::Infallible, PhantomData<fn() -> A>),
}

impl<A: Atomic> Value for Set<A> {
    type Read<'a> = Elements<'a, A>;
    const SHAPE: Shape = Shape { key: A::KIND, value: None, many: true };
    fn read(datum: Option<&Datum>) -> Elements<'_, A> {
        Elements { atoms: datum.map(Datum::keys).unwrap_or_default(), of: PhantomData }
    }
}

impl<A: Atomic> Collection for Set<A> {
    type Key = A;
}

impl<A: Atomic> Emptiable for Set<A> {}

/// The type of a column that is a map; it reads as [`Pairs`].
#[derive(Debug)]
pub enum Map<K, V> {
    #[doc(hidden)]
    Never(std::convert::Infallible, PhantomData<fn() -> (K, V)>),
}

impl<K: Atomic, V: Atomic> Value for Map<K, V> {
    type Read<'a> = Pairs<'a, K, V>;
    const SHAPE: Shape = Shape { key: K::KIND, value: Some(V::KIND), many: true };
    fn read(datum: Option<&Datum>) -> Pairs<'_, K, V> {
        let (keys, values) = datum.map(|datum| (datum.keys(), datum.values())).unwrap_or_default();
        Pairs { keys, values, of: PhantomData }
    }
}

impl<K: Atomic, V: Atomic> Collection for Map<K, V> {
    type Key = K;
}

impl<K: Atomic, V: Atomic> Emptiable for Map<K, V> {}

/// The elements of a set, sorted.
pub struct Elements<'a, A> {
    atoms: &'a [Atom],
    of: PhantomData<fn() -> A>,
}

impl<A> Clone for Elements<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Elements<'_, A> {}

impl<'a, A: Atomic> Elements<'a, A> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.atoms.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.atoms.is_empty()
    }

    /// The elements, sorted as the database sorts them.
    pub fn iter(&self) -> ElementsIter<'a, A> {
        self.into_iter()
    }

    /// The least element.
    pub fn first(&self) -> Option<A::Read<'a>> {
        self.iter().next()
    }

    /// Whether `element` is one of them.
    pub fn contains(&self, element: impl IntoAtom<A>) -> bool {
        self.atoms.binary_search(&element.into_atom()).is_ok()
    }
}

impl<A: Atomic> fmt::Debug for Elements<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(*self).finish()
    }
}

/// Elements one by one.
#[derive(Debug)]
pub struct ElementsIter<'a, A> {
    atoms: std::slice::Iter<'a, Atom>,
    of: PhantomData<fn() -> A>,
}

impl<'a, A: Atomic> Iterator for ElementsIter<'a, A> {
    type Item = A::Read<'a>;
    fn next(&mut self) -> Option<A::Read<'a>> {
        self.atoms.find_map(A::read)
    }
}

impl<'a, A: Atomic> IntoIterator for Elements<'a, A> {
    type Item = A::Read<'a>;
    type IntoIter = ElementsIter<'a, A>;
    fn into_iter(self) -> ElementsIter<'a, A> {
        ElementsIter { atoms: self.atoms.iter(), of: PhantomData }
    }
}

impl<'a, A: Atomic> IntoIterator for &Elements<'a, A> {
    type Item = A::Read<'a>;
    type IntoIter = ElementsIter<'a, A>;
    fn into_iter(self) -> ElementsIter<'a, A> {
        (*self).into_iter()
    }
}

/// The pairs of a map, sorted by key.
pub struct Pairs<'a, K, V> {
    keys: &'a [Atom],
    /// As many as there are keys.
    values: &'a [Atom],
    of: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Clone for Pairs<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Pairs<'_, K, V> {}

impl<'a, K: Atomic, V: Atomic> Pairs<'a, K, V> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The pairs, sorted by key as the database sorts them.
    pub fn iter(&self) -> PairsIter<'a, K, V> {
        self.into_iter()
    }

    /// The value for `key`.
    pub fn get(&self, key: impl IntoAtom<K>) -> Option<V::Read<'a>> {
        let at = self.keys.binary_search(&key.into_atom()).ok()?;
        V::read(self.values.get(at)?)
    }
}

impl<K: Atomic, V: Atomic> fmt::Debug for Pairs<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(*self).finish()
    }
}

/// Pairs one by one.
#[derive(Debug)]
pub struct PairsIter<'a, K, V> {
    pairs: std::iter::Zip<std::slice::Iter<'a, Atom>, std::slice::Iter<'a, Atom>>,
    of: PhantomData<fn() -> (K, V)>,
}

impl<'a, K: Atomic, V: Atomic> Iterator for PairsIter<'a, K, V> {
    type Item = (K::Read<'a>, V::Read<'a>);
    fn next(&mut self) -> Option<Self::Item> {
        self.pairs.find_map(|(key, value)| Some((K::read(key)?, V::read(value)?)))
    }
}

impl<'a, K: Atomic, V: Atomic> IntoIterator for Pairs<'a, K, V> {
    type Item = (K::Read<'a>, V::Read<'a>);
    type IntoIter = PairsIter<'a, K, V>;
    fn into_iter(self) -> PairsIter<'a, K, V> {
        PairsIter { pairs: self.keys.iter().zip(self.values), of: PhantomData }
    }
}

impl<'a, K: Atomic, V: Atomic> IntoIterator for &Pairs<'a, K, V> {
    type Item = (K::Read<'a>, V::Read<'a>);
    type IntoIter = PairsIter<'a, K, V>;
    fn into_iter(self) -> PairsIter<'a, K, V> {
        (*self).into_iter()
    }
}
