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
        trace::format(&verdict.trace, &mut text);
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
