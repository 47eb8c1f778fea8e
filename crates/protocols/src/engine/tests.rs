//! The engine with machines that record their calls, turn by turn in virtual time.

use super::*;
use crate::inbox::CAPACITY;
use crate::overlay::Accepts;
use base::PortNo;
use proptest::prelude::*;

const A: Protocol = Protocol::new(13).unwrap();
const B: Protocol = Protocol::new(11).unwrap();
const P: BridgePort = port(1);

const fn port(no: u32) -> BridgePort {
    BridgePort { bridge: 1, port: PortNo(no) }
}

/// A frame's way in: by the device with the port's number.
fn by(port: BridgePort) -> Source {
    Source { port, device: DpPort(port.port.0) }
}

/// Sends each frame back, and something else at each deadline.
#[derive(Debug, Default)]
struct Echo {
    received: Vec<(Millis, Vec<u8>)>,
    polls: Vec<Millis>,
    deadlines: Vec<Millis>,
    effects: Vec<Effect>,
}

impl Machine for Echo {
    fn input(&mut self, frame: &Frame, now: Millis) {
        self.received.push((now, frame.bytes.clone()));
        self.effects.push(Effect::Send { port: frame.source.port, frame: frame.bytes.clone() });
    }

    fn poll(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        self.polls.push(now);
        self.deadlines.retain(|deadline| *deadline > now);
        effects.append(&mut self.effects);
    }

    fn next_deadline(&self) -> Option<Millis> {
        self.deadlines.iter().min().copied()
    }
}

#[derive(Debug, Default)]
struct Outside {
    sent: Mutex<Vec<(BridgePort, Vec<u8>)>>,
    changed: Mutex<Vec<BTreeSet<BridgePort>>>,
    lines: Mutex<Vec<String>>,
}

impl Outlet for Outside {
    fn send(&self, port: BridgePort, frame: Vec<u8>) {
        self.sent.lock().push((port, frame));
    }

    fn ports_changed(&self, ports: &BTreeSet<BridgePort>) {
        self.changed.lock().push(ports.clone());
    }

    fn flush(&self, port: BridgePort) {
        self.lines.lock().push(format!("flush {port}"));
    }

    fn move_addresses(&self, from: BridgePort, to: BridgePort) {
        self.lines.lock().push(format!("move {from} {to}"));
    }

    fn tree_changed(&self, port: BridgePort, state: TreeState) {
        self.lines.lock().push(format!("{port} {state:?}"));
    }

    fn status_changed(&self, protocol: Protocol) {
        self.lines.lock().push(format!("status {protocol}"));
    }

    fn log(&self, protocol: Protocol, level: LogLevel, line: &str) {
        self.lines.lock().push(format!("{level:?} {protocol}: {line}"));
    }
}

fn engine() -> (Arc<Engine>, Arc<Outside>, [Arc<Mutex<Echo>>; 2]) {
    let outside = Arc::new(Outside::default());
    let outlet: Weak<Outside> = Arc::downgrade(&outside);
    let engine = Engine::new(Clock::stopped(), Arc::default(), outlet);
    let machines: [Arc<Mutex<Echo>>; 2] = Default::default();
    for (protocol, machine) in [A, B].into_iter().zip(&machines) {
        let machine: SharedMachine = Arc::clone(machine) as SharedMachine;
        engine.register(protocol, machine);
    }
    (engine, outside, machines)
}

#[test]
fn a_flood_of_one_protocol_delays_no_other() {
    let (engine, outside, [a, b]) = engine();
    let mut now = Millis(1_000_000);
    for turn in 0..100u64 {
        now = now.after(1);
        // More than a turn processes, so that the queue stays full.
        (0..CAPACITY).for_each(|_| _ = engine.punt(A, by(P), b"flood"));
        let frame = turn.to_be_bytes();
        assert_eq!(engine.punt(B, by(P), &frame), Ok(None));
        assert_eq!(engine.turn(now), Some(now), "frames of the flood are left");
        assert_eq!(b.lock().received.last(), Some(&(now, frame.to_vec())), "in the turn behind the frame");
    }
    assert_eq!(a.lock().received.len(), 100 * BATCH);
    let (flooded, other) = (engine.inbox(A), engine.inbox(B));
    assert_eq!((flooded.accepted + flooded.full, flooded.waiting), (100 * CAPACITY as u64, CAPACITY - BATCH));
    assert_eq!(other, InboxStats { accepted: 100, ..InboxStats::default() });
    assert_eq!(outside.sent.lock().len(), 100 * BATCH + 100);
}

