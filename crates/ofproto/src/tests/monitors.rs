//! Flow monitors: the updates that they send, in virtual time and without sockets; the updates suffice to know the tables.

use super::*;
use crate::flow_table::{Criteria, output_to};
use openflow::bundle::{BundleAdd, BundleControl, BundleStep, flag as bundle_flag};
use openflow::group::{GroupCommand, GroupMod};
use openflow::monitor::{FlowEvent, FlowMonitorRequest, FlowUpdate, MonitorCommand, MonitoredFlow, flag};
use proptest::prelude::*;
use std::collections::BTreeMap;

const ALL: u16 = 0x3f;

pub(super) fn monitor(id: u32, flags: u16) -> FlowMonitorRequest {
    FlowMonitorRequest {
        id,
        command: MonitorCommand::Add,
        flags,
        out_port: PortNo::ANY,
        out_group: openflow::flow_mod::GROUP_ANY,
        table_id: None,
        matching: Match::ANY,
    }
}

/// The updates in messages, which must contain nothing else.
pub(super) fn updates(messages: Vec<Message>) -> Vec<FlowUpdate> {
    let of = |message| match message {
        Message::StatsReply { body: StatsReply::FlowMonitor(updates), .. } => updates,
        Message::FlowMonitorPaused => vec![FlowUpdate::Paused],
        Message::FlowMonitorResumed => vec![FlowUpdate::Resumed],
        other => panic!("{other:?}"),
    };
    messages.into_iter().flat_map(of).collect()
}

/// The updates in short: `+1` for an addition of priority 1, `=`, `-` and `*` for a modification, a deletion and an initial flow.
fn short(messages: Vec<Message>) -> String {
    let of = |update| match update {
        FlowUpdate::Flow(flow) => match flow.event {
            FlowEvent::Initial => format!("*{}", flow.priority),
            FlowEvent::Added => format!("+{}", flow.priority),
            FlowEvent::Modified => format!("={}", flow.priority),
            FlowEvent::Deleted(reason) => format!("-{}:{reason}", flow.priority),
        },
        FlowUpdate::Abbreviated(xid) => format!("#{xid}"),
        FlowUpdate::Paused => "paused".into(),
        FlowUpdate::Resumed => "resumed".into(),
    };
    updates(messages).into_iter().map(of).collect::<Vec<_>>().join(" ")
}

impl Client {
    fn watch(&self, requests: Vec<FlowMonitorRequest>) -> Vec<Message> {
        self.send(&Message::StatsRequest { more: false, body: StatsRequest::FlowMonitor(requests) })
    }
}

