//! Handles messages from a peer.

use super::asynchronous::port_desc;
use super::failopen::shows_control;
use super::flow_mod_log::Applied;
use super::peer::{MISS_SEND_LEN_DEFAULT, Peer, PendingRequest};
use super::remote::PeerKind;
use super::stats::Statistics;
use super::table_features::ACTIONS10;
use crate::bridge::{OfPort, Ofproto};
use crate::transaction::{Transaction, check_references};
use base::PortNo;
use dpif::Execution;
use flow::FlowKey;
use openflow::controller_status::ControllerReason;
use openflow::ct_flush::CtFlush;
use openflow::flow_mod::{FlowMod, FlowModCommand};
use openflow::message::{FlowModHead, Message, decode_flow_mod_into, decode_with};
use openflow::packet::PacketOut;
use openflow::port::{PortMod, config, state};
use openflow::queue::{QUEUE_ALL, QueueGetConfigReply, QueueStatsRequest};
use openflow::role::{Role, RoleMsg};
use openflow::switch::{Features, SwitchConfig, capability};
use openflow::{Limits, MeterCommand, OfpError, Version, check, check_tables};
use packet::Packet;
use std::sync::Arc;
use vlog::{RateLimit, err_rl, info_rl, warn_rl};
use xlate::{Groups, Meters, Start};

/// The flow tables that messages report: 0 to 253. (Table 254 is internal, as in Open vSwitch.)
pub(crate) const N_TABLES_SHOWN: u8 = 254;

/// The types of the messages that all versions of OpenFlow share.
const TYPE_HELLO: u8 = 0;
const TYPE_ECHO_REQUEST: u8 = 2;
const TYPE_ECHO_REPLY: u8 = 3;

/// Rate limit of log messages about errors: messages per minute, and burst.
static ERROR_LIMIT: RateLimit = RateLimit::new(10, 10);

pub(super) type Handled = Result<(), OfpError>;

impl Ofproto {
    /// Handles one whole message after HELLO, and replies to errors with error messages. A part of the work may
    /// remain for [`Ofproto::finish_some`]. Packet-outs collect in `packets`, so that several of them can
    /// be executed together ([`Ofproto::execute`]); all other messages are handled after the collected packets.
    pub(crate) fn handle(&self, peer: &Peer, bytes: &[u8], packets: &mut Vec<Execution>) {
        base::coverage!(ofproto_recv_openflow);
        peer.remote.snoop(bytes);
        let (options, version) = peer.speaks();
        if bytes.first().copied() != version.map(Version::wire) {
            self.execute(packets);
            return self.handle_other_version(peer, version, bytes);
        }
        let mut run = peer.run.lock();
        let fm = run.first();
        if let Some(head) = decode_flow_mod_into(bytes, options, fm) {
            self.heard(peer, true);
            if let Err(error) = self.take_flow_mod(peer, head, fm, bytes) {
                self.send_error(peer, error, bytes);
            }
            run.forget(1);
            drop(run);
            if peer.has_pending() {
                self.execute(packets);
            }
            return;
        }
        drop(run);
        let outcome = match decode_with(bytes, options) {
            Ok((version, xid, message)) => {
                self.heard(peer, shows_control(&message));
                if !matches!(message, Message::PacketOut(_)) {
                    self.execute(packets);
                }
                self.dispatch(peer, (version, xid), message, bytes, packets)
            }
            // A message type that only switches send is an error of its own, even if the message is malformed.
            Err(_) if is_from_switch(bytes) => Err(OfpError::BrcBadType),
            Err(e) => Err(e.error),
        };
        if let Err(error) = outcome {
            self.send_error(peer, error, bytes);
        }
    }

    /// Handles a message of another version than the negotiated one. Probes are answered as they came, from whatever version.
    fn handle_other_version(&self, peer: &Peer, negotiated: Option<Version>, bytes: &[u8]) {
        match *bytes {
            [(1..), TYPE_ECHO_REQUEST, ..] => {
                let mut reply = bytes.to_vec();
                reply[1] = TYPE_ECHO_REPLY;
                peer.send_bytes(reply);
            }
            [(1..), TYPE_ECHO_REPLY, ..] => {}
            [(1..), TYPE_HELLO, ..] => self.send_error(peer, OfpError::BrcBadType, bytes),
            [version, ..] => {
                let (target, expected) = (&peer.name, negotiated.map_or(0, Version::wire));
                err_rl!(
                    &ERROR_LIMIT,
                    target: "vconn",
                    "{target}: received OpenFlow version 0x{version:02x} != expected {expected:02x}"
                );
                peer.send_error(openflow::types::xid(bytes), OfpError::BrcBadVersion, bytes);
            }
            [] => {}
        }
    }

