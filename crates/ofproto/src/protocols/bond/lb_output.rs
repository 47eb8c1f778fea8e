//! Bonds that the datapath balances: their tables in the datapath, and the loads that it counts.

use crate::switch::Switch;
use base::{BridgePort, DpPort};
use bond::Bonds;
use dpif::{BondId, BondTable, LB_BUCKETS};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xlate::{Network, PortOut};

// Both name the number of buckets; tables are copied bucket by bucket.
const _: () = assert!(LB_BUCKETS == bond::BUCKETS);

/// The tables in the datapath.
#[derive(Debug, Default)]
pub(super) struct Installed {
    tables: BTreeMap<BondId, BondTable>,
    /// Bonds that the datapath does not balance any more, and still knows.
    retired: Vec<BondId>,
    /// The bonds of `tables`. Held while tables are installed and removed, as a retired bond may come back.
    live: Arc<Mutex<BTreeSet<BondId>>>,
}

impl Installed {
    /// Adds the bytes that the datapath has counted to the loads of buckets.
    pub(super) fn collect_loads(&self, switch: &Switch, bonds: &Bonds) {
        let Some(dpif) = switch.dpif().filter(|_| !self.tables.is_empty()) else { return };
        for table in bonds.tables() {
            let Some(loads) = dpif.bond_take_loads(BondId(table.id)) else { continue };
            let loads = (0..=u8::MAX).zip(*loads).filter(|(_, bytes)| *bytes > 0);
            loads.for_each(|(bucket, bytes)| table.loads.add(bucket, bytes));
        }
    }

    /// Installs the tables of bonds that differ from the installed ones. The tables of other bonds remain until [`Installed::retire`].
    pub(super) fn install(&mut self, switch: &Switch, bonds: &Bonds) {
        let Some(dpif) = switch.dpif() else { return };
        let net = switch.network();
        let tables: BTreeMap<BondId, BondTable> =
            bonds.tables().map(|table| (BondId(table.id), in_datapath(&net, &table))).collect();
        let mut live = self.live.lock();
        for (id, table) in tables.iter().filter(|(id, table)| self.tables.get(id) != Some(table)) {
            dpif.bond_set(*id, table);
        }
        *live = tables.keys().copied().collect();
        let before = std::mem::replace(&mut self.tables, tables);
        self.retired.extend(before.into_keys());
        self.retired.retain(|id| !self.tables.contains_key(id));
    }

    /// Removes the tables of bonds that the datapath does not balance any more, once no flow uses them.
    pub(super) fn retire(&mut self, switch: &Switch) {
        let (Some(dpif), false) = (switch.dpif(), self.retired.is_empty()) else { return };
        let (dpif, live) = (Arc::clone(dpif), Arc::clone(&self.live));
        let retired = std::mem::take(&mut self.retired);
        let remove = move || {
            let live = live.lock();
            retired.iter().filter(|id| !live.contains(id)).for_each(|id| dpif.bond_del(*id));
        };
        if switch.has_revalidator() {
            switch.after_changes(remove);
        } else {
            remove();
        }
    }
}

/// A table with the ports of the datapath.
fn in_datapath(net: &Network, table: &bond::Table) -> BondTable {
    let port = |at: BridgePort| match net.bridges.get(&at.bridge)?.ports.get(&at.port)?.out {
        PortOut::Device(port) => Some(port),
        _ => None,
    };
    // Buckets have few different owners.
    let mut known: Vec<(BridgePort, Option<DpPort>)> = Vec::new();
    let mut of = |owner: BridgePort| match known.iter().find(|(known, _)| *known == owner) {
        Some((_, port)) => *port,
        None => {
            let port = port(owner);
            known.push((owner, port));
            port
        }
    };
    let mut buckets = Box::new([None; LB_BUCKETS]);
    for (bucket, owner) in buckets.iter_mut().zip(table.buckets.iter()) {
        *bucket = owner.and_then(&mut of);
    }
    BondTable { hash_basis: table.hash_basis, buckets }
}
