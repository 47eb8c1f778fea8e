//! A naive twin of `translate`: it tries the rules of a table one after the other, and executes each action at once on the
//! packet itself.

use super::*;
use crate::ct::{connection_bits, exchange};
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

/// A packet: its key, VLAN tags below the two that the key holds, outermost first, and the frames below its
/// service instance tags, the innermost first.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) key: FlowKey,
    hidden: Vec<(u16, u16)>,
    under: Vec<Under>,
    /// Tunnel options, the least significant bit first. (The options in the key are ignored.)
    options: BTreeMap<Field, Vec<bool>>,
    /// The headers as they were received: those of IP and ARP stay if their protocol is 0.
    received: FlowKey,
}

/// The fields of these headers.
const L3_FIELDS: [Field; 13] = [
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::Ipv6Label,
    Field::IpDscp,
    Field::IpEcn,
    Field::IpTtl,
    Field::ArpSpa,
    Field::ArpTpa,
    Field::ArpSha,
    Field::ArpTha,
    Field::IpProto,
];

/// A frame below a service instance tag: its headers, its tags, and the tag's priority.
pub(super) type Under = (FlowKey, Vec<(u16, u16)>, u16);

/// The Ethernet type of such a tag.
const PBB: u16 = 0x88e7;

/// The frame below the tag of a received packet, derived from the tag.
fn customer(key: &FlowKey) -> Under {
    let isid = key.get(Field::PbbIsid);
    let mut inner = FlowKey::ZERO;
    inner.set(Field::EthDst, 0x0200_0000_0002);
    inner.set(Field::EthSrc, 0x0200_0000_0003);
    inner.set(Field::EthType, if isid & 1 == 0 { 0x800 } else { 0x86dd });
    inner.set(Field::Ipv4Src, if isid & 1 == 0 { 0x0a00_0001 } else { 0 });
    inner.set(Field::IpTtl, 33);
    let tags: &[(u16, u16)] = if key.get(Field::PbbUca) == 0 { &[] } else { &[(0x8100, 0x3005), (0x8100, 0x1006)] };
    (inner, tags.to_vec(), 0)
}

impl Wire {
    pub(super) fn new(key: &FlowKey) -> Self {
        let (mut options, table) = (BTreeMap::new(), super::options());
        for (field, _) in OPTIONS {
            let placed = table.get(field).expect("it is mapped");
            let (word, bit) = placed.presence();
            if key.0[word] & bit != 0 {
                options.insert(field, (0..placed.n_bits()).map(|n| placed.get(key, n, 1) != 0).collect());
            }
        }
        let under = if key.eth_type() == PBB { vec![customer(key)] } else { Vec::new() };
        Self { key: key.clone(), hidden: Vec::new(), under, options, received: key.clone() }
    }

    /// The packet as it is on the wire. Changes of IP and ARP headers whose protocol is 0 are seen by look-ups only.
    fn on_the_wire(&self) -> Self {
        let mut wire = self.clone();
        if [0x800, 0x86dd, 0x806, 0x8035].contains(&self.key.eth_type()) && self.key.ip_proto() == 0 {
            L3_FIELDS.iter().for_each(|field| wire.key.set(*field, self.received.get(*field)));
        }
        wire
    }

    /// Returns true if a flow matches the packet: headers, and the options that it names.
    fn is_matched(&self, m: &Match) -> bool {
        let is_option_matched = |wanted: &TunOption| {
            self.options.get(&wanted.field()).is_some_and(|bits| {
                let (value, mask) = (wanted.value(), wanted.mask());
                (0..bits.len()).all(|n| !mask.is_none_or(|mask| bit(mask, n)) || bits[n] == bit(value, n))
            })
        };
        m.matches(&self.key) && m.options().iter().all(is_option_matched)
    }

