//! Forwarding through a whole datapath, stepped by the test: without threads and waiting.

mod common;

use std::sync::{Arc, atomic::Ordering};

use base::{Clock, DpPort, DropReason, MacAddr};
use common::{TestHandler, TestPort, numbered_frame, only, out, plain_mask, stepped, two_ports};
use datapath::{Config, Datapath};
use dpif::{
    BandKind, Collectors, ControllerUpcall, DpAction, DpActions, DpFlow, Dpif, DpifError, FlowId, MeterBand,
    MeterConfig, MeterUnit, Meters, Observe, Protocol, Punt,
};
use flow::{Field, FlowKey};
use packet::checksum::{Verdict, verify};
use packet::wire::{EthernetRepr, Ipv4Repr, TcpRepr};
use packet::{Checksum, Gso, GsoKind, Packet};
use parking_lot::Mutex;

fn number_at(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(frame[at..at + 4].try_into().expect("4 bytes"))
}

#[test]
fn ten_thousand_packets_with_vlans_flooded() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    let c = TestPort::new("c");
    dp.port_add(c.clone(), None).expect("opens");
    // From port 1 to port 2 with a tag and to port 3 without; odd frames arrive tagged.
    let handler = TestHandler::new(Box::new(|_, key| {
        let mut actions = Vec::new();
        if key.vlan_tci() != 0 {
            actions.push(DpAction::PopVlan);
        }
        actions.push(DpAction::Output(DpPort(3)));
        actions.push(DpAction::PushVlan { tpid: 0x8100, tci: 0x1007 });
        actions.push(DpAction::Output(DpPort(2)));
        (actions.into(), Some(plain_mask()))
    }));
    dp.set_handler(handler.clone());
    for n in 0..10_000 {
        let mut p = Packet::from_slice(&numbered_frame(n, 60 + n as usize % 1000));
        if n % 2 == 1 {
            p.insert(12, 4).copy_from_slice(&[0x81, 0, 0, 9]);
        }
        a.receive_packet(p);
    }
    assert_eq!(dp.run_until_idle(1000), 10_000);

    let (tagged, plain) = (b.sent(), c.sent());
    assert_eq!((tagged.len(), plain.len()), (10_000, 10_000));
    let mut seen = vec![false; 10_000];
    for (t, p) in tagged.iter().zip(&plain) {
        let n = number_at(p.data(), 14);
        assert_eq!(p.data(), numbered_frame(n, 60 + n as usize % 1000));
        assert_eq!(t.data()[12..16], [0x81, 0, 0, 7]);
        assert_eq!((&t.data()[..12], &t.data()[16..]), (&p.data()[..12], &p.data()[12..]));
        assert!(!std::mem::replace(&mut seen[n as usize], true));
    }
    // Within each of the two flows, the order is kept.
    for odd in [0, 1] {
        let of_flow = plain.iter().map(|p| number_at(p.data(), 14)).filter(|n| n % 2 == odd);
        assert!(of_flow.is_sorted());
    }
    let stats = dp.stats();
    assert_eq!((stats.hit, stats.missed, stats.lost, stats.flows, stats.masks), (9998, 2, 0, 2, 1));
    let entries = dp.flow_dump();
    assert_eq!(entries.iter().map(|e| e.stats.packets).sum::<u64>(), 9998);
    assert!(entries.iter().all(|e| e.stats.used.is_some()));
    assert_eq!(dp.port_stats(DpPort(1)).map(|s| s.rx_packets).ok(), Some(10_000));
    assert_eq!(dp.port_stats(DpPort(2)).map(|s| s.tx_packets).ok(), Some(10_000));
    assert_eq!(dp.drops(), []);
    assert_eq!(dp.thread_stats()[0].packets, 10_000);
}

#[test]
fn a_change_of_generation_ends_old_flows() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    let old = TestHandler::always(vec![DpAction::Output(DpPort(2))]);
    dp.set_handler(old.clone());
    a.receive(&numbered_frame(1, 60));
    a.receive(&numbered_frame(2, 60));
    dp.run_until_idle(10);
    assert_eq!((b.sent().len(), old.misses.load(Ordering::Relaxed)), (2, 1));

    let new = TestHandler::always(vec![DpAction::Drop(DropReason::VlanMismatch)]);
    new.generation.store(7, Ordering::SeqCst);
    new.next_id.store(100, Ordering::SeqCst);
    dp.set_generation(7);
    dp.set_handler(new.clone());
    for n in 0..100 {
        a.receive(&numbered_frame(n, 60));
    }
    dp.run_until_idle(10);
    assert_eq!((b.sent().len(), new.misses.load(Ordering::Relaxed)), (0, 1));
    assert_eq!(dp.drops(), [(DropReason::VlanMismatch, 100)]);
    // The old flow was replaced, as the new one has its key and mask, and its statistics were reported.
    let gone = new.gone.lock().clone();
    assert_eq!(gone.iter().map(|(_, s)| s.packets).collect::<Vec<_>>(), [1]);
    assert_eq!(dp.stats().flows, 1);
}

