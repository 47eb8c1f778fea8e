//! Packet threads that start and end, and receive queues that move, while packets flow. Threads sleep when idle, as
//! they share the machine with other tests; cores need not exist here.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Clock, DpPort};
use common::{TestHandler, TestPort, numbered_frame};
use datapath::{Config, Datapath};
use dpif::{Algorithm, Balance, Cpu, DpAction, Dpif, INTERVALS, Policy, ThreadConfig};
use netdev::Netdev;
use netdev::dummy::{Dummy, Registry};
use packet::Packet;
use vlog::{Captured, Level};

/// Maximum number of frames in transit: fewer than a dummy's queue holds.
const UNDER_WAY: u64 = 500;

fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

/// Keeps the lines that packet threads log.
fn log() -> Captured {
    Captured::new(&["dpif_netdev"], Level::Dbg)
}

fn dummy(registry: &Registry, name: &str, n_rxq: usize) -> Arc<Dummy> {
    let device = registry.open(name, "dummy-pmd").expect("opens");
    set_queues(&device, n_rxq);
    device
}

fn set_queues(device: &Dummy, n_rxq: usize) {
    device.set_options(&[("n_rxq".to_owned(), n_rxq.to_string())].into()).expect("options");
}

fn on_cores(cores: &[usize]) -> ThreadConfig {
    let cpus = cores.iter().map(|core| Cpu { core: *core, numa: 0 }).collect();
    ThreadConfig { cpus, sleep_us_max: 1000, ..ThreadConfig::default() }
}

/// Returns the core and the queues of each thread.
fn assigned(dp: &Datapath) -> Vec<(usize, Vec<(String, usize)>)> {
    let queues = |usage: &dpif::Usage| usage.queues.iter().map(|q| (q.port.clone(), q.queue)).collect();
    dp.usage(1).iter().map(|usage| (usage.thread.core_id, queues(usage))).collect()
}

fn of(port: &str, queues: &[usize]) -> Vec<(String, usize)> {
    queues.iter().map(|queue| (port.to_owned(), *queue)).collect()
}

#[test]
fn no_packet_is_lost_while_threads_change() {
    const QUEUES: usize = 4;
    let registry = Registry::new();
    let dp = Arc::new(Datapath::new(Config::default(), Clock::real()).expect("starts"));
    dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(2))]));
    let (input, out) = (dummy(&registry, "in", QUEUES), TestPort::new("out"));
    dp.port_add(input.clone(), None).expect("opens");
    dp.port_add(out.clone(), None).expect("opens");
    // The flow is installed before the other frames, which then stay in order.
    input.receive(Packet::from_slice(&numbered_frame(0, 60)), 0);
    wait_until(|| out.output.lock().len() == 1);
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(1)));
    let feeder = std::thread::spawn({
        let (stop, sent, input, out) = (stop.clone(), sent.clone(), input.clone(), out.clone());
        move || {
            let mut n = 1u32;
            while !stop.load(Ordering::Relaxed) {
                while n as usize > out.output.lock().len() + UNDER_WAY as usize {
                    std::thread::yield_now();
                }
                input.receive(Packet::from_slice(&numbered_frame(n, 60)), n as usize % QUEUES);
                n += 1;
                sent.store(n.into(), Ordering::SeqCst);
            }
        }
    });
    let arrived = || out.output.lock().len();
    let plans: [&[usize]; 6] = [&[0], &[0, 1], &[1, 2, 3], &[], &[5], &[0, 1, 2, 3, 4, 5]];
    for (round, cores) in (0..60).zip(plans.iter().cycle()) {
        let before = arrived();
        let algorithm = [Algorithm::Cycles, Algorithm::Group, Algorithm::RoundRobin][round % 3];
        let policy = Policy { algorithm, ..Policy::default() };
        dp.set_threads(&ThreadConfig { policy, ..on_cores(cores) }).expect("starts");
        let affinity: BTreeMap<usize, usize> = [(round % QUEUES, round % 6)].into();
        dp.port_set_queues(DpPort(1), &affinity).expect("there");
        dp.tick();
        dp.rebalance();
        let other = dp.port_add(dummy(&registry, "other", 1 + round % 3), None).expect("opens");
        wait_until(|| arrived() > before + 100);
        dp.port_del(other).expect("there");
        dp.synchronize();
    }
    stop.store(true, Ordering::Relaxed);
    feeder.join().expect("no panic");
    let total = sent.load(Ordering::SeqCst);
    wait_until(|| arrived() as u64 == total);
    let mut next = [4, 1, 2, 3];
    for packet in out.sent().iter().skip(1) {
        let n = u32::from_be_bytes(packet.data()[14..18].try_into().expect("4 bytes"));
        let queue = n as usize % QUEUES;
        assert_eq!(n, next[queue], "of queue {queue}");
        next[queue] += QUEUES as u32;
    }
    // Threads that ended count in the totals.
    let stats = dp.stats();
    assert_eq!((stats.hit + stats.missed, dp.drops()), (total, vec![]));
    let port = dp.port_stats(DpPort(2)).expect("there");
    assert_eq!(port.tx_packets, total);
    assert!(dp.thread_stats().iter().map(|t| t.packets).sum::<u64>() < total);
}

