//! Compares the output of show commands with Open vSwitch's ovs-vswitchd: both run the same bridges with dummy ports
//! and execute the same commands.
//!
//! Needs Open vSwitch's programs in `$FLOWSTONE_PEERS/bin` and its schema in `$FLOWSTONE_PEERS/usr/share/openvswitch`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Two bridges connected by patch ports.
const SETUP: &str = "-- add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure other_config:hwaddr=02:00:00:00:00:aa \
    -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
    -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2 \
    -- add-port br0 p3 tag=10 -- set interface p3 type=dummy ofport_request=3 \
    -- add-port br0 pt0 -- set interface pt0 type=patch options:peer=pt1 ofport_request=4 \
    -- add-br br1 -- set bridge br1 datapath_type=dummy other_config:hwaddr=02:00:00:00:00:bb \
    -- add-port br1 pt1 -- set interface pt1 type=patch options:peer=pt0 ofport_request=1 \
    -- add-port br1 q1 -- set interface q1 type=dummy ofport_request=2";

const FLOWS: &[&str] = &[
    "priority=10,in_port=2,actions=output:1",
    // A table miss across a patch port shows the internal rules of Open vSwitch.
    "priority=1,in_port=4,actions=output:3",
    "tcp,in_port=1,tp_dst=1,actions=output:2,output:3",
    "tcp,in_port=1,tp_dst=2,actions=push_vlan:0x8100,set_field:4101->vlan_vid,output:2",
    "tcp,in_port=1,tp_dst=3,actions=resubmit(,5),output:2",
    "tcp,in_port=1,tp_dst=4,actions=goto_table:6",
    "tcp,in_port=1,tp_dst=5,actions=NORMAL",
    "tcp,in_port=1,tp_dst=6,actions=output:4",
    "tcp,in_port=1,tp_dst=7,actions=write_actions(output:2),goto_table:6",
    "tcp,in_port=1,tp_dst=8,actions=clone(set_field:1.2.3.4->ip_dst,output:2),output:3",
    "tcp,in_port=1,tp_dst=9,actions=controller",
    "tcp,in_port=1,tp_dst=10,actions=drop",
    "tcp,in_port=1,tp_dst=11,actions=mod_dl_src:02:00:00:00:00:99,dec_ttl,mod_nw_tos:32,output:2",
    "tcp,in_port=1,tp_dst=12,actions=load:7->NXM_NX_REG0[],move:NXM_NX_REG0[]->NXM_NX_REG1[],output:NXM_NX_REG1[]",
    "tcp,in_port=1,tp_dst=13,actions=in_port",
    "tcp,in_port=1,tp_dst=14,actions=output:1",
    "tcp,in_port=1,tp_dst=15,actions=FLOOD",
    "tcp,in_port=1,tp_dst=16,actions=set_field:0x1234->metadata,goto_table:7",
    "in_port=1,dl_vlan=7,actions=pop_vlan,output:2",
    "in_port=1,arp,actions=mod_vlan_vid:9,output:2,strip_vlan,output:3",
    "in_port=1,ipv6,actions=resubmit(4,5)",
    "in_port=1,udp,actions=LOCAL",
    "table=5,priority=1,actions=output:3",
    "table=5,priority=2,in_port=4,actions=output:1",
    "table=6,actions=output:3",
    "table=7,metadata=0x1234,actions=write_metadata:0x55,goto_table:8",
    "table=8,metadata=0x55,actions=output:2",
];

