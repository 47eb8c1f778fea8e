//! Packets that enter and leave tunnels, stepped by the test.

mod common;

use std::net::Ipv4Addr;
use std::sync::Arc;

use base::{DpPort, DropReason, MacAddr};
use common::{TestHandler, TestPort, numbered_frame, only, out, plain_mask, stepped};
use datapath::Datapath;
use dpif::{Defragment, DpAction, TunnelPop, TunnelPush};
use flow::{Field, FlowKey, FlowMask};
use netdev::Queueless;
use packet::segment::{make_udp_partial, segment};
use packet::{Gso, GsoKind, Packet};
use tunnel::header::geneve::Geneve;
use tunnel::header::vxlan::Vxlan;
use tunnel::header::{Encapsulation, OuterIp, Pop, Push, Template, Udp};

/// The port of hosts, of the network, and of tunnels.
const HOST: DpPort = DpPort(1);
const NETWORK: DpPort = DpPort(2);
const TUNNEL: DpPort = DpPort(3);
const OPTION: [u8; 8] = [0x01, 0x02, 0x83, 1, 0xde, 0xad, 0xbe, 0xef];

fn push(tunnel: Encapsulation) -> DpAction {
    let ip = OuterIp::V4 {
        src: Ipv4Addr::new(192, 0, 2, 1),
        dst: Ipv4Addr::new(192, 0, 2, 2),
        tos: 0,
        ttl: 64,
        dont_fragment: true,
    };
    let (eth_src, eth_dst) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let push = Push { eth_src, eth_dst, vlan: None, ip, tunnel };
    let template = Template::new(push).expect("valid headers");
    DpAction::TunnelPush(Arc::new(TunnelPush { port: TUNNEL, out_port: DpPort(9), template, in_key: None }))
}

fn vxlan(checksum: bool) -> Encapsulation {
    Encapsulation::Vxlan(Udp { src: 0, dst: 4789, checksum }, Vxlan::new(0x12_3456))
}

fn geneve() -> Encapsulation {
    let header = Geneve { vni: 7, oam: false, options: OPTION.into() };
    Encapsulation::Geneve(Udp { src: 0, dst: 6081, checksum: false }, header)
}

/// A mask that covers all packets of a tunnel.
fn tunnel_mask() -> FlowMask {
    let mut mask = plain_mask();
    for field in [Field::TunId, Field::TunSrc, Field::TunDst, Field::RecircId] {
        mask.add_mask(field, field.info().full_mask());
    }
    mask
}

/// A datapath that sends what hosts send through a tunnel, and to hosts what it receives from a tunnel.
fn gateway(
    pop: Pop,
    push: Vec<DpAction>,
    check: impl Fn(&FlowKey) + Send + Sync + 'static,
) -> (Datapath, [Arc<TestPort>; 2]) {
    let dp = stepped();
    let ports = ["host", "network"].map(TestPort::new);
    for (port, number) in ports.iter().zip([HOST, NETWORK]) {
        dp.port_add(port.clone(), Some(number)).expect("the number is free");
    }
    let device = Arc::new(Queueless::new("tunnel_sys", "tunnel", MacAddr::ZERO));
    assert_eq!(dp.tunnel_add(device, pop, Some(TUNNEL)).expect("the number is free"), TUNNEL);
    dp.set_handler(TestHandler::new(Box::new(move |_, key| match DpPort(key.in_port().0) {
        HOST => (push.clone().into(), Some(plain_mask())),
        NETWORK => (only(DpAction::TunnelPop(TunnelPop::of(TUNNEL))), Some(plain_mask())),
        _ => {
            check(key);
            (only(out(HOST.0)), Some(tunnel_mask()))
        }
    })));
    (dp, ports)
}

#[test]
fn packets_go_through_tunnels_and_come_back() {
    for (pop, encapsulation, id) in [
        (Pop::Vxlan { group_policy: false }, vxlan(false), 0x12_3456),
        (Pop::Vxlan { group_policy: false }, vxlan(true), 0x12_3456),
        (Pop::Geneve, geneve(), 7),
    ] {
        let has_options = matches!(encapsulation, Encapsulation::Geneve(..));
        let (dp, [host, network]) = gateway(pop, vec![push(encapsulation), out(NETWORK.0)], move |key| {
            assert_eq!(key.get(Field::TunId), id);
            assert_eq!((key.get(Field::TunSrc), key.get(Field::TunDst)), (0xc000_0201, 0xc000_0202));
            assert_eq!((key.get(Field::RecircId), key.get(Field::TunTtl)), (0, 64));
        });
        let frames: Vec<Vec<u8>> = (0..40).map(|n| numbered_frame(n, 60 + n as usize)).collect();
        for frame in &frames {
            host.receive(frame);
        }
        dp.run_until_idle(10);
        let outer = network.sent();
        assert_eq!(outer.len(), frames.len());
        for (packet, frame) in outer.iter().zip(&frames) {
            let header = 14 + 20 + 8 + 8 + if has_options { OPTION.len() } else { 0 };
            assert_eq!(&packet.data()[header..], frame);
            assert!(packet.metadata().is_none());
            network.receive(packet.data());
        }
        dp.run_until_idle(10);
        assert!(host.sent().iter().map(Packet::data).eq(frames.iter().map(|frame| &frame[..])));
        let tunnels = dp.port_stats(TUNNEL).expect("the port exists");
        let bytes: usize = frames.iter().map(Vec::len).sum();
        assert_eq!((tunnels.rx_packets, tunnels.rx_bytes), (40, bytes as u64));
        assert_eq!(dp.drops(), []);
    }
}

