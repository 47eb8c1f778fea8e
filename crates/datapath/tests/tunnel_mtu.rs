//! Outer packets that are longer than the MTU of their port, stepped by the test.

mod common;

use std::sync::Arc;

use base::{DpPort, DropReason, MacAddr};
use common::{TestHandler, TestPort, only, out, plain_mask, stepped};
use datapath::Datapath;
use dpif::{Defragment, DpAction, TunnelPop, TunnelPush};
use flow::{Field, FlowMask};
use netdev::{Netdev, Queueless};
use packet::checksum::{Verdict, verify};
use packet::wire::{EthernetRepr, Ipv4Repr, Ipv6Repr, TcpRepr, UdpRepr};
use packet::{Checksum, Gso, GsoKind, Packet};
use tunnel::header::gre::Gre;
use tunnel::header::srv6::{FlowLabel, Srv6};
use tunnel::header::vxlan::Vxlan;
use tunnel::header::{Encapsulation, OuterIp, Pop, Push, Template, Udp};

/// The port of hosts, of the network, and of tunnels.
const HOST: DpPort = DpPort(1);
const NETWORK: DpPort = DpPort(2);
const TUNNEL: DpPort = DpPort(3);
const REMOTE_V4: u32 = 0xc000_0202;
const REMOTE_V6: u128 = 0x2001_0db8 << 96 | 2;

fn push(is_v6: bool, dont_fragment: bool, tunnel: Encapsulation) -> DpAction {
    let ip = if is_v6 {
        let src = (REMOTE_V6 - 1).into();
        OuterIp::V6 { src, dst: REMOTE_V6.into(), class: 3, hop_limit: 64, label: 0, dont_fragment }
    } else {
        OuterIp::V4 { src: (REMOTE_V4 - 1).into(), dst: REMOTE_V4.into(), tos: 3, ttl: 64, dont_fragment }
    };
    let push = Push { eth_src: MacAddr([2; 6]), eth_dst: MacAddr([4; 6]), vlan: None, ip, tunnel };
    let template = Template::new(push).expect("valid headers");
    DpAction::TunnelPush(Arc::new(TunnelPush { port: TUNNEL, out_port: DpPort(9), template, in_key: Some(5) }))
}

fn vxlan(checksum: bool) -> Encapsulation {
    Encapsulation::Vxlan(Udp { src: 0, dst: 4789, checksum }, Vxlan::new(7))
}

/// A frame with an IP packet of `len` bytes.
fn frame(is_v6: bool, flags: u16, len: usize) -> Vec<u8> {
    let mut f = Vec::new();
    let ethertype = if is_v6 { 0x86dd } else { 0x0800 };
    EthernetRepr { dst: MacAddr([0, 0, 0, 0, 0, 2]), src: MacAddr([0, 0, 0, 0, 0, 1]), ethertype }.emit(&mut f);
    let payload = if is_v6 {
        Ipv6Repr { src: 1 << 64 | 1, dst: 1 << 64 | 2, next_header: 17, hop_limit: 9, ..Ipv6Repr::default() }
            .emit(len - 40, &mut f);
        len - 48
    } else {
        Ipv4Repr { src: 1 << 24 | 1, dst: 1 << 24 | 2, proto: 17, ttl: 9, flags_offset: flags, ..Ipv4Repr::default() }
            .emit(len - 20, &mut f);
        len - 28
    };
    UdpRepr { src: 5, dst: 6 }.emit(payload, &mut f);
    f.extend((0..payload).map(|n| n as u8));
    f
}

const DONT_FRAGMENT: u16 = 0x4000;

/// A mask that covers all packets of a tunnel.
fn tunnel_mask() -> FlowMask {
    let mut mask = plain_mask();
    for field in [Field::TunId, Field::TunSrc, Field::TunDst, Field::RecircId] {
        mask.add_mask(field, field.info().full_mask());
    }
    mask
}

/// A mask that tells fragments apart.
fn network_mask() -> FlowMask {
    let mut mask = plain_mask();
    mask.add_mask(Field::IpFrag, Field::IpFrag.info().full_mask());
    mask
}

