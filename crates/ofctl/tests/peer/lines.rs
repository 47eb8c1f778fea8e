//! Random command lines that send something to a switch; some of them with errors.

use crate::make::Gen;
use std::fmt::Write;

/// A command line for the switch `unix:sw`, with its input.
pub(crate) struct Line {
    pub(crate) args: Vec<String>,
    pub(crate) input: String,
}

fn line(args: &[&str], input: String) -> Line {
    Line { args: args.iter().map(|a| (*a).to_owned()).collect(), input }
}

const VERSIONS: [&str; 6] = ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"];
const FORMATS: [&str; 10] = [
    "OpenFlow10-table_id",
    "OpenFlow10+table_id",
    "NXM-table_id",
    "NXM+table_id",
    "OpenFlow11",
    "OXM-OpenFlow12",
    "OXM-OpenFlow13",
    "OXM-OpenFlow14",
    "OXM-OpenFlow15",
    "NXM,OXM",
];

const KINDS: &[fn(&mut Gen) -> Line] = &[
    add_flow, add_flow, mod_flows, mod_flows, del_flows, del_flows, flow_file, bundle, group, group, group, group,
    group_file, groups, meter, meter, meters, dump_flows, dump_flows, statistics, statistics, change, change,
    packet_out, packet_out, tlv, ct_flush,
];

/// So many command lines.
pub(crate) fn lines(g: &mut Gen, n: usize) -> Vec<Line> {
    (0..n)
        .map(|i| {
            let mut line = KINDS[i % KINDS.len()](g);
            let mut options = Vec::new();
            if !g.once_in(6) {
                options.extend(["-O".to_owned(), version(g)]);
            }
            if g.once_in(5) {
                options.extend(["-F".to_owned(), g.of(&FORMATS).to_owned()]);
            }
            if g.once_in(15) {
                damage(g, line.args.last_mut().expect("a command"));
            }
            line.args.splice(0..0, options);
            line
        })
        .collect()
}

fn version(g: &mut Gen) -> String {
    match g.below(10) {
        0 => g
            .of(&["OpenFlow10,OpenFlow13", "OpenFlow12,OpenFlow15", "OpenFlow11,OpenFlow14,OpenFlow15", "any"])
            .to_owned(),
        _ => g.of(&VERSIONS).to_owned(),
    }
}

/// Introduces an error into a text.
fn damage(g: &mut Gen, text: &mut String) {
    let at = g.below(text.len() as u64 + 1) as usize;
    match g.below(4) {
        0 => text.insert(at, g.of(&[',', '=', ':', '/', '(', ')', 'x', '9', ' '])),
        1 => text.truncate(at),
        2 if at < text.len() => drop(text.remove(at)),
        _ => text.push_str(g.of(&[",", ",foo", ",foo=1", "=", "0", ",table=300", "/1"])),
    }
}

// Flows.

const MATCHES: &[&str] = &[
    "",
    "in_port=1",
    "in_port=LOCAL",
    "in_port=p2",
    "ip",
    "tcp,tp_dst=80",
    "udp,nw_src=10.0.0.0/8,tp_src=53",
    "udp6,ipv6_dst=fe80::1,tp_dst=0x1000/0xf000",
    "arp,arp_op=1,arp_tpa=10.0.0.1",
    "dl_src=00:11:22:33:44:55,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
    "dl_vlan=5,dl_vlan_pcp=3",
    "vlan_tci=0x1000/0x1000",
    "dl_type=0x88cc",
    "ip,nw_tos=0x10,nw_ecn=1,nw_ttl=64",
    "icmp,icmp_type=8,icmp_code=0",
    "metadata=0x5/0xff",
    "reg0=7,reg3=0x10/0xf0",
    "tun_id=0x55",
    "ct_state=+trk+est,ct_mark=1",
    "mpls,mpls_label=16",
    "sctp,tp_src=7",
    "conj_id=3",
    "xreg1=0x100000002",
    "pkt_mark=1/1",
    "ip,nw_frag=later",
    "tun_metadata0=0x11",
];

