//! Packet buffers with offload marks, batches, header views and checksums.
//!
//! - [`buf`]: [`Packet`], a frame with room in front for headers, and what is still to be done to it ([`Offload`]).

pub mod buf;

pub use buf::{Batch, Checksum, Gso, GsoKind, Offload, Packet};
