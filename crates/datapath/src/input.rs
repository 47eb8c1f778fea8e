//! From frames to keys: counts what came in, refuses what is no frame, extracts the key of the rest.

use std::sync::atomic::Ordering;

use base::{DropReason, PortNo};
use flow::extract::extract_into;
use flow::plain::extract_plain;
use flow::{FlowKey, PlainKey};
use netdev::pool;
use packet::Batch;
use packet::buf::BATCH_MAX;

use crate::group::Adds;
use crate::port::Port;
use crate::shared::Shared;

/// An Ethernet header, in bytes: less is no frame.
const FRAME_MIN: usize = 14;

/// The keys of a batch, and what its packets add to statistics; kept for their memory.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Which of the packets are plain, a bit each: their keys stand in `plain`, the others' in `any`.
    pub(crate) are_plain: u32,
    pub(crate) plain: [PlainKey; BATCH_MAX],
    pub(crate) any: Vec<FlowKey>,
    pub(crate) adds: [Adds; BATCH_MAX],
}

/// A packet's key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key<'a> {
    Plain(&'a PlainKey),
    Any(&'a FlowKey),
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self {
            are_plain: 0,
            plain: [PlainKey::default(); BATCH_MAX],
            any: vec![FlowKey::ZERO; BATCH_MAX],
            adds: [Adds::default(); BATCH_MAX],
        }
    }

    /// The key of packet `i`, which is one of the batch.
    #[inline]
    pub(crate) fn at(&self, i: usize) -> Key<'_> {
        if self.are_plain >> i & 1 != 0 { Key::Plain(&self.plain[i]) } else { Key::Any(&self.any[i]) }
    }
}

/// The places of a batch's first `n` packets.
#[inline]
pub(crate) fn first(n: usize) -> u32 {
    u32::MAX.checked_shr((BATCH_MAX.saturating_sub(n)) as u32).unwrap_or(0)
}

/// Makes `keys` those of the packets of `batch`, at most [`BATCH_MAX`], which `lane` received, after dropping those that are no
/// frames.
pub(crate) fn parse(shared: &Shared, lane: usize, port: &Port, batch: &mut Batch, keys: &mut Keys) {
    let (received, mut bytes) = (batch.len() as u64, 0);
    let shortest = batch.iter().fold(usize::MAX, |least, packet| least.min(packet.len()));
    if shortest < FRAME_MIN {
        bytes = refuse_short(shared, port, batch);
    }
    let vlans_max = shared.vlans_max.load(Ordering::Relaxed);
    let number = PortNo(port.number.0);
    keys.are_plain = 0;
    for (i, packet) in batch.iter_mut().enumerate().take(BATCH_MAX) {
        let data = packet.fresh();
        bytes += data.len() as u64;
        if let Some(key) = extract_plain(data, number) {
            keys.adds[i] = Adds { len: data.len() as u32, tcp_flags: key.tcp_flags() };
            keys.plain[i] = key;
            keys.are_plain |= 1 << i;
        } else if let Some(key) = keys.any.get_mut(i) {
            extract_into(key, data, number, vlans_max);
            keys.adds[i] = Adds::of(data.len(), key);
        }
    }
    port.count_received(lane, received, bytes);
}

/// Drops what is no frame. Returns the bytes of that.
#[cold]
fn refuse_short(shared: &Shared, port: &Port, batch: &mut Batch) -> u64 {
    let before = batch.len();
    let (whole, short): (Vec<_>, Vec<_>) = batch.drain(..).partition(|p| p.len() >= FRAME_MIN);
    batch.extend(whole);
    let bytes = short.iter().map(|p| p.len() as u64).sum();
    short.into_iter().for_each(pool::recycle);
    shared.count_drop(Some(port), DropReason::Malformed, (before - batch.len()) as u64);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_packets() {
        assert_eq!([0, 1, 5, 31, 32, 40].map(first), [0, 1, 31, u32::MAX >> 1, u32::MAX, u32::MAX]);
    }
}
