//! Ports of the Linux kernel.
//!
//! - [`host`]: [`Linux`], where devices are opened, and which hears of link changes;
//! - [`system`]: any Ethernet device of the kernel, over a packet socket;
//! - [`internal`]: a tap device of our own, the local port of a bridge;
//! - `elastic`: a receive queue that has a ring while there is much to do (`pace` says when, `workshop` is where it is made),
//!   and otherwise reads the socket's own `queue`; `receive`: through a ring, and what all receive sockets of a device share;
//! - `ring`: the memory that the kernel writes received frames to; `transmit`: sending over a packet socket;
//! - `vnet`: the virtio-net header that carries offload marks both ways;
//! - [`netlink`] and [`ethtool`]: link state, addresses, counters, speeds;
//! - [`abilities`]: what drivers can do with XDP, and what ports of type `system` make of that;
//! - [`bpf`]: programs and maps for the kernel, for crates above;
//! - `explain`: what a process lacks that is refused something;
//! - `sys`: the system calls that need `unsafe`, each behind a safe function.
//!
//! This is one of the few crates with `unsafe`: in `sys`, `queue`, `ring`, `transmit` and `bpf` only.
//!
//! # Why these system calls
//!
//! Frames of a veth come with unfinished checksums and up to 64 KiB long. Packet sockets with `PACKET_VNET_HDR` keep
//! both marks; AF_XDP does not (`netdev-afxdp` has ports over that, whose link is a [`System`] of this crate). Where there is
//! little to do, received frames are taken out of the socket's queue by `recvmmsg`, straight into their buffers, which takes
//! no memory while none comes. Where there is much, those of usual size come through a TPACKET_V2 ring, for which the receiving
//! thread takes little more than half the time. It shows each frame at once (TPACKET_V3 shows a block when it is full or a timer
//! of at least a millisecond ends, which every round trip would pay); larger ones are read from the socket straight into their
//! buffer.
//!
//! Sending uses `sendmmsg`, which takes frames of any length and tells of each what became of it. A transmit ring was
//! measured to cost a third less CPU for frames of 60 bytes and nothing less from 1,500 bytes on; it cannot hold a
//! frame of 64 KiB in slots of useful size, and checks no MTU when frames carry virtio-net headers.
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
mod pace;
mod queue;
mod receive;
mod ring;
mod sys;
pub mod system;
mod transmit;
pub mod tsc;
mod vnet;
mod workshop;

pub use host::Linux;
pub use internal::Internal;
pub use system::{IO, System};