#[test]
fn drops_are_counted_by_reason_and_port() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    a.receive(&numbered_frame(0, 60));
    dp.run_until_idle(10);
    assert_eq!((dp.drops(), dp.stats().lost), (vec![(DropReason::UpcallQueueFull, 1)], 1));

    dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(9)), DpAction::Output(DpPort(2))]));
    a.receive(&[1, 2, 3]);
    a.receive(&numbered_frame(1, 1515));
    a.receive(&numbered_frame(2, 1514));
    let mut large = Packet::from_slice(&numbered_frame(3, 9000));
    large.offload.gso = Some(Gso { kind: GsoKind::TcpV4, size: 1448, ecn: false });
    a.receive_packet(large);
    dp.run_until_idle(10);
    assert_eq!(b.sent().iter().map(Packet::len).collect::<Vec<_>>(), [1514, 9000]);
    let drops = dp.port_stats(DpPort(1)).expect("there").rx_drops;
    let expected = [
        (DropReason::Malformed, 1),
        (DropReason::TooBig, 1),
        (DropReason::NoPort, 3),
        (DropReason::UpcallQueueFull, 1),
    ];
    assert_eq!(drops, expected);

    netdev::Netdev::set_mtu(&*b, 9000).expect("settable");
    let big = Packet::from_slice(&numbered_frame(5, 9014));
    dp.execute(DpPort(1), big, &only(DpAction::Output(DpPort(2)))).expect("sent");
    assert_eq!(b.sent().len(), 1);
}

#[test]
fn floods_reach_ports_that_are_up_and_count_drops_at_others() {
    let dp = stepped();
    let (a, _) = two_ports(&dp);
    let ports: Vec<_> = (3..7).map(|n| TestPort::new(&format!("p{n}"))).collect();
    for (port, number) in ports.iter().zip(3..) {
        dp.port_add(port.clone(), Some(DpPort(number))).expect("added");
    }
    dp.set_handler(TestHandler::always(
        [vec![DpAction::PushVlan { tpid: 0x8100, tci: 7 }], (3..7).map(out).collect()].concat(),
    ));
    // The first flood opens the devices.
    a.receive(&numbered_frame(0, 60));
    dp.run_until_idle(10);
    let mut dropped = [0; 4];
    for down in 0u32..16 {
        for (n, port) in ports.iter().enumerate() {
            port.down.store(down >> n & 1 != 0, Ordering::Relaxed);
            port.sent();
        }
        let frames: Vec<_> = (0..20).map(|n| numbered_frame(n, 60 + n as usize)).collect();
        frames.iter().for_each(|frame| a.receive(frame));
        dp.run_until_idle(10);
        for (n, port) in ports.iter().enumerate() {
            let is_down = down >> n & 1 != 0;
            dropped[n] += if is_down { 20 } else { 0 };
            let sent = port.sent();
            let lens: Vec<_> = sent.iter().map(Packet::len).collect();
            let expected = if is_down { vec![] } else { (64..84).collect() };
            assert_eq!(lens, expected, "port {n} of {down:b}");
            assert!(sent.iter().zip(&frames).all(|(p, frame)| p.data()[16..] == frame[12..]));
            let drops = dp.port_stats(DpPort(3 + n as u32)).expect("there").tx_drops;
            assert_eq!(drops.iter().map(|(_, n)| n).sum::<u64>(), dropped[n]);
        }
    }
    assert_eq!(dp.drops(), [(DropReason::PortDown, dropped.iter().sum())]);
}

fn to_controller() -> ControllerUpcall {
    ControllerUpcall {
        bridge: 0,
        table: 0,
        cookie: 0,
        reason: 0,
        max_len: 0xffff,
        controller_id: 0,
        userdata: Vec::new(),
        table_miss: false,
        in_port: base::PortNo(1),
        recirc_id: 0,
        pauses: false,
        dont_send: false,
        metadata: FlowKey::ZERO,
    }
}

/// A datapath with ports 1 and 2 and a handler that replies to misses without actions.
fn with_a_handler() -> (Datapath, (Arc<TestPort>, Arc<TestPort>), Arc<TestHandler>) {
    let dp = stepped();
    let ports = two_ports(&dp);
    let handler = TestHandler::always(vec![]);
    dp.set_handler(handler.clone());
    (dp, ports, handler)
}

