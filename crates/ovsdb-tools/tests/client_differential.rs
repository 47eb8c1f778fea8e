//! Runs command lines of ovsdb-client with this program and with Open vSwitch's, against an ovsdb-server of Open
//! vSwitch, and compares their outputs and exit codes.
//!
//! Needs Open vSwitch's programs in `$FLOWSTONE_PEERS/bin` and its schema in `$FLOWSTONE_PEERS/usr/share/openvswitch`.
//! The test binary is its own program under test: it runs itself with `FLOWSTONE_RUN_AS` set.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

/// Set in the environment of the copies of this binary that are the program under test.
const RUN_AS: &str = "FLOWSTONE_RUN_AS";

fn main() -> ExitCode {
    if std::env::var_os(RUN_AS).is_some() {
        return ovsdb_tools::client_main(std::env::args_os().collect());
    }
    let Some(peers) = oracle::folder() else { return ExitCode::SUCCESS };
    let server = Server::start(&peers, &[]);
    server.seed();
    let different = server.compare_commands(COMMANDS)
        + Server::start(&peers, &[ORDINALS]).seed_ordinals().compare_commands(ONE_DATABASE)
        + Server::start(&peers, &[ORDINALS, OTHER]).seed_ordinals().compare_commands(TWO_DATABASES)
        + server.compare_monitors()
        + server.compare_background("monitor Queue dscp", &["lock other", "unlock other", "lock"])
        + server.compare_background("lock LOCK", &["lock other", "unlock other", "lock"])
        + server.compare_background("monitor-cond [[\"dscp\",\"==\",1]] Queue dscp", MONITOR_CONTROL)
        + server.compare_background("monitor Queue dscp", MONITOR_CONTROL)
        + server.compare_background_error("monitor Queue dscp")
        + server.compare_background_transaction()
        + server.compare_time_limit()
        + server.compare_conversion("monitor Queue dscp")
        + server.compare_conversion("--no-db-change-aware monitor Queue dscp")
        + server.compare_waiting("")
        + server.compare_waiting("--db-change-aware")
        + server.compare_waiting("--no-db-change-aware")
        + server.check_backup();
    if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Command lines, split at spaces; `DIR` is the server's folder, `SCHEMA` the schema, `LOCK` a free lock.
const COMMANDS: &str = r#"
list-dbs
list-dbs unix:DIR/db.sock
list-dbs a b
list-tables
list-tables Open_vSwitch
list-tables _Server
list-tables Foo
list-columns
list-columns Open_vSwitch Queue
list-columns Queue
list-columns Foo
list-columns _Server Database
get-schema
get-schema Open_vSwitch
--pretty get-schema
get-schema _Server
get-schema Foo
get-schema-version
get-schema-cksum
get-schema unix:/nonexistent/socket Open_vSwitch
list-dbs unix:/nonexistent,unix:DIR/db.sock
list-dbs unix:/nonexistent,unix:/nonexistent/too
--no-leader-only list-dbs unix:DIR/db.sock,unix:/nonexistent
list-tables unix:/nonexistent,unix:DIR/db.sock
dump unix:/nonexistent,unix:DIR/db.sock Open_vSwitch Queue dscp
dump unix:DIR/db.sock,unix:/nonexistent Queue dscp
transact unix:/nonexistent,unix:DIR/db.sock ["Open_vSwitch",{"op":"select","table":"Queue","where":[],"columns":["dscp"]}]
get-schema-version unix:/nonexistent,unix:DIR/db.sock _Server
foo

--foo
--bar=3 list-dbs
-f bogus list-dbs
-t x list-dbs
transact ["Open_vSwitch",{"op":"select","table":"Queue","where":[["dscp","==",1]],"columns":["dscp"]}]
--pretty transact ["Open_vSwitch",{"op":"select","table":"Queue","where":[["dscp","==",1]],"columns":["dscp"]}]
transact ["Open_vSwitch",{"op":"foo"}]
transact ["Foo",{"op":"foo"}]
transact {}
transact []
transact [1]
transact
query ["Open_vSwitch",{"op":"update","table":"Queue","where":[],"row":{"dscp":9}}]
query ["Open_vSwitch",{"op":"foo","table":"Queue","row":{"dscp":9}}]
query {}
dump
dump Open_vSwitch
dump Open_vSwitch Queue
dump Queue
dump Open_vSwitch Queue dscp
dump Open_vSwitch Queue external_ids dscp _uuid
dump Open_vSwitch Foo
dump Open_vSwitch Queue foo
-f list dump Open_vSwitch Queue dscp _uuid
-f csv dump Open_vSwitch Queue
-f json dump Open_vSwitch Queue
-f json --pretty dump Open_vSwitch Queue dscp
-f html dump Open_vSwitch Queue dscp
--no-headings dump Open_vSwitch Queue
--bare dump Open_vSwitch Queue
-d json dump Open_vSwitch Queue
--max-column-width=5 dump Open_vSwitch Queue
dump _Server Database name model
needs-conversion SCHEMA
needs-conversion DIR/conf.db.nosuch
wait Open_vSwitch added
wait Open_vSwitch connected
wait Foo removed
wait Foo bar
wait Foo
-t 1 wait Foo added
monitor Foo
monitor Queue foo
monitor Queue dscp dscp
monitor Queue !foo
monitor-cond [["foo","==",1]] Queue
-t 2 lock LOCK
-t 2 steal LOCK
-t 2 unlock LOCK
"#;

/// Commands for a server whose only database is not Open_vSwitch.
const ONE_DATABASE: &str = r#"
dump
dump ordinals
dump ordinals number
dump ordinals ordinals name
dump unix:DIR/db.sock ordinals name
dump unix:DIR/db.sock ordinals ordinals name
dump unix:DIR/db.sock nosuch name
dump nosuch
get-schema-version
get-schema-version unix:DIR/db.sock
get-schema-cksum
get-schema
get-schema nosuch
list-tables
list-tables nosuch
list-tables a b
list-columns
list-columns ordinals
list-columns ordinals ordinals
list-columns nosuch
monitor
monitor nosuch
monitor ordinals name
-t 1 monitor ordinals
-t 1 monitor ordinals ordinals number
dump foo:bar
list-dbs foo:bar
list-dbs nosuch
dump tcp:127.0.0.1:1 ordinals
dump unix:DIR/db.sock,unix:DIR/db.sock
dump unix:DIR/db.sock,unix:DIR/db.sock ordinals
transact ["ordinals",{"op":"select","table":"ordinals","where":[],"sort":["number"]}]
transact ["ordinals",{"op":"select","table":"ordinals","where":[],"columns":["name"],"sort":["name"]}]
"#;

/// Commands for a server with two databases, neither of them Open_vSwitch.
const TWO_DATABASES: &str = r"
dump
dump other
dump ordinals ordinals name
dump nosuch
get-schema-version
get-schema-version other
list-tables
list-tables nosuch
monitor nosuch
list-columns ordinals
";

/// Schemas of other databases.
const ORDINALS: &str = r#"{"name":"ordinals","version":"5.1.3","tables":{"ordinals":{"columns":{
    "number":{"type":"integer"},"name":{"type":"string"}},"indexes":[["number"]]}}}"#;
