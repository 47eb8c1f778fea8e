//! Transactions, groups, and flows that packets teach.

use super::*;
use crate::Removed;
use crate::flow_table::Criteria;
use flow::text::{NoNames, parse_exact};
use openflow::group::GROUP_ALL;
use openflow::{GroupCommand, GroupMod, parse_flow, parse_group};
use xlate::{Start, translate_from};

fn fm(command: FlowModCommand, text: &str) -> FlowMod {
    parse_flow(text, command, &NoNames).expect(text).flow_mod
}

fn gm(command: GroupCommand, text: &str) -> GroupMod {
    parse_group(text, command, &NoNames).expect(text).group_mod
}

fn add_flow(br: &Ofproto, text: &str) {
    br.flow_mod(&fm(FlowModCommand::Add, text)).expect(text);
}

fn group(br: &Ofproto, command: GroupCommand, text: &str) -> Result<Vec<Removed>, OfpError> {
    br.transaction(|t| t.group_mod(&gm(command, text))).map(|((), removed)| removed)
}

/// Table, priority and actions of all flows.
fn flows(br: &Ofproto) -> Vec<String> {
    let text = |r: &Arc<xlate::Rule>| {
        let m = flow::text::match_to_string(&r.minimatch.expand(), &NoNames);
        let actions = openflow::actions_to_string(&r.actions, &NoNames, Version::V10);
        format!("{} {} {m} {actions}", r.table, r.priority)
    };
    let mut all: Vec<_> = br.collect(&Criteria::any()).iter().map(text).collect();
    all.sort();
    all
}

fn datapath_actions(br: &Ofproto, key: &str) -> String {
    let key = parse_exact(key, &NoNames).expect("a flow");
    br.trace(&key, false).expect("traces").datapath_actions
}

#[test]
fn a_transaction_is_atomic() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    add_flow(&br, "priority=1,actions=output:1");
    let before = br.tables().view();
    let ((), removed) = br
        .transaction(|t| {
            t.flow_mod(&fm(FlowModCommand::Delete, "table=0"))?;
            t.group_mod(&gm(GroupCommand::Add, "group_id=1,type=all,bucket=output:2"))?;
            t.flow_mod(&fm(FlowModCommand::Add, "priority=2,actions=group:1"))?;
            t.flow_mod(&fm(FlowModCommand::Add, "priority=3,actions=output:3"))?;
            assert_eq!((flows(&br).len(), br.groups(GROUP_ALL).len()), (1, 0), "not yet");
            t.flow_mod(&fm(FlowModCommand::DeleteStrict, "priority=3"))
        })
        .expect("no error");
    // The replaced flow, and the one that existed in the transaction only.
    assert_eq!(removed.len(), 2);
    assert_eq!(flows(&br), ["0 2  group:1"]);
    // A reader that began before sees the old state.
    let mut reads = flow::Reads::new();
    let found = br.tables()[0].rules.lookup(&flow::FlowKey::ZERO, before.version, &mut reads).expect("a rule");
    assert_eq!((found.priority, before.groups.len()), (1, 0));
    assert_eq!((br.tables()[0].rules.len(), br.n_flows()), (3, 1));
    // Without such readers it is removed.
    drop(before);
    br.tidy(br.now());
    assert_eq!(br.tables()[0].rules.len(), 1);
}

#[test]
fn a_transaction_that_fails_leaves_nothing_behind() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    add_flow(&br, "priority=1,idle_timeout=5,actions=output:1");
    let version = br.tables().view().version;
    let result = br.transaction(|t| {
        t.group_mod(&gm(GroupCommand::Add, "group_id=1,type=all,bucket=output:2"))?;
        t.flow_mod(&fm(FlowModCommand::Add, "priority=1,actions=group:1"))?;
        t.flow_mod(&fm(FlowModCommand::Delete, "table=0"))?;
        t.flow_mod(&fm(FlowModCommand::Add, "priority=5,actions=group:2"))
    });
    assert_eq!(result.map(|_| ()), Err(OfpError::BacBadOutGroup));
    assert_eq!(flows(&br), ["0 1  output:1"]);
    assert_eq!((br.tables().view().version, br.groups(GROUP_ALL).len()), (version, 0));
    assert_eq!((br.tables()[0].rules.len(), br.n_flows()), (1, 1));
    // It kept its timeout.
    lab.clock.warp(6000);
    assert_eq!(br.expire(lab.clock.now()).len(), 1);
}

