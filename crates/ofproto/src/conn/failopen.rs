//! Fail-open: a bridge whose controllers are out of reach becomes a learning switch (`fail_mode=standalone`).
//!
//! When no primary controller has been connected, and none has been heard of for three times the longest inactivity
//! probe, the flow tables are emptied and a hidden flow forwards everything. It stays until a controller shows that it
//! controls the bridge again: that it is connected is not enough, as it may close the connection at once, and messages
//! that any OpenFlow speaker sends to say hello are not either. To have a controller show itself that waits for packets,
//! it is sent a packet-in now and then whose packet never was.
//!
//! [`FailOpen`] is the machine: it knows no sockets, and takes time and what is known of controllers as arguments.

use super::remote::PeerKind;
use crate::bridge::Ofproto;
use crate::hidden::HiddenFlow;
use base::{Millis, PortNo};
use dpif::ControllerUpcall;
use flow::{FlowKey, Match};
use openflow::PacketInReason;
use openflow::message::Message;
use packet::Packet;

/// The hidden flow's priority: above all others.
const PRIORITY: u32 = 0x00f0_f0f0;
/// Milliseconds between packet-ins that ask controllers to show themselves.
const SOLICIT_MS: u64 = 2000;
/// A controller that stayed connected for so many milliseconds is taken to control the bridge.
const SETTLED_MS: u64 = 30_000;

/// What is known of the primary controllers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Controllers {
    /// Three times the longest inactivity probe, in milliseconds.
    pub patience_ms: u64,
    /// When one last showed that it controls the bridge.
    pub heard_at: Millis,
    /// Whether one is connected.
    pub connected: bool,
    /// Whether one is connected that has shown that it controls the bridge.
    pub admitted: bool,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Become a learning switch.
    Open,
    /// Leave flows to controllers.
    Close,
    /// Ask the controllers that are connected to show themselves.
    Solicit,
}

/// The machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FailOpen {
    /// Whether the bridge is to fail open.
    pub enabled: bool,
    /// When it is next time to ask; `None` unless open.
    solicit_at: Option<Millis>,
}

impl FailOpen {
    /// What to do now, if anything; `controllers` is `None` if none is configured.
    pub(crate) fn step(&mut self, controllers: Option<Controllers>, now: Millis) -> Option<Step> {
        let wanted = controllers.filter(|_| self.enabled);
        let (step, solicit_at) = match (self.solicit_at, wanted) {
            (None, Some(c)) if !c.connected && now.since(c.heard_at) >= c.patience_ms => {
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

/// Whether only a controller that controls the bridge sends this: not what connections are begun and kept with.
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
    /// Whether the bridge is to forward by itself while its controllers are out of reach.
    pub fn set_fail_open(&self, enabled: bool) {
        self.connections().fail_open.lock().enabled = enabled;
        self.see_to_fail_open(self.now());
    }

    /// Notes a message of a peer, and whether it [`shows_control`]: of a controller that controls the bridge, it ends fail-open at once.
    pub(super) fn heard(&self, peer: &super::peer::Peer, shows_control: bool) {
        let now = self.now();
        if peer.heard(shows_control, SETTLED_MS, now) {
            self.see_to_fail_open(now);
        }
    }

    /// Does what it is time for. To be called now and then.
    pub(crate) fn see_to_fail_open(&self, now: Millis) {
        if self.is_changing() {
            return;
        }
        let controllers = self.controllers();
        let step = self.connections().fail_open.lock().step(controllers, now);
        match step {
            None => {}
            Some(Step::Open) => {
                let secs = controllers.map_or(0, |c| now.since(c.heard_at) / 1000);
                tracing::warn!(
                    target: "fail_open",
                    "{}: no controller has shown itself for {secs} seconds, failing open",
                    self.name()
                );
                self.flush_flows();
                self.set_hidden(&(PRIORITY..=PRIORITY), &[HiddenFlow::normal(PRIORITY, Match::ANY)]);
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
            patience_ms: primary().map(|remote| remote.settings().probe_ms).max()?.saturating_mul(3),
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
            reason: PacketInReason::NoMatch as u8,
            controller_id: 0,
            cookie: u64::MAX,
            table: 0,
            table_miss: false,
            userdata: Vec::new(),
            continuation: 0,
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
        Controllers { patience_ms: 3000, heard_at: Millis(10_000), connected: false, admitted: false };
    const THERE: Controllers = Controllers { connected: true, ..GONE };
    const CONTROLS: Controllers = Controllers { admitted: true, ..THERE };

    fn enabled() -> FailOpen {
        FailOpen { enabled: true, solicit_at: None }
    }

    #[test]
    fn opens_after_three_probes_and_closes_when_a_controller_shows_itself() {
        let mut f = enabled();
        let at = |ms: u64| Millis(10_000 + ms);
        assert_eq!(f.step(Some(CONTROLS), at(0)), None);
        assert_eq!(f.step(Some(GONE), at(2999)), None);
        assert_eq!(f.step(Some(GONE), at(3000)), Some(Step::Open));
        assert_eq!(f.step(Some(GONE), at(9000)), None);
        // Connected is not enough; asked it is at intervals.
        assert_eq!(f.step(Some(THERE), at(9001)), Some(Step::Solicit));
        assert_eq!(f.step(Some(THERE), at(11_000)), None);
        assert_eq!(f.step(Some(THERE), at(11_001)), Some(Step::Solicit));
        assert_eq!(f.step(Some(CONTROLS), at(11_002)), Some(Step::Close));
        assert_eq!(f.step(Some(CONTROLS), at(11_003)), None);
        // Lost again: counted from when it was last heard of.
        let again = Controllers { heard_at: at(20_000), ..GONE };
        assert_eq!(f.step(Some(again), at(22_999)), None);
        assert_eq!(f.step(Some(again), at(23_000)), Some(Step::Open));
    }

    #[test]
    fn a_connection_holds_it_back_though_it_is_silent() {
        let mut f = enabled();
        assert_eq!(f.step(Some(THERE), Millis(100_000)), None);
        assert_eq!(f.step(Some(GONE), Millis(100_001)), Some(Step::Open));
    }

    #[test]
    fn never_without_controllers_or_where_it_is_not_wanted() {
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
        // Without probes there is nothing to wait for.
        assert_eq!(f.step(Some(Controllers { patience_ms: 0, ..GONE }), Millis(10_000)), Some(Step::Open));
    }

    #[test]
    fn the_frame_that_asks() {
        let frame = reverse_arp([0, 0x23, 0x20, 1, 2, 3]);
        assert_eq!(
            (frame.len(), &frame[..14]),
            (42, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x23, 0x20, 1, 2, 3, 0x80, 0x35][..])
        );
    }
}
