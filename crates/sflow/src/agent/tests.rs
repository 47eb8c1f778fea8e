//! Datagrams from a collector's view, by a decoder that follows the specification, in virtual time.

use super::*;
use crate::counters::{AppResources, Datapath, Duplex, Ethernet, Interface, Lacp};
use crate::flow_sample::{HeaderProtocol, Tunnel};
use proptest::prelude::*;
use std::collections::HashMap;

/// Reads encoded values from the front of bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn word(&mut self) -> u32 {
        u32::from_be_bytes(self.fixed(4).try_into().unwrap())
    }

    fn hyper(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }

    fn fixed(&mut self, n: usize) -> &'a [u8] {
        let (value, rest) = self.0.split_at(n);
        let (padding, rest) = rest.split_at(n.next_multiple_of(4) - n);
        assert!(padding.iter().all(|byte| *byte == 0));
        self.0 = rest;
        value
    }

    fn opaque(&mut self) -> &'a [u8] {
        let n = self.word() as usize;
        self.fixed(n)
    }

    fn address(&mut self) -> IpAddr {
        match self.word() {
            1 => <[u8; 4]>::try_from(self.fixed(4)).unwrap().into(),
            2 => <[u8; 16]>::try_from(self.fixed(16)).unwrap().into(),
            other => panic!("address type {other}"),
        }
    }
}

/// A sample: its type, the words before its records, and the contents of the records by format, in order.
#[derive(Clone, PartialEq, Debug)]
struct Sample {
    kind: u32,
    head: Vec<u32>,
    records: Vec<(u32, Vec<u8>)>,
}

impl Sample {
    fn record(&self, format: u32) -> &[u8] {
        &self.records.iter().find(|(known, _)| *known == format).unwrap().1
    }

    fn formats(&self) -> Vec<u32> {
        self.records.iter().map(|(format, _)| *format).collect()
    }
}

/// Decodes a datagram: agent, sub-agent, sequence number, uptime, samples.
fn decode(datagram: &[u8]) -> (IpAddr, [u32; 3], Vec<Sample>) {
    assert!(datagram.len() <= DATAGRAM_MAX);
    let mut reader = Reader(datagram);
    assert_eq!(reader.word(), 5);
    let agent = reader.address();
    let head = [(); 3].map(|()| reader.word());
    let n = reader.word();
    let samples = (0..n).map(|_| {
        let kind = reader.word();
        let mut body = Reader(reader.opaque());
        let head = (0..if kind == 1 { 7 } else { 2 }).map(|_| body.word()).collect();
        let records = (0..body.word()).map(|_| (body.word(), body.opaque().to_vec())).collect();
        assert!(body.0.is_empty());
        Sample { kind, head, records }
    });
    let samples = samples.collect();
    assert!(reader.0.is_empty());
    (agent, head, samples)
}

fn config(polling_secs: u32) -> Config {
    Config { address: IpAddr::from([10, 0, 0, 9]), sub_agent: 2, sampling: 3, header_bytes: 128, polling_secs }
}

fn sample(bytes: usize) -> FlowSample {
    FlowSample {
        input: 4,
        output: Output::of(1, 7),
        protocol: HeaderProtocol::Ethernet,
        header: (0..bytes).map(|i| i as u8).collect(),
        frame_bytes: bytes as u32,
        vlan_in: 0x6005,
        vlan_out: 0,
        labels_out: Vec::new(),
        egress: None,
        ingress: None,
    }
}

fn tunnel(src: &str, dst: &str, key: Option<u64>) -> Tunnel {
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    Tunnel { src, dst, protocol: 17, src_port: 50000, dst_port: 4789, tos: 8, key }
}

