//! NORMAL with multicast snooping: against the naive twin, the regions of megaflows, and the dependencies of verdicts.

use super::naive::Naive;
use super::regions::{bits_of_headers, bundle, packet, pick};
use super::wire::{Wire, execute};
use super::*;
use crate::Snooping;
use base::rng::Rng;
use flow::extract::{ethertype, ipproto};
use snooping::{Flooding, Membership, Message, Record, Source, Version};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const VLANS: [u16; 3] = [0, 5, 9];

/// Addresses of groups: ordinary ones, and those of all hosts.
const GROUPS_V4: [u32; 4] = [0xe100_0001, 0xe100_0002, 0xe000_0005, 0xef01_0101];
const GROUPS_V6: [u128; 3] = [0xff05 << 112 | 1, 0xff02 << 112 | 1, 0xff02 << 112 | 0xfb];

fn group(rng: &mut Rng) -> IpAddr {
    if rng.below(2) == 0 {
        Ipv4Addr::from(pick(rng, &GROUPS_V4)).into()
    } else {
        Ipv6Addr::from(pick(rng, &GROUPS_V6)).into()
    }
}

/// Has the table learn something about one group, or about routers.
fn learn(rng: &mut Rng, net: &Network, may_change: impl Fn(&Dependency) -> bool) {
    let bridge = &net.bridges[&0];
    let (vlan, group) = (pick(rng, &VLANS), group(rng));
    let name = format!("p{}", 1 + rng.below(4));
    let membership = if rng.below(4) == 0 { Membership::Leave } else { Membership::Join };
    let (message, concerns) = if rng.below(4) == 0 {
        let source = IpAddr::from([10, 0, 0, 1]);
        (Message::Query { source }, Dependency::MulticastRouters { bridge: 0, vlan })
    } else {
        let records = vec![Record { group, membership }];
        let concerns = Dependency::MulticastGroup { bridge: 0, vlan, group };
        (Message::Report { version: Version::Igmp3, records }, concerns)
    };
    let source = Source { vlan, bundle: name.into(), flooding: Flooding::default() };
    if may_change(&concerns) {
        bridge.snooping.as_ref().expect("it is on").table.write().learn(&message, &source, Millis(1));
    }
}

/// A network in which bridge 0 has snooping, any bundles, and NORMAL for all packets.
fn world(rng: &mut Rng) -> (Network, Rules) {
    let rules = vec![(0, Match::ANY, 0, vec![output(PortNo::NORMAL)])];
    let peer = [Action::SetEthSrc(PEER_SRC), output(PortNo(1))];
    let mut net = network_with(&rules, Vec::new(), &peer);
    let first = net.bridges.get_mut(&0).and_then(Arc::get_mut).expect("nobody else has it");
    let flag = |rng: &mut Rng| rng.below(4) == 0;
    let bundles: Vec<Bundle> = (1..5)
        .map(|port| {
            let multicast = Flooding { traffic: flag(rng), reports: flag(rng) };
            Bundle { multicast, ..bundle(rng, port) }
        })
        .collect();
    first.set_bundles(bundles);
    first.snooping = Some(Snooping { table: Arc::default(), flood_unregistered: rng.below(2) == 0 });
    for _ in 0..rng.below(12) {
        learn(rng, &net, |_| true);
    }
    (net, rules)
}

type Rules = Vec<(u8, Match, u16, Vec<Action>)>;

/// A packet, mostly to a multicast address and of IP.
fn multicast_packet(rng: &mut Rng, eth: Option<u16>) -> FlowKey {
    let eth = eth.unwrap_or_else(|| pick(rng, &[0x800, 0x800, 0x800, 0x86dd, 0x86dd, 0x806]));
    let mut key = packet(rng, Some(eth));
    let mac = pick(rng, &[0x0100_5e00_0001, 0x3333_0000_0001, 0xffff_ffff_ffff, 0x0200_0000_0001, 0x0180_c200_0000]);
    let mac = if rng.below(3) == 0 { mac } else { 0x0100_5e00_0001 };
    key.set(Field::EthDst, mac);
    match eth {
        ethertype::IPV4 => {
            key.set(Field::Ipv4Dst, pick(rng, &GROUPS_V4).into());
            if rng.below(2) == 0 {
                key.set(Field::IpProto, ipproto::IGMP.into());
                key = key.masked(&kept(&key));
                key.0[layout::TP] = u64::from(pick(rng, &[0u8, 0x11, 0x12, 0x16, 0x17, 0x22, 0x30])) << 48;
                key = key.masked(&kept(&key));
            }
        }
        ethertype::IPV6 => {
            key.set(Field::Ipv6Dst, pick(rng, &GROUPS_V6));
            if rng.below(2) == 0 {
                key.set(Field::IpProto, 58);
                key = key.masked(&kept(&key));
                if key.get(Field::IpFrag) & 2 == 0 {
                    key.set(Field::Icmpv6Type, pick(rng, &[128, 130, 131, 132, 143]));
                }
            }
        }
        _ => {}
    }
    key.masked(&kept(&key))
}

