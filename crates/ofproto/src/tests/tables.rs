//! Tables: limits and eviction, vacancies, names, and table misses.

use super::*;
use crate::TableSettings;
use crate::flow_table::Criteria;
use openflow::action::Subfield;
use openflow::flow_mod::FlowFlags;
use openflow::flow_msg::FlowRemovedReason;
use openflow::switch::{FragHandling, SwitchConfig};
use openflow::table::{TableFeatures, TableMod, TableProperties, TableReason, Vacancy, table_config as bits};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn limit(max_flows: u32, evict: bool, groups: Vec<Subfield>) -> BTreeMap<u8, TableSettings> {
    BTreeMap::from([(0, TableSettings { max_flows: Some(max_flows), evict, groups, ..TableSettings::default() })])
}

/// A flow with this priority for packets from `port`, with a hard timeout if `hard` is not 0.
fn expiring(port: u32, priority: u16, hard: u16, importance: u16) -> FlowMod {
    let flags = FlowFlags { send_flow_rem: true, ..FlowFlags::default() };
    FlowMod { hard_timeout: hard, importance, flags, ..add(in_port(port), priority, vec![]) }
}

fn priorities(bridge: &Ofproto) -> Vec<u32> {
    let mut all: Vec<u32> = bridge.collect(&Criteria::any()).iter().map(|rule| rule.priority).collect();
    all.sort_unstable();
    all
}

fn table_mod(config: u32, vacancy: Option<(u8, u8)>) -> Message {
    let vacancy = vacancy.map(|(down, up)| Vacancy { down, up, current: 0 });
    Message::TableMod(TableMod {
        table_id: 0,
        config,
        properties: TableProperties { vacancy, ..TableProperties::default() },
    })
}

#[test]
fn a_full_table_refuses_flows() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let c = Client::new(&br, PeerKind::Controller, Version::V14);
    br.configure_tables(&limit(2, false, vec![]));
    assert_eq!(error_of(&c.flow_mod(expiring(1, 1, 10, 0))), None);
    assert_eq!(error_of(&c.flow_mod(expiring(1, 2, 10, 0))), None);
    assert_eq!(error_of(&c.flow_mod(expiring(1, 3, 10, 0))), Some(OfpError::FmfcTableFull));
    // A replacement has room, and so have flows of other tables.
    assert_eq!(error_of(&c.flow_mod(expiring(1, 2, 20, 0))), None);
    assert_eq!(error_of(&c.flow_mod(FlowMod { table_id: Some(1), ..expiring(1, 3, 10, 0) })), None);
    assert_eq!(priorities(&br), [1, 2, 3]);
    // A deletion makes room in the same transaction; without it, the whole transaction fails.
    let full = br.transaction(|t| t.flow_mod(&expiring(1, 4, 0, 0)).and_then(|()| t.flow_mod(&expiring(1, 5, 0, 0))));
    assert_eq!(full.map(|_| ()), Err(OfpError::FmfcTableFull));
    let gone = FlowMod { table_id: Some(0), ..command(openflow::FlowModCommand::Delete, Match::ANY) };
    br.transaction(|t| t.flow_mod(&gone).and_then(|()| t.flow_mod(&expiring(1, 4, 0, 0)))).expect("has room");
    assert_eq!(priorities(&br), [3, 4]);
    // Without the row, there is no limit.
    br.configure_tables(&BTreeMap::new());
    (5..9).for_each(|n| assert_eq!(error_of(&c.flow_mod(expiring(1, n, 0, 0))), None));
}

#[test]
fn eviction_selects_by_group_importance_and_expiry() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let c = Client::new(&br, PeerKind::Controller, Version::V14);
    let old = Client::new(&br, PeerKind::Controller, Version::V13);
    br.configure_tables(&limit(5, true, vec![Subfield::whole(Field::InPortOxm)]));
    for (port, priority, hard, importance) in [(1, 1, 0, 0), (1, 2, 0, 0), (2, 3, 90, 1), (2, 4, 50, 2), (3, 5, 10, 0)]
    {
        assert!(c.flow_mod(expiring(port, priority, hard, importance)).is_empty());
    }
    let evicted = |fm: FlowMod| match &c.flow_mod(fm)[..] {
        [Message::FlowRemoved(_, r)] if r.reason == FlowRemovedReason::Eviction => r.priority,
        other => panic!("{other:?}"),
    };
    // Port 2 has the largest group of flows with a timeout: its less important flow is evicted.
    assert_eq!(evicted(expiring(3, 6, 20, 0)), 3);
    // Then of port 3, the flow that expires first, and then the other one, which is less important than that of port 2.
    assert_eq!(evicted(expiring(2, 7, 50, 1)), 5);
    assert_eq!(evicted(expiring(1, 8, 0, 9)), 7);
    assert_eq!(evicted(expiring(1, 9, 0, 9)), 6);
    assert_eq!(evicted(expiring(1, 10, 0, 9)), 4);
    // Flows without a timeout stay.
    assert_eq!(error_of(&c.flow_mod(expiring(1, 11, 0, 9))), Some(OfpError::FmfcTableFull));
    assert_eq!(priorities(&br), [1, 2, 8, 9, 10]);
    // Before OpenFlow 1.4 this reason does not exist.
    assert!(old.waiting().is_empty());
}

