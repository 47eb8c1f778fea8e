//! A datapath with an accelerator compared with one without: a naive accelerator in memory, random traffic, and
//! changes of the ports, flows and accelerator.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::rng::Rng;
use base::{Clock, DpPort, Millis, PortNo, mix::fold};
use common::{TestHandler, TestPort};
use datapath::{Config, Datapath, IndexKind, OFFERED_PACKETS};
use dpif::{DpAction, DpActions, DpFlow, DpFlowEntry, DpFlowStats, Dpif, FlowId};
use flow::layout::{ETH_DST, ETH_SRC, IP_MISC, IPV4, IPV6_DST, IPV6_SRC, TP};
use flow::{Field, FlowKey, FlowMask, extract::extract};
use netdev::accelerate::{
    AcceleratedPort, Accelerator, Capacity, Forwarded, Handle, Network, PLAIN_WORDS, Refusal, Tag, Verdict,
};
use netdev::{Netdev, Tx};
use packet::{Batch, Packet};
use parking_lot::Mutex;

/// A naive accelerator: a list of verdicts, searched in order.
#[derive(Debug)]
struct Twin {
    clock: Clock,
    flows_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ports: BTreeMap<AcceleratedPort, Arc<dyn Netdev>>,
    verdicts: BTreeMap<Handle, (Verdict, Forwarded, Millis)>,
    next: Handle,
    forwarded: u64,
    /// Forwarded packets of each network, without and with a tag.
    by_kind: [u64; 4],
    /// Packets that got or lost a tag.
    tags: u64,
}

const FLOWS_MAX: usize = 7;
const MASKS_MAX: usize = 2;

/// Returns the network of a plain frame, and its words.
fn plain(frame: &[u8]) -> Option<(Network, [u64; PLAIN_WORDS])> {
    let (key, layers) = extract(frame, PortNo(1));
    let (l3, l4) = (usize::from(layers.l3?), usize::from(layers.l4?));
    let word = |at: usize| key.0[at];
    let tci = word(ETH_SRC) & 0xffff;
    let is_tagged = tci != 0;
    let (network, header, addresses) = match key.eth_type() {
        0x0800 => (Network::Ipv4, 20, [word(IPV4), 0, 0, 0]),
        0x86dd => {
            let at = |n| word([IPV6_SRC, IPV6_SRC + 1, IPV6_DST, IPV6_DST + 1][n]);
            (Network::Ipv6, 40, std::array::from_fn(at))
        }
        _ => return None,
    };
    let protocol = if is_tagged { 0x8100 << 48 } else { 0 };
    let l4_bytes = layers.end.checked_sub(l4)?;
    let whole = match key.ip_proto() {
        6 => l4_bytes >= 20 && (20..=l4_bytes).contains(&(usize::from(frame[l4 + 12] >> 4) * 4)),
        17 => l4_bytes >= 8,
        _ => false,
    };
    let fits = l3 == if is_tagged { 18 } else { 14 } && l4 - l3 == header && key.get(Field::IpFrag) == 0;
    let [a, b, c, d] = addresses;
    let words = [word(ETH_DST) & !0xffff, word(ETH_SRC), word(IP_MISC), word(TP), a, b, c, d];
    (fits && whole && word(flow::layout::VLAN) == protocol).then_some((network, words))
}

impl Twin {
    fn new(clock: &Clock) -> Arc<Self> {
        Self::with_room(clock, FLOWS_MAX)
    }

    fn with_room(clock: &Clock, flows_max: usize) -> Arc<Self> {
        Arc::new(Self { clock: clock.clone(), flows_max, state: Mutex::default() })
    }

