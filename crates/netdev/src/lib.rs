//! Ports: the trait of network devices, and the devices that need no kernel.
//!
//! The control plane shares a device ([`Netdev`]): it reads status and counters, which is cheap, and configures it.
//! Frames move through handles that a packet thread owns: an [`Rx`] for each receive queue and a [`Tx`] for each
//! thread, so that the packet path takes no contended lock. (The in-process devices here lock a queue of frames; the
//! devices of netdev-linux do not.)
//!
//! - [`device`]: the traits, send reports, and errors;
//! - [`status`]: link state, OpenFlow port features, counters;
//! - [`accelerate`]: the interface of accelerators, which forward frames below the datapath;
//! - [`change`]: notification about link changes;
//! - [`pool`]: frame buffers that a thread reuses;
//! - [`queue`]: a bounded queue of frames with a descriptor to poll;
//! - [`software`]: checksums and segmentation in software, for devices without offloads;
//! - [`pcap`]: reads and writes capture files;
//! - [`dummy`]: Open vSwitch's `dummy` interfaces: injection by command, capture files, sockets between them;
//! - [`memory`]: two ports connected by a wire, a port that discards frames, and a port that replays a capture file;
//! - [`qos`]: queues, shaping and policing, by the kernel or in userspace;
//! - [`queueless`]: a port without queues, for tunnels;
//! - [`fault`]: a wrapper that loses, duplicates, reorders and truncates frames.

pub mod accelerate;
pub mod change;
pub mod device;
pub mod dummy;
pub mod fault;
pub mod memory;
pub mod pcap;
pub mod pool;
pub mod qos;
pub mod queue;
pub mod queueless;
pub mod software;
pub mod status;

pub use accelerate::{Accelerator, KernelPath};
pub use change::Changes;
pub use device::{Netdev, NetdevError, NetdevErrorKind, Options, Rx, SendReport, Tx};
pub use queueless::Queueless;
pub use status::{Duplex, Features, LinkStatus, NetdevStats, PortFeatures, offloads};