const ACTIONS: &[&str] = &[
    "drop",
    "1",
    "output:2,output:LOCAL",
    "p2,\"a port\"",
    "NORMAL",
    "mod_vlan_vid:5,output:3",
    "push_vlan:0x8100,set_field:4101->vlan_vid,1",
    "set_field:00:00:00:00:00:01->eth_src,IN_PORT",
    "controller(max_len=77)",
    "controller(reason=no_match,id=3,userdata=01.02.03,pause)",
    "resubmit(,5),resubmit:2",
    "load:5->NXM_NX_REG1[0..7],move:reg1[0..7]->reg2[8..15]",
    "group:3",
    "enqueue:1:2",
    "set_queue:7,2,pop_queue",
    "meter:3,output:1",
    "goto_table:9",
    "write_metadata:5/7,goto_table:8",
    "clear_actions,write_actions(output:1)",
    "learn(table=3,eth_dst=eth_src,output:in_port)",
    "ct(commit,zone=3,table=4,exec(set_field:1->ct_mark))",
    "multipath(eth_src,50,modulo_n,4,0,reg0[])",
    "bundle(symmetric_l4,0,hrw,ofport,members:1,2)",
    "note:01.02.03",
    "sample(probability=10,collector_set_id=3)",
    "clone(1,2),3",
    "output(port=1,max_len=100)",
    "check_pkt_larger(100)->reg0[0]",
    "dec_ttl",
    "mod_nw_tos:8",
    "strip_vlan,1",
    "conjunction(3,1/2)",
    "",
];

const SETTINGS: &[&str] = &[
    "priority=5",
    "table=3",
    "table=0",
    "table=255",
    "idle_timeout=10,hard_timeout=20",
    "send_flow_rem",
    "check_overlap",
    "reset_counts",
    "no_packet_counts,no_byte_counts",
    "importance=9",
    "cookie=0x1234",
    "cookie=0x12/0xff",
    "cookie=0/0",
    "cookie=5/-1",
    "out_port=2",
    "out_port=LOCAL",
    "out_port=p1",
    "out_group=7",
    "out_group=any",
];

fn joined(parts: &[String]) -> String {
    parts.iter().filter(|p| !p.is_empty()).cloned().collect::<Vec<_>>().join(",")
}

/// Settings that are present in most such flows, and a match.
fn spec(g: &mut Gen, likely: &[&str]) -> String {
    let mut parts = Vec::new();
    for _ in 0..g.of(&[0, 1, 1, 2]) {
        let any = g.once_in(12);
        parts.push(g.of(if any { SETTINGS } else { likely }).to_owned());
    }
    parts.push(g.of(MATCHES).to_owned());
    joined(&parts)
}

fn with_actions(g: &mut Gen, spec: String) -> String {
    let actions = format!("actions={}", g.of(ACTIONS));
    joined(&[spec, actions])
}

fn added(g: &mut Gen) -> String {
    let spec = spec(g, &SETTINGS[..11]);
    with_actions(g, spec)
}

fn modified(g: &mut Gen) -> String {
    let spec = spec(g, &[&SETTINGS[..9], &SETTINGS[10..14]].concat());
    with_actions(g, spec)
}

fn strict<'a>(g: &mut Gen) -> &'a [&'a str] {
    g.of(&[&[][..], &["--strict"], &["--bundle"], &["--strict", "--bundle"]])
}

fn add_flow(g: &mut Gen) -> Line {
    let flow = added(g);
    line(&[strict(g), &["add-flow", "unix:sw", &flow]].concat(), String::new())
}

fn mod_flows(g: &mut Gen) -> Line {
    let flow = modified(g);
    line(&[strict(g), &["mod-flows", "unix:sw", &flow]].concat(), String::new())
}

fn del_flows(g: &mut Gen) -> Line {
    let flow = spec(g, &[&SETTINGS[..4], &SETTINGS[11..]].concat());
    if g.once_in(8) {
        return line(&[strict(g), &["del-flows", "unix:sw"]].concat(), String::new());
    }
    line(&[strict(g), &["del-flows", "unix:sw", &flow]].concat(), String::new())
}

fn flow_lines(g: &mut Gen) -> String {
    let mut text = String::new();
    for _ in 0..=g.below(4) {
        let one = match g.below(7) {
            0 => format!("modify {}", modified(g)),
            1 => format!("modify_strict {}", modified(g)),
            2 => format!("delete {}", spec(g, &SETTINGS[11..])),
            3 => format!("delete_strict {}", spec(g, &SETTINGS[..4])),
            4 => format!("add {}", added(g)),
            5 => "# a comment".to_owned(),
            _ => added(g),
        };
        let _ = writeln!(text, "{one}");
    }
    text
}

