//! The configuration of bridges and ports, and the path costs that follow from link speeds.
//!
//! Invariants: settings that a bridge uses satisfy the relations between times of IEEE 802.1D-2004 17.14; each port of
//! a bridge has a number of its own.

use base::{MacAddr, PortNo};
use std::collections::{BTreeMap, BTreeSet};

/// The bridges that run a spanning tree protocol.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// By number.
    pub bridges: BTreeMap<u32, BridgeSettings>,
}

/// The configuration of a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BridgeSettings {
    /// Its name.
    pub name: String,
    /// Its protocol, with the parameters.
    pub flavour: Flavour,
    /// Its ports that take part, by OpenFlow number.
    pub ports: BTreeMap<PortNo, PortSettings>,
    /// Its other ports. They receive no BPDUs, and forget addresses when the topology changes.
    pub bystanders: BTreeSet<PortNo>,
}

/// The protocol of a bridge and its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// STP.
    Stp(StpSettings),
    /// RSTP.
    Rstp(RstpSettings),
}

/// Parameters of STP (IEEE 802.1D-1998 8.5.3). Times out of range are moved to the nearest one that is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StpSettings {
    /// The address in the bridge identifier.
    pub address: MacAddr,
    /// The priority in the bridge identifier.
    pub priority: u16,
    /// Hello time in seconds, 1 to 10.
    pub hello_time_s: u64,
    /// Maximum age in seconds, 6 to 40.
    pub max_age_s: u64,
    /// Forward delay in seconds, 4 to 30.
    pub forward_delay_s: u64,
}

impl StpSettings {
    /// The defaults of the standard.
    pub fn new(address: MacAddr) -> Self {
        Self { address, priority: 0x8000, hello_time_s: 2, max_age_s: 20, forward_delay_s: 15 }
    }

    /// Hello time, maximum age and forward delay in seconds, within their ranges and with
    /// 2 × (hello time + 1) ≤ maximum age ≤ 2 × (forward delay - 1): a maximum age raises the forward delay, and is
    /// raised by the hello time.
    pub fn times_s(&self) -> (u8, u8, u8) {
        let hello = self.hello_time_s.clamp(1, 10);
        let max_age = self.max_age_s.clamp(6.max(2 * (hello + 1)), 40);
        let forward_delay = self.forward_delay_s.clamp((max_age / 2 + 1).max(4), 30);
        (hello as u8, max_age as u8, forward_delay as u8)
    }
}

/// Parameters of RSTP (IEEE 802.1D-2004 17.14).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RstpSettings {
    /// The address in the bridge identifier.
    pub address: MacAddr,
    /// The priority in the bridge identifier; the lower 12 bits are ignored.
    pub priority: u16,
    /// Maximum age in seconds, 6 to 40; a value that does not fit with the forward delay is ignored.
    pub max_age_s: u64,
    /// Forward delay in seconds, 4 to 30; a value that does not fit with the maximum age is ignored.
    pub forward_delay_s: u64,
    /// BPDUs that a port sends at most in a second, 1 to 10; other values are ignored.
    pub transmit_hold_count: u64,
    /// Send the BPDUs of STP only (force protocol version 0).
    pub version: Version,
}

/// The protocol version that a bridge with RSTP uses (IEEE 802.1D-2004 17.13.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// STP compatibility: the bridge sends no RST BPDUs, and makes no rapid transitions.
    StpCompatible,
    /// Normal operation.
    #[default]
    Rapid,
}

impl RstpSettings {
    /// The defaults of the standard.
    pub fn new(address: MacAddr) -> Self {
        Self {
            address,
            priority: 0x8000,
            max_age_s: 20,
            forward_delay_s: 15,
            transmit_hold_count: 6,
            version: Version::Rapid,
        }
    }
}

/// The configuration of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSettings {
    /// Its name.
    pub name: String,
    /// Its MAC address, the source of its BPDUs.
    pub mac: MacAddr,
    /// The number in its port identifier: up to 255 with STP, 4095 with RSTP. `None` for any free one.
    pub number: Option<u16>,
    /// The priority in its port identifier; with RSTP, values above 240 are ignored.
    pub priority: u8,
    /// Its path cost.
    pub path_cost: u32,
    /// Whether its link is up, and the port is not administratively down.
    pub is_up: bool,
    /// Whether its link connects exactly two bridges. Only RSTP uses this and the following ones.
    pub point_to_point: bool,
    /// Whether to assume that no bridge is connected, until a BPDU arrives.
    pub admin_edge: bool,
    /// Whether to detect that no bridge is connected.
    pub auto_edge: bool,
    /// A change from false to true tests whether all bridges with STP are gone from the link.
    pub mcheck: bool,
}

impl PortSettings {
    /// The defaults: a port that is up, without a number, with the given path cost.
    pub fn new(name: &str, mac: MacAddr, path_cost: u32) -> Self {
        Self {
            name: name.to_owned(),
            mac,
            number: None,
            priority: 0x80,
            path_cost,
            is_up: true,
            point_to_point: true,
            admin_edge: false,
            auto_edge: true,
            mcheck: false,
        }
    }
}

/// The speed of a link that reports none, in Mb/s.
pub const DEFAULT_MBPS: u64 = 10_000;
/// The greatest path cost of RSTP (IEEE 802.1D-2004 table 17-3).
pub const RSTP_COST_MAX: u32 = 200_000_000;

/// The path cost of STP for a speed in Mb/s (IEEE 802.1D-1998 table 8-5).
pub fn stp_path_cost(mbps: u64) -> u32 {
    match mbps {
        10_000.. => 2,
        1_000.. => 4,
        100.. => 19,
        16.. => 62,
        10.. => 100,
        4.. => 250,
        _ => 19,
    }
}

/// The path cost of RSTP for a speed in Mb/s (IEEE 802.1D-2004 table 17-3).
pub fn rstp_path_cost(mbps: u64) -> u32 {
    match mbps {
        10_000_000.. => 2,
        1_000_000.. => 20,
        100_000.. => 200,
        10_000.. => 2_000,
        1_000.. => 20_000,
        100.. => 200_000,
        10.. => 2_000_000,
        1.. => 20_000_000,
        0 => RSTP_COST_MAX,
    }
}

/// Assigns a number to each port: the one that it is configured with, else the one that it has already, else the least
/// free one from 1 on. Of two ports that are configured with the same number, the one with the lower OpenFlow number gets
/// it. Ports for which no number up to `max` is left are missing in the result.
pub fn assign_numbers(
    ports: &BTreeMap<PortNo, PortSettings>,
    current: impl Fn(PortNo) -> Option<u16>,
    max: u16,
) -> BTreeMap<PortNo, u16> {
    let mut numbers = BTreeMap::new();
    let mut taken = vec![false; usize::from(max) + 1];
    taken[0] = true;
    let mut take = |port: PortNo, number: Option<u16>, numbers: &mut BTreeMap<PortNo, u16>| {
        let Some(number) = number.filter(|number| taken.get(usize::from(*number)) == Some(&false)) else { return };
        numbers.entry(port).or_insert_with(|| {
            taken[usize::from(number)] = true;
            number
        });
    };
    for (port, settings) in ports {
        take(*port, settings.number, &mut numbers);
    }
    for port in ports.keys() {
        take(*port, current(*port), &mut numbers);
    }
    let mut least = 1;
    for port in ports.keys() {
        while least <= max && !numbers.contains_key(port) {
            take(*port, Some(least), &mut numbers);
            least += 1;
        }
    }
    numbers
}
