//! `--user`: run as another user than root.
//!
//! The process changes its ids and then replaces itself by its own executable. The few
//! capabilities that a daemon keeps are in the ambient set, which survives that (capabilities(7)); the process loses
//! all others.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, Gid, Uid};

use crate::options::DaemonOptions;

/// Capabilities of every daemon: memory locks and ports below 1024.
const DAEMON: CapabilitySet = CapabilitySet::IPC_LOCK.union(CapabilitySet::NET_BIND_SERVICE);

/// Additional capabilities of a daemon with a datapath: network devices and raw packets.
const DATAPATH: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_BROADCAST).union(CapabilitySet::NET_RAW);

/// Why the user could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// Only root may change to another user.
    #[error("only root can use --user option")]
    NotRoot,
    /// No such user in /etc/passwd.
    #[error("user {0} not found, aborting.")]
    NoUser(String),
    /// No such group in /etc/group.
    #[error("group {0} not found, aborting.")]
    NoGroup(String),
    /// The system refused the change.
    #[error("could not change the user ({0})")]
    Io(#[from] io::Error),
}

impl From<rustix::io::Errno> for UserError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// The ids to run under.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ids {
    uid: u32,
    gid: u32,
    /// The group and those that the user is a member of, sorted.
    groups: Vec<u32>,
}

/// Splits a file like /etc/passwd into the fields of its lines.
fn entries(path: &Path) -> io::Result<Vec<Vec<String>>> {
    let text = std::fs::read(path)?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().map(|line| line.split(':').map(str::to_owned).collect()).collect())
}

/// Returns the number in field `index` of the entry of that name.
fn lookup(entries: &[Vec<String>], name: &str, index: usize) -> Option<u32> {
    entries.iter().find(|fields| fields.first().is_some_and(|first| first == name))?.get(index)?.parse().ok()
}

/// Checks that the user and the group that `spec` names exist, for an early error.
pub(crate) fn check(spec: &str) -> Result<(), UserError> {
    find(spec).map(drop)
}

/// The ids of the user and the group that `spec` names.
fn find(spec: &str) -> Result<Ids, UserError> {
    if !rustix::process::geteuid().is_root() {
        return Err(UserError::NotRoot);
    }
    let current = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    resolve(spec, current, &entries(Path::new("/etc/passwd"))?, &entries(Path::new("/etc/group"))?)
}

/// Parses `user`, `user:group` or `:group`. The group defaults to the user's, both to `current`.
fn resolve(spec: &str, current: (u32, u32), passwd: &[Vec<String>], group: &[Vec<String>]) -> Result<Ids, UserError> {
    let (user_name, group_name) = spec.split_once(':').unwrap_or((spec, ""));
    let no_user = || UserError::NoUser(user_name.to_owned());
    let uid = if user_name.is_empty() { current.0 } else { lookup(passwd, user_name, 2).ok_or_else(no_user)? };
    let gid = if group_name.is_empty() && user_name.is_empty() {
        current.1
    } else if group_name.is_empty() {
        lookup(passwd, user_name, 3).ok_or_else(no_user)?
    } else {
        lookup(group, group_name, 2).ok_or_else(|| UserError::NoGroup(group_name.to_owned()))?
    };
    let is_member = |fields: &&Vec<String>| {
        fields.get(3).is_some_and(|members| !user_name.is_empty() && members.split(',').any(|name| name == user_name))
    };
    let memberships = group.iter().filter(is_member).filter_map(|fields| fields.get(2)?.parse().ok());
    let mut groups: Vec<u32> = memberships.chain([gid]).collect();
    groups.sort_unstable();
    groups.dedup();
    Ok(Ids { uid, gid, groups })
}

/// Keeps the capabilities `kept`, as far as the process has them, over the change of ids and the new executable.
fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let sets = rustix::thread::capabilities(None)?;
    let kept = kept & sets.permitted;
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable: sets.inheritable | kept, ..sets })?;
    for capability in kept.iter() {
        rustix::thread::configure_capability_in_ambient_set(capability, true)?;
    }
    // Without this the change of ids clears the ambient set.
    let bits = rustix::thread::capabilities_secure_bits()?;
    Ok(rustix::thread::set_capabilities_secure_bits(bits | CapabilitiesSecureBits::NO_SETUID_FIXUP)?)
}

