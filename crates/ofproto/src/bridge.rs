//! One bridge: its ports as OpenFlow and NORMAL see them, its identity, and its view for translations.

use crate::conn::Connections;
use crate::conn::remote::PeerKind;
use crate::expire::Expirable;
use crate::export::netflow::NetflowExport;
use crate::export::sflow::SflowExport;
use crate::gate::Gate;
use crate::ipfix::Running;
use crate::revalidate::Change;
use crate::rule_index::RuleIndex;
use crate::switch::Switch;
use crate::table_config::TableConfigs;
use crate::tlv::TlvTable;
use crate::transaction::Writer;
use arc_swap::ArcSwapOption;
use base::rng::Rng;
use base::{MacAddr, PortNo};
use netdev::Netdev;
use openflow::port::PortDesc;
use openflow::switch::FragHandling;
use parking_lot::{Mutex, RwLock, RwLockUpgradableReadGuard};
use protocols::TreeState;
use snooping::Flooding;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tunnel::options::Config;
use vlog::{RateLimit, warn_rl};
use xlate::model::{PriorityTags, QueueMarks, VlanSet, new_tables};
use xlate::{BridgeId, LocalSets, MacTable, Mirrors, PortConfig, PortOut, Snooping, Tables, VlanMode};

mod addresses;
mod view;

/// Rate limit of log messages about fragments: messages per minute, and burst.
static FRAGMENTS_LIMIT: RateLimit = RateLimit::new(60, 5);

/// A bridge.
#[derive(Debug)]
pub struct Ofproto {
    id: BridgeId,
    name: String,
    switch: Weak<Switch>,
    pub(crate) tables: Arc<Tables>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) gate: Gate,
    pub(crate) index: RuleIndex,
    macs: Arc<RwLock<MacTable>>,
    state: RwLock<State>,
    pub(crate) expirable: Expirable,
    pub(crate) table_configs: TableConfigs,
    connections: Connections,
    /// Identifies the bridge's own continuations: it cannot be guessed from outside. The lower 32 bits are free.
    mark: u128,
    pub(crate) tlvs: Mutex<TlvTable>,
    /// The IPFIX exporters, if there are any.
    pub(crate) ipfix: ArcSwapOption<Running>,
    /// The collector sets with collectors on this host, if there are any.
    pub(crate) local_sets: ArcSwapOption<LocalSets>,
    /// The sFlow agent, if there is one.
    pub(crate) sflow: ArcSwapOption<SflowExport>,
    /// The NetFlow exporter, if there is one.
    pub(crate) netflow: ArcSwapOption<NetflowExport>,
}

#[derive(Debug, Default)]
struct State {
    identity: Identity,
    ports: BTreeMap<PortNo, OfPort>,
    /// By name.
    bundles: BTreeMap<String, BundleSpec>,
    /// The names of the bundles that have a port.
    members: BTreeSet<(PortNo, String)>,
    forward_bpdu: bool,
    snooping: Option<Snooping>,
    mirrors: Option<Arc<Mirrors>>,
    flood_vlans: Option<Arc<VlanSet>>,
    dhcp_to_local: bool,
    queue_marks: Arc<QueueMarks>,
    fragments: FragHandling,
    miss_to_controller: bool,
}

/// The identity of a bridge in OFPST_DESC.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// Datapath id.
    pub datapath_id: u64,
    /// Manufacturer.
    pub mfr_desc: String,
    /// Hardware.
    pub hw_desc: String,
    /// Software.
    pub sw_desc: String,
    /// Serial number.
    pub serial_desc: String,
    /// The user's description.
    pub dp_desc: String,
}

/// The specification of a port.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// OpenFlow port number.
    pub no: PortNo,
    /// Name of the interface.
    pub name: String,
    /// The destination of its output.
    pub out: PortOut,
    /// Its device; `None` for patch ports.
    pub device: Option<Arc<dyn Netdev>>,
    /// The configuration of a tunnel port.
    pub tunnel: Option<Arc<Config>>,
    /// Its MAC address: that of the device, or a generated one for a patch port or a tunnel port.
    pub mac: MacAddr,
}

