//! The effects of flow mods on tables, and the removal of flows.

use super::*;
use crate::HiddenFlow;
use crate::flow_table::Criteria;
use openflow::flow_mod::FlowFlags;
use openflow::flow_msg::FlowRemovedReason;

fn flags(f: impl FnOnce(&mut FlowFlags)) -> FlowFlags {
    let mut flags = FlowFlags::default();
    f(&mut flags);
    flags
}

/// Priority, cookie and first output of all flows, by priority.
fn flows(bridge: &Ofproto) -> Vec<(u32, u64, u32)> {
    let out = |a: Option<&Action>| match a {
        Some(Action::Output { port, .. }) => port.0,
        _ => 0,
    };
    let mut all: Vec<_> =
        bridge.collect(&Criteria::any()).iter().map(|r| (r.priority, r.cookie, out(r.actions.first()))).collect();
    all.sort_unstable();
    all
}

#[test]
fn commands_select_flows() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let c = Client::new(&br, PeerKind::Service, Version::V13);
    let ok = |fm: FlowMod| assert_eq!(error_of(&c.flow_mod(fm)), None);
    for (n, port) in [(1, 2), (2, 3), (3, 2)] {
        ok(FlowMod { new_cookie: n.into(), ..add(in_port(n), n as u16, vec![output(port)]) });
    }
    // The same match and priority: a replacement. Another priority: another flow.
    ok(FlowMod { new_cookie: 9, ..add(in_port(1), 1, vec![output(3)]) });
    ok(FlowMod { new_cookie: 8, ..add(in_port(1), 7, vec![output(3)]) });
    assert_eq!(flows(&br), [(1, 9, 3), (2, 2, 3), (3, 3, 2), (7, 8, 3)]);
    // Not strict: the priority is ignored, and the cookie stays.
    let modify = |command, m, actions| FlowMod { table_id: Some(0), matching: m, actions, ..FlowMod::new(command) };
    ok(FlowMod { priority: 5, ..modify(FlowModCommand::Modify, in_port(1), vec![output(2)]) });
    assert_eq!(flows(&br), [(1, 9, 2), (2, 2, 3), (3, 3, 2), (7, 8, 2)]);
    ok(FlowMod { priority: 7, ..modify(FlowModCommand::ModifyStrict, in_port(1), vec![output(3)]) });
    ok(FlowMod { priority: 5, ..modify(FlowModCommand::ModifyStrict, in_port(1), vec![output(1)]) });
    ok(FlowMod { cookie: 3, cookie_mask: 3, ..modify(FlowModCommand::Modify, Match::ANY, vec![output(1)]) });
    assert_eq!(flows(&br), [(1, 9, 2), (2, 2, 3), (3, 3, 1), (7, 8, 3)]);
    // In OpenFlow 1.3 a modification adds nothing; in 1.0 it does, with the given cookie.
    ok(modify(FlowModCommand::Modify, in_port(77), vec![output(1)]));
    assert_eq!(flows(&br).len(), 4);
    let old = Client::new(&br, PeerKind::Service, Version::V10);
    let fm = FlowMod {
        priority: 11,
        new_cookie: 6,
        modify_cookie: true,
        table_id: None,
        ..modify(FlowModCommand::Modify, in_port(77), vec![output(1)])
    };
    assert_eq!(error_of(&old.flow_mod(fm)), None);
    assert_eq!(flows(&br)[4], (11, 6, 1));
    // Deletions: by output port, strict, and of all flows.
    ok(FlowMod { out_port: PortNo(3), ..command(FlowModCommand::Delete, Match::ANY) });
    assert_eq!(flows(&br), [(1, 9, 2), (3, 3, 1), (11, 6, 1)]);
    ok(FlowMod { table_id: Some(0), priority: 2, ..command(FlowModCommand::DeleteStrict, in_port(3)) });
    assert_eq!(flows(&br).len(), 3);
    ok(FlowMod { table_id: Some(0), priority: 3, ..command(FlowModCommand::DeleteStrict, in_port(3)) });
    assert_eq!(flows(&br).len(), 2);
    ok(FlowMod { table_id: Some(1), ..command(FlowModCommand::Delete, Match::ANY) });
    assert_eq!(flows(&br).len(), 2);
    ok(command(FlowModCommand::Delete, Match::ANY));
    assert!(flows(&br).is_empty());
}

