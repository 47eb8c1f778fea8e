//! Tuples and frames, read and written without any care for speed: all checksums are computed anew.

use conntrack::Key;
use packet::checksum::crc32c_sctp;
use packet::metadata::Tuple;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const SCTP: u8 = 132;

/// Addresses and ports in a zone. ICMP has its identifier in `a`, and type and code in `b`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flow {
    pub zone: u16,
    pub proto: u8,
    pub v6: bool,
    pub src: u128,
    pub dst: u128,
    pub a: u16,
    pub b: u16,
}

impl Flow {
    pub(crate) fn icmp(&self) -> bool {
        if self.v6 { self.proto == ICMPV6 } else { self.proto == ICMP }
    }

    pub(crate) fn has_ports(&self) -> bool {
        matches!(self.proto, TCP | UDP | SCTP)
    }

    pub(crate) fn back(&self) -> Self {
        let pairs: &[(u16, u16)] = if self.v6 { &[(128, 129)] } else { &[(8, 0), (13, 14), (15, 16)] };
        let mut back = Self { src: self.dst, dst: self.src, a: self.b, b: self.a, ..*self };
        if self.icmp() {
            let (kind, code) = (self.b >> 8, self.b & 0xff);
            let other = pairs.iter().find_map(|(query, answer)| match kind {
                _ if kind == *query => Some(*answer),
                _ if kind == *answer => Some(*query),
                _ => None,
            });
            (back.a, back.b) = (self.a, other.unwrap_or(kind) << 8 | code);
        }
        back
    }

    /// As the fields of a packet show it.
    pub(crate) fn shown(&self) -> Tuple {
        let halves = |n: u128| [(n >> 64) as u64, n as u64];
        let (src_port, dst_port) = if self.icmp() { (self.b >> 8, self.b & 0xff) } else { (self.a, self.b) };
        Tuple { src: halves(self.src), dst: halves(self.dst), proto: self.proto, is_v6: self.v6, src_port, dst_port }
    }

    pub(crate) fn of(key: &Key) -> Self {
        let number = |n: [u64; 2]| u128::from(n[0]) << 64 | u128::from(n[1]);
        let Key { zone, proto, is_v6: v6, src_port: a, dst_port: b, .. } = *key;
        Self { zone, proto, v6, src: number(key.src), dst: number(key.dst), a, b }
    }
}

/// What a packet says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub flow: Flow,
    pub l3: usize,
    pub l4: usize,
    pub end: usize,
    /// In an ICMP error: where the headers of the other packet are.
    pub inner: Option<(usize, usize)>,
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

