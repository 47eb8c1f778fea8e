//! Limits of translations.

use super::*;

fn at_port(port: u32) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(port));
    key
}

fn to(table: u8) -> Action {
    Action::Resubmit { in_port: None, table: Some(table) }
}

#[test]
fn endless_resubmits_end_in_an_error() {
    let again = vec![Action::Resubmit { in_port: None, table: Some(0) }];
    let net = network(&[(0, Match::ANY, 0, again)]);
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    assert_eq!(translate(&net, &key, false).error, Some(TranslationError::Depth));
    let twice = vec![Action::Resubmit { in_port: None, table: Some(1) }; 60];
    let net = network(&[
        (0, Match::ANY, 0, twice.clone()),
        (1, Match::ANY, 0, twice.iter().map(|_| Action::Resubmit { in_port: None, table: Some(2) }).collect()),
        (2, Match::ANY, 0, vec![Action::Resubmit { in_port: None, table: Some(3) }; 60]),
    ]);
    let verdict = translate(&net, &key, false);
    assert_eq!((verdict.error, verdict.actions.len()), (Some(TranslationError::Resubmits), 0));
}

#[test]
fn later_tables_cost_no_depth_and_no_stack() {
    // Up through 200 tables and back to the start, down to the maximum depth.
    let rules: Vec<_> =
        (0..200).map(|t| (t, Match::ANY, 0, vec![to(if t == 199 { 0 } else { t + 1 }), output(PortNo(2))])).collect();
    let verdict = translate(&network(&rules), &at_port(1), false);
    assert_eq!(
        (verdict.error, verdict.drop),
        (Some(TranslationError::Resubmits), Some(base::DropReason::TooManyResubmits))
    );
    let up = translate(&network(&rules[..199]), &at_port(1), false);
    assert_eq!((up.error, up.actions.len()), (None, 199));
}

#[test]
fn clones_within_clones_end() {
    let rules: Vec<_> = (0..200).map(|t| (t, Match::ANY, 0, vec![Action::Clone(vec![to((t + 1) % 200)])])).collect();
    let verdict = translate(&network(&rules), &at_port(1), false);
    assert_eq!(
        (verdict.error, verdict.drop),
        (Some(TranslationError::Depth), Some(base::DropReason::RecursionTooDeep))
    );
}

#[test]
fn each_limit_has_its_own_reason() {
    let many = |action: Action| {
        let net = network(&[(0, Match::ANY, 0, vec![to(1); 70]), (1, Match::ANY, 0, vec![action; 70])]);
        let verdict = translate(&net, &at_port(1), true);
        let mut text = String::new();
        trace::format(&verdict.trace.expect("asked for").nodes, &mut text);
        (verdict.drop, verdict.error.map(TranslationError::summary), text)
    };
    let (drop, summary, text) = many(Action::StackPush(Subfield::whole(Field::Reg0)));
    assert_eq!((drop, summary), (Some(base::DropReason::StackTooDeep), Some("Stack too deep")));
    assert!(text.ends_with(">>>> resubmits yielded over 64 kB of stack <<<<\n"), "{text}");
    let (drop, summary, text) =
        many(Action::WriteActions(vec![Action::RegLoad { dst: Subfield::whole(Field::Reg0), value: 1 }; 99]));
    assert_eq!((drop, summary), (Some(base::DropReason::TooManyActions), Some("Too many actions")));
    assert!(text.ends_with(">>>> over 1024 actions in the action set <<<<\n"), "{text}");
    // Beyond this number of datapath actions, the rest is left out.
    let (drop, summary, text) = many(Action::Controller(Box::default()));
    assert_eq!((drop, summary), (None, None));
    assert!(text.ends_with(">>>> resubmits yielded over 64 kB of actions <<<<\n"), "{text}");
    let (drop, ..) = many(output(PortNo(2)));
    assert_eq!(drop, None);
}

#[test]
fn loops_between_bridges_end() {
    let back = [output(PortNo::IN_PORT)];
    let net = network_and_peer(&[(0, Match::ANY, 0, vec![output(PortNo(3)), output(PortNo::IN_PORT)])], &back);
    // The error stays behind the patch port at which it happens.
    let verdict = translate(&net, &at_port(1), true);
    assert_eq!((verdict.error, verdict.actions), (None, vec![DpAction::Output(DpPort(1))]));
    assert!(text_of(verdict.trace).contains(">>>> over max translation depth 64 <<<<"));
}

