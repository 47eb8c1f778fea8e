//! One bridge that runs STP (IEEE 802.1D-1998 clause 8): configuration BPDUs, port states, topology changes.
//!
//! The functions are the procedures of clause 8.6, under the names that the standard gives them. When the topology
//! changes, the bridge forgets all addresses at once and again after each forward delay for as long as the change lasts, in
//! place of the short ageing time of clause 8.3.5.
//!
//! Invariants: at most one port is the root port; a port sends at most one configuration BPDU in a hold time; a port
//! forwards no earlier than two forward delays after it left the blocking state.

mod port;

use crate::bpdu::{Bpdu, Config, Flags};
use crate::id::{BridgeId, PortId, Times, Vector, to_ms};
use crate::machine::Outbox;
use crate::settings::{BridgeSettings, PortSettings, StpSettings, assign_numbers};
use crate::status::{BridgeStatus, PortStatus, Protocol, Role, State};
use crate::timer::Timer;
use base::{Millis, PortNo};
use port::Port;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// The time in which a port sends one configuration BPDU at most (IEEE 802.1D-1998 table 8-3).
pub const HOLD_TIME_MS: u64 = 1000;
/// The greatest port number.
pub const PORT_NUMBER_MAX: u16 = 255;

/// A bridge.
#[derive(Debug)]
pub struct Stp {
    name: String,
    id: BridgeId,
    root: BridgeId,
    root_path_cost: u32,
    root_port: Option<PortNo>,
    /// The timer values of the root.
    times: Times,
    own_times: Times,
    topology_change_detected: bool,
    topology_change: bool,
    hello: Timer,
    notification: Timer,
    topology_change_timer: Timer,
    /// Runs while the topology is changing: when to forget addresses again.
    flush: Timer,
    ports: BTreeMap<PortNo, Port>,
}

fn times(settings: &StpSettings) -> Times {
    let (hello, max_age, forward_delay) = settings.times_s();
    Times::of_root(hello, max_age, forward_delay)
}

impl Stp {
    /// A bridge without ports (8.8.1).
    pub fn new(settings: &StpSettings, now: Millis) -> Self {
        let (id, times) = (BridgeId::new(settings.priority, settings.address), times(settings));
        let mut hello = Timer::default();
        hello.start(to_ms(times.hello_time), now);
        Self {
            name: String::new(),
            id,
            root: id,
            root_path_cost: 0,
            root_port: None,
            times,
            own_times: times,
            topology_change_detected: false,
            topology_change: false,
            hello,
            notification: Timer::default(),
            topology_change_timer: Timer::default(),
            flush: Timer::default(),
            ports: BTreeMap::new(),
        }
    }

    fn is_root(&self) -> bool {
        self.root == self.id
    }

    /// Takes new settings (8.8.2 to 8.8.6).
    pub(crate) fn configure(
        &mut self,
        name: &str,
        settings: &StpSettings,
        ports: &BTreeMap<PortNo, PortSettings>,
        out: &mut Outbox,
        now: Millis,
    ) {
        name.clone_into(&mut self.name);
        let was_root = self.is_root();
        let (old_id, id) = (self.id, BridgeId::new(settings.priority, settings.address));
        self.own_times = times(settings);
        if was_root {
            self.times = self.own_times;
        }
        let numbers = assign_numbers(ports, |port| Some(self.ports.get(&port)?.id.0 & 0xff), PORT_NUMBER_MAX);
        self.ports.retain(|port, _| numbers.contains_key(port));
        // Port identifiers and the bridge identifier are in the information of designated ports.
        let designated: Vec<_> = self.ports.keys().copied().filter(|port| self.is_designated_port(*port)).collect();
        self.id = id;
        if was_root {
            self.root = id;
        }
        for port in designated {
            let port = self.ports.get_mut(&port).expect("the port is in the bridge");
            port.designated.bridge = id;
            if port.designated.root == old_id {
                port.designated.root = id;
            }
        }
        for (number, settings) in ports {
            let Some(nth) = numbers.get(number) else { continue };
            self.configure_port(*number, *nth, settings, out, now);
        }
        self.configuration_update();
        self.port_state_selection(out, now);
        self.change_of_root(was_root, out, now);
    }

