//! The controller of one switch: its initial messages, and its replies to the switch's messages. It has no sockets and
//! no clock: messages are bytes, and time is an argument.
//!
//! The controller learns the port of each packet's source address. A packet to a known address is sent to its port,
//! together with a flow that lets the switch forward later packets itself. A packet to an unknown or multicast address
//! is flooded without a flow.

use crate::flows::Format;
use crate::macs::Macs;
use base::{Millis, PortNo};
use flow::text::NoNames;
use flow::{Field, FlowKey, Match};
use openflow::action::PacketInReason;
use openflow::message::{decode, encode, encode_with};
use openflow::multipart::{StatsReply, StatsRequest};
use openflow::packet::{PacketIn, PacketOut};
use openflow::port::{PortDesc, PortReason};
use openflow::switch::{FragHandling, SwitchConfig};
use openflow::{Action, FlowMod, FlowModCommand, Message, ParsedFlow, Version};
use std::collections::{BTreeMap, HashMap};

/// Number of bytes of a packet that switches send to the controller.
const MISS_SEND_LEN: u16 = 128;
/// Priority of the installed flows.
const PRIORITY: u16 = 1;

/// Where packets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Mode {
    /// Forward to the port on which the destination was seen.
    #[default]
    Learn,
    /// Everywhere.
    Hub,
    /// Let the switch learn and forward by itself (OFPP_NORMAL).
    Normal,
}

/// The policy for all switches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Policy {
    pub(crate) mode: Mode,
    /// Whether to install flows, in addition to sending packets.
    pub(crate) set_up_flows: bool,
    /// Fields that these flows do not match, as `ofp_flow_wildcards` of OpenFlow 1.0 (section 5.2.3).
    pub(crate) wildcards: u32,
    /// Idle timeout of these flows in seconds; 0 for none.
    pub(crate) idle_timeout: u16,
    /// The default queue of packets.
    pub(crate) queue: Option<u32>,
    /// Queues of packets by the name of their ingress port.
    pub(crate) port_queues: BTreeMap<String, u32>,
    /// Whether all messages of switches are ignored.
    pub(crate) mute: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::Learn,
            set_up_flows: true,
            wildcards: 0,
            idle_timeout: 60,
            queue: None,
            port_queues: BTreeMap::new(),
            mute: false,
        }
    }
}

/// The controller of one switch.
#[derive(Debug)]
pub(crate) struct Controller<'a> {
    policy: &'a Policy,
    version: Version,
    format: Format,
    macs: Macs,
    /// Queues by ingress port, for ports whose names are known.
    queues: HashMap<PortNo, u32>,
    last_xid: u32,
    out: Vec<u8>,
}

impl<'a> Controller<'a> {
    /// A controller for a switch with negotiated `version`. Transaction ids continue after `last_xid`.
    pub(crate) fn new(policy: &'a Policy, version: Version, last_xid: u32) -> Self {
        let format = Format::initial(version);
        Self { policy, version, format, macs: Macs::default(), queues: HashMap::new(), last_xid, out: Vec::new() }
    }

    /// Takes the queued output.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Queues a message with a new transaction id.
    pub(crate) fn send(&mut self, message: &Message) {
        self.last_xid = self.last_xid.wrapping_add(1);
        self.out.extend(encode_with(self.version, self.last_xid, message, self.format.options()));
    }