#[test]
fn unsupported_flows_are_refused() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let c = Client::new(&br, PeerKind::Service, Version::V13);
    let refused = |fm: FlowMod| error_of(&c.flow_mod(fm));
    assert_eq!(refused(FlowMod { table_id: Some(254), ..add(Match::ANY, 1, vec![]) }), Some(OfpError::BrcEperm));
    assert_eq!(refused(FlowMod { table_id: Some(254), ..FlowMod::new(FlowModCommand::Delete) }), None);
    assert_eq!(refused(add(in_port(1), 5, vec![])), None);
    let overlap = |m, priority| FlowMod { flags: flags(|f| f.check_overlap = true), ..add(m, priority, vec![]) };
    assert_eq!(refused(overlap(Match::ANY, 5)), Some(OfpError::FmfcOverlap));
    assert_eq!(refused(overlap(Match::ANY, 6)), None);
    assert_eq!(refused(overlap(in_port(2), 5)), None);
    // A flow does not overlap with the one that it replaces.
    let mut m = Match::ANY;
    m.set(Field::EthSrc, 1);
    assert_eq!(refused(add(m, 5, vec![])), None);
    assert_eq!(refused(overlap(in_port(1), 5)), None);
    // There are no buffers: the flow is added, and the controller is notified that its packet was not found.
    let before = br.n_flows();
    let fm = FlowMod { buffer_id: Some(3), ..add(in_port(3), 1, vec![]) };
    assert_eq!(refused(fm), Some(OfpError::BrcBufferUnknown));
    assert_eq!(br.n_flows(), before + 1);
    let secondary = Client::new(&br, PeerKind::Service, Version::V13);
    secondary.peer.state.lock().role = openflow::switch::Role::Secondary;
    assert_eq!(error_of(&secondary.flow_mod(add(in_port(9), 1, vec![]))), Some(OfpError::BrcIsSecondary));
}

#[test]
fn removals_report_final_counts() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    let flag_removed = flags(|f| f.send_flow_rem = true);
    let flow = |port, idle, hard, to| FlowMod {
        idle_timeout: idle,
        hard_timeout: hard,
        flags: flag_removed,
        new_cookie: 5,
        ..add(in_port(port), port as u16, vec![output(to)])
    };
    c.flow_mod(flow(1, 10, 0, 2));
    c.flow_mod(flow(2, 0, 15, 1));
    for _ in 0..4 {
        lab.send("br-1", &[frame(1, 2), frame(1, 3)]);
        lab.send("br-2", &[frame(2, 1)]);
        lab.clock.warp(3000);
        lab.switch.housekeeping();
    }
    assert!(c.waiting().is_empty());
    // The hard timeout expires after 15 s, not at them; packets counted since the last statistics are included.
    lab.send("br-2", &[frame(2, 1)]);
    lab.clock.warp(3000);
    lab.switch.housekeeping();
    assert!(c.waiting().is_empty());
    lab.clock.warp(1);
    lab.switch.housekeeping();
    let removed = |messages: Vec<Message>| -> Vec<_> {
        let of = |m: Message| match m {
            Message::FlowRemoved(_, r) => {
                (r.reason, r.priority, r.cookie, r.packet_count, r.byte_count, r.duration_sec)
            }
            other => panic!("{other:?}"),
        };
        messages.into_iter().map(of).collect()
    };
    assert_eq!(removed(c.waiting()), [(FlowRemovedReason::HardTimeout, 2, 5, 5, 300, 15)]);
    // The last packet of flow 1 arrived at 9 s.
    lab.clock.warp(3999);
    lab.switch.housekeeping();
    assert!(c.waiting().is_empty());
    lab.clock.warp(1);
    lab.switch.housekeeping();
    assert_eq!(removed(c.waiting()), [(FlowRemovedReason::IdleTimeout, 1, 5, 8, 480, 19)]);
    // A deletion reports packets that only the datapath has counted so far.
    c.flow_mod(flow(1, 0, 0, 2));
    lab.send("br-1", &vec![frame(1, 2); 50]);
    let reported = removed(c.flow_mod(command(FlowModCommand::Delete, Match::ANY)));
    assert_eq!(reported, [(FlowRemovedReason::Delete, 1, 5, 50, 3000, 0)]);
    assert_eq!(br.n_flows(), 0);
}

#[test]
fn no_packet_takes_an_outdated_flow() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let c = Client::new(&br, PeerKind::Service, Version::V13);
    for round in 0..20 {
        let (to, other) = if round % 2 == 0 { ("br-2", "br-3") } else { ("br-3", "br-2") };
        c.flow_mod(add(in_port(1), 1, vec![output(2 + round % 2)]));
        lab.send("br-1", &vec![frame(1, 2); 40]);
        assert_eq!((lab.received(to).len(), lab.received(other).len()), (40, 0));
    }
    c.flow_mod(command(FlowModCommand::Delete, Match::ANY));
    lab.send("br-1", &vec![frame(1, 2); 40]);
    assert_eq!((lab.received("br-2").len(), lab.received("br-3").len()), (0, 0));
}