#[test]
fn groups_change_and_are_counted() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 4);
    let c = Client::new(&br, PeerKind::Service, Version::V13);
    let change = |command, text: &str| error_of(&c.send(&Message::GroupMod(gm(command, text))));
    use GroupCommand::{Add, Delete, Modify};
    let flow = |text: &str| error_of(&c.flow_mod(fm(FlowModCommand::Add, text)));
    assert_eq!(flow("actions=group:1"), Some(OfpError::BacBadOutGroup));
    assert_eq!(flow("actions=write_actions(group:1)"), Some(OfpError::BacBadOutGroup));
    assert_eq!(change(Modify, "group_id=1,type=all"), Some(OfpError::GmfcUnknownGroup));
    assert_eq!(change(Add, "group_id=1,type=all,bucket=output:2,bucket=mod_dl_src:02:00:00:00:00:07,output:3"), None);
    assert_eq!(change(Add, "group_id=1,type=all"), Some(OfpError::GmfcGroupExists));
    assert_eq!(change(Add, "group_id=2,type=indirect,bucket=group:1"), None);
    assert_eq!(flow("in_port=1,actions=group:2,output:4"), None);
    lab.send("br-1", &[frame(1, 2), frame(1, 2)]);
    let from = |port: &str| lab.received(port).iter().map(|p| p.data()[11]).collect::<Vec<_>>();
    assert_eq!((from("br-2"), from("br-3"), from("br-4")), (vec![1, 1], vec![7, 7], vec![1, 1]));
    let stats = |id| {
        let StatsReply::Group(stats) = c.ask(StatsRequest::Group(id)) else { panic!("groups") };
        let one = |s: &openflow::group::GroupStats| {
            let buckets: Vec<_> = s.buckets.iter().map(|b| b.packet_count).collect();
            (s.group_id, s.ref_count, s.packet_count, s.byte_count, buckets)
        };
        stats.iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(stats(GROUP_ALL), [(1, 1, 2, 120, vec![2, 2]), (2, 1, 2, 120, vec![2])]);
    assert_eq!((stats(2).len(), stats(9).len()), (1, 0));
    let StatsReply::GroupDesc(descs) = c.ask(StatsRequest::GroupDesc(GROUP_ALL)) else { panic!("groups") };
    assert_eq!((descs.len(), descs[0].buckets.len(), descs[1].buckets.len()), (2, 2, 1));
    // The bucket changes, and the flow's packets take the new one.
    assert_eq!(change(Modify, "group_id=1,type=all,bucket=output:3"), None);
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!((from("br-2").len(), from("br-3"), from("br-4").len()), (0, vec![1], 1));
    assert_eq!(stats(1), [(1, 1, 1, 60, vec![1])]);
    // Deleting a group removes the flows that reference it, but not the groups.
    assert_eq!(change(Delete, "group_id=2"), None);
    assert_eq!((flows(&br).len(), br.groups(GROUP_ALL).len()), (0, 1));
    lab.send("br-1", &[frame(1, 2)]);
    assert!(from("br-3").is_empty());
    assert_eq!(change(Delete, "group_id=77"), None);
    assert_eq!(change(Delete, "group_id=all"), None);
    assert!(br.groups(GROUP_ALL).is_empty());
}

