//! Runs command lines of ovsdb-tool with this program and with Open vSwitch's and compares their outputs and exit
//! codes; each also works on the files that the other wrote. Then ovsdb-server, with commands of its own that need no
//! peer.
//!
//! Needs Open vSwitch's programs in `$FLOWSTONE_PEERS/bin`. The test binary is its own program under test: it runs
//! itself with `FLOWSTONE_RUN_AS` set to the program's name.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Set in the environment of the copies of this binary that are the program under test.
const RUN_AS: &str = "FLOWSTONE_RUN_AS";
const SCHEMA: &str = include_str!("data/test.ovsschema");

fn main() -> ExitCode {
    match std::env::var(RUN_AS).as_deref() {
        Ok("ovsdb-tool") => return ovsdb_tools::tool_main(std::env::args_os().collect()),
        Ok(_) => return ovsdb_tools::server_main(std::env::args_os().collect()),
        Err(_) => {}
    }
    check_server();
    check_restart();
    let Some(peers) = oracle::folder() else { return ExitCode::SUCCESS };
    if compare(&peers.join("bin/ovsdb-tool")) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Command lines, words split at tabs; later ones depend on earlier ones. `!` before a command line: the other
/// program runs it.
const COMMANDS: &str = r#"

create	a.db	schema
create	a.db	schema
create	b.db	/nonexistent
create	b.db	bad
db-version	a.db
db-name	a.db
db-cksum	a.db
db-version	/nonexistent
schema-name	schema
schema-version	schema
schema-cksum	schema
needs-conversion	a.db	schema
needs-conversion	a.db	other
db-is-clustered	a.db
db-is-standalone	a.db
db-is-standalone	/nonexistent
db-cid	a.db
compare-versions	1.2.3	<	1.3.0
compare-versions	1.2.3	>	1.3.0
compare-versions	1.2	>	1.3.0
compare-versions	1.2.3	~	1.3.0
compare-versions	1.2.3
transact	a.db	["T",{"op":"insert","table":"root","row":{"name":"r1","oi":4,"m":["map",[["a",1]]]}},{"op":"comment","comment":"my comment"}]
transact	a.db	["T",{"op":"update","where":[],"table":"root","row":{"name":"r2"}}]
!transact	a.db	["T",{"op":"update","where":[],"table":"root","row":{"m":["map",[["a",1],["b",2]]]}}]
transact	a.db	["T",{"op":"update","where":[],"table":"root","row":{"b":true}},{"op":"comment","comment":"a\nb"}]
transact	a.db	["T",{"op":"foo"}]
transact	a.db	["X"]
query	a.db	["T",{"op":"select","where":[],"table":"root","columns":["name","r","m"]}]
transact	a.db	["T",{"op":"wait","table":"root","where":[],"until":"==","columns":["name"],"rows":[]}]
show-log	a.db
show-log	-m	a.db
show-log	-mm	a.db
!show-log	-mm	a.db
transact	a.db	["T",{"op":"delete","where":[],"table":"root"}]
show-log	-m	a.db
transact	a.db	["T",{"op":"insert","table":"root","row":{"name":"x","is":["set",[1,2]]}}]
!transact	a.db	["T",{"op":"mutate","table":"root","where":[],"mutations":[["is","insert",3]]}]
compact	a.db	c.db
!query	c.db	["T",{"op":"select","where":[],"table":"root","columns":["name","is"]}]
compact	a.db
!query	a.db	["T",{"op":"select","where":[],"table":"root","columns":["name","is"]}]
convert	a.db	other
query	a.db	["T",{"op":"select","where":[],"table":"root","columns":["name","more"]}]
!query	a.db	["T",{"op":"select","where":[],"table":"root","columns":["name","more"]}]
convert	a.db	schema	d.db
db-version	d.db
create	r.db	roles
transact	r.db	["T",{"op":"insert","table":"RBAC_Permission","row":{"table":"A","authorization":"","insert_delete":true,"update":"n"},"uuid-name":"p"},{"op":"insert","table":"RBAC_Role","row":{"name":"r","permissions":["map",[["A",["named-uuid","p"]]]]}},{"op":"insert","table":"A","row":{"n":"x"}}]
--rbac-role=r	transact	r.db	["T",{"op":"insert","table":"A","row":{"n":"1"}}]
--rbac-role=r	query	r.db	["T",{"op":"update","table":"A","where":[],"row":{"n":"2"}}]
--rbac-role=nobody	transact	r.db	["T",{"op":"delete","table":"A","where":[]}]
--rbac-role=nobody	transact	r.db	["T",{"op":"mutate","table":"A","where":[],"mutations":[]}]
--rbac-role=nobody	query	r.db	["T",{"op":"select","table":"A","where":[],"columns":["n"]}]
--rbac-role=r	transact	a.db	["T",{"op":"select","table":"root","where":[],"columns":["name"]}]
--rbac-role
foo
list-commands
create	link	schema
create	link	schema
db-name	folder/file
create	folder/file	schema
query	link	["T"]
query	torn.db	["T"]
query	invalid.db	["T",{"op":"select","where":[],"table":"root","columns":["name"]}]
transact	invalid.db	["T"]
compact	invalid.db
db-version	empty.db
transact	empty.db	["T"]
"#;

fn compare(peer: &Path) -> usize {
    let own = std::env::current_exe().unwrap();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for folder in &folders {
        let path = folder.path();
        std::fs::write(path.join("schema"), SCHEMA).unwrap();
        std::fs::write(path.join("bad"), r#"{"name":"X"}"#).unwrap();
        std::fs::write(path.join("empty.db"), "").unwrap();
        std::fs::write(path.join("torn.db"), format!("OVSDB JSON 14759 {}\n{{", "0".repeat(40))).unwrap();
        std::fs::create_dir(path.join("folder")).unwrap();
        std::os::unix::fs::symlink("folder/file", path.join("link")).unwrap();
        std::fs::write(path.join("invalid.db"), with_invalid_record(SCHEMA)).unwrap();
        let other = r#"{"name":"T","version":"2.0.0","tables":{"root":{"isRoot":true,"columns":{"name":{"type":"string"},"more":{"type":"integer"}}}}}"#;
        std::fs::write(path.join("other"), other).unwrap();
        std::fs::write(path.join("roles"), include_str!("data/roles.ovsschema")).unwrap();
    }
    let mut different = 0;
    for line in COMMANDS.lines() {
        let (swapped, line) = line.strip_prefix('!').map_or((false, line), |line| (true, line));
        let run = |program: &Path, folder: &Path| {
            let mut command = Command::new(program);
            command.arg0("ovsdb-tool").current_dir(folder).env(RUN_AS, "ovsdb-tool").env("TZ", "UTC");
            command.args(line.split('\t').filter(|word| !word.is_empty()));
            let output = command.output().expect("the program runs");
            let text = |bytes: &[u8]| normal(&String::from_utf8_lossy(bytes));
            format!("{}{}exit {:?}", text(&output.stdout), text(&output.stderr), output.status.code())
        };
        let (first, second) = if swapped { (own.as_path(), peer) } else { (peer, own.as_path()) };
        let (expected, found) = (run(first, folders[0].path()), run(second, folders[1].path()));
        if expected != found {
            different += 1;
            println!("{line}\n--- {}\n{expected}\n--- {}\n{found}\n", first.display(), second.display());
        }
    }
    tally::report!("{} command lines, {different} different", COMMANDS.lines().count());
    different
}

/// A database file with this schema and a record of a table that is not in it.
fn with_invalid_record(schema: &str) -> Vec<u8> {
    let record = |text: &str| {
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        ovsdb_server::log::encode(&ovsdb_server::log::Record::from(&json))
    };
    [record(schema), record(r#"{"invalid":{}}"#)].concat()
}

/// Without dates, random UUIDs and their first digits; the lines of a record's columns are in no order.
fn normal(text: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(normal_line).collect();
    let mut at = 0;
    while at < lines.len() {
        let end = (at..lines.len()).find(|&end| !lines[end].starts_with("    ")).unwrap_or(lines.len());
        lines[at..end].sort();
        at = end + 1;
    }
    lines.concat()
}

fn normal_line(line: &str) -> String {
    let digit = |c: char| c.is_ascii_hexdigit() || c == '-';
    let mut out = String::new();
    // The end of a JSON text within an error is worded differently by each parser.
    for word in line.split_inclusive([' ', '"', '(', ')', ':']) {
        let body = word.trim_end_matches([' ', '"', '(', ')', ':']);
        let random = (body.len() == 36 || body.len() == 8) && body.chars().all(digit);
        let date = body.starts_with("20") && body.len() == 10
            || body.contains('.') && body.len() == 6 && !body.ends_with("db");
        let clock = body.len() == 2 && body.chars().all(|c| c.is_ascii_digit());
        out.push_str(if random || date || clock { "#" } else { body });
        out.push_str(&word[body.len()..]);
    }
    out.push('\n');
    out
}

/// ovsdb-server as a program: serves while its command runs, and refuses unsupported options.
fn check_server() {
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg0(program).env(RUN_AS, program).current_dir(folder.path()).args(args);
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(name, folder.path());
        }
        command.output().expect("the program runs")
    };
    assert!(run("ovsdb-tool", &["create"]).status.success(), "the schema that ships is the default");
    let remote = format!("--remote=punix:{}", folder.path().join("db.sock").display());
    let served = run("ovsdb-server", &[&remote, "--unixctl=none", "--run=test -S db.sock"]);
    assert_eq!(served.status.code(), Some(0), "{served:?}");
    // The line that names the program goes to the log of a server that serves on its own.
    assert!(!String::from_utf8_lossy(&served.stderr).contains("(Open vSwitch)"), "{served:?}");
    let failed = run("ovsdb-server", &["--unixctl=none", "--run=exit 3"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("ovsdb-server: exit 3: child exited, exit status 3"));
    // Without the default database, and with a file that has an invalid record.
    std::fs::write(folder.path().join("invalid.db"), with_invalid_record(SCHEMA)).unwrap();
    let served = run("ovsdb-server", &["--no-dbs", "--unixctl=none", "--run=true"]);
    assert_eq!(served.status.code(), Some(0), "{served:?}");
    let served = run("ovsdb-server", &["--unixctl=none", "--run=true", "invalid.db"]);
    assert_eq!(served.status.code(), Some(0), "{served:?}");
    let error = "|ovsdb_server|ERR|syntax \"{\"invalid\":{}}\": unknown table: No table named invalid.\n";
    assert!(String::from_utf8_lossy(&served.stderr).contains(error), "{served:?}");
    // Addresses that it cannot use do not keep the server from starting.
    let served =
        run("ovsdb-server", &["--no-dbs", "--remote=pssl:x", "--remote=foo:bar", "--unixctl=none", "--run=true"]);
    assert_eq!(served.status.code(), Some(0), "{served:?}");
    let keys = ["--private-key=db:Open_vSwitch,SSL,private_key", "--certificate=db:Open_vSwitch,SSL,certificate"];
    let served = run("ovsdb-server", &[keys[0], keys[1], "--unixctl=none", "--run=true"]);
    assert_eq!(served.status.code(), Some(0), "{served:?}");
    for (args, message) in [
        (["--private-key=db:X,SSL,key", ""], "failed to configure SSL/TLS: \"db:X,SSL,key\": no database named X"),
        (["--config-file=x", "--remote=punix:x"], "--config-file is mutually exclusive with --remote"),
        (
            ["--config-file=x", "--active"],
            "--config-file is mutually exclusive with --sync-from, --sync-exclude and --active",
        ),
        (["--config-file=x", "x.db"], "Databases should be specified in a config file"),
        (["--config-file=nosuch", "--unixctl=none"], "server configuration failed"),
        (["--sync-from=ptcp:1", ""], "--sync-from: ptcp:1: a server to copy from needs an active connection method"),
        (
            ["--unixctl=none", "none.db"],
            "failed to open database 'none.db': I/O error: none.db: open failed (No such file or directory)",
        ),
        (
            ["--remote=db:Open_vSwitch,None,x", ""],
            "failed to configure remotes: \"db:Open_vSwitch,None,x\": no table named None",
        ),
    ] {
        let args: Vec<&str> = args.into_iter().filter(|arg| !arg.is_empty()).collect();
        let refused = run("ovsdb-server", &args);
        assert_eq!(refused.status.code(), Some(1), "{args:?}");
        let said = String::from_utf8_lossy(&refused.stderr);
        // The log has the reason why a configuration fails.
        let end = if said.contains("|WARN|") { "server configuration failed" } else { message };
        assert!(said.contains(message) && said.ends_with(&format!("ovsdb-server: {end}\n")), "{said}");
    }
}

/// A server under a monitor: it starts without a word, and after a crash it serves what control commands made it serve.
fn check_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg0(program).env(RUN_AS, program).current_dir(folder.path()).args(args);
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(name, folder.path());
        }
        command.output().expect("the program runs")
    };
    for name in ["first", "second"] {
        std::fs::write(path("schema"), format!(r#"{{"name":"{name}","tables":{{}}}}"#)).unwrap();
        assert!(run("ovsdb-tool", &["create", name, "schema"]).status.success());
    }
    // Without --no-chdir, names in the saved configuration must not depend on the folder.
    let started = run("ovsdb-server", &["--detach", "--monitor", "--pidfile", "-vvlog:off", "--log-file", "first"]);
    assert!(started.status.success() && started.stdout.is_empty() && started.stderr.is_empty(), "{started:?}");
    let log = || std::fs::read_to_string(path("ovsdb-server.log")).unwrap();
    // The server logs its name after the process that the user started has ended.
    let named = || log().matches("|ovsdb_server|INFO|ovsdb-server (Open vSwitch) ").count();
    for _ in 0..1000 {
        if named() > 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(named(), 1, "{}", log());
    let pid = || std::fs::read_to_string(path("ovsdb-server.pid")).ok()?.trim().parse::<u32>().ok();
    let call = |pid: u32, command: &str, args: &[&str]| {
        let mut client = unixctl::Client::connect(&path(&format!("ovsdb-server.{pid}.ctl"))).ok()?;
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        client.call(command, &args).ok()?.ok()?.as_str().map(str::to_owned)
    };
    let first = pid().unwrap();
    let socket = format!("punix:{}", path("db.sock").display());
    let second = path("second").display().to_string();
    for (command, arg) in [("add-db", second.as_str()), ("remove-db", "first"), ("add-remote", &socket)] {
        assert_eq!(call(first, &format!("ovsdb-server/{command}"), &[arg]).as_deref(), Some(""), "{command}");
    }
    let killed = Command::new("/bin/sh").args(["-c", &format!("kill -SEGV {first}")]).status().unwrap();
    assert!(killed.success());
    // The new process answers once it serves.
    let mut lists = None;
    while lists.is_none() {
        std::thread::yield_now();
        let Some(second) = pid().filter(|pid| *pid != first) else { continue };
        lists = call(second, "ovsdb-server/list-dbs", &[]).zip(call(second, "ovsdb-server/list-remotes", &[]));
    }
    assert_eq!(lists, Some(("_Server\nsecond\n".to_owned(), format!("{socket}\n"))));
    assert_eq!(call(pid().unwrap(), "exit", &[]).as_deref(), Some(""));
    while path("ovsdb-server.pid").exists() {
        std::thread::yield_now();
    }
}
