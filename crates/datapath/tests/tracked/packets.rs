//! Random connections and their packets. The payload repeats the packet's number.

use base::rng::Rng;
use flow::{Field, FlowKey};
use packet::checksum::{checksum, update16};
use packet::{Checksum, Gso, GsoKind, Packet};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Payload of a fragment in bytes.
const PIECE: usize = 504;

/// A connection. No two of a round have the same port, so that translations never collide.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub number: u16,
    is_v6: bool,
    proto: u8,
    client: u8,
    server: u8,
    vlan: u16,
    /// Its datagrams arrive in fragments.
    pub in_fragments: bool,
}

/// What the packets of one flow in a batch have in common.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    pub is_reply: bool,
    tcp_flags: u16,
    source: u8,
    /// Addresses of the reply as they are after translations.
    translated: [bool; 2],
    payload: usize,
    is_large: bool,
    spoils: bool,
    /// An ICMP error about the connection.
    is_error: bool,
}

impl Flow {
    pub fn random(rng: &mut Rng, number: u16) -> Self {
        let is_v6 = rng.below(3) == 0;
        let proto = [TCP, TCP, UDP, if is_v6 { ICMPV6 } else { ICMP }][rng.below(4) as usize];
        let vlan = if rng.below(4) == 0 { 9 } else { 0 };
        let (client, server) = (rng.below(4) as u8, rng.below(4) as u8);
        Self { number, is_v6, proto, client, server, vlan, in_fragments: rng.below(8) == 0 }
    }

    /// A form for a batch.
    pub fn form(&self, rng: &mut Rng, is_plain: bool) -> Form {
        let flags = [0x02, 0x12, 0x10, 0x10, 0x18, 0x11, 0x04];
        let tcp_flags = if is_plain { 0x10 } else { flags[rng.below(7) as usize] };
        Form {
            is_reply: rng.below(3) == 0,
            tcp_flags,
            source: rng.below(2) as u8,
            translated: [rng.below(2) == 0, rng.below(4) == 0],
            payload: 2 + rng.below(6) as usize,
            is_large: self.proto == TCP && !self.in_fragments && rng.below(10) == 0,
            spoils: rng.below(30) == 0,
            is_error: !is_plain && !self.in_fragments && rng.below(12) == 0,
        }
    }

    fn key(&self, form: &Form) -> FlowKey {
        let [net, client, server] = if self.is_v6 { [0xfd00 << 112, 0, 0x100] } else { [0x0a00_0000, 0, 0x100] };
        let (client, server) = (net | client | u128::from(self.client), net | server | u128::from(self.server));
        let [of_client, of_server] = form.translated;
        let (src, dst) = if form.is_reply {
            (if of_server { net | 0x202 } else { server }, if of_client { net | 0x201 } else { client })
        } else {
            (client, server)
        };
        let mut key = FlowKey::ZERO;
        key.set(Field::EthDst, 0x0200_0000_0001);
        key.set(Field::EthSrc, 0x0200_0000_0010 | u128::from(form.source));
        if self.vlan != 0 {
            key.set_vlan(0, 0x8100, 0x1000 | self.vlan);
        }
        let (eth, from, to) =
            if self.is_v6 { (0x86dd, Field::Ipv6Src, Field::Ipv6Dst) } else { (0x800, Field::Ipv4Src, Field::Ipv4Dst) };
        key.set(Field::EthType, eth);
        key.set(from, src);
        key.set(to, dst);
        key.set(Field::IpTtl, 64);
        key.set(Field::IpProto, self.proto.into());
        let (client, server) = (u128::from(1024 + self.number), 80 + u128::from(self.server & 1));
        let ports = if form.is_reply { (server, client) } else { (client, server) };
        match self.proto {
            TCP => {
                key.set(Field::TcpSrc, ports.0);
                key.set(Field::TcpDst, ports.1);
                key.set(Field::TcpFlags, form.tcp_flags.into());
            }
            UDP => {
                key.set(Field::UdpSrc, ports.0);
                key.set(Field::UdpDst, ports.1);
            }
            ICMP => key.set(Field::Icmpv4Type, if form.is_reply { 0 } else { 8 }),
            _ => key.set(Field::Icmpv6Type, if form.is_reply { 129 } else { 128 }),
        }
        key
    }

