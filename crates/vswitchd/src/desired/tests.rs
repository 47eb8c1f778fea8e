//! Rows read into plain values: what is honoured, what is corrected, and what is warned of.

use super::*;
use ofproto::{RateLimit, Settings};
use serde_json::{Value, json};

/// A replica with one root row that has the bridge `br0`, which has `port` beside its own, of which `interface`.
fn replica(bridge: &Value, port: &Value, interface: &Value, more: &Value) -> Replica {
    let id = |n: u32| format!("00000000-0000-4000-8000-{n:012}");
    let schema = ovsdb::DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH).unwrap();
    let mut replica = Replica::new(&crate::columns::wanted());
    assert_eq!(replica.bind(&schema), []);
    let mut tables = json!({
        "Open_vSwitch": { id(1): { "initial": { "bridges": ["uuid", id(2)], "next_cfg": 3 } } },
        "Bridge": { id(2): { "initial": {
            "name": "br0",
            "ports": ["set", [["uuid", id(3)], ["uuid", id(5)]]],
        } } },
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
    replica.apply_updates2(&tables).unwrap();
    replica
}

fn bridge_of(bridge: &Value) -> (BridgeSpec, Vec<String>) {
    let desired = Desired::read(&replica(bridge, &json!({}), &json!({}), &json!({})));
    (desired.bridges["br0"].clone(), desired.warnings.into_iter().collect())
}

fn port_of(port: &Value) -> (PortSpec, Vec<String>) {
    let desired = Desired::read(&replica(&json!({}), port, &json!({}), &json!({})));
    (desired.bridges["br0"].ports["p"].clone(), desired.warnings.into_iter().collect())
}

fn interface_of(interface: &Value) -> (InterfaceSpec, Vec<String>) {
    let desired = Desired::read(&replica(&json!({}), &json!({}), interface, &json!({})));
    (desired.bridges["br0"].ports["p"].interfaces[0].clone(), desired.warnings.into_iter().collect())
}

fn other_config(pairs: &[(&str, &str)]) -> Value {
    json!({ "other_config": ["map", pairs] })
}

#[test]
fn nothing_in_an_empty_database() {
    let desired = Desired::read(&Replica::new(&crate::columns::wanted()));
    assert!(desired.root.is_none() && desired.bridges.is_empty() && desired.warnings.is_empty());
}

#[test]
fn defaults() {
    let (bridge, warnings) = bridge_of(&json!({}));
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!((bridge.datapath_type.as_str(), bridge.fail_secure), ("system", false));
    assert_eq!((bridge.hwaddr, bridge.datapath_id, bridge.forward_bpdu), (None, None, false));
    assert_eq!((bridge.mac_aging_secs, bridge.mac_table_size), (300, 8192));
    let port = &bridge.ports["p"];
    assert_eq!((port.mode, port.tag, port.trunks.len(), port.protected), (VlanMode::Trunk, 0, 0, false));
    assert_eq!(port.interfaces[0].kind, "system");
    assert_eq!(bridge.ports["br0"].interfaces[0].kind, "internal");
}

#[test]
fn values_of_bridges() {
    let (bridge, warnings) = bridge_of(&json!({
        "datapath_type": "netdev",
        "fail_mode": "secure",
        "protocols": ["set", ["OpenFlow10", "OpenFlow13"]],
        "other_config": ["map", [
            ["hwaddr", "00:11:22:33:44:55"],
            ["datapath-id", "00000000000000ff"],
            ["dp-desc", "here"],
            ["dp-sn", "9"],
            ["forward-bpdu", "true"],
            ["disable-in-band", "true"],
            ["mac-aging-time", "60"],
            ["mac-table-size", "100"],
            ["a key of the user's", "x"],
        ]],
    }));
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!((bridge.datapath_type.as_str(), bridge.fail_secure), ("netdev", true));
    assert_eq!(bridge.hwaddr.unwrap().to_string(), "00:11:22:33:44:55");
    assert_eq!(bridge.datapath_id, Some(255));
    assert_eq!((bridge.dp_desc.as_deref(), bridge.dp_sn.as_deref()), (Some("here"), Some("9")));
    assert_eq!((bridge.forward_bpdu, bridge.mac_aging_secs, bridge.mac_table_size), (true, 60, 100));
}

#[test]
fn bad_values_of_bridges_are_left_out() {
    for (key, value) in [
        ("hwaddr", "01:00:00:00:00:00"),
        ("hwaddr", "00:00:00:00:00:00"),
        ("hwaddr", "x"),
        ("datapath-id", "12"),
        ("datapath-id", "0x"),
        ("datapath-id", "0x0"),
        ("datapath-id", "0x+1"),
        ("datapath-id", "0x11112222333344445"),
        ("forward-bpdu", "yes"),
        ("mac-aging-time", "0"),
        ("mac-table-size", "-1"),
    ] {
        let (bridge, warnings) = bridge_of(&other_config(&[(key, value)]));
        assert!(warnings.len() == 1 && warnings[0].contains(key), "{key}={value}: {warnings:?}");
        assert_eq!((bridge.hwaddr, bridge.datapath_id, bridge.forward_bpdu), (None, None, false), "{key}={value}");
        assert_eq!((bridge.mac_aging_secs, bridge.mac_table_size), (300, 8192), "{key}={value}");
    }
    let (_, warnings) = bridge_of(&other_config(&[("dp-sn", &"x".repeat(40))]));
    assert_eq!(warnings.len(), 1);
    let desired = Desired::read(&replica(&json!({"name": "a/b"}), &json!({}), &json!({}), &json!({})));
    assert!(desired.bridges.is_empty());
    assert_eq!(Vec::from_iter(desired.warnings), ["ignoring bridge with invalid name \"a/b\""]);
}

#[test]
fn flow_tables() {
    let (bridge, _) = bridge_of(&json!({"protocols": ["set", ["OpenFlow11", "OpenFlow15"]]}));
    assert_eq!(bridge.versions, Versions::of(&[Version::V11, Version::V15]));
    assert_eq!(bridge_of(&json!({})).0.versions, Versions::of(&Version::ALL));
    let id = "00000000-0000-4000-8000-000000000050";
    let of = |row: Value| {
        let tables = json!({"flow_tables": ["map", [[3, ["uuid", id]], [300, ["uuid", id]]]]});
        let more = json!({"Flow_Table": { id: { "initial": row } }});
        let desired = Desired::read(&replica(&tables, &json!({}), &json!({}), &more));
        let (bridge, warnings) = (&desired.bridges["br0"], &desired.warnings);
        assert_eq!((bridge.tables.len(), bridge.prefixes.len()), (1, 0));
        (bridge.tables[&3].clone(), warnings.iter().cloned().collect::<Vec<_>>())
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
fn what_is_not_supported_is_said() {
    let uuid = json!(["uuid", "00000000-0000-4000-8000-000000000099"]);
    for bridge in [
        json!({"stp_enable": true}),
        json!({"rstp_enable": true}),
        json!({"mcast_snooping_enable": true}),
        json!({"mirrors": uuid}),
        json!({"netflow": uuid}),
        json!({"sflow": uuid}),
        json!({"flood_vlans": 3}),
        json!({"protocols": "OpenFlow16"}),
        other_config(&[("in-band-queue", "3")]),
    ] {
        let (_, warnings) = bridge_of(&bridge);
        assert!(warnings.len() == 1 && warnings[0].starts_with("bridge br0: "), "{bridge}: {warnings:?}");
    }
    for port in [
        json!({"qos": uuid}),
        json!({"lacp": "active"}),
        json!({"vlan_mode": "dot1q-tunnel"}),
        other_config(&[("priority-tags", "sometimes")]),
    ] {
        let (_, warnings) = port_of(&port);
        assert!(warnings.len() == 1 && warnings[0].starts_with("port p: "), "{port}: {warnings:?}");
    }
    for interface in [
        json!({"ingress_policing_rate": 1000}),
        json!({"bfd": ["map", [["enable", "true"]]]}),
        json!({"cfm_mpid": 7}),
        json!({"lldp": ["map", [["enable", "perhaps"]]]}),
        json!({"lldp": ["map", [["status", "rx"]]]}),
        json!({"type": "patch", "lldp": ["map", [["enable", "true"]]]}),
        json!({"mac": "00:11:22:33:44:55"}),
        json!({"type": "internal", "mac": "01:11:22:33:44:55"}),
        json!({"type": "patch", "mtu_request": 1400}),
    ] {
        let (spec, warnings) = interface_of(&interface);
        assert!(warnings.len() == 1 && warnings[0].starts_with("interface p: "), "{interface}: {warnings:?}");
        assert_eq!(spec.mac, None);
    }
}

#[test]
fn values_of_ports_and_interfaces() {
    let (port, warnings) = port_of(&json!({
        "tag": 9,
        "trunks": ["set", [1, 2]],
        "vlan_mode": "native-untagged",
        "protected": true,
        "other_config": ["map", [["priority-tags", "if-nonzero"]]],
    }));
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!((port.mode, port.tag, port.protected), (VlanMode::NativeUntagged, 9, true));
    assert_eq!((port.trunks.as_slice(), port.priority_tags), (&[1, 2][..], PriorityTags::IfNonzero));
    // A tag alone makes an access port.
    assert_eq!(port_of(&json!({"tag": 9})).0.mode, VlanMode::Access);

    let (interface, warnings) = interface_of(&json!({
        "type": "internal",
        "options": ["map", [["a", "b"]]],
        "ofport_request": 8,
        "ofport": 3,
        "mac": "00:11:22:33:44:55",
        "mtu_request": 1400,
    }));
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!((interface.kind.as_str(), interface.options["a"].as_str()), ("internal", "b"));
    assert_eq!((interface.ofport_request, interface.ofport, interface.mtu_request), (Some(8), Some(3), Some(1400)));
    assert_eq!(interface.mac.unwrap().to_string(), "00:11:22:33:44:55");
    // Numbers that no port has are none.
    for (asked, had) in [(json!(["set", []]), -1), (json!(["set", []]), 65534)] {
        let (interface, _) = interface_of(&json!({"ofport_request": asked, "ofport": had}));
        assert_eq!((interface.ofport_request, interface.ofport), (None, None));
    }
}

#[test]
fn a_bridge_without_local_port() {
    let id = "00000000-0000-4000-8000-000000000005";
    let (bridge, warnings) = bridge_of(&json!({"ports": ["uuid", id]}));
    assert_eq!(warnings, ["bridge br0: no port named br0, synthesizing one"]);
    let local = &bridge.ports["br0"].interfaces[0];
    assert_eq!((local.kind.as_str(), local.row.uuid().is_zero()), ("internal", true));
}

#[test]
fn controllers() {
    let id = "00000000-0000-4000-8000-000000000009";
    let controller = |columns: &Value| {
        let rows = json!({"Controller": {id: {"initial": columns}}});
        let desired = Desired::read(&replica(&json!({"controller": ["uuid", id]}), &json!({}), &json!({}), &rows));
        (desired.bridges["br0"].controllers[0].clone(), Vec::from_iter(desired.warnings))
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
    let config = |config: Value| bridge_of(&json!({"other_config": ["map", config]}));
    let (bridge, warnings) = bridge_of(&json!({}));
    assert_eq!((bridge.in_band, bridge.in_band_queue, bridge.packet_in_queue), (true, None, 100));
    assert_eq!(warnings, Vec::<String>::new());
    let (bridge, warnings) = config(json!([["disable-in-band", "true"], ["controller-queue-size", "512"]]));
    assert_eq!((bridge.in_band, bridge.packet_in_queue, warnings.len()), (false, 512, 0));
    let (bridge, warnings) = config(json!([["in-band-queue", "3"]]));
    assert_eq!((bridge.in_band_queue, warnings.len()), (Some(3), 1));
    for wrong in [json!([["in-band-queue", "x"]]), json!([["controller-queue-size", "513"]])] {
        let (bridge, warnings) = config(wrong);
        assert_eq!((bridge.in_band_queue, bridge.packet_in_queue, warnings.len()), (None, 100, 1));
    }
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
        Desired::read(&replica(&json!({}), &json!({}), &json!({}), &more)).tls.expect("there is a row")
    };
    let files = json!({ "private_key": "/k", "certificate": "/c", "ca_cert": "/a" });
    let config = read(files.clone());
    assert_eq!(config.private_key.as_deref(), Some(std::path::Path::new("/k")));
    assert_eq!(config.ca_cert, Some(CaCert::File("/a".into())));
    let mut first = files;
    first["bootstrap_ca_cert"] = json!(true);
    assert_eq!(read(first).ca_cert, Some(CaCert::Bootstrap("/a".into())));
    assert_eq!(read(json!({ "ca_cert": "none" })).ca_cert, Some(CaCert::None));
    assert_eq!(read(json!({})), tls::Config::default());
}

#[test]
fn ipfix() {
    let id = |n: u32| format!("00000000-0000-4000-8000-{n:012}");
    let bridge = json!({"ipfix": ["uuid", id(20)]});
    let more = json!({
        "IPFIX": {
            id(20): { "initial": {
                "targets": ["set", ["10.0.0.1:99", "nobody"]],
                "sampling": 7,
                "obs_domain_id": 3,
                "obs_point_id": 4_294_967_295_u32,
                "other_config": ["map", [["enable-output-sampling", "false"], ["enable-input-sampling", "often"]]],
            } },
            id(21): { "initial": {
                "cache_active_timeout": 60,
                "cache_max_flows": 1000,
                "other_config": ["map", [["virtual_obs_id", "here"]]],
            } },
        },
        "Flow_Sample_Collector_Set": {
            id(30): { "initial": { "id": 5, "bridge": ["uuid", id(2)], "ipfix": ["uuid", id(21)] } },
            id(31): { "initial": { "id": 6, "bridge": ["uuid", id(2)] } },
            id(32): { "initial": { "id": 7, "bridge": ["uuid", id(99)], "ipfix": ["uuid", id(21)] } },
        },
    });
    let desired = Desired::read(&replica(&bridge, &json!({}), &json!({}), &more));
    let ipfix = &desired.bridges["br0"].ipfix;
    let own = ipfix.bridge.as_ref().unwrap();
    assert_eq!(own.exporter.targets, [([10, 0, 0, 1], 99).into()].into());
    assert_eq!((own.sampling, own.domain, own.point, own.ingress, own.egress), (7, 3, u32::MAX, true, false));
    let sets: Vec<_> = ipfix.sets.iter().map(|(n, set)| (*n, set.active_timeout_secs, set.flows_max)).collect();
    assert_eq!(sets, [(5, 60, 1000)]);
    assert_eq!(ipfix.sets[&5].virtual_obs_id.as_deref(), Some("here"));
    assert_eq!(
        Vec::from_iter(desired.warnings),
        [
            "bridge br0: IPFIX: other_config:enable-input-sampling is \"often\", which is not true or false",
            "bridge br0: IPFIX: target \"nobody\" is no address with a port",
        ]
    );
    assert_eq!(bridge_of(&json!({})).0.ipfix, IpfixSettings::default());
}

#[test]
fn cores_of_queues() {
    let (interface, warnings) = interface_of(&other_config(&[("pmd-rxq-affinity", "0:3,1:2")]));
    assert_eq!((interface.rxq_affinity, warnings), ([(0, 3), (1, 2)].into(), vec![]));
    let (interface, warnings) = interface_of(&other_config(&[("pmd-rxq-affinity", "0-3")]));
    assert!(interface.rxq_affinity.is_empty());
    assert_eq!(warnings, ["interface p: other_config:pmd-rxq-affinity is \"0-3\", which is not a list of queue:core"]);
}

#[test]
fn packet_threads() {
    use dpif::{Algorithm, Balance, Cpu, Policy};
    let read = |pairs: &[(&str, &str)]| {
        let root = json!({ "00000000-0000-4000-8000-000000000001": { "initial": {
            "bridges": ["set", []], "other_config": ["map", pairs],
        } } });
        let replica = replica(&json!({}), &json!({}), &json!({}), &json!({ "Open_vSwitch": root }));
        let desired = Desired::read(&replica);
        (desired.tuning.threads, desired.warnings.into_iter().collect::<Vec<_>>())
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
    assert_eq!(threads.balance, Some(Balance { interval_mins: 1, load_percent: 70, improvement_percent: 0 }));
    assert_eq!((threads.sleep_us_max, threads.sleep_us_max_of), (5, [(1, 6)].into()));
    let missing =
        format!("switch: other_config:pmd-cpu-mask has core {offline}, which this machine has not, or not online");
    assert_eq!(warnings, [missing]);
    let (threads, warnings) = read(&[("pmd-cpu-mask", "x"), ("pmd-rxq-isolate", "false"), ("pmd-maxsleep", "9")]);
    assert!(threads.cpus.is_empty() && threads.sleep_us_max == 9);
    assert_eq!(
        warnings,
        [
            "pmd-rxq-isolate can only be set false when using pmd-rxq-assign=group",
            "switch: other_config:pmd-cpu-mask is \"x\", which is not a hexadecimal number",
        ]
    );
}
