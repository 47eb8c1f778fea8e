//! One bridge as the database has it: its rows, the settings of its ports and interfaces, and the work that
//! remains until the running bridge follows them.
//!
//! A change of a row adds to that work ([`Work`]) just the ports and interfaces that it concerns. Each step takes time
//! in proportion to them, apart from a comparison of the list of ports when that changed.

use crate::confinement::Confinement;
use crate::devices::Devices;
use crate::feature::{Counts, Event, Report, Settings};
use crate::features::address::PortAddress;
use crate::features::controllers::Controllers;
use crate::features::identity::{self, Identity};
use crate::features::mtu::{self, Mtu};
use crate::features::qos::Qos;
use crate::features::vlan::Vlan;
use crate::interface::{Behind, InterfaceError, InterfaceSpec, RunningInterface, is_internal};
use crate::levels::{BridgeLevel, BridgeReport, BridgeTarget, InterfaceLevel, InterfaceReport, InterfaceTarget};
use crate::levels::{PortLevel, PortReport, PortTarget};
use crate::ofport::{Claim, Numbers};
use crate::protocol_settings::{Enabled, Marks};
use crate::references::{Location, References};
use crate::running::RunningBridge;
use base::{MacAddr, PortNo};
use ofproto::PortEdits;
use ofproto::bridge::PortChange;
use ovsdb::Uuid;
use ovsdb_client::Transaction;
use ovsdb_client::schemas::vswitch as db;
use ovsdb_client::typed::Ref;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xlate::PortOut;

mod fake_interface;
mod protocols;

/// The bridge and port of the peer, by the names of a patch port's interface and of the peer that it names.
pub type PeerOf<'a> = &'a dyn Fn(&str, &str) -> Option<(u32, PortNo)>;

/// The MTU of an internal interface on a bridge without others.
const MTU: u32 = 1500;

/// A bridge.
#[derive(Debug)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// Its row.
    pub row: Ref<db::Bridge>,
    /// What runs of it.
    pub running: RunningBridge,
    pub(crate) settings: Settings<BridgeLevel>,
    /// By row; the row of a local port that the database lacks is zero.
    pub(crate) ports: BTreeMap<Uuid, Port>,
    /// The list of ports as it was read last, sorted.
    pub(crate) port_list: Vec<Uuid>,
    /// The rows of ports by name.
    pub(crate) port_names: BTreeMap<String, Uuid>,
    /// By name.
    pub(crate) interfaces: BTreeMap<String, Interface>,
    /// The rows of the bonds that are to have fake interfaces.
    fake_interfaces: BTreeSet<Uuid>,
    pub(crate) work: Work,
    numbers: Numbers,
    /// Addresses of ports that count for the bridge's, and MTUs of interfaces that others follow, with how many have them.
    addresses: BTreeMap<MacAddr, usize>,
    mtus: BTreeMap<u32, usize>,
    /// What internal interfaces followed last.
    mtu: u32,
    mac: Option<MacAddr>,
    /// Interfaces that could not be opened.
    failed: BTreeSet<String>,
    patches: BTreeSet<String>,
    pub(crate) enabled: Enabled,
    pub(crate) warnings: BTreeSet<String>,
}

/// A port of the database.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) row: Ref<db::Port>,
    pub(crate) name: String,
    /// Names of its interfaces, sorted.
    pub(crate) interfaces: Vec<String>,
    pub(crate) settings: Settings<PortLevel>,
}

/// An interface of the database.
#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) spec: InterfaceSpec,
    /// The row of its port.
    pub(crate) port: Uuid,
    pub(crate) settings: Settings<InterfaceLevel>,
    /// What it adds to the bridge's addresses and MTUs.
    counted: (Option<MacAddr>, Option<u32>),
}

impl Interface {
    pub(crate) fn new(spec: InterfaceSpec, port: Uuid) -> Self {
        Self { spec, port, settings: Settings::default(), counted: (None, None) }
    }
}