#[test]
fn flags_and_filters_select_changes() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let other = Client::new(&br, PeerKind::Controller, Version::V13);
    other.flow_mod(add(Match::ANY, 1, vec![output(2)]));
    other.flow_mod(add(in_port(1), 2, vec![output(3)]));
    for version in Version::ALL {
        let watch = |request| {
            let client = Client::new(&br, PeerKind::Service, version);
            let updates_sent = short(client.watch(vec![request]));
            (client, updates_sent)
        };
        let initial = if version >= Version::V14 { "*" } else { "+" };
        let (all, updates_sent) = watch(monitor(1, ALL));
        assert_eq!(updates_sent.split(' ').count(), 2, "{updates_sent}");
        assert!(updates_sent.starts_with(initial), "{updates_sent}");
        let (to_port_3, updates_sent) = watch(FlowMonitorRequest { out_port: PortNo(3), ..monitor(7, ALL) });
        assert_eq!(updates_sent, format!("{initial}2"));
        let (in_1, _) = watch(FlowMonitorRequest { matching: in_port(1), ..monitor(1, flag::DELETE | flag::MODIFY) });
        let (table_1, updates_sent) = watch(FlowMonitorRequest { table_id: Some(1), ..monitor(1, ALL) });
        assert_eq!(updates_sent, "");
        let updates_sent = || [&all, &to_port_3, &in_1, &table_1].map(|client| short(client.waiting()));
        other.flow_mod(add(in_port(1), 9, vec![output(2)]));
        assert_eq!(updates_sent(), ["+9", "", "", ""]);
        let to_3 = FlowMod { actions: vec![output(3)], ..command(FlowModCommand::Modify, in_port(1)) };
        other.flow_mod(to_3.clone());
        // The flow of priority 2 was unchanged.
        assert_eq!(updates_sent(), ["=9", "=9", "=9", ""]);
        // A monitor of a port is notified when a flow stops to output there.
        other.flow_mod(FlowMod { actions: vec![], ..to_3.clone() });
        let [all_updates, port, within, _] = updates_sent();
        let sorted = |text: &str| {
            let mut words: Vec<_> = text.split(' ').map(str::to_owned).collect();
            words.sort_unstable();
            words.join(" ")
        };
        assert_eq!([all_updates, port, within].map(|t| sorted(&t)), ["=2 =9", "=2 =9", "=2 =9"]);
        other.flow_mod(FlowMod { table_id: Some(0), ..command(FlowModCommand::Delete, in_port(1)) });
        let [all_updates, port, within, _] = updates_sent();
        assert_eq!([all_updates, port, within].map(|t| sorted(&t)), ["-2:2 -9:2", "", "-2:2 -9:2"]);
        other.flow_mod(FlowMod { table_id: Some(1), ..add(in_port(1), 4, vec![]) });
        assert_eq!(updates_sent(), ["+4", "", "", "+4"]);
        // A replacement is reported as an addition.
        other.flow_mod(FlowMod { table_id: Some(1), ..add(in_port(1), 4, vec![]) });
        assert_eq!(updates_sent(), ["+4", "", "", "+4"]);
        other.flow_mod(FlowMod { table_id: Some(1), ..command(FlowModCommand::Delete, Match::ANY) });
        assert_eq!(updates_sent(), ["-4:2", "", "-4:2", "-4:2"]);
        other.flow_mod(add(in_port(1), 2, vec![output(3)]));
        for client in [all, to_port_3, in_1, table_1] {
            br.connections().remove(&client.peer);
        }
    }
}

#[test]
fn actions_are_included_on_request() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let [with, without] = [Version::V10, Version::V13].map(|v| Client::new(&br, PeerKind::Service, v));
    with.watch(vec![monitor(1, ALL)]);
    without.watch(vec![monitor(1, ALL & !flag::ACTIONS)]);
    let fm = FlowMod { new_cookie: 5, idle_timeout: 7, ..add(in_port(1), 4, vec![output(2)]) };
    br.flow_mod(&fm).expect("adds");
    let flow = |actions| {
        vec![FlowUpdate::Flow(Box::new(MonitoredFlow {
            event: FlowEvent::Added,
            table_id: 0,
            priority: 4,
            idle_timeout: 7,
            hard_timeout: 0,
            cookie: 5,
            matching: in_port(1),
            actions,
        }))]
    };
    assert_eq!(updates(with.waiting()), flow(vec![output(2)]));
    assert_eq!(updates(without.waiting()), flow(vec![]));
}

#[test]
fn a_monitor_of_a_group_reports_flows_that_reference_it_now() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let other = Client::new(&br, PeerKind::Service, Version::V14);
    for id in [8, 9] {
        assert!(other.send(&Message::GroupMod(GroupMod::new(GroupCommand::Add, id))).is_empty());
    }
    let [group, both] = [PortNo::ANY, PortNo(1)].map(|out_port| {
        let client = Client::new(&br, PeerKind::Service, Version::V14);
        assert_eq!(short(client.watch(vec![FlowMonitorRequest { out_port, out_group: 8, ..monitor(1, ALL) }])), "");
        client
    });
    let change = |what, actions| {
        assert!(
            other.flow_mod(FlowMod { actions, priority: 4, table_id: Some(0), ..command(what, in_port(1)) }).is_empty()
        );
        [&group, &both].map(|client| short(client.waiting()))
    };
    let to = Action::Group;
    assert_eq!(change(FlowModCommand::Add, vec![to(8)]), ["+4", ""]);
    assert_eq!(change(FlowModCommand::Modify, vec![to(9)]), ["", ""]);
    assert_eq!(change(FlowModCommand::Modify, vec![to(8)]), ["=4", ""]);
    assert_eq!(change(FlowModCommand::Add, vec![output(1)]), ["", ""]);
    // The former port counts.
    assert_eq!(change(FlowModCommand::Add, vec![to(8)]), ["+4", "+4"]);
    assert_eq!(change(FlowModCommand::Modify, vec![output(2)]), ["", ""]);
    assert_eq!(change(FlowModCommand::Modify, vec![output(1), to(8)]), ["=4", "=4"]);
    assert_eq!(change(FlowModCommand::Delete, vec![]), ["-4:2", "-4:2"]);
}