/// A datapath that sends what hosts send by some actions, and to hosts what it receives from a tunnel.
fn gateway(pop: Pop, actions: Vec<DpAction>) -> (Datapath, [Arc<TestPort>; 2]) {
    let dp = stepped();
    let ports = ["host", "network"].map(TestPort::new);
    for (port, number) in ports.iter().zip([HOST, NETWORK]) {
        dp.port_add(port.clone(), Some(number)).expect("the number is free");
    }
    let device = Arc::new(Queueless::new("tunnel_sys", "tunnel", MacAddr::ZERO));
    dp.tunnel_add(device, pop, Some(TUNNEL)).expect("the number is free");
    dp.set_handler(TestHandler::new(Box::new(move |_, key| match DpPort(key.in_port().0) {
        HOST if key.get(Field::RecircId) == 0 => (actions.clone().into(), Some(plain_mask())),
        NETWORK if key.get(Field::IpFrag) == 0 => {
            (only(DpAction::TunnelPop(TunnelPop::of(TUNNEL))), Some(network_mask()))
        }
        NETWORK => {
            let (tunnels, otherwise) = (vec![(Some(4789), TunnelPop::of(TUNNEL))], DpPort(4));
            (only(DpAction::Defragment(Arc::new(Defragment { tunnels, otherwise }))), Some(network_mask()))
        }
        TUNNEL => {
            let (v4, v6) = (key.get(Field::TunSrc), key.get(Field::TunIpv6Src));
            let dst = key.get(Field::TunDst) + key.get(Field::TunIpv6Dst);
            // From the other end, or looped by the test.
            let of = [REMOTE_V4.into(), REMOTE_V6];
            assert!(
                (of.contains(&(v4 + v6)) && of.contains(&(dst + 1)))
                    || (of.contains(&(v4 + v6 + 1)) && of.contains(&dst))
            );
            let is_answer = of.contains(&(v4 + v6));
            assert!(!is_answer || key.get(Field::TunTos) == 0);
            assert!(!is_answer || [5, 7].contains(&key.get(Field::TunId)));
            if key.get(Field::PacketType) == 0 {
                return (only(out(HOST.0)), Some(tunnel_mask()));
            }
            let [dst, src] = [1, 2].map(|n| MacAddr([0, 0, 0, 0, 0, n]));
            (vec![DpAction::PushEth { dst, src }, out(HOST.0)].into(), Some(tunnel_mask()))
        }
        // Recirculated outer packets.
        _ => (only(out(NETWORK.0)), Some(tunnel_mask())),
    })));
    (dp, ports)
}

/// The frames that a host gets back for a frame that it sends.
fn answers(dp: &Datapath, host: &TestPort, sent: &[u8]) -> Vec<Vec<u8>> {
    host.receive(sent);
    dp.run_until_idle(10);
    host.sent().iter().map(|packet| packet.data().to_vec()).collect()
}

#[test]
fn outer_packets_that_may_be_fragmented_are() {
    for (is_v6, checksum) in [(false, false), (false, true), (true, false), (true, true)] {
        let list = vec![push(is_v6, false, vxlan(checksum)), out(NETWORK.0)];
        let (dp, [host, network]) = gateway(Pop::Vxlan { group_policy: false }, list);
        let frames: Vec<_> = [1400, 1500, 1480, 1500].map(|len| frame(is_v6, 0, len)).into();
        frames.iter().for_each(|frame| host.receive(frame));
        dp.run_until_idle(10);
        let outer = network.sent();
        let lens: Vec<_> = outer.iter().map(Packet::len).collect();
        let expected = if is_v6 {
            // 70 bytes of headers; 54 in front of 1448 + 8 bytes of a fragment and its header.
            [1484, 1510, 54 + 8 + 1530 - 1448, 1510, 54 + 8 + 1510 - 1448, 1510, 54 + 8 + 1530 - 1448]
        } else {
            [1464, 1514, 34 + 1530 - 1480, 1514, 34 + 1510 - 1480, 1514, 34 + 1530 - 1480]
        };
        assert_eq!(lens, expected, "{is_v6}");
        for packet in outer {
            network.receive(packet.data());
            dp.run_until_idle(10);
        }
        assert!(host.sent().iter().map(Packet::data).eq(frames.iter().map(|frame| &frame[..])));
        assert_eq!(dp.drops(), []);
    }
}

