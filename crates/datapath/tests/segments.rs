//! A GSO packet leaves as the same frames that its segments would have left as, for all lists of actions.

mod common;

use base::{Clock, DpPort, MacAddr};
use common::{TestHandler, TestPort, plain_mask};
use datapath::{Config, Datapath};
use dpif::{DpAction, DpActions, Dpif, HashKind};
use flow::Field;
use netdev::software;
use packet::wire::{EthernetRepr, Ipv4Repr, Ipv6Repr, TcpRepr, UdpRepr, VlanRepr};
use packet::{Batch, Gso, GsoKind, Packet, segment};
use proptest::prelude::*;

/// A GSO packet of this kind, with VLAN tags.
fn large(kind: GsoKind, v6: bool, tags: usize, payload: &[u8], size: u16) -> Packet {
    let mut f = Vec::new();
    EthernetRepr { ethertype: 0, ..EthernetRepr::default() }.emit(&mut f);
    f.truncate(12);
    for tag in 0..tags {
        VlanRepr { tpid: 0x8100, tci: 5 + tag as u16 }.emit(&mut f);
    }
    f.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
    let udp = kind == GsoKind::UdpL4;
    let (proto, l4) = if udp { (17, 8) } else { (6, 20) };
    if v6 {
        Ipv6Repr { src: 1, dst: 2, next_header: proto, hop_limit: 9, ..Ipv6Repr::default() }
            .emit(l4 + payload.len(), &mut f);
    } else {
        Ipv4Repr { src: 1, dst: 2, proto, ttl: 9, id: 7, ..Ipv4Repr::default() }.emit(l4 + payload.len(), &mut f);
    }
    if udp {
        UdpRepr { src: 1, dst: 2 }.emit(payload.len(), &mut f);
    } else {
        TcpRepr { src: 1, dst: 2, seq: u32::MAX - 5, flags: 0x099, ..TcpRepr::default() }.emit(&mut f);
    }
    f.extend(payload);
    let mut p = Packet::from_slice(&f);
    p.offload.gso = Some(Gso { kind, size, ecn: false });
    p
}

const FIELDS: &[(Field, u128)] = &[
    (Field::EthDst, 0xffff_ffff_ffff),
    (Field::VlanTci, 0xffff),
    (Field::MplsTtl, 0xff),
    (Field::MplsLabel, 0xf_ffff),
    (Field::Ipv4Src, 0xffff_ffff),
    (Field::Ipv6Dst, u128::MAX),
    (Field::IpTtl, 0xff),
    (Field::IpDscp, 0x3f),
    (Field::IpEcn, 3),
    (Field::TcpSrc, 0xffff),
    (Field::UdpDst, 0xffff),
    (Field::PktMark, 0xffff_ffff),
    (Field::SkbPriority, 0xffff_ffff),
];

fn set() -> impl Strategy<Value = DpAction> {
    (prop::sample::select(FIELDS), any::<u128>()).prop_map(|((field, mask), value)| DpAction::Set {
        field,
        value: value & mask,
        mask,
    })
}

/// Consecutive steps, so that pairs which depend on each other are together.
fn steps() -> impl Strategy<Value = Vec<DpAction>> {
    let one = prop_oneof![
        3 => set(),
        2 => any::<u16>().prop_map(|tci| DpAction::PushVlan { tpid: 0x8100, tci }),
        2 => Just(DpAction::PopVlan),
        2 => any::<u32>().prop_map(|lse| DpAction::PushMpls { ethertype: 0x8847, lse }),
        1 => prop::sample::select(vec![0x800u16, 0x86dd, 0x8847]).prop_map(|ethertype| DpAction::PopMpls { ethertype }),
        1 => any::<u32>().prop_map(|tci| DpAction::PushPbb { tci }),
        1 => Just(DpAction::PopPbb),
        1 => any::<bool>().prop_map(|outwards| DpAction::CopyTtl { outwards }),
        1 => any::<u32>().prop_map(|basis| DpAction::Hash(HashKind::L4, basis)),
        2 => Just(DpAction::Output(DpPort(2))),
        1 => (1u32..4).prop_map(DpAction::Recirc),
    ];
    prop_oneof![
        8 => one.prop_map(|one| vec![one]),
        1 => (14u32..1200).prop_map(|len| vec![DpAction::Trunc(len), DpAction::Output(DpPort(2))]),
        1 => (prop::option::of(set()), any::<bool>()).prop_map(|(set, recirculates)| {
            let (dst, src) = (MacAddr([2; 6]), MacAddr([4; 6]));
            let between = set.into_iter().chain(recirculates.then_some(DpAction::Recirc(1)));
            [DpAction::PopEth].into_iter().chain(between).chain([DpAction::PushEth { dst, src }]).collect()
        }),
        1 => any::<u32>().prop_map(|lse| {
            let (dst, src) = (MacAddr([2; 6]), MacAddr([4; 6]));
            vec![DpAction::AddMpls { ethertype: 0x8847, lse }, DpAction::PushEth { dst, src }]
        }),
    ]
}

