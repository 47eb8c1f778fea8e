//! The process that starts a daemon again when it crashes (`--monitor`).

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use crate::options::DaemonOptions;
use crate::saved::SavedState;
use crate::signals::Signals;
use crate::stage::{self, Beginning, Notify, Stage};
use crate::{StartError, status};

/// Restarts are at least this far apart.
const RESTART_INTERVAL: Duration = Duration::from_secs(10);

/// How a daemon ended.
struct End {
    pid: u32,
    status: ExitStatus,
    /// The monitor received a signal to end and passed it on.
    asked: bool,
}

/// Starts the daemon and watches it; writes to `notify` when it is ready for the first time. Returns only an error:
/// the process exits when the daemon ends otherwise than by a crash.
pub(crate) fn run<T>(
    args: &[OsString],
    options: &DaemonOptions,
    log: &Arc<vlog::Log>,
    notify: Option<Notify>,
) -> Result<T, StartError> {
    log.set_subprogram("monitor");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Spawn)?;
    // A restarted daemon resolves relative file names of its arguments where the first one did.
    let directory = std::env::current_dir().ok();
    let saved_state = SavedState::create().map_err(StartError::Spawn)?;
    let child = match spawn(args, options, None, &saved_state).map_err(StartError::Spawn)? {
        Beginning::Ready(child) => child,
        Beginning::Ended { status, .. } => std::process::exit(stage::exit_code(log.program(), status)),
    };
    if let Err(error) = stage::leave_terminal(options, log) {
        warn!(target: "daemon_unix", "could not leave the terminal: {error}");
    }
    if let Some(notify) = notify {
        // The waiting process may be gone; the monitor watches the daemon all the same.
        let _ = notify.ready();
    }
    let mut crashes = 0_u64;
    let mut last_restart: Option<Instant> = None;
    let mut end = runtime.block_on(watch(child)).map_err(StartError::Spawn)?;
    loop {
        let description = format!("pid {} died, {}", end.pid, status::describe(end.status));
        if end.asked || !status::is_crash(end.status) {
            info!(target: "daemon_unix", "{description}, exiting");
            std::process::exit(0);
        }
        crashes += 1;
        remove_control_socket(options, log.program(), end.pid);
        let description = format!("{crashes} crashes: {description}");
        if let Some(rest) = last_restart.and_then(|last| RESTART_INTERVAL.checked_sub(last.elapsed())) {
            warn!(target: "daemon_unix", "{description}, waiting until 10 seconds since last restart");
            std::thread::sleep(rest);
        }
        last_restart = Some(Instant::now());
        error!(target: "daemon_unix", "{description}, restarting");
        end = match spawn(args, options, directory.as_deref(), &saved_state) {
            Ok(Beginning::Ready(child)) => runtime.block_on(watch(child)).map_err(StartError::Spawn)?,
            Ok(Beginning::Ended { pid, status }) => End { pid, status, asked: false },
            Err(error) => {
                error!(target: "daemon_unix", "could not start the daemon again ({error}), exiting");
                std::process::exit(1);
            }
        };
    }
}

fn spawn(
    args: &[OsString],
    options: &DaemonOptions,
    directory: Option<&Path>,
    saved_state: &File,
) -> io::Result<Beginning> {
    stage::spawn(args, options, Stage::Monitored, directory, saved_state.try_clone()?)
}

/// Removes a file that a crashed daemon leaves behind: the socket that has its pid in its name.
fn remove_control_socket(options: &DaemonOptions, program: &str, pid: u32) {
    if options.unixctl.is_none() {
        // It may have crashed before it created the socket.
        let _ = std::fs::remove_file(crate::options::default_control_path(program, pid));
    }
}

/// Waits for the end of `child`. Passes the signals that end a daemon on to it.
async fn watch(mut child: Child) -> io::Result<End> {
    let pid = child.id();
    let mut signals = Signals::catch()?;
    let mut died = signal(SignalKind::child())?;
    let mut asked = false;
    loop {
        // After the handler of SIGCHLD is installed, so that no exit is missed.
        if let Some(status) = child.try_wait()? {
            return Ok(End { pid, status, asked });
        }
        let number = tokio::select! {
            _ = died.recv() => continue,
            number = signals.received() => number,
        };
        asked = true;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(number)) {
            // The child is not reaped yet, so the number is its own.
            kill_process(pid, signal)?;
        }
    }
}
