//! One running bridge: its switch, its interfaces and its controllers.

use crate::control::Control;
use crate::devices::{Devices, Dp};
use crate::interface::{Behind, RunningInterface};
use crate::underlay::HostUnderlay;
use base::PortNo;
use netdev_linux::routes::Follower;
use ofproto::Ofproto;
use routes::Router;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

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
    /// Forgets its neighbours with it.
    underlay: Arc<HostUnderlay>,
}

impl Drop for RunningBridge {
    fn drop(&mut self) {
        // Connections that are about to end may hold the switch a little longer; devices are wanted again at once.
        self.ofproto.set_ports(Vec::new(), Vec::new());
        self.dp.switch.del_bridge(self.ofproto.id());
        self.underlay.remove_bridge(self.ofproto.name());
    }
}

impl RunningBridge {
    /// The addresses of a device of the host, or of a dummy.
    pub fn addresses_of(&self, device: &str) -> Vec<IpAddr> {
        let known = self.underlay.with_router(|router| router.addresses(device));
        if !known.is_empty() {
            return known.into_iter().map(|(ip, _)| ip).collect();
        }
        // The kernel's addresses may not have been read yet.
        let mut router = Router::default();
        router.replace_kernel(Follower::open().and_then(|mut kernel| kernel.addresses()).unwrap_or_default());
        router.addresses(device).into_iter().map(|(ip, _)| ip).collect()
    }

    /// Makes the bridge's switch, without ports and settings.
    pub fn new(name: &str, datapath_type: &str, devices: &Devices) -> Result<Self, String> {
        let dp = devices.datapath(datapath_type)?;
        let ofproto = dp.switch.add_bridge(name);
        Ok(Self {
            datapath_type: datapath_type.to_owned(),
            dp,
            ofproto,
            interfaces: BTreeMap::new(),
            control: Control::default(),
            underlay: Arc::clone(&devices.underlay),
        })
    }

    /// The bridge and port number of an interface, for a patch port's peer, and the peer that it names itself.
    pub fn find_patch(&self, name: &str) -> Option<(u32, PortNo, &str)> {
        let running = self.interfaces.get(name)?;
        match (&running.state, running.ofport) {
            (Ok(Behind::Patch(peer, _)), Some(no)) => Some((self.ofproto.id(), no, peer)),
            _ => None,
        }
    }
}
