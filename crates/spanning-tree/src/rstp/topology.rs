//! The Topology Change machine (17.31). A port that changes spreads the change to all others, which forget the addresses
//! that they have learned. Edge ports neither report changes nor forget addresses.

use super::Rstp;
use super::port::{Port, Topology};
use crate::id::to_ms;
use crate::machine::Outbox;
use crate::status::Role;
use base::Millis;

impl Rstp {
    /// Makes one transition of the machine of a port. Returns true if it did.
    pub(super) fn change_topology(&mut self, index: usize, out: &mut Outbox, now: Millis) -> bool {
        let own = to_ms(self.own_times.max_age) + to_ms(self.own_times.forward_delay);
        let port = &mut self.ports[index];
        match port.topology {
            Topology::Inactive if port.learn => {
                port.topology = Topology::Learning;
                port.forget_notices();
            }
            Topology::Inactive => return false,
            Topology::Learning if port.is_active_role() && port.forward && !port.oper_edge => {
                // DETECTED
                port.topology = Topology::Active;
                port.start_tc(own, now);
                port.new_info = true;
                self.propagate(index);
            }
            Topology::Learning if port.has_notices() => port.forget_notices(),
            Topology::Learning if !port.is_active_role() && !port.learn && !port.learning => {
                port.topology = Topology::Inactive;
                port.tc.stop();
                port.tc_ack = false;
                out.flushes.request(port.number);
            }
            Topology::Learning => return false,
            Topology::Active if !port.is_active_role() || port.oper_edge => {
                port.topology = Topology::Learning;
                port.forget_notices();
            }
            Topology::Active if port.received_tcn || port.received_tc => {
                // NOTIFIED_TCN, NOTIFIED_TC
                if port.received_tcn {
                    port.start_tc(own, now);
                }
                (port.received_tcn, port.received_tc) = (false, false);
                port.tc_ack |= port.role == Role::Designated;
                self.propagate(index);
            }
            Topology::Active if port.tc_prop => {
                // PROPAGATING
                port.start_tc(own, now);
                port.tc_prop = false;
                out.flushes.request(port.number);
            }
            Topology::Active if port.received_tc_ack => {
                // ACKNOWLEDGED
                port.tc.stop();
                port.received_tc_ack = false;
            }
            Topology::Active => return false,
        }
        true
    }

    /// setTcPropTree (17.21.18).
    fn propagate(&mut self, index: usize) {
        for (other, port) in self.ports.iter_mut().enumerate() {
            port.tc_prop |= other != index;
        }
    }
}

impl Port {
    fn is_active_role(&self) -> bool {
        matches!(self.role, Role::Root | Role::Designated)
    }

    fn has_notices(&self) -> bool {
        self.received_tc || self.received_tcn || self.received_tc_ack || self.tc_prop
    }

    fn forget_notices(&mut self) {
        (self.received_tc, self.received_tcn, self.received_tc_ack, self.tc_prop) = (false, false, false, false);
    }

    /// newTcWhile (17.21.7). For a neighbour with STP, the change lasts as long as with STP.
    fn start_tc(&mut self, stp_ms: u64, now: Millis) {
        if self.tc.is_running() {
            return;
        }
        if self.send_rstp {
            self.tc.start(self.hello_ms() + 1000, now);
            self.new_info = true;
        } else {
            self.tc.start(stp_ms, now);
        }
    }
}
