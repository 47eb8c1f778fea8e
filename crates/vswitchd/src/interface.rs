//! One interface of a running bridge: opened, and retried while it cannot be opened.

use crate::devices::{Devices, Dp};
use crate::features::identity;
use crate::placement::Attached;
use crate::tunnels::{TunnelError, TunnelInterface};
use crate::types::{DatapathClass, InterfaceClass};
use base::{DpPort, MacAddr, PortNo};
use netdev::status::LinkStatus;
use netdev::{Netdev, NetdevError, NetdevErrorKind};
use ovsdb_client::schemas::vswitch::Interface;
use ovsdb_client::typed::Ref;
use std::collections::BTreeMap;
use std::sync::Arc;
use tunnel::options::OptionError;
use tunnel::ports::Conflict;
use xlate::BridgeId;

/// What an interface is to be, as far as its device and number are concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceSpec {
    /// Row; zero if there is none.
    pub row: Ref<Interface>,
    /// Type; `system` for the empty string, `internal` for a bridge's own.
    pub kind: String,
    /// Interface:options.
    pub options: BTreeMap<String, String>,
    /// Port number asked for.
    pub ofport_request: Option<u16>,
    /// Port number that it had before.
    pub ofport: Option<u16>,
}

impl InterfaceSpec {
    /// An internal interface without a row.
    pub fn internal_without_row() -> Self {
        Self {
            row: Ref::none(),
            kind: "internal".to_owned(),
            options: BTreeMap::new(),
            ofport_request: None,
            ofport: None,
        }
    }
}

/// Why an interface is not there.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InterfaceError {
    /// It was not opened yet.
    #[error("the interface was not opened yet")]
    NotOpened,
    /// The device could not be opened, or not be added to the datapath.
    #[error("{text}")]
    Device {
        /// The kind of the device's error.
        kind: NetdevErrorKind,
        /// The message.
        text: String,
    },
    /// A tunnel is not configured well, or the datapath refuses its port.
    #[error("{0}")]
    Tunnel(String),
    /// Another tunnel has the UDP port for packets of another sort.
    #[error("{0}")]
    TunnelPortTaken(String),
    /// Another tunnel receives the same packets.
    #[error("could not add network device {} to ofproto (File exists)", .0.name)]
    Conflict(Conflict),
    /// The datapath does not know the interface type. The text is that of Open vSwitch.
    #[error("could not open network device {0} (Address family not supported by protocol)")]
    UnknownType(String),
    /// Datapaths and tunnels use the name for themselves.
    #[error("could not create interface {0}, name is reserved")]
    Reserved(String),
    /// A patch port names no peer.
    #[error("{0}: patch type requires valid 'peer' argument")]
    NoPeer(String),
    /// A patch port is its own peer.
    #[error("{0}: patch peer must not be self")]
    PeerIsSelf(String),
    /// The bridge has no number left.
    #[error("{0}: all OpenFlow port numbers of the bridge are in use")]
    NoNumber(String),
}

impl From<NetdevError> for InterfaceError {
    fn from(error: NetdevError) -> Self {
        Self::Device { kind: error.kind(), text: error.to_string() }
    }
}

impl From<TunnelError> for InterfaceError {
    fn from(error: TunnelError) -> Self {
        match error {
            TunnelError::Port(error) => error.into(),
            TunnelError::Options(error @ OptionError::GroupPolicyMixed { .. }) => {
                Self::TunnelPortTaken(error.to_string())
            }
            TunnelError::Options(error) => Self::Tunnel(error.to_string()),
            TunnelError::Conflict(conflict) => Self::Conflict(conflict),
            error @ TunnelError::OtherPayload { .. } => Self::TunnelPortTaken(error.to_string()),
        }
    }
}

impl From<dpif::DpifError> for InterfaceError {
    fn from(error: dpif::DpifError) -> Self {
        match error {
            dpif::DpifError::Device(error) => error.into(),
            other => Self::Device { kind: NetdevErrorKind::System, text: other.to_string() },
        }
    }
}

