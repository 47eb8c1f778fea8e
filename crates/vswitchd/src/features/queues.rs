//! The cores that poll receive queues of an interface.

use crate::feature::{Event, Feature};
use crate::features::threads::parse_affinity;
use crate::interface::Behind;
use crate::levels::{InterfaceLevel, InterfaceRows, InterfaceTarget};
use crate::reader::Reader;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::interface;
use ovsdb_client::typed::AnyColumn;
use std::collections::BTreeMap;

/// `other_config:pmd-rxq-affinity`: cores by queue. The number of queues is the device's, which options may change.
#[derive(Debug, Default)]
pub struct Queues;

impl Feature for Queues {
    type Level = InterfaceLevel;
    type Spec = BTreeMap<usize, usize>;
    const NAME: &'static str = "queues";
    const COLUMNS: &'static [AnyColumn] = &columns! { interface { NAME, OTHER_CONFIG } };
    const FOLLOWS: &'static [Event] = &[Event::Device];

    fn read(reader: &Reader<'_>, rows: InterfaceRows<'_>) -> BTreeMap<usize, usize> {
        let config = rows.interface.get(interface::OTHER_CONFIG);
        let affinity = reader.checked(&rows.what(), config, "pmd-rxq-affinity", "a list of queue:core", parse_affinity);
        affinity.unwrap_or_default()
    }

    fn apply(&mut self, affinity: &BTreeMap<usize, usize>, target: &mut InterfaceTarget<'_>) {
        if let Ok(Behind::Device(attached)) = &target.running.state {
            let error = attached.set_queues(affinity).err();
            target.running.complain("n_rxq", error);
        }
    }
}
