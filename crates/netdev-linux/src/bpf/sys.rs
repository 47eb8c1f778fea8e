//! System calls without a safe function in `rustix`: bpf(2) and membarrier(2).

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::asm::INSTRUCTION_LEN;

const BPF_MAP_CREATE: c_int = 0;
const BPF_MAP_UPDATE_ELEM: c_int = 2;
const BPF_MAP_DELETE_ELEM: c_int = 3;
const BPF_PROG_LOAD: c_int = 5;
const BPF_PROG_TEST_RUN: c_int = 10;
const BPF_LINK_CREATE: c_int = 28;

/// Length of the name of a map or program, with its terminating zero.
const NAME_LEN: usize = 16;

/// Pads a name to the kernel's format.
const fn name(text: &[u8]) -> [u8; NAME_LEN] {
    let mut name = [0; NAME_LEN];
    let mut i = 0;
    while i < text.len() && i < NAME_LEN - 1 {
        name[i] = text[i];
        i += 1;
    }
    name
}

/// A command of bpf(2) with its attributes: the first fields of `union bpf_attr` (linux/bpf.h); the others are zero.
///
/// # Safety
/// The type must have the layout of the kernel's structure for [`Attributes::command`], without padding. Addresses in it
/// must be valid for the accesses of that command for as long as the value lives.
unsafe trait Attributes {
    fn command(&self) -> c_int;
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
    map_name: [u8; NAME_LEN],
}

// SAFETY: the layout of the kernel's structure for this command, words and a name; it holds no address.
unsafe impl Attributes for MapCreate {
    fn command(&self) -> c_int {
        BPF_MAP_CREATE
    }
}

/// For [`BPF_MAP_UPDATE_ELEM`], or [`BPF_MAP_DELETE_ELEM`], which ignores the value.
#[repr(C)]
struct MapElement<const COMMAND: c_int> {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

// SAFETY: the type has the layout of the kernel's structure for these commands. Only `update` and `Hash::remove` create
// values. Their addresses are of slices that live through the call and have the lengths with which the map was created.
unsafe impl<const COMMAND: c_int> Attributes for MapElement<COMMAND> {
    fn command(&self) -> c_int {
        COMMAND
    }
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
    prog_name: [u8; NAME_LEN],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

// SAFETY: the type has the layout of the kernel's structure for this command. Only `load` creates values, with addresses of
// memory that lives through the call.
unsafe impl Attributes for ProgramLoad {
    fn command(&self) -> c_int {
        BPF_PROG_LOAD
    }
}

#[repr(C)]
#[derive(Default)]
struct Test {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
}

// SAFETY: the type has the layout of the kernel's structure for this command. Only `test_run` creates a value, with the
// address of a frame that it borrows during the call. The kernel writes fields of the structure through the cell, to which
// no other reference exists, and any value of them is valid.
unsafe impl Attributes for std::cell::UnsafeCell<Test> {
    fn command(&self) -> c_int {
        BPF_PROG_TEST_RUN
    }
}

#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
    /// For tcx: the program or link to be placed next to, which is none, and the expected revision, which is any.
    relative: u32,
    padding: u32,
    expected_revision: u64,
}

// SAFETY: the layout of the kernel's structure for this command, numbers; it holds no address.
unsafe impl Attributes for LinkCreate {
    fn command(&self) -> c_int {
        BPF_LINK_CREATE
    }
}

/// Executes a command; returns a descriptor or 0, depending on the command.
fn bpf<A: Attributes>(attributes: &A) -> io::Result<c_int> {
    let len = size_of::<A>();
    // SAFETY: the attributes live through the call, are as long as we say, and are what the command takes by the
    // contract of the trait.
    let result = unsafe { libc::syscall(libc::SYS_bpf, attributes.command(), std::ptr::from_ref(attributes), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as c_int) }
}

fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub(crate) fn create_map(
    map_type: u32,
    (key_size, value_size): (u32, u32),
    max_entries: u32,
    map_flags: u32,
    title: &str,
) -> io::Result<OwnedFd> {
    let map_name = name(title.as_bytes());
    let (inner_map_fd, numa_node) = (0, 0);
    bpf(&MapCreate { map_type, key_size, value_size, max_entries, map_flags, inner_map_fd, numa_node, map_name })
        .map(owned)
}

/// Sets an entry. Key and value must have the lengths of the map.
fn update(map: &OwnedFd, key: &[u8], value: &[u8]) -> io::Result<()> {
    let map_fd = map.as_raw_fd() as u32;
    let (key, value) = (key.as_ptr() as u64, value.as_ptr() as u64);
    bpf(&MapElement::<BPF_MAP_UPDATE_ELEM> { map_fd, padding: 0, key, value, flags: 0 }).map(drop)
}

/// A map from queue numbers to AF_XDP sockets (`BPF_MAP_TYPE_XSKMAP`).
#[derive(Debug)]
pub struct XskMap(OwnedFd);

impl XskMap {
    /// A map for the queues below `entries`.
    pub fn new(entries: u32) -> io::Result<Self> {
        const BPF_MAP_TYPE_XSKMAP: u32 = 17;
        create_map(BPF_MAP_TYPE_XSKMAP, (4, 4), entries, 0, "flowstone_xsks").map(Self)
    }

