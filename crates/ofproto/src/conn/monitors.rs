//! Flow monitors of a connection: the flows that they select, and their updates (OpenFlow 1.4 section 7.3.5.17; the
//! Open Networking Foundation's extension 187 and Nicira's before).
//!
//! [`Monitors`] is a state machine without sockets and locks. Each transaction passes its changes to
//! [`Monitors::report`], in order, which returns the updates to send. [`super::monitoring`] connects it to connections.
//!
//! The initial updates about all existing flows take time, and transactions do not wait for them: a [`Dump`] makes these
//! updates, and changes are deferred until it ends ([`Monitors::next_deferred`]). There is one dump at a time.
//!
//! A connection that does not read its updates is *paused*: from then on only the removal of flows that it knows is reported,
//! so that no more than these can be queued. When its queue is empty, [`Monitors::resume`] reports flows that were added or
//! changed meanwhile, in their current state. A pause stores the version of the tables in which it began: the monitor knows
//! the flows that are older, and their replacements, which are recorded during the pause.

use super::monitor_index::MonitorIndex;
use crate::flow_change::{FlowChange, FlowChangeKind, Requester};
use openflow::monitor::{FlowEvent, FlowMonitorRequest, FlowUpdate, MonitorCommand, MonitoredFlow, flag};
use openflow::{Action, OfpError};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use xlate::Rule;

/// The largest number of monitors of a connection.
pub(crate) const MONITORS_MAX: usize = 4096;
/// The number of deferred changes above which a dump continues even if its updates are not read: deferred changes could
/// take unlimited memory, a dump cannot.
const DEFERRED_MAX: usize = if cfg!(test) { 4 } else { 1 << 16 };

/// The monitors of a connection.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    all: BTreeMap<u32, FlowMonitorRequest>,
    index: MonitorIndex,
    pause: Option<Pause>,
    /// Transactions to report when a dump ends, if there is one.
    deferred: Option<VecDeque<Transacted>>,
    /// The number of their changes.
    n_deferred: usize,
}

/// The changes of a transaction, and the version of the tables that it led to.
pub(crate) type Transacted = (Vec<FlowChange>, u64);

/// Makes updates about existing flows: for new monitors, or for all of them after a pause.
#[derive(Debug)]
pub(crate) struct Dump {
    index: MonitorIndex,
    pause: Option<Pause>,
}

/// The state of a connection's knowledge when a pause began.
#[derive(Debug)]
struct Pause {
    /// The version of the tables: the connection knows rules of that version or older.
    version: u64,
    /// Rules that replaced known ones, by address.
    replaced: HashMap<usize, Replaced>,
}

/// A rule that replaced a known one.
#[derive(Debug)]
struct Replaced {
    missed: Missed,
    /// The flow's actions when the pause began.
    actions: Arc<[Action]>,
}

/// The update about a known flow after a pause; later variants take precedence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Missed {
    Nothing,
    Modified,
    Added,
}

impl Pause {
    fn knows(&self, rule: &Arc<Rule>) -> bool {
        rule.versions.added() <= self.version || self.replaced.contains_key(&address(rule))
    }

    /// Records a change. If it has to be reported in spite of the pause, because a known flow was removed, returns
    /// the flow's actions when the pause began.
    fn note(&mut self, change: &FlowChange) -> Option<Arc<[Action]>> {
        let (old, missed) = match &change.what {
            FlowChangeKind::Added { replaced: None } => return None,
            FlowChangeKind::Added { replaced: Some(old) } => (old, Missed::Added),
            FlowChangeKind::Modified { old } => (old, Missed::Modified),
            FlowChangeKind::Renewed { old } => (old, Missed::Nothing),
            FlowChangeKind::Deleted(_) => {
                let rule = &change.rule;
                let known = self.knows(rule);
                let replaced = self.replaced.remove(&address(rule));
                return known.then(|| replaced.map_or_else(|| Arc::clone(&rule.actions), |r| r.actions));
            }
        };
        if self.knows(old) {
            let before = self.replaced.remove(&address(old));
            let before = before.unwrap_or_else(|| Replaced { missed, actions: Arc::clone(&old.actions) });
            let replaced = Replaced { missed: before.missed.max(missed), ..before };
            self.replaced.insert(address(&change.rule), replaced);
        }
        None
    }

