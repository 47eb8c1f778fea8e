//! Groups (OpenFlow 1.3 sections 5.6, 7.3.4.2 and 7.3.5.9 to 7.3.5.11): group mods, descriptions, counters.
//!
//! A group is the same value in all versions. On the wire it has two forms, which `codec` reads and writes: that of
//! OpenFlow 1.1 to 1.4, and that of OpenFlow 1.5, which Nicira's messages for OpenFlow 1.0 have too. Only the second form
//! has bucket ids, commands on single buckets, and [`GroupProperties`].

mod codec;
mod text;

#[cfg(test)]
mod tests;

pub use text::{GroupTextError, ParsedGroup, parse_group, parse_group_line};

use crate::action::Action;
use base::PortNo;
use flow::{Field, TunOption};
use std::sync::Arc;

/// Largest number of a group.
pub const GROUP_MAX: u32 = 0xffff_ff00;
/// All groups, in requests.
pub const GROUP_ALL: u32 = 0xffff_fffc;
/// No group.
pub const GROUP_ANY: u32 = crate::flow_mod::GROUP_ANY;

/// Largest id of a bucket.
pub const BUCKET_MAX: u32 = 0xffff_ff00;
/// The position before the first bucket; in removals the first bucket.
pub const BUCKET_FIRST: u32 = 0xffff_fffd;
/// The position after the last bucket; in removals the last bucket.
pub const BUCKET_LAST: u32 = 0xffff_fffe;
/// All buckets; also the value in commands that are not about single buckets.
pub const BUCKET_ALL: u32 = 0xffff_ffff;

/// A command on a group; the discriminant is the number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum GroupCommand {
    /// Add the group; an error if it exists.
    Add = 0,
    /// Change the group; an error if it does not exist.
    Modify = 1,
    /// Delete the group, or all groups.
    Delete = 2,
    /// Insert buckets (OpenFlow 1.5, and Nicira's message).
    InsertBucket = 3,
    /// Remove a bucket, or all buckets (OpenFlow 1.5, and Nicira's message).
    RemoveBucket = 5,
    /// Change the group, or add it if it does not exist (an extension of Open vSwitch's).
    AddOrModify = 0x8000,
}

impl GroupCommand {
    /// Returns the command with this number.
    pub fn from_wire(n: u16) -> Option<Self> {
        [Self::Add, Self::Modify, Self::Delete, Self::InsertBucket, Self::RemoveBucket, Self::AddOrModify]
            .into_iter()
            .find(|c| *c as u16 == n)
    }

    /// Returns true if the command is about single buckets, which OpenFlow 1.1 to 1.4 do not have.
    pub fn is_of_buckets(self) -> bool {
        matches!(self, Self::InsertBucket | Self::RemoveBucket)
    }
}

/// The type of a group; the discriminant is the number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum GroupKind {
    /// Executes all buckets, each on a copy of the packet.
    #[default]
    All = 0,
    /// Executes one bucket, selected for the packet's flow by weight.
    Select = 1,
    /// Has a single bucket, and executes it.
    Indirect = 2,
    /// Executes the first live bucket.
    FastFailover = 3,
}

impl GroupKind {
    /// Returns the type with this number.
    pub fn from_wire(n: u8) -> Option<Self> {
        [Self::All, Self::Select, Self::Indirect, Self::FastFailover].into_iter().find(|k| *k as u8 == n)
    }

    /// The name in text.
    pub fn name(self) -> &'static str {
        ["all", "select", "indirect", "ff"][self as usize]
    }

    /// The weight of a bucket without an explicit one.
    pub fn default_weight(self) -> u16 {
        u16::from(self == Self::Select)
    }
}

/// A list of actions of a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bucket {
    /// Its weight in a group of kind [`GroupKind::Select`], where weight 0 is never selected; 0 elsewhere.
    pub weight: u16,
    /// The bucket is live only while this port is, [`PortNo::ANY`] for no such condition.
    pub watch_port: PortNo,
    /// The bucket is live only while this group is, [`GROUP_ANY`] for no such condition.
    pub watch_group: u32,
    /// Its action list.
    pub actions: Arc<[Action]>,
    /// Its id within the group. OpenFlow 1.1 to 1.4 number buckets from 0.
    pub bucket_id: u32,
}