    fn configure_port(&mut self, number: PortNo, nth: u16, settings: &PortSettings, out: &mut Outbox, now: Millis) {
        let id = PortId::stp(settings.priority, nth);
        match self.ports.get_mut(&number) {
            Some(port) => {
                if port.designated.bridge == self.id && port.designated.port == port.id {
                    port.designated.port = id;
                }
                port.id = id;
                port.path_cost = settings.path_cost;
                port.mac = settings.mac;
            }
            None => {
                out.state(number, State::Disabled);
                self.ports.insert(number, Port::new(id, settings, now));
            }
        }
        let is_disabled = self.ports[&number].state == State::Disabled;
        if settings.is_up && is_disabled {
            self.enable_port(number, out, now);
        } else if !settings.is_up && !is_disabled {
            self.disable_port(number, out, now);
        }
    }

    /// 8.8.2.
    fn enable_port(&mut self, number: PortNo, out: &mut Outbox, now: Millis) {
        self.become_designated_port(number);
        let Some(port) = self.ports.get_mut(&number) else { return };
        port.initialize();
        self.set_state(number, State::Blocking, out, now);
    }

    /// 8.8.3.
    fn disable_port(&mut self, number: PortNo, out: &mut Outbox, now: Millis) {
        self.become_designated_port(number);
        let Some(port) = self.ports.get_mut(&number) else { return };
        port.initialize();
        self.set_state(number, State::Disabled, out, now);
    }

    /// Completes a change after which the bridge may have become the root, or ceased to be it.
    fn change_of_root(&mut self, was_root: bool, out: &mut Outbox, now: Millis) {
        match (was_root, self.is_root()) {
            (false, true) => {
                self.times = self.own_times;
                self.topology_change_detection(out, now);
                self.notification.stop();
                self.config_bpdu_generation(out, now);
                self.hello.start(to_ms(self.times.hello_time), now);
            }
            (true, false) => {
                self.hello.stop();
                if self.topology_change_detected {
                    self.topology_change_timer.stop();
                    self.transmit_tcn(out);
                    self.notification.start(to_ms(self.own_times.hello_time), now);
                }
            }
            _ => {}
        }
    }

    /// Takes a frame that a port received (8.7.1, 8.7.2).
    pub(crate) fn input(&mut self, number: PortNo, frame: &[u8], out: &mut Outbox, now: Millis) {
        let Some(port) = self.ports.get_mut(&number).filter(|port| port.state != State::Disabled) else { return };
        match Bpdu::parse(frame) {
            // A port that hears its own BPDUs is looped back to itself.
            Ok(Bpdu::Config(config)) if (config.vector.bridge, config.vector.port) == (self.id, port.id) => {
                port.statistics.error += 1;
            }
            Ok(Bpdu::Config(config)) => {
                port.statistics.rx += 1;
                self.received_config(number, &config, out, now);
            }
            Ok(Bpdu::TopologyChange) => {
                port.statistics.rx += 1;
                if self.is_designated_port(number) {
                    self.topology_change_detection(out, now);
                    self.acknowledge_topology_change(number, out, now);
                }
            }
            Ok(Bpdu::Rapid(_)) | Err(_) => port.statistics.error += 1,
        }
    }

    fn received_config(&mut self, number: PortNo, config: &Config, out: &mut Outbox, now: Millis) {
        let was_root = self.is_root();
        if self.supersedes_port_info(number, config) {
            self.ports.get_mut(&number).expect("the port is in the bridge").record_config(config, now);
            self.configuration_update();
            self.port_state_selection(out, now);
            self.change_of_root(was_root, out, now);
            if Some(number) == self.root_port {
                self.record_config_timeout_values(config, out, now);
                self.config_bpdu_generation(out, now);
                if config.flags.contains(Flags::ACKNOWLEDGMENT) {
                    self.topology_change_acknowledged();
                }
            }
        } else if self.is_designated_port(number) {
            self.transmit_config(number, out, now);
        }
    }