#[test]
fn own_changes_are_abbreviated() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let client = Client::new(&br, PeerKind::Service, Version::V13);
    let full = Client::new(&br, PeerKind::Service, Version::V13);
    assert_eq!(short(client.watch(vec![monitor(1, ALL & !flag::OWN)])), "");
    assert_eq!(short(full.watch(vec![monitor(1, ALL)])), "");
    assert_eq!(short(client.flow_mod(add(in_port(1), 1, vec![output(2)]))), "#9");
    assert_eq!(short(client.flow_mod(add(in_port(2), 2, vec![output(2)]))), "#9");
    assert_eq!(short(client.flow_mod(command(FlowModCommand::Delete, Match::ANY))), "#9");
    assert_eq!(short(full.waiting()).len(), "+1 +2 -1:2 -2:2".len());
    // Changes by others, and by the switch itself, are reported in full.
    assert_eq!(short(full.flow_mod(FlowMod { hard_timeout: 1, ..add(Match::ANY, 3, vec![]) })), "+3");
    assert_eq!(short(client.waiting()), "+3");
    lab.clock.warp(1001);
    lab.switch.housekeeping();
    assert_eq!(short(client.waiting()), "-3:1");
    // A bundle is reported once.
    let control = |step: BundleStep| {
        let control = BundleControl { bundle_id: 5, ty: step.wire(false), flags: bundle_flag::ATOMIC };
        client.send(&Message::BundleControl(control))
    };
    for n in 1..5 {
        let message = Message::FlowMod(Form::Standard, Box::new(add(Match::ANY, n, vec![])));
        let add = BundleAdd { bundle_id: 5, flags: bundle_flag::ATOMIC, message };
        assert_eq!(client.send(&Message::BundleAdd(Box::new(add))), []);
    }
    let updates_sent = control(BundleStep::Commit);
    assert_eq!(short(updates_sent[..1].to_vec()), "#9");
    assert!(matches!(updates_sent[1..], [Message::BundleControl(_)]), "{updates_sent:?}");
}

#[test]
fn removals_have_reasons() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let client = Client::new(&br, PeerKind::Service, Version::V14);
    let other = Client::new(&br, PeerKind::Service, Version::V13);
    other.send(&Message::GroupMod(GroupMod::new(GroupCommand::Add, 7)));
    other.flow_mod(add(in_port(1), 1, vec![Action::Group(7)]));
    other.flow_mod(FlowMod { idle_timeout: 5, ..add(in_port(1), 2, vec![]) });
    other.flow_mod(FlowMod { hard_timeout: 6, ..add(in_port(1), 3, vec![]) });
    other.flow_mod(add(in_port(1), 4, vec![]));
    client.watch(vec![monitor(1, flag::DELETE)]);
    lab.clock.warp(5_001);
    lab.switch.housekeeping();
    lab.clock.warp(1_000);
    lab.switch.housekeeping();
    other.send(&Message::GroupMod(GroupMod::new(GroupCommand::Delete, 7)));
    br.flush_flows();
    assert_eq!(short(client.waiting()), "-2:0 -3:1 -1:3 -4:2");
}

#[test]
fn learned_flows_and_their_removal_are_reported() {
    use openflow::action::Learn;
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let client = Client::new(&br, PeerKind::Service, Version::V13);
    client.watch(vec![monitor(1, ALL & !flag::OWN)]);
    let learn = Learn { table: 1, priority: 5, delete_learned: true, cookie: 3, ..Learn::default() };
    assert_eq!(short(client.flow_mod(add(Match::ANY, 1, vec![Action::Learn(Arc::new(learn))]))), "#9");
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!(short(client.waiting()), "+5");
    // The request did not name the learned flow.
    assert_eq!(
        short(client.flow_mod(FlowMod { table_id: Some(0), ..command(FlowModCommand::Delete, Match::ANY) })),
        "#9 -5:2"
    );
}

