//! Encapsulation: the outer headers of a flow as ready bytes, and the few fields that differ between its packets.
//!
//! Checksums: a packet whose own transport checksum is partial keeps this flag, and its device completes it, inside of
//! the outer headers. An outer checksum nevertheless covers the completed packet: the completed range sums up to the
//! complement of the pseudo-header sum that its checksum field holds, whatever its payload is ("local checksum
//! offload"). CRC32c of SCTP has no such sum, and is completed first.
//!
//! Segmentation: no device looks through outer headers. A GSO packet is refused ([`Refused::NeedsSegmentation`]). Of one,
//! [`Template::push_all`] makes GSO packets of outer datagrams ([`datagrams`]), or segments it if that is not possible.

mod datagrams;

use super::erspan::Erspan;
use super::push::{Encapsulation, Invalid, OuterIp, Push};
use super::srv6::{self, FlowLabel};
use super::{Compact, ETH_IPV6, geneve, gtpu};
use packet::checksum::{self, Sum, pseudo_v4, pseudo_v6};
use packet::segment::{SegmentError, segment};
use packet::{Batch, Checksum, Packet};
use std::sync::atomic::{AtomicU32, Ordering};

/// Longest headers: a tag, IPv6, UDP, and Geneve with all options; or segment routing with all segments.
const LEN_MAX: usize = 336;
const _: () = assert!(18 + 40 + 8 + 8 + geneve::OPTIONS_MAX <= LEN_MAX && LEN_MAX <= packet::buf::HEADROOM);
const _: () = assert!(18 + 40 + srv6::LEN + 16 * srv6::SEGMENTS_MAX <= LEN_MAX);

/// Range of outer UDP source ports (`tnl/egress_port_range`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortRange {
    min: u16,
    width: u16,
}

impl PortRange {
    /// Ports from `min` to below `max`; always `min` if they are equal. `None` if `max` is less.
    pub fn new(min: u16, max: u16) -> Option<Self> {
        max.checked_sub(min).map(|width| Self { min, width })
    }

    /// The first port and the end of the range.
    pub fn bounds(self) -> (u16, u16) {
        (self.min, self.min + self.width)
    }

    /// The port for a hash: its most significant bits count.
    #[inline]
    pub fn port(self, hash: u32) -> u16 {
        // Below the width.
        self.min + ((u64::from(hash) * u64::from(self.width)) >> 32) as u16
    }
}

impl Default for PortRange {
    /// Open vSwitch's default.
    fn default() -> Self {
        Self { min: 32768, width: 61000 - 32768 }
    }
}

/// The state of the host and of the tunnel port that packets depend on.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Outer UDP source ports.
    pub ports: PortRange,
    /// The port's next sequence number, of GRE, ERSPAN and GTP-U.
    pub sequence: &'a AtomicU32,
    /// The next identification of an IPv4 header of a packet that may be fragmented, in its lower bits. A receiver tells datagrams
    /// apart by it (RFC 6864 section 4.1).
    pub identification: &'a AtomicU32,
    /// The time for ERSPAN version 2 ([`erspan::timestamp`](super::erspan::timestamp)).
    pub erspan_timestamp: u32,
}

impl Context<'_> {
    fn next_sequence(&self) -> u32 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }
}

/// Why headers were not pushed. The packet stays as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The packet has a GSO flag. The caller segments it first.
    #[error("the packet has to be segmented")]
    NeedsSegmentation,
    /// The outer IP header cannot state the packet's length.
    #[error("the packet is too long for outer headers")]
    TooLong,
    /// Segment routing of a packet that is not an L3 packet of IP.
    #[error("the packet is not an IP packet")]
    NotIp,
}

/// Numbers of packets that [`Template::push_all`] dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Because of their length.
    pub too_long: u32,
    /// Because segmentation failed.
    pub unsegmented: u32,
    /// Because they are no IP packets.
    pub not_ip: u32,
}

/// A template's bytes, at the end of a block that one copy prepends.
#[derive(Clone, Debug)]
enum Block {
    Short(Box<[u8; 64]>),
    Medium(Box<[u8; 128]>),
    Long(Box<[u8; LEN_MAX]>),
}