#[test]
fn execute_trunc_clone_and_controller() {
    let (dp, (a, b), handler) = with_a_handler();
    let what = Arc::new(to_controller());
    let actions: DpActions = Arc::new([
        DpAction::Trunc(20),
        DpAction::Output(DpPort(1)),
        DpAction::Clone(Arc::new([
            DpAction::Set { field: Field::EthDst, value: 0x0102_0304_0506, mask: u128::MAX },
            DpAction::Output(DpPort(2)),
            DpAction::Controller(what),
        ])),
        DpAction::Output(DpPort(2)),
    ]);
    let frame = numbered_frame(1, 60);
    dp.execute(DpPort(1), Packet::from_slice(&frame), &actions).expect("executed");
    assert_eq!(a.sent().iter().map(|p| p.data().to_vec()).collect::<Vec<_>>(), [frame[..20].to_vec()]);
    let sent = b.sent();
    assert_eq!((sent[0].data()[..6].to_vec(), sent[1].data()), (vec![1, 2, 3, 4, 5, 6], &frame[..]));
    assert_eq!(handler.packet_ins.lock()[0].1, sent[0].data());
    assert_eq!(dp.drops(), []);

    // An empty list is an intended drop; a missing port is an error.
    dp.execute(DpPort::NONE, Packet::from_slice(&frame), &DpActions::from([])).expect("the drop is intended");
    let nowhere = dp.execute(DpPort(1), Packet::from_slice(&frame), &only(DpAction::Output(DpPort(77))));
    assert!(matches!(nowhere, Err(DpifError::Dropped(DropReason::NoPort))));
    assert_eq!(dp.drops(), [(DropReason::Action, 1), (DropReason::NoPort, 1)]);
}

/// A packet with that much TCP payload and a partial checksum.
fn partial_packet(payload: u16) -> Packet {
    let mut frame = Vec::new();
    EthernetRepr { ethertype: 0x800, ..EthernetRepr::default() }.emit(&mut frame);
    Ipv4Repr { proto: 6, ttl: 9, ..Ipv4Repr::default() }.emit(20 + usize::from(payload), &mut frame);
    TcpRepr::default().emit(&mut frame);
    frame.extend(std::iter::repeat_n(5, payload.into()));
    let pseudo = packet::checksum::pseudo_v4([0; 4], [0; 4], 6, 20 + payload).partial();
    frame[50..52].copy_from_slice(&pseudo.to_be_bytes());
    let mut packet = Packet::from_slice(&frame);
    packet.offload.checksum = Checksum::Partial { start: 34, offset: 16 };
    packet
}

/// A GSO packet with 2500 bytes of TCP payload, which has three segments.
fn gso_packet() -> Packet {
    let mut large = partial_packet(2500);
    large.offload.gso = Some(Gso { kind: GsoKind::TcpV4, size: 1000, ecn: false });
    large
}

#[test]
fn gso_packets_are_segmented_before_labels_are_pushed() {
    let dp = stepped();
    let (_, b) = two_ports(&dp);
    let large = gso_packet();
    let push = DpAction::PushMpls { ethertype: 0x8847, lse: 0x5140 };
    let actions = [
        push.clone(),
        DpAction::Output(DpPort(2)),
        DpAction::PopMpls { ethertype: 0x800 },
        DpAction::Output(DpPort(2)),
    ];
    dp.execute(DpPort(1), large, &actions.into()).expect("sent");
    let sent = b.sent();
    let lens: Vec<usize> = sent.iter().map(Packet::len).collect();
    assert_eq!(lens, [1058, 1058, 558, 1054, 1054, 554]);
    assert!(sent[..3].iter().all(|p| p.data()[12..18] == [0x88, 0x47, 0, 0, 0x51, 0x40] && p.offload.gso.is_none()));
    assert!(sent[3..].iter().all(|p| verify(p.data()) == Verdict::Good));

    // Invalid offload flags.
    let mut odd = Packet::from_slice(&numbered_frame(1, 60));
    odd.offload.gso = Some(Gso { kind: GsoKind::TcpV4, size: 1000, ecn: false });
    let result = dp.execute(DpPort(1), odd, &[push.clone(), DpAction::Output(DpPort(2))].into());
    assert!(matches!(result, Err(DpifError::Dropped(DropReason::TooBig))));
    let short = Packet::from_slice(&[0; 13]);
    let result = dp.execute(DpPort(1), short, &[push, DpAction::Output(DpPort(2))].into());
    assert!(matches!(result, Err(DpifError::Dropped(DropReason::Truncated))));
    assert_eq!(dp.drops(), [(DropReason::Truncated, 1), (DropReason::TooBig, 1)]);
}

