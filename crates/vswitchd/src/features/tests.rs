//! Rows read into settings: values that are honoured, corrected, and warned of. Each feature reads a replica of just the
//! columns that it lists, since debug builds refuse to read others.

mod layer_2;

use super::address::InterfaceAddress;
use super::controllers::{ControllerSpec, Controllers};
use super::flow_tables::FlowTables;
use super::forward_bpdu::ForwardBpdu;
use super::identity::Identity;
use super::in_band::InBand;
use super::ipfix::Ipfix;
use super::lacp::{Lacp, Member};
use super::lldp::Lldp;
use super::local_sampling::LocalSampling;
use super::mac_table::{MacTable, MacTableSpec};
use super::mtu::Mtu;
use super::multicast::Multicast;
use super::netflow::Netflow;
use super::qos::{IngressPolicing, Qos};
use super::queues::Queues;
use super::sflow::Sflow;
use super::spanning_tree::{LinkType, PortSpec, SpanningTree, SpanningTreePort, SpanningTreePortSpec};
use super::timeout_policies::TimeoutPolicies;
use super::tls::Tls;
use super::tuning::TuningFeature;
use super::unsupported::OfSwitch;
use super::vlan::{Vlan, VlanSpec};
use super::zone_limits::ZoneLimits;
use crate::feature::{Feature, Level};
use crate::levels::{BridgeLevel, BridgeRows, InterfaceLevel, InterfaceRows, PortLevel, PortRows, SwitchLevel};
use crate::reader::Reader;
use ::lacp::{Mode, Timeout};
use ::tls::CaCert;
use flow::Field;
use ofproto::{IpfixSettings, RateLimit, Settings, SnoopingSettings, TableSettings};
use openflow::Version;
use openflow::versions::Versions;
use ovsdb::Uuid;
use ovsdb_client::schemas::vswitch as db;
use ovsdb_client::typed::{Ref, Row, Table};
use ovsdb_client::{Replica, Wanted};
use serde_json::{Value, json};
use snooping::Flooding;
use xlate::VlanMode;
use xlate::model::PriorityTags;

fn id(n: u32) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

fn row<T: Table>(db: &Replica, n: u32) -> Row<'_, T> {
    db.find(Ref::new(Uuid::parse(&id(n)).unwrap())).unwrap()
}

/// The rows of the object of each level that tests look at: the switch, the bridge `br0`, its port `p` and the interface
/// `p`.
trait TestLevel: Level {
    fn rows(db: &Replica) -> Self::Rows<'_>;
}

impl TestLevel for SwitchLevel {
    fn rows(db: &Replica) -> Row<'_, db::OpenVSwitch> {
        row(db, 1)
    }
}

impl TestLevel for BridgeLevel {
    fn rows(db: &Replica) -> BridgeRows<'_> {
        BridgeRows { root: row(db, 1), bridge: row(db, 2) }
    }
}

impl TestLevel for PortLevel {
    fn rows(db: &Replica) -> PortRows<'_> {
        PortRows { port: row(db, 5) }
    }
}

impl TestLevel for InterfaceLevel {
    fn rows(db: &Replica) -> InterfaceRows<'_> {
        let port: Row<'_, db::Port> = row(db, 5);
        InterfaceRows { bridge: row(db, 2), port: port.reference(), interface: row(db, 6) }
    }
}

