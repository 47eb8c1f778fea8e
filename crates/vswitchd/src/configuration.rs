//! The database's configuration, followed by what runs: changes are noted, stale settings read, and the work that
//! follows is done for the bridges that have some.

use crate::bridge::Bridge;
use crate::confinement::Confinement;
use crate::devices::Devices;
use crate::feature::{Counts, Event, Level, Report, Settings};
use crate::features::lldp::{self, TrunkVlans};
use crate::features::statistics::{INTERVAL_MS, Interval};
use crate::interface::InterfaceSpec;
use crate::levels::{BridgeLevel, InterfaceLevel, Jobs, PortLevel, SwitchLevel, SwitchReport, SwitchTarget};
use crate::own_tls::OwnTls;
use crate::protocol_settings;
use crate::references::{Location, References};
use crate::running::RunningBridge;
use ovsdb_client::schemas::vswitch::{self as db, bridge, interface, open_vswitch, port};
use ovsdb_client::typed::{AnyColumn, Ref, Row};
use ovsdb_client::{Change, Replica, Transaction, columns};
use parking_lot::Mutex;
use protocols::ProtocolSet;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Columns that say which bridges, ports and interfaces there are.
const STRUCTURE: &[AnyColumn] = &columns! {
    open_vswitch { BRIDGES, NEXT_CFG }
    bridge { NAME, DATAPATH_TYPE, PORTS }
    port { NAME, INTERFACES, BOND_FAKE_IFACE }
    interface { NAME, TYPE, OPTIONS, OFPORT_REQUEST }
};
const PORT_LIST: &[AnyColumn] = &columns! { bridge { PORTS } };
/// Columns that decide whether a bridge stays.
const BRIDGE_LIST: &[AnyColumn] = &columns! {
    open_vswitch { BRIDGES }
    bridge { NAME, DATAPATH_TYPE }
};
/// Columns that are written beside those of features.
const REPORTS: &[AnyColumn] = &columns! { open_vswitch { CUR_CFG } };

fn touches(change: &Change, columns: &[AnyColumn]) -> bool {
    columns.iter().any(|column| change.touches(*column))
}

mod read;

/// All columns that configure.
pub fn configuring() -> Vec<AnyColumn> {
    let of_features = [SwitchLevel::columns(), BridgeLevel::columns(), PortLevel::columns(), InterfaceLevel::columns()];
    STRUCTURE.iter().chain(of_features.iter().flat_map(|columns| columns.iter())).copied().collect()
}

/// All columns that report.
pub fn reporting() -> Vec<AnyColumn> {
    fn of<L: Level>() -> impl Iterator<Item = AnyColumn> {
        L::features().into_iter().flat_map(|setting| setting.reports().iter().copied())
    }
    let of_features =
        of::<SwitchLevel>().chain(of::<BridgeLevel>()).chain(of::<PortLevel>()).chain(of::<InterfaceLevel>());
    REPORTS.iter().copied().chain(of_features).collect()
}

/// Configuration and what runs of it.
#[derive(Debug)]
pub struct Configuration {
    devices: Arc<Devices>,
    confinement: Confinement,
    own_tls: OwnTls,
    command_line_tls: tls::Config,
    /// Whether versions of the system are reported, see [`Options`](crate::run::Options).
    pub host_versions: bool,
    root: Option<Ref<db::OpenVSwitch>>,
    next_cfg: i64,
    settings: Settings<SwitchLevel>,
    bridges: BTreeMap<String, Bridge>,
    /// Bridges that could not be made, and why.
    failed: BTreeMap<String, (Ref<db::Bridge>, String)>,
    references: References,
    /// How often features were read and applied.
    pub counts: Arc<Mutex<Counts>>,
    /// Everything is to be read.
    is_stale: bool,
    /// The database's configuration changed since the last run.
    is_changed: bool,
    is_bridge_list_stale: bool,
    is_switch_stale: bool,
    n_datapaths: usize,
    /// The state of everything is to be written, since settings of the switch changed it.
    is_unreported: bool,
    warnings: BTreeSet<String>,
    /// VLANs that the database has in Port:trunks for mappings of auto-attach.
    trunked: TrunkVlans,
    /// Protocols of bridges that have ended.
    ended_protocols: ProtocolSet,
}

