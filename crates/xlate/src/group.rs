//! Groups (OpenFlow 1.3 section 5.6): selection and execution of buckets.

use crate::freeze::Freeze;
use crate::groups::Group;
use crate::scope::Scope;
use crate::select::mix;
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::{Dependency, Effect};
use base::{DropReason, PortNo};
use dpif::HashKind;
use flow::{Field, FlowKey, TunOption};
use openflow::GroupKind;
use openflow::group::{Bucket, GROUP_ANY, GroupProperties};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::Arc;

/// The score of a bucket of this weight for a random number. The time to the first event of rate `weight` is -ln(u) / weight,
/// and the probability that the first of several events is a given one is its share of all rates. The earliest event has the
/// highest score, which is scaled to whole numbers for traces.
fn score(random: u64, weight: u16) -> f64 {
    // Between 0 and 1, exclusive.
    let u = ((random >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
    1000.0 * f64::from(weight) / -u.ln()
}

impl Xlate<'_> {
    /// Executes the `group` action.
    pub(crate) fn group(&mut self, id: u32) {
        let Some(group) = self.find_group(id) else {
            self.tracer.note(NodeKind::Warning, || format!("output to nonexistent group {id}"));
            return self.note_drop(DropReason::NoGroup);
        };
        if self.is_over_limits() {
            return;
        }
        self.out.effects.push(Effect::Group(Arc::clone(&group)));
        match group.kind {
            GroupKind::All => (0..group.buckets.len()).for_each(|i| self.bucket(&group, i)),
            GroupKind::Indirect => self.bucket(&group, 0),
            GroupKind::Select | GroupKind::FastFailover => {
                let chosen =
                    if group.kind == GroupKind::Select { self.select(&group) } else { self.first_live(&group) };
                match chosen {
                    // The bucket is selected after recirculation.
                    None if self.control.freeze.is_some() => _ = self.out.effects.pop(),
                    Some(i) => {
                        self.tracer.note(NodeKind::Detail, || format!("using bucket {i}"));
                        self.bucket(&group, i);
                    }
                    None => {
                        self.tracer.note(NodeKind::Detail, || "no live bucket".into());
                        self.note_drop(DropReason::NoGroup);
                    }
                }
            }
        }
    }

    /// Returns the group with this number, on which the verdict depends from now on.
    pub(crate) fn find_group(&mut self, id: u32) -> Option<Arc<Group>> {
        let dependency = Dependency::Group { bridge: self.pos.bridge.id, group: id };
        if !self.out.dependencies.contains(&dependency) {
            self.out.dependencies.push(dependency);
        }
        self.view().groups.get(id).cloned()
    }

    /// Executes a bucket, as an action set, on a copy of the packet.
    fn bucket(&mut self, group: &Arc<Group>, i: usize) {
        let Some(bucket) = group.buckets.get(i) else { return };
        if self.control.exit || !self.count_resubmit() {
            return;
        }
        self.out.effects.push(Effect::Bucket(Arc::clone(group), i));
        self.tracer.enter(NodeKind::Bucket, || format!("bucket {i}"));
        self.on_a_copy(Scope::Bucket, |x| x.do_actions(&bucket.in_order));
        self.tracer.leave();
    }

    fn first_live(&mut self, group: &Group) -> Option<usize> {
        (0..group.buckets.len()).find(|i| self.is_bucket_live(group, *i))
    }

    /// Selects the bucket for this packet's flow.
    fn select(&mut self, group: &Group) -> Option<usize> {
        let param = group.properties.selection_method_param;
        let kind = match &*group.properties.selection_method {
            "" => HashKind::SymmetricL4,
            "dp_hash" if param >> 32 == 0 => HashKind::L4,
            "dp_hash" => HashKind::SymmetricL4,
            _ => return self.select_by_flow(group),
        };
        let live: SmallVec<[bool; 16]> = (0..group.buckets.len()).map(|i| self.is_bucket_live(group, i)).collect();
        // Without a choice, the selection reads nothing.
        if live.iter().filter(|l| **l).count() < 2 {
            return live.iter().position(|l| *l);
        }
        let Some(spread) = group.spread() else { return self.select_by_flow(group) };
        if !self.packet.hashed {
            // Only the datapath sees packets: flows of all hashes share the megaflow up to here.
            self.tracer.note(NodeKind::Detail, || "selection method in use: dp_hash, recirculating".into());
            self.control.freeze = Some(Freeze::Hash(kind, param as u32));
            return None;
        }
        let hash = self.read_bits(Field::DpHash, spread.len() as u128 - 1) as usize;
        // Flows of a bucket that is not live move to the live ones, which share its hashes.
        let chosen = (0..spread.len()).map(|i| usize::from(spread[(hash + i) % spread.len()]));
        chosen.into_iter().find(|i| live.get(*i) == Some(&true))
    }

    /// Selects by a hash of the flow's fields: the live bucket with the highest score. The score depends on the flow and that
    /// bucket alone, so that adding or removing a bucket moves as few flows as possible.
    fn select_by_flow(&mut self, group: &Group) -> Option<usize> {
        let live: SmallVec<[usize; 16]> = (0..group.buckets.len()).filter(|i| self.is_bucket_live(group, *i)).collect();
        // Without a choice, the selection reads nothing.
        if live.len() < 2 {
            return live.first().copied();
        }
        let hash = self.flow_hash(group);
        let mut best = None;
        for i in live {
            let score = score(mix(hash, i as u64), group.buckets[i].bucket.weight);
            self.tracer.note(NodeKind::Detail, || format!("bucket {i}: score {score:.0}"));
            if best.is_none_or(|(_, highest)| score > highest) {
                best = Some((i, score));
            }
        }
        best.map(|(i, _)| i)
    }

    fn is_bucket_live(&mut self, group: &Group, i: usize) -> bool {
        let bucket = &group.buckets[i].bucket;
        let chosen = group.kind != GroupKind::Select || bucket.weight > 0;
        let live = chosen && self.is_live(bucket);
        if !live {
            self.tracer.note(NodeKind::Detail, || {
                let port = bucket.watch_port != PortNo::ANY;
                let what = match () {
                    () if !chosen => String::new(),
                    () if port => format!("port {}", bucket.watch_port),
                    () => format!("port {}", bucket.watch_group),
                };
                format!("bucket {i}: not live due to {what}")
            });
        }
        live
    }

    /// Returns true if a bucket may be used: it watches nothing, a live port, or a group with a live bucket.
    fn is_live(&mut self, bucket: &Bucket) -> bool {
        self.is_live_by_itself(bucket) || bucket.watch_group != GROUP_ANY && self.is_group_live(bucket.watch_group)
    }

    /// Does the same without checking the group that it watches. (CONTROLLER is never live, as in Open vSwitch.)
    fn is_live_by_itself(&mut self, bucket: &Bucket) -> bool {
        let port = bucket.watch_port;
        !bucket.has_liveness()
            || self.pos.bridge.ports.get(&port).is_some_and(|port| port.live) && self.state_of(port).live
    }

    /// Returns true if a group has a live bucket, or watches a group that has one. A group that only watches itself is not
    /// live.
    fn is_group_live(&mut self, id: u32) -> bool {
        // A list instead of recursion, as chains may be long.
        let mut seen = HashSet::from([id]);
        let mut left = vec![id];
        while let Some(id) = left.pop() {
            let Some(group) = self.find_group(id) else { continue };
            if group.buckets.iter().any(|b| self.is_live_by_itself(&b.bucket)) {
                return true;
            }
            let watched = group.buckets.iter().map(|b| b.bucket.watch_group);
            left.extend(watched.filter(|id| *id != GROUP_ANY && seen.insert(*id)));
        }
        false
    }

    /// Hashes the packet's flow: the fields that the group names, or addresses and ports, with the same result for both
    /// directions.
    fn flow_hash(&mut self, group: &Group) -> u64 {
        let mut hash = mix(0, group.properties.selection_method_param);
        let GroupProperties { selection_method, fields, options, .. } = &group.properties;
        if selection_method != "hash" || fields.is_empty() && options.is_empty() {
            return self.hash_flow(hash);
        }
        for (field, mask) in fields {
            if self.has(field.info().prereq) {
                let value = self.read_bits(*field, *mask);
                hash = mix(mix(hash, *field as u64), (value ^ value >> 64) as u64);
            }
        }
        for option in options {
            hash = self.hash_option(option, mix(hash, option.field() as u64));
        }
        hash
    }

    /// Hashes the bits of a tunnel option that the value of `mask` has. An option that is not mapped has no bits.
    fn hash_option(&mut self, mask: &TunOption, mut hash: u64) -> u64 {
        let Some(placed) = self.option(mask.field()) else { return hash };
        let mut read = FlowKey::ZERO;
        for (offset, bits) in (0..).step_by(8).zip(mask.value().iter().rev()) {
            placed.set(&mut read, offset, 8, u64::from(*bits));
            hash = mix(hash, placed.get(&self.packet.key, offset, 8) & u64::from(*bits));
        }
        self.out.reads.note_mask(&read);
        hash
    }

    pub(crate) fn read_bits(&mut self, field: Field, mask: u128) -> u128 {
        let mask = mask & field.info().full_mask();
        let mut bits = FlowKey::ZERO;
        bits.add_mask(field, mask);
        self.out.reads.note_mask(&bits);
        self.packet.key.get(field) & mask
    }
}
