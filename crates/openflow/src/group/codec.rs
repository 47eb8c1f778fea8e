//! Groups as bytes: the two forms of group mods and descriptions, counters, and features.

use super::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, BUCKET_MAX, Bucket, BucketStats, GroupCommand, GroupDesc, GroupFeatures,
    GroupKind, GroupMod, GroupProperties, GroupStats, Selected,
};
use crate::action::Action;
use crate::action::check::check_ports;
use crate::body::{put_actions, read_actions};
use crate::error::OfpError;
use crate::message::Form;
use crate::nxm::{self, Dialect, Entry, Unknown};
use crate::property;
use crate::version::Version;
use crate::wire::{Reader, Result, Writer};
use base::PortNo;
use std::collections::HashSet;
use std::sync::Arc;
use vlog::{RateLimit, warn_rl};

/// Netronome's experimenter id, and the number of its group property.
const NTR: u32 = 0x154d;
/// The id that some senders use for the same property.
const NTR_COMPATIBLE: u32 = 0x1540;
const NTR_SELECTION_METHOD: u32 = 1;
/// Bytes of a selection method's name, with the terminating zero.
const METHOD_LEN: usize = 16;

const WEIGHT: u16 = 0;
const WATCH_PORT: u16 = 1;
const WATCH_GROUP: u16 = 2;

/// Returns true if groups have the form of OpenFlow 1.5 in messages of `version`. (In OpenFlow 1.0 they are Nicira's.)
fn is_extended(version: Version) -> bool {
    version == Version::V10 || version >= Version::V15
}

impl GroupMod {
    /// Reads a group mod in the form of `version`.
    ///
    /// Errors: `OFPGMFC_BAD_TYPE`, `OFPGMFC_BAD_COMMAND`, `OFPGMFC_BAD_BUCKET`, `OFPGMFC_BAD_WATCH`,
    /// `OFPGMFC_INVALID_GROUP`, `OFPGMFC_WATCH_UNSUPPORTED`, those of properties and of actions.
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        // The form of OpenFlow 1.1 comes in units of 8 bytes.
        if !r.len().is_multiple_of(8) {
            return Err(OfpError::BrcBadLen);
        }
        let (command, kind) = (r.u16()?, r.u8()?);
        r.skip(1)?;
        let group_id = r.u32()?;
        let known_kind = GroupKind::from_wire(kind).unwrap_or_default();
        let mut gm = Self::new(GroupCommand::from_wire(command).unwrap_or(GroupCommand::Add), group_id);
        gm.kind = known_kind;
        if is_extended(version) {
            let buckets_len = usize::from(r.u16()?);
            r.skip(2)?;
            gm.command_bucket_id = r.u32()?;
            check_command_bucket(command, gm.command_bucket_id)?;
            let mut buckets = r.sub(buckets_len)?;
            gm.buckets = read_extended_buckets(version, known_kind, &mut buckets)?;
            gm.properties = GroupProperties::decode(r, GroupKind::from_wire(kind), GroupCommand::from_wire(command))?;
        } else {
            gm.buckets = read_buckets(version, r)?;
            if version >= Version::V13 && gm.command == GroupCommand::Delete && !gm.buckets.is_empty() {
                return Err(OfpError::GmfcInvalidGroup);
            }
        }
        if GroupKind::from_wire(kind).is_none() {
            return Err(OfpError::GmfcBadType);
        }
        if gm.kind == GroupKind::Indirect && gm.command != GroupCommand::Delete && gm.buckets.len() != 1 {
            return Err(OfpError::GmfcInvalidGroup);
        }
        if GroupCommand::from_wire(command).is_none() {
            return Err(OfpError::GmfcBadCommand);
        }
        gm.check()?;
        Ok(gm)
    }

    /// Checks the buckets against the group's type.
    ///
    /// Errors: `OFPGMFC_INVALID_GROUP`, `OFPGMFC_BAD_BUCKET`, `OFPGMFC_WATCH_UNSUPPORTED`.
    fn check(&self) -> Result<()> {
        if self.command == GroupCommand::RemoveBucket && !self.buckets.is_empty() {
            return Err(OfpError::GmfcBadBucket);
        }
        // A command that inserts buckets does not know the group's type.
        let inserts = self.command == GroupCommand::InsertBucket;
        self.buckets.iter().try_for_each(|bucket| match self.kind {
            GroupKind::Select => Ok(()),
            _ if bucket.weight != 0 && !inserts => Err(OfpError::GmfcInvalidGroup),
            GroupKind::FastFailover if !bucket.has_liveness() => Err(OfpError::GmfcInvalidGroup),
            GroupKind::All | GroupKind::Indirect if bucket.has_liveness() => Err(OfpError::GmfcWatchUnsupported),
            _ => Ok(()),
        })
    }

    /// The form in which `version` has the message: Nicira's in OpenFlow 1.0. `None` from OpenFlow 1.1 to 1.4 for commands on
    /// certain buckets, which those versions cannot name.
    pub(crate) fn form(&self, version: Version) -> Option<Form> {
        match version {
            Version::V10 => Some(Form::Nicira),
            _ if version < Version::V15 && self.command_bucket_id != BUCKET_ALL => None,
            _ => Some(Form::Standard),
        }
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        out.put_u16(self.command as u16);
        out.put_u8(self.kind as u8);
        out.put_u8(0);
        out.put_u32(self.group_id);
        if !is_extended(version) {
            self.buckets.iter().for_each(|b| put_bucket(b, version, out));
            return;
        }
        let len_at = out.len();
        out.put_u16(0);
        out.zeros(2);
        out.put_u32(self.command_bucket_id);
        let start = out.len();
        self.buckets.iter().for_each(|b| put_extended_bucket(b, self.kind, version, out));
        out.set_len16(len_at, start);
        self.properties.encode(version, out);
    }
}