/// Contents of a report, to be remembered once the database has it.
#[derive(Debug)]
pub struct Written {
    trunks: TrunkVlans,
}

impl Configuration {
    /// Nothing is configured yet.
    pub fn new(
        devices: Arc<Devices>,
        confinement: Confinement,
        own_tls: OwnTls,
        command_line_tls: tls::Config,
    ) -> Self {
        Self {
            devices,
            confinement,
            own_tls,
            command_line_tls,
            host_versions: false,
            root: None,
            next_cfg: 0,
            settings: Settings::default(),
            bridges: BTreeMap::new(),
            failed: BTreeMap::new(),
            references: References::default(),
            counts: Arc::default(),
            is_stale: true,
            is_changed: true,
            is_bridge_list_stale: true,
            is_switch_stale: true,
            n_datapaths: 0,
            is_unreported: false,
            warnings: BTreeSet::new(),
            trunked: TrunkVlans::new(),
            ended_protocols: ProtocolSet::EMPTY,
        }
    }

    /// Ends all bridges. The next configuration starts anew.
    pub async fn clear(&mut self) {
        for (_, mut bridge) in std::mem::take(&mut self.bridges) {
            bridge.forget(&mut self.references);
        }
        self.settings.forget(&Location::Switch, &mut self.references);
        self.set_stale();
        self.devices.synchronize().await;
    }

    /// Has everything read again.
    pub fn set_stale(&mut self) {
        self.is_stale = true;
    }

    /// The interval of statistics in milliseconds.
    pub fn statistics_interval_ms(&self) -> u64 {
        (*self.settings.spec::<Interval>()).max(INTERVAL_MS)
    }

    /// The bridges by name.
    pub fn bridges(&self) -> &BTreeMap<String, Bridge> {
        &self.bridges
    }

    /// The bridges by name, to be changed.
    pub fn bridges_mut(&mut self) -> impl Iterator<Item = &mut Bridge> {
        self.bridges.values_mut()
    }

    /// Notes what a change of the database makes stale. Returns whether it is one of the configuration.
    pub fn note(&mut self, change: &Change) -> bool {
        let mut is_any = false;
        for at in self.references.owners(change.uuid) {
            is_any |= self.note_at(&at, change);
        }
        for (at, feature) in self.references.readers(&change.table, change.uuid) {
            is_any |= self.note_for(&at, feature, change);
        }
        if change.row::<db::OpenVSwitch>().is_some() {
            is_any |= self.note_switch(change);
        }
        self.is_changed |= is_any;
        is_any
    }

    fn note_switch(&mut self, change: &Change) -> bool {
        let is_structure = touches(change, STRUCTURE);
        self.is_bridge_list_stale |= touches(change, BRIDGE_LIST);
        let mut is_any = self.settings.note(change);
        self.is_switch_stale |= is_any;
        if touches(change, &BridgeLevel::columns()) {
            for bridge in self.bridges.values_mut() {
                let is_noted = bridge.settings.note(change);
                bridge.work.is_stale |= is_noted;
                is_any |= is_noted;
            }
        }
        is_any || is_structure
    }

