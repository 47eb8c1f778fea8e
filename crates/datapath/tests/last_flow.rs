//! Batches of one flow, of several flows, and of all kinds of frames, while verdicts and masks change: each packet
//! goes where the handler sends it alone, and is counted once.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::mix::chain;
use base::rng::Rng;
use base::{Clock, DpPort, PortNo};
use common::TestPort;
use datapath::{Config, Datapath, IndexKind};
use dpif::{
    ControllerUpcall, DpAction, DpActions, DpFlow, DpFlowStats, Dpif, FlowId, Upcall, UpcallHandler, UpcallReply,
};
use flow::extract::extract;
use flow::{Field, FlowKey, FlowMask};
use packet::Packet;

/// Output ports, which follow the two ingress ports.
const OUTPUTS: u32 = 3;

/// A handler whose verdict depends on the generation, and on fields of the packet that the generation selects.
#[derive(Debug, Default)]
struct Chooser {
    generation: AtomicU64,
    next_id: AtomicU64,
    /// Packets and bytes that missed.
    missed: [AtomicU64; 2],
    /// Packets and bytes counted by removed flows.
    gone: [AtomicU64; 2],
}

/// Returns the mask that a verdict reads, and the verdict.
fn choose(generation: u64, key: &FlowKey) -> (FlowMask, DpActions) {
    let mut mask = FlowKey::mask_of(Field::InPortOxm);
    mask.add_mask(Field::VlanTci, 0xffff);
    mask.add_mask(Field::EthType, 0xffff);
    if key.eth_type() == 0x0800 {
        mask.add_mask(Field::IpFrag, 3);
        let more = [(Field::IpProto, 0xff), (Field::Ipv4Src, 0xffff_fff0), (Field::IpTtl, 0xff), (Field::IpDscp, 0x3f)];
        for (i, (field, bits)) in more.into_iter().enumerate() {
            if generation >> i & 1 != 0 {
                mask.add_mask(field, bits);
            }
        }
        if generation & 1 != 0 && key.ip_proto() == 6 && generation & 16 != 0 {
            mask.add_mask(Field::TcpDst, 0xffff);
            mask.add_mask(Field::TcpFlags, 0x002);
        }
    }
    if key.eth_type() == 0x86dd {
        mask.add_mask(Field::IpFrag, 3);
        let more = [
            (Field::IpProto, 0xff),
            (Field::Ipv6Src, 0xfff0),
            (Field::IpTtl, 0xff),
            (Field::IpDscp, 0x3f),
            (Field::Ipv6Dst, u128::MAX),
            (Field::Ipv6Label, 0xf_00ff),
        ];
        for (i, (field, bits)) in more.into_iter().enumerate() {
            if generation >> i & 1 != 0 {
                mask.add_mask(field, bits);
            }
        }
        if generation & 1 != 0 && key.ip_proto() == 58 {
            mask.add_mask(Field::Icmpv6Type, 0xff);
        }
    }
    if generation & 32 != 0 {
        mask.add_mask(Field::EthSrc, 0x3);
    }
    let hash = key.0.iter().zip(&mask.0).fold(generation, |hash, (k, m)| chain(hash, k & m, 0x9e37_79b9_7f4a_7c15));
    let port = DpPort(3 + (hash >> 7) as u32 % OUTPUTS);
    let first = DpAction::Set { field: Field::EthDst, value: 0x0200_0000_0009, mask: 0xffff_ffff_ffff };
    let actions: DpActions =
        if hash & 1 == 0 { [DpAction::Output(port)].into() } else { [first, DpAction::Output(port)].into() };
    (mask, actions)
}

impl UpcallHandler for Chooser {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let generation = self.generation.load(Ordering::SeqCst);
        let (mask, actions) = choose(generation, upcall.key);
        self.missed[0].fetch_add(1, Ordering::SeqCst);
        self.missed[1].fetch_add(upcall.packet.len() as u64, Ordering::SeqCst);
        let id = FlowId(self.next_id.fetch_add(1, Ordering::SeqCst));
        let flow = DpFlow::by_hand(upcall.key, &mask, actions.clone(), generation);
        UpcallReply { actions, install: Some((id, flow)) }
    }

    fn controller(&self, _port: DpPort, _what: &ControllerUpcall, _packet: &Packet) {}

    fn flow_gone(&self, _id: FlowId, stats: DpFlowStats) {
        self.gone[0].fetch_add(stats.packets, Ordering::SeqCst);
        self.gone[1].fetch_add(stats.bytes, Ordering::SeqCst);
    }
}

/// A frame with a few values of each field: most often TCP or UDP over IPv4, otherwise another form of plain frames.
fn frame(rng: &mut Rng) -> Vec<u8> {
    let mut frame = match rng.below(4) {
        0 => frame_v6(rng),
        _ => frame_v4(rng),
    };
    if rng.below(6) == 0 {
        frame.splice(12..12, [0x81, 0, 0, 5 + rng.below(2) as u8]);
    }
    frame
}

/// TCP or ICMP over IPv6.
fn frame_v6(rng: &mut Rng) -> Vec<u8> {
    let tcp = rng.below(2) == 0;
    let l4 = if tcp { 20 } else { 8 } + rng.below(6) as u8;
    let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, rng.below(3) as u8, 0x86, 0xdd][..]].concat();
    frame.extend([0x60, 0, 0, rng.below(2) as u8, 0, l4, if tcp { 6 } else { 58 }, 64]);
    frame.extend([0xfd; 14].into_iter().chain([0, rng.below(40) as u8]));
    frame.extend([0xfd; 14].into_iter().chain([0, 1]));
    let at = frame.len();
    frame.resize(at + usize::from(l4), 0);
    if tcp {
        frame[at + 3] = rng.below(3) as u8;
        frame[at + 12] = 0x50;
    } else {
        frame[at] = 128 + rng.below(2) as u8;
    }
    frame
}

