//! Idle and hard timeouts of flows.

use crate::bridge::Ofproto;
use crate::flow_table::{Removed, RemovedReason};
use crate::revalidate::Change;
use base::Millis;
use classifier::LATEST;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use xlate::Rule;

/// The number of learned addresses removed at a time: packets wait for the table meanwhile.
const AGED_AT_ONCE: usize = 256;

/// The number of rules removed at a time: other changes of the tables can come in between.
const EXPIRED_AT_ONCE: usize = 4096;
/// Width of a slot of the timer wheel.
const SLOT_MS: u64 = 256;
/// The number of removed rules that may stay in the wheel, beyond the number of live ones.
const GONE_MAX: usize = 1024;

/// The rules of a bridge with a timeout, in a timer wheel: finding expired rules does not visit the others.
#[derive(Debug, Default)]
pub(crate) struct Expirable(Mutex<Wheel>);

/// Rules by their expiry if no packet comes. A packet puts off an expiry without updating the wheel: a due slot then moves the
/// rule to its new slot. Removed rules stay until their slot is due, or until there are many of them.
#[derive(Debug, Default)]
struct Wheel {
    slots: BTreeMap<u64, Vec<Arc<Rule>>>,
    /// Rules in the slots, removed ones included.
    stored: usize,
    /// Rules with a timeout that are in their tables.
    live: usize,
}

impl Expirable {
    pub(crate) fn insert(&self, rule: &Arc<Rule>) {
        if expiry(rule).is_some() {
            let mut wheel = self.0.lock();
            wheel.live += 1;
            wheel.arm(Arc::clone(rule));
        }
    }

    /// Records that a rule was removed.
    pub(crate) fn remove(&self, rule: &Arc<Rule>) {
        if expiry(rule).is_some() {
            let mut wheel = self.0.lock();
            wheel.live -= 1;
            if wheel.stored > 2 * wheel.live + GONE_MAX {
                wheel.forget_gone();
            }
        }
    }
}

impl Wheel {
    fn arm(&mut self, rule: Arc<Rule>) {
        if let Some(end) = expiry(&rule) {
            self.slots.entry(end.0 / SLOT_MS).or_default().push(rule);
            self.stored += 1;
        }
    }

    /// Removes and returns the rules that have expired at `now`.
    fn take_expired(&mut self, now: Millis) -> Vec<(Arc<Rule>, RemovedReason)> {
        let later = self.slots.split_off(&(now.0 / SLOT_MS + 1));
        let due = std::mem::replace(&mut self.slots, later);
        let mut over = Vec::new();
        for rule in due.into_values().flatten() {
            self.stored -= 1;
            if !rule.versions.visible_in(LATEST) {
                continue;
            }
            match expired(&rule, now) {
                Some(reason) => over.push((rule, reason)),
                None => self.arm(rule),
            }
        }
        over
    }

    fn forget_gone(&mut self) {
        self.slots.retain(|_, rules| {
            rules.retain(|rule| rule.versions.visible_in(LATEST));
            !rules.is_empty()
        });
        self.stored = self.slots.values().map(Vec::len).sum();
    }
}

/// The last moment of a rule if no packet comes; `None` for never.
pub(crate) fn expiry(rule: &Rule) -> Option<Millis> {
    let after = |secs: u16, since: Millis| (secs != 0).then(|| since.after(u64::from(secs) * 1000));
    let ends = [after(rule.hard_timeout, rule.modified()), after(rule.idle_timeout, rule.used())];
    ends.into_iter().flatten().min()
}

/// The reason why a rule has expired at `now`; `None` if it has not: it stays until more than its seconds have passed.
fn expired(rule: &Rule, now: Millis) -> Option<RemovedReason> {
    let over = |secs: u16, since: Millis| secs != 0 && now.since(since) > u64::from(secs) * 1000;
    if over(rule.hard_timeout, rule.modified()) {
        Some(RemovedReason::HardTimeout)
    } else if over(rule.idle_timeout, rule.used()) {
        Some(RemovedReason::IdleTimeout)
    } else {
        None
    }
}

impl Ofproto {
    /// Removes expired flows, learned addresses and multicast groups, and returns the flows. The caller should push statistics
    /// first ([`crate::Switch::revalidate`]), or idle timeouts come too early.
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
        let unlocked = self.macs().write().unlock(now);
        for (vlan, mac) in unlocked {
            self.changed(Change::Mac { bridge: self.id(), vlan, mac });
        }
        self.age_multicast(now);
        let mut over = self.expirable.0.lock().take_expired(now);
        over.sort_unstable_by_key(|(rule, _)| rule.versions.added());
        over.chunks(EXPIRED_AT_ONCE).flat_map(|some| self.remove_rules(some)).collect()
    }

    /// Finds the expired flows by visiting all of them.
    #[cfg(test)]
    pub(crate) fn scan_expired(&self, now: Millis) -> Vec<Arc<Rule>> {
        let mut all = self.collect(&crate::flow_table::Criteria::any());
        all.retain(|rule| expired(rule, now).is_some());
        all
    }

    /// The number of rules in the timer wheel.
    #[cfg(test)]
    pub(crate) fn armed_timers(&self) -> usize {
        self.expirable.0.lock().stored
    }
}
