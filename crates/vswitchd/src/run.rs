//! The control thread's loop: database changes, link changes, the clock.

use crate::bridge::RunningBridge;
use crate::columns;
use crate::desired::Desired;
use crate::devices::Devices;
use crate::interface::RunningInterface;
use crate::lldp::{self, TrunkVlans};
use crate::own_tls::OwnTls;
use crate::status;
use crate::types::Types;
use base::Clock;
use ovsdb_client::schemas::vswitch;
use ovsdb_client::{Idl, LockState, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

/// How often flows' statistics are pushed, and idle flows and timeouts looked for.
const REVALIDATE: Duration = Duration::from_millis(500);
/// How often is looked how controllers are reached through the bridges.
const IN_BAND: Duration = Duration::from_secs(1);
/// How often interface statistics are written, unless other_config:stats-update-interval says otherwise.
const STATS_MS: u64 = 5000;

/// What the switch is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database's remote.
    pub remote: String,
    /// Where the bridges' sockets go.
    pub rundir: PathBuf,
    /// Which types there are.
    pub types: Types,
    /// Keys and certificates for the database's remote, and for all others where the database has none.
    pub tls: tls::Config,
}

/// A switch daemon without its process: what `ovs-vswitchd` and `flowstone run` have in common.
#[derive(Debug)]
pub struct Daemon {
    options: Options,
    own_tls: OwnTls,
    idl: Idl,
    /// All devices and datapaths.
    pub devices: Arc<Devices>,
    bridges: BTreeMap<String, RunningBridge>,
    /// Bridges that could not be made, and why.
    failed: BTreeMap<String, String>,
    links_changed: Arc<Notify>,
    desired: Desired,
    /// Warnings about `desired` that were logged.
    warned: BTreeSet<String>,
    configured: bool,
    /// Whether the database was followed and the lock was held when this was last looked at.
    active: bool,
    /// Whether another switch was seen to hold the lock.
    contended: bool,
    /// Whether the database may not have what was last to be written.
    unwritten: bool,
    /// VLANs that the database has in Port:trunks for mappings of auto-attach.
    trunked: TrunkVlans,
}

/// The clock's work, as a task: whoever waits for the database does not hold it up. Ends when dropped.
struct Housekeeping(tokio::task::JoinHandle<()>);

impl Housekeeping {
    fn start(devices: Arc<Devices>) -> Self {
        Self(tokio::spawn(async move {
            let mut tick = tokio::time::interval(REVALIDATE);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut usage = tokio::time::interval(Duration::from_secs(dpif::INTERVAL_SECS));
            usage.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // The first one is over at once.
            usage.tick().await;
            loop {
                tokio::select! {
                    _ = tick.tick() => devices.datapaths().iter().for_each(|(_, dp)| dp.switch.housekeeping()),
                    _ = usage.tick() => devices.datapaths().iter().for_each(|(_, dp)| _ = dp.dpif.tick()),
                }
            }
        }))
    }
}

impl Drop for Housekeeping {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Daemon {
    /// A daemon that will connect to its database. Needs a tokio runtime.
    pub fn new(options: Options, clock: Clock) -> Result<Self, String> {
        let tls = tls::Tls::new(options.tls.clone());
        let mut idl =
            Idl::new(&options.remote, &tls, vswitch::DATABASE, columns::wanted()).map_err(|e| e.to_string())?;
        idl.set_lock(Some("ovs_vswitchd"));
        let links_changed = Arc::new(Notify::new());
        let devices = Arc::new(Devices::new(options.types, clock, Arc::clone(&links_changed)));
        let is_tls = |remote: &str| ["ssl:", "pssl:"].iter().any(|method| remote.trim().starts_with(method));
        let is_used = options.remote.split(',').any(is_tls);
        let own_tls = OwnTls::new(tls, options.tls.clone(), is_used);
        Ok(Self {
            options,
            own_tls,
            idl,
            devices,
            bridges: BTreeMap::new(),
            failed: BTreeMap::new(),
            links_changed,
            desired: Desired::default(),
            warned: BTreeSet::new(),
            configured: false,
            active: false,
            contended: false,
            unwritten: false,
            trunked: TrunkVlans::new(),
        })
    }

    /// Serves for ever; `ready` is called once the first configuration is running.
    pub async fn run(&mut self, mut ready: impl FnMut()) {
        let _housekeeping = Housekeeping::start(Arc::clone(&self.devices));
        let mut in_band = tokio::time::interval(IN_BAND);
        in_band.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next_stats = Instant::now() + Duration::from_millis(STATS_MS);
        let mut was_ready = false;
        loop {
            tokio::select! {
                // Fails only for programs that do not reconnect.
                _ = self.idl.changed() => self.database_changed().await,
                () = self.links_changed.notified() => {
                    if self.configured {
                        // Ports that could not be opened are tried again, those whose device is gone are closed.
                        self.reconfigure().await;
                    }
                }
                _ = in_band.tick() => {
                    for bridge in self.bridges.values_mut().filter(|bridge| !bridge.ofproto.is_changing()) {
                        bridge.control.refresh_in_band(&bridge.ofproto);
                    }
                }
                () = tokio::time::sleep_until(next_stats) => {
                    next_stats = Instant::now() + Duration::from_millis(self.stats_interval_ms());
                    if self.configured {
                        for (name, bridge) in &mut self.bridges {
                            bridge.control.retry(&bridge.ofproto, &self.desired.bridges[name]);
                        }
                        let mut interfaces = self.bridges.values().flat_map(|bridge| bridge.interfaces.values());
                        if interfaces.any(RunningInterface::is_to_be_retried) {
                            self.reconfigure().await;
                        }
                        self.write(Report::All).await;
                    }
                }
            }
            if !was_ready && self.configured {
                was_ready = true;
                ready();
            }
        }
    }

