//! Tunnel interfaces: their configuration, and the datapath's ports that they share.
//!
//! Interfaces of one type and UDP port share a port of the datapath, which exists as long as one of them does. An interface receives
//! packets once it is registered under its OpenFlow port.

use crate::devices::Dp;
use crate::features::identity;
use base::{DpPort, PortNo};
use dpif::{Dpif, DpifError};
use netdev::{Netdev, Queueless};
use ofproto::{Change, Switch};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tunnel::TunnelType;
use tunnel::header::Pop;
use tunnel::header::bareudp::Payload;
use tunnel::options::{Config, OptionError};
use tunnel::ports::{Conflict, Port};
use xlate::{BridgeId, Endpoint};

/// IP protocols of tunnels.
const UDP: u8 = 17;
const GRE: u8 = 47;
const IPV4: u8 = 4;
const IPV6: u8 = 41;
/// The Ethernet type of MPLS, the payload of some bareudp tunnels.
const MPLS: u16 = 0x8847;

/// Why there is no tunnel interface.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// Its options are not acceptable.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The datapath's port could not be added.
    #[error(transparent)]
    Port(#[from] DpifError),
}

/// The ports of tunnels of a datapath, by name.
#[derive(Debug, Default)]
pub struct TunnelPorts(Mutex<BTreeMap<String, Weak<SharedPort>>>);

/// A port of a datapath for tunnels. When the last interface drops it, it is removed.
#[derive(Debug)]
struct SharedPort {
    name: String,
    number: DpPort,
    endpoints: Vec<(u8, Option<u16>)>,
    dpif: Arc<dyn Dpif>,
    switch: Arc<Switch>,
    all: Arc<TunnelPorts>,
}

/// A tunnel interface.
#[derive(Debug)]
pub struct TunnelInterface {
    device: Arc<dyn Netdev>,
    options: BTreeMap<String, String>,
    config: Arc<Config>,
    port: Arc<SharedPort>,
    /// Where it is registered.
    registered: Option<(BridgeId, PortNo)>,
}

impl TunnelInterface {
    /// Opens an interface, and the datapath's port if it is the first of its kind.
    ///
    /// # Errors
    ///
    /// If its options are not acceptable, or the datapath refuses the port.
    pub fn open(
        name: &str,
        kind: TunnelType,
        options: &BTreeMap<String, String>,
        dp: &Dp,
    ) -> Result<Self, TunnelError> {
        let parsed = Config::parse(name, kind, options).inspect_err(|error| {
            if let OptionError::Invalid { address_errors, .. } = error {
                log_address_errors(address_errors);
            }
        })?;
        log_address_errors(&parsed.address_errors);
        if !parsed.warnings.is_empty() {
            tracing::warn!(target: "netdev_vport", "{}", parsed.warnings.join("\n"));
        }
        let config = Arc::new(parsed.config);
        for other in dp.switch.network().tunnels.ports.read().iter() {
            config.shares_port(name, &other.config)?;
        }
        let port = SharedPort::open(&config, dp)?;
        let device = Arc::new(Queueless::new(name, kind.name(), identity::made_up_mac(name)));
        Ok(Self { device, options: options.clone(), config, port, registered: None })
    }

    /// Its device, which has no queues.
    pub fn device(&self) -> &Arc<dyn Netdev> {
        &self.device
    }

    /// The options that it was opened with.
    pub fn options(&self) -> &BTreeMap<String, String> {
        &self.options
    }

    /// Its configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The datapath's port.
    pub fn port(&self) -> DpPort {
        self.port.number
    }

    /// Has it receive packets as a port of a bridge.
    ///
    /// # Errors
    ///
    /// If another interface receives the same packets.
    pub fn register(&mut self, id: (BridgeId, PortNo)) -> Result<(), Conflict> {
        if self.registered == Some(id) {
            return Ok(());
        }
        self.unregister();
        let (name, config) = (self.device.name().into(), Arc::clone(&self.config));
        let port = Port { id, name, datapath_port: self.port.number, config };
        let registered = self.port.switch.network().tunnels.ports.write().set(port);
        if registered.is_ok() {
            self.registered = Some(id);
            self.port.switch.changed(Change::Tunnels);
        }
        registered
    }

