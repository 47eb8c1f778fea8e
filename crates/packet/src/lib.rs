//! Packet buffers with offload marks, batches, header views and checksums.
//!
//! - [`buf`]: [`Packet`], a frame with room in front for headers, and what is still to be done to it ([`Offload`]).
//! - [`lent`]: memory of devices that frames lie in.
//! - [`wire`]: headers as checked views and as values, one file a protocol.
//! - [`mod@checksum`]: Internet checksums, full and incremental, and CRC32c; [`mod@segment`]: segmentation in software.

pub mod buf;
pub mod checksum;
pub mod lent;
pub mod segment;
pub mod wire;

pub use buf::{Batch, Checksum, Gso, GsoKind, Offload, Packet};
pub use lent::Lent;
