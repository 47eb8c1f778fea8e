//! What a message from a peer does.

use super::asynchronous::port_desc;
use super::failopen::shows_control;
use super::peer::{Peer, Unfinished};
use super::stats::Statistics;
use super::table_features::ACTIONS10;
use crate::bridge::{OfPort, Ofproto};
use crate::transaction::{Transaction, check_references};
use base::PortNo;
use dpif::Execution;
use flow::FlowKey;
use openflow::controller_status::ControllerReason;
use openflow::flow_mod::{FlowMod, FlowModCommand};
use openflow::message::{FlowModHead, Message, decode_flow_mod_into, decode_with};
use openflow::packet::PacketOut;
use openflow::port::{PortMod, config};
use openflow::queue::QueueGetConfigReply;
use openflow::role::{Role, RoleMsg};
use openflow::switch::{Features, SwitchConfig, capability};
use openflow::{Limits, MeterCommand, OfpError, Version, check, check_tables};
use packet::Packet;
use std::sync::Arc;
use vlog::{RateLimit, info_rl, warn_rl};
use xlate::{Groups, Meters, Start};

/// Flow tables that a switch tells of: 0 to 253. (Table 254 is internal, as in Open vSwitch.)
pub(crate) const N_TABLES_SHOWN: u8 = 254;

/// Errors a minute that are logged, and in one burst.
static ERROR_LIMIT: RateLimit = RateLimit::new(10, 10);

type Handled = Result<(), OfpError>;

impl Ofproto {
    /// Handles one whole message after HELLO. Whatever is wrong with it is answered by an error message. Something may be
    /// left for [`Ofproto::finish_some`] to do. Packets that it sends gather in `packets`, for several such messages to
    /// be carried out together ([`Ofproto::execute`]); all other messages are carried out after those that wait there.
    pub(crate) fn handle(&self, peer: &Peer, bytes: &[u8], packets: &mut Vec<Execution>) {
        base::coverage!(ofproto_recv_openflow);
        peer.remote.snoop(bytes);
        let (options, version) = peer.speaks();
        let mut run = peer.run.lock();
        let fm = run.first();
        if let Some(head) = decode_flow_mod_into(bytes, options, fm).filter(|head| Some(head.version) == version) {
            self.heard(peer, true);
            if let Err(error) = self.take_flow_mod(peer, head, fm, bytes) {
                self.send_error(peer, error, bytes);
            }
            run.forget(1);
            return;
        }
        drop(run);
        let outcome = match decode_with(bytes, options) {
            Ok((v, ..)) if Some(v) != version => Err(OfpError::BrcBadVersion),
            Ok((version, xid, message)) => {
                self.heard(peer, shows_control(&message));
                if !matches!(message, Message::PacketOut(_)) {
                    self.execute(packets);
                }
                self.dispatch(peer, (version, xid), message, bytes, packets)
            }
            // Whatever is wrong with them, messages from switches are nothing to a switch.
            Err(_) if is_from_switch(bytes) => Err(OfpError::BrcBadType),
            Err(e) => Err(e.error),
        };
        if let Err(error) = outcome {
            self.send_error(peer, error, bytes);
        }
    }

    /// Tells what is wrong with a message.
    pub(super) fn send_error(&self, peer: &Peer, error: OfpError, bytes: &[u8]) {
        let (name, target) = (self.name(), &peer.remote.target);
        info_rl!(&ERROR_LIMIT, target: "connmgr", "{name}<->{target}: sending {error} error reply");
        peer.send_error(openflow::types::xid(bytes), error, bytes);
    }

    /// Does the next bit of what is left of a request that [`Ofproto::handle`] was given. Whether there is more.
    pub(crate) fn finish_some(&self, peer: &Peer) -> bool {
        let mut unfinished = peer.unfinished.lock();
        let more = match unfinished.as_mut() {
            None => false,
            // An error comes before the first message or not at all.
            Some(Unfinished::Flows(answer)) => self.go_on_answering(peer, answer).unwrap_or(false),
            Some(Unfinished::Monitors(answer)) => self.go_on_dumping(peer, answer),
            Some(_) => {
                let work = unfinished.take();
                drop(unfinished);
                match work {
                    Some(Unfinished::Bundle(commit)) => self.finish_commit(peer, &commit),
                    Some(Unfinished::Barrier(xid)) => self.barrier(peer, xid),
                    Some(Unfinished::Stats(request)) => self.finish_stats(peer, *request),
                    Some(Unfinished::Settle) => self.settle_here(),
                    _ => {}
                }
                return peer.unfinished.lock().is_some();
            }
        };
        if !more {
            *unfinished = None;
        }
        more
    }

