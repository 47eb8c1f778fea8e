//! MTUs of interfaces: those that the database asks for, and those of internal interfaces, which follow the others.

use crate::feature::{Event, Feature};
use crate::interface::{RunningInterface, is_internal};
use crate::levels::{InterfaceLevel, InterfaceRows, InterfaceTarget};
use crate::reader::Reader;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{bridge, interface};
use ovsdb_client::typed::AnyColumn;
use std::sync::Arc;

/// Interface:mtu_request, in bytes.
#[derive(Debug, Default)]
pub struct Mtu;

impl Feature for Mtu {
    type Level = InterfaceLevel;
    type Spec = Option<u32>;
    const NAME: &'static str = "mtu";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        bridge { NAME }
        interface { NAME, TYPE, MTU_REQUEST }
    };
    const FOLLOWS: &'static [Event] = &[Event::Device];

    fn read(reader: &Reader<'_>, rows: InterfaceRows<'_>) -> Option<u32> {
        let request = rows.interface.get(interface::MTU_REQUEST).and_then(|m| u32::try_from(m).ok());
        if rows.kind() == "patch" && request.is_some() {
            reader.warn(format!("{}: mtu_request is ignored, a patch port has no MTU", rows.what()));
        }
        request
    }

    fn apply(&mut self, request: &Option<u32>, target: &mut InterfaceTarget<'_>) {
        let running = &mut *target.running;
        let Some(device) = running.device().map(Arc::clone) else { return };
        if request.is_some() {
            running.followed_mtu = None;
        }
        let outcome = request.filter(|mtu| device.mtu() != Some(*mtu)).map(|mtu| device.set_mtu(mtu));
        running.complain("mtu_request", outcome.and_then(Result::err));
    }
}

/// Gives an internal interface without a request the MTU of the others: when that changes, or when its own is larger.
/// An administrator may have made it smaller meanwhile, which does no harm.
pub fn follow(running: &mut RunningInterface, request: Option<u32>, mtu: u32) {
    let Some(device) = running.device().filter(|device| is_internal(&***device)).map(Arc::clone) else { return };
    let now = device.mtu();
    let larger = now.is_some_and(|now| now > mtu);
    if request.is_some() || now == Some(mtu) {
        running.followed_mtu = (now == Some(mtu)).then_some(mtu);
    } else if running.followed_mtu != Some(mtu) || larger {
        let error = device.set_mtu(mtu).err();
        running.followed_mtu = error.is_none().then_some(mtu);
        running.complain("mtu", error);
    }
}
