//! The time limit of client programs (`--timeout`).

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use crate::signals;

/// Ends this process by SIGALRM after `seconds`, as the clients' manual pages document; 0 means never. A client that
/// became a daemon cleans up first.
pub fn set(seconds: u32) {
    if seconds == 0 {
        return;
    }
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(u64::from(seconds)));
        if !signals::are_caught() {
            signals::log_termination(Signal::ALARM.as_raw());
        }
        // Where no handler is installed, the default action ends the process.
        let _ = kill_process(getpid(), Signal::ALARM);
    });
}
