//! The Open_vSwitch database: read as values of the core, and changed.

use std::collections::BTreeMap;

use ovsdb_client::schemas::vswitch::{
    Bridge as BridgeTable, Interface, OpenVSwitch, Port as PortTable, bridge, interface, open_vswitch, port,
};
use ovsdb_client::typed::{self, Ref, Row};
use ovsdb_client::{Replica, Transaction, Wanted, columns};

use crate::changes::SwitchChange;
use crate::model::{BFD_BRIDGE, Bridge, Observed, Pairs, Port, Role, Switch, Traffic};

/// The keys of Bridge:`external_ids` that mark the bridge of a logical switch, and name it.
const IS_LOGICAL: &str = "vtep_logical_switch";
const LOGICAL_NAME: &str = "logical_switch_name";

/// The largest number of a port that is no reserved port (OpenFlow 1.0 section 5.2.1).
const OFPORT_MAX: i64 = 0xff00;

/// The columns to replicate.
pub(crate) fn wanted() -> Wanted {
    Wanted::from(&columns! {
        open_vswitch { BRIDGES }
        bridge { NAME, PORTS, DATAPATH_TYPE, FAIL_MODE, EXTERNAL_IDS }
        port { NAME, INTERFACES }
        interface { NAME, TYPE, OPTIONS, OFPORT, ERROR, BFD, BFD_STATUS, STATISTICS }
    })
}

/// The bridges, where `physical` is the one of the physical switch.
pub(crate) fn read(db: &Replica, physical: &str) -> Switch {
    let mut switch = Switch::default();
    for row in db.all(BridgeTable) {
        let name = row.get(bridge::NAME);
        let mut ports = BTreeMap::new();
        for port in row.get(bridge::PORTS).iter().filter_map(|port| db.find(port)) {
            let port_name = port.get(port::NAME);
            let mut interfaces = port.get(port::INTERFACES).iter().filter_map(|interface| db.find(interface));
            // The local port is no port of the physical switch. An interface of a bond has another name than the port.
            let own = interfaces.find(|interface| interface.get(interface::NAME) == port_name);
            if let Some(interface) = own {
                switch.observed.insert(port_name.to_owned(), observed(interface));
            }
            if port_name != name {
                ports.insert(port_name.to_owned(), own.map(read_port).unwrap_or_default());
            }
        }
        let is_secure = row.get(bridge::FAIL_MODE) == Some(Ok(bridge::FailMode::Secure));
        let datapath_type = row.get(bridge::DATAPATH_TYPE).to_owned();
        let bridge = Bridge { role: role(row, physical), datapath_type, is_secure, ports };
        switch.bridges.insert(name.to_owned(), bridge);
    }
    switch
}

fn role(row: Row<'_, BridgeTable>, physical: &str) -> Role {
    let ids = row.get(bridge::EXTERNAL_IDS);
    match row.get(bridge::NAME) {
        name if name == physical => Role::Physical,
        BFD_BRIDGE => Role::Bfd,
        _ if ids.get(IS_LOGICAL) == Some("true") => Role::Logical(ids.get(LOGICAL_NAME).unwrap_or_default().to_owned()),
        _ => Role::Foreign,
    }
}

