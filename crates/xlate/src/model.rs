//! The input of a translation. A [`Network`] is a snapshot of the configuration: it is replaced as a whole when bridges
//! or ports change. Flow tables and MAC tables live longer than a snapshot and are shared by successive ones.

use crate::chunked::ChunkedMap;
use crate::freeze::FrozenTable;
use crate::mac::MacTable;
use crate::mirror::Mirrors;
use crate::multicast::Snooping;
pub use crate::tables::{N_TABLES, Table, Tables, View, new_tables};
use crate::underlay::Tunnels;
use base::{DpPort, MacAddr, Millis, PortNo};
use classifier::{Conjunction, MiniMatch, Versions};
use flow::layout::CONJ_CTMARK;
use flow::{Field, FlowKey, OptionTable};
use foldhash::fast::RandomState;
use openflow::Action;
use openflow::flow_mod::FlowFlags;
use openflow::switch::FragHandling;
use parking_lot::RwLock;
use protocols::Overlay;
use snooping::Flooding;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tunnel::options::Config;

/// A bridge's number, unique for the life of the process.
pub type BridgeId = u32;

/// All bridges that share a datapath.
#[derive(Debug, Default)]
pub struct Network {
    /// The bridges.
    pub bridges: HashMap<BridgeId, Arc<Bridge>, RandomState>,
    /// The bridge and OpenFlow port of each datapath port.
    pub ports: ChunkedMap<DpPort, (BridgeId, PortNo)>,
    /// Frozen states of translations. It outlives the snapshot.
    pub frozen: Arc<FrozenTable>,
    /// The decisions of protocols about ports. It outlives the snapshot.
    pub overlay: Arc<Overlay>,
    /// The decisions of bonds, by the names of their bundles. It outlives the snapshot.
    pub bonds: Arc<bond::Published>,
    /// True if `ct_clear` becomes a datapath action.
    pub ct_clear: bool,
    /// True if the collector sets of bridges with collectors on this host are in use.
    pub psample: bool,
    /// The tunnels of the bridges.
    pub tunnels: Arc<Tunnels>,
    /// The names of the timeout policies with which connections are committed, by zone.
    pub timeout_policies: Arc<BTreeMap<u16, Arc<str>>>,
}

/// One bridge.
#[derive(Debug)]
pub struct Bridge {
    /// Its number.
    pub id: BridgeId,
    /// Its name.
    pub name: Arc<str>,
    /// Its ports.
    pub ports: ChunkedMap<PortNo, Port>,
    /// The bundles between which NORMAL forwards, by name.
    pub bundles: ChunkedMap<Arc<str>, Arc<Bundle>>,
    /// Flow tables and groups.
    pub tables: Arc<Tables>,
    /// Learned addresses.
    pub macs: Arc<RwLock<MacTable>>,
    /// True if a packet that matches no flow goes to the controllers (because a controller of OpenFlow 1.2 or earlier is
    /// connected), instead of being dropped. Applies to tables without an entry in `misses`.
    pub miss_to_controller: bool,
    /// The configured treatment of packets that match no flow, by table.
    pub misses: BTreeMap<u8, TableMiss>,
    /// The treatment of IP fragments.
    pub fragments: FragHandling,
    /// The places in keys of the mapped tunnel options.
    pub options: OptionTable,
    /// True if NORMAL forwards frames to 01:80:c2:00:00:0x.
    pub forward_bpdu: bool,
    /// Multicast snooping, if it is enabled.
    pub snooping: Option<Snooping>,
    /// True if replies of DHCP servers also go to the local port, whatever the flows do with them (in-band control).
    pub dhcp_to_local: bool,
    /// Sampling for IPFIX collectors, if there are any.
    pub ipfix: Option<Ipfix>,
    /// Sampling for collectors on this host, if there are any.
    pub local: Option<LocalSets>,
    /// Sampling for sFlow collectors, if there are any.
    pub sflow: Option<Sflow>,
    /// True if the bridge's IPv4 flows are counted for NetFlow collectors.
    pub netflow: bool,
    /// The DSCP that packets get which leave a port through a queue, by port and queue (Queue:dscp).
    pub queue_marks: Arc<QueueMarks>,
    /// The mirrors, if there are any.
    pub mirrors: Option<Arc<Mirrors>>,
    /// The VLANs in which NORMAL neither learns nor looks up addresses (Bridge:flood_vlans); `None` for none.
    pub flood_vlans: Option<Arc<VlanSet>>,
}

/// The DSCP of packets by the port and the queue that they leave through.
pub type QueueMarks = BTreeMap<PortNo, BTreeMap<u32, u8>>;

