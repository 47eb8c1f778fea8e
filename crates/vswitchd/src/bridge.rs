//! One running bridge: made to be what its row says, as often as that changes.

use crate::desired::{BridgeSpec, InterfaceSpec, PortSpec};
use crate::devices::{Attached, Devices, Dp};
use base::{MacAddr, PortNo};
use ofproto::conn::peer::PeerKind;
use ofproto::{BundleSpec, Identity, Ofproto, Service, ServiceConfig};
use openflow::flow_mod::{FlowMod, FlowModCommand};
use ovsdb::Uuid;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use xlate::PortOut;

/// The bridge and port of the peer, by the names of a patch port's interface and of the peer that it names.
pub type PeerOf<'a> = &'a dyn Fn(&str, &str) -> Option<(u32, PortNo)>;

/// A running bridge.
#[derive(Debug)]
pub struct RunningBridge {
    /// Type of its datapath.
    pub datapath_type: String,
    /// Its datapath.
    pub dp: Dp,
    /// The OpenFlow switch.
    pub ofproto: Arc<Ofproto>,
    /// Its interfaces by name.
    pub interfaces: BTreeMap<String, RunningInterface>,
    /// Its controllers' connections, by row.
    pub controllers: BTreeMap<Uuid, Controller>,
    sockets: Vec<Service>,
    had_controllers: Option<bool>,
    next_ofport: u16,
}

/// A controller's connection, or why there is none.
#[derive(Debug)]
pub struct Controller {
    config: ServiceConfig,
    /// The connection.
    pub service: Result<Service, String>,
}

/// An interface of a running bridge.
#[derive(Debug)]
pub struct RunningInterface {
    /// Its row.
    pub uuid: Uuid,
    /// Type and options that it was made for.
    kind: String,
    options: BTreeMap<String, String>,
    /// OpenFlow port number, if it has a port.
    pub ofport: Option<PortNo>,
    /// What is behind it, or why there is nothing.
    pub state: Result<Behind, String>,
}

/// What is behind an interface.
#[derive(Debug)]
pub enum Behind {
    /// A device.
    Device(Attached),
    /// A patch port to the interface of this name, with an address of its own.
    Patch(String, MacAddr),
}

impl Drop for RunningBridge {
    fn drop(&mut self) {
        self.dp.switch.del_bridge(self.ofproto.id());
    }
}

impl RunningBridge {
    /// Makes the bridge's switch, with its management and snooping sockets in `rundir`. Its ports come with
    /// [`RunningBridge::configure`].
    pub fn new(spec: &BridgeSpec, devices: &Devices, rundir: &Path) -> Result<Self, String> {
        let dp = devices.datapath(&spec.datapath_type)?;
        let ofproto = dp.switch.add_bridge(&spec.name);
        let mut bridge = Self {
            datapath_type: spec.datapath_type.clone(),
            dp,
            ofproto,
            interfaces: BTreeMap::new(),
            controllers: BTreeMap::new(),
            sockets: Vec::new(),
            had_controllers: None,
            next_ofport: 1,
        };
        bridge.listen(spec, rundir);
        Ok(bridge)
    }

    fn listen(&mut self, spec: &BridgeSpec, rundir: &Path) {
        for (suffix, kind) in [("mgmt", PeerKind::Service), ("snoop", PeerKind::Snoop)] {
            let config = ServiceConfig {
                target: format!("punix:{}/{}.{suffix}", rundir.display(), spec.name),
                kind,
                versions: spec.versions,
                probe_ms: 0,
                max_backoff_ms: 0,
            };
            match Service::start(&self.ofproto, config) {
                Ok(service) => self.sockets.push(service),
                Err(e) => tracing::error!(target: "connmgr", "{}: {e}", spec.name),
            }
        }
    }