/// The work that remains until the running bridge follows the database.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The list of ports is to be read.
    pub(crate) is_port_list_stale: bool,
    /// Settings of the bridge are to be read.
    pub(crate) is_stale: bool,
    /// Settings of the bridge are to be applied.
    pub(crate) is_pending: bool,
    /// Ports whose name and interfaces are to be read.
    pub(crate) stale_ports: BTreeSet<Uuid>,
    /// Ports whose settings are to be read.
    pub(crate) stale_port_settings: BTreeSet<Uuid>,
    /// Interfaces whose settings are to be read.
    pub(crate) stale_interfaces: BTreeSet<String>,
    /// Interfaces to open, close, number, configure and publish.
    pub(crate) interfaces: BTreeSet<String>,
    /// Ports whose bundles are to be published.
    pub(crate) bundles: BTreeSet<Uuid>,
    /// Names of bundles whose ports are gone.
    pub(crate) removed_bundles: BTreeSet<String>,
    /// All interfaces are to be numbered.
    is_numbering_stale: bool,
    /// Patch ports came, went or have other numbers.
    pub(crate) is_patch_changed: bool,
    /// Interfaces whose state is to be written to the database.
    pub(crate) unreported: BTreeSet<String>,
    /// The bridge's state is to be written to the database.
    pub(crate) is_unreported: bool,
}

impl Work {
    /// Whether anything is to be read or done, apart from reports.
    pub(crate) fn is_due(&self) -> bool {
        self.is_port_list_stale
            || self.is_stale
            || self.is_pending
            || self.is_patch_changed
            || self.is_numbering_stale
            || !self.stale_ports.is_empty()
            || !self.stale_port_settings.is_empty()
            || !self.stale_interfaces.is_empty()
            || !self.interfaces.is_empty()
            || !self.bundles.is_empty()
            || !self.removed_bundles.is_empty()
    }
}

impl Bridge {
    /// A bridge of which nothing was read.
    pub fn new(row: Ref<db::Bridge>, name: &str, running: RunningBridge) -> Self {
        let work = Work { is_port_list_stale: true, is_stale: true, is_unreported: true, ..Work::default() };
        Self {
            name: name.to_owned(),
            row,
            running,
            settings: Settings::default(),
            ports: BTreeMap::new(),
            port_list: Vec::new(),
            port_names: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            fake_interfaces: BTreeSet::new(),
            work,
            numbers: Numbers::default(),
            addresses: BTreeMap::new(),
            mtus: BTreeMap::new(),
            mtu: MTU,
            mac: None,
            failed: BTreeSet::new(),
            patches: BTreeSet::new(),
            enabled: Enabled::default(),
            warnings: BTreeSet::new(),
        }
    }

    /// Removes the bridge's references to rows.
    pub(crate) fn forget(&mut self, references: &mut References) {
        for (name, running) in &self.running.interfaces {
            log_deleted(&self.name, name, running.published);
        }
        let rows: Vec<Uuid> = self.ports.keys().copied().collect();
        rows.into_iter().for_each(|row| self.remove_port(row, references));
        let at = Location::Bridge(self.name.clone());
        self.settings.forget(&at, references);
        references.warn(&std::mem::take(&mut self.warnings), &BTreeSet::new());
        references.disown(self.row.uuid(), &at);
    }

    /// Takes a port and its interfaces out of the bridge.
    pub(crate) fn remove_port(&mut self, row: Uuid, references: &mut References) {
        self.want_fake_interface(row, false);
        let Some(mut port) = self.ports.remove(&row) else { return };
        self.enabled.remove_port(&row);
        let at = Location::Port(self.name.clone(), row);
        port.settings.forget(&at, references);
        references.disown(row, &at);
        if self.port_names.get(&port.name) == Some(&row) {
            self.port_names.remove(&port.name);
            self.work.removed_bundles.insert(port.name);
        }
        for name in port.interfaces {
            self.remove_interface(&name, row, references);
        }
    }

