//! Tracked packets on the shortcut through later passes leave as if they were looked up in each pass: two datapaths, one of
//! them without the shortcut, get the same packets through random stateful pipelines, and agree on what can be observed.

mod common;
mod tracked;

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::rng::Rng;
use base::{Clock, DpPort, MacAddr};
use common::{TestHandler, TestPort};
use datapath::{Config, Datapath, IndexKind};
use dpif::connections::Family;
use dpif::{
    Commit, ConnectionFilter, Connections, Ct, DpAction, DpActions, DpFlow, DpFlowEntry, Dpif, HashKind, Nat, NatKind,
    PortStats, Protocol, Punt, ThreadStats,
};
use flow::{Field, FlowKey};
use netdev::Queueless;
use packet::Packet;
use packet::buf::BATCH_MAX;
use parking_lot::Mutex;
use tracked::packets::{Flow, Form};
use tracked::pipeline::{Pipeline, TUNNELS, Traffic};
use tunnel::header::geneve::Geneve;
use tunnel::header::{Context, Encapsulation, OuterIp, Pop, PortRange, Push, Template, Udp};

/// Batches between two comparisons of flows and connections.
const WINDOW: usize = 8;

/// Pipelines; with the environment variable `SHORTCUT_ROUNDS`, others.
const ROUNDS: u64 = 60;
/// Packets of each connection ahead of a batch with several of them.
const AHEAD: usize = 4;
/// Bytes that packets of one form have in common.
const HEADERS: usize = 38;

/// One of the two datapaths.
struct Twin {
    dp: Datapath,
    clock: Clock,
    ports: Vec<Arc<TestPort>>,
    handler: Arc<TestHandler>,
    /// The keys of misses, in order.
    missed: Arc<Mutex<Vec<FlowKey>>>,
}

/// The compared properties of a flow.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    actions: DpActions,
    packets: u64,
    bytes: u64,
    tcp_flags: u16,
    used: Option<base::Millis>,
}

/// The compared properties of a packet that is sent.
type Out = (Vec<u8>, String, u32);

type Flows = BTreeMap<Vec<u64>, (DpFlowEntry, Seen)>;

impl Twin {
    fn new(shortcut: bool, pipeline: &Arc<Pipeline>) -> Self {
        // This index does not narrow flows, so that a region has one flow.
        let (clock, index) = (Clock::stopped(), IndexKind::TupleSpace);
        let dp = Datapath::new(Config { threads: 0, shortcut, index, ..Config::default() }, clock.clone())
            .expect("no thread");
        let ports: Vec<_> = ["a", "b", "c"].map(TestPort::new).into_iter().collect();
        for port in &ports {
            dp.port_add(port.clone(), None).expect("opens");
        }
        let tunnels = Arc::new(Queueless::new("tunnel_sys", "tunnel", MacAddr::ZERO));
        dp.tunnel_add(tunnels, Pop::Geneve, Some(TUNNELS)).expect("the number is free");
        [Family::V4, Family::V6].iter().for_each(|family| assert!(dp.set_fragment_size_min(*family, 400)));
        let (missed, pipeline) = (Arc::<Mutex<Vec<FlowKey>>>::default(), Arc::clone(pipeline));
        let misses = Arc::clone(&missed);
        let handler = TestHandler::new(Box::new(move |_, key| {
            misses.lock().push(key.clone());
            let (actions, mask) = pipeline.answer(key);
            (actions, Some(mask))
        }));
        dp.set_handler(handler.clone());
        Self { dp, clock, ports, handler, missed }
    }

    /// The flows of the current generation, by the bits that they match.
    fn flows(&self, pipeline: &Pipeline) -> Flows {
        let generation = self.handler.generation.load(Ordering::Relaxed);
        let current = self.dp.flow_dump().into_iter().filter(|flow| flow.generation == generation);
        let flows = current.map(|flow| {
            let (_, mask) = pipeline.answer(&flow.key);
            let bits = flow.key.0.iter().zip(mask.0).map(|(word, mask)| word & mask).collect();
            let dpif::DpFlowStats { packets, bytes, used, tcp_flags } = flow.stats;
            let seen = Seen { actions: flow.actions.clone(), packets, bytes, tcp_flags, used };
            (bits, (flow, seen))
        });
        flows.collect()
    }

