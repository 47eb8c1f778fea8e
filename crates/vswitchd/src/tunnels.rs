//! Tunnel interfaces: their configuration, and the datapath's ports that they share.
//!
//! Interfaces of one type and UDP port share a port of the datapath, which exists as long as one of them does. An interface receives
//! packets once it is registered under its OpenFlow port.

use crate::devices::Dp;
use crate::features::identity;
use crate::underlay::HostUnderlay;
use base::{DpPort, PortNo};
use dpif::{Dpif, DpifError};
use netdev::{Netdev, Queueless};
use ofproto::{Change, Switch};
use parking_lot::Mutex;
use routes::Query;
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
    /// Another interface receives the same packets.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Another interface receives packets of another sort on the UDP port.
    #[error("{name}: another interface has UDP port {udp_port} for another payload")]
    OtherPayload {
        /// The interface.
        name: String,
        /// The UDP port.
        udp_port: u16,
    },
    /// The datapath's port could not be added.
    #[error(transparent)]
    Port(#[from] DpifError),
}

/// The ports of tunnels of a datapath, by name.
#[derive(Debug, Default)]
pub struct TunnelPorts(Mutex<BTreeMap<String, Weak<SharedPort>>>);

/// The datapath of a tunnel, with its switch and the ports of all tunnels.
#[derive(Clone, Debug)]
struct Home {
    dpif: Arc<dyn Dpif>,
    switch: Arc<Switch>,
    all: Arc<TunnelPorts>,
}

/// A port of a datapath for tunnels. When the last interface drops it, it is removed.
#[derive(Debug)]
struct SharedPort {
    name: String,
    number: DpPort,
    tunnel_type: TunnelType,
    headers: Pop,
    endpoints: Vec<(u8, Option<u16>)>,
    settings: Vec<(&'static str, String)>,
    home: Home,
}

impl TunnelPorts {
    /// The name of the port with this number.
    pub fn name(&self, number: DpPort) -> Option<String> {
        // A port that is the last to be dropped here takes the lock.
        let all: Vec<Arc<SharedPort>> = self.0.lock().values().filter_map(Weak::upgrade).collect();
        all.into_iter().find(|port| port.number == number).map(|port| port.name.clone())
    }

    /// The settings of a port, as options of an interface. Empty for other ports.
    pub fn settings(&self, name: &str) -> Vec<(&'static str, String)> {
        let port = self.0.lock().get(name).and_then(Weak::upgrade);
        port.map_or_else(Vec::new, |port| port.settings.clone())
    }
}

/// A tunnel interface.
#[derive(Debug)]
pub struct TunnelInterface {
    device: Arc<dyn Netdev>,
    options: BTreeMap<String, String>,
    config: Arc<Config>,
    port: Arc<SharedPort>,
    underlay: Arc<HostUnderlay>,
    /// Where it is registered with its present configuration.
    registered: Option<(BridgeId, PortNo)>,
    /// Why it could not be registered.
    conflict: Option<Conflict>,
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
        underlay: &Arc<HostUnderlay>,
    ) -> Result<Self, TunnelError> {
        let home =
            Home { dpif: Arc::clone(&dp.dpif), switch: Arc::clone(&dp.switch), all: Arc::clone(&dp.tunnel_ports) };
        let config = configure(name, kind, options)?;
        let port = SharedPort::open(name, &config, &home)?;
        home.switch.network().tunnels.ports.read().check(port.number, name, &config)?;
        let device = Arc::new(Queueless::new(name, kind.name(), identity::made_up_mac(name)));
        let (options, underlay) = (options.clone(), Arc::clone(underlay));
        Ok(Self { device, options, config, port, underlay, registered: None, conflict: None })
    }

