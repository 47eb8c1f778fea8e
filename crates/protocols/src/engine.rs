//! The engine: one thread that runs the machines of all protocols.
//!
//! A turn takes up to [`BATCH`] frames of each protocol's inbox, in a fixed order, then polls the machines with
//! expired timers, and carries out their effects. Remaining frames wait for the next turn: a flood of one protocol
//! delays another by one batch at most. The thread sleeps until a frame arrives or a timer expires. After a turn with
//! frames it rests in proportion to the time that the turn took, and for at least a millisecond unless a timer expires
//! earlier ([`rest_after`]), so that a flood of frames takes a small share of a processor and seldom wakes the thread.
//!
//! Each machine has a lock, which the engine holds for one batch at a time, and the control thread while it
//! configures a machine or reads its status. [`Engine::poll`] runs a machine on another thread, before a port closes. The
//! effects of all batches are carried out in the order in which the machines returned them. The engine waits for nothing
//! else: not for a reconfiguration, a revalidation pass or the database.

use crate::inbox::{Frame, InboxStats, Inboxes, Refused, Source};
use crate::number::Protocol;
use crate::overlay::{Overlay, PortState};
use crate::wheel::Wheel;
use base::{BridgePort, Clock, DpPort, Millis};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Frames of one protocol in a turn.
pub const BATCH: usize = 32;
/// How long the thread sleeps at most if nothing is due.
const IDLE: Duration = Duration::from_secs(60);
/// The same while the clock is moved by hand.
const STOPPED: Duration = Duration::from_millis(10);

/// After a turn with frames, the thread rests this many times as long as the turn took.
const RESTS: u32 = 15;
/// The shortest and the longest such rest, if no timer expires before its end. The shortest bounds how often a flood of
/// frames wakes the thread.
const REST: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(5));

/// The niceness of the thread, relative to other threads. Its rests keep its share of a processor small.
const NICENESS: i32 = -20;

/// How long the thread rests after a turn with frames that took `spent`, if the next timer expires after `due`.
fn rest_after(spent: Duration, due: Option<Duration>) -> Duration {
    (spent * RESTS).clamp(REST.0, REST.1).min(due.unwrap_or(REST.1))
}

/// A protocol as a state machine without I/O: time is an argument, and effects are returned.
pub trait Machine: Send + Debug {
    /// Takes a frame that a port received.
    fn input(&mut self, frame: &Frame, now: Millis);

    /// Processes expired timers, and appends the resulting effects to `effects`.
    fn poll(&mut self, now: Millis, effects: &mut Vec<Effect>);

    /// Returns the time at which [`Machine::poll`] has work next, if any.
    fn next_deadline(&self) -> Option<Millis>;
}

/// An effect that the engine carries out for a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send a frame out of a port, without frame check sequence.
    Send {
        /// The port.
        port: BridgePort,
        /// The frame.
        frame: Vec<u8>,
    },
    /// Let a port do this and not more.
    Port {
        /// The port.
        port: BridgePort,
        /// The new state.
        state: PortState,
    },
    /// Forget the addresses learned on a port.
    Flush(BridgePort),
    /// Move the addresses learned on one port to another port of the same bridge.
    Move {
        /// The port on which they were learned.
        from: BridgePort,
        /// The port on which they are from now on.
        to: BridgePort,
    },
    /// Report the state of a port in the spanning tree to controllers, as OpenFlow's port state.
    Tree {
        /// The port.
        port: BridgePort,
        /// The state.
        state: TreeState,
    },
    /// The protocol's status has changed, and is to be written to the database soon.
    Status,
    /// Write a line to the log.
    Log(String),
    /// Write a warning to the log.
    Warn(String),
}

/// The state of a port in the spanning tree (OpenFlow 1.0, `OFPPS_STP_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TreeState {
    /// The port takes no part in a spanning tree.
    #[default]
    Disabled,
    /// It neither learns nor forwards.
    Listening,
    /// It learns.
    Learning,
    /// It learns and forwards.
    Forwarding,
    /// It is not part of the tree.
    Blocked,
}

/// The receiver of effects. It must not call [`Engine::turn`] or [`Engine::poll`].
pub trait Outlet: Send + Sync + Debug {
    /// Sends a frame out of a port.
    fn send(&self, port: BridgePort, frame: Vec<u8>);

    /// The state of these ports in the overlay has changed.
    fn ports_changed(&self, ports: &BTreeSet<BridgePort>);

    /// Forgets the addresses learned on a port.
    fn flush(&self, port: BridgePort);