    fn connections(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.dp.connections(None, &mut |view| all.push(format!("{view:?}")));
        all.sort();
        all
    }

    /// Counters of look-ups. `limited`: installed flows may differ.
    fn counters(&self, limited: bool) -> (Vec<u64>, Vec<u64>, [u64; 3]) {
        let of = |stats: ThreadStats| {
            let ThreadStats { packets, batches, batch_sizes, microflow_hits, megaflow_hits, .. } = stats;
            let hits = if limited { 0 } else { microflow_hits + megaflow_hits };
            let misses = if limited { 0 } else { stats.misses };
            // Packets that miss continue on another thread.
            let [again, sent] = if limited { [0; 2] } else { [stats.recirculations, stats.tx_packets] };
            let all = [packets, batches, hits, misses, again, stats.lost, sent, stats.panics];
            all.into_iter().chain(batch_sizes).collect()
        };
        let stats = self.dp.stats();
        let looked_up = if limited { [0, 0] } else { [stats.hit, stats.missed] };
        let caller = if limited { Vec::new() } else { of(self.dp.caller_stats()) };
        (of(self.dp.thread_stats().remove(0)), caller, [looked_up[0], looked_up[1], stats.lost])
    }

    fn checks_failed(&self) -> u64 {
        self.dp.thread_stats()[0].checks_failed + self.dp.caller_stats().checks_failed
    }
}

