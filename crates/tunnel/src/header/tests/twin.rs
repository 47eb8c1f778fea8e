//! A naive twin of the codec: bytes one by one in the order of the specifications, without code in common.

use super::super::erspan::Erspan;
use super::super::pop::{Inner, Parsed, Pop, parse};
use super::super::push::{Encapsulation, OuterIp, Push, Udp};
use super::super::srv6::FlowLabel;
use super::super::template::{Context, PortRange, Template};
use super::super::{bareudp::Payload, gtpu};
use super::arbitrary::{InnerPacket, pushes};
use super::{packet, pop_of};
use proptest::prelude::*;
use std::net::IpAddr;
use std::sync::atomic::AtomicU32;

/// RFC 1071, word by word.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for i in (0..bytes.len()).step_by(2) {
        sum += u32::from(bytes[i]) * 256 + bytes.get(i + 1).map_or(0, |low| u32::from(*low));
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    sum as u16
}

struct Bytes(Vec<u8>);

impl Bytes {
    fn u8(&mut self, n: u8) -> &mut Self {
        self.0.push(n);
        self
    }

    fn u16(&mut self, n: u16) -> &mut Self {
        self.u8((n / 256) as u8).u8((n % 256) as u8)
    }

    fn u32(&mut self, n: u32) -> &mut Self {
        self.u16((n / 65536) as u16).u16((n % 65536) as u16)
    }

    fn all(&mut self, bytes: &[u8]) -> &mut Self {
        bytes.iter().for_each(|byte| self.0.push(*byte));
        self
    }
}

/// The values of a packet and its port.
#[derive(Clone, Copy, Debug)]
struct Values {
    hash: u32,
    sequence: u32,
    timestamp: u32,
    identification: u16,
}

fn udp(header: &Udp, values: Values, payload: &[u8], ip: &OuterIp) -> Vec<u8> {
    let mut out = Bytes(Vec::new());
    let hashed = 32768 + (u64::from(values.hash) * (61000 - 32768) / (1 << 32)) as u16;
    let len = 8 + payload.len();
    out.u16(if header.src == 0 { hashed } else { header.src }).u16(header.dst).u16(len as u16).u16(0).all(payload);
    if header.checksum {
        let mut pseudo = Bytes(Vec::new());
        match (ip.src(), ip.dst()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => pseudo.all(&src.octets()).all(&dst.octets()),
            (IpAddr::V6(src), IpAddr::V6(dst)) => pseudo.all(&src.octets()).all(&dst.octets()),
            _ => unreachable!("one family"),
        };
        pseudo.u16(17).u16(len as u16).all(&out.0);
        let checksum = match 0xffff - sum(&pseudo.0) {
            0 => 0xffff,
            other => other,
        };
        out.0[6] = (checksum / 256) as u8;
        out.0[7] = (checksum % 256) as u8;
    }
    out.0
}