fn list() -> impl Strategy<Value = Vec<DpAction>> {
    let flat = || prop::collection::vec(steps(), 0..6).prop_map(|lists| lists.concat());
    (flat(), prop::collection::vec((0usize..3, 14u16..1200, flat(), flat()), 0..2)).prop_map(|(mut list, nested)| {
        for (kind, size, one, other) in nested {
            list.push(match kind {
                0 => DpAction::Clone(one.into()),
                _ => DpAction::CheckPktLen { size, greater: one.into(), lesser: other.into() },
            });
            list.push(DpAction::Output(DpPort(2)));
        }
        list
    })
}

/// The list, with recirculation to list `next` if there is one.
fn in_turn(list: &[DpAction], next: Option<u32>) -> DpActions {
    let one = |action: &DpAction| match (action, next) {
        (DpAction::Recirc(_), Some(next)) => DpAction::Recirc(next),
        (DpAction::Recirc(_), None) => DpAction::Output(DpPort(2)),
        (other, _) => other.with_nested(|inner| in_turn(inner, next)),
    };
    list.iter().map(one).collect()
}

/// Returns the sorted frames and metadata sent for packets that take `lists[0]`, and then the other lists when they
/// recirculate.
fn frames(packets: Vec<Packet>, lists: &[Vec<DpAction>], vlans_max: usize) -> Vec<(Vec<u8>, u32, u32)> {
    let dp = Datapath::new(Config { threads: 0, ..Config::default() }, Clock::stopped()).expect("no thread to start");
    dp.set_vlans_max(vlans_max);
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    dp.port_add(a.clone(), Some(DpPort(1))).expect("opens");
    dp.port_add(b.clone(), Some(DpPort(2))).expect("opens");
    let next = |n: usize| if n < lists.len() { u32::try_from(n).ok() } else { None };
    let answers: Vec<DpActions> = lists.iter().enumerate().map(|(n, list)| in_turn(list, next(n + 1))).collect();
    dp.set_handler(TestHandler::new(Box::new(move |_, key| {
        let mut mask = plain_mask();
        mask.add_mask(Field::RecircId, u32::MAX.into());
        mask.add_mask(Field::PktMark, u32::MAX.into());
        // The metadata of the packet is visible in the frames.
        let mark = key.get(Field::PktMark) ^ key.get(Field::SkbPriority) << 8;
        let noted = DpAction::Set { field: Field::EthSrc, value: mark, mask: 0xffff_ffff_ffff };
        mask.add_mask(Field::SkbPriority, u32::MAX.into());
        let list = &answers[key.get(Field::RecircId) as usize % answers.len()];
        ([&[noted], &list[..]].concat().into(), Some(mask))
    })));
    for packet in packets {
        a.receive_packet(packet);
    }
    dp.run_until_idle(100);
    let mut out = Batch::new();
    for packet in b.sent() {
        software::finish(packet, &mut out).expect("leaves as something a device could segment");
    }
    let marks = |p: &Packet| p.metadata().map_or((0, 0), |known| (known.pkt_mark, known.skb_priority));
    let mut frames: Vec<_> = out.iter().map(|p| (p.data().to_vec(), marks(p).0, marks(p).1)).collect();
    frames.sort();
    frames
}

tally::proptest! {
    #[test]
    fn a_gso_packet_leaves_as_its_segments_would(
        which in 0..4usize, tags in 0..3usize, len in 0..3000usize, size in 30..900u16, vlans_max in 1..3usize,
        lists in prop::collection::vec(list(), 1..4),
    ) {
        let (kind, v6) =
            [(GsoKind::TcpV4, false), (GsoKind::TcpV6, true), (GsoKind::UdpL4, false), (GsoKind::UdpL4, true)][which];
        let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let packet = large(kind, v6, tags, &payload, size);
        let segments = segment::segment(&packet).expect("fits its mark");
        prop_assert_eq!(frames(vec![packet], &lists, vlans_max), frames(segments, &lists, vlans_max));
    }
}

/// A regression: the label was pushed in front of the tag that the flow had pushed.
#[test]
fn labels_are_pushed_behind_pushed_tags() {
    let list = vec![
        DpAction::PushVlan { tpid: 0x8100, tci: 9 },
        DpAction::PushMpls { ethertype: 0x8847, lse: 0x5140 },
        DpAction::PushMpls { ethertype: 0x8847, lse: 0x6040 },
        DpAction::Output(DpPort(2)),
    ];
    let packet = large(GsoKind::TcpV4, false, 1, &[5; 2500], 1000);
    let segments = segment::segment(&packet).expect("fits its mark");
    let sent = frames(vec![packet], std::slice::from_ref(&list), 1);
    assert_eq!(sent.len(), 3);
    assert_eq!(sent, frames(segments, &[list], 1));
}
