//! Conditions whose columns and values are checked by the compiler.

use std::marker::PhantomData;

use ovsdb::condition::Function;

use super::value::{Ordered, Value};
use super::{Column, IntoColumn, Ref, Table};
use crate::condition;
use crate::idl::Idl;

/// A comparison of a column of table `T` with a value.
#[derive(Debug)]
pub struct Clause<T> {
    clause: condition::Clause,
    of: PhantomData<fn() -> T>,
}

impl<T: Table> Clause<T> {
    fn new(column: &str, function: Function, argument: ovsdb::Datum) -> Self {
        Self { clause: condition::Clause::new(column, function, argument), of: PhantomData }
    }
}

impl<T: Table> Ref<T> {
    /// The row is this one.
    pub fn is_it(self) -> Clause<T> {
        Clause::new("_uuid", Function::Equal, self.uuid().into())
    }
}

impl<T: Table, V: Value, M> Column<T, V, M> {
    fn compared(self, function: Function, value: impl IntoColumn<V>) -> Clause<T> {
        Clause::new(self.name(), function, value.into_datum())
    }

    /// The column has exactly this value.
    pub fn equals(self, value: impl IntoColumn<V>) -> Clause<T> {
        self.compared(Function::Equal, value)
    }

    /// The column has another value.
    pub fn differs(self, value: impl IntoColumn<V>) -> Clause<T> {
        self.compared(Function::NotEqual, value)
    }

    /// The column has all these elements, and perhaps others.
    pub fn includes(self, value: impl IntoColumn<V>) -> Clause<T> {
        self.compared(Function::Includes, value)
    }

    /// The column has none of these elements.
    pub fn excludes(self, value: impl IntoColumn<V>) -> Clause<T> {
        self.compared(Function::Excludes, value)
    }
}

impl<T: Table, V: Ordered, M> Column<T, V, M> {
    /// The column is less than this.
    pub fn below(self, value: impl IntoColumn<V>) -> Clause<T> {
        self.compared(Function::Less, value)
    }

    /// The column is this or less.
    pub fn at_most(self, value: impl IntoColumn<V>) -> Clause<T> {
        self.compared(Function::LessOrEqual, value)
    }

    /// The column is more than this.
    pub fn above(self, value: impl IntoColumn<V>) -> Clause<T> {
        self.compared(Function::Greater, value)
    }

    /// The column is this or more.
    pub fn at_least(self, value: impl IntoColumn<V>) -> Clause<T> {
        self.compared(Function::GreaterOrEqual, value)
    }
}

/// Which rows of table `T` are replicated.
#[derive(Debug)]
pub struct Condition<T> {
    condition: condition::Condition,
    of: PhantomData<fn() -> T>,
}

impl<T: Table> Condition<T> {
    /// Matches all rows until clauses are added.
    pub fn all(_: T) -> Self {
        Self { condition: condition::Condition::All, of: PhantomData }
    }

    /// No rows.
    pub fn none(_: T) -> Self {
        Self { condition: condition::Condition::none(), of: PhantomData }
    }

    /// Rows for which one of `clauses` holds; none, if there are no clauses.
    pub fn any_of(clauses: impl IntoIterator<Item = Clause<T>>) -> Self {
        let clauses = clauses.into_iter().map(|clause| clause.clause).collect();
        Self { condition: condition::Condition::AnyOf(clauses), of: PhantomData }
    }
}

impl Idl {
    /// Replicates other rows of a table from now on; see [`Idl::set_table_condition`].
    pub fn set_condition<T: Table>(&mut self, condition: Condition<T>) {
        self.set_table_condition(T::NAME, condition.condition);
    }
}