#[test]
fn queues_are_assigned_as_configured() {
    let registry = Registry::new();
    let dp = Datapath::new(Config::default(), Clock::real()).expect("starts");
    let (a, b) = (dummy(&registry, "a", 4), dummy(&registry, "b", 1));
    dp.port_add(a.clone(), None).expect("opens");
    let processors = std::thread::available_parallelism().expect("of this machine").get();
    // Without cores: as many threads as the port has queues, if there are enough processors.
    assert_eq!(assigned(&dp).len(), processors.min(4));
    dp.set_threads(&on_cores(&[3, 5])).expect("starts");
    dp.port_add(b, None).expect("opens");
    let by_cycles = [(3, [of("a", &[0, 3]), of("b", &[0])].concat()), (5, of("a", &[1, 2]))];
    assert_eq!(assigned(&dp), by_cycles);
    assert!(dp.threads().iter().all(|(thread, _)| thread.is_pinned && !thread.is_isolated));
    // A pinned queue isolates its core.
    dp.port_set_queues(DpPort(1), &[(2, 3)].into()).expect("there");
    assert_eq!(assigned(&dp), [(3, of("a", &[2])), (5, [of("a", &[0, 1, 3]), of("b", &[0])].concat())]);
    assert_eq!(dp.threads().iter().map(|(t, _)| t.is_isolated).collect::<Vec<_>>(), [true, false]);
    // One algorithm can work without isolation.
    for (algorithm, queues) in [(Algorithm::Group, 3), (Algorithm::Cycles, 1)] {
        let policy = Policy { algorithm, isolate: false };
        dp.set_threads(&ThreadConfig { policy, ..on_cores(&[3, 5]) }).expect("starts");
        assert_eq!(assigned(&dp)[0].1.len(), queues, "{algorithm:?}");
    }
    // A core without a thread, and a device whose number of queues changes.
    dp.port_set_queues(DpPort(1), &[(2, 9)].into()).expect("there");
    set_queues(&a, 2);
    dp.port_set_queues(DpPort(1), &BTreeMap::new()).expect("there");
    assert_eq!(assigned(&dp), [(3, of("a", &[0])), (5, [of("a", &[1]), of("b", &[0])].concat())]);
    set_queues(&a, 1);
    dp.port_set_queues(DpPort(1), &BTreeMap::new()).expect("there");
    dp.port_del(DpPort(2)).expect("there");
    dp.synchronize();
    assert_eq!(assigned(&dp), [(3, of("a", &[0])), (5, of("a", &[]))]);
    let infos = |dp: &Datapath| dp.ports()[0].queues.iter().map(|q| q.core_id).collect::<Vec<_>>();
    assert_eq!(infos(&dp), [Some(3)]);
    // Without cores, and with queues for one thread only.
    dp.set_threads(&ThreadConfig::default()).expect("starts");
    assert_eq!(assigned(&dp), [(0, of("a", &[0]))]);
    assert_eq!(dp.threads()[0].0.sleep_us_max, None);
    let ids = || dp.threads().iter().map(|(t, _)| t.id).collect::<Vec<_>>();
    let before = ids();
    dp.set_threads(&on_cores(&[0])).expect("starts");
    assert_ne!(ids(), before);
    // A port that stays is served by its new thread.
    dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(1))]));
    a.receive(Packet::from_slice(&numbered_frame(1, 60)), 0);
    wait_until(|| a.stats().tx_packets == Some(1));
    // Counters of a round may lag behind the packets that it sent.
    wait_until(|| dp.threads()[0].1.packets == 1);
}

