//! Our ovs-ofctl beside Debian's: the same command lines against the same switch (Debian's, with dummy ports), and the
//! same output, errors and exit codes. Runs if `FLOWSTONE_PEERS` names a folder with `bin/` of Open vSwitch's programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Debian's switch and database, ended when dropped.
struct Switch {
    peers: PathBuf,
    dir: tempfile::TempDir,
}

impl Switch {
    fn start(peers: PathBuf) -> Self {
        let switch = Self { peers, dir: tempfile::tempdir().expect("a folder for sockets") };
        let dir = switch.dir.path().display().to_string();
        let schema = switch.peers.join("usr/share/openvswitch/vswitch.ovsschema").display().to_string();
        let db = format!("unix:{dir}/db.sock");
        switch.run("ovsdb-tool", &["create", &format!("{dir}/conf.db"), &schema]);
        let daemon = ["--detach", "--no-chdir", "--pidfile", "--log-file"];
        let remote = format!("--remote=punix:{dir}/db.sock");
        switch.run("ovsdb-server", &[&[format!("{dir}/conf.db").as_str(), &remote], &daemon[..]].concat());
        switch.run("ovs-vsctl", &["--db", &db, "--no-wait", "init"]);
        switch.run("ovs-vswitchd", &[&[db.as_str(), "--enable-dummy", "--disable-system"], &daemon[..]].concat());
        switch.run("ovs-vsctl", &[&["--db", &db][..], &SETUP.split_whitespace().collect::<Vec<_>>()].concat());
        switch
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(name, self.dir.path());
        }
        command.current_dir(self.dir.path());
        command
    }

    fn run(&self, program: &str, args: &[&str]) {
        let program = self.peers.join("bin").join(program);
        let status = self.command(&program).args(args).output().expect("the peers' programs run");
        assert!(status.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&status.stderr));
    }

    /// Runs a program; what follows the word `<` is its input, with `\\n` for line ends.
    fn ofctl(&self, program: &Path, args: &[String]) -> Output {
        let at = args.iter().position(|word| word == "<").unwrap_or(args.len());
        let input = args.get(at + 1).map(|text| text.replace("\\n", "\n")).unwrap_or_default();
        let path = self.dir.path().join("input");
        fs::write(&path, input).expect("a file");
        let stdin = fs::File::open(path).expect("a file");
        self.command(program).args(&args[..at]).stdin(stdin).output().expect("ovs-ofctl runs")
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        for name in ["ovs-vswitchd", "ovsdb-server"] {
            let pid = fs::read_to_string(self.dir.path().join(format!("{name}.pid"))).unwrap_or_default();
            if !pid.trim().is_empty() {
                let _ = Command::new("kill").arg(pid.trim()).status();
            }
        }
    }
}

const SETUP: &str = "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
    protocols=OpenFlow10,OpenFlow13 other_config:datapath-id=0000aabbccddeeff \
    -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
    -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2";

/// Times, rates and the program's path differ from run to run.
fn normalized(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut out = String::new();
    for line in text.lines() {
        // Times may be in colour.
        let mut line = line.replace("duration=\x1b[m\x1b[K", "duration=");
        for (key, end) in [("duration=", "s"), ("duration", "s"), ("idle_age=", ","), ("time=", " ")] {
            if let Some(at) = line.find(key) {
                let start = at + key.len();
                let digits =
                    line[start..].find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(line.len() - start);
                if digits > 0 && line[start + digits..].starts_with(end) {
                    line.replace_range(start..start + digits, "X");
                }
            }
        }
        if let Some(at) = line.find("hard_age=") {
            let end = line[at..].find(", ").map_or(line.len(), |e| at + e + 2);
            line.replace_range(at..end, "");
        }
        // Log lines begin with a time and a number.
        if line.matches('|').count() >= 4 && line.starts_with(|c: char| c.is_ascii_digit()) {
            line = line.splitn(3, '|').nth(2).unwrap_or_default().to_owned();
        }
        if let Some(at) = line.find("ovs-ofctl: ") {
            line.replace_range(..at, "");
        }
        if line.starts_with("Finished in ") {
            "Finished".clone_into(&mut line);
        }
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn our_program() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let debug = test.parent().and_then(Path::parent).expect("tests are in target/PROFILE/deps");
    debug.join("examples/ovs-ofctl")
}

/// Words with blanks between; quotes keep blanks together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("never empty").push(c),
        }
    }
    words.retain(|w| !w.is_empty());
    words
}

