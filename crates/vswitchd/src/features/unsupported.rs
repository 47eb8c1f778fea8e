//! Settings of Open vSwitch that are not supported: each gives a warning, so that nothing is ignored silently.

use crate::feature::Feature;
use crate::levels::{BridgeLevel, BridgeRows, InterfaceLevel, InterfaceRows, PortLevel, PortRows, SwitchLevel};
use crate::reader::{Config, Reader};
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{OpenVSwitch, bridge, interface, open_vswitch, port};
use ovsdb_client::typed::{AnyColumn, Row};

/// Keys of other_config that Open vSwitch knows and that change what the switch does. Keys that only tune it, or belong
/// to a protocol that another column enables, are not here.
const SWITCH_KEYS: &[&str] = &["flow-restore-wait", "enable-statistics"];
/// Booleans in other_config that are not supported when true.
const SWITCH_FLAGS: &[&str] = &["dpdk-init", "userspace-tso-enable"];
const PORT_KEYS: &[&str] = &["lacp-system-id"];
const INTERFACE_KEYS: &[&str] = &["lacp-port-id", "lacp-aggregation-key"];

fn warn_of_keys(reader: &Reader<'_>, what: &str, config: Config<'_>, keys: &[&str]) {
    for key in keys.iter().filter(|key| config.get(**key).is_some()) {
        reader.warn(format!("{what}: other_config:{key} is set, which is not supported"));
    }
}

/// Of the switch.
#[derive(Debug, Default)]
pub struct OfSwitch;

impl Feature for OfSwitch {
    type Level = SwitchLevel;
    type Spec = ();
    const NAME: &'static str = "unsupported-switch";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        open_vswitch { OTHER_CONFIG }
    };

    fn read(reader: &Reader<'_>, root: Row<'_, OpenVSwitch>) {
        let config = root.get(open_vswitch::OTHER_CONFIG);
        warn_of_keys(reader, "switch", config, SWITCH_KEYS);
        let set: Vec<&str> = SWITCH_FLAGS.iter().copied().filter(|key| config.get(*key) == Some("true")).collect();
        warn_of_keys(reader, "switch", config, &set);
        if config.get("hw-offload") == Some("true") {
            warn_of_keys(reader, "switch", config, &["hw-offload-priority"]);
        }
    }
}

/// Of a bridge.
#[derive(Debug, Default)]
pub struct OfBridge;

impl Feature for OfBridge {
    type Level = BridgeLevel;
    type Spec = ();
    const NAME: &'static str = "unsupported-bridge";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        bridge {
            MCAST_SNOOPING_ENABLE, NAME,
        }
    };

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) {
        let (what, row) = (rows.what(), rows.bridge);
        for column in [bridge::MCAST_SNOOPING_ENABLE] {
            if row.get(column) {
                reader.warn(format!("{what}: {} is set, which is not supported", column.name()));
            }
        }
    }
}

/// Of a port.
#[derive(Debug, Default)]
pub struct OfPort;

impl Feature for OfPort {
    type Level = PortLevel;
    type Spec = ();
    const NAME: &'static str = "unsupported-port";
    const COLUMNS: &'static [AnyColumn] = &columns! { port { NAME, OTHER_CONFIG, LACP } };

    fn read(reader: &Reader<'_>, rows: PortRows<'_>) {
        let (what, row) = (rows.what(), rows.port);
        warn_of_keys(reader, &what, row.get(port::OTHER_CONFIG), PORT_KEYS);
        if row.get(port::LACP).is_some_and(|lacp| lacp != Ok(port::Lacp::Off)) {
            reader.warn(format!("{what}: LACP is configured, which is not supported"));
        }
    }
}

/// Of an interface.
#[derive(Debug, Default)]
pub struct OfInterface;

impl Feature for OfInterface {
    type Level = InterfaceLevel;
    type Spec = ();
    const NAME: &'static str = "unsupported-interface";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        interface { NAME, OTHER_CONFIG, BFD, CFM_MPID }
    };

    fn read(reader: &Reader<'_>, rows: InterfaceRows<'_>) {
        let (what, row) = (rows.what(), rows.interface);
        warn_of_keys(reader, &what, row.get(interface::OTHER_CONFIG), INTERFACE_KEYS);
        reader.unsupported(&what, row, interface::BFD, "BFD");
        reader.unsupported(&what, row, interface::CFM_MPID, "CFM");
    }
}
