//! What the commands `ofproto/list-tunnels` and `tnl/ports/show` print.
//!
//! Open vSwitch has no JSON form of them: with `--format json` its reply contains the plain text.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};
use std::hash::Hash;
use std::net::IpAddr;

use base::{DpPort, MacAddr};

use super::Ports;
use crate::TunnelType;
use crate::options::address_text;

/// IP protocols of outer packets.
const UDP: u8 = 17;
const GRE: u8 = 47;
const IPV4: u8 = 4;
const IPV6: u8 = 41;

/// A port in `ofproto/list-tunnels`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The port of the datapath.
    pub datapath_port: DpPort,
    /// The interface's name.
    pub name: String,
    /// Its configuration, as `vxlan: ::->1.2.3.4, key=0, legacy_l2, dp port=4789, ttl=64`.
    pub description: String,
}

impl Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}: {} ({})", self.datapath_port.0, self.name, self.description)
    }
}

/// A match of outer packets that the datapath hands to one of its ports, at each local address (`tnl/ports/show`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// The name of the datapath's port.
    pub name: String,
    /// Its number.
    pub datapath_port: DpPort,
    /// The number of interfaces that share it.
    pub references: usize,
    /// IP protocol.
    pub protocol: u8,
    /// UDP destination port. `None` matches all, also for protocol UDP, where an interface has the port 0.
    pub udp_port: Option<u16>,
}

/// An address at which tunnels end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalAddress {
    /// The Ethernet address of the device with the IP address.
    pub mac: MacAddr,
    /// The IP address.
    pub ip: IpAddr,
}

impl TunnelType {
    /// IP protocols of received packets.
    pub fn protocols(self) -> &'static [u8] {
        match self {
            Self::Vxlan | Self::Geneve | Self::Gtpu | Self::Bareudp => &[UDP],
            Self::Gre | Self::Ip6Gre | Self::Erspan | Self::Ip6Erspan => &[GRE],
            Self::Srv6 => &[IPV4, IPV6],
        }
    }
}

impl<Id: Copy + Eq + Hash> Ports<Id> {
    /// The rows of `ofproto/list-tunnels`. Open vSwitch sorts them by precedence, and leaves open how within a class; here
    /// the datapath's port and the name decide.
    pub fn rows(&self) -> Vec<Row> {
        let row = |port: &super::Port<Id>| Row {
            datapath_port: port.datapath_port,
            name: port.name.to_string(),
            description: port.config.description(port.datapath_port.0),
        };
        self.by_precedence().into_iter().map(row).collect()
    }

    /// The matches of outer packets, sorted by the datapath's port.
    pub fn listeners(&self) -> Vec<Listener> {
        let mut by_port: BTreeMap<DpPort, Vec<Listener>> = BTreeMap::new();
        for port in self.iter() {
            let config = &port.config;
            let listeners = by_port.entry(port.datapath_port).or_insert_with(|| {
                let name = config.datapath_port().name;
                let listener = |protocol: &u8| Listener {
                    name: name.clone(),
                    datapath_port: port.datapath_port,
                    references: 0,
                    protocol: *protocol,
                    udp_port: (*protocol == UDP && config.dst_port != 0).then_some(config.dst_port),
                };
                config.tunnel_type.protocols().iter().map(listener).collect()
            });
            for listener in listeners {
                listener.references += 1;
            }
        }
        by_port.into_values().flatten().collect()
    }
}

/// The text of `ofproto/list-tunnels`: a line for each row of all datapaths.
pub fn rows_text(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{row}");
    }
    out
}

/// The text of `tnl/ports/show`.
pub fn listeners_text(listeners: &[Listener]) -> String {
    let mut out = String::from("Listening ports:\n");
    for Listener { name, datapath_port, references, .. } in listeners {
        let _ = writeln!(out, "{name} ({}) ref_cnt={references}", datapath_port.0);
    }
    out
}

/// The text of `tnl/ports/show -v`: each match at each address, IPv4 before IPv6.
pub fn listeners_verbose_text(listeners: &[Listener], addresses: &[LocalAddress]) -> String {
    let mut out = String::from("Listening ports:\n");
    for Listener { name, datapath_port, protocol, udp_port, .. } in listeners {
        let of_family = |is_v6| addresses.iter().filter(move |address| address.ip.is_ipv6() == is_v6);
        for LocalAddress { mac, ip } in of_family(false).chain(of_family(true)) {
            let (ethertype, family) = if ip.is_ipv6() { ("0x86dd", "ipv6") } else { ("0x0800", "ipv4") };
            let _ = write!(
                out,
                "{name} ({}) : eth(dst={mac}),eth_type({ethertype}),{family}(dst={},proto={protocol},frag=no)",
                datapath_port.0,
                address_text(*ip)
            );
            let _ = match udp_port {
                Some(port) => writeln!(out, ",udp(dst={port})"),
                None => writeln!(out),
            };
        }
    }
    out
}
