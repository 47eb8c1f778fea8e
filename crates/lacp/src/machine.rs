//! The state machine: what members of bonds know of their partners, when they send LACPDUs, and which of them may carry
//! traffic.
//!
//! It unites the receive, periodic transmission and transmit machines of IEEE 802.1AX-2020 6.4 as Open vSwitch 4.0.0
//! does. Input changes a member at once; [`Lacp::poll`] then selects members and sends what has become due, so a burst of
//! frames leads to one selection.
//!
//! Invariants: a port is a member of one bond at most; nothing is due before [`Lacp::next_deadline`]; effects about a
//! member or bond report changes only.

mod bond;
mod status;

pub use status::{BondStatus, MemberStatus, Statistics};

use crate::pdu::{Malformed, SlowFrame};
use crate::select::Fallback;
use base::{BridgePort, MacAddr, Millis};
use bond::Bond;
use protocols::Wheel;
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds between LACPDUs to a partner with the short timeout (IEEE 802.1AX-2020 6.4.6, Fast_Periodic_Time).
pub const FAST_PERIODIC_MS: u64 = 1000;
/// Milliseconds between LACPDUs to a partner with the long timeout (Slow_Periodic_Time).
pub const SLOW_PERIODIC_MS: u64 = 30_000;
/// Intervals without a LACPDU after which information expires.
pub const TIMEOUT_INTERVALS: u64 = 3;

/// The bonds on which LACP is enabled.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// By the number of the bridge and the name of the bond. A port is a member of one of them at most.
    pub bonds: BTreeMap<(u32, String), BondSettings>,
}

/// The settings of a bond, or of a port with one interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BondSettings {
    /// Whether it sends LACPDUs unsolicited.
    pub mode: Mode,
    /// The interval of LACPDUs that it requests from its partner.
    pub timeout: Timeout,
    /// System identifier.
    pub system: MacAddr,
    /// System priority.
    pub system_priority: u16,
    /// Conduct without a partner.
    pub fallback: Fallback,
    /// Members.
    pub members: BTreeMap<BridgePort, MemberSettings>,
}

/// The part that a bond takes in a negotiation (IEEE 802.1AX-2020 6.4.1, LACP_Activity).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Sends LACPDUs unsolicited.
    #[default]
    Active,
    /// Sends LACPDUs only while it has a partner.
    Passive,
}

/// How often LACPDUs are requested from the partner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Timeout {
    /// Every [`FAST_PERIODIC_MS`].
    Fast,
    /// Every [`SLOW_PERIODIC_MS`].
    #[default]
    Slow,
}

impl Timeout {
    /// Milliseconds between LACPDUs.
    pub fn period_ms(self) -> u64 {
        match self {
            Self::Fast => FAST_PERIODIC_MS,
            Self::Slow => SLOW_PERIODIC_MS,
        }
    }
}

/// The settings of a member.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemberSettings {
    /// Interface name.
    pub name: String,
    /// MAC address, the source of its frames.
    pub mac: MacAddr,
    /// Port number that LACPDUs announce.
    pub port_id: u16,
    /// Port priority.
    pub port_priority: u16,
    /// Aggregation key; 0 for the default.
    pub key: u16,
    /// The carrier at this time.
    pub carrier: Carrier,
}

/// The carrier of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carrier {
    /// Whether there is one.
    pub up: bool,
    /// How often it has changed so far; devices that do not count changes report 0.
    pub resets: u64,
}

/// The state of the negotiation of a bond, as `bond/show` has it in `lacp_status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Negotiation {
    /// LACP is enabled, and no member has a partner.
    Configured,
    /// A member has a partner, or waits for its first one.
    Negotiated,
}

/// An effect for the caller to carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send a frame out of a member.
    Send {
        /// The member.
        port: BridgePort,
        /// The frame, without frame check sequence.
        frame: Vec<u8>,
    },
    /// A member may carry traffic from now on, or may not. Each new member is reported once.
    MayEnable {
        /// The member.
        port: BridgePort,
        /// Whether it may.
        may_enable: bool,
    },
    /// The state of the negotiation of a bond has changed. New bonds are configured.
    Negotiation {
        /// The number of its bridge.
        bridge: u32,
        /// Its name.
        bond: String,
        /// The new state.
        negotiation: Negotiation,
    },
    /// The status of members has changed in another way.
    Status,
    /// Write a line to the log.
    Log {
        /// Its level.
        level: LogLevel,
        /// The line.
        line: String,
    },
}

/// The level of a log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// A warning that a bond is connected to itself.
    Loop,
    /// A warning about a frame.
    Warn,
    /// Information.
    Info,
    /// Debugging.
    Debug,
}

/// LACP on the bonds of a switch.
#[derive(Debug)]
pub struct Lacp {
    /// In order of their creation.
    bonds: BTreeMap<BondId, Bond>,
    names: BTreeMap<(u32, String), BondId>,
    /// The bond of each member.
    members: BTreeMap<BridgePort, BondId>,
    next_id: BondId,
    timers: Wheel<BondId>,
    /// Bonds that the next poll runs.
    pending: BTreeSet<BondId>,
    /// Effects that the next poll returns.
    effects: Vec<Effect>,
}

