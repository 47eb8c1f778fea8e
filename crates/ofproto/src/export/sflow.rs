//! A bridge's sFlow agent: its configuration, its samples and the counters of its ports.

use super::ExportCounters;
use super::collector::Collectors;
use super::worker::Export;
use crate::bridge::{Edited, OfPort, Ofproto};
use crate::switch::Switch;
use ::sflow::{
    Agent, AppResources, Config, Counter, Datapath, Duplex, Ethernet, FlowSample, HeaderProtocol, Interface, Output,
    Source, Tunnel,
};
use base::{BridgePort, DpPort, Millis, PortNo};
use dpif::{Observe, SampledWay, SentTunnel};
use flow::extract::ethertype;
use lacp::State as LacpState;
use packet::Packet;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tunnel::TunnelType;
use tunnel::flags::KEY;
use xlate::PortOut;

/// The speed of an interface that does not report one, in bits a second.
const SPEED: u64 = 100_000_000;
/// The interval in milliseconds in which the agent looks for new interfaces.
const LOOK_MS: u64 = 1000;
/// Milliseconds in a clock tick of the kernel's statistics of processes.
const TICK_MS: u64 = 10;
const GRE: u8 = 47;
const UDP: u8 = 17;

/// The configuration of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SflowSettings {
    /// Collectors, over UDP.
    pub targets: BTreeSet<SocketAddr>,
    /// The address that datagrams state.
    pub agent: IpAddr,
    /// One packet of so many is sampled, 0 for none.
    pub sampling: u32,
    /// Bytes of a packet in a sample.
    pub header_bytes: u32,
    /// Interval of counter samples in seconds, 0 for none.
    pub polling_secs: u32,
    /// True if a drop follows the datapath actions of sampled packets where the last one samples.
    pub explicit_drops: bool,
}

/// A running agent.
#[derive(Debug)]
pub(crate) struct SflowExport {
    bridge: Weak<Ofproto>,
    pub(crate) settings: SflowSettings,
    sub_agent: u32,
    state: Mutex<State>,
    /// Samples that found the queue full.
    lost: AtomicU64,
}

#[derive(Debug)]
struct State {
    agent: Agent,
    collectors: Collectors,
    counters: ExportCounters,
    /// When it looked for interfaces last.
    looked: Option<Millis>,
    /// The interface indices then, by port.
    indices: BTreeMap<PortNo, u32>,
}

impl State {
    fn send(&mut self, datagrams: &[Vec<u8>]) {
        for datagram in datagrams {
            let (sent, failed) = self.collectors.send(datagram);
            self.counters.sent += sent;
            self.counters.send_errors += failed;
        }
    }
}

impl SflowExport {
    fn new(bridge: Weak<Ofproto>, settings: SflowSettings, sub_agent: u32, now: Millis) -> Self {
        let config = Config {
            address: settings.agent,
            sub_agent,
            sampling: settings.sampling,
            header_bytes: settings.header_bytes,
            polling_secs: settings.polling_secs,
        };
        let (agent, collectors) = (Agent::new(config, now), Collectors::new(&settings.targets));
        let state = State {
            agent,
            collectors,
            counters: ExportCounters::default(),
            looked: None,
            indices: bridge.upgrade().map(|bridge| bridge.indices()).unwrap_or_default(),
        };
        Self { bridge, settings, sub_agent, state: Mutex::new(state), lost: AtomicU64::new(0) }
    }

    /// Its number, for tests.
    #[cfg(test)]
    pub(crate) fn sub_agent(&self) -> u32 {
        self.sub_agent
    }

    /// Adds a sample from the queue.
    pub(super) fn add(&self, sample: &FlowSample, now: Millis) {
        let (mut state, mut datagrams) = (self.state.lock(), Vec::new());
        state.agent.add_flow(sample, now, &mut datagrams);
        state.send(&datagrams);
    }

    /// The view of the agent for translations.
    pub(crate) fn view(&self) -> Option<xlate::Sflow> {
        let SflowSettings { sampling, explicit_drops, .. } = self.settings;
        let probability = u32::MAX.checked_div(sampling)?;
        Some(xlate::Sflow { probability, explicit_drops })
    }

