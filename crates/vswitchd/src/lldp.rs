//! LLDP and auto-attach: Interface:lldp and the table AutoAttach, to the settings of the protocol and to trunks of ports.
//!
//! As in Open vSwitch, the VLANs of a bridge's mappings are added to Port:trunks of its ports with LLDP, which become trunks by
//! that, and removed when their mappings are. Other VLANs there are left alone.

use crate::bridge::RunningBridge;
use crate::desired::{BridgeSpec, Desired, PortSpec};
use crate::devices::Devices;
use lldp::{PortSettings, Settings};
use ovsdb_client::Transaction;
use ovsdb_client::schemas::vswitch::{Port, port};
use ovsdb_client::typed::Ref;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xlate::PortOut;

/// A row of the table AutoAttach.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AutoAttachSpec {
    /// System name; not announced if empty.
    pub system_name: String,
    /// System description; that of this program is announced if empty.
    pub system_description: String,
    /// VLANs by service instance id.
    pub mappings: Arc<BTreeMap<u32, u16>>,
}

/// The system description that is announced if none is configured.
fn own_description() -> String {
    format!("Flowstone {}", env!("CARGO_PKG_VERSION"))
}

/// Configures LLDP on all datapaths.
pub(crate) fn apply(desired: &Desired, bridges: &BTreeMap<String, RunningBridge>, devices: &Devices) {
    for (kind, dp) in devices.datapaths() {
        let mut settings = Settings::default();
        for (name, running) in bridges.iter().filter(|(_, running)| running.datapath_type == kind) {
            if let Some(spec) = desired.bridges.get(name) {
                add_bridge(spec, running, &mut settings);
            }
        }
        if let Err(e) = dp.switch.set_lldp(settings) {
            tracing::error!(target: "ovs_lldp", "could not start the thread of protocols: {e}");
        }
    }
}

fn add_bridge(spec: &BridgeSpec, running: &RunningBridge, settings: &mut Settings) {
    let attach = spec.auto_attach.clone().unwrap_or_default();
    for interface in spec.ports.values().flat_map(|port| &port.interfaces).filter(|interface| interface.lldp) {
        let number = running.interfaces.get(&interface.name).and_then(|running| running.ofport);
        let Some(port) = number.and_then(|no| running.ofproto.port(no)) else { continue };
        let PortOut::Device(device) = port.spec.out else { continue };
        let description = &attach.system_description;
        let port = PortSettings {
            name: interface.name.clone(),
            mac: port.spec.mac,
            system_name: attach.system_name.clone(),
            system_description: if description.is_empty() { own_description() } else { description.clone() },
            mappings: Arc::clone(&attach.mappings),
        };
        settings.ports.insert(device, port);
    }
}

/// The VLANs that mappings ask for, by the row of their port.
pub(crate) type TrunkVlans = BTreeMap<Ref<Port>, BTreeSet<i64>>;

/// The VLANs that are to be trunked for mappings.
pub(crate) fn wanted_trunks(desired: &Desired) -> TrunkVlans {
    let of_bridge = |bridge: &BridgeSpec| -> Option<Vec<(Ref<Port>, BTreeSet<i64>)>> {
        let mappings = &bridge.auto_attach.as_ref()?.mappings;
        let vlans: BTreeSet<i64> = mappings.values().copied().map(i64::from).collect();
        let ports = bridge.ports.values().filter(|port| has_lldp(port));
        Some(ports.map(|port| (port.row, vlans.clone())).collect())
    };
    desired.bridges.values().filter_map(of_bridge).flatten().collect()
}

fn has_lldp(port: &PortSpec) -> bool {
    port.interfaces.iter().any(|interface| interface.lldp)
}

/// Writes to Port:trunks what has to be different now that `wanted` is asked for and no longer `before`. A port on which
/// LLDP was disabled, or whose bridge has no row of AutoAttach any more, keeps its trunks.
pub(crate) fn write_trunks(txn: &mut Transaction<'_>, before: &TrunkVlans, wanted: &TrunkVlans) {
    let nothing = BTreeSet::new();
    for (row, vlans) in wanted {
        let old = before.get(row).unwrap_or(&nothing);
        if vlans == old || !txn.contains(*row) {
            continue;
        }
        let trunks: BTreeSet<i64> = txn.get(*row, port::TRUNKS).into_iter().collect();
        let removed = old - vlans;
        let added = vlans - old;
        txn.set(*row, port::TRUNKS, &(&trunks - &removed) | &added);
        if !added.is_empty() {
            txn.set(*row, port::VLAN_MODE, Some(port::VlanMode::Trunk));
        }
    }
}