/// Otherwise neither the host nor a segmenting device could send them back.
#[test]
fn controllers_get_the_segments_of_large_packets() {
    let (dp, (_, b), handler) = with_a_handler();
    dp.execute(DpPort(1), gso_packet(), &only(DpAction::Controller(Arc::new(to_controller())))).expect("goes up");
    let ins = std::mem::take(&mut *handler.packet_ins.lock());
    assert_eq!(ins.iter().map(|(_, frame)| frame.len()).collect::<Vec<_>>(), [1054, 1054, 554]);
    for (_, frame) in ins {
        assert_eq!(verify(&frame), Verdict::Good);
        dp.execute(DpPort(1), Packet::from_slice(&frame), &only(out(2))).expect("fits the wire");
    }
    assert_eq!(b.sent().len(), 3);
    assert_eq!(dp.drops(), []);
}

/// Sends packets of these lengths through `actions`, as one batch from port 1.
fn batch_through(dp: &Datapath, port: &TestPort, actions: &[DpAction], lens: &[usize]) {
    let (mut key, mask) = (FlowKey::ZERO, FlowKey::mask_of(Field::InPortOxm));
    key.set(Field::InPortOxm, 1);
    dp.flow_put(FlowId(1), DpFlow::by_hand(&key, &mask, actions.into(), 0)).expect("room");
    lens.iter().for_each(|n| port.receive(&numbered_frame(*n as u32, *n)));
    dp.run_until_idle(1000);
}

fn lens(port: &TestPort) -> Vec<usize> {
    port.sent().iter().map(Packet::len).collect()
}

#[test]
fn check_pkt_len_splits_a_batch() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    let out = |n| DpAction::Output(DpPort(n));
    let push = DpAction::PushVlan { tpid: 0x8100, tci: 0x1007 };
    let check = |greater: &[DpAction], lesser: &[DpAction]| DpAction::CheckPktLen {
        size: 100,
        greater: greater.into(),
        lesser: lesser.into(),
    };
    let frames = [99, 100, 101, 102, 100];
    // Behind the check, packets are unchanged.
    batch_through(&dp, &a, &[check(&[push.clone(), out(1)], &[out(2)]), out(2)], &frames);
    assert_eq!((lens(&a), lens(&b)), (vec![105, 106], vec![99, 100, 100, 99, 100, 101, 102, 100]));
    assert_eq!(dp.drops(), []);
    // Longer packets and tagged ones are dropped.
    batch_through(&dp, &a, &[check(std::slice::from_ref(&push), &[out(2)])], &frames);
    assert_eq!((lens(&b), dp.drops()), (vec![99, 100, 100], vec![(DropReason::Action, 2)]));
    batch_through(&dp, &a, &[push.clone(), DpAction::Clone([check(&[], &[out(2)])].into())], &frames);
    assert_eq!((lens(&b), dp.drops()), (vec![], vec![(DropReason::Action, 7)]));
    // An earlier or later action sends them.
    batch_through(&dp, &a, &[out(2), check(&[], &[])], &frames);
    batch_through(&dp, &a, &[check(&[], &[]), out(2)], &frames);
    assert_eq!((lens(&b).len(), dp.drops()), (10, vec![(DropReason::Action, 7)]));
}

#[test]
fn sample_selects_packets_at_random() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    let sample = |probability| DpAction::Sample { probability, actions: [DpAction::Output(DpPort(2))].into() };
    let count = |actions: &[DpAction]| {
        batch_through(&dp, &a, actions, &vec![60; 3200]);
        let chosen = b.sent().len();
        (chosen, a.sent().len(), dp.drops().iter().map(|(_, n)| n).sum::<u64>())
    };
    assert_eq!(count(&[sample(0), DpAction::Output(DpPort(1))]), (0, 3200, 0));
    assert_eq!(count(&[sample(u32::MAX)]), (3200, 0, 0));
    // Within six standard deviations.
    let (chosen, others, _) = count(&[sample(u32::MAX / 4), DpAction::Output(DpPort(1))]);
    assert!(chosen.abs_diff(800) < 147 && others == 3200, "{chosen}");
    let (chosen, _, dropped) = count(&[sample(u32::MAX / 2)]);
    assert!(chosen.abs_diff(1600) < 170 && dropped == 3200 - chosen as u64, "{chosen}");
}

