//! One bridge that runs RSTP (IEEE 802.1D-2004 clause 17).
//!
//! - [`port`]: the variables of a port, and its machines for reception, migration, edge detection and transmission;
//! - [`information`]: the Port Information machine;
//! - [`selection`]: the Port Role Selection machine;
//! - [`transitions`]: the Port Role Transitions and Port State Transition machines;
//! - [`topology`]: the Topology Change machine.
//!
//! After each frame, expired timer or change of settings, the machines make transitions until none of them can make
//! another one. Then ports transmit. Timers are deadlines in place of counters of seconds.
//!
//! Invariants: a BPDU with an agreement leaves after all ports that have to discard first do; a port transmits no more
//! BPDUs in a second than the transmit hold count.

mod information;
mod port;
mod selection;
mod topology;
mod transitions;

use crate::bpdu::Bpdu;
use crate::id::{BridgeId, PortId, Times, Vector};
use crate::machine::Outbox;
use crate::settings::{BridgeSettings, PortSettings, RstpSettings, Version, assign_numbers};
use crate::status::{BridgeStatus, PortStatus, Protocol, Statistics};
use crate::timer::Timer;
use base::{Millis, PortNo};
use port::Port;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Time for which a port sends BPDUs of one version before it may migrate to another (17.13.9).
pub const MIGRATE_TIME_MS: u64 = 3000;
/// The greatest port number.
pub const PORT_NUMBER_MAX: u16 = 4095;
/// The greatest priority of a port.
pub const PRIORITY_MAX: u8 = 240;
/// The hello time (17.14), which is fixed.
pub const HELLO_TIME_S: u8 = 2;
/// Rounds of transitions after one event, for each port. The machines need a few; the bound is a safeguard.
const ROUNDS_PER_PORT: usize = 64;

/// A bridge.
#[derive(Debug)]
pub struct Rstp {
    id: BridgeId,
    own_times: Times,
    hold_count: u64,
    version: Version,
    root: Vector,
    root_times: Times,
    /// The index of the root port.
    root_port: Option<usize>,
    /// By OpenFlow number.
    ports: Vec<Port>,
}

impl Rstp {
    /// A bridge without ports.
    pub fn new(settings: &RstpSettings) -> Self {
        let id = BridgeId::new(settings.priority & 0xf000, settings.address);
        let times = Times::of_root(HELLO_TIME_S, 20, 15);
        let mut bridge = Self {
            id,
            own_times: times,
            hold_count: 6,
            version: settings.version,
            root: Vector::default(),
            root_times: times,
            root_port: None,
            ports: Vec::new(),
        };
        bridge.take_parameters(settings);
        bridge.update_roles();
        bridge
    }

    /// Takes the parameters that are valid; others stay as they are (17.14).
    fn take_parameters(&mut self, settings: &RstpSettings) {
        let fits = |max_age: u64, forward_delay: u64| 2 * (forward_delay - 1) >= max_age;
        let seconds = |time: u16| u64::from(time / 256);
        let (mut max_age, mut forward_delay) = (seconds(self.own_times.max_age), seconds(self.own_times.forward_delay));
        // The maximum age may fit only with the new forward delay.
        for _ in 0..2 {
            if (6..=40).contains(&settings.max_age_s) && fits(settings.max_age_s, forward_delay) {
                max_age = settings.max_age_s;
            }
            if (4..=30).contains(&settings.forward_delay_s) && fits(max_age, settings.forward_delay_s) {
                forward_delay = settings.forward_delay_s;
            }
        }
        self.own_times = Times::of_root(HELLO_TIME_S, max_age as u8, forward_delay as u8);
        if (1..=10).contains(&settings.transmit_hold_count) {
            self.hold_count = settings.transmit_hold_count;
        }
    }

    /// Takes new settings. A new version or port number restarts the machines of the ports that it concerns.
    pub(crate) fn configure(
        &mut self,
        settings: &RstpSettings,
        ports: &BTreeMap<PortNo, PortSettings>,
        out: &mut Outbox,
        now: Millis,
    ) {
        let hold_count = self.hold_count;
        self.take_parameters(settings);
        self.id = BridgeId::new(settings.priority & 0xf000, settings.address);
        let restart = std::mem::replace(&mut self.version, settings.version) != settings.version;
        let current = |number| Some(self.ports.iter().find(|port| port.number == number)?.id.0 & 0xfff);
        let numbers = assign_numbers(ports, current, PORT_NUMBER_MAX);
        let mut old: BTreeMap<_, _> = self.ports.drain(..).map(|port| (port.number, port)).collect();
        self.root_port = None;
        for (number, settings) in ports {
            let Some(nth) = numbers.get(number) else { continue };
            let former = old.remove(number);
            // A priority out of range is ignored.
            let current = former.as_ref().map_or(0x80, |port| (port.id.0 >> 8) as u8);
            let priority = if settings.priority <= PRIORITY_MAX { settings.priority } else { current };
            let id = PortId::rstp(priority, *nth);
            let port = match former {
                Some(mut port) if !restart && port.id.0 & 0xfff == *nth => {
                    port.configure(id, settings, now);
                    if hold_count != self.hold_count {
                        port.tx_count = 0;
                    }
                    port
                }
                former => {
                    let statistics = former.as_ref().map_or_else(Statistics::default, |port| port.statistics);
                    let since = former.map_or(now, |port| port.since);
                    let version = self.version;
                    let port = Port::new(*number, id, settings, version, (statistics, since), now);
                    out.state(*number, port.published);
                    port
                }
            };
            self.ports.push(port);
        }
        // Roles follow from the identifiers of the bridge and its ports.
        for port in &mut self.ports {
            port.reselect = true;
            port.selected = false;
        }
        self.select_roles(out);
        self.settle(out, now);
    }

