//! Counters of upcalls.

use base::DpPort;

/// Upcalls of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortUpcalls {
    /// Packets that wait now.
    pub waiting: u64,
    /// Most packets that ever waited.
    pub waiting_max: u64,
    /// Packets queued so far.
    pub queued: u64,
    /// Packets taken out of the queues to be served.
    pub served: u64,
    /// Packets dropped because the queues were full.
    pub dropped: u64,
}

/// Counters of a handler thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandlerStats {
    /// Packets served.
    pub packets: u64,
    /// Batches served.
    pub batches: u64,
    /// Nanoseconds spent on these packets.
    pub busy_ns: u64,
    /// Panics of the upcall handler, each of which lost the rest of a batch.
    pub panics: u64,
}

/// Upcalls by port and by server.
#[derive(Clone, Debug, Default)]
pub struct UpcallStats {
    /// Ports that ever had upcalls.
    pub ports: Vec<(DpPort, PortUpcalls)>,
    /// Handler threads; without threads, the caller of `run_once`.
    pub handlers: Vec<HandlerStats>,
    /// Misses that packet threads handled themselves.
    pub here: HandlerStats,
}
