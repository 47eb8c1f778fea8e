//! Packets that pass through the datapath several times, stepped by the test.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::rng::Rng;
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

/// A frame of some form with addresses and ports from `n`: UDP over IPv4, tagged or labelled, UDP over IPv6, or ARP.
fn frame_of(form: u64, n: u32) -> Vec<u8> {
    let [a, b, c, d] = n.to_be_bytes();
    let udp = [4, d, 0, 53, 0, 8, 0, 0];
    let v4 = [&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, a, b, c, 11, 0, 0, d][..], &udp].concat();
    let v6 = [&[0x60, 0, 0, 0, 0, 8, 17, 64, 0xfd][..], &[a, b, c, d], &[0; 27], &udp].concat();
    let payload = match form {
        0 => [&[8, 0][..], &v4].concat(),
        1 => [&[0x81, 0, 0, 5, 8, 0][..], &v4].concat(),
        2 => [&[0x86, 0xdd][..], &v6].concat(),
        3 => [&[0x88, 0x47, 0, 1, 1, 64][..], &v4].concat(),
        _ => [&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1][..], &[2; 6], &[10, a, b, c], &[0; 6], &[11, 0, 0, d]].concat(),
    };
    let mut frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, d][..], &payload].concat();
    frame.resize(64, 0);
    frame
}

/// A batch whose list of actions only hashes and recirculates keeps its keys for the next pass. They are those of the
/// packets then, whatever their forms, in look-ups and in upcalls, beside packets that are changed or leave the batch.
#[test]
fn keys_that_are_kept_are_those_of_the_next_pass() {
    const FIRST: u32 = 7;
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    let hash_of = |key: &flow::FlowKey| flow::hash::symmetric_l4(key, 3);
    // Labelled packets lose their label in the second pass, and ARP goes no further, if the round says so.
    let is_mixed = Arc::new(AtomicBool::new(false));
    let mixed = Arc::clone(&is_mixed);
    let handler = TestHandler::new(Box::new(move |_, key| {
        let (id, mut mask) = (key.get(Field::RecircId), pass_mask());
        let again = |kind, basis, id| vec![DpAction::Hash(kind, basis), DpAction::Recirc(id)];
        let mut expected = key.clone();
        let list = match id {
            0 => {
                // Received packets have no hash.
                mask.add_mask(Field::DpHash, u32::MAX.into());
                expected.set(Field::DpHash, 0);
                again(HashKind::L4, 1, FIRST)
            }
            7 => {
                expected.set(Field::DpHash, flow::hash::l4(key, 1).into());
                match key.eth_type() {
                    0x8847 if mixed.load(Ordering::Relaxed) => {
                        let mut list = again(HashKind::SymmetricL4, 3, 8);
                        list.insert(0, DpAction::PopMpls { ethertype: 0x800 });
                        list
                    }
                    0x806 if mixed.load(Ordering::Relaxed) => vec![DpAction::Drop(DropReason::Action)],
                    _ => again(HashKind::SymmetricL4, 3, 8),
                }
            }
            id => {
                assert_eq!(id, 8);
                mask.add_mask(Field::DpHash, u32::MAX.into());
                expected.set(Field::DpHash, hash_of(key).into());
                vec![out(1 + hash_of(key) % 2)]
            }
        };
        assert_eq!(*key, expected, "pass {id}");
        (list.into(), Some(mask))
    }));
    dp.set_handler(handler.clone());
    let mut rng = Rng::seeded(4);
    let (mut sent, rounds) = (0, 400);
    for round in 0..rounds {
        is_mixed.store(round >= rounds / 2, Ordering::Relaxed);
        if round == rounds / 2 {
            dp.set_generation(1);
            handler.generation.store(1, Ordering::SeqCst);
        }
        let forms = 1 + rng.below(5);
        let frames: Vec<_> = (0..=rng.below(40)).map(|_| frame_of(rng.below(forms), rng.below(60) as u32)).collect();
        let mut expected = [const { Vec::new() }; 2];
        for frame in &frames {
            let mut last = frame.clone();
            match frame[12..14] {
                [0x88, 0x47] if is_mixed.load(Ordering::Relaxed) => {
                    last.drain(14..18);
                    last[12..14].copy_from_slice(&[8, 0]);
                }
                [8, 6] if is_mixed.load(Ordering::Relaxed) => continue,
                _ => {}
            }
            let hash = hash_of(&flow::extract(&last, base::PortNo(1)).0);
            expected[hash as usize % 2].push(last);
        }
        expected.iter_mut().for_each(|frames| frames.sort());
        // The second time, each pass of each packet finds its flow.
        for time in 0..2 {
            let misses = || dp.thread_stats().remove(0).misses;
            let before = misses();
            frames.iter().for_each(|frame| a.receive(frame));
            dp.run_until_idle(10);
            for (port, expected) in [&a, &b].into_iter().zip(&expected) {
                let mut got: Vec<_> = port.sent().iter().map(|packet| packet.data().to_vec()).collect();
                got.sort();
                assert_eq!(got, *expected, "round {round}");
                sent += got.len();
            }
            assert!(time == 0 || misses() == before, "round {round}");
        }
    }
    tally::report!("{rounds} rounds, {sent} packets sent");
}

/// Packets that recirculate too often leave keys behind, which packets after them do not take for theirs.
#[test]
fn keys_of_dropped_packets_are_not_kept() {
    const BATCH: usize = 8;
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    dp.set_handler(TestHandler::new(Box::new(|_, key| {
        let (is_first, mut mask) = (key.get(Field::RecircId) == 0, pass_mask());
        if !is_first {
            mask.add_mask(Field::EthSrc, 0xff);
        }
        let recirculates = is_first || key.get(Field::EthSrc) & 0xff == 1;
        (only(if recirculates { DpAction::Recirc(7) } else { out(2) }), Some(mask))
    })));
    let send = |n: u32| {
        (0..BATCH).for_each(|_| a.receive(&frame_of(0, n)));
        dp.run_until_idle(10);
        b.sent().len()
    };
    // The last-flow cache knows the first pass after some batches.
    (0..20).for_each(|_| assert_eq!((send(1), send(2)), (0, BATCH)));
    assert_eq!(dp.drops(), [(DropReason::Recirculation, 20 * BATCH as u64)]);
}