#[test]
fn threads_and_assignments_are_logged_while_there_are_pmd_ports() {
    let log = log();
    log.during(|| {
        let registry = Registry::new();
        let dp = Datapath::new(Config::default(), Clock::real()).expect("starts");
        let cpus = [Cpu { core: 1, numa: 0 }, Cpu { core: 12, numa: 3 }].into();
        let config = ThreadConfig { cpus, sleep_us_max: 1000, ..ThreadConfig::default() };
        dp.set_threads(&config).expect("starts");
        let first = log.take();
        assert_eq!((first.len(), &first[0][..]), (6, "pmd-rxq-affinity isolates PMD core"), "{first:?}");
        assert_eq!(first[1..4].iter().filter(|line| line.contains("set to")).count(), 3, "{first:?}");
        assert_eq!(first[4..], ["PMD auto load balance is disabled.", "Default PMD thread max sleep: 1000 us."]);
        dp.port_add(TestPort::new("other"), None).expect("opens");
        assert!(log.take().is_empty(), "no PMD port");
        let device = dummy(&registry, "p0", 3);
        dp.port_add(device.clone(), None).expect("opens");
        let assigned = |core: &str, queue: usize| {
            format!("Core {core} assigned port 'p0' rx queue {queue} (measured processing cycles 0).")
        };
        let near = assigned(" 1 on numa node 0", 0);
        let performing = "Performing pmd to rx queue assignment using cycles algorithm.";
        let expected = [
            "PMD thread on numa_id: 0, core id:  1, max sleep: 1000 us.",
            "PMD thread on numa_id: 0, core id:  1 created.",
            "PMD thread on numa_id: 3, core id: 12, max sleep: 1000 us.",
            "PMD thread on numa_id: 3, core id: 12 created.",
            "There are 1 pmd threads on numa node 0",
            "There are 1 pmd threads on numa node 3",
            performing,
            &near,
        ];
        assert_eq!(log.take()[..8], expected);
        // A pinned queue, one that cannot be, and one that has to leave its node.
        dp.port_set_queues(DpPort(2), &[(0, 1), (1, 2)].into()).expect("there");
        let lines = log.take();
        let [pinned, not_pinned, .., far, last] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(pinned, "Core  1 on numa node 0 is pinned with port 'p0' rx queue 0 (measured processing cycles 0)");
        assert!(not_pinned.starts_with("Core  2 cannot be pinned with port 'p0' rx queue 1."), "{not_pinned}");
        assert!(far.starts_with("There's no available (non-isolated) pmd thread on numa node 0. Port 'p0'"), "{far}");
        assert_eq!(*last, assigned("12 on numa node 3", 2));
        // All cores are isolated.
        dp.port_set_queues(DpPort(2), &[(0, 1), (1, 12)].into()).expect("there");
        let lines = log.take();
        let shared = "No non-isolated pmd on any numa available for port 'p0' rx queue 2 (measured processing cycles 0). \
                      This rx queue will be polled by an isolated one.";
        assert!(lines.contains(&shared.to_owned()) && lines.contains(&assigned(" 1 on numa node 0", 2)), "{lines:?}");
        dp.port_set_queues(DpPort(2), &[(0, 1), (1, 2)].into()).expect("there");
        log.take();
        // Without costs.
        let policy = Policy { algorithm: Algorithm::RoundRobin, isolate: true };
        dp.set_threads(&ThreadConfig { policy, ..config.clone() }).expect("starts");
        let lines = log.take();
        assert_eq!(lines[0], "Rxq to PMD assignment mode changed to: 'roundrobin'.");
        assert_eq!(lines[1], "Core  1 on numa node 0 is pinned with port 'p0' rx queue 0");
        assert!(lines.contains(&"Core 12 on numa node 3 assigned port 'p0' rx queue 1.".to_owned()), "{lines:?}");
        // The last such port.
        dp.port_del(DpPort(2)).expect("there");
        dp.synchronize();
        let destroyed = |numa, core| format!("PMD thread on numa_id: {numa}, core id: {core:2} destroyed.");
        assert_eq!(log.take(), [destroyed(0, 1), destroyed(3, 12)]);
        let policy = Policy { algorithm: Algorithm::Cycles, isolate: false };
        let balance = Balance { is_on: true, load_percent: 50, ..Balance::default() };
        dp.set_threads(&ThreadConfig { policy, balance, ..config.clone() }).expect("starts");
        let expected = [
            "Rxq to PMD assignment mode changed to: 'cycles'.",
            "pmd-rxq-isolate can only be set false when using pmd-rxq-assign=group",
            "PMD auto load balance load threshold set to 50%",
            "PMD auto load balance is enabled, interval 1 mins, pmd load threshold 50%, improvement threshold 25%.",
        ];
        assert_eq!(log.take(), expected);
    });
}

