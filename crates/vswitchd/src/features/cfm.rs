//! CFM: Interface:cfm_mpid and keys of other_config to the settings of maintenance points, and their state to the columns
//! `cfm_*`.

use super::bfd::bridge_port;
use crate::bridge::Bridge;
use crate::devices::Devices;
use crate::feature::{Feature, Report};
use crate::levels::{InterfaceLevel, InterfaceReport, InterfaceRows, InterfaceTarget};
use crate::protocol_settings;
use crate::reader::Reader;
use ::cfm::PointSettings;
use base::MacAddr;
use ovsdb_client::schemas::vswitch::{bridge, interface};
use ovsdb_client::typed::AnyColumn;
use ovsdb_client::{Transaction, columns};
use protocols::Protocol;
use std::collections::BTreeMap;
use tunnel::options::Key;

/// CFM on an interface.
#[derive(Debug, Default)]
pub struct Cfm;

impl Feature for Cfm {
    type Level = InterfaceLevel;
    /// The settings of the maintenance point, without the address of the interface.
    type Spec = Option<PointSettings>;
    const NAME: &'static str = "cfm";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        interface { NAME, CFM_MPID, OTHER_CONFIG }
        bridge { NAME }
    };
    const REPORTS: &'static [AnyColumn] = &columns! {
        interface {
            CFM_FAULT, CFM_FAULT_STATUS, CFM_FLAP_COUNT, CFM_HEALTH, CFM_REMOTE_MPIDS, CFM_REMOTE_OPSTATE,
        }
    };
    const IS_PROTOCOL: bool = true;

    fn read(reader: &Reader<'_>, rows: InterfaceRows<'_>) -> Self::Spec {
        let mpid = rows.interface.get(interface::CFM_MPID)?;
        let name = rows.interface.get(interface::NAME);
        let config = rows.interface.get(interface::OTHER_CONFIG);
        let settings = PointSettings::from_columns(name, MacAddr::default(), mpid, |key| config.get(key));
        if settings.is_none() {
            let bridge = rows.bridge.get(bridge::NAME);
            reader.warn(format!("{bridge}: CFM configuration on port {name} failed (Invalid argument)"));
        }
        settings
    }

    fn apply(&mut self, spec: &Self::Spec, target: &mut InterfaceTarget<'_>) {
        target.protocols.set(Protocol::CFM, spec.is_some());
    }

    fn report(&self, of: InterfaceReport<'_>, _: Report, txn: &mut Transaction<'_>) {
        let row = of.row;
        let Some(status) = bridge_port(of).and_then(|port| of.bridge.dp.switch.cfm_status_of(port)) else {
            txn.clear(row, interface::CFM_FAULT);
            txn.clear(row, interface::CFM_FAULT_STATUS);
            txn.clear(row, interface::CFM_FLAP_COUNT);
            txn.clear(row, interface::CFM_HEALTH);
            txn.clear(row, interface::CFM_REMOTE_MPIDS);
            txn.clear(row, interface::CFM_REMOTE_OPSTATE);
            return;
        };
        let state =
            if status.is_remote_down { interface::CfmRemoteOpstate::Down } else { interface::CfmRemoteOpstate::Up };
        txn.set(row, interface::CFM_FAULT, Some(status.faults.any()));
        txn.set(row, interface::CFM_FAULT_STATUS, status.faults.names());
        txn.set(row, interface::CFM_FLAP_COUNT, Some(status.statistics.flaps as i64));
        txn.set(row, interface::CFM_HEALTH, status.health.map(i64::from));
        txn.set(row, interface::CFM_REMOTE_MPIDS, status.remote_mpids.iter().map(|mpid| *mpid as i64));
        txn.set(row, interface::CFM_REMOTE_OPSTATE, status.extended.then_some(state));
    }
}

/// Configures CFM on all datapaths.
pub fn configure(bridges: &BTreeMap<String, Bridge>, devices: &Devices) {
    for (kind, dp) in devices.datapaths() {
        let mut settings = BTreeMap::new();
        for bridge in bridges.values().filter(|bridge| bridge.running.datapath_type == kind) {
            for (name, spec) in bridge.specs::<Cfm>(Protocol::CFM) {
                let Some(at) = bridge.bridge_port(name) else { continue };
                let Some(port) = bridge.running.ofproto.port(at.port) else { continue };
                let has_any_key =
                    port.spec.tunnel.as_ref().is_some_and(|tunnel| !matches!(tunnel.in_key, Key::Fixed(_)));
                let of_port = |point: PointSettings| {
                    (at, PointSettings { mac: port.spec.mac, check_tunnel_key: has_any_key, ..point })
                };
                settings.extend(spec.clone().map(of_port));
            }
        }
        if !settings.is_empty() {
            protocol_settings::start(&dp);
        }
        dp.switch.configure_cfm(settings);
    }
}