/// Checks the bucket id of a command.
fn check_command_bucket(command: u16, id: u32) -> Result<()> {
    let ok = match GroupCommand::from_wire(command) {
        Some(GroupCommand::RemoveBucket) => id <= BUCKET_MAX || id >= BUCKET_FIRST,
        Some(GroupCommand::InsertBucket) => id <= BUCKET_MAX || id == BUCKET_FIRST || id == BUCKET_LAST,
        _ => id == BUCKET_ALL,
    };
    if ok { Ok(()) } else { Err(OfpError::GmfcBadBucket) }
}

// ---- buckets ----

/// Reads a bucket's bytes after its length.
fn bucket_body<'a>(r: &mut Reader<'a>, head_len: usize) -> Result<Reader<'a>> {
    let bad = |_| OfpError::GmfcBadBucket;
    let len = usize::from(r.clone().u16().map_err(bad)?);
    if len < head_len {
        return Err(OfpError::GmfcBadBucket);
    }
    let mut body = r.sub(len).map_err(bad)?;
    body.skip(2).map_err(bad)?;
    Ok(body)
}

fn bucket_actions(version: Version, r: &mut Reader<'_>) -> Result<Arc<[Action]>> {
    let actions = read_actions(version, r)?;
    check_ports(&actions)?;
    Ok(actions.into())
}

fn watched_port(n: u32) -> Result<PortNo> {
    PortNo::from_of11(n).ok_or(OfpError::GmfcBadWatch)
}

/// Reads buckets of OpenFlow 1.1 to 1.4, to the end of `r`.
fn read_buckets(version: Version, r: &mut Reader<'_>) -> Result<Vec<Bucket>> {
    let mut buckets = Vec::new();
    while !r.is_empty() {
        let mut body = bucket_body(r, 16)?;
        let (weight, watch_port, watch_group) = (body.u16()?, body.u32()?, body.u32()?);
        body.skip(4)?;
        let actions = bucket_actions(version, &mut body)?;
        let bucket_id = buckets.len() as u32;
        buckets.push(Bucket { weight, watch_port: watched_port(watch_port)?, watch_group, actions, bucket_id });
    }
    Ok(buckets)
}

fn put_bucket(bucket: &Bucket, version: Version, out: &mut Writer) {
    let start = out.len();
    out.put_u16(0);
    out.put_u16(bucket.weight);
    out.put_u32(bucket.watch_port.0);
    out.put_u32(bucket.watch_group);
    out.zeros(4);
    put_actions(out, version, &bucket.actions);
    out.set_len16(start, start);
}

/// Reads buckets of OpenFlow 1.5, to the end of `r`.
fn read_extended_buckets(version: Version, kind: GroupKind, r: &mut Reader<'_>) -> Result<Vec<Bucket>> {
    let mut buckets = Vec::new();
    while !r.is_empty() {
        let mut body = bucket_body(r, 8)?;
        let actions_len = usize::from(body.u16()?);
        let mut bucket = Bucket { bucket_id: body.u32()?, ..Bucket::new(kind) };
        let mut watch_port = bucket.watch_port.0;
        let mut actions = body.sub(actions_len).map_err(|_| OfpError::GmfcBadBucket)?;
        bucket.actions = bucket_actions(version, &mut actions)?;
        property::each(&mut body, |p| {
            match p.ty {
                WEIGHT => bucket.weight = p.u16()?,
                WATCH_PORT => watch_port = p.u32()?,
                WATCH_GROUP => bucket.watch_group = p.u32()?,
                _ => p.unknown(Unknown::Refuse)?,
            }
            Ok(())
        })?;
        bucket.watch_port = watched_port(watch_port)?;
        if bucket.bucket_id > BUCKET_MAX {
            return Err(OfpError::GmfcBadBucket);
        }
        buckets.push(bucket);
    }
    // An error within a bucket counts before an identifier that two buckets share.
    let mut ids = HashSet::new();
    let distinct = buckets.iter().all(|b| ids.insert(b.bucket_id));
    if distinct { Ok(buckets) } else { Err(OfpError::GmfcBadBucket) }
}