/// Reads a feature of a database with one root row that has the bridge `br0`, which has `port` beside its own, of which
/// `interface`, and with `more` rows of other tables, or in place of the root row.
fn read<F: Feature<Level: TestLevel>>(
    (bridge, port, interface): (&Value, &Value, &Value),
    more: &Value,
) -> (F::Spec, Vec<String>) {
    let mut tables = json!({
        "Open_vSwitch": { id(1): { "initial": { "bridges": ["uuid", id(2)], "next_cfg": 3 } } },
        "Bridge": { id(2): { "initial": { "name": "br0", "ports": ["set", [["uuid", id(3)], ["uuid", id(5)]]] } } },
        "Port": {
            id(3): { "initial": { "name": "br0", "interfaces": ["uuid", id(4)] } },
            id(5): { "initial": { "name": "p", "interfaces": ["uuid", id(6)] } },
        },
        "Interface": {
            id(4): { "initial": { "name": "br0" } },
            id(6): { "initial": { "name": "p" } },
        },
    });
    let mut merge = |table: &str, row: u32, with: &Value| {
        let initial = tables[table][id(row)]["initial"].as_object_mut().unwrap();
        initial.extend(with.as_object().unwrap().clone());
    };
    merge("Bridge", 2, bridge);
    merge("Port", 5, port);
    merge("Interface", 6, interface);
    for (table, rows) in more.as_object().unwrap() {
        tables[table] = rows.clone();
    }
    let mut wanted = Wanted::from(F::COLUMNS);
    for table in ["Open_vSwitch", "Bridge", "Port", "Interface"] {
        wanted.table(table);
    }
    let mut replica = Replica::new(&wanted);
    let schema = ovsdb::DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH).unwrap();
    assert_eq!(replica.bind(&schema), []);
    tables.as_object_mut().unwrap().retain(|table, _| replica.table(table).is_some());
    replica.apply_updates2(&tables).unwrap();
    let reader = Reader::new(&replica);
    let spec = F::read(&reader, F::Level::rows(&replica));
    (spec, reader.finish().0.into_iter().collect())
}

fn bridge_of<F: Feature<Level: TestLevel>>(bridge: &Value) -> (F::Spec, Vec<String>) {
    read::<F>((bridge, &json!({}), &json!({})), &json!({}))
}

fn port_of<F: Feature<Level: TestLevel>>(port: &Value) -> (F::Spec, Vec<String>) {
    read::<F>((&json!({}), port, &json!({})), &json!({}))
}

fn interface_of<F: Feature<Level: TestLevel>>(interface: &Value) -> (F::Spec, Vec<String>) {
    read::<F>((&json!({}), &json!({}), interface), &json!({}))
}

fn with_more<F: Feature<Level: TestLevel>>(bridge: &Value, more: &Value) -> (F::Spec, Vec<String>) {
    read::<F>((bridge, &json!({}), &json!({})), more)
}

fn other_config(pairs: &[(&str, &str)]) -> Value {
    json!({ "other_config": ["map", pairs] })
}

#[test]
fn without_values_settings_are_the_default_ones() {
    fn check<F: Feature<Level: TestLevel>>() {
        assert_eq!(bridge_of::<F>(&json!({})), (F::Spec::default(), vec![]), "{}", F::NAME);
    }
    check::<OfSwitch>();
    check::<Identity>();
    check::<ForwardBpdu>();
    check::<FlowTables>();
    check::<MacTable>();
    check::<Ipfix>();
    check::<Controllers>();
    check::<Vlan>();
    check::<InterfaceAddress>();
    check::<Mtu>();
    check::<Queues>();
    check::<Lacp>();
    check::<Member>();
    check::<Qos>();
    check::<IngressPolicing>();
    check::<Lldp>();
    check::<Tls>();
    check::<TuningFeature>();
    assert_eq!(bridge_of::<Controllers>(&json!({})).0.versions, Versions::of(&Version::ALL));
}