    /// Takes other options without being closed, if it can. It is to be registered again.
    pub fn set_options(&mut self, kind: TunnelType, options: &BTreeMap<String, String>) -> bool {
        if self.options == *options {
            return true;
        }
        let Ok(config) = configure(self.device.name(), kind, options) else { return false };
        if config.datapath_port().name != self.port.name {
            let Ok(port) = SharedPort::open(self.device.name(), &config, &self.port.home) else { return false };
            self.unregister();
            self.port = port;
        } else if headers_of(&config) != self.port.headers {
            // The port of the datapath is another one.
            return false;
        }
        self.unregister();
        (self.options, self.config) = (options.clone(), config);
        true
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

    /// Assigns received packets to it as a port of a bridge, unless another interface receives the same packets: see
    /// [`TunnelInterface::conflict`].
    pub fn register(&mut self, id: (BridgeId, PortNo)) {
        if self.registered == Some(id) {
            return;
        }
        self.unregister();
        let (name, config) = (self.device.name().into(), Arc::clone(&self.config));
        let port = Port { id, name, datapath_port: self.port.number, config };
        let switch = &self.port.home.switch;
        match switch.network().tunnels.ports.write().set(port) {
            Ok(()) => (self.registered, self.conflict) = (Some(id), None),
            Err(conflict) => {
                if self.conflict.as_ref() != Some(&conflict) {
                    tracing::warn!(target: "tunnel", "{conflict}");
                }
                self.conflict = Some(conflict);
                return;
            }
        }
        switch.changed(Change::Tunnels);
    }

    fn unregister(&mut self) {
        if let Some(id) = self.registered.take() {
            let switch = &self.port.home.switch;
            switch.network().tunnels.ports.write().remove(id);
            switch.changed(Change::Tunnels);
        }
    }

    /// The interface that receives its packets, while one does.
    pub fn conflict(&self) -> Option<&Conflict> {
        self.conflict.as_ref()
    }

    /// The device that the route to its remote address leads over, and whether that has a carrier, if this is known.
    pub fn egress(&self) -> Option<(String, bool)> {
        let (remote, mark) = self.config.status_route();
        let query = Query { mark, ..Query::to(remote) };
        let (device, carrier) = self.underlay.with_router(|router| {
            let route = router.lookup(&query).route?;
            let carrier = router.carrier(&route.device);
            Some((route.device.to_string(), carrier))
        })?;
        let own = self.port.home.switch.bridge_named(&device).and_then(|bridge| bridge.port(PortNo::LOCAL));
        // A dummy that is set down has carrier, as in Open vSwitch.
        let has_carrier = |device: Arc<dyn Netdev>| device.kind().starts_with("dummy") || device.status().carrier;
        let own = own.and_then(|port| port.spec.device).map(has_carrier);
        Some((device, own.or(carrier).unwrap_or(false)))
    }
}

/// The configuration that the options of an interface give.
fn configure(name: &str, kind: TunnelType, options: &BTreeMap<String, String>) -> Result<Arc<Config>, OptionError> {
    let parsed = Config::parse(name, kind, options).inspect_err(|error| {
        if let OptionError::Invalid { address_errors, .. } = error {
            log_address_errors(address_errors);
        }
    })?;
    log_address_errors(&parsed.address_errors);
    if !parsed.warnings.is_empty() {
        tracing::warn!(target: "netdev_vport", "{}", parsed.warnings.join("\n"));
    }
    Ok(Arc::new(parsed.config))
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
    fn open(name: &str, config: &Config, home: &Home) -> Result<Arc<Self>, TunnelError> {
        let wanted = config.datapath_port();
        let headers = headers_of(config);
        let mut all = home.all.0.lock();
        if let Some(port) = all.get(&wanted.name).and_then(Weak::upgrade) {
            let (name, udp_port) = (name.into(), config.dst_port);
            return match headers {
                _ if port.headers == headers => Ok(port),
                Pop::Vxlan { .. } => Err(OptionError::GroupPolicyMixed { name }.into()),
                _ => Err(TunnelError::OtherPayload { name, udp_port }),
            };
        }
        let device = Arc::new(Queueless::new(&wanted.name, config.tunnel_type.name(), base::MacAddr::ZERO));
        let requested = wanted.preferred.map(|port| DpPort(port.into()));
        let number = home.dpif.tunnel_add(device, headers, requested)?;
        let (name, endpoints, home) = (wanted.name.clone(), endpoints_of(config), home.clone());
        let tunnel_type = config.tunnel_type;
        let port =
            Arc::new(Self { name, number, tunnel_type, headers, endpoints, settings: wanted.config.options(), home });
        all.insert(wanted.name, Arc::downgrade(&port));
        publish(&all, &port.home.switch);
        Ok(port)
    }
}

impl Drop for SharedPort {
    fn drop(&mut self) {
        let mut all = self.home.all.0.lock();
        // Another one may have taken its name meanwhile.
        if all.get(&self.name).is_some_and(|port| port.strong_count() == 0) {
            all.remove(&self.name);
        }
        publish(&all, &self.home.switch);
        if let Err(error) = self.home.dpif.port_del(self.number) {
            tracing::warn!(target: "bridge", "could not remove port {}: {error}", self.name);
        }
    }
}

/// Announces the endpoints of tunnels to the translations.
fn publish(all: &BTreeMap<String, Weak<SharedPort>>, switch: &Switch) {
    let of_port = |port: Arc<SharedPort>| -> Vec<Endpoint> {
        let endpoint = |(proto, udp_port): &(u8, Option<u16>)| Endpoint {
            proto: *proto,
            tunnel_type: port.tunnel_type,
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