/// The words of a record.
fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn a_flow_sample_has_a_header_and_vlans() {
    let (mut agent, mut out) = (Agent::new(config(0), Millis(5000)), Vec::new());
    agent.add_flow(&sample(130), Millis(5100), &mut out);
    agent.add_flow(&FlowSample { output: Output::of(0, 0), ..sample(6) }, Millis(5999), &mut out);
    agent.run(Millis(5999), &mut out);
    assert!(out.is_empty());
    assert_eq!(agent.deadline(), Some(Millis(6000)));
    agent.run(Millis(6000), &mut out);
    let (address, head, samples) = decode(&out[0]);
    assert_eq!((address, head), (IpAddr::from([10, 0, 0, 9]), [2, 1, 1000]));
    let source = 0x0200_03ea;
    assert_eq!(samples[0].head, [1, source, 3, 3, 0, 4, 7]);
    assert_eq!(samples[1].head, [2, source, 3, 6, 0, 4, 0x4000_0100]);
    assert_eq!(samples[0].formats(), [1001, 1]);
    assert_eq!(words(samples[0].record(1001)), [5, 3, 0, 0]);
    let mut header = Reader(samples[0].record(1));
    assert_eq!([(); 3].map(|()| header.word()), [1, 134, 4]);
    assert_eq!(header.opaque(), &sample(128).header);
    let mut short = Reader(samples[1].record(1));
    assert_eq!([(); 3].map(|()| short.word()), [1, 10, 4]);
    assert_eq!(short.opaque(), &[0, 1, 2, 3, 4, 5]);
    assert_eq!((out.len(), agent.deadline()), (1, None));
}

#[test]
fn outputs_have_three_forms() {
    let cases = [(Output::of(1, 9), 9), (Output::of(1, 0), 0x8000_0001), (Output::of(3, 9), 0x8000_0003)];
    for (output, number) in cases {
        assert_eq!(output.number(), number);
    }
    assert_eq!(Output::of(0, 9).number(), 0x4000_0100);
}

#[test]
fn labels_and_tunnels_have_records() {
    let (mut agent, mut out) = (Agent::new(config(0), Millis(0)), Vec::new());
    let packet = FlowSample {
        labels_out: vec![0x7140, 0x8040],
        egress: Some(tunnel("1.2.3.4", "1.2.3.5", Some(9))),
        ingress: Some(tunnel("fe80::1", "fe80::2", None)),
        ..sample(64)
    };
    agent.add_flow(&packet, Millis(0), &mut out);
    agent.flush(Millis(10), &mut out);
    let samples = decode(&out[0]).2;
    assert_eq!(samples[0].formats(), [1001, 1, 1006, 1029, 1023, 1026]);
    let mut mpls = Reader(samples[0].record(1006));
    assert_eq!(mpls.address(), IpAddr::from([0; 4]));
    assert_eq!(words(mpls.0), [0, 2, 0x7140, 0x8040]);
    assert_eq!(words(samples[0].record(1029)), [9]);
    assert_eq!(words(samples[0].record(1023)), [0, 17, 0x0102_0304, 0x0102_0305, 50000, 4789, 0, 8]);
    let ingress = words(samples[0].record(1026));
    assert_eq!((ingress.len(), ingress[2], ingress[9], ingress[10]), (14, 0xfe80_0000, 2, 50000));
}

