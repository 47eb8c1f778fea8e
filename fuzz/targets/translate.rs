//! Any small tables and any packet: the translation ends, and packets that agree in the bits that it read have the
//! same verdict, which is what cached flows rely on.
#![no_main]

use base::{DpPort, MacAddr, Millis, PortNo};
use flow::{FlowKey, extract, layout};
use fuzz::Input;
use openflow::switch::FragHandling;
use openflow::{Limits, Version};
use parking_lot::RwLock;
use std::sync::Arc;
use xlate::model::{PriorityTags, new_tables};
use xlate::trace::{PortText, Tracing};
use xlate::{
    Bridge, Bundle, MacTable, Network, Port, PortConfig, PortOut, Rule, Table, TableMiss, VlanMode, translate,
};

fuzz::target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let frame = input.frame();
    let in_port = PortNo(1 + input.below(4) as u32);
    let noise = input.number(8) as u64;
    let (key, _) = extract(frame, in_port);
    let network = network(&mut input);
    let verdict = translate(&network, &key, Tracing::WithEffects(PortText::Numbers));
    let other = other_packet(&key, &verdict.mask(), noise);
    let again = translate(&network, &other, Tracing::Off);
    assert_eq!(verdict.actions, again.actions, "{key:?}\n{other:?}");
    assert_eq!(verdict.reads, again.reads, "{key:?}\n{other:?}");
    assert_eq!((verdict.effects.len(), verdict.error), (again.effects.len(), again.error));
});

/// A packet that differs in bits of its headers that were not read.
fn other_packet(key: &FlowKey, read: &FlowKey, noise: u64) -> FlowKey {
    let mut rng = base::rng::Rng::seeded(noise);
    let mut other = key.clone();
    for word in layout::ETH_DST..flow::WORDS {
        other.0[word] ^= rng.next_u64() & !read.0[word];
    }
    other
}

/// Two bridges of four ports, the third a patch between them, the fourth an access port.
fn network(input: &mut Input<'_>) -> Network {
    let mut network = Network::default();
    for id in 0..2 {
        let tables = new_tables();
        for _ in 0..input.below(6) {
            add_rule(&tables, input);
        }
        let out = |n| if n == 3 { PortOut::Patch(1 - id, PortNo(3)) } else { PortOut::Device(DpPort(10 * id + n)) };
        let port = |n: u32| Port {
            no: PortNo(n),
            name: format!("p{n}").into(),
            out: out(n),
            config: PortConfig::default(),
            live: true,
            mac: MacAddr([2, 0, 0, 0, 0, 9]),
            ifindex: 0,
            tunnel: None,
            bundle: None,
        };
        let mut macs = MacTable::default();
        macs.learn(0, MacAddr([2, 0, 0, 0, 0, 1]), PortNo(1), Millis(1));
        macs.learn(5, MacAddr([2, 0, 0, 0, 0, 2]), PortNo(4), Millis(1));
        [1, 2, 4].into_iter().for_each(|n| _ = network.ports.insert(DpPort(10 * id + n), (id, PortNo(n))));
        let mut bridge = Bridge {
            id,
            name: format!("br{id}").into(),
            ports: (1..5).map(|n| (PortNo(n), port(n))).collect(),
            bundles: Default::default(),
            tables,
            macs: Arc::new(RwLock::new(macs)),
            miss_to_controller: id == 1,
            fragments: if id == 0 { FragHandling::Normal } else { FragHandling::NxMatch },
            options: options(),
            misses: [(1, TableMiss::Continue), (2, TableMiss::Drop)].into(),
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
        bridge.set_bundles((1..5).map(bundle));
        network.bridges.insert(id, Arc::new(bridge));
    }
    network
}

/// Two options that are mapped.
fn options() -> flow::OptionTable {
    let placed = |field, places: &[u8]| {
        let places: Vec<_> = places.iter().copied().filter_map(flow::OptionPlace::new).collect();
        flow::PlacedOption::new(field, &places)
    };
    [placed(flow::Field::TunMetadata0, &[3]), placed(flow::Field::TunMetadata1, &[9, 1, 2, 5, 4])]
        .into_iter()
        .flatten()
        .collect()
}

fn bundle(n: u32) -> Bundle {
    Bundle {
        name: format!("p{n}").into(),
        ports: vec![PortNo(n)],
        mode: if n == 4 { VlanMode::Access } else { VlanMode::Trunk },
        tag: if n == 4 { 5 } else { 0 },
        trunks: None,
        cvlans: None,
        priority_tags: PriorityTags::Never,
        protected: false,
        multicast: Default::default(),
        floodable: true,
    }
}

/// Adds a rule if a bridge would take it.
fn add_rule(tables: &[Table], input: &mut Input<'_>) {
    let table = input.below(4);
    let mut matching = input.matching();
    matching.normalize(&flow::NoNames);
    let priority = input.below(4) as u32;
    let actions = input.actions(2);

    if openflow::check(&actions, &matching, &Limits::new(Version::V10, table as u8)).is_err() {
        return;
    }
    let rules = &tables[table].rules;
    let minimatch = rules.compress(&matching);
    rules.insert(Arc::new(Rule {
        minimatch,
        priority,
        table: table as u8,
        cookie: 0,
        idle_timeout: 0,
        hard_timeout: 0,
        importance: 0,
        flags: openflow::FlowFlags::default(),
        conjunctions: xlate::model::conjunctions_of(&actions),
        actions: actions.into(),
        created: Millis(0),
        modified: 0.into(),
        versions: classifier::Versions::new(0),
        count: xlate::Count::default(),
    }));
}
