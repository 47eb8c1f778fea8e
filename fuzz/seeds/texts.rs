//! Samples of the text formats.

use serde_json::{Value, json};

/// Words of flows beside those of matches and actions.
pub(crate) const FLOW_WORDS: &[&str] = &[
    "add ",
    "modify ",
    "modify_strict ",
    "delete ",
    "delete_strict ",
    "table=",
    "priority=",
    "cookie=",
    "/-1",
    "idle_timeout=",
    "hard_timeout=",
    "importance=",
    "out_port=",
    "out_group=",
    "send_flow_rem",
    "check_overlap",
    "reset_counts",
    "actions=",
];

/// Words of actions.
pub(crate) const ACTION_WORDS: &[&str] = &[
    "output:",
    "output(port=1,max_len=60)",
    "normal",
    "NORMAL",
    "flood",
    "all",
    "in_port",
    "local",
    "drop",
    "controller",
    "controller(reason=action,max_len=10,id=1,userdata=01.02,pause)",
    "enqueue:1:2",
    "set_queue:",
    "pop_queue",
    "mod_vlan_vid:",
    "mod_vlan_pcp:",
    "strip_vlan",
    "pop_vlan",
    "push_vlan:0x8100",
    "mod_dl_src:",
    "mod_nw_src:",
    "mod_nw_tos:",
    "mod_nw_ecn:",
    "mod_nw_ttl:",
    "mod_tp_src:",
    "set_field:",
    "->",
    "load:",
    "move:",
    "push:",
    "pop:",
    "dec_ttl",
    "dec_ttl(1,2)",
    "set_tunnel:",
    "set_tunnel64:",
    "resubmit:",
    "resubmit(,1)",
    "resubmit(1,2)",
    "clone(",
    ")",
    "note:",
    "group:",
    "conjunction(",
    "1/2",
    "learn(",
    "delete_learned",
    "limit=",
    "result_dst=",
    "fin_idle_timeout=",
    "fin_hard_timeout=",
    "fin_timeout(",
    "exit",
    "clear_actions",
    "write_actions(",
    "write_metadata:",
    "goto_table:",
    "[]",
    "[0..15]",
    "push_mpls:0x8847",
    "pop_mpls:0x800",
    "push_pbb:0x88e7",
    "pop_pbb",
    "pbb_isid=",
    "pbb_uca=1",
    "ipv6_exthdr=",
    "set_mpls_label:",
    "set_mpls_tc:",
    "set_mpls_ttl:",
    "dec_mpls_ttl",
    "dec_nsh_ttl",
    "copy_ttl_in",
    "copy_ttl_out",
    "encap(nsh(",
    "encap(mpls)",
    "encap(ethernet)",
    "md_type=",
    "tlv(0x1000,10,0x12)",
    "decap",
    "decap(packet_type(ns=1,type=0x800))",
    "ct(",
    "commit",
    "force",
    "zone=",
    "exec(",
    "alg=ftp",
    "nat(src=10.0.0.1-10.0.0.9:1-100",
    "nat(dst=[fc00::1]",
    "persistent",
    "random",
    "hash",
    "ct_clear",
    "resubmit(,1,ct)",
    "sample(probability=1",
    "collector_set_id=",
    "sampling_port=",
    "egress",
    "delete_field:",
];

/// Words of JSON-RPC and of transactions.
pub(crate) const JSON_WORDS: &[&str] = &[
    "\"method\":",
    "\"params\":",
    "\"id\":",
    "\"result\":",
    "\"error\":",
    "null",
    "true",
    "\"transact\"",
    "\"Open_vSwitch\"",
    "\"Bridge\"",
    "\"Port\"",
    "\"Interface\"",
    "\"T\"",
    "\"root\"",
    "\"kid\"",
    "\"op\":",
    "\"insert\"",
    "\"select\"",
    "\"update\"",
    "\"mutate\"",
    "\"delete\"",
    "\"wait\"",
    "\"commit\"",
    "\"abort\"",
    "\"comment\"",
    "\"assert\"",
    "\"table\":",
    "\"row\":",
    "\"rows\":",
    "\"where\":",
    "\"columns\":",
    "\"mutations\":",
    "\"until\":",
    "\"timeout\":",
    "\"uuid-name\":",
    "\"uuid\":",
    "[\"set\",[",
    "[\"map\",[",
    "[\"named-uuid\",\"a\"]",
    "[\"uuid\",\"",
    "\"==\"",
    "\"!=\"",
    "\"includes\"",
    "\"excludes\"",
    "\"<\"",
    "\"+=\"",
    "\"%=\"",
    "\"/=\"",
    "\"monitor\"",
    "\"monitor_cond\"",
    "\"monitor_cond_since\"",
    "\"monitor_cond_change\"",
    "\"monitor_cancel\"",
    "\"lock\"",
    "\"steal\"",
    "\"unlock\"",
    "\"cancel\"",
    "\"echo\"",
    "\"list_dbs\"",
    "\"get_schema\"",
    "\"set_db_change_aware\"",
    "\"convert\"",
    "\"get_server_id\"",
    "\"_uuid\"",
    "\"_version\"",
    "\"_is_diff\":true",
    "\"durable\":true",
    "-9223372036854775808",
    "1e308",
];