impl Bucket {
    /// Returns a bucket for a group of `kind`, without actions.
    pub fn new(kind: GroupKind) -> Self {
        Self {
            weight: kind.default_weight(),
            watch_port: PortNo::ANY,
            watch_group: GROUP_ANY,
            actions: Arc::new([]),
            bucket_id: BUCKET_ALL,
        }
    }

    /// Returns true if its liveness depends on a port or group.
    pub fn has_liveness(&self) -> bool {
        self.watch_port != PortNo::ANY || self.watch_group != GROUP_ANY
    }
}

/// The selection method of a group of kind [`GroupKind::Select`] (Netronome's extension of OpenFlow 1.5).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct GroupProperties {
    /// `hash` or `dp_hash`; empty to leave the choice to the switch. At most 15 bytes.
    pub selection_method: String,
    /// A parameter of the method.
    pub selection_method_param: u64,
    /// The fields that `hash` covers, in the order of the field table, with masks. Empty, together with `options`, for the
    /// default.
    pub fields: Vec<(Field, u128)>,
    /// The tunnel options that `hash` covers, in the order of their fields: the value of each is a mask.
    pub options: Vec<TunOption>,
}

/// A field or tunnel option that a selection method covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Selected<'a> {
    /// A field and its mask.
    Field(Field, u128),
    /// An option, whose value is a mask.
    Option(&'a TunOption),
}

impl GroupProperties {
    /// Returns fields and options in the order of the field table.
    pub(crate) fn selected(&self) -> impl Iterator<Item = Selected<'_>> {
        let options_at = self.fields.partition_point(|(field, _)| *field < Field::TunMetadata0);
        let (before, after) = self.fields.split_at(options_at);
        let field = |(field, mask): &(Field, u128)| Selected::Field(*field, *mask);
        let options = self.options.iter().map(Selected::Option);
        before.iter().map(field).chain(options).chain(after.iter().map(field))
    }

    /// Adds an option, whose value is a mask. Returns false if its field is there already.
    pub(crate) fn select_option(&mut self, option: TunOption) -> bool {
        match self.options.binary_search_by_key(&option.field(), TunOption::field) {
            Ok(_) => false,
            Err(at) => {
                self.options.insert(at, option);
                true
            }
        }
    }
}

/// A group mod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMod {
    /// The command.
    pub command: GroupCommand,
    /// The group's type; ignored by commands that do not make a group.
    pub kind: GroupKind,
    /// The group; [`GROUP_ALL`] to delete all.
    pub group_id: u32,
    /// The group's buckets, or the buckets to insert.
    pub buckets: Vec<Bucket>,
    /// The bucket of a command on buckets: an id, [`BUCKET_FIRST`], [`BUCKET_LAST`] or [`BUCKET_ALL`].
    pub command_bucket_id: u32,
    /// The selection method.
    pub properties: GroupProperties,
}

impl GroupMod {
    /// Returns `command` on a group of kind `All` without buckets.
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

/// A group's description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDesc {
    /// Its type.
    pub kind: GroupKind,
    /// Its number.
    pub group_id: u32,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
    /// Its selection method.
    pub properties: GroupProperties,
}

/// The counters of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BucketStats {
    /// Packets; `u64::MAX` if the switch does not know.
    pub packet_count: u64,
    /// Bytes; likewise.
    pub byte_count: u64,
}

/// The counters of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupStats {
    /// Its number.
    pub group_id: u32,
    /// The number of flows and groups that reference it.
    pub ref_count: u32,
    /// Packets; `u64::MAX` if the switch does not know.
    pub packet_count: u64,
    /// Bytes; likewise.
    pub byte_count: u64,
    /// How long it has existed: seconds, `u32::MAX` if unknown (OpenFlow 1.1 and 1.2 do not include it).
    pub duration_sec: u32,
    /// Nanoseconds beside the seconds.
    pub duration_nsec: u32,
    /// The counters of its buckets, in their order.
    pub buckets: Vec<BucketStats>,
}

/// The group features of a switch. Indices: all, select, indirect, fast failover.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupFeatures {
    /// A bit for each group type.
    pub types: u32,
    /// `OFPGFC_*`.
    pub capabilities: u32,
    /// Largest number of groups of each type.
    pub max_groups: [u32; 4],
    /// For each group type, a bit for each action type.
    pub actions: [u32; 4],
}
