//! The time limit of client programs (`--timeout`).

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tracing::warn;

/// Ends this process by SIGALRM after `seconds`, as the clients' manual pages document; 0 means never.
pub fn set(seconds: u32) {
    if seconds == 0 {
        return;
    }
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(u64::from(seconds)));
        let number = Signal::ALARM.as_raw();
        warn!(target: "fatal_signal", "terminating with signal {number} ({})", crate::status::signal_name(number));
        // No handler is installed: the default action ends the process.
        let _ = kill_process(getpid(), Signal::ALARM);
    });
}
