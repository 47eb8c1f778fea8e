//! The address of a bridge and what it calls itself.

use crate::bridge::RunningBridge;
use crate::desired::{BridgeSpec, PortSpec};
use crate::interface::is_internal;
use base::MacAddr;
use ofproto::Identity;
use ovsdb::Uuid;

/// The bridge's address: as configured, or the lowest of its ports', or one made from its row.
///
/// Ports of the host and addresses that somebody made up do not count: they are not there the next time.
pub fn bridge_mac(bridge: &RunningBridge, spec: &BridgeSpec) -> MacAddr {
    let ports = spec.ports.values().filter_map(|port| port_mac(bridge, port));
    spec.hwaddr.or_else(|| ports.filter(|mac| counts(*mac)).min()).unwrap_or_else(|| mac_of_row(spec.row.uuid()))
}

fn port_mac(bridge: &RunningBridge, port: &PortSpec) -> Option<MacAddr> {
    let running = bridge.interfaces.get(&port.interfaces.first()?.name)?;
    let device = running.device().filter(|device| !is_internal(&***device))?;
    Some(port.mac.unwrap_or_else(|| device.mac()))
}

/// Whether the address is a maker's and of one device (IEEE 802, "universally administered").
fn counts(mac: MacAddr) -> bool {
    !mac.is_multicast() && !mac.is_zero() && mac.0[0] & 2 == 0
}

/// An address that stays with the row: its first bytes, each half of four the other way around as Open vSwitch has it
/// on machines of little endian, marked as locally administered.
fn mac_of_row(uuid: Uuid) -> MacAddr {
    let [a, b, c, d, _, _, g, h, ..] = *uuid.as_bytes();
    MacAddr([d & !1 | 2, c, b, a, h, g])
}

/// A locally administered address that depends on the name only.
pub fn made_up_mac(name: &str) -> MacAddr {
    // FNV-1a: any mixing will do.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    MacAddr::local_from(hash >> 16)
}

/// What the bridge calls itself towards controllers.
pub fn identity(spec: &BridgeSpec, mac: MacAddr) -> Identity {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "None".to_owned());
    Identity {
        datapath_id: spec.datapath_id.unwrap_or_else(|| mac.to_u64()),
        mfr_desc: "Flowstone".into(),
        hw_desc: "Flowstone".into(),
        sw_desc: env!("CARGO_PKG_VERSION").into(),
        serial_desc: or_none(&spec.dp_sn),
        dp_desc: or_none(&spec.dp_desc),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_a_row_is_that_of_open_vswitch() {
        let uuid = Uuid::parse("c1229abe-1614-4d9e-b37d-7bb00187c6b8").unwrap();
        assert_eq!(mac_of_row(uuid).to_string(), "be:9a:22:c1:9e:4d");
        let odd = Uuid::parse("00000001-0000-4000-8000-000000000000").unwrap();
        assert_eq!(mac_of_row(odd).to_string(), "02:00:00:00:00:40");
    }

    #[test]
    fn which_addresses_count() {
        for (mac, expected) in [
            ("00:11:22:33:44:55", true),
            ("00:00:00:00:00:00", false),
            ("01:11:22:33:44:55", false),
            ("02:11:22:33:44:55", false),
            ("aa:55:aa:55:00:01", false),
        ] {
            assert_eq!(counts(mac.parse().unwrap()), expected, "{mac}");
        }
    }
}
