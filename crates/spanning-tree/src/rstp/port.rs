//! A port: its variables (17.19), and the machines that concern it alone: Port Receive (17.23), Port Protocol Migration
//! (17.24), Bridge Detection (17.25) and Port Transmit (17.26).

use super::{HELLO_TIME_S, MIGRATE_TIME_MS};
use crate::bpdu::{Bpdu, Config, Flags};
use crate::id::{PortId, Times, Vector, to_ms};
use crate::machine::Outbox;
use crate::settings::{PortSettings, Version};
use crate::status::{PortStatus, Role, State, Statistics};
use crate::timer::Timer;
use base::{MacAddr, Millis, PortNo};

/// The origin of the information of a port (17.19.10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    Disabled,
    /// It expired.
    Aged,
    /// The bridge itself.
    Mine,
    Received,
}

/// The state of the Port Protocol Migration machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Migration {
    CheckingRstp,
    SelectingStp,
    Sensing,
}

/// The state of the Port Information machine, but for states that are left at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Information {
    Disabled,
    Aged,
    Current,
}

/// The state of the Port Role Transitions machine, but for states that are left at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transition {
    /// The port was just created.
    Init,
    /// It waits until the port no longer learns and forwards.
    DisablePort,
    DisabledPort,
    RootPort,
    DesignatedPort,
    /// It waits until the port no longer learns and forwards.
    BlockPort,
    AlternatePort,
}

/// The state of the Topology Change machine, but for states that are left at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Topology {
    Inactive,
    Learning,
    Active,
}

/// A port. The names of its variables are those of clause 17.19 in snake case, except for timers: `edge_delay` is
/// edgeDelayWhile, and so on.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) number: PortNo,
    pub(super) mac: MacAddr,
    pub(super) id: PortId,
    pub(super) path_cost: u32,
    pub(super) enabled: bool,
    pub(super) point_to_point: bool,
    pub(super) admin_edge: bool,
    pub(super) auto_edge: bool,
    mcheck_setting: bool,
    mcheck: bool,

    pub(super) agree: bool,
    pub(super) agreed: bool,
    pub(super) disputed: bool,
    pub(super) forward: bool,
    pub(super) forwarding: bool,
    pub(super) learn: bool,
    pub(super) learning: bool,
    pub(super) new_info: bool,
    pub(super) oper_edge: bool,
    pub(super) proposed: bool,
    pub(super) proposing: bool,
    pub(super) re_root: bool,
    pub(super) reselect: bool,
    pub(super) selected: bool,
    pub(super) send_rstp: bool,
    pub(super) sync: bool,
    pub(super) synced: bool,
    pub(super) tc_ack: bool,
    pub(super) tc_prop: bool,
    pub(super) update_info: bool,
    pub(super) received_tc: bool,
    pub(super) received_tc_ack: bool,
    pub(super) received_tcn: bool,
    received_rstp: bool,
    received_stp: bool,
    /// The BPDU that the Port Information machine has to process, rcvdMsg.
    pub(super) message: Option<Bpdu>,
    pub(super) tx_count: u64,

    pub(super) origin: Origin,
    pub(super) role: Role,
    pub(super) selected_role: Role,
    pub(super) port_vector: Vector,
    pub(super) port_times: Times,
    pub(super) designated_vector: Vector,
    pub(super) designated_times: Times,

    pub(super) information: Information,
    pub(super) transition: Transition,
    pub(super) topology: Topology,
    migration: Migration,

    pub(super) edge_delay: Timer,
    pub(super) fd: Timer,
    pub(super) hello: Timer,
    pub(super) mdelay: Timer,
    pub(super) rb: Timer,
    pub(super) received_info: Timer,
    pub(super) rr: Timer,
    pub(super) tc: Timer,
    /// Runs while `tx_count` is not 0.
    tick: Timer,

    /// The state that effects have reported.
    pub(super) published: State,
    state_since: Millis,
    pub(super) since: Millis,
    pub(super) statistics: Statistics,
}

