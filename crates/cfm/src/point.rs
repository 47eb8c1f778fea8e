//! One maintenance point: the CCMs that it sends, the remote points that it hears, its faults and its health.
//!
//! Faults are collected as CCMs arrive, and hold from the next check on. Checks are 3.5 intervals apart, as the standard
//! defines the timeout of a remote point (IEEE 802.1Q-2018 clause 20.18).
//!
//! Invariant: there are at most [`REMOTES_MAX`] remote points.

use crate::pdu::{Ccm, DESTINATION, EXTENDED_DESTINATION, Refused};
use crate::settings::{CcmVlan, PointSettings};
use base::rng::Rng;
use base::{MacAddr, Millis};
use protocols::{Line, PortMachine};
use std::collections::BTreeMap;
use std::fmt;

/// Remote points that a maintenance point keeps; CCMs of further ones are dropped.
pub const REMOTES_MAX: usize = 256;
/// The health is computed at each check with this number.
const HEALTH_CHECKS: u32 = 6;
/// The CCMs that a healthy remote point sends between two such checks: 6 checks of 3.5 intervals.
const HEALTH_CCMS: u32 = 21;
/// The shortest interval in milliseconds that counts for checks in demand mode: counters of traffic arrive seldom.
const DEMAND_INTERVAL_MIN_MS: u64 = 500;
/// In demand mode, a CCM is required in this many intervals.
const DEMAND_INTERVALS: u64 = 100;

/// The causes of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// No remote point sends CCMs.
    pub recv: bool,
    /// A remote point receives no CCMs.
    pub rdi: bool,
    /// CCMs of another maintenance association arrive.
    pub maid: bool,
    /// CCMs with the local identifier arrive.
    pub loopback: bool,
    /// Forced by a command.
    pub forced: bool,
}

impl Faults {
    /// The names of the causes, in the order in which `cfm/show` prints them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.recv, "recv"),
            (self.rdi, "rdi"),
            (self.maid, "maid"),
            (self.loopback, "loopback"),
            (self.forced, "override"),
        ];
        all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name)
    }

    /// Returns true if there is a cause.
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(" "))
    }
}

/// Counters of a maintenance point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// CCMs sent.
    pub tx: u64,
    /// Frames received, refused ones included.
    pub rx: u64,
    /// Received frames that were refused, or whose remote point found no place.
    pub rx_refused: u64,
    /// Changes between a fault and none.
    pub flaps: u64,
}

/// The state of a remote maintenance point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteStatus {
    /// Its identifier.
    pub mpid: u64,
    /// It has sent a CCM since the last check.
    pub received: bool,
    /// It is operationally down.
    pub is_down: bool,
}

/// The state of a maintenance point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PointStatus {
    /// Name of the interface.
    pub name: String,
    /// Identifier.
    pub mpid: u64,
    /// Extended mode.
    pub extended: bool,
    /// The fault state is forced by a command.
    pub is_forced: bool,
    /// The causes of the fault, if there is one.
    pub faults: Faults,
    /// Percentage of the expected CCMs that arrived and were good, unless there are several remote points.
    pub health: Option<u8>,
    /// The local end is operationally down.
    pub is_down: bool,
    /// A remote point is operationally down.
    pub is_remote_down: bool,
    /// Interval of CCMs in milliseconds.
    pub interval_ms: u64,
    /// When the next CCM is sent.
    pub next_ccm: Millis,
    /// When faults are checked next.
    pub next_check: Millis,
    /// The remote points known now.
    pub remotes: Vec<RemoteStatus>,
    /// Identifiers of the remote points as of the last check.
    pub remote_mpids: Vec<u64>,
    /// Counters.
    pub statistics: Statistics,
}

/// A remote maintenance point.
#[derive(Clone, Copy, Debug)]
struct Remote {
    last_rx: Millis,
    sequence: u32,
    received: bool,
    rdi: bool,
    is_down: bool,
    /// CCMs since the health was computed that were good.
    good: u32,
}

