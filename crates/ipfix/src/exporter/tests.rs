//! Messages from a collector's view, in virtual time, and the cache compared with a naive model.

use super::*;
use crate::observation::{Interface, ObservationPoint};
use flow::extract::{ethertype, extract};
use proptest::prelude::*;

const PORT: base::PortNo = base::PortNo(1);

/// A collector with the templates that it has received.
struct Collector {
    templates: HashMap<u16, Vec<(u32, u16, u16)>>,
}

impl Default for Collector {
    /// Knows the template of the exporter's own statistics, which come before it.
    fn default() -> Self {
        Self { templates: [(template::EXPORTER_STATS, vec![(0, 144, 4), (0, 167, 8)])].into() }
    }
}

/// A record: its set id, and its values by enterprise and element, in order.
type Record = (u16, Vec<((u32, u16), Vec<u8>)>);

/// Takes `n` bytes from the front.
fn take<'a>(rest: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (head, tail) = rest.split_at(n);
    *rest = tail;
    head
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b))
}

impl Collector {
    /// Parses a message: its time, sequence number and domain, and its records.
    fn read(&mut self, message: &[u8]) -> (u64, u64, u64, Vec<Record>) {
        let mut rest = message;
        assert_eq!(number(take(&mut rest, 2)), 10);
        assert_eq!(number(take(&mut rest, 2)), message.len() as u64);
        let [time, sequence, domain] = [(); 3].map(|()| number(take(&mut rest, 4)));
        let mut records = Vec::new();
        while !rest.is_empty() {
            let (set, len) = (number(take(&mut rest, 2)) as u16, number(take(&mut rest, 2)));
            let mut body = take(&mut rest, len as usize - SET_HEADER);
            while !body.is_empty() {
                match set {
                    2 | 3 => self.template(set, &mut body),
                    _ => records.push((set, self.record(set, &mut body))),
                }
            }
        }
        (time, sequence, domain, records)
    }

    fn template(&mut self, set: u16, body: &mut &[u8]) {
        let (id, fields) = (number(take(body, 2)) as u16, number(take(body, 2)));
        if set == 3 {
            assert_eq!(number(take(body, 2)), 1, "scope fields");
        }
        let fields = (0..fields).map(|_| {
            let (id, len) = (number(take(body, 2)) as u16, number(take(body, 2)) as u16);
            let enterprise = if id & 0x8000 == 0 { 0 } else { number(take(body, 4)) as u32 };
            (enterprise, id & 0x7fff, len)
        });
        self.templates.insert(id, fields.collect());
    }

    fn record(&self, set: u16, body: &mut &[u8]) -> Vec<((u32, u16), Vec<u8>)> {
        let value = |(enterprise, id, len): &(u32, u16, u16)| {
            let len = if *len == template::VARIABLE { number(take(body, 1)) } else { u64::from(*len) };
            ((*enterprise, *id), take(body, len as usize).to_vec())
        };
        self.templates[&set].iter().map(value).collect()
    }

    /// The data records of flows in messages.
    fn flows(&mut self, messages: &[Vec<u8>]) -> Vec<Record> {
        let records = messages.iter().flat_map(|m| self.read(m).3);
        records.filter(|(set, _)| *set != template::EXPORTER_STATS).collect()
    }
}

fn value(record: &Record, id: u16) -> u64 {
    number(&record.1.iter().find(|((_, known), _)| *known == id).unwrap().1)
}

