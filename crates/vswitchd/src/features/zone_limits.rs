//! Limits of the number of connections in zones: CT_Zone:limit and Datapath:ct_zone_default_limit.

use crate::feature::{Event, Feature};
use crate::levels::{SwitchLevel, SwitchTarget};
use crate::reader::Reader;
use dpif::Dpif;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{OpenVSwitch, ct_zone, datapath, open_vswitch};
use ovsdb_client::typed::{AnyColumn, Row};
use std::collections::BTreeMap;

/// Limits of zones of all datapaths. While the database has limits of a datapath, commands must not change any of it.
#[derive(Debug, Default)]
pub struct ZoneLimits {
    /// The limits that were applied, by type of the datapath.
    applied: BTreeMap<String, Limits>,
}

/// The limits of a datapath.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// The limit of zones without one of their own.
    pub default: Option<u32>,
    /// Limits by zone; 0 exempts the zone from the default limit.
    pub zones: BTreeMap<u16, u32>,
}

impl Feature for ZoneLimits {
    type Level = SwitchLevel;
    /// By type of the datapath.
    type Spec = BTreeMap<String, Limits>;
    const NAME: &'static str = "zone-limits";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        open_vswitch { DATAPATHS }
        datapath { CT_ZONES, CT_ZONE_DEFAULT_LIMIT }
        ct_zone { LIMIT }
    };
    const FOLLOWS: &'static [Event] = &[Event::Datapath];

    fn read(reader: &Reader<'_>, root: Row<'_, OpenVSwitch>) -> Self::Spec {
        let mut all = BTreeMap::new();
        for (kind, row) in root.get(open_vswitch::DATAPATHS) {
            let Some(row) = reader.find(row) else { continue };
            // The schema has the ranges of all numbers.
            let number = |limit: i64| u32::try_from(limit).ok();
            let mut limits =
                Limits { default: row.get(datapath::CT_ZONE_DEFAULT_LIMIT).and_then(number), zones: BTreeMap::new() };
            for (zone, row) in row.get(datapath::CT_ZONES) {
                let limit = reader.find(row).and_then(|row| row.get(ct_zone::LIMIT)).and_then(number);
                limits.zones.extend(u16::try_from(zone).ok().zip(limit));
            }
            if limits != Limits::default() {
                all.insert(kind.to_owned(), limits);
            }
        }
        all
    }

    fn apply(&mut self, spec: &Self::Spec, target: &mut SwitchTarget<'_>) {
        for (kind, dp) in target.devices.datapaths() {
            let limits = spec.get(&kind).cloned().unwrap_or_default();
            let applied = self.applied.entry(kind).or_default();
            if *applied != limits {
                limits.apply(applied, &*dp.dpif);
                *applied = limits;
            }
        }
    }
}

impl Limits {
    /// Makes a datapath follow these limits in place of `before`.
    fn apply(&self, before: &Self, dpif: &dyn Dpif) {
        dpif.protect_zone_limits(*self != Self::default());
        match self.default {
            Some(limit) if before.default != Some(limit) => set_default(dpif, limit),
            None if before.default.is_some() => dpif.set_default_zone_limit(0),
            _ => {}
        }
        for zone in before.zones.keys().filter(|zone| !self.zones.contains_key(zone)) {
            delete(dpif, *zone);
        }
        for (zone, limit) in self.zones.iter().filter(|(zone, limit)| before.zones.get(zone) != Some(limit)) {
            set(dpif, *zone, *limit);
        }
    }
}

/// Limits a zone, and reports it to the log.
pub(crate) fn set(dpif: &dyn Dpif, zone: u16, limit: u32) {
    let done = if dpif.set_zone_limit(zone, limit) { "Created" } else { "Changed" };
    tracing::info!(target: "conntrack", "{done} zone limit of {limit} for zone {zone}");
}

/// Sets the default limit, and reports it to the log.
pub(crate) fn set_default(dpif: &dyn Dpif, limit: u32) {
    dpif.set_default_zone_limit(limit);
    tracing::info!(target: "conntrack", "Set default zone limit to {limit}");
}

/// Removes the limit of a zone, and reports it to the log.
pub(crate) fn delete(dpif: &dyn Dpif, zone: u16) {
    if dpif.delete_zone_limit(zone) {
        tracing::info!(target: "conntrack", "Deleted zone limit for zone {zone}");
    } else {
        tracing::info!(target: "conntrack", "Attempted delete of non-existent zone limit: zone {zone}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Clock;

    #[test]
    fn changes_are_applied_and_others_stay() {
        let dp = crate::backends::open(crate::types::DatapathClass::Dummy, &Clock::stopped()).expect("a datapath");
        let shown = || {
            let zones = dp.zone_limits().into_iter().map(|of| (of.zone, of.limit)).collect::<Vec<_>>();
            (dp.has_protected_zone_limits(), dp.default_zone_limit(), zones)
        };
        let limits =
            |default: Option<u32>, zones: &[(u16, u32)]| Limits { default, zones: zones.iter().copied().collect() };
        dp.set_zone_limit(7, 70);
        dp.set_default_zone_limit(9);
        let first = limits(None, &[(1, 10), (2, 0)]);
        first.apply(&Limits::default(), &*dp);
        assert_eq!(shown(), (true, 9, vec![(1, 10), (2, 0), (7, 70)]));
        let second = limits(Some(5), &[(1, 11)]);
        second.apply(&first, &*dp);
        assert_eq!(shown(), (true, 5, vec![(1, 11), (7, 70)]));
        Limits::default().apply(&second, &*dp);
        assert_eq!(shown(), (false, 0, vec![(7, 70)]));
    }
}
