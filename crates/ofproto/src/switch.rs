//! All bridges over one datapath.

use crate::bridge::{Edited, Ofproto};
use crate::conn::Budget;
use crate::export::ExportWorker;
use crate::features::{Ct, Features, Set};
use crate::gate::Workers;
use crate::held::Held;
use crate::ipfix::{IpfixSettings, Worker};
use crate::local_samples::LocalWorker;
use crate::protocols::Protocols;
use crate::revalidate::{Change, State};
use crate::tlv::OptionSpace;
use ::protocols::Overlay;
use arc_swap::ArcSwap;
use base::{Clock, DpPort, PortNo};
use dpif::{Dpif, FlowId};
use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tls::Tls;
use tokio::sync::watch;
use xlate::model::Bridge;
use xlate::{BridgeId, ChunkedMap, Network, PortOut};

/// All bridges, their snapshot for translations, and the datapath. Shared by the control thread and packet threads.
#[derive(Debug)]
pub struct Switch {
    clock: Clock,
    dpif: OnceLock<Arc<dyn Dpif>>,
    datapath_name: OnceLock<String>,
    network: ArcSwap<Network>,
    generation: AtomicU64,
    bridges: RwLock<BTreeMap<BridgeId, Arc<Ofproto>>>,
    next_bridge: AtomicU64,
    next_flow: AtomicU64,
    /// Held while a snapshot is built and published, so that an older one is not published last.
    rebuilding: Mutex<()>,
    snapshots: AtomicU64,
    pub(crate) revalidation: State,
    /// The number of translations.
    pub(crate) translations: AtomicU64,
    vlans_max: AtomicUsize,
    pub(crate) features: Features,
    timeout_policies: Mutex<TimeoutPolicies>,
    bundle_idle_ms: AtomicU64,
    pub(crate) workers: Workers,
    pub(crate) bundle_budget: Arc<Budget>,
    tls: Arc<Tls>,
    pub(crate) ipfix: Worker,
    pub(crate) export: ExportWorker,
    pub(crate) local_samples: LocalWorker,
    pub(crate) protocols: Protocols,
    options: Mutex<OptionSpace>,
    pub(crate) held: Mutex<Held>,
    restoring: watch::Sender<bool>,
    /// The same, for packets.
    is_restoring: AtomicBool,
}

/// Names of timeout policies by zone.
pub type TimeoutPolicies = Arc<BTreeMap<u16, Arc<str>>>;

/// See [`Switch::set_bundle_idle_ms`].
pub const BUNDLE_IDLE_MS: u64 = 10_000;

impl Switch {
    /// Creates a switch without bridges and datapath.
    pub fn new(clock: Clock) -> Arc<Self> {
        let overlay = Arc::new(Overlay::default());
        Arc::new_cyclic(|switch| {
            let protocols = Protocols::new(&clock, Arc::clone(&overlay), switch.clone());
            let network = Network { overlay, bonds: protocols.bonds.published(), ..Network::default() };
            Self::with(clock, protocols, network)
        })
    }

    fn with(clock: Clock, protocols: Protocols, network: Network) -> Self {
        Self {
            protocols,
            clock,
            dpif: OnceLock::new(),
            datapath_name: OnceLock::new(),
            network: ArcSwap::new(Arc::new(network)),
            generation: AtomicU64::new(1),
            bridges: RwLock::default(),
            next_bridge: AtomicU64::new(1),
            next_flow: AtomicU64::new(1),
            rebuilding: Mutex::default(),
            snapshots: AtomicU64::new(0),
            revalidation: State::default(),
            translations: AtomicU64::new(0),
            vlans_max: AtomicUsize::new(flow::extract::VLANS),
            features: Features::default(),
            timeout_policies: Mutex::default(),
            bundle_idle_ms: AtomicU64::new(BUNDLE_IDLE_MS),
            workers: Workers::default(),
            bundle_budget: Arc::default(),
            tls: Arc::default(),
            ipfix: Worker::default(),
            export: ExportWorker::default(),
            local_samples: LocalWorker::default(),
            options: Mutex::default(),
            held: Mutex::default(),
            restoring: watch::Sender::default(),
            is_restoring: AtomicBool::new(false),
        }
    }