/// The frame that the headers and an inner packet make.
fn encode(push: &Push, (inner, l3_type): &InnerPacket, values: Values) -> Vec<u8> {
    let mut tunnel = Bytes(Vec::new());
    let mut label = 0;
    let payload = match &push.tunnel {
        Encapsulation::Vxlan(outer, vxlan) => {
            tunnel.u32(vxlan.flags).u32(vxlan.vni * 256).all(inner);
            udp(outer, values, &tunnel.0, &push.ip)
        }
        Encapsulation::Geneve(outer, geneve) => {
            let mut critical = false;
            let mut at = 0;
            while at < geneve.options.len() {
                critical |= geneve.options[at + 2] >= 128;
                at += 4 + 4 * usize::from(geneve.options[at + 3]);
            }
            let flags = if geneve.oam { 128 } else { 0 } + if critical { 64 } else { 0 };
            tunnel.u8((geneve.options.len() / 4) as u8).u8(flags).u16(0x6558).u32(geneve.vni * 256);
            tunnel.all(&geneve.options).all(inner);
            udp(outer, values, &tunnel.0, &push.ip)
        }
        Encapsulation::Gtpu(outer, header) => {
            let mut body = Bytes(Vec::new());
            if header.flags % 8 != 0 {
                body.u16(if header.flags & 2 != 0 { values.sequence as u16 } else { 0 }).u16(0);
            }
            body.all(inner);
            tunnel.u8(header.flags).u8(header.message_type).u16(body.0.len() as u16).u32(header.teid).all(&body.0);
            udp(outer, values, &tunnel.0, &push.ip)
        }
        Encapsulation::Bareudp(outer) => udp(outer, values, inner, &push.ip),
        Encapsulation::Gre(gre) => {
            let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
            tunnel.u16(flag(gre.checksum, 0x8000) + flag(gre.key.is_some(), 0x2000) + flag(gre.sequence, 0x1000));
            tunnel.u16(gre.protocol);
            if gre.checksum {
                tunnel.u32(0);
            }
            if let Some(key) = gre.key {
                tunnel.u32(key);
            }
            if gre.sequence {
                tunnel.u32(values.sequence);
            }
            tunnel.all(inner);
            if gre.checksum {
                let checksum = 0xffff - sum(&tunnel.0);
                tunnel.0[4] = (checksum / 256) as u8;
                tunnel.0[5] = (checksum % 256) as u8;
            }
            tunnel.0
        }
        Encapsulation::Erspan(Erspan::V1 { session, index }) => {
            tunnel.u16(0x1000).u16(0x88be).u32(values.sequence);
            tunnel.u16(0x1000).u16(*session).u32(*index).all(inner);
            tunnel.0
        }
        Encapsulation::Erspan(Erspan::V2 { session, is_egress, hardware_id }) => {
            tunnel.u16(0x1000).u16(0x22eb).u32(values.sequence);
            tunnel.u16(0x2000).u16(*session).u32(values.timestamp);
            tunnel.u16(0).u16(u16::from(*hardware_id) * 16 + if *is_egress { 8 } else { 0 }).all(inner);
            tunnel.0
        }
        Encapsulation::Srv6(srv6) => {
            let n = srv6.segments.len() as u8;
            tunnel.u8(if *l3_type == Some(0x800) { 4 } else { 41 }).u8(2 * n).u8(4).u8(n - 1).u8(n - 1).u8(0).u16(0);
            for segment in srv6.segments.iter().rev() {
                tunnel.all(&segment.octets());
            }
            tunnel.all(inner);
            label = match srv6.flow_label {
                FlowLabel::Compute => values.hash % (1 << 20),
                FlowLabel::Copy if *l3_type == Some(0x86dd) => {
                    u32::from(inner[1] % 16) * 65536 + u32::from(inner[2]) * 256 + u32::from(inner[3])
                }
                FlowLabel::Copy | FlowLabel::Zero => 0,
            };
            tunnel.0
        }
    };
    let proto = match &push.tunnel {
        Encapsulation::Gre(_) | Encapsulation::Erspan(_) => 47,
        Encapsulation::Srv6(_) => 43,
        _ => 17,
    };
    let mut out = Bytes(Vec::new());
    out.all(&push.eth_dst.0).all(&push.eth_src.0);
    if let Some(tci) = push.vlan {
        out.u16(0x8100).u16(tci);
    }
    match push.ip {
        OuterIp::V4 { src, dst, tos, ttl, dont_fragment } => {
            let mut ip = Bytes(Vec::new());
            ip.u8(0x45).u8(tos).u16((20 + payload.len()) as u16);
            if dont_fragment {
                ip.u16(0).u16(0x4000)
            } else {
                ip.u16(values.identification).u16(0)
            };
            ip.u8(ttl).u8(proto).u16(0).all(&src.octets()).all(&dst.octets());
            let checksum = 0xffff - sum(&ip.0);
            ip.0[10] = (checksum / 256) as u8;
            ip.0[11] = (checksum % 256) as u8;
            out.u16(0x800).all(&ip.0);
        }
        OuterIp::V6 { src, dst, class, hop_limit, label: fixed, dont_fragment: _ } => {
            let word = 6 * (1 << 28) + u32::from(class) * (1 << 20) + fixed + label;
            out.u16(0x86dd).u32(word).u16(payload.len() as u16).u8(proto).u8(hop_limit);
            out.all(&src.octets()).all(&dst.octets());
        }
    }
    out.all(&payload);
    out.0
}

/// Bytes read one by one; `None` past their end.
#[derive(Clone)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn u8(&mut self) -> Option<u8> {
        let byte = *self.0.first()?;
        self.0 = &self.0[1..];
        Some(byte)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from(self.u8()?) * 256 + u16::from(self.u8()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from(self.u16()?) * 65536 + u32::from(self.u16()?))
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        (0..n).try_fold((), |(), i| self.0.get(i).map(|_| ()))?;
        let (taken, rest) = self.0.split_at(n);
        self.0 = rest;
        Some(taken)
    }
}

