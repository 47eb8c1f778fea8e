//! A naive twin of `translate`: it tries the rules of a table one after the other, and executes each action at once on the
//! packet itself.

use super::wire::{PBB, Sent, Wire, bit, forget, track};
use super::*;
use crate::ct::exchange;
use openflow::group::Bucket;
use openflow::{Ct, CtZone, GroupKind};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Makes the rules fit for the naive twin, and for packets that are recirculated: look-ups are in later tables only.
pub(super) fn for_naive(mut rules: Vec<(u8, Match, u16, Vec<Action>)>) -> Vec<(u8, Match, u16, Vec<Action>)> {
    fn move_lookups(actions: &mut [Action], table: u8) {
        for action in actions {
            match action {
                Action::Resubmit { table: t, .. } | Action::ResubmitCt { table: t, .. } => *t = t.map(|t| t + table),
                Action::Ct(ct) => ct.table = ct.table.map(|t| t + table),
                Action::Clone(inner) => move_lookups(inner, table),
                _ => {}
            }
        }
    }
    for (i, (table, _, priority, actions)) in rules.iter_mut().enumerate() {
        // All priorities differ.
        *priority = i as u16;
        move_lookups(actions, *table);
    }
    rules
}

/// Looks up tables rule by rule, and executes actions at once, without masks.
pub(super) struct Naive<'a> {
    pub(super) rules: &'a [(u8, Match, u16, Vec<Action>)],
    pub(super) groups: &'a [Group],
    pub(super) fragments: FragHandling,
    /// The bridge whose bundles and learned addresses are used.
    pub(super) bridge: Option<&'a Bridge>,
    /// The decisions of bonds.
    pub(super) bonds: Option<&'a ::bond::view::Views>,
    pub(super) at: Wire,
    pub(super) stack: Vec<Vec<bool>>,
    pub(super) set: Vec<Action>,
    pub(super) out: Vec<Sent>,
    pub(super) exit: bool,
    /// The number of look-ups left: this twin does not handle more.
    pub(super) left: u32,
    /// The ports of the addresses that the packet has taught so far.
    pub(super) learned: BTreeMap<(u16, u64), PortNo>,
    /// True if one of them was looked up. A packet that is recirculated is looked up when the bridge has learned from all of
    /// its first pass, so that the order of learning and look-ups is not that of this twin.
    pub(super) by_learned: bool,
    /// The mirrors of the bridge.
    pub(super) mirrors: &'a [Option<Mirror>],
    /// The mirrors that the packet was sent to, and those that it is a copy of.
    pub(super) mirrored: BTreeSet<usize>,
    pub(super) copy_of: Vec<usize>,
    /// True while a shortened copy is output, which does not cross patch ports.
    pub(super) is_shortened: bool,
    /// True after `pop_pbb`: the translation learns the VLAN tags of the inner frame when the packet is recirculated, and a mirror
    /// copies the packet before that. This twin knows the tags at once.
    pub(super) is_uncovered: bool,
    /// True if a mirror has copied such a packet, so that the twin's copy may have other tags than the translation's.
    pub(super) by_uncovered: bool,
}

impl<'a> Naive<'a> {
    pub(super) fn new() -> Self {
        Self {
            rules: &[],
            groups: &[],
            fragments: FragHandling::Normal,
            bridge: None,
            bonds: None,
            at: Wire::new(&FlowKey::ZERO),
            stack: vec![],
            set: vec![],
            out: vec![],
            exit: false,
            left: 1000,
            learned: BTreeMap::new(),
            by_learned: false,
            mirrors: &[],
            mirrored: BTreeSet::new(),
            copy_of: Vec::new(),
            is_shortened: false,
            is_uncovered: false,
            by_uncovered: false,
        }
    }

