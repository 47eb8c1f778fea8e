//! Runs each program with a standard output that has no reader: none panics, and each ends as Open vSwitch's does, by
//! SIGPIPE or with the exit status of its command.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The number of SIGPIPE.
const SIGPIPE: i32 = 13;

/// A command line; the signal that ends it, or 0 if it succeeds.
const CASES: &[(&str, &[&str], i32)] = &[
    ("ovs-vswitchd", &["--help"], SIGPIPE),
    ("ovs-vswitchd", &["--version"], SIGPIPE),
    ("ovsdb-server", &["--help"], 0),
    ("ovsdb-server", &["--version"], 0),
    ("ovs-vsctl", &["--help"], 0),
    ("ovs-vsctl", &["--version"], 0),
    ("ovs-vsctl", &["--commands"], 0),
    ("vtep-ctl", &["--help"], 0),
    ("vtep-ctl", &["--version"], 0),
    ("ovs-ofctl", &["--help"], SIGPIPE),
    ("ovs-ofctl", &["--version"], SIGPIPE),
    ("ovs-ofctl", &["--option"], SIGPIPE),
    ("ovs-ofctl", &["help"], 0),
    ("ovs-ofctl", &["list-commands"], 0),
    ("ovs-ofctl", &["parse-flow", "actions=drop"], 0),
    ("ovs-appctl", &["--help"], SIGPIPE),
    ("ovs-appctl", &["--version"], SIGPIPE),
    ("ovsdb-client", &["--help"], SIGPIPE),
    ("ovsdb-client", &["--version"], SIGPIPE),
    ("ovsdb-client", &["help"], 0),
    ("ovsdb-tool", &["--help"], SIGPIPE),
    ("ovsdb-tool", &["--version"], SIGPIPE),
    ("ovsdb-tool", &["help"], 0),
    ("ovsdb-tool", &["list-commands"], 0),
    ("ovs-testcontroller", &["--help"], SIGPIPE),
    ("ovs-testcontroller", &["--version"], SIGPIPE),
    ("ovs-vtep", &["--help"], SIGPIPE),
    ("ovs-vtep", &["--version"], SIGPIPE),
    ("ovs-dpctl", &["--help"], SIGPIPE),
    ("ovs-dpctl", &["--version"], SIGPIPE),
    ("ovs-dpctl", &["help"], 0),
    ("ovs-dpctl", &["list-commands"], 0),
];

/// Checks how a command line ends without a reader, and that it prints no error.
fn check(command: &mut Command, signal: i32, what: &str) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).stdin(Stdio::null()).output().unwrap();
    let ended = output.status.signal().unwrap_or_default();
    assert_eq!((ended, output.status.code()), (signal, (signal == 0).then_some(0)), "{what}: {:?}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{what}");
}

#[test]
fn each_program_ends_without_a_panic_when_its_output_has_no_reader() {
    let peers = std::env::var("FLOWSTONE_PEERS").ok();
    for (program, args, signal) in CASES {
        let what = format!("{program} {}", args.join(" "));
        check(Command::new(env!("CARGO_BIN_EXE_flowstone")).arg(program).args(*args), *signal, &what);
        // Open vSwitch's ovs-vtep is a script in Python.
        let peers = peers.as_ref().filter(|_| *program != "ovs-vtep");
        let Some(peer) = peers.map(|peers| Path::new(peers).join("bin").join(program)) else { continue };
        check(Command::new(peer).args(*args), *signal, &format!("{what} of Open vSwitch"));
    }
}
