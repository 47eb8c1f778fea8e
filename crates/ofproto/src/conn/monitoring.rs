//! Flow monitors on connections: requests for them, and the updates about transactions.
//!
//! The initial updates of a monitor, its updates about changes, and those after a pause together report every change once:
//! each part begins while the lock of `Ofproto::writer` is held, so that the bridge's tables cannot change. Initial updates
//! are sent in turns with other connections.

use super::monitors::{Dump, Monitors};
use super::peer::{Peer, PendingRequest};
use crate::bridge::Ofproto;
use crate::dump_order::{DumpOrder, Placed, Position};
use crate::flow_change::FlowChange;
use crate::flow_table::Criteria;
use openflow::message::Message;
use openflow::monitor::{FlowMonitorRequest, FlowUpdate};
use openflow::multipart::{Entry, ReplyWriter};
use openflow::types::MessageKind;
use openflow::{OfpError, Version};
use std::sync::Arc;
use xlate::Rule;

/// Bytes of queued updates above which the monitors of a connection are paused.
const UPDATE_BYTES_MAX: usize = 128 << 10;
/// The number of flows examined for a new monitor, or of deferred changes reported, before other connections have their turn.
const AT_ONCE: usize = if cfg!(test) { 2 } else { 256 };

/// The initial updates of new monitors in progress, and the message that contains them.
#[derive(Debug)]
pub(crate) struct MonitorAnswer {
    dump: Dump,
    rules: Remaining,
    /// The writer, until the last message is sent.
    reply: Option<ReplyWriter>,
    /// The end of a pause that had to wait for the initial updates.
    resumption: Option<Resumption>,
}

/// The changes that paused monitors missed, to be reported when they resume.
#[derive(Debug)]
pub(crate) struct Resumption {
    dump: Dump,
    rules: Remaining,
    /// True if all rules have been reported; changes that were deferred for that follow.
    is_dumped: bool,
}

/// The rules of a version of the tables that remain to be reported to a connection.
///
/// While the peer reads, the rules are kept. When it stalls, only the position is kept ([`Remaining::park`]), and the rules
/// after it are collected again when the peer continues to read.
#[derive(Debug)]
struct Remaining {
    version: u64,
    order: DumpOrder,
    /// `None` until they are collected, and while they are parked.
    rules: Option<std::vec::IntoIter<Placed>>,
    last: Option<Position>,
}

impl Remaining {
    fn new(version: u64, order: DumpOrder) -> Self {
        Self { version, order, rules: None, last: None }
    }

    /// Drops the rules, which a peer that does not read would keep in memory.
    fn park(&mut self) {
        self.rules = None;
    }

    fn is_parked(&self) -> bool {
        self.rules.is_none()
    }

    /// Collects the remaining rules that `concerns` accepts.
    fn collect(&mut self, bridge: &Ofproto, peer: &Peer, concerns: impl Fn(&Arc<Rule>) -> bool) {
        self.order.begin(bridge, &Criteria::any());
        let mut rules = bridge.collect_in(&Criteria::any(), self.version);
        // Waits for a transaction that removed rules from the tables before they were collected, whose changes are deferred.
        drop(bridge.writer.lock());
        rules.extend(peer.monitors.lock().gone_since().cloned());
        rules.retain(|rule| rule.versions.added() <= self.version && concerns(rule));
        self.rules = Some(self.order.sort(rules, self.last));
    }

    /// Calls `report` with the next few rules, which must have been collected. Returns true if there are more.
    fn take_some(&mut self, mut report: impl FnMut(&Arc<Rule>)) -> bool {
        let Some(rules) = &mut self.rules else { return true };
        for (position, rule) in rules.by_ref().take(AT_ONCE) {
            self.last = Some(position);
            report(&rule);
        }
        rules.len() > 0
    }
}

impl MonitorAnswer {
    /// Drops the remaining flows.
    pub(super) fn park(&mut self) {
        match &mut self.resumption {
            Some(resumption) => resumption.park(),
            None => self.rules.park(),
        }
    }

    /// Returns true if the remaining flows have to be collected.
    pub(super) fn is_parked(&self) -> bool {
        self.resumption.as_ref().map_or_else(|| self.rules.is_parked(), Resumption::is_parked)
    }

