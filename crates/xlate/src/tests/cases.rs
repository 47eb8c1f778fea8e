//! Single cases.

use super::wire::{Wire, execute};
use super::*;
use base::DropReason;
use openflow::meter::METER_CONTROLLER;

#[test]
fn a_learned_address_is_forwarded_and_others_flooded() {
    let net = network(&[(0, Match::ANY, 0, vec![output(PortNo::NORMAL)])]);
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(2));
    key.set(Field::EthSrc, 0x0200_0000_0077);
    key.set(Field::EthDst, 0x0200_0000_0001);
    let verdict = translate(&net, &key, false);
    assert_eq!(verdict.actions, [DpAction::Output(DpPort(1))]);
    assert!(verdict.effects.iter().any(|e| matches!(e, Effect::LearnMac { bridge: 0, vlan: 0, port: PortNo(2), .. })));
    // The access port 4 of VLAN 5 is untagged.
    key.set(Field::EthDst, 0x0200_0000_0002);
    key.set_vlan(0, 0x8100, 0x1005);
    assert_eq!(translate(&net, &key, false).actions, [DpAction::PopVlan, DpAction::Output(DpPort(4))]);
}

#[test]
fn a_packet_finds_what_it_has_just_taught() {
    let normal = || output(PortNo::NORMAL);
    let frame = |src: u128, dst: u128| {
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortNo(2));
        key.set(Field::EthSrc, src);
        key.set(Field::EthDst, dst);
        key
    };
    let net = network(&[(0, Match::ANY, 0, vec![normal()])]);
    // Of a frame with equal addresses, the known port is the one that it came from, wherever the address was before.
    for mac in [0x0200_0000_0077, 0x0200_0000_0001] {
        let verdict = translate(&net, &frame(mac, mac), false);
        assert_eq!((verdict.actions.len(), verdict.drop), (0, Some(DropReason::SamePort)));
    }
    // A group address is not learned.
    assert_eq!(translate(&net, &frame(0x0100_0000_0077, 0x0100_0000_0077), false).drop, None);
    // The second NORMAL finds the address that the first one learned.
    let second = |dst: u8| {
        let from_1 = Action::SetField { field: Field::InPort, value: 1, mask: 0xffff };
        let [src, dst] = [0x78, dst].map(|n| MacAddr([2, 0, 0, 0, 0, n]));
        let actions = vec![normal(), Action::SetEthSrc(src), Action::SetEthDst(dst), from_1, normal()];
        let net = network(&[(0, Match::ANY, 0, actions)]);
        translate(&net, &frame(0x0200_0000_0077, 0x0200_0000_0001), false).actions
    };
    let known = second(0x77);
    assert_eq!((known.len(), known.last()), (4, Some(&DpAction::Output(DpPort(2)))));
    assert_eq!(second(0x78), [DpAction::Output(DpPort(1))]);
    assert!(second(0x79).len() > known.len());
}

#[test]
fn frames_with_a_tag_that_was_not_parsed_are_not_switched() {
    for protocol in [0x8100, 0x88a8] {
        let mut key = tagged(10);
        key.set(Field::EthType, protocol);
        key.set(Field::EthSrc, 0x0200_0000_0077);
        let net = network(&[(0, Match::ANY, 0, vec![Action::PopVlan, output(PortNo::NORMAL)])]);
        let verdict = translate(&net, &key, false);
        assert_eq!((verdict.actions.len(), verdict.drop), (0, Some(DropReason::VlanMismatch)));
        assert!(!verdict.effects.iter().any(|e| matches!(e, Effect::LearnMac { .. })));
        // Behind a tag that was parsed it may be.
        let net = network(&[(0, Match::ANY, 0, vec![output(PortNo::NORMAL)])]);
        assert!(!translate(&net, &key, false).actions.is_empty());
    }
}

#[test]
fn fragments_and_whole_packets_have_megaflows_of_their_own() {
    let net = network(&[(0, Match::ANY, 0, vec![output(PortNo(2))])]);
    for (eth_type, matched) in [(0x800, 3), (0x86dd, 3), (0x806, 0), (0x8847, 0)] {
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortNo(1));
        key.set(Field::EthType, eth_type);
        let verdict = translate(&net, &key, false);
        assert_eq!(verdict.mask().get(Field::IpFrag), matched, "{eth_type:x}");
        // They are read last: a look-up in the datapath tests them in its last step, unless flows differ in them.
        let last = verdict.reads.last().map(|step| (step.word(), step.bits()));
        let frag = FlowKey::mask_of(Field::IpFrag).0[layout::IP_MISC];
        assert_eq!(last == Some((layout::IP_MISC, frag)), matched != 0);
    }
    // A packet has these bits even if actions replaced its headers.
    let net = network(&[(0, Match::ANY, 0, vec![Action::PushMpls(0x8847), output(PortNo(2))])]);
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set(Field::EthType, 0x800);
    assert_eq!(translate(&net, &key, false).mask().get(Field::IpFrag), 3);
}

