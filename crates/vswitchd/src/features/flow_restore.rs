//! `Open_vSwitch:other_config:flow-restore-wait`: a switch that starts with it forwards nothing, and connects to no controller,
//! until it is false, so that a program can restore the flows first. Set later, it has no effect.

use crate::feature::Feature;
use crate::levels::{SwitchLevel, SwitchTarget};
use crate::reader::Reader;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{OpenVSwitch, open_vswitch};
use ovsdb_client::typed::{AnyColumn, Row};

/// Whether flows are restored by hand.
#[derive(Debug, Default)]
pub struct FlowRestore {
    is_over: bool,
}

impl Feature for FlowRestore {
    type Level = SwitchLevel;
    type Spec = bool;
    const NAME: &'static str = "flow-restore";
    const COLUMNS: &'static [AnyColumn] = &columns! { open_vswitch { OTHER_CONFIG } };

    fn read(_: &Reader<'_>, root: Row<'_, OpenVSwitch>) -> bool {
        root.get(open_vswitch::OTHER_CONFIG).get("flow-restore-wait") == Some("true")
    }

    fn apply(&mut self, is_wanted: &bool, target: &mut SwitchTarget<'_>) {
        self.is_over |= !is_wanted;
        target.devices.set_restoring(!self.is_over);
    }
}
