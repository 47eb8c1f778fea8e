//! From packets to keys: counts a received batch, drops packets that are too short for a frame, and extracts the keys
//! of the others; extracts the keys of recirculated packets for their next pass.

use std::cell::OnceCell;
use std::sync::atomic::Ordering;

use base::{DpPort, DropReason, PortNo};
use flow::compact::{Compact, extract_compact};
use flow::extract::{extract_other_into, extract_with_into};
use flow::{Field, FlowKey, PlainKey, TrackedKey, TunneledKey, WideKey};
use netdev::pool;
use packet::buf::BATCH_MAX;
use packet::metadata::Connection;
use packet::{Batch, Packet};

use crate::execute::recirculate::{context_of, put_options};
use crate::group::Adds;
use crate::port::Port;
use crate::shared::SharedState;

/// Minimum length of a frame in bytes: an Ethernet header.
const FRAME_MIN: usize = 14;

/// The keys of a batch, and the contributions of its packets to statistics. Reused to keep the memory.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Bitmap of the packets with keys in `plain`.
    pub(crate) are_plain: u32,
    /// Bitmap of the packets with keys in `wide`.
    pub(crate) are_wide: u32,
    /// Bitmap of the packets with keys in `tracked`.
    pub(crate) are_tracked: u32,
    /// Bitmap of the packets with keys in `tunneled`. All other packets have keys in `any`.
    pub(crate) are_tunneled: u32,
    pub(crate) plain: [PlainKey; BATCH_MAX],
    pub(crate) wide: [WideKey; BATCH_MAX],
    pub(crate) tracked: [TrackedKey; BATCH_MAX],
    pub(crate) tunneled: [TunneledKey; BATCH_MAX],
    pub(crate) any: Vec<FlowKey>,
    /// Bitmap of the keys in `any` that have metadata besides the ingress port.
    with_metadata: u32,
    pub(crate) adds: [Adds; BATCH_MAX],
}

