//! Table counters (OpenFlow 1.0 section 5.3.5, 1.1 section A.3.5, 1.2 section A.3.5.4, 1.3 section 7.3.5.4).

use super::{FieldSet, TableFeatures};
use crate::Version::{self, V10, V11, V12};
use crate::nxm::{Dialect, Header};
use crate::wire::{Reader, Result, Writer};
use flow::{Field, FieldInfo};

/// A table's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "named as the specification names them")]
pub struct TableStats {
    pub table_id: u8,
    /// Name, at most 31 bytes; OpenFlow 1.0 to 1.2 only (later part of the features).
    pub name: String,
    /// Wildcards that the table supports, in the form of OpenFlow 1.0.
    pub wildcards: u32,
    /// OpenFlow 1.0 to 1.2 only.
    pub max_entries: u32,
    pub active_count: u32,
    pub lookup_count: u64,
    pub matched_count: u64,
    /// The table's abilities, which OpenFlow 1.1 and 1.2 have instead of table features.
    pub abilities: Option<Box<TableAbilities>>,
}

/// A table's abilities, which OpenFlow 1.1 and 1.2 include in its counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableAbilities {
    /// Fields that can be matched: OpenFlow 1.1 numbers them as in `ofp_flow_match_fields`, 1.2 as in OXM.
    pub matching: u64,
    /// Among these, the fields that can be wildcarded.
    pub wildcards: u64,
    /// A bit for each instruction type.
    pub instructions: u32,
    /// A bit for each action type that write_actions accepts.
    pub write_actions: u32,
    /// A bit for each action type that apply_actions accepts.
    pub apply_actions: u32,
    /// Fields that `set_field` may write in write_actions (OpenFlow 1.2).
    pub write_set_fields: u64,
    /// Fields that `set_field` may write in apply_actions.
    pub apply_set_fields: u64,
    /// Bits of the metadata that can be matched (OpenFlow 1.2).
    pub metadata_match: u64,
    /// Bits of the metadata that can be written.
    pub metadata_write: u64,
    /// `OFPTC_TABLE_MISS_*`: the action on a table miss.
    pub config: u32,
}

impl TableStats {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let mut s = Self { table_id: r.u8()?, ..Self::default() };
        r.skip(if version == V11 || version == V12 { 7 } else { 3 })?;
        if version <= V12 {
            // The last byte is the end of the name, whatever it is.
            s.name = r.string(31)?;
            r.skip(1)?;
        }
        match version {
            V10 => (s.wildcards, s.max_entries) = (r.u32()?, r.u32()?),
            V11 | V12 => {
                s.abilities = Some(Box::new(TableAbilities::decode(version, r)?));
                s.max_entries = r.u32()?;
            }
            _ => {}
        }
        (s.active_count, s.lookup_count, s.matched_count) = (r.u32()?, r.u64()?, r.u64()?);
        Ok(s)
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        out.put_u8(self.table_id);
        out.zeros(if version == V11 || version == V12 { 7 } else { 3 });
        if version <= V12 {
            out.put_str(&self.name, 32);
        }
        match version {
            V10 => out.put_u32(self.wildcards),
            V11 | V12 => self.abilities.as_deref().copied().unwrap_or_default().encode(version, out),
            _ => {}
        }
        if version <= V12 {
            out.put_u32(self.max_entries);
        }
        out.put_u32(self.active_count);
        out.put_u64(self.lookup_count);
        out.put_u64(self.matched_count);
    }
}

/// The class of the fields that OpenFlow itself defines.
const OXM_BASIC: u16 = 0x8000;

