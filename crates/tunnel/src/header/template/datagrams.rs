//! Encapsulation of GSO packets without giving up that they are large.
//!
//! Behind the UDP header of a tunnel, a GSO packet becomes one with UDP segmentation ([`GsoKind::UdpL4`]): its payload is the tunnel
//! header, the inner headers and the payload of the first segment, then those of the second one, and so on. The inner headers are
//! those of finished segments, with their checksums. The device divides the packet into frames, or software does if the device cannot
//! segment UDP. These frames equal the ones that separate segments would get, with one exception: the kernel gives each frame an outer
//! UDP checksum, even if the tunnel has none.

use super::{Context, Fix, Template, set_gtpu, set_udp};
use packet::buf::HEADROOM;
use packet::segment::Segments;
use packet::{Batch, Checksum, Gso, GsoKind, Offload, Packet};

/// Longest frame that devices of the kernel accept as it is (`gso_max_size`), with room for tags that are pushed later.
const FRAME_MAX: usize = 65_535 - 16;
/// Segments of a packet at most (`UDP_MAX_SEGMENTS`).
const DATAGRAMS_MAX: usize = 128;

impl Template {
    /// Pushes the headers onto a GSO packet: appends packets to `out` that stand for all of its segments.
    ///
    /// `None`, and `out` stays as it was, if that is impossible: the tunnel has no UDP header, the segments are too large for two of
    /// them to fit a frame, or the offload flags are not those of the packet.
    pub(super) fn push_whole(&self, packet: &Packet, hash: u32, context: &Context<'_>, out: &mut Batch) -> Option<()> {
        if !matches!(self.fix, Fix::Udp { .. } | Fix::UdpMore { .. }) {
            return None;
        }
        let segments = Segments::of(packet).ok()?;
        let room = FRAME_MAX.checked_sub(self.tunnel_header_at())?;
        let datagram = self.tunnel_header().len() + segments.len_max();
        let at_once = (room / datagram).min(DATAGRAMS_MAX);
        if at_once < 2 || segments.count() < 2 {
            return None;
        }
        // Parts of about the same size, so that the last one is no small packet.
        let at_once = segments.count().div_ceil(segments.count().div_ceil(at_once));
        let mut from = 0;
        while from < segments.count() {
            let n = at_once.min(segments.count() - from);
            out.push(if n > 1 {
                self.datagrams(packet, &segments, from..from + n, hash, context)
            } else {
                let mut single = segments.packet(from);
                self.push(&mut single, hash, context).expect("two of this length fit");
                single
            });
            from += n;
        }
        Some(())
    }

    /// One packet for some of the segments.
    fn datagrams(
        &self,
        packet: &Packet,
        segments: &Segments<'_>,
        range: std::ops::Range<usize>,
        hash: u32,
        context: &Context<'_>,
    ) -> Packet {
        let (src, gtpu, has_checksum) = match self.fix {
            Fix::UdpMore { src, gtpu, has_checksum } => (src, gtpu, has_checksum),
            Fix::Udp { src } => (src, None, false),
            Fix::Gre { .. } | Fix::Srv6(_) => (0, None, false),
        };
        let size = self.tunnel_header().len() + segments.len_max();
        let mut bytes = Vec::with_capacity(HEADROOM + range.len() * size);
        bytes.resize(HEADROOM, 0);
        for index in range {
            let at = bytes.len();
            bytes.extend_from_slice(self.tunnel_header());
            let inner_at = bytes.len();
            segments.append(index, &mut bytes);
            if let Some(fix) = gtpu {
                let inner = bytes.len() - inner_at;
                set_gtpu(&mut bytes[at..], fix, inner, context);
            }
        }
        let mut whole = Packet::from_vec(bytes, HEADROOM).expect("the frame starts behind the headroom");
        whole.copy_metadata(packet);
        whole.l3_type = None;
        whole.offload = Offload::default();

        // The template includes a tunnel header, in place of the first one.
        let header_len = self.tunnel_header().len();
        let first = whole.data()[..header_len].to_vec();
        whole.remove(0, header_len);
        let inner = whole.len();
        let (own, behind) = self.prepend(&mut whole, inner);
        behind[8..own].copy_from_slice(&first);
        set_udp(behind, src, hash, context, own + inner);
        if has_checksum {
            let partial = self.pseudo.u16((own + inner) as u16).partial();
            behind[6..8].copy_from_slice(&partial.to_be_bytes());
            let start = (self.tunnel_header_at() - 8) as u16;
            whole.offload.checksum = Checksum::Partial { start, offset: 6 };
        }
        whole.offload.gso = Some(Gso { kind: GsoKind::UdpL4, size: size as u16, ecn: false });
        whole
    }

    /// Number of datagrams that an outer packet stands for.
    pub(super) fn count(&self, outer: &Packet) -> u32 {
        let payload = outer.len().saturating_sub(self.tunnel_header_at());
        outer.offload.gso.map_or(1, |gso| payload.div_ceil(gso.size.into()) as u32)
    }

    /// Offset of the tunnel header behind UDP.
    fn tunnel_header_at(&self) -> usize {
        usize::from(self.l3) + if self.ip_sum.is_some() { 20 } else { 40 } + 8
    }

    /// The tunnel header behind UDP.
    fn tunnel_header(&self) -> &[u8] {
        &self.block.bytes(self.len.into())[self.tunnel_header_at()..]
    }
}
