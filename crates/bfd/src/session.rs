//! The state machine of one session (RFC 5880 section 6).
//!
//! Invariants: the local intervals in use differ from the configured ones only while a poll sequence runs, or is due; the
//! remote parameters are cleared when the session goes down.

use crate::packet::{self, Addresses, Control, Diagnostic, Flags, Refused, State};
use crate::settings::{DESTINATION_MAC, SessionSettings};
use base::Millis;
use base::rng::Rng;
use protocols::{Line, PortMachine};

/// The shortest transmit interval in milliseconds while the session is not up (RFC 5880 section 6.8.3).
const SLOW_TX_MS: u32 = 1000;
/// How long received traffic counts at least, in milliseconds: counters of traffic arrive seldom.
const TRAFFIC_MIN_MS: u64 = 2000;
/// With `forwarding_if_rx`, a control packet is required in this many receive intervals.
const TRAFFIC_INTERVALS: u64 = 100;

/// Counters of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Control packets sent.
    pub tx: u64,
    /// Control packets received, refused ones included.
    pub rx: u64,
    /// Received control packets that were refused.
    pub rx_refused: u64,
    /// Changes of the forwarding state.
    pub flaps: u64,
}

/// The parameters of the remote system, from its last packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Its state.
    pub state: State,
    /// Its reason for that state.
    pub diagnostic: Diagnostic,
    /// Flags of its last packet.
    pub flags: Flags,
    /// Its discriminator, 0 if unknown.
    pub discriminator: u32,
    /// Its shortest transmit interval in milliseconds.
    pub min_tx_ms: u32,
    /// Its shortest receive interval in milliseconds, at least 1.
    pub min_rx_ms: u32,
}

impl Default for Remote {
    fn default() -> Self {
        Self {
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            flags: Flags::NONE,
            discriminator: 0,
            min_tx_ms: 0,
            min_rx_ms: 1,
        }
    }
}

/// The state of a session, as of the last poll.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionStatus {
    /// Name of the interface.
    pub name: String,
    /// The interface may be used to forward traffic.
    pub forwarding: bool,
    /// Local state.
    pub state: State,
    /// The reason for it.
    pub diagnostic: Diagnostic,
    /// Flags of the next packet.
    pub flags: Flags,
    /// Local discriminator.
    pub discriminator: u32,
    /// Local detection multiplier.
    pub multiplier: u8,
    /// Reports that the path behind the local system is down.
    pub cpath_down: bool,
    /// Local shortest transmit interval in milliseconds.
    pub min_tx_ms: u32,
    /// Local shortest receive interval in milliseconds.
    pub min_rx_ms: u32,
    /// Negotiated transmit interval in milliseconds.
    pub tx_interval_ms: u32,
    /// Negotiated receive interval in milliseconds.
    pub rx_interval_ms: u32,
    /// When the session goes down unless a packet arrives before.
    pub detection: Millis,
    /// When the next packet is sent.
    pub next_tx: Millis,
    /// When the last packet was sent.
    pub last_tx: Millis,
    /// Parameters of the remote system.
    pub remote: Remote,
    /// The remote system's detection multiplier, 0 before its first packet.
    pub remote_multiplier: u8,
    /// Counters.
    pub statistics: Statistics,
}

/// A pair of local intervals in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Intervals {
    min_tx_ms: u32,
    min_rx_ms: u32,
}

/// The counts by which a session decides whether its interface receives traffic.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    /// Packets that the interface had received at the last report, if there was one.
    packets: Option<u64>,
    /// Control packets since then.
    control: u64,
    /// Received packets at the beginning of the period that decides about the decay.
    decay_packets: Option<u64>,
    /// Control packets of that period.
    decay_control: u64,
    /// The end of that period.
    decay_until: Millis,
    /// Received traffic counts until then.
    until: Millis,
    /// The same for the control packets that have to come with the traffic.
    control_until: Millis,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) settings: SessionSettings,
    discriminator: u32,
    udp_src: u16,
    state: State,
    diagnostic: Diagnostic,
    intervals: Intervals,
    /// The intervals announced by the poll sequence that runs, if one does.
    poll: Option<Intervals>,
    /// A poll of the remote system is to be answered.
    answers: bool,
    decays: bool,
    remote: Remote,
    remote_multiplier: u8,
    detection: Millis,
    next_tx: Millis,
    last_tx: Millis,
    was_forwarding: bool,
    forced: Option<bool>,
    traffic: Traffic,
    statistics: Statistics,
    /// Lines for the log since they were last taken.
    lines: Vec<Line>,
    /// The status column as it was last reported.
    reported: Option<Column>,
}

