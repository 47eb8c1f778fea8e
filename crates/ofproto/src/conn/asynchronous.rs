//! Asynchronous messages of a switch.

use super::peer::Peer;
use crate::bridge::{OfPort, Ofproto, PortChange};
use crate::flow_table::{Removed, RemovedReason};
use dpif::ControllerUpcall;
use flow::extract::ethertype;
use flow::{Field, FlowKey, Match, TunOption};
use netdev::LinkStatus;
use openflow::continuation::Continuation;
use openflow::flow_msg::{FlowRemoved, FlowRemovedReason};
use openflow::message::{Form, Message, encode};
use openflow::packet::{PacketIn, PacketInFormat};
use openflow::port::{PortDesc, PortReason, PortStatus, config, state};
use openflow::{OfpError, PacketInReason, Version};
use packet::Packet;
use protocols::TreeState;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use xlate::PortConfig;

impl Ofproto {
    /// Sends a packet to the controllers that want it. Called on packet threads.
    pub(crate) fn packet_in(&self, what: &ControllerUpcall, packet: &Packet) {
        let now = self.now();
        let mut encoded: Option<PacketIn> = None;
        self.connections().for_each(|peer| {
            let (format, controller_id, version) = {
                let state = peer.state.lock();
                (state.packet_in_format, state.controller_id, state.version)
            };
            let Some(version) = version else { return };
            let reason = reason_for(version, what);
            if controller_id != what.controller_id || !peer.wants(|a| a.packet_in, reason.number().into()) {
                return;
            }
            let message = || {
                let message = encoded.get_or_insert_with(|| {
                    // Completes partial checksums, which a controller cannot do.
                    let mut finished = packet.clone();
                    packet::checksum::finish(&mut finished);
                    PacketIn {
                        continuation: self.continuation(what),
                        ..packet_in(what, self.options_of(&what.metadata), &finished)
                    }
                });
                Message::PacketIn(format, Box::new(PacketIn { reason, ..message.clone() }))
            };
            let lost = peer.send_packet_in(reason, what.in_port, now, message);
            if lost > 0 {
                self.connections().count_lost(lost);
            }
        });
    }

    /// The continuation with which a controller resumes the packet, if the action pauses it.
    fn continuation(&self, what: &ControllerUpcall) -> Vec<u8> {
        if what.pauses {
            Continuation::mark(self.mark() | u128::from(what.recirc_id), (what.table, what.cookie))
        } else {
            Vec::new()
        }
    }

    /// Resumes a packet that a controller returns ([`Message::Resume`]).
    pub(crate) fn resume(&self, packet_in: &PacketIn, version: Version) -> Result<(), OfpError> {
        let stale = OfpError::NxrStale;
        let mark = Continuation::decode(version, &packet_in.continuation).map_err(|_| stale)?.bridge;
        if mark & !u128::from(u32::MAX) != self.mark() {
            return Err(stale);
        }
        let switch = self.switch().ok_or(stale)?;
        let state =
            switch.network().frozen.get(mark as u32).filter(|k| k.frozen.paused && k.frozen.bridge == self.id());
        let state = state.ok_or(stale)?;
        let mut key = switch.key_of(&packet_in.data, packet_in.in_port());
        for field in packet_in_fields() {
            key.set(field, packet_in.metadata.get(field).0);
        }
        let mut metadata = packet_in.metadata.clone();
        self.place_options(&mut metadata)?;
        crate::tlv::put_options(&mut key, &metadata);
        self.resume_packet(&state, &key, Packet::from_slice(&packet_in.data));
        Ok(())
    }

    /// Reports removed flows to the controllers that want flow-removed messages.
    pub(crate) fn send_flows_removed(&self, removed: &[Removed]) {
        for Removed { rule, reason } in removed {
            if !rule.flags.send_flow_rem {
                continue;
            }
            let age = self.now().since(rule.created);
            let message = FlowRemoved {
                matching: self.match_of(rule),
                cookie: rule.cookie,
                priority: rule.openflow_priority(),
                reason: match reason {
                    RemovedReason::IdleTimeout => FlowRemovedReason::IdleTimeout,
                    RemovedReason::HardTimeout => FlowRemovedReason::HardTimeout,
                    RemovedReason::Delete => FlowRemovedReason::Delete,
                    RemovedReason::GroupDelete => FlowRemovedReason::GroupDelete,
                    RemovedReason::MeterDelete => FlowRemovedReason::MeterDelete,
                    RemovedReason::Eviction => FlowRemovedReason::Eviction,
                },
                table_id: Some(rule.table),
                duration_sec: (age / 1000) as u32,
                duration_nsec: (age % 1000) as u32 * 1_000_000,
                idle_timeout: rule.idle_timeout,
                hard_timeout: rule.hard_timeout,
                packet_count: rule.stats().packets.load(Ordering::Relaxed),
                byte_count: rule.stats().bytes.load(Ordering::Relaxed),
            };
            self.connections().for_each(|peer| {
                if peer.wants(|a| a.flow_removed, *reason as u32) {
                    peer.notify(&Message::FlowRemoved(flow_removed_form(peer), Box::new(message.clone())));
                }
            });
        }
    }

