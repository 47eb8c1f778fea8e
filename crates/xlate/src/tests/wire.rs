//! A packet as the naive twin has it, and the execution of datapath actions on it.

use super::*;
use crate::ct::connection_bits;
use std::collections::BTreeMap;

/// A packet: its key, VLAN tags below the two that the key holds, outermost first, and the frames below its
/// service instance tags, the innermost first.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) key: FlowKey,
    pub(super) hidden: Vec<(u16, u16)>,
    pub(super) under: Vec<Under>,
    /// Tunnel options, the least significant bit first. (The options in the key are ignored.)
    pub(super) options: BTreeMap<Field, Vec<bool>>,
    /// The headers as they were received: those of IP and ARP stay if their protocol is 0.
    pub(super) received: FlowKey,
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
pub(super) const PBB: u16 = 0x88e7;

/// The frame below the tag of a received packet, derived from the tag.
pub(super) fn customer(key: &FlowKey) -> Under {
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
    pub(super) fn on_the_wire(&self) -> Self {
        let mut wire = self.clone();
        if [0x800, 0x86dd, 0x806, 0x8035].contains(&self.key.eth_type()) && self.key.ip_proto() == 0 {
            L3_FIELDS.iter().for_each(|field| wire.key.set(*field, self.received.get(*field)));
        }
        wire
    }

    /// Returns true if a flow matches the packet: headers, and the options that it names.
    pub(super) fn is_matched(&self, m: &Match) -> bool {
        let is_option_matched = |wanted: &TunOption| {
            self.options.get(&wanted.field()).is_some_and(|bits| {
                let (value, mask) = (wanted.value(), wanted.mask());
                (0..bits.len()).all(|n| !mask.is_none_or(|mask| bit(mask, n)) || bits[n] == bit(value, n))
            })
        };
        m.matches(&self.key) && m.options().iter().all(is_option_matched)
    }

    /// The bits of a field, the least significant first: zeros if it is absent.
    pub(super) fn bits(&self, part: Subfield) -> Vec<bool> {
        let all: Vec<bool> = match OPTIONS.iter().find(|(field, _)| *field == part.field) {
            Some(_) => self.options.get(&part.field).cloned().unwrap_or_default(),
            None if !self.has(part.field) => Vec::new(),
            None => (0..128).map(|n| self.key.get(part.field) >> n & 1 != 0).collect(),
        };
        (part.offset..part.offset + part.n_bits).map(|n| all.get(usize::from(n)).copied().unwrap_or(false)).collect()
    }

    /// Sets the bits, and adds a missing option.
    pub(super) fn set_bits(&mut self, part: Subfield, bits: &[bool]) {
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
    pub(super) fn has(&self, field: Field) -> bool {
        match field {
            Field::Ipv4Src | Field::Ipv4Dst => self.key.eth_type() == 0x800,
            Field::PbbIsid | Field::PbbUca => self.key.eth_type() == PBB,
            _ => true,
        }
    }

    pub(super) fn push(&mut self, tpid: u16, tci: u16) {
        let ((outer_tpid, outer), inner) = (self.key.vlan(0), self.key.vlan(1));
        if inner.1 & 0x1000 != 0 {
            self.hidden.insert(0, inner);
        }
        self.key.set_vlan(1, outer_tpid, outer);
        self.key.set_vlan(0, tpid, tci | 0x1000);
    }

    /// Pops the outer tag, and keeps those below the second one.
    pub(super) fn pop(&mut self) {
        let (tpid, tci) = self.key.vlan(1);
        self.key.set_vlan(0, tpid, tci);
        self.key.set_vlan(1, 0, 0);
    }

    /// The tags in the key, outermost first. Decisions depend on these alone.
    pub(super) fn tags_in_key(&self) -> Vec<(u16, u16)> {
        (0..2).map(|n| self.key.vlan(n)).filter(|(_, tci)| tci & 0x1000 != 0).collect()
    }

    /// All tags, outermost first.
    pub(super) fn tags(&self) -> Vec<(u16, u16)> {
        [self.tags_in_key(), self.hidden.clone()].concat()
    }

    /// Parses the packet again, as recirculation does: the key has two tags if the packet has them.
    pub(super) fn reparse(&mut self) {
        let (headers, tags) = (self.key.clone(), self.tags());
        self.set_headers(&headers, &tags);
    }

    /// Sets headers and tags, and keeps the metadata.
    pub(super) fn set_headers(&mut self, headers: &FlowKey, tags: &[(u16, u16)]) {
        self.key.0[layout::ETH_DST..].copy_from_slice(&headers.0[layout::ETH_DST..]);
        for n in 0..2 {
            let (tpid, tci) = tags.get(n).copied().unwrap_or_default();
            self.key.set_vlan(n, tpid, tci);
        }
        self.hidden = tags.get(2..).unwrap_or_default().to_vec();
    }

    /// Pushes a service instance tag and addresses; `tag` is the tag's value if the datapath pushes it.
    pub(super) fn push_pbb(&mut self, tag: Option<u32>) {
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
    pub(super) fn pop_pbb(&mut self) {
        if self.key.eth_type() == PBB {
            let (inner, tags, _) = self.under.pop().expect("it has one");
            let tags = [self.tags(), tags].concat();
            self.set_headers(&inner, &tags);
            self.received = inner;
        }
    }

    /// The packet on the wire: all tags in order, and the other headers.
    pub(super) fn sent(&self, port: u32) -> Sent {
        let mut key = packet_part(&self.key);
        key.set_vlan(0, 0, 0);
        key.set_vlan(1, 0, 0);
        let mut under = self.under.clone();
        under.iter_mut().for_each(|(key, ..)| (0..2).for_each(|n| key.set_vlan(n, 0, 0)));
        (port, self.tags(), key, under)
    }
}

/// Bit `n` of a number in big-endian bytes.
pub(super) fn bit(bytes: &[u8], n: usize) -> bool {
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
            DpAction::LbOutput(id) => match net {
                Some(net) => {
                    let views = net.bonds.load();
                    let view = views.values().find(|view| view.lb_output() == Some(id.0)).expect("the bond");
                    let hash = flow::hash::l4(&wire.key, view.hash_basis());
                    out.push(wire.sent(view.member(::bond::bucket_of(hash)).expect("a member").0));
                }
                None => out.push(wire.sent(u32::MAX - 1)),
            },
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
            DpAction::Punt(punt) => out.push(wire.sent(u32::MAX - 2 - punt.protocol.index() as u32)),
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
pub(super) fn track(key: &mut FlowKey, zone: u16, mark: Option<(u32, u32)>, label: Option<(u128, u128)>) {
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

pub(super) fn forget(key: &mut FlowKey) {
    for word in layout::CONJ_CTMARK..layout::ETH_DST {
        key.0[word] &= !connection_bits(word);
    }
}

pub(super) fn packet_part(key: &FlowKey) -> FlowKey {
    let mut key = key.clone();
    key.0[..layout::ETH_DST].fill(0);
    key
}