    /// Sends the error of a message.
    pub(super) fn send_error(&self, peer: &Peer, error: OfpError, bytes: &[u8]) {
        let (name, target) = (self.name(), &peer.name);
        let to = openflow::types::name(bytes).unwrap_or("invalid");
        info_rl!(&ERROR_LIMIT, target: "connmgr", "{name}<->{target}: sending {error} error reply to {to} message");
        peer.send_error(openflow::types::xid(bytes), error, bytes);
    }

    /// Does the next part of a request that [`Ofproto::handle`] left pending. Returns true if there is more.
    pub(crate) fn finish_some(&self, peer: &Peer) -> bool {
        let mut pending = peer.pending.lock();
        let more = match pending.as_mut() {
            None => false,
            // Errors occur only before the first message, which is sent already.
            Some(PendingRequest::Flows(answer)) => self.continue_reply(peer, answer).unwrap_or(false),
            Some(PendingRequest::Monitors(answer)) => self.continue_dump(peer, answer),
            Some(_) => {
                let work = pending.take();
                drop(pending);
                match work {
                    Some(PendingRequest::Bundle(commit)) => self.finish_commit(peer, &commit),
                    Some(PendingRequest::Mod(change)) => self.finish_mod(peer, *change),
                    Some(PendingRequest::Barrier(xid)) => self.barrier(peer, xid),
                    Some(PendingRequest::Stats(request)) => self.finish_stats(peer, *request),
                    Some(PendingRequest::Settle) => self.revalidate_here(),
                    _ => {}
                }
                return peer.pending.lock().is_some();
            }
        };
        if !more {
            *pending = None;
        }
        more
    }

    /// Replies to a barrier when all earlier messages are applied, including their effect on cached flows.
    fn barrier(&self, peer: &Peer, xid: u32) {
        self.revalidate_here();
        peer.send(xid, &Message::BarrierReply);
    }

    /// Handles changes on this thread if there is no revalidator. Otherwise the connection has waited for it
    /// ([`Peer::awaits`]).
    fn revalidate_here(&self) {
        if let Some(switch) = self.switch().filter(|switch| !switch.has_revalidator()) {
            switch.pass(crate::Extent::Changes);
        }
    }

