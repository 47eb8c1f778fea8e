//! Megaflows over tables with all kinds of fields, conjunctions and groups: every packet in a megaflow's region has the
//! megaflow's verdict, which is that of the linear twin for all options of the classifier.

use super::naive::Naive;
use super::properties::recirculates;
use super::wire::{Sent, Wire, execute};
use super::*;
use ::bond::Part;
use base::rng::Rng;
use classifier::Options;
use flow::Prereq;
use flow::field::{FIELDS, Maskable};
use openflow::group::{Bucket, GROUP_ANY, GroupProperties};
use openflow::meter::METER_CONTROLLER;
use openflow::{BundleAction, GroupKind, HashFields, LinkAlgorithm, MemberAlgorithm, Multipath};
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns true if a packet meets `prereq`.
fn has(key: &FlowKey, prereq: Prereq) -> bool {
    let (eth, proto) = (key.eth_type(), key.ip_proto());
    let is_ip = eth == 0x800 || eth == 0x86dd;
    let l4 = |p: u8| is_ip && proto == p && key.get(Field::IpFrag) & 2 == 0;
    let icmp6 = |types: &[u128]| {
        eth == 0x86dd && l4(58) && types.contains(&key.get(Field::Icmpv6Type)) && key.get(Field::Icmpv6Code) == 0
    };
    match prereq {
        Prereq::None | Prereq::Ethernet => true,
        Prereq::Ct | Prereq::Mpls | Prereq::Nsh => false,
        Prereq::Pbb => eth == 0x88e7,
        Prereq::Arp => eth == 0x806,
        Prereq::VlanVid => key.vlan_tci() & 0x1000 != 0,
        Prereq::Ipv4 => eth == 0x800,
        Prereq::Ipv6 => eth == 0x86dd,
        Prereq::Ip => is_ip,
        Prereq::Tcp => l4(6),
        Prereq::Udp => l4(17),
        Prereq::Sctp => l4(132),
        Prereq::Icmpv4 => eth == 0x800 && l4(1),
        Prereq::Icmpv6 => eth == 0x86dd && l4(58),
        Prereq::Nd => icmp6(&[135, 136]),
        Prereq::NdSolicit => icmp6(&[135]),
        Prereq::NdAdvert => icmp6(&[136]),
    }
}

/// The bits that a packet's headers may set in each field.
pub(super) fn bits_of_headers(key: &FlowKey) -> FlowKey {
    let mut keep = FlowKey::ZERO;
    for f in FIELDS.iter().filter(|f| has(key, f.prereq)) {
        keep.add_mask(f.id, f.full_mask());
    }
    // Tags.
    let (outer, inner) = (key.vlan_tci() & 0x1000 != 0, key.vlan(1).1 & 0x1000 != 0);
    keep.set_vlan(0, if outer { u16::MAX } else { 0 }, if outer { u16::MAX } else { 0 });
    keep.set_vlan(1, if outer && inner { u16::MAX } else { 0 }, if outer && inner { u16::MAX } else { 0 });
    // The protocol shares its place with the operation of ARP.
    if has(key, Prereq::Arp) || has(key, Prereq::Ip) {
        keep.add_mask(Field::IpProto, 0xff);
    }
    keep
}

/// The port for packets with tunnel fields.
const TUNNEL: PortNo = PortNo(4);

/// Returns true if a packet can have this key. (Connection tracking is left out.)
fn is_well_formed(key: &FlowKey) -> bool {
    let mut keep = bits_of_headers(key);
    let tpid_ok = |n| {
        let (tpid, tci) = key.vlan(n);
        tci & 0x1000 == 0 || tpid == 0x8100 || tpid == 0x88a8
    };
    let mut options_of = FlowKey::ZERO;
    for placed in options().iter().filter(|placed| key.0[placed.presence().0] & placed.presence().1 != 0) {
        options_of.0.iter_mut().zip(placed.whole().0).for_each(|(all, bits)| *all |= bits);
    }
    keep.0[..layout::REGS].copy_from_slice(&options_of.0[..layout::REGS]);
    let is_kept = |words: std::ops::Range<usize>| words.into_iter().all(|word| key.0[word] & !keep.0[word] == 0);
    is_kept(layout::ETH_DST..layout::WORDS)
        && is_kept(0..layout::REGS)
        && (key.get(Field::TunDst) != 0) == (key.in_port() == TUNNEL)
        && (key.in_port() == TUNNEL || key.0[..layout::SKB_PKT].iter().all(|word| *word == 0))
        && tpid_ok(0)
        && tpid_ok(1)
        && key.get(Field::IpFrag) != 2
}