fn flow_file(g: &mut Gen) -> Line {
    let command = g.of(&["add-flows", "add-flows", "mod-flows", "del-flows", "replace-flows"]);
    let input = flow_lines(g);
    line(&[strict(g), &[command, "unix:sw", "-"]].concat(), input)
}

fn bundle(g: &mut Gen) -> Line {
    let mut input = String::new();
    for _ in 0..=g.below(4) {
        let one = match g.below(4) {
            0 => format!("flow {}", added(g)),
            1 => {
                let command = g.of(&["add", "modify", "delete", "modify_strict", "delete_strict"]);
                let flow = if command.starts_with('d') { spec(g, &SETTINGS[11..]) } else { modified(g) };
                format!("flow {command} {flow}")
            }
            2 => {
                let command = g.of(&["add", "modify", "add_or_mod", "delete", "insert_bucket", "remove_bucket", ""]);
                format!("group {command} {}", group_text(g, command))
            }
            _ => format!("packet-out in_port=controller packet=00112233445566778899aabb0800 actions={}", g.of(ACTIONS)),
        };
        let _ = writeln!(input, "{one}");
    }
    line(&["bundle", "unix:sw", "-"], input)
}

fn dump_flows(g: &mut Gen) -> Line {
    let command = g.of(&["dump-flows", "dump-flows", "dump-aggregate"]);
    let filter = spec(g, &[&SETTINGS[1..4], &SETTINGS[11..]].concat());
    line(&[command, "unix:sw", &filter], String::new())
}

// Groups and meters.

fn bucket(g: &mut Gen) -> String {
    let mut parts = Vec::new();
    for _ in 0..g.below(4) {
        let key = g.of(&[
            "weight:5",
            "weight:65535",
            "weight=1",
            "watch_port:1",
            "watch_port=p2",
            "watch_port:LOCAL",
            "watch_group:7",
            "watch_group:0xffffff00",
            "bucket_id:3",
            "bucket_id:0",
            "bucket_id:4294967040",
            "bucket_id:7",
        ]);
        parts.push(key.to_owned());
    }
    let actions =
        g.of(&["output:1", "2", "actions=3,set_field:1->reg0", "actions=", "drop", "mod_nw_tos:4,1", "group:9", ""]);
    parts.push(actions.to_owned());
    if g.once_in(8) {
        parts.rotate_left(1);
    }
    format!("bucket={}", joined(&parts))
}

fn group_text(g: &mut Gen, command: &str) -> String {
    let n = if g.once_in(10) { 8 } else { 5 };
    let id = format!("group_id={}", g.of(&["1", "5", "0", "4294967040", "0x10", "all", "any", "x"][..n]));
    let mut parts = vec![id];
    let no_buckets = command.starts_with("delete") || command.starts_with("del") || command.starts_with("remove");
    let insert = command.starts_with("insert");
    if (no_buckets || insert) && !command.starts_with("del") || g.once_in(25) {
        let id = g.of(&["first", "last", "all", "5", "4294967295", "4294967041", "x"]);
        parts.push(format!("command_bucket_id={id}"));
    }
    if !no_buckets && !insert || g.once_in(25) {
        parts.push(format!("type={}", g.of(&["all", "select", "indirect", "ff", "fast_failover", "select", "foo"])));
        if g.once_in(4) {
            parts.push("selection_method=hash".to_owned());
            if g.once_in(2) {
                parts.push("selection_method_param=77".to_owned());
            }
            let fields = [
                "fields(ip_dst,nw_proto)",
                "fields=eth_src",
                "fields(ip_dst=255.255.0.0,tcp_src)",
                "fields(in_port,metadata=0xff)",
                "fields()",
            ];
            if g.once_in(2) {
                parts.push(g.of(&fields).to_owned());
            }
        } else if g.once_in(8) {
            parts.push("selection_method=dp_hash".to_owned());
        }
    }
    if !no_buckets || g.once_in(25) {
        for _ in 0..g.of(&[0, 1, 1, 2, 3]) {
            parts.push(bucket(g));
        }
    }
    joined(&parts)
}

fn group(g: &mut Gen) -> Line {
    let command = g.of(&[
        "add-group",
        "mod-group",
        "del-groups",
        "insert-buckets",
        "remove-buckets",
        "add-group",
        "insert-buckets",
    ]);
    let text = group_text(g, command);
    let options = g.of(&[&[][..], &[], &["--may-create"], &["--bundle"]]);
    line(&[options, &[command, "unix:sw", &text]].concat(), String::new())
}

