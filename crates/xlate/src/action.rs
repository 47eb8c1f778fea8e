//! Executes a list of actions, and orders an action set.

use crate::freeze::Freeze;
use crate::scope::Scope;
use crate::trace::NodeKind;
use crate::translate::{MAX_SET, MAX_STACK, Xlate};
use crate::verdict::TranslationError;
use base::PortNo;
use flow::text::NoNames;
use flow::{Field, Prereq};
use openflow::{Action, ControllerAction, PacketInReason};

impl Xlate<'_> {
    /// Executes one action.
    pub(crate) fn do_action(&mut self, action: &Action) {
        if self.mirroring.mirrored.sent != 0 {
            self.mirror_again_after(action);
        }
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len),
            Action::OutputReg { src, max_len } => {
                let port = self.read_subfield(*src);
                // As in Open vSwitch, the register holds an OpenFlow 1.0 port number, whatever the width of the field.
                match u16::try_from(port) {
                    Ok(n) => {
                        self.tracer.note(NodeKind::Detail, || format!("output port is {n}"));
                        self.output(PortNo::from_of10(n), *max_len);
                    }
                    Err(_) => self.tracer.note(NodeKind::Warning, || format!("output port {port} is out of range")),
                }
            }
            Action::OutputTrunc { port, max_len } => self.output_truncated(*port, *max_len),
            Action::Controller(c) => self.send_to_controller(c),
            Action::Enqueue { port, queue } => {
                let old = self.packet.key.get(Field::SkbPriority);
                self.set_queue(*queue);
                self.output(*port, 0);
                self.write(Field::SkbPriority, old, u32::MAX.into());
            }
            Action::SetQueue(queue) => self.set_queue(*queue),
            Action::PopQueue => {
                self.out.reads.note_field(Field::SkbPriority);
                let first = self.packet.first_priority;
                self.write(Field::SkbPriority, first.into(), u32::MAX.into());
                self.tracer.note(NodeKind::Detail, || format!("queue = {first}"));
            }
            Action::SetVlanVid { vid, push_if_needed } => {
                if *push_if_needed || self.has_vlan() {
                    self.write(Field::VlanVid, u128::from(*vid) | 0x1000, 0x1fff);
                }
            }
            Action::SetVlanPcp { pcp, push_if_needed } => {
                if *push_if_needed && !self.has_vlan() {
                    self.push_vlan(0x8100);
                }
                if self.has_vlan() {
                    self.write(Field::VlanPcp, (*pcp).into(), 7);
                }
            }
            Action::PopVlan => self.pop_vlan(),
            // The new tag starts with id and priority 0, as in Open vSwitch: it does not copy the one under it, which
            // OpenFlow 1.3 section 5.11 asks for.
            Action::PushVlan(tpid) => self.push_vlan(*tpid),
            Action::PushMpls(eth_type) => self.push_mpls(*eth_type),
            Action::PopMpls(eth_type) => self.pop_mpls(*eth_type),
            Action::PushPbb => self.push_pbb(),
            Action::PopPbb => self.pop_pbb(),
            Action::SetMplsLabel(label) => self.set_whole(Field::MplsLabel, (*label).into()),
            Action::SetMplsTc(tc) => self.set_whole(Field::MplsTc, (*tc).into()),
            Action::SetMplsTtl(ttl) => self.set_whole(Field::MplsTtl, (*ttl).into()),
            Action::DecMplsTtl => self.dec_mpls_ttl(),
            Action::CopyTtlOut => self.copy_ttl(true),
            Action::CopyTtlIn => self.copy_ttl(false),
            Action::DecNshTtl => self.dec_nsh_ttl(),
            Action::Encap(encap) => self.encap(encap),
            Action::Decap(to) => self.decap(*to),
            Action::Ct(ct) => self.ct(ct),
            // `ct` applies it.
            Action::Nat(nat) => self.control.nat = Some(nat.clone()),
            Action::CtClear => self.ct_clear(),
            Action::DebugSlow => self.out.slow = true,
            Action::DebugRecirc => self.control.freeze = Some(Freeze::Parse),
            Action::SetTunOption(option) => self.set_option(option),
            Action::DeleteField(field) => self.delete_field(*field),
            Action::Sample(sample) => self.sample(sample),
            Action::SetEthSrc(mac) => self.set_whole(Field::EthSrc, mac.to_u64().into()),
            Action::SetEthDst(mac) => self.set_whole(Field::EthDst, mac.to_u64().into()),
            Action::SetIpv4Src(ip) => self.set_whole(Field::Ipv4Src, ip.to_bits().into()),
            Action::SetIpv4Dst(ip) => self.set_whole(Field::Ipv4Dst, ip.to_bits().into()),
            Action::SetIpDscp(tos) => self.set_whole(Field::IpDscp, (tos >> 2).into()),
            Action::SetIpEcn(ecn) => self.set_whole(Field::IpEcn, (*ecn).into()),
            Action::SetIpTtl(ttl) => self.set_whole(Field::IpTtl, (*ttl).into()),
            Action::SetL4Src(port) => self.set_l4([Field::TcpSrc, Field::UdpSrc, Field::SctpSrc], *port),
            Action::SetL4Dst(port) => self.set_l4([Field::TcpDst, Field::UdpDst, Field::SctpDst], *port),
            Action::SetField { field, value, mask } => {
                self.set_if_present(*field, *value, mask & field.info().full_mask());
            }
            Action::RegLoad { dst, value } => {
                self.write_subfield(*dst, *value);
            }
            Action::RegMove { src, dst } | Action::CopyField { src, dst } => {
                let value = self.read_bits_of(*src);
                self.write_bits_of(*dst, &value);
                self.note_bits(*dst);
            }
            Action::StackPush(src) => {
                let value = self.read_bits_of(*src);
                // A long value counts as several.
                let most = if src.n_bits > 128 { MAX_STACK / 8 } else { MAX_STACK };
                if self.pos.stack.len() >= most {
                    return self.fail(TranslationError::Stack);
                }
                self.pos.stack.push(value);
            }
            Action::StackPop(dst) => match self.pos.stack.pop() {
                Some(value) => {
                    self.write_bits_of(*dst, &value);
                    self.note_bits(*dst);
                }
                None => self.tracer.note(NodeKind::Error, || "stack underflow".into()),
            },
            Action::DecTtl(controllers) => self.dec_ttl(controllers.as_deref().unwrap_or(&[0])),
            Action::SetTunnel { id, .. } => self.write(Field::TunId, (*id).into(), u64::MAX.into()),
            Action::Resubmit { in_port, table } => {
                let port = in_port.filter(|p| *p != PortNo::IN_PORT);
                self.resubmit(table.unwrap_or(self.pos.table), port, false);
            }
            Action::ResubmitPort { in_port } => {
                let port = in_port.filter(|p| *p != PortNo::IN_PORT);
                self.resubmit(self.pos.table, port, false);
            }
            Action::ResubmitCt { in_port, table } => {
                let port = in_port.filter(|p| *p != PortNo::IN_PORT);
                self.resubmit_by_connection(table.unwrap_or(self.pos.table), port);
            }
            Action::Clone(inner) => {
                if self.is_over_limits() {
                    return;
                }
                self.on_a_copy(Scope::Copy, |x| {
                    x.do_actions(inner);
                    // The copy's pipeline ends here.
                    x.execute_set();
                });
            }
            Action::Note(_) => {}
            Action::Group(id) => self.group(*id),
            Action::Learn(learn) => self.learn(learn),
            Action::Multipath(multipath) => self.multipath(multipath),
            Action::Bundle(bundle) => self.bundle(bundle),
            Action::FinTimeout { idle_timeout, hard_timeout } => self.fin_timeout(*idle_timeout, *hard_timeout),
            // No look-up returns a rule with this action.
            Action::Conjunction { .. } => {}
            Action::Exit => self.control.exit = true,
            Action::Meter(id) => self.meter(*id),
            // The caller executes it together with the actions after it.
            Action::CheckPktLarger { .. } => {}
            Action::ClearActions => {
                self.tracer.note(NodeKind::Detail, || format!("action set was{}", describe_set(&self.pos.action_set)));
                self.pos.action_set.clear();
                self.update_actset_output();
            }
            Action::WriteActions(actions) => {
                for action in actions {
                    self.pos.action_set.retain(|a| !replaces(action, a));
                    if self.pos.action_set.len() >= MAX_SET {
                        return self.fail(TranslationError::Actions);
                    }
                    self.pos.action_set.push(action.clone());
                }
                self.update_actset_output();
                self.tracer.note(NodeKind::Detail, || format!("action set is{}", describe_set(&self.pos.action_set)));
            }
            Action::WriteMetadata { value, mask } => {
                self.write(Field::Metadata, (*value).into(), (*mask).into());
            }
            Action::GotoTable(table) => self.resubmit(*table, None, true),
        }
    }

    /// Sets the field `actset_output` to the port of the `output` action in the action set, or to `OFPP_UNSET` if there is
    /// none or a `group` action takes its place (OpenFlow 1.5 section 7.2.3.8).
    pub(crate) fn update_actset_output(&mut self) {
        let mut port = PortNo::UNSET;
        for action in &self.pos.action_set {
            match action {
                Action::Output { port: to, .. } => port = *to,
                Action::Group(_) => {
                    port = PortNo::UNSET;
                    break;
                }
                _ => {}
            }
        }
        self.set_actset_output(port);
    }

    /// The field is a part of the pipeline, not of the packet: it counts as written from the beginning.
    pub(crate) fn set_actset_output(&mut self, port: PortNo) {
        self.packet.key.set(Field::ActsetOutput, port.0.into());
        self.out.reads.write_field(Field::ActsetOutput);
        self.packet.written = None;
    }

    /// Sets the packet's priority, which selects a queue in the datapath. The packet's own is read, as `pop_queue` restores it.
    fn set_queue(&mut self, queue: u32) {
        self.out.reads.note_field(Field::SkbPriority);
        self.write(Field::SkbPriority, queue.into(), u32::MAX.into());
    }

    fn set_whole(&mut self, field: Field, value: u128) {
        self.set_if_present(field, value, field.info().full_mask());
    }

    fn set_l4(&mut self, fields: [Field; 3], port: u16) {
        if let Some(field) = fields.into_iter().find(|f| self.has(f.info().prereq)) {
            self.write(field, port.into(), 0xffff);
        }
    }

    /// Sets bits of a field if the packet has the header of the field.
    pub(crate) fn set_if_present(&mut self, field: Field, value: u128, mask: u128) {
        if self.has(field.info().prereq) {
            self.write(field, value, mask);
        }
    }

    fn dec_ttl(&mut self, controllers: &[u16]) {
        if !self.has(Prereq::Ip) {
            return;
        }
        // As in Open vSwitch, a megaflow is for one protocol, whether or not the TTL has expired.
        self.out.reads.note_field(Field::IpTtl);
        self.out.reads.note_field(Field::IpProto);
        let ttl = self.packet.key.get(Field::IpTtl);
        if ttl > 1 {
            self.write(Field::IpTtl, ttl - 1, 0xff);
            return;
        }
        let version = if self.packet.key.eth_type() == flow::extract::ethertype::IPV6 { "IPv6" } else { "IPv4" };
        self.tracer.note(NodeKind::Warning, || format!("{version} decrement TTL exception"));
        for id in controllers {
            self.send_to_controller(&ControllerAction {
                controller_id: *id,
                reason: PacketInReason::InvalidTtl,
                ..ControllerAction::default()
            });
        }
        self.note_drop(base::DropReason::TtlExpired);
        // After a resubmit, the list before it continues.
        self.control.stop_list = true;
    }

    /// Returns true if the packet meets `prereq`, and records the bits that decide this.
    pub(crate) fn has(&mut self, prereq: Prereq) -> bool {
        let eth = self.packet.key.eth_type();
        let is_ip = eth == 0x0800 || eth == 0x86dd;
        match prereq {
            Prereq::None | Prereq::Ct => true,
            Prereq::Ethernet => !self.is_l3(),
            Prereq::Arp => eth == 0x0806 || eth == 0x8035,
            Prereq::VlanVid => self.has_vlan(),
            Prereq::Ipv4 => eth == 0x0800,
            Prereq::Ipv6 => eth == 0x86dd,
            Prereq::Ip => is_ip,
            Prereq::Mpls => eth == 0x8847 || eth == 0x8848,
            Prereq::Nsh => eth == 0x894f,
            Prereq::Pbb => eth == 0x88e7,
            Prereq::Tcp => is_ip && self.has_l4(6),
            Prereq::Udp => is_ip && self.has_l4(17),
            Prereq::Sctp => is_ip && self.has_l4(132),
            Prereq::Icmpv4 => eth == 0x0800 && self.has_l4(1),
            Prereq::Icmpv6 => eth == 0x86dd && self.has_l4(58),
            Prereq::Nd => eth == 0x86dd && self.has_l4(58) && self.nd_type(&[135, 136]),
            Prereq::NdSolicit => eth == 0x86dd && self.has_l4(58) && self.nd_type(&[135]),
            Prereq::NdAdvert => eth == 0x86dd && self.has_l4(58) && self.nd_type(&[136]),
        }
    }

    /// Returns true if the packet has a transport header of this protocol: later fragments have none.
    fn has_l4(&mut self, proto: u8) -> bool {
        self.out.reads.note_field(Field::IpProto);
        if self.packet.key.ip_proto() != proto {
            return false;
        }
        self.out.reads.note_field(Field::IpFrag);
        self.packet.key.get(Field::IpFrag) & 2 == 0
    }

    fn nd_type(&mut self, types: &[u8]) -> bool {
        self.out.reads.note_field(Field::Icmpv6Type);
        self.out.reads.note_field(Field::Icmpv6Code);
        types.iter().any(|t| self.packet.key.get(Field::Icmpv6Type) == u128::from(*t))
            && self.packet.key.get(Field::Icmpv6Code) == 0
    }
}