    /// Opens and closes devices so that the bridge has the interfaces of its row. Patch ports find their peers
    /// afterwards, when all bridges have theirs ([`RunningBridge::connect`]).
    pub fn configure_interfaces(&mut self, spec: &BridgeSpec, devices: &Devices) {
        let wanted: BTreeMap<&str, (&PortSpec, &InterfaceSpec)> =
            spec.ports.values().flat_map(|p| p.interfaces.iter().map(move |i| (i.name.as_str(), (p, i)))).collect();
        self.interfaces.retain(|name, running| {
            wanted.get(name.as_str()).is_some_and(|(_, i)| {
                i.kind == running.kind
                    && (i.kind == "patch" || i.options == running.options || running.reoption(&i.options))
            }) && !running.is_gone()
        });
        // Numbers asked for come first, then those that interfaces had before, then what is free.
        for (port, interface) in wanted.values() {
            match self.interfaces.get_mut(&interface.name) {
                Some(running) => {
                    running.uuid = interface.uuid;
                    if running.state.is_err() {
                        running.state = open(interface, port, spec, devices, &self.dp);
                    } else if let Ok(Behind::Patch(peer, _)) = &mut running.state {
                        *peer = interface.options.get("peer").cloned().unwrap_or_default();
                    }
                }
                None => {
                    let running = RunningInterface {
                        uuid: interface.uuid,
                        kind: interface.kind.clone(),
                        options: interface.options.clone(),
                        ofport: None,
                        state: open(interface, port, spec, devices, &self.dp),
                    };
                    self.interfaces.insert(interface.name.clone(), running);
                }
            }
            if let Some(Ok(Behind::Device(attached))) = self.interfaces.get(&interface.name).map(|r| &r.state) {
                apply_settings(interface, attached);
            }
        }
        self.number_ports(spec, &wanted);
    }

    fn number_ports(&mut self, spec: &BridgeSpec, wanted: &BTreeMap<&str, (&PortSpec, &InterfaceSpec)>) {
        let mut used: BTreeSet<u16> = BTreeSet::new();
        for (name, running) in &mut self.interfaces {
            let request = wanted.get(name.as_str()).and_then(|(_, i)| i.ofport_request);
            if running.state.is_err() {
                running.ofport = None;
            } else if *name == spec.name {
                running.ofport = Some(PortNo::LOCAL);
            } else if let Some(request) = request
                && used.insert(request)
            {
                running.ofport = Some(PortNo(request.into()));
            } else if request.is_some() {
                running.ofport = None;
            }
        }
        for pass in 0..2 {
            for (name, running) in &mut self.interfaces {
                let settled = running.state.is_err() || *name == spec.name;
                let request = wanted.get(name.as_str()).and_then(|(_, i)| i.ofport_request);
                if settled || (request.is_some() && running.ofport.is_some()) {
                    continue;
                }
                let had = running.ofport.map(|p| p.0 as u16);
                let before = had.or_else(|| wanted.get(name.as_str()).and_then(|(_, i)| i.ofport));
                match (pass, before) {
                    (0, Some(n)) => running.ofport = used.insert(n).then(|| PortNo(n.into())),
                    (1, _) if running.ofport.is_none() => {
                        while used.contains(&self.next_ofport) || self.next_ofport >= 0xff00 {
                            self.next_ofport = if self.next_ofport >= 0xfeff { 1 } else { self.next_ofport + 1 };
                        }
                        used.insert(self.next_ofport);
                        running.ofport = Some(PortNo(self.next_ofport.into()));
                    }
                    _ => {}
                }
            }
        }
    }

    /// The bridge and port number of an interface, for a patch port's peer.
    pub fn find_patch(&self, name: &str) -> Option<(u32, PortNo, &str)> {
        let running = self.interfaces.get(name)?;
        match (&running.state, running.ofport) {
            (Ok(Behind::Patch(peer, _)), Some(no)) => Some((self.ofproto.id(), no, peer)),
            _ => None,
        }
    }

