//! Meters, as far as a switch without any needs them: requests and changes are understood down to their ids, so that they
//! can be answered or refused (OpenFlow 1.3 sections 7.3.4.4 and 7.3.5.12 to 7.3.5.14).

use crate::wire::{Put, Reader, Result};

/// All meters, in requests.
pub const METER_ALL: u32 = 0xffff_ffff;

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
