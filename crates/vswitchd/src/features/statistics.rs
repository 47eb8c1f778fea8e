//! Counters of interfaces, written at intervals.

use crate::feature::{Feature, Report};
use crate::interface::{Behind, RunningInterface};
use crate::levels::{InterfaceLevel, InterfaceReport, InterfaceRows, SwitchLevel, SwitchTarget};
use crate::reader::Reader;
use crate::running::RunningBridge;
use ovsdb_client::schemas::vswitch::{OpenVSwitch, interface, open_vswitch};
use ovsdb_client::typed::{AnyColumn, Row};
use ovsdb_client::{Transaction, columns};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The interval in milliseconds unless `stats-update-interval` is larger.
pub const INTERVAL_MS: u64 = 5000;

/// How often counters are written: `stats-update-interval`, in milliseconds. 0 stands for [`INTERVAL_MS`].
#[derive(Debug, Default)]
pub struct Interval;

impl Feature for Interval {
    type Level = SwitchLevel;
    type Spec = u64;
    const NAME: &'static str = "statistics-interval";
    const COLUMNS: &'static [AnyColumn] = &columns! { open_vswitch { OTHER_CONFIG } };

    fn read(_: &Reader<'_>, root: Row<'_, OpenVSwitch>) -> u64 {
        let config = root.get(open_vswitch::OTHER_CONFIG);
        config.get("stats-update-interval").and_then(|v| v.parse().ok()).unwrap_or(INTERVAL_MS)
    }

    fn apply(&mut self, _: &u64, _: &mut SwitchTarget<'_>) {}
}

/// Counters of an interface, which are reported and not configured.
#[derive(Debug, Default)]
pub struct Counters;

impl Feature for Counters {
    type Level = InterfaceLevel;
    type Spec = ();
    const NAME: &'static str = "counters";
    const COLUMNS: &'static [AnyColumn] = &[];
    const REPORTS: &'static [AnyColumn] = &columns! { interface { STATISTICS } };

    fn read(_: &Reader<'_>, _: InterfaceRows<'_>) {}

    fn report(&self, of: InterfaceReport<'_>, what: Report, txn: &mut Transaction<'_>) {
        let InterfaceReport { row, running, bridge } = of;
        if running.device().is_none() && running.state.is_err() {
            txn.clear(row, interface::STATISTICS);
        }
        if what == Report::Statistics {
            txn.set(row, interface::STATISTICS, counters(running, bridge));
        }
    }
}

fn counters(running: &RunningInterface, bridge: &RunningBridge) -> BTreeMap<String, i64> {
    match running.device().filter(|_| !matches!(running.state, Ok(Behind::Tunnel(_)))) {
        Some(device) => device.stats().columns().into_iter().map(|(k, v)| (k.to_owned(), v as i64)).collect(),
        None => own_counters(running, bridge),
    }
}

/// The counters of a patch port or a tunnel.
fn own_counters(running: &RunningInterface, bridge: &RunningBridge) -> BTreeMap<String, i64> {
    let Some(port) = running.ofport.and_then(|no| bridge.ofproto.port(no)) else { return BTreeMap::new() };
    let p = &port.counters;
    [("rx_packets", &p.rx_packets), ("rx_bytes", &p.rx_bytes), ("tx_packets", &p.tx_packets), ("tx_bytes", &p.tx_bytes)]
        .into_iter()
        .map(|(name, counter)| (name.to_owned(), counter.load(Ordering::Relaxed) as i64))
        .collect()
}