    fn dispatch(
        &self,
        peer: &Peer,
        (version, xid): (Version, u32),
        message: Message,
        bytes: &[u8],
        packets: &mut Vec<Execution>,
    ) -> Handled {
        match message {
            // A second HELLO changes nothing, and switches ignore replies and asynchronous messages.
            Message::Hello(_) => return Err(OfpError::BrcBadType),
            Message::EchoReply(_) | Message::Error(_) | Message::FlowAge => {}
            Message::EchoRequest(data) => peer.send(xid, &Message::EchoReply(data)),
            Message::FeaturesRequest => peer.send(xid, &Message::FeaturesReply(Box::new(self.features()))),
            Message::GetConfigRequest => peer.send(xid, &Message::GetConfigReply(self.config_of(peer, version))),
            Message::SetConfig(config) => {
                self.set_config(peer, config);
                self.update_miss_to_controller();
            }
            Message::BarrierRequest => {
                let settled = self.switch().is_none_or(|switch| switch.settles_at_once());
                if settled {
                    peer.send(xid, &Message::BarrierReply);
                } else {
                    *peer.pending.lock() = Some(PendingRequest::Barrier(xid));
                }
            }
            Message::PacketOut(out) => {
                writable(peer)?;
                packets.extend(self.packet_out(&out, version)?);
            }
            Message::Resume(packet_in) => {
                writable(peer)?;
                self.resume(&packet_in, version)?;
            }
            Message::FlowMod(_, mut fm) => {
                self.take_flow_mod(peer, FlowModHead { version, xid, bundle: None }, &mut fm, bytes)?;
            }
            Message::PortMod(pm) => {
                writable(peer)?;
                self.port_mod(peer, &pm)?;
            }
            Message::TableMod(tm) => {
                writable(peer)?;
                self.table_mod(&tm, version)?;
            }
            Message::GroupMod(gm) => {
                writable(peer)?;
                self.group_mod_or_leave(peer, xid, gm, bytes)?;
            }
            Message::MeterMod(mm) => {
                writable(peer)?;
                self.meter_mod(&mm)?;
                if mm.command == MeterCommand::Delete {
                    *peer.pending.lock() = Some(PendingRequest::Settle);
                }
                self.forward_meter_change(peer, xid, &mm);
            }
            Message::QueueGetConfigRequest(port_no) => {
                let queues = self.queue_configs(QueueStatsRequest { port_no, queue_id: QUEUE_ALL })?;
                peer.send(xid, &Message::QueueGetConfigReply(QueueGetConfigReply { port_no, queues }));
            }
            Message::RoleRequest(form, role) => {
                let reply = self.role_request(peer, role)?;
                peer.send(xid, &Message::RoleReply(form, reply));
            }
            Message::GetAsyncRequest => {
                let asynchronous = peer.state.lock().asynchronous;
                peer.send(xid, &Message::GetAsyncReply(asynchronous.into()));
            }
            Message::SetAsync(_, change) => {
                let mut state = peer.state.lock();
                change.apply(&mut state.asynchronous);
                // A service connection, which receives no asynchronous messages at first, asks for them in this way too.
                if peer.remote.kind == PeerKind::Service && state.miss_send_len == 0 {
                    state.miss_send_len = MISS_SEND_LEN_DEFAULT;
                }
                drop(state);
                self.update_miss_to_controller();
            }
            Message::SetFlowFormat(0 | 2) => {}
            Message::SetFlowFormat(_) => return Err(OfpError::BrcEperm),
            Message::FlowModTableId(on) => peer.state.lock().options.flow_mod_table_id = on,
            Message::SetPacketInFormat(format) => peer.state.lock().packet_in_format = format,
            Message::SetControllerId(id) => {
                let before = std::mem::replace(&mut peer.state.lock().controller_id, id);
                if before != id {
                    self.notify_of_peer(peer, ControllerReason::ShortId, true);
                }
                self.update_miss_to_controller();
            }
            Message::TlvTableMod(change) => {
                writable(peer)?;
                self.change_tlvs(&change)?;
            }
            Message::TlvTableRequest => peer.send(xid, &Message::TlvTableReply(self.tlvs())),
            Message::BundleControl(control) => {
                writable(peer)?;
                self.bundle_control(peer, (version, xid), control, bytes)?;
            }
            Message::BundleAdd(add) => {
                writable(peer)?;
                self.bundle_add(peer, &add, bytes)?;
            }
            Message::StatsRequest { more, body } => {
                let whole = peer.parts.lock().add((xid, more), body, bytes, self.now())?;
                match whole {
                    Some(body) if self.is_long_answer(&body) => {
                        let request = Statistics { version, xid, body, request: bytes.into() };
                        *peer.pending.lock() = Some(PendingRequest::Stats(Box::new(request)));
                    }
                    Some(body) => self.stats(peer, version, xid, body)?,
                    None => {}
                }
            }
            Message::FlowMonitorCancel(id) => peer.cancel_monitor(id)?,
            // As in Open vSwitch, controllers of any role may flush connections.
            Message::CtFlushZone(zone) => self.flush_connections(&CtFlush { zone: Some(zone), ..CtFlush::default() }),
            Message::CtFlush(flush) => self.flush_connections(&flush),
            Message::FeaturesReply(_)
            | Message::GetConfigReply(_)
            | Message::PacketIn(..)
            | Message::FlowRemoved(..)
            | Message::PortStatus(_)
            | Message::TableStatus(_)
            | Message::RoleStatus(_)
            | Message::ControllerStatus(_)
            | Message::RequestForward(_)
            | Message::FlowMonitorPaused
            | Message::FlowMonitorResumed
            | Message::BarrierReply
            | Message::QueueGetConfigReply(_)
            | Message::RoleReply(..)
            | Message::GetAsyncReply(_)
            | Message::TlvTableReply(_)
            | Message::StatsReply { .. } => return Err(OfpError::BrcBadType),
        }
        Ok(())
    }

    fn features(&self) -> Features {
        // The encoder leaves out capabilities that the version lacks.
        let capabilities = capability::FLOW_STATS
            | capability::TABLE_STATS
            | capability::PORT_STATS
            | capability::GROUP_STATS
            | capability::QUEUE_STATS
            | capability::ARP_MATCH_IP
            | capability::BUNDLES;
        Features {
            datapath_id: self.identity().datapath_id,
            n_buffers: 0,
            n_tables: N_TABLES_SHOWN,
            auxiliary_id: 0,
            capabilities,
            actions: ACTIONS10,
            ports: self.ports().iter().map(port_desc).collect(),
        }
    }

