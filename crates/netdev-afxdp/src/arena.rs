//! Umems that sockets share, and their free frames.
//!
//! An [`Arena`] is a umem for a number of sockets, on any devices and queues: each socket adds as many frames as its
//! rings hold. A socket sends a frame that another one received without a copy; the frame is free when the
//! sender's completion ring returns it.
//!
//! Each thread caches some free frames; the others are in a common pool, which a thread uses when its cache is empty
//! or full: a lock for some dozens of frames. A packet thread that receives and sends lends completed frames again,
//! and rarely needs the pool. So the ownership of a frame is in exactly one of: a thread's cache, the common pool, a
//! packet, or one side of one socket, which has lent it to the kernel ([`crate::frames`]).
//!
//! The kernel cannot enlarge a umem, and pins all of it. So there may be several arenas: when one is full, another
//! is created, and arenas whose sockets are all closed are used again, as their memory is never unmapped.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use packet::Lent;
use parking_lot::Mutex;

use crate::frames::Frame;
use crate::memory::Umem;

/// Maximum number of frames in a thread's cache, and the number that it moves from or to the common pool at a time.
const KEPT_MAX: usize = 256;
const CHUNK: usize = 64;

/// All arenas, indexed by their umem's number.
static ARENAS: Mutex<Vec<&'static Arena>> = Mutex::new(Vec::new());
/// The next number of a umem.
static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// Properties that the kernel requires to be equal for all sockets of a umem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UmemMode {
    pub(crate) movers: Movers,
    /// The kernel reports when it needs a wake-up.
    pub(crate) need_wakeup: bool,
}

/// The part of the system that moves frames from and to the umem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Movers {
    /// The kernel copies.
    Kernel,
    /// Drivers that accept frames of this number of descriptors: a sharing socket cannot state that its driver
    /// accepts fewer than the first one's.
    Drivers(u32),
    /// The driver of this device, whose limit is unknown.
    Driver(u32),
}

/// A umem, its sockets, and its free frames.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) umem: Umem,
    /// Maximum number of sockets.
    capacity: u32,
    common: Mutex<Vec<Frame>>,
    /// Recent length of `common`.
    n_common: AtomicUsize,
    table: Mutex<Table>,
}

/// The sockets of an arena.
#[derive(Debug, Default)]
struct Table {
    taken: u32,
    /// The mode of the reserved sockets.
    mode: Option<UmemMode>,
    /// Whether frames may have several pieces, as found when binding the first socket.
    pieces: bool,
    bound: Vec<Bound>,
    /// Frames that closed sockets had lent to drivers, by device and queue.
    spent: Vec<(u32, u32, Vec<Frame>)>,
}

/// A bound socket.
#[derive(Debug)]
struct Bound {
    device: String,
    socket: Arc<OwnedFd>,
}

/// The free frames of a thread.
#[derive(Debug)]
pub(crate) struct Cache {
    arena: &'static Arena,
    free: Vec<Frame>,
}

thread_local! {
    /// Indexed by the umem's number.
    static CACHES: RefCell<Vec<Option<Cache>>> = const { RefCell::new(Vec::new()) };
}

