//! A network of bridges in virtual time.

use super::*;
use base::rng::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The end of a link: a bridge and the number of its port.
pub(super) type End = (usize, u32);

/// How a link treats frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quality {
    /// Frames lost and frames repeated, of 1000.
    pub(super) lost: u64,
    pub(super) repeated: u64,
    /// The least and the greatest delay in milliseconds; frames with different delays overtake each other.
    pub(super) delay: (u64, u64),
}

pub(super) const PERFECT: Quality = Quality { lost: 0, repeated: 0, delay: (0, 1) };
pub(super) const LOSSY: Quality = Quality { lost: 50, repeated: 50, delay: (0, 30) };

#[derive(Debug)]
struct Link {
    ends: [End; 2],
    is_up: bool,
}

/// A frame on its way: when it arrives, a number that keeps the order of equal times, where, and its bytes.
type Flight = Reverse<(Millis, u64, End, Vec<u8>)>;

/// Bridges, each in a machine of its own, and the links between them.
pub(super) struct Network {
    pub(super) now: Millis,
    pub(super) machines: Vec<SpanningTree>,
    pub(super) settings: Vec<BridgeSettings>,
    dead: Vec<bool>,
    links: Vec<Link>,
    pub(super) quality: Quality,
    flights: BinaryHeap<Flight>,
    count: u64,
    pub(super) rng: Rng,
    states: BTreeMap<End, State>,
    pub(super) frames: u64,
    pub(super) flushes: u64,
    /// The time of the last change of a port's state.
    pub(super) changed: Millis,
    /// Whether a loop of forwarding ports is an error at any time.
    pub(super) no_loops: bool,
}

impl Network {
    /// Bridges with these flavours and no links.
    pub(super) fn new(flavours: &[Flavour], seed: u64) -> Self {
        let settings: Vec<_> = flavours.iter().map(|flavour| bridge(*flavour, 0)).collect();
        Self {
            now: Millis(0),
            machines: flavours.iter().map(|_| SpanningTree::new()).collect(),
            dead: vec![false; settings.len()],
            settings,
            links: Vec::new(),
            quality: PERFECT,
            flights: BinaryHeap::new(),
            count: 0,
            rng: Rng::seeded(seed),
            states: BTreeMap::new(),
            frames: 0,
            flushes: 0,
            changed: Millis(0),
            no_loops: false,
        }
    }

    /// A connected network: a random tree, and further links.
    pub(super) fn random(flavours: &[Flavour], further: u64, seed: u64) -> Self {
        let mut network = Self::new(flavours, seed);
        for bridge in 1..flavours.len() {
            let other = network.rng.below(bridge as u64) as usize;
            network.link(bridge, other);
        }
        for _ in 0..further {
            let count = flavours.len() as u64;
            let (a, b) = (network.rng.below(count) as usize, network.rng.below(count) as usize);
            network.link(a, b);
        }
        network
    }

    /// Adds a link, with a new port on both bridges, which may be the same one.
    pub(super) fn link(&mut self, a: usize, b: usize) -> usize {
        let ends = [self.add_port(a), self.add_port(b)];
        self.links.push(Link { ends, is_up: true });
        self.links.len() - 1
    }

    /// Adds a port without a link.
    pub(super) fn add_port(&mut self, bridge: usize) -> End {
        let settings = &mut self.settings[bridge];
        let number = settings.ports.len() as u32 + 1;
        let cost = match settings.flavour {
            Flavour::Stp(_) => 2,
            Flavour::Rstp(_) => 2000,
        };
        let mac = MacAddr::from_u64((bridge as u64) << 16 | u64::from(number));
        settings.ports.insert(PortNo(number), PortSettings::new(&format!("b{bridge}p{number}"), mac, cost));
        (bridge, number)
    }

    /// Hands the settings to all machines.
    pub(super) fn configure(&mut self) {
        for bridge in 0..self.machines.len() {
            self.configure_one(bridge);
        }
    }

    fn configure_one(&mut self, bridge: usize) {
        if !self.dead[bridge] {
            self.machines[bridge].configure(alone(self.settings[bridge].clone()), self.now);
        }
    }

    /// Lets a bridge stop without a word; its links stay up.
    pub(super) fn kill(&mut self, bridge: usize) {
        self.dead[bridge] = true;
        self.states.retain(|(owner, _), _| *owner != bridge);
    }

    /// Takes a link down or up. Both bridges notice it.
    pub(super) fn set_link(&mut self, link: usize, is_up: bool) {
        self.links[link].is_up = is_up;
        for (bridge, number) in self.links[link].ends {
            self.settings[bridge].ports.get_mut(&PortNo(number)).unwrap().is_up = is_up;
            self.configure_one(bridge);
        }
    }

    /// Takes a link down in one direction, which no bridge notices.
    fn peer(&self, end: End) -> Option<End> {
        let link = self.links.iter().find(|link| link.is_up && link.ends.contains(&end))?;
        Some(if link.ends[0] == end { link.ends[1] } else { link.ends[0] })
    }

