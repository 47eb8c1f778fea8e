//! Long changes of tables, beside which the control thread continues.

use super::connections::{listening, serve_one};
use super::control::{remote, shown};
use super::monitors::monitor;
use super::*;
use crate::RemovedReason;
use crate::flow_table::Criteria;
use openflow::bundle::{BundleAdd, BundleControl, BundleStep, flag};
use openflow::flow_mod::FlowModCommand;
use openflow::group::{GROUP_ALL, GroupCommand, GroupMod};
use openflow::monitor::{FlowEvent, FlowUpdate};
use openflow::packet::PacketOut;
use openflow::port::{PortMod, config};
use openflow::switch::{FragHandling, Hello, SwitchConfig};
use std::sync::mpsc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

const V: Version = Version::V14;

/// The client's end of a connection, and the task that serves it.
struct Session {
    end: DuplexStream,
    received: Vec<u8>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Session {
    async fn new(bridge: &Arc<Ofproto>) -> Self {
        let (end, theirs) = tokio::io::duplex(1 << 20);
        let bridge = Arc::clone(bridge);
        let serving = tokio::spawn(async move { serve_one(&bridge, &listening(&[V]), theirs).await });
        let mut session = Self { end, received: Vec::new(), serving };
        session.send(&[Message::Hello(Hello { versions: Versions::of(&[V]) })]).await;
        assert!(matches!(session.next().await, Message::Hello(_)));
        session
    }

    async fn send(&mut self, messages: &[Message]) {
        let bytes: Vec<u8> = messages.iter().flat_map(|message| encode(V, 9, message)).collect();
        self.end.write_all(&bytes).await.expect("room");
    }

    async fn next(&mut self) -> Message {
        loop {
            if let [_, _, a, b, ..] = self.received[..]
                && let len = usize::from(u16::from_be_bytes([a, b]))
                && self.received.len() >= len
            {
                let message: Vec<u8> = self.received.drain(..len).collect();
                return decode(&message).expect("decodes").2;
            }
            assert!(self.end.read_buf(&mut self.received).await.expect("reads") > 0, "not the end");
        }
    }
}

fn flow(priority: u16) -> Message {
    Message::FlowMod(Form::Standard, Box::new(add(Match::ANY, priority, vec![])))
}

/// A bundle of `n` flow additions.
fn bundle(n: u16) -> Vec<Message> {
    bundle_of((0..n).map(flow))
}

/// A bundle of these messages, committed.
pub(super) fn bundle_of(messages: impl Iterator<Item = Message>) -> Vec<Message> {
    let (bundle_id, flags) = (1, flag::ATOMIC);
    let adds = messages.map(|message| Message::BundleAdd(Box::new(BundleAdd { bundle_id, flags, message })));
    let commit = BundleControl { bundle_id, ty: BundleStep::Commit.wire(false), flags };
    adds.chain([Message::BundleControl(commit)]).collect()
}

/// Locks the tables as a commit does. Returns a function that unlocks them.
fn lock_tables(bridge: &Arc<Ofproto>) -> impl FnOnce() + use<> {
    let (locked, is_locked) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let bridge = Arc::clone(bridge);
    let holder = std::thread::spawn(move || {
        let writer = bridge.writer.lock();
        locked.send(()).expect("waits");
        let _ = released.recv();
        drop(writer);
    });
    is_locked.recv().expect("locks");
    move || {
        release.send(()).expect("held");
        holder.join().expect("no panic");
    }
}

#[tokio::test]
async fn a_long_bundle_delays_no_other_connection_or_bridge() {
    let mut lab = Lab::new();
    let (br, other) = (lab.bridge("br", 1), lab.bridge("other", 1));
    let mut committing = Session::new(&br).await;
    let (mut changing, mut asking) = (Session::new(&br).await, Session::new(&br).await);
    let mut elsewhere = Session::new(&other).await;
    let release = lock_tables(&br);
    committing.send(&bundle(200)).await;
    while !br.is_changing() {
        tokio::task::yield_now().await;
    }
    // A control thread that waited for the tables would stop here.
    changing.send(&[flow(1000), Message::BarrierRequest]).await;
    for n in 0..3 {
        asking.send(&[Message::EchoRequest(vec![n])]).await;
        assert_eq!(asking.next().await, Message::EchoReply(vec![n]));
    }
    elsewhere.send(&[flow(5), Message::BarrierRequest]).await;
    assert_eq!(elsewhere.next().await, Message::BarrierReply);
    assert_eq!((br.n_flows(), other.n_flows()), (0, 1));
    lab.switch.housekeeping();
    asking.send(&[Message::StatsRequest { more: false, body: StatsRequest::Meter(u32::MAX) }]).await;
    release();
    assert!(matches!(committing.next().await, Message::BundleControl(_)));
    assert_eq!(changing.next().await, Message::BarrierReply);
    assert_eq!(br.n_flows(), 201);
    assert!(matches!(asking.next().await, Message::StatsReply { .. }));
}

#[tokio::test]
async fn a_long_bundle_of_all_kinds_of_messages_delays_no_other_connection() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let (mut committing, mut asking) = (Session::new(&br).await, Session::new(&br).await);
    let release = lock_tables(&br);
    let (port_no, hw_addr) = (PortNo(1), br.port(PortNo(1)).expect("a port").spec.mac);
    let port_mod = PortMod { port_no, hw_addr, config: config::NO_FWD, mask: config::NO_FWD, advertise: 0 };
    let actions = vec![Action::Output { port: PortNo(2), max_len: 0 }];
    let out = PacketOut { buffer_id: None, in_port: PortNo::NONE, metadata: Match::ANY, actions, data: frame(1, 2) };
    let others =
        [Message::GroupMod(GroupMod::new(GroupCommand::Add, 7)), Message::PortMod(port_mod), Message::PacketOut(out)];
    committing.send(&bundle_of((0..200).map(flow).chain(others))).await;
    while !br.is_changing() {
        tokio::task::yield_now().await;
    }
    // A control thread that committed it would wait for the tables.
    for n in 0..3 {
        asking.send(&[Message::EchoRequest(vec![n])]).await;
        assert_eq!(asking.next().await, Message::EchoReply(vec![n]));
    }
    release();
    while !matches!(committing.next().await, Message::BundleControl(_)) {}
    assert_eq!(br.n_flows(), 200);
    assert!(br.port(PortNo(1)).expect("a port").config.no_fwd);
    assert_eq!(lab.received("br-2").len(), 1);
}

