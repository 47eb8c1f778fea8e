//! Flow tables: features (OpenFlow 1.3 to 1.5 section 7.3.5.5), statistics and configuration.

mod config;
mod stats;

pub use config::{TableDesc, TableMod, TableProperties, TableReason, TableStatus, Vacancy, table_config};
pub(crate) use stats::{FIELDS11, fields12};
pub use stats::{TableAbilities, TableStats};

use crate::Version::{self, V15};
use crate::error::OfpError;
use crate::nxm::{Dialect, Header, Unknown};
use crate::property::{self, EXPERIMENTER, OTHER_EXPERIMENTER, Property};
use crate::wire::{Reader, Result, Writer};
use flow::{Field, FieldInfo};
use std::sync::LazyLock;

/// A set of match fields.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct FieldSet([u64; 4]);

impl FieldSet {
    /// Adds a field.
    pub fn insert(&mut self, field: Field) {
        self.0[field as usize / 64] |= 1 << (field as usize % 64);
    }

    /// Returns true if the set has the field.
    pub fn contains(&self, field: Field) -> bool {
        self.0[field as usize / 64] & 1 << (field as usize % 64) != 0
    }

    /// Returns the fields in the order in which Open vSwitch lists them.
    pub fn iter(&self) -> impl Iterator<Item = &'static FieldInfo> + '_ {
        static LIST: LazyLock<Vec<&'static FieldInfo>> = LazyLock::new(|| {
            let mut list: Vec<_> = flow::field::FIELDS.iter().collect();
            list.sort_by_key(|f| rank(f.id));
            list
        });
        LIST.iter().copied().filter(|f| self.contains(f.id))
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }
}

/// A field's rank in lists: mostly its position in the field table.
fn rank(field: Field) -> (usize, usize) {
    use Field as F;
    const FIRST: [F; 4] = [F::DpHash, F::RecircId, F::PacketType, F::ConjId];
    const CONNECTION: [F; 11] = [
        F::CtState,
        F::CtZone,
        F::CtMark,
        F::CtLabel,
        F::CtNwProto,
        F::CtNwSrc,
        F::CtNwDst,
        F::CtIpv6Src,
        F::CtIpv6Dst,
        F::CtTpSrc,
        F::CtTpDst,
    ];
    let after = |f: Field| f as usize + 1;
    if let Some(i) = FIRST.iter().position(|f| *f == field) {
        return (0, i);
    }
    match CONNECTION.iter().position(|f| *f == field) {
        Some(i) => (after(F::PktMark), 1 + i),
        None if field == F::NshTtl => (after(F::NshC4), 1),
        None => (after(field), 0),
    }
}

impl FromIterator<Field> for FieldSet {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> Self {
        let mut set = Self::default();
        fields.into_iter().for_each(|f| set.insert(f));
        set
    }
}

impl std::fmt::Debug for FieldSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(|i| i.name)).finish()
    }
}

/// The features of actions: of those in the action set, or of those applied at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ActionFeatures {
    /// A bit for each standard action type of OpenFlow 1.1+.
    pub actions: u32,
    /// Fields that `set_field` may write.
    pub set_fields: FieldSet,
}

/// The features of a table's flows: of ordinary flows or of the table-miss flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowFeatures {
    /// A bit for each standard instruction type.
    pub instructions: u32,
    /// A bit for each table that goto_table may name.
    pub next_tables: [u64; 4],
    /// The features of write_actions.
    pub write: ActionFeatures,
    /// The features of apply_actions.
    pub apply: ActionFeatures,
}

/// A table's features.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableFeatures {
    /// The table.
    pub table_id: u8,
    /// Name, of at most 31 bytes.
    pub name: String,
    /// Bits of the metadata that it can match.
    pub metadata_match: u64,
    /// Bits of the metadata that it can write.
    pub metadata_write: u64,
    /// The command of a request on the tables (`ofp_table_features_command`, OpenFlow 1.5): replace 0, modify 1, enable 2,
    /// disable 3.
    pub command: u8,
    /// Bits of `ofp_table_feature_flag` (OpenFlow 1.5).
    pub flags: u32,
    /// Bits of `ofp_table_config` (OpenFlow 1.1 and 1.2: the action on a table miss); from OpenFlow 1.4 on the bits that can be
    /// set.
    pub config: u32,
    /// Largest number of flows.
    pub max_entries: u32,
    /// True if the message has the properties below, which requests of OpenFlow 1.5 may leave out.
    pub any_properties: bool,
    /// The features of ordinary flows.
    pub nonmiss: FlowFeatures,
    /// The features of the table-miss flow.
    pub miss: FlowFeatures,
    /// Fields that can be matched.
    pub matching: FieldSet,
    /// Among the fields of `matching`, those that can be wildcarded.
    pub wildcard: FieldSet,
    /// Among the fields of `matching`, those that take any mask.
    pub maskable: FieldSet,
}

