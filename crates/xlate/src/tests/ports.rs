//! Ports and their bundles: VLAN modes, priority tags, protected ports, ports that groups watch. The expected
//! results are those of `ofproto/trace` of Open vSwitch 4.0.0.

use super::wire::{Wire, execute};
use super::*;
use crate::model::PriorityTags;
use openflow::GroupKind;
use openflow::group::{Bucket, GroupProperties};

/// One bridge whose ports 1 and 2 are in bundles with these modes, access or native VLANs, and priority tags. NORMAL floods
/// to no other port.
fn vlans(from: (VlanMode, u16), to: (VlanMode, u16, PriorityTags)) -> Network {
    let mut net = network(&[(0, Match::ANY, 0, vec![output(PortNo::NORMAL)])]);
    let bridge = net.bridges.get_mut(&0).and_then(Arc::get_mut).expect("not shared");
    edit_bundles(bridge, |bundles| {
        (bundles[0].mode, bundles[0].tag) = from;
        (bundles[1].mode, bundles[1].tag, bundles[1].priority_tags) = to;
        bundles[2..].iter_mut().for_each(|bundle| bundle.floodable = false);
    });
    net
}

/// The tags with which a frame from port 1 leaves by port 2; `None` if it does not.
fn tags_sent(net: &Network, tags: &[u16]) -> Option<Vec<u16>> {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set(Field::EthSrc, 0x0200_0000_0077);
    key.set(Field::EthDst, 0x0200_0000_0088);
    tags.iter().enumerate().for_each(|(n, tci)| key.set_vlan(n, 0x8100, *tci));
    let mut sent = Vec::new();
    execute(None, &translate(net, &key, false).actions, &mut Wire::new(&key), &mut sent);
    assert!(sent.len() <= 1 && sent.iter().all(|sent| sent.0 == 2), "{sent:?}");
    sent.first().map(|(_, tags, ..)| tags.iter().map(|(_, tci)| *tci).collect())
}