/// Only one of the actions from here on is executed: the one with the highest number.
const POSITION_LAST: u8 = 16;

/// The position of an action in an action set (OpenFlow 1.3 section 5.10, and ovs-actions(7) for actions that it lacks).
fn set_position(action: &Action) -> u8 {
    match action {
        Action::CopyTtlIn => 0,
        Action::PopVlan => 1,
        Action::PopPbb => 2,
        Action::PopMpls(_) => 3,
        Action::Decap(_) => 4,
        Action::Encap(_) => 5,
        Action::PushMpls(_) => 6,
        Action::PushPbb => 7,
        Action::PushVlan(_) => 8,
        Action::CopyTtlOut => 9,
        Action::DecTtl(_) => 10,
        Action::DecMplsTtl => 11,
        Action::DecNshTtl => 12,
        Action::SetQueue(_) | Action::PopQueue => 14,
        Action::Clone(_) => 15,
        Action::Ct(_) => POSITION_LAST,
        Action::CtClear => POSITION_LAST + 1,
        Action::Resubmit { .. } | Action::ResubmitPort { .. } | Action::ResubmitCt { .. } => POSITION_LAST + 2,
        Action::Group(_) => POSITION_LAST + 4,
        Action::Output { .. }
        | Action::OutputReg { .. }
        | Action::OutputTrunc { .. }
        | Action::Controller(_)
        | Action::Enqueue { .. } => POSITION_LAST + 3,
        _ => 13,
    }
}

