//! Opening devices by interface type, and the datapaths by type.

use base::{Clock, DpPort};
use datapath::{Config, Datapath};
use netdev::Netdev;
use netdev::dummy::Registry;
use netdev_accel::Tcx;
use netdev_afxdp::AfXdp;
use netdev_linux::Linux;
use ofproto::Switch;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What datapath and interface types there are (`--enable-dummy`, `--disable-system`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Types {
    /// Dummy datapaths and interfaces.
    pub dummy: bool,
    /// No `system` datapath.
    pub no_system: bool,
}

/// A datapath with the switch on it.
#[derive(Clone, Debug)]
pub struct Dp {
    /// Below.
    pub datapath: Arc<Datapath>,
    /// Above.
    pub switch: Arc<Switch>,
    offload: Arc<Mutex<Offload>>,
}

/// Whether flows are to go to an accelerator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Offload {
    #[default]
    Off,
    On,
    /// They were to, but there is none, for this reason.
    Failed(String),
}

impl Dp {
    /// Has flows go to an accelerator, or to none. If the kernel cannot have one, that is told once.
    pub fn set_offload(&self, wanted: bool) {
        let mut offload = self.offload.lock();
        if wanted != (*offload == Offload::Off) {
            return;
        }
        if !wanted {
            self.datapath.set_accelerator(None);
            *offload = Offload::Off;
            return;
        }
        *offload = match Tcx::new() {
            Ok(accelerator) => {
                self.datapath.set_accelerator(Some(Arc::new(accelerator)));
                Offload::On
            }
            Err(error) => {
                tracing::warn!(
                    target: "bridge",
                    "hw-offload is not available, packets are forwarded in userspace: {error}"
                );
                Offload::Failed(error)
            }
        };
    }

    /// Why there is no accelerator though there was to be one.
    pub fn offload_error(&self) -> Option<String> {
        if let Offload::Failed(error) = &*self.offload.lock() { Some(error.clone()) } else { None }
    }
}

/// All devices and datapaths of the process.
#[derive(Debug)]
pub struct Devices {
    /// What may be used.
    pub types: Types,
    /// Time of everything.
    pub clock: Clock,
    /// Dummy devices, for the `netdev-dummy/` commands.
    pub dummies: Arc<Registry>,
    linux: Mutex<Option<Arc<Linux>>>,
    datapaths: Mutex<BTreeMap<String, Dp>>,
    on_change: Arc<tokio::sync::Notify>,
}

impl Devices {
    /// Nothing opened yet. `on_change` is notified when links of the host change.
    pub fn new(types: Types, clock: Clock, on_change: Arc<tokio::sync::Notify>) -> Self {
        Self { types, clock, dummies: Arc::default(), linux: Mutex::default(), datapaths: Mutex::default(), on_change }
    }

