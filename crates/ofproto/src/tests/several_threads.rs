//! Compares revalidation on several threads with revalidation on one.

use super::*;
use crate::Extent;
use proptest::prelude::*;

/// An event of a switch.
#[derive(Clone, Debug)]
enum Step {
    Add {
        src: Option<u8>,
        dst: Option<u8>,
        priority: u16,
        to: u32,
        idle: u16,
    },
    Delete {
        dst: Option<u8>,
    },
    /// Packets of this source to several destinations.
    Send {
        port: u32,
        src: u8,
        first: u8,
        n: u8,
    },
    /// Time passes, statistics are pushed and flows expire.
    Wait {
        ms: u64,
    },
    Changes,
    Full,
    Purge,
}

fn step() -> impl Strategy<Value = Step> {
    let station = 1u8..24;
    prop_oneof![
        4 => (proptest::option::weighted(0.3, station.clone()), proptest::option::weighted(0.7, station.clone()), 1u16..6, 0u32..4, 0u16..4)
            .prop_map(|(src, dst, priority, to, idle)| Step::Add { src, dst, priority, to, idle }),
        1 => proptest::option::weighted(0.9, station.clone()).prop_map(|dst| Step::Delete { dst }),
        6 => (1u32..4, station.clone(), station, 1u8..20).prop_map(|(port, src, first, n)| Step::Send { port, src, first, n }),
        2 => (1u64..3000).prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::Changes),
        1 => Just(Step::Full),
        1 => Just(Step::Purge),
    ]
}

/// The visible state of a switch: datapath flows, flow statistics, messages and packets sent.
#[derive(PartialEq, Debug, Default)]
struct Seen {
    flows: Vec<String>,
    counts: Vec<(u16, u64, u64)>,
    messages: Vec<String>,
    sent: Vec<usize>,
    fixed_up: usize,
}

fn run(steps: &[Step], megaflows: bool, n_threads: usize) -> Vec<Seen> {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    lab.switch.set_revalidator_threads(n_threads).expect("threads start");
    assert_eq!(lab.switch.revalidator_threads(), n_threads);
    lab.switch.set_megaflows(megaflows);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    let asking = Client::new(&br, PeerKind::Service, Version::V13);
    let of = |src: Option<u8>, dst: Option<u8>| {
        let mut m = Match::ANY;
        for (field, station) in [(Field::EthSrc, src), (Field::EthDst, dst)] {
            station.into_iter().for_each(|n| m.set(field, 0x0200_0000_0000 + u128::from(n)));
        }
        m
    };
    br.flow_mod(&add(Match::ANY, 0, vec![normal()])).expect("adds");
    let mut all = Vec::new();
    for step in steps {
        let mut seen = Seen::default();
        match *step {
            Step::Add { src, dst, priority, to, idle } => {
                // The choice between overlapping rules of one priority is undefined: there are none.
                let priority = 4 * priority + 2 * u16::from(src.is_some()) + u16::from(dst.is_some());
                let actions = if to == 0 { vec![normal()] } else { vec![output(to)] };
                let flags = openflow::flow_mod::FlowFlags { send_flow_rem: true, ..Default::default() };
                br.flow_mod(&FlowMod { flags, idle_timeout: idle, ..add(of(src, dst), priority, actions) })
                    .expect("adds");
            }
            Step::Delete { dst } => _ = asking.flow_mod(command(FlowModCommand::Delete, of(None, dst))),
            Step::Send { port, src, first, n } => {
                let frames: Vec<_> = (0..n).map(|i| frame(src, (first + i) % 24)).collect();
                lab.send(&format!("br-{port}"), &frames);
            }
            Step::Wait { ms } => {
                lab.clock.warp(ms);
                lab.switch.run_timers();
            }
            Step::Changes => _ = lab.switch.pass(Extent::Changes),
            Step::Full => seen.fixed_up = lab.switch.pass(Extent::Full).fixed_up,
            Step::Purge => lab.switch.purge(),
        }
        lab.switch.pass(Extent::Changes);
        for flow in dpif::Dpif::flow_dump(&*lab.dp) {
            let fresh = lab.switch.translate_now(&flow.key.masked(&flow.mask)).finish();
            assert_eq!(fresh.actions, flow.actions[..], "{:?}: no flow outlives a change", flow.key);
            // The match of a megaflow depends on the order of look-ups, which is random.
            if !megaflows {
                seen.flows.push(format!("{:?} {:?}", flow.key, flow.actions));
            }
        }
        seen.flows.sort_unstable();
        seen.counts = asking.counts();
        seen.messages = c.waiting().iter().map(|m| format!("{m:?}")).collect();
        // The order of removals by one deletion is arbitrary.
        seen.messages.sort_unstable();
        seen.sent = (1..4).map(|n| lab.received(&format!("br-{n}")).len()).collect();
        let status = lab.switch.revalidator_status();
        assert_eq!(status.keys.len(), n_threads);
        assert_eq!(status.keys.iter().sum::<u64>(), status.flows);
        all.push(seen);
    }
    all
}

