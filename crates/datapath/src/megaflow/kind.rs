//! Which structure finds flows.

/// The type of a datapath's megaflow index, as configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IndexKind {
    /// [`super::TupleSpace`]. Its lookups count hits in shared cache lines.
    TupleSpace,
    /// [`super::Tree`]: measured to be faster whenever there is more than one mask (`examples/index.rs`).
    #[default]
    Tree,
}