fn text_of(trace: Option<Box<Trace>>) -> String {
    let mut text = String::new();
    trace::format(&trace.expect("asked for").nodes, &mut text);
    text
}

#[test]
fn an_error_behind_a_patch_port_stays_there() {
    let labels = [output(PortNo(1)), Action::PushMpls(0x8847), Action::PushMpls(0x8847), Action::PushMpls(0x8847)];
    let labels = [&labels[..], &[Action::PushMpls(0x8847), output(PortNo(2))]].concat();
    let mut key = at_port(1);
    key.set(Field::EthType, 0x800);
    // As Open vSwitch 4.0.0 traces it: `6,2`.
    let net = network_and_peer(&[(0, Match::ANY, 0, vec![output(PortNo(3)), output(PortNo(2))])], &labels);
    let verdict = translate(&net, &key, false);
    assert_eq!((verdict.error, verdict.drop), (None, None));
    assert_eq!(verdict.actions, [DpAction::Output(DpPort(11)), DpAction::Output(DpPort(2))]);
    // If nothing is output, the reason remains.
    let net = network_and_peer(&[(0, Match::ANY, 0, vec![output(PortNo(3))])], &labels[1..]);
    let verdict = translate(&net, &key, false);
    assert_eq!((verdict.error, verdict.drop), (None, Some(base::DropReason::TooManyLabels)));
    // Without a patch port, the packet is dropped.
    let verdict = translate(&network(&[(0, Match::ANY, 0, labels)]), &key, false);
    assert_eq!((verdict.error, verdict.actions.len()), (Some(TranslationError::Labels), 0));
}

#[test]
fn an_error_of_a_bucket_stays_there_unless_it_is_a_limit() {
    let to_table = [to(1)];
    let mut group = group_of(1, &to_table, 2);
    group.buckets[1] = group_of(2, &[output(PortNo(2))], 1).buckets.remove(0);
    let of = |table: Vec<Action>| {
        let mut key = at_port(1);
        key.set(Field::EthType, 0x800);
        let mut group = group_of(1, &to_table, 2);
        group.buckets[1] = group_of(2, &[output(PortNo(2))], 1).buckets.remove(0);
        let rules = [
            (0, Match::ANY, 0, vec![Action::Group(1), output(PortNo(1)), output(PortNo::IN_PORT)]),
            (1, Match::ANY, 0, table),
        ];
        let verdict = translate(&network_with(&rules, vec![group], &[]), &key, false);
        (verdict.error, verdict.actions)
    };
    let out = |port| DpAction::Output(DpPort(port));
    let mut labels = vec![output(PortNo(4))];
    labels.extend(vec![Action::PushMpls(0x8847); 4]);
    // As Open vSwitch 4.0.0 traces it: `2,5,3,4` for buckets of 2, the error, and 3.
    assert_eq!(of(labels), (None, vec![out(4), out(2), out(1)]));
    let encap = openflow::action::Encap {
        header: openflow::action::EncapHeader::Ethernet,
        header_len: 0,
        properties: Vec::new(),
    };
    assert_eq!(of(vec![output(PortNo(4)), Action::Encap(Box::new(encap))]), (None, vec![out(4), out(2), out(1)]));
    assert_eq!(of(vec![output(PortNo(4)), to(1)]), (Some(TranslationError::Depth), vec![]));
}

#[test]
fn a_bucket_or_copy_whose_pipeline_forks_leaves_the_position_alone() {
    let check = Action::CheckPktLarger { len: 100, dst: Subfield { field: Field::Reg0, offset: 0, n_bits: 1 } };
    let asks = Action::Controller(Box::default());
    for inner in [Action::Clone(vec![to(1)]), Action::Group(1)] {
        let rules =
            [(0, Match::ANY, 0, vec![inner, asks.clone()]), (1, Match::ANY, 0, vec![check.clone(), output(PortNo(2))])];
        let verdict = translate(&network_with(&rules, vec![group_of(1, &[to(1)], 1)], &[]), &at_port(1), false);
        let Some(DpAction::Controller(upcall)) = verdict.actions.last() else { panic!("{:?}", verdict.actions) };
        assert_eq!((upcall.table, verdict.error), (0, None));
    }
}

