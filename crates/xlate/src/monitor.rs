//! Flow monitoring: sampling of received packets for sFlow, and the flows that NetFlow counts.
//!
//! Both concern the bridge that a packet enters first. Both report where the packet goes, which is known only at the
//! end of the translation: the sample comes first in the list of actions, and is completed at the end.

use crate::model::{Bridge, BridgeId, Port};
use crate::translate::Xlate;
use crate::verdict::{CountedFlow, Effect};
use base::PortNo;
use dpif::{Collectors, DpAction, Observe, SampledWay, SentTunnel};
use flow::Field;
use flow::extract::{FRAG_LATER, ethertype, ipproto};
use packet::metadata::Tunnel;
use std::sync::Arc;
use tunnel::TunnelType;
use tunnel::flags::KEY;
use tunnel::options::Config;

/// sFlow's encoding of outputs: a drop for an unknown reason, and a number of outputs.
const OUTPUT_DROPPED: u32 = 1 << 30 | 256;
const OUTPUT_SEVERAL: u32 = 2 << 30;
/// IP protocols.
const GRE: u8 = 47;
const IPV6_ROUTE: u8 = 43;
/// The bit of a VLAN TCI that says that there is a tag.
const TAG_PRESENT: u16 = 0x1000;
/// Fields of an MPLS label stack entry (RFC 3032): label, traffic class, bottom of stack, time to live.
const MPLS_FIELDS: [(Field, u32); 4] =
    [(Field::MplsLabel, 12), (Field::MplsTc, 9), (Field::MplsBos, 8), (Field::MplsTtl, 0)];

/// The outputs of a packet so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outputs {
    /// The bridge that the packet entered first, if it is monitored.
    bridge: Option<BridgeId>,
    /// Number of outputs to devices and tunnels.
    n: u32,
    /// Interface index of the last one in that bridge, 0 if it has none.
    ifindex: u32,
    /// The VLAN tag (TCI) with which the packet left last, or came in.
    vlan_tci: u16,
    /// True if samples report the packet's tag.
    sampled: bool,
    /// The last tunnel.
    tunnel: Option<SentTunnel>,
    /// The output as NetFlow states it.
    netflow: netflow::Output,
}

impl Default for Outputs {
    fn default() -> Self {
        Self {
            bridge: None,
            n: 0,
            ifindex: 0,
            vlan_tci: 0,
            sampled: false,
            tunnel: None,
            netflow: netflow::Output::Dropped,
        }
    }
}

impl Outputs {
    /// The output interface as sFlow states it.
    fn sflow(&self) -> u32 {
        match self.n {
            0 => OUTPUT_DROPPED,
            1 if self.ifindex != 0 => self.ifindex,
            n => OUTPUT_SEVERAL | n,
        }
    }

    fn add_netflow(&mut self, port: PortNo) {
        use netflow::Output::{Dropped, Flood, Port, Several};
        self.netflow = match self.netflow {
            Dropped => Port(port.0 as u16),
            Flood => Flood,
            Port(_) | Several => Several,
        };
    }
}