fn put_extended_bucket(bucket: &Bucket, kind: GroupKind, version: Version, out: &mut Writer) {
    let start = out.len();
    out.zeros(4);
    out.put_u32(bucket.bucket_id);
    let actions = out.len();
    put_actions(out, version, &bucket.actions);
    out.set_len16(start + 2, actions);
    if kind == GroupKind::Select || bucket.weight != 0 {
        property::put_u16(out, WEIGHT, bucket.weight);
    }
    if bucket.watch_port != PortNo::ANY {
        property::put_u32(out, WATCH_PORT, bucket.watch_port.0);
    }
    if bucket.watch_group != super::GROUP_ANY {
        property::put_u32(out, WATCH_GROUP, bucket.watch_group);
    }
    out.set_len16(start, start);
}

// ---- properties ----

impl GroupProperties {
    /// Reads the properties of `command` for a group of `kind`, each `None` if it is unknown, to the end of `r`. Only
    /// commands that make or change a group as a whole have a selection method.
    fn decode(r: &mut Reader<'_>, kind: Option<GroupKind>, command: Option<GroupCommand>) -> Result<Self> {
        let mut properties = Self::default();
        property::each(r, |mut p| {
            if !matches!(p.experimenter, Some((NTR | NTR_COMPATIBLE, NTR_SELECTION_METHOD))) {
                return p.unknown(Unknown::Refuse);
            }
            match kind {
                Some(GroupKind::Select) => {}
                Some(_) => return refuse("property is only allowed for select groups"),
                None => return Err(OfpError::GmfcBadType),
            }
            let command = command.ok_or(OfpError::GmfcBadCommand)?;
            if command == GroupCommand::Delete || command.is_of_buckets() {
                return refuse("property is only allowed for add and delete group modifications");
            }
            properties = Self::decode_method(&mut p.value)?;
            Ok(())
        })?;
        Ok(properties)
    }

    fn decode_method(r: &mut Reader<'_>) -> Result<Self> {
        let bad = |_| OfpError::BpcBadLen;
        r.skip(4).map_err(bad)?;
        let name = r.bytes(METHOD_LEN).map_err(bad)?;
        let selection_method_param = r.u64().map_err(bad)?;
        let end = name.iter().position(|b| *b == 0).unwrap_or(METHOD_LEN);
        if end == METHOD_LEN {
            return refuse("is not null terminated");
        }
        let method = match &name[..end] {
            b"hash" => "hash",
            b"dp_hash" => "dp_hash",
            name => return refuse(&format!("'{}' is not supported", String::from_utf8_lossy(name))),
        };
        if method != "hash" && !r.is_empty() {
            return refuse(&format!("{method} does not support fields"));
        }
        let mut properties = Self { selection_method: method.to_owned(), selection_method_param, ..Self::default() };
        let mut entries = Reader::new(r.rest());
        while !entries.is_empty() {
            let header = nxm::Header::decode(&mut entries.clone())?;
            let entry = nxm::decode_entry(&mut entries)?;
            if header.has_mask {
                return Err(OfpError::BmcBadMask);
            }
            let (field, value) = match entry {
                Entry::Field { field, value, .. } => (field, value),
                Entry::Option(option) => {
                    if !properties.select_option(option) {
                        return Err(OfpError::BmcDupField);
                    }
                    continue;
                }
                Entry::Cookie(_) | Entry::Unknown(_) => return Err(OfpError::BmcBadField),
            };
            // The place of the value holds a mask.
            let mask = value & field.info().full_mask();
            if mask == 0 || !nxm::mask_is_valid(field, value) {
                return Err(OfpError::BmcBadMask);
            }
            if properties.fields.iter().any(|(f, _)| *f == field) {
                return Err(OfpError::BmcDupField);
            }
            properties.fields.push((field, mask));
        }
        properties.fields.sort_by_key(|(field, _)| *field as usize);
        Ok(properties)
    }

    fn encode(&self, version: Version, out: &mut Writer) {
        if self.selection_method.is_empty() {
            return;
        }
        property::put_experimenter(out, NTR, NTR_SELECTION_METHOD, |out| {
            out.zeros(4);
            out.put_str(&self.selection_method, METHOD_LEN);
            out.put_u64(self.selection_method_param);
            for selected in self.selected() {
                match selected {
                    Selected::Field(field, mask) => {
                        let wire = ones(field.info().wire_bytes());
                        let whole = mask == field.info().full_mask();
                        nxm::put_entry_as(out, field, if whole { wire } else { mask }, None, Dialect::of(version));
                    }
                    Selected::Option(option) => nxm::put_option(out, option, 0),
                }
            }
        });
    }
}

