//! Packets from a collector's view, in virtual time, and the cache compared with a naive model.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The values of a record, in the order of the format.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Record {
    src: [u8; 4],
    dst: [u8; 4],
    input: u16,
    output: u16,
    packets: u32,
    bytes: u32,
    first: u32,
    last: u32,
    src_port: u16,
    dst_port: u16,
    flags: u8,
    protocol: u8,
    tos: u8,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

/// Decodes a packet: uptime, seconds, nanoseconds, sequence number, engine; records.
fn decode(packet: &[u8]) -> ([u32; 4], [u8; 2], Vec<Record>) {
    assert_eq!(half(packet, 0), 5);
    let n = usize::from(half(packet, 2));
    assert!((1..=30).contains(&n) && packet.len() == 24 + 48 * n);
    assert_eq!(half(packet, 22), 0);
    let records = packet[24..].chunks(48).map(|r| {
        assert!(r[8..12].iter().chain(&r[40..]).all(|byte| *byte == 0) && r[36] == 0);
        Record {
            src: r[..4].try_into().unwrap(),
            dst: r[4..8].try_into().unwrap(),
            input: half(r, 12),
            output: half(r, 14),
            packets: word(r, 16),
            bytes: word(r, 20),
            first: word(r, 24),
            last: word(r, 28),
            src_port: half(r, 32),
            dst_port: half(r, 34),
            flags: r[37],
            protocol: r[38],
            tos: r[39],
        }
    });
    ([4, 8, 12, 16].map(|at| word(packet, at)), [packet[20], packet[21]], records.collect())
}

const CONFIG: Config =
    Config { engine_type: 7, engine_id: 130, active_timeout_secs: Some(2), add_id_to_interface: false };

fn flow(n: u16) -> Flow {
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    Flow { input: 1, src, dst, protocol: 6, tos: 0x10, src_port: n, dst_port: 80 }
}

fn now(ms: u64) -> Now {
    Now { at: Millis(ms), unix: Duration::from_millis(1_000_000 + ms) }
}

fn traffic(packets: u64, bytes: u64, tcp_flags: u8, at: u64) -> Traffic {
    Traffic { packets, bytes, tcp_flags, first: Millis(at), last: Millis(at) }
}

#[test]
fn a_record_describes_the_traffic_of_a_flow() {
    let (mut exporter, mut out) = (Exporter::new(CONFIG, Millis(1000)), Vec::new());
    exporter.count(flow(9), Output::Port(2), &traffic(1, 60, 2, 1041), now(1041), &mut out);
    exporter.count(flow(9), Output::Port(2), &traffic(2, 120, 0x11, 1053), now(1100), &mut out);
    exporter.end(&flow(9), now(5000), &mut out);
    assert!(out.is_empty());
    exporter.send(now(5500), &mut out);
    let record = Record {
        src: [10, 0, 0, 1],
        dst: [10, 0, 0, 2],
        input: 1,
        output: 2,
        packets: 3,
        bytes: 180,
        first: 41,
        last: 53,
        src_port: 9,
        dst_port: 80,
        flags: 0x13,
        protocol: 6,
        tos: 0x10,
    };
    assert_eq!(decode(&out[0]), ([4500, 1005, 500_000_000, 0], [7, 130], vec![record]));
    assert_eq!(exporter.stats(), Stats { flows: 0, records: 1, packets: 1, evicted: 0 });
    // It ended already.
    exporter.end(&flow(9), now(6000), &mut out);
    exporter.send(now(6000), &mut out);
    assert_eq!(out.len(), 1);
}