tally::proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    /// The same flows are cached and removed, rules count the same packets, and controllers get the same messages.
    #[test]
    fn several_threads_revalidate_like_one(steps in proptest::collection::vec(step(), 1..30), megaflows: bool) {
        let (one, several) = (run(&steps, megaflows, 1), run(&steps, megaflows, 4));
        for (at, (one, several)) in one.iter().zip(&several).enumerate() {
            prop_assert_eq!(one, several, "after step {} of {:?}", at, steps);
        }
        prop_assert!(one.iter().all(|seen| seen.fixed_up == 0));
    }
}

/// Changes, statistics and misses at the same time, with the maximum number of threads; no flow outlives a change that
/// affects it, and every packet is counted once.
#[test]
fn passes_of_several_threads_lose_nothing() {
    const ROUNDS: u64 = 30;
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    lab.switch.set_revalidator_threads(crate::revalidate::REVALIDATORS_MAX).expect("threads start");
    let to = |n: u8| {
        let mut m = Match::ANY;
        m.set(Field::EthDst, 0x0200_0000_0000 + u128::from(n));
        m
    };
    for n in 0..200u8 {
        br.flow_mod(&add(to(n), 10, vec![output(2)])).expect("adds");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                for n in 0..200u8 {
                    let port = 2 + (round as u32 + u32::from(n)) % 2;
                    let flow = FlowMod { actions: vec![output(port)], ..command(FlowModCommand::Modify, to(n)) };
                    br.flow_mod(&flow).expect("modifies");
                }
                lab.switch.pass(if round % 5 == 0 { Extent::Full } else { Extent::Changes });
            }
        });
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                lab.switch.revalidate();
            }
        });
        for _ in 0..ROUNDS {
            for n in 0..200u8 {
                lab.send_at_once("br-1", &[frame(1, n)]);
            }
        }
    });
    let report = lab.switch.pass(Extent::Full);
    assert_eq!((report.fixed_up, lab.switch.revalidator_status().fixed_up), (0, 0));
    let c = Client::new(&br, PeerKind::Service, Version::V13);
    assert_eq!(c.counts().iter().map(|(_, packets, _)| packets).sum::<u64>(), 200 * ROUNDS);
}

#[test]
fn the_number_of_workers_can_change() {
    let lab = Lab::new();
    for n in [4, 1, 3, 100, 2] {
        lab.switch.set_revalidator_threads(n).expect("threads start");
        assert_eq!(lab.switch.revalidator_threads(), n.min(crate::revalidate::REVALIDATORS_MAX));
        assert_eq!(lab.switch.revalidator_status().keys.len(), n.min(crate::revalidate::REVALIDATORS_MAX));
    }
    let switch = Arc::downgrade(&lab.switch);
    drop(lab);
    assert!(switch.upgrade().is_none(), "a worker keeps no switch");
}