#[test]
fn observed_packets_are_reported_and_still_forwarded() {
    let (dp, (a, b), handler) = with_a_handler();
    let (collectors, output) = (Collectors::Bridge, Some(DpPort(2)));
    let what = Observe { bridge: 1, collectors, output, tunnel: None, forwarded: true };
    let observe = DpAction::Observe(what.clone().into());
    let observed = || std::mem::take(&mut *handler.observed.lock());
    batch_through(&dp, &a, &[observe.clone(), DpAction::Output(DpPort(2))], &[60, 70]);
    assert_eq!(lens(&b), [60, 70]);
    assert_eq!(observed(), [(DpPort(1), what.clone(), 60), (DpPort(1), what.clone(), 70)]);
    // A report does not count as output.
    let sample = |probability| DpAction::Sample { probability, actions: [observe.clone()].into() };
    batch_through(&dp, &a, &[sample(u32::MAX)], &[80]);
    assert_eq!((lens(&b).len(), dp.drops(), observed().len()), (0, vec![(DropReason::Action, 1)], 1));
    batch_through(&dp, &a, &[sample(u32::MAX / 4), DpAction::Output(DpPort(2))], &vec![60; 3200]);
    let chosen = observed().len();
    assert!(chosen.abs_diff(800) < 147 && lens(&b).len() == 3200, "{chosen}");
    // A GSO packet is reported by segments.
    dp.execute(DpPort(1), gso_packet(), &[observe, DpAction::Output(DpPort(2))].into()).expect("sent");
    assert_eq!(observed().iter().map(|(_, _, len)| *len).collect::<Vec<_>>(), [1054, 1054, 554]);
    assert_eq!(lens(&b), [2554]);
}

#[test]
fn each_packet_of_a_slow_flow_is_translated() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    // Without a handler nothing translates.
    batch_through(&dp, &a, &[DpAction::SlowPath], &[60]);
    assert_eq!((lens(&b).len(), dp.drops()), (0, vec![(DropReason::UpcallQueueFull, 1)]));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keys = Arc::clone(&seen);
    dp.set_handler(TestHandler::new(Box::new(move |port, key| {
        keys.lock().push((port, key.get(Field::RecircId)));
        // Packets that return are dropped.
        let actions = if key.get(Field::RecircId) == 0 { vec![out(2), DpAction::Recirc(5)] } else { vec![] };
        (actions.into(), None)
    })));
    batch_through(&dp, &a, &[DpAction::SlowPath], &[60, 70]);
    assert_eq!(lens(&b), [60, 70]);
    let one = |recirc_id| (DpPort(1), recirc_id);
    assert_eq!(*seen.lock(), [one(0), one(0), one(5), one(5)]);
    assert!(dp.drops().contains(&(DropReason::Action, 2)), "{:?}", dp.drops());
}

#[test]
fn punted_packets_reach_the_protocol_or_are_counted() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    let handler = TestHandler::always(vec![]);
    let punt = DpAction::Punt(Punt::to(Protocol::LLDP));
    // Without a handler there is no protocol.
    batch_through(&dp, &a, std::slice::from_ref(&punt), &[60]);
    assert_eq!(dp.drops(), [(DropReason::NoProtocol, 1)]);
    dp.set_handler(handler.clone());
    let punted = || std::mem::take(&mut *handler.punted.lock());
    let punted_lens = || punted().iter().map(|(port, by, frame)| (*port, *by, frame.len())).collect::<Vec<_>>();
    batch_through(&dp, &a, &[punt.clone(), DpAction::Output(DpPort(2))], &[60, 70]);
    assert_eq!(lens(&b), [60, 70]);
    assert_eq!(punted_lens(), [(DpPort(1), Protocol::LLDP, 60), (DpPort(1), Protocol::LLDP, 70)]);
    // An accepted packet is not dropped; a refused one is.
    batch_through(&dp, &a, std::slice::from_ref(&punt), &[60]);
    assert_eq!(dp.drops(), [(DropReason::NoProtocol, 1)]);
    *handler.punt_says.lock() = Err(DropReason::ProtocolQueueFull);
    batch_through(&dp, &a, &[DpAction::Clone([punt.clone()].into()), DpAction::Output(DpPort(2))], &[60; 3]);
    assert_eq!((lens(&b).len(), dp.drops().first()), (3, Some(&(DropReason::ProtocolQueueFull, 3))));
    assert_eq!(dp.port_stats(DpPort(1)).expect("there").rx_drops.first(), Some(&(DropReason::ProtocolQueueFull, 3)));
    // A frame that takes the place of another port's is a drop of that port.
    *handler.punt_says.lock() = Ok(Some(DpPort(2)));
    batch_through(&dp, &a, std::slice::from_ref(&punt), &[60]);
    assert_eq!(dp.port_stats(DpPort(2)).expect("there").rx_drops, [(DropReason::ProtocolQueueFull, 1)]);
    assert_eq!(dp.drops().first(), Some(&(DropReason::ProtocolQueueFull, 4)));
    *handler.punt_says.lock() = Ok(Some(DpPort(77)));
    batch_through(&dp, &a, std::slice::from_ref(&punt), &[60]);
    assert_eq!(dp.drops().first(), Some(&(DropReason::ProtocolQueueFull, 5)));
}