#[test]
fn groups_that_lead_to_themselves_are_refused() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    use GroupCommand::{Add, InsertBucket, Modify};
    let change = |command, text: &str| group(&br, command, text).map(|_| ());
    assert_eq!(change(Add, "group_id=1,type=all,bucket=group:1"), Err(OfpError::GmfcLoop));
    assert_eq!(change(Add, "group_id=1,type=all,bucket=output:1,bucket=group:2,bucket=group:3"), Ok(()));
    assert_eq!(change(Add, "group_id=2,type=select,bucket=group:4"), Ok(()));
    assert_eq!(change(Add, "group_id=3,type=indirect,bucket=group:4"), Ok(()));
    assert_eq!(change(Add, "group_id=4,type=all,bucket=group:1"), Err(OfpError::GmfcLoop));
    assert_eq!(change(Add, "group_id=4,type=all,bucket=output:1"), Ok(()));
    assert_eq!(change(Modify, "group_id=4,type=all,bucket=clone(group:2)"), Err(OfpError::GmfcLoop));
    let insert = "group_id=4,command_bucket_id=last,bucket=bucket_id:7,group:3";
    assert_eq!(change(InsertBucket, insert), Err(OfpError::GmfcLoop));
    assert_eq!(br.groups(4)[0].buckets.len(), 1);
    // After the change it does not reference the other group any more.
    assert_eq!(change(Modify, "group_id=3,type=indirect,bucket=output:1"), Ok(()));
    assert_eq!(change(InsertBucket, insert), Ok(()));
    // A bucket may watch its own group, which is no forwarding loop.
    assert_eq!(change(Add, "group_id=9,type=ff,bucket=watch_group:9,output:1"), Ok(()));
}

#[test]
fn a_selection_is_balanced() {
    const BUCKETS: u32 = 8;
    const FLOWS: u32 = 4000;
    let mut lab = Lab::new();
    let br = lab.bridge("br", BUCKETS + 1);
    let buckets: String = (2..=BUCKETS + 1).map(|port| format!(",bucket=weight:5,output:{port}")).collect();
    group(&br, GroupCommand::Add, &format!("group_id=1,type=select{buckets}")).expect("adds");
    add_flow(&br, "in_port=1,actions=group:1");
    let mut to: std::collections::HashMap<String, u32> = std::collections::HashMap::new();
    for n in 0..FLOWS {
        let flow = format!("in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.{}.{},tp_src=5,tp_dst=6", n / 250, n % 250);
        assert_eq!(datapath_actions(&br, &flow), "hash(sym_l4(0)),recirc(0x1)");
        let key = parse_exact(&flow, &NoNames).expect("a flow");
        let flow = format!("{flow},dp_hash={}", flow::hash::symmetric_l4(&key, 0));
        *to.entry(datapath_actions(&br, &flow)).or_default() += 1;
    }
    // Chi-square of seven degrees of freedom: above 24.3 in one case of a thousand.
    let expected = f64::from(FLOWS / BUCKETS);
    let chi2: f64 = to.values().map(|n| (f64::from(*n) - expected).powi(2) / expected).sum();
    assert!(to.len() == 8 && chi2 < 24.3, "{chi2}: {to:?}");
}

#[test]
fn single_buckets_come_and_go() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    use GroupCommand::{Add, InsertBucket, RemoveBucket};
    group(&br, Add, "group_id=1,type=all,bucket=bucket_id:1,output:1,bucket=bucket_id:2,output:2").expect("adds");
    let change = |command, text: &str| group(&br, command, text).map(|_| ());
    let ids = || br.groups(1)[0].buckets.iter().map(|b| b.bucket.bucket_id).collect::<Vec<_>>();
    let insert = |at: &str, id: u32| {
        change(InsertBucket, &format!("group_id=1,command_bucket_id={at},bucket=bucket_id:{id},output:1"))
    };
    assert_eq!(insert("first", 5), Ok(()));
    assert_eq!(insert("1", 6), Ok(()));
    assert_eq!(insert("last", 7), Ok(()));
    assert_eq!(ids(), [5, 1, 6, 2, 7]);
    assert_eq!(insert("last", 6), Err(OfpError::GmfcBucketExists));
    assert_eq!(insert("77", 8), Err(OfpError::GmfcUnknownBucket));
    let remove = |at: &str| change(RemoveBucket, &format!("group_id=1,command_bucket_id={at}"));
    assert_eq!(remove("77"), Err(OfpError::GmfcUnknownBucket));
    assert_eq!((remove("6"), remove("first"), remove("last")), (Ok(()), Ok(()), Ok(())));
    assert_eq!(ids(), [1, 2]);
    assert_eq!((remove("all"), ids().len(), remove("first")), (Ok(()), 0, Ok(())));
}

