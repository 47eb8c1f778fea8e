//! Groups (OpenFlow 1.3 sections 5.6, 7.3.4.2 and 7.3.5.9 to 7.3.5.11): changes, descriptions, counters.
//!
//! A group is the same value in all versions. On the wire it has two forms, which `codec` reads and writes: that of
//! OpenFlow 1.1 to 1.4, and that of OpenFlow 1.5, which Nicira's messages for OpenFlow 1.0 have too. Only the second can
//! say buckets' ids, change single buckets, and carry [`GroupProperties`].

mod codec;
mod text;

#[cfg(test)]
mod tests;

pub use text::{GroupTextError, ParsedGroup, parse_group, parse_group_line};

use crate::action::Action;
use base::PortNo;
use flow::Field;
use std::sync::Arc;

/// Largest number of a group.
pub const GROUP_MAX: u32 = 0xffff_ff00;
/// All groups, in requests.
pub const GROUP_ALL: u32 = 0xffff_fffc;
/// No group.
pub const GROUP_ANY: u32 = crate::flow_mod::GROUP_ANY;

/// Largest id of a bucket.
pub const BUCKET_MAX: u32 = 0xffff_ff00;
/// Before the first bucket, or the first.
pub const BUCKET_FIRST: u32 = 0xffff_fffd;
/// Behind the last bucket, or the last.
pub const BUCKET_LAST: u32 = 0xffff_fffe;
/// All buckets; also where a command is not about single buckets.
pub const BUCKET_ALL: u32 = 0xffff_ffff;

/// What to do with a group; the discriminant is the number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum GroupCommand {
    /// Add it; an error if it exists.
    Add = 0,
    /// Change it; an error if it does not exist.
    Modify = 1,
    /// Delete it, or all.
    Delete = 2,
    /// Put buckets in (OpenFlow 1.5, and Nicira's message).
    InsertBucket = 3,
    /// Take a bucket out, or all (OpenFlow 1.5, and Nicira's message).
    RemoveBucket = 5,
    /// Change it, or add it (an extension of Open vSwitch's).
    AddOrModify = 0x8000,
}

impl GroupCommand {
    /// The command of this number.
    pub fn from_wire(n: u16) -> Option<Self> {
        [Self::Add, Self::Modify, Self::Delete, Self::InsertBucket, Self::RemoveBucket, Self::AddOrModify]
            .into_iter()
            .find(|c| *c as u16 == n)
    }

    /// Whether the command is about single buckets, which OpenFlow 1.1 to 1.4 cannot say.
    pub fn is_of_buckets(self) -> bool {
        matches!(self, Self::InsertBucket | Self::RemoveBucket)
    }
}

/// What a group does with its buckets; the discriminant is the number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum GroupKind {
    /// Runs all of them, each on a copy of the packet.
    #[default]
    All = 0,
    /// Runs one, chosen for the packet's flow by weight.
    Select = 1,
    /// Has one, and runs it.
    Indirect = 2,
    /// Runs the first that is live.
    FastFailover = 3,
}

impl GroupKind {
    /// The kind of this number.
    pub fn from_wire(n: u8) -> Option<Self> {
        [Self::All, Self::Select, Self::Indirect, Self::FastFailover].into_iter().find(|k| *k as u8 == n)
    }

    /// The name in text.
    pub fn name(self) -> &'static str {
        ["all", "select", "indirect", "ff"][self as usize]
    }

    /// The weight of buckets for which none is named.
    pub fn default_weight(self) -> u16 {
        u16::from(self == Self::Select)
    }
}

/// A list of actions of a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bucket {
    /// Its share in a group of kind [`GroupKind::Select`], where 0 is never chosen; 0 elsewhere.
    pub weight: u16,
    /// It is live while this port is, [`PortNo::ANY`] for no such condition.
    pub watch_port: PortNo,
    /// It is live while this group is, [`GROUP_ANY`] for no such condition.
    pub watch_group: u32,
    /// What it does with the packet, in this order.
    pub actions: Arc<[Action]>,
    /// Its id within the group. OpenFlow 1.1 to 1.4 number buckets from 0.
    pub bucket_id: u32,
}

impl Bucket {
    /// A bucket of a group of `kind` that does nothing.
    pub fn new(kind: GroupKind) -> Self {
        Self {
            weight: kind.default_weight(),
            watch_port: PortNo::ANY,
            watch_group: GROUP_ANY,
            actions: Arc::new([]),
            bucket_id: BUCKET_ALL,
        }
    }

    /// Whether its being live depends on something.
    pub fn has_liveness(&self) -> bool {
        self.watch_port != PortNo::ANY || self.watch_group != GROUP_ANY
    }
}

/// How a group of kind [`GroupKind::Select`] selects (Netronome's extension of OpenFlow 1.5).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct GroupProperties {
    /// `hash` or `dp_hash`; empty if the switch is to choose. At most 15 bytes.
    pub selection_method: String,
    /// A parameter of the method.
    pub selection_method_param: u64,
    /// What `hash` looks at, in the order of the field table: fields, and which of their bits. Empty for the default.
    pub fields: Vec<(Field, u128)>,
}

/// A change to the group table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMod {
    /// What to do.
    pub command: GroupCommand,
    /// What the group does with its buckets; of no meaning where the command does not make a group.
    pub kind: GroupKind,
    /// Which group; [`GROUP_ALL`] to delete all.
    pub group_id: u32,
    /// Its buckets, or those to put in.
    pub buckets: Vec<Bucket>,
    /// Which bucket a command of buckets is about: one's id, [`BUCKET_FIRST`], [`BUCKET_LAST`] or [`BUCKET_ALL`].
    pub command_bucket_id: u32,
    /// How it selects.
    pub properties: GroupProperties,
}

impl GroupMod {
    /// `command` on a group of kind `All` without buckets.
    pub fn new(command: GroupCommand, group_id: u32) -> Self {
        Self {
            command,
            kind: GroupKind::All,
            group_id,
            buckets: Vec::new(),
            command_bucket_id: BUCKET_ALL,
            properties: GroupProperties::default(),
        }
    }
}

/// What a group is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDesc {
    /// What it does with its buckets.
    pub kind: GroupKind,
    /// Its number.
    pub group_id: u32,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
    /// How it selects.
    pub properties: GroupProperties,
}

/// What a group's bucket has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BucketStats {
    /// Packets; `u64::MAX` if the switch does not know.
    pub packet_count: u64,
    /// Bytes; likewise.
    pub byte_count: u64,
}

/// What a group has counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupStats {
    /// Its number.
    pub group_id: u32,
    /// How many flows and groups lead to it.
    pub ref_count: u32,
    /// Packets; `u64::MAX` if the switch does not know.
    pub packet_count: u64,
    /// Bytes; likewise.
    pub byte_count: u64,
    /// How long it has existed: seconds, `u32::MAX` if that is not known (OpenFlow 1.1 and 1.2 do not say).
    pub duration_sec: u32,
    /// Nanoseconds beside the seconds.
    pub duration_nsec: u32,
    /// What its buckets have counted, in their order.
    pub buckets: Vec<BucketStats>,
}

/// What groups the switch could have. Indices: all, select, indirect, fast failover.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupFeatures {
    /// A bit for each group type.
    pub types: u32,
    /// `OFPGFC_*`.
    pub capabilities: u32,
    /// Largest number of groups of each type.
    pub max_groups: [u32; 4],
    /// A bit for each action type, of each group type.
    pub actions: [u32; 4],
}