#[test]
fn values_of_bridges() {
    let config = other_config(&[
        ("hwaddr", "00:11:22:33:44:55"),
        ("datapath-id", "00000000000000ff"),
        ("dp-desc", "here"),
        ("dp-sn", "9"),
        ("forward-bpdu", "true"),
        ("disable-in-band", "true"),
        ("mac-aging-time", "60"),
        ("mac-table-size", "100"),
        ("a key of the user's", "x"),
    ]);
    let (identity, warnings) = bridge_of::<Identity>(&config);
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(identity.hwaddr.unwrap().to_string(), "00:11:22:33:44:55");
    assert_eq!(identity.datapath_id, Some(255));
    assert_eq!((identity.dp_desc.as_deref(), identity.dp_sn.as_deref()), (Some("here"), Some("9")));
    assert_eq!(bridge_of::<ForwardBpdu>(&config), (true, vec![]));
    assert_eq!(bridge_of::<MacTable>(&config), (MacTableSpec { aging_secs: 60, size: 100 }, vec![]));
    let aging = |is_rstp: bool, pairs: &[(&str, &str)]| {
        let mut bridge = other_config(pairs);
        bridge["rstp_enable"] = is_rstp.into();
        let (spec, warnings) = bridge_of::<MacTable>(&bridge);
        (spec.aging_secs, warnings.len())
    };
    assert_eq!(aging(false, &[("rstp-ageing-time", "10")]), (300, 0));
    assert_eq!(aging(true, &[("rstp-ageing-time", "10")]), (10, 0));
    assert_eq!(aging(true, &[("rstp-ageing-time", "9")]), (300, 1));
    assert_eq!(aging(true, &[("rstp-ageing-time", "1000000"), ("mac-aging-time", "3601")]), (3600, 0));
    assert_eq!(aging(false, &[("mac-aging-time", "1")]), (15, 0));
    let (controllers, _) =
        bridge_of::<Controllers>(&json!({"fail_mode": "secure", "protocols": ["set", ["OpenFlow11", "OpenFlow15"]]}));
    assert!(controllers.fail_secure);
    assert_eq!(controllers.versions, Versions::of(&[Version::V11, Version::V15]));
}

#[test]
fn bad_values_of_bridges_are_left_out() {
    fn check<F: Feature<Level: TestLevel>>(cases: &[(&str, &str)]) {
        for (key, value) in cases {
            let (spec, warnings) = bridge_of::<F>(&other_config(&[(key, value)]));
            assert!(warnings.len() == 1 && warnings[0].contains(key), "{key}={value}: {warnings:?}");
            assert_eq!(spec, F::Spec::default(), "{key}={value}");
        }
    }
    check::<Identity>(&[("hwaddr", "01:00:00:00:00:00"), ("hwaddr", "00:00:00:00:00:00"), ("hwaddr", "x")]);
    // Open vSwitch says nothing of these.
    for id in ["12", "0x", "0x0", "0x+1", "0x11112222333344445", "0000000000000000"] {
        let (identity, warnings) = bridge_of::<Identity>(&other_config(&[("datapath-id", id)]));
        assert_eq!((identity.datapath_id, warnings), (None, vec![]), "{id}");
    }
    check::<ForwardBpdu>(&[("forward-bpdu", "yes")]);
    check::<MacTable>(&[("mac-aging-time", "0"), ("mac-table-size", "-1")]);
    check::<Controllers>(&[("controller-queue-size", "513")]);
    let (_, warnings) = bridge_of::<Identity>(&other_config(&[("dp-sn", &"x".repeat(40))]));
    assert_eq!(warnings.len(), 1);
}

#[test]
fn flow_tables() {
    let of = |row: Value| {
        let tables = json!({"flow_tables": ["map", [[3, ["uuid", id(50)]], [300, ["uuid", id(50)]]]]});
        let (spec, warnings) = with_more::<FlowTables>(&tables, &json!({"Flow_Table": { id(50): { "initial": row } }}));
        assert_eq!((spec.tables.len(), spec.prefixes.len()), (1, 0));
        (spec.tables[&3].clone(), warnings)
    };
    assert_eq!(of(json!({})), (TableSettings::default(), vec![]));
    let (table, warnings) = of(json!({
        "name": "acl",
        "flow_limit": 7,
        "overflow_policy": "evict",
        "groups": ["set", ["NXM_OF_IN_PORT[]", "NXM_OF_ETH_SRC[0..15]", "nonsense[]"]],
    }));
    assert_eq!((table.name.as_deref(), table.max_flows, table.evict), (Some("acl"), Some(7), true));
    let parts: Vec<_> = table.groups.iter().map(|part| (part.field, part.offset, part.n_bits)).collect();
    assert_eq!(parts, [(Field::EthSrc, 0, 16), (Field::InPort, 0, 16)]);
    assert_eq!(warnings, ["bridge br0: table 3: groups: nonsense[]: unknown field `nonsense'"]);
    assert!(!of(json!({"overflow_policy": "refuse"})).0.evict);
}

