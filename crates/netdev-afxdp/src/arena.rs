//! Umems that sockets share, and the frames in them that nobody uses.
//!
//! An [`Arena`] is a umem with seats for some sockets, on whatever devices and queues: each seat brings as many frames as its
//! socket's rings hold. A frame that one of them received is sent by another as it lies, and is free when that one's
//! completion ring names it.
//!
//! Free frames are with the threads, some with each, and the others in a common pool that a thread goes to when it has none
//! or too many: a lock for some dozens of frames. A packet thread that receives and sends gets by completions what it lends
//! again, and rarely goes there. So a frame is in one of: a thread's cache, the common pool, a packet, or lent by one side
//! of one socket ([`crate::frames`]); the right to it moves between these, and is in one of them at any time.
//!
//! The kernel cannot make a umem larger, and pins it whole. So there may be several arenas: one that is full is followed by
//! another, and those whose sockets all closed are used again, as their memory is never unmapped.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use packet::Lent;
use parking_lot::Mutex;

use crate::frames::Frame;
use crate::memory::Umem;

/// Frames that a thread keeps at most, and those that it takes from the common pool, or gives to it, at a time.
const KEPT_MAX: usize = 256;
const CHUNK: usize = 64;

/// All there are, at their umem's number.
static ARENAS: Mutex<Vec<&'static Arena>> = Mutex::new(Vec::new());
/// Numbers of umems that were given so far.
static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// What the kernel wants to be equal of all sockets of a umem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    pub(crate) movers: Movers,
    /// The kernel says when it is to be woken.
    pub(crate) need_wakeup: bool,
}

/// Who moves frames from and to the umem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Movers {
    /// The kernel copies.
    Kernel,
    /// Drivers, which take frames of so many descriptors: a socket that shares cannot say that its driver takes fewer than
    /// the first one's.
    Drivers(u32),
    /// The driver of this device, of which that is not known.
    Driver(u32),
}

/// A umem, its sockets, and its free frames.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) umem: Umem,
    /// Sockets at most.
    seats: u32,
    common: Mutex<Vec<Frame>>,
    /// How many these are, as it was a moment ago.
    n_common: AtomicUsize,
    table: Mutex<Table>,
}

/// Who has seats.
#[derive(Debug, Default)]
struct Table {
    taken: u32,
    /// Of those who have seats.
    kind: Option<Kind>,
    /// Whether frames may have several pieces, as the first socket that was bound found.
    pieces: bool,
    bound: Vec<Bound>,
    /// What closed sockets had lent to drivers, by device and queue.
    spent: Vec<(u32, u32, Vec<Frame>)>,
}

/// A socket that was bound.
#[derive(Debug)]
struct Bound {
    device: String,
    socket: Arc<OwnedFd>,
}

/// Frames that a thread has at hand.
#[derive(Debug)]
pub(crate) struct Cache {
    arena: &'static Arena,
    free: Vec<Frame>,
}

thread_local! {
    /// At the umem's number.
    static CACHES: RefCell<Vec<Option<Cache>>> = const { RefCell::new(Vec::new()) };
}