/// The bits that a packet with these headers can have.
fn kept(key: &FlowKey) -> FlowKey {
    let mut keep = bits_of_headers(key);
    keep.0[..layout::ETH_DST].fill(u64::MAX);
    if key.eth_type() == ethertype::IPV4 && key.ip_proto() == ipproto::IGMP && key.get(Field::IpFrag) & 2 == 0 {
        keep.0[layout::TP] |= 0xff << 48;
    }
    keep
}

/// The bundles to which NORMAL forwards a multicast frame, by the rows of the table; `None` if it floods.
pub(super) fn receivers<'a>(bridge: &'a Bridge, key: &FlowKey, vlan: u16) -> Option<Vec<&'a Bundle>> {
    let snooping = bridge.snooping.as_ref()?;
    let dst = MacAddr::from_u64(key.get(Field::EthDst) as u64);
    if !dst.is_multicast() || dst == MacAddr::BROADCAST {
        return None;
    }
    let is_whole = key.get(Field::IpFrag) & 2 == 0;
    let address: IpAddr = match key.eth_type() {
        ethertype::IPV4 => Ipv4Addr::from(key.get(Field::Ipv4Dst) as u32).into(),
        ethertype::IPV6 => Ipv6Addr::from(key.get(Field::Ipv6Dst)).into(),
        _ => return None,
    };
    let l4_type = (key.0[layout::TP] >> 48) as u8;
    let (is_igmp, is_icmp6) = match address {
        IpAddr::V4(_) => (key.ip_proto() == 2, false),
        IpAddr::V6(_) => (false, key.ip_proto() == 58 && is_whole),
    };
    let is_report =
        is_igmp && [0x12, 0x16, 0x17, 0x22].contains(&l4_type) || is_icmp6 && [131, 132, 143].contains(&l4_type);
    let table = snooping.table.read();
    let rows = snooping::show::rows(&table, Millis(1), |bundle| Some(bundle.to_owned()));
    let of = |group: Option<IpAddr>| {
        let rows = rows.iter().filter(move |row| row.vlan == vlan && row.group.map(|(group, _)| group) == group);
        rows.filter_map(|row| bridge.bundles.get(row.port.as_str()).map(Arc::as_ref))
    };
    let flagged =
        |has: fn(&Flooding) -> bool| bridge.bundles.values().map(Arc::as_ref).filter(move |b| has(&b.multicast));
    let (routers, members) = (of(None), of(Some(address)));
    let is_for_all = match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => u128::from(v6) == 0xff02 << 112 | 1,
    };
    let is_registered = of(Some(address)).next().is_some();
    let mut all: Vec<&Bundle> = if is_report {
        routers.chain(flagged(|f| f.reports)).collect()
    } else if is_igmp || is_icmp6 && l4_type == 130 || is_for_all {
        return None;
    } else if is_registered {
        members.chain(flagged(|f| f.traffic)).chain(routers).collect()
    } else if snooping.flood_unregistered {
        return None;
    } else {
        routers.chain(flagged(|f| f.traffic)).collect()
    };
    // A bundle gets a frame once.
    let mut names = std::collections::BTreeSet::new();
    all.retain(|bundle| names.insert(Arc::clone(&bundle.name)));
    Some(all)
}

