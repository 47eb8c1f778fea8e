//! The one binary: `flowstone run`, and every `ovs-*` name through its own name.

fn main() {}