#[test]
fn packets_put_off_the_expiry_of_a_flow() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V15);
    br.configure_tables(&limit(2, false, vec![]));
    assert!(c.send(&table_mod(bits::EVICTION, None)).is_empty());
    let idle = |port, priority| FlowMod { idle_timeout: 60, ..add(in_port(port), priority, vec![output(2)]) };
    c.flow_mod(idle(1, 1));
    lab.clock.warp(2000);
    c.flow_mod(idle(2, 2));
    c.flow_mod(add(in_port(9), 3, vec![]));
    // The older flow was next.
    assert_eq!(priorities(&br), [2, 3]);
    c.flow_mod(command(openflow::FlowModCommand::Delete, Match::ANY));
    c.flow_mod(idle(1, 1));
    c.flow_mod(idle(2, 2));
    lab.clock.warp(2000);
    lab.send("br-1", &[frame(1, 2)]);
    lab.switch.revalidate();
    c.flow_mod(add(in_port(9), 3, vec![]));
    assert_eq!(priorities(&br), [1, 3]);
    // A smaller limit evicts flows at once; those without a timeout stay.
    br.configure_tables(&limit(0, false, vec![]));
    assert_eq!(priorities(&br), [3]);
}

tally::proptest! {
    /// The maintained order equals that of a scan of all flows.
    #[test]
    fn eviction_follows_the_documentation(flows in prop::collection::vec((0..3u32, 0..3u16, 0..4u16, 0..2u16), 1..60)) {
        let mut lab = Lab::new();
        let br = lab.bridge("br", 1);
        br.configure_tables(&limit(8, true, vec![Subfield { field: Field::InPortOxm, offset: 0, n_bits: 2 }]));
        // Priority, group, importance and expiry of the flows in the table.
        let mut there: Vec<(u16, u32, u16, u16)> = Vec::new();
        for (n, (port, importance, hard, replaces)) in (1..).zip(flows) {
            let (n, hard) = if replaces == 1 && n > 1 { (n - 1, hard * 7) } else { (n, hard * 7) };
            let old = there.iter().position(|(p, q, ..)| (*p, *q) == (n, port));
            let done = br.flow_mod(&FlowMod { hard_timeout: hard, importance, ..add(in_port(port), n, vec![]) });
            let mut expected = None;
            if let Some(at) = old {
                there.remove(at);
            } else if there.len() == 8 {
                let can: Vec<_> = there.iter().filter(|(.., hard)| *hard != 0).collect();
                let size = |group: u32| can.iter().filter(|(_, g, ..)| *g == group).count();
                let most = can.iter().map(|(_, g, ..)| size(*g)).max().unwrap_or(0);
                let largest = can.iter().filter(|(_, g, ..)| size(*g) == most);
                expected = Some(largest.map(|(.., importance, hard)| (*importance, *hard)).min());
            }
            match (expected, done) {
                (Some(None), done) => {
                    prop_assert_eq!(done.map(|_| ()), Err(OfpError::FmfcTableFull));
                    continue;
                }
                (Some(Some(expected)), Ok(removed)) => {
                    prop_assert_eq!(removed.len(), 1);
                    let rule = &removed[0].rule;
                    prop_assert_eq!((rule.importance, rule.hard_timeout), expected);
                    let gone = (rule.priority, rule.minimatch.expand().key().in_port().0);
                    there.retain(|(p, g, ..)| (u32::from(*p), *g) != gone);
                }
                (None, Ok(removed)) => prop_assert!(removed.is_empty()),
                (_, Err(error)) => prop_assert!(false, "{}", error),
            }
            there.push((n, port, importance, hard));
        }
        prop_assert_eq!(br.n_flows(), there.len());
    }
}