/// What [`parse`] should find: its fields, but for the inner packet as bytes.
#[derive(Debug, PartialEq)]
struct Decoded {
    addresses: (Vec<u8>, Vec<u8>),
    tos_ttl: (u8, u8),
    ports: (u16, u16),
    flags: u16,
    key: u64,
    extensions: (u32, u64, u64),
    options: Vec<u8>,
    inner: Inner,
    bytes: Vec<u8>,
}

impl Decoded {
    fn of(parsed: &Parsed<'_>, frame: &[u8]) -> Self {
        let octets = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        Self {
            addresses: (octets(parsed.addresses.src()), octets(parsed.addresses.dst())),
            tos_ttl: (parsed.tos, parsed.ttl),
            ports: (parsed.src_port, parsed.dst_port),
            flags: parsed.flags,
            key: parsed.key,
            extensions: (parsed.group_policy, parsed.erspan, parsed.gtpu),
            options: parsed.options.to_vec(),
            inner: parsed.inner,
            bytes: frame[parsed.start..parsed.end].to_vec(),
        }
    }
}

/// Decapsulates a frame; `None` for all that is malformed.
fn decode(pop: Pop, frame: &[u8]) -> Option<Decoded> {
    let mut r = Reader(frame);
    r.take(12)?;
    let mut ethertype = r.u16()?;
    while ethertype == 0x8100 || ethertype == 0x88a8 {
        r.u16()?;
        ethertype = r.u16()?;
    }
    let wanted = match pop {
        Pop::Gre | Pop::Erspan => 47,
        Pop::Srv6 => 43,
        _ => 17,
    };
    let mut out = Decoded {
        addresses: (Vec::new(), Vec::new()),
        tos_ttl: (0, 0),
        ports: (0, 0),
        flags: 0,
        key: 0,
        extensions: (0, 0, 0),
        options: Vec::new(),
        inner: Inner::Ethernet,
        bytes: Vec::new(),
    };
    if ethertype == 0x800 {
        let header = r.clone().take(20)?;
        let total = usize::from(header[2]) * 256 + usize::from(header[3]);
        let fragment = header[6] & 0x3f != 0 || header[7] != 0;
        if header[0] != 0x45 || total < 20 || sum(header) != 0xffff || fragment || header[9] != wanted {
            return None;
        }
        out.addresses = (header[12..16].to_vec(), header[16..20].to_vec());
        out.tos_ttl = (header[1], header[8]);
        out.flags = if header[6] & 0x40 != 0 { 2 } else { 0 };
        r = Reader(r.take(total)?);
        r.take(20)?;
    } else if ethertype == 0x86dd {
        let word = r.u32()?;
        if word >> 28 != 6 {
            return None;
        }
        let len = r.u16()?;
        let mut next = r.u8()?;
        out.tos_ttl = ((word >> 20) as u8, r.u8()?);
        out.addresses = (r.take(16)?.to_vec(), r.take(16)?.to_vec());
        r = Reader(r.take(len.into())?);
        while next != wanted {
            let after = r.clone().u8()?;
            let len = usize::from(r.0.get(1).copied()?);
            let header = match next {
                0 | 43 | 60 => r.take(8 + 8 * len)?,
                51 => r.take(8 + 4 * len)?,
                44 => r.take(8)?,
                _ => return None,
            };
            if next == 43 && header[3] != 0 || next == 44 && (header[2] != 0 || header[3] & 0xf9 != 0) {
                return None;
            }
            next = after;
        }
    } else {
        return None;
    }
    if wanted == 17 {
        let whole = r.0;
        out.ports = (r.u16()?, r.u16()?);
        let len = usize::from(r.u16()?);
        let checksum = r.u16()?;
        if len < 8 || len > whole.len() {
            return None;
        }
        let mut pseudo = [out.addresses.0.clone(), out.addresses.1.clone()].concat();
        pseudo.extend([0, 17, (len / 256) as u8, (len % 256) as u8]);
        pseudo.extend(&whole[..len]);
        if checksum != 0 {
            if sum(&pseudo) != 0xffff {
                return None;
            }
            out.flags += 4;
        }
        r = Reader(&whole[8..len]);
    }
    decode_tunnel(pop, r, frame, out)
}

