//! The tables of docs/openflow.md: the messages, fields and actions of OpenFlow by version, and the test of each. This test
//! generates them from the tables of the decoder and encoder. `UPDATE_DOCS=1 cargo test -p openflow --test reference`
//! writes them.

use flow::table::FIELDS;
use flow::{Field, NoNames};
use openflow::types::{MessageKind, rows};
use openflow::{
    Action, Protocols, Version, actions_to_string, decode_flow_actions, encode_flow_actions, parse_instructions,
};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- tables: begin -->\n";
const END: &str = "<!-- tables: end -->\n";

fn heading(what: &str) -> String {
    format!("| {what} | 1.0 | 1.1 | 1.2 | 1.3 | 1.4 | 1.5 | test |\n|---|---|---|---|---|---|---|---|\n")
}

fn line(out: &mut String, name: &str, versions: [bool; 6], test: &str) {
    let marks = versions.map(|there| if there { "x" } else { "" }).join(" | ");
    let _ = writeln!(out, "| {name} | {marks} | {test} |");
}

/// The test of a message beyond its bytes and its text.
fn test_of_message(kind: MessageKind) -> &'static str {
    use MessageKind as K;
    match kind {
        K::Hello | K::Error | K::EchoRequest | K::EchoReply => "test_bad_input, test_controller",
        K::FlowMonitorRequest
        | K::FlowMonitorReply
        | K::FlowMonitorCancel
        | K::FlowMonitorPaused
        | K::FlowMonitorResumed => "test_monitors",
        K::BundleControl | K::BundleAdd => "test_bundles",
        K::MeterMod
        | K::MeterRequest
        | K::MeterReply
        | K::MeterConfigRequest
        | K::MeterConfigReply
        | K::MeterFeaturesRequest
        | K::MeterFeaturesReply => "test_meters",
        K::GroupMod
        | K::NxGroupMod
        | K::GroupRequest
        | K::GroupReply
        | K::GroupDescRequest
        | K::GroupDescReply
        | K::GroupFeaturesRequest
        | K::GroupFeaturesReply => "test_groups",
        K::TableMod
        | K::TableStatus
        | K::TableRequest
        | K::TableReply
        | K::TableDescRequest
        | K::TableDescReply
        | K::TableFeaturesRequest
        | K::TableFeaturesReply => "test_tables",
        K::RequestForward => "ofproto conn::forward",
        K::ControllerStatus
        | K::ControllerStatusRequest
        | K::ControllerStatusReply
        | K::BundleFeaturesRequest
        | K::BundleFeaturesReply => "ofproto tests::connections",
        K::TlvTableMod | K::TlvTableRequest | K::TlvTableReply => "ofproto tests::tlv",
        K::NxCtFlush | K::NxCtFlushZone => "test_clients",
        K::NxIpfixBridgeRequest | K::NxIpfixBridgeReply | K::NxIpfixFlowRequest | K::NxIpfixFlowReply => "test_clients",
        K::NxResume => "test_headers",
        K::FlowCountsRequest | K::FlowCountsReply => "test_rest_controllers",
        K::RoleRequest
        | K::RoleReply
        | K::NxRoleRequest
        | K::NxRoleReply
        | K::RoleStatus
        | K::GetAsyncRequest
        | K::GetAsyncReply
        | K::SetAsync
        | K::NxSetAsyncConfig
        | K::NxSetAsyncConfig2
        | K::NxSetControllerId => "ofproto tests::connections",
        K::QueueRequest
        | K::QueueReply
        | K::QueueDescRequest
        | K::QueueDescReply
        | K::QueueGetConfigRequest
        | K::QueueGetConfigReply => "test_openflow14, test_openflow15",
        _ => "test_controller, test_openflow14, test_openflow15",
    }
}

fn messages(out: &mut String) {
    out.push_str(&heading("message"));
    let mut listed: Vec<&str> = Vec::new();
    for row in rows() {
        if !listed.contains(&row.name) {
            listed.push(row.name);
            let there = Version::ALL.map(|v| rows().iter().any(|r| r.name == row.name && r.is_in(v)));
            line(out, &format!("`{}`", row.name), there, test_of_message(row.kind));
        }
    }
}

