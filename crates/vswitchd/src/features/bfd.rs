//! BFD: Interface:bfd to the settings of sessions, and their state to Interface:bfd_status.

use crate::bridge::Bridge;
use crate::commands;
use crate::devices::Devices;
use crate::feature::{Feature, Report};
use crate::levels::{InterfaceLevel, InterfaceReport, InterfaceRows, InterfaceTarget};
use crate::protocol_settings;
use crate::reader::Reader;
use ::bfd::{SessionSettings, show};
use base::{BridgePort, MacAddr};
use ovsdb_client::schemas::vswitch::interface;
use ovsdb_client::typed::AnyColumn;
use ovsdb_client::{Transaction, columns};
use protocols::Protocol;
use std::collections::BTreeMap;
use std::sync::Arc;
use unixctl::Commands;

/// BFD on an interface.
#[derive(Debug, Default)]
pub struct Bfd;

impl Feature for Bfd {
    type Level = InterfaceLevel;
    /// The settings of the session, without the address of the interface.
    type Spec = Option<SessionSettings>;
    const NAME: &'static str = "bfd";
    const COLUMNS: &'static [AnyColumn] = &columns! { interface { NAME, BFD } };
    const REPORTS: &'static [AnyColumn] = &columns! { interface { BFD_STATUS } };
    const IS_PROTOCOL: bool = true;

    fn read(reader: &Reader<'_>, rows: InterfaceRows<'_>) -> Self::Spec {
        let pairs = rows.interface.get(interface::BFD).into_iter();
        let pairs: BTreeMap<String, String> = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let name = rows.interface.get(interface::NAME);
        let (settings, messages) = SessionSettings::from_pairs(name, MacAddr::default(), &pairs);
        messages.into_iter().for_each(|message| reader.warn(message));
        settings
    }

    fn apply(&mut self, spec: &Self::Spec, target: &mut InterfaceTarget<'_>) {
        target.protocols.set(Protocol::BFD, spec.is_some());
    }

    fn report(&self, of: InterfaceReport<'_>, _: Report, txn: &mut Transaction<'_>) {
        match bridge_port(of).and_then(|port| of.bridge.dp.switch.bfd_status_of(port)) {
            Some(status) => txn.set(of.row, interface::BFD_STATUS, show::column(&status)),
            None => txn.clear(of.row, interface::BFD_STATUS),
        }
    }

    fn commands(commands: &Commands, devices: &Arc<Devices>) {
        commands::connectivity::register(commands, devices);
    }
}

/// The port of an interface that is reported on.
pub(super) fn bridge_port(of: InterfaceReport<'_>) -> Option<BridgePort> {
    Some(BridgePort { bridge: of.bridge.ofproto.id(), port: of.running.ofport? })
}

/// Configures BFD on all datapaths.
pub fn configure(bridges: &BTreeMap<String, Bridge>, devices: &Devices) {
    for (kind, dp) in devices.datapaths() {
        let mut settings = BTreeMap::new();
        for bridge in bridges.values().filter(|bridge| bridge.running.datapath_type == kind) {
            for (name, spec) in bridge.specs::<Bfd>(Protocol::BFD) {
                let Some(at) = bridge.bridge_port(name) else { continue };
                let Some(port) = bridge.running.ofproto.port(at.port) else { continue };
                settings.extend(spec.clone().map(|session| (at, SessionSettings { mac: port.spec.mac, ..session })));
            }
        }
        if !settings.is_empty() {
            protocol_settings::start(&dp);
        }
        dp.switch.configure_bfd(settings);
    }
}