    /// Sends a port status after `requester` changed the configuration of a port from `before` to `after`: to connections in
    /// whose version of OpenFlow the port looks different now. The requester receives one from OpenFlow 1.5 on (section 7.4.3,
    /// EXT-338).
    pub(super) fn send_port_modified(&self, requester: &Peer, port: &OfPort, before: &PortDesc, after: PortDesc) {
        self.send_port_step(before, &after, |peer, version| {
            version >= Version::V15 || !std::ptr::eq(Arc::as_ptr(peer), requester)
        });
        *port.reported.lock() = Some(after);
    }

    /// Sends a port status to connections in whose version of OpenFlow the descriptions `before` and `after` differ.
    fn send_port_step(&self, before: &PortDesc, after: &PortDesc, is_wanted: impl Fn(&Arc<Peer>, Version) -> bool) {
        let status =
            |desc: &PortDesc| Message::PortStatus(PortStatus { reason: PortReason::Modify, desc: desc.clone() });
        let (old, new) = (status(before), status(after));
        self.connections().for_each(|peer| {
            let Some(version) = peer.version() else { return };
            if peer.wants(|a| a.port_status, PortReason::Modify as u32)
                && is_wanted(peer, version)
                && encode(version, 0, &old) != encode(version, 0, &new)
            {
                peer.notify(&new);
            }
        });
    }

    /// Sends port statuses if a port is no longer as it was last reported. As in Open vSwitch, a port stops to be live first.
    pub(crate) fn send_port_state(&self, port: &OfPort) {
        let new = port_desc(port);
        let Some(mut old) = port.reported.lock().replace(new.clone()) else {
            return self.send_port_status(PortReason::Modify, new);
        };
        if old.state & !new.state & state::LIVE != 0 {
            let dead = PortDesc { state: old.state & !state::LIVE, ..old.clone() };
            self.send_port_step(&old, &dead, |_, _| true);
            old = dead;
        }
        self.send_port_step(&old, &new, |_, _| true);
    }

    fn send_port_status(&self, reason: PortReason, desc: PortDesc) {
        let message = Message::PortStatus(PortStatus { reason, desc });
        self.connections().for_each(|peer| {
            if peer.wants(|a| a.port_status, reason as u32) {
                peer.notify(&message);
            }
        });
    }

    /// Reports added, removed and changed ports to controllers. A port is added first, and becomes live then.
    pub fn send_port_changes(&self, changes: &[PortChange]) {
        self.links_changed(changes.iter().filter_map(|change| match change {
            PortChange::Added(port) | PortChange::Modified(port) => Some(port.spec.no),
            PortChange::Deleted(_) => None,
        }));
        for change in changes {
            match change {
                PortChange::Added(port) => {
                    let mut desc = port_desc(port);
                    desc.state &= !state::LIVE;
                    *port.reported.lock() = Some(desc.clone());
                    self.send_port_status(PortReason::Add, desc);
                }
                PortChange::Deleted(port) => self.send_port_status(PortReason::Delete, port_desc(port)),
                PortChange::Modified(_) => {}
            }
        }
        for change in changes {
            if let PortChange::Added(port) | PortChange::Modified(port) = change {
                self.send_port_state(port);
            }
        }
    }
}

fn flow_removed_form(peer: &Peer) -> Form {
    // A client that uses OpenFlow 1.0 with Nicira's extensions asks for packet-ins in their form.
    let state = peer.state.lock();
    let nicira = state.version == Some(openflow::Version::V10) && state.packet_in_format != PacketInFormat::Standard;
    if nicira { Form::Nicira } else { Form::Standard }
}

/// The reason in messages to a peer of this version: reasons that OpenFlow 1.4 added are actions before it, and so is the
/// reason of a table-miss flow before OpenFlow 1.3, which has no such flows.
fn reason_for(version: Version, what: &ControllerUpcall) -> PacketInReason {
    match PacketInReason::from_wire(what.reason) {
        PacketInReason::NoMatch if what.table_miss && version < Version::V13 => PacketInReason::Action,
        reason @ (PacketInReason::NoMatch | PacketInReason::Action | PacketInReason::InvalidTtl) => reason,
        PacketInReason::Other(_) => PacketInReason::Action,
        reason if version >= Version::V14 => reason,
        _ => PacketInReason::Action,
    }
}

