//! The common part of all daemons: run directories, pid files, detaching, the monitor process, standard options and control
//! commands.
//!
//! A daemon's `main`:
//!
//! 1. parses its options including [`OPTIONS`], and passes these to [`DaemonOptions::accept`];
//! 2. calls [`start`], which returns in the process that does the work (with `--detach` or `--monitor`
//!    another one: see [`stage`]), with the pid file created and the log file open;
//! 3. binds its control socket by [`Started::bind_control`], registers its commands and [`control::register`];
//! 4. sets itself up, calls [`Started::ready`], which releases the waiting parent, and serves;
//! 5. ends when [`Started::terminated`] returns. Dropping [`Started`] removes the pid file, dropping the server its socket;
//! 6. returns the exit status from [`finish`], so that a daemon that a signal ended dies by that signal.

pub mod alarm;
pub mod control;
pub mod dirs;
mod monitor;
pub mod options;
pub mod pidfile;
mod saved;
mod signals;
pub mod stage;
pub mod status;
pub mod user;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tracing::{error, warn};

pub use control::Shutdown;
pub use options::{DaemonOptions, OPTIONS};
pub use pidfile::{PidFile, PidFileError};
pub use saved::SavedState;
pub use signals::{ended_by_signal, finish};

use signals::Signals;

/// How long an exiting daemon continues to deliver replies of control commands.
const LAST_REPLIES: Duration = Duration::from_secs(1);

/// Why a daemon cannot start; a program prints it after its name and exits with status 1.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The pid file.
    #[error("{0}")]
    PidFile(#[from] PidFileError),
    /// The process that does the work could not be started or watched.
    #[error("could not start a background process ({0})")]
    Spawn(io::Error),
    /// The control socket.
    #[error("{path}: could not initialize control socket ({})", pidfile::reason_of(.reason))]
    Control {
        /// Its path.
        path: PathBuf,
        /// The cause.
        reason: io::Error,
    },
    /// `--user`.
    #[error("{0}")]
    User(#[from] user::UserError),
}

/// The reason for the end of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The control command `exit`, with `--cleanup` or without.
    Exit {
        /// Whether the daemon removes what it created in the kernel.
        cleanup: bool,
    },
    /// A signal, by its number.
    Signal(i32),
}

/// A running daemon; dropping it removes the pid file.
#[derive(Debug)]
pub struct Started {
    log: Arc<vlog::Log>,
    options: DaemonOptions,
    notify: Option<stage::Notify>,
    saved_state: Option<SavedState>,
    _pid_file: Option<PidFile>,
    shutdown: Shutdown,
    /// Caught from [`Started::ready`] on, so that no signal kills a serving daemon before it can clean up.
    signals: tokio::sync::Mutex<Option<Signals>>,
}

/// Turns this process into the daemon that `options` describe. `args` is the original command line, `argv[0]`
/// first, from which the process starts itself again.
///
/// With `--detach` or `--monitor` only the process that does the work returns from here; the others exit. Call it
/// before creating threads, sockets and other expensive resources.
pub fn start(args: &[OsString], options: DaemonOptions, log: &Arc<vlog::Log>) -> Result<Started, StartError> {
    // The kernel names the process after its executable, which all programs share.
    let name = std::ffi::CString::new(log.program().as_bytes()).unwrap_or_default();
    // A process without a name of its own works, too.
    let _ = rustix::thread::set_name(&name);
    let stage::Entered { notify, saved_state } = stage::enter(args, &options, log)?;
    signals::restore_faults();
    if notify.is_some() {
        // Between this line and `ready`, standard error is still that of the process that started the daemon.
        stage::silence_stdout().map_err(StartError::Spawn)?;
    }
    log_panics();
    let pid_file = match options.pidfile_path(log.program()) {
        Some(path) => {
            let created = PidFile::create(&path, options.overwrite_pidfile);
            Some(created.inspect_err(|error| log.write_fatal("daemon_unix", &error.to_string()))?)
        }
        None => None,
    };
    let shutdown = Shutdown::default();
    let (log, signals) = (Arc::clone(log), tokio::sync::Mutex::default());
    Ok(Started { log, options, notify, saved_state, _pid_file: pid_file, shutdown, signals })
}

/// Logs panics: a daemon that has left its terminal has no standard error.
fn log_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        vlog::emer!(target: "util", "{panic}");
        print(panic);
    }));
}

impl Started {
    /// Binds the control socket for `commands`; `None` for `--unixctl=none`. Its clients wait until
    /// [`unixctl::Server::run`] runs.
    pub fn bind_control(&self, commands: unixctl::Commands) -> Result<Option<unixctl::Server>, StartError> {
        let Some(path) = self.options.control_path(self.log.program()) else { return Ok(None) };
        match unixctl::Server::bind(&path, commands) {
            Ok(server) => Ok(Some(server)),
            Err(reason) => {
                error!(target: "stream_unix", "{}: binding failed: {}", path.display(), pidfile::reason_of(&reason));
                Err(StartError::Control { path, reason })
            }
        }
    }

    /// A handle by which the control command `exit` and others end the daemon.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// The state that the daemon keeps across its crashes; `None` without `--monitor`.
    pub fn saved_state(&self) -> Option<SavedState> {
        self.saved_state.clone()
    }

    /// The logging of the daemon.
    pub fn log(&self) -> &Arc<vlog::Log> {
        &self.log
    }

    /// Notifies the waiting parent that the daemon is ready. After `--detach` the daemon leaves its terminal: standard
    /// streams go to /dev/null, console logging is off, and the directory is the root unless `--no-chdir` was given.
    ///
    /// Call it in the runtime in which [`Self::terminated`] will run: signals are caught from here on.
    pub fn ready(&mut self) {
        if tokio::runtime::Handle::try_current().is_ok() {
            match Signals::catch() {
                Ok(signals) => *self.signals.get_mut() = Some(signals),
                Err(error) => warn!(target: "signals", "could not catch signals: {error}"),
            }
        }
        let Some(notify) = self.notify.take() else { return };
        if let Err(error) = stage::leave_terminal(&self.options, &self.log) {
            warn!(target: "daemon_unix", "could not leave the terminal: {error}");
        }
        if let Err(error) = notify.ready() {
            // The waiting process is gone, which does not concern the daemon.
            warn!(target: "daemon_unix", "could not tell the parent process: {error}");
        }
    }

    /// Waits for the end: SIGTERM, SIGINT, SIGHUP, SIGALRM or the control command `exit`, whose reply is delivered first
    /// (`commands` are the registered ones). Meanwhile event counters are sampled.
    ///
    /// Cancel safe. Needs a tokio runtime with I/O and time.
    pub async fn terminated(&self, commands: &unixctl::Commands) -> io::Result<Reason> {
        // They stay when the caller stops waiting and begins again, so that no signal in between is lost.
        let mut caught = self.signals.lock().await;
        let signals = match &mut *caught {
            Some(signals) => signals,
            None => caught.insert(Signals::catch()?),
        };
        let mut sample = tokio::time::interval(Duration::from_secs(base::coverage::TICK_SECONDS));
        sample.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                number = signals.received() => {
                    signals::log_end(number);
                    return Ok(Reason::Signal(number));
                }
                _ = sample.tick() => base::coverage::tick(),
                reason = self.shutdown.requested() => {
                    // The daemon does not wait for a client that does not read its reply.
                    let _ = tokio::time::timeout(LAST_REPLIES, commands.drained()).await;
                    return Ok(reason);
                }
            }
        }
    }
}
