//! Pushes and pops the outer headers of tunnels.

use std::sync::atomic::{AtomicU32, Ordering};

use base::{DpPort, DropReason, PortNo};
use conntrack::fragments::{Family, Fragments, Taken};
use conntrack::parse::{self, Refusal};
use dpif::{Defragment, DpAction, TunnelPop, TunnelPush};
use flow::Field;
use flow::extract::{extract_with, ipproto};
use flow::hash;
use flow::plain::untagged_head;
use netdev::pool;
use packet::buf::BATCH_MAX;
use packet::{Batch, Outer, Packet};
use tunnel::header::{self, Hit, Malformed, Pop};

use super::{Executor, recirculate};
use crate::megaflow::Megaflow;
use crate::port::Port;

/// Basis of the hash that chooses source ports.
const BASIS: u32 = 0x7475_6e6e;
/// Microseconds in a unit of ERSPAN timestamps.
const TIMESTAMP_US: u64 = 100;

/// The shortest fragments of outer packets that are not the last of their datagram, in bytes from the IP header on.
const FRAGMENT_MIN: u32 = 400;

/// The store of fragments of outer packets.
pub(crate) fn outer_fragments() -> Fragments {
    let mut fragments = Fragments::new();
    for family in [Family::V4, Family::V6] {
        fragments.set_min_size(family, FRAGMENT_MIN).expect("it is the lower limit");
    }
    fragments
}

