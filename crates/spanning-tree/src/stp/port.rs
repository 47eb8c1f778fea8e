//! A port of a bridge that runs STP (IEEE 802.1D-1998 8.5.5).

use crate::bpdu::Config;
use crate::id::{PortId, SECOND, Vector, from_ms, to_ms};
use crate::settings::PortSettings;
use crate::status::{PortStatus, Role, State, Statistics};
use crate::timer::Timer;
use base::{MacAddr, Millis, PortNo};

#[derive(Debug)]
pub(super) struct Port {
    pub(super) id: PortId,
    pub(super) mac: MacAddr,
    pub(super) path_cost: u32,
    pub(super) state: State,
    pub(super) state_since: Millis,
    since: Millis,
    /// The best information on the LAN.
    pub(super) designated: Vector,
    pub(super) acknowledge: bool,
    pub(super) config_pending: bool,
    /// The age of the last information when it was received, in units of 1/256 s, and the time of that.
    age: (u16, Millis),
    pub(super) message_age: Timer,
    pub(super) forward_delay: Timer,
    pub(super) hold: Timer,
    pub(super) statistics: Statistics,
}

impl Port {
    /// A port that is disabled.
    pub(super) fn new(id: PortId, settings: &PortSettings, now: Millis) -> Self {
        Self {
            id,
            mac: settings.mac,
            path_cost: settings.path_cost,
            state: State::Disabled,
            state_since: now,
            since: now,
            designated: Vector::default(),
            acknowledge: false,
            config_pending: false,
            age: (0, now),
            message_age: Timer::Stopped,
            forward_delay: Timer::Stopped,
            hold: Timer::Stopped,
            statistics: Statistics::default(),
        }
    }

    /// Clears flags and timers, except for the hold timer, which bounds the rate of BPDUs.
    pub(super) fn initialize(&mut self) {
        self.acknowledge = false;
        self.config_pending = false;
        self.message_age.stop();
        self.forward_delay.stop();
    }

    /// 8.6.3.2: takes the information of a BPDU.
    pub(super) fn record_config(&mut self, config: &Config, now: Millis) {
        self.designated = config.vector;
        self.age = (config.times.message_age, now);
        let left = config.times.max_age.saturating_sub(config.times.message_age);
        self.message_age.start(to_ms(left), now);
    }

    /// The age of the information in a BPDU that is sent now: a bridge adds the time for which it has had it, and at least
    /// a second in total. `None` if it is too great for a BPDU.
    pub(super) fn next_message_age(&self, now: Millis) -> Option<u16> {
        let (age, received) = self.age;
        age.checked_add(from_ms(now.since(received)))?.checked_add(SECOND)
    }

    pub(super) fn timers(&self) -> [Timer; 3] {
        [self.message_age, self.forward_delay, self.hold]
    }

    pub(super) fn status(&self, port: PortNo, name: String, role: Role) -> PortStatus {
        PortStatus {
            port,
            name,
            id: self.id,
            role,
            state: self.state,
            state_since: self.state_since,
            since: self.since,
            path_cost: self.path_cost,
            designated_bridge: self.designated.bridge,
            designated_port: self.designated.port,
            designated_cost: self.designated.cost,
            statistics: self.statistics,
        }
    }
}
