//! The table: the members of each group, by VLAN and address, and the ports behind which there are multicast routers.
//!
//! Members and routers are bundles, by name: a bond is one member, whichever of its interfaces receives the report. A
//! member is forgotten when it has not reported for the ageing time, a router [`ROUTER_AGING_MS`] after its last query. A
//! full table forgets the group with the oldest last report.
//!
//! Invariants: each group has at least one member, and its key is in `by_report` under its number; each member is in
//! `member_ages`, and each router in `router_ages`, under its time and number; lists of members and routers are in the order of
//! their last message.

use crate::message::{Membership, Message, Record, Version};
use base::Millis;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Seconds until a member is forgotten, unless configured otherwise (Bridge:other_config:mcast-snooping-aging-time).
pub const AGING_SECS: u32 = 300;
/// The largest number of groups, unless configured otherwise (Bridge:other_config:mcast-snooping-table-size).
pub const TABLE_SIZE: usize = 2048;
/// Milliseconds until a router that sends no queries is forgotten.
pub const ROUTER_AGING_MS: u64 = 180_000;

/// A VLAN and the address of a group in it.
pub type GroupKey = (u16, IpAddr);

/// The limits of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The largest number of groups; clamped to 10 to 1,000,000.
    pub table_size: usize,
    /// Seconds until a member is forgotten; clamped to 15 to 3600.
    pub aging_secs: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { table_size: TABLE_SIZE, aging_secs: AGING_SECS }
    }
}

/// The frames that a bundle receives whatever the table contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flooding {
    /// Multicast frames apart from reports (Port:other_config:mcast-snooping-flood). The bundle is no member of groups.
    pub traffic: bool,
    /// Reports (Port:other_config:mcast-snooping-flood-reports). Several listeners may be behind the bundle, so that none of
    /// their leaves takes effect: they age.
    pub reports: bool,
}

/// The place where a message arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// VLAN.
    pub vlan: u16,
    /// Name of the bundle.
    pub bundle: Arc<str>,
    /// The bundle's settings.
    pub flooding: Flooding,
}

/// A part of the table that changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Change {
    /// The members of a group.
    Group(u16, IpAddr),
    /// The routers of a VLAN.
    Routers(u16),
}

/// Counters since the table was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Groups added.
    pub learned: u64,
    /// Members and routers that expired.
    pub expired: u64,
    /// Groups removed to make room for others.
    pub evicted: u64,
}

/// A bundle with the time of its last message.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Name of the bundle.
    pub bundle: Arc<str>,
    /// The time of its last report, or query.
    pub at: Millis,
    seq: u64,
}

/// A group in the table.
#[derive(Clone, Debug)]
pub struct Group {
    /// The version of its last report.
    pub version: Version,
    members: Vec<Heard>,
    seq: u64,
}

impl Group {
    /// Its members; the one that has not reported for longest is first.
    pub fn members(&self) -> &[Heard] {
        &self.members
    }
}

/// The groups and routers of a bridge.
#[derive(Debug)]
pub struct Table {
    groups: HashMap<GroupKey, Group>,
    /// Groups by the number of their last report.
    by_report: BTreeMap<u64, GroupKey>,
    member_ages: BTreeMap<(Millis, u64), (GroupKey, Arc<str>)>,
    /// Routers by VLAN.
    routers: BTreeMap<u16, Vec<Heard>>,
    router_ages: BTreeMap<(Millis, u64), (u16, Arc<str>)>,
    next_seq: u64,
    table_size: usize,
    aging_ms: u64,
    counters: Counters,
}

impl Default for Table {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Table {
    /// An empty table.
    pub fn new(settings: Settings) -> Self {
        let mut table = Self {
            groups: HashMap::new(),
            by_report: BTreeMap::new(),
            member_ages: BTreeMap::new(),
            routers: BTreeMap::new(),
            router_ages: BTreeMap::new(),
            next_seq: 0,
            table_size: 0,
            aging_ms: 0,
            counters: Counters::default(),
        };
        table.configure(settings);
        table
    }

    /// Sets the limits. Returns the groups that are forgotten because the table has become too small.
    pub fn configure(&mut self, settings: Settings) -> Vec<Change> {
        self.table_size = settings.table_size.clamp(10, 1_000_000);
        self.aging_ms = u64::from(settings.aging_secs.clamp(15, 3600)) * 1000;
        let mut changes = Vec::new();
        while self.groups.len() > self.table_size {
            self.evict(&mut changes);
        }
        changes
    }

