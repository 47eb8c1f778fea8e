//! The group table of a bridge (OpenFlow 1.3 section 6.5): changes, descriptions and counters.
//!
//! As in Open vSwitch, buckets may reference groups that do not exist (yet). Flows may not, and are removed with the last of
//! the groups that they reference. A group that references itself, directly or indirectly, is refused (section 6.5), where
//! Open vSwitch forwards packets around the loop up to the depth limit.

use crate::bridge::Ofproto;
use crate::flow_table::RemovedReason;
use crate::group_log::log_selection;
use crate::transaction::{Reference, Transaction, groups_of};
use openflow::group::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, Bucket, BucketStats, GROUP_ALL, GROUP_ANY, GROUP_MAX, GroupDesc,
    GroupFeatures, GroupStats,
};
use openflow::{GroupCommand, GroupMod, OfpError};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use xlate::{Group, GroupBucket};

/// `OFPGFC_SELECT_WEIGHT`, `OFPGFC_SELECT_LIVENESS` and `OFPGFC_CHAINING`.
const CAPABILITIES: u32 = 7;

impl Transaction<'_> {
    /// Changes the group table.
    ///
    /// Errors: `OFPGMFC_GROUP_EXISTS`, `OFPGMFC_UNKNOWN_GROUP`, `OFPGMFC_INVALID_GROUP`, `OFPGMFC_UNKNOWN_BUCKET`,
    /// `OFPGMFC_BUCKET_EXISTS`, `OFPGMFC_LOOP`,
    /// `NXBAC_CT_DATAPATH_SUPPORT`.
    pub fn group_mod(&mut self, gm: &GroupMod) -> Result<(), OfpError> {
        for bucket in &gm.buckets {
            self.check_datapath(&bucket.actions)?;
        }
        let old = self.groups.get(gm.group_id).cloned();
        match (gm.command, old) {
            (GroupCommand::Delete, _) => {
                self.delete_groups(gm.group_id);
                Ok(())
            }
            (GroupCommand::Add, Some(_)) => Err(OfpError::GmfcGroupExists),
            (GroupCommand::Add | GroupCommand::AddOrModify, None) if gm.group_id > GROUP_MAX => {
                Err(OfpError::GmfcInvalidGroup)
            }
            (GroupCommand::Add | GroupCommand::AddOrModify, None) => {
                self.put_group(gm, gm.buckets.iter().map(new_bucket).collect(), None)
            }
            (GroupCommand::Modify | GroupCommand::AddOrModify, Some(old)) => {
                self.put_group(gm, gm.buckets.iter().map(new_bucket).collect(), Some(&old))
            }
            (GroupCommand::Modify | GroupCommand::InsertBucket | GroupCommand::RemoveBucket, None) => {
                Err(OfpError::GmfcUnknownGroup)
            }
            (GroupCommand::InsertBucket, Some(old)) => self.insert_buckets(gm, &old),
            (GroupCommand::RemoveBucket, Some(old)) => self.remove_buckets(gm, &old),
        }
    }

    /// Stores a group with these buckets; its type is that of `gm`, or of `old` for a command on buckets.
    fn put_group(&mut self, gm: &GroupMod, buckets: Vec<GroupBucket>, old: Option<&Group>) -> Result<(), OfpError> {
        if self.references_itself(gm.group_id, &buckets) {
            return Err(OfpError::GmfcLoop);
        }
        let kept = old.filter(|_| gm.command.is_of_buckets());
        let group = Group {
            id: gm.group_id,
            kind: kept.map_or(gm.kind, |old| old.kind),
            buckets,
            properties: kept.map_or_else(|| gm.properties.clone(), |old| old.properties.clone()),
            created: old.map_or(self.now, |old| old.created),
            counters: Arc::default(),
            spread: xlate::groups::Spread::default(),
        };
        log_selection(&group, old);
        self.note_group(group.id);
        Arc::make_mut(&mut self.groups).insert(group.id, Arc::new(group));
        Ok(())
    }

    /// Returns true if a group with these buckets would reference itself. Every loop passes through this group.
    fn references_itself(&self, id: u32, buckets: &[GroupBucket]) -> bool {
        let mut seen = HashSet::new();
        let mut next: Vec<u32> = referenced_groups(buckets).collect();
        while let Some(to) = next.pop() {
            if to == id {
                return true;
            }
            if seen.insert(to)
                && let Some(group) = self.groups.get(to)
            {
                next.extend(referenced_groups(&group.buckets));
            }
        }
        false
    }

    fn insert_buckets(&mut self, gm: &GroupMod, old: &Group) -> Result<(), OfpError> {
        let new: HashSet<u32> = gm.buckets.iter().map(|b| b.bucket_id).collect();
        if old.buckets.iter().any(|b| new.contains(&b.bucket.bucket_id)) {
            return Err(OfpError::GmfcBucketExists);
        }
        let at = match gm.command_bucket_id {
            BUCKET_FIRST => 0,
            BUCKET_LAST => old.buckets.len(),
            id => find_bucket(old, id)? + 1,
        };
        let mut buckets = old.buckets.clone();
        buckets.splice(at..at, gm.buckets.iter().map(new_bucket));
        self.put_group(gm, buckets, Some(old))
    }

    fn remove_buckets(&mut self, gm: &GroupMod, old: &Group) -> Result<(), OfpError> {
        let mut buckets = old.buckets.clone();
        match gm.command_bucket_id {
            BUCKET_ALL => buckets.clear(),
            BUCKET_FIRST if !buckets.is_empty() => _ = buckets.remove(0),
            BUCKET_LAST if !buckets.is_empty() => _ = buckets.pop(),
            BUCKET_FIRST | BUCKET_LAST => {}
            id => _ = buckets.remove(find_bucket(old, id)?),
        }
        self.put_group(gm, buckets, Some(old))
    }

    /// Deletes a group, or all, and the flows that reference it.
    fn delete_groups(&mut self, id: u32) {
        let ids = match id {
            GROUP_ALL => self.groups.all().iter().map(|group| group.id).collect(),
            id => vec![id],
        };
        let mut used = Vec::new();
        for id in ids {
            if Arc::make_mut(&mut self.groups).remove(id).is_some() {
                used.extend(Some(Reference::Group(id)).filter(|to| self.has_references(*to)));
                self.note_group(id);
            }
        }
        if !used.is_empty() {
            self.remove_dangling(&used, RemovedReason::GroupDelete);
        }
    }
}