    fn stats_interval_ms(&self) -> u64 {
        let wanted = self.desired.other_config.get("stats-update-interval").and_then(|v| v.parse().ok());
        wanted.unwrap_or(STATS_MS).max(STATS_MS)
    }

    /// Contents, connection or lock changed. While the database is away, everything stays as it is; while another
    /// switch holds the lock, nothing may run here.
    async fn database_changed(&mut self) {
        let changes = self.idl.take_changes();
        let contended = self.idl.lock_state() == Some(LockState::Contended);
        if contended && !self.contended {
            tracing::error!(
                target: "bridge",
                "another ovs-vswitchd process is running, disabling this process (pid {}) until it goes away",
                std::process::id()
            );
            self.bridges.clear();
            self.configured = false;
        }
        self.contended = contended;
        let active = self.idl.is_live() && self.idl.has_lock();
        let resumed = active && !std::mem::replace(&mut self.active, active);
        if !active {
            self.active = false;
        } else if resumed || self.unwritten || changes.iter().any(columns::configures) {
            self.reconfigure().await;
        }
    }

    /// Makes everything as the database says, and writes back what is. While the database is away, it is taken to say
    /// what it said last.
    async fn reconfigure(&mut self) {
        if self.idl.is_live() {
            self.desired = Desired::read(self.idl.replica());
            self.warn();
        }
        let datapaths = self.devices.datapaths();
        let mut permissions = Vec::new();
        for (_, dp) in &datapaths {
            permissions.append(&mut dp.switch.short_changes().await);
        }
        self.apply();
        drop(permissions);
        // The configuration is running when cached flows follow it.
        for (_, dp) in self.devices.datapaths() {
            dp.switch.settled().await;
        }
        self.configured = true;
        self.write(Report::Status).await;
    }

    /// Logs what is wrong with the configuration and was not wrong before.
    fn warn(&mut self) {
        for warning in self.desired.warnings.difference(&self.warned) {
            tracing::warn!(target: "bridge", "{warning}");
        }
        self.warned.clone_from(&self.desired.warnings);
    }

    fn apply(&mut self) {
        base::coverage!(bridge_reconfigure);
        let desired = &self.desired;
        let tls = desired.tls.as_ref().map_or_else(|| self.options.tls.clone(), |row| row.over(&self.options.tls));
        self.bridges.retain(|name, running| {
            desired.bridges.get(name).is_some_and(|spec| spec.datapath_type == running.datapath_type)
        });
        let failed = std::mem::take(&mut self.failed);
        for (name, spec) in &desired.bridges {
            if !self.bridges.contains_key(name) {
                match RunningBridge::new(spec, &self.devices, &self.options.rundir) {
                    Ok(bridge) => {
                        self.bridges.insert(name.clone(), bridge);
                    }
                    Err(e) => {
                        if failed.get(name) != Some(&e) {
                            tracing::error!(target: "bridge", "failed to create bridge {name}: {e}");
                        }
                        self.failed.insert(name.clone(), e);
                    }
                }
            }
        }
        for (_, dp) in self.devices.datapaths() {
            desired.tuning.apply(&dp);
            dp.switch.tls().configure(tls.clone());
        }
        self.own_tls.configure(tls);
        for (name, bridge) in &mut self.bridges {
            bridge.close_interfaces(&desired.bridges[name]);
        }
        for (name, bridge) in &mut self.bridges {
            bridge.open_interfaces(&desired.bridges[name], &self.devices);
        }
        // A patch port's peer may be on any bridge of the same datapath.
        let mut patches: BTreeMap<(String, String), (u32, base::PortNo, String)> = BTreeMap::new();
        for bridge in self.bridges.values() {
            for name in bridge.interfaces.keys() {
                if let Some((id, no, peer)) = bridge.find_patch(name) {
                    patches.insert((bridge.datapath_type.clone(), name.clone()), (id, no, peer.to_owned()));
                }
            }
        }
        for (name, bridge) in &mut self.bridges {
            let spec = &desired.bridges[name];
            let kind = bridge.datapath_type.clone();
            bridge.connect(spec, &|own, peer| {
                let (id, no, back) = patches.get(&(kind.clone(), peer.to_owned()))?;
                (back == own).then_some((*id, *no))
            });
            bridge.control.listen(&bridge.ofproto, spec, &self.options.rundir);
            bridge.control.configure(&bridge.ofproto, spec, &desired.managers);
        }
        lldp::apply(desired, &self.bridges, &self.devices);
    }

    async fn write(&mut self, report: Report) {
        if !self.idl.is_live() || !self.idl.has_lock() {
            return;
        }
        let mut txn = self.idl.transaction();
        status::write(&mut txn, &self.desired, &self.bridges, &self.failed, &self.devices);
        let trunked = lldp::wanted_trunks(&self.desired);
        lldp::write_trunks(&mut txn, &self.trunked, &trunked);
        if report == Report::All {
            status::write_statistics(&mut txn, &self.bridges);
        }
        // Without an outcome, the next change of the database, its coming back at the latest, is the time to try again.
        match txn.commit().await {
            Ok(outcome) => {
                self.unwritten = matches!(outcome, Outcome::TryAgain);
                if !self.unwritten {
                    self.trunked = trunked;
                }
            }
            Err(e) => tracing::warn!(target: "bridge", "could not write status to the database: {e}"),
        }
    }
}

/// What to write to the database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Report {
    /// What is running.
    Status,
    /// That, and its counters.
    All,
}
