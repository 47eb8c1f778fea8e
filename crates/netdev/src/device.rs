//! The traits of a network device and of its queues.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use base::{DropReason, MacAddr};
use packet::Batch;

use crate::accelerate::KernelPath;
use crate::change::Changes;
use crate::status::{LinkStatus, NetdevStats};

/// The `options` column of an Interface row.
pub type Options = BTreeMap<String, String>;

/// A network device. Any thread may call its methods; none of them is on a packet's way.
pub trait Netdev: Send + Sync + Debug {
    /// The device's name, unique among the devices of the process.
    fn name(&self) -> &str;

    /// The interface type: `system`, `internal`, `dummy`, ...
    fn kind(&self) -> &'static str;

    /// Takes the row's options. Options that the kind does not know are ignored, as Open vSwitch does; called again
    /// whenever the row changes.
    fn set_options(&self, options: &Options) -> Result<(), NetdevError> {
        let _ = options;
        Ok(())
    }

    /// Receive queues, numbered from 0.
    fn n_rxq(&self) -> usize {
        1
    }

    /// The memory node (NUMA) that the device is near to, if that is known: threads there ask its queues, if there are
    /// any.
    fn numa_id(&self) -> Option<usize> {
        None
    }

    /// Opens receive queue `queue` for a packet thread to own. From here on the frames that come in wait for it.
    /// An error if the device has no such queue or cannot be opened.
    fn open_rx(&self, queue: usize) -> Result<Box<dyn Rx>, NetdevError>;

    /// Opens a way to send. Each packet thread owns one, as does whoever else sends.
    fn open_tx(&self) -> Result<Box<dyn Tx>, NetdevError>;

    /// The Ethernet address.
    fn mac(&self) -> MacAddr;

    /// Sets the Ethernet address.
    fn set_mac(&self, mac: MacAddr) -> Result<(), NetdevError>;

    /// The largest payload of a frame in bytes, without Ethernet header and VLAN tags. `None` if unknown.
    fn mtu(&self) -> Option<u32>;

    /// Sets the MTU, in bytes.
    fn set_mtu(&self, mtu: u32) -> Result<(), NetdevError>;

    /// Sets the administrative state.
    fn set_up(&self, up: bool) -> Result<(), NetdevError>;

    /// Receives frames to any address, or only those to the device's own.
    fn set_promisc(&self, on: bool) -> Result<(), NetdevError> {
        let _ = on;
        Ok(())
    }

    /// Whether the device still exists. One that was deleted or renamed under us never comes back: it is to be
    /// dropped, and opened again when a device of its name appears. The change counter moves when this changes.
    fn is_present(&self) -> bool {
        true
    }

    /// The device as programs in the kernel see it, if its frames come through the kernel's receive path and packet
    /// sockets.
    fn kernel_path(&self) -> Option<&dyn KernelPath> {
        None
    }

    /// The state of the link, as it is now.
    fn status(&self) -> LinkStatus;

    /// The counters, as they are now, seen from the switch: received is what came into the switch.
    fn stats(&self) -> NetdevStats;

    /// The change counter and its listeners.
    fn changes(&self) -> &Changes;

    /// Moves on when link state, address or MTU changed.
    fn change_seq(&self) -> u64 {
        self.changes().seq()
    }
}

/// A receive queue, owned by one thread.
pub trait Rx: Send {
    /// Appends up to `max` waiting frames to `out` and returns how many; 0 if none waits. Never blocks.
    ///
    /// An error means that the device is gone or broken: it will not get better by asking again soon, and
    /// [`Rx::poll_fd`] may be readable all the time.
    fn recv_batch(&mut self, out: &mut Batch, max: usize) -> io::Result<usize>;

    /// A descriptor that is readable while frames wait. `None` if the queue can only be asked.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// After how long at the latest it is to be asked again even if its descriptor tells of nothing: because it has
    /// something of its own to do, or frames may wait that the descriptor does not tell of. `None`: that is not needed.
    fn ask_within(&self) -> Option<Duration> {
        None
    }

    /// Throws away the frames that wait.
    fn drain(&mut self) -> io::Result<()>;
}

