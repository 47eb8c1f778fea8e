//! Decapsulation: outer headers are read, verified and removed, and become the packet's tunnel metadata.
//!
//! Open vSwitch 4.0.0 is the reference for which headers are accepted; the differences stand at [`parse`].

mod joined;

use super::bareudp::Payload;
use super::outer::Addresses;
use super::{
    Cache, Malformed, PROTO_GRE, PROTO_ROUTING, PROTO_UDP, bareudp, erspan, geneve, gre, gtpu, outer, srv6, vxlan,
};
use crate::flags;
use packet::metadata::Tunnel;
use packet::segment::{SegmentError, segment};
use packet::{Batch, Checksum, GsoKind, Packet};

/// Shortest inner packet, of any type. The datapath of Open vSwitch drops shorter ones, too.
const INNER_MIN: usize = 14;

/// How received packets of a tunnel port are decapsulated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pop {
    /// VXLAN. Headers of the generic protocol extension are accepted without configuration, as in Open vSwitch.
    Vxlan {
        /// Accepts headers of the group policy extension.
        group_policy: bool,
    },
    /// Geneve.
    Geneve,
    /// GRE.
    Gre,
    /// ERSPAN, types II and III.
    Erspan,
    /// GTP-U.
    Gtpu,
    /// Segment routing over IPv6.
    Srv6,
    /// An inner packet directly behind UDP.
    Bareudp(Payload),
}

impl Pop {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Vxlan { group_policy: false },
        Self::Vxlan { group_policy: true },
        Self::Geneve,
        Self::Gre,
        Self::Erspan,
        Self::Gtpu,
        Self::Srv6,
        Self::Bareudp(Payload::Ip),
        Self::Bareudp(Payload::Mpls),
    ];

    /// IP protocol.
    pub fn proto(self) -> u8 {
        match self {
            Self::Vxlan { .. } | Self::Geneve | Self::Gtpu | Self::Bareudp(_) => PROTO_UDP,
            Self::Gre | Self::Erspan => PROTO_GRE,
            Self::Srv6 => PROTO_ROUTING,
        }
    }
}

/// Whether a received packet of GRE is ERSPAN, of type II or III. False for other packets.
pub fn is_erspan(packet: &Packet) -> bool {
    let mut parsed = Parsed::NONE;
    let frame = packet.data();
    if outer::ip(frame, packet.l3_type, PROTO_GRE, &mut parsed).is_err() {
        return false;
    }
    let header = frame.get(parsed.start..parsed.end).and_then(<[u8]>::first_chunk::<4>);
    header.is_some_and(|[_, _, protocol @ ..]| erspan::is_protocol(u16::from_be_bytes(*protocol)))
}

/// What lies behind the tunnel header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inner {
    /// An Ethernet frame.
    Ethernet,
    /// An L3 packet of this Ethernet type.
    L3(u16),
    /// A control message of the tunnel protocol: the outer packet continues with all its headers.
    Control,
}

/// The outer headers of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parsed<'a> {
    /// Outer addresses.
    pub addresses: Addresses,
    /// Outer type of service or traffic class.
    pub tos: u8,
    /// Outer time to live or hop limit.
    pub ttl: u8,
    /// Outer UDP source port, or 0.
    pub src_port: u16,
    /// Outer UDP destination port, or 0.
    pub dst_port: u16,
    /// Bits of [`crate::flags`].
    pub flags: u16,
    /// VNI, GRE key, TEID or session, right aligned.
    pub key: u64,
    /// As [`Tunnel::group_policy`].
    pub group_policy: u32,
    /// As [`Tunnel::erspan`].
    pub erspan: u64,
    /// As [`Tunnel::gtpu`].
    pub gtpu: u64,
    /// Geneve options; their lengths add up.
    pub options: &'a [u8],
    /// The type of the inner packet.
    pub inner: Inner,
    /// Where the inner packet starts in the frame; 0 for a control message.
    pub start: usize,
    /// Where the inner packet ends in the frame. Padding follows.
    pub end: usize,
}