    /// Processes a frame as the kernel would. Returns true if it forwarded the frame.
    fn take(&self, device: &str, frame: &[u8]) -> bool {
        let state = &mut *self.state.lock();
        let Some((from, _)) = state.ports.iter().find(|(_, port)| port.name() == device) else { return false };
        let Some((network, words)) = plain(frame) else { return false };
        let covers = |v: &Verdict| {
            let frames = v.frames[network as usize];
            v.from == *from && frames.is_some_and(|of| (0..PLAIN_WORDS).all(|i| words[i] & of.mask[i] == of.key[i]))
        };
        let Some((verdict, all, used)) = state.verdicts.values_mut().find(|(v, ..)| covers(v)) else { return false };
        *used = self.clock.now();
        all.packets += 1;
        all.bytes += frame.len() as u64;
        if words[2] & 0xff == 6 {
            all.tcp_flags |= (words[3] >> 16) as u16;
        }
        state.by_kind[network as usize * 2 + usize::from(words[1] & 0xffff != 0)] += 1;
        let mut frame = frame.to_vec();
        match verdict.tag {
            Tag::Keep => {}
            Tag::Push(tci) => {
                assert!(words[1] & 0xffff == 0);
                let [a, b] = (tci & !0x1000).to_be_bytes();
                frame.splice(12..12, [0x81, 0, a, b]);
            }
            Tag::Pop => {
                assert!(words[1] & 0xffff != 0);
                frame.drain(12..16);
            }
        }
        let mut tx: Box<dyn Tx> = state.ports[&verdict.to].open_tx().expect("a port in memory");
        let mut batch: Batch = [Packet::from_slice(&frame)].into_iter().collect();
        tx.send_batch(&mut batch);
        state.forwarded += 1;
        state.tags += u64::from(verdict.tag != Tag::Keep);
        true
    }
}

impl Accelerator for Twin {
    fn kind(&self) -> &'static str {
        "twin"
    }

    fn port_add(&self, device: &Arc<dyn Netdev>) -> Result<AcceleratedPort, String> {
        if device.name() == "d" {
            return Err("not this one".to_owned());
        }
        let ports = &mut self.state.lock().ports;
        let number = (0..=AcceleratedPort::MAX).find(|n| !ports.contains_key(n)).expect("few ports");
        ports.insert(number, Arc::clone(device));
        Ok(number)
    }

    fn port_del(&self, port: AcceleratedPort) {
        let state = &mut *self.state.lock();
        assert!(state.verdicts.values().all(|(v, ..)| v.from != port && v.to != port));
        assert!(state.ports.remove(&port).is_some());
    }

    fn put(&self, verdict: &Verdict) -> Result<Handle, Refusal> {
        let state = &mut *self.state.lock();
        assert!(state.ports.contains_key(&verdict.from) && state.ports.contains_key(&verdict.to));
        assert!(verdict.frames.iter().any(Option::is_some));
        for (network, frames) in Network::ALL.into_iter().zip(verdict.frames) {
            let Some(frames) = frames else { continue };
            assert!((0..PLAIN_WORDS).all(|i| frames.key[i] & !frames.mask[i] == 0));
            assert!(frames.mask[network.words()..].iter().all(|word| *word == 0));
            let others = state.verdicts.values().filter(|(v, ..)| v.from == verdict.from);
            let others: Vec<_> = others.filter_map(|(v, ..)| v.frames[network as usize]).collect();
            if others.contains(&frames) {
                return Err(Refusal::Taken);
            }
            let mut masks: Vec<_> = others.iter().map(|of| of.mask).collect();
            masks.sort_unstable();
            masks.dedup();
            if !masks.contains(&frames.mask) && masks.len() == MASKS_MAX {
                return Err(Refusal::TooManyMasks);
            }
        }
        if state.verdicts.len() == self.flows_max {
            return Err(Refusal::Full);
        }
        state.next += 1;
        state.verdicts.insert(state.next, (*verdict, Forwarded::default(), Millis(0)));
        Ok(state.next)
    }

    fn remove(&self, handles: &[Handle], report: &mut dyn FnMut(usize, Forwarded)) {
        for (at, handle) in handles.iter().enumerate() {
            let all = self.forwarded(*handle);
            assert!(self.state.lock().verdicts.remove(handle).is_some(), "removed twice");
            report(at, all);
        }
    }

    fn forwarded(&self, handle: Handle) -> Forwarded {
        let (_, all, used) = self.state.lock().verdicts[&handle];
        Forwarded { idle_ms: self.clock.now().since(used), ..all }
    }

    fn refresh(&self) {}

    fn capacity(&self) -> Capacity {
        Capacity { flows: self.state.lock().verdicts.len(), flows_max: self.flows_max, masks: 0, masks_max: MASKS_MAX }
    }
}