#[test]
fn vacancy_events_are_sent_once_in_each_direction() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let c = Client::new(&br, PeerKind::Controller, Version::V14);
    let deaf = Client::new(&br, PeerKind::Controller, Version::V14);
    c.peer.state.lock().asynchronous.table_status = [1 << 3 | 1 << 4, 0];
    br.configure_tables(&limit(10, false, vec![]));
    assert!(c.send(&table_mod(bits::VACANCY_EVENTS, Some((20, 80)))).is_empty());
    let news = |messages: Vec<Message>| match &messages[..] {
        [] => None,
        [Message::TableStatus(status)] => {
            Some((status.reason, status.desc.properties.vacancy.map(|v| (v.down, v.up, v.current))))
        }
        other => panic!("{other:?}"),
    };
    let down = |current| Some((TableReason::VacancyDown, Some((20, 80, current))));
    let up = |current| Some((TableReason::VacancyUp, Some((20, 80, current))));
    let fill = |n| news(c.flow_mod(add(Match::ANY, n, vec![])));
    let drain = |n| {
        let one =
            FlowMod { table_id: Some(0), priority: n, ..command(openflow::FlowModCommand::DeleteStrict, Match::ANY) };
        news(c.flow_mod(one))
    };
    (1..=8).for_each(|n| assert_eq!(fill(n), None, "{n}"));
    assert_eq!((fill(9), fill(10)), (down(10), None));
    // The event comes when the vacancy rises above the threshold, and once.
    (1..=8).for_each(|n| assert_eq!(drain(n), None, "{n}"));
    assert_eq!((fill(1), drain(1), drain(9), drain(10)), (None, None, up(90), None));
    // Enabling events again does not repeat an event, unless they were disabled in between.
    (1..=9).for_each(|n| _ = fill(n));
    assert!(c.send(&table_mod(bits::VACANCY_EVENTS, Some((20, 80)))).is_empty());
    let StatsReply::TableDesc(descs) = c.ask(StatsRequest::TableDesc) else { panic!("tables") };
    assert_eq!(descs[0].properties.vacancy, Some(Vacancy { down: 20, up: 80, current: 10 }));
    assert_eq!((descs[0].config, descs[1].config, descs.len()), (bits::VACANCY_EVENTS, 0, 254));
    assert!(c.send(&table_mod(0, None)).is_empty());
    assert_eq!(news(c.flow_mod(command(openflow::FlowModCommand::Delete, Match::ANY))), None);
    assert!(deaf.waiting().is_empty());
}

#[test]
fn invalid_table_mods_are_refused() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let c = Client::new(&br, PeerKind::Controller, Version::V14);
    let change = |table_id, eviction_flags| {
        let properties = TableProperties { eviction_flags, ..TableProperties::default() };
        error_of(&c.send(&Message::TableMod(TableMod { table_id, config: bits::EVICTION, properties })))
    };
    assert_eq!(change(254, None), Some(OfpError::TmfcEperm));
    assert_eq!(change(3, Some(2)), Some(OfpError::TmfcBadConfig));
    assert_eq!((change(3, Some(7)), change(255, None)), (None, None));
    let StatsReply::TableDesc(descs) = c.ask(StatsRequest::TableDesc) else { panic!("tables") };
    assert!(descs.iter().all(|desc| desc.config == bits::EVICTION && desc.properties.eviction_flags == Some(7)));
}

