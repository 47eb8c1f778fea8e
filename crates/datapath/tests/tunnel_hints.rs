//! Packets of several tunnels, while verdicts, masks and known options change: each packet goes where the handler sends it alone,
//! and is counted once.

mod common;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::mix::chain;
use base::rng::Rng;
use base::{DpPort, MacAddr, PortNo};
use common::{TestHandler, TestPort, only, out, plain_mask, stepped};
use dpif::{DpAction, DpActions, Dpif, TunnelPop};
use flow::extract::extract_with;
use flow::{Field, FlowKey, FlowMask, OptionPlace, PacketContext, PlacedOption, ReceivedOptions, layout};
use netdev::Queueless;
use packet::Packet;
use packet::metadata::Metadata;
use tunnel::header::geneve::Geneve;
use tunnel::header::vxlan::Vxlan;
use tunnel::header::{Context, Encapsulation, OuterIp, Pop, PortRange, Push, Template, Udp, parse};

const NETWORK: DpPort = DpPort(1);
const OUTPUTS: u32 = 3;
const TUNNELS: DpPort = DpPort(9);
/// The recirculation id of a second look-up.
const AGAIN: u32 = 7;

/// The mask that a verdict reads, and the verdict.
fn choose(generation: u64, key: &FlowKey) -> (FlowMask, DpActions) {
    let mut mask = plain_mask();
    mask.add_mask(Field::RecircId, u32::MAX.into());
    if key.eth_type() == 0x0800 {
        mask.add_mask(Field::IpFrag, 3);
    }
    let more = [
        (Field::TunId, 0xff_ffff),
        (Field::TunSrc, 0x3),
        (Field::TunTtl, 0xff),
        (Field::Ipv4Dst, 0x7),
        (Field::IpProto, 0xff),
        (Field::EthDst, 0x3),
    ];
    for (i, (field, bits)) in more.into_iter().enumerate() {
        if generation >> i & 1 != 0 {
            mask.add_mask(field, bits);
        }
    }
    // Presence of options, and the first ones.
    if generation & 0x40 != 0 {
        mask.0[layout::TUN_METADATA..layout::TUN_METADATA + 3].fill(u64::MAX);
    }
    if generation & 0x380 == 0x80 {
        mask.add_mask(Field::IpProto, 0xff);
        if key.ip_proto() == 6 {
            mask.add_mask(Field::TcpFlags, 0x002);
        }
    }
    let read =
        (0..key.0.len()).fold(generation, |hash, word| chain(hash, key.0[word] & mask.0[word], 0x1234_5678_9abc_def1));
    let port = 2 + (read >> 32) as u32 % OUTPUTS;
    let again = key.get(Field::RecircId) == 0;
    let actions: DpActions = match read % 8 {
        0 if again => [DpAction::Recirc(AGAIN)].into(),
        1 if again => [out(port), DpAction::Recirc(AGAIN)].into(),
        2 => [out(2), out(3)].into(),
        3 => [].into(),
        _ => [out(port)].into(),
    };
    (mask, actions)
}

/// Where a packet with this key goes.
fn expected(generation: u64, key: &FlowKey, ports: &mut Vec<u32>) {
    for action in choose(generation, key).1.iter() {
        match action {
            DpAction::Output(port) => ports.push(port.0),
            _ => {
                let mut key = key.clone();
                key.set(Field::RecircId, AGAIN.into());
                expected(generation, &key, ports);
            }
        }
    }
}

/// Options of class 0x0102: type 3 is at one of two places, or unknown.
fn known(which: u64) -> ReceivedOptions {
    let option = |field, at, kind| {
        let places: Vec<_> = OptionPlace::new(at).into_iter().collect();
        PlacedOption::new(field, &places).expect("a place").with_id(0x0102, kind)
    };
    let first = (which != 3).then(|| option(Field::TunMetadata0, u8::from(which == 1), 3));
    first.into_iter().chain([option(Field::TunMetadata1, 3, 4)]).collect()
}

/// The headers of a tunnel.
fn headers(pop: Pop, rng: &mut Rng) -> Template {
    let ip = OuterIp::V4 {
        src: Ipv4Addr::from(0xc000_0200 + rng.below(4) as u32),
        dst: Ipv4Addr::new(192, 0, 2, 99),
        tos: 0,
        ttl: 60 + rng.below(3) as u8,
        dont_fragment: true,
    };
    let checksum = rng.below(2) == 0;
    let udp = |dst| Udp { src: 0, dst, checksum };
    let vni = rng.below(3) as u32;
    let tunnel = match pop {
        Pop::Geneve => {
            let kind = 3 + rng.below(2) as u8;
            let option = [1, 2, kind, 1, 0, 0, 0, rng.below(2) as u8];
            let options = option[..8 * rng.below(2) as usize].into();
            Encapsulation::Geneve(udp(6081), Geneve { vni, oam: false, options })
        }
        _ => Encapsulation::Vxlan(udp(4789), Vxlan::new(vni)),
    };
    let push = Push { eth_src: MacAddr([2; 6]), eth_dst: MacAddr([4; 6]), vlan: None, ip, tunnel };
    Template::new(push).expect("valid headers")
}