/// Returns the verdict on a key, which depends on the version, and the mask of further bits read.
fn decide(version: u64, key: &FlowKey) -> (DpActions, FlowMask) {
    let mut mask = FlowKey::mask_of(Field::InPortOxm);
    mask.0[flow::layout::PORTS] = u64::MAX;
    mask.add_mask(Field::EthType, 0xffff);
    mask.add_mask(Field::EthDst, u64::MAX.into());
    let seen = |mask: &FlowMask| {
        key.0.iter().zip(&mask.0).fold(version, |h, (word, bits)| fold(h ^ (word & bits), 0x9e37_79b9))
    };
    let more = seen(&mask);
    if key.eth_type() == 0x0800 {
        if more & 1 != 0 {
            mask.add_mask(Field::IpProto, 0xff);
            if more & 2 != 0 && matches!(key.ip_proto(), 6 | 17) {
                mask.add_mask(Field::TcpDst, 0xffff);
            }
        }
        if more & 0b1100 == 0 {
            mask.0[IPV4] |= 0xff << 32;
        }
    }
    if key.eth_type() == 0x86dd {
        if more & 1 != 0 {
            mask.add_mask(Field::IpProto, 0xff);
            mask.add_mask(Field::IpFrag, 3);
        }
        if more & 0b1100 == 0 {
            mask.0[IPV6_DST + 1] |= 0xff;
            mask.add_mask(Field::Ipv6Label, 0xf);
        }
    }
    if more & 0b11_0000 == 0 {
        mask.add_mask(Field::VlanTci, 0xffff);
        mask.0[flow::layout::VLAN] |= 0xffff << 48;
    }
    let verdict = seen(&mask) >> 8;
    let output = |n: u64| DpAction::Output(DpPort(1 + (n % 5) as u32));
    let actions: DpActions = match verdict % 8 {
        0 => [].into(),
        1 => [output(verdict >> 8), output(verdict >> 16)].into(),
        2 => [DpAction::PushVlan { tpid: 0x8100, tci: 0x1007 }, output(verdict >> 8)].into(),
        3 => [DpAction::PopVlan, output(verdict >> 8)].into(),
        4 => [DpAction::PushVlan { tpid: 0x88a8, tci: 0x1007 }, output(verdict >> 8)].into(),
        _ => [output(verdict >> 8)].into(),
    };
    (actions, mask)
}

/// A frame with few values in each field.
fn frame(rng: &mut Rng) -> Vec<u8> {
    let mut frame = vec![0; 80 + rng.below(3) as usize];
    frame[5] = rng.below(3) as u8;
    let proto = [6, 17, 17, 1][rng.below(4) as usize];
    let l4 = if rng.below(2) == 0 {
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        (frame[17], frame[23], frame[29]) = (40, proto, rng.below(2) as u8);
        34
    } else {
        frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        (frame[17], frame[19], frame[20]) = (rng.below(2) as u8, 20, proto);
        (frame[37], frame[53]) = (rng.below(2) as u8, rng.below(2) as u8);
        54
    };
    frame[l4 + 3] = rng.below(2) as u8;
    (frame[l4 + 12], frame[l4 + 13]) = (0x50, 1 << rng.below(5));
    match rng.below(16) {
        0 => frame[13] = 6,
        // A fragment, or an unsupported protocol over IPv6.
        1 => frame[20] = 0x20,
        // IPv4 options, or an unsupported IPv6 traffic class.
        2 => frame[14] ^= 3,
        // IPv6 extension headers.
        3 if l4 == 54 => frame[20] = [0, 44, 60][rng.below(3) as usize],
        _ => {}
    }
    for _ in 0..[0, 0, 1, 1, 1, 2][rng.below(6) as usize] {
        let protocol = [[0x81, 0], [0x81, 0], [0x81, 0], [0x88, 0xa8]][rng.below(4) as usize];
        frame.splice(12..12, [protocol[0], protocol[1], 0, rng.below(2) as u8]);
    }
    frame
}