    /// Attaches the switch to its datapath, which logs name `netdev@ovs-netdev`, say. To be called once; the datapath's
    /// handler should be this switch.
    pub fn attach(&self, dpif: Arc<dyn Dpif>, name: String) {
        let _ = self.datapath_name.set(name);
        dpif.set_generation(self.generation());
        self.features.attach(dpif.capabilities());
        let _ = self.dpif.set(dpif);
    }

    /// The datapath, once attached.
    pub fn dpif(&self) -> Option<&Arc<dyn Dpif>> {
        self.dpif.get()
    }

    /// The datapath's name, empty before it is attached.
    pub(crate) fn datapath_name(&self) -> &str {
        self.datapath_name.get().map_or("", String::as_str)
    }

    /// The switch's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sets whether the switch waits for its flows to be restored (other_config:flow-restore-wait): until then it drops packets
    /// that have no cached flow, and connects to no controller.
    pub fn set_restoring(&self, restoring: bool) {
        self.is_restoring.store(restoring, Ordering::Relaxed);
        self.restoring.send_replace(restoring);
    }

    /// Returns true if the switch waits for its flows.
    pub(crate) fn is_restoring(&self) -> bool {
        self.is_restoring.load(Ordering::Relaxed)
    }

    /// Waits until the switch has its flows.
    pub(crate) async fn restored(&self) {
        // The sender lives as long as the switch.
        let _ = self.restoring.subscribe().wait_for(|restoring| !restoring).await;
    }

    /// Keys and certificates of OpenFlow connections.
    pub fn tls(&self) -> &Arc<Tls> {
        &self.tls
    }

    /// The current snapshot for translations.
    pub fn network(&self) -> arc_swap::Guard<Arc<Network>> {
        self.network.load()
    }

    /// Milliseconds after which an unused OpenFlow bundle is discarded.
    pub(crate) fn bundle_idle_ms(&self) -> u64 {
        self.bundle_idle_ms.load(Ordering::Relaxed)
    }

    /// Sets this time. (OpenFlow 1.4 section 6.9 requires at least a second.)
    pub fn set_bundle_idle_ms(&self, ms: u64) {
        self.bundle_idle_ms.store(ms, Ordering::Relaxed);
    }

    /// The memory of the OpenFlow bundles of all connections in bytes.
    pub fn bundle_bytes(&self) -> usize {
        self.bundle_budget.taken()
    }

    /// The number of VLAN tags in keys.
    pub fn vlans_max(&self) -> usize {
        self.vlans_max.load(Ordering::Relaxed)
    }

    /// Sets the number of VLAN tags in keys, 1 or 2 (other_config:vlan-limit).
    pub fn set_vlans_max(&self, tags: usize) {
        let tags = tags.clamp(1, flow::extract::VLANS);
        if self.vlans_max.swap(tags, Ordering::Relaxed) != tags {
            if let Some(dpif) = self.dpif.get() {
                dpif.set_vlans_max(tags);
            }
            // Keys from before the change differ from those after it.
            self.new_generation();
            base::coverage!(rev_reconfigure);
            self.changed(Change::Everything);
        }
    }

    /// The datapath's features, as text and as JSON.
    pub fn show_features(&self) -> (String, serde_json::Value) {
        (self.features.show(self.vlans_max()), self.features.show_json(self.vlans_max()))
    }

    /// The features in use: one, or all. `None` for an unknown name.
    pub fn list_features(&self, name: Option<&str>) -> Option<(String, serde_json::Value)> {
        let vlans = self.vlans_max();
        Some((self.features.list(name, vlans)?, self.features.list_json(name, vlans)?))
    }

    /// Enables or disables a feature: if `forced`, also one that the datapath does not report.
    pub fn set_feature(&self, name: &str, value: &str, forced: bool) -> Set {
        let answer = self.features.set(name, value, forced);
        if answer == Set::Done {
            self.reconfigured();
        }
        answer
    }

    /// Sets the timeout policies with which connections are committed, by zone. The datapath must know the names.
    pub fn set_timeout_policies(&self, policies: TimeoutPolicies) {
        let is_changed = {
            let mut current = self.timeout_policies.lock();
            let old = std::mem::replace(&mut *current, policies);
            old != *current
        };
        if is_changed {
            self.reconfigured();
        }
    }

