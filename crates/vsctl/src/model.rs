//! Bridges, ports and interfaces by name, as the switch commands see them.
//!
//! A "fake bridge" is a port of a real bridge that stands for one of its VLANs: ports with that tag belong to the fake
//! bridge and not to its parent. The local port of a bridge, which has its name, is no port here.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::Uuid;
use ovsdb_client::Transaction;

use crate::Failure;

/// A real or fake bridge.
#[derive(Debug, Clone)]
pub(crate) struct Bridge {
    /// The row in table Bridge: its own, or its parent's.
    pub(crate) row: Uuid,
    /// The parent of a fake bridge, its VLAN, and the row of its port.
    pub(crate) fake: Option<Fake>,
    /// Names of ports.
    pub(crate) ports: BTreeSet<String>,
}

/// The properties of a fake bridge.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    pub(crate) parent: String,
    pub(crate) vlan: i64,
    pub(crate) port_row: Uuid,
}

/// A port.
#[derive(Debug, Clone)]
pub(crate) struct Port {
    pub(crate) row: Uuid,
    /// The bridge, which may be a fake one.
    pub(crate) bridge: String,
    /// Names of interfaces.
    pub(crate) ifaces: BTreeSet<String>,
}

/// An interface.
#[derive(Debug, Clone)]
pub(crate) struct Iface {
    pub(crate) row: Uuid,
    pub(crate) port: String,
}

/// All bridges, ports and interfaces.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) bridges: BTreeMap<String, Bridge>,
    pub(crate) ports: BTreeMap<String, Port>,
    pub(crate) ifaces: BTreeMap<String, Iface>,
}

impl Model {
    /// The state after the transaction, below the row `root` of table Open_vSwitch.
    pub(crate) fn new(txn: &Transaction<'_>, root: Uuid) -> Self {
        let mut model = Self::default();
        let mut real = Vec::new();
        for row in txn.uuids("Open_vSwitch", root, "bridges") {
            let name = txn.string("Bridge", row, "name").to_owned();
            if model.bridges.contains_key(&name) {
                tracing::warn!(target: "vsctl", "{name}: database contains duplicate bridge name");
                continue;
            }
            model.bridges.insert(name.clone(), Bridge { row, fake: None, ports: BTreeSet::new() });
            real.push((name, row));
        }
        for (parent, row) in &real {
            for port_row in txn.uuids("Bridge", *row, "ports") {
                model.read_fake_bridge(txn, parent, *row, port_row);
            }
        }
        for (bridge, row) in &real {
            for port_row in txn.uuids("Bridge", *row, "ports") {
                model.read_port(txn, bridge, port_row);
            }
        }
        model
    }

    fn read_fake_bridge(&mut self, txn: &Transaction<'_>, parent: &str, row: Uuid, port_row: Uuid) {
        let name = txn.string("Port", port_row, "name");
        let vlan = txn.integer("Port", port_row, "tag").filter(|vlan| (0..=4095).contains(vlan));
        let Some(vlan) = vlan.filter(|_| txn.boolean("Port", port_row, "fake_bridge")) else { return };
        if self.bridges.contains_key(name) {
            return;
        }
        let fake = Fake { parent: parent.to_owned(), vlan, port_row };
        self.bridges.insert(name.to_owned(), Bridge { row, fake: Some(fake), ports: BTreeSet::new() });
    }

    fn read_port(&mut self, txn: &Transaction<'_>, bridge: &str, row: Uuid) {
        let name = txn.string("Port", row, "name");
        let ifaces = txn.uuids("Port", row, "interfaces");
        if self.bridges.contains_key(name) {
            return;
        }
        if let Some(other) = self.ports.get(name) {
            if other.row != row {
                tracing::warn!(target: "vsctl", "{name}: database contains duplicate port name");
            } else {
                let other = &other.bridge;
                tracing::warn!(
                    target: "vsctl",
                    "{name}: port is in multiple bridges ({other} and {bridge})"
                );
            }
            return;
        }
        let tag = txn.integer("Port", row, "tag");
        let ifaces = ifaces.into_iter().map(|row| (txn.string("Interface", row, "name").to_owned(), row));
        self.add_port(name, bridge, row, tag, ifaces.collect());
    }

    /// The fake bridge for a VLAN of a real bridge.
    pub(crate) fn child(&self, parent: &str, vlan: i64) -> Option<&String> {
        let is_child = |fake: &Fake| fake.parent == parent && fake.vlan == vlan;
        self.bridges.iter().find(|(_, bridge)| bridge.fake.as_ref().is_some_and(is_child)).map(|(name, _)| name)
    }

