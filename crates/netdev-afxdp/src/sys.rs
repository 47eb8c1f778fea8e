//! The system call that `rustix` has no safe function for: one socket option.

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `setsockopt` of level `SOL_XDP`: frames that one call sends at most in copy mode (Linux 6.17).
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;

/// Has a call send up to `frames` frames in copy mode, instead of 32.
pub(crate) fn set_send_budget(socket: BorrowedFd<'_>, frames: u32) -> io::Result<()> {
    let len = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the value lives through the call and `len` is its size.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, (&raw const frames).cast(), len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
