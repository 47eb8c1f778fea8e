//! Ports of the Linux kernel over AF_XDP sockets (Linux Documentation/networking/af_xdp.rst): interface type `afxdp`.
//!
//! - [`device`]: [`AfXdp`], the port; opens program and sockets in the best mode that works;
//! - [`config`]: the options of an Interface row;
//! - `program`: the XDP program, by `netdev_linux::bpf`; `explain`: what errors mean;
//! - `socket`: one socket on one queue; `receive` and `send`: its two sides;
//! - `arena`: umems that sockets share, and the frames in them that are free;
//! - `memory`: rings and frames shared with the kernel; `index` and `frames`: the arithmetic of ownership, without
//!   memory;
//! - [`partial_checksum`]: frames whose checksums a local sender left to the device.
//!
//! This is one of the few crates with `unsafe`: in `sys` and `memory`, and in `frames` where the right to a frame is made.
//!
//! # Own rings, own program
//!
//! The rings are a page of arithmetic; the libraries for them want libbpf or cannot do several pieces a frame. The
//! program is five instructions, so there is nothing that a compiler or a loader of object files would be needed for: it
//! is assembled by `netdev_linux::bpf` and given to bpf(2) as it stands in `program`.
//!
//! # Memory
//!
//! Sockets share a umem (`XDP_SHARED_UMEM`), each with a fill and a completion ring of its own, whatever their devices and
//! queues. A frame that one received becomes a packet where it lies ([`packet::Lent`]), and is put into the transmit ring of
//! another as it is: the address in a descriptor need not be a frame's beginning, so headers that were pushed or popped
//! meanwhile, into the room that XDP leaves in front (256 bytes), do not matter. It is free again when that one's completion
//! ring names it, or when the packet is dropped, on whatever thread.
//!
//! - A frame has one owner, who holds the right to it, a value that cannot be copied (`frames`). A removed port
//!   does not invalidate frames of others: the kernel keeps the umem for as long as any of its sockets exists, and we
//!   keep our mapping of it for good.
//! - Receiving never waits for owners of packets. Kept packets are copied out of the umem (`netdev::pool::keep`: misses
//!   that wait for a handler, queues between threads), and at receiving while few frames are free.
//! - Copied as well are frames that are short (`receive::MOVED_LEN_MIN`, measured), those in several pieces, and those that
//!   lie in another umem or in none.

pub mod config;
pub mod device;
pub mod partial_checksum;

mod arena;
mod explain;
mod frames;
mod index;
mod mapping;
mod memory;
mod program;
mod receive;
mod send;
#[cfg(test)]
mod sharing_tests;
mod socket;
mod sys;
#[cfg(test)]
mod tests;

pub use config::{Config, Mode};
pub use device::AfXdp;