#[test]
fn openflow_cannot_reach_hidden_flows() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let c = Client::new(&br, PeerKind::Controller, Version::V10);
    c.flow_mod(add(Match::ANY, u16::MAX, vec![output(2)]));
    let range = 0x2_0000..=0x2_ffff;
    let hidden = |priority, port| HiddenFlow { priority, matching: in_port(1), actions: vec![output(port)] };
    br.set_hidden(&range, &[hidden(0x2_0000, 3)]);
    let shown = || crate::show::dump_flows(&br, &flow::text::NoNames);
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!((lab.received("br-2").len(), lab.received("br-3").len()), (0, 1));
    assert_eq!(c.counts(), [(u16::MAX, 0, 0)]);
    assert_eq!(br.n_flows(), 1);
    assert!(shown().contains("n_packets=1, n_bytes=60, priority=131072,in_port=1,actions=output:3\n"), "{}", shown());
    // OpenFlow neither modifies, deletes nor flushes it, and its own equal flow is another one.
    for change in [FlowModCommand::Modify, FlowModCommand::Delete, FlowModCommand::DeleteStrict] {
        assert!(c.flow_mod(command(change, Match::ANY)).is_empty());
    }
    br.flush_flows();
    assert!(c.counts().is_empty() && shown().contains("priority=131072"));
    // A flow that is set again stays, with its counters; missing ones are removed, and those of other ranges stay.
    br.set_hidden(&(0x3_0000..=0x3_0000), &[hidden(0x3_0000, 2)]);
    br.set_hidden(&range, &[hidden(0x2_0000, 3), hidden(0x2_0001, 2)]);
    assert!(shown().contains("n_packets=1, n_bytes=60, priority=131072") && shown().contains("priority=131073"));
    br.set_hidden(&range, &[]);
    assert_eq!(shown().matches("priority=").count(), 1, "{}", shown());
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!((lab.received("br-2").len(), lab.received("br-3").len()), (1, 0));
}

proptest::proptest! {
    /// Compares with a scan of all flows, in committed and failed transactions.
    #[test]
    fn indexes_find_what_a_scan_finds(steps in proptest::collection::vec((0u8..6, 0u64..3, 0u32..3, 0u16..12), 1..60)) {
        let mut lab = Lab::new();
        let br = lab.bridge("br", 1);
        for id in 0..3 {
            let group = openflow::GroupMod::new(openflow::GroupCommand::Add, id);
            br.transaction(|t| t.group_mod(&group)).expect("adds");
        }
        let mut there = [true; 3];
        for (what, cookie, group, n) in steps {
            let matching = in_port(u32::from(n % 4));
            let actions = if n % 3 == 0 || !there[group as usize] { vec![] } else { vec![Action::Group(group)] };
            let put = FlowMod { table_id: Some((n % 2) as u8), new_cookie: cookie, ..add(matching.clone(), n, actions) };
            let by_cookie = FlowMod { cookie, cookie_mask: u64::MAX, ..command(FlowModCommand::Delete, Match::ANY) };
            match what {
                0..3 => _ = br.flow_mod(&put).expect("adds"),
                3 if n % 4 == 0 => {
                    let of_group = FlowMod { out_group: group, cookie_mask: 0, ..by_cookie };
                    br.flow_mod(&of_group).expect("deletes");
                }
                3 => _ = br.flow_mod(&FlowMod { matching, ..by_cookie }).expect("deletes"),
                4 => {
                    let failed = br.transaction(|t| {
                        t.flow_mod(&put)?;
                        t.flow_mod(&by_cookie)?;
                        Err::<(), _>(OfpError::FmfcUnknown)
                    });
                    proptest::prop_assert!(failed.is_err());
                }
                _ => {
                    let change = if there[group as usize] { openflow::GroupCommand::Delete } else { openflow::GroupCommand::Add };
                    there[group as usize] ^= true;
                    let naming = |rules: Vec<Arc<xlate::Rule>>| rules.iter().filter(|r| r.actions.contains(&Action::Group(group))).count();
                    let before = naming(br.collect(&crate::flow_table::Criteria::any()));
                    let ((), removed) = br.transaction(|t| t.group_mod(&openflow::GroupMod::new(change, group))).expect("changes");
                    proptest::prop_assert_eq!(removed.len(), before);
                }
            }
            let all = br.collect(&crate::flow_table::Criteria::any());
            for cookie in 0..3 {
                for matching in [Match::ANY, in_port(1)] {
                    let criteria = crate::flow_table::Criteria { cookie, cookie_mask: u64::MAX, matching: matching.clone(), ..crate::flow_table::Criteria::any() };
                    let mut found: Vec<_> = br.collect(&criteria).iter().map(|r| Arc::as_ptr(r).addr()).collect();
                    let is_it = |r: &&Arc<xlate::Rule>| r.cookie == cookie && (matching == Match::ANY || r.minimatch.expand() == matching);
                    let mut scanned: Vec<_> = all.iter().filter(is_it).map(|r| Arc::as_ptr(r).addr()).collect();
                    found.sort_unstable();
                    scanned.sort_unstable();
                    proptest::prop_assert_eq!(found, scanned);
                }
            }
            for group in 0..3 {
                let of_group = crate::flow_table::Criteria { out_group: group, ..crate::flow_table::Criteria::any() };
                proptest::prop_assert!(br.index.collect(&of_group, u64::MAX - 1).is_some(), "no scan");
                let mut found: Vec<_> = br.collect(&of_group).iter().map(|r| Arc::as_ptr(r).addr()).collect();
                let naming = all.iter().filter(|r| r.actions.contains(&Action::Group(group)));
                let mut scanned: Vec<_> = naming.map(|r| Arc::as_ptr(r).addr()).collect();
                found.sort_unstable();
                scanned.sort_unstable();
                proptest::prop_assert_eq!(found, scanned);
            }
        }
        br.flush_flows();
        br.tidy(lab.clock.now());
        proptest::prop_assert!(br.index.is_empty(), "nothing stays behind");
    }
}

