//! Measures the cost of a translation: `translate CASE N` translates a packet N times. To count instructions, run it under
//! callgrind with
//! two values of N: `valgrind --tool=callgrind target/release/examples/translate group 1000`.

use base::{DpPort, MacAddr, Millis, PortNo};
use flow::text::NoNames;
use flow::{Field, FlowKey, Match, OptionTable};
use openflow::group::{Bucket, GroupProperties};
use openflow::switch::FragHandling;
use openflow::{Action, GroupKind};
use parking_lot::RwLock;
use std::sync::Arc;
use xlate::model::{PriorityTags, conjunctions_of, new_tables};
use xlate::{
    Bridge, Bundle, Count, Group, GroupBucket, Groups, MacTable, Meters, Network, Port, PortConfig, PortOut, Rule,
    Tables, View, VlanMode, translate,
};

/// Cases: name, actions in table 0, actions in table 1.
const CASES: [(&str, &str, &str); 7] = [
    ("output", "output:2", "drop"),
    ("tables", "resubmit(,1)", "output:2"),
    ("normal", "NORMAL", "drop"),
    ("clone", "clone(set_field:02:00:00:00:00:09->eth_dst,output:2),output:4", "drop"),
    ("patch", "output:3", "drop"),
    ("group", "group:1", "drop"),
    ("failover", "group:2", "drop"),
];

/// Ports of a bridge; the third one is a patch port.
const PORTS: u32 = 6;

fn actions(text: &str) -> Vec<Action> {
    openflow::parse_actions(text, &NoNames).expect("actions")
}

fn add_rule(tables: &Tables, table: u8, list: &[Action]) {
    let rules = &tables[usize::from(table)].rules;
    rules.insert(Arc::new(Rule {
        minimatch: rules.compress(&Match::ANY),
        priority: 0,
        table,
        cookie: 0,
        idle_timeout: 0,
        hard_timeout: 0,
        importance: 0,
        flags: openflow::flow_mod::FlowFlags::default(),
        actions: list.into(),
        created: Millis(0),
        modified: 0.into(),
        versions: classifier::Versions::new(0),
        conjunctions: conjunctions_of(list),
        count: Count::default(),
    }));
}

/// A group with a bucket for each of these ports.
fn group(id: u32, kind: GroupKind, ports: &[u32]) -> Group {
    let bucket = |port: &u32| {
        let mut bucket = Bucket::new(kind);
        if kind == GroupKind::FastFailover {
            bucket.watch_port = PortNo(*port);
        }
        bucket.actions = actions(&format!("set_field:02:00:00:00:00:0{port}->eth_dst,output:{port}")).into();
        GroupBucket::new(bucket)
    };
    Group {
        id,
        kind,
        buckets: ports.iter().map(bucket).collect(),
        properties: GroupProperties::default(),
        created: Millis(0),
        counters: Arc::default(),
        spread: xlate::groups::Spread::default(),
    }
}

fn bridge(id: u32, case: (&str, &str, &str)) -> Bridge {
    let tables = new_tables();
    add_rule(&tables, 0, &actions(if id == 0 { case.1 } else { "output:1" }));
    add_rule(&tables, 1, &actions(case.2));
    let mut groups = Groups::default();
    groups.insert(1, Arc::new(group(1, GroupKind::All, &[2, 4, 5, 6])));
    groups.insert(2, Arc::new(group(2, GroupKind::FastFailover, &[9, 9, 4, 5])));
    tables.publish(View { version: 1, groups: Arc::new(groups), meters: Arc::new(Meters::default()) });
    let mut macs = MacTable::default();
    macs.learn(0, MacAddr([2, 0, 0, 0, 0, 2]), PortNo(2), Millis(1));
    let port = |n: u32| Port {
        no: PortNo(n),
        name: format!("p{n}").into(),
        out: if n == 3 { PortOut::Patch(1 - id, PortNo(3)) } else { PortOut::Device(DpPort(10 * id + n)) },
        config: PortConfig::default(),
        live: true,
        mac: MacAddr::ZERO,
        ifindex: 0,
        tunnel: None,
        bundle: None,
    };
    let bundle = |n: u32| Bundle {
        name: format!("p{n}").into(),
        ports: vec![PortNo(n)],
        mode: VlanMode::Trunk,
        tag: 0,
        trunks: None,
        cvlans: None,
        priority_tags: PriorityTags::Never,
        protected: false,
        multicast: Default::default(),
        floodable: true,
    };
    let mut bridge = Bridge {
        id,
        name: format!("br{id}").into(),
        ports: (1..=PORTS).map(|n| (PortNo(n), port(n))).collect(),
        bundles: Default::default(),
        tables,
        macs: Arc::new(RwLock::new(macs)),
        miss_to_controller: false,
        misses: Default::default(),
        fragments: FragHandling::Normal,
        options: OptionTable::default(),
        forward_bpdu: false,
        snooping: None,
        dhcp_to_local: false,
        queue_marks: Default::default(),
        ipfix: None,
        local: None,
        sflow: None,
        netflow: false,
        mirrors: None,
        flood_vlans: None,
    };
    bridge.set_bundles((1..=PORTS).map(bundle));
    bridge
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let case = words.first().and_then(|name| CASES.iter().find(|case| case.0 == name));
    let n: Option<u32> = words.get(1).and_then(|n| n.parse().ok());
    let (Some(case), Some(n)) = (case, n) else {
        let names = CASES.map(|case| case.0).join(" | ");
        eprintln!("usage: translate {names} N");
        std::process::exit(2);
    };
    let mut net = Network::default();
    for id in 0..2 {
        net.bridges.insert(id, Arc::new(bridge(id, *case)));
        (1..=PORTS).for_each(|port| _ = net.ports.insert(DpPort(10 * id + port), (id, PortNo(port))));
    }
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(1));
    key.set(Field::EthSrc, 0x0200_0000_0001);
    key.set(Field::EthDst, 0x0200_0000_0002);
    key.set(Field::EthType, 0x800);
    key.set(Field::IpProto, 6);
    let mut emitted = 0;
    for _ in 0..n {
        emitted += translate(&net, std::hint::black_box(&key), false).actions.len();
    }
    println!("{n} translations, {emitted} actions");
}
