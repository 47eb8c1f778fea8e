//! The life of a daemon, with the real processes: the program is examples/echo_daemon.rs.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use unixctl::Client;

/// A directory for the pid file, the socket and the log of one daemon.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let program = std::env::current_exe().unwrap();
        let program = program.parent().and_then(Path::parent).unwrap().join("examples/echo_daemon");
        assert!(program.exists(), "{} is not built; run the tests of the whole package", program.display());
        let mut command = Command::new(program);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, self.0.path());
        }
        command.env("OVS_SYSLOG_METHOD", "null").current_dir(self.0.path()).args(args);
        command
    }

    fn pid(&self) -> i32 {
        daemon::pidfile::read(&self.path("echo_daemon.pid")).unwrap()
    }

    fn call(&self, command: &str) -> String {
        let mut client = Client::connect(&self.path(&format!("echo_daemon.{}.ctl", self.pid()))).unwrap();
        match client.call(command, &[]) {
            Ok(answer) => answer.unwrap().as_str().unwrap().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("echo_daemon.log")).unwrap()
    }
}

fn handle(pid: i32) -> OwnedFd {
    pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap()
}

/// Waits for the end of a process that need not be a child.
fn wait(process: &OwnedFd) {
    poll(&mut [PollFd::new(process, PollFlags::IN)], None).unwrap();
}

fn has_ended(process: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn detached_until_exit_is_requested() {
    let place = Scratch::new();
    let output = place.run(&["--detach", "--pidfile", "--log-file", "-vconsole:off"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
    let process = handle(place.pid());
    assert!(place.call("version").starts_with("echo_daemon (Open vSwitch) "));
    assert!(place.call("vlog/list").contains("\nvlog               OFF       INFO       INFO\n"));
    assert_eq!(std::fs::read_link(format!("/proc/{}/cwd", place.pid())).unwrap(), Path::new("/"));

    let already =
        format!("{}: already running as pid {}, aborting\n", place.path("echo_daemon.pid").display(), place.pid());
    for args in [&["--pidfile"][..], &["--detach", "--pidfile"], &["--detach", "--monitor", "--pidfile"]] {
        let second = place.run(args);
        assert_eq!(second.status.code(), Some(1));
        assert_eq!(text(&second.stderr), format!("echo_daemon: {already}"));
    }

    assert_eq!(place.call("exit"), "");
    wait(&process);
    let left: Vec<_> = std::fs::read_dir(place.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["echo_daemon.log"]);
    assert!(place.log().starts_with(|first: char| first.is_ascii_digit()));
    assert!(place.log().contains("|00002|echo|INFO|serving\n"));
}

#[test]
fn a_signal_ends_the_daemon_cleanly() {
    let place = Scratch::new();
    assert!(place.run(&["--detach", "--pidfile", "--log-file", "--no-chdir", "-vconsole:off"]).status.success());
    let pid = place.pid();
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), place.0.path().canonicalize().unwrap());
    let process = handle(pid);
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    wait(&process);
    assert!(!place.path("echo_daemon.pid").exists());
    assert!(place.log().ends_with("|fatal_signal|WARN|terminating with signal 15 (Terminated)\n"), "{}", place.log());
}

/// Returns true if this process, and so its children, ignore the signal, as under nohup(1).
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(set.trim(), 16).unwrap() & 1 << (signal.as_raw() - 1) != 0
}

