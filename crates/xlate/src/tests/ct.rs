//! Connection tracking, case by case, and packets that return from it.

use super::regions::{World, in_region, packet};
use super::*;
use base::rng::Rng;
use dpif::text::format_actions;
use flow::Prereq;
use flow::text::NoNames;

fn parsed(actions: &str) -> Vec<Action> {
    openflow::parse_actions(actions, &NoNames).expect("actions")
}

fn tcp() -> FlowKey {
    flow::text::parse_exact("in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_src=1000,tcp_dst=80", &NoNames)
        .expect("key")
}

/// A network with these flows: table, match and actions.
fn tables(flows: &[(u8, &str, &str)]) -> Network {
    tables_and_groups(flows, &[])
}

/// The same with groups.
fn tables_and_groups(flows: &[(u8, &str, &str)], groups: &[&str]) -> Network {
    let rules: Vec<_> = flows
        .iter()
        .enumerate()
        .map(|(i, (table, matching, actions))| {
            let flow =
                openflow::parse_flow(&format!("{matching},actions=drop"), openflow::FlowModCommand::Add, &NoNames)
                    .expect("a match");
            (*table, flow.flow_mod.matching, 100 - i as u16, parsed(actions))
        })
        .collect();
    network_with(&rules, groups.iter().map(|text| group_of_text(text)).collect(), &[])
}

fn text(verdict: &Verdict) -> String {
    format_actions(&verdict.actions, 0x800, &|_| None)
}

/// The datapath actions for one flow with these actions.
fn actions_of(actions: &str) -> String {
    let verdict = translate(&tables(&[(0, "ip", actions)]), &tcp(), true);
    assert_eq!(verdict.error, None);
    text(&verdict)
}

#[test]
fn actions_before_and_after_the_tracker() {
    for (actions, want) in [
        ("ct(commit),2", "ct(commit),2"),
        ("ct(commit,force,zone=7),2", "ct(force_commit,zone=7),2"),
        ("ct(commit,exec(set_field:5->ct_mark)),2", "ct(commit,mark=0x5/0xffffffff),2"),
        ("ct(commit,exec(set_field:5/0xf->ct_mark,set_field:0x10/0xf0->ct_mark)),2", "ct(commit,mark=0x15/0xff),2"),
        ("ct(commit,exec(set_field:5->ct_label)),2", "ct(commit,label=0x5),2"),
        (
            "ct(commit,exec(load:1->ct_label[64..127])),2",
            "ct(commit,label=0x10000000000000000/0xffffffffffffffff0000000000000000),2",
        ),
        ("ct(commit,exec(move:NXM_OF_IP_SRC[]->NXM_NX_CT_MARK[])),2", "ct(commit,mark=0xa000001/0xffffffff),2"),
        ("ct(commit,alg=ftp),2", "ct(commit,helper=ftp),2"),
        ("ct(nat),2", "ct(nat),2"),
        (
            "ct(commit,nat(src=1.2.3.4-1.2.3.9:10-20,persistent,random)),2",
            "ct(commit,nat(src=1.2.3.4-1.2.3.9:10-20,persistent,random)),2",
        ),
        (
            "ct(commit,zone=9,nat(dst=[fe80::1]:80),exec(set_field:1->ct_mark))",
            "ct(commit,zone=9,mark=0x1/0xffffffff,nat(dst=[fe80::1]:80))",
        ),
        ("load:3->reg1,ct(zone=reg1[0..15]),2", "ct(zone=3),2"),
        // Earlier changes are committed before the tracker; connection fields read after it are zero.
        (
            "set_field:2.2.2.2->ip_src,ct(commit,exec(set_field:5->ct_mark)),move:NXM_NX_CT_MARK[]->NXM_NX_REG1[],output:reg1",
            "set(ipv4(src=2.2.2.2)),ct(commit,mark=0x5/0xffffffff)",
        ),
        // The tracker may have translated the address that is set.
        ("ct(nat),set_field:10.0.0.1->ip_src,2", "ct(nat),set(ipv4(src=10.0.0.1)),2"),
        ("clone(ct(commit),2),4", "clone(ct(commit),2),4"),
        ("ct_clear,2", "2"),
        ("ct(commit),ct_clear,2", "ct(commit),2"),
    ] {
        assert_eq!(actions_of(actions), want, "{actions}");
    }
}

