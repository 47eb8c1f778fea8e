//! Flow tables: statistics and features (OpenFlow 1.0 section 5.3.5, 1.3 sections 7.3.5.4 and 7.3.5.5).

use crate::Version::{self, V10, V15};
use crate::bytes;
use crate::error::OfpError;
use crate::nxm::{Dialect, Header, Unknown};
use crate::property::{self, Property};
use crate::wire::{Put, Reader, Result, patch_len};
use flow::{Field, FieldInfo};

/// A table's counters.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as the specification names them")]
pub struct TableStats {
    pub table_id: u8,
    /// Of at most 31 bytes; OpenFlow 1.0 to 1.2 only (later with the features).
    pub name: String,
    /// Wildcards that it supports, as OpenFlow 1.0 has them.
    pub wildcards: u32,
    /// OpenFlow 1.0 to 1.2 only.
    pub max_entries: u32,
    pub active_count: u32,
    pub lookup_count: u64,
    pub matched_count: u64,
}

impl TableStats {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let table_id = r.u8()?;
        r.skip(3)?;
        let (name, wildcards, max_entries) =
            if version == V10 { (r.string(32)?, r.u32()?, r.u32()?) } else { (String::new(), 0, 0) };
        let (active_count, lookup_count, matched_count) = (r.u32()?, r.u64()?, r.u64()?);
        Ok(Self { table_id, name, wildcards, max_entries, active_count, lookup_count, matched_count })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) {
        out.put_u8(self.table_id);
        out.zeros(3);
        if version == V10 {
            out.put_str(&self.name, 32);
            out.put_u32(self.wildcards);
            out.put_u32(self.max_entries);
        }
        out.put_u32(self.active_count);
        out.put_u64(self.lookup_count);
        out.put_u64(self.matched_count);
    }
}

/// A change to a table's configuration (OpenFlow 1.1 to 1.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableMod {
    /// Which table; 0xff for all.
    pub table_id: u8,
    /// Bits of `ofp_table_config` (OpenFlow 1.1 and 1.2: what a miss does; 1.3: nothing is left).
    pub config: u32,
}

impl TableMod {
    pub(crate) fn decode(_version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let table_id = r.u8()?;
        r.skip(3)?;
        Ok(Self { table_id, config: r.u32()? })
    }

    pub(crate) fn encode(self, _version: Version, out: &mut Vec<u8>) {
        out.put_u8(self.table_id);
        out.zeros(3);
        out.put_u32(self.config);
    }
}

/// A set of match fields.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct FieldSet([u64; 4]);

impl FieldSet {
    /// Adds a field.
    pub fn insert(&mut self, field: Field) {
        self.0[field as usize / 64] |= 1 << (field as usize % 64);
    }

    /// Whether the field is in.
    pub fn contains(&self, field: Field) -> bool {
        self.0[field as usize / 64] & 1 << (field as usize % 64) != 0
    }

    /// The fields, in the order of the field table.
    pub fn iter(&self) -> impl Iterator<Item = &'static FieldInfo> + '_ {
        flow::field::FIELDS.iter().filter(|f| self.contains(f.id))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
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

/// What actions may do: in the action set, or right away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ActionFeatures {
    /// A bit for each standard action type of OpenFlow 1.1+.
    pub actions: u32,
    /// Fields that `set_field` may write.
    pub set_fields: FieldSet,
}

/// What the flows of a table may do; of ordinary flows or of the table-miss flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowFeatures {
    /// A bit for each standard instruction type.
    pub instructions: u32,
    /// Tables that goto_table may name, a bit each.
    pub next_tables: [u64; 4],
    /// Of write_actions.
    pub write: ActionFeatures,
    /// Of apply_actions.
    pub apply: ActionFeatures,
}

/// A table's features.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableFeatures {
    /// Which table.
    pub table_id: u8,
    /// Name, of at most 31 bytes.
    pub name: String,
    /// Bits of the metadata that it can match.
    pub metadata_match: u64,
    /// Bits of the metadata that it can write.
    pub metadata_write: u64,
    /// Bits of `ofp_table_config`.
    pub config: u32,
    /// Largest number of flows.
    pub max_entries: u32,
    /// Of ordinary flows.
    pub nonmiss: FlowFeatures,
    /// Of the table-miss flow.
    pub miss: FlowFeatures,
    /// Fields that can be matched.
    pub matching: FieldSet,
    /// Of those, the fields that need not be.
    pub wildcard: FieldSet,
}

