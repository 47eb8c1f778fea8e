//! Ports of a datapath, for display.

use base::{DpPort, DropReason};
use netdev::Netdev;
use std::sync::Arc;

/// Statistics of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes in them.
    pub rx_bytes: u64,
    /// Packets that the device accepted.
    pub tx_packets: u64,
    /// Bytes in them.
    pub tx_bytes: u64,
    /// Batches sent to the device.
    pub tx_batches: u64,
    /// Packets received here and dropped, by reason.
    pub rx_drops: Vec<(DropReason, u64)>,
    /// Packets that the device dropped on output, by reason.
    pub tx_drops: Vec<(DropReason, u64)>,
}

/// A port in a list of ports.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// Its number.
    pub number: DpPort,
    /// Its device.
    pub device: Arc<dyn Netdev>,
    /// Its counters.
    pub stats: PortStats,
    /// Its receive queues, in order.
    pub queues: Vec<QueueInfo>,
}

/// A receive queue in a list of ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueInfo {
    /// The packet thread that polls it, by its [`crate::ThreadInfo::core_id`].
    pub core_id: Option<usize>,
    /// Whether it is polled: after a device error, a queue is disabled for a while.
    pub enabled: bool,
}