/// A UDP packet over IPv4 with this length of payload.
fn udp(src: u16, payload: usize) -> Vec<u8> {
    let total = (28 + payload) as u16;
    let mut frame = vec![0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 8, 0, 0x45, 0xb8];
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(src.to_be_bytes());
    frame.extend([0, 9]);
    frame.extend((8 + payload as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(std::iter::repeat_n(0, payload));
    frame
}

fn point() -> ObservationPoint {
    let port = |index, name: &str| Interface { index, name: name.into() };
    ObservationPoint {
        domain: 7,
        point: 9,
        direction: Direction::Ingress,
        ingress: port(3, "p1"),
        egress: None,
        tunnel: None,
        dropped: false,
    }
}

fn observe(at: u64, point: &ObservationPoint, frame: &[u8]) -> Observation {
    Observation::new(Micros(at), point, &extract(frame, PORT).0, frame.len())
}

fn cached(secs: u32, flows: u32) -> Exporter {
    Exporter::new(Config { id: 2, active_timeout_secs: secs, flows_max: flows, ..Config::default() })
}

#[test]
fn templates_are_sent_in_the_messages_of_open_vswitch() {
    let (mut exporter, mut out) = (cached(0, 0), Vec::new());
    exporter.observe(observe(1_500_000, &point(), &udp(8, 64)), &mut out);
    // As ovs-vswitchd 4.0 sends them: exporter statistics, eighteen messages of templates, the options template, the flow.
    let lengths: Vec<usize> = out.iter().map(Vec::len).collect();
    assert_eq!(
        lengths[..17],
        [32, 1208, 1264, 1104, 1120, 1148, 1284, 1124, 1140, 1156, 1156, 1036, 1180, 1220, 1220, 1076, 1184]
    );
    assert_eq!(lengths[lengths.len() - 3..], [556, 34, 263]);
    assert_eq!(lengths.len(), 21);
    let mut collector = Collector::default();
    let headers: Vec<_> = out.iter().map(|m| collector.read(m)).map(|(t, s, d, _)| (t, s, d)).collect();
    assert_eq!(headers[..2], [(2, 1, 0), (2, 2, 7)]);
    assert_eq!(headers[18..], [(2, 2, 7), (2, 2, 0), (2, 2, 7)]);
    assert_eq!(collector.templates.len(), Shape::all().count() + 1);
    for id in [256, 257, 258, 259, 276, 280, 284, 288, 292, 296, 300, 312, 316, 348, 375] {
        assert!(collector.templates.contains_key(&id), "{id}");
    }
}

#[test]
fn a_record_contains_headers_and_counters() {
    let (mut exporter, mut collector, mut out) = (cached(0, 0), Collector::default(), Vec::new());
    exporter.observe(observe(1_500_000, &point(), &udp(8, 64)), &mut out);
    exporter.observe(observe(1_600_000, &ObservationPoint { dropped: true, ..point() }, &udp(8, 0)), &mut out);
    let records = collector.flows(&out);
    let [first, second] = &records[..] else { panic!("{records:?}") };
    assert_eq!(first.0, 284);
    let expected = [
        (138, 9),
        (61, 0),
        (56, 1),
        (80, 2),
        (256, 0x800),
        (240, 14),
        (10, 3),
        (368, 0),
        (82, 0x7031),
        (83, 0),
        (60, 4),
        (192, 64),
        (4, 17),
        (195, 0x2e),
        (196, 5),
        (5, 0xb8),
        (8, 0x0a00_0001),
        (12, 0x0a00_0002),
        (7, 8),
        (11, 9),
        (158, 500_000),
        (159, 500_000),
        (133, 0),
        (135, 0),
        (2, 1),
        (86, 1),
        (354, 1),
        (355, 0),
        (356, 0),
        (357, 0),
        (358, 0),
        (19, 0),
        (174, 0),
        (352, 106),
        (353, 106),
        (136, 2),
        (132, 0),
        (134, 0),
        (1, 92),
        (85, 92),
        (198, 92 * 92),
        (199, 92 * 92),
        (25, 92),
        (26, 92),
        (20, 0),
        (175, 0),
    ];
    let exported: Vec<(u16, u64)> = first.1.iter().map(|((_, id), v)| (*id, number(v))).collect();
    assert_eq!(exported, expected);
    let more = [(133, 1), (135, 1), (86, 2), (353, 148), (132, 28), (134, 28), (85, 120), (199, 92 * 92 + 28 * 28)];
    more.into_iter().for_each(|(id, n)| assert_eq!(value(second, id), n, "{id}"));
}

#[test]
fn every_template_fits_its_records() {
    let mut frames = vec![udp(8, 3)];
    let vlan = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0x60, 5], &frame[12..]].concat();
    for proto in [6, 132, 1, 47] {
        let mut frame = udp(8, 40);
        frame[23] = proto;
        // A valid TCP header length.
        frame[46] = 0x50;
        frames.push(frame);
    }
    for proto in [6, 17, 132, 58, 47] {
        let mut frame = vec![0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x61, 0x23, 0x45, 0x67, 0, 40, proto, 9];
        frame.extend([0xfe; 72]);
        frame[14 + 40 + 12] = 0x50;
        frames.push(frame);
    }
    frames.push([&udp(8, 0)[..12], &ethertype::ARP.to_be_bytes(), &[0; 30]].concat());
    let tunnel = |kind| {
        let (src, dst) = ([1, 2, 3, 4].into(), [5, 6, 7, 8].into());
        Some(crate::Tunnel { src, dst, kind, key: 0x12345, src_port: 5, dst_port: 4789 })
    };
    let mut sets = std::collections::BTreeSet::new();
    for obs_id in [None, Some(b"abc".to_vec())] {
        let mut exporter = Exporter::new(Config { virtual_obs_id: obs_id.clone(), ..Config::default() });
        let mut collector = Collector::default();
        for frame in frames.iter().flat_map(|frame| [frame.clone(), vlan(frame)]) {
            for egress in [None, Some(Interface { index: 4, name: "p2".into() })] {
                for tunnel in [None, tunnel(crate::TunnelKind::Vxlan), tunnel(crate::TunnelKind::Gre)] {
                    let point = ObservationPoint { egress: egress.clone(), tunnel, ..point() };
                    let mut out = Vec::new();
                    exporter.observe(observe(5, &point, &frame), &mut out);
                    let records = collector.flows(&out);
                    assert_eq!(records.len(), 1);
                    assert_eq!((value(&records[0], 138), value(&records[0], 2)), (9, 1));
                    let exported = records[0].1.iter().find(|((_, id), _)| *id == 898).map(|(_, id)| id.clone());
                    assert_eq!(exported, obs_id);
                    sets.insert(records[0].0);
                }
            }
        }
        assert_eq!((exporter.stats().errors, exporter.stats().ipv6_errors), (2 * 2 * 2 * 3, 2 * 2 * 3));
    }
    assert_eq!(sets.len(), Shape::all().count(), "{sets:?}");
}