const MATCH: u16 = 8;
const WILDCARDS: u16 = 10;

impl TableFeatures {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let len = usize::from(r.u16()?);
        let mut r = r.sub(len.checked_sub(2).ok_or(OfpError::BrcBadLen)?)?;
        let table_id = r.u8()?;
        if version >= V15 {
            r.skip(1)?;
            r.skip(4)?;
        } else {
            r.skip(5)?;
        }
        let name = r.string(32)?;
        let [metadata_match, metadata_write] = [r.u64()?, r.u64()?];
        let (config, max_entries) = (r.u32()?, r.u32()?);
        let mut t = Self { table_id, name, metadata_match, metadata_write, config, max_entries, ..Self::default() };
        property::each(&mut r, |p| t.decode_property(p))?;
        Ok(t)
    }

    fn decode_property(&mut self, property: Property<'_>) -> Result<()> {
        let (ty, body) = (property.ty, &mut property.value.clone());
        match ty {
            MATCH => self.matching = read_fields(body)?,
            WILDCARDS => self.wildcard = read_fields(body)?,
            // Odd numbers are of the table-miss flow.
            0..=7 | 12..=15 => {
                let flows = if ty & 1 == 0 { &mut self.nonmiss } else { &mut self.miss };
                match ty & !1 {
                    0 => flows.instructions = read_types(body)?,
                    2 => {
                        for t in body.rest() {
                            flows.next_tables[usize::from(t / 64)] |= 1 << (t % 64);
                        }
                    }
                    4 => flows.write.actions = read_types(body)?,
                    6 => flows.apply.actions = read_types(body)?,
                    12 => flows.write.set_fields = read_fields(body)?,
                    _ => flows.apply.set_fields = read_fields(body)?,
                }
            }
            0xfffe | 0xffff => {}
            _ => property.unknown(Unknown::Refuse)?,
        }
        Ok(())
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(0);
        out.put_u8(self.table_id);
        out.zeros(5);
        out.put_str(&self.name, 32);
        out.put_u64(self.metadata_match);
        out.put_u64(self.metadata_write);
        out.put_u32(self.config);
        out.put_u32(self.max_entries);
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
            property::put(out, 6 + odd, |out| put_types(out, f.apply.actions));
            property::put(out, 12 + odd, |out| put_fields(out, &f.write.set_fields, false, version));
            property::put(out, 14 + odd, |out| put_fields(out, &f.apply.set_fields, false, version));
        }
        property::put(out, MATCH, |out| put_fields(out, &self.matching, true, version));
        property::put(out, WILDCARDS, |out| put_fields(out, &self.wildcard, false, version));
        patch_len(out, start, 0);
    }
}

/// A list of instruction or action headers: type and length, of which only the types matter.
fn read_types(r: &mut Reader<'_>) -> Result<u32> {
    let mut bits = 0;
    while !r.is_empty() {
        let (ty, len) = (r.u16()?, usize::from(r.u16()?));
        r.skip(len.checked_sub(4).ok_or(OfpError::BpcBadLen)?)?;
        bits |= 1u32.checked_shl(ty.into()).unwrap_or(0);
    }
    Ok(bits)
}

/// The list is of headers only, of four bytes each.
fn put_types(out: &mut Vec<u8>, bits: u32) {
    for ty in 0..32u16 {
        if bits & 1 << ty != 0 {
            out.put_u16(ty);
            out.put_u16(4);
        }
    }
}

/// A list of OXM headers. Those that are unknown are passed over.
fn read_fields(r: &mut Reader<'_>) -> Result<FieldSet> {
    let mut set = FieldSet::default();
    let mut entries = bytes::Reader(r.rest());
    while !entries.is_empty() {
        let header = Header::decode(&mut entries).map_err(|_| OfpError::BpcBadLen)?;
        if let Some(field) = header.field() {
            set.insert(field);
        }
    }
    Ok(set)
}

fn put_fields(out: &mut Vec<u8>, set: &FieldSet, masks: bool, version: Version) {
    for info in set.iter() {
        let mask = masks && info.maskable == flow::Maskable::Full;
        if let Some(header) = Header::of(info.id, mask, Dialect::Oxm(version)) {
            header.encode(out);
        }
    }
}