impl Xlate<'_> {
    /// Begins to monitor a packet that enters its first bridge: samples it for sFlow, and returns its flow if NetFlow
    /// counts it.
    pub(crate) fn begin_monitoring(&mut self, bridge: &Bridge, in_port: PortNo) -> Option<netflow::Flow> {
        if bridge.sflow.is_none() && !bridge.netflow {
            return None;
        }
        self.out.outputs.bridge = Some(bridge.id);
        let flow = bridge.netflow.then(|| self.netflow_flow(in_port)).flatten();
        if let Some(sflow) = bridge.sflow
            && in_port != PortNo::NONE
        {
            // Samples report the tag that the packet leaves with.
            let vlan_tci = self.read_bits(Field::VlanTci, u128::MAX) as u16;
            (self.out.outputs.vlan_tci, self.out.outputs.sampled) = (vlan_tci, true);
            self.out.explicit_drops |= sflow.explicit_drops;
            let report = self.report(Collectors::Sflow(Arc::default()), None, None);
            self.emit_sample(sflow.probability, vec![report]);
        }
        flow
    }

    /// The NetFlow flow of the packet, which has no other fields: IPv4 only.
    fn netflow_flow(&mut self, in_port: PortNo) -> Option<netflow::Flow> {
        if self.packet.key.eth_type() != ethertype::IPV4 {
            return None;
        }
        let mut read = |field| self.read_bits(field, u128::MAX);
        let protocol = read(Field::IpProto) as u8;
        let (src, dst) = (read(Field::Ipv4Src) as u32, read(Field::Ipv4Dst) as u32);
        let (tos, fragment) = ((read(Field::IpDscp) as u8) << 2, read(Field::IpFrag) as u8);
        let (src_port, dst_port) = match protocol {
            _ if fragment & FRAG_LATER != 0 => (0, 0),
            ipproto::TCP => (read(Field::TcpSrc) as u16, read(Field::TcpDst) as u16),
            ipproto::UDP => (read(Field::UdpSrc) as u16, read(Field::UdpDst) as u16),
            ipproto::SCTP => (read(Field::SctpSrc) as u16, read(Field::SctpDst) as u16),
            ipproto::ICMP => (0, (read(Field::Icmpv4Type) as u16) << 8 | read(Field::Icmpv4Code) as u16),
            _ => (0, 0),
        };
        let (src, dst) = (src.into(), dst.into());
        Some(netflow::Flow { input: in_port.0 as u16, src, dst, protocol, tos, src_port, dst_port })
    }

    /// Completes the sample, and reports the flow that [`Xlate::begin_monitoring`] returned.
    pub(crate) fn end_monitoring(&mut self, bridge: &Bridge, flow: Option<netflow::Flow>) {
        if let Some(flow) = flow {
            let output = self.out.outputs.netflow;
            self.out.effects.push(Effect::NetFlow(Arc::new(CountedFlow { bridge: bridge.id, flow, output })));
        }
        let outputs = self.out.outputs;
        if !outputs.sampled {
            return;
        }
        let way = SampledWay {
            vlan_tci: if outputs.vlan_tci & TAG_PRESENT == 0 { 0 } else { outputs.vlan_tci & !TAG_PRESENT },
            output: outputs.sflow(),
            labels: if outputs.n == 1 { pushed_labels(&self.out.actions) } else { Vec::new() },
            tunnel: outputs.tunnel.filter(|_| outputs.n == 1),
        };
        let way = Arc::new(way);
        if let Some(first) = self.out.actions.first_mut() {
            *first = completed(first, &way);
        }
    }

    /// Notes an output to a device of the current bridge.
    pub(crate) fn note_output(&mut self, port: &Port) {
        let is_first_bridge = self.out.outputs.bridge == Some(self.pos.bridge.id);
        let tag = self.out.outputs.sampled.then(|| self.read_bits(Field::VlanTci, u128::MAX) as u16);
        let outputs = &mut self.out.outputs;
        outputs.vlan_tci = tag.unwrap_or(0);
        outputs.n += 1;
        outputs.ifindex = if is_first_bridge { port.ifindex } else { 0 };
        if is_first_bridge {
            outputs.add_netflow(port.no);
        }
    }

    /// Notes an output to a bond of which the datapath chooses the member for each packet: the interface is unknown.
    pub(crate) fn note_bond_output(&mut self) {
        let is_first_bridge = self.out.outputs.bridge == Some(self.pos.bridge.id);
        let tag = self.out.outputs.sampled.then(|| self.read_bits(Field::VlanTci, u128::MAX) as u16);
        let outputs = &mut self.out.outputs;
        outputs.vlan_tci = tag.unwrap_or(0);
        outputs.n += 1;
        outputs.ifindex = 0;
        if is_first_bridge && outputs.netflow != netflow::Output::Flood {
            outputs.netflow = netflow::Output::Several;
        }
    }

    /// Notes an output to a patch port. NetFlow knows the ports of its own bridge.
    pub(crate) fn note_patch_output(&mut self, port: &Port) {
        if self.out.outputs.bridge == Some(self.pos.bridge.id) {
            self.out.outputs.add_netflow(port.no);
        }
    }

    /// Notes an output to a tunnel. Returns the outputs to be restored after the translation of the outer packet, which
    /// is no further output.
    pub(crate) fn note_tunnel_output(&mut self, port: &Port, config: &Config, outer: &Tunnel) -> Outputs {
        self.note_output(port);
        let outputs = &mut self.out.outputs;
        outputs.ifindex = 0;
        outputs.tunnel = Some(SentTunnel {
            src: outer.src,
            dst: outer.dst,
            protocol: protocol_of(config.tunnel_type),
            dst_port: config.dst_port,
            tos: outer.tos,
            key: (outer.flags & KEY != 0).then_some(outer.key),
        });
        *outputs
    }

    /// Notes that the NORMAL action has flooded the packet.
    pub(crate) fn note_flood(&mut self) {
        if self.out.outputs.bridge == Some(self.pos.bridge.id) {
            self.out.outputs.netflow = netflow::Output::Flood;
        }
    }
}

/// The IP protocol of a type of tunnels.
fn protocol_of(tunnel_type: TunnelType) -> u8 {
    match tunnel_type {
        TunnelType::Gre | TunnelType::Ip6Gre | TunnelType::Erspan | TunnelType::Ip6Erspan => GRE,
        TunnelType::Srv6 => IPV6_ROUTE,
        TunnelType::Vxlan | TunnelType::Geneve | TunnelType::Gtpu | TunnelType::Bareudp => ipproto::UDP,
    }
}

/// The sampling action with what becomes of the packet.
fn completed(action: &DpAction, way: &Arc<SampledWay>) -> DpAction {
    match action {
        DpAction::Observe(what) if matches!(what.collectors, Collectors::Sflow(_)) => {
            let collectors = Collectors::Sflow(Arc::clone(way));
            DpAction::Observe(Observe { collectors, ..(**what).clone() }.into())
        }
        DpAction::Sample { .. } => action.with_nested(|list| list.iter().map(|one| completed(one, way)).collect()),
        other => other.clone(),
    }
}

/// The MPLS label stack entries that actions push, without those that they pop again, the outermost first.
fn pushed_labels(actions: &[DpAction]) -> Vec<u32> {
    let mut pushed: Vec<u32> = Vec::new();
    for action in actions {
        match action {
            DpAction::PushMpls { lse, .. } | DpAction::AddMpls { lse, .. } => pushed.push(*lse),
            DpAction::PopMpls { .. } => drop(pushed.pop()),
            DpAction::Set { field, value, mask } => {
                let at = MPLS_FIELDS.iter().find(|(known, _)| known == field);
                if let (Some((_, shift)), Some(last)) = (at, pushed.last_mut()) {
                    *last = *last & !((*mask as u32) << shift) | ((value & mask) as u32) << shift;
                }
            }
            _ => {}
        }
    }
    pushed.reverse();
    pushed
}