impl Block {
    fn new(bytes: &[u8]) -> Self {
        fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
            let mut block = [0; N];
            block[N - bytes.len()..].copy_from_slice(bytes);
            block
        }
        match bytes.len() {
            ..=64 => Self::Short(Box::new(padded(bytes))),
            65..=128 => Self::Medium(Box::new(padded(bytes))),
            _ => Self::Long(Box::new(padded(bytes))),
        }
    }

    /// The template, of `len` bytes.
    fn bytes(&self, len: usize) -> &[u8] {
        let block = match self {
            Self::Short(block) => &block[..],
            Self::Medium(block) => &block[..],
            Self::Long(block) => &block[..],
        };
        &block[block.len() - len..]
    }

    #[inline]
    fn prepend<'p>(&self, packet: &'p mut Packet, len: usize) -> &'p mut [u8] {
        match self {
            Self::Short(block) => packet.prepend(block, len),
            Self::Medium(block) => packet.prepend(block, len),
            Self::Long(block) => packet.prepend(block, len),
        }
    }
}

/// What each packet sets behind the outer IP header. Offsets are relative to the end of this header.
#[derive(Clone, Copy, Debug)]
enum Fix {
    /// UDP's source port, if it is not fixed, and length.
    Udp { src: u16 },
    /// The same, then fields of GTP-U and a checksum.
    UdpMore { src: u16, gtpu: Option<GtpuFix>, has_checksum: bool },
    /// GRE's sequence number and checksum; a timestamp of ERSPAN.
    Gre { sequence: Option<u8>, timestamp: Option<u8>, has_checksum: bool },
    /// The next header, and the outer flow label.
    Srv6(FlowLabel),
}

#[derive(Clone, Copy, Debug)]
struct GtpuFix {
    /// Bytes of optional fields.
    optional: u16,
    is_numbered: bool,
}

/// The outer headers of a flow, ready to be pushed.
#[derive(Clone, Debug)]
pub struct Template {
    block: Block,
    /// Bytes of all headers.
    len: u16,
    /// Offset of the IP header.
    l3: u16,
    may_fragment: bool,
    /// Longest packet that the headers can be pushed onto.
    inner_max: u32,
    /// For IPv4, the sum of its header with a length of 0.
    ip_sum: Option<u32>,
    fix: Fix,
    /// Sum of addresses and protocol of the pseudo-header.
    pseudo: Sum,
    /// Sum of the headers behind the IP header, without what each packet sets.
    behind_ip: Sum,
    push: Box<Push>,
}

impl Template {
    /// Builds the bytes.
    pub fn new(push: Push) -> Result<Self, Invalid> {
        let bytes = push.emit()?;
        let l3 = push.l3();
        let behind_l3 = bytes.len() - l3;
        let proto = push.tunnel.proto();
        let (ip_sum, stated, pseudo) = match push.ip {
            OuterIp::V4 { src, dst, .. } => {
                let header = Sum::new().bytes(&bytes[l3..l3 + 20]);
                (Some(header.partial().into()), behind_l3, pseudo_v4(src.octets(), dst.octets(), proto, 0))
            }
            OuterIp::V6 { src, dst, .. } => (None, behind_l3 - 40, pseudo_v6(&src.octets(), &dst.octets(), proto, 0)),
        };
        let behind_ip = Sum::new().bytes(&bytes[l3 + if ip_sum.is_some() { 20 } else { 40 }..]);
        Ok(Self {
            block: Block::new(&bytes),
            len: bytes.len() as u16,
            l3: l3 as u16,
            may_fragment: push.ip.may_fragment(),
            inner_max: (usize::from(u16::MAX) - stated) as u32,
            ip_sum,
            fix: fix(&push.tunnel),
            pseudo,
            behind_ip,
            push: Box::new(push),
        })
    }

    /// The headers as values.
    pub fn headers(&self) -> &Push {
        &self.push
    }

    /// Whether a packet with the headers may be divided into fragments.
    #[inline]
    pub fn may_fragment(&self) -> bool {
        self.may_fragment
    }

    /// Bytes that the headers add to a packet.
    pub fn header_len(&self) -> usize {
        self.len.into()
    }