    /// Learns from a message. Returns what changed.
    pub fn learn(&mut self, message: &Message, from: &Source, now: Millis) -> Vec<Change> {
        let mut changes = Vec::new();
        match message {
            Message::Query { source } if source.is_unspecified() => {}
            Message::Query { .. } => self.hear_router(from, now, &mut changes),
            Message::Report { version, records } => {
                for Record { group, membership } in records {
                    let key = (from.vlan, *group);
                    match membership {
                        Membership::Join if self.is_join_ignored(from) => {}
                        Membership::Join => self.join(key, *version, &from.bundle, now, &mut changes),
                        Membership::Leave if from.flooding.reports => {}
                        Membership::Leave => self.leave(key, &from.bundle, &mut changes),
                    }
                }
            }
        }
        changes
    }

    /// Returns the number of records of a report that would add a group or end a membership, or 1 for a query that would add a
    /// router: those that `ofproto/trace` reports.
    pub fn news(&self, message: &Message, from: &Source) -> usize {
        match message {
            Message::Query { source } => usize::from(!source.is_unspecified() && !self.is_router(from)),
            Message::Report { records, .. } => {
                let counts = |record: &&Record| {
                    let members = self.members(from.vlan, record.group);
                    match record.membership {
                        Membership::Join => !self.is_join_ignored(from) && members.is_empty(),
                        Membership::Leave => !from.flooding.reports && position(members, &from.bundle).is_some(),
                    }
                };
                records.iter().filter(counts).count()
            }
        }
    }

    /// Returns the members of a group; the one that has not reported for longest is first. Empty if the group is not in the table.
    pub fn members(&self, vlan: u16, group: IpAddr) -> &[Heard] {
        self.groups.get(&(vlan, group)).map_or(&[], Group::members)
    }

    /// Returns the bundles of a VLAN that lead to routers; the one that has not sent a query for longest is first.
    pub fn routers(&self, vlan: u16) -> &[Heard] {
        self.routers.get(&vlan).map_or(&[], Vec::as_slice)
    }

    /// Returns all groups; the one with the oldest last report is first.
    pub fn groups(&self) -> impl Iterator<Item = (GroupKey, &Group)> + '_ {
        self.by_report.values().filter_map(|key| Some((*key, self.groups.get(key)?)))
    }

    /// Returns the routers of all VLANs with their VLAN; the one that has not sent a query for longest is first.
    pub fn all_routers(&self) -> Vec<(u16, &Heard)> {
        let mut all: Vec<_> =
            self.routers.iter().flat_map(|(vlan, routers)| routers.iter().map(|router| (*vlan, router))).collect();
        all.sort_by_key(|(_, router)| router.seq);
        all
    }

    /// Forgets members and routers that have not been heard of for their ageing times, `max` of them at most. Returns what
    /// changed: nothing only if none was left.
    pub fn expire(&mut self, now: Millis, max: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..max {
            if let Some((&(at, _), (key, bundle))) = self.member_ages.first_key_value()
                && now.since(at) >= self.aging_ms
            {
                let (key, bundle) = (*key, Arc::clone(bundle));
                self.leave(key, &bundle, &mut changes);
            } else if let Some((&(at, _), (vlan, bundle))) = self.router_ages.first_key_value()
                && now.since(at) >= ROUTER_AGING_MS
            {
                let (vlan, bundle) = (*vlan, Arc::clone(bundle));
                self.forget_router(vlan, &bundle, &mut changes);
            } else {
                break;
            }
            self.counters.expired += 1;
            base::coverage!(mcast_snooping_expired);
        }
        changes
    }

    /// Returns the earliest time at which [`Table::expire`] has something to forget.
    pub fn next_deadline(&self) -> Option<Millis> {
        let member = self.member_ages.keys().next().map(|(at, _)| at.after(self.aging_ms));
        let router = self.router_ages.keys().next().map(|(at, _)| at.after(ROUTER_AGING_MS));
        member.into_iter().chain(router).min()
    }

    /// Forgets everything. Returns what changed.
    pub fn flush(&mut self) -> Vec<Change> {
        let groups = self.groups.drain().map(|((vlan, group), _)| Change::Group(vlan, group));
        let routers = std::mem::take(&mut self.routers).into_keys().map(Change::Routers);
        let changes = groups.chain(routers).collect();
        self.by_report.clear();
        self.member_ages.clear();
        self.router_ages.clear();
        changes
    }