const TRACES: &[&str] = &[
    "br0 in_port=2",
    "br0 in_port=1,tcp,tp_dst=1",
    "br0 in_port=1,tcp,tp_dst=2",
    "br0 in_port=1,tcp,tp_dst=3",
    "br0 in_port=1,tcp,tp_dst=4",
    "br0 in_port=1,tcp,tp_dst=5,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02",
    "br0 in_port=1,tcp,tp_dst=6,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02",
    "br0 in_port=1,tcp,tp_dst=7",
    "br0 in_port=1,tcp,tp_dst=8",
    "br0 in_port=1,tcp,tp_dst=10",
    "br0 in_port=1,tcp,tp_dst=11,nw_ttl=64",
    "br0 in_port=1,tcp,tp_dst=11,nw_ttl=1",
    "br0 in_port=1,tcp,tp_dst=12",
    "br0 in_port=1,tcp,tp_dst=13",
    "br0 in_port=1,tcp,tp_dst=14",
    "br0 in_port=1,tcp,tp_dst=15",
    "br0 in_port=1,tcp,tp_dst=16",
    "br0 in_port=1,dl_vlan=7,dl_type=0x1234",
    "br0 in_port=1,arp,arp_op=1",
    "br0 in_port=1,ipv6",
    "br0 in_port=1,udp",
    "br0 in_port=3",
    "br0 in_port=77",
    "br1 in_port=q1,dl_dst=02:00:00:00:00:77,dl_src=02:00:00:00:00:78",
    "br0 in_port=1 020000000002020000000001123400000000",
    "br0",
    "nobr in_port=1",
    "br0 bogus=1",
    "br0 in_port=1 zz",
    "br0 in_port=1 00",
    "dd in_port(1)",
    "ovs-dummy in_port(p2)",
    "in_port(p2),eth()",
    "in_port(999)",
    "in_port(1",
    "a b c d",
    "--bad br0 in_port=1",
];

const SHOWS: &[&str] = &[
    "ofproto/list",
    "dpif/show",
    "dpif/dump-dps",
    "dpctl/dump-dps",
    "dpctl/show",
    "fdb/show br1",
    "fdb/show br1 br0",
    "fdb/show",
    "fdb/show nobr",
    "fdb/show br1 nobr",
    "fdb/add br1 q1 7 00:00:00:00:00:02",
    "fdb/add br1 br1 0 00:00:00:00:00:01",
    "fdb/add br1 q1 7 00:00:00:00:00:02",
    "fdb/show br1",
    "fdb/add br1 br1 7 00:00:00:00:00:02",
    "fdb/show br1",
    "fdb/show",
    "--format json fdb/show br1 br0",
    "fdb/stats-show br1",
    "fdb/flush br1",
    "fdb/show br1",
    "fdb/add br1 nosuch 7 00:00:00:00:00:02",
    "fdb/add nobr q1 7 00:00:00:00:00:02",
    "fdb/add br1 q1 7 nomac",
    "fdb/add br1 q1 7",
    "fdb/del br1 7 nomac",
    "fdb/del nobr 7 00:00:00:00:00:02",
    "fdb/del br1 7 00:00:00:00:00:02",
    "fdb/del br1 7 00:00:00:00:00:02",
    "fdb/del br1 0 00:00:00:00:00:01",
    "fdb/show br1",
    "fdb/stats-show br1",
    "fdb/stats-show nobr",
    "fdb/flush nobr",
    "fdb/flush br1",
    "fdb/stats-clear",
    "dpctl/dump-flows",
    "dpctl/dump-flows filter=bogus",
    "dpctl/dump-flows type=x",
    "dpctl/dump-flows --xx",
    "dpif/dump-flows nobr",
    "bridge/dump-flows nobr",
    "coverage/read-counter nothing",
    "netdev-dummy/receive nobody in_port(1)",
    "netdev-dummy/receive p1 in_port(1),bogus(1)",
];

/// A database server and a switch in a temporary directory.
struct Switch {
    dir: tempfile::TempDir,
    peers: PathBuf,
    pids: Vec<String>,
}

