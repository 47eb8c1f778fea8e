//! Settings of Open vSwitch that are not supported: each gives a warning, so that nothing is ignored silently.

use crate::feature::Feature;
use crate::levels::SwitchLevel;
use crate::reader::{Config, Reader};
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{OpenVSwitch, open_vswitch};
use ovsdb_client::typed::{AnyColumn, Row};

/// Keys of other_config that Open vSwitch knows and that change what the switch does. Keys that only tune it, or belong
/// to a protocol that another column enables, are not here.
const SWITCH_KEYS: &[&str] = &["enable-statistics"];
/// Booleans in other_config that are not supported when true.
const SWITCH_FLAGS: &[&str] = &["dpdk-init", "userspace-tso-enable"];

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
