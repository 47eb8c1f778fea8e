//! Flow monitoring: a bridge's sFlow agent and its NetFlow exporter.
//!
//! - [`sflow`]: samples from packet threads, counters of ports;
//! - [`netflow`]: traffic of cached flows, when their statistics are pushed and when they go;
//! - [`worker`]: the thread that fills datagrams and sends them;
//! - [`collector`]: the sockets.
//!
//! Packet threads only copy the first bytes of a sampled packet into a bounded queue. Samples that find it full count as
//! lost. No traffic of NetFlow is lost like that: it is added up where statistics are pushed.

pub(crate) mod collector;
pub(crate) mod netflow;
pub(crate) mod sflow;
mod worker;

pub use netflow::NetflowSettings;
pub use sflow::SflowSettings;
pub(crate) use worker::ExportWorker;

use std::time::Duration;

/// How long a thread of exporters rests when it has done its jobs. Meanwhile packet threads need not wake it, which would cost them
/// more than the rest of a sample.
pub(crate) const REST: Duration = Duration::from_millis(5);

/// Counters of an exporter, for `sflow/show` and `netflow/show`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExportCounters {
    /// Datagrams that collectors' sockets accepted.
    pub sent: u64,
    /// Datagrams that they did not accept, or that had no collector.
    pub send_errors: u64,
    /// Samples or datagrams that were dropped because a queue was full.
    pub lost: u64,
}