/// The number in the last bytes of a packet.
fn number_of(packet: &Packet) -> Option<u64> {
    packet.data().last_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Pushes the headers of one of some tunnels, where a packet allows that: others are dropped on arrival.
fn push_tunnel(packet: &mut Packet, number: u64, hash: u32) {
    let ip = OuterIp::V4 {
        src: Ipv4Addr::new(192, 0, 2, number as u8),
        dst: Ipv4Addr::new(192, 0, 2, 99),
        tos: 0,
        ttl: 60 + (number / 2) as u8,
        dont_fragment: true,
    };
    let udp = Udp { src: 0, dst: 6081, checksum: number == 3 };
    let tunnel = Encapsulation::Geneve(udp, Geneve { vni: number as u32 % 2, oam: false, options: [].into() });
    let push = Push { eth_src: MacAddr([2; 6]), eth_dst: MacAddr([4; 6]), vlan: None, ip, tunnel };
    let zero = AtomicU32::new(0);
    let context = Context { ports: PortRange::default(), sequence: &zero, identification: &zero, erspan_timestamp: 0 };
    let _ = Template::new(push).expect("valid headers").push(packet, hash, &context);
}

/// Two datapaths and what they received so far.
struct Round {
    pipeline: Arc<Pipeline>,
    traffic: Traffic,
    limited: bool,
    twins: [Twin; 2],
    flows: Vec<Flow>,
    /// Flow and direction of packets whose order is compared.
    ways: HashMap<u64, (u16, bool)>,
    next: u64,
    /// Since the last comparison, misses were in the same order: so the same packets are counted for each flow.
    is_exact: bool,
    batches: usize,
    was_exact: bool,
    before: [Flows; 2],
    sent: usize,
}

impl Round {
    fn new(rng: &mut Rng) -> Self {
        let traffic = if rng.below(2) == 0 { Traffic::Uniform } else { Traffic::Single };
        let pipeline = Arc::new(Pipeline::random(rng, traffic));
        let twins = [true, false].map(|shortcut| Twin::new(shortcut, &pipeline));
        let limited = rng.below(8) == 0;
        let check = if rng.below(3) == 0 { 1 + rng.below(40) } else { 0 };
        for twin in &twins {
            twin.dp.set_self_check(check);
            if limited {
                twin.dp.set_flow_limit(5);
            }
        }
        let n = 2 + rng.below(14) as u16;
        let flows = (0..n).map(|number| Flow::random(rng, number)).collect();
        Self {
            pipeline,
            traffic,
            limited,
            twins,
            flows,
            ways: HashMap::new(),
            next: 1 << 40,
            is_exact: true,
            batches: 0,
            was_exact: true,
            before: Default::default(),
            sent: 0,
        }
    }

    /// Sends a batch through both datapaths, and compares the packets that they send.
    fn send(&mut self, rng: &mut Rng) {
        let (is_uniform, port) = (self.traffic == Traffic::Uniform, rng.below(2) as usize);
        let mut forms: Vec<_> = self.flows.iter().map(|flow| (*flow, flow.form(rng, is_uniform))).collect();
        let most = if rng.below(3) == 0 { 1 } else { forms.len() };
        while forms.len() > most {
            forms.swap_remove(rng.below(forms.len() as u64) as usize);
        }
        // Fragments of a datagram are packets of one connection, too.
        if !self.pipeline.mixes_fragments
            && let Some(at) = forms.iter().position(|(flow, _)| flow.in_fragments)
        {
            forms = vec![forms.swap_remove(at)];
        }
        // The first packet of a connection takes other flows than the next ones, and lists of actions run in an order that other
        // packets of the batch decide: so some packets go ahead of a batch with several of a connection.
        for _ in 0..if is_uniform { AHEAD } else { 0 } {
            let packets = self.packets(rng, forms.clone(), true);
            self.send_packets(packets, port, true);
        }
        let packets = self.packets(rng, forms, !is_uniform);
        self.send_packets(packets, port, !is_uniform);
    }

    /// A batch of packets.
    fn packets(&mut self, rng: &mut Rng, mut forms: Vec<(Flow, Form)>, is_single: bool) -> Vec<Packet> {
        let mut packets = Vec::new();
        let wanted = 1 + rng.below(BATCH_MAX as u64) as usize;
        let wanted = if is_single && self.traffic == Traffic::Uniform { BATCH_MAX } else { wanted };
        while packets.len() < wanted && !forms.is_empty() {
            let at = rng.below(forms.len() as u64) as usize;
            let (flow, form) = forms[at];
            if is_single {
                forms.swap_remove(at);
            }
            let number = self.next;
            self.next += 1;
            if !flow.in_fragments {
                self.ways.insert(number, (flow.number, form.is_reply));
            }
            flow.emit(rng, &form, number, &mut packets);
        }
        packets.truncate(BATCH_MAX);
        if self.pipeline.is_tunneled {
            // Connections move to other tunnels, between two batches.
            let moved = if rng.below(4) == 0 { rng.below(4) } else { 0 };
            for packet in &mut packets {
                let way = number_of(packet).and_then(|number| self.ways.get(&number));
                let tunnel = way.map_or(0, |way| u64::from(way.0)) + moved;
                push_tunnel(packet, tunnel % 4, rng.next_u64() as u32);
            }
        }
        packets
    }

    fn send_packets(&mut self, packets: Vec<Packet>, at: usize, is_single: bool) {
        self.batches += 1;
        let before = self.twins[1].dp.n_connections();
        let sent = self.twins.each_ref().map(|twin| {
            packets.iter().for_each(|packet| twin.ports[at].receive_packet(packet.clone()));
            twin.dp.run_until_idle(4);
            twin.ports.iter().map(|port| port.sent()).collect::<Vec<_>>()
        });
        let [a_missed, b_missed] = self.twins.each_ref().map(|twin| std::mem::take(&mut *twin.missed.lock()));
        self.is_exact &= a_missed == b_missed;
        let begin = self.twins[1].dp.n_connections() != before;
        // Other packets overtake one that waits for its flow; on the shortcut, packets of a batch may miss one after the other.
        let is_ordered = !begin && a_missed.is_empty();
        for (port, (a, b)) in sent[0].iter().zip(&sent[1]).enumerate() {
            let [mut in_a, mut in_b] = [a, b].map(|packets| {
                let each = |p: &Packet| {
                    (p.data().to_vec(), format!("{:?}", p.offload), p.metadata().map_or(0, |m| m.pkt_mark))
                };
                let mut out: Vec<Out> = packets.iter().map(each).collect();
                if begin && !is_single {
                    // Which one of equal packets is the first may differ, too.
                    out.iter_mut().for_each(|(frame, ..)| frame.truncate(HEADERS));
                }
                out
            });
            in_a.sort();
            in_b.sort();
            let only_in =
                |a: &[Out], b: &[Out]| a.iter().filter(|packet| !b.contains(packet)).cloned().collect::<Vec<_>>();
            assert!(in_a == in_b, "port {port}: {:x?}\n{:x?}", only_in(&in_a, &in_b), only_in(&in_b, &in_a));
            self.sent += in_a.len();
            if !is_single {
                let [in_a, in_b] = [a, b].map(|packets| self.order(packets));
                let differ = in_a.iter().filter(|(way, order)| !order.is_sorted() && Some(*order) != in_b.get(*way));
                assert!(!is_ordered || differ.count() == 0, "port {port}: {in_a:?} instead of {in_b:?}");
            }
        }
    }

    /// The order of the packets of each flow and direction: of their first copies, of their second ones, and so on, which a
    /// port sends one after the other or by turns.
    fn order(&self, packets: &[Packet]) -> BTreeMap<((u16, bool), usize), Vec<u64>> {
        let (mut order, mut copies) = (BTreeMap::<_, Vec<u64>>::new(), BTreeMap::<u64, usize>::new());
        for number in packets.iter().filter_map(number_of) {
            if let Some(way) = self.ways.get(&number) {
                let copy = copies.entry(number).or_default();
                order.entry((*way, *copy)).or_default().push(number);
                *copy += 1;
            }
        }
        order
    }

    /// Compares counters, connections and flows.
    fn compare(&mut self) {
        let [a, b] = &self.twins;
        assert_eq!(a.counters(self.limited), b.counters(self.limited));
        assert_eq!(a.dp.drops(), b.dp.drops());
        assert_eq!((a.checks_failed(), b.checks_failed()), (0, 0));
        assert_eq!(a.connections(), b.connections());
        for port in 1..=3 {
            // How many packets are sent together depends on when they are ready.
            let [a, b] = [a, b].map(|twin| {
                let stats = twin.dp.port_stats(DpPort(port)).expect("the port is there");
                PortStats { tx_batches: 0, ..stats }
            });
            assert_eq!(a, b);
        }
        self.ways.clear();
        if self.limited {
            return;
        }
        self.was_exact &= self.is_exact;
        let now = self.twins.each_ref().map(|twin| twin.flows(&self.pipeline));
        assert!(now[0].keys().eq(now[1].keys()), "the same flows");
        for (bits, (flow, a)) in &now[0] {
            let (twin, b) = &now[1][bits];
            assert_eq!((&a.actions, a.packets, a.used), (&b.actions, b.packets, b.used), "{:?}", flow.key);
            let added = |at: usize, flow: &DpFlowEntry, now: &Seen| {
                let known = self.before[at].get(bits).filter(|(before, _)| before.id == flow.id);
                now.bytes - known.map_or(0, |(_, before)| before.bytes)
            };
            if self.is_exact {
                assert_eq!(added(0, flow, a), added(1, twin, b), "bytes of {:?}", flow.key);
            }
            if self.was_exact {
                assert_eq!(a.tcp_flags, b.tcp_flags, "{:?}", flow.key);
            }
        }
        self.before = now;
        self.is_exact = true;
    }

    /// What a user, the switch, or time does between two batches.
    fn disturb(&mut self, rng: &mut Rng) {
        let ms = [0, 1, 700, 3000, 25_000][rng.below(5) as usize];
        self.twins.iter().for_each(|twin| twin.clock.warp(ms));
        match rng.below(40) {
            0 => self.revise(true),
            1 => self.revise(false),
            2 => {
                self.pipeline.revision.fetch_add(1, Ordering::Relaxed);
                for twin in &self.twins {
                    let generation = twin.handler.generation.fetch_add(1, Ordering::Relaxed) + 1;
                    twin.dp.set_generation(generation);
                }
            }
            3..6 if !self.limited => {
                let [a, b] = self.twins.each_ref().map(|twin| twin.flows(&self.pipeline));
                let Some((a, b)) = a.values().zip(b.values()).nth(rng.below(a.len().max(1) as u64) as usize) else {
                    return;
                };
                for (twin, (flow, _)) in self.twins.iter().zip([a, b]) {
                    twin.dp.flow_del(flow.id).expect("installed");
                }
            }
            6 => {
                let zone = (rng.below(2) == 0).then(|| rng.below(4) as u16);
                let filter = ConnectionFilter { zone, mark: (1, rng.below(2) as u32), ..ConnectionFilter::default() };
                // Their numbers may differ by connections that have expired.
                self.twins.iter().for_each(|twin| {
                    twin.dp.flush_connections(&filter);
                });
            }
            7 => self.twins.iter().for_each(|twin| twin.dp.sweep_connections()),
            _ => {}
        }
    }

    /// Changes the pipeline, and replaces the flows whose actions that changes, or removes them.
    fn revise(&mut self, replaces: bool) {
        self.pipeline.revision.fetch_add(1, Ordering::Relaxed);
        for twin in &self.twins {
            let generation = twin.handler.generation.load(Ordering::Relaxed);
            for (flow, _) in twin.flows(&self.pipeline).into_values() {
                let (actions, mask) = self.pipeline.answer(&flow.key);
                if actions == flow.actions {
                    continue;
                }
                if replaces {
                    twin.dp.flow_put(flow.id, DpFlow::by_hand(&flow.key, &mask, actions, generation)).expect("there");
                } else {
                    twin.dp.flow_del(flow.id).expect("installed");
                }
            }
        }
    }
}

#[test]
fn the_shortcut_is_equal_to_looking_up_each_pass() {
    let rounds = std::env::var("SHORTCUT_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let first = std::env::var("SHORTCUT_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let (mut batches, mut sent, mut skipped) = (0, 0, 0);
    for seed in first..first + rounds {
        let mut rng = Rng::seeded(seed);
        let mut round = Round::new(&mut rng);
        println!("seed {seed}: {:?}{}", round.traffic, if round.pipeline.is_tunneled { ", in tunnels" } else { "" });
        for n in 1..=64 {
            round.disturb(&mut rng);
            round.send(&mut rng);
            if n % WINDOW == 0 {
                round.compare();
            }
        }
        batches += round.batches;
        sent += round.sent;
        let probes = round.twins.each_ref().map(|twin| twin.dp.stats().mask_hits);
        skipped += probes[1].saturating_sub(probes[0]);
    }
    tally::report!("{batches} batches, {sent} packets sent, {skipped} probes less");
}

/// The key of a packet from this port.
fn udp(port: u32) -> FlowKey {
    let mut key = FlowKey::ZERO;
    for (field, value) in [
        (Field::EthType, 0x800),
        (Field::IpProto, 17),
        (Field::IpTtl, 9),
        (Field::Ipv4Src, 0x0a00_0001),
        (Field::Ipv4Dst, 0x0a00_0002),
        (Field::UdpSrc, port.into()),
        (Field::UdpDst, 53),
    ] {
        key.set(field, value);
    }
    key
}

/// Hashes after the tracker are those of the translated packet, also if only some packets of a batch take the shortcut to them.
#[test]
fn a_hash_on_the_shortcut_is_that_of_the_translated_packet() {
    let dp = common::stepped();
    let (a, b) = common::two_ports(&dp);
    // The self-check looks at keys, which the last-flow cache does without.
    dp.set_self_check(u64::MAX);
    let address = [0, 0x0a00_0909];
    let nat = Nat { kind: Some(NatKind::Src), addresses: Some((address, address, false)), ..Nat::default() };
    let ct = Arc::new(Ct { zone: 1, commit: Some(Commit::Plain), nat: Some(nat), ..Ct::default() });
    dp.set_handler(TestHandler::new(Box::new(move |_, key| {
        let mut mask = common::plain_mask();
        mask.add_mask(Field::RecircId, u32::MAX.into());
        let actions: DpActions = match key.get(Field::RecircId) {
            0 => [DpAction::Ct(Arc::clone(&ct)), DpAction::Recirc(1)].into(),
            1 => {
                mask.add_mask(Field::UdpSrc, 1);
                let basis = key.get(Field::UdpSrc) as u32 & 1;
                [DpAction::Hash(HashKind::L4, basis), DpAction::Recirc(2 + basis)].into()
            }
            id => {
                // Not remembered, as it is an upcall, so that the next packet takes the shortcut to the hash.
                mask.add_mask(Field::DpHash, u32::MAX.into());
                assert_eq!(key.get(Field::DpHash), flow::hash::l4(key, id as u32 - 2).into());
                [DpAction::Punt(Punt::to(Protocol::LLDP)), common::out(2)].into()
            }
        };
        (actions, Some(mask))
    })));
    for _ in 0..6 {
        (0..BATCH_MAX as u32).for_each(|n| a.receive(&flow::compose(&udp(2000 + n), &[0; 20])));
        dp.run_until_idle(10);
        assert_eq!(b.sent().len(), BATCH_MAX);
    }
    // Each connection has one hash, and one flow for it.
    assert_eq!(dp.stats().flows, 3 + BATCH_MAX as u64);
}

/// A packet whose tag is popped on the shortcut does not take the flow of packets of its connection that keep the tag.
#[test]
fn a_tag_on_the_shortcut_is_that_of_the_packet() {
    let dp = common::stepped();
    let (a, b) = common::two_ports(&dp);
    let ct = |zone| DpAction::Ct(Arc::new(Ct { zone, commit: Some(Commit::Plain), ..Ct::default() }));
    dp.set_handler(TestHandler::new(Box::new(move |_, key| {
        let mut mask = common::plain_mask();
        let fields = [(Field::RecircId, u32::MAX), (Field::EthSrc, 1)];
        fields.iter().for_each(|(field, bits)| mask.add_mask(*field, (*bits).into()));
        let actions = match (key.get(Field::RecircId), key.get(Field::EthSrc) & 1) {
            (0, 0) => vec![ct(2), DpAction::Recirc(2)],
            // Not the list of a plain packet, so that the key of the first pass is that of the second one, too.
            (0, _) => vec![DpAction::CtClear, ct(1), DpAction::Recirc(1)],
            (1, _) => vec![DpAction::PopVlan, ct(2), DpAction::Recirc(2)],
            _ if key.vlan_tci() == 0 => vec![DpAction::PushVlan { tpid: 0x8100, tci: 7 }, common::out(2)],
            _ => vec![common::out(2)],
        };
        if key.get(Field::RecircId) == 2 {
            mask.set(Field::EthSrc, 0);
        }
        (actions.into(), Some(mask))
    })));
    for n in 0..16 {
        let mut key = udp(2000);
        key.set_vlan(0, 0x8100, 0x1009);
        key.set(Field::EthSrc, n & 1);
        a.receive(&flow::compose(&key, &[0; 20]));
        dp.run_until_idle(10);
        let sent = b.sent();
        assert_eq!(sent.iter().map(|packet| packet.data()[15]).collect::<Vec<_>>(), [if n & 1 == 1 { 7 } else { 9 }]);
    }
}