impl Executor<'_> {
    /// Pushes the headers of a tunnel in front of the packets. From now on, they are those of another ingress port.
    pub(super) fn push_tunnel(&mut self, packets: &mut Batch, push: &TunnelPush) {
        let unnumbered = AtomicU32::new(0);
        let context = self.push_context(push.port, &unnumbered);
        let (in_port, vlans_max) = (self.in_port, self.shared.vlans_max.load(Ordering::Relaxed));
        let dropped = push.template.push_all(packets, &context, |packet| flow_hash(packet, in_port, vlans_max));
        let reasons =
            [(DropReason::TooBig, dropped.too_long + dropped.unsegmented), (DropReason::Malformed, dropped.not_ip)];
        for (reason, n) in reasons.into_iter().filter(|(_, n)| *n > 0) {
            self.work.failed = Some(reason);
            self.shared.count_drop(self.from, reason, n.into());
        }
        let outer = Outer { port: push.port, may_fragment: push.template.may_fragment() };
        packets.iter_mut().for_each(|packet| become_outer(packet, outer));
        (self.in_port, self.in_key, self.any_l3) = (push.out_port, push.in_key, false);
    }

    /// What the packets of a tunnel's port depend on; `unnumbered` counts if there is no such port.
    #[inline]
    fn push_context<'c>(&'c self, port: DpPort, unnumbered: &'c AtomicU32) -> header::Context<'c> {
        let of_port = self.ports.port(port).and_then(|port| port.tunnel.as_ref());
        header::Context {
            ports: self.shared.tunnel_ports(),
            sequence: of_port.map_or(unnumbered, |port| &port.sequence),
            identification: &self.shared.identification,
            erspan_timestamp: (self.now.0 * 1000 / TIMESTAMP_US) as u32,
        }
    }

    /// Pushes the headers of its flow onto each packet, and sends all to a port. Leaves no packets.
    pub(crate) fn encapsulate(&mut self, packets: &mut Batch, flows: &[&Megaflow], to: DpPort) {
        let unnumbered = AtomicU32::new(0);
        let (in_port, vlans_max) = (self.in_port, self.shared.vlans_max.load(Ordering::Relaxed));
        let mut done = 0;
        // Neither numbers nor times are part of these headers.
        let context = self.push_context(DpPort(u32::MAX), &unnumbered);
        for (packet, flow) in packets.iter_mut().zip(flows) {
            let Some(own) = &flow.encapsulation else { break };
            let hash = flow_hash(packet, in_port, vlans_max);
            if own.headers.push(packet, hash, &context).is_err() {
                break;
            }
            become_outer(packet, Outer { port: own.port, may_fragment: false });
            done += 1;
        }
        let mut rest = if done < packets.len() { packets.split_off(done) } else { Batch::new() };
        self.output(packets, to, None, true);
        pool::recycle_all(packets);
        // These have to be segmented, or dropped.
        for (packet, flow) in rest.drain(..).zip(flows.iter().skip(done)) {
            packets.push(packet);
            if let [DpAction::TunnelPush(push), ..] = &*flow.actions {
                self.push_tunnel(packets, push);
            }
            if !packets.is_empty() {
                self.output(packets, to, None, true);
            }
            pool::recycle_all(packets);
        }
        (self.in_port, self.in_key) = (in_port, None);
    }

    /// Pops the headers of a tunnel from packets, or from copies of them, and has them looked up again as packets of the tunnel's
    /// port.
    #[inline]
    pub(super) fn pop_tunnel(&mut self, packets: &mut Batch, what: TunnelPop, last: bool) {
        match what.erspan {
            Some(erspan) => self.pop_gre(packets, what.port, erspan, last),
            None => self.pop_port(packets, what.port, last),
        }
    }

    /// Pops the headers of packets of GRE, some of which may be ERSPAN.
    #[cold]
    fn pop_gre(&mut self, packets: &mut Batch, gre: DpPort, erspan: DpPort, last: bool) {
        let taken = if last { std::mem::take(packets) } else { packets.iter().map(pool::copy).collect() };
        let (mut of_gre, mut of_erspan) = (Batch::new(), Batch::new());
        for packet in taken {
            if header::is_erspan(&packet) { of_erspan.push(packet) } else { of_gre.push(packet) }
        }
        for (mut packets, port) in [(of_gre, gre), (of_erspan, erspan)] {
            if !packets.is_empty() {
                self.pop_port(&mut packets, port, true);
            }
        }
    }

    fn pop_port(&mut self, packets: &mut Batch, port: DpPort, last: bool) {
        let Some(entry) = self.ports.port(port) else { return self.refuse_all(packets, DropReason::NoPort, last) };
        let Some(tunnel) = &entry.tunnel else { return self.refuse_all(packets, DropReason::NoTunnel, last) };
        if last && self.pop_known(packets, entry, tunnel.headers) {
            return;
        }
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

    /// Pops the headers of packets if the thread knows all of them. Returns false, and takes no packets, if not.
    #[inline]
    fn pop_known(&mut self, packets: &mut Batch, port: &Port, headers: Pop) -> bool {
        if packets.len() > BATCH_MAX || self.work.has_known() {
            return false;
        }
        let cache = &self.work.tunnels;
        let mut hits = [Hit::default(); BATCH_MAX];
        for (hit, packet) in hits.iter_mut().zip(&*packets) {
            match cache.find(headers, packet) {
                Some(found) => *hit = found,
                None => return false,
            }
        }
        let mut bytes = 0;
        for (packet, hit) in packets.iter_mut().zip(&hits) {
            cache.strip(packet, *hit);
            bytes += packet.len() as u64;
        }
        port.count_received(self.outputs.lane(), packets.len() as u64, bytes);
        if !self.work.push_known(packets, port.number, &hits) {
            packets.iter_mut().zip(&hits).for_each(|(packet, hit)| self.work.tunnels.attach(packet, *hit));
            self.look_up_again(packets, (port.number, 0), true);
            pool::recycle_all(packets);
        }
        true
    }

    /// Holds fragments of outer packets, or copies of them, and pops the outer headers of the datagrams that they complete.
    #[cold]
    pub(super) fn defragment(&mut self, packets: &mut Batch, what: &Defragment, last: bool) {
        let fragments = if last { std::mem::take(packets) } else { packets.iter().map(pool::copy).collect() };
        let (mut others, mut complete, mut late) = (Batch::new(), Vec::new(), Vec::new());
        {
            let mut held = self.shared.outer_fragments.lock();
            for packet in fragments {
                match parse::parse(&packet, 0) {
                    Err(Refusal::Fragment(at)) => match held.take(packet, &at, 0, self.in_port.0, self.now) {
                        Taken::Held => {}
                        Taken::Pass(packet, _) => others.push(packet),
                        Taken::Complete(datagram) => complete.push(datagram),
                    },
                    _ => others.push(packet),
                }
            }
            held.expire(self.now, &mut late);
        }
        self.shared.count_drop(self.from, DropReason::IncompleteDatagram, late.len() as u64);
        for datagram in complete {
            match self.tunnel_of(&datagram.whole, what) {
                Some(what) => self.pop_tunnel(&mut Batch::from_iter([datagram.whole]), what, true),
                None => datagram.divide(&mut others),
            }
        }
        if !others.is_empty() {
            self.output(&mut others, what.otherwise, None, true);
            pool::recycle_all(&mut others);
        }
    }

    /// The tunnel that a reassembled packet belongs to.
    fn tunnel_of(&self, whole: &Packet, what: &Defragment) -> Option<TunnelPop> {
        let vlans_max = self.shared.vlans_max.load(Ordering::Relaxed);
        let key = extract_with(whole.data(), &recirculate::context_of(whole, self.in_port), vlans_max);
        let udp_port = (key.ip_proto() == ipproto::UDP).then(|| key.get(Field::UdpDst) as u16);
        let is_of = |(of, pop): &&(Option<u16>, TunnelPop)| {
            let tunnel = self.ports.port(pop.port).and_then(|port| port.tunnel.as_ref());
            *of == udp_port && tunnel.is_some_and(|tunnel| tunnel.headers.proto() == key.ip_proto())
        };
        what.tunnels.iter().find(is_of).map(|(_, pop)| *pop)
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

/// Removes what a packet has beside its bytes, behind outer headers, and notes their tunnel. The mark decides about the route, and
/// stays.
#[inline]
fn become_outer(packet: &mut Packet, outer: Outer) {
    let mark = packet.metadata().map_or(0, |metadata| metadata.pkt_mark);
    packet.clear_metadata();
    if mark != 0 {
        packet.metadata_mut().pkt_mark = mark;
    }
    (packet.recirc_id, packet.dp_hash, packet.tags) = (0, 0, 0);
    packet.set_outer(outer);
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
