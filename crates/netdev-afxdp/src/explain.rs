//! Explanations of failures: the kernel's error numbers do not suggest a remedy.

use std::io;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use crate::config::Mode;

/// The operation that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Creating an AF_XDP socket and its rings.
    Socket,
    /// Registering this number of bytes of memory for frames.
    Umem(u64),
    /// To bind a socket to a queue.
    Bind(u32, Mode),
    /// To load the XDP program.
    Load,
    /// To attach it.
    Attach(Mode),
}

/// A failed step.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) error: io::Error,
}

impl Failure {
    /// Whether another mode may work.
    pub(crate) fn is_of_mode(&self) -> bool {
        let final_ones = [
            libc::EPERM,
            libc::EACCES,
            libc::EBUSY,
            libc::EEXIST,
            libc::ENOMEM,
            libc::ENOBUFS,
            libc::ENODEV,
            libc::EMFILE,
            libc::ENFILE,
        ];
        matches!(self.step, Step::Bind(..) | Step::Attach(_))
            && self.error.raw_os_error().is_none_or(|n| !final_ones.contains(&n))
    }

    /// One line for a user.
    pub(crate) fn text(&self) -> String {
        let cause = netdev::device::errno_text(&self.error);
        let what = match self.step {
            Step::Socket => "AF_XDP socket".to_owned(),
            Step::Umem(len) => format!("AF_XDP memory of {} KiB", len / 1024),
            Step::Bind(queue, mode) => format!("AF_XDP socket on queue {queue} in {mode} mode"),
            Step::Load => "XDP program".to_owned(),
            Step::Attach(mode) => format!("XDP program in {mode} mode"),
        };
        match self.hint() {
            Some(hint) => format!("{what}: {cause}: {hint}"),
            None => format!("{what}: {cause}"),
        }
    }

    fn hint(&self) -> Option<String> {
        let known = match (self.step, self.error.raw_os_error()?) {
            (Step::Socket, libc::EPERM) => return missing(&[("CAP_NET_RAW", CapabilitySet::NET_RAW)]),
            (Step::Socket, libc::EAFNOSUPPORT) => "the kernel has no AF_XDP",
            (Step::Umem(_), libc::ENOBUFS | libc::ENOMEM) => return locked_memory(),
            (Step::Load | Step::Attach(_), libc::EPERM) => {
                // CAP_SYS_ADMIN serves for both.
                let (bpf, admin) = (CapabilitySet::BPF, CapabilitySet::NET_ADMIN);
                return missing(&[("CAP_BPF", bpf), ("CAP_NET_ADMIN", admin)]);
            }
            (Step::Bind(..), libc::EBUSY) => "another AF_XDP socket has the queue",
            (Step::Bind(..), libc::EINVAL) => "the device has no such queue, or cannot do this",
            (Step::Bind(_, Mode::NativeWithZerocopy), libc::EOPNOTSUPP) => "the driver has no zero-copy",
            (Step::Attach(_), libc::EBUSY | libc::EEXIST) => "another XDP program is on the device",
            (Step::Attach(Mode::NativeWithZerocopy | Mode::Native), libc::EOPNOTSUPP) => {
                "the driver runs no XDP programs"
            }
            (Step::Attach(_), libc::ERANGE) => "an MTU, the device's or its peer's, is too large for the driver",
            (Step::Attach(_), libc::ENOSPC) => {
                "the device has fewer receive queues than its peer has transmit queues (ethtool -L)"
            }
            _ => return None,
        };
        Some(known.to_owned())
    }
}

/// Which of these capabilities the process lacks.
fn missing(wanted: &[(&str, CapabilitySet)]) -> Option<String> {
    let has = capabilities(None).ok()?.effective;
    let lacks: Vec<_> = wanted.iter().filter(|(_, bit)| !has.contains(*bit)).map(|(name, _)| *name).collect();
    (!lacks.is_empty()).then(|| format!("the process lacks {}", lacks.join(" and ")))
}

/// Why memory cannot be registered.
fn locked_memory() -> Option<String> {
    let lacks = !capabilities(None).ok()?.effective.contains(CapabilitySet::IPC_LOCK);
    let limit = getrlimit(Resource::Memlock).current.filter(|_| lacks)?;
    let kib = limit / 1024;
    Some(format!("the limit of locked memory is {kib} KiB (ulimit -l), and the process lacks CAP_IPC_LOCK"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(step: Step, errno: i32) -> Failure {
        Failure { step, error: io::Error::from_raw_os_error(errno) }
    }

    #[test]
    fn errors_say_what_to_do() {
        let cases = [
            (
                failure(Step::Bind(3, Mode::NativeWithZerocopy), libc::EOPNOTSUPP),
                "AF_XDP socket on queue 3 in native-with-zerocopy mode: Operation not supported: the driver has no \
                 zero-copy",
            ),
            (
                failure(Step::Attach(Mode::Generic), libc::EBUSY),
                "XDP program in generic mode: Device or resource busy: another XDP program is on the device",
            ),
            (failure(Step::Load, libc::E2BIG), "XDP program: Argument list too long"),
        ];
        for (failure, text) in cases {
            assert!(failure.text().starts_with(text), "{}", failure.text());
        }
    }

    #[test]
    fn errors_of_all_modes_end_the_search() {
        assert!(failure(Step::Bind(0, Mode::NativeWithZerocopy), libc::EOPNOTSUPP).is_of_mode());
        assert!(failure(Step::Attach(Mode::Native), libc::ERANGE).is_of_mode());
        assert!(!failure(Step::Bind(0, Mode::Native), libc::EBUSY).is_of_mode());
        assert!(!failure(Step::Load, libc::EINVAL).is_of_mode());
        assert!(!failure(Step::Attach(Mode::Native), libc::EPERM).is_of_mode());
    }
}