pub(super) fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// A field's value: mostly one of few, so that packets match rules.
fn value(rng: &mut Rng, field: Field) -> u128 {
    let info = field.info();
    let seed = match rng.below(10) {
        0 => rng.next_u64(),
        n => n % 3,
    };
    let mut of_value = Rng::seeded(seed << 8 | field as u64 & 0xff);
    (u128::from(of_value.next_u64()) << 64 | u128::from(of_value.next_u64())) & info.full_mask()
}

/// A packet of Ethernet type `eth` (any, if `None`), on port 1 to 4.
pub(super) fn packet(rng: &mut Rng, eth: Option<u16>) -> FlowKey {
    let eth = eth.unwrap_or_else(|| pick(rng, &[0x800, 0x800, 0x86dd, 0x86dd, 0x806, 0x88b5, 0x88e7]));
    let mut key = FlowKey::ZERO;
    key.set(Field::EthType, eth.into());
    for tag in 0..rng.below(4).min(2) as usize {
        let tci = 0x1000 | pick(rng, &[5, 5, 9, 0x2005, 0]);
        key.set_vlan(tag, pick(rng, &[0x8100, 0x88a8]), tci);
    }
    if has(&key, Prereq::Ip) {
        key.set(Field::IpProto, pick(rng, &[6, 6, 17, 132, if eth == 0x800 { 1 } else { 58 }, 47]));
        key.set(Field::IpFrag, pick(rng, &[0, 0, 0, 0, 1, 3]));
    }
    if has(&key, Prereq::Icmpv6) {
        key.set(Field::Icmpv6Type, pick(rng, &[135, 136, 128]));
    }
    for f in FIELDS.iter().filter(|f| f.prereq != Prereq::None) {
        let fixed = [Field::EthType, Field::IpProto, Field::IpFrag, Field::Icmpv6Type];
        let is_tag = f.prereq == Prereq::VlanVid || f.name.contains("vlan");
        if !fixed.contains(&f.id) && !is_tag && has(&key, f.prereq) {
            key.set(f.id, value(rng, f.id));
        }
    }
    for field in [Field::EthSrc, Field::EthDst] {
        key.set(field, 0x0200_0000_0000 | value(rng, field) & 0xff);
    }
    if has(&key, Prereq::Icmpv6) && rng.below(2) == 0 {
        key.set(Field::Icmpv6Code, 0);
    }
    key = key.masked(&{
        let mut keep = bits_of_headers(&key);
        keep.0[..layout::ETH_DST].fill(u64::MAX);
        keep
    });
    key.set_in_port(PortNo(1 + rng.below(4) as u32));
    if key.in_port() == TUNNEL {
        key.set(Field::TunDst, pick(rng, &[0x0a00_0001, 0x0a00_0002]));
        key.set(Field::TunId, rng.below(3).into());
        if rng.below(2) == 0 {
            let (option, table) = (option(rng), options());
            let mut m = Match::ANY;
            m.place_option(&option, table.get(option.field()).expect("it is mapped"));
            (0..layout::REGS).for_each(|word| key.0[word] = m.key().0[word]);
        }
    }
    key
}

