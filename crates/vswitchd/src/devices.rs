//! Opening devices by interface type, and the datapaths by type.

use crate::backends;
use crate::interface::InterfaceError;
use crate::types::{DatapathClass, InterfaceClass, Types};
use crate::ufid::Ufids;
use base::{Clock, DpPort, Millis};
use dpif::{Dpif, DpifError, UpcallHandler};
use netdev::dummy::Registry;
use netdev::{Netdev, NetdevErrorKind};
use netdev_accel::Tcx;
use netdev_afxdp::AfXdp;
use netdev_linux::Linux;
use ofproto::Switch;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// A datapath with the switch on it.
#[derive(Clone, Debug)]
pub struct Dp {
    /// What it is: a dummy or not.
    pub class: DatapathClass,
    /// The datapath.
    pub dpif: Arc<dyn Dpif>,
    /// The switch on it.
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
    /// Has flows go to an accelerator, or to none. A kernel without one is logged once.
    pub fn set_offload(&self, wanted: bool) {
        let mut offload = self.offload.lock();
        if wanted != (*offload == Offload::Off) {
            return;
        }
        if !wanted {
            self.dpif.set_accelerator(None);
            *offload = Offload::Off;
            return;
        }
        *offload = match Tcx::new() {
            Ok(accelerator) => {
                self.dpif.set_accelerator(Some(Arc::new(accelerator)));
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
    /// Time of everything. To be moved by [`Devices::stop_time`] and [`Devices::warp_time`].
    pub clock: Clock,
    /// The unique ids of flows.
    pub ufids: Ufids,
    /// The last choice by `upcall/disable-ufid` and `enable-ufid`, which `upcall/show` prints. A datapath in this process
    /// has no dumps that it could change.
    pub terse_dumps: AtomicBool,
    /// Dummy devices, for the `netdev-dummy/` commands.
    pub dummies: Arc<Registry>,
    linux: Mutex<Option<Arc<Linux>>>,
    datapaths: Mutex<BTreeMap<String, Dp>>,
    on_change: Arc<tokio::sync::Notify>,
    /// How many values of the database the switch holds, for `memory/show`.
    pub idl_cells: AtomicU64,
    /// Notified when the clock was stopped or moved by hand.
    on_clock: tokio::sync::Notify,
}

impl Devices {
    /// Nothing opened yet. `on_change` is notified when links of the host change.
    pub fn new(types: Types, clock: Clock, on_change: Arc<tokio::sync::Notify>) -> Self {
        Self {
            types,
            clock,
            ufids: Ufids::default(),
            terse_dumps: AtomicBool::new(true),
            dummies: Arc::default(),
            linux: Mutex::default(),
            datapaths: Mutex::default(),
            on_change,
            idl_cells: AtomicU64::new(0),
            on_clock: tokio::sync::Notify::new(),
        }
    }

    /// Stops the clock.
    pub fn stop_time(&self) {
        self.clock.stop();
        self.on_clock.notify_one();
    }

    /// Advances the clock by `ms` milliseconds, and does what is due by then.
    pub fn warp_time(&self, ms: u64) {
        self.clock.warp(ms);
        for (_, dp) in self.datapaths() {
            dp.switch.run_timers();
            dp.switch.housekeeping();
        }
        self.on_clock.notify_one();
    }

    /// Waits until a moment of the clock, which may be stopped and moved meanwhile. For one task at a time.
    pub async fn wait_until(&self, moment: Millis) {
        loop {
            let left_ms = moment.since(self.clock.now());
            if left_ms == 0 {
                return;
            }
            let moved = self.on_clock.notified();
            if self.clock.is_stopped() {
                moved.await;
                continue;
            }
            tokio::select! {
                () = moved => {}
                () = tokio::time::sleep(Duration::from_millis(left_ms)) => {}
            }
        }
    }

    /// How many datapaths there are.
    pub fn n_datapaths(&self) -> usize {
        self.datapaths.lock().len()
    }

    /// The datapath of a type, made when it is first asked for.
    pub fn datapath(&self, kind: &str) -> Result<Dp, String> {
        let class =
            self.types.datapath(kind).ok_or_else(|| format!("could not create datapath of unknown type {kind}"))?;
        let mut datapaths = self.datapaths.lock();
        if let Some(dp) = datapaths.get(kind) {
            return Ok(dp.clone());
        }
        let dpif = backends::open(class, &self.clock).map_err(|e| e.to_string())?;
        let switch = Switch::new(self.clock.clone());
        if class == DatapathClass::Dummy {
            // Tests of such bridges look at what tables do, which traces show.
            switch.pretend_to_track();
        }
        dpif.set_handler(Arc::clone(&switch) as Arc<dyn UpcallHandler>);
        switch.attach(Arc::clone(&dpif));
        switch.start_revalidator().map_err(|e| format!("could not start revalidator thread: {e}"))?;
        let dp = Dp { class, dpif, switch, offload: Arc::default() };
        datapaths.insert(kind.to_owned(), dp.clone());
        Ok(dp)
    }

    /// All datapaths that were made, by type.
    pub fn datapaths(&self) -> Vec<(String, Dp)> {
        self.datapaths.lock().iter().map(|(k, d)| (k.clone(), d.clone())).collect()
    }

    /// Waits, without holding up other tasks, until packet threads have let go of devices that are no ports any more.
    pub async fn synchronize(&self) {
        base::coverage!(devices_synchronize);
        for (_, dp) in self.datapaths() {
            // Fails only if it panicked, which was reported where it did.
            let _ = tokio::task::spawn_blocking(move || dp.dpif.synchronize()).await;
        }
    }

    fn linux(&self) -> Result<Arc<Linux>, InterfaceError> {
        let mut linux = self.linux.lock();
        if let Some(linux) = &*linux {
            return Ok(Arc::clone(linux));
        }
        let opened = Arc::new(Linux::new().map_err(|e| InterfaceError::Device {
            kind: NetdevErrorKind::System,
            text: format!("could not talk to the kernel: {e}"),
        })?);
        let notify = Arc::clone(&self.on_change);
        opened.changes().subscribe(Arc::new(move || notify.notify_one()));
        *linux = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Opens a device for an interface of type `kind` on a datapath of class `datapath`.
    pub fn open(
        &self,
        name: &str,
        kind: &str,
        datapath: DatapathClass,
        options: &BTreeMap<String, String>,
    ) -> Result<Arc<dyn Netdev>, InterfaceError> {
        let device: Arc<dyn Netdev> = match self.types.interface(kind, datapath) {
            Some(InterfaceClass::Dummy(kind)) => self.dummies.open(name, kind)?,
            Some(InterfaceClass::AfXdp) => AfXdp::open(&*self.linux()?, name, options)?,
            Some(InterfaceClass::Internal) => self.linux()?.open_internal(name)?,
            Some(InterfaceClass::Memory(kind)) => netdev::memory::open(name, kind, options)?,
            Some(InterfaceClass::System) => self.linux()?.open_system(name)?,
            // Patch ports have no device.
            Some(InterfaceClass::Patch) | None => return Err(InterfaceError::UnknownType(name.to_owned())),
        };
        device.set_options(options)?;
        // Changes of the device wake the control thread.
        let notify = Arc::clone(&self.on_change);
        device.changes().subscribe(Arc::new(move || notify.notify_one()));
        Ok(device)
    }
}

/// A device that is a port of a datapath. When this value is dropped, protocols send their last frames out of the device,
/// and it is removed. Packet threads may use it a little longer: [`Devices::synchronize`] waits for them, as is necessary
/// before the device or its name is used again.
#[derive(Debug)]
pub struct Attached {
    /// The device.
    pub device: Arc<dyn Netdev>,
    /// Its number.
    pub port: DpPort,
    dpif: Arc<dyn Dpif>,
    switch: Arc<Switch>,
}

impl Attached {
    /// The number that a device gets on a dummy datapath if it is free, so that tests can tell: the one that its name
    /// ends in, past a hundred for `br0` and the like.
    pub fn number_by_name(name: &str) -> Option<DpPort> {
        let digits = &name[name.trim_end_matches(|c: char| c.is_ascii_digit()).len()..];
        let base = if name.starts_with("br") { 100 } else { 0 };
        digits.parse::<u32>().ok()?.checked_add(base).filter(|n| *n > 0).map(DpPort)
    }

    /// Adds `device` to `dp`, under number `requested` if that is free.
    pub fn new(dp: &Dp, device: Arc<dyn Netdev>, requested: Option<DpPort>) -> Result<Self, DpifError> {
        let port = dp.dpif.port_add(Arc::clone(&device), requested)?;
        Ok(Self { device, port, dpif: Arc::clone(&dp.dpif), switch: Arc::clone(&dp.switch) })
    }
}

impl Attached {
    /// Has receive queues asked on cores, by queue, and takes over how many there are.
    pub fn set_queues(&self, affinity: &BTreeMap<usize, usize>) -> Result<(), DpifError> {
        self.dpif.port_set_queues(self.port, affinity)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.switch.end_protocols(self.port);
        // Fails only if the port is gone already.
        let _ = self.dpif.port_del(self.port);
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