#[test]
fn unsupported_settings_give_warnings() {
    for warnings in [
        bridge_of::<Controllers>(&json!({"protocols": "OpenFlow16"})).1,
        bridge_of::<InBand>(&other_config(&[("in-band-queue", "three")])).1,
    ] {
        assert!(warnings.len() == 1 && warnings[0].starts_with("bridge br0: "), "{warnings:?}");
    }
    for warnings in [
        port_of::<Lacp>(&json!({"lacp": "active", "other_config": ["map", [["lacp-system-id", "p"]]]})).1,
        port_of::<Vlan>(&other_config(&[("priority-tags", "sometimes")])).1,
    ] {
        assert!(warnings.len() == 1 && warnings[0].starts_with("port p: "), "{warnings:?}");
    }
    for warnings in [
        interface_of::<Lldp>(&json!({"lldp": ["map", [["enable", "perhaps"]]]})).1,
        interface_of::<Lldp>(&json!({"lldp": ["map", [["status", "rx"]]]})).1,
        interface_of::<Lldp>(&json!({"type": "patch", "lldp": ["map", [["enable", "true"]]]})).1,
        interface_of::<Mtu>(&json!({"type": "patch", "mtu_request": 1400})).1,
    ] {
        assert!(warnings.len() == 1 && warnings[0].starts_with("interface p: "), "{warnings:?}");
    }
    for interface in [json!({"mac": "00:11:22:33:44:55"}), json!({"type": "internal", "mac": "01:11:22:33:44:55"})] {
        let (mac, warnings) = interface_of::<InterfaceAddress>(&interface);
        assert_eq!((mac, warnings.len()), (None, 1), "{warnings:?}");
    }
    let root = |key: &str| {
        let config = json!(["map", [[key, "true"]]]);
        json!({"Open_vSwitch": { id(1): { "initial": { "other_config": config } } }})
    };
    for key in ["enable-statistics", "dpdk-init"] {
        let ((), warnings) = with_more::<OfSwitch>(&json!({}), &root(key));
        assert_eq!(warnings, [format!("switch: other_config:{key} is set, which is not supported")]);
    }
    assert_eq!(with_more::<OfSwitch>(&json!({}), &root("hw-offload-priority")).1, Vec::<String>::new());
}

#[test]
fn zones_have_limits_and_timeout_policies() {
    let zones =
        json!(["map", [[1, ["uuid", id(61)]], [2, ["uuid", id(62)]], [3, ["uuid", id(63)]], [4, ["uuid", id(99)]]]]);
    let datapaths = json!(["map", [["netdev", ["uuid", id(60)]], ["system", ["uuid", id(59)]]]]);
    let rows = json!({
        "Open_vSwitch": { id(1): { "initial": { "datapaths": datapaths } } },
        "Datapath": {
            id(59): { "initial": {} },
            id(60): { "initial": { "ct_zones": zones, "ct_zone_default_limit": 7 } },
        },
        "CT_Zone": {
            id(61): { "initial": { "limit": 0, "timeout_policy": ["uuid", id(70)] } },
            id(62): { "initial": { "limit": 4294967295u32 } },
            id(63): { "initial": { "timeout_policy": ["uuid", id(71)] } },
        },
        "CT_Timeout_Policy": {
            id(70): { "initial": { "timeouts": ["map", [["udp_first", 5], ["tcp_close", 0]]] } },
            id(71): { "initial": {} },
        },
    });
    let (limits, warnings) = with_more::<ZoneLimits>(&json!({}), &rows);
    assert_eq!((limits.len(), warnings), (1, vec![]));
    assert_eq!((limits["netdev"].default, &limits["netdev"].zones), (Some(7), &[(1, 0), (2, u32::MAX)].into()));
    let (policies, warnings) = with_more::<TimeoutPolicies>(&json!({}), &rows);
    assert_eq!((policies.len(), policies["netdev"].len(), warnings), (1, 1, vec![]));
    assert_eq!(policies["netdev"][&1], [("tcp_close".to_owned(), 0), ("udp_first".to_owned(), 5)].into());
}