/// A match on some fields of some packet, with their prerequisites.
fn random_match(rng: &mut Rng) -> Match {
    let like = packet(rng, None);
    let mut m = Match::ANY;
    let present = |f: &&flow::field::FieldInfo| {
        f.id != Field::ConjId
            // The twin does not model recirculation ids.
            && f.id != Field::RecircId
            && has(&like, f.prereq)
            && !matches!(f.loc, flow::Loc::TunMetadata(_))
            && !f.nxm.is_empty()
    };
    let fields: Vec<_> = FIELDS.iter().filter(present).collect();
    for _ in 0..rng.below(4) {
        let f = fields[rng.below(fields.len() as u64) as usize];
        let full = f.full_mask();
        let mask = match rng.below(3) {
            0 if f.maskable == Maskable::Full => full & !(full >> rng.below(f.n_bits.into())),
            1 if f.maskable == Maskable::Full => full & u128::from(rng.next_u64()),
            _ => full,
        };
        // Prerequisites of a match on this field.
        if f.prereq != Prereq::None && f.prereq != Prereq::Ethernet && f.prereq != Prereq::VlanVid {
            m.set(Field::EthType, like.eth_type().into());
        }
        if !matches!(
            f.prereq,
            Prereq::None
                | Prereq::Ethernet
                | Prereq::VlanVid
                | Prereq::Arp
                | Prereq::Ip
                | Prereq::Ipv4
                | Prereq::Ipv6
                | Prereq::Pbb
        ) {
            m.set(Field::IpProto, like.ip_proto().into());
        }
        if matches!(f.prereq, Prereq::Nd | Prereq::NdSolicit | Prereq::NdAdvert) {
            m.set(Field::Icmpv6Type, like.get(Field::Icmpv6Type));
            m.set(Field::Icmpv6Code, 0);
        }
        let value = match f.id {
            Field::ActsetOutput => pick(rng, &[2, 4, u128::from(PortNo::UNSET.0)]),
            id => like.get(id),
        };
        m.set_masked(f.id, value, mask);
    }
    if rng.below(4) == 0 {
        m.set_option(option(rng));
    }
    if rng.below(4) == 0 {
        let (state, mask) = pick(rng, &STATES);
        m.set_masked(Field::CtState, state, mask);
        match rng.below(4) {
            0 => m.set(Field::CtMark, 1),
            1 => m.set(Field::CtZone, 1),
            2 => m.set_masked(Field::CtNwSrc, value(rng, Field::Ipv4Dst), 0xffff_0000),
            _ => {}
        }
    }
    m
}

/// Matches on `ct_state`.
const STATES: [(u128, u128); 5] = [(0x20, 0x20), (0x22, 0x22), (0x20, 0x28), (0x30, 0x30), (0, 0x20)];

/// Tables 0 to 3 with rules, and groups 1 to 4, as random as the twin supports (`exact`), or with NORMAL,
/// controllers and selections as well.
pub(super) struct World {
    pub(super) rules: Vec<(u8, Match, u16, Vec<Action>)>,
    pub(super) groups: Vec<Group>,
    fragments: FragHandling,
    bundles: Vec<Bundle>,
    /// Makes the bond of ports 1 and 2, if they are one.
    bond: Option<Rng>,
    mirrors: Vec<Option<Mirror>>,
    flood_vlans: Option<Arc<model::VlanSet>>,
}

/// Up to four mirrors between the bundles.
fn mirrors(rng: &mut Rng) -> Vec<Option<Mirror>> {
    let n = if rng.below(2) == 0 { 0 } else { 1 + rng.below(4) };
    (0..n).map(|_| (rng.below(8) != 0).then(|| mirror(rng))).collect()
}

fn mirror(rng: &mut Rng) -> Mirror {
    let name = |n: u64| -> Arc<str> { format!("p{n}").into() };
    let some = |rng: &mut Rng| (1..5).filter(|_| rng.below(2) == 0).map(name).collect();
    let select_vlan = pick(rng, &[None, None, Some(&[0u16, 5][..]), Some(&[9])]);
    let filter = (rng.below(3) == 0).then(|| {
        let filter = random_match(rng);
        let mut mask = filter.mask().clone();
        // Filters have no ports, no tunnel options and nothing of the pipeline.
        mask.0[..layout::REGS].fill(0);
        mask.0[layout::DPHASH_ACTSET] = 0;
        mask.0[layout::PORTS] = 0;
        Box::new(Match::new(filter.key(), mask))
    });
    Mirror {
        select_all: rng.below(3) == 0,
        select_src: some(rng),
        select_dst: some(rng),
        select_vlan: select_vlan.map(|vlans| Arc::new(vlans.iter().copied().collect())),
        filter,
        out: match rng.below(3) {
            0 => MirrorOut::Vlan(pick(rng, &[5, 9, 12])),
            _ => MirrorOut::Port(name(1 + rng.below(5))),
        },
        snaplen: (rng.below(4) == 0).then_some(100),
        counters: Arc::default(),
    }
}