fn group_file(g: &mut Gen) -> Line {
    let command = g.of(&["add-groups", "mod-group", "del-groups", "insert-buckets", "remove-buckets"]);
    let mut input = String::new();
    for _ in 0..=g.below(3) {
        let of = if g.once_in(3) {
            g.of(&["add", "modify", "add_or_mod", "delete", "insert_bucket", "remove_bucket"])
        } else {
            ""
        };
        let text = group_text(g, if of.is_empty() { command } else { of });
        let _ = writeln!(input, "{of} {text}");
    }
    let options = g.of(&[&[][..], &["--bundle"]]);
    line(&[options, &[command, "unix:sw", "-"]].concat(), input)
}

fn groups(g: &mut Gen) -> Line {
    let command = g.of(&["dump-groups", "dump-group-stats", "dump-group-features", "del-groups", "dump-group-stats"]);
    let id = g.of(&["1", "all", "any", "group_id=5", "0x7", "x", "4294967041", "4294967296"]);
    let one = g.once_in(2) && command != "dump-group-features";
    line(&[&[command, "unix:sw"][..], if one { std::slice::from_ref(&id) } else { &[] }].concat(), String::new())
}

fn meter(g: &mut Gen) -> Line {
    let command = g.of(&["add-meter", "mod-meter", "add-meter", "del-meter"]);
    let mut parts = vec![format!(
        "meter={}",
        g.of(&["1", "7", "0x10", "controller", "slowpath", "all", "0", "4294901760", "4294901761"])
    )];
    if command != "del-meter" || g.once_in(10) {
        parts.push(g.of(&["kbps", "pktps", "kbps", "pktps", "", "kbps,pktps"]).to_owned());
        let burst = g.once_in(2);
        if burst {
            parts.push("burst".to_owned());
        }
        if g.once_in(2) {
            parts.push("stats".to_owned());
        }
        let mut bands = Vec::new();
        for _ in 0..g.of(&[0, 1, 1, 1, 2, 3]) {
            let n = if g.once_in(12) { 4 } else { 3 };
            let mut band = format!("type={},rate={}", g.of(&["drop", "dscp_remark", "drop", "foo"][..n]), g.u32());
            if burst && g.once_in(2) || g.once_in(20) {
                let _ = write!(band, ",burst_size={}", g.u32());
            }
            if band.contains("dscp") && !g.once_in(8) || g.once_in(20) {
                let _ = write!(band, ",prec_level={}", g.u8());
            }
            bands.push(band);
        }
        parts.push(format!("{}={}", g.of(&["bands", "band"]), bands.join(g.of(&[",", " "]))));
    }
    line(&[command, "unix:sw", &joined(&parts)], String::new())
}

fn meters(g: &mut Gen) -> Line {
    let command = g.of(&["dump-meters", "meter-stats", "dump-meter", "del-meters", "meter-features"]);
    let id = g.of(&["meter=1", "meter=all", "meter=controller", "meter=0x20", "meter=0", "1", "meter=5,kbps"]);
    let one = g.once_in(2) && command != "meter-features";
    line(&[&[command, "unix:sw"][..], if one { std::slice::from_ref(&id) } else { &[] }].concat(), String::new())
}

// The rest.

const PORTS: &[&str] =
    &["1", "p2", "LOCAL", "any", "ALL", "\"a port\"", "65280", "0xffffff00", "none", "7", "NORMAL", "nobody"];

fn statistics(g: &mut Gen) -> Line {
    let command = g.of(&[
        "queue-stats",
        "queue-stats",
        "queue-get-config",
        "dump-ports",
        "dump-ports-desc",
        "dump-desc",
        "dump-tables",
        "dump-table-features",
        "dump-table-desc",
        "dump-ipfix-bridge",
        "dump-ipfix-flow",
        "show",
        "get-frags",
        "probe",
        "dump-tlv-map",
    ]);
    let mut args = vec![command, "unix:sw"];
    if matches!(command, "queue-stats" | "queue-get-config" | "dump-ports" | "dump-ports-desc") && g.once_in(2) {
        args.push(g.of(PORTS));
        if command.starts_with("queue") && g.once_in(2) {
            args.push(g.of(&["1", "all", "ALL", "4294967295", "0x7", "x"]));
        }
    }
    line(&args, String::new())
}