#[test]
fn misses_of_openflow_1_1_and_1_2() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    // A controller whose version does not send misses to controllers by default, and that receives them.
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    let old = Client::new(&br, PeerKind::Service, Version::V12);
    let miss = |config| {
        let change = TableMod { table_id: 0, config, properties: TableProperties::default() };
        assert!(old.send(&Message::TableMod(change)).is_empty());
        lab.send("br-1", &[frame(1, 2)]);
        (c.waiting().len(), lab.received("br-2").len())
    };
    br.flow_mod(&FlowMod { table_id: Some(2), ..add(Match::ANY, 1, vec![output(2)]) }).expect("adds");
    lab.send("br-1", &[frame(1, 2)]);
    assert!(c.waiting().is_empty());
    assert_eq!((miss(0), miss(2), miss(0)), ((1, 0), (0, 0), (1, 0)));
    // The packet continues in table 1, whose miss is not configured, and in table 2 once it is.
    assert_eq!(miss(1), (0, 0));
    let all = TableMod { table_id: 255, config: 1, properties: TableProperties::default() };
    assert!(old.send(&Message::TableMod(all)).is_empty());
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!((c.waiting().len(), lab.received("br-2").len()), (0, 1));
    let StatsReply::Table(tables) = old.ask(StatsRequest::Table) else { panic!("tables") };
    let config = |n: usize| tables[n].abilities.as_ref().expect("messages").config;
    assert_eq!((tables.len(), config(0), config(253)), (254, 1, 1));
    assert_eq!((tables[1].lookup_count, tables[1].matched_count, tables[2].matched_count), (2, 0, 1));
    // Behind the last table, the packet goes to controllers.
    let nothing =
        FlowMod { table_id: Some(2), command: openflow::FlowModCommand::Delete, ..add(Match::ANY, 1, vec![]) };
    br.flow_mod(&nothing).expect("deletes");
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!((c.waiting().len(), lab.received("br-2").len()), (1, 0));
}

#[test]
fn names_set_by_database_and_controllers() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let c = Client::new(&br, PeerKind::Controller, Version::V15);
    let named = |name: &str| TableSettings { name: Some(name.into()), ..TableSettings::default() };
    br.configure_tables(&BTreeMap::from([(1, named("one"))]));
    let all = |c: &Client| match c.ask(StatsRequest::TableFeatures(vec![])) {
        StatsReply::TableFeatures(tables) => tables,
        other => panic!("{other:?}"),
    };
    let names = |c: &Client| -> Vec<(u8, String)> {
        all(c).into_iter().filter(|t| !t.name.is_empty()).map(|t| (t.table_id, t.name)).collect()
    };
    let change = |table_id, name: &str, command, max_entries| {
        let table = TableFeatures { table_id, name: name.into(), command, max_entries, ..TableFeatures::default() };
        let body = StatsRequest::TableFeatures(vec![table]);
        let said = c.send(&Message::StatsRequest { more: false, body });
        if matches!(said[0], Message::StatsReply { .. }) { None } else { error_of(&said) }
    };
    assert_eq!(change(2, "two", 1, 1_000_000), None);
    assert_eq!(change(1, "one", 1, 1_000_000), None);
    assert_eq!(change(1, "other", 1, 1_000_000), Some(OfpError::TffcEperm));
    assert_eq!(change(3, "", 1, 5), Some(OfpError::TffcEperm));
    assert_eq!(change(3, "", 0, 1_000_000), Some(OfpError::TffcEperm));
    assert_eq!(change(3, "", 3, 1_000_000), Some(OfpError::TffcEperm));
    assert_eq!(change(3, "", 4, 1_000_000), Some(OfpError::TffcBadCommand));
    assert_eq!(change(255, "", 1, 1_000_000), Some(OfpError::TffcBadTable));
    assert_eq!(names(&c), [(1, "one".into()), (2, "two".into())]);
    // The database's name is removed with its row, and permanently replaces one of a controller.
    br.configure_tables(&BTreeMap::from([(2, named("zwei"))]));
    assert_eq!(names(&c), [(2, "zwei".into())]);
    br.configure_tables(&BTreeMap::from([(2, named(&"x".repeat(50)))]));
    assert_eq!(names(&c), [(2, "x".repeat(31))]);
    assert_eq!(change(2, &"x".repeat(31), 1, 1_000_000), None);
    br.configure_tables(&BTreeMap::new());
    assert_eq!((names(&c), change(2, "two", 1, 1_000_000)), (vec![], None));
    // Before OpenFlow 1.5 a request is for all tables, in as many messages as necessary.
    let older = Client::new(&br, PeerKind::Controller, Version::V13);
    let mut tables = all(&older);
    tables[7].name = "seven".into();
    tables[1].name.clear();
    let part = |range: std::ops::Range<usize>, more| {
        let body = StatsRequest::TableFeatures(tables[range].to_vec());
        older.send(&Message::StatsRequest { more, body })
    };
    let parts: Vec<_> = (0..25).map(|n| part(n * 10..n * 10 + 10, true)).collect();
    assert!(parts.iter().all(Vec::is_empty));
    assert!(matches!(part(250..254, false)[0], Message::StatsReply { .. }));
    assert_eq!(names(&c), [(2, "two".into()), (7, "seven".into())]);
    assert!(part(0..1, true).is_empty() && part(0..1, true).is_empty());
    assert_eq!(error_of(&part(1..2, false)), Some(OfpError::NxtffcDupTable));
    // The wait for a missing part has a limit; requests of other types must be complete, or are not supported.
    assert!(part(0..1, true).is_empty());
    assert_eq!(
        error_of(&older.send(&Message::StatsRequest { more: false, body: StatsRequest::Desc })),
        Some(OfpError::BrcBadStat)
    );
    // The limit is for the time between parts, however long the whole request takes.
    for n in 0..4 {
        assert!(part(n..n + 1, true).is_empty());
        lab.clock.warp(999);
        lab.switch.housekeeping();
        assert!(older.waiting().is_empty());
    }
    lab.clock.warp(1);
    lab.switch.housekeeping();
    assert_eq!(error_of(&older.waiting()), Some(OfpError::BrcMultipartRequestTimeout));
}

