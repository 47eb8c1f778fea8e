//! A ring's memory, mapped from its socket.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// Memory of a socket in our address space, unmapped at the end.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    mapped: Mapped,
}

// SAFETY: the mapping is memory and belongs to this value alone (and to the kernel), so it may move to another
// thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives no access to the memory; users of its address justify their accesses themselves.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of the socket from `offset`, shared with the kernel. They begin at a page.
    pub(crate) fn new(socket: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let (base, mapped) = Mapped::new(socket, offset, len)?;
        let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { base, mapped })
    }

    /// The start of the mapping, whose bytes may be accessed while the mapping is borrowed.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.mapped.end(self.base);
    }
}

#[cfg(not(miri))]
use kernel::Mapped;
#[cfg(miri)]
use played::Mapped;

#[cfg(not(miri))]
mod kernel {
    use super::{BorrowedFd, NonNull, io};
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    /// Its bytes.
    #[derive(Debug)]
    pub(super) struct Mapped(usize);

    impl Mapped {
        pub(super) fn new(socket: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<(*mut u8, Self)> {
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
            // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
            let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, socket, offset) }?;
            Ok((base.cast(), Self(len)))
        }

        pub(super) fn end(&mut self, base: NonNull<u8>) {
            // SAFETY: `mmap` returned this mapping, and all accesses borrow its owner.
            let _ = unsafe { munmap(base.as_ptr().cast(), self.0) };
        }
    }
}

/// Miri knows no memory that is mapped twice: where it plays the machine, all mappings of one file at one offset are one
/// piece of memory.
#[cfg(miri)]
mod played {
    use super::{BorrowedFd, NonNull, io};
    use parking_lot::Mutex;
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::collections::BTreeMap;
    use std::os::fd::AsRawFd;

    type PieceId = (i32, u64);

    struct Piece {
        base: NonNull<u8>,
        layout: Layout,
        users: usize,
    }

    // SAFETY: this value does not access the memory.
    unsafe impl Send for Piece {}

    static PIECES: Mutex<BTreeMap<PieceId, Piece>> = Mutex::new(BTreeMap::new());

    /// Which piece it is.
    #[derive(Debug)]
    pub(super) struct Mapped(PieceId);

    impl Mapped {
        pub(super) fn new(socket: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<(*mut u8, Self)> {
            let place = (socket.as_raw_fd(), offset);
            let mut pieces = PIECES.lock();
            let piece = pieces.entry(place).or_insert_with(|| {
                let layout = Layout::from_size_align(len, 4096).expect("a page is a power of two");
                // SAFETY: a ring has slots, so the length is not zero.
                let base = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory");
                Piece { base, layout, users: 0 }
            });
            assert_eq!(piece.layout.size(), len, "both sides map the same");
            piece.users += 1;
            Ok((piece.base.as_ptr(), Self(place)))
        }

        pub(super) fn end(&mut self, _base: NonNull<u8>) {
            let mut pieces = PIECES.lock();
            let piece = pieces.get_mut(&self.0).expect("it is mapped");
            piece.users -= 1;
            if piece.users == 0 {
                // SAFETY: it was allocated with this layout, and no mapping of it is left.
                unsafe { dealloc(piece.base.as_ptr(), piece.layout) };
                pieces.remove(&self.0);
            }
        }
    }
}