    /// Publishes a network with other settings of the whole switch, and has all flows translated again.
    pub(crate) fn reconfigured(&self) {
        {
            let _rebuilding = self.rebuilding.lock();
            let old = self.network.load_full();
            self.publish(&old, old.bridges.clone(), old.ports.clone());
        }
        base::coverage!(rev_reconfigure);
        self.changed(Change::Everything);
    }

    /// Returns the key of a frame, as the datapath would extract it.
    pub fn key_of(&self, frame: &[u8], in_port: base::PortNo) -> flow::FlowKey {
        flow::extract::extract_vlans(frame, in_port, self.vlans_max()).0
    }

    /// The current generation of datapath flows.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Invalidates all flows at once: no packet that arrives after the call is forwarded by an earlier flow.
    pub(crate) fn new_generation(&self) {
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(dpif) = self.dpif.get() {
            dpif.set_generation(generation);
        }
    }

    /// Reports a change of the input of translations: the next pass of revalidation translates the flows again that
    /// depend on it. To be called after the change.
    pub fn changed(&self, change: Change) {
        self.revalidation.changed(change);
    }

    /// Has the next pass begin without waiting for the end of a burst of changes.
    pub(crate) fn hurry_changes(&self) {
        self.revalidation.hurry();
    }

    /// Reports several changes, in their order.
    pub(crate) fn changed_all(&self, changes: Vec<Change>) {
        self.revalidation.changed_all(changes);
    }

    /// The number of the last change: while it is unchanged, so is every verdict.
    pub fn last_change(&self) -> u64 {
        self.revalidation.seq()
    }