    /// Answers a barrier when what came before it has been carried out: in the cached flows too.
    fn barrier(&self, peer: &Peer, xid: u32) {
        self.settle_here();
        peer.send(xid, &Message::BarrierReply);
    }

    /// Deals with changes on this thread if no other does. Otherwise the connection has waited for that
    /// ([`Peer::awaits`]).
    fn settle_here(&self) {
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
            // A second HELLO changes nothing; replies and asynchronous messages are nothing to a switch.
            Message::Hello(_) | Message::EchoReply(_) | Message::Error(_) | Message::FlowAge => {}
            Message::EchoRequest(data) => peer.send(xid, &Message::EchoReply(data)),
            Message::FeaturesRequest => peer.send(xid, &Message::FeaturesReply(Box::new(self.features()))),
            Message::GetConfigRequest => peer.send(xid, &Message::GetConfigReply(self.config_of(peer, version))),
            Message::SetConfig(config) => {
                self.set_config(peer, config);
                self.update_miss_to_controller();
            }
            Message::BarrierRequest => {
                let settled = self.switch().is_none_or(|switch| switch.is_settled());
                if settled {
                    peer.send(xid, &Message::BarrierReply);
                } else {
                    *peer.unfinished.lock() = Some(Unfinished::Barrier(xid));
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
                let (change, removed) = self.transaction(|t| self.change_groups(t, peer, &gm))?;
                self.finish_removal(removed);
                self.forward_group_change(peer, xid, change);
            }
            Message::MeterMod(mm) => {
                writable(peer)?;
                self.meter_mod(&mm)?;
                if mm.command == MeterCommand::Delete {
                    *peer.unfinished.lock() = Some(Unfinished::Settle);
                }
                self.forward_meter_change(peer, xid, &mm);
            }
            Message::QueueGetConfigRequest(port_no) => {
                if port_no != PortNo::ANY && self.port(port_no).is_none() {
                    return Err(OfpError::QofcBadPort);
                }
                peer.send(xid, &Message::QueueGetConfigReply(QueueGetConfigReply { port_no, queues: Vec::new() }));
            }
            Message::RoleRequest(form, role) => {
                let reply = self.role_request(peer, role)?;
                peer.send(xid, &Message::RoleReply(form, reply));
            }
            Message::GetAsyncRequest => {
                let asynchronous = peer.state.lock().asynchronous;
                peer.send(xid, &Message::GetAsyncReply(asynchronous.into()));
            }
            Message::SetAsync(_, change) => change.apply(&mut peer.state.lock().asynchronous),
            Message::SetFlowFormat(0 | 2) => {}
            Message::SetFlowFormat(_) => return Err(OfpError::BrcEperm),
            Message::FlowModTableId(on) => peer.state.lock().options.flow_mod_table_id = on,
            Message::SetPacketInFormat(format) => peer.state.lock().packet_in_format = format,
            Message::SetControllerId(id) => {
                let before = std::mem::replace(&mut peer.state.lock().controller_id, id);
                if before != id {
                    self.tell_of_peer(peer, ControllerReason::ShortId, true);
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
                        *peer.unfinished.lock() = Some(Unfinished::Stats(Box::new(request)));
                    }
                    Some(body) => self.stats(peer, version, xid, body)?,
                    None => {}
                }
            }
            Message::FlowMonitorCancel(id) => peer.cancel_monitor(id)?,
            // Nothing tracks connections: all of them are forgotten.
            Message::CtFlushZone(_) | Message::CtFlush(_) => {}
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
        // Those that a version does not have are left out of its messages.
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
        let tells_ttl = version < Version::V13;
        SwitchConfig {
            frag: self.fragments(),
            invalid_ttl_to_controller: tells_ttl.then_some(state.invalid_ttl),
            miss_send_len: state.miss_send_len,
        }
    }

    fn set_config(&self, peer: &Peer, config: SwitchConfig) {
        // Who asks for what is not done finds out by asking; a secondary controller changes nothing of the switch.
        if peer.role() != Role::Secondary {
            self.set_fragments(config.frag);
        }
        let mut state = peer.state.lock();
        state.miss_send_len = config.miss_send_len;
        if let Some(on) = config.invalid_ttl_to_controller {
            state.invalid_ttl = on;
        }
    }

