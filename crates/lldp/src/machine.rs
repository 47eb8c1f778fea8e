//! The state machine: which LLDPDUs a port sends when, and which neighbours it has.
//!
//! A port that is removed or gets another identity sends a shutdown LLDPDU, so that neighbours forget it at once and not
//! after its time to live (IEEE 802.1AB-2016 clause 9.1).
//!
//! Invariants: each port has one entry in the set of deadlines; nothing is due before [`Lldp::next_deadline`].

use crate::pdu::{self, Assignment, AssignmentStatus, CHASSIS_MAC, ELEMENT_CLIENT, Element, PORT_NAME, Pdu, SystemId};
use crate::show;
use base::{BridgePort, MacAddr, Millis};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Milliseconds between LLDPDUs of a port; the first is sent after one interval.
pub const TRANSMIT_INTERVAL_MS: u64 = 5000;
/// The time to live that LLDPDUs announce, in seconds.
pub const TTL_S: u16 = 120;
/// Neighbours that a port keeps; LLDPDUs of further ones are dropped and counted.
pub const NEIGHBOURS_MAX: usize = 32;

/// The ports on which LLDP is enabled.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// By number.
    pub ports: BTreeMap<BridgePort, PortSettings>,
}

/// The contents of a port's LLDPDUs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortSettings {
    /// Interface name, which is the port identifier.
    pub name: String,
    /// MAC address, which is the chassis identifier and the system id.
    pub mac: MacAddr,
    /// System name; not announced if empty.
    pub system_name: String,
    /// System description.
    pub system_description: String,
    /// VLANs to be carried, by service instance id.
    pub mappings: Arc<BTreeMap<u32, u16>>,
}

/// An effect for the caller to carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send a frame out of a port.
    Send {
        /// The port.
        port: BridgePort,
        /// The frame, without frame check sequence.
        frame: Vec<u8>,
    },
    /// The neighbours of a port have changed.
    Neighbour {
        /// The port.
        port: BridgePort,
        /// The change.
        change: Change,
        /// The neighbour's chassis identifier, with its subtype.
        chassis_id: Vec<u8>,
        /// The neighbour's port identifier, with its subtype.
        port_id: Vec<u8>,
    },
}

/// A change of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Its first LLDPDU was received.
    New,
    /// The contents of its LLDPDUs changed.
    Updated,
    /// It withdrew its information.
    Left,
    /// Its time to live is over.
    Expired,
}

/// Counters of a port (IEEE 802.1AB-2016 clause 9.2.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// LLDPDUs sent.
    pub tx: u64,
    /// LLDP frames received, malformed ones included.
    pub rx: u64,
    /// Received frames that were malformed.
    pub rx_discarded: u64,
    /// Received TLVs of unknown type or organization.
    pub rx_unrecognized: u64,
    /// Neighbours whose time to live expired.
    pub ageout: u64,
    /// Neighbours that became known.
    pub insert: u64,
    /// Neighbours that withdrew their information.
    pub delete: u64,
    /// LLDPDUs dropped, as the port had [`NEIGHBOURS_MAX`] other neighbours.
    pub drop: u64,
}

/// The last information that a neighbour has sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Its last LLDPDU.
    pub pdu: Pdu,
    /// The time of its reception.
    pub received: Millis,
    /// When it ceases to be valid.
    expires: Millis,
}

/// The status of the mapping of a VLAN to a service instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappingStatus {
    /// Service instance id.
    pub isid: u32,
    /// VLAN id.
    pub vlan: u16,
    /// The last answer of a present neighbour, if one has answered.
    pub status: Option<AssignmentStatus>,
}

/// The state of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortStatus {
    /// Its number.
    pub port: BridgePort,
    /// Interface name.
    pub name: String,
    /// Neighbours, the one that was heard last at the end.
    pub neighbours: Vec<Neighbour>,
    /// Mappings, by service instance id.
    pub mappings: Vec<MappingStatus>,
    /// How many of the mappings are not announced, as they do not fit in a frame.
    pub unannounced: usize,
    /// Counters.
    pub statistics: Statistics,
}

/// LLDP on the ports of a switch.
#[derive(Debug, Default)]
pub struct Lldp {
    ports: BTreeMap<BridgePort, Port>,
    /// The next deadline of each port.
    deadlines: BTreeSet<(Millis, BridgePort)>,
    /// Effects that the next poll returns.
    effects: Vec<Effect>,
}

#[derive(Debug)]
struct Port {
    settings: PortSettings,
    next_transmit: Millis,
    neighbours: Vec<Neighbour>,
    /// Mappings that did not fit into the last frame.
    unannounced: usize,
    statistics: Statistics,
}