    /// Queues the initial messages. The error states why the switch cannot receive `flows`.
    pub(crate) fn begin(&mut self, flows: &[ParsedFlow]) -> Result<(), &'static str> {
        self.send(&Message::FeaturesRequest);
        self.send(&Message::SetConfig(SwitchConfig {
            frag: FragHandling::Normal,
            invalid_ttl_to_controller: None,
            miss_send_len: MISS_SEND_LEN,
        }));
        if self.policy.mute {
            return Ok(());
        }
        if self.version >= Version::V13 {
            if !self.policy.port_queues.is_empty() {
                // From OpenFlow 1.3 on, features do not list the ports.
                self.send(&Message::StatsRequest { more: false, body: StatsRequest::PortDesc(PortNo::ANY) });
            }
            // Without this flow, packets that match no flow are dropped (OpenFlow 1.3 section 5.4).
            let mut miss = FlowMod::new(FlowModCommand::Add);
            miss.priority = 0;
            miss.actions = vec![Action::Output { port: PortNo::CONTROLLER, max_len: MISS_SEND_LEN }];
            self.send(&Message::FlowMod(self.format.form(), Box::new(miss)));
        }
        if flows.is_empty() {
            return Ok(());
        }
        let format = Format::for_flows(flows, self.version).ok_or("failed to set usable protocol")?;
        for request in format.requests(self.format) {
            self.send(&request);
        }
        self.format = format;
        for flow in flows {
            self.send(&Message::FlowMod(format.form(), Box::new(flow.flow_mod.clone())));
        }
        Ok(())
    }

    /// Handles a message of the switch and queues the reply. Errors are to be logged.
    pub(crate) fn receive(&mut self, msg: &[u8], now: Millis) -> Result<(), String> {
        let (version, xid, message) = decode(msg).map_err(|e| e.to_string())?;
        if self.policy.mute {
            return Ok(());
        }
        match message {
            Message::EchoRequest(data) => self.out.extend(encode(version, xid, &Message::EchoReply(data))),
            Message::FeaturesReply(features) => self.learn_names(&features.ports),
            Message::StatsReply { body: StatsReply::PortDesc(ports), .. } => self.learn_names(&ports),
            Message::PortStatus(status) if status.reason == PortReason::Delete => {
                self.queues.remove(&status.desc.port_no);
            }
            Message::PortStatus(status) => self.learn_names(&[status.desc]),
            Message::PacketIn(_, packet) => self.packet_in(&packet, now),
            Message::Error(report) => return Err(format!("switch reported an error: {:?}", report.error)),
            _ => {}
        }
        Ok(())
    }

    fn learn_names(&mut self, ports: &[PortDesc]) {
        for port in ports {
            match self.policy.port_queues.get(&port.name) {
                Some(queue) => self.queues.insert(port.port_no, *queue),
                None => self.queues.remove(&port.port_no),
            };
        }
    }

    fn packet_in(&mut self, packet: &PacketIn, now: Millis) {
        // Packets sent by an action are not for this controller.
        if packet.reason == PacketInReason::Action {
            return;
        }
        let in_port = packet.in_port();
        let (key, _) = flow::extract(&packet.data, in_port);
        let out_port = self.destination(&key, in_port, now);
        let actions: Vec<Action> = out_port.map(|port| self.output(port, in_port)).into_iter().collect();
        let floods_unknown = self.policy.mode != Mode::Hub && out_port == Some(PortNo::FLOOD);
        let send_flow = self.policy.set_up_flows && !floods_unknown;
        if send_flow {
            let mut flow = FlowMod::new(FlowModCommand::Add);
            flow.priority = PRIORITY;
            flow.matching = matching(&key, self.policy.wildcards);
            flow.idle_timeout = self.policy.idle_timeout;
            flow.buffer_id = packet.buffer_id;
            flow.actions.clone_from(&actions);
            self.send(&Message::FlowMod(self.format.form(), Box::new(flow)));
        }
        // With the flow, the switch also forwards or drops a buffered packet. An unbuffered packet to nowhere needs no
        // reply.
        let needs_packet_out = if packet.buffer_id.is_some() { !send_flow } else { !actions.is_empty() };
        if needs_packet_out {
            self.send(&Message::PacketOut(PacketOut {
                buffer_id: packet.buffer_id,
                in_port,
                metadata: Match::ANY,
                actions,
                data: if packet.buffer_id.is_some() { Vec::new() } else { packet.data.clone() },
            }));
        }
    }

    /// The output port of a packet; `None` to drop it. Learns its source.
    fn destination(&mut self, key: &FlowKey, in_port: PortNo, now: Millis) -> Option<PortNo> {
        let mac = |field| base::MacAddr::from_u64(key.get(field) as u64);
        let (src, dst) = (mac(Field::EthSrc), mac(Field::EthDst));
        if dst.is_reserved() {
            return None;
        }
        if self.policy.mode == Mode::Hub {
            return Some(PortNo::FLOOD);
        }
        self.macs.learn(src, in_port, now);
        let known = (!dst.is_multicast()).then(|| self.macs.port(dst, now)).flatten();
        match known {
            None => Some(PortNo::FLOOD),
            Some(port) if port == in_port => None,
            Some(_) if self.policy.mode == Mode::Normal => Some(PortNo::NORMAL),
            Some(port) => Some(port),
        }
    }

    fn output(&self, port: PortNo, in_port: PortNo) -> Action {
        match self.queues.get(&in_port).copied().or(self.policy.queue) {
            Some(queue) if port.0 < PortNo::MAX.0 || port == PortNo::LOCAL => Action::Enqueue { port, queue },
            _ => Action::Output { port, max_len: 0 },
        }
    }
}