/// Words of schemas.
pub(crate) const SCHEMA_WORDS: &[&str] = &[
    "\"name\":",
    "\"version\":",
    "\"cksum\":",
    "\"tables\":",
    "\"columns\":",
    "\"isRoot\":true",
    "\"maxRows\":",
    "\"indexes\":[[\"a\"]]",
    "\"type\":",
    "\"ephemeral\":",
    "\"mutable\":",
    "\"key\":",
    "\"value\":",
    "\"min\":0",
    "\"max\":\"unlimited\"",
    "\"enum\":[\"set\",[",
    "\"minInteger\":",
    "\"maxInteger\":",
    "\"minReal\":",
    "\"maxReal\":",
    "\"minLength\":",
    "\"maxLength\":",
    "\"refTable\":",
    "\"refType\":\"weak\"",
    "\"integer\"",
    "\"real\"",
    "\"boolean\"",
    "\"string\"",
    "\"uuid\"",
];

/// Lists of actions.
pub(crate) fn actions() -> impl Iterator<Item = String> {
    [
        "drop",
        "output:2",
        "NORMAL",
        "1,2,FLOOD,IN_PORT,LOCAL",
        "output:NXM_NX_REG1[0..15],output(port=2,max_len=100)",
        "CONTROLLER:128,controller(reason=no_match,max_len=10,id=7,userdata=00.01.ff,pause)",
        "enqueue:1:7,set_queue:3,pop_queue",
        "mod_vlan_vid:5,mod_vlan_pcp:3,output:1,strip_vlan",
        "push_vlan:0x88a8,set_field:4100->vlan_vid,pop_vlan",
        "mod_dl_src:02:00:00:00:00:01,mod_dl_dst:02:00:00:00:00:02",
        "mod_nw_src:10.0.0.1,mod_nw_dst:10.0.0.2,mod_nw_tos:252,mod_nw_ecn:3,mod_nw_ttl:9",
        "mod_tp_src:80,mod_tp_dst:65535",
        "set_field:10.0.0.1/255.0.0.0->ip_src,set_field:fe80::1->ipv6_dst,set_field:0x7/0xf->reg3",
        "load:0x1234->NXM_NX_REG0[4..19],move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
        "push:NXM_NX_REG0[],pop:NXM_NX_REG1[0..3],dec_ttl,dec_ttl(1,2)",
        "set_tunnel:5,set_tunnel64:0x123456789a,resubmit:3,resubmit(,4),resubmit(5,6)",
        "clone(mod_nw_ttl:1,output:1,clone(output:2)),note:01.02.03,exit",
        "conjunction(5,1/2),conjunction(4294967295,64/64),note:03",
        "learn(table=3,idle_timeout=5,hard_timeout=6,priority=7,cookie=0x12,send_flow_rem,delete_learned,in_port)",
        "learn(limit=5,result_dst=reg0[1],fin_idle_timeout=3,fin_hard_timeout=4,NXM_OF_VLAN_TCI[0..11],output:in_port)",
        "learn(eth_type=0x800,nw_proto=6,ip_src=10.0.0.1,eth_dst=eth_src,reg2[3..7]=reg1[0..4],reg3[0..15]=0x5)",
        "learn(load:reg1->reg2,load:0x11->reg3[0..7],load:0x5->xxreg1[10..111],xxreg0=0x112222333344445555)",
        "group:5,fin_timeout(idle_timeout=5,hard_timeout=6),write_actions(group:7)",
        "push_mpls:0x8847,set_mpls_label:5,set_mpls_tc:3,set_mpls_ttl:7,dec_mpls_ttl,copy_ttl_out,copy_ttl_in,pop_mpls:0x800",
        "push_pbb:0x88e7,set_field:0x123456->pbb_isid,set_field:1->pbb_uca,pop_pbb,load:5->pbb_isid[0..7]",
        "encap(nsh(md_type=2,tlv(0x1000,10,0x12345678))),dec_nsh_ttl,encap(ethernet),decap,decap(packet_type(ns=1,type=0x800))",
        "encap(mpls),encap(mpls_mc),write_actions(encap(nsh(md_type=1)),dec_nsh_ttl,decap(packet_type(ns=0,type=0)))",
        "ct(commit,force,zone=NXM_NX_REG0[0..15],table=3,alg=ftp,exec(set_field:0x1/0x3->ct_label,move:reg0[]->ct_mark[]))",
        "ct(nat),ct(commit,nat(src=10.0.0.1-10.0.0.9:1-100,persistent,random),exec(load:1->ct_mark[3..4])),ct_clear",
        "ct(commit,zone=5,nat(dst=[fc00::1]-[fc00::9]:5-10,hash)),ct(commit,nat(src)),resubmit(1,2,ct)",
        "sample(probability=12345,collector_set_id=1,obs_domain_id=2,obs_point_id=3,sampling_port=1,egress)",
        "set_field:0x123456789abcdef0123456789abcdef012/0xff->tun_metadata5,load:5->tun_metadata0[40..43],push:tun_metadata0[]",
        "sample(probability=1),sample(probability=2,sampling_port=LOCAL),delete_field:tun_metadata63",
        "output:1,clear_actions,write_actions(output:2,pop_vlan),write_metadata:0x5/0xff,goto_table:9",
    ]
    .into_iter()
    .map(str::to_owned)
}

