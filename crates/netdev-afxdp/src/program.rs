//! The XDP program: redirects frames of a queue with a socket to that socket, and passes other frames to the kernel.
//!
//! ```text
//! r2 = ctx->rx_queue_index
//! r1 = sockets
//! r3 = XDP_PASS
//! r0 = bpf_redirect_map(r1, r2, r3)    the socket of the queue, or else what r3 says
//! return r0
//! ```
//!
//! It is attached by a BPF link, which is a descriptor of the process: closing it, explicitly or at the end of the
//! process, detaches the program.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use netdev_linux::bpf::asm::{Op, Width};
use netdev_linux::bpf::{self, Assembler, Helper, Point, ProgramKind, Reg, XskMap};

use crate::config::Mode;

/// Offset of the receive queue in `struct xdp_md` (linux/bpf.h).
const RX_QUEUE_INDEX_AT: i16 = 16;
const XDP_PASS: i32 = 2;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// A loaded program with its map of sockets.
#[derive(Debug)]
pub(crate) struct Program {
    program: OwnedFd,
    sockets: XskMap,
}

/// A program on a device, until this is dropped.
#[derive(Debug)]
pub(crate) struct Attached {
    _link: OwnedFd,
    /// The kernel keeps program and map as long as the link; the map would do without us.
    _program: Program,
}

/// The instructions, for a map with this descriptor.
fn instructions(sockets: i32) -> Vec<u8> {
    Assembler::default()
        .load(Width::U32, Reg::R2, Reg::R1, RX_QUEUE_INDEX_AT)
        .map(Reg::R1, sockets)
        .constant(Op::Mov, Reg::R3, XDP_PASS)
        .call(Helper::RedirectMap)
        .exit()
        .finish()
}

impl Program {
    /// Loads it for queues below `queues`.
    pub(crate) fn load(queues: u32) -> io::Result<Self> {
        let sockets = XskMap::new(queues)?;
        let instructions = instructions(sockets.descriptor());
        let load = |pieces| bpf::load(ProgramKind::Xdp { pieces }, &instructions, "flowstone_xdp");
        let program = match load(true) {
            // Linux before 5.18 does not know of pieces.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => load(false)?,
            other => other?,
        };
        Ok(Self { program, sockets })
    }

    /// Redirects frames of a queue to a socket.
    pub(crate) fn set_socket(&self, queue: u32, socket: impl AsFd) -> io::Result<()> {
        self.sockets.set(queue, socket.as_fd())
    }

    /// Attaches the program. An error returns it.
    pub(crate) fn attach(self, ifindex: u32, mode: Mode) -> Result<Attached, (Self, io::Error)> {
        let flags = if mode == Mode::Generic { XDP_FLAGS_SKB_MODE } else { XDP_FLAGS_DRV_MODE };
        match bpf::attach(self.program.as_fd(), ifindex, Point::Xdp(flags)) {
            Ok(link) => Ok(Attached { _link: link, _program: self }),
            Err(e) => Err((self, e)),
        }
    }
}
