//! Settings of layer 2, of its protocols, and of the monitoring of traffic.

use super::*;

#[test]
fn multicast_snooping() {
    let of = |enabled: bool, pairs: &[(&str, &str)]| {
        let mut bridge = other_config(pairs);
        bridge["mcast_snooping_enable"] = enabled.into();
        bridge_of::<Multicast>(&bridge)
    };
    let all = [
        ("mcast-snooping-aging-time", "60"),
        ("mcast-snooping-table-size", "100"),
        ("mcast-snooping-disable-flood-unregistered", "true"),
    ];
    assert_eq!(of(false, &all), (None, vec![]));
    let table = snooping::Settings { table_size: 100, aging_secs: 60 };
    assert_eq!(of(true, &all), (Some(SnoopingSettings { table, drop_unregistered: true }), vec![]));
    let (settings, warnings) = of(true, &all.map(|(key, _)| (key, "x")));
    assert_eq!((settings, warnings.len()), (Some(SnoopingSettings::default()), 3));
}

#[test]
fn settings_of_spanning_trees() {
    use ::spanning_tree::settings::Version;
    use ::spanning_tree::{Flavour, RstpSettings, StpSettings};
    let of = |column: &str, pairs: &[(&str, &str)]| {
        let mut bridge = other_config(pairs);
        bridge[column] = json!(true);
        bridge_of::<SpanningTree>(&bridge)
    };
    let (spec, warnings) = of("stp_enable", &[]);
    assert_eq!(spec.flavour, Some(Flavour::Stp(StpSettings::new(base::MacAddr::default()))));
    assert_eq!((spec.address, warnings), (None, vec![]));
    // Priorities are cut to 16 bits, as by Open vSwitch.
    let pairs = [
        ("stp-priority", "65537"),
        ("stp-hello-time", "5"),
        ("stp-max-age", "x"),
        ("stp-system-id", "02:00:00:00:00:07"),
    ];
    let (spec, warnings) = of("stp_enable", &pairs);
    let expected = StpSettings { priority: 1, hello_time_s: 5, ..StpSettings::new(base::MacAddr::default()) };
    assert_eq!(
        (spec.flavour, spec.address),
        (Some(Flavour::Stp(expected)), Some(Ok(base::MacAddr([2, 0, 0, 0, 0, 7]))))
    );
    assert_eq!(warnings, ["bridge br0: other_config:stp-max-age is \"x\", which is not a whole number"]);
    let (spec, _) =
        of("rstp_enable", &[("rstp-force-protocol-version", "0"), ("rstp-address", "x"), ("stp-priority", "9")]);
    let expected = RstpSettings { version: Version::StpCompatible, ..RstpSettings::new(base::MacAddr::default()) };
    assert_eq!((spec.flavour, spec.address), (Some(Flavour::Rstp(expected)), Some(Err("rstp-address".into()))));
    for pair in [("rstp-force-protocol-version", "1"), ("rstp-priority", "0x8000")] {
        assert_eq!(of("rstp_enable", &[pair]).1.len(), 1, "{pair:?}");
    }
    let (spec, warnings) = bridge_of::<SpanningTree>(&json!({"stp_enable": true, "rstp_enable": true}));
    assert!(matches!(spec.flavour, Some(Flavour::Rstp(_))));
    assert_eq!(warnings, ["br0: RSTP and STP are mutually exclusive but both are configured; enabling RSTP"]);
    assert_eq!(bridge_of::<SpanningTree>(&other_config(&[("stp-priority", "x")])), Default::default());
}

#[test]
fn settings_of_ports_in_spanning_trees() {
    let of = |pairs: &[(&str, &str)]| port_of::<SpanningTreePort>(&other_config(pairs));
    assert_eq!(of(&[]), Default::default());
    let pairs =
        [("stp-enable", "false"), ("stp-port-num", "7"), ("stp-port-priority", "300"), ("stp-path-cost", "77777")];
    let (spec, warnings) = of(&pairs);
    let stp = PortSpec { is_excluded: true, number: Some(7), priority: Some(44), path_cost: Some(12241) };
    assert_eq!((spec, warnings), (SpanningTreePortSpec { stp, ..Default::default() }, vec![]));
    let (spec, _) = of(&[("rstp-path-cost", "0"), ("rstp-admin-p2p-mac", "0"), ("rstp-port-auto-edge", "false")]);
    assert_eq!((spec.rstp.path_cost, spec.link, spec.is_without_auto_edge), (None, LinkType::Shared, true));
    for pair in [("rstp-path-cost", "200000001"), ("rstp-admin-p2p-mac", "3"), ("rstp-port-mcheck", "x")] {
        assert_eq!(of(&[pair]).1.len(), 1, "{pair:?}");
    }
}