impl Session {
    pub(crate) fn new(settings: SessionSettings, discriminator: u32, udp_src: u16, now: Millis) -> Self {
        let intervals = Intervals { min_tx_ms: settings.min_tx_ms, min_rx_ms: settings.min_rx_ms };
        let mut session = Self {
            settings,
            discriminator,
            udp_src,
            state: State::AdminDown,
            diagnostic: Diagnostic::NONE,
            intervals,
            poll: None,
            answers: false,
            decays: false,
            remote: Remote::default(),
            remote_multiplier: 0,
            detection: Millis(0),
            next_tx: now,
            last_tx: Millis(0),
            was_forwarding: false,
            forced: None,
            traffic: Traffic::default(),
            statistics: Statistics::default(),
            lines: Vec::new(),
            reported: None,
        };
        session.set_state(State::Down, Diagnostic::NONE);
        session
    }

    pub(crate) fn discriminator(&self) -> u32 {
        self.discriminator
    }

    /// Makes `settings` the current ones.
    pub(crate) fn configure(&mut self, settings: SessionSettings, now: Millis) {
        let old = std::mem::replace(&mut self.settings, settings);
        let new = &self.settings;
        let has_new_decay = (old.decay_min_rx_ms, old.min_rx_ms) != (new.decay_min_rx_ms, new.min_rx_ms);
        if old.forwarding_if_rx != new.forwarding_if_rx {
            self.traffic.until = Millis(0);
            self.traffic.control_until = now.after(TRAFFIC_INTERVALS * u64::from(new.min_rx_ms));
        }
        if old.cpath_down != new.cpath_down {
            self.set_state(self.state, Diagnostic::NONE);
        }
        if has_new_decay {
            self.decays = false;
            self.begin_decay_period(now);
        }
        self.negotiate(now);
        self.update_forwarding(now);
    }

    /// The intervals that the configuration asks for.
    fn desired(&self) -> Intervals {
        let SessionSettings { min_tx_ms, min_rx_ms, decay_min_rx_ms, .. } = self.settings;
        Intervals { min_tx_ms, min_rx_ms: if self.decays { decay_min_rx_ms } else { min_rx_ms } }
    }

    /// Begins to use the desired intervals (RFC 5880 section 6.8.3): at once if that cannot let the remote system's
    /// detection time expire, otherwise after a poll sequence. Waits for the end of a sequence that runs.
    fn negotiate(&mut self, now: Millis) {
        let desired = self.desired();
        if self.poll.is_some() || desired == self.intervals {
            return;
        }
        if self.state != State::Up {
            self.intervals = desired;
            return;
        }
        self.intervals.min_tx_ms = self.intervals.min_tx_ms.min(desired.min_tx_ms);
        self.intervals.min_rx_ms = self.intervals.min_rx_ms.max(desired.min_rx_ms);
        self.poll = Some(desired);
        self.next_tx = now;
        self.info(|name| format!("{name}: Initiating poll sequence"));
    }

    fn end_poll(&mut self, now: Millis, rng: &mut Rng) {
        let Some(announced) = self.poll.take() else { return };
        self.info(|name| format!("{name}: Poll sequence terminated."));
        self.intervals = announced;
        self.schedule(rng);
        self.negotiate(now);
    }

    /// Draws the time of the next packet.
    fn schedule(&mut self, rng: &mut Rng) {
        if self.statistics.tx > 0 {
            let interval = jittered(u64::from(self.tx_interval_ms()), self.settings.multiplier, rng);
            self.next_tx = self.last_tx.after(interval);
        }
    }