    /// 8.6.2: whether the information is better than that of the port, or the same.
    fn supersedes_port_info(&self, number: PortNo, config: &Config) -> bool {
        let (known, heard) = (&self.ports[&number].designated, &config.vector);
        let key = |vector: &Vector| (vector.root, vector.cost, vector.bridge);
        match key(heard).cmp(&key(known)) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => heard.bridge != self.id || heard.port <= known.port,
            std::cmp::Ordering::Greater => false,
        }
    }

    /// 8.6.3: takes the timer values of the root, and forgets addresses when its topology change begins or ends.
    fn record_config_timeout_values(&mut self, config: &Config, out: &mut Outbox, now: Millis) {
        self.times = Times { message_age: 0, ..config.times };
        self.set_topology_change(config.flags.contains(Flags::TOPOLOGY_CHANGE), out, now);
    }

    fn set_topology_change(&mut self, is_changing: bool, out: &mut Outbox, now: Millis) {
        if is_changing == self.topology_change {
            return;
        }
        self.topology_change = is_changing;
        out.flushes.request_all();
        self.flush.stop();
        if is_changing {
            self.start_flush_timer(now);
        }
    }

    fn start_flush_timer(&mut self, now: Millis) {
        // A root may announce any forward delay.
        let forward_delay = to_ms(self.times.forward_delay).max(1000);
        self.flush.start(forward_delay, now);
    }

    /// 8.6.4.
    fn config_bpdu_generation(&mut self, out: &mut Outbox, now: Millis) {
        let ports: Vec<_> = self.ports.keys().copied().collect();
        for port in ports {
            if self.is_designated_port(port) && self.ports[&port].state != State::Disabled {
                self.transmit_config(port, out, now);
            }
        }
    }

    /// 8.6.1.
    fn transmit_config(&mut self, number: PortNo, out: &mut Outbox, now: Millis) {
        let message_age = match self.root_port.and_then(|port| self.ports.get(&port)) {
            None => Some(0),
            Some(port) => port.next_message_age(now),
        };
        let (id, root, cost, times, change) =
            (self.id, self.root, self.root_path_cost, self.times, self.topology_change);
        let Some(port) = self.ports.get_mut(&number) else { return };
        if port.hold.is_running() {
            port.config_pending = true;
            return;
        }
        let Some(message_age) = message_age.filter(|age| *age < times.max_age) else { return };
        let flags = Flags::default()
            .with(Flags::TOPOLOGY_CHANGE, change)
            .with(Flags::ACKNOWLEDGMENT, std::mem::take(&mut port.acknowledge));
        let config = Config {
            flags,
            vector: Vector { root, cost, bridge: id, port: port.id },
            times: Times { message_age, ..times },
        };
        port.config_pending = false;
        port.hold.start(HOLD_TIME_MS, now);
        port.statistics.tx += 1;
        out.send(number, Bpdu::Config(config).write(port.mac));
    }

    /// 8.6.6.
    fn transmit_tcn(&mut self, out: &mut Outbox) {
        let Some(number) = self.root_port else { return };
        let Some(port) = self.ports.get_mut(&number) else { return };
        port.statistics.tx += 1;
        out.send(number, Bpdu::TopologyChange.write(port.mac));
    }

    /// 8.6.7: root selection and designated port selection.
    fn configuration_update(&mut self) {
        self.root_selection();
        let ports: Vec<_> = self.ports.keys().copied().collect();
        for number in ports {
            let port = &self.ports[&number];
            let own = (self.root_path_cost, self.id, port.id);
            let known = (port.designated.cost, port.designated.bridge, port.designated.port);
            let is_designated = self.is_designated_port(number) || port.designated.root != self.root || own < known;
            if is_designated {
                self.become_designated_port(number);
            }
        }
    }

    /// 8.6.8.
    fn root_selection(&mut self) {
        let candidate = |(number, port): (&PortNo, &Port)| {
            let designated = port.designated;
            let is_candidate =
                port.state != State::Disabled && designated.bridge != self.id && designated.root < self.id;
            let cost = designated.cost.saturating_add(port.path_cost);
            is_candidate.then_some(((designated.root, cost, designated.bridge, designated.port, port.id), *number))
        };
        let best = self.ports.iter().filter_map(candidate).min();
        self.root_port = best.map(|(_, number)| number);
        (self.root, self.root_path_cost) = best.map_or((self.id, 0), |((root, cost, ..), _)| (root, cost));
    }

    fn is_designated_port(&self, number: PortNo) -> bool {
        self.ports.get(&number).is_some_and(|port| (port.designated.bridge, port.designated.port) == (self.id, port.id))
    }

    /// 8.6.10.
    fn become_designated_port(&mut self, number: PortNo) {
        let (root, cost, bridge) = (self.root, self.root_path_cost, self.id);
        let Some(port) = self.ports.get_mut(&number) else { return };
        port.designated = Vector { root, cost, bridge, port: port.id };
    }

    /// 8.6.11.
    fn port_state_selection(&mut self, out: &mut Outbox, now: Millis) {
        let ports: Vec<_> = self.ports.keys().copied().collect();
        for number in ports {
            let is_designated = self.is_designated_port(number);
            let port = self.ports.get_mut(&number).expect("the port is in the bridge");
            if Some(number) == self.root_port {
                port.config_pending = false;
                port.acknowledge = false;
                self.make_forwarding(number, out, now);
            } else if is_designated {
                port.message_age.stop();
                self.make_forwarding(number, out, now);
            } else {
                port.config_pending = false;
                port.acknowledge = false;
                self.make_blocking(number, out, now);
            }
        }
    }

    /// 8.6.12.
    fn make_forwarding(&mut self, number: PortNo, out: &mut Outbox, now: Millis) {
        if self.ports[&number].state != State::Blocking {
            return;
        }
        self.set_state(number, State::Listening, out, now);
        self.start_forward_delay(number, now);
    }

    fn start_forward_delay(&mut self, number: PortNo, now: Millis) {
        let delay = to_ms(self.times.forward_delay);
        // A root that announces no delay is not believed: a port would forward before loops are known.
        let delay = delay.max(1000);
        if let Some(port) = self.ports.get_mut(&number) {
            port.forward_delay.start(delay, now);
        }
    }

    /// 8.6.13.
    fn make_blocking(&mut self, number: PortNo, out: &mut Outbox, now: Millis) {
        let state = self.ports[&number].state;
        if matches!(state, State::Disabled | State::Blocking) {
            return;
        }
        self.set_state(number, State::Blocking, out, now);
        if let Some(port) = self.ports.get_mut(&number) {
            port.forward_delay.stop();
        }
        if matches!(state, State::Forwarding | State::Learning) {
            self.topology_change_detection(out, now);
        }
    }

    fn set_state(&mut self, number: PortNo, state: State, out: &mut Outbox, now: Millis) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        if port.state != state {
            port.state = state;
            port.state_since = now;
            out.state(number, state);
        }
    }

    /// 8.6.14.
    fn topology_change_detection(&mut self, out: &mut Outbox, now: Millis) {
        if self.is_root() {
            self.set_topology_change(true, out, now);
            let last = u64::from(self.own_times.max_age) + u64::from(self.own_times.forward_delay);
            self.topology_change_timer.start(last * 1000 / 256, now);
        } else if !self.topology_change_detected {
            self.transmit_tcn(out);
            self.notification.start(to_ms(self.own_times.hello_time), now);
        }
        out.flushes.request_all();
        self.topology_change_detected = true;
        out.log(format!("{}: detected topology change.", self.name));
    }

    /// 8.6.15.
    fn topology_change_acknowledged(&mut self) {
        self.topology_change_detected = false;
        self.notification.stop();
    }

    /// 8.6.16.
    fn acknowledge_topology_change(&mut self, number: PortNo, out: &mut Outbox, now: Millis) {
        if let Some(port) = self.ports.get_mut(&number) {
            port.acknowledge = true;
        }
        self.transmit_config(number, out, now);
    }

    /// Handles a topology change that an administrator asks for.
    pub(crate) fn notify_topology_change(&mut self, out: &mut Outbox, now: Millis) {
        self.topology_change_detection(out, now);
    }

    /// Processes expired timers (8.7.3 to 8.7.8).
    pub(crate) fn poll(&mut self, out: &mut Outbox, now: Millis) {
        if self.hello.expire(now) {
            self.config_bpdu_generation(out, now);
            self.hello.start(to_ms(self.times.hello_time), now);
        }
        if self.notification.expire(now) {
            self.transmit_tcn(out);
            self.notification.start(to_ms(self.own_times.hello_time), now);
        }
        if self.topology_change_timer.expire(now) {
            self.topology_change_detected = false;
            self.set_topology_change(false, out, now);
        }
        if self.flush.expire(now) {
            out.flushes.request_all();
            self.start_flush_timer(now);
        }
        let ports: Vec<_> = self.ports.keys().copied().collect();
        for number in ports {
            self.poll_port(number, out, now);
        }
    }

    fn poll_port(&mut self, number: PortNo, out: &mut Outbox, now: Millis) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        let expired = (port.message_age.expire(now), port.forward_delay.expire(now), port.hold.expire(now));
        if expired.0 {
            let was_root = self.is_root();
            self.become_designated_port(number);
            self.configuration_update();
            self.port_state_selection(out, now);
            self.change_of_root(was_root, out, now);
        }
        if expired.1 {
            self.forward_delay_expired(number, out, now);
        }
        if expired.2 && self.ports[&number].config_pending {
            self.transmit_config(number, out, now);
        }
    }

    /// 8.7.5.
    fn forward_delay_expired(&mut self, number: PortNo, out: &mut Outbox, now: Millis) {
        match self.ports[&number].state {
            State::Listening => {
                self.set_state(number, State::Learning, out, now);
                self.start_forward_delay(number, now);
            }
            State::Learning => {
                self.set_state(number, State::Forwarding, out, now);
                let ports: Vec<_> = self.ports.keys().copied().collect();
                if ports.into_iter().any(|port| self.is_designated_port(port)) {
                    self.topology_change_detection(out, now);
                }
            }
            _ => {}
        }
    }

    /// The time at which [`Stp::poll`] has work next, if any.
    pub fn deadline(&self) -> Option<Millis> {
        let own = [self.hello, self.notification, self.topology_change_timer, self.flush];
        let timers = own.into_iter().chain(self.ports.values().flat_map(|port| port.timers()));
        timers.filter_map(Timer::deadline).min()
    }

    /// The state of the bridge and its ports.
    pub fn status(&self, bridge: u32, settings: &BridgeSettings) -> BridgeStatus {
        let mut ports: Vec<_> = self
            .ports
            .iter()
            .map(|(number, port)| {
                let name = settings.ports.get(number).map_or_else(String::new, |settings| settings.name.clone());
                port.status(*number, name, self.role(*number))
            })
            .collect();
        ports.sort_by_key(|port: &PortStatus| port.id.0 & 0xff);
        BridgeStatus {
            bridge,
            name: settings.name.clone(),
            protocol: Protocol::Stp,
            id: self.id,
            own_times: self.own_times,
            root: self.root,
            root_times: self.times,
            root_path_cost: self.root_path_cost,
            root_port: self.root_port,
            ports,
        }
    }

    pub(crate) fn port_status(&self, number: PortNo, name: &str) -> Option<PortStatus> {
        Some(self.ports.get(&number)?.status(number, name.to_owned(), self.role(number)))
    }

    /// Hashes what the status shows, apart from times and counters.
    pub(crate) fn hash_status(&self, hasher: &mut impl Hasher) {
        (self.id, self.root, self.root_path_cost, self.root_port).hash(hasher);
        for (number, port) in &self.ports {
            (number, port.id, port.state, self.role(*number)).hash(hasher);
        }
    }

    fn role(&self, number: PortNo) -> Role {
        if self.ports[&number].state == State::Disabled {
            Role::Disabled
        } else if Some(number) == self.root_port {
            Role::Root
        } else if self.is_designated_port(number) {
            Role::Designated
        } else {
            Role::Alternate
        }
    }
}