/// The error for a selection method that a group cannot have, after a message that says what is wrong with it.
fn refuse<T>(what: &str) -> Result<T> {
    static LIMIT: RateLimit = RateLimit::new(1, 5);
    warn_rl!(&LIMIT, target: "ofp_group", "ntr selection method {what}");
    Err(OfpError::BpcBadValue)
}

/// All bits of `n` bytes.
fn ones(n: usize) -> u128 {
    if n >= 16 { u128::MAX } else { (1 << (8 * n)) - 1 }
}

// ---- answers ----

impl GroupDesc {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let bad = |_| OfpError::BrcBadLen;
        let extended = is_extended(version);
        let len = usize::from(r.clone().u16()?);
        if len < if extended { 16 } else { 8 } {
            return Err(OfpError::BrcBadLen);
        }
        let mut body = r.sub(len).map_err(bad)?;
        body.skip(2)?;
        let kind = body.u8()?;
        body.skip(1)?;
        let group_id = body.u32()?;
        let kind = GroupKind::from_wire(kind).ok_or(OfpError::GmfcBadType)?;
        let mut desc = Self { kind, group_id, buckets: Vec::new(), properties: GroupProperties::default() };
        if extended {
            let buckets_len = usize::from(body.u16()?);
            body.skip(6)?;
            let mut buckets = body.sub(buckets_len).map_err(bad)?;
            desc.buckets = read_extended_buckets(version, kind, &mut buckets)?;
            desc.properties = GroupProperties::decode(&mut body, Some(kind), Some(GroupCommand::Add))?;
        } else {
            desc.buckets = read_buckets(version, &mut body)?;
        }
        Ok(desc)
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        let start = out.len();
        out.put_u16(0);
        out.put_u8(self.kind as u8);
        out.put_u8(0);
        out.put_u32(self.group_id);
        if is_extended(version) {
            out.zeros(8);
            let buckets = out.len();
            self.buckets.iter().for_each(|b| put_extended_bucket(b, self.kind, version, out));
            out.set_len16(start + 8, buckets);
            self.properties.encode(version, out);
        } else {
            self.buckets.iter().for_each(|b| put_bucket(b, version, out));
        }
        out.set_len16(start, start);
    }
}

/// Returns true if group counters include the group's duration.
fn has_duration(version: Version) -> bool {
    !matches!(version, Version::V11 | Version::V12)
}

impl GroupStats {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let len = usize::from(r.clone().u16()?);
        let head_len = if has_duration(version) { 40 } else { 32 };
        if len < head_len {
            return Err(OfpError::BrcBadLen);
        }
        // The length only counts the buckets: bytes after the last whole one begin the next entry.
        let n_buckets = (len - head_len) / 16;
        let mut body = r.sub(head_len + 16 * n_buckets)?;
        body.skip(4)?;
        let (group_id, ref_count) = (body.u32()?, body.u32()?);
        body.skip(4)?;
        let (packet_count, byte_count) = (body.u64()?, body.u64()?);
        let (duration_sec, duration_nsec) =
            if has_duration(version) { (body.u32()?, body.u32()?) } else { (u32::MAX, u32::MAX) };
        let mut buckets = Vec::new();
        for _ in 0..n_buckets {
            buckets.push(BucketStats { packet_count: body.u64()?, byte_count: body.u64()? });
        }
        Ok(Self { group_id, ref_count, packet_count, byte_count, duration_sec, duration_nsec, buckets })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        let start = out.len();
        out.zeros(4);
        out.put_u32(self.group_id);
        out.put_u32(self.ref_count);
        out.zeros(4);
        out.put_u64(self.packet_count);
        out.put_u64(self.byte_count);
        if has_duration(version) {
            out.put_u32(self.duration_sec);
            out.put_u32(self.duration_nsec);
        }
        for bucket in &self.buckets {
            out.put_u64(bucket.packet_count);
            out.put_u64(bucket.byte_count);
        }
        out.set_len16(start, start);
    }
}

impl GroupFeatures {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (types, capabilities) = (r.u32()?, r.u32()?);
        let mut four = || -> Result<[u32; 4]> { Ok([r.u32()?, r.u32()?, r.u32()?, r.u32()?]) };
        let (max_groups, actions) = (four()?, four()?);
        r.finish()?;
        Ok(Self { types, capabilities, max_groups, actions })
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.put_u32(self.types);
        out.put_u32(self.capabilities);
        for n in self.max_groups.into_iter().chain(self.actions) {
            out.put_u32(n);
        }
    }
}