#[tokio::test]
async fn very_many_flows_are_flushed_on_a_worker() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let add_flow = |br: &Ofproto, priority| drop(br.flow_mod(&add(Match::ANY, priority, vec![])).expect("adds"));
    let mut asking = Session::new(&br).await;
    // Without a controller, with a flow of the new mode; then since the controller does not answer.
    let remote = remote(&br, Settings { probe_ms: 1000, ..Settings::default() });
    lab.clock.warp(3000);
    for is_failing in [false, true] {
        (0..2200).for_each(|priority| add_flow(&br, priority));
        let release = lock_tables(&br);
        if is_failing {
            br.set_fail_open(true);
        } else {
            // As during a change of the configuration.
            let short = br.short_change().await;
            let emptying = br.empty_tables(move |br| add_flow(br, 1));
            assert!(emptying.is_some());
            drop(short);
        }
        while !br.is_changing() {
            tokio::task::yield_now().await;
        }
        for n in 0..3 {
            asking.send(&[Message::EchoRequest(vec![n])]).await;
            assert_eq!(asking.next().await, Message::EchoReply(vec![n]));
        }
        // Flows of later messages stay.
        asking.send(&[flow(5), Message::BarrierRequest]).await;
        release();
        assert_eq!(asking.next().await, Message::BarrierReply);
        assert_eq!((br.n_flows(), shown(&br).contains("15790320")), if is_failing { (1, true) } else { (2, false) });
    }
    drop(remote);
}

/// Waits for all workers of a switch and keeps them until the result is dropped.
async fn busy(switch: &Switch) -> Vec<impl Drop + use<>> {
    let mut permits = Vec::new();
    for _ in 0..switch.workers.n {
        permits.extend(switch.workers.one().await);
    }
    permits
}

