//! One OpenFlow connection as it comes and goes: when to connect, when to ask whether the other end is still there, and
//! when to give it up. A machine without sockets: time is an argument, and who drives it does what [`Rconn::due`] says.
//!
//! States and what they are called are those of Controller:status in ovs-vswitchd.conf.db(5).

use base::Millis;

/// Milliseconds until the first attempt to connect again.
const BACKOFF_MIN_MS: u64 = 1000;
/// Milliseconds that an attempt may take at least, until versions are agreed on.
const ATTEMPT_MIN_MS: u64 = 5000;

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not to be connected.
    Void,
    /// Waiting until the next attempt.
    Backoff,
    /// Attempting.
    Connecting,
    /// There, and the other end spoke not long ago.
    Active,
    /// There, and the other end was asked whether it is.
    Idle,
}

impl State {
    /// As the database has it.
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

/// What is to be done at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Connect.
    Connect,
    /// Stop the attempt to connect: it takes too long.
    StopConnecting,
    /// Send an echo request.
    Probe,
    /// Close the connection: the other end has not answered.
    GiveUp,
}

/// How long to wait for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Patience {
    /// Milliseconds of silence until an echo request, and as long again until the end; 0 for never.
    pub probe_ms: u64,
    /// Most milliseconds between attempts to connect.
    pub max_backoff_ms: u64,
}

/// The machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rconn {
    state: State,
    /// When it came into its state, or the other end last spoke in it.
    since: Millis,
    /// How long to wait after the next failure.
    backoff_ms: u64,
    /// Why the last connection or attempt ended, unless nothing was wrong.
    pub last_error: Option<String>,
    /// When a connection was last made.
    pub connected_at: Option<Millis>,
    /// When a connection was last lost.
    pub disconnected_at: Option<Millis>,
}