    fn index(&self, number: PortNo) -> Option<usize> {
        self.ports.binary_search_by_key(&number, |port| port.number).ok()
    }

    /// Takes a frame that a port received.
    pub(crate) fn input(&mut self, number: PortNo, frame: &[u8], out: &mut Outbox, now: Millis) {
        let Some(index) = self.index(number) else { return };
        let port = &mut self.ports[index];
        if !port.enabled {
            return;
        }
        match Bpdu::parse(frame) {
            // A port that hears its own configuration BPDUs is looped back to itself (9.3.4).
            Ok(Bpdu::Config(config)) if (config.vector.bridge, config.vector.port) == (self.id, port.id) => {
                port.statistics.error += 1;
            }
            Ok(bpdu) => {
                port.statistics.rx += 1;
                port.receive(bpdu, now);
                self.settle(out, now);
            }
            Err(_) => port.statistics.error += 1,
        }
    }

    /// Handles a topology change that an administrator asks for, as if each port had received a notification.
    pub(crate) fn notify_topology_change(&mut self, out: &mut Outbox, now: Millis) {
        for port in &mut self.ports {
            port.notify_topology_change();
        }
        self.settle(out, now);
    }

    /// Processes expired timers.
    pub(crate) fn poll(&mut self, out: &mut Outbox, now: Millis) {
        for port in &mut self.ports {
            port.expire(now);
        }
        self.settle(out, now);
    }

    /// Makes transitions until no machine can make another one.
    fn settle(&mut self, out: &mut Outbox, now: Millis) {
        let rounds = ROUNDS_PER_PORT * (self.ports.len() + 1);
        for _ in 0..rounds {
            if !self.round(out, now) && !self.transmit(out, now) {
                return;
            }
        }
        debug_assert!(false, "the machines settle");
    }

    /// One transition of each machine that can make one. Returns true if one did.
    fn round(&mut self, out: &mut Outbox, now: Millis) -> bool {
        let mut has_changed = false;
        if self.ports.iter().any(|port| port.reselect) {
            self.select_roles(out);
            has_changed = true;
        }
        for index in 0..self.ports.len() {
            has_changed |= self.ports[index].migrate(self.version, now);
            has_changed |= self.ports[index].detect_bridge();
            has_changed |= self.inform(index, now);
            has_changed |= self.change_role(index, now);
            has_changed |= self.ports[index].change_state(out, now);
            has_changed |= self.change_topology(index, out, now);
        }
        has_changed
    }

    /// The Port Transmit machine of all ports. Returns true if one transmitted.
    fn transmit(&mut self, out: &mut Outbox, now: Millis) -> bool {
        let mut has_changed = false;
        for port in &mut self.ports {
            has_changed |= port.transmit(self.hold_count, &self.own_times, out, now);
        }
        has_changed
    }

    /// The time at which [`Rstp::poll`] has work next, if any.
    pub fn deadline(&self) -> Option<Millis> {
        self.ports.iter().flat_map(Port::timers).filter_map(Timer::deadline).min()
    }

    /// The state of the bridge and its ports.
    pub fn status(&self, bridge: u32, settings: &BridgeSettings) -> BridgeStatus {
        let name = |port: &Port| settings.ports.get(&port.number).map_or_else(String::new, |one| one.name.clone());
        let mut ports: Vec<PortStatus> = self.ports.iter().map(|port| port.status(name(port))).collect();
        ports.sort_by_key(|port| port.id.0 & 0xfff);
        BridgeStatus {
            bridge,
            name: settings.name.clone(),
            protocol: Protocol::Rstp,
            id: self.id,
            own_times: self.own_times,
            root: self.root.root,
            root_times: self.root_times,
            root_path_cost: self.root.cost,
            root_port: self.root_port.map(|index| self.ports[index].number),
            ports,
        }
    }

    pub(crate) fn port_status(&self, number: PortNo, name: &str) -> Option<PortStatus> {
        Some(self.ports[self.index(number)?].status(name.to_owned()))
    }

    /// Hashes what the status shows, apart from times and counters.
    pub(crate) fn hash_status(&self, hasher: &mut impl Hasher) {
        (self.id, self.root, self.root_port).hash(hasher);
        for port in &self.ports {
            (port.number, port.id, port.role, port.published, port.port_vector).hash(hasher);
        }
    }
}