    /// Takes the UDP payload of a frame.
    pub(crate) fn receive(&mut self, payload: &[u8], now: Millis, rng: &mut Rng) {
        self.statistics.rx += 1;
        self.traffic.control += 1;
        match Control::parse(payload).and_then(|control| self.check(control)) {
            Ok(control) => self.accept(control, now, rng),
            Err(refused) => {
                self.statistics.rx_refused += 1;
                let line = match refused {
                    Refused::TooShort(_) => (vlog::Level::Info, format!("{}: {refused}", self.settings.name)),
                    _ => (vlog::Level::Warn, format!("{}: {refused}", self.settings.name)),
                };
                self.lines.push(line);
            }
        }
        self.update_forwarding(now);
    }

    fn check(&self, control: Control) -> Result<Control, Refused> {
        match control.your_discriminator {
            0 if control.state > State::Down => Err(Refused::NoSession),
            0 => Ok(control),
            yours if yours != self.discriminator => Err(Refused::OtherSession),
            _ => Ok(control),
        }
    }

    /// Processes a packet of the remote system (RFC 5880 section 6.8.6).
    fn accept(&mut self, control: Control, now: Millis, rng: &mut Rng) {
        self.traffic.decay_control += 1;
        self.traffic.control_until = now.after(TRAFFIC_INTERVALS * u64::from(self.settings.min_rx_ms));
        if control.multiplier != self.remote_multiplier {
            let (old, new) = (self.remote_multiplier, control.multiplier);
            self.info(|name| format!("Interface {name} remote mult value {old} changed to {new}"));
            self.remote_multiplier = new;
        }
        let milliseconds = |us: u32| us.div_ceil(1000).max(1);
        let min_rx_ms = milliseconds(control.required_min_rx_us);
        let has_new_interval = min_rx_ms != self.remote.min_rx_ms;
        self.remote = Remote {
            state: control.state,
            diagnostic: control.diagnostic,
            flags: control.flags,
            discriminator: control.my_discriminator,
            min_tx_ms: milliseconds(control.desired_min_tx_us),
            min_rx_ms,
        };
        if has_new_interval {
            self.info(|name| format!("{name}: New remote min_rx."));
            self.schedule(rng);
        }
        if control.flags.has(Flags::FINAL) {
            self.end_poll(now, rng);
        }
        if control.flags.has(Flags::POLL) {
            self.answers = true;
            self.next_tx = now;
        }
        self.detection = now.after(self.detection_ms());
        self.follow_remote_state(now);
    }

