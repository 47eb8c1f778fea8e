//! A bridge's IPFIX exporters: their configuration, their input, and their statistics.
//!
//! Packet threads only make an [`Observation`] and put it into a bounded queue ([`worker`]): the worker thread does
//! everything that takes time. Observations that find the queue full are counted as lost by their exporter.

mod interfaces;
mod worker;

pub(crate) use interfaces::Interfaces;
pub(crate) use worker::Worker;

use crate::bridge::Ofproto;
use crate::switch::Switch;
use base::{DpPort, PortNo};
use dpif::{Collectors, Observe, SamplePoint, SampledFlow};
use flow::extract::{PacketContext, ethertype, extract_vlans, extract_with, ipproto};
use flow::{Field, FlowKey};
use ipfix::{Config, Direction, Exporter, INTERVAL_SECS, Interface, Micros, Observation, ObservationPoint, TunnelKind};
use openflow::ipfix::IpfixStats;
use packet::Packet;
use packet::metadata::Tunnel;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tunnel::TunnelType;
use tunnel::framing::PacketType;
use worker::Exporting;
use xlate::PortOut;

/// The number of the next exporter in this process.
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

/// The UDP port of BFD over one hop (RFC 5881 section 4).
const BFD_PORT: u128 = 3784;

/// The configuration of a bridge's exporters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IpfixSettings {
    /// The exporter for the bridge's packets.
    pub bridge: Option<BridgeSampling>,
    /// Exporters for `sample` actions, by the number of their collector set.
    pub sets: BTreeMap<u32, ExporterSettings>,
    /// True if a drop follows the datapath actions of sampled packets where the last one samples.
    pub explicit_drops: bool,
}

/// The configuration of an exporter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExporterSettings {
    /// Collectors, over UDP.
    pub targets: BTreeSet<SocketAddr>,
    /// Interval in seconds after which templates are sent again.
    pub template_secs: u32,
    /// Interval in seconds after which the exporter's own statistics are sent again.
    pub stats_secs: u32,
    /// Seconds for which a flow is cached; 0 for no cache.
    pub active_timeout_secs: u32,
    /// The largest number of flows in the cache; 0 for no cache.
    pub flows_max: u32,
    /// A name for the observation point.
    pub virtual_obs_id: Option<String>,
    /// Records of packets from tunnels contain the headers of the tunnel.
    pub tunnels: bool,
}

impl ExporterSettings {
    /// Returns true if an exporter with these settings may continue with the others.
    fn continues_as(&self, other: &Self) -> bool {
        *self == Self { tunnels: self.tunnels, ..other.clone() }
    }
}

impl Default for ExporterSettings {
    fn default() -> Self {
        Self {
            targets: BTreeSet::new(),
            template_secs: INTERVAL_SECS,
            stats_secs: INTERVAL_SECS,
            active_timeout_secs: 0,
            flows_max: 0,
            virtual_obs_id: None,
            tunnels: true,
        }
    }
}

/// An exporter for packets of a whole bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BridgeSampling {
    /// The exporter.
    pub exporter: ExporterSettings,
    /// One packet of this many is sampled on average, at least 1.
    pub sampling: u32,
    /// Observation domain.
    pub domain: u32,
    /// Observation point.
    pub point: u32,
    /// Samples packets at their ingress port.
    pub ingress: bool,
    /// Samples packets at their egress ports.
    pub egress: bool,
}

/// The exporter for a sample, and what the sample's records contain.
struct Collecting<'a> {
    exporting: &'a Arc<Exporting>,
    settings: &'a ExporterSettings,
    domain: u32,
    point: u32,
    /// The direction that the action states.
    way: Option<SamplePoint>,
}

/// The running exporters.
#[derive(Debug)]
pub(crate) struct Running {
    settings: IpfixSettings,
    /// The number reserved for the bridge's own exporter.
    bridge_id: u32,
    bridge: Option<Arc<Exporting>>,
    sets: BTreeMap<u32, Arc<Exporting>>,
}

impl Running {
    fn view(&self) -> xlate::Ipfix {
        let bridge = self.settings.bridge.as_ref();
        let probability = bridge.map(|b| u32::MAX / b.sampling.max(1));
        let tunnel_sets = self.settings.sets.iter().filter(|(_, set)| set.tunnels).map(|(number, _)| *number);
        xlate::Ipfix {
            ingress: probability.filter(|_| bridge.is_some_and(|b| b.ingress)),
            egress: probability.filter(|_| bridge.is_some_and(|b| b.egress)),
            tunnel_sets: Arc::new(tunnel_sets.collect()),
            explicit_drops: self.settings.explicit_drops,
        }
    }