/// A way to send, owned by one thread.
pub trait Tx: Send {
    /// Sends the frames of `batch` in order, does or offloads the work that their marks ask for, and leaves `batch`
    /// empty. What cannot be sent is dropped and reported; the call never waits for room.
    fn send_batch(&mut self, batch: &mut Batch) -> SendReport;

    /// Sends what [`Tx::send_batch`] took and held back, if the device does so. To be called before the thread
    /// sleeps.
    fn flush(&mut self) -> SendReport {
        SendReport::default()
    }
}

/// What became of frames to be sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SendReport {
    /// Frames that the device took (a frame to be segmented counts once).
    pub sent: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// Frames dropped, with why; a reason stands once. Empty, and without memory, in the usual case.
    pub dropped: Vec<(DropReason, u64)>,
}

impl SendReport {
    /// Counts one frame of `len` bytes as sent.
    pub fn count_sent(&mut self, len: usize) {
        self.sent += 1;
        self.sent_bytes += len as u64;
    }

    /// Counts `n` frames as dropped.
    pub fn count_dropped(&mut self, reason: DropReason, n: u64) {
        match self.dropped.iter_mut().find(|(r, _)| *r == reason) {
            Some((_, count)) => *count += n,
            None if n > 0 => self.dropped.push((reason, n)),
            None => {}
        }
    }

    /// Adds what another report says.
    pub fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        for (reason, n) in &other.dropped {
            self.count_dropped(*reason, *n);
        }
    }

    /// Frames dropped for any reason.
    pub fn n_dropped(&self) -> u64 {
        self.dropped.iter().map(|(_, n)| n).sum()
    }
}

/// Why a device could not be opened or set. The texts are one line each, fit for an Interface row's `error` column.
#[derive(thiserror::Error, Debug)]
pub enum NetdevError {
    /// The device could not be opened or made.
    #[error("could not open network device {name} ({})", errno_text(.source))]
    Open {
        /// The device.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// Something could not be set or read.
    #[error("{name}: could not {operation} ({})", errno_text(.source))]
    Operation {
        /// The device.
        name: String,
        /// What was tried, as `set MTU to 9000`.
        operation: String,
        /// What the system said.
        source: io::Error,
    },
    /// The kind of device has no such ability.
    #[error("{name}: {kind} devices cannot {operation}")]
    Unsupported {
        /// The device.
        name: String,
        /// Its kind.
        kind: &'static str,
        /// What was asked.
        operation: &'static str,
    },
    /// There is no such receive queue.
    #[error("{name}: no receive queue {queue}, the device has {n_rxq}")]
    NoQueue {
        /// The device.
        name: String,
        /// The queue asked for.
        queue: usize,
        /// Receive queues of the device.
        n_rxq: usize,
    },
    /// A row's option has a value that cannot be used.
    #[error("{name}: option {option}: {problem}")]
    Option {
        /// The device.
        name: String,
        /// The option's key.
        option: &'static str,
        /// What is wrong with the value, and what is expected.
        problem: String,
    },
    /// Another device of the process has the name.
    #[error("could not open network device {name} (File exists)")]
    Exists {
        /// The device.
        name: String,
    },
}

/// The system's text for an error, as `No such device`, without the number that Rust appends.
pub fn errno_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_error_reads_as_open_vswitch_says_it() {
        let error = NetdevError::Open {
            name: "foo".to_owned(),
            source: io::Error::from_raw_os_error(rustix::io::Errno::NODEV.raw_os_error()),
        };
        assert_eq!(error.to_string(), "could not open network device foo (No such device)");
    }

    #[test]
    fn reports_add_up() {
        let mut a = SendReport::default();
        a.count_sent(60);
        a.count_dropped(DropReason::TooBig, 1);
        let mut b = a.clone();
        b.count_dropped(DropReason::OutputError, 2);
        a.merge(&b);
        assert_eq!((a.sent, a.sent_bytes, a.n_dropped()), (2, 120, 4));
        assert_eq!(a.dropped, [(DropReason::TooBig, 2), (DropReason::OutputError, 2)]);
    }
}