    fn note_at(&mut self, at: &Location, change: &Change) -> bool {
        let is_structure = touches(change, STRUCTURE);
        match at {
            Location::Switch => false,
            Location::Bridge(name) => {
                let Some(bridge) = self.bridges.get_mut(name) else { return is_structure };
                bridge.work.is_port_list_stale |= touches(change, PORT_LIST);
                self.is_bridge_list_stale |= touches(change, BRIDGE_LIST);
                let mut is_any = bridge.settings.note(change);
                bridge.work.is_stale |= is_any;
                if touches(change, &InterfaceLevel::columns()) {
                    for (name, interface) in &mut bridge.interfaces {
                        if interface.settings.note(change) {
                            bridge.work.stale_interfaces.insert(name.clone());
                            is_any = true;
                        }
                    }
                }
                is_any || is_structure
            }
            Location::Port(name, row) => {
                let Some(bridge) = self.bridges.get_mut(name) else { return false };
                let Some(port) = bridge.ports.get_mut(row) else { return false };
                if is_structure {
                    bridge.work.stale_ports.insert(*row);
                }
                let is_noted = port.settings.note(change);
                if is_noted {
                    bridge.work.stale_port_settings.insert(*row);
                }
                is_noted || is_structure
            }
            Location::Interface(bridge, name) => {
                let Some(bridge) = self.bridges.get_mut(bridge) else { return false };
                let Some(interface) = bridge.interfaces.get_mut(name) else { return false };
                if is_structure {
                    bridge.work.stale_ports.insert(interface.port);
                }
                let is_noted = interface.settings.note(change);
                if is_noted {
                    bridge.work.stale_interfaces.insert(name.clone());
                }
                is_noted || is_structure
            }
        }
    }

    fn note_for(&mut self, at: &Location, feature: &str, change: &Change) -> bool {
        match at {
            Location::Switch => {
                let is_noted = self.settings.note_for(feature, change);
                self.is_switch_stale |= is_noted;
                is_noted
            }
            Location::Bridge(name) => {
                let Some(bridge) = self.bridges.get_mut(name) else { return false };
                let is_noted = bridge.settings.note_for(feature, change);
                bridge.work.is_stale |= is_noted;
                is_noted
            }
            Location::Port(name, row) => {
                let Some(bridge) = self.bridges.get_mut(name) else { return false };
                let is_noted = bridge.ports.get_mut(row).is_some_and(|port| port.settings.note_for(feature, change));
                if is_noted {
                    bridge.work.stale_port_settings.insert(*row);
                }
                is_noted
            }
            Location::Interface(bridge, name) => {
                let Some(bridge) = self.bridges.get_mut(bridge) else { return false };
                let interface = bridge.interfaces.get_mut(name);
                let is_noted = interface.is_some_and(|interface| interface.settings.note_for(feature, change));
                if is_noted {
                    bridge.work.stale_interfaces.insert(name.clone());
                }
                is_noted
            }
        }
    }

    /// Has changed devices examined, and devices opened that could not be opened so far.
    pub fn look_for_changed_devices(&mut self) {
        self.bridges.values_mut().for_each(Bridge::look_for_changed_devices);
    }

    /// Makes what runs follow what was noted. Without a database, settings stay as they were read last.
    pub async fn configure(&mut self, db: Option<&Replica>) {
        base::coverage!(bridge_reconfigure);
        self.bridges.values_mut().for_each(Bridge::retry_failed);
        let may_move = std::mem::take(&mut self.is_changed);
        if may_move {
            self.bridges.values_mut().for_each(Bridge::retry_numbers);
            self.bridges.values_mut().for_each(Bridge::reopen_removed);
        }
        let mut is_closed = false;
        if let Some(db) = db {
            is_closed |= self.read(db);
        }
        self.apply_switch_settings().await;
        let permissions = self.permissions().await;
        for bridge in self.bridges.values_mut().filter(|bridge| bridge.work.is_due()) {
            is_closed |= bridge.close();
        }
        drop(permissions);
        if is_closed {
            self.devices.synchronize().await;
        }
        let permissions = self.permissions().await;
        self.apply(may_move);
        drop(permissions);
        for bridge in self.bridges.values_mut() {
            if let Some(emptying) = bridge.running.control.emptying.take() {
                // Fails only if it panicked, which was reported where it did.
                let _ = emptying.await;
            }
        }
        // The configuration is running when cached flows follow it.
        for (_, dp) in self.devices.datapaths() {
            dp.switch.settled().await;
        }
    }