#[test]
fn counters_have_the_layout_of_the_specification() {
    const MAX: u32 = u32::MAX;
    let (mut agent, mut out) = (Agent::new(config(5), Millis(0)), Vec::new());
    agent.set_interfaces(&[7].into(), Millis(0));
    let interface = Interface {
        index: 7,
        speed: 10_000_000_000,
        duplex: Duplex::Full,
        admin_up: true,
        link_up: true,
        in_octets: Some(1 << 33 | 5),
        in_packets: Some(1 << 32 | 6),
        out_octets: Some(8),
        out_packets: Some(9),
        out_errors: Some(10),
        ..Interface::default()
    };
    let lacp = Lacp {
        actor: [1; 6],
        partner: [2; 6],
        aggregator: 3,
        states: [1, 2, 3, 4],
        rx_pdus: 5,
        tx_pdus: 6,
        ..Lacp::default()
    };
    let records = [
        Counter::Ethernet(Ethernet { alignment_errors: Some(1 << 32 | 3), fcs_errors: None }),
        Counter::Lacp(lacp),
        Counter::OpenFlowPort { dpid: 0xfedc_ba98_7654_3210, port: 65534 },
        Counter::PortName("p1".to_owned()),
        Counter::Interface(interface),
    ];
    agent.add_counters(Source::Interface(7), &records, Millis(1), &mut out);
    let app = AppResources { user_ms: 1, system_ms: 2, memory_used: 1 << 32 };
    let datapath = Datapath { hit: 1 << 32 | 1, missed: 2, lost: 3, mask_hit: None, flows: 4, masks: None };
    agent.add_counters(
        agent.own_source(),
        &[Counter::AppResources(app), Counter::Datapath(datapath)],
        Millis(1),
        &mut out,
    );
    // It is no source.
    agent.add_counters(Source::Interface(8), &records, Millis(1), &mut out);
    agent.flush(Millis(1), &mut out);
    let samples = decode(&out[0]).2;
    assert_eq!((samples.len(), &samples[0].head[..], samples[0].kind), (2, &[1, 7][..], 2));
    assert_eq!(samples[0].formats(), [2, 7, 1004, 1005, 1]);
    let ethernet = words(samples[0].record(2));
    assert_eq!((ethernet[0], &ethernet[1..]), (3, &[u32::MAX; 12][..]));
    let mut lacp = Reader(samples[0].record(7));
    assert_eq!((lacp.fixed(6), lacp.fixed(6)), (&[1; 6][..], &[2; 6][..]));
    assert_eq!(words(lacp.0), [3, 0x0102_0304, 5, MAX, MAX, MAX, 0, 6, MAX, MAX]);
    assert_eq!(words(samples[0].record(1004)), [0xfedc_ba98, 0x7654_3210, 65534]);
    assert_eq!(Reader(samples[0].record(1005)).opaque(), b"p1");
    let mut interface = Reader(samples[0].record(1));
    assert_eq!([interface.word(), interface.word()], [7, 6]);
    assert_eq!(interface.hyper(), 10_000_000_000);
    assert_eq!([interface.word(), interface.word()], [1, 3]);
    assert_eq!(interface.hyper(), 1 << 33 | 5);
    assert_eq!([(); 6].map(|()| interface.word()), [6, MAX, MAX, MAX, MAX, MAX]);
    assert_eq!(interface.hyper(), 8);
    assert_eq!(words(interface.0), [9, MAX, MAX, MAX, 10, 0]);
    assert_eq!(words(samples[1].record(2203)), [1, 2, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(words(samples[1].record(2207)), [1, 2, 3, MAX, 4, MAX]);
}

#[test]
fn sources_are_spread_over_the_interval() {
    let mut agent = Agent::new(config(5), Millis(0));
    agent.set_interfaces(&(1..=7).collect(), Millis(0));
    let mut polled: HashMap<Source, Vec<u64>> = HashMap::new();
    for second in 0..=20 {
        let due = agent.due(Millis(second * 1000));
        assert!(due.len() <= 2, "{due:?}");
        due.into_iter().for_each(|source| polled.entry(source).or_default().push(second));
    }
    assert_eq!(polled.len(), 8);
    for seconds in polled.values() {
        assert!(seconds[0] <= 5 && seconds.windows(2).all(|pair| pair[1] - pair[0] == 5), "{seconds:?}");
    }
    // After a pause each is polled once; a removed one no more.
    agent.set_interfaces(&[1].into(), Millis(21_000));
    assert_eq!(agent.due(Millis(100_000)).len(), 2);
    assert!(agent.due(Millis(100_000)).is_empty());
    assert!(agent.deadline().is_some_and(|at| at > Millis(100_000)));
    // Without polling there are no sources.
    let mut agent = Agent::new(config(0), Millis(0));
    agent.set_interfaces(&[1].into(), Millis(0));
    assert_eq!((agent.deadline(), agent.due(Millis(1 << 40))), (None, Vec::new()));
}

#[test]
fn lost_packets_count_as_drops_and_in_the_pool() {
    let (mut agent, mut out) = (Agent::new(config(0), Millis(0)), Vec::new());
    agent.add_lost(4);
    agent.add_flow(&sample(60), Millis(0), &mut out);
    agent.flush(Millis(0), &mut out);
    assert_eq!(decode(&out[0]).2[0].head[3..5], [15, 4]);
    assert_eq!(agent.stats(), Stats { flow_samples: 1, counter_samples: 0, lost: 4, datagrams: 1 });
}

fn any_sample() -> impl Strategy<Value = FlowSample> {
    let ends = prop_oneof![
        Just(None),
        (any::<[u8; 8]>(), any::<Option<u64>>()).prop_map(|(b, key)| {
            let ip = |at: usize| IpAddr::from([b[at], b[at + 1], b[at + 2], b[at + 3]]);
            Some(Tunnel { src: ip(0), dst: ip(4), protocol: 47, src_port: 0, dst_port: 0, tos: 0, key })
        }),
        // Addresses of both families do not panic.
        any::<[u8; 16]>().prop_map(|b| {
            let (src, dst) = (IpAddr::from(b), IpAddr::from([b[0]; 4]));
            Some(Tunnel { src, dst, protocol: 17, src_port: 1, dst_port: 2, tos: 3, key: Some(1) })
        }),
    ];
    let labels = proptest::collection::vec(any::<u32>(), 0..40);
    (0..3000_usize, 0..4_u32, any::<u32>(), labels, ends.clone(), ends).prop_map(
        |(bytes, n, index, labels_out, egress, ingress)| FlowSample {
            output: Output::of(n, index),
            labels_out,
            egress,
            ingress,
            ..sample(bytes)
        },
    )
}

tally::proptest! {
    /// Each sample is in one datagram, in order, and none waits longer than a second.
    #[test]
    fn every_sample_is_in_one_datagram(
        samples in proptest::collection::vec((any_sample(), 0..1500_u64), 1..60),
        header_bytes in 0..3000_u32,
        v6 in any::<bool>(),
    ) {
        let address = if v6 { IpAddr::from([1; 16]) } else { IpAddr::from([1; 4]) };
        let mut agent = Agent::new(Config { address, header_bytes, ..config(0) }, Millis(7));
        let (mut now, mut out, mut added) = (Millis(7), Vec::new(), Vec::new());
        let mut seen = 0;
        for (sample, wait) in &samples {
            now = now.after(*wait);
            agent.run(now, &mut out);
            agent.add_flow(sample, now, &mut out);
            added.push(now);
            for datagram in out.drain(..) {
                let (_, [_, _, uptime], samples) = decode(&datagram);
                let left = Millis(7).after(uptime.into());
                for sample in samples {
                    prop_assert_eq!(sample.head[0], seen + 1);
                    // The caller looks once per sample, so a datagram leaves with the next one at the latest.
                    prop_assert!(left.since(added[seen as usize]) <= 1000 + 1500);
                    seen += 1;
                }
            }
            prop_assert!(agent.deadline().is_some_and(|deadline| deadline.since(now) <= 1000));
        }
        agent.flush(now, &mut out);
        for (datagram, expected) in out.iter().zip(agent.stats().datagrams..) {
            prop_assert_eq!(u64::from(decode(datagram).1[1]), expected);
            for sample in decode(datagram).2 {
                prop_assert_eq!(sample.head[0], seen + 1);
                prop_assert_eq!(sample.head[3], 3 * (seen + 1));
                seen += 1;
            }
        }
        prop_assert_eq!(seen as usize, samples.len());
        prop_assert_eq!(agent.stats().flow_samples, samples.len() as u64);
    }
}
