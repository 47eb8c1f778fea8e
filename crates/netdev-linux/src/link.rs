//! The cached state of a kernel device: its location, whether it still exists, and its last known attributes.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use netdev::Changes;
use parking_lot::Mutex;

use crate::netlink::LinkInfo;

/// A kernel device, shared by the monitor and the device's handles.
#[derive(Debug)]
pub(crate) struct Link {
    name: String,
    location: Mutex<Location>,
    /// For a tap of this process, its descriptor: the device is followed into any namespace.
    tap: Option<Weak<OwnedFd>>,
    gone: AtomicBool,
    /// Whether the device was last seen enabled, for callers that cannot query the kernel for each batch.
    up: AtomicBool,
    /// Whether frames carry the numbers of their queues to the device's queueing discipline.
    has_queues: AtomicBool,
    link_resets: AtomicU64,
    /// Large frames dropped because the socket's buffer was full.
    pub(crate) rx_dropped: AtomicU64,
    /// Frames that could not be received because their offload flags were invalid.
    pub(crate) rx_errors: AtomicU64,
    last: Mutex<LinkInfo>,
    pub(crate) changes: Changes,
}

/// How the state of a device became known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// A thread asked the kernel for it. This thread may hold locks.
    Asked,
    /// The kernel reported it to the thread that follows the kernel.
    Reported,
}

/// Where a device is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    /// The id of its network namespace; `None` for this process's namespace.
    pub namespace: Option<i32>,
    /// Its own number there.
    pub ifindex: u32,
}

impl Link {
    /// The device `info` in this process's namespace; `tap` is set for a tap of this process.
    pub(crate) fn new(info: LinkInfo, tap: Option<Weak<OwnedFd>>) -> Self {
        Self {
            name: info.name.clone(),
            location: Mutex::new(Location { namespace: None, ifindex: info.ifindex }),
            tap,
            gone: AtomicBool::new(false),
            up: AtomicBool::new(info.admin_up()),
            has_queues: AtomicBool::new(false),
            link_resets: AtomicU64::new(0),
            rx_dropped: AtomicU64::new(0),
            rx_errors: AtomicU64::new(0),
            last: Mutex::new(info),
            changes: Changes::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn ifindex(&self) -> u32 {
        self.location().ifindex
    }

    pub(crate) fn location(&self) -> Location {
        *self.location.lock()
    }

    /// The tap's descriptor, while it is open.
    pub(crate) fn tap(&self) -> Option<Arc<OwnedFd>> {
        self.tap.as_ref()?.upgrade()
    }

    /// Records that the device was moved to another namespace, or back, with state `info`.
    pub(crate) fn moved(&self, location: Location, info: &LinkInfo) {
        *self.location.lock() = location;
        self.update(info, Heard::Asked);
    }

    /// Whether the device was deleted, renamed, or moved to another namespace.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The last state that the kernel reported; `None` if the device is gone.
    pub(crate) fn last(&self) -> Option<LinkInfo> {
        (!self.is_gone()).then(|| self.last.lock().clone())
    }

    /// Whether the administrator has enabled the device, as last reported by the kernel.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Whether the device exists and has a carrier, as last reported by the kernel.
    pub(crate) fn has_carrier(&self) -> bool {
        !self.is_gone() && self.last.lock().carrier()
    }

    /// Whether frames carry the numbers of their queues to the device's queueing discipline.
    pub(crate) fn has_queues(&self) -> bool {
        self.has_queues.load(Ordering::Relaxed)
    }

    /// Has frames carry the numbers of their queues, or not.
    pub(crate) fn set_queues(&self, on: bool) {
        self.has_queues.store(on, Ordering::Relaxed);
    }

    pub(crate) fn link_resets(&self) -> u64 {
        self.link_resets.load(Ordering::Relaxed)
    }

    /// Updates the state, and notifies the listeners if it differs. If the kernel has reported the state, the listeners to reports are
    /// called before, in any case. A tap that was moved to another namespace may have any name.
    pub(crate) fn update(&self, info: &LinkInfo, heard: Heard) {
        if info.name != self.name && self.location().namespace.is_none() {
            self.set_gone();
            return;
        }
        self.up.store(info.admin_up(), Ordering::Relaxed);
        let changed = {
            let mut last = self.last.lock();
            if last.carrier() != info.carrier() {
                self.link_resets.fetch_add(1, Ordering::Relaxed);
            }
            let changed = last.state() != info.state();
            last.clone_from(info);
            changed
        };
        if heard == Heard::Reported {
            self.changes.report();
        }
        if changed {
            self.changes.notify();
        }
    }

    /// Marks the device as gone.
    pub(crate) fn set_gone(&self) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            self.changes.notify();
        }
    }
}
