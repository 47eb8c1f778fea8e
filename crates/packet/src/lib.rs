//! Packet buffers with offload flags, batches, header views and checksums.
//!
//! - [`buf`]: [`Packet`], a frame with headroom, and its offload flags ([`Offload`]).
//! - [`metadata`]: metadata that few packets have: marks of the host, tunnels, connections.
//! - [`lent`]: device memory that packets borrow.
//! - [`wire`]: headers as checked views and as values, one file for each protocol.
//! - [`mod@checksum`]: Internet checksums, full and incremental, and CRC32c; [`mod@segment`]: segmentation in software;
//!   [`mod@join`]: its inverse; [`mod@fragment`]: fragments of IP packets.

pub mod buf;
pub mod checksum;
pub mod fragment;
pub mod join;
pub mod lent;
pub mod metadata;
pub mod segment;
pub mod wire;

pub use buf::{Batch, Checksum, Gso, GsoKind, Offload, Outer, Packet};
pub use lent::Lent;
pub use metadata::Metadata;