/// The bundle of one port, with any VLAN mode.
pub(super) fn bundle(rng: &mut Rng, port: u32) -> Bundle {
    use model::PriorityTags::{Always, IfNonzero, Never};
    let sets: [Option<&[u16]>; 4] = [None, None, Some(&[0, 5]), Some(&[5, 9])];
    let set = |rng: &mut Rng| pick(rng, &sets).map(|vlans| Arc::new(vlans.iter().copied().collect()));
    let modes = [
        VlanMode::Access,
        VlanMode::Trunk,
        VlanMode::Trunk,
        VlanMode::NativeTagged,
        VlanMode::NativeUntagged,
        VlanMode::Dot1qTunnel { tpid: 0x88a8 },
        VlanMode::Dot1qTunnel { tpid: 0x8100 },
    ];
    Bundle {
        name: format!("p{port}").into(),
        ports: vec![PortNo(port)],
        mode: pick(rng, &modes),
        tag: pick(rng, &[0, 5, 5, 9]),
        trunks: set(rng),
        cvlans: set(rng),
        priority_tags: pick(rng, &[Never, IfNonzero, Always]),
        protected: rng.below(3) == 0,
        floodable: rng.below(8) != 0,
        multicast: Default::default(),
    }
}

const HASH_FIELDS: [HashFields; 7] = [
    HashFields::EthSrc,
    HashFields::SymmetricL4,
    HashFields::SymmetricL3L4,
    HashFields::SymmetricL3L4Udp,
    HashFields::NwSrc,
    HashFields::NwDst,
    HashFields::SymmetricL3,
];

fn actions(rng: &mut Rng, table: u8, exact: bool) -> Vec<Action> {
    let l4 = |rng: &mut Rng| rng.below(9) as u16;
    let one = |rng: &mut Rng| match rng.below(37) {
        26 => Action::SetTunOption(Box::new(option(rng))),
        27 => Action::DeleteField(OPTIONS[rng.below(3) as usize].0),
        28 => {
            let (src, dst) = (part(rng), part(rng));
            let n_bits = src.n_bits.min(dst.n_bits);
            Action::RegMove { src: Subfield { n_bits, ..src }, dst: Subfield { n_bits, ..dst } }
        }
        29 if rng.below(2) == 0 => Action::StackPush(part(rng)),
        29 => Action::StackPop(part(rng)),
        0..6 => output(PortNo(1 + rng.below(5) as u32)),
        6..9 => Action::Resubmit { in_port: None, table: Some(table + 1 + rng.below(2) as u8) },
        9 => Action::SetEthDst(MacAddr([2, 0, 0, 0, 0, rng.below(3) as u8])),
        10 => Action::SetVlanVid { vid: l4(rng), push_if_needed: rng.below(2) == 0 },
        11 => Action::PopVlan,
        12 => Action::PushVlan(0x8100),
        13 => Action::DecTtl(Some(vec![])),
        14 => Action::SetIpv4Src(([10, 0, 0, rng.below(4) as u8]).into()),
        15 => Action::SetIpDscp((rng.below(4) as u8) << 2),
        16 => Action::SetL4Dst(l4(rng)),
        17 => Action::RegLoad { dst: Subfield::whole(Field::Reg1), value: rng.below(3).into() },
        18..20 => Action::Group(1 + rng.below(5) as u32),
        20 => output(pick(rng, &[PortNo::NORMAL, PortNo::NORMAL, PortNo::NORMAL, PortNo::FLOOD, PortNo::CONTROLLER])),
        23 if !exact => Action::Multipath(Box::new(Multipath {
            fields: pick(rng, &HASH_FIELDS),
            basis: 1,
            algorithm: LinkAlgorithm::HighestRandomWeight,
            max_link: 2,
            arg: 0,
            dst: Subfield::whole(Field::Reg1),
        })),
        24 if !exact => Action::Bundle(Box::new(BundleAction {
            fields: pick(rng, &HASH_FIELDS),
            basis: 2,
            algorithm: pick(rng, &[MemberAlgorithm::ActiveBackup, MemberAlgorithm::HighestRandomWeight]),
            members: (0..3).map(|_| PortNo(1 + rng.below(5) as u32)).collect(),
            dst: (rng.below(2) == 0).then(|| Subfield::whole(Field::Reg1)),
        })),
        25 if !exact => Action::CheckPktLarger { len: 100, dst: Subfield { field: Field::Reg1, offset: 1, n_bits: 1 } },
        22 if !exact => Action::Meter(1 + rng.below(3) as u32),
        34 => Action::PushPbb,
        35 => Action::PopPbb,
        36 => Action::SetField { field: Field::PbbIsid, value: rng.below(3).into(), mask: 0xff_ffff },
        30 => ct(0, rng.below(8) as u8),
        31 => ct(table + 1 + rng.below(2) as u8, rng.below(8) as u8),
        32 => pick(rng, &[Action::CtClear, Action::DebugSlow].each_ref()).clone(),
        33 => Action::ResubmitCt { in_port: None, table: Some(table + 1) },
        21 if !exact => Action::Resubmit { in_port: Some(PortNo(2)), table: Some(table + 1) },
        _ => Action::WriteActions(vec![pick(rng, &[output(PortNo(2)), output(PortNo(4))].each_ref()).clone()]),
    };
    let n = 1 + rng.below(4);
    let mut list: Vec<Action> = (0..n).map(|_| one(rng)).collect();
    if rng.below(5) == 0 {
        let inner = (0..2).map(|_| one(rng)).collect();
        list.push(Action::Clone(inner));
    }
    list
}

