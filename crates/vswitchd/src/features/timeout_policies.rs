//! Timeouts of connections in zones: CT_Zone:timeout_policy.
//!
//! A datapath knows policies by name. As in Open vSwitch, the name is a number, and zones with equal timeouts share one.

use crate::feature::{Event, Feature};
use crate::levels::{SwitchLevel, SwitchTarget};
use crate::reader::Reader;
use dpif::Dpif;
use ofproto::TimeoutPolicies as Names;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::ct_timeout_policy::TimeoutsKey;
use ovsdb_client::schemas::vswitch::{OpenVSwitch, ct_timeout_policy, ct_zone, datapath, open_vswitch};
use ovsdb_client::typed::{AnyColumn, Enumeration, Listed, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vlog::{RateLimit, warn_rl};

/// Limit on warnings about policies that the datapath has no room for.
static REFUSED: RateLimit = RateLimit::new(10, 10);

/// Timeout policies of the zones of all datapaths.
#[derive(Debug, Default)]
pub struct TimeoutPolicies {
    /// By type of the datapath.
    datapaths: BTreeMap<String, Policies>,
}

/// Seconds by keys of CT_Timeout_Policy:timeouts.
pub type Timeouts = BTreeMap<String, u32>;

/// The policies of a datapath.
#[derive(Debug, Default)]
struct Policies {
    /// Numbers by timeouts.
    numbers: BTreeMap<Timeouts, u32>,
    names: Names,
}

impl Feature for TimeoutPolicies {
    type Level = SwitchLevel;
    /// Timeouts by type of the datapath and by zone.
    type Spec = BTreeMap<String, BTreeMap<u16, Timeouts>>;
    const NAME: &'static str = "timeout-policies";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        open_vswitch { DATAPATHS }
        datapath { CT_ZONES }
        ct_zone { TIMEOUT_POLICY }
        ct_timeout_policy { TIMEOUTS }
    };
    const FOLLOWS: &'static [Event] = &[Event::Datapath];

    fn read(reader: &Reader<'_>, root: Row<'_, OpenVSwitch>) -> Self::Spec {
        let mut all = Self::Spec::new();
        for (kind, row) in root.get(open_vswitch::DATAPATHS) {
            let Some(row) = reader.find(row) else { continue };
            for (zone, row) in row.get(datapath::CT_ZONES) {
                let policy = reader.find(row).and_then(|row| row.get(ct_zone::TIMEOUT_POLICY));
                let Some((zone, policy)) = u16::try_from(zone).ok().zip(policy.and_then(|row| reader.find(row))) else {
                    continue;
                };
                let timeout = |(key, seconds): (Listed<'_, TimeoutsKey>, i64)| {
                    Some((TimeoutsKey::name_of(key).to_owned(), u32::try_from(seconds).ok()?))
                };
                let timeouts: Timeouts =
                    policy.get(ct_timeout_policy::TIMEOUTS).into_iter().filter_map(timeout).collect();
                if !timeouts.is_empty() {
                    all.entry(kind.to_owned()).or_default().insert(zone, timeouts);
                }
            }
        }
        all
    }

    fn apply(&mut self, spec: &Self::Spec, target: &mut SwitchTarget<'_>) {
        let none = BTreeMap::new();
        for (kind, dp) in target.devices.datapaths() {
            let zones = spec.get(&kind).unwrap_or(&none);
            let policies = self.datapaths.entry(kind).or_default();
            policies.add(zones, &*dp.dpif);
            dp.switch.set_timeout_policies(Arc::clone(&policies.names));
            policies.remove_unused(&*dp.dpif);
        }
    }
}

impl Policies {
    /// Names the policies of zones; the datapath gets the new ones.
    fn add(&mut self, zones: &BTreeMap<u16, Timeouts>, dpif: &dyn Dpif) {
        let mut taken: BTreeSet<u32> = self.numbers.values().copied().collect();
        let mut names = BTreeMap::new();
        for (zone, timeouts) in zones {
            let number = match self.numbers.get(timeouts) {
                Some(number) => *number,
                None => {
                    // Not all of so many numbers are taken.
                    let free = (1..=taken.len() as u32 + 1).find(|number| !taken.contains(number)).unwrap_or_default();
                    if let Err(error) = dpif.set_timeout_policy(&free.to_string(), timeouts) {
                        warn_rl!(&REFUSED, target: "ofproto_dpif", "failed to add timeout policy of zone {zone} ({error})");
                        continue;
                    }
                    taken.insert(free);
                    self.numbers.insert(timeouts.clone(), free);
                    free
                }
            };
            names.insert(*zone, number.to_string().into());
        }
        if *self.names != names {
            self.names = Arc::new(names);
        }
    }

    /// Removes the policies of no zone.
    fn remove_unused(&mut self, dpif: &dyn Dpif) {
        let used: BTreeSet<&str> = self.names.values().map(|name| &**name).collect();
        self.numbers.retain(|_, number| {
            let name = number.to_string();
            let is_used = used.contains(&*name);
            if !is_used {
                dpif.delete_timeout_policy(&name);
            }
            is_used
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Clock;

    #[test]
    fn zones_share_equal_policies() {
        let dp = crate::backends::open(crate::types::DatapathClass::Dummy, &Clock::stopped()).expect("a datapath");
        let mut policies = Policies::default();
        let mut apply = |zones: &[(u16, u32)]| {
            let timeouts = |seconds: u32| Timeouts::from([("udp_single".to_owned(), seconds)]);
            let zones = zones.iter().map(|(zone, seconds)| (*zone, timeouts(*seconds))).collect();
            policies.add(&zones, &*dp);
            policies.remove_unused(&*dp);
            policies.names.iter().map(|(zone, name)| format!("{zone}:{name}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(apply(&[(1, 10)]), "1:1");
        assert_eq!(apply(&[(1, 10), (2, 10), (3, 30)]), "1:1 2:1 3:2");
        // A new policy gets its number before the old one loses it.
        assert_eq!(apply(&[(1, 20), (2, 20), (3, 30)]), "1:3 2:3 3:2");
        assert_eq!(apply(&[(1, 20), (2, 40)]), "1:3 2:1");
        assert_eq!(apply(&[]), "");
        assert_eq!(apply(&[(9, 10)]), "9:1");
    }
}