    pub(super) fn run(&mut self, ms: u64) {
        let end = self.now.after(ms);
        loop {
            for bridge in 0..self.machines.len() {
                self.poll(bridge);
            }
            let alive = (0..self.machines.len()).filter(|bridge| !self.dead[*bridge]);
            let timer = alive.filter_map(|bridge| self.machines[bridge].next_deadline()).min();
            let arrival = self.flights.peek().map(|Reverse((at, ..))| *at);
            let Some(next) = [timer, arrival].into_iter().flatten().min().filter(|next| *next <= end) else { break };
            assert!(next >= self.now);
            self.now = next;
            while self.flights.peek().is_some_and(|Reverse((at, ..))| *at <= next) {
                let Reverse((_, _, (bridge, number), frame)) = self.flights.pop().unwrap();
                if !self.dead[bridge] {
                    self.machines[bridge].input(port(number), &frame, self.now);
                    self.poll(bridge);
                }
            }
        }
        self.now = end;
    }

    fn poll(&mut self, bridge: usize) {
        if self.dead[bridge] {
            return;
        }
        let mut effects = Vec::new();
        self.machines[bridge].poll(self.now, &mut effects);
        let deadline = self.machines[bridge].next_deadline();
        assert!(deadline.is_none_or(|deadline| deadline > self.now), "nothing is due after a poll");
        for effect in effects {
            match effect {
                Effect::Send { port, frame } => self.send((bridge, port.port.0), frame),
                Effect::State { port, state } => {
                    self.states.insert((bridge, port.port.0), state);
                    self.changed = self.now;
                    assert!(!self.no_loops || self.loops().is_none(), "a loop at {:?}", self.now);
                }
                Effect::Flush(_) | Effect::FlushBridge(_) => self.flushes += 1,
                Effect::Move { .. } | Effect::Release(_) | Effect::Status | Effect::Log(_) => {}
            }
        }
    }

    fn send(&mut self, from: End, frame: Vec<u8>) {
        self.frames += 1;
        let Some(to) = self.peer(from) else { return };
        let Quality { lost, repeated, delay: (least, most) } = self.quality;
        if self.rng.below(1000) < lost {
            return;
        }
        let copies = if self.rng.below(1000) < repeated { 2 } else { 1 };
        for _ in 0..copies {
            let at = self.now.after(least + self.rng.below(most - least + 1));
            self.count += 1;
            self.flights.push(Reverse((at, self.count, to, frame.clone())));
        }
    }

    pub(super) fn state(&self, end: End) -> State {
        self.states.get(&end).copied().unwrap_or_default()
    }

    /// The links over which frames pass: up, between bridges that run, forwarding at both ends.
    fn forwarding(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(|link| link.is_up && link.ends.iter().all(|end| self.state(*end).forwards()))
    }

    /// A link that closes a loop of forwarding ports.
    pub(super) fn loops(&self) -> Option<[End; 2]> {
        let mut parts = Parts::new(self.machines.len());
        self.forwarding().map(|link| link.ends).find(|[(a, _), (b, _)]| !parts.join(*a, *b))
    }

    /// Asserts that frames reach each bridge that a link connects, by one path.
    pub(super) fn assert_spanning(&self) {
        assert_eq!(self.loops(), None, "no loop");
        let (mut connected, mut reached) = (Parts::new(self.machines.len()), Parts::new(self.machines.len()));
        let alive = |link: &&Link| link.is_up && link.ends.iter().all(|(bridge, _)| !self.dead[*bridge]);
        for [(a, _), (b, _)] in self.links.iter().filter(alive).map(|link| link.ends) {
            connected.join(a, b);
        }
        for [(a, _), (b, _)] in self.forwarding().map(|link| link.ends) {
            reached.join(a, b);
        }
        for a in 0..self.machines.len() {
            for b in 0..a {
                assert_eq!(connected.are_joined(a, b), reached.are_joined(a, b), "bridges {a} and {b}");
            }
        }
    }

    /// Asserts that all bridges of a connected network agree on the root.
    pub(super) fn root(&self) -> BridgeId {
        let mut roots = Vec::new();
        for (machine, is_dead) in self.machines.iter().zip(&self.dead) {
            if !is_dead {
                roots.push(machine.status()[0].root);
            }
        }
        roots.dedup();
        assert_eq!(roots.len(), 1, "one root");
        roots[0]
    }

    /// The links of a bridge.
    pub(super) fn links_of(&self, bridge: usize) -> Vec<usize> {
        let touches = |n: &usize| self.links[*n].ends.iter().any(|(one, _)| *one == bridge);
        (0..self.links.len()).filter(touches).collect()
    }

    pub(super) fn link_count(&self) -> usize {
        self.links.len()
    }
}

/// Disjoint sets of bridges.
struct Parts(Vec<usize>);

impl Parts {
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    fn find(&self, mut one: usize) -> usize {
        while self.0[one] != one {
            one = self.0[one];
        }
        one
    }

    /// Returns false if they were joined already.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a] = b;
        a != b
    }

    fn are_joined(&self, a: usize, b: usize) -> bool {
        self.find(a) == self.find(b)
    }
}
