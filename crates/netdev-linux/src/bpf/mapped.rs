//! An array map that is also mapped into this process (`BPF_F_MMAPABLE`, Linux 5.5).
//!
//! Entries have `W` words. Programs and this process may write at any time, so all accesses here are atomic. The map's
//! owner defines which side may write which words.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::sys::create_map;

/// See the module's text.
#[derive(Debug)]
pub struct Mapped<const W: usize> {
    fd: OwnedFd,
    memory: NonNull<[AtomicU64; W]>,
    entries: usize,
}

// SAFETY: the memory is only accessed by atomic words, and belongs to the value until it is dropped.
unsafe impl<const W: usize> Send for Mapped<W> {}
// SAFETY: the same.
unsafe impl<const W: usize> Sync for Mapped<W> {}

impl<const W: usize> Mapped<W> {
    /// Creates a map with this number of zeroed entries.
    pub fn new(entries: usize, title: &str) -> io::Result<Self> {
        const BPF_MAP_TYPE_ARRAY: u32 = 2;
        const BPF_F_MMAPABLE: u32 = 1 << 10;
        let too_many = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let n = u32::try_from(entries.max(1)).map_err(too_many)?;
        let fd = create_map(BPF_MAP_TYPE_ARRAY, (4, 8 * W as u32), n, BPF_F_MMAPABLE, title)?;
        let (entries, len) = (n as usize, n as usize * size_of::<[AtomicU64; W]>());
        // SAFETY: a new mapping at an address that the kernel chooses.
        let memory = unsafe {
            mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd.as_fd(), 0)?
        };
        let memory = NonNull::new(memory.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { fd, memory, entries })
    }

    /// The entries.
    pub fn entries(&self) -> &[[AtomicU64; W]] {
        // SAFETY: the mapping has this number of entries, is aligned to a page, lives as long as the value, and any
        // bytes are valid; array elements have no padding, as they consist of whole words.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.entries) }
    }

    /// The number of its descriptor, for use in programs.
    pub fn descriptor(&self) -> c_int {
        self.fd.as_raw_fd()
    }
}

impl<const W: usize> Drop for Mapped<W> {
    fn drop(&mut self) {
        let len = self.entries * size_of::<[AtomicU64; W]>();
        // SAFETY: the mapping was created with this address and length, and no reference into it exists any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), len) };
    }
}
