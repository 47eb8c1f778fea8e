//! Ports of the Linux kernel over AF_XDP sockets (Linux Documentation/networking/af_xdp.rst): interface type `afxdp`.
//!
//! - [`device`]: [`AfXdp`], the port; opens program and sockets in the best mode that works;
//! - [`config`]: what an Interface row asks for;
//! - `program`: the XDP program, by `netdev_linux::bpf`; `explain`: what errors mean;
//! - `socket`: one socket on one queue; `receive` and `send`: its two sides;
//! - `memory`: rings and frames shared with the kernel; `index` and `frames`: the arithmetic of who has what, without
//!   memory;
//! - [`unfinished`]: frames whose checksums a local sender left undone.
//!
//! This is one of the few crates with `unsafe`: in `sys` and `memory`, and in `receive` and `send` where they touch a
//! frame.
//!
//! # Own rings, own program
//!
//! The rings are a page of arithmetic; the libraries for them want libbpf or cannot do several pieces a frame. The
//! program is five instructions, so there is nothing that a compiler or a loader of object files would be needed for: it
//! is assembled by `netdev_linux::bpf` and given to bpf(2) as it stands in `program`.
//!
//! # Memory, and what may come
//!
//! Each socket has a umem of its own, half for receiving, half for sending, and each frame is copied once in and once
//! out. To forward between ports by moving descriptors, without a copy, the sockets of one packet thread would share a
//! umem (`XDP_SHARED_UMEM`), and a packet would carry the frame that it lies in. What is there is made for that: frames
//! are numbered within a umem, `frames::Frames` has a range of them, and a frame taken back by one side may be lent by
//! another that has the same. What is missing is a packet buffer that is not a vector, and a way home for frames of
//! packets that are dropped.

pub mod config;
pub mod device;
pub mod unfinished;

mod explain;
mod frames;
mod index;
mod memory;
mod program;
mod receive;
mod send;
mod socket;
mod sys;
#[cfg(test)]
mod tests;

pub use config::{Config, Mode};
pub use device::AfXdp;