#[test]
fn fragments() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    let set = |frag| {
        let config = SwitchConfig { frag, invalid_ttl_to_controller: None, miss_send_len: 7 };
        assert_eq!(error_of(&c.send(&Message::SetConfig(config))), None);
        match &c.send(&Message::GetConfigRequest)[..] {
            [Message::GetConfigReply(now)] => (now.frag, now.miss_send_len),
            other => panic!("{other:?}"),
        }
    };
    let mut to_port_7 = Match::ANY;
    to_port_7.set(Field::EthType, 0x800);
    to_port_7.set(Field::IpProto, 17);
    to_port_7.set(Field::UdpDst, 7);
    assert_eq!(error_of(&c.flow_mod(add(to_port_7, 5, vec![output(2)]))), None);
    // A whole packet, a first fragment, and a later one, with bytes that look like ports behind its header.
    let frames = [0, 0x2000, 0x2001, 5].map(|flags_offset: u16| {
        let mut frame = frame(1, 2);
        frame.truncate(14);
        frame[12..].copy_from_slice(&[8, 0]);
        frame.extend([0x45, 0, 0, 36, 0, 1]);
        frame.extend(flags_offset.to_be_bytes());
        frame.extend([9, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 9, 0, 7, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        frame
    });
    let sent = |lab: &Lab| {
        lab.send("br-1", &frames);
        // Cached flows of the previous mode do not apply any more.
        lab.send("br-1", &frames);
        lab.received("br-2").len()
    };
    assert_eq!(sent(&lab), 2, "a fragment has no ports");
    assert_eq!((set(FragHandling::NxMatch), sent(&lab)), ((FragHandling::NxMatch, 7), 4));
    assert_eq!((set(FragHandling::Drop), sent(&lab)), ((FragHandling::Drop, 7), 2));
    let dropped =
        |lab: &Lab| lab.dp.drops().iter().find(|(r, _)| *r == base::DropReason::Fragment).map_or(0, |(_, n)| *n);
    assert_eq!(dropped(&lab), 6);
    // The configuration reply shows that an unsupported mode was not set.
    assert_eq!((set(FragHandling::Reassemble), sent(&lab)), ((FragHandling::Drop, 7), 2));
    let mut all = Match::ANY;
    all.set(Field::EthType, 0x800);
    assert_eq!(error_of(&c.flow_mod(add(all, 1, vec![output(2)]))), None);
    assert_eq!(sent(&lab), 2);
    assert_eq!((set(FragHandling::Normal), sent(&lab)), ((FragHandling::Normal, 7), 8));
}

#[test]
fn evictions_for_learned_flows_are_reported() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let c = Client::new(&br, PeerKind::Controller, Version::V14);
    let learn = openflow::action::Learn { table: 0, priority: 7, idle_timeout: 9, ..Default::default() };
    assert!(
        c.flow_mod(FlowMod { table_id: Some(1), ..add(Match::ANY, 1, vec![Action::Learn(Arc::new(learn))]) })
            .is_empty()
    );
    let goto = Action::Resubmit { in_port: None, table: Some(1) };
    assert!(c.flow_mod(add(in_port(1), 9, vec![goto])).is_empty());
    br.configure_tables(&limit(2, true, vec![]));
    assert!(c.flow_mod(expiring(3, 1, 10, 0)).is_empty());
    lab.send("br-1", &[frame(1, 2)]);
    let messages = c.waiting();
    let [Message::FlowRemoved(_, gone)] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((gone.priority, gone.reason), (1, FlowRemovedReason::Eviction));
    assert_eq!(priorities(&br), [1, 7, 9]);
}