    /// The bits of a field, the least significant first: zeros if it is absent.
    fn bits(&self, part: Subfield) -> Vec<bool> {
        let all: Vec<bool> = match OPTIONS.iter().find(|(field, _)| *field == part.field) {
            Some(_) => self.options.get(&part.field).cloned().unwrap_or_default(),
            None if !self.has(part.field) => Vec::new(),
            None => (0..128).map(|n| self.key.get(part.field) >> n & 1 != 0).collect(),
        };
        (part.offset..part.offset + part.n_bits).map(|n| all.get(usize::from(n)).copied().unwrap_or(false)).collect()
    }

    /// Sets the bits, and adds a missing option.
    fn set_bits(&mut self, part: Subfield, bits: &[bool]) {
        let value = |n: u16| bits.get(usize::from(n)).copied().unwrap_or(false);
        if let Some((field, places)) = OPTIONS.iter().find(|(field, _)| *field == part.field) {
            let option = self.options.entry(*field).or_insert_with(|| vec![false; 32 * places.len()]);
            (0..part.n_bits).for_each(|n| option[usize::from(part.offset + n)] = value(n));
        } else if self.has(part.field) {
            let set = (0..part.n_bits).fold(0, |set, n| set | u128::from(value(n)) << (part.offset + n));
            self.key.set(part.field, self.key.get(part.field) & !part.mask() | set);
        }
    }

    /// Returns true if the packet has a field, of those that these tests move.
    fn has(&self, field: Field) -> bool {
        match field {
            Field::Ipv4Src | Field::Ipv4Dst => self.key.eth_type() == 0x800,
            Field::PbbIsid | Field::PbbUca => self.key.eth_type() == PBB,
            _ => true,
        }
    }

    fn push(&mut self, tpid: u16, tci: u16) {
        let ((outer_tpid, outer), inner) = (self.key.vlan(0), self.key.vlan(1));
        if inner.1 & 0x1000 != 0 {
            self.hidden.insert(0, inner);
        }
        self.key.set_vlan(1, outer_tpid, outer);
        self.key.set_vlan(0, tpid, tci | 0x1000);
    }

    /// Pops the outer tag, and keeps those below the second one.
    fn pop(&mut self) {
        let (tpid, tci) = self.key.vlan(1);
        self.key.set_vlan(0, tpid, tci);
        self.key.set_vlan(1, 0, 0);
    }

    /// The tags in the key, outermost first. Decisions depend on these alone.
    fn tags_in_key(&self) -> Vec<(u16, u16)> {
        (0..2).map(|n| self.key.vlan(n)).filter(|(_, tci)| tci & 0x1000 != 0).collect()
    }

    /// All tags, outermost first.
    fn tags(&self) -> Vec<(u16, u16)> {
        [self.tags_in_key(), self.hidden.clone()].concat()
    }

    /// Parses the packet again, as recirculation does: the key has two tags if the packet has them.
    fn reparse(&mut self) {
        let (headers, tags) = (self.key.clone(), self.tags());
        self.set_headers(&headers, &tags);
    }

    /// Sets headers and tags, and keeps the metadata.
    fn set_headers(&mut self, headers: &FlowKey, tags: &[(u16, u16)]) {
        self.key.0[layout::ETH_DST..].copy_from_slice(&headers.0[layout::ETH_DST..]);
        for n in 0..2 {
            let (tpid, tci) = tags.get(n).copied().unwrap_or_default();
            self.key.set_vlan(n, tpid, tci);
        }
        self.hidden = tags.get(2..).unwrap_or_default().to_vec();
    }

    /// Pushes a service instance tag and addresses; `tag` is the tag's value if the datapath pushes it.
    fn push_pbb(&mut self, tag: Option<u32>) {
        let (tags, known) = (self.tags(), self.tags_in_key());
        let old = packet_part(&self.key);
        let isid = if old.eth_type() == PBB { (old.get(Field::PbbIsid), old.get(Field::PbbUca)) } else { (0, 0) };
        let pcp = known.first().map_or(0, |(_, tci)| tci >> 13);
        let tag = tag.unwrap_or(u32::from(pcp) << 29 | (isid.1 as u32) << 27 | isid.0 as u32);
        let mut new = FlowKey::ZERO;
        new.set(Field::EthDst, old.get(Field::EthDst));
        new.set(Field::EthSrc, old.get(Field::EthSrc));
        new.set(Field::EthType, PBB.into());
        new.set(Field::PbbIsid, (tag & 0xff_ffff).into());
        new.set(Field::PbbUca, (tag >> 27 & 1).into());
        self.under.push((old, tags, (tag >> 29) as u16));
        self.set_headers(&new, &[]);
    }

