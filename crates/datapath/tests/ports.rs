//! Ports that are added and removed beside others, and their transmit queues.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Clock, DpPort, DropReason};
use common::{TestHandler, TestPort, numbered_frame};
use datapath::{Config, Datapath};
use dpif::{Cpu, DpAction, Dpif, ThreadConfig};
use netdev::Netdev;
use netdev::dummy::Registry;
use packet::Packet;

/// Many threads, most of which share transmit handles.
const MANY_THREADS: usize = 40;
/// Maximum number of handles of a port: 15 threads have one each, all others share 8.
const HANDLES_MAX: u64 = 23;

fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

#[test]
fn a_transmit_queue_is_opened_by_the_first_packet_and_closed_with_the_port() {
    let dp = Datapath::new(Config { threads: 0, ..Config::default() }, Clock::stopped()).expect("starts");
    dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(2))]));
    let ports = ["a", "b", "c"].map(TestPort::new);
    for port in &ports {
        dp.port_add(port.clone(), None).expect("opens");
    }
    let opened = || ports.each_ref().map(|port| port.tx_opened.load(Ordering::SeqCst));
    assert_eq!(opened(), [0, 0, 0]);
    for n in 0..3 {
        ports[0].receive(&numbered_frame(n, 60));
        dp.run_once();
    }
    assert_eq!(ports[1].sent().len(), 3);
    // One handle of the packet thread, and one of the handler thread that served the miss.
    assert_eq!(opened(), [0, 2, 0]);
    dp.port_del(DpPort(2)).expect("there");
    dp.synchronize();
    assert_eq!(Arc::strong_count(&ports[1].output), 1);
    // The next port of this number has handles of its own.
    let other = TestPort::new("d");
    dp.port_add(other.clone(), Some(DpPort(2))).expect("opens");
    ports[0].receive(&numbered_frame(3, 60));
    dp.run_once();
    assert_eq!((other.sent().len(), other.tx_opened.load(Ordering::SeqCst), opened()), (1, 1, [0, 2, 0]));
}

#[test]
fn packets_are_counted_as_dropped_while_a_transmit_queue_cannot_be_opened() {
    let dp = Datapath::new(Config { threads: 0, ..Config::default() }, Clock::stopped()).expect("starts");
    dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(2))]));
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    b.tx_fails.store(true, Ordering::SeqCst);
    for port in [&a, &b] {
        dp.port_add(port.clone(), None).expect("a port that cannot send yet can receive");
    }
    for n in 0..5 {
        a.receive(&numbered_frame(n, 60));
        dp.run_once();
    }
    assert_eq!(dp.port_stats(DpPort(2)).expect("there").tx_drops, [(DropReason::OutputError, 5)]);
    b.tx_fails.store(false, Ordering::SeqCst);
    wait_until(|| {
        a.receive(&numbered_frame(9, 60));
        dp.run_once();
        !b.sent().is_empty()
    });
}

#[test]
fn many_threads_share_a_few_transmit_queues_and_keep_the_order_of_each_queue() {
    let registry = Registry::new();
    let dp = Datapath::new(Config::default(), Clock::real()).expect("starts");
    dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(2))]));
    let input = registry.open("in", "dummy-pmd").expect("opens");
    input.set_options(&[("n_rxq".to_owned(), MANY_THREADS.to_string())].into()).expect("options");
    let out = TestPort::new("out");
    dp.port_add(input.clone(), None).expect("opens");
    dp.port_add(out.clone(), None).expect("opens");
    let cpus = (0..MANY_THREADS).map(|core| Cpu { core, numa: 0 }).collect();
    dp.set_threads(&ThreadConfig { cpus, sleep_us_max: 1000, ..ThreadConfig::default() }).expect("starts");
    // The flow is installed before the other frames, which then stay in order.
    input.receive(Packet::from_slice(&numbered_frame(0, 60)), 0);
    wait_until(|| out.output.lock().len() == 1);
    let total = 50 * MANY_THREADS;
    for n in 1..total {
        input.receive(Packet::from_slice(&numbered_frame(n as u32, 60)), n % MANY_THREADS);
    }
    wait_until(|| out.output.lock().len() == total);
    let opened = out.tx_opened.load(Ordering::SeqCst);
    assert!((1..=HANDLES_MAX + 1).contains(&opened), "{opened} handles, one of them the handlers'");
    let mut next: Vec<usize> = (0..MANY_THREADS).collect();
    for packet in out.sent() {
        let n = u32::from_be_bytes(packet.data()[14..18].try_into().expect("4 bytes")) as usize;
        assert_eq!(n, next[n % MANY_THREADS]);
        next[n % MANY_THREADS] += MANY_THREADS;
    }
    let stats = dp.port_stats(DpPort(2)).expect("there");
    assert_eq!((stats.tx_packets, dp.stats().hit + dp.stats().missed), (total as u64, total as u64));
}

#[test]
fn unpinned_threads_share_single_queue_ports_without_reassignment() {
    let dp = Datapath::new(Config { threads: 3, ..Config::default() }, Clock::real()).expect("starts");
    let ports: Vec<_> = (0..30).map(|n| TestPort::new(&format!("p{n}"))).collect();
    for port in &ports {
        dp.port_add(port.clone(), None).expect("opens");
    }
    let queues = || dp.usage(1).iter().map(|usage| usage.queues.len()).collect::<Vec<_>>();
    assert_eq!(queues(), [10, 10, 10]);
    for number in (1..=30).filter(|n| n % 3 == 1) {
        dp.port_del(DpPort(number)).expect("there");
    }
    dp.synchronize();
    assert_eq!(queues(), [0, 10, 10]);
    for port in ports.iter().step_by(3) {
        dp.port_add(port.clone(), None).expect("opens");
    }
    assert_eq!(queues(), [10, 10, 10]);
}
