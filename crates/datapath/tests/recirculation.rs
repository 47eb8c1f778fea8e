//! Packets that pass through the datapath several times, stepped by the test.

mod common;

use base::{DpPort, DropReason};
use common::{TestHandler, numbered_frame, only, out, plain_mask, stepped, two_ports};
use dpif::{DpAction, Dpif, HashKind};
use flow::Field;
use packet::Packet;

/// The first pass pops the VLAN tag and computes a hash, the second one matches on both.
#[test]
fn packets_recirculate() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    let handler = TestHandler::new(Box::new(|_, key| {
        let id = key.get(Field::RecircId);
        let mut mask = plain_mask();
        mask.add_mask(Field::RecircId, u32::MAX.into());
        let actions = match id {
            0 => vec![
                DpAction::PopVlan,
                DpAction::Hash(HashKind::SymmetricL4, 7),
                DpAction::Recirc(9),
                DpAction::Output(DpPort(1)),
            ],
            _ => {
                assert_eq!((id, key.vlan_tci(), key.in_port().0), (9, 0, 1));
                mask.add_mask(Field::DpHash, 1);
                let expected = flow::hash::symmetric_l4(key, 7);
                assert_eq!(key.get(Field::DpHash), expected.into());
                vec![DpAction::Output(DpPort(2))]
            }
        };
        (actions.into(), Some(mask))
    }));
    dp.set_handler(handler.clone());
    let frame = numbered_frame(1, 60);
    for _ in 0..3 {
        let mut packet = Packet::from_slice(&frame);
        packet.insert(12, 4).copy_from_slice(&[0x81, 0, 0, 9]);
        a.receive_packet(packet);
        dp.run_until_idle(10);
    }
    assert!(a.sent().iter().chain(&b.sent()).map(Packet::data).eq([&frame[..]; 6]));
    let stats = dp.stats();
    assert_eq!((stats.hit, stats.missed, stats.flows), (4, 2, 2));
    assert_eq!(dp.drops(), []);
}

/// A mask that covers all packets of a pass.
fn pass_mask() -> flow::FlowMask {
    let mut mask = plain_mask();
    mask.add_mask(Field::RecircId, u32::MAX.into());
    mask
}

#[test]
fn packets_recirculate_at_most_eight_times() {
    for (passes, drops) in [(8, 0), (9, 5)] {
        let dp = stepped();
        let (a, b) = two_ports(&dp);
        let answer = move |id: u128| only(if id < passes { DpAction::Recirc(id as u32 + 1) } else { out(2) });
        dp.set_handler(TestHandler::new(Box::new(move |_, key| (answer(key.get(Field::RecircId)), Some(pass_mask())))));
        for _ in 0..5 {
            a.receive(&numbered_frame(1, 60));
            dp.run_until_idle(10);
        }
        assert_eq!(b.sent().len(), 5 - drops);
        let expected: &[_] = if drops > 0 { &[(DropReason::Recirculation, drops as u64)] } else { &[] };
        assert_eq!(dp.drops(), expected);
        let result = dp.execute(DpPort(1), Packet::from_slice(&numbered_frame(1, 60)), &only(DpAction::Recirc(1)));
        assert_eq!(result.is_ok(), drops == 0, "{result:?}");
    }
}

/// A group of type all in which each bucket recirculates its copy: every pass makes seven copies of one packet.
#[test]
fn recirculated_copies_are_bounded() {
    const BUCKETS: u32 = 7;
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    let copies: Vec<DpAction> = (0..BUCKETS).map(|n| DpAction::Clone(only(DpAction::Recirc(1 + n)))).collect();
    dp.set_handler(TestHandler::new(Box::new(move |_, _| {
        let list = [&[out(2)][..], &copies].concat();
        (list.into(), Some(pass_mask()))
    })));
    for n in 0..3 {
        a.receive(&numbered_frame(n, 60));
        dp.run_until_idle(10);
        let sent = b.sent().len() as u64;
        let stats = dp.thread_stats().remove(0);
        // Each received packet may recirculate 4096 times; further recirculations are counted as drops.
        assert_eq!(sent, 4097, "{stats:?}");
        let drops = dp.drops();
        assert!(matches!(drops[..], [(DropReason::Recirculation, _)]), "{drops:?}");
    }
}

/// Keys of later passes contain the metadata that actions set: those of the packet, of its copies, and of a packet
/// that waited for an upcall. They contain no other packet's metadata.
#[test]
fn metadata_survives_recirculation() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    let set = |field, value, mask| DpAction::Set { field, value, mask };
    let all = u128::from(u32::MAX);
    let lists = [
        vec![
            set(Field::PktMark, 0x1234, all),
            set(Field::SkbPriority, 0x10001, all),
            DpAction::Clone(only(DpAction::Recirc(1))),
            set(Field::PktMark, 0xff00, 0xff00),
            DpAction::Recirc(2),
        ],
        vec![set(Field::PktMark, 0, all), set(Field::SkbPriority, 0, all), DpAction::Recirc(3)],
        vec![out(2)],
        vec![out(2)],
    ];
    dp.set_handler(TestHandler::new(Box::new(move |_, key| {
        let id = key.get(Field::RecircId) as usize;
        let expected = [(0, 0), (0x1234, 0x10001), (0xff34, 0x10001), (0, 0)][id];
        assert_eq!((key.get(Field::PktMark), key.get(Field::SkbPriority)), expected, "pass {id}");
        let mut mask = pass_mask();
        mask.add_mask(Field::PktMark, u32::MAX.into());
        mask.add_mask(Field::SkbPriority, u32::MAX.into());
        (lists[id].clone().into(), Some(mask))
    })));
    for n in 0..40 {
        a.receive(&numbered_frame(n, 60));
        dp.run_until_idle(10);
    }
    let sent = b.sent();
    assert_eq!(sent.len(), 80);
    let of = |p: &Packet| p.metadata().map_or((0, 0), |known| (known.pkt_mark, known.skb_priority));
    assert_eq!(sent.iter().filter(|p| of(p) == (0xff34, 0x10001)).count(), 40);
    assert_eq!(dp.drops(), []);
    assert_eq!((dp.stats().missed, dp.stats().flows), (4, 4));
}
