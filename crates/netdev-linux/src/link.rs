//! What is known of a kernel device between looks: its number, whether it is still there, and changes of its state.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use netdev::Changes;
use parking_lot::Mutex;

use crate::netlink::LinkInfo;

/// A device of the kernel, as the monitor and its handles share it.
#[derive(Debug)]
pub(crate) struct Link {
    name: String,
    place: Mutex<Place>,
    /// Of a tap of our own, what it ends with: it is ours in any namespace.
    tap: Option<Weak<OwnedFd>>,
    gone: AtomicBool,
    /// Switched on, as far as is known: for who cannot ask the kernel for each batch.
    up: AtomicBool,
    link_resets: AtomicU64,
    /// Large frames that the socket had no room for.
    pub(crate) rx_dropped: AtomicU64,
    /// Frames that could not be received because their marks made no sense.
    pub(crate) rx_errors: AtomicU64,
    last: Mutex<LinkInfo>,
    pub(crate) changes: Changes,
}

/// Where a device is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The number of its namespace; `None` for ours.
    pub namespace: Option<i32>,
    /// Its own number there.
    pub ifindex: u32,
}

impl Link {
    /// The device of `info`, in our namespace; with `tap` if it is one of ours.
    pub(crate) fn new(info: LinkInfo, tap: Option<Weak<OwnedFd>>) -> Self {
        Self {
            name: info.name.clone(),
            place: Mutex::new(Place { namespace: None, ifindex: info.ifindex }),
            tap,
            gone: AtomicBool::new(false),
            up: AtomicBool::new(info.admin_up()),
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
        self.place().ifindex
    }

    pub(crate) fn place(&self) -> Place {
        *self.place.lock()
    }

    /// The tap that it is, while that is open.
    pub(crate) fn tap(&self) -> Option<Arc<OwnedFd>> {
        self.tap.as_ref()?.upgrade()
    }

    /// Somebody has moved it to another namespace, or back, where it is what `info` says.
    pub(crate) fn moved(&self, place: Place, info: &LinkInfo) {
        *self.place.lock() = place;
        self.update(info);
    }

    /// Whether the device was deleted, or has another name or namespace now.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// What the kernel last said of the device; `None` if it is gone.
    pub(crate) fn last(&self) -> Option<LinkInfo> {
        (!self.is_gone()).then(|| self.last.lock().clone())
    }

    /// Whether the administrator has it switched on, as the kernel last said.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub(crate) fn link_resets(&self) -> u64 {
        self.link_resets.load(Ordering::Relaxed)
    }

    /// Takes what the kernel says of the device now; tells the listeners if it differs. Where a tap of ours was moved
    /// to, it may have any name.
    pub(crate) fn update(&self, info: &LinkInfo) {
        if info.name != self.name && self.place().namespace.is_none() {
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
        if changed {
            self.changes.notify();
        }
    }

    /// The device is not there any more.
    pub(crate) fn set_gone(&self) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            self.changes.notify();
        }
    }
}