/// The match fields of OpenFlow 1.1 by their bits (`ofp_flow_match_fields`).
pub(crate) const FIELDS11: [(u32, &[Field]); 15] = [
    (0, &[Field::InPort]),
    (1, &[Field::VlanVid]),
    (2, &[Field::VlanPcp]),
    (3, &[Field::EthType]),
    (4, &[Field::IpDscpShifted]),
    (5, &[Field::IpProto]),
    (6, &[Field::TcpSrc]),
    (7, &[Field::TcpDst]),
    (8, &[Field::MplsLabel]),
    (9, &[Field::MplsTc]),
    (11, &[Field::EthSrc]),
    (12, &[Field::EthDst]),
    (13, &[Field::Ipv4Src]),
    (14, &[Field::Ipv4Dst]),
    (15, &[Field::Metadata]),
];

/// Fields in the numbering of OXM; OpenFlow 1.2 has 36.
pub(crate) fn fields12() -> impl Iterator<Item = (u32, Field)> {
    let header = |number| Header { class: OXM_BASIC, number, has_mask: false, payload: 0, experimenter: 0 };
    (0..36u8).filter_map(move |number| Some((number.into(), header(number).named_field()?)))
}

impl TableAbilities {
    /// Returns the part of these features that OpenFlow 1.1 or 1.2 can express, without the action on a table miss.
    pub fn of(version: Version, features: &TableFeatures) -> Self {
        let bits = |set: &FieldSet| -> u64 {
            if version == V11 {
                let there = FIELDS11.iter().filter(|(_, fields)| fields.iter().any(|field| set.contains(*field)));
                there.map(|(bit, _)| 1 << bit).sum()
            } else {
                let header = |field: &FieldInfo| Header::of(field.id, false, Dialect::Oxm(version));
                let basic = |header: &Header| header.class == OXM_BASIC && header.number < 64;
                set.iter().filter_map(header).filter(basic).fold(0, |bits, header| bits | 1 << header.number)
            }
        };
        let flows = &features.nonmiss;
        let can_be_set = |set| if version == V11 { 0 } else { bits(set) };
        Self {
            matching: bits(&features.matching),
            // Every field that can be matched can be wildcarded.
            wildcards: bits(&features.matching),
            instructions: flows.instructions,
            write_actions: flows.write.actions,
            apply_actions: flows.apply.actions,
            write_set_fields: can_be_set(&flows.write.set_fields),
            apply_set_fields: can_be_set(&flows.apply.set_fields),
            metadata_match: features.metadata_match,
            metadata_write: features.metadata_write,
            config: 0,
        }
    }

    /// Reads the bytes of OpenFlow 1.1 (section A.3.5) and 1.2 (section A.3.5.4) after the name and before the number of
    /// entries.
    fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let mut a = Self::default();
        if version == V11 {
            (a.wildcards, a.matching, a.instructions) = (r.u32()?.into(), r.u32()?.into(), r.u32()?);
            (a.write_actions, a.apply_actions) = (r.u32()?, r.u32()?);
        } else {
            (a.matching, a.wildcards) = (r.u64()?, r.u64()?);
            (a.write_actions, a.apply_actions) = (r.u32()?, r.u32()?);
            (a.write_set_fields, a.apply_set_fields) = (r.u64()?, r.u64()?);
            (a.metadata_match, a.metadata_write, a.instructions) = (r.u64()?, r.u64()?, r.u32()?);
        }
        a.config = r.u32()?;
        Ok(a)
    }

    fn encode(self, version: Version, out: &mut Writer) {
        if version == V11 {
            out.put_u32(self.wildcards as u32);
            out.put_u32(self.matching as u32);
            out.put_u32(self.instructions);
            out.put_u32(self.write_actions);
            out.put_u32(self.apply_actions);
        } else {
            out.put_u64(self.matching);
            out.put_u64(self.wildcards);
            out.put_u32(self.write_actions);
            out.put_u32(self.apply_actions);
            for n in [self.write_set_fields, self.apply_set_fields, self.metadata_match, self.metadata_write] {
                out.put_u64(n);
            }
            out.put_u32(self.instructions);
        }
        out.put_u32(self.config);
    }
}