    /// Publishes ports, bundles and identity. `peer_of` gives the bridge and port of a patch port's peer, if that
    /// names this interface as its own peer.
    pub fn connect(&mut self, spec: &BridgeSpec, peer_of: PeerOf<'_>) {
        let mac = self.bridge_mac(spec);
        if let Some(Ok(Behind::Device(local))) = self.interfaces.get(&spec.name).map(|r| &r.state)
            && local.device.mac() != mac
            && let Err(e) = local.device.set_mac(mac)
        {
            tracing::warn!(target: "bridge", "bridge {}: {e}", spec.name);
        }
        let ports = self
            .interfaces
            .iter()
            .filter_map(|(name, running)| {
                let no = running.ofport?;
                let (out, device, mac) = match running.state.as_ref().ok()? {
                    Behind::Device(a) => (PortOut::Device(a.port), Some(Arc::clone(&a.device)), a.device.mac()),
                    Behind::Patch(peer, mac) => {
                        let out = peer_of(name, peer).map_or(PortOut::Nowhere, |(b, p)| PortOut::Patch(b, p));
                        (out, None, *mac)
                    }
                };
                Some(ofproto::PortSpec { no, name: name.clone(), out, device, mac })
            })
            .collect();
        let bundles = spec.ports.values().filter_map(|p| self.bundle(p)).collect();
        let changes = self.ofproto.set_ports(ports, bundles);
        self.ofproto.send_port_changes(&changes);
        let flag = |key: &str| spec.other_config.get(key).is_some_and(|v| v == "true");
        self.ofproto.set_forward_bpdu(flag("forward-bpdu"));
        let number =
            |key: &str, default: u32| spec.other_config.get(key).and_then(|v| v.parse().ok()).unwrap_or(default);
        self.ofproto.configure_macs(
            number("mac-table-size", xlate::mac::TABLE_SIZE as u32) as usize,
            number("mac-aging-time", xlate::mac::AGING_SECS),
        );
        self.ofproto.set_identity(Identity {
            datapath_id: datapath_id(spec, mac),
            mfr_desc: "Flowstone".into(),
            hw_desc: "Flowstone".into(),
            sw_desc: env!("CARGO_PKG_VERSION").into(),
            serial_desc: spec.other_config.get("dp-sn").cloned().unwrap_or_else(|| "None".into()),
            dp_desc: spec.other_config.get("dp-desc").cloned().unwrap_or_else(|| "None".into()),
        });
    }

    fn bundle(&self, port: &PortSpec) -> Option<BundleSpec> {
        let ports: Vec<PortNo> = port.interfaces.iter().filter_map(|i| self.interfaces.get(&i.name)?.ofport).collect();
        (!ports.is_empty()).then(|| BundleSpec {
            name: port.name.clone(),
            ports,
            mode: port.mode,
            tag: port.tag,
            trunks: port.trunks.clone(),
            priority_tags: port.priority_tags,
            protected: port.protected,
        })
    }

    /// The bridge's address: as configured, or the lowest of its ports' other than its own, or its own.
    fn bridge_mac(&self, spec: &BridgeSpec) -> MacAddr {
        if let Some(mac) = spec.other_config.get("hwaddr").and_then(|m| m.parse().ok()) {
            return mac;
        }
        let macs = self.interfaces.values().filter(|i| i.kind != "internal").filter_map(|i| match &i.state {
            Ok(Behind::Device(a)) => Some(a.device.mac()),
            _ => None,
        });
        let own = self.interfaces.get(&spec.name).and_then(|i| match &i.state {
            Ok(Behind::Device(a)) => Some(a.device.mac()),
            _ => None,
        });
        macs.filter(|m| !m.is_multicast() && !m.is_zero()).min().or(own).unwrap_or_else(|| made_up_mac(&spec.name))
    }

    /// Starts and stops connections to controllers, and puts in the flow that a bridge without controllers has.
    pub fn configure_controllers(&mut self, spec: &BridgeSpec) {
        let versions = spec.versions;
        let wanted: BTreeMap<Uuid, ServiceConfig> = spec
            .controllers
            .iter()
            .map(|c| {
                let config = ServiceConfig {
                    target: c.target.clone(),
                    kind: PeerKind::Controller,
                    versions,
                    probe_ms: c.probe_ms,
                    max_backoff_ms: c.max_backoff_ms,
                };
                (c.uuid, config)
            })
            .collect();
        self.controllers.retain(|uuid, running| wanted.get(uuid) == Some(&running.config));
        for (uuid, config) in wanted {
            if !self.controllers.contains_key(&uuid) {
                let service = Service::start(&self.ofproto, config.clone());
                if let Err(e) = &service {
                    tracing::error!(target: "connmgr", "{}: {e}", spec.name);
                }
                self.controllers.insert(uuid, Controller { config, service });
            }
        }
        let has = !self.controllers.is_empty();
        if self.had_controllers.replace(has) != Some(has) {
            self.ofproto.flush_flows();
            if !has && !spec.fail_secure {
                let mut normal = FlowMod::new(FlowModCommand::Add);
                normal.priority = 0;
                normal.actions = vec![openflow::Action::Output { port: PortNo::NORMAL, max_len: 0 }];
                if let Err(e) = self.ofproto.flow_mod(&normal) {
                    tracing::error!(target: "ofproto", "{}: default flow: {e}", spec.name);
                }
            }
        }
    }