/// A port of a bridge.
#[derive(Clone, Debug)]
pub struct OfPort {
    /// The specification that it was created from.
    pub spec: PortSpec,
    /// Its configuration, set by port modifications.
    pub config: PortConfig,
    /// Its counters, if it is a patch port or a tunnel port.
    pub counters: Arc<OwnCounters>,
    /// The time when it was added, in milliseconds of the switch's clock.
    pub created_ms: u64,
    /// Its description in the last port status; `None` if there was none.
    pub(crate) reported: Arc<Mutex<Option<PortDesc>>>,
    /// Its state in the spanning tree.
    pub(crate) tree: Arc<Mutex<TreeState>>,
    /// Whether protocols consider it dead, as CFM and BFD decide.
    pub(crate) is_dead: Arc<AtomicBool>,
}

impl OfPort {
    /// Returns true if the port is up, and so is its link.
    pub(crate) fn is_live(&self) -> bool {
        !self.config.down && self.spec.device.as_ref().is_none_or(|device| device.has_carrier())
    }
}

/// The counters of a patch port or a tunnel port, which its translations count.
#[derive(Debug, Default)]
pub struct OwnCounters {
    /// Packets received.
    pub rx_packets: AtomicU64,
    /// Bytes received.
    pub rx_bytes: AtomicU64,
    /// Packets sent.
    pub tx_packets: AtomicU64,
    /// Bytes sent.
    pub tx_bytes: AtomicU64,
}

/// A port of the database: one bundle.
#[derive(Clone, PartialEq, Debug)]
pub struct BundleSpec {
    /// Its name.
    pub name: String,
    /// The OpenFlow ports in it.
    pub ports: Vec<PortNo>,
    /// How it treats tags.
    pub mode: VlanMode,
    /// Access, native or service VLAN.
    pub tag: u16,
    /// VLANs of a trunk; empty for all.
    pub trunks: Vec<u16>,
    /// Customer VLANs of a `dot1q-tunnel` port; empty for all.
    pub cvlans: Vec<u16>,
    /// Tags for priorities.
    pub priority_tags: PriorityTags,
    /// No traffic to other protected bundles.
    pub protected: bool,
    /// The multicast frames that it gets with multicast snooping, whatever its table contains.
    pub multicast: Flooding,
}

/// Changes of single ports and bundles of a bridge.
#[derive(Clone, Debug, Default)]
pub struct PortEdits {
    /// Ports to add, or to replace under their numbers.
    pub ports: Vec<PortSpec>,
    /// Numbers of ports to remove, before others are added.
    pub removed: Vec<PortNo>,
    /// Bundles to add, or to replace under their names.
    pub bundles: Vec<BundleSpec>,
    /// Names of bundles to remove.
    pub removed_bundles: Vec<String>,
}

/// The ports and bundles that an edit concerned.
#[derive(Debug, Default)]
pub(crate) struct Edited {
    pub(crate) ports: BTreeSet<PortNo>,
    pub(crate) bundles: BTreeSet<String>,
}

impl From<&PortEdits> for Edited {
    fn from(edits: &PortEdits) -> Self {
        let bundles = edits.bundles.iter().map(|bundle| &bundle.name).chain(&edits.removed_bundles);
        Self {
            ports: edits.ports.iter().map(|port| port.no).chain(edits.removed.iter().copied()).collect(),
            bundles: bundles.cloned().collect(),
        }
    }
}

impl State {
    /// The names of the bundles that have a port, in order.
    fn bundles_of(&self, no: PortNo) -> impl Iterator<Item = &str> {
        let from = self.members.range((no, String::new())..);
        from.take_while(move |(of, _)| *of == no).map(|(_, name)| name.as_str())
    }

    /// Returns the ports of a bond at which its learned addresses were and will be, if these are different ones.
    fn new_place(&self, bundle: &BundleSpec) -> Option<(PortNo, PortNo)> {
        let old = self.bundles.get(&bundle.name).filter(|old| old.ports.len().max(bundle.ports.len()) > 1)?;
        let (from, to) = (*old.ports.first()?, *bundle.ports.first()?);
        (from != to).then_some((from, to))
    }

