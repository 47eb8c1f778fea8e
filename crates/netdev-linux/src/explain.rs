//! Error texts for failures where the kernel's error number does not show the cause: missing capabilities.

use std::io;

use netdev::device::errno_text;
use rustix::thread::{CapabilitySet, capabilities};

/// The capability that an operation needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needed {
    /// For packet sockets.
    NetRaw,
    /// For tap devices, and for changes to devices.
    NetAdmin,
}

impl Needed {
    fn capability(self) -> (&'static str, CapabilitySet) {
        match self {
            Self::NetRaw => ("CAP_NET_RAW", CapabilitySet::NET_RAW),
            Self::NetAdmin => ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
        }
    }

    /// Adds the missing capability to the error, if that is why the operation was refused.
    pub(crate) fn explain(self, error: io::Error) -> io::Error {
        let (name, bit) = self.capability();
        let lacks = || capabilities(None).is_ok_and(|sets| !sets.effective.contains(bit));
        if error.raw_os_error() == Some(libc::EPERM) && lacks() { missing(&error, name) } else { error }
    }

    /// An error of opening the file that the operation needs: adds its name, and the missing capability.
    pub(crate) fn explain_file(self, path: &str, error: io::Error) -> io::Error {
        let (name, bit) = self.capability();
        let lacks = capabilities(None).is_ok_and(|sets| !sets.effective.contains(bit));
        file(path, &error, lacks.then_some(name))
    }
}

fn file(path: &str, error: &io::Error, lacks: Option<&str>) -> io::Error {
    let lacks = lacks.map_or(String::new(), |name| format!(", and the process lacks {name}"));
    io::Error::new(error.kind(), format!("{path}: {}{lacks}", errno_text(error)))
}

fn missing(error: &io::Error, name: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{}: the process lacks {name}", errno_text(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_errors_are_unchanged() {
        let error = Needed::NetRaw.explain(io::Error::from_raw_os_error(libc::ENODEV));
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn the_missing_capability_is_named() {
        let error = missing(&io::Error::from_raw_os_error(libc::EPERM), "CAP_NET_RAW");
        assert_eq!(errno_text(&error), "Operation not permitted: the process lacks CAP_NET_RAW");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn files_are_named() {
        let error = || io::Error::from_raw_os_error(libc::EACCES);
        assert_eq!(errno_text(&file("/dev/net/tun", &error(), None)), "/dev/net/tun: Permission denied");
        let error = file("/dev/net/tun", &error(), Some("CAP_NET_ADMIN"));
        assert_eq!(errno_text(&error), "/dev/net/tun: Permission denied, and the process lacks CAP_NET_ADMIN");
    }
}
