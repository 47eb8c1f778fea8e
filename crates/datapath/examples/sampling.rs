//! The cost of sampling: `sampling [MILLISECONDS]` plays packets from memory through a datapath, on this thread, and prints a
//! line of JSON with the nanoseconds a packet: of a flow that outputs, and of the same with samples of one packet in
//! 1,000, in 100 and in 10 for collectors of sFlow (the handler drops the samples).

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Clock, DpPort};
use datapath::{Config, Datapath};
use dpif::{
    Collectors, ControllerUpcall, DpAction, DpActions, DpFlow, DpFlowStats, FlowId, Observe, Upcall, UpcallHandler,
    UpcallReply,
};
use flow::{Reads, layout};
use netdev::memory;
use packet::Packet;

use support::{SLICE, frame, slice};

const OUT: DpAction = DpAction::Output(DpPort(2));

/// One verdict for all packets.
#[derive(Debug)]
struct Sampled {
    actions: DpActions,
    samples: AtomicU64,
}

impl UpcallHandler for Sampled {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let mut reads = Reads::new();
        reads.note(layout::PORTS, u64::MAX);
        reads.note(layout::ETH_DST, 0xffff);
        let flow = DpFlow::new(upcall.key, reads.order(), self.actions.clone(), 0);
        UpcallReply { actions: self.actions.clone(), install: Some((FlowId(1), flow)) }
    }

    fn controller(&self, _port: DpPort, _what: &ControllerUpcall, _packet: &Packet) {}

    fn observe(&self, _port: DpPort, _what: &Observe, _packet: &Packet) {
        self.samples.fetch_add(1, Ordering::Relaxed);
    }

    fn flow_gone(&self, _id: FlowId, _stats: DpFlowStats) {}
}

/// The actions of a flow of which one packet in `n` is sampled.
fn sampled(n: u32) -> DpActions {
    let collectors = Collectors::Sflow(Arc::default());
    let report =
        DpAction::Observe(Observe { bridge: 1, collectors, output: None, tunnel: None, forwarded: true }.into());
    [DpAction::Sample { probability: u32::MAX / n, actions: [report].into() }, OUT].into()
}

/// Nanoseconds a packet, of the middle slice.
fn measure(actions: DpActions, ms: u64) -> Result<f64, Box<dyn std::error::Error>> {
    let frames: Vec<Packet> = (0..1024u32).map(|i| frame(0x0a00_0000 + i, 0x0b00_0000 + i * 7, 1000, 2000)).collect();
    let dp = Datapath::new(Config { threads: 0, ..Config::default() }, Clock::real())?;
    dp.set_handler(Arc::new(Sampled { actions, samples: AtomicU64::new(0) }));
    dp.port_add(memory::replay("in", &frames, u64::MAX), None)?;
    dp.port_add(memory::null("out")?, None)?;
    slice(&dp, 8 * SLICE);
    let (begin, mut slices) = (Instant::now(), Vec::new());
    while begin.elapsed() < Duration::from_millis(ms) {
        let start = Instant::now();
        slice(&dp, SLICE);
        slices.push(start.elapsed().as_nanos() as f64 / SLICE as f64);
    }
    slices.sort_by(f64::total_cmp);
    Ok(slices[slices.len() / 2])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ms = std::env::args().nth(1).map_or(Ok(1000), |ms| ms.parse())?;
    let plain = measure([OUT].into(), ms)?;
    let mut line = format!("{{\"plain_ns\": {plain:.1}");
    for n in [1000, 100, 10] {
        let ns = measure(sampled(n), ms)?;
        line += &format!(", \"one_in_{n}_ns\": {ns:.1}");
    }
    println!("{line}}}");
    Ok(())
}