/// A TCP packet of ten segments, and its outer packet, stay whole: each is looked up once.
#[test]
fn large_packets_go_through_tunnels_as_a_whole() {
    for checksum in [false, true] {
        let list = vec![push(vxlan(checksum)), out(NETWORK.0)];
        let (dp, [host, network]) = gateway(Pop::Vxlan { group_policy: false }, list, |_| {});
        let mut frame = numbered_frame(1, 54 + 10 * 1400);
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..34].copy_from_slice(&[0x45, 0, 0x36, 0xd8, 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame[34..54].copy_from_slice(&[0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0x50, 0x18, 0, 9, 0, 0, 0, 0]);
        let mut packet = Packet::from_slice(&frame);
        packet.offload.gso = Some(Gso { kind: GsoKind::TcpV4, size: 1400, ecn: false });
        let segments = segment(&packet).expect("it fits its flags");
        host.receive_packet(packet);
        dp.run_until_idle(10);
        let mut outer = network.sent();
        assert_eq!(outer.len(), 1);
        assert_eq!(outer[0].offload.gso, Some(Gso { kind: GsoKind::UdpL4, size: 8 + 54 + 1400, ecn: false }));
        // As the kernel has it.
        make_udp_partial(&mut outer[0]);
        network.receive_packet(outer.remove(0));
        dp.run_until_idle(10);
        let inner = host.sent();
        assert_eq!(inner.len(), 1);
        assert_eq!(segment(&inner[0]).expect("it fits its flags"), segments);
        assert_eq!(dp.port_stats(TUNNEL).expect("the port exists").rx_packets, 1);
        assert_eq!(dp.drops(), []);
    }
}

/// Flows with headers of their own get them in one batch, too; packets that are too long are dropped.
#[test]
fn packets_of_a_batch_have_headers_of_their_own() {
    let dp = stepped();
    let [host, network] = ["host", "network"].map(TestPort::new);
    dp.port_add(host.clone(), Some(HOST)).expect("the number is free");
    dp.port_add(network.clone(), Some(NETWORK)).expect("the number is free");
    let mut mask = plain_mask();
    mask.add_mask(Field::EthDst, Field::EthDst.info().full_mask());
    dp.set_handler(TestHandler::new(Box::new(move |_, key| {
        let mask = mask.clone();
        let vni = key.get(Field::EthDst) as u32 & 0xff;
        let tunnel = Encapsulation::Vxlan(Udp { src: 0, dst: 4789, checksum: vni.is_multiple_of(3) }, Vxlan::new(vni));
        ([push(tunnel), out(NETWORK.0)].into(), Some(mask))
    })));
    let frame = |n: u8, len: usize| {
        let mut frame = numbered_frame(n.into(), len);
        frame[5] = n;
        frame
    };
    let lens = |n: u8| if n % 7 == 3 { 65_530 } else { 60 + usize::from(n) };
    // Alone, then in batches.
    let mut alone = Vec::new();
    for n in 0..64 {
        host.receive(&frame(n, lens(n)));
        dp.run_until_idle(10);
        alone.extend(network.sent());
    }
    (0..64).for_each(|n| host.receive(&frame(n, lens(n))));
    dp.run_until_idle(10);
    let together = network.sent();
    let too_long = (0..64).filter(|n| n % 7 == 3).count();
    assert_eq!(alone.len(), 64 - too_long);
    assert!(together.iter().map(Packet::data).eq(alone.iter().map(Packet::data)));
    for (packet, n) in together.iter().zip((0..64).filter(|n| n % 7 != 3)) {
        assert_eq!((packet.data()[48], packet.data()[49], packet.len()), (n, 0, lens(n) + 50));
    }
    assert_eq!(dp.drops(), [(DropReason::TooBig, 2 * too_long as u64)]);
}

/// The fragments of a frame with an IPv4 header without options, each with `len` bytes behind that header or less.
fn fragments(frame: &[u8], len: usize) -> Vec<Vec<u8>> {
    let (head, payload) = frame.split_at(34);
    let of_part = |(n, part): (usize, &[u8])| {
        let mut piece = [head, part].concat();
        let more = n * len + part.len() < payload.len();
        let bits = u16::from(more) << 13 | (n * len / 8) as u16;
        piece[16..18].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
        piece[20..22].copy_from_slice(&bits.to_be_bytes());
        piece[24..26].fill(0);
        let sum = packet::checksum::checksum(&piece[14..34]);
        piece[24..26].copy_from_slice(&sum.to_be_bytes());
        piece
    };
    payload.chunks(len).enumerate().map(of_part).collect()
}

#[test]
fn fragments_of_outer_packets_are_reassembled() {
    let dp = stepped();
    let ports = ["host", "network", "own"].map(TestPort::new);
    for (port, number) in ports.iter().zip([HOST, NETWORK, DpPort(4)]) {
        dp.port_add(port.clone(), Some(number)).expect("the number is free");
    }
    let [host, network, own] = ports;
    let device = Arc::new(Queueless::new("tunnel_sys", "tunnel", MacAddr::ZERO));
    dp.tunnel_add(device, Pop::Vxlan { group_policy: false }, Some(TUNNEL)).expect("the number is free");
    dp.set_handler(TestHandler::new(Box::new(move |_, key| match DpPort(key.in_port().0) {
        HOST => (vec![push(vxlan(true)), out(NETWORK.0)].into(), Some(plain_mask())),
        NETWORK => {
            let (tunnels, otherwise) = (vec![(Some(4789), TunnelPop::of(TUNNEL))], DpPort(4));
            let actions = [DpAction::Defragment(Arc::new(Defragment { tunnels, otherwise })), out(HOST.0)];
            (actions.into(), Some(plain_mask()))
        }
        _ => (only(out(HOST.0)), Some(tunnel_mask())),
    })));
    let frame = numbered_frame(1, 1400);
    host.receive(&frame);
    dp.run_until_idle(10);
    let outer = network.sent().remove(0).data().to_vec();
    // Whichever arrives first; later actions get the fragments themselves.
    for order in [[0, 1, 2], [2, 0, 1]] {
        let pieces = fragments(&outer, 600);
        order.iter().for_each(|n| network.receive(&pieces[*n]));
        dp.run_until_idle(10);
        let mut sent: Vec<_> = host.sent().iter().map(|packet| packet.data().to_vec()).collect();
        sent.sort_by_key(|frame| frame.len());
        let mut expected = pieces.clone();
        expected.push(frame.clone());
        expected.sort_by_key(Vec::len);
        assert_eq!(sent, expected);
        assert!(own.sent().is_empty());
    }
    // A datagram of no tunnel, and fragments that are too short to be reassembled, except for the last one.
    let mut other = outer.clone();
    other[36..38].copy_from_slice(&53u16.to_be_bytes());
    for (pieces, held) in [(fragments(&other, 600), 0), (fragments(&outer, 96), 1)] {
        pieces.iter().for_each(|piece| network.receive(piece));
        dp.run_until_idle(10);
        let passed = &pieces[..pieces.len() - held];
        assert!(own.sent().iter().map(Packet::data).eq(passed.iter().map(|piece| &piece[..])));
        assert_eq!(host.sent().len(), pieces.len());
    }
    // One that stays incomplete.
    network.receive(&fragments(&outer, 600)[0]);
    dp.run_until_idle(10);
    assert_eq!((dp.drops(), own.sent().len()), (vec![], 0));
}

#[test]
fn a_packet_has_the_headers_in_a_copy_only() {
    let list = vec![DpAction::Clone([push(vxlan(false)), out(NETWORK.0)].into()), out(HOST.0)];
    let (dp, [host, network]) = gateway(Pop::Geneve, list, |_| ());
    let frame = numbered_frame(1, 60);
    host.receive(&frame);
    dp.run_until_idle(10);
    assert_eq!(host.sent()[0].data(), frame);
    assert_eq!(network.sent()[0].len(), frame.len() + 50);
}

#[test]
fn malformed_headers_and_missing_ports_are_drops() {
    let (dp, [host, network]) =
        gateway(Pop::Vxlan { group_policy: false }, vec![push(vxlan(true)), out(NETWORK.0)], |_| ());
    host.receive(&numbered_frame(1, 60));
    dp.run_until_idle(10);
    let whole = network.sent().remove(0).data().to_vec();
    let change = |at: usize, to: u8| {
        let mut frame = whole.clone();
        frame[at] = to;
        frame
    };
    // An IP checksum, a UDP checksum, flags of VXLAN without a checksum, and a frame that ends in the header.
    let mut flagless = change(42, 0);
    flagless[40..42].fill(0);
    for frame in [change(24, whole[24] ^ 1), change(60, whole[60] ^ 1), flagless, whole[..48].to_vec()] {
        network.receive(&frame);
    }
    dp.run_until_idle(10);
    assert!(host.sent().is_empty());
    let drops = [(DropReason::TunnelHeader, 2), (DropReason::TunnelChecksum, 2)];
    assert_eq!(dp.drops(), drops);
    dp.port_del(TUNNEL).expect("the port exists");
    network.receive(&whole);
    dp.run_until_idle(10);
    assert_eq!(dp.drops(), [&[(DropReason::NoPort, 1)], &drops[..]].concat());
}
