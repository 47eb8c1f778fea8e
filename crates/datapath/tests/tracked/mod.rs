//! Random stateful pipelines, and packets of connections.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "a test program uses this")]

pub mod packets;
pub mod pipeline;
