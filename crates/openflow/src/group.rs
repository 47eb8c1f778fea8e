//! Groups and meters, as far as a switch without any needs them: requests and changes are understood down to their ids, so
//! that they can be answered or refused; replies carry features and entries as bytes (OpenFlow 1.3 sections 7.3.4.2,
//! 7.3.4.4, 7.3.5.9 to 7.3.5.14).

use crate::wire::{Put, Reader, Result};

/// All groups, in requests.
pub const GROUP_ALL: u32 = 0xffff_fffc;
/// All meters, in requests.
pub const METER_ALL: u32 = 0xffff_ffff;

/// A change to the group table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMod {
    /// `OFPGC_*`: add 0, modify 1, delete 2.
    pub command: u16,
    /// `OFPGT_*`.
    pub group_type: u8,
    /// Which group.
    pub group_id: u32,
    /// The buckets as they came.
    pub buckets: Vec<u8>,
}

impl GroupMod {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (command, group_type) = (r.u16()?, r.u8()?);
        r.skip(1)?;
        Ok(Self { command, group_type, group_id: r.u32()?, buckets: r.rest().to_vec() })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.command);
        out.put_u8(self.group_type);
        out.put_u8(0);
        out.put_u32(self.group_id);
        out.put(&self.buckets);
    }
}

/// A change to the meter table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterMod {
    /// `OFPMC_*`: add 0, modify 1, delete 2.
    pub command: u16,
    /// `OFPMF_*`.
    pub flags: u16,
    /// Which meter.
    pub meter_id: u32,
    /// The bands as they came.
    pub bands: Vec<u8>,
}

impl MeterMod {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { command: r.u16()?, flags: r.u16()?, meter_id: r.u32()?, bands: r.rest().to_vec() })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.command);
        out.put_u16(self.flags);
        out.put_u32(self.meter_id);
        out.put(&self.bands);
    }
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

impl GroupFeatures {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (types, capabilities) = (r.u32()?, r.u32()?);
        let mut four = || -> Result<[u32; 4]> { Ok([r.u32()?, r.u32()?, r.u32()?, r.u32()?]) };
        let (max_groups, actions) = (four()?, four()?);
        r.finish()?;
        Ok(Self { types, capabilities, max_groups, actions })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.types);
        out.put_u32(self.capabilities);
        for n in self.max_groups.into_iter().chain(self.actions) {
            out.put_u32(n);
        }
    }
}

/// What meters the switch could have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterFeatures {
    /// Largest number of meters.
    pub max_meters: u32,
    /// A bit for each band type.
    pub band_types: u32,
    /// `OFPMF_*`.
    pub capabilities: u32,
    /// Bands a meter.
    pub max_bands: u8,
    /// Colours.
    pub max_color: u8,
}

impl MeterFeatures {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (max_meters, band_types, capabilities) = (r.u32()?, r.u32()?, r.u32()?);
        let (max_bands, max_color) = (r.u8()?, r.u8()?);
        r.skip(2)?;
        r.finish()?;
        Ok(Self { max_meters, band_types, capabilities, max_bands, max_color })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.max_meters);
        out.put_u32(self.band_types);
        out.put_u32(self.capabilities);
        out.put_u8(self.max_bands);
        out.put_u8(self.max_color);
        out.zeros(2);
    }
}