impl Arena {
    /// Creates an arena for `capacity` sockets with `frames` frames each.
    pub(crate) fn new(capacity: u32, frames: u32) -> io::Result<&'static Self> {
        packet::lent::set_return_to_pool(reclaim);
        // SAFETY: each number is used once.
        let (umem, free) = unsafe { Umem::new(NUMBERS.fetch_add(1, Ordering::Relaxed), capacity * frames) }?;
        let n_common = AtomicUsize::new(free.len());
        let arena = Self { umem, capacity, common: Mutex::new(free), n_common, table: Mutex::default() };
        let arena: &'static Self = Box::leak(Box::new(arena));
        ARENAS.lock().push(arena);
        Ok(arena)
    }

    /// Calls `work` with this thread's cache. `work` must not drop packets.
    pub(crate) fn with_cache<R>(&'static self, work: impl FnOnce(&mut Cache) -> R) -> R {
        CACHES.with_borrow_mut(|caches| {
            let at = self.umem.number() as usize;
            if at >= caches.len() {
                caches.resize_with(at + 1, || None);
            }
            work(caches[at].get_or_insert_with(|| Cache { arena: self, free: Vec::with_capacity(KEPT_MAX + 1) }))
        })
    }

    /// Adds frames to the common pool, to be used first.
    fn give(&self, frames: impl IntoIterator<Item = Frame>) {
        let mut common = self.common.lock();
        common.extend(frames);
        self.n_common.store(common.len(), Ordering::Relaxed);
    }

    /// Adds frames that a closed socket had lent to the common pool, to be used after all others.
    pub(crate) fn give_last(&self, frames: Vec<Frame>) {
        let mut common = self.common.lock();
        common.splice(0..0, frames);
        self.n_common.store(common.len(), Ordering::Relaxed);
    }

    /// Moves up to `n` frames of the common pool to `to`.
    fn take(&self, n: usize, to: &mut Vec<Frame>) {
        if self.n_common.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut common = self.common.lock();
        let kept = common.len() - n.min(common.len());
        to.extend(common.drain(kept..));
        self.n_common.store(common.len(), Ordering::Relaxed);
    }

    /// Keeps frames that a driver may still use, although the socket on queue `queue` that lent them is closed: the kernel
    /// stops zero-copy asynchronously. It has done so when another socket is bound to the queue ([`queue_is_ours`]); until
    /// then neither they nor their socket's share of the umem can be used.
    pub(crate) fn set_aside(&self, ifindex: u32, queue: u32, frames: Vec<Frame>) {
        if !frames.is_empty() {
            self.table.lock().spent.push((ifindex, queue, frames));
        }
    }

    /// Binds a socket by `bind`, which receives a previously bound one, if there is any, and whether frames may have
    /// several pieces there; for the first socket it determines the latter.
    pub(crate) fn bind<E>(
        &self,
        device: &str,
        socket: &Arc<OwnedFd>,
        bind: impl FnOnce(Option<(&OwnedFd, bool)>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        // The previously bound socket cannot be closed while the table is locked.
        let mut table = self.table.lock();
        let before = table.bound.first().map(|bound| (&*bound.socket, table.pieces));
        let pieces = bind(before)?;
        table.pieces = pieces;
        table.bound.push(Bound { device: device.to_owned(), socket: Arc::clone(socket) });
        Ok(pieces)
    }

    /// Returns true if the umem is registered with the kernel: a socket is bound.
    pub(crate) fn is_registered(&self) -> bool {
        !self.table.lock().bound.is_empty()
    }

    /// Removes a socket that is about to be closed.
    pub(crate) fn unbind(&self, socket: &Arc<OwnedFd>) {
        self.table.lock().bound.retain(|bound| !Arc::ptr_eq(&bound.socket, socket));
    }

    /// The devices with sockets in it, in order, without `device`.
    pub(crate) fn others(&self, device: &str) -> Vec<String> {
        let table = self.table.lock();
        let mut names: Vec<_> = table.bound.iter().map(|b| b.device.clone()).filter(|name| name != device).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Cache {
    /// Takes a free frame.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Frame> {
        if self.free.is_empty() {
            self.arena.take(CHUNK, &mut self.free);
        }
        self.free.pop()
    }

    /// Returns true if the cache has `n` frames, after refilling it from the common pool if necessary.
    #[inline]
    pub(crate) fn has(&mut self, n: usize) -> bool {
        if self.free.len() < n {
            self.arena.take(CHUNK.max(n), &mut self.free);
        }
        self.free.len() >= n
    }

    /// Number of free frames in the cache and the common pool.
    pub(crate) fn in_reach(&self) -> usize {
        self.free.len() + self.arena.n_common.load(Ordering::Relaxed)
    }

    /// Returns a free frame. The last one returned is used first: its memory is most likely in the processor's
    /// cache.
    #[inline]
    pub(crate) fn give(&mut self, frame: Frame) {
        if self.free.len() >= KEPT_MAX {
            self.arena.give(self.free.drain(..CHUNK));
        }
        self.free.push(frame);
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.arena.give(self.free.drain(..));
    }
}

/// A socket was bound to a queue: frees the frames that an earlier socket there had lent, as the kernel released them.
pub(crate) fn queue_is_ours(ifindex: u32, queue: u32) {
    for arena in ARENAS.lock().iter() {
        let mut table = arena.table.lock();
        let (free, kept) =
            std::mem::take(&mut table.spent).into_iter().partition(|(i, q, _)| (*i, *q) == (ifindex, queue));
        table.spent = kept;
        let free: Vec<(u32, u32, Vec<Frame>)> = free;
        arena.give(free.into_iter().flat_map(|(_, _, frames)| frames));
    }
}

/// Reclaims the memory of a packet that was dropped, on any thread.
fn reclaim(lent: Lent) {
    // Dropping a `Lent` calls this function again, so it is kept here even if the closure does not run.
    let mut held = Some(lent);
    // An ending thread has no caches, and a thread may not have used any yet.
    let _ = CACHES.try_with(|caches| {
        let (Ok(mut caches), Some(lent)) = (caches.try_borrow_mut(), held.take()) else { return };
        match caches.iter_mut().flatten().find(|cache| cache.arena.umem.has(lent.bytes())) {
            Some(cache) => match cache.arena.umem.close(lent) {
                Ok(frame) => cache.give(frame),
                Err(lent) => held = Some(lent),
            },
            None => held = Some(lent),
        }
    });
    let Some(mut lent) = held else { return };
    for arena in ARENAS.lock().iter() {
        match arena.umem.close(lent) {
            Ok(frame) => return arena.give([frame]),
            Err(other) => lent = other,
        }
    }
    lent.forget();
}

/// A reservation in an arena for the sockets of a device, released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) arena: &'static Arena,
    n: u32,
}

