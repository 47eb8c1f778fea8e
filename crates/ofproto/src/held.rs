//! Packets that wait for the Ethernet address of a neighbour, to leave through a tunnel.
//!
//! The first packet of a flow to an unknown neighbour is held, unless it also went elsewhere; later ones match the flow that drops
//! them. When the address is known, the packet is translated again. Its statistics are those of one packet: what the first
//! translation counted is not counted again.

use crate::effects::Seen;
use crate::switch::Switch;
use base::{DpPort, DropReason, Millis};
use dpif::{DpAction, Upcall};
use flow::{Field, FlowKey};
use packet::Packet;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use xlate::{Effect, Resolve, Verdict};

/// Packets that are held at most for one neighbour, and for all.
const OF_NEIGHBOUR_MAX: usize = 16;
const ALL_MAX: usize = 1024;
/// How long a packet waits, in milliseconds.
const WAIT_MS: u64 = 3_000;

/// A packet that waits.
#[derive(Debug)]
struct Waiting {
    neighbour: Arc<Resolve>,
    key: Box<FlowKey>,
    port: DpPort,
    packet: Packet,
    /// What the first translation counted.
    counted: Vec<Effect>,
    until: Millis,
}

impl Waiting {
    fn waits_for(&self) -> (&str, IpAddr) {
        (&self.neighbour.bridge, self.neighbour.ip)
    }
}

/// All packets that wait, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Held(VecDeque<Waiting>);

impl Held {
    /// Holds a packet. Returns false if too many are held.
    fn add(&mut self, waiting: Waiting) -> bool {
        let same = self.0.iter().filter(|other| other.waits_for() == waiting.waits_for()).count();
        let fits = same < OF_NEIGHBOUR_MAX && self.0.len() < ALL_MAX;
        if fits {
            self.0.push_back(waiting);
        }
        fits
    }

    /// Takes the packets whose neighbour is known, and those that have waited long enough.
    fn take(&mut self, now: Millis, is_known: impl Fn(&Resolve) -> bool) -> Vec<Waiting> {
        let (taken, left) = self.0.drain(..).partition(|one| one.until <= now || is_known(&one.neighbour));
        self.0 = left;
        Vec::from(taken)
    }
}

/// The effects that were not counted before, in their order.
fn uncounted(effects: Vec<Effect>, mut counted: Vec<Effect>) -> Vec<Effect> {
    let is_new = |effect: &Effect| match counted.iter().position(|other| other == effect) {
        Some(at) => {
            counted.swap_remove(at);
            false
        }
        None => true,
    };
    effects.into_iter().filter(is_new).collect()
}

impl Switch {
    /// Holds a packet if it has to wait for a neighbour. Returns whether it does.
    pub(crate) fn hold(&self, upcall: &Upcall<'_>, verdict: &Verdict) -> bool {
        if verdict.drop != Some(DropReason::NoNeighbour) || !verdict.actions.is_empty() {
            return false;
        }
        let neighbour = verdict.effects.iter().find_map(|effect| match effect {
            Effect::Resolve(neighbour) => Some(Arc::clone(neighbour)),
            _ => None,
        });
        let Some(neighbour) = neighbour.filter(|_| upcall.key.get(Field::RecircId) == 0) else { return false };
        let (key, port, packet) = (Box::new(upcall.key.clone()), upcall.port, upcall.packet.clone());
        let (counted, until) = (verdict.effects.clone(), self.clock().now().after(WAIT_MS));
        self.held.lock().add(Waiting { neighbour, key, port, packet, counted, until })
    }

    /// Sends the packets that waited for a neighbour which is known now, and drops those that have waited for too long. To be
    /// called regularly, and when a neighbour has become known.
    pub fn release_held(&self) {
        let net = self.network();
        let (Some(underlay), Some(dpif)) = (net.tunnels.underlay(), self.dpif()) else { return };
        let now = self.clock().now();
        let is_known = |of: &Resolve| underlay.neighbour(&of.bridge, of.ip).is_some();
        let taken = self.held.lock().take(now, is_known);
        for Waiting { neighbour, key, port, packet, counted, .. } in taken {
            let mut actions = vec![DpAction::Drop(DropReason::NoNeighbour)];
            if is_known(&neighbour) {
                let mut verdict = self.translate_now(&key).verdict;
                let effects = uncounted(std::mem::take(&mut verdict.effects), counted);
                self.apply(&effects, 1, packet.len() as u64, now, Seen::Now);
                actions = crate::upcall::dp_actions(&mut verdict);
            }
            if let Err(error) = dpif.execute(port, packet, &actions.into()) {
                tracing::debug!(target: "ofproto_dpif", "a packet that waited for {}: {error}", neighbour.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::MacAddr;

    fn waiting(n: u8, until: u64) -> Waiting {
        let address = |n: u8| IpAddr::from([192, 0, 2, n]);
        let neighbour = Resolve { bridge: "br0".into(), ip: address(n), src: address(1), mac: MacAddr::ZERO };
        let (key, packet) = (Box::new(FlowKey::ZERO), Packet::from_slice(&[n; 60]));
        Waiting { neighbour: Arc::new(neighbour), key, port: DpPort(1), packet, counted: vec![], until: Millis(until) }
    }

    fn numbers(taken: &[Waiting]) -> Vec<u8> {
        taken.iter().map(|one| one.packet.data()[0]).collect()
    }

    #[test]
    fn packets_are_taken_when_their_neighbour_is_known_or_their_time_is_over() {
        let mut held = Held::default();
        assert!([(2, 10), (3, 20), (2, 30)].into_iter().all(|(n, until)| held.add(waiting(n, until))));
        assert!(held.take(Millis(9), |_| false).is_empty());
        assert_eq!(numbers(&held.take(Millis(9), |of| of.ip == IpAddr::from([192, 0, 2, 2]))), [2, 2]);
        assert_eq!(numbers(&held.take(Millis(20), |_| false)), [3]);
        assert!(held.0.is_empty());
    }

    #[test]
    fn the_number_of_packets_is_bounded() {
        let mut held = Held::default();
        let added = (0..=u8::MAX).flat_map(|n| [n; 20]).filter(|n| held.add(waiting(*n, 1))).count();
        assert_eq!(added, ALL_MAX);
        assert_eq!(held.0.iter().filter(|one| one.packet.data()[0] == 0).count(), OF_NEIGHBOUR_MAX);
    }

    #[test]
    fn effects_count_once() {
        let tunnel = |port| Effect::Tunnel { bridge: 1, port: base::PortNo(port), sent: true };
        let (counted, effects) = (vec![tunnel(1), tunnel(2)], vec![tunnel(1), tunnel(1), Effect::Headers(50)]);
        assert_eq!(uncounted(effects, counted), [tunnel(1), Effect::Headers(50)]);
    }
}
