//! Tests `ovs-appctl` and `ovs-dpctl` with control sockets of this project and of Open vSwitch.
//!
//! Open vSwitch's programs are in `$FLOWSTONE_PEERS/bin`.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use unixctl::{Commands, Server};

/// A served control socket in a directory that the started programs use as run directory.
struct Served {
    directory: tempfile::TempDir,
    _pid_file: daemon::PidFile,
    _end: tokio::sync::oneshot::Sender<()>,
}

/// Serves as the daemon `ovs-vswitchd` in this process.
fn served() -> Served {
    let directory = tempfile::tempdir().unwrap();
    let pid_file = daemon::PidFile::create(&directory.path().join("ovs-vswitchd.pid"), false).unwrap();
    let commands = Commands::new("ovs-vswitchd (Open vSwitch) 1.2.3\n");
    commands.register("echo", "[ARG]...", 0..=3, |args| Ok(args.join(" ")));
    commands.register("refuse", "", 0..=0, |_| Err("refused".to_owned()));
    commands.register_async("never", "", 0..=0, |_| std::future::pending());
    commands.register("dpctl/show", "[dp...]", 0..=9, |args| Ok(format!("show {}", args.join(" "))));
    let path = directory.path().join(format!("ovs-vswitchd.{}.ctl", std::process::id()));
    let server = Server::bind(path, commands).unwrap();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                served = server.run() => served.unwrap(),
                _ = ended => {}
            }
        });
    });
    Served { directory, _pid_file: pid_file, _end: end }
}

impl Served {
    fn run(&self, program: &Path, words: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.env("OVS_RUNDIR", self.directory.path()).env("OVS_SYSLOG_METHOD", "null");
        command.args(words).output().unwrap()
    }
}

/// This project's program of that name, by its link.
fn ours(directory: &Path, name: &str) -> PathBuf {
    let links = directory.join("links");
    let status = Command::new(env!("CARGO_BIN_EXE_flowstone")).arg("links").arg(&links).status().unwrap();
    assert!(status.success());
    links.join(name)
}

/// Exit code, standard output, and standard error without times and without the directory in `argv[0]`.
fn summary(output: &Output) -> String {
    let errors: Vec<String> = String::from_utf8_lossy(&output.stderr)
        .lines()
        .map(|line| {
            let line = line.split_once("Z|").map_or(line, |(_, rest)| rest);
            match line.split_once("ovs-appctl: ") {
                Some((folder, rest)) if !folder.contains(' ') => format!("ovs-appctl: {rest}"),
                _ => line.to_owned(),
            }
        })
        .collect();
    let code = output.status.code().or(output.status.signal());
    format!("{code:?}\n{}{}", String::from_utf8_lossy(&output.stdout), errors.join("\n"))
}

#[test]
fn appctl_answers_and_exit_codes() {
    let served = served();
    let appctl = ours(served.directory.path(), "ovs-appctl");
    let run = |words: &[&str]| summary(&served.run(&appctl, words));
    assert_eq!(run(&["echo", "a", "-x"]), "Some(0)\na -x\n");
    assert_eq!(run(&["-t", "ovs-vswitchd", "--", "echo"]), "Some(0)\n");
    assert_eq!(run(&["refuse"]), "Some(2)\nrefused\novs-appctl: ovs-vswitchd: server returned an error");
    assert_eq!(run(&["-f", "json", "echo", "a"]), "Some(0)\n{\"reply\":\"a\",\"reply-format\":\"plain\"}\n");
    assert_eq!(
        run(&["--format=json", "--pretty", "echo", "a"]),
        "Some(0)\n{\n  \"reply\": \"a\",\n  \"reply-format\": \"plain\"}\n"
    );
    // The text is passed as the command made it, and `version` has no newline at its end.
    let version = r#"{"reply":"ovs-vswitchd (Open vSwitch) 1.2.3","reply-format":"plain"}"#;
    assert_eq!(run(&["-f", "json", "version"]), format!("Some(0)\n{version}\n"));
    assert_eq!(run(&["-e", "version"]), "Some(0)\novs-vswitchd (Open vSwitch) 1.2.3\n");
    assert_eq!(run(&["--execute", "echo", "a"]), "Some(0)\na\n");
    assert_eq!(run(&["echo", "a\n"]), "Some(0)\na\n");
    assert_eq!(run(&["--pretty", "echo"]), "Some(1)\novs-appctl: --pretty is supported with --format json only");
    assert_eq!(
        run(&["-T", "1", "never"]),
        "Some(14)\n00001|fatal_signal|WARN|terminating with signal 14 (Alarm clock)"
    );
}

