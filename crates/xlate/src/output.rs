//! Sending the packet somewhere: to a port, through a patch port into another bridge, to a controller.

use crate::freeze::Freeze;
use crate::model::{Port, PortOut};
use crate::trace::Kind;
use crate::translate::{Start, Xlate, bridge_of, trim};
use crate::verdict::Effect;
use base::{DropReason, PortNo};
use dpif::{ControllerUpcall, DpAction};
use flow::{Field, Prereq};
use openflow::{ControllerAction, PacketInReason};
use std::sync::Arc;

/// UDP ports of DHCP (RFC 2131 section 4.1).
const DHCP_SERVER: u128 = 67;
const DHCP_CLIENT: u128 = 68;

impl<'a> Xlate<'a> {
    /// The `output` action: to a real port or a reserved one. `max_len` is for CONTROLLER.
    pub(crate) fn output(&mut self, port: PortNo, max_len: u16) {
        match port {
            PortNo::IN_PORT => self.output_port(self.key.in_port(), true),
            // Only in a packet-out: it enters the pipeline, where a miss is a table miss.
            PortNo::TABLE => self.resubmit(0, None, true),
            PortNo::NORMAL => self.normal(),
            PortNo::FLOOD => self.output_all(true),
            PortNo::ALL => self.output_all(false),
            PortNo::CONTROLLER => {
                let reason = if self.is_packet_out() {
                    PacketInReason::PacketOut
                } else if self.in_group {
                    PacketInReason::Group
                } else if self.in_action_set {
                    PacketInReason::ActionSet
                } else if self.rule_is_miss {
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
        let bridge = self.bridge;
        let in_port = self.key.in_port();
        for port in bridge.ports.values() {
            if port.no != in_port && !(flood && port.config.no_flood) {
                self.output_port(port.no, false);
            }
        }
    }

    /// Sends to a port of this bridge. Back out of the ingress port only if `to_ingress` says so.
    pub(crate) fn output_port(&mut self, no: PortNo, to_ingress: bool) {
        let bridge = self.bridge;
        let Some(port) = bridge.ports.get(&no) else {
            self.tracer.note(Kind::Warning, || "Nonexistent output port".into());
            return self.note_drop(DropReason::NoPort);
        };
        if no == self.key.in_port() && !to_ingress {
            self.tracer.note(Kind::Warning, || "skipping output to input port".into());
            return self.note_drop(DropReason::SamePort);
        }
        if port.config.no_fwd || port.config.down {
            let why = if port.config.down { "OFPPC_PORT_DOWN" } else { "OFPPC_NO_FWD" };
            self.tracer.note(Kind::Warning, || format!("{why} set, skipping output"));
            return self.note_drop(DropReason::PortDown);
        }
        match port.out {
            PortOut::Device(_) if self.is_bare() => {
                self.tracer.note(Kind::Warning, || {
                    "Trying to send non-Ethernet packet through legacy L2 port. Dropping packet.".into()
                });
                self.note_drop(DropReason::NoEthernet);
            }
            PortOut::Device(dp_port) => {
                self.commit();
                self.sample_egress(dp_port);
                self.emit(DpAction::Output(dp_port));
            }
            PortOut::Patch(peer_bridge, peer_port) => self.through_patch(port, peer_bridge, peer_port),
            PortOut::Nowhere => {
                self.tracer.note(Kind::Warning, || "patch port has no peer".into());
                self.note_drop(DropReason::NoPort);
            }
        }
    }

    /// Has what a DHCP server says reach the local port of the bridge that the packet came in on, where that is to have it
    /// in any case: whoever asked may be there, and the flows may not know.
    pub(crate) fn dhcp_to_local(&mut self) {
        let bridge = self.bridge;
        let local = bridge.ports.get(&PortNo::LOCAL).map(|port| port.out);
        let (Some(PortOut::Device(device)), true) = (local, bridge.dhcp_to_local) else { return };
        if self.error.is_some()
            || self.key.in_port() == PortNo::LOCAL
            || self.key.eth_type() != 0x0800
            || !self.has(Prereq::Udp)
            || self.read_bits(Field::UdpSrc, 0xffff) != DHCP_SERVER
            || self.read_bits(Field::UdpDst, 0xffff) != DHCP_CLIENT
            || self.actions.contains(&DpAction::Output(device))
        {
            return;
        }
        // It is told of behind what the last table did.
        self.tracer.reenter();
        self.tracer.reenter();
        self.tracer.note(Kind::Detail, || "outputting DHCP packet to local port for in-band control".into());
        self.tracer.leave();
        self.tracer.leave();
        self.output_port(PortNo::LOCAL, false);
    }

    /// Sends the first `max_len` bytes to a port. Only a device takes a part of a packet: reserved ports and patch ports
    /// are passed over, as Open vSwitch does.
    pub(crate) fn output_truncated(&mut self, port: PortNo, max_len: u32) {
        if !port.is_real() {
            let what = if port == PortNo::IN_PORT { "patch port" } else { "port:" };
            self.tracer.note(Kind::Error, || format!("output_trunc does not support {what} {port}"));
            return self.note_drop(DropReason::NoPort);
        }
        if self.bridge.ports.get(&port).is_some_and(|p| !matches!(p.out, PortOut::Device(_))) {
            self.tracer.note(Kind::Error, || format!("output_trunc does not support patch port {port}"));
            return self.note_drop(DropReason::NoPort);
        }
        self.commit();
        let at = self.actions.len();
        self.output(port, u16::MAX);
        if self.actions.len() > at {
            self.actions.insert(at, DpAction::Trunc(max_len));
            self.action_bytes += crate::commit::size_of_action(&DpAction::Trunc(max_len));
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
        self.effects.push(Effect::Patch { from: (self.bridge.id, port.no), to: (peer_bridge, peer_port) });
        self.commit();
        let here = (self.bridge, self.table, self.in_action_set, self.in_group);
        (self.in_action_set, self.in_group) = (false, false);
        let view = Arc::clone(&self.view);
        let set = std::mem::take(&mut self.action_set);
        let rule = (self.rule.take(), self.rule_cookie, self.rule_is_miss);
        let stack = std::mem::take(&mut self.stack);
        (self.depth, self.level) = (self.depth + 1, self.level + 1);
        self.on_a_copy(|x| {
            x.key.set_in_port(peer_port);
            x.reads.write_field(flow::Field::InPortOxm);
            x.written = None;
            x.clear_registers();
            x.clear_options();
            x.leave_connection_behind();
            x.in_bridge(peer, Start::Tables);
        });
        (self.depth, self.level) = (self.depth - 1, self.level - 1);
        // An exit over there ends that bridge's processing only.
        self.exit = self.error.is_some();
        (self.bridge, self.table, self.in_action_set, self.in_group) = here;
        (self.view, self.action_set, self.stack) = (view, set, stack);
        (self.rule, self.rule_cookie, self.rule_is_miss) = rule;
    }

    /// Runs `inner` such that the packet is afterwards what it was before: if `inner` made the datapath change its
    /// packet, its actions become a `Clone`.
    pub(crate) fn on_a_copy(&mut self, inner: impl FnOnce(&mut Xlate<'a>)) {
        self.commit();
        let before = Box::new((self.key.clone(), self.base.clone(), self.reads.written().clone()));
        let (list, unseen) = (self.written, self.unseen);
        let connection = (self.tracked, self.translated);
        let outer = std::mem::take(&mut self.actions);
        self.copies += 1;
        inner(self);
        self.copies -= 1;
        self.unseen = unseen;
        (self.tracked, self.translated) = connection;
        let mut actions = std::mem::replace(&mut self.actions, outer);
        trim(&mut actions);
        self.pending = crate::commit::Pending::default();
        if actions.iter().any(DpAction::affects_later) {
            self.emit(DpAction::Clone(actions.into()));
        } else {
            self.actions.extend(actions);
        }
        let written;
        (self.key, self.base, written) = *before;
        self.reads.restore_written(written);
        self.written = list;
    }

    /// Registers, metadata and tunnel fields belong to a bridge and do not cross to its neighbour.
    fn clear_registers(&mut self) {
        use flow::layout::{REGS, SKB_PKT};
        let mut mask = flow::FlowKey::ZERO;
        for word in REGS..SKB_PKT {
            self.key.0[word] = 0;
            mask.0[word] = u64::MAX;
        }
        self.reads.write_mask(&mask);
        self.written = None;
    }

    /// Sends the packet as it is now to controllers.
    pub(crate) fn send_to_controller(&mut self, action: &ControllerAction) {
        if action.pause {
            self.freeze = Some(Freeze::Pause(Box::new(action.clone())));
            return;
        }
        self.commit();
        self.send_upcall(action, 0);
    }

    /// Sends it. `continuation` is the number of what is left to be done then, if the controller says so.
    pub(crate) fn send_upcall(&mut self, action: &ControllerAction, continuation: u32) {
        self.note_tunnel();
        self.read_connection();
        let upcall = ControllerUpcall {
            bridge: self.bridge.id,
            table: self.table,
            cookie: self.rule_cookie,
            reason: action.reason as u8,
            max_len: action.max_len,
            controller_id: action.controller_id,
            userdata: action.userdata.clone(),
            table_miss: self.rule_is_miss,
            in_port: self.key.in_port(),
            continuation,
            metadata: self.metadata(),
        };
        let send = DpAction::Controller(Arc::new(upcall));
        match self.controller_meter(action.meter_id) {
            // What the meter drops or marks is the controller's copy.
            Some(meter) => {
                self.emit(DpAction::Meter(meter));
                self.emit(send);
                let list = self.actions.split_off(self.actions.len() - 2);
                // All of them: as Open vSwitch has it, and says it in traces.
                self.emit(DpAction::Sample { probability: u32::MAX, actions: list.into() });
            }
            None => self.emit(send),
        }
    }

    /// The key's metadata as a packet-in reports it: what is known of it without widening what was read. Registers and
    /// the metadata field are zero unless written.
    fn metadata(&self) -> flow::FlowKey {
        let mut key = flow::FlowKey::ZERO;
        key.0[..flow::layout::ETH_DST].copy_from_slice(&self.key.0[..flow::layout::ETH_DST]);
        // Between datapath and switch only.
        key.set(Field::RecircId, 0);
        key.set(Field::DpHash, 0);
        key
    }

    /// Reads what packet-ins tell of the tunnel that a packet came by. The ingress port says whether there was one, and that it
    /// had a destination then: there is nothing to be read of other packets.
    fn note_tunnel(&mut self) {
        use flow::layout::{SKB_PKT, TUN_ID, TUN_IPV4, TUN_IPV6_DST};
        let dst = [TUN_IPV4, TUN_IPV6_DST, TUN_IPV6_DST + 1];
        if dst.iter().all(|word| self.key.0[*word] == 0 && self.reads.written().0[*word] == 0) {
            return;
        }
        (TUN_ID..SKB_PKT).for_each(|word| self.reads.note(word, u64::MAX));
        self.bridge.options.iter().for_each(|placed| self.reads.note_mask(&placed.whole()));
    }

    /// Remembers why nothing was sent, in case nothing is sent at all.
    pub(crate) fn note_drop(&mut self, reason: DropReason) {
        self.drop.get_or_insert(reason);
    }
}