impl Bridge {
    /// Returns true if NORMAL learns no addresses in the VLAN.
    pub fn floods(&self, vlan: u16) -> bool {
        self.flood_vlans.as_ref().is_some_and(|vlans| vlans.contains(vlan))
    }

    /// Returns true if the bundle is reserved for the output of a mirror.
    pub fn is_reserved(&self, bundle: &Bundle) -> bool {
        self.mirrors.as_ref().is_some_and(|mirrors| mirrors.of(&bundle.name).is_output)
    }

    /// Sets the bundles to exactly these, also in the ports. A port in several bundles belongs to the last of them.
    pub fn set_bundles(&mut self, bundles: impl IntoIterator<Item = Bundle>) {
        self.bundles = bundles.into_iter().map(|bundle| (Arc::clone(&bundle.name), Arc::new(bundle))).collect();
        let members = self.bundles.values().flat_map(|bundle| bundle.ports.iter().map(move |no| (*no, bundle)));
        let members: BTreeMap<PortNo, &Arc<Bundle>> = members.collect();
        let with_bundle = |(no, port): (&PortNo, &Port)| {
            let bundle = members.get(no).map(|bundle| Arc::clone(bundle));
            (*no, Port { bundle, ..port.clone() })
        };
        self.ports = self.ports.iter().map(with_bundle).collect();
    }
}

/// Sampling of all packets of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ipfix {
    /// The probability with which a received packet is sampled, [`u32::MAX`] for always; `None` for never.
    pub ingress: Option<u32>,
    /// The probability for sent packets.
    pub egress: Option<u32>,
    /// The collector sets that want the headers of tunnels.
    pub tunnel_sets: Arc<BTreeSet<u32>>,
    /// True if a drop follows the datapath actions where the last one samples.
    pub explicit_drops: bool,
}

/// The collector sets with collectors on this host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalSets {
    /// The groups of samples, by collector set.
    pub groups: Arc<BTreeMap<u32, u32>>,
    /// True if a drop follows the datapath actions where the last one samples.
    pub explicit_drops: bool,
}

/// Sampling of received packets for sFlow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sflow {
    /// The probability with which a packet is sampled, [`u32::MAX`] for always.
    pub probability: u32,
    /// True if a drop follows the datapath actions where the last one samples.
    pub explicit_drops: bool,
}

/// The treatment of packets that match no flow of a table (OpenFlow 1.1 and 1.2, `ofp_table_config`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableMiss {
    /// Send them to the controllers.
    Controller,
    /// Look them up in the next table.
    Continue,
    /// Drop them.
    Drop,
}

/// An OpenFlow port.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number.
    pub no: PortNo,
    /// Its name.
    pub name: Arc<str>,
    /// The destination of its output.
    pub out: PortOut,
    /// Its OpenFlow configuration.
    pub config: PortConfig,
    /// True if the port can deliver packets, for groups that watch it. (It is up, and has a link.)
    pub live: bool,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Index of its interface, 0 if it has none.
    pub ifindex: u32,
    /// The configuration of a tunnel port.
    pub tunnel: Option<Arc<Config>>,
    /// The bundle it is in, as in [`Bridge::bundles`].
    pub bundle: Option<Arc<Bundle>>,
}

/// The destination of a port's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortOut {
    /// A device of the datapath.
    Device(DpPort),
    /// A tunnel: the datapath's port of its packets. [`Port::tunnel`] has the rest.
    Tunnel(DpPort),
    /// A patch port: the peer's bridge and number.
    Patch(BridgeId, PortNo),
    /// Nothing yet: a patch port without a peer.
    Nowhere,
}

/// Port configuration bits (OpenFlow 1.0 `ofp_port_config`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortConfig {
    /// Administratively down.
    pub down: bool,
    /// Drop everything received.
    pub no_recv: bool,
    /// Leave out of FLOOD.
    pub no_flood: bool,
    /// Drop everything to be sent.
    pub no_fwd: bool,
    /// No packet-in for misses on this port.
    pub no_packet_in: bool,
    /// Drop 802.1D frames received (OpenFlow 1.0); `no_recv` applies to all other frames.
    pub no_recv_stp: bool,
    /// The port takes no part in 802.1D (OpenFlow 1.0). Translation does not read it.
    pub no_stp: bool,
}

/// How a bundle treats VLAN tags (Port:vlan_mode).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VlanMode {
    /// One VLAN, untagged on the wire.
    Access,
    /// Several, all tagged.
    Trunk,
    /// Several, and untagged frames belong to the native one, whose frames leave with a tag.
    NativeTagged,
    /// Several, and the native one is untagged in both directions.
    NativeUntagged,
    /// One service VLAN, whose tag is not on the wire: tags there are of customer VLANs (IEEE 802.1ad).
    Dot1qTunnel {
        /// The tag protocol id of the service tag at other ports.
        tpid: u16,
    },
}