#[test]
fn dpctl_calls_the_switch() {
    let served = served();
    let dpctl = ours(served.directory.path(), "ovs-dpctl");
    let run = |words: &[&str]| summary(&served.run(&dpctl, words));
    assert_eq!(run(&["-s", "show", "a"]), "Some(0)\nshow --statistics a\n");
    assert_eq!(run(&["dump-dps"]), "Some(1)\novs-dpctl: 'dump-dps' is not supported by the running ovs-vswitchd");
    assert_eq!(run(&[]), "Some(1)\novs-dpctl: missing command name; use --help for help");
    assert_eq!(run(&["bogus"]), "Some(1)\novs-dpctl: unknown command 'bogus'; use --help for help");
    assert_eq!(run(&["add-dp"]), "Some(1)\novs-dpctl: 'add-dp' command requires at least 1 arguments");
    assert_eq!(
        run(&["--read-only", "del-dp", "x"]),
        "Some(1)\novs-dpctl: 'del-dp' command does not work in read only mode"
    );
}

/// Command lines with the same result under both `ovs-appctl` programs.
const SAME: &[&[&str]] = &[
    &["list-commands"],
    &["version"],
    &["version", "a", "b"],
    &["bogus"],
    &["--foo"],
    &["--v"],
    &["--t"],
    &["-t"],
    &["-x"],
    &["--help=3"],
    &["-T", "x", "version"],
    &["-t", "nosuch", "version"],
    &["-t", "/nosuch", "version"],
    &["-t", "stale", "version"],
    &["-vfoo:bar", "version"],
    &["-vPATTERN", "version"],
    &["-vconsole:off", "-t", "nosuch", "version"],
    &[],
];

#[test]
fn peers_appctl_and_ours_agree_on_our_server() {
    let Some(peer) = oracle::program("ovs-appctl") else { return };
    let served = served();
    std::fs::write(served.directory.path().join("stale.pid"), "1\n").unwrap();
    let ours = ours(served.directory.path(), "ovs-appctl");
    for words in SAME.iter().chain([&["echo", "a", "b"][..], &["refuse"]].iter()) {
        assert_eq!(summary(&served.run(&ours, words)), summary(&served.run(&peer, words)), "{words:?}");
    }
}

#[test]
fn peers_appctl_and_ours_agree_on_the_peers_server() {
    let (Some(peer_appctl), Some(server), Some(tool)) =
        (oracle::program("ovs-appctl"), oracle::program("ovsdb-server"), oracle::program("ovsdb-tool"))
    else {
        return;
    };
    let served = served();
    let directory = served.directory.path();
    let (schema, database, control) = (directory.join("schema"), directory.join("db"), directory.join("peer.ctl"));
    std::fs::write(&schema, r#"{"name":"T","tables":{"T":{"columns":{"c":{"type":"string"}}}}}"#).unwrap();
    let run = |program: &Path, words: &[&str], files: &[&Path]| {
        let mut command = Command::new(program);
        command.envs(["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"].map(|variable| (variable, directory)));
        assert!(command.args(words).args(files).status().unwrap().success(), "{} failed", program.display());
    };
    run(&tool, &["create"], &[&database, &schema]);
    let unixctl = format!("--unixctl={}", control.display());
    run(&server, &["--detach", "--no-chdir", "-vconsole:off", "--syslog-method=null", &unixctl], &[&database]);
    let ours = ours(served.directory.path(), "ovs-appctl");
    let target = control.to_str().unwrap();
    for words in
        [&["list-commands"][..], &["version"], &["vlog/list"], &["vlog/set", "foo"], &["memory/show", "x"], &["bogus"]]
    {
        let words: Vec<&str> = ["-t", target].iter().chain(words).copied().collect();
        assert_eq!(summary(&served.run(&ours, &words)), summary(&served.run(&peer_appctl, &words)), "{words:?}");
    }
    assert_eq!(summary(&served.run(&ours, &["-t", target, "exit"])), "Some(0)\n");
}