impl Reservation {
    /// Reserves `n` sockets beside others of `mode`, if an arena has the capacity.
    pub(crate) fn join(mode: UmemMode, n: u32) -> Option<Self> {
        let arenas = ARENAS.lock();
        let arena = arenas.iter().find(|arena| {
            let mut table = arena.table.lock();
            let joins = table.mode == Some(mode) && !table.bound.is_empty() && arena.capacity >= table.occupied() + n;
            table.taken += if joins { n } else { 0 };
            joins
        });
        arena.map(|arena| Self { arena, n })
    }

    /// Reserves `n` sockets in an unused arena with a capacity of `all` sockets with `frames` frames each.
    pub(crate) fn found(mode: UmemMode, n: u32, all: u32, frames: u32) -> io::Result<Self> {
        let idle = ARENAS.lock().iter().copied().find(|arena| {
            let mut table = arena.table.lock();
            let fits = arena.capacity == all && arena.umem.frames() == all * frames && table.occupied() == 0;
            if fits {
                (table.taken, table.mode) = (n, Some(mode));
            }
            fits
        });
        if let Some(arena) = idle {
            return Ok(Self { arena, n });
        }
        let arena = Arena::new(all, frames)?;
        let mut table = arena.table.lock();
        // Others join an arena only once it has a bound socket.
        (table.taken, table.mode) = (n, Some(mode));
        drop(table);
        Ok(Self { arena, n })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut table = self.arena.table.lock();
        table.taken -= self.n;
        if table.taken == 0 {
            table.mode = None;
        }
    }
}

