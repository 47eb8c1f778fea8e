//! Meters (OpenFlow 1.3 sections 5.7, 7.3.4.4 and 7.3.5.12 to 7.3.5.14): meter mods, descriptions, counters, and their text
//! in the syntax of ovs-ofctl(8), "Meter Syntax".

mod text;

pub use text::{MeterTextError, ParsedMeter, parse_meter, parse_meter_id};

use crate::error::OfpError;
use crate::wire::{Reader, Result, Writer};

/// All meters, in requests (`OFPM_ALL`).
pub const METER_ALL: u32 = 0xffff_ffff;
/// The meter of packets for controllers (`OFPM_CONTROLLER`).
pub const METER_CONTROLLER: u32 = 0xffff_fffe;
/// The meter of packets that the datapath sends to the slow path (`OFPM_SLOWPATH`).
pub const METER_SLOWPATH: u32 = 0xffff_fffd;
/// The largest number that a flow meter can have (`OFPM_MAX`); 0 is not a meter.
pub const METER_MAX: u32 = 0xffff_0000;

/// `OFPMF_*`.
pub mod flag {
    /// Rates are in kilobits a second.
    pub const KBPS: u16 = 1;
    /// Rates are in packets a second.
    pub const PKTPS: u16 = 1 << 1;
    /// Bands have a burst size.
    pub const BURST: u16 = 1 << 2;
    /// The meter collects statistics.
    pub const STATS: u16 = 1 << 3;
}

/// Bytes of a band on the wire.
const BAND_LEN: u16 = 16;
/// Bytes of a meter's counters without its bands.
const STATS_LEN: u16 = 40;

/// A meter band: acts on packets above a rate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Band {
    /// The action.
    pub kind: BandKind,
    /// The rate, in the meter's unit.
    pub rate: u32,
    /// In kilobits or packets: the burst that may pass at once; 0 for what the rate allows in a second. Requires
    /// [`flag::BURST`].
    pub burst_size: u32,
}

/// The action of a band.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BandKind {
    /// Drops packets (`OFPMBT_DROP`).
    Drop,
    /// Raises the drop precedence in the DSCP (`OFPMBT_DSCP_REMARK`).
    DscpRemark {
        /// The number of levels to raise it by.
        prec_level: u8,
    },
}

impl Band {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (ty, len) = (r.u16()?, r.u16()?);
        if len != BAND_LEN {
            return Err(OfpError::BrcBadLen);
        }
        let (rate, burst_size) = (r.u32()?, r.u32()?);
        let prec_level = r.u8()?;
        r.skip(3)?;
        let kind = match ty {
            1 => BandKind::Drop,
            2 => BandKind::DscpRemark { prec_level },
            _ => return Err(OfpError::MmfcBadBand),
        };
        Ok(Self { kind, rate, burst_size })
    }

    fn encode(self, out: &mut Writer) {
        let (ty, prec_level) = match self.kind {
            BandKind::Drop => (1, 0),
            BandKind::DscpRemark { prec_level } => (2, prec_level),
        };
        out.put_u16(ty);
        out.put_u16(BAND_LEN);
        out.put_u32(self.rate);
        out.put_u32(self.burst_size);
        out.put_u8(prec_level);
        out.zeros(3);
    }
}

/// Reads bands to the end of `r`.
fn decode_bands(r: &mut Reader<'_>) -> Result<Vec<Band>> {
    let mut bands = Vec::new();
    while !r.is_empty() {
        bands.push(Band::decode(r)?);
    }
    Ok(bands)
}

/// A meter's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterConfig {
    /// Its number: [`METER_MAX`] at most, or one of the virtual ones.
    pub meter_id: u32,
    /// [`flag`]s.
    pub flags: u16,
    /// Its bands.
    pub bands: Vec<Band>,
}

impl MeterConfig {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let len = usize::from(r.u16()?);
        let mut r = r.sub(len.checked_sub(2).ok_or(OfpError::BrcBadLen)?)?;
        let (flags, meter_id) = (r.u16()?, r.u32()?);
        Ok(Self { meter_id, flags, bands: decode_bands(&mut r)? })
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        // (A message fits 4,094 bands at most.)
        out.put_len16(8 + usize::from(BAND_LEN) * self.bands.len());
        out.put_u16(self.flags);
        out.put_u32(self.meter_id);
        self.bands.iter().for_each(|band| band.encode(out));
    }
}