/// A connection whose new monitor has many initial flows, of which none has been sent.
fn with_a_dump(br: &Arc<Ofproto>, version: Version) -> Client {
    for priority in 1..=5 {
        br.flow_mod(&add(Match::ANY, priority, vec![])).expect("adds");
    }
    let client = Client::new(br, PeerKind::Service, version);
    let body = StatsRequest::FlowMonitor(vec![monitor(1, ALL)]);
    br.handle(&client.peer, &encode(version, 9, &Message::StatsRequest { more: false, body }), &mut Vec::new());
    client
}

/// A connection whose monitor has sent its initial flows, and is paused.
fn with_a_paused_monitor(br: &Arc<Ofproto>) -> Client {
    let client = with_a_dump(br, Version::V14);
    while br.finish_some(&client.peer) {}
    client.waiting();
    client.peer.pause_monitors(br.tables().view().version);
    client
}

#[test]
fn changes_during_the_initial_dump_follow_it() {
    for version in [Version::V10, Version::V13, Version::V14] {
        let mut lab = Lab::new();
        let br = lab.bridge("br", 2);
        let client = with_a_dump(&br, version);
        let delete = |priority| FlowMod { priority, ..command(FlowModCommand::DeleteStrict, Match::ANY) };
        let mut more = true;
        let mut turns = 0;
        while more {
            if turns < 3 {
                br.flow_mod(&delete(turns + 1)).expect("deletes");
                br.flow_mod(&add(Match::ANY, 11 + turns, vec![])).expect("adds");
            }
            // Other connections have their turn.
            more = br.finish_some(&client.peer);
            turns += 1;
        }
        assert!(turns > 4, "{turns}");
        br.flow_mod(&delete(5)).expect("deletes");
        let updates_sent = short(client.waiting());
        let (before, behind) = updates_sent.split_at(updates_sent.find("-1:2").expect("a deletion"));
        let mut before: Vec<_> = before.split_whitespace().collect();
        before.sort_unstable();
        let initial = if version >= Version::V14 { "*1 *2 *3 *4 *5" } else { "+1 +2 +3 +4 +5" };
        assert_eq!(before.join(" "), initial);
        assert_eq!(behind, "-1:2 +11 -2:2 +12 -3:2 +13 -5:2");
    }
}

#[test]
fn an_unread_new_monitor_holds_no_flows_and_misses_none() {
    for batches in 0..=2 {
        let mut lab = Lab::new();
        let br = lab.bridge("br", 2);
        let client = with_a_dump(&br, Version::V14);
        // The flows are collected first, and then sent, two at a time.
        for _ in 0..=batches {
            assert!(br.finish_some(&client.peer));
        }
        let rules = br.collect(&Criteria::any());
        let holders = || rules.iter().map(Arc::strong_count).sum::<usize>();
        let held = holders();
        client.peer.park_dump();
        assert_eq!(held - holders(), 5 - 2 * batches, "flows left");
        drop(rules);
        // Meanwhile some of them are deleted or replaced, and removed from the tables.
        let strict = |command, priority| FlowMod { priority, table_id: Some(0), ..self::command(command, Match::ANY) };
        br.flow_mod(&strict(FlowModCommand::DeleteStrict, 1)).expect("deletes");
        br.flow_mod(&strict(FlowModCommand::DeleteStrict, 5)).expect("deletes");
        br.flow_mod(&FlowMod { actions: vec![output(1)], ..strict(FlowModCommand::ModifyStrict, 4) })
            .expect("modifies");
        br.flow_mod(&add(Match::ANY, 3, vec![output(2)])).expect("replaces");
        br.flow_mod(&add(Match::ANY, 6, vec![])).expect("adds");
        br.tidy(br.now());
        while br.finish_some(&client.peer) {}
        let updates = short(client.waiting());
        let (before, behind) = updates.split_at(updates.find("-1:2").expect("a deletion"));
        assert_eq!((before.trim(), behind), ("*1 *2 *3 *4 *5", "-1:2 -5:2 =4 +3 +6"));
    }
}

