//! Ports: the trait that every network device implements, and the devices that need no kernel.
//!
//! A device ([`Netdev`]) is shared by the control plane, which asks it for status and counters and sets its address,
//! and is cheap to ask. Frames move through handles that a packet thread owns: an [`Rx`] for each receive queue and a
//! [`Tx`] for each thread, so that the packet path takes no lock that another thread holds. (The in-process devices
//! here lock a queue of frames; the devices of netdev-linux do not.)
//!
//! - [`device`]: the traits, what a send reports, and errors;
//! - [`status`]: link state, OpenFlow port features, counters;
//! - [`accelerate`]: the seam to what forwards frames below the datapath;
//! - [`change`]: who wants to hear of link changes;
//! - [`pool`]: frame buffers that a thread uses again;
//! - [`queue`]: a bounded queue of frames with a descriptor to poll;
//! - [`software`]: what a device cannot do of a frame's marks, done in software;
//! - [`pcap`]: capture files, read and written;
//! - [`dummy`]: Open vSwitch's `dummy` interfaces: injection by command, capture files, sockets between them;
//! - [`memory`]: two ports with a wire between them, a port that swallows, and a port that plays a capture file;
//! - [`fault`]: a wrapper that loses, repeats, reorders and cuts frames by a seed.

pub mod accelerate;
pub mod change;
pub mod device;
pub mod dummy;
pub mod fault;
pub mod memory;
pub mod pcap;
pub mod pool;
pub mod queue;
pub mod software;
pub mod status;

pub use accelerate::{Accelerator, KernelPath};
pub use change::Changes;
pub use device::{Netdev, NetdevError, Options, Rx, SendReport, Tx};
pub use status::{Duplex, Features, LinkStatus, NetdevStats, PortFeatures};