#[test]
fn the_balance_is_logged() {
    let log = log();
    log.during(|| {
        let registry = Registry::new();
        let dp = Datapath::new(Config::default(), Clock::real()).expect("starts");
        dp.port_add(dummy(&registry, "p0", 3), None).expect("opens");
        for (improvement_percent, is) in [(1, "is not met."), (0, "is met.")] {
            let balance = Balance { is_on: true, load_percent: 0, improvement_percent, ..Balance::default() };
            dp.set_threads(&ThreadConfig { balance, ..on_cores(&[0, 1]) }).expect("starts");
            (1..INTERVALS).for_each(|_| assert!(!dp.tick()));
            log.take();
            assert_eq!(dp.tick(), improvement_percent == 0);
            let lines = log.take();
            let variances = "Numa node 0. Current variance 0 Estimated variance 0. Variance improvement 0%.";
            let threshold = format!("PMD load variance improvement threshold {improvement_percent}% {is}");
            assert_eq!(lines[0], "PMD auto load balance performing dry run.");
            assert!(
                lines[1].starts_with("Core  0 on numa node 0 assigned port 'p0' rx queue 0 (measured"),
                "{lines:?}"
            );
            assert_eq!(lines[4..6], [variances, &threshold]);
            let requested = "PMD auto load balance dry run. Requesting datapath reconfigure.";
            assert_eq!(lines.get(6).is_some_and(|line| line == requested), improvement_percent == 0, "{lines:?}");
        }
    });
}

#[test]
fn queue_costs_are_recorded_and_balanced() {
    let registry = Registry::new();
    let dp = Datapath::new(Config::default(), Clock::real()).expect("starts");
    dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(1))]));
    let device = dummy(&registry, "a", 4);
    dp.port_add(device.clone(), None).expect("opens");
    // In order: 0 and 2, 1 and 3.
    let policy = Policy { algorithm: Algorithm::RoundRobin, isolate: true };
    dp.set_threads(&ThreadConfig { policy, ..on_cores(&[0, 1]) }).expect("starts");
    assert!(dp.usage(12).iter().all(|usage| usage.elapsed_ns == 0), "no interval is over");
    let mut sent = 0;
    for n in 0..200 {
        for queue in [0, 2] {
            device.receive(Packet::from_slice(&numbered_frame(n, 60)), queue);
            sent += 1;
        }
        wait_until(|| device.stats().tx_packets == Some(sent));
    }
    // Counters of a round may lag behind the packets that it sent.
    let cost =
        |intervals: usize| dp.usage(intervals).iter().flat_map(|u| u.queues.clone()).map(|q| q.busy_ns).sum::<u64>();
    wait_until(|| {
        dp.tick();
        cost(INTERVALS) > 0
    });
    let usage = dp.usage(INTERVALS);
    let costs: BTreeMap<usize, u64> = usage.iter().flat_map(|u| &u.queues).map(|q| (q.queue, q.busy_ns)).collect();
    assert!(costs[&0] + costs[&2] > 0 && costs[&1] + costs[&3] == 0, "{costs:?}");
    assert!(usage.iter().all(|u| u.elapsed_ns > 0 && u.queues.iter().map(|q| q.busy_ns).sum::<u64>() <= u.busy_ns));

    // Queues are reassigned automatically after the configured time if that pays: both busy queues belong to one
    // thread.
    let balance =
        |improvement_percent| Balance { is_on: true, load_percent: 0, improvement_percent, ..Balance::default() };
    let plan = |algorithm, balance| {
        let policy = Policy { algorithm, isolate: true };
        dp.set_threads(&ThreadConfig { policy, balance, ..on_cores(&[0, 1]) }).expect("starts");
    };
    let ticks = || (0..INTERVALS).map(|_| dp.tick()).collect::<Vec<_>>();
    plan(Algorithm::RoundRobin, balance(0));
    assert!(!ticks().contains(&true), "not with this algorithm");
    // After a minute without packets, a reassignment gains nothing, but is allowed.
    plan(Algorithm::Group, balance(1));
    assert!(!ticks().contains(&true));
    plan(Algorithm::Group, balance(0));
    let looked = ticks();
    assert!(looked[INTERVALS - 1] && !looked[..INTERVALS - 1].contains(&true), "{looked:?}");
    plan(Algorithm::Group, Balance::default());
    assert!(!ticks().contains(&true));
}
