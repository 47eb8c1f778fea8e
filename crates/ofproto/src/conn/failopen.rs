//! Fail-open: a bridge whose controllers are unreachable becomes a learning switch (`fail_mode=standalone`).
//!
//! When no primary controller has been connected, and none has sent a message for three times the longest inactivity
//! probe, the flow tables are emptied and a hidden flow forwards everything. It stays until a controller shows that it
//! controls the bridge again. A connection is not enough for that, as the controller may close it at once, nor are messages
//! that any OpenFlow client sends to set up a connection. To make a controller that waits for packets show itself,
//! the switch sends packet-ins of a packet that no host sent.
//!
//! [`FailOpen`] is a state machine without sockets: time and the state of the controllers are arguments.

use super::remote::PeerKind;
use crate::bridge::Ofproto;
use crate::hidden::HiddenFlow;
use base::{Millis, PortNo};
use dpif::ControllerUpcall;
use flow::{FlowKey, Match};
use openflow::PacketInReason;
use openflow::message::Message;
use packet::Packet;

/// The hidden flow's priority, which is the highest one.
const PRIORITY: u32 = 0x00f0_f0f0;
/// Milliseconds between packet-ins that solicit messages.
const SOLICIT_MS: u64 = 2000;
/// A controller that stays connected for this many milliseconds counts as controlling the bridge.
const SETTLED_MS: u64 = 30_000;

/// The state of the primary controllers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Controllers {
    /// Three times the longest inactivity probe, in milliseconds.
    pub timeout_ms: u64,
    /// The time when one last showed that it controls the bridge.
    pub heard_at: Millis,
    /// True if one is connected.
    pub connected: bool,
    /// True if one is connected that has shown that it controls the bridge.
    pub admitted: bool,
}

/// An action of the state machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Become a learning switch.
    Open,
    /// Leave forwarding to the controllers.
    Close,
    /// Make the connected controllers show themselves.
    Solicit,
}

/// The state machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FailOpen {
    /// True if the bridge is configured to fail open.
    pub enabled: bool,
    /// The time of the next solicitation; `None` unless fail-open is active.
    solicit_at: Option<Millis>,
}

impl FailOpen {
    /// Returns the action to take now, if any; `controllers` is `None` if none is configured.
    pub(crate) fn step(&mut self, controllers: Option<Controllers>, now: Millis) -> Option<Step> {
        let controllers = controllers.filter(|_| self.enabled);
        let (step, solicit_at) = match (self.solicit_at, controllers) {
            (None, Some(c)) if !c.connected && now.since(c.heard_at) >= c.timeout_ms => {
                (Step::Open, Some(now.after(SOLICIT_MS)))
            }
            (Some(_), None | Some(Controllers { admitted: true, .. })) => (Step::Close, None),
            (Some(at), Some(c)) if c.connected && now >= at => (Step::Solicit, Some(now.after(SOLICIT_MS))),
            _ => return None,
        };
        self.solicit_at = solicit_at;
        Some(step)
    }
}

/// Returns true for messages that only a controlling controller sends, not those that set up and keep up a connection.
pub(crate) fn shows_control(message: &Message) -> bool {
    !matches!(
        message,
        Message::Hello(_)
            | Message::Error(_)
            | Message::EchoRequest(_)
            | Message::EchoReply(_)
            | Message::FeaturesRequest
            | Message::GetConfigRequest
            | Message::SetConfig(_)
    )
}

impl Ofproto {
    /// Sets whether the bridge forwards by itself while its controllers are unreachable.
    pub fn set_fail_open(&self, enabled: bool) {
        self.connections().fail_open.lock().enabled = enabled;
        self.run_fail_open(self.now());
    }

    /// Records a message of a peer, and whether it [`shows_control`]: if the peer is a controller that does, fail-open ends at
    /// once.
    pub(super) fn heard(&self, peer: &super::peer::Peer, shows_control: bool) {
        let now = self.now();
        if peer.heard(shows_control, SETTLED_MS, now) {
            self.run_fail_open(now);
        }
    }

    /// Takes the actions that are due. To be called periodically.
    pub(crate) fn run_fail_open(&self, now: Millis) {
        if self.is_changing() {
            return;
        }
        let controllers = self.controllers();
        let mut next = *self.connections().fail_open.lock();
        let step = next.step(controllers, now);
        if step == Some(Step::Open) {
            let flow = HiddenFlow::normal(PRIORITY, Match::ANY);
            if !self.try_empty_tables(move |bridge| bridge.set_hidden(&(PRIORITY..=PRIORITY), &[flow])) {
                return;
            }
        }
        *self.connections().fail_open.lock() = next;
        match step {
            None => {}
            Some(Step::Open) => {
                let secs = controllers.map_or(0, |c| now.since(c.heard_at) / 1000);
                tracing::warn!(
                    target: "fail_open",
                    "{}: no controller has shown itself for {secs} seconds, failing open",
                    self.name()
                );
            }
            Some(Step::Close) => {
                tracing::warn!(target: "fail_open", "{}: no longer in fail-open mode", self.name());
                self.set_hidden(&(PRIORITY..=PRIORITY), &[]);
            }
            Some(Step::Solicit) => self.solicit(),
        }
    }