#[test]
fn a_collector_set_may_have_collectors_on_this_host() {
    let texts = |action: Sample, ipfix: Option<Ipfix>, explicit_drops| {
        let mut net = network(&[(0, Match::ANY, 0, vec![Action::Sample(Box::new(action))])]);
        let bridge = Arc::get_mut(net.bridges.get_mut(&0).expect("there")).expect("nobody else has it");
        (bridge.local, bridge.ipfix) = (Some(LocalSets { groups: Arc::new([(1, 9)].into()), explicit_drops }), ipfix);
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortNo(1));
        dpif::text::format_actions(&translate(&net, &key, false).actions, 0, &|_| None)
    };
    let (local, exported) = (
        "psample(group=9,cookie=0x200000003)",
        "userspace(pid=0,flow_sample(probability=65535,collector_set_id=1,obs_domain_id=2,obs_point_id=3,output_port=4294967295))",
    );
    let all = sample(PortNo::NONE);
    assert_eq!(texts(all.clone(), None, false), local);
    assert_eq!(texts(all.clone(), None, true), format!("{local},drop"));
    let ipfix = || Some(Ipfix::default());
    assert_eq!(texts(all.clone(), ipfix(), false), format!("{local},{exported}"));
    // The port is in reports to exporters only.
    assert_eq!(texts(sample(PortNo(77)), ipfix(), false), local);
    let half = Sample { probability: 0x8000, ..all.clone() };
    assert_eq!(texts(half, None, true), format!("sample(sample=50.0%,actions({local})),drop"));
    // Another set.
    assert_eq!(texts(Sample { collector_set_id: 2, ..all }, None, true), "drop");
}

/// The reports to collectors on a packet from port 1: whether they go to the bridge's set, their port, and whether the packet
/// is forwarded.
fn reports(actions: Vec<Action>, ipfix: Ipfix) -> Vec<(bool, Option<u32>, bool)> {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    let verdict = translate(&observed(network(&[(0, Match::ANY, 0, actions)]), ipfix), &key, false);
    let mut all = Vec::new();
    let mut lists = vec![&verdict.actions[..]];
    while let Some(list) = lists.pop() {
        for action in list {
            if let DpAction::Observe(what) = action {
                all.push((what.collectors == Collectors::Bridge, what.output.map(|p| p.0), what.forwarded));
            }
            lists.extend(action.nested().map(|inner| &inner[..]));
        }
    }
    all
}

#[test]
fn reports_to_collectors_say_whether_a_packet_is_forwarded() {
    let sample = |port| Action::Sample(Box::new(sample(port)));
    let (none, two) = (Ipfix::default, PortNo(2));
    assert_eq!(reports(vec![sample(PortNo::NONE)], none()), [(false, None, false)]);
    assert_eq!(reports(vec![sample(PortNo(1)), output(two)], none()), [(false, None, true)]);
    assert_eq!(reports(vec![output(two), sample(two)], none()), [(false, Some(2), true)]);
    assert_eq!(reports(vec![Action::Clone(vec![sample(two), Action::PopVlan])], none()), [(false, Some(2), false)]);
    // Ports that do not exist, or have no device.
    assert_eq!(reports(vec![sample(PortNo(77)), sample(PortNo(3)), output(two)], none()), []);
    let all = || Ipfix { ingress: Some(u32::MAX), egress: Some(u32::MAX), ..Ipfix::default() };
    assert_eq!(reports(vec![], all()), [(true, None, false)]);
    assert_eq!(
        reports(vec![output(two), output(PortNo(4))], all()),
        [(true, None, true), (true, Some(2), true), (true, Some(4), true)]
    );
    assert_eq!(reports(vec![output(two)], Ipfix { ingress: None, ..all() }), [(true, Some(2), true)]);
    assert_eq!(
        reports(vec![output(two)], Ipfix { egress: Some(1 << 31), ..Ipfix::default() }),
        [(true, Some(2), true)]
    );
}