    /// The exporter for a sample, if it exists.
    fn collecting(&self, collectors: &Collectors) -> Option<Collecting<'_>> {
        match collectors {
            Collectors::Bridge => {
                let BridgeSampling { exporter: settings, domain, point, .. } = self.settings.bridge.as_ref()?;
                let exporting = self.bridge.as_ref()?;
                Some(Collecting { exporting, settings, domain: *domain, point: *point, way: None })
            }
            Collectors::Sflow(_) => None,
            Collectors::Set(flow) => {
                let (exporting, settings) = (self.sets.get(&flow.set)?, self.settings.sets.get(&flow.set)?);
                let SampledFlow { domain, point, direction: way, .. } = *flow;
                Some(Collecting { exporting, settings, domain, point, way })
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Exporting>> {
        self.bridge.iter().chain(self.sets.values())
    }
}

impl Ofproto {
    /// Sets the bridge's exporters to exactly these. An exporter with unchanged settings keeps its flows; a removed
    /// one exports those that it has.
    pub fn set_ipfix(&self, settings: IpfixSettings) {
        let old = self.ipfix.load_full();
        if old.as_ref().map_or(settings == IpfixSettings::default(), |old| old.settings == settings) {
            return;
        }
        let Some(switch) = self.switch() else { return };
        let new_id = || NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let bridge_id = old.as_ref().map_or_else(new_id, |old| old.bridge_id);
        let before = old.as_ref().map(|old| &old.settings);
        let bridge = settings.bridge.as_ref().map(|sampling| {
            let same =
                before.and_then(|b| b.bridge.as_ref()).is_some_and(|b| b.exporter.continues_as(&sampling.exporter));
            let kept = old.as_ref().and_then(|old| old.bridge.clone()).filter(|_| same);
            kept.unwrap_or_else(|| switch.ipfix.begin(exporting(&sampling.exporter, bridge_id)))
        });
        let sets = settings.sets.iter().map(|(number, settings)| {
            let same = before.and_then(|b| b.sets.get(number)).is_some_and(|b| b.continues_as(settings));
            let known = old.as_ref().and_then(|old| old.sets.get(number));
            let id = || known.map_or_else(new_id, |known| known.id);
            let kept = known.cloned().filter(|_| same);
            (*number, kept.unwrap_or_else(|| switch.ipfix.begin(exporting(settings, id()))))
        });
        let sets: BTreeMap<u32, Arc<Exporting>> = sets.collect();
        let running =
            (bridge.is_some() || !sets.is_empty()).then(|| Arc::new(Running { settings, bridge_id, bridge, sets }));
        self.ipfix.store(running.clone());
        self.rebuild();
        let stays = |one: &Arc<Exporting>| running.iter().flat_map(|r| r.all()).any(|other| Arc::ptr_eq(one, other));
        for gone in old.iter().flat_map(|old| old.all()).filter(|one| !stays(one)) {
            switch.ipfix.end(Arc::clone(gone));
        }
    }

    /// The view of the exporters for translations.
    pub(crate) fn ipfix_view(&self) -> Option<xlate::Ipfix> {
        self.ipfix.load().as_ref().map(|running| running.view())
    }

    /// Statistics of the bridge's own exporter, if it has one.
    pub(crate) fn ipfix_bridge_stats(&self) -> Option<IpfixStats> {
        self.ipfix.load().as_ref()?.bridge.as_ref().map(|exporting| stats(exporting, 0))
    }

    /// Statistics of the exporters for flows, if there are any.
    pub(crate) fn ipfix_flow_stats(&self) -> Option<Vec<IpfixStats>> {
        let running = self.ipfix.load_full().filter(|running| !running.sets.is_empty())?;
        Some(running.sets.iter().map(|(number, exporting)| stats(exporting, *number)).collect())
    }
}

fn exporting(settings: &ExporterSettings, id: u32) -> Exporting {
    let config = Config {
        id,
        domain: 0,
        template_secs: settings.template_secs,
        stats_secs: settings.stats_secs,
        active_timeout_secs: settings.active_timeout_secs,
        flows_max: settings.flows_max,
        virtual_obs_id: settings.virtual_obs_id.as_ref().map(|id| id.clone().into_bytes()),
    };
    Exporting::new(id, Exporter::new(config), &settings.targets)
}

fn stats(exporting: &Exporting, collector_set_id: u32) -> IpfixStats {
    let (stats, lost) = (exporting.stats(), exporting.lost());
    IpfixStats {
        flows: stats.flows,
        current_flows: stats.current_flows,
        packets: stats.packets,
        ipv4: stats.ipv4,
        ipv6: stats.ipv6,
        errors: stats.errors + lost,
        ipv4_errors: stats.ipv4_errors,
        ipv6_errors: stats.ipv6_errors,
        sent: stats.sent,
        send_errors: stats.send_errors,
        collector_set_id,
    }
}

impl Switch {
    /// Queues a packet from `port` for an exporter or an sFlow agent, if that exists.
    pub(crate) fn report_to_collectors(&self, port: DpPort, what: &Observe, packet: &Packet) {
        if let Collectors::Sflow(way) = &what.collectors {
            return self.sample_for_sflow(port, what, way, packet);
        }
        let Some(running) = self.bridge(what.bridge).and_then(|bridge| bridge.ipfix.load_full()) else { return };
        let Some(collecting) = running.collecting(&what.collectors) else { return };
        let key = self.sampled_key(packet);
        if what.collectors == Collectors::Bridge && is_bfd(&key) {
            return;
        }
        let point = self.observation_point(port, what, packet, &collecting);
        self.ipfix.observe(collecting.exporting, Observation::new(now(), &point, &key, packet.data().len()));
    }

    fn observation_point(
        &self,
        port: DpPort,
        what: &Observe,
        packet: &Packet,
        collecting: &Collecting<'_>,
    ) -> ObservationPoint {
        let direction = match (collecting.way, what.output) {
            (Some(SamplePoint::Egress), _) | (None, Some(_)) => Direction::Egress,
            (Some(SamplePoint::Ingress), _) | (None, None) => Direction::Ingress,
        };
        let interfaces = self.ipfix.interfaces();
        let metadata = packet.metadata();
        let received = metadata.and_then(|metadata| metadata.tunnel.as_deref());
        let src_port = metadata.map_or(0, |metadata| metadata.tunnel_src_port);
        let from = received.and_then(|tunnel| self.tunnel_port(what.bridge, port, packet, tunnel));
        let (ingress, kind) = match from {
            Some(no) => interfaces.tunnel(what.bridge, no),
            None => (interfaces.device(what.bridge, port), None),
        };
        // A record also states that there is no egress port.
        let egress = || match (what.output, what.tunnel) {
            (_, Some(tunnel)) => interfaces.tunnel(what.bridge, tunnel.port).0,
            (Some(port), None) => interfaces.device(what.bridge, port),
            (None, None) => Interface::default(),
        };
        // As in Open vSwitch, records of packets at an output port do not contain the headers of the tunnel that they came from.
        let with_headers = collecting.settings.tunnels && what.output.is_none();
        let headers = received.zip(kind).filter(|_| with_headers);
        ObservationPoint {
            domain: collecting.domain,
            point: collecting.point,
            direction,
            ingress,
            egress: (direction == Direction::Egress).then(egress),
            tunnel: headers.and_then(|(tunnel, kind)| headers_of(tunnel, src_port, kind)),
            dropped: !what.forwarded,
        }
    }

    fn sampled_key(&self, packet: &Packet) -> FlowKey {
        let (data, vlans_max) = (packet.data(), self.vlans_max());
        match packet.l3_type {
            None => extract_vlans(data, PortNo::NONE, vlans_max).0,
            l3_type => extract_with(data, &PacketContext { l3_type, ..PacketContext::default() }, vlans_max),
        }
    }

    /// The tunnel port of the bridge that received a packet from the datapath's port of tunnels.
    pub(crate) fn tunnel_port(&self, bridge: u32, port: DpPort, packet: &Packet, tunnel: &Tunnel) -> Option<PortNo> {
        // The packet may have got or lost its Ethernet header since.
        let types = match packet.l3_type {
            None => [PacketType::Ethernet, PacketType::Layer3],
            Some(_) => [PacketType::Layer3, PacketType::Ethernet],
        };
        let network = self.network();
        let ports = network.tunnels.ports.read();
        let owner = types.into_iter().find_map(|of| ports.find(port, tunnel, of).0.map(|found| found.id));
        owner.filter(|(owner, _)| *owner == bridge).map(|(_, no)| no)
    }

    /// Updates the exporters' and agents' view of the ports, if there are any.
    pub(crate) fn update_exporter_ports(&self) {
        let bridges = self.bridges();
        let samples = |bridge: &Arc<Ofproto>| {
            bridge.ipfix.load().is_some() || bridge.sflow.load().is_some() || bridge.local_sets.load().is_some()
        };
        if !bridges.iter().any(samples) {
            return;
        }
        let mut interfaces = Interfaces::default();
        for (bridge, port) in
            bridges.iter().flat_map(|bridge| bridge.ports().into_iter().map(|port| (bridge.id(), port)))
        {
            let index = port.spec.device.as_ref().and_then(|device| device.status().ifindex).unwrap_or(0);
            let interface = Interface { index, name: port.spec.name.into() };
            let kind = port.spec.tunnel.as_ref().and_then(|config| kind_of(config.tunnel_type));
            match port.spec.out {
                PortOut::Device(device) => interfaces.add_device(bridge, device, interface),
                PortOut::Tunnel(device) => interfaces.add_tunnel(bridge, (port.spec.no, device), interface, kind),
                PortOut::Patch(..) | PortOut::Nowhere => {}
            }
        }
        self.ipfix.set_interfaces(interfaces);
    }
}

/// The kind of tunnels of this type, if records can state it.
fn kind_of(tunnel_type: TunnelType) -> Option<TunnelKind> {
    match tunnel_type {
        TunnelType::Vxlan => Some(TunnelKind::Vxlan),
        TunnelType::Gre => Some(TunnelKind::Gre),
        TunnelType::Geneve => Some(TunnelKind::Geneve),
        TunnelType::Ip6Gre
        | TunnelType::Erspan
        | TunnelType::Ip6Erspan
        | TunnelType::Gtpu
        | TunnelType::Srv6
        | TunnelType::Bareudp => None,
    }
}

/// The headers of a tunnel as in records, which have no elements for addresses of IPv6.
fn headers_of(tunnel: &Tunnel, src_port: u16, kind: TunnelKind) -> Option<ipfix::Tunnel> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (tunnel.src, tunnel.dst) else { return None };
    Some(ipfix::Tunnel { src, dst, kind, key: tunnel.key, src_port, dst_port: tunnel.dst_port })
}

/// Returns true for a packet of BFD over one hop (RFC 5881), which Open vSwitch does not report as a packet of a bridge: it
/// belongs to the monitoring of links.
fn is_bfd(key: &FlowKey) -> bool {
    matches!(key.eth_type(), ethertype::IPV4 | ethertype::IPV6)
        && key.ip_proto() == ipproto::UDP
        && key.get(Field::UdpDst) == BFD_PORT
}

/// The current time, in the form of IPFIX messages.
fn now() -> Micros {
    Micros(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn records_have_headers_of_tunnels_over_ipv4() {
        let (src, dst) = ([192, 0, 2, 2].into(), [192, 0, 2, 1].into());
        let mut tunnel = Tunnel { key: 5, dst_port: 4789, ..Tunnel::between(IpAddr::V4(src), IpAddr::V4(dst)) };
        let kind = TunnelKind::Vxlan;
        let wanted = ipfix::Tunnel { src, dst, kind, key: 5, src_port: 7, dst_port: 4789 };
        assert_eq!(headers_of(&tunnel, 7, kind), Some(wanted));
        (tunnel.src, tunnel.dst) = (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        assert_eq!(headers_of(&tunnel, 7, kind), None);
        let kinds = TunnelType::ALL.map(|(name, of)| (name, kind_of(of)));
        let known: Vec<_> = kinds.into_iter().filter_map(|(name, kind)| Some((name, kind? as u8))).collect();
        assert_eq!(known, [("geneve", 7), ("gre", 2), ("vxlan", 1)]);
    }

    #[test]
    fn bfd_over_one_hop_is_recognised() {
        let key = |text: &str| flow::text::parse_exact(text, &flow::NoNames).expect("a flow");
        assert!(is_bfd(&key("udp,udp_dst=3784")) && is_bfd(&key("udp6,udp_dst=3784")));
        for other in ["udp,udp_src=3784", "udp,udp_dst=4784", "tcp,tcp_dst=3784", "sctp,sctp_dst=3784", "arp"] {
            assert!(!is_bfd(&key(other)), "{other}");
        }
    }

    #[test]
    fn an_exporter_continues_if_only_its_view_of_tunnels_changes() {
        let before = ExporterSettings::default();
        assert!(before.continues_as(&ExporterSettings { tunnels: false, ..before.clone() }));
        assert!(!before.continues_as(&ExporterSettings { flows_max: 1, ..before.clone() }));
    }
}
