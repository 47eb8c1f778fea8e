//! sFlow: Bridge:sflow and the table sFlow, to the settings of the bridge's agent.

use super::collectors::{explicit_drops, targets};
use crate::commands;
use crate::devices::Devices;
use crate::feature::Feature;
use crate::levels::{BridgeLevel, BridgeRows, BridgeTarget};
use crate::reader::Reader;
use crate::running::RunningBridge;
use ::sflow::agent::{HEADER, HEADER_MAX, POLLING_SECS, SAMPLING};
use ofproto::SflowSettings;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{self as db, bridge, open_vswitch, sflow};
use ovsdb_client::typed::{AnyColumn, Row};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use unixctl::Commands;

/// The port of collectors unless one is named (registered with IANA).
const PORT: u16 = 6343;

/// The sFlow agent of a bridge.
#[derive(Debug, Default)]
pub struct Sflow;

/// What a row says of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SflowSpec {
    /// Collectors.
    pub targets: BTreeSet<SocketAddr>,
    /// The agent's address, or a device that has it.
    pub agent: Option<String>,
    /// One packet of so many is sampled, 0 for none.
    pub sampling: u32,
    /// Bytes of a packet in a sample.
    pub header_bytes: u32,
    /// Interval of counter samples in seconds, 0 for none.
    pub polling_secs: u32,
    /// True if a drop follows the actions of sampled packets.
    pub explicit_drops: bool,
}

impl Feature for Sflow {
    type Level = BridgeLevel;
    /// `None` without an agent.
    type Spec = Option<SflowSpec>;
    const NAME: &'static str = "sflow";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        bridge { NAME, SFLOW }
        sflow { TARGETS, AGENT, SAMPLING, HEADER, POLLING }
        open_vswitch { OTHER_CONFIG }
    };

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> Option<SflowSpec> {
        let row = rows.bridge.get(bridge::SFLOW).and_then(|row| reader.find(row))?;
        spec(reader, &format!("{}: sFlow", rows.what()), row, explicit_drops(rows.root))
    }

    fn apply(&mut self, spec: &Option<SflowSpec>, target: &mut BridgeTarget<'_>) {
        let settings = spec.as_ref().and_then(|spec| settings(spec, target.running));
        target.running.ofproto.set_sflow(settings);
    }

    fn commands(commands: &Commands, devices: &Arc<Devices>) {
        commands::flow_monitoring::register(commands, devices);
    }
}

fn spec(reader: &Reader<'_>, what: &str, row: Row<'_, db::SFlow>, explicit_drops: bool) -> Option<SflowSpec> {
    let number = |column: &str, value: Option<i64>, default: u32, max: u32| match value {
        None => default,
        Some(value) => u32::try_from(value).ok().filter(|value| *value <= max).unwrap_or_else(|| {
            reader.warn(format!("{what}: {column} is {value}, which is not between 0 and {max}; {default} is used"));
            default
        }),
    };
    let targets = targets(reader, what, row.get(sflow::TARGETS), Some(PORT));
    if targets.is_empty() {
        reader.warn(format!("{what}: there is no collector, sFlow is disabled"));
        return None;
    }
    Some(SflowSpec {
        targets,
        agent: row.get(sflow::AGENT).map(str::to_owned),
        sampling: number("sampling", row.get(sflow::SAMPLING), SAMPLING, u32::MAX),
        header_bytes: number("header", row.get(sflow::HEADER), HEADER, HEADER_MAX),
        polling_secs: number("polling", row.get(sflow::POLLING), POLLING_SECS, u32::MAX / 1000),
        explicit_drops,
    })
}

/// The settings of an agent, if it has an address.
fn settings(spec: &SflowSpec, running: &RunningBridge) -> Option<SflowSettings> {
    let SflowSpec { targets, agent, sampling, header_bytes, polling_secs, explicit_drops } = spec.clone();
    let Some(agent) = address(agent.as_deref(), &targets, running) else {
        let who = agent.map_or_else(String::new, |agent| format!(" (agent \"{agent}\")"));
        tracing::error!(target: "sflow", "could not determine IP address for sFlow agent{who}");
        return None;
    };
    Some(SflowSettings { targets, agent, sampling, header_bytes, polling_secs, explicit_drops })
}

/// The address that an agent's column states: an address, that of a device, or by default that of the route to a collector.
fn address(agent: Option<&str>, targets: &BTreeSet<SocketAddr>, running: &RunningBridge) -> Option<IpAddr> {
    match agent {
        Some(agent) => agent.parse().ok().or_else(|| {
            let addresses = running.addresses_of(agent);
            addresses.iter().find(|ip| ip.is_ipv4()).or(addresses.first()).copied()
        }),
        None => targets.iter().find_map(source_of_route),
    }
}

/// The source address of packets to a collector. (A socket that is connected has it; nothing is sent.)
fn source_of_route(target: &SocketAddr) -> Option<IpAddr> {
    let unspecified = if target.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((unspecified, 0)).ok()?;
    socket.connect(target).ok()?;
    socket.local_addr().ok().map(|local| local.ip()).filter(|ip| !ip.is_unspecified())
}