#[test]
fn an_explicit_drop_follows_a_last_action_that_samples() {
    let sample = || Action::Sample(Box::new(sample(PortNo::NONE)));
    let actions = |actions: Vec<Action>, explicit_drops| {
        let ipfix = Ipfix { explicit_drops, ..Ipfix::default() };
        translate(&observed(network(&[(0, Match::ANY, 0, actions)]), ipfix), &tagged(5), false).actions
    };
    let two = || output(PortNo(2));
    for (list, has_drop) in [
        (vec![sample()], true),
        (vec![two(), sample()], true),
        (vec![sample(), Action::SetEthDst(MacAddr([2; 6]))], true),
        (vec![sample(), two()], false),
        (vec![sample(), output(PortNo::CONTROLLER)], false),
        (vec![Action::Clone(vec![sample()])], true),
        (vec![], false),
    ] {
        let (without, with) = (actions(list.clone(), false), actions(list.clone(), true));
        let drop = has_drop.then_some(DpAction::Drop(DropReason::Action));
        assert_eq!(with, without.into_iter().chain(drop).collect::<Vec<_>>(), "{list:?}");
    }
}

/// The verdict on `key` with `actions` as the only flow.
fn actions_for(key: &FlowKey, actions: Vec<Action>) -> Verdict {
    translate(&network(&[(0, Match::ANY, 0, actions)]), key, false)
}

fn tagged(vid: u16) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set_vlan(0, 0x8100, 0x1000 | vid);
    key
}

#[test]
fn a_push_sets_an_id_that_was_written_without_being_read() {
    // The packet's id equals the one written, but other packets of the same megaflow have other ids.
    let key = tagged(9);
    let actions =
        vec![Action::SetVlanVid { vid: 9, push_if_needed: true }, Action::PushVlan(0x8100), output(PortNo(2))];
    let verdict = actions_for(&key, actions);
    let mut other = key;
    other.0[layout::ETH_SRC] ^= 0xfff & !verdict.mask().0[layout::ETH_SRC];
    let mut out = Vec::new();
    execute(None, &verdict.actions, &mut Wire::new(&other), &mut out);
    assert_eq!(out[0].1, [(0x8100, 0x1000), (0x8100, 0x1009)]);
}

#[test]
fn a_third_tag_is_pushed_onto_two() {
    let mut key = tagged(5);
    key.set_vlan(1, 0x8100, 0x1006);
    let verdict = actions_for(&key, vec![Action::PushVlan(0x88a8), output(PortNo(2))]);
    assert_eq!(verdict.actions, [DpAction::PushVlan { tpid: 0x88a8, tci: 0x1000 }, DpAction::Output(DpPort(2))]);
    let and_pop = vec![Action::PushVlan(0x88a8), Action::PopVlan, Action::PopVlan, output(PortNo(2))];
    let verdict = actions_for(&key, and_pop);
    assert!(!verdict.actions.iter().skip(1).any(|a| matches!(a, DpAction::PushVlan { .. })), "{:?}", verdict.actions);
}

#[test]
fn normal_decides_by_the_tags_in_the_key() {
    let mut key = tagged(5);
    key.set(Field::EthSrc, 0x0200_0000_0077);
    key.set_vlan(1, 0x8100, 0x1006);
    let to_access = |actions| actions_for(&key, actions).actions.contains(&DpAction::Output(DpPort(4)));
    assert!(!to_access(vec![output(PortNo::NORMAL)]), "a frame with an inner tag");
    // The push moves the inner tag out of the key.
    assert!(to_access(vec![Action::PushVlan(0x8100), Action::PopVlan, output(PortNo::NORMAL)]));
}

#[test]
fn a_sample_after_pop_mpls_recirculates_first() {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set(Field::EthType, 0x8847);
    key.set(Field::MplsBos, 1);
    let sample = Action::Sample(Box::new(sample(PortNo::NONE)));
    let outputs = |actions: Vec<Action>| {
        let verdict = actions_for(&key, actions);
        let outputs = verdict.actions.iter().filter(|a| matches!(a, DpAction::Output(_))).count();
        (outputs, matches!(verdict.actions.last(), Some(DpAction::Recirc(_))))
    };
    let pop = Action::PopMpls(0x800);
    assert_eq!(outputs(vec![output(PortNo(2)), pop.clone(), output(PortNo(4))]), (2, false));
    assert_eq!(outputs(vec![output(PortNo(2)), pop, sample, output(PortNo(4))]), (1, true));
}

