//! Bonds: the columns of a port with several interfaces, to the settings of its bond.

use crate::bridge::Bridge;
use crate::commands;
use crate::devices::Devices;
use crate::feature::{Feature, Report};
use crate::levels::{PortLevel, PortReport, PortRows, PortTarget};
use crate::protocol_settings;
use crate::reader::Reader;
use ::bond::settings::{MIIMON_INTERVAL_MS, REBALANCE_INTERVAL_MS};
use ::bond::{Detection, Link, MemberSettings, Mode, Settings};
use base::{BridgePort, MacAddr};
use ovsdb_client::schemas::vswitch::port;
use ovsdb_client::typed::AnyColumn;
use ovsdb_client::{Transaction, columns};
use protocols::Protocol;
use std::collections::BTreeMap;
use std::sync::Arc;
use unixctl::Commands;

/// The bond of a port.
#[derive(Debug, Default)]
pub struct Bond;

/// The settings of a bond, without members; `None` for a port with one interface.
pub type BondSpec = Option<Settings>;

impl Feature for Bond {
    type Level = PortLevel;
    type Spec = BondSpec;
    const NAME: &'static str = "bond";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        port { NAME, INTERFACES, BOND_MODE, BOND_UPDELAY, BOND_DOWNDELAY, OTHER_CONFIG }
    };
    const REPORTS: &'static [AnyColumn] = &columns! { port { BOND_ACTIVE_SLAVE } };
    const IS_PROTOCOL: bool = true;

    fn read(reader: &Reader<'_>, rows: PortRows<'_>) -> BondSpec {
        (rows.port.get(port::INTERFACES).into_iter().count() > 1).then(|| settings(reader, rows))
    }

    fn apply(&mut self, spec: &BondSpec, target: &mut PortTarget) {
        target.protocols.set(Protocol::BOND, spec.is_some());
    }

    fn report(&self, of: PortReport<'_>, _: Report, txn: &mut Transaction<'_>) {
        let status = of.bridge.dp.switch.bond_status().into_iter().find(|bond| *bond.name == *of.name);
        let mac = |bond: ::bond::Status| bond.active.map_or(MacAddr::ZERO, |(_, mac)| mac).to_string();
        txn.set(of.row, port::BOND_ACTIVE_SLAVE, status.map(mac));
    }

    fn commands(commands: &Commands, devices: &Arc<Devices>) {
        commands::bond::register(commands, devices);
    }
}

fn settings(reader: &Reader<'_>, rows: PortRows<'_>) -> Settings {
    let (what, row) = (rows.what(), rows.port);
    let config = row.get(port::OTHER_CONFIG);
    let mode = match row.get(port::BOND_MODE) {
        Some(Ok(port::BondMode::ActiveBackup)) => Mode::ActiveBackup,
        Some(Ok(port::BondMode::BalanceSlb)) => Mode::BalanceSlb,
        Some(Ok(port::BondMode::BalanceTcp)) => Mode::BalanceTcp,
        Some(Err(other)) => {
            reader.warn(format!("{what}: unknown bond_mode {other}, defaulting to active-backup"));
            Mode::ActiveBackup
        }
        None => {
            reader.warn(format!(
                "{what}: Using the default bond_mode active-backup. \
                 Note that in previous versions, the default bond_mode was balance-slb"
            ));
            Mode::ActiveBackup
        }
    };
    let interval = |key| reader.checked(&what, config, key, "a number from 0", |v| v.parse::<u32>().ok());
    let miimon = || match interval("bond-miimon-interval") {
        None | Some(0) => MIIMON_INTERVAL_MS,
        Some(interval) => interval.into(),
    };
    let detection = match config.get("bond-detect-mode") {
        None | Some("carrier") => Detection::Carrier,
        Some("miimon") => Detection::Miimon(miimon()),
        Some(other) => {
            reader.warn(format!("{what}: unsupported bond-detect-mode {other}, defaulting to carrier"));
            Detection::Carrier
        }
    };
    let basis = reader.checked(&what, config, "bond-hash-basis", "a number", |v| v.parse::<i64>().ok());
    let delay = |ms: i64| u64::try_from(ms).unwrap_or(0);
    Settings {
        mode,
        hash_basis: basis.unwrap_or(0) as u32,
        updelay_ms: delay(row.get(port::BOND_UPDELAY)),
        downdelay_ms: delay(row.get(port::BOND_DOWNDELAY)),
        rebalance_interval_ms: interval("bond-rebalance-interval").map_or(REBALANCE_INTERVAL_MS, u64::from),
        detection,
        primary: config.get("bond-primary").map(Arc::from),
        lacp_fallback: reader.flag(&what, config, "lacp-fallback-ab").unwrap_or(false),
        all_members_active: reader.flag(&what, config, "all-members-active").unwrap_or(false),
        lb_output: reader.flag(&what, config, "lb-output-action").unwrap_or(false),
        members: BTreeMap::new(),
    }
}

/// Configures the bonds of all datapaths.
pub fn configure(bridges: &BTreeMap<String, Bridge>, devices: &Devices) {
    for (kind, dp) in devices.datapaths() {
        let of_kind = bridges.values().filter(|bridge| bridge.running.datapath_type == kind);
        let bonds: BTreeMap<Arc<str>, Settings> = of_kind.flat_map(of_bridge).collect();
        if !bonds.is_empty() {
            protocol_settings::start(&dp);
        }
        dp.switch.configure_bonds(bonds);
    }
}

/// The bonds of a bridge with two members or more that could be opened: others are plain ports.
fn of_bridge(bridge: &Bridge) -> impl Iterator<Item = (Arc<str>, Settings)> {
    bridge.bonds().filter_map(|(name, spec, interfaces)| {
        let members: BTreeMap<_, _> = interfaces.iter().filter_map(|interface| member(bridge, interface)).collect();
        let settings = Settings { members, ..spec.clone()? };
        (settings.members.len() > 1).then(|| (Arc::from(name), settings))
    })
}

fn member(bridge: &Bridge, interface: &str) -> Option<(BridgePort, MemberSettings)> {
    let at = bridge.bridge_port(interface)?;
    let port = bridge.running.ofproto.port(at.port)?;
    let carrier = port.spec.device.as_ref().is_none_or(|device| device.has_carrier());
    let link = Link { carrier, may_enable: true };
    Some((at, MemberSettings { name: interface.into(), mac: port.spec.mac, link }))
}
