//! `lb_output`: output by the members of a bond.
//!
//! The hash of each packet selects a bucket, and the bond's table the port of that. Packets of a batch by the same port leave
//! together, in their order.

use base::{DpPort, DropReason, PortNo};
use dpif::{BondId, DpAction};
use flow::extract::extract_with;
use flow::hash::L4;
use flow::plain::{extract_plain, untagged_head};
use netdev::pool;
use packet::buf::BATCH_MAX;
use packet::{Batch, Packet};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

use super::Executor;
use super::recirculate::context_of;
use crate::bonds::{Bond, NO_PORT};
use crate::input::{self, Key, Keys};
use crate::shared::{CALLER_LANE, SharedState};

/// Returns true if these actions leave packets as they are, so that their keys stay valid.
pub(super) fn leave_packets_alone(actions: &[DpAction]) -> bool {
    actions.iter().all(|action| matches!(action, DpAction::Output(_) | DpAction::LbOutput(_)))
}

/// The number of the port that each packet leaves by, or [`NO_PORT`].
type Choices = [u16; BATCH_MAX];

impl Executor<'_> {
    /// Sends the packets by the members of a bond: the packets themselves if this is their last use, otherwise copies. `keys`
    /// are those of the packets, if they are known.
    pub(super) fn lb_output(
        &mut self,
        packets: &mut Batch,
        id: BondId,
        keys: Option<&Keys>,
        trunc: Option<usize>,
        last: bool,
    ) {
        if packets.len() > BATCH_MAX {
            let mut rest = packets.split_off(BATCH_MAX);
            self.lb_output(packets, id, None, trunc, last);
            self.lb_output(&mut rest, id, None, trunc, last);
            return packets.append(&mut rest);
        }
        let (lane, n) = (self.outputs.lane(), packets.len());
        let mut choices = [NO_PORT; BATCH_MAX];
        let mut are_equal = true;
        if let Some(bond) = self.outputs.bonds.current(&self.shared.bonds).bond(id) {
            let hash = L4::new(bond.hash_basis());
            let hashes = match keys {
                Some(keys) => hashes_by_keys(hash, keys, n),
                None => hashes(hash, packets, self.shared, self.in_port),
            };
            are_equal = choose(bond, lane, packets, &hashes, &mut choices);
        }
        match choices[0] {
            port if are_equal && port != NO_PORT => self.output(packets, DpPort(port.into()), trunc, last),
            _ if last => self.output_chosen(packets, &choices, trunc),
            _ => {
                let mut copies = self.outputs.spare();
                pool::copy_all(packets, &mut copies);
                self.output_chosen(&mut copies, &choices, trunc);
                self.outputs.give_spare(copies);
            }
        }
    }

    /// Sends each packet by its port, and leaves `packets` empty.
    #[inline(never)]
    fn output_chosen(&mut self, packets: &mut Batch, choices: &Choices, trunc: Option<usize>) {
        let mut by_port: SmallVec<[(u16, Batch); 4]> = SmallVec::new();
        for (packet, choice) in packets.drain(..).zip(choices) {
            match by_port.iter_mut().find(|(known, _)| known == choice) {
                Some((_, batch)) => batch.push(packet),
                None => {
                    let mut batch = self.outputs.spare();
                    batch.reserve(BATCH_MAX);
                    batch.push(packet);
                    by_port.push((*choice, batch));
                }
            }
        }
        for (port, mut batch) in by_port {
            if port == NO_PORT {
                self.work.failed = Some(DropReason::NoBond);
                self.shared.count_drop(self.from, DropReason::NoBond, batch.len() as u64);
            } else {
                self.output(&mut batch, DpPort(port.into()), trunc, true);
            }
            self.outputs.give_spare(batch);
        }
    }
}

/// Chooses the port of each packet, and counts the packets for their buckets. Returns true if all leave by one port.
#[inline]
fn choose(bond: &Bond, lane: usize, packets: &Batch, hashes: &[u32; BATCH_MAX], choices: &mut Choices) -> bool {
    let loads = bond.loads(lane);
    if lane == CALLER_LANE {
        packets.iter().zip(hashes).for_each(|(packet, hash)| loads.add(*hash as u8, packet.len()));
    } else {
        packets.iter().zip(hashes).for_each(|(packet, hash)| loads.add_own(*hash as u8, packet.len()));
    }
    let (first, mut differ) = (bond.port(hashes[0] as u8), 0);
    for (hash, choice) in hashes.iter().zip(choices).take(packets.len()) {
        *choice = bond.port(*hash as u8);
        differ |= *choice ^ first;
    }
    differ == 0
}

/// The hashes of the first `n` packets with these keys.
#[inline]
fn hashes_by_keys(hash: L4, keys: &Keys, n: usize) -> [u32; BATCH_MAX] {
    let mut hashes = [0; BATCH_MAX];
    if keys.are_plain == input::first(n) {
        for (place, key) in hashes.iter_mut().zip(&keys.plain).take(n) {
            *place = hash.of(key);
        }
        return hashes;
    }
    for (i, place) in hashes.iter_mut().enumerate().take(n) {
        *place = match keys.at(i) {
            Key::Plain(key) => hash.of(key),
            Key::Wide(key) => hash.of(key),
            Key::Tracked(key) => hash.of(key),
            Key::Tunneled(key) => hash.of(key),
            Key::Any(key) => hash.of(key),
        };
    }
    hashes
}

/// The hashes of packets by their bytes.
#[inline]
fn hashes(hash: L4, packets: &Batch, shared: &SharedState, in_port: DpPort) -> [u32; BATCH_MAX] {
    let mut hashes = [0; BATCH_MAX];
    for (place, packet) in hashes.iter_mut().zip(packets) {
        *place = match untagged_head(packet.data()) {
            Some((head, _)) if packet.l3_type.is_none() => hash.of_head(&head),
            _ => hash_of_other(hash, packet, shared, in_port),
        };
    }
    hashes
}

/// The hash of a packet other than untagged TCP and UDP over IPv4.
#[inline(never)]
fn hash_of_other(hash: L4, packet: &Packet, shared: &SharedState, in_port: DpPort) -> u32 {
    let plain = if packet.l3_type.is_none() { extract_plain(packet.data(), PortNo(in_port.0)) } else { None };
    let vlans_max = shared.vlans_max.load(Ordering::Relaxed);
    match plain {
        Some(key) => hash.of(&key),
        None => hash.of(&extract_with(packet.data(), &context_of(packet, in_port), vlans_max)),
    }
}
