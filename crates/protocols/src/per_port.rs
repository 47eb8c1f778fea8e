//! Protocols with a state machine for each port: many machines whose timers share a wheel.
//!
//! Invariants: each machine has one timer in the wheel, which expires no later than the machine's deadline; the cost of a
//! poll is proportional to the machines that are due; a machine's effects keep their order.

use crate::engine::Effect;
use crate::overlay::PortState;
use crate::wheel::Wheel;
use base::rng::Rng;
use base::{BridgePort, Millis};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;
use vlog::{Admission, Level, RateLimit};

/// Log lines of a machine in a minute, and at once.
const LINES: (u32, u32) = (60, 60);

/// A line for the log: its level and its text.
pub type Line = (Level, String);

/// The state machine of one port.
pub trait PortMachine: Debug {
    /// The time at which [`PortMachine::poll`] has work next.
    fn deadline(&self) -> Millis;

    /// Processes expired timers. Returns a frame to be sent out of the port, if one is due.
    fn poll(&mut self, now: Millis, rng: &mut Rng) -> Option<Vec<u8>>;

    /// Returns true if the port may be used to forward traffic.
    fn is_live(&self) -> bool;

    /// Takes the lines that the machine has written since the last call.
    fn take_lines(&mut self) -> Vec<Line>;

    /// Returns true if the status has changed since the last call.
    fn has_new_status(&mut self) -> bool;
}

/// The machines of a protocol.
#[derive(Debug)]
pub struct PerPort<M> {
    entries: BTreeMap<BridgePort, Entry<M>>,
    wheel: Wheel<BridgePort>,
    rng: Rng,
    /// Effects that the next poll returns.
    effects: Vec<Effect>,
    /// The timers that have expired, kept for its memory.
    due: Vec<BridgePort>,
}

#[derive(Debug)]
struct Entry<M> {
    machine: M,
    /// The last reported decision.
    live: Option<bool>,
    limit: RateLimit,
}

impl<M: PortMachine> Entry<M> {
    /// Appends the effects of the last change.
    fn report(&mut self, port: BridgePort, now: Millis, effects: &mut Vec<Effect>) {
        for (level, line) in self.machine.take_lines() {
            let Admission::Pass { dropped } = self.limit.admit(Duration::from_millis(now.0)) else { continue };
            let log = if level == Level::Warn { Effect::Warn } else { Effect::Log };
            effects.extend(dropped.map(|dropped| log(dropped.to_string())));
            effects.push(log(line));
        }
        let live = self.machine.is_live();
        if self.live.replace(live) != Some(live) {
            effects.push(Effect::Port { port, state: PortState { live, ..PortState::default() } });
        }
        if self.machine.has_new_status() {
            effects.push(Effect::Status);
        }
    }
}

impl<M: PortMachine> PerPort<M> {
    /// A protocol without machines. The seed determines the random choices of its machines.
    pub fn new(seed: u64, now: Millis) -> Self {
        Self {
            entries: BTreeMap::new(),
            wheel: Wheel::new(now),
            rng: Rng::seeded(seed),
            effects: Vec::new(),
            due: Vec::new(),
        }
    }

    /// The source of random choices.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// The machine of a port.
    pub fn get(&self, port: BridgePort) -> Option<&M> {
        self.entries.get(&port).map(|entry| &entry.machine)
    }

    /// All machines, by port.
    pub fn iter(&self) -> impl Iterator<Item = (BridgePort, &M)> {
        self.entries.iter().map(|(port, entry)| (*port, &entry.machine))
    }

    /// Gives a port a machine, in place of its former one if it had one.
    pub fn insert(&mut self, port: BridgePort, machine: M, now: Millis) {
        let entry = Entry { machine, live: None, limit: RateLimit::new(LINES.0, LINES.1) };
        self.entries.insert(port, entry);
        self.settle(port, now);
    }

    /// Removes and returns the machine of a port.
    pub fn remove(&mut self, port: BridgePort) -> Option<M> {
        let entry = self.entries.remove(&port)?;
        self.wheel.cancel(&port);
        Some(entry.machine)
    }

    /// Changes the machine of a port, if it has one: the only way to do so.
    pub fn change(&mut self, port: BridgePort, now: Millis, change: impl FnOnce(&mut M, &mut Rng)) {
        let Some(entry) = self.entries.get_mut(&port) else { return };
        change(&mut entry.machine, &mut self.rng);
        self.settle(port, now);
    }