impl Arena {
    /// Makes one with `seats` seats of `frames` frames each.
    pub(crate) fn new(seats: u32, frames: u32) -> io::Result<&'static Self> {
        packet::lent::set_home(go_home);
        // SAFETY: each number is given once.
        let (umem, free) = unsafe { Umem::new(NUMBERS.fetch_add(1, Ordering::Relaxed), seats * frames) }?;
        let n_common = AtomicUsize::new(free.len());
        let arena = Self { umem, seats, common: Mutex::new(free), n_common, table: Mutex::default() };
        let arena: &'static Self = Box::leak(Box::new(arena));
        ARENAS.lock().push(arena);
        Ok(arena)
    }

    /// Does something with the frames that this thread has at hand. Packets must not be dropped in it.
    pub(crate) fn with_cache<R>(&'static self, work: impl FnOnce(&mut Cache) -> R) -> R {
        CACHES.with_borrow_mut(|caches| {
            let at = self.umem.number() as usize;
            if at >= caches.len() {
                caches.resize_with(at + 1, || None);
            }
            work(caches[at].get_or_insert_with(|| Cache { arena: self, free: Vec::with_capacity(KEPT_MAX + 1) }))
        })
    }

    /// Puts frames into the common pool, to be used first.
    fn give(&self, frames: impl IntoIterator<Item = Frame>) {
        let mut common = self.common.lock();
        common.extend(frames);
        self.n_common.store(common.len(), Ordering::Relaxed);
    }

    /// Takes frames that a closed socket had lent into the common pool, to be used after all others.
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

    /// Keeps frames that a driver may have still, though the socket on queue `queue` that lent them is closed: the kernel
    /// stops zero-copy behind our back. It has done so when another socket is bound to the queue ([`queue_is_ours`]); until
    /// then they, and the seat, are of no use.
    pub(crate) fn set_aside(&self, ifindex: u32, queue: u32, frames: Vec<Frame>) {
        if !frames.is_empty() {
            self.table.lock().spent.push((ifindex, queue, frames));
        }
    }

    /// Binds a socket by `bind`, which gets one that was bound before, if there is any, and whether frames may have
    /// several pieces there; it says the latter itself if it is the first.
    pub(crate) fn bind<E>(
        &self,
        device: &str,
        socket: &Arc<OwnedFd>,
        bind: impl FnOnce(Option<(&OwnedFd, bool)>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        // The one that was bound before cannot be closed while the table is locked.
        let mut table = self.table.lock();
        let before = table.bound.first().map(|bound| (&*bound.socket, table.pieces));
        let pieces = bind(before)?;
        table.pieces = pieces;
        table.bound.push(Bound { device: device.to_owned(), socket: Arc::clone(socket) });
        Ok(pieces)
    }

    /// Whether the umem is registered with the kernel: some socket was bound.
    pub(crate) fn is_registered(&self) -> bool {
        !self.table.lock().bound.is_empty()
    }

    /// Forgets a socket that is to be closed.
    pub(crate) fn unbind(&self, socket: &Arc<OwnedFd>) {
        self.table.lock().bound.retain(|bound| !Arc::ptr_eq(&bound.socket, socket));
    }

    /// The devices with sockets in it, in order, but for `device`.
    pub(crate) fn others(&self, device: &str) -> Vec<String> {
        let table = self.table.lock();
        let mut names: Vec<_> = table.bound.iter().map(|b| b.device.clone()).filter(|name| name != device).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Cache {
    /// A frame that is free.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Frame> {
        if self.free.is_empty() {
            self.arena.take(CHUNK, &mut self.free);
        }
        self.free.pop()
    }

    /// Whether `n` frames are at hand, if need be from the common pool.
    #[inline]
    pub(crate) fn has(&mut self, n: usize) -> bool {
        if self.free.len() < n {
            self.arena.take(CHUNK.max(n), &mut self.free);
        }
        self.free.len() >= n
    }

    /// Frames that are free: at hand, or in the common pool.
    pub(crate) fn in_reach(&self) -> usize {
        self.free.len() + self.arena.n_common.load(Ordering::Relaxed)
    }

    /// Takes a frame that nobody uses any more. The one given last is used first: its memory is most likely in the processor's
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

/// A socket was bound to a queue: the kernel has let go of what was lent by an earlier one there.
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

/// Takes the memory of a packet that was dropped, on any thread.
fn go_home(lent: Lent) {
    // What is dropped comes here again: so it is held here, whatever becomes of the closure.
    let mut held = Some(lent);
    // There is no cache on a thread that ends; nor one at hand on a thread that has not had any.
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

/// Seats in an arena for the sockets of a device, which are free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Seats {
    pub(crate) arena: &'static Arena,
    n: u32,
}

impl Seats {
    /// Seats for `n` sockets beside others of `kind`, if there is an arena that has so many.
    pub(crate) fn join(kind: Kind, n: u32) -> Option<Self> {
        let arenas = ARENAS.lock();
        let arena = arenas.iter().find(|arena| {
            let mut table = arena.table.lock();
            let joins = table.kind == Some(kind) && !table.bound.is_empty() && arena.seats >= table.occupied() + n;
            table.taken += if joins { n } else { 0 };
            joins
        });
        arena.map(|arena| Self { arena, n })
    }

    /// Seats for `n` sockets in an arena where nobody is, with `all` seats of `frames` frames each.
    pub(crate) fn found(kind: Kind, n: u32, all: u32, frames: u32) -> io::Result<Self> {
        let idle = ARENAS.lock().iter().copied().find(|arena| {
            let mut table = arena.table.lock();
            let fits = arena.seats == all && arena.umem.frames() == all * frames && table.occupied() == 0;
            if fits {
                (table.taken, table.kind) = (n, Some(kind));
            }
            fits
        });
        if let Some(arena) = idle {
            return Ok(Self { arena, n });
        }
        let arena = Arena::new(all, frames)?;
        let mut table = arena.table.lock();
        // Nobody joins where nobody is bound.
        (table.taken, table.kind) = (n, Some(kind));
        drop(table);
        Ok(Self { arena, n })
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        let mut table = self.arena.table.lock();
        table.taken -= self.n;
        if table.taken == 0 {
            table.kind = None;
        }
    }
}

impl Table {
    /// Seats that nobody can take: those of sockets, and those whose frames a driver may have still.
    fn occupied(&self) -> u32 {
        self.taken + self.spent.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::some;
    use proptest::prelude::*;

    /// Seats and frames as no other test has them.
    const SEATS: u32 = 7;
    const FRAMES: u32 = 24;

    fn kind(ifindex: u32) -> Kind {
        Kind { movers: Movers::Driver(ifindex), need_wakeup: true }
    }

    /// What stands for a socket, bound.
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
    fn seats_are_taken_beside_others_of_the_kind_and_used_again() {
        let first = Seats::found(kind(1), 2, SEATS, FRAMES).expect("memory");
        let arena = first.arena;
        assert!(Seats::join(kind(1), 1).is_none() && !arena.is_registered());
        let socket = bound(arena, "a", true);
        assert!(Seats::join(kind(2), 1).is_none() && Seats::join(kind(1), 6).is_none());
        let second = Seats::join(kind(1), 5).expect("room for five");
        let others = [bound(arena, "b", false), bound(arena, "b", false)];
        assert!(std::ptr::eq(second.arena, arena) && Seats::join(kind(1), 1).is_none());
        assert_eq!(
            (arena.others("a"), arena.others("b"), arena.others("c").len()),
            (vec!["b".into()], vec!["a".into()], 2)
        );
        // A driver may have frames still: the seat stays taken until its queue has another socket.
        let frames = arena.with_cache(|cache| Vec::from_iter(cache.take()));
        arena.set_aside(9, 3, frames);
        others.iter().for_each(|socket| arena.unbind(socket));
        drop(second);
        assert!(Seats::join(kind(1), 5).is_none());
        assert!(Seats::join(kind(1), 4).is_some_and(|seats| std::ptr::eq(seats.arena, arena)));
        arena.unbind(&socket);
        drop(first);
        let apart = Seats::found(kind(1), 1, SEATS, FRAMES).expect("memory");
        assert!(!std::ptr::eq(apart.arena, arena));
        queue_is_ours(9, 2);
        let reach = || arena.with_cache(|cache| cache.in_reach());
        assert_eq!(reach(), (SEATS * FRAMES) as usize - 1);
        queue_is_ours(9, 3);
        assert_eq!(reach(), (SEATS * FRAMES) as usize);
        let again = Seats::found(kind(2), 1, SEATS, FRAMES).expect("memory");
        assert!(std::ptr::eq(again.arena, arena));
    }

    tally::proptest! {
        /// Frames that are taken and given, on two threads, are all there at any time, and no thread keeps many.
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
                    // What it kept is in the common pool when it has ended.
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