#[test]
fn lacp_has_settings_of_ports_and_interfaces() {
    let of = |row: Value| {
        let (spec, warnings) = port_of::<Lacp>(&row);
        (
            spec.map(|spec| (spec.mode, spec.timeout, spec.system.map(|mac| mac.to_string()), spec.system_priority)),
            warnings,
        )
    };
    let config = |lacp: &str, pairs: &[[&str; 2]]| json!({"lacp": lacp, "other_config": ["map", pairs]});
    assert_eq!(of(json!({})), (None, vec![]));
    assert_eq!(of(config("off", &[["lacp-system-id", "bad"]])), (None, vec![]));
    assert_eq!(of(config("passive", &[])), (Some((Mode::Passive, Timeout::Slow, None, None)), vec![]));
    let all = [["lacp-time", "FAST"], ["lacp-system-id", "02:00:00:00:00:88x"], ["lacp-system-priority", "65535"]];
    let system = Some("02:00:00:00:00:88".to_owned());
    assert_eq!(of(config("active", &all)), (Some((Mode::Active, Timeout::Fast, system, Some(65535))), vec![]));
    // In the words of Open vSwitch.
    for (text, complaint) in [
        ("foo", "LACP system ID (foo) must be an Ethernet address."),
        ("00:00:00:00:00:00", "Invalid zero LACP system ID."),
    ] {
        assert_eq!(of(config("active", &[["lacp-system-id", text]])), (None, vec![format!("port p: {complaint}")]));
    }
    let (spec, warnings) = of(config("active", &[["lacp-system-priority", "0"], ["lacp-time", "quick"]]));
    assert_eq!((spec, warnings.len()), (Some((Mode::Active, Timeout::Slow, None, None)), 2));
    let member = |pairs: &[[&str; 2]]| {
        let (spec, warnings) = interface_of::<Member>(&json!({"other_config": ["map", pairs]}));
        ((spec.port_id, spec.port_priority, spec.key), warnings.len())
    };
    let all = [["lacp-port-id", "1"], ["lacp-port-priority", "2"], ["lacp-aggregation-key", "65535"]];
    assert_eq!(member(&all), ((Some(1), Some(2), Some(65535)), 0));
    let bad = [["lacp-port-id", "0"], ["lacp-port-priority", "65536"], ["lacp-aggregation-key", "x"]];
    assert_eq!(member(&bad), ((None, None, None), 3));
}

#[test]
fn ipfix() {
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
    let tunnels = |value: &str| {
        let mut more = more.clone();
        more["IPFIX"][id(21)]["initial"]["other_config"] = json!(["map", [["enable-tunnel-sampling", value]]]);
        let (ipfix, warnings) = with_more::<Ipfix>(&bridge, &more);
        assert_eq!((ipfix.bridge.unwrap().exporter.tunnels, warnings.len()), (true, 2));
        ipfix.sets[&5].tunnels
    };
    assert_eq!(["false", "False", "true", "0", "no"].map(tunnels), [false, false, true, true, true]);
    let (ipfix, warnings) = with_more::<Ipfix>(&bridge, &more);
    let own = ipfix.bridge.as_ref().unwrap();
    assert_eq!(own.exporter.targets, [([10, 0, 0, 1], 99).into()].into());
    assert_eq!((own.sampling, own.domain, own.point, own.ingress, own.egress), (7, 3, u32::MAX, true, false));
    let sets: Vec<_> = ipfix.sets.iter().map(|(n, set)| (*n, set.active_timeout_secs, set.flows_max)).collect();
    assert_eq!(sets, [(5, 60, 1000)]);
    assert_eq!(ipfix.sets[&5].virtual_obs_id.as_deref(), Some("here"));
    assert_eq!(
        warnings,
        [
            "bridge br0: IPFIX: other_config:enable-input-sampling is \"often\", which is not true or false",
            "bridge br0: IPFIX: target \"nobody\" is no address with a port",
        ]
    );
    assert_eq!(bridge_of::<Ipfix>(&json!({})).0, IpfixSettings::default());
    // Explicit drops, for bridges that sample.
    for (value, is_on) in [("true", true), ("TRUE", true), ("false", false), ("1", false)] {
        let config = [("explicit-sampled-drops", value)];
        let initial = json!({ "bridges": ["uuid", id(2)], "other_config": ["map", config] });
        let mut with_config = more.clone();
        with_config["Open_vSwitch"] = json!({ id(1): { "initial": initial } });
        assert_eq!(with_more::<Ipfix>(&bridge, &with_config).0.explicit_drops, is_on, "{value}");
        with_config["Flow_Sample_Collector_Set"] = json!({});
        assert_eq!(with_more::<Ipfix>(&json!({}), &with_config).0, IpfixSettings::default());
    }
}

