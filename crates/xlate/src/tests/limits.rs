//! What is without end comes to one.

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
    // Up through 200 tables and back to the start, nested as deep as it goes.
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
    let (drop, summary, text) = many(Action::Controller(Box::default()));
    assert_eq!((drop, summary), (Some(base::DropReason::TooManyActions), Some("Too many actions")));
    assert!(text.ends_with(">>>> resubmits yielded over 64 kB of actions <<<<\n"), "{text}");
    let (drop, ..) = many(output(PortNo(2)));
    assert_eq!(drop, None);
}

#[test]
fn bridges_that_send_to_each_other_end() {
    let back = [output(PortNo::IN_PORT)];
    let net = network_and_peer(&[(0, Match::ANY, 0, vec![output(PortNo(3)), output(PortNo::IN_PORT)])], &back);
    let verdict = translate(&net, &at_port(1), false);
    assert_eq!((verdict.error, verdict.actions.len()), (Some(TranslationError::Depth), 0));
}

fn group_of(id: u32, actions: &[Action], n: usize) -> Group {
    let bucket = openflow::Bucket { actions: actions.into(), ..openflow::Bucket::new(openflow::GroupKind::All) };
    Group {
        id,
        kind: openflow::GroupKind::All,
        buckets: vec![GroupBucket { bucket, counters: Arc::default() }; n],
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
    // Each has two buckets that lead to the next: 2 to the power of 40 in all.
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