#[test]
fn fast_failover_follows_ports_and_groups() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 4);
    use GroupCommand::{Add, Modify};
    group(&br, Add, "group_id=1,type=ff,bucket=watch_port:2,output:2,bucket=watch_group:2,output:3").expect("adds");
    add_flow(&br, "in_port=1,actions=group:1");
    let out = || datapath_actions(&br, "in_port=1");
    let port = |n: usize| {
        let Some(PortOut::Device(dp)) = br.port(PortNo(n as u32)).map(|p| p.spec.out) else { panic!("a device") };
        dp.to_string()
    };
    assert_eq!(out(), port(2));
    let down = |on| br.set_port_config(PortNo(2), xlate::PortConfig { down: on, ..Default::default() });
    down(true);
    assert_eq!(out(), "drop", "group 2 does not exist");
    group(&br, Add, "group_id=2,type=all,bucket=output:4").expect("adds");
    assert_eq!(out(), port(3));
    // The groups depend on each other only: neither is live.
    group(&br, Modify, "group_id=2,type=ff,bucket=watch_group:3,output:4").expect("changes");
    group(&br, Add, "group_id=3,type=ff,bucket=watch_group:2,output:4").expect("adds");
    assert_eq!(out(), "drop");
    group(&br, Modify, "group_id=3,type=ff,bucket=watch_group:2,output:4,bucket=watch_port:4,output:4")
        .expect("changes");
    assert_eq!(out(), port(3));
    down(false);
    assert_eq!(out(), port(2));
}

#[test]
fn a_selection_is_stable_for_a_flow_and_weighted() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let buckets = "bucket=weight:1,output:2,bucket=weight:3,output:3";
    group(&br, GroupCommand::Add, &format!("group_id=1,type=select,selection_method=hash,{buckets}")).expect("adds");
    add_flow(&br, "in_port=1,actions=group:1");
    let mut to_three = 0;
    for n in 0..400 {
        let (src, dst) = (format!("10.0.{}.{}", n / 200, n % 200), "10.9.9.9");
        let flow = |a: &str, b: &str, p: u32, q: u32| {
            datapath_actions(&br, &format!("in_port=1,tcp,nw_src={a},nw_dst={b},tp_src={p},tp_dst={q}"))
        };
        let there = flow(&src, dst, 1000 + n, 80);
        assert_eq!(there, flow(dst, &src, 80, 1000 + n), "both directions");
        let Some(PortOut::Device(three)) = br.port(PortNo(3)).map(|p| p.spec.out) else { panic!("a device") };
        to_three += u32::from(there == three.to_string());
    }
    // Three quarters of the flows, within four standard deviations.
    assert!((300 - 35..300 + 35).contains(&to_three), "{to_three} of 400");
    // By default the datapath computes the hash, of which few bits select the bucket.
    group(&br, GroupCommand::Modify, &format!("group_id=1,type=select,{buckets}")).expect("changes");
    assert_eq!(datapath_actions(&br, "in_port=1,tcp"), "hash(sym_l4(0)),recirc(0x1)");
    let Some(PortOut::Device(three)) = br.port(PortNo(3)).map(|p| p.spec.out) else { panic!("a device") };
    let by_hash =
        (1..=160).filter(|hash| datapath_actions(&br, &format!("in_port=1,tcp,dp_hash={hash}")) == three.to_string());
    assert_eq!(by_hash.count(), 120, "of 160");
    // Selecting from a single bucket reads nothing of the packet.
    group(&br, GroupCommand::Modify, "group_id=1,type=select,bucket=weight:0,output:2,bucket=weight:3,output:3")
        .expect("changes");
    let net = lab.switch.network();
    let key = parse_exact("in_port=1,tcp", &NoNames).expect("a flow");
    let verdict = translate_from(&net, &net.bridges[&br.id()], &key, Start::Tables, false);
    assert_eq!(verdict.mask().get(Field::Ipv4Src), 0);
}

