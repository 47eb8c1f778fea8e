//! The cost of recirculation: `passes [MILLISECONDS]` plays labelled packets from memory through a datapath, on this
//! thread, and prints a line of JSON. In the first run one flow pops the MPLS label, computes the hash of the packet,
//! and sends it; in the second run the same work takes three passes, as after a translation: the first pops the
//! label, the second computes the hash of the IP packet under it, and the third selects a bucket by the hash. `ratio`
//! is the cost of three passes divided by that of one.
//!
//! `passes one SLICES` or `passes three SLICES` does one of the runs with a fixed amount of work, for `perf stat` or
//! `valgrind --tool=callgrind`.

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Clock, DpPort};
use datapath::{Config, Datapath};
use dpif::{
    ControllerUpcall, DpAction, DpActions, DpFlow, DpFlowStats, FlowId, HashKind, Upcall, UpcallHandler, UpcallReply,
};
use flow::{Field, Reads, layout};
use netdev::memory;
use packet::Packet;

use support::{SLICE, frame, slice};

const LABELS: u32 = 16;
const OUT: DpAction = DpAction::Output(DpPort(2));

/// A verdict for each pass.
#[derive(Debug)]
struct Passes {
    lists: Vec<DpActions>,
    next_id: AtomicU64,
}

impl UpcallHandler for Passes {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let mut reads = Reads::new();
        reads.note(layout::PORTS, u64::MAX);
        reads.note(layout::ETH_DST, 0xffff);
        let pass = upcall.key.get(Field::RecircId) as usize;
        match pass {
            0 => reads.note_field(Field::MplsLabel),
            1 => reads.note_field(Field::IpFrag),
            _ => reads.note(layout::DPHASH_ACTSET, 0xf << 32),
        }
        let actions = self.lists[pass.min(self.lists.len() - 1)].clone();
        let id = FlowId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let flow = DpFlow::new(upcall.key, reads.order(), actions.clone(), 0);
        UpcallReply { actions, install: Some((id, flow)) }
    }

    fn controller(&self, _port: DpPort, _what: &ControllerUpcall, _packet: &Packet) {}

    fn flow_gone(&self, _id: FlowId, _stats: DpFlowStats) {}
}

/// Returns a datapath whose packets take `lists`, one in each pass, ready to be measured.
fn prepared(lists: &[&[DpAction]]) -> Result<Datapath, Box<dyn std::error::Error>> {
    let frames: Vec<Packet> = (0..1024u32)
        .map(|i| {
            let mut packet = frame(0x0a00_0000 + i, 0x0b00_0000 + i * 7, 1000 + i as u16, 2000);
            packet.insert(14, 4).copy_from_slice(&((16 + i % LABELS) << 12 | 0x140).to_be_bytes());
            packet.data_mut()[12..14].copy_from_slice(&[0x88, 0x47]);
            packet
        })
        .collect();
    let dp = Datapath::new(Config { threads: 0, ..Config::default() }, Clock::real())?;
    dp.set_microflow_inverse_probability(0);
    let lists = lists.iter().map(|list| (*list).into()).collect();
    dp.set_handler(Arc::new(Passes { lists, next_id: AtomicU64::new(1) }));
    dp.port_add(memory::replay("in", &frames, u64::MAX), None)?;
    dp.port_add(memory::null("out")?, None)?;
    slice(&dp, 8 * SLICE);
    Ok(dp)
}

/// Nanoseconds a packet, of the cheapest slice.
fn measure(dp: &Datapath, ms: u64) -> f64 {
    let (begin, mut best) = (Instant::now(), f64::MAX);
    while begin.elapsed() < Duration::from_millis(ms) {
        let start = Instant::now();
        slice(dp, SLICE);
        best = best.min(start.elapsed().as_nanos() as f64 / SLICE as f64);
    }
    best
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pop = DpAction::PopMpls { ethertype: 0x800 };
    let hash = DpAction::Hash(HashKind::L4, 0);
    let one: &[&[DpAction]] = &[&[pop.clone(), hash.clone(), OUT]];
    let three: &[&[DpAction]] = &[&[pop, DpAction::Recirc(1)], &[hash, DpAction::Recirc(2)], &[OUT]];
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [which, slices] = &args[..] {
        let dp = prepared(if which == "one" { one } else { three })?;
        slice(&dp, slices.parse::<usize>()? * SLICE);
        return Ok(());
    }
    let ms = args.first().map_or(Ok(1000), |ms| ms.parse())?;
    let (one, three) = (measure(&prepared(one)?, ms), measure(&prepared(three)?, ms));
    println!("{{\"one_ns\": {one:.1}, \"three_ns\": {three:.1}, \"ratio\": {:.2}}}", three / one);
    Ok(())
}