    /// Redirects the frames of a queue to a socket.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        update(&self.0, &queue.to_ne_bytes(), &(socket.as_raw_fd() as u32).to_ne_bytes())
    }

    /// The number of its descriptor, for use in programs.
    pub fn descriptor(&self) -> c_int {
        self.0.as_raw_fd()
    }
}

/// A hash map from keys of several words to one word.
///
/// The kernel may reuse a removed entry at once, while programs still access it: after a removal, wait for running
/// programs before adding an entry.
#[derive(Debug)]
pub struct Hash {
    fd: OwnedFd,
    key_words: usize,
}

impl Hash {
    /// A map of at most `entries` entries, with keys of `key_words` words.
    pub fn new(key_words: usize, entries: u32, title: &str) -> io::Result<Self> {
        const BPF_MAP_TYPE_HASH: u32 = 1;
        let fd = create_map(BPF_MAP_TYPE_HASH, (8 * key_words as u32, 8), entries, 0, title)?;
        Ok(Self { fd, key_words })
    }

    /// Sets an entry. Fails if the key has the wrong length.
    pub fn set(&self, key: &[u64], value: u64) -> io::Result<()> {
        update(&self.fd, &self.key(key)?, &value.to_ne_bytes())
    }

    /// Removes an entry. Fails if it does not exist or the key has the wrong length.
    pub fn remove(&self, key: &[u64]) -> io::Result<()> {
        let bytes = self.key(key)?;
        let (map_fd, key) = (self.fd.as_raw_fd() as u32, bytes.as_ptr() as u64);
        bpf(&MapElement::<BPF_MAP_DELETE_ELEM> { map_fd, padding: 0, key, value: 0, flags: 0 }).map(drop)
    }

    /// The number of its descriptor, for use in programs.
    pub fn descriptor(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    /// The bytes of a key; fails if it has the wrong length.
    fn key(&self, words: &[u64]) -> io::Result<Vec<u8>> {
        let fits = words.len() == self.key_words;
        fits.then(|| words.iter().flat_map(|word| word.to_ne_bytes()).collect())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    }
}

/// The type of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramKind {
    /// Runs on frames in the driver, before all other processing.
    Xdp {
        /// Accepts frames in several fragments (Linux 5.18).
        pieces: bool,
    },
    /// Runs on received socket buffers, after packet sockets.
    Tcx,
    /// Decides whether a socket receives a frame (`SO_ATTACH_BPF`).
    SocketFilter,
}

const BPF_XDP: u32 = 37;
const BPF_TCX_INGRESS: u32 = 46;

