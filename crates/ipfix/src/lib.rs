//! IPFIX (RFC 7011, RFC 7012): exports sampled packets as flow records, in messages for collectors.
//!
//! - [`template`]: the information elements of a record, by packet type;
//! - [`observation`]: the properties of a sampled packet that records contain;
//! - [`exporter`]: the flow cache and the messages.
//!
//! Templates, their ids and the counters are those of Open vSwitch 4.0, so that collectors see no difference. This
//! crate has no sockets and no clock: the caller passes samples with their time to [`Exporter`], and sends the messages
//! that it returns.
//!
//! Invariants: a record has the layout of its set's template; an exporter's memory is bounded by the flows that it may
//! cache (at most [`exporter::FLOWS_MAX`]); every observed packet is in exactly one record.

pub mod exporter;
pub mod observation;
pub mod template;

pub use exporter::{Config, Exporter, INTERVAL_SECS, Stats};
pub use observation::{Direction, Interface, Observation, ObservationPoint, Tunnel, TunnelKind};

/// A time in microseconds since the beginning of 1970, UTC, as in messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// Microseconds in a second.
    pub const SECOND: u64 = 1_000_000;

    /// The time `micros` later.
    #[must_use]
    pub fn after(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }
}