#[test]
fn the_actions_up_to_the_limit_are_carried_out() {
    let n_of = |verdict: &Verdict| verdict.actions.iter().filter(|a| matches!(a, DpAction::Output(_))).count();
    let of = |first: Vec<Action>, second: Vec<Action>| {
        translate(&network(&[(0, Match::ANY, 0, first), (1, Match::ANY, 0, second)]), &at_port(1), false)
    };
    // The list that exceeds 64 KiB continues to its end, and the next resubmit ends the translation, as in Open vSwitch.
    let mut list = vec![output(PortNo(2)); 9000];
    list.extend([to(1), output(PortNo(4))]);
    let verdict = of(list, vec![output(PortNo(2))]);
    assert_eq!((verdict.error, verdict.drop, n_of(&verdict)), (None, None, 9000));
    // A single list has a limit too.
    let long = of(vec![output(PortNo(2)); 1 << 18], vec![]);
    assert_eq!((long.error, n_of(&long)), (None, translate::MAX_LIST_BYTES / 8 + 1));
}

pub(super) fn group_of(id: u32, actions: &[Action], n: usize) -> Group {
    let bucket = openflow::Bucket { actions: actions.into(), ..openflow::Bucket::new(openflow::GroupKind::All) };
    Group {
        id,
        kind: openflow::GroupKind::All,
        buckets: vec![GroupBucket::new(bucket); n],
        properties: openflow::group::GroupProperties::default(),
        created: Millis(0),
        counters: Arc::default(),
        spread: crate::groups::Spread::default(),
    }
}

#[test]
fn groups_that_lead_to_each_other_or_fan_out_end() {
    let rules = [(0, Match::ANY, 0, vec![Action::Group(1)])];
    let to_itself = vec![group_of(1, &[Action::Group(1)], 1)];
    let error = |groups| translate(&network_with(&rules, groups, &[]), &at_port(1), false).error;
    assert_eq!(error(to_itself), Some(TranslationError::Depth));
    // Each group has two buckets that lead to the next one: 2 to the power of 40 in all.
    let fan = (1..40).map(|id| group_of(id, &[Action::Group(id + 1)], 2)).collect();
    assert_eq!(error(fan), Some(TranslationError::Resubmits));
    let rules = [(0, Match::ANY, 0, vec![Action::Clone(vec![Action::Group(7)]), output(PortNo(77))])];
    let verdict = translate(&network_with(&rules, Vec::new(), &[]), &at_port(1), false);
    assert_eq!((verdict.error, verdict.drop), (None, Some(base::DropReason::NoGroup)));
    assert!(verdict.dependencies.contains(&Dependency::Group { bridge: 0, group: 7 }));
}

#[test]
fn actions_that_lead_nowhere_are_counted_too() {
    let busy = vec![Action::SetEthDst(MacAddr([2; 6])); 4000];
    let net = network(&[(0, Match::ANY, 0, vec![to(1); 4000]), (1, Match::ANY, 0, busy)]);
    let verdict = translate(&net, &at_port(1), false);
    assert_eq!((verdict.error, verdict.drop), (Some(TranslationError::Steps), Some(base::DropReason::TooManyActions)));
}

#[test]
fn a_port_given_to_a_resubmit_counts_as_written() {
    let mut m = Match::ANY;
    m.set(Field::InPortOxm, 2);
    let again = Action::Resubmit { in_port: Some(PortNo(2)), table: Some(1) };
    let net = network(&[(0, Match::ANY, 0, vec![again, to(1)]), (1, m, 0, vec![output(PortNo(4))])]);
    let verdict = translate(&net, &at_port(1), false);
    assert_eq!(verdict.actions, [DpAction::Output(DpPort(4))]);
    let ports = |d: &Dependency| match d {
        Dependency::Lookup(lookup) => {
            let word =
                lookup.written.of(&verdict.written).iter().find(|(word, ..)| usize::from(*word) == layout::PORTS)?;
            Some((lookup.table, word.2 >> 32, lookup.found))
        }
        _ => None,
    };
    let seen: Vec<_> = verdict.dependencies.iter().filter_map(ports).collect();
    assert_eq!(seen, [(0, 1, Some(0)), (1, 2, Some(0)), (1, 1, None)]);
}
