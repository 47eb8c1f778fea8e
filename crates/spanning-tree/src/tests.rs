//! Bridges in virtual time: alone, with neighbours that a test plays, and in networks whose links lose, repeat, delay and
//! reorder frames.

mod convergence;
mod hostile;
mod network;
mod oracle;
mod rstp;
mod stp;

use crate::bpdu::{Bpdu, Config, Flags};
use crate::id::{BridgeId, PortId, Times, Vector};
use crate::machine::{Effect, SpanningTree};
use crate::settings::{BridgeSettings, Flavour, PortSettings, RstpSettings, Settings, StpSettings};
use crate::status::{PortStatus, Role, State};
use base::{BridgePort, MacAddr, Millis, PortNo};

/// The number of the bridge in tests with one bridge a machine.
const BRIDGE: u32 = 7;

fn port(number: u32) -> BridgePort {
    BridgePort { bridge: BRIDGE, port: PortNo(number) }
}

fn stp(address: u64) -> Flavour {
    Flavour::Stp(StpSettings::new(MacAddr::from_u64(address)))
}

fn rstp(address: u64) -> Flavour {
    Flavour::Rstp(RstpSettings::new(MacAddr::from_u64(address)))
}

/// A bridge with ports 1 to `count`.
fn bridge(flavour: Flavour, count: u32) -> BridgeSettings {
    let cost = match flavour {
        Flavour::Stp(_) => 2,
        Flavour::Rstp(_) => 2000,
    };
    let one = |n: u32| (PortNo(n), PortSettings::new(&format!("p{n}"), MacAddr::from_u64(0x100 + u64::from(n)), cost));
    let ports = (1..=count).map(one).collect();
    BridgeSettings { name: "br0".into(), flavour, ports, bystanders: [PortNo::LOCAL].into() }
}

fn alone(bridge: BridgeSettings) -> Settings {
    Settings { bridges: [(BRIDGE, bridge)].into() }
}

/// One bridge, and the frames and states that it has reported.
struct Bench {
    machine: SpanningTree,
    settings: BridgeSettings,
    now: Millis,
}

impl Bench {
    fn new(settings: BridgeSettings) -> Self {
        let mut machine = SpanningTree::new();
        machine.configure(alone(settings.clone()), Millis(0));
        Self { machine, settings, now: Millis(0) }
    }

    fn configure(&mut self, change: impl FnOnce(&mut BridgeSettings)) -> Vec<Effect> {
        change(&mut self.settings);
        self.machine.configure(alone(self.settings.clone()), self.now);
        self.poll()
    }

    fn poll(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.machine.poll(self.now, &mut effects);
        assert!(self.machine.next_deadline().is_none_or(|deadline| deadline > self.now), "nothing is due after a poll");
        effects
    }

    fn input(&mut self, number: u32, bpdu: Bpdu) -> Vec<Effect> {
        self.raw_input(number, &bpdu.write(MacAddr::from_u64(9)))
    }

    fn raw_input(&mut self, number: u32, frame: &[u8]) -> Vec<Effect> {
        self.machine.input(port(number), frame, self.now);
        self.poll()
    }

    /// Lets time pass, with a poll at each deadline.
    fn pass(&mut self, ms: u64) -> Vec<Effect> {
        let end = self.now.after(ms);
        let mut effects = self.poll();
        while let Some(next) = self.machine.next_deadline().filter(|next| *next <= end) {
            self.now = next;
            effects.extend(self.poll());
        }
        self.now = end;
        effects
    }

    fn port(&self, number: u32) -> PortStatus {
        let status = self.machine.status().remove(0);
        status.ports.into_iter().find(|port| port.port == PortNo(number)).unwrap()
    }

    fn state(&self, number: u32) -> State {
        self.port(number).state
    }

    fn role(&self, number: u32) -> Role {
        self.port(number).role
    }
}

/// The BPDUs that effects send by a port.
fn sent(effects: &[Effect], number: u32) -> Vec<Bpdu> {
    let frame = |effect: &Effect| match effect {
        Effect::Send { port: by, frame } if *by == port(number) => Some(Bpdu::parse(frame).unwrap()),
        _ => None,
    };
    effects.iter().filter_map(frame).collect()
}

fn without_status(effects: Vec<Effect>) -> Vec<Effect> {
    effects.into_iter().filter(|effect| *effect != Effect::Status).collect()
}

fn has_flushes(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Flush(_) | Effect::FlushBridge(_)))
}

/// A BPDU of the bridge `address` with priority 0, which is the root.
fn of_root(address: u64, port: u16, flags: Flags) -> Config {
    let id = BridgeId::new(0, MacAddr::from_u64(address));
    Config {
        flags,
        vector: Vector { root: id, cost: 0, bridge: id, port: PortId(port) },
        times: Times::of_root(2, 20, 15),
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect()
}