/// Returns true if writing `new` into an action set replaces `old`: an action of the same type, or of the same field.
fn replaces(new: &Action, old: &Action) -> bool {
    match (new, old) {
        (Action::SetField { field: a, mask: m, .. }, Action::SetField { field: b, mask: n, .. }) => {
            a == b && n & !m == 0
        }
        (Action::RegLoad { .. } | Action::RegMove { .. } | Action::CopyField { .. }, _)
        | (_, Action::RegLoad { .. }) => false,
        _ => {
            set_position(new) >= POSITION_LAST && set_position(new) == set_position(old)
                || std::mem::discriminant(new) == std::mem::discriminant(old)
        }
    }
}

/// Returns the actions of an action set in order of execution. Only one of the actions that output the packet or look it up
/// again remains: a group, or else an output, a `resubmit`, a `ct_clear`, a `ct`.
pub(crate) fn set_in_order(set: &[Action]) -> Vec<Action> {
    let mut ordered: Vec<Action> = Vec::with_capacity(set.len());
    for (i, action) in set.iter().enumerate() {
        // As in Open vSwitch, a bucket executes no action that only tests of a switch use.
        let is_debug = matches!(action, Action::DebugSlow | Action::DebugRecirc);
        if !is_debug && !set[i + 1..].iter().any(|later| replaces(later, action)) {
            ordered.push(action.clone());
        }
    }
    let last = ordered.iter().map(set_position).max();
    ordered.retain(|a| set_position(a) < POSITION_LAST || Some(set_position(a)) == last);
    ordered.sort_by_key(set_position);
    ordered
}

/// Formats an action set for traces.
fn describe_set(set: &[Action]) -> String {
    if set.is_empty() {
        return " empty".into();
    }
    let actions: Vec<_> = set_in_order(set).iter().map(|action| crate::text::action(action, &NoNames)).collect();
    format!(": {}", actions.join(","))
}
