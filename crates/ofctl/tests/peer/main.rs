//! Compares output, errors and exit codes of this ovs-ofctl with Open vSwitch's for the same command lines, against
//! Open vSwitch's switch with dummy ports and against a fake switch that records its input. Runs if `FLOWSTONE_PEERS`
//! names a directory with Open vSwitch's programs in `bin/`.

mod answers;
mod fake;
mod lines;
mod sent;

// Generates the messages for the comparisons of the codec.
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../openflow/tests/corpus/bodies.rs"]
mod bodies;
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../openflow/tests/corpus/exceptions.rs"]
mod exceptions;
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../openflow/tests/corpus/groups.rs"]
mod groups;
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../openflow/tests/corpus/make.rs"]
mod make;
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../openflow/tests/corpus/messages.rs"]
mod messages;
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../../openflow/tests/corpus/texts.rs"]
mod texts;

use oracle::Switch;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Runs a program; the text after the word `<` is its input, with `\\n` for line ends.
fn ofctl(switch: &Switch, program: &Path, args: &[String]) -> Output {
    let at = args.iter().position(|word| word == "<").unwrap_or(args.len());
    let input = args.get(at + 1).map(|text| text.replace("\\n", "\n")).unwrap_or_default();
    let path = switch.path("input");
    fs::write(&path, input).expect("a file");
    let stdin = fs::File::open(path).expect("a file");
    switch.client(program).args(&args[..at]).stdin(stdin).output().expect("ovs-ofctl runs")
}

const SETUP: &str = "set bridge br0 protocols=OpenFlow10,OpenFlow13 other_config:datapath-id=0000aabbccddeeff \
    -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
    -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2";

/// Replaces times, rates and the program's path, which differ between runs.
fn normalized(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut out = String::new();
    for line in text.lines() {
        // Times may be coloured.
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

/// A program's output and exit status.
fn text(output: &Output) -> String {
    let (stdout, stderr) = (normalized(&output.stdout), normalized(&output.stderr));
    format!("{stdout}{stderr}exit {:?}", output.status.code())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

fn our_program() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let debug = test.parent().and_then(Path::parent).expect("tests are in target/PROFILE/deps");
    debug.join("examples/ovs-ofctl")
}

/// Splits words at blanks; quotes keep blanks.
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

/// A capture file of a TCP connection with a HELLO, and a features request in two segments.
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
fn output_equals_open_vswitchs() {
    let Some(peers) = oracle::folder() else { return };
    let theirs = peers.join("bin/ovs-ofctl");
    let switch = Switch::start(&peers, SETUP);
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
        ("f7", "tun_metadata1=0xee/0xff,actions=1\n"),
        ("f8", "# none\n"),
        ("b1", "group delete\n"),
        ("f5", "add table=1,ip,actions=1\ntable=1,arp,actions=2\nmodify table=1,ip,actions=3\ndelete table=4\n"),
    ] {
        fs::write(switch.path(name), text).expect("a file of flows");
    }
    fs::write(switch.path("of.pcap"), capture()).expect("a capture file");
    fs::write(switch.path("s.bin"), b"\x01\x05\x00\x08\x00\x00\x00\x01\x01\x02\x00\x0c\x00\x00\x00\x02abcd")
        .expect("a file of messages");
    let lines = concat!(
        include_str!("lines"),
        include_str!("messages"),
        include_str!("actions"),
        include_str!("groups"),
        include_str!("codec"),
        include_str!("newer")
    );
    let (mut differing, mut compared) = (Vec::new(), 0);
    for line in lines.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        compared += 1;
        let args = words(line);
        let (a, b) = (ofctl(&switch, &theirs, &args), ofctl(&switch, &our_program(), &args));
        if text(&a) != text(&b) {
            differing.push(format!("ovs-ofctl {line}\n--- theirs\n{}\n--- ours\n{}\n", text(&a), text(&b)));
        }
    }
    tally::report!("{compared} command lines");
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
}