    pub(super) fn table(&mut self, table: u8) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.exit = true;
        } else if let Some(actions) = self.find(table) {
            self.actions(actions);
        }
    }

    /// Returns the actions of the rule that a look-up finds: ordinary rules first, then conjunctive matches of higher priority
    /// with all clauses present, by descending priority and ascending id.
    fn find(&self, table: u8) -> Option<&'a [Action]> {
        let mut seen = self.at.clone();
        seen.key.set(Field::ActsetOutput, actset_output(&self.set).0.into());
        if seen.key.get(Field::IpFrag) != 0 {
            match self.fragments {
                FragHandling::Normal => [Field::TcpSrc, Field::TcpDst].iter().for_each(|f| seen.key.set(*f, 0)),
                FragHandling::NxMatch => {}
                _ => return None,
            }
        }
        let best = |packet: &Wire| {
            let matching = self.rules.iter().filter(|(t, m, ..)| *t == table && packet.is_matched(m));
            let ordinary = matching.filter(|(.., actions)| clauses(actions).next().is_none());
            ordinary.max_by_key(|(_, _, priority, _)| *priority)
        };
        let first = best(&seen);
        let mut satisfied = BTreeMap::<_, BTreeSet<u8>>::new();
        for (_, _, priority, actions) in self.rules.iter().filter(|(t, m, ..)| *t == table && seen.is_matched(m)) {
            if first.is_none_or(|f| f.2 < *priority) {
                for (id, clause, n) in clauses(actions) {
                    satisfied.entry((Reverse(*priority), id, n)).or_default().insert(clause);
                }
            }
        }
        let whole = satisfied.iter().filter(|((_, _, n), seen)| seen.len() == usize::from(*n));
        let second = whole.filter_map(|((_, id, _), _)| {
            let mut packet = seen.clone();
            packet.key.set(Field::ConjId, (*id).into());
            best(&packet)
        });
        second.chain(first).next().map(|(.., actions)| &actions[..])
    }

    /// Sends a copy of the packet through the tracker, and looks it up in a table if the action says so.
    fn ct(&mut self, ct: &Ct) {
        let zone = match ct.zone {
            CtZone::Immediate(zone) => zone,
            CtZone::Field(part) => (self.at.key.get(part.field) & part.mask()) as u16,
        };
        let Self { rules, groups, fragments, bridge, bonds, .. } = *self;
        let mut copy = Naive { rules, groups, fragments, bridge, bonds, at: self.at.on_the_wire(), ..Naive::new() };
        copy.at.reparse();
        let (mut mark, mut label) = (0, 0);
        for action in &ct.exec {
            let (field, mask) = match action {
                Action::SetField { field, mask, .. } => (*field, *mask),
                Action::RegMove { dst, .. } => (dst.field, dst.mask()),
                other => panic!("{other:?} in ct"),
            };
            copy.action(action);
            if field == Field::CtMark {
                mark |= mask as u32;
            } else {
                label |= mask;
            }
        }
        if let Some(table) = ct.table {
            let key = &mut copy.at.key;
            let values = (key.get(Field::CtMark) as u32, key.get(Field::CtLabel));
            track(key, zone, Some((values.0, mark)), Some((values.1, label)));
            (copy.stack, copy.set, copy.left) = (self.stack.clone(), self.set.clone(), self.left);
            copy.learned = self.learned.clone();
            copy.table(table);
            copy.action_set();
            self.out.append(&mut copy.out);
            (self.left, self.learned) = (copy.left, copy.learned);
            self.by_learned |= copy.by_learned;
            self.by_uncovered |= copy.by_uncovered;
        }
        forget(&mut self.at.key);
    }

    fn group(&mut self, id: u32) {
        let Some(group) = self.groups.iter().find(|g| g.id == id) else { return };
        let live = |groups: &[Group], b: &GroupBucket| is_live(groups, &b.bucket, 0);
        let chosen: Vec<_> = match group.kind {
            GroupKind::All => group.buckets.iter().collect(),
            GroupKind::Indirect => group.buckets.iter().take(1).collect(),
            // Groups in this twin have one bucket with a weight.
            GroupKind::Select => group.buckets.iter().filter(|b| b.bucket.weight > 0).take(1).collect(),
            GroupKind::FastFailover => group.buckets.iter().filter(|b| live(self.groups, b)).take(1).collect(),
        };
        // With a choice, the datapath selects by a hash, which the packet keeps and flows may match.
        let weighted = group.buckets.iter().filter(|b| b.bucket.weight > 0).count();
        let by_datapath = group.properties.selection_method.is_empty() && group.spread().is_some();
        let key = &self.at.key;
        if group.kind == GroupKind::Select && weighted > 1 && by_datapath && key.get(Field::DpHash) == 0 {
            self.at = self.at.on_the_wire();
            self.at.reparse();
            let key = &mut self.at.key;
            let hash = flow::hash::symmetric_l4(key, group.properties.selection_method_param as u32);
            key.set(Field::DpHash, hash.into());
        }
        for bucket in chosen {
            let saved = (self.at.clone(), self.stack.clone(), self.set.clone());
            self.set = bucket.bucket.actions.to_vec();
            self.action_set();
            self.exit = self.left == 0;
            (self.at, self.stack, self.set) = saved;
        }
    }

    pub(super) fn action_set(&mut self) {
        let set = std::mem::take(&mut self.set);
        let pops: Vec<_> = set.iter().filter(|a| matches!(a, Action::PopVlan)).take(1).cloned().collect();
        let last = |f: fn(&Action) -> bool| set.iter().rfind(|a| f(a)).cloned().into_iter();
        self.actions(&pops);
        self.actions(&last(|a| matches!(a, Action::SetEthDst(_))).collect::<Vec<_>>());
        let group: Vec<_> = last(|a| matches!(a, Action::Group(_))).collect();
        if group.is_empty() {
            self.actions(&last(|a| matches!(a, Action::Output { .. })).collect::<Vec<_>>());
        }
        self.actions(&group);
    }

    fn bundle_of(&self, port: u32) -> Option<&'a Bundle> {
        self.bridge?.bundles.values().map(Arc::as_ref).find(|bundle| bundle.ports.contains(&PortNo(port)))
    }

    fn output(&mut self, port: u32) {
        let protected = |port| self.bundle_of(port).is_some_and(|bundle| bundle.protected);
        if protected(self.at.key.in_port().0) && protected(port) {
            return;
        }
        match port {
            0xffff_fffd => self.out.push(self.at.on_the_wire().sent(u32::MAX)),
            1 | 2 | 4 => {
                self.out.push(self.at.on_the_wire().sent(port));
                self.mirror(port, |mirror| &mirror.select_dst);
            }
            3 if !self.is_shortened => {
                let mut there = self.at.on_the_wire();
                there.key.set(Field::EthSrc, PEER_SRC.to_u64().into());
                self.out.push(there.sent(11));
            }
            _ => {}
        }
    }

    /// Returns true if a mirror reserves the bundle.
    fn is_reserved(&self, bundle: &Bundle) -> bool {
        self.mirrors.iter().flatten().any(|mirror| mirror.out == MirrorOut::Port(Arc::clone(&bundle.name)))
    }

    /// Sends the received packet to mirrors. Returns false if it is dropped.
    pub(super) fn receive(&mut self) -> bool {
        let port = self.at.key.in_port().0;
        if self.bundle_of(port).is_some_and(|bundle| self.is_reserved(bundle)) {
            return false;
        }
        self.mirror(port, |mirror| &mirror.select_src);
        true
    }

    /// Sends the packet to the mirrors that select it at a port.
    fn mirror(&mut self, port: u32, selected: fn(&Mirror) -> &[Arc<str>]) {
        let (Some(bridge), Some(from)) = (self.bridge, self.bundle_of(port)) else { return };
        let Some(inside) = self.inside(from) else { return };
        let vlan = inside[0].1 & 0xfff;
        let had_sent = self.mirrored.len();
        for (n, mirror) in self.mirrors.iter().enumerate() {
            let Some(mirror) = mirror else { continue };
            if !(mirror.select_all || selected(mirror).contains(&from.name))
                || self.mirrored.contains(&n)
                || self.copy_of.contains(&n)
                || mirror.select_vlan.as_ref().is_some_and(|vlans| !vlans.contains(vlan))
                || mirror.filter.as_ref().is_some_and(|filter| !filter.matches(&self.at.key))
            {
                continue;
            }
            let has_same_output = |i: &usize| self.mirrors[*i].as_ref().is_some_and(|other| other.out == mirror.out);
            let duplicates: Vec<usize> = (0..self.mirrors.len()).filter(has_same_output).collect();
            let before = self.copy_of.len();
            self.mirrored.extend(&duplicates);
            self.copy_of.extend(&duplicates);
            let is_shortened = std::mem::replace(&mut self.is_shortened, mirror.snaplen.is_some());
            match &mirror.out {
                MirrorOut::Port(name) => {
                    if let Some(out) = bridge.bundles.get(&**name) {
                        let plain = [from.mode, out.mode] == [VlanMode::Trunk; 2];
                        if plain && out.priority_tags == model::PriorityTags::Never {
                            self.output_to(out);
                        } else {
                            self.leave(out, inside);
                        }
                    }
                }
                MirrorOut::Vlan(to) => {
                    let dst = MacAddr::from_u64(self.at.key.get(Field::EthDst) as u64);
                    let moved = [(inside[0].0, inside[0].1 & 0xe000 | to), inside[1]];
                    for out in bridge.bundles.values().filter(|_| vlan != *to && !dst.is_reserved()) {
                        if carries(out, moved) && !self.is_reserved(out) {
                            self.leave(out, moved);
                        }
                    }
                }
            }
            self.copy_of.truncate(before);
            self.is_shortened = is_shortened;
        }
        self.by_uncovered |= self.is_uncovered && self.mirrored.len() > had_sent;
    }

    /// The tags of the packet inside of the bridge if it is received on a bundle: up to two, each of a protocol, if there is
    /// one, and a value without the bit of presence. `None` if the bundle does not admit it.
    fn inside(&self, from: &Bundle) -> Option<Inside> {
        let known = self.at.tags_in_key();
        let plain = |n: usize| known.get(n).map_or((None, 0), |(tpid, tci)| (Some(*tpid), tci & 0xefff));
        let (first, second) = (plain(0), plain(1));
        let vid = first.1 & 0xfff;
        match from.mode {
            VlanMode::Access => (vid == 0).then(|| [(first.0.or(Some(0x8100)), from.tag | first.1), (None, 0)]),
            VlanMode::Dot1qTunnel { tpid } => from.admits_customer(vid).then_some([(Some(tpid), from.tag), first]),
            VlanMode::NativeTagged | VlanMode::NativeUntagged if vid == 0 => {
                Some([(first.0.or(Some(0x8100)), first.1 | from.tag), second])
            }
            _ => from.carries(vid).then_some([first, second]),
        }
    }

    /// Outputs the packet to a bundle, with these tags inside of the bridge. Tags below them stay in the packet.
    fn leave(&mut self, bundle: &Bundle, inside: Inside) {
        let known = self.at.tags_in_key();
        let vlan = inside[0].1 & 0xfff;
        let mut outside = match bundle.mode {
            VlanMode::Access => vec![(None, 0), (None, 0)],
            VlanMode::Dot1qTunnel { .. } => vec![inside[1], (None, 0)],
            VlanMode::NativeUntagged if vlan == bundle.tag => vec![inside[1], (None, 0)],
            _ => inside.to_vec(),
        };
        if bundle.priority_tags != model::PriorityTags::Never {
            outside[0].1 = outside[0].1 & 0xfff | known.first().map_or(0, |(_, tci)| tci & 0xe000);
        }
        let always = bundle.priority_tags == model::PriorityTags::Always;
        let is_sent = |(tpid, tci): &(Option<u16>, u16)| *tci != 0 || always && tpid.is_some();
        let sent = outside.iter().take_while(|tag| is_sent(tag));
        let out: Vec<_> = sent.map(|(tpid, tci)| (tpid.unwrap_or(0x8100), tci | 0x1000)).collect();
        let before = self.at.clone();
        // Tags below those of the key do not show there, however few it has now.
        for n in 0..2 {
            let (tpid, tci) = out.get(n).copied().unwrap_or_default();
            self.at.key.set_vlan(n, tpid, tci);
        }
        self.output_to(bundle);
        self.at = before;
    }

    /// Forwards between bundles, by the tags in the key.
    fn normal(&mut self) {
        let Some(bridge) = self.bridge else { return };
        let in_port = self.at.key.in_port().0;
        let Some(from) = self.bundle_of(in_port) else { return };
        if self.at.tags_in_key().is_empty() && [0x8100, 0x88a8].contains(&self.at.key.eth_type())
            || self.is_reserved(from)
        {
            return;
        }
        let Some(inside) = self.inside(from) else { return };
        let vlan = inside[0].1 & 0xfff;
        let mac = |field| MacAddr::from_u64(self.at.key.get(field) as u64);
        let dst = mac(Field::EthDst);
        if dst.is_reserved() {
            return;
        }
        let src = mac(Field::EthSrc);
        if from.ports.len() > 1 && !self.bond_admits(bridge, from, (vlan, src)) {
            return;
        }
        let learns = !bridge.flood_vlans.as_ref().is_some_and(|vlans| vlans.contains(vlan));
        if !src.is_multicast() && learns {
            self.learned.insert((vlan, src.to_u64()), from.ports[0]);
        }
        let learned = self.learned.get(&(vlan, dst.to_u64())).copied().filter(|_| learns);
        self.by_learned |= learned.is_some();
        let known = learned.or_else(|| bridge.macs.read().lookup(vlan, dst)).filter(|_| learns && !dst.is_multicast());
        let to: Vec<&Bundle> = match known {
            Some(port) => bridge.bundles.values().map(Arc::as_ref).filter(|b| b.ports.contains(&port)).collect(),
            None => super::multicast::receivers(bridge, &self.at.key, vlan)
                .unwrap_or_else(|| bridge.bundles.values().map(Arc::as_ref).filter(|b| b.floodable).collect()),
        };
        for bundle in to {
            if bundle.name != from.name && carries(bundle, inside) && !self.is_reserved(bundle) {
                self.leave(bundle, inside);
            }
        }
    }

    /// Whether a bond lets the frame in.
    fn bond_admits(&mut self, bridge: &Bridge, from: &Bundle, key: (u16, MacAddr)) -> bool {
        let dst = MacAddr::from_u64(self.at.key.get(Field::EthDst) as u64);
        let Some(view) = self.bonds.and_then(|views| views.get(&from.name)) else { return false };
        match view.admit(self.at.key.in_port(), dst) {
            ::bond::Admission::Accept => true,
            ::bond::Admission::Drop => false,
            ::bond::Admission::AcceptUnlessMoved => {
                let learned = self.learned.get(&(key.0, key.1.to_u64())).copied();
                self.by_learned |= learned.is_some();
                let at = learned.or_else(|| bridge.macs.read().lookup(key.0, key.1));
                let is_elsewhere = at.and_then(|port| self.bundle_of(port.0)).is_some_and(|at| at.name != from.name);
                let of_arp = |field| self.at.key.get(field);
                let announces = dst == MacAddr::BROADCAST
                    && self.at.key.eth_type() == 0x806
                    && match of_arp(Field::ArpOp) {
                        1 => of_arp(Field::ArpSpa) == of_arp(Field::ArpTpa),
                        op => op == 2,
                    };
                !is_elsewhere || announces && !bridge.macs.read().is_locked(key.0, key.1)
            }
        }
    }

    /// Outputs the packet as it is to a bundle.
    fn output_to(&mut self, bundle: &Bundle) {
        if let Some(port) = self.member(bundle) {
            self.output(port.0);
        }
    }

    /// The port of a bundle, or the member of a bond, by which the packet leaves as it is now.
    fn member(&self, bundle: &Bundle) -> Option<PortNo> {
        if bundle.ports.len() == 1 {
            return Some(bundle.ports[0]);
        }
        let view = self.bonds?.get(&bundle.name)?;
        match view.choice() {
            ::bond::Choice::None => None,
            ::bond::Choice::Member(port) => Some(port),
            ::bond::Choice::Hash if !self.is_shortened => {
                let hash = flow::hash::l4(&self.at.on_the_wire().key, view.hash_basis());
                view.member(::bond::bucket_of(hash))
            }
            ::bond::Choice::Source | ::bond::Choice::Hash => {
                let vlan = self.at.tags_in_key().first().map_or(0, |(_, tci)| tci & 0xfff);
                let src = MacAddr::from_u64(self.at.key.get(Field::EthSrc) as u64);
                view.member(::bond::bucket_of(::bond::source_hash(src, vlan, view.hash_basis())))
            }
        }
    }

    fn actions(&mut self, actions: &[Action]) {
        for action in actions {
            if self.exit || !self.action(action) {
                return;
            }
        }
    }

    /// Returns true if a packet is mirrored again after an action.
    fn is_changed_by(&self, action: &Action) -> bool {
        let eth_type = self.at.key.eth_type();
        let is_ip = [0x800, 0x86dd].contains(&eth_type);
        match action {
            Action::SetEthDst(_)
            | Action::SetEthSrc(_)
            | Action::SetVlanVid { .. }
            | Action::SetVlanPcp { .. }
            | Action::PopVlan
            | Action::PushVlan(_)
            | Action::DecTtl(_)
            | Action::PushPbb
            | Action::PopPbb => true,
            Action::SetIpv4Src(_) => eth_type == 0x800,
            Action::SetIpDscp(_) => is_ip,
            Action::SetL4Dst(_) => is_ip && self.at.key.get(Field::IpFrag) & 2 == 0,
            Action::SetField { field: Field::PbbIsid | Field::PbbUca, .. } => eth_type == PBB,
            Action::SetField { field, .. } => *field == Field::EthSrc,
            _ => false,
        }
    }

    /// Executes an action; returns true if the list continues.
    fn action(&mut self, action: &Action) -> bool {
        if self.is_changed_by(action) {
            self.mirrored.clear();
        }
        let in_port = self.at.key.in_port();
        let key = &mut self.at.key;
        let is_ipv4 = key.eth_type() == 0x800;
        let is_ip = is_ipv4 || key.eth_type() == 0x86dd;
        let has_ports = is_ip && [6, 17, 132].contains(&key.ip_proto()) && key.get(Field::IpFrag) & 2 == 0;
        let tagged = key.vlan_tci() & 0x1000 != 0;
        match action {
            Action::Output { port: PortNo::NORMAL, .. } => self.normal(),
            Action::Output { port: PortNo::FLOOD, .. } => {
                (1..5).filter(|n| *n != in_port.0).for_each(|n| self.output(n));
            }
            Action::Output { port: PortNo::IN_PORT, .. } => self.output(in_port.0),
            // The twin's packets have no length.
            Action::Output { port, .. } | Action::OutputTrunc { port, .. } if *port != in_port => self.output(port.0),
            Action::OutputReg { src, .. } => {
                let port = key.get(src.field) as u32;
                if port != in_port.0 {
                    self.output(port);
                }
            }
            Action::SetEthDst(mac) => key.set(Field::EthDst, mac.to_u64().into()),
            Action::SetVlanVid { vid, push_if_needed } => {
                if !tagged && *push_if_needed {
                    self.at.push(0x8100, 0x1000 | vid);
                } else if tagged {
                    key.set(Field::VlanVid, u128::from(*vid) | 0x1000);
                }
            }
            Action::SetVlanPcp { pcp, push_if_needed } => {
                if !tagged && *push_if_needed {
                    self.at.push(0x8100, 0x1000);
                }
                if tagged || *push_if_needed {
                    self.at.key.set(Field::VlanPcp, (*pcp).into());
                }
            }
            Action::PopVlan if tagged => self.at.pop(),
            Action::PushVlan(tpid) => self.at.push(*tpid, 0x1000),
            Action::DecTtl(controllers) if is_ip => {
                let ttl = key.get(Field::IpTtl);
                if ttl <= 1 {
                    controllers
                        .as_deref()
                        .unwrap_or(&[0])
                        .iter()
                        .for_each(|_| self.out.push(self.at.on_the_wire().sent(u32::MAX)));
                    return false;
                }
                key.set(Field::IpTtl, ttl - 1);
            }
            Action::SetIpv4Src(ip) if is_ipv4 => key.set(Field::Ipv4Src, ip.to_bits().into()),
            Action::SetIpDscp(tos) if is_ip => key.set(Field::IpDscp, (tos >> 2).into()),
            Action::SetL4Dst(port) if has_ports => key.set(Field::TcpDst, (*port).into()),
            Action::PushPbb => {
                self.at = self.at.on_the_wire();
                self.at.push_pbb(None);
            }
            Action::PopPbb => {
                self.is_uncovered |= key.eth_type() == PBB;
                self.at.pop_pbb();
            }
            Action::SetField { field: Field::PbbIsid | Field::PbbUca, .. } if key.eth_type() != PBB => {}
            Action::SetField { field, value, mask } => key.set(*field, key.get(*field) & !mask | value),
            Action::RegLoad { dst, value } => key.set(dst.field, *value),
            Action::RegMove { src, dst } => self.at.set_bits(*dst, &self.at.bits(*src)),
            Action::StackPush(src) => self.stack.push(self.at.bits(*src)),
            Action::StackPop(dst) => {
                if let Some(bits) = self.stack.pop() {
                    self.at.set_bits(*dst, &bits);
                }
            }
            Action::SetTunOption(set) => {
                let whole = Subfield { field: set.field(), offset: 0, n_bits: 0 };
                self.at.set_bits(whole, &[]);
                let bits = self.at.options.get_mut(&set.field()).expect("it is there now");
                for (n, old) in bits.iter_mut().enumerate() {
                    if set.mask().is_none_or(|mask| bit(mask, n)) {
                        *old = bit(set.value(), n);
                    }
                }
            }
            Action::DeleteField(field) => _ = self.at.options.remove(field),
            Action::Resubmit { table, .. } => self.table(table.expect("tables are named")),
            Action::ResubmitCt { table, .. } if is_ip && key.get(Field::CtNwProto) != 0 => {
                let saved = key.clone();
                exchange(key, is_ipv4);
                let actions = self.find(table.expect("tables are named"));
                self.at.key = saved;
                self.left = self.left.saturating_sub(1);
                if self.left == 0 {
                    self.exit = true;
                } else if let Some(actions) = actions {
                    self.actions(actions);
                }
            }
            Action::Ct(ct) => self.ct(ct),
            Action::CtClear => forget(key),
            Action::DebugSlow => {}
            Action::Clone(inner) => {
                let saved = (self.at.clone(), self.stack.clone(), self.set.clone());
                self.actions(inner);
                self.action_set();
                (self.at, self.stack, self.set) = saved;
            }
            Action::Group(id) => self.group(*id),
            Action::WriteActions(actions) => self.set.extend(actions.iter().cloned()),
            Action::Exit => self.exit = true,
            _ => {}
        }
        true
    }
}