    fn follow_remote_state(&mut self, now: Millis) {
        match (self.state, self.remote.state) {
            (State::Init | State::Up, State::AdminDown) | (State::Up, State::Down) => {
                let remote = self.remote.state;
                self.set_state(State::Down, Diagnostic::NEIGHBOR_DOWN);
                if remote == State::Down {
                    self.info(|name| format!("{name}: Remote signaled STATE_DOWN."));
                }
            }
            (State::Down, State::Down) => self.set_state(State::Init, self.diagnostic),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.set_state(State::Up, self.diagnostic);
                self.begin_decay_period(now);
            }
            _ => {}
        }
    }

    fn set_state(&mut self, state: State, diagnostic: Diagnostic) {
        let diagnostic = match diagnostic {
            _ if self.settings.cpath_down => Diagnostic::CONCATENATED_PATH_DOWN,
            Diagnostic::CONCATENATED_PATH_DOWN => Diagnostic::NONE,
            diagnostic => diagnostic,
        };
        if (state, diagnostic) != (self.state, self.diagnostic) {
            let (old_state, old_diagnostic) = (self.state, self.diagnostic);
            self.info(|name| {
                format!(
                    "{name}: BFD state change: (bfd.SessionState: {old_state}, bfd.LocalDiag: \"{old_diagnostic}\") -> \
                     (bfd.SessionState: {state}, bfd.LocalDiag: \"{diagnostic}\")"
                )
            });
        }
        (self.state, self.diagnostic) = (state, diagnostic);
        if state <= State::Down {
            self.remote = Remote::default();
            self.poll = None;
            self.decays = false;
            self.intervals = self.desired();
        }
    }

    fn transmit(&mut self, now: Millis, rng: &mut Rng) -> Vec<u8> {
        let interval = u64::from(self.tx_interval_ms());
        let delay = now.since(self.last_tx);
        // The interval may have become shorter since the packet was scheduled, which is no delay.
        if self.statistics.tx > 0 && now.since(self.next_tx) > interval / 2 {
            self.info(|name| {
                format!("{name}: long delay of {delay}ms (expected {interval}ms) sending BFD control message")
            });
        }
        let frame = packet::frame(&self.addresses(), &self.control());
        self.answers = false;
        self.statistics.tx += 1;
        self.last_tx = now;
        self.schedule(rng);
        frame
    }

    /// The next packet (RFC 5880 section 6.8.7).
    fn control(&self) -> Control {
        let announced = self.poll.unwrap_or(self.intervals);
        Control {
            diagnostic: self.diagnostic,
            state: self.state,
            flags: self.flags(),
            multiplier: self.settings.multiplier,
            my_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_min_tx_us: self.slowed(announced.min_tx_ms).saturating_mul(1000),
            required_min_rx_us: announced.min_rx_ms.saturating_mul(1000),
            required_min_echo_rx_us: 0,
        }
    }

    /// A packet must not have both flags: the answer to a poll comes first.
    fn flags(&self) -> Flags {
        match self.poll {
            _ if self.answers => Flags::FINAL,
            Some(_) => Flags::POLL,
            None => Flags::NONE,
        }
    }

    fn addresses(&self) -> Addresses {
        let settings = &self.settings;
        Addresses {
            mac_src: settings.local_src_mac.unwrap_or(settings.mac),
            mac_dst: settings.local_dst_mac.unwrap_or(DESTINATION_MAC),
            ip_src: settings.src_ip,
            ip_dst: settings.dst_ip,
            udp_src: self.udp_src,
        }
    }

    /// A transmit interval, which is longer while the session is not up.
    fn slowed(&self, min_tx_ms: u32) -> u32 {
        if self.state == State::Up { min_tx_ms } else { min_tx_ms.max(SLOW_TX_MS) }
    }

    fn tx_interval_ms(&self) -> u32 {
        self.slowed(self.intervals.min_tx_ms).max(self.remote.min_rx_ms)
    }

    fn rx_interval_ms(&self) -> u32 {
        self.intervals.min_rx_ms.max(self.remote.min_tx_ms)
    }

    /// The detection time (RFC 5880 section 6.8.4).
    fn detection_ms(&self) -> u64 {
        u64::from(self.rx_interval_ms()) * u64::from(self.remote_multiplier)
    }

    fn begin_decay_period(&mut self, now: Millis) {
        self.traffic.decay_packets = self.traffic.packets;
        self.traffic.decay_control = 0;
        self.traffic.decay_until = now.after(u64::from(self.settings.decay_min_rx_ms).max(TRAFFIC_MIN_MS));
    }

    /// Returns true if the session needs reports of its interface's traffic.
    pub(crate) fn wants_traffic(&self) -> bool {
        self.settings.forwarding_if_rx || self.settings.decay_min_rx_ms > 0
    }

    /// Takes the number of packets that the interface has received, control packets included.
    pub(crate) fn traffic(&mut self, packets: u64, now: Millis) {
        let since = |before: Option<u64>| packets.saturating_sub(before.unwrap_or(packets));
        if self.settings.forwarding_if_rx && since(self.traffic.packets) > self.traffic.control {
            self.traffic.until = now.after(self.detection_ms().max(TRAFFIC_MIN_MS));
        }
        (self.traffic.packets, self.traffic.control) = (Some(packets), 0);
        let period_ends = self.settings.decay_min_rx_ms > 0 && now >= self.traffic.decay_until;
        if self.state == State::Up && period_ends {
            // The count includes control packets. Without a count at the beginning, nothing is known about the period.
            if self.traffic.decay_packets.is_some() {
                self.decays = since(self.traffic.decay_packets) <= 2 * self.traffic.decay_control;
            }
            self.begin_decay_period(now);
            self.negotiate(now);
        }
        self.update_forwarding(now);
    }

    /// Forces the forwarding state, or ends that.
    pub(crate) fn force(&mut self, forced: Option<bool>, now: Millis) {
        self.forced = forced;
        self.update_forwarding(now);
    }

    fn has_traffic(&self, now: Millis) -> bool {
        self.settings.forwarding_if_rx && now < self.traffic.until && now < self.traffic.control_until
    }

    pub(crate) fn is_forwarding(&self) -> bool {
        self.forced.unwrap_or(self.was_forwarding)
    }

    /// To be called after each change of the session. A forced state has no flaps.
    fn update_forwarding(&mut self, now: Millis) {
        if self.forced.is_some() {
            return;
        }
        let is_forwarding =
            (self.state == State::Up || self.has_traffic(now)) && !self.remote.diagnostic.forbids_forwarding();
        if is_forwarding != self.was_forwarding {
            self.was_forwarding = is_forwarding;
            self.statistics.flaps += 1;
        }
    }

    pub(crate) fn status(&self) -> SessionStatus {
        SessionStatus {
            name: self.settings.name.clone(),
            forwarding: self.is_forwarding(),
            state: self.state,
            diagnostic: self.diagnostic,
            flags: self.flags(),
            discriminator: self.discriminator,
            multiplier: self.settings.multiplier,
            cpath_down: self.settings.cpath_down,
            min_tx_ms: self.slowed(self.intervals.min_tx_ms),
            min_rx_ms: self.intervals.min_rx_ms,
            tx_interval_ms: self.tx_interval_ms(),
            rx_interval_ms: self.rx_interval_ms(),
            detection: self.detection,
            next_tx: self.next_tx,
            last_tx: self.last_tx,
            remote: self.remote,
            remote_multiplier: self.remote_multiplier,
            statistics: self.statistics,
        }
    }

    /// The part of the status that a status column shows.
    fn column(&self) -> Column {
        Column {
            forwarding: self.is_forwarding(),
            state: self.state,
            diagnostic: self.diagnostic,
            remote_state: self.remote.state,
            remote_diagnostic: self.remote.diagnostic,
            flaps: self.statistics.flaps,
        }
    }

    fn info(&mut self, line: impl FnOnce(&str) -> String) {
        let line = line(&self.settings.name);
        self.lines.push((vlog::Level::Info, line));
    }
}