    /// Takes an interface out of the bridge, unless it belongs to another port by now.
    pub(crate) fn remove_interface(&mut self, name: &str, port: Uuid, references: &mut References) {
        if self.interfaces.get(name).is_none_or(|interface| interface.port != port) {
            return;
        }
        self.work.interfaces.insert(name.to_owned());
        self.work.bundles.insert(port);
        let Some(mut interface) = self.interfaces.remove(name) else { return };
        let at = Location::Interface(self.name.clone(), name.to_owned());
        interface.settings.forget(&at, references);
        references.disown(interface.spec.row.uuid(), &at);
        self.count(&interface.counted, &(None, None));
        self.enabled.remove_interface(name, &port);
    }

    /// The row of the port of an interface.
    pub fn port_row(&self, interface: &str) -> Option<Ref<db::Port>> {
        self.ports.get(&self.interfaces.get(interface)?.port).map(|port| port.row)
    }

    /// Adds the interfaces to the work whose device changed or could not be opened.
    pub(crate) fn look_for_changed_devices(&mut self) {
        let changed = self.running.interfaces.iter().filter(|(_, running)| running.needs_attention());
        self.work.interfaces.extend(changed.map(|(name, _)| name.clone()));
        self.retry_failed();
    }

    /// Adds the interfaces to the work that could not be opened.
    pub(crate) fn retry_failed(&mut self) {
        self.work.interfaces.extend(self.failed.iter().cloned());
    }

    /// Adds the interfaces to the work that could not be opened, and may be opened now although nothing announces it.
    /// Returns whether there are any.
    pub(crate) fn look_for_retries(&mut self) -> bool {
        let is_due =
            |name: &&String| self.running.interfaces.get(*name).is_some_and(RunningInterface::is_to_be_retried);
        let due: Vec<String> = self.failed.iter().filter(is_due).cloned().collect();
        let is_any = !due.is_empty();
        self.work.interfaces.extend(due);
        is_any
    }

    /// Looks up how controllers and managers are reached. A bridge whose tables are being changed waits for the next time.
    pub(crate) fn refresh_in_band(&mut self) {
        if !self.running.ofproto.is_changing() {
            self.running.control.refresh_in_band(&self.running.ofproto);
        }
    }

    /// Tries again to listen and to connect where that failed.
    pub(crate) fn retry_control(&mut self, confinement: &Confinement) {
        let spec = self.settings.spec::<Controllers>();
        self.running.control.retry(&self.running.ofproto, spec, confinement);
    }

    /// Closes the interfaces of the work that are not in the database any more, or not as they are, and those whose
    /// device is gone. To be called for all bridges before any opens interfaces, which may be the same under another
    /// bridge. Returns whether a device was closed: packet threads may use it a little longer.
    pub(crate) fn close(&mut self) -> bool {
        self.drop_degraded_fake_interfaces();
        let mut removed = Vec::new();
        let mut is_closed = false;
        for name in &self.work.interfaces {
            let Some(running) = self.running.interfaces.get_mut(name) else {
                self.failed.remove(name);
                continue;
            };
            let wanted = self.interfaces.get_mut(name);
            if wanted.as_ref().is_some_and(|wanted| running.can_stay(&wanted.spec)) {
                continue;
            }
            log_deleted(&self.name, name, running.published);
            removed.extend(running.published);
            if let Some(number) = running.ofport {
                self.work.is_numbering_stale |= self.numbers.release(number);
            }
            if let Some(wanted) = wanted {
                // It keeps its number if it is opened again.
                wanted.spec.ofport = running.ofport.and_then(|no| u16::try_from(no.0).ok()).or(wanted.spec.ofport);
                self.work.bundles.insert(wanted.port);
            }
            self.work.is_patch_changed |= self.patches.remove(name);
            self.failed.remove(name);
            is_closed |= running.device().is_some();
            self.running.interfaces.remove(name);
        }
        if !removed.is_empty() {
            let edits = PortEdits { removed, ..self.bundle_edits() };
            let changes = self.running.ofproto.edit_ports(edits);
            self.running.ofproto.send_port_changes(&changes);
            self.settings.follow(Event::Ports);
            self.work.is_pending = true;
        }
        is_closed
    }

