//! Address translation.
pub mod rewrite;
pub mod select;