impl InterfaceError {
    /// The error of the system behind it, as in `could not open network device foo (No such device)`.
    pub fn reason(&self) -> String {
        let text = self.to_string();
        let inner = text.strip_suffix(')').and_then(|text| text.rsplit_once('('));
        inner.map_or_else(|| "Invalid argument".to_owned(), |(_, reason)| reason.to_owned())
    }

    /// Whether an interface of type `kind` may be opened later although no change of a link or a row announces it:
    /// another process may have the queues of a device or its XDP program, or too many files are open; another tunnel may
    /// get a different configuration.
    fn may_end_unannounced(&self, kind: &str) -> bool {
        match (self, kind) {
            (Self::Device { .. }, "afxdp") | (Self::Conflict(_) | Self::TunnelPortTaken(_), _) => true,
            (Self::Device { kind: error, .. }, "system" | "internal") => *error != NetdevErrorKind::Missing,
            _ => false,
        }
    }
}

/// An interface of a running bridge.
#[derive(Debug)]
pub struct RunningInterface {
    /// Type that it was made for.
    kind: String,
    /// OpenFlow port number, if it has a port.
    pub ofport: Option<PortNo>,
    /// The number under which the switch has its port.
    pub published: Option<PortNo>,
    /// The device or peer behind it, or why there is none.
    pub state: Result<Behind, InterfaceError>,
    /// The problem of an interface that is there.
    flaw: Option<String>,
    /// Why settings could not be made, by setting, so that each is logged once.
    refused: BTreeMap<&'static str, String>,
    /// The MTU that it was given to follow the other interfaces.
    pub followed_mtu: Option<u32>,
    /// Whether the database has no counters of it yet.
    pub is_uncounted: bool,
    /// The number of changes of the device when it was last examined.
    seen: Option<u64>,
    /// Its datapath port when the device was last examined.
    seen_port: Option<DpPort>,
    /// Whether it is to be opened again if its port was removed by hand.
    is_to_reopen: bool,
    link: Option<Link>,
}

/// A device's link when it was last examined.
#[derive(Debug)]
struct Link {
    seq: u64,
    admin_up: bool,
    carrier: bool,
}

/// The device or peer behind an interface.
#[derive(Debug)]
pub enum Behind {
    /// A device.
    Device(Attached),
    /// A tunnel.
    Tunnel(TunnelInterface),
    /// A patch port to the interface of this name, with an address of its own.
    Patch(String, MacAddr),
}

impl RunningInterface {
    /// Opens an interface of a bridge by their names.
    pub fn new((bridge, name): (&str, &str), spec: &InterfaceSpec, devices: &Devices, dp: &Dp) -> Self {
        let mut running = Self {
            kind: spec.kind.clone(),
            ofport: None,
            published: None,
            state: Err(InterfaceError::NotOpened),
            flaw: None,
            refused: BTreeMap::new(),
            followed_mtu: None,
            is_uncounted: true,
            seen: None,
            seen_port: None,
            is_to_reopen: false,
            link: None,
        };
        running.update((bridge, name), spec, devices, dp);
        running
    }

    /// Whether it can become what `wanted` says without being closed. Gives new options to a device that is there.
    pub fn can_stay(&mut self, wanted: &InterfaceSpec) -> bool {
        if wanted.kind != self.kind {
            return false;
        }
        match &mut self.state {
            Ok(Behind::Device(a)) if !a.device().is_present() => false,
            Ok(Behind::Device(a)) if a.port().is_none() && self.is_to_reopen => false,
            Ok(Behind::Device(a)) if a.placement.options() == wanted.options => true,
            Ok(Behind::Device(a)) => {
                let taken = a.placement.set_options(&wanted.options).is_ok();
                if taken {
                    self.seen = None;
                }
                taken
            }
            Ok(Behind::Tunnel(tunnel)) => {
                let is_changed = *tunnel.options() != wanted.options;
                let taken = tunnel.set_options(tunnel.config().tunnel_type, &wanted.options);
                if taken && is_changed {
                    self.seen = None;
                }
                taken
            }
            Ok(Behind::Patch(..)) | Err(_) => true,
        }
    }