#[test]
fn settings_of_newer_schemas_give_warnings() {
    let switch = |columns: Value| {
        let rows = json!({ "Open_vSwitch": { id(1): { "initial": columns } } });
        with_more::<OfSwitch>(&json!({}), &rows).1
    };
    let config = json!({"other_config": ["map", [["hw-offload", "true"], ["hw-offload-priority", "tc"]]]});
    assert_eq!(switch(config), ["switch: other_config:hw-offload-priority is set, which is not supported"]);
    let set = json!({"id": 7, "bridge": ["uuid", id(2)], "local_group_id": 9});
    let rows = json!({"Flow_Sample_Collector_Set": { id(62): { "initial": set } }});
    let (spec, warnings) = with_more::<Ipfix>(&json!({}), &rows);
    assert!(spec.sets.is_empty() && warnings.is_empty());
    let (spec, warnings) = with_more::<LocalSampling>(&json!({}), &rows);
    assert_eq!((spec.map(|sets| (*sets.groups).clone()), warnings), (Some([(7, 9)].into()), vec![]));
    assert_eq!(with_more::<LocalSampling>(&json!({}), &json!({})).0, None);
}

#[test]
fn values_of_ports_and_interfaces() {
    let (vlan, warnings) = port_of::<Vlan>(&json!({
        "tag": 9,
        "trunks": ["set", [1, 2]],
        "cvlans": 3,
        "vlan_mode": "native-untagged",
        "protected": true,
        "other_config": ["map", [["priority-tags", "if-nonzero"], ["mcast-snooping-flood", "true"]]],
    }));
    assert_eq!(warnings, Vec::<String>::new());
    let expected = VlanSpec {
        mode: VlanMode::NativeUntagged,
        tag: 9,
        trunks: vec![1, 2],
        cvlans: vec![3],
        priority_tags: PriorityTags::IfNonzero,
        protected: true,
        multicast: Flooding { traffic: true, reports: false },
    };
    assert_eq!(vlan, expected);
    let tunnel =
        |config: &Value| port_of::<Vlan>(&json!({"vlan_mode": "dot1q-tunnel", "tag": 9, "other_config": config}));
    let of_type = |text: &str| tunnel(&json!(["map", [["qinq-ethtype", text]]]));
    assert_eq!(tunnel(&json!(["map", []])).0.mode, VlanMode::Dot1qTunnel { tpid: 0x88a8 });
    assert_eq!(of_type("802.1ad").0.mode, VlanMode::Dot1qTunnel { tpid: 0x88a8 });
    assert_eq!((of_type("802.1q").0.mode, of_type("802.1q").1.len()), (VlanMode::Dot1qTunnel { tpid: 0x8100 }, 0));
    assert_eq!((of_type("0x9100").0.mode, of_type("0x9100").1.len()), (VlanMode::Dot1qTunnel { tpid: 0x88a8 }, 1));
    // A tag alone makes an access port.
    assert_eq!(port_of::<Vlan>(&json!({"tag": 9})).0.mode, VlanMode::Access);
    let interface = json!({"type": "internal", "mac": "00:11:22:33:44:55", "mtu_request": 1400});
    assert_eq!(interface_of::<Mtu>(&interface), (Some(1400), vec![]));
    assert_eq!(interface_of::<InterfaceAddress>(&interface).0.unwrap().to_string(), "00:11:22:33:44:55");
    let lldp = |kind: &str| interface_of::<Lldp>(&json!({"type": kind, "lldp": ["map", [["enable", "true"]]]})).0;
    assert!(lldp("").is_enabled && lldp("internal").is_enabled && !lldp("patch").is_enabled);
}

