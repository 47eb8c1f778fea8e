//! Tunnels as translations see them: the tunnel ports of all bridges, what the host receives for them, and the way of outer packets.

use crate::model::BridgeId;
use crate::verdict::Resolve;
use arc_swap::ArcSwap;
use base::{DpPort, MacAddr, Millis, PortNo};
use flow::{FlowKey, ReceivedOptions};
use parking_lot::RwLock;
use routes::Learning;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use tunnel::TunnelType;
use tunnel::options::Config;
use tunnel::ports::{Consulted, Ports};

/// The tunnels of a datapath. A change of ports or endpoints is made first and reported afterwards ([`crate::Dependency::Tunnels`]).
#[derive(Debug, Default)]
pub struct Tunnels {
    /// The tunnel ports of all bridges, by bridge and OpenFlow port.
    pub ports: RwLock<Ports<(BridgeId, PortNo)>>,
    endpoints: ArcSwap<Vec<Endpoint>>,
    received: ArcSwap<ReceivedOptions>,
    underlay: OnceLock<Arc<dyn Underlay>>,
}

impl Tunnels {
    /// Sets routes, addresses and neighbours, once; without them, no packet leaves through a tunnel.
    pub fn set_underlay(&self, underlay: Arc<dyn Underlay>) {
        _ = self.underlay.set(underlay);
    }

    /// Routes, addresses and neighbours.
    pub fn underlay(&self) -> Option<&Arc<dyn Underlay>> {
        self.underlay.get()
    }

    /// Sets which packets to the host's addresses belong to tunnels.
    pub fn set_endpoints(&self, endpoints: Vec<Endpoint>) {
        self.endpoints.store(Arc::new(endpoints));
    }

    /// The packets to the host's addresses that belong to tunnels.
    pub fn endpoints(&self) -> arc_swap::Guard<Arc<Vec<Endpoint>>> {
        self.endpoints.load()
    }

    /// Sets the options that keys of received packets have. Returns whether they are others than before.
    pub fn set_received_options(&self, options: Arc<ReceivedOptions>) -> bool {
        *self.received.swap(Arc::clone(&options)) != *options
    }

    /// The options that keys of received packets have.
    pub fn received_options(&self) -> arc_swap::Guard<Arc<ReceivedOptions>> {
        self.received.load()
    }

    /// The bridge and port that packets with this key from the datapath's port of tunnels belong to.
    pub fn owner(&self, dp_port: DpPort, key: &FlowKey) -> Option<(BridgeId, PortNo)> {
        self.find(dp_port, key).0.map(|(id, _)| id)
    }

    /// The same with the configuration of the port, and the fields that decided. Interfaces of GRE and ERSPAN over IPv6 may be
    /// behind the port of either family.
    pub(crate) fn find(&self, dp_port: DpPort, key: &FlowKey) -> (Option<Owner>, Consulted) {
        let (received, packet_type) = (crate::tunnel::received(key), crate::tunnel::packet_type_of(key));
        let ports = self.ports.read();
        let (mut found, mut consulted) = ports.find(dp_port, &received, packet_type);
        if found.is_none()
            && let Some(other) = self.of_other_family(dp_port)
        {
            let (of_other, of_it) = ports.find(other, &received, packet_type);
            (found, consulted) = (of_other, consulted.or(of_it));
        }
        (found.map(|port| (port.id, Arc::clone(&port.config))), consulted)
    }

    /// The datapath's port for the same packets over the other version of IP.
    fn of_other_family(&self, dp_port: DpPort) -> Option<DpPort> {
        let endpoints = self.endpoints.load();
        let other = match endpoints.iter().find(|of| of.dp_port == dp_port)?.tunnel_type {
            TunnelType::Gre => TunnelType::Ip6Gre,
            TunnelType::Ip6Gre => TunnelType::Gre,
            TunnelType::Erspan => TunnelType::Ip6Erspan,
            TunnelType::Ip6Erspan => TunnelType::Erspan,
            _ => return None,
        };
        endpoints.iter().find(|of| of.tunnel_type == other).map(|of| of.dp_port)
    }

    /// Returns true for the datapath's port of tunnels.
    pub fn has(&self, port: DpPort) -> bool {
        self.endpoints.load().iter().any(|endpoint| endpoint.dp_port == port)
    }
}

/// The bridge and port that packets of a tunnel belong to, with the port's configuration.
pub(crate) type Owner = ((BridgeId, PortNo), Arc<Config>);

/// Packets to the host's addresses that belong to tunnels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Their IP protocol.
    pub proto: u8,
    /// The type of their interfaces.
    pub tunnel_type: TunnelType,
    /// Their UDP destination port, if the protocol is UDP.
    pub udp_port: Option<u16>,
    /// The datapath's port of their tunnels.
    pub dp_port: DpPort,
}

/// Where an outer packet goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The bridge whose own port sends it, by name.
    pub bridge: Arc<str>,
    /// The source address.
    pub src: IpAddr,
    /// The next hop; `None` if the destination is a neighbour.
    pub gateway: Option<IpAddr>,
}

/// The host's routes, addresses and neighbours. A translation that asks has a dependency on the answer
/// ([`crate::Dependency::Route`], [`crate::Dependency::Neighbour`]); the caller translates anew when it changes.
pub trait Underlay: Debug + Send + Sync {
    /// The route to an address, of packets with a mark of the host (`pkt_mark`). `src` limits the source address.
    fn route(&self, dst: IpAddr, src: Option<IpAddr>, mark: u32) -> Option<Route>;

    /// The Ethernet address of a neighbour at a bridge; `None` while it is unknown.
    fn neighbour(&self, bridge: &str, ip: IpAddr) -> Option<MacAddr>;

    /// Whether a neighbour was asked for its Ethernet address and may still answer, for traces.
    fn is_asked(&self, bridge: &str, ip: IpAddr) -> bool;

    /// Asks for the Ethernet address of a neighbour that packets wait for, unless that was done recently.
    fn resolve(&self, neighbour: &Resolve);

    /// Notes that packets were sent to a neighbour.
    fn used(&self, bridge: &str, ip: IpAddr);

    /// Learns the Ethernet address of a neighbour at a bridge, from a packet that arrived at a time.
    fn learn(&self, bridge: &str, ip: IpAddr, mac: MacAddr, learning: Learning, at: Millis);

    /// Returns true for an address of a bridge's own port.
    fn is_local(&self, bridge: &str, ip: IpAddr) -> bool;
}