    /// Tries again what could not be opened, and takes a patch port's peer.
    pub fn update(&mut self, (bridge, name): (&str, &str), spec: &InterfaceSpec, devices: &Devices, dp: &Dp) {
        if matches!(self.state, Ok(Behind::Device(_) | Behind::Tunnel(_))) {
            return;
        }
        let state = open(name, spec, devices, dp);
        match (&self.state, &state) {
            (Err(old), Err(new)) if old == new => {}
            (_, Err(InterfaceError::Conflict(conflict))) => {
                tracing::warn!(target: "tunnel", "{conflict}");
                tracing::warn!(target: "ofproto", "{bridge}: could not add port {name} (File exists)");
                tracing::warn!(target: "bridge", "{}", InterfaceError::Conflict(conflict.clone()));
            }
            (_, Err(error @ (InterfaceError::Tunnel(text) | InterfaceError::TunnelPortTaken(text)))) => {
                let is_taken = matches!(error, InterfaceError::TunnelPortTaken(_));
                let why = if is_taken { "File exists" } else { "Invalid argument" };
                tracing::warn!(target: "netdev_vport", "{text}");
                tracing::warn!(target: "netdev", "{name}: could not set configuration ({why})");
            }
            (_, Err(new)) => {
                if let InterfaceError::UnknownType(name) = new {
                    tracing::warn!(target: "netdev", "could not create netdev {name} of unknown type {}", spec.kind);
                }
                tracing::warn!(target: "bridge", "{new}");
            }
            (Err(_), Ok(_)) => self.is_uncounted = true,
            (Ok(_), Ok(_)) => {}
        }
        self.state = state;
        self.seen = None;
    }

    /// Whether the device is another one, has other options or another datapath port, or its link, address or MTU changed
    /// since this was last asked.
    pub fn device_changed(&mut self) -> bool {
        let Some(seq) = self.device().map(|device| device.change_seq()) else { return false };
        let port = self.dp_port();
        let is_moved = std::mem::replace(&mut self.seen_port, port) != port;
        self.seen.replace(seq) != Some(seq) || is_moved
    }

    /// Whether the device changed since [`RunningInterface::device_changed`] was last asked, or is gone.
    pub fn needs_attention(&self) -> bool {
        let is_changed = |device: &Arc<dyn Netdev>| self.seen != Some(device.change_seq()) || !device.is_present();
        self.device().is_some_and(is_changed) || self.dp_port() != self.seen_port
    }

    /// Its port of the datapath, unless it is a patch port or its port was removed by hand.
    pub fn dp_port(&self) -> Option<DpPort> {
        match &self.state {
            Ok(Behind::Device(attached)) => attached.port(),
            Ok(Behind::Tunnel(tunnel)) => Some(tunnel.port()),
            _ => None,
        }
    }

    /// Has it opened again at the next configuration if its datapath port was removed by hand. Returns whether it was.
    pub fn reopen_if_removed(&mut self) -> bool {
        self.is_to_reopen = self.is_removed();
        self.is_to_reopen
    }

    /// Whether its datapath port was removed by hand.
    pub fn is_removed(&self) -> bool {
        matches!(&self.state, Ok(Behind::Device(attached)) if attached.port().is_none())
    }

    /// Logs that `setting` could not be made, unless that was logged before. Without an error, it may be logged again.
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

    /// Its device's MTU, if that says something of the network and is not itself made to fit.
    pub fn own_mtu(&self) -> Option<u32> {
        self.device().filter(|device| !is_internal(&***device))?.mtu()
    }

