//! The meter table of a bridge (OpenFlow 1.3 sections 5.7 and 6.5): changes, configurations and counters. The datapath has the
//! meters themselves.

use crate::bridge::Ofproto;
use crate::flow_table::RemovedReason;
use crate::transaction::{Reference, Transaction};
use dpif::meter::{METER_BANDS_MAX, METERS_MAX};
use dpif::{Dpif, DpifError, MeterBand, MeterId, MeterUnit};
use openflow::meter::{
    BandKind, METER_ALL, METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterConfig, MeterFeatures, MeterStats, flag,
};
use openflow::{MeterCommand, MeterMod, OfpError};
use std::sync::Arc;
use vlog::{RateLimit, warn_rl};
use xlate::Meter;

/// The meter features: both units, bursts, statistics always, both types of bands.
pub(crate) const FEATURES: MeterFeatures = MeterFeatures {
    max_meters: METERS_MAX,
    band_types: 1 << 1 | 1 << 2,
    capabilities: FLAGS as u32,
    max_bands: METER_BANDS_MAX as u8,
    max_color: 0,
    features: None,
};

/// Rate limit of log messages: messages per minute, and burst.
static LIMIT: RateLimit = RateLimit::new(60, 5);
const FLAGS: u16 = flag::KBPS | flag::PKTPS | flag::BURST | flag::STATS;

impl Ofproto {
    /// Changes the meter table.
    ///
    /// Errors: `OFPMMFC_METER_EXISTS`, `OFPMMFC_UNKNOWN_METER`, `OFPMMFC_INVALID_METER`, `OFPMMFC_BAD_FLAGS`, `OFPMMFC_BAD_RATE`,
    /// `OFPMMFC_OUT_OF_BANDS`, `OFPMMFC_OUT_OF_METERS`.
    pub(crate) fn meter_mod(&self, mm: &MeterMod) -> Result<(), OfpError> {
        let (gone, removed) = self.transaction(|t| t.meter_mod(mm))?;
        self.finish_removal(removed);
        self.finish_meters(gone);
        Ok(())
    }

    /// Deletes meters of the datapath once no cached flow references them: only then may it reuse their numbers.
    pub(crate) fn finish_meters(&self, gone: Vec<MeterId>) {
        let Some(switch) = self.switch().filter(|_| !gone.is_empty()) else { return };
        if let Some(dpif) = switch.dpif().cloned() {
            let name = self.name().to_owned();
            switch.after_changes(move || delete_datapath_meters(&name, &*dpif, &gone));
        }
    }

    /// Undoes the changes that a failed transaction made to the datapath's meters.
    pub(crate) fn undo_meters(&self, done: Vec<MeterChange>) {
        let Some(switch) = self.switch().filter(|_| !done.is_empty()) else { return };
        let Some(dpif) = switch.dpif() else { return };
        for change in done.into_iter().rev() {
            let undone = match change {
                MeterChange::Added(id) => dpif.meter_del(id).map(drop),
                MeterChange::Set(id, old) => dpif.meter_set(id, &old),
            };
            if let Err(e) = undone {
                warn_rl!(&LIMIT, target: "ofproto", "{}: a meter could not be set back: {e}", self.name());
            }
        }
    }

    /// Deletes all meters of the bridge from the datapath, when the bridge is removed.
    pub(crate) fn drop_meters(&self) {
        self.finish_meters(self.tables().view().meters.all().iter().map(|meter| meter.datapath_id).collect());
    }

    /// Returns the meter with this number, or all of them.
    ///
    /// Errors: `OFPMMFC_UNKNOWN_METER`.
    fn meters(&self, id: u32) -> Result<Vec<Arc<Meter>>, OfpError> {
        let view = self.tables().view();
        match id {
            METER_ALL => Ok(view.meters.all()),
            id => view.meters.get(id).map(|meter| vec![Arc::clone(meter)]).ok_or(OfpError::MmfcUnknownMeter),
        }
    }

    pub(crate) fn meter_configs(&self, id: u32) -> Result<Vec<MeterConfig>, OfpError> {
        Ok(self.meters(id)?.iter().map(|meter| meter.config.clone()).collect())
    }

    pub(crate) fn meter_stats(&self, id: u32) -> Result<Vec<MeterStats>, OfpError> {
        let meters = self.meters(id)?;
        let switch = self.switch();
        let dpif = switch.as_ref().and_then(|switch| switch.dpif());
        let (now, writer) = (self.now(), self.writer.lock());
        let stats = |meter: &Arc<Meter>| {
            let stats = dpif.and_then(|dpif| dpif.meter_get(meter.datapath_id).ok()).map(|(_, stats)| stats);
            let stats = stats.unwrap_or_default();
            let age = now.since(meter.created);
            MeterStats {
                meter_id: meter.config.meter_id,
                flow_count: writer.references(Reference::Meter(meter.config.meter_id)).try_into().unwrap_or(u32::MAX),
                packet_in_count: stats.input.packets,
                byte_in_count: stats.input.bytes,
                duration_sec: (age / 1000) as u32,
                duration_nsec: (age % 1000) as u32 * 1_000_000,
                bands: stats.bands.iter().map(|count| (count.packets, count.bytes)).collect(),
            }
        };
        Ok(meters.iter().map(stats).collect())
    }
}