/// When a frame without a VLAN id gets a tag for its priority (Port:other_config:priority-tags).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PriorityTags {
    /// Never.
    #[default]
    Never,
    /// If the priority is not zero.
    IfNonzero,
    /// Always.
    Always,
}

/// A set of VLAN ids, 0 to 4095.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VlanSet([u64; 64]);

impl VlanSet {
    /// Returns true if the set has this VLAN; bits above the lower 12 are ignored.
    pub fn contains(&self, vlan: u16) -> bool {
        self.0[usize::from(vlan >> 6 & 0x3f)] >> (vlan & 0x3f) & 1 != 0
    }
}

impl FromIterator<u16> for VlanSet {
    /// Ignores bits above the lower 12.
    fn from_iter<I: IntoIterator<Item = u16>>(vlans: I) -> Self {
        let mut words = [0; 64];
        vlans.into_iter().for_each(|vlan| words[usize::from(vlan >> 6 & 0x3f)] |= 1 << (vlan & 0x3f));
        Self(words)
    }
}

/// A port of the database, which NORMAL learns on and forwards to.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Its name.
    pub name: Arc<str>,
    /// Its OpenFlow ports: several if it is a bond. Addresses learned on any of them are at the first.
    pub ports: Vec<PortNo>,
    /// How it treats tags.
    pub mode: VlanMode,
    /// Access, native or service VLAN, 0 to 4095.
    pub tag: u16,
    /// VLANs that a trunk carries; `None` for all.
    pub trunks: Option<Arc<VlanSet>>,
    /// Customer VLANs that a `dot1q-tunnel` port admits, 0 for untagged frames; `None` for all.
    pub cvlans: Option<Arc<VlanSet>>,
    /// Tags for priorities.
    pub priority_tags: PriorityTags,
    /// No traffic between two protected bundles.
    pub protected: bool,
    /// Whether NORMAL floods to it.
    pub floodable: bool,
    /// The multicast frames that it gets with multicast snooping, whatever its table contains.
    pub multicast: Flooding,
}

impl Bundle {
    /// Returns true if the bundle has several members, of which a bond selects one.
    pub fn is_bond(&self) -> bool {
        self.ports.len() > 1
    }

    /// Returns true if frames of `vlan` may enter or leave by the bundle.
    pub fn carries(&self, vlan: u16) -> bool {
        match self.mode {
            VlanMode::Access | VlanMode::Dot1qTunnel { .. } => vlan == self.tag,
            VlanMode::Trunk => self.trunks(vlan),
            // Frames of VLAN 0 would be of the native one in the other direction. As in Open vSwitch, a native VLAN 0 is not
            // added to the trunks.
            VlanMode::NativeTagged | VlanMode::NativeUntagged if vlan == 0 => self.tag == 0 && self.trunks(0),
            VlanMode::NativeTagged | VlanMode::NativeUntagged => vlan == self.tag || self.trunks(vlan),
        }
    }

    /// Returns true if a `dot1q-tunnel` port admits frames of a customer VLAN.
    pub fn admits_customer(&self, vlan: u16) -> bool {
        self.cvlans.as_ref().is_none_or(|vlans| vlans.contains(vlan))
    }

    fn trunks(&self, vlan: u16) -> bool {
        self.trunks.as_ref().is_none_or(|trunks| trunks.contains(vlan))
    }
}

/// A flow of an OpenFlow table. It is immutable: a modification replaces it by another one that shares its statistics.
#[derive(Debug)]
pub struct Rule {
    /// Its match.
    pub minimatch: MiniMatch,
    /// 0 to 65535 for a flow of a controller; higher for one of the switch's own ([`Rule::is_hidden`]).
    pub priority: u32,
    /// Its table.
    pub table: u8,
    /// The controller's cookie.
    pub cookie: u64,
    /// Idle timeout in seconds; 0 for none.
    pub idle_timeout: u16,
    /// Hard timeout in seconds; 0 for none.
    pub hard_timeout: u16,
    /// Importance for eviction (OpenFlow 1.4).
    pub importance: u16,
    /// The flags from the controller.
    pub flags: FlowFlags,
    /// Its actions.
    pub actions: Arc<[Action]>,
    /// When it was added.
    pub created: Millis,
    /// When it was last modified or learned, in milliseconds of the switch's clock: the start of the hard timeout.
    pub modified: AtomicU64,
    /// The versions of the tables in which it is visible.
    pub versions: Versions,
    /// The clauses of conjunctive matches in its actions ([`conjunctions_of`]).
    pub conjunctions: Box<[Conjunction]>,
    /// Its statistics; see [`Rule::stats`].
    pub count: Count,
}