impl Rconn {
    /// One that was never connected.
    pub(crate) fn new() -> Self {
        Self {
            state: State::Void,
            since: Millis(0),
            backoff_ms: 0,
            last_error: None,
            connected_at: None,
            disconnected_at: None,
        }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether it is there.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Active | State::Idle)
    }

    fn enter(&mut self, state: State, now: Millis) {
        (self.state, self.since) = (state, now);
    }

    /// It is to be connected from now on, at once.
    pub(crate) fn start(&mut self, now: Millis) {
        self.enter(State::Backoff, now);
    }

    /// An attempt to connect has begun.
    pub(crate) fn connecting(&mut self, now: Millis) {
        self.enter(State::Connecting, now);
    }

    /// It is connected. Whether it was not.
    pub(crate) fn connected(&mut self, now: Millis) -> bool {
        if self.is_connected() {
            return false;
        }
        self.enter(State::Active, now);
        self.connected_at = Some(now);
        true
    }

    /// The other end spoke.
    pub(crate) fn received(&mut self, now: Millis) {
        if self.is_connected() {
            self.enter(State::Active, now);
        }
    }

    /// The connection or the attempt is over, with an error unless that was asked for. Returns how many
    /// milliseconds to wait: a connection that lasted starts over with a short time, an attempt that failed doubles it.
    pub(crate) fn disconnected(&mut self, now: Millis, error: Option<String>, patience: Patience) -> u64 {
        let lasted = self.is_connected() && self.connected_at.is_some_and(|at| now.since(at) >= self.backoff_ms);
        if self.is_connected() {
            self.disconnected_at = Some(now);
        }
        self.last_error = error;
        let next = if lasted { BACKOFF_MIN_MS } else { (self.backoff_ms * 2).max(BACKOFF_MIN_MS) };
        self.backoff_ms = next.min(patience.max_backoff_ms.max(BACKOFF_MIN_MS));
        self.enter(State::Backoff, now);
        self.backoff_ms
    }

    /// What is to be done next, and when; `None` as long as nothing happens.
    pub(crate) fn due(&self, patience: Patience) -> Option<(Millis, Due)> {
        let probe = (patience.probe_ms != 0).then_some(patience.probe_ms);
        match self.state {
            State::Void => None,
            // It may have become less meanwhile.
            State::Backoff => {
                Some((self.since.after(self.backoff_ms.min(patience.max_backoff_ms.max(BACKOFF_MIN_MS))), Due::Connect))
            }
            State::Connecting => Some((self.since.after(self.backoff_ms.max(ATTEMPT_MIN_MS)), Due::StopConnecting)),
            State::Active => Some((self.since.after(probe?), Due::Probe)),
            State::Idle => Some((self.since.after(probe?), Due::GiveUp)),
        }
    }

    /// The other end has been asked whether it is there.
    pub(crate) fn probed(&mut self, now: Millis) {
        self.enter(State::Idle, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATIENCE: Patience = Patience { probe_ms: 5000, max_backoff_ms: 8000 };

    #[test]
    fn attempts_become_rarer_and_a_connection_that_lasted_is_sought_again_soon() {
        let mut r = Rconn::new();
        assert_eq!((r.state().name(), r.due(PATIENCE)), ("VOID", None));
        let mut now = Millis(100);
        r.start(now);
        assert_eq!(r.due(PATIENCE), Some((now, Due::Connect)));
        let mut waits = Vec::new();
        for _ in 0..6 {
            r.connecting(now);
            let (limit, due) = r.due(PATIENCE).unwrap();
            assert!(limit.since(now) >= 5000 && due == Due::StopConnecting);
            waits.push(r.disconnected(now, Some("no".into()), PATIENCE));
            let (at, due) = r.due(PATIENCE).unwrap();
            assert_eq!((at.since(now), due, r.state().name()), (*waits.last().unwrap(), Due::Connect, "BACKOFF"));
            now = at;
        }
        assert_eq!(waits, [1000, 2000, 4000, 8000, 8000, 8000]);
        // One that is lost at once is no better than an attempt that failed; one that stayed is.
        r.connected(now);
        assert_eq!(r.disconnected(now.after(10), Some("no".into()), PATIENCE), 8000);
        assert_eq!(r.last_error.as_deref(), Some("no"));
        r.connected(now);
        assert_eq!(r.disconnected(now.after(9000), None, PATIENCE), 1000);
        assert_eq!((r.last_error.as_deref(), r.connected_at), (None, Some(now)));
        // The bound may have changed meanwhile, also while one waits; below a second there is none.
        r.connected(now);
        assert_eq!(r.disconnected(now, None, PATIENCE), 2000);
        assert_eq!(r.due(Patience { max_backoff_ms: 1500, ..PATIENCE }), Some((now.after(1500), Due::Connect)));
        r.connecting(now);
        assert_eq!(r.disconnected(now, None, Patience { max_backoff_ms: 1, ..PATIENCE }), 1000);
    }

    #[test]
    fn silence_is_probed_and_then_the_end() {
        let mut r = Rconn::new();
        let now = Millis(50_000);
        r.connected(now);
        assert_eq!(r.due(PATIENCE), Some((now.after(5000), Due::Probe)));
        r.received(now.after(3000));
        assert_eq!(r.due(PATIENCE), Some((now.after(8000), Due::Probe)));
        r.probed(now.after(8000));
        assert_eq!((r.state().name(), r.is_connected()), ("IDLE", true));
        assert_eq!(r.due(PATIENCE), Some((now.after(13_000), Due::GiveUp)));
        r.received(now.after(9000));
        assert_eq!((r.state().name(), r.due(PATIENCE)), ("ACTIVE", Some((now.after(14_000), Due::Probe))));
        assert_eq!(r.due(Patience { probe_ms: 0, ..PATIENCE }), None);
        r.disconnected(now.after(20_000), Some("Connection timed out".into()), PATIENCE);
        assert_eq!((r.is_connected(), r.disconnected_at), (false, Some(now.after(20_000))));
        // What comes in from a connection that is over does not bring it back.
        r.received(now.after(20_001));
        assert_eq!(r.state(), State::Backoff);
    }

    proptest! {
        /// Whatever happens, something is due at some time, and waits stay within their bounds.
        #[test]
        fn there_is_always_something_to_come(
            events in prop::collection::vec((0u8..6, 0u64..10_000), 1..100),
            max_backoff_ms in 0u64..60_000,
            probe_ms in 1u64..10_000,
        ) {
            let patience = Patience { probe_ms, max_backoff_ms };
            let (mut r, mut now) = (Rconn::new(), Millis(1_000_000));
            r.start(now);
            for (event, ms) in events {
                now = now.after(ms);
                let was_connected = r.is_connected();
                match event {
                    0 => r.connecting(now),
                    1 => prop_assert_eq!(r.connected(now), !was_connected),
                    2 => r.received(now),
                    3 if was_connected => r.probed(now),
                    _ => {
                        let wait = r.disconnected(now, None, patience);
                        prop_assert!((1000..=max_backoff_ms.max(1000)).contains(&wait));
                        prop_assert_eq!(r.due(patience), Some((now.after(wait), Due::Connect)));
                        prop_assert!(!was_connected || r.disconnected_at == Some(now));
                    }
                }
                let (at, due) = r.due(patience).expect("never for nothing");
                prop_assert!(at <= now.after(max_backoff_ms.max(probe_ms).max(5000)));
                prop_assert_eq!(matches!(due, Due::Probe | Due::GiveUp), r.is_connected());
            }
        }
    }
}