/// A datapath with five ports, four of which an accelerator may support.
struct Side {
    dp: Datapath,
    handler: Arc<TestHandler>,
    ports: Vec<Arc<TestPort>>,
    present: [bool; 5],
    twin: Option<Arc<Twin>>,
    is_on: bool,
}

impl Side {
    fn new(kind: IndexKind, clock: &Clock, version: &Arc<AtomicU64>, twin: bool) -> Self {
        let dp =
            Datapath::new(Config { threads: 0, index: kind, ..Config::default() }, clock.clone()).expect("no threads");
        let version = Arc::clone(version);
        let handler = TestHandler::new(Box::new(move |_, key| {
            let (actions, mask) = decide(version.load(Ordering::SeqCst), key);
            (actions, Some(mask))
        }));
        dp.set_handler(handler.clone());
        let ports: Vec<_> = ["a", "b", "c", "d", "e"].map(TestPort::new).into();
        let twin = twin.then(|| Twin::new(clock));
        let mut side = Self { dp, handler, ports, present: [false; 5], twin, is_on: false };
        (0..5).for_each(|n| side.toggle_port(n));
        side.toggle_accelerator();
        side
    }

    fn toggle_port(&mut self, n: usize) {
        let number = DpPort(n as u32 + 1);
        if self.present[n] {
            self.dp.port_del(number).expect("is there");
            self.dp.synchronize();
        } else {
            assert_eq!(self.dp.port_add(self.ports[n].clone(), Some(number)).expect("opens"), number);
        }
        self.present[n] = !self.present[n];
    }

    fn toggle_accelerator(&mut self) {
        let Some(twin) = &self.twin else { return };
        self.is_on = !self.is_on;
        self.dp.set_accelerator(self.is_on.then(|| Arc::clone(twin) as Arc<dyn Accelerator>));
        assert!(twin.state.lock().verdicts.is_empty());
    }

    /// Receives frames and returns the frames sent to each port.
    fn receive(&self, port: usize, frames: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
        if self.present[port] {
            for frame in frames {
                let port = &self.ports[port];
                if !self.twin.as_ref().is_some_and(|twin| twin.take(port.name(), frame)) {
                    port.receive(frame);
                }
            }
        }
        self.dp.run_until_idle(1000);
        let sent = |port: &Arc<TestPort>| {
            let mut sent: Vec<Vec<u8>> = port.sent().iter().map(|p| p.data().to_vec()).collect();
            sent.sort();
            sent
        };
        self.ports.iter().map(sent).collect()
    }

    /// Translates all flows again, as the revalidator does.
    fn revalidate(&self, version: u64, generation: u64, chosen: u64) -> Vec<(FlowId, DpFlowStats)> {
        let mut entries = self.dp.flow_dump();
        entries.sort_by_key(|entry| entry.id);
        let mut gone = Vec::new();
        for entry in entries {
            let (actions, mask) = decide(version, &entry.key);
            if mask != entry.mask || entry.generation != generation {
                gone.push((entry.id, self.dp.flow_del(entry.id).expect("is there")));
            } else if actions != entry.actions || entry.id.0 % 8 == chosen {
                let flow = DpFlow::by_hand(&entry.key, &mask, actions, generation);
                self.dp.flow_put(entry.id, flow).expect("room for itself");
            }
        }
        gone
    }

    fn stats(&self) -> Vec<(FlowId, DpFlowStats)> {
        let mut stats = Vec::new();
        self.dp.flow_stats(&mut |id, of| stats.push((id, of)));
        stats.sort_by_key(|(id, _)| *id);
        stats
    }