    /// Restores the frame below the tag, with the VLAN tags in front of it.
    fn pop_pbb(&mut self) {
        if self.key.eth_type() == PBB {
            let (inner, tags, _) = self.under.pop().expect("it has one");
            let tags = [self.tags(), tags].concat();
            self.set_headers(&inner, &tags);
            self.received = inner;
        }
    }

    /// The packet on the wire: all tags in order, and the other headers.
    fn sent(&self, port: u32) -> Sent {
        let mut key = packet_part(&self.key);
        key.set_vlan(0, 0, 0);
        key.set_vlan(1, 0, 0);
        let mut under = self.under.clone();
        under.iter_mut().for_each(|(key, ..)| (0..2).for_each(|n| key.set_vlan(n, 0, 0)));
        (port, self.tags(), key, under)
    }
}

/// Bit `n` of a number in big-endian bytes.
fn bit(bytes: &[u8], n: usize) -> bool {
    bytes.len().checked_sub(n / 8 + 1).is_some_and(|at| bytes[at] >> (n % 8) & 1 != 0)
}

/// Port, tags, other headers, and the frames below them.
pub(super) type Sent = (u32, Vec<(u16, u16)>, FlowKey, Vec<Under>);

/// Executes datapath actions on a packet. A recirculated packet is looked up in `net`; without `net` it counts as
/// sent.
pub(super) fn execute(net: Option<&Network>, actions: &[DpAction], wire: &mut Wire, out: &mut Vec<Sent>) {
    for action in actions {
        match action {
            DpAction::Output(port) => out.push(wire.sent(port.0)),
            DpAction::Set { field, value, mask } => {
                wire.key.set(*field, wire.key.get(*field) & !mask | value & mask);
            }
            DpAction::PushVlan { tpid, tci } => wire.push(*tpid, *tci),
            DpAction::PopVlan => {
                wire.pop();
                // The datapath sees the whole packet.
                if !wire.hidden.is_empty() {
                    let n = if wire.key.vlan(0).1 & 0x1000 == 0 { 0 } else { 1 };
                    let (tpid, tci) = wire.hidden.remove(0);
                    wire.key.set_vlan(n, tpid, tci);
                }
            }
            DpAction::PushPbb { tci } => wire.push_pbb(Some(*tci)),
            DpAction::PopPbb => wire.pop_pbb(),
            DpAction::Controller(_) => out.push(wire.sent(u32::MAX)),
            DpAction::Punt(protocol) => out.push(wire.sent(u32::MAX - 2 - protocol.index() as u32)),
            DpAction::Clone(inner) | DpAction::Sample { actions: inner, probability: u32::MAX } => {
                execute(net, inner, &mut wire.clone(), out);
            }
            // Packets of both lengths are possible.
            DpAction::CheckPktLen { greater, lesser, .. } => {
                [greater, lesser].iter().for_each(|list| execute(net, list, &mut wire.clone(), out));
            }
            DpAction::Hash(kind, basis) => {
                let hash = if *kind == HashKind::L4 { flow::hash::l4 } else { flow::hash::symmetric_l4 };
                wire.key.set(Field::DpHash, hash(&wire.key, *basis).into());
            }
            DpAction::Recirc(id) => match net {
                Some(net) => {
                    let mut again = Wire { key: packet_part(&wire.key), ..wire.clone() };
                    // The metadata of tunnels and of the tracker stays with the packet.
                    for words in [0..layout::REGS, layout::TUN_ID..layout::SKB_PKT] {
                        again.key.0[words.clone()].copy_from_slice(&wire.key.0[words]);
                    }
                    for word in layout::CONJ_CTMARK..layout::ETH_DST {
                        again.key.0[word] = wire.key.0[word] & connection_bits(word);
                    }
                    again.key.set_in_port(wire.key.in_port());
                    again.key.set(Field::DpHash, wire.key.get(Field::DpHash));
                    again.key.set(Field::RecircId, (*id).into());
                    let verdict = translate(net, &again.key, false);
                    execute(Some(net), &verdict.actions, &mut again, out);
                }
                None => out.push(wire.sent(u32::MAX - 1)),
            },
            DpAction::Ct(ct) => track(&mut wire.key, ct.zone, ct.mark, ct.label),
            DpAction::CtClear => forget(&mut wire.key),
            // Reports to collectors do not change the packet.
            DpAction::Observe(_) => {}
            DpAction::Sample { actions: inner, .. } if matches!(inner[..], [DpAction::Observe(_)]) => {}
            // (Meters let everything pass in these tests.)
            DpAction::Trunc(_) | DpAction::Drop(_) | DpAction::Meter(_) => {}
            other => panic!("no rule of these tests asks for {other:?}"),
        }
    }
}

