//! Addresses that the database gives to ports and interfaces.

use crate::feature::{Event, Feature};
use crate::levels::{InterfaceLevel, InterfaceRows, InterfaceTarget, PortLevel, PortRows, PortTarget};
use crate::reader::{Reader, unicast};
use base::MacAddr;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{bridge, interface, port};
use ovsdb_client::typed::AnyColumn;
use std::sync::Arc;

/// Port:mac, which counts in place of the interface's address when the bridge's address is chosen.
#[derive(Debug, Default)]
pub struct PortAddress;

impl Feature for PortAddress {
    type Level = PortLevel;
    type Spec = Option<MacAddr>;
    const NAME: &'static str = "port-address";
    const COLUMNS: &'static [AnyColumn] = &columns! { port { MAC } };

    fn read(_: &Reader<'_>, rows: PortRows<'_>) -> Option<MacAddr> {
        rows.port.get(port::MAC).and_then(unicast)
    }

    fn apply(&mut self, _: &Option<MacAddr>, target: &mut PortTarget) {
        target.is_address_changed = true;
    }
}

/// Interface:mac, the address of an internal interface other than the bridge's own.
#[derive(Debug, Default)]
pub struct InterfaceAddress;

impl Feature for InterfaceAddress {
    type Level = InterfaceLevel;
    type Spec = Option<MacAddr>;
    const NAME: &'static str = "address";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        bridge { NAME }
        interface { NAME, TYPE, MAC }
    };
    const FOLLOWS: &'static [Event] = &[Event::Device];

    fn read(reader: &Reader<'_>, rows: InterfaceRows<'_>) -> Option<MacAddr> {
        let text = rows.interface.get(interface::MAC)?;
        let what = rows.what();
        if rows.is_local() {
            reader.warn(format!("{what}: ignoring mac in Interface record, use other_config:hwaddr of the bridge"));
            return None;
        }
        if !matches!(rows.kind(), "internal" | "dummy-internal") {
            reader.warn(format!("{what}: ignoring mac, which is for internal interfaces only"));
            return None;
        }
        let mac = unicast(text);
        if mac.is_none() {
            reader.warn(format!("{what}: mac is \"{text}\", which is not an Ethernet address of one device"));
        }
        mac
    }

    fn apply(&mut self, mac: &Option<MacAddr>, target: &mut InterfaceTarget<'_>) {
        let Some(device) = target.running.device().map(Arc::clone) else { return };
        let outcome = mac.filter(|mac| device.mac() != *mac).map(|mac| device.set_mac(mac));
        target.running.complain("mac", outcome.and_then(Result::err));
    }
}