    fn gone(&self) -> Vec<(FlowId, DpFlowStats)> {
        let mut gone = std::mem::take(&mut *self.handler.gone.lock());
        gone.sort_by_key(|(id, _)| *id);
        gone
    }
}

#[test]
fn an_accelerator_changes_nothing_visible() {
    let (mut forwarded, mut taken, mut steps) = (0, 0, 0);
    let (mut refused, mut by_kind, mut tags) = (BTreeMap::new(), [0; 4], 0);
    for seed in 0..24 {
        let kind = [IndexKind::Tree, IndexKind::TupleSpace][seed as usize % 2];
        let mut rng = Rng::seeded(seed);
        let (clock, version) = (Clock::stopped(), Arc::new(AtomicU64::new(seed)));
        let mut sides = [false, true].map(|twin| Side::new(kind, &clock, &version, twin));
        let mut generation = 0;
        for step in 0..400 {
            clock.warp(1 + rng.below(20));
            match rng.below(40) {
                0 => {
                    version.store(rng.next_u64(), Ordering::SeqCst);
                    let (version, chosen) = (version.load(Ordering::SeqCst), rng.below(8));
                    let [a, b] = sides.each_ref().map(|side| side.revalidate(version, generation, chosen));
                    assert_eq!(a, b, "{step}");
                }
                1 => {
                    generation += 1;
                    for side in &sides {
                        side.handler.generation.store(generation, Ordering::SeqCst);
                        side.dp.set_generation(generation);
                    }
                    assert!(sides[1].twin.as_ref().is_some_and(|twin| twin.state.lock().verdicts.is_empty()));
                }
                2 => {
                    let n = rng.below(5) as usize;
                    sides.iter_mut().for_each(|side| side.toggle_port(n));
                }
                3 if rng.below(3) == 0 => {
                    if let Some(info) = sides[1].dp.offload() {
                        taken += info.taken;
                        info.refused.into_iter().for_each(|(why, n)| *refused.entry(why.to_string()).or_insert(0) += n);
                    }
                    sides[1].toggle_accelerator();
                }
                4 => {
                    let [a, b] = sides.each_ref().map(Side::stats);
                    assert_eq!(a, b, "{step}");
                    if let Some((id, _)) = a.get(rng.below(a.len().max(1) as u64) as usize) {
                        let [a, b] = sides.each_ref().map(|side| side.dp.flow_del(*id).expect("is there"));
                        assert_eq!(a, b);
                    }
                }
                _ => {
                    let port = rng.below(3) as usize;
                    let frames: Vec<_> = (0..=rng.below(100)).map(|_| frame(&mut rng)).collect();
                    let [a, b] = sides.each_ref().map(|side| side.receive(port, &frames));
                    assert_eq!(a, b, "{step}");
                }
            }
            assert_eq!(sides[0].gone(), sides[1].gone(), "{step}");
            steps += 1;
        }
        let [a, b] = sides.each_ref().map(Side::stats);
        assert_eq!(a, b);
        let [a, b] = sides.each_ref().map(|side| {
            let ports = side.dp.ports().into_iter();
            let stats = ports.map(|p| (p.number, p.stats));
            stats.map(|(n, s)| (n, s.rx_packets, s.rx_bytes, s.tx_packets, s.tx_bytes)).collect::<Vec<_>>()
        });
        assert_eq!(a, b);
        assert_eq!(sides[0].dp.drops(), sides[1].dp.drops());
        assert!(sides[0].dp.flow_dump().iter().all(|entry| !entry.offloaded));
        if let Some(twin) = &sides[1].twin {
            let state = twin.state.lock();
            forwarded += state.forwarded;
            tags += state.tags;
            by_kind.iter_mut().zip(state.by_kind).for_each(|(sum, n)| *sum += n);
        }
    }
    assert!(forwarded > 3000 && taken > 50, "{forwarded} {taken}");
    assert!(by_kind.iter().all(|n| *n > 300) && tags > 300, "{by_kind:?} {tags}");
    assert!(refused.len() >= 4, "{refused:?}");
    tally::report!(
        "{steps} steps, {forwarded} packets below ({by_kind:?}, tags of {tags} changed), {taken} flows taken, refused: {refused:?}"
    );
}