#[test]
fn a_paused_monitor_resumes_after_the_dump_of_another() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let client = with_a_paused_monitor(&br);
    br.flow_mod(&add(Match::ANY, 6, vec![])).expect("adds");
    assert_eq!(short(client.waiting()), "paused");
    let body = StatsRequest::FlowMonitor(vec![FlowMonitorRequest { table_id: Some(9), ..monitor(2, ALL) }]);
    br.handle(&client.peer, &encode(Version::V14, 9, &Message::StatsRequest { more: false, body }), &mut Vec::new());
    br.resume_monitors(&client.peer);
    br.flow_mod(&add(Match::ANY, 7, vec![])).expect("adds");
    assert_eq!(short(client.waiting()), "", "not in the middle");
    while br.finish_some(&client.peer) {}
    let updates_sent = short(client.waiting());
    assert_eq!(updates_sent, "+6 +7 resumed");
}

#[test]
fn a_resumption_holds_no_flows_while_its_peer_stalls() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let client = with_a_paused_monitor(&br);
    for priority in 10..16 {
        br.flow_mod(&add(Match::ANY, priority, vec![])).expect("adds");
    }
    assert_eq!(short(client.waiting()), "paused");
    let mut resumption = br.begin_resuming(&client.peer).expect("is paused");
    assert!(resumption.is_parked(), "the control thread collects no flows");
    let flow = br.collect(&Criteria { strict_priority: Some(15), ..Criteria::any() }).remove(0);
    let holders = Arc::strong_count(&flow);
    assert!(br.continue_resuming(&client.peer, &mut resumption));
    assert_eq!(Arc::strong_count(&flow), holders + 1);
    assert!(br.continue_resuming(&client.peer, &mut resumption));
    resumption.park();
    assert_eq!(Arc::strong_count(&flow), holders);
    // Flows that are removed or added meanwhile are reported as of the resumption first.
    for priority in [10, 14] {
        br.flow_mod(&FlowMod { command: FlowModCommand::DeleteStrict, ..add(Match::ANY, priority, vec![]) })
            .expect("deletes");
    }
    br.flow_mod(&add(Match::ANY, 16, vec![])).expect("adds");
    while br.continue_resuming(&client.peer, &mut resumption) {}
    assert_eq!(short(client.waiting()), "+10 +11 +12 +13 +14 +15 resumed -10:2 -14:2 +16");
}

#[test]
fn updates_for_an_unread_monitor_take_bounded_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let client = with_a_dump(&br, Version::V14);
    // It has not read earlier output.
    client.peer.send_bytes(vec![0; 1 << 20]);
    let mut waiting = std::pin::pin!(client.peer.wait_for_room(true));
    let mut goes_on = || runtime.block_on(async { futures_now(waiting.as_mut()).await });
    for priority in 11..15 {
        br.flow_mod(&add(Match::ANY, priority, vec![])).expect("adds");
        assert!(!goes_on());
    }
    br.flow_mod(&add(Match::ANY, 15, vec![])).expect("adds");
    assert!(goes_on());
}

/// Returns true if a future is ready.
async fn futures_now(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
    tokio::select! {
        biased;
        () = future => true,
        () = tokio::task::yield_now() => false,
    }
}

#[test]
fn invalid_monitor_requests_are_refused() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let with = |version| Client::new(&br, PeerKind::Service, version);
    let (v10, v13, v14) = (with(Version::V10), with(Version::V13), with(Version::V14));
    let error = |client: &Client, request| error_of(&client.watch(vec![request]));
    let change = |command, id| FlowMonitorRequest { command, ..monitor(id, ALL) };
    for client in [&v10, &v13, &v14] {
        assert_eq!(short(client.watch(vec![monitor(1, ALL)])), "");
        assert_eq!(error(client, monitor(1, ALL)), Some(OfpError::MofcMonitorExists));
        assert_eq!(error(client, monitor(2, flag::INITIAL)), Some(OfpError::MofcBadFlags));
        // A request is applied as a whole or not at all.
        let both = vec![monitor(3, ALL), monitor(3, ALL)];
        assert_eq!(error_of(&client.watch(both)), Some(OfpError::MofcMonitorExists));
        assert_eq!(short(client.watch(vec![monitor(3, flag::ADD), monitor(4, flag::DELETE)])), "");
    }
    for client in [&v10, &v13] {
        assert_eq!(error_of(&client.send(&Message::FlowMonitorCancel(9))), Some(OfpError::MofcUnknownMonitor));
        assert_eq!(error_of(&client.send(&Message::FlowMonitorCancel(1))), None);
        assert_eq!(error_of(&client.send(&Message::FlowMonitorCancel(1))), Some(OfpError::MofcUnknownMonitor));
    }
    assert_eq!(error(&v14, change(MonitorCommand::Delete, 9)), Some(OfpError::MofcUnknownMonitor));
    assert_eq!(error(&v14, change(MonitorCommand::Modify, 9)), Some(OfpError::MofcUnknownMonitor));
    assert_eq!(short(v14.watch(vec![change(MonitorCommand::Delete, 1)])), "");
    br.flow_mod(&add(Match::ANY, 1, vec![])).expect("adds");
    let updates_sent = [&v10, &v13, &v14].map(|client| short(client.waiting()));
    assert_eq!(updates_sent, ["+1", "+1", "+1"]);
    // A change sends the initial flows again.
    assert_eq!(short(v14.watch(vec![change(MonitorCommand::Modify, 3)])), "*1");
}