#[test]
fn controllers() {
    let controller = |columns: &Value| -> (ControllerSpec, Vec<String>) {
        let rows = json!({"Controller": {id(9): {"initial": columns}}});
        let (spec, warnings) = with_more::<Controllers>(&json!({"controller": ["uuid", id(9)]}), &rows);
        (spec.controllers[0].clone(), warnings)
    };
    for (target, kind, primary) in [
        ("tcp:1.2.3.4", None, true),
        ("ssl:1.2.3.4", None, true),
        ("ptcp:1", None, false),
        ("pssl:1", None, false),
        ("tcp:1.2.3.4", Some("service"), false),
        ("ptcp:1", Some("primary"), true),
    ] {
        let kind = kind.map_or_else(|| json!(["set", []]), |k| json!(k));
        let (spec, warnings) = controller(&json!({"target": target, "type": kind}));
        assert_eq!((spec.primary, spec.in_band, spec.settings), (primary, true, Settings::default()), "{target}");
        assert_eq!(warnings, Vec::<String>::new());
    }
    let (spec, _) = controller(&json!({"target": "tcp:1.2.3.4", "max_backoff": 2000, "inactivity_probe": 0}));
    assert_eq!((spec.settings.max_backoff_ms, spec.settings.probe_ms), (2000, 0));
    let (spec, warnings) = controller(&json!({
        "connection_mode": "out-of-band",
        "enable_async_messages": false,
        "controller_rate_limit": 1000,
        "controller_queue_size": 7,
    }));
    assert_eq!((spec.in_band, spec.settings.asynchronous, spec.settings.packet_in_queue), (false, false, 7));
    assert_eq!(spec.settings.packet_in_limit, Some(RateLimit { rate: 1000, burst: 250 }));
    assert_eq!(warnings, Vec::<String>::new());
    let (spec, _) = controller(&json!({"controller_rate_limit": 100, "controller_burst_limit": 30}));
    assert_eq!(spec.settings.packet_in_limit, Some(RateLimit { rate: 100, burst: 30 }));
    assert_eq!(controller(&json!({"local_ip": "10.0.0.1"})).1.len(), 1);
    for (text, dscp, wrong) in [("0", 0, 0), ("63", 63, 0), ("64", 48, 1), ("x", 48, 1)] {
        let (spec, warnings) = controller(&json!({"other_config": ["map", [["dscp", text]]]}));
        assert_eq!((spec.dscp, warnings.len()), (dscp, wrong), "{text}");
    }
}

#[test]
fn in_band_control() {
    let config = |pairs: &[(&str, &str)]| bridge_of::<InBand>(&other_config(pairs));
    let (spec, warnings) = config(&[]);
    assert_eq!((spec.unwrap().queue, warnings), (None, vec![]));
    assert_eq!(config(&[("disable-in-band", "true")]), (None, vec![]));
    let (spec, warnings) = config(&[("in-band-queue", "3")]);
    assert_eq!((spec.unwrap().queue, warnings), (Some(3), vec![]));
    let (spec, warnings) = config(&[("in-band-queue", "x")]);
    assert_eq!((spec.unwrap().queue, warnings.len()), (None, 1));
    let queue = bridge_of::<Controllers>(&other_config(&[("controller-queue-size", "512")]));
    assert_eq!((queue.0.packet_in_queue, queue.1), (512, vec![]));
}