#[test]
fn debug_slow_marks_the_whole_verdict() {
    let key = tagged(5);
    let nested = vec![Action::Clone(vec![Action::DebugSlow]), output(PortNo(2))];
    for actions in [vec![Action::DebugSlow, output(PortNo(2))], vec![output(PortNo(2)), Action::DebugSlow], nested] {
        let verdict = actions_for(&key, actions);
        assert_eq!((&verdict.actions[..], verdict.slow), (&[DpAction::Output(DpPort(2))][..], true));
    }
    assert!(!actions_for(&key, vec![output(PortNo(2))]).slow);
    // A packet that is dropped for an error is not worth a translation.
    let pops = Action::StackPush(Subfield::whole(Field::Reg0));
    let failed = actions_for(&key, [vec![Action::DebugSlow], vec![pops; 5000]].concat());
    assert_eq!((failed.error, failed.slow), (Some(TranslationError::Stack), false));
}

#[test]
fn debug_recirc_resumes_with_the_next_action() {
    let set = |value| Action::RegLoad { dst: Subfield::whole(Field::Reg1), value };
    let to_reg = Action::OutputReg { src: Subfield::whole(Field::Reg1), max_len: 0 };
    let mac = Action::SetEthDst(MacAddr([2, 7, 7, 7, 7, 7]));
    let net = network(&[
        (0, Match::ANY, 0, vec![set(2), mac, Action::Resubmit { in_port: None, table: Some(1) }, to_reg]),
        (1, Match::ANY, 0, vec![Action::DebugRecirc, output(PortNo(4))]),
    ]);
    let mut out = Vec::new();
    execute(Some(&net), &translate(&net, &tagged(5), false).actions, &mut Wire::new(&tagged(5)), &mut out);
    let sent: Vec<_> = out.iter().map(|(port, _, key, _)| (*port, key.get(Field::EthDst))).collect();
    assert_eq!(sent, [(4, 0x0207_0707_0707), (2, 0x0207_0707_0707)]);
    // Without an action left, the packet is looked up again.
    let again = network(&[(0, Match::ANY, 0, vec![Action::DebugRecirc])]);
    let mut key = tagged(5);
    for _ in 0..3 {
        let verdict = translate(&again, &key, false);
        let [DpAction::Recirc(id)] = verdict.actions[..] else { panic!("{:?}", verdict.actions) };
        key.set(Field::RecircId, id.into());
    }
}

#[test]
fn a_set_of_a_network_service_header_lists_the_fields_that_are_known() {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    for (field, value) in [(Field::EthType, 0x894f), (Field::NshMdtype, 1), (Field::NshTtl, 63), (Field::NshC2, 0x22)] {
        key.set(field, value);
    }
    let set = |field, value, mask| Action::SetField { field, value, mask };
    let sets = |matching: Match, actions: Vec<Action>| {
        let verdict = translate(&network(&[(0, matching, 0, actions)]), &key, false);
        let parts = |action: &DpAction| match action {
            DpAction::Set { field, value, mask } => Some((*field, *value, *mask)),
            _ => None,
        };
        verdict.actions.iter().filter_map(parts).collect::<Vec<_>>()
    };
    let mut second = Match::ANY;
    second.set(Field::EthType, 0x894f);
    second.set_masked(Field::NshC2, 0x2, 0xf);
    let ttl = || set(Field::NshTtl, 5, 0xff);
    let set_ttl = (Field::NshTtl, 5, 0xff);
    assert_eq!(sets(Match::ANY, vec![ttl(), output(PortNo(2))]), [set_ttl]);
    let known = (Field::NshC2, 2, 0xf);
    assert_eq!(sets(second.clone(), vec![ttl(), output(PortNo(2))]), [set_ttl, known]);
    // So are those that were written before; without a change, nothing is set.
    let again = vec![ttl(), output(PortNo(2)), set(Field::NshSi, 7, 0xff), output(PortNo(2))];
    assert_eq!(sets(second.clone(), again), [set_ttl, known, (Field::NshSi, 7, 0xff), set_ttl, known]);
    assert_eq!(sets(second, vec![set(Field::NshC2, 2, 0xf), output(PortNo(2))]), []);
}

