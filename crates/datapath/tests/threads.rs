//! A datapath with packet threads: tests wait on condition variables and counters, never for a time.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Clock, DpPort, DropReason};
use common::{TestHandler, TestPort, numbered_frame};
use datapath::{Config, Datapath};
use dpif::{Cpu, DpAction, DpActions, Dpif, ThreadConfig};
use netdev::Netdev;
use packet::Packet;

/// Waits until `done` returns true, and yields to other threads meanwhile.
fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

#[test]
fn a_sleeping_thread_wakes_for_frames_and_ports() {
    for threads in [1, 2] {
        let dp = Datapath::new(Config { threads, ..Config::default() }, Clock::real()).expect("starts");
        dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(2))]));
        let (a, b) = (TestPort::new("a"), TestPort::new("b"));
        for port in [&a, &b] {
            dp.port_add(port.clone(), None).expect("opens");
        }
        wait_until(|| dp.thread_stats().iter().all(|t| t.sleeps > 0));
        // The first frame installs the flow for the others, which stay in order.
        a.receive(&numbered_frame(0, 100));
        wait_until(|| b.output.lock().len() == 1);
        let n_packets = 10_000;
        for n in 1..n_packets {
            a.receive(&numbered_frame(n, 100));
        }
        wait_until(|| b.output.lock().len() == n_packets as usize);
        let sent = b.sent();
        assert!(sent.iter().zip(0..).all(|(p, n)| p.data() == numbered_frame(n, 100)));
        dp.port_del(DpPort(2)).expect("there");
        dp.synchronize();
        assert_eq!((Arc::strong_count(&b), Arc::strong_count(&b.output)), (1, 1));
        dp.shutdown();
        assert_eq!(dp.stats().missed, 1);
        assert_eq!(Arc::strong_count(&a), 1);
    }
}

#[test]
fn a_thread_about_to_sleep_polls_only_active_ports() {
    let dp = Datapath::new(Config::default(), Clock::real()).expect("starts");
    dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(2))]));
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    for port in [&a, &b] {
        dp.port_add(port.clone(), None).expect("opens");
    }
    // Packet threads take over the ports in their next rounds.
    dp.synchronize();
    let sleeps = || dp.thread_stats()[0].sleeps;
    wait_until(|| sleeps() > 0);
    let before = [&a, &b].map(|port| port.asked.load(Ordering::Relaxed));
    for n in 0..100 {
        let slept = sleeps();
        a.receive(&numbered_frame(n, 60));
        wait_until(|| sleeps() > slept);
    }
    wait_until(|| b.output.lock().len() == 100);
    let [a_asked, b_asked] = [&a, &b].map(|port| port.asked.load(Ordering::Relaxed));
    let (busy, idle) = (a_asked - before[0], b_asked - before[1]);
    assert!(idle > 0 && 2 * idle < busy, "{idle} {busy}");
    // Afterwards it is served like any other port.
    b.receive(&numbered_frame(100, 60));
    wait_until(|| dp.stats().missed + dp.stats().hit == 101);
}

#[test]
fn an_old_generation_is_never_used_under_traffic() {
    let dp = Arc::new(Datapath::new(Config::default(), Clock::real()).expect("starts"));
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    // The actions of generation g write g into the destination address.
    let generation = Arc::new(AtomicU64::new(0));
    let now = generation.clone();
    let handler = TestHandler::new(Box::new(move |_, _| {
        let set =
            DpAction::Set { field: flow::Field::EthDst, value: now.load(Ordering::SeqCst).into(), mask: u128::MAX };
        let actions: DpActions = Arc::new([set, DpAction::Output(DpPort(2))]);
        (actions, Some(common::plain_mask()))
    }));
    dp.set_handler(handler.clone());
    for port in [&a, &b] {
        dp.port_add(port.clone(), None).expect("opens");
    }
    // Packet threads take over the ports in their next rounds.
    dp.synchronize();
    let stop = Arc::new(AtomicBool::new(false));
    let dumper = std::thread::spawn({
        let (dp, stop) = (dp.clone(), stop.clone());
        move || {
            while !stop.load(Ordering::Relaxed) {
                dp.flow_dump();
            }
        }
    });
    // The handler reads its generation before it translates, so the order of changes here is that of the switch:
    // first the state, then the handler's generation, then the datapath's.
    let n_packets = 5000u32;
    for n in 0..n_packets {
        if n % 50 == 0 {
            let g = u64::from(n / 50 + 1);
            generation.store(g, Ordering::SeqCst);
            handler.generation.store(g, Ordering::SeqCst);
            dp.set_generation(g);
        }
        a.receive(&numbered_frame(n, 60));
    }
    // After a change there may be more misses than the upcall queue holds.
    let lost = || dp.stats().lost as usize;
    wait_until(|| b.output.lock().len() + lost() == n_packets as usize);
    stop.store(true, Ordering::Relaxed);
    dumper.join().expect("no panic");
    for p in b.sent() {
        let n = u32::from_be_bytes(p.data()[14..18].try_into().expect("4 bytes"));
        let g = u32::from_be_bytes(p.data()[2..6].try_into().expect("4 bytes"));
        assert!(g > n / 50, "packet {n} was forwarded by a flow of generation {g}");
    }
}