    /// Collects the remaining flows.
    fn collect(&mut self, bridge: &Ofproto, peer: &Peer) {
        match &mut self.resumption {
            Some(resumption) => resumption.collect(bridge, peer),
            None if self.reply.is_none() || self.dump.is_empty() => self.rules.rules = Some(Vec::new().into_iter()),
            None => self.rules.collect(bridge, peer, |_| true),
        }
    }
}

impl Resumption {
    /// Drops the remaining flows.
    pub(crate) fn park(&mut self) {
        self.rules.park();
    }

    /// Returns true if the remaining flows have to be collected.
    pub(crate) fn is_parked(&self) -> bool {
        !self.is_dumped && self.rules.is_parked()
    }

    /// Collects the remaining flows, which takes long.
    pub(super) fn collect(&mut self, bridge: &Ofproto, peer: &Peer) {
        self.rules.collect(bridge, peer, |rule| self.dump.concerns(rule));
    }
}

impl Ofproto {
    /// Creates, changes and ends monitors of a connection. The reply with the existing flows remains pending.
    ///
    /// Errors: `OFPMOFC_MONITOR_EXISTS`, `OFPMOFC_UNKNOWN_MONITOR`; `OFPBRC_EPERM` for too many.
    pub(super) fn monitor_flows(
        &self,
        peer: &Peer,
        (version, xid): (Version, u32),
        mut requests: Vec<FlowMonitorRequest>,
    ) -> Result<(), OfpError> {
        requests.iter_mut().try_for_each(|request| self.place_options(&mut request.matching))?;
        let reply = peer.reply_writer(version, xid, MessageKind::FlowMonitorReply).ok_or(OfpError::BrcBadStat)?;
        let (dump, version) = {
            let _writer = self.writer.lock();
            let mut monitors = peer.monitors.lock();
            let dump = monitors.change(requests)?;
            peer.set_monitoring(&monitors);
            (dump, self.tables().view().version)
        };
        let rules = Remaining::new(version, DumpOrder::default());
        let answer = MonitorAnswer { dump, rules, reply: Some(reply), resumption: None };
        *peer.pending.lock() = Some(PendingRequest::Monitors(Box::new(answer)));
        Ok(())
    }

    /// Collects the flows of the initial dump, sends updates of some of them, or of changes that were deferred until the end
    /// of the dump. Returns true if there is more to send.
    pub(super) fn continue_dump(&self, peer: &Peer, answer: &mut MonitorAnswer) -> bool {
        if answer.is_parked() {
            answer.collect(self, peer);
            return true;
        }
        let MonitorAnswer { dump, rules, reply, resumption } = answer;
        if let Some(writer) = &mut *reply {
            let more = rules.take_some(|rule| {
                let update = dump.update_about(rule).map(|update| self.with_options(update));
                if let Some(full) = update.and_then(|update| writer.push(&Entry::FlowUpdate(&update))) {
                    peer.send_bytes(full);
                }
            });
            if more {
                return true;
            }
            if let Some(writer) = reply.take() {
                peer.report_too_long(writer.kind(), writer.left_out());
                peer.send_bytes(writer.finish());
            }
        }
        if let Some(resumption) = resumption {
            return self.continue_resuming(peer, resumption);
        }
        if self.report_deferred(peer, AT_ONCE) {
            return true;
        }
        // A pause could not end before.
        *resumption = self.begin_resuming(peer);
        resumption.is_some()
    }

    /// Adds the tunnel options that the flow matches to an update.
    fn with_options(&self, mut update: FlowUpdate) -> FlowUpdate {
        if let FlowUpdate::Flow(flow) = &mut update {
            self.extract_options(&mut flow.matching);
        }
        update
    }

    /// Returns true if a connection wants changes of flows.
    pub(crate) fn has_flow_monitors(&self) -> bool {
        let mut has_monitors = false;
        self.connections().for_each(|peer| has_monitors |= peer.is_monitoring());
        has_monitors
    }

    /// Reports the changes that led to this version of the tables to monitors.
    pub(crate) fn notify_monitors(&self, changes: &[FlowChange], version: u64) {
        self.connections().for_each(|peer| {
            if !peer.is_monitoring() {
                return;
            }
            let mut monitors = peer.monitors.lock();
            if !monitors.defer(changes, version) {
                self.notify_peer(peer, &mut monitors, changes, version);
            } else if monitors.is_overdue() {
                peer.recheck_room();
            }
        });
    }