fn decode_tunnel(pop: Pop, mut r: Reader<'_>, frame: &[u8], mut out: Decoded) -> Option<Decoded> {
    let ip = |bytes: &[u8]| match bytes.first()? / 16 {
        4 => Some(Inner::L3(0x800)),
        6 => Some(Inner::L3(0x86dd)),
        _ => None,
    };
    match pop {
        Pop::Vxlan { group_policy } => {
            let (flags, vni) = (r.u32()?, r.u32()?);
            let first = flags >> 24;
            if vni % 256 != 0 {
                return None;
            }
            if flags == 0x0800_0000 {
            } else if first & 0xcf == 0x0c && flags & 0x00ff_ff00 == 0 {
                out.inner = match flags % 256 {
                    1 => Inner::L3(0x800),
                    2 => Inner::L3(0x86dd),
                    3 => Inner::Ethernet,
                    4 => Inner::L3(0x894f),
                    _ => return None,
                };
            } else if group_policy && first == 0x88 {
                out.extensions.0 = flags & 0x0048_ffff;
            } else {
                return None;
            }
            out.key = (vni / 256).into();
            out.flags += 8;
        }
        Pop::Geneve => {
            let (version_len, flags, protocol, vni) = (r.u8()?, r.u8()?, r.u16()?, r.u32()?);
            if version_len >= 64 || protocol != 0x6558 {
                return None;
            }
            out.options = r.take(usize::from(version_len) * 4)?.to_vec();
            let mut options = Reader(&out.options);
            while !options.0.is_empty() {
                options.take(3)?;
                let words = options.u8()? % 32;
                options.take(usize::from(words) * 4)?;
            }
            out.key = (vni / 256).into();
            out.flags += 8 + if flags >= 128 { 1 } else { 0 };
        }
        Pop::Gre => {
            let whole = r.0;
            let (flags, protocol) = (r.u16()?, r.u16()?);
            if flags & 0x4fff != 0 {
                return None;
            }
            if flags & 0x8000 != 0 {
                r.u32()?;
                if sum(whole) != 0xffff {
                    return None;
                }
                out.flags += 4;
            }
            if flags & 0x2000 != 0 {
                out.key = r.u32()?.into();
                out.flags += 8;
            }
            if flags & 0x1000 != 0 {
                r.u32()?;
            }
            out.inner = if protocol == 0x6558 { Inner::Ethernet } else { Inner::L3(protocol) };
        }
        Pop::Erspan => {
            let (flags, protocol, _sequence) = (r.u16()?, r.u16()?, r.u32()?);
            let (version, session) = (r.u16()? / 4096, r.u16()? % 1024);
            if flags != 0x1000 || protocol != 0x88be && protocol != 0x22eb {
                return None;
            }
            match version {
                1 => out.extensions.1 = u64::from(r.u32()? % (1 << 20)) * (1 << 32) + (1 << 24),
                2 => {
                    let (_timestamp, _group, last) = (r.u32()?, r.u16()?, u64::from(r.u16()?));
                    out.extensions.1 = (2 << 24) + (last / 8 % 2) * 65536 + (last / 16 % 64) * 256;
                    if last % 2 == 1 {
                        r.take(8)?;
                    }
                }
                _ => return None,
            }
            out.key = session.into();
            out.flags += 8;
        }
        Pop::Gtpu => {
            let (flags, message, len, teid) = (r.u8()?, r.u8()?, r.u16()?, r.u32()?);
            if flags / 16 != 3 {
                return None;
            }
            r = Reader(r.take(len.into())?);
            out.extensions.2 = u64::from(flags) * (1 << 56) + u64::from(message) * (1 << 48);
            out.key = teid.into();
            out.flags += 8;
            if message != gtpu::G_PDU {
                out.inner = Inner::Control;
                out.bytes = frame.to_vec();
                return Some(out);
            }
            if flags % 8 != 0 {
                let mut next = r.take(4)?[3];
                while flags & 4 != 0 && next != 0 {
                    let units = usize::from(*r.0.first()?);
                    next = *r.take(4 * units)?.last()?;
                }
            }
            out.inner = ip(r.0)?;
        }
        Pop::Srv6 => {
            let (next, len, kind, left) = (r.u8()?, r.u8()?, r.u8()?, r.u8()?);
            r.take(4 + 8 * usize::from(len))?;
            if kind != 4 || left != 0 || out.addresses.0.len() == 4 {
                return None;
            }
            out.inner = match next {
                4 => Inner::L3(0x800),
                41 => Inner::L3(0x86dd),
                _ => return None,
            };
        }
        Pop::Bareudp(Payload::Ip) => out.inner = ip(r.0)?,
        Pop::Bareudp(Payload::Mpls) => {
            let dst = &out.addresses.1;
            let multicast = if dst.len() == 4 { dst[0] / 16 == 14 } else { dst[0] == 255 };
            out.inner = Inner::L3(if multicast { 0x8848 } else { 0x8847 });
        }
    }
    out.bytes = r.0.to_vec();
    (out.bytes.len() >= 14).then_some(out)
}

