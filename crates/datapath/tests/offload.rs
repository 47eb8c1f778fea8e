//! A datapath with an accelerator compared with one without: a naive accelerator in memory, random traffic, and
//! changes of the ports, flows and accelerator.

mod accelerator;
mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use accelerator::{FLOWS_MAX, Twin};
use base::rng::Rng;
use base::{Clock, DpPort, mix::fold};
use common::{TestHandler, TestPort};
use datapath::{Config, Datapath, IndexKind, OFFERED_PACKETS};
use dpif::{DpAction, DpActions, DpFlow, DpFlowStats, Dpif, FlowId};
use flow::layout::{IPV4, IPV6_DST};
use flow::{Field, FlowKey, FlowMask};
use netdev::Netdev;
use netdev::accelerate::Accelerator;

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
        let twin = twin.then(|| Twin::new(clock, FLOWS_MAX));
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
    let twin = Twin::new(&clock, FLOWS_MAX);
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
