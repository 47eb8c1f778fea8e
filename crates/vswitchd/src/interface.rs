//! One interface of a running bridge: opened, given its settings, and retried while it cannot be opened.

use crate::desired::{BridgeSpec, InterfaceSpec, PortSpec};
use crate::devices::{Attached, Devices, Dp};
use crate::types::DatapathClass;
use base::{MacAddr, PortNo};
use netdev::Netdev;
use netdev::status::LinkStatus;
use ovsdb_client::schemas::vswitch::Interface;
use ovsdb_client::typed::Ref;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An interface of a running bridge.
#[derive(Debug)]
pub struct RunningInterface {
    /// Its row.
    pub row: Ref<Interface>,
    /// Type and options that it was made for.
    kind: String,
    options: BTreeMap<String, String>,
    /// OpenFlow port number, if it has a port.
    pub ofport: Option<PortNo>,
    /// What is behind it, or why there is nothing.
    pub state: Result<Behind, String>,
    /// What is wrong with an interface that is there.
    flaw: Option<String>,
    /// Why settings could not be made, by setting, so that this is said once.
    refused: BTreeMap<&'static str, String>,
    /// The MTU that it was given to follow the other interfaces.
    followed_mtu: Option<u32>,
    link: Option<Link>,
}

/// What was last seen of a device's link.
#[derive(Debug)]
struct Link {
    seq: u64,
    admin_up: bool,
    carrier: bool,
}

/// What is behind an interface.
#[derive(Debug)]
pub enum Behind {
    /// A device.
    Device(Attached),
    /// A patch port to the interface of this name, with an address of its own.
    Patch(String, MacAddr),
}

impl RunningInterface {
    /// Opens the interface.
    pub fn new(interface: &InterfaceSpec, port: &PortSpec, bridge: &BridgeSpec, devices: &Devices, dp: &Dp) -> Self {
        let mut running = Self {
            row: interface.row,
            kind: interface.kind.clone(),
            options: interface.options.clone(),
            ofport: None,
            state: Err(String::new()),
            flaw: None,
            refused: BTreeMap::new(),
            followed_mtu: None,
            link: None,
        };
        running.update(interface, port, bridge, devices, dp);
        running
    }

    /// Whether it can become what `wanted` says without being closed. Gives new options to a device that is there.
    pub fn can_stay(&mut self, wanted: &InterfaceSpec) -> bool {
        if wanted.kind != self.kind {
            return false;
        }
        match &self.state {
            Ok(Behind::Device(a)) if !a.device.is_present() => false,
            _ if wanted.options == self.options => true,
            Ok(Behind::Device(a)) => {
                let taken = a.device.set_options(&wanted.options).is_ok();
                if taken {
                    self.options.clone_from(&wanted.options);
                }
                taken
            }
            Ok(Behind::Patch(..)) | Err(_) => {
                self.options.clone_from(&wanted.options);
                true
            }
        }
    }

    /// Tries again what could not be opened, and takes a patch port's peer.
    pub fn update(
        &mut self,
        interface: &InterfaceSpec,
        port: &PortSpec,
        bridge: &BridgeSpec,
        devices: &Devices,
        dp: &Dp,
    ) {
        self.row = interface.row;
        let bond = port.interfaces.len() > 1;
        if !bond && matches!(self.state, Ok(Behind::Device(_))) {
            return;
        }
        let state = open(interface, port, devices, dp);
        match (&self.state, &state) {
            (Err(old), Err(new)) if old == new => {}
            (_, Err(new)) => tracing::warn!(target: "bridge", "{new}"),
            (Err(_), Ok(_)) => {
                tracing::info!(target: "bridge", "bridge {}: added interface {}", bridge.name, interface.name);
            }
            (Ok(_), Ok(_)) => {}
        }
        self.state = state;
    }

    /// Sets address, MTU and cores of queues that are asked for.
    pub fn apply_settings(&mut self, interface: &InterfaceSpec) {
        let Some(device) = self.device().map(Arc::clone) else { return };
        let mac = interface.mac.filter(|mac| device.mac() != *mac).map(|mac| device.set_mac(mac));
        let mtu = interface.mtu_request.filter(|mtu| device.mtu() != Some(*mtu)).map(|mtu| device.set_mtu(mtu));
        if interface.mtu_request.is_some() {
            self.followed_mtu = None;
        }
        if let Ok(Behind::Device(attached)) = &self.state {
            let error = attached.set_queues(&interface.rxq_affinity).err();
            self.complain("n_rxq", error);
        }
        self.complain("mac", mac.and_then(Result::err));
        self.complain("mtu_request", mtu.and_then(Result::err));
    }

    /// Logs that `setting` could not be made, unless that was said before. Without an error, it may be said again.
    pub fn complain(&mut self, setting: &'static str, error: Option<impl std::fmt::Display>) {
        let Some(error) = error else {
            self.refused.remove(setting);
            return;
        };
        let text = error.to_string();
        if self.refused.get(setting) != Some(&text) {
            tracing::warn!(target: "bridge", "{text}");
            self.refused.insert(setting, text);
        }
    }

