//! Flow monitors of a connection: which flows it wants to hear of, and what it is told (OpenFlow 1.4 section 7.3.5.17; the
//! Open Networking Foundation's extension 187 and Nicira's before).
//!
//! [`Monitors`] is a state machine without sockets and locks. Whoever changes flow tables tells it of each transaction
//! ([`Monitors::tell`]), one after the other; it says what to send. [`super::monitoring`] joins it to connections.
//!
//! To tell of all flows that there are takes its time, so nobody who changes flows waits for it: a [`Dump`] is what there is
//! to tell with, and changes are kept until it is over ([`Monitors::go_on`]). There is one dump at a time.
//!
//! A connection that does not take what it is told is *paused*: from then on it hears only of the end of flows that it knows,
//! so that no more than these can be queued. When its queue is empty, [`Monitors::resume`] tells what came or changed
//! meanwhile, as it is by then. What that rests on is the version of the tables in which the pause began: flows that are
//! older are known, and so are those in their place, which are noted one by one while the pause lasts.

use super::watches::Watches;
use crate::flow_change::{FlowChange, Requester, What};
use openflow::monitor::{FlowEvent, FlowMonitorRequest, FlowUpdate, MonitorCommand, MonitoredFlow, flag};
use openflow::{Action, OfpError};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use xlate::Rule;

/// Monitors that a connection may have.
pub(crate) const MONITORS_MAX: usize = 4096;
/// Changes that wait for the end of a dump, from which on it goes on whether what it tells is read or not: what waits takes
/// no end of memory, a dump does.
const WAITING_MAX: usize = if cfg!(test) { 4 } else { 1 << 16 };

/// The monitors of a connection.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    all: BTreeMap<u32, FlowMonitorRequest>,
    watches: Watches,
    pause: Option<Pause>,
    /// Transactions that are to be told of when a dump is over, if there is one.
    waiting: Option<VecDeque<Transacted>>,
    /// Changes in these.
    n_waiting: usize,
}

/// What a transaction did, and the version of the tables that it led to.
pub(crate) type Transacted = (Vec<FlowChange>, u64);

/// What is told of the flows that there are: to monitors that are new, or to all of them after a pause.
#[derive(Debug)]
pub(crate) struct Dump {
    watches: Watches,
    pause: Option<Pause>,
}

/// What was known when a pause began.
#[derive(Debug)]
struct Pause {
    /// The version of the tables: rules that are there since then, or before, are known.
    version: u64,
    /// Rules that came into the place of those, by address.
    replaced: HashMap<usize, Replaced>,
}

/// A rule in the place of one that was known.
#[derive(Debug)]
struct Replaced {
    missed: Missed,
    /// What the flow did when the pause began.
    actions: Arc<[Action]>,
}