/// A bridge that learns the ports of stations by flows, like NORMAL.
fn learning(lab: &mut Lab, more: &str) -> Arc<Ofproto> {
    let br = lab.bridge("br", 3);
    let learn = format!("learn(table=1,{more}NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])");
    add_flow(&br, &format!("cookie=7,priority=1,actions={learn},resubmit(,1)"));
    add_flow(&br, "table=1,priority=0,actions=output:3");
    br
}

fn learned(br: &Ofproto) -> Vec<String> {
    flows(br).into_iter().filter(|f| f.starts_with("1 ") && !f.starts_with("1 0 ")).collect()
}

#[test]
fn packets_teach_flows() {
    let mut lab = Lab::new();
    let br = learning(&mut lab, "hard_timeout=10,");
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!(learned(&br), ["1 32768 dl_dst=02:00:00:00:00:01 output:1"]);
    lab.send("br-2", &[frame(2, 1)]);
    assert_eq!((lab.received("br-1").len(), lab.received("br-3").len()), (1, 1));
    assert_eq!(learned(&br).len(), 2);
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!((lab.received("br-2").len(), lab.received("br-3").len()), (1, 0));
    // Further packets teach the flow again without a translation.
    lab.switch.revalidate();
    let translations = lab.switch.translations();
    for _ in 0..4 {
        lab.clock.warp(4000);
        lab.send("br-1", &[frame(1, 2)]);
        lab.switch.housekeeping();
    }
    assert_eq!(
        (learned(&br), lab.switch.translations()),
        (vec!["1 32768 dl_dst=02:00:00:00:00:01 output:1".into()], translations + 1)
    );
    // A station moves.
    lab.send("br-3", &[frame(1, 9)]);
    assert_eq!(learned(&br), ["1 32768 dl_dst=02:00:00:00:00:01 output:3"]);
    lab.send("br-2", &[frame(4, 1)]);
    lab.received("br-1");
    // One more packet went there after station 2 had been removed.
    assert_eq!(lab.received("br-3").len(), 1 + 1);
    lab.clock.warp(20_000);
    lab.switch.housekeeping();
    assert!(learned(&br).is_empty());
    // The next packet teaches a removed flow again, cached or not.
    lab.send("br-1", &[frame(1, 2)]);
    lab.switch.housekeeping();
    assert_eq!(learned(&br).len(), 1);
    br.flow_mod(&fm(FlowModCommand::Delete, "table=1,dl_dst=02:00:00:00:00:01")).expect("deletes");
    lab.switch.revalidate();
    assert!(learned(&br).is_empty());
    lab.clock.warp(1);
    lab.send("br-1", &[frame(1, 2)]);
    lab.switch.revalidate();
    assert_eq!(learned(&br).len(), 1);
}