impl Parsed<'_> {
    pub(super) const NONE: Self = Self {
        addresses: Addresses::V4(0, 0),
        tos: 0,
        ttl: 0,
        src_port: 0,
        dst_port: 0,
        flags: 0,
        key: 0,
        group_policy: 0,
        erspan: 0,
        gtpu: 0,
        options: &[],
        inner: Inner::Ethernet,
        start: 0,
        end: 0,
    };

    /// Sets the key and its flag.
    #[inline]
    pub(super) fn set_key(&mut self, key: u64) {
        self.key = key;
        self.flags |= flags::KEY;
    }

    /// The tunnel metadata.
    pub fn tunnel(&self) -> Tunnel {
        Tunnel {
            src: self.addresses.src(),
            dst: self.addresses.dst(),
            key: self.key,
            flags: self.flags,
            tos: self.tos,
            ttl: self.ttl,
            src_port: self.src_port,
            dst_port: self.dst_port,
            group_policy: self.group_policy,
            erspan: self.erspan,
            gtpu: self.gtpu,
            options: self.options.into(),
        }
    }

    /// Whether [`Self::tunnel`] would equal `tunnel` but for the source port.
    #[inline]
    pub(super) fn equals(&self, tunnel: &Tunnel) -> bool {
        let Tunnel { src, dst, key, flags, tos, ttl, src_port: _, dst_port, group_policy, erspan, gtpu, options } =
            tunnel;
        self.key == *key
            && self.dst_port == *dst_port
            && self.addresses.are(*src, *dst)
            && (self.flags, self.tos, self.ttl) == (*flags, *tos, *ttl)
            && self.group_policy == *group_policy
            && (self.erspan, self.gtpu) == (*erspan, *gtpu)
            && self.options.len() == options.len()
            && (self.options.is_empty() || *self.options == **options)
    }

    /// A hash for a cache.
    #[inline]
    pub(super) fn hash(&self) -> u64 {
        let address = match self.addresses {
            Addresses::V4(src, _) => src.into(),
            Addresses::V6(src, _) => src as u64,
        };
        let mixed = address ^ u64::from(self.ttl) << 48 ^ self.key.rotate_left(20);
        // Only the upper bits depend on all bits.
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
    }
}

/// Reads the outer headers of `frame`, which begins with an Ethernet header or, if `l3_type` is given, with a network
/// header of this Ethernet type. A `trusted` packet's UDP and GRE checksums are not verified.
///
/// Differences from Open vSwitch 4.0.0, which
/// - accepts UDP and GTP-U lengths that exceed the packet, and keeps bytes behind the stated end as part of the inner
///   packet, as well as padding behind the outer IP packet;
/// - has a GRE checksum cover Ethernet padding, so that it drops padded packets;
/// - refuses headers with a VXLAN group policy;
/// - takes the inner IP version of a GTP-U packet from its ninth byte, skips optional fields only if the sequence
///   number flag is set, and accepts all versions;
/// - drops the upper two bits of an ERSPAN hardware id, keeps reserved bits of the index, and takes the optional
///   sub-header for a part of the inner packet.
pub fn parse(pop: Pop, frame: &[u8], l3_type: Option<u16>, trusted: bool) -> Result<Parsed<'_>, Malformed> {
    let mut parsed = Parsed::NONE;
    read(pop, frame, l3_type, trusted, &mut parsed).map(|()| parsed)
}

/// [`parse`] into a value in place, as copies of it cost more than reading it.
#[inline]
fn read<'a>(
    pop: Pop,
    frame: &'a [u8],
    l3_type: Option<u16>,
    trusted: bool,
    parsed: &mut Parsed<'a>,
) -> Result<(), Malformed> {
    match pop {
        Pop::Vxlan { .. } | Pop::Geneve | Pop::Gtpu | Pop::Bareudp(_) => {
            outer::ip(frame, l3_type, PROTO_UDP, parsed)?;
            outer::udp(frame, trusted, parsed)?;
        }
        Pop::Gre | Pop::Erspan => outer::ip(frame, l3_type, PROTO_GRE, parsed)?,
        Pop::Srv6 => outer::ip(frame, l3_type, PROTO_ROUTING, parsed)?,
    }
    let payload = frame.get(parsed.start..parsed.end).ok_or(Malformed::Truncated)?;
    match pop {
        Pop::Vxlan { group_policy } => vxlan::decode(payload, group_policy, parsed)?,
        Pop::Geneve => geneve::decode(payload, parsed)?,
        Pop::Gre => gre::decode(payload, trusted, parsed)?,
        Pop::Erspan => erspan::decode(payload, parsed)?,
        Pop::Gtpu => gtpu::decode(payload, parsed)?,
        Pop::Srv6 => srv6::decode(payload, parsed)?,
        Pop::Bareudp(kind) => bareudp::decode(payload, kind, parsed)?,
    }
    match parsed.inner {
        Inner::Control => (parsed.start, parsed.end) = (0, frame.len()),
        _ if parsed.end.saturating_sub(parsed.start) < INNER_MIN => return Err(Malformed::InnerTruncated),
        _ => {}
    }
    Ok(())
}