impl Table {
    /// Sockets that cannot be reserved: reserved ones, and closed ones whose frames a driver may still use.
    fn occupied(&self) -> u32 {
        self.taken + self.spent.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::some;
    use proptest::prelude::*;

    /// A capacity and frames that no other test uses.
    const CAPACITY: u32 = 7;
    const FRAMES: u32 = 24;

    fn mode(ifindex: u32) -> UmemMode {
        UmemMode { movers: Movers::Driver(ifindex), need_wakeup: true }
    }

    /// Stands for a bound socket.
    fn bound(arena: &Arena, device: &str, first: bool) -> Arc<OwnedFd> {
        let socket = Arc::new(crate::tests::file());
        let pieces = arena.bind::<()>(device, &socket, |before| {
            assert_eq!(before.is_none(), first);
            Ok(before.is_none_or(|(_, pieces)| pieces))
        });
        assert_eq!(pieces, Ok(true));
        socket
    }

    #[test]
    fn sockets_share_an_arena_by_mode_and_reuse_it() {
        let first = Reservation::found(mode(1), 2, CAPACITY, FRAMES).expect("memory");
        let arena = first.arena;
        assert!(Reservation::join(mode(1), 1).is_none() && !arena.is_registered());
        let socket = bound(arena, "a", true);
        assert!(Reservation::join(mode(2), 1).is_none() && Reservation::join(mode(1), 6).is_none());
        let second = Reservation::join(mode(1), 5).expect("capacity for five");
        let others = [bound(arena, "b", false), bound(arena, "b", false)];
        assert!(std::ptr::eq(second.arena, arena) && Reservation::join(mode(1), 1).is_none());
        assert_eq!(
            (arena.others("a"), arena.others("b"), arena.others("c").len()),
            (vec!["b".into()], vec!["a".into()], 2)
        );
        // A driver may still use frames: the capacity stays reserved until their queue has another socket.
        let frames = arena.with_cache(|cache| Vec::from_iter(cache.take()));
        arena.set_aside(9, 3, frames);
        others.iter().for_each(|socket| arena.unbind(socket));
        drop(second);
        assert!(Reservation::join(mode(1), 5).is_none());
        assert!(Reservation::join(mode(1), 4).is_some_and(|reservation| std::ptr::eq(reservation.arena, arena)));
        arena.unbind(&socket);
        drop(first);
        let apart = Reservation::found(mode(1), 1, CAPACITY, FRAMES).expect("memory");
        assert!(!std::ptr::eq(apart.arena, arena));
        queue_is_ours(9, 2);
        let reach = || arena.with_cache(|cache| cache.in_reach());
        assert_eq!(reach(), (CAPACITY * FRAMES) as usize - 1);
        queue_is_ours(9, 3);
        assert_eq!(reach(), (CAPACITY * FRAMES) as usize);
        let again = Reservation::found(mode(2), 1, CAPACITY, FRAMES).expect("memory");
        assert!(std::ptr::eq(again.arena, arena));
    }

    tally::proptest! {
        /// Frames taken and returned by two threads all exist at any time, and no thread caches many.
        #[test]
        fn caches_are_bounded_and_lose_nothing(steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0usize..600), 1..some(30))) {
            let arena = Arena::new(1, 1000).expect("memory");
            let mut held = Vec::new();
            for (elsewhere, takes, n) in steps {
                let work = |held: &mut Vec<Frame>| arena.with_cache(|cache| {
                    if takes {
                        held.extend(std::iter::from_fn(|| cache.take()).take(n));
                    } else {
                        held.drain(..n.min(held.len())).for_each(|frame| cache.give(frame));
                    }
                    cache.free.len()
                });
                let kept = if elsewhere {
                    // An ended thread has returned its cache to the common pool.
                    std::thread::scope(|scope| scope.spawn(|| work(&mut held)).join()).expect("it ends")
                } else {
                    work(&mut held)
                };
                prop_assert!(kept <= KEPT_MAX);
                prop_assert_eq!(arena.with_cache(|cache| cache.in_reach()) + held.len(), 1000);
                prop_assert_eq!(arena.common.lock().len(), arena.n_common.load(Ordering::Relaxed));
                let mut numbers: Vec<_> = held.iter().map(Frame::number).collect();
                numbers.sort();
                numbers.dedup();
                prop_assert_eq!(numbers.len(), held.len());
            }
        }
    }
}