#[test]
fn punted_frames_are_complete() {
    let (dp, (_, b), handler) = with_a_handler();
    let punted = || std::mem::take(&mut *handler.punted.lock()).into_iter().map(|(_, _, f)| f).collect::<Vec<_>>();
    let punt = DpAction::Punt(Punt::to(Protocol::LLDP));
    let is_complete = |frame: &Vec<u8>| verify(frame) == Verdict::Good;
    // A GSO packet is punted by segments.
    dp.execute(DpPort(1), gso_packet(), &[punt.clone()].into()).expect("queued");
    let segments = punted();
    assert_eq!(segments.iter().map(Vec::len).collect::<Vec<_>>(), [1054, 1054, 554]);
    assert!(segments.iter().all(is_complete));
    // A partial checksum is completed for the protocol, and left to the device for the other output.
    let mut partial = partial_packet(100);
    dp.execute(DpPort(1), partial.clone(), &[punt.clone(), DpAction::Output(DpPort(2))].into()).expect("queued");
    let whole = punted();
    assert!(whole.len() == 1 && is_complete(&whole[0]) && !is_complete(&partial.data().to_vec()));
    assert_eq!(b.sent()[0].offload, partial.offload);
    // Flags that do not fit the frame.
    partial.offload.checksum = Checksum::Partial { start: 34, offset: 60_000 };
    let result = dp.execute(DpPort(1), partial, &[punt].into());
    assert!(matches!(result, Err(DpifError::Dropped(DropReason::Malformed))));
    assert_eq!((punted().len(), dp.drops()), (0, vec![(DropReason::Malformed, 1)]));
}

#[test]
fn meters_drop_and_count() {
    let clock = Clock::stopped();
    let dp = Datapath::new(Config { threads: 0, ..Config::default() }, clock.clone()).expect("no thread to start");
    let (a, b) = two_ports(&dp);
    let drop = MeterBand { kind: BandKind::Drop, rate: 100, burst: 20 };
    let id = dp.meter_add(&MeterConfig { unit: MeterUnit::Pktps, bands: vec![drop] }).expect("room");
    let out = |n| DpAction::Output(DpPort(n));
    // Before the meter all packets are sent, behind it those that pass.
    let actions = [out(1), DpAction::Meter(id), out(2)];
    batch_through(&dp, &a, &actions, &[60; 30]);
    assert_eq!((a.sent().len(), b.sent().len()), (30, 20));
    clock.warp(50);
    batch_through(&dp, &a, &actions, &[60; 30]);
    assert_eq!((a.sent().len(), b.sent().len()), (30, 5));
    assert_eq!(dp.drops(), [(DropReason::Meter, 35)]);
    assert_eq!(dp.port_stats(DpPort(1)).expect("there").rx_drops, [(DropReason::Meter, 35)]);
    // A meter in a clone does not affect the packet.
    batch_through(&dp, &a, &[DpAction::Clone([DpAction::Meter(id), out(1)].into()), out(2)], &[60; 2]);
    assert_eq!((a.sent().len(), b.sent().len(), dp.drops()), (0, 2, vec![(DropReason::Meter, 37)]));
    // Packets for upcalls.
    clock.warp(10);
    let mut batch = vec![Packet::from_slice(&numbered_frame(1, 60)); 2];
    dp.meter_run(id, &mut batch);
    assert_eq!((batch.len(), dp.drops()), (1, vec![(DropReason::Meter, 38)]));
    let (_, stats) = dp.meter_get(id).expect("there");
    assert_eq!((stats.input.packets, stats.input.bytes, stats.bands[0].packets), (64, 64 * 60, 38));
    // A meter that does not exist passes all packets.
    assert_eq!(dp.meter_del(id).expect("there"), stats);
    batch_through(&dp, &a, &actions, &[60; 30]);
    assert_eq!((a.sent().len(), b.sent().len()), (30, 30));
    assert!(matches!(dp.meter_get(id), Err(DpifError::NoMeter)));
}