/// An inner frame: TCP, UDP or another packet, numbered.
fn inner(rng: &mut Rng, number: u32) -> Vec<u8> {
    let mut frame = vec![0; 66];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, rng.below(3) as u8, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 52, 0, 0, 0, 0, 64, [6, 6, 17, 1][rng.below(4) as usize]]);
    frame[33] = rng.below(4) as u8;
    frame[46] = 0x50;
    frame[47] = if rng.below(16) == 0 { 2 } else { 16 };
    if rng.below(20) == 0 {
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    }
    frame[58..62].copy_from_slice(&number.to_be_bytes());
    frame
}

/// The key of the inner packet, by the naive parser.
fn key_of(pop: Pop, outer: &Packet, known: &ReceivedOptions) -> FlowKey {
    let parsed = parse(pop, outer.data(), None, false).expect("valid headers");
    let metadata = Metadata { tunnel: Some(Arc::new(parsed.tunnel())), ..Metadata::default() };
    let context = PacketContext { in_port: PortNo(TUNNELS.0), metadata: Some(&metadata), ..PacketContext::default() };
    let mut key = extract_with(&outer.data()[parsed.start..parsed.end], &context, 2);
    known.put(&mut key, parsed.options);
    key
}

#[test]
fn packets_of_tunnels_go_where_the_handler_sends_them() {
    let (mut rng, mut packets, mut misses) = (Rng::seeded(21), 0u64, 0u64);
    for pop in [Pop::Vxlan { group_policy: false }, Pop::Geneve] {
        let dp = stepped();
        let network = TestPort::new("network");
        dp.port_add(network.clone(), Some(NETWORK)).expect("the number is free");
        let outputs: Vec<_> = (0..OUTPUTS).map(|n| TestPort::new(&format!("out{n}"))).collect();
        for (port, n) in outputs.iter().zip(2..) {
            dp.port_add(port.clone(), Some(DpPort(n))).expect("the number is free");
        }
        let device = Arc::new(Queueless::new("tunnel_sys", "tunnel", MacAddr::ZERO));
        dp.tunnel_add(device, pop, Some(TUNNELS)).expect("the number is free");
        let current = Arc::new(AtomicU64::new(0));
        let of_handler = Arc::clone(&current);
        let handler = TestHandler::new(Box::new(move |_, key| match DpPort(key.in_port().0) {
            NETWORK => (only(DpAction::TunnelPop(TunnelPop::of(TUNNELS))), Some(plain_mask())),
            _ => {
                let (mask, actions) = choose(of_handler.load(Ordering::SeqCst), key);
                (actions, Some(mask))
            }
        }));
        dp.set_handler(handler.clone());
        let zero = AtomicU32::new(0);
        let context =
            Context { ports: PortRange::default(), sequence: &zero, identification: &zero, erspan_timestamp: 0 };
        let (mut number, mut damaged) = (0, 0);
        for step in 0..60u64 {
            let generation = step << 10 | rng.below(1 << 10);
            current.store(generation, Ordering::SeqCst);
            handler.generation.store(generation, Ordering::SeqCst);
            dp.set_generation(generation);
            let templates: Vec<_> = (0..=rng.below(8)).map(|_| headers(pop, &mut rng)).collect();
            for _ in 0..12 {
                let mut right: Vec<Vec<u32>> = vec![Vec::new(); OUTPUTS as usize];
                let mut same = None;
                let options = known(rng.below(4));
                dp.set_tunnel_options(Arc::new(options.clone()));
                for _ in 0..=rng.below(80) {
                    let template = &templates[rng.below(templates.len() as u64) as usize];
                    // Runs of one flow, or any packet.
                    let mut frame = match &same {
                        Some(frame) if rng.below(4) != 0 => Vec::clone(frame),
                        _ => inner(&mut rng, number),
                    };
                    frame[58..62].copy_from_slice(&number.to_be_bytes());
                    let mut packet = Packet::from_slice(&frame);
                    template.push(&mut packet, rng.next_u64() as u32, &context).expect("it fits");
                    let mut ports = Vec::new();
                    expected(generation, &key_of(pop, &packet, &options), &mut ports);
                    if rng.below(40) == 0 && packet.data()[40..42] != [0; 2] {
                        // A packet with a wrong checksum goes nowhere.
                        let mut wrong = packet.data().to_vec();
                        wrong[60] ^= 0x10;
                        network.receive(&wrong);
                        damaged += 1;
                    } else {
                        ports.iter().for_each(|port| right[*port as usize - 2].push(number));
                        network.receive(packet.data());
                    }
                    (number, same) = (number + 1, Some(frame));
                }
                dp.run_until_idle(50);
                for (port, right) in outputs.iter().zip(&mut right) {
                    let sent = port.sent();
                    let mut sent: Vec<u32> = sent
                        .iter()
                        .map(|packet| u32::from_be_bytes(packet.data()[58..62].try_into().expect("four bytes")))
                        .collect();
                    sent.sort_unstable();
                    right.sort_unstable();
                    assert_eq!(&sent, right, "generation {generation:#x}");
                }
                if rng.below(4) == 0 {
                    let dump = dp.flow_dump();
                    let entry = &dump[rng.below(dump.len() as u64) as usize];
                    dp.flow_del(entry.id).expect("it is installed");
                }
            }
        }
        packets += u64::from(number);
        misses += handler.misses.load(Ordering::SeqCst);
        assert_eq!(dp.port_stats(TUNNELS).expect("the port exists").rx_packets, u64::from(number - damaged));
    }
    tally::report!("{packets} packets, {misses} misses");
    assert!(misses < packets / 2);
}