    /// What depends on the switch: that the actions fit the match was seen to when the message was read.
    pub(super) fn check_flow_mod(fm: &FlowMod) -> Handled {
        if fm.command.adds() {
            check_tables(&fm.actions, fm.table_id.unwrap_or(0), N_TABLES_SHOWN)?;
        }
        Ok(())
    }

    /// Carries out a flow modification, or keeps it in its bundle. `bytes` is the message that it came in.
    fn take_flow_mod(&self, peer: &Peer, head: FlowModHead, fm: &mut FlowMod, bytes: &[u8]) -> Handled {
        writable(peer)?;
        if let Some(bundle) = head.bundle {
            return self.bundle_flow_mod(peer, bundle, fm, bytes);
        }
        let (result, removed) = self.transaction(|t| Ok(self.modify_flows(t, peer, head, fm)))?;
        self.finish_removal(removed);
        result
    }

    /// Carries out a flow modification of one who may within a transaction: all of it, or nothing. (But for an error that is told of what
    /// was carried out.)
    pub(super) fn modify_flows(
        &self,
        transaction: &mut Transaction<'_>,
        peer: &Peer,
        head: FlowModHead,
        fm: &mut FlowMod,
    ) -> Handled {
        // Before OpenFlow 1.2 there is no flag for it: an addition counts from zero.
        fm.flags.reset_counts |= head.version < Version::V12 && fm.command == FlowModCommand::Add;
        self.place_options_of(fm)?;
        Self::check_flow_mod(fm)?;
        transaction.set_requester(Some(peer.requester(head.xid)));
        transaction.attempt(|t| t.flow_mod(fm))?;
        // There are no buffers: a controller that names one is told so, and has its flow.
        if fm.buffer_id.is_some() && fm.command.adds() {
            return Err(OfpError::BrcBufferUnknown);
        }
        Ok(())
    }

    /// What can be said of a packet-out by itself.
    pub(super) fn check_packet_out(out: &PacketOut) -> Handled {
        if out.buffer_id.is_some() {
            return Err(OfpError::BrcBufferUnknown);
        }
        if !(out.in_port.is_real() || out.in_port == PortNo::CONTROLLER || out.in_port == PortNo::ANY) {
            return Err(OfpError::BrcBadPort);
        }
        Ok(())
    }

    /// Whether a packet-out can be carried out with these groups and meters.
    pub(super) fn check_packet_out_in(&self, out: &PacketOut, version: Version, tables: (&Groups, &Meters)) -> Handled {
        self.checked_packet_out(out, version, tables).map(drop)
    }

    /// The packet and its key.
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
        // Mostly it says nothing.
        let told = out.metadata.mask().0.iter().any(|word| *word != 0);
        for field in flow::field::FIELDS.iter().filter(|_| told) {
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

    /// Decides what becomes of the packet. What is left is for the datapath ([`Ofproto::execute`]).
    pub(super) fn packet_out(&self, out: &PacketOut, version: Version) -> Result<Option<Execution>, OfpError> {
        base::coverage!(ofproto_packet_out);
        let view = self.tables().view();
        let (key, packet) = self.checked_packet_out(out, version, (&view.groups, &view.meters))?;
        drop(view);
        Ok(self.decide(&key, packet, Start::Actions(&out.actions)))
    }

    /// The port that a port-mod is for.
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
            self.send_port_modified(peer, &before, &changed);
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
        demoted.iter().for_each(|other| self.tell_of_peer(other, ControllerReason::Role, true));
        if role != before {
            self.tell_of_peer(peer, ControllerReason::Role, true);
        }
        Ok(RoleMsg { role, generation_id: *generation })
    }
}

/// Whether the headers of a message say that it is one of those that switches send.
fn is_from_switch(bytes: &[u8]) -> bool {
    openflow::types::head(bytes).is_ok_and(|head| head.row.kind.is_from_switch())
}

/// Secondaries may look, not change (OpenFlow 1.3 section 6.3.6).
pub(super) fn writable(peer: &Peer) -> Handled {
    if peer.role() == Role::Secondary {
        return Err(OfpError::BrcIsSecondary);
    }
    Ok(())
}