/// Asserts that the connection has received nothing.
async fn receives_nothing(session: &mut Session) {
    tokio::select! {
        biased;
        message = session.next() => panic!("{message:?}"),
        () = std::future::ready(()) => {}
    }
}

fn ask(body: StatsRequest) -> Message {
    Message::StatsRequest { more: false, body }
}

#[tokio::test]
async fn long_replies_wait_for_a_worker_without_blocking_others() {
    let mut lab = Lab::new();
    let (br, large) = (lab.bridge("br", 1), lab.bridge("large", 65));
    br.flow_mod(&add(Match::ANY, 1, vec![])).expect("adds");
    let permits = busy(&lab.switch).await;
    assert!(!permits.is_empty());
    let mut waiting = Vec::new();
    for (bridge, body) in [
        (&br, StatsRequest::Flow(Default::default())),
        (&br, StatsRequest::Table),
        (&br, StatsRequest::FlowMonitor(vec![monitor(1, 0x3f)])),
        (&large, StatsRequest::Port(PortNo::ANY)),
        (&large, StatsRequest::PortDesc(PortNo::ANY)),
    ] {
        let mut session = Session::new(bridge).await;
        session.send(&[ask(body)]).await;
        waiting.push(session);
    }
    let mut other = Session::new(&br).await;
    for n in 0..3 {
        other.send(&[Message::EchoRequest(vec![n])]).await;
        assert_eq!(other.next().await, Message::EchoReply(vec![n]));
    }
    // A short reply needs no worker.
    other.send(&[ask(StatsRequest::Port(PortNo::ANY))]).await;
    assert!(matches!(other.next().await, Message::StatsReply { .. }));
    for session in &mut waiting {
        receives_nothing(session).await;
    }
    drop(permits);
    for session in &mut waiting {
        assert!(matches!(session.next().await, Message::StatsReply { .. }));
    }
}

#[tokio::test]
async fn workers_write_all_of_a_long_dump() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let n = 6_000;
    for priority in 0..n {
        br.flow_mod(&add(Match::ANY, priority, vec![output(1); 32])).expect("adds");
    }
    let mut session = Session::new(&br).await;
    session.send(&[ask(StatsRequest::Flow(Default::default()))]).await;
    let mut flows = 0;
    let mut count = |message| match message {
        Message::StatsReply { more, body: StatsReply::Flow(part) } => {
            flows += part.len();
            more
        }
        other => panic!("{other:?}"),
    };
    assert!(count(session.next().await));
    let permits = busy(&lab.switch).await;
    // The part that workers have written is sent, and then nothing more: the control thread does not write the rest.
    let mut idle = 0;
    while idle < 100 {
        tokio::select! {
            biased;
            message = session.next() => {
                assert!(count(message), "more than the connection has room for");
                idle = 0;
            }
            () = tokio::task::yield_now() => idle += 1,
        }
    }
    assert_eq!(br.connections().all()[0].queued(), 0);
    drop(permits);
    while count(session.next().await) {}
    assert_eq!(flows, usize::from(n));
}

#[tokio::test]
async fn short_changes_take_few_removed_rules_out_of_the_tables() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let in_table = || br.tables()[0].rules.len();
    for priority in 0..6000 {
        br.flow_mod(&add(Match::ANY, priority, vec![])).expect("adds");
    }
    br.flow_mod(&command(FlowModCommand::Delete, Match::ANY)).expect("deletes");
    assert_eq!((br.n_flows(), in_table()), (0, 6000));
    br.flow_mod(&add(Match::ANY, 1, vec![])).expect("adds");
    assert_eq!((br.n_flows(), in_table()), (1, 5001));
    // Beside a short change, no thread begins to do more.
    assert!(!br.tidy_some(br.now()));
    let short = br.short_change().await;
    assert!(!br.tidy(br.now()));
    assert_eq!(in_table(), 5001);
    drop(short);
    assert!(br.tidy(br.now()));
    assert_eq!((br.n_flows(), in_table()), (1, 1));
    // A long change begins with it.
    br.flow_mod(&command(FlowModCommand::Delete, Match::ANY)).expect("deletes");
    for priority in 0..2000 {
        br.flow_mod(&add(Match::ANY, priority, vec![])).expect("adds");
    }
    br.flow_mod(&command(FlowModCommand::Delete, Match::ANY)).expect("deletes");
    let mut session = Session::new(&br).await;
    session.send(&bundle(200)).await;
    assert!(matches!(session.next().await, Message::BundleControl(_)));
    assert_eq!((br.n_flows(), in_table()), (200, 200));
}

