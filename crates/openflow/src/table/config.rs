//! Table configurations: changes, descriptions, and status messages (OpenFlow 1.1 section A.3.3, 1.4 sections 7.3.4.4,
//! 7.3.5.16 and 7.4.5).

use crate::OfpError;
use crate::Version::{self, V14};
use crate::nxm::Unknown;
use crate::property;
use crate::wire::{Reader, Result, Writer};

/// Bits of a table's configuration (`ofp_table_config`) from OpenFlow 1.4 on.
pub mod table_config {
    /// The switch may evict flows when the table is full.
    pub const EVICTION: u32 = 1 << 2;
    /// The switch sends a table status when the table's vacancy crosses a threshold.
    pub const VACANCY_EVENTS: u32 = 1 << 3;
}

/// `OFPTMPT_EVICTION`.
const EVICTION: u16 = 2;
/// `OFPTMPT_VACANCY`.
const VACANCY: u16 = 3;

/// Thresholds of vacancy events, in percent of the table's entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vacancy {
    /// The switch sends an event when the vacancy falls below this.
    pub down: u8,
    /// The switch sends an event when the vacancy rises above this after an event for `down`.
    pub up: u8,
    /// The current vacancy; 0 in changes.
    pub current: u8,
}

/// The properties that OpenFlow 1.4 added to a table's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableProperties {
    /// The criteria for eviction, bits of `ofp_table_mod_prop_eviction_flag`.
    pub eviction_flags: Option<u32>,
    /// The thresholds of vacancy events.
    pub vacancy: Option<Vacancy>,
}

impl TableProperties {
    /// `unknown`: the treatment of unknown properties; if they are refused, so are values that cannot be set.
    fn decode(r: &mut Reader<'_>, unknown: Unknown) -> Result<Self> {
        let mut all = Self::default();
        property::each(r, |p| {
            match p.ty {
                // All ones stand for an absent value.
                EVICTION => all.eviction_flags = Some(p.u32()?).filter(|flags| *flags != u32::MAX),
                VACANCY => {
                    let [down, up, current, _] = p.u32()?.to_be_bytes();
                    // They are percentages, and a request cannot set the current vacancy.
                    if unknown == Unknown::Refuse && (down > up || up > 100 || current != 0) {
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
    /// The table; 0xff for all.
    pub table_id: u8,
    /// Bits of `ofp_table_config` (OpenFlow 1.1 and 1.2: the action on a table miss; 1.3: unused; later [`table_config`]).
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

/// A table's current configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableDesc {
    /// The table.
    pub table_id: u8,
    /// Bits of [`table_config`].
    pub config: u32,
    /// Further properties.
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

/// The reason for a table status (`ofp_table_reason`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TableReason {
    /// The vacancy fell below the threshold.
    VacancyDown = 3,
    /// The vacancy rose above the threshold.
    VacancyUp = 4,
}

/// A table status message (OpenFlow 1.4 section 7.4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableStatus {
    /// The reason.
    pub reason: TableReason,
    /// The table's configuration.
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
        // No known field follows.
        r.rest();
        Ok(Self { reason, desc })
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.put_u8(self.reason as u8);
        out.zeros(7);
        self.desc.encode(out);
    }
}