#[test]
fn active_flows_are_exported_each_timeout() {
    let (mut exporter, mut out) = (Exporter::new(CONFIG, Millis(0)), Vec::new());
    exporter.count(flow(1), Output::Dropped, &traffic(1, 60, 0, 0), now(0), &mut out);
    assert_eq!(exporter.deadline(), Some(Millis(2000)));
    exporter.run(now(1999), &mut out);
    exporter.send(now(1999), &mut out);
    assert!(out.is_empty());
    exporter.run(now(2000), &mut out);
    exporter.count(flow(1), Output::Dropped, &traffic(2, 61, 0, 2100), now(2100), &mut out);
    exporter.run(now(4000), &mut out);
    exporter.send(now(4000), &mut out);
    let (head, _, records) = decode(&out[0]);
    assert_eq!(head[3], 0);
    let counters: Vec<_> = records.iter().map(|r| (r.output, r.packets, r.bytes, r.first)).collect();
    assert_eq!(counters, [(65533, 1, 60, 0), (65533, 2, 61, 2100)]);
    // A flow without traffic leaves the cache.
    exporter.run(now(6000), &mut out);
    exporter.send(now(6000), &mut out);
    assert_eq!((out.len(), exporter.stats().flows, exporter.deadline()), (1, 0, None));
    // Without a timeout, only the end of a flow exports it.
    exporter.reconfigure(Config { active_timeout_secs: None, ..CONFIG });
    exporter.count(flow(1), Output::Flood, &traffic(1, 60, 0, 7000), now(7000), &mut out);
    assert_eq!(exporter.deadline(), None);
    exporter.run(now(1 << 40), &mut out);
    exporter.flush(now(1 << 40), &mut out);
    let (head, _, records) = decode(&out[1]);
    assert_eq!((head[3], records[0].output), (2, 65535));
}

#[test]
fn another_output_begins_another_record() {
    let (mut exporter, mut out) = (Exporter::new(CONFIG, Millis(0)), Vec::new());
    for (output, at) in [(Output::Port(2), 0), (Output::Port(2), 1), (Output::Several, 2)] {
        exporter.count(flow(1), output, &traffic(1, 60, 0, at), now(at), &mut out);
    }
    exporter.flush(now(3), &mut out);
    let counters: Vec<_> = decode(&out[0]).2.iter().map(|r| (r.output, r.packets, r.first, r.last)).collect();
    assert_eq!(counters, [(2, 2, 0, 1), (65534, 1, 2, 2)]);
}

#[test]
fn the_cache_is_bounded() {
    let (mut exporter, mut out) = (Exporter::new(CONFIG, Millis(0)), Vec::new());
    for n in 0..1000_u16 {
        exporter.count(flow(n), Output::Port(2), &traffic(1, 60, 0, n.into()), now(n.into()), &mut out);
        assert!(exporter.flows.len() <= FLOWS_MAX && exporter.queue.len() <= 2 * FLOWS_MAX + RECORDS_MAX);
    }
    assert_eq!(exporter.stats().evicted, 1000 - FLOWS_MAX as u64);
    // Flows that come and go leave nothing in the queue.
    exporter.reconfigure(Config { active_timeout_secs: None, ..CONFIG });
    for n in 1000..2000_u16 {
        exporter.count(flow(n), Output::Port(2), &traffic(1, 60, 0, 2000), now(2000), &mut out);
        exporter.end(&flow(n), now(2000), &mut out);
        assert!(exporter.queue.len() <= 2 * FLOWS_MAX + RECORDS_MAX);
    }
    exporter.flush(now(3000), &mut out);
    let mut expected = 0;
    for packet in &out {
        let (head, _, records) = decode(packet);
        assert_eq!(head[3], expected);
        expected += records.len() as u32;
    }
    assert_eq!(expected, 2000);
}

/// A call of the exporter.
#[derive(Clone, Debug)]
enum Call {
    Count { flow: u16, output: u16, packets: u64, bytes: u64, flags: u8 },
    End(u16),
    Run,
    Send,
    Wait(u64),
    Timeout(Option<u32>),
}

fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => (0..12_u16, 0..3_u16, 0..5_u64, prop_oneof![60..100_u64, Just(6_000_000_000)], any::<u8>())
            .prop_map(|(flow, output, packets, bytes, flags)| Call::Count { flow, output, packets, bytes, flags }),
        2 => (0..12_u16).prop_map(Call::End),
        2 => Just(Call::Run),
        1 => Just(Call::Send),
        3 => (0..1500_u64).prop_map(Call::Wait),
        1 => prop_oneof![Just(None), (1..4_u32).prop_map(Some)].prop_map(Call::Timeout),
    ]
}

/// A cache without a queue: it looks at all flows each time.
#[derive(Default)]
struct Naive {
    /// By flow: output, traffic since the last export, time of the last export.
    flows: BTreeMap<Flow, (u16, Option<Traffic>, u64)>,
    /// Output, packets, bytes, flags, first and last of the exported traffic.
    exported: Vec<(Flow, u16, Traffic)>,
}