/// TCP, UDP or ICMP over IPv4.
fn frame_v4(rng: &mut Rng) -> Vec<u8> {
    let tcp = rng.below(2) == 0;
    let mut frame = vec![0; 60 + rng.below(20) as usize];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, rng.below(3) as u8, 8, 0]);
    let total = if tcp { 40 } else { 28 } + rng.below(6) as u8;
    frame[14..24].copy_from_slice(&[0x45, 0, 0, total, 0, 0, 0, 0, 64, if tcp { 6 } else { 17 }]);
    frame[26..34].copy_from_slice(&[10, 0, 0, rng.below(40) as u8, 11, 0, 0, 1]);
    frame[34..38].copy_from_slice(&[0, 80, 0, rng.below(3) as u8]);
    if tcp {
        (frame[46], frame[47]) = (0x50, 2 * rng.below(2) as u8);
    } else if rng.below(8) == 0 {
        frame[23] = 1;
    }
    frame
}

/// Changes a frame so that it is mostly no longer plain, or belongs to another flow.
fn spoil(frame: &mut Vec<u8>, rng: &mut Rng) {
    match rng.below(6) {
        0 => frame.truncate(14 + rng.below(46) as usize),
        1 => drop(frame.splice(12..12, [0x81, 0, 0, 7])),
        2 => frame[20] ^= 0x20,
        3 => frame[13] = 6,
        4 => frame[22] = frame[22].wrapping_sub(1),
        _ => frame[12 + rng.below(36) as usize] ^= 1 << rng.below(8),
    }
}

fn forwards_each_packet_right(index: IndexKind, seed: u64, inverse_probability: u32) -> [u64; 2] {
    let config = Config { threads: 0, index, ..Config::default() };
    let dp = Datapath::new(config, Clock::stopped()).expect("no thread to start");
    dp.set_microflow_inverse_probability(inverse_probability);
    let ports: Vec<Arc<TestPort>> = (0..2 + OUTPUTS).map(|n| TestPort::new(&format!("p{n}"))).collect();
    for port in &ports {
        dp.port_add(port.clone(), None).expect("opens");
    }
    let chooser = Arc::new(Chooser::default());
    dp.set_handler(chooser.clone());
    let mut rng = Rng::seeded(seed);
    let (mut sent, mut bytes, mut generation) = (0, 0, 0);
    let mut template = frame(&mut rng);
    for _ in 0..400 {
        match rng.below(20) {
            0 => {
                generation += 1 + rng.below(40);
                chooser.generation.store(generation, Ordering::SeqCst);
                dp.set_generation(generation);
            }
            1 => {
                let flows = dp.flow_dump();
                if !flows.is_empty() {
                    let gone = dp.flow_del(flows[rng.below(flows.len() as u64) as usize].id).expect("it is there");
                    chooser.flow_gone(FlowId(0), gone);
                }
            }
            2..6 => template = frame(&mut rng),
            _ => {}
        }
        let mut expected = vec![Vec::new(); ports.len()];
        let from = rng.below(2) as usize;
        let noise = [0, 0, 0, 30, 3][rng.below(5) as usize];
        for _ in 0..=rng.below(70) {
            let mut one = template.clone();
            one[25] = rng.below(256) as u8;
            if noise != 0 && rng.below(noise) == 0 {
                spoil(&mut one, &mut rng);
            }
            let key = extract(&one, PortNo(from as u32 + 1)).0;
            let (_, actions) = choose(generation, &key);
            let Some(DpAction::Output(to)) = actions.last() else { panic!("no output") };
            let mut out = one.clone();
            if actions.len() > 1 {
                out[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
            }
            expected[to.0 as usize - 1].push(out);
            (sent, bytes) = (sent + 1, bytes + one.len() as u64);
            ports[from].receive(&one);
        }
        dp.run_until_idle(100);
        for (port, mut expected) in ports.iter().zip(expected) {
            let mut sent: Vec<Vec<u8>> = port.sent().iter().map(|p| p.data().to_vec()).collect();
            sent.sort();
            expected.sort();
            assert_eq!(sent, expected);
        }
    }
    let load = |of: &[AtomicU64; 2]| [0, 1].map(|i| of[i].load(Ordering::SeqCst));
    let (missed, mut counted) = (load(&chooser.missed), load(&chooser.gone));
    for flow in dp.flow_dump() {
        counted[0] += flow.stats.packets;
        counted[1] += flow.stats.bytes;
    }
    assert_eq!([counted[0] + missed[0], counted[1] + missed[1]], [sent, bytes]);
    let stats = dp.thread_stats().remove(0);
    assert_eq!((stats.packets, dp.stats().hit), (sent, counted[0]));
    assert_eq!(dp.drops(), []);
    [sent, missed[0]]
}

#[test]
fn packets_follow_their_own_verdicts() {
    let (mut packets, mut misses) = (0, 0);
    for seed in 0..24 {
        let index = if seed % 3 == 0 { IndexKind::TupleSpace } else { IndexKind::Tree };
        let [sent, missed] = forwards_each_packet_right(index, seed, [0, 1, 100][seed as usize % 3]);
        (packets, misses) = (packets + sent, misses + missed);
    }
    tally::report!("{packets} packets, of which {misses} missed");
    assert!(misses * 4 < packets);
}