    /// The template in one piece, if it is a short one of UDP without a checksum, for packets that need no number.
    pub fn compact(&self) -> Option<Compact> {
        match self {
            Self { may_fragment: true, .. } => None,
            Self { block: Block::Short(block), fix: Fix::Udp { src }, len, l3, ip_sum, inner_max, .. } => {
                Some(Compact { block: **block, ip_sum: *ip_sum, inner_max: *inner_max, len: *len, l3: *l3, src: *src })
            }
            _ => None,
        }
    }

    /// Pushes the headers onto a packet, whose flow has the given hash; the packet becomes an Ethernet frame. Its
    /// metadata stays.
    #[inline]
    pub fn push(&self, packet: &mut Packet, hash: u32, context: &Context<'_>) -> Result<(), Refused> {
        let inner = pushable_len(packet, self.inner_max)?;
        if let Fix::Udp { src } = self.fix {
            packet.l3_type = None;
            let (own, behind) = self.prepend(packet, inner);
            set_udp(behind, src, hash, context, own + inner);
            return Ok(());
        }
        self.push_more(packet, hash, context)
    }

    /// Pushes headers with fields that cost more than UDP's.
    fn push_more(&self, packet: &mut Packet, hash: u32, context: &Context<'_>) -> Result<(), Refused> {
        let (inner, l3_type) = (packet.len(), packet.l3_type);
        let next_header = match self.fix {
            Fix::Srv6(_) => srv6::next_header(l3_type).ok_or(Refused::NotIp)?,
            _ => 0,
        };
        let inner_sum = if self.has_checksum() { completed_sum(packet) } else { Sum::new() };
        packet.l3_type = None;
        let (own, behind) = self.prepend(packet, inner);
        match self.fix {
            Fix::Udp { src } => {
                set_udp(behind, src, hash, context, own + inner);
            }
            Fix::UdpMore { src, gtpu, has_checksum } => {
                let len = (own + inner) as u16;
                let port = set_udp(behind, src, hash, context, own + inner);
                // Adds up numbers instead of reading the header: loads wait for preceding stores to parts of their bytes.
                let mut headers = (self.pseudo + self.behind_ip).u16(len).u16(len);
                if src == 0 {
                    headers = headers.u16(port);
                }
                if let Some(fix) = gtpu {
                    headers = headers + set_gtpu(&mut behind[8..], fix, inner, context);
                }
                if has_checksum {
                    // A checksum of 0 means that there is none (RFC 768).
                    let checksum = Some((headers + inner_sum).finish()).filter(|sum| *sum != 0).unwrap_or(u16::MAX);
                    behind[6..8].copy_from_slice(&checksum.to_be_bytes());
                }
            }
            Fix::Gre { sequence, timestamp, has_checksum } => {
                let times =
                    [sequence.map(|at| (at, context.next_sequence())), timestamp.zip(Some(context.erspan_timestamp))];
                let mut sum = self.behind_ip + inner_sum;
                for (at, value) in times.into_iter().flatten() {
                    behind[usize::from(at)..][..4].copy_from_slice(&value.to_be_bytes());
                    sum = sum.u32(value);
                }
                if has_checksum {
                    behind[4..6].copy_from_slice(&sum.finish().to_be_bytes());
                }
            }
            Fix::Srv6(label) => {
                behind[0] = next_header;
                let first_word = behind[own..].first_chunk::<4>().map(|word| u32::from_be_bytes(*word));
                let label = match label {
                    FlowLabel::Zero => 0,
                    FlowLabel::Compute => hash,
                    FlowLabel::Copy if l3_type == Some(ETH_IPV6) => first_word.unwrap_or(0),
                    FlowLabel::Copy => 0,
                };
                let l3 = usize::from(self.l3);
                // The template's label is 0.
                for (byte, bits) in packet.data_mut()[l3..].iter_mut().zip((label & 0xf_ffff).to_be_bytes()) {
                    *byte |= bits;
                }
            }
        }
        Ok(())
    }

