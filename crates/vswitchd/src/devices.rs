//! Opening devices by interface type, and the datapaths by type.

use crate::backends;
use crate::event_log::Events;
use crate::interface::InterfaceError;
use crate::local_collectors::HostCollectors;
use crate::placement::Placements;
use crate::standalone::StandaloneDatapaths;
use crate::tunnels::TunnelPorts;
use crate::types::{DatapathClass, InterfaceClass, Types};
use crate::ufid::Ufids;
use crate::underlay::{HostUnderlay, Request};
use base::{Clock, Millis};
use dpif::{Dpif, DpifError, RoundWatch, UpcallHandler};
use netdev::dummy::Registry;
use netdev::{Netdev, NetdevErrorKind};
use netdev_accel::Tcx;
use netdev_afxdp::AfXdp;
use netdev_linux::Linux;
use ofproto::Switch;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tunnel::header::PortRange;

/// A datapath with the switch on it.
#[derive(Clone, Debug)]
pub struct Dp {
    /// Its type.
    pub kind: String,
    /// Its name. That of bridges is `ovs-` and its type.
    pub name: String,
    /// What it is: a dummy or not.
    pub class: DatapathClass,
    /// The datapath.
    pub dpif: Arc<dyn Dpif>,
    /// The switch on it.
    pub switch: Arc<Switch>,
    /// When it was made.
    pub made: Instant,
    /// The devices attached to it.
    pub placements: Arc<Placements>,
    /// Its ports for tunnels.
    pub tunnel_ports: Arc<TunnelPorts>,
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
    /// A datapath of this type and name, without ports. The switch on it does not handle its upcalls yet.
    pub(crate) fn open(kind: &str, name: &str, class: DatapathClass, clock: &Clock) -> Result<Self, DpifError> {
        let dpif = backends::open(class, clock)?;
        let switch = Switch::new(clock.clone());
        switch.attach(Arc::clone(&dpif), format!("{kind}@{name}"));
        let (placements, tunnel_ports, offload) = (Arc::default(), Arc::default(), Arc::default());
        let (kind, name) = (kind.to_owned(), name.to_owned());
        Ok(Self { kind, name, class, dpif, switch, made: Instant::now(), placements, tunnel_ports, offload })
    }

    /// Type and name, as `netdev@ovs-netdev`.
    pub fn full_name(&self) -> String {
        format!("{}@{}", self.kind, self.name)
    }