    fn controllers(&self) -> Option<Controllers> {
        let remotes = self.connections().remotes();
        let primary = || remotes.iter().filter(|remote| remote.kind == PeerKind::Controller);
        let mut controllers = Controllers {
            timeout_ms: primary().map(|remote| remote.settings().probe_ms).max()?.saturating_mul(3),
            heard_at: primary().map(|remote| remote.admitted_at()).max()?,
            connected: false,
            admitted: false,
        };
        self.connections().for_each(|peer| {
            if peer.remote.kind == PeerKind::Controller && peer.version().is_some() {
                controllers.connected = true;
                controllers.admitted |= peer.is_admitted();
            }
        });
        Some(controllers)
    }

    /// Sends the controllers a packet-in for a frame that no host sent, and that no host would answer.
    fn solicit(&self) {
        let id = self.identity().datapath_id.to_be_bytes();
        let what = ControllerUpcall {
            bridge: self.id(),
            in_port: PortNo::LOCAL,
            max_len: u16::MAX,
            reason: PacketInReason::NoMatch.number(),
            controller_id: 0,
            cookie: u64::MAX,
            table: 0,
            table_miss: false,
            userdata: Vec::new(),
            recirc_id: 0,
            pauses: false,
            dont_send: false,
            metadata: FlowKey::default(),
        };
        self.packet_in(&what, &Packet::from_slice(&reverse_arp([0, 0x23, 0x20, id[5], id[6], id[7]])));
    }
}

/// A reverse ARP request (RFC 903) of a station for its own address.
fn reverse_arp(station: [u8; 6]) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(station);
    frame.extend([0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    for address in [&station[..], &[0; 4], &station, &[0; 4]] {
        frame.extend(address);
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    const GONE: Controllers =
        Controllers { timeout_ms: 3000, heard_at: Millis(10_000), connected: false, admitted: false };
    const THERE: Controllers = Controllers { connected: true, ..GONE };
    const CONTROLS: Controllers = Controllers { admitted: true, ..THERE };

    fn enabled() -> FailOpen {
        FailOpen { enabled: true, solicit_at: None }
    }

    #[test]
    fn fail_open_begins_after_three_probes_and_ends_when_a_controller_shows_itself() {
        let mut f = enabled();
        let at = |ms: u64| Millis(10_000 + ms);
        assert_eq!(f.step(Some(CONTROLS), at(0)), None);
        assert_eq!(f.step(Some(GONE), at(2999)), None);
        assert_eq!(f.step(Some(GONE), at(3000)), Some(Step::Open));
        assert_eq!(f.step(Some(GONE), at(9000)), None);
        // A connection is not enough; the controller is solicited periodically.
        assert_eq!(f.step(Some(THERE), at(9001)), Some(Step::Solicit));
        assert_eq!(f.step(Some(THERE), at(11_000)), None);
        assert_eq!(f.step(Some(THERE), at(11_001)), Some(Step::Solicit));
        assert_eq!(f.step(Some(CONTROLS), at(11_002)), Some(Step::Close));
        assert_eq!(f.step(Some(CONTROLS), at(11_003)), None);
        // Disconnected again: the time counts from its last message.
        let again = Controllers { heard_at: at(20_000), ..GONE };
        assert_eq!(f.step(Some(again), at(22_999)), None);
        assert_eq!(f.step(Some(again), at(23_000)), Some(Step::Open));
    }

    #[test]
    fn a_silent_connection_prevents_fail_open() {
        let mut f = enabled();
        assert_eq!(f.step(Some(THERE), Millis(100_000)), None);
        assert_eq!(f.step(Some(GONE), Millis(100_001)), Some(Step::Open));
    }

    #[test]
    fn fail_open_needs_controllers_and_configuration() {
        let mut f = FailOpen::default();
        assert_eq!(f.step(Some(GONE), Millis(100_000)), None);
        f.enabled = true;
        assert_eq!(f.step(None, Millis(100_000)), None);
        assert_eq!(f.step(Some(GONE), Millis(100_000)), Some(Step::Open));
        f.enabled = false;
        assert_eq!(f.step(Some(GONE), Millis(100_001)), Some(Step::Close));
        f.enabled = true;
        f.step(Some(GONE), Millis(100_002));
        assert_eq!(f.step(None, Millis(100_003)), Some(Step::Close));
        // Without probes there is no timeout.
        assert_eq!(f.step(Some(Controllers { timeout_ms: 0, ..GONE }), Millis(10_000)), Some(Step::Open));
    }

    #[test]
    fn the_solicitation_is_a_reverse_arp_request() {
        let frame = reverse_arp([0, 0x23, 0x20, 1, 2, 3]);
        assert_eq!(
            (frame.len(), &frame[..14]),
            (42, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x23, 0x20, 1, 2, 3, 0x80, 0x35][..])
        );
    }
}
