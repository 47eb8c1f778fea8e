//! Standard output of the programs, which may be a pipe whose reader has gone (`PROG ... | head -1`).
//!
//! The programs of Open vSwitch ignore SIGPIPE once they have read their options, and do not look at the results of
//! writes: output without a reader is lost, and the exit status is that of the command. Most of them print the answers to
//! `--help` and `--version` earlier, and SIGPIPE ends them. `println!` does neither, it panics; therefore programs
//! print only with the functions and macros of this file.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The number of SIGPIPE.
const SIGPIPE: i32 = 13;

/// Writes to standard output like `print!`, but ignores errors.
#[macro_export]
macro_rules! out {
    ($($argument:tt)*) => {
        $crate::output::write(format_args!($($argument)*))
    };
}

/// Writes a line to standard output like `println!`, but ignores errors.
#[macro_export]
macro_rules! outln {
    ($($argument:tt)*) => {
        $crate::output::write(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Writes to standard output and ignores errors; [`out!`](crate::out) and [`outln!`](crate::outln) call it.
pub fn write(arguments: Arguments<'_>) {
    // The reader has gone, but the work of the program goes on.
    let _ = std::io::stdout().lock().write_fmt(arguments);
}

/// Writes `bytes` to standard output at once, with all that was written before, and ignores errors.
pub fn write_now(bytes: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}

/// Writes `text` to standard output. A closed reader is no failure: `PROG ... | head` succeeds.
pub fn print(text: &str) -> ExitCode {
    write_now(text.as_bytes());
    ExitCode::SUCCESS
}

/// Writes `text`, the answer to an option, in a program that ignores SIGPIPE only after its options: if the reader has
/// gone, the process ends by SIGPIPE.
pub fn print_or_end(text: &str) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            end_by_signal(SIGPIPE);
            std::process::exit(128 + SIGPIPE)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Ends the process by a signal whose default effect that is. Returns only if there is no shell to raise it.
pub fn end_by_signal(number: i32) {
    // A handler once installed stays until another program is executed: a shell has none, and can raise the signal.
    // `exec` also restores the default effect of SIGPIPE, which Rust programs ignore.
    let _failed =
        Command::new("/bin/sh").args(["-c", "kill -\"$0\" $$; exit $((128 + $0))", &number.to_string()]).exec();
}