    /// Waits until no long change of a bridge with work goes on. None begins until the permissions are dropped.
    async fn permissions(&self) -> Vec<ofproto::ShortChange> {
        let mut all = Vec::new();
        for bridge in self.bridges.values().filter(|bridge| bridge.work.is_due()) {
            all.push(bridge.running.ofproto.short_change().await);
        }
        all
    }

    async fn apply_switch_settings(&mut self) {
        let n_datapaths = self.devices.n_datapaths();
        if std::mem::replace(&mut self.n_datapaths, n_datapaths) != n_datapaths {
            self.settings.follow(Event::Datapath);
        }
        let mut target = SwitchTarget {
            devices: &self.devices,
            own_tls: &mut self.own_tls,
            command_line: &self.command_line_tls,
            jobs: Jobs::default(),
        };
        self.settings.apply(&mut target, &mut self.counts.lock());
        // Whether flows are offloaded is part of each port's status.
        self.is_unreported |= !target.jobs.0.is_empty();
        for job in target.jobs.0 {
            // Fails only if it panicked, which was reported where it did.
            let _ = tokio::task::spawn_blocking(job).await;
        }
    }

    /// Has the bridges with work follow; interfaces may get other numbers if `may_move`.
    fn apply(&mut self, may_move: bool) {
        let counts = Arc::clone(&self.counts);
        let counts = &mut *counts.lock();
        for bridge in self.bridges.values_mut().filter(|bridge| bridge.work.is_due()) {
            bridge.open(&self.devices, may_move, counts);
        }
        let patches = self.patches();
        for bridge in self.bridges.values_mut().filter(|bridge| bridge.work.is_due()) {
            let kind = bridge.running.datapath_type.clone();
            let peer_of = |own: &str, peer: &str| {
                let (id, no, back) = patches.get(&(kind.clone(), peer.to_owned()))?;
                (back == own).then_some((*id, *no))
            };
            bridge.publish(&peer_of, &self.confinement, counts);
        }
        let changed = self.bridges.values_mut().map(|bridge| bridge.enabled.take_changed());
        let changed = changed.fold(std::mem::take(&mut self.ended_protocols), ProtocolSet::union);
        protocol_settings::configure(changed, &self.bridges, &self.devices);
    }

    /// If patch ports changed: all of them by datapath type and name, each with its bridge, number and peer. The peer may
    /// be on any bridge of the same datapath, so that all are published again.
    fn patches(&mut self) -> BTreeMap<(String, String), (u32, base::PortNo, String)> {
        let mut patches = BTreeMap::new();
        if !self.bridges.values().any(Bridge::has_work_for_patches) {
            return patches;
        }
        for bridge in self.bridges.values_mut() {
            bridge.republish_patches();
            for (name, (id, no, peer)) in bridge.patches() {
                patches.insert((bridge.running.datapath_type.clone(), name.to_owned()), (id, no, peer.to_owned()));
            }
        }
        patches
    }

    /// Reads what is stale, and makes and ends bridges. Returns whether devices were closed.
    fn read(&mut self, db: &Replica) -> bool {
        let root = db.all(db::OpenVSwitch).next();
        if root.map(|row| row.reference()) != self.root {
            self.root = root.map(|row| row.reference());
            self.is_stale = true;
        }
        if std::mem::take(&mut self.is_stale) {
            self.settings.set_stale();
            (self.is_switch_stale, self.is_bridge_list_stale) = (true, true);
            for bridge in self.bridges.values_mut() {
                bridge.set_stale();
            }
        }
        let mut is_closed = false;
        self.next_cfg = root.map_or(0, |root| root.get(open_vswitch::NEXT_CFG));
        if std::mem::take(&mut self.is_bridge_list_stale) || !self.failed.is_empty() {
            is_closed = self.read_bridge_list(db, root);
        }
        let counts = &mut *self.counts.lock();
        if std::mem::take(&mut self.is_switch_stale) {
            self.settings.read(db, root, &Location::Switch, (&mut self.references, counts));
        }
        let Some(root) = root else { return is_closed };
        for bridge in self.bridges.values_mut().filter(|bridge| bridge.work.is_due()) {
            read::read_bridge(bridge, db, root, (&mut self.references, counts));
        }
        is_closed
    }