impl Lldp {
    /// A machine without ports.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `settings` the current ones. Ports that are in both the old and the new keep their neighbours, counters
    /// and deadlines. The next poll withdraws identities that are gone.
    pub fn configure(&mut self, settings: Settings, now: Millis) {
        let mut old = std::mem::take(&mut self.ports);
        self.deadlines.clear();
        for (number, settings) in settings.ports {
            let port = match old.remove(&number) {
                Some(mut port) => {
                    if port.settings.identity() != settings.identity() {
                        port.statistics.tx += 1;
                        self.effects.push(port.settings.shutdown(number));
                    }
                    Port { settings, ..port }
                }
                None => Port {
                    settings,
                    next_transmit: now.after(TRANSMIT_INTERVAL_MS),
                    neighbours: Vec::new(),
                    unannounced: 0,
                    statistics: Statistics::default(),
                },
            };
            self.deadlines.insert((port.deadline(), number));
            self.ports.insert(number, port);
        }
        self.effects.extend(old.into_iter().map(|(number, port)| port.settings.shutdown(number)));
    }

    /// Removes a port, if LLDP is enabled on it. The next poll returns its shutdown LLDPDU.
    pub fn remove(&mut self, number: BridgePort) {
        let Some(port) = self.ports.remove(&number) else { return };
        self.deadlines.remove(&(port.deadline(), number));
        self.effects.push(port.settings.shutdown(number));
    }

    /// Takes a frame that a port received. Frames of ports without LLDP are ignored.
    pub fn input(&mut self, number: BridgePort, frame: &[u8], now: Millis) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        let before = port.deadline();
        let (change, pdu) = match port.receive(frame, now) {
            Some(changed) => changed,
            None => return self.reschedule(number, before),
        };
        self.effects.push(change.of(number, &pdu));
        self.reschedule(number, before);
    }

    /// Moves a port's entry in the set of deadlines.
    fn reschedule(&mut self, number: BridgePort, before: Millis) {
        let deadline = self.ports[&number].deadline();
        if deadline != before {
            self.deadlines.remove(&(before, number));
            self.deadlines.insert((deadline, number));
        }
    }

    /// Processes expired timers, and returns effects for the caller to carry out.
    pub fn poll(&mut self, now: Millis) -> Vec<Effect> {
        while let Some(&(deadline, number)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now) {
            let port = self.ports.get_mut(&number).expect("each deadline has a port");
            for pdu in port.expire(now) {
                self.effects.push(Change::Expired.of(number, &pdu));
            }
            if port.next_transmit <= now {
                self.effects.push(Effect::Send { port: number, frame: port.transmit() });
                // From now on and not from when it was due: after a pause there is no burst.
                port.next_transmit = now.after(TRANSMIT_INTERVAL_MS);
            }
            self.reschedule(number, deadline);
        }
        std::mem::take(&mut self.effects)
    }

    /// The time at which [`Lldp::poll`] has work next, if any; pending effects are due at once.
    pub fn next_deadline(&self) -> Option<Millis> {
        if !self.effects.is_empty() {
            return Some(Millis(0));
        }
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The state of all ports, by number, as of the last poll.
    pub fn status(&self) -> Vec<PortStatus> {
        self.ports.iter().map(|(number, port)| port.status(*number)).collect()
    }
}

impl protocols::Machine for Lldp {
    fn input(&mut self, frame: &protocols::Frame, now: Millis) {
        Lldp::input(self, frame.source.port, &frame.bytes, now);
    }

    fn poll(&mut self, now: Millis, effects: &mut Vec<protocols::Effect>) {
        let wanted = Lldp::poll(self, now);
        effects.extend(wanted.into_iter().map(|effect| self.effect(effect)));
    }

    fn next_deadline(&self) -> Option<Millis> {
        Lldp::next_deadline(self)
    }
}

impl Lldp {
    /// Converts an effect for the engine; a change of neighbours becomes a log line.
    fn effect(&self, effect: Effect) -> protocols::Effect {
        match effect {
            Effect::Send { port, frame } => protocols::Effect::Send { port, frame },
            Effect::Neighbour { port, change, chassis_id, port_id } => {
                let what = match change {
                    Change::New => "new neighbour",
                    Change::Updated => "neighbour has changed:",
                    Change::Left => "neighbour has left:",
                    Change::Expired => "neighbour has expired:",
                };
                let name = self.ports.get(&port).map_or("a former port", |port| &port.settings.name);
                let (chassis, port) = (show::chassis(&chassis_id), show::port(&port_id));
                protocols::Effect::Log(format!("{name}: {what} chassis {chassis}, port {port}"))
            }
        }
    }
}

impl Change {
    fn of(self, port: BridgePort, pdu: &Pdu) -> Effect {
        Effect::Neighbour { port, change: self, chassis_id: pdu.chassis_id.clone(), port_id: pdu.port_id.clone() }
    }
}

impl PortSettings {
    /// The identity by which neighbours know this port: its chassis and port identifiers.
    fn identity(&self) -> (MacAddr, &str) {
        (self.mac, &self.name)
    }