fn carries(formats: Protocols) -> [bool; 6] {
    Version::ALL.map(|v| formats.iter().any(|one| Protocols::of_version(v).contains(one)))
}

fn fields(out: &mut String) {
    out.push_str(&heading("field"));
    for field in FIELDS {
        let formats = match field.id {
            Field::InPort => Protocols::ANY,
            id => Protocols::of_field(id, field.full_mask()),
        };
        line(out, &format!("`{}`", field.name), carries(formats), "openflow tests/peers, fuzz match_text");
    }
}

/// The test that executes an action, or the reason why there is none.
fn test_of_action(action: &Action) -> &'static str {
    use Action as A;
    match action {
        A::PushPbb | A::PopPbb => "test_backbone, test_conformance",
        A::PushMpls(_) | A::SetMplsLabel(_) | A::SetMplsTc(_) | A::SetMplsTtl(_) | A::DecMplsTtl => {
            "test_actions, test_headers"
        }
        A::PopMpls(_) | A::DecNshTtl | A::Encap(_) | A::Decap(_) => "test_headers",
        A::CopyTtlOut | A::CopyTtlIn => "test_conformance",
        A::Ct(_) | A::Nat(_) => "test_conntrack_trace",
        A::DebugSlow | A::DebugRecirc => "xlate tests::cases, openflow tests/debug_actions",
        A::CtClear | A::ResubmitCt { .. } => "test_conntrack_trace",
        A::DeleteField(_) | A::SetTunOption(_) => "xlate tests::regions, test_traces",
        A::Sample(_) => "openflow tests/actions, test_ipfix",
        A::Enqueue { .. } | A::SetQueue(_) | A::PopQueue => "test_actions, test_qos",
        A::Group(_) => "test_groups",
        A::Meter(_) => "test_meters",
        A::Multipath(_) | A::Bundle(_) => "test_actions, xlate select",
        A::CheckPktLarger { .. } => "test_actions, xlate tests::regions",
        A::Conjunction { .. } => "test_actions, classifier, xlate tests::regions",
        A::Learn(_) | A::FinTimeout { .. } => "test_actions, ofproto tests::changes",
        A::SetTunnel { .. } => "test_actions, xlate tests::tunnels",
        A::Controller(_) => "test_controller, test_headers",
        A::WriteActions(_) | A::ClearActions | A::WriteMetadata { .. } | A::GotoTable(_) => {
            "test_actions, test_conformance"
        }
        A::Output { .. }
        | A::OutputReg { .. }
        | A::OutputTrunc { .. }
        | A::SetVlanVid { .. }
        | A::SetVlanPcp { .. }
        | A::PopVlan
        | A::PushVlan(_)
        | A::SetEthSrc(_)
        | A::SetEthDst(_)
        | A::SetIpv4Src(_)
        | A::SetIpv4Dst(_)
        | A::SetIpDscp(_)
        | A::SetIpEcn(_)
        | A::SetIpTtl(_)
        | A::SetL4Src(_)
        | A::SetL4Dst(_)
        | A::SetField { .. }
        | A::RegLoad { .. }
        | A::RegMove { .. }
        | A::CopyField { .. }
        | A::StackPush(_)
        | A::StackPop(_)
        | A::DecTtl(_)
        | A::Resubmit { .. }
        | A::ResubmitPort { .. }
        | A::Clone(_)
        | A::Note(_)
        | A::Exit => "test_actions, test_dummy_actions, ofproto tests/peers",
    }
}

