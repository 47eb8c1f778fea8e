//! The seam to what forwards frames below the datapath: an [`Accelerator`] holds some of its verdicts, and frames that
//! these cover never reach a receive queue.
//!
//! Verdicts are about *plain* frames only: TCP or UDP over IPv4 or IPv6, without IP options, extension headers or fragments,
//! and with one VLAN tag of a customer (802.1Q) or none. Every other frame, and whatever no verdict covers, is received as
//! ever.
//!
//! - [`Verdict`]: what plain frames of each [`Network`] have in common, and where they go;
//! - [`Accelerator`]: takes and gives up verdicts, and counts;
//! - [`KernelPath`]: what an accelerator in the kernel has to know of a device.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::device::Netdev;

/// Words that say all of a plain frame, in this order; they stand as in a flow key:
///
/// 1. Ethernet destination (the upper 48 bits);
/// 2. Ethernet source, and in the lower 16 bits the control information of the VLAN tag, with bit 12 set, or 0 without one;
/// 3. flow label (IPv6 only, bits 32 to 51), TOS or traffic class with TTL or hop limit and protocol (the lower 24 bits);
/// 4. ports with TCP flags;
/// 5. addresses: one word of IPv4, four of IPv6.
pub const PLAIN_WORDS: usize = 8;

/// What plain frames have addresses of.
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

    /// How many of [`PLAIN_WORDS`] its frames have; the others are zero.
    pub const fn words(self) -> usize {
        match self {
            Self::Ipv4 => 5,
            Self::Ipv6 => PLAIN_WORDS,
        }
    }
}

/// A port of an accelerator, by a number of its own.
pub type AcceleratedPort = u16;

/// A verdict that an accelerator has, by a number of its own.
pub type Handle = u32;

/// What some plain frames of a network have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Common {
    /// Zero outside of the mask.
    pub key: [u64; PLAIN_WORDS],
    /// The bits of that which matter.
    pub mask: [u64; PLAIN_WORDS],
}

/// What becomes of a frame's VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tag {
    /// It stays, if there is one.
    #[default]
    Keep,
    /// A frame without one gets one, with this control information; bit 12 of it does not matter, and is 0 in the frame.
    Push(u16),
    /// It goes.
    Pop,
}

/// What becomes of some plain frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Where they come in.
    pub from: AcceleratedPort,
    /// Where they leave, as they are but for the tag.
    pub to: AcceleratedPort,
    /// What becomes of their tag: only frames without one get one, and only one that all of them have goes.
    pub tag: Tag,
    /// Which frames of each network, by its number; `None` for none.
    pub frames: [Option<Common>; Network::ALL.len()],
}

/// What a verdict has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forwarded {
    /// Packets; one that is to be segmented counts once.
    pub packets: u64,
    /// Bytes in them as they came in.
    pub bytes: u64,
    /// All TCP flags seen, or'ed.
    pub tcp_flags: u16,
    /// Milliseconds since the last one. Says nothing if there was none.
    pub idle_ms: u64,
}

/// Why a verdict was not taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum Refusal {
    /// It would be one too many.
    #[error("no room for another flow")]
    Full,
    /// Its mask would be one too many of its port and a network.
    #[error("no room for another mask")]
    TooManyMasks,
    /// Another with the same key and mask in a network is there.
    #[error("another flow has the same match")]
    Taken,
    /// The kernel refused it.
    #[error("the kernel refused it")]
    Failed,
}

/// How much an accelerator has, and how much it can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// Verdicts.
    pub flows: usize,
    /// Verdicts at most.
    pub flows_max: usize,
    /// Distinct masks, those of each port and network for themselves.
    pub masks: usize,
    /// Masks of a port and network at most.
    pub masks_max: usize,
}

/// Forwards frames by verdicts, before receive queues get them. Any thread may call its methods; none of them waits for
/// packets for longer than some milliseconds.
pub trait Accelerator: Send + Sync + Debug {
    /// What it is, for shows: one word.
    fn kind(&self) -> &'static str;

    /// Begins to look at the frames that come in by a device. An error says in a line why it cannot.
    fn port_add(&self, device: &Arc<dyn Netdev>) -> Result<AcceleratedPort, String>;

    /// Lets go of a device. No verdict from or to it may be left.
    fn port_del(&self, port: AcceleratedPort);

    /// Takes a verdict, for all networks that it tells of or for none; it counts from zero.
    fn put(&self, verdict: &Verdict) -> Result<Handle, Refusal>;

    /// Gives up verdicts, and tells of each, by its place among them, what it has done. From here on none of them forwards
    /// anything, and what is told is all that they ever did.
    fn remove(&self, handles: &[Handle], told: &mut dyn FnMut(usize, Forwarded));

    /// What a verdict has done so far.
    fn forwarded(&self, handle: Handle) -> Forwarded;

    /// Looks again at devices that changed; until then their frames are received as ever. To be called now and then.
    fn refresh(&self);

    /// How much there is.
    fn room(&self) -> Room;
}

/// A device as programs in the kernel see it.
pub trait KernelPath {
    /// The kernel's number of the device.
    fn ifindex(&self) -> u32;

    /// Has a BPF socket filter decide which frames the receive queues of the device get, those opened later too: it is to
    /// leave out frames that the host sends. Without one, they get all that come in.
    fn set_filter(&self, program: Option<BorrowedFd<'_>>) -> io::Result<()>;
}