    /// Whether its MTU says something of the network, and is not itself made to fit.
    pub fn has_own_mtu(&self) -> bool {
        self.device().is_some_and(|device| !is_internal(&**device))
    }

    /// Gives an internal interface the MTU of the others: when that changes, or when its own is larger. Someone may
    /// have made it smaller meanwhile, which is no harm.
    pub fn follow_mtu(&mut self, interface: &InterfaceSpec, mtu: u32) {
        let Some(device) = self.device().filter(|device| is_internal(&***device)).map(Arc::clone) else { return };
        let now = device.mtu();
        let larger = now.is_some_and(|now| now > mtu);
        if interface.mtu_request.is_some() || now == Some(mtu) {
            self.followed_mtu = (now == Some(mtu)).then_some(mtu);
        } else if self.followed_mtu != Some(mtu) || larger {
            let error = device.set_mtu(mtu).err();
            self.followed_mtu = error.is_none().then_some(mtu);
            self.complain("mtu", error);
        }
    }

    /// Whether switches and carrier of its link are others than when this was last asked. Not the first time.
    pub fn link_changed(&mut self) -> bool {
        let Some(device) = self.device() else {
            self.link = None;
            return false;
        };
        let seq = device.change_seq();
        if self.link.as_ref().is_some_and(|link| link.seq == seq) {
            return false;
        }
        let LinkStatus { admin_up, carrier, .. } = device.status();
        let before = self.link.replace(Link { seq, admin_up, carrier });
        before.is_some_and(|link| (link.admin_up, link.carrier) != (admin_up, carrier))
    }

    /// Whether it could not be opened, and nobody tells when it can be.
    pub fn is_to_be_retried(&self) -> bool {
        self.state.as_ref().err().is_some_and(|error| heals_untold(&self.kind, error))
    }

    /// The type that it was made for.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether flows of the port go to an accelerator, or why not; `None` where that is not asked for.
    pub fn offload(&self, dp: &Dp) -> Option<String> {
        let Ok(Behind::Device(attached)) = &self.state else { return None };
        match dp.offload_error() {
            Some(error) => Some(format!("none: {error}")),
            None => dp.dpif.port_offload(attached.port).map(|added| match added {
                Ok(kind) => kind.to_owned(),
                Err(why) => format!("none: {why}"),
            }),
        }
    }

    /// Its device, if it has one.
    pub fn device(&self) -> Option<&Arc<dyn Netdev>> {
        match &self.state {
            Ok(Behind::Device(a)) => Some(&a.device),
            _ => None,
        }
    }

    /// What is wrong with it, for Interface:error.
    pub fn error(&self) -> Option<&str> {
        self.state.as_ref().err().or(self.flaw.as_ref()).map(String::as_str)
    }

    /// Notes what is wrong although it is there, and that it is fine otherwise.
    pub fn set_flaw(&mut self, flaw: Option<String>) {
        self.flaw = flaw;
    }
}

/// Whether it is one that the host and not the network is behind.
pub fn is_internal(device: &dyn Netdev) -> bool {
    matches!(device.kind(), "internal" | "dummy-internal")
}

/// Whether what keeps a port of this type from being opened may end without news of a link, as there are when a device
/// appears: another process may have the queues of a device, or its XDP program, or too many files are open.
fn heals_untold(kind: &str, error: &str) -> bool {
    match kind {
        "afxdp" => true,
        "system" | "internal" => !error.ends_with("(No such device)"),
        _ => false,
    }
}

fn open(interface: &InterfaceSpec, port: &PortSpec, devices: &Devices, dp: &Dp) -> Result<Behind, String> {
    if port.interfaces.len() > 1 {
        return Err(format!("port {} has several interfaces: bonds are not supported", port.name));
    }
    if interface.kind == "patch" {
        return match interface.options.get("peer") {
            None => Err(format!("{}: patch type requires valid 'peer' argument", interface.name)),
            Some(peer) if *peer == interface.name => Err(format!("{}: patch peer must not be self", interface.name)),
            Some(peer) => Ok(Behind::Patch(peer.clone(), crate::identity::made_up_mac(&interface.name))),
        };
    }
    devices
        .open(&interface.name, &interface.kind, dp.class, &interface.options)
        .and_then(|device| {
            let by_name = || Attached::number_by_name(&interface.name);
            let number = (dp.class == DatapathClass::Dummy).then(by_name).flatten();
            Attached::new(&dp.dpif, device, number)
        })
        .map(Behind::Device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_news_of_a_link_tells_is_tried_again() {
        let error = |why| format!("could not open network device eth1 ({why})");
        for (kind, why, expected) in [
            ("system", "Too many open files", true),
            ("internal", "Device or resource busy", true),
            ("system", "No such device", false),
            ("afxdp", "No such device", true),
            ("geneve", "Address family not supported by protocol", false),
            ("patch", "Too many open files", false),
        ] {
            assert_eq!(heals_untold(kind, &error(why)), expected, "{kind}: {why}");
        }
    }
}