#[test]
fn direction_and_destination_select_the_counters() {
    let (mut exporter, mut collector, mut out) = (cached(0, 0), Collector::default(), Vec::new());
    for first in [0, 1, 0xff] {
        let mut frame = udp(8, 0);
        frame[..6].fill(first);
        for direction in [Direction::Ingress, Direction::Egress] {
            exporter.observe(observe(5, &ObservationPoint { direction, ..point() }, &frame), &mut out);
        }
    }
    let records = collector.flows(&out);
    let counts = |id| records.iter().map(|r| value(r, id)).collect::<Vec<_>>();
    assert_eq!(counts(61), [0, 1, 0, 1, 0, 1]);
    assert_eq!(counts(354), [1, 1, 1, 1, 1, 1]);
    assert_eq!(counts(355), [0, 0, 1, 1, 1, 1]);
    assert_eq!(counts(356), [0, 0, 0, 0, 1, 1]);
    assert_eq!(counts(357), [0, 1, 1, 1, 1, 1]);
    assert_eq!(counts(358), [0, 0, 0, 0, 0, 1]);
    assert_eq!(counts(19), [0, 0, 0, 1, 0, 0]);
    assert_eq!(counts(174), [0, 0, 0, 1, 1, 1]);
    assert_eq!(counts(20), [0, 0, 0, 28, 0, 0]);
}