    /// Makes and ends bridges as the list in the root row has them. Returns whether any ended.
    fn read_bridge_list(&mut self, db: &Replica, root: Option<Row<'_, db::OpenVSwitch>>) -> bool {
        let rows = root.into_iter().flat_map(|root| root.get(open_vswitch::BRIDGES)).filter_map(|row| db.find(row));
        let (mut wanted, mut warnings) = (BTreeMap::new(), BTreeSet::new());
        for row in rows {
            let name = row.get(bridge::NAME);
            if name.contains('/') || name.is_empty() {
                warnings.insert(format!("ignoring bridge with invalid name \"{name}\""));
                continue;
            }
            let datapath_type = match row.get(bridge::DATAPATH_TYPE) {
                "" => "system",
                other => other,
            };
            wanted.insert(name.to_owned(), (row.reference(), datapath_type.to_owned()));
        }
        self.references.warn(&self.warnings, &warnings);
        self.warnings = warnings;
        let stays = |name: &String, bridge: &Bridge| {
            wanted.get(name).is_some_and(|(_, kind)| *kind == bridge.running.datapath_type)
        };
        let ended: Vec<String> = self.bridges.iter().filter(|(n, b)| !stays(n, b)).map(|(n, _)| n.clone()).collect();
        for name in &ended {
            if let Some(mut bridge) = self.bridges.remove(name) {
                self.ended_protocols = self.ended_protocols.union(bridge.enabled.all());
                bridge.forget(&mut self.references);
                // Ports of other bridges may lose their peers.
                if bridge.has_patches() {
                    self.bridges.values_mut().for_each(|other| other.work.is_patch_changed |= other.has_patches());
                }
            }
        }
        let failed = std::mem::take(&mut self.failed);
        for (name, (row, datapath_type)) in wanted {
            if let Some(bridge) = self.bridges.get_mut(&name) {
                if bridge.row != row {
                    let at = Location::Bridge(name);
                    self.references.disown(bridge.row.uuid(), &at);
                    self.references.own(row.uuid(), at);
                    bridge.row = row;
                    bridge.set_stale();
                }
                continue;
            }
            match RunningBridge::new(&name, &datapath_type, &self.devices) {
                Ok(running) => {
                    self.references.own(row.uuid(), Location::Bridge(name.clone()));
                    self.bridges.insert(name.clone(), Bridge::new(row, &name, running));
                }
                Err(error) => {
                    if failed.get(&name).is_none_or(|(_, before)| *before != error) {
                        tracing::error!(target: "bridge", "failed to create bridge {name}: {error}");
                    }
                    self.failed.insert(name, (row, error));
                }
            }
        }
        !ended.is_empty()
    }

    /// Returns the bridge and interface names of the `n` running interfaces after `last`, or of the first `n`.
    pub fn interfaces_after(&self, last: Option<&(String, String)>, n: usize) -> Vec<(String, String)> {
        let from = last.map_or(Bound::Unbounded, |(bridge, _)| Bound::Included(bridge.as_str()));
        let bridges = self.bridges.range::<str, _>((from, Bound::Unbounded));
        let after = |bridge: &str| match last {
            Some((of, name)) if of == bridge => Bound::Excluded(name.as_str()),
            _ => Bound::Unbounded,
        };
        let interfaces = bridges.flat_map(|(name, bridge)| {
            let interfaces = bridge.running.interfaces.range::<str, _>((after(name), Bound::Unbounded));
            interfaces.map(move |(interface, _)| (name.clone(), interface.clone()))
        });
        interfaces.take(n).collect()
    }

