//! Fake interfaces of bonds (Port:`bond_fake_iface`): an internal interface with the name of the port and without a row.
//! It is an OpenFlow port, but belongs to no port of the database, so that NORMAL neither sends to it nor accepts its
//! packets. It exists while two members of the bond or more are open, and gets its numbers after them.

use super::{Bridge, Interface, Port};
use crate::devices::Devices;
use crate::feature::Counts;
use crate::interface::{InterfaceSpec, RunningInterface};
use ovsdb::Uuid;
use ovsdb_client::typed::Ref;

impl Bridge {
    /// Notes whether a port is to have a fake interface. It is opened with the other interfaces of the work.
    pub(crate) fn want_fake_interface(&mut self, port: Uuid, wanted: bool) {
        if wanted {
            self.fake_interfaces.insert(port);
        } else if self.fake_interfaces.remove(&port) {
            self.drop_fake_interface(port);
        }
    }

    /// Takes the fake interfaces of bonds out of the bridge that have less than two members left.
    pub(super) fn drop_degraded_fake_interfaces(&mut self) {
        for row in self.fake_interfaces.clone() {
            if self.ports.get(&row).is_none_or(|port| !self.is_aggregate(port)) {
                self.drop_fake_interface(row);
            }
        }
    }

    /// Opens the fake interfaces that are wanted and not there, unless another interface has the name.
    pub(super) fn open_fake_interfaces(&mut self, devices: &Devices, counts: &mut Counts) {
        for row in self.fake_interfaces.clone() {
            let Some(port) = self.ports.get(&row) else { continue };
            let name = port.name.clone();
            if name == self.name || self.interfaces.contains_key(&name) || !self.is_aggregate(port) {
                continue;
            }
            self.interfaces.insert(name.clone(), Interface::new(InterfaceSpec::internal_without_row(), row));
            self.open_interface(&name, devices, counts);
            self.work.interfaces.insert(name);
        }
    }

    fn drop_fake_interface(&mut self, row: Uuid) {
        let Some(port) = self.ports.get(&row) else { return };
        let is_fake = |of: &Interface| of.port == row && of.spec.row == Ref::none();
        if !self.interfaces.get(&port.name).is_some_and(is_fake) {
            return;
        }
        let name = port.name.clone();
        // Without a row, its settings hold no references.
        if let Some(interface) = self.interfaces.remove(&name) {
            self.count(&interface.counted, &(None, None));
        }
        self.enabled.remove_interface(&name, &row);
        self.work.interfaces.insert(name);
    }

    /// Whether two members of the port or more are open.
    fn is_aggregate(&self, port: &Port) -> bool {
        let is_open = |running: &RunningInterface| {
            running.state.is_ok() && running.device().is_none_or(|device| device.is_present())
        };
        let members = port.interfaces.iter().filter_map(|name| self.running.interfaces.get(name));
        members.filter(|running| is_open(running)).count() > 1
    }
}