/// A command on the meter table (`OFPMC_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MeterCommand {
    /// Add a meter.
    Add = 0,
    /// Change the bands of an existing meter.
    Modify = 1,
    /// Delete a meter, or all meters.
    Delete = 2,
}

/// A meter mod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterMod {
    /// The command.
    pub command: MeterCommand,
    /// The meter; a deletion uses its number only.
    pub meter: MeterConfig,
}

impl MeterMod {
    /// Returns a command that deletes a meter, or [`METER_ALL`].
    pub fn delete(meter_id: u32) -> Self {
        Self { command: MeterCommand::Delete, meter: MeterConfig { meter_id, flags: 0, bands: Vec::new() } }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (command, flags, meter_id) = (r.u16()?, r.u16()?, r.u32()?);
        let command = match command {
            0 => MeterCommand::Add,
            1 => MeterCommand::Modify,
            2 => {
                // A deletion ignores bands.
                r.rest();
                return Ok(Self::delete(meter_id));
            }
            _ => return Err(OfpError::MmfcBadCommand),
        };
        let both = flag::KBPS | flag::PKTPS;
        if flags & both == both {
            return Err(OfpError::MmfcBadFlags);
        }
        Ok(Self { command, meter: MeterConfig { meter_id, flags, bands: decode_bands(r)? } })
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.put_u16(self.command as u16);
        out.put_u16(self.meter.flags);
        out.put_u32(self.meter.meter_id);
        self.meter.bands.iter().for_each(|band| band.encode(out));
    }
}

/// A meter's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterStats {
    /// Its number.
    pub meter_id: u32,
    /// The number of flows that send packets through it.
    pub flow_count: u32,
    /// Packets received.
    pub packet_in_count: u64,
    /// Bytes received.
    pub byte_in_count: u64,
    /// How long it has existed: seconds.
    pub duration_sec: u32,
    /// The rest of that in nanoseconds.
    pub duration_nsec: u32,
    /// For each band, the packets and bytes that it acted on.
    pub bands: Vec<(u64, u64)>,
}

impl MeterStats {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let meter_id = r.u32()?;
        let len = usize::from(r.u16()?);
        let mut r = r.sub(len.checked_sub(6).ok_or(OfpError::BrcBadLen)?)?;
        r.skip(6)?;
        let mut stats = Self {
            meter_id,
            flow_count: r.u32()?,
            packet_in_count: r.u64()?,
            byte_in_count: r.u64()?,
            duration_sec: r.u32()?,
            duration_nsec: r.u32()?,
            bands: Vec::new(),
        };
        while !r.is_empty() {
            stats.bands.push((r.u64()?, r.u64()?));
        }
        Ok(stats)
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.put_u32(self.meter_id);
        out.put_len16(usize::from(STATS_LEN) + 16 * self.bands.len());
        out.zeros(6);
        out.put_u32(self.flow_count);
        out.put_u64(self.packet_in_count);
        out.put_u64(self.byte_in_count);
        out.put_u32(self.duration_sec);
        out.put_u32(self.duration_nsec);
        for (packets, bytes) in &self.bands {
            out.put_u64(*packets);
            out.put_u64(*bytes);
        }
    }
}

/// The meter features of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterFeatures {
    /// Largest number of meters.
    pub max_meters: u32,
    /// A bit for each band type, by its number.
    pub band_types: u32,
    /// [`flag`]s.
    pub capabilities: u32,
    /// The largest number of bands of a meter.
    pub max_bands: u8,
    /// The largest colour value.
    pub max_color: u8,
    /// The places in which actions may name meters (`ofp_meter_feature_flags`): part of the OpenFlow 1.5 specification. `None`
    /// for the shorter form of earlier versions, which Open vSwitch sends and accepts in 1.5 too.
    pub features: Option<u32>,
}

impl MeterFeatures {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (max_meters, band_types, capabilities) = (r.u32()?, r.u32()?, r.u32()?);
        let (max_bands, max_color) = (r.u8()?, r.u8()?);
        r.skip(2)?;
        let features = if r.is_empty() { None } else { Some(r.u32()?) };
        if features.is_some() {
            r.skip(4)?;
        }
        r.finish()?;
        Ok(Self { max_meters, band_types, capabilities, max_bands, max_color, features })
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.put_u32(self.max_meters);
        out.put_u32(self.band_types);
        out.put_u32(self.capabilities);
        out.put_u8(self.max_bands);
        out.put_u8(self.max_color);
        out.zeros(2);
        if let Some(features) = self.features {
            out.put_u32(features);
            out.zeros(4);
        }
    }
}