#[test]
fn files_of_tls() {
    let read = |ssl: Value| {
        let uuid = json!(["uuid", "00000000-0000-4000-8000-000000000009"]);
        let more = json!({
            "Open_vSwitch": {
                "00000000-0000-4000-8000-000000000001": { "initial": { "bridges": ["set", []], "ssl": uuid } },
            },
            "SSL": { "00000000-0000-4000-8000-000000000009": { "initial": ssl } },
        });
        with_more::<Tls>(&json!({}), &more).0.expect("there is a row")
    };
    let files = json!({ "private_key": "/k", "certificate": "/c", "ca_cert": "/a" });
    let config = read(files.clone());
    assert_eq!(config.private_key.as_deref(), Some(std::path::Path::new("/k")));
    assert_eq!(config.ca_cert, Some(CaCert::File("/a".into())));
    let mut first = files;
    first["bootstrap_ca_cert"] = json!(true);
    assert_eq!(read(first).ca_cert, Some(CaCert::Bootstrap("/a".into())));
    assert_eq!(read(json!({ "ca_cert": "none" })).ca_cert, Some(CaCert::None));
    assert_eq!(read(json!({})), ::tls::Config::default());
}

#[test]
fn cores_of_queues() {
    let (queues, warnings) = interface_of::<Queues>(&other_config(&[("pmd-rxq-affinity", "0:3,1:2")]));
    assert_eq!((queues, warnings), ([(0, 3), (1, 2)].into(), vec![]));
    let (queues, warnings) = interface_of::<Queues>(&other_config(&[("pmd-rxq-affinity", "0-3")]));
    assert!(queues.is_empty());
    assert_eq!(warnings, ["interface p: other_config:pmd-rxq-affinity is \"0-3\", which is not a list of queue:core"]);
}

#[test]
fn packet_threads() {
    use dpif::{Algorithm, Balance, Cpu, Policy};
    let read = |pairs: &[(&str, &str)]| {
        let root = json!({ "00000000-0000-4000-8000-000000000001": { "initial": {
            "bridges": ["set", []], "other_config": ["map", pairs],
        } } });
        let (tuning, warnings) = with_more::<TuningFeature>(&json!({}), &json!({ "Open_vSwitch": root }));
        (tuning.threads, warnings)
    };
    assert_eq!(read(&[]), (dpif::ThreadConfig::default(), vec![]));
    let core = crate::cores::Cores::of_machine();
    let (online, offline) = ((0..64).find_map(|n| core.core(n)).unwrap(), (0..512).find(|n| core.core(*n).is_none()));
    let offline = offline.unwrap();
    let mut mask = [0u8; 128];
    for core in [online.core, offline] {
        mask[127 - core / 4] |= 1 << (core % 4);
    }
    let mask: String = mask.iter().map(|digit| char::from_digit(u32::from(*digit), 16).unwrap()).collect();
    let (threads, warnings) = read(&[
        ("pmd-cpu-mask", &mask),
        ("pmd-rxq-assign", "group"),
        ("pmd-rxq-isolate", "false"),
        ("pmd-auto-lb", "true"),
        ("pmd-auto-lb-rebal-interval", "0"),
        ("pmd-auto-lb-load-threshold", "70"),
        ("pmd-auto-lb-improvement-threshold", "0"),
        ("pmd-sleep-max", "5,1:6"),
        ("pmd-maxsleep", "9"),
    ]);
    assert_eq!(threads.cpus, [Cpu { ..online }].into());
    assert_eq!(threads.policy, Policy { algorithm: Algorithm::Group, isolate: false });
    let balance = Balance { is_on: true, interval_mins: 1, load_percent: 70, improvement_percent: 0 };
    assert_eq!(threads.balance, balance);
    assert_eq!((threads.sleep_us_max, threads.sleep_us_max_of), (5, [(1, 6)].into()));
    let missing =
        format!("switch: other_config:pmd-cpu-mask has core {offline}, which this machine has not, or not online");
    assert_eq!(warnings, [missing]);
    let (threads, warnings) = read(&[("pmd-cpu-mask", "x"), ("pmd-rxq-isolate", "false"), ("pmd-maxsleep", "9")]);
    assert!(threads.cpus.is_empty() && threads.sleep_us_max == 9);
    assert_eq!(threads.policy, Policy { isolate: false, ..Policy::default() });
    assert_eq!(warnings, ["switch: other_config:pmd-cpu-mask is \"x\", which is not a hexadecimal number"]);
}