/// Bytes of a table's features without properties.
const LEN: usize = 64;
const MATCH: u16 = 8;
const WILDCARDS: u16 = 10;
const ALL_TABLES: u8 = 0xff;
/// `OFPTFC_DISABLE`.
const COMMAND_MAX: u8 = 3;
/// The required properties: all those of ordinary flows. (From OpenFlow 1.5 on a request may have no properties at
/// all.)
const REQUIRED: u32 = 0x5555;

impl TableFeatures {
    /// `unknown`: the treatment of unknown properties.
    pub(crate) fn decode(version: Version, unknown: Unknown, r: &mut Reader<'_>) -> Result<Self> {
        let len = usize::from(r.u16()?);
        let mut r = r
            .sub(len.checked_sub(2).filter(|_| len >= LEN).ok_or(OfpError::BpcBadLen)?)
            .map_err(|_| OfpError::BpcBadLen)?;
        let (table_id, command) = (r.u8()?, r.u8()?);
        if version >= V15 && command > COMMAND_MAX {
            return Err(OfpError::TffcBadCommand);
        }
        if table_id == ALL_TABLES {
            return Err(OfpError::TffcBadTable);
        }
        let flags = r.u32()?;
        let (command, flags) = if version >= V15 { (command, flags) } else { (0, 0) };
        // The last byte is the end of the name, whatever it is.
        let name = r.string(31)?;
        r.skip(1)?;
        let [metadata_match, metadata_write] = [r.u64()?, r.u64()?];
        let (config, max_entries) = (r.u32()?, r.u32()?);
        let features = Self { table_id, name, metadata_match, metadata_write, config, max_entries, ..Self::default() };
        let mut t = Self { command, flags, ..features };
        let mut seen = 0u32;
        property::each(&mut r, |p| {
            let bit = 1u32.checked_shl(p.ty.into()).unwrap_or(0);
            // Each property may appear once.
            if seen & bit != 0 {
                return Err(OfpError::TffcBadFeatures);
            }
            seen |= bit;
            t.decode_property(p, unknown)
        })?;
        if (version < V15 || seen != 0) && seen & REQUIRED != REQUIRED {
            return Err(OfpError::TffcBadFeatures);
        }
        t.any_properties = seen != 0;
        t.complete(seen);
        // A field that accepts masks can be wildcarded; a field that cannot be matched cannot be wildcarded either.
        t.wildcard =
            t.matching.iter().map(|f| f.id).filter(|f| t.maskable.contains(*f) || t.wildcard.contains(*f)).collect();
        Ok(t)
    }

    /// Copies the features of ordinary flows to those of the table-miss flow that are missing.
    fn complete(&mut self, seen: u32) {
        let missing = |ty: u32| seen & 1 << ty == 0;
        if missing(1) {
            self.miss.instructions = self.nonmiss.instructions;
        }
        if missing(3) {
            self.miss.next_tables = self.nonmiss.next_tables;
        }
        if missing(5) {
            self.miss.write.actions = self.nonmiss.write.actions;
        }
        if missing(7) {
            self.miss.apply.actions = self.nonmiss.apply.actions;
        }
        if missing(13) {
            self.miss.write.set_fields = self.nonmiss.write.set_fields;
        }
        if missing(15) {
            self.miss.apply.set_fields = self.nonmiss.apply.set_fields;
        }
    }