#[test]
fn a_flood_on_one_port_delays_no_other() {
    const QUIET: BridgePort = port(2);
    let (engine, _outside, [a, _b]) = engine();
    let mut now = Millis(1_000_000);
    for turn in 0..100u64 {
        now = now.after(1);
        (0..CAPACITY).for_each(|_| _ = engine.punt(A, by(P), b"flood"));
        let frame = turn.to_be_bytes();
        assert_eq!(engine.punt(A, by(QUIET), &frame), Ok(Some(DpPort(1))));
        engine.turn(now);
        assert!(a.lock().received.contains(&(now, frame.to_vec())), "in the turn behind the frame");
    }
    let InboxStats { accepted, displaced, waiting, .. } = engine.inbox(A);
    assert_eq!((displaced, accepted), (100, 100 * BATCH as u64 + displaced + waiting as u64));
}

/// Shutdown frames leave before a port closes, and behind frames that the machine wanted to send earlier.
#[test]
fn a_poll_carries_out_effects_on_the_caller_s_thread() {
    let (engine, outside, [a, b]) = engine();
    let send = |frame: &[u8]| Effect::Send { port: P, frame: frame.to_vec() };
    a.lock().effects = vec![send(b"before"), send(b"shutdown")];
    engine.poll(A);
    let sent: Vec<_> = outside.sent.lock().iter().map(|(_, frame)| frame.clone()).collect();
    assert_eq!(sent, [b"before".to_vec(), b"shutdown".to_vec()]);
    assert_eq!((a.lock().polls.len(), b.lock().polls.len()), (1, 0));
    // The machine's new deadline counts.
    let now = engine.clock.now();
    a.lock().deadlines = vec![now.after(5)];
    engine.poll(A);
    engine.turn(now);
    assert_eq!(engine.turn(now), Some(now.after(5)));
    engine.poll(Protocol::new(12).unwrap());
}

#[test]
fn dropped_frames_are_counted() {
    let (engine, _outside, _machines) = engine();
    assert_eq!(engine.punt(Protocol::new(12).unwrap(), by(P), b"x"), Err(Refused::NoProtocol));
    assert_eq!(engine.punt(A, by(P), &vec![0; crate::inbox::FRAME_MAX + 1]), Err(Refused::TooBig));
    let refused = (0..CAPACITY + 3).filter(|_| engine.punt(A, by(P), b"x") == Err(Refused::Full)).count();
    let stats = engine.inbox(A);
    assert_eq!((refused, stats.full, stats.too_big, stats.waiting), (3, 3, 1, CAPACITY));
}

#[test]
fn a_machine_is_polled_at_its_deadline() {
    let (engine, _outside, [a, b]) = engine();
    let start = Millis(1_000_000);
    a.lock().deadlines = vec![start.after(3), start.after(5000)];
    engine.turn(start);
    let mut now = start;
    while let Some(next) = engine.turn(now) {
        assert!(next > now);
        now = next;
    }
    assert_eq!(a.lock().polls, [start, start.after(3), start.after(5000)]);
    assert_eq!(b.lock().polls, [start]);
    // A configured machine is polled again.
    b.lock().deadlines = vec![now.after(7)];
    engine.changed(B);
    engine.turn(now);
    assert_eq!(engine.turn(now), Some(now.after(7)));
}

#[test]
fn states_of_ports_are_published_and_reported_once() {
    let (engine, outside, [a, _b]) = engine();
    engine.overlay().enable(A, &[P, port(2)].map(|port| (port, Accepts::ALL)).into());
    let blocked = PortState { forwarding: false, ..PortState::default() };
    let state = |port, state| Effect::Port { port, state };
    a.lock().effects = vec![
        state(P, blocked),
        state(port(2), blocked),
        state(port(3), blocked),
        Effect::Log("both are blocked".into()),
        Effect::Send { port: P, frame: b"after".to_vec() },
        state(P, blocked),
    ];
    engine.turn(Millis(1_000_000));
    assert_eq!(*outside.changed.lock(), [BTreeSet::from([P, port(2)])]);
    assert_eq!(*outside.lines.lock(), ["Info 13: both are blocked"]);
    assert!(!engine.overlay().load()[&P].state.forwarding);
}