#[test]
fn a_copy_is_recirculated_and_the_packet_continues() {
    let net = tables(&[
        (0, "ip", "load:7->reg1,ct(table=1,zone=5,commit,exec(set_field:3->ct_mark)),2"),
        (1, "ip,ct_state=+trk+est,ct_zone=5,ct_mark=3,reg1=7", "ct_clear,4"),
        (1, "ip", "drop"),
    ]);
    let verdict = translate(&net, &tcp(), true);
    let trace = verdict.trace.as_ref().expect("one");
    let [fork] = &trace.forks[..] else { panic!("{:?}", trace.forks) };
    let id = fork.key.get(Field::RecircId);
    assert_eq!(text(&verdict), format!("ct(commit,zone=5,mark=0x3/0xffffffff),recirc({id:#x}),2"));
    assert_eq!((fork.key.get(Field::CtZone), fork.key.get(Field::CtMark), fork.nat.as_ref()), (5, 3, None));
    assert_eq!(trace.final_key.get(Field::CtMark), 0);
    let back = |state: u128| {
        let mut key = fork.key.clone();
        // The datapath does not keep registers.
        key.0[layout::REGS_AND_METADATA].fill(0);
        key.set(Field::CtState, state);
        translate(&net, &key, false)
    };
    let established = back(0x22);
    assert_eq!(text(&established), "ct_clear,4");
    assert_eq!(established.mask().get(Field::CtState) & 0x22, 0x22);
    assert_eq!(text(&back(0x21)), "drop");
    assert!(verdict.dependencies.iter().any(|d| matches!(d, Dependency::Frozen(kept) if u128::from(kept.id) == id)));
}

#[test]
fn a_resubmit_looks_up_the_original_direction() {
    let net = tables(&[
        (0, "ip,ct_state=+trk-inv", "resubmit(,1,ct),4"),
        (1, "tcp,nw_src=1.1.1.0/24,nw_dst=1.1.1.2,tcp_src=7,tcp_dst=9", "2"),
    ]);
    let mut key = tcp();
    for (field, value) in [
        (Field::CtState, 0x22),
        (Field::CtNwProto, 6),
        (Field::CtNwSrc, 0x0101_0101),
        (Field::CtNwDst, 0x0101_0102),
        (Field::CtTpSrc, 7),
        (Field::CtTpDst, 9),
    ] {
        key.set(field, value);
    }
    let verdict = translate(&net, &key, false);
    assert_eq!(text(&verdict), "2,4");
    let mask = verdict.mask();
    assert_eq!((mask.get(Field::CtNwSrc), mask.get(Field::Ipv4Src)), (0xffff_ff00, 0));
    assert_eq!((mask.get(Field::CtNwProto), mask.get(Field::CtTpDst), mask.get(Field::TcpDst)), (0xff, 0xffff, 0));
    assert!(verdict.dependencies.contains(&Dependency::Table { bridge: 0, table: 1 }));
    let [of_connection, of_packet] =
        [[Field::CtNwDst, Field::CtTpSrc], [Field::Ipv4Dst, Field::TcpSrc]].map(|fields| fields.map(|f| mask.get(f)));
    assert_eq!((of_connection, of_packet), ([0xffff_ffff, 0xffff], [0, 0]));
    // An unknown connection is not looked up at all.
    key.set(Field::CtNwProto, 0);
    assert_eq!(text(&translate(&net, &key, false)), "4");
}

/// The number of the recirculation with which the actions end.
fn recirculated(verdict: &Verdict) -> u128 {
    match verdict.actions.last() {
        Some(DpAction::Recirc(id)) => u128::from(*id),
        other => panic!("{other:?}"),
    }
}

/// A packet keeps its state, or the lack of one, while the datapath computes its hash.
#[test]
fn a_hash_does_not_change_the_state() {
    let group = "group_id=1,type=select,selection_method=dp_hash,bucket=resubmit(,2),bucket=resubmit(,2)";
    let flows = |first| [(0, "ip", first), (1, "ip", "group:1"), (2, "ip,ct_state=+trk", "ct_clear,4"), (2, "ip", "2")];
    let mut key = tcp();
    let then = |net: &Network, key: &mut FlowKey, id| {
        key.set(Field::RecircId, id);
        key.set(Field::CtState, 0x22);
        key.set(Field::DpHash, 5);
        translate(net, key, false)
    };
    let net = tables_and_groups(&flows("ct(table=1)"), &[group]);
    let id = recirculated(&translate(&net, &key, false));
    let hashed = then(&net, &mut key, id);
    let last = then(&net, &mut key, recirculated(&hashed));
    assert_eq!((&*text(&last), last.mask().get(Field::CtState)), ("ct_clear,4", 0x20));

    // After the action the packet is not tracked, whatever the datapath has kept of it.
    let net = tables_and_groups(&flows("ct(commit),group:1"), &[group]);
    let mut key = tcp();
    let id = recirculated(&translate(&net, &key, false));
    let last = then(&net, &mut key, id);
    assert_eq!((&*text(&last), last.mask().get(Field::CtState)), ("2", 0));
}

/// The tracker may translate an address that the flow matches, so that setting it to the same value is no idle change.
#[test]
fn a_matched_address_is_set_after_a_translation() {
    let net = tables(&[(0, "ip,nw_src=10.0.0.1", "ct(nat),set_field:10.0.0.1->ip_src,2")]);
    assert_eq!(text(&translate(&net, &tcp(), false)), "ct(nat),set(ipv4(src=10.0.0.1)),2");
}