    /// Has interfaces numbered that did not get the numbers that they request.
    pub(crate) fn retry_numbers(&mut self) {
        self.work.is_numbering_stale |= self.numbers.is_contended();
    }

    /// Has interfaces opened again whose datapath port was removed by hand.
    pub(crate) fn reopen_removed(&mut self) {
        let removed = self
            .running
            .interfaces
            .iter_mut()
            .filter_map(|(name, running)| running.reopen_if_removed().then(|| name.clone()));
        self.work.interfaces.extend(removed);
    }

    /// Opens the interfaces of the work, gives them their settings and numbers; interfaces that are there may get other
    /// numbers if `may_move`. Patch ports find their peers afterwards, when all bridges have theirs
    /// ([`Bridge::publish`]).
    pub(crate) fn open(&mut self, devices: &Devices, may_move: bool, counts: &mut Counts) {
        let names: Vec<String> = self.work.interfaces.iter().cloned().collect();
        for name in &names {
            self.open_interface(name, devices, counts);
        }
        if !self.fake_interfaces.is_empty() {
            // Members of bonds get their numbers first.
            self.number_interfaces(may_move);
            self.open_fake_interfaces(devices, counts);
        }
        let mtu = self.mtus.keys().next().copied().unwrap_or(MTU);
        if mtu != self.mtu {
            self.mtu = mtu;
            let internal = |running: &RunningInterface| running.device().is_some_and(|device| is_internal(&**device));
            let internal = self.running.interfaces.iter().filter(|(_, running)| internal(running));
            self.work.interfaces.extend(internal.map(|(name, _)| name.clone()));
        }
        for name in &self.work.interfaces {
            if let (Some(interface), Some(running)) = (self.interfaces.get(name), self.running.interfaces.get_mut(name))
            {
                mtu::follow(running, *interface.settings.spec::<Mtu>(), mtu);
            }
        }
        self.number_interfaces(may_move);
    }

    fn open_interface(&mut self, name: &str, devices: &Devices, counts: &mut Counts) {
        let Some(interface) = self.interfaces.get_mut(name) else { return };
        let (spec, dp, names) = (&interface.spec, &self.running.dp, (&*self.name, name));
        let running = match self.running.interfaces.get_mut(name) {
            Some(running) => {
                running.update(names, spec, devices, dp);
                running
            }
            None => {
                let running = RunningInterface::new(names, spec, devices, dp);
                self.running.interfaces.entry(name.to_owned()).or_insert(running)
            }
        };
        if running.device_changed() {
            interface.settings.follow(Event::Device);
        }
        let mut target = InterfaceTarget { running, protocols: Marks::default() };
        interface.settings.apply(&mut target, counts);
        self.enabled.mark_interface(name, &target.protocols);
        // Address and number are part of what protocols announce.
        self.enabled.touch(name, &interface.port);
        if running.state.is_err() {
            self.failed.insert(name.to_owned());
        } else {
            self.failed.remove(name);
        }
        if matches!(running.state, Ok(Behind::Patch(..))) {
            self.work.is_patch_changed |= self.patches.insert(name.to_owned());
        } else {
            self.work.is_patch_changed |= self.patches.remove(name);
        }
        let before = interface.counted;
        let port = self.ports.get(&interface.port);
        let is_first = port.is_some_and(|port| port.interfaces.first().is_some_and(|first| first == name));
        let configured = port.and_then(|port| *port.settings.spec::<PortAddress>());
        let mac = running.own_mac().filter(|_| is_first).map(|own| configured.unwrap_or(own));
        let after = (mac.filter(|mac| identity::counts(*mac)), running.own_mtu());
        interface.counted = after;
        self.work.bundles.insert(interface.port);
        self.count(&before, &after);
    }

    /// Replaces what an interface adds to addresses and MTUs.
    fn count(&mut self, before: &(Option<MacAddr>, Option<u32>), after: &(Option<MacAddr>, Option<u32>)) {
        recount(&mut self.addresses, before.0, after.0);
        recount(&mut self.mtus, before.1, after.1);
    }

