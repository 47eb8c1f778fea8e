//! Tables' configurations: changes, descriptions, and news of them (OpenFlow 1.1 section A.3.3, 1.4 sections 7.3.4.4,
//! 7.3.5.16 and 7.4.5).

use crate::OfpError;
use crate::Version::{self, V14};
use crate::nxm::Unknown;
use crate::property;
use crate::wire::{Reader, Result, Writer};

/// Bits of a table's configuration (`ofp_table_config`) from OpenFlow 1.4 on.
pub mod table_config {
    /// Flows may be evicted when the table is full.
    pub const EVICTION: u32 = 1 << 2;
    /// Controllers are told when the table gets full, and when it no longer is.
    pub const VACANCY_EVENTS: u32 = 1 << 3;
}

/// `OFPTMPT_EVICTION`.
const EVICTION: u16 = 2;
/// `OFPTMPT_VACANCY`.
const VACANCY: u16 = 3;

/// When controllers are told of a table's vacancy, in percent of its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vacancy {
    /// Below this.
    pub down: u8,
    /// Above this, after it was below the other.
    pub up: u8,
    /// What it is; 0 in changes.
    pub current: u8,
}

/// What OpenFlow 1.4 added to a table's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableProperties {
    /// By what flows to evict are chosen, bits of `ofp_table_mod_prop_eviction_flag`.
    pub eviction_flags: Option<u32>,
    /// When to tell of vacancies.
    pub vacancy: Option<Vacancy>,
}

impl TableProperties {
    /// `unknown`: what becomes of those that are not known; where they are refused, so are values that cannot be set.
    fn decode(r: &mut Reader<'_>, unknown: Unknown) -> Result<Self> {
        let mut all = Self::default();
        property::each(r, |p| {
            match p.ty {
                // All bits at once is none of them.
                EVICTION => all.eviction_flags = Some(p.u32()?).filter(|flags| *flags != u32::MAX),
                VACANCY => {
                    let [down, up, current, _] = p.u32()?.to_be_bytes();
                    // What the vacancy is cannot be set.
                    if unknown == Unknown::Refuse && (down > up || current != 0) {
                        return Err(OfpError::BpcBadValue);
                    }
                    all.vacancy = Some(Vacancy { down, up, current });
                }
                _ if unknown == Unknown::Refuse => return Err(OfpError::BrcBadType),
                _ => {}
            }
            Ok(())
        })?;
        Ok(all)
    }

    fn encode(self, out: &mut Writer) {
        if let Some(flags) = self.eviction_flags {
            property::put_u32(out, EVICTION, flags);
        }
        if let Some(v) = self.vacancy {
            property::put_u32(out, VACANCY, u32::from_be_bytes([v.down, v.up, v.current, 0]));
        }
    }
}

/// A change to a table's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableMod {
    /// Which table; 0xff for all.
    pub table_id: u8,
    /// Bits of `ofp_table_config` (OpenFlow 1.1 and 1.2: what a miss does; 1.3: nothing is left; later [`table_config`]).
    pub config: u32,
    /// OpenFlow 1.4.
    pub properties: TableProperties,
}

impl TableMod {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let table_id = r.u8()?;
        r.skip(3)?;
        let config = r.u32()?;
        let properties =
            if version >= V14 { TableProperties::decode(r, Unknown::Refuse)? } else { TableProperties::default() };
        Ok(Self { table_id, config, properties })
    }

    pub(crate) fn encode(self, version: Version, out: &mut Writer) {
        out.put_u8(self.table_id);
        out.zeros(3);
        out.put_u32(self.config);
        if version >= V14 {
            self.properties.encode(out);
        }
    }
}

/// A table's configuration as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableDesc {
    /// Which table.
    pub table_id: u8,
    /// Bits of [`table_config`].
    pub config: u32,
    /// The rest.
    pub properties: TableProperties,
}

impl TableDesc {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let len = usize::from(r.u16()?);
        let mut r = r.sub(len.checked_sub(2).ok_or(OfpError::BrcBadLen)?)?;
        let table_id = r.u8()?;
        r.skip(1)?;
        let config = r.u32()?;
        Ok(Self { table_id, config, properties: TableProperties::decode(&mut r, Unknown::Skip)? })
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        let start = out.len();
        out.put_u16(0);
        out.put_u8(self.table_id);
        out.put_u8(0);
        out.put_u32(self.config);
        self.properties.encode(out);
        out.set_len16(start, start);
    }
}

/// Why a table's status is told (`ofp_table_reason`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TableReason {
    /// Its vacancy went below the threshold.
    VacancyDown = 3,
    /// Its vacancy went above the threshold.
    VacancyUp = 4,
}

/// News of a table (OpenFlow 1.4 section 7.4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableStatus {
    /// What happened.
    pub reason: TableReason,
    /// The table.
    pub desc: TableDesc,
}

impl TableStatus {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let reason = match r.u8()? {
            3 => TableReason::VacancyDown,
            4 => TableReason::VacancyUp,
            _ => return Err(OfpError::BpcBadValue),
        };
        r.skip(7)?;
        let desc = TableDesc::decode(r)?;
        // Nothing is known to come after it.
        r.rest();
        Ok(Self { reason, desc })
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.put_u8(self.reason as u8);
        out.zeros(7);
        self.desc.encode(out);
    }
}
