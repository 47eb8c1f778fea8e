//! Outputs the packet: to a port, through a patch port into another bridge, or to a controller.

use crate::freeze::Freeze;
use crate::model::{Port, PortOut};
use crate::scope::Scope;
use crate::trace::NodeKind;
use crate::translate::{Start, Xlate, bridge_of};
use crate::verdict::Effect;
use base::{DropReason, PortNo};
use dpif::{ControllerUpcall, DpAction};
use flow::{Field, Prereq};
use openflow::{ControllerAction, PacketInReason};
use std::sync::Arc;

/// UDP ports of DHCP (RFC 2131 section 4.1).
const DHCP_SERVER: u128 = 67;
const DHCP_CLIENT: u128 = 68;
/// The bits of a DSCP (RFC 2474).
const DSCP_MASK: u128 = 0x3f;

impl Xlate<'_> {
    /// Executes the `output` action: to a real port or a reserved one. `max_len` is for CONTROLLER.
    pub(crate) fn output(&mut self, port: PortNo, max_len: u16) {
        match port {
            PortNo::IN_PORT => self.output_port(self.packet.key.in_port(), true),
            // Packet-outs only: the packet enters the pipeline, where a miss is a table miss.
            PortNo::TABLE => self.resubmit(0, None, true),
            PortNo::NORMAL => self.normal(),
            PortNo::FLOOD => self.output_all(true),
            PortNo::ALL => self.output_all(false),
            PortNo::CONTROLLER => {
                let reason = if self.pos.packet_out {
                    PacketInReason::PacketOut
                } else if self.pos.is_in_bucket() {
                    PacketInReason::Group
                } else if self.pos.in_action_set {
                    PacketInReason::ActionSet
                } else if self.pos.rule_is_miss {
                    PacketInReason::NoMatch
                } else {
                    PacketInReason::Action
                };
                self.send_to_controller(&ControllerAction { max_len, reason, ..ControllerAction::default() });
            }
            PortNo::ANY | PortNo::UNSET => {}
            _ => self.output_port(port, false),
        }
    }

    fn output_all(&mut self, flood: bool) {
        let bridge = self.pos.bridge;
        let in_port = self.packet.key.in_port();
        for port in bridge.ports.values() {
            if port.no != in_port && !(flood && port.config.no_flood) {
                self.output_port(port.no, false);
            }
        }
    }

    /// Outputs to a port of this bridge; to the ingress port only if `to_ingress` is set.
    pub(crate) fn output_port(&mut self, no: PortNo, to_ingress: bool) {
        let bridge = self.pos.bridge;
        let Some(port) = bridge.ports.get(&no) else {
            self.tracer.note(NodeKind::Warning, || "Nonexistent output port".into());
            return self.note_drop(DropReason::NoPort);
        };
        if no == self.packet.key.in_port() && !to_ingress {
            self.tracer.note(NodeKind::Warning, || "skipping output to input port".into());
            return self.note_drop(DropReason::SamePort);
        }
        if port.config.no_fwd || port.config.down {
            let why = if port.config.down { "OFPPC_PORT_DOWN" } else { "OFPPC_NO_FWD" };
            self.tracer.note(NodeKind::Detail, || format!("{why} set, skipping output"));
            return self.note_drop(DropReason::PortDown);
        }
        if self.skips_copy(port) {
            return;
        }
        if self.is_between_protected_ports(port) {
            self.tracer.note(NodeKind::Warning, || "Flow is between protected ports, skipping output.".into());
            return self.note_drop(DropReason::ProtectedPort);
        }
        if !self.forwards(bridge, no) {
            self.tracer
                .note(NodeKind::Warning, || "port does not forward by decision of a protocol, skipping output".into());
            return self.note_drop(DropReason::PortBlocked);
        }
        let is_patch = matches!(port.out, PortOut::Patch(..));
        let before = if is_patch { None } else { self.mark_for_queue(no) };
        self.leave_by(port);
        if let Some(before) = before {
            self.write(Field::IpDscp, before, DSCP_MASK);
        }
    }

    /// Gives an IP packet the DSCP of the queue of a port that it leaves through, if that has one. Returns the one before.
    fn mark_for_queue(&mut self, no: PortNo) -> Option<u128> {
        let marks = self.pos.bridge.queue_marks.get(&no)?;
        self.out.reads.note_field(Field::SkbPriority);
        let queue = self.packet.key.get(Field::SkbPriority);
        let mark = marks.get(&u32::try_from(queue).ok()?)?;
        if !self.has(Prereq::Ip) {
            return None;
        }
        self.out.reads.note_field(Field::IpDscp);
        let before = self.packet.key.get(Field::IpDscp);
        self.write(Field::IpDscp, (*mark).into(), DSCP_MASK);
        Some(before)
    }

    /// Outputs a frame of a protocol: protocols send on ports that they block for others.
    pub(crate) fn output_of_protocol(&mut self, no: PortNo) {
        match self.pos.bridge.ports.get(&no) {
            Some(port) if !port.config.down => self.leave_by(port),
            Some(_) => self.note_drop(DropReason::PortDown),
            None => self.note_drop(DropReason::NoPort),
        }
    }

    /// Outputs to a port that nothing forbids to send.
    fn leave_by(&mut self, port: &Port) {
        match port.out {
            PortOut::Tunnel(dp_port) => {
                self.through_tunnel(port, dp_port);
                self.mirror_egress(port);
            }
            PortOut::Device(_) if self.is_l3() => {
                self.tracer.note(NodeKind::Warning, || {
                    "Trying to send non-Ethernet packet through legacy L2 port. Dropping packet.".into()
                });
                self.note_drop(DropReason::NoEthernet);
            }
            PortOut::Device(dp_port) => {
                if port.no == PortNo::LOCAL
                    && let Some(action) = self.terminates(dp_port)
                {
                    self.commit();
                    self.note_output(port);
                    self.emit(action);
                    return self.mirror_egress(port);
                }
                self.commit();
                self.sample_egress(dp_port);
                self.note_output(port);
                if let Some(max_len) = self.mirroring.snaplen {
                    self.emit(DpAction::Trunc(max_len.into()));
                }
                self.emit(DpAction::Output(dp_port));
                self.mirror_egress(port);
            }
            PortOut::Patch(peer_bridge, peer_port) => self.through_patch(port, peer_bridge, peer_port),
            PortOut::Nowhere => {
                self.tracer.note(NodeKind::Warning, || "patch port has no peer".into());
                self.note_drop(DropReason::NoPort);
            }
        }
    }

    /// Returns true if both the ingress port and `port` are protected (Port:protected).
    pub(crate) fn is_between_protected_ports(&self, port: &Port) -> bool {
        let bridge = self.pos.bridge;
        let is_protected = |port: &Port| port.bundle.as_ref().is_some_and(|bundle| bundle.protected);
        is_protected(port) && bridge.ports.get(&self.packet.key.in_port()).is_some_and(is_protected)
    }

    /// Outputs the reply of a DHCP server to the local port of the ingress bridge, if the bridge is configured so: the client
    /// may be there, and the flows may not forward to it.
    pub(crate) fn dhcp_to_local(&mut self) {
        let bridge = self.pos.bridge;
        let local = bridge.ports.get(&PortNo::LOCAL).map(|port| port.out);
        let (Some(PortOut::Device(device)), true) = (local, bridge.dhcp_to_local) else { return };
        if self.control.error.is_some()
            || self.packet.key.in_port() == PortNo::LOCAL
            || self.packet.key.eth_type() != 0x0800
            || !self.has(Prereq::Udp)
            || self.read_bits(Field::UdpSrc, 0xffff) != DHCP_SERVER
            || self.read_bits(Field::UdpDst, 0xffff) != DHCP_CLIENT
            || self.out.actions.contains(&DpAction::Output(device))
        {
            return;
        }
        // The trace shows it after the last table's actions.
        self.tracer.reenter();
        self.tracer.reenter();
        self.tracer.note(NodeKind::Detail, || "outputting DHCP packet to local port for in-band control".into());
        self.tracer.leave();
        self.tracer.leave();
        self.output_port(PortNo::LOCAL, false);
    }

    /// Outputs the first `max_len` bytes to a port. Only devices can truncate packets: reserved ports and patch ports are
    /// skipped, as in Open vSwitch.
    pub(crate) fn output_truncated(&mut self, port: PortNo, max_len: u32) {
        if !port.is_real() {
            let what = if port == PortNo::IN_PORT { "patch port" } else { "port:" };
            self.tracer.note(NodeKind::Error, || format!("output_trunc does not support {what} {port}"));
            return self.note_drop(DropReason::NoPort);
        }
        if self.pos.bridge.ports.get(&port).is_some_and(|p| !matches!(p.out, PortOut::Device(_))) {
            self.tracer.note(NodeKind::Error, || format!("output_trunc does not support patch port {port}"));
            return self.note_drop(DropReason::NoPort);
        }
        self.commit();
        let at = self.out.actions.len();
        self.output(port, u16::MAX);
        if self.out.actions.len() > at {
            self.out.actions.insert(at, DpAction::Trunc(max_len));
            self.usage.action_bytes += crate::commit::size_of_action(&DpAction::Trunc(max_len));
        }
    }

    /// Processes the packet in the peer's bridge, on a copy if that changes it.
    fn through_patch(&mut self, port: &Port, peer_bridge: u32, peer_port: PortNo) {
        let Some(peer) = bridge_of(self.net, peer_bridge) else {
            return self.note_drop(DropReason::NoPort);
        };
        if !self.count_resubmit() {
            return;
        }
        self.note_patch_output(port);
        self.out.effects.push(Effect::Patch { from: (self.pos.bridge.id, port.no), to: (peer_bridge, peer_port) });
        self.on_a_copy(Scope::Patch, |x| {
            x.packet.key.set_in_port(peer_port);
            x.out.reads.write_field(flow::Field::InPortOxm);
            x.packet.written = None;
            x.clear_registers();
            x.clear_options();
            x.clear_connection();
            let left = x.cross_mirrors(peer_bridge);
            if x.admit(peer, peer_port) {
                x.process_in_bridge(peer, Start::Tables);
                x.restrict(peer, peer_port);
            }
            x.return_to_mirrors(left);
        });
    }

    /// Registers, metadata and tunnel fields belong to a bridge and do not cross to its neighbour.
    fn clear_registers(&mut self) {
        use flow::layout::{REGS, SKB_PKT};
        let mut mask = flow::FlowKey::ZERO;
        for word in REGS..SKB_PKT {
            self.packet.key.0[word] = 0;
            mask.0[word] = u64::MAX;
        }
        self.out.reads.write_mask(&mask);
        self.set_actset_output(PortNo::UNSET);
    }

    /// Sends the packet in its current state to controllers.
    pub(crate) fn send_to_controller(&mut self, action: &ControllerAction) {
        if action.pause {
            self.control.freeze = Some(Freeze::Pause(Box::new(action.clone())));
            return;
        }
        self.commit();
        let recirc_id = self.freeze_sender();
        self.send_upcall(action, recirc_id);
    }

    /// Sends the packet to controllers. `recirc_id` identifies the frozen state, which waits if the action pauses the packet.
    pub(crate) fn send_upcall(&mut self, action: &ControllerAction, recirc_id: u32) {
        self.note_tunnel();
        self.read_connection();
        let upcall = ControllerUpcall {
            bridge: self.pos.bridge.id,
            table: self.pos.table,
            cookie: self.pos.rule_cookie,
            reason: action.reason.number(),
            max_len: action.max_len,
            controller_id: action.controller_id,
            userdata: action.userdata.clone(),
            table_miss: self.pos.rule_is_miss,
            in_port: self.packet.key.in_port(),
            recirc_id,
            pauses: action.pause,
            dont_send: !self.tracer.has_effects(),
            metadata: self.metadata(),
        };
        let send = DpAction::Controller(Arc::new(upcall));
        match self.controller_meter(action.meter_id) {
            // The meter drops or marks the controller's copy only.
            Some(meter) => {
                self.emit(DpAction::Meter(meter));
                self.emit(send);
                let list = self.out.actions.split_off(self.out.actions.len() - 2);
                // Samples all of them: Open vSwitch has the same action in traces.
                self.emit(DpAction::Sample { probability: u32::MAX, actions: list.into() });
            }
            None => self.emit(send),
        }
    }

    /// The key's metadata as a packet-in reports it: only bits that were read or written. Registers and
    /// the metadata field are zero unless written.
    fn metadata(&self) -> flow::FlowKey {
        let mut key = flow::FlowKey::ZERO;
        key.0[..flow::layout::ETH_DST].copy_from_slice(&self.packet.key.0[..flow::layout::ETH_DST]);
        // This field is internal to datapath and switch.
        key.set(Field::RecircId, 0);
        key.set(Field::DpHash, 0);
        // This field follows from the action set.
        key.set(Field::ActsetOutput, 0);
        // The fields of connections depend on it.
        key.set(Field::EthType, self.packet.key.eth_type().into());
        key
    }

    /// Reads the tunnel metadata that packet-ins report. Packets from other ports than tunnels have none, and nothing of it is
    /// read: the ingress port implies its absence.
    fn note_tunnel(&mut self) {
        use flow::layout::{SKB_PKT, TUN_ID, TUN_IPV4, TUN_IPV6_DST};
        let dst = [TUN_IPV4, TUN_IPV6_DST, TUN_IPV6_DST + 1];
        if dst.iter().all(|word| self.packet.key.0[*word] == 0 && self.out.reads.written().0[*word] == 0) {
            return;
        }
        (TUN_ID..SKB_PKT).for_each(|word| self.out.reads.note(word, u64::MAX));
        self.pos.bridge.options.iter().for_each(|placed| self.out.reads.note_mask(&placed.whole()));
    }

    /// Records why nothing was output, in case the packet is not output at all.
    pub(crate) fn note_drop(&mut self, reason: DropReason) {
        self.out.drop.get_or_insert(reason);
    }
}