    fn number_interfaces(&mut self, may_move: bool) {
        let mut is_stale = std::mem::take(&mut self.work.is_numbering_stale);
        for name in &self.work.interfaces {
            let Some(running) = self.running.interfaces.get_mut(name) else { continue };
            let Some(interface) = self.interfaces.get(name) else { continue };
            let is_local = *name == self.name;
            if running.state.is_err() {
                if let Some(number) = running.ofport.take() {
                    is_stale |= self.numbers.release(number);
                }
                continue;
            }
            match self.numbers.assign_one(&claim(is_local, &interface.spec, running, may_move)) {
                Some(number) => running.ofport = Some(number),
                None => is_stale = true,
            }
        }
        if is_stale {
            self.number_all(may_move);
        }
    }

    fn number_all(&mut self, may_move: bool) {
        let (mut claims, mut claimants) = (Vec::new(), Vec::new());
        for (name, running) in &mut self.running.interfaces {
            let Some(interface) = self.interfaces.get(name).filter(|_| running.state.is_ok()) else { continue };
            claims.push(claim(*name == self.name, &interface.spec, running, may_move));
            claimants.push((name, running));
        }
        let numbers = self.numbers.assign(&claims);
        for ((name, running), number) in claimants.into_iter().zip(numbers) {
            if running.ofport != number {
                running.ofport = number;
                self.work.interfaces.insert(name.clone());
                self.work.bundles.extend(self.interfaces.get(name).map(|interface| interface.port));
                self.work.is_patch_changed |= self.patches.contains(name);
            }
            if number.is_none() {
                running.state = Err(InterfaceError::NoNumber(name.clone()));
            }
        }
    }

    /// Whether patch ports are to be published, or came, went or have other numbers.
    pub(crate) fn has_work_for_patches(&self) -> bool {
        self.work.is_patch_changed || self.work.interfaces.iter().any(|name| self.patches.contains(name))
    }

    /// Has everything read again.
    pub(crate) fn set_stale(&mut self) {
        self.settings.set_stale();
        (self.work.is_stale, self.work.is_port_list_stale, self.work.is_unreported) = (true, true, true);
        for (row, port) in &mut self.ports {
            port.settings.set_stale();
            self.work.stale_ports.insert(*row);
            self.work.stale_port_settings.insert(*row);
        }
        for (name, interface) in &mut self.interfaces {
            interface.settings.set_stale();
            self.work.stale_interfaces.insert(name.clone());
        }
    }

    /// Whether it has patch ports.
    pub(crate) fn has_patches(&self) -> bool {
        !self.patches.is_empty()
    }

    /// Has the patch ports published again, whose peers may be other ones.
    pub(crate) fn republish_patches(&mut self) {
        self.work.interfaces.extend(self.patches.iter().cloned());
    }

    /// The patch ports: name, number, and the name of the peer.
    pub(crate) fn patches(&self) -> impl Iterator<Item = (&str, (u32, PortNo, &str))> {
        self.patches.iter().filter_map(|name| Some((name.as_str(), self.running.find_patch(name)?)))
    }