/// The capabilities that a daemon keeps.
fn capabilities(options: &DaemonOptions) -> CapabilitySet {
    let mut kept = DAEMON;
    if options.datapath_access {
        kept |= DATAPATH;
    }
    if options.raw_io {
        kept |= CapabilitySet::SYS_RAWIO;
    }
    kept
}

/// Replaces this process by the same program under the user `spec`, with `environment` added. The log file,
/// which exists already, becomes that user's. Returns only on error.
pub(crate) fn become_user(
    spec: &str,
    args: &[OsString],
    options: &DaemonOptions,
    log_file: Option<&Path>,
    executable: &str,
    environment: (&str, String),
) -> UserError {
    let exec = || -> Result<io::Error, UserError> {
        let ids = find(spec)?;
        if let Some(path) = log_file {
            std::os::unix::fs::chown(path, Some(ids.uid), Some(ids.gid))?;
        }
        keep_capabilities(capabilities(options))?;
        let mut command = Command::new(executable);
        command.arg0(args.first().map_or(OsStr::new("flowstone"), OsString::as_os_str)).args(args.iter().skip(1));
        command.env(environment.0, environment.1);
        command.envs(vlog::log().map(|log| log.continuation()));
        // These are ids of this thread alone, which is the one that the new program starts with.
        let groups: Vec<Gid> = ids.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_gid(Gid::from_raw(ids.gid))?;
        rustix::thread::set_thread_uid(Uid::from_raw(ids.uid))?;
        Ok(command.exec())
    };
    match exec() {
        Ok(error) => UserError::Io(error),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<Vec<String>> {
        text.lines().map(|line| line.split(':').map(str::to_owned).collect()).collect()
    }

    #[test]
    fn raw_io_is_kept_on_request_only() {
        let mut options = DaemonOptions { datapath_access: true, ..DaemonOptions::default() };
        assert!(!capabilities(&options).contains(CapabilitySet::SYS_RAWIO));
        options.raw_io = true;
        assert!(capabilities(&options).contains(CapabilitySet::SYS_RAWIO | DATAPATH | DAEMON));
    }

    #[test]
    fn the_groups_of_a_user_are_kept() {
        let passwd = fields("ovs:x:100:200::/:/bin/false");
        let group = fields("root:x:0:\nhugetlbfs:x:300:x,ovs\nvfio:x:150:ovs\nother:x:160:ovsx");
        let groups = |spec| resolve(spec, (0, 0), &passwd, &group).map(|ids| ids.groups).unwrap_or_default();
        assert_eq!(groups("ovs"), [150, 200, 300]);
        assert_eq!(groups("ovs:hugetlbfs"), [150, 300]);
        assert_eq!(groups(":root"), [0]);
    }

    #[test]
    fn users_and_groups() {
        let passwd = fields("root:x:0:0::/root:/bin/sh\novs:x:100:200::/:/bin/false\nbroken\n");
        let group = fields("root:x:0:\nhugetlbfs:x:300:ovs");
        let ids = |spec| {
            let found = resolve(spec, (0, 7), &passwd, &group);
            found.map(|ids| (ids.uid, ids.gid)).map_err(|error| error.to_string())
        };
        assert_eq!(ids("ovs"), Ok((100, 200)));
        assert_eq!(ids("ovs:"), Ok((100, 200)));
        assert_eq!(ids("ovs:hugetlbfs"), Ok((100, 300)));
        assert_eq!(ids(":hugetlbfs"), Ok((0, 300)));
        assert_eq!(ids("x"), Err("user x not found, aborting.".to_owned()));
        assert_eq!(ids("ovs:x"), Err("group x not found, aborting.".to_owned()));
        assert_eq!(ids("broken"), Err("user broken not found, aborting.".to_owned()));
        assert_eq!(ids(""), Ok((0, 7)));
        assert_eq!(ids(":"), Ok((0, 7)));
    }
}
