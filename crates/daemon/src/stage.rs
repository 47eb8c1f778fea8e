//! Detaching without fork: the program starts itself again.
//!
//! A process started with `--detach` starts its own executable with the same arguments and an environment variable
//! that names the new process's stage, and waits on a pipe, the new process's standard output. The new process
//! leads a session of its own, does its set-up, and writes a NUL byte when it is ready; the waiting process then exits with
//! status 0. If the pipe ends without that byte, the new process has printed the reason on the shared standard error,
//! and the waiting process exits with the same status. `--monitor` puts one more process between the two, which waits
//! for readiness in the same way and then stays ([`crate::monitor`]).
//!
//! The variable also contains the id of the process that set it, so that a program which the daemon starts, and which
//! inherits the variable, does not take itself for the daemon.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use cli::program::MONITOR_TITLE;
use rustix::fd::OwnedFd;

use crate::options::DaemonOptions;
use crate::saved::SavedState;
use crate::{StartError, monitor, status, user};

/// The environment variable with the stage of a process.
const VARIABLE: &str = "FLOWSTONE_DAEMON_STAGE";

/// The executable of this process, even if its file has been replaced.
const SELF: &str = "/proc/self/exe";

/// The C library's tunables, and the one that backs the heap with large pages where the kernel offers them on request
/// (`madvise` in /sys/kernel/mm/transparent_hugepage/enabled): cached flows are many, small and accessed in random
/// order, so that with small pages most accesses cost a walk of the page table.
const TUNABLES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// A process writes this to its parent when it is ready.
const READY: u8 = 0;

/// The role of a process in detaching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The process that the user started.
    First,
    /// The same process after it changed its user.
    OtherUser,
    /// In the background, watching the daemon.
    Monitor,
    /// The daemon itself, in a session of its own.
    Detached,
    /// The daemon itself under a monitor; the session is the monitor's.
    Monitored,
}

impl Stage {
    const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::OtherUser => "other-user",
            Self::Monitor => "monitor",
            Self::Detached => "detached",
            Self::Monitored => "monitored",
        }
    }

    /// Reads the stage that the parent passed in the environment, if it passed one.
    pub(crate) fn current() -> Self {
        let value = std::env::var(VARIABLE).unwrap_or_default();
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        match value.split_once(':') {
            Some((name, pid)) if pid == parent.to_string() => {
                [Self::OtherUser, Self::Monitor, Self::Detached, Self::Monitored]
                    .into_iter()
                    .find(|stage| stage.name() == name)
                    .unwrap_or(Self::First)
            }
            _ => Self::First,
        }
    }
}

/// The pipe to the process that waits for readiness.
#[derive(Debug)]
pub(crate) struct Notify(File);

impl Notify {
    /// Takes standard output, which is the pipe, so that no child of this process inherits it.
    fn take() -> io::Result<Self> {
        let copy: OwnedFd = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        Ok(Self(File::from(copy)))
    }

    pub(crate) fn ready(mut self) -> io::Result<()> {
        self.0.write_all(&[READY])
    }
}

/// The outcome of starting a process.
#[derive(Debug)]
pub(crate) enum Beginning {
    /// It is ready.
    Ready(Child),
    /// It ended before it was ready.
    Ended { pid: u32, status: ExitStatus },
}

/// Starts this program again as `stage`, in `directory` if one is given, with `input` as its standard input, and waits
/// until it is ready or ends. A process that forwards packets gets large pages for its heap, unless the user has tuned the
/// heap otherwise.
pub(crate) fn spawn(
    args: &[OsString],
    options: &DaemonOptions,
    stage: Stage,
    directory: Option<&Path>,
    input: impl Into<Stdio>,
) -> io::Result<Beginning> {
    let mut command = Command::new(SELF);
    let argv0 = args.first().map_or(OsStr::new("flowstone"), OsString::as_os_str);
    command.args(args.iter().skip(1));
    // `argv[0]` of a monitor names its role; `without_title` removes that again.
    let mut title = without_title(argv0);
    if stage == Stage::Monitor {
        title.push(MONITOR_TITLE);
    }
    command.arg0(title);
    command.env(VARIABLE, format!("{}:{}", stage.name(), std::process::id()));
    if let Some((variable, value)) = vlog::log().map(|log| log.continuation()) {
        command.env(variable, value);
    }
    if options.datapath_access && std::env::var_os(TUNABLES.0).is_none() {
        command.env(TUNABLES.0, TUNABLES.1);
    }
    command.stdin(input).stdout(Stdio::piped());
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    let mut child = command.spawn()?;
    let ready = child.stdout.take().is_some_and(wait_ready);
    if ready {
        return Ok(Beginning::Ready(child));
    }
    let pid = child.id();
    Ok(Beginning::Ended { pid, status: child.wait()? })
}