#[test]
fn very_many_flows_are_deleted_at_once() {
    const MANY: u64 = 1500;
    let mut lab = Lab::new();
    let br = learning(&mut lab, "cookie=5,delete_learned,");
    lab.send("br-1", &[frame(1, 2)]);
    lab.send("br-2", &[frame(2, 1)]);
    assert_eq!(learned(&br).len(), 2);
    add_flow(&br, "table=9,cookie=3,priority=7,in_port=5,actions=drop");
    let fill = |t: &mut crate::transaction::Transaction<'_>| {
        (0..MANY).try_for_each(|n| {
            let flag = if n % 500 == 0 { "send_flow_rem," } else { "" };
            let text =
                format!("table={},cookie={},{flag}dl_dst={},actions=drop", 4 + n % 3, n % 2, MacAddr::from_u64(n));
            t.flow_mod(&fm(FlowModCommand::Add, &text))
        })
    };
    br.transaction(fill).expect("adds");
    let with_cookie = |cookie| br.tables().iter().map(|table| table.n_with_cookie(cookie)).sum::<u64>();
    let before = br.n_flows();
    assert_eq!((with_cookie(0), with_cookie(1), with_cookie(3)), (MANY / 2 + 1, MANY / 2, 1));
    // Without effect, if nothing is left of the transaction.
    let delete = FlowMod { cookie: 0, cookie_mask: !7, ..command(FlowModCommand::Delete, Match::ANY) };
    let failed = br.transaction(|t| t.flow_mod(&delete).and(Err::<(), _>(OfpError::BrcEperm)));
    assert!(failed.is_err());
    assert_eq!((br.n_flows(), with_cookie(0), br.collect(&Criteria::any()).len()), (before, MANY / 2 + 1, before));
    // With the flows that they taught, and new ones of the same match.
    let ((), removed) = br.transaction(|t| t.flow_mod(&delete).and_then(|()| fill(t))).expect("deletes and adds");
    assert_eq!(removed.iter().filter(|r| r.rule.flags.send_flow_rem).count(), 3);
    assert_eq!((with_cookie(0), with_cookie(1), with_cookie(3)), (MANY / 2, MANY / 2, 0));
    assert_eq!((br.n_flows(), learned(&br).len()), (MANY as usize, 0));
    let report = lab.switch.pass(crate::Extent::Changes);
    assert!(report.candidates > 0, "{report:?}");
    assert_eq!(lab.switch.pass(crate::Extent::Full).fixed_up, 0);
    br.tidy(lab.clock.now());
    assert_eq!(br.tables().iter().map(|table| table.rules.len()).sum::<usize>(), MANY as usize);
    br.flow_mod(&delete).expect("deletes");
    br.tidy(lab.clock.now());
    assert_eq!((br.n_flows(), with_cookie(0)), (0, 0));
    assert!(br.tables().iter().all(|table| table.rules.is_empty()));
}

#[test]
fn learned_flows_are_deleted_with_the_last_flow_that_teaches_them() {
    let mut lab = Lab::new();
    let br = learning(&mut lab, "cookie=5,delete_learned,");
    add_flow(&br, "cookie=8,in_port=77,actions=clone(learn(table=1,cookie=5,delete_learned,NXM_OF_ETH_DST[]))");
    lab.send("br-1", &[frame(1, 2)]);
    lab.send("br-2", &[frame(2, 1)]);
    assert_eq!(learned(&br).len(), 2);
    // The flow is replaced by one that teaches too; then one teacher is left; then none.
    add_learning_flow(&br);
    assert_eq!(learned(&br).len(), 2);
    br.flow_mod(&FlowMod { cookie: 7, cookie_mask: u64::MAX, ..command(FlowModCommand::Delete, Match::ANY) })
        .expect("deletes");
    assert_eq!(learned(&br).len(), 2);
    let fm = FlowMod { cookie: 8, cookie_mask: u64::MAX, ..command(FlowModCommand::Delete, Match::ANY) };
    let removed = br.flow_mod(&fm).expect("deletes");
    assert_eq!((removed.len(), learned(&br).len()), (3, 0));
}

fn add_learning_flow(br: &Ofproto) {
    let learn = "learn(table=1,cookie=5,delete_learned,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
    add_flow(br, &format!("cookie=7,priority=1,actions={learn},resubmit(,1)"));
}