#[test]
fn the_sender_of_a_long_packet_is_answered() {
    let l3 = DpAction::PopEth;
    let srv6 =
        Encapsulation::Srv6(Srv6 { segments: [REMOTE_V6.into(), 5u128.into()].into(), flow_label: FlowLabel::Zero });
    let gre = |protocol| Encapsulation::Gre(Gre { protocol, checksum: true, key: Some(7), sequence: true });
    let vxlan_pop = Pop::Vxlan { group_policy: false };
    for (pop, is_v6, before, tunnel, headers) in [
        (vxlan_pop, false, None, vxlan(false), 50),
        (vxlan_pop, true, None, vxlan(true), 70),
        (Pop::Gre, false, None, gre(0x6558), 50),
        (Pop::Gre, true, Some(l3.clone()), gre(0x0800), 56),
        (Pop::Srv6, true, Some(l3), srv6, 80),
    ] {
        let list = before.into_iter().chain([push(is_v6, true, tunnel), out(NETWORK.0)]);
        let (dp, [host, network]) = gateway(pop, list.collect());
        let mtu = 1500 - headers;
        let fits = frame(false, DONT_FRAGMENT, mtu);
        let long = frame(false, DONT_FRAGMENT, mtu + 1);
        assert_eq!((answers(&dp, &host, &fits).len(), network.sent().len()), (0, 1));
        for n in 1..3 {
            let mut got = answers(&dp, &host, &long);
            assert_eq!((got.len(), network.sent().len()), (1, 0), "{pop:?}");
            let mut got = got.remove(0);
            assert_eq!((&got[..6], &got[6..12], verify(&got)), (&long[6..12], &long[..6], Verdict::Good));
            assert_eq!((&got[26..34], &got[34..36]), (&[1, 0, 0, 2, 1, 0, 0, 1][..], &[3, 4][..]));
            assert_eq!(u16::from_be_bytes([got[40], got[41]]), mtu as u16);
            assert_eq!(got.split_off(42), long[14..14 + 548]);
            assert_eq!(dp.drops(), [(DropReason::TooBig, n)]);
            assert_eq!(dp.port_stats(TUNNEL).expect("the port exists").rx_packets, n);
        }
    }
}

#[test]
fn answers_concern_recirculated_packets_and_follow_the_mtu() {
    let list = vec![push(false, true, vxlan(true)), DpAction::Recirc(1)];
    let (dp, [host, network]) = gateway(Pop::Vxlan { group_policy: false }, list);
    for is_v6 in [false, true] {
        let long = frame(is_v6, DONT_FRAGMENT, 1500);
        assert_eq!((answers(&dp, &host, &long).len(), network.sent().len()), (1, 0));
    }
    network.set_mtu(1550).expect("the test's port takes any");
    let long = frame(false, DONT_FRAGMENT, 1500);
    assert_eq!((answers(&dp, &host, &long).len(), network.sent().len()), (0, 1));
    network.set_mtu(1400).expect("the test's port takes any");
    // The port learns of the MTU by what it sends.
    assert_eq!((answers(&dp, &host, &long).len(), network.sent().len()), (0, 1));
    assert_eq!((answers(&dp, &host, &long).len(), network.sent().len()), (1, 0));
    // An inner packet without the flag.
    assert_eq!((answers(&dp, &host, &frame(false, 0, 1500)).len(), network.sent().len()), (0, 0));
    assert_eq!(dp.drops(), [(DropReason::TooBig, 4)]);
}

#[test]
fn segments_of_a_packet_get_one_answer() {
    let list = vec![DpAction::Clone([push(false, true, vxlan(false)), out(NETWORK.0)].into()), out(NETWORK.0)];
    let (dp, [host, network]) = gateway(Pop::Vxlan { group_policy: false }, list);
    let mut f = frame(false, DONT_FRAGMENT, 20 + 20 + 10 * 1460);
    f[23] = 6;
    let mut tcp = Vec::new();
    TcpRepr { src: 5, dst: 6, ..TcpRepr::default() }.emit(&mut tcp);
    f[34..34 + tcp.len()].copy_from_slice(&tcp);
    let mut packet = Packet::from_slice(&f);
    packet.offload.gso = Some(Gso { kind: GsoKind::TcpV4, size: 1460, ecn: false });
    packet.offload.checksum = Checksum::Partial { start: 34, offset: 16 };
    host.receive_packet(packet);
    dp.run_until_idle(10);
    // The second output is that of the packet itself, which is no outer packet.
    assert_eq!((host.sent().len(), network.sent().len()), (1, 1));
    assert_eq!(dp.drops(), [(DropReason::TooBig, 10)]);
}