/// A packet's key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key<'a> {
    Plain(&'a PlainKey),
    Wide(&'a WideKey),
    Tracked(&'a TrackedKey),
    Tunneled(&'a TunneledKey),
    Any(&'a FlowKey),
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self {
            are_plain: 0,
            are_wide: 0,
            are_tracked: 0,
            are_tunneled: 0,
            plain: [PlainKey::default(); BATCH_MAX],
            wide: [WideKey::default(); BATCH_MAX],
            tracked: [TrackedKey::default(); BATCH_MAX],
            tunneled: std::array::from_fn(|_| TunneledKey::default()),
            any: vec![FlowKey::ZERO; BATCH_MAX],
            with_metadata: 0,
            adds: [Adds::default(); BATCH_MAX],
        }
    }

    /// Returns the whole key of packet `i` of the batch; `buffer` holds it if it has to be built.
    pub(crate) fn whole<'a>(&'a self, i: usize, buffer: &'a mut FlowKey) -> &'a FlowKey {
        match self.at(i) {
            Key::Any(key) => key,
            Key::Plain(key) => {
                *buffer = key.expand();
                buffer
            }
            Key::Wide(key) => {
                *buffer = key.expand();
                buffer
            }
            Key::Tracked(key) => {
                *buffer = key.expand();
                buffer
            }
            Key::Tunneled(key) => {
                *buffer = key.expand();
                buffer
            }
        }
    }

    /// Returns the key of packet `i` of the batch.
    #[inline]
    pub(crate) fn at(&self, i: usize) -> Key<'_> {
        if self.are_plain >> i & 1 != 0 {
            Key::Plain(&self.plain[i])
        } else if self.are_wide >> i & 1 != 0 {
            Key::Wide(&self.wide[i])
        } else if self.are_tracked >> i & 1 != 0 {
            Key::Tracked(&self.tracked[i])
        } else if self.are_tunneled >> i & 1 != 0 {
            Key::Tunneled(&self.tunneled[i])
        } else {
            Key::Any(&self.any[i])
        }
    }

    /// Returns a bitmap of the packets with keys of plain packets without metadata.
    #[inline]
    pub(crate) fn are_compact(&self) -> u32 {
        self.are_plain | self.are_wide
    }

    /// Returns a bitmap of the packets with keys in `any`, of the first `n`.
    #[inline]
    pub(crate) fn others(&self, n: usize) -> u32 {
        first(n) & !(self.are_plain | self.are_wide | self.are_tracked | self.are_tunneled)
    }
}

/// Returns a bitmap of the first `n` packets of a batch.
#[inline]
pub(crate) fn first(n: usize) -> u32 {
    u32::MAX.checked_shr((BATCH_MAX.saturating_sub(n)) as u32).unwrap_or(0)
}

/// Extracts the keys of the packets in `batch`, at most [`BATCH_MAX`], which `lane` received on `port`, and counts
/// them at the port. Drops packets that are too short for an Ethernet header.
pub(crate) fn parse(shared: &SharedState, lane: usize, port: &Port, batch: &mut Batch, keys: &mut Keys) {
    let received = batch.len() as u64;
    let mut refused = 0;
    let bytes = loop {
        match extract_keys(shared, port, batch, keys) {
            Some(bytes) => break bytes,
            None => refused += drop_short(shared, port, batch),
        }
    };
    port.count_received(lane, received, refused + bytes);
}

/// Extracts the keys of a batch and returns its length in bytes, or `None` if a packet is too short.
#[inline(always)]
fn extract_keys(shared: &SharedState, port: &Port, batch: &mut Batch, keys: &mut Keys) -> Option<u64> {
    let number = PortNo(port.number.0);
    let (mut bytes, mut are_plain, mut are_wide) = (0, 0, 0);
    let places = keys.plain.iter_mut().zip(&mut keys.wide).zip(&mut keys.adds);
    for (i, (packet, ((plain, wide), adds))) in batch.iter_mut().zip(places).enumerate() {
        let data = packet.received();
        bytes += data.len() as u64;
        let len = data.len() as u32;
        match extract_compact(data, number, plain, wide) {
            Some(Compact::Plain) => {
                are_plain |= 1 << i;
                *adds = Adds { len, tcp_flags: plain.tcp_flags() };
            }
            Some(Compact::Wide) => {
                are_wide |= 1 << i;
                *adds = Adds { len, tcp_flags: wide.tcp_flags() };
            }
            None if data.len() < FRAME_MIN => return None,
            None => {
                let Some(key) = keys.any.get_mut(i) else { break };
                if keys.with_metadata >> i & 1 != 0 {
                    key.0.fill(0);
                    keys.with_metadata &= !(1 << i);
                }
                extract_other_into(key, data, number, shared.vlans_max.load(Ordering::Relaxed));
                *adds = Adds::of(data.len(), key);
            }
        }
    }
    (keys.are_plain, keys.are_wide, keys.are_tracked, keys.are_tunneled) = (are_plain, are_wide, 0, 0);
    Some(bytes)
}

/// Extracts the keys of recirculated packets, at most [`BATCH_MAX`], that were received on `in_port`. Returns true if some have
/// no Ethernet header.
pub(crate) fn parse_again(shared: &SharedState, in_port: DpPort, batch: &Batch, keys: &mut Keys) -> bool {
    let number = PortNo(in_port.0);
    let mut any_l3 = false;
    let (mut are_plain, mut are_wide, mut are_tracked, mut are_tunneled) = (0, 0, 0, 0);
    let options = OnceCell::new();
    let known = || &***options.get_or_init(|| shared.tunnel_options.load());
    let places = keys.plain.iter_mut().zip(&mut keys.wide).zip(&mut keys.tracked).zip(&mut keys.adds);
    for (i, (packet, (((plain, wide), tracked), adds))) in batch.iter().zip(places).enumerate() {
        let data = packet.data();
        let is_frame = packet.l3_type.is_none();
        any_l3 |= !is_frame;
        let beside = Beside::of(packet);
        let may_be_compact = is_frame && !matches!(beside, Beside::Other);
        let compact = if may_be_compact { extract_compact(data, number, plain, wide) } else { None };
        let len = data.len() as u32;
        match compact {
            Some(Compact::Plain) => {
                *adds = Adds { len, tcp_flags: plain.tcp_flags() };
                plain.recirculate(packet.recirc_id, packet.dp_hash);
                match beside {
                    Beside::Connection(connection) => {
                        are_tracked |= 1 << i;
                        tracked.set_plain(plain, connection);
                    }
                    Beside::Tunnel => (are_plain, are_tunneled) = (are_plain | 1 << i, are_tunneled | 1 << i),
                    Beside::Nothing | Beside::Other => are_plain |= 1 << i,
                }
            }
            Some(Compact::Wide) => {
                *adds = Adds { len, tcp_flags: wide.tcp_flags() };
                wide.recirculate(packet.recirc_id, packet.dp_hash);
                match beside {
                    Beside::Connection(connection) => {
                        are_tracked |= 1 << i;
                        tracked.set_wide(wide, connection);
                    }
                    Beside::Tunnel => are_tunneled |= 1 << i,
                    Beside::Nothing | Beside::Other => are_wide |= 1 << i,
                }
            }
            None => {
                let Some(key) = keys.any.get_mut(i) else { break };
                let vlans_max = shared.vlans_max.load(Ordering::Relaxed);
                extract_with_into(key, data, &context_of(packet, in_port), vlans_max);
                put_options(shared, packet, key);
                keys.with_metadata |= 1 << i;
                *adds = Adds::of(data.len(), key);
            }
        }
    }
    // Apart, as copies of words that have just been written wait for them.
    let tunneled = batch.iter().zip(keys.plain.iter().zip(&keys.wide)).zip(&mut keys.tunneled);
    for (i, ((packet, (plain, wide)), key)) in tunneled.enumerate() {
        let Some(tunnel) = packet.metadata().and_then(|metadata| metadata.tunnel.as_ref()) else { continue };
        match (are_tunneled >> i & 1, are_plain >> i & 1) {
            (1, 1) => key.set_plain(plain, tunnel, known),
            (1, _) => key.set_wide(wide, tunnel, known),
            _ => {}
        }
    }
    keys.are_plain = are_plain & !are_tunneled;
    (keys.are_wide, keys.are_tracked, keys.are_tunneled) = (are_wide, are_tracked, are_tunneled);
    any_l3
}

/// The metadata of a packet, by the compact key that it allows.
enum Beside<'a> {
    Nothing,
    Connection(&'a Connection),
    Tunnel,
    /// No compact key has it.
    Other,
}

impl<'a> Beside<'a> {
    #[inline]
    fn of(packet: &'a Packet) -> Self {
        let Some(metadata) = packet.metadata() else { return Self::Nothing };
        match (metadata.only_connection(), metadata.only_tunnel()) {
            (Some(connection), _) => Self::Connection(connection),
            (None, Some(_)) => Self::Tunnel,
            (None, None) => Self::Other,
        }
    }
}

/// Makes the keys of a batch those of its next pass, in which only hash and recirculation id are others. Returns whether some
/// packets have no Ethernet header, or `None` if the keys must be extracted.
pub(crate) fn recirculate_keys(batch: &Batch, keys: &mut Keys) -> Option<bool> {
    let mut any_l3 = false;
    for (i, packet) in batch.iter().enumerate() {
        // Keys of received packets lack it.
        if packet.metadata().is_some() || (keys.are_tracked | keys.are_tunneled) >> i & 1 != 0 {
            return None;
        }
        any_l3 |= packet.l3_type.is_some();
        if keys.are_plain >> i & 1 != 0 {
            let key = keys.plain.get_mut(i)?;
            *key = key.with_recirculation(packet.recirc_id, packet.dp_hash);
        } else if keys.are_wide >> i & 1 != 0 {
            let key = keys.wide.get_mut(i)?;
            *key = key.with_recirculation(packet.recirc_id, packet.dp_hash);
        } else {
            let key = keys.any.get_mut(i)?;
            key.set(Field::RecircId, packet.recirc_id.into());
            key.set(Field::DpHash, packet.dp_hash.into());
            keys.with_metadata |= 1 << i;
        }
    }
    Some(any_l3)
}

/// Drops packets that are too short for an Ethernet header. Returns the length of the others in bytes.
#[cold]
fn drop_short(shared: &SharedState, port: &Port, batch: &mut Batch) -> u64 {
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
    fn bitmaps_of_positions() {
        assert_eq!([0, 1, 5, 31, 32, 40].map(first), [0, 1, 31, u32::MAX >> 1, u32::MAX, u32::MAX]);
    }
}