    /// Returns the missed update about a rule that exists at the end of the pause, and its actions before, if it was known.
    fn missed<'a>(&'a self, rule: &'a Arc<Rule>) -> (Missed, &'a [Action]) {
        if rule.versions.added() <= self.version {
            return (Missed::Nothing, &rule.actions);
        }
        self.replaced.get(&address(rule)).map_or((Missed::Added, &rule.actions), |r| (r.missed, &r.actions))
    }
}

fn address(rule: &Arc<Rule>) -> usize {
    Arc::as_ptr(rule).addr()
}

/// Makes an update about a flow.
fn describe(rule: &Rule, matching: flow::Match, event: FlowEvent, flags: u16) -> FlowUpdate {
    FlowUpdate::Flow(Box::new(MonitoredFlow {
        event,
        table_id: rule.table,
        priority: rule.openflow_priority(),
        idle_timeout: rule.idle_timeout,
        hard_timeout: rule.hard_timeout,
        cookie: rule.cookie,
        matching,
        actions: if flags & flag::ACTIONS == 0 { Vec::new() } else { rule.actions.to_vec() },
    }))
}

impl Monitors {
    /// Creates, changes and ends monitors: all that are requested, or none. Returns a dump for the new
    /// ones.
    ///
    /// Errors: `OFPMOFC_MONITOR_EXISTS`, `OFPMOFC_UNKNOWN_MONITOR`, `OFPMOFC_BAD_COMMAND`; `OFPBRC_EPERM` for too many.
    pub(crate) fn change(&mut self, requests: Vec<FlowMonitorRequest>) -> Result<Dump, OfpError> {
        // The new state of the requested monitors.
        let mut changed: BTreeMap<u32, Option<FlowMonitorRequest>> = BTreeMap::new();
        let mut n = self.all.len();
        for request in requests {
            let id = request.id;
            let there = changed.get(&id).map_or_else(|| self.all.contains_key(&id), Option::is_some);
            match request.command {
                MonitorCommand::Add if there => return Err(OfpError::MofcMonitorExists),
                MonitorCommand::Modify | MonitorCommand::Delete if !there => return Err(OfpError::MofcUnknownMonitor),
                MonitorCommand::Delete => {
                    n -= 1;
                    changed.insert(id, None);
                    continue;
                }
                MonitorCommand::Other(_) => return Err(OfpError::MofcBadCommand),
                MonitorCommand::Add | MonitorCommand::Modify => {}
            }
            if !there && n >= MONITORS_MAX {
                return Err(OfpError::BrcEperm);
            }
            n += usize::from(!there);
            changed.insert(id, Some(request));
        }
        let mut index = MonitorIndex::default();
        for (id, request) in changed {
            // The monitor may not exist.
            let _ = self.cancel(id);
            if let Some(request) = request {
                self.index.insert(&request);
                index.insert(&request);
                self.all.insert(id, request);
            }
        }
        self.deferred.get_or_insert_default();
        Ok(Dump { index, pause: None })
    }

