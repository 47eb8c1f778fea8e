//! Packets that a list of actions hashes and recirculates take the flows of their hashes, as behind bonds and groups, while flows
//! come and go.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::rng::Rng;
use base::{Clock, DpPort, PortNo};
use common::{TestHandler, TestPort, out, plain_mask};
use datapath::{Config, Datapath};
use dpif::{DpAction, DpActions, Dpif, HashKind};
use flow::{Field, FlowKey, FlowMask, extract, hash};

const OUTPUTS: u32 = 4;
const BASIS: u32 = 3;

/// The actions for a packet in its first pass, as a bond or one of several groups.
fn choose_first(key: &FlowKey) -> (Vec<DpAction>, FlowMask) {
    let mut mask = plain_mask();
    mask.add_mask(Field::RecircId, u32::MAX.into());
    mask.add_mask(Field::EthSrc, 7);
    let id = 5 + (key.get(Field::EthSrc) & 7) as u32;
    (vec![DpAction::Hash(HashKind::L4, BASIS), DpAction::Recirc(id)], mask)
}

/// The output of a packet in its second pass, and the mask of that.
fn choose_second(generation: u64, key: &FlowKey) -> (u32, FlowMask) {
    let id = key.get(Field::RecircId) as u32;
    let mut mask = plain_mask();
    mask.add_mask(Field::RecircId, u32::MAX.into());
    let bits = [0xff, 0xf, 0xff, 0xfff, 0xffff_ffff, 0x3, 0, 0xff][id as usize % 8];
    mask.add_mask(Field::DpHash, bits);
    let mut value = (key.get(Field::DpHash) & bits) as u64 ^ u64::from(id) << 32 ^ generation << 48;
    if id.is_multiple_of(2) {
        mask.add_mask(Field::EthDst, 3);
        value ^= (key.get(Field::EthDst) as u64 & 3) << 40;
    }
    let mixed = value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (2 + mixed as u32 % OUTPUTS, mask)
}

/// A UDP packet of one of many flows.
fn frame(rng: &mut Rng) -> Vec<u8> {
    let [a, b, c, d, port] = [4, 8, 16, 4, 8].map(|n| rng.below(n) as u8);
    let mut frame = [
        &[2, 0, 0, 0, 0, a, 2, 0, 0, 0, 1, b, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0][..],
        &[10, 0, 0, c, 10, 0, 1, d, 4, port, 0, 53, 0, 8, 0, 0],
    ]
    .concat();
    frame.resize(60 + rng.below(3) as usize, 0);
    frame
}

#[test]
fn packets_take_the_flows_of_their_hashes() {
    let (rounds, mut sent, mut hits) = (3000, 0, 0);
    for seed in 0..2 {
        let config = Config { threads: 0, ..Config::default() };
        let dp = Datapath::new(config, Clock::stopped()).expect("no thread to start");
        let ports: Vec<Arc<TestPort>> = (0..=OUTPUTS).map(|n| TestPort::new(&format!("p{n}"))).collect();
        for port in &ports {
            dp.port_add(port.clone(), None).expect("opens");
        }
        let generation = Arc::new(AtomicU64::new(0));
        let now = Arc::clone(&generation);
        let handler = TestHandler::new(Box::new(move |_, key| {
            let (actions, mask): (Vec<_>, _) = if key.get(Field::RecircId) == 0 {
                choose_first(key)
            } else {
                let (to, mask) = choose_second(now.load(Ordering::SeqCst), key);
                (vec![out(to)], mask)
            };
            (DpActions::from(actions), Some(mask))
        }));
        dp.set_handler(handler.clone());
        let mut rng = Rng::seeded(seed);
        for round in 0..rounds {
            match rng.below(60) {
                0 => {
                    let next = generation.load(Ordering::SeqCst) + 1;
                    generation.store(next, Ordering::SeqCst);
                    handler.generation.store(next, Ordering::SeqCst);
                    dp.set_generation(next);
                }
                1..4 => {
                    let flows = dp.flow_dump();
                    if !flows.is_empty() {
                        dp.flow_del(flows[rng.below(flows.len() as u64) as usize].id).expect("it is there");
                    }
                }
                _ => {}
            }
            let mut expected = vec![Vec::new(); OUTPUTS as usize];
            for _ in 0..=rng.below(40) {
                let one = frame(&mut rng);
                let mut key = extract(&one, PortNo(1)).0;
                let [.., DpAction::Recirc(id)] = choose_first(&key).0[..] else { panic!("no recirculation") };
                key.set(Field::DpHash, hash::l4(&key, BASIS).into());
                key.set(Field::RecircId, id.into());
                let (to, _) = choose_second(generation.load(Ordering::SeqCst), &key);
                expected[to as usize - 2].push(one.clone());
                ports[0].receive(&one);
                sent += 1;
            }
            dp.run_until_idle(100);
            for (port, mut expected) in ports[1..].iter().zip(expected) {
                let mut got: Vec<_> = port.sent().iter().map(|packet| packet.data().to_vec()).collect();
                got.sort();
                expected.sort();
                assert_eq!(got, expected, "seed {seed}, round {round}");
            }
        }
        assert_eq!(dp.drops(), []);
        hits += dp.stats().hit;
        assert_eq!(dp.port_stats(DpPort(1)).expect("there").rx_drops, []);
    }
    tally::report!("{rounds} rounds, {sent} packets, {hits} hits of flows in their passes");
}