/// The metadata fields of packet-ins, apart from the ingress port.
fn packet_in_fields() -> impl Iterator<Item = Field> {
    let fields = [
        Field::TunId,
        Field::TunSrc,
        Field::TunDst,
        Field::TunIpv6Src,
        Field::TunIpv6Dst,
        Field::TunFlags,
        Field::TunGbpId,
        Field::TunGbpFlags,
        Field::TunErspanIdx,
        Field::TunErspanVer,
        Field::TunErspanDir,
        Field::TunErspanHwid,
        Field::TunGtpuFlags,
        Field::TunGtpuMsgtype,
        Field::Metadata,
        Field::PktMark,
    ];
    fields.into_iter().chain((0..16).filter_map(Field::reg))
}

/// Adds the state of a packet's connection, and its original direction if it is valid.
fn report_connection(key: &FlowKey, metadata: &mut Match) {
    const TRACKED: u128 = 0x20;
    const INVALID: u128 = 0x10;
    let mut report = |fields: &[Field]| fields.iter().for_each(|field| metadata.set(*field, key.get(*field)));
    let state = key.get(Field::CtState);
    if state != 0 {
        report(&[Field::EthType, Field::CtState]);
    }
    if state & (TRACKED | INVALID) == TRACKED && key.get(Field::CtNwProto) != 0 {
        match key.eth_type() {
            ethertype::IPV4 => {
                report(&[Field::CtNwSrc, Field::CtNwDst, Field::CtNwProto, Field::CtTpSrc, Field::CtTpDst]);
            }
            ethertype::IPV6 => {
                report(&[Field::CtIpv6Src, Field::CtIpv6Dst, Field::CtNwProto, Field::CtTpSrc, Field::CtTpDst]);
            }
            _ => {}
        }
    }
    for field in [Field::CtZone, Field::CtMark, Field::CtLabel] {
        if key.get(field) != 0 {
            report(&[field]);
        }
    }
}

fn packet_in(what: &ControllerUpcall, options: Vec<TunOption>, packet: &Packet) -> PacketIn {
    let mut metadata = Match::ANY;
    metadata.set(Field::InPortOxm, what.in_port.0.into());
    for field in packet_in_fields() {
        // The other flags are not visible in the field.
        let visible = if field == Field::TunFlags { tunnel::flags::OAM.into() } else { u128::MAX };
        let value = what.metadata.get(field) & visible;
        if value != 0 {
            metadata.set(field, value);
        }
    }
    report_connection(&what.metadata, &mut metadata);
    for option in options {
        metadata.set_option(option);
    }
    PacketIn {
        // Set for each peer by its version.
        reason: PacketInReason::Action,
        buffer_id: None,
        total_len: packet.len() as u32,
        table_id: what.table,
        cookie: what.cookie,
        metadata,
        // The whole packet, whatever length the action has: without buffers, a controller could not fetch the rest (OpenFlow 1.3
        // section 7.4.1).
        data: packet.data().to_vec(),
        userdata: what.userdata.clone(),
        continuation: Vec::new(),
    }
}

/// Describes a port in the form of OpenFlow.
pub(crate) fn port_desc(port: &OfPort) -> PortDesc {
    let status = port.spec.device.as_ref().map(|d| d.status());
    let up = status.as_ref().is_none_or(|s| s.carrier);
    let speed = |s: Option<u64>| s.map_or(0, |bps| (bps / 1000).min(u64::from(u32::MAX)) as u32);
    let features = status.as_ref().map(|s| s.features).unwrap_or_default();
    PortDesc {
        port_no: port.spec.no,
        hw_addr: port.spec.mac,
        name: port.spec.name.clone(),
        config: config_bits(port, status.as_ref()),
        state: if up { 0 } else { state::LINK_DOWN }
            | if port.is_live() && !port.is_dead.load(Ordering::Relaxed) { state::LIVE } else { 0 }
            | match *port.tree.lock() {
                TreeState::Disabled | TreeState::Listening => 0,
                TreeState::Learning => state::STP_LEARN,
                TreeState::Forwarding => state::STP_FORWARD,
                TreeState::Blocked => state::STP_BLOCK,
            },
        curr: features.current.0,
        advertised: features.advertised.0,
        supported: features.supported.0,
        peer: features.peer.0,
        curr_speed: speed(features.current.max_speed()),
        max_speed: speed(features.supported.max_speed()),
    }
}

fn config_bits(port: &OfPort, status: Option<&LinkStatus>) -> u32 {
    let PortConfig { down, no_recv, no_flood, no_fwd, no_packet_in, no_recv_stp, no_stp } = port.config;
    let down = down || status.is_some_and(|s| !s.admin_up);
    [
        (down, config::PORT_DOWN),
        (no_recv, config::NO_RECV),
        (no_flood, config::NO_FLOOD),
        (no_fwd, config::NO_FWD),
        (no_packet_in, config::NO_PACKET_IN),
        (no_recv_stp, config::NO_RECV_STP),
        (no_stp, config::NO_STP),
    ]
    .iter()
    .filter(|(on, _)| *on)
    .fold(0, |bits, (_, bit)| bits | bit)
}