#[test]
fn each_vlan_mode_has_its_tags() {
    use PriorityTags::{Always, IfNonzero, Never};
    use VlanMode::{Access, NativeTagged, NativeUntagged, Trunk};
    /// Tags of a frame, and the tags with which it leaves.
    type Frames<'a> = &'a [(&'a [u16], Option<&'a [u16]>)];
    let same: Frames<'_> =
        &[(&[], Some(&[])), (&[0x100a], Some(&[0x100a])), (&[0x300a], Some(&[0x300a])), (&[0x3000], Some(&[0x3000]))];
    let of_native: Frames<'_> =
        &[(&[], None), (&[0x1000], None), (&[0x3014], Some(&[0x3014])), (&[0x300a], Some(&[0x300a]))];
    let stripped: Frames<'_> = &[(&[0x100a], Some(&[])), (&[0x300a], Some(&[])), (&[0x3000], None)];
    let with_priority: Frames<'_> = &[(&[0x100a], Some(&[])), (&[0x300a], Some(&[0x3000])), (&[0x3000], None)];
    let trunk = (Trunk, 0);
    let cases: &[(_, _, Frames<'_>)] = &[
        (trunk, (Trunk, 0, Never), same),
        (trunk, (Trunk, 0, IfNonzero), same),
        (trunk, (Trunk, 0, Always), same),
        // An empty tag remains with `always` only.
        (trunk, (Trunk, 0, Never), &[(&[0x1000], Some(&[]))]),
        (trunk, (Trunk, 0, IfNonzero), &[(&[0x1000], Some(&[]))]),
        (trunk, (Trunk, 0, Always), &[(&[0x1000], Some(&[0x1000]))]),
        (trunk, (NativeTagged, 10, Always), of_native),
        (trunk, (NativeUntagged, 10, Always), &[(&[], None), (&[0x3000], None)]),
        (trunk, (NativeUntagged, 0, Never), &[(&[], Some(&[])), (&[0x100a], Some(&[0x100a]))]),
        (trunk, (NativeUntagged, 10, Never), &[(&[0x3014], Some(&[0x3014]))]),
        (trunk, (NativeUntagged, 10, Never), stripped),
        (trunk, (NativeUntagged, 10, IfNonzero), with_priority),
        (trunk, (NativeUntagged, 10, Always), with_priority),
        (trunk, (Access, 10, Never), stripped),
        (trunk, (Access, 10, IfNonzero), with_priority),
        (trunk, (Access, 10, Always), with_priority),
        (trunk, (Access, 10, Always), &[(&[0x1014], None), (&[], None)]),
        ((NativeTagged, 10), (Trunk, 0, Never), &[(&[], Some(&[0x100a])), (&[0x1000], Some(&[0x100a]))]),
        ((NativeTagged, 10), (Trunk, 0, Never), &[(&[0x3000], Some(&[0x300a])), (&[0x3014], Some(&[0x3014]))]),
        ((NativeUntagged, 10), (Trunk, 0, Never), &[(&[], Some(&[0x100a])), (&[0x3000], Some(&[0x300a]))]),
        ((NativeUntagged, 10), (Access, 10, Always), &[(&[], Some(&[])), (&[0x3000], Some(&[0x3000]))]),
        ((Access, 10), (Trunk, 0, Never), &[(&[], Some(&[0x100a])), (&[0x3000], Some(&[0x300a]))]),
        ((Access, 10), (Access, 10, Always), &[(&[], Some(&[])), (&[0x1000], Some(&[])), (&[0x3000], Some(&[0x3000]))]),
    ];
    for (from, to, frames) in cases {
        let mut net = vlans(*from, *to);
        if to.0 == NativeTagged {
            // The trunk carries VLAN 20 beside its native VLAN.
            let bridge = net.bridges.get_mut(&0).and_then(Arc::get_mut).expect("not shared");
            edit_bundles(bridge, |bundles| bundles[1].trunks = Some(Arc::new([20].into_iter().collect())));
        }
        for (tags, want) in *frames {
            assert_eq!(tags_sent(&net, tags).as_deref(), *want, "{from:?} {to:?} {tags:x?}");
        }
    }
}

/// Tags of a frame with their protocols, and those with which it leaves.
type Tagged<'a> = (&'a [(u16, u16)], Option<&'a [(u16, u16)]>);

#[test]
fn a_tunnel_port_carries_customer_tags_below_its_service_tag() {
    use PriorityTags::{Always, IfNonzero, Never};
    use VlanMode::{Access, Dot1qTunnel, NativeTagged, NativeUntagged, Trunk};
    let (tunnel, of_q) = ((Dot1qTunnel { tpid: 0x88a8 }, 10), (Dot1qTunnel { tpid: 0x8100 }, 10));
    let to_tunnel = |tags| (tunnel.0, tunnel.1, tags);
    let with = |net: &Network, tags: &[(u16, u16)]| {
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortNo(1));
        key.set(Field::EthSrc, 0x0200_0000_0077);
        key.set(Field::EthDst, 0x0200_0000_0088);
        tags.iter().enumerate().for_each(|(n, (tpid, tci))| key.set_vlan(n, *tpid, *tci));
        let mut sent = Vec::new();
        execute(None, &translate(net, &key, false).actions, &mut Wire::new(&key), &mut sent);
        sent.first().map(|(_, tags, ..)| tags.clone())
    };
    let cases: &[(_, _, &[Tagged<'_>])] = &[
        (
            tunnel,
            (Trunk, 0, Never),
            &[
                (&[], Some(&[(0x88a8, 0x100a)])),
                (&[(0x8100, 0x7014)], Some(&[(0x88a8, 0x100a), (0x8100, 0x7014)])),
                (&[(0x88a8, 0x100a)], Some(&[(0x88a8, 0x100a), (0x88a8, 0x100a)])),
                // An empty tag goes without priority tags, and so does the second tag of a customer.
                (&[(0x8100, 0x1000)], Some(&[(0x88a8, 0x100a)])),
                (&[(0x8100, 0x7000)], Some(&[(0x88a8, 0x100a), (0x8100, 0x7000)])),
                (&[(0x8100, 0x1014), (0x8100, 0x100a)], Some(&[(0x88a8, 0x100a), (0x8100, 0x1014)])),
            ],
        ),
        // The service tag has the packet's priority if priorities are to stay.
        (tunnel, (Trunk, 0, IfNonzero), &[(&[(0x8100, 0x7014)], Some(&[(0x88a8, 0x700a), (0x8100, 0x7014)]))]),
        (of_q, (Trunk, 0, Never), &[(&[(0x8100, 0x7014)], Some(&[(0x8100, 0x100a), (0x8100, 0x7014)]))]),
        (
            (Trunk, 0),
            to_tunnel(Never),
            &[
                (&[], None),
                (&[(0x8100, 0x1014)], None),
                (&[(0x8100, 0x700a)], Some(&[])),
                (&[(0x88a8, 0x700a), (0x8100, 0x3014)], Some(&[(0x8100, 0x3014)])),
                (&[(0x8100, 0x100a), (0x8100, 0x1000)], Some(&[])),
            ],
        ),
        (
            (Trunk, 0),
            to_tunnel(Always),
            &[
                (&[(0x88a8, 0x700a)], Some(&[(0x8100, 0x7000)])),
                (&[(0x88a8, 0x700a), (0x8100, 0x3014)], Some(&[(0x8100, 0x7014)])),
                (&[(0x8100, 0x100a), (0x8100, 0x1000)], Some(&[(0x8100, 0x1000)])),
            ],
        ),
        // To an access port leave only frames without a customer VLAN.
        (
            tunnel,
            (Access, 10, Never),
            &[(&[], Some(&[])), (&[(0x8100, 0x7000)], Some(&[])), (&[(0x8100, 0x1014)], None)],
        ),
        ((Access, 10), to_tunnel(Never), &[(&[], Some(&[])), (&[(0x8100, 0x7000)], Some(&[]))]),
        ((NativeTagged, 10), to_tunnel(Never), &[(&[], Some(&[])), (&[(0x8100, 0x1014)], None)]),
        (tunnel, (NativeUntagged, 10, Never), &[(&[(0x8100, 0x7014)], Some(&[(0x8100, 0x7014)]))]),
        (tunnel, to_tunnel(Never), &[(&[], Some(&[])), (&[(0x8100, 0x7014)], Some(&[(0x8100, 0x7014)]))]),
    ];
    for (from, to, frames) in cases {
        let net = vlans(*from, *to);
        for (tags, want) in *frames {
            assert_eq!(with(&net, tags).as_deref(), *want, "{from:?} {to:?} {tags:x?}");
        }
    }
    // A set of customer VLANs holds in both directions, 0 for frames without one.
    for is_sender in [true, false] {
        let mut net = if is_sender { vlans(tunnel, (Trunk, 0, Never)) } else { vlans((Trunk, 0), to_tunnel(Never)) };
        let bridge = net.bridges.get_mut(&0).and_then(Arc::get_mut).expect("not shared");
        let cvlans: Arc<model::VlanSet> = Arc::new([20].into_iter().collect());
        edit_bundles(bridge, |bundles| bundles[usize::from(!is_sender)].cvlans = Some(cvlans));
        let of = |inner: &[(u16, u16)]| {
            let service = (!is_sender).then_some((0x88a8, 0x100a));
            with(&net, &service.iter().chain(inner).copied().collect::<Vec<_>>()).is_some()
        };
        assert_eq!([of(&[]), of(&[(0x8100, 0x1014)]), of(&[(0x8100, 0x1015)])], [false, true, false]);
    }
}

#[test]
fn an_inner_tag_reaches_no_vlan_by_an_access_port() {
    use PriorityTags::Never;
    use VlanMode::{Access, NativeUntagged, Trunk};
    let from_access = vlans((Access, 10), (Trunk, 0, Never));
    // An access port admits no frame with a VLAN, not even with its own.
    for outer in [0x100a, 0x1014, 0x700a] {
        assert_eq!(tags_sent(&from_access, &[outer, 0x1014]), None);
        assert_eq!(tags_sent(&from_access, &[outer]), None);
    }
    // It does not admit an inner tag behind a priority tag either.
    assert_eq!(tags_sent(&from_access, &[0x1000, 0x1014]), Some(vec![0x100a]));
    assert_eq!(tags_sent(&from_access, &[0x3000, 0x1014]), Some(vec![0x300a]));
    assert_eq!(tags_sent(&vlans((Access, 10), (Access, 10, Never)), &[0x1000, 0x1014]), Some(vec![]));
    // Such a frame does not leave by an access port, or when an empty outer tag would be popped.
    let from_trunk = |to| vlans((Trunk, 0), to);
    assert_eq!(tags_sent(&from_trunk((Access, 10, Never)), &[0x100a, 0x101e]), None);
    assert_eq!(tags_sent(&from_trunk((Trunk, 0, Never)), &[0x1000, 0x1014]), Some(vec![]));
    assert_eq!(tags_sent(&from_trunk((Trunk, 0, Never)), &[0x3000, 0x1014]), Some(vec![0x3000, 0x1014]));
    assert_eq!(tags_sent(&from_trunk((NativeUntagged, 10, Never)), &[0x100a, 0x101e]), Some(vec![0x101e]));
}

/// Ports 1 and 2 are protected.
fn protected(rules: &[(u8, Match, u16, Vec<Action>)], groups: Vec<Group>, start: &[Action]) -> (Vec<u32>, Verdict) {
    let mut net = network_with(rules, groups, &[output(PortNo(1))]);
    let bridge = net.bridges.get_mut(&0).and_then(Arc::get_mut).expect("not shared");
    edit_bundles(bridge, |bundles| bundles[..2].iter_mut().for_each(|bundle| bundle.protected = true));
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set(Field::EthSrc, 0x0200_0000_0077);
    let verdict = match start {
        [] => translate(&net, &key, false),
        actions => translate_from(&net, &net.bridges[&0], &key, Start::Actions(actions), false),
    };
    let ports = verdict.actions.iter().filter_map(|action| match action {
        DpAction::Output(port) => Some(port.0),
        _ => None,
    });
    (ports.collect(), verdict)
}

#[test]
fn protected_ports_hold_back_frames_of_every_output() {
    let of = |actions: &[Action]| protected(&[(0, Match::ANY, 0, actions.to_vec())], Vec::new(), &[]);
    let reg = Subfield::whole(Field::Reg0);
    let by_register = [Action::RegLoad { dst: reg, value: 2 }, Action::OutputReg { src: reg, max_len: 0 }];
    let set = [Action::WriteActions(vec![output(PortNo(2))])];
    let truncated = [Action::OutputTrunc { port: PortNo(2), max_len: 60 }];
    // Port 1 is protected from itself too.
    let same = [output(PortNo::IN_PORT)];
    for actions in [&[output(PortNo(2))][..], &by_register, &set, &truncated, &same] {
        let (ports, verdict) = of(actions);
        assert_eq!((ports, verdict.drop), (vec![], Some(base::DropReason::ProtectedPort)), "{actions:?}");
        assert!(verdict.actions.is_empty());
    }
    for flood in [PortNo::FLOOD, PortNo::ALL] {
        assert_eq!(of(&[output(flood)]).0, [11, 4]);
    }
    assert_eq!(of(&[output(PortNo::NORMAL)]).0, [11]);
    assert_eq!(of(&[output(PortNo(4)), output(PortNo(2)), output(PortNo(3))]).0, [4, 11]);
    let bucket =
        |port| GroupBucket::new(Bucket { actions: [output(PortNo(port))].into(), ..Bucket::new(GroupKind::All) });
    let group = of_buckets(GroupKind::All, vec![bucket(2), bucket(4)]);
    assert_eq!(protected(&[(0, Match::ANY, 0, vec![Action::Group(1)])], vec![group], &[]).0, [4]);
    // The rule also applies to a packet-out that names the port as its ingress port, but not to one without.
    assert_eq!(protected(&[], Vec::new(), &[output(PortNo(2)), output(PortNo(4))]).0, [4]);
    // Actions may change the ingress port.
    let load = Action::SetField { field: Field::InPortOxm, value: 4, mask: u32::MAX.into() };
    assert_eq!(of(&[load, output(PortNo(2)), output(PortNo(1))]).0, [2, 1]);
}

fn of_buckets(kind: GroupKind, buckets: Vec<GroupBucket>) -> Group {
    Group {
        id: 1,
        kind,
        buckets,
        properties: GroupProperties::default(),
        created: Millis(0),
        counters: Arc::default(),
        spread: crate::groups::Spread::default(),
    }
}

#[test]
fn the_controller_is_never_a_live_port() {
    let bucket = |watch_port, port| {
        let bucket = Bucket::new(GroupKind::FastFailover);
        GroupBucket::new(Bucket { watch_port, actions: [output(port)].into(), ..bucket })
    };
    let of = |buckets| {
        let group = of_buckets(GroupKind::FastFailover, buckets);
        let net = network_with(&[(0, Match::ANY, 0, vec![Action::Group(1)])], vec![group], &[]);
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortNo(1));
        let verdict = translate(&net, &key, false);
        (verdict.actions, verdict.drop)
    };
    let watched = bucket(PortNo::CONTROLLER, PortNo(4));
    let next = bucket(PortNo(2), PortNo(2));
    assert_eq!(of(vec![watched.clone(), next]), (vec![DpAction::Output(DpPort(2))], None));
    assert_eq!(of(vec![watched]), (vec![], Some(base::DropReason::NoGroup)));
}

#[test]
fn groups_that_watch_each_other_need_a_live_port() {
    let bucket = |id: u32, watch_group: u32, watch_port: u32| {
        let bucket = Bucket::new(GroupKind::FastFailover);
        let actions = [output(PortNo(id))].into();
        GroupBucket::new(Bucket { watch_group, watch_port: PortNo(watch_port), actions, ..bucket })
    };
    let of = |port_of_last: u32| {
        let ring = (1..=1000u32).map(|id| {
            let port = if id == 1000 { port_of_last } else { 99 };
            Group { id, ..of_buckets(GroupKind::FastFailover, vec![bucket(2, id % 1000 + 1, port)]) }
        });
        let net = network_with(&[(0, Match::ANY, 0, vec![Action::Group(1)])], ring.collect(), &[]);
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortNo(1));
        let verdict = translate(&net, &key, false);
        assert_eq!(verdict.dependencies.iter().filter(|d| matches!(d, Dependency::Group { .. })).count(), 1000);
        verdict.actions
    };
    assert_eq!(of(4), [DpAction::Output(DpPort(2))]);
    assert_eq!(of(99), []);
}