/// Flows, most of them additions.
pub(crate) fn flows() -> impl Iterator<Item = String> {
    let others = [
        "modify table=3,cookie=0x12/0xff,tcp,tp_dst=80 actions=drop",
        "modify_strict priority=7,ip,nw_src=10.0.0.0/8 actions=2",
        "delete cookie=1/-1,out_port=3,out_group=4",
        "delete_strict priority=9,in_port=1,dl_vlan=0xffff",
        "tun_metadata0=0x123456789abcdef0123456789abcdef0123,tun_metadata1,tun_metadata63=0x100/0x300,actions=1",
        "idle_timeout=1,hard_timeout=2,importance=3,cookie=-1,send_flow_rem,check_overlap,reset_counts,actions=1",
    ];
    let matches = ["", "in_port=1,", "tcp,", "udp6,tp_src=5,", "arp,", "dl_vlan=3,ip,", "icmp6,", "reg1=1/3,"];
    let simple = actions().enumerate().map(move |(n, a)| format!("{}actions={a}", matches[n % matches.len()]));
    others.into_iter().map(str::to_owned).chain(simple)
}

/// Words of groups beside those of actions.
pub(crate) const GROUP_WORDS: &[&str] = &[
    "add_or_mod ",
    "insert_bucket ",
    "remove_bucket ",
    "group_id=",
    "type=all",
    "type=select",
    "type=indirect",
    "type=ff",
    ",bucket=",
    "weight:",
    "watch_port:",
    "watch_group:",
    "bucket_id:",
    "command_bucket_id=",
    "first",
    "last",
    "selection_method=hash",
    "selection_method=dp_hash",
    "selection_method_param=",
    "fields(",
];

/// Groups, most of them additions.
pub(crate) fn groups() -> impl Iterator<Item = String> {
    let others = [
        "modify group_id=1,type=select,selection_method=hash,selection_method_param=7,fields(ip_src,tcp_dst=0xff)",
        "add_or_mod group_id=4294967040,type=select,selection_method=dp_hash,bucket=weight:5,1,bucket=weight=0,2",
        "delete group_id=all",
        "insert_bucket group_id=5,command_bucket_id=first,bucket=bucket_id:9,output:2,bucket=bucket_id:7,drop",
        "remove_bucket group_id=5,command_bucket_id=last",
        "group_id=3,type=ff,bucket=watch_port:1,1,bucket=watch_group:7,watch_port:LOCAL,actions=2,3",
    ];
    let kinds = ["all", "select", "indirect"];
    let simple =
        actions().enumerate().map(move |(n, a)| format!("group_id={n},type={},bucket={a}", kinds[n % kinds.len()]));
    others.into_iter().map(str::to_owned).chain(simple)
}