    /// Publishes the ports of the work, and applies the settings of the bridge. `peer_of` gives the bridge and port of a
    /// patch port's peer, if that names this interface as its own peer.
    pub(crate) fn publish(&mut self, peer_of: PeerOf<'_>, confinement: &Confinement, counts: &mut Counts) {
        let mac = self.follow_address();
        let mut edits = self.bundle_edits();
        let (mut added, mut marks) = (Vec::new(), Vec::new());
        for name in &self.work.interfaces {
            let Some(running) = self.running.interfaces.get_mut(name) else { continue };
            if !running.register(self.running.ofproto.id()) {
                self.failed.insert(name.clone());
            }
            let port = port_spec(name, running, &self.running.datapath_type, peer_of);
            let number = port.as_ref().map(|port| port.no);
            let before = std::mem::replace(&mut running.published, number);
            if before != number {
                log_deleted(&self.name, name, before);
                added.extend(number.map(|number| (name, number)));
            }
            edits.removed.extend(before.filter(|_| before != number));
            edits.ports.extend(port);
            if let Some((number, interface)) = number.zip(self.interfaces.get(name)) {
                marks.push((number, interface.settings.spec::<Qos>().marks.clone()));
            }
        }
        for (name, number) in added {
            let number = number.to_of10();
            tracing::info!(target: "bridge", "bridge {}: added interface {name} on port {number}", self.name);
        }
        // A number that another interface has now is replaced.
        let taken: BTreeSet<PortNo> = edits.ports.iter().map(|port| port.no).collect();
        edits.removed.retain(|no| !taken.contains(no));
        let unmarked = edits.removed.iter().map(|no| (*no, BTreeMap::new()));
        self.running.ofproto.set_queue_marks(unmarked.chain(marks));
        let mut changes = self.running.ofproto.edit_ports(edits);
        if !changes.is_empty() {
            self.settings.follow(Event::Ports);
            self.work.is_pending = true;
        }
        self.add_link_changes(&mut changes);
        self.running.ofproto.send_port_changes(&changes);
        if std::mem::take(&mut self.work.is_pending) {
            let mut target = BridgeTarget { running: &mut self.running, mac, confinement, protocols: Marks::default() };
            self.settings.apply(&mut target, counts);
            self.enabled.mark_bridge(&target.protocols);
            self.work.is_unreported = true;
        }
        self.work.unreported.append(&mut self.work.interfaces);
        self.work.is_patch_changed = false;
    }

    /// Gives the local port the bridge's address, and has all that follows it done if it is another one.
    fn follow_address(&mut self) -> MacAddr {
        let ports = self.addresses.keys().next().copied();
        let mac = identity::bridge_mac(self.settings.spec::<Identity>(), ports, self.row.uuid());
        if let Some(local) = self.running.interfaces.get_mut(&self.name)
            && let Some(device) = local.device().filter(|device| device.mac() != mac)
        {
            let error = device.set_mac(mac).err();
            local.complain("hwaddr", error);
            self.work.interfaces.insert(self.name.clone());
        }
        if self.mac.replace(mac) != Some(mac) {
            self.settings.follow(Event::Ports);
            self.work.is_pending = true;
            self.enabled.touch_all();
        }
        mac
    }

    /// The bundles of the work, as they are to be.
    fn bundle_edits(&mut self) -> PortEdits {
        let mut edits = PortEdits::default();
        edits.removed_bundles.extend(std::mem::take(&mut self.work.removed_bundles));
        for row in std::mem::take(&mut self.work.bundles) {
            let Some(port) = self.ports.get(&row) else { continue };
            let number = |name: &String| self.running.interfaces.get(name).filter(|i| !i.is_removed())?.ofport;
            let mut numbers: Vec<PortNo> = port.interfaces.iter().filter_map(number).collect();
            numbers.sort_unstable();
            edits.removed_bundles.retain(|name| *name != port.name);
            if numbers.is_empty() {
                edits.removed_bundles.push(port.name.clone());
            } else {
                edits.bundles.push(port.settings.spec::<Vlan>().bundle(&port.name, numbers));
            }
        }
        edits
    }

    /// Adds the ports whose link went up or down to the changes that controllers receive.
    fn add_link_changes(&mut self, changes: &mut Vec<PortChange>) {
        for name in &self.work.interfaces {
            let Some(running) = self.running.interfaces.get_mut(name) else { continue };
            let is_there = |no| {
                changes.iter().any(|c| matches!(c, PortChange::Added(p) | PortChange::Modified(p) if p.spec.no == no))
            };
            if running.link_changed()
                && let Some(no) = running.ofport
                && !is_there(no)
                && let Some(port) = self.running.ofproto.port(no)
            {
                changes.push(PortChange::Modified(port));
            }
        }
    }

