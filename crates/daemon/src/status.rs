//! How a process died, in words.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The signals after which a monitor restarts a daemon: those that indicate a programming error.
const CRASHES: [i32; 9] = [
    4,  // SIGILL
    6,  // SIGABRT
    7,  // SIGBUS
    8,  // SIGFPE
    11, // SIGSEGV
    13, // SIGPIPE
    14, // SIGALRM
    24, // SIGXCPU
    25, // SIGXFSZ
];

/// The exit status of a Rust program whose main thread panicked: a programming error as well.
const PANICKED: i32 = 101;

/// The name of a signal as strsignal(3) gives it.
pub fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "Hangup",
        2 => "Interrupt",
        3 => "Quit",
        4 => "Illegal instruction",
        5 => "Trace/breakpoint trap",
        6 => "Aborted",
        7 => "Bus error",
        8 => "Floating point exception",
        9 => "Killed",
        10 => "User defined signal 1",
        11 => "Segmentation fault",
        12 => "User defined signal 2",
        13 => "Broken pipe",
        14 => "Alarm clock",
        15 => "Terminated",
        24 => "CPU time limit exceeded",
        25 => "File size limit exceeded",
        _ => return format!("Unknown signal {number}"),
    };
    name.to_owned()
}

/// `exit status 1` or `killed (Segmentation fault)`.
pub fn describe(status: ExitStatus) -> String {
    let mut text = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed ({})", signal_name(signal)),
        (None, None) => "stopped".to_owned(),
    };
    if status.core_dumped() {
        text.push_str(", core dumped");
    }
    text
}

/// Returns true if a daemon with this exit status is restarted.
pub fn is_crash(status: ExitStatus) -> bool {
    status.signal().is_some_and(|signal| CRASHES.contains(&signal)) || status.code() == Some(PANICKED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_and_ends() {
        let killed = ExitStatus::from_raw(11);
        assert_eq!(describe(killed), "killed (Segmentation fault)");
        assert!(is_crash(killed));
        let terminated = ExitStatus::from_raw(15);
        assert_eq!(describe(terminated), "killed (Terminated)");
        assert!(!is_crash(terminated));
        let failed = ExitStatus::from_raw(1 << 8);
        assert_eq!(describe(failed), "exit status 1");
        assert!(!is_crash(failed));
        assert!(is_crash(ExitStatus::from_raw(PANICKED << 8)));
        assert_eq!(describe(ExitStatus::from_raw(0x86)), "killed (Aborted), core dumped");
    }
}