/// A maintenance point.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) settings: PointSettings,
    sequence: u32,
    /// The time of the last CCM, once there was one.
    last_ccm: Option<Millis>,
    next_ccm: Millis,
    next_check: Millis,
    is_checked: bool,
    remotes: BTreeMap<u64, Remote>,
    /// The causes found since the last check.
    found: Faults,
    faults: Faults,
    forced: Option<bool>,
    checks: u32,
    health: Option<u8>,
    remote_mpids: Vec<u64>,
    is_remote_down: bool,
    /// Packets that the interface had received at the last report, and at the last check.
    packets: Option<u64>,
    checked_packets: Option<u64>,
    /// In demand mode, traffic counts until then.
    demand_until: Millis,
    statistics: Statistics,
    /// Lines for the log since they were last taken.
    lines: Vec<Line>,
    /// The status columns as they were last reported.
    reported: Option<Column>,
}

impl Point {
    pub(crate) fn new(settings: PointSettings, now: Millis) -> Self {
        let next_check = now.after(check_interval_ms(&settings));
        Self {
            settings,
            sequence: 0,
            last_ccm: None,
            next_ccm: now,
            next_check,
            is_checked: false,
            remotes: BTreeMap::new(),
            found: Faults::default(),
            faults: Faults::default(),
            forced: None,
            checks: 0,
            health: None,
            remote_mpids: Vec::new(),
            is_remote_down: false,
            packets: None,
            checked_packets: None,
            demand_until: Millis(0),
            statistics: Statistics::default(),
            lines: Vec::new(),
            reported: None,
        }
    }

    /// Makes `settings` the current ones. A new interval begins at once.
    pub(crate) fn configure(&mut self, settings: PointSettings, now: Millis) {
        let old = std::mem::replace(&mut self.settings, settings);
        if old.interval_ms != self.settings.interval_ms {
            self.next_ccm = now;
            self.next_check = now.after(check_interval_ms(&self.settings));
        }
    }

    /// Takes a frame.
    pub(crate) fn receive(&mut self, frame: &[u8], now: Millis) {
        self.statistics.rx += 1;
        match Ccm::parse(frame) {
            Ok((ccm, source)) => self.accept(&ccm, source, now),
            Err(refused) => {
                self.statistics.rx_refused += 1;
                self.found.maid |= matches!(refused, Refused::Association(_));
                let level = if self.found.maid { vlog::Level::Warn } else { vlog::Level::Info };
                self.lines.push((level, format!("{}: {refused}", self.settings.name)));
            }
        }
    }

    fn accept(&mut self, ccm: &Ccm, source: MacAddr, now: Millis) {
        let extended = self.settings.extended;
        let mpid = if extended { ccm.extended_mpid } else { ccm.mpid.into() };
        self.check_interval(ccm, mpid);
        self.demand_until = now.after(DEMAND_INTERVALS * self.settings.interval_ms);
        let (is_down, name) = (extended && ccm.is_down, &self.settings.name);
        if let Some(remote) = self.remotes.get_mut(&mpid) {
            // As in Open vSwitch, the first CCM of a point is not compared with the local identifier.
            let is_loop = mpid == self.settings.mpid;
            if is_loop {
                self.found.loopback = true;
                self.lines.push((vlog::Level::Warn, format!("{name}: received CCM with local MPID {mpid}")));
            }
            let (previous, current) = (remote.sequence, ccm.sequence);
            let is_in_sequence = previous == 0 || current == previous.wrapping_add(1);
            if !is_in_sequence {
                let line = format!(
                    "{name}: (mpid {mpid}) detected sequence numbers which indicate possible connectivity problems \
                     (previous {previous}) (current {current})"
                );
                self.lines.push((vlog::Level::Warn, line));
            }
            let good = remote.good + u32::from(is_in_sequence && !is_loop && !ccm.rdi);
            *remote = Remote { last_rx: now, sequence: current, received: true, rdi: ccm.rdi, is_down, good };
        } else if self.remotes.len() < REMOTES_MAX {
            let remote = Remote {
                last_rx: now,
                sequence: ccm.sequence,
                received: true,
                rdi: ccm.rdi,
                is_down,
                good: u32::from(!ccm.rdi),
            };
            self.remotes.insert(mpid, remote);
        } else {
            self.statistics.rx_refused += 1;
            self.lines.push((vlog::Level::Warn, format!("{name}: dropped CCM with MPID {mpid} from MAC {source}")));
        }
    }