    fn note_lost(&self) {
        base::coverage!(sflow_queue_full);
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Counters, and the number of flow and counter samples.
    fn counters(&self) -> (ExportCounters, [u64; 2]) {
        let state = self.state.lock();
        let stats = state.agent.stats();
        let lost = stats.lost + self.lost.load(Ordering::Relaxed);
        (ExportCounters { lost, ..state.counters.clone() }, [stats.flow_samples, stats.counter_samples])
    }
}

impl Export for SflowExport {
    fn run(&self, now: Millis) -> Option<Millis> {
        let (mut state, mut datagrams) = (self.state.lock(), Vec::new());
        let lost = self.lost.swap(0, Ordering::Relaxed);
        state.agent.add_lost(lost);
        let mut changed = BTreeSet::new();
        let bridge = self.bridge.upgrade();
        if let Some(bridge) = &bridge {
            if state.looked.is_none_or(|looked| now.since(looked) >= LOOK_MS) {
                let indices = bridge.indices();
                changed.extend(
                    indices.iter().filter(|(no, index)| state.indices.get(no) != Some(index)).map(|(no, _)| *no),
                );
                state.agent.set_interfaces(&indices.values().copied().filter(|index| *index != 0).collect(), now);
                (state.looked, state.indices) = (Some(now), indices);
            }
            for source in state.agent.due(now) {
                if let Some(counters) = bridge.sflow_counters(source) {
                    state.agent.add_counters(source, &counters, now, &mut datagrams);
                }
            }
        }
        state.agent.run(now, &mut datagrams);
        state.send(&datagrams);
        let deadline = state.agent.deadline();
        drop(state);
        // Translations have to see changed indices.
        if let Some(bridge) = bridge.filter(|_| !changed.is_empty()) {
            bridge.rebuild_edited(&Edited { ports: changed, ..Edited::default() });
        }
        deadline
    }

    fn end(&self, now: Millis) {
        let (mut state, mut datagrams) = (self.state.lock(), Vec::new());
        state.agent.flush(now, &mut datagrams);
        state.send(&datagrams);
    }
}

/// The interface index of a port with a device, or 0.
pub(crate) fn ifindex(port: &OfPort) -> u32 {
    match (&port.spec.device, port.spec.out) {
        (Some(device), PortOut::Device(_)) => device.status().ifindex.unwrap_or(0),
        _ => 0,
    }
}

impl Ofproto {
    /// Sets the bridge's sFlow agent. Another configuration starts a new agent.
    pub fn set_sflow(&self, settings: Option<SflowSettings>) {
        let old = self.sflow.load_full();
        if old.as_ref().map(|old| &old.settings) == settings.as_ref() {
            return;
        }
        let Some(switch) = self.switch() else { return };
        let new = settings.and_then(|settings| {
            let bridge = switch.bridge(self.id())?;
            let sub_agent = old.as_ref().map_or_else(|| switch.export.reserve_sub_agent(), |old| old.sub_agent);
            tracing::info!(target: "sflow", "creating sFlow agent {sub_agent}");
            Some(Arc::new(SflowExport::new(Arc::downgrade(&bridge), settings, sub_agent, switch.clock().now())))
        });
        if let Some(new) = &new {
            let weak: Weak<SflowExport> = Arc::downgrade(new);
            switch.export.begin(weak, switch.clock());
        }
        let ends = new.is_none();
        self.sflow.store(new);
        // The view of ports may be older than their indices.
        self.rebuild_edited(&Edited { ports: self.indices().into_keys().collect(), ..Edited::default() });
        if let Some(old) = old {
            if ends {
                switch.export.release_sub_agent(old.sub_agent);
            }
            switch.export.end(old);
        }
    }

    /// The interface indices of ports, 0 for those without one.
    fn indices(&self) -> BTreeMap<PortNo, u32> {
        self.ports().iter().map(|port| (port.spec.no, ifindex(port))).collect()
    }

    /// Counters of the agent, and the number of flow and counter samples, if the bridge has one.
    pub fn sflow_stats(&self) -> Option<(ExportCounters, [u64; 2])> {
        self.sflow.load_full().map(|agent| agent.counters())
    }