fn change(g: &mut Gen) -> Line {
    let mut args = vec!["", "unix:sw"];
    match g.below(3) {
        0 => {
            args[0] = "mod-port";
            args.push(g.of(&["1", "p2", "LOCAL", "3", "p1", "9", "nobody"]));
            args.push(g.of(&[
                "up",
                "down",
                "no-flood",
                "flood",
                "no-receive",
                "receive",
                "no-stp",
                "stp",
                "no-receive-stp",
                "receive-stp",
                "no-forward",
                "forward",
                "no-packet-in",
                "packet-in",
                "sideways",
                "DOWN",
            ]));
        }
        1 => {
            args[0] = "mod-table";
            args.push(g.of(&["0", "5", "254", "all", "ALL", "255", "256", "x"]));
            args.push(g.of(&[
                "drop",
                "controller",
                "continue",
                "evict",
                "noevict",
                "vacancy:20,80",
                "vacancy:80,20",
                "novacancy",
                "vacancy:5",
                "name:x",
                "name:",
                "vacancy:20,200",
                "foo",
                "vacancy:0,100",
            ]));
        }
        _ => {
            args[0] = "set-frags";
            args.push(g.of(&["normal", "drop", "reassemble", "nx-match", "foo", "Normal"]));
        }
    }
    line(&args, String::new())
}

fn packet_out(g: &mut Gen) -> Line {
    const PACKET: &str = "00112233445566778899aabb08004500001c000040004011f96c0a0000010a000002003500350008";
    let n = if g.once_in(5) { 6 } else { 2 };
    let packet = g.of(&[PACKET, PACKET, "0011", "00:11 22", "zz", "001"][..n]);
    let actions = g.of(ACTIONS);
    let port = g.of(&["1", "p1", "LOCAL", "controller", "none", "any", "IN_PORT", "0", "nobody"]);
    if g.once_in(3) {
        let more = if g.once_in(2) { &[PACKET][..] } else { &[] };
        return line(&[&["packet-out", "unix:sw", port, actions, packet], more].concat(), String::new());
    }
    let metadata =
        g.of(&["", "", "", "metadata=5", "reg1=7", "tun_id=3,tun_src=1.2.3.4", "packet_type=(1,0x800)", "nw_proto=6"]);
    let text = joined(&[
        format!("in_port={port}"),
        metadata.to_owned(),
        format!("packet={packet}"),
        format!("actions={actions}"),
    ]);
    line(&["packet-out", "unix:sw", &text], String::new())
}

fn tlv(g: &mut Gen) -> Line {
    let one = |g: &mut Gen| {
        let part = |g: &mut Gen, key: &str, list: &[&str]| format!("{key}={}", g.of(list));
        let parts = [
            part(g, "class", &["0xffff", "0", "0x10000", "7"]),
            part(g, "type", &["0", "0x7f", "255", "256"]),
            part(g, "len", &["4", "124", "0", "128", "5"]),
        ];
        format!(
            "{{{}}}->{}",
            parts.join(","),
            g.of(&["tun_metadata0", "tun_metadata63", "tun_metadata64", "reg0", "tun_metadata5"])
        )
    };
    let command = g.of(&["add-tlv-map", "add-tlv-map", "del-tlv-map"]);
    if command == "del-tlv-map" && g.once_in(3) {
        return line(&[command, "unix:sw"], String::new());
    }
    let text = (0..=g.below(2)).map(|_| one(g)).collect::<Vec<_>>().join(",");
    line(&[command, "unix:sw", &text], String::new())
}

fn ct_flush(g: &mut Gen) -> Line {
    if g.once_in(3) {
        let zone = g.of(&["0", "5", "65535", "65536", "x"]);
        return line(&["ct-flush-zone", "unix:sw", zone], String::new());
    }
    let tuple = |g: &mut Gen| {
        g.of(&[
            "ct_nw_src=10.0.0.1,ct_nw_proto=6",
            "ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_tp_src=1,ct_tp_dst=2,ct_nw_proto=17",
            "ct_ipv6_src=fe80::1,ct_nw_proto=6,ct_tp_dst=80",
            "ct_nw_proto=1,icmp_type=8,icmp_code=0,icmp_id=5",
            "ct_nw_src=10.0.0.1,ct_ipv6_dst=fe80::1",
            "ct_tp_src=5",
            "",
            "foo=1",
        ])
    };
    let mut args = vec!["ct-flush", "unix:sw"];
    if g.once_in(2) {
        args.push(g.of(&["zone=5", "zone=0", "zone=65536", "zone=x"]));
    }
    for _ in 0..g.below(3) {
        args.push(tuple(g));
    }
    line(&args, String::new())
}
