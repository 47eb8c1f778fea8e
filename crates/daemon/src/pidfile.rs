//! Pid files: a decimal process id and a newline, locked by fcntl(2) while the process lives.
//!
//! The lock, not the file, proves that the process runs: the kernel releases it however the process ends, and `ovs-appctl`
//! checks it before it trusts the number. A process loses its lock when it closes *any* descriptor of the file, so
//! nothing else in the process may open its own pid file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk};

/// Longer than any pid file.
const CONTENT_BYTES_MAX: u64 = 64;

/// Why a pid file could not be created.
#[derive(Debug, thiserror::Error)]
pub enum PidFileError {
    /// It belongs to a running process.
    #[error("{path}: already running as pid {pid}, aborting")]
    Running {
        /// The file.
        path: PathBuf,
        /// The process.
        pid: i32,
    },
    /// It is a directory.
    #[error("{path}: pidfile check failed (Is a directory), aborting")]
    Check {
        /// The directory.
        path: PathBuf,
    },
    /// The file could not be created.
    #[error("{path}: {operation} failed ({reason})")]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        operation: &'static str,
        /// The cause.
        reason: String,
    },
}

/// A pid file of this process; removed when dropped.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

impl PidFile {
    /// Creates the pid file at `path`; replaces the file of a running process only if `overwrite`.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, PidFileError> {
        if !overwrite {
            refuse_if_running(path)?;
        }
        // The file appears under its name once it is complete and locked.
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let fail = |operation: &'static str, error: io::Error| PidFileError::Io {
            path: temporary.clone(),
            operation,
            reason: reason_of(&error),
        };
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o666)
            .open(&temporary)
            .map_err(|error| fail("create", error))?;
        rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| fail("fcntl(F_SETLK)", error.into()))?;
        file.set_len(0).map_err(|error| fail("truncate", error))?;
        writeln!(file, "{}", std::process::id()).map_err(|error| fail("write", error))?;
        std::fs::rename(&temporary, path).map_err(|error| fail("rename", error))?;
        Ok(Self { path: path.to_owned(), _file: file })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another process may have removed it already.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn refuse_if_running(path: &Path) -> Result<(), PidFileError> {
    if path.is_dir() {
        return Err(PidFileError::Check { path: path.to_owned() });
    }
    match read(path) {
        Ok(pid) => Err(PidFileError::Running { path: path.to_owned(), pid }),
        // No file, or a stale one.
        Err(_) => Ok(()),
    }
}

/// Returns the process that the pid file at `path` belongs to. Errors: `NotFound` without the file, and
/// `ESRCH` for a file that no running process holds.
pub fn read(path: &Path) -> io::Result<i32> {
    let mut file = OpenOptions::new().read(true).open(path)?;
    let holder = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock))?;
    let Some(holder) = holder.filter(|lock| lock.typ != FlockType::Unlocked) else {
        return Err(rustix::io::Errno::SRCH.into());
    };
    let mut text = String::new();
    Read::by_ref(&mut file).take(CONTENT_BYTES_MAX).read_to_string(&mut text)?;
    let pid: i32 = text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    match holder.pid.map(Pid::as_raw_pid) {
        // The kernel does not report a holder in another process namespace.
        None => Ok(pid),
        Some(holder) if holder == pid => Ok(pid),
        Some(_) => Err(rustix::io::Errno::SRCH.into()),
    }
}

/// The text of an error without the number that Rust appends.
pub fn reason_of(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_lock_is_stale() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.pid");
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "1\n").unwrap();
        assert_eq!(read(&path).unwrap_err().raw_os_error(), Some(rustix::io::Errno::SRCH.raw_os_error()));
        let created = PidFile::create(&path, false).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(created);
        assert!(!path.exists());
    }

    #[test]
    fn errors_name_the_file() {
        let error = PidFile::create(Path::new("/nonexistent/a.pid"), false).unwrap_err();
        assert_eq!(error.to_string(), "/nonexistent/a.pid.tmp: create failed (No such file or directory)");
    }
}
