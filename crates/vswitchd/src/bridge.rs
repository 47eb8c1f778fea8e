//! One running bridge: made to be what its row says, as often as that changes.

use crate::control::Control;
use crate::desired::{BridgeSpec, InterfaceSpec, PortSpec};
use crate::devices::{Devices, Dp};
use crate::identity;
use crate::interface::{Behind, RunningInterface};
use crate::ofport::{self, Claim};
use base::PortNo;
use ofproto::bridge::PortChange;
use ofproto::{BundleSpec, Ofproto};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;
use xlate::PortOut;

/// The bridge and port of the peer, by the names of a patch port's interface and of the peer that it names.
pub type PeerOf<'a> = &'a dyn Fn(&str, &str) -> Option<(u32, PortNo)>;

/// The MTU of an internal interface on a bridge without others.
const MTU: u32 = 1500;

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
    /// Its controllers.
    pub control: Control,
    last_ofport: u16,
}

impl Drop for RunningBridge {
    fn drop(&mut self) {
        // Connections that are about to end may hold the switch a little longer; devices are wanted again at once.
        self.ofproto.set_ports(Vec::new(), Vec::new());
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
            control: Control::default(),
            last_ofport: 0,
        };
        bridge.control.listen(&bridge.ofproto, spec, rundir);
        Ok(bridge)
    }

    /// Closes the interfaces that are not wanted any more, or not as they are, and those whose device is gone. To be
    /// called for all bridges before any opens interfaces, which may be the same under another bridge.
    pub fn close_interfaces(&mut self, spec: &BridgeSpec) {
        let wanted: BTreeMap<&str, &InterfaceSpec> = interfaces(spec).map(|(_, i)| (i.name.as_str(), i)).collect();
        let before = self.interfaces.len();
        self.interfaces.retain(|name, running| wanted.get(name.as_str()).is_some_and(|i| running.can_stay(i)));
        if self.interfaces.len() < before {
            self.forget_closed_ports();
        }
    }

    /// Takes the ports of closed interfaces from the switch, which has their devices, too.
    fn forget_closed_ports(&self) {
        let stays = |port: &ofproto::OfPort| self.interfaces.contains_key(&port.spec.name);
        let ports: Vec<_> = self.ofproto.ports().into_iter().filter(stays).map(|port| port.spec).collect();
        let mut bundles = self.ofproto.bundles();
        for bundle in &mut bundles {
            bundle.ports.retain(|no| ports.iter().any(|port| port.no == *no));
        }
        bundles.retain(|bundle| !bundle.ports.is_empty());
        let changes = self.ofproto.set_ports(ports, bundles);
        self.ofproto.send_port_changes(&changes);
    }

    /// Opens the interfaces of the bridge's row that are not open, and gives all their settings and numbers. Patch
    /// ports find their peers afterwards, when all bridges have theirs ([`RunningBridge::connect`]).
    pub fn open_interfaces(&mut self, spec: &BridgeSpec, devices: &Devices) {
        for (port, interface) in interfaces(spec) {
            let running = match self.interfaces.entry(interface.name.clone()) {
                Entry::Occupied(entry) => {
                    let running = entry.into_mut();
                    running.update(interface, port, spec, devices, &self.dp);
                    running
                }
                Entry::Vacant(entry) => entry.insert(RunningInterface::new(interface, port, spec, devices, &self.dp)),
            };
            running.apply_settings(interface);
        }
        let own_mtus = self.interfaces.values().filter(|i| i.has_own_mtu()).filter_map(|i| i.device()?.mtu());
        let mtu = own_mtus.min().unwrap_or(MTU);
        for (_, interface) in interfaces(spec) {
            if let Some(running) = self.interfaces.get_mut(&interface.name) {
                running.follow_mtu(interface, mtu);
            }
        }
        self.number_ports(spec);
    }

    fn number_ports(&mut self, spec: &BridgeSpec) {
        let wanted: BTreeMap<&str, &InterfaceSpec> = interfaces(spec).map(|(_, i)| (i.name.as_str(), i)).collect();
        let (mut claims, mut claimants) = (Vec::new(), Vec::new());
        for (name, running) in &mut self.interfaces {
            if running.state.is_err() {
                running.ofport = None;
                continue;
            }
            let wanted = wanted.get(name.as_str());
            claims.push(Claim {
                local: *name == spec.name,
                request: wanted.and_then(|i| i.ofport_request),
                held: running.ofport.and_then(|no| u16::try_from(no.0).ok()),
                remembered: wanted.and_then(|i| i.ofport),
            });
            claimants.push((name, running));
        }
        let numbers = ofport::assign(&claims, &mut self.last_ofport);
        for ((name, running), number) in claimants.into_iter().zip(numbers) {
            running.ofport = number;
            if number.is_none() {
                running.state = Err(format!("{name}: all OpenFlow port numbers of the bridge are in use"));
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
        let mac = identity::bridge_mac(self, spec);
        if let Some(local) = self.interfaces.get_mut(&spec.name)
            && let Some(device) = local.device().filter(|device| device.mac() != mac)
        {
            let error = device.set_mac(mac).err();
            local.complain("hwaddr", error);
        }
        let mut ports = Vec::new();
        for (name, running) in &mut self.interfaces {
            let Some(no) = running.ofport else { continue };
            let (out, device, mac, flaw) = match &running.state {
                Err(_) => continue,
                Ok(Behind::Device(a)) => (PortOut::Device(a.port), Some(Arc::clone(&a.device)), a.device.mac(), None),
                Ok(Behind::Patch(peer, mac)) => match peer_of(name, peer) {
                    Some((bridge, port)) => (PortOut::Patch(bridge, port), None, *mac, None),
                    None => {
                        let kind = &self.datapath_type;
                        let flaw = format!("No usable peer '{peer}' exists in '{kind}' datapath.");
                        (PortOut::Nowhere, None, *mac, Some(flaw))
                    }
                },
            };
            running.set_flaw(flaw);
            ports.push(ofproto::PortSpec { no, name: name.clone(), out, device, mac });
        }
        let bundles = spec.ports.values().filter_map(|p| self.bundle(p)).collect();
        let mut changes = self.ofproto.set_ports(ports, bundles);
        self.add_link_changes(&mut changes);
        self.ofproto.send_port_changes(&changes);
        self.ofproto.set_forward_bpdu(spec.forward_bpdu);
        self.ofproto.configure_tables(&spec.tables);
        for table in 0..=u8::MAX {
            self.ofproto.set_prefixes(table, spec.prefixes.get(&table).map(Vec::as_slice));
        }
        self.ofproto.configure_macs(spec.mac_table_size as usize, spec.mac_aging_secs);
        self.ofproto.set_ipfix(spec.ipfix.clone());
        self.ofproto.set_identity(identity::identity(spec, mac));
    }

    /// Adds the ports whose link went up or down to what controllers are told.
    fn add_link_changes(&mut self, changes: &mut Vec<PortChange>) {
        for running in self.interfaces.values_mut() {
            let told = |no| {
                changes.iter().any(|c| matches!(c, PortChange::Added(p) | PortChange::Modified(p) if p.spec.no == no))
            };
            if running.link_changed()
                && let Some(no) = running.ofport
                && !told(no)
                && let Some(port) = self.ofproto.port(no)
            {
                changes.push(PortChange::Modified(port));
            }
        }
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
}

/// The interfaces of a bridge with their ports.
fn interfaces(spec: &BridgeSpec) -> impl Iterator<Item = (&PortSpec, &InterfaceSpec)> {
    spec.ports.values().flat_map(|port| port.interfaces.iter().map(move |interface| (port, interface)))
}
