//! The Port Role Transitions machine (17.29).
//!
//! A state of the standard that only assigns variables and returns to the state of the role is a branch of the function
//! for that role.

use super::Rstp;
use super::port::{Port, Transition};
use crate::settings::Version;
use crate::status::Role;
use base::Millis;

impl Rstp {
    /// Makes one transition of the machine of a port. Returns true if it did.
    pub(super) fn change_role(&mut self, index: usize, now: Millis) -> bool {
        let port = &mut self.ports[index];
        if port.transition == Transition::Init {
            port.initialize();
            return true;
        }
        let is_ready = port.selected && !port.update_info;
        if is_ready && port.selected_role != port.role {
            port.enter_role(now);
            return true;
        }
        match port.transition {
            Transition::Init => false,
            Transition::DisablePort if is_ready && !port.learning && !port.forwarding => {
                port.transition = Transition::DisabledPort;
                port.rest();
                true
            }
            Transition::DisabledPort if is_ready => port.is_restless() && port.rest(),
            Transition::BlockPort if is_ready && !port.learning && !port.forwarding => {
                port.transition = Transition::AlternatePort;
                port.rest();
                true
            }
            Transition::RootPort if is_ready => self.change_root_port(index, now),
            Transition::DesignatedPort if is_ready => self.ports[index].change_designated_port(now),
            Transition::AlternatePort if is_ready => self.change_alternate_port(index),
            _ => false,
        }
    }

    /// allSynced (17.20.3).
    fn all_synced(&self) -> bool {
        self.ports
            .iter()
            .all(|port| port.selected && port.role == port.selected_role && (port.synced || port.role == Role::Root))
    }

    /// reRooted (17.20.10).
    fn re_rooted(&self, index: usize) -> bool {
        self.ports.iter().enumerate().all(|(other, port)| other == index || !port.rr.is_running())
    }

    /// setSyncTree (17.21.14).
    fn set_sync(&mut self) {
        self.ports.iter_mut().for_each(|port| port.sync = true);
    }

    /// The states around ROOT_PORT.
    fn change_root_port(&mut self, index: usize, now: Millis) -> bool {
        let all_synced = self.all_synced();
        let may_hurry = self.re_rooted(index) && !self.ports[index].rb.is_running() && self.version == Version::Rapid;
        let port = &mut self.ports[index];
        let may_proceed = !port.fd.is_running() || may_hurry;
        if port.proposed && !port.agree {
            // ROOT_PROPOSED
            port.proposed = false;
            self.set_sync();
        } else if all_synced && !port.agree || port.proposed && port.agree {
            // ROOT_AGREED
            (port.proposed, port.sync) = (false, false);
            (port.agree, port.new_info) = (true, true);
        } else if !port.forward && !port.re_root {
            // REROOT
            self.ports.iter_mut().for_each(|port| port.re_root = true);
        } else if may_proceed && !port.learn {
            // ROOT_LEARN
            port.learn = true;
            port.fd.start(port.forward_delay_ms(), now);
        } else if may_proceed && port.learn && !port.forward {
            // ROOT_FORWARD
            port.forward = true;
            port.fd.stop();
        } else if port.re_root && port.forward {
            // REROOTED
            port.re_root = false;
        } else {
            return false;
        }
        true
    }

    /// The states around ALTERNATE_PORT.
    fn change_alternate_port(&mut self, index: usize) -> bool {
        let all_synced = self.all_synced();
        let port = &mut self.ports[index];
        if port.proposed && !port.agree {
            // ALTERNATE_PROPOSED
            port.proposed = false;
            self.set_sync();
            return true;
        }
        if all_synced && !port.agree || port.proposed && port.agree {
            // ALTERNATE_AGREED
            port.proposed = false;
            (port.agree, port.new_info) = (true, true);
            return true;
        }
        port.is_restless() && port.rest()
    }
}

impl Port {
    /// INIT_PORT.
    fn initialize(&mut self) {
        self.role = Role::Disabled;
        (self.learn, self.forward, self.synced) = (false, false, false);
        (self.sync, self.re_root) = (true, true);
        self.rr.hold(self.fwd_delay_ms());
        self.fd.hold(self.max_age_ms());
        self.rb.stop();
        self.transition = Transition::DisablePort;
    }

    /// Takes the selected role; timers that the former role has held start to run.
    fn enter_role(&mut self, now: Millis) {
        for timer in [&mut self.fd, &mut self.rr, &mut self.rb] {
            timer.release(now);
        }
        self.role = self.selected_role;
        match self.role {
            Role::Root => {
                self.transition = Transition::RootPort;
                self.rr.hold(self.fwd_delay_ms());
            }
            Role::Designated => self.transition = Transition::DesignatedPort,
            Role::Alternate | Role::Backup => {
                (self.learn, self.forward) = (false, false);
                self.transition = Transition::BlockPort;
            }
            Role::Disabled => {
                (self.learn, self.forward) = (false, false);
                self.transition = Transition::DisablePort;
            }
        }
    }

    /// Returns true if DISABLED_PORT, ALTERNATE_PORT or BACKUP_PORT has to assign its variables again.
    fn is_restless(&self) -> bool {
        self.sync || self.re_root || !self.synced
    }

    /// DISABLED_PORT, ALTERNATE_PORT and BACKUP_PORT: nothing waits for this port.
    fn rest(&mut self) -> bool {
        match self.role {
            Role::Disabled => self.fd.hold(self.max_age_ms()),
            _ => self.fd.hold(self.forward_delay_ms()),
        }
        if self.role == Role::Backup {
            self.rb.hold(2 * self.hello_ms());
        }
        self.synced = true;
        self.rr.stop();
        (self.sync, self.re_root) = (false, false);
        true
    }

    /// The states around DESIGNATED_PORT.
    fn change_designated_port(&mut self, now: Millis) -> bool {
        let may_proceed = (!self.fd.is_running() || self.agreed || self.oper_edge)
            && (!self.rr.is_running() || !self.re_root)
            && !self.sync;
        let must_discard = self.sync && !self.synced || self.re_root && self.rr.is_running() || self.disputed;
        if !self.forward && !self.agreed && !self.proposing && !self.oper_edge {
            // DESIGNATED_PROPOSE
            (self.proposing, self.new_info) = (true, true);
            self.edge_delay.start(self.edge_delay_ms(), now);
        } else if must_discard && !self.oper_edge && (self.learn || self.forward) {
            // DESIGNATED_DISCARD
            (self.learn, self.forward, self.disputed) = (false, false, false);
            self.fd.start(self.forward_delay_ms(), now);
        } else if !self.synced && (!self.learning && !self.forwarding || self.agreed || self.oper_edge)
            || self.sync && self.synced
        {
            // DESIGNATED_SYNCED
            self.rr.stop();
            (self.synced, self.sync) = (true, false);
        } else if !self.rr.is_running() && self.re_root {
            // DESIGNATED_RETIRED
            self.re_root = false;
        } else if may_proceed && !self.learn {
            // DESIGNATED_LEARN
            self.learn = true;
            self.fd.start(self.forward_delay_ms(), now);
        } else if may_proceed && self.learn && !self.forward {
            // DESIGNATED_FORWARD
            self.forward = true;
            self.fd.stop();
            self.agreed = self.send_rstp;
        } else {
            return false;
        }
        true
    }
}