/// A controller that knows flows from a monitor alone: all of them, or those that output to a port.
struct Mirror {
    client: Client,
    out_port: PortNo,
    flows: BTreeMap<(u16, String), (u64, Vec<Action>)>,
}

impl Mirror {
    fn new(bridge: &Arc<Ofproto>, version: Version, out_port: PortNo) -> Self {
        let client = Client::new(bridge, PeerKind::Service, version);
        let updates_sent = client.watch(vec![FlowMonitorRequest { out_port, ..monitor(1, ALL) }]);
        let mut mirror = Self { client, out_port, flows: BTreeMap::new() };
        mirror.receive(updates_sent);
        mirror
    }

    fn receive(&mut self, updates_sent: Vec<Message>) {
        for update in updates(updates_sent) {
            let FlowUpdate::Flow(flow) = update else { continue };
            let key = (flow.priority, format!("{:?}", flow.matching.key().in_port()));
            let known = self.flows.remove(&key).is_some();
            match flow.event {
                FlowEvent::Deleted(_) => assert!(known, "unknown, and deleted"),
                // A modified flow that did not output to the port before is new to the monitor.
                FlowEvent::Modified => assert!(known || self.out_port != PortNo::ANY, "unknown, and modified"),
                FlowEvent::Initial | FlowEvent::Added => {}
            }
            if !matches!(flow.event, FlowEvent::Deleted(_)) && output_to(&flow.actions, self.out_port) {
                self.flows.insert(key, (flow.cookie, flow.actions));
            }
        }
    }

    /// Reads all updates, and resumes a pause if there was one.
    fn catch_up(&mut self, bridge: &Ofproto) {
        self.receive(self.client.waiting());
        bridge.resume_monitors(&self.client.peer);
        self.receive(self.client.waiting());
        let entry = |rule: &Arc<xlate::Rule>| {
            let key = (rule.openflow_priority(), format!("{:?}", rule.minimatch.expand().key().in_port()));
            (key, (rule.cookie, rule.actions.to_vec()))
        };
        let criteria = Criteria { out_port: self.out_port, ..Criteria::any() };
        let there: BTreeMap<_, _> = bridge.collect(&criteria).iter().map(entry).collect();
        assert_eq!(self.flows, there);
    }
}

/// A step of another controller, or of the connection of the monitor.
#[derive(Clone, Debug)]
enum Step {
    Mod(FlowModCommand, u16, Option<u32>, u64, u32),
    Pause,
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use FlowModCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
    let commands = prop::sample::select(vec![Add, Add, Modify, ModifyStrict, Delete, DeleteStrict]);
    let change = (commands, 1u16..4, prop::option::of(1u32..4), 0u64..3, 1u32..4)
        .prop_map(|(command, priority, port, cookie, to)| Step::Mod(command, priority, port, cookie, to));
    prop::collection::vec(prop_oneof![6 => change, 1 => Just(Step::Pause), 1 => Just(Step::Read)], 1..40)
}