/// A flow mod of all flows, a group mod of all groups, or a bundle with the flow mod.
fn long_mods() -> [(&'static str, Vec<Message>); 3] {
    let delete = || Message::FlowMod(Form::Standard, Box::new(command(FlowModCommand::Delete, Match::ANY)));
    let (bundle_id, flags) = (1, flag::ATOMIC);
    let bundled = Message::BundleAdd(Box::new(BundleAdd { bundle_id, flags, message: delete() }));
    let commit = BundleControl { bundle_id, ty: BundleStep::Commit.wire(false), flags };
    let groups = Message::GroupMod(GroupMod::new(GroupCommand::Delete, GROUP_ALL));
    [
        ("flow mod", vec![delete(), flow(1), Message::BarrierRequest]),
        ("group mod", vec![groups, flow(1), Message::BarrierRequest]),
        ("bundle", vec![bundled, Message::BundleControl(commit), flow(1), Message::BarrierRequest]),
    ]
}

#[tokio::test]
async fn mods_of_many_flows_delay_no_other_connection_and_stay_in_order() {
    for (what, messages) in long_mods() {
        let mut lab = Lab::new();
        let br = lab.bridge("br", 1);
        let group = Message::GroupMod(GroupMod::new(GroupCommand::Add, 7));
        let mut session = Session::new(&br).await;
        // Asks for messages about removed flows.
        let config = SwitchConfig { frag: FragHandling::Normal, invalid_ttl_to_controller: None, miss_send_len: 1 };
        session.send(&[Message::SetConfig(config), group, Message::BarrierRequest]).await;
        assert_eq!(session.next().await, Message::BarrierReply);
        for priority in 10..2200 {
            let mut fm = add(Match::ANY, priority, vec![Action::Group(7)]);
            fm.flags.send_flow_rem = priority == 10;
            br.flow_mod(&fm).expect("adds");
        }
        let mut asking = Session::new(&br).await;
        let release = lock_tables(&br);
        session.send(&messages).await;
        while !br.is_changing() {
            tokio::task::yield_now().await;
        }
        // A control thread that applied it would wait for the tables.
        for n in 0..3 {
            asking.send(&[Message::EchoRequest(vec![n])]).await;
            assert_eq!(asking.next().await, Message::EchoReply(vec![n]), "{what}");
        }
        release();
        let (mut others, mut is_removed) = (Vec::new(), false);
        loop {
            match session.next().await {
                Message::BarrierReply => break,
                Message::FlowRemoved(..) => is_removed = true,
                other => others.push(other),
            }
        }
        assert_eq!(others.len(), usize::from(what == "bundle"), "{others:?}");
        while !is_removed {
            is_removed = matches!(session.next().await, Message::FlowRemoved(..));
        }
        // The flow behind the deletion is there.
        assert_eq!(br.n_flows(), 1, "{what}");
    }
}

#[tokio::test]
async fn a_flow_monitor_is_notified_of_a_deletion_of_many_flows_once() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    for priority in 0..2200 {
        br.flow_mod(&add(Match::ANY, priority, vec![])).expect("adds");
    }
    let (mut watching, mut changing) = (Session::new(&br).await, Session::new(&br).await);
    // Without the flows that are there.
    watching.send(&[ask(StatsRequest::FlowMonitor(vec![monitor(1, 0x3e)])), Message::BarrierRequest]).await;
    while !matches!(watching.next().await, Message::BarrierReply) {}
    let delete = Message::FlowMod(Form::Standard, Box::new(command(FlowModCommand::Delete, Match::ANY)));
    changing.send(&[delete, flow(1), Message::BarrierRequest]).await;
    assert_eq!(changing.next().await, Message::BarrierReply);
    let (mut removed, mut added) = (0, 0);
    while added == 0 {
        let Message::StatsReply { body: StatsReply::FlowMonitor(updates), .. } = watching.next().await else {
            panic!("no update");
        };
        for update in updates {
            match update {
                FlowUpdate::Flow(flow) if matches!(flow.event, FlowEvent::Deleted(_)) => removed += 1,
                FlowUpdate::Flow(_) => added += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((removed, added), (2200, 1));
}

#[tokio::test]
async fn a_paused_flow_monitor_resumes_from_a_worker_thread() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let mut watching = Session::new(&br).await;
    watching.send(&[ask(StatsRequest::FlowMonitor(vec![monitor(1, 0x3e)])), Message::BarrierRequest]).await;
    while !matches!(watching.next().await, Message::BarrierReply) {}
    let n = 6_000;
    for priority in 0..n {
        br.flow_mod(&add(Match::ANY, priority, vec![output(1)])).expect("adds");
    }
    let permits = busy(&lab.switch).await;
    let (mut added, mut paused, mut resumed) = (0, false, false);
    let mut permits = Some(permits);
    while !resumed {
        let Message::StatsReply { body: StatsReply::FlowMonitor(updates), .. } = watching.next().await else {
            panic!("no update");
        };
        for update in updates {
            match update {
                FlowUpdate::Flow(_) => added += 1,
                FlowUpdate::Paused => paused = true,
                FlowUpdate::Resumed => resumed = true,
                FlowUpdate::Abbreviated(_) => panic!("nobody else"),
            }
        }
        if paused && let Some(permits) = permits.take() {
            // The connection serves its peer while it waits for a worker.
            for data in 0..3 {
                watching.send(&[Message::EchoRequest(vec![data])]).await;
                assert_eq!(watching.next().await, Message::EchoReply(vec![data]));
            }
            drop(permits);
        }
    }
    assert_eq!((added, paused), (n, true));
    br.flow_mod(&add(Match::ANY, n, vec![])).expect("adds");
    assert!(matches!(watching.next().await, Message::StatsReply { .. }));
}

#[test]
fn many_removed_rules_leave_tables_and_indexes() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let in_tables = || [0, 1].map(|table| br.tables()[table].rules.len());
    let is_indexed =
        |cookie| br.index.count(&Criteria { cookie, cookie_mask: u64::MAX, ..Criteria::any() }, 1) == Some(1);
    let fill = || {
        for n in 0..6000_u16 {
            let rule = FlowMod {
                table_id: Some(u8::from(n >= 3000)),
                new_cookie: u64::from(n) + 1,
                ..add(Match::ANY, n, vec![])
            };
            br.flow_mod(&rule).expect("adds");
        }
    };
    fill();
    let before = br.tables().view();
    br.flow_mod(&command(FlowModCommand::Delete, Match::ANY)).expect("deletes");
    assert!(br.tidy(br.now()), "nothing more can leave them");
    assert_eq!((in_tables(), is_indexed(1)), ([3000, 3000], true), "a reader may see them");
    drop(before);
    assert!(br.tidy(br.now()));
    assert_eq!((in_tables(), br.index.is_empty()), ([0, 0], true));
    // One table is cleared as a whole, the other keeps a rule.
    fill();
    br.flow_mod(&FlowMod { new_cookie: 7, ..add(Match::ANY, 50_000, vec![]) }).expect("adds");
    br.transaction(|t| {
        for rule in t.collect(&Criteria::any()).into_iter().filter(|rule| rule.cookie != 7 || rule.priority != 50_000) {
            t.remove(&rule, RemovedReason::Delete);
        }
        Ok(())
    })
    .expect("deletes");
    assert!(br.tidy(br.now()));
    assert_eq!((in_tables(), is_indexed(7), is_indexed(6)), ([1, 0], true, false));
    br.flow_mod(&command(FlowModCommand::Delete, Match::ANY)).expect("deletes");
    assert!(br.tidy(br.now()));
    assert_eq!((in_tables(), br.index.is_empty()), ([0, 0], true));
}