impl Port {
    /// A port in the initial states of all machines, with the statistics of an earlier one and the time of their beginning.
    pub(super) fn new(
        number: PortNo,
        id: PortId,
        settings: &PortSettings,
        version: Version,
        (statistics, since): (Statistics, Millis),
        now: Millis,
    ) -> Self {
        let mut port = Self {
            number,
            mac: settings.mac,
            id,
            path_cost: settings.path_cost,
            enabled: false,
            point_to_point: settings.point_to_point,
            admin_edge: settings.admin_edge,
            auto_edge: settings.auto_edge,
            mcheck_setting: settings.mcheck,
            mcheck: settings.mcheck,
            agree: false,
            agreed: false,
            disputed: false,
            forward: false,
            forwarding: false,
            learn: false,
            learning: false,
            new_info: true,
            oper_edge: settings.admin_edge,
            proposed: false,
            proposing: false,
            re_root: true,
            reselect: true,
            selected: false,
            send_rstp: version == Version::Rapid,
            sync: true,
            synced: false,
            tc_ack: false,
            tc_prop: false,
            update_info: false,
            received_tc: false,
            received_tc_ack: false,
            received_tcn: false,
            received_rstp: false,
            received_stp: false,
            message: None,
            tx_count: 0,
            origin: Origin::Disabled,
            role: Role::Disabled,
            selected_role: Role::Disabled,
            port_vector: Vector::default(),
            port_times: Times::of_root(HELLO_TIME_S, 20, 15),
            designated_vector: Vector::default(),
            designated_times: Times::of_root(HELLO_TIME_S, 20, 15),
            information: Information::Disabled,
            transition: Transition::Init,
            topology: Topology::Inactive,
            migration: Migration::CheckingRstp,
            edge_delay: Timer::Held(MIGRATE_TIME_MS),
            fd: Timer::Stopped,
            hello: Timer::Stopped,
            mdelay: Timer::Held(MIGRATE_TIME_MS),
            rb: Timer::Stopped,
            received_info: Timer::Stopped,
            rr: Timer::Stopped,
            tc: Timer::Stopped,
            tick: Timer::Stopped,
            published: State::Discarding,
            state_since: now,
            since,
            statistics,
        };
        port.hello.start(u64::from(HELLO_TIME_S) * 1000, now);
        port.set_enabled(settings.is_up, now);
        port
    }

    /// Takes new settings of the same port.
    pub(super) fn configure(&mut self, id: PortId, settings: &PortSettings, now: Millis) {
        self.id = id;
        self.mac = settings.mac;
        self.path_cost = settings.path_cost;
        self.point_to_point = settings.point_to_point;
        self.admin_edge = settings.admin_edge;
        self.auto_edge = settings.auto_edge;
        if settings.mcheck && !self.mcheck_setting {
            self.mcheck = true;
        }
        self.mcheck_setting = settings.mcheck;
        self.set_enabled(settings.is_up, now);
    }

    /// A port that is not enabled holds the timers of Port Receive and of Port Protocol Migration.
    fn set_enabled(&mut self, enabled: bool, now: Millis) {
        if self.enabled == enabled {
            return;
        }
        self.enabled = enabled;
        if enabled {
            self.edge_delay.release(now);
            self.mdelay.release(now);
        } else {
            self.edge_delay.hold(MIGRATE_TIME_MS);
            (self.received_rstp, self.received_stp, self.message) = (false, false, None);
        }
    }

    /// The Port Receive machine, and updtBPDUVersion (17.21.22): takes a valid BPDU.
    pub(super) fn receive(&mut self, bpdu: Bpdu, now: Millis) {
        match bpdu {
            Bpdu::Rapid(_) => self.received_rstp = true,
            Bpdu::Config(_) | Bpdu::TopologyChange => self.received_stp = true,
        }
        self.oper_edge = false;
        self.message = Some(bpdu);
        self.edge_delay.start(MIGRATE_TIME_MS, now);
    }

    /// Starts the machines for a topology change at this port, unless no bridge is connected or the port is not active.
    pub(super) fn notify_topology_change(&mut self) {
        if self.topology == Topology::Active {
            self.received_tcn = true;
        }
    }

    /// The Port Protocol Migration machine.
    pub(super) fn migrate(&mut self, version: Version, now: Millis) -> bool {
        let is_rapid = version == Version::Rapid;
        match self.migration {
            // A port that is not enabled stays in this state, with its timer held.
            Migration::CheckingRstp if !self.enabled => {
                self.mdelay.hold(MIGRATE_TIME_MS);
                self.mcheck = false;
                false
            }
            Migration::CheckingRstp | Migration::SelectingStp if !self.mdelay.is_running() => self.sense(),
            Migration::SelectingStp if !self.enabled || self.mcheck => self.sense(),
            Migration::Sensing if !self.enabled || self.mcheck || is_rapid && !self.send_rstp && self.received_rstp => {
                self.migration = Migration::CheckingRstp;
                self.mcheck = false;
                self.send_rstp = is_rapid;
                self.mdelay.start(MIGRATE_TIME_MS, now);
                true
            }
            Migration::Sensing if self.send_rstp && self.received_stp => {
                self.migration = Migration::SelectingStp;
                self.send_rstp = false;
                self.mdelay.start(MIGRATE_TIME_MS, now);
                true
            }
            _ => false,
        }
    }

    fn sense(&mut self) -> bool {
        self.migration = Migration::Sensing;
        (self.received_rstp, self.received_stp) = (false, false);
        true
    }

    /// The Bridge Detection machine.
    pub(super) fn detect_bridge(&mut self) -> bool {
        let expired = !self.edge_delay.is_running();
        let oper_edge = match (self.enabled, self.oper_edge) {
            (false, _) => self.admin_edge,
            (true, true) => true,
            (true, false) => expired && self.auto_edge && self.send_rstp && self.proposing,
        };
        std::mem::replace(&mut self.oper_edge, oper_edge) != oper_edge
    }