/// What is to be told of a known flow after a pause; the later wins.
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

    /// Takes note of a change. If it is to be told in spite of the pause, as it is the end of a flow that was known: what
    /// the flow did then.
    fn note(&mut self, change: &FlowChange) -> Option<Arc<[Action]>> {
        let (old, missed) = match &change.what {
            What::Added { replaced: None } => return None,
            What::Added { replaced: Some(old) } => (old, Missed::Added),
            What::Modified { old } => (old, Missed::Modified),
            What::Renewed { old } => (old, Missed::Nothing),
            What::Deleted(_) => {
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

    /// What was missed of a rule that is there at the end of the pause, and what the flow did before, if it was known.
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

/// A flow as it is told of.
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
    /// Sets up, changes and ends monitors: all that is asked for, or nothing. Returns what tells those that are new of the
    /// flows that there are.
    ///
    /// Errors: `OFPMOFC_MONITOR_EXISTS`, `OFPMOFC_UNKNOWN_MONITOR`; `OFPBRC_EPERM` for too many.
    pub(crate) fn change(&mut self, requests: Vec<FlowMonitorRequest>) -> Result<Dump, OfpError> {
        // What becomes of those that are asked about.
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
                MonitorCommand::Add | MonitorCommand::Modify => {}
            }
            if !there && n >= MONITORS_MAX {
                return Err(OfpError::BrcEperm);
            }
            n += usize::from(!there);
            changed.insert(id, Some(request));
        }
        let mut watches = Watches::default();
        for (id, request) in changed {
            // It may not have been there.
            let _ = self.cancel(id);
            if let Some(request) = request {
                self.watches.insert(&request);
                watches.insert(&request);
                self.all.insert(id, request);
            }
        }
        self.waiting.get_or_insert_default();
        Ok(Dump { watches, pause: None })
    }

    /// Ends a monitor.
    ///
    /// Errors: `OFPMOFC_UNKNOWN_MONITOR`.
    pub(crate) fn cancel(&mut self, id: u32) -> Result<(), OfpError> {
        let monitor = self.all.remove(&id).ok_or(OfpError::MofcUnknownMonitor)?;
        self.watches.remove(&monitor);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// Whether a dump goes on.
    pub(crate) fn is_dumping(&self) -> bool {
        self.waiting.is_some()
    }

    /// The rules that transactions have removed or replaced since a dump began, which are part of the dump all the same.
    pub(crate) fn gone_since(&self) -> impl Iterator<Item = &Arc<Rule>> {
        let changes = self.waiting.iter().flatten().flat_map(|(changes, _)| changes);
        changes.filter_map(|change| match &change.what {
            What::Deleted(_) => Some(&change.rule),
            What::Added { replaced } => replaced.as_ref(),
            What::Modified { old } | What::Renewed { old } => Some(old),
        })
    }

    /// Whether so much waits for the end of a dump that it has to come.
    pub(crate) fn is_overdue(&self) -> bool {
        self.n_waiting > WAITING_MAX
    }

    /// Keeps the changes of a transaction until a dump is over, if one goes on. Whether it did.
    pub(crate) fn keep_waiting(&mut self, changes: &[FlowChange], version: u64) -> bool {
        if let Some(waiting) = &mut self.waiting {
            self.n_waiting += changes.len();
            waiting.push_back((changes.to_vec(), version));
        }
        self.is_dumping()
    }

    /// Sends what this connection is told of the changes of a transaction; `me` is its number as a [`Requester`].
    pub(crate) fn tell(&mut self, changes: &[FlowChange], me: u64, mut send: impl FnMut(FlowUpdate)) {
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
                What::Added { replaced } => (flag::ADD, FlowEvent::Added, replaced.as_ref()),
                What::Modified { old } => (flag::MODIFY, FlowEvent::Modified, Some(old)),
                What::Deleted(reason) => (flag::DELETE, FlowEvent::Deleted(*reason as u16), None),
                What::Renewed { .. } => continue,
            };
            let matching = rule.minimatch.expand();
            let actions = match (&known, old) {
                (Some(known), _) => [known, known],
                (None, old) => [&rule.actions, old.map_or(&rule.actions, |old| &old.actions)],
            };
            let flags = self.watches.flags_for(kind, rule, &matching, actions.map(|list| &**list));
            if flags == 0 {
                continue;
            }
            match by {
                Some(Requester { peer, xid }) if *peer == me && flags & flag::OWN == 0 && !paused => {
                    // All of a transaction are one request's, or a bundle's, which is known by one number too.
                    if !std::mem::replace(&mut abbreviated, true) {
                        send(FlowUpdate::Abbreviated(*xid));
                    }
                }
                _ => send(describe(rule, matching, event, flags)),
            }
        }
    }

    /// Tells no more than it must, from this version of the tables on.
    pub(crate) fn pause(&mut self, version: u64) {
        self.pause = Some(Pause { version, replaced: HashMap::new() });
    }

    /// Ends a pause. Returns what tells of the flows that came or changed meanwhile.
    pub(crate) fn resume(&mut self) -> Dump {
        self.waiting.get_or_insert_default();
        Dump { watches: self.watches.clone(), pause: self.pause.take() }
    }

    /// A dump is over: the next transaction that was not told of because of it. With the last one, others are told of at
    /// once again.
    pub(crate) fn go_on(&mut self) -> Option<Transacted> {
        let next = self.waiting.as_mut()?.pop_front();
        match &next {
            Some((changes, _)) => self.n_waiting -= changes.len(),
            None => self.waiting = None,
        }
        next
    }
}

impl Dump {
    /// Whether there is nothing to tell, whatever flows there are.
    pub(crate) fn is_empty(&self) -> bool {
        self.pause.is_none() && self.watches.flags() & flag::INITIAL == 0
    }

    /// Whether there may be something to tell of a rule: nothing, if it was known all the time.
    pub(crate) fn concerns(&self, rule: &Arc<Rule>) -> bool {
        self.pause.as_ref().is_none_or(|pause| pause.missed(rule).0 != Missed::Nothing)
    }

    /// What is told of a flow that was there when the dump began.
    pub(crate) fn tell(&self, rule: &Arc<Rule>) -> Option<FlowUpdate> {
        let (kinds, event, before) = match &self.pause {
            None => (flag::INITIAL, FlowEvent::Initial, &*rule.actions),
            Some(pause) => match pause.missed(rule) {
                (Missed::Nothing, _) => return None,
                (Missed::Modified, before) => (flag::MODIFY, FlowEvent::Modified, before),
                (Missed::Added, before) => (flag::ADD | flag::MODIFY, FlowEvent::Added, before),
            },
        };
        let matching = rule.minimatch.expand();
        let flags = self.watches.flags_for(kinds, rule, &matching, [&rule.actions, before]);
        (flags != 0).then(|| describe(rule, matching, event, flags))
    }
}