/// The groups that buckets reference, once for each bucket.
fn referenced_groups(buckets: &[GroupBucket]) -> impl Iterator<Item = u32> {
    buckets.iter().flat_map(|b| groups_of(&b.bucket.actions))
}

fn new_bucket(bucket: &Bucket) -> GroupBucket {
    GroupBucket::new(bucket.clone())
}

fn find_bucket(group: &Group, id: u32) -> Result<usize, OfpError> {
    group.buckets.iter().position(|b| b.bucket.bucket_id == id).ok_or(OfpError::GmfcUnknownBucket)
}

impl Ofproto {
    /// Returns the group with this number, or all of them.
    pub fn groups(&self, id: u32) -> Vec<Arc<Group>> {
        let view = self.tables().view();
        match id {
            GROUP_ALL | GROUP_ANY => view.groups.all(),
            id => view.groups.get(id).cloned().into_iter().collect(),
        }
    }

    pub(crate) fn group_descs(&self, id: u32) -> Vec<GroupDesc> {
        let desc = |group: &Arc<Group>| GroupDesc {
            kind: group.kind,
            group_id: group.id,
            buckets: group.buckets.iter().map(|b| b.bucket.clone()).collect(),
            properties: group.properties.clone(),
        };
        self.groups(id).iter().map(desc).collect()
    }

    pub(crate) fn group_stats(&self, id: u32) -> Vec<GroupStats> {
        let groups = self.groups(id);
        // The number of groups that reference each group.
        let mut chained: HashMap<u32, u64> = HashMap::new();
        for group in self.groups(GROUP_ALL) {
            let to: HashSet<u32> = referenced_groups(&group.buckets).collect();
            to.into_iter().for_each(|id| *chained.entry(id).or_default() += 1);
        }
        let (now, writer) = (self.now(), self.writer.lock());
        let ref_count = |id| writer.references(Reference::Group(id)) + chained.get(&id).copied().unwrap_or(0);
        let stats = |group: &Arc<Group>| {
            let age = now.since(group.created);
            let bucket =
                |b: &GroupBucket| BucketStats { packet_count: b.counters.packets(), byte_count: b.counters.bytes() };
            GroupStats {
                group_id: group.id,
                ref_count: ref_count(group.id).try_into().unwrap_or(u32::MAX),
                packet_count: group.counters.packets(),
                byte_count: group.counters.bytes(),
                duration_sec: (age / 1000) as u32,
                duration_nsec: (age % 1000) as u32 * 1_000_000,
                buckets: group.buckets.iter().map(bucket).collect(),
            }
        };
        groups.iter().map(stats).collect()
    }
}

/// The group features: all types, any number.
pub(crate) fn features(actions: u32) -> GroupFeatures {
    GroupFeatures { types: 0xf, capabilities: CAPABILITIES, max_groups: [GROUP_MAX; 4], actions: [actions; 4] }
}
