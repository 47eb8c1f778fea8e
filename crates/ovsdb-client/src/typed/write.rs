//! Values for writing: Rust values that convert to atoms and columns of a type.

use ovsdb::{Atom, Datum, Uuid};

use super::value::{Atomic, Enumeration, Map, Set};
use super::{Ref, Table};

/// A value that can be an atom of type `A`.
pub trait IntoAtom<A> {
    /// The atom.
    fn into_atom(self) -> Atom;
}

macro_rules! integers {
    ($($integer:ty)*) => {
        $(impl IntoAtom<i64> for $integer {
            fn into_atom(self) -> Atom {
                Atom::from(i64::from(self))
            }
        })*
    };
}

integers!(i64 i32 u32 i16 u16 u8);

impl IntoAtom<f64> for f64 {
    fn into_atom(self) -> Atom {
        Atom::from(self)
    }
}

impl IntoAtom<bool> for bool {
    fn into_atom(self) -> Atom {
        Atom::from(self)
    }
}

impl IntoAtom<String> for &str {
    fn into_atom(self) -> Atom {
        Atom::from(self)
    }
}

impl IntoAtom<String> for &String {
    fn into_atom(self) -> Atom {
        Atom::from(self.as_str())
    }
}

impl IntoAtom<String> for String {
    fn into_atom(self) -> Atom {
        Atom::from(self)
    }
}

impl IntoAtom<Uuid> for Uuid {
    fn into_atom(self) -> Atom {
        Atom::from(self)
    }
}

impl<T: Table> IntoAtom<Ref<T>> for Ref<T> {
    fn into_atom(self) -> Atom {
        Atom::from(self.uuid())
    }
}

impl<E: Enumeration> IntoAtom<E> for E {
    fn into_atom(self) -> Atom {
        Atom::from(self.name())
    }
}

/// A value that can be written to a column of type `V`: an atom to a scalar, an `Option` to an optional one, an
/// iterator of elements to a set, an iterator of pairs to a map.
pub trait IntoColumn<V> {
    /// The datum.
    fn into_datum(self) -> Datum;
}

impl<A: Atomic, S: IntoAtom<A>> IntoColumn<A> for S {
    fn into_datum(self) -> Datum {
        Datum::scalar(self.into_atom())
    }
}

impl<A: Atomic, S: IntoAtom<A>> IntoColumn<Option<A>> for Option<S> {
    fn into_datum(self) -> Datum {
        self.map_or_else(Datum::empty, |atom| Datum::scalar(atom.into_atom()))
    }
}

impl<A: Atomic, I: IntoIterator> IntoColumn<Set<A>> for I
where
    I::Item: IntoAtom<A>,
{
    fn into_datum(self) -> Datum {
        Datum::set(self.into_iter().map(IntoAtom::into_atom))
    }
}

impl<K: Atomic, V: Atomic, L: IntoAtom<K>, W: IntoAtom<V>, I> IntoColumn<Map<K, V>> for I
where
    I: IntoIterator<Item = (L, W)>,
{
    fn into_datum(self) -> Datum {
        Datum::map(self.into_iter().map(|(key, value)| (key.into_atom(), value.into_atom())))
    }
}