    /// Moves the addresses learned on one port to another one of the same bridge.
    fn move_addresses(&self, from: BridgePort, to: BridgePort);

    /// A port has this state in the spanning tree from now on.
    fn tree_changed(&self, port: BridgePort, state: TreeState);

    /// The status of a protocol has changed.
    fn status_changed(&self, protocol: Protocol);

    /// Writes a line about a protocol to the log, as a warning or for information.
    fn log(&self, protocol: Protocol, level: LogLevel, line: &str);
}

/// The level of a line in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// For information.
    Info,
    /// A warning.
    Warning,
}

/// The most turns of [`Engine::settle`].
const SETTLING_TURNS: usize = 1000;

type SharedMachine = Arc<Mutex<dyn Machine>>;

/// The engine of a switch.
#[derive(Debug)]
pub struct Engine {
    clock: Clock,
    inboxes: Inboxes,
    overlay: Arc<Overlay>,
    outlet: Weak<dyn Outlet>,
    machines: Mutex<BTreeMap<Protocol, SharedMachine>>,
    timers: Mutex<Wheel<Protocol>>,
    /// Held while a machine handles a batch and its effects are carried out.
    batch: Mutex<()>,
    /// Held during a turn: each thread that runs turns finds the timers as the last turn left them.
    turning: Mutex<()>,
    stopped: AtomicBool,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    had_frames: bool,
    frames_remain: bool,
    /// When the next timer expires.
    deadline: Option<Millis>,
}

impl Turn {
    /// Whether the next turn begins at once.
    fn is_due(&self, now: Millis) -> bool {
        self.frames_remain || self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

impl Engine {
    /// An engine without protocols, whose thread is not running yet.
    pub fn new(clock: Clock, overlay: Arc<Overlay>, outlet: Weak<dyn Outlet>) -> Arc<Self> {
        let timers = Mutex::new(Wheel::new(clock.now()));
        let (machines, stopped) = (Mutex::default(), AtomicBool::new(false));
        let (batch, turning) = (Mutex::default(), Mutex::default());
        Arc::new(Self {
            clock,
            inboxes: Inboxes::default(),
            overlay,
            outlet,
            machines,
            timers,
            batch,
            turning,
            stopped,
        })
    }

    /// Starts the thread, which ends at [`Engine::stop`].
    pub fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let engine = Arc::clone(self);
        std::thread::Builder::new().name("protocols".into()).spawn(move || engine.run()).map(|_| ())
    }

    /// Ends the thread, after the turn that it may be in.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.inboxes.wake();
    }

    fn run(&self) {
        // A neighbour takes a frame that comes late for one that was lost. Without the privilege, the thread has its turn later.
        let _ = rustix::process::nice(NICENESS);
        while !self.stopped.load(Ordering::Acquire) {
            let began = Instant::now();
            let (turn, now) = self.turn_now();
            let due = turn.deadline.map(|deadline| Duration::from_millis(deadline.since(now)));
            if turn.had_frames && !self.clock.is_stopped() {
                std::thread::sleep(rest_after(began.elapsed(), due));
            }
            if !turn.is_due(self.clock.now()) {
                let timeout = due.map_or(IDLE, |due| due.saturating_sub(began.elapsed()).min(IDLE));
                self.inboxes.wait(if self.clock.is_stopped() { STOPPED } else { timeout });
            }
        }
    }

    /// Runs a protocol from now on, in place of another machine of that number if there is one.
    pub fn register(&self, protocol: Protocol, machine: SharedMachine) {
        self.machines.lock().insert(protocol, machine);
        self.inboxes.open(protocol);
        self.changed(protocol);
    }

    /// To be called after a machine was configured: it may have other deadlines.
    pub fn changed(&self, protocol: Protocol) {
        self.timers.lock().set(protocol, Millis(0));
        self.inboxes.wake();
    }

    /// Queues a frame for a protocol. If the queue was full, returns the device whose newest frame was dropped for it.
    pub fn punt(&self, protocol: Protocol, source: Source, frame: &[u8]) -> Result<Option<DpPort>, Refused> {
        self.inboxes.push(protocol, source, frame)
    }

    /// Counters of a protocol's inbox.
    pub fn inbox(&self, protocol: Protocol) -> InboxStats {
        self.inboxes.stats(protocol)
    }

    /// The port states set by protocols.
    pub fn overlay(&self) -> &Arc<Overlay> {
        &self.overlay
    }