proptest::proptest! {
    /// Compares with a scan of all flows, in virtual time.
    #[test]
    fn the_timer_wheel_finds_what_a_scan_finds(
        steps in proptest::collection::vec((0u8..5, 0u16..8, 0u16..4, 0u16..4, 1u64..1500), 1..80)
    ) {
        let mut lab = Lab::new();
        let br = lab.bridge("br", 1);
        for (what, priority, idle_timeout, hard_timeout, ms) in steps {
            let now = lab.clock.now();
            match what {
                0 => {
                    let flow = FlowMod { idle_timeout, hard_timeout, ..add(Match::ANY, priority, vec![]) };
                    br.flow_mod(&flow).expect("adds");
                }
                1 => {
                    let delete = FlowMod { priority, ..command(FlowModCommand::DeleteStrict, Match::ANY) };
                    br.flow_mod(&delete).expect("deletes");
                }
                2 => br.collect(&crate::flow_table::Criteria::any()).iter().take(usize::from(priority)).for_each(|rule| {
                    rule.stats().add(1, 60, now);
                }),
                _ => {
                    lab.clock.warp(ms);
                    let now = lab.clock.now();
                    let mut scanned: Vec<_> = br.scan_expired(now).iter().map(|r| r.priority).collect();
                    let mut found: Vec<_> = br.expire(now).iter().map(|removed| removed.rule.priority).collect();
                    scanned.sort_unstable();
                    found.sort_unstable();
                    proptest::prop_assert_eq!(found, scanned);
                }
            }
        }
        lab.clock.warp(10_000);
        br.expire(lab.clock.now());
        proptest::prop_assert_eq!(br.armed_timers(), 0);
    }
}

#[test]
fn rules_that_are_gone_do_not_fill_the_timer_wheel() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    for _ in 0..5000 {
        br.flow_mod(&FlowMod { hard_timeout: u16::MAX, ..add(Match::ANY, 1, vec![]) }).expect("adds");
    }
    assert!(br.armed_timers() < 1100, "{}", br.armed_timers());
}

#[test]
fn replacing_a_flow_does_not_restart_its_idle_time() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Service, Version::V13);
    let flow = |to, reset| FlowMod {
        idle_timeout: 6,
        flags: flags(|f| f.reset_counts = reset),
        ..add(in_port(1), 1, vec![output(to)])
    };
    // The seconds since the flow was added, and since it was used, and its packets.
    let ages = || {
        lab.switch.revalidate();
        let rules = br.collect(&crate::flow_table::Criteria::any());
        let since = |then| lab.clock.now().since(then) / 1000;
        let packets = rules[0].stats().packets.load(std::sync::atomic::Ordering::Relaxed);
        (since(rules[0].created), since(rules[0].used()), packets)
    };
    c.flow_mod(flow(2, false));
    lab.send("br-1", &[frame(1, 2)]);
    lab.clock.warp(2000);
    c.flow_mod(flow(2, false));
    assert_eq!(ages(), (0, 2, 1));
    lab.clock.warp(1000);
    // Nor do new counters.
    c.flow_mod(flow(2, true));
    assert_eq!(ages(), (0, 3, 0));
    c.flow_mod(FlowMod { command: FlowModCommand::Modify, ..flow(1, true) });
    lab.clock.warp(3000);
    lab.switch.housekeeping();
    assert_eq!(br.n_flows(), 1);
    lab.clock.warp(1);
    lab.switch.housekeeping();
    assert_eq!(br.n_flows(), 0);
    // A packet does.
    c.flow_mod(flow(2, false));
    lab.clock.warp(5000);
    lab.send("br-1", &[frame(1, 2)]);
    lab.clock.warp(6000);
    lab.switch.housekeeping();
    assert_eq!(br.n_flows(), 1);
}
