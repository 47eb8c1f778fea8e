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
use crate::bonds::{Bond, LaneLoads};
use crate::input::{Key, Keys};
use crate::shared::SharedState;

/// The port of each packet; `None` for packets whose bucket has none.
type Choices = SmallVec<[Option<DpPort>; BATCH_MAX]>;

/// Returns true if packets have the keys that they had before these actions.
pub(super) fn keep_packets(actions: &[DpAction]) -> bool {
    actions.iter().all(|action| matches!(action, DpAction::Output(_) | DpAction::LbOutput(_)))
}

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
        let lane = self.outputs.lane();
        let choices = match self.outputs.bonds.current(&self.shared.bonds).bond(id) {
            Some(bond) => {
                let balancer = Balancer { bond, loads: bond.loads(lane), lane, hash: L4::new(bond.hash_basis()) };
                match keys {
                    Some(keys) => balancer.choose_by_keys(packets, keys),
                    None => balancer.choose(packets, self.shared, self.in_port),
                }
            }
            None => SmallVec::from_elem(None, packets.len()),
        };
        let Some(first) = choices.first().copied() else { return };
        let rest = &choices[1..];
        match first {
            Some(port) if rest.iter().all(|choice| *choice == first) => self.output(packets, port, trunc, last),
            _ if last => self.output_chosen(packets.drain(..), &choices, trunc),
            _ => {
                let mut copies = Batch::new();
                pool::copy_all(packets, &mut copies);
                self.output_chosen(copies.drain(..), &choices, trunc);
            }
        }
    }

    /// Sends each packet by its port.
    fn output_chosen(&mut self, packets: impl Iterator<Item = Packet>, choices: &Choices, trunc: Option<usize>) {
        let mut by_port: SmallVec<[(DpPort, Batch); 4]> = SmallVec::new();
        let mut dropped = 0;
        for (packet, choice) in packets.zip(choices) {
            let Some(port) = *choice else {
                dropped += 1;
                pool::recycle(packet);
                continue;
            };
            match by_port.iter_mut().find(|(known, _)| *known == port) {
                Some((_, batch)) => batch.push(packet),
                None => {
                    let mut batch = self.outputs.spare();
                    batch.push(packet);
                    by_port.push((port, batch));
                }
            }
        }
        for (port, mut batch) in by_port {
            self.output(&mut batch, port, trunc, true);
            self.outputs.give_spare(batch);
        }
        if dropped > 0 {
            self.work.failed = Some(DropReason::NoBond);
            self.shared.count_drop(self.from, DropReason::NoBond, dropped);
        }
    }
}

/// Chooses members for packets, and counts them for their buckets.
#[derive(Clone, Copy)]
struct Balancer<'a> {
    bond: &'a Bond,
    loads: &'a LaneLoads,
    lane: usize,
    hash: L4,
}

impl Balancer<'_> {
    /// Returns the port of a packet with this hash.
    #[inline]
    fn choice(&self, packet: &Packet, hash: u32) -> Option<DpPort> {
        let bucket = hash as u8;
        self.loads.add(self.lane, bucket, packet.len());
        self.bond.port(bucket)
    }

    fn choose_by_keys(&self, packets: &Batch, keys: &Keys) -> Choices {
        let choose = |(i, packet): (usize, &Packet)| {
            let hash = match keys.at(i) {
                Key::Plain(key) => self.hash.of(key),
                Key::Wide(key) => self.hash.of(key),
                Key::Tracked(key) => self.hash.of(key),
                Key::Tunneled(key) => self.hash.of(key),
                Key::Any(key) => self.hash.of(key),
            };
            self.choice(packet, hash)
        };
        packets.iter().enumerate().map(choose).collect()
    }

    fn choose(&self, packets: &Batch, shared: &SharedState, in_port: DpPort) -> Choices {
        let choose = |packet: &Packet| {
            let hash = match untagged_head(packet.data()).filter(|_| packet.l3_type.is_none()) {
                Some((head, _)) => self.hash.of_head(&head),
                None => self.hash_of_other(packet, shared, in_port),
            };
            self.choice(packet, hash)
        };
        packets.iter().map(choose).collect()
    }

    /// The hash of a packet other than untagged TCP and UDP over IPv4.
    #[inline(never)]
    fn hash_of_other(&self, packet: &Packet, shared: &SharedState, in_port: DpPort) -> u32 {
        let plain = if packet.l3_type.is_none() { extract_plain(packet.data(), PortNo(in_port.0)) } else { None };
        let vlans_max = shared.vlans_max.load(Ordering::Relaxed);
        match plain {
            Some(key) => self.hash.of(&key),
            None => self.hash.of(&extract_with(packet.data(), &context_of(packet, in_port), vlans_max)),
        }
    }
}
