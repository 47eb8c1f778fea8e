//! Flow monitors on connections: requests for them, and what transactions tell them.
//!
//! What a monitor is told at first, what it is told from then on, and what it is told after a pause leave nothing out and
//! tell nothing twice: each begins while the bridge's tables cannot change, as the lock of `Ofproto::writer` is held. What
//! there is to tell a new monitor is told in turns with other connections.

use super::monitors::{Dump, Monitors};
use super::peer::{Peer, Unfinished};
use super::stats::{Position, position};
use crate::bridge::Ofproto;
use crate::flow_change::FlowChange;
use crate::flow_table::Criteria;
use classifier::LATEST;
use openflow::message::Message;
use openflow::monitor::{FlowMonitorRequest, FlowUpdate};
use openflow::multipart::{Entry, ReplyWriter};
use openflow::types::MessageKind;
use openflow::{OfpError, Version};
use std::sync::Arc;
use xlate::Rule;

/// Bytes of updates queued to a connection above which it is paused.
const UPDATE_BYTES_MAX: usize = 128 << 10;
/// Flows that are looked at for a new monitor, and changes that are told of behind that, before others have their turn.
const AT_ONCE: usize = if cfg!(test) { 2 } else { 256 };

/// The initial updates of new monitors in progress, in the order of [`Position`], and the message that they go into.
///
/// While the peer reads, the answer holds the flows that are left. As soon as the peer stalls, it holds its position only
/// ([`MonitorAnswer::park`]), and collects the flows behind that again when the peer goes on.
#[derive(Debug)]
pub(crate) struct MonitorAnswer {
    dump: Dump,
    /// The version of the tables that is dumped.
    version: u64,
    /// `None` until they are collected, and while the answer is parked.
    rules: Option<std::vec::IntoIter<Arc<Rule>>>,
    last: Option<Position>,
    /// Until the last message is sent.
    reply: Option<ReplyWriter>,
    /// The end of a pause that had to wait for this.
    resumption: Option<Resumption>,
}

/// What paused monitors missed and are told when they go on.
#[derive(Debug)]
pub(crate) struct Resumption {
    dump: Dump,
    rules: std::vec::IntoIter<Arc<Rule>>,
    /// All rules have been told of; changes that had to wait for that follow.
    is_told: bool,
}

impl MonitorAnswer {
    /// Lets go of the flows that are left, which a peer that does not read would keep in memory.
    pub(super) fn park(&mut self) {
        self.rules = None;
    }

    /// Returns true if the flows that are left have to be collected.
    pub(super) fn is_parked(&self) -> bool {
        self.rules.is_none()
    }

    /// Collects the flows that are left.
    fn collect(&mut self, bridge: &Ofproto, peer: &Peer) {
        if self.reply.is_none() || self.dump.is_empty() {
            self.rules = Some(Vec::new().into_iter());
            return;
        }
        let mut rules = bridge.collect_in(&Criteria::any(), self.version);
        // A transaction that took rules out of the tables before they were collected is over then, and its changes wait.
        drop(bridge.writer.lock());
        rules.extend(peer.monitors.lock().gone_since().cloned());
        let is_left = |rule: &Arc<Rule>| {
            rule.versions.added() <= self.version && self.last.is_none_or(|last| position(rule) > last)
        };
        rules.retain(is_left);
        rules.sort_unstable_by_key(position);
        rules.dedup_by_key(|rule| position(rule));
        self.rules = Some(rules.into_iter());
    }
}

impl Ofproto {
    /// Sets up, changes and ends monitors of a connection. What is left to do is to answer with the flows that are there.
    ///
    /// Errors: `OFPMOFC_MONITOR_EXISTS`, `OFPMOFC_UNKNOWN_MONITOR`; `OFPBRC_EPERM` for too many.
    pub(super) fn monitor_flows(
        &self,
        peer: &Peer,
        (version, xid): (Version, u32),
        mut requests: Vec<FlowMonitorRequest>,
    ) -> Result<(), OfpError> {
        requests.iter_mut().try_for_each(|request| self.place_options(&mut request.matching))?;
        let reply = ReplyWriter::new(version, xid, MessageKind::FlowMonitorReply).ok_or(OfpError::BrcBadStat)?;
        let (dump, version) = {
            let _writer = self.writer.lock();
            let mut monitors = peer.monitors.lock();
            let dump = monitors.change(requests)?;
            peer.set_watching(&monitors);
            (dump, self.tables().view().version)
        };
        let answer = MonitorAnswer { dump, version, rules: None, last: None, reply: Some(reply), resumption: None };
        *peer.unfinished.lock() = Some(Unfinished::Monitors(Box::new(answer)));
        Ok(())
    }