    fn chassis_id(&self) -> Vec<u8> {
        identifier(CHASSIS_MAC, &self.mac.0)
    }

    fn port_id(&self) -> Vec<u8> {
        identifier(PORT_NAME, self.name.as_bytes())
    }

    /// Returns the effect that sends the shutdown LLDPDU of the port's identity.
    fn shutdown(&self, port: BridgePort) -> Effect {
        Effect::Send { port, frame: pdu::shutdown(&self.chassis_id(), &self.port_id(), self.mac) }
    }
}

/// An identifier of a subtype, of the length that is allowed.
fn identifier(subtype: u8, value: &[u8]) -> Vec<u8> {
    [&[subtype], &value[..value.len().min(255)]].concat()
}

impl Port {
    fn deadline(&self) -> Millis {
        self.neighbours.iter().map(|neighbour| neighbour.expires).fold(self.next_transmit, Millis::min)
    }

    /// Counts and parses a frame and updates the neighbours; returns the change.
    fn receive(&mut self, frame: &[u8], now: Millis) -> Option<(Change, Pdu)> {
        self.statistics.rx += 1;
        let Ok((pdu, unrecognized)) = Pdu::parse(frame) else {
            self.statistics.rx_discarded += 1;
            return None;
        };
        self.statistics.rx_unrecognized += u64::from(unrecognized);
        let same = |known: &Neighbour| (&known.pdu.chassis_id, &known.pdu.port_id) == (&pdu.chassis_id, &pdu.port_id);
        let known = self.neighbours.iter().position(same);
        if pdu.ttl_s == 0 {
            self.neighbours.remove(known?);
            self.statistics.delete += 1;
            return Some((Change::Left, pdu));
        }
        let expires = now.after(u64::from(pdu.ttl_s) * 1000);
        let neighbour = Neighbour { pdu, received: now, expires };
        let Some(known) = known else {
            if self.neighbours.len() >= NEIGHBOURS_MAX {
                self.statistics.drop += 1;
                return None;
            }
            let pdu = neighbour.pdu.clone();
            self.neighbours.push(neighbour);
            self.statistics.insert += 1;
            return Some((Change::New, pdu));
        };
        let old = self.neighbours.remove(known);
        let changed = (old.pdu != neighbour.pdu).then(|| (Change::Updated, neighbour.pdu.clone()));
        self.neighbours.push(neighbour);
        changed
    }

    /// Removes the neighbours whose time to live has expired.
    fn expire(&mut self, now: Millis) -> impl Iterator<Item = Pdu> {
        let expired: Vec<_> = self.neighbours.extract_if(.., |neighbour| neighbour.expires <= now).collect();
        self.statistics.ageout += expired.len() as u64;
        expired.into_iter().map(|neighbour| neighbour.pdu)
    }

    /// The frame to be sent.
    fn transmit(&mut self) -> Vec<u8> {
        let PortSettings { mac, system_name, system_description, mappings, .. } = &self.settings;
        let request =
            |(isid, vlan): (&u32, &u16)| Assignment { status: AssignmentStatus::REQUEST, vlan: *vlan, isid: *isid };
        let pdu = Pdu {
            chassis_id: self.settings.chassis_id(),
            port_id: self.settings.port_id(),
            ttl_s: TTL_S,
            system_name: (!system_name.is_empty()).then(|| system_name.as_bytes().to_vec()),
            system_description: Some(system_description.as_bytes().to_vec()),
            element: Some(Element {
                kind: ELEMENT_CLIENT,
                system_id: SystemId { mac: *mac, ..SystemId::default() },
                ..Element::default()
            }),
            assignments: mappings.iter().map(request).collect(),
        };
        let (frame, unannounced) = pdu.write(*mac);
        self.unannounced = unannounced;
        self.statistics.tx += 1;
        frame
    }

    fn status(&self, port: BridgePort) -> PortStatus {
        let mapping = |(&isid, &vlan): (&u32, &u16)| {
            let answer = |neighbour: &Neighbour| {
                let of_this = |assignment: &&Assignment| assignment.isid == isid && assignment.vlan == vlan;
                let status = neighbour.pdu.assignments.iter().rev().find(of_this)?.status;
                Some((neighbour.received, status))
            };
            // Of several neighbours, the one that was heard last counts.
            let last = self.neighbours.iter().filter_map(answer).max_by_key(|(received, _)| *received);
            MappingStatus { isid, vlan, status: last.map(|(_, status)| status) }
        };
        PortStatus {
            port,
            name: self.settings.name.clone(),
            neighbours: self.neighbours.clone(),
            mappings: self.settings.mappings.iter().map(mapping).collect(),
            unannounced: self.unannounced,
            statistics: self.statistics,
        }
    }
}

#[cfg(test)]
mod tests;
