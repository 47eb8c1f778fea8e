//! Compares a program under test with Open vSwitch's program of the same name: both execute the same command lines,
//! each against its own database server. Compares output, exit codes, and finally the content of the databases.
//!
//! The test binary is the program under test: it runs itself with [`RUN_AS`] set to the program's name.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Environment variable that makes the test binary run as a program under test.
pub const RUN_AS: &str = "FLOWSTONE_RUN_AS";

/// Whose programs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    Theirs,
}

/// The program, schema and corpus of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    /// The program.
    pub program: &'a str,
    /// The schema file in Open vSwitch's distribution.
    pub schema: &'a str,
    /// The name of the database.
    pub database: &'a str,
    /// Options that precede each command line.
    pub options: &'a [&'a str],
    /// The directory of files with command lines: words separated by spaces or in single quotes. `DIR` is the server's
    /// directory.
    pub corpus: &'a Path,
}

/// Compares all files, or those whose names contain the first argument of the test binary. Returns the number of command
/// lines, and of differences.
///
/// # Panics
///
/// If a program is missing or a server does not start.
pub fn compare(comparison: &Comparison<'_>, peers: &Path) -> (usize, usize) {
    let files = std::fs::read_dir(comparison.corpus).expect("there is a corpus");
    let mut files: Vec<PathBuf> = files.map(|entry| entry.expect("it can be read").path()).collect();
    files.sort();
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let (mut lines, mut different) = (0, 0);
    for file in files {
        if filter.as_ref().is_some_and(|filter| !file.to_string_lossy().contains(filter.as_str())) {
            continue;
        }
        let (run, wrong) = compare_file(comparison, peers, &file);
        println!("{}: {run} command lines, {wrong} different", file.display());
        lines += run;
        different += wrong;
    }
    (lines, different)
}

/// A command that runs a program.
fn program(peers: &Path, name: &str, whose: Whose) -> Command {
    let mut command = match whose {
        Whose::Theirs => Command::new(peers.join("bin").join(name)),
        Whose::Ours => {
            let mut command = Command::new(std::env::current_exe().expect("the binary knows itself"));
            command.env(RUN_AS, name);
            command
        }
    };
    command.arg0(name).stdin(Stdio::null());
    command
}

/// A database server in a temporary directory.
struct Server {
    dir: tempfile::TempDir,
    process: Child,
}

impl Server {
    fn start(comparison: &Comparison<'_>, peers: &Path, whose: Whose) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let db = dir.path().join("conf.db");
        let schema = peers.join("usr/share/openvswitch").join(comparison.schema);
        let status = Command::new(peers.join("bin/ovsdb-tool")).arg("create").args([&db, &schema]).status();
        assert!(status.expect("ovsdb-tool runs").success());
        let mut command = program(peers, "ovsdb-server", whose);
        command.arg(format!("--remote=punix:{}", dir.path().join("db.sock").display())).arg(db).arg("-vconsole:off");
        crate::folders(&mut command, dir.path());
        let process = command.spawn().expect("ovsdb-server runs");
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

    fn run(&self, mut command: Command) -> Outcome {
        crate::folders(&mut command, self.dir.path());
        let output = command.output().expect("the program runs");
        Outcome {
            status: output.status.to_string(),
            out: normal(&String::from_utf8_lossy(&output.stdout), self.dir.path()),
            err: normal(&String::from_utf8_lossy(&output.stderr), self.dir.path()),
        }
    }

    /// The whole content of the database.
    fn dump(&self, comparison: &Comparison<'_>, peers: &Path) -> Outcome {
        let mut command = program(peers, "ovsdb-client", Whose::Theirs);
        let socket = format!("unix:{}", self.dir.path().join("db.sock").display());
        command.args(["dump", &socket, comparison.database, "--format=list"]);
        self.run(command)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    status: String,
    out: String,
    err: String,
}

/// Removes text that differs from run to run: UUIDs, directories, times, and the random order of records.
fn normal(text: &str, dir: &Path) -> String {
    let text = text.replace(&dir.display().to_string(), "DIR");
    let mut normalised = String::new();
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        if rest.get(..36).is_some_and(is_uuid) {
            normalised.push_str("UUID");
            rest = &rest[36..];
        } else {
            normalised.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    let normalised = normalised.replace("\\n", "\n\\n");
    let mut lines: Vec<String> = normalised
        .lines()
        .map(|line| match line.splitn(3, '|').collect::<Vec<_>>().as_slice() {
            [time, _, message] if time.len() == 20 && time.ends_with('Z') => format!("LOG|{message}"),
            _ => line.to_owned(),
        })
        // Which of two rows comes first is random, too.
        .map(|line| match line.split_once("First row, with UUID") {
            Some((start, _)) => format!("{start}..."),
            None => line,
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

/// Splits a line into words; single quotes keep text together.
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

fn is_uuid(text: &str) -> bool {
    let is_right =
        |(at, c): (usize, char)| if [8, 13, 18, 23].contains(&at) { c == '-' } else { c.is_ascii_hexdigit() };
    text.len() == 36 && text.char_indices().all(is_right)
}

/// The combinations of client and server that are compared with Open vSwitch's own.
const PAIRS: [(Whose, Whose); 3] =
    [(Whose::Ours, Whose::Theirs), (Whose::Ours, Whose::Ours), (Whose::Theirs, Whose::Ours)];

fn compare_file(comparison: &Comparison<'_>, peers: &Path, file: &Path) -> (usize, usize) {
    let servers = PAIRS.map(|(_, server)| Server::start(comparison, peers, server));
    let reference = Server::start(comparison, peers, Whose::Theirs);
    let (mut count, mut different) = (0, 0);
    let run = |server: &Server, whose: Whose, words: &[String]| {
        let mut command = program(peers, comparison.program, whose);
        let dir = server.dir.path().display().to_string();
        command.args(comparison.options).args(words.iter().map(|word| word.replace("DIR", &dir)));
        server.run(command)
    };
    let mut check = |line: &str, pair: (Whose, Whose), got: &Outcome, want: &Outcome| {
        if got == want {
            return;
        }
        different += 1;
        println!("{line} (client {:?}, server {:?})", pair.0, pair.1);
        for (what, got, want) in
            [("status", &got.status, &want.status), ("out", &got.out, &want.out), ("err", &got.err, &want.err)]
        {
            if got != want {
                println!("  {what}:\n{got}\n  {what}, theirs:\n{want}");
            }
        }
    };
    let text = std::fs::read_to_string(file).expect("it can be read");
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words = split(line);
        let want = run(&reference, Whose::Theirs, &words);
        for (server, pair) in servers.iter().zip(PAIRS) {
            check(line, pair, &run(server, pair.0, &words), &want);
        }
        count += 1;
    }
    let want = reference.dump(comparison, peers);
    for (server, pair) in servers.iter().zip(PAIRS) {
        check("the database", pair, &server.dump(comparison, peers), &want);
    }
    (count, different)
}
