//! The cost of an output by a bond: `bond [MILLISECONDS]` plays packets of 1,024 connections, which take one flow, from memory
//! through a datapath, on this thread, and prints a line of JSON with the nanoseconds a packet: for an output to a port
//! (`output`), for `lb_output` to a bond of two or four members (`lb_2`, `lb_4`) and of two of which one has all buckets
//! (`lb_1`), and for a hash and recirculation (`recirc`). `keyed` is the same without the last-flow cache: the ports of
//! packets are part of the flows.
//!
//! `bond WHICH SLICES` does one of the runs with a fixed amount of work, for `perf stat` or `valgrind --tool=callgrind`.

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Clock, DpPort};
use datapath::{Config, Datapath};
use dpif::{
    BondId, BondTable, Bonds, ControllerUpcall, DpAction, DpFlow, DpFlowStats, FlowId, HashKind, LB_BUCKETS, Upcall,
    UpcallHandler, UpcallReply,
};
use flow::{Field, Reads, layout};
use netdev::memory;
use packet::Packet;

use support::{SLICE, frame, slice};

const BOND: BondId = BondId(1);

/// How packets leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Output,
    /// A bond of so many members, which have the same number of buckets.
    Lb(u32),
    Recirc,
}

#[derive(Debug)]
struct Handler {
    way: Way,
    /// Flows match the source port.
    keyed: bool,
    next_id: AtomicU64,
}

impl UpcallHandler for Handler {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let mut reads = Reads::new();
        reads.note(layout::PORTS, u64::MAX);
        reads.note(layout::ETH_DST, u64::MAX);
        if self.keyed {
            reads.note_field(Field::IpProto);
            reads.note_field(Field::IpFrag);
            reads.note(layout::TP, 0x8000 << 48);
        }
        let is_second = upcall.key.get(Field::RecircId) != 0;
        let actions = match self.way {
            Way::Output => vec![DpAction::Output(DpPort(2))],
            Way::Lb(_) => vec![DpAction::LbOutput(BOND)],
            Way::Recirc if is_second => {
                reads.note(layout::DPHASH_ACTSET, 0xff << 32);
                vec![DpAction::Output(DpPort(2 + upcall.key.get(Field::DpHash) as u32 % 2))]
            }
            Way::Recirc => vec![DpAction::Hash(HashKind::L4, 0), DpAction::Recirc(1)],
        };
        let id = FlowId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let flow = DpFlow::new(upcall.key, reads.order(), actions.clone().into(), 0);
        UpcallReply { actions: actions.into(), install: Some((id, flow)) }
    }

    fn controller(&self, _port: DpPort, _what: &ControllerUpcall, _packet: &Packet) {}

    fn flow_gone(&self, _id: FlowId, _stats: DpFlowStats) {}
}

fn prepared((way, keyed): (Way, bool)) -> Result<Datapath, Box<dyn std::error::Error>> {
    let frames: Vec<Packet> =
        (0..1024u32).map(|i| frame(0x0a00_0000 + i, 0x0b00_0000 + i * 7, (i * 64) as u16, 2000)).collect();
    let dp = Datapath::new(Config { threads: 0, ..Config::default() }, Clock::real())?;
    dp.set_microflow_inverse_probability(0);
    dp.set_handler(Arc::new(Handler { way, keyed, next_id: AtomicU64::new(1) }));
    dp.port_add(memory::replay("in", &frames, u64::MAX), Some(DpPort(1)))?;
    for n in 2..6 {
        dp.port_add(memory::null(&format!("out{n}"))?, Some(DpPort(n)))?;
    }
    if let Way::Lb(members) = way {
        let port = |bucket: usize| Some(DpPort(2 + bucket as u32 % members));
        let buckets: [Option<DpPort>; LB_BUCKETS] = std::array::from_fn(port);
        dp.bond_set(BOND, &BondTable { hash_basis: 0, buckets: Box::new(buckets) });
    }
    slice(&dp, 8 * SLICE);
    Ok(dp)
}

/// Nanoseconds a packet, of the cheapest slice of each datapath. They take turns, so that a change of the processor's frequency
/// concerns all of them.
fn measure(datapaths: &[Datapath], ms: u64) -> Vec<f64> {
    let (begin, mut best) = (Instant::now(), vec![f64::MAX; datapaths.len()]);
    while begin.elapsed() < Duration::from_millis(ms) {
        for (dp, best) in datapaths.iter().zip(&mut best) {
            slice(dp, SLICE);
            let start = Instant::now();
            slice(dp, SLICE);
            *best = best.min(start.elapsed().as_nanos() as f64 / SLICE as f64);
        }
    }
    best
}

const RUNS: [(&str, (Way, bool)); 10] = [
    ("output", (Way::Output, false)),
    ("lb_1", (Way::Lb(1), false)),
    ("lb_2", (Way::Lb(2), false)),
    ("lb_4", (Way::Lb(4), false)),
    ("recirc", (Way::Recirc, false)),
    ("keyed_output", (Way::Output, true)),
    ("keyed_lb_1", (Way::Lb(1), true)),
    ("keyed_lb_2", (Way::Lb(2), true)),
    ("keyed_lb_4", (Way::Lb(4), true)),
    ("keyed_recirc", (Way::Recirc, true)),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [which, slices] = &args[..] {
        let (_, run) = RUNS.iter().find(|(name, _)| name == which).ok_or("no such run")?;
        let dp = prepared(*run)?;
        slice(&dp, slices.parse::<usize>()? * SLICE);
        return Ok(());
    }
    let ms = args.first().map_or(Ok(2000), |ms| ms.parse())?;
    let datapaths = RUNS.iter().map(|(_, run)| prepared(*run)).collect::<Result<Vec<_>, _>>()?;
    let ns = measure(&datapaths, ms);
    let members: Vec<String> = RUNS.iter().zip(&ns).map(|((name, _), ns)| format!("\"{name}_ns\": {ns:.2}")).collect();
    println!("{{{}}}", members.join(", "));
    Ok(())
}
