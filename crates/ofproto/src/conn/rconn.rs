//! The life cycle of one OpenFlow connection: when to connect, when to probe an idle peer, and
//! when to give up. A state machine without sockets: time is an argument, and the caller does what [`Rconn::due`] returns.
//!
//! States and their names are those of Controller:status in ovs-vswitchd.conf.db(5).

use base::Millis;

/// Milliseconds until the first attempt to reconnect.
const BACKOFF_MIN_MS: u64 = 1000;
/// The smallest timeout of an attempt in milliseconds, which includes the version negotiation.
const ATTEMPT_MIN_MS: u64 = 5000;

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not to be connected.
    Void,
    /// Waiting until the next attempt.
    Backoff,
    /// Attempting.
    Connecting,
    /// Connected, and the peer has sent something recently.
    Active,
    /// Connected, and an idle peer was probed.
    Idle,
}

impl State {
    /// The name in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Void => "VOID",
            Self::Backoff => "BACKOFF",
            Self::Connecting => "CONNECTING",
            Self::Active => "ACTIVE",
            Self::Idle => "IDLE",
        }
    }
}

/// An action that is due at some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Connect.
    Connect,
    /// Stop the attempt to connect, which takes too long.
    StopConnecting,
    /// Send an echo request.
    Probe,
    /// Close the connection: the peer has not answered the probe.
    GiveUp,
}

/// Configured timeouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Timeouts {
    /// Milliseconds of silence until an echo request, and as long again until the connection is closed; 0 for never.
    pub probe_ms: u64,
    /// The longest time between attempts to connect in milliseconds.
    pub max_backoff_ms: u64,
}

/// The state machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rconn {
    /// The connection's name in the log, once it has one.
    name: String,
    state: State,
    /// The time when it entered its state, or when the peer last sent something in it.
    since: Millis,
    /// The time to wait after the next failure.
    backoff_ms: u64,
    /// The error that ended the last connection or attempt, if there was one.
    pub last_error: Option<String>,
    /// The time when a connection was last established.
    pub connected_at: Option<Millis>,
    /// The time when a connection was last lost.
    pub disconnected_at: Option<Millis>,
}