    /// Collects the flows of the initial dump, sends updates of some of them, or of changes that were deferred until the end
    /// of the dump. Returns true if there is more to send.
    pub(super) fn go_on_dumping(&self, peer: &Peer, answer: &mut MonitorAnswer) -> bool {
        if answer.is_parked() {
            answer.collect(self, peer);
            return true;
        }
        let MonitorAnswer { dump, rules, last, reply, resumption, .. } = answer;
        if let (Some(writer), Some(rules)) = (&mut *reply, rules) {
            for rule in rules.by_ref().take(AT_ONCE) {
                *last = Some(position(&rule));
                let update = dump.tell(&rule).map(|update| self.with_options(update));
                if let Some(full) = update.and_then(|update| writer.push(&Entry::FlowUpdate(&update))) {
                    peer.send_bytes(full);
                }
            }
            if rules.len() > 0 {
                return true;
            }
            if let Some(writer) = reply.take() {
                peer.report_too_long(writer.kind(), writer.left_out());
                peer.send_bytes(writer.finish());
            }
        }
        if let Some(resumption) = resumption {
            return self.go_on_resuming(peer, resumption);
        }
        if self.go_on_monitoring(peer, AT_ONCE) {
            return true;
        }
        // A pause could not end while this went on.
        *resumption = self.begin_resuming(peer);
        resumption.is_some()
    }

    /// Completes an update by the tunnel options that the flow matches.
    fn with_options(&self, mut update: FlowUpdate) -> FlowUpdate {
        if let FlowUpdate::Flow(flow) = &mut update {
            self.extract_options(&mut flow.matching);
        }
        update
    }

    /// Whether somebody hears of changes of flows.
    pub(crate) fn is_watched(&self) -> bool {
        let mut watched = false;
        self.connections().for_each(|peer| watched |= peer.is_watching());
        watched
    }

    /// Tells monitors of the changes that led to this version of the tables.
    pub(crate) fn tell_monitors(&self, changes: &[FlowChange], version: u64) {
        self.connections().for_each(|peer| {
            if !peer.is_watching() {
                return;
            }
            let mut monitors = peer.monitors.lock();
            if !monitors.keep_waiting(changes, version) {
                self.tell_peer(peer, &mut monitors, changes, version);
            } else if monitors.is_overdue() {
                peer.hurry();
            }
        });
    }

    /// A connection has taken all that its monitors had to tell: if they are paused, they go on. Returns what they missed, to
    /// be told by [`Ofproto::go_on_resuming`].
    pub(crate) fn begin_resuming(&self, peer: &Peer) -> Option<Resumption> {
        let (dump, mut rules) = {
            let _writer = self.writer.lock();
            let mut monitors = peer.monitors.lock();
            if !monitors.is_paused() || monitors.is_dumping() || peer.monitored_bytes() > 0 {
                return None;
            }
            let dump = monitors.resume();
            peer.set_watching(&monitors);
            (dump, self.collect_in(&Criteria::any(), LATEST))
        };
        base::coverage!(ofmonitor_resume);
        rules.retain(|rule| dump.concerns(rule));
        // In the order in which they came.
        rules.sort_by_key(|rule| rule.versions.added());
        Some(Resumption { dump, rules: rules.into_iter(), is_told: false })
    }

    /// Tells monitors some of what they missed during a pause, and then of what happened meanwhile. Returns true if there is
    /// more.
    pub(crate) fn go_on_resuming(&self, peer: &Peer, resumption: &mut Resumption) -> bool {
        let Resumption { dump, rules, is_told } = resumption;
        if !*is_told {
            let mut updates = Updates::new(peer, Peer::send_bytes);
            for rule in rules.by_ref().take(AT_ONCE) {
                dump.tell(&rule).into_iter().for_each(|update| updates.push(&self.with_options(update)));
            }
            updates.finish();
            if rules.len() > 0 {
                return true;
            }
            peer.send_mark(FlowUpdate::Resumed);
            *is_told = true;
        }
        self.go_on_monitoring(peer, AT_ONCE)
    }