    fn remove_bundle(&mut self, name: &str) {
        let Some(bundle) = self.bundles.remove(name) else { return };
        bundle.ports.into_iter().for_each(|no| _ = self.members.remove(&(no, bundle.name.clone())));
    }

    /// Adds a bundle, or replaces the one with its name.
    fn insert_bundle(&mut self, bundle: BundleSpec) {
        self.remove_bundle(&bundle.name);
        self.members.extend(bundle.ports.iter().map(|no| (*no, bundle.name.clone())));
        self.bundles.insert(bundle.name.clone(), bundle);
    }

    /// Whether ports and bundles are already as the edits would make them.
    fn has(&self, edits: &PortEdits) -> bool {
        let has_port = |spec: &PortSpec| self.ports.get(&spec.no).is_some_and(|port| port.spec.is_same(spec));
        edits.ports.iter().all(has_port)
            && edits.bundles.iter().all(|bundle| self.bundles.get(&bundle.name) == Some(bundle))
            && !edits.removed.iter().any(|no| self.ports.contains_key(no))
            && !edits.removed_bundles.iter().any(|name| self.bundles.contains_key(name))
    }
}

impl PortSpec {
    /// Returns true if both specifications are equal and have the same device.
    fn is_same(&self, other: &Self) -> bool {
        let same_device = match (&self.device, &other.device) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        let fields = |spec: &Self| (spec.no, spec.out, spec.mac);
        same_device && fields(self) == fields(other) && (&self.name, &self.tunnel) == (&other.name, &other.tunnel)
    }
}

/// A change of a port.
#[derive(Clone, Debug)]
pub enum PortChange {
    /// A port was added.
    Added(OfPort),
    /// A port was deleted.
    Deleted(OfPort),
    /// A port was modified.
    Modified(OfPort),
}