    /// The counters of a source, in the order of Open vSwitch. `None` if the interface is gone.
    fn sflow_counters(&self, source: Source) -> Option<Vec<Counter>> {
        let Source::Interface(index) = source else {
            return Some(vec![Counter::AppResources(resources()), Counter::Datapath(self.datapath_counters())]);
        };
        let port = self.ports().into_iter().find(|port| ifindex(port) == index)?;
        let (stats, status) = (port.spec.device.as_ref()?.stats(), port.spec.device.as_ref()?.status());
        let interface = Interface {
            index,
            speed: status.speed.unwrap_or(SPEED),
            duplex: match status.duplex {
                None => Duplex::Unknown,
                Some(netdev::Duplex::Full) => Duplex::Full,
                Some(netdev::Duplex::Half) => Duplex::Half,
            },
            admin_up: status.admin_up,
            link_up: status.carrier,
            in_octets: stats.rx_bytes,
            in_packets: stats.rx_packets,
            in_multicast: stats.multicast,
            in_discards: stats.rx_dropped,
            in_errors: stats.rx_errors,
            out_octets: stats.tx_bytes,
            out_packets: stats.tx_packets,
            out_discards: stats.tx_dropped,
            out_errors: stats.tx_errors,
        };
        let ethernet = Ethernet { alignment_errors: stats.rx_frame_errors, fcs_errors: stats.rx_crc_errors };
        let mut counters = vec![
            Counter::Ethernet(ethernet),
            Counter::OpenFlowPort { dpid: self.identity().datapath_id, port: u32::from(openflow16(port.spec.no)) },
            Counter::PortName(port.spec.name),
        ];
        counters.extend(self.lacp_counters(port.spec.no).map(Counter::Lacp));
        counters.push(Counter::Interface(interface));
        Some(counters)
    }

    /// The counters of LACP of a port that has it. As in Open vSwitch, the key of the aggregate is the number of the
    /// aggregator, each port may be aggregated by its administrative state, and partners have none.
    fn lacp_counters(&self, port: PortNo) -> Option<::sflow::Lacp> {
        let member = self.switch()?.lacp_member(BridgePort { bridge: self.id(), port })?;
        let (actor, partner) = (member.actor.state.0, member.partner.state.0);
        let configured = LacpState::ACTIVITY.with(LacpState::TIMEOUT);
        let administrative = LacpState(actor & configured.0).with(LacpState::AGGREGATION);
        Some(::sflow::Lacp {
            actor: member.actor.system.0,
            partner: member.partner.system.0,
            aggregator: member.key.into(),
            states: [administrative.0, actor, 0, partner],
            rx_pdus: member.statistics.rx as u32,
            rx_illegal: member.statistics.rx_bad as u32,
            tx_pdus: member.statistics.tx as u32,
        })
    }

