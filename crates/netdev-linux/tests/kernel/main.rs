//! Real frames through kernel devices; needs root, `ip` and python3. Each test creates veth pairs and network
//! namespaces with unique names, and removes them.

mod net;
mod python;
mod routes;
mod traffic;
mod veth;