impl Ofproto {
    pub(crate) fn new(id: BridgeId, name: &str, switch: &Arc<Switch>) -> Self {
        Self {
            id,
            name: name.to_owned(),
            switch: Arc::downgrade(switch),
            tables: new_tables(),
            writer: Mutex::default(),
            gate: Gate::default(),
            index: RuleIndex::default(),
            macs: Arc::default(),
            state: RwLock::default(),
            expirable: Expirable::default(),
            table_configs: TableConfigs::default(),
            connections: Connections::default(),
            mark: {
                let mut rng = Rng::from_entropy();
                u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64() >> 32) << 32
            },
            tlvs: Mutex::default(),
            ipfix: ArcSwapOption::default(),
            local_sets: ArcSwapOption::default(),
            sflow: ArcSwapOption::default(),
            netflow: ArcSwapOption::default(),
        }
    }

    /// The number that identifies the bridge's continuations; the lower 32 bits are zero.
    pub(crate) fn mark(&self) -> u128 {
        self.mark
    }

    /// The bridge's number.
    pub fn id(&self) -> BridgeId {
        self.id
    }

    /// The bridge's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bridge's flow tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The bridge's OpenFlow connections.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// The bridge's MAC table.
    pub fn macs(&self) -> &RwLock<MacTable> {
        &self.macs
    }

    /// The switch that the bridge belongs to, unless it has been dropped.
    pub fn switch(&self) -> Option<Arc<Switch>> {
        self.switch.upgrade()
    }

    pub(crate) fn changed(&self, change: Change) {
        if let Some(switch) = self.switch() {
            switch.changed(change);
        }
    }

    /// Publishes the bridge's settings, except those of ports and bundles.
    pub(crate) fn rebuild(&self) {
        if let Some(switch) = self.switch() {
            switch.rebuild(self.id, &Edited::default());
        }
    }

    pub(crate) fn rebuild_edited(&self, edited: &Edited) {
        if let Some(switch) = self.switch() {
            switch.rebuild(self.id, edited);
        }
    }

    /// Returns the bridge's identity.
    pub fn identity(&self) -> Identity {
        self.state.read().identity.clone()
    }

    /// Sets the bridge's identity.
    pub fn set_identity(&self, identity: Identity) {
        self.state.write().identity = identity;
    }

    /// Sets whether NORMAL forwards frames to reserved addresses.
    pub fn set_forward_bpdu(&self, on: bool) {
        if std::mem::replace(&mut self.state.write().forward_bpdu, on) != on {
            self.rebuild();
        }
    }

    /// Multicast snooping, if it is enabled.
    pub(crate) fn snooping(&self) -> Option<Snooping> {
        self.state.read().snooping.clone()
    }

    /// Replaces multicast snooping, and returns the previous one. The caller publishes it.
    pub(crate) fn replace_snooping(&self, snooping: Option<Snooping>) -> Option<Snooping> {
        std::mem::replace(&mut self.state.write().snooping, snooping)
    }

    /// The first port of a bundle.
    pub(crate) fn port_of_bundle(&self, name: &str) -> Option<PortNo> {
        self.state.read().bundles.get(name)?.ports.first().copied()
    }

    /// Sets the DSCP of packets that leave these ports, by queue; a port without entries leaves packets as they are.
    pub fn set_queue_marks(&self, ports: impl IntoIterator<Item = (PortNo, BTreeMap<u32, u8>)>) {
        let mut is_changed = false;
        for (no, marks) in ports {
            let mut state = self.state.write();
            if state.queue_marks.get(&no).map_or(marks.is_empty(), |old| *old == marks) {
                continue;
            }
            is_changed = true;
            let all = Arc::make_mut(&mut state.queue_marks);
            if marks.is_empty() {
                all.remove(&no);
            } else {
                all.insert(no, marks);
            }
        }
        if is_changed {
            self.rebuild();
        }
    }

    /// Sets the mirrors, and forgets learned addresses, some of which may be on ports that are reserved for mirrors now.
    pub fn set_mirrors(&self, mirrors: Option<Mirrors>) {
        let mirrors = mirrors.map(Arc::new);
        let changed = mirrors.is_some() || self.state.read().mirrors.is_some();
        self.state.write().mirrors = mirrors;
        if changed {
            self.rebuild();
            self.flush_macs();
        }
    }

    /// Sets the VLANs in which NORMAL learns no addresses, and forgets learned addresses if they are other ones.
    pub fn set_flood_vlans(&self, vlans: Option<VlanSet>) {
        let vlans = vlans.map(Arc::new);
        if std::mem::replace(&mut self.state.write().flood_vlans, vlans.clone()) != vlans {
            self.rebuild();
            self.flush_macs();
        }
    }

    /// The treatment of IP fragments.
    pub(crate) fn fragments(&self) -> FragHandling {
        self.state.read().fragments
    }

    /// Sets the treatment of IP fragments. The switch never reassembles them: that setting changes nothing.
    pub(crate) fn set_fragments(&self, fragments: FragHandling) {
        if fragments == FragHandling::Reassemble {
            let mode = openflow::print::frag_name(fragments);
            warn_rl!(&FRAGMENTS_LIMIT, target: "ofproto", "{}: unsupported fragment handling mode {mode}", self.name());
        } else if std::mem::replace(&mut self.state.write().fragments, fragments) != fragments {
            self.rebuild();
        }
    }

    /// Sets whether replies of DHCP servers also go to the local port.
    pub(crate) fn set_dhcp_to_local(&self, on: bool) {
        if std::mem::replace(&mut self.state.write().dhcp_to_local, on) != on {
            self.rebuild();
        }
    }

    /// Updates whether packets without a flow go to controllers: if a connected controller speaks OpenFlow 1.2 or earlier,
    /// where this is the default action of a table miss.
    pub(crate) fn update_miss_to_controller(&self) {
        let mut on = false;
        self.connections.for_each(|peer| {
            let state = peer.state.lock();
            on |= match peer.remote.kind {
                PeerKind::Controller => true,
                // A service connection that asked for packets, as `ovs-ofctl monitor` does.
                PeerKind::Service => state.miss_send_len > 0,
                PeerKind::Snoop => false,
            } && state.controller_id == 0
                && state.version.is_some_and(|v| v < openflow::Version::V13);
        });
        let old = std::mem::replace(&mut self.state.write().miss_to_controller, on);
        if old != on {
            self.rebuild();
        }
    }

    /// Sets the fields of a table whose prefixes are tracked (Flow_Table:prefixes); `None` for the default ones.
    pub fn set_prefixes(&self, table: u8, fields: Option<&[flow::Field]>) {
        let Some(table) = self.tables.get(usize::from(table)) else { return };
        let fields = fields.unwrap_or(&classifier::DEFAULT_PREFIXES);
        if table.rules.prefixes() != fields && table.rules.set_prefixes(fields).is_ok() {
            self.lookups_changed();
        }
    }

    /// Invalidates cached flows because look-ups read other bits than before, with the same results.
    pub fn lookups_changed(&self) {
        if let Some(switch) = self.switch() {
            switch.changed(crate::Change::Bridge(self.id));
        }
    }

    /// Sets the state of a port in the spanning tree, and reports it to controllers.
    pub(crate) fn set_tree_state(&self, port: PortNo, tree: TreeState) {
        let Some(port) = self.port(port) else { return };
        *port.tree.lock() = tree;
        self.send_port_state(&port);
    }

    /// Sets ports and bundles to exactly these, and returns what changed. See [`Ofproto::edit_ports`].
    pub fn set_ports(&self, specs: Vec<PortSpec>, bundles: Vec<BundleSpec>) -> Vec<PortChange> {
        let (numbers, names): (BTreeSet<_>, BTreeSet<_>) =
            (specs.iter().map(|spec| spec.no).collect(), bundles.iter().map(|bundle| &bundle.name).collect());
        let (removed, removed_bundles) = {
            let state = self.state.read();
            let bundles = state.bundles.keys().filter(|name| !names.contains(name)).cloned().collect();
            (state.ports.keys().filter(|no| !numbers.contains(no)).copied().collect(), bundles)
        };
        self.edit_ports(PortEdits { ports: specs, removed, bundles, removed_bundles })
    }

    /// Adds, replaces and removes single ports and bundles, and returns what changed. A port keeps its configuration
    /// while its number and name stay. Cached flows are out of date only if something did change. Takes time in
    /// proportion to the edits.
    pub fn edit_ports(&self, edits: PortEdits) -> Vec<PortChange> {
        let now = self.switch().map_or(0, |s| s.clock().now().0);
        // Packets that cross patch ports read the ports, and wait for the exchange only.
        let state = self.state.upgradable_read();
        if state.has(&edits) {
            return Vec::new();
        }
        let edited = Edited::from(&edits);
        let mut changes = Vec::new();
        let mut state = RwLockUpgradableReadGuard::upgrade(state);
        let PortEdits { ports, removed, bundles, removed_bundles } = edits;
        for no in removed {
            changes.extend(state.ports.remove(&no).map(PortChange::Deleted));
        }
        for spec in ports {
            let kept = state.ports.remove(&spec.no).filter(|port| {
                let is_same = port.spec.name == spec.name;
                if !is_same {
                    changes.push(PortChange::Deleted(port.clone()));
                }
                is_same
            });
            let port = match kept {
                Some(port) => {
                    let is_modified = port.spec.mac != spec.mac;
                    let port = OfPort { spec, ..port };
                    if is_modified {
                        changes.push(PortChange::Modified(port.clone()));
                    }
                    port
                }
                None => {
                    let port = OfPort {
                        spec,
                        config: PortConfig::default(),
                        counters: Arc::default(),
                        created_ms: now,
                        reported: Arc::default(),
                        tree: Arc::default(),
                        is_dead: Arc::default(),
                    };
                    changes.push(PortChange::Added(port.clone()));
                    port
                }
            };
            state.ports.insert(port.spec.no, port);
        }
        let moved: Vec<_> = bundles.iter().filter_map(|bundle| state.new_place(bundle)).collect();
        let is_forgotten = |new: &&BundleSpec| {
            state.bundles.get(&new.name).is_some_and(|old| crate::multicast::is_forgotten(old, new))
        };
        let mut forgotten: Vec<_> = bundles.iter().filter(is_forgotten).map(|new| new.name.clone()).collect();
        forgotten.extend_from_slice(&removed_bundles);
        removed_bundles.iter().for_each(|name| state.remove_bundle(name));
        bundles.into_iter().for_each(|bundle| state.insert_bundle(bundle));
        drop(state);
        self.rebuild_edited(&edited);
        moved.into_iter().for_each(|(from, to)| self.move_macs(from, to));
        // Nothing is learned on these ports any more, and their addresses are removed.
        let mut flushed = false;
        for change in &changes {
            base::coverage!(ofproto_update_port);
            if let PortChange::Deleted(port) = change {
                flushed |= self.macs.write().flush_port(port.spec.no);
            }
        }
        if flushed {
            self.changed(Change::Bridge(self.id));
        }
        self.forget_bundles(&forgotten);
        changes
    }

    /// Sets the configuration of a port (OFPT_PORT_MOD). Returns the port after the change, or `None` if there is none.
    pub fn set_port_config(&self, no: PortNo, config: PortConfig) -> Option<OfPort> {
        let port = {
            let mut state = self.state.write();
            let port = state.ports.get_mut(&no)?;
            port.config = config;
            port.clone()
        };
        base::coverage!(rev_port_toggled);
        self.rebuild_edited(&Edited { ports: [no].into(), ..Edited::default() });
        Some(port)
    }

    /// Reports that the links of these ports may have gone up or down, as groups watch them.
    pub(crate) fn links_changed(&self, ports: impl Iterator<Item = PortNo>) {
        let Some(view) = self.switch().and_then(|s| s.network().bridges.get(&self.id).cloned()) else { return };
        let state = self.state.read();
        let is_changed = |no: &PortNo| {
            let (is, was) = (state.ports.get(no).map(OfPort::is_live), view.ports.get(no).map(|port| port.live));
            is.zip(was).is_some_and(|(is, was)| is != was)
        };
        let ports: BTreeSet<PortNo> = ports.filter(is_changed).collect();
        drop(state);
        if !ports.is_empty() {
            self.rebuild_edited(&Edited { ports, ..Edited::default() });
        }
    }

    /// Returns all ports, by number.
    pub fn ports(&self) -> Vec<OfPort> {
        self.state.read().ports.values().cloned().collect()
    }

    /// The number of ports.
    pub(crate) fn n_ports(&self) -> usize {
        self.state.read().ports.len()
    }

    /// Returns one port.
    pub fn port(&self, no: PortNo) -> Option<OfPort> {
        self.state.read().ports.get(&no).cloned()
    }

    /// Returns the counters of a patch port or tunnel port, without a copy of the rest of the port.
    pub(crate) fn own_counters(&self, no: PortNo) -> Option<Arc<OwnCounters>> {
        self.state.read().ports.get(&no).map(|port| Arc::clone(&port.counters))
    }

    /// Returns the port with this name.
    pub fn port_named(&self, name: &str) -> Option<OfPort> {
        self.state.read().ports.values().find(|p| p.spec.name == name).cloned()
    }

    /// Returns the bundles of NORMAL.
    pub fn bundles(&self) -> Vec<BundleSpec> {
        self.state.read().bundles.values().cloned().collect()
    }
}

impl OwnCounters {
    pub(crate) fn add_rx(&self, packets: u64, bytes: u64) {
        self.rx_packets.fetch_add(packets, Ordering::Relaxed);
        self.rx_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_tx(&self, packets: u64, bytes: u64) {
        self.tx_packets.fetch_add(packets, Ordering::Relaxed);
        self.tx_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Port names of a bridge, for text.
impl flow::text::PortNames for Ofproto {
    fn number(&self, name: &str) -> Option<PortNo> {
        self.port_named(name).map(|p| p.spec.no)
    }

    fn name(&self, no: PortNo) -> Option<String> {
        self.port(no).map(|p| p.spec.name)
    }
}
