//! Idle and hard timeouts of flows.

use crate::bridge::Ofproto;
use crate::flow_table::{Removed, RemovedReason};
use crate::revalidate::Change;
use base::Millis;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use xlate::Rule;

/// Learned addresses that are removed together: packets wait for the table meanwhile.
const AGED_AT_ONCE: usize = 256;

/// The rules of a bridge that have a timeout, so that looking for expired ones costs nothing for the others.
#[derive(Debug, Default)]
pub(crate) struct Expirable(Mutex<HashMap<usize, Arc<Rule>>>);

impl Expirable {
    pub(crate) fn insert(&self, rule: &Arc<Rule>) {
        if rule.idle_timeout != 0 || rule.hard_timeout != 0 {
            self.0.lock().insert(Arc::as_ptr(rule).addr(), Arc::clone(rule));
        }
    }

    pub(crate) fn remove(&self, rule: &Arc<Rule>) {
        if rule.idle_timeout != 0 || rule.hard_timeout != 0 {
            self.0.lock().remove(&Arc::as_ptr(rule).addr());
        }
    }
}

/// Why a rule is over at `now`, if it is.
fn expired(rule: &Rule, now: Millis) -> Option<RemovedReason> {
    let over = |secs: u16, since: Millis| secs != 0 && now.since(since) >= u64::from(secs) * 1000;
    let used = Millis(rule.stats().used.load(Ordering::Relaxed)).max(rule.created);
    if over(rule.hard_timeout, rule.modified()) {
        Some(RemovedReason::HardTimeout)
    } else if over(rule.idle_timeout, used) {
        Some(RemovedReason::IdleTimeout)
    } else {
        None
    }
}

impl Ofproto {
    /// Whether the time of a flow is over, as far as statistics have told.
    pub(crate) fn is_due(&self, now: Millis) -> bool {
        self.expirable.0.lock().values().any(|rule| expired(rule, now).is_some())
    }

    /// Removes flows and learned addresses whose time is over, and returns the flows. Statistics should have been
    /// pushed just before ([`crate::Switch::revalidate`]), or idle timeouts come early.
    pub fn expire(&self, now: Millis) -> Vec<Removed> {
        loop {
            let aged = self.macs().write().expire(now, AGED_AT_ONCE);
            for (vlan, mac) in &aged {
                self.changed(Change::Mac { bridge: self.id(), vlan: *vlan, mac: *mac });
            }
            if aged.len() < AGED_AT_ONCE {
                break;
            }
        }
        let mut over: Vec<_> =
            self.expirable.0.lock().values().filter_map(|r| Some((Arc::clone(r), expired(r, now)?))).collect();
        over.sort_unstable_by_key(|(rule, _)| rule.versions.added());
        self.tidy(now);
        if over.is_empty() { Vec::new() } else { self.remove_rules(&over) }
    }
}