/// A model of connections: each packet has a connection of its own, which began in the other direction.
fn track(key: &mut FlowKey, zone: u16, mark: Option<(u32, u32)>, label: Option<(u128, u128)>) {
    forget(key);
    let is_ip = [0x800, 0x86dd].contains(&key.eth_type());
    let state = match () {
        () if !is_ip => 0x30,
        () if key.get(Field::Ipv4Src) & 1 == 0 => 0x22,
        () => 0x2a,
    };
    key.set(Field::CtState, state);
    key.set(Field::CtZone, zone.into());
    key.set(Field::CtMark, mark.map_or(0, |(value, mask)| (value & mask).into()));
    key.set(Field::CtLabel, label.map_or(0, |(value, mask)| value & mask));
    if is_ip {
        for (to, from) in [
            (Field::CtNwProto, Field::IpProto),
            (Field::CtNwSrc, Field::Ipv4Dst),
            (Field::CtNwDst, Field::Ipv4Src),
            (Field::CtIpv6Src, Field::Ipv6Dst),
            (Field::CtIpv6Dst, Field::Ipv6Src),
            (Field::CtTpSrc, Field::TcpDst),
            (Field::CtTpDst, Field::TcpSrc),
        ] {
            key.set(to, key.get(from));
        }
    }
}

fn forget(key: &mut FlowKey) {
    for word in layout::CONJ_CTMARK..layout::ETH_DST {
        key.0[word] &= !connection_bits(word);
    }
}

fn packet_part(key: &FlowKey) -> FlowKey {
    let mut key = key.clone();
    key.0[..layout::ETH_DST].fill(0);
    key
}

/// Looks up tables rule by rule, and executes actions at once, without masks.
pub(super) struct Naive<'a> {
    pub(super) rules: &'a [(u8, Match, u16, Vec<Action>)],
    pub(super) groups: &'a [Group],
    pub(super) fragments: FragHandling,
    /// The bridge whose bundles and learned addresses are used.
    pub(super) bridge: Option<&'a Bridge>,
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
}

impl<'a> Naive<'a> {
    pub(super) fn new() -> Self {
        Self {
            rules: &[],
            groups: &[],
            fragments: FragHandling::Normal,
            bridge: None,
            at: Wire::new(&FlowKey::ZERO),
            stack: vec![],
            set: vec![],
            out: vec![],
            exit: false,
            left: 1000,
            learned: BTreeMap::new(),
            by_learned: false,
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
        let Self { rules, groups, fragments, bridge, .. } = *self;
        let mut copy = Naive { rules, groups, fragments, bridge, at: self.at.on_the_wire(), ..Naive::new() };
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
            1 | 2 | 4 => self.out.push(self.at.on_the_wire().sent(port)),
            3 => {
                let mut there = self.at.on_the_wire();
                there.key.set(Field::EthSrc, PEER_SRC.to_u64().into());
                self.out.push(there.sent(11));
            }
            _ => {}
        }
    }