/// Waits until the daemon with this log, a child of this process, serves.
fn serving(place: &Scratch, daemon: &mut std::process::Child) {
    while !place.path("echo_daemon.log").exists() || !place.log().contains("|echo|INFO|serving\n") {
        assert!(daemon.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
}

#[test]
fn hangup_and_alarm_end_a_daemon_like_termination() {
    let signals = [
        (Signal::HUP, "1 (Hangup)"),
        (Signal::INT, "2 (Interrupt)"),
        (Signal::ALARM, "14 (Alarm clock)"),
        (Signal::TERM, "15 (Terminated)"),
    ];
    for (signal, words) in signals.into_iter().filter(|(signal, _)| !is_ignored(*signal)) {
        let place = Scratch::new();
        let mut daemon = place.command(&["--pidfile", "--log-file", "--no-chdir", "-vconsole:off"]).spawn().unwrap();
        serving(&place, &mut daemon);
        let pid = place.pid();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        let status = daemon.wait().unwrap();
        // The parent sees the signal, as if the daemon had not caught it.
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
        assert!(!place.path("echo_daemon.pid").exists() && !place.path(&format!("echo_daemon.{pid}.ctl")).exists());
        let end = format!("|fatal_signal|WARN|terminating with signal {words}\n");
        assert!(place.log().ends_with(&end), "{}", place.log());
    }
}

#[test]
fn a_signal_that_the_parent_ignores_does_not_end_a_daemon() {
    let place = Scratch::new();
    let command = place.command(&["--pidfile", "--log-file", "--no-chdir", "-vconsole:off"]);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        shell.env(name, value.unwrap());
    }
    let mut daemon = shell.current_dir(place.0.path()).spawn().unwrap();
    serving(&place, &mut daemon);
    let pid = Pid::from_raw(place.pid()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    assert_eq!(place.call("echo"), "");
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(daemon.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn one_fault_signal_kills_and_saved_state_survives() {
    for (signal, words) in [(Signal::SEGV, "Segmentation fault"), (Signal::BUS, "Bus error")] {
        let place = Scratch::new();
        let output = place.run(&["--detach", "--monitor", "--pidfile", "--log-file", "-vconsole:off"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let first = place.pid();
        assert_eq!(place.call("recall"), "");
        assert_eq!(place.call("remember"), "");
        let process = handle(first);
        kill_process(Pid::from_raw(first).unwrap(), signal).unwrap();
        wait(&process);
        while place.log().matches("|echo|INFO|serving\n").count() < 2 {
            std::thread::yield_now();
        }
        assert_eq!(place.call("recall").trim_end(), "what was remembered");
        let crashed = format!("1 crashes: pid {first} died, killed ({words})");
        assert!(place.log().contains(&crashed), "{}", place.log());
        let process = handle(place.pid());
        assert_eq!(place.call("exit"), "");
        wait(&process);
    }
}

#[test]
fn start_up_errors_reach_the_user() {
    let place = Scratch::new();
    for args in
        [&["--detach", "--pidfile=/nonexistent/x.pid"][..], &["--detach", "--monitor", "--pidfile=/nonexistent/x.pid"]]
    {
        let output = place.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert_eq!(
            text(&output.stderr),
            "echo_daemon: /nonexistent/x.pid.tmp: create failed (No such file or directory)\n"
        );
    }
    let output = place.run(&["--detach", "--unixctl=/nonexistent/x.ctl"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).ends_with(
        "|stream_unix|ERR|/nonexistent/x.ctl: binding failed: No such file or directory\n\
         echo_daemon: /nonexistent/x.ctl: could not initialize control socket (No such file or directory)\n"
    ));
    place.run(&["--detach", "--log-file", "--pidfile=/nonexistent/x.pid", "-vconsole:off"]);
    let fatal = "|00002|daemon_unix|EMER|/nonexistent/x.pid.tmp: create failed (No such file or directory)\n";
    assert!(place.log().ends_with(fatal), "{}", place.log());
    assert_eq!(place.log().matches("opened log file").count(), 1);
    let output = place.run(&["--user=no-such-user"]);
    assert_eq!(output.status.code(), Some(1));
    let reason = if rustix::process::geteuid().is_root() {
        "user no-such-user not found, aborting."
    } else {
        "only root can use --user option"
    };
    assert_eq!(text(&output.stderr), format!("echo_daemon: {reason}\n"));
}

#[test]
fn another_user_with_few_capabilities() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let place = Scratch::new();
    std::fs::set_permissions(place.0.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let output = place.run(&["--user=nobody", "--detach", "--monitor", "--pidfile", "--log-file", "-vconsole:off"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pid = place.pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_ne!(field("Uid:").split_whitespace().next(), Some("0"));
    assert_ne!(field("Gid:").split_whitespace().next(), Some("0"));
    assert_eq!(Some(field("Groups:").as_str()), field("Gid:").split_whitespace().next());
    // CAP_NET_BIND_SERVICE and CAP_IPC_LOCK, by their numbers, if this process has them.
    let kept = u64::from_str_radix(&field("CapEff:"), 16).unwrap();
    assert_eq!(kept & !(1 << 10 | 1 << 14), 0);
    let process = handle(pid);
    assert_eq!(place.call("exit"), "");
    wait(&process);
}

#[test]
fn a_crashed_daemon_is_started_again() {
    let place = Scratch::new();
    let output = place.run(&["--detach", "--monitor", "--pidfile", "--log-file", "-vconsole:off"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let first = place.pid();
    let stat = std::fs::read_to_string(format!("/proc/{first}/stat")).unwrap();
    let parent: i32 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    let title = std::fs::read_to_string(format!("/proc/{parent}/cmdline")).unwrap();
    assert!(title.split('\0').next().unwrap().ends_with("echo_daemon: monitoring"), "{title}");
    let monitor = handle(parent);

    assert_eq!(place.call("crash"), "End of file");
    while place.log().matches("|echo|INFO|serving\n").count() < 2 {
        assert!(!has_ended(&monitor), "{}", place.log());
    }
    let second = place.pid();
    assert_ne!(second, first);
    assert!(!place.path(&format!("echo_daemon.{first}.ctl")).exists());
    assert!(
        place.log().contains(&format!(
            "|daemon_unix(monitor)|ERR|1 crashes: pid {first} died, killed (Aborted), restarting\n"
        )) || place.log().contains("killed (Aborted), core dumped, restarting\n")
    );

    kill_process(Pid::from_raw(parent).unwrap(), Signal::TERM).unwrap();
    wait(&monitor);
    let ended = format!("|daemon_unix(monitor)|INFO|pid {second} died, killed (Terminated), exiting\n");
    assert!(place.log().contains(&ended), "{}", place.log());
}
