//! Unix sockets: paths longer than the 107 bytes that a socket address holds, and sockets that only their owner and
//! group may use.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tracing::warn;

/// The longest path in a socket address, without its NUL (unix(7)).
const PATH_BYTES_MAX: usize = 107;

/// Group and owner may connect; the umask applies as to a file.
const SOCKET_MODE: u32 = 0o770;

/// Connections waiting to be accepted.
const BACKLOG: i32 = 64;

/// A path that fits a socket address, and the directory that must stay open for it.
struct ShortPath {
    path: PathBuf,
    _directory: Option<OwnedFd>,
}

/// A long path is reached through the descriptor of its directory.
fn shorten(path: &Path) -> io::Result<ShortPath> {
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return Ok(ShortPath { path: path.to_owned(), _directory: None });
    }
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    if short.as_os_str().as_bytes().len() > PATH_BYTES_MAX {
        warn!(target: "socket_util_unix", "Unix socket name {} is longer than maximum {PATH_BYTES_MAX} bytes", path.display());
        return Err(rustix::io::Errno::NAMETOOLONG.into());
    }
    Ok(ShortPath { path: short, _directory: Some(directory) })
}

/// Connects to the socket at `path`, blocking.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let short = shorten(path)?;
    UnixStream::connect(&short.path)
}

/// Listens at `path`, replacing an existing socket, with the permissions of a control socket: other users can never
/// connect. The listener is non-blocking.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let short = shorten(path)?;
    // Any other file stays, and listening fails: its name was given by mistake.
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    // The mode of the socket's inode before the umask is the mode of the file descriptor that is bound (unix(7)).
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(SOCKET_MODE))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(&short.path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn long_paths_work_and_permissions_are_private() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let path = deep.join("socket");
        let _listener = listen(&path).unwrap();
        connect(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o007, 0);
        let _again = listen(&path).unwrap();
        let file = deep.join("file");
        std::fs::write(&file, "contents").unwrap();
        assert_eq!(listen(&file).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read(&file).unwrap(), b"contents");
    }
}
