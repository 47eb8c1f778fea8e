//! LACP: settings and status, the liveness of members, and log lines.
//!
//! LACP decides whether a port is live, which groups and bonds follow. It leaves forwarding and learning alone, as in Open
//! vSwitch a port with LACP that is no member of a bond forwards in any case.

use super::hosted::Configurable;
use crate::switch::Switch;
use base::{BridgePort, Millis};
use bond::LacpStatus;
use lacp::{BondStatus, Effect, Lacp, LogLevel, MemberStatus, Negotiation, Settings};
use protocols::{Accepts, Frame, Machine, PortState, Protocol};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vlog::{RateLimit, dbg_rl, info_rl, warn_rl};

/// Lines about frames, and about loops.
static FRAMES: RateLimit = RateLimit::new(1, 5);
static LOOPS: RateLimit = RateLimit::new(1, 5);

/// The machine as the engine runs it.
#[derive(Debug, Default)]
pub(crate) struct LacpMachine(Lacp);

impl Machine for LacpMachine {
    fn input(&mut self, frame: &Frame, now: Millis) {
        self.0.input(frame.source.port, &frame.bytes, now);
    }

    fn poll(&mut self, now: Millis, effects: &mut Vec<protocols::Effect>) {
        effects.extend(self.0.poll(now).into_iter().filter_map(convert));
    }

    fn next_deadline(&self) -> Option<Millis> {
        self.0.next_deadline()
    }
}

/// Converts an effect for the engine; lines for the log are written at once.
fn convert(effect: Effect) -> Option<protocols::Effect> {
    Some(match effect {
        Effect::Send { port, frame } => protocols::Effect::Send { port, frame },
        Effect::MayEnable { port, may_enable } => {
            protocols::Effect::Port { port, state: PortState { live: may_enable, ..PortState::default() } }
        }
        Effect::Negotiation { .. } | Effect::Status => protocols::Effect::Status,
        Effect::Log { level, line } => {
            match level {
                LogLevel::Loop => warn_rl!(&LOOPS, target: "lacp", "{line}"),
                LogLevel::Warn => warn_rl!(&FRAMES, target: "lacp", "{line}"),
                LogLevel::Info => info_rl!(&FRAMES, target: "lacp", "{line}"),
                LogLevel::Debug => dbg_rl!(&FRAMES, target: "lacp", "{line}"),
            }
            return None;
        }
    })
}

impl Configurable for LacpMachine {
    const PROTOCOL: Protocol = Protocol::LACP;
    type Settings = Settings;

    fn configure(&mut self, settings: Settings, now: Millis) {
        self.0.configure(settings, now);
    }

    fn ports(settings: &Settings) -> BTreeMap<BridgePort, Accepts> {
        settings.bonds.values().flat_map(|bond| bond.members.keys()).map(|port| (*port, Accepts::ALL)).collect()
    }

    fn remove(settings: &mut Settings, port: BridgePort) -> bool {
        settings.bonds.values_mut().any(|bond| bond.members.remove(&port).is_some())
    }
}

impl Switch {
    /// Enables LACP on exactly these bonds. The engine's thread has to run ([`Switch::start_protocols`]).
    pub fn configure_lacp(&self, settings: Settings) {
        self.protocols.lacp.configure(self, settings);
        // Bonds may be new.
        self.lacp_changed();
    }

    /// Reports the state of the negotiation to bonds. They learn of members from the overlay.
    pub(crate) fn lacp_changed(&self) {
        let status = |bond: &BondStatus| match bond.negotiation {
            Negotiation::Negotiated => LacpStatus::Negotiated,
            Negotiation::Configured => LacpStatus::Configured,
        };
        let bonds = self.lacp_status().iter().map(|bond| (Arc::from(bond.name.as_str()), status(bond))).collect();
        self.set_bonds_lacp(&bonds, BTreeSet::new());
    }

    /// Returns the state of LACP on its bonds, in the order of their creation.
    pub fn lacp_status(&self) -> Vec<BondStatus> {
        self.protocols.lacp.lock().0.status()
    }

    /// Returns the state of a member; `None` if the port has no LACP.
    pub(crate) fn lacp_member(&self, port: BridgePort) -> Option<MemberStatus> {
        self.protocols.lacp.lock().0.member_status(port)
    }

    /// Returns true if a port has current information about its partner, or waits for it; `None` if it has no LACP.
    pub fn has_lacp_partner(&self, port: BridgePort) -> Option<bool> {
        self.protocols.lacp.lock().0.has_partner(port)
    }
}