#[test]
fn a_panic_in_the_handler_costs_a_batch_but_no_thread() {
    let dp = Datapath::new(Config::default(), Clock::real()).expect("starts");
    dp.set_handler(TestHandler::new(Box::new(|_, key| {
        assert!(key.vlan_tci() == 0, "this test's handler cannot bear tags");
        ([DpAction::Output(DpPort(2))].into(), None)
    })));
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    for port in [&a, &b] {
        dp.port_add(port.clone(), None).expect("opens");
    }
    // Packet threads take over the ports in their next rounds.
    dp.synchronize();
    let mut tagged = numbered_frame(1, 60);
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    a.receive(&tagged);
    wait_until(|| dp.upcall_stats().handlers[0].panics == 1);
    assert_eq!(dp.drops(), [(DropReason::TranslationError, 1)]);
    a.receive(&numbered_frame(2, 60));
    wait_until(|| b.output.lock().len() == 1);
}

#[test]
fn a_packet_thread_handles_misses_that_do_not_block() {
    let dp = Datapath::new(Config { threads: 1, ..Config::default() }, Clock::real()).expect("starts");
    let handler = TestHandler::new(Box::new(|_, key| {
        assert!(key.vlan_tci() == 0, "this test's handler cannot bear tags");
        ([DpAction::Output(DpPort(2))].into(), None)
    }));
    handler.answers_here.store(true, Ordering::SeqCst);
    dp.set_handler(handler.clone());
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    for port in [&a, &b] {
        dp.port_add(port.clone(), None).expect("opens");
    }
    // Packet threads take over the ports in their next rounds.
    dp.synchronize();
    let here = || handler.answered_here.load(Ordering::SeqCst);
    let send = |n: u32| {
        a.receive(&numbered_frame(n, 60));
        wait_until(|| b.output.lock().len() == n as usize);
    };
    // A packet thread handles misses while replies are quick, which a busy machine may prevent for a while.
    let mut n = 0;
    while n < 100 || here() == 0 {
        n += 1;
        send(n);
    }
    // The last batch is counted after its packets are sent.
    dp.settle();
    let (stats, all) = (dp.upcall_stats(), u64::from(n));
    assert_eq!(stats.here.packets, here(), "{stats:?}");
    assert_eq!(stats.handlers[0].packets + stats.here.packets, all);
    assert_eq!((stats.ports[0].1.queued, stats.ports[0].1.served), (all, all));
    assert_eq!((dp.stats().missed, dp.stats().lost), (all, 0));

    // If the reply would block, handlers serve the miss.
    handler.answers_here.store(false, Ordering::SeqCst);
    let before = here();
    (n + 1..=n + 100).for_each(send);
    dp.settle();
    assert_eq!((here(), dp.stats().missed), (before, all + 100));
    assert!(b.sent().iter().zip(1..).all(|(p, n)| p.data() == numbered_frame(n, 60)));

    // A panic costs the batch on any thread, and releases the turn.
    handler.answers_here.store(true, Ordering::SeqCst);
    let mut tagged = numbered_frame(1, 60);
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    a.receive(&tagged);
    let panics = || dp.upcall_stats().handlers[0].panics + dp.upcall_stats().here.panics;
    wait_until(|| panics() == 1 && !dp.drops().is_empty());
    assert_eq!(dp.drops(), [(DropReason::TranslationError, 1)]);
    a.receive(&numbered_frame(1, 60));
    wait_until(|| b.output.lock().len() == 1);
    dp.settle();
    assert_eq!(dp.stats().missed, all + 101 + u64::from(dp.upcall_stats().handlers[0].panics > 0));
}