/// A mapped option's value, maybe with a mask, mostly one of few.
fn option(rng: &mut Rng) -> TunOption {
    let (field, places) = pick(rng, &OPTIONS);
    let mut of_value = Rng::seeded(rng.below(3));
    let value: Vec<u8> = (0..4 * places.len()).map(|_| of_value.next_u64() as u8 & 3).collect();
    let mask: Vec<u8> = value.iter().map(|_| pick(rng, &[0, 0, 1, 3, 0xff])).collect();
    TunOption::new(field, &value, (rng.below(2) == 0).then_some(&mask)).expect("it fits")
}

/// Some bits of an option or of a register.
fn part(rng: &mut Rng) -> Subfield {
    let (field, places) = pick(rng, &[OPTIONS[0], OPTIONS[1], OPTIONS[2], (Field::Reg1, &[0])]);
    let all = 32 * places.len() as u64;
    let offset = rng.below(all);
    let n_bits = if rng.below(2) == 0 { all - offset } else { 1 + rng.below(all - offset) };
    Subfield { field, offset: offset as u16, n_bits: n_bits as u16 }
}

fn group(rng: &mut Rng, id: u32, exact: bool) -> Group {
    let kind = pick(rng, &[GroupKind::All, GroupKind::Select, GroupKind::Indirect, GroupKind::FastFailover]);
    let n = if kind == GroupKind::Indirect { 1 } else { 1 + rng.below(3) };
    let bucket = |rng: &mut Rng, i: u64| {
        let mut bucket = Bucket::new(kind);
        bucket.bucket_id = i as u32;
        bucket.weight = if kind == GroupKind::Select && (i == 0 || !exact) { 1 + rng.below(5) as u16 } else { 0 };
        if kind == GroupKind::FastFailover {
            match rng.below(2) {
                0 => bucket.watch_port = PortNo(1 + rng.below(6) as u32),
                _ => bucket.watch_group = 1 + rng.below(5) as u32,
            }
        }
        let mut list = vec![output(PortNo(1 + rng.below(5) as u32))];
        if rng.below(2) == 0 {
            list.push(Action::SetEthDst(MacAddr([2, 0, 0, 0, 0, rng.below(3) as u8])));
        }
        if rng.below(3) == 0 && id < 4 {
            list.push(Action::Group(id + 1));
        }
        bucket.actions = list.into();
        GroupBucket::new(bucket)
    };
    let mut properties = GroupProperties::default();
    if rng.below(2) == 0 {
        properties.selection_method = "hash".into();
        properties.fields = vec![(Field::Ipv4Src, 0xff), (Field::TcpDst, 0xffff)];
    }
    let mut buckets: Vec<_> = (0..n).map(|i| bucket(rng, i)).collect();
    if exact && kind == GroupKind::Select {
        // An equal bucket: the datapath has to select, but the result is the same.
        buckets.push(GroupBucket { counters: Arc::default(), ..buckets[0].clone() });
    }
    assert!(buckets.iter().all(|b| b.bucket.watch_group == GROUP_ANY || kind == GroupKind::FastFailover));
    Group {
        id,
        kind,
        buckets,
        properties,
        created: Millis(0),
        counters: Arc::default(),
        spread: crate::groups::Spread::default(),
    }
}