/// Loads a program from its instructions.
pub fn load(kind: ProgramKind, instructions: &[u8], title: &str) -> io::Result<OwnedFd> {
    const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
    const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
    const BPF_PROG_TYPE_XDP: u32 = 6;
    const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
    let (prog_type, expected_attach_type, prog_flags) = match kind {
        ProgramKind::Xdp { pieces } => (BPF_PROG_TYPE_XDP, BPF_XDP, if pieces { BPF_F_XDP_HAS_FRAGS } else { 0 }),
        ProgramKind::Tcx => (BPF_PROG_TYPE_SCHED_CLS, BPF_TCX_INGRESS, 0),
        ProgramKind::SocketFilter => (BPF_PROG_TYPE_SOCKET_FILTER, 0, 0),
    };
    let license = c"Apache-2.0";
    let attributes = ProgramLoad {
        prog_type,
        insn_cnt: (instructions.len() / INSTRUCTION_LEN) as u32,
        insns: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags,
        prog_name: name(title.as_bytes()),
        prog_ifindex: 0,
        expected_attach_type,
    };
    bpf(&attributes).map(owned)
}

/// The attachment point of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// XDP, with `XDP_FLAGS_` bits.
    Xdp(u32),
    /// tcx ingress, before all other programs there (Linux 6.6).
    TcxIngress,
}

/// Attaches a program to a device for as long as the returned descriptor is open.
pub fn attach(program: BorrowedFd<'_>, ifindex: u32, point: Point) -> io::Result<OwnedFd> {
    /// Without a relative program: before all others.
    const BPF_F_BEFORE: u32 = 1 << 3;
    let (attach_type, flags) = match point {
        Point::Xdp(flags) => (BPF_XDP, flags),
        Point::TcxIngress => (BPF_TCX_INGRESS, BPF_F_BEFORE),
    };
    let prog_fd = program.as_raw_fd() as u32;
    let (relative, padding, expected_revision) = (0, 0, 0);
    let target_ifindex = ifindex;
    bpf(&LinkCreate { prog_fd, target_ifindex, attach_type, flags, relative, padding, expected_revision }).map(owned)
}

/// The result of a test run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TestRun {
    /// The program's return value.
    pub result: u32,
    /// Average time of a run in nanoseconds.
    pub ns: u32,
}

/// Runs a program on a frame `repeat` times without attaching it (`BPF_PROG_TEST_RUN`).
pub fn test_run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> io::Result<TestRun> {
    let test = std::cell::UnsafeCell::new(Test {
        prog_fd: program.as_raw_fd() as u32,
        data_size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        repeat,
        ..Test::default()
    });
    bpf(&test)?;
    let test = test.into_inner();
    Ok(TestRun { result: test.retval, ns: test.duration })
}

/// Waits until every program that is running now has ended, for some milliseconds.
pub fn wait_for_programs() -> io::Result<()> {
    const MEMBARRIER_CMD_GLOBAL: c_int = 1;
    // SAFETY: no pointers are passed.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Number of possible CPUs; programs see CPU numbers below this.
pub fn processors() -> io::Result<usize> {
    // The format is `0-3` or `0`, in ascending order.
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit(['-', ',']).next().and_then(|n| n.parse::<usize>().ok());
    last.map(|n| n + 1).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_lengths_of_the_kernel() {
        // Offsets of the next fields in linux/bpf.h.
        assert_eq!(size_of::<MapCreate>(), 44);
        assert_eq!(size_of::<MapElement<0>>(), 32);
        assert_eq!(size_of::<ProgramLoad>(), 72);
        assert_eq!(size_of::<LinkCreate>(), 32);
        assert_eq!(size_of::<Test>(), 64);
    }

    #[test]
    fn names_are_truncated_and_terminated() {
        assert_eq!(&name(b"ab")[..3], b"ab\0");
        assert_eq!(name(&[b'x'; 40])[NAME_LEN - 1], 0);
    }
}