#[test]
fn a_learning_limit_holds_and_writes_its_result() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let learn = "learn(table=1,cookie=5,limit=2,result_dst=NXM_NX_REG0[0],NXM_OF_ETH_SRC[],load:1->NXM_NX_REG1[])";
    add_flow(&br, &format!("actions={learn},resubmit(,2)"));
    add_flow(&br, "table=2,reg0=1,actions=output:2");
    add_flow(&br, "table=2,reg0=0,actions=output:3");
    for n in 1..=4 {
        lab.send("br-1", &[frame(n, 9)]);
    }
    assert_eq!((learned(&br).len(), lab.received("br-2").len(), lab.received("br-3").len()), (2, 2, 2));
    lab.send("br-1", &[frame(1, 9), frame(4, 9)]);
    assert_eq!((lab.received("br-2").len(), lab.received("br-3").len()), (1, 1));
    // There is room again: the fourth station is learned from its next packet.
    br.flow_mod(&fm(FlowModCommand::Delete, "table=1,dl_src=02:00:00:00:00:01")).expect("deletes");
    lab.clock.warp(1);
    lab.send("br-1", &[frame(4, 9)]);
    assert_eq!((lab.received("br-2").len(), lab.received("br-3").len()), (1, 0));
    lab.switch.revalidate();
    assert_eq!(learned(&br).len(), 2);
}

#[test]
fn cached_flows_that_learn_are_removed_when_their_limit_has_room() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    add_flow(
        &br,
        "actions=learn(table=1,cookie=5,limit=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),output:2",
    );
    let cached = || {
        let report = lab.switch.pass(crate::Extent::Full);
        assert_eq!(report.fixed_up, 0);
        report.flows
    };
    let of = |n: u8| vec![format!("1 32768 dl_dst=02:00:00:00:00:0{n} output:1")];
    lab.send("br-1", &[frame(1, 9), frame(2, 9)]);
    assert_eq!((learned(&br), cached()), (of(1), 2));
    // Additions make no room.
    add_flow(&br, "table=1,priority=0,actions=drop");
    let report = lab.switch.pass(crate::Extent::Changes);
    assert_eq!((report.translated, cached()), (0, 2));
    // After a removal the first packet is learned at once, whichever cached flow it had, and the second one is not.
    br.flow_mod(&fm(FlowModCommand::Delete, "table=1,dl_dst=02:00:00:00:00:01")).expect("deletes");
    lab.switch.pass(crate::Extent::Changes);
    assert_eq!(cached(), 0);
    lab.clock.warp(1);
    lab.send("br-1", &[frame(2, 9)]);
    assert_eq!(learned(&br), of(2));
    lab.send("br-1", &[frame(1, 9)]);
    assert_eq!((learned(&br), cached()), (of(2), 2));
    // Without a limit, cached flows stay.
    br.flush_flows();
    add_flow(&br, "actions=learn(table=1,cookie=5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),output:2");
    lab.clock.warp(1);
    lab.send("br-1", &[frame(1, 9), frame(2, 9)]);
    assert_eq!((cached(), learned(&br).len()), (2, 2));
    br.flow_mod(&fm(FlowModCommand::Delete, "table=1")).expect("deletes");
    assert_eq!(cached(), 2);
}

#[test]
fn a_learned_flow_follows_the_port_seen_last() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    for port in [1, 2] {
        let learn = "learn(table=1,priority=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
        add_flow(&br, &format!("in_port={port},actions={learn}"));
    }
    let on = |port: u8| vec![format!("1 1 dl_dst=02:00:00:00:00:01 output:{port}")];
    // Cached flows are counted in the order of their installation, and in the opposite one.
    for first in [1, 2, 1] {
        let second = 3 - first;
        for port in [first, second] {
            lab.send(&format!("br-{port}"), &[frame(1, 9)]);
            lab.clock.warp(10);
        }
        lab.switch.revalidate();
        assert_eq!(learned(&br), on(second));
        // Packets of both between two rounds.
        for port in [second, first, second, first] {
            lab.clock.warp(10);
            lab.send_at_once(&format!("br-{port}"), &[frame(1, 9)]);
        }
        lab.clock.warp(500);
        lab.switch.revalidate();
        assert_eq!(learned(&br), on(first));
        // Older packets do not count once more.
        lab.switch.revalidate();
        assert_eq!(learned(&br), on(first));
    }
}