#[test]
fn flows_end_by_timeout_by_a_full_cache_and_by_flush() {
    let (mut exporter, mut collector, mut out) = (cached(3, 2), Collector::default(), Vec::new());
    let second = Micros::SECOND;
    for (at, src) in [(10, 1), (11, 2), (12, 1)] {
        exporter.observe(observe(at * second, &point(), &udp(src, 0)), &mut out);
    }
    assert!(out.is_empty());
    assert_eq!((exporter.stats().flows, exporter.stats().current_flows), (2, 2));
    assert_eq!(exporter.deadline(), Some(Micros(13 * second)));
    exporter.observe(observe(12 * second + 1, &point(), &udp(3, 0)), &mut out);
    exporter.run(Micros(14 * second - 1), &mut out);
    exporter.run(Micros(14 * second), &mut out);
    exporter.flush(Micros(14 * second), &mut out);
    let exported: Vec<_> = collector.flows(&out);
    let exported: Vec<_> = exported.iter().map(|r| [7, 2, 86, 136, 158, 159].map(|id| value(r, id))).collect();
    assert_eq!(
        exported,
        [[1, 2, 3, 5, 3 * second, second], [2, 1, 2, 2, 3 * second, 3 * second], [3, 1, 4, 4, 1_999_999, 1_999_999]]
    );
    assert_eq!((exporter.stats().flows, exporter.stats().current_flows, exporter.deadline()), (3, 0, None));
}

#[test]
fn templates_and_statistics_are_sent_again() {
    let sent = |config: Config, times: &[(u64, u32)]| -> Vec<usize> {
        let (mut exporter, mut out) = (Exporter::new(config), Vec::new());
        let mut messages = |(at, domain): &(u64, u32)| {
            out.clear();
            let point = ObservationPoint { domain: *domain, ..point() };
            exporter.observe(observe(at * Micros::SECOND, &point, &udp(1, 0)), &mut out);
            out.len()
        };
        times.iter().map(&mut messages).collect()
    };
    // 19 messages of templates, one of statistics and one of the flow. A clock that was set back also triggers sending them.
    let times = [1000, 1001, 1599, 1600, 1601, 2300, 100, 101].map(|at| (at, 7));
    assert_eq!(sent(Config::default(), &times), [21, 1, 1, 21, 1, 21, 21, 1]);
    // Each domain has its templates.
    let times = [(1000, 7), (1001, 8), (1002, 8), (1600, 7), (1600, 8), (1601, 8)];
    assert_eq!(sent(Config::default(), &times), [21, 20, 1, 21, 1, 20]);
    let config = Config { template_secs: 5, stats_secs: 3, ..Config::default() };
    let times: Vec<_> = (1000..1011).map(|at| (at, 7)).collect();
    assert_eq!(sent(config, &times), [21, 1, 1, 2, 1, 20, 2, 1, 1, 2, 20]);
}

#[test]
fn few_domains_are_remembered() {
    let (mut exporter, mut out) = (Exporter::new(Config::default()), Vec::new());
    for domain in 0..3 * DOMAINS_MAX as u32 {
        let point = ObservationPoint { domain, ..point() };
        out.clear();
        exporter.observe(observe(Micros::SECOND, &point, &udp(1, 0)), &mut out);
        assert!(out.len() >= 20 && exporter.templates_sent.len() <= DOMAINS_MAX);
    }
}

#[test]
fn send_results_are_counted() {
    let (mut exporter, mut collector, mut out) = (cached(0, 0), Collector::default(), Vec::new());
    exporter.note_sent(5, 3);
    exporter.observe(observe(5, &point(), &udp(1, 0)), &mut out);
    assert_eq!((exporter.stats().sent, exporter.stats().send_errors), (5, 3));
    let own: Vec<_> = out.iter().flat_map(|m| collector.read(m).3).filter(|(set, _)| *set == 462).collect();
    assert_eq!([144, 167].map(|id| value(&own[0], id)), [2, 3]);
}

