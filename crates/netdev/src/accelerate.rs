//! The interface of accelerators, which forward frames below the datapath: an [`Accelerator`] holds some of the
//! datapath's verdicts, and frames that these cover never reach a receive queue.
//!
//! Verdicts apply to *plain* frames only: TCP or UDP over IPv4 or IPv6, without IP options, extension headers or
//! fragments, and with at most one customer VLAN tag (802.1Q). All other frames, and frames without a verdict, are
//! received as usual.
//!
//! - [`Verdict`]: a match on the plain frames of each [`Network`], and their output port;
//! - [`Accelerator`]: accepts and removes verdicts, and counts packets;
//! - [`KernelPath`]: the properties of a device that an accelerator in the kernel needs.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::device::Netdev;

/// Number of words that describe a plain frame. Their layout is that of a flow key:
///
/// 1. Ethernet destination (the upper 48 bits);
/// 2. Ethernet source, and in the lower 16 bits the TCI of the VLAN tag with bit 12 set, or 0 without a tag;
/// 3. flow label (IPv6 only, bits 32 to 51), TOS or traffic class with TTL or hop limit and protocol (the lower 24 bits);
/// 4. ports with TCP flags;
/// 5. addresses: one word for IPv4, four for IPv6.
pub const PLAIN_WORDS: usize = 8;

/// The network protocol of a plain frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Network {
    /// RFC 791.
    Ipv4,
    /// RFC 8200.
    Ipv6,
}

impl Network {
    /// Each, by its number.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// How many of the [`PLAIN_WORDS`] its frames use; the others are zero.
    pub const fn words(self) -> usize {
        match self {
            Self::Ipv4 => 5,
            Self::Ipv6 => PLAIN_WORDS,
        }
    }
}

/// An accelerator's number of a port.
pub type AcceleratedPort = u16;

/// An accelerator's number of a verdict.
pub type Handle = u32;

/// A match on plain frames of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Common {
    /// Zero outside of the mask.
    pub key: [u64; PLAIN_WORDS],
    /// The bits that are compared.
    pub mask: [u64; PLAIN_WORDS],
}

/// What a verdict does with the VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tag {
    /// Leaves it as it is.
    #[default]
    Keep,
    /// Pushes a tag with this TCI; its bit 12 is ignored, and is 0 in the frame.
    Push(u16),
    /// Pops the tag.
    Pop,
}

/// A verdict on some plain frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The ingress port.
    pub from: AcceleratedPort,
    /// The output port. Frames are sent unchanged except for the tag.
    pub to: AcceleratedPort,
    /// What to do with the tag. Only untagged frames get a tag, and only a tag that all of the frames have is popped.
    pub tag: Tag,
    /// The match on frames of each network, indexed by its number; `None` for no frames.
    pub frames: [Option<Common>; Network::ALL.len()],
}

/// Statistics of a verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forwarded {
    /// Packets; a GSO packet counts once.
    pub packets: u64,
    /// Bytes of the packets as received.
    pub bytes: u64,
    /// All TCP flags seen, combined with OR.
    pub tcp_flags: u16,
    /// Milliseconds since the last packet. Undefined if there was none.
    pub idle_ms: u64,
}

/// Why an accelerator refused a verdict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum Refusal {
    /// The limit on verdicts is reached.
    #[error("no room for another flow")]
    Full,
    /// The limit on masks of its port and a network is reached.
    #[error("no room for another mask")]
    TooManyMasks,
    /// A verdict with the same key and mask in a network exists.
    #[error("another flow has the same match")]
    Taken,
    /// The kernel refused it.
    #[error("the kernel refused it")]
    Failed,
}

/// The current number of verdicts and masks of an accelerator, and their limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capacity {
    /// Verdicts.
    pub flows: usize,
    /// Verdicts at most.
    pub flows_max: usize,
    /// Distinct masks, counted separately for each port and network.
    pub masks: usize,
    /// Limit on the masks of a port and network.
    pub masks_max: usize,
}

/// Forwards frames by verdicts before they reach receive queues. Any thread may call its methods, which wait for
/// packets in flight for a few milliseconds at most.
pub trait Accelerator: Send + Sync + Debug {
    /// Its type, for status output: one word.
    fn kind(&self) -> &'static str;

    /// Starts to process the frames that a device receives. The error says in one line why it cannot.
    fn port_add(&self, device: &Arc<dyn Netdev>) -> Result<AcceleratedPort, String>;

    /// Stops processing a device's frames. The caller must first remove all verdicts from and to it.
    fn port_del(&self, port: AcceleratedPort);

    /// Installs a verdict, for all of its networks or for none. Its counters start at zero.
    fn put(&self, verdict: &Verdict) -> Result<Handle, Refusal>;

    /// Removes verdicts and reports the final statistics of each, with its index in `handles`. Once this returns, none
    /// of them forwards a frame any more.
    fn remove(&self, handles: &[Handle], report: &mut dyn FnMut(usize, Forwarded));

    /// The statistics of a verdict.
    fn forwarded(&self, handle: Handle) -> Forwarded;

    /// Reinstalls itself on devices that changed; until then their frames are received as usual. Call it periodically.
    fn refresh(&self);

    /// The current usage and the limits.
    fn capacity(&self) -> Capacity;
}

/// The kernel's view of a device.
pub trait KernelPath {
    /// The kernel's interface index.
    fn ifindex(&self) -> u32;

    /// Attaches a BPF socket filter to all receive queues of the device, present and future. The program must drop
    /// frames that the host sends. With `None`, the queues receive all incoming frames.
    fn set_filter(&self, program: Option<BorrowedFd<'_>>) -> io::Result<()>;
}