    /// Pushes the headers onto all packets of a batch, whose flows' hashes `hash` returns. GSO packets become GSO packets of outer
    /// datagrams, or are segmented first. Packets that cannot be pushed leave the batch.
    #[inline]
    pub fn push_all(&self, batch: &mut Batch, context: &Context<'_>, mut hash: impl FnMut(&Packet) -> u32) -> Dropped {
        let mut dropped = Dropped::default();
        for (i, packet) in batch.iter_mut().enumerate() {
            let hash_of_flow = hash(packet);
            if self.push(packet, hash_of_flow, context).is_err() {
                dropped = self.push_rest(batch, i, context, &mut hash);
                break;
            }
        }
        if matches!(self.push.ip, OuterIp::V4 { dont_fragment: false, .. }) {
            self.identify(batch, context.identification);
        }
        dropped
    }

    /// Numbers packets that may be fragmented.
    #[cold]
    fn identify(&self, batch: &mut Batch, next: &AtomicU32) {
        let count = batch.iter().map(|packet| self.count(packet)).sum();
        let mut next = next.fetch_add(count, Ordering::Relaxed);
        for packet in batch {
            let id = next as u16;
            next = next.wrapping_add(self.count(packet));
            let ip = packet.data_mut()[self.l3.into()..].first_chunk_mut::<20>().expect(WHOLE);
            // It was 0 until now.
            let sum = u32::from(!u16::from_be_bytes([ip[10], ip[11]])) + u32::from(id);
            [ip[4], ip[5]] = id.to_be_bytes();
            [ip[10], ip[11]] = (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes();
        }
    }

    /// Continues [`Self::push_all`] at a packet that was refused.
    #[cold]
    fn push_rest(
        &self,
        batch: &mut Batch,
        from: usize,
        context: &Context<'_>,
        hash: &mut dyn FnMut(&Packet) -> u32,
    ) -> Dropped {
        let mut dropped = Dropped::default();
        for packet in batch.split_off(from) {
            let hash_of_flow = hash(&packet);
            let mut pushed = |mut packet: Packet, batch: &mut Batch| match self.push(&mut packet, hash_of_flow, context)
            {
                Ok(()) => batch.push(packet),
                Err(Refused::NeedsSegmentation) => dropped.unsegmented += 1,
                Err(Refused::TooLong) => dropped.too_long += 1,
                Err(Refused::NotIp) => dropped.not_ip += 1,
            };
            if packet.offload.gso.is_none() {
                pushed(packet, batch);
            } else if self.push_whole(&packet, hash_of_flow, context, batch).is_none() {
                match segment(&packet) {
                    Ok(segments) => segments.into_iter().for_each(|segment| pushed(segment, batch)),
                    Err(SegmentError::NoMark | SegmentError::Mismatch) => dropped.unsegmented += 1,
                }
            }
        }
        dropped
    }

    /// Prepends the template and sets the fields of the outer IP header. Returns the length of the headers behind it, and
    /// the bytes behind it.
    #[inline]
    fn prepend<'p>(&self, packet: &'p mut Packet, inner: usize) -> (usize, &'p mut [u8]) {
        let frame = self.block.prepend(packet, self.len.into());
        set_length(frame, (self.len, self.l3), self.ip_sum, inner)
    }

    fn has_checksum(&self) -> bool {
        matches!(self.fix, Fix::UdpMore { has_checksum: true, .. } | Fix::Gre { has_checksum: true, .. })
    }
}

const WHOLE: &str = "a template has all of its headers";

/// The length in bytes of a packet onto which headers can be pushed: it needs no segmentation and has at most `max` bytes.
#[inline]
pub(super) fn pushable_len(packet: &Packet, max: u32) -> Result<usize, Refused> {
    if packet.offload.gso.is_some() {
        return Err(Refused::NeedsSegmentation);
    }
    Some(packet.len()).filter(|len| *len <= max as usize).ok_or(Refused::TooLong)
}

