//! Limits of the number of connections in a zone (ovs-dpctl(8), `CT_Zone:limit` and `Datapath:ct_zone_default_limit` of
//! ovs-vswitchd.conf.db(5)).
//!
//! A connection counts from its commit to its end, if its zone has a limit when it is committed: its own, or the default
//! limit. It counts with the limit that admitted it: a limit that is deleted and set again begins at 0, while a change keeps
//! the count. Invariant: without limits, admission reads one flag.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use parking_lot::RwLock;

/// The zone has as many connections as its limit allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("zone {zone} has {limit} connections, its limit")]
pub struct Full {
    /// The zone.
    pub zone: u16,
    /// The limit that applies to it.
    pub limit: u32,
}

/// A connection's share of the limit of its zone. The zone's count shrinks when it is dropped.
#[derive(Debug)]
pub struct Permit(Arc<AtomicU32>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The limit that applies to a zone, and how many connections count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneLimit {
    /// The zone.
    pub zone: u16,
    /// Its limit; 0 for no limit.
    pub limit: u32,
    /// Its connections.
    pub count: u32,
}

/// The limits of a tracker.
#[derive(Debug, Default)]
pub struct Limits {
    /// Whether there are zones with limits, or a default limit.
    active: AtomicBool,
    /// Whether only the database may change limits.
    protected: AtomicBool,
    zones: RwLock<Zones>,
}

#[derive(Debug, Default)]
struct Zones {
    /// The limit of zones without one of their own; 0 for none.
    default: u32,
    /// Zones with a limit of their own; with a default limit, also the zones that it has counted connections for.
    by_number: HashMap<u16, Zone, foldhash::fast::RandomState>,
}

#[derive(Debug, Default)]
struct Zone {
    /// Its own limit, where 0 overrides the default limit.
    limit: Option<u32>,
    count: Arc<AtomicU32>,
}

impl Zone {
    fn admit(&self, number: u16, default: u32) -> Result<Option<Permit>, Full> {
        let limit = self.limit.unwrap_or(default);
        let next = |count: u32| if limit == 0 || count < limit { count.checked_add(1) } else { None };
        match self.count.fetch_update(Relaxed, Relaxed, next) {
            Ok(_) => Ok(Some(Permit(self.count.clone()))),
            Err(_) => Err(Full { zone: number, limit }),
        }
    }

    fn describe(&self, zone: u16, default: u32) -> ZoneLimit {
        ZoneLimit { zone, limit: self.limit.unwrap_or(default), count: self.count.load(Relaxed) }
    }
}

impl Limits {
    /// No limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits a connection to its zone. Returns its permit, which it keeps until its end; `None` if nothing limits the zone.
    #[inline]
    pub fn admit(&self, zone: u16) -> Result<Option<Permit>, Full> {
        if self.active.load(Relaxed) { self.admit_limited(zone) } else { Ok(None) }
    }

    #[cold]
    fn admit_limited(&self, number: u16) -> Result<Option<Permit>, Full> {
        {
            let zones = self.zones.read();
            match zones.by_number.get(&number) {
                Some(zone) => return zone.admit(number, zones.default),
                None if zones.default == 0 => return Ok(None),
                None => {}
            }
        }
        let mut zones = self.zones.write();
        let default = zones.default;
        if default == 0 && !zones.by_number.contains_key(&number) {
            return Ok(None);
        }
        zones.by_number.entry(number).or_default().admit(number, default)
    }

    /// Sets the limit of a zone; 0 for no limit. Connections that already counted with the zone still count. Returns false
    /// if nothing had counted connections for the zone so far.
    pub fn set(&self, zone: u16, limit: u32) -> bool {
        let mut zones = self.zones.write();
        let known = zones.by_number.contains_key(&zone);
        zones.by_number.entry(zone).or_default().limit = Some(limit);
        self.changed(&zones);
        known
    }

    /// Sets the limit of all zones without one of their own; 0 for no limit, which forgets their counts.
    pub fn set_default(&self, limit: u32) {
        let mut zones = self.zones.write();
        zones.default = limit;
        if limit == 0 {
            zones.by_number.retain(|_, zone| zone.limit.is_some());
        }
        self.changed(&zones);
    }

    /// Deletes the limit of a zone, for which the default limit applies from now on. Its connections count with the default
    /// limit, if there is one. Returns false if nothing had counted connections for the zone.
    pub fn del(&self, number: u16) -> bool {
        let mut zones = self.zones.write();
        let has_default = zones.default != 0;
        let known = match zones.by_number.get_mut(&number) {
            Some(zone) if has_default => {
                zone.limit = None;
                true
            }
            Some(_) => zones.by_number.remove(&number).is_some(),
            None => false,
        };
        self.changed(&zones);
        known
    }

    /// The default limit; 0 for none.
    pub fn default_limit(&self) -> u32 {
        self.zones.read().default
    }

    /// The limit that applies to a zone.
    pub fn zone(&self, number: u16) -> ZoneLimit {
        let zones = self.zones.read();
        match zones.by_number.get(&number) {
            Some(zone) => zone.describe(number, zones.default),
            None => ZoneLimit { zone: number, limit: zones.default, count: 0 },
        }
    }

    /// The zones that have limits of their own, in the order of their numbers.
    pub fn list(&self) -> Vec<ZoneLimit> {
        let zones = self.zones.read();
        let own = zones.by_number.iter().filter(|(_, zone)| zone.limit.is_some());
        let mut list: Vec<ZoneLimit> = own.map(|(&number, zone)| zone.describe(number, zones.default)).collect();
        list.sort_unstable_by_key(|limit| limit.zone);
        list
    }

    /// States whether the database has a limit of any zone, or a default limit, even 0. Then commands may not change limits.
    pub fn protect(&self, protected: bool) {
        self.protected.store(protected, Relaxed);
    }

    /// Returns true if commands may not change limits.
    pub fn is_protected(&self) -> bool {
        self.protected.load(Relaxed)
    }

    fn changed(&self, zones: &Zones) {
        self.active.store(zones.default != 0 || !zones.by_number.is_empty(), Relaxed);
    }
}

#[cfg(test)]
mod tests;
