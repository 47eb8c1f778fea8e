//! Pushes and pops the outer headers of tunnels.

use std::sync::atomic::{AtomicU32, Ordering};

use base::{DpPort, DropReason, PortNo};
use dpif::TunnelPush;
use flow::extract::extract_with;
use flow::hash;
use flow::plain::untagged_head;
use netdev::pool;
use packet::{Batch, Packet};
use tunnel::header::{self, Malformed};

use super::{Executor, recirculate};

/// Basis of the hash that chooses source ports.
const BASIS: u32 = 0x7475_6e6e;
/// Microseconds in a unit of ERSPAN timestamps.
const TIMESTAMP_US: u64 = 100;

impl Executor<'_> {
    /// Pushes the headers of a tunnel in front of the packets. From now on, they are those of another ingress port.
    pub(super) fn push_tunnel(&mut self, packets: &mut Batch, push: &TunnelPush) {
        let unnumbered = AtomicU32::new(0);
        let of_port = self.ports.port(push.port).and_then(|port| port.tunnel.as_ref());
        let context = header::Context {
            ports: self.shared.tunnel_ports(),
            sequence: of_port.map_or(&unnumbered, |port| &port.sequence),
            erspan_timestamp: (self.now.0 * 1000 / TIMESTAMP_US) as u32,
        };
        let (in_port, vlans_max) = (self.in_port, self.shared.vlans_max.load(Ordering::Relaxed));
        let dropped = push.template.push_all(packets, &context, |packet| flow_hash(packet, in_port, vlans_max));
        let reasons =
            [(DropReason::TooBig, dropped.too_long + dropped.unsegmented), (DropReason::Malformed, dropped.not_ip)];
        for (reason, n) in reasons.into_iter().filter(|(_, n)| *n > 0) {
            self.work.failed = Some(reason);
            self.shared.count_drop(self.from, reason, n.into());
        }
        for packet in packets.iter_mut() {
            packet.clear_metadata();
            (packet.recirc_id, packet.dp_hash, packet.tags) = (0, 0, 0);
        }
        (self.in_port, self.any_l3) = (push.out_port, false);
    }

    /// Pops the headers of a tunnel from packets, or from copies of them, and has them looked up again as packets of the tunnel's
    /// port.
    pub(super) fn pop_tunnel(&mut self, packets: &mut Batch, port: DpPort, last: bool) {
        let Some(entry) = self.ports.port(port) else { return self.refuse_all(packets, DropReason::NoPort, last) };
        let Some(tunnel) = &entry.tunnel else { return self.refuse_all(packets, DropReason::NoTunnel, last) };
        let mut popped = if last { std::mem::take(packets) } else { packets.iter().map(pool::copy).collect() };
        let (mut malformed, mut wrong) = (0, 0);
        tunnel.headers.pop_all(&mut popped, &mut self.work.tunnels, |reason| match reason {
            Malformed::IpChecksum | Malformed::UdpChecksum | Malformed::GreChecksum => wrong += 1,
            _ => malformed += 1,
        });
        for (reason, n) in [(DropReason::TunnelHeader, malformed), (DropReason::TunnelChecksum, wrong)] {
            if n > 0 {
                self.work.failed = Some(reason);
                self.shared.count_drop(self.from, reason, n);
            }
        }
        let bytes: usize = popped.iter().map(Packet::len).sum();
        entry.count_received(self.outputs.lane(), popped.len() as u64, bytes as u64);
        self.look_up_again(&mut popped, (port, 0), true);
        pool::recycle_all(&mut popped);
    }

    /// Drops the packets if this is their last use, and counts them.
    #[cold]
    fn refuse_all(&mut self, packets: &mut Batch, reason: DropReason, last: bool) {
        self.work.failed = Some(reason);
        self.shared.count_drop(self.from, reason, packets.len() as u64);
        if last {
            pool::recycle_all(packets);
        }
    }
}

/// The hash of a packet's flow, which chooses the source port of the outer header: packets of one connection keep their order on
/// networks that balance by ports.
#[inline]
fn flow_hash(packet: &Packet, in_port: DpPort, vlans_max: usize) -> u32 {
    match untagged_head(packet.data()) {
        Some((head, _)) if packet.l3_type.is_none() => {
            let rest = u64::from(head.ports()) | u64::from(head.proto()) << 32;
            (base::mix::chain(head.addresses() ^ u64::from(BASIS), rest, FACTOR) >> 32) as u32
        }
        _ => other_hash(packet, in_port, vlans_max),
    }
}

/// A factor of hashes: digits of pi.
const FACTOR: u64 = 0xbe54_66cf_34e9_0c6d;

#[inline(never)]
fn other_hash(packet: &Packet, in_port: DpPort, vlans_max: usize) -> u32 {
    let context = recirculate::context_of(packet, in_port);
    debug_assert_eq!(context.in_port, PortNo(in_port.0));
    hash::l4(&extract_with(packet.data(), &context, vlans_max), BASIS)
}
