//! Number, address, MTU and link state of interfaces, and why one is not there.

use crate::feature::{Feature, Report};
use crate::levels::{InterfaceLevel, InterfaceReport, InterfaceRows};
use crate::reader::Reader;
use netdev::{Duplex, Netdev};
use ovsdb_client::schemas::vswitch::interface;
use ovsdb_client::typed::AnyColumn;
use ovsdb_client::{Transaction, columns};

/// The state of an interface, which is reported and not configured.
#[derive(Debug, Default)]
pub struct Link;

impl Feature for Link {
    type Level = InterfaceLevel;
    type Spec = ();
    const NAME: &'static str = "link";
    const COLUMNS: &'static [AnyColumn] = &[];
    const REPORTS: &'static [AnyColumn] = &columns! {
        interface {
            OFPORT, MAC_IN_USE, MTU, IFINDEX, ADMIN_STATE, LINK_STATE, LINK_SPEED, LINK_RESETS, DUPLEX, STATUS, ERROR,
        }
    };

    fn read(_: &Reader<'_>, _: InterfaceRows<'_>) {}

    fn report(&self, of: InterfaceReport<'_>, _: Report, txn: &mut Transaction<'_>) {
        let ofport = of.running.ofport.map_or(-1, |p| i64::from(p.to_of10()));
        txn.set(of.row, interface::OFPORT, Some(ofport));
        txn.set(of.row, interface::ERROR, of.running.error());
        match of.running.device() {
            Some(device) => report_device(of, &**device, txn),
            None => report_without_device(of, txn),
        }
    }
}

fn admin(on: bool) -> interface::AdminState {
    if on { interface::AdminState::Up } else { interface::AdminState::Down }
}

fn link(on: bool) -> interface::LinkState {
    if on { interface::LinkState::Up } else { interface::LinkState::Down }
}

fn report_device(of: InterfaceReport<'_>, device: &dyn Netdev, txn: &mut Transaction<'_>) {
    let (row, status) = (of.row, device.status());
    txn.set(row, interface::MAC_IN_USE, Some(device.mac().to_string()));
    txn.set(row, interface::MTU, device.mtu());
    txn.set(row, interface::IFINDEX, status.ifindex);
    txn.set(row, interface::ADMIN_STATE, Some(admin(status.admin_up)));
    txn.set(row, interface::LINK_STATE, Some(link(status.carrier)));
    txn.set(row, interface::LINK_RESETS, Some(status.link_resets as i64));
    txn.set(row, interface::LINK_SPEED, status.speed.map(|s| s as i64));
    let duplex = |d| if d == Duplex::Full { interface::Duplex::Full } else { interface::Duplex::Half };
    txn.set(row, interface::DUPLEX, status.duplex.map(duplex));
    let mut details = status.details;
    if let Some(offload) = of.running.offload(&of.bridge.dp) {
        details.insert("offload".to_owned(), offload);
    }
    if let Some((device, carrier)) = of.running.egress() {
        details.insert("tunnel_egress_iface".to_owned(), device);
        details.insert("tunnel_egress_iface_carrier".to_owned(), if carrier { "up" } else { "down" }.to_owned());
    }
    txn.set(row, interface::STATUS, details);
}

/// A patch port, or an interface that could not be opened.
fn report_without_device(of: InterfaceReport<'_>, txn: &mut Transaction<'_>) {
    let row = of.row;
    let port = of.running.ofport.and_then(|no| of.bridge.ofproto.port(no));
    txn.set(row, interface::MAC_IN_USE, port.map(|p| p.spec.mac.to_string()));
    let up = of.running.state.is_ok();
    txn.clear(row, interface::MTU);
    txn.clear(row, interface::LINK_SPEED);
    txn.clear(row, interface::DUPLEX);
    txn.clear(row, interface::STATUS);
    txn.set(row, interface::IFINDEX, up.then_some(0));
    txn.set(row, interface::LINK_RESETS, up.then_some(0));
    txn.set(row, interface::ADMIN_STATE, up.then(|| admin(true)));
    txn.set(row, interface::LINK_STATE, up.then(|| link(true)));
}