#[test]
fn changes_without_an_output_emit_no_actions() {
    let actions = vec![Action::SetEthDst(MacAddr([2; 6])), output(PortNo(2)), Action::PopVlan, output(PortNo(77))];
    assert_eq!(actions_for(&tagged(5), actions).actions.last(), Some(&DpAction::Output(DpPort(2))));
    let verdict = actions_for(&tagged(5), vec![Action::SetEthDst(MacAddr([2; 6])), output(PortNo(3))]);
    assert!(verdict.actions.len() > 1);
    let in_vain =
        actions_for(&tagged(5), vec![Action::SetEthDst(MacAddr([2; 6])), Action::Clone(vec![output(PortNo(77))])]);
    assert_eq!((in_vain.actions.len(), in_vain.drop), (0, Some(base::DropReason::NoPort)));
    let dropped = actions_for(&tagged(5), vec![Action::PopVlan, Action::PushVlan(0x8100), output(PortNo(77))]);
    assert_eq!((dropped.actions.len(), dropped.drop), (0, Some(base::DropReason::NoPort)));
}

#[test]
fn an_expired_ttl_ends_its_own_list_only() {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set(Field::EthType, 0x800);
    key.set(Field::IpTtl, 1);
    let to_one = Action::Resubmit { in_port: None, table: Some(1) };
    let net = network(&[
        (
            0,
            Match::ANY,
            0,
            vec![to_one, output(PortNo(4)), Action::Clone(vec![Action::DecTtl(None), output(PortNo(2))])],
        ),
        (1, Match::ANY, 0, vec![Action::DecTtl(None), output(PortNo(2))]),
    ]);
    let outputs =
        |v: &Verdict| v.actions.iter().filter(|a| matches!(a, DpAction::Output(_))).cloned().collect::<Vec<_>>();
    let verdict = translate(&net, &key, false);
    assert_eq!(outputs(&verdict), [DpAction::Output(DpPort(4))]);
    assert_eq!(verdict.actions.len(), 3);
}

#[test]
fn exit_in_a_clone_is_an_exit() {
    let verdict =
        actions_for(&tagged(5), vec![output(PortNo(4)), Action::Clone(vec![Action::Exit]), output(PortNo(2))]);
    assert_eq!(verdict.actions, [DpAction::Output(DpPort(4))]);
}

#[test]
fn truncation_is_for_devices() {
    let cut = |port| Action::OutputTrunc { port, max_len: 60 };
    let all =
        [PortNo::NORMAL, PortNo::FLOOD, PortNo::ALL, PortNo::TABLE, PortNo::CONTROLLER, PortNo::IN_PORT, PortNo(3)];
    let mut actions: Vec<_> = all.into_iter().map(cut).collect();
    actions.push(cut(PortNo(2)));
    let verdict = actions_for(&tagged(5), actions);
    assert_eq!(verdict.actions, [DpAction::Trunc(60), DpAction::Output(DpPort(2))]);
}

#[test]
fn output_by_register_takes_numbers_of_openflow_10() {
    let reg = Subfield::whole(Field::Reg1);
    let via = |value| vec![Action::RegLoad { dst: reg, value }, Action::OutputReg { src: reg, max_len: 0 }];
    assert_eq!(actions_for(&tagged(5), via(0xfff8)).actions, [DpAction::Output(DpPort(1))]);
    assert!(actions_for(&tagged(5), via(0xffff_fff8)).actions.is_empty());
}

#[test]
fn an_action_set_prefers_an_output_to_a_resubmit() {
    let set = vec![output(PortNo(2)), Action::Resubmit { in_port: None, table: Some(1) }];
    let net =
        network(&[(0, Match::ANY, 0, vec![Action::WriteActions(set)]), (1, Match::ANY, 0, vec![output(PortNo(4))])]);
    assert_eq!(translate(&net, &tagged(5), false).actions, [DpAction::Output(DpPort(2))]);
}

#[test]
fn tunnel_fields_do_not_cross_a_patch() {
    let actions = vec![Action::SetTunnel { id: 5, wide: false }, output(PortNo(3))];
    let mut net = network(&[(0, Match::ANY, 0, actions)]);
    let mut m = Match::ANY;
    m.set(Field::TunId, 5);
    let other = network(&[(0, m, 1, vec![output(PortNo(2))]), (0, Match::ANY, 0, vec![output(PortNo(1))])]);
    Arc::get_mut(net.bridges.get_mut(&1).expect("two bridges")).expect("not shared").tables =
        Arc::clone(&other.bridges[&0].tables);
    assert_eq!(translate(&net, &tagged(5), false).actions, [DpAction::Output(DpPort(11))]);
}