/// One example of each action.
const ACTIONS: &[&str] = &[
    "output:1",
    "output:NXM_NX_REG0[]",
    "output(port=1,max_len=100)",
    "normal",
    "controller(max_len=128)",
    "controller(userdata=01,pause)",
    "controller(meter_id=3)",
    "enqueue(1,2)",
    "set_queue:2",
    "pop_queue",
    "mod_vlan_vid:5",
    "mod_vlan_pcp:5",
    "strip_vlan",
    "push_vlan:0x8100",
    "push_mpls:0x8847",
    "pop_mpls:0x0800",
    "push_pbb:0x88e7",
    "pop_pbb",
    "set_mpls_label(3)",
    "set_mpls_tc(3)",
    "set_mpls_ttl(3)",
    "dec_mpls_ttl",
    "copy_ttl_out",
    "copy_ttl_in",
    "encap(nsh(md_type=1))",
    "decap()",
    "dec_nsh_ttl",
    "mod_dl_src:02:00:00:00:00:01",
    "mod_dl_dst:02:00:00:00:00:01",
    "mod_nw_src:10.0.0.1",
    "mod_nw_dst:10.0.0.1",
    "mod_nw_tos:8",
    "mod_nw_ecn:1",
    "mod_nw_ttl:9",
    "mod_tp_src:9",
    "mod_tp_dst:9",
    "set_field:10.0.0.1->ip_src",
    "set_field:1->tun_metadata0",
    "load:1->NXM_NX_REG0[]",
    "move:NXM_NX_REG0[]->NXM_NX_REG1[]",
    "push:NXM_NX_REG0[]",
    "pop:NXM_NX_REG0[]",
    "dec_ttl",
    "dec_ttl(1,2)",
    "set_tunnel:5",
    "set_tunnel64:5",
    "resubmit(1,2)",
    "resubmit(,2,ct)",
    "clone(output:1)",
    "note:01",
    "exit",
    "group:1",
    "multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[])",
    "bundle(eth_src,0,hrw,ofport,members:1,2)",
    "bundle_load(eth_src,0,hrw,ofport,NXM_NX_REG0[],members:1,2)",
    "check_pkt_larger(100)->NXM_NX_REG0[0]",
    "conjunction(1,1/2)",
    "learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
    "fin_timeout(idle_timeout=5)",
    "ct(commit,zone=1)",
    "ct(commit,nat(src=10.0.0.1))",
    "ct_clear",
    "debug_slow",
    "debug_recirc",
    "delete_field:tun_metadata0",
    "sample(probability=1,collector_set_id=1)",
    "meter:1",
    "clear_actions",
    "write_actions(output:1)",
    "write_metadata:0x5",
    "goto_table:1",
];

fn actions(out: &mut String) {
    // A switch with dummies has all of them.
    openflow::allow_debug_actions();
    out.push_str(&heading("action or instruction"));
    for text in ACTIONS {
        let actions = parse_instructions(text, &NoNames).unwrap_or_else(|e| panic!("{text}: {e}"));
        // A version supports an action if it encodes to anything: some versions encode it as another action.
        let there = Version::ALL.map(|v| {
            let mut bytes = openflow::wire::Writer::new();
            encode_flow_actions(&mut bytes, &actions, v, &flow::Match::ANY);
            decode_flow_actions(&bytes, v).is_ok_and(|read| !read.is_empty())
        });
        let shown = actions_to_string(&actions, &NoNames, Version::V15);
        let test = actions.first().map_or("", test_of_action);
        line(out, &format!("`{shown}`"), there, test);
    }
}

fn groups_and_meters(out: &mut String) {
    out.push_str(&heading("group, bucket, meter"));
    let from = |first: usize| std::array::from_fn(|i| i >= first);
    let nicira = [true; 6];
    for (what, there, test) in [
        ("group types `all`, `select`, `indirect`, `fast_failover`", from(1), "test_groups"),
        ("the same over OpenFlow 1.0, by NXT_GROUP_MOD", [true, false, false, false, false, false], "test_groups"),
        ("watched ports and groups, chaining, loops refused", from(1), "test_groups, ofproto tests::changes"),
        ("selection method, its parameter and fields", [true, false, false, false, false, true], "test_headers"),
        (
            "buckets inserted and removed",
            [true, false, false, false, false, true],
            "ofproto tests::changes, test_openflow15",
        ),
        ("meters with `drop` and `dscp_remark`, kbps and pktps, bursts", from(3), "test_meters, datapath meter"),
        ("meters of controllers and of the slow path", from(3), "test_meters"),
        ("statistics of flows, tables, ports, queues, aggregates", nicira, "test_controller, test_openflow15"),
        ("statistics of groups and buckets", from(1), "test_groups"),
        ("statistics of meters and bands", from(3), "test_meters"),
    ] {
        line(out, what, there, test);
    }
}