    /// Forgets a bundle. Returns what changed.
    pub fn remove_bundle(&mut self, bundle: &str) -> Vec<Change> {
        let has = |members: &[Heard]| position(members, bundle).is_some();
        let keys: Vec<GroupKey> = self.groups.iter().filter(|(_, g)| has(&g.members)).map(|(key, _)| *key).collect();
        let vlans: Vec<u16> = self.routers.iter().filter(|(_, r)| has(r)).map(|(vlan, _)| *vlan).collect();
        let mut changes = Vec::with_capacity(keys.len() + vlans.len());
        keys.into_iter().for_each(|key| self.leave(key, bundle, &mut changes));
        vlans.into_iter().for_each(|vlan| self.forget_router(vlan, bundle, &mut changes));
        changes
    }

    /// The current number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns true if there are neither groups nor routers.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.routers.is_empty()
    }

    /// The largest number of groups.
    pub fn table_size(&self) -> usize {
        self.table_size
    }

    /// The counters since the table was created.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn is_router(&self, from: &Source) -> bool {
        position(self.routers(from.vlan), &from.bundle).is_some()
    }

    /// Returns true if the bundle receives the frames of all groups anyway.
    fn is_join_ignored(&self, from: &Source) -> bool {
        from.flooding.traffic || self.is_router(from)
    }

    fn join(&mut self, key: GroupKey, version: Version, bundle: &Arc<str>, now: Millis, changes: &mut Vec<Change>) {
        if !self.groups.contains_key(&key) {
            if self.groups.len() >= self.table_size {
                self.evict(changes);
            }
            self.counters.learned += 1;
            base::coverage!(mcast_snooping_learned);
        }
        let (seq, member) = (self.next_seq(), self.next_seq());
        let group = self.groups.entry(key).or_insert(Group { version, members: Vec::new(), seq });
        self.by_report.remove(&group.seq);
        (group.version, group.seq) = (version, seq);
        self.by_report.insert(seq, key);
        match position(&group.members, bundle) {
            Some(at) => {
                let old = group.members.remove(at);
                self.member_ages.remove(&(old.at, old.seq));
            }
            None => changes.push(Change::Group(key.0, key.1)),
        }
        group.members.push(Heard { bundle: Arc::clone(bundle), at: now, seq: member });
        self.member_ages.insert((now, member), (key, Arc::clone(bundle)));
    }

    /// Removes a member of a group, if it is one.
    fn leave(&mut self, key: GroupKey, bundle: &str, changes: &mut Vec<Change>) {
        let Some(group) = self.groups.get_mut(&key) else { return };
        let Some(at) = position(&group.members, bundle) else { return };
        let member = group.members.remove(at);
        self.member_ages.remove(&(member.at, member.seq));
        changes.push(Change::Group(key.0, key.1));
        if group.members.is_empty() {
            self.by_report.remove(&group.seq);
            self.groups.remove(&key);
        }
    }

    /// Forgets the group with the oldest last report.
    fn evict(&mut self, changes: &mut Vec<Change>) {
        let Some((_, key)) = self.by_report.pop_first() else { return };
        let Some(group) = self.groups.remove(&key) else { return };
        for member in group.members {
            self.member_ages.remove(&(member.at, member.seq));
        }
        self.counters.evicted += 1;
        changes.push(Change::Group(key.0, key.1));
    }

    fn hear_router(&mut self, from: &Source, now: Millis, changes: &mut Vec<Change>) {
        let seq = self.next_seq();
        let routers = self.routers.entry(from.vlan).or_default();
        match position(routers, &from.bundle) {
            Some(at) => {
                let old = routers.remove(at);
                self.router_ages.remove(&(old.at, old.seq));
            }
            None => changes.push(Change::Routers(from.vlan)),
        }
        routers.push(Heard { bundle: Arc::clone(&from.bundle), at: now, seq });
        self.router_ages.insert((now, seq), (from.vlan, Arc::clone(&from.bundle)));
    }

    fn forget_router(&mut self, vlan: u16, bundle: &str, changes: &mut Vec<Change>) {
        let Some(routers) = self.routers.get_mut(&vlan) else { return };
        let Some(at) = position(routers, bundle) else { return };
        let router = routers.remove(at);
        self.router_ages.remove(&(router.at, router.seq));
        changes.push(Change::Routers(vlan));
        if routers.is_empty() {
            self.routers.remove(&vlan);
        }
    }

    fn next_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }
}

/// The place of a bundle in a list.
fn position(list: &[Heard], bundle: &str) -> Option<usize> {
    list.iter().position(|heard| *heard.bundle == *bundle)
}