impl PortMachine for Session {
    fn deadline(&self) -> Millis {
        let mut deadline = self.next_tx;
        if self.state > State::Down {
            deadline = deadline.min(self.detection);
        } else if self.was_forwarding && self.forced.is_none() {
            deadline = deadline.min(self.traffic.until).min(self.traffic.control_until);
        }
        deadline
    }

    fn poll(&mut self, now: Millis, rng: &mut Rng) -> Option<Vec<u8>> {
        if self.state > State::Down && now >= self.detection {
            self.set_state(State::Down, Diagnostic::EXPIRED);
        }
        let frame = (now >= self.next_tx).then(|| self.transmit(now, rng));
        self.update_forwarding(now);
        frame
    }

    fn is_live(&self) -> bool {
        self.is_forwarding()
    }

    fn take_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }

    fn has_new_status(&mut self) -> bool {
        let column = self.column();
        self.reported.replace(column) != Some(column)
    }
}

/// The contents of a status column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Column {
    pub(crate) forwarding: bool,
    state: State,
    diagnostic: Diagnostic,
    remote_state: State,
    remote_diagnostic: Diagnostic,
    flaps: u64,
}

/// An interval less up to a quarter of it, at least a tenth if the detection multiplier is 1 (RFC 5880 section 6.8.7).
pub(crate) fn jittered(interval_ms: u64, multiplier: u8, rng: &mut Rng) -> u64 {
    let percent = if multiplier == 1 { 10 + rng.below(16) } else { rng.below(26) };
    interval_ms - interval_ms * percent / 100
}