    /// Resumes the monitors of a connection that has sent all of their updates, if they are paused. The changes that they
    /// missed remain for [`Ofproto::continue_resuming`].
    pub(crate) fn begin_resuming(&self, peer: &Peer) -> Option<Resumption> {
        let (dump, version) = {
            let _writer = self.writer.lock();
            let mut monitors = peer.monitors.lock();
            if !monitors.is_paused() || monitors.is_dumping() || peer.monitored_bytes() > 0 {
                return None;
            }
            let dump = monitors.resume();
            peer.set_monitoring(&monitors);
            (dump, self.tables().view().version)
        };
        base::coverage!(ofmonitor_resume);
        Some(Resumption { dump, rules: Remaining::new(version, DumpOrder::Age), is_dumped: false })
    }

    /// Reports some of the changes that monitors missed during a pause, and then deferred changes; collects the flows first
    /// if they are not. Returns true if there is more.
    pub(crate) fn continue_resuming(&self, peer: &Peer, resumption: &mut Resumption) -> bool {
        if resumption.is_parked() {
            resumption.collect(self, peer);
            return true;
        }
        let Resumption { dump, rules, is_dumped } = resumption;
        if !*is_dumped {
            let mut updates = Updates::new(peer, Peer::send_bytes);
            let more = rules.take_some(|rule| {
                dump.update_about(rule).into_iter().for_each(|update| updates.push(&self.with_options(update)));
            });
            updates.finish();
            if more {
                return true;
            }
            peer.send_mark(FlowUpdate::Resumed);
            *is_dumped = true;
        }
        self.report_deferred(peer, AT_ONCE)
    }

    /// Reports all remaining changes.
    pub(super) fn finish_resuming(&self, peer: &Peer, mut resumption: Resumption) {
        while self.continue_resuming(peer, &mut resumption) {}
    }

    /// Resumes paused monitors completely, of a peer that stalls from time to time.
    #[cfg(test)]
    pub(crate) fn resume_monitors(&self, peer: &Peer) {
        let Some(mut resumption) = self.begin_resuming(peer) else { return };
        for step in 1.. {
            if !self.continue_resuming(peer, &mut resumption) {
                return;
            }
            if step % 50 == 0 {
                resumption.park();
            }
        }
    }

    /// Reports the changes that led to this version of the tables to the monitors of a connection, and pauses them if too many
    /// updates are queued.
    fn notify_peer(&self, peer: &Peer, monitors: &mut Monitors, changes: &[FlowChange], version: u64) {
        let mut updates = Updates::new(peer, Peer::send_monitored);
        monitors.report(changes, peer.id(), |update| updates.push(&self.with_options(update)));
        updates.finish();
        if !monitors.is_paused() && peer.monitored_bytes() > UPDATE_BYTES_MAX {
            peer.pause(monitors, version);
        }
    }

    /// Reports changes that were deferred during the initial updates, until that was at least `most` changes. Returns true if
    /// there is more.
    fn report_deferred(&self, peer: &Peer, most: usize) -> bool {
        let mut reported = 0;
        while reported < most {
            let mut monitors = peer.monitors.lock();
            let Some((changes, version)) = monitors.next_deferred() else { return false };
            self.notify_peer(peer, &mut monitors, &changes, version);
            reported += changes.len();
        }
        true
    }
}

/// A series of updates to a connection, message by message.
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
            let kind = MessageKind::FlowMonitorReply;
            self.message = version.and_then(|version| self.peer.reply_writer(version, 0, kind));
        }
        if let Some(full) = self.message.as_mut().and_then(|message| message.push(&Entry::FlowUpdate(update))) {
            (self.send)(self.peer, full);
        }
    }

    /// Sends the last message, if it has updates.
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
        self.set_monitoring(&monitors);
        Ok(())
    }

    fn pause(&self, monitors: &mut Monitors, version: u64) {
        base::coverage!(ofmonitor_pause);
        monitors.pause(version);
        self.send_mark(FlowUpdate::Paused);
    }

    /// Pauses the monitors as if too many updates were queued at this version of the tables.
    #[cfg(test)]
    pub(crate) fn pause_monitors(&self, version: u64) {
        let mut monitors = self.monitors.lock();
        if !monitors.is_paused() {
            self.pause(&mut monitors, version);
        }
    }

    /// Sends that monitors pause or resume: an update in OpenFlow 1.4, a message of its own
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
