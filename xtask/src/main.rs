//! Checks that the tree keeps its own rules: crate levels, file habits.

fn main() {}
