//! Set actions against a naive twin: a frame as a struct whose fields are set one by one, and which is then emitted
//! as a whole with all checksums recomputed.

use super::patch::setter;
use super::set_all;
use base::DropReason;
use dpif::DpAction;
use flow::Field;
use packet::checksum::crc32c;
use packet::{Checksum, Packet};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Frame {
    dst: u64,
    src: u64,
    tags: Vec<(u16, u16)>,
    /// Behind 802.2 and SNAP headers.
    snap: bool,
    net: Net,
    /// Bytes past the end of the IP packet.
    padding: Vec<u8>,
    /// The transport checksum is partial.
    partial: bool,
}

#[derive(Clone, Debug)]
enum Net {
    Arp { op: u16, sha: u64, spa: u32, tha: u64, tpa: u32 },
    Mpls { entries: Vec<u32>, payload: Vec<u8> },
    Nsh { first: u16, path: u32, contexts: [u32; 4] },
    V4 { tos: u8, ttl: u8, src: u32, dst: u32, options: Vec<[u8; 4]>, frag: Frag, l4: L4 },
    V6 { tos: u8, label: u32, hop: u8, src: u128, dst: u128, via: Option<u128>, frag: Frag, l4: L4 },
}

#[derive(Clone, Debug, PartialEq)]
enum Frag {
    No,
    /// The payload of the other fragments.
    First(Vec<u8>),
    Later,
}

#[derive(Clone, Debug)]
enum L4 {
    Tcp { ports: [u16; 2], rest: [u8; 12], payload: Vec<u8> },
    Udp { ports: [u16; 2], with_checksum: bool, payload: Vec<u8> },
    Sctp { ports: [u16; 2], tag: u32, payload: Vec<u8> },
    Icmp { kind: u8, code: u8, payload: Vec<u8> },
    Nd { kind: u8, code: u8, reserved: u32, target: u128, options: Vec<(u8, u64)> },
    Raw { proto: u8, payload: Vec<u8> },
}

fn sum_of(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|c| u64::from(c[0]) << 8 | u64::from(c.get(1).copied().unwrap_or(0))).sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn mac(n: u64) -> [u8; 6] {
    n.to_be_bytes()[2..].try_into().expect("6 bytes")
}

impl L4 {
    fn proto(&self, v6: bool) -> u8 {
        match self {
            Self::Tcp { .. } => 6,
            Self::Udp { .. } => 17,
            Self::Sctp { .. } => 132,
            Self::Icmp { .. } | Self::Nd { .. } => {
                if v6 {
                    58
                } else {
                    1
                }
            }
            Self::Raw { proto, .. } => *proto,
        }
    }

    /// Returns the header with a zero checksum and the payload, and the offset of the checksum.
    fn plain(&self) -> (Vec<u8>, usize) {
        let ports = |p: &[u16; 2]| [p[0].to_be_bytes(), p[1].to_be_bytes()].concat();
        match self {
            Self::Tcp { ports: p, rest, payload } => {
                ([ports(p), rest.to_vec(), vec![0; 4], payload.clone()].concat(), 16)
            }
            Self::Udp { ports: p, payload, .. } => {
                let len = (payload.len() as u16 + 8).to_be_bytes();
                ([ports(p), len.to_vec(), vec![0; 2], payload.clone()].concat(), 6)
            }
            Self::Sctp { ports: p, tag, payload } => {
                ([ports(p), tag.to_be_bytes().to_vec(), vec![0; 4], payload.clone()].concat(), 8)
            }
            Self::Icmp { kind, code, payload } => ([vec![*kind, *code, 0, 0], payload.clone()].concat(), 2),
            Self::Nd { kind, code, reserved, target, options } => {
                let mut b = vec![*kind, *code, 0, 0];
                b.extend(reserved.to_be_bytes());
                b.extend(target.to_be_bytes());
                for (kind, address) in options {
                    b.extend([*kind, 1]);
                    b.extend(mac(*address));
                }
                (b, 2)
            }
            Self::Raw { payload, .. } => (payload.clone(), 0),
        }
    }

