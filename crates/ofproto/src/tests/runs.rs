//! Runs of flow mods, applied together: the result must be the same as one by one.

use super::monitors::{monitor, updates};
use super::*;
use crate::TableSettings;
use crate::flow_table::Criteria;
use openflow::bundle::{BundleAdd, BundleControl, BundleStep, flag as bundle_flag};
use openflow::flow_mod::FlowFlags;
use openflow::monitor::flag;
use proptest::prelude::*;

/// Flow mods of a few kinds that affect each other; some fail.
fn flow_mods() -> impl Strategy<Value = Vec<FlowMod>> {
    let one = (0..12u8, 0..3u8, 0..4u32, 0..3u16, 0..5u32, 0..8u8);
    prop::collection::vec(one, 1..40).prop_map(|all| {
        // Each has an importance of its own, so that eviction is deterministic.
        let numbered = |(importance, one)| FlowMod { importance, ..flow_mod_of(one) };
        (1..).zip(all).map(numbered).collect()
    })
}

fn flow_mod_of((what, table, port, priority, out, flags): (u8, u8, u32, u16, u32, u8)) -> FlowMod {
    let command = match what {
        0..=6 => FlowModCommand::Add,
        7 => FlowModCommand::Modify,
        8 => FlowModCommand::ModifyStrict,
        9 => FlowModCommand::Delete,
        _ => FlowModCommand::DeleteStrict,
    };
    let matching = if port == 0 { Match::ANY } else { in_port(port) };
    // A group that does not exist, or a port.
    let action = if out == 4 { Action::Group(7) } else { output(out + 1) };
    FlowMod {
        table_id: Some(table),
        priority,
        matching,
        new_cookie: out.into(),
        buffer_id: (flags == 7 && what == 0).then_some(3),
        flags: FlowFlags {
            check_overlap: flags & 1 != 0,
            send_flow_rem: flags & 2 != 0,
            reset_counts: flags & 4 != 0,
            ..FlowFlags::default()
        },
        actions: vec![action],
        ..FlowMod::new(command)
    }
}

/// A bridge whose table 1 holds three flows at most, and whose table 2 evicts; a connection that modifies flows, and one that
/// monitors them.
fn set_up(lab: &mut Lab, name: &str) -> (Client, Client) {
    let bridge = lab.bridge(name, 4);
    let limit = |evict| TableSettings { max_flows: Some(3), evict, ..TableSettings::default() };
    bridge.configure_tables(&[(1, limit(false)), (2, limit(true))].into());
    let watcher = Client::new(&bridge, PeerKind::Controller, Version::V14);
    let monitor = monitor(1, flag::ADD | flag::DELETE | flag::MODIFY | flag::ACTIONS);
    watcher.send(&Message::StatsRequest { more: false, body: StatsRequest::FlowMonitor(vec![monitor]) });
    (Client::new(&bridge, PeerKind::Controller, Version::V14), watcher)
}

/// All flows, with their actions.
fn flows(bridge: &Ofproto) -> Vec<String> {
    let rules = bridge.collect(&Criteria::any());
    let text = |r: &Arc<xlate::Rule>| {
        format!("{} {} {:?} {} {:?}", r.table, r.priority, r.minimatch.expand(), r.cookie, r.actions)
    };
    let mut all: Vec<_> = rules.iter().map(text).collect();
    all.sort_unstable();
    all
}

tally::proptest! {
    #[test]
    fn a_run_equals_single_flow_mods(mods in flow_mods(), cut in 1..20usize) {
        let mut lab = Lab::new();
        let (alone, watches_alone) = set_up(&mut lab, "alone");
        let (together, watches_together) = set_up(&mut lab, "together");
        let bytes = |fm: &FlowMod| {
            encode(Version::V14, 9, &Message::FlowMod(Form::Standard, Box::new(fm.clone())))
        };
        let messages: Vec<_> = mods.iter().map(bytes).collect();
        for some in messages.chunks(cut) {
            let one_by_one: Vec<_> = some.iter().flat_map(|message| alone.bytes(message)).collect();
            let mut left = some;
            while !left.is_empty() {
                let taken = together.bridge.handle_run(&together.peer, left.iter().map(Vec::as_slice));
                prop_assert!(taken > 0, "none of {left:?} was taken");
                left = &left[taken..];
            }
            // In a run, removals are reported after the errors. The order of removals by one message
            // is arbitrary.
            let in_order = |mut lines: Vec<String>| {
                lines.sort_unstable();
                lines
            };
            let reported = |messages: Vec<Message>| {
                let (errors, rest): (Vec<_>, Vec<_>) = messages.into_iter().partition(|m| matches!(m, Message::Error(_)));
                (errors, in_order(rest.iter().map(|m| format!("{m:?}")).collect()))
            };
            prop_assert_eq!(reported(together.waiting()), reported(one_by_one));
            let watched = |messages: Vec<Message>| {
                let (flow_updates, ended): (Vec<_>, Vec<_>) =
                    messages.into_iter().partition(|m| matches!(m, Message::StatsReply { .. }));
                let updates = updates(flow_updates).iter().map(|update| format!("{update:?}")).collect();
                (in_order(updates), in_order(ended.iter().map(|m| format!("{m:?}")).collect()))
            };
            prop_assert_eq!(watched(watches_together.waiting()), watched(watches_alone.waiting()));
            prop_assert_eq!(flows(&together.bridge), flows(&alone.bridge));
            for table in 0..3 {
                let n = |bridge: &Ofproto| bridge.tables()[table].n_active();
                prop_assert_eq!(n(&together.bridge), n(&alone.bridge));
            }
        }
    }
}