    /// Looks for collectors of samples on this host, unless they were found before. Dummies have none.
    pub fn find_local_collectors(&self) {
        if self.class == DatapathClass::Userspace
            && !self.switch.has_local_collectors()
            && let Some(collectors) = HostCollectors::open()
        {
            self.switch.set_local_collectors(Arc::new(collectors));
        }
    }

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
    /// Routes and neighbours of tunnels.
    pub underlay: Arc<HostUnderlay>,
    /// The UDP source ports of outer headers. Locked for one statement, also under `datapaths`.
    pub egress_ports: Mutex<PortRange>,
    /// The unique ids of flows.
    pub ufids: Arc<Ufids>,
    /// The last choice by `upcall/disable-ufid` and `enable-ufid`, which `upcall/show` prints. A datapath in this process
    /// has no dumps that it could change.
    pub terse_dumps: AtomicBool,
    /// Whether the database asks for offload (`other_config:hw-offload`).
    pub hw_offload: AtomicBool,
    /// Whether the switch waits for its flows to be restored: see [`Devices::set_restoring`].
    is_restoring: AtomicBool,
    /// Dummy devices, for the `netdev-dummy/` commands.
    pub dummies: Arc<Registry>,
    linux: Mutex<Option<Arc<Linux>>>,
    datapaths: Mutex<BTreeMap<String, Dp>>,
    /// Which rounds of packet threads are logged.
    pub round_watch: Arc<RoundWatch>,
    /// Datapaths beside those of bridges.
    pub standalone: StandaloneDatapaths,
    on_change: Arc<tokio::sync::Notify>,
    /// The status of a protocol has changed.
    pub status_changed: Arc<tokio::sync::Notify>,
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
            underlay: Arc::new(HostUnderlay::new(clock.clone())),
            egress_ports: Mutex::default(),
            clock,
            ufids: Arc::default(),
            terse_dumps: AtomicBool::new(true),
            hw_offload: AtomicBool::new(false),
            is_restoring: AtomicBool::new(false),
            dummies: Arc::default(),
            linux: Mutex::default(),
            datapaths: Mutex::default(),
            round_watch: Arc::new(RoundWatch::new(netdev_linux::tsc::cycles_per_ns().unwrap_or(1.0))),
            standalone: StandaloneDatapaths::default(),
            on_change,
            status_changed: Arc::default(),
            idl_cells: AtomicU64::new(0),
            on_clock: tokio::sync::Notify::new(),
        }
    }

    /// Sends the requests for neighbours that wait, from the own ports of their bridges, and packets whose neighbours are known.
    pub fn send_requests(&self) {
        self.datapaths().iter().for_each(|(_, dp)| dp.switch.release_held());
        for Request { bridge, frame } in self.underlay.take_requests() {
            let of_datapath = |(_, dp): (String, Dp)| dp.switch.bridge_named(&bridge);
            if let Some(bridge) = self.datapaths().into_iter().find_map(of_datapath) {
                bridge.send_from_local(&frame);
            }
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
            dp.switch.settle_protocols();
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
        // As in Open vSwitch, this ends the datapaths of the type that were made by hand.
        self.standalone.remove_kind(kind);
        let dp = Dp::open(kind, &format!("ovs-{kind}"), class, &self.clock).map_err(|e| e.to_string())?;
        self.watch(&dp);
        let changed = Arc::clone(&self.status_changed);
        dp.switch.on_status_change(Box::new(move |_| changed.notify_one()));
        self.underlay.serve(&dp.switch);
        dp.find_local_collectors();
        dp.switch.set_restoring(self.is_restoring.load(Ordering::Relaxed));
        dp.dpif.set_tunnel_ports(*self.egress_ports.lock());
        dp.dpif.set_handler(Arc::clone(&dp.switch) as Arc<dyn UpcallHandler>);
        dp.switch.start_revalidator().map_err(|e| format!("could not start revalidator thread: {e}"))?;
        datapaths.insert(kind.to_owned(), dp.clone());
        Ok(dp)
    }

    /// Sets whether all datapaths, also those to come, wait for their flows.
    pub(crate) fn set_restoring(&self, restoring: bool) {
        self.is_restoring.store(restoring, Ordering::Relaxed);
        self.datapaths().iter().for_each(|(_, dp)| dp.switch.set_restoring(restoring));
    }

    /// Has a new datapath report to the log.
    pub(crate) fn watch(&self, dp: &Dp) {
        dp.dpif.set_round_watch(Arc::clone(&self.round_watch));
        let (kind, name, ufids) = (dp.kind.clone(), dp.name.clone(), Arc::clone(&self.ufids));
        let dpif = Arc::downgrade(&dp.dpif);
        dp.dpif.set_event_log(Arc::new(Events { kind, name, dpif, ufids, clock: self.clock.clone() }));
    }

    /// The datapaths of bridges, by type.
    pub fn datapaths(&self) -> Vec<(String, Dp)> {
        self.datapaths.lock().iter().map(|(k, d)| (k.clone(), d.clone())).collect()
    }

    /// The datapaths of bridges and those made by hand, by type and name.
    pub fn all_datapaths(&self) -> Vec<Dp> {
        let mut all: Vec<Dp> = self.datapaths().into_iter().map(|(_, dp)| dp).collect();
        all.extend(self.standalone.all());
        all.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
        all
    }

    /// Has the bridges follow changes of their ports.
    pub fn notify_ports(&self) {
        self.on_change.notify_one();
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
            // Patch ports and tunnels have no device of their own.
            Some(InterfaceClass::Patch | InterfaceClass::Tunnel(_)) | None => {
                return Err(InterfaceError::UnknownType(name.to_owned()));
            }
        };
        device.set_options(options)?;
        // Changes of the device wake the control thread.
        let notify = Arc::clone(&self.on_change);
        device.changes().subscribe(Arc::new(move || notify.notify_one()));
        Ok(device)
    }
}