    /// The fake bridges of a real bridge.
    pub(crate) fn children(&self, parent: &str) -> Vec<String> {
        let is_child = |bridge: &Bridge| bridge.fake.as_ref().is_some_and(|fake| fake.parent == parent);
        self.bridges.iter().filter(|(_, bridge)| is_child(bridge)).map(|(name, _)| name.clone()).collect()
    }

    /// Adds a port with its interfaces. With the tag of a fake bridge, it belongs to that bridge.
    pub(crate) fn add_port(
        &mut self,
        name: &str,
        bridge: &str,
        row: Uuid,
        tag: Option<i64>,
        ifaces: Vec<(String, Uuid)>,
    ) {
        let child = tag.and_then(|vlan| self.child(bridge, vlan)).cloned();
        let bridge = child.unwrap_or_else(|| bridge.to_owned());
        if let Some(found) = self.bridges.get_mut(&bridge) {
            found.ports.insert(name.to_owned());
        }
        self.ports.insert(name.to_owned(), Port { row, bridge, ifaces: BTreeSet::new() });
        for (iface, row) in ifaces {
            self.add_iface(&iface, name, row);
        }
    }

    /// Adds an interface to a port.
    pub(crate) fn add_iface(&mut self, name: &str, port: &str, row: Uuid) {
        if let Some(other) = self.ifaces.get(name) {
            tracing::warn!(
                target: "vsctl",
                "{name}: interface is in multiple ports ({} and {port})", other.port
            );
            return;
        }
        if let Some(found) = self.ports.get_mut(port) {
            found.ifaces.insert(name.to_owned());
        }
        self.ifaces.insert(name.to_owned(), Iface { row, port: port.to_owned() });
    }

    /// Removes a port and its interfaces.
    pub(crate) fn remove_port(&mut self, name: &str) -> Option<Port> {
        let port = self.ports.remove(name)?;
        if let Some(bridge) = self.bridges.get_mut(&port.bridge) {
            bridge.ports.remove(name);
        }
        for iface in &port.ifaces {
            self.ifaces.remove(iface);
        }
        Some(port)
    }

    /// Removes an interface.
    pub(crate) fn remove_iface(&mut self, name: &str) -> Option<Iface> {
        let iface = self.ifaces.remove(name)?;
        if let Some(port) = self.ports.get_mut(&iface.port) {
            port.ifaces.remove(name);
        }
        Some(iface)
    }

    /// A bridge that must exist.
    pub(crate) fn bridge(&self, name: &str) -> Result<&Bridge, Failure> {
        self.bridges.get(name).ok_or_else(|| Failure::fatal(format!("no bridge named {name}")))
    }

    /// A bridge that must exist and be a real one.
    pub(crate) fn real_bridge(&self, name: &str) -> Result<&Bridge, Failure> {
        let bridge = self.bridge(name)?;
        if bridge.fake.is_some() {
            return Err(Failure::fatal(format!("{name} is a fake bridge")));
        }
        Ok(bridge)
    }

    /// A port that must exist.
    pub(crate) fn port(&self, name: &str) -> Result<&Port, Failure> {
        self.ports.get(name).ok_or_else(|| Failure::fatal(format!("no port named {name}")))
    }

    /// An interface that must exist.
    pub(crate) fn iface(&self, name: &str) -> Result<&Iface, Failure> {
        self.ifaces.get(name).ok_or_else(|| Failure::fatal(format!("no interface named {name}")))
    }

    /// Fails with `cannot` if the name is taken: bridges, ports and interfaces share one space of names.
    pub(crate) fn check_free(&self, name: &str, cannot: &str) -> Result<(), Failure> {
        if self.bridges.contains_key(name) {
            return Err(Failure::fatal(format!("{cannot} because a bridge named {name} already exists")));
        }
        if let Some(port) = self.ports.get(name) {
            let bridge = &port.bridge;
            return Err(Failure::fatal(format!(
                "{cannot} because a port named {name} already exists on bridge {bridge}"
            )));
        }
        if let Some(iface) = self.ifaces.get(name) {
            let bridge = self.ports.get(&iface.port).map(|port| port.bridge.as_str()).unwrap_or_default();
            return Err(Failure::fatal(format!(
                "{cannot} because an interface named {name} already exists on bridge {bridge}"
            )));
        }
        Ok(())
    }
}
