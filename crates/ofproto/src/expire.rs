//! Idle and hard timeouts of flows.

use crate::bridge::Ofproto;
use crate::flow_table::{Removed, RemovedReason};
use crate::revalidate::Change;
use base::Millis;
use classifier::LATEST;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use xlate::Rule;

/// Learned addresses that are removed together: packets wait for the table meanwhile.
const AGED_AT_ONCE: usize = 256;

/// Rules that are removed together: others may change the tables in between.
const EXPIRED_AT_ONCE: usize = 4096;
/// Width of a slot of the timer wheel.
const SLOT_MS: u64 = 256;
/// Rules that are gone and may stay in the wheel, beside as many as there are others.
const GONE_MAX: usize = 1024;

/// The rules of a bridge that have a timeout, in a timer wheel: looking for expired ones costs nothing for the others.
#[derive(Debug, Default)]
pub(crate) struct Expirable(Mutex<Wheel>);

/// Rules by when they expire if no packet comes. Packets put off the end of a rule without a word: it is found in its old
/// slot then, and moves to its new one. Rules that are gone stay until their slot is due, or until there are many.
#[derive(Debug, Default)]
struct Wheel {
    slots: BTreeMap<u64, Vec<Arc<Rule>>>,
    /// Rules in the slots.
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

    /// Notes that a rule is gone.
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

    /// Takes the rules that are over at `now`.
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

/// When a rule expires if no packet comes; `None` for never.
pub(crate) fn expiry(rule: &Rule) -> Option<Millis> {
    let after = |secs: u16, since: Millis| (secs != 0).then(|| since.after(u64::from(secs) * 1000));
    let used = Millis(rule.stats().used.load(Ordering::Relaxed)).max(rule.created);
    let ends = [after(rule.hard_timeout, rule.modified()), after(rule.idle_timeout, used)];
    ends.into_iter().flatten().min()
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
        let mut over = self.expirable.0.lock().take_expired(now);
        over.sort_unstable_by_key(|(rule, _)| rule.versions.added());
        over.chunks(EXPIRED_AT_ONCE).flat_map(|some| self.remove_rules(some)).collect()
    }

    /// The flows that are over at `now`, found by looking at all of them.
    #[cfg(test)]
    pub(crate) fn scan_expired(&self, now: Millis) -> Vec<Arc<Rule>> {
        let mut all = self.collect(&crate::flow_table::Criteria::any());
        all.retain(|rule| expired(rule, now).is_some());
        all
    }

    /// Rules in the timer wheel.
    #[cfg(test)]
    pub(crate) fn armed_timers(&self) -> usize {
        self.expirable.0.lock().stored
    }
}