const OTHER: &str =
    r#"{"name":"other","version":"1.0.0","tables":{"ordinals":{"columns":{"number":{"type":"integer"}}}}}"#;

/// Control commands of a monitor.
const MONITOR_CONTROL: &[&str] = &[
    "ovsdb-client/cond_change Queue [[\"dscp\",\"==\",3]]",
    "ovsdb-client/cond_change nosuch []",
    "ovsdb-client/cond_change Queue nonsense",
    "ovsdb-client/cond_change Queue",
    "ovsdb-client/block",
    "ovsdb-client/block",
    "ovsdb-client/unblock",
    "ovsdb-client/unblock",
];

/// Monitors during which rows are inserted, modified and deleted.
const MONITORS: &[&str] = &[
    "monitor Queue",
    "monitor Open_vSwitch Queue dscp,other_config",
    "monitor Queue dscp other_config,!initial,!insert",
    "-f csv monitor Queue dscp",
    "-f list monitor Queue dscp",
    "-f json monitor-cond [[\"dscp\",\"==\",1],[\"dscp\",\">\",6]] Queue dscp",
    "-d json monitor Queue dscp,!initial other_config",
    "--no-headings monitor Queue dscp",
    "monitor-cond [[\"dscp\",\">\",0]] Queue dscp",
    "monitor-cond-since Open_vSwitch [] Queue dscp other_config",
    "monitor ALL",
];

