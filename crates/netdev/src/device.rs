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
use crate::qos::DeviceQos;
use crate::status::{LinkStatus, NetdevStats};

/// The `options` column of an Interface row.
pub type Options = BTreeMap<String, String>;

/// A network device. Any thread may call its methods; none of them is called for packets.
pub trait Netdev: Send + Sync + Debug {
    /// The device's name, unique among the devices of the process.
    fn name(&self) -> &str;

    /// The interface type: `system`, `internal`, `dummy`, ...
    fn kind(&self) -> &'static str;

    /// Applies the options of the Interface row, and applies them again whenever the row changes. Unknown options are
    /// ignored, as in Open vSwitch.
    fn set_options(&self, options: &Options) -> Result<(), NetdevError> {
        let _ = options;
        Ok(())
    }

    /// Number of receive queues.
    fn n_rxq(&self) -> usize {
        1
    }

    /// The NUMA node of the device, if known. Packet threads on that node are preferred for its queues.
    fn numa_id(&self) -> Option<usize> {
        None
    }

    /// Whether Open vSwitch polls devices of this type with PMD threads, so that its log names their queues. (Packet
    /// threads poll all devices here.)
    fn is_pmd(&self) -> bool {
        false
    }

    /// Opens receive queue `queue` for a packet thread. From then on, received frames wait in it. Fails if the device
    /// has no such queue or cannot be opened.
    fn open_rx(&self, queue: usize) -> Result<Box<dyn Rx>, NetdevError>;

    /// Opens a tx queue. Each packet thread opens one, as does any other sender.
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

    /// Turns promiscuous mode on or off.
    fn set_promisc(&self, on: bool) -> Result<(), NetdevError> {
        let _ = on;
        Ok(())
    }

    /// Whether the device still exists. A device that was deleted or renamed does not come back: drop this value, and
    /// open the device again when one of its name appears. The change counter advances when this changes.
    fn is_present(&self) -> bool {
        true
    }

    /// The kernel's view of the device, if its frames pass through the kernel's receive path and packet sockets.
    fn kernel_path(&self) -> Option<&dyn KernelPath> {
        None
    }

    /// The current state of the link.
    fn status(&self) -> LinkStatus;

    /// Whether the link had a carrier according to the last report about the device. Unlike [`Netdev::status`], this does not ask the
    /// kernel, which answers only after changes of other devices in progress.
    fn has_carrier(&self) -> bool {
        self.status().carrier
    }

    /// The current counters from the switch's view: received frames are those that came into the switch.
    fn stats(&self) -> NetdevStats;

    /// The numbers of the queues that packets may be sent to (OpenFlow's queues), none unless something set them up.
    fn queues(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The QoS that the kernel has for the device, if the frames that leave by [`Tx`] pass it.
    fn kernel_qos(&self) -> Option<&dyn DeviceQos> {
        None
    }

    /// The change counter and its listeners.
    fn changes(&self) -> &Changes;

    /// The number of changes of link state, address and MTU.
    fn change_seq(&self) -> u64 {
        self.changes().seq()
    }
}

/// A receive queue, owned by one thread.
pub trait Rx: Send {
    /// Appends up to `max` waiting frames to `out` and returns how many; 0 if none waits. Never blocks.
    ///
    /// An error means that the device is gone or broken. Retrying soon does not help, and [`Rx::poll_fd`] may stay
    /// readable.
    fn recv_batch(&mut self, out: &mut Batch, max: usize) -> io::Result<usize>;

    /// A descriptor that is readable while frames wait. `None` if the queue must be polled.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// The maximum time between calls of [`Rx::recv_batch`], even if the descriptor is not readable: the queue has
    /// periodic work, or frames may wait without a notification. `None` for no limit.
    fn ask_within(&self) -> Option<Duration> {
        None
    }

    /// Discards all waiting frames.
    fn drain(&mut self) -> io::Result<()>;
}

/// A tx queue, owned by one thread.
pub trait Tx: Send {
    /// Sends the frames of `batch` in order, performs or offloads the work of their offload flags, and leaves `batch`
    /// empty. Frames that cannot be sent are dropped and reported; the call never waits for space.
    fn send_batch(&mut self, batch: &mut Batch) -> SendReport;