#[test]
fn only_frames_leave() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    let out = |n| DpAction::Output(DpPort(n));
    let push = DpAction::PushEth { dst: MacAddr([9; 6]), src: MacAddr([8; 6]) };
    let frame = numbered_frame(60, 60);
    let framed = [&[9; 6], &[8; 6], &frame[12..]].concat();
    batch_through(
        &dp,
        &a,
        &[out(1), DpAction::PopEth, DpAction::Clone([push.clone(), out(2)].into()), out(1)],
        &[60; 3],
    );
    assert!(a.sent().iter().map(Packet::data).eq([&frame[..]; 3]));
    assert!(b.sent().iter().map(Packet::data).eq([&framed[..]; 3]));
    assert_eq!(dp.drops(), [(DropReason::NoEthernet, 3)]);
    // A set field of the removed header has no effect; truncated packets are no frames.
    let set = DpAction::Set { field: Field::EthDst, value: 7, mask: u128::MAX };
    let labelled = DpAction::AddMpls { ethertype: 0x8847, lse: 0x5140 };
    let actions = [labelled, set, DpAction::Trunc(20), out(1), push, DpAction::Trunc(30), out(2)];
    batch_through(&dp, &a, &actions, &[60]);
    let expected = [&[9; 6], &[8; 6], &[0x88, 0x47, 0, 0, 0x51, 0x40][..], &frame[..12]].concat();
    assert!(a.sent().is_empty() && b.sent().iter().map(Packet::data).eq([&expected[..]]));
    assert_eq!(dp.drops(), [(DropReason::NoEthernet, 4)]);
    // A packet that arrives without an Ethernet header.
    let mut packet = Packet::from_slice(&[0x45; 40]);
    packet.l3_type = Some(0x800);
    let result = dp.execute(DpPort(1), packet, &only(out(2)));
    assert!(matches!(result, Err(DpifError::Dropped(DropReason::NoEthernet))));
}

#[test]
fn ttls_are_copied() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    let ip = Ipv4Repr { src: 1, dst: 2, proto: 99, tos: 0, ttl: 64, id: 0, flags_offset: 0 };
    let mut payload = Vec::new();
    ip.emit(6, &mut payload);
    payload.extend([7; 6]);
    let labelled = |lse: u32, rest: &[u8]| [&[1; 12], &[0x88, 0x47][..], &lse.to_be_bytes(), rest].concat();
    let sent = |frame: &[u8], outwards| {
        dp.set_handler(TestHandler::always(vec![DpAction::CopyTtl { outwards }, DpAction::Output(DpPort(2))]));
        dp.set_generation(dp.stats().missed + 2);
        a.receive(frame);
        dp.run_until_idle(10);
        b.sent().iter().map(|p| p.data().to_vec()).next().expect("one")
    };
    let last = 5 << 12 | 0x100;
    assert_eq!(sent(&labelled(last | 9, &payload), true), labelled(last | 64, &payload));
    let mut lower = Vec::new();
    Ipv4Repr { ttl: 9, ..ip }.emit(6, &mut lower);
    lower.extend([7; 6]);
    assert_eq!(sent(&labelled(last | 9, &payload), false), labelled(last | 9, &lower));
    let two = |ttl: u32| labelled(5 << 12 | ttl, &(last | 3).to_be_bytes());
    assert_eq!(sent(&two(9), true), two(3));
    for frame in [labelled(last | 9, &[0x10; 30]), labelled(last | 9, &[]), numbered_frame(1, 60)] {
        assert_eq!((sent(&frame, true), sent(&frame, false)), (frame.clone(), frame));
    }
}

#[test]
fn ports_are_added_and_removed() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(2))]));
    a.receive(&numbered_frame(1, 60));
    dp.run_until_idle(10);
    assert_eq!(b.sent().len(), 1);
    dp.port_del(DpPort(2)).expect("there");
    assert!(matches!(dp.port_del(DpPort(2)), Err(DpifError::NoPort(DpPort(2)))));
    dp.synchronize();
    // Only the test holds the device's ends now.
    assert_eq!((Arc::strong_count(&b), Arc::strong_count(&b.output)), (1, 1));
    a.receive(&numbered_frame(2, 60));
    dp.run_until_idle(10);
    assert_eq!(dp.drops(), [(DropReason::NoPort, 1)]);
    assert_eq!(dp.ports().len(), 1);
    // If the number is taken, the port gets the lowest free one.
    assert_eq!(dp.port_add(b.clone(), Some(DpPort(1))).expect("opens"), DpPort(2));
}

#[test]
fn beyond_the_flow_limit_packets_are_forwarded_without_flows() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    dp.set_flow_limit(1);
    let handler = TestHandler::always(vec![DpAction::Output(DpPort(2))]);
    dp.set_handler(handler.clone());
    for n in 0..10 {
        let mut frame = numbered_frame(n, 60);
        frame[12] = 0x88 + n as u8 % 2;
        a.receive(&frame);
    }
    dp.run_until_idle(10);
    assert_eq!(b.sent().len(), 10);
    assert_eq!((dp.stats().flows, dp.stats().missed, dp.flows_refused()), (1, 6, 5));
    assert_eq!(handler.gone.lock().len(), 5);
    let id = dp.flow_dump()[0].id;
    assert_eq!(dp.flow_del(id).expect("there").packets, 4);
    assert!(matches!(dp.flow_del(FlowId(99)), Err(DpifError::NoFlow)));
}