#[test]
fn connections_that_end_shorten_timeouts() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    add_flow(&br, "tcp,idle_timeout=60,actions=fin_timeout(idle_timeout=5),output:2");
    let tcp = |flags: u8| {
        let mut f = frame(1, 2);
        f.resize(60, 0);
        f[12..14].copy_from_slice(&[8, 0]);
        f[14..24].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
        f[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        f[46..48].copy_from_slice(&[0x50, flags]);
        f
    };
    let idle = || br.collect(&Criteria::any())[0].idle_timeout;
    lab.send("br-1", &[tcp(0x10)]);
    assert_eq!(idle(), 60);
    lab.send("br-1", &[tcp(0x11)]);
    assert_eq!(idle(), 5);
    lab.switch.revalidate();
    assert_eq!(br.collect(&Criteria::any())[0].stats().packets.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[test]
fn conjunctions_from_end_to_end() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    for text in [
        "priority=10,ip,nw_src=10.0.0.1,actions=conjunction(7,1/2)",
        "priority=10,ip,nw_src=10.0.0.2,actions=conjunction(7,1/2)",
        "priority=10,ip,nw_dst=10.0.0.9,actions=conjunction(7,2/2)",
        "priority=20,ip,conj_id=7,actions=output:2",
        "priority=5,actions=output:3",
    ] {
        add_flow(&br, text);
    }
    let out = |src: u8, dst: u8| {
        let key =
            parse_exact(&format!("in_port=1,ip,nw_src=10.0.0.{src},nw_dst=10.0.0.{dst}"), &NoNames).expect("a flow");
        br.trace(&key, false).expect("traces")
    };
    let (both, one) = (out(2, 9), out(2, 8));
    let clauses = "     -> conj. priority=10,ip,nw_src=10.0.0.2\n     -> conj. priority=10,ip,nw_dst=10.0.0.9\n";
    let want = format!("\n 0. conj_id=7,ip, priority 20\n{clauses}    output:2\n");
    assert!(both.text().contains(&want), "{}", both.text());
    assert!(both.megaflow.contains("nw_src=10.0.0.2") && !both.megaflow.contains("conj_id"), "{}", both.megaflow);
    assert!(one.text().contains("\n 0. priority 5\n    output:3\n"), "{}", one.text());
    // An ordinary flow between the two priorities precedes the clauses, but not the flow that they lead to.
    add_flow(&br, "priority=15,actions=output:3");
    assert!(out(2, 9).text().contains("priority 15"));
}

#[test]
fn translations_see_transactions_as_a_whole() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let step = |n: u32| {
        let result = br.transaction(|t| {
            t.flow_mod(&fm(FlowModCommand::Delete, "table=1"))?;
            t.group_mod(&gm(
                GroupCommand::AddOrModify,
                &format!("group_id=1,type=all,bucket=load:{n}->reg0,resubmit(,1)"),
            ))?;
            t.flow_mod(&fm(FlowModCommand::Add, &format!("actions=load:{n}->reg1,group:1")))?;
            t.flow_mod(&fm(FlowModCommand::Add, &format!("table=1,reg0={n},reg1={n},actions=output:2")))
        });
        result.expect("no error");
    };
    step(0);
    let key = parse_exact("in_port=1", &NoNames).expect("a flow");
    let Some(PortOut::Device(two)) = br.port(PortNo(2)).map(|p| p.spec.out) else { panic!("a device") };
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let reader = || {
            let mut seen = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) || seen == 0 {
                let net = lab.switch.network();
                let verdict = translate_from(&net, &net.bridges[&br.id()], &key, Start::Tables, false);
                assert_eq!(verdict.actions, [dpif::DpAction::Output(two)]);
                seen += 1;
            }
            seen
        };
        let readers: Vec<_> = (0..2).map(|_| s.spawn(reader)).collect();
        (1..500).for_each(step);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        readers.into_iter().for_each(|r| assert!(r.join().expect("no half of a transaction") > 0));
    });
    br.tidy(br.now());
    assert_eq!((br.tables()[0].rules.len(), br.tables()[1].rules.len(), br.n_flows()), (1, 1, 2));
}