/// The sum of RFC 1071, not inverted.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut total = 0u64;
    for part in parts {
        for pair in part.chunks(2) {
            total += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while total > 0xffff {
        total = (total >> 16) + (total & 0xffff);
    }
    total as u16
}

/// The pseudo-header of a transport header of `len` bytes.
fn pseudo(frame: &[u8], l3: usize, v6: bool, proto: u8, len: usize) -> Vec<u8> {
    let addresses = if v6 { l3 + 8..l3 + 40 } else { l3 + 12..l3 + 20 };
    let mut bytes = frame[addresses].to_vec();
    bytes.extend((len as u32).to_be_bytes());
    bytes.extend([0, 0, 0, proto]);
    bytes
}

fn is_v6(frame: &[u8], l3: usize) -> bool {
    frame[l3] >> 4 == 6
}

/// Offset of the checksum of a protocol.
fn checksum_at(proto: u8, v6: bool) -> Option<usize> {
    match (proto, v6) {
        (TCP, _) => Some(16),
        (UDP, _) => Some(6),
        (ICMP, false) | (ICMPV6, true) => Some(2),
        _ => None,
    }
}

/// Writes the checksums of a whole packet whose IP header is at `l3`. A zero of UDP over IPv4 stays, as it stands for none.
pub(crate) fn seal(frame: &mut [u8], l3: usize, partial: bool) {
    let v6 = is_v6(frame, l3);
    let (l4, end, proto) = spans(frame, l3);
    seal_network(frame, l3);
    if proto == SCTP && !partial {
        let crc = crc32c_sctp(&frame[l4..end]).unwrap();
        frame[l4 + 8..l4 + 12].copy_from_slice(&crc.to_le_bytes());
    }
    let Some(at) = checksum_at(proto, v6).map(|at| l4 + at) else { return };
    if proto == UDP && !v6 && !partial && be16(frame, at) == 0 {
        return;
    }
    let header = if proto == ICMP { Vec::new() } else { pseudo(frame, l3, v6, proto, end - l4) };
    frame[at..at + 2].fill(0);
    let field = if partial {
        sum(&[&header])
    } else {
        match !sum(&[&header, &frame[l4..end]]) {
            0 if proto == UDP => 0xffff,
            field => field,
        }
    };
    frame[at..at + 2].copy_from_slice(&field.to_be_bytes());
}

fn seal_network(frame: &mut [u8], l3: usize) {
    if !is_v6(frame, l3) {
        frame[l3 + 10..l3 + 12].fill(0);
        let field = !sum(&[&frame[l3..l3 + 20]]);
        frame[l3 + 10..l3 + 12].copy_from_slice(&field.to_be_bytes());
    }
}

/// The transport header, the end of the packet, and the protocol.
fn spans(frame: &[u8], l3: usize) -> (usize, usize, u8) {
    if is_v6(frame, l3) {
        (l3 + 40, l3 + 40 + usize::from(be16(frame, l3 + 4)), frame[l3 + 6])
    } else {
        (l3 + 20, l3 + usize::from(be16(frame, l3 + 2)), frame[l3 + 9])
    }
}

/// Where the IP header is.
pub(crate) fn network(frame: &[u8]) -> usize {
    if be16(frame, 12) == 0x8100 { 18 } else { 14 }
}

/// The tuple of a frame that [`super::frames`] has built; `None` if it is not tracked.
pub(crate) fn read(frame: &[u8], partial: bool, zone: u16) -> Option<Read> {
    let l3 = network(frame);
    let v6 = is_v6(frame, l3);
    if !v6 && sum(&[&frame[l3..l3 + 20]]) != 0xffff {
        return None;
    }
    let (l4, end, proto) = spans(frame, l3);
    let bytes = &frame[l4..end];
    let is_sound = match checksum_at(proto, v6) {
        _ if partial => true,
        Some(6) if be16(bytes, 6) == 0 => !v6,
        Some(_) if proto == ICMP => sum(&[bytes]) == 0xffff,
        Some(_) => sum(&[&pseudo(frame, l3, v6, proto, bytes.len()), bytes]) == 0xffff,
        None if proto == SCTP => crc32c_sctp(bytes).unwrap().to_le_bytes() == bytes[8..12],
        None => true,
    };
    if !is_sound {
        return None;
    }
    let errors: &[u8] = if v6 { &[1, 2, 3, 4] } else { &[3, 4, 5, 11, 12] };
    if checksum_at(proto, v6) == Some(2) && errors.contains(&bytes[0]) {
        let inner = l4 + 8;
        let (inner_l4, _, _) = spans(frame, inner);
        let sent = tuple(frame, inner, zone)?;
        let (_, receiver) = addresses(frame, l3);
        return (sent.src == receiver).then_some(Read {
            flow: sent.back(),
            l3,
            l4,
            end,
            inner: Some((inner, inner_l4)),
        });
    }
    Some(Read { flow: tuple(frame, l3, zone)?, l3, l4, end, inner: None })
}

pub(crate) fn addresses(frame: &[u8], l3: usize) -> (u128, u128) {
    let number = |bytes: &[u8]| bytes.iter().fold(0u128, |n, byte| n << 8 | u128::from(*byte));
    if is_v6(frame, l3) {
        (number(&frame[l3 + 8..l3 + 24]), number(&frame[l3 + 24..l3 + 40]))
    } else {
        (number(&frame[l3 + 12..l3 + 16]), number(&frame[l3 + 16..l3 + 20]))
    }
}

fn tuple(frame: &[u8], l3: usize, zone: u16) -> Option<Flow> {
    let v6 = is_v6(frame, l3);
    let (l4, _, proto) = spans(frame, l3);
    let (src, dst) = addresses(frame, l3);
    let mut flow = Flow { zone, proto, v6, src, dst, a: 0, b: 0 };
    if flow.has_ports() {
        (flow.a, flow.b) = (be16(frame, l4), be16(frame, l4 + 2));
        return (flow.a != 0 && flow.b != 0).then_some(flow);
    }
    if flow.icmp() {
        let known: &[u8] = if v6 { &[128, 129] } else { &[0, 8, 13, 14, 15, 16] };
        (flow.a, flow.b) = (be16(frame, l4 + 4), be16(frame, l4));
        return (known.contains(&frame[l4]) && frame[l4 + 1] == 0).then_some(flow);
    }
    Some(flow)
}

fn set_addresses(frame: &mut [u8], l3: usize, src: u128, dst: u128) {
    if is_v6(frame, l3) {
        frame[l3 + 8..l3 + 24].copy_from_slice(&src.to_be_bytes());
        frame[l3 + 24..l3 + 40].copy_from_slice(&dst.to_be_bytes());
    } else {
        frame[l3 + 12..l3 + 16].copy_from_slice(&(src as u32).to_be_bytes());
        frame[l3 + 16..l3 + 20].copy_from_slice(&(dst as u32).to_be_bytes());
    }
}

fn set_ports(frame: &mut [u8], l4: usize, to: &Flow) {
    if to.has_ports() {
        frame[l4..l4 + 2].copy_from_slice(&to.a.to_be_bytes());
        frame[l4 + 2..l4 + 4].copy_from_slice(&to.b.to_be_bytes());
    } else if to.icmp() {
        frame[l4 + 4..l4 + 6].copy_from_slice(&to.a.to_be_bytes());
    }
}

/// Gives a packet the tuple `to`, and an error about a packet, that packet the opposite one.
pub(crate) fn rewrite(frame: &mut [u8], read: &Read, to: &Flow, partial: bool) {
    let Some((inner, inner_l4)) = read.inner else {
        set_addresses(frame, read.l3, to.src, to.dst);
        set_ports(frame, read.l4, to);
        return seal(frame, read.l3, partial);
    };
    rewrite_inner(frame, inner, inner_l4, read.end, &to.back());
    let (src, _) = addresses(frame, read.l3);
    set_addresses(frame, read.l3, if to.src == read.flow.src { src } else { to.src }, to.dst);
    seal(frame, read.l3, partial);
}

fn rewrite_inner(frame: &mut [u8], l3: usize, l4: usize, end: usize, to: &Flow) {
    let (_, whole, proto) = spans(frame, l3);
    let at = checksum_at(proto, to.v6).map(|at| l4 + at).filter(|at| at + 2 <= end);
    let is_whole = whole <= end;
    let field = at.map(|at| be16(frame, at));
    let words = |frame: &[u8]| {
        let mut bytes = frame[l4..l4 + if to.has_ports() { 4 } else { 8 }].to_vec();
        if to.icmp() {
            bytes[2..4].fill(0);
        }
        let header = if proto == ICMP { Vec::new() } else { pseudo(frame, l3, to.v6, proto, 0) };
        [header, bytes].concat()
    };
    let before = if at.is_some() { words(frame) } else { Vec::new() };
    set_addresses(frame, l3, to.src, to.dst);
    set_ports(frame, l4, to);
    seal_network(frame, l3);
    if proto == SCTP && is_whole {
        let crc = crc32c_sctp(&frame[l4..whole]).unwrap();
        frame[l4 + 8..l4 + 12].copy_from_slice(&crc.to_le_bytes());
    }
    if let (Some(at), Some(field)) = (at, field)
        && !(proto == UDP && field == 0)
    {
        let inverted: Vec<u8> = before.iter().map(|byte| !byte).collect();
        let new = !sum(&[&(!field).to_be_bytes(), &inverted, &words(frame)]);
        let new = if proto == UDP && new == 0 { 0xffff } else { new };
        frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
    }
}
