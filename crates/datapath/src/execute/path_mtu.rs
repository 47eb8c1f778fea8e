//! Answers to the senders of packets that are too long, with their outer headers, for the port that they leave by.
//!
//! An answer enters the bridge as if the other end of the tunnel had sent it, so that the flow tables lead it to the sender.

use std::sync::Arc;

use base::{DpPort, Millis};
use netdev::pool;
use packet::metadata::{Metadata, Tunnel};
use packet::{Batch, Packet, checksum, wire};
use tunnel::ecn;
use tunnel::path_mtu::{Answer, answer};

use super::Executor;

/// Answers in a row, and answers in a second.
const BURST: u64 = 50;
const PER_SECOND: u64 = 1000;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ROUTING: u8 = 43;

/// Limits the rate of answers.
#[derive(Debug)]
pub(crate) struct AnswerLimit {
    /// Answers that may be sent now, in thousandths.
    left: u64,
    /// The time of `left`.
    at: Millis,
}

impl Default for AnswerLimit {
    fn default() -> Self {
        Self { left: BURST * 1000, at: Millis(0) }
    }
}

impl AnswerLimit {
    /// Returns true if another answer may be sent.
    fn admits(&mut self, now: Millis) -> bool {
        let elapsed_ms = now.0.saturating_sub(self.at.0);
        self.left = (self.left.saturating_add(elapsed_ms.saturating_mul(PER_SECOND))).min(BURST * 1000);
        self.at = now.max(self.at);
        match self.left.checked_sub(1000) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

impl Executor<'_> {
    /// Answers the outer packets that a port has just refused.
    #[cold]
    pub(super) fn answer_too_long(&mut self) {
        let mut answered = None;
        for (packet, len_max) in self.outputs.take_too_long() {
            let excess = packet.len().saturating_sub(len_max);
            let Some((port, mut inner)) = self.other_direction(packet) else { continue };
            let metadata = inner.metadata().cloned();
            inner.clear_metadata();
            if let Some(Answer { packet: mut answer, flow }) = answer(&inner, excess)
                // One answer for all segments of a packet.
                && answered != Some(flow)
                && self.shared.path_mtu_limit.lock().admits(self.now)
            {
                answered = Some(flow);
                if let Some(Metadata { tunnel: Some(tunnel), tunnel_src_port, .. }) = metadata {
                    answer.set_only_tunnel(&returned(tunnel, self.in_key), tunnel_src_port);
                }
                if let Some(entry) = self.ports.port(port) {
                    entry.count_received(self.outputs.lane(), 1, answer.len() as u64);
                }
                self.look_up_again(&mut Batch::from_iter([answer]), (port, 0), true);
            }
            pool::recycle(inner);
        }
    }

    /// The inner packet of an outer packet, with metadata as if the other end had sent it, and the port of the tunnel.
    fn other_direction(&mut self, mut packet: Packet) -> Option<(DpPort, Packet)> {
        let port = packet.outer()?.port;
        let headers = self.ports.port(port)?.tunnel.as_ref()?.headers;
        checksum::finish(&mut packet);
        swap_addresses(packet.data_mut())?;
        headers.pop(&mut packet, &mut self.work.tunnels).ok()?;
        Some((port, packet))
    }
}

/// Swaps the outer addresses, which keeps all checksums valid. The packet has reached the last segment of its route.
fn swap_addresses(frame: &mut [u8]) -> Option<()> {
    let (at, ethertype) = wire::network(frame)?;
    let ip = frame.get_mut(at..)?;
    let (from, len) = match ethertype {
        IPV4 => (12, 4),
        IPV6 => (8, 16),
        _ => return None,
    };
    let (src, dst) = ip.get_mut(from..from + 2 * len)?.split_at_mut(len);
    src.swap_with_slice(dst);
    if ethertype == IPV6
        && ip[6] == ROUTING
        && let Some(segments_left) = ip.get_mut(43)
    {
        *segments_left = 0;
    }
    Some(())
}

/// The tunnel of packets from the other end: with the key that they have, and without the sender's congestion marks.
fn returned(tunnel: Arc<Tunnel>, in_key: Option<u64>) -> Arc<Tunnel> {
    if tunnel.tos & ecn::MASK == 0 && in_key.is_none() {
        return tunnel;
    }
    let mut changed = Tunnel::clone(&tunnel);
    changed.tos &= !ecn::MASK;
    changed.key = in_key.unwrap_or(changed.key);
    Arc::new(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_limited() {
        let mut limit = AnswerLimit::default();
        let admitted = |limit: &mut AnswerLimit, now| (0..200).filter(|_| limit.admits(Millis(now))).count();
        assert_eq!([1000, 1000, 1010, 1005, 1011, 9000].map(|now| admitted(&mut limit, now)), [50, 0, 10, 0, 1, 50]);
    }
}