    /// Returns a new, unique id for a datapath flow.
    pub fn new_flow_id(&self) -> FlowId {
        FlowId(self.next_flow.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds a bridge without ports.
    pub fn add_bridge(self: &Arc<Self>, name: &str) -> Arc<Ofproto> {
        let id = self.next_bridge.fetch_add(1, Ordering::Relaxed) as BridgeId;
        let bridge = Arc::new(Ofproto::new(id, name, self));
        self.bridges.write().insert(id, Arc::clone(&bridge));
        self.rebuild(id, &Edited::default());
        bridge
    }

    /// Removes a bridge.
    pub fn del_bridge(&self, id: BridgeId) {
        let bridge = self.bridges.write().remove(&id);
        self.rebuild(id, &Edited::default());
        if let Some(bridge) = &bridge {
            bridge.set_ipfix(IpfixSettings::default());
            bridge.set_local_sets(None);
            bridge.set_sflow(None);
            bridge.set_netflow(None);
        }
        if let Some(bridge) = bridge {
            bridge.clear_tlvs(self);
            bridge.drop_meters();
        }
    }

    /// Changes which tunnel options the bridges map. From then on, packets have them in their keys. Lock order: a bridge's table of
    /// options may be locked already, so `change` locks none.
    pub(crate) fn with_options<R>(&self, change: impl FnOnce(&mut OptionSpace) -> R) -> R {
        let mut options = self.options.lock();
        let result = change(&mut options);
        let all = Arc::new(options.all());
        if self.network().tunnels.set_received_options(Arc::clone(&all)) {
            if let Some(dpif) = self.dpif() {
                dpif.set_tunnel_options(all);
            }
            drop(options);
            self.changed(Change::Tunnels);
        }
        result
    }

    /// Returns the bridge with this number.
    pub fn bridge(&self, id: BridgeId) -> Option<Arc<Ofproto>> {
        self.bridges.read().get(&id).cloned()
    }

    /// Returns the bridge with this name.
    pub fn bridge_named(&self, name: &str) -> Option<Arc<Ofproto>> {
        self.bridges.read().values().find(|b| b.name() == name).cloned()
    }

    /// Returns all bridges, by number.
    pub fn bridges(&self) -> Vec<Arc<Ofproto>> {
        self.bridges.read().values().cloned().collect()
    }

    /// Publishes a network with the current state of the bridge `changed`, or without it if it was removed. Of its ports and
    /// bundles, only the `edited` ones are made anew. Other bridges are shared with the previous network.
    pub(crate) fn rebuild(&self, changed: BridgeId, edited: &Edited) {
        let others = {
            let _rebuilding = self.rebuilding.lock();
            let old = self.network.load_full();
            let bridge = self.bridge(changed);
            let before = old.bridges.get(&changed);
            let view = bridge.map(|bridge| bridge.view(before.map(|before| (&**before, edited))));
            let edited = Some(edited).filter(|_| before.is_some() && view.is_some());
            self.snapshots.fetch_add(u64::from(view.is_some()), Ordering::Relaxed);
            let mut bridges = old.bridges.clone();
            let (ports, others) = map_ports(&old, changed, view.as_ref(), edited);
            match view {
                Some(view) => drop(bridges.insert(changed, Arc::new(view))),
                None => drop(bridges.remove(&changed)),
            }
            self.publish(&old, bridges, ports);
            others
        };
        base::coverage!(rev_reconfigure);
        self.changed(Change::Bridge(changed));
        // Until now, packets on a port that this bridge has taken over belonged to another bridge.
        others.into_iter().for_each(|id| self.changed(Change::Bridge(id)));
    }

    fn publish(
        &self,
        old: &Network,
        bridges: HashMap<BridgeId, Arc<Bridge>, RandomState>,
        ports: ChunkedMap<DpPort, (BridgeId, PortNo)>,
    ) {
        let (ct_clear, psample) = (self.features.uses(Ct::Clear), self.features.uses_psample());
        self.update_exporter_ports();
        let (frozen, overlay, tunnels) = (Arc::clone(&old.frozen), Arc::clone(&old.overlay), Arc::clone(&old.tunnels));
        let bonds = Arc::clone(&old.bonds);
        let timeout_policies =
            if self.features.uses(Ct::Timeout) { Arc::clone(&self.timeout_policies.lock()) } else { Arc::default() };
        self.network.store(Arc::new(Network {
            bridges,
            ports,
            frozen,
            overlay,
            bonds,
            ct_clear,
            psample,
            tunnels,
            timeout_policies,
        }));
    }

    /// The number of snapshots of bridges.
    pub fn snapshots(&self) -> u64 {
        self.snapshots.load(Ordering::Relaxed)
    }

    /// The number of translations.
    pub fn translations(&self) -> u64 {
        self.translations.load(Ordering::Relaxed)
    }

    /// Returns the bridge and OpenFlow port of a datapath port.
    pub fn port_of(&self, port: DpPort) -> Option<(BridgeId, base::PortNo)> {
        self.network.load().ports.get(&port).copied()
    }

    /// The bridge and port that packets with this key from a tunnel belong to.
    pub fn tunnel_of(&self, port: DpPort, key: &flow::FlowKey) -> Option<(BridgeId, base::PortNo)> {
        self.network.load().tunnels.owner(port, key)
    }
}

/// Returns the ports of a network in which the bridge `changed` has the view `view` (`None` if it was removed), and the other
/// bridges that lost ports to it. Only the `edited` ports are compared, if they are given.
fn map_ports(
    old: &Network,
    changed: BridgeId,
    view: Option<&Bridge>,
    edited: Option<&Edited>,
) -> (ChunkedMap<DpPort, (BridgeId, PortNo)>, BTreeSet<BridgeId>) {
    let devices = |bridge: &Bridge| -> Vec<(DpPort, PortNo)> {
        let device = |port: &xlate::model::Port| match port.out {
            PortOut::Device(dp_port) => Some((dp_port, port.no)),
            PortOut::Tunnel(_) | PortOut::Patch(..) | PortOut::Nowhere => None,
        };
        match edited {
            Some(edited) => edited.ports.iter().filter_map(|no| bridge.ports.get(no)).filter_map(device).collect(),
            None => bridge.ports.values().filter_map(device).collect(),
        }
    };
    let mut ports = old.ports.clone();
    for (dp_port, _) in old.bridges.get(&changed).map(|bridge| devices(bridge)).unwrap_or_default() {
        if ports.get(&dp_port).is_some_and(|(owner, _)| *owner == changed) {
            ports.remove(&dp_port);
        }
    }
    let mut others = BTreeSet::new();
    for (dp_port, no) in view.map(devices).unwrap_or_default() {
        let owner = ports.insert(dp_port, (changed, no));
        others.extend(owner.map(|(owner, _)| owner).filter(|owner| *owner != changed));
    }
    (ports, others)
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.revalidation.stop();
    }
}