/// Numbers bonds in order of their creation.
type BondId = u64;

impl Default for Lacp {
    fn default() -> Self {
        Self::new(Millis(0))
    }
}

impl Lacp {
    /// Creates a machine without bonds.
    pub fn new(now: Millis) -> Self {
        Self {
            bonds: BTreeMap::new(),
            names: BTreeMap::new(),
            members: BTreeMap::new(),
            next_id: 0,
            timers: Wheel::new(now),
            pending: BTreeSet::new(),
            effects: Vec::new(),
        }
    }

    /// Makes `settings` the current ones. Bonds and members that are in both the old and the new keep their state; a
    /// member whose port number, priority or key changes negotiates anew.
    pub fn configure(&mut self, settings: Settings, now: Millis) {
        let gone: Vec<_> = self.names.extract_if(.., |name, _| !settings.bonds.contains_key(name)).collect();
        for (_, id) in gone {
            self.bonds.remove(&id);
            self.timers.cancel(&id);
            self.pending.remove(&id);
        }
        self.members.clear();
        for ((bridge, name), settings) in settings.bonds {
            let id = *self.names.entry((bridge, name.clone())).or_insert_with(|| {
                self.next_id += 1;
                self.next_id
            });
            self.members.extend(settings.members.keys().map(|port| (*port, id)));
            let bond = self.bonds.entry(id).or_insert_with(|| Bond::new(bridge, name));
            bond.configure(settings, now);
            self.pending.insert(id);
        }
    }

    /// Takes the state of the carrier of a port, which may be the same as before.
    pub fn carrier(&mut self, port: BridgePort, carrier: Carrier, now: Millis) {
        let Some((id, bond)) = self.bond_of(port) else { return };
        bond.carrier(port, carrier, now);
        self.pending.insert(id);
    }

    /// Takes a frame that a port received. Frames of ports without LACP are ignored.
    pub fn input(&mut self, port: BridgePort, frame: &[u8], now: Millis) {
        let parsed = SlowFrame::parse(frame);
        let Some((id, bond)) = self.bond_of(port) else { return };
        let line = bond.input(port, parsed, now);
        self.effects.extend(line);
        if parsed.is_ok() {
            self.pending.insert(id);
        }
    }

    /// Removes a port from its bond, if it is a member of one.
    pub fn remove(&mut self, port: BridgePort) {
        let Some(id) = self.members.remove(&port) else { return };
        self.bonds.get_mut(&id).expect("each member has a bond").remove(port);
        self.pending.insert(id);
    }

    /// Processes expired timers and input, and returns effects for the caller to carry out.
    pub fn poll(&mut self, now: Millis) -> Vec<Effect> {
        let mut due = Vec::new();
        self.timers.advance(now, &mut due);
        self.pending.extend(due);
        for id in std::mem::take(&mut self.pending) {
            let Some(bond) = self.bonds.get_mut(&id) else { continue };
            bond.run(now, &mut self.effects);
            match bond.deadline() {
                Some(deadline) => self.timers.set(id, deadline),
                None => self.timers.cancel(&id),
            }
        }
        std::mem::take(&mut self.effects)
    }

    /// The time at which [`Lacp::poll`] has work next, if any; pending work is due at once.
    pub fn next_deadline(&self) -> Option<Millis> {
        if !self.effects.is_empty() || !self.pending.is_empty() {
            return Some(Millis(0));
        }
        self.timers.next()
    }

    /// The state of all bonds as of the last poll, in order of their creation.
    pub fn status(&self) -> Vec<BondStatus> {
        self.bonds.values().map(Bond::status).collect()
    }

    /// The state of a member as of the last poll; `None` if the port has no LACP.
    pub fn member_status(&self, port: BridgePort) -> Option<MemberStatus> {
        self.bonds.get(self.members.get(&port)?)?.member_status(port)
    }

    /// Returns true if a port may carry traffic as far as LACP is concerned; `None` if it has no LACP.
    pub fn may_enable(&self, port: BridgePort) -> Option<bool> {
        self.bonds.get(self.members.get(&port)?)?.may_enable(port)
    }

    /// Returns true if a port has a partner, or waits for its first one; `None` if it has no LACP.
    pub fn has_partner(&self, port: BridgePort) -> Option<bool> {
        self.bonds.get(self.members.get(&port)?)?.has_partner(port)
    }

    fn bond_of(&mut self, port: BridgePort) -> Option<(BondId, &mut Bond)> {
        let id = *self.members.get(&port)?;
        Some((id, self.bonds.get_mut(&id)?))
    }
}

/// The log line about a frame that is no LACPDU, if there is one.
fn complaint(bond: &str, parsed: Result<SlowFrame, Malformed>) -> Option<Effect> {
    let (level, line) = match parsed {
        Ok(SlowFrame::Lacp(_)) => return None,
        Ok(SlowFrame::Marker) => (LogLevel::Debug, format!("{bond}: received a LACP marker PDU.")),
        Err(_) => (LogLevel::Warn, format!("{bond}: received an unparsable LACP PDU.")),
    };
    Some(Effect::Log { level, line })
}

#[cfg(test)]
mod tests;
