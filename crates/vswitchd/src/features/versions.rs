//! What the switch says of itself: versions, types, and the operating system.

use crate::feature::{Feature, Report};
use crate::levels::{SwitchLevel, SwitchReport};
use crate::reader::Reader;
use ovsdb_client::schemas::vswitch::{OpenVSwitch, open_vswitch};
use ovsdb_client::typed::{AnyColumn, Row};
use ovsdb_client::{Transaction, columns};
use std::sync::OnceLock;

/// Name and version of the operating system, read once.
static SYSTEM: OnceLock<(Option<String>, Option<String>)> = OnceLock::new();

/// Versions and types, which are reported and not configured.
#[derive(Debug, Default)]
pub struct Versions;

impl Feature for Versions {
    type Level = SwitchLevel;
    type Spec = ();
    const NAME: &'static str = "versions";
    const COLUMNS: &'static [AnyColumn] = &[];
    const REPORTS: &'static [AnyColumn] = &columns! {
        open_vswitch {
            OVS_VERSION, DB_VERSION, SYSTEM_TYPE, SYSTEM_VERSION, DATAPATH_TYPES, IFACE_TYPES, DPDK_INITIALIZED,
            DPDK_VERSION,
        }
    };

    fn read(_: &Reader<'_>, _: Row<'_, OpenVSwitch>) {}

    fn report(&self, of: SwitchReport<'_>, _: Report, txn: &mut Transaction<'_>) {
        let SwitchReport { row, devices, host_versions } = of;
        txn.set(row, open_vswitch::DPDK_INITIALIZED, false);
        txn.set(row, open_vswitch::DPDK_VERSION, Some("none"));
        txn.set(row, open_vswitch::DATAPATH_TYPES, devices.types.datapath_types());
        txn.set(row, open_vswitch::IFACE_TYPES, devices.types.iface_types());
        if !host_versions {
            return;
        }
        txn.set(row, open_vswitch::OVS_VERSION, Some(cli::program::COMPATIBLE_VERSION));
        txn.set(row, open_vswitch::DB_VERSION, Some(crate::DB_VERSION));
        let (system_type, system_version) = SYSTEM.get_or_init(system).clone();
        // Values that the administrator set stay.
        for (column, value) in
            [(open_vswitch::SYSTEM_TYPE, system_type), (open_vswitch::SYSTEM_VERSION, system_version)]
        {
            if txn.get(row, column).is_none() && value.is_some() {
                txn.set(row, column, value);
            }
        }
    }
}

/// Name and version of the operating system (os-release(5)).
fn system() -> (Option<String>, Option<String>) {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.trim_matches('"').to_owned()).filter(|v| !v.is_empty())
    };
    (value("ID"), value("VERSION_ID"))
}
