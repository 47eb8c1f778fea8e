//! The system calls that `rustix` has no safe function for: bpf(2), and one socket option.

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const BPF_MAP_CREATE: c_int = 0;
const BPF_MAP_UPDATE_ELEM: c_int = 2;
const BPF_PROG_LOAD: c_int = 5;
const BPF_LINK_CREATE: c_int = 28;

/// `setsockopt` of level `SOL_XDP`: frames that one call sends at most in copy mode (Linux 6.17).
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;

/// Bytes of a name of a map or program, with the zero at its end.
pub(crate) const BPF_NAME_LEN: usize = 16;

/// A name in the form that the kernel takes.
pub(crate) const fn bpf_name(text: &[u8]) -> [u8; BPF_NAME_LEN] {
    let mut name = [0; BPF_NAME_LEN];
    let mut i = 0;
    while i < text.len() && i < BPF_NAME_LEN - 1 {
        name[i] = text[i];
        i += 1;
    }
    name
}

/// The attributes of a command of bpf(2): the beginning of `union bpf_attr` (linux/bpf.h), zero from there on.
///
/// # Safety
/// The type must be laid out as the kernel's structure of [`Attributes::COMMAND`], without padding, and its addresses
/// must be those of memory that the kernel may access as that command does, for as long as the value lives.
unsafe trait Attributes {
    const COMMAND: c_int;
}

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; BPF_NAME_LEN],
}

// SAFETY: the layout of the kernel's structure for this command, words and a name; it holds no address.
unsafe impl Attributes for MapCreate {
    const COMMAND: c_int = BPF_MAP_CREATE;
}

#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

// SAFETY: the layout of the kernel's structure for this command; `XskMap::set`, which alone makes one, has the addresses
// from what lives through the call, four bytes each, as the map was made for.
unsafe impl Attributes for MapUpdate {
    const COMMAND: c_int = BPF_MAP_UPDATE_ELEM;
}

#[repr(C)]
struct ProgramLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; BPF_NAME_LEN],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

// SAFETY: the layout of the kernel's structure for this command; `load_program`, which alone makes one, has the addresses
// from what it borrows during the call.
unsafe impl Attributes for ProgramLoad {
    const COMMAND: c_int = BPF_PROG_LOAD;
}

#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

// SAFETY: the layout of the kernel's structure for this command, four words; it holds no address.
unsafe impl Attributes for LinkCreate {
    const COMMAND: c_int = BPF_LINK_CREATE;
}

/// Carries out a command; the result is a descriptor or 0, as the command has it.
fn bpf<A: Attributes>(attributes: &A) -> io::Result<c_int> {
    // SAFETY: the attributes live through the call, are as long as we say, and are what the command takes by the
    // contract of the trait.
    let result = unsafe { libc::syscall(libc::SYS_bpf, A::COMMAND, std::ptr::from_ref(attributes), size_of::<A>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as c_int) }
}

fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: the descriptor was just made by the kernel and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A map from queue numbers to AF_XDP sockets.
#[derive(Debug)]
pub(crate) struct XskMap(OwnedFd);

impl XskMap {
    /// For the queues below `entries`.
    pub(crate) fn new(entries: u32) -> io::Result<Self> {
        const BPF_MAP_TYPE_XSKMAP: u32 = 17;
        let attributes = MapCreate {
            map_type: BPF_MAP_TYPE_XSKMAP,
            key_size: 4,
            value_size: 4,
            max_entries: entries,
            map_flags: 0,
            inner_map_fd: 0,
            numa_node: 0,
            map_name: bpf_name(b"flowstone_xsks"),
        };
        bpf(&attributes).map(|fd| Self(owned(fd)))
    }

    /// Has frames of a queue go to a socket.
    pub(crate) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let attributes = MapUpdate {
            map_fd: self.descriptor() as u32,
            padding: 0,
            key: &raw const queue as u64,
            value: &raw const value as u64,
            flags: 0,
        };
        bpf(&attributes).map(drop)
    }

    /// The number of its descriptor, for programs.
    pub(crate) fn descriptor(&self) -> c_int {
        self.0.as_raw_fd()
    }
}

/// Loads an XDP program from its instructions. `flags` are `BPF_F_` bits.
pub(crate) fn load_program(instructions: &[u8], flags: u32) -> io::Result<OwnedFd> {
    const BPF_PROG_TYPE_XDP: u32 = 6;
    const BPF_XDP: u32 = 37;
    let license = c"Apache-2.0";
    let attributes = ProgramLoad {
        prog_type: BPF_PROG_TYPE_XDP,
        insn_cnt: (instructions.len() / crate::asm::INSTRUCTION_LEN) as u32,
        insns: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: flags,
        prog_name: bpf_name(b"flowstone_xdp"),
        prog_ifindex: 0,
        expected_attach_type: BPF_XDP,
    };
    bpf(&attributes).map(owned)
}

/// Attaches an XDP program to a device for as long as the returned descriptor is open. `flags` are `XDP_FLAGS_` bits.
pub(crate) fn link_xdp(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    const BPF_XDP: u32 = 37;
    let prog_fd = program.as_raw_fd() as u32;
    bpf(&LinkCreate { prog_fd, target_ifindex: ifindex, attach_type: BPF_XDP, flags }).map(owned)
}

/// Has a call send up to `frames` frames in copy mode, instead of 32.
pub(crate) fn set_send_budget(socket: BorrowedFd<'_>, frames: u32) -> io::Result<()> {
    let len = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the value lives through the call and `len` is its size.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, (&raw const frames).cast(), len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_as_long_as_the_kernel_has_them() {
        // Offsets of the field behind each, of linux/bpf.h.
        assert_eq!(size_of::<MapCreate>(), 44);
        assert_eq!(size_of::<MapUpdate>(), 32);
        assert_eq!(size_of::<ProgramLoad>(), 72);
        assert_eq!(size_of::<LinkCreate>(), 16);
    }

    #[test]
    fn names_are_cut_and_end() {
        assert_eq!(&bpf_name(b"ab")[..3], b"ab\0");
        assert_eq!(bpf_name(&[b'x'; 40])[BPF_NAME_LEN - 1], 0);
    }
}
