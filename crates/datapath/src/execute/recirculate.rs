//! Actions for another look-up: computing the hash that the key then contains, and recirculation.

use std::sync::atomic::Ordering;

use base::{DpPort, DropReason, PortNo};
use dpif::{DpAction, HashKind};
use flow::extract::extract_with;
use flow::plain::extract_plain;
use flow::{FlowKey, PacketContext, Words, hash};
use netdev::pool;
use packet::{Batch, Packet};
use vlog::{RateLimit, warn_rl};

use super::Executor;
use crate::input::{Key, Keys};
use crate::shared::SharedState;

/// Limit on messages about packets that recirculated too often.
static TOO_DEEP: RateLimit = RateLimit::new(1, 5);

/// Returns the part of a packet's key that is not in its bytes, for a packet received on `in_port`.
pub(crate) fn context_of(packet: &Packet, in_port: DpPort) -> PacketContext<'_> {
    let parts = &**packet;
    PacketContext {
        in_port: PortNo(in_port.0),
        recirc_id: parts.recirc_id,
        dp_hash: parts.dp_hash,
        l3_type: parts.l3_type,
        metadata: parts.metadata(),
    }
}

/// Puts the options of a packet that came from a tunnel into its key.
#[inline]
pub(crate) fn put_options(shared: &SharedState, packet: &Packet, key: &mut FlowKey) {
    let tunnel = packet.metadata().and_then(|metadata| metadata.tunnel.as_ref());
    if let Some(tunnel) = tunnel.filter(|tunnel| !tunnel.options.is_empty()) {
        shared.tunnel_options.load().put(key, &tunnel.options);
    }
}

/// Returns true if packets leave a list of actions for another look-up only, with the bytes and the metadata that they
/// entered it with: then the keys of their next pass differ from those of this one in hash and recirculation id alone.
pub(crate) fn keeps_keys(actions: &[DpAction]) -> bool {
    match actions {
        [before @ .., DpAction::Recirc(_)] => before.iter().all(|action| matches!(action, DpAction::Hash(..))),
        _ => false,
    }
}

/// Computes the hash of each packet whose key is at the same position of `keys`.
pub(super) fn hash_by_keys(keys: &Keys, packets: &mut Batch, kind: HashKind, basis: u32) {
    for (i, packet) in packets.iter_mut().enumerate() {
        packet.dp_hash = match keys.at(i) {
            Key::Plain(key) => hash_of(key, kind, basis),
            Key::Wide(key) => hash_of(key, kind, basis),
            Key::Tracked(key) => hash_of(key, kind, basis),
            Key::Tunneled(key) => hash_of(key, kind, basis),
            Key::Any(key) => hash_of(key, kind, basis),
        };
    }
}

/// Computes the hash of each packet.
pub(crate) fn hash(shared: &SharedState, in_port: DpPort, packets: &mut [Packet], kind: HashKind, basis: u32) {
    let vlans_max = shared.vlans_max.load(Ordering::Relaxed);
    for packet in packets {
        let plain = if packet.l3_type.is_none() { extract_plain(packet.data(), PortNo(in_port.0)) } else { None };
        packet.dp_hash = match plain {
            Some(key) => hash_of(&key, kind, basis),
            None => hash_of(&extract_with(packet.data(), &context_of(packet, in_port), vlans_max), kind, basis),
        };
    }
}

fn hash_of(key: &impl Words, kind: HashKind, basis: u32) -> u32 {
    match kind {
        HashKind::L4 => hash::l4(key, basis),
        HashKind::SymmetricL4 => hash::symmetric_l4(key, basis),
    }
}

impl Executor<'_> {
    /// Takes packets, or copies of them, for another look-up with this recirculation id. Packets that exceed a limit
    /// of the worklist are dropped.
    pub(crate) fn recirc(&mut self, packets: &mut Batch, id: u32, last: bool) {
        if self.look_up_again(packets, (self.in_port, id), last) > 0 {
            report_depth();
        }
    }

    /// The same for a look-up with an ingress port and a recirculation id; returns how many packets were dropped.
    pub(super) fn look_up_again(&mut self, packets: &mut Batch, id: (DpPort, u32), last: bool) -> usize {
        let before = packets.len();
        let mut taken = 0;
        if last && self.work.push_batch(packets, id) {
            return 0;
        }
        if last {
            for packet in packets.drain(..) {
                if self.work.admits(&packet) {
                    self.work.push(packet, id);
                    taken += 1;
                } else {
                    pool::recycle(packet);
                }
            }
        } else {
            for packet in &*packets {
                if self.work.admits(packet) {
                    self.work.push(pool::copy(packet), id);
                    taken += 1;
                }
            }
        }
        let dropped = before - taken;
        if dropped > 0 {
            self.work.failed = Some(DropReason::Recirculation);
            self.shared.count_drop(self.from, DropReason::Recirculation, dropped as u64);
        }
        dropped
    }
}

/// Reports packets that recirculated too often.
#[cold]
fn report_depth() {
    warn_rl!(&TOO_DEEP, target: "dpif_netdev", "Packet dropped. Max recirculation depth exceeded.");
}