tally::proptest! {
    /// For any packets, each is in exactly one record, sequence numbers are consecutive, and the cache limit holds.
    #[test]
    fn no_packet_is_lost_or_exported_twice(
        room in 0..4_u32,
        secs in 0..4_u32,
        steps in prop::collection::vec((0..5_u16, 0..2_000_000_u64, 0..40_usize, any::<bool>()), 1..60),
    ) {
        let mut exporter = cached(secs, room);
        let (mut now, mut out) = (5 * Micros::SECOND, Vec::new());
        // The naive model: flows in order with their start, and the exported flows.
        let mut twin: Vec<(u16, u64, u64, u64)> = Vec::new();
        let mut exported = Vec::new();
        let (mut bytes, mut dropped) = (0, 0);
        for (src, wait, payload, drop) in &steps {
            now += wait;
            exporter.run(Micros(now), &mut out);
            let over = |start: u64| start + u64::from(secs) * Micros::SECOND <= now;
            exported.extend(twin.iter().filter(|f| over(f.1)).map(|f| (f.0, f.2, f.3)));
            twin.retain(|f| !over(f.1));
            let point = ObservationPoint { dropped: *drop, ..point() };
            exporter.observe(observe(now, &point, &udp(*src, *payload)), &mut out);
            let ip = 28 + *payload as u64;
            bytes += ip;
            dropped += u64::from(*drop);
            if room == 0 || secs == 0 {
                exported.push((*src, 1, ip));
            } else if let Some(flow) = twin.iter_mut().find(|f| f.0 == *src) {
                flow.2 += 1;
                flow.3 += ip;
            } else {
                if twin.len() == room as usize {
                    let (src, _, packets, bytes) = twin.remove(0);
                    exported.push((src, packets, bytes));
                }
                twin.push((*src, now, 1, ip));
            }
            prop_assert_eq!(exporter.stats().current_flows, twin.len() as u64);
            prop_assert!(exporter.stats().current_flows <= u64::from(room));
        }
        exporter.flush(Micros(now), &mut out);
        exported.extend(twin.iter().map(|f| (f.0, f.2, f.3)));
        let mut collector = Collector::default();
        let mut sequence = 1;
        for message in &out {
            let (.., number, _, records) = collector.read(message);
            prop_assert_eq!(number, sequence);
            sequence += records.len() as u64;
        }
        let records = Collector::default().flows(&out);
        let read: Vec<_> = records.iter().map(|r| (value(r, 7) as u16, value(r, 2), value(r, 1))).collect();
        prop_assert_eq!(&read, &exported);
        prop_assert_eq!(records.iter().map(|r| value(r, 1)).sum::<u64>(), bytes);
        prop_assert_eq!(records.iter().map(|r| value(r, 133)).sum::<u64>(), dropped);
        prop_assert_eq!(exporter.stats().flows, exported.len() as u64);
    }

    /// Any bytes make an observation, and a record that a collector can parse.
    #[test]
    fn any_frame_makes_a_record(frame in prop::collection::vec(any::<u8>(), 0..120), kind in 0..4_usize) {
        let mut frame = frame;
        let kinds = [[8, 0, 0x45], [0x86, 0xdd, 0x60], [0x81, 0, 0]];
        if let (Some(kind), true) = (kinds.get(kind), frame.len() > 14) {
            frame[12..15].copy_from_slice(kind);
        }
        let (mut exporter, mut out) = (cached(0, 0), Vec::new());
        exporter.observe(observe(5, &point(), &frame), &mut out);
        prop_assert_eq!(Collector::default().flows(&out).len(), 1);
    }
}
