//! For tests: Open vSwitch's own programs, to compare with.
//!
//! They are in the directory that the environment variable `FLOWSTONE_PEERS` names (`bin/`, and the schema under
//! `usr/share/openvswitch`), as `tests/peers/unpack.sh` creates it. Without the variable a comparison is skipped with a
//! message; under `CI=true` it fails. Programs of another version than [`VERSION`] are not compared with: `./test` lists the
//! tests that need that version by name.

pub mod corpus;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// The environment variable that names the directory.
pub const FOLDER: &str = "FLOWSTONE_PEERS";

/// The version whose behaviour the comparisons expect.
pub const VERSION: &str = "4.0";

/// The directory of Open vSwitch's programs; `None`, after printing a message, if it is not configured or has another
/// version.
///
/// # Panics
///
/// If it is not configured and `CI=true` is set.
pub fn folder() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!is_ci, "{FOLDER} must name a folder with Open vSwitch's programs in bin/ when CI=true");
        println!("skipped: {FOLDER} is unset, so there is no Open vSwitch to compare with");
        return None;
    };
    let found = version(&folder);
    if is_expected(found) {
        return Some(folder);
    }
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let why = format!("not compared, needs Open vSwitch {VERSION} and found {found}");
    tally::note(&program_name(), &test, &why);
    None
}

/// The version of the programs, as `4.0.0`; empty if they do not tell it.
fn version(folder: &Path) -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| {
        let output = Command::new(folder.join("bin/ovs-vswitchd")).arg("--version").output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        text.lines().next().and_then(|line| line.split(' ').next_back()).unwrap_or_default().to_owned()
    })
}

/// Returns true if comparisons hold for this version, as `4.0.0`.
fn is_expected(found: &str) -> bool {
    found.strip_prefix(VERSION).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The file name of the running test program.
fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The path of one of the programs; see [`folder`].
pub fn program(name: &str) -> Option<PathBuf> {
    folder().map(|folder| folder.join("bin").join(name))
}

/// The schema of the Open_vSwitch database.
pub fn schema(folder: &Path) -> PathBuf {
    folder.join("usr/share/openvswitch/vswitch.ovsschema")
}

/// Runs a program to its end with this input; input and output may have any size.
///
/// # Panics
///
/// If the program cannot be run.
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
        // The program may exit without reading all input.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output().expect("it ends")
    })
}

/// A program's error output without its log messages.
pub fn errors(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let is_log = |line: &&str| ["|WARN|", "|ERR|", "|INFO|"].iter().any(|level| line.contains(level));
    text.lines().filter(|line| !is_log(line)).collect::<Vec<_>>().join("\n")
}

/// Makes a program use this directory for all of its run-time files.
pub fn folders(command: &mut Command, dir: &Path) {
    for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(name, dir);
    }
}

/// A running Open vSwitch in a temporary directory, with the bridge `br0` on dummy ports. It ends when this is dropped.
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
    /// Starts a switch. `setup` are further `ovs-vsctl` commands after the creation of the bridge, which has no flows.
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

    /// A file in the switch's directory, which also contains its sockets.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        folders(&mut command, self.dir.path());
        command
    }

    /// A command for any program, in the switch's directory and with its environment.
    pub fn client(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        folders(&mut command, self.dir.path());
        command.current_dir(self.dir.path());
        command
    }

    /// Runs a program against the switch: returns its output, or its error messages.
    ///
    /// # Errors
    ///
    /// If the program exits with a code other than 0.
    ///
    /// # Panics
    ///
    /// If the program does not exist.
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
    fn large_input_may_be_left_unread() {
        let input = vec![b'x'; 1 << 20];
        assert_eq!(run(Path::new("/bin/cat"), &[], &input).stdout, input);
        assert!(run(Path::new("/bin/true"), &[], &input).status.success());
    }

    #[test]
    fn other_versions_are_not_compared_with() {
        assert!(["4.0", "4.0.0", "4.0.7"].into_iter().all(is_expected));
        assert!(!["", "3.1.0", "4", "4.01.0", "4.1.0", "14.0.0"].into_iter().any(is_expected));
    }

    #[test]
    fn logs_are_no_errors() {
        let output = run(Path::new("/bin/sh"), &["-c", "printf 'a|WARN|b\\nprogram: wrong\\n' >&2; exit 1"], &[]);
        assert_eq!(errors(&output), "program: wrong");
    }
}