#[test]
fn sflow() {
    let bridge = json!({"sflow": ["uuid", id(20)]});
    let read =
        |row: serde_json::Value| with_more::<Sflow>(&bridge, &json!({ "sFlow": { id(20): { "initial": row } } }));
    let (spec, warnings) = read(json!({ "targets": ["set", ["10.0.0.1:99", "10.0.0.2", "nobody"]], "agent": "eth1" }));
    let spec = spec.unwrap();
    assert_eq!(spec.targets, [([10, 0, 0, 1], 99).into(), ([10, 0, 0, 2], 6343).into()].into());
    assert_eq!((spec.sampling, spec.header_bytes, spec.polling_secs), (400, 128, 30));
    assert_eq!((spec.agent.as_deref(), spec.explicit_drops), (Some("eth1"), false));
    assert_eq!(warnings, ["bridge br0: sFlow: target \"nobody\" is not an address"]);
    let (spec, warnings) = read(json!({ "targets": "10.0.0.1", "sampling": 0, "header": -1, "polling": 7 }));
    let spec = spec.unwrap();
    assert_eq!((spec.sampling, spec.header_bytes, spec.polling_secs), (0, 128, 7));
    assert_eq!(warnings, ["bridge br0: sFlow: header is -1, which is not between 0 and 1024; 128 is used"]);
    let (spec, warnings) = read(json!({ "targets": "nobody" }));
    assert_eq!((spec, warnings.len()), (None, 2));
    assert_eq!(bridge_of::<Sflow>(&json!({})).0, None);
}

#[test]
fn netflow() {
    let bridge = json!({"netflow": ["uuid", id(20)]});
    let read =
        |row: serde_json::Value| with_more::<Netflow>(&bridge, &json!({ "NetFlow": { id(20): { "initial": row } } }));
    let (settings, warnings) = read(json!({ "targets": "10.0.0.1:2055" }));
    let settings = settings.unwrap();
    assert_eq!(settings.targets, [([10, 0, 0, 1], 2055).into()].into());
    assert_eq!((settings.engine_id, settings.engine_type, settings.active_timeout_secs), (None, None, Some(600)));
    assert!(warnings.is_empty() && !settings.add_id_to_interface);
    let row = |id: u8, secs: i32| json!({ "targets": "10.0.0.1:2055", "engine_id": id, "active_timeout": secs, "add_id_to_interface": true });
    let (settings, warnings) = read(row(130, -1));
    let settings = settings.unwrap();
    assert_eq!((settings.engine_id, settings.active_timeout_secs), (Some(130), None));
    assert_eq!(
        warnings,
        ["bridge br0: NetFlow port mangling may conflict with another vswitch, choose an engine id less than 128"]
    );
    let (settings, warnings) = read(row(127, 5));
    assert_eq!((settings.unwrap().active_timeout_secs, warnings.len()), (Some(5), 0));
    let (settings, warnings) = read(json!({ "targets": "10.0.0.1" }));
    assert_eq!((settings, warnings.len()), (None, 2));
}

#[test]
fn queues_and_policing_of_interfaces() {
    let port = json!({"qos": ["uuid", id(20)]});
    let more = |kind: &str| {
        let queues = json!(["map", [[1, ["uuid", id(21)]], [2, ["uuid", id(22)]], [70_000, ["uuid", id(22)]]]]);
        let config = json!(["map", [["max-rate", "5000"], ["cir", "x"], ["own", "y"]]]);
        json!({
            "QoS": { id(20): { "initial": { "type": kind, "queues": queues, "other_config": config } } },
            "Queue": {
                id(21): { "initial": { "dscp": 10, "other_config": ["map", [["min-rate", "7"], ["burst", "-1"]]] } },
                id(22): { "initial": { "dscp": 0 } },
            },
        })
    };
    let read = |kind: &str| read::<Qos>((&json!({}), &port, &json!({})), &more(kind));
    let (settings, warnings) = read("linux-htb");
    let spec = settings.spec.unwrap();
    assert_eq!((spec.kind.as_str(), spec.number("max-rate"), spec.number("cir")), ("linux-htb", Some(5000), None));
    assert_eq!(spec.config["own"], "y");
    assert_eq!(spec.queues.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(spec.queues[&1].iter().collect::<Vec<_>>(), [(&"min-rate".to_owned(), &"7".to_owned())]);
    assert_eq!(settings.marks, [(1, 10), (2, 0)].into());
    assert_eq!(
        warnings,
        [
            "interface p: QoS: other_config:cir is \"x\", which is not a number",
            "interface p: queue 1: other_config:burst is \"-1\", which is not a number",
            "interface p: queue 70000: linux-htb has no queues from 61440 on",
        ]
    );
    assert_eq!(read("trtcm-policer").0.spec.unwrap().queues.len(), 3);
    assert_eq!(read("").0, <Qos as Feature>::Spec::default());
    let limits = json!({"ingress_policing_rate": 1000, "ingress_policing_kpkts_burst": 3});
    let (policing, warnings) = interface_of::<IngressPolicing>(&limits);
    assert_eq!((policing.rate_kbps, policing.burst_kb, policing.rate_kpps, policing.burst_kpkts), (1000, 0, 0, 3));
    assert!(policing.is_limit() && warnings.is_empty());
}
