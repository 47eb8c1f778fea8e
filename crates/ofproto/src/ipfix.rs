//! A bridge's IPFIX exporters: their configuration, their input, and their statistics.
//!
//! Packet threads only make an [`Observation`] and put it into a bounded queue ([`worker`]): the worker thread does
//! everything that takes time. Observations that find the queue full are counted as lost by their exporter.

mod worker;

pub(crate) use worker::Worker;

use crate::bridge::{OfPort, Ofproto};
use crate::switch::Switch;
use base::{DpPort, PortNo};
use dpif::{Collectors, Observe, SamplePoint};
use flow::extract::{PacketContext, extract_vlans, extract_with};
use ipfix::{Config, Direction, Exporter, INTERVAL_SECS, Interface, Micros, Observation, ObservationPoint};
use openflow::ipfix::IpfixStats;
use packet::Packet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use worker::Exporting;
use xlate::PortOut;

/// The number of the next exporter in this process.
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

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
        xlate::Ipfix {
            ingress: probability.filter(|_| bridge.is_some_and(|b| b.ingress)),
            egress: probability.filter(|_| bridge.is_some_and(|b| b.egress)),
            explicit_drops: self.settings.explicit_drops,
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
            let same = before.and_then(|b| b.bridge.as_ref()).is_some_and(|b| b.exporter == sampling.exporter);
            let kept = old.as_ref().and_then(|old| old.bridge.clone()).filter(|_| same);
            kept.unwrap_or_else(|| switch.ipfix.begin(exporting(&sampling.exporter, bridge_id)))
        });
        let sets = settings.sets.iter().map(|(number, settings)| {
            let same = before.and_then(|b| b.sets.get(number)).is_some_and(|b| b == settings);
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
    /// Queues a packet from `port` for an exporter, if that exporter exists.
    pub(crate) fn report_to_collectors(&self, port: DpPort, what: &Observe, packet: &Packet) {
        let Some(running) = self.bridge(what.bridge).and_then(|bridge| bridge.ipfix.load_full()) else { return };
        let (exporting, domain, point, way) = match &what.collectors {
            Collectors::Bridge => {
                let (Some(exporting), Some(settings)) = (&running.bridge, &running.settings.bridge) else { return };
                (exporting, settings.domain, settings.point, None)
            }
            Collectors::Set(flow) => {
                let Some(exporting) = running.sets.get(&flow.set) else { return };
                (exporting, flow.domain, flow.point, flow.direction)
            }
        };
        let direction = match (way, what.output) {
            (Some(SamplePoint::Egress), _) | (None, Some(_)) => Direction::Egress,
            (Some(SamplePoint::Ingress), _) | (None, None) => Direction::Ingress,
        };
        let point = ObservationPoint {
            domain,
            point,
            direction,
            ingress: self.ipfix.interface(port),
            // A record also states that there is no egress port.
            egress: (direction == Direction::Egress)
                .then(|| what.output.map_or_else(Interface::default, |port| self.ipfix.interface(port))),
            // There are no tunnels yet.
            tunnel: None,
            dropped: !what.forwarded,
        };
        self.ipfix.observe(exporting, self.observation(&point, packet));
    }

    fn observation(&self, point: &ObservationPoint, packet: &Packet) -> Observation {
        let (data, vlans_max) = (packet.data(), self.vlans_max());
        let key = match packet.l3_type {
            None => extract_vlans(data, PortNo::NONE, vlans_max).0,
            l3_type => extract_with(data, &PacketContext { l3_type, ..PacketContext::default() }, vlans_max),
        };
        Observation::new(now(), point, &key, data.len())
    }

    /// Updates the exporters' view of the ports, if there are exporters.
    pub(crate) fn update_exporter_ports(&self) {
        let bridges = self.bridges();
        if bridges.iter().all(|bridge| bridge.ipfix.load().is_none()) {
            return;
        }
        let interface = |port: OfPort| match port.spec.out {
            PortOut::Device(device) => {
                let index = port.spec.device.and_then(|device| device.status().ifindex).unwrap_or(0);
                Some((device, Interface { index, name: port.spec.name.into() }))
            }
            _ => None,
        };
        self.ipfix.set_interfaces(bridges.iter().flat_map(|bridge| bridge.ports()).filter_map(interface).collect());
    }
}

/// The current time, in the form of IPFIX messages.
fn now() -> Micros {
    Micros(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64))
}