    /// Its device's address, if that is not one of the host.
    pub fn own_mac(&self) -> Option<MacAddr> {
        self.device().filter(|device| !is_internal(&***device)).map(|device| device.mac())
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

    /// The device that a tunnel's packets leave through, and whether it has a carrier, if that is known.
    pub fn egress(&self) -> Option<(String, bool)> {
        if let Ok(Behind::Tunnel(tunnel)) = &self.state { tunnel.egress() } else { None }
    }

    /// Has a tunnel receive packets, as a port of this bridge. Returns false if another tunnel receives them.
    pub fn register(&mut self, bridge: BridgeId) -> bool {
        let (Ok(Behind::Tunnel(tunnel)), Some(number)) = (&mut self.state, self.ofport) else { return true };
        tunnel.register((bridge, number));
        tunnel.conflict().is_none()
    }

    /// Whether it could not be opened, and no news of a link or row announces when it can be.
    pub fn is_to_be_retried(&self) -> bool {
        match &self.state {
            Err(error) => error.may_end_unannounced(&self.kind),
            Ok(Behind::Tunnel(tunnel)) => tunnel.conflict().is_some(),
            Ok(_) => false,
        }
    }

    /// Whether flows of the port go to an accelerator, or why not; `None` where that is not asked for.
    pub fn offload(&self, dp: &Dp) -> Option<String> {
        let Ok(Behind::Device(attached)) = &self.state else { return None };
        match dp.offload_error() {
            Some(error) => Some(format!("none: {error}")),
            None => dp.dpif.port_offload(attached.port()?).map(|added| match added {
                Ok(kind) => kind.to_owned(),
                Err(why) => format!("none: {why}"),
            }),
        }
    }

    /// Its device, if it has one.
    pub fn device(&self) -> Option<&Arc<dyn Netdev>> {
        match &self.state {
            Ok(Behind::Device(a)) => Some(a.device()),
            Ok(Behind::Tunnel(tunnel)) => Some(tunnel.device()),
            _ => None,
        }
    }

    /// Its problem, for Interface:error. A reserved name is only logged, as by Open vSwitch.
    pub fn error(&self) -> Option<String> {
        match &self.state {
            Err(InterfaceError::Reserved(_)) => None,
            Err(error) => Some(error.to_string()),
            Ok(_) => self.flaw.clone(),
        }
    }

    /// Notes the problem of an interface that is there, or that it has none.
    pub fn set_flaw(&mut self, flaw: Option<String>) {
        self.flaw = flaw;
    }
}

/// Whether the host is behind the device and not the network.
pub fn is_internal(device: &dyn Netdev) -> bool {
    matches!(device.kind(), "internal" | "dummy-internal")
}

fn open(name: &str, spec: &InterfaceSpec, devices: &Devices, dp: &Dp) -> Result<Behind, InterfaceError> {
    if devices.types.is_reserved(name) {
        return Err(InterfaceError::Reserved(name.to_owned()));
    }
    if spec.kind == "patch" {
        return match spec.options.get("peer") {
            None => Err(InterfaceError::NoPeer(name.to_owned())),
            Some(peer) if *peer == *name => Err(InterfaceError::PeerIsSelf(name.to_owned())),
            Some(peer) => Ok(Behind::Patch(peer.clone(), identity::made_up_mac(name))),
        };
    }
    if let Some(InterfaceClass::Tunnel(kind)) = devices.types.interface(&spec.kind, dp.class) {
        return Ok(Behind::Tunnel(TunnelInterface::open(name, kind, &spec.options, dp, &devices.underlay)?));
    }
    let device = devices.open(name, &spec.kind, dp.class, &spec.options)?;
    let number = (dp.class == DatapathClass::Dummy).then(|| Attached::number_by_name(name)).flatten();
    Ok(Behind::Device(Attached::new(dp, device, &spec.options, number)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_no_link_change_ends_are_retried() {
        let device = |kind| InterfaceError::Device { kind, text: "could not open network device eth1".to_owned() };
        for (kind, error, expected) in [
            ("system", device(NetdevErrorKind::System), true),
            ("internal", device(NetdevErrorKind::System), true),
            ("system", device(NetdevErrorKind::Missing), false),
            ("afxdp", device(NetdevErrorKind::Missing), true),
            ("bogus", InterfaceError::UnknownType("g".to_owned()), false),
            ("patch", device(NetdevErrorKind::System), false),
        ] {
            assert_eq!(error.may_end_unannounced(kind), expected, "{kind}: {error}");
        }
    }
}