impl Rconn {
    /// Creates one that was never connected.
    pub(crate) fn new() -> Self {
        Self {
            name: String::new(),
            state: State::Void,
            since: Millis(0),
            backoff_ms: 0,
            last_error: None,
            connected_at: None,
            disconnected_at: None,
        }
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns true if it is connected.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Active | State::Idle)
    }

    /// Sets the name under which the log reports the states that the connection enters from now on. The first one is not
    /// reported.
    pub(crate) fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn enter(&mut self, state: State, now: Millis) {
        if state != self.state && self.state != State::Void && !self.name.is_empty() {
            tracing::debug!(target: "rconn", "{}: entering {}", self.name, state.name());
        }
        (self.state, self.since) = (state, now);
    }

    /// Begins to connect, at once.
    pub(crate) fn start(&mut self, now: Millis) {
        self.enter(State::Backoff, now);
    }

    /// Records that an attempt to connect has begun.
    pub(crate) fn connecting(&mut self, now: Millis) {
        self.enter(State::Connecting, now);
    }

    /// Records that the connection is established, unless it was before.
    pub(crate) fn connected(&mut self, now: Millis) {
        if !self.is_connected() {
            self.enter(State::Active, now);
            self.connected_at = Some(now);
        }
    }

    /// Records that the peer has sent something.
    pub(crate) fn received(&mut self, now: Millis) {
        if self.is_connected() {
            self.enter(State::Active, now);
        }
    }

    /// Records the end of the connection or attempt, with an error unless it was requested. Returns the
    /// milliseconds to wait: after a connection that lasted the time starts over, after a failed attempt it doubles.
    pub(crate) fn disconnected(&mut self, now: Millis, error: Option<String>, timeouts: Timeouts) -> u64 {
        let lasted = self.is_connected() && self.connected_at.is_some_and(|at| now.since(at) >= self.backoff_ms);
        if self.is_connected() {
            self.disconnected_at = Some(now);
        }
        self.last_error = error;
        let next = if lasted { BACKOFF_MIN_MS } else { (self.backoff_ms * 2).max(BACKOFF_MIN_MS) };
        self.backoff_ms = next.min(timeouts.max_backoff_ms.max(BACKOFF_MIN_MS));
        self.enter(State::Backoff, now);
        self.backoff_ms
    }

    /// Returns the next action and its time; `None` if there is none.
    pub(crate) fn due(&self, timeouts: Timeouts) -> Option<(Millis, Due)> {
        let probe = (timeouts.probe_ms != 0).then_some(timeouts.probe_ms);
        match self.state {
            State::Void => None,
            // The configured maximum may have been lowered meanwhile.
            State::Backoff => {
                Some((self.since.after(self.backoff_ms.min(timeouts.max_backoff_ms.max(BACKOFF_MIN_MS))), Due::Connect))
            }
            State::Connecting => Some((self.since.after(self.backoff_ms.max(ATTEMPT_MIN_MS)), Due::StopConnecting)),
            State::Active => Some((self.since.after(probe?), Due::Probe)),
            State::Idle => Some((self.since.after(probe?), Due::GiveUp)),
        }
    }

    /// Returns the time in milliseconds for which it has been in its state, and has received nothing.
    pub(crate) fn in_state_for(&self, now: Millis) -> u64 {
        now.since(self.since)
    }

    /// Records that the peer was probed.
    pub(crate) fn probed(&mut self, now: Millis) {
        self.enter(State::Idle, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMEOUTS: Timeouts = Timeouts { probe_ms: 5000, max_backoff_ms: 8000 };

    #[test]
    fn backoff_doubles_and_starts_over_after_a_lasting_connection() {
        let mut r = Rconn::new();
        assert_eq!((r.state().name(), r.due(TIMEOUTS)), ("VOID", None));
        let mut now = Millis(100);
        r.start(now);
        assert_eq!(r.due(TIMEOUTS), Some((now, Due::Connect)));
        let mut waits = Vec::new();
        for _ in 0..6 {
            r.connecting(now);
            let (limit, due) = r.due(TIMEOUTS).unwrap();
            assert!(limit.since(now) >= 5000 && due == Due::StopConnecting);
            waits.push(r.disconnected(now, Some("no".into()), TIMEOUTS));
            let (at, due) = r.due(TIMEOUTS).unwrap();
            assert_eq!((at.since(now), due, r.state().name()), (*waits.last().unwrap(), Due::Connect, "BACKOFF"));
            now = at;
        }
        assert_eq!(waits, [1000, 2000, 4000, 8000, 8000, 8000]);
        // A connection that is lost at once counts like a failed attempt; one that lasted does not.
        r.connected(now);
        assert_eq!(r.disconnected(now.after(10), Some("no".into()), TIMEOUTS), 8000);
        assert_eq!(r.last_error.as_deref(), Some("no"));
        r.connected(now);
        assert_eq!(r.disconnected(now.after(9000), None, TIMEOUTS), 1000);
        assert_eq!((r.last_error.as_deref(), r.connected_at), (None, Some(now)));
        // The maximum may change at any time, even during the wait; values below a second are ignored.
        r.connected(now);
        assert_eq!(r.disconnected(now, None, TIMEOUTS), 2000);
        assert_eq!(r.due(Timeouts { max_backoff_ms: 1500, ..TIMEOUTS }), Some((now.after(1500), Due::Connect)));
        r.connecting(now);
        assert_eq!(r.disconnected(now, None, Timeouts { max_backoff_ms: 1, ..TIMEOUTS }), 1000);
    }

    #[test]
    fn silence_is_probed_and_then_ends_the_connection() {
        let mut r = Rconn::new();
        let now = Millis(50_000);
        r.connected(now);
        assert_eq!(r.due(TIMEOUTS), Some((now.after(5000), Due::Probe)));
        r.received(now.after(3000));
        assert_eq!(r.due(TIMEOUTS), Some((now.after(8000), Due::Probe)));
        assert_eq!(r.in_state_for(now.after(8000)), 5000);
        r.probed(now.after(8000));
        assert_eq!((r.state().name(), r.is_connected()), ("IDLE", true));
        assert_eq!(r.due(TIMEOUTS), Some((now.after(13_000), Due::GiveUp)));
        r.received(now.after(9000));
        assert_eq!((r.state().name(), r.due(TIMEOUTS)), ("ACTIVE", Some((now.after(14_000), Due::Probe))));
        assert_eq!(r.due(Timeouts { probe_ms: 0, ..TIMEOUTS }), None);
        r.disconnected(now.after(20_000), Some("Connection timed out".into()), TIMEOUTS);
        assert_eq!((r.is_connected(), r.disconnected_at), (false, Some(now.after(20_000))));
        // Messages of a connection that has ended do not revive it.
        r.received(now.after(20_001));
        assert_eq!(r.state(), State::Backoff);
    }

    #[test]
    fn the_log_names_the_states_that_it_enters() {
        let log = vlog::Captured::new(&["rconn"], vlog::Level::Dbg);
        let mut r = Rconn::new();
        r.set_name("br0<->tcp:10.0.0.1:6653".into());
        log.during(|| {
            let now = Millis(50_000);
            r.start(now);
            r.connecting(now);
            r.connected(now);
            r.received(now);
            r.probed(now);
            r.received(now);
            r.disconnected(now, None, TIMEOUTS);
        });
        let states = ["CONNECTING", "ACTIVE", "IDLE", "ACTIVE", "BACKOFF"];
        assert_eq!(log.take(), states.map(|state| format!("br0<->tcp:10.0.0.1:6653: entering {state}")));
    }

    proptest! {
        /// Some action is always due at some time, and waits stay within their bounds.
        #[test]
        fn an_action_is_always_due(
            events in prop::collection::vec((0u8..6, 0u64..10_000), 1..100),
            max_backoff_ms in 0u64..60_000,
            probe_ms in 1u64..10_000,
        ) {
            let timeouts = Timeouts { probe_ms, max_backoff_ms };
            let (mut r, mut now) = (Rconn::new(), Millis(1_000_000));
            r.start(now);
            for (event, ms) in events {
                now = now.after(ms);
                let was_connected = r.is_connected();
                match event {
                    0 => r.connecting(now),
                    1 => {
                        r.connected(now);
                        prop_assert!(r.is_connected() && (was_connected || r.connected_at == Some(now)));
                    }
                    2 => r.received(now),
                    3 if was_connected => r.probed(now),
                    _ => {
                        let wait = r.disconnected(now, None, timeouts);
                        prop_assert!((1000..=max_backoff_ms.max(1000)).contains(&wait));
                        prop_assert_eq!(r.due(timeouts), Some((now.after(wait), Due::Connect)));
                        prop_assert!(!was_connected || r.disconnected_at == Some(now));
                    }
                }
                let (at, due) = r.due(timeouts).expect("never for nothing");
                prop_assert!(at <= now.after(max_backoff_ms.max(probe_ms).max(5000)));
                prop_assert_eq!(matches!(due, Due::Probe | Due::GiveUp), r.is_connected());
            }
        }
    }
}
