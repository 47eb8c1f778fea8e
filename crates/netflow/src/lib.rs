//! NetFlow version 5 (Cisco Systems, "NetFlow Export Datagram Format"): exports the traffic of IPv4 flows as records, in
//! packets for collectors.
//!
//! - [`record`]: flows, their traffic, and the layout of a record;
//! - [`exporter`]: the flow cache and the packets.
//!
//! This crate has no sockets and no clock: the caller passes counted traffic with its time to [`Exporter`], and sends the
//! packets that it returns.
//!
//! Invariants: all traffic is in exactly one record; a packet has 1 to [`exporter::RECORDS_MAX`] records; an exporter's
//! memory is bounded by [`exporter::FLOWS_MAX`] flows and one packet.

pub mod exporter;
pub mod record;

pub use exporter::{Config, Exporter, Now, Stats};
pub use record::{Flow, Output, Traffic};