/// Sets the outer IPv4 header's checksum, so that a changed header is not refused for it.
fn fix_ipv4(frame: &mut [u8]) {
    let at = if frame.get(12..14) == Some(&[0x81, 0]) { 18 } else { 14 };
    if frame.get(at - 2..at) != Some(&[8, 0]) {
        return;
    }
    let Some(header) = frame.get_mut(at..at + 20) else { return };
    (header[10], header[11]) = (0, 0);
    let checksum = 0xffff - sum(header);
    (header[10], header[11]) = ((checksum / 256) as u8, (checksum % 256) as u8);
}

fn agree(pop: Pop, frame: &[u8]) -> Result<(), TestCaseError> {
    let found = parse(pop, frame, None, false);
    let ours = found.as_ref().ok().map(|parsed| Decoded::of(parsed, frame));
    prop_assert_eq!(&ours, &decode(pop, frame), "{:?} {:02x?} {:?}", pop, frame, found);
    Ok(())
}

tally::proptest! {
    #[test]
    fn pushed_frames_are_those_of_the_twin(
        (headers, inner) in pushes(), hash: u32, sequence: u32, timestamp: u32, room in 0..400usize,
    ) {
        let values = Values { hash, sequence, timestamp, identification: 0 };
        let expected = encode(&headers, &inner, values);
        let template = Template::new(headers.clone()).expect("valid headers");
        prop_assert_eq!(template.header_len() + inner.0.len(), expected.len());
        let counter = AtomicU32::new(sequence);
        let zero = AtomicU32::new(0);
        let context = Context { ports: PortRange::default(), sequence: &counter, identification: &zero, erspan_timestamp: timestamp };
        let memory = [&vec![0xee; room][..], &inner.0].concat();
        let mut pushed = packet::Packet::from_vec(memory, room).expect("a packet");
        pushed.l3_type = inner.1;
        template.push(&mut pushed, hash, &context).expect("a packet that fits");
        prop_assert_eq!(pushed.data(), &expected[..]);

        // All packets of a batch.
        let mut batch = vec![packet(&inner.0, inner.1); 3];
        counter.store(sequence, std::sync::atomic::Ordering::Relaxed);
        let dropped = template.push_all(&mut batch, &context, |_| hash);
        prop_assert_eq!(dropped, Default::default());
        for (n, packet) in batch.iter().enumerate() {
            let values =
                Values { sequence: sequence.wrapping_add(n as u32), identification: n as u16, ..values };
            prop_assert_eq!(packet.data(), &encode(&headers, &inner, values)[..]);
        }
    }

    #[test]
    fn popped_frames_are_those_of_the_twin(
        (headers, inner) in pushes(), other in 0..9usize, padding in 0..4usize,
    ) {
        let mut frame = encode(&headers, &inner, Values { hash: 1, sequence: 2, timestamp: 3, identification: 0 });
        frame.extend(vec![0xaa; padding]);
        let pop = pop_of(&headers);
        agree(pop, &frame)?;
        agree(Pop::ALL[other], &frame)?;
        let is_popped = match &headers.tunnel {
            Encapsulation::Srv6(srv6) => srv6.segments.len() == 1,
            Encapsulation::Gtpu(_, header) => header.flags & 4 == 0 && header.message_type == gtpu::G_PDU,
            _ => true,
        };
        if is_popped && let Ok(parsed) = parse(pop, &frame, None, false) {
            prop_assert_eq!(&frame[parsed.start..parsed.end], &inner.0[..]);
        } else {
            prop_assert!(!is_popped);
        }
    }

    #[test]
    fn changed_frames_are_read_as_by_the_twin(
        (headers, inner) in pushes(), changes in proptest::collection::vec((0..140usize, any::<u8>()), 0..4),
        cut in prop_oneof![3 => Just(0), 1 => 0..80usize], is_fixed: bool, other in 0..30usize,
    ) {
        let mut frame = encode(&headers, &inner, Values { hash: 1, sequence: 2, timestamp: 3, identification: 0 });
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = if byte % 4 == 0 { *place ^ 1 << (byte >> 5) } else { byte };
            }
        }
        frame.truncate(frame.len().saturating_sub(cut));
        if is_fixed {
            fix_ipv4(&mut frame);
        }
        agree(Pop::ALL.get(other).copied().unwrap_or(pop_of(&headers)), &frame)?;
    }
}