    /// Tells monitors all of what is left.
    pub(super) fn finish_resuming(&self, peer: &Peer, mut resumption: Resumption) {
        while self.go_on_resuming(peer, &mut resumption) {}
    }

    /// Resumes paused monitors to the end.
    #[cfg(test)]
    pub(crate) fn resume_monitors(&self, peer: &Peer) {
        if let Some(resumption) = self.begin_resuming(peer) {
            self.finish_resuming(peer, resumption);
        }
    }

    /// Tells the monitors of a connection of the changes that led to this version of the tables, and has them pause if that
    /// is too much.
    fn tell_peer(&self, peer: &Peer, monitors: &mut Monitors, changes: &[FlowChange], version: u64) {
        let mut updates = Updates::new(peer, Peer::send_monitored);
        monitors.tell(changes, peer.id(), |update| updates.push(&self.with_options(update)));
        updates.finish();
        if !monitors.is_paused() && peer.monitored_bytes() > UPDATE_BYTES_MAX {
            peer.pause(monitors, version);
        }
    }

    /// Tells the monitors what happened while they were told of all flows, until that was at least `most` changes. Whether
    /// there is more.
    fn go_on_monitoring(&self, peer: &Peer, most: usize) -> bool {
        let mut told = 0;
        while told < most {
            let mut monitors = peer.monitors.lock();
            let Some((changes, version)) = monitors.go_on() else { return false };
            self.tell_peer(peer, &mut monitors, &changes, version);
            told += changes.len();
        }
        true
    }
}

/// Updates on their way to a connection, message by message.
struct Updates<'a> {
    peer: &'a Peer,
    send: fn(&Peer, Vec<u8>),
    message: Option<ReplyWriter>,
}

impl<'a> Updates<'a> {
    fn new(peer: &'a Peer, send: fn(&Peer, Vec<u8>)) -> Self {
        Self { peer, send, message: None }
    }

    fn push(&mut self, update: &FlowUpdate) {
        if self.message.is_none() {
            let version = self.peer.version();
            self.message = version.and_then(|version| ReplyWriter::new(version, 0, MessageKind::FlowMonitorReply));
        }
        if let Some(full) = self.message.as_mut().and_then(|message| message.push(&Entry::FlowUpdate(update))) {
            (self.send)(self.peer, full);
        }
    }

    /// Sends the last message, if there was anything.
    fn finish(self) {
        if let Some(message) = self.message {
            self.peer.report_too_long(message.kind(), message.left_out());
            (self.send)(self.peer, message.finish());
        }
    }
}

impl Peer {
    /// Ends a monitor.
    ///
    /// Errors: `OFPMOFC_UNKNOWN_MONITOR`.
    pub(super) fn cancel_monitor(&self, id: u32) -> Result<(), OfpError> {
        let mut monitors = self.monitors.lock();
        monitors.cancel(id)?;
        self.set_watching(&monitors);
        Ok(())
    }

    fn pause(&self, monitors: &mut Monitors, version: u64) {
        base::coverage!(ofmonitor_pause);
        monitors.pause(version);
        self.send_mark(FlowUpdate::Paused);
    }

    /// Has the monitors pause as if too much were queued by this version of the tables.
    #[cfg(test)]
    pub(crate) fn pause_monitors(&self, version: u64) {
        let mut monitors = self.monitors.lock();
        if !monitors.is_paused() {
            self.pause(&mut monitors, version);
        }
    }

    /// Sends that there is nothing more for now, or that there is again: an update in OpenFlow 1.4, a message of its own
    /// before.
    fn send_mark(&self, mark: FlowUpdate) {
        let Some(version) = self.version() else { return };
        let send = match mark {
            FlowUpdate::Paused => Self::send_monitored,
            _ => Self::send_bytes,
        };
        if version >= Version::V14 {
            let mut updates = Updates::new(self, send);
            updates.push(&mark);
            return updates.finish();
        }
        let message = match mark {
            FlowUpdate::Paused => Message::FlowMonitorPaused,
            _ => Message::FlowMonitorResumed,
        };
        send(self, openflow::message::encode(version, 0, &message));
    }
}