/// Transactions that build a small switch and take it down.
fn transactions() -> Vec<Value> {
    let insert = |table, name, row| json!({"op": "insert", "table": table, "uuid-name": name, "row": row});
    let made = json!([
        insert("Open_vSwitch", "o", json!({"bridges": ["named-uuid", "b"], "external_ids": ["map", [["k", "v"]]]})),
        insert("Bridge", "b", json!({"name": "br0", "ports": ["set", [["named-uuid", "p"]]], "fail_mode": "secure"})),
        insert(
            "Port",
            "p",
            json!({"name": "p", "interfaces": ["named-uuid", "i"], "tag": 5, "trunks": ["set", [1, 2]]})
        ),
        insert("Interface", "i", json!({"name": "i", "type": "internal", "options": ["map", [["a", "b"]]]})),
    ]);
    vec![
        made,
        json!([{"op": "select", "table": "Port", "where": [["name", "==", "p"], ["tag", "includes", 5]],
                "columns": ["_uuid", "tag"]}]),
        json!([{"op": "update", "table": "Port", "where": [], "row": {"tag": ["set", []], "vlan_mode": "trunk"}}]),
        json!([{"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1],
                ["external_ids", "insert", ["map", [["x", "y"]]]], ["external_ids", "delete", ["set", ["k"]]]]}]),
        json!([{"op": "wait", "table": "Bridge", "timeout": 0, "where": [["name", "!=", "x"]], "columns": ["name"],
                "until": "==", "rows": [{"name": "br0"}]}, {"op": "comment", "comment": "c"},
               {"op": "commit", "durable": true}, {"op": "assert", "lock": "l"}, {"op": "abort"}]),
        json!([{"op": "delete", "table": "Bridge", "where": []}, {"op": "delete", "table": "Open_vSwitch", "where": []}]),
    ]
}

fn request(id: i64, method: &str, params: Value) -> Value {
    json!({"method": method, "params": params, "id": id})
}

fn requests() -> Vec<Value> {
    let insert = json!({"op": "insert", "table": "kid", "uuid-name": "k", "row": {"name": "a"}});
    let parent = json!({"op": "insert", "table": "root", "row": {"n": 5, "kids": ["named-uuid", "k"],
        "weak": ["named-uuid", "k"], "map": ["map", [["x", 1.5]]], "gone": true}});
    let all = json!({"root": [{"columns": ["n", "kids"], "where": [["n", ">", 1]]}], "kid": [{}]});
    let waits = json!({"op": "wait", "table": "root", "timeout": 50, "where": [], "columns": ["n"], "until": "==",
        "rows": [{"n": 7}]});
    vec![
        request(0, "transact", json!(["T", insert, parent])),
        request(0, "list_dbs", json!([])),
        request(0, "get_schema", json!(["T"])),
        request(0, "echo", json!([1, "x"])),
        request(2, "monitor", json!(["T", null, {"root": {"columns": ["n"], "select": {"initial": false}}}])),
        request(3, "monitor_cond", json!(["T", "m3", all])),
        request(3, "monitor_cond_change", json!(["m3", "m4", {"root": [{"where": [["n", "<", 9]]}]}])),
        request(5, "monitor_cond_since", json!(["T", "m5", all, "00000000-0000-0000-0000-000000000000"])),
        request(2, "monitor_cancel", json!([null])),
        request(2, "lock", json!(["l"])),
        request(3, "steal", json!(["l"])),
        request(2, "unlock", json!(["l"])),
        request(2, "set_db_change_aware", json!([true])),
        request(2, "get_server_id", json!([])),
        request(4, "transact", json!(["T", waits])),
        json!({"method": "cancel", "params": [4], "id": null}),
        json!({"result": [], "error": null, "id": "echo"}),
    ]
}

