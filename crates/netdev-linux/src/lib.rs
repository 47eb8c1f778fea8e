//! Ports of the Linux kernel.
//!
//! - [`host`]: [`Linux`], which opens devices and monitors links;
//! - [`system`]: any Ethernet device of the kernel, over packet sockets;
//! - [`internal`]: tap devices of this process, such as the local port of a bridge;
//! - `elastic`: a receive queue that uses a ring under load (`rate` decides when, `worker` is the thread that creates
//!   it), and otherwise reads the socket's own `queue`; `receive`: receiving through a ring, and state shared by all
//!   receive sockets of a device;
//! - `ring`: the memory that the kernel writes received frames to; `transmit`: sending over a packet socket;
//! - `vnet`: the virtio-net header, which carries offload flags in both directions;
//! - [`netlink`] and [`ethtool`]: link state, addresses, counters, speeds;
//! - [`psample`]: samples for collectors on this host;
//! - [`routes`]: routes, rules, addresses and neighbours, dumped and followed;
//! - `qos`: queueing disciplines and classes for rows of the tables QoS and Queue; `tc`: their netlink messages;
//! - [`abilities`]: XDP features of drivers, and the choice of I/O for ports of type `system`;
//! - [`bpf`]: BPF programs and maps, for crates above this one;
//! - `explain`: error texts that name missing capabilities;
//! - `sys`: the system calls that need `unsafe`, each behind a safe function.
//!
//! This is one of the few crates with `unsafe`: in `sys`, `queue`, `ring`, `transmit` and `bpf` only.
//!
//! # Choice of system calls
//!
//! Frames of a veth arrive with partial checksums and up to 64 KiB long. Packet sockets with `PACKET_VNET_HDR` preserve
//! both offload flags; AF_XDP does not (`netdev-afxdp` has ports over AF_XDP, whose link is a [`System`] of this
//! crate). At low rates, `recvmmsg` reads received frames from the socket's queue directly into their buffers, which
//! takes no memory while no frames arrive. At high rates, frames of regular size come through a TPACKET_V2 ring, which
//! takes the receiving thread little more than half the time. TPACKET_V2 delivers each frame at once (TPACKET_V3
//! delivers a block when it is full or when a timer of at least a millisecond expires, a delay that every round trip
//! would pay). Larger frames are read from the socket directly into their buffer.
//!
//! Sending uses `sendmmsg`, which accepts frames of any length and reports the result of each. A transmit ring was
//! measured to cost a third less CPU for frames of 60 bytes and nothing less from 1,500 bytes on. It cannot hold a
//! frame of 64 KiB in slots of reasonable size, and does not check the MTU of frames with virtio-net headers.
//! `PACKET_QDISC_BYPASS` made no difference on a veth.

pub mod abilities;
pub mod bpf;
mod elastic;
pub mod ethtool;
mod explain;
pub mod host;
pub mod internal;
mod link;
pub mod netlink;
pub mod psample;
mod qos;
mod queue;
mod rate;
mod receive;
mod ring;
pub mod routes;
mod sys;
pub mod system;
mod tc;
mod transmit;
pub mod tsc;
mod vnet;
mod worker;

pub use host::Linux;
pub use internal::Internal;
pub use system::{IO, System};