#[test]
fn a_flow_is_offloaded_after_some_packets() {
    let clock = Clock::stopped();
    let dp = Datapath::new(Config { threads: 0, ..Config::default() }, clock.clone()).expect("no threads");
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    dp.port_add(a.clone(), None).expect("opens");
    dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(2))]));
    let twin = Twin::new(&clock);
    assert!(dp.offload().is_none());
    dp.set_accelerator(Some(twin.clone()));
    dp.port_add(b, None).expect("opens");
    assert_eq!(dp.port_offload(DpPort(2)), Some(Ok("twin")));
    let mut udp = vec![0; 60];
    udp[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    let receive = || {
        if !twin.take("a", &udp) {
            a.receive(&udp);
            dp.run_until_idle(10);
        }
        dp.flow_dump()[0].offloaded
    };
    // The packet of the miss does not count for its flow.
    assert!((0..OFFERED_PACKETS).all(|_| !receive()));
    assert!(receive());
    assert!(receive());
    let entry = &dp.flow_dump()[0];
    assert_eq!((entry.stats.packets, twin.state.lock().forwarded), (OFFERED_PACKETS + 1, 1));
    let info = dp.offload().expect("is on");
    assert_eq!((info.taken, info.forwarded, info.ports.len()), (1, (1, 60), 2));
    dp.shutdown();
    assert!(twin.state.lock().ports.is_empty());
}

/// What an accelerator is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Remove,
    Counts,
}

/// An accelerator that calls the test while it removes flows or reads their counts.
struct Observed {
    twin: Arc<Twin>,
    meanwhile: OnceLock<Box<dyn Fn(Request) + Send + Sync>>,
}

impl std::fmt::Debug for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observed").field("twin", &self.twin).finish_non_exhaustive()
    }
}

impl Observed {
    fn call(&self, request: Request) {
        if let Some(meanwhile) = self.meanwhile.get() {
            meanwhile(request);
        }
    }
}

impl Accelerator for Observed {
    fn kind(&self) -> &'static str {
        "observed"
    }

    fn port_add(&self, device: &Arc<dyn Netdev>) -> Result<AcceleratedPort, String> {
        self.twin.port_add(device)
    }

    fn port_del(&self, port: AcceleratedPort) {
        self.twin.port_del(port);
    }

    fn put(&self, verdict: &Verdict) -> Result<Handle, Refusal> {
        self.twin.put(verdict)
    }

    fn remove(&self, handles: &[Handle], report: &mut dyn FnMut(usize, Forwarded)) {
        if !handles.is_empty() {
            self.call(Request::Remove);
        }
        self.twin.remove(handles, report);
    }

    fn forwarded(&self, handle: Handle) -> Forwarded {
        self.call(Request::Counts);
        self.twin.forwarded(handle)
    }

    fn refresh(&self) {}

    fn capacity(&self) -> Capacity {
        self.twin.capacity()
    }
}

/// Three ports, an accelerator with room for `flows_max` flows, and a handler that sends all packets to the second port,
/// by flows that match the input port, the Ethernet destination and the protocol.
struct Scene {
    dp: Arc<Datapath>,
    ports: [Arc<TestPort>; 3],
    accelerator: Arc<Observed>,
}