    /// Collects the effects of a change of a machine, and moves its timer forward. A timer is not moved back: it expires
    /// for nothing instead, which is cheaper where each packet moves the deadline back.
    fn settle(&mut self, port: BridgePort, now: Millis) {
        let Some(entry) = self.entries.get_mut(&port) else { return };
        entry.report(port, now, &mut self.effects);
        let deadline = entry.machine.deadline();
        if self.wheel.deadline(&port).is_none_or(|set| deadline < set) {
            self.wheel.set(port, deadline);
        }
    }

    /// Has machines with expired timers process them, and appends all effects since the last poll to `effects`.
    pub fn poll(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(now, &mut due);
        for port in due.drain(..) {
            let Some(entry) = self.entries.get_mut(&port) else { continue };
            if entry.machine.deadline() <= now {
                let frame = entry.machine.poll(now, &mut self.rng);
                self.effects.extend(frame.map(|frame| Effect::Send { port, frame }));
            }
            self.settle(port, now);
        }
        self.due = due;
        effects.append(&mut self.effects);
    }

    /// The time at which [`PerPort::poll`] may have work next, if any; pending effects are due at once.
    pub fn next_deadline(&self) -> Option<Millis> {
        if self.effects.is_empty() { self.wheel.next() } else { Some(Millis(0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PortNo;

    /// Sends a frame every so many milliseconds, and is live until it has sent three.
    #[derive(Debug)]
    struct Beacon {
        interval_ms: u64,
        next: Millis,
        polls: u64,
        lines: Vec<Line>,
        reported: Option<u64>,
    }

    impl PortMachine for Beacon {
        fn deadline(&self) -> Millis {
            self.next
        }

        fn poll(&mut self, now: Millis, _rng: &mut Rng) -> Option<Vec<u8>> {
            self.polls += 1;
            self.next = now.after(self.interval_ms);
            self.lines.push((Level::Info, format!("poll {}", self.polls)));
            Some(vec![self.polls as u8])
        }

        fn is_live(&self) -> bool {
            self.polls < 3
        }

        fn take_lines(&mut self) -> Vec<Line> {
            std::mem::take(&mut self.lines)
        }

        fn has_new_status(&mut self) -> bool {
            self.reported.replace(self.polls / 2) != Some(self.polls / 2)
        }
    }

    const START: Millis = Millis(1_000_000);

    fn port(no: u32) -> BridgePort {
        BridgePort { bridge: 1, port: PortNo(no) }
    }

    fn beacon(interval_ms: u64) -> Beacon {
        Beacon { interval_ms, next: START.after(interval_ms), polls: 0, lines: Vec::new(), reported: None }
    }

    fn state(live: bool) -> Effect {
        Effect::Port { port: port(1), state: PortState { live, ..PortState::default() } }
    }

    #[test]
    fn effects_of_a_machine_follow_each_other() {
        let mut ports = PerPort::new(1, START);
        ports.insert(port(1), beacon(10), START);
        let mut run = |until: u64| {
            let mut effects = Vec::new();
            while let Some(next) = ports.next_deadline().filter(|next| *next <= START.after(until)) {
                ports.poll(next.max(START), &mut effects);
            }
            effects
        };
        assert_eq!(run(0), [state(true), Effect::Status]);
        let sent = |n: u8| Effect::Send { port: port(1), frame: vec![n] };
        let line = |n: u8| Effect::Log(format!("poll {n}"));
        assert_eq!(run(10), [sent(1), line(1)]);
        assert_eq!(run(30), [sent(2), line(2), Effect::Status, sent(3), line(3), state(false)]);
    }

    #[test]
    fn a_poll_visits_the_machines_that_are_due() {
        let mut ports = PerPort::new(1, START);
        (0..100).for_each(|n| ports.insert(port(n), beacon(10 + u64::from(n)), START));
        ports.poll(START.after(19), &mut Vec::new());
        assert_eq!(ports.iter().filter(|(_, beacon)| beacon.polls > 0).count(), 10);
        // A deadline that moves forward counts, one that moves back costs a visit without a poll.
        ports.change(port(50), START.after(19), |beacon, _| beacon.next = START.after(20));
        ports.change(port(10), START.after(19), |beacon, _| beacon.next = START.after(500));
        ports.poll(START.after(20), &mut Vec::new());
        let polls = |no| ports.get(port(no)).map(|beacon| beacon.polls);
        assert_eq!((polls(50), polls(10), polls(11)), (Some(1), Some(0), Some(0)));
    }

    #[test]
    fn a_removed_machine_has_no_timer() {
        let mut ports = PerPort::new(1, START);
        ports.insert(port(1), beacon(10), START);
        ports.poll(START, &mut Vec::new());
        assert!(ports.remove(port(1)).is_some() && ports.remove(port(1)).is_none());
        assert_eq!(ports.next_deadline(), None);
    }
}