/// Sets the lengths and the checksum of an outer IP header, in a frame that begins with headers of `len` bytes, of which the IP header
/// is at `l3`. `ip_sum` is the sum of an IPv4 header without its length. Returns the number of bytes between the IP header and
/// the inner packet, and all bytes behind the IP header.
#[inline]
pub(super) fn set_length(
    frame: &mut [u8],
    (len, l3): (u16, u16),
    ip_sum: Option<u32>,
    inner: usize,
) -> (usize, &mut [u8]) {
    let behind_l3 = usize::from(len - l3);
    let (_, l3) = frame.split_at_mut(l3.into());
    if let Some(sum) = ip_sum {
        let total = (behind_l3 + inner) as u16;
        let (ip, behind) = l3.split_first_chunk_mut::<20>().expect(WHOLE);
        [ip[2], ip[3]] = total.to_be_bytes();
        // Two 16-bit words have at most one carry.
        let sum = sum + u32::from(total);
        [ip[10], ip[11]] = (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes();
        (behind_l3 - 20, behind)
    } else {
        let (ip, behind) = l3.split_first_chunk_mut::<40>().expect(WHOLE);
        [ip[4], ip[5]] = ((behind_l3 - 40 + inner) as u16).to_be_bytes();
        (behind_l3 - 40, behind)
    }
}

/// Sets the source port, if it is not fixed, and the length. Returns the port.
#[inline]
pub(super) fn set_udp(behind: &mut [u8], src: u16, hash: u32, context: &Context<'_>, len: usize) -> u16 {
    let udp = behind.first_chunk_mut::<8>().expect(WHOLE);
    let port = if src == 0 { context.ports.port(hash) } else { src };
    [udp[0], udp[1]] = port.to_be_bytes();
    [udp[4], udp[5]] = (len as u16).to_be_bytes();
    port
}

/// Sets the length, and a number. Returns their sum.
fn set_gtpu(header: &mut [u8], fix: GtpuFix, inner: usize, context: &Context<'_>) -> Sum {
    let len = fix.optional + inner as u16;
    header[2..4].copy_from_slice(&len.to_be_bytes());
    if !fix.is_numbered {
        return Sum::new().u16(len);
    }
    let number = context.next_sequence() as u16;
    header[8..10].copy_from_slice(&number.to_be_bytes());
    Sum::new().u16(len).u16(number)
}

fn fix(tunnel: &Encapsulation) -> Fix {
    let udp = |udp: &super::Udp, gtpu: Option<GtpuFix>| {
        if gtpu.is_none() && !udp.checksum {
            Fix::Udp { src: udp.src }
        } else {
            Fix::UdpMore { src: udp.src, gtpu, has_checksum: udp.checksum }
        }
    };
    match tunnel {
        Encapsulation::Vxlan(outer, _) | Encapsulation::Geneve(outer, _) | Encapsulation::Bareudp(outer) => {
            udp(outer, None)
        }
        Encapsulation::Gtpu(outer, header) => {
            let optional = if header.has_optional() { 4 } else { 0 };
            udp(outer, Some(GtpuFix { optional, is_numbered: header.flags & gtpu::FLAG_SEQUENCE != 0 }))
        }
        Encapsulation::Gre(header) => {
            let sequence = header.sequence.then(|| header.sequence_at());
            Fix::Gre { sequence, timestamp: None, has_checksum: header.checksum }
        }
        Encapsulation::Erspan(header) => {
            let timestamp = matches!(header, Erspan::V2 { .. }).then_some(12);
            Fix::Gre { sequence: Some(4), timestamp, has_checksum: false }
        }
        Encapsulation::Srv6(header) => Fix::Srv6(header.flow_label),
    }
}

/// The sum of a packet after its own checksum is completed. The packet keeps a partial checksum, except for a CRC32c
/// and one that starts at an odd offset.
fn completed_sum(packet: &mut Packet) -> Sum {
    const CRC32C: u16 = 8;
    if let Checksum::Partial { start, offset } = packet.offload.checksum {
        let start = usize::from(start);
        let data = packet.data();
        let field = data.get(start + usize::from(offset)..).and_then(|rest| rest.first_chunk::<2>());
        if let Some(field) = field
            && offset != CRC32C
            && start.is_multiple_of(2)
        {
            return Sum::new().bytes(&data[..start]).u16(!u16::from_be_bytes(*field));
        }
        checksum::finish(packet);
    }
    Sum::new().bytes(packet.data())
}
