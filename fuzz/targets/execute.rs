//! Any frame through any list of datapath actions: it is sent or not, and correct checksums stay correct.
#![no_main]

use base::{Clock, DpPort, DropReason, MacAddr, PortNo};
use datapath::{Config, Datapath};
use dpif::action::PushNsh;
use dpif::text::format_actions;
use dpif::{BondId, BondTable, Bonds, DpAction, Dpif, LB_BUCKETS, MeterId};
use flow::{compose, extract};
use fuzz::Input;
use netdev::{Netdev, Rx};
use packet::checksum::{Verdict, verify};
use packet::wire::NshRepr;
use packet::{Checksum, Packet};
use std::cell::RefCell;
use std::sync::Arc;

/// A datapath with three ports, and the far ends of their wires.
struct Bench {
    datapath: Datapath,
    far: Vec<Box<dyn Rx>>,
}

fn bench() -> Bench {
    let datapath = Datapath::new(Config { threads: 0, ..Config::default() }, Clock::real()).expect("no threads");
    let mut far = Vec::new();
    for name in ["a", "b", "c"] {
        let (near, end) = netdev::memory::pair(name, &format!("{name}-far")).expect("descriptors");
        datapath.port_add(near, None).expect("a free number");
        far.push(end.open_rx(0).expect("a queue"));
    }
    // The buckets name each of the three ports, a port that does not exist, and no port.
    let port = |bucket: usize| (bucket % 5 < 4).then_some(DpPort((bucket % 5) as u32));
    datapath.bond_set(
        BondId(1),
        &BondTable { hash_basis: 7, buckets: Box::new(std::array::from_fn::<_, LB_BUCKETS, _>(port)) },
    );
    Bench { datapath, far }
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(bench());
}

fuzz::target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let raw = input.frame();
    let (key, _) = extract(raw, PortNo(1));
    // The raw frame, or a valid one of the same kind.
    let frame = if input.below(2) == 0 || key.eth_type() == 0 { raw.to_vec() } else { compose(&key, b"payload") };
    let mut packet = Packet::from_slice(&frame);
    packet.offload.checksum = match input.below(3) {
        0 => Checksum::Unknown,
        1 => Checksum::Good,
        _ => Checksum::Partial { start: input.number(1) as u16, offset: input.number(1) as u16 },
    };
    let partial = matches!(packet.offload.checksum, Checksum::Partial { .. });
    let actions: Arc<[DpAction]> = list(&mut input, 3).into();
    format_actions(&actions, key.eth_type(), &|_| None);
    let sent = BENCH.with_borrow_mut(|bench| {
        let _ = bench.datapath.execute(DpPort(1), packet, &actions);
        let mut sent = Vec::new();
        for rx in &mut bench.far {
            rx.recv_batch(&mut sent, usize::MAX).expect("memory");
        }
        sent
    });
    if !partial && verify(&frame) == Verdict::Good && !spoils(&actions) {
        for packet in sent {
            assert!(verify(packet.data()) != Verdict::Bad, "{frame:02x?} {actions:?} {:02x?}", packet.data());
        }
    }
});

/// Returns true if an action truncates a packet or changes its type, so that its checksums are no longer correct.
fn spoils(actions: &[DpAction]) -> bool {
    actions.iter().any(|action| match action {
        DpAction::Trunc(_) | DpAction::PopMpls { .. } | DpAction::PopPbb | DpAction::PopNsh => true,
        other => other.nested().any(|inner| spoils(inner)),
    })
}

fn list(input: &mut Input<'_>, depth: usize) -> Vec<DpAction> {
    (0..input.below(8)).map(|_| action(input, depth)).collect()
}

fn action(input: &mut Input<'_>, depth: usize) -> DpAction {
    match input.below(25) {
        0 => DpAction::Output(DpPort(input.below(4) as u32)),
        1 => DpAction::Trunc(input.number(2) as u32),
        2 => DpAction::PushVlan { tpid: [0x8100, 0x88a8][input.below(2)], tci: input.number(2) as u16 },
        3 => DpAction::PopVlan,
        4 if depth > 0 => DpAction::Clone(list(input, depth - 1).into()),
        5 => DpAction::Drop(DropReason::Action),
        6 => DpAction::PushMpls { ethertype: [0x8847, 0x8848][input.below(2)], lse: input.number(4) as u32 },
        8 if depth > 0 => DpAction::CheckPktLen {
            size: input.number(2) as u16,
            greater: list(input, depth - 1).into(),
            lesser: list(input, depth - 1).into(),
        },
        9 if depth > 0 => DpAction::Sample {
            probability: [0, 1 << 31, u32::MAX][input.below(3)],
            actions: list(input, depth - 1).into(),
        },
        11 => DpAction::PopEth,
        12 => DpAction::PushEth { dst: MacAddr([1; 6]), src: MacAddr([2; 6]) },
        13 => DpAction::PopNsh,
        14 => {
            let header = NshRepr { mdtype: 1 + input.below(2) as u8, ttl: 63, ..NshRepr::default() };
            DpAction::PushNsh(Arc::new(PushNsh { header, tlvs: vec![0; 4 * input.below(3)] }))
        }
        15 => DpAction::AddMpls { ethertype: 0x8847, lse: input.number(4) as u32 },
        16 => DpAction::PushPbb { tci: input.number(4) as u32 },
        17 => DpAction::PopPbb,
        18 => DpAction::LbOutput(BondId(input.below(2) as u32)),
        10 => DpAction::Meter(MeterId(input.below(2) as u32)),
        7 => DpAction::PopMpls { ethertype: [0x8847, 0x800, 0x86dd][input.below(3)] },
        _ => {
            let (field, value, mask) = input.masked();
            DpAction::Set { field, value, mask }
        }
    }
}