/// A change of a meter in the datapath.
#[derive(Debug)]
pub(crate) enum MeterChange {
    /// The meter was added.
    Added(MeterId),
    /// The meter was changed; this is its previous configuration.
    Set(MeterId, dpif::MeterConfig),
}

impl Transaction<'_> {
    /// Changes the meter table and the datapath's meters, except for deletions, which it returns.
    ///
    /// Errors: see [`Ofproto::meter_mod`].
    pub(crate) fn meter_mod(&mut self, mm: &MeterMod) -> Result<Vec<MeterId>, OfpError> {
        let switch = self.bridge.switch().ok_or(OfpError::BrcEperm)?;
        let dpif = switch.dpif().ok_or(OfpError::BrcEperm)?;
        let id = mm.meter.meter_id;
        let old = self.meters.get(id).cloned();
        let meter = match (mm.command, old) {
            (MeterCommand::Delete, _) => return Ok(self.delete_meters(id)),
            (MeterCommand::Add, Some(_)) => return Err(OfpError::MmfcMeterExists),
            (MeterCommand::Modify, None) => return Err(OfpError::MmfcUnknownMeter),
            (MeterCommand::Add, None) => {
                if !matches!(id, 1..=METER_MAX | METER_CONTROLLER | METER_SLOWPATH) {
                    return Err(OfpError::MmfcInvalidMeter);
                }
                let datapath_id = dpif.meter_add(&datapath_config(&mm.meter)?).map_err(error_of)?;
                self.meter_changes.push(MeterChange::Added(datapath_id));
                Meter { config: mm.meter.clone(), datapath_id, created: self.now }
            }
            (MeterCommand::Modify, Some(old)) => {
                dpif.meter_set(old.datapath_id, &datapath_config(&mm.meter)?).map_err(error_of)?;
                self.meter_changes.push(MeterChange::Set(old.datapath_id, datapath_config(&old.config)?));
                Meter { config: mm.meter.clone(), datapath_id: old.datapath_id, created: old.created }
            }
        };
        self.note_meter(id);
        Arc::make_mut(&mut self.meters).insert(id, Arc::new(meter));
        Ok(Vec::new())
    }

    /// Removes a meter, or all, from the table, and the flows that reference it.
    pub(crate) fn delete_meters(&mut self, id: u32) -> Vec<MeterId> {
        let ids = match id {
            METER_ALL => self.meters.all().iter().map(|meter| meter.config.meter_id).collect(),
            id => vec![id],
        };
        let (mut gone, mut used) = (Vec::new(), Vec::new());
        for id in ids {
            if let Some(meter) = Arc::make_mut(&mut self.meters).remove(id) {
                gone.push(meter.datapath_id);
                used.extend(Some(Reference::Meter(id)).filter(|to| self.has_references(*to)));
                self.note_meter(id);
            }
        }
        if !used.is_empty() {
            self.remove_dangling(&used, RemovedReason::MeterDelete);
        }
        gone
    }
}

fn delete_datapath_meters(bridge: &str, dpif: &dyn Dpif, gone: &[MeterId]) {
    for id in gone {
        if let Err(e) = dpif.meter_del(*id) {
            warn_rl!(&LIMIT, target: "ofproto", "{bridge}: a meter could not be deleted: {e}");
        }
    }
}

/// Converts a meter's configuration to the datapath's.
fn datapath_config(meter: &MeterConfig) -> Result<dpif::MeterConfig, OfpError> {
    if meter.flags & !FLAGS != 0 {
        return Err(OfpError::MmfcBadFlags);
    }
    if meter.bands.iter().any(|band| band.rate == 0) {
        return Err(OfpError::MmfcBadRate);
    }
    // The default unit is kilobits.
    let unit = if meter.flags & flag::PKTPS == 0 { MeterUnit::Kbps } else { MeterUnit::Pktps };
    let bands = meter.bands.iter().map(|band| MeterBand {
        kind: match band.kind {
            BandKind::Drop => dpif::BandKind::Drop,
            BandKind::DscpRemark { prec_level } => dpif::BandKind::DscpRemark { prec_level },
        },
        rate: band.rate,
        burst: if meter.flags & flag::BURST == 0 { 0 } else { band.burst_size },
    });
    Ok(dpif::MeterConfig { unit, bands: bands.collect() })
}

fn error_of(error: DpifError) -> OfpError {
    match error {
        DpifError::TooManyBands => OfpError::MmfcOutOfBands,
        DpifError::TooManyMeters => OfpError::MmfcOutOfMeters,
        _ => OfpError::MmfcUnknown,
    }
}