struct Server {
    peers: PathBuf,
    dir: std::sync::Arc<tempfile::TempDir>,
    process: Child,
}

impl Server {
    /// A server of databases with these schemas; of Open_vSwitch without any.
    fn start(peers: &Path, schemas: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut files = vec![(dir.path().join("conf.db"), peers.join("usr/share/openvswitch/vswitch.ovsschema"))];
        if !schemas.is_empty() {
            files.clear();
        }
        for (at, text) in schemas.iter().enumerate() {
            let schema = dir.path().join(format!("{at}.ovsschema"));
            std::fs::write(&schema, text).unwrap();
            files.push((dir.path().join(format!("{at}.db")), schema));
        }
        let mut command = Command::new(peers.join("bin/ovsdb-server"));
        command.arg(format!("--remote=punix:{}", dir.path().join("db.sock").display()));
        for (db, schema) in files {
            let made = Command::new(peers.join("bin/ovsdb-tool")).arg("create").args([&db, &schema]).status().unwrap();
            assert!(made.success());
            command.arg(db);
        }
        command.arg("-vconsole:off").stdin(Stdio::null());
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, dir.path());
        }
        let process = command.spawn().unwrap();
        let server = Self { peers: peers.to_owned(), dir: dir.into(), process };
        // The socket appears when the server is ready.
        for _ in 0..1000 {
            if server.dir.path().join("db.sock").exists() {
                return server;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("ovsdb-server did not start");
    }

    /// Ends the server; the folder stays until the value is dropped.
    fn end(self) -> std::sync::Arc<tempfile::TempDir> {
        std::sync::Arc::clone(&self.dir)
    }

    fn ours(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg0("ovsdb-client").env(RUN_AS, "ovsdb-client");
        self.surround(command)
    }

    fn theirs(&self) -> Command {
        let mut command = Command::new(self.peers.join("bin/ovsdb-client"));
        command.arg0("ovsdb-client");
        self.surround(command)
    }

    fn surround(&self, mut command: Command) -> Command {
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, self.dir.path());
        }
        command.arg("-vreconnect:warn").stdin(Stdio::null());
        command
    }

    fn transact(&self, operations: &str) {
        let done = self.theirs().args(["transact", &format!("[\"Open_vSwitch\",{operations}]")]).output().unwrap();
        assert!(done.status.success() && !String::from_utf8_lossy(&done.stdout).contains("error"), "{done:?}");
    }

    fn seed(&self) {
        let queue = |row: &str| self.transact(&format!(r#"{{"op":"insert","table":"Queue","row":{row}}}"#));
        queue(r#"{"dscp":1}"#);
        queue(r#"{"dscp":3,"external_ids":["map",[["a","b c"]]]}"#);
        queue(r#"{"dscp":3,"other_config":["map",[["a","1"],["b","2"]]]}"#);
        queue("{}");
        self.transact(r#"{"op":"insert","table":"Open_vSwitch","row":{"external_ids":["map",[["a","b"]]]}}"#);
    }

    fn seed_ordinals(self) -> Self {
        for (number, name) in [(1, "one"), (3, "three"), (2, "two")] {
            let insert = format!(
                r#"["ordinals",{{"op":"insert","table":"ordinals","row":{{"number":{number},"name":"{name}"}}}}]"#
            );
            assert!(self.theirs().args(["transact", &insert]).output().unwrap().status.success());
        }
        self
    }

    fn words(&self, line: &str) -> Vec<String> {
        let dir = self.dir.path().display().to_string();
        let schema = self.peers.join("usr/share/openvswitch/vswitch.ovsschema").display().to_string();
        let words = line.split(' ').filter(|word| !word.is_empty());
        // The server may not have noticed yet that the last holder of a lock has disconnected.
        let lock = format!("l{}", ovsdb::Uuid::random()).replace('-', "_");
        words.map(|word| word.replace("DIR", &dir).replace("SCHEMA", &schema).replace("LOCK", &lock)).collect()
    }

    fn compare_commands(&self, commands: &str) -> usize {
        let (mut count, mut different) = (0, 0);
        for line in commands.lines().skip(1) {
            let run = |mut command: Command| {
                let output = command.args(self.words(line)).output().unwrap();
                let text = |bytes: &[u8]| normal(&String::from_utf8_lossy(bytes));
                (output.status.to_string(), text(&output.stdout), text(&output.stderr))
            };
            let (got, want) = (run(self.ours()), run(self.theirs()));
            count += 1;
            if got != want {
                different += 1;
                println!(
                    "{line}\n  ours: {}\n{}\n{}\n  theirs: {}\n{}\n{}",
                    got.0, got.1, got.2, want.0, want.1, want.2
                );
            }
        }
        tally::report!("{count} command lines, {different} different");
        different
    }

    fn compare_monitors(&self) -> usize {
        let mut different = 0;
        for line in MONITORS {
            let mut watchers: Vec<Watcher> = [self.ours(), self.theirs()]
                .into_iter()
                .map(|mut command| Watcher::new(command.args(self.words(line))))
                .collect();
            for watcher in &mut watchers {
                // Something is printed when the monitor has begun.
                watcher.read_until("");
            }
            self.transact(r#"{"op":"insert","table":"Queue","row":{"dscp":7}}"#);
            let update = r#""row":{"dscp":8,"other_config":["map",[["x","y"]]]}"#;
            self.transact(&format!(r#"{{"op":"update","table":"Queue","where":[["dscp","==",7]],{update}}}"#));
            self.transact(r#"{"op":"delete","table":"Queue","where":[["dscp","==",8]]}"#);
            let texts: Vec<String> = watchers.into_iter().map(Watcher::finish).collect();
            // The order of initial rows is random.
            if normal(&texts[0]) != normal(&texts[1]) {
                different += 1;
                println!("{line}\n  ours:\n{}\n  theirs:\n{}", texts[0], texts[1]);
            }
        }
        tally::report!("{} monitors, {different} different", MONITORS.len());
        different
    }

    /// The output of the background process, and of its control commands.
    fn compare_background(&self, line: &str, controls: &[&str]) -> usize {
        let outcomes = [self.ours(), self.theirs()].map(|mut command| {
            let (output, pidfile) = (self.dir.path().join("output"), self.dir.path().join("client.pid"));
            let out = std::fs::File::create(&output).unwrap();
            let option = format!("--pidfile={}", pidfile.display());
            let started = command.args(["--detach", &option]).args(self.words(line)).stdout(out).status().unwrap();
            let pid = std::fs::read_to_string(&pidfile).unwrap();
            let target = self.dir.path().join(format!("ovsdb-client.{}.ctl", pid.trim())).display().to_string();
            let mut said = vec![started.to_string()];
            for words in controls.iter().chain(&["exit now", "exit"]) {
                let mut control = Command::new(self.peers.join("bin/ovs-appctl"));
                control.args(["-t", &target]).args(words.split(' '));
                let answer = control.env("OVS_RUNDIR", self.dir.path()).output().unwrap();
                said.push(format!("{words}: {} {}", answer.status, String::from_utf8_lossy(&answer.stdout)));
            }
            // The process has ended when its file is gone.
            for _ in 0..1000 {
                if !pidfile.exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            said.push(normal(&std::fs::read_to_string(&output).unwrap()));
            said.join("\n")
        });
        println!("{line} in the background: {}", if outcomes[0] == outcomes[1] { "same" } else { "different" });
        if outcomes[0] != outcomes[1] {
            println!("  ours:\n{}\n  theirs:\n{}", outcomes[0], outcomes[1]);
        }
        usize::from(outcomes[0] != outcomes[1])
    }

    /// Compares the error of a background process whose server closes the connection.
    fn compare_background_error(&self, line: &str) -> usize {
        let outcomes = [self.ours(), self.theirs()].map(|mut command| {
            let server = Server::start(&self.peers, &[]);
            let (errors, pidfile) = (server.dir.path().join("errors"), server.dir.path().join("client.pid"));
            let err = std::fs::File::create(&errors).unwrap();
            for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
                command.env(variable, server.dir.path());
            }
            let option = format!("--pidfile={}", pidfile.display());
            let started = command.args(["--detach", "--no-chdir", &option]).args(self.words(line));
            let started = started.stdout(Stdio::null()).stderr(err).status().unwrap();
            let socket = server.dir.path().join("db.sock");
            let dir = server.end();
            for _ in 0..1000 {
                // The pid file may be gone before the error is written.
                if !pidfile.exists() && errors.metadata().is_ok_and(|found| found.len() > 0) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let said = std::fs::read_to_string(&errors).unwrap().replace(&socket.display().to_string(), "SOCKET");
            drop(dir);
            format!("{started}: {}", normal(&said))
        });
        println!("{line} in the background without its server: {}, theirs {}", outcomes[0], outcomes[1]);
        usize::from(outcomes[0] != outcomes[1])
    }

    /// Compares a transaction that waits in the background until another client has inserted a row.
    fn compare_background_transaction(&self) -> usize {
        let wait = r#"["Open_vSwitch",{"op":"wait","table":"Queue","where":[["dscp","==",NUMBER]],"columns":["dscp"],"rows":[],"until":"!="}]"#;
        let insert = r#"["Open_vSwitch",{"op":"insert","table":"Queue","row":{"dscp":NUMBER}}]"#;
        let outcomes = [(self.ours(), "41"), (self.theirs(), "42")].map(|(mut command, number)| {
            let directory = tempfile::tempdir().unwrap();
            let (output, pidfile) = (directory.path().join("output"), directory.path().join("client.pid"));
            let out = std::fs::File::create(&output).unwrap();
            let option = format!("--pidfile={}", pidfile.display());
            command.env("OVS_RUNDIR", directory.path()).args(["--detach", "--no-chdir", &option, "transact"]);
            let remote = format!("unix:{}", self.dir.path().join("db.sock").display());
            let started = command.args([&remote, &wait.replace("NUMBER", number)]).stdout(out).status().unwrap();
            let early = std::fs::read_to_string(&output).unwrap();
            let inserted = self.theirs().arg("transact").arg(insert.replace("NUMBER", number)).output().unwrap();
            assert!(inserted.status.success());
            for _ in 0..1000 {
                if !pidfile.exists() && output.metadata().is_ok_and(|found| found.len() > 0) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            format!("{started}: {early}, then {}", std::fs::read_to_string(&output).unwrap())
        });
        println!("transact in the background: {}, theirs {}", outcomes[0], outcomes[1]);
        usize::from(outcomes[0] != outcomes[1])
    }

    /// Compares the end of a monitor when the schema is changed.
    fn compare_conversion(&self, line: &str) -> usize {
        let outcomes = [self.ours(), self.theirs()].map(|mut command| {
            let mut watcher = Watcher::new(command.args(self.words(line)).stderr(Stdio::piped()));
            watcher.read_until("dscp");
            let schema = self.peers.join("usr/share/openvswitch/vswitch.ovsschema");
            assert!(self.theirs().arg("convert").arg(&schema).status().unwrap().success());
            let status = watcher.process.wait().unwrap();
            let mut said = String::new();
            watcher.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            format!("{status}: {}", normal(&said))
        });
        println!("{line} when the schema changes: {}, theirs {}", outcomes[0], outcomes[1]);
        usize::from(outcomes[0] != outcomes[1])
    }

    /// The server's `memory/show`.
    fn memory(&self) -> String {
        let mut control = Command::new(self.peers.join("bin/ovs-appctl"));
        let socket = self.dir.path().join(format!("ovsdb-server.{}.ctl", self.process.id()));
        control.arg("-t").arg(socket).arg("memory/show").env("OVS_RUNDIR", self.dir.path());
        String::from_utf8_lossy(&control.output().unwrap().stdout).into_owned()
    }

    /// Compares the end of a waiting transaction when the schema is changed.
    fn compare_waiting(&self, option: &str) -> usize {
        let outcomes = [self.ours(), self.theirs()].map(|mut command| {
            let wait =
                r#"["Open_vSwitch",{"op":"wait","table":"Queue","where":[["dscp","==",63]],"until":"!=","rows":[]}]"#;
            let words = [option, "transact", wait];
            let mut process = command
                .args(words.into_iter().filter(|word| !word.is_empty()))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            while !self.memory().contains("triggers:1") {
                assert!(process.try_wait().unwrap().is_none());
            }
            let schema = self.peers.join("usr/share/openvswitch/vswitch.ovsschema");
            assert!(self.theirs().arg("convert").arg(&schema).status().unwrap().success());
            let output = process.wait_with_output().unwrap();
            let text = |bytes: &[u8]| normal(&String::from_utf8_lossy(bytes));
            format!("{}: {} {}", output.status, text(&output.stdout), text(&output.stderr))
        });
        println!("{option} transact when the schema changes: {}, theirs {}", outcomes[0], outcomes[1]);
        usize::from(outcomes[0] != outcomes[1])
    }

    /// The time limit of the environment.
    fn compare_time_limit(&self) -> usize {
        let run = |mut command: Command| {
            let output = command.env("OVS_CTL_TIMEOUT", "1").args(["wait", "Foo", "added"]).output().unwrap();
            (output.status.to_string(), normal(&String::from_utf8_lossy(&output.stderr)))
        };
        let (got, want) = (run(self.ours()), run(self.theirs()));
        println!("OVS_CTL_TIMEOUT: {got:?}, theirs {want:?}");
        usize::from(got != want)
    }

    /// Checks that our backup restores the contents.
    fn check_backup(&self) -> usize {
        let columns = ["dump", "Queue", "dscp", "external_ids", "other_config"];
        let dump = || self.theirs().args(columns).output().unwrap().stdout;
        let before = dump();
        let copy = self.ours().arg("backup").output().unwrap();
        assert!(copy.status.success(), "{copy:?}");
        self.transact(r#"{"op":"delete","table":"Queue","where":[]}"#);
        let file = self.dir.path().join("backup");
        std::fs::write(&file, &copy.stdout).unwrap();
        let restored = self.ours().arg("restore").stdin(std::fs::File::open(&file).unwrap()).output().unwrap();
        assert!(restored.status.success(), "{restored:?}");
        let same = dump() == before;
        println!("backup and restore: {}", if same { "same" } else { "different" });
        usize::from(!same)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A running monitor.
struct Watcher {
    process: Child,
    lines: BufReader<std::process::ChildStdout>,
    text: String,
}

impl Watcher {
    fn new(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines, text: String::new() }
    }

    /// Reads a line with `marker` in it and all before it.
    fn read_until(&mut self, marker: &str) {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "ended early:\n{}", self.text);
            self.text.push_str(&line);
            if line.contains(marker) {
                return;
            }
        }
    }

    fn finish(mut self) -> String {
        self.read_until("delete");
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.text.clone()
    }
}

/// The text without times, with sorted lines: the order in a schema is random.
fn normal(text: &str) -> String {
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| match line.splitn(3, '|').collect::<Vec<_>>().as_slice() {
            [time, _, message] if time.len() == 20 && time.ends_with('Z') => format!("LOG|{message}"),
            _ => line.trim_end().to_owned(),
        })
        .collect();
    lines.sort();
    lines.join("\n")
}