    fn datapath_counters(&self) -> Datapath {
        let switch = self.switch();
        let stats = switch.as_ref().and_then(|switch| switch.dpif()).map(|dpif| dpif.stats()).unwrap_or_default();
        Datapath {
            hit: stats.hit,
            missed: stats.missed,
            lost: stats.lost,
            mask_hit: Some(stats.mask_hits),
            flows: stats.flows as u32,
            masks: Some(stats.masks as u32),
        }
    }
}

/// A port's number in OpenFlow 1.0, in which counters state it.
fn openflow16(no: PortNo) -> u16 {
    no.0 as u16
}

/// The resources of this process, from the kernel's statistics; 0 where they cannot be read.
fn resources() -> AppResources {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name in parentheses, fields 3 onward: processor time is 14 and 15 (proc(5)).
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or(0);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    AppResources {
        user_ms: (ticks(11) * TICK_MS) as u32,
        system_ms: (ticks(12) * TICK_MS) as u32,
        memory_used: kib * 1024,
    }
}

impl Switch {
    /// Queues a packet from `port` for the sFlow agent of a bridge, if there is one.
    pub(crate) fn sample_for_sflow(&self, port: DpPort, what: &Observe, way: &SampledWay, packet: &Packet) {
        let Some(agent) = self.bridge(what.bridge).and_then(|bridge| bridge.sflow.load_full()) else { return };
        let metadata = packet.metadata();
        let received = metadata.and_then(|metadata| metadata.tunnel.as_deref());
        let src_port = metadata.map_or(0, |metadata| metadata.tunnel_src_port);
        let interfaces = self.ipfix.interfaces();
        let from = received.and_then(|tunnel| self.tunnel_port(what.bridge, port, packet, tunnel));
        let kind = |no| self.bridge(what.bridge)?.port(no)?.spec.tunnel.map(|config| config.tunnel_type);
        let ingress = received.map(|tunnel| received_tunnel(tunnel, src_port, from.and_then(kind)));
        let (data, l3_type) = (packet.data(), packet.l3_type);
        let vlan_in = if l3_type.is_none() { tag_of(data) } else { 0 };
        let sample = FlowSample {
            input: if received.is_some() { 0 } else { interfaces.device(what.bridge, port).index },
            output: output_of(way.output),
            protocol: match l3_type {
                None => HeaderProtocol::Ethernet,
                Some(ethertype::IPV4) => HeaderProtocol::Ipv4,
                Some(ethertype::IPV6) => HeaderProtocol::Ipv6,
                Some(_) => HeaderProtocol::Mpls,
            },
            header: data[..data.len().min(agent.settings.header_bytes as usize)].to_vec(),
            frame_bytes: data.len() as u32,
            vlan_in,
            vlan_out: way.vlan_tci,
            labels_out: way.labels.clone(),
            egress: way.tunnel.map(sent_tunnel),
            ingress,
        };
        if !self.export.sample(&agent, sample) {
            agent.note_lost();
        }
    }
}

/// The outermost VLAN tag of a frame, 0 without one.
fn tag_of(frame: &[u8]) -> u16 {
    match frame {
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x81, 0, high, low, ..]
        | [_, _, _, _, _, _, _, _, _, _, _, _, 0x88, 0xa8, high, low, ..] => u16::from_be_bytes([*high, *low]) & 0xefff,
        _ => 0,
    }
}

/// The output that a number in an action stands for.
fn output_of(number: u32) -> Output {
    match number >> 30 {
        0 => Output::Interface(number),
        1 => Output::Dropped,
        _ => Output::Several(number & 0x3fff_ffff),
    }
}

fn sent_tunnel(tunnel: SentTunnel) -> Tunnel {
    let SentTunnel { src, dst, protocol, dst_port, tos, key } = tunnel;
    Tunnel { src, dst, protocol, src_port: 0, dst_port, tos, key }
}

fn received_tunnel(tunnel: &packet::metadata::Tunnel, src_port: u16, kind: Option<TunnelType>) -> Tunnel {
    use TunnelType::{Erspan, Gre, Ip6Erspan, Ip6Gre};
    let is_gre = matches!(kind, Some(Gre | Ip6Gre | Erspan | Ip6Erspan)) || tunnel.dst_port == 0;
    Tunnel {
        src: tunnel.src,
        dst: tunnel.dst,
        protocol: if is_gre { GRE } else { UDP },
        src_port,
        dst_port: tunnel.dst_port,
        tos: tunnel.tos,
        key: (tunnel.flags & KEY != 0).then_some(tunnel.key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_a_tag_or_none() {
        let frame = |tail: &[u8]| [&[0; 12], tail].concat();
        assert_eq!(tag_of(&frame(&[0x81, 0, 0x70, 5, 8, 0])), 0x6005);
        assert_eq!(tag_of(&frame(&[0x88, 0xa8, 0, 7])), 7);
        assert_eq!((tag_of(&frame(&[8, 0, 0x45, 0])), tag_of(&frame(&[0x81, 0, 1])), tag_of(&[])), (0, 0, 0));
    }

    #[test]
    fn outputs_keep_their_numbers() {
        for number in [7, 0x4000_0100, 0x8000_0001, 0x8000_0003] {
            assert_eq!(output_of(number).number(), number);
        }
    }

    #[test]
    fn the_process_has_resources() {
        assert!(resources().memory_used > 1 << 20);
    }
}
