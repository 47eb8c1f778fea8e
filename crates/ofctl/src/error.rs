//! How a command ends early.

use std::fmt::Display;

/// Why a command ends.
#[derive(Debug)]
pub enum Exit {
    /// With this line after the program's name, and exit code 1.
    Fatal(String),
    /// With this exit code; all was said.
    Code(u8),
}

/// What commands give.
pub type Result<T = ()> = std::result::Result<T, Exit>;

/// A fatal error with this text.
pub fn fatal(message: impl Display) -> Exit {
    Exit::Fatal(message.to_string())
}

/// The text of an operating system error, as strerror(3) has it.
pub fn strerror(e: &std::io::Error) -> String {
    let text = e.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}
