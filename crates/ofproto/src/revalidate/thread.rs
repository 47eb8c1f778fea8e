//! When passes run: on a thread of their own, woken by changes, and once in a while for statistics.

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
/// Rounds until a full pass, when rules have gone since the last one: flows may be wider then.
const FULL_WHEN_LOOSENED: u64 = 10;
/// Rounds until a full pass in any case.
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
            while !state.stop && !self.moved.wait_until(&mut state, until).timed_out() {}
            if state.stop || !state.changed || Instant::now() >= most {
                // What has come meanwhile is for the pass that follows.
                (state.changed, state.settling) = (false, false);
                return !state.stop;
            }
        }
    }
}

impl Switch {
    /// Starts the thread that revalidates: without it, passes run when [`Switch::revalidate`] or
    /// [`Switch::housekeeping`] is called. It ends with the switch. Fails if it cannot be started; does nothing if it is
    /// there already.
    pub fn start_revalidator(self: &Arc<Self>) -> std::io::Result<()> {
        let signal = Arc::clone(&self.revalidation.signal);
        if std::mem::replace(&mut signal.state.lock().has_thread, true) {
            return Ok(());
        }
        let (switch, thread_signal) = (Arc::downgrade(self), Arc::clone(&signal));
        let run = move || run(&switch, &thread_signal);
        let started = std::thread::Builder::new().name("revalidator".to_owned()).spawn(run);
        signal.state.lock().has_thread = started.is_ok();
        started.map(drop)
    }
}

fn run(switch: &Weak<Switch>, signal: &Signal) {
    let mut round_at = Instant::now();
    let mut full_at = Instant::now();
    loop {
        let Some(changed) = signal.wait(round_at) else { return };
        if changed && !signal.settle() {
            return;
        }
        let Some(switch) = switch.upgrade() else { return };
        let began = Instant::now();
        if switch.revalidation.paused.load(Ordering::SeqCst) && began < round_at {
            continue;
        }
        if began < round_at {
            switch.pass(Extent::Changes);
            let now = switch.clock().now();
            switch.bridges().iter().for_each(|bridge| bridge.tidy(now));
            continue;
        }
        let extent = if began >= full_at && switch.is_full_pass_due() { Extent::Full } else { Extent::Round };
        switch.pass(extent);
        let took = began.elapsed();
        round_at = began + Duration::from_millis(switch.revalidation.limiter.interval_ms());
        if extent == Extent::Full {
            full_at = began + took * FULL_SHARE;
        }
    }
}

impl Switch {
    fn is_full_pass_due(&self) -> bool {
        let passing = self.revalidation.passing.lock();
        passing.since_full >= if passing.loosened { FULL_WHEN_LOOSENED } else { FULL }
    }
}