    fn decode_property(&mut self, property: Property<'_>, unknown: Unknown) -> Result<()> {
        let (ty, body) = (property.ty, &mut property.value.clone());
        match ty {
            MATCH => (self.matching, self.maskable) = read_fields(body, true, unknown)?,
            WILDCARDS => self.wildcard = read_fields(body, false, unknown)?.0,
            // Odd numbers are those of the table-miss flow.
            0..=7 | 12..=15 => {
                let flows = if ty & 1 == 0 { &mut self.nonmiss } else { &mut self.miss };
                match ty & !1 {
                    0 => flows.instructions = read_types(body)?,
                    2 => {
                        for t in body.rest() {
                            // No table has this number.
                            if *t == ALL_TABLES {
                                return Err(OfpError::BpcBadValue);
                            }
                            flows.next_tables[usize::from(t / 64)] |= 1 << (t % 64);
                        }
                    }
                    4 => flows.write.actions = read_types(body)?,
                    6 => flows.apply.actions = read_types(body)?,
                    12 => flows.write.set_fields = read_fields(body, false, unknown)?.0,
                    _ => flows.apply.set_fields = read_fields(body, false, unknown)?.0,
                }
            }
            // Like Open vSwitch, does not read the experimenter of the second type.
            OTHER_EXPERIMENTER | EXPERIMENTER => {}
            _ => property.unknown(unknown)?,
        }
        Ok(())
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        let start = out.len();
        out.put_u16(0);
        out.put_u8(self.table_id);
        let (command, flags) = if version >= V15 { (self.command, self.flags) } else { (0, 0) };
        out.put_u8(command);
        out.put_u32(flags);
        out.put_str(&self.name, 32);
        out.put_u64(self.metadata_match);
        out.put_u64(self.metadata_write);
        out.put_u32(self.config);
        out.put_u32(self.max_entries);
        if !self.any_properties {
            out.set_len16(start, start);
            return;
        }
        let none = FieldSet::default();
        for (odd, f) in [(0, &self.nonmiss), (1, &self.miss)] {
            property::put(out, odd, |out| put_types(out, f.instructions));
            property::put(out, 2 + odd, |out| {
                for t in 0..=254u8 {
                    if f.next_tables[usize::from(t / 64)] & 1 << (t % 64) != 0 {
                        out.put_u8(t);
                    }
                }
            });
            property::put(out, 4 + odd, |out| put_types(out, f.write.actions));
            property::put(out, 12 + odd, |out| put_fields(out, &f.write.set_fields, &none, version));
            property::put(out, 6 + odd, |out| put_types(out, f.apply.actions));
            property::put(out, 14 + odd, |out| put_fields(out, &f.apply.set_fields, &none, version));
        }
        property::put(out, MATCH, |out| put_fields(out, &self.matching, &self.maskable, version));
        property::put(out, WILDCARDS, |out| put_fields(out, &self.wildcard, &none, version));
        out.set_len16(start, start);
    }
}

/// Reads a list of instruction or action headers, type and length, and returns the types.
fn read_types(r: &mut Reader<'_>) -> Result<u32> {
    let mut bits = 0;
    while !r.is_empty() {
        let short = |_| OfpError::BpcBadLen;
        let (ty, len) = (r.u16().map_err(short)?, usize::from(r.u16().map_err(short)?));
        len.checked_sub(4).and_then(|n| r.skip(n).ok()).ok_or(OfpError::BpcBadLen)?;
        bits |= 1u32.checked_shl(ty.into()).unwrap_or(0);
    }
    Ok(bits)
}

/// Appends a list of headers of four bytes each.
fn put_types(out: &mut Writer, bits: u32) {
    for ty in 0..32u16 {
        if bits & 1 << ty != 0 {
            out.put_u16(ty);
            out.put_u16(4);
        }
    }
}

/// Reads a list of OXM headers, which may have the mask bit. Returns all fields, and those with the bit.
fn read_fields(r: &mut Reader<'_>, masks: bool, unknown: Unknown) -> Result<(FieldSet, FieldSet)> {
    let (mut set, mut masked) = (FieldSet::default(), FieldSet::default());
    let mut entries = Reader::new(r.rest());
    while !entries.is_empty() {
        let header = Header::decode(&mut entries)?;
        match header.field() {
            Some(field) => {
                set.insert(field);
                if header.has_mask {
                    masked.insert(field);
                }
            }
            None if unknown == Unknown::Refuse => return Err(OfpError::BmcBadField),
            None => {}
        }
    }
    // As in Open vSwitch, errors in later headers come first, and masks of unknown fields are skipped with them.
    if masks || masked.is_empty() { Ok((set, masked)) } else { Err(OfpError::BmcBadMask) }
}

/// Appends the headers of fields, with the mask bit for those that are `maskable`.
fn put_fields(out: &mut Writer, set: &FieldSet, maskable: &FieldSet, version: Version) {
    for info in set.iter() {
        if let Some(header) = Header::of(info.id, maskable.contains(info.id), Dialect::Oxm(version)) {
            header.encode(out);
        }
    }
}
