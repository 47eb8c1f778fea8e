//! The Port Role Selection machine (17.28), and updtRolesTree (17.21.25).

use super::Rstp;
use super::information::next_message_age;
use super::port::Origin;
use crate::id::{PortId, Times, Vector};
use crate::machine::Outbox;
use crate::status::Role;

impl Rstp {
    /// ROLE_SELECTION. If the root port changes, the addresses that were reached by the former one are reached by the new
    /// one (17.11).
    pub(super) fn select_roles(&mut self, out: &mut Outbox) {
        for port in &mut self.ports {
            port.reselect = false;
        }
        let former = self.ports.iter().position(|port| port.role == Role::Root);
        self.update_roles();
        for port in &mut self.ports {
            port.selected = true;
        }
        if let (Some(from), Some(to)) = (former, self.root_port)
            && from != to
            && self.ports[from].selected_role != Role::Root
            && self.ports[from].forwarding
            && !self.ports[to].forwarding
        {
            out.shift(self.ports[from].number, self.ports[to].number);
        }
    }

    /// updtRolesTree.
    pub(super) fn update_roles(&mut self) {
        let own = Vector { root: self.id, cost: 0, bridge: self.id, port: PortId(0) };
        let mut best = (own, PortId(0));
        self.root_port = None;
        for (index, port) in self.ports.iter().enumerate() {
            if port.origin != Origin::Received || port.port_vector.bridge.address() == self.id.address() {
                continue;
            }
            let cost = port.port_vector.cost.saturating_add(port.path_cost);
            let candidate = (Vector { cost, ..port.port_vector }, port.id);
            if candidate < best {
                best = candidate;
                self.root_port = Some(index);
            }
        }
        self.root = best.0;
        self.root_times = match self.root_port {
            None => self.own_times,
            Some(index) => {
                let times = self.ports[index].port_times;
                Times { message_age: next_message_age(times.message_age).unwrap_or(u16::MAX), ..times }
            }
        };
        for index in 0..self.ports.len() {
            self.update_role(index);
        }
    }

    fn update_role(&mut self, index: usize) {
        let Vector { root, cost, .. } = self.root;
        let hello_time = self.own_times.hello_time;
        let address = self.id.address();
        let is_root_port = self.root_port == Some(index);
        let port = &mut self.ports[index];
        port.designated_vector = Vector { root, cost, bridge: self.id, port: port.id };
        port.designated_times = Times { hello_time, ..self.root_times };
        let is_mine_current = port.port_vector == port.designated_vector && port.port_times == port.designated_times;
        let (role, update) = match port.origin {
            Origin::Disabled => (Role::Disabled, false),
            Origin::Aged => (Role::Designated, true),
            Origin::Mine => (Role::Designated, !is_mine_current),
            Origin::Received if is_root_port => (Role::Root, false),
            Origin::Received if port.designated_vector < port.port_vector => (Role::Designated, true),
            Origin::Received if port.port_vector.bridge.address() == address => (Role::Backup, false),
            Origin::Received => (Role::Alternate, false),
        };
        port.selected_role = role;
        port.update_info = update;
    }
}
