//! Measures the cost of a flow set-up on a single thread: `setups PCAP FLOWS [PACKETS]`. Reads flows in the format of
//! `ovs-ofctl add-flows`, sends each packet of the capture file once into port 1, and prints a line of JSON:
//! set-ups per second, the number of megaflows, and the memory of each in bytes.

mod common;

use common::Bench;
use datapath::Config;
use dpif::Dpif;
use netdev::pcap;
use serde_json::json;
use std::time::Duration;

/// Packets in memory at once.
const CHUNK: usize = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [pcap, flows, rest @ ..] = &words[..] else { return Err("usage: setups PCAP FLOWS [PACKETS]".into()) };
    let packets = rest.first().map_or(Ok(usize::MAX), |word| word.parse())?;
    let mut bench = Bench::new(Config::default(), 2, 1 << 24)?;
    for line in std::fs::read_to_string(flows)?.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
        bench.flow(line)?;
    }
    let mut reader = pcap::Reader::open(pcap)?;
    bench.busy = Duration::ZERO;
    while (bench.packets as usize) < packets {
        let mut chunk = Vec::with_capacity(CHUNK);
        while chunk.len() < CHUNK
            && let Some(record) = reader.next_record()?
        {
            chunk.push(record.frame);
        }
        if chunk.is_empty() {
            break;
        }
        bench.send(1, &mut chunk.into_iter());
    }
    let stats = bench.dp.stats();
    let line = json!({
        "packets": bench.packets,
        "set_ups_per_second": (stats.missed as f64 / bench.busy.as_secs_f64()) as u64,
        "megaflows": stats.flows,
        "remembered_bytes_per_megaflow": bench.switch.remembered_bytes() as u64 / stats.flows.max(1),
        "forwarded": bench.received,
    });
    println!("{line}");
    Ok(())
}