/// A trace may begin with a packet that the tracker has seen.
#[test]
fn clearing_the_state_reads_it() {
    let net = tables(&[(0, "ip", "ct_clear,2")]);
    let mut key = tcp();
    key.set(Field::CtState, 0x22);
    let verdict = translate(&net, &key, false);
    assert_eq!((&*text(&verdict), verdict.mask().get(Field::CtState)), ("ct_clear,2", 0x20));
}

#[test]
fn connection_state_does_not_cross_patch_ports() {
    let rules = [(0, Match::ANY, 0, vec![output(PortNo(3))])];
    let mut tracked = Match::ANY;
    tracked.set_masked(Field::CtState, 0x20, 0x20);
    let net = network_and_peer(&rules, &[output(PortNo(1))]);
    add_rule(&net.bridges[&1].tables, 0, &tracked, 9, &[output(PortNo(2))]);
    let mut key = tcp();
    key.set(Field::CtState, 0x22);
    assert_eq!(text(&translate(&net, &key, false)), "11");
}

/// The peer of the patch port freezes the packet. A flow that does not match `ct_mark` must not pass on the mark of one packet.
#[test]
fn unread_connection_fields_do_not_recirculate_behind_a_patch_port() {
    let group = group_of_text("group_id=1,type=select,bucket=output:1,bucket=output:1");
    let net = network_with(&[(0, Match::ANY, 0, vec![Action::Group(1)])], vec![group], &parsed("ct(table=1)"));
    add_rule(&net.bridges[&1].tables, 1, &Match::ANY, 0, &[output(PortNo(3))]);
    let mut key = tcp();
    key.set_in_port(PortNo(11));
    key.set(Field::RecircId, recirculated(&translate(&net, &key, false)));
    let with_mark = |mark| {
        let mut key = key.clone();
        key.set(Field::CtMark, mark);
        translate(&net, &key, false)
    };
    let (unmarked, marked) = (with_mark(0), with_mark(7));
    assert_eq!((recirculated(&unmarked), &unmarked.reads), (recirculated(&marked), &marked.reads));
    assert_eq!(unmarked.mask().get(Field::CtMark), 0);
}

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases() / 2))]

    /// Every packet in the region of one that returned from the tracker has its verdict.
    #[test]
    fn recirculated_regions_have_one_verdict(seed: u64, exact: bool) {
        let rng = &mut Rng::seeded(seed);
        let mut world = World::new(rng, exact);
        world.rules.push((0, Match::ANY, u16::MAX, vec![ct(1, 7), ct(2, 1)]));
        let net = world.network();
        let key = packet(rng, None);
        let forks = translate(&net, &key, true).trace.map(|trace| trace.forks).unwrap_or_default();
        for fork in forks {
            let mut key = fork.key;
            key.0[..layout::DPHASH_ACTSET].fill(0);
            known(rng, &mut key);
            let verdict = translate(&net, &key, false);
            for _ in 0..8 {
                let Some(mut other) = in_region(rng, &key, &verdict.mask()) else { continue };
                let mut connection = key.clone();
                known(rng, &mut connection);
                for (word, read) in verdict.mask().0.iter().enumerate().take(layout::ETH_DST) {
                    other.0[word] = key.0[word] & read | connection.0[word] & !read;
                }
                other.set(Field::RecircId, key.get(Field::RecircId));
                let again = translate(&net, &other, false);
                prop_assert_eq!(&again.actions, &verdict.actions);
                prop_assert_eq!(&again.reads, &verdict.reads);
                prop_assert_eq!(again.error, verdict.error);
            }
        }
    }
}

/// Random connection state of a packet.
pub(super) fn known(rng: &mut Rng, key: &mut FlowKey) {
    let one = |rng: &mut Rng, of: &[u128]| of[rng.below(of.len() as u64) as usize];
    let state = one(rng, &[0x21, 0x22, 0x2a, 0x30, 0x62]);
    key.set(Field::CtState, state);
    for field in [Field::CtMark, Field::CtZone, Field::CtLabel] {
        key.set(field, one(rng, &[0, 1, 7 << 64]));
    }
    for field in flow::field::FIELDS.iter().filter(|f| f.prereq == Prereq::Ct) {
        key.set(field.id, if state == 0x30 { 0 } else { one(rng, &[6, 17, 0x0a00_0001, 80]) });
    }
}

#[test]
fn connections_are_committed_with_the_policy_of_their_zone() {
    let actions = "ct(commit,zone=5),ct(commit,force,zone=6,exec(set_field:1->ct_mark)),ct(zone=5),ct(commit)";
    let mut net = tables(&[(0, "ip", actions)]);
    assert_eq!(text(&translate(&net, &tcp(), false)).matches("timeout").count(), 0);
    net.timeout_policies = Arc::new([(5, "1".into()), (6, "2".into())].into());
    let expected =
        "ct(commit,zone=5,timeout=1),ct(force_commit,zone=6,mark=0x1/0xffffffff,timeout=2),ct(zone=5),ct(commit)";
    let verdict = translate(&net, &tcp(), false);
    assert_eq!(text(&verdict), expected);
    // A policy is for all protocols, which a flow need not match.
    assert_eq!(verdict.mask().get(Field::IpProto), 0);
}
