//! Packets that leave and enter tunnels, as `bench/run tunnels` sends them, without a switch: `vxlan-N` and `geneve-N` from N
//! remotes, `to-vxlan-N` and `to-geneve-N` to them. Received, a flow of the port pops the outer headers, and each tunnel has
//! a flow for its packets; sent, each destination has a flow with the headers of its tunnel.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{DpPort, MacAddr};
use datapath::Datapath;
use dpif::{
    ControllerUpcall, DpAction, DpActions, DpFlow, DpFlowStats, DpifError, FlowId, TunnelPop, TunnelPush, Upcall,
    UpcallHandler, UpcallReply,
};
use flow::{Field, FlowKey, OptionPlace, PlacedOption, Reads, ReceivedOptions, layout};
use netdev::Queueless;
use packet::Packet;
use packet::checksum::Sum;
use tunnel::header::geneve::Geneve;
use tunnel::header::vxlan::Vxlan;
use tunnel::header::{Encapsulation, OuterIp, Pop, Push, Template, Udp};

use super::frame;

/// The port that receives, the one that discards, and the tunnels'.
const IN: DpPort = DpPort(1);
const OUT: DpPort = DpPort(2);
const TUNNELS: DpPort = DpPort(3);

/// The first inner destination address.
const INNER: u32 = 0x0b00_0000;

/// An option of class 0x0102 and type 3 with four bytes.
const OPTION: [u8; 8] = [0x01, 0x02, 3, 1, 0xde, 0xad, 0xbe, 0xef];

/// A workload: packets that leave or enter tunnels of a type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tunnels {
    pop: Pop,
    enters: bool,
    remotes: u32,
}

impl Tunnels {
    /// The workload of this name.
    pub(crate) fn named(workload: &str) -> Option<Self> {
        let (name, n) = workload.rsplit_once('-')?;
        let (enters, name) = name.strip_prefix("to-").map_or((false, name), |name| (true, name));
        let pop = match name {
            "vxlan" => Pop::Vxlan { group_policy: false },
            "geneve" => Pop::Geneve,
            _ => return None,
        };
        Some(Self { pop, enters, remotes: n.parse().ok().filter(|n| (1..=1_000_000).contains(n))? })
    }

    /// Its packets, in a random order.
    pub(crate) fn frames(self) -> Vec<Packet> {
        let mut rng = base::rng::Rng::seeded(1);
        let of = |i: u32| if self.enters { inner(i) } else { outer(self.pop, i) };
        let mut frames: Vec<_> = (0..self.remotes.max(4096)).map(|i| of(i % self.remotes)).collect();
        for i in (1..frames.len()).rev() {
            frames.swap(i, rng.below(i as u64 + 1) as usize);
        }
        frames
    }

    /// Adds the port of the tunnels, and the handler of misses.
    pub(crate) fn prepare(self, dp: &Datapath) -> Result<(), DpifError> {
        let device = Arc::new(Queueless::new("tunnel_sys", "tunnel", MacAddr::ZERO));
        dp.tunnel_add(device, self.pop, Some(TUNNELS))?;
        let mut of_options = FlowKey::ZERO;
        if self.pop == Pop::Geneve {
            dp.set_tunnel_options(Arc::new(known()));
            known().put(&mut of_options, &OPTION);
        }
        dp.set_handler(Arc::new(Handler { what: self, of_options, next_id: AtomicU64::new(1) }));
        Ok(())
    }
}

fn inner(i: u32) -> Packet {
    frame(0x0a00_0000 + i, INNER + i, 1000, 2000)
}

fn outer(pop: Pop, i: u32) -> Packet {
    let key = (100 + i) << 8;
    let (port, header) = match pop {
        Pop::Geneve => (6081u16, [&[2, 0, 0x65, 0x58][..], &key.to_be_bytes(), &OPTION].concat()),
        _ => (4789, [[8, 0, 0, 0], key.to_be_bytes()].concat()),
    };
    let payload = [&header[..], inner(i).data()].concat();
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

/// The action that sends packets to a remote.
fn push(pop: Pop, i: u32) -> DpAction {
    let ip = OuterIp::V4 {
        src: Ipv4Addr::new(192, 0, 2, 1),
        dst: Ipv4Addr::from(0xc0a8_0000 + i),
        tos: 0,
        ttl: 64,
        dont_fragment: true,
    };
    let udp = |dst| Udp { src: 0, dst, checksum: false };
    let tunnel = match pop {
        Pop::Geneve => Encapsulation::Geneve(udp(6081), Geneve { vni: 100 + i, oam: false, options: OPTION.into() }),
        _ => Encapsulation::Vxlan(udp(4789), Vxlan::new(100 + i)),
    };
    let push =
        Push { eth_src: MacAddr([2, 0, 0, 0, 0, 1]), eth_dst: MacAddr([2, 0, 0, 0, 0, 2]), vlan: None, ip, tunnel };
    let template = Template::new(push).expect("valid headers");
    DpAction::TunnelPush(Arc::new(TunnelPush { port: TUNNELS, out_port: DpPort(9), template, in_key: None }))
}

/// Pops the outer headers of packets of the port that receives, and forwards packets of tunnels; or pushes them.
#[derive(Debug)]
struct Handler {
    what: Tunnels,
    /// Words that are not zero are read.
    of_options: FlowKey,
    next_id: AtomicU64,
}

impl UpcallHandler for Handler {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let mut reads = Reads::new();
        reads.note(layout::PORTS, u64::MAX);
        reads.note(layout::ETH_DST, 0xffff);
        reads.note(layout::ETH_SRC, 0x1000);
        let actions: DpActions = if self.what.enters {
            [Field::Ipv4Dst, Field::IpFrag, Field::IpEcn].iter().for_each(|field| reads.note_field(*field));
            let i = upcall.key.get(Field::Ipv4Dst) as u32 - INNER;
            [push(self.what.pop, i), DpAction::Output(OUT)].into()
        } else if DpPort(upcall.key.in_port().0) == IN {
            [Field::IpProto, Field::IpFrag, Field::EthDst, Field::Ipv4Dst, Field::UdpDst]
                .iter()
                .for_each(|field| reads.note_field(*field));
            [DpAction::TunnelPop(TunnelPop::of(TUNNELS))].into()
        } else {
            [Field::TunId, Field::TunSrc, Field::IpFrag].iter().for_each(|field| reads.note_field(*field));
            for (word, value) in self.of_options.0.iter().enumerate() {
                reads.note(word, if *value == 0 { 0 } else { u64::MAX });
            }
            // The bits of congestion notification of the outer header.
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