    fn config_of(&self, peer: &Peer, version: Version) -> SwitchConfig {
        let state = peer.state.lock();
        let has_invalid_ttl = version < Version::V13;
        SwitchConfig {
            frag: self.fragments(),
            invalid_ttl_to_controller: has_invalid_ttl.then(|| state.invalid_ttl()),
            miss_send_len: state.miss_send_len,
        }
    }

    fn set_config(&self, peer: &Peer, config: SwitchConfig) {
        // The reply shows that an unsupported setting had no effect; a secondary controller changes nothing.
        if peer.role() != Role::Secondary {
            self.set_fragments(config.frag);
        }
        let mut state = peer.state.lock();
        state.miss_send_len = config.miss_send_len;
        if let Some(on) = config.invalid_ttl_to_controller {
            state.set_invalid_ttl(on);
        }
    }

    /// Checks what depends on the switch; the decoder has checked the actions against the match.
    pub(super) fn check_flow_mod(fm: &FlowMod) -> Handled {
        if fm.command.adds() {
            check_tables(&fm.actions, fm.table_id.unwrap_or(0), N_TABLES_SHOWN)?;
        }
        Ok(())
    }

    /// Applies a flow mod, or adds it to its bundle. `bytes` is the message that contains it.
    fn take_flow_mod(&self, peer: &Peer, head: FlowModHead, fm: &mut FlowMod, bytes: &[u8]) -> Handled {
        writable(peer)?;
        if let Some(bundle) = head.bundle {
            return self.bundle_flow_mod(peer, bundle, fm, bytes);
        }
        self.flow_mod_or_leave(peer, head, fm, bytes)
    }

    /// Applies a flow mod of a controller that may change flows, within a transaction, as a whole or not at all, and counts it.
    /// (An error about a packet buffer is sent although the flow mod was applied.)
    pub(super) fn modify_flows(
        &self,
        transaction: &mut Transaction<'_>,
        peer: &Peer,
        head: FlowModHead,
        fm: &mut FlowMod,
        applied: &mut Applied,
    ) -> Handled {
        // Before OpenFlow 1.2 there is no flag for it: an addition resets the counters.
        fm.flags.reset_counts |= head.version < Version::V12 && fm.command == FlowModCommand::Add;
        self.place_options_of(fm)?;
        Self::check_flow_mod(fm)?;
        transaction.set_requester(Some(peer.requester(head.xid)));
        transaction.attempt(|t| t.flow_mod(fm))?;
        applied.count(fm);
        // There are no packet buffers: a flow mod with one is applied, and an error is sent.
        if fm.buffer_id.is_some() && fm.command.adds() {
            return Err(OfpError::BrcBufferUnknown);
        }
        Ok(())
    }

    /// Checks a packet-out by itself.
    pub(super) fn check_packet_out(out: &PacketOut) -> Handled {
        if out.buffer_id.is_some() {
            return Err(OfpError::BrcBufferUnknown);
        }
        if !(out.in_port.is_real() || out.in_port == PortNo::CONTROLLER || out.in_port == PortNo::ANY) {
            return Err(OfpError::BrcBadPort);
        }
        Ok(())
    }

    /// Checks a packet-out against these groups and meters.
    pub(super) fn check_packet_out_in(&self, out: &PacketOut, version: Version, tables: (&Groups, &Meters)) -> Handled {
        self.checked_packet_out(out, version, tables).map(drop)
    }

    /// Returns the packet and its key.
    fn checked_packet_out(
        &self,
        out: &PacketOut,
        version: Version,
        (groups, meters): (&Groups, &Meters),
    ) -> Result<(FlowKey, Packet), OfpError> {
        Self::check_packet_out(out)?;
        let packet = Packet::from_slice(&out.data);
        let switch = self.switch().ok_or(OfpError::BrcEperm)?;
        let mut key = switch.key_of(packet.data(), out.in_port);
        key.set_in_port(out.in_port);
        // Mostly there is no metadata.
        let has_metadata = out.metadata.mask().0.iter().any(|word| *word != 0);
        for field in flow::field::FIELDS.iter().filter(|_| has_metadata) {
            let (value, mask) = out.metadata.get(field.id);
            if mask != 0 {
                key.set(field.id, value);
            }
        }
        let mut metadata = out.metadata.clone();
        self.place_options(&mut metadata)?;
        crate::tlv::put_options(&mut key, &metadata);
        let exactly = flow::Match::new(&key, FlowKey([u64::MAX; flow::WORDS]));
        check(&out.actions, &exactly, &Limits::new(version, 0))?;
        self.check_options(&out.actions)?;
        check_references(&out.actions, groups, meters)?;
        switch.features.check_actions(&out.actions)?;
        Ok((key, packet))
    }