#[test]
fn a_packet_thread_does_not_wait_for_reports_of_removed_flows() {
    // One handler thread reports removed flows, the other one serves misses.
    let config = Config { threads: 1, handlers: 2, ..Config::default() };
    let dp = Datapath::new(config, Clock::real()).expect("starts");
    let handler = TestHandler::always(vec![DpAction::Output(DpPort(2))]);
    handler.answers_here.store(true, Ordering::SeqCst);
    dp.set_handler(handler.clone());
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    for port in [&a, &b] {
        dp.port_add(port.clone(), None).expect("opens");
    }
    // Packet threads take over the ports in their next rounds.
    dp.synchronize();
    let (misses, here) = (|| handler.misses.load(Ordering::SeqCst), || handler.answered_here.load(Ordering::SeqCst));
    let by_handler = || misses().saturating_sub(here());
    let mut sent = 0;
    let mut send = |handled: u64| {
        sent += 1;
        a.receive(&numbered_frame(sent, 60));
        wait_until(|| b.output.lock().len() == sent as usize || by_handler() > handled);
    };
    send(1);
    // The report of a removed flow blocks. Each reply replaces the flow of the previous generation.
    let held = handler.gone.lock();
    let handled = by_handler();
    for generation in 1..=10 {
        handler.generation.store(generation, Ordering::SeqCst);
        dp.set_generation(generation);
        send(handled);
        if by_handler() > handled {
            // The machine was so busy that a handler thread replied, which now has to wait.
            break;
        }
        send(handled);
    }
    drop(held);
    // All removed flows are reported.
    wait_until(|| handler.gone.lock().len() as u64 + 1 == misses());
}

#[test]
fn a_handler_that_does_deferred_work_ends_with_the_datapath() {
    let config = Config { threads: 1, handlers: 2, ..Config::default() };
    let dp = Arc::new(Datapath::new(config, Clock::real()).expect("starts"));
    let handler = TestHandler::always(vec![DpAction::Output(DpPort(2))]);
    dp.set_handler(handler.clone());
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    for port in [&a, &b] {
        dp.port_add(port.clone(), None).expect("opens");
    }
    // Packet threads take over the ports in their next rounds.
    dp.synchronize();
    a.receive(&numbered_frame(0, 60));
    wait_until(|| b.output.lock().len() == 1);
    dp.settle();
    // The packet thread removes the flow, and one of the handlers is stuck with the report.
    let held = handler.gone.lock();
    handler.check_says.store(false, Ordering::SeqCst);
    dp.set_self_check(1);
    a.receive(&numbered_frame(1, 60));
    wait_until(|| handler.reports.load(Ordering::SeqCst) == 1);
    let ending = std::thread::spawn({
        let dp = dp.clone();
        move || dp.shutdown()
    });
    // All handlers but the first have no counters any more: they were asked to end.
    wait_until(|| dp.upcall_stats().handlers.len() == 1);
    drop(held);
    ending.join().expect("ends");
}

#[test]
fn a_port_removed_during_an_upcall_leaves_no_state() {
    let dp = Arc::new(Datapath::new(Config { threads: 1, ..Config::default() }, Clock::real()).expect("starts"));
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    for port in [&a, &b] {
        dp.port_add(port.clone(), None).expect("opens");
    }
    // Packet threads take over the ports in their next rounds.
    dp.synchronize();
    // While the handler serves a packet of the first port, another one arrives at the second port, which is then
    // removed.
    let (late, switch) = (b.clone(), Arc::downgrade(&dp));
    let handler = TestHandler::new(Box::new(move |port, _| {
        if port == DpPort(1)
            && let Some(dp) = switch.upgrade()
        {
            late.receive(&numbered_frame(2, 60));
            let _ = dp.port_del(DpPort(2));
        }
        (Arc::new([]), None)
    }));
    handler.answers_here.store(true, Ordering::SeqCst);
    dp.set_handler(handler.clone());
    a.receive(&numbered_frame(1, 60));
    wait_until(|| handler.misses.load(Ordering::SeqCst) >= 1);
    // The round is over.
    dp.synchronize();
    wait_until(|| dp.upcall_stats().ports.iter().all(|(port, _)| *port == DpPort(1)));
}