    /// Writes a warning if the remote point sends at another interval.
    fn check_interval(&mut self, ccm: &Ccm, mpid: u64) {
        let (name, code) = (&self.settings.name, self.settings.interval_code());
        let (received, extended) = (ccm.interval_code, ccm.extended_interval_ms);
        let line = if received != code {
            format!("{name}: received a CCM with an unexpected interval ({received}) from RMP {mpid}")
        } else if code == 0 && u64::from(extended) != self.settings.interval_ms {
            format!("{name}: received a CCM with an unexpected extended interval ({extended}ms) from RMP {mpid}")
        } else {
            return;
        };
        self.lines.push((vlog::Level::Warn, line));
    }

    fn transmit(&mut self, now: Millis, rng: &mut Rng) -> Vec<u8> {
        let settings = &self.settings;
        self.sequence = self.sequence.wrapping_add(1);
        let vlan = match settings.vlan {
            CcmVlan::Fixed(vlan) => vlan,
            CcmVlan::Random => 1 + rng.below(4094) as u16,
        };
        let (code, mpid) = (settings.interval_code(), settings.mpid);
        let ccm = Ccm {
            rdi: self.is_checked && self.remotes.is_empty(),
            interval_code: code,
            sequence: self.sequence,
            mpid: if settings.extended { folded(mpid) } else { mpid as u16 },
            extended_interval_ms: if code == 0 { settings.interval_ms as u16 } else { 0 },
            extended_mpid: if settings.extended { mpid } else { 0 },
            is_down: settings.is_down,
        };
        let destination = if settings.extended { EXTENDED_DESTINATION } else { DESTINATION };
        let frame = ccm.frame(settings.mac, destination, u16::from(settings.pcp) << 13 | vlan);
        let (interval, delay) = (settings.interval_ms, self.last_ccm.map_or(0, |last| now.since(last)));
        if delay > interval * 3 / 2 {
            let (name, sequence) = (&settings.name, self.sequence);
            let line = format!("{name}: long delay of {delay}ms (expected {interval}ms) sending CCM seq {sequence}");
            self.lines.push((vlog::Level::Info, line));
        }
        self.statistics.tx += 1;
        self.last_ccm = Some(now);
        self.next_ccm = now.after(interval);
        frame
    }

    /// Takes the number of packets that the interface has received, CCMs included.
    pub(crate) fn traffic(&mut self, packets: u64) {
        self.packets = Some(packets);
        self.checked_packets = self.checked_packets.or(self.packets);
    }

    /// Whether traffic takes the place of CCMs until the next check.
    fn has_traffic(&mut self, now: Millis) -> bool {
        let has_more = self.packets > self.checked_packets;
        self.checked_packets = self.packets;
        self.settings.demand && has_more && self.remotes.len() == 1 && now < self.demand_until
    }

    /// Removes the remote points that have sent no CCM since the last check, and decides about the faults.
    fn check(&mut self, now: Millis) {
        self.next_check = now.after(check_interval_ms(&self.settings));
        self.compute_health();
        let has_traffic = self.has_traffic(now);
        let mut faults = std::mem::take(&mut self.found);
        let (name, lines) = (&self.settings.name, &mut self.lines);
        self.remotes.retain(|mpid, remote| {
            if !remote.received {
                let since = now.since(remote.last_rx);
                let line = format!("{name}: Received no CCM from RMP {mpid} in the last {since}ms");
                lines.push((vlog::Level::Info, line));
            }
            let remains = remote.received || has_traffic;
            faults.rdi |= remains && remote.rdi;
            remote.received = false;
            remains
        });
        faults.recv = self.remotes.is_empty();
        self.remote_mpids = self.remotes.keys().copied().collect();
        self.is_remote_down = self.remotes.values().any(|remote| remote.is_down);
        self.is_checked = true;
        if faults != self.faults {
            lines
                .push((vlog::Level::Info, format!("{name}: CFM faults changed from [{}] to [{faults}].", self.faults)));
            self.statistics.flaps += u64::from(faults.any() != self.faults.any());
            self.faults = faults;
        }
    }

