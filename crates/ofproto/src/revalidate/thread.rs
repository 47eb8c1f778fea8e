//! When passes run: on two threads of their own, which workers help. The revalidator translates flows again when something has changed, and
//! the statistics thread pushes statistics once in a while and when somebody asks for them, and expires flows after that.

use super::Extent;
use crate::switch::Switch;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// After a change, a pass waits until none has come for so long, as changes come in bursts.
const QUIET: Duration = Duration::from_millis(1);
/// But not longer than this.
const QUIET_MAX: Duration = Duration::from_millis(5);
/// Passes over statistics until a full pass, when rules have gone since the last one: flows may be wider then.
const FULL_WHEN_LOOSENED: u64 = 10;
/// Passes over statistics until a full pass in any case.
const FULL: u64 = 120;
/// A full pass takes no more than one part in so many of all time.
const FULL_SHARE: u32 = 10;

/// What wakes the thread.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Mutex<Woken>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Woken {
    /// Something has changed since the thread last looked.
    changed: bool,
    stop: bool,
    has_thread: bool,
    /// The thread lets a burst of changes pass: it looks by itself whether there were any.
    settling: bool,
    /// Somebody waits for the thread.
    urgent: bool,
}

impl Signal {
    /// Something has changed.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        // Whoever has been woken need not be woken again, which costs more than the change.
        if !std::mem::replace(&mut state.changed, true) && state.has_thread && !state.settling {
            self.moved.notify_all();
        }
    }

    /// Somebody waits for the thread: it is not to let a burst of changes pass first.
    pub(crate) fn urge(&self) {
        let mut state = self.state.lock();
        // The statistics thread takes note of `changed` only, the revalidator in a burst of `urgent`.
        let woken = std::mem::replace(&mut state.changed, true);
        if !std::mem::replace(&mut state.urgent, true) || !woken {
            self.moved.notify_all();
        }
    }

    pub(crate) fn has_thread(&self) -> bool {
        self.state.lock().has_thread
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.moved.notify_all();
    }

    /// Waits for a change, at most until `deadline`. Whether there was one; `None` if the thread is to end.
    fn wait(&self, deadline: Instant) -> Option<bool> {
        let mut state = self.state.lock();
        while !state.stop && !state.changed {
            if self.moved.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        (!state.stop).then(|| std::mem::take(&mut state.changed))
    }

    /// Waits until a burst of changes is over. `false` if the thread is to end.
    fn settle(&self) -> bool {
        let most = Instant::now() + QUIET_MAX;
        let mut state = self.state.lock();
        state.settling = true;
        loop {
            state.changed = false;
            let until = (Instant::now() + QUIET).min(most);
            while !state.stop && !state.urgent && !self.moved.wait_until(&mut state, until).timed_out() {}
            if state.stop || state.urgent || !state.changed || Instant::now() >= most {
                // What has come meanwhile is for the pass that follows.
                (state.changed, state.settling, state.urgent) = (false, false, false);
                return !state.stop;
            }
        }
    }
}

impl Switch {
    /// Starts the threads that revalidate and push statistics: without them, passes run when [`Switch::revalidate`] or
    /// [`Switch::housekeeping`] is called. They end with the switch. Fails if they cannot be started; does nothing if they
    /// are there already.
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
    let mut look_at = Instant::now();
    let mut full_at = Instant::now();
    loop {
        let Some(changed) = signal.wait(look_at) else { return };
        if changed && !signal.settle() {
            return;
        }
        let Some(switch) = switch.upgrade() else { return };
        let began = Instant::now();
        let state = &switch.revalidation;
        if state.paused.load(Ordering::SeqCst) {
            // Flows stay as they are; the counts of removed rules are to be right all the same.
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
        switch.bridges().iter().for_each(|bridge| bridge.tidy(now));
        look_at = began + Duration::from_millis(state.limiter.interval_ms());
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
    /// One turn of the statistics thread: pushes statistics, which all jobs that wait for them share, and removes flows
    /// whose time is over by these.
    fn push_and_expire(&self) {
        let state = &self.revalidation;
        let waiting = state.after_statistics.take();
        let now = self.clock().now();
        self.count();
        // A pass that goes on need not be waited for: this only says when the next full one is due.
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
    fn every_urge_wakes_a_thread_that_only_waits() {
        let signal = Arc::new(Signal::default());
        let far = Instant::now() + Duration::from_secs(3600);
        for _ in 0..100 {
            let (waiter, (began, begins)) = (Arc::clone(&signal), std::sync::mpsc::channel());
            let thread = std::thread::spawn(move || {
                let _ = began.send(());
                waiter.wait(far)
            });
            begins.recv().expect("begins");
            signal.urge();
            assert_eq!(thread.join().expect("no panic"), Some(true));
        }
    }
}