impl Scene {
    fn new(flows_max: usize) -> Self {
        let clock = Clock::stopped();
        let config = Config { threads: 0, ..Config::default() };
        let dp = Arc::new(Datapath::new(config, clock.clone()).expect("no threads"));
        let ports = ["a", "b", "c"].map(TestPort::new);
        for port in &ports {
            dp.port_add(port.clone(), None).expect("opens");
        }
        dp.set_handler(TestHandler::new(Box::new(|_, _| {
            let mut mask = FlowKey::mask_of(Field::InPortOxm);
            mask.0[flow::layout::PORTS] = u64::MAX;
            mask.add_mask(Field::EthType, 0xffff);
            mask.add_mask(Field::EthDst, u64::MAX.into());
            ([DpAction::Output(DpPort(2))].into(), Some(mask))
        })));
        let accelerator = Arc::new(Observed { twin: Twin::with_room(&clock, flows_max), meanwhile: OnceLock::new() });
        dp.set_accelerator(Some(accelerator.clone()));
        Self { dp, ports, accelerator }
    }

    fn observe(&self, meanwhile: impl Fn(Request) + Send + Sync + 'static) {
        assert!(self.accelerator.meanwhile.set(Box::new(meanwhile)).is_ok(), "set once");
    }

    /// A UDP frame to the host with this number.
    fn frame(host: u8) -> Vec<u8> {
        let mut udp = vec![0; 60];
        udp[5] = host;
        udp[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        udp
    }

    /// Has the flow of a host offered to the accelerator: a miss, and as many packets as that takes.
    fn offer(&self, host: u8) {
        for _ in 0..=OFFERED_PACKETS {
            self.ports[0].receive(&Self::frame(host));
            self.dp.run_until_idle(10);
        }
    }

    /// The flow of a host.
    fn flow(&self, host: u8) -> DpFlowEntry {
        let to_host = |entry: &DpFlowEntry| entry.key.get(Field::EthDst) == u128::from(host);
        self.dp.flow_dump().into_iter().find(to_host).expect("installed")
    }
}

/// Taking a flow back from the kernel waits for other threads: meanwhile packets are forwarded, by the new flow.
#[test]
fn packets_are_forwarded_while_a_flow_is_taken_back() {
    let scene = Scene::new(FLOWS_MAX);
    let (dp, twin) = (&scene.dp, &scene.accelerator.twin);
    let [a, _, c] = &scene.ports;
    let udp = Scene::frame(1);
    let forwarded = Arc::new(AtomicU64::new(0));
    {
        let (dp, a, udp, forwarded) = (Arc::downgrade(dp), a.clone(), udp.clone(), Arc::clone(&forwarded));
        scene.observe(move |request| {
            if let (Request::Remove, Some(dp)) = (request, dp.upgrade()) {
                a.receive(&udp);
                forwarded.fetch_add(dp.run_until_idle(10) as u64, Ordering::Relaxed);
            }
        });
    }
    scene.offer(1);
    let entry = scene.flow(1);
    assert!(entry.offloaded && twin.take("a", &udp));
    // Other actions under the same id.
    let to_c: DpActions = [DpAction::Output(DpPort(3))].into();
    dp.flow_put(entry.id, DpFlow::by_hand(&entry.key, &entry.mask, to_c, 0)).expect("there is room");
    assert_eq!((forwarded.load(Ordering::Relaxed), c.sent().len()), (1, 1));
    // Packets forwarded below before, and the packet in between, count for the flow.
    assert!(!twin.take("a", &udp), "nothing is forwarded below by what was replaced");
    let stats = dp.flow_get(entry.id).expect("there").stats;
    assert_eq!(stats.packets, entry.stats.packets + 2);
    // A removed flow includes packets that were forwarded meanwhile.
    for _ in 0..OFFERED_PACKETS {
        a.receive(&udp);
        dp.run_until_idle(10);
    }
    assert!(dp.flow_get(entry.id).expect("there").offloaded, "it is offered for itself");
    let last = dp.flow_del(entry.id).expect("there");
    assert_eq!(last.packets, stats.packets + OFFERED_PACKETS);
    assert_eq!(forwarded.load(Ordering::Relaxed), 2, "another miss");
}

/// While the accelerator is busy, a packet thread forwards the packets of a flow that is due to be offered, without
/// waiting, and offers the flow with a later packet.
#[test]
fn no_packet_thread_waits_to_offer_a_flow() {
    let scene = Scene::new(FLOWS_MAX);
    scene.offer(1);
    let (dp, a) = (Arc::downgrade(&scene.dp), scene.ports[0].clone());
    let forwarded = Arc::new(AtomicBool::new(false));
    let has_forwarded = Arc::clone(&forwarded);
    scene.observe(move |request| {
        let (Request::Remove, Some(dp)) = (request, dp.upgrade()) else { return };
        let (done, is_done) = std::sync::mpsc::channel();
        let a = a.clone();
        std::thread::spawn(move || {
            for _ in 0..=OFFERED_PACKETS {
                a.receive(&Scene::frame(2));
                dp.run_until_idle(10);
            }
            // Nobody listens after the deadline.
            let _ = done.send(());
        });
        // The deadline only ends a test that would hang.
        let in_time = is_done.recv_timeout(Duration::from_secs(60)).is_ok();
        has_forwarded.store(in_time, Ordering::SeqCst);
    });
    scene.dp.flow_del(scene.flow(1).id).expect("there");
    assert!(forwarded.load(Ordering::SeqCst), "a packet thread waits for the accelerator");
    let second = scene.flow(2);
    assert_eq!((second.stats.packets, second.offloaded), (OFFERED_PACKETS, false));
    scene.ports[0].receive(&Scene::frame(2));
    scene.dp.run_until_idle(10);
    assert!(scene.flow(2).offloaded);
}

/// Counts of flows are fetched some at a time: a thread that removes a flow comes in between.
#[test]
fn a_flow_is_taken_back_while_counts_are_fetched() {
    const HOSTS: u8 = 255;
    let scene = Scene::new(usize::from(HOSTS));
    (0..HOSTS).for_each(|host| scene.offer(host));
    let id = scene.flow(0).id;
    let (begin, begun) = std::sync::mpsc::sync_channel(0);
    // Reads of counts, altogether and before the removal.
    let (reads, reads_before) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    {
        let (reads, reads_before) = (Arc::clone(&reads), Arc::clone(&reads_before));
        scene.observe(move |request| {
            if request == Request::Remove {
                return reads_before.store(reads.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            if reads.fetch_add(1, Ordering::SeqCst) == 0 {
                begin.send(()).expect("the remover waits");
            }
            std::thread::sleep(Duration::from_millis(1));
        });
    }
    std::thread::scope(|scope| {
        let scene = &scene;
        scope.spawn(move || {
            begun.recv().expect("counts are fetched");
            scene.dp.flow_del(id).expect("there");
        });
        scene.dp.offload().expect("is on");
    });
    let (all, before) = (reads.load(Ordering::SeqCst), reads_before.load(Ordering::SeqCst));
    assert!(before < all, "{before} of {all}");
}

/// Batches that the last-flow cache recognizes, without keys, count for the offer as well.
#[test]
fn a_flow_of_the_last_flow_cache_is_offered_too() {
    let (clock, version) = (Clock::stopped(), Arc::new(AtomicU64::new(0)));
    let mut rng = Rng::seeded(4);
    let mut side = Side::new(IndexKind::Tree, &clock, &version, true);
    side.toggle_accelerator();
    // A frame whose flow an accelerator accepts, in batches until the last-flow cache holds it.
    let one = loop {
        let one = frame(&mut rng);
        let batch = vec![one.clone(); 32];
        (0..4).for_each(|_| drop(side.receive(0, &batch)));
        side.toggle_accelerator();
        side.receive(0, &batch);
        let taken = side.dp.offload().is_some_and(|info| info.taken > 0);
        side.toggle_accelerator();
        if taken {
            break one;
        }
    };
    (0..4).for_each(|_| drop(side.receive(0, &vec![one.clone(); 32])));
    side.toggle_accelerator();
    side.receive(0, &vec![one.clone(); 32]);
    assert_eq!(side.dp.offload().map(|info| info.taken), Some(1));
}