#[test]
fn a_port_that_fails_does_not_hold_up_others() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    dp.set_handler(TestHandler::new(Box::new(|port, _| (only(DpAction::Output(DpPort(3 - port.0))), None))));
    a.broken.store(true, Ordering::Relaxed);
    a.receive(&numbered_frame(1, 60));
    b.receive(&numbered_frame(2, 60));
    assert_eq!(dp.run_until_idle(10), 1);
    assert_eq!((a.sent().len(), b.sent().len()), (1, 0));
    a.broken.store(false, Ordering::Relaxed);
    assert_eq!(dp.run_until_idle(10), 1);
    assert_eq!(b.sent().len(), 1);
}

#[test]
fn a_port_gets_one_batch_a_round() {
    let dp = stepped();
    let (a, b) = two_ports(&dp);
    dp.set_handler(TestHandler::new(Box::new(|port, _| {
        (only(DpAction::Output(DpPort(3 - port.0))), Some(plain_mask()))
    })));
    for n in 0..100 {
        a.receive(&numbered_frame(n, 60));
    }
    b.receive(&numbered_frame(0, 60));
    assert_eq!(dp.run_once(), 33);
    assert_eq!((a.sent().len(), b.sent().len()), (1, 32));
    assert_eq!(dp.stats().missed, 2);
}

#[test]
fn the_self_check_translates_every_nth_packet_again() {
    for (every, batches) in [(1, 1), (7, 3), (32, 2), (100, 5)] {
        let dp = stepped();
        let (a, b) = two_ports(&dp);
        let handler = TestHandler::always(vec![DpAction::Output(DpPort(2))]);
        dp.set_handler(handler.clone());
        a.receive(&numbered_frame(0, 60));
        dp.run_until_idle(10);
        dp.set_self_check(every);
        (0..320).for_each(|n| a.receive(&numbered_frame(n, 60)));
        dp.run_until_idle(100);
        let expected = 320 / every;
        assert_eq!(handler.checked.lock().len() as u64, expected);
        assert_eq!((dp.thread_stats()[0].checks, dp.thread_stats()[0].checks_failed), (expected, 0));

        // A wrong flow is used neither for the packet that revealed it nor for later ones.
        handler.check_says.store(false, Ordering::SeqCst);
        let (misses, failed) = (handler.misses.load(Ordering::Relaxed), dp.thread_stats()[0].checks_failed);
        b.sent();
        (0..every * batches).for_each(|n| a.receive(&numbered_frame(n as u32, 60)));
        dp.run_until_idle(100);
        let found = dp.thread_stats()[0].checks_failed - failed;
        assert!(found >= 1 && found <= batches, "{found} of every {every}");
        assert_eq!(handler.gone.lock().len() as u64, found);
        assert!(handler.misses.load(Ordering::Relaxed) > misses);
        assert_eq!(b.sent().len() as u64, every * batches);
    }
}

#[test]
fn verdicts_do_not_depend_on_the_microflow_cache() {
    let run = |inverse_probability| {
        let dp = stepped();
        let (a, b) = two_ports(&dp);
        dp.set_microflow_inverse_probability(inverse_probability);
        let handler = TestHandler::new(Box::new(|_, key| {
            let dst = key.get(Field::EthDst);
            let set = DpAction::Set { field: Field::EthSrc, value: dst * 3, mask: u128::MAX };
            let mut mask = plain_mask();
            mask.add_mask(Field::EthDst, 0xffff_ffff_ffff);
            ([set, DpAction::Output(DpPort(2))].into(), Some(mask))
        }));
        dp.set_handler(handler);
        let mut rng = base::rng::Rng::seeded(5);
        for round in 0..300 {
            for n in 0..100 {
                let mut frame = numbered_frame(n, 60);
                frame[5] = rng.below(50) as u8;
                a.receive(&frame);
            }
            dp.run_until_idle(100);
            if round % 50 == 49 {
                let ids: Vec<_> = dp.flow_dump().iter().map(|e| e.id).filter(|id| id.0 % 3 == 0).collect();
                ids.into_iter().for_each(|id| _ = dp.flow_del(id).expect("there"));
            }
        }
        let stats = dp.thread_stats().remove(0);
        assert_eq!(stats.microflow_hits + stats.megaflow_hits + stats.misses, 30_000);
        (b.sent(), stats.microflow_hits)
    };
    let (without, hits) = run(0);
    assert_eq!((without.len(), hits), (30_000, 0));
    for probability in [1, 100] {
        let (with, hits) = run(probability);
        assert!(probability > 1 || hits > 1000, "{hits} hits");
        // Packets of upcalls follow packets of flows, so the order between flows is not fixed.
        let sorted = |packets: &[Packet]| {
            let mut all: Vec<Vec<u8>> = packets.iter().map(|p| p.data().to_vec()).collect();
            all.sort();
            all
        };
        assert!(sorted(&with) == sorted(&without));
    }
    tally::report!("{} packets, with and without the microflow cache", without.len());
}