    fn unregister(&mut self) {
        if let Some(id) = self.registered.take() {
            self.port.switch.network().tunnels.ports.write().remove(id);
            self.port.switch.changed(Change::Tunnels);
        }
    }
}

impl Drop for TunnelInterface {
    fn drop(&mut self) {
        self.unregister();
    }
}

fn log_address_errors(errors: &[String]) {
    errors.iter().for_each(|error| tracing::error!(target: "socket_util", "{error}"));
}

impl SharedPort {
    fn open(config: &Config, dp: &Dp) -> Result<Arc<Self>, DpifError> {
        let wanted = config.datapath_port();
        let mut all = dp.tunnel_ports.0.lock();
        if let Some(port) = all.get(&wanted.name).and_then(Weak::upgrade) {
            return Ok(port);
        }
        let device = Arc::new(Queueless::new(&wanted.name, config.tunnel_type.name(), base::MacAddr::ZERO));
        let requested = wanted.preferred.map(|port| DpPort(port.into()));
        let number = dp.dpif.tunnel_add(device, headers_of(config), requested)?;
        let port = Arc::new(Self {
            name: wanted.name.clone(),
            number,
            endpoints: endpoints_of(config),
            dpif: Arc::clone(&dp.dpif),
            switch: Arc::clone(&dp.switch),
            all: Arc::clone(&dp.tunnel_ports),
        });
        all.insert(wanted.name, Arc::downgrade(&port));
        publish(&all, &dp.switch);
        Ok(port)
    }
}

impl Drop for SharedPort {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        // Another one may have taken its name meanwhile.
        if all.get(&self.name).is_some_and(|port| port.strong_count() == 0) {
            all.remove(&self.name);
        }
        publish(&all, &self.switch);
        if let Err(error) = self.dpif.port_del(self.number) {
            tracing::warn!(target: "bridge", "could not remove port {}: {error}", self.name);
        }
    }
}

/// Has the translations know the ends of tunnels.
fn publish(all: &BTreeMap<String, Weak<SharedPort>>, switch: &Switch) {
    let of_port = |port: Arc<SharedPort>| -> Vec<Endpoint> {
        let endpoint = |(proto, udp_port): &(u8, Option<u16>)| Endpoint {
            proto: *proto,
            udp_port: *udp_port,
            dp_port: port.number,
        };
        port.endpoints.iter().map(endpoint).collect()
    };
    let endpoints = all.values().filter_map(Weak::upgrade).flat_map(of_port).collect();
    switch.network().tunnels.set_endpoints(endpoints);
    switch.changed(Change::Tunnels);
}

/// The headers that the datapath pops for a tunnel.
fn headers_of(config: &Config) -> Pop {
    match config.tunnel_type {
        TunnelType::Vxlan => Pop::Vxlan { group_policy: config.group_policy },
        TunnelType::Geneve => Pop::Geneve,
        TunnelType::Gre | TunnelType::Ip6Gre => Pop::Gre,
        TunnelType::Erspan | TunnelType::Ip6Erspan => Pop::Erspan,
        TunnelType::Gtpu => Pop::Gtpu,
        TunnelType::Srv6 => Pop::Srv6,
        TunnelType::Bareudp if config.payload_type == MPLS => Pop::Bareudp(Payload::Mpls),
        TunnelType::Bareudp => Pop::Bareudp(Payload::Ip),
    }
}

/// The IP protocols of a tunnel's packets, and their UDP destination port.
fn endpoints_of(config: &Config) -> Vec<(u8, Option<u16>)> {
    match config.tunnel_type {
        TunnelType::Vxlan | TunnelType::Geneve | TunnelType::Gtpu | TunnelType::Bareudp => {
            vec![(UDP, Some(config.dst_port))]
        }
        TunnelType::Gre | TunnelType::Ip6Gre | TunnelType::Erspan | TunnelType::Ip6Erspan => vec![(GRE, None)],
        // Behind the routing header, which a key does not show.
        TunnelType::Srv6 => vec![(IPV4, None), (IPV6, None)],
    }
}
