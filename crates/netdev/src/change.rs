//! Notification about changes of a device's link, address or MTU.
//!
//! A counter marks *that* something changed, and listeners wake sleeping tasks. A listener gets no details: the woken
//! task compares [`Changes::seq`] with the value that it saw last, and reads the device again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Called, from any thread, after a change. It must not block and must not call back into the device.
pub type Listener = Arc<dyn Fn() + Send + Sync>;

/// A device's change counter and its listeners.
#[derive(Default)]
pub struct Changes {
    seq: AtomicU64,
    listeners: Mutex<Vec<Listener>>,
    of_reports: Mutex<Vec<Listener>>,
}

impl Changes {
    /// The number of changes, starting at 0.
    pub fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    /// Calls `listener` after each change, for the lifetime of the device.
    pub fn subscribe(&self, listener: Listener) {
        self.listeners.lock().push(listener);
    }

    /// Calls `listener` for each report of the kernel about the device, before the other listeners, on the thread that receives the
    /// reports. This thread holds no lock meanwhile, so that the listener may carry out the consequences of a change itself. Devices that
    /// are not the kernel's never call it.
    pub fn subscribe_to_reports(&self, listener: Listener) {
        self.of_reports.lock().push(listener);
    }

    /// Calls the listeners to reports of the kernel. The caller must not hold a lock.
    pub fn report(&self) {
        let listeners = self.of_reports.lock().clone();
        listeners.iter().for_each(|listener| listener());
    }

    /// Counts a change and calls the listeners.
    pub fn notify(&self) {
        self.seq.fetch_add(1, Ordering::AcqRel);
        let listeners = self.listeners.lock().clone();
        for listener in listeners {
            listener();
        }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("seq", &self.seq()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_called_for_each_change() {
        let changes = Changes::default();
        let heard = Arc::new(AtomicU64::new(0));
        let ear = heard.clone();
        changes.subscribe(Arc::new(move || {
            ear.fetch_add(1, Ordering::Relaxed);
        }));
        changes.notify();
        changes.notify();
        assert_eq!((changes.seq(), heard.load(Ordering::Relaxed)), (2, 2));
        let ear = heard.clone();
        changes.subscribe_to_reports(Arc::new(move || {
            ear.fetch_add(10, Ordering::Relaxed);
        }));
        changes.report();
        changes.notify();
        assert_eq!((changes.seq(), heard.load(Ordering::Relaxed)), (3, 13));
    }
}