    /// Whether the management sockets speak other versions than `spec` says.
    pub fn speaks_otherwise(&self, spec: &BridgeSpec) -> bool {
        self.sockets.iter().any(|s| s.config.versions != spec.versions)
    }

    /// Closes and opens the management sockets anew.
    pub fn listen_again(&mut self, spec: &BridgeSpec, rundir: &Path) {
        self.sockets.clear();
        self.listen(spec, rundir);
    }
}

impl RunningInterface {
    /// Gives new options to the device that is there. Returns whether it took them.
    fn reoption(&mut self, options: &BTreeMap<String, String>) -> bool {
        let taken = match &self.state {
            Ok(Behind::Device(a)) => a.device.set_options(options).is_ok(),
            _ => false,
        };
        if taken {
            self.options.clone_from(options);
        }
        taken
    }

    /// Whether the kernel's device is not there any more.
    fn is_gone(&self) -> bool {
        matches!(&self.state, Ok(Behind::Device(a)) if !a.device.is_present())
    }

    /// The type that it was made for.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its device, if it has one.
    pub fn device(&self) -> Option<&Arc<dyn netdev::Netdev>> {
        match &self.state {
            Ok(Behind::Device(a)) => Some(&a.device),
            _ => None,
        }
    }
}

fn open(
    interface: &InterfaceSpec,
    port: &PortSpec,
    bridge: &BridgeSpec,
    devices: &Devices,
    dp: &Dp,
) -> Result<Behind, String> {
    let opened = if port.interfaces.len() > 1 {
        Err(format!("port {} has several interfaces: bonds are not supported", port.name))
    } else if interface.kind == "patch" {
        match interface.options.get("peer") {
            None => Err(format!("{}: patch type requires valid 'peer' argument", interface.name)),
            Some(peer) if *peer == interface.name => Err(format!("{}: patch peer must not be self", interface.name)),
            Some(peer) => Ok(Behind::Patch(peer.clone(), made_up_mac(&interface.name))),
        }
    } else {
        devices
            .open(&interface.name, &interface.kind, &bridge.datapath_type, &interface.options)
            .and_then(|device| {
                let by_name = || Attached::number_by_name(&interface.name);
                let number = (bridge.datapath_type == "dummy").then(by_name).flatten();
                Attached::new(&dp.datapath, device, number)
            })
            .map(Behind::Device)
    };
    match &opened {
        Ok(_) => tracing::info!(target: "bridge", "bridge {}: added interface {}", bridge.name, interface.name),
        Err(e) => tracing::warn!(target: "bridge", "{e}"),
    }
    opened
}

fn apply_settings(interface: &InterfaceSpec, attached: &Attached) {
    let device = &attached.device;
    let outcome = match (interface.mac, interface.mtu_request) {
        (Some(mac), _) if device.mac() != mac => device.set_mac(mac),
        (_, Some(mtu)) if device.mtu() != Some(mtu) => device.set_mtu(mtu),
        _ => Ok(()),
    };
    if let Err(e) = outcome {
        tracing::warn!(target: "bridge", "{e}");
    }
}

/// A locally administered address that depends on the name only.
fn made_up_mac(name: &str) -> MacAddr {
    // FNV-1a: any mixing will do.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    MacAddr::local_from(hash >> 16)
}

fn datapath_id(spec: &BridgeSpec, mac: MacAddr) -> u64 {
    let configured = spec.other_config.get("datapath-id").and_then(|id| {
        let hex = id.strip_prefix("0x").unwrap_or(id);
        u64::from_str_radix(hex, 16).ok().filter(|id| *id != 0)
    });
    configured.unwrap_or_else(|| mac.to_u64())
}