fn sent(net: &Network, verdict: &Verdict, key: &FlowKey) -> Vec<super::wire::Sent> {
    let mut sent = Vec::new();
    execute(Some(net), &verdict.actions, &mut Wire::new(key), &mut sent);
    sent
}

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases() / 8))]

    #[test]
    fn regions_have_one_verdict_and_it_is_the_twins(seed: u64) {
        let rng = &mut Rng::seeded(seed);
        let (net, rules) = world(rng);
        for _ in 0..4 {
            let key = multicast_packet(rng, None);
            let verdict = translate(&net, &key, false);
            // No packet is received on the patch port.
            if verdict.error.is_some() {
                continue;
            }
            let mut naive = Naive { rules: &rules, bridge: Some(&net.bridges[&0]), at: Wire::new(&key), ..Naive::new() };
            naive.table(0);
            prop_assert_eq!(sent(&net, &verdict, &key), naive.out, "{:?}", key);
            let is_message = verdict.effects.iter().any(|e| matches!(e, Effect::Multicast { .. }));
            prop_assert!(verdict.slow || !is_message);
            for _ in 0..4 {
                let mut other = multicast_packet(rng, Some(key.eth_type()));
                let mask = verdict.mask();
                (0..layout::WORDS).for_each(|w| other.0[w] = key.0[w] & mask.0[w] | other.0[w] & !mask.0[w]);
                other.set_in_port(key.in_port());
                if other.masked(&kept(&other)) != other {
                    continue;
                }
                let again = translate(&net, &other, false);
                prop_assert_eq!(again.slow, verdict.slow);
                // Packets on the slow path are translated one by one.
                if !verdict.slow {
                    prop_assert_eq!(&again.actions, &verdict.actions, "{:?}", other);
                    prop_assert_eq!(&again.reads, &verdict.reads);
                    prop_assert_eq!(&again.dependencies, &verdict.dependencies);
                }
            }
        }
    }

    #[test]
    fn groups_and_routers_without_a_dependency_do_not_matter(seed: u64) {
        let rng = &mut Rng::seeded(seed);
        let (net, _) = world(rng);
        let key = multicast_packet(rng, None);
        let before = translate(&net, &key, false);
        for _ in 0..12 {
            learn(rng, &net, |concerned| !before.dependencies.contains(concerned));
        }
        let after = translate(&net, &key, false);
        prop_assert_eq!(after.actions, before.actions);
    }
}

#[test]
fn data_depends_on_its_group_alone() {
    let rng = &mut Rng::seeded(1);
    let (mut net, _) = world(rng);
    let first = net.bridges.get_mut(&0).and_then(Arc::get_mut).expect("nobody else has it");
    first.set_bundles((1..5).map(|port| Bundle {
        mode: VlanMode::Trunk,
        trunks: None,
        protected: false,
        floodable: true,
        priority_tags: model::PriorityTags::Never,
        multicast: Flooding::default(),
        ..bundle(rng, port)
    }));
    first.snooping = Some(Snooping { table: Arc::default(), flood_unregistered: true });
    let mut key = FlowKey::ZERO;
    key.set(Field::EthType, ethertype::IPV4.into());
    key.set(Field::EthSrc, 0x0200_0000_0001);
    key.set(Field::EthDst, 0x0100_5e00_0001);
    key.set(Field::Ipv4Dst, 0xe100_0001);
    key.set(Field::IpProto, 17);
    key.set_in_port(PortNo(1));
    let group = IpAddr::from([225, 0, 0, 1]);
    let flooded = translate(&net, &key, false);
    let on_group = Dependency::MulticastGroup { bridge: 0, vlan: 0, group };
    let is_multicast =
        |d: &&Dependency| matches!(d, Dependency::MulticastGroup { .. } | Dependency::MulticastRouters { .. });
    assert_eq!(flooded.dependencies.iter().filter(is_multicast).collect::<Vec<_>>(), [&on_group]);
    assert!(!flooded.slow && flooded.mask().get(Field::Ipv4Dst) == 0xffff_ffff);
    assert_eq!((flooded.mask().get(Field::Ipv4Src), flooded.mask().get(Field::UdpDst)), (0, 0));
    // A report is translated alone, and its type is not part of the mask.
    key.set(Field::IpProto, 2);
    key.0[layout::TP] = 0x16 << 48;
    let report = translate(&net, &key, false);
    assert!(report.slow && report.actions.is_empty() && report.mask().0[layout::TP] == 0);
    assert!(report.effects.contains(&Effect::Multicast { bridge: 0, vlan: 0, bundle: "p1".into() }));
}