fn pairs(read: typed::Pairs<'_, String, String>) -> Pairs {
    read.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn read_port(row: Row<'_, Interface>) -> Port {
    Port {
        kind: row.get(interface::TYPE).to_owned(),
        options: pairs(row.get(interface::OPTIONS)),
        bfd: pairs(row.get(interface::BFD)),
    }
}

fn observed(row: Row<'_, Interface>) -> Observed {
    let statistics = row.get(interface::STATISTICS);
    let traffic = |packets: &str, bytes: &str| Traffic {
        packets: statistics.get(packets).unwrap_or_default(),
        bytes: statistics.get(bytes).unwrap_or_default(),
    };
    let ofport = row.get(interface::OFPORT).filter(|number| (1..OFPORT_MAX).contains(number));
    Observed {
        ofport: ofport.and_then(|number| number.try_into().ok()),
        error: row.get(interface::ERROR).map(str::to_owned),
        bfd_status: pairs(row.get(interface::BFD_STATUS)),
        received: traffic("rx_packets", "rx_bytes"),
        sent: traffic("tx_packets", "tx_bytes"),
    }
}

/// Makes a change.
pub(crate) fn write(txn: &mut Transaction<'_>, change: &SwitchChange) {
    match change {
        SwitchChange::AddBridge { bridge, role, datapath_type } => add_bridge(txn, bridge, role, datapath_type),
        SwitchChange::SetBridge { bridge, datapath_type } => {
            if let Some(row) = find_bridge(txn, bridge) {
                txn.set(row, bridge::DATAPATH_TYPE, datapath_type);
                txn.set(row, bridge::FAIL_MODE, Some(bridge::FailMode::Secure));
            }
        }
        SwitchChange::RemoveBridge { bridge } => {
            let root = txn.all(OpenVSwitch).first().copied();
            if let (Some(root), Some(row)) = (root, find_bridge(txn, bridge)) {
                txn.remove(root, open_vswitch::BRIDGES, [row]);
            }
        }
        SwitchChange::AddPort { bridge, name, port } => {
            if let Some(row) = find_bridge(txn, bridge) {
                let added = insert_port(txn, name, port);
                txn.add(row, bridge::PORTS, [added]);
            }
        }
        SwitchChange::SetPort { bridge, name, port } => {
            let found = find_bridge(txn, bridge).and_then(|row| find_port(txn, row, name));
            let interface = found.and_then(|found| txn.get(found, port::INTERFACES).first());
            if let Some(interface) = interface {
                write_interface(txn, interface, port);
            }
        }
        SwitchChange::RemovePort { bridge, name } => {
            let Some(row) = find_bridge(txn, bridge) else { return };
            if let Some(port) = find_port(txn, row, name) {
                txn.remove(row, bridge::PORTS, [port]);
            }
        }
    }
}

fn find_bridge(txn: &Transaction<'_>, name: &str) -> Option<Ref<BridgeTable>> {
    txn.all(BridgeTable).into_iter().find(|row| txn.get(*row, bridge::NAME) == name)
}

fn find_port(txn: &Transaction<'_>, bridge: Ref<BridgeTable>, name: &str) -> Option<Ref<PortTable>> {
    txn.get(bridge, bridge::PORTS).iter().find(|row| txn.get(*row, port::NAME) == name)
}

fn add_bridge(txn: &mut Transaction<'_>, name: &str, role: &Role, datapath_type: &str) {
    let Some(root) = txn.all(OpenVSwitch).first().copied() else { return };
    let local = Port { kind: "internal".to_owned(), ..Port::default() };
    let local = insert_port(txn, name, &local);
    let ids = match role {
        Role::Logical(logical) => vec![(IS_LOGICAL, "true"), (LOGICAL_NAME, logical)],
        Role::Physical | Role::Bfd | Role::Foreign => Vec::new(),
    };
    let row = txn
        .insert(BridgeTable)
        .set(bridge::NAME, name)
        .set(bridge::DATAPATH_TYPE, datapath_type)
        .set(bridge::FAIL_MODE, Some(bridge::FailMode::Secure))
        .set(bridge::EXTERNAL_IDS, ids)
        .set(bridge::PORTS, [local])
        .reference();
    txn.add(root, open_vswitch::BRIDGES, [row]);
}

fn insert_port(txn: &mut Transaction<'_>, name: &str, port: &Port) -> Ref<PortTable> {
    let interface = txn.insert(Interface).set(interface::NAME, name).reference();
    write_interface(txn, interface, port);
    txn.insert(PortTable).set(port::NAME, name).set(port::INTERFACES, [interface]).reference()
}

fn write_interface(txn: &mut Transaction<'_>, row: Ref<Interface>, port: &Port) {
    txn.set(row, interface::TYPE, &port.kind);
    txn.set(row, interface::OPTIONS, &port.options);
    txn.set(row, interface::BFD, &port.bfd);
}