    /// Runs one turn; returns the time of the next one, which is not later than `now` if frames remain. Called by tests
    /// instead of the engine's thread.
    pub fn turn(&self, now: Millis) -> Option<Millis> {
        let _turning = self.turning.lock();
        let turn = self.take_turn(now);
        if turn.frames_remain { Some(now) } else { turn.deadline }
    }

    /// Runs turns on the caller's thread until nothing is due now, or for a bounded number of turns. A caller that moves the
    /// clock by hand does so after each step, so that the machines miss no step.
    pub fn settle(&self) {
        let is_settled = |(turn, now): &(Turn, Millis)| !turn.had_frames && !turn.is_due(*now);
        let _ = (0..SETTLING_TURNS).map(|_| self.turn_now()).find(is_settled);
    }

    /// Runs a turn at the clock's time. The clock is read when no other turn is in progress: one may have taken long, or have been one
    /// of many between which the clock was moved by hand.
    fn turn_now(&self) -> (Turn, Millis) {
        let _turning = self.turning.lock();
        let now = self.clock.now();
        (self.take_turn(now), now)
    }

    fn take_turn(&self, now: Millis) -> Turn {
        let machines: Vec<_> = self.machines.lock().iter().map(|(p, machine)| (*p, Arc::clone(machine))).collect();
        let mut due = Vec::new();
        self.timers.lock().advance(now, &mut due);
        let mut turn = Turn::default();
        for (protocol, machine) in machines {
            let (frames, more) = self.inboxes.take(protocol, BATCH);
            turn.frames_remain |= more;
            turn.had_frames |= !frames.is_empty();
            if !frames.is_empty() || due.contains(&protocol) {
                self.batch(protocol, &machine, &frames, now);
            }
        }
        turn.deadline = self.timers.lock().next();
        turn
    }

    /// Polls a machine on the caller's thread, and carries out its effects before it returns: so frames leave by a port
    /// that is about to close.
    pub fn poll(&self, protocol: Protocol) {
        let machine = self.machines.lock().get(&protocol).map(Arc::clone);
        let Some(machine) = machine else { return };
        self.batch(protocol, &machine, &[], self.clock.now());
        // The machine may have other deadlines.
        self.inboxes.wake();
    }

    /// Passes frames and expired timers to a machine, and carries out its effects.
    fn batch(&self, protocol: Protocol, machine: &Mutex<dyn Machine>, frames: &[Frame], now: Millis) {
        let _batch = self.batch.lock();
        let mut effects = Vec::new();
        let mut machine = machine.lock();
        frames.iter().for_each(|frame| machine.input(frame, now));
        machine.poll(now, &mut effects);
        // Under the machine's lock: a concurrent change notifies the engine after this.
        let next = machine.next_deadline();
        let mut timers = self.timers.lock();
        match next {
            Some(next) => timers.set(protocol, next),
            None => timers.cancel(&protocol),
        }
        drop(timers);
        drop(machine);
        self.carry_out(protocol, effects);
    }

    fn carry_out(&self, protocol: Protocol, effects: Vec<Effect>) {
        let Some(outlet) = self.outlet.upgrade() else { return };
        // Neighbouring states are published together.
        let (mut states, mut has_status) = (Vec::new(), false);
        for effect in effects {
            match effect {
                Effect::Port { port, state } => states.push((port, state)),
                Effect::Log(line) => outlet.log(protocol, LogLevel::Info, &line),
                Effect::Warn(line) => outlet.log(protocol, LogLevel::Warning, &line),
                Effect::Status => has_status = true,
                // The others come after the states before them.
                Effect::Send { port, frame } => {
                    self.publish(protocol, &mut states, &*outlet);
                    outlet.send(port, frame);
                }
                Effect::Flush(port) => {
                    self.publish(protocol, &mut states, &*outlet);
                    outlet.flush(port);
                }
                Effect::Move { from, to } => {
                    self.publish(protocol, &mut states, &*outlet);
                    outlet.move_addresses(from, to);
                }
                Effect::Tree { port, state } => {
                    self.publish(protocol, &mut states, &*outlet);
                    outlet.tree_changed(port, state);
                }
            }
        }
        self.publish(protocol, &mut states, &*outlet);
        if has_status {
            outlet.status_changed(protocol);
        }
    }

    fn publish(&self, protocol: Protocol, states: &mut Vec<(BridgePort, PortState)>, outlet: &dyn Outlet) {
        if states.is_empty() {
            return;
        }
        let changed = self.overlay.set_state(protocol, states);
        states.clear();
        if !changed.is_empty() {
            outlet.ports_changed(&changed);
        }
    }
}

#[cfg(test)]
mod tests;