#[test]
fn other_messages_end_a_run() {
    let mut lab = Lab::new();
    let bridge = lab.bridge("br", 2);
    let client = Client::new(&bridge, PeerKind::Controller, Version::V14);
    let fm = |priority| Message::FlowMod(Form::Standard, Box::new(add(Match::ANY, priority, vec![output(1)])));
    let messages = [fm(1), fm(2), Message::BarrierRequest, fm(3)].map(|m| encode(Version::V14, 9, &m));
    let take = |from: usize| bridge.handle_run(&client.peer, messages[from..].iter().map(Vec::as_slice));
    assert_eq!([take(0), take(2), take(3)], [2, 0, 1]);
    assert_eq!(bridge.n_flows(), 3);
    // A malformed message and one of another version end the run; the ordinary path answers them.
    let mut torn = messages[0].clone();
    torn[25] = 99;
    let other = encode(Version::V13, 9, &fm(4));
    for message in [&torn, &other] {
        let run = [&messages[0], message].map(Vec::as_slice);
        assert_eq!(bridge.handle_run(&client.peer, run.into_iter()), 1);
        assert_eq!(bridge.handle_run(&client.peer, run[1..].iter().copied()), 0);
    }
    // So do those of a secondary controller.
    client.peer.demote(None);
    client.peer.state.lock().role = openflow::role::Role::Secondary;
    assert_eq!(take(0), 0);
    assert_eq!(error_of(&client.bytes(&messages[0])), Some(OfpError::BrcIsSecondary));
}

#[test]
fn a_failed_attempt_is_undone() {
    let mut lab = Lab::new();
    let bridge = lab.bridge("br", 2);
    let first = add(in_port(1), 1, vec![output(1)]);
    assert!(bridge.flow_mod(&first).is_ok());
    let before = flows(&bridge);
    let ((), removed) = bridge
        .transaction(|t| {
            for placed in [false, true] {
                let failed = t.attempt(|t| {
                    t.flow_mod(&add(in_port(1), 1, vec![output(2)]))?;
                    t.flow_mod(&add(in_port(2), 1, vec![output(2)]))?;
                    if placed {
                        // Reading the table inserts the waiting rules.
                        t.flow_mod(&command(FlowModCommand::Modify, in_port(2)))?;
                    }
                    Err::<(), _>(OfpError::FmfcUnknown)
                });
                assert_eq!(failed, Err(OfpError::FmfcUnknown));
                assert_eq!(t.n_flows(0), 1);
            }
            t.flow_mod(&add(in_port(2), 9, vec![output(1)]))
        })
        .expect("the last one is fine");
    assert!(removed.is_empty());
    let after = flows(&bridge);
    assert_eq!((after.len(), bridge.n_flows()), (2, 2));
    assert!(before.iter().all(|flow| after.contains(flow)));
}

#[test]
fn flow_mods_in_bundles_form_runs_too() {
    let mut lab = Lab::new();
    let bridge = lab.bridge("br", 2);
    let client = Client::new(&bridge, PeerKind::Controller, Version::V14);
    let fm = |priority, port| Message::FlowMod(Form::Standard, Box::new(add(Match::ANY, priority, vec![output(port)])));
    let flags = bundle_flag::ATOMIC;
    let put = |message| Message::BundleAdd(Box::new(BundleAdd { bundle_id: 5, flags, message }));
    let end = |step: BundleStep| Message::BundleControl(BundleControl { bundle_id: 5, ty: step.wire(false), flags });
    let messages = [put(fm(1, 1)), put(fm(2, 1)), put(Message::BarrierRequest), put(fm(3, 1)), fm(9, 1)];
    let messages = messages.map(|m| encode(Version::V14, 9, &m));
    let take = |from: usize| bridge.handle_run(&client.peer, messages[from..].iter().map(Vec::as_slice));
    client.send(&end(BundleStep::Open));
    // A run in a bundle includes neither messages that bundles refuse nor messages outside of the bundle.
    assert_eq!([take(0), take(2), take(3), take(4)], [2, 0, 1, 1]);
    assert_eq!(bridge.n_flows(), 1);
    client.send(&end(BundleStep::Close));
    client.send(&end(BundleStep::Commit));
    assert_eq!(bridge.n_flows(), 4);
}

#[test]
fn the_memory_of_a_connection_does_not_grow_with_its_input() {
    let mut lab = Lab::new();
    let bridge = lab.bridge("br", 2);
    let client = Client::new(&bridge, PeerKind::Controller, Version::V14);
    let long = add(Match::ANY, 1, vec![output(1); 2000]);
    let message = encode(Version::V14, 9, &Message::FlowMod(Form::Standard, Box::new(long)));
    let kept = || client.peer.run.lock().capacity();
    for _ in 0..3 {
        assert_eq!(bridge.handle_run(&client.peer, [&*message, &*message].into_iter()), 2);
        assert!(client.bytes(&message).is_empty() && kept() <= 2 * 32, "{}", kept());
    }
    assert_eq!(bridge.n_flows(), 1);
}