#[test]
fn the_tables_of_the_document_are_those_of_the_code() {
    let mut tables = String::from("### Messages\n\n");
    messages(&mut tables);
    tables.push_str("\n### Fields\n\n");
    fields(&mut tables);
    tables.push_str("\n### Actions and instructions\n\n");
    actions(&mut tables);
    tables.push_str("\n### Groups, meters and statistics\n\n");
    groups_and_meters(&mut tables);
    tables.push('\n');

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openflow.md");
    let text = std::fs::read_to_string(&path).expect("docs/openflow.md is there");
    let (head, rest) = text.split_once(BEGIN).expect("the tables begin somewhere");
    let (old, tail) = rest.split_once(END).expect("the tables end somewhere");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, [head, BEGIN, &tables, END, tail].concat()).expect("it can be written");
    } else {
        assert!(
            old == tables,
            "docs/openflow.md is out of date: UPDATE_DOCS=1 cargo test -p openflow --test reference"
        );
    }
}

/// The files of a test by its name in the tables: `test_x` is an end-to-end test, `fuzz x` a fuzz target; all others are a
/// crate and a file of it, `tests/x` beside its sources, `tests::x` or `x` among them.
fn files_of(test: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let first = |name: &str| name.split("::").last().unwrap_or(name).to_owned();
    let (place, name) = match test.split_once(' ') {
        None if test.starts_with("test_") => return vec![root.join("tests/e2e").join(test).with_extension("py")],
        None => (root.join("crates").join(test).join("src"), None),
        Some(("fuzz", target)) => return vec![root.join("fuzz/targets").join(target).with_extension("rs")],
        Some((krate, name)) => match name.strip_prefix("tests/") {
            Some(name) => (root.join("crates").join(krate).join("tests"), Some(first(name))),
            None => (root.join("crates").join(krate).join("src"), Some(first(name))),
        },
    };
    let (mut found, mut folders) = (Vec::new(), vec![place]);
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{test}: {}: {e}", folder.display()));
        for path in entries.map(|entry| entry.expect("a folder can be read").path()) {
            let is_it = name.as_ref().is_none_or(|name| path.file_stem().is_some_and(|stem| stem == name.as_str()));
            match path.is_dir() {
                true => folders.push(path),
                false if is_it => found.push(path),
                false => {}
            }
        }
    }
    found
}

/// The tests of a cell; a remark may follow a semicolon.
fn tests_of(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(';').next().unwrap_or(cell).split(',').map(str::trim)
}

#[test]
fn the_tests_that_the_document_names_are_there() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openflow.md");
    let text = std::fs::read_to_string(&path).expect("docs/openflow.md is there");
    let tables = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).expect("tables").0;
    for row in tables.lines().filter(|row| row.starts_with("| ") && !row.ends_with("| test |")) {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().expect("a cell");
        for test in tests_of(cell) {
            let files = files_of(test);
            assert!(!files.is_empty() && files.iter().all(|file| file.is_file()), "{row}: no {test}");
        }
    }
}

#[test]
fn actions_are_in_the_tests_that_are_named_for_them() {
    let mut missing = Vec::new();
    for text in ACTIONS {
        let actions = parse_instructions(text, &NoNames).unwrap_or_else(|e| panic!("{text}: {e}"));
        let shown = actions_to_string(&actions, &NoNames, Version::V15);
        let words = [*text, &shown].map(|text| text.split([':', '(']).next().unwrap_or(text).to_owned());
        let cell = actions.first().map_or("", test_of_action);
        let files: Vec<PathBuf> = tests_of(cell).flat_map(files_of).collect();
        let has = |file: &PathBuf| {
            std::fs::read_to_string(file).is_ok_and(|source| words.iter().any(|word| source.contains(word)))
        };
        // The conformance tester has its cases in its package.
        if !cell.contains("test_conformance") && !files.iter().any(has) {
            missing.push(format!("{} is not in {cell}", words[0]));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