/// Each effect comes after the states before it, and the status last and once.
#[test]
fn effects_keep_their_order() {
    let (engine, outside, [a, _b]) = engine();
    engine.overlay().enable(A, &[(P, Accepts::ALL)].into());
    let blocked = PortState { forwarding: false, ..PortState::default() };
    a.lock().effects = vec![
        Effect::Status,
        Effect::Tree { port: P, state: TreeState::Blocked },
        Effect::Port { port: P, state: blocked },
        Effect::Flush(P),
        Effect::Move { from: P, to: port(2) },
        Effect::Status,
        Effect::Warn("careful".into()),
    ];
    engine.turn(Millis(1_000_000));
    let lines = ["1.1 Blocked", "flush 1.1", "move 1.1 1.2", "Warning 13: careful", "status 13"];
    assert_eq!(*outside.lines.lock(), lines);
    assert_eq!(*outside.changed.lock(), [BTreeSet::from([P])]);
}

#[test]
fn settling_handles_all_that_is_due() {
    let (engine, _outside, [a, b]) = engine();
    let now = engine.clock.now();
    (0..100).for_each(|_| _ = engine.punt(A, by(P), b"frame"));
    b.lock().deadlines = vec![now, now.after(1)];
    engine.settle();
    assert_eq!((a.lock().received.len(), engine.inbox(A).waiting), (100, 0));
    assert_eq!(b.lock().deadlines, [now.after(1)]);
}

#[test]
fn the_thread_handles_frames_and_ends() {
    let (engine, outside, _machines) = engine();
    engine.start().unwrap();
    engine.punt(A, by(P), b"hello").unwrap();
    while outside.sent.lock().is_empty() {
        std::thread::yield_now();
    }
    engine.stop();
    while Arc::strong_count(&engine) > 1 {
        std::thread::yield_now();
    }
}

tally::proptest! {
    /// Whenever frames arrive, each is handled once, in the order of its protocol, or counted; and no frame waits for
    /// more turns than its own queue has batches.
    #[test]
    fn frames_are_handled_in_order_or_counted(bursts in prop::collection::vec((any::<bool>(), 0usize..400), 1..30)) {
        let (engine, _outside, machines) = engine();
        let mut now = Millis(1_000_000);
        let (mut number, mut accepted) = (0u32, [vec![], vec![]]);
        for (second, n) in bursts {
            let which = usize::from(second);
            for _ in 0..n {
                number += 1;
                if engine.punt([A, B][which], by(P), &number.to_be_bytes()).is_ok() {
                    accepted[which].push(number.to_be_bytes().to_vec());
                }
            }
            now = now.after(1);
            engine.turn(now);
        }
        let waiting = engine.inbox(A).waiting.max(engine.inbox(B).waiting);
        (0..waiting.div_ceil(BATCH)).for_each(|_| _ = engine.turn(now));
        for (machine, accepted) in machines.iter().zip(accepted) {
            let received: Vec<_> = machine.lock().received.iter().map(|(_, frame)| frame.clone()).collect();
            prop_assert_eq!(received, accepted);
        }
        let counted = |stats: InboxStats| stats.accepted + stats.full;
        prop_assert_eq!(counted(engine.inbox(A)) + counted(engine.inbox(B)), u64::from(number));
    }
}

#[test]
fn a_flood_takes_a_sixteenth_of_a_processor_at_most_and_delays_no_timer() {
    let us = Duration::from_micros;
    assert_eq!(rest_after(us(100), None), us(1_500));
    assert_eq!(rest_after(us(100), Some(us(700))), us(700));
    assert_eq!(rest_after(us(100), Some(us(0))), us(0));
    assert_eq!((rest_after(us(1), None), rest_after(us(10_000), None)), REST);
}
