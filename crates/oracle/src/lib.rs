//! For tests: Open vSwitch's own programs, to be compared with.
//!
//! They are taken from the folder that the environment variable `FLOWSTONE_PEERS` names (`bin/`, and the schema under
//! `usr/share/openvswitch`), as `tests/peers/unpack.sh` makes it. Without the variable a comparison is left out, and says
//! so; under `CI=true` it fails.

pub mod corpus;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The environment variable that names the folder.
pub const FOLDER: &str = "FLOWSTONE_PEERS";

/// The folder of Open vSwitch's programs; `None`, and a word why, if there is nothing to compare with.
///
/// # Panics
///
/// Under `CI=true`, if there is none.
pub fn folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return Some(folder.into());
    }
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!ci, "{FOLDER} must name a folder with Open vSwitch's programs in bin/ when CI=true");
    println!("skipped: {FOLDER} is unset, so there is no Open vSwitch to compare with");
    None
}

/// The path of one of the programs; see [`folder`].
pub fn program(name: &str) -> Option<PathBuf> {
    folder().map(|folder| folder.join("bin").join(name))
}

/// The schema of the database of switches.
pub fn schema(folder: &Path) -> PathBuf {
    folder.join("usr/share/openvswitch/vswitch.ovsschema")
}

/// Runs a program to its end with this input, however much it and its output are.
///
/// # Panics
///
/// If it cannot be run.
pub fn run(program: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        // It may read no more than it wants to.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output().expect("it ends")
    })
}

/// What a program says is wrong, without what it logs.
pub fn errors(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let is_log = |line: &&str| ["|WARN|", "|ERR|", "|INFO|"].iter().any(|level| line.contains(level));
    text.lines().filter(|line| !is_log(line)).collect::<Vec<_>>().join("\n")
}

/// Has a program keep all that it looks for or leaves behind in this folder.
pub fn folders(command: &mut Command, dir: &Path) {
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(name, dir);
    }
}

/// A running Open vSwitch in a folder of its own, with the bridge `br0` on dummy ports. Ends when dropped.
#[derive(Debug)]
pub struct Switch {
    bin: PathBuf,
    dir: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Drop for Switch {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

impl Switch {
    /// Starts it; `setup` are commands of `ovs-vsctl` behind the one that makes the bridge, which forwards nothing by itself.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start(folder: &Path, setup: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut switch = Self { bin: folder.join("bin"), dir, daemons: Vec::new() };
        let path = |name: &str| switch.path(name).display().to_string();
        let (db, sock) = (path("conf.db"), format!("unix:{}", path("db.sock")));
        switch.run("ovsdb-tool", &["create", &db, &schema(folder).display().to_string()]).expect("creates");
        let server = switch.command("ovsdb-server", &[&db, &format!("--remote=p{sock}")]).spawn().expect("starts");
        switch.daemons.push(server);
        let db_option = format!("--db={sock}");
        let vsctl = ["--retry", "--timeout=20", &db_option];
        switch.run("ovs-vsctl", &[&vsctl[..], &["--no-wait", "init"]].concat()).expect("initializes");
        let options = ["--enable-dummy=override", "--disable-system", "--pidfile", &sock];
        let daemon = switch.command("ovs-vswitchd", &options).spawn().expect("starts");
        switch.daemons.push(daemon);
        let bridge = "add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure --";
        let words = bridge.split_whitespace().chain(setup.split_whitespace());
        switch.run("ovs-vsctl", &vsctl.into_iter().chain(words).collect::<Vec<_>>()).expect("configures");
        switch
    }

    /// A file in its folder, where its sockets are.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        folders(&mut command, self.dir.path());
        command
    }

    /// Any program, there to find the switch and in its folder.
    pub fn client(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        folders(&mut command, self.dir.path());
        command.current_dir(self.dir.path());
        command
    }

    /// Runs one of the programs on it: what it prints, or as an error what it says is wrong.
    ///
    /// # Errors
    ///
    /// If the program ends with another code than 0.
    ///
    /// # Panics
    ///
    /// If there is no such program.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String, String> {
        let output = self.command(program, args).stdout(Stdio::piped()).stderr(Stdio::piped()).output().expect("runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_more_than_a_pipe_holds_and_may_leave_it() {
        let input = vec![b'x'; 1 << 20];
        assert_eq!(run(Path::new("/bin/cat"), &[], &input).stdout, input);
        assert!(run(Path::new("/bin/true"), &[], &input).status.success());
    }

    #[test]
    fn logs_are_no_errors() {
        let output = run(Path::new("/bin/sh"), &["-c", "printf 'a|WARN|b\\nprogram: wrong\\n' >&2; exit 1"], &[]);
        assert_eq!(errors(&output), "program: wrong");
    }
}