    /// Returns the bytes with the checksum; `pseudo` is the pseudo-header without its length, `hidden` the payload of
    /// other fragments.
    fn emit(&self, v6: bool, pseudo: &[u8], hidden: &[u8], partial: bool) -> Vec<u8> {
        let (mut bytes, at) = self.plain();
        let len = bytes.len() + hidden.len();
        let covers = !matches!(self, Self::Icmp { .. } | Self::Nd { .. }) || v6;
        let tail = [[0, self.proto(v6)], (len as u16).to_be_bytes()].concat();
        let above = if covers { sum_of(pseudo) + sum_of(&tail) } else { 0 };
        match self {
            Self::Raw { .. } => return bytes,
            Self::Sctp { .. } => {
                let crc = crc32c(&bytes);
                bytes[8..12].copy_from_slice(&crc.to_le_bytes());
                return bytes;
            }
            Self::Udp { with_checksum: false, .. } if !partial => return bytes,
            _ => {}
        }
        let mut checksum =
            if partial { folded(above) } else { !folded(above + sum_of(&[bytes.clone(), hidden.to_vec()].concat())) };
        if matches!(self, Self::Udp { .. }) && checksum == 0 && !partial {
            checksum = 0xffff;
        }
        bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    fn set(&mut self, v6: bool, field: Field, set: &dyn Fn(u128) -> u128) {
        let set16 = |n: &mut u16| *n = set(u128::from(*n)) as u16;
        let set8 = |n: &mut u8| *n = set(u128::from(*n)) as u8;
        match (self, field) {
            (Self::Tcp { ports, .. }, Field::TcpSrc)
            | (Self::Udp { ports, .. }, Field::UdpSrc)
            | (Self::Sctp { ports, .. }, Field::SctpSrc) => set16(&mut ports[0]),
            (Self::Tcp { ports, .. }, Field::TcpDst)
            | (Self::Udp { ports, .. }, Field::UdpDst)
            | (Self::Sctp { ports, .. }, Field::SctpDst) => set16(&mut ports[1]),
            (Self::Icmp { kind, .. } | Self::Nd { kind, .. }, Field::Icmpv4Type) if !v6 => set8(kind),
            (Self::Icmp { kind, .. } | Self::Nd { kind, .. }, Field::Icmpv6Type) if v6 => set8(kind),
            (Self::Icmp { code, .. } | Self::Nd { code, .. }, Field::Icmpv4Code) if !v6 => set8(code),
            (Self::Icmp { code, .. } | Self::Nd { code, .. }, Field::Icmpv6Code) if v6 => set8(code),
            (Self::Nd { kind: kind @ (135 | 136), code: 0, reserved, target, options, .. }, _) if v6 => {
                let option = |wanted| move |o: &&mut (u8, u64)| o.0 == wanted;
                let set_mac = |o: &mut (u8, u64)| o.1 = set(o.1.into()) as u64;
                match field {
                    Field::NdReserved => *reserved = set((*reserved).into()) as u32,
                    Field::NdTarget => *target = set(*target),
                    Field::NdOptionsType => {
                        if let Some(o) = options.first_mut() {
                            set8(&mut o.0);
                        }
                    }
                    Field::NdSll if *kind == 135 => options.iter_mut().find(option(1)).into_iter().for_each(set_mac),
                    Field::NdTll if *kind == 136 => options.iter_mut().find(option(2)).into_iter().for_each(set_mac),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

impl Frame {
    /// Returns the bytes, the offset of the transport header, and the offset of the checksum in it.
    fn emit(&self) -> (Vec<u8>, usize, usize) {
        let mut b = [mac(self.dst), mac(self.src)].concat();
        for (tpid, tci) in &self.tags {
            b.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        }
        if self.snap {
            b.extend([0, 100, 0xaa, 0xaa, 3, 0, 0, 0]);
        }
        let (mut l4_at, mut checksum_at) = (0, 0);
        match &self.net {
            Net::Arp { op, sha, spa, tha, tpa } => {
                b.extend([8, 6, 0, 1, 8, 0, 6, 4]);
                b.extend(op.to_be_bytes());
                b.extend(mac(*sha));
                b.extend(spa.to_be_bytes());
                b.extend(mac(*tha));
                b.extend(tpa.to_be_bytes());
            }
            Net::Mpls { entries, payload } => {
                b.extend([0x88, 0x47]);
                b.extend(entries.iter().flat_map(|e| e.to_be_bytes()));
                b.extend(payload);
            }
            Net::Nsh { first, path, contexts } => {
                b.extend([0x89, 0x4f]);
                b.extend(first.to_be_bytes());
                b.extend([1, 3]);
                b.extend(path.to_be_bytes());
                b.extend(contexts.iter().flat_map(|c| c.to_be_bytes()));
            }
            Net::V4 { tos, ttl, src, dst, options, frag, l4 } => {
                b.extend([8, 0]);
                let pseudo = [src.to_be_bytes(), dst.to_be_bytes()].concat();
                let body = frag.body(l4, false, &pseudo, self.partial);
                let header_len = 20 + 4 * options.len();
                let mut h = vec![0x40 | (header_len / 4) as u8, *tos];
                h.extend(((header_len + body.len()) as u16).to_be_bytes());
                h.extend([7, 8]);
                h.extend(match frag {
                    Frag::No => [0x40, 0],
                    Frag::First(_) => [0x20, 0],
                    Frag::Later => [0, 9],
                });
                h.extend([*ttl, l4.proto(false), 0, 0]);
                h.extend(pseudo);
                h.extend(options.iter().flatten());
                let checksum = !folded(sum_of(&h));
                h[10..12].copy_from_slice(&checksum.to_be_bytes());
                b.extend(h);
                (l4_at, checksum_at) = (b.len(), l4.plain().1);
                b.extend(body);
            }
            Net::V6 { tos, label, hop, src, dst, via, frag, l4 } => {
                b.extend([0x86, 0xdd]);
                let last = via.unwrap_or(*dst);
                let pseudo = [src.to_be_bytes(), last.to_be_bytes()].concat();
                let body = frag.body(l4, true, &pseudo, self.partial);
                // Routing header (with the final destination as its one segment), then fragment header.
                let mut kinds = Vec::new();
                kinds.extend(via.map(|_| 43));
                kinds.extend((*frag != Frag::No).then_some(44));
                kinds.push(l4.proto(true));
                let mut ext = Vec::new();
                if let Some(via) = via {
                    ext.extend([kinds[1], 2, 4, 1, 0, 0, 0, 0]);
                    ext.extend(via.to_be_bytes());
                }
                match frag {
                    Frag::No => {}
                    Frag::First(_) => ext.extend([l4.proto(true), 0, 0, 1, 0, 0, 0, 5]),
                    Frag::Later => ext.extend([l4.proto(true), 0, 0, 0x48, 0, 0, 0, 5]),
                }
                b.extend((6u32 << 28 | u32::from(*tos) << 20 | label).to_be_bytes());
                b.extend(((ext.len() + body.len()) as u16).to_be_bytes());
                b.extend([kinds[0], *hop]);
                b.extend(src.to_be_bytes());
                b.extend(dst.to_be_bytes());
                b.extend(ext);
                (l4_at, checksum_at) = (b.len(), l4.plain().1);
                b.extend(body);
            }
        }
        b.extend(&self.padding);
        (b, l4_at, checksum_at)
    }

    fn repeats_an_address(&self) -> bool {
        let (Net::V4 { l4, .. } | Net::V6 { l4, .. }) = &self.net else { return false };
        let L4::Nd { options, .. } = l4 else { return false };
        [1, 2].iter().any(|kind| options.iter().filter(|o| o.0 == *kind).count() > 1)
    }

    fn packet(&self) -> Packet {
        let (bytes, start, offset) = self.emit();
        let mut p = Packet::from_slice(&bytes);
        if self.partial {
            p.offload.checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        }
        p
    }

    fn set(&mut self, field: Field, value: u128, mask: u128) {
        // `at` is the position of the field's lowest bit in the number.
        let put = |old: u128, at: u32, bits: u128| {
            let m = (mask & bits) << at;
            old & !m | (value << at) & m
        };
        let all = |old: u128| put(old, 0, u128::MAX);
        let outer = self.tags.first_mut();
        let mut set_tci = |at, bits| {
            if let Some((_, tci)) = outer {
                *tci = put((*tci).into(), at, bits) as u16;
            }
        };
        match field {
            Field::EthDst => self.dst = put(self.dst.into(), 0, (1 << 48) - 1) as u64,
            Field::EthSrc => self.src = put(self.src.into(), 0, (1 << 48) - 1) as u64,
            Field::VlanTci => set_tci(0, 0xefff),
            Field::DlVlan | Field::VlanVid => set_tci(0, 0x0fff),
            Field::DlVlanPcp | Field::VlanPcp => set_tci(13, 7),
            _ => {}
        }
        let v6 = matches!(self.net, Net::V6 { .. });
        match &mut self.net {
            Net::Arp { op, sha, spa, tha, tpa } => match field {
                // Setting the low byte sets the whole operation, whatever it was.
                Field::ArpOp if mask & 0xff == 0xff => *op = value as u16 & 0xff,
                Field::ArpOp => *op = put((*op).into(), 0, 0xff) as u16,
                Field::ArpSha => *sha = put((*sha).into(), 0, (1 << 48) - 1) as u64,
                Field::ArpTha => *tha = put((*tha).into(), 0, (1 << 48) - 1) as u64,
                Field::ArpSpa => *spa = all((*spa).into()) as u32,
                Field::ArpTpa => *tpa = all((*tpa).into()) as u32,
                _ => {}
            },
            Net::Mpls { entries, .. } => {
                let (at, bits) = match field {
                    Field::MplsLabel => (12, 0xf_ffff),
                    Field::MplsTc => (9, 7),
                    Field::MplsBos => (8, 1),
                    Field::MplsTtl => (0, 0xff),
                    _ => return,
                };
                entries[0] = put(entries[0].into(), at, bits) as u32;
            }
            Net::Nsh { first, path, contexts } => match field {
                Field::NshFlags => *first = put((*first).into(), 12, 3) as u16,
                Field::NshTtl => *first = put((*first).into(), 6, 0x3f) as u16,
                Field::NshSpi => *path = put((*path).into(), 8, 0xff_ffff) as u32,
                Field::NshSi => *path = put((*path).into(), 0, 0xff) as u32,
                Field::NshC1 => contexts[0] = all(contexts[0].into()) as u32,
                Field::NshC2 => contexts[1] = all(contexts[1].into()) as u32,
                Field::NshC3 => contexts[2] = all(contexts[2].into()) as u32,
                Field::NshC4 => contexts[3] = all(contexts[3].into()) as u32,
                _ => {}
            },
            Net::V4 { tos, ttl, .. } | Net::V6 { tos, hop: ttl, .. }
                if matches!(field, Field::IpTtl | Field::IpDscp | Field::IpDscpShifted | Field::IpEcn) =>
            {
                match field {
                    Field::IpTtl => *ttl = all((*ttl).into()) as u8,
                    Field::IpDscp => *tos = put((*tos).into(), 2, 0x3f) as u8,
                    Field::IpDscpShifted => *tos = put((*tos).into(), 0, 0xfc) as u8,
                    _ => *tos = put((*tos).into(), 0, 3) as u8,
                }
            }
            Net::V4 { src, dst, frag, l4, .. } => match field {
                Field::Ipv4Src => *src = all((*src).into()) as u32,
                Field::Ipv4Dst => *dst = all((*dst).into()) as u32,
                _ if *frag != Frag::Later => l4.set(v6, field, &all),
                _ => {}
            },
            Net::V6 { label, src, dst, frag, l4, .. } => match field {
                Field::Ipv6Src => *src = all(*src),
                Field::Ipv6Dst => *dst = all(*dst),
                Field::Ipv6Label => *label = put((*label).into(), 0, 0xf_ffff) as u32,
                _ if *frag != Frag::Later => l4.set(v6, field, &all),
                _ => {}
            },
        }
    }
}

impl Frag {
    fn body(&self, l4: &L4, v6: bool, pseudo: &[u8], partial: bool) -> Vec<u8> {
        match self {
            Self::No => l4.emit(v6, pseudo, &[], partial),
            Self::First(hidden) => l4.emit(v6, pseudo, hidden, partial),
            Self::Later => l4.plain().0,
        }
    }
}

const ROUTED: &[Field] =
    &[Field::EthSrc, Field::EthDst, Field::IpTtl, Field::IpDscp, Field::IpDscpShifted, Field::IpEcn];
const FIELDS: &[Field] = &[
    Field::EthSrc,
    Field::EthDst,
    Field::VlanTci,
    Field::DlVlan,
    Field::VlanVid,
    Field::DlVlanPcp,
    Field::VlanPcp,
    Field::MplsLabel,
    Field::MplsTc,
    Field::MplsBos,
    Field::MplsTtl,
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::Ipv6Label,
    Field::IpDscpShifted,
    Field::IpDscp,
    Field::IpEcn,
    Field::IpTtl,
    Field::ArpOp,
    Field::ArpSpa,
    Field::ArpTpa,
    Field::ArpSha,
    Field::ArpTha,
    Field::TcpSrc,
    Field::TcpDst,
    Field::UdpSrc,
    Field::UdpDst,
    Field::SctpSrc,
    Field::SctpDst,
    Field::Icmpv4Type,
    Field::Icmpv4Code,
    Field::Icmpv6Type,
    Field::Icmpv6Code,
    Field::NdTarget,
    Field::NdSll,
    Field::NdTll,
    Field::NdReserved,
    Field::NdOptionsType,
    Field::NshFlags,
    Field::NshTtl,
    Field::NshSpi,
    Field::NshSi,
    Field::NshC1,
    Field::NshC2,
    Field::NshC3,
    Field::NshC4,
    Field::PktMark,
    Field::Reg0,
];

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

fn l4() -> impl Strategy<Value = L4> {
    let ports = any::<[u16; 2]>;
    prop_oneof![
        (ports(), any::<[u8; 12]>(), bytes(40)).prop_map(|(ports, rest, payload)| L4::Tcp { ports, rest, payload }),
        (ports(), any::<bool>(), bytes(40)).prop_map(|(ports, with_checksum, payload)| L4::Udp {
            ports,
            with_checksum,
            payload
        }),
        (ports(), any::<u32>(), bytes(40)).prop_map(|(ports, tag, payload)| L4::Sctp { ports, tag, payload }),
        (0..100u8, any::<u8>(), bytes(40)).prop_map(|(kind, code, payload)| L4::Icmp { kind, code, payload }),
        (135..137u8, any::<u32>(), any::<u128>(), prop::collection::vec((0..4u8, any::<u64>()), 0..4)).prop_map(
            |(kind, reserved, target, options)| {
                let options = options.into_iter().map(|(kind, address)| (kind, address & 0xffff_ffff_ffff)).collect();
                L4::Nd { kind, code: 0, reserved, target, options }
            }
        ),
        bytes(40).prop_map(|payload| L4::Raw { proto: 89, payload }),
    ]
}

fn frag() -> impl Strategy<Value = Frag> {
    prop_oneof![4 => Just(Frag::No), 1 => bytes(20).prop_map(Frag::First), 1 => Just(Frag::Later)]
}

fn net() -> impl Strategy<Value = Net> {
    let entries = prop::collection::vec(any::<u32>(), 1..4);
    prop_oneof![
        1 => (any::<u16>(), any::<[u32; 2]>(), any::<[u64; 2]>()).prop_map(|(op, [spa, tpa], macs)| {
            let [sha, tha] = macs.map(|m| m & 0xffff_ffff_ffff);
            Net::Arp { op, sha, spa, tha, tpa }
        }),
        1 => (entries, bytes(20)).prop_map(|(entries, payload)| Net::Mpls { entries, payload }),
        1 => (any::<u16>(), any::<u32>(), any::<[u32; 4]>())
            .prop_map(|(first, path, contexts)| Net::Nsh { first, path, contexts }),
        4 => (any::<[u8; 2]>(), any::<[u32; 2]>(), prop::collection::vec(any::<[u8; 4]>(), 0..3), frag(), l4())
            .prop_map(|([tos, ttl], [src, dst], options, frag, l4)| {
                Net::V4 { tos, ttl, src, dst, options, frag, l4 }
            }),
        4 => (any::<[u8; 2]>(), any::<u32>(), any::<[u128; 2]>(), any::<Option<u128>>(), frag(), l4())
            .prop_map(|([tos, hop], label, [src, dst], via, frag, l4)| {
                Net::V6 { tos, label: label & 0xf_ffff, hop, src, dst, via, frag, l4 }
            }),
    ]
}

fn frames() -> impl Strategy<Value = Frame> {
    let tag = (prop_oneof![Just(0x8100u16), Just(0x88a8)], any::<u16>());
    (any::<[u64; 2]>(), prop::collection::vec(tag, 0..3), any::<bool>(), net(), bytes(9), any::<bool>()).prop_map(
        |(macs, tags, snap, mut net, padding, partial)| {
            let [dst, src] = macs.map(|m| m & 0xffff_ffff_ffff);
            let mut whole = false;
            if let Net::V4 { frag, l4, .. } | Net::V6 { frag, l4, .. } = &mut net {
                // Ports of SCTP fragments are not written, hidden bytes follow an even number of visible ones, and
                // only whole packets of the common protocols have partial checksums.
                if matches!(l4, L4::Sctp { .. }) || l4.plain().0.len() % 2 == 1 {
                    *frag = Frag::No;
                }
                whole = *frag == Frag::No && matches!(l4, L4::Tcp { .. } | L4::Udp { .. });
            }
            Frame { dst, src, tags, snap, net, padding, partial: partial && whole }
        },
    )
}

fn sets() -> impl Strategy<Value = Vec<(Field, u128, u128)>> {
    let mask = prop_oneof![Just(u128::MAX), any::<u128>()];
    let value = prop_oneof![Just(0), Just(u128::MAX), any::<u128>()];
    // The fields that are written at once, or any.
    let fields = prop_oneof![Just(ROUTED), Just(FIELDS)];
    fields.prop_flat_map(move |fields| {
        prop::collection::vec((prop::sample::select(fields), value.clone(), mask.clone()), 1..12)
    })
}

fn actions(sets: &[(Field, u128, u128)]) -> Vec<DpAction> {
    sets.iter().map(|&(field, value, mask)| DpAction::Set { field, value, mask }).collect()
}

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn sets_agree_with_the_twin(mut frame in frames(), sets in sets()) {
        let mut packet = frame.packet();
        let mut at_once = frame.packet();
        prop_assert_eq!(set_all(&mut packet, &actions(&sets)), Ok(()));
        prop_assert_eq!(setter(&actions(&sets))(&mut at_once), Ok(()));
        prop_assert_eq!(&at_once, &packet);
        for (field, value, mask) in sets {
            frame.set(field, value, mask);
        }
        prop_assert_eq!(packet, frame.packet());
    }

    #[test]
    fn truncated_frames_never_panic_and_lose_no_byte(frame in frames(), sets in sets(), keep in 0.0..1.0f64) {
        let whole = frame.emit().0;
        let cut = &whole[..(whole.len() as f64 * keep) as usize];
        let mut packet = Packet::from_slice(cut);
        let mut at_once = Packet::from_slice(cut);
        let result = set_all(&mut packet, &actions(&sets));
        prop_assert!(matches!(result, Ok(()) | Err(DropReason::Truncated | DropReason::Fragment)));
        prop_assert_eq!(setter(&actions(&sets))(&mut at_once), result);
        prop_assert!(result.is_err() || at_once == packet);
        prop_assert_eq!(packet.len(), cut.len());
    }
}

tally::proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: u32::MAX, ..ProptestConfig::with_cases(1000) })]

    /// Key extraction sees exactly the requested change, or none if the packet has no such header.
    #[test]
    fn extraction_sees_what_was_set(frame in frames(), set in sets()) {
        let (field, value, mask) = set[0];
        // Another message type changes the meaning of other fields.
        prop_assume!(!matches!(field, Field::Icmpv6Type | Field::Icmpv6Code | Field::NdOptionsType | Field::NshFlags | Field::ArpOp | Field::MplsBos));
        // If an address option occurs twice, the key has none, unless one of the addresses is zero.
        prop_assume!(!frame.repeats_an_address());
        let key = |p: &Packet| flow::extract::extract(p.data(), base::PortNo(1)).0;
        let mut packet = frame.packet();
        let before = key(&packet);
        set_all(&mut packet, &actions(&set[..1])).expect("whole");
        let mut mask = mask & field.info().full_mask();
        if matches!(field, Field::VlanTci | Field::VlanVid) {
            mask &= 0xefff;
        }
        if field == Field::NshTtl {
            // The header has only six of the eight bits of the key.
            mask &= 0x3f;
        }
        let mut expected = before.clone();
        expected.set(field, before.get(field) & !mask | value & mask);
        let after = key(&packet);
        prop_assert!(after == before || after == expected, "{after:?} {expected:?}");
    }
}

fn tcp_frame() -> Frame {
    let l4 = L4::Tcp { ports: [1, 2], rest: [0; 12], payload: vec![1, 2, 3] };
    let net = Net::V4 { tos: 0, ttl: 64, src: 1, dst: 2, options: vec![], frag: Frag::No, l4 };
    Frame { dst: 1, src: 2, tags: vec![], snap: false, net, padding: vec![], partial: false }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut packet = tcp_frame().packet();
    packet.data_mut()[50] ^= 0x10;
    let set = [(Field::Ipv4Src, 0x0a00_0001, u128::MAX), (Field::TcpDst, 443, u128::MAX)];
    set_all(&mut packet, &actions(&set)).expect("whole");
    let mut right = tcp_frame();
    for (field, value, mask) in set {
        right.set(field, value, mask);
    }
    let mut expected = right.packet();
    expected.data_mut()[50] ^= 0x10;
    assert_eq!(packet, expected);
}

#[test]
fn a_truncated_transport_header_is_an_error() {
    let mut frame = tcp_frame();
    if let Net::V4 { l4, .. } = &mut frame.net {
        *l4 = L4::Raw { proto: 6, payload: vec![0; 19] };
    }
    let set = |field| set_all(&mut frame.packet(), &actions(&[(field, 9, u128::MAX)]));
    assert_eq!(set(Field::TcpSrc), Err(DropReason::Truncated));
    assert_eq!(set(Field::UdpSrc), Ok(()));
    assert_eq!(set(Field::Ipv4Src), Ok(()));
    let mut short = Packet::from_slice(&frame.emit().0[..30]);
    assert_eq!(set_all(&mut short, &actions(&[(Field::IpTtl, 9, 0xff)])), Err(DropReason::Truncated));
}

/// For all values of a checksum, sets a port to all values, including the two representations of zero.
#[test]
fn every_checksum_is_the_right_one_of_two_zeros() {
    for udp in [false, true] {
        let mut frame = tcp_frame();
        if let Net::V4 { l4, .. } = &mut frame.net
            && udp
        {
            *l4 = L4::Udp { ports: [1, 2], with_checksum: true, payload: vec![1, 2, 3] };
        }
        let field = if udp { Field::UdpDst } else { Field::TcpDst };
        let mut packet = frame.packet();
        for port in 0..=u128::from(u16::MAX) {
            set_all(&mut packet, &actions(&[(field, port, u128::MAX)])).expect("whole");
            frame.set(field, port, u128::MAX);
            assert_eq!(packet.data(), frame.emit().0, "port {port}");
        }
    }
}