impl Pop {
    /// Removes the outer headers of a packet, and gives it new metadata with the tunnel only. A packet in error stays
    /// as it is.
    ///
    /// Outer checksums are not verified if the packet comes from this host, as a partial checksum or a GSO flag shows,
    /// or if its device has verified them. Flags about the inner packet stay: a partial checksum that starts in it, and
    /// segmentation of it.
    ///
    /// # Errors
    /// [`Malformed::Unsegmented`] if the segments of a GSO packet are outer datagrams; see [`Self::pop_all`].
    #[inline]
    pub fn pop(self, packet: &mut Packet, cache: &mut Cache) -> Result<(), Malformed> {
        match cache.find(self, packet) {
            Some(hit) => {
                cache.strip(packet, hit);
                cache.attach(packet, hit);
                Ok(())
            }
            None => self.pop_other(packet, cache),
        }
    }

    #[inline(never)]
    fn pop_other(self, packet: &mut Packet, cache: &mut Cache) -> Result<(), Malformed> {
        let offload = packet.offload;
        let trusted = offload.checksum != Checksum::Unknown || offload.gso.is_some();
        let mut parsed = Parsed::NONE;
        read(self, packet.data(), packet.l3_type, trusted, &mut parsed)?;
        if offload.gso.is_some() {
            check_segments_are_inner(packet, &parsed)?;
        }
        let (inner, start, end, src_port) = (parsed.inner, parsed.start, parsed.end, parsed.src_port);
        let tunnel = cache.learn(self, packet.data(), packet.l3_type, &parsed);
        if end < packet.len() {
            packet.truncate(end);
        }
        packet.remove(0, start);
        if inner != Inner::Control && packet.offload.checksum == Checksum::Good {
            // The device verified the outer checksum.
            packet.offload.checksum = Checksum::Unknown;
        }
        match inner {
            Inner::Ethernet => packet.l3_type = None,
            Inner::L3(ethertype) => packet.l3_type = Some(ethertype),
            Inner::Control => {}
        }
        (packet.recirc_id, packet.dp_hash, packet.tags) = (0, 0, 0);
        packet.clear_outer();
        packet.set_only_tunnel(tunnel, src_port);
        Ok(())
    }

    /// Pops all packets of a batch, whose order stays. Malformed packets leave it, and `dropped` is called for each of them. GSO
    /// packets whose segments are outer datagrams become large inner packets ([`joined`]), or are segmented.
    pub fn pop_all(self, batch: &mut Batch, cache: &mut Cache, mut dropped: impl FnMut(Malformed)) {
        let (mut kept, mut unsegmented) = (0, Vec::new());
        batch.retain_mut(|packet| {
            match self.pop(packet, cache) {
                Ok(()) => {}
                // Datagrams after a malformed one may be valid.
                Err(_) if packet.offload.gso.is_some_and(|gso| gso.kind == GsoKind::UdpL4) => unsegmented.push(kept),
                Err(reason) => {
                    dropped(reason);
                    return false;
                }
            }
            kept += 1;
            true
        });
        if !unsegmented.is_empty() {
            self.pop_datagrams(&unsegmented, batch, cache, &mut dropped);
        }
    }

    /// Pops the packets of outer datagrams at these positions of a batch.
    #[cold]
    fn pop_datagrams(self, at: &[usize], batch: &mut Batch, cache: &mut Cache, dropped: &mut dyn FnMut(Malformed)) {
        let mut at = at.iter().copied().peekable();
        for (i, mut packet) in std::mem::take(batch).into_iter().enumerate() {
            if at.next_if_eq(&i).is_none() || joined::pop_joined(self, &mut packet, cache).is_some() {
                batch.push(packet);
                continue;
            }
            match segment(&packet) {
                Ok(segments) => {
                    for mut packet in segments {
                        match self.pop(&mut packet, cache) {
                            Ok(()) => batch.push(packet),
                            Err(reason) => dropped(reason),
                        }
                    }
                }
                Err(SegmentError::NoMark | SegmentError::Mismatch) => dropped(Malformed::Unsegmented),
            }
        }
    }
}

/// GSO flags of TCP belong to the inner packet. GSO flags of UDP belong to the header whose checksum is partial.
#[cold]
fn check_segments_are_inner(packet: &Packet, parsed: &Parsed<'_>) -> Result<(), Malformed> {
    let Some(gso) = packet.offload.gso else { return Ok(()) };
    let is_inner = match (gso.kind, packet.offload.checksum) {
        (GsoKind::TcpV4 | GsoKind::TcpV6, _) => parsed.inner != Inner::Control,
        (GsoKind::UdpL4, Checksum::Partial { start, .. }) => usize::from(start) >= parsed.start && parsed.start > 0,
        (GsoKind::UdpL4, _) => false,
    };
    if is_inner { Ok(()) } else { Err(Malformed::Unsegmented) }
}