#[test]
fn writing_an_id_tags_a_packet() {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    let set = Action::SetField { field: Field::DlVlan, value: 5, mask: 0xfff };
    let verdict = actions_for(&key, vec![set, output(PortNo(2))]);
    assert_eq!(verdict.actions, [DpAction::PushVlan { tpid: 0x8100, tci: 0x1005 }, DpAction::Output(DpPort(2))]);
}

#[test]
fn a_packet_out_to_the_tables_can_miss_to_the_controller() {
    let mut net = network(&[]);
    Arc::get_mut(net.bridges.get_mut(&0).expect("two bridges")).expect("not shared").miss_to_controller = true;
    let verdict = translate_from(&net, &net.bridges[&0], &tagged(5), Start::Actions(&[output(PortNo::TABLE)]), false);
    let [DpAction::Controller(what)] = &verdict.actions[..] else { panic!("{:?}", verdict.actions) };
    assert_eq!((what.reason, what.cookie, what.table_miss), (0, 0, false));
}

#[test]
fn packet_ins_have_the_reason_of_the_list_that_sends_them() {
    use super::limits::group_of;
    use openflow::PacketInReason as R;
    let to = |table| Action::Resubmit { in_port: None, table: Some(table) };
    let controller = || output(PortNo::CONTROLLER);
    let rules = [
        (1, Match::ANY, 0, vec![controller()]),
        (2, Match::ANY, 1, vec![controller()]),
        (3, Match::ANY, 1, vec![Action::Group(2)]),
    ];
    // Buckets that send the packet, and that look it up in tables 1 and 2.
    let groups = || vec![group_of(1, &[controller()], 1), group_of(2, &[to(1)], 1), group_of(3, &[to(2)], 1)];
    let sent = |start: &[Action], in_flow: bool| {
        let mut all = rules.to_vec();
        all.extend(in_flow.then(|| (0, Match::ANY, 5, start.to_vec())));
        let net = network_with(&all, groups(), &[]);
        let start = if in_flow { Start::Tables } else { Start::Actions(start) };
        let verdict = translate_from(&net, &net.bridges[&0], &tagged(5), start, false);
        let mut upcalls = Vec::new();
        collect_upcalls(&verdict.actions, &mut upcalls);
        let [(reason, table)] = upcalls[..] else { panic!("{:?}", verdict.actions) };
        (R::from_wire(reason), table)
    };
    let set = |action| vec![Action::WriteActions(vec![action])];
    for (actions, table, in_flow) in [
        (vec![controller()], 0, R::Action),
        (vec![to(1)], 1, R::NoMatch),
        (vec![to(2)], 2, R::Action),
        (vec![Action::Group(1)], 0, R::Group),
        (vec![Action::Group(2)], 1, R::NoMatch),
        (vec![Action::Group(3)], 2, R::Action),
        (vec![to(3)], 1, R::NoMatch),
        (set(controller()), 0, R::ActionSet),
        (set(Action::Group(1)), 0, R::Group),
        (set(Action::Group(2)), 1, R::ActionSet),
        (vec![Action::Clone(vec![Action::Group(1)])], 0, R::Group),
    ] {
        assert_eq!(sent(&actions, true), (in_flow, table), "{actions:?}");
        // A packet-out is the reason for all that it leads to.
        assert_eq!(sent(&actions, false).0, R::PacketOut, "{actions:?}");
    }
}

/// Reasons and tables of the packets for controllers.
fn collect_upcalls(actions: &[DpAction], all: &mut Vec<(u8, u8)>) {
    for action in actions {
        if let DpAction::Controller(what) = action {
            all.push((what.reason, what.table));
        }
        action.nested().for_each(|list| collect_upcalls(list, all));
    }
}

#[test]
fn bits_beyond_a_value_of_128_are_zero() {
    let part = |field, offset| Subfield { field, offset, n_bits: 4 };
    let src = part(Field::TunMetadata0, 900);
    let net = network(&[(
        0,
        Match::ANY,
        0,
        vec![Action::RegMove { src, dst: part(Field::Reg1, 0) }, Action::StackPush(src), output(PortNo(2))],
    )]);
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set(Field::Reg1, 0xff);
    assert_eq!(translate(&net, &key, true).trace.expect("asked for").final_key.get(Field::Reg1), 0xf0);
}