impl World {
    pub(super) fn new(rng: &mut Rng, exact: bool) -> Self {
        let mut rules = Vec::new();
        for i in 0..2 + rng.below(14) {
            let table = rng.below(3) as u8;
            // All ordinary rules differ in priority.
            let priority = (rng.below(8) * 100 + i * 2) as u16;
            let mut m = random_match(rng);
            if rng.below(12) == 0 {
                m.set(Field::ConjId, rng.below(3).into());
            }
            rules.push((table, m, priority, actions(rng, table, exact)));
        }
        for _ in 0..rng.below(3) * 4 {
            let (table, priority) = (rng.below(2) as u8, pick(rng, &[151u16, 351, 551]));
            let clause = Action::Conjunction { id: 1 + rng.below(2) as u32, clause: rng.below(2) as u8, n_clauses: 2 };
            let m = random_match(rng);
            if rules.iter().all(|(t, other, p, _)| (*t, other, *p) != (table, &m, priority)) {
                rules.push((table, m, priority, vec![clause]));
            }
        }
        let fragments =
            pick(rng, &[FragHandling::Normal, FragHandling::Normal, FragHandling::NxMatch, FragHandling::Drop]);
        let groups = (1..5).map(|id| group(rng, id, exact)).collect();
        let mut bundles = (1..5).map(|port| bundle(rng, port)).collect();
        let bond = (rng.below(2) == 0).then(|| Rng::seeded(rng.next_u64()));
        if bond.is_some() {
            bonds::join(&mut bundles);
        }
        let flood_vlans = (rng.below(4) == 0).then(|| Arc::new([0, 5].into_iter().collect()));
        Self { rules, groups, fragments, bundles, bond, mirrors: mirrors(rng), flood_vlans }
    }

    pub(super) fn network(&self) -> Network {
        let copy = |g: &Group| Group {
            buckets: g.buckets.clone(),
            properties: g.properties.clone(),
            counters: Arc::default(),
            spread: crate::groups::Spread::default(),
            ..*g
        };
        let peer = [Action::SetEthSrc(PEER_SRC), output(PortNo(1))];
        let mut net = network_with(&self.rules, self.groups.iter().map(copy).collect(), &peer);
        if let Some(bond) = &self.bond {
            net.bonds = Arc::clone(bonds::random(&mut bond.clone()).published());
        }
        let first = net.bridges.get_mut(&0).and_then(Arc::get_mut).expect("nobody else has it");
        first.fragments = self.fragments;
        first.set_bundles(self.bundles.iter().cloned());
        first.flood_vlans.clone_from(&self.flood_vlans);
        first.mirrors = (!self.mirrors.is_empty()).then(|| Arc::new(Mirrors::new(self.mirrors.clone())));
        let mut macs = first.macs.write();
        for (n, vlan) in [0, 5, 9].into_iter().enumerate() {
            (0..3u8).for_each(|mac| {
                _ = macs.learn(
                    vlan,
                    MacAddr([2, 0, 0, 0, 0, mac]),
                    PortNo(1 + (u32::from(mac) + n as u32) % 4),
                    Millis(1),
                );
            });
        }
        drop(macs);
        net
    }

    /// What the naive twin sends; `None` if it cannot say. `passes` is true if the packet is recirculated.
    fn naive(&self, net: &Network, key: &FlowKey, passes: bool) -> Option<Vec<Sent>> {
        let views = net.bonds.load();
        let bridge = &net.bridges[&0];
        let (rules, groups, fragments) = (&self.rules[..], &self.groups[..], self.fragments);
        let at = Wire::new(key);
        let mirrors = &self.mirrors[..];
        let mut naive =
            Naive { rules, groups, fragments, bridge: Some(bridge), bonds: Some(&views), at, mirrors, ..Naive::new() };
        if naive.receive() {
            naive.table(0);
            naive.action_set();
        }
        // When a packet is recirculated, the mirrors of its ingress port have another look.
        let is_known = !(passes && (naive.by_learned || !mirrors.is_empty()));
        (naive.left > 0 && is_known && !naive.by_uncovered).then_some(naive.out)
    }
}