impl Switch {
    fn start(peers: &Path, vswitchd: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut switch = Self { dir, peers: peers.to_owned(), pids: Vec::new() };
        let at = |name: &str| switch.dir.path().join(name).display().to_string();
        let (db, socket) = (at("conf.db"), at("db.sock"));
        let schema = peers.join("usr/share/openvswitch/vswitch.ovsschema").display().to_string();
        let detached = |name: &str| {
            let pid = format!("--pidfile={}", at(&format!("{name}.pid")));
            let control = format!("--unixctl={}", at(&format!("{name}.ctl")));
            ["--detach".to_owned(), "--no-chdir".to_owned(), "-vconsole:off".to_owned(), pid, control]
        };
        switch.run("ovsdb-tool", &["create", &db, &schema]);
        let mut server = detached("db").to_vec();
        server.extend([format!("--remote=punix:{socket}"), db]);
        let mut daemon = detached("switch").to_vec();
        daemon.extend(["--enable-dummy", "--disable-system"].map(str::to_owned));
        daemon.push(format!("unix:{socket}"));
        for (program, args, name) in
            [(peers.join("bin/ovsdb-server"), server, "db.pid"), (vswitchd.to_owned(), daemon, "switch.pid")]
        {
            let started = switch.command(&program).args(args).stdin(Stdio::null()).status().unwrap();
            assert!(started.success(), "{} did not start", program.display());
            let pid = std::fs::read_to_string(switch.dir.path().join(name)).unwrap();
            switch.pids.push(pid.trim().to_owned());
        }
        let database = format!("--db=unix:{socket}");
        let mut setup = vec![database.as_str()];
        setup.extend(SETUP.split_whitespace());
        switch.run("ovs-vsctl", &setup);
        let flows = switch.dir.path().join("flows");
        std::fs::write(&flows, FLOWS.join("\n")).unwrap();
        switch.run("ovs-ofctl", &["-O", "OpenFlow13", "add-flows", "br0", &flows.display().to_string()]);
        switch
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, self.dir.path());
        }
        command.env("OVS_SYSLOG_METHOD", "null");
        command
    }

    fn run(&self, program: &str, args: &[&str]) {
        let output = self.command(&self.peers.join("bin").join(program)).args(args).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The reply or error of a control command.
    fn ask(&self, words: &[&str]) -> String {
        let control = self.dir.path().join("switch.ctl");
        let mut command = self.command(&self.peers.join("bin/ovs-appctl"));
        let output = command.arg("-t").arg(&control).args(words).output().unwrap();
        let both = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&both).replace(&control.display().to_string(), "SOCKET")
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        for pid in &self.pids {
            let _ = Command::new("kill").arg(pid).status();
        }
    }
}

/// A trace without parts that may differ: megaflows may be wider, and datapath actions may be written differently.
fn comparable(trace: &str) -> String {
    // With an action set that outputs, Open vSwitch considers the key changed although nothing of it shows.
    let flow = trace.lines().find_map(|l| l.strip_prefix("Flow: ")).unwrap_or_default();
    trace
        .replace(&format!("\nFinal flow: {flow}\n"), "\nFinal flow: unchanged\n")
        .lines()
        .filter(|l| !l.starts_with("Megaflow: ") && !l.starts_with("Datapath actions: "))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The lines without datapath port numbers and lookup counts, sorted, as each datapath assigns its own port numbers.
fn without_numbers(text: &str) -> String {
    let line = |line: &str| {
        let line = match line.trim_start().split_once(": ") {
            Some((port, rest)) if port.starts_with("port ") => format!("  port N: {rest}"),
            _ => line.to_owned(),
        };
        match line.split_once('/').and_then(|(port, rest)| Some((port, rest.split_once(": (")?))) {
            Some((port, ("none", kind))) => format!("{port}/none: ({kind}"),
            Some((port, (_, kind))) => format!("{port}/N: ({kind}"),
            None => line,
        }
    };
    let mut lines: Vec<String> = text.lines().filter(|l| !l.contains("ovs-dummy (dummy-internal)")).map(line).collect();
    lines.sort();
    lines.join("\n")
}

#[test]
fn show_commands_equal_open_vswitchs() {
    let Some(peers) = oracle::folder() else { return };
    let links = tempfile::tempdir().unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_flowstone")).arg("links").arg(links.path()).status().unwrap();
    assert!(made.success());
    let theirs = Switch::start(&peers, &peers.join("bin/ovs-vswitchd"));
    let ours = Switch::start(&peers, &links.path().join("ovs-vswitchd"));
    let mut different = Vec::new();
    let mut compare = |words: &[&str], plain: &dyn Fn(&str) -> String| {
        let (theirs, ours) = (theirs.ask(words), ours.ask(words));
        if plain(&theirs) != plain(&ours) {
            different.push(format!("=== {}\n--- Open vSwitch\n{theirs}\n--- Flowstone\n{ours}", words.join(" ")));
        }
    };
    for line in SHOWS {
        compare(&line.split(' ').collect::<Vec<_>>(), &without_numbers);
    }
    for line in TRACES {
        let words: Vec<&str> = ["ofproto/trace"].into_iter().chain(line.split(' ')).collect();
        compare(&words, &comparable);
    }
    tally::report!("{} answers", SHOWS.len() + TRACES.len());
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n"));
}
