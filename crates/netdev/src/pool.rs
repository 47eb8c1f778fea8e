//! Frame buffers that a thread reuses instead of allocating.
//!
//! Each thread has a pool: an [`crate::Rx`] takes buffers from it, and a [`crate::Tx`] and all code that drops frames
//! return them. No lock is needed as long as a packet thread both receives and sends. A frame that another thread sends
//! ends up in that thread's pool. Large buffers, by capacity, are kept separately so that small frames do not use them.
//! Both lists are bounded, so a pool holds at most 512 * 4 KiB + 128 * 70 KiB, about 11 MB for each thread.
//!
//! Packets in device memory ([`Packet::lend`]) own no buffer. When they are returned, their memory goes back to the
//! device at once, and the empty packet is kept for the next lent frame. Code that stores packets for longer than a
//! round copies them out of device memory first ([`keep`]), as the device would run out of buffers.

use std::cell::RefCell;

use packet::{Batch, Lent, Packet};

/// Buffers with a capacity of up to this many bytes, headroom included, are small.
const SMALL: usize = 4096;
/// Buffers of a larger capacity are not kept.
const LARGE: usize = 70 * 1024;
const SMALL_KEPT: usize = 512;
const LARGE_KEPT: usize = 128;

#[derive(Default)]
struct Pool {
    small: Vec<Packet>,
    large: Vec<Packet>,
    /// Without owned memory.
    empty: Vec<Packet>,
}

impl Pool {
    #[inline]
    fn give(&mut self, mut packet: Packet) {
        let Some(size) = packet.own_capacity() else {
            drop(packet.take_lent());
            if self.empty.len() < SMALL_KEPT {
                self.empty.push(packet);
            }
            return;
        };
        if size <= SMALL {
            if self.small.len() < SMALL_KEPT {
                self.small.push(packet);
            }
        } else if size <= LARGE && self.large.len() < LARGE_KEPT {
            self.large.push(packet);
        }
    }
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// A packet with headroom and a copy of `frame`, without offload flags, in a buffer of the pool if available.
#[inline]
pub fn filled(frame: &[u8]) -> Packet {
    let kept = POOL.with_borrow_mut(|pool| {
        let small = packet::buf::HEADROOM + frame.len() <= SMALL;
        if small { pool.small.pop() } else { pool.large.pop() }
    });
    match kept {
        Some(mut packet) => {
            packet.refill(frame);
            packet
        }
        None => Packet::from_slice(frame),
    }
}

/// Appends packets with headroom and copies of `frames`, none longer than `longest`, without offload flags, in buffers
/// of the pool as far as available. Returns the total number of bytes.
#[inline]
pub fn fill_all<'a>(mut frames: impl ExactSizeIterator<Item = &'a [u8]>, longest: usize, batch: &mut Batch) -> usize {
    let before = batch.len();
    if packet::buf::HEADROOM + longest <= SMALL {
        take(frames.len(), batch);
    }
    let mut bytes = 0;
    for packet in &mut batch[before..] {
        let Some(frame) = frames.next() else { break };
        packet.refill(frame);
        bytes += frame.len();
    }
    batch.extend(frames.map(|frame| {
        bytes += frame.len();
        filled(frame)
    }));
    bytes
}

/// Moves up to `n` small buffers of the pool to the end of `batch`, with stale content.
fn take(n: usize, batch: &mut Batch) {
    POOL.with_borrow_mut(|pool| {
        let kept = pool.small.len() - n.min(pool.small.len());
        batch.extend(pool.small.drain(kept..));
    });
}

/// Appends a copy of each of `packets`, metadata included, to `batch`, in buffers of the pool as far as available.
pub fn copy_all(packets: &[Packet], batch: &mut Batch) {
    let small = packets.iter().all(|p| packet::buf::HEADROOM + p.len() <= SMALL);
    let before = batch.len();
    if small {
        take(packets.len(), batch);
    }
    let (reused, new) = packets.split_at(batch.len() - before);
    for (copy, packet) in batch[before..].iter_mut().zip(reused) {
        copy.refill(packet.data());
        copy.copy_metadata(packet);
    }
    batch.extend(new.iter().map(copy));
}

/// A copy of `packet`, metadata included, in a buffer of the pool if available.
pub fn copy(packet: &Packet) -> Packet {
    let mut copy = filled(packet.data());
    copy.copy_metadata(packet);
    copy
}

/// A packet in device memory, whose frame is `memory[start..]` ([`Packet::lend`]), without offload flags.
#[inline]
pub fn lent(memory: Lent, start: usize) -> Packet {
    let mut packet = POOL.with_borrow_mut(|pool| pool.empty.pop()).unwrap_or_default();
    packet.lend(memory, start);
    packet
}

/// Moves `packet` to owned memory, metadata included, if it is in device memory. Call it before storing a packet.
#[inline]
pub fn keep(packet: &mut Packet) {
    if packet.lent().is_some() {
        let own = copy(packet);
        recycle(std::mem::replace(packet, own));
    }
}