    /// Returns why the device would drop the next `n` frames, if it knows without seeing them, because it is down for
    /// instance. The caller then counts these frames as dropped and makes no copies for this device. The device counts them
    /// as offered.
    fn refuses(&mut self, n: usize) -> Option<DropReason> {
        let _ = n;
        None
    }

    /// Sends frames that [`Tx::send_batch`] buffered, if the device buffers any. Call it before the thread sleeps.
    fn flush(&mut self) -> SendReport {
        SendReport::default()
    }
}

/// The result of sending frames.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SendReport {
    /// Frames that the device accepted (a GSO packet counts once).
    pub sent: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// Frames dropped, by reason, each reason once. Usually empty, and then not allocated.
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

    /// Adds the counts of another report.
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

/// Why a device could not be opened or configured. Each message is one line, suitable for an Interface row's `error`
/// column.
#[derive(thiserror::Error, Debug)]
pub enum NetdevError {
    /// The device could not be opened or created.
    #[error("could not open network device {name} ({})", errno_text(.source))]
    Open {
        /// The device.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// A property could not be set or read.
    #[error("{name}: could not {operation} ({})", errno_text(.source))]
    Operation {
        /// The device.
        name: String,
        /// The operation, as `set MTU to 9000`.
        operation: String,
        /// The system's error.
        source: io::Error,
    },
    /// The type of device does not support the operation.
    #[error("{name}: {kind} devices cannot {operation}")]
    Unsupported {
        /// The device.
        name: String,
        /// Its kind.
        kind: &'static str,
        /// The unsupported operation.
        operation: &'static str,
    },
    /// The receive queue does not exist.
    #[error("{name}: no receive queue {queue}, the device has {n_rxq}")]
    NoQueue {
        /// The device.
        name: String,
        /// The queue asked for.
        queue: usize,
        /// Number of receive queues of the device.
        n_rxq: usize,
    },
    /// An option of the row has an invalid value.
    #[error("{name}: option {option}: {problem}")]
    Option {
        /// The device.
        name: String,
        /// The option's key.
        option: &'static str,
        /// The problem, and the expected value.
        problem: String,
    },
    /// Another device of the process already has this name.
    #[error("could not open network device {name} (File exists)")]
    Exists {
        /// The device.
        name: String,
    },
}

/// The kinds of [`NetdevError`] that callers tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetdevErrorKind {
    /// The host has no device of this name.
    Missing,
    /// The request does not suit the device or its type, now or later.
    Invalid,
    /// The system refused: resources are in use or exhausted, or permission is missing. A later attempt may succeed.
    System,
}

impl NetdevError {
    /// The kind of this error.
    pub fn kind(&self) -> NetdevErrorKind {
        match self {
            Self::Open { source, .. } | Self::Operation { source, .. } => {
                let missing = rustix::io::Errno::NODEV.raw_os_error();
                if source.raw_os_error() == Some(missing) { NetdevErrorKind::Missing } else { NetdevErrorKind::System }
            }
            Self::Exists { .. } => NetdevErrorKind::System,
            Self::Unsupported { .. } | Self::NoQueue { .. } | Self::Option { .. } => NetdevErrorKind::Invalid,
        }
    }
}

/// The system's text of an error, as `No such device`, without the number that Rust appends.
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
    fn open_error_has_the_text_of_open_vswitch() {
        let error = NetdevError::Open {
            name: "foo".to_owned(),
            source: io::Error::from_raw_os_error(rustix::io::Errno::NODEV.raw_os_error()),
        };
        assert_eq!(error.to_string(), "could not open network device foo (No such device)");
        assert_eq!(error.kind(), NetdevErrorKind::Missing);
        let busy = io::Error::from_raw_os_error(rustix::io::Errno::BUSY.raw_os_error());
        assert_eq!(NetdevError::Open { name: "foo".to_owned(), source: busy }.kind(), NetdevErrorKind::System);
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