    /// Applies the settings of ports that are to be applied.
    pub(crate) fn apply_port_settings(&mut self, row: Uuid, counts: &mut Counts) {
        let Some(port) = self.ports.get_mut(&row) else { return };
        let mut target = PortTarget::default();
        port.settings.apply(&mut target, counts);
        self.enabled.mark_port(row, &target.protocols);
        if target.is_bundle_changed {
            self.work.bundles.insert(row);
        }
        if target.is_address_changed {
            self.work.interfaces.extend(port.interfaces.first().cloned());
        }
    }

    /// Writes the state of the bridge to the database.
    pub(crate) fn report(&self, what: Report, txn: &mut Transaction<'_>) {
        self.settings.report(BridgeReport { row: self.row, running: &self.running }, what, txn);
        if !self.enabled.has_port_states() {
            return;
        }
        for Port { row, name, interfaces, settings } in self.ports.values() {
            if txn.contains(*row) {
                settings.report(PortReport { row: *row, name, interfaces, bridge: &self.running }, what, txn);
            }
        }
    }

    /// Writes the state of an interface to the database, for the first time with its counters.
    pub(crate) fn report_state(&mut self, name: &str, txn: &mut Transaction<'_>) {
        let is_new =
            self.running.interfaces.get_mut(name).is_some_and(|running| std::mem::take(&mut running.is_uncounted));
        self.report_interface(name, if is_new { Report::Statistics } else { Report::Status }, txn);
    }

    /// Writes the state of an interface to the database.
    pub(crate) fn report_interface(&self, name: &str, what: Report, txn: &mut Transaction<'_>) {
        let (Some(interface), Some(running)) = (self.interfaces.get(name), self.running.interfaces.get(name)) else {
            return;
        };
        let row = interface.spec.row;
        if txn.contains(row) {
            interface.settings.report(InterfaceReport { row, running, bridge: &self.running }, what, txn);
        }
    }
}

fn recount<K: Ord + Copy>(all: &mut BTreeMap<K, usize>, before: Option<K>, after: Option<K>) {
    if let Some(before) = before
        && let Some(count) = all.get_mut(&before)
    {
        *count -= 1;
        if *count == 0 {
            all.remove(&before);
        }
    }
    if let Some(after) = after {
        *all.entry(after).or_default() += 1;
    }
}

fn log_deleted(bridge: &str, interface: &str, number: Option<PortNo>) {
    if let Some(number) = number.map(PortNo::to_of10) {
        tracing::info!(target: "bridge", "bridge {bridge}: deleted interface {interface} on port {number}");
    }
}

fn claim(local: bool, spec: &InterfaceSpec, running: &RunningInterface, may_move: bool) -> Claim {
    Claim {
        local,
        request: spec.ofport_request,
        held: running.ofport.and_then(|no| u16::try_from(no.0).ok()),
        remembered: spec.ofport,
        may_move,
    }
}

/// The OpenFlow port of an interface, if it has one.
fn port_spec(
    name: &str,
    running: &mut RunningInterface,
    datapath_type: &str,
    peer_of: PeerOf<'_>,
) -> Option<ofproto::PortSpec> {
    let no = running.ofport?;
    let mut tunnel = None;
    let (out, device, mac, flaw) = match &running.state {
        Err(_) => return None,
        Ok(Behind::Device(a)) => (PortOut::Device(a.port()?), Some(Arc::clone(a.device())), a.device().mac(), None),
        Ok(Behind::Tunnel(of)) => {
            let conflict = of.conflict();
            let out = if conflict.is_none() { PortOut::Tunnel(of.port()) } else { PortOut::Nowhere };
            tunnel = Some(Arc::clone(of.config()));
            (out, Some(Arc::clone(of.device())), of.device().mac(), conflict.map(ToString::to_string))
        }
        Ok(Behind::Patch(peer, mac)) => match peer_of(name, peer) {
            Some((bridge, port)) => (PortOut::Patch(bridge, port), None, *mac, None),
            None => {
                let flaw = format!("No usable peer '{peer}' exists in '{datapath_type}' datapath.");
                (PortOut::Nowhere, None, *mac, Some(flaw))
            }
        },
    };
    running.set_flaw(flaw);
    Some(ofproto::PortSpec { no, name: name.to_owned(), out, device, tunnel, mac })
}