    /// The names of the datapath types, for Open_vSwitch:datapath_types.
    pub fn datapath_types(&self) -> Vec<&'static str> {
        let mut types = vec!["netdev"];
        if !self.types.no_system {
            types.push("system");
        }
        if self.types.dummy {
            types.push("dummy");
        }
        types
    }

    /// The names of the interface types, for Open_vSwitch:iface_types.
    pub fn iface_types(&self) -> Vec<&'static str> {
        let mut types = vec!["afxdp", "internal", "null", "patch", "replay", "system"];
        if self.types.dummy {
            types.extend(["dummy", "dummy-internal", "dummy-pmd"]);
        }
        types
    }

    /// The datapath of a type, made when it is first asked for.
    pub fn datapath(&self, kind: &str) -> Result<Dp, String> {
        if !self.datapath_types().contains(&kind) {
            return Err(format!("could not create datapath of unknown type {kind}"));
        }
        let mut datapaths = self.datapaths.lock();
        if let Some(dp) = datapaths.get(kind) {
            return Ok(dp.clone());
        }
        let datapath = Datapath::new(Config::default(), self.clock.clone()).map_err(|e| e.to_string())?;
        let datapath = Arc::new(datapath);
        let switch = Switch::new(self.clock.clone());
        if kind == "dummy" {
            // What is tested there is what tables do, which traces tell.
            switch.pretend_to_track();
        }
        datapath.set_handler(Arc::clone(&switch) as Arc<dyn dpif::UpcallHandler>);
        switch.attach(Arc::clone(&datapath) as Arc<dyn dpif::Dpif>);
        switch.start_revalidator().map_err(|e| format!("could not start revalidator thread: {e}"))?;
        let dp = Dp { datapath, switch, offload: Arc::default() };
        datapaths.insert(kind.to_owned(), dp.clone());
        Ok(dp)
    }

    /// All datapaths that were made, by type.
    pub fn datapaths(&self) -> Vec<(String, Dp)> {
        self.datapaths.lock().iter().map(|(k, d)| (k.clone(), d.clone())).collect()
    }

    fn linux(&self) -> Result<Arc<Linux>, String> {
        let mut linux = self.linux.lock();
        if let Some(linux) = &*linux {
            return Ok(Arc::clone(linux));
        }
        let opened = Arc::new(Linux::new().map_err(|e| format!("could not talk to the kernel: {e}"))?);
        let notify = Arc::clone(&self.on_change);
        opened.changes().subscribe(Arc::new(move || notify.notify_one()));
        *linux = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Opens a device for an interface of a bridge on a datapath of type `datapath_type`.
    pub fn open(
        &self,
        name: &str,
        kind: &str,
        datapath_type: &str,
        options: &BTreeMap<String, String>,
    ) -> Result<Arc<dyn Netdev>, String> {
        let text = |e: netdev::NetdevError| e.to_string();
        let device: Arc<dyn Netdev> = match (kind, datapath_type) {
            ("internal", "dummy") | ("dummy-internal", _) if self.types.dummy => {
                self.dummies.open(name, "dummy-internal").map_err(text)?
            }
            ("dummy", _) if self.types.dummy => self.dummies.open(name, "dummy").map_err(text)?,
            ("dummy-pmd", _) if self.types.dummy => self.dummies.open(name, "dummy-pmd").map_err(text)?,
            ("afxdp", _) => AfXdp::open(&*self.linux()?, name, options).map_err(text)?,
            ("internal", _) => self.linux()?.open_internal(name).map_err(text)?,
            ("null" | "replay", _) => netdev::memory::open(name, kind, options).map_err(text)?,
            ("system", _) => self.linux()?.open_system(name).map_err(text)?,
            // The text that Open vSwitch has for a type it does not know.
            _ => {
                return Err(format!("could not open network device {name} (Address family not supported by protocol)"));
            }
        };
        device.set_options(options).map_err(text)?;
        // Whoever opens a device hears of its changes.
        let notify = Arc::clone(&self.on_change);
        device.changes().subscribe(Arc::new(move || notify.notify_one()));
        Ok(device)
    }
}

/// A device that is a port of a datapath; removed from it when dropped.
#[derive(Debug)]
pub struct Attached {
    /// The device.
    pub device: Arc<dyn Netdev>,
    /// Its number.
    pub port: DpPort,
    datapath: Arc<Datapath>,
}

impl Attached {
    /// The number that a device gets on a dummy datapath if it is free, so that tests can tell: the one that its name
    /// ends in, past a hundred for `br0` and the like.
    pub fn number_by_name(name: &str) -> Option<DpPort> {
        let digits = &name[name.trim_end_matches(|c: char| c.is_ascii_digit()).len()..];
        let base = if name.starts_with("br") { 100 } else { 0 };
        digits.parse::<u32>().ok()?.checked_add(base).filter(|n| *n > 0).map(DpPort)
    }

    /// Adds `device` to `datapath`, under number `requested` if that is free.
    pub fn new(datapath: &Arc<Datapath>, device: Arc<dyn Netdev>, requested: Option<DpPort>) -> Result<Self, String> {
        let port = datapath.port_add(Arc::clone(&device), requested).map_err(|e| e.to_string())?;
        Ok(Self { device, port, datapath: Arc::clone(datapath) })
    }
}

impl Attached {
    /// Has receive queues asked on cores, by queue, and takes over how many there are.
    pub fn set_queues(&self, affinity: &BTreeMap<usize, usize>) -> Result<(), String> {
        self.datapath.port_set_queues(self.port, affinity).map_err(|e| e.to_string())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Fails only if the port is gone already.
        let _ = self.datapath.port_del(self.port);
        // The device, or its name, may be wanted again at once.
        self.datapath.synchronize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dummy_ports_are_numbered_by_name() {
        let number = |name| Attached::number_by_name(name).map(|n| n.0);
        assert_eq!((number("p7"), number("br0"), number("br12")), (Some(7), Some(100), Some(112)));
        assert_eq!((number("p"), number("p0"), number("p99999999999")), (None, None, None));
    }
}
