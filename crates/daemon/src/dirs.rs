//! The directories, and the environment variables that move them.

use std::path::{Path, PathBuf};

fn directory(variable: &str, default: &str) -> PathBuf {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map_or_else(|| PathBuf::from(default), PathBuf::from)
}

/// Pid files and sockets: `OVS_RUNDIR`, or /var/run/openvswitch.
pub fn rundir() -> PathBuf {
    directory("OVS_RUNDIR", "/var/run/openvswitch")
}

/// Log files: `OVS_LOGDIR`, or /var/log/openvswitch.
pub fn logdir() -> PathBuf {
    directory("OVS_LOGDIR", "/var/log/openvswitch")
}

/// Configuration: `OVS_SYSCONFDIR`, or /etc; the programs' own files are in `openvswitch` below it.
pub fn sysconfdir() -> PathBuf {
    directory("OVS_SYSCONFDIR", "/etc")
}

/// Databases: `OVS_DBDIR`, or `openvswitch` below `OVS_SYSCONFDIR`, or /etc/openvswitch.
pub fn dbdir() -> PathBuf {
    std::env::var_os("OVS_DBDIR")
        .filter(|value| !value.is_empty())
        .map_or_else(|| sysconfdir().join("openvswitch"), PathBuf::from)
}

/// Data of the package, such as schemas: `OVS_PKGDATADIR`, or /usr/share/openvswitch.
pub fn pkgdatadir() -> PathBuf {
    directory("OVS_PKGDATADIR", "/usr/share/openvswitch")
}

/// `name` in `directory`, unless it is absolute.
pub fn within(directory: &Path, name: impl AsRef<Path>) -> PathBuf {
    let joined = directory.join(name);
    std::path::absolute(&joined).unwrap_or(joined)
}
