//! Early exits of a command.

use std::fmt::Display;

/// Why a command ends.
#[derive(Debug)]
pub enum Exit {
    /// Prints this line after the program's name, and exits with code 1.
    Fatal(String),
    /// An error of an option.
    Option(cli::Fatal),
    /// Exits with this code; everything was printed before.
    Code(u8),
}

impl From<cli::Fatal> for Exit {
    fn from(error: cli::Fatal) -> Self {
        Self::Option(error)
    }
}

impl From<cli::UsageError> for Exit {
    fn from(error: cli::UsageError) -> Self {
        Self::Option(error.into())
    }
}

/// The result of a command.
pub type Result<T = ()> = std::result::Result<T, Exit>;

/// A fatal error with this text.
pub fn fatal(message: impl Display) -> Exit {
    Exit::Fatal(message.to_string())
}

/// The text of an operating system error, like strerror(3).
pub fn strerror(e: &std::io::Error) -> String {
    let text = e.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}
