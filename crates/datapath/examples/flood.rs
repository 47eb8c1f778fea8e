//! How a flood of misses on one port affects flow set-ups of another: `flood [SECONDS] [FLOWS_A_SECOND] [MISS_US]`
//! offers packets of FLOWS_A_SECOND new flows a second to one port, first alone and then while another port offers
//! new flows as fast as the datapath takes them, and prints a line of JSON. A translation takes MISS_US microseconds.

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Clock, DpPort};
use datapath::{Config, Datapath};
use dpif::{ControllerUpcall, DpFlowStats, Dpif, FlowId, Upcall, UpcallHandler, UpcallReply};
use flow::Field;
use netdev::{Netdev, memory};
use packet::{Batch, Packet};

use support::{Forward, fields, frame};

/// Forwards like any other handler, takes a fixed time for each miss, and counts misses by port.
#[derive(Debug)]
struct Slow {
    forward: Arc<Forward>,
    takes: Duration,
    answered: [AtomicU64; 4],
}

impl UpcallHandler for Slow {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let start = Instant::now();
        let port = upcall.port.0 as usize;
        let reply = self.forward.miss(upcall);
        while start.elapsed() < self.takes {
            std::hint::spin_loop();
        }
        if let Some(answered) = self.answered.get(port) {
            answered.fetch_add(1, Ordering::Relaxed);
        }
        reply
    }

    fn controller(&self, _port: DpPort, _what: &ControllerUpcall, _packet: &Packet) {}

    fn flow_gone(&self, _id: FlowId, _stats: DpFlowStats) {}
}

/// Offers new flows to port 1 for some time. Returns the number of flows offered and of flows set up.
fn offer(dp: &Datapath, wire: &memory::Memory, handler: &Slow, rate: f64, time: Duration) -> (u64, u64) {
    let mut tx = wire.open_tx().expect("a wire opens");
    let before = handler.answered[1].load(Ordering::Relaxed);
    let (start, mut offered) = (Instant::now(), 0u64);
    while start.elapsed() < time {
        let due = (start.elapsed().as_secs_f64() * rate) as u64;
        let mut batch: Batch = (offered..due).map(|n| frame(n as u32, 1, 1000, 2000)).collect();
        offered = due.max(offered);
        tx.send_batch(&mut batch);
        std::thread::sleep(Duration::from_micros(200));
    }
    let answered = handler.answered[1].load(Ordering::Relaxed) - before;
    let flows: Vec<FlowId> = dp.flow_dump().iter().map(|e| e.id).collect();
    flows.into_iter().for_each(|id| _ = dp.flow_del(id));
    (offered, answered)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let seconds: f64 = args.next().map_or(Ok(2.0), |s| s.parse())?;
    let rate: f64 = args.next().map_or(Ok(10_000.0), |s| s.parse())?;
    let miss_us: u64 = args.next().map_or(Ok(20), |s| s.parse())?;
    let read = fields(&[Field::Ipv4Src, Field::Ipv4Dst]);
    let config = Config { flow_limit: 10_000_000, handlers: 1, ..Config::default() };
    let dp = Datapath::new(config, Clock::real())?;
    let handler = Arc::new(Slow {
        forward: Forward::to(DpPort(2), read),
        takes: Duration::from_micros(miss_us),
        answered: Default::default(),
    });
    dp.set_handler(handler.clone());
    let (near, far) = memory::pair("near", "far")?;
    dp.port_add(near, Some(DpPort(1)))?;
    dp.port_add(memory::null("out")?, Some(DpPort(2)))?;
    let time = Duration::from_secs_f64(seconds);
    let (offered, alone) = offer(&dp, &far, &handler, rate, time);
    let flood: Vec<_> = (0..1_000_000).map(|n| frame(n, 2, 1000, 2000)).collect();
    dp.port_add(memory::replay("flood", &flood, u64::MAX), Some(DpPort(3)))?;
    let (offered_then, under_flood) = offer(&dp, &far, &handler, rate, time);
    let stats = dp.upcall_stats();
    let of = |port: u32| stats.ports.iter().find(|(p, _)| p.0 == port).map_or_else(Default::default, |(_, s)| *s);
    let per_second = |n: u64| n as f64 / seconds;
    println!(
        "{{\"offered_per_second\": {:.0}, \"alone_per_second\": {:.0}, \"under_flood_per_second\": {:.0}, \"kept\": {:.3}, \
         \"flood_per_second\": {:.0}, \"flood_answered_per_second\": {:.0}, \"dropped\": {}}}",
        per_second(offered),
        per_second(alone),
        per_second(under_flood),
        under_flood as f64 / offered_then as f64 * offered as f64 / alone as f64,
        per_second(of(3).queued + of(3).dropped),
        per_second(of(3).served),
        of(1).dropped,
    );
    Ok(())
}
