//! LLDP and auto-attach: Interface:lldp and the table AutoAttach, to the settings of the protocol and to trunks of ports.
//!
//! As in Open vSwitch, the VLANs of a bridge's mappings are added to Port:trunks of its ports with LLDP, which become
//! trunks by that, and removed when their mappings are. Other VLANs there are left alone.

use crate::bridge::Bridge;
use crate::commands;
use crate::devices::Devices;
use crate::feature::Feature;
use crate::levels::{InterfaceLevel, InterfaceRows, InterfaceTarget};
use crate::protocol_settings;
use crate::reader::Reader;
use ::lldp::{PortSettings, Settings};
use ovsdb_client::schemas::vswitch::{self as db, Port, autoattach, bridge, interface, port};
use ovsdb_client::typed::{AnyColumn, Ref, Row};
use ovsdb_client::{Transaction, columns};
use protocols::Protocol;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use unixctl::Commands;
use xlate::PortOut;

/// LLDP on an interface.
#[derive(Debug, Default)]
pub struct Lldp;

/// A row of the table AutoAttach.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AutoAttach {
    /// System name; not announced if empty.
    pub system_name: String,
    /// System description; that of this program is announced if empty.
    pub system_description: String,
    /// VLANs by service instance id.
    pub mappings: Arc<BTreeMap<u32, u16>>,
}

/// What an interface announces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LldpSpec {
    /// Whether LLDP is enabled.
    pub is_enabled: bool,
    /// Names and mappings, if the bridge has a row for them.
    pub auto_attach: Option<AutoAttach>,
}

impl Feature for Lldp {
    type Level = InterfaceLevel;
    type Spec = LldpSpec;
    const NAME: &'static str = "lldp";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        interface { NAME, TYPE, LLDP }
        bridge { NAME, AUTO_ATTACH }
        autoattach { MAPPINGS, SYSTEM_DESCRIPTION, SYSTEM_NAME }
    };
    const REPORTS: &'static [AnyColumn] = &columns! { port { TRUNKS, VLAN_MODE } };

    fn read(reader: &Reader<'_>, rows: InterfaceRows<'_>) -> LldpSpec {
        if !is_enabled(reader, rows) {
            return LldpSpec::default();
        }
        let row = rows.bridge.get(bridge::AUTO_ATTACH).and_then(|row| reader.find(row));
        LldpSpec { is_enabled: true, auto_attach: row.map(auto_attach) }
    }

    fn apply(&mut self, spec: &LldpSpec, target: &mut InterfaceTarget<'_>) {
        target.protocols.set(Protocol::LLDP, spec.is_enabled);
    }

    fn commands(commands: &Commands, devices: &Arc<Devices>) {
        commands::autoattach::register(commands, devices);
    }
}

fn is_enabled(reader: &Reader<'_>, rows: InterfaceRows<'_>) -> bool {
    let what = rows.what();
    let config = rows.interface.get(interface::LLDP);
    for (key, _) in config.into_iter().filter(|(key, _)| *key != "enable") {
        reader.warn(format!("{what}: lldp:{key} is not supported"));
    }
    let is_enabled = match config.get("enable") {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            reader.warn(format!("{what}: lldp:enable is \"{other}\", which is not true or false"));
            false
        }
    };
    let is_patch = rows.kind() == "patch";
    if is_enabled && is_patch {
        reader.warn(format!("{what}: lldp:enable is ignored, a patch port has no LLDP"));
    }
    is_enabled && !is_patch
}

fn auto_attach(row: Row<'_, db::AutoAttach>) -> AutoAttach {
    let mapping = |(isid, vlan): (i64, i64)| Some((u32::try_from(isid).ok()?, u16::try_from(vlan).ok()?));
    AutoAttach {
        system_name: row.get(autoattach::SYSTEM_NAME).to_owned(),
        system_description: row.get(autoattach::SYSTEM_DESCRIPTION).to_owned(),
        mappings: Arc::new(row.get(autoattach::MAPPINGS).into_iter().filter_map(mapping).collect()),
    }
}

/// The system description that is announced if none is configured.
fn own_description() -> String {
    format!("Flowstone {}", env!("CARGO_PKG_VERSION"))
}

/// Configures LLDP on all datapaths.
pub fn configure(bridges: &BTreeMap<String, Bridge>, devices: &Devices) {
    for (kind, dp) in devices.datapaths() {
        let mut settings = Settings::default();
        for bridge in bridges.values().filter(|bridge| bridge.running.datapath_type == kind) {
            add_bridge(bridge, &mut settings);
        }
        if !settings.ports.is_empty() {
            protocol_settings::start(&dp);
        }
        dp.switch.configure_lldp(settings);
    }
}

fn add_bridge(bridge: &Bridge, settings: &mut Settings) {
    for (name, spec) in bridge.lldp() {
        let Some(at) = bridge.bridge_port(name) else { continue };
        let Some(port) = bridge.running.ofproto.port(at.port) else { continue };
        if !matches!(port.spec.out, PortOut::Device(_)) {
            continue;
        }
        let AutoAttach { system_name, system_description, mappings } = spec.auto_attach.clone().unwrap_or_default();
        let port = PortSettings {
            name: name.to_owned(),
            mac: port.spec.mac,
            system_name,
            system_description: if system_description.is_empty() { own_description() } else { system_description },
            mappings,
        };
        settings.ports.insert(at, port);
    }
}

/// The VLANs that mappings ask for, by the row of their port.
pub type TrunkVlans = BTreeMap<Ref<Port>, BTreeSet<i64>>;

/// The VLANs that mappings ask to be trunked.
pub fn trunks(bridges: &BTreeMap<String, Bridge>) -> TrunkVlans {
    let of_bridge = |bridge: &Bridge| -> Vec<(Ref<Port>, BTreeSet<i64>)> {
        let vlans = |spec: &LldpSpec| -> Option<BTreeSet<i64>> {
            Some(spec.auto_attach.as_ref()?.mappings.values().copied().map(i64::from).collect())
        };
        bridge.lldp().filter_map(|(name, spec)| Some((bridge.port_row(name)?, vlans(spec)?))).collect()
    };
    bridges.values().flat_map(of_bridge).collect()
}

/// Writes to Port:trunks what has to be different now that `wanted` is asked for and no longer `before`. A port on which
/// LLDP was disabled, or whose bridge has no row of AutoAttach any more, keeps its trunks.
pub fn write_trunks(txn: &mut Transaction<'_>, before: &TrunkVlans, wanted: &TrunkVlans) {
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