proptest! {
    #[test]
    fn updates_suffice_to_know_the_tables(steps in steps(), version in 0usize..6) {
        let mut lab = Lab::new();
        let br = lab.bridge("br", 3);
        let version = Version::ALL[version];
        let mut mirrors = [PortNo::ANY, PortNo(2)].map(|port| Mirror::new(&br, version, port));
        for step in steps {
            match step {
                Step::Mod(command, priority, port, cookie, to) => {
                    let matching = port.map_or(Match::ANY, in_port);
                    let fm = FlowMod {
                        priority,
                        matching,
                        table_id: Some(0),
                        new_cookie: cookie,
                        modify_cookie: true,
                        // With a mask, a modification adds no flow.
                        cookie_mask: u64::from(command == FlowModCommand::Modify) << 63,
                        actions: vec![output(to)],
                        ..FlowMod::new(command)
                    };
                    br.flow_mod(&fm).expect("is right");
                }
                Step::Pause => {
                    let version = br.tables().view().version;
                    mirrors.iter().for_each(|mirror| mirror.client.peer.pause_monitors(version));
                }
                Step::Read => mirrors.iter_mut().for_each(|mirror| mirror.catch_up(&br)),
            }
        }
        mirrors.iter_mut().for_each(|mirror| mirror.catch_up(&br));
    }
}

#[test]
fn monitors_that_start_and_resume_during_changes_miss_nothing() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let rounds = 4000u64;
    let mut mirrors = Vec::new();
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let mut rng = base::rng::Rng::seeded(7);
            for cookie in 0..rounds {
                use FlowModCommand::{Add, DeleteStrict, ModifyStrict};
                let command = [Add, Add, ModifyStrict, DeleteStrict][rng.below(4) as usize];
                let fm = FlowMod {
                    priority: rng.below(300) as u16,
                    table_id: Some(0),
                    new_cookie: cookie,
                    modify_cookie: true,
                    actions: vec![output(1 + rng.below(3) as u32)],
                    ..FlowMod::new(command)
                };
                br.flow_mod(&fm).expect("is right");
            }
        });
        while !changes.is_finished() {
            if mirrors.len() < 20 {
                mirrors.push(Mirror::new(&br, Version::V14, PortNo::ANY));
            }
            for mirror in &mut mirrors {
                {
                    let _no_change = br.writer.lock();
                    mirror.client.peer.pause_monitors(br.tables().view().version);
                }
                mirror.receive(mirror.client.waiting());
                br.resume_monitors(&mirror.client.peer);
            }
        }
    });
    mirrors.push(Mirror::new(&br, Version::V10, PortNo::ANY));
    mirrors.iter_mut().for_each(|mirror| mirror.catch_up(&br));
}

#[test]
fn a_connection_that_does_not_read_is_paused() {
    for version in Version::ALL {
        let mut lab = Lab::new();
        let br = lab.bridge("br", 3);
        let client = Client::new(&br, PeerKind::Service, version);
        client.watch(vec![monitor(1, ALL)]);
        let flow = |n: u32| {
            let mut m = Match::ANY;
            m.set(Field::EthDst, n.into());
            add(m, 1, vec![output(1)])
        };
        for n in 0..10_000 {
            br.flow_mod(&flow(n)).expect("adds");
        }
        let queued = client.peer.queued();
        assert!((128 << 10..129 << 10).contains(&queued), "{queued}");
        // The monitor is notified of the removal of flows that it knows.
        br.flow_mod(&FlowMod { command: FlowModCommand::DeleteStrict, ..flow(0) }).expect("deletes");
        br.flow_mod(&FlowMod { command: FlowModCommand::DeleteStrict, ..flow(9_999) }).expect("deletes");
        br.flow_mod(&FlowMod { command: FlowModCommand::ModifyStrict, actions: vec![], ..flow(1) }).expect("modifies");
        let mut updates_sent = short(client.waiting());
        let at_pause = updates_sent.split_off(updates_sent.find("paused").expect("is paused"));
        assert_eq!(at_pause, "paused -1:2");
        let known = updates_sent.split(' ').filter(|word| *word == "+1").count();
        br.resume_monitors(&client.peer);
        let updates_sent = short(client.waiting());
        assert!(updates_sent.ends_with(" resumed"), "{}", &updates_sent[updates_sent.len() - 40..]);
        let count = |what| updates_sent.split(' ').filter(|word| *word == what).count();
        assert_eq!((count("+1"), count("=1")), (9_999 - known, 1));
        // From here on, changes are reported one by one again.
        br.flow_mod(&flow(77_777)).expect("adds");
        assert_eq!(short(client.waiting()), "+1");
    }
}
