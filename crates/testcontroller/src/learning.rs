//! One switch's controller: what to tell it when it connects, and what to answer to its messages. No sockets: messages
//! come and go as bytes, and time is an argument.
//!
//! A packet from an address tells where the address is. A packet to an address that is known goes there, and with it a flow
//! that has the switch send the next ones there itself. What goes to an unknown address, or to many, is flooded, and the
//! controller sees the next one too.

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

/// Bytes of a packet that a switch is to send to the controller.
const MISS_SEND_LEN: u16 = 128;
/// Priority of flows that are set up.
const PRIORITY: u16 = 1;

/// Where packets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Mode {
    /// Where their destination was seen.
    #[default]
    Learn,
    /// Everywhere.
    Hub,
    /// Where their destination was seen, as the switch itself knows (OFPP_NORMAL).
    Normal,
}

/// What switches are told to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Policy {
    pub(crate) mode: Mode,
    /// Whether the switch gets flows, beside packets.
    pub(crate) set_up_flows: bool,
    /// Fields that those flows do not match, as `ofp_flow_wildcards` of OpenFlow 1.0 (section 5.2.3).
    pub(crate) wildcards: u32,
    /// Seconds without a packet until such a flow goes; 0 for never.
    pub(crate) idle_timeout: u16,
    /// The queue for packets, unless there is another for the port they came from.
    pub(crate) queue: Option<u32>,
    /// Queues for packets by the name of the port that they came from.
    pub(crate) port_queues: BTreeMap<String, u32>,
    /// Whether no message of a switch is answered.
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
    /// Queues by ingress port, as far as names of ports are known.
    queues: HashMap<PortNo, u32>,
    last_xid: u32,
    out: Vec<u8>,
}

impl<'a> Controller<'a> {
    /// For a switch with which `version` was agreed on. Transaction ids go on after `last_xid`.
    pub(crate) fn new(policy: &'a Policy, version: Version, last_xid: u32) -> Self {
        let format = Format::initial(version);
        Self { policy, version, format, macs: Macs::default(), queues: HashMap::new(), last_xid, out: Vec::new() }
    }

    /// What is to be sent, and was not yet given out.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Queues a message that answers none.
    pub(crate) fn send(&mut self, message: &Message) {
        self.last_xid = self.last_xid.wrapping_add(1);
        self.out.extend(encode_with(self.version, self.last_xid, message, self.format.options()));
    }

    /// Queues what a switch is told first. The error says why it does not get `flows`.
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
                // Features tell no ports any more.
                self.send(&Message::StatsRequest { more: false, body: StatsRequest::PortDesc(PortNo::ANY) });
            }
            // Without this flow packets that no flow matches are dropped (OpenFlow 1.3 section 5.4).
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

    /// Takes in a message of the switch; the answer is queued. An error is for the log.
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
        // What an action sent here is somebody else's business.
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
        // A buffered packet goes, or is dropped, with the flow; one that came whole, and goes nowhere, is done with.
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

    /// Where a packet goes; `None` to drop it. Its source is remembered.
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

/// Bits of a VLAN tag: that there is one, its id, and its priority.
const TAGGED: u128 = 0x1000;
const VLAN_ID: u128 = 0x1fff;
const PRIORITY_BITS: u128 = 0xf000;

/// Matches the fields of OpenFlow 1.0 as `key` has them, less `wildcards`.
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
        // An id says already that there is no tag.
        0 if wildcards & DL_VLAN == 0 => m.set(Field::VlanTci, 0),
        0 => {}
        _ => m.set_masked(Field::VlanTci, tci, mask),
    }
    let _ = m.normalize(&NoNames);
    m
}

#[cfg(test)]
mod tests;