    /// Forwards between bundles, by the tags in the key. Tags below them stay in the packet.
    fn normal(&mut self) {
        let Some(bridge) = self.bridge else { return };
        let in_port = self.at.key.in_port().0;
        let Some(from) = self.bundle_of(in_port) else { return };
        if self.at.tags_in_key().is_empty() && [0x8100, 0x88a8].contains(&self.at.key.eth_type()) {
            return;
        }
        let mut tags = self.at.tags();
        let tag = |vid: u16, tci: u16| vid | tci & 0xe000 | 0x1000;
        let known = self.at.tags_in_key();
        let first = known.first().copied();
        let (tpid, tci) = first.unwrap_or((0x8100, 0));
        let mut vlan = tci & 0xfff;
        let native = matches!(from.mode, VlanMode::NativeTagged | VlanMode::NativeUntagged);
        if from.mode == VlanMode::Access && vlan != 0 {
            return;
        }
        if from.mode == VlanMode::Access || native && vlan == 0 {
            vlan = from.tag;
        }
        if !from.carries(vlan) {
            return;
        }
        // An access port admits no inner tag in its own VLAN.
        let n_removed = if from.mode == VlanMode::Access { known.len() } else { known.len().min(1) };
        tags.drain(..n_removed);
        let second = known.get(1).copied().filter(|_| from.mode != VlanMode::Access);
        let inside = second.is_some_and(|(_, tci)| tci & 0xfff != 0);
        let mac = |field| MacAddr::from_u64(self.at.key.get(field) as u64);
        let dst = mac(Field::EthDst);
        if dst.is_reserved() {
            return;
        }
        let src = mac(Field::EthSrc);
        if !src.is_multicast() {
            self.learned.insert((vlan, src.to_u64()), PortNo(in_port));
        }
        let learned = self.learned.get(&(vlan, dst.to_u64())).copied();
        self.by_learned |= learned.is_some();
        let known = learned.or_else(|| bridge.macs.read().lookup(vlan, dst)).filter(|_| !dst.is_multicast());
        let to: Vec<&Bundle> = match known {
            Some(port) => bridge.bundles.values().map(Arc::as_ref).filter(|b| b.ports.contains(&port)).collect(),
            None => bridge.bundles.values().map(Arc::as_ref).filter(|b| b.floodable).collect(),
        };
        let before = self.at.clone();
        for bundle in to {
            let access = bundle.mode == VlanMode::Access;
            if bundle.name == from.name || !bundle.carries(vlan) || access && inside {
                continue;
            }
            let strips = access || bundle.mode == VlanMode::NativeUntagged && vlan == bundle.tag;
            let mut out = tags.clone();
            match bundle.priority_tags {
                model::PriorityTags::Never if strips => {}
                _ if strips && tci & 0xe000 == 0 => {}
                _ if strips => out.insert(0, (tpid, tag(0, tci))),
                _ if vlan != 0 || tci & 0xe000 != 0 => out.insert(0, (tpid, tag(vlan, tci))),
                model::PriorityTags::Always if first.is_some() => out.insert(0, (tpid, tag(0, tci))),
                // Both tags are popped.
                _ if second.is_some() => _ = out.remove(0),
                _ => {}
            }
            let headers = self.at.key.clone();
            self.at.set_headers(&headers, &out);
            self.output(bundle.ports[0].0);
            self.at = before.clone();
        }
    }

    fn actions(&mut self, actions: &[Action]) {
        for action in actions {
            if self.exit || !self.action(action) {
                return;
            }
        }
    }

    /// Executes an action; returns true if the list continues.
    fn action(&mut self, action: &Action) -> bool {
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
                    controllers.iter().for_each(|_| self.out.push(self.at.on_the_wire().sent(u32::MAX)));
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
            Action::PopPbb => self.at.pop_pbb(),
            Action::SetField { field: Field::PbbIsid | Field::PbbUca, .. } if key.eth_type() != PBB => {}
            Action::SetField { field, value, mask } => key.set(*field, key.get(*field) & !mask | value),
            Action::RegLoad { dst, value } => key.set(dst.field, (*value).into()),
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
