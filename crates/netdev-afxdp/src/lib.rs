//! Ports of the Linux kernel over AF_XDP sockets (Linux Documentation/networking/af_xdp.rst): interface type `afxdp`.
//!
//! - [`device`]: [`AfXdp`], the port; opens program and sockets in the best mode that works;
//! - [`config`]: the options of an Interface row;
//! - `program`: the XDP program, by `netdev_linux::bpf`; `explain`: explanations of errors;
//! - `socket`: one socket on one queue; `receive` and `send`: its two sides;
//! - `arena`: umems that sockets share, and their free frames;
//! - `memory`: rings and frames shared with the kernel; `index` and `frames`: the arithmetic of ownership, without
//!   memory;
//! - [`partial_checksum`]: frames whose checksums a local sender left to the device.
//!
//! This is one of the few crates with `unsafe`: in `sys` and `memory`, and in `frames`, where ownership of a frame is
//! created.
//!
//! # Own rings, own program
//!
//! The rings are a page of arithmetic; libraries for them depend on libbpf or do not support several pieces a frame.
//! The program is five instructions, so neither a compiler nor a loader of object files is needed:
//! `netdev_linux::bpf` assembles it and passes it to bpf(2).
//!
//! # Memory
//!
//! Sockets share a umem (`XDP_SHARED_UMEM`), each with a fill and a completion ring of its own, whatever their
//! devices and queues. A received frame becomes a packet in place ([`packet::Lent`]), and is put into the transmit
//! ring of another socket as it is: the address in a descriptor need not be a frame's beginning, so headers may be
//! pushed or popped meanwhile, within the headroom of XDP (256 bytes). The frame is free again when that socket's
//! completion ring returns it, or when the packet is dropped, on any thread.
//!
//! - A frame has one owner, the holder of a value that cannot be copied (`frames`). A removed port does not
//!   invalidate frames of others: the kernel keeps the umem as long as any of its sockets exists, and the process
//!   keeps its mapping until it ends.
//! - Receiving never waits for owners of packets. Kept packets are copied out of the umem (`netdev::pool::keep`:
//!   misses that wait for a handler, queues between threads), and on reception while few frames are free.
//! - Short frames (`receive::MOVED_LEN_MIN`, measured), frames in several pieces, and frames in another umem or in
//!   none are copied as well.

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