// Bits of `ofp_flow_wildcards` (OpenFlow 1.0 section 5.2.3).
const IN_PORT: u32 = 1;
const DL_VLAN: u32 = 1 << 1;
const DL_SRC: u32 = 1 << 2;
const DL_DST: u32 = 1 << 3;
const DL_TYPE: u32 = 1 << 4;
const NW_PROTO: u32 = 1 << 5;
const TP_SRC: u32 = 1 << 6;
const TP_DST: u32 = 1 << 7;
const NW_SRC_SHIFT: u32 = 8;
const NW_DST_SHIFT: u32 = 14;
const DL_VLAN_PCP: u32 = 1 << 20;
const NW_TOS: u32 = 1 << 21;

/// Bits of a VLAN tag: its presence, id, and priority.
const TAGGED: u128 = 0x1000;
const VLAN_ID: u128 = 0x1fff;
const PRIORITY_BITS: u128 = 0xf000;

/// Matches the OpenFlow 1.0 fields of `key`, except for `wildcards`.
fn matching(key: &FlowKey, wildcards: u32) -> Match {
    let mut m = Match::ANY;
    let mut set = |bits: u32, fields: &[Field]| {
        if wildcards & bits == 0 {
            fields.iter().for_each(|field| m.set(*field, key.get(*field)));
        }
    };
    set(IN_PORT, &[Field::InPortOxm]);
    set(DL_SRC, &[Field::EthSrc]);
    set(DL_DST, &[Field::EthDst]);
    set(DL_TYPE, &[Field::EthType]);
    set(NW_PROTO, &[Field::IpProto]);
    set(NW_TOS, &[Field::IpDscp]);
    set(TP_SRC, &[Field::TcpSrc]);
    set(TP_DST, &[Field::TcpDst]);
    for (shift, field) in [(NW_SRC_SHIFT, Field::Ipv4Src), (NW_DST_SHIFT, Field::Ipv4Dst)] {
        let mask = u32::MAX.checked_shl(wildcards >> shift & 0x3f).unwrap_or(0);
        m.set_masked(field, key.get(field), mask.into());
    }
    let tci = u128::from(key.vlan_tci());
    let wanted = |bit: u32, bits: u128| if wildcards & bit == 0 { bits } else { 0 };
    let mask = wanted(DL_VLAN, VLAN_ID) | wanted(DL_VLAN_PCP, PRIORITY_BITS);
    match tci & TAGGED {
        // A match on the id already covers the absence of a tag.
        0 if wildcards & DL_VLAN == 0 => m.set(Field::VlanTci, 0),
        0 => {}
        _ => m.set_masked(Field::VlanTci, tci, mask),
    }
    let _ = m.normalize(&NoNames);
    m
}

#[cfg(test)]
mod tests;
