//! In-band control: which controllers and managers a bridge lets through in any case.

use crate::feature::{Event, Feature};
use crate::levels::{BridgeLevel, BridgeRows, BridgeTarget};
use crate::reader::{Config, Reader};
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{Manager, bridge, manager, open_vswitch};
use ovsdb_client::typed::{AnyColumn, Elements, Ref};
use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4};

/// The port of managers unless one is named (RFC 7047 section 4).
const OVSDB_PORT: u16 = 6640;

/// In-band control of a bridge.
#[derive(Debug, Default)]
pub struct InBand;

/// The remotes that a bridge lets through beside its controllers, and the queue that their packets use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InBandSpec {
    /// Managers of the database.
    pub managers: BTreeSet<SocketAddrV4>,
    /// The queue.
    pub queue: Option<u32>,
}

impl Feature for InBand {
    type Level = BridgeLevel;
    /// `None` where in-band control is disabled.
    type Spec = Option<InBandSpec>;
    const NAME: &'static str = "in-band";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        open_vswitch { MANAGER_OPTIONS }
        manager { TARGET, CONNECTION_MODE }
        bridge { NAME, OTHER_CONFIG }
    };
    const FOLLOWS: &'static [Event] = &[Event::Ports];

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> Option<InBandSpec> {
        let config = rows.bridge.get(bridge::OTHER_CONFIG);
        let spec = InBandSpec {
            managers: managers(reader, rows.root.get(open_vswitch::MANAGER_OPTIONS)),
            queue: queue(reader, &rows.what(), config),
        };
        (config.get("disable-in-band") != Some("true")).then_some(spec)
    }

    fn apply(&mut self, spec: &Option<InBandSpec>, target: &mut BridgeTarget<'_>) {
        let running = &mut *target.running;
        running.control.set_in_band(&running.ofproto, spec.clone());
    }
}

/// Bridge:other_config:in-band-queue.
fn queue(reader: &Reader<'_>, what: &str, config: Config<'_>) -> Option<u32> {
    reader.checked(what, config, "in-band-queue", "the number of a queue", |text| text.parse().ok())
}

/// The managers that bridges let through. Names are not resolved.
fn managers(reader: &Reader<'_>, rows: Elements<'_, Ref<Manager>>) -> BTreeSet<SocketAddrV4> {
    let out_of_band = Some(Ok(manager::ConnectionMode::OutOfBand));
    let rows = rows.into_iter().filter_map(|row| reader.find(row));
    let rows = rows.filter(|row| row.get(manager::CONNECTION_MODE) != out_of_band);
    let targets = rows.map(|row| row.get(manager::TARGET));
    let mut managers = BTreeSet::new();
    for target in targets.filter(|target| target.starts_with("tcp:") || target.starts_with("ssl:")) {
        match ofproto::conn::service::numeric_address(target, OVSDB_PORT) {
            Some(SocketAddr::V4(address)) => _ = managers.insert(address),
            // There is no in-band control for IPv6, in Open vSwitch either.
            Some(SocketAddr::V6(_)) => {}
            None => {
                reader.warn(format!("manager {target}: in-band control needs an address, and does not look up names"));
            }
        }
    }
    managers
}