/// The place of a rule's statistics: in the rule itself, so that counting its packets touches little memory, unless they
/// continue those of rules that it replaced.
#[derive(Debug)]
pub enum Count {
    /// In the rule itself.
    Own(RuleStats),
    /// In another rule: the first of a series of replacements.
    Of(Arc<Rule>),
}

impl Default for Count {
    fn default() -> Self {
        Self::Own(RuleStats::default())
    }
}

impl Count {
    /// Begins to count; the flow counts as used at that time.
    pub fn since(used: Millis) -> Self {
        Self::Own(RuleStats { used: used.0.into(), ..RuleStats::default() })
    }

    /// Continues the statistics of `rule`.
    pub fn on(rule: &Arc<Rule>) -> Self {
        match &rule.count {
            Self::Own(_) => Self::Of(Arc::clone(rule)),
            Self::Of(first) => Self::Of(Arc::clone(first)),
        }
    }
}

/// Statistics of a rule.
#[derive(Debug, Default)]
pub struct RuleStats {
    /// Packets.
    pub packets: AtomicU64,
    /// Bytes.
    pub bytes: AtomicU64,
    /// The time of the last packet, in milliseconds of the switch's clock; before it, when the first of the rules was added.
    pub used: AtomicU64,
}

impl RuleStats {
    /// Adds packets, the last one at `used`.
    pub fn add(&self, packets: u64, bytes: u64, used: Millis) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.used.load(Ordering::Relaxed) < used.0 {
            self.used.fetch_max(used.0, Ordering::Relaxed);
        }
    }
}

impl Rule {
    /// The statistics of the rule and of the rules that it replaced.
    pub fn stats(&self) -> &RuleStats {
        match &self.count {
            Count::Own(stats) => stats,
            Count::Of(first) => first.stats(),
        }
    }

    /// The time of its last packet, from which on it is idle. Replacing a flow does not begin it anew.
    pub fn used(&self) -> Millis {
        Millis(self.stats().used.load(Ordering::Relaxed))
    }

    /// Returns true for a flow of the switch's own: its priority is above the range of OpenFlow, which neither shows nor changes
    /// it.
    pub fn is_hidden(&self) -> bool {
        self.priority > u16::MAX.into()
    }

    /// Its priority in OpenFlow messages, which never contain hidden flows.
    pub fn openflow_priority(&self) -> u16 {
        self.priority.try_into().unwrap_or(u16::MAX)
    }

    /// The time when it was last modified or learned.
    pub fn modified(&self) -> Millis {
        Millis(self.modified.load(Ordering::Relaxed))
    }

    /// Sets the time when it was last modified or learned.
    pub fn set_modified(&self, now: Millis) {
        self.modified.store(now.0, Ordering::Relaxed);
    }

    /// Records that it was learned again, unchanged.
    pub fn refresh(&self, now: Millis) {
        self.modified.fetch_max(now.0, Ordering::Relaxed);
    }

    /// Returns true if it matches on `conj_id`, which is not part of the packet.
    pub fn matches_conj_id(&self) -> bool {
        let bits = |word, bits| word == CONJ_CTMARK && bits & FlowKey::mask_of(Field::ConjId).0[CONJ_CTMARK] != 0;
        self.minimatch.mask().words().any(|(word, mask)| bits(word, mask))
    }
}

/// Returns the clauses of conjunctive matches among `actions`.
pub fn conjunctions_of(actions: &[Action]) -> Box<[Conjunction]> {
    let clause = |action: &Action| match action {
        Action::Conjunction { id, clause, n_clauses } => {
            Some(Conjunction { id: *id, clause: *clause, n_clauses: *n_clauses })
        }
        _ => None,
    };
    actions.iter().filter_map(clause).collect()
}

impl classifier::Rule for Rule {
    fn minimatch(&self) -> &MiniMatch {
        &self.minimatch
    }

    fn priority(&self) -> u32 {
        self.priority
    }

    fn versions(&self) -> &Versions {
        &self.versions
    }

    fn conjunctions(&self) -> &[Conjunction] {
        &self.conjunctions
    }
}

#[cfg(test)]
mod tests {
    use super::VlanSet;

    #[test]
    fn a_vlan_set_has_the_vlans_that_it_was_made_of() {
        let set: VlanSet = [0, 63, 64, 1000, 4095].into_iter().collect();
        let members: Vec<u16> = (0..4096).filter(|vlan| set.contains(*vlan)).collect();
        assert_eq!(members, [0, 63, 64, 1000, 4095]);
    }
}
