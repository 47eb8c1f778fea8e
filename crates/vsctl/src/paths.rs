//! Where sockets and logs are.

use std::path::PathBuf;

fn folder(variable: &str, default: &str) -> PathBuf {
    let set = std::env::var_os(variable).filter(|folder| !folder.is_empty());
    set.map_or_else(|| PathBuf::from(default), PathBuf::from)
}

/// The folder of sockets and pid files.
pub(crate) fn rundir() -> PathBuf {
    folder("OVS_RUNDIR", "/var/run/openvswitch")
}

/// The folder of log files.
pub(crate) fn logdir() -> PathBuf {
    folder("OVS_LOGDIR", "/var/log/openvswitch")
}