    /// Writes the state and the statistics of these interfaces.
    pub fn report_statistics(&self, interfaces: &[(String, String)], txn: &mut Transaction<'_>) {
        for (bridge, name) in interfaces {
            if let Some(bridge) = self.bridges.get(bridge) {
                bridge.report_interface(name, Report::Statistics, txn);
            }
        }
    }

    /// Writes the state of the running bridges and interfaces: of all (`is_all`), or of those that changed since the last
    /// report. Statistics of interfaces are written by [`Configuration::report_statistics`].
    pub fn report(&mut self, what: Report, is_all: bool, txn: &mut Transaction<'_>) -> Written {
        if let Some(row) = self.root {
            txn.set(row, open_vswitch::CUR_CFG, self.next_cfg);
            self.settings.report(
                SwitchReport { row, devices: &self.devices, host_versions: self.host_versions },
                what,
                txn,
            );
        }
        let is_all = std::mem::take(&mut self.is_unreported) || is_all;
        for bridge in self.bridges.values_mut() {
            let names = std::mem::take(&mut bridge.work.unreported);
            let is_unreported = std::mem::take(&mut bridge.work.is_unreported);
            if !txn.contains(bridge.row) {
                // Deleted since it was read; its end is to come.
                continue;
            }
            if is_all || is_unreported || !names.is_empty() {
                bridge.report(what, txn);
                bridge.enabled.set_reported();
            }
            let names = match what {
                Report::Status if is_all => bridge.running.interfaces.keys().cloned().collect(),
                _ => names,
            };
            names.iter().for_each(|name| bridge.report_state(name, txn));
        }
        for (row, error) in self.failed.values() {
            report_failure(*row, error, txn);
        }
        let trunks = lldp::trunks(&self.bridges);
        lldp::write_trunks(txn, &self.trunked, &trunks);
        Written { trunks }
    }

    /// Writes the state of protocols.
    pub fn report_protocols(&self, txn: &mut Transaction<'_>) {
        for bridge in self.bridges.values().filter(|bridge| !bridge.enabled.all().is_empty()) {
            if txn.contains(bridge.row) {
                bridge.report(Report::Protocols, txn);
                bridge.interfaces.keys().for_each(|name| bridge.report_interface(name, Report::Protocols, txn));
            }
        }
    }

    /// Notes that the database has what was written.
    pub fn written(&mut self, written: Written) {
        self.trunked = written.trunks;
    }

    /// The settings of all objects as text, with their warnings, for tests.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = self.settings.describe();
        for (name, bridge) in &self.bridges {
            lines.extend(bridge.settings.describe().iter().map(|line| format!("{name}: {line}")));
            for port in bridge.ports.values() {
                let at = format!("{name} {} {:?}", port.name, port.interfaces);
                lines.extend(port.settings.describe().iter().map(|line| format!("{at}: {line}")));
            }
            for (interface, of) in &bridge.interfaces {
                lines.push(format!("{name} {interface}: {:?}", InterfaceSpec { ofport: None, ..of.spec.clone() }));
                lines.extend(of.settings.describe().iter().map(|line| format!("{name} {interface}: {line}")));
            }
        }
        lines.extend(self.references.warnings().into_iter().map(|warning| format!("warning: {warning}")));
        lines
    }
}

/// Writes to the interfaces of a bridge why it could not be made.
fn report_failure(row: Ref<db::Bridge>, error: &str, txn: &mut Transaction<'_>) {
    let ports: Vec<_> = txn.get(row, bridge::PORTS).into_iter().collect();
    let interfaces: Vec<_> =
        ports.into_iter().flat_map(|port| txn.get(port, port::INTERFACES).into_iter().collect::<Vec<_>>()).collect();
    for row in interfaces.into_iter().filter(|row| txn.contains(*row)).collect::<Vec<_>>() {
        txn.set(row, interface::OFPORT, Some(-1));
        txn.set(row, interface::ERROR, Some(error));
    }
}

#[cfg(test)]
mod tests;