#[test]
fn packets_go_through_meters() {
    let below = |id| DpAction::Meter(MeterId(id));
    let out = DpAction::Output(DpPort(2));
    let of = |list: Vec<Action>| actions_for(&tagged(5), list);
    let metered = of(vec![Action::Meter(1), output(PortNo(2))]);
    assert_eq!(metered.actions, [below(10), out.clone()]);
    assert!(metered.dependencies.contains(&Dependency::Meter { bridge: 0, meter: 1 }));
    // A meter that does not exist lets everything pass until it is added.
    let unknown = of(vec![Action::Meter(3), output(PortNo(2))]);
    assert_eq!(unknown.actions, [out]);
    assert!(unknown.dependencies.contains(&Dependency::Meter { bridge: 0, meter: 3 }));
    // The meter gets the packet with earlier changes, and counts it even if nothing is output after it.
    let changed = of(vec![Action::SetEthSrc(MacAddr([2; 6])), Action::Meter(2)]);
    assert!(matches!(&changed.actions[..], [DpAction::Set { .. }, m] if *m == below(20)), "{:?}", changed.actions);
}

#[test]
fn packets_to_controllers_pass_the_controller_meter() {
    let asks = |meter_id| {
        Action::Controller(Box::new(openflow::ControllerAction { meter_id, ..openflow::ControllerAction::default() }))
    };
    let net = network(&[(0, Match::ANY, 0, vec![asks(Some(2)), asks(Some(3)), output(PortNo(2))])]);
    let meter_of = |action: &DpAction| match action {
        DpAction::Controller(_) => None,
        DpAction::Sample { probability: u32::MAX, actions } => match &actions[..] {
            [DpAction::Meter(id), DpAction::Controller(_)] => Some(id.0),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let meters_of = || translate(&net, &tagged(5), false).actions[..2].iter().map(meter_of).collect::<Vec<_>>();
    assert_eq!(meters_of(), [Some(20), None]);
    let tables = &net.bridges[&0].tables;
    let mut meters = meters();
    meters.insert(METER_CONTROLLER, Arc::new(meter(METER_CONTROLLER)));
    tables.publish(View { version: 2, groups: Arc::default(), meters: Arc::new(meters) });
    assert_eq!(meters_of(), [Some(20), Some(METER_CONTROLLER.wrapping_mul(10))]);
}

#[test]
fn bundles_choose_live_ports() {
    let bundle = |algorithm, dst| {
        let fields = openflow::HashFields::EthSrc;
        let members = [9, 2, 4].map(PortNo).to_vec();
        Action::Bundle(Box::new(openflow::BundleAction { fields, basis: 0, algorithm, members, dst }))
    };
    use openflow::MemberAlgorithm::{ActiveBackup, HighestRandomWeight};
    // Port 9 does not exist; without a choice, nothing is read.
    let backup = actions_for(&tagged(5), vec![bundle(ActiveBackup, None)]);
    assert_eq!(backup.actions, [DpAction::Output(DpPort(2))]);
    assert_eq!(backup.mask().get(Field::EthSrc), 0);
    let mut ports = std::collections::BTreeSet::new();
    for n in 0..32 {
        let mut key = tagged(5);
        key.set(Field::EthSrc, n);
        let verdict = actions_for(&key, vec![bundle(HighestRandomWeight, None)]);
        assert_eq!(verdict.mask().get(Field::EthSrc), Field::EthSrc.info().full_mask());
        ports.insert(format!("{:?}", verdict.actions));
    }
    assert_eq!(ports.len(), 2, "{ports:?}");
    let load = bundle(ActiveBackup, Some(Subfield { field: Field::Reg0, offset: 16, n_bits: 16 }));
    let to = Action::OutputReg { src: Subfield { field: Field::Reg0, offset: 16, n_bits: 16 }, max_len: 0 };
    assert_eq!(actions_for(&tagged(5), vec![load, to]).actions, [DpAction::Output(DpPort(2))]);
}

#[test]
fn the_rest_is_translated_for_both_lengths() {
    let bit = |offset| Subfield { field: Field::Reg0, offset, n_bits: 1 };
    let check = |len, offset| Action::CheckPktLarger { len, dst: bit(offset) };
    let with = |value: u128, mask| {
        let mut m = Match::ANY;
        m.set_masked(Field::Reg0, value, mask);
        m
    };
    let to_table = |table| Action::Resubmit { in_port: None, table: Some(table) };
    let net = network(&[
        (0, Match::ANY, 0, vec![check(1000, 0), to_table(1), Action::SetEthSrc(MacAddr([2; 6])), to_table(2)]),
        (1, with(1, 1), 0, vec![output(PortNo(2))]),
        (1, with(0, 1), 0, vec![check(100, 1)]),
        (2, with(1, 1), 0, vec![Action::WriteActions(vec![output(PortNo(2))])]),
        (2, with(2, 3), 0, vec![output(PortNo(4))]),
    ]);
    let out = |port| DpAction::Output(DpPort(port));
    let source = DpAction::Set {
        field: Field::EthSrc,
        value: MacAddr([2; 6]).to_u64().into(),
        mask: Field::EthSrc.info().full_mask(),
    };
    let mut key = tagged(5);
    key.set_vlan_tci(0);
    let verdict = translate(&net, &key, false);
    // Longer packets go to port 2, and there again with the changes of the action set. Shorter ones are compared a second time,
    // and the actions after the table of that comparison know its result.
    let inner =
        DpAction::CheckPktLen { size: 100, greater: vec![source.clone(), out(4)].into(), lesser: vec![].into() };
    let expected =
        DpAction::CheckPktLen { size: 1000, greater: vec![out(2), source, out(2)].into(), lesser: vec![inner].into() };
    assert_eq!(verdict.actions, [expected]);
    assert_eq!((verdict.error, verdict.drop), (None, None));
    // The comparison does not count the tag.
    let tagged = translate(&net, &tagged(5), false);
    assert!(matches!(&tagged.actions[..], [DpAction::CheckPktLen { size: 1004, .. }]), "{:?}", tagged.actions);
    // Each comparison doubles the rest of the pipeline: twenty are too many.
    let many = network(&[(0, Match::ANY, 0, vec![check(10, 0); 20])]);
    let verdict = translate(&many, &key, false);
    let n = count(&verdict.actions);
    assert!((translate::MAX_ACTION_BYTES / 24..translate::MAX_ACTION_BYTES / 8).contains(&n), "{n}");
}

/// Number of actions, nested ones included.
fn count(actions: &[DpAction]) -> usize {
    actions.iter().map(|action| 1 + action.nested().map(|list| count(list)).sum::<usize>()).sum()
}

#[test]
fn actset_output_follows_the_action_set() {
    let is = |port: PortNo| {
        let mut m = Match::ANY;
        m.set(Field::ActsetOutput, port.0.into());
        m
    };
    let to_table = |table| Action::Resubmit { in_port: None, table: Some(table) };
    let out = |port| DpAction::Output(DpPort(port));
    // The sequence of tables that Open vSwitch 4.0.0 traces in the same way.
    let unset = PortNo::UNSET;
    let net = network(&[
        (0, is(unset), 9, vec![Action::WriteActions(vec![output(PortNo(2))]), to_table(1)]),
        (1, is(PortNo(2)), 9, vec![to_table(3), to_table(4), Action::ClearActions, to_table(2)]),
        (2, is(unset), 9, vec![output(PortNo(4))]),
        (3, is(PortNo(2)), 9, vec![Action::WriteActions(vec![Action::Group(1)])]),
        (4, is(PortNo(2)), 9, vec![output(PortNo(2))]),
        (4, is(unset), 9, vec![output(PortNo(1)), output(PortNo::IN_PORT)]),
    ]);
    let verdict = translate(&net, &tagged(5), false);
    assert_eq!(verdict.actions, [out(1), out(4)]);
    assert_eq!(verdict.mask().get(Field::ActsetOutput), 0, "it is not the packet's");
    // Across a patch port the peer begins without an action set, and the value is known again once the packet is parsed.
    let write = Action::WriteActions(vec![output(PortNo(2))]);
    let net = network(&[
        (0, Match::ANY, 9, vec![write.clone(), ct(1, 0), output(PortNo(3))]),
        (1, is(PortNo(2)), 9, vec![Action::ClearActions, output(PortNo(4))]),
    ]);
    let peer = &net.bridges[&1].tables;
    add_rule(peer, 0, &is(unset), 9, &[output(PortNo(2))]);
    let mut sent = Vec::new();
    execute(Some(&net), &translate(&net, &tagged(5), false).actions, &mut Wire::new(&tagged(5)), &mut sent);
    assert_eq!(sent.iter().map(|sent| sent.0).collect::<Vec<_>>(), [4, 12, 2]);
    let metadata = |verdict: &Verdict| match &verdict.actions[..] {
        [DpAction::Controller(upcall), ..] => upcall.metadata.get(Field::ActsetOutput),
        other => panic!("{other:?}"),
    };
    assert_eq!(metadata(&actions_for(&tagged(5), vec![write, output(PortNo::CONTROLLER)])), 0);
}
