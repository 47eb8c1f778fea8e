//! What rows say of controllers, and of managers as far as bridges let them through.

use super::{Config, Reader};
use ofproto::conn::service::DSCP;
use ofproto::{RateLimit, Settings};
use ovsdb_client::schemas::vswitch::{Controller, Manager, controller, manager};
use ovsdb_client::typed::{Column, Elements, Ref, Row};
use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4};

/// The port of managers unless one is named (RFC 7047 section 4).
const OVSDB_PORT: u16 = 6640;
/// A class has six bits.
const DSCP_MAX: u8 = 63;
/// Packet-ins that a row may have wait.
const QUEUE_SIZES: std::ops::RangeInclusive<i64> = 1..=512;

/// A Controller row.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerSpec {
    /// Row.
    pub row: Ref<Controller>,
    /// Connection method.
    pub target: String,
    /// Whether it is a primary controller, not one for service.
    pub primary: bool,
    /// Whether it is reached through the bridge.
    pub in_band: bool,
    /// The class of its packets.
    pub dscp: u8,
    /// How its connection is kept.
    pub settings: Settings,
}

impl Reader<'_> {
    /// A controller of `bridge`, which has `packet_in_queue` packet-ins wait unless the row says otherwise.
    pub(super) fn controller(&self, bridge: &str, row: Row<'_, Controller>, packet_in_queue: usize) -> ControllerSpec {
        let target = row.get(controller::TARGET).to_owned();
        let what = format!("bridge {bridge}: controller {target}");
        let config = row.get(controller::OTHER_CONFIG);
        self.keys::<Controller>(&what, config);
        self.unsupported(&what, row, controller::LOCAL_IP, "an address of the local port");
        let primary = match row.get(controller::TYPE) {
            Some(kind) => kind == Ok(controller::Type::Primary),
            None => !(target.starts_with("ptcp:") || target.starts_with("pssl:") || target.starts_with("punix:")),
        };
        // The schema has bounds for all of these.
        let number = |column: Column<Controller, Option<i64>>| row.get(column).and_then(|n| u32::try_from(n).ok());
        let defaults = Settings::default();
        let settings = Settings {
            probe_ms: number(controller::INACTIVITY_PROBE).map_or(defaults.probe_ms, u64::from),
            max_backoff_ms: number(controller::MAX_BACKOFF).map_or(defaults.max_backoff_ms, u64::from),
            packet_in_limit: number(controller::CONTROLLER_RATE_LIMIT)
                .filter(|rate| *rate > 0)
                .map(|rate| RateLimit::new(rate, number(controller::CONTROLLER_BURST_LIMIT))),
            packet_in_queue: number(controller::CONTROLLER_QUEUE_SIZE).map_or(packet_in_queue, |n| n as usize),
            asynchronous: row.get(controller::ENABLE_ASYNC_MESSAGES).unwrap_or(defaults.asynchronous),
        };
        let class = |text: &str| text.parse().ok().filter(|dscp| *dscp <= DSCP_MAX);
        let dscp = self.checked(&what, config, "dscp", "a number from 0 to 63", class).unwrap_or(DSCP);
        let in_band = row.get(controller::CONNECTION_MODE) != Some(Ok(controller::ConnectionMode::OutOfBand));
        ControllerSpec { row: row.reference(), target, primary, in_band, dscp, settings }
    }

    /// Bridge:other_config:controller-queue-size.
    pub(super) fn packet_in_queue(&self, what: &str, config: Config<'_>) -> usize {
        let number = |text: &str| text.parse().ok().filter(|n| QUEUE_SIZES.contains(n)).map(|n: i64| n as usize);
        let queue = self.checked(what, config, "controller-queue-size", "a number from 1 to 512", number);
        queue.unwrap_or(ofproto::conn::remote::PACKET_IN_QUEUE)
    }

    /// Bridge:other_config:in-band-queue.
    pub(super) fn in_band_queue(&self, what: &str, config: Config<'_>) -> Option<u32> {
        let queue = self.checked(what, config, "in-band-queue", "the number of a queue", |text| text.parse().ok())?;
        self.warn(format!(
            "{what}: in-band control is to use queue {queue}, but queues are not supported, and the default one is used"
        ));
        Some(queue)
    }

    /// The managers that bridges let through. Names are not looked up.
    pub(super) fn managers(&self, rows: Elements<'_, Ref<Manager>>) -> BTreeSet<SocketAddrV4> {
        let out_of_band = Some(Ok(manager::ConnectionMode::OutOfBand));
        let rows = rows.into_iter().filter_map(|row| self.db.find(row));
        let rows = rows.filter(|row| row.get(manager::CONNECTION_MODE) != out_of_band);
        let targets = rows.map(|row| row.get(manager::TARGET));
        let mut managers = BTreeSet::new();
        for target in targets.filter(|target| target.starts_with("tcp:") || target.starts_with("ssl:")) {
            match ofproto::conn::service::numeric_address(target, OVSDB_PORT) {
                Some(SocketAddr::V4(address)) => _ = managers.insert(address),
                // There is no in-band control for IPv6, in Open vSwitch either.
                Some(SocketAddr::V6(_)) => {}
                None => {
                    self.warn(format!(
                        "manager {target}: in-band control needs an address, and does not look up names"
                    ));
                }
            }
        }
        managers
    }
}