/// A capture file of a TCP connection with HELLO, and a request for features in two pieces.
fn capture() -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 0xffff, 1] {
        file.extend(word.to_le_bytes());
    }
    let hello = [4u8, 0, 0, 8, 0, 0, 0, 1, 4, 5, 0, 8, 0];
    for (number, flags, payload) in [(0u32, 2u8, &[][..]), (1, 16, &hello), (14, 16, &[0, 0, 2])] {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 40 + payload.len() as u8, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x9c, 0x40, 0x19, 0xfd]);
        frame.extend(number.to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, flags, 3, 0xe8, 0, 0, 0, 0]);
        frame.extend(payload);
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

#[test]
fn same_as_debians() {
    let Some(peers) = oracle::folder() else { return };
    let theirs = peers.join("bin/ovs-ofctl");
    let switch = Switch::start(peers);
    for (name, text) in [
        ("f1", "ip,actions=1\n# c\n\nbogus=1,actions=1\n"),
        ("f2", "ip,actions=1\ntable=253,actions=goto_table:3\n"),
        (
            "f3",
            "table=0,priority=10,ip,nw_dst=1.2.3.4,actions=output:1\ntable=2,ip,actions=output:2\narp,actions=drop\n",
        ),
        ("f4", "table=0,priority=10,ip,nw_dst=1.2.3.4,actions=output:2\ntable=2,ip,actions=output:2\n"),
        (
            "g1",
            "add_or_mod group_id=1,type=all,bucket=1\nadd_or_mod group_id=2,type=select,bucket=2\n# c\n\n\
             modify group_id=2,type=select,bucket=1 # x\ndelete group_id=1\nadd_or_mod group_id=3,type=indirect,bucket=2\n",
        ),
        (
            "g2",
            "insert_bucket group_id=2,command_bucket_id=first,bucket=bucket_id:7,1\nremove_bucket group_id=2,command_bucket_id=7\n",
        ),
        ("g3", "group_id=1,type=all,bucket=1\n bogus\n"),
        (
            "g4",
            "add_or_mod group_id=11,type=all,bucket=1\ngroup_id=11,type=all,bucket=1\ngroup_id=12,type=all,bucket=1\n",
        ),
        ("f5", "add table=1,ip,actions=1\ntable=1,arp,actions=2\nmodify table=1,ip,actions=3\ndelete table=4\n"),
    ] {
        fs::write(switch.dir.path().join(name), text).expect("a file of flows");
    }
    fs::write(switch.dir.path().join("of.pcap"), capture()).expect("a capture file");
    fs::write(switch.dir.path().join("s.bin"), b"\x01\x05\x00\x08\x00\x00\x00\x01\x01\x02\x00\x0c\x00\x00\x00\x02abcd")
        .expect("a file of messages");
    let lines = concat!(
        include_str!("peer/lines"),
        include_str!("peer/messages"),
        include_str!("peer/actions"),
        include_str!("peer/groups"),
        include_str!("peer/codec")
    );
    let (mut differing, mut compared) = (Vec::new(), 0);
    for line in lines.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        compared += 1;
        let args = words(line);
        let (a, b) = (switch.ofctl(&theirs, &args), switch.ofctl(&our_program(), &args));
        let text = |o: &Output| format!("{}{}exit {:?}", normalized(&o.stdout), normalized(&o.stderr), o.status.code());
        if text(&a) != text(&b) {
            differing.push(format!("ovs-ofctl {line}\n--- theirs\n{}\n--- ours\n{}\n", text(&a), text(&b)));
        }
    }
    tally::report!("{compared} command lines");
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
}