    /// The Port Transmit machine: transmits at most one BPDU. Returns true if it did.
    pub(super) fn transmit(&mut self, hold_count: u64, own: &Times, out: &mut Outbox, now: Millis) -> bool {
        if !self.selected || self.update_info {
            return false;
        }
        if !self.hello.is_running() {
            // TRANSMIT_PERIODIC
            let is_due = self.role == Role::Designated || self.role == Role::Root && self.tc.is_running();
            self.new_info |= is_due;
            self.hello.start(to_ms(own.hello_time), now);
        }
        if !self.new_info || self.tx_count >= hold_count {
            return false;
        }
        let bpdu = match (self.send_rstp, self.role) {
            // The information of a port that is disabled is of no use to a neighbour.
            (_, Role::Disabled) => return false,
            (true, _) => Bpdu::Rapid(self.rapid()),
            (false, Role::Designated) => Bpdu::Config(self.config()),
            (false, Role::Root) => Bpdu::TopologyChange,
            (false, _) => return false,
        };
        self.new_info = false;
        self.tx_count += 1;
        if self.role != Role::Root || self.send_rstp {
            self.tc_ack = false;
        }
        if !self.tick.is_running() {
            self.tick.start(1000, now);
        }
        self.hello.start(to_ms(own.hello_time), now);
        self.statistics.tx += 1;
        out.send(self.number, bpdu.write(self.mac));
        true
    }

    /// txConfig (17.21.19).
    fn config(&self) -> Config {
        let flags = Flags::default()
            .with(Flags::TOPOLOGY_CHANGE, self.tc.is_running())
            .with(Flags::ACKNOWLEDGMENT, self.tc_ack);
        Config { flags, vector: self.designated_vector, times: self.designated_times }
    }

    /// txRstp (17.21.20).
    fn rapid(&self) -> Config {
        let flags = Flags::default()
            .with(Flags::TOPOLOGY_CHANGE, self.tc.is_running())
            .with(Flags::PROPOSAL, self.proposing)
            .with(Flags::LEARNING, self.learning)
            .with(Flags::FORWARDING, self.forwarding)
            .with(Flags::AGREEMENT, self.agree)
            .with_role(self.role);
        Config { flags, vector: self.designated_vector, times: self.designated_times }
    }

    /// The Port State Transition machine (17.30).
    pub(super) fn change_state(&mut self, out: &mut Outbox, now: Millis) -> bool {
        let state = match (self.learning, self.forwarding) {
            (false, _) if self.learn => State::Learning,
            (true, _) if !self.learn => State::Discarding,
            (true, false) if self.forward => State::Forwarding,
            (true, true) if !self.forward => State::Discarding,
            _ => return false,
        };
        (self.learning, self.forwarding) = (state.learns(), state.forwards());
        self.published = state;
        self.state_since = now;
        out.state(self.number, state);
        true
    }

    /// Stops the timers whose time has come.
    pub(super) fn expire(&mut self, now: Millis) {
        for timer in [
            &mut self.edge_delay,
            &mut self.fd,
            &mut self.hello,
            &mut self.mdelay,
            &mut self.rb,
            &mut self.received_info,
            &mut self.rr,
            &mut self.tc,
        ] {
            timer.expire(now);
        }
        if self.tick.expire(now) {
            self.tx_count = self.tx_count.saturating_sub(1);
            if self.tx_count > 0 {
                self.tick.start(1000, now);
            }
        }
    }

    pub(super) fn timers(&self) -> [Timer; 9] {
        [self.edge_delay, self.fd, self.hello, self.mdelay, self.rb, self.received_info, self.rr, self.tc, self.tick]
    }

    /// FwdDelay in milliseconds, at least a second: a root may announce any value.
    pub(super) fn fwd_delay_ms(&self) -> u64 {
        to_ms(self.designated_times.forward_delay).max(1000)
    }

    /// HelloTime in milliseconds.
    pub(super) fn hello_ms(&self) -> u64 {
        to_ms(self.designated_times.hello_time)
    }

    /// MaxAge in milliseconds.
    pub(super) fn max_age_ms(&self) -> u64 {
        to_ms(self.designated_times.max_age)
    }

    /// forwardDelay (17.20.6) in milliseconds.
    pub(super) fn forward_delay_ms(&self) -> u64 {
        if self.send_rstp { self.hello_ms() } else { self.fwd_delay_ms() }
    }

    /// EdgeDelay (17.20.4) in milliseconds.
    pub(super) fn edge_delay_ms(&self) -> u64 {
        if self.point_to_point { MIGRATE_TIME_MS } else { self.max_age_ms() }
    }

    pub(super) fn status(&self, name: String) -> PortStatus {
        PortStatus {
            port: self.number,
            name,
            id: self.id,
            role: self.role,
            state: self.published,
            state_since: self.state_since,
            since: self.since,
            path_cost: self.path_cost,
            designated_bridge: self.port_vector.bridge,
            designated_port: self.port_vector.port,
            designated_cost: self.port_vector.cost,
            statistics: self.statistics,
        }
    }
}