/// Messages of an active server, and of the source of a relay.
fn sources() -> Vec<String> {
    let uuid = "11111111-2222-3333-4444-555555555555";
    let reply = |id: u64, result: Value| json!({"id": id, "result": result, "error": null});
    let notification = |method: &str, params: Value| json!({"id": null, "method": method, "params": params});
    let schema = json!({"name": "T", "version": "1.0.0", "tables": {
        "root": {"isRoot": true, "columns": {"n": {"type": "integer"},
            "kids": {"type": {"key": {"type": "uuid", "refTable": "kid"}, "min": 0, "max": "unlimited"}}}},
        "kid": {"columns": {"name": {"type": "string"}}}}});
    let same = json!({"name": "T", "version": "1.0.0", "tables": {
        "kid": {"isRoot": true, "columns": {"name": {"type": "string", "mutable": false}}}}});
    let active = [
        reply(1, json!(uuid)),
        reply(2, same),
        reply(3, json!({"kid": {uuid: {"new": {"name": "x"}}}})),
        notification("update", json!(["T", {"kid": {uuid: {"old": {}, "new": {"name": "y"}}}}])),
        notification("update", json!(["T", {"kid": {uuid: {"old": {}}}}])),
    ];
    let described = json!({"name": "T", "model": "relay", "connected": true, "schema": "x"});
    let root = json!({"root": {uuid: {"initial": {"n": 3, "kids": ["uuid", uuid]}}},
        "kid": {uuid: {"initial": {"name": "x"}}}});
    let relayed = [
        reply(1, json!({})),
        reply(2, json!({"Database": {uuid: {"initial": described}}})),
        reply(3, schema),
        reply(4, json!([false, uuid, root])),
        notification("update3", json!([["monid", "T"], uuid, {"root": {uuid: {"modify": {"n": 4}}}}])),
        notification("update3", json!([["monid", "T"], uuid, {"root": {uuid: {"delete": null}}}])),
        notification("monitor_canceled", json!([["monid", "T"]])),
        json!({"id": 5, "result": null, "error": {"error": "unknown database"}}),
        notification("update2", json!([["monid", "_Server"], {"Database": {uuid: {"modify": {"connected": false}}}}])),
    ];
    let growing = |first: char, all: &[Value]| -> Vec<String> {
        (1..=all.len()).map(|n| format!("{first}{}", joined(&all[..n]))).collect()
    };
    [growing('0', &active), growing('1', &relayed)].concat()
}

fn schemas() -> Vec<Value> {
    let whole: Value = serde_json::from_str(ovsdb::schemas::OPEN_VSWITCH).expect("our own schema");
    let table = |name: &str| json!({"name": "D", "version": "1.2.3", "tables": {name: whole["tables"][name]}});
    let types = json!({"name": "E", "version": "0.0.1", "cksum": "12 345", "tables": {"t": {"maxRows": 3,
        "isRoot": true, "indexes": [["a", "b"]], "columns": {
        "a": {"type": {"key": {"type": "integer", "minInteger": -5, "maxInteger": 5}, "min": 1, "max": 1}},
        "b": {"type": {"key": {"type": "string", "enum": ["set", ["x", "y"]]}}, "mutable": false},
        "c": {"type": {"key": {"type": "real", "minReal": 0.5, "maxReal": 2}, "value": "boolean", "min": 0,
              "max": "unlimited"}, "ephemeral": true},
        "d": {"type": {"key": {"type": "uuid", "refTable": "t", "refType": "weak"}, "min": 0, "max": 7}},
        "e": {"type": {"key": {"type": "string", "minLength": 1, "maxLength": 9}}}}}}});
    vec![types, table("CT_Zone"), table("SSL"), table("AutoAttach")]
}

/// Contents of database files, record by record.
pub(crate) fn logs() -> Vec<Vec<Value>> {
    let schema = schemas().remove(0);
    let row = |row: Value| json!({"t": {"11111111-2222-3333-4444-555555555555": row}, "_date": 5, "_comment": "c"});
    let difference = json!({"t": {"11111111-2222-3333-4444-555555555555": {"c": ["map", [[1.5, false]]]}},
        "_is_diff": true});
    vec![
        vec![schema.clone()],
        vec![schema.clone(), row(json!({"a": 3, "b": "x", "e": "y", "c": ["map", [[1, true]]]}))],
        vec![schema, row(json!({"a": 3, "b": "y", "e": "z"})), difference, row(Value::Null)],
    ]
}

fn joined(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

/// Seeds that are JSON.
pub(crate) fn by_target() -> Vec<(&'static str, Vec<String>)> {
    let (transactions, requests) = (transactions(), requests());
    let growing = |values: &[Value]| (1..=values.len()).map(|n| joined(&values[..n])).collect::<Vec<_>>();
    let single = |values: &[Value]| values.iter().map(Value::to_string).collect::<Vec<_>>();
    let control = [request(1, "list-commands", json!([])), request(2, "vlog/set", json!(["ANY:file:dbg"]))];
    vec![
        ("transact", growing(&transactions)),
        ("session", growing(&requests)),
        ("source", sources()),
        ("jsonrpc", single(&requests).into_iter().map(|text| format!("\u{8}{text}{text}")).collect()),
        ("schema", single(&schemas())),
        ("unixctl", growing(&control)),
        ("database_file", logs().iter().map(|log| joined(log)).collect()),
    ]
}
