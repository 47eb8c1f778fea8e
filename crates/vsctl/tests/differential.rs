//! Runs the command lines of `corpus/*.txt` with this program and with Open vSwitch's own ovs-vsctl, each against an
//! ovsdb-server of Open vSwitch, and compares what they print and how they exit.
//!
//! Needs Open vSwitch's programs in `$FLOWSTONE_PEERS/bin` and its schema in `$FLOWSTONE_PEERS/usr/share/openvswitch`.
//! The test binary is its own program under test: it runs itself with `FLOWSTONE_RUN_AS` set.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

/// Set in the environment of the copies of this binary that are the program under test.
const RUN_AS: &str = "FLOWSTONE_RUN_AS";

fn main() -> ExitCode {
    if std::env::var_os(RUN_AS).is_some() {
        return vsctl::main(std::env::args_os().collect());
    }
    let Some(peers) = oracle::folder() else { return ExitCode::SUCCESS };
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let (mut lines, mut different) = (0, 0);
    for file in files {
        if filter.as_ref().is_some_and(|filter| !file.to_string_lossy().contains(filter.as_str())) {
            continue;
        }
        let (run, wrong) = compare(&peers, &file);
        println!("{}: {run} command lines, {wrong} different", file.display());
        lines += run;
        different += wrong;
    }
    tally::report!("{lines} command lines, {different} different");
    if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A database server of Open vSwitch in a folder of its own.
struct Server {
    dir: tempfile::TempDir,
    process: Child,
}

impl Server {
    fn start(peers: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("conf.db");
        let schema = peers.join("usr/share/openvswitch/vswitch.ovsschema");
        let made = Command::new(peers.join("bin/ovsdb-tool")).arg("create").args([&db, &schema]).status().unwrap();
        assert!(made.success());
        let mut command = Command::new(peers.join("bin/ovsdb-server"));
        command.arg(format!("--remote=punix:{}", dir.path().join("db.sock").display())).arg(db);
        command.arg("-vconsole:off").stdin(Stdio::null());
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, dir.path());
        }
        let process = command.spawn().unwrap();
        let server = Self { dir, process };
        // The socket appears when the server is ready.
        for _ in 0..1000 {
            if server.dir.path().join("db.sock").exists() {
                return server;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("ovsdb-server did not start");
    }

    fn run(&self, mut command: Command, words: &[String]) -> Outcome {
        command.args(["--no-wait", "--no-syslog"]).args(words).stdin(Stdio::null());
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, self.dir.path());
        }
        let output = command.output().unwrap();
        Outcome {
            status: output.status.to_string(),
            out: normal(&String::from_utf8_lossy(&output.stdout), self.dir.path()),
            err: normal(&String::from_utf8_lossy(&output.stderr), self.dir.path()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    status: String,
    out: String,
    err: String,
}

/// The text without what differs from run to run: UUIDs, folders, times, and the order of records, which is random.
fn normal(text: &str, dir: &Path) -> String {
    let text = text.replace(&dir.display().to_string(), "DIR");
    let mut made = String::new();
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        if rest.get(..36).and_then(ovsdb::Uuid::parse).is_some() {
            made.push_str("UUID");
            rest = &rest[36..];
        } else {
            made.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    let made = made.replace("\\n", "\n\\n");
    let mut lines: Vec<String> = made
        .lines()
        .map(|line| match line.splitn(3, '|').collect::<Vec<_>>().as_slice() {
            [time, _, message] if time.len() == 20 && time.ends_with('Z') => format!("LOG|{message}"),
            _ => line.to_owned(),
        })
        // Which of two rows is the first one is random, too.
        .map(|line| match line.split_once("First row, with UUID") {
            Some((start, _)) => format!("{start}..."),
            None => line,
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

/// Splits a line into words; single quotes keep what is between them.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn compare(peers: &Path, file: &Path) -> (usize, usize) {
    let (ours, theirs) = (Server::start(peers), Server::start(peers));
    let (mut count, mut different) = (0, 0);
    for line in std::fs::read_to_string(file).unwrap().lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words = split(line);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg0("ovs-vsctl").env(RUN_AS, OsString::from("ovs-vsctl"));
        let got = ours.run(command, &words);
        let mut command = Command::new(peers.join("bin/ovs-vsctl"));
        command.arg0("ovs-vsctl");
        let want = theirs.run(command, &words);
        count += 1;
        if got != want {
            different += 1;
            println!("{line}");
            for (what, got, want) in
                [("status", &got.status, &want.status), ("out", &got.out, &want.out), ("err", &got.err, &want.err)]
            {
                if got != want {
                    println!("  {what}, ours:\n{got}\n  {what}, theirs:\n{want}");
                }
            }
        }
    }
    (count, different)
}