#[test]
fn a_port_with_many_misses_does_not_hold_up_another() {
    // A handler that blocks until released, so that misses pile up.
    let (locked, open) = (Arc::new(parking_lot::Mutex::new(())), Arc::new(parking_lot::Mutex::new(Vec::new())));
    let (gate, order) = (locked.clone(), open.clone());
    let dp = Datapath::new(Config { handlers: 1, ..Config::default() }, Clock::real()).expect("starts");
    dp.set_handler(TestHandler::new(Box::new(move |port, _| {
        drop(gate.lock());
        order.lock().push(port);
        ([DpAction::Output(DpPort(3))].into(), None)
    })));
    let ports = ["flood", "quiet", "out"].map(TestPort::new);
    for port in &ports {
        dp.port_add(port.clone(), None).expect("opens");
    }
    // Packet threads take over the ports in their next rounds.
    dp.synchronize();
    let closed = locked.lock();
    let queued = |port: u32| {
        let stats = dp.upcall_stats();
        stats.ports.iter().find(|(p, _)| p.0 == port).map_or((0, 0), |(_, s)| (s.queued, s.dropped))
    };
    // More misses than a queue holds, including those that are being served.
    for n in 0..2000 {
        ports[0].receive(&numbered_frame(n, 60));
    }
    wait_until(|| queued(1).0 + queued(1).1 == 2000);
    for n in 0..40 {
        ports[1].receive(&numbered_frame(n, 60));
    }
    wait_until(|| queued(2) == (40, 0));
    let (taken, dropped) = queued(1);
    assert!((1024..=1024 + 32).contains(&taken) && dropped == 2000 - taken, "{taken} taken");
    drop(closed);
    dp.settle();
    let order = open.lock();
    assert_eq!(order.len() as u64, taken + 40);
    // The two batches of the quiet port follow at most three of the other port.
    let last = order.iter().rposition(|port| port.0 == 2).expect("served");
    assert!(last < 40 + 3 * 32, "the last of the quiet port's was number {last}");
    assert_eq!(dp.drops(), [(DropReason::UpcallQueueFull, dropped)]);
    assert_eq!((dp.stats().lost, dp.stats().missed), (dropped, taken + 40));
    assert_eq!(dp.port_stats(DpPort(1)).expect("there").rx_drops, [(DropReason::UpcallQueueFull, dropped)]);
}

#[test]
fn a_packet_thread_whose_packets_all_miss_handles_them_when_handlers_fall_behind() {
    // The handler thread is stuck with its first packet; packet threads get replies.
    let gate = Arc::new(parking_lot::Mutex::new(()));
    let locked = gate.clone();
    let dp = Datapath::new(Config { handlers: 1, ..Config::default() }, Clock::real()).expect("starts");
    let handler = TestHandler::new(Box::new(move |_, _| {
        if std::thread::current().name().is_some_and(|name| name.starts_with("handler")) {
            drop(locked.lock());
        }
        ([DpAction::Output(DpPort(2))].into(), None)
    }));
    handler.answers_here.store(true, Ordering::Relaxed);
    dp.set_handler(handler);
    let closed = gate.lock();
    // No flow is installed, so that all packets miss.
    let frames: Vec<_> = (0..64).map(|n| Packet::from_slice(&numbered_frame(n, 60))).collect();
    dp.port_add(netdev::memory::replay("flood", &frames, u64::MAX), Some(DpPort(1))).expect("opens");
    dp.port_add(netdev::memory::null("out").expect("port"), Some(DpPort(2))).expect("opens");
    wait_until(|| dp.upcall_stats().here.packets > 10_000);
    drop(closed);
    dp.port_del(DpPort(1)).expect("there");
    dp.settle();
}

#[test]
fn waiting_packets_are_dropped_with_their_port() {
    let gate = Arc::new(parking_lot::Mutex::new(()));
    let asked = Arc::new(AtomicU64::new(0));
    let dp = Datapath::new(Config { handlers: 1, ..Config::default() }, Clock::real()).expect("starts");
    let (locked, count) = (gate.clone(), asked.clone());
    dp.set_handler(TestHandler::new(Box::new(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        drop(locked.lock());
        ([DpAction::Output(DpPort(2))].into(), None)
    })));
    let (old, out, new) = (TestPort::new("old"), TestPort::new("out"), TestPort::new("new"));
    for port in [&old, &out] {
        dp.port_add(port.clone(), None).expect("opens");
    }
    // Packet threads take over the ports in their next rounds.
    dp.synchronize();
    let closed = gate.lock();
    (0..200).for_each(|n| old.receive(&numbered_frame(n, 60)));
    let of = |port: u32| dp.upcall_stats().ports.into_iter().find(|(p, _)| p.0 == port).map(|(_, s)| s);
    wait_until(|| of(1).is_some_and(|s| s.queued == 200) && asked.load(Ordering::SeqCst) == 1);
    let waiting = of(1).map_or(0, |s| s.waiting);
    assert!((200 - 32..200).contains(&waiting), "{waiting} wait");
    dp.port_del(DpPort(1)).expect("there");
    assert_eq!(dp.drops(), [(DropReason::NoPort, waiting)]);
    dp.synchronize();
    assert_eq!(dp.port_add(new.clone(), Some(DpPort(1))).expect("opens"), DpPort(1));
    new.receive(&numbered_frame(1000, 60));
    wait_until(|| of(1).is_some_and(|s| s.queued == 1) || dp.upcall_stats().ports.len() > 1);
    drop(closed);
    dp.settle();
    // Packets that were already being served, and the new port's packet.
    assert_eq!((asked.load(Ordering::SeqCst), out.sent().len() as u64), (200 - waiting + 1, 200 - waiting + 1));
    assert_eq!(dp.drops(), [(DropReason::NoPort, waiting)]);
    assert_eq!(of(1).map(|s| (s.waiting, s.queued, s.served)), Some((0, 1, 1)));
    assert_eq!(dp.upcall_stats().ports.len(), 1);
}

