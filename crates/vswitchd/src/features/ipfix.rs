//! What rows say of IPFIX exporters: the bridge's own (Bridge:ipfix), and those that flows name
//! (Flow_Sample_Collector_Set).

use super::collectors::explicit_drops;
use crate::feature::Feature;
use crate::levels::{BridgeLevel, BridgeRows, BridgeTarget};
use crate::reader::Reader;
use ofproto::{BridgeSampling, ExporterSettings, IpfixSettings};
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{
    self as db, FlowSampleCollectorSet, bridge, flow_sample_collector_set, ipfix, open_vswitch,
};
use ovsdb_client::typed::{AnyColumn, Column, Row};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The port of collectors unless one is named (RFC 7011 section 10.3.4).
const PORT: u16 = 4739;
/// Packets of which one is sampled, unless the row says otherwise.
const SAMPLING: u32 = 400;
/// Bytes of a virtual observation id at most.
const OBS_ID_MAX: usize = 254;

/// The exporters of a bridge.
#[derive(Debug, Default)]
pub struct Ipfix;

impl Feature for Ipfix {
    type Level = BridgeLevel;
    type Spec = IpfixSettings;
    const NAME: &'static str = "ipfix";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        bridge { NAME, IPFIX }
        ipfix {
            TARGETS, SAMPLING, OBS_DOMAIN_ID, OBS_POINT_ID, CACHE_ACTIVE_TIMEOUT, CACHE_MAX_FLOWS, STATS_INTERVAL,
            TEMPLATE_INTERVAL, OTHER_CONFIG
        }
        flow_sample_collector_set { ID, BRIDGE, IPFIX }
        open_vswitch { OTHER_CONFIG }
    };

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> IpfixSettings {
        use flow_sample_collector_set as set;
        let (what, row) = (rows.what(), rows.bridge);
        let own = row.get(bridge::IPFIX).and_then(|own| reader.find(own));
        let sets: BTreeMap<u32, ExporterSettings> = reader
            .all(FlowSampleCollectorSet)
            .filter(|set| set.get(set::BRIDGE) == row.reference())
            .filter_map(|set| {
                let number = u32::try_from(set.get(set::ID)).ok()?;
                let ipfix = reader.find(set.get(set::IPFIX)?)?;
                Some((number, exporter(reader, &format!("{what}: collector set {number}"), ipfix)))
            })
            .collect();
        // Without exporters nothing is sampled.
        let samples = own.is_some() || !sets.is_empty();
        let explicit_drops = samples && explicit_drops(rows.root);
        IpfixSettings { bridge: own.map(|row| bridge_sampling(reader, &what, row)), sets, explicit_drops }
    }

    fn apply(&mut self, spec: &IpfixSettings, target: &mut BridgeTarget<'_>) {
        target.running.ofproto.set_ipfix(spec.clone());
    }
}

fn bridge_sampling(reader: &Reader<'_>, what: &str, row: Row<'_, db::Ipfix>) -> BridgeSampling {
    let what = format!("{what}: IPFIX");
    let config = row.get(ipfix::OTHER_CONFIG);
    let number = |column: Column<db::Ipfix, Option<i64>>| row.get(column).and_then(|n| u32::try_from(n).ok());
    let flag = |key| reader.checked(&what, config, key, "true or false", |v| v.parse().ok()).unwrap_or(true);
    BridgeSampling {
        exporter: exporter(reader, &what, row),
        sampling: number(ipfix::SAMPLING).unwrap_or(SAMPLING).max(1),
        domain: number(ipfix::OBS_DOMAIN_ID).unwrap_or(0),
        point: number(ipfix::OBS_POINT_ID).unwrap_or(0),
        ingress: flag("enable-input-sampling"),
        egress: flag("enable-output-sampling"),
    }
}

fn exporter(reader: &Reader<'_>, what: &str, row: Row<'_, db::Ipfix>) -> ExporterSettings {
    let number = |column: Column<db::Ipfix, Option<i64>>| row.get(column).and_then(|n| u32::try_from(n).ok());
    let targets = row.get(ipfix::TARGETS).into_iter().filter_map(|text| {
        let target = target(text);
        if target.is_none() {
            reader.warn(format!("{what}: target \"{text}\" is no address with a port"));
        }
        target
    });
    let config = row.get(ipfix::OTHER_CONFIG);
    let virtual_obs_id = config.get("virtual_obs_id").filter(|id| {
        let fits = id.len() <= OBS_ID_MAX;
        if !fits {
            reader.warn(format!("{what}: virtual_obs_id is longer than {OBS_ID_MAX} bytes and is left out"));
        }
        fits
    });
    let default = ExporterSettings::default();
    ExporterSettings {
        targets: targets.collect(),
        template_secs: number(ipfix::TEMPLATE_INTERVAL).unwrap_or(default.template_secs),
        stats_secs: number(ipfix::STATS_INTERVAL).unwrap_or(default.stats_secs),
        active_timeout_secs: number(ipfix::CACHE_ACTIVE_TIMEOUT).unwrap_or(0),
        flows_max: number(ipfix::CACHE_MAX_FLOWS).unwrap_or(0),
        virtual_obs_id: virtual_obs_id.map(str::to_owned),
        // As in Open vSwitch, other values than this one mean true.
        tunnels: !config.get("enable-tunnel-sampling").is_some_and(|value| value.eq_ignore_ascii_case("false")),
    }
}

/// A collector's address, with or without a port.
fn target(text: &str) -> Option<SocketAddr> {
    let alone = || text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    text.parse().ok().or_else(|| alone().map(|ip| SocketAddr::new(ip, PORT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_may_leave_the_port_out() {
        assert_eq!(target("10.0.0.1:99"), Some(([10, 0, 0, 1], 99).into()));
        assert_eq!(target("10.0.0.1"), Some(([10, 0, 0, 1], 4739).into()));
        assert_eq!(target("[::1]:99").map(|t| (t.is_ipv6(), t.port())), Some((true, 99)));
        assert_eq!(target("[::1]").map(|t| (t.is_ipv6(), t.port())), Some((true, 4739)));
        for wrong in ["", "collector:99", "10.0.0.1:", "10.0.0.1:65536", "10.0.0:1", "udp:10.0.0.1:99"] {
            assert_eq!(target(wrong), None, "{wrong}");
        }
    }
}