/// Another packet of the region: bits that were not read come from some other packet.
pub(super) fn in_region(rng: &mut Rng, key: &FlowKey, mask: &FlowKey) -> Option<FlowKey> {
    let mut other = packet(rng, Some(key.eth_type()));
    if rng.below(3) == 0 {
        // The same protocol has the same headers.
        other.set(Field::IpProto, key.ip_proto().into());
        other.set(Field::IpFrag, key.get(Field::IpFrag));
    }
    for ((bits, own), read) in other.0.iter_mut().zip(key.0).zip(mask.0) {
        *bits = own & read | *bits & !read;
    }
    other.set_in_port(key.in_port());
    is_well_formed(&other).then_some(other)
}

static CASES: AtomicU64 = AtomicU64::new(0);
static SAMPLES: AtomicU64 = AtomicU64::new(0);
static TWIN: AtomicU64 = AtomicU64::new(0);

fn set_options(net: &Network, bits: u8) {
    net.bridges[&0].tables.iter().take(6).for_each(|t| t.rules.set_options(Options::from_bits(bits)));
}

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases() / 2))]

    #[test]
    fn packets_are_well_formed(seed: u64) {
        let key = packet(&mut Rng::seeded(seed), None);
        prop_assert!(is_well_formed(&key), "{key:?}");
    }

    #[test]
    fn a_region_has_one_verdict_and_it_is_the_linear_twins(seed: u64, exact: bool) {
        let rng = &mut Rng::seeded(seed);
        let world = World::new(rng, exact);
        let net = world.network();
        for _ in 0..4 {
            let key = packet(rng, None);
            let bits = rng.below(32) as u8;
            set_options(&net, bits);
            let verdict = translate(&net, &key, false);
            let mut sampled = vec![key.clone()];
            sampled.extend((0..6).filter_map(|_| in_region(rng, &key, &verdict.mask())));
            for key in &sampled {
                let again = translate(&net, key, false);
                prop_assert_eq!(&again.actions, &verdict.actions, "options {} {:?}", bits, key);
                prop_assert_eq!(&again.reads, &verdict.reads);
                prop_assert_eq!(&again.dependencies.len(), &verdict.dependencies.len());
                SAMPLES.fetch_add(1, Ordering::Relaxed);
                if let Some(want) = exact.then(|| world.naive(&net, key, recirculates(&again.actions))).flatten().filter(|_| verdict.error.is_none()) {
                    let mut got = Vec::new();
                    execute(Some(&net), &again.actions, &mut Wire::new(key), &mut got);
                    prop_assert_eq!(got, want, "options {}", bits);
                    TWIN.fetch_add(1, Ordering::Relaxed);
                }
            }
            prop_assert_eq!(verdict.mask().get(Field::ConjId), 0);
        }
        let n = CASES.fetch_add(1, Ordering::Relaxed) + 1;
        if n == u64::from(cases() / 2) {
            let (samples, twin) = (SAMPLES.load(Ordering::Relaxed), TWIN.load(Ordering::Relaxed));
            tally::report!(
                "{n} tables, {samples} packets of megaflows' regions, {twin} of them against the linear twin"
            );
            prop_assert!(twin > n && samples > 3 * n, "too few");
        }
    }

    #[test]
    fn every_combination_of_options_finds_the_same(seed: u64) {
        let rng = &mut Rng::seeded(seed);
        let net = World::new(rng, false).network();
        let key = packet(rng, None);
        let mut first = None;
        for bits in 0..32 {
            set_options(&net, bits);
            let verdict = translate(&net, &key, false);
            // Fields that are written without being read are set for any packet: the test compares the packets sent.
            let mut sent = Vec::new();
            execute(Some(&net), &verdict.actions, &mut Wire::new(&key), &mut sent);
            let outcome = (sent, verdict.error, verdict.dependencies);
            let first = first.get_or_insert_with(|| outcome.clone());
            prop_assert!(*first == outcome, "options {bits}");
        }
    }

    #[test]
    fn changes_without_a_dependency_do_not_matter(seed: u64) {
        let rng = &mut Rng::seeded(seed);
        let world = World::new(rng, false);
        let mut net = world.network();
        let mut bond = world.bond.is_some().then(|| bonds::random(rng));
        if let Some(bond) = &bond {
            net.bonds = Arc::clone(bond.published());
        }
        overlay::enable(rng, &net);
        overlay::decide(rng, &net, |_| true);
        let key = packet(rng, None);
        let before = translate(&net, &key, false);
        let bridge = &net.bridges[&0];
        overlay::decide(rng, &net, |port| !before.dependencies.contains(&Dependency::PortState(port)));
        if let Some(bond) = &mut bond {
            let is_named = |part: &Part| before.dependencies.contains(&Dependency::Bond("p1".into(), *part));
            if !bonds::change(bond, rng).iter().any(is_named) {
                bond.publish();
            }
        }
        // Changes rules that no dependency names, groups that are not named, and addresses that are not.
        for i in 0..6u64 {
            let (table, priority) = (rng.below(4) as u8, (rng.below(9) * 100 + 1 + i * 2) as u16);
            let m = random_match(rng);
            let list = actions(rng, table, false);
            if !before.dependencies.iter().any(|d| is_named(&before, d, &key, (table, priority, &placed(&m)))) {
                add_rule(&bridge.tables, table, &m, priority, &list);
            }
        }
        let mut groups = Groups::default();
        for id in 1..6 {
            let named = before.dependencies.contains(&Dependency::Group { bridge: 0, group: id });
            let old = bridge.tables.view().groups.get(id).cloned();
            let new = if named { old } else { Some(Arc::new(group(rng, id, false))) };
            new.into_iter().for_each(|group| groups.insert(id, group));
        }
        let mut meters = Meters::default();
        for id in (1..4).chain([METER_CONTROLLER]) {
            let named = before.dependencies.contains(&Dependency::Meter { bridge: 0, meter: id });
            let there = if named { bridge.tables.view().meters.get(id).is_some() } else { rng.below(2) == 0 };
            if there {
                meters.insert(id, Arc::new(meter(id)));
            }
        }
        bridge.tables.publish(View { version: 2, groups: Arc::new(groups), meters: Arc::new(meters) });
        for n in 0..8u8 {
            let mac = MacAddr([2, 0, 0, 0, 0, n]);
            for vlan in [0, 5] {
                if !before.dependencies.contains(&Dependency::Mac { bridge: 0, vlan, mac }) {
                    bridge.macs.write().learn(vlan, mac, PortNo(1 + u32::from(n % 4)), Millis(9));
                }
            }
        }
        let after = translate(&net, &key, false);
        // A rule that cannot be found may be read so far that a value to be written is known to be there already: the test
        // compares the packets sent.
        let outcome = |verdict: &crate::Verdict| {
            let mut sent = Vec::new();
            execute(None, &verdict.actions, &mut Wire::new(&key), &mut sent);
            (sent, verdict.error)
        };
        prop_assert_eq!(outcome(&after), outcome(&before));
    }
}

/// Returns true if a dependency of `verdict` says that its look-up may find this rule.
fn is_named(verdict: &Verdict, d: &Dependency, key: &FlowKey, (table, priority, m): (u8, u16, &Match)) -> bool {
    let lookup = match d {
        Dependency::Lookup(lookup) => lookup,
        Dependency::Table { bridge, table: all } => return (*bridge, *all) == (0, table),
        _ => return false,
    };
    if (lookup.bridge, lookup.table) != (0, table) || lookup.found.is_some_and(|found| found > priority.into()) {
        return false;
    }
    let (mut known, mut values) = (verdict.mask(), key.clone());
    for (word, bits, value) in lookup.written.of(&verdict.written) {
        let word = usize::from(*word);
        known.0[word] |= bits;
        values.0[word] = values.0[word] & !bits | value;
    }
    let common = known.masked(m.mask());
    m.key().eq_masked(&values, &common)
}