#[test]
fn handler_threads_start_and_end() {
    let dp = Datapath::new(Config { handlers: 1, ..Config::default() }, Clock::real()).expect("starts");
    dp.set_handler(TestHandler::new(Box::new(|_, _| ([DpAction::Output(DpPort(2))].into(), None))));
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    for port in [&a, &b] {
        dp.port_add(port.clone(), None).expect("opens");
    }
    // Packet threads take over the ports in their next rounds.
    dp.synchronize();
    let mut sent = 0;
    for handlers in [4, 1, 3, 2] {
        dp.set_handlers(handlers).expect("starts");
        assert_eq!(dp.upcall_stats().handlers.len(), handlers);
        for n in 0..100 {
            a.receive(&numbered_frame(n, 60));
        }
        sent += 100;
        wait_until(|| b.output.lock().len() == sent);
    }
}

#[test]
fn dummies_are_served_promptly() {
    let registry = netdev::dummy::Registry::new();
    let dp = Datapath::new(Config::default(), Clock::stopped()).expect("starts");
    dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(1)), DpAction::Output(DpPort(2))]));
    for name in ["p1", "p2"] {
        dp.port_add(registry.open(name, "dummy").expect("opens"), None).expect("opens");
    }
    // Packet threads take over the ports in their next rounds.
    dp.synchronize();
    let (p1, p2) = (registry.find("p1").expect("open"), registry.find("p2").expect("open"));
    wait_until(|| dp.thread_stats()[0].sleeps > 0);
    for n in 0..10 {
        assert!(p1.receive(Packet::from_slice(&numbered_frame(n, 60)), 0));
        wait_until(|| p2.stats().tx_packets == Some(u64::from(n) + 1));
    }
    assert_eq!(p1.stats().tx_packets, Some(10));
    let id = dp.flow_dump()[0].id;
    assert_eq!(dp.flow_del(id).map(|s| s.packets).ok(), Some(9));
}

#[test]
fn a_thread_that_is_never_idle_still_does_housekeeping() {
    let dp = Datapath::new(Config::default(), Clock::real()).expect("starts");
    dp.set_handler(TestHandler::always(vec![DpAction::Output(DpPort(2))]));
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    a.broken.store(true, Ordering::SeqCst);
    a.receive(&numbered_frame(1, 60));
    let endless = netdev::memory::replay("endless", &[Packet::from_slice(&numbered_frame(2, 61))], u64::MAX);
    let null = netdev::memory::null("null").expect("port");
    for port in [endless as Arc<dyn Netdev>, null, a.clone(), b] {
        dp.port_add(port, None).expect("opens");
    }
    // Packet threads take over the ports in their next rounds.
    dp.synchronize();
    wait_until(|| dp.thread_stats()[0].packets > 100_000);
    let pinned = |list: &str| {
        let status =
            |dir: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(dir.ok()?.path().join("status")).ok();
        let mut tasks = std::fs::read_dir("/proc/self/task").expect("of this process").filter_map(status);
        tasks.any(|s| s.contains("Name:\tpacket") && s.contains(&format!("Cpus_allowed_list:\t{list}\n")))
    };
    let allowed = rustix::thread::sched_getaffinity(None).expect("of this thread");
    let cpu = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("one at least");
    let cpus = [Cpu { core: cpu, numa: 0 }].into();
    dp.set_threads(&ThreadConfig { cpus, ..ThreadConfig::default() }).expect("starts");
    wait_until(|| pinned(&cpu.to_string()));
    a.broken.store(false, Ordering::SeqCst);
    wait_until(|| dp.port_stats(DpPort(3)).is_ok_and(|s| s.rx_packets == 1));
}