/// Tags inside of a bridge: protocol, and value without the bit of presence.
type Inside = [(Option<u16>, u16); 2];

/// Returns true if a bundle carries a packet with these tags.
fn carries(bundle: &Bundle, inside: Inside) -> bool {
    let customer = inside[1].1 & 0xfff;
    let is_admitted = match bundle.mode {
        VlanMode::Access => customer == 0,
        VlanMode::Dot1qTunnel { .. } => bundle.admits_customer(customer),
        _ => true,
    };
    is_admitted && bundle.carries(inside[0].1 & 0xfff)
}

/// The clauses that a rule with these actions is: id, which, of how many.
fn clauses(actions: &[Action]) -> impl Iterator<Item = (u32, u8, u8)> + '_ {
    actions.iter().filter_map(|a| match a {
        Action::Conjunction { id, clause, n_clauses } => Some((*id, *clause, *n_clauses)),
        _ => None,
    })
}

/// The port of the `output` action in an action set, if no group takes its place.
fn actset_output(set: &[Action]) -> PortNo {
    let port = set.iter().rev().find_map(|action| match action {
        Action::Output { port, .. } => Some(*port),
        _ => None,
    });
    let group = set.iter().any(|action| matches!(action, Action::Group(_)));
    port.filter(|_| !group).unwrap_or(PortNo::UNSET)
}

fn is_live(groups: &[Group], bucket: &Bucket, depth: u32) -> bool {
    let group = groups.iter().find(|g| g.id == bucket.watch_group);
    !bucket.has_liveness()
        || (1..5).contains(&bucket.watch_port.0)
        || depth < 10 && group.is_some_and(|g| g.buckets.iter().any(|b| is_live(groups, &b.bucket, depth + 1)))
}
