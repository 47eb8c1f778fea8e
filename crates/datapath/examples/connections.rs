//! The cost of a tracked packet in the datapath alone: `connections WHAT [N] [MILLISECONDS]` plays data packets of N
//! established TCP connections, both directions in turn, from memory through a datapath into a port that discards them, on
//! this thread, and prints a line of JSON.
//!
//! WHAT: `plain` (the same packets without the tracker), `one` (a zone), `nat` (a zone, with the source translated),
//! `three` (three zones, the second of which translates). `SLICES=...` instead of a time sets a fixed amount of work, for
//! `perf stat` or `valgrind --tool=callgrind`; `CPU=...` pins the thread.

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Clock, DpPort};
use conntrack::{Action, Commit, Nat, NatKind, state};
use datapath::{Config, Datapath};
use dpif::{
    ControllerUpcall, DpAction, DpActions, DpFlow, DpFlowStats, Dpif, FlowId, Upcall, UpcallHandler, UpcallReply,
};
use flow::{Field, Reads, layout};
use netdev::memory;
use packet::Packet;
use packet::checksum::{checksum, pseudo_v4};
use rustix::thread::{CpuSet, sched_setaffinity};

use support::{SLICE, slice, times};

const SYN: u16 = 0x02;
const ACK: u16 = 0x10;
const PSH: u16 = 0x08;

/// The public address of translated clients.
const PUBLIC: [u8; 4] = [198, 51, 100, 1];
const SERVER: [u8; 4] = [192, 0, 2, 1];

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

fn tcp(src: ([u8; 4], u16), dst: ([u8; 4], u16), seq: u32, ack: u32, flags: u16, payload: usize) -> Packet {
    let mut segment = [&src.1.to_be_bytes()[..], &dst.1.to_be_bytes(), &seq.to_be_bytes(), &ack.to_be_bytes()].concat();
    segment.extend((0x5000 | flags).to_be_bytes());
    segment.extend([0xff, 0xff, 0, 0, 0, 0]);
    segment.resize(20 + payload, 0x55);
    let sum = pseudo_v4(src.0, dst.0, 6, segment.len() as u16).bytes(&segment).finish();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0];
    ip[2..4].copy_from_slice(&(20 + segment.len() as u16).to_be_bytes());
    ip.extend([src.0, dst.0].concat());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    Packet::from_slice(&[&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &ip, &segment].concat())
}

/// A pipeline of the zones in this order: packets without a connection are committed in each.
struct Pipeline {
    zones: Vec<(u16, bool)>,
    next_id: AtomicU64,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pipeline")
    }
}

impl Pipeline {
    fn action(&self, at: usize, commit: bool) -> DpAction {
        let (zone, translates) = self.zones[at];
        let address = u64::from(u32::from_be_bytes(PUBLIC));
        let nat = translates.then(|| Nat {
            kind: commit.then_some(NatKind::Src),
            addresses: commit.then_some(([0, address], [0, address], false)),
            ..Nat::default()
        });
        DpAction::Ct(Arc::new(Action { zone, commit: commit.then_some(Commit::Plain), nat, ..Action::default() }))
    }

    fn actions(&self, pass: usize, is_new: bool) -> Vec<DpAction> {
        let mut actions = Vec::new();
        if is_new && pass > 0 {
            actions.push(self.action(pass - 1, true));
        }
        if pass < self.zones.len() {
            actions.extend([self.action(pass, false), DpAction::Recirc(pass as u32 + 1)]);
        } else {
            actions.push(DpAction::Output(DpPort(2)));
        }
        actions
    }
}