/// An empty buffer with room for `len` bytes, from the pool if available, for a device to read a frame into.
pub fn buffer(len: usize) -> Vec<u8> {
    let kept = POOL.with_borrow_mut(|pool| if len <= SMALL { pool.small.pop() } else { pool.large.pop() });
    let mut bytes = kept.map(Packet::into_vec).unwrap_or_default();
    bytes.clear();
    bytes.reserve(len);
    bytes
}

/// An empty packet with headroom and room for a frame of `len` bytes, from the pool if available.
pub fn empty(len: usize) -> Packet {
    let len = packet::buf::HEADROOM + len;
    let kept = POOL.with_borrow_mut(|pool| if len <= SMALL { pool.small.pop() } else { pool.large.pop() });
    let mut packet = kept.unwrap_or_default();
    let bytes = packet.emptied();
    bytes.reserve(len - bytes.len());
    packet
}

/// Returns a packet's buffer to the pool.
#[inline]
pub fn recycle(packet: Packet) {
    POOL.with_borrow_mut(|pool| pool.give(packet));
}

/// Empties `batch` and returns the buffers to the pool.
pub fn recycle_all(batch: &mut Batch) {
    if batch.is_empty() {
        return;
    }
    POOL.with_borrow_mut(|pool| {
        let small = batch.iter().all(|p| p.own_capacity().is_some_and(|n| n <= SMALL));
        if small && pool.small.len() + batch.len() <= SMALL_KEPT {
            pool.small.append(batch);
        } else {
            batch.drain(..).for_each(|packet| pool.give(packet));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_buffer_is_clean() {
        let mut p = filled(&[1; 60]);
        p.offload.checksum = packet::Checksum::Good;
        p.insert(0, 4);
        recycle(p);
        let q = filled(&[2; 14]);
        assert_eq!(q, Packet::from_slice(&[2; 14]));
        assert_eq!(q.headroom(), packet::buf::HEADROOM);
    }

    #[test]
    fn copies_are_complete_with_and_without_pooled_buffers() {
        let mut packets: Vec<Packet> = (1..9).map(|n| Packet::from_slice(&vec![n; usize::from(n) * 20])).collect();
        packets[3].offload.checksum = packet::Checksum::Good;
        let mut out = vec![Packet::from_slice(&[0; 14])];
        for kept in [0, 3, 100] {
            POOL.with_borrow_mut(|pool| pool.small = vec![Packet::from_slice(&[9; 99]); kept]);
            copy_all(&packets, &mut out);
            assert_eq!((out.len(), &out[1..]), (9, &packets[..]));
            out.truncate(1);
        }
        packets.push(Packet::from_slice(&vec![1; SMALL]));
        copy_all(&packets, &mut out);
        assert_eq!(out[1..], packets);
    }

    #[test]
    fn packets_without_memory_are_kept_apart() {
        POOL.with_borrow_mut(|pool| *pool = Pool::default());
        let lent = || lent(Lent::new(vec![5; 70].leak()), 10);
        let mut packet = lent();
        packet.dp_hash = 7;
        keep(&mut packet);
        assert_eq!((packet.data(), packet.dp_hash, packet.lent()), (&[5; 60][..], 7, None));
        keep(&mut packet);
        let kept = || POOL.with_borrow(|pool| (pool.small.len(), pool.empty.len()));
        assert_eq!(kept(), (0, 1));
        recycle_all(&mut vec![packet, lent(), lent()]);
        assert_eq!(kept(), (1, 2));
        recycle_all(&mut (0..2000).map(|_| lent()).collect());
        assert_eq!(kept(), (1, SMALL_KEPT));
    }

    #[test]
    fn a_large_buffer_is_kept_as_large_after_a_short_frame() {
        POOL.with_borrow_mut(|pool| *pool = Pool::default());
        let large = || {
            let mut packet = Packet::from_slice(&vec![0; 60_000]);
            packet.truncate(60);
            packet
        };
        recycle(large());
        recycle_all(&mut (0..2000).map(|_| large()).collect());
        let kept = POOL.with_borrow(|pool| {
            let all = pool.small.iter().chain(&pool.large);
            (pool.small.len(), pool.large.len(), all.filter_map(|p| p.own_capacity()).sum::<usize>())
        });
        assert!(kept.2 <= SMALL_KEPT * SMALL + LARGE_KEPT * LARGE, "{kept:?}");
        assert_eq!((kept.0, kept.1), (0, LARGE_KEPT));
    }

    #[test]
    fn the_pool_is_bounded() {
        let mut batch: Batch = (0..2000).map(|_| Packet::from_slice(&[0; 60])).collect();
        recycle_all(&mut batch);
        recycle(Packet::from_slice(&vec![0; LARGE + 1]));
        POOL.with_borrow(|pool| assert_eq!((pool.small.len(), pool.large.len()), (SMALL_KEPT, 0)));
    }
}