    /// Appends the packet with a number, in one or more pieces.
    pub fn emit(&self, rng: &mut Rng, form: &Form, number: u64, out: &mut Vec<Packet>) {
        let repeated = if form.is_large {
            300
        } else if self.in_fragments {
            130
        } else {
            form.payload
        };
        let payload = number.to_be_bytes().repeat(repeated);
        if form.is_error {
            return out.push(Packet::from_slice(&self.error(form, &payload)));
        }
        let mut frame = flow::compose(&self.key(form), &payload);
        if matches!(self.proto, ICMP | ICMPV6) {
            self.identify(&mut frame);
        }
        let l3 = if self.vlan != 0 { 18 } else { 14 };
        if self.in_fragments {
            let pieces = if self.is_v6 { cut_v6(&frame, l3, number) } else { cut_v4(&frame, l3, number) };
            let mut pieces: Vec<_> = pieces.iter().map(|piece| Packet::from_slice(piece)).collect();
            if rng.below(4) == 0 {
                pieces.swap(0, 1);
            }
            if rng.below(12) == 0 {
                pieces.pop();
            }
            return out.append(&mut pieces);
        }
        if form.spoils && !self.is_v6 {
            frame[l3 + 10] ^= 1;
        }
        let mut packet = Packet::from_slice(&frame);
        if form.is_large {
            let kind = if self.is_v6 { GsoKind::TcpV6 } else { GsoKind::TcpV4 };
            packet.offload.gso = Some(Gso { kind, size: 800, ecn: false });
            packet.offload.checksum = Checksum::Good;
        }
        out.push(packet);
    }

    /// Gives an echo message an identifier.
    fn identify(&self, frame: &mut [u8]) {
        let l4 = if self.vlan != 0 { 18 } else { 14 } + if self.is_v6 { 40 } else { 20 };
        let old = u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]);
        let new = 1024 + self.number;
        let sum = u16::from_be_bytes([frame[l4 + 2], frame[l4 + 3]]);
        frame[l4 + 2..l4 + 4].copy_from_slice(&update16(sum, old, new).to_be_bytes());
        frame[l4 + 4..l4 + 6].copy_from_slice(&new.to_be_bytes());
    }

    /// An ICMP error about a packet of the other direction.
    fn error(&self, form: &Form, payload: &[u8]) -> Vec<u8> {
        let mut cause = flow::compose(&self.key(&Form { is_reply: !form.is_reply, ..*form }), payload);
        if matches!(self.proto, ICMP | ICMPV6) {
            self.identify(&mut cause);
        }
        let mut key = self.key(form);
        key.set(Field::TcpSrc, 0);
        key.set(Field::TcpDst, 0);
        key.set(Field::TcpFlags, 0);
        key.set(Field::IpProto, if self.is_v6 { ICMPV6.into() } else { ICMP.into() });
        let (kind, code) =
            if self.is_v6 { (Field::Icmpv6Type, Field::Icmpv6Code) } else { (Field::Icmpv4Type, Field::Icmpv4Code) };
        key.set(kind, if self.is_v6 { 1 } else { 3 });
        key.set(code, 1);
        let start = if self.vlan != 0 { 18 } else { 14 };
        flow::compose(&key, &cause[start..])
    }
}

/// Cuts an IPv4 packet into two or three fragments.
fn cut_v4(frame: &[u8], l3: usize, id: u64) -> Vec<Vec<u8>> {
    let start = l3 + 20;
    pieces(&frame[start..])
        .into_iter()
        .map(|(offset, part, more)| {
            let mut piece = frame[..start].to_vec();
            piece.extend(part);
            let ip = &mut piece[l3..start];
            ip[2..4].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
            ip[4..6].copy_from_slice(&(id as u16).to_be_bytes());
            ip[6..8].copy_from_slice(&((offset / 8) as u16 | u16::from(more) << 13).to_be_bytes());
            ip[10..12].fill(0);
            let sum = checksum(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            piece
        })
        .collect()
}

/// Cuts an IPv6 packet into two or three fragments.
fn cut_v6(frame: &[u8], l3: usize, id: u64) -> Vec<Vec<u8>> {
    let start = l3 + 40;
    pieces(&frame[start..])
        .into_iter()
        .map(|(offset, part, more)| {
            let mut piece = frame[..start].to_vec();
            let next = std::mem::replace(&mut piece[l3 + 6], 44);
            piece[l3 + 4..l3 + 6].copy_from_slice(&(8 + part.len() as u16).to_be_bytes());
            piece.extend([next, 0]);
            piece.extend((offset as u16 | u16::from(more)).to_be_bytes());
            piece.extend((id as u32).to_be_bytes());
            piece.extend(part);
            piece
        })
        .collect()
}

/// The parts of a payload: their offsets, and whether more follow.
fn pieces(payload: &[u8]) -> Vec<(usize, &[u8], bool)> {
    let n = payload.len().div_ceil(PIECE);
    payload.chunks(PIECE).enumerate().map(|(i, part)| (i * PIECE, part, i + 1 < n)).collect()
}
