//! IPFIX (RFC 7011, RFC 7012): packets that were sampled become flow records, in messages for collectors.
//!
//! - [`template`]: which information elements a record has, by what the packet is;
//! - [`observation`]: a sampled packet, as far as records tell of it;
//! - [`exporter`]: the flow cache and the messages.
//!
//! Templates, their numbers and what is counted are those of Open vSwitch 3.1, so that collectors see no difference.
//! Nothing here has a socket or a clock: [`Exporter`] is told what was sampled and when, and says what is to be sent.
//!
//! Invariants: a record is laid out as the template of its set says; an exporter's memory is bounded by the flows that
//! it may cache ([`exporter::FLOWS_MAX`] at most); every packet that it is told of is in just one record.

pub mod exporter;
pub mod observation;
pub mod template;

pub use exporter::{Config, Exporter, Stats};
pub use observation::{Direction, Interface, Observation, Place, Tunnel, TunnelKind};

/// A moment in microseconds since the beginning of 1970, UTC: messages tell such.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// Microseconds in a second.
    pub const SECOND: u64 = 1_000_000;

    /// The moment so much later.
    #[must_use]
    pub fn after(self, micros: u64) -> Self {
        Self(self.0.saturating_add(micros))
    }
}