    /// Translates the packet. The datapath actions remain ([`Ofproto::execute`]).
    pub(super) fn packet_out(&self, out: &PacketOut, version: Version) -> Result<Option<Execution>, OfpError> {
        base::coverage!(ofproto_packet_out);
        let view = self.tables().view();
        let (key, packet) = self.checked_packet_out(out, version, (&view.groups, &view.meters))?;
        drop(view);
        Ok(self.decide(&key, packet, Start::Actions(&out.actions)))
    }

    /// Returns the port that a port-mod changes.
    pub(super) fn port_to_modify(&self, pm: &PortMod) -> Result<OfPort, OfpError> {
        let port = self.port(pm.port_no).ok_or(OfpError::PmfcBadPort)?;
        if port.spec.mac == pm.hw_addr { Ok(port) } else { Err(OfpError::PmfcBadHwAddr) }
    }

    pub(super) fn port_mod(&self, peer: &Peer, pm: &PortMod) -> Handled {
        let port = self.port_to_modify(pm)?;
        let before = port_desc(&port);
        let mut new = port.config;
        for (bit, value) in [
            (config::PORT_DOWN, &mut new.down),
            (config::NO_RECV, &mut new.no_recv),
            (config::NO_FLOOD, &mut new.no_flood),
            (config::NO_FWD, &mut new.no_fwd),
            (config::NO_PACKET_IN, &mut new.no_packet_in),
            (config::NO_RECV_STP, &mut new.no_recv_stp),
            (config::NO_STP, &mut new.no_stp),
        ] {
            if pm.mask & bit != 0 {
                *value = pm.config & bit != 0;
            }
        }
        let is_down = port.spec.device.as_ref().map_or(port.config.down, |d| !d.status().admin_up);
        if pm.mask & config::PORT_DOWN != 0
            && new.down != is_down
            && let Some(device) = &port.spec.device
            && let Err(e) = device.set_up(!new.down)
        {
            warn_rl!(&ERROR_LIMIT, target: "ofproto", "{}: {e}", self.name());
            return Err(OfpError::PmfcEperm);
        }
        if new != port.config
            && let Some(changed) = self.set_port_config(pm.port_no, new)
        {
            let mut after = port_desc(&changed);
            if new.down != port.config.down {
                // The link follows the port, as far as controllers see.
                after.state = before.state & !state::LIVE;
            }
            self.send_port_modified(peer, &changed, &before, after);
            self.send_port_state(&changed);
        }
        if new.no_stp != port.config.no_stp
            && let Some(switch) = self.switch()
        {
            switch.refresh_spanning_tree();
        }
        Ok(())
    }

    fn role_request(&self, peer: &Peer, request: RoleMsg) -> Result<RoleMsg, OfpError> {
        let mut demoted = Vec::new();
        let before = peer.role();
        let mut generation = self.connections().generation_id.lock();
        if request.role == Role::Primary || request.role == Role::Secondary {
            if let Some(new) = request.generation_id {
                // Compared as a distance, as the ids may wrap around.
                if generation.is_none_or(|old| new.wrapping_sub(old) as i64 >= 0) {
                    *generation = Some(new);
                } else {
                    return Err(OfpError::RrfcStale);
                }
            }
            if request.role == Role::Primary {
                self.connections().for_each(|other| {
                    if !std::ptr::eq(Arc::as_ptr(other), peer) && other.demote(*generation) {
                        demoted.push(Arc::clone(other));
                    }
                });
            }
        }
        let role = {
            let mut state = peer.state.lock();
            if request.role != Role::NoChange {
                state.role = request.role;
            }
            state.role
        };
        demoted.iter().for_each(|other| self.notify_of_peer(other, ControllerReason::Role, true));
        if role != before {
            self.notify_of_peer(peer, ControllerReason::Role, true);
        }
        Ok(RoleMsg { role, generation_id: *generation })
    }
}

/// Returns true if the headers of a message have a type that only switches send.
fn is_from_switch(bytes: &[u8]) -> bool {
    openflow::types::head(bytes).is_ok_and(|head| head.row.kind.is_from_switch())
}

/// Checks that the controller is not a secondary one, which may only read (OpenFlow 1.3 section 6.3.6).
pub(super) fn writable(peer: &Peer) -> Handled {
    if peer.role() == Role::Secondary {
        return Err(OfpError::BrcIsSecondary);
    }
    Ok(())
}
