//! Real frames through devices of the kernel: needs root, `ip` and python3. Each test makes veth pairs and network
//! namespaces with names of its own and removes them.

mod net;
mod python;
mod traffic;
mod veth;
