//! The address of a bridge and what it calls itself.

use crate::feature::{Event, Feature, Report};
use crate::levels::{BridgeLevel, BridgeReport, BridgeRows, BridgeTarget};
use crate::reader::{Reader, unicast};
use base::MacAddr;
use ovsdb::Uuid;
use ovsdb_client::schemas::vswitch::bridge;
use ovsdb_client::typed::AnyColumn;
use ovsdb_client::{Transaction, columns};

/// Address, datapath id and descriptions of a bridge.
#[derive(Debug, Default)]
pub struct Identity {
    /// The datapath id that was logged last.
    logged: Option<u64>,
}

/// How a bridge is identified.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IdentitySpec {
    /// Address of the local port and, unless a datapath id is given, origin of that.
    pub hwaddr: Option<MacAddr>,
    /// Datapath id.
    pub datapath_id: Option<u64>,
    /// Description for controllers.
    pub dp_desc: Option<String>,
    /// Serial number for controllers.
    pub dp_sn: Option<String>,
}

impl Feature for Identity {
    type Level = BridgeLevel;
    type Spec = IdentitySpec;
    const NAME: &'static str = "identity";
    const COLUMNS: &'static [AnyColumn] = &columns! { bridge { NAME, OTHER_CONFIG } };
    const REPORTS: &'static [AnyColumn] = &columns! { bridge { DATAPATH_ID, DATAPATH_VERSION } };
    // The address of a bridge is one of its ports' unless the row has one.
    const FOLLOWS: &'static [Event] = &[Event::Ports];

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> IdentitySpec {
        let (what, config) = (rows.what(), rows.bridge.get(bridge::OTHER_CONFIG));
        let text = |key: &str, len_max: usize| {
            let text = config.get(key)?;
            if text.len() > len_max {
                reader.warn(format!("{what}: {key} is longer than {len_max} bytes and will be cut"));
            }
            Some(text.to_owned())
        };
        IdentitySpec {
            hwaddr: reader.checked(&what, config, "hwaddr", "an Ethernet address of one device", unicast),
            // Open vSwitch ignores other values without a warning, and scripts look for warnings.
            datapath_id: config.get("datapath-id").and_then(datapath_id),
            dp_desc: text("dp-desc", 255),
            dp_sn: text("dp-sn", 31),
        }
    }

    fn apply(&mut self, spec: &IdentitySpec, target: &mut BridgeTarget<'_>) {
        let identity = identity(spec, target.mac);
        let (ofproto, id) = (&target.running.ofproto, identity.datapath_id);
        if self.logged.replace(id) != Some(id) {
            tracing::info!(target: "bridge", "bridge {}: using datapath ID {id:016x}", ofproto.name());
        }
        ofproto.set_identity(identity);
    }

    fn report(&self, of: BridgeReport<'_>, _: Report, txn: &mut Transaction<'_>) {
        let id = format!("{:016x}", of.running.ofproto.identity().datapath_id);
        txn.set(of.row, bridge::DATAPATH_ID, Some(id));
        txn.set(of.row, bridge::DATAPATH_VERSION, "<built-in>");
    }
}

/// A datapath id: 16 hex digits, or fewer after `0x`; not zero.
fn datapath_id(text: &str) -> Option<u64> {
    let digits = match text.strip_prefix("0x") {
        Some(digits) => digits,
        None if text.len() == 16 => text,
        None => return None,
    };
    // from_str_radix takes a sign.
    let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|id| hex && *id != 0)
}

/// The bridge's address: as configured, or the lowest of its ports' addresses, or one made from its row.
///
/// `lowest` is the lowest address of ports that [`counts`].
pub fn bridge_mac(spec: &IdentitySpec, lowest: Option<MacAddr>, row: Uuid) -> MacAddr {
    spec.hwaddr.or(lowest).unwrap_or_else(|| mac_of_row(row))
}

/// Whether the address is a maker's and of one device (IEEE 802, "universally administered"). Others do not count for
/// the bridge's address, since a device may have another one when it is there again.
pub fn counts(mac: MacAddr) -> bool {
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
fn identity(spec: &IdentitySpec, mac: MacAddr) -> ofproto::Identity {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "None".to_owned());
    ofproto::Identity {
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
