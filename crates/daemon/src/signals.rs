//! Signals that end a daemon after it has cleaned up, and signals of faults, which kill it at once.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::process::{Signal as Number, getpid, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::warn;

use crate::status;

/// True if this process catches the signals that end it, and logs them itself.
static ARE_CAUGHT: AtomicBool = AtomicBool::new(false);

/// The signal that ended the daemon, or 0.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);

/// The signals that end a daemon; `None` for a signal that its parent made it ignore, as nohup(1) does.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
    hang_up: Option<Signal>,
    alarm: Option<Signal>,
}

impl Signals {
    /// Needs a tokio runtime with I/O.
    pub(crate) fn catch() -> io::Result<Self> {
        let ignored = signal_set("SigIgn:").unwrap_or(0);
        let catch = |kind: SignalKind| match ignored & bit(kind.as_raw_value()) {
            0 => signal(kind).map(Some),
            _ => Ok(None),
        };
        let signals = Self {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hang_up: catch(SignalKind::hangup())?,
            alarm: catch(SignalKind::alarm())?,
        };
        ARE_CAUGHT.store(true, Ordering::Release);
        Ok(signals)
    }

    /// Returns the number of the next signal. Cancel safe.
    pub(crate) async fn received(&mut self) -> i32 {
        let kind = tokio::select! {
            () = next(&mut self.terminate) => SignalKind::terminate(),
            () = next(&mut self.interrupt) => SignalKind::interrupt(),
            () = next(&mut self.hang_up) => SignalKind::hangup(),
            () = next(&mut self.alarm) => SignalKind::alarm(),
        };
        kind.as_raw_value()
    }
}

/// Waits for a signal; forever for one that is not caught.
async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Returns true if [`Signals`] catches signals in this process.
pub(crate) fn are_caught() -> bool {
    ARE_CAUGHT.load(Ordering::Acquire)
}

/// Logs that a signal ends the daemon, and remembers it for [`finish`].
pub(crate) fn log_end(number: i32) {
    ENDED_BY.store(number, Ordering::Release);
    log_termination(number);
}

/// Waits for a signal that ends a program, logs it and remembers it for [`finish`]. For programs that are no daemons.
///
/// # Errors
///
/// Signals cannot be caught.
pub async fn ended_by_signal() -> io::Result<()> {
    let number = Signals::catch()?.received().await;
    log_end(number);
    Ok(())
}

/// Logs that a signal ends the process.
pub(crate) fn log_termination(number: i32) {
    warn!(target: "fatal_signal", "terminating with signal {number} ({})", status::signal_name(number));
}

/// Returns the exit status of a program. If a signal ended its daemon, the process dies by that signal instead, as its
/// parent expects; call it after everything is cleaned up.
pub fn finish(code: ExitCode) -> ExitCode {
    let number = ENDED_BY.load(Ordering::Acquire);
    if number == 0 {
        return code;
    }
    cli::output::end_by_signal(number);
    // Without a shell, the status that a shell would report.
    u8::try_from(number).map_or(code, |number| ExitCode::from(128_u8.saturating_add(number)))
}

/// Restores the default effect of SIGSEGV and SIGBUS, which kill the process.
///
/// The standard library handles these signals to detect stack overflows. If the fault is none, its handler restores the
/// default and returns: a second fault at the same instruction kills, but a signal sent by another process would have no
/// effect. So this function lets the handler run once.
pub(crate) fn restore_faults() {
    let caught = signal_set("SigCgt:").unwrap_or(0);
    for signal in [Number::SEGV, Number::BUS] {
        if caught & bit(signal.as_raw()) != 0 {
            // A process may always signal itself.
            let _ = kill_process(getpid(), signal);
        }
    }
}

/// The set of signals by that name in /proc/self/status (proc(5)).
fn signal_set(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let set = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

/// The element of a set of signals.
const fn bit(number: i32) -> u64 {
    1 << (number - 1)
}