    fn compute_health(&mut self) {
        if self.checks == HEALTH_CHECKS {
            self.checks = 0;
            self.health = match self.remotes.values().next() {
                None => Some(0),
                Some(_) if self.remotes.len() > 1 => None,
                Some(remote) => Some((remote.good * 100 / HEALTH_CCMS).min(100) as u8),
            };
            self.remotes.values_mut().for_each(|remote| remote.good = 0);
        }
        self.checks += 1;
    }

    /// Forces a fault or its absence, or ends that.
    pub(crate) fn force(&mut self, forced: Option<bool>) {
        self.forced = forced;
    }

    /// The causes of the fault, if there is one.
    pub(crate) fn faults(&self) -> Faults {
        match self.forced {
            Some(forced) => Faults { forced, ..Faults::default() },
            None => self.faults,
        }
    }

    pub(crate) fn status(&self) -> PointStatus {
        let remote = |(mpid, remote): (&u64, &Remote)| RemoteStatus {
            mpid: *mpid,
            received: remote.received,
            is_down: remote.is_down,
        };
        PointStatus {
            name: self.settings.name.clone(),
            mpid: self.settings.mpid,
            extended: self.settings.extended,
            is_forced: self.forced.is_some(),
            faults: self.faults(),
            health: self.health,
            is_down: self.settings.is_down,
            is_remote_down: self.is_remote_down,
            interval_ms: self.settings.interval_ms,
            next_ccm: self.next_ccm,
            next_check: self.next_check,
            remotes: self.remotes.iter().map(remote).collect(),
            remote_mpids: self.remote_mpids.clone(),
            statistics: self.statistics,
        }
    }
}

impl PortMachine for Point {
    fn deadline(&self) -> Millis {
        self.next_ccm.min(self.next_check)
    }

    fn poll(&mut self, now: Millis, rng: &mut Rng) -> Option<Vec<u8>> {
        let frame = (now >= self.next_ccm).then(|| self.transmit(now, rng));
        if now >= self.next_check {
            self.check(now);
        }
        frame
    }

    /// A port is live without a fault, and with a remote end that is up.
    fn is_live(&self) -> bool {
        !self.faults().any() && !self.is_remote_down
    }

    fn take_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }

    fn has_new_status(&mut self) -> bool {
        let is_same = self.reported.as_ref().is_some_and(|column| {
            (column.faults, column.health, column.is_remote_down, column.flaps, column.extended)
                == (self.faults(), self.health, self.is_remote_down, self.statistics.flaps, self.settings.extended)
                && column.remote_mpids == self.remote_mpids
        });
        if !is_same {
            self.reported = Some(Column {
                faults: self.faults(),
                health: self.health,
                is_remote_down: self.is_remote_down,
                flaps: self.statistics.flaps,
                extended: self.settings.extended,
                remote_mpids: self.remote_mpids.clone(),
            });
        }
        !is_same
    }
}

/// The contents of the status columns.
#[derive(Debug)]
pub(crate) struct Column {
    faults: Faults,
    health: Option<u8>,
    is_remote_down: bool,
    flaps: u64,
    extended: bool,
    remote_mpids: Vec<u64>,
}

fn check_interval_ms(settings: &PointSettings) -> u64 {
    let shortest = if settings.demand { DEMAND_INTERVAL_MIN_MS } else { 0 };
    settings.interval_ms.max(shortest) * 7 / 2
}

/// The 16-bit identifier of an extended one. Receivers in extended mode ignore it.
fn folded(mpid: u64) -> u16 {
    (mpid ^ mpid >> 16 ^ mpid >> 32 ^ mpid >> 48) as u16
}
