//! Packets that leave tunnels, as `bench/run tunnels` sends them, without a switch: `vxlan-N` and `geneve-N`, from N remotes. The
//! flow of a port pops the outer headers, and each tunnel has a flow for its packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{DpPort, MacAddr};
use datapath::Datapath;
use dpif::{
    ControllerUpcall, DpAction, DpActions, DpFlow, DpFlowStats, FlowId, TunnelPop, Upcall, UpcallHandler, UpcallReply,
};
use flow::{Field, FlowKey, OptionPlace, PlacedOption, Reads, ReceivedOptions, layout};
use netdev::Queueless;
use packet::Packet;
use packet::checksum::Sum;
use tunnel::header::Pop;

use super::frame;

/// The port that receives, the one that discards, and the tunnels'.
const IN: DpPort = DpPort(1);
const OUT: DpPort = DpPort(2);
const TUNNELS: DpPort = DpPort(3);

/// An option of class 0x0102 and type 3 with four bytes.
const OPTION: [u8; 8] = [0x01, 0x02, 3, 1, 0xde, 0xad, 0xbe, 0xef];

/// The decapsulation of a workload, and its number of remotes.
pub(crate) fn of(workload: &str) -> Option<(Pop, u32)> {
    let (name, n) = workload.split_once('-')?;
    let pop = match name {
        "vxlan" => Pop::Vxlan { group_policy: false },
        "geneve" => Pop::Geneve,
        _ => return None,
    };
    Some((pop, n.parse().ok().filter(|n| (1..=1_000_000).contains(n))?))
}

/// Its packets, in a random order.
pub(crate) fn frames(pop: Pop, n: u32) -> Vec<Packet> {
    let mut rng = base::rng::Rng::seeded(1);
    let mut frames: Vec<_> = (0..n.max(4096)).map(|i| outer(pop, i % n)).collect();
    for i in (1..frames.len()).rev() {
        frames.swap(i, rng.below(i as u64 + 1) as usize);
    }
    frames
}

fn outer(pop: Pop, i: u32) -> Packet {
    let key = (100 + i) << 8;
    let (port, header) = match pop {
        Pop::Geneve => (6081u16, [&[2, 0, 0x65, 0x58][..], &key.to_be_bytes(), &OPTION].concat()),
        _ => (4789, [[8, 0, 0, 0], key.to_be_bytes()].concat()),
    };
    let inner = frame(0x0a00_0000 + i, 0x0b00_0000 + i, 1000, 2000);
    let payload = [&header[..], inner.data()].concat();
    let (udp_len, src_port) = (8 + payload.len() as u16, 49152 + i as u16 % 16_384);
    let mut ip = [&[0x45, 0], &(20 + udp_len).to_be_bytes()[..], &[0, 0, 0x40, 0, 64, 17, 0, 0]].concat();
    ip.extend((0xc0a8_0000 + i).to_be_bytes());
    ip.extend([192, 0, 2, 1]);
    let checksum = Sum::new().bytes(&ip).finish();
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let udp = [src_port, port, udp_len, 0].map(u16::to_be_bytes).concat();
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    Packet::from_slice(&[&ethernet[..], &ip, &udp, &payload].concat())
}

fn known() -> ReceivedOptions {
    let places: Vec<_> = OptionPlace::new(0).into_iter().collect();
    let option = PlacedOption::new(Field::TunMetadata0, &places).expect("one place");
    std::iter::once(option.with_id(0x0102, 3)).collect()
}

/// Adds the port of the tunnels, and the handler of misses.
pub(crate) fn prepare(dp: &Datapath, pop: Pop) -> Result<(), dpif::DpifError> {
    let device = Arc::new(Queueless::new("tunnel_sys", "tunnel", MacAddr::ZERO));
    dp.tunnel_add(device, pop, Some(TUNNELS))?;
    let mut of_options = FlowKey::ZERO;
    if pop == Pop::Geneve {
        dp.set_tunnel_options(Arc::new(known()));
        known().put(&mut of_options, &OPTION);
    }
    dp.set_handler(Arc::new(Decapsulate { of_options, next_id: AtomicU64::new(1) }));
    Ok(())
}

/// Pops the outer headers of packets of the port that receives, and forwards packets of tunnels.
#[derive(Debug)]
struct Decapsulate {
    /// Words that are not zero are read.
    of_options: FlowKey,
    next_id: AtomicU64,
}

impl UpcallHandler for Decapsulate {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let mut reads = Reads::new();
        reads.note(layout::PORTS, u64::MAX);
        reads.note(layout::ETH_DST, 0xffff);
        reads.note(layout::ETH_SRC, 0x1000);
        let actions: DpActions = if DpPort(upcall.key.in_port().0) == IN {
            [Field::IpProto, Field::IpFrag, Field::EthDst, Field::Ipv4Dst, Field::UdpDst]
                .iter()
                .for_each(|field| reads.note_field(*field));
            [DpAction::TunnelPop(TunnelPop::of(TUNNELS))].into()
        } else {
            [Field::TunId, Field::TunSrc, Field::IpFrag].iter().for_each(|field| reads.note_field(*field));
            for (word, value) in self.of_options.0.iter().enumerate() {
                reads.note(word, if *value == 0 { 0 } else { u64::MAX });
            }
            // The bits of congestion notification, inner and outer.
            reads.note(layout::TUN_ATTR, 3 << 40);
            [DpAction::Output(OUT)].into()
        };
        let id = FlowId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let flow = DpFlow::new(upcall.key, reads.order(), Arc::clone(&actions), 0);
        UpcallReply { actions, install: Some((id, flow)) }
    }

    fn controller(&self, _port: DpPort, _what: &ControllerUpcall, _packet: &Packet) {}

    fn flow_gone(&self, _id: FlowId, _stats: DpFlowStats) {}
}
