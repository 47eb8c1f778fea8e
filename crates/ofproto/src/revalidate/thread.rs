//! The threads of revalidation, which workers help: the revalidator translates flows again after changes, and
//! the statistics thread pushes statistics periodically and on request, and expires flows after that.

use super::Extent;
use crate::switch::Switch;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// After a change, a pass waits until no other change has come for this time, as changes come in bursts.
const QUIET: Duration = Duration::from_millis(1);
/// The longest such wait.
const QUIET_MAX: Duration = Duration::from_millis(5);
/// The time after which removed rules leave their tables if other changes were in the way.
const TIDY_AGAIN: Duration = Duration::from_millis(10);
/// Passes over statistics until a full pass, if rules were removed since the last one: flows may be narrower than necessary.
const FULL_WHEN_LOOSENED: u64 = 10;
/// Passes over statistics until a full pass in any case.
const FULL: u64 = 120;
/// A full pass takes at most one part in this many of the time.
const FULL_SHARE: u32 = 10;

/// The signal that wakes the thread.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Mutex<Woken>,
    woken_up: Condvar,
}

#[derive(Debug, Default)]
struct Woken {
    /// There was a change since the thread last checked.
    changed: bool,
    stop: bool,
    has_thread: bool,
    /// The thread waits for a burst of changes to end, and checks for changes by itself.
    settling: bool,
    /// A caller waits for the thread.
    urgent: bool,
}

impl Signal {
    /// Reports a change.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        // A thread that was woken need not be woken again, which would cost more than the change.
        if !std::mem::replace(&mut state.changed, true) && state.has_thread && !state.settling {
            self.woken_up.notify_all();
        }
    }

    /// Wakes the thread because a caller waits for it: it does not wait for the end of a burst of changes.
    pub(crate) fn wake_urgently(&self) {
        let mut state = self.state.lock();
        // The statistics thread checks `changed` only, the revalidator checks `urgent` during a burst.
        let woken = std::mem::replace(&mut state.changed, true);
        if !std::mem::replace(&mut state.urgent, true) || !woken {
            self.woken_up.notify_all();
        }
    }

    pub(crate) fn has_thread(&self) -> bool {
        self.state.lock().has_thread
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.woken_up.notify_all();
    }

    /// Waits for a change until `deadline`. Returns whether there was one; `None` if the thread is to end.
    fn wait(&self, deadline: Instant) -> Option<bool> {
        let mut state = self.state.lock();
        while !state.stop && !state.changed {
            if self.woken_up.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        (!state.stop).then(|| std::mem::take(&mut state.changed))
    }

    /// Waits until a burst of changes ends. Returns false if the thread is to end.
    fn wait_out_burst(&self) -> bool {
        let most = Instant::now() + QUIET_MAX;
        let mut state = self.state.lock();
        state.settling = true;
        loop {
            state.changed = false;
            let until = (Instant::now() + QUIET).min(most);
            while !state.stop && !state.urgent && !self.woken_up.wait_until(&mut state, until).timed_out() {}
            if state.stop || state.urgent || !state.changed || Instant::now() >= most {
                // The following pass handles the changes until now.
                (state.changed, state.settling, state.urgent) = (false, false, false);
                return !state.stop;
            }
        }
    }
}

impl Switch {
    /// Starts the threads that revalidate and push statistics; without them, [`Switch::revalidate`] and
    /// [`Switch::housekeeping`] run the passes. They end with the switch. Fails if they cannot be started; does nothing if they
    /// run already.
    pub fn start_revalidator(self: &Arc<Self>) -> std::io::Result<()> {
        self.start("revalidator", &self.revalidation.signal, run)?;
        self.start("statistics", &self.revalidation.counting_signal, run_statistics)
    }

    fn start(self: &Arc<Self>, name: &str, signal: &Arc<Signal>, run: fn(&Weak<Self>, &Signal)) -> std::io::Result<()> {
        if std::mem::replace(&mut signal.state.lock().has_thread, true) {
            return Ok(());
        }
        let (switch, thread_signal) = (Arc::downgrade(self), Arc::clone(signal));
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&switch, &thread_signal));
        signal.state.lock().has_thread = started.is_ok();
        started.map(drop)
    }
}

/// The revalidator thread.
fn run(switch: &Weak<Switch>, signal: &Signal) {
    let mut next_pass_at = Instant::now();
    let mut full_at = Instant::now();
    loop {
        let Some(changed) = signal.wait(next_pass_at) else { return };
        if changed && !signal.wait_out_burst() {
            return;
        }
        let Some(switch) = switch.upgrade() else { return };
        let began = Instant::now();
        let state = &switch.revalidation;
        if state.paused.load(Ordering::SeqCst) {
            // Flows stay unchanged, but the counts of removed rules have to be final.
            let waiting = state.after_changes.take();
            if !waiting.is_empty() {
                switch.count();
                state.after_changes.finish(waiting);
            }
        } else if began >= full_at && switch.is_full_pass_due() {
            switch.follow_changes(Extent::Full);
            full_at = Instant::now() + began.elapsed() * FULL_SHARE;
        } else {
            switch.follow_changes(Extent::Changes);
        }
        let now = switch.clock().now();
        let mut is_tidy = true;
        for bridge in switch.bridges() {
            is_tidy &= bridge.tidy(now);
        }
        let interval = Duration::from_millis(state.limiter.interval_ms());
        next_pass_at = began + if is_tidy { interval } else { TIDY_AGAIN.min(interval) };
    }
}

/// The statistics thread.
fn run_statistics(switch: &Weak<Switch>, signal: &Signal) {
    let mut round_at = Instant::now();
    loop {
        if signal.wait(round_at).is_none() {
            return;
        }
        let Some(switch) = switch.upgrade() else { return };
        let began = Instant::now();
        let interval = Duration::from_millis(switch.revalidation.limiter.interval_ms());
        switch.push_and_expire();
        round_at = began + interval;
    }
}

impl Switch {
    /// One turn of the statistics thread: pushes statistics, for all jobs that wait for them, and removes expired
    /// flows.
    fn push_and_expire(&self) {
        let state = &self.revalidation;
        let waiting = state.after_statistics.take();
        let now = self.clock().now();
        self.count();
        // This does not wait for a pass in progress: it only affects when the next full one is due.
        if let Some(mut passing) = state.passing.try_lock() {
            passing.since_full += 1;
        }
        state.after_statistics.finish(waiting);
        self.expire(now);
    }
}

impl Switch {
    fn is_full_pass_due(&self) -> bool {
        let passing = self.revalidation.passing.lock();
        passing.since_full >= if passing.loosened { FULL_WHEN_LOOSENED } else { FULL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_urgent_wake_up_reaches_a_waiting_thread() {
        let signal = Arc::new(Signal::default());
        let far = Instant::now() + Duration::from_secs(3600);
        for _ in 0..100 {
            let (waiter, (began, begins)) = (Arc::clone(&signal), std::sync::mpsc::channel());
            let thread = std::thread::spawn(move || {
                let _ = began.send(());
                waiter.wait(far)
            });
            begins.recv().expect("begins");
            signal.wake_urgently();
            assert_eq!(thread.join().expect("no panic"), Some(true));
        }
    }
}