impl UpcallHandler for Pipeline {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let mut reads = Reads::new();
        reads.note(layout::PORTS, u64::MAX);
        reads.note(layout::ETH_DST, 0xffff);
        reads.note_field(Field::IpFrag);
        let pass = upcall.key.get(Field::RecircId) as usize;
        let ct_state = upcall.key.get(Field::CtState) as u32;
        if pass > 0 {
            reads.note(layout::CT, u64::from(state::NEW | state::EST | state::TRK | state::INV) << 32);
        }
        let actions = DpActions::from(self.actions(pass, ct_state & state::NEW != 0));
        let id = FlowId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let flow = DpFlow::new(upcall.key, reads.order(), Arc::clone(&actions), 0);
        UpcallReply { actions, install: Some((id, flow)) }
    }

    fn controller(&self, _port: DpPort, _what: &ControllerUpcall, _packet: &Packet) {}

    fn flow_gone(&self, _id: FlowId, _stats: DpFlowStats) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_else(|| "one".to_owned());
    let n: u32 = args.next().map_or(Ok(1000), |n| n.parse())?;
    let ms = args.next().map_or(Ok(1000), |ms| ms.parse())?;
    if let Some(cpu) = variable("CPU") {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set)?;
    }
    let zones = match &what[..] {
        "plain" => vec![],
        "one" => vec![(1, false)],
        "nat" => vec![(1, true)],
        "three" => vec![(1, false), (2, true), (3, false)],
        other => return Err(format!("{other}: neither plain, one, nat nor three").into()),
    };
    let translates = zones.iter().any(|(_, translates)| *translates);
    let dp = Datapath::new(Config { threads: 0, ..Config::default() }, Clock::real())?;
    let pipeline = Arc::new(Pipeline { zones, next_id: AtomicU64::new(1) });
    dp.set_handler(pipeline.clone());
    dp.port_add(memory::null("in")?, Some(DpPort(1)))?;
    dp.port_add(memory::null("out")?, Some(DpPort(2)))?;

    // Ports of translated clients stay as they are.
    let client = |i: u32| {
        let address = if translates { 0x0a00_0000 } else { 0x0a00_0000 + i / 50_000 };
        (address.to_be_bytes(), 1024 + (i % 50_000) as u16)
    };
    let seen = |i: u32| if translates { (PUBLIC, client(i).1) } else { client(i) };
    let server = (SERVER, 80);
    let first = DpActions::from(pipeline.actions(0, false));
    let mut frames = Vec::new();
    for i in 0..n {
        let opening = [
            tcp(client(i), server, 0, 0, SYN, 0),
            tcp(server, seen(i), 0, 1, SYN | ACK, 0),
            tcp(client(i), server, 1, 1, ACK, 0),
        ];
        for packet in opening {
            dp.execute(DpPort(1), packet, &first)?;
        }
        frames.push(tcp(client(i), server, 1, 1, ACK | PSH, 6));
        frames.push(tcp(server, seen(i), 1, 1, ACK | PSH, 6));
    }
    dp.port_add(memory::replay("play", &frames, u64::MAX), Some(DpPort(3)))?;

    let mut missed = u64::MAX;
    while dp.stats().missed != missed {
        missed = dp.stats().missed;
        slice(&dp, 4 * frames.len().max(SLICE));
    }
    dp.flow_stats(&mut |_, _| ());
    let before = dp.thread_stats().remove(0);
    let times = times(&dp, variable("SLICES"), Duration::from_millis(ms));
    let stats = dp.thread_stats().remove(0).since(&before);
    let of_packets = |n: u64| n as f64 / stats.packets as f64;
    println!(
        "{{\"workload\": \"{what}-{n}\", \"packets\": {}, \"ns\": {:.1}, \"ns_middle\": {:.1}, \"flows\": {}, \
         \"connections\": {}, \"hits\": {:.2}, \"probes\": {:.2}, \"misses\": {:.3}}}",
        stats.packets,
        times[0],
        times[times.len() / 2],
        dp.stats().flows,
        dpif::Connections::n_connections(&dp),
        of_packets(stats.megaflow_hits),
        of_packets(stats.probes),
        of_packets(stats.misses),
    );
    Ok(())
}
