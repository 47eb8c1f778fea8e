//! Physical switches with their ports, logical switches and logical routers by name.

use std::collections::BTreeMap;

use ovsdb::Uuid;
use ovsdb_client::Transaction;

use crate::Failure;

/// A physical switch.
#[derive(Debug, Clone)]
pub(crate) struct PhysicalSwitch {
    /// Its row.
    pub(crate) row: Uuid,
    /// The rows of its ports by name.
    pub(crate) ports: BTreeMap<String, Uuid>,
}

/// All named objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) physical: BTreeMap<String, PhysicalSwitch>,
    /// The rows of logical switches.
    pub(crate) logical: BTreeMap<String, Uuid>,
    /// The rows of logical routers.
    pub(crate) routers: BTreeMap<String, Uuid>,
}

impl Model {
    /// The state after the transaction, with the physical switches below the row `root` of table Global.
    pub(crate) fn new(txn: &Transaction<'_>, root: Uuid) -> Self {
        let mut model = Self::default();
        for row in txn.uuids("Global", root, "switches") {
            let name = txn.string("Physical_Switch", row, "name");
            let mut ports = BTreeMap::new();
            for port in txn.uuids("Physical_Switch", row, "ports") {
                insert(&mut ports, txn.string("Physical_Port", port, "name"), port, "port");
            }
            insert(&mut model.physical, name, PhysicalSwitch { row, ports }, "physical switch");
        }
        for row in txn.rows("Logical_Switch") {
            insert(&mut model.logical, txn.string("Logical_Switch", row, "name"), row, "logical switch");
        }
        for row in txn.rows("Logical_Router") {
            insert(&mut model.routers, txn.string("Logical_Router", row, "name"), row, "logical router");
        }
        model
    }

    /// A physical switch that must exist.
    pub(crate) fn physical(&self, name: &str) -> Result<&PhysicalSwitch, Failure> {
        self.physical.get(name).ok_or_else(|| Failure::fatal(format!("no physical switch named {name}")))
    }

    /// The row of a logical switch that must exist.
    pub(crate) fn logical(&self, name: &str) -> Result<Uuid, Failure> {
        let found = self.logical.get(name).copied();
        found.ok_or_else(|| Failure::fatal(format!("no logical switch named {name}")))
    }

    /// The row of a logical router that must exist.
    pub(crate) fn router(&self, name: &str) -> Result<Uuid, Failure> {
        let found = self.routers.get(name).copied();
        found.ok_or_else(|| Failure::fatal(format!("no logical router named {name}")))
    }

    /// The row of a port that must exist; its switch must exist as well.
    pub(crate) fn port(&self, switch: &str, name: &str) -> Result<Uuid, Failure> {
        let found = self.physical.get(switch).and_then(|switch| switch.ports.get(name)).copied();
        found.ok_or_else(|| no_port(name))
    }
}

/// The error for a missing port.
pub(crate) fn no_port(name: &str) -> Failure {
    Failure::fatal(format!("no port named {name}"))
}

/// Of several rows with the same name, the first one is used.
fn insert<T>(map: &mut BTreeMap<String, T>, name: &str, value: T, what: &str) {
    if map.contains_key(name) {
        tracing::warn!(target: "vtep_ctl", "{name}: database contains duplicate {what} name");
        return;
    }
    map.insert(name.to_owned(), value);
}
