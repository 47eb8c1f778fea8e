//! Locates the control socket of a daemon and calls its commands, for `ovs-appctl` and `ovs-dpctl`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::{dirs, pidfile};
use serde_json::Value;
use tracing::warn;
use unixctl::Client;
use unixctl::client::CallError;

/// Why a command failed; each variant has its exit code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The daemon is not reachable, or the connection broke. Exit code 1.
    #[error("{0}")]
    Unreachable(String),
    /// The daemon replied with an error, whose text is printed unchanged. Exit code 2.
    #[error("{0}")]
    Refused(String),
}

/// The text of a reply as a program prints it: daemons end a line only before another one.
pub(crate) fn terminated(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The socket of `target`: a path, or the name of a daemon, whose pid file gives the path.
fn socket_path(target: &str) -> Result<PathBuf, Failure> {
    if target.starts_with('/') {
        return Ok(PathBuf::from(target));
    }
    let pid_file = dirs::rundir().join(format!("{target}.pid"));
    let pid = pidfile::read(&pid_file).map_err(|error| {
        let reason = pidfile::reason_of(&error);
        if error.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error()) {
            warn!(target: "daemon_unix", "{}: open: {reason}", pid_file.display());
        }
        Failure::Unreachable(format!("cannot read pidfile \"{}\" ({reason})", pid_file.display()))
    })?;
    Ok(dirs::within(&dirs::rundir(), format!("{target}.{pid}.ctl")))
}

/// A connection to a daemon.
pub(crate) struct Connection {
    client: Client,
    path: PathBuf,
    target: String,
}

impl Connection {
    /// Connects to the daemon `target`.
    pub(crate) fn open(target: &str) -> Result<Self, Failure> {
        let path = socket_path(target)?;
        let client = connect(&path)?;
        Ok(Self { client, path, target: target.to_owned() })
    }

    /// Sets a timeout, which is not zero, for each read and write of later calls.
    pub(crate) fn set_patience(&self, longest: Duration) -> Result<(), Failure> {
        let set = self.client.set_patience(longest);
        set.map_err(|error| Failure::Unreachable(pidfile::reason_of(&error)))
    }

    /// Calls a command.
    pub(crate) fn call(&mut self, command: &str, args: &[String]) -> Result<Value, Failure> {
        match self.client.call(command, args) {
            Ok(answer) => answer.map_err(Failure::Refused),
            Err(error) => {
                let reason = match &error {
                    CallError::Io(error) => pidfile::reason_of(error),
                    other => other.to_string(),
                };
                warn!(target: "unixctl", "error communicating with unix:{}: {reason}", self.path.display());
                Err(Failure::Unreachable(format!("{}: transaction error ({reason})", self.target)))
            }
        }
    }
}

fn connect(path: &Path) -> Result<Client, Failure> {
    Client::connect(path).map_err(|error| {
        warn!(target: "unixctl", "failed to connect to {}", path.display());
        Failure::Unreachable(format!("cannot connect to \"{}\" ({})", path.display(), pidfile::reason_of(&error)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_end_with_a_newline() {
        assert_eq!(terminated("a".to_owned()), "a\n");
        assert_eq!(terminated("a\n".to_owned()), "a\n");
        assert_eq!(terminated(String::new()), "");
    }
}