    /// Ends a monitor.
    ///
    /// Errors: `OFPMOFC_UNKNOWN_MONITOR`.
    pub(crate) fn cancel(&mut self, id: u32) -> Result<(), OfpError> {
        let monitor = self.all.remove(&id).ok_or(OfpError::MofcUnknownMonitor)?;
        self.index.remove(&monitor);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// Returns true while a dump is in progress.
    pub(crate) fn is_dumping(&self) -> bool {
        self.deferred.is_some()
    }

    /// The rules that transactions have removed or replaced since a dump began, which are still part of the dump.
    pub(crate) fn gone_since(&self) -> impl Iterator<Item = &Arc<Rule>> {
        let changes = self.deferred.iter().flatten().flat_map(|(changes, _)| changes);
        changes.filter_map(|change| match &change.what {
            FlowChangeKind::Deleted(_) => Some(&change.rule),
            FlowChangeKind::Added { replaced } => replaced.as_ref(),
            FlowChangeKind::Modified { old } | FlowChangeKind::Renewed { old } => Some(old),
        })
    }

    /// Returns true if so many changes are deferred that the dump has to continue.
    pub(crate) fn is_overdue(&self) -> bool {
        self.n_deferred > DEFERRED_MAX
    }

    /// Defers the changes of a transaction if a dump is in progress, and returns true then.
    pub(crate) fn defer(&mut self, changes: &[FlowChange], version: u64) -> bool {
        if let Some(deferred) = &mut self.deferred {
            self.n_deferred += changes.len();
            deferred.push_back((changes.to_vec(), version));
        }
        self.is_dumping()
    }

    /// Sends the updates about the changes of a transaction; `me` is the connection's number as a [`Requester`].
    pub(crate) fn report(&mut self, changes: &[FlowChange], me: u64, mut send: impl FnMut(FlowUpdate)) {
        let mut abbreviated = false;
        for change in changes {
            let FlowChange { rule, what, by } = change;
            let known = self.pause.as_mut().map(|pause| pause.note(change));
            let paused = known.is_some();
            let known = match known {
                Some(None) => continue,
                known => known.flatten(),
            };
            let (kind, event, old) = match what {
                FlowChangeKind::Added { replaced } => (flag::ADD, FlowEvent::Added, replaced.as_ref()),
                FlowChangeKind::Modified { old } => (flag::MODIFY, FlowEvent::Modified, Some(old)),
                FlowChangeKind::Deleted(reason) => (flag::DELETE, FlowEvent::Deleted(*reason as u16), None),
                FlowChangeKind::Renewed { .. } => continue,
            };
            let matching = rule.minimatch.expand();
            let actions = match (&known, old) {
                (Some(known), _) => [known, known],
                (None, old) => [&rule.actions, old.map_or(&rule.actions, |old| &old.actions)],
            };
            let flags = self.index.flags_for(kind, rule, &matching, actions.map(|list| &**list));
            if flags == 0 {
                continue;
            }
            match by {
                Some(Requester { peer, xid }) if *peer == me && flags & flag::OWN == 0 && !paused => {
                    // All changes of a transaction belong to one request, or to a bundle, which also has one number.
                    if !std::mem::replace(&mut abbreviated, true) {
                        send(FlowUpdate::Abbreviated(*xid));
                    }
                }
                _ => send(describe(rule, matching, event, flags)),
            }
        }
    }

    /// Restricts updates to the necessary ones, from this version of the tables on.
    pub(crate) fn pause(&mut self, version: u64) {
        self.pause = Some(Pause { version, replaced: HashMap::new() });
    }

    /// Ends a pause. Returns a dump of the flows that were added or changed meanwhile.
    pub(crate) fn resume(&mut self) -> Dump {
        self.deferred.get_or_insert_default();
        Dump { index: self.index.clone(), pause: self.pause.take() }
    }

    /// Returns the next deferred transaction after a dump. After the last one, changes are reported at
    /// once again.
    pub(crate) fn next_deferred(&mut self) -> Option<Transacted> {
        let next = self.deferred.as_mut()?.pop_front();
        match &next {
            Some((changes, _)) => self.n_deferred -= changes.len(),
            None => self.deferred = None,
        }
        next
    }
}

impl Dump {
    /// Returns true if it makes no updates, whatever flows exist.
    pub(crate) fn is_empty(&self) -> bool {
        self.pause.is_none() && self.index.flags() & flag::INITIAL == 0
    }

    /// Returns false if a rule needs no update, because it was known all the time.
    pub(crate) fn concerns(&self, rule: &Arc<Rule>) -> bool {
        self.pause.as_ref().is_none_or(|pause| pause.missed(rule).0 != Missed::Nothing)
    }

    /// Makes the update about a flow that existed when the dump began.
    pub(crate) fn update_about(&self, rule: &Arc<Rule>) -> Option<FlowUpdate> {
        let (kinds, event, before) = match &self.pause {
            None => (flag::INITIAL, FlowEvent::Initial, &*rule.actions),
            Some(pause) => match pause.missed(rule) {
                (Missed::Nothing, _) => return None,
                (Missed::Modified, before) => (flag::MODIFY, FlowEvent::Modified, before),
                (Missed::Added, before) => (flag::ADD | flag::MODIFY, FlowEvent::Added, before),
            },
        };
        let matching = rule.minimatch.expand();
        let flags = self.index.flags_for(kinds, rule, &matching, [&rule.actions, before]);
        (flags != 0).then(|| describe(rule, matching, event, flags))
    }
}