impl Naive {
    fn count(&mut self, flow: Flow, output: u16, traffic: Traffic, now: u64) {
        if traffic.packets == 0 {
            return;
        }
        let (known, sum, _) = self.flows.entry(flow).or_insert((output, None, now));
        if *known != output
            && let Some(sum) = sum.take()
        {
            self.exported.push((flow, *known, sum));
        }
        *known = output;
        *sum = Some(sum.map_or(traffic, |sum| Traffic {
            packets: sum.packets + traffic.packets,
            bytes: sum.bytes + traffic.bytes,
            tcp_flags: sum.tcp_flags | traffic.tcp_flags,
            first: sum.first,
            last: traffic.last,
        }));
    }

    fn end(&mut self, flow: Flow) {
        if let Some((output, Some(traffic), _)) = self.flows.remove(&flow) {
            self.exported.push((flow, output, traffic));
        }
    }

    fn run(&mut self, timeout: Option<u32>, now: u64) {
        let Some(timeout) = timeout else { return };
        let exported = &mut self.exported;
        self.flows.retain(|flow, (output, traffic, since)| {
            if now < *since + u64::from(timeout) * 1000 {
                return true;
            }
            let Some(traffic) = traffic.take() else { return false };
            exported.push((*flow, *output, traffic));
            *since = now;
            true
        });
    }
}

/// Source port, output, first, last, flags.
type Kept = (u16, u16, u32, u32, u8);

/// What records say of exported traffic, in an order that does not depend on the cache.
fn summary(records: impl Iterator<Item = Record>) -> BTreeMap<Kept, (u64, u64)> {
    let mut all = BTreeMap::new();
    for r in records {
        let (packets, bytes) = all.entry((r.src_port, r.output, r.first, r.last, r.flags)).or_insert((0, 0));
        *packets += u64::from(r.packets);
        *bytes += u64::from(r.bytes);
    }
    all
}

tally::proptest! {
    #[test]
    fn the_cache_is_as_a_naive_one(calls in proptest::collection::vec(any_call(), 1..120)) {
        let (mut exporter, mut naive, mut out) = (Exporter::new(CONFIG, Millis(0)), Naive::default(), Vec::new());
        let (mut ms, mut timeout) = (0, CONFIG.active_timeout_secs);
        for call in calls {
            match call {
                Call::Count { flow: n, output, packets, bytes, flags } => {
                    let traffic = traffic(packets, bytes, flags, ms);
                    exporter.count(flow(n), Output::Port(output), &traffic, now(ms), &mut out);
                    naive.count(flow(n), output, traffic, ms);
                }
                Call::End(n) => {
                    exporter.end(&flow(n), now(ms), &mut out);
                    naive.end(flow(n));
                }
                Call::Run => {
                    exporter.run(now(ms), &mut out);
                    naive.run(timeout, ms);
                    prop_assert!(exporter.deadline().is_none_or(|deadline| deadline.0 > ms));
                }
                Call::Send => exporter.send(now(ms), &mut out),
                Call::Wait(more) => ms += more,
                Call::Timeout(secs) => {
                    timeout = secs;
                    exporter.reconfigure(Config { active_timeout_secs: secs, ..CONFIG });
                }
            }
            prop_assert_eq!(exporter.flows.len(), naive.flows.len());
        }
        exporter.flush(now(ms), &mut out);
        let left: Vec<Flow> = naive.flows.keys().copied().collect();
        left.into_iter().for_each(|flow| naive.end(flow));
        let mut sequence = 0;
        for packet in &out {
            let (head, _, records) = decode(packet);
            prop_assert_eq!(head[3], sequence);
            sequence += records.len() as u32;
        }
        let exported = naive.exported.into_iter().flat_map(|(flow, output, t)| {
            t.parts().map(move |(packets, bytes)| Record {
                src: [0; 4], dst: [0; 4], input: 0, output, packets, bytes, first: t.first.0 as u32, last: t.last.0 as u32,
                src_port: flow.src_port, dst_port: 0, flags: t.tcp_flags, protocol: 0, tos: 0,
            })
        });
        prop_assert_eq!(summary(out.iter().flat_map(|packet| decode(packet).2)), summary(exported));
    }
}