/// Returns `argv[0]` without the mark of a monitor.
fn without_title(argv0: &OsStr) -> OsString {
    argv0.to_str().and_then(|name| name.strip_suffix(MONITOR_TITLE)).map_or_else(|| argv0.to_owned(), OsString::from)
}

/// Copies the output of a started process until it is ready (true) or ends.
fn wait_ready(mut pipe: impl Read) -> bool {
    let mut byte = [0];
    loop {
        match pipe.read(&mut byte) {
            Ok(0) => return false,
            Ok(_) if byte == [READY] => return true,
            Ok(_) => {
                let _ = io::stdout().write_all(&byte);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// The connections of the process that does the work to the processes that started it.
#[derive(Debug, Default)]
pub(crate) struct Entered {
    /// The pipe to the waiting process.
    pub(crate) notify: Option<Notify>,
    /// Under a monitor: what the daemon keeps across crashes.
    pub(crate) saved_state: Option<SavedState>,
}

/// Runs the stage of this process. Returns in the process that does the work.
pub(crate) fn enter(args: &[OsString], options: &DaemonOptions, log: &Arc<vlog::Log>) -> Result<Entered, StartError> {
    let stage = Stage::current();
    if let (Stage::First, Some(user)) = (stage, &options.user) {
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        let environment = (VARIABLE, format!("{}:{parent}", Stage::OtherUser.name()));
        return Err(user::become_user(user, args, options, log.file().as_deref(), SELF, environment).into());
    }
    match stage {
        Stage::First | Stage::OtherUser if options.detach => {
            let next = if options.monitor { Stage::Monitor } else { Stage::Detached };
            let beginning = spawn(args, options, next, None, Stdio::null()).map_err(StartError::Spawn)?;
            match beginning {
                Beginning::Ready(_) => std::process::exit(0),
                Beginning::Ended { status, .. } => std::process::exit(exit_code(log.program(), status)),
            }
        }
        Stage::First | Stage::OtherUser if options.monitor => monitor::run(args, options, log, None),
        Stage::First | Stage::OtherUser => Ok(Entered::default()),
        Stage::Monitor => {
            new_session();
            let notify = Notify::take().map_err(StartError::Spawn)?;
            monitor::run(args, options, log, Some(notify))
        }
        Stage::Detached => {
            new_session();
            let notify = Notify::take().map_err(StartError::Spawn)?;
            Ok(Entered { notify: Some(notify), saved_state: None })
        }
        Stage::Monitored => {
            let notify = Notify::take().map_err(StartError::Spawn)?;
            let saved_state = SavedState::take().map_err(StartError::Spawn)?;
            Ok(Entered { notify: Some(notify), saved_state: Some(saved_state) })
        }
    }
}

/// Exit status of a process whose child ended before it was ready: the child's if that indicates a failure, which the
/// child has explained, and otherwise 1.
pub(crate) fn exit_code(program: &str, status: ExitStatus) -> i32 {
    match status.code() {
        Some(code) if code != 0 => code,
        _ => {
            eprintln!("{program}: child process died before it was ready ({})", status::describe(status));
            1
        }
    }
}

fn new_session() {
    // It fails for the leader of a process group only, which a new child is not.
    let _ = rustix::process::setsid();
}

pub(crate) fn null() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/null")
}

/// Redirects standard output to /dev/null.
pub(crate) fn silence_stdout() -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdout(null()?)?)
}

/// Leaves the terminal and the directory, unless the daemon runs in the foreground.
pub(crate) fn leave_terminal(options: &DaemonOptions, log: &vlog::Log) -> io::Result<()> {
    if !options.detach {
        return Ok(());
    }
    let null = null()?;
    log.set_level(None, Some(vlog::Destination::Console), vlog::Level::Off);
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    if !options.keep_stderr {
        rustix::stdio::dup2_stderr(&null)?;
    }
    if !options.no_chdir {
        std::env::set_current_dir("/")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_a_nul_byte() {
        assert!(wait_ready(&b"\0"[..]));
        assert!(!wait_ready(&b""[..]));
    }

    #[test]
    fn the_process_title_is_removed() {
        assert_eq!(without_title(OsStr::new("/usr/bin/ovs-vswitchd: monitoring")), "/usr/bin/ovs-vswitchd");
        assert_eq!(without_title(OsStr::new("ovs-vswitchd")), "ovs-vswitchd");
    }
}
